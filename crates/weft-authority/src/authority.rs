//! The authority without input and output: the relays that it knows, and when it makes a consensus of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dircache::answer::Found;
use weft_dircache::request::Request;
use weft_dircache::{Authority, Posted};

use crate::config::{AuthorityConfig, Lifetime};
use crate::consensus::{self, Flavour};
use crate::documents::Documents;
use crate::keys::{AuthorityKeyError, AuthorityKeys};
use crate::router::{self, Router};

/// Relays that are known at most.
pub const MAX_RELAYS: usize = 4096;
/// Documents of one kind that are kept although no relay has them any more, at most.
const MAX_OLD: usize = 4 * MAX_RELAYS;

/// The answer to a relay with one identity of its own and one of another.
const OTHER_KEYS: &str = "Looks like your keypair has changed? This authority previously recorded a different RSA identity for \
     this Ed25519 identity (or vice versa.) Did you replace or copy some of your key files, but not the others? You \
     should either restore the expected keypair, or delete your keys and restart Tor to start your relay with a new \
     identity.";

/// The newest consensus.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) lifetime: Lifetime,
    pub(crate) ns: Arc<str>,
    pub(crate) microdesc: Arc<str>,
}

/// The authority of a private network.
#[derive(Debug)]
pub struct PrivateAuthority {
    pub(crate) config: AuthorityConfig,
    pub(crate) keys: AuthorityKeys,
    pub(crate) routers: BTreeMap<RsaIdentity, Router>,
    /// Microdescriptors by SHA-256.
    pub(crate) microdescs: Documents<[u8; 32]>,
    /// Descriptors and extra-info documents by SHA-1.
    pub(crate) descriptors: Documents<[u8; 20]>,
    /// When the first relay came.
    first: Option<SystemTime>,
    /// True if a running relay was added, changed or removed since the newest consensus.
    changed: bool,
    pub(crate) current: Option<Current>,
}

impl PrivateAuthority {
    /// An authority that knows no relay yet.
    #[must_use]
    pub fn new(config: AuthorityConfig, keys: AuthorityKeys) -> Self {
        Self {
            config,
            keys,
            routers: BTreeMap::new(),
            microdescs: Documents::new(MAX_OLD),
            descriptors: Documents::new(2 * MAX_OLD),
            first: None,
            changed: false,
            current: None,
        }
    }

    /// Does what is due: forgets relays that have not published for a day or whose certificates have ended, and makes a
    /// consensus where the newest is no longer fresh or relays have come.
    ///
    /// # Errors
    /// Signing failed.
    pub fn tick(&mut self, now: SystemTime) -> Result<(), AuthorityKeyError> {
        self.forget_all(|router| {
            router.published + router::MAX_AGE < now || router.valid_until < now
        });
        let gap = self.config.gap();
        let due = match self.current.as_ref().map(|current| current.lifetime) {
            // Relays of a network that begins come together: not a consensus of the first alone,
            // which clients keep until it is stale.
            None => self.first.unwrap_or(now) + self.config.options.initial_delay,
            // A clock that was set back: begin anew.
            Some(lifetime) if lifetime.valid_after > now + gap => now,
            Some(lifetime) if self.changed => lifetime.valid_after + gap,
            Some(lifetime) => lifetime.fresh_until,
        };
        match due <= now {
            true => self.make_consensus(now),
            false => Ok(()),
        }
    }

