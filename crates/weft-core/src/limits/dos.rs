//! Defences against clients that open too many connections or circuits.
//!
//! C tor's `dos.c`, with its parameters. For each address of a client:
//!
//! - too many connections at once, or too many new ones per second: further ones are closed, in
//!   the second case for a day or so;
//! - too many circuits per second over several connections, or circuits whose queues overflowed
//!   time and again: further circuits are refused, for an hour or so.
//!
//! Decisions are values ([`Verdict`]); the owner carries them out. Relays do not count: connections from addresses that
//! the consensus lists never come here; another one counts from when it is accepted, and is taken out again when the peer
//! proves to be a relay that the consensus lists ([`Dos::connection_is_relay`]). Unlike in C tor, an IPv6 client is its /64 network, since
//! a host that has one address has the others there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use weft_share::network;

use crate::limits::bucket::TokenBucket;

/// Addresses that are recorded at once. Those with open connections are bounded by the number of
/// connections; the others are of the last minute, or marked.
const MAX_CLIENTS: usize = 1 << 17;

/// Interval at which forgettable clients are removed, if there are many.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);

/// Parameters of torrc and consensus. The defaults are C tor's; `0` means "not set" nowhere here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DosParams {
    /// `DoSConnectionEnabled`.
    pub connection_enabled: bool,
    /// `DoSConnectionMaxConcurrentCount`: connections of one address at once.
    pub connection_max_concurrent: u32,
    /// `DoSConnectionDefenseType` is 2, not 1: past the limits, connections are closed (else only
    /// counted).
    pub connection_close: bool,
    /// `DoSConnectionConnectRate`: new connections of one address per second.
    pub connection_connect_rate: u32,
    /// `DoSConnectionConnectBurst`: new connections of one address at once.
    pub connection_connect_burst: u32,
    /// `DoSConnectionConnectDefenseTimePeriod`: how long an address that connects too fast is
    /// refused, and up to half as long again.
    pub connection_connect_defense_time: Duration,
    /// `DoSCircuitCreationEnabled`.
    pub circuit_creation_enabled: bool,
    /// `DoSCircuitCreationMinConnections`: connections at once from which an address' circuits can
    /// be too many.
    pub circuit_creation_min_connections: u32,
    /// `DoSCircuitCreationRate`: circuits of one address per second.
    pub circuit_creation_rate: u32,
    /// `DoSCircuitCreationBurst`: circuits of one address at once.
    pub circuit_creation_burst: u32,
    /// `DoSCircuitCreationDefenseType` is 2, not 1: past the limits, circuits are refused (else
    /// only counted).
    pub circuit_creation_refuse: bool,
    /// `DoSCircuitCreationDefenseTimePeriod`: how long an address that makes too many circuits is
    /// refused, and up to half as long again.
    pub circuit_creation_defense_time: Duration,
    /// Consensus `dos_num_circ_max_outq`: circuits of one address whose queue may overflow before
    /// it is refused; 0: any number.
    pub circuit_max_queue_overflows: u32,
    /// `DoSRefuseSingleHopClientRendezvous`.
    pub refuse_single_hop_rendezvous: bool,
    /// Introductions to one onion service.
    pub intro: IntroDosParams,
}

/// Default rate limit for the introductions of an onion service that requests none (proposal 305).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntroDosParams {
    /// There is a limit (`HiddenServiceEnableIntroDoSDefense`).
    pub enabled: bool,
    /// In a second, on average (`HiddenServiceEnableIntroDoSRatePerSec`).
    pub rate: u32,
    /// At once (`HiddenServiceEnableIntroDoSBurstPerSec`).
    pub burst: u32,
}

impl Default for IntroDosParams {
    fn default() -> Self {
        Self {
            enabled: false,
            rate: 25,
            burst: 200,
        }
    }
}

