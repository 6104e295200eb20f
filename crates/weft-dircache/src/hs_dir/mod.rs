//! The directory of onion services that a relay is (HSDir=2; rend-spec UPLOAD-DESC, FETCH-DESC; C tor hs_cache.c).
//!
//! Services publish descriptors, clients fetch them by blinded key. A directory cannot read their
//! contents; it checks who signed them ([`read`]), keeps the newest of each key
//! ([`DescriptorCache`]), and counts. [`HsDir`] is shared by the streams that bring descriptors and
//! ask for them, and by the node, which sets the bounds, counts the memory with its own, and has it
//! freed when memory is short.

mod cache;
mod descriptor;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use base64ct::{Base64Unpadded, Encoding as _};

pub use cache::{DescriptorCache, Storing};
pub use descriptor::{BlindedKey, Descriptor, Refused, read};

/// Blinded keys that are counted at most; every onion service there is would fit.
const MAX_COUNTED: usize = 1 << 20;
/// Memory of one of them.
const COUNTED: usize = size_of::<BlindedKey>() * 7 / 4;

/// The bounds of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that descriptors may take.
    pub memory: usize,
    /// `HSV3MaxDescriptorSize`: a descriptor has fewer bytes.
    pub descriptor: usize,
}

impl Default for Limits {
    /// Initial limits, which a node replaces before it listens.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            descriptor: 50_000,
        }
    }
}

/// Counters since the start, and what is kept now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HsDirCounts {
    /// Descriptors that are kept.
    pub descriptors: usize,
    /// Bytes that they take.
    pub bytes: usize,
    /// Descriptors that were published and taken.
    pub stored: u64,
    /// Descriptors refused for their length.
    pub too_long: u64,
    /// Uploads that are no valid descriptor.
    pub malformed: u64,
    /// Descriptors not signed by the key that they name, or signed by an expired certificate.
    pub unsigned: u64,
    /// Descriptors no newer than the one that is kept.
    pub not_newer: u64,
    /// Requests that were answered with a descriptor.
    pub found: u64,
    /// Requests for what is not kept.
    pub not_found: u64,
    /// Requests of either kind that did not come by another relay.
    pub single_hop: u64,
    /// Bytes that were freed because the bound of the cache or of the whole node was reached.
    pub pruned: u64,
}

/// Memory of a directory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HsDirMemory {
    /// Bytes that [`HsDir::relieve`] would free.
    pub spare: usize,
    /// All else.
    pub fixed: usize,
}

#[derive(Debug, Default)]
struct Inner {
    cache: DescriptorCache,
    limits: Limits,
    counts: HsDirCounts,
    /// From when on keys are counted, if they are.
    counting_from: Option<SystemTime>,
    counted: BTreeSet<BlindedKey>,
}

/// A relay's directory of onion services.
#[derive(Debug, Default)]
pub struct HsDir {
    /// Held for moments only.
    inner: Mutex<Inner>,
}

/// A descriptor that is being fetched. Its fetch counts when the stream ends, as in C tor: who would have a
/// descriptor stay pays for whole streams.
#[derive(Debug)]
pub struct Fetch<'a> {
    directory: &'a HsDir,
    key: BlindedKey,
    /// The descriptor.
    pub text: Arc<[u8]>,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        self.directory.inner().cache.note_fetched(&self.key);
    }
}

