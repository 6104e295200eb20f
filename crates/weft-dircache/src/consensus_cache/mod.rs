//! Consensuses as a cache serves them: the newest in all compressions, and the diffs that lead to it from older ones
//! (C tor consdiffmgr.c).
//!
//! All of it takes seconds of processor time, once for each consensus, and reads and writes files: it runs as a
//! blocking task beside the directory's thread, one at a time, and ends early where it is asked to.
//!
//! Older consensuses, compressed with zlib, and diffs are files in CacheDirectory's `diff-cache`, so that a restart
//! has them. Their number, age and bytes are bounded; the newest of the older ones stay.

mod labels;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tor_netdoc::doc::netstatus::ConsensusFlavor;
use weft_dir::cache::{self, CacheError};
use weft_dir::command::Severity;
use weft_dir::consdiff::{ConsensusDigest, full_digest};
use weft_dir::diff_maker::{DiffMaker, Messages};
use weft_dir::documents::{Body, CachedDocuments, Forms, NewConsensus, Status};
use weft_dir::http::{Compression, best_effort_memory, compress, decode};

use crate::consdiff;
use labels::{Kind, Labels};

/// Older consensuses of each flavour: a day of them. (C tor's 256 files are enough for 25.)
const MAX_OLDER: usize = 24;
/// Bytes of all files. A day of both flavours of the real network takes about 120 MB.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes of a consensus once decompressed.
const MAX_CONSENSUS: usize = 32 << 20;
/// Compressions of the newest consensus (C tor `compress_consensus_with`), and none, so that nothing is decompressed
/// for a request.
const OF_CONSENSUS: [Compression; 4] = [
    Compression::Identity,
    KEPT,
    Compression::Zstd,
    Compression::Lzma,
];
/// Compressions of a diff (`compress_diffs_with`).
const OF_DIFF: [Compression; 4] = [
    Compression::Identity,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Lzma,
];
/// Memory that making a diff takes, in lengths of a consensus: the older one, packed and not; the lines of both, by place
/// and by number; the diff, and what it makes of the older one.
const DIFF_MEMORY: usize = 7;
/// That of older consensuses (`RETAIN_CONSENSUS_COMPRESSED_WITH_METHOD`).
const KEPT: Compression = Compression::Deflate;
/// The first number that a file has for its name (C tor `FNAME_MIN_NUM`).
const FIRST_FILE: u32 = 1000;

/// A file.
#[derive(Debug)]
struct Entry {
    number: u32,
    labels: Labels,
    /// Where the document begins, and its bytes.
    offset: usize,
    length: usize,
}

impl Entry {
    /// True if it is a consensus of this flavour, or a diff that leads to one.
    fn is_of(&self, flavour: ConsensusFlavor) -> bool {
        self.labels.status.flavour == flavour
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.offset + self.length).unwrap_or(u64::MAX)
    }

    /// When the consensus that it is or begins at became valid: the order in which files go.
    fn age(&self) -> SystemTime {
        match &self.labels.kind {
            Kind::Consensus(_) => self.labels.status.valid_after,
            Kind::Diff {
                from_valid_after, ..
            } => *from_valid_after,
        }
    }
}

/// The files of a cache's consensuses and diffs.
#[derive(Debug)]
pub(crate) struct ConsensusCache {
    directory: PathBuf,
    /// The files that are kept; `None` until the folder has been read.
    entries: Option<Vec<Entry>>,
}

impl ConsensusCache {
    /// The one in CacheDirectory, which has not been read yet.
    pub(crate) fn new(cache_directory: &Path) -> Self {
        Self {
            directory: cache_directory.join(cache::DIFFS),
            entries: None,
        }
    }

    /// The older consensuses that diffs begin at, newest first.
    fn older(&self, newest: &Status) -> Vec<Base> {
        let mut bases: Vec<Base> = self
            .entries()
            .filter_map(|entry| {
                let Kind::Consensus(digest) = entry.labels.kind else {
                    return None;
                };
                let is_base = entry.is_of(newest.flavour)
                    && entry.labels.compression == KEPT
                    && entry.labels.status.valid_after < newest.valid_after;
                is_base.then_some(Base {
                    number: entry.number,
                    digest,
                    valid_after: entry.labels.status.valid_after,
                })
            })
            .collect();
        bases.sort_by_key(|base| std::cmp::Reverse(base.valid_after));
        bases
    }

