//! A small directory authority, for private networks alone.
//!
//! One authority, without voting: it takes the descriptors of relays (dir-spec 4.1), makes
//! microdescriptors of them, and signs a consensus of its own in both flavours. Documents are C tor's
//! byte for byte where other nodes compare digests (microdescriptors), and accepted by C tor's relays
//! and clients everywhere else.
//!
//! What it does not do, because a private network has no use for it: vote, measure, test whether
//! relays can be reached (it takes their word, as C tor's authorities with `AssumeReachable 1` do), watch
//! how long they have been running, agree on shared random values, remember anything over a restart
//! except its keys. Relays publish again when they miss themselves in the consensus.
//!
//! [`PrivateAuthority`] takes the time as an argument and does no I/O; [`server`] answers HTTP.

mod config;
mod consensus;
mod keys;
mod lookup;
mod router;
pub mod server;
#[cfg(test)]
mod tests;
mod weights;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;

use config::Lifetime;
pub use config::{AuthorityConfig, Granted, parse_bandwidths};
use consensus::Flavour;
pub use keys::{AuthorityKeyError, AuthorityKeys, CERTIFICATE};
use router::Router;

/// Relays that are known at most.
const MAX_RELAYS: usize = 4096;
/// Documents that are kept although a newer one of the same relay has replaced them.
const MAX_OLD: usize = 4 * MAX_RELAYS;
/// How long they are kept: as long as a client may have a consensus that names them.
const OLD: Duration = Duration::from_secs(24 * 3600);

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
    keys: AuthorityKeys,
    certificate: Arc<str>,
    routers: BTreeMap<RsaIdentity, Router>,
    /// Microdescriptors by SHA-256, of relays that are or were known, with when they last were.
    microdescs: BTreeMap<[u8; 32], (Arc<str>, SystemTime)>,
    /// Descriptors and extra-info documents by SHA-1, in the same way.
    descriptors: BTreeMap<[u8; 20], (Arc<str>, SystemTime)>,
    /// When the first relay came.
    first: Option<SystemTime>,
    /// Whether a relay came, changed or went since the newest consensus.
    changed: bool,
    current: Option<Current>,
}

impl PrivateAuthority {
    /// An authority that knows no relay yet.
    #[must_use]
    pub fn new(config: AuthorityConfig, keys: AuthorityKeys) -> Self {
        Self {
            config,
            certificate: keys.certificate().into(),
            keys,
            routers: BTreeMap::new(),
            microdescs: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            first: None,
            changed: false,
            current: None,
        }
    }

    /// Takes what a relay has posted to `/tor/`: descriptors, extra-info documents, in any order.
    /// C tor answers that a descriptor is accepted also where it could not read it; this authority
    /// answers with what is wrong.
    pub fn post(&mut self, body: &[u8], now: SystemTime) -> Answer {
        let Ok(text) = std::str::from_utf8(body) else {
            return Answer::short(
                400,
                "descriptor(s) or extrainfo(s) not valid UTF-8 or had BOM.",
            );
        };
        let mut worst: Option<Answer> = None;
        let mut any = false;
        for document in documents(text) {
            any = true;
            let outcome = match document.starts_with("router ") {
                true => self.take_router(document, now),
                false => self.take_extra_info(document, now),
            };
            let answer = match outcome {
                Ok(Taken::New) => continue,
                Ok(Taken::Known) => Answer {
                    not_new: true,
                    ..Answer::short(200, "OK")
                },
                Err(reason) => Answer::short(400, one_line(&reason)),
            };
            if worst
                .as_ref()
                .is_none_or(|worst| worst.status < answer.status)
            {
                worst = Some(answer);
            }
        }
        match worst {
            Some(answer) => answer,
            None if any => Answer::short(200, "Descriptor accepted"),
            None => Answer::short(400, "No descriptors found in your POST."),
        }
    }

    fn take_router(&mut self, text: &str, now: SystemTime) -> Result<Taken, String> {
        let router = Router::read(text, now)?;
        for known in self.routers.values() {
            if (known.rsa == router.rsa) != (known.ed == router.ed) {
                return Err(
                    "Looks like your keypair has changed? This authority previously \
                            recorded a different RSA identity for this Ed25519 identity (or vice \
                            versa.) Did you replace or copy some of your key files, but not the \
                            others? You should either restore the expected keypair, or delete your \
                            keys and restart Tor to start your relay with a new identity."
                        .into(),
                );
            }
        }
        match self.routers.get(&router.rsa) {
            Some(known) if known.published >= router.published => return Ok(Taken::Known),
            None if self.routers.len() >= MAX_RELAYS => {
                return Err("This private network is full.".into());
            }
            _ => {}
        }
        // A relay that came back with other keys is not listed with its old ones any more.
        self.routers.retain(|id, known| {
            *id == router.rsa || (known.ip, known.or_port) != (router.ip, router.or_port)
        });
        self.microdescs
            .insert(router.microdesc_digest, (router.microdesc.clone(), now));
        self.descriptors
            .insert(router.digest, (router.text.clone(), now));
        self.routers.insert(router.rsa, router);
        self.first.get_or_insert(now);
        self.changed = true;
        Ok(Taken::New)
    }

