//! What a thread holds in queues and buffers, and what is freed when all threads together hold more
//! than `MaxMemInQueues`.
//!
//! Everything that a peer can make grow is counted where it is held, with its owner: a circuit half,
//! an edge or a link. Closing the owner frees it. An owner's weight is its bytes times the age of the
//! oldest of them, and under pressure the heaviest owners are closed until usage is back under nine
//! tenths of the limit. C tor judges by age alone (`circuits_handle_oom`, because of the Sniper attack of
//! Jansen et al. 2014); then a peer that keeps many bytes young is spared, and honest circuits with a
//! few old cells are closed in his place.
//!
//! No thread sees all owners. Each sends the controller a [`Ledger`]; the controller computes where to
//! cut ([`relieve`]), and each thread closes its part.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What remains after memory was freed, of the limit: `FRACTION_OF_DATA_TO_RETAIN_ON_OOM`.
const RETAIN_TENTHS: u128 = 9;

/// Weights are distinguished to one part in this many, a power of two.
const STEPS_PER_OCTAVE: u64 = 16;

/// A queue with room for this many elements or fewer keeps it.
const LONG_QUEUE: usize = 256;

/// Bytes that closing one owner frees, and how old the oldest of them are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of memory.
    pub bytes: usize,
    /// How long the oldest has waited for its peer; zero if nothing waits.
    pub age: Duration,
}

impl Held {
    /// Bytes times milliseconds. What has just come counts as one millisecond old, so that among
    /// owners of which nothing waits the largest is the heaviest.
    #[must_use]
    pub fn weight(self) -> u64 {
        let age = u64::try_from(self.age.as_millis()).unwrap_or(u64::MAX);
        (self.bytes as u64).saturating_mul(age.saturating_add(1))
    }
}

impl std::ops::AddAssign for Held {
    /// Another part of the same owner.
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.age = self.age.max(other.age);
    }
}

/// What one thread holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes of owners by the step that their weight is in.
    owned: Vec<u64>,
    /// The sum of these.
    owned_total: u64,
    /// Free cells and empty buffers: given back before any owner is closed.
    spare: u64,
    /// Tables, and what links hold that move: nothing that closing somebody would free.
    fixed: u64,
}

impl Ledger {
    /// Counts an owner.
    pub fn add(&mut self, held: Held) {
        let step = usize::try_from(step_of(held.weight())).unwrap_or(usize::MAX);
        if step >= self.owned.len() {
            self.owned.resize(step + 1, 0);
        }
        if let Some(bytes) = self.owned.get_mut(step) {
            *bytes = bytes.saturating_add(held.bytes as u64);
        }
        self.owned_total = self.owned_total.saturating_add(held.bytes as u64);
    }

    /// Counts memory that is free for reuse.
    pub(crate) fn add_spare(&mut self, bytes: usize) {
        self.spare = self.spare.saturating_add(bytes as u64);
    }

    /// Counts memory that nothing frees.
    pub fn add_fixed(&mut self, bytes: usize) {
        self.fixed = self.fixed.saturating_add(bytes as u64);
    }

    /// All bytes counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        (self.owned_total)
            .saturating_add(self.spare)
            .saturating_add(self.fixed)
    }

    /// Bytes that closing owners frees.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned_total
    }

    /// Bytes of owners in a step.
    fn at(&self, step: usize) -> u64 {
        self.owned.get(step).copied().unwrap_or(0)
    }
}

/// What one thread has to free: its owners of at least this weight, heaviest first, until so many
/// bytes are freed. Its spare memory is freed in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The least weight of an owner that may be closed.
    pub weight: u64,
    /// Bytes to free.
    pub bytes: u64,
}

