//! Documents as they are kept, each in several compressions: in memory, or in files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weft_datadir::file;

use crate::http::Compression;

/// The bytes of a document.
#[derive(Clone, Debug)]
pub enum Body {
    /// In memory.
    Memory(Arc<[u8]>),
    /// In a file.
    File(Arc<InFile>),
}

/// A part of a file. Answers read it as they are sent, and share the open file.
#[derive(Debug)]
pub struct InFile {
    path: PathBuf,
    offset: u64,
    length: usize,
    /// Open while answers are sent.
    open: Mutex<Weak<File>>,
}

impl Body {
    /// These bytes of this file.
    pub fn in_file(path: PathBuf, offset: u64, length: usize) -> Self {
        Self::File(Arc::new(InFile {
            path,
            offset,
            length,
            open: Mutex::default(),
        }))
    }

    /// Bytes of it in memory.
    pub fn memory(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => size_of::<InFile>(),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter now.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes.to_vec()),
            Self::File(stored) => {
                let mut bytes = vec![0; stored.length];
                stored.open()?.read_exact_at(&mut bytes, stored.offset)?;
                Ok(bytes)
            }
        }
    }
}

impl InFile {
    /// The file, where the document begins in it, and how long that is.
    ///
    /// # Errors
    /// The file cannot be opened, or is shorter now.
    pub fn place(&self) -> io::Result<(Arc<File>, u64, usize)> {
        Ok((self.open()?, self.offset, self.length))
    }

    fn open(&self) -> io::Result<Arc<File>> {
        // A panic while it was held leaves an address that is valid or dead.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.upgrade() {
            return Ok(file);
        }
        let file = file::open(&self.path, u64::MAX).map_err(|error| error.source)?;
        let (file, _) = file.ok_or(io::ErrorKind::NotFound)?;
        let end = u64::try_from(self.length).map_or(u64::MAX, |it| it.saturating_add(self.offset));
        if file.metadata()?.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file = Arc::new(file);
        *open = Arc::downgrade(&file);
        Ok(file)
    }
}

/// A document in several compressions.
pub type Forms = BTreeMap<Compression, Body>;