    fn take_extra_info(&mut self, text: &str, now: SystemTime) -> Result<Taken, String> {
        // extra-info NICKNAME FINGERPRINT
        let id = router::line(text, "extra-info")
            .and_then(|line| line.split(' ').nth(1))
            .filter(|id| id.is_ascii())
            .and_then(RsaIdentity::from_hex);
        let router = id
            .and_then(|id| self.routers.get_mut(&id))
            .ok_or("No corresponding router descriptor for extra-info descriptor")?;
        if let Some(known) = &router.extra_info
            && &*known.text == text
        {
            return Ok(Taken::Known);
        }
        router.take_extra_info(text)?;
        if let Some(taken) = &router.extra_info {
            self.descriptors
                .insert(taken.digest, (taken.text.clone(), now));
        }
        Ok(Taken::New)
    }

    /// Does what is due: forgets relays that have not published for a day, and makes a consensus
    /// where the newest is no longer fresh or relays have come. Returns when to call again at the
    /// latest; after a [`post`](Self::post) it may be due sooner.
    ///
    /// # Errors
    /// Signing failed.
    pub fn tick(&mut self, now: SystemTime) -> Result<SystemTime, AuthorityKeyError> {
        let before = self.routers.len();
        self.routers
            .retain(|_, router| router.published + router::MAX_AGE >= now);
        self.changed |= self.routers.len() != before;
        let due = match &self.current {
            // Relays of a network that begins come together: not a consensus of the first alone,
            // which clients keep until it is stale.
            None => self.first.map_or(now, |first| first + self.config.gap()),
            // A clock that was set back: begin anew.
            Some(current) if current.lifetime.valid_after > now + self.config.gap() => now,
            Some(current) if self.changed => current.lifetime.valid_after + self.config.gap(),
            Some(current) => current.lifetime.fresh_until,
        };
        if due > now {
            return Ok(due);
        }
        // C tor's authorities sign a consensus without relays; it is of no use.
        if self.running().next().is_some() {
            self.make_consensus(now)?;
        }
        Ok(now + self.config.gap())
    }

    fn running(&self) -> impl Iterator<Item = &Router> {
        self.routers.values().filter(|router| !router.hibernating)
    }

    fn make_consensus(&mut self, now: SystemTime) -> Result<(), AuthorityKeyError> {
        let lifetime = self.config.lifetime(now);
        let routers: Vec<&Router> = self.running().collect();
        let write = |flavour| {
            consensus::write(flavour, &self.config, &self.keys, &routers, lifetime)
                .map(Arc::<str>::from)
        };
        let current = Current {
            lifetime,
            ns: write(Flavour::Ns)?,
            microdesc: write(Flavour::Microdesc)?,
        };
        self.current = Some(current);
        self.changed = false;
        self.forget_old(now);
        Ok(())
    }

    /// Forgets documents that no consensus of the last day names.
    fn forget_old(&mut self, now: SystemTime) {
        for router in self.routers.values() {
            if let Some((_, last)) = self.microdescs.get_mut(&router.microdesc_digest) {
                *last = now;
            }
            let digests = [
                Some(router.digest),
                router.extra_info.as_ref().map(|extra| extra.digest),
            ];
            for digest in digests.into_iter().flatten() {
                if let Some((_, last)) = self.descriptors.get_mut(&digest) {
                    *last = now;
                }
            }
        }
        forget(&mut self.microdescs, now);
        forget(&mut self.descriptors, now);
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
        &self.keys
    }
}

fn forget<K: Ord + Copy>(held: &mut BTreeMap<K, (Arc<str>, SystemTime)>, now: SystemTime) {
    held.retain(|_, (_, last)| *last + OLD >= now);
    while held.len() > MAX_OLD {
        let oldest = held.iter().min_by_key(|(_, (_, last))| *last);
        let Some(oldest) = oldest.map(|(key, _)| *key) else {
            return;
        };
        held.remove(&oldest);
    }
}

/// The result for a document that was posted.
enum Taken {
    /// It is new.
    New,
    /// We have it, or a newer one.
    Known,
}

/// Cuts an upload into documents.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let begins = |at: usize| {
        text.get(at..)
            .is_some_and(|rest| rest.starts_with("router ") || rest.starts_with("extra-info "))
    };
    let mut starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .filter(|at| begins(*at))
        .collect();
    starts.push(text.len());
    let pairs: Vec<(usize, usize)> = starts
        .iter()
        .copied()
        .zip(starts.iter().copied().skip(1))
        .collect();
    pairs
        .into_iter()
        .filter_map(move |(from, to)| text.get(from..to))
}

/// A reason that fits in a status line.
fn one_line(text: &str) -> String {
    let kept = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    kept.take(400).collect()
}
