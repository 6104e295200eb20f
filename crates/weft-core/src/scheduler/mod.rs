//! Choice of the circuit that sends its next cell: one scheduler for each connection thread.
//!
//! Each connection thread schedules its own links only, so that no scheduling decision needs a lock
//! or a message (Engler and Goldberg 2021, 4.3). Within the thread the rule is C tor's
//! (`circuitmux_ewma.c`, `scheduler_kist.c`): of all circuits that have cells queued, on all links
//! that may still write in this run, the one that has sent least lately goes first, a few cells at
//! a time (in C tor one). "Lately" is an exponentially weighted count of cells: a cell counts half
//! as much after each half-life. [`kist`] computes the limit of a link in one run.
//!
//! # One run
//!
//! The owner calls [`Scheduler::set_budget`] for each of [`Scheduler::waiting_links`], then
//! [`Scheduler::choose`] until it gives nothing. Each time it moves cells from the chosen circuit's
//! queue to the chosen link and reports how many by [`Scheduler::sent`]. The rest of a budget stays
//! until the next `set_budget`.
//!
//! Keys are slots in the owner's slabs. They may be reused once the link or circuit is removed;
//! calls with a key that is not in use do nothing.

// Every index here is the scheduler's own (a heap position or a slot that it made), none comes
// from the network.
#![allow(clippy::indexing_slicing)]

mod heap;
pub mod kist;
mod run_times;

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::slots::{HalfKey, LinkKey, SlotKey as _};

use heap::{Heap, NOWHERE, Placed, Priority};

pub use run_times::RunTimes;

/// The half-life of a circuit's count of cells where neither torrc nor the consensus sets it.
pub const DEFAULT_HALF_LIFE: Duration = Duration::from_secs(30);

/// Cells of one circuit that go together, before the scheduler chooses again. In one run a bulk
/// circuit is ahead of another by no more than that; one that has sent little lately still goes
/// before both.
pub const CELLS_AT_ONCE: u32 = 8;

/// Counts are kept relative to an epoch that is at most this many half-lives ago, so that the
/// weight of a cell, 2 to the power of the half-lives since then, stays small enough.
const EPOCH_HALF_LIVES: u32 = 64;

/// The circuit that sends next: see [`Scheduler::choose`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The link that it sends on.
    pub link: LinkKey,
    /// The circuit.
    pub half: HalfKey,
    /// Cells that the link may still write in this run; at least one.
    pub budget: u32,
}

/// The circuits and links of one connection thread, and the circuit that sends next. See the [module](self).
#[derive(Debug)]
pub struct Scheduler {
    half_life: Duration,
    /// The time relative to which counts are kept, from the first time that is known.
    epoch: Option<Instant>,
    /// Number of times that the epoch has moved on, each time by [`EPOCH_HALF_LIVES`].
    epochs: u64,
    /// The last `now`, and what a cell sent then counts: 2^(half-lives since the epoch).
    weight: (Option<Instant>, f64),
    circuits: Vec<Circuit>,
    links: Vec<Link>,
    /// The links with budget and active circuits, each by its most urgent circuit's priority.
    ready: Heap<LinkKey>,
    /// The links with active circuits, in no order.
    waiting: Vec<LinkKey>,
    /// The last tie-break given out.
    order: u64,
}

/// Never in two lines of the processor's cache: of thousands of circuits each is a wait for memory.
#[derive(Debug)]
#[repr(align(32))]
struct Circuit {
    /// [`LinkKey::NONE`]: the slot is not in use.
    link: LinkKey,
    /// Generation of the link, among those that have had this key.
    link_generation: u64,
    /// Cells sent, each weighted by when, relative to the epoch number `epochs`.
    count: f64,
    epochs: u64,
    /// In the link's heap; [`NOWHERE`]: not active.
    place: u32,
}

impl Placed for Circuit {
    fn place(&self) -> u32 {
        self.place
    }
    fn set_place(&mut self, place: u32) {
        self.place = place;
    }
}

/// In one line of the processor's cache, with its circuit if there is only one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Link {
    in_use: bool,
    generation: u64,
    /// Cells that it may still write in this run.
    budget: u32,
    active: Heap<HalfKey>,
    /// In the scheduler's `ready`.
    place: Place,
    /// In the scheduler's `waiting`.
    waiting_at: Place,
}

