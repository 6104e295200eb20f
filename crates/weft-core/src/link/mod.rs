//! An opened link as its connection thread keeps it: its peer's identity, the circuits that it carries,
//! and what is about to be written to it.

pub mod load;
pub mod loss;
pub mod padding;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use slab::Slab;
use weft_cell::Cell;
use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};
use weft_share::network;

use crate::address::ConnectionId;
use crate::extensions::abra::LinkFill;
use crate::handshake::{LinkRole, PeerIdentity};
use crate::link::load::Load;
use crate::link::loss::LossMeter;
use crate::link::padding::{LinkPadding, LinkUse};
use crate::memory::ledger::{Held, Waits, map_entry, queue_memory};
use crate::slots::worklist::{Place, Worklist};
use crate::slots::{HalfKey, LinkKey, SlotKey as _};

/// DESTROYs that may wait on a link: more than all its circuits can cause at once. A peer that makes
/// us send more without reading is cut off.
pub(crate) const MAX_DESTROYS: usize = 1 << 17;

/// The bit of a circuit id that marks the side of the link that chose it (tor-spec 5.1.1): set when
/// the side that opened the connection did.
pub(crate) const HIGH_BIT: u32 = 1 << 31;

/// Circuits that a link remembers: one of some tens has cells at a time, and most links have no more than a few. The
/// table of all of them is elsewhere in memory.
const RECENT: usize = 4;
/// Entry of `RECENT` that holds no circuit.
const NO_CIRCUIT: (u32, HalfKey) = (0, HalfKey(0));

/// An opened link.
///
/// A relay has thousands, and a cell comes on one that nothing has come on for long: each line of the
/// processor's cache that the cell needs of it is a wait for memory. So the fields are in the order of what a cell
/// needs: where it comes in, the first two lines; where it waits, the first; where it is written, the first three.
/// The first line also has by what a used slot of the table differs from a free one (the nanoseconds of `last_written`).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Link {
    /// When something was written last.
    pub(crate) last_written: Instant,
    /// The circuits that were looked up last. 0 is no circuit's id.
    recent: [(u32, HalfKey); RECENT],
    /// Halves on this link with cells waiting.
    pub(crate) active_halves: u32,
    /// Its place among the links that have something to write or a circuit that does.
    pub listed: Option<Place>,
    /// Its place among those that have something to write themselves, or had since [`Links::prune_listed`].
    to_write: Option<Place>,
    /// The socket has not taken all that was written to it.
    pub held: bool,
    /// This node's role.
    pub role: LinkRole,
    /// It gets no new circuits from here: its TLS keys near their end, or it is full.
    pub worn: bool,
    /// The controller does not know yet how many circuits there are.
    pub unreported: bool,

    /// Netflow padding.
    pub padding: LinkPadding,
    /// When nothing waited to be written last.
    pub(crate) last_empty: Instant,
    /// The time from which on no circuit has used the link.
    pub idle_since: Option<Instant>,

    /// Cells chosen to be written next, in order.
    pub out: VecDeque<Box<Cell>>,
    /// DESTROYs that are to follow them, by circuit id: made into cells only when they can be
    /// written, since the end of another link can cause one for each circuit here.
    pub destroys: VecDeque<(u32, DestroyReason)>,

    /// Slots of the halves on this link by circuit id.
    circuits: HashMap<u32, HalfKey, CircIdHash>,
    /// The connection under it.
    pub connection: ConnectionId,
    /// The network that the peer's address is in.
    pub network: IpAddr,
    /// The identity that the peer proved.
    pub peer: PeerIdentity,
    /// Circuits that the controller has sent here, made or refused.
    pub joins: u64,
    /// Measures whether lost packets hold up the link.
    pub loss: LossMeter,
    /// Bytes of cells that it carries.
    pub(crate) load: Load,
    /// Fill level of the link, while it is measured.
    pub(crate) fill: LinkFill,
    /// Memory that the owner of the socket holds for what waits, as of the last report.
    pub(crate) socket_holds: usize,
    /// Cells that were written: the number of the first of `out`.
    pub(crate) written: u64,
    /// Waiting time of cells and DESTROYs, noted at each timer.
    waits: Waits,
    /// The controller knows since when no circuit has used the link.
    pub(crate) idle_reported: bool,
    /// Its part of the range of times that a link may be idle.
    pub(crate) idle_part: u8,
    /// It leads to a relay of the consensus, at an address of that relay's.
    pub(crate) listed_relay: bool,
}

