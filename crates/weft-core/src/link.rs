//! An opened link as its connection thread keeps it: its peer's identity, the circuits that it carries,
//! and what is about to be written to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use slab::Slab;
use weft_cell::Cell;
use weft_cell::reason::DestroyReason;
use weft_share::network;

use crate::abra::LinkFill;
use crate::address::ConnectionId;
use crate::handshake::PeerIdentity;
use crate::ledger::{Held, map_entry, queue_memory};
use crate::load::Load;
use crate::loss::LossMeter;
use crate::padding::LinkPadding;
use crate::slots::{HalfKey, LinkKey, SlotKey as _};
use crate::worklist::Worklist;

/// DESTROYs that may wait on a link: more than all its circuits can cause at once. A peer that makes
/// us send more without reading is cut off.
pub(crate) const MAX_DESTROYS: usize = 1 << 17;

/// The bit of a circuit id that marks the side of the link that chose it (tor-spec 5.1.1): set when
/// the side that opened the connection did.
pub(crate) const HIGH_BIT: u32 = 1 << 31;

/// An opened link.
#[derive(Debug)]
pub struct Link {
    /// The connection under it.
    pub connection: ConnectionId,
    /// The identity that the peer proved.
    pub peer: PeerIdentity,
    /// The network that the peer's address is in.
    pub network: IpAddr,
    /// We opened the connection.
    pub initiated: bool,
    /// Slots of the halves on this link by circuit id.
    circuits: HashMap<u32, HalfKey, CircIdHash>,
    /// The circuit that was looked up last: cells come in runs.
    last: Option<(u32, HalfKey)>,
    /// Cells chosen to be written next, in order.
    pub out: VecDeque<Box<Cell>>,
    /// DESTROYs that are to follow them, by circuit id: made into cells only when they can be
    /// written, since the end of another link can cause one for each circuit here.
    pub destroys: VecDeque<(u32, DestroyReason)>,
    /// The socket has not taken all that was written to it.
    pub held: bool,
    /// Halves on this link with cells waiting.
    pub(crate) active_halves: usize,
    /// Its place among the links that have something to write.
    pub listed: Option<usize>,
    /// Its TLS keys near their end: it gets no new circuits from here.
    pub worn: bool,
    /// Circuits that the controller has sent here, made or refused.
    pub joins: u64,
    /// The controller does not know yet how many circuits there are.
    pub unreported: bool,
    /// Whether lost packets hold it up.
    pub loss: LossMeter,
    /// Since when no circuit has used the link.
    pub idle_since: Option<Instant>,
    /// When something was written last.
    pub(crate) last_written: Instant,
    /// When nothing waited to be written last.
    pub(crate) last_empty: Instant,
    /// Netflow padding.
    pub padding: LinkPadding,
    /// Bytes of cells that it carries.
    pub(crate) load: Load,
    /// How full it is, while that is measured.
    pub(crate) fill: LinkFill,
    /// Memory that the owner of the socket holds for what waits, as of the last report.
    pub(crate) socket_holds: usize,
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
            joins: 0,
            unreported: false,
            loss: LossMeter::default(),
            idle_since: Some(now),
            last_written: now,
            last_empty: now,
            padding,
            load: Load::new(now),
            fill: LinkFill::default(),
            socket_holds: 0,
        }
    }

    /// The slot of the half with this circuit id.
    pub fn half(&mut self, circ_id: u32) -> Option<HalfKey> {
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
    pub fn add(&mut self, circ_id: u32, slot: HalfKey) {
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
    pub fn slots(&self) -> Vec<HalfKey> {
        let mut slots: Vec<HalfKey> = self.circuits.values().copied().collect();
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
        let bucket = size_of::<(u32, HalfKey)>() + 1;
        own + self.circuits.capacity() * 8 / 7 * bucket
    }

    /// Forgets what is of the thread that it leaves.
    pub(crate) fn begin_to_move(&mut self) {
        self.circuits.clear();
        self.last = None;
        self.active_halves = 0;
        self.listed = None;
        self.unreported = false;
    }

    /// Gives back memory that was needed for more circuits or DESTROYs.
    pub(crate) fn shrink(&mut self) {
        self.circuits.shrink_to_fit();
        self.destroys.shrink_to_fit();
        self.out.shrink_to_fit();
    }

    /// Whether the peer may choose this circuit id.
    pub(crate) fn peer_may_choose(&self, circ_id: u32) -> bool {
        circ_id != 0 && ((circ_id & HIGH_BIT != 0) != self.initiated)
    }

    /// A free circuit id of ours near a random number, or `None` when many in a row are taken.
    pub(crate) fn choose_circ_id(&self, random: u32) -> Option<u32> {
        let mine = if self.initiated { HIGH_BIT } else { 0 };
        (0..64u32)
            .map(|step| (random.wrapping_add(step) & !HIGH_BIT) | mine)
            .find(|id| *id != 0 && !self.has(*id))
    }
}

/// A connection thread's opened links: by key, by connection, and those that have something to write.
///
/// A key is given by [`insert`](Self::insert) and is good until [`remove`](Self::remove). A caller
/// that gives a link something to write calls [`list`](Self::list); a link leaves that list by
/// [`prune_listed`](Self::prune_listed) alone, once a turn.
#[derive(Debug, Default)]
pub struct Links {
    slots: Slab<Link>,
    by_connection: BTreeMap<ConnectionId, LinkKey>,
    /// Links that have something to write or a circuit that does.
    listed: Worklist<LinkKey>,
    /// Of these, the first that was refused bandwidth in this turn.
    refused: Option<LinkKey>,
}

impl Links {
    /// Moves a link in.
    pub fn insert(&mut self, link: Link) -> LinkKey {
        let connection = link.connection;
        // A slab of links grows by sockets: 2³² of them cannot be open.
        let key = LinkKey::from_index(self.slots.insert(link));
        self.by_connection.insert(connection, key);
        key
    }

    /// Moves a link out.
    pub fn remove(&mut self, key: LinkKey) -> Option<Link> {
        let link = self.slots.try_remove(key.index())?;
        self.by_connection.remove(&link.connection);
        if let Some(place) = link.listed
            && let Some(moved) = self.listed.remove(place)
            && let Some(moved) = self.get_mut(moved)
        {
            moved.listed = Some(place);
        }
        Some(link)
    }

    /// The link with this key.
    #[inline]
    pub fn get(&self, key: LinkKey) -> Option<&Link> {
        self.slots.get(key.index())
    }

    /// The link with this key.
    #[inline]
    pub fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        self.slots.get_mut(key.index())
    }

    /// The link of a connection.
    pub fn of(&self, connection: ConnectionId) -> Option<LinkKey> {
        self.by_connection.get(&connection).copied()
    }

    /// How many connections lead to a link: as many as there are links.
    pub fn connections(&self) -> usize {
        self.by_connection.len()
    }

    /// All links.
    pub fn iter(&self) -> impl Iterator<Item = (LinkKey, &Link)> {
        let slots = self.slots.iter();
        slots.map(|(slot, link)| (LinkKey::from_index(slot), link))
    }

    /// All links.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (LinkKey, &mut Link)> {
        let slots = self.slots.iter_mut();
        slots.map(|(slot, link)| (LinkKey::from_index(slot), link))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Lists a link among those that have something to write.
    pub fn list(&mut self, key: LinkKey) {
        if let Some(link) = self.slots.get_mut(key.index())
            && link.listed.is_none()
        {
            link.listed = Some(self.listed.add(key));
        }
    }

    /// The links that have something to write.
    pub fn listed(&self) -> &[LinkKey] {
        self.listed.as_slice()
    }

    /// The bandwidth that all links share had nothing left for this one: the list begins with it in the next turn, if it is the
    /// first to which that happened in this one. What there is goes to each in turn, not to those that were listed first.
    pub(crate) fn refused(&mut self, key: LinkKey) {
        self.refused.get_or_insert(key);
    }

    /// Takes those off that list that have nothing to write any more.
    pub(crate) fn prune_listed(&mut self) {
        let refused = self.refused.take().and_then(|key| self.get(key));
        if let Some(place) = refused.and_then(|link| link.listed) {
            self.listed.begin_at(place);
        }
        let slots = &mut self.slots;
        self.listed.retain(|key, place| {
            let Some(link) = slots.get_mut(key.index()) else {
                return false;
            };
            link.listed = (!link.is_empty()).then_some(place);
            link.listed.is_some()
        });
    }

    /// Memory of the tables, beside that of the links.
    pub(crate) fn tables_memory(&self) -> usize {
        self.slots.capacity().saturating_sub(self.slots.len()) * size_of::<Link>()
            + self.slots.len() * map_entry::<ConnectionId, LinkKey>()
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
