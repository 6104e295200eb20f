//! What an exit decides, off the cells' path: whether a stream may leave here and where to, what a
//! name means, and what the client is told where it goes no further (tor-spec, "Opening streams",
//! "Closing streams", "Remote hostname lookup"; C tor's `connection_exit_begin_conn`,
//! `connection_exit_connect` and dns.c).
//!
//! [`Exits`] is state without I/O: requests and answers of name servers come in with the time,
//! [`ExitAction`]s go out. [`dns`] asks name servers, on a thread of its own; [`connect`] opens
//! sockets, which then belong to connection threads.

mod cache;
pub mod connect;
mod counts;
pub mod dns;
mod hijack;
mod name;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{
    Answer as ResolvedAnswer, AnswerKind, Begin, BeginFlags, End, Resolve, Resolved,
};
use weft_core::address::StreamAddr;
use weft_core::edge::StreamAt;
use weft_share::PreviousHop;

use crate::torrc::ExitPolicy;

pub use cache::DnsError;
pub use counts::ExitCounts;
pub use name::reverse_name;

use cache::{Cache, Known, clip_ttl};
use hijack::Hijack;
use name::Target;
use names::{Names, Order};

/// Names that are asked about at once, at most.
pub const MAX_ASKING: usize = 2048;
/// Nothing waits for an answer for longer than this (dns.c, RESOLVE_MAX_TIMEOUT). The DNS thread
/// gives up long before.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// The TTL that comes with an address that the client named itself, in seconds
/// (DEFAULT_DNS_TTL).
const LITERAL_TTL: u32 = 30 * 60;
/// The TTL of every RESOLVED, in seconds: the real one would tell what others have asked for
/// (RESOLVED_CLIPPED_TTL of dns.c).
const RESOLVED_TTL: u32 = 60;

/// Who is the hop before this one on the stream's circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// A client: the circuit has one hop.
    Client,
    /// A relay that the consensus lists.
    Relay,
    /// A relay that it does not list.
    UnknownRelay,
}

/// What torrc, consensus and the relay's own addresses come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitSettings {
    /// ExitPolicy and its kin, with the relay's own addresses rejected.
    pub policy: ExitPolicy,
    /// `IPv6Exit`.
    pub ipv6: bool,
    /// `ServerDNSAllowNonRFC953Hostnames`.
    pub any_names: bool,
    /// Streams of circuits that come from unknown relays are refused (`RefuseUnknownExits`,
    /// consensus `refuseunknownexits`).
    pub refuse_unknown: bool,
    /// Connections to relays' ORPorts are allowed (consensus `allow-network-reentry`).
    pub reentry: bool,
    /// `ServerDNSDetectHijacking`.
    pub detect_hijacking: bool,
    /// `ServerDNSTestAddresses`.
    pub test_addresses: Vec<Arc<[u8]>>,
}

/// What is asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A records.
    V4,
    /// AAAA records.
    V6,
    /// PTR records.
    Reverse,
}

/// Why a name is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// A stream waits.
    Stream,
    /// The name should not exist (ServerDNSDetectHijacking).
    Bogus,
    /// The name is well known (ServerDNSTestAddresses).
    Test,
}

/// A question for name servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The name, in lower case, without a dot at the end.
    pub name: Arc<[u8]>,
    /// What about it.
    pub kind: Kind,
    /// Why.
    pub asked: Asked,
}

/// What name servers say to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Addresses, of the family that was asked for; not none.
    Addresses(Vec<IpAddr>),
    /// A name.
    Host(Arc<[u8]>),
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The question.
    pub query: Query,
    /// The answer, and how long it is good.
    pub result: Result<(Found, Duration), DnsError>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitAction {
    /// Ask name servers; [`Exits::answered`] takes the answer.
    LookUp(Query),
    /// Ask no more: another question has its place. An answer may come all the same.
    Cancel(Query),
    /// Connect to this address. Where that cannot even begin, END says [`connect::end_reason`].
    Connect {
        /// For which stream.
        stream: StreamAt,
        /// Whose share of the relay's sockets it is part of.
        hop: PreviousHop,
        /// Where to.
        to: SocketAddr,
        /// The TTL for CONNECTED, in seconds.
        ttl: u32,
    },
    /// The stream goes no further.
    End {
        /// Which.
        stream: StreamAt,
        /// What the client is told.
        end: End,
    },
    /// The answer to a RESOLVE, which ends the stream.
    Resolved {
        /// Which.
        stream: StreamAt,
        /// The answer.
        resolved: Resolved,
    },
    /// What [`Exits::effective_policy`] says is another now, for this reason: the descriptor has
    /// to be made anew.
    PolicyChanged(&'static str),
}

/// A stream that waits for an answer.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Begin {
        stream: StreamAt,
        hop: PreviousHop,
        port: u16,
        flags: BeginFlags,
    },
    Resolve {
        stream: StreamAt,
    },
}

