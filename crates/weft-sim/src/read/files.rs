//! Documents on disk: plain, .xz, .gz or .zst, alone, in folders, or in CollecTor's .tar archives.
//!
//! The kind of a file is found from its first bytes, not from its name.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::error::{MAX_DOCUMENT, ReadError};
use crate::microdesc::{Microdescs, NoMicrodescs};

/// What an .xz file may make its reader allocate, KiB: `xz -9` wants 65 MiB.
const XZ_MEMORY: u32 = 128 << 10;

/// Folders in folders.
const MAX_DEPTH: u32 = 8;

/// An unpacked document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its file; of a file in an archive, the archive's and its own name.
    pub name: String,
    /// Its contents.
    pub text: Vec<u8>,
}

/// What is done with each document.
pub type Documents<'a, E> = dyn FnMut(Document) -> Result<(), E> + 'a;

/// Unpacks the consensus documents that the paths name and hands on one after the other. A path is a
/// document, a folder, in which those named `…-consensus` or `…-consensus-microdesc` (and CollecTor's
/// `consensuses-*` archives) are taken in the order of their names, or a tar, in which the same are.
///
/// # Errors
///
/// [`ReadError`], or the error of `each`.
pub fn documents<E: From<ReadError>>(
    paths: &[PathBuf],
    each: &mut Documents<'_, E>,
) -> Result<(), E> {
    for path in paths {
        let mut count = 0_u64;
        let mut counted = |document| {
            count += 1;
            each(document)
        };
        walk(path, 0, is_consensus, &mut counted)?;
        if count == 0 {
            return Err(ReadError::Nothing { path: path.clone() }.into());
        }
    }
    Ok(())
}

/// Unpacks one file, whatever it holds.
///
/// # Errors
///
/// [`ReadError`].
pub fn file(path: &Path) -> Result<Document, ReadError> {
    let name = path.display().to_string();
    let io = |error| ReadError::Io {
        name: path.display().to_string(),
        error,
    };
    let file = BufReader::new(File::open(path).map_err(io)?);
    whole(name, unpacked(file).map_err(io)?)
}

/// Unpacks the microdescriptors that the paths name. A path is a file of them, a folder, in which
/// `…-microdescs…` and those that CollecTor names by their digests are taken, or a tar, in which the same
/// are.
///
/// # Errors
///
/// [`ReadError`].
pub fn microdescs(paths: &[PathBuf]) -> Result<Microdescs, ReadError> {
    let mut microdescs = Microdescs::default();
    for path in paths {
        let mut count = 0;
        let mut add = |document: Document| {
            let name = document.name;
            let added = microdescs.add(document.text);
            count += added.map_err(|NoMicrodescs| ReadError::NoMicrodescs { name })?;
            Ok::<(), ReadError>(())
        };
        walk(path, 0, is_microdescs, &mut add)?;
        if count == 0 {
            let name = path.display().to_string();
            return Err(ReadError::NoMicrodescs { name });
        }
    }
    Ok(microdescs)
}

fn walk<E: From<ReadError>>(
    path: &Path,
    depth: u32,
    is_wanted: fn(&str) -> bool,
    each: &mut Documents<'_, E>,
) -> Result<(), E> {
    let name = path.display().to_string();
    let io = |error| ReadError::Io {
        name: path.display().to_string(),
        error,
    };
    if !fs::metadata(path).map_err(io)?.is_dir() {
        let file = BufReader::new(File::open(path).map_err(io)?);
        return one(name, unpacked(file).map_err(io)?, is_wanted, each);
    }
    let mut inside = fs::read_dir(path)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(io)?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_folder = entry.file_type().map_err(io)?.is_dir();
        let is_taken = match is_folder {
            true => depth < MAX_DEPTH,
            false => is_wanted(&name) || name.starts_with("consensuses-"),
        };
        if is_taken {
            walk(&entry.path(), depth + 1, is_wanted, each)?;
        }
    }
    Ok(())
}

/// A document, or an archive of them.
fn one<E: From<ReadError>>(
    name: String,
    source: Box<dyn Read>,
    is_wanted: fn(&str) -> bool,
    each: &mut Documents<'_, E>,
) -> Result<(), E> {
    let io = |error| ReadError::Io {
        name: name.clone(),
        error,
    };
    let mut source = source;
    // The first block of a tar has its magic number at byte 257.
    let mut head = Vec::with_capacity(512);
    source
        .by_ref()
        .take(512)
        .read_to_end(&mut head)
        .map_err(io)?;
    let is_tar = head.get(257..262) == Some(b"ustar");
    let source = Cursor::new(head).chain(source);
    if !is_tar {
        return each(whole(name, source)?);
    }
    let mut archive = tar::Archive::new(source);
    // Raw: names longer than a header holds are not looked for, which would be read whole, whatever
    // their length. CollecTor's are short.
    for entry in archive.entries().map_err(io)?.raw(true) {
        let entry = entry.map_err(io)?;
        let inner = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_wanted(&inner) {
            continue;
        }
        let inner = format!("{name}: {inner}");
        // An entry borrows the archive: it is read whole before it is unpacked.
        let packed = whole(inner.clone(), entry)?;
        let io = |error| ReadError::Io {
            name: inner.clone(),
            error,
        };
        let text = unpacked(Cursor::new(packed.text)).map_err(io)?;
        each(whole(inner.clone(), text)?)?;
    }
    Ok(())
}

fn whole(name: String, source: impl Read) -> Result<Document, ReadError> {
    let mut text = Vec::new();
    match source.take(MAX_DOCUMENT + 1).read_to_end(&mut text) {
        Err(error) => Err(ReadError::Io { name, error }),
        Ok(length) if length as u64 > MAX_DOCUMENT => Err(ReadError::TooLong(name)),
        Ok(_) => Ok(Document { name, text }),
    }
}

/// Looks at the first bytes.
fn unpacked(mut source: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
    let head = source.fill_buf()?;
    Ok(if head.starts_with(b"\xfd7zXZ\0") {
        Box::new(XzReader::new_mem_limit(source, true, XZ_MEMORY))
    } else if head.starts_with(b"\x1f\x8b") {
        Box::new(MultiGzDecoder::new(source))
    } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
        Box::new(StreamingDecoder::new(source).map_err(io::Error::other)?)
    } else {
        Box::new(source)
    })
}

/// A name without the suffix of the compression.
fn bare(name: &str) -> &str {
    [".xz", ".gz", ".zst"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name)
}

/// As CollecTor names microdescriptors, perhaps packed: one in a file by its digest, or many.
fn is_microdescs(name: &str) -> bool {
    let name = bare(name.rsplit('/').next().unwrap_or(name));
    let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest || name.contains("microdescs")
}

/// As CollecTor names them, perhaps packed.
fn is_consensus(name: &str) -> bool {
    let name = bare(name);
    name.ends_with("-consensus") || name.ends_with("-consensus-microdesc")
}