/// A position, or [`NOWHERE`] to begin with.
#[derive(Debug)]
struct Place(u32);

impl Default for Place {
    fn default() -> Self {
        Self(NOWHERE)
    }
}

impl Placed for Link {
    fn place(&self) -> u32 {
        self.place.0
    }
    fn set_place(&mut self, place: u32) {
        self.place.0 = place;
    }
}

impl Scheduler {
    /// A scheduler without links. `half_life` is torrc's `CircuitPriorityHalflife`, or else the
    /// consensus parameter `CircuitPriorityHalflifeMsec`, or else [`DEFAULT_HALF_LIFE`].
    #[must_use]
    pub fn new(half_life: Duration) -> Self {
        Self {
            half_life: at_least_a_microsecond(half_life),
            epoch: None,
            epochs: 0,
            weight: (None, 1.0),
            circuits: Vec::new(),
            links: Vec::new(),
            ready: Heap::default(),
            waiting: Vec::new(),
            order: 0,
        }
    }

    /// Gives back the memory of keys behind the last one in use.
    pub(crate) fn shrink(&mut self) {
        let last = self
            .circuits
            .iter()
            .rposition(|circuit| circuit.link != LinkKey::NONE);
        self.circuits.truncate(last.map_or(0, |last| last + 1));
        self.circuits.shrink_to_fit();
        for link in &mut self.links {
            link.active.shrink();
        }
    }

    /// Gives back memory that one link needed for more active circuits.
    pub(crate) fn trim(&mut self, link: LinkKey) {
        if let Some(entry) = self.link_mut(link) {
            entry.active.shrink();
        }
    }

    /// A link has opened. It may write nothing until [`Scheduler::set_budget`].
    pub fn link_added(&mut self, link: LinkKey) {
        self.link_removed(link);
        if self.links.len() <= link.index() {
            self.links.resize_with(link.index() + 1, Link::default);
        }
        let entry = &mut self.links[link.index()];
        entry.in_use = true;
        entry.generation += 1;
    }

    /// A link has closed. Its circuits are scheduled no more; each still needs
    /// [`Scheduler::circuit_removed`] before its key is used again.
    pub(crate) fn link_removed(&mut self, link: LinkKey) {
        let Some(entry) = self.link_mut(link) else {
            return;
        };
        entry.in_use = false;
        entry.budget = 0;
        self.links[link.index()].active.clear(&mut self.circuits);
        self.link_changed(link);
    }

    /// A circuit half has been made on `link`. It has sent nothing yet, and nothing is queued.
    pub fn circuit_added(&mut self, half: HalfKey, link: LinkKey, now: Instant) {
        self.circuit_removed(half);
        let Some(link_generation) = self.link_mut(link).map(|entry| entry.generation) else {
            return;
        };
        self.epoch.get_or_insert(now);
        if self.circuits.len() <= half.index() {
            self.circuits.resize_with(half.index() + 1, Circuit::vacant);
        }
        self.circuits[half.index()] = Circuit {
            link,
            link_generation,
            epochs: self.epochs,
            ..Circuit::vacant()
        };
    }

    /// A circuit half has closed.
    pub(crate) fn circuit_removed(&mut self, half: HalfKey) {
        self.set_active(half, false);
        if let Some(circuit) = self.circuits.get_mut(half.index()) {
            circuit.link = LinkKey::NONE;
        }
    }

    /// Reads the circuit, so that it is in the processor's cache when it is needed.
    #[inline]
    pub(crate) fn touch(&self, half: HalfKey) {
        if let Some(circuit) = self.circuits.get(half.index()) {
            black_box(circuit.place);
        }
    }

    /// Cells that a circuit has sent lately, each weighted as if sent now: for the scheduler of the
    /// thread to which it moves.
    pub(crate) fn sent_lately(&mut self, half: HalfKey, now: Instant) -> f64 {
        let weight = self.weight_at(now);
        let circuit = self
            .circuits
            .get(half.index())
            .filter(|circuit| circuit.link != LinkKey::NONE);
        circuit.map_or(0.0, |circuit| {
            circuit.count * epoch_factor(u128::from(self.epochs - circuit.epochs)) / weight
        })
    }

