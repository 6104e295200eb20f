//! What relays post: descriptors and extra-info documents (C tor process_descs.c).

use std::net::IpAddr;
use std::time::SystemTime;

use tor_llcrypto::pk::ed25519::Ed25519Identity;
use tor_llcrypto::pk::rsa::RsaIdentity;

use super::{Answer, PrivateAuthority};
use crate::room::{Placed, gives_way};
use crate::router::{self, Router};

/// The answer to a relay with one identity of its own and one of another.
const OTHER_KEYS: &str = "Looks like your keypair has changed? This authority previously recorded a different RSA identity for \
     this Ed25519 identity (or vice versa.) Did you replace or copy some of your key files, but not the others? You \
     should either restore the expected keypair, or delete your keys and restart Tor to start your relay with a new \
     identity.";

impl PrivateAuthority {
    /// Takes what a relay has posted to `/tor/`: descriptors, extra-info documents, in any order.
    /// C tor answers that a descriptor is accepted also where it could not read it; this authority
    /// answers with what is wrong.
    /// `from`: the network that sent it, which shares tests with others.
    pub fn post(&mut self, body: &[u8], from: IpAddr, now: SystemTime) -> Answer {
        let Ok(text) = std::str::from_utf8(body) else {
            return Answer::short(
                400,
                "descriptor(s) or extrainfo(s) not valid UTF-8 or had BOM.",
            );
        };
        let taken = documents(text).map(|document| match document.starts_with("router ") {
            true => self.take_router(document, from, now),
            false => self.take_extra_info(document),
        });
        match taken.max() {
            None => Answer::short(400, "No descriptors found in your POST."),
            Some(Taken::New) => Answer::short(200, "Descriptor accepted"),
            Some(Taken::Known) => Answer {
                not_new: true,
                ..Answer::short(200, "OK")
            },
            Some(Taken::BadExtraInfo(reason) | Taken::Refused(reason)) => {
                Answer::short(400, one_line(&reason))
            }
        }
    }

    fn take_router(&mut self, text: &str, from: IpAddr, now: SystemTime) -> Taken {
        if self.is_known(text) {
            return Taken::Known;
        }
        match Router::read(text, now).and_then(|router| self.add_router(router, from, now)) {
            Ok(true) => Taken::New,
            Ok(false) => Taken::Known,
            Err(reason) => Taken::Refused(reason),
        }
    }

    /// Whether this is a known relay's newest descriptor, without a look at its signatures.
    fn is_known(&self, text: &str) -> bool {
        let id = router::line(text, "fingerprint").map(|id| id.replace(' ', ""));
        let id = id.filter(|id| id.is_ascii());
        let known = id.and_then(|id| self.routers.get(&RsaIdentity::from_hex(&id)?));
        known.is_some_and(|known| &*known.text == text)
    }

    /// Whether the relay, as this descriptor has it, has something new; otherwise why it is refused.
    fn add_router(
        &mut self,
        router: Router,
        from: IpAddr,
        now: SystemTime,
    ) -> Result<bool, String> {
        router.standing(&self.config.lists)?;
        if self.config.pin_keys && self.has_other_keys(&router) {
            return Err(OTHER_KEYS.into());
        }
        let known = self.routers.get(&router.rsa);
        let is_self = router.rsa == self.config.identity;
        if known.is_some_and(|known| {
            known.published >= router.published || (known.is_cosmetic(&router) && !is_self)
        }) {
            return Ok(false);
        }
        let is_as_before = known.is_some_and(|known| {
            (known.ip, known.or_port, known.ipv6) == (router.ip, router.or_port, router.ipv6)
                && (!known.hibernating || router.hibernating)
        });
        if known.is_none() && self.routers.len() >= self.config.max_relays {
            let displaced = self.displaced_by(from);
            let displaced = displaced.ok_or("This private network is full.")?;
            self.forget(&displaced, now);
        }
        let reach = self.reach.entry(router.rsa).or_default();
        reach.set_from(from);
        if !is_as_before {
            reach.test_soon();
        }
        let ran = self
            .routers
            .get(&router.rsa)
            .map(|known| self.runs(known, now));
        self.changed |= ran == Some(true) || self.runs(&router, now);
        self.microdescs
            .add(router.microdesc_digest, &router.microdesc);
        self.descriptors.add(router.digest, &router.text);
        let (rsa, ed) = (router.rsa, router.ed);
        if let Some(old) = self.routers.insert(rsa, router) {
            self.release(&old);
        }
        if !self.config.reachability.test || is_self {
            self.pin(rsa, ed);
        }
        self.first.get_or_insert(now);
        self.has_news = true;
        Ok(true)
    }

    /// Whether a relay runs, as far as that is known.
    pub(super) fn runs(&self, router: &Router, now: SystemTime) -> bool {
        let reach = self.reach.get(&router.rsa).copied().unwrap_or_default();
        let is_self = router.rsa == self.config.identity;
        reach.is_running(&self.config.reachability, router, is_self, now)
    }

    /// Whether relays came or changed since this was asked: then [`begin_tests`](Self::begin_tests) and
    /// [`tick`](Self::tick) may have something to do.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether one of the relay's identities belongs to another: of a relay that was reached, or that is known.
    fn has_other_keys(&self, router: &Router) -> bool {
        let (rsa, ed) = (&router.rsa, &router.ed);
        self.pins.contradicts(rsa, ed)
            || (self.routers.values()).any(|known| (known.rsa == *rsa) != (known.ed == *ed))
    }

    /// Keeps together what belongs together.
    pub(super) fn pin(&mut self, rsa: RsaIdentity, ed: Ed25519Identity) {
        let routers = &self.routers;
        self.pins.add(rsa, ed, |id| routers.contains_key(id));
    }

    /// The relay that gives way to a newcomer whose descriptor came `from` this network, if any does.
    fn displaced_by(&self, from: IpAddr) -> Option<RsaIdentity> {
        let others = self.routers.values();
        let others = others.filter(|router| router.rsa != self.config.identity);
        let place = |router: &Router| {
            let reach = self.reach.get(&router.rsa).copied().unwrap_or_default();
            Placed {
                id: router.rsa,
                from: reach.from(),
                is_new: reach.is_new(),
                published: router.published,
            }
        };
        gives_way(&others.map(place).collect::<Vec<_>>(), from)
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
        let known = router.extra_info.as_ref();
        if known.is_some_and(|known| &*known.text == text) {
            return Taken::Known;
        }
        match router.named_extra_info(text) {
            // A descriptor names one.
            Ok(_) if known.is_some() => Taken::Known,
            Ok(named) => {
                self.descriptors.add(named.digest, &named.text);
                router.extra_info = Some(named);
                Taken::New
            }
            // That of a descriptor that had nothing new.
            Err(_) if router.is_older_than(text) => Taken::Known,
            Err(reason) => Taken::BadExtraInfo(reason),
        }
    }
}

/// The result for a document that was posted. Of several, the greatest is answered (C tor `was_router_added_t`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    /// It is new.
    New,
    /// An extra-info document is refused, for this reason.
    BadExtraInfo(String),
    /// We have it, or a newer one, or one that is not different.
    Known,
    /// A descriptor is refused, for this reason.
    Refused(String),
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
