//! Counter Galois Onion (proposal 359): relay-cell encryption that cannot be tagged.
//!
//! tor1 adds a key stream, so an attacker that flips a bit of a cell finds that bit flipped at the far end.
//! Here every layer is a permutation of the whole body (UIV+): the first 16 bytes, the *tag*, are
//! enciphered under a tweak made of all the others, and then choose the key stream of those. One
//! flipped bit makes noise of this cell and, as each tag is a tweak of the next cell, of all
//! later ones. After each message of a hop's own its keys are replaced, for forward secrecy.
//!
//! A body is the 509 bytes of a RELAY or RELAY_EARLY cell:
//!
//! ```text
//! tag 16 | command 1 | length 2 | stream id 2, for messages of streams | data and padding
//! ```
//!
//! Relays encrypt in both directions and clients decrypt in both, since only UIV+'s encryption is
//! not malleable. The cell's own command, RELAY or RELAY_EARLY, is part of the tweak.
//!
//! [`CgoRelay`] is a relay's side of a circuit; the origin's, a layer for each hop, is in
//! [`crate::circuit`]. Neither allocates per cell. Where the processor has wide AES and carry-less
//! multiplication, `wide.rs` takes a quarter of the time of `portable.rs` for each cell. A handshake agrees on CGO by subprotocol Relay=6.

mod layout;
mod portable;
mod way;
#[cfg(target_arch = "x86_64")]
mod wide;

use subtle::ConstantTimeEq;
use tor_cell::chancell::ChanCmd;
use zeroize::{Zeroize, ZeroizeOnDrop};

use self::layout::{DIRECTION_LEN, WIDE_KEY_LEN, split};
pub use self::layout::{TAG_LEN, Tag};
use self::portable::Portable;
use self::way::{Decrypt, Encrypt, Way};
use crate::intro::KH_LEN;
use crate::relay_cell::BODY_LEN;

/// Keys of one hop under CGO with AES-128. Both ends of the hop hold the same value. Wiped when
/// dropped, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct CgoKeys {
    forward: [u8; DIRECTION_LEN],
    backward: [u8; DIRECTION_LEN],
    /// KH: binds later messages of this hop (an ESTABLISH_INTRO) to this handshake.
    pub(crate) kh: [u8; KH_LEN],
}

impl CgoKeys {
    /// Length of the key material that one hop takes, KH included.
    pub const LEN: usize = 2 * DIRECTION_LEN + KH_LEN;

    /// Splits `material`: forward, then backward, then KH.
    pub fn from_key_material(material: &[u8; Self::LEN]) -> Self {
        let mut keys = Self {
            forward: [0; DIRECTION_LEN],
            backward: [0; DIRECTION_LEN],
            kh: [0; KH_LEN],
        };
        let (forward, rest) = material.split_at(DIRECTION_LEN);
        let (backward, kh) = rest.split_at(DIRECTION_LEN);
        keys.forward.copy_from_slice(forward);
        keys.backward.copy_from_slice(backward);
        keys.kh.copy_from_slice(kh);
        keys
    }
}

impl std::fmt::Debug for CgoKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CgoKeys(..)")
    }
}

/// UIV+: a permutation of a body, by the implementation that this processor takes.
#[allow(clippy::large_enum_variant)] // a processor that takes the small one takes no other
#[derive(Clone)]
enum Uiv<W: Way> {
    #[cfg(target_arch = "x86_64")]
    Wide(wide::Wide<W>),
    // Boxed: it has room for software schedules.
    Portable(Box<Portable<W>>),
}

impl<W: Way> Uiv<W> {
    fn new(keys: &[u8; WIDE_KEY_LEN]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = wide::Wide::new(keys) {
            return Self::Wide(wide);
        }
        Self::portable(keys)
    }

    fn portable(keys: &[u8; WIDE_KEY_LEN]) -> Self {
        Self::Portable(Box::new(Portable::new(keys)))
    }

    /// Permutes a body under the tweak of the tag before and the cell's command, in place.
    #[inline]
    fn apply(&self, before: &Tag, command: u8, body: &mut [u8; BODY_LEN]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide(uiv) => uiv.apply(before, command, body),
            Self::Portable(uiv) => uiv.apply(before, command, body),
        }
    }

    /// Permutes `from` into `to`.
    #[inline]
    fn apply_to(&self, before: &Tag, command: u8, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide(uiv) => uiv.apply_to(before, command, from, to),
            Self::Portable(uiv) => {
                *to = *from;
                uiv.apply(before, command, to);
            }
        }
    }

    /// Replaces the keys and the nonce by those after them, which do not reveal these.
    fn update(&mut self, nonce: &mut Tag) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide(uiv) => uiv.update(nonce),
            Self::Portable(uiv) => uiv.update(nonce),
        }
    }
}

/// One direction of one hop. Wiped when dropped.
#[derive(Clone, ZeroizeOnDrop)]
struct Layer<W: Way> {
    /// It wipes itself.
    #[zeroize(skip)]
    uiv: Uiv<W>,
    /// The tag of the hop's next own message where it is not encrypted.
    nonce: Tag,
    /// The tag of the cell before, as it left the relay.
    before: Tag,
}

impl<W: Way> Layer<W> {
    fn new(keys: &[u8; DIRECTION_LEN]) -> Self {
        let (uiv, nonce) = split(keys);
        Self {
            uiv: Uiv::new(uiv),
            nonce: *nonce,
            before: [0; TAG_LEN],
        }
    }

    /// Permutes the body; the tweak of the next cell is for the caller to set.
    #[inline]
    fn apply(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) {
        self.uiv.apply(&self.before, command.into(), body);
    }