    /// Continues a circuit's count after it was [added](Self::circuit_added): it has sent this
    /// number of cells lately on another thread.
    pub(crate) fn resume(&mut self, half: HalfKey, sent_lately: f64, now: Instant) {
        let weight = self.weight_at(now);
        if let Some(circuit) = self.circuits.get_mut(half.index()) {
            circuit.count = sent_lately * weight;
            circuit.epochs = self.epochs;
        }
    }

    /// Notes that the circuit has, or no longer has, cells queued. Only an active circuit is ever
    /// chosen, and only an active one costs anything.
    pub fn set_active(&mut self, half: HalfKey, active: bool) {
        let Some(circuit) = self.circuits.get_mut(half.index()) else {
            return;
        };
        let link = circuit.link;
        // No link has the number of none.
        let Some(entry) = self.links.get_mut(link.index()) else {
            return;
        };
        if active == (circuit.place != NOWHERE)
            || !entry.in_use
            || entry.generation != circuit.link_generation
        {
            return;
        }
        if active {
            // Its count has not followed the epoch while it was idle.
            circuit.count *= epoch_factor(u128::from(self.epochs - circuit.epochs));
            circuit.epochs = self.epochs;
            self.order += 1;
            let priority = Priority::new(circuit.count, self.order);
            entry.active.set(&mut self.circuits, half, priority);
        } else {
            entry.active.remove(&mut self.circuits, half);
        }
        self.link_changed(link);
    }

    /// Sets the number of cells that the link may write in this run ([`kist::cells`]). It replaces
    /// the rest of the last budget.
    pub fn set_budget(&mut self, link: LinkKey, cells: u32) {
        if let Some(entry) = self.link_mut(link) {
            entry.budget = cells;
            self.link_changed(link);
        }
    }

    /// The links that have active circuits, each once: those whose budget is worth working out.
    #[must_use]
    pub(crate) fn waiting_links(&self) -> &[LinkKey] {
        &self.waiting
    }

    /// Chooses the circuit that sends next, and the link that it goes to: of the active circuits on
    /// links with budget, the one with the lowest count; among equals, the one that was chosen or
    /// became active longest ago. The caller sends as many of its cells as it likes, at most the
    /// link's budget, and reports it by [`Scheduler::sent`].
    pub fn choose(&mut self) -> Option<Choice> {
        let (link, half) = self.most_urgent()?;
        let budget = self.links[link.index()].budget;
        Some(Choice { link, half, budget })
    }

    /// Counts the cells that the chosen circuit has sent, and takes them from the link's budget.
    /// `active`: cells remain in the circuit's queue.
    pub fn sent(&mut self, choice: Choice, cells: u32, active: bool, now: Instant) {
        let weight = self.weight_at(now);
        let Choice { link, half, .. } = choice;
        let Some(circuit) = self.circuits.get_mut(half.index()) else {
            return;
        };
        let Some(entry) = self.links.get_mut(link.index()) else {
            return;
        };
        circuit.count += weight * f64::from(cells);
        self.order += 1;
        entry.budget = entry.budget.saturating_sub(cells);
        if active {
            let priority = Priority::new(circuit.count, self.order);
            entry.active.set(&mut self.circuits, half, priority);
        } else {
            entry.active.remove(&mut self.circuits, half);
        }
        self.link_changed(link);
    }

    /// Changes the half-life; what circuits have sent so far keeps its weight as of `now`.
    pub(crate) fn set_half_life(&mut self, half_life: Duration, now: Instant) {
        let half_life = at_least_a_microsecond(half_life);
        if half_life == self.half_life {
            return;
        }
        let now_weight = self.weight_at(now);
        // From here on, a cell sent now weighs 1. Idle circuits follow too: the factor for what
        // they missed belongs to the old half-life.
        let factor = 1.0 / now_weight;
        for circuit in &mut self.circuits {
            circuit.count *= epoch_factor(u128::from(self.epochs - circuit.epochs)) * factor;
            circuit.epochs = self.epochs;
        }
        self.scale_active(factor, |_, _, _| ());
        self.half_life = half_life;
        self.epoch = Some(now);
        self.weight = (None, 1.0);
    }