impl HsDir {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in it can be half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows these bounds from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.inner().limits = limits;
    }

    /// True if a descriptor of `length` bytes is too long. It is then counted as refused.
    pub fn refuses_length(&self, length: usize) -> bool {
        let mut inner = self.inner();
        let too_long = length >= inner.limits.descriptor;
        if too_long {
            inner.counts.too_long += 1;
        }
        too_long
    }

    /// Takes a descriptor that was published, at `now` by the wall clock and by the monotonic one.
    pub fn publish(&self, body: &[u8], now: (SystemTime, Duration)) -> Result<(), Refused> {
        let limit = self.inner().limits.descriptor;
        // Signatures are checked while others go on.
        let read = read(body, limit, now.0);
        let mut inner = self.inner();
        let inner = &mut *inner;
        let result = read.and_then(|descriptor| {
            let storing = inner
                .cache
                .store(&descriptor, body.into(), inner.limits.memory, now.1);
            inner.counts.pruned += storing.pruned as u64;
            if !storing.kept {
                return Err(Refused::NotNewer);
            }
            let counting = inner.counting_from.is_some_and(|start| start <= now.0);
            if counting && inner.counted.len() < MAX_COUNTED {
                inner.counted.insert(descriptor.key);
            }
            Ok(())
        });
        let counts = &mut inner.counts;
        match result {
            Ok(()) => counts.stored += 1,
            Err(Refused::TooLong) => counts.too_long += 1,
            Err(Refused::Malformed) => counts.malformed += 1,
            Err(Refused::Signature | Refused::Expired) => counts.unsigned += 1,
            Err(Refused::NotNewer) => counts.not_newer += 1,
        }
        result
    }

    /// The descriptor of the blinded key that has this base64 form.
    pub fn fetch(&self, base64: &str, now: Duration) -> Option<Fetch<'_>> {
        let mut inner = self.inner();
        let found =
            blinded_key(base64).and_then(|key| Some((key, inner.cache.get(&key, now)?.clone())));
        match &found {
            Some(_) => inner.counts.found += 1,
            None => inner.counts.not_found += 1,
        }
        let (key, text) = found?;
        Some(Fetch {
            directory: self,
            key,
            text,
        })
    }

    /// A request came by no other relay and was refused.
    pub fn note_single_hop(&self) {
        self.inner().counts.single_hop += 1;
    }

    /// Drops descriptors whose lifetimes have ended.
    pub fn clean(&self, now: Duration) {
        self.inner().cache.clean(now);
    }

    /// Frees descriptors, those fetched least first, until they take half of their bound, as C tor does when memory
    /// is short. Returns the bytes freed.
    pub fn relieve(&self) -> usize {
        let mut inner = self.inner();
        let spare = inner.spare();
        let freed = inner.cache.prune(spare);
        inner.counts.pruned += freed as u64;
        freed
    }

    /// Memory held now.
    pub fn memory(&self) -> HsDirMemory {
        let inner = self.inner();
        let spare = inner.spare();
        let all = inner.cache.bytes() + inner.counted.len() * COUNTED;
        HsDirMemory {
            spare,
            fixed: all - spare,
        }
    }

    /// Counters.
    pub fn counts(&self) -> HsDirCounts {
        let inner = self.inner();
        HsDirCounts {
            descriptors: inner.cache.len(),
            bytes: inner.cache.bytes(),
            ..inner.counts
        }
    }

    /// Begins to count the different blinded keys whose descriptors are kept, from `start` on; what was counted before
    /// is forgotten. `None`: none are counted (`HiddenServiceStatistics 0`). C tor counts from noon to noon (UTC), since
    /// services change their blinded keys at midnight or some hours later
    /// (`rep_hist_hsdir_stored_maybe_new_v3_onion`).
    pub fn count_onions_from(&self, start: Option<SystemTime>) {
        let mut inner = self.inner();
        inner.counting_from = start;
        inner.counted.clear();
    }

    /// Number of onion services counted (`hidserv-dir-v3-onions-seen`, before rounding and noise).
    pub fn onions_seen(&self) -> usize {
        self.inner().counted.len()
    }
}

impl Inner {
    /// Bytes of descriptors above half of their bound.
    fn spare(&self) -> usize {
        self.cache.bytes().saturating_sub(self.limits.memory / 2)
    }
}

