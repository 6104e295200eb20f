//! Descriptors that a directory keeps, by blinded key, in bounded memory (C tor hs_cache.c, "Directory HS cache").
//!
//! Time is monotonic: a descriptor's lifetime begins when it comes, and a clock that jumps ends none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::descriptor::{BlindedKey, Descriptor};

/// Bytes that are freed beyond the bound when it is reached, so that not every upload has to free some (C tor
/// `HSCACHE_PRUNE_SPARE_ROOM`).
const SPARE_ROOM: usize = 1000 * 50_000;
/// Memory of an entry besides its text: its place in the map, whose nodes are between half full and full, and the
/// counters of an `Arc`.
const ENTRY: usize = (size_of::<BlindedKey>() + size_of::<Entry>()) * 7 / 4 + 16;

/// A descriptor that is kept.
#[derive(Debug)]
struct Entry {
    text: Arc<[u8]>,
    revision: u64,
    /// When it came.
    stored: Duration,
    lifetime: Duration,
    /// Fetches of this descriptor and of those that it replaced.
    fetched: u64,
}

impl Entry {
    fn has_ended(&self, now: Duration) -> bool {
        now.saturating_sub(self.stored) >= self.lifetime
    }

    fn memory(&self) -> usize {
        self.text.len() + ENTRY
    }
}

/// The result of storing a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storing {
    /// It is kept. Otherwise one with the same or a higher revision counter is.
    pub kept: bool,
    /// Bytes of others that were freed because the bound was reached.
    pub pruned: usize,
}

/// The descriptors.
#[derive(Debug, Default)]
pub struct DescriptorCache {
    entries: BTreeMap<BlindedKey, Entry>,
    /// Their memory.
    bytes: usize,
}

impl DescriptorCache {
    /// Takes a descriptor, which has been checked. Where more than `limit` bytes are held, others are freed before,
    /// so that the new one is not among them: whether it is there shows nobody how full the cache is.
    pub fn store(
        &mut self,
        descriptor: &Descriptor,
        text: Arc<[u8]>,
        limit: usize,
        now: Duration,
    ) -> Storing {
        let pruned = match self.bytes > limit {
            true => {
                let keep = match limit > SPARE_ROOM {
                    true => limit - SPARE_ROOM,
                    false => (self.bytes / 2).min(limit),
                };
                self.prune(self.bytes.saturating_sub(keep))
            }
            false => 0,
        };
        let mut entry = Entry {
            text,
            revision: descriptor.revision,
            stored: now,
            lifetime: descriptor.lifetime,
            fetched: 0,
        };
        if let Some(before) = self.entries.get(&descriptor.key) {
            if !before.has_ended(now) && before.revision >= descriptor.revision {
                return Storing {
                    kept: false,
                    pruned,
                };
            }
            // A new revision inherits the fetches of the old one.
            entry.fetched = before.fetched;
        }
        self.remove(&descriptor.key);
        self.bytes += entry.memory();
        self.entries.insert(descriptor.key, entry);
        Storing { kept: true, pruned }
    }

    fn remove(&mut self, key: &BlindedKey) -> usize {
        let memory = self.entries.remove(key).map_or(0, |entry| entry.memory());
        self.bytes = self.bytes.saturating_sub(memory);
        memory
    }

    /// The descriptor of this key, unless its lifetime has ended.
    pub fn get(&self, key: &BlindedKey, now: Duration) -> Option<&Arc<[u8]>> {
        let entry = self.entries.get(key)?;
        (!entry.has_ended(now)).then_some(&entry.text)
    }

