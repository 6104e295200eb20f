//! The descriptors that a directory of onion services keeps.
//!
//! Input: the bound of the cache in units of 256 bytes, then operations: a byte that says which, a key, and what the
//! operation needs.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use weft_dircache::hs_dir::{Descriptor, DescriptorCache};
use weft_fuzz::Bytes;

/// Bytes of the longest descriptor here, and more than an entry takes besides its text.
const LONGEST: usize = 256 * 64;
const ENTRY: usize = 512;

/// A descriptor that was kept: its counter, when its lifetime ends, its text.
type Kept = (u64, Duration, Arc<[u8]>);

fuzz_target!(|input: &[u8]| {
    let mut bytes = Bytes::new(input);
    let limit = usize::from(bytes.byte()) * 256;
    let mut cache = DescriptorCache::default();
    // Everything that was ever kept last of its key: the cache may have less, and nothing else.
    let mut kept: BTreeMap<[u8; 32], Kept> = BTreeMap::new();
    let mut now = Duration::ZERO;
    while !bytes.is_empty() {
        let (operation, key) = (bytes.byte(), [bytes.byte() % 16; 32]);
        match operation % 8 {
            0..=3 => {
                let descriptor = Descriptor {
                    key,
                    revision: bytes.byte().into(),
                    lifetime: Duration::from_secs(60 * u64::from(bytes.byte())),
                };
                let text: Arc<[u8]> = vec![0; usize::from(bytes.byte()) * 64].into();
                let had = cache.get(&key, now).is_some();
                let storing = cache.store(&descriptor, text.clone(), limit, now);
                if storing.kept {
                    let ends = now + descriptor.lifetime;
                    kept.insert(key, (descriptor.revision, ends, text));
                } else {
                    // What it had may have been pruned only where something was.
                    let (revision, ..) = kept.get(&key).expect("something is not older");
                    assert!(had && *revision >= descriptor.revision);
                }
                assert!(cache.bytes() <= limit + LONGEST + ENTRY);
            }
            4 => cache.note_fetched(&key),
            5 => {
                now += Duration::from_secs(60 * u64::from(bytes.byte()));
                cache.clean(now);
            }
            6 => {
                let (before, wanted) = (cache.bytes(), usize::from(bytes.byte()) * 64);
                let freed = cache.prune(wanted);
                assert!(freed >= wanted.min(before));
                assert_eq!(cache.bytes(), before - freed);
            }
            _ => now += Duration::from_secs(bytes.byte().into()),
        }
        match (cache.get(&key, now), kept.get(&key)) {
            (None, _) => {}
            (Some(text), Some((_, ends, last))) => {
                assert!(now < *ends && Arc::ptr_eq(text, last));
            }
            (Some(_), None) => panic!("it was never kept"),
        }
        assert_eq!(cache.is_empty(), cache.bytes() == 0);
    }
});