    /// Makes a consensus of the relays that run. C tor's authorities sign one without relays; it is of no use.
    fn make_consensus(&mut self, now: SystemTime) -> Result<(), AuthorityKeyError> {
        let relays: Vec<&Router> = self.routers.values().filter(|one| one.runs()).collect();
        if relays.is_empty() {
            return Ok(());
        }
        let lifetime = self.config.lifetime(now);
        let write = |flavour| {
            let text = consensus::write(flavour, &self.config, &self.keys, &relays, lifetime);
            text.map(Arc::<str>::from)
        };
        self.current = Some(Current {
            lifetime,
            ns: write(Flavour::Ns)?,
            microdesc: write(Flavour::Microdesc)?,
        });
        self.changed = false;
        let microdescs: Vec<_> = relays.iter().map(|one| one.microdesc_digest).collect();
        let descriptors: Vec<_> = relays.iter().flat_map(|one| one.digests()).collect();
        let all = self.routers.values();
        let has: BTreeSet<_> = all.clone().map(|one| one.microdesc_digest).collect();
        self.microdescs.name(&microdescs, &has, now);
        let has: BTreeSet<_> = all.flat_map(Router::digests).collect();
        self.descriptors.name(&descriptors, &has, now);
        Ok(())
    }

    /// Follows other settings.
    pub fn configure(&mut self, config: AuthorityConfig) {
        let needs_tap = config.options.needs_tap;
        self.forget_all(|router| needs_tap && !router.has_tap());
        self.config = config;
        self.changed = true;
    }

    /// Forgets the relays that `is_meant`.
    fn forget_all(&mut self, is_meant: impl Fn(&Router) -> bool) {
        let all = self.routers.values().filter(|router| is_meant(router));
        let all: Vec<RsaIdentity> = all.map(|router| router.rsa).collect();
        all.iter().for_each(|id| self.forget(id));
    }

    /// Forgets a relay.
    fn forget(&mut self, id: &RsaIdentity) {
        let Some(router) = self.routers.remove(id) else {
            return;
        };
        self.changed |= router.runs();
        self.microdescs.release(&router.microdesc_digest);
        for digest in router.digests() {
            self.descriptors.release(&digest);
        }
    }

    /// Takes what a relay has posted to `/tor/`: descriptors, extra-info documents, in any order (C tor process_descs.c).
    /// C tor answers that a descriptor is accepted also where it could not read it; this authority
    /// answers with what is wrong.
    pub fn post(&mut self, body: &[u8], now: SystemTime) -> Posted {
        let posted = |status, reason| Posted {
            status,
            reason,
            not_new: false,
        };
        let Ok(text) = std::str::from_utf8(body) else {
            let reason = "descriptor(s) or extrainfo(s) not valid UTF-8 or had BOM.";
            return posted(400, reason.into());
        };
        let taken = documents(text).map(|document| match document.starts_with("router ") {
            true => self.take_router(document, now),
            false => self.take_extra_info(document),
        });
        match taken.max() {
            None => posted(400, "No descriptors found in your POST.".into()),
            Some(Taken::New) => posted(200, "Descriptor accepted".into()),
            Some(Taken::Known) => Posted {
                not_new: true,
                ..posted(200, "OK".into())
            },
            Some(Taken::BadExtraInfo(reason) | Taken::Refused(reason)) => {
                posted(400, one_line(&reason).into())
            }
        }
    }

    fn take_router(&mut self, text: &str, now: SystemTime) -> Taken {
        // A known relay's newest descriptor needs no look at its signatures.
        let id = router::line(text, "fingerprint").map(|id| id.replace(' ', ""));
        let id = id.filter(|id| id.is_ascii());
        let known = id.and_then(|id| self.routers.get(&RsaIdentity::from_hex(&id)?));
        if known.is_some_and(|known| &*known.text == text) {
            return Taken::Known;
        }
        match Router::read(text, now).and_then(|router| self.add_router(router, now)) {
            Ok(true) => Taken::New,
            Ok(false) => Taken::Known,
            Err(reason) => Taken::Refused(reason),
        }
    }

