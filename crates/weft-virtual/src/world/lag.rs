//! Messages between a node's threads, and between these and its controller, that are held back: as long as threads of a real
//! node may be late, in an order that rings allow.
//!
//! What one thread sends another arrives in order on each lane, and control messages before the cells that were sent after
//! them. Nothing more is promised.

use std::collections::{BTreeMap, VecDeque};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_core::address::ThreadId;
use weft_core::memory::cells::Empties;
use weft_core::message::{Control, FromController, LaneMsg, ToController};

use super::ground::{Ground, Wake};

/// A ring. What is due at the same moment leaves in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    FromController(ThreadId),
    Control(ThreadId, ThreadId),
    Cells(ThreadId, ThreadId),
    ToController(usize),
}

/// Content of a ring.
#[derive(Debug)]
pub(super) enum Message {
    Controls(Vec<Control>),
    Cells(Vec<LaneMsg>, Empties),
    ToController(Box<ToController>),
    FromController(Box<FromController>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lag {
    rng: ChaCha8Rng,
    /// End of the delays: messages sent later wait only for those sent before them.
    until: u64,
    /// The longest that a message is held back, in nanoseconds.
    most: u64,
    lanes: BTreeMap<Lane, VecDeque<(u64, Message)>>,
    /// The earliest timer that has not gone off.
    armed: Option<u64>,
}

impl Lag {
    /// Holds messages back until then, each for `most` at most. Times are nanoseconds.
    pub(super) fn new(until: u64, most: u64, seed: u64) -> Lag {
        Lag {
            rng: ChaCha8Rng::seed_from_u64(seed),
            until,
            most,
            lanes: BTreeMap::new(),
            armed: None,
        }
    }

    /// Holds messages back until then at least, each from now on for `most` at most.
    pub(super) fn extend(&mut self, until: u64, most: u64) {
        self.until = self.until.max(until);
        self.most = most;
    }

    fn push(&mut self, lane: Lane, message: Message, now: u64, not_before: u64) -> u64 {
        let drawn = match now < self.until {
            true => now + self.rng.random_range(0..=self.most),
            false => now,
        };
        let queue = self.lanes.entry(lane).or_default();
        let last = queue.back().map_or(0, |(at, _)| *at);
        let at = drawn.max(last).max(not_before);
        queue.push_back((at, message));
        at
    }

    /// Holds messages from one thread to another.
    pub(super) fn between(
        &mut self,
        (from, to): (ThreadId, ThreadId),
        controls: Vec<Control>,
        (cells, empties): (Vec<LaneMsg>, Empties),
        now: u64,
    ) {
        let lane = Lane::Control(from, to);
        // Cells come after the control messages that were sent before them, of this turn or of an earlier one.
        let mut last = self
            .lanes
            .get(&lane)
            .and_then(VecDeque::back)
            .map_or(0, |(at, _)| *at);
        if !controls.is_empty() {
            last = self.push(lane, Message::Controls(controls), now, 0);
        }
        if !cells.is_empty() || !empties.is_empty() {
            self.push(
                Lane::Cells(from, to),
                Message::Cells(cells, empties),
                now,
                last,
            );
        }
    }

    /// Holds a message from a thread to the controller.
    pub(super) fn hold_for_controller(&mut self, from: usize, message: ToController, now: u64) {
        let message = Message::ToController(Box::new(message));
        self.push(Lane::ToController(from), message, now, 0);
    }

    /// Holds a message from the controller to a thread.
    pub(super) fn hold_from_controller(&mut self, to: ThreadId, message: FromController, now: u64) {
        let message = Message::FromController(Box::new(message));
        self.push(Lane::FromController(to), message, now, 0);
    }

    fn next_time(&self) -> Option<u64> {
        let fronts = self.lanes.values().filter_map(VecDeque::front);
        fronts.map(|(at, _)| *at).min()
    }

    /// Has what is held back arrive in time at the node with this number.
    pub(super) fn wake(&mut self, node: u32, ground: &mut Ground) {
        if let Some(at) = self.next_time()
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.armed = Some(at);
            ground.wake(at, Wake::Lag { node });
        }
    }

    /// A timer may have gone off.
    pub(super) fn on_timer(&mut self, now: u64) {
        self.armed = self.armed.filter(|armed| *armed > now);
    }

    /// The next message that is due.
    pub(super) fn pop(&mut self, now: u64) -> Option<(Lane, Message)> {
        let due =
            |queue: &VecDeque<(u64, Message)>| queue.front().is_some_and(|(at, _)| *at <= now);
        let (lane, queue) = self.lanes.iter_mut().find(|(_, queue)| due(queue))?;
        let (lane, (_, message)) = (*lane, queue.pop_front()?);
        Some((lane, message))
    }

    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.values().all(VecDeque::is_empty)
    }

    /// Nothing is held back any longer.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.is_empty() && self.until <= now
    }
}
