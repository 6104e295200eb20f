//! tor1 relay-cell encryption, in place on one cell body (tor-spec 5.5, 6.1).
//!
//! A body is the 509 bytes of a RELAY or RELAY_EARLY cell:
//!
//! ```text
//! command 1 | recognized 2 | stream id 2 | digest 4 | length 2 | data and padding 498
//! ```
//!
//! [`RelayCrypt`] is a relay's side of a circuit; the origin's, a layer for each
//! hop, is in [`crate::circuit`]. Neither allocates per cell. The running digest is computed
//! only over cells whose `recognized` field is zero after decryption: all that
//! end here, and one in 65,536 of those that pass.

use sha1::{Digest, Sha1};

use crate::aes_ctr::Aes128Ctr;
use crate::intro::KH_LEN;
use crate::keys::Tor1Keys;

/// Length of a relay cell's body: the payload of a fixed-length cell.
pub const BODY_LEN: usize = 509;

/// The encryption and digest state of one direction of one hop.
///
/// It begins with a line of the processor's cache: then a passing cell of a circuit that is not in the cache
/// needs three, and never four. The memory of one takes no more by that.
#[derive(Clone)]
#[repr(C, align(64))]
struct Direction {
    /// Key stream (Kf or Kb).
    stream: Aes128Ctr,
    /// Digest of every cell that began or ended at this hop, seeded with Df
    /// or Db.
    digest: Sha1,
    /// KH of the handshake, in a relay's forward direction. It lies in what the alignment leaves: the memory of a circuit
    /// takes no more by it.
    kh: [u8; KH_LEN],
}

impl Direction {
    fn new(key: &[u8; 16], seed: &[u8; 20]) -> Self {
        Self {
            stream: Aes128Ctr::new(key),
            digest: Sha1::new_with_prefix(seed),
            kh: [0; KH_LEN],
        }
    }

    /// Adds or removes one layer: the same operation in counter mode.
    #[inline]
    fn apply(&mut self, body: &mut [u8; BODY_LEN]) {
        self.stream.apply(body);
    }

    /// Returns true if the decrypted `body` ends at this hop. If so, the digest has absorbed it and
    /// the digest field is zero; if not, body and digest are unchanged.
    #[inline]
    fn recognize(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        // First the two bytes by which 65,535 of 65,536 passing cells are known.
        if body[1] != 0 || body[2] != 0 {
            return false;
        }
        self.check_digest(body)
    }

    /// The second, expensive half of [`Self::recognize`].
    fn check_digest(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        let received = take_digest_field(body);
        let mut candidate = self.digest.clone();
        candidate.update(&body[..]);
        let computed = digest_field(&candidate.clone().finalize().into());
        if computed == received {
            self.digest = candidate;
            true
        } else {
            body[5..9].copy_from_slice(&received);
            false
        }
    }

    /// Takes a new cell of this hop into the digest and fills its
    /// `recognized` and digest fields.
    fn seal(&mut self, body: &mut [u8; BODY_LEN]) {
        body[1..3].fill(0);
        take_digest_field(body);
        self.digest.update(&body[..]);
        let field = digest_field(&self.running_digest());
        body[5..9].copy_from_slice(&field);
    }

    /// The full digest so far.
    fn running_digest(&self) -> [u8; 20] {
        self.digest.clone().finalize().into()
    }
}

/// The digest field, which is left zero, as the digest is computed over it.
#[inline]
fn take_digest_field(body: &mut [u8; BODY_LEN]) -> [u8; 4] {
    let field = [body[5], body[6], body[7], body[8]];
    body[5..9].fill(0);
    field
}

/// The part of a digest that is carried in a cell.
#[inline]
fn digest_field(digest: &[u8; 20]) -> [u8; 4] {
    [digest[0], digest[1], digest[2], digest[3]]
}

/// The relay's side of one circuit.
///
/// The two directions are independent: a cell of one never changes the state
/// of the other.
#[derive(Clone)]
pub struct RelayCrypt {
    forward: Direction,
    backward: Direction,
}