    fn most_urgent(&self) -> Option<(LinkKey, HalfKey)> {
        let (_, link) = self.ready.first()?;
        let (_, half) = self.links[link.index()].active.first()?;
        Some((link, half))
    }

    fn link_mut(&mut self, link: LinkKey) -> Option<&mut Link> {
        self.links
            .get_mut(link.index())
            .filter(|entry| entry.in_use)
    }

    /// Brings `ready` and `waiting` in line with the link's circuits and budget.
    fn link_changed(&mut self, link: LinkKey) {
        let entry = &mut self.links[link.index()];
        let first = entry.active.first();
        match (first.is_some(), entry.waiting_at.0) {
            (true, NOWHERE) => {
                #[allow(clippy::cast_possible_truncation)] // links are numbered by u32
                let at = self.waiting.len() as u32;
                entry.waiting_at.0 = at;
                self.waiting.push(link);
            }
            (false, at) if at != NOWHERE => {
                entry.waiting_at.0 = NOWHERE;
                self.waiting.swap_remove(at as usize);
                if let Some(&moved) = self.waiting.get(at as usize) {
                    self.links[moved.index()].waiting_at.0 = at;
                }
            }
            _ => {}
        }
        match first {
            Some((priority, _)) if self.links[link.index()].budget > 0 => {
                self.ready.set(&mut self.links, link, priority);
            }
            _ => self.ready.remove(&mut self.links, link),
        }
    }

    /// Weight of a cell sent at `now`. Moves the epoch on if it is too long ago.
    fn weight_at(&mut self, now: Instant) -> f64 {
        if self.weight.0 == Some(now) {
            return self.weight.1;
        }
        let mut epoch = *self.epoch.get_or_insert(now);
        let elapsed = now.saturating_duration_since(epoch).as_nanos();
        let period = self.half_life.as_nanos() * u128::from(EPOCH_HALF_LIVES);
        let periods = elapsed / period;
        if periods > 0 {
            // No more than what has elapsed, so it fits.
            epoch += Duration::from_nanos_u128(periods * period);
            self.epoch = Some(epoch);
            self.epochs = self
                .epochs
                .saturating_add(u64::try_from(periods).unwrap_or(u64::MAX));
            self.scale_active(epoch_factor(periods), |circuit, factor, epochs| {
                circuit.count *= factor;
                circuit.epochs = epochs;
            });
        }
        #[allow(clippy::cast_precision_loss)] // below 64 half-lives
        let half_lives = (elapsed % period) as f64 / self.half_life.as_nanos() as f64;
        self.weight = (Some(now), half_lives.exp2());
        self.weight.1
    }

    /// Multiplies the counts in the heaps by `factor`, and does `each` with the circuits there.
    fn scale_active(&mut self, factor: f64, each: impl Fn(&mut Circuit, f64, u64)) {
        let epochs = self.epochs;
        for at in 0..self.waiting.len() {
            let link = self.waiting[at];
            let Link { active, .. } = &mut self.links[link.index()];
            active.scale(&mut self.circuits, factor, |circuit| {
                each(circuit, factor, epochs);
            });
            // It still waits, so `waiting` stays as it is.
            self.link_changed(link);
        }
    }
}

impl Circuit {
    fn vacant() -> Self {
        Self {
            link: LinkKey::NONE,
            link_generation: 0,
            count: 0.0,
            epochs: 0,
            place: NOWHERE,
        }
    }
}

/// Factor by which a count shrinks over this number of epochs.
fn epoch_factor(epochs: u128) -> f64 {
    // Past 2^-1074 there is nothing left.
    let epochs = u32::try_from(epochs).unwrap_or(u32::MAX);
    (-f64::from(epochs) * f64::from(EPOCH_HALF_LIVES)).exp2()
}

/// A half-life that can be divided by.
fn at_least_a_microsecond(half_life: Duration) -> Duration {
    half_life.max(Duration::from_micros(1))
}

#[cfg(test)]
mod tests;
