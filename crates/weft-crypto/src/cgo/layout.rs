//! Lengths of CGO's inputs.

use crate::relay_cell::BODY_LEN;

/// Bytes of a tag, and of a block of AES and POLYVAL.
pub const TAG_LEN: usize = 16;

/// The first bytes of a body. That of a recognized or originated message is also what an
/// authenticated SENDME for it carries.
pub type Tag = [u8; TAG_LEN];

/// Bytes of a body after its tag.
pub(super) const REST_LEN: usize = BODY_LEN - TAG_LEN;
/// Blocks of key stream for those.
pub(super) const REST_BLOCKS: usize = REST_LEN.div_ceil(TAG_LEN);
/// Bytes of the keys of one UIV+: an AES and a POLYVAL key for each of its two parts.
pub(super) const WIDE_KEY_LEN: usize = 4 * TAG_LEN;
/// Bytes of the keys of one direction: UIV+'s, then the first nonce.
pub(super) const DIRECTION_LEN: usize = WIDE_KEY_LEN + TAG_LEN;
/// Where in the counters the key stream of new keys begins: after that of a body.
pub(super) const NEW_KEYS_FROM: u8 = 31;
const _: () = assert!(REST_BLOCKS == NEW_KEYS_FROM as usize);

/// The keys of a UIV+ and the nonce after them.
pub(super) fn split(keys: &[u8; DIRECTION_LEN]) -> (&[u8; WIDE_KEY_LEN], &Tag) {
    const KEYS: &[u8; WIDE_KEY_LEN] = &[0; WIDE_KEY_LEN];
    const NONCE: &Tag = &[0; TAG_LEN];
    // The lengths add up, so neither is ever replaced.
    (
        keys.first_chunk().unwrap_or(KEYS),
        keys.last_chunk().unwrap_or(NONCE),
    )
}
