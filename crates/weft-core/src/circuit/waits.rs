//! Halves that wait for an answer, and until when.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::address::HalfAddr;
use crate::circuit::half::Wait;
use crate::circuit::halves::Halves;
use crate::memory::ledger::queue_memory;

/// Waits are swept once there are more than this many, and more than four for each half.
const SWEEP_FROM: usize = 1024;

/// Waits in the order in which they end.
///
/// All waits are equally long ([`add`](Self::add)); one whose half has closed, or has got its answer,
/// stays until it ends or is swept. [`next_due`](Self::next_due) gives those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    queue: VecDeque<Wait>,
}

impl Waits {
    /// The half must have its answer within `time`. `extension` is what it waits for, see [`Wait`].
    pub(crate) fn add(
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
    pub(crate) fn take(&mut self, halves: &BTreeSet<HalfAddr>) -> Vec<Wait> {
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

    /// Adds those that [`take`](Self::take) gave on another thread.
    pub(crate) fn put(&mut self, waits: Vec<Wait>) {
        self.queue.extend(waits);
        // Two sorted runs, which the sort merges.
        self.queue
            .make_contiguous()
            .sort_by_key(|wait| wait.deadline);
    }

    /// The next half that still waits and whose time is over.
    pub(crate) fn next_due(&mut self, halves: &mut Halves, now: Instant) -> Option<HalfAddr> {
        while let Some(wait) = self.queue.pop_front_if(|wait| wait.deadline <= now) {
            let half = halves.at(wait.half);
            if half.is_some_and(|half| half.still_waits(wait.extension)) {
                return Some(wait.half);
            }
        }
        None
    }

    /// All of them, to look at.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.queue.iter()
    }

    /// Memory that the queue takes.
    pub(crate) fn memory(&self) -> usize {
        queue_memory::<Wait>(&self.queue)
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::slots::HalfKey;

    #[test]
    fn waits_of_another_thread_are_merged_in_order() {
        let now = Instant::now();
        let wait = |seconds, slot| Wait {
            deadline: now + Duration::from_secs(seconds),
            half: HalfAddr {
                thread: ThreadId(0),
                slot: HalfKey(slot),
                generation: 0,
            },
            extension: 0,
        };
        let mut waits = Waits::default();
        waits.put((0..50).map(|n| wait(2 * n, 1)).collect());
        waits.put((10..90).map(|n| wait(n, 2)).collect());
        waits.put(Vec::new());
        let all: Vec<&Wait> = waits.iter().collect();
        assert_eq!(all.len(), 130);
        assert!(all.is_sorted_by_key(|wait| (wait.deadline, wait.half)));
    }
}
