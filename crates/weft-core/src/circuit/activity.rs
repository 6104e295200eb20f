//! Bytes that each circuit of a thread moved in the current bin, and its largest bin of the current
//! second. Idle circuits cost nothing; a cell costs an addition.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weft_cell::CELL_LEN;

use crate::circuit::half::{Moved, Role};
use crate::circuit::halves::Halves;
use crate::extensions::abra::{BIN, Rates, SECOND};
use crate::slots::HalfKey;

/// Bytes of a cell.
const CELL: u32 = 514;
const _: () = assert!(CELL as usize == CELL_LEN);

/// The circuits that moved something.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Nothing is counted until a circuit has asked this relay for its weight, on any thread.
    on: bool,
    /// Halves that moved something in the current bin. The slot of one that has closed since may be
    /// free or used again; its bytes are still counted once.
    in_bin: Vec<HalfKey>,
    /// Halves that did in an earlier bin of the current second, in the same way.
    in_second: Vec<HalfKey>,
    /// When the current bin began.
    began: Option<Instant>,
    /// When the current second did.
    second_began: Option<Instant>,
}

/// Bins and seconds that ended when the clock advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// So many bins. More than one: nothing was moved after the first.
    pub(crate) bins: u32,
    /// Length of the second that ended as well, if one did.
    pub(crate) second: Option<Duration>,
}

impl Activity {
    /// True if cells are counted.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Counts cells from now on, or no longer.
    pub(crate) fn set(&mut self, on: bool, halves: &mut Halves, now: Instant) {
        if self.on != on {
            let mut dropped = Rates::default();
            self.end_bin(halves);
            self.end_second(halves, &mut dropped);
            self.on = on;
            self.began = on.then_some(now);
            self.second_began = self.began;
        }
    }

    /// A circuit moved a cell.
    #[inline(always)]
    pub(crate) fn note(&mut self, slot: HalfKey, measured: &mut Option<Box<Moved>>) {
        if self.on {
            self.note_cells(slot, measured, 1);
        }
    }

    /// A circuit moved cells.
    #[inline(never)]
    pub(crate) fn note_cells(
        &mut self,
        slot: HalfKey,
        measured: &mut Option<Box<Moved>>,
        cells: usize,
    ) {
        if self.on && cells > 0 {
            let moved = &mut measured.get_or_insert_default();
            if moved.bin == 0 {
                self.in_bin.push(slot);
            }
            let cells = u32::try_from(cells).unwrap_or(u32::MAX);
            moved.bin = moved.bin.saturating_add(cells.saturating_mul(CELL));
        }
    }

    /// Ends the bin, and the second, if it is time. To be called whenever cells were scheduled and a few
    /// times a second: a bin is then longer than [`BIN`] only if it was empty at its end.
    pub(crate) fn pass(&mut self, halves: &mut Halves, now: Instant) -> Option<Ended> {
        let began = self.began?;
        let took = now.saturating_duration_since(began);
        if took < BIN {
            return None;
        }
        self.end_bin(halves);
        let bins = u32::try_from(took.as_millis() / BIN.as_millis()).unwrap_or(u32::MAX);
        self.began = Some(began + BIN.saturating_mul(bins));
        let second = self
            .second_began
            .map(|began| now.saturating_duration_since(began))
            .filter(|second| *second >= SECOND);
        if second.is_some() {
            self.second_began = self.began;
        }
        Some(Ended { bins, second })
    }

    /// The rates of the second that ended just now.
    pub(crate) fn take_rates(&mut self, halves: &mut Halves) -> Rates {
        let mut rates = Rates::default();
        self.end_second(halves, &mut rates);
        rates
    }

    fn end_bin(&mut self, halves: &mut Halves) {
        for slot in self.in_bin.drain(..) {
            if let Some(moved) = moved_of(halves, slot)
                && moved.bin > 0
            {
                if moved.most == 0 {
                    self.in_second.push(slot);
                }
                moved.most = moved.most.max(std::mem::take(&mut moved.bin));
            }
        }
    }

    fn end_second(&mut self, halves: &mut Halves, rates: &mut Rates) {
        for slot in self.in_second.drain(..) {
            if let Some(moved) = moved_of(halves, slot) {
                rates.note(std::mem::take(&mut moved.most));
            }
        }
    }

