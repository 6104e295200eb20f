//! Netflow padding of one link (padding-spec 2).
//!
//! Routers on the way write a record of a connection when it has been silent for some ten seconds.
//! So that such records reveal little about what a client does, both ends of a client's link send a
//! PADDING cell when the link has been silent for a random time below that.
//!
//! As in C tor (`channelpadding.c`) a link is silent when no cell is sent in either direction, and
//! only links that carry circuits of more than one hop are padded: their owner notes that with
//! [`LinkPadding::carries`]. Cells only leave a time behind ([`LinkPadding::cell_sent`],
//! [`LinkPadding::cell_received`]); timeouts are drawn when the owner's timer looks
//! ([`LinkPadding::poll`]), some times a second.

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};
use weft_cell::link_msg::{PaddingCommand, PaddingNegotiate};

/// Parameters of netflow padding, from torrc and consensus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaddingParams {
    /// torrc's `ConnectionPadding`. `None` ("auto"): pad where the peer can. `Some(false)`: never,
    /// and ask the peer not to. `Some(true)`: also where the peer does not understand it.
    pub connection_padding: Option<bool>,
    /// torrc's `ReducedConnectionPadding`: pad rarely, and ask the peer not to. For clients.
    pub reduced: bool,
    /// Consensus `nf_ito_low`: the shortest silence before padding.
    pub low: Duration,
    /// Consensus `nf_ito_high`: the longest.
    pub high: Duration,
    /// Consensus `nf_ito_low_reduced`: the shortest when reduced.
    pub low_reduced: Duration,
    /// Consensus `nf_ito_high_reduced`: the longest when reduced.
    pub high_reduced: Duration,
    /// Consensus `nf_pad_before_usage`: links are padded as soon as a circuit is extended, before
    /// anything flows on it.
    pub pad_before_usage: bool,
    /// Consensus `nf_pad_relays`: links between relays are padded too.
    pub pad_relays: bool,
}

impl Default for PaddingParams {
    fn default() -> Self {
        Self {
            connection_padding: None,
            reduced: false,
            low: Duration::from_millis(1_500),
            high: Duration::from_millis(9_500),
            low_reduced: Duration::from_millis(9_000),
            high_reduced: Duration::from_millis(14_000),
            pad_before_usage: true,
            pad_relays: false,
        }
    }
}

/// What a link has been used for so far, in the order in which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkUse {
    /// Nothing that a user of Tor does: handshakes, directory requests, circuits of one hop.
    Nothing,
    /// A circuit of more than one hop is being built: at a relay, a RELAY_EARLY cell came on a
    /// circuit that goes on to another relay, or from a relay.
    FullCircuits,
    /// Such a circuit carries a user's traffic: at a relay, a RELAY cell came on it.
    UserTraffic,
}

/// The padding of one link: when the next PADDING cell is due.
///
/// A cell notes two things here: their place is a link's first line in the cache. The rest is apart.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct LinkPadding {
    /// When the last cell was sent in either direction.
    last_cell: Instant,
    carries: LinkUse,
    /// The peer pads too: the link protocol is 5 or higher, and it has not asked for none.
    negotiated: bool,
    /// Padding is possible on this kind of link, whatever is negotiated.
    qualifies: bool,
    /// Padding is sent although it is not negotiated.
    forced: bool,
    /// Use from which on the link is padded.
    pad_from: LinkUse,
    /// What the timer needs.
    times: Box<Times>,
}

/// The times of a link's padding.
#[derive(Debug, Clone)]
struct Times {
    /// The consensus' bounds.
    consensus: Bounds,
    /// The bounds in force.
    bounds: Bounds,
    /// What is sent to the peer once, when the link opens.
    announce: Option<PaddingNegotiate>,
    /// When padding is due if no cell was sent since `since`.
    due: Option<Due>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    low: Duration,
    high: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    since: Instant,
    at: Instant,
}

impl LinkPadding {
    /// Memory that one points to.
    pub(crate) const BOXED: usize = size_of::<Times>();

    /// The padding of a link that has just opened. `client`: one end is a client (the peer, or
    /// this node), not two relays. `supported`: the link protocol is 5 or higher.
    pub(crate) fn new(params: &PaddingParams, client: bool, supported: bool, now: Instant) -> Self {
        let consensus = Bounds {
            low: params.low,
            high: params.high.max(params.low),
        };
        let off = params.connection_padding == Some(false);
        let forced = params.connection_padding == Some(true);
        let reduced = params.reduced && !off && (supported || forced);
        let bounds = if reduced {
            consensus.at_least(params.low_reduced, params.high_reduced)
        } else {
            consensus
        };
        Self {
            last_cell: now,
            carries: LinkUse::Nothing,
            negotiated: supported && !off,
            // Both bounds 0: the consensus has turned padding off.
            qualifies: (client || params.pad_relays) && !off && !consensus.high.is_zero(),
            forced,
            pad_from: if params.pad_before_usage {
                LinkUse::FullCircuits
            } else {
                LinkUse::UserTraffic
            },
            times: Box::new(Times {
                consensus,
                bounds,
                announce: (supported && (off || reduced)).then_some(PaddingNegotiate {
                    version: 0,
                    command: PaddingCommand::Stop,
                    ito_low_ms: 0,
                    ito_high_ms: 0,
                }),
                due: None,
            }),
        }
    }