impl Default for DosParams {
    fn default() -> Self {
        Self {
            connection_enabled: false,
            connection_max_concurrent: 100,
            connection_close: true,
            connection_connect_rate: 20,
            connection_connect_burst: 40,
            connection_connect_defense_time: Duration::from_secs(24 * 60 * 60),
            circuit_creation_enabled: false,
            circuit_creation_min_connections: 3,
            circuit_creation_rate: 3,
            circuit_creation_burst: 90,
            circuit_creation_refuse: true,
            circuit_creation_defense_time: Duration::from_secs(60 * 60),
            circuit_max_queue_overflows: 3,
            refuse_single_hop_rendezvous: false,
            intro: IntroDosParams::default(),
        }
    }
}

/// Decision on a connection, a circuit or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Let it be.
    Allow,
    /// Close the connection, answer the CREATE with a DESTROY, or refuse the request.
    Refuse,
}

impl Verdict {
    /// True if the defence lets it pass.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        self == Self::Allow
    }

    fn refuse_if(refuse: bool) -> Self {
        if refuse { Self::Refuse } else { Self::Allow }
    }
}

/// Refusals since the start, for the heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DosCounts {
    /// Connections past the number that an address may have at once.
    pub connections_concurrent: u64,
    /// Connections of addresses that connect too fast.
    pub connections_too_fast: u64,
    /// Circuits of addresses that make too many.
    pub circuits: u64,
    /// Addresses found to make too many circuits.
    pub addresses_marked: u64,
    /// Addresses found to make circuits' queues overflow.
    pub addresses_marked_for_queues: u64,
    /// Rendezvous requests of single-hop clients.
    pub single_hop: u64,
    /// Connections of addresses that there was no room to keep track of; they were allowed.
    pub(crate) untracked: u64,
}

/// The relay's records of clients' addresses, and the limits that it applies to them.
#[derive(Debug)]
pub(crate) struct Dos {
    params: DosParams,
    clients: BTreeMap<IpAddr, Client>,
    /// When clients were last forgotten.
    forgot_at: Instant,
    rng: StdRng,
    counts: DosCounts,
}

#[derive(Debug)]
struct Client {
    /// Open connections.
    concurrent: u32,
    /// New connections that it may still make.
    connects: TokenBucket,
    connections_refused_until: Option<Instant>,
    /// Circuits that it may still make.
    circuits: TokenBucket,
    circuits_refused_until: Option<Instant>,
    /// Circuits whose queue has overflowed.
    queue_overflows: u32,
}

impl Client {
    fn new(params: &DosParams, now: Instant) -> Self {
        let (rate, burst) = params.connects();
        let (circuit_rate, circuit_burst) = params.circuits();
        Self {
            concurrent: 0,
            connects: TokenBucket::new(rate, burst, now),
            connections_refused_until: None,
            circuits: TokenBucket::new(circuit_rate, circuit_burst, now),
            circuits_refused_until: None,
            queue_overflows: 0,
        }
    }

    /// True if the client's record equals that of a client never seen before.
    fn is_forgettable(&mut self, now: Instant) -> bool {
        self.concurrent == 0
            && !is_marked(self.connections_refused_until, now)
            && !is_marked(self.circuits_refused_until, now)
            && self.queue_overflows == 0
            && self.connects.is_full(now)
            && self.circuits.is_full(now)
    }
}

impl DosParams {
    /// Rate and burst of new connections.
    fn connects(&self) -> (u64, u64) {
        (
            self.connection_connect_rate.into(),
            self.connection_connect_burst.into(),
        )
    }

    /// Rate and burst of new circuits.
    fn circuits(&self) -> (u64, u64) {
        (
            self.circuit_creation_rate.into(),
            self.circuit_creation_burst.into(),
        )
    }

    fn any_enabled(&self) -> bool {
        self.connection_enabled || self.circuit_creation_enabled
    }
}

impl Dos {
    /// Creates the records, without clients. The time for which an address stays marked is partly
    /// random, so that it cannot be gamed: `seed` must not be known to clients.
    #[must_use]
    pub(crate) fn new(params: DosParams, seed: [u8; 32], now: Instant) -> Self {
        Self {
            params,
            clients: BTreeMap::new(),
            forgot_at: now,
            rng: StdRng::from_seed(seed),
            counts: DosCounts::default(),
        }
    }

