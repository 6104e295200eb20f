//! One end of a circuit: how many DATA cells it may send, and when it must acknowledge (tor-spec
//! 7.3; proposals 289 and 324).

use std::collections::VecDeque;
use std::time::Instant;

use weft_cell::stream_msg::{Seen, Sendme};
use weft_planted::{Fault, planted};

use super::error::FlowError;
use super::params::CcParams;
use super::vegas::{Rtt, Vegas};
use crate::memory::ledger::queue_memory;

/// DATA cells that a fixed window begins with.
const WINDOW: u32 = 1000;
/// DATA cells that one SENDME of a fixed window is about.
const INCREMENT: u8 = 100;

/// A DATA cell that the other side must answer with a SENDME.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Digest that the SENDME must carry.
    seen: Seen,
    /// When it was sent.
    sent: Instant,
}

/// Limit on cells in flight.
#[derive(Debug)]
enum Window {
    /// Always [`WINDOW`].
    Fixed {
        /// Cells that may still be sent.
        package: u32,
        /// Cells that the other side may still send.
        deliver: Deliver,
    },
    /// As many as the path carries. Boxed, since most circuits never send.
    Vegas(Box<Vegas>),
}

/// Allowance of the other side under fixed windows: [`WINDOW`] cells, and [`INCREMENT`] more for
/// each SENDME that it can have received.
///
/// A SENDME is queued as soon as it is due, so counting SENDMEs when they are queued bounds
/// nothing. Here they count when they have left the circuit's queue toward the other side: a SENDME
/// in the queue has not been received.
#[derive(Debug)]
struct Deliver {
    /// Cells that may still come, by the SENDMEs that are known to have left.
    left: u32,
    /// Where in the queue the other SENDMEs are, oldest first: at most `WINDOW / INCREMENT`.
    queued: VecDeque<u64>,
}

impl Deliver {
    /// Takes one cell. `departed`: cells that have left the queue since it was made.
    #[inline]
    fn take(&mut self, departed: u64) -> Result<(), FlowError> {
        if self.left == 0 {
            while self.queued.front().is_some_and(|at| *at <= departed) {
                self.queued.pop_front();
                self.left += u32::from(INCREMENT);
            }
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(FlowError::TooMuchData("circuit"))?;
        Ok(())
    }
}

/// One end of a circuit.
///
/// Every hundredth of the cells that wait for a SENDME is remembered, or every n-th as negotiated
/// in the handshake: at most ten with fixed windows, [`super::MAX_CWND`] divided by the increment
/// with Vegas.
#[derive(Debug)]
pub struct CircuitFlow {
    window: Window,
    /// Cells that one SENDME is about; never 0.
    increment: u8,
    /// Cells sent since the last that a SENDME is due for.
    sent: u8,
    /// Cells received since the last that got a SENDME.
    received: u8,
    /// Cells that wait for their SENDME, oldest first.
    due: VecDeque<Due>,
    /// The queue toward the link is full.
    blocked: bool,
}

impl CircuitFlow {
    /// Fixed windows of 1000 cells with a SENDME for 100 (tor-spec 7.3).
    pub fn fixed() -> Self {
        let deliver = Deliver {
            left: WINDOW,
            queued: VecDeque::new(),
        };
        let package = WINDOW;
        Self::new(Window::Fixed { package, deliver }, INCREMENT)
    }

    /// Vegas with one SENDME for `sendme_inc` cells, as the handshake agreed on (proposal 324).
    /// `params.path` is what the circuit leads to.
    pub fn vegas(params: &CcParams, sendme_inc: u8) -> Self {
        let sendme_inc = sendme_inc.max(1);
        let vegas = Vegas::new(params, sendme_inc);
        Self::new(Window::Vegas(Box::new(vegas)), sendme_inc)
    }

    fn new(window: Window, increment: u8) -> Self {
        CircuitFlow {
            window,
            increment,
            sent: 0,
            received: 0,
            due: VecDeque::new(),
            blocked: false,
        }
    }

    /// True if the circuit has congestion control, and so XON and XOFF on its streams.
    pub fn is_vegas(&self) -> bool {
        matches!(self.window, Window::Vegas(_))
    }

    /// DATA cells that may be sent now.
    pub fn room(&self) -> u32 {
        match &self.window {
            Window::Fixed { package, .. } => *package,
            Window::Vegas(vegas) => vegas.room(),
        }
    }

