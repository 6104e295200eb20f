//! The decisions of an exit ([`Exits`]).

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{
    Answer as ResolvedAnswer, AnswerKind, Begin, BeginFlags, End, Resolve, Resolved, reverse_name,
};
use weft_core::address::StreamAddr;
use weft_core::stream::edge::StreamAt;
use weft_log::Line;
use weft_planted::{Fault, planted};
use weft_policy::ExitPolicy;
use weft_share::PreviousHop;

use crate::action::{ExitAction, PreviousKind, Waiter};
use crate::cache::{Cache, Known, clip_ttl};
use crate::counts::ExitCounts;
use crate::hijack::Hijack;
use crate::name::Target;
use crate::names::{NameAction, Names};
use crate::query::{DnsAnswer, DnsError, Found, Query, QueryKind, QueryPurpose};
use crate::settings::ExitSettings;

/// Names that are looked up at once, at most.
pub const MAX_ASKING: usize = 2048;
/// Nothing waits for an answer for longer than this (dns.c, RESOLVE_MAX_TIMEOUT). The DNS thread
/// gives up long before.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// The TTL that comes with an address that the client named itself, in seconds
/// (DEFAULT_DNS_TTL).
const LITERAL_TTL: u32 = 30 * 60;
/// The TTL of every RESOLVED, in seconds: the real one would reveal what other clients have asked for
/// (RESOLVED_CLIPPED_TTL of dns.c).
const RESOLVED_TTL: u32 = 60;