impl Link {
    /// A link that just finished its handshake. `hash_seed` is secret randomness: circuit ids are
    /// chosen by the peer.
    pub fn new(
        connection: ConnectionId,
        peer: PeerIdentity,
        addr: IpAddr,
        role: LinkRole,
        hash_seed: u64,
        padding: LinkPadding,
        now: Instant,
    ) -> Self {
        Link {
            last_written: now,
            recent: [NO_CIRCUIT; RECENT],
            active_halves: 0,
            listed: None,
            to_write: None,
            held: false,
            role,
            worn: false,
            unreported: false,
            padding,
            last_empty: now,
            idle_since: Some(now),
            idle_reported: false,
            idle_part: 0,
            listed_relay: false,
            out: VecDeque::new(),
            destroys: VecDeque::new(),
            circuits: HashMap::with_hasher(CircIdHash(hash_seed | 1)),
            connection,
            network: network(addr),
            peer,
            joins: 0,
            loss: LossMeter::default(),
            load: Load::new(now),
            fill: LinkFill::default(),
            socket_holds: 0,
            written: 0,
            waits: Waits::default(),
        }
    }

    /// The slot of the half with this circuit id.
    #[inline]
    pub fn half(&mut self, circ_id: u32) -> Option<HalfKey> {
        // Cells of bulk come in runs.
        let [(id, slot), ..] = self.recent;
        if id == circ_id && id != 0 {
            return Some(slot);
        }
        self.half_before_last(circ_id)
    }

    /// The slot of the half with this circuit id, which is not the one that was looked up last.
    fn half_before_last(&mut self, circ_id: u32) -> Option<HalfKey> {
        let mut recent = self.recent.iter();
        if let Some((id, slot)) = recent.find(|(id, _)| *id == circ_id)
            && *id != 0
        {
            return Some(*slot);
        }
        let slot = *self.circuits.get(&circ_id)?;
        let [first, second, third, _] = self.recent;
        self.recent = [(circ_id, slot), first, second, third];
        Some(slot)
    }

    /// Puts a half on the link.
    pub fn add(&mut self, circ_id: u32, slot: HalfKey) {
        self.circuits.insert(circ_id, slot);
        self.idle_since = None;
        self.idle_reported = false;
    }

    /// Takes a half off the link.
    pub fn remove(&mut self, circ_id: u32, now: Instant) {
        self.circuits.remove(&circ_id);
        for recent in &mut self.recent {
            if recent.0 == circ_id {
                *recent = NO_CIRCUIT;
            }
        }
        if self.circuits.is_empty() {
            self.idle_since = Some(now);
        }
    }

    /// True if the circuit id is taken.
    pub fn has(&self, circ_id: u32) -> bool {
        self.circuits.contains_key(&circ_id)
    }

    /// Nothing waits to be written, on the link itself or on its circuits.
    pub fn is_empty(&self) -> bool {
        self.active_halves == 0 && !self.has_to_write()
    }

    /// Something waits to be written on the link itself, or for its socket.
    pub(crate) fn has_to_write(&self) -> bool {
        self.held || !self.out.is_empty() || !self.destroys.is_empty()
    }

    /// It is listed among those that have.
    pub(crate) fn is_listed_to_write(&self) -> bool {
        self.to_write.is_some()
    }

