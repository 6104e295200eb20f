//! Detects name servers that lie: ServerDNSDetectHijacking (dns.c, `dns_launch_correctness_checks`).
//!
//! Some name servers answer queries for names that do not exist with the address of a page of their
//! owner's. Random names are looked up now and then; an address that many of them have is treated as "not
//! found". Half a minute later well-known names are looked up (ServerDNSTestAddresses): if most of them
//! have such an address, the relay stops being an exit.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt as _};

use weft_log::Line;

use crate::query::{Query, QueryKind, QueryPurpose};

/// Random names of each kind and family in one check.
const EACH: usize = 2;
/// The time from the random names to the well-known ones.
const PAUSE: Duration = Duration::from_secs(30);
/// The number of random names with one address above which the address counts as a lie.
const ENOUGH: u32 = 5;
/// The number of results of random names before an address can count as a lie.
const ENOUGH_NAMES: u32 = 10;
/// Addresses that are counted, at most: a name server that invents a new one each time cannot be detected
/// by counting.
const MAX_ADDRESSES: usize = 1000;

/// The state of the checks.
#[derive(Debug, Default)]
pub(crate) struct Hijack {
    /// The time of the next random names; `None`: not planned yet.
    next: Option<Instant>,
    /// The time of the next well-known names.
    tests_at: Option<Instant>,
    /// The number of results of random names.
    bogus_names: u32,
    /// The number of random names that had each address.
    answers: BTreeMap<IpAddr, u32>,
    lies: BTreeSet<IpAddr>,
    /// Well-known names whose address is a lie.
    redirected: BTreeSet<Arc<[u8]>>,
    noted_one: bool,
    useless: bool,
    /// Log lines for the caller.
    lines: Vec<Line>,
}

impl Hijack {
    /// The log lines since the last call.
    pub(crate) fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// The queries that are due. The first are due one to three minutes after the start, the next half a
    /// day to a day later (`check_dns_honesty_callback`).
    pub(crate) fn due(
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
                // Hickory answers `.invalid` itself (RFC 6761 6.4), unlike C tor's resolver.
                let kinds = [
                    (2, ".example"),
                    (2, ".test"),
                    (8, ""),
                    (8, ".com"),
                    (8, ".org"),
                    (8, ".net"),
                ];
                for kind in [QueryKind::V4, QueryKind::V6] {
                    for (least, suffix) in kinds {
                        for _ in 0..EACH {
                            let name = format!("{}{suffix}", random_label(least, rng));
                            queries.push(Query {
                                name: name.into_bytes().into(),
                                kind,
                                purpose: QueryPurpose::Bogus,
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
                queries.extend([QueryKind::V4, QueryKind::V6].map(|kind| Query {
                    name: name.clone(),
                    kind,
                    purpose: QueryPurpose::Test,
                }));
            }
        }
        queries
    }

    /// Handles the result of a random name: its addresses, or none if it was not found, as it should be.
    pub(crate) fn bogus_answered(&mut self, name: &[u8], addrs: &[IpAddr]) {
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
                    self.lines.push(Line::notice(format!(
                        "Your DNS provider has given \"{addr}\" as an answer for {times} different \
                         invalid addresses. Apparently they are hijacking DNS failures. I'll try \
                         to correct for this by treating future occurrences of \"{addr}\" as 'not \
                         found'."
                    )));
                }
            }
        }
        if !addrs.is_empty() && !std::mem::replace(&mut self.noted_one, true) {
            self.lines.push(Line::notice(format!(
                "Your DNS provider gave an answer for \"{}\", which is not supposed to exist. \
                 Apparently they are hijacking DNS failures. Trying to correct for this.",
                String::from_utf8_lossy(name)
            )));
        }
    }

    /// Returns true if an address means "not found".
    pub(crate) fn is_lie(&self, addr: IpAddr) -> bool {
        self.lies.contains(&addr)
    }

