//! The authority without input and output: its state, and what is decided about relays.

mod audit;
mod lookup;
mod posts;
pub(crate) mod storage;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;

use crate::config::{AuthorityConfig, Lifetime};
use crate::consensus::{self, Flavour};
use crate::documents::Documents;
use crate::flags::{Candidate, Voter};
use crate::history::History;
use crate::keys::{AuthorityKeyError, AuthorityKeys, Signers};
use crate::pins::KeyPins;
use crate::reach::{Reach, ReachabilityTest, Running};
use crate::router::{self, Router};

/// Relays that are known at most.
pub const MAX_RELAYS: usize = 4096;
/// Documents of one kind that are kept although no relay has them any more, at most.
const MAX_OLD: usize = 4 * MAX_RELAYS;

/// What a directory answers, before HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Reason phrase.
    pub reason: Cow<'static, str>,
    /// Documents, one after the other.
    pub body: Vec<Arc<str>>,
    /// Nothing is sent to a client that has it from this time or later.
    pub modified: Option<SystemTime>,
    /// How long the answer may be kept.
    pub lifetime: Duration,
    /// `X-Descriptor-Not-New: Yes`.
    pub not_new: bool,
    /// It is a page for people.
    pub page: bool,
}

impl Answer {
    /// An answer without documents.
    pub fn short(status: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            reason: reason.into(),
            body: Vec::new(),
            modified: None,
            lifetime: Duration::ZERO,
            not_new: false,
            page: false,
        }
    }

    /// These documents; 404 if there are none.
    fn documents(body: Vec<Arc<str>>, lifetime: Duration) -> Self {
        match body.is_empty() {
            true => Self::short(404, "Not found"),
            false => Self {
                body,
                lifetime,
                ..Self::short(200, "OK")
            },
        }
    }
}

/// The newest consensus.
#[derive(Debug)]
struct Current {
    lifetime: Lifetime,
    ns: Arc<str>,
    microdesc: Arc<str>,
}

/// The authority of a private network.
#[derive(Debug)]
pub struct PrivateAuthority {
    config: AuthorityConfig,
    keys: Signers,
    /// The certificates of our keys, in the same order.
    certificates: Vec<Arc<str>>,
    routers: BTreeMap<RsaIdentity, Router>,
    /// Microdescriptors by SHA-256.
    microdescs: Documents<[u8; 32]>,
    /// Descriptors and extra-info documents by SHA-1.
    descriptors: Documents<[u8; 20]>,
    /// What is known of whether known relays run.
    reach: BTreeMap<RsaIdentity, Reach>,
    history: History,
    pins: KeyPins,
    /// When this authority began.
    started: Option<SystemTime>,
    /// When the first relay came.
    first: Option<SystemTime>,
    /// Whether a relay that runs came, changed or went since the newest consensus.
    changed: bool,
    /// Whether any relay came or changed since that was asked.
    has_news: bool,
    current: Option<Current>,
}

impl PrivateAuthority {
    /// An authority that knows no relay yet. It signs by the keys of an older identity, too (`V3AuthUseLegacyKey`).
    #[must_use]
    pub fn new(
        config: AuthorityConfig,
        keys: AuthorityKeys,
        legacy: Option<AuthorityKeys>,
    ) -> Self {
        let keys = Signers { own: keys, legacy };
        Self {
            config,
            certificates: keys.all().map(|keys| keys.certificate().into()).collect(),
            keys,
            routers: BTreeMap::new(),
            microdescs: Documents::new(MAX_OLD),
            descriptors: Documents::new(2 * MAX_OLD),
            reach: BTreeMap::new(),
            history: History::default(),
            pins: KeyPins::default(),
            started: None,
            first: None,
            changed: false,
            has_news: false,
            current: None,
        }
    }

    /// Forgets a relay.
    fn forget(&mut self, id: &RsaIdentity, now: SystemTime) {
        if let Some(router) = self.routers.remove(id) {
            self.release(&router);
            self.history.note_forgotten(*id, now);
            self.changed |= self.runs(&router, now);
        }
    }

