//! UIV+ by RustCrypto's AES and POLYVAL, for every processor.

use aes::{Aes128Enc, Block};
use cipher::BlockEncrypt;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use zeroize::{Zeroize, Zeroizing};

use super::layout::{
    DIRECTION_LEN, NEW_KEYS_FROM, REST_BLOCKS, REST_LEN, TAG_LEN, Tag, WIDE_KEY_LEN, split,
};
use super::way::{Cipher, Way};
use crate::relay_cell::BODY_LEN;

/// Bytes of a tweak: the tag of the cell before, this cell's command and the body's rest.
const TWEAK_LEN: usize = TAG_LEN + 1 + REST_LEN;

/// ET: a block cipher with a tweak as long as a body (LRW2).
#[derive(Clone)]
pub(super) struct Tweaked<W: Way> {
    cipher: W::Cipher,
    hash: Polyval,
}

impl<W: Way> Tweaked<W> {
    pub(super) fn new(cipher: &Tag, hash: &Tag) -> Self {
        Self {
            cipher: W::Cipher::new(cipher),
            hash: Polyval::new(&(*hash).into()),
        }
    }

    /// Permutes `block` under the tweak of the tag before, the cell's command and the body's rest.
    #[inline]
    pub(super) fn apply(&self, before: &Tag, command: u8, rest: &[u8; REST_LEN], block: &mut Tag) {
        // One run of whole blocks, as the hash takes four together.
        let mut tweak = [0; TWEAK_LEN.next_multiple_of(TAG_LEN)];
        if let Some((first, others)) = tweak.split_first_chunk_mut()
            && let Some((second, others)) = others.split_first_mut()
            && let Some(others) = others.first_chunk_mut()
        {
            (*first, *second, *others) = (*before, command, *rest);
        }
        let mut hash = self.hash.clone();
        hash.update(polyval::Block::slice_as_chunks(&tweak).0);
        let mask: Tag = hash.finalize().into();
        add(block, &mask);
        self.cipher.permute(block);
        add(block, &mask);
    }
}

/// A pseudorandom function from a block to a key stream.
#[derive(Clone)]
pub(super) struct Prf {
    cipher: Aes128Enc,
    hash: Polyval,
}

impl Prf {
    pub(super) fn new(cipher: &Tag, hash: &Tag) -> Self {
        Self {
            cipher: Cipher::new(cipher),
            hash: Polyval::new(&(*hash).into()),
        }
    }

    /// Adds the key stream that `input` chooses, from block `from` on, to `data`.
    #[inline]
    pub(super) fn add<const BLOCKS: usize>(&self, input: &Tag, from: u8, data: &mut [u8]) {
        let mut hash = self.hash.clone();
        hash.update(&[(*input).into()]);
        let mut first: Tag = hash.finalize().into();
        // So that no counter below carries into another byte.
        let [.., last] = &mut first;
        *last = (*last & 0xc0) + from;
        let mut stream = [Block::from(first); BLOCKS];
        for (block, counter) in stream.iter_mut().zip(0u8..) {
            if let Some(last) = block.last_mut() {
                *last += counter;
            }
        }
        self.cipher.encrypt_blocks(&mut stream);
        let (pieces, tail) = data.as_chunks_mut::<TAG_LEN>();
        let mut blocks = stream.iter();
        for (piece, block) in pieces.iter_mut().zip(&mut blocks) {
            add(piece, block);
        }
        if let Some(block) = blocks.next() {
            add(tail, block);
        }
    }
}

/// UIV+: a permutation of a body.
#[derive(Clone)]
pub(super) struct Portable<W: Way> {
    tweaked: Tweaked<W>,
    prf: Prf,
}

impl<W: Way> Portable<W> {
    pub(super) fn new(keys: &[u8; WIDE_KEY_LEN]) -> Self {
        let mut parts = [[0; TAG_LEN]; 4];
        for (part, key) in parts.iter_mut().zip(keys.chunks(TAG_LEN)) {
            part.copy_from_slice(key);
        }
        let [cipher, hash, prf_cipher, prf_hash] = &parts;
        let wide = Self {
            tweaked: Tweaked::new(cipher, hash),
            prf: Prf::new(prf_cipher, prf_hash),
        };
        parts.zeroize();
        wide
    }

    /// Permutes a body in place.
    #[inline]
    pub(super) fn apply(&self, before: &Tag, command: u8, body: &mut [u8; BODY_LEN]) {
        let Some((tag, rest)) = body.split_first_chunk_mut::<TAG_LEN>() else {
            return;
        };
        let Some(rest) = rest.first_chunk_mut::<REST_LEN>() else {
            return;
        };
        if W::ENCRYPTS {
            self.tweaked.apply(before, command, rest, tag);
            self.prf.add::<REST_BLOCKS>(tag, 0, rest);
        } else {
            self.prf.add::<REST_BLOCKS>(tag, 0, rest);
            self.tweaked.apply(before, command, rest, tag);
        }
    }

    /// Replaces the keys and the nonce by those after them, which do not reveal these.
    pub(super) fn update(&mut self, nonce: &mut Tag) {
        let mut new = Zeroizing::new([0; DIRECTION_LEN]);
        self.prf
            .add::<{ DIRECTION_LEN / TAG_LEN }>(nonce, NEW_KEYS_FROM, &mut new[..]);
        let (keys, next) = split(&new);
        *self = Self::new(keys);
        *nonce = *next;
    }
}

#[inline]
fn add(to: &mut [u8], what: &[u8]) {
    for (place, byte) in to.iter_mut().zip(what) {
        *place ^= byte;
    }
}
