//! Microdescriptors by digest, in memory and in C tor's cache files.
//!
//! `cached-microdescs` holds all of them at some moment, `cached-microdescs.new` what came since
//! (C tor `microdesc.c`). `tor` and `weft` started in turn on one directory find each other's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{LAST_LISTED, MdDigest, format_time, split};
use crate::cache::{self, CacheError, MICRODESCS, MICRODESCS_NEW};

/// One that no consensus has listed for so long is let go (C tor `TOLERATE_MICRODESC_AGE`).
const KEEP: Duration = Duration::from_secs(7 * 86_400);
/// The journal may always grow to this, whatever the size of the other file.
const SMALL_JOURNAL: usize = 16_384;
/// Microdescriptors held; the real network has 10,000 in a week.
const MAX_HELD: usize = 100_000;

/// Memory of one besides its text: its place in the map, whose nodes are between half full and full, and the counters of
/// an `Arc`.
const ENTRY: usize = (size_of::<MdDigest>() + size_of::<Held>()) * 7 / 4 + 16;

/// A microdescriptor.
#[derive(Clone, Debug)]
struct Held {
    text: Arc<str>,
    /// When a consensus listed it last.
    last_listed: SystemTime,
}

/// Microdescriptors by digest.
#[derive(Debug, Default)]
pub struct MicrodescStore {
    /// All of them.
    held: BTreeMap<MdDigest, Held>,
    /// Bytes of their texts.
    bytes: usize,
    /// Microdescriptors that arrived since the files were written.
    unsaved: Vec<MdDigest>,
    /// Bytes in `cached-microdescs`.
    full: usize,
    /// Bytes in `cached-microdescs.new`.
    journal: usize,
    /// Bytes in either that are not needed any more.
    dropped: usize,
}

impl MicrodescStore {
    /// The text of one.
    pub fn get(&self, digest: &MdDigest) -> Option<&Arc<str>> {
        self.held.get(digest).map(|held| &held.text)
    }

    /// Number of microdescriptors.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.held.len() * ENTRY
    }

    /// True if there is no microdescriptor.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Reads both cache files.
    ///
    /// # Errors
    /// The first file that could not be read; the other has been read nevertheless.
    pub fn load(&mut self, directory: &Path, now: SystemTime) -> Result<(), CacheError> {
        let mut result = Ok(());
        for (name, journal) in [(MICRODESCS, false), (MICRODESCS_NEW, true)] {
            match cache::read(directory, name) {
                Ok(None) => {}
                Ok(Some(text)) => {
                    if journal {
                        self.journal = text.len();
                    } else {
                        self.full = text.len();
                    }
                    for piece in split(&text) {
                        // A clock that was fast must not keep anything for ever.
                        let listed = piece.last_listed.unwrap_or(now).min(now);
                        self.insert(piece.digest(), piece.text, listed);
                    }
                }
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            }
        }
        self.unsaved.clear();
        result
    }

    /// Keeps one.
    fn insert(&mut self, digest: MdDigest, text: &str, last_listed: SystemTime) -> bool {
        if let Some(held) = self.held.get_mut(&digest) {
            held.last_listed = held.last_listed.max(last_listed);
            return false;
        }
        if self.held.len() >= MAX_HELD {
            return false;
        }
        self.bytes += text.len();
        let text = Arc::from(text);
        self.held.insert(digest, Held { text, last_listed });
        self.unsaved.push(digest);
        true
    }

    /// Keeps one that a consensus lists at `now`; `digest` must be that of `text`.
    pub fn add(&mut self, digest: MdDigest, text: &str, now: SystemTime) {
        self.insert(digest, text, now);
    }

    /// A consensus that is valid after `valid_after` lists these: others grow old.
    pub fn listed<'a>(
        &mut self,
        digests: impl Iterator<Item = &'a MdDigest>,
        valid_after: SystemTime,
    ) {
        for digest in digests {
            if let Some(held) = self.held.get_mut(digest) {
                held.last_listed = held.last_listed.max(valid_after);
            }
        }
        let Some(oldest) = valid_after.checked_sub(KEEP) else {
            return;
        };
        let mut dropped = 0;
        self.held.retain(|_, held| {
            let keep = held.last_listed >= oldest;
            dropped += if keep { 0 } else { held.text.len() };
            keep
        });
        self.dropped += dropped;
        self.bytes = self.bytes.saturating_sub(dropped);
    }

    /// Writes what has come: to the end of the journal, or all anew when that has grown too long
    /// (C tor `should_rebuild_md_cache`).
    ///
    /// # Errors
    /// What could not be written; it is tried again with the next call.
    pub fn save(&mut self, directory: &Path) -> Result<(), CacheError> {
        let text: String = self
            .unsaved
            .iter()
            .filter_map(|digest| self.held.get(digest))
            .map(Held::annotated)
            .collect();
        let useless = self.journal + text.len() + self.dropped;
        if useless > SMALL_JOURNAL && useless > self.full / 2 {
            let all: String = self.held.values().map(Held::annotated).collect();
            cache::write(directory, MICRODESCS, &all)?;
            cache::write(directory, MICRODESCS_NEW, "")?;
            (self.full, self.journal, self.dropped) = (all.len(), 0, 0);
        } else if !text.is_empty() {
            cache::append(directory, MICRODESCS_NEW, &text)?;
            self.journal += text.len();
        }
        self.unsaved.clear();
        Ok(())
    }
}