    /// The descriptor of this key was fetched once more.
    pub fn note_fetched(&mut self, key: &BlindedKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.fetched = entry.fetched.saturating_add(1);
        }
    }

    /// Drops descriptors whose lifetimes have ended.
    pub fn clean(&mut self, now: Duration) {
        let mut freed = 0;
        self.entries.retain(|_, entry| {
            let ended = entry.has_ended(now);
            if ended {
                freed += entry.memory();
            }
            !ended
        });
        self.bytes = self.bytes.saturating_sub(freed);
    }

    /// Frees at least this many bytes, or all: first what was fetched least, and of that what came first. Returns
    /// how many.
    pub fn prune(&mut self, bytes: usize) -> usize {
        let mut order: Vec<(u64, Duration, BlindedKey)> = self
            .entries
            .iter()
            .map(|(key, entry)| (entry.fetched, entry.stored, *key))
            .collect();
        order.sort_unstable();
        let mut freed = 0;
        for (_, _, key) in &order {
            if freed >= bytes {
                break;
            }
            freed += self.remove(key);
        }
        freed
    }

    /// Descriptors that are kept, those included whose lifetimes have ended since the last [`clean`](Self::clean).
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no descriptor is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::secs;

    const UNBOUNDED: usize = usize::MAX;

    fn descriptor(number: u8, revision: u64) -> Descriptor {
        Descriptor {
            key: [number; 32],
            revision,
            lifetime: secs(10_800),
        }
    }

    fn text(number: u8, length: usize) -> Arc<[u8]> {
        vec![number; length].into()
    }

    /// Stores a descriptor; returns true if it was kept.
    fn store(cache: &mut DescriptorCache, number: u8, revision: u64, now: u64) -> bool {
        let text = text(number, 1000);
        let descriptor = descriptor(number, revision);
        cache.store(&descriptor, text, UNBOUNDED, secs(now)).kept
    }

    fn has(cache: &DescriptorCache, number: u8, now: u64) -> bool {
        cache.get(&[number; 32], secs(now)).is_some()
    }

    #[test]
    fn only_a_higher_counter_replaces() {
        let mut cache = DescriptorCache::default();
        assert!(store(&mut cache, 1, 5, 0));
        let bytes = cache.bytes();
        for (revision, kept) in [(5, false), (4, false), (6, true), (5, false)] {
            assert_eq!(store(&mut cache, 1, revision, 1), kept, "{revision}");
        }
        assert_eq!((cache.len(), cache.bytes()), (1, bytes));
        assert!(store(&mut cache, 2, 1, 1), "counters are each key's own");
        assert!(!has(&cache, 3, 1));
    }

    #[test]
    fn a_lifetime_begins_when_the_descriptor_comes() {
        let mut cache = DescriptorCache::default();
        store(&mut cache, 1, 9, 100);
        store(&mut cache, 2, 1, 200);
        assert!(has(&cache, 1, 10_899) && !has(&cache, 1, 10_900));
        cache.clean(secs(10_900));
        assert_eq!(cache.len(), 1);
        // One that has ended is in nobody's way.
        assert!(store(&mut cache, 2, 1, 11_000) && has(&cache, 2, 11_000));
        cache.clean(secs(1_000_000));
        assert!(cache.is_empty());
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_is_fetched_least_is_freed_first_and_then_what_came_first() {
        let mut cache = DescriptorCache::default();
        for number in 0..4 {
            store(&mut cache, number, 1, u64::from(number));
        }
        let one = cache.bytes() / 4;
        for number in [0, 0, 1] {
            cache.note_fetched(&[number; 32]);
        }
        cache.note_fetched(&[99; 32]);
        // A new revision keeps what the old one had earned.
        store(&mut cache, 0, 2, 10);
        assert_eq!(cache.prune(one), one);
        assert!(!has(&cache, 2, 10), "never fetched, and before 3");
        assert_eq!(cache.prune(one + 1), 2 * one);
        assert!(has(&cache, 0, 10) && !has(&cache, 1, 10) && !has(&cache, 3, 10));
        assert_eq!(cache.prune(UNBOUNDED), one);
        assert_eq!((cache.bytes(), cache.prune(1)), (0, 0));
    }

    #[test]
    fn past_its_bound_the_cache_frees_half_before_it_takes_the_next() {
        let mut cache = DescriptorCache::default();
        let limit = 10 * (1000 + ENTRY);
        for number in 0..11 {
            let storing = cache.store(&descriptor(number, 1), text(number, 1000), limit, secs(0));
            assert_eq!((storing.kept, storing.pruned), (true, 0), "{number}");
        }
        assert!(cache.bytes() > limit);
        // A refused one, too, since how full the cache is must not show.
        let storing = cache.store(&descriptor(10, 1), text(10, 1000), limit, secs(1));
        assert!(!storing.kept && storing.pruned >= limit / 2, "{storing:?}");
        assert!(cache.bytes() <= limit);
    }

    #[test]
    fn a_large_cache_frees_room_for_a_thousand_descriptors() {
        let mut cache = DescriptorCache::default();
        let limit = 2 * SPARE_ROOM;
        let mut pruned = 0;
        for number in 0..=110 {
            let text = text(number, 1_000_000);
            let storing = cache.store(&descriptor(number, 1), text, limit, secs(number.into()));
            assert!(storing.kept);
            pruned += storing.pruned;
        }
        assert!(
            (SPARE_ROOM..SPARE_ROOM + 3_000_000).contains(&pruned),
            "{pruned}"
        );
        assert!(has(&cache, 110, 110) && !has(&cache, 0, 110));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn memory_is_the_sum_of_what_is_kept_and_bounded(
            operations in proptest::collection::vec((0..5_u8, 0..8_u8, 0..4_u64, 0..3000_usize), 0..200),
        ) {
            let mut cache = DescriptorCache::default();
            let limit = 9000;
            let mut now = secs(0);
            for (operation, number, revision, length) in operations {
                match operation {
                    0 | 1 => {
                        let descriptor = descriptor(number, revision);
                        cache.store(&descriptor, text(number, length), limit, now);
                        prop_assert!(cache.bytes() <= limit + 3000 + ENTRY);
                    }
                    2 => cache.note_fetched(&[number; 32]),
                    3 => {
                        now += secs(revision * 3600);
                        cache.clean(now);
                    }
                    _ => {
                        let before = cache.bytes();
                        let freed = cache.prune(length);
                        prop_assert!(freed >= length.min(before));
                        prop_assert_eq!(cache.bytes(), before - freed);
                    }
                }
                let sum: usize = cache.entries.values().map(Entry::memory).sum();
                prop_assert_eq!(sum, cache.bytes());
            }
        }
    }
}
