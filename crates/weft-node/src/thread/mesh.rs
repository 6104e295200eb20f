//! The channels between threads: one ring per ordered pair and lane, one wake-up per turn
//! (architecture rule 3).

use std::collections::VecDeque;
use std::sync::Arc;

use mio::Waker;
use weft_core::address::ThreadId;
use weft_core::manager::Outbox;
use weft_core::memory::cells::Empties;
use weft_core::message::{Control, FromController, LaneMsg, ToController};
use weft_sync::ring::{Receiver, Sender, ring};
use weft_sync::wake::WakeFlag;

use super::adopt::Adopt;
use super::edges::AdoptEdge;
use super::params::ThreadParams;
use crate::wake::WakeUp;

/// Messages that a control lane holds.
const CONTROL_LANE: usize = 4096;
/// Batches that a cell lane holds.
const CELL_LANE: usize = 64;
/// Messages that a lane to or from the controller holds.
const CONTROLLER_LANE: usize = 8192;
/// Cells in one batch at most.
const BATCH: usize = 512;

/// Cells on their way to another thread, and empties on their way home.
#[derive(Debug, Default)]
pub(crate) struct CellBatch {
    /// Cells, in order.
    pub cells: Vec<LaneMsg>,
    /// Memory that came from the receiver.
    pub empties: Empties,
}

/// The sending end toward one other thread.
#[derive(Debug)]
pub(crate) struct ToPeer {
    /// The other thread.
    pub to: ThreadId,
    /// Control lane.
    control: Sender<Control>,
    /// Cell lane.
    cells: Sender<CellBatch>,
    /// Its wake-up.
    wake: WakeUp,
    /// Messages for which the control lane had no room.
    stuck_control: VecDeque<Control>,
    /// Batches for which the cell lane had no room.
    stuck_cells: VecDeque<CellBatch>,
}

impl ToPeer {
    /// Moves what a manager has for the other thread into the lanes, and wakes it once.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) {
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
        let mut empties = std::mem::take(&mut outbox.empties);
        let mut cells = outbox.cells.drain(..);
        loop {
            let batch = CellBatch {
                cells: cells.by_ref().take(BATCH).collect(),
                empties: std::mem::take(&mut empties),
            };
            if batch.cells.is_empty() && batch.empties.is_empty() {
                break;
            }
            self.stuck_cells.push_back(batch);
        }
        drop(cells);
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
    pub(crate) fn is_stuck(&self) -> bool {
        !self.stuck_control.is_empty() || !self.stuck_cells.is_empty()
    }

    /// Cells that found no room.
    pub(crate) fn stuck_cells(&self) -> usize {
        self.stuck_cells.iter().map(|batch| batch.cells.len()).sum()
    }
}

/// The receiving end from one other thread.
#[derive(Debug)]
pub(crate) struct FromPeer {
    /// The other thread.
    pub from: ThreadId,
    /// Control lane.
    pub control: Receiver<Control>,
    /// Cell lane.
    pub cells: Receiver<CellBatch>,
}

/// Messages of the main thread to a connection thread.
#[derive(Debug)]
pub(crate) enum ToThread {
    /// Own this connection.
    Adopt(Box<Adopt>),
    /// Own this stream's socket.
    AdoptEdge(Box<AdoptEdge>),
    /// A message for the local connection manager.
    Message(FromController),
    /// The link certificate and identity were renewed.
    Renewed(Arc<weft_tls::LinkTls>),
    /// New parameters of torrc and consensus.
    Params(Box<ThreadParams>),
    /// End.
    Stop,
}

/// One connection thread's ends of all channels.
#[derive(Debug)]
pub(crate) struct ThreadEnds {
    /// The thread.
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
pub(crate) struct MainEnds {
    /// Messages to it.
    to: Sender<ToThread>,
    /// Messages from it.
    pub from: Receiver<ToController>,
    /// Its wake-up.
    wake: WakeUp,
    /// Messages that found no room.
    stuck: VecDeque<ToThread>,
    /// Something was sent since the last wake-up.
    sent: bool,
}

impl MainEnds {
    /// Queues a message.
    pub(crate) fn send(&mut self, message: ToThread) {
        self.stuck.push_back(message);
    }

