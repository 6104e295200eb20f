//! Whether the name servers lie: ServerDNSDetectHijacking (dns.c, `dns_launch_correctness_checks`).
//!
//! Some name servers answer for names that do not exist with the address of a page of their
//! owner's. Random names are asked for now and then; an address that is given for many of them is
//! then as good as "not found". Half a minute later well-known names are asked for
//! (ServerDNSTestAddresses): where most of them lead to such an address, the relay stops being an
//! exit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt as _};

use super::{Asked, Kind, Query};
use crate::notice;

/// Random names of each kind and family in one check.
const EACH: usize = 2;
/// From the random names to the well-known ones.
const PAUSE: Duration = Duration::from_secs(30);
/// Answers to random names that one address may be before it is taken for a lie.
const ENOUGH: u32 = 5;
/// Random names that must have been answered, or not, before anything is taken for a lie.
const ENOUGH_NAMES: u32 = 10;
/// Addresses that are counted at most: a name server that invents another one each time cannot be
/// found out by counting.
const MAX_ADDRESSES: usize = 1000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hijack {
    /// When random names are asked for next; `None`: not yet planned.
    next: Option<Instant>,
    /// When the well-known names are.
    tests_at: Option<Instant>,
    /// Random names that were answered, or not.
    bogus_names: u32,
    /// How often each address was the answer to one.
    answers: BTreeMap<IpAddr, u32>,
    lies: BTreeSet<IpAddr>,
    /// Well-known names that lead to a lie.
    redirected: BTreeSet<Arc<[u8]>>,
    noted_one: bool,
    useless: bool,
}

impl Hijack {
    /// The queries that are due. The first come one to three minutes after the start, the next
    /// half a day to a day later (`check_dns_honesty_callback`).
    pub(super) fn due(
        &mut self,
        tests: &[Arc<[u8]>],
        now: Instant,
        rng: &mut impl Rng,
    ) -> Vec<Query> {
        let mut queries = Vec::new();
        match self.next {
            None => self.next = Some(now + seconds(60..180, rng)),
            Some(next) if now >= next => {
                self.next = Some(now + seconds(12 * 3600..24 * 3600, rng));
                self.tests_at = Some(now + PAUSE);
                // Hickory knows `.invalid` without asking (RFC 6761 6.4), unlike C tor's resolver.
                let kinds = [
                    (2, ".example"),
                    (2, ".test"),
                    (8, ""),
                    (8, ".com"),
                    (8, ".org"),
                    (8, ".net"),
                ];
                for kind in [Kind::V4, Kind::V6] {
                    for (least, suffix) in kinds {
                        for _ in 0..EACH {
                            let name = format!("{}{suffix}", random_label(least, rng));
                            queries.push(Query {
                                name: name.into_bytes().into(),
                                kind,
                                asked: Asked::Bogus,
                            });
                        }
                    }
                }
            }
            Some(_) => {}
        }
        if self.tests_at.is_some_and(|at| now >= at) {
            self.tests_at = None;
            for name in tests {
                queries.extend([Kind::V4, Kind::V6].map(|kind| Query {
                    name: name.clone(),
                    kind,
                    asked: Asked::Test,
                }));
            }
        }
        queries
    }

    /// A random name was answered with these addresses; none, where it was not found, as it
    /// should be.
    pub(super) fn bogus_answered(&mut self, name: &[u8], addrs: &[IpAddr]) {
        self.bogus_names = self.bogus_names.saturating_add(1);
        for addr in addrs {
            if self.answers.len() >= MAX_ADDRESSES && !self.answers.contains_key(addr) {
                continue;
            }
            let times = self.answers.entry(*addr).or_default();
            *times = times.saturating_add(1);
            if *times > ENOUGH && self.bogus_names > ENOUGH_NAMES {
                let first = self.lies.is_empty();
                if self.lies.insert(*addr) && first {
                    notice!(
                        "Your DNS provider has given \"{addr}\" as an answer for {times} different \
                         invalid addresses. Apparently they are hijacking DNS failures. I'll try \
                         to correct for this by treating future occurrences of \"{addr}\" as 'not \
                         found'."
                    );
                }
            }
        }
        if !addrs.is_empty() && !std::mem::replace(&mut self.noted_one, true) {
            notice!(
                "Your DNS provider gave an answer for \"{}\", which is not supposed to exist. \
                 Apparently they are hijacking DNS failures. Trying to correct for this.",
                String::from_utf8_lossy(name)
            );
        }
    }