impl Held {
    /// As it stands in the files.
    fn annotated(&self) -> String {
        let time = format_time(self.last_listed);
        format!("{LAST_LISTED}{time}\n{}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::now;
    use digest::Digest;

    fn text(number: usize) -> String {
        format!("onion-key\nid {number}\n")
    }

    fn digest(number: usize) -> MdDigest {
        tor_llcrypto::d::Sha256::digest(text(number)).into()
    }

    fn with(numbers: std::ops::Range<usize>) -> MicrodescStore {
        let mut store = MicrodescStore::default();
        for number in numbers {
            store.add(digest(number), &text(number), now());
        }
        store
    }

    #[test]
    fn what_is_saved_is_loaded_again_from_either_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = with(0..10);
        store.save(directory.path()).unwrap();
        assert!(!directory.path().join(MICRODESCS).exists());
        for number in 10..2000 {
            store.add(digest(number), &text(number), now());
        }
        store.save(directory.path()).unwrap();
        let journal = std::fs::read(directory.path().join(MICRODESCS_NEW)).unwrap();
        assert!(journal.is_empty(), "all has been written anew");
        store.add(digest(3000), &text(3000), now());
        store.save(directory.path()).unwrap();

        let mut again = MicrodescStore::default();
        again.load(directory.path(), now()).unwrap();
        assert_eq!(again.len(), 2001);
        assert_eq!(again.get(&digest(3000)).map(|t| &**t), Some(&*text(3000)));
        assert_eq!(again.get(&digest(5)).map(|t| &**t), Some(&*text(5)));
        // Nothing is written where nothing is new.
        again.save(directory.path()).unwrap();
        let length = |name| {
            std::fs::metadata(directory.path().join(name))
                .unwrap()
                .len()
        };
        assert!(length(MICRODESCS) > 2000 && length(MICRODESCS_NEW) < 100);
    }

    #[test]
    fn what_no_consensus_lists_for_a_week_is_let_go() {
        let mut store = with(0..2);
        let day = Duration::from_secs(86_400);
        store.listed([digest(0)].iter(), now() + 6 * day);
        assert_eq!(store.len(), 2);
        store.listed([digest(0)].iter(), now() + 8 * day);
        assert!(store.get(&digest(0)).is_some() && store.get(&digest(1)).is_none());
        assert_eq!(store.memory(), text(0).len() + ENTRY);
    }

    #[test]
    fn a_file_of_garbage_is_an_error_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(MICRODESCS), [0xff; 40]).unwrap();
        std::fs::write(directory.path().join(MICRODESCS_NEW), text(1)).unwrap();
        let mut store = MicrodescStore::default();
        assert!(store.load(directory.path(), now()).is_err());
        assert_eq!(store.len(), 1);
    }
}