impl Waiter {
    const fn stream(&self) -> StreamAt {
        match self {
            Self::Begin { stream, .. } | Self::Resolve { stream } => *stream,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Exits {
    settings: ExitSettings,
    /// Addresses of relays' ORPorts.
    relays: HashSet<SocketAddr>,
    cache: Cache,
    /// Names that are not known yet, and the streams that wait for them.
    names: Names,
    hijack: Hijack,
    /// The name servers' configuration could not be read.
    unconfigured: bool,
    hibernating: bool,
    actions: VecDeque<ExitAction>,
    counts: ExitCounts,
    ipv6_timeouts: u64,
    ipv6_noted: bool,
    reject_all: ExitPolicy,
    rng: StdRng,
}

impl Exits {
    /// Nothing asked yet.
    #[must_use]
    pub fn new(settings: ExitSettings, seed: [u8; 32]) -> Self {
        Self {
            settings,
            relays: HashSet::new(),
            cache: Cache::default(),
            names: Names::new(MAX_ASKING),
            hijack: Hijack::default(),
            unconfigured: false,
            hibernating: false,
            actions: VecDeque::new(),
            counts: ExitCounts::default(),
            ipv6_timeouts: 0,
            ipv6_noted: false,
            reject_all: ExitPolicy::reject_all(),
            rng: StdRng::from_seed(seed),
        }
    }

    /// Follows a new torrc, consensus or address. Streams that wait are judged by it when their
    /// answers come.
    pub fn set(&mut self, settings: ExitSettings) {
        if settings.ipv6 && !self.settings.ipv6 {
            // What is known lacks the IPv6 addresses.
            self.cache.clear();
        }
        self.settings = settings;
    }

    /// The relays' ORPorts, from a new consensus.
    pub fn set_relays(&mut self, relays: HashSet<SocketAddr>) {
        self.relays = relays;
    }

    /// Whether the name servers' configuration could be read. With `anew`, they may be others than
    /// before: what was known of the old ones' lies is forgotten.
    pub fn set_configured(&mut self, configured: bool, anew: bool) {
        if self.unconfigured == configured {
            self.unconfigured = !configured;
            self.actions
                .push_back(ExitAction::PolicyChanged(if configured {
                    "dns resolvers back"
                } else {
                    "dns resolvers failed"
                }));
        }
        if anew {
            self.hijack.forget();
            self.cache.clear();
        }
    }

    /// Names that name servers can be asked about at once.
    pub fn set_at_once(&mut self, at_once: usize) {
        self.names.set_at_once(at_once.min(MAX_ASKING));
        self.obey_names();
    }

    /// The relay is about to end: no new streams.
    pub fn set_hibernating(&mut self, hibernating: bool) {
        self.hibernating = hibernating;
    }

    /// The policy that is obeyed and published: that of the settings, or `reject *:*` while name
    /// servers are of no use (`router_build_fresh_unsigned_routerinfo`).
    #[must_use]
    pub fn effective_policy(&self) -> &ExitPolicy {
        if self.unconfigured || self.hijack.is_useless() {
            &self.reject_all
        } else {
            &self.settings.policy
        }
    }

    /// Whether nothing may exit.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.effective_policy().rejects_all()
    }

    /// What has been counted since the start.
    #[must_use]
    pub fn counts(&self) -> ExitCounts {
        let mut counts = self.counts.clone();
        counts.cached = self.cache.len();
        counts.waiting = self.names.waiting();
        counts
    }

    /// What is counted elsewhere, about the same streams.
    pub fn counts_mut(&mut self) -> &mut ExitCounts {
        &mut self.counts
    }

    /// Whether torrc lets nothing exit, name servers or not.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.settings.policy.rejects_all()
    }

    /// Compares the tables of what waits with each other.
    ///
    /// # Errors
    ///
    /// What does not fit.
    pub fn audit(&self) -> Result<(), String> {
        self.names.audit()
    }

    /// The next thing to be done.
    pub fn poll_action(&mut self) -> Option<ExitAction> {
        self.actions.pop_front()
    }

    /// A BEGIN came, by a hop.
    pub fn begin(
        &mut self,
        stream: StreamAt,
        hop: PreviousHop,
        from: Previous,
        begin: &Begin,
        now: Instant,
    ) {
        // Whoever comes directly would be better off without us, and so would everybody else.
        match from {
            Previous::Client => return self.end(stream, EndReason::TORPROTOCOL),
            Previous::UnknownRelay if self.settings.refuse_unknown => {
                return self.end(stream, EndReason::MISC);
            }
            Previous::Relay | Previous::UnknownRelay => {}
        }
        let mut flags = begin.flags;
        if !self.settings.ipv6 {
            flags.ipv6_preferred = false;
            if flags.ipv4_not_ok {
                return self.end(stream, EndReason::EXITPOLICY);
            }
        }
        if self.hibernating {
            return self.end(stream, EndReason::HIBERNATING);
        }
        let waiter = Waiter::Begin {
            stream,
            hop,
            port: begin.port,
            flags,
        };
        match Target::read(&begin.target, self.settings.any_names) {
            Ok(Target::Literal(addr)) => {
                self.connect(stream, hop, (addr, begin.port), LITERAL_TTL);
            }
            Ok(Target::Name(name)) if !self.is_closed() => self.wait(name, false, hop, waiter, now),
            Ok(Target::Name(_) | Target::Reverse(_)) | Err(_) => {
                self.end(stream, EndReason::RESOLVEFAILED);
            }
        }
    }

    /// A RESOLVE came, by a hop.
    pub fn resolve(&mut self, stream: StreamAt, hop: PreviousHop, resolve: &Resolve, now: Instant) {
        self.counts.resolves += 1;
        let waiter = Waiter::Resolve { stream };
        match Target::read(&resolve.name, self.settings.any_names) {
            Ok(Target::Literal(IpAddr::V4(addr))) => {
                self.resolved(stream, vec![AnswerKind::Ipv4(addr)]);
            }
            Ok(Target::Literal(IpAddr::V6(addr))) => {
                self.resolved(stream, vec![AnswerKind::Ipv6(addr)]);
            }
            // A relay that lets nothing out is no name server for others either.
            _ if self.is_closed() => self.resolved(stream, vec![AnswerKind::Error]),
            Ok(Target::Name(name)) => self.wait(name, false, hop, waiter, now),
            Ok(Target::Reverse(addr)) => {
                let name = reverse_name(addr).into_bytes();
                self.wait(name.into(), true, hop, waiter, now);
            }
            Err(_) => self.resolved(stream, vec![AnswerKind::Error]),
        }
    }

    /// Name servers answered a [`Query`].
    pub fn answered(&mut self, answer: DnsAnswer, now: Instant) {
        let DnsAnswer { query, mut result } = answer;
        if query.kind == Kind::V6 && result == Err(DnsError::Timeout) {
            self.note_ipv6_timeout();
        }
        if query.asked == Asked::Bogus {
            let found = match &result {
                Ok((Found::Addresses(addrs), _)) => addrs.as_slice(),
                _ => &[],
            };
            return self.hijack.bogus_answered(&query.name, found);
        }
        if let Ok((Found::Addresses(addrs), _)) = &result
            && addrs.first().is_some_and(|addr| self.hijack.is_lie(*addr))
        {
            result = Err(DnsError::NotExist);
            self.note_redirected(&query.name);
        }
        self.counts
            .dns_answered(query.kind, result.as_ref().err().copied());
        if query.asked == Asked::Test {
            return;
        }
        let ttl = result.as_ref().map_or(Duration::ZERO, |(_, ttl)| *ttl);
        let ttl = clip_ttl(ttl, &mut self.rng).as_secs();
        let Some(look_up) = self.names.get_mut(&query.name) else {
            return;
        };
        look_up.missing.retain(|kind| *kind != query.kind);
        let known = &mut look_up.known;
        known.ttl = known.ttl.min(u32::try_from(ttl).unwrap_or(u32::MAX));
        let result = result.map(|(found, _)| found);
        match query.kind {
            Kind::V4 => known.v4 = Some(result.and_then(|found| first_v4(&found))),
            Kind::V6 => known.v6 = Some(result.and_then(|found| first_v6(&found))),
            Kind::Reverse => {
                known.host = Some(result.and_then(|found| match found {
                    Found::Host(host) => Ok(host),
                    Found::Addresses(_) => Err(DnsError::Unknown),
                }));
            }
        }
        if look_up.missing.is_empty()
            && let Some((known, waiters)) = self.names.take(&query.name)
        {
            self.cache.insert(&query.name, known.clone(), now);
            for waiter in waiters {
                self.finish(waiter, &known);
            }
            self.obey_names();
        }
    }

    /// Once a second or so: what waits for too long goes, and what is due is asked.
    pub fn tick(&mut self, now: Instant) {
        self.cache.expire(now);
        for waiter in self.names.expire(MAX_WAIT, now) {
            match waiter {
                Waiter::Begin { stream, .. } => self.end(stream, EndReason::TIMEOUT),
                Waiter::Resolve { stream } => {
                    self.resolved(stream, vec![AnswerKind::TransientError]);
                }
            }
        }
        self.obey_names();
        if self.settings.detect_hijacking && !self.settings.policy.rejects_all() {
            let tests = &self.settings.test_addresses;
            for query in self.hijack.due(tests, now, &mut self.rng) {
                self.ask(query);
            }
        }
    }

    /// Has a stream wait for what name servers say, unless it is known.
    fn wait(
        &mut self,
        name: Arc<[u8]>,
        reverse: bool,
        hop: PreviousHop,
        waiter: Waiter,
        now: Instant,
    ) {
        if let Some(known) = self.cache.get(&name, now) {
            let known = known.clone();
            self.counts.cache_hits += 1;
            return self.finish(waiter, &known);
        }
        let missing = match (reverse, self.settings.ipv6) {
            (true, _) => vec![Kind::Reverse],
            (false, true) => vec![Kind::V4, Kind::V6],
            (false, false) => vec![Kind::V4],
        };
        self.names.wait(name, missing, hop, waiter, now);
        self.obey_names();
    }

    /// Carries out what has become of the names.
    fn obey_names(&mut self) {
        while let Some(order) = self.names.poll_order() {
            match order {
                Order::Ask(query) => self.ask(query),
                Order::Cancel(query) => self.actions.push_back(ExitAction::Cancel(query)),
                Order::Refuse(waiter) => self.refuse(waiter),
            }
        }
    }

    /// A stream gave way.
    fn refuse(&mut self, waiter: Waiter) {
        // Not RESOURCELIMIT, which would have the client think that the relay is of no use for
        // anything (dos.c says the same).
        self.counts.look_ups_refused += 1;
        match waiter {
            Waiter::Begin { stream, .. } => self.end(stream, EndReason::RESOLVEFAILED),
            Waiter::Resolve { stream } => {
                self.resolved(stream, vec![AnswerKind::TransientError]);
            }
        }
    }

    fn ask(&mut self, query: Query) {
        // C tor does not count its random names either.
        if query.asked != Asked::Bogus {
            self.counts.dns_asked(query.kind);
        }
        self.actions.push_back(ExitAction::LookUp(query));
    }

    /// A stream ended before anything was decided about it. A name that nobody waits for any more is
    /// not asked about; if it is being asked about, the answer is worth knowing.
    pub fn forget(&mut self, stream: StreamAddr) {
        self.names.forget(stream);
        self.obey_names();
    }

    /// All is known that can be (`set_exitconn_info_from_resolve`).
    fn finish(&mut self, waiter: Waiter, known: &Known) {
        match waiter {
            Waiter::Resolve { stream } => self.resolved(stream, self.answers(known)),
            Waiter::Begin {
                stream,
                hop,
                port,
                flags,
            } => match self.choose(known, port, flags) {
                Some(addr) => self.connect(stream, hop, (addr, port), known.ttl),
                None => self.end(stream, EndReason::RESOLVEFAILED),
            },
        }
    }

    /// What a RESOLVE is answered with.
    fn answers(&self, known: &Known) -> Vec<AnswerKind> {
        if let Some(host) = &known.host {
            return match host {
                Ok(host) => vec![AnswerKind::Hostname(host.to_vec())],
                Err(_) => vec![AnswerKind::Error],
            };
        }
        let v4 = known.v4.and_then(Result::ok).map(AnswerKind::Ipv4);
        let v6 = known.v6.filter(|_| self.settings.ipv6).and_then(Result::ok);
        let found: Vec<_> = v4.into_iter().chain(v6.map(AnswerKind::Ipv6)).collect();
        if !found.is_empty() {
            return found;
        }
        let error = known.v4.and_then(Result::err).unwrap_or(DnsError::Unknown);
        vec![if error.is_transient() {
            AnswerKind::TransientError
        } else {
            AnswerKind::Error
        }]
    }

    /// The address that a BEGIN connects to: of a family that the client accepts, that the policy
    /// allows if one is, and that the client prefers if both are.
    fn choose(&self, known: &Known, port: u16, flags: BeginFlags) -> Option<IpAddr> {
        let v4 = known.v4.and_then(Result::ok).map(IpAddr::V4);
        let v6 = known.v6.and_then(Result::ok).map(IpAddr::V6);
        let v4 = v4.filter(|_| !flags.ipv4_not_ok);
        let v6 = v6.filter(|_| flags.ipv6_ok && self.settings.ipv6);
        let (Some(v4), Some(v6)) = (v4, v6) else {
            return v4.or(v6);
        };
        let allows = |addr| self.effective_policy().allows(addr, port);
        let six = match (allows(v4), allows(v6)) {
            (true, false) => false,
            (false, true) => true,
            _ => flags.ipv6_preferred,
        };
        Some(if six { v6 } else { v4 })
    }

    /// Lets a stream out to an address, if the policy does.
    fn connect(
        &mut self,
        stream: StreamAt,
        hop: PreviousHop,
        (addr, port): (IpAddr, u16),
        ttl: u32,
    ) {
        // An IPv4 address in IPv6's clothes would be judged by the wrong rules.
        let disguised = matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let allowed = self.effective_policy().allows(addr, port)
            && (addr.is_ipv4() || self.settings.ipv6)
            && !disguised;
        if !allowed {
            self.counts.rejected_by_policy += 1;
            let end = End {
                reason: EndReason::EXITPOLICY,
                addr: Some(addr),
                ttl,
            };
            return self.actions.push_back(ExitAction::End { stream, end });
        }
        let to = SocketAddr::new(addr, port);
        if !self.settings.reentry && self.relays.contains(&to) {
            // Circuits through circuits have no end ("A Practical Congestion Attack on Tor Using
            // Long Paths"). Not EXITPOLICY, on which the client would try at the next exit.
            self.counts.rejected_as_relay += 1;
            return self.end(stream, EndReason::CONNECTREFUSED);
        }
        self.counts.begins += 1;
        self.actions.push_back(ExitAction::Connect {
            stream,
            hop,
            to,
            ttl,
        });
    }

    fn end(&mut self, stream: StreamAt, reason: EndReason) {
        let end = End::new(reason);
        self.actions.push_back(ExitAction::End { stream, end });
    }

    fn resolved(&mut self, stream: StreamAt, answers: Vec<AnswerKind>) {
        let ttl = RESOLVED_TTL;
        let answers = answers.into_iter().map(|kind| ResolvedAnswer { kind, ttl });
        self.actions.push_back(ExitAction::Resolved {
            stream,
            resolved: Resolved {
                answers: answers.collect(),
            },
        });
    }

    /// A name led to an address that means "not found".
    fn note_redirected(&mut self, name: &Arc<[u8]>) {
        let tests = &self.settings.test_addresses;
        if tests.contains(name) && self.hijack.test_redirected(name, tests.len()) {
            let why = "dns hijacking confirmed";
            self.actions.push_back(ExitAction::PolicyChanged(why));
        }
    }

    /// Tells the operator, once, that name servers do not answer questions for IPv6 addresses.
    fn note_ipv6_timeout(&mut self) {
        self.ipv6_timeouts += 1;
        if self.ipv6_timeouts > 10
            && self.ipv6_timeouts > self.counts.dns_queries_of(Kind::V6) / 2
            && !std::mem::replace(&mut self.ipv6_noted, true)
        {
            crate::notice!(
                "More than half of our IPv6 requests seem to have timed out. I'm going to assume I \
                 can't get AAAA responses."
            );
        }
    }
}

fn first_v4(found: &Found) -> Result<Ipv4Addr, DnsError> {
    match found {
        Found::Addresses(addrs) => addrs.iter().find_map(|addr| match addr {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        }),
        Found::Host(_) => None,
    }
    .ok_or(DnsError::NoData)
}

fn first_v6(found: &Found) -> Result<Ipv6Addr, DnsError> {
    match found {
        Found::Addresses(addrs) => addrs.iter().find_map(|addr| match addr {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        }),
        Found::Host(_) => None,
    }
    .ok_or(DnsError::NoData)
}
