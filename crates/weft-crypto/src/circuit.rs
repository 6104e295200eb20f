//! A circuit's encryption, whichever kind each hop's handshake agreed on: tor1 ([`crate::relay_cell`])
//! or Counter Galois Onion ([`crate::cgo`]).
//!
//! Here a message lies in its body in tor1's layout, before it is sealed and after it was recognized,
//! under CGO too ([`weft_cell::relay_v1`]).

use subtle::ConstantTimeEq as _;
use tor_cell::chancell::ChanCmd;
use weft_cell::relay_v1::{self, NoSuchMessage};
use weft_cell::stream_msg::Seen;
use weft_planted::{Fault, planted};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::cgo::{CgoHop, CgoKeys, CgoRelay, Tag};
use crate::intro::{KH_LEN, handshake_auth};
use crate::keys::Tor1Keys;
use crate::relay_cell::{BODY_LEN, RelayCrypt, Tor1Hop};

/// The keys of one hop, and with them how it encrypts. Both ends of the hop hold the same value.
#[derive(Clone, Debug, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub enum HopKeys {
    /// tor1.
    Tor1(Tor1Keys),
    /// Counter Galois Onion.
    Cgo(CgoKeys),
}

impl HopKeys {
    /// tor1's, if it is that.
    pub fn tor1(&self) -> Option<&Tor1Keys> {
        match self {
            HopKeys::Tor1(keys) => Some(keys),
            HopKeys::Cgo(_) => None,
        }
    }

    /// KH, which binds later messages of the hop to its handshake.
    pub fn kh(&self) -> &[u8; KH_LEN] {
        match self {
            HopKeys::Tor1(keys) => &keys.kh,
            HopKeys::Cgo(keys) => &keys.kh,
        }
    }
}

impl From<Tor1Keys> for HopKeys {
    fn from(keys: Tor1Keys) -> Self {
        HopKeys::Tor1(keys)
    }
}

impl From<CgoKeys> for HopKeys {
    fn from(keys: CgoKeys) -> Self {
        HopKeys::Cgo(keys)
    }
}

/// One end of a hop under CGO, and the tags that SENDMEs are about.
#[derive(Clone)]
struct Cgo<T> {
    crypt: T,
    /// Of the last message that was sealed here.
    sent: Tag,
    /// Of the last that was recognized here.
    received: Tag,
}

impl<T> Cgo<T> {
    fn new(crypt: T) -> Box<Self> {
        Box::new(Self {
            crypt,
            sent: Tag::default(),
            received: Tag::default(),
        })
    }
}

impl Cgo<CgoHop> {
    /// Removes the hop's layer from a backward cell. True: the hop sent it.
    #[inline]
    fn remove(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        let Some(tag) = self.crypt.remove(ChanCmd::RELAY, body) else {
            return false;
        };
        self.received = tag;
        relay_v1::to_tor1(body);
        true
    }
}

/// State of the backward direction of a relay's circuit: it differs after each cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardMark {
    /// Bytes of key stream that tor1 has used.
    Position(u64),
    /// The tag of the last cell under Counter Galois Onion.
    Tag(Tag),
}

/// The relay's side of one circuit.
///
/// The two directions are independent; the cells of each must be worked on in order.
#[derive(Clone)]
pub struct RelayCircuit(RelayKind);

#[derive(Clone)]
enum RelayKind {
    Tor1(Box<RelayCrypt>),
    Cgo(Box<Cgo<CgoRelay>>),
}

/// Shows nothing, since it is all keys.
impl std::fmt::Debug for RelayCircuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayCircuit").finish_non_exhaustive()
    }
}

impl RelayCircuit {
    /// State of a circuit whose handshake left `keys`.
    pub fn new(keys: &HopKeys) -> Self {
        RelayCircuit(match keys {
            HopKeys::Tor1(keys) => RelayKind::Tor1(Box::new(RelayCrypt::new(keys))),
            HopKeys::Cgo(keys) => RelayKind::Cgo(Cgo::new(CgoRelay::new(keys))),
        })
    }

    /// Returns true for Counter Galois Onion.
    pub fn is_cgo(&self) -> bool {
        matches!(self.0, RelayKind::Cgo(_))
    }

    /// Bytes of memory that it points to.
    pub fn memory(&self) -> usize {
        match &self.0 {
            RelayKind::Tor1(crypt) => size_of_val(&**crypt),
            RelayKind::Cgo(cgo) => size_of_val(&**cgo),
        }
    }

