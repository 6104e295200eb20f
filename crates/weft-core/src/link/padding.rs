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
//! ([`LinkPadding::poll`]), some times a second. On a link on which this node is a client, padding is sent
//! when its time is there ([`LinkPadding::due_until`]), on others when the timer looks next.

use std::time::{Duration, Instant};

use rand::{Rng, RngExt};
use weft_cell::link_msg::{PaddingCommand, PaddingNegotiate};
use weft_planted::{Fault, planted};

use crate::handshake::{LinkRole, PeerIdentity};

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

/// Use of a link so far, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinkUse {
    /// Nothing that a user of Tor does: handshakes, directory requests, circuits of one hop.
    Nothing,
    /// A circuit of more than one hop is being built: at a relay, a RELAY_EARLY cell came on a
    /// circuit that goes on to another relay, or from a relay; at its origin, EXTEND2 was sent; at a
    /// bridge, on the link that it opened, CREATE2.
    FullCircuits,
    /// Such a circuit carries a user's traffic: at a relay, a RELAY cell came on it. At its origin the
    /// first RELAY cell is EXTENDED2; a bridge counts from CREATED2.
    UserTraffic,
}

/// The kinds of nodes at the two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// This node is the client.
    WeAreClient,
    /// The peer is.
    PeerIsClient,
    /// Both are relays.
    Relays,
}

impl Ends {
    /// Classifies a link by this node's role and the peer's identity.
    pub(crate) fn of(role: LinkRole, peer: &PeerIdentity) -> Self {
        match (role, peer) {
            (LinkRole::OpenedAsClient, _) => Ends::WeAreClient,
            (_, PeerIdentity::Unauthenticated) => Ends::PeerIsClient,
            (LinkRole::Accepted | LinkRole::OpenedAsRelay, PeerIdentity::Relay { .. }) => {
                Ends::Relays
            }
        }
    }
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
    /// Padding is sent even if it is not negotiated.
    forced: bool,
    /// Use from which on the link is padded.
    pad_from: LinkUse,
    /// State of the timer.
    times: Box<Times>,
}

/// Padding state that few cells need.
#[derive(Debug, Clone)]
struct Times {
    ends: Ends,
    /// The link protocol is 5 or higher.
    supported: bool,
    /// The consensus' bounds.
    consensus: Bounds,
    /// The bounds in force.
    bounds: Bounds,
    /// The wish of the client at the other end, once it sent one.
    wish: Option<PaddingNegotiate>,
    /// The last wish that this node, as the client, sent the peer, which pads at first.
    asked: PaddingCommand,
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

    /// The padding of a link that has just opened, which [follows](Self::follow) parameters next.
    /// `supported`: the link protocol is 5 or higher.
    pub(crate) fn new(ends: Ends, supported: bool, now: Instant) -> Self {
        let none = Bounds {
            low: Duration::ZERO,
            high: Duration::ZERO,
        };
        Self {
            last_cell: now,
            carries: LinkUse::Nothing,
            negotiated: false,
            qualifies: false,
            forced: false,
            pad_from: LinkUse::UserTraffic,
            times: Box::new(Times {
                ends,
                supported,
                consensus: none,
                bounds: none,
                wish: None,
                asked: PaddingCommand::Start,
                due: None,
            }),
        }
    }

