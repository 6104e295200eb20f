//! A connection: its two ends and its two directions.

use crate::hosts::bytes::Bytes;
use crate::hosts::tcp::{Algorithm, FIRST_WINDOW, Receiver, Sender};

/// Payload of a full packet of 1,500 bytes.
pub const MSS: u32 = 1_448;
/// The least and the most that a socket takes to be sent (`tcp_wmem` of Linux, about).
pub(crate) const SEND_BUFFER: (u64, u64) = (64 << 10, 4 << 20);

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// That of the host that opened it.
    Opener,
    /// That of the host that accepted it.
    Accepter,
}

impl End {
    /// The other one.
    #[must_use]
    pub fn other(self) -> End {
        match self {
            End::Opener => End::Accepter,
            End::Accepter => End::Opener,
        }
    }
}

/// Something of each end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends<T> {
    pub(crate) opener: T,
    pub(crate) accepter: T,
}

impl<T> Ends<T> {
    pub(crate) fn of(&self, end: End) -> &T {
        match end {
            End::Opener => &self.opener,
            End::Accepter => &self.accepter,
        }
    }

    pub(crate) fn of_mut(&mut self, end: End) -> &mut T {
        match end {
            End::Opener => &mut self.opener,
            End::Accepter => &mut self.accepter,
        }
    }
}

/// One direction of a connection, known by the end that sends.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// Bytes that were written and that the reader has not released.
    pub(crate) bytes: Bytes,
    pub(crate) written: u64,
    /// The sender writes no more; its end takes a place in the stream, as in TCP.
    pub(crate) ended: bool,
    /// Bytes were refused.
    pub(crate) refused: bool,
    /// [`Happening::Readable`](super::Happening::Readable) has gone out, and bytes are left.
    pub(crate) told: bool,
    pub(crate) sender_armed: Option<u64>,
    pub(crate) receiver_armed: Option<u64>,
}

impl Direction {
    pub(crate) fn new(algorithm: Algorithm) -> Direction {
        Direction {
            sender: Sender::new(algorithm, MSS, FIRST_WINDOW),
            receiver: Receiver::new(MSS),
            bytes: Bytes::default(),
            written: 0,
            ended: false,
            refused: false,
            told: false,
            sender_armed: None,
            receiver_armed: None,
        }
    }

    /// Bytes that the reader can have, without the end.
    pub(crate) fn readable(&self) -> usize {
        let come = usize::try_from(self.receiver.readable()).unwrap_or(usize::MAX);
        come.min(self.bytes.unread())
    }

    /// Everything has come, the end too.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.receiver.readable() > self.bytes.unread() as u64
    }

    pub(crate) fn room(&self) -> u64 {
        let held = self.sender.unacknowledged() + self.sender.unsent();
        let most = (2 * self.sender.window()).clamp(SEND_BUFFER.0, SEND_BUFFER.1);
        most.saturating_sub(held)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) generation: u32,
    pub(crate) hosts: Ends<HostId>,
    /// By the end that sends.
    pub(crate) directions: Ends<Direction>,
    /// When the last SYN left.
    pub(crate) syn_at: u64,
    pub(crate) is_open: Ends<bool>,
    /// The end has closed: no happenings go to it.
    pub(crate) is_closed: Ends<bool>,
    /// The end's host has forgotten the connection: packets that arrive there are answered by a
    /// reset.
    pub(crate) is_gone: Ends<bool>,
}