    /// Adds a relay's descriptor. True if it is newer than the known one; an error is the reason
    /// for its refusal.
    fn add_router(&mut self, router: Router, now: SystemTime) -> Result<bool, String> {
        if self.config.options.needs_tap && !router.has_tap() {
            return Err("Missing TAP key in descriptor.".into());
        }
        let mut others = self.routers.values();
        if others.any(|known| (known.rsa == router.rsa) != (known.ed == router.ed)) {
            return Err(OTHER_KEYS.into());
        }
        let known = self.routers.get(&router.rsa);
        if known.is_some_and(|known| known.published >= router.published) {
            return Ok(false);
        }
        let own = self.config.identity;
        let at_its_port = |other: &Router| {
            other.rsa != router.rsa && (other.ip, other.or_port) == (router.ip, router.or_port)
        };
        if self.routers.get(&own).is_some_and(at_its_port) {
            return Err("Another relay, the authority, is at this address and port.".into());
        }
        if known.is_none() && self.routers.len() >= self.config.max_relays {
            return Err("This private network is full.".into());
        }
        // A relay came back with other keys: the one that was at its port is not there any more.
        self.forget_all(at_its_port);
        self.forget(&router.rsa);
        self.changed |= router.runs();
        self.microdescs
            .add(router.microdesc_digest, &router.microdesc);
        self.descriptors.add(router.digest, &router.text);
        self.routers.insert(router.rsa, router);
        self.first.get_or_insert(now);
        Ok(true)
    }

    fn take_extra_info(&mut self, text: &str) -> Taken {
        // extra-info NICKNAME FINGERPRINT
        let id = router::line(text, "extra-info")
            .and_then(|line| line.split(' ').nth(1))
            .filter(|id| id.is_ascii())
            .and_then(RsaIdentity::from_hex);
        let Some(router) = id.and_then(|id| self.routers.get_mut(&id)) else {
            let reason = "No corresponding router descriptor for extra-info descriptor";
            return Taken::BadExtraInfo(reason.into());
        };
        match router.named_extra_info(text) {
            // A descriptor names one.
            Ok(_) if router.extra_info.is_some() => Taken::Known,
            Ok(named) => {
                self.descriptors.add(named.digest, &named.text);
                router.extra_info = Some(named);
                Taken::New
            }
            Err(reason) => Taken::BadExtraInfo(reason),
        }
    }

    /// Number of known relays.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.routers.len()
    }

    /// When the newest consensus became valid.
    #[must_use]
    pub fn valid_after(&self) -> Option<SystemTime> {
        Some(self.current.as_ref()?.lifetime.valid_after)
    }
}

/// An authority that the directory's thread asks, and whose settings the node changes.
#[derive(Debug)]
pub struct SharedAuthority(Mutex<PrivateAuthority>);

impl SharedAuthority {
    /// Shares this authority.
    #[must_use]
    pub fn new(authority: PrivateAuthority) -> Self {
        Self(Mutex::new(authority))
    }

    /// Held for one decision at a time; none panics with the lock.
    fn lock(&self) -> MutexGuard<'_, PrivateAuthority> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows other settings.
    pub fn configure(&self, config: AuthorityConfig) {
        self.lock().configure(config);
    }
}

impl Authority for SharedAuthority {
    fn find(&self, request: &Request, now: SystemTime) -> Found {
        self.lock().get(&request.path, request.since, now)
    }

    fn post(&self, body: &[u8], now: SystemTime) -> Posted {
        self.lock().post(body, now)
    }
}

/// The result for a document that was posted. Of several, the greatest is answered (C tor `was_router_added_t`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// It is new.
    New,
    /// An extra-info document is refused, for this reason.
    BadExtraInfo(String),
    /// We have it, or a newer one.
    Known,
    /// A descriptor is refused, for this reason.
    Refused(String),
}

/// Cuts an upload into documents.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let begins = |at: &usize| {
        text.get(*at..)
            .is_some_and(|rest| rest.starts_with("router ") || rest.starts_with("extra-info "))
    };
    let lines = text.match_indices('\n').map(|(at, _)| at + 1);
    let mut starts: Vec<usize> = std::iter::once(0).chain(lines).filter(begins).collect();
    starts.push(text.len());
    let ends: Vec<usize> = starts.iter().copied().skip(1).collect();
    let pairs = starts.into_iter().zip(ends);
    pairs.filter_map(move |(from, to)| text.get(from..to))
}

/// A reason that fits in a status line.
fn one_line(text: &str) -> String {
    let kept = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    kept.take(400).collect()
}