    /// What an initiator sends to the peer now that the link is open, if anything: not to pad.
    /// Relays send nothing: a client accepts no such request.
    pub(crate) fn take_announcement(&mut self) -> Option<PaddingNegotiate> {
        self.times.announce.take()
    }

    /// The peer pads, too.
    pub(crate) fn is_negotiated(&self) -> bool {
        self.negotiated
    }

    /// A timeout runs at whose end padding is sent.
    pub(crate) fn is_timed(&self) -> bool {
        self.times.due.is_some()
    }

    /// The link is used for this, or has been. Never goes back.
    pub(crate) fn carries(&mut self, usage: LinkUse) {
        self.carries = self.carries.max(usage);
    }

    /// A cell was sent.
    pub(crate) fn cell_sent(&mut self, now: Instant) {
        self.last_cell = self.last_cell.max(now);
    }

    /// A cell was received.
    pub(crate) fn cell_received(&mut self, now: Instant) {
        self.last_cell = self.last_cell.max(now);
    }

    /// The client at the other end wants padding to stop, or to start within its bounds; these are
    /// raised to the consensus' where they are lower. A start with zeros asks for the consensus'.
    pub(crate) fn negotiate(&mut self, wish: &PaddingNegotiate) {
        self.negotiated = wish.command == PaddingCommand::Start;
        let times = &mut *self.times;
        times.bounds = times.consensus.at_least(
            Duration::from_millis(wish.ito_low_ms.into()),
            Duration::from_millis(wish.ito_high_ms.into()),
        );
        times.due = None;
    }

    /// Whether a PADDING cell must be sent now. The owner sends it, unless other cells wait to be
    /// sent on the link.
    pub(crate) fn poll(&mut self, now: Instant, rng: &mut impl Rng) -> bool {
        if !self.is_on() {
            // What was due before it was turned off is drawn anew (see `negotiate`).
            return false;
        }
        let times = &mut *self.times;
        let due = match times.due {
            Some(due) if due.since == self.last_cell => due,
            // Cells were sent since: the silence starts anew, with a new timeout.
            _ => {
                let since = self.last_cell;
                let at = since + times.bounds.sample(rng);
                *times.due.insert(Due { since, at })
            }
        };
        if now < due.at {
            return false;
        }
        self.last_cell = now;
        times.due = None;
        true
    }

    /// When padding may be due next, if no cell is sent until then. `None`: the link is not padded.
    #[cfg(test)]
    fn next_deadline(&self) -> Option<Instant> {
        if !self.is_on() {
            return None;
        }
        match self.times.due {
            Some(due) if due.since == self.last_cell => Some(due.at),
            // No timeout is drawn yet, but none can be shorter.
            _ => Some(self.last_cell + self.times.bounds.low),
        }
    }

    fn is_on(&self) -> bool {
        self.qualifies && (self.negotiated || self.forced) && self.carries >= self.pad_from
    }
}

impl Bounds {
    /// These bounds, raised to the given ones.
    fn at_least(self, low: Duration, high: Duration) -> Self {
        let low = self.low.max(low);
        Self {
            low,
            high: low.max(self.high).max(high),
        }
    }

    /// The larger of two uniform draws (padding-spec 2.3): when both ends draw like this, the
    /// shorter of their timeouts is about evenly spread.
    fn sample(self, rng: &mut impl Rng) -> Duration {
        let range = u64::try_from((self.high - self.low).as_millis()).unwrap_or(u64::MAX);
        if range == 0 {
            return self.low;
        }
        let draw = rng.random_range(0..range).max(rng.random_range(0..range));
        self.low + Duration::from_millis(draw)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    fn msec(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn rng() -> ChaCha12Rng {
        ChaCha12Rng::seed_from_u64(7)
    }

    /// A client's link that carries a circuit.
    fn client_link(params: &PaddingParams, now: Instant) -> LinkPadding {
        let mut padding = LinkPadding::new(params, true, true, now);
        padding.carries(LinkUse::FullCircuits);
        padding
    }

    fn start_within(low: u16, high: u16) -> PaddingNegotiate {
        PaddingNegotiate {
            version: 0,
            command: PaddingCommand::Start,
            ito_low_ms: low,
            ito_high_ms: high,
        }
    }

    /// The silences after which a silent link is padded, asked every millisecond.
    fn silences(padding: &mut LinkPadding, from: Instant, for_msec: u64) -> Vec<u64> {
        let mut rng = rng();
        let mut last = 0;
        let mut silences = Vec::new();
        for n in 1..=for_msec {
            if padding.poll(from + msec(n), &mut rng) {
                silences.push(n - last);
                last = n;
            }
        }
        silences
    }

    fn never_pads(mut padding: LinkPadding, from: Instant) {
        assert_eq!(padding.next_deadline(), None);
        assert_eq!(silences(&mut padding, from, 60_000), [0; 0]);
    }

    #[test]
    fn a_silent_link_is_padded_within_the_bounds() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        let silences = silences(&mut padding, now, 2_000_000);
        assert!(silences.iter().all(|n| (1_500..9_500).contains(n)));
        // The larger of two draws from 8000 ms is 5333 ms on average.
        let mean = silences.iter().sum::<u64>() / silences.len() as u64;
        assert!((6_500..7_200).contains(&mean), "{mean}");
    }

    #[test]
    fn every_cell_starts_the_silence_anew() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        let mut rng = rng();
        for n in 0..60_000 {
            match n % 1_400 {
                0 => padding.cell_sent(now + msec(n)),
                700 => padding.cell_received(now + msec(n)),
                _ => {}
            }
            assert!(!padding.poll(now + msec(n), &mut rng), "at {n} ms");
        }
    }

