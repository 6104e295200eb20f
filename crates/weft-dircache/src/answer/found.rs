//! What a request finds, and the identities that it names.

use std::time::Duration;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_dir::documents::Forms;

use crate::pieces::Part;

/// Documents that one request may name; C tor's clients name 92 microdescriptors at most.
pub(super) const MAX_NAMED: usize = 512;

/// What is found for a request.
pub(crate) enum Found {
    /// A short answer.
    Short(u16, &'static str),
    /// A document that is asked for often, or in its place the next one, and how long either lives.
    Stored(Vec<Forms>, Duration),
    /// Documents, and how long they may be kept.
    Documents(Vec<Part>, Duration),
    /// Robots.
    Robots,
}

/// Nothing to find.
pub(super) const NOT_FOUND: Found = Found::Short(404, "Not found");

/// Hexadecimal fingerprints, joined by `+`.
pub(super) fn identities(list: &str) -> impl Iterator<Item = RsaIdentity> {
    list.split('+').take(MAX_NAMED).filter_map(identity)
}

/// Forty hexadecimal digits.
pub(super) fn identity(text: &str) -> Option<RsaIdentity> {
    let mut bytes = [0; 20];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes.into())
}