/// If the threads together hold `allowed` bytes or more: what each of them, in order, has to free so
/// that at most nine tenths of that remain. `None`: nothing has to be done, or there is nothing that
/// could be freed.
#[must_use]
pub fn relieve(ledgers: &[&Ledger], allowed: u64) -> Option<Vec<Cut>> {
    let sum = |part: fn(&Ledger) -> u64| {
        let parts = ledgers.iter().map(|ledger| part(ledger));
        parts.fold(0, u64::saturating_add)
    };
    let (used, spare) = (sum(Ledger::total), sum(|ledger| ledger.spare));
    if used < allowed || (spare == 0 && sum(Ledger::owned) == 0) {
        return None;
    }
    let retained = u64::try_from(u128::from(allowed) * RETAIN_TENTHS / 10).unwrap_or(u64::MAX);
    let mut missing = used.saturating_sub(retained).saturating_sub(spare);
    let mut cuts = vec![Cut::default(); ledgers.len()];
    let steps = ledgers.iter().map(|ledger| ledger.owned.len()).max();
    for step in (0..steps.unwrap_or(0)).rev() {
        let here = sum_at(ledgers, step);
        if missing == 0 {
            break;
        }
        if here == 0 {
            continue;
        }
        let weight = step_start(step as u64);
        for (cut, ledger) in cuts.iter_mut().zip(ledgers) {
            // All of them, or each thread's part of the last step, rounded up.
            let mine = u128::from(ledger.at(step));
            let part = (mine * u128::from(missing.min(here))).div_ceil(u128::from(here));
            let part = u64::try_from(part).unwrap_or(u64::MAX);
            cut.weight = weight;
            cut.bytes = cut.bytes.saturating_add(part);
        }
        missing = missing.saturating_sub(here);
    }
    Some(cuts)
}

/// Bytes of all threads' owners in a step.
fn sum_at(ledgers: &[&Ledger], step: usize) -> u64 {
    let parts = ledgers.iter().map(|ledger| ledger.at(step));
    parts.fold(0, u64::saturating_add)
}

/// The step that a weight is in: exact below 16, then steps of a sixteenth of each power of two.
fn step_of(weight: u64) -> u64 {
    // Powers of two past the exact steps; each halves the resolution.
    let octave = (weight / STEPS_PER_OCTAVE)
        .checked_ilog2()
        .map_or(0, |log| u64::from(log) + 1);
    match octave {
        0 => weight,
        _ => octave * STEPS_PER_OCTAVE + (weight >> (octave - 1)) % STEPS_PER_OCTAVE,
    }
}

/// The least weight in a step.
fn step_start(step: u64) -> u64 {
    let octave = step / STEPS_PER_OCTAVE;
    match octave {
        0 => step,
        _ => (STEPS_PER_OCTAVE + step % STEPS_PER_OCTAVE) << (octave - 1),
    }
}

/// Memory that an entry of a `BTreeMap` takes: a node is between half full and full, and fewer are
/// full when keys come in order.
pub(crate) const fn map_entry<K, V>() -> usize {
    (size_of::<K>() + size_of::<V>()) * 7 / 4 + 2
}

/// Memory of a queue without what its elements point to.
pub(crate) fn queue_memory<T>(queue: &VecDeque<T>) -> usize {
    queue.capacity() * size_of::<T>()
}

/// Gives back memory of a queue that was long. To be called when something was taken from it; what
/// it moves is less than what was taken since it last did.
#[inline]
pub(crate) fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > LONG_QUEUE && queue.len() < queue.capacity() / 4 {
        queue.shrink_to(queue.len() * 2);
    }
}

/// Since when the front of a queue waits, without a note for each thing in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// When the first of those that wait came, or one before it.
    since: Option<Instant>,
    /// One that waits, by its number, and when it came.
    next: Option<(u64, Instant)>,
}

impl Waits {
    /// Those from number `front` up to `end` wait now.
    pub fn note(&mut self, front: u64, end: u64, now: Instant) {
        if front == end {
            *self = Waits::default();
            return;
        }
        self.since.get_or_insert(now);
        match self.next {
            Some((number, came)) if front >= number => {
                self.since = Some(came);
                self.next = Some((end, now));
            }
            Some(_) => {}
            None => self.next = Some((end, now)),
        }
    }

