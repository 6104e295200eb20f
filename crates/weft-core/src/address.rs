//! Names for things that live on connection threads, used in place of references.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::slots::{EdgeKey, HalfKey};

/// A connection thread: 0 is the first one, or the main thread when there are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u16);

/// A connection's globally unique identifier, given by the relay controller when it opens or
/// accepts it (Engler and Goldberg 2021, 4.3). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a circuit half was made: its thread, its slot there, and which tenant of that slot it is. A half whose
/// link moves to another thread keeps its address ([`crate::moves::routes`]); the slot that it has there is none of it.
///
/// An address may outlive its half: a message to a half that has closed finds another generation in
/// the slot and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HalfAddr {
    /// The thread that made the half, and mostly owns it.
    pub thread: ThreadId,
    /// Its slot in that thread's table.
    pub slot: HalfKey,
    /// Number of halves that used the slot before this one.
    pub generation: u32,
}

/// Where a circuit edge lives, as [`HalfAddr`] for halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeAddr {
    /// The thread that owns the edge.
    pub thread: ThreadId,
    /// Its slot in that thread's table.
    pub slot: EdgeKey,
    /// Number of edges that used the slot before this one.
    pub generation: u32,
}

/// A hop of a circuit, counted from where the circuit begins: 0 is the first.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HopIndex(pub u8);

impl HopIndex {
    /// At a relay: the circuit's origin, the only node that its half exchanges relay messages with.
    pub(crate) const ORIGIN: HopIndex = HopIndex(0);

    /// The hop with this number. Circuits have no more than 255 hops.
    #[inline]
    pub fn from_index(index: usize) -> Self {
        HopIndex(u8::try_from(index).unwrap_or(u8::MAX))
    }

    /// Its number.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A circuit that begins here. Given by the client thread, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u64);

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "circuit {}", self.0)
    }
}

/// Where a stream lives: its half, its id there, and which tenant of that id it is.
///
/// A client may end a stream and open another with the same id while a decision about the first, or
/// a message for it, is on its way. That finds another generation, and is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamAddr {
    /// The half that the stream is on.
    pub half: HalfAddr,
    /// The stream's id on the circuit.
    pub id: u16,
    /// Number of streams that the half had before this one.
    pub generation: u32,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.0)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}

impl HalfAddr {
    /// The address as a number, for those who know circuits by number.
    #[must_use]
    pub fn number(self) -> u128 {
        let made = u128::from(self.thread.0) << 64 | u128::from(self.generation) << 32;
        made | u128::from(self.slot.0)
    }
}

impl fmt::Display for HalfAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "half {}.{}@{}",
            self.slot, self.generation, self.thread.0
        )
    }
}

impl fmt::Display for StreamAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}.{} of {}", self.id, self.generation, self.half)
    }
}

impl fmt::Display for EdgeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "edge {}.{}@{}",
            self.slot, self.generation, self.thread.0
        )
    }
}

/// Hashes addresses of halves: this process chooses them, so a peer cannot make them collide.
pub(crate) type AddrHasher = BuildHasherDefault<AddrHash>;

/// See [`AddrHasher`].
#[derive(Debug, Default)]
pub(crate) struct AddrHash(u64);

impl Hasher for AddrHash {
    fn finish(&self) -> u64 {
        // The table takes its bits from both ends.
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }
    fn write_u16(&mut self, number: u16) {
        self.write_u32(u32::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
