//! Documents that are read and compressed while they are sent: all descriptors of a network are tens of megabytes, and a
//! client that does not read must not have them made.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use weft_dir::descriptors::Stored;
use weft_dir::documents::Body;
use weft_dir::http::Compression;

/// Bytes that are read and compressed at once.
const STEP: usize = 16 << 10;
/// Bytes that zlib's encoder takes: its window, hash chains, codes and output are 320 KiB; the buffer behind it has 32 KiB, and
/// as much as a block of what is hard to compress, about 96 KiB, comes out at once.
const DEFLATE_MEMORY: usize = (320 + 32 + 96) << 10;
/// Bytes that zstd's encoder takes: its blocks are as long as its window.
const ZSTD_MEMORY: usize = (ZSTD_CONTEXT + 32 + 64) << 10;
/// KiB of zstd's own memory (`ZSTD_sizeof_CCtx`).
const ZSTD_CONTEXT: usize = 544;
/// zstd looks back at 2^16 bytes: with the window of its first level the encoder has twice the memory.
const ZSTD_WINDOW_LOG: u32 = 16;

/// A document, which answers share.
#[derive(Clone, Debug)]
pub enum Part {
    /// Text in memory.
    Text(Arc<str>),
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// A part of a file, read as it is sent.
    File {
        /// The open file.
        file: Arc<File>,
        /// Where the document begins in it.
        offset: u64,
        /// Bytes of the document.
        length: usize,
    },
}

impl From<&Stored> for Part {
    fn from(stored: &Stored) -> Self {
        let (file, offset, length) = stored.place();
        Self::File {
            file,
            offset,
            length,
        }
    }
}

impl TryFrom<&Body> for Part {
    type Error = io::Error;

    /// # Errors
    /// The file cannot be opened, or is shorter now.
    fn try_from(body: &Body) -> io::Result<Self> {
        Ok(match body {
            Body::Memory(bytes) => Self::Bytes(bytes.clone()),
            Body::File(stored) => {
                let (file, offset, length) = stored.place()?;
                Self::File {
                    file,
                    offset,
                    length,
                }
            }
        })
    }
}

impl Part {
    /// Bytes of the document.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::File { length, .. } => *length,
        }
    }

    /// Has `take` take at most a step of the document from `at` on; how many bytes that was.
    fn step(&self, at: usize, take: impl FnOnce(&[u8])) -> io::Result<usize> {
        let bytes = match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::File {
                file,
                offset,
                length,
            } => {
                let mut bytes = vec![0; length.saturating_sub(at).min(STEP)];
                let at = u64::try_from(at).unwrap_or(u64::MAX);
                file.read_exact_at(&mut bytes, offset.saturating_add(at))?;
                take(&bytes);
                return Ok(bytes.len());
            }
        };
        let rest = bytes.get(at..).unwrap_or_default();
        let step = rest.get(..STEP).unwrap_or(rest);
        take(step);
        Ok(step.len())
    }
}

