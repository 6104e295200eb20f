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

/// Memory that decompression of an .xz file may allocate, KiB: `xz -9` needs 65 MiB.
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

/// Callback for each document.
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
    unpacked(&name, opened(path)?)?.whole()
}

/// Opens a file. A folder is an error.
fn opened(path: &Path) -> Result<BufReader<File>, ReadError> {
    let file = File::open(path).map_err(failed(&path.display().to_string(), "open it"))?;
    Ok(BufReader::new(file))
}

/// Names the document and the operation in an I/O error.
fn failed(name: &str, doing: &'static str) -> impl FnOnce(io::Error) -> ReadError {
    let name = name.to_owned();
    move |error| ReadError::Io { name, doing, error }
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
            return Err(ReadError::NoneNamed { path: path.clone() });
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
    if !fs::metadata(path)
        .map_err(failed(&name, "open it"))?
        .is_dir()
    {
        return one(unpacked(&name, opened(path)?)?, is_wanted, each);
    }
    let mut inside = fs::read_dir(path)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(failed(&name, "list the folder"))?;
    inside.sort_by_key(fs::DirEntry::file_name);
    for entry in inside {
        let inner = entry.file_name();
        let inner = inner.to_string_lossy();
        let kind = entry
            .file_type()
            .map_err(failed(&name, "list the folder"))?;
        let is_taken = match kind.is_dir() {
            true => depth < MAX_DEPTH,
            false => is_wanted(&inner) || inner.starts_with("consensuses-"),
        };
        if is_taken {
            walk(&entry.path(), depth + 1, is_wanted, each)?;
        }
    }
    Ok(())
}

/// A document, or an archive of them.
fn one<E: From<ReadError>>(
    source: Source,
    is_wanted: fn(&str) -> bool,
    each: &mut Documents<'_, E>,
) -> Result<(), E> {
    let Source {
        name,
        doing,
        mut bytes,
    } = source;
    // The first block of a tar has its magic number at byte 257.
    let mut head = Vec::with_capacity(512);
    let first = bytes.by_ref().take(512).read_to_end(&mut head);
    first.map_err(failed(&name, doing))?;
    let is_tar = head.get(257..262) == Some(b"ustar");
    let bytes: Box<dyn Read> = Box::new(Cursor::new(head).chain(bytes));
    let source = Source { name, doing, bytes };
    if !is_tar {
        return each(source.whole()?);
    }
    let Source { name, bytes, .. } = source;
    let doing = "read it as an archive (tar)";
    let mut archive = tar::Archive::new(bytes);
    // Raw: names longer than a header holds are not looked for, which would be read whole, whatever
    // their length. CollecTor's are short.
    let entries = archive.entries().map_err(failed(&name, doing))?;
    for entry in entries.raw(true) {
        let entry = entry.map_err(failed(&name, doing))?;
        let inner = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_wanted(&inner) {
            continue;
        }
        let inner = format!("{name}: {inner}");
        // An entry borrows the archive: it is read whole before it is unpacked.
        let packed = whole(&inner, doing, entry)?;
        each(unpacked(&inner, Cursor::new(packed))?.whole()?)?;
    }
    Ok(())
}

/// A file while it is unpacked.
struct Source {
    name: String,
    /// For errors.
    doing: &'static str,
    bytes: Box<dyn Read>,
}

impl Source {
    fn whole(self) -> Result<Document, ReadError> {
        let text = whole(&self.name, self.doing, self.bytes)?;
        let name = self.name;
        Ok(Document { name, text })
    }
}

fn whole(name: &str, doing: &'static str, source: impl Read) -> Result<Vec<u8>, ReadError> {
    let mut text = Vec::new();
    match source.take(MAX_DOCUMENT + 1).read_to_end(&mut text) {
        Err(error) => Err(failed(name, doing)(error)),
        Ok(length) if length as u64 > MAX_DOCUMENT => Err(ReadError::TooLong(name.to_owned())),
        Ok(_) => Ok(text),
    }
}

/// Looks at the first bytes.
fn unpacked(name: &str, mut source: impl BufRead + 'static) -> Result<Source, ReadError> {
    let head = source.fill_buf().map_err(failed(name, "read it"))?;
    let (doing, bytes): (_, Box<dyn Read>) = if head.starts_with(b"\xfd7zXZ\0") {
        let reader = XzReader::new_mem_limit(source, true, XZ_MEMORY);
        ("unpack it as .xz", Box::new(reader))
    } else if head.starts_with(b"\x1f\x8b") {
        ("unpack it as .gz", Box::new(MultiGzDecoder::new(source)))
    } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
        let doing = "unpack it as .zst";
        let reader = StreamingDecoder::new(source).map_err(io::Error::other);
        (doing, Box::new(reader.map_err(failed(name, doing))?))
    } else {
        ("read it", Box::new(source))
    };
    let name = name.to_owned();
    Ok(Source { name, doing, bytes })
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