    /// Forgets the relays that `is_meant`.
    fn forget_all(&mut self, now: SystemTime, is_meant: impl Fn(&Router) -> bool) {
        let all = self.routers.values().filter(|router| is_meant(router));
        let all: Vec<RsaIdentity> = all.map(|router| router.rsa).collect();
        for id in all {
            self.forget(&id, now);
        }
    }

    /// Documents of a relay are not its newest any more.
    fn release(&mut self, router: &Router) {
        self.microdescs.release(&router.microdesc_digest);
        for digest in router.digests() {
            self.descriptors.release(&digest);
        }
    }

    /// Does what is due: forgets relays that have not published for a day or whose certificates have ended, and makes a consensus
    /// where the newest is no longer fresh or relays have come. Returns when to call again at the
    /// latest; after a [`post`](Self::post) it may be due sooner.
    ///
    /// # Errors
    /// Signing failed.
    pub fn tick(&mut self, now: SystemTime) -> Result<SystemTime, AuthorityKeyError> {
        let started = *self.started.get_or_insert(now);
        let routers = &self.routers;
        self.history.downrate(now, |id| routers.contains_key(id));
        self.forget_all(now, |router| {
            router.published + router::MAX_AGE < now || router.valid_until < now
        });
        let routers = &self.routers;
        // What is still tested holds a place.
        self.reach
            .retain(|id, reach| routers.contains_key(id) || reach.is_tested());
        let due = match &self.current {
            // Relays of a network that begins come together: not a consensus of the first alone,
            // which clients keep until it is stale. Nor one before it is known who runs.
            None => {
                let learned = started + self.config.reachability.time_to_learn;
                let first = self.first.unwrap_or(now) + self.config.initial_gap();
                first.max(learned)
            }
            // A clock that was set back: begin anew.
            Some(current) if current.lifetime.valid_after > now + self.config.gap() => now,
            Some(current) if self.changed => current.lifetime.valid_after + self.config.gap(),
            Some(current) => self.config.next(current.lifetime.valid_after),
        };
        if due > now {
            return Ok(due);
        }
        self.make_consensus(now)?;
        Ok(now + self.config.gap())
    }

    /// Follows other settings, for relays that are known, too.
    pub fn configure(&mut self, config: AuthorityConfig, now: SystemTime) {
        self.forget_all(now, |router| router.standing(&config.lists).is_err());
        self.config = config;
        self.changed = true;
    }

    /// Begins the tests of relays that are due and have a place beside those that are under way; the caller runs them, and
    /// reports each to [`tested`](Self::tested). Returns when the next one is due, apart from those that wait for a place.
    pub fn begin_tests(&mut self, now: SystemTime) -> (Vec<ReachabilityTest>, Option<SystemTime>) {
        let options = &self.config.reachability;
        if !options.test {
            return (Vec::new(), None);
        }
        let mut running = Running::default();
        self.reach.values().for_each(|reach| running.add(reach));
        if running.is_full() {
            return (Vec::new(), None);
        }
        let (mut due, mut next) = (Vec::new(), None);
        let others = self.routers.values();
        for router in others.filter(|router| router.rsa != self.config.identity) {
            let reach = self.reach.entry(router.rsa).or_default();
            let later = reach.due(options, router, now, &mut due);
            next = [next, later].into_iter().flatten().min();
        }
        let tests = running.choose(due);
        for test in &tests {
            self.reach.entry(test.rsa).or_default().begin(test, now);
        }
        (tests, next)
    }

    /// The result of a test.
    pub fn tested(&mut self, test: &ReachabilityTest, reached: bool, now: SystemTime) {
        let Some(router) = self.routers.get(&test.rsa) else {
            if let Some(reach) = self.reach.get_mut(&test.rsa) {
                reach.end(test);
            }
            return;
        };
        let reach = self.reach.entry(test.rsa).or_default();
        let finished = reach.finish(test, router, reached, now);
        let ed = router.ed;
        self.changed |= finished.came_up;
        if finished.reached && test.address == router.or_addr() {
            let penalty = self.config.move_penalty();
            self.history
                .note_reachable(test.rsa, test.address, now, penalty);
            self.pin(test.rsa, ed);
            // Another relay that claims this port is not there, or not any more: a relay came back with other keys.
            let own = self.config.identity;
            self.forget_all(now, |router| {
                router.or_addr() == test.address && router.rsa != test.rsa && router.rsa != own
            });
        }
    }

