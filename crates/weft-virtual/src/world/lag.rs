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

use super::World;
use super::ground::{Ground, Wake};
use super::node::{Common, Node};

/// A ring. What is due at the same moment leaves in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    FromController(ThreadId),
    Control(ThreadId, ThreadId),
    Cells(ThreadId, ThreadId),
    ToController(usize),
}

#[derive(Debug)]
enum Message {
    Controls(Vec<Control>),
    Cells(Vec<LaneMsg>, Empties),
    ToController(Box<ToController>),
    FromController(Box<FromController>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lag {
    rng: ChaCha8Rng,
    /// What is sent after this waits for nothing but what was sent before it.
    until: u64,
    /// The longest that a message is held back, in nanoseconds.
    most: u64,
    lanes: BTreeMap<Lane, VecDeque<(u64, Message)>>,
    /// The earliest timer that has not gone off.
    armed: Option<u64>,
}

impl Lag {
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

    /// What a thread sends another.
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

    /// What a thread sends the controller.
    pub(super) fn hold_for_controller(&mut self, from: usize, message: ToController, now: u64) {
        let message = Message::ToController(Box::new(message));
        self.push(Lane::ToController(from), message, now, 0);
    }

    /// What the controller sends a thread.
    pub(super) fn hold_from_controller(&mut self, to: ThreadId, message: FromController, now: u64) {
        let message = Message::FromController(Box::new(message));
        self.push(Lane::FromController(to), message, now, 0);
    }

    fn next_time(&self) -> Option<u64> {
        let fronts = self.lanes.values().filter_map(VecDeque::front);
        fronts.map(|(at, _)| *at).min()
    }

    /// The next message that is due.
    fn pop(&mut self, now: u64) -> Option<(Lane, Message)> {
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
}

impl Node {
    /// Holds messages back from now on, until then, each for so long at most. Times are nanoseconds.
    pub(super) fn hold_back(&mut self, until: u64, most: u64, seed: u64) {
        match &mut self.lag {
            Some(lag) => {
                lag.until = lag.until.max(until);
                lag.most = most;
            }
            None => {
                self.lag = Some(Box::new(Lag {
                    rng: ChaCha8Rng::seed_from_u64(seed),
                    until,
                    most,
                    lanes: BTreeMap::new(),
                    armed: None,
                }));
            }
        }
    }

    /// Has what is held back arrive in time.
    pub(super) fn wake_lag(&mut self, ground: &mut Ground) {
        let node = self.number;
        if let Some(lag) = &mut self.lag
            && let Some(at) = lag.next_time()
            && lag.armed.is_none_or(|armed| at < armed)
        {
            lag.armed = Some(at);
            ground.wake(at, Wake::Lag { node });
        }
    }

    /// Hands out what is due.
    pub(super) fn hand_out(&mut self, common: &Common, ground: &mut Ground) {
        let (nanos, now) = (ground.nanos(), ground.now());
        if let Some(lag) = &mut self.lag {
            lag.armed = lag.armed.filter(|armed| *armed > nanos);
        }
        while let Some((lane, message)) = self.lag.as_mut().and_then(|lag| lag.pop(nanos)) {
            let thread = match lane {
                Lane::FromController(to) | Lane::Control(_, to) | Lane::Cells(_, to) => {
                    self.threads.get_mut(usize::from(to.0))
                }
                Lane::ToController(_) => None,
            };
            match (message, thread) {
                (Message::ToController(message), _) => {
                    self.controller.handle(*message, now);
                    self.act(common, ground);
                }
                (Message::Controls(controls), Some(thread)) => {
                    thread.mail.controls.extend(controls);
                    thread.ask_turn(nanos, ground);
                }
                (Message::Cells(cells, empties), Some(thread)) => {
                    if let Lane::Cells(from, _) = lane {
                        thread.mail.cells.push((from, cells, empties));
                    }
                    thread.ask_turn(nanos, ground);
                }
                (Message::FromController(message), Some(thread)) => {
                    thread.mail.controller.push_back(*message);
                    thread.ask_turn(nanos, ground);
                }
                (_, None) => {}
            }
        }
        if self
            .lag
            .as_ref()
            .is_some_and(|lag| lag.is_empty() && lag.until <= nanos)
        {
            self.lag = None;
        }
        self.wake_lag(ground);
    }
}

impl World {
    /// Messages of a node that were held back are due.
    pub(super) fn end_lag(&mut self, number: u32) {
        self.enter(number);
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.hand_out(&self.common, &mut self.ground);
        }
    }
}
