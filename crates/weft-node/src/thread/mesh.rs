//! The channels between threads: one ring per ordered pair and lane, one wake-up per turn
//! (architecture rule 3).

use std::collections::VecDeque;
use std::sync::Arc;

use mio::Waker;
use weft_core::address::ThreadId;
use weft_core::cells::Empties;
use weft_core::manager::Outbox;
use weft_core::message::{FromController, HalfCell, HalfControl, ToController};
use weft_sync::ring::{Receiver, Sender, ring};
use weft_sync::wake::WakeFlag;

use super::Adopt;

/// Messages that a control lane holds.
const CONTROL_LANE: usize = 4096;
/// Batches that a cell lane holds.
const CELL_LANE: usize = 256;
/// Messages that a lane to or from the controller holds.
const CONTROLLER_LANE: usize = 8192;
/// Cells in one batch at most.
const BATCH: usize = 512;

/// Cells on their way to another thread, and empties on their way home.
#[derive(Debug, Default)]
pub struct CellBatch {
    /// Cells, in order.
    pub cells: Vec<HalfCell>,
    /// Memory that came from the receiver.
    pub empties: Empties,
}

/// How to wake a thread: a flag that tells whether it sleeps, and the system call if it does.
#[derive(Clone, Debug)]
pub struct WakeUp {
    /// Says whether the system call is needed.
    pub flag: Arc<WakeFlag>,
    /// Makes it.
    pub waker: Arc<Waker>,
}

impl WakeUp {
    /// Wakes the thread if it sleeps or is about to.
    pub fn notify(&self) {
        if self.flag.notify() {
            // A full eventfd counter is the only failure, and it means that a wake-up is pending.
            let _ = self.waker.wake();
        }
    }
}

/// The sending end toward one other thread.
#[derive(Debug)]
pub struct ToPeer {
    /// The other thread.
    pub to: ThreadId,
    /// Control lane.
    control: Sender<HalfControl>,
    /// Cell lane.
    cells: Sender<CellBatch>,
    /// Its wake-up.
    wake: WakeUp,
    /// What the control lane had no room for.
    stuck_control: VecDeque<HalfControl>,
    /// What the cell lane had no room for.
    stuck_cells: VecDeque<CellBatch>,
}

impl ToPeer {
    /// Moves what a manager has for the other thread into the lanes, and wakes it once.
    pub fn flush(&mut self, outbox: &mut Outbox) {
        if outbox.is_empty() && !self.is_stuck() {
            return;
        }
        let mut sent = false;
        self.stuck_control.extend(outbox.control.drain(..));
        while let Some(message) = self.stuck_control.pop_front() {
            match self.control.try_push(message) {
                Ok(()) => sent = true,
                Err(message) => {
                    self.stuck_control.push_front(message);
                    break;
                }
            }
        }
        while !outbox.cells.is_empty() || !outbox.empties.is_empty() {
            let rest = outbox.cells.split_off(BATCH.min(outbox.cells.len()));
            self.stuck_cells.push_back(CellBatch {
                cells: std::mem::replace(&mut outbox.cells, rest),
                empties: std::mem::take(&mut outbox.empties),
            });
        }
        // Cells never overtake the control messages that were sent before them.
        while self.stuck_control.is_empty()
            && let Some(batch) = self.stuck_cells.pop_front()
        {
            match self.cells.try_push(batch) {
                Ok(()) => sent = true,
                Err(batch) => {
                    self.stuck_cells.push_front(batch);
                    break;
                }
            }
        }
        if sent || self.is_stuck() {
            self.wake.notify();
        }
    }

    /// Something found no room: nothing more should be read from sockets until it did.
    pub fn is_stuck(&self) -> bool {
        !self.stuck_control.is_empty() || !self.stuck_cells.is_empty()
    }

    /// The other thread has ended.
    pub fn is_gone(&self) -> bool {
        self.control.is_disconnected()
    }
}

/// The receiving end from one other thread.
#[derive(Debug)]
pub struct FromPeer {
    /// The other thread.
    pub from: ThreadId,
    /// Control lane.
    pub control: Receiver<HalfControl>,
    /// Cell lane.
    pub cells: Receiver<CellBatch>,
}