    /// For how long the first of those that wait has waited; somewhat too much at times.
    pub fn age(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn held(age: u64, bytes: usize) -> Held {
        Held {
            bytes,
            age: Duration::from_millis(age),
        }
    }

    fn ledger(owners: &[(u64, usize)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (age, bytes) in owners {
            ledger.add(held(*age, *bytes));
        }
        ledger
    }

    /// What a thread closes, given its owners and its cut.
    fn close(owners: &[(u64, usize)], cut: Cut) -> Vec<(u64, usize)> {
        let mut owners = owners.to_vec();
        owners.sort_by_key(|(age, bytes)| std::cmp::Reverse(held(*age, *bytes).weight()));
        let mut freed = 0;
        let dies = |(age, bytes): &(u64, usize)| {
            let go_on = freed < cut.bytes && held(*age, *bytes).weight() >= cut.weight;
            freed += *bytes as u64;
            go_on
        };
        owners.into_iter().take_while(dies).collect()
    }

    #[test]
    fn below_the_limit_nobody_dies() {
        let mut ledger = ledger(&[(10_000, 500)]);
        ledger.add_fixed(499);
        assert_eq!(relieve(&[&ledger], 1_000), None);
        ledger.add_fixed(1);
        assert!(relieve(&[&ledger], 1_000).is_some());
    }

    #[test]
    fn the_oldest_and_largest_die_until_nine_tenths_remain() {
        let owners = [(100, 400), (900, 300), (5_000, 200), (200, 100)];
        let cut = relieve(&[&ledger(&owners)], 1_000).unwrap()[0];
        assert_eq!(close(&owners, cut), [(5_000, 200)], "old, and not small");
        // Many bytes that are kept young weigh more than a few that are old.
        let owners = [(100, 100_000), (5_000, 200), (5_000, 300)];
        let cut = relieve(&[&ledger(&owners)], 100_000).unwrap()[0];
        assert_eq!(close(&owners, cut), [(100, 100_000)]);
    }

    #[test]
    fn of_owners_alike_no_more_die_than_must() {
        let owners = [(0, 1_000); 100];
        let cut = relieve(&[&ledger(&owners)], 100_000).unwrap()[0];
        assert_eq!(close(&owners, cut).len(), 10);
        // On two threads each does its part.
        let (some, others) = owners.split_at(30);
        let cuts = relieve(&[&ledger(some), &ledger(others)], 100_000).unwrap();
        let closed = [close(some, cuts[0]).len(), close(others, cuts[1]).len()];
        assert_eq!(closed, [3, 7]);
    }

    #[test]
    fn spare_memory_goes_first_and_what_nothing_frees_takes_nobody_along_in_vain() {
        let mut spare = ledger(&[(10_000, 500)]);
        spare.add_spare(600);
        assert_eq!(relieve(&[&spare], 1_000).unwrap()[0], Cut::default());
        let mut fixed = Ledger::default();
        fixed.add_fixed(5_000);
        assert_eq!(relieve(&[&fixed], 1_000), None, "there is nothing to free");
        fixed.add(held(0, 10));
        assert_eq!(relieve(&[&fixed], 1_000).unwrap()[0].bytes, 10);
    }

    #[test]
    fn absurd_numbers_saturate() {
        let mut ledger = ledger(&[(1, usize::MAX), (u64::MAX, usize::MAX)]);
        ledger.add_fixed(usize::MAX);
        assert_eq!(ledger.total(), u64::MAX);
        assert!(relieve(&[&ledger, &ledger], u64::MAX).is_some());
        assert!(relieve(&[&ledger], 0).is_some());
        assert_eq!(relieve(&[], 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn steps_are_ordered_and_fine(weight in any::<u64>(), more in 0..1_000_000_u64) {
            let step = step_of(weight);
            let start = step_start(step);
            prop_assert!(start <= weight);
            prop_assert_eq!(step_of(start), step);
            prop_assert!(weight - start <= weight / STEPS_PER_OCTAVE);
            prop_assert!(step_of(weight.saturating_add(more)) >= step);
        }

        #[test]
        fn enough_is_freed_and_the_light_are_spared(
            threads in proptest::collection::vec(
                proptest::collection::vec((0..100_000_u64, 1..10_000_usize), 0..50), 1..5),
            fixed in 0..20_000_usize,
        ) {
            let mut ledgers: Vec<Ledger> = threads.iter().map(|owners| ledger(owners)).collect();
            ledgers[0].add_fixed(fixed);
            let all: Vec<&Ledger> = ledgers.iter().collect();
            let used: u64 = all.iter().map(|ledger| ledger.total()).sum();
            let allowed = used * 3 / 4;
            let Some(cuts) = relieve(&all, allowed) else {
                prop_assert!(threads.iter().all(Vec::is_empty));
                return Ok(());
            };
            let (mut freed, mut largest) = (0, 0);
            for (owners, cut) in threads.iter().zip(&cuts) {
                let closed = close(owners, *cut);
                let bytes: u64 = closed.iter().map(|(_, bytes)| *bytes as u64).sum();
                prop_assert!(bytes >= cut.bytes, "the thread finds what it must free");
                largest += closed.iter().map(|(_, bytes)| *bytes as u64).max().unwrap_or(0);
                freed += bytes;
            }
            let enough = used - allowed * 9 / 10;
            let owned: u64 = all.iter().map(|ledger| ledger.owned()).sum();
            prop_assert!(freed >= enough.min(owned));
            prop_assert!(freed <= enough + largest + cuts.len() as u64, "no more than must be");
        }
    }
}
