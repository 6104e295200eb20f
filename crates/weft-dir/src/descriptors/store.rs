//! Documents by digest: in C tor's cache files, of which memory has where each stands.
//!
//! `cached-descriptors` holds all of them at some moment, `cached-descriptors.new` what came since; the same for
//! `cached-extrainfo`. Tens of megabytes of text are read when they are asked for, and not held in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{DescriptorDigest, DocumentKind, Piece, split};
use crate::cache::{self, CacheError};

/// One that no consensus lists is kept as long after its publication (C tor `OLD_ROUTER_DESC_MAX_AGE`).
const KEEP: Duration = Duration::from_secs(5 * 86_400);
/// The journal may always grow to this, whatever the size of the other file.
const SMALL_JOURNAL: usize = 16_384;
/// Documents held.
const MAX_HELD: usize = 60_000;
/// Bytes of both files (which are read with [`cache::MAX_FILE`] at most each).
const MAX_BYTES: usize = 60 << 20;

/// Memory of one: its place in the map, whose nodes are between half full and full.
const ENTRY: usize = (size_of::<DescriptorDigest>() + size_of::<Stored>()) * 7 / 4;

/// A document in a file. The file stays open while there is one, also when another takes its place.
#[derive(Clone, Debug)]
pub struct Stored {
    file: Arc<File>,
    offset: usize,
    length: usize,
    /// When it was published.
    pub published: SystemTime,
    /// The digest of its extra-info document.
    pub extra_info: Option<DescriptorDigest>,
}

impl Stored {
    /// Its file, where its text begins there, and how long that is.
    pub fn place(&self) -> (Arc<File>, u64, usize) {
        let offset = u64::try_from(self.offset).unwrap_or(u64::MAX);
        (self.file.clone(), offset, self.length)
    }

    /// Its text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let (file, offset, length) = self.place();
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Documents of one kind by digest.
#[derive(Debug)]
pub struct DescriptorStore {
    kind: DocumentKind,
    held: BTreeMap<DescriptorDigest, Stored>,
    /// Bytes of the file of all, and of the journal.
    full: usize,
    journal: usize,
    /// Bytes in either that are not needed any more.
    dropped: usize,
}

impl DescriptorStore {
    /// Nothing.
    pub fn new(kind: DocumentKind) -> Self {
        Self {
            kind,
            held: BTreeMap::new(),
            full: 0,
            journal: 0,
            dropped: 0,
        }
    }

    /// One of them.
    pub fn get(&self, digest: &DescriptorDigest) -> Option<&Stored> {
        self.held.get(digest)
    }

    /// Bytes of memory that it takes to know where they stand.
    pub fn memory(&self) -> usize {
        self.held.len() * ENTRY
    }

    /// The name of the journal.
    fn journal_file(&self) -> String {
        format!("{}.new", self.kind.file())
    }

    /// Reads both files.
    ///
    /// # Errors
    /// The first file that could not be read; the other has been read nevertheless.
    pub fn load(&mut self, directory: &Path) -> Result<(), CacheError> {
        let journal = self.journal_file();
        let full = self.load_file(directory, self.kind.file());
        let since = self.load_file(directory, &journal);
        self.full = *full.as_ref().unwrap_or(&0);
        self.journal = *since.as_ref().unwrap_or(&0);
        full.and(since).map(|_| ())
    }

    /// Reads one file; its bytes.
    fn load_file(&mut self, directory: &Path, name: &str) -> Result<usize, CacheError> {
        let Some(bytes) = cache::read_bytes(directory, name)? else {
            return Ok(0);
        };
        let file = Arc::new(cache::open(directory, name)?);
        for piece in split(self.kind, &bytes) {
            self.insert(&piece, &file, piece.offset);
        }
        Ok(bytes.len())
    }

    /// Notes where one stands.
    fn insert(&mut self, piece: &Piece<'_>, file: &Arc<File>, offset: usize) {
        let stored = Stored {
            file: file.clone(),
            offset,
            length: piece.bytes.len(),
            published: piece.published(),
            extra_info: piece.extra_info(),
        };
        if let Some(before) = self.held.insert(piece.digest, stored) {
            self.dropped += before.length;
        }
    }

    /// True if one more descriptor of this length may be kept.
    pub fn has_room(&self, length: usize) -> bool {
        self.held.len() < MAX_HELD && self.full + self.journal + length <= MAX_BYTES
    }

    /// Keeps these, as far as there is room, at the end of the journal.
    ///
    /// # Errors
    /// The journal cannot be written; none is kept.
    pub fn add(&mut self, directory: &Path, pieces: &[Piece<'_>]) -> Result<(), CacheError> {
        let name = self.journal_file();
        // Part of what could not be written may stand there.
        self.journal = cache::length(directory, &name);
        let mut bytes = Vec::new();
        let mut kept = Vec::new();
        for piece in pieces {
            if self.has_room(bytes.len() + piece.bytes.len()) {
                kept.push((piece, self.journal + bytes.len()));
                bytes.extend_from_slice(piece.bytes);
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        cache::append(directory, &name, &bytes)?;
        let file = Arc::new(cache::open(directory, &name)?);
        for (piece, offset) in kept {
            self.insert(piece, &file, offset);
        }
        self.journal += bytes.len();
        Ok(())
    }

    /// Lets go what is old and not wanted, and writes all anew when much of the files is not needed (C tor
    /// `router_should_rebuild_store`).
    ///
    /// # Errors
    /// What could not be written; all that is held stays where it is.
    pub fn clean(
        &mut self,
        directory: &Path,
        wanted: impl Fn(&DescriptorDigest) -> bool,
        now: SystemTime,
    ) -> Result<(), CacheError> {
        let oldest = now.checked_sub(KEEP).unwrap_or(SystemTime::UNIX_EPOCH);
        let dropped = &mut self.dropped;
        self.held.retain(|digest, stored| {
            let keep = stored.published > oldest || wanted(digest);
            *dropped += if keep { 0 } else { stored.length };
            keep
        });
        let useless = self.journal + self.dropped;
        if useless <= SMALL_JOURNAL || useless <= self.full / 2 {
            return Ok(());
        }
        let mut places = Vec::with_capacity(self.held.len());
        let mut length = 0;
        cache::write_with(directory, self.kind.file(), |file| {
            let mut file = io::BufWriter::new(file);
            for (digest, stored) in &self.held {
                file.write_all(&stored.read()?)?;
                places.push((*digest, length));
                length += stored.length;
            }
            file.flush()
        })?;
        let file = Arc::new(cache::open(directory, self.kind.file())?);
        for (digest, offset) in places {
            if let Some(stored) = self.held.get_mut(&digest) {
                (stored.file, stored.offset) = (file.clone(), offset);
            }
        }
        // Should that fail, the journal has what the other file has, too.
        cache::write(directory, &self.journal_file(), "")?;
        (self.full, self.journal, self.dropped) = (length, 0, 0);
        Ok(())
    }
}