    /// As [`apply`](Self::apply), but from one place to another.
    #[inline]
    fn apply_to(&mut self, command: ChanCmd, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) {
        self.uiv.apply_to(&self.before, command.into(), from, to);
    }

    /// Returns true if the body's tag is the nonce.
    #[inline]
    fn is_own(&self, body: &[u8; BODY_LEN]) -> bool {
        let number = |tag: &Tag| u128::from_le_bytes(*tag);
        number(&self.nonce).ct_eq(&number(tag(body))).into()
    }

    fn update(&mut self) {
        self.uiv.update(&mut self.nonce);
    }
}

/// The relay's side of one circuit.
///
/// The two directions are independent, and their cells must be worked on in order.
#[derive(Clone)]
pub struct CgoRelay {
    forward: Layer<Encrypt>,
    backward: Layer<Encrypt>,
    /// KH of the handshake.
    kh: [u8; KH_LEN],
}

/// Shows nothing: it is all keys.
impl std::fmt::Debug for CgoRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CgoRelay").finish_non_exhaustive()
    }
}

impl CgoRelay {
    /// State of a circuit whose handshake left `keys`.
    pub fn new(keys: &CgoKeys) -> Self {
        Self {
            forward: Layer::new(&keys.forward),
            backward: Layer::new(&keys.backward),
            kh: keys.kh,
        }
    }

    /// KH of the handshake.
    pub(crate) fn kh(&self) -> &[u8; KH_LEN] {
        &self.kh
    }

    /// The tag of the last backward cell: another one after each.
    pub(crate) fn last_backward(&self) -> Tag {
        self.backward.before
    }

    /// Removes this hop's layer from a forward cell, whose command is `command`.
    ///
    /// `Some`: the cell is for this relay; a SENDME for it carries this tag. `None`: it is for a
    /// later hop, and `body` is what is sent on.
    #[inline]
    pub fn decrypt_forward(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) -> Option<Tag> {
        let received = *tag(body);
        self.forward.apply(command, body);
        self.forward.before = *tag(body);
        self.forward.is_own(body).then(|| {
            self.forward.update();
            received
        })
    }

    /// As [`decrypt_forward`](Self::decrypt_forward), but from one place to another: `from` is the
    /// body as received, `to` becomes what `body` would. The old content of `to` is lost.
    #[inline]
    pub fn decrypt_forward_to(
        &mut self,
        command: ChanCmd,
        from: &[u8; BODY_LEN],
        to: &mut [u8; BODY_LEN],
    ) -> Option<Tag> {
        self.forward.apply_to(command, from, to);
        self.forward.before = *tag(to);
        self.forward.is_own(to).then(|| {
            self.forward.update();
            *tag(from)
        })
    }

    /// As [`encrypt_backward`](Self::encrypt_backward), but from one place to another.
    #[inline]
    pub fn encrypt_backward_to(
        &mut self,
        command: ChanCmd,
        from: &[u8; BODY_LEN],
        to: &mut [u8; BODY_LEN],
    ) {
        self.backward.apply_to(command, from, to);
        self.backward.before = *tag(to);
    }

    /// Adds this hop's layer to a backward cell.
    #[inline]
    pub fn encrypt_backward(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) {
        self.backward.apply(command, body);
        self.backward.before = *tag(body);
    }

    /// Seals and encrypts a message of this relay's own for the backward direction: fills its tag, then
    /// adds this hop's layer. A SENDME for it will have to carry the tag that is returned.
    pub fn originate_backward(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) -> Tag {
        set_tag(body, &self.backward.nonce);
        self.encrypt_backward(command, body);
        self.backward.nonce = *tag(body);
        self.backward.update();
        *tag(body)
    }
}

/// The origin's side of one hop.
#[derive(Clone)]
pub(crate) struct CgoHop {
    forward: Layer<Decrypt>,
    backward: Layer<Decrypt>,
}

impl CgoHop {
    /// The hop whose handshake left `keys` at the far end.
    pub(crate) fn new(keys: &CgoKeys) -> Self {
        Self {
            forward: Layer::new(&keys.forward),
            backward: Layer::new(&keys.backward),
        }
    }

    /// Makes `body` a message for this hop: fills its tag, then adds this hop's layer. A SENDME for
    /// it has to carry the tag that is returned. Nearer hops [add](Self::add) theirs to it.
    pub(crate) fn originate(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) -> Tag {
        set_tag(body, &self.forward.nonce);
        self.add(command, body);
        self.forward.update();
        *tag(body)
    }

    /// Adds this hop's layer to a message for a hop further out.
    #[inline]
    pub(crate) fn add(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) {
        let next = *tag(body);
        self.forward.apply(command, body);
        self.forward.before = next;
    }

    /// Removes this hop's layer from a backward cell.
    ///
    /// `Some`: this hop sent it; a SENDME for it carries this tag. `None`: it is for the next hop
    /// further out to recognize.
    #[inline]
    pub(crate) fn remove(&mut self, command: ChanCmd, body: &mut [u8; BODY_LEN]) -> Option<Tag> {
        let received = *tag(body);
        self.backward.apply(command, body);
        self.backward.before = received;
        self.backward.is_own(body).then(|| {
            self.backward.nonce = received;
            self.backward.update();
            received
        })
    }
}

/// A body's tag.
#[inline]
fn tag(body: &[u8; BODY_LEN]) -> &Tag {
    const NONE: &Tag = &[0; TAG_LEN];
    body.first_chunk().unwrap_or(NONE)
}

#[inline]
fn set_tag(body: &mut [u8; BODY_LEN], tag: &Tag) {
    if let Some(place) = body.first_chunk_mut() {
        *place = *tag;
    }
}

#[cfg(test)]
mod tests;