    /// Handles a well-known name whose address is a lie. Returns whether the name servers have just become
    /// useless.
    pub(crate) fn test_redirected(&mut self, name: &Arc<[u8]>, tests: usize) -> bool {
        self.redirected.insert(name.clone());
        let found = self.redirected.len();
        if found <= tests / 2 || self.useless {
            return false;
        }
        self.useless = true;
        self.lines.push(Line::notice(format!(
            "Your DNS provider tried to redirect \"{}\" to a junk address.  It has done this with \
             {found} test addresses so far.  I'm going to stop being an exit node for now, since \
             our DNS seems so broken.",
            String::from_utf8_lossy(name)
        )));
        true
    }

    /// Returns true if the name servers lie too often to be useful.
    pub(crate) fn is_useless(&self) -> bool {
        self.useless
    }

    /// Forgets all results: the name servers have changed.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn seconds(range: std::ops::Range<u64>, rng: &mut impl Rng) -> Duration {
    Duration::from_secs(rng.random_range(range))
}

/// A random label of `least` to 16 of the characters that C tor uses.
fn random_label(least: usize, rng: &mut impl Rng) -> String {
    const CHARS: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
    let length = rng.random_range(least..=16);
    (0..length)
        .filter_map(|_| CHARS.get(rng.random_range(0..CHARS.len())))
        .map(|byte| char::from(*byte))
        .collect()
}

#[cfg(test)]
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
        assert!(
            bogus
                .iter()
                .all(|query| query.purpose == QueryPurpose::Bogus)
        );
        assert_eq!(hijack.due(&tests(), at(209), &mut rng).len(), 0);
        let known = hijack.due(&tests(), at(210), &mut rng);
        assert_eq!(known.len(), 6);
        assert!(
            known
                .iter()
                .all(|query| query.purpose == QueryPurpose::Test)
        );
        assert_eq!(hijack.due(&tests(), at(12 * 3600), &mut rng).len(), 0);
        assert_eq!(hijack.due(&tests(), at(25 * 3600), &mut rng).len(), 24);
    }

    #[test]
    fn random_names_are_asked_for_half_a_day_to_a_day_later() {
        for seed in 0..50 {
            let mut rng = StdRng::seed_from_u64(seed);
            let start = Instant::now();
            let at = |secs: u64| start + Duration::from_secs(secs);
            let mut hijack = Hijack::default();
            assert!(hijack.due(&[], at(0), &mut rng).is_empty());
            assert_eq!(hijack.due(&[], at(180), &mut rng).len(), 24);
            let half = 180 + 12 * 3600;
            assert!(hijack.due(&[], at(half - 1), &mut rng).is_empty());
            assert_eq!(hijack.due(&[], at(half + 12 * 3600), &mut rng).len(), 24);
        }
    }

    #[test]
    fn no_random_name_is_asked_for_twice() {
        let mut rng = StdRng::seed_from_u64(2);
        let names: BTreeSet<String> = (0..100).map(|_| random_label(8, &mut rng)).collect();
        assert_eq!(names.len(), 100);
        for name in names {
            assert!((8..=16).contains(&name.len()) && name.is_ascii(), "{name}");
        }
    }

    #[test]
    fn an_operator_reads_of_the_first_lie_and_of_the_first_address_only() {
        let mut hijack = Hijack::default();
        let [one, other]: [IpAddr; 2] = ["192.0.2.80", "192.0.2.81"].map(|a| a.parse().unwrap());
        hijack.bogus_answered(b"x", &[]);
        assert!(hijack.take_lines().is_empty());
        // The first answer; then the address counts as a lie, as one of more than ten names.
        let mut logged = Vec::new();
        for _ in 0..12 {
            hijack.bogus_answered(b"x", &[one, other]);
            logged.push(hijack.take_lines().len());
        }
        assert_eq!(logged, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert!(hijack.is_lie(one) && hijack.is_lie(other));
    }

    #[test]
    fn an_address_of_five_names_is_no_lie_and_of_six_is_one() {
        let mut hijack = Hijack::default();
        let junk: IpAddr = "192.0.2.80".parse().unwrap();
        for _ in 0..20 {
            hijack.bogus_answered(b"x", &[]);
        }
        let lies: Vec<bool> = (0..7)
            .map(|_| {
                hijack.bogus_answered(b"x", &[junk]);
                hijack.is_lie(junk)
            })
            .collect();
        assert_eq!(lies, [false, false, false, false, false, true, true]);
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
            "reported once"
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