    #[test]
    fn the_deadline_is_when_to_ask() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        let mut rng = rng();
        assert_eq!(padding.next_deadline(), Some(now + msec(1_500)));
        assert!(!padding.poll(now + msec(1_499), &mut rng));
        let due = padding.next_deadline().unwrap();
        assert!(!padding.poll(due - msec(1), &mut rng));
        assert!(padding.poll(due, &mut rng));
        assert_eq!(padding.next_deadline(), Some(due + msec(1_500)));
    }

    #[test]
    fn only_links_of_clients_that_carry_circuits_are_padded() {
        let now = Instant::now();
        let params = PaddingParams::default();
        never_pads(LinkPadding::new(&params, true, true, now), now);

        let mut between_relays = LinkPadding::new(&params, false, true, now);
        between_relays.carries(LinkUse::UserTraffic);
        never_pads(between_relays, now);

        let mut old_protocol = LinkPadding::new(&params, true, false, now);
        old_protocol.carries(LinkUse::UserTraffic);
        never_pads(old_protocol, now);
    }

    #[test]
    fn the_consensus_decides_what_else_is_padded() {
        let now = Instant::now();
        let relays = PaddingParams {
            pad_relays: true,
            ..PaddingParams::default()
        };
        let mut padding = LinkPadding::new(&relays, false, true, now);
        padding.carries(LinkUse::FullCircuits);
        assert!(padding.next_deadline().is_some());

        let after_usage = PaddingParams {
            pad_before_usage: false,
            ..PaddingParams::default()
        };
        let mut padding = client_link(&after_usage, now);
        assert_eq!(padding.next_deadline(), None);
        padding.carries(LinkUse::UserTraffic);
        padding.carries(LinkUse::FullCircuits);
        assert!(padding.next_deadline().is_some());

        let off = PaddingParams {
            low: Duration::ZERO,
            high: Duration::ZERO,
            ..PaddingParams::default()
        };
        never_pads(client_link(&off, now), now);
    }

    #[test]
    fn a_client_can_stop_and_start_padding() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        padding.negotiate(&PaddingNegotiate {
            command: PaddingCommand::Stop,
            ..start_within(0, 0)
        });
        never_pads(padding.clone(), now);
        padding.negotiate(&start_within(0, 0));
        let silences = silences(&mut padding, now, 1_000_000);
        assert!(silences.iter().all(|n| (1_500..9_500).contains(n)));
        assert!(silences.iter().any(|n| *n > 8_000));
    }

    #[test]
    fn negotiated_bounds_are_raised_to_the_consensus() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        padding.negotiate(&start_within(10_000, 500));
        assert_eq!(silences(&mut padding, now, 30_000), [10_000; 3]);
        padding.negotiate(&start_within(100, 200));
        assert_eq!(padding.times.bounds, padding.times.consensus);
        padding.negotiate(&start_within(u16::MAX, u16::MAX));
        assert_eq!(padding.times.bounds.low, msec(65_535));
    }

    #[test]
    fn torrc_can_turn_padding_off_reduce_it_or_force_it() {
        let now = Instant::now();
        let with = |connection_padding, reduced| PaddingParams {
            connection_padding,
            reduced,
            ..PaddingParams::default()
        };
        let mut off = client_link(&with(Some(false), false), now);
        let stop = off.take_announcement().unwrap();
        assert_eq!(stop.command, PaddingCommand::Stop);
        assert_eq!(off.take_announcement(), None, "once");
        never_pads(off, now);

        let mut reduced = client_link(&with(None, true), now);
        assert_eq!(reduced.take_announcement(), Some(stop));
        let silences = silences(&mut reduced, now, 500_000);
        assert!(silences.iter().all(|n| (9_000..14_000).contains(n)));

        let mut forced = LinkPadding::new(&with(Some(true), false), true, false, now);
        forced.carries(LinkUse::FullCircuits);
        assert_eq!(forced.take_announcement(), None, "it would not understand");
        assert!(forced.next_deadline().is_some());
    }
}