/// Shows nothing: it is all keys.
impl std::fmt::Debug for RelayCrypt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayCrypt").finish_non_exhaustive()
    }
}

impl RelayCrypt {
    /// State of a circuit whose handshake left `keys`.
    pub fn new(keys: &Tor1Keys) -> Self {
        let mut forward = Direction::new(&keys.kf, &keys.df);
        forward.kh = keys.kh;
        Self {
            forward,
            backward: Direction::new(&keys.kb, &keys.db),
        }
    }

    /// KH of the handshake.
    pub(crate) fn kh(&self) -> &[u8; KH_LEN] {
        &self.forward.kh
    }

    /// Bytes of the backward key stream used so far: more after each backward cell.
    pub(crate) fn backward_position(&self) -> u64 {
        self.backward.stream.position()
    }

    /// Removes this hop's layer from a forward cell.
    ///
    /// True: the cell is recognized, that is, for this relay; its digest field
    /// is left zero. False: it is for a later hop and `body` is exactly what
    /// is sent on; the digest state is unchanged.
    #[inline]
    pub fn decrypt_forward(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        self.forward.apply(body);
        self.forward.recognize(body)
    }

    /// As [`decrypt_forward`](Self::decrypt_forward), but from one place to another: `from` is the
    /// body as received, `to` becomes what `body` would. The old content of `to` is lost.
    #[inline]
    pub fn decrypt_forward_to(&mut self, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) -> bool {
        self.forward.stream.apply_to(from, to);
        self.forward.recognize(to)
    }

    /// As [`encrypt_backward`](Self::encrypt_backward), but from one place to another.
    #[inline]
    pub fn encrypt_backward_to(&mut self, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) {
        self.backward.stream.apply_to(from, to);
    }

    /// Adds this hop's layer to a backward cell.
    #[inline]
    pub fn encrypt_backward(&mut self, body: &mut [u8; BODY_LEN]) {
        self.backward.apply(body);
    }

    /// Seals and encrypts a message of this relay's own for the backward direction:
    /// zeroes `recognized`, fills the digest, then adds this hop's layer.
    pub fn originate_backward(&mut self, body: &mut [u8; BODY_LEN]) {
        self.backward.seal(body);
        self.backward.apply(body);
    }

    /// The running digest after the last recognized cell: what an
    /// authenticated SENDME that this relay sends must carry when the last
    /// recognized cell is the one that called for it (tor-spec 7.3.1).
    /// Before the first recognized cell, the digest of the seed.
    pub fn forward_digest(&self) -> [u8; 20] {
        self.forward.running_digest()
    }

    /// The running digest after the last originated cell: what an
    /// authenticated SENDME for it will have to carry. Before the first
    /// originated cell, the digest of the seed.
    pub fn backward_digest(&self) -> [u8; 20] {
        self.backward.running_digest()
    }
}

/// The origin's side of one hop.
#[derive(Clone)]
pub(crate) struct Tor1Hop {
    forward: Direction,
    backward: Direction,
}

impl Tor1Hop {
    pub(crate) fn new(keys: &Tor1Keys) -> Self {
        Self {
            forward: Direction::new(&keys.kf, &keys.df),
            backward: Direction::new(&keys.kb, &keys.db),
        }
    }