    /// Whether an address means "not found".
    pub(super) fn is_lie(&self, addr: IpAddr) -> bool {
        self.lies.contains(&addr)
    }

    /// A well-known name was answered with a lie. Returns whether the name servers have just been
    /// found to be useless.
    pub(super) fn test_redirected(&mut self, name: &Arc<[u8]>, tests: usize) -> bool {
        self.redirected.insert(name.clone());
        let found = self.redirected.len();
        if found <= tests / 2 || self.useless {
            return false;
        }
        self.useless = true;
        notice!(
            "Your DNS provider tried to redirect \"{}\" to a junk address.  It has done this with \
             {found} test addresses so far.  I'm going to stop being an exit node for now, since \
             our DNS seems so broken.",
            String::from_utf8_lossy(name)
        );
        true
    }

    /// Whether the name servers lie too much to be of use.
    pub(super) fn is_useless(&self) -> bool {
        self.useless
    }

    /// Other name servers: nothing is known of them.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn seconds(range: std::ops::Range<u64>, rng: &mut impl Rng) -> Duration {
    Duration::from_secs(rng.random_range(range))
}

/// From `least` to 16 of the characters that C tor's random names have.
fn random_label(least: usize, rng: &mut impl Rng) -> String {
    const CHARS: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
    let length = rng.random_range(least..=16);
    (0..length)
        .filter_map(|_| CHARS.get(rng.random_range(0..CHARS.len())))
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    fn tests() -> Vec<Arc<[u8]>> {
        ["a.example", "b.example", "c.example"]
            .map(|name| name.as_bytes().into())
            .to_vec()
    }

    #[test]
    fn random_names_are_asked_for_and_well_known_ones_after_them() {
        let mut rng = StdRng::seed_from_u64(1);
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut hijack = Hijack::default();
        assert!(hijack.due(&tests(), at(0), &mut rng).is_empty());
        assert!(hijack.due(&tests(), at(59), &mut rng).is_empty());
        let bogus = hijack.due(&tests(), at(180), &mut rng);
        assert_eq!(bogus.len(), 24);
        assert!(bogus.iter().all(|query| query.asked == Asked::Bogus));
        assert_eq!(hijack.due(&tests(), at(209), &mut rng).len(), 0);
        let known = hijack.due(&tests(), at(210), &mut rng);
        assert_eq!(known.len(), 6);
        assert!(known.iter().all(|query| query.asked == Asked::Test));
        assert_eq!(hijack.due(&tests(), at(12 * 3600), &mut rng).len(), 0);
        assert_eq!(hijack.due(&tests(), at(25 * 3600), &mut rng).len(), 24);
    }

    #[test]
    fn an_address_that_stands_for_everything_is_a_lie() {
        let mut hijack = Hijack::default();
        let junk: IpAddr = "192.0.2.80".parse().unwrap();
        for _ in 0..10 {
            hijack.bogus_answered(b"x", &[junk]);
            assert!(!hijack.is_lie(junk));
        }
        hijack.bogus_answered(b"x", &[junk]);
        assert!(hijack.is_lie(junk));
        let tests = tests();
        assert!(!hijack.test_redirected(tests.first().unwrap(), 3));
        assert!(!hijack.test_redirected(tests.first().unwrap(), 3));
        assert!(!hijack.is_useless());
        assert!(hijack.test_redirected(tests.get(1).unwrap(), 3));
        assert!(hijack.is_useless());
        assert!(
            !hijack.test_redirected(tests.get(2).unwrap(), 3),
            "told once"
        );
        hijack.forget();
        assert!(!hijack.is_useless() && !hijack.is_lie(junk));
    }

    #[test]
    fn honest_name_servers_are_believed() {
        let mut hijack = Hijack::default();
        for number in 0..3000_u32 {
            hijack.bogus_answered(b"x", &[]);
            hijack.bogus_answered(b"x", &[IpAddr::V4(number.into())]);
        }
        assert!(hijack.lies.is_empty());
        assert_eq!(hijack.answers.len(), MAX_ADDRESSES);
    }
}