    /// Applies a new torrc or consensus. Records of addresses stay.
    pub(crate) fn set_params(&mut self, params: DosParams) {
        let (rate, burst) = params.connects();
        let (circuit_rate, circuit_burst) = params.circuits();
        for client in self.clients.values_mut() {
            client.connects.set_limit(rate, burst);
            client.circuits.set_limit(circuit_rate, circuit_burst);
        }
        self.params = params;
    }

    /// Refusals since the start.
    #[must_use]
    pub(crate) fn counts(&self) -> DosCounts {
        self.counts
    }

    /// A connection was accepted. If it is allowed, it counts until
    /// [`Dos::connection_closed`] or [`Dos::connection_is_relay`].
    pub(crate) fn connection_opened(&mut self, addr: IpAddr, now: Instant) -> Verdict {
        let addr = network(addr);
        if !self.clients.contains_key(&addr) {
            // A client that is not known cannot have done too much.
            if !self.params.any_enabled() {
                return Verdict::Allow;
            }
            if !self.has_room(now) {
                self.counts.untracked += 1;
                return Verdict::Allow;
            }
            self.clients.insert(addr, Client::new(&self.params, now));
        }
        let Some(client) = self.clients.get_mut(&addr) else {
            return Verdict::Allow;
        };
        if self.params.connection_enabled {
            if is_marked(client.connections_refused_until, now) {
                self.counts.connections_too_fast += 1;
                if self.params.connection_close {
                    return Verdict::Refuse;
                }
            } else {
                // Only now, so that going on while it is marked does not mark it for longer.
                client.connections_refused_until = None;
                if client.concurrent > self.params.connection_max_concurrent {
                    self.counts.connections_concurrent += 1;
                    if self.params.connection_close {
                        return Verdict::Refuse;
                    }
                }
            }
        }
        client.concurrent = client.concurrent.saturating_add(1);
        client.connects.take(1, now);
        if client.connects.level(now) == 0 && client.connections_refused_until.is_none() {
            let period = self.params.connection_connect_defense_time;
            client.connections_refused_until = mark_until(&mut self.rng, period, now);
        }
        Verdict::Allow
    }

    /// A connection that was allowed has closed.
    pub(crate) fn connection_closed(&mut self, addr: IpAddr, now: Instant) {
        self.connection_gone(addr, 0, now);
    }

    /// A connection that was allowed is another relay's: it counts as if it had never come.
    pub(crate) fn connection_is_relay(&mut self, addr: IpAddr, now: Instant) {
        self.connection_gone(addr, 1, now);
    }

    /// An open connection that counted as a relay's is a client's from now on: the consensus does not
    /// list the relay any more. It stays open, however many the address has.
    pub(crate) fn connection_is_client(&mut self, addr: IpAddr, now: Instant) {
        let addr = network(addr);
        if !self.clients.contains_key(&addr) {
            if !self.params.any_enabled() {
                return;
            }
            if !self.has_room(now) {
                self.counts.untracked += 1;
                return;
            }
        }
        let client = self.clients.entry(addr);
        let client = client.or_insert_with(|| Client::new(&self.params, now));
        client.concurrent = client.concurrent.saturating_add(1);
    }

    /// Checks that no address is charged for more connections than these, by network.
    ///
    /// # Errors
    ///
    /// One is.
    pub(crate) fn audit(&self, charged: &BTreeMap<IpAddr, u32>) -> Result<(), String> {
        for (addr, client) in &self.clients {
            let open = charged.get(addr).copied().unwrap_or(0);
            if client.concurrent > open {
                return Err(format!(
                    "{addr} is charged for {} connections and has {open}",
                    client.concurrent
                ));
            }
        }
        Ok(())
    }

    fn connection_gone(&mut self, addr: IpAddr, connects_given_back: u64, now: Instant) {
        let addr = network(addr);
        if let Some(client) = self.clients.get_mut(&addr) {
            client.concurrent = client.concurrent.saturating_sub(1);
            client.connects.give_back(connects_given_back);
            if client.is_forgettable(now) {
                self.clients.remove(&addr);
            }
        }
    }