    /// Makes `body` a message for this hop: zeroes `recognized`, fills the
    /// digest, adds this hop's layer. Nearer hops [add](Self::add) theirs.
    #[inline]
    pub(crate) fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        self.forward.seal(body);
        self.forward.apply(body);
    }

    /// Adds this hop's layer to a message for a hop further out.
    #[inline]
    pub(crate) fn add(&mut self, body: &mut [u8; BODY_LEN]) {
        self.forward.apply(body);
    }

    /// Removes this hop's layer from a backward cell. True: this hop sent it.
    #[inline]
    pub(crate) fn remove(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        self.backward.apply(body);
        self.backward.recognize(body)
    }

    /// As [`remove`](Self::remove), from one place to another.
    #[inline]
    pub(crate) fn remove_to(&mut self, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) -> bool {
        self.backward.stream.apply_to(from, to);
        self.backward.recognize(to)
    }

    /// The running digest of messages to this hop.
    pub(crate) fn forward_digest(&self) -> [u8; 20] {
        self.forward.running_digest()
    }

    /// The running digest of messages from this hop.
    pub(crate) fn backward_digest(&self) -> [u8; 20] {
        self.backward.running_digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(fill: u8) -> Tor1Keys {
        let mut material = [fill; Tor1Keys::LEN];
        // Each key its own: a swapped pair must be noticed.
        for (i, byte) in material.iter_mut().enumerate() {
            *byte = byte.wrapping_add(u8::try_from(i).unwrap());
        }
        Tor1Keys::from_key_material(&material)
    }

    fn message(fill: u8) -> [u8; BODY_LEN] {
        let mut body = [fill; BODY_LEN];
        body[1..3].fill(0);
        body[5..9].fill(0);
        body
    }

    #[test]
    fn a_message_is_recognized_by_its_hop_with_the_digest_field_zero() {
        let mut client = Tor1Hop::new(&keys(1));
        let mut relay = RelayCrypt::new(&keys(1));
        for n in 0..100 {
            let mut body = message(n);
            client.originate(&mut body);
            let mut moved = [0; BODY_LEN];
            assert!(relay.clone().decrypt_forward_to(&body, &mut moved));
            assert_eq!(moved, message(n));
            let mut moved = [0; BODY_LEN];
            relay.clone().encrypt_backward_to(&body, &mut moved);
            relay.clone().encrypt_backward(&mut moved);
            assert_eq!(moved, body);
            assert!(relay.decrypt_forward(&mut body));
            assert_eq!(body, message(n));
            assert_eq!(client.forward_digest(), relay.forward_digest());
        }
    }

    #[test]
    fn an_originated_message_comes_back_from_its_hop() {
        let mut client = Tor1Hop::new(&keys(1));
        let mut relay = RelayCrypt::new(&keys(1));
        for n in 0..100 {
            let mut body = message(n);
            relay.originate_backward(&mut body);
            assert!(client.remove(&mut body));
            assert_eq!(body, message(n));
            assert_eq!(client.backward_digest(), relay.backward_digest());
        }
    }

    #[test]
    fn fields_left_from_an_earlier_use_of_the_buffer_do_no_harm() {
        let mut client = Tor1Hop::new(&keys(1));
        let mut relay = RelayCrypt::new(&keys(1));
        let mut body = [7; BODY_LEN];
        client.originate(&mut body);
        assert!(relay.decrypt_forward(&mut body));
        assert_eq!(body, message(7));
        let mut body = [8; BODY_LEN];
        relay.originate_backward(&mut body);
        assert!(client.remove(&mut body));
        assert_eq!(body, message(8));
    }

    #[test]
    fn a_digest_that_is_right_does_not_make_up_for_a_field_that_is_not_zero() {
        let k = keys(3);
        for at in [1, 2] {
            // As the origin seals a cell, but for one byte of `recognized`.
            let mut sender = Direction::new(&k.kf, &k.df);
            let mut body = message(9);
            body[at] = 1;
            sender.digest.update(&body[..]);
            let digest = digest_field(&sender.running_digest());
            body[5..9].copy_from_slice(&digest);
            let passing = body;
            sender.apply(&mut body);
            let mut relay = RelayCrypt::new(&k);
            let before = relay.forward_digest();
            assert!(!relay.decrypt_forward(&mut body));
            assert_eq!(body, passing);
            assert_eq!(relay.forward_digest(), before);
        }
    }

    #[test]
    fn recognized_zero_with_a_wrong_digest_passes_unchanged() {
        // The stream of the relay, to build a cell that decrypts to what we want.
        let k = keys(3);
        let mut body = message(9);
        body[5..9].copy_from_slice(&[1, 2, 3, 4]);
        let passing = body;
        Aes128Ctr::new(&k.kf).apply(&mut body);
        let mut relay = RelayCrypt::new(&k);
        let before = relay.forward_digest();
        assert!(!relay.decrypt_forward(&mut body));
        assert_eq!(body, passing);
        assert_eq!(relay.forward_digest(), before);
    }
}
