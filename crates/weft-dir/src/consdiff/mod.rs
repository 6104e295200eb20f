//! Differences between consensuses (proposal 140; dir-spec 4.1 and "Consensus diff format").
//!
//! - [`ConsensusDigest`]: what names a consensus that a diff begins at
//! - [`apply`]: Arti's, within bounds
//!
//! Caches make diffs, by C tor's algorithm (weft-dircache).

use digest::Digest;
use tor_consdiff::DiffSizeStrictness;
use tor_llcrypto::d::Sha3_256;

/// Where the signatures of a consensus begin; what is signed, and the digest, end after the space.
const SIGNATURES: &str = "\ndirectory-signature ";
/// First keyword of a consensus.
const BEGINNING: &str = "network-status-version";
/// First keyword of a diff.
const DIFF_BEGINNING: &str = "network-status-diff-version";

/// The SHA3-256 digest of a consensus without its signatures ("digest as signed").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsensusDigest(pub [u8; 32]);

impl ConsensusDigest {
    /// That of the consensus `text`; of all of it, if it has no signatures (C tor
    /// `router_get_networkstatus_v3_signed_boundaries`).
    pub fn of(text: &str) -> Self {
        let begin = if text.starts_with(BEGINNING) {
            Some(0)
        } else {
            let line = format!("\n{BEGINNING}");
            text.find(&line).map(|at| at + 1)
        };
        let signed = begin.and_then(|begin| {
            let rest = text.get(begin..)?;
            let end = rest.find(SIGNATURES)? + SIGNATURES.len();
            rest.get(..end)
        });
        Self(Sha3_256::digest(signed.unwrap_or(text)).into())
    }

    /// 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(hex, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// As requests and diffs have it.
    pub fn hex(&self) -> String {
        hex::encode_upper(self.0)
    }
}

/// The SHA3-256 digest of a whole document, in hexadecimal.
pub fn full_digest(bytes: &[u8]) -> String {
    hex::encode_upper(Sha3_256::digest(bytes))
}

/// True if `document` is a diff and not a consensus.
pub fn is_diff(document: &str) -> bool {
    document.starts_with(DIFF_BEGINNING)
}

/// Why a diff was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ApplyError(#[from] tor_consdiff::Error);

/// The consensus that `diff` makes of `base`, whose digest is `from`. It has the digest that the diff names.
///
/// Every line of the result is one of the base or of the diff, each at most once, and a diff that has three times
/// the lines or twice the bytes of its base is refused: the result and the work are bounded by the inputs.
///
/// # Errors
/// It is malformed, begins at another consensus, or does not lead to what it names.
pub fn apply(base: &str, from: ConsensusDigest, diff: &str) -> Result<String, ApplyError> {
    let result = tor_consdiff::apply_diff(base, diff, Some(from.0), DiffSizeStrictness::Apply)?;
    result.check_digest()?;
    Ok(result.to_string())
}

#[cfg(test)]
mod tests;