/// Documents, one after the other, and how they are compressed.
pub struct Pieces {
    waiting: VecDeque<Part>,
    /// Bytes of the first of these that have been taken.
    at: usize,
    /// `None`: all has been taken.
    encoder: Option<Encoder>,
    memory: usize,
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
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).ok()?;
                encoder.window_log(ZSTD_WINDOW_LOG).ok()?;
                Self::Zstd(encoder)
            }
            Compression::Lzma => return None,
        })
    }

    /// Bytes that it takes with its buffers, and with what has come out of it and is being written, for a body of this length.
    fn memory(&self, length: usize) -> usize {
        match self {
            Self::Identity(_) => length.min(2 * STEP),
            Self::Deflate(_) | Self::Gzip(_) => DEFLATE_MEMORY,
            Self::Zstd(_) => ZSTD_MEMORY,
        }
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

    /// Compressed bytes that are not taken yet.
    fn out(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Identity(out) => out,
            Self::Deflate(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }

    /// Ends the stream; returns its last bytes.
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
    pub fn none() -> Self {
        Self {
            waiting: VecDeque::new(),
            at: 0,
            encoder: None,
            memory: 0,
        }
    }

    /// These, compressed so as far as that can be done meanwhile; and how they are.
    pub fn new(parts: Vec<Part>, compression: Compression) -> (Self, Compression) {
        let (encoder, compression) = match Encoder::new(compression) {
            Some(encoder) => (encoder, compression),
            None => (Encoder::Identity(Vec::new()), Compression::Identity),
        };
        let length = parts.iter().map(Part::length).sum();
        let pieces = Self {
            memory: parts.capacity() * size_of::<Part>() + encoder.memory(length),
            waiting: parts.into(),
            at: 0,
            encoder: Some(encoder),
        };
        (pieces, compression)
    }

    /// One document as it is.
    pub(crate) fn one(part: Part) -> Self {
        Self::new(vec![part], Compression::Identity).0
    }

    /// Bytes of the documents that come, before they are compressed.
    pub fn length(&self) -> usize {
        let length = self.waiting.iter().map(Part::length);
        length.sum::<usize>().saturating_sub(self.at)
    }

    /// Bytes of memory that it takes until all has been taken. The documents are those that the directory holds anyway.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The next bytes, `enough` or a little more if there are as many; `None`: that was all. A document that cannot be
    /// read any more is left out.
    pub fn next(&mut self, enough: usize) -> Option<Vec<u8>> {
        let encoder = self.encoder.as_mut()?;
        while encoder.out().len() < enough {
            let Some(part) = self.waiting.front() else {
                return self.encoder.take().map(Encoder::finish);
            };
            match part.step(self.at, |bytes| encoder.write(bytes)) {
                Ok(taken) if self.at + taken < part.length() => self.at += taken,
                Ok(_) | Err(_) => {
                    self.waiting.pop_front();
                    self.at = 0;
                }
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use weft_dir::http::decode;

    /// Lines that compress as keys in base64 do.
    pub(crate) fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut digit = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                [(state >> 58) as usize]
        };
        (0..length).map(|_| digit()).collect()
    }

    #[test]
    fn documents_are_taken_by_steps_and_come_out_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let text = noise(3 * STEP + 5);
        std::fs::write(&path, [b"before", &*text, b"after"].concat()).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let whole: Arc<str> = String::from_utf8(text.clone()).unwrap().into();
        let parts = || {
            vec![
                Part::Text(whole.clone()),
                Part::File {
                    file: file.clone(),
                    offset: 6,
                    length: text.len(),
                },
                Part::Bytes(Arc::from([])),
                Part::Bytes(text.clone().into()),
                // It has been cut: what is missing is left out.
                Part::File {
                    file: file.clone(),
                    offset: 6 + STEP as u64,
                    length: text.len(),
                },
            ]
        };
        let expected = [&*text, &*text, &*text, &text[STEP..3 * STEP]].concat();
        for compression in Compression::FAST_FIRST {
            let (mut pieces, coding) = Pieces::new(parts(), compression);
            assert_eq!(coding, compression);
            let held = pieces.memory();
            let mut body = Vec::new();
            while let Some(more) = pieces.next(STEP) {
                assert!(more.capacity() < held, "{} at once", more.capacity());
                body.extend(more);
            }
            let body = decode(body, coding, 1 << 20).unwrap();
            assert!(body.starts_with(&expected), "{compression:?}");
            assert!(body.len() <= expected.len() + STEP);
            assert!(pieces.next(STEP).is_none() && pieces.length() == 0);
        }
    }

    #[test]
    fn nothing_is_read_before_it_is_taken() {
        let text: Arc<str> = "x".repeat(1 << 20).into();
        let (mut pieces, _) = Pieces::new(vec![Part::Text(text.clone())], Compression::Identity);
        assert_eq!(pieces.next(1).map(|bytes| bytes.len()), Some(STEP));
        assert_eq!(pieces.length(), (1 << 20) - STEP);
        assert!(pieces.memory() < 64 << 10);
        assert_eq!(Arc::strong_count(&text), 2);
    }

    #[test]
    fn zstd_takes_no_more_than_is_counted() {
        use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};
        let mut context = CCtx::create();
        context
            .set_parameter(CParameter::CompressionLevel(1))
            .unwrap();
        context
            .set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG))
            .unwrap();
        let text = noise(1 << 20);
        let mut out = vec![0; 2 << 20];
        let mut input = InBuffer::around(&text);
        while input.pos() < text.len() {
            let mut output = OutBuffer::around(&mut out[..]);
            context.compress_stream(&mut output, &mut input).unwrap();
        }
        let counted = ZSTD_CONTEXT << 10;
        let taken = context.sizeof();
        assert!((counted / 2..=counted).contains(&taken), "{taken} bytes");
    }

    #[test]
    fn answers_share_the_open_file_of_a_document_and_read_it_as_they_are_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "labels\0body and more").unwrap();
        let body = Body::in_file(path.clone(), 7, 4);
        let (one, other) = (
            Part::try_from(&body).unwrap(),
            Part::try_from(&body).unwrap(),
        );
        match (&one, &other) {
            (Part::File { file: one, .. }, Part::File { file: other, .. }) => {
                assert!(Arc::ptr_eq(one, other));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(body.read().unwrap(), b"body");
        // A file that is removed is read by those who have it open.
        std::fs::remove_file(&path).unwrap();
        assert!(Part::try_from(&body).is_ok());
        assert_eq!(Pieces::one(one).next(100).unwrap(), b"body");
        drop(other);
        assert!(Part::try_from(&body).is_err());
        std::fs::write(&path, "lab").unwrap();
        assert!(Part::try_from(&body).is_err() && body.read().is_err());
    }
}