    /// The diff from `base` to `new`, from files or made now.
    fn diff(
        &mut self,
        base: &Base,
        new: &NewConsensus,
        full: &str,
        documents: &CachedDocuments,
    ) -> Result<Forms, DiffError> {
        let kind = Kind::Diff {
            from: base.digest,
            from_valid_after: base.valid_after,
            target: full.to_string(),
        };
        let is_it = |entry: &&Entry| entry.is_of(new.status.flavour) && entry.labels.kind == kind;
        let mut forms: Forms = (self.entries().filter(is_it))
            .map(|entry| (entry.labels.compression, self.body(entry)))
            .collect();
        // C tor may have been built without one of them.
        if !forms.is_empty() {
            return Ok(forms);
        }
        let work = documents.begin_work(DIFF_MEMORY * new.text.len());
        let text = self.text(base.number).ok_or(DiffError::Base)?;
        if ConsensusDigest::of(&text) != base.digest {
            return Err(DiffError::Base);
        }
        let diff = consdiff::make(&text, &new.text).map_err(DiffError::Make)?;
        drop((text, work));
        for compression in OF_DIFF {
            let _work = documents.begin_work(best_effort_memory(diff.len(), compression));
            let labels = Labels {
                kind: kind.clone(),
                status: new.status.clone(),
                compression,
                uncompressed: full_digest(diff.as_bytes()),
            };
            match self.find_or_store(labels, diff.as_bytes()) {
                None => {}
                Some(Ok(body)) => {
                    forms.insert(compression, body);
                }
                Some(Err((error, _))) => return Err(DiffError::Store(error)),
            }
        }
        Ok(forms)
    }

    /// The text of an older consensus.
    fn text(&self, number: u32) -> Option<String> {
        let entry = self.entries().find(|entry| entry.number == number)?;
        let packed = self.body(entry).read().ok()?;
        let text = decode(packed, KEPT, MAX_CONSENSUS).ok()?;
        String::from_utf8(text).ok()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten()
    }

    fn body(&self, entry: &Entry) -> Body {
        let path = self.directory.join(entry.number.to_string());
        let offset = u64::try_from(entry.offset).unwrap_or(u64::MAX);
        Body::in_file(path, offset, entry.length)
    }

    /// Reads the folder, unless it has been read. Files that are none of ours or damaged are removed.
    fn read(&mut self) {
        if self.entries.is_some() {
            return;
        }
        let mut entries = Vec::new();
        // A folder that is not there has no files; one that cannot be read cannot be written, which is reported.
        let files = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        for file in files {
            let name = file.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            let number: Option<u32> = name.parse().ok();
            let labels = number.and_then(|number| {
                let bytes = cache::read_bytes(&self.directory, name).ok()??;
                let (labels, offset) = Labels::read(&bytes)?;
                Some(Entry {
                    number,
                    labels,
                    offset,
                    length: bytes.len() - offset,
                })
            });
            match labels {
                Some(entry) => entries.push(entry),
                // A file that was not written to its end, or is damaged.
                None if number.is_some() || name.ends_with(".tmp") => {
                    let _ = fs::remove_file(file.path());
                }
                None => {}
            }
        }
        self.entries = Some(entries);
    }

    /// The document of these labels: from a file, or compressed and stored now. `None`: it is better not compressed
    /// so.
    fn find_or_store(
        &mut self,
        labels: Labels,
        text: &[u8],
    ) -> Option<Result<Body, (CacheError, Vec<u8>)>> {
        let is_it = |entry: &&Entry| {
            entry.labels.kind == labels.kind
                && entry.is_of(labels.status.flavour)
                && entry.labels.compression == labels.compression
                && entry.labels.uncompressed == labels.uncompressed
        };
        if let Some(entry) = self.entries().find(is_it) {
            return Some(Ok(self.body(entry)));
        }
        let body = compress(text, labels.compression)?;
        let file = labels.write(&body);
        let number = self.unused_number();
        if let Err(error) = cache::write(&self.directory, &number.to_string(), &file) {
            return Some(Err((error, body)));
        }
        let entry = Entry {
            number,
            labels,
            offset: file.len() - body.len(),
            length: body.len(),
        };
        let body = self.body(&entry);
        self.entries.get_or_insert_default().push(entry);
        Some(Ok(body))
    }

    /// A number that no file has.
    fn unused_number(&self) -> u32 {
        let mut used: Vec<u32> = self.entries().map(|entry| entry.number).collect();
        used.sort_unstable();
        let mut number = FIRST_FILE;
        for taken in used {
            if taken == number {
                number += 1;
            }
        }
        number
    }