    /// Moves queued messages into the lane and wakes the thread once.
    pub(crate) fn flush(&mut self) {
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
    pub(crate) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// Messages from the thread wait to be taken.
    pub(crate) fn has_more(&self) -> bool {
        !self.from.is_empty()
    }

    /// Number of messages that found no room.
    pub(crate) fn stuck(&self) -> usize {
        self.stuck.len()
    }
}

/// Makes all channels between the main thread and the connection threads. `wakers[i]` wakes
/// connection thread `i`.
pub(crate) fn mesh(wakers: Vec<Arc<Waker>>, main: &WakeUp) -> (Vec<ThreadEnds>, Vec<MainEnds>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use weft_cell::reason::DestroyReason;
    use weft_cell::{Cell, ChanCmd};
    use weft_core::address::HalfAddr;
    use weft_core::message::{HalfCell, HalfControl};
    use weft_core::slots::HalfKey;

    /// The channels between two threads.
    fn two() -> (Vec<ThreadEnds>, Vec<MainEnds>, Vec<mio::Poll>) {
        let mut polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..3 {
            let (poll, waker) = crate::thread::event_loop().unwrap();
            polls.push(poll);
            wakers.push(waker);
        }
        let main = WakeUp {
            flag: Arc::new(WakeFlag::new()),
            waker: wakers.remove(2),
        };
        let (threads, mains) = mesh(wakers, &main);
        (threads, mains, polls)
    }

    fn half(slot: u32) -> HalfAddr {
        HalfAddr {
            thread: ThreadId(1),
            slot: HalfKey(slot),
            generation: 0,
        }
    }

    /// A cell with its number as its circuit id.
    fn cell(number: u32) -> LaneMsg {
        LaneMsg::Relay(HalfCell {
            from: half(0),
            to: half(0),
            cell: Box::new(Cell::new(number, ChanCmd::RELAY)),
        })
    }

    fn control(slot: u32) -> Control {
        Control::Half(HalfControl::ExtendFailed {
            to: half(slot),
            extension: 0,
            reason: DestroyReason::NONE,
        })
    }

    fn slot(control: Control) -> u32 {
        match control {
            Control::Half(control) => control.to().slot.0,
            Control::Edge(control) => control.to().slot.0,
            Control::Transfer(_) => unreachable!("no link moves here"),
        }
    }

    fn received(from: &mut FromPeer) -> Vec<u32> {
        std::iter::from_fn(|| from.cells.pop())
            .flat_map(|batch| batch.cells)
            .filter_map(|message| Some(message.cell()?.circ_id()))
            .collect()
    }

    #[test]
    fn each_thread_is_joined_to_every_other_and_to_the_main_thread() {
        let (threads, mains, _polls) = two();
        assert_eq!((threads.len(), mains.len()), (2, 2));
        for thread in &threads {
            let others: Vec<ThreadId> = thread.to_peers.iter().map(|peer| peer.to).collect();
            assert_eq!(others.len(), 1);
            assert_ne!(others[0], thread.me);
            assert_eq!(thread.from_peers[0].from, others[0]);
        }
    }

    #[test]
    fn cells_arrive_in_order_in_batches_and_empties_with_them() {
        let (mut threads, _mains, _polls) = two();
        let mut second = threads.pop().unwrap();
        let mut first = threads.pop().unwrap();
        let mut outbox = Outbox::default();
        outbox.cells.extend((0..1500).map(cell));
        outbox.control.push(control(7));
        outbox
            .empties
            .push(Box::new(Cell::new(0, ChanCmd::PADDING)));
        first.to_peers[0].flush(&mut outbox);
        assert!(outbox.is_empty());
        let from = &mut second.from_peers[0];
        assert_eq!(from.cells.len(), 3);
        assert_eq!(slot(from.control.pop().unwrap()), 7);
        assert_eq!(received(from), (0..1500).collect::<Vec<u32>>());
    }

    #[test]
    fn a_full_lane_keeps_everything_in_order_and_no_cell_overtakes_its_control() {
        let (mut threads, _mains, _polls) = two();
        let mut second = threads.pop().unwrap();
        let mut first = threads.pop().unwrap();
        let to = &mut first.to_peers[0];
        let mut outbox = Outbox::default();
        for number in 0..CONTROL_LANE + 10 {
            outbox.control.push(control(u32::try_from(number).unwrap()));
        }
        outbox.cells.push(cell(1));
        to.flush(&mut outbox);
        assert!(to.is_stuck());
        let from = &mut second.from_peers[0];
        assert_eq!(from.control.len(), CONTROL_LANE);
        assert!(from.cells.is_empty(), "its control messages wait");
        let mut slots = Vec::new();
        slots.extend(std::iter::from_fn(|| from.control.pop()).map(slot));
        to.flush(&mut outbox);
        assert!(!to.is_stuck());
        slots.extend(std::iter::from_fn(|| from.control.pop()).map(slot));
        assert_eq!(slots, (0..slots.len() as u32).collect::<Vec<u32>>());
        assert_eq!(slots.len(), CONTROL_LANE + 10);
        assert_eq!(received(from), vec![1]);
    }

    #[test]
    fn a_sleeping_thread_is_woken_once() {
        let (mut threads, _mains, mut polls) = two();
        let second = threads.pop().unwrap();
        let mut first = threads.pop().unwrap();
        assert!(second.flag.prepare_sleep());
        for number in 0..3 {
            let mut outbox = Outbox::default();
            outbox.cells.push(cell(number));
            first.to_peers[0].flush(&mut outbox);
        }
        let mut events = mio::Events::with_capacity(8);
        polls[1]
            .poll(&mut events, Some(std::time::Duration::from_secs(10)))
            .unwrap();
        assert_eq!(events.iter().count(), 1);
        assert!(second.flag.take(), "it was notified");
    }
}
