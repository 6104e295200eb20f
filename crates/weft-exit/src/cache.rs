//! A cache of name servers' answers (dns.c).
//!
//! An entry holds all answers about a name, and expires with the first of them. The lifetime reveals
//! nothing of the TTL: five minutes or an hour, plus or minus up to four minutes (`clip_dns_fuzzy_ttl`), so
//! that repeated queries do not show when others asked (the "DefecTor" attack,
//! <https://nymity.ch/tor-dns/tor-dns.pdf>).

use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt as _};

use crate::query::DnsError;

/// Names in the cache, at most; beyond that, those that expire first are dropped.
pub(crate) const MAX_NAMES: usize = 1 << 15;
/// The lifetime of an answer with a smaller TTL.
const MIN_TTL: Duration = Duration::from_secs(5 * 60);
/// The lifetime of any other answer.
const MAX_TTL: Duration = Duration::from_secs(60 * 60);
/// The random change of lifetimes, at most, either way.
const FUZZ: Duration = Duration::from_secs(4 * 60);
/// The lifetime of an error that no name server answers. C tor uses [`MIN_TTL`] for this, too; but a
/// failure of a minute should not last for five.
const TROUBLE: Duration = Duration::from_secs(60);

/// The lifetime of an answer, here and at the client, given its TTL.
pub(crate) fn clip_ttl(ttl: Duration, rng: &mut impl Rng) -> Duration {
    let clipped = if ttl < MIN_TTL { MIN_TTL } else { MAX_TTL };
    let fuzz = rng.random_range(0..=2 * FUZZ.as_secs());
    clipped + Duration::from_secs(fuzz) - FUZZ
}

/// The answers about one name; `None`: no query was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its IPv4 address.
    pub(crate) v4: Option<Result<Ipv4Addr, DnsError>>,
    /// Its IPv6 address.
    pub(crate) v6: Option<Result<Ipv6Addr, DnsError>>,
    /// The name of an address.
    pub(crate) host: Option<Result<Arc<[u8]>, DnsError>>,
    /// The shortest of the clipped times that the answers may be kept, in seconds.
    pub(crate) ttl: u32,
}

impl Known {
    /// Returns true if all answers are errors that no name server sent.
    fn is_trouble(&self) -> bool {
        let bad = |error: Option<DnsError>| error.is_some_and(DnsError::is_transient);
        let v4 = self.v4.as_ref().map(|v4| bad(v4.err()));
        let v6 = self.v6.as_ref().map(|v6| bad(v6.err()));
        let host = self
            .host
            .as_ref()
            .map(|host| bad(host.as_ref().err().copied()));
        [v4, v6, host].into_iter().flatten().all(|trouble| trouble)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    names: HashMap<Arc<[u8]>, (Instant, Known)>,
    /// The names of `names`, sorted by expiry.
    ends: BTreeSet<(Instant, Arc<[u8]>)>,
}

impl Cache {
    /// The answers about a name.
    #[must_use]
    pub(crate) fn get(&self, name: &[u8], now: Instant) -> Option<&Known> {
        let (end, known) = self.names.get(name)?;
        (*end > now).then_some(known)
    }

    /// Adds the answers about a name.
    pub(crate) fn insert(&mut self, name: &Arc<[u8]>, known: Known, now: Instant) {
        let keep = if known.is_trouble() {
            TROUBLE
        } else {
            Duration::from_secs(known.ttl.into())
        };
        self.expire(now);
        self.remove(name);
        if self.names.len() >= MAX_NAMES
            && let Some((_, first)) = self.ends.pop_first()
        {
            self.names.remove(&first);
        }
        let end = now + keep;
        self.names.insert(name.clone(), (end, known));
        self.ends.insert((end, name.clone()));
    }

    pub(crate) fn clear(&mut self) {
        self.names.clear();
        self.ends.clear();
    }

    /// The number of names.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    fn remove(&mut self, name: &Arc<[u8]>) {
        if let Some((end, _)) = self.names.remove(name) {
            self.ends.remove(&(end, name.clone()));
        }
    }

    /// Drops expired names.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((end, name)) = self.ends.first()
            && *end <= now
        {
            self.names.remove(name);
            self.ends.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    const SEC: Duration = Duration::from_secs(1);

    fn name(number: usize) -> Arc<[u8]> {
        number.to_string().into_bytes().into()
    }

    fn known(ttl: u32) -> Known {
        Known {
            v4: Some(Ok(Ipv4Addr::LOCALHOST)),
            ttl,
            ..Known::default()
        }
    }

    #[test]
    fn two_times_are_distinguished_and_no_more() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut range = |ttl: u64| {
            let clipped: Vec<_> = (0..2000)
                .map(|_| clip_ttl(Duration::from_secs(ttl), &mut rng).as_secs())
                .collect();
            (
                *clipped.iter().min().unwrap(),
                *clipped.iter().max().unwrap(),
            )
        };
        assert_eq!(range(0), (60, 540));
        assert_eq!(range(299), (60, 540));
        assert_eq!(range(300), (3360, 3840));
        assert_eq!(range(1 << 31), (3360, 3840));
    }

    #[test]
    fn answers_are_kept_until_they_end() {
        let start = Instant::now();
        let mut cache = Cache::default();
        cache.insert(&name(1), known(100), start);
        cache.insert(&name(2), known(50), start);
        assert_eq!(cache.get(b"1", start + 99 * SEC), Some(&known(100)));
        assert_eq!(cache.get(b"1", start + 100 * SEC), None);
        assert_eq!(cache.get(b"3", start), None);
        cache.expire(start + 60 * SEC);
        assert_eq!((cache.len(), cache.ends.len()), (1, 1));
        // A newer answer replaces the older one.
        cache.insert(&name(1), known(500), start + 60 * SEC);
        assert_eq!((cache.len(), cache.ends.len()), (1, 1));
        assert!(cache.get(b"1", start + 200 * SEC).is_some());
        cache.clear();
        assert_eq!((cache.len(), cache.ends.len()), (0, 0));
    }

    #[test]
    fn trouble_is_kept_for_a_minute() {
        let start = Instant::now();
        let mut cache = Cache::default();
        let trouble = Known {
            v4: Some(Err(DnsError::Timeout)),
            v6: Some(Err(DnsError::ServerFailed)),
            ttl: 300,
            ..Known::default()
        };
        cache.insert(&name(1), trouble.clone(), start);
        assert!(cache.get(b"1", start + 59 * SEC).is_some());
        assert!(cache.get(b"1", start + 61 * SEC).is_none());
        let half = Known {
            v6: Some(Err(DnsError::NoData)),
            ..trouble
        };
        cache.insert(&name(1), half, start);
        assert!(cache.get(b"1", start + 61 * SEC).is_some());
    }

    #[test]
    fn a_full_cache_forgets_what_would_end_first() {
        let start = Instant::now();
        let mut cache = Cache::default();
        for number in 0..MAX_NAMES {
            let ttl = 1000 + u32::try_from(number).unwrap();
            cache.insert(&name(number), known(ttl), start);
        }
        cache.insert(&name(MAX_NAMES), known(2), start);
        assert_eq!((cache.len(), cache.ends.len()), (MAX_NAMES, MAX_NAMES));
        assert!(cache.get(b"0", start).is_none());
        assert!(cache.get(b"1", start).is_some());
        assert!(cache.get(name(MAX_NAMES).as_ref(), start).is_some());
    }
}
