//! Halves that wait for an answer, and until when.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::address::HalfAddr;
use crate::half::{Halves, Wait};
use crate::ledger::queue_memory;

/// Waits are swept once there are more than this many, and more than four for each half.
const SWEEP_FROM: usize = 1024;

/// Waits in the order in which they end.
///
/// All waits are equally long ([`add`](Self::add)); one whose half has closed, or has got its answer,
/// stays until it ends or is swept. [`next_due`](Self::next_due) gives those that have ended.
#[derive(Debug, Default)]
pub(super) struct Waits {
    queue: VecDeque<Wait>,
}

impl Waits {
    /// The half must have its answer within `time`. `extension` is what it waits for, see [`Wait`].
    pub(super) fn add(
        &mut self,
        (half, extension): (HalfAddr, u32),
        halves: &mut Halves,
        time: Duration,
        now: Instant,
    ) {
        // Halves are made and closed, extended and truncated, faster than waits end: those that are
        // over are swept, so that no more remain than a few for each half.
        if self.queue.len() > SWEEP_FROM && self.queue.len() > 4 * halves.len() {
            self.queue.retain(|wait| {
                let half = halves.at(wait.half);
                half.is_some_and(|half| half.still_waits(wait.extension))
            });
        }
        self.queue.push_back(Wait {
            deadline: now + time,
            half,
            extension,
        });
    }

    /// Takes out those of these halves, which move to another thread.
    pub(super) fn take(&mut self, halves: &BTreeSet<HalfAddr>) -> Vec<Wait> {
        let mut taken = Vec::new();
        self.queue.retain(|wait| {
            let moves = halves.contains(&wait.half);
            if moves {
                taken.push(*wait);
            }
            !moves
        });
        taken
    }

    /// Adds one that began on another thread.
    pub(super) fn put(&mut self, wait: Wait) {
        let place = self
            .queue
            .partition_point(|other| other.deadline <= wait.deadline);
        self.queue.insert(place, wait);
    }

    /// The next half that still waits and whose time is over.
    pub(super) fn next_due(&mut self, halves: &mut Halves, now: Instant) -> Option<HalfAddr> {
        while let Some(wait) = self.queue.pop_front_if(|wait| wait.deadline <= now) {
            let half = halves.at(wait.half);
            if half.is_some_and(|half| half.still_waits(wait.extension)) {
                return Some(wait.half);
            }
        }
        None
    }

    /// All of them, to look at.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.queue.iter()
    }

    /// Memory that the queue takes.
    pub(super) fn memory(&self) -> usize {
        queue_memory::<Wait>(&self.queue)
    }

    /// Gives back memory that nothing is in.
    pub(super) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }
}
