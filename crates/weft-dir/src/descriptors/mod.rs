//! Router descriptors and extra-info documents of others, which a cache keeps and serves (C tor routerlist.c).
//!
//! The digests that a consensus or a descriptor names are what they are known by: what has such a digest is what the
//! authorities took.

mod store;

use std::time::SystemTime;
use weft_datadir::files::DataFile;

use digest::Digest;
use memchr::memmem;
use tor_llcrypto::d::Sha1;

use crate::descriptor::{MAX_EXTRA_INFO, MAX_ROUTER_DESCRIPTOR, signed_part};
use crate::microdesc::parse_time;

pub use store::{DescriptorStore, Stored};

/// SHA-1 of a document up to its signature.
pub type DescriptorDigest = [u8; 20];

/// The last line of a document.
const END: &[u8] = b"\n-----END SIGNATURE-----\n";

/// The two kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// A router descriptor.
    Descriptor,
    /// An extra-info document.
    ExtraInfo,
}

impl DocumentKind {
    /// The first word of a document.
    fn keyword(self) -> &'static [u8] {
        match self {
            Self::Descriptor => b"router ",
            Self::ExtraInfo => b"extra-info ",
        }
    }

    /// Largest length that authorities accept, in bytes.
    fn max_length(self) -> usize {
        match self {
            Self::Descriptor => MAX_ROUTER_DESCRIPTOR,
            Self::ExtraInfo => MAX_EXTRA_INFO,
        }
    }

    /// The cache file (C tor's names); that of what has come since has `.new` behind it.
    fn file(self) -> &'static str {
        match self {
            Self::Descriptor => DataFile::Descriptors.name(),
            Self::ExtraInfo => DataFile::ExtraInfo.name(),
        }
    }

    /// The path of these on a directory (dir-spec 4.2).
    pub fn path(self, digests: &[DescriptorDigest]) -> String {
        let folder = match self {
            Self::Descriptor => "server",
            Self::ExtraInfo => "extra",
        };
        let digests: Vec<String> = digests.iter().map(hex::encode_upper).collect();
        format!("/tor/{folder}/d/{}.z", digests.join("+"))
    }

    /// Its name in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "server descriptors",
            Self::ExtraInfo => "extra-info documents",
        }
    }
}

/// A document among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The document.
    pub bytes: &'a [u8],
    /// Where it begins among the others.
    offset: usize,
    /// Its digest.
    pub digest: DescriptorDigest,
}

impl Piece<'_> {
    /// The words after the first one of the first line that begins with `keyword`.
    fn line(&self, keyword: &str) -> Option<&str> {
        let mut lines = self.bytes.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let rest = line.strip_prefix(keyword.as_bytes())?.strip_prefix(b" ")?;
            std::str::from_utf8(rest).ok()
        })
    }

    /// The relay's name, of a descriptor.
    pub fn nickname(&self) -> &str {
        let line = self.line("router").unwrap_or_default();
        line.split(' ').next().unwrap_or_default()
    }

    /// When it was published; the beginning of time, if it does not state that.
    fn published(&self) -> SystemTime {
        let time = self.line("published").and_then(parse_time);
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The digest of the extra-info document that belongs to it.
    fn extra_info(&self) -> Option<DescriptorDigest> {
        let line = self.line("extra-info-digest")?;
        let mut digest = [0; 20];
        let hex = line.split(' ').next().unwrap_or_default();
        hex::decode_to_slice(hex, &mut digest).ok()?;
        Some(digest)
    }
}

/// C tor's annotation of a bridge's descriptor in its cache. Descriptors that a client of bridges
/// cached must not be served to others.
const OF_BRIDGE: &[u8] = b"@purpose bridge";

/// The documents of this kind in `all`, one after the other, except those that are too long,
/// incomplete, or a bridge's.
pub fn split(kind: DocumentKind, all: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = all.get(at..)?;
            let begin = if rest.starts_with(kind.keyword()) {
                at
            } else {
                let line = [b"\n", kind.keyword()].concat();
                at + memmem::find(rest, &line)? + 1
            };
            let annotations = all.get(at..begin)?;
            let length = memmem::find(all.get(begin..)?, END)? + END.len();
            at = begin + length;
            let mut lines = annotations.split(|byte| *byte == b'\n');
            if lines.any(|line| line.starts_with(OF_BRIDGE)) {
                continue;
            }
            let bytes = all.get(begin..at)?;
            if let Some(signed) = signed_part(bytes)
                && length <= kind.max_length()
            {
                return Some(Piece {
                    bytes,
                    offset: begin,
                    digest: Sha1::digest(signed).into(),
                });
            }
        }
    })
}

#[cfg(test)]
mod tests;
