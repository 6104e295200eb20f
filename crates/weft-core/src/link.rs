//! An opened link as its connection thread keeps it: who the peer is, which circuits it carries,
//! and what is about to be written to it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::Cell;
use weft_cell::reason::DestroyReason;
use weft_share::network;

use crate::address::ConnectionId;
use crate::handshake::PeerIdentity;
use crate::ledger::{Held, queue_memory};
use crate::padding::LinkPadding;

/// DESTROYs that may wait on a link: more than all its circuits can cause at once. A peer that makes
/// us say more without reading is cut off.
pub const MAX_DESTROYS: usize = 1 << 17;

/// The bit of a circuit id that tells which side of the link chose it (tor-spec 5.1.1): set when
/// the side that opened the connection did.
pub const HIGH_BIT: u32 = 1 << 31;

/// An opened link.
#[derive(Debug)]
pub struct Link {
    /// The connection under it.
    pub connection: ConnectionId,
    /// Who the peer proved to be.
    pub peer: PeerIdentity,
    /// The network that the peer's address is in.
    pub network: IpAddr,
    /// We opened the connection.
    pub initiated: bool,
    /// Slots of the halves on this link by circuit id.
    circuits: HashMap<u32, u32, CircIdHash>,
    /// The circuit that was looked up last: cells come in runs.
    last: Option<(u32, u32)>,
    /// Cells chosen to be written next, in order.
    pub out: VecDeque<Box<Cell>>,
    /// DESTROYs that are to follow them, by circuit id: made into cells only when they can be
    /// written, since the end of another link can cause one for each circuit here.
    pub destroys: VecDeque<(u32, DestroyReason)>,
    /// The socket has not taken all that was written to it.
    pub held: bool,
    /// Halves on this link with cells waiting.
    pub active_halves: usize,
    /// Its place among the links that have something to write.
    pub listed: Option<usize>,
    /// Its TLS keys near their end: it gets no new circuits from here.
    pub worn: bool,
    /// Since when no circuit has used the link.
    pub idle_since: Option<Instant>,
    /// When something was written last.
    pub last_written: Instant,
    /// When nothing waited to be written last.
    pub last_empty: Instant,
    /// Netflow padding.
    pub padding: LinkPadding,
    /// Memory that the owner of the socket holds for what waits, as of the last report.
    pub socket_holds: usize,
}

impl Link {
    /// A link that just finished its handshake. `hash_seed` is secret randomness: circuit ids are
    /// chosen by the peer.
    pub fn new(
        connection: ConnectionId,
        peer: PeerIdentity,
        addr: IpAddr,
        initiated: bool,
        hash_seed: u64,
        padding: LinkPadding,
        now: Instant,
    ) -> Self {
        Link {
            connection,
            peer,
            network: network(addr),
            initiated,
            circuits: HashMap::with_hasher(CircIdHash(hash_seed | 1)),
            last: None,
            out: VecDeque::new(),
            destroys: VecDeque::new(),
            held: false,
            active_halves: 0,
            listed: None,
            worn: false,
            idle_since: Some(now),
            last_written: now,
            last_empty: now,
            padding,
            socket_holds: 0,
        }
    }

    /// The slot of the half with this circuit id.
    pub fn half(&mut self, circ_id: u32) -> Option<u32> {
        if let Some((id, slot)) = self.last
            && id == circ_id
        {
            return Some(slot);
        }
        let slot = *self.circuits.get(&circ_id)?;
        self.last = Some((circ_id, slot));
        Some(slot)
    }

    /// Puts a half on the link.
    pub fn add(&mut self, circ_id: u32, slot: u32) {
        self.circuits.insert(circ_id, slot);
        self.idle_since = None;
    }

    /// Takes a half off the link.
    pub fn remove(&mut self, circ_id: u32, now: Instant) {
        self.circuits.remove(&circ_id);
        self.last = None;
        if self.circuits.is_empty() {
            self.idle_since = Some(now);
        }
    }

    /// Whether a circuit id is taken.
    pub fn has(&self, circ_id: u32) -> bool {
        self.circuits.contains_key(&circ_id)
    }

    /// Nothing waits to be written, on the link itself or on its circuits.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty() && self.destroys.is_empty() && self.active_halves == 0 && !self.held
    }

    /// Circuits on the link.
    pub fn circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Slots of all halves on the link, in slot order (never in hash order).
    pub fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.circuits.values().copied().collect();
        slots.sort_unstable();
        slots
    }

    /// What waits on the link itself; its circuits' cells are theirs. It is old if nothing could be
    /// written for long: a link that moves, however full, is not.
    pub fn held(&self, now: Instant) -> Held {
        let bytes = self.out.len() * size_of::<Cell>()
            + queue_memory(&self.out)
            + queue_memory(&self.destroys)
            + self.socket_holds;
        let since = self.last_written.max(self.last_empty);
        let age = match self.is_empty() {
            true => Duration::ZERO,
            false => now.saturating_duration_since(since),
        };
        Held { bytes, age }
    }

    /// Memory of the link's own structure and tables.
    pub fn memory(&self) -> usize {
        // A slot in the thread's table, in the scheduler's and in two maps, nearly.
        let own = size_of::<Self>() + 128;
        // Of eight buckets seven are used, each with a byte of its own.
        let bucket = size_of::<(u32, u32)>() + 1;
        own + self.circuits.capacity() * 8 / 7 * bucket
    }

    /// Gives back memory that was needed for more circuits or DESTROYs.
    pub fn shrink(&mut self) {
        self.circuits.shrink_to_fit();
        self.destroys.shrink_to_fit();
        self.out.shrink_to_fit();
    }

    /// Whether the peer may choose this circuit id.
    pub fn peer_may_choose(&self, circ_id: u32) -> bool {
        circ_id != 0 && ((circ_id & HIGH_BIT != 0) != self.initiated)
    }

    /// A free circuit id of ours near a random number, or `None` when many in a row are taken.
    pub fn choose_circ_id(&self, random: u32) -> Option<u32> {
        let mine = if self.initiated { HIGH_BIT } else { 0 };
        (0..64u32)
            .map(|step| (random.wrapping_add(step) & !HIGH_BIT) | mine)
            .find(|id| *id != 0 && !self.has(*id))
    }
}

/// Hashes circuit ids with a secret multiplier: fast, and not to be steered into collisions by a
/// peer that chooses the ids but never sees the effect on one table.
#[derive(Clone, Copy, Debug)]
struct CircIdHash(u64);

impl BuildHasher for CircIdHash {
    type Hasher = CircIdHasher;
    fn build_hasher(&self) -> CircIdHasher {
        CircIdHasher {
            multiplier: self.0,
            hash: 0,
        }
    }
}

/// See [`CircIdHash`].
struct CircIdHasher {
    /// The secret.
    multiplier: u64,
    /// So far.
    hash: u64,
}

impl CircIdHasher {
    /// Multiplies to 128 bits and folds.
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.hash ^ word ^ 0x9e37_79b9_7f4a_7c15)
            * u128::from(self.multiplier ^ 0xa076_1d64_78bd_642f);
        let bytes = product.to_le_bytes();
        let mut halves = [[0u8; 8]; 2];
        halves[0].copy_from_slice(&bytes[..8]);
        halves[1].copy_from_slice(&bytes[8..]);
        self.hash = u64::from_le_bytes(halves[0]) ^ u64::from_le_bytes(halves[1]);
    }
}

impl Hasher for CircIdHasher {
    fn finish(&self) -> u64 {
        self.hash
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, id: u32) {
        self.mix(u64::from(id));
    }
}
