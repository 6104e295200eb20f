//! Documents as they are sent, each in several compressions: in memory, or in files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::compress::Compression;

/// The bytes of a document.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// In memory.
    Memory(Arc<[u8]>),
    /// In a file.
    File(Arc<InFile>),
}

/// A part of a file. While an answer has its bytes, others get the same: memory holds each document once, and only
/// while it is sent.
#[derive(Debug)]
pub(crate) struct InFile {
    path: PathBuf,
    offset: u64,
    length: usize,
    /// Those that are being sent.
    open: Mutex<Weak<[u8]>>,
}

impl Body {
    /// These bytes of this file.
    pub(crate) fn in_file(path: PathBuf, offset: u64, length: usize) -> Self {
        Self::File(Arc::new(InFile {
            path,
            offset,
            length,
            open: Mutex::new(Weak::<[u8; 0]>::new()),
        }))
    }

    /// The bytes.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter now.
    pub(crate) fn load(&self) -> io::Result<Arc<[u8]>> {
        let file = match self {
            Self::Memory(bytes) => return Ok(bytes.clone()),
            Self::File(file) => file,
        };
        // A panic while it was held leaves an address that is valid or dead.
        let mut open = file.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = open.upgrade() {
            return Ok(bytes);
        }
        let mut bytes = vec![0; file.length];
        File::open(&file.path)?.read_exact_at(&mut bytes, file.offset)?;
        let bytes: Arc<[u8]> = bytes.into();
        *open = Arc::downgrade(&bytes);
        Ok(bytes)
    }
}

/// A document in several compressions.
pub(crate) type Forms = BTreeMap<Compression, Body>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_a_file_is_in_memory_once_while_it_is_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "labels\0body and more").unwrap();
        let body = Body::in_file(path.clone(), 7, 4);
        let (one, other) = (body.load().unwrap(), body.load().unwrap());
        assert_eq!(&*one, b"body");
        assert!(Arc::ptr_eq(&one, &other));
        std::fs::write(&path, "lab").unwrap();
        // It is still being sent.
        assert!(body.load().is_ok());
        drop((one, other));
        assert!(body.load().is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(body.load().is_err());
    }
}