/// What the controller's side tells a connection thread.
#[derive(Debug)]
pub enum ToThread {
    /// Own this connection.
    Adopt(Box<Adopt>),
    /// A message for the local connection manager.
    Message(FromController),
    /// The link certificate and identity were renewed.
    Renewed(Arc<crate::tls::LinkTls>),
    /// How often the scheduler runs from now on; zero is KISTLite.
    RunInterval(std::time::Duration),
    /// End.
    Stop,
}

/// One connection thread's ends of all channels.
#[derive(Debug)]
pub struct ThreadEnds {
    /// Which thread.
    pub me: ThreadId,
    /// To the other threads.
    pub to_peers: Vec<ToPeer>,
    /// From the other threads.
    pub from_peers: Vec<FromPeer>,
    /// From the main thread.
    pub from_main: Receiver<ToThread>,
    /// To the main thread.
    pub to_main: Sender<ToController>,
    /// Wakes the main thread.
    pub main: WakeUp,
    /// This thread's own flag.
    pub flag: Arc<WakeFlag>,
}

/// The main thread's ends toward one connection thread.
#[derive(Debug)]
pub struct MainEnds {
    /// Messages to it.
    to: Sender<ToThread>,
    /// Messages from it.
    pub from: Receiver<ToController>,
    /// Its wake-up.
    wake: WakeUp,
    /// What found no room.
    stuck: VecDeque<ToThread>,
    /// Something was sent since the last wake-up.
    sent: bool,
}

impl MainEnds {
    /// Queues a message.
    pub fn send(&mut self, message: ToThread) {
        self.stuck.push_back(message);
    }

    /// Moves queued messages into the lane and wakes the thread once.
    pub fn flush(&mut self) {
        while let Some(message) = self.stuck.pop_front() {
            match self.to.try_push(message) {
                Ok(()) => self.sent = true,
                Err(message) => {
                    self.stuck.push_front(message);
                    break;
                }
            }
        }
        if self.sent || !self.stuck.is_empty() {
            self.sent = false;
            self.wake.notify();
        }
    }

    /// Messages wait for room.
    pub fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }
}

/// Makes all channels between the main thread and the connection threads. `wakers[i]` wakes
/// connection thread `i`.
pub fn mesh(wakers: Vec<Arc<Waker>>, main: &WakeUp) -> (Vec<ThreadEnds>, Vec<MainEnds>) {
    let wakes: Vec<WakeUp> = wakers
        .into_iter()
        .map(|waker| WakeUp {
            flag: Arc::new(WakeFlag::new()),
            waker,
        })
        .collect();
    let mut threads = Vec::new();
    let mut mains = Vec::new();
    for (wake, id) in wakes.iter().zip(0u16..) {
        let (to, from_main) = ring(CONTROLLER_LANE);
        let (to_main, from) = ring(CONTROLLER_LANE);
        mains.push(MainEnds {
            to,
            from,
            wake: wake.clone(),
            stuck: VecDeque::new(),
            sent: false,
        });
        threads.push(ThreadEnds {
            me: ThreadId(id),
            to_peers: Vec::new(),
            from_peers: Vec::new(),
            from_main,
            to_main,
            main: main.clone(),
            flag: wake.flag.clone(),
        });
    }
    let ids: Vec<ThreadId> = threads.iter().map(|thread| thread.me).collect();
    for (from, from_index) in ids.iter().zip(0usize..) {
        for (to, to_index) in ids.iter().zip(0usize..) {
            if from == to {
                continue;
            }
            let (control_tx, control_rx) = ring(CONTROL_LANE);
            let (cells_tx, cells_rx) = ring(CELL_LANE);
            if let (Some(sender), Some(wake)) = (threads.get_mut(from_index), wakes.get(to_index)) {
                sender.to_peers.push(ToPeer {
                    to: *to,
                    control: control_tx,
                    cells: cells_tx,
                    wake: wake.clone(),
                    stuck_control: VecDeque::new(),
                    stuck_cells: VecDeque::new(),
                });
            }
            if let Some(receiver) = threads.get_mut(to_index) {
                receiver.from_peers.push(FromPeer {
                    from: *from,
                    control: control_rx,
                    cells: cells_rx,
                });
            }
        }
    }
    (threads, mains)
}
