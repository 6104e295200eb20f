//! Microdescriptors: cut out of what directories send, kept, and asked for (dir-spec 3.3, 4.3).
//!
//! - [`split`] cuts documents apart, totally over hostile bytes
//! - [`MicrodescStore`] holds texts by digest, in memory and in C tor's cache files
//! - [`MicrodescFetch`] decides which to ask for next

mod fetch;
mod store;

use std::time::SystemTime;

use base64ct::{Base64Unpadded, Encoding};
use digest::Digest;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tor_llcrypto::d::Sha256;

pub(crate) use fetch::DigestFetch;
pub use fetch::{Batch, MicrodescFetch};
pub use store::MicrodescStore;

/// SHA-256 of a microdescriptor, which consensuses name it by.
pub(crate) type MdDigest = [u8; 32];

/// Format of times in documents.
const TIME: &[BorrowedFormatItem<'static>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
/// C tor's annotation before a microdescriptor in its cache files.
const LAST_LISTED: &str = "@last-listed ";
/// First keyword of a microdescriptor.
const FIRST_KEYWORD: &str = "onion-key";
/// A longer microdescriptor is none; the longest of the real network have some families and
/// policies of a few hundred bytes each.
const MAX_LENGTH: usize = 64 << 10;

/// One microdescriptor in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// `@last-listed`, in cache files.
    pub(crate) last_listed: Option<SystemTime>,
    /// From `onion-key` to the end of its last line.
    pub text: &'a str,
}

impl Piece<'_> {
    /// The digest that a consensus would name it by.
    pub fn digest(&self) -> MdDigest {
        Sha256::digest(self.text).into()
    }
}

/// The microdescriptors in `document`, one after the other; what is before the first, and what is
/// too long to be one, is left out.
pub fn split(document: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = document;
    let mut last_listed = None;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let (line, after) = first_line(rest);
            if !begins(line) {
                if let Some(time) = line.strip_prefix(LAST_LISTED) {
                    last_listed = parse_time(time.trim_end());
                }
                rest = after;
                continue;
            }
            let mut length = line.len();
            let mut tail = after;
            while !tail.is_empty() {
                let (line, after) = first_line(tail);
                if begins(line) || line.starts_with('@') {
                    break;
                }
                length += line.len();
                tail = after;
            }
            let text = rest.get(..length).unwrap_or_default();
            rest = tail;
            let last_listed = last_listed.take();
            if text.len() <= MAX_LENGTH {
                return Some(Piece { last_listed, text });
            }
        }
    })
}

/// The first line of `text` with its end, and the rest.
fn first_line(text: &str) -> (&str, &str) {
    let end = text.find('\n').map_or(text.len(), |at| at + 1);
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// True if this line begins a microdescriptor.
fn begins(line: &str) -> bool {
    line.strip_prefix(FIRST_KEYWORD)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['\n', '\r', ' ']))
}

/// `2026-11-22 01:02:03` as a time.
pub(crate) fn parse_time(text: &str) -> Option<SystemTime> {
    time::PrimitiveDateTime::parse(text, TIME)
        .ok()
        .map(|time| time.assume_utc().into())
}

/// A time in the form of `@last-listed`.
fn format_time(time: SystemTime) -> String {
    time::OffsetDateTime::from(time)
        .format(TIME)
        .unwrap_or_default()
}

/// Path of these microdescriptors on a directory (dir-spec 4.3, 6.2: base64 without padding,
/// joined by `-`).
pub fn path(digests: &[MdDigest]) -> String {
    let mut path = String::from("/tor/micro/d/");
    for (at, digest) in digests.iter().enumerate() {
        if at > 0 {
            path.push('-');
        }
        path.push_str(&Base64Unpadded::encode_string(digest));
    }
    path.push_str(".z");
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documents_are_cut_at_their_first_keyword_and_at_annotations() {
        let document = "junk\nonion-key\nntor-onion-key a\nid x\n@last-listed 2026-11-21 01:00:00\n\
                        onion-key\nid y\nonion-key\nonion-keys no start\nid z";
        let pieces: Vec<Piece<'_>> = split(document).collect();
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text).collect();
        assert_eq!(
            texts,
            [
                "onion-key\nntor-onion-key a\nid x\n",
                "onion-key\nid y\n",
                "onion-key\nonion-keys no start\nid z"
            ]
        );
        let times: Vec<bool> = pieces.iter().map(|p| p.last_listed.is_some()).collect();
        assert_eq!(times, [false, true, false]);
        assert_eq!(
            format_time(pieces[1].last_listed.unwrap()),
            "2026-11-21 01:00:00"
        );
    }

    #[test]
    fn what_is_too_long_is_left_out_and_the_next_is_found() {
        let long = format!("onion-key\n{}\nonion-key\nid y\n", "x".repeat(MAX_LENGTH));
        let texts: Vec<&str> = split(&long).map(|piece| piece.text).collect();
        assert_eq!(texts, ["onion-key\nid y\n"]);
    }

    #[test]
    fn a_path_is_c_tors() {
        let path = path(&[[0; 32], [255; 32]]);
        assert_eq!(
            path,
            "/tor/micro/d/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-\
             //////////////////////////////////////////8.z"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_cut_without_overlap(text in "(onion-key\n|@|[a-z\u{e9} ]{0,5}|\n|\r){0,40}") {
            let mut total = 0;
            for piece in split(&text) {
                prop_assert!(piece.text.starts_with("onion-key"));
                total += piece.text.len();
            }
            prop_assert!(total <= text.len());
        }
    }
}