    /// A DATA cell was encrypted and is sent. `seen` gives what a SENDME for it must carry, and is
    /// called only when one will answer this cell.
    pub fn note_sent(&mut self, seen: impl FnOnce() -> Seen, now: Instant) {
        match &mut self.window {
            Window::Fixed { package, .. } => *package = package.saturating_sub(1),
            Window::Vegas(vegas) => vegas.note_sent(),
        }
        self.sent += 1;
        if self.sent >= self.increment {
            self.sent = 0;
            self.due.push_back(Due {
                seen: seen(),
                sent: now,
            });
        }
    }

    /// A circuit-level SENDME came.
    ///
    /// `accept_min_version` is the consensus' sendme_accept_min_version, or 0 where the circuit was
    /// made with CREATE_FAST, as in C tor. `queue_blocked`: cells of this circuit wait for the link
    /// beyond cellq_high; [`set_blocked`](Self::set_blocked) notes the same at another time.
    pub fn sendme(
        &mut self,
        data: &[u8],
        accept_min_version: u8,
        queue_blocked: bool,
        now: Instant,
    ) -> Result<(), FlowError> {
        let sendme = Sendme::decode(data)?;
        if sendme.version < accept_min_version {
            return Err(FlowError::Version {
                version: sendme.version,
                min: accept_min_version,
            });
        }
        // One that came without its cell being sent is none of ours, whatever it contains.
        let due = self.due.pop_front().ok_or(FlowError::UnexpectedSendme)?;
        if sendme.seen.is_some_and(|seen| seen != due.seen) {
            return Err(FlowError::ForgedSendme);
        }
        match &mut self.window {
            Window::Fixed { package, .. } => {
                *package = WINDOW.min(*package + u32::from(INCREMENT));
            }
            Window::Vegas(vegas) => {
                vegas.acknowledged(due.sent, self.blocked || queue_blocked, now)
            }
        }
        Ok(())
    }

    /// A DATA cell came. True: answer it with a SENDME now, before any other cell, with what
    /// shows that this cell was seen, and call [`sendme_queued`](Self::sendme_queued). `departed`:
    /// cells that have left the circuit's queue toward the other side since it was made.
    ///
    /// # Errors
    ///
    /// With fixed windows, [`FlowError::TooMuchData`] when the SENDMEs that have left do not allow
    /// this cell (tor-spec 7.3). Under congestion control the receiver knows no window (proposal
    /// 324); the SENDMEs of a sender that does not take them fill the circuit's queue, which has a
    /// bound.
    #[inline]
    pub fn note_received(&mut self, departed: u64) -> Result<bool, FlowError> {
        if let Window::Fixed { deliver, .. } = &mut self.window {
            deliver.take(departed)?;
        }
        self.received += 1;
        let answer = self.received >= self.increment && !planted(Fault::SendmeLate);
        if answer {
            self.received = 0;
        }
        Ok(answer)
    }

    /// The SENDME that [`note_received`](Self::note_received) asked for is in the circuit's queue, of
    /// which it is the cell of this number.
    pub fn sendme_queued(&mut self, number: u64) {
        if planted(Fault::SendmeNotCounted) {
            return;
        }
        if let Window::Fixed { deliver, .. } = &mut self.window {
            deliver.queued.push_back(number);
        }
    }

    /// The circuit's queue toward its link rose past cellq_high, or fell to cellq_low again. With
    /// Vegas, the next SENDME takes it as a sign of congestion.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Round-trip times, if any were measured (Vegas only).
    pub fn rtt(&self) -> Option<Rtt> {
        match &self.window {
            Window::Fixed { .. } => None,
            Window::Vegas(vegas) => vegas.rtt(),
        }
    }

    /// Bytes of memory that this points to.
    pub fn memory(&self) -> usize {
        let window = match &self.window {
            Window::Fixed { deliver, .. } => queue_memory(&deliver.queued),
            Window::Vegas(_) => size_of::<Vegas>(),
        };
        window + queue_memory(&self.due)
    }

    /// DATA cells that may be in flight at once, now.
    pub fn window(&self) -> u32 {
        match &self.window {
            Window::Fixed { .. } => WINDOW,
            Window::Vegas(vegas) => vegas.window(),
        }
    }

    /// Cells that one SENDME is about.
    pub fn increment(&self) -> u32 {
        u32::from(self.increment)
    }

    /// DATA cells that were sent and are not acknowledged.
    pub fn in_flight(&self) -> u32 {
        match &self.window {
            Window::Fixed { package, .. } => WINDOW - package,
            Window::Vegas(vegas) => vegas.in_flight(),
        }
    }

    /// True if the window still grows as in slow start (Vegas only).
    pub(crate) fn in_slow_start(&self) -> bool {
        match &self.window {
            Window::Fixed { .. } => false,
            Window::Vegas(vegas) => vegas.in_slow_start(),
        }
    }
}
