//! Documents that are read and compressed while they are sent: all descriptors of a network are tens of megabytes.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;

use crate::compress::Compression;
use crate::descriptors::Stored;

/// A document.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// In memory.
    Text(Arc<str>),
    /// In a file.
    Stored(Stored),
}

/// Documents, one after the other, and how they are compressed.
pub struct Pieces {
    waiting: VecDeque<Part>,
    /// `None`: all has been taken.
    encoder: Option<Encoder>,
}

/// Compresses into a buffer, which is emptied again and again.
enum Encoder {
    Identity(Vec<u8>),
    Deflate(flate2::write::ZlibEncoder<Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// As fast as C tor's (`LOW_COMPRESSION`).
    fn new(compression: Compression) -> Option<Self> {
        let level = flate2::Compression::fast();
        Some(match compression {
            Compression::Identity => Self::Identity(Vec::new()),
            Compression::Deflate => {
                Self::Deflate(flate2::write::ZlibEncoder::new(Vec::new(), level))
            }
            Compression::Gzip => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), level)),
            Compression::Zstd => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 1).ok()?),
            Compression::Lzma => return None,
        })
    }

    fn write(&mut self, bytes: &[u8]) {
        // Writing to memory cannot fail; should it, the answer ends too early, which its reader notices.
        let _ = match self {
            Self::Identity(out) => out.write_all(bytes),
            Self::Deflate(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        };
    }

    /// What has come out so far.
    fn out(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Identity(out) => out,
            Self::Deflate(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }

    /// What comes at the end.
    fn finish(self) -> Vec<u8> {
        match self {
            Self::Identity(out) => Ok(out),
            Self::Deflate(encoder) => encoder.finish(),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }
        .unwrap_or_default()
    }
}

impl Pieces {
    /// Nothing.
    pub(super) fn none() -> Self {
        Self {
            waiting: VecDeque::new(),
            encoder: None,
        }
    }

    /// These, compressed so as far as that can be done meanwhile; and how they are.
    pub(super) fn new(parts: Vec<Part>, compression: Compression) -> (Self, Compression) {
        let (encoder, compression) = match Encoder::new(compression) {
            Some(encoder) => (encoder, compression),
            None => (Encoder::Identity(Vec::new()), Compression::Identity),
        };
        let pieces = Self {
            waiting: parts.into(),
            encoder: Some(encoder),
        };
        (pieces, compression)
    }

    /// Whether nothing comes.
    pub(super) fn is_empty(&self) -> bool {
        self.encoder.is_none()
    }

    /// Bytes of the documents that come, before they are compressed.
    pub(super) fn length(&self) -> usize {
        let length = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Stored(stored) => stored.length(),
        };
        self.waiting.iter().map(length).sum()
    }

    /// The next bytes, about `enough` if there are as many; `None`: that was all. A document that cannot be read any
    /// more is left out.
    pub fn next(&mut self, enough: usize) -> Option<Vec<u8>> {
        let encoder = self.encoder.as_mut()?;
        while encoder.out().len() < enough {
            match self.waiting.pop_front() {
                Some(Part::Text(text)) => encoder.write(text.as_bytes()),
                Some(Part::Stored(stored)) => {
                    if let Ok(bytes) = stored.read() {
                        encoder.write(&bytes);
                    }
                }
                None => return self.encoder.take().map(Encoder::finish),
            }
        }
        Some(std::mem::take(encoder.out()))
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}