/// The state of an exit's decisions: settings, known names, streams that wait for names.
///
/// - Requests: [`begin`](Self::begin), [`resolve`](Self::resolve); [`forget`](Self::forget) when such a
///   stream ends before its decision.
/// - Events: [`answered`](Self::answered) for each [`ExitAction::LookUp`], [`tick`](Self::tick) about once
///   a second, the `set_*` methods when torrc, consensus or name servers change.
/// - After each of these call [`poll_action`](Self::poll_action) until it returns `None`.
#[derive(Debug)]
pub struct Exits {
    settings: ExitSettings,
    /// Addresses of relays' ORPorts.
    relays: HashSet<SocketAddr>,
    cache: Cache,
    /// Names that are being looked up, and the streams that wait for them.
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
    /// An exit without streams. `seed` makes the random names and the jitter of TTLs.
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
            // Cached answers lack the IPv6 addresses.
            self.cache.clear();
        }
        self.settings = settings;
    }

    /// The relays' ORPorts, from a new consensus.
    pub fn set_relays(&mut self, relays: HashSet<SocketAddr>) {
        self.relays = relays;
    }

    /// Sets whether the name servers' configuration could be read. With `anew` the servers may be other
    /// ones than before: cached answers and the results of the hijack checks are dropped.
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

    /// Sets how many names the caller can look up at once.
    pub fn set_at_once(&mut self, at_once: usize) {
        self.names.set_at_once(at_once.min(MAX_ASKING));
        self.run_names();
    }

    /// Sets whether the relay shuts down: new streams are refused.
    pub fn set_hibernating(&mut self, hibernating: bool) {
        self.hibernating = hibernating;
    }

    /// The policy that is enforced and published: that of the settings, or `reject *:*` while the name
    /// servers are useless (`router_build_fresh_unsigned_routerinfo`).
    #[must_use]
    pub fn effective_policy(&self) -> &ExitPolicy {
        if self.unconfigured || self.hijack.is_useless() {
            &self.reject_all
        } else {
            &self.settings.policy
        }
    }

    /// Returns true if the exit allows nothing: by its policy, or for lack of useful name servers.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.effective_policy().rejects_all()
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> ExitCounts {
        let mut counts = self.counts.clone();
        counts.cached = self.cache.len();
        counts.waiting = self.names.waiting();
        counts
    }

    /// The counters of events that the caller observes on the same streams.
    pub fn counts_mut(&mut self) -> &mut ExitCounts {
        &mut self.counts
    }

    /// Returns true if torrc's policy allows nothing, with or without name servers.
    #[must_use]
    pub fn is_shut(&self) -> bool {
        self.settings.policy.rejects_all()
    }

    /// Checks that the tables of waiting names and streams agree.
    ///
    /// # Errors
    ///
    /// The inconsistency that was found.
    pub fn audit(&self) -> Result<(), String> {
        self.names.audit()
    }

    /// Streams that wait for the answer about a name.
    pub fn waiting(&self) -> impl Iterator<Item = StreamAddr> {
        self.names.streams()
    }

    /// The next action for the caller.
    pub fn poll_action(&mut self) -> Option<ExitAction> {
        self.actions.pop_front()
    }

    /// Handles a BEGIN. `hop` is the previous hop, for its share; `from` is its kind.
    pub fn begin(
        &mut self,
        stream: StreamAt,
        hop: PreviousHop,
        from: PreviousKind,
        begin: &Begin,
        now: Instant,
    ) {
        // A circuit of one hop gives its user no anonymity and makes exits a target (C tor refuses it too).
        match from {
            PreviousKind::Client if planted(Fault::SingleHopExit) => {}
            PreviousKind::Client => return self.end(stream, EndReason::TORPROTOCOL),
            PreviousKind::UnknownRelay if self.settings.refuse_unknown => {
                return self.end(stream, EndReason::MISC);
            }
            PreviousKind::Relay | PreviousKind::UnknownRelay => {}
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

    /// Handles a RESOLVE. `hop` is the previous hop for its share.
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
            // A relay that is not an exit does not look up names for others either.
            _ if self.is_closed() => self.resolved(stream, vec![AnswerKind::Error]),
            Ok(Target::Name(name)) => self.wait(name, false, hop, waiter, now),
            Ok(Target::Reverse(addr)) => {
                let name = reverse_name(addr).into_bytes();
                self.wait(name.into(), true, hop, waiter, now);
            }
            Err(_) => self.resolved(stream, vec![AnswerKind::Error]),
        }
    }

    /// Handles the answer to a [`Query`].
    pub fn answered(&mut self, answer: DnsAnswer, now: Instant) {
        let DnsAnswer { query, mut result } = answer;
        if query.kind == QueryKind::V6 && result == Err(DnsError::Timeout) {
            self.note_ipv6_timeout();
        }
        if query.purpose == QueryPurpose::Bogus {
            let found = match &result {
                Ok((Found::Addresses(addrs), _)) => addrs.as_slice(),
                _ => &[],
            };
            self.hijack.bogus_answered(&query.name, found);
            return self.log_hijack();
        }
        if let Ok((Found::Addresses(addrs), _)) = &result
            && addrs.first().is_some_and(|addr| self.hijack.is_lie(*addr))
        {
            result = Err(DnsError::NotExist);
            self.note_redirected(&query.name);
        }
        self.counts
            .dns_answered(query.kind, result.as_ref().err().copied());
        if query.purpose == QueryPurpose::Test {
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
            QueryKind::V4 => known.v4 = Some(result.and_then(|found| first_v4(&found))),
            QueryKind::V6 => known.v6 = Some(result.and_then(|found| first_v6(&found))),
            QueryKind::Reverse => {
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
            self.run_names();
        }
    }

    /// Call about once a second: ends streams that have waited too long, and starts hijack checks that are
    /// due.
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
        self.run_names();
        if self.settings.detect_hijacking && !self.settings.policy.rejects_all() {
            let tests = &self.settings.test_addresses;
            for query in self.hijack.due(tests, now, &mut self.rng) {
                self.ask(query);
            }
        }
    }

    /// Lets a stream wait for the answer about a name, unless the cache has it.
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
            (true, _) => vec![QueryKind::Reverse],
            (false, true) => vec![QueryKind::V4, QueryKind::V6],
            (false, false) => vec![QueryKind::V4],
        };
        self.names.wait(name, missing, hop, waiter, now);
        self.run_names();
    }

    /// Carries out the actions of [`Names`].
    fn run_names(&mut self) {
        while let Some(action) = self.names.poll_action() {
            match action {
                NameAction::Ask(query) => self.ask(query),
                NameAction::Cancel(query) => self.actions.push_back(ExitAction::Cancel(query)),
                NameAction::Refuse(waiter) => self.refuse(waiter),
            }
        }
    }

    /// Refuses a stream whose place another stream took.
    fn refuse(&mut self, waiter: Waiter) {
        // Not RESOURCELIMIT, on which the client would avoid the relay for everything (as in dos.c).
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
        if query.purpose != QueryPurpose::Bogus {
            self.counts.dns_asked(query.kind);
        }
        self.actions.push_back(ExitAction::LookUp(query));
    }

    /// Removes a stream that ended before its decision. A name without waiting streams is not looked up; a
    /// query that is under way continues, as its answer is worth caching.
    pub fn forget(&mut self, stream: StreamAddr) {
        if planted(Fault::ExitKeepsStream) {
            return;
        }
        self.names.forget(stream);
        self.run_names();
    }

    /// Decides about a stream by the answers about its name (`set_exitconn_info_from_resolve`).
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

    /// The answers to a RESOLVE.
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

    /// Connects a stream to an address, if the policy allows it.
    fn connect(
        &mut self,
        stream: StreamAt,
        hop: PreviousHop,
        (addr, port): (IpAddr, u16),
        ttl: u32,
    ) {
        // The policy would match an IPv4-mapped IPv6 address against the wrong rules.
        let disguised = matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let allowed = (self.effective_policy().allows(addr, port)
            || planted(Fault::ExitPolicyIgnored))
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

    /// Counts a name that resolved to an address that means "not found".
    fn note_redirected(&mut self, name: &Arc<[u8]>) {
        let tests = &self.settings.test_addresses;
        if tests.contains(name) && self.hijack.test_redirected(name, tests.len()) {
            let why = "dns hijacking confirmed";
            self.actions.push_back(ExitAction::PolicyChanged(why));
        }
        self.log_hijack();
    }

    fn log_hijack(&mut self) {
        let lines = self.hijack.take_lines();
        self.actions.extend(lines.into_iter().map(ExitAction::Log));
    }

    /// Logs, once, that name servers do not answer queries for IPv6 addresses.
    fn note_ipv6_timeout(&mut self) {
        self.ipv6_timeouts += 1;
        if self.ipv6_timeouts > 10
            && self.ipv6_timeouts > self.counts.dns_queries_of(QueryKind::V6) / 2
            && !std::mem::replace(&mut self.ipv6_noted, true)
        {
            self.actions.push_back(ExitAction::Log(Line::notice(
                "More than half of our IPv6 requests seem to have timed out. I'm going to assume I \
                 can't get AAAA responses.",
            )));
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

#[cfg(test)]
mod tests;