    /// Returns true if the circuit's origin made a message with this MAC over `covered`: it has the
    /// KH of the handshake, too.
    pub fn authenticates(&self, covered: &[u8], mac: &[u8; 32]) -> bool {
        let kh = match &self.0 {
            RelayKind::Tor1(crypt) => crypt.kh(),
            RelayKind::Cgo(cgo) => cgo.crypt.kh(),
        };
        handshake_auth(kh, covered).ct_eq(mac).into()
    }

    /// State of the backward direction. Reading it adds no work to the cell path.
    pub fn backward_mark(&self) -> BackwardMark {
        match &self.0 {
            RelayKind::Tor1(crypt) => BackwardMark::Position(crypt.backward_position()),
            RelayKind::Cgo(cgo) => BackwardMark::Tag(cgo.crypt.last_backward()),
        }
    }

    /// Removes this hop's layer from a forward cell of this command: `from` is its body as
    /// received, `to` becomes the body to send on. The old content of `to` is lost.
    ///
    /// True: the cell is recognized, that is, for this relay. False: it is for a later hop.
    #[inline]
    pub fn decrypt_forward_to(
        &mut self,
        command: ChanCmd,
        from: &[u8; BODY_LEN],
        to: &mut [u8; BODY_LEN],
    ) -> bool {
        match &mut self.0 {
            RelayKind::Tor1(crypt) => crypt.decrypt_forward_to(from, to),
            RelayKind::Cgo(cgo) => {
                let Some(tag) = cgo.crypt.decrypt_forward_to(command, from, to) else {
                    return false;
                };
                cgo.received = tag;
                relay_v1::to_tor1(to);
                true
            }
        }
    }

    /// Adds this hop's layer to a backward cell; from one place to another, as
    /// [`decrypt_forward_to`](Self::decrypt_forward_to).
    #[inline]
    pub fn encrypt_backward_to(&mut self, from: &[u8; BODY_LEN], to: &mut [u8; BODY_LEN]) {
        match &mut self.0 {
            RelayKind::Tor1(crypt) => crypt.encrypt_backward_to(from, to),
            RelayKind::Cgo(cgo) => cgo.crypt.encrypt_backward_to(ChanCmd::RELAY, from, to),
        }
    }

    /// Adds this hop's layer to a backward cell, in place.
    #[inline]
    pub fn encrypt_backward(&mut self, body: &mut [u8; BODY_LEN]) {
        if planted(Fault::LayerLeftOut) {
            return;
        }
        match &mut self.0 {
            RelayKind::Tor1(crypt) => crypt.encrypt_backward(body),
            RelayKind::Cgo(cgo) => cgo.crypt.encrypt_backward(ChanCmd::RELAY, body),
        }
    }

    /// Seals and encrypts a message of this relay's own, in a RELAY cell of the backward direction.
    ///
    /// # Errors
    ///
    /// This hop's encryption cannot encode it; nothing has changed.
    #[inline]
    pub fn originate_backward(&mut self, body: &mut [u8; BODY_LEN]) -> Result<(), NoSuchMessage> {
        match &mut self.0 {
            RelayKind::Tor1(crypt) => crypt.originate_backward(body),
            RelayKind::Cgo(cgo) => {
                relay_v1::from_tor1(body)?;
                cgo.sent = cgo.crypt.originate_backward(ChanCmd::RELAY, body);
            }
        }
        Ok(())
    }

    /// Digest or tag for a SENDME of this relay, for the last recognized cell (tor-spec 7.3.1).
    pub fn received(&self) -> Seen {
        match &self.0 {
            RelayKind::Tor1(crypt) => Seen::Digest(crypt.forward_digest()),
            RelayKind::Cgo(cgo) => Seen::Tag(cgo.received),
        }
    }

    /// Digest or tag that a SENDME for the last originated message must have.
    pub fn sent(&self) -> Seen {
        match &self.0 {
            RelayKind::Tor1(crypt) => Seen::Digest(crypt.backward_digest()),
            RelayKind::Cgo(cgo) => Seen::Tag(cgo.sent),
        }
    }
}

/// The origin's side of a circuit: one layer for each hop, nearest first.
#[derive(Clone, Default)]
pub struct OriginCircuit {
    hops: Vec<OriginHop>,
}

#[derive(Clone)]
enum OriginHop {
    Tor1(Box<Tor1Hop>),
    Cgo(Box<Cgo<CgoHop>>),
}