    /// Removes what is not needed any more (C tor `consdiffmgr_cleanup`): diffs to others than `newest`, whose whole
    /// digest is `full`; other consensuses but in the compression that diffs are made of, past their number, older
    /// than `oldest`, or newer than the newest.
    fn clean(&mut self, newest: &Status, full: &str, oldest: SystemTime) {
        let kept: Vec<u32> = (self.older(newest).iter())
            .filter(|base| base.valid_after >= oldest)
            .take(MAX_OLDER)
            .map(|base| base.number)
            .collect();
        let digests: Vec<ConsensusDigest> = (self.entries())
            .filter(|entry| kept.contains(&entry.number))
            .filter_map(|entry| match entry.labels.kind {
                Kind::Consensus(digest) => Some(digest),
                Kind::Diff { .. } => None,
            })
            .collect();
        self.remove(|entry| {
            entry.is_of(newest.flavour)
                && !match &entry.labels.kind {
                    Kind::Consensus(_) => {
                        entry.labels.uncompressed == full || kept.contains(&entry.number)
                    }
                    Kind::Diff { target, from, .. } => target == full && digests.contains(from),
                }
        });
    }

    /// Removes files, the oldest first, until the bound is kept. The newest consensuses are the last ones.
    fn shrink(&mut self) {
        let mut total: u64 = self.entries().map(Entry::bytes).sum();
        while total > MAX_BYTES {
            let Some(oldest) = self.entries().map(Entry::age).min() else {
                return;
            };
            self.remove(|entry| entry.age() == oldest);
            total = self.entries().map(Entry::bytes).sum();
        }
    }

    /// Removes the files that `unwanted` picks. An answer that is about to be read from one of them is another.
    fn remove(&mut self, unwanted: impl Fn(&Entry) -> bool) {
        let directory = &self.directory;
        self.entries.get_or_insert_default().retain(|entry| {
            let keep = !unwanted(entry);
            if !keep {
                // One that cannot be removed is read and tried again after a restart.
                let _ = fs::remove_file(directory.join(entry.number.to_string()));
            }
            keep
        });
    }
}

impl DiffMaker for ConsensusCache {
    fn add(
        &mut self,
        new: &NewConsensus,
        documents: &CachedDocuments,
        max_age: Duration,
        now: SystemTime,
        stop: &AtomicBool,
    ) -> Messages {
        let mut messages = Vec::new();
        let stopped = || stop.load(Ordering::Relaxed);
        self.read();
        let _text = documents.begin_work(new.text.len());
        let full = full_digest(new.text.as_bytes());
        for compression in OF_CONSENSUS {
            if stopped() {
                return messages;
            }
            let _work = documents.begin_work(best_effort_memory(new.text.len(), compression));
            let labels = Labels {
                kind: Kind::Consensus(new.digest),
                status: new.status.clone(),
                compression,
                uncompressed: full.clone(),
            };
            match self.find_or_store(labels, new.text.as_bytes()) {
                None => {}
                Some(Ok(body)) => documents.set_form(new, compression, body),
                Some(Err((error, body))) => {
                    documents.set_form(new, compression, Body::Memory(body.into()));
                    if messages.is_empty() {
                        let text = format!("{error}; no diffs to this consensus are served.");
                        messages.push((Severity::Warn, text));
                    }
                }
            }
        }
        let oldest = now.checked_sub(max_age).unwrap_or(SystemTime::UNIX_EPOCH);
        self.clean(&new.status, &full, oldest);
        if !messages.is_empty() {
            return messages;
        }
        for base in self.older(&new.status) {
            if stopped() {
                break;
            }
            match self.diff(&base, new, &full, documents) {
                Ok(forms) => documents.set_diff(new, base.digest, forms),
                Err(DiffError::Base) => self.remove(|entry| entry.number == base.number),
                Err(DiffError::Make(error)) => messages.push((
                    Severity::Info,
                    format!("Refusing to generate consensus diff because {error}."),
                )),
                Err(DiffError::Store(error)) => {
                    messages.push((Severity::Warn, format!("{error}; going on without.")));
                    break;
                }
            }
        }
        self.shrink();
        messages
    }
}

/// An older consensus.
#[derive(Clone, Copy, Debug)]
struct Base {
    number: u32,
    digest: ConsensusDigest,
    valid_after: SystemTime,
}

/// Why there is no diff.
#[derive(Debug)]
enum DiffError {
    /// The older consensus cannot be read or is another.
    Base,
    Make(consdiff::MakeError),
    Store(CacheError),
}

#[cfg(test)]
mod tests;
