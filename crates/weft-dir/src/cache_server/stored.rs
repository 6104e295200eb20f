//! Documents as they are sent, each in several compressions: in memory, or in files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::pieces::Part;
use crate::http::Compression;

/// The bytes of a document.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// In memory.
    Memory(Arc<[u8]>),
    /// In a file.
    File(Arc<InFile>),
}

/// A part of a file. Answers read it as they are sent, and share the open file.
#[derive(Debug)]
pub(crate) struct InFile {
    path: PathBuf,
    offset: u64,
    length: usize,
    /// Open while answers are sent.
    open: Mutex<Weak<File>>,
}

impl Body {
    /// These bytes of this file.
    pub(crate) fn in_file(path: PathBuf, offset: u64, length: usize) -> Self {
        Self::File(Arc::new(InFile {
            path,
            offset,
            length,
            open: Mutex::default(),
        }))
    }

    /// Bytes of it in memory.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_) => size_of::<InFile>(),
        }
    }

    /// The document as part of an answer.
    ///
    /// # Errors
    /// The file cannot be opened, or is shorter now.
    pub(crate) fn part(&self) -> io::Result<Part> {
        Ok(match self {
            Self::Memory(bytes) => Part::Bytes(bytes.clone()),
            Self::File(stored) => Part::File {
                file: stored.open()?,
                offset: stored.offset,
                length: stored.length,
            },
        })
    }

    /// The bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter now.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
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
    fn open(&self) -> io::Result<Arc<File>> {
        // A panic while it was held leaves an address that is valid or dead.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.upgrade() {
            return Ok(file);
        }
        let file = File::open(&self.path)?;
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
pub(crate) type Forms = BTreeMap<Compression, Body>;

#[cfg(test)]
mod tests {
    use super::super::pieces::Pieces;
    use super::*;

    #[test]
    fn answers_share_the_open_file_of_a_document_and_read_it_as_they_are_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "labels\0body and more").unwrap();
        let body = Body::in_file(path.clone(), 7, 4);
        let (one, other) = (body.part().unwrap(), body.part().unwrap());
        match (&one, &other) {
            (Part::File { file: one, .. }, Part::File { file: other, .. }) => {
                assert!(Arc::ptr_eq(one, other));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(body.read().unwrap(), b"body");
        // A file that is removed is read by those who have it open.
        std::fs::remove_file(&path).unwrap();
        assert!(body.part().is_ok());
        assert_eq!(Pieces::one(one).next(100).unwrap(), b"body");
        drop(other);
        assert!(body.part().is_err());
        std::fs::write(&path, "lab").unwrap();
        assert!(body.part().is_err() && body.read().is_err());
    }
}