/// A key from its base64 form, padded or not.
fn blinded_key(base64: &str) -> Option<BlindedKey> {
    let mut key = [0; 32];
    let unpadded = base64.strip_suffix('=').unwrap_or(base64);
    let decoded = Base64Unpadded::decode(unpadded, &mut key).ok()?;
    (decoded.len() == 32).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::testing::{LIMIT, Service};
    use super::*;
    use crate::testing::{now, secs};

    const NOW: Duration = Duration::from_secs(5);

    fn publish(directory: &HsDir, text: &str) -> Result<(), Refused> {
        directory.publish(text.as_bytes(), (now(), NOW))
    }

    fn name(service: &Service) -> String {
        Base64Unpadded::encode_string(&service.key())
    }

    #[test]
    fn what_is_published_is_fetched_by_its_blinded_key() {
        let (directory, service) = (HsDir::default(), Service::new(1));
        let text = service.descriptor(1);
        assert_eq!(publish(&directory, &text), Ok(()));
        let name = name(&service);
        for name in [name.clone(), format!("{name}=")] {
            let fetch = directory.fetch(&name, NOW).unwrap();
            assert_eq!(&*fetch.text, text.as_bytes());
        }
        for other in [
            "",
            "=",
            "AAAA",
            "!",
            &name[1..],
            &format!("{name}A"),
            &format!("{name}=="),
        ] {
            assert!(directory.fetch(other, NOW).is_none(), "{other}");
        }
        let counts = directory.counts();
        assert_eq!((counts.stored, counts.found, counts.not_found), (1, 2, 7));
        assert_eq!(counts.descriptors, 1);
        directory.clean(NOW + secs(3 * 3600));
        assert_eq!(directory.counts().descriptors, 0);
        assert_eq!(directory.memory(), HsDirMemory::default());
    }

    #[test]
    fn refusals_are_counted_by_reason() {
        let (directory, service) = (HsDir::default(), Service::new(1));
        let text = service.descriptor(2);
        publish(&directory, &text).unwrap();
        assert_eq!(publish(&directory, &text), Err(Refused::NotNewer));
        let forged = text.replace("revision-counter 2", "revision-counter 3");
        assert_eq!(publish(&directory, &forged), Err(Refused::Signature));
        assert_eq!(publish(&directory, "hello"), Err(Refused::Malformed));
        assert_eq!(
            publish(&directory, &"x".repeat(LIMIT)),
            Err(Refused::TooLong)
        );
        let late = directory.publish(
            service.descriptor(9).as_bytes(),
            (now() + secs(99 * 3600), NOW),
        );
        assert_eq!(late, Err(Refused::Expired));
        let counts = directory.counts();
        assert_eq!(
            (counts.stored, counts.not_newer, counts.unsigned),
            (1, 1, 2)
        );
        assert_eq!((counts.malformed, counts.too_long), (1, 1));
        assert_eq!(
            &*directory.fetch(&name(&service), NOW).unwrap().text,
            text.as_bytes()
        );
    }

    #[test]
    fn a_fetch_counts_when_it_ends() {
        let directory = HsDir::default();
        let (one, other) = (Service::new(1), Service::new(2));
        for service in [&one, &other] {
            publish(&directory, &service.descriptor(1)).unwrap();
        }
        let half = Limits {
            memory: directory.counts().bytes,
            ..Limits::default()
        };
        directory.set_limits(half);
        let fetch = directory.fetch(&name(&one), NOW).unwrap();
        drop(fetch);
        let freed = directory.relieve();
        assert_eq!(freed, half.memory / 2);
        assert!(directory.fetch(&name(&one), NOW).is_some());
        assert!(
            directory.fetch(&name(&other), NOW).is_none(),
            "fetched least"
        );
        assert_eq!(directory.counts().pruned, freed as u64);
        assert_eq!(directory.relieve(), 0, "half of the bound stays");
    }

    #[test]
    fn different_keys_are_counted_from_the_start_of_the_period() {
        let directory = HsDir::default();
        let publish_at = |seed, revision, when| {
            let text = Service::new(seed).descriptor(revision);
            directory.publish(text.as_bytes(), (when, NOW)).unwrap();
        };
        publish_at(1, 1, now());
        assert_eq!(directory.onions_seen(), 0, "not asked for");
        directory.count_onions_from(Some(now() + secs(10)));
        publish_at(1, 2, now() + secs(9));
        assert_eq!(directory.onions_seen(), 0, "too early");
        let before = directory.memory().fixed;
        for (seed, revision) in [(1, 3), (2, 1), (1, 4)] {
            publish_at(seed, revision, now() + secs(10));
        }
        assert_eq!(directory.onions_seen(), 2);
        assert!(directory.memory().fixed > before);
        directory.count_onions_from(None);
        publish_at(3, 1, now() + secs(20));
        assert_eq!(directory.onions_seen(), 0);
    }
}
