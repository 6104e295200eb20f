//! Messages about a link that moves to another thread: the steps of a transfer, and the link with its halves.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use super::controller::{FromController, ToController};
use super::requests::Asker;
use crate::address::{HalfAddr, ThreadId};
use crate::circuit::half::{CircuitHalf, Wait};
use crate::extensions::circpad::CircuitPadding;
use crate::link::Link;

/// Steps of a transfer that go in the cell lane, so that whatever was sent before has arrived when they do.
#[derive(Debug)]
pub enum TransferCell {
    /// From the thread that a link leaves, to all others: keep back what is for these halves.
    Freeze {
        /// The number of the transfer.
        number: u64,
        /// The sender.
        from: ThreadId,
        /// The link's halves.
        halves: Arc<[HalfAddr]>,
    },
    /// The answer: nothing more comes for them.
    Frozen {
        /// The number of the transfer.
        number: u64,
    },
    /// From the thread that a link has left, to all others: nothing more comes from its halves.
    Left {
        /// The number of the transfer.
        number: u64,
        /// Where the link goes.
        to: ThreadId,
    },
    /// To the thread where the link goes: what its halves sent before has been handled.
    Passed {
        /// The number of the transfer.
        number: u64,
    },
    /// The link has closed instead: what was kept back goes where it would have gone.
    Thaw {
        /// The number of the transfer.
        number: u64,
    },
}

/// Steps of a transfer that go in the control lane.
#[derive(Debug)]
pub enum TransferControl {
    /// The link.
    Parcel(Box<Parcel>),
    /// From the thread where the link is now, to all others: its halves are here.
    Moved {
        /// The number of the transfer.
        number: u64,
        /// The halves that have not closed on the way.
        halves: Arc<[HalfAddr]>,
        /// The sender.
        to: ThreadId,
    },
    /// A half that had moved has closed.
    Gone {
        /// The half.
        half: HalfAddr,
    },
    /// A message of the controller's about the link, which was sent before the controller knew.
    Forward(Box<FromController>),
}

/// A link on its way.
#[derive(Debug)]
pub struct Parcel {
    /// The number of the transfer.
    pub(crate) number: u64,
    /// The link, without its table of circuits.
    pub(crate) link: Link,
    /// Its halves.
    pub(crate) halves: Vec<MovedHalf>,
    /// Deadlines of its halves.
    pub(crate) waits: Vec<Wait>,
    /// Pending requests of its circuits to the controller.
    pub(crate) requests: Vec<Request>,
    /// The socket, added by its owner.
    pub(crate) cargo: Box<dyn Any + Send>,
}

/// An asker, by its place in the queue of requests, and what it asks for.
pub(crate) type Request = (Asker, ToController);

/// A half on its way.
#[derive(Debug)]
pub(crate) struct MovedHalf {
    pub(crate) addr: HalfAddr,
    pub(crate) half: CircuitHalf,
    /// Cells that it has sent lately, as the scheduler counts.
    pub(crate) sent_lately: f64,
    /// It asked for this relay's weight.
    pub(crate) subscribed: Option<Instant>,
    /// Its padding machine.
    pub(crate) circpad: Option<CircuitPadding>,
}

impl Parcel {
    /// Memory that it takes, beside the socket's.
    pub(crate) fn memory(&self, now: Instant) -> usize {
        let halves = self.halves.iter();
        self.link.memory()
            + self.link.held(now).bytes()
            + halves
                .map(|moved| moved.half.held(now).bytes())
                .sum::<usize>()
    }
}