    /// A client wants a circuit: a CREATE of any kind has come on its connection.
    pub(crate) fn circuit_created(&mut self, addr: IpAddr, now: Instant) -> Verdict {
        if !self.params.circuit_creation_enabled {
            return Verdict::Allow;
        }
        let Some(client) = self.clients.get_mut(&network(addr)) else {
            return Verdict::Allow;
        };
        // Also while it is marked: an address that continues stays marked.
        client.circuits.take(1, now);
        if client.circuits.level(now) == 0
            && client.concurrent >= self.params.circuit_creation_min_connections
        {
            if client.circuits_refused_until.is_none() {
                self.counts.addresses_marked += 1;
            }
            let period = self.params.circuit_creation_defense_time;
            client.circuits_refused_until = mark_until(&mut self.rng, period, now);
        }
        if !is_marked(client.circuits_refused_until, now) {
            return Verdict::Allow;
        }
        self.counts.circuits += 1;
        Verdict::refuse_if(self.params.circuit_creation_refuse)
    }

    /// A circuit of this client was closed because its forward queue overflowed.
    pub(crate) fn queue_overflowed(&mut self, addr: IpAddr, now: Instant) {
        let limit = self.params.circuit_max_queue_overflows;
        if !self.params.circuit_creation_enabled || limit == 0 {
            return;
        }
        let Some(client) = self.clients.get_mut(&network(addr)) else {
            return;
        };
        if is_marked(client.circuits_refused_until, now) {
            return;
        }
        client.queue_overflows += 1;
        if client.queue_overflows >= limit {
            client.queue_overflows = 0;
            if client.circuits_refused_until.is_none() {
                self.counts.addresses_marked_for_queues += 1;
            }
            let period = self.params.circuit_creation_defense_time;
            client.circuits_refused_until = mark_until(&mut self.rng, period, now);
        }
    }

    /// A client that connected to this relay directly asks it to be its rendezvous point, with
    /// ESTABLISH_RENDEZVOUS on a circuit that it is the only hop of.
    pub(crate) fn single_hop_rendezvous(&mut self) -> Verdict {
        self.counts.single_hop += u64::from(self.params.refuse_single_hop_rendezvous);
        Verdict::refuse_if(self.params.refuse_single_hop_rendezvous)
    }

    /// True if another address can be recorded. Removes forgettable ones now and then.
    fn has_room(&mut self, now: Instant) -> bool {
        let many = self.clients.len() >= MAX_CLIENTS / 2;
        if many && now.saturating_duration_since(self.forgot_at) >= FORGET_INTERVAL {
            self.forgot_at = now;
            self.clients.retain(|_, client| {
                if client.concurrent == 0 {
                    // Not held against it for longer than there is room to remember it.
                    client.queue_overflows = 0;
                }
                !client.is_forgettable(now)
            });
        }
        self.clients.len() < MAX_CLIENTS
    }
}

fn is_marked(until: Option<Instant>, now: Instant) -> bool {
    until.is_some_and(|until| now <= until)
}