    /// True if every half that moved something is listed.
    pub(crate) fn audit(&self, halves: &Halves) -> bool {
        let in_bin: BTreeSet<HalfKey> = self.in_bin.iter().copied().collect();
        let in_second: BTreeSet<HalfKey> = self.in_second.iter().copied().collect();
        halves.iter().all(|(slot, half)| match &half.role {
            Role::Backward(backward) => backward.measured.as_ref().is_none_or(|measured| {
                let Moved { bin, most } = **measured;
                (bin == 0 || in_bin.contains(&slot)) && (most == 0 || in_second.contains(&slot))
            }),
            Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => true,
        })
    }
}

fn moved_of(halves: &mut Halves, slot: HalfKey) -> Option<&mut Moved> {
    match &mut halves.get_mut(slot)?.role {
        Role::Backward(backward) => Some(backward.measured.as_mut()?),
        Role::Forward(_) | Role::Origin(_) | Role::Tunnel(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::circuit::half::CircuitHalf;
    use crate::extensions::abra::{THRESHOLD, mbit_per_second};
    use crate::slots::{LinkKey, SlotKey as _};

    struct Thread {
        halves: Halves,
        activity: Activity,
        now: Instant,
    }

    impl Thread {
        fn new() -> Self {
            let mut thread = Thread {
                halves: Halves::new(ThreadId(0)),
                activity: Activity::default(),
                now: Instant::now(),
            };
            (thread.activity).set(true, &mut thread.halves, thread.now);
            thread
        }

        fn circuit(&mut self) -> HalfKey {
            let half = CircuitHalf::backward(LinkKey::from_index(0), 1);
            self.halves.insert(half).unwrap().slot
        }

        fn cells(&mut self, slot: HalfKey, cells: u32) {
            for _ in 0..cells {
                let half = self.halves.get_mut(slot).unwrap();
                let Role::Backward(backward) = &mut half.role else {
                    unreachable!("all halves here are backward");
                };
                self.activity.note(slot, &mut backward.measured);
            }
        }

        fn pass(&mut self, time: Duration) -> Option<Ended> {
            self.now += time;
            let ended = self.activity.pass(&mut self.halves, self.now);
            assert!(self.activity.audit(&self.halves));
            ended
        }
    }

    fn rates_of(cells: &[u32]) -> Rates {
        let mut rates = Rates::default();
        for cells in cells {
            rates.note(cells * CELL);
        }
        rates
    }

    #[test]
    fn the_rate_of_a_circuit_is_its_best_bin() {
        let mut thread = Thread::new();
        let (one, other) = (thread.circuit(), thread.circuit());
        thread.circuit();
        for bin in 0..10 {
            thread.cells(one, bin);
            thread.cells(other, 10 - bin);
            let ended = thread.pass(BIN).unwrap();
            assert_eq!(ended.second.is_some(), bin == 9);
        }
        let rates = thread.activity.take_rates(&mut thread.halves);
        assert_eq!(rates, rates_of(&[9, 10]));
        assert_eq!(
            thread.activity.take_rates(&mut thread.halves),
            Rates::default()
        );
    }

    #[test]
    fn bins_without_cells_cost_nothing_and_are_counted() {
        let mut thread = Thread::new();
        assert_eq!(thread.pass(BIN / 2), None);
        let ended = thread.pass(BIN * 3).unwrap();
        assert_eq!(
            ended,
            Ended {
                bins: 3,
                second: None
            }
        );
        // Half a bin is over already.
        assert_eq!(thread.pass(BIN / 2).unwrap().bins, 1);
    }

    #[test]
    fn a_circuit_that_takes_a_closed_ones_place_is_counted_once() {
        let mut thread = Thread::new();
        let closed = thread.circuit();
        thread.cells(closed, 5);
        thread.halves.remove(closed);
        let next = thread.circuit();
        assert_eq!(next, closed);
        thread.cells(next, 3);
        thread.pass(BIN);
        thread.halves.remove(next);
        thread.circuit();
        thread.cells(next, 2);
        thread.pass(BIN);
        let rates = thread.activity.take_rates(&mut thread.halves);
        assert_eq!(rates, rates_of(&[2]));
    }

    #[test]
    fn nothing_is_counted_while_nobody_asks() {
        let mut thread = Thread::new();
        let circuit = thread.circuit();
        thread.cells(circuit, 5);
        (thread.activity).set(false, &mut thread.halves, thread.now);
        thread.cells(circuit, 5);
        assert_eq!(thread.pass(BIN * 20), None);
        let rates = thread.activity.take_rates(&mut thread.halves);
        assert_eq!(rates.weight(THRESHOLD), 0.0);
    }

    #[test]
    fn a_cell_in_a_bin_is_41_kbit_a_second() {
        assert!((mbit_per_second(f64::from(CELL)) - 0.041_12).abs() < 1e-9);
    }
}