impl OriginHop {
    /// Removes the hop's layer from a backward cell. True: the hop sent it.
    #[inline]
    fn remove(&mut self, body: &mut [u8; BODY_LEN]) -> bool {
        match self {
            OriginHop::Tor1(tor1) => tor1.remove(body),
            OriginHop::Cgo(cgo) => cgo.remove(body),
        }
    }
}

/// Shows nothing but its length: it is all keys.
impl std::fmt::Debug for OriginCircuit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OriginCircuit")
            .field("hops", &self.hops.len())
            .finish_non_exhaustive()
    }
}

impl OriginCircuit {
    /// A circuit that has no hop yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the hop whose handshake left `keys` at the far end.
    pub fn add_hop(&mut self, keys: &HopKeys) {
        self.hops.push(match keys {
            HopKeys::Tor1(keys) => OriginHop::Tor1(Box::new(Tor1Hop::new(keys))),
            HopKeys::Cgo(keys) => OriginHop::Cgo(Cgo::new(CgoHop::new(keys))),
        });
    }

    /// The number of hops.
    pub fn len(&self) -> usize {
        self.hops.len()
    }

    /// Bytes of memory that it points to.
    pub fn memory(&self) -> usize {
        let hops = self.hops.iter().map(|hop| match hop {
            OriginHop::Tor1(hop) => size_of_val(&**hop),
            OriginHop::Cgo(hop) => size_of_val(&**hop),
        });
        hops.sum::<usize>() + self.hops.capacity() * size_of::<OriginHop>()
    }

    /// Returns true if there is no hop yet.
    pub fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// Returns true if the hop uses Counter Galois Onion.
    pub fn is_cgo(&self, hop: usize) -> bool {
        matches!(self.hops.get(hop), Some(OriginHop::Cgo(_)))
    }

    /// Makes `body` a message for hop number `hop` (0 is the nearest), in a cell of this command: seals
    /// it for that hop and adds the layers of all before.
    ///
    /// # Errors
    ///
    /// The circuit has no such hop, or the hop's encryption cannot encode it; nothing has changed.
    pub fn encrypt_forward(
        &mut self,
        hop: usize,
        command: ChanCmd,
        body: &mut [u8; BODY_LEN],
    ) -> Result<(), EncryptError> {
        let Some((destination, nearer)) =
            (self.hops.get_mut(..=hop)).and_then(|hops| hops.split_last_mut())
        else {
            return Err(EncryptError::NoHop);
        };
        match destination {
            OriginHop::Tor1(tor1) => tor1.originate(body),
            OriginHop::Cgo(cgo) => {
                relay_v1::from_tor1(body)?;
                cgo.sent = cgo.crypt.originate(command, body);
            }
        }
        for hop in nearer.iter_mut().rev() {
            match hop {
                OriginHop::Tor1(tor1) => tor1.add(body),
                OriginHop::Cgo(cgo) => cgo.crypt.add(command, body),
            }
        }
        Ok(())
    }

    /// Removes layers from a RELAY cell that came from the nearest hop until one is recognized, in place,
    /// and returns which hop sent it.
    ///
    /// `None`: no hop recognizes it. All hops have moved on; the circuit is of no more use and must be
    /// closed.
    pub fn decrypt_backward(&mut self, body: &mut [u8; BODY_LEN]) -> Option<usize> {
        self.hops.iter_mut().position(|hop| hop.remove(body))
    }

    /// Removes layers from a RELAY cell that came from the nearest hop until one is recognized, as
    /// [`decrypt_backward`](Self::decrypt_backward), but from one place to another: `from` is its
    /// body as received, `to` becomes the message. The old content of `to` is lost.
    pub fn decrypt_backward_to(
        &mut self,
        from: &[u8; BODY_LEN],
        to: &mut [u8; BODY_LEN],
    ) -> Option<usize> {
        let (first, further) = self.hops.split_first_mut()?;
        let own = match first {
            // The nearest layer is removed on the way: `to` is often not in the cache.
            OriginHop::Tor1(tor1) => tor1.remove_to(from, to),
            OriginHop::Cgo(cgo) => {
                *to = *from;
                cgo.remove(to)
            }
        };
        if own {
            return Some(0);
        }
        let further = further.iter_mut().position(|hop| hop.remove(to));
        further.map(|hop| hop + 1)
    }

    /// Digest or tag that a SENDME from `hop` for the last message to it must have; `None` without
    /// such a hop.
    pub fn sent(&self, hop: usize) -> Option<Seen> {
        Some(match self.hops.get(hop)? {
            OriginHop::Tor1(tor1) => Seen::Digest(tor1.forward_digest()),
            OriginHop::Cgo(cgo) => Seen::Tag(cgo.sent),
        })
    }