    /// True if the link has something to write, and its socket may be given it.
    pub(crate) fn is_unwritten(&self) -> bool {
        !self.held && self.has_to_write()
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

    /// Memory of what waits on the link itself; its circuits' cells are theirs. A peer that reads a little now and then does
    /// not make the rest younger.
    pub fn held(&self, now: Instant) -> Held {
        let bytes = self.out.len() * size_of::<Cell>()
            + queue_memory(&self.out)
            + queue_memory(&self.destroys)
            + self.socket_holds;
        Held::waiting(bytes, self.waits.age(now))
    }

    /// Notes since when something waits. To be called a few times a second.
    pub(crate) fn note_waits(&mut self, now: Instant) {
        // Of the last cell that was written the socket still has a part.
        let front = self.written + 1 - u64::from(self.held);
        let waiting = self.out.len() + self.destroys.len();
        self.waits
            .note(front, self.written + 1 + waiting as u64, now);
    }

    /// Memory of the link's own structure and tables.
    pub fn memory(&self) -> usize {
        // A slot in the thread's table, in the scheduler's and in two maps, nearly.
        let own = size_of::<Self>() + LinkPadding::BOXED + 160;
        // Seven of eight buckets are used; each has one control byte.
        let bucket = size_of::<(u32, HalfKey)>() + 1;
        own + self.circuits.capacity() * 8 / 7 * bucket
    }

    /// Gives back the buffers of a link that has nothing to write. False: it has none.
    pub(crate) fn trim(&mut self) -> bool {
        let has = self.out.capacity() + self.destroys.capacity() > 0;
        if has {
            self.out.shrink_to_fit();
            self.destroys.shrink_to_fit();
        }
        has
    }

    /// Forgets what is of the thread that it leaves.
    pub(crate) fn begin_to_move(&mut self) {
        self.circuits.clear();
        self.recent = [NO_CIRCUIT; RECENT];
        self.active_halves = 0;
        self.listed = None;
        self.to_write = None;
        self.unreported = false;
    }

    /// Gives back memory that was needed for more circuits or DESTROYs.
    pub(crate) fn shrink(&mut self) {
        self.circuits.shrink_to_fit();
        self.destroys.shrink_to_fit();
        self.out.shrink_to_fit();
    }

    /// True if the peer may choose this circuit id.
    pub(crate) fn peer_may_choose(&self, circ_id: u32) -> bool {
        circ_id != 0 && ((circ_id & HIGH_BIT != 0) != self.role.opened())
    }

    /// A free circuit id of ours near a random number, or `None` when many in a row are taken.
    pub(crate) fn choose_circ_id(&self, random: u32) -> Option<u32> {
        let mine = if self.role.opened() { HIGH_BIT } else { 0 };
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
    /// Links of `listed` that have something to write themselves, or had since the list was pruned:
    /// few, between two runs of the scheduler.
    to_write: Worklist<LinkKey>,
    /// The first link of `to_write` that was refused bandwidth in this turn.
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
        if let Some(place) = link.to_write
            && let Some(moved) = self.to_write.remove(place)
            && let Some(moved) = self.get_mut(moved)
        {
            moved.to_write = Some(place);
        }
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

    /// Reads the link with this key, so that it is in the processor's cache when it is needed.
    #[inline]
    pub fn touch(&self, key: LinkKey) {
        if let Some(link) = self.get(key) {
            black_box(link.active_halves);
        }
    }

    /// The link of a connection.
    pub fn of(&self, connection: ConnectionId) -> Option<LinkKey> {
        self.by_connection.get(&connection).copied()
    }

    /// Connections that lead to a link: as many as there are links.
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

    /// Number of links.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A circuit of a link has cells: lists the link.
    #[inline]
    pub(crate) fn activated(&mut self, key: LinkKey) {
        if let Some(link) = self.slots.get_mut(key.index()) {
            link.active_halves += 1;
            if link.listed.is_none() {
                link.listed = Some(self.listed.add(key));
            }
        }
    }

    /// A circuit of a link has cells no more, and they were not moved to the link: it may have nothing to write.
    pub(crate) fn deactivated(&mut self, key: LinkKey) {
        if let Some(link) = self.slots.get_mut(key.index()) {
            link.active_halves = link.active_halves.saturating_sub(1);
            self.list_to_write(key);
        }
    }

    /// A link has something to write itself: lists it.
    pub fn list_to_write(&mut self, key: LinkKey) {
        if let Some(link) = self.slots.get_mut(key.index()) {
            if link.listed.is_none() {
                link.listed = Some(self.listed.add(key));
            }
            if link.to_write.is_none() {
                link.to_write = Some(self.to_write.add(key));
            }
        }
    }

    /// The half of a circuit on a link.
    #[inline]
    pub(crate) fn half_of(&mut self, key: LinkKey, circ_id: u32) -> Option<HalfKey> {
        self.get_mut(key)?.half(circ_id)
    }

    /// A link is used for this.
    #[inline]
    pub(crate) fn carries(&mut self, key: LinkKey, usage: LinkUse) {
        if let Some(link) = self.get_mut(key) {
            link.padding.carries(usage);
        }
    }

    /// Queues a DESTROY on a link.
    pub(crate) fn push_destroy(&mut self, key: LinkKey, circ_id: u32, reason: DestroyReason) {
        if planted(Fault::DestroyDropped) {
            return;
        }
        if let Some(link) = self.get_mut(key) {
            link.destroys.push_back((circ_id, reason));
            if !planted(Fault::LinkNotListed) {
                self.list_to_write(key);
            }
        }
    }

    /// Queues a cell on the link itself, ahead of everything that the scheduler has not chosen.
    pub(crate) fn push_out(&mut self, key: LinkKey, cell: Box<Cell>) {
        if let Some(link) = self.get_mut(key) {
            link.out.push_back(cell);
            self.list_to_write(key);
        }
    }

    /// A link whose circuit the scheduler has chosen, which is listed: it gets cells to write.
    #[inline]
    pub(crate) fn chosen(&mut self, key: LinkKey) -> Option<&mut Link> {
        let link = self.slots.get_mut(key.index())?;
        if link.to_write.is_none() {
            link.to_write = Some(self.to_write.add(key));
        }
        Some(link)
    }

    /// True if a link may have something to write itself. If none has, [`listed`](Self::listed) are
    /// links whose circuits wait for the scheduler.
    pub fn any_to_write(&self) -> bool {
        !self.to_write.as_slice().is_empty()
    }

    /// True if a link has something that can be given to its socket.
    pub fn any_unwritten(&self) -> bool {
        let mut links = self.to_write.as_slice().iter();
        links.any(|key| self.get(*key).is_some_and(Link::is_unwritten))
    }

    /// The links that have something to write.
    pub fn listed(&self) -> &[LinkKey] {
        self.listed.as_slice()
    }

    /// Notes that the bandwidth that all links share had nothing left for this one. If it was the
    /// first in this turn, the list begins with it in the next, so that links are served in turn,
    /// not in the order of the list.
    pub(crate) fn refused(&mut self, key: LinkKey) {
        self.refused.get_or_insert(key);
    }

    /// Takes those off the lists that have nothing to write any more: all of them had something themselves.
    pub(crate) fn prune_listed(&mut self) {
        if !self.any_to_write() && self.refused.is_none() {
            return;
        }
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
        self.to_write.retain(|key, place| {
            let Some(link) = slots.get_mut(key.index()) else {
                return false;
            };
            link.to_write = link.has_to_write().then_some(place);
            link.to_write.is_some()
        });
    }

    /// True if the link is on the lists at the places that it has noted.
    pub(crate) fn lists(&self, key: LinkKey, link: &Link) -> bool {
        let is_at = |list: &Worklist<LinkKey>, place: Option<Place>| {
            place.is_none_or(|place| list.at(place) == Some(key))
        };
        is_at(&self.listed, link.listed) && is_at(&self.to_write, link.to_write)
    }

    /// True if the lists contain only links, each once, provided that each link is where it has
    /// noted.
    pub(crate) fn lists_no_others(&self) -> bool {
        let count = |listed: fn(&Link) -> bool| {
            let links = self.iter().filter(|(_, link)| listed(link));
            links.count()
        };
        self.listed.as_slice().len() == count(|link| link.listed.is_some())
            && self.to_write.as_slice().len() == count(Link::is_listed_to_write)
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

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// A line of the processor's cache.
    const LINE: usize = 64;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_cell_needs_three_lines_of_its_link() {
        // Where a cell comes in and waits.
        assert_eq!(offset_of!(Link, padding), LINE);
        // The padding and times that it updates.
        assert_eq!(offset_of!(Link, out), 2 * LINE);
        // Where it is written.
        assert_eq!(offset_of!(Link, circuits), 3 * LINE);
        assert!(size_of::<Link>() <= 8 * LINE, "{}", size_of::<Link>());
    }
}