    /// Relays as they are now: the newest of those with one Ed25519 identity (`routers_make_ed_keys_unique`).
    fn candidates(&self, now: SystemTime) -> Vec<Candidate<'_>> {
        let mut newest = BTreeMap::new();
        for router in self.routers.values() {
            let held: &mut &Router = newest.entry(router.ed).or_insert(router);
            if held.published < router.published {
                *held = router;
            }
        }
        let unique = self.routers.values().filter(|router| {
            let newest = newest.get(&router.ed);
            newest.is_some_and(|newest| newest.rsa == router.rsa)
        });
        let config = &self.config;
        unique
            .filter_map(|router| {
                let is_self = router.rsa == config.identity;
                let reach = self.reach.get(&router.rsa).copied().unwrap_or_default();
                let options = &config.reachability;
                Some(Candidate {
                    router,
                    standing: router.standing(&config.lists).ok()?,
                    running: reach.is_running(options, router, is_self, now),
                    ipv6: reach.lists_ipv6(options, is_self, now),
                })
            })
            .collect()
    }

    fn make_consensus(&mut self, now: SystemTime) -> Result<(), AuthorityKeyError> {
        let lifetime = self.config.lifetime(now);
        let mut history = std::mem::take(&mut self.history);
        let made = self.write_consensus(lifetime, &mut history, now);
        self.history = history;
        let Some((current, listed)) = made? else {
            return Ok(());
        };
        self.current = Some(current);
        self.changed = false;
        for router in listed.iter().filter_map(|id| self.routers.get(id)) {
            self.microdescs.name(&router.microdesc_digest, now);
            for digest in router.digests() {
                self.descriptors.name(&digest, now);
            }
        }
        self.microdescs.forget_old(now);
        self.descriptors.forget_old(now);
        Ok(())
    }

    /// The consensus of this time, with the relays that it lists. C tor's authorities sign one without relays; it is of no
    /// use.
    fn write_consensus(
        &self,
        lifetime: Lifetime,
        history: &mut History,
        now: SystemTime,
    ) -> Result<Option<(Current, Vec<RsaIdentity>)>, AuthorityKeyError> {
        let relays = self.candidates(now);
        for down in relays.iter().filter(|relay| !relay.running) {
            let reach = self.reach.get(&down.router.rsa);
            let since = reach.map_or(now, |reach| reach.down_since(now));
            history.note_unreachable(down.router.rsa, since);
        }
        let crowded = self.voter(history, lifetime).crowded(&relays);
        let listed = self.voter(history, lifetime).vote(&relays, &crowded);
        if listed.is_empty() {
            return Ok(None);
        }
        let write = |flavour| {
            consensus::write(flavour, &self.config, &self.keys, &listed, lifetime)
                .map(Arc::<str>::from)
        };
        let current = Current {
            lifetime,
            ns: write(Flavour::Ns)?,
            microdesc: write(Flavour::Microdesc)?,
        };
        let ids = listed.iter().map(|relay| relay.router.rsa).collect();
        Ok(Some((current, ids)))
    }

    fn voter<'a>(&'a self, history: &'a History, lifetime: Lifetime) -> Voter<'a> {
        let now = lifetime.valid_after;
        let uptime = |started| now.duration_since(started).ok();
        Voter {
            config: &self.config,
            history,
            own_uptime: self.started.and_then(uptime).unwrap_or_default(),
            now,
        }
    }

    /// Whether requests of this address are answered although the bandwidth is used up: those of relays always are.
    pub(crate) fn answers_under_load(&self, peer: IpAddr) -> bool {
        let mut relays = self.routers.values();
        !self.config.reject_under_load
            || relays.any(|relay| {
                IpAddr::V4(relay.ip) == peer || relay.ipv6.is_some_and(|ipv6| ipv6.ip() == peer)
            })
    }

    /// How many relays are known.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.routers.len()
    }

    /// When the newest consensus became valid.
    #[must_use]
    pub fn valid_after(&self) -> Option<SystemTime> {
        Some(self.current.as_ref()?.lifetime.valid_after)
    }

    /// The identity that signs.
    #[must_use]
    pub fn keys(&self) -> &AuthorityKeys {
        &self.keys.own
    }
}