    /// Follows the parameters, or new ones: a client's first link opens before it has a consensus.
    /// Returns the wish that a client must send the relay at the other end: not to pad, or to pad again.
    #[must_use]
    pub(crate) fn follow(&mut self, params: &PaddingParams) -> Option<PaddingNegotiate> {
        let times = &mut *self.times;
        let is_client = times.ends == Ends::WeAreClient;
        let off = params.connection_padding == Some(false);
        self.forced = params.connection_padding == Some(true);
        let reduced = is_client && params.reduced && !off && (times.supported || self.forced);
        let high = params.high.max(params.low);
        // Both bounds 0: the consensus has turned padding off.
        let pads_ends = times.ends != Ends::Relays || params.pad_relays;
        self.qualifies = pads_ends && !off && !high.is_zero();
        self.pad_from = match params.pad_before_usage {
            true => LinkUse::FullCircuits,
            false => LinkUse::UserTraffic,
        };
        let low = params.low;
        times.consensus = Bounds { low, high };
        let before = times.bounds;
        times.bounds = match (&times.wish, reduced) {
            (_, true) => (times.consensus).at_least(params.low_reduced, params.high_reduced),
            (Some(wish), false) => times.consensus.at_least_wished(wish),
            (None, false) => times.consensus,
        };
        if times.bounds != before {
            times.due = None;
        }
        let stopped = (times.wish).is_some_and(|wish| wish.command == PaddingCommand::Stop);
        self.negotiated = times.supported && !off && !stopped;
        let ask = match off || reduced {
            true => PaddingCommand::Stop,
            false => PaddingCommand::Start,
        };
        // A relay sends no wish: a client accepts none.
        if !is_client || !times.supported || ask == times.asked {
            return None;
        }
        times.asked = ask;
        // Zeros ask for the consensus' bounds.
        Some(PaddingNegotiate {
            version: 0,
            command: ask,
            ito_low_ms: 0,
            ito_high_ms: 0,
        })
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
    /// raised to the consensus' where they are lower. A start with zeros asks for the consensus'. As in C tor
    /// nothing changes with link protocol 4.
    pub(crate) fn negotiate(&mut self, wish: &PaddingNegotiate) {
        let times = &mut *self.times;
        if !times.supported {
            return;
        }
        self.negotiated = wish.command == PaddingCommand::Start;
        times.wish = Some(*wish);
        times.bounds = times.consensus.at_least_wished(wish);
        times.due = None;
    }

    /// True if a PADDING cell must be sent now. The owner sends it, unless other cells wait to be
    /// sent on the link.
    pub(crate) fn poll(&mut self, now: Instant, rng: &mut impl Rng) -> bool {
        if !self.is_on() {
            // A timeout from before padding was turned off is replaced (see `negotiate`).
            return false;
        }
        let times = &mut *self.times;
        if times.ends == Ends::WeAreClient && planted(Fault::ClientNeverPads) {
            return false;
        }
        let due = match times.due {
            Some(due) if due.since == self.last_cell => due,
            // Cells were sent since then: the silence starts again, with a new timeout.
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

    /// When padding is due by then, as of the last [`poll`](Self::poll).
    pub(crate) fn due_until(&self, until: Instant) -> Option<Instant> {
        let due = self.times.due.as_ref().filter(|_| self.is_on())?;
        (due.since == self.last_cell && due.at <= until).then_some(due.at)
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

    /// Padding is sent when nothing else is.
    pub(crate) fn is_on(&self) -> bool {
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

    /// These bounds, raised to a client's.
    fn at_least_wished(self, wish: &PaddingNegotiate) -> Self {
        self.at_least(
            Duration::from_millis(wish.ito_low_ms.into()),
            Duration::from_millis(wish.ito_high_ms.into()),
        )
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

    /// A link, and the wish that this node sends when it opens.
    fn link(
        params: &PaddingParams,
        ends: Ends,
        supported: bool,
        now: Instant,
    ) -> (LinkPadding, Option<PaddingNegotiate>) {
        let mut padding = LinkPadding::new(ends, supported, now);
        let wish = padding.follow(params);
        (padding, wish)
    }

    /// A link from a client that carries a circuit.
    fn client_link(params: &PaddingParams, now: Instant) -> LinkPadding {
        let (mut padding, wish) = link(params, Ends::PeerIsClient, true, now);
        assert_eq!(wish, None);
        padding.carries(LinkUse::FullCircuits);
        padding
    }

    /// A link of ours as a client that carries a circuit, and the wish that is sent when it opens.
    fn own_link(params: &PaddingParams, now: Instant) -> (LinkPadding, Option<PaddingCommand>) {
        let (mut padding, wish) = link(params, Ends::WeAreClient, true, now);
        padding.carries(LinkUse::FullCircuits);
        (padding, wish.map(|wish| wish.command))
    }

    fn with(connection_padding: Option<bool>, reduced: bool) -> PaddingParams {
        PaddingParams {
            connection_padding,
            reduced,
            ..PaddingParams::default()
        }
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
        for ends in [Ends::WeAreClient, Ends::PeerIsClient] {
            never_pads(link(&params, ends, true, now).0, now);
            let (mut old_protocol, _) = link(&params, ends, false, now);
            old_protocol.carries(LinkUse::UserTraffic);
            never_pads(old_protocol, now);
        }
        let (mut between_relays, _) = link(&params, Ends::Relays, true, now);
        between_relays.carries(LinkUse::UserTraffic);
        never_pads(between_relays, now);
    }

    #[test]
    fn the_consensus_decides_what_else_is_padded() {
        let now = Instant::now();
        let relays = PaddingParams {
            pad_relays: true,
            ..PaddingParams::default()
        };
        let (mut padding, _) = link(&relays, Ends::Relays, true, now);
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
    fn a_client_of_an_old_protocol_has_no_wishes() {
        let now = Instant::now();
        let (mut padding, _) = link(&PaddingParams::default(), Ends::PeerIsClient, false, now);
        padding.carries(LinkUse::UserTraffic);
        padding.negotiate(&start_within(0, 0));
        never_pads(padding, now);
    }

    #[test]
    fn torrc_can_turn_padding_of_a_client_off_reduce_it_or_force_it() {
        let now = Instant::now();
        let stop = Some(PaddingCommand::Stop);
        let (off, wish) = own_link(&with(Some(false), false), now);
        assert_eq!(wish, stop);
        never_pads(off, now);

        let (mut auto, wish) = own_link(&with(None, false), now);
        assert_eq!(wish, None, "the peer pads unless asked not to");
        assert!(silences(&mut auto, now, 500_000).iter().any(|n| *n < 9_000));

        for connection_padding in [None, Some(true)] {
            let (mut reduced, wish) = own_link(&with(connection_padding, true), now);
            assert_eq!(wish, stop);
            let silences = silences(&mut reduced, now, 500_000);
            assert!(silences.iter().all(|n| (9_000..14_000).contains(n)));
        }

        let (mut forced, wish) = link(&with(Some(true), false), Ends::WeAreClient, false, now);
        forced.carries(LinkUse::FullCircuits);
        assert_eq!(wish, None, "the peer would not understand it");
        assert!(forced.next_deadline().is_some());
    }

    #[test]
    fn an_open_link_follows_new_parameters_and_notifies_its_peer_once() {
        let now = Instant::now();
        let command = |wish: Option<PaddingNegotiate>| wish.map(|wish| wish.command);
        let (mut padding, _) = own_link(&with(None, false), now);
        assert_eq!(padding.follow(&with(None, false)), None);
        let stop = padding.follow(&with(Some(false), false));
        assert_eq!(command(stop), Some(PaddingCommand::Stop));
        never_pads(padding.clone(), now);
        assert_eq!(padding.follow(&with(None, true)), None, "it has stopped");
        assert!(
            silences(&mut padding, now, 60_000)
                .iter()
                .all(|n| *n >= 9_000)
        );
        let start = padding.follow(&with(None, false));
        assert_eq!(start, Some(start_within(0, 0)));
        assert!(
            silences(&mut padding, now + msec(60_000), 60_000)
                .iter()
                .any(|n| *n < 9_000)
        );
        let quiet = PaddingParams {
            low: Duration::ZERO,
            high: Duration::ZERO,
            ..PaddingParams::default()
        };
        assert_eq!(padding.follow(&quiet), None);
        never_pads(padding, now);
    }

    #[test]
    fn a_client_keeps_its_wish_when_the_parameters_change() {
        let now = Instant::now();
        let mut padding = client_link(&PaddingParams::default(), now);
        padding.negotiate(&start_within(10_000, 10_000));
        assert_eq!(padding.follow(&with(None, true)), None);
        assert_eq!(silences(&mut padding, now, 30_000), [10_000; 3]);
        padding.negotiate(&PaddingNegotiate {
            command: PaddingCommand::Stop,
            ..start_within(0, 0)
        });
        assert_eq!(padding.follow(&with(None, false)), None);
        never_pads(padding, now);
    }
}
