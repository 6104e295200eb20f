//! The two ways in which the permutation is used, and the block cipher of each.

use aes::{Aes128Dec, Aes128Enc};
use cipher::{BlockDecrypt, BlockEncrypt, KeyInit};

use super::layout::Tag;

/// Direction of the permutation: relays encrypt, clients decrypt.
pub(super) trait Way: Clone {
    /// True if the tag is processed first.
    const ENCRYPTS: bool;
    /// The portable implementation's cipher for the tag.
    type Cipher: Cipher;
}

#[derive(Clone)]
pub(super) enum Encrypt {}

impl Way for Encrypt {
    const ENCRYPTS: bool = true;
    type Cipher = Aes128Enc;
}

#[derive(Clone)]
pub(super) enum Decrypt {}

impl Way for Decrypt {
    const ENCRYPTS: bool = false;
    type Cipher = Aes128Dec;
}

/// The block cipher in one way.
pub(super) trait Cipher: Clone {
    fn new(key: &Tag) -> Self;
    /// AES on one block.
    fn permute(&self, block: &mut Tag);
}

impl Cipher for Aes128Enc {
    fn new(key: &Tag) -> Self {
        KeyInit::new(key.into())
    }

    #[inline]
    fn permute(&self, block: &mut Tag) {
        self.encrypt_block(block.into());
    }
}

impl Cipher for Aes128Dec {
    fn new(key: &Tag) -> Self {
        KeyInit::new(key.into())
    }

    #[inline]
    fn permute(&self, block: &mut Tag) {
        self.decrypt_block(block.into());
    }
}