/// The end of a mark: after the period, and up to half of it later.
fn mark_until(rng: &mut StdRng, period: Duration, now: Instant) -> Option<Instant> {
    let half = u64::try_from(period.as_millis() / 2).unwrap_or(u64::MAX);
    let extra = Duration::from_millis(rng.random_range(0..=half));
    // A period too long for the clock (consensus parameters cannot be) would not mark.
    now.checked_add(period)?.checked_add(extra)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn enabled() -> DosParams {
        DosParams {
            connection_enabled: true,
            circuit_creation_enabled: true,
            ..DosParams::default()
        }
    }

    fn dos(params: DosParams) -> (Dos, Instant) {
        let now = Instant::now();
        (Dos::new(params, [3; 32], now), now)
    }

    fn client(n: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + n).into())
    }

    /// Opens connections slowly enough.
    fn open(dos: &mut Dos, addr: IpAddr, connections: u32, now: &mut Instant) {
        for _ in 0..connections {
            *now += SEC;
            assert_eq!(dos.connection_opened(addr, *now), Verdict::Allow);
        }
    }

    #[test]
    fn an_address_may_not_have_too_many_connections_at_once() {
        let (mut dos, mut now) = dos(enabled());
        // As in C tor, the limit is what may be open when another one comes.
        open(&mut dos, client(1), 101, &mut now);
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
        assert_eq!(dos.counts().connections_concurrent, 1);
        assert_eq!(
            dos.connection_opened(client(2), now),
            Verdict::Allow,
            "others may"
        );
        dos.connection_closed(client(1), now);
        open(&mut dos, client(1), 1, &mut now);
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
    }

    #[test]
    fn an_address_that_connects_too_fast_is_refused_for_a_day_or_so() {
        let (mut dos, now) = dos(enabled());
        for _ in 0..40 {
            assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
            dos.connection_closed(client(1), now);
        }
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
        assert_eq!(
            dos.connection_opened(client(1), now + 24 * HOUR),
            Verdict::Refuse
        );
        assert_eq!(dos.counts().connections_too_fast, 2);
        let later = now + 36 * HOUR + SEC;
        assert_eq!(dos.connection_opened(client(1), later), Verdict::Allow);
    }

    #[test]
    fn connections_of_relays_do_not_count() {
        let (mut dos, now) = dos(enabled());
        for _ in 0..500 {
            assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
            dos.connection_is_relay(client(1), now);
        }
        assert!(dos.clients.is_empty());
    }

    #[test]
    fn connections_of_relays_that_become_clients_count() {
        let (mut dos, now) = dos(enabled());
        for _ in 0..101 {
            dos.connection_is_client(client(1), now);
        }
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
        dos.connection_closed(client(1), now);
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
        // Nothing is remembered where nothing is defended.
        let (mut dos, now) = self::dos(DosParams::default());
        dos.connection_is_client(client(1), now);
        assert!(dos.clients.is_empty());
    }

    #[test]
    fn an_audit_finds_an_address_that_is_charged_for_more_than_it_has() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 2, &mut now);
        for (has, is_right) in [(0, false), (1, false), (2, true), (3, true)] {
            let charged = BTreeMap::from([(client(1), has)]);
            assert_eq!(dos.audit(&charged).is_ok(), is_right, "{has}");
        }
        assert!(dos.audit(&BTreeMap::new()).is_err());
    }

    #[test]
    fn nobody_knows_when_a_mark_ends() {
        let (mut dos, now) = dos(enabled());
        let mut end = |_| mark_until(&mut dos.rng, 10 * HOUR, now).unwrap() - now;
        let mut ends: Vec<Duration> = (0..100).map(&mut end).collect();
        ends.sort();
        ends.dedup();
        assert!(ends.len() > 95);
        assert!(ends[0] >= 10 * HOUR && ends[0] < 11 * HOUR);
        let last = ends[ends.len() - 1];
        assert!(last > 14 * HOUR && last <= 15 * HOUR);
    }

    #[test]
    fn circuits_past_the_burst_are_refused_if_there_are_several_connections() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 2, &mut now);
        for _ in 0..200 {
            assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
        }
        open(&mut dos, client(2), 3, &mut now);
        for _ in 0..89 {
            assert_eq!(dos.circuit_created(client(2), now), Verdict::Allow);
        }
        assert_eq!(dos.circuit_created(client(2), now), Verdict::Refuse);
        assert_eq!(dos.circuit_created(client(2), now + HOUR), Verdict::Refuse);
        let counts = dos.counts();
        assert_eq!((counts.circuits, counts.addresses_marked), (2, 1));
        let later = now + 2 * HOUR;
        assert_eq!(dos.circuit_created(client(2), later), Verdict::Allow);
    }

    #[test]
    fn circuits_at_the_allowed_rate_go_on_forever() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 5, &mut now);
        for _ in 0..10_000 {
            now += SEC / 3 + Duration::from_millis(1);
            assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
        }
    }

    #[test]
    fn an_address_whose_circuits_overflow_their_queues_is_refused() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 1, &mut now);
        dos.queue_overflowed(client(1), now);
        dos.queue_overflowed(client(1), now);
        assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
        dos.queue_overflowed(client(1), now);
        assert_eq!(dos.circuit_created(client(1), now), Verdict::Refuse);
        assert_eq!(dos.counts().addresses_marked_for_queues, 1);
    }

    #[test]
    fn nothing_is_refused_or_remembered_when_the_defences_are_off() {
        let (mut dos, now) = dos(DosParams::default());
        for _ in 0..1_000 {
            assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
            assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
            dos.queue_overflowed(client(1), now);
        }
        assert!(dos.clients.is_empty());
        assert_eq!(dos.single_hop_rendezvous(), Verdict::Allow);
        assert_eq!(dos.counts(), DosCounts::default());
    }

    #[test]
    fn a_defence_of_type_none_only_counts() {
        let (mut dos, mut now) = dos(DosParams {
            connection_close: false,
            circuit_creation_refuse: false,
            ..enabled()
        });
        for _ in 0..200 {
            assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
            assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
        }
        now += 48 * HOUR;
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Allow);
        let counts = dos.counts();
        assert!(counts.connections_too_fast > 0 && counts.connections_concurrent > 0);
        assert!(counts.circuits > 0);
    }

    #[test]
    fn defences_can_be_turned_on_and_off_while_connections_are_open() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 101, &mut now);
        dos.set_params(DosParams::default());
        open(&mut dos, client(1), 1, &mut now);
        dos.set_params(enabled());
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
        for _ in 0..200 {
            dos.connection_closed(client(1), now);
        }
        open(&mut dos, client(1), 1, &mut now);
    }

    #[test]
    fn a_lower_limit_holds_for_addresses_that_are_known() {
        let (mut dos, mut now) = dos(enabled());
        open(&mut dos, client(1), 3, &mut now);
        dos.set_params(DosParams {
            circuit_creation_burst: 2,
            ..enabled()
        });
        assert_eq!(dos.circuit_created(client(1), now), Verdict::Allow);
        assert_eq!(dos.circuit_created(client(1), now), Verdict::Refuse);
    }

    #[test]
    fn an_ipv6_client_is_its_network_and_a_mapped_one_its_ipv4_address() {
        let (mut dos, mut now) = dos(enabled());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        open(&mut dos, address("2001:db8::1"), 101, &mut now);
        open(&mut dos, address("2001:db8:0:1::1"), 1, &mut now);
        let neighbour = address("2001:db8::ffff:1");
        assert_eq!(dos.connection_opened(neighbour, now), Verdict::Refuse);
        open(&mut dos, client(1), 101, &mut now);
        let mapped = address("::ffff:10.0.0.1");
        assert_eq!(dos.connection_opened(mapped, now), Verdict::Refuse);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_only_who_need_not_be_remembered() {
        let (mut dos, mut now) = dos(enabled());
        for _ in 0..40 {
            let _ = dos.connection_opened(client(0), now);
            dos.connection_closed(client(0), now);
        }
        open(&mut dos, client(1), 101, &mut now);
        let many = u32::try_from(MAX_CLIENTS).unwrap();
        for n in 2..many + 1_000 {
            assert_eq!(dos.connection_opened(client(n), now), Verdict::Allow);
            dos.connection_closed(client(n), now);
        }
        assert_eq!(dos.clients.len(), MAX_CLIENTS);
        assert_eq!(dos.counts().untracked, 1_000);
        // There is none for a relay that becomes a client either.
        dos.connection_is_client(client(many + 4_000), now);
        assert_eq!(dos.clients.len(), MAX_CLIENTS);
        assert_eq!(dos.counts().untracked, 1_001);
        now += 60 * SEC;
        assert_eq!(
            dos.connection_opened(client(many + 5_000), now),
            Verdict::Allow
        );
        assert_eq!(dos.clients.len(), 3, "two had to be remembered");
        assert_eq!(dos.connection_opened(client(0), now), Verdict::Refuse);
        assert_eq!(dos.connection_opened(client(1), now), Verdict::Refuse);
    }

    #[test]
    fn single_hop_clients_are_refused_as_rendezvous_if_configured() {
        let (mut dos, _) = dos(DosParams {
            refuse_single_hop_rendezvous: true,
            ..DosParams::default()
        });
        assert_eq!(dos.single_hop_rendezvous(), Verdict::Refuse);
        assert_eq!(dos.counts().single_hop, 1);
    }
}