    /// Digest or tag for a SENDME to `hop`, for its last message; `None` without such a hop.
    pub fn received(&self, hop: usize) -> Option<Seen> {
        Some(match self.hops.get(hop)? {
            OriginHop::Tor1(tor1) => Seen::Digest(tor1.backward_digest()),
            OriginHop::Cgo(cgo) => Seen::Tag(cgo.received),
        })
    }
}

/// Why a message was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptError {
    /// The circuit is shorter.
    #[error("the circuit has no such hop")]
    NoHop,
    /// See there.
    #[error(transparent)]
    Message(#[from] NoSuchMessage),
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng as _, SeedableRng};
    use tor_cell::relaycell::RelayCmd;
    use weft_cell::relay::{self, RelayBody};

    use super::*;

    fn keys(fill: u8, cgo: bool) -> HopKeys {
        match cgo {
            false => Tor1Keys::from_key_material(&[fill; Tor1Keys::LEN]).into(),
            true => CgoKeys::from_key_material(&[fill; CgoKeys::LEN]).into(),
        }
    }

    /// Circuits of every mixture of encryptions carry messages both ways between all their ends.
    #[test]
    fn hops_of_both_kinds_form_a_circuit() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for kinds in 0..8u8 {
            let mut origin = OriginCircuit::new();
            let mut relays = Vec::new();
            for hop in 0..3 {
                let keys = keys(hop + 1, kinds >> hop & 1 == 1);
                origin.add_hop(&keys);
                relays.push(RelayCircuit::new(&keys));
                assert_eq!(origin.is_cgo(hop.into()), relays[usize::from(hop)].is_cgo());
            }
            for round in 0..300u16 {
                let hop = (rng.next_u32() % 3) as usize;
                let mut data = vec![0; (rng.next_u32() % 489) as usize];
                rng.fill_bytes(&mut data);
                let mut body = [0; BODY_LEN];
                let stream = round + 1;
                relay::encode(&mut body, RelayCmd::DATA, stream, &data, &mut rng).unwrap();
                if rng.next_u32().is_multiple_of(2) {
                    let command = match rng.next_u32() % 2 {
                        0 => ChanCmd::RELAY,
                        _ => ChanCmd::RELAY_EARLY,
                    };
                    origin.encrypt_forward(hop, command, &mut body).unwrap();
                    let at = relays.iter_mut().position(|relay| {
                        let from = body;
                        relay.decrypt_forward_to(command, &from, &mut body)
                    });
                    assert_eq!(at, Some(hop));
                    assert_eq!(origin.sent(hop), Some(relays[hop].received()));
                } else {
                    let (own, nearer) = relays[..=hop].split_last_mut().unwrap();
                    own.originate_backward(&mut body).unwrap();
                    for relay in nearer.iter_mut().rev() {
                        let mut moved = [0; BODY_LEN];
                        relay.clone().encrypt_backward_to(&body, &mut moved);
                        relay.encrypt_backward(&mut body);
                        assert_eq!(moved, body);
                    }
                    let mut moved = [0; BODY_LEN];
                    let same = origin.clone().decrypt_backward_to(&body, &mut moved);
                    assert_eq!(same, Some(hop));
                    assert_eq!(origin.decrypt_backward(&mut body), Some(hop));
                    assert_eq!(moved, body);
                    assert_eq!(origin.received(hop), Some(relays[hop].sent()));
                }
                let view = RelayBody::new(&body);
                assert_eq!(view.command(), RelayCmd::DATA);
                assert_eq!(view.stream_id(), stream);
                assert_eq!(view.data(), Ok(&data[..]));
            }
        }
    }

    #[test]
    fn what_is_bound_to_another_handshake_is_not_the_origin_s() {
        for cgo in [false, true] {
            let [ours, other] = [3, 4].map(|fill| keys(fill, cgo));
            let relay = RelayCircuit::new(&ours);
            let mac = handshake_auth(ours.kh(), b"covered");
            assert!(relay.authenticates(b"covered", &mac));
            assert!(!relay.authenticates(b"Covered", &mac));
            assert!(!relay.authenticates(b"covered", &handshake_auth(other.kh(), b"covered")));
        }
    }

    #[test]
    fn each_backward_cell_and_no_forward_cell_changes_the_mark() {
        let mut rng = ChaCha8Rng::seed_from_u64(14);
        for cgo in [false, true] {
            let mut relay = RelayCircuit::new(&keys(1, cgo));
            let mut marks = vec![relay.backward_mark()];
            for round in 0..9 {
                let mut body = [round; BODY_LEN];
                match round % 3 {
                    0 => relay.encrypt_backward(&mut body),
                    1 => relay.encrypt_backward_to(&[round; BODY_LEN], &mut body),
                    _ => {
                        relay::encode(&mut body, RelayCmd::DROP, 0, &[], &mut rng).unwrap();
                        relay.originate_backward(&mut body).unwrap();
                    }
                }
                let mark = relay.backward_mark();
                assert!(!marks.contains(&mark), "{round}");
                let mut to = [0; BODY_LEN];
                relay.decrypt_forward_to(ChanCmd::RELAY, &body, &mut to);
                assert_eq!(relay.backward_mark(), mark);
                marks.push(mark);
            }
        }
    }

    #[test]
    fn keys_are_those_of_one_encryption_and_no_debug_output_has_them() {
        let tor1 = Tor1Keys::from_key_material(&[3; Tor1Keys::LEN]);
        assert_eq!(HopKeys::from(tor1.clone()).tor1(), Some(&tor1));
        assert_eq!(keys(3, true).tor1(), None);
        for cgo in [false, true] {
            let mut origin = OriginCircuit::new();
            origin.add_hop(&keys(3, cgo));
            let relay = RelayCircuit::new(&keys(3, cgo));
            let shown = format!("{origin:?} {relay:?}");
            assert!(shown.contains("OriginCircuit") && shown.contains("RelayCircuit"));
            assert!(!shown.contains('3'), "{shown}");
        }
    }

    #[test]
    fn memory_grows_with_each_hop() {
        for (cgo, hop) in [(false, size_of::<Tor1Hop>()), (true, size_of::<CgoHop>())] {
            let mut origin = OriginCircuit::new();
            assert!(origin.is_empty());
            for hops in 1..=8 {
                origin.add_hop(&keys(1, cgo));
                assert_eq!((origin.len(), origin.is_empty()), (hops, false));
                let least = hops * (hop + size_of::<OriginHop>());
                let memory = origin.memory();
                assert!((least..=2 * least + 4 * hop).contains(&memory), "{memory}");
            }
            let relay = RelayCircuit::new(&keys(1, cgo)).memory();
            assert!((hop / 2..2 * hop + 1000).contains(&relay), "{relay}");
        }
    }

    /// The sizes that a relay with tens of thousands of circuits counts on.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn kh_takes_no_memory_of_a_circuit_under_tor1() {
        assert_eq!(size_of::<RelayCrypt>(), 640);
    }

    #[test]
    fn what_cannot_be_encoded_changes_nothing() {
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let mut origin = OriginCircuit::new();
        let mut body = [0; BODY_LEN];
        relay::encode(&mut body, RelayCmd::DATA, 1, &[7; 498], &mut rng).unwrap();
        let no_hop = origin.encrypt_forward(0, ChanCmd::RELAY, &mut body);
        assert_eq!(no_hop, Err(EncryptError::NoHop));
        origin.add_hop(&keys(1, true));
        let mut relay = RelayCircuit::new(&keys(1, true));
        let too_long = origin.encrypt_forward(0, ChanCmd::RELAY, &mut body);
        assert!(matches!(too_long, Err(EncryptError::Message(_))));
        assert!(relay.originate_backward(&mut body).is_err());
        assert_eq!(RelayBody::new(&body).data(), Ok(&[7; 498][..]));
        let mut next = [0; BODY_LEN];
        relay::encode(&mut next, RelayCmd::DATA, 1, b"next", &mut rng).unwrap();
        relay.originate_backward(&mut next).unwrap();
        assert_eq!(origin.decrypt_backward_to(&next, &mut body), Some(0));
    }

    #[test]
    fn a_changed_cell_is_nobodys() {
        let mut rng = ChaCha8Rng::seed_from_u64(13);
        for cgo in [false, true] {
            let mut origin = OriginCircuit::new();
            origin.add_hop(&keys(1, cgo));
            let mut relay = RelayCircuit::new(&keys(1, cgo));
            let mut body = [0; BODY_LEN];
            relay::encode(&mut body, RelayCmd::DATA, 1, b"data", &mut rng).unwrap();
            relay.originate_backward(&mut body).unwrap();
            body[100] ^= 1;
            let mut to = [0; BODY_LEN];
            assert_eq!(origin.decrypt_backward_to(&body, &mut to), None);
        }
    }
}
