//! A link of a world, and how far it has come.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use weft_core::handshake::LinkHandshake;

use crate::relay::link::{IdHasher, Link};

/// Side of the target that a link is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// We opened it: circuits come from here.
    Origin,
    /// The target opened it to our relay of this number.
    NextHop(usize),
}

/// Phase of a link.
#[derive(Debug)]
pub(super) enum Phase {
    /// TCP is being connected.
    Connecting,
    /// TLS and the link handshake.
    Handshake(Box<LinkHandshake>),
    /// TLS to a pipe.
    Raw,
    /// Cells may go.
    Open,
    /// We have sent our last; the target closes, too.
    Closing,
}

/// A link and what waits to be sent on it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) link: Link,
    pub(super) side: Side,
    pub(super) phase: Phase,
    /// Cells of circuits that are being built, ready to be encrypted.
    pub(super) out: Vec<u8>,
    /// Circuits that have cells to send here, each once.
    pub(super) active: VecDeque<u32>,
    /// Circuits by the id that the target gave them on this link.
    pub(super) by_id: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
    /// Circuits that begin here, if we opened it.
    pub(super) carried: usize,
    /// It closes when the last of them has gone.
    pub(super) closing: bool,
    /// CREATE2 cells that have not been answered (onionskins).
    pub(super) unanswered: usize,
    /// The next circuit id (onionskins).
    pub(super) next_id: u32,
    /// Listed to be read.
    pub(super) listed: bool,
    /// Listed to be written.
    pub(super) dirty: bool,
}

impl End {
    /// True if it has something to write once the socket is writable. Epoll reports with every
    /// arrival that the socket is.
    pub(super) fn has_to_write(&mut self) -> bool {
        matches!(self.phase, Phase::Connecting)
            || !self.out.is_empty()
            || !self.active.is_empty()
            || self.link.session.tls().wants_write()
    }
}
