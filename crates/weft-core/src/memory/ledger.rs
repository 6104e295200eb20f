//! Memory that a thread holds in queues and buffers, and the choice of what to free when all
//! threads together hold more than `MaxMemInQueues`.
//!
//! Everything that a peer can make grow is counted where it is held, with its owner: a circuit half,
//! an edge or a link. Closing the owner frees it. Each owner is charged to the previous hop of its
//! circuit, by the connection to it ([`Cause`]). Under pressure the hop that holds most gives way, as in
//! [`weft_share`]: its heaviest owner is closed, until usage is back under nine tenths of the limit.
//!
//! Within a hop an owner's weight is the sum over its parts of their bytes times the age of the oldest
//! byte ([`Held`]). C tor judges by age alone (`circuits_handle_oom`, because of the Sniper attack of
//! Jansen et al. 2014); then a peer that keeps many bytes young is spared, and honest circuits with a
//! few old cells are closed in his place.
//!
//! No thread sees all owners, and a sum is enough as long as memory is not short: each thread reports a
//! [`Ledger`]. When it is short, the controller asks all threads for their [`Holdings`], computes where to
//! cut ([`relieve`]), and each thread closes its part.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use weft_planted::{Fault, planted};
use weft_share::PreviousHop;

use crate::address::ConnectionId;

/// Part of the limit that remains after memory was freed, in tenths:
/// `FRACTION_OF_DATA_TO_RETAIN_ON_OOM`.
const RETAIN_TENTHS: u128 = 9;

/// Weights are distinguished to one part in this many, a power of two.
const STEPS_PER_OCTAVE: u64 = 16;

/// A queue with room for this many elements or fewer keeps it.
const LONG_QUEUE: usize = 256;

/// Bytes of this age count in full, and get no older: a circuit does not lose its place for having
/// been open for hours.
const OLD: Duration = Duration::from_secs(60);

/// Age of what an owner has until it is closed: more than that of what waits where cells move, less than that of
/// what waits where they do not.
const KEPT: Duration = Duration::from_secs(10);

/// Bytes that closing one owner frees, and their weight. It has parts of different ages, and each part
/// is added with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Held {
    bytes: usize,
    weight: u64,
}

impl Held {
    /// Bytes that wait to be taken, and the age of the oldest of them.
    pub fn waiting(bytes: usize, age: Duration) -> Self {
        let age = u64::try_from(age.min(OLD).as_millis()).unwrap_or(u64::MAX);
        Held {
            bytes,
            weight: (bytes as u64).saturating_mul(age.saturating_add(1)),
        }
    }

    /// Bytes that the owner has until it is closed: structures, tables, keys. They have one age
    /// from the start, so nothing that a peer does makes them younger.
    pub fn kept(bytes: usize) -> Self {
        Held::waiting(bytes, KEPT)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Bytes times milliseconds, summed over the parts. A byte that has just arrived counts as one millisecond
    /// old, so that among young owners the largest is the heaviest.
    #[must_use]
    pub fn weight(self) -> u64 {
        self.weight
    }
}

impl std::ops::AddAssign for Held {
    /// Another part of the same owner.
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.weight = self.weight.saturating_add(other.weight);
    }
}

impl std::ops::Add for Held {
    type Output = Held;

    fn add(mut self, other: Self) -> Held {
        self += other;
        self
    }
}

/// The connection that an owner is charged to. The controller knows its previous hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Circuits of this node's own.
    Own,
    /// The connection over which the circuit was made, or the edge's.
    Connection(ConnectionId),
    /// A hop by itself, for owners that no thread has.
    Hop(PreviousHop),
}

/// Memory held by one thread, or by several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Bytes of owners.
    owned: u64,
    /// Free cells and empty buffers: given back before any owner is closed.
    spare: u64,
    /// Tables: memory that closing an owner would not free.
    fixed: u64,
}

impl Ledger {
    /// Counts an owner.
    pub fn add(&mut self, held: Held) {
        self.owned = self.owned.saturating_add(held.bytes as u64);
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
        (self.owned)
            .saturating_add(self.spare)
            .saturating_add(self.fixed)
    }

    /// Bytes that closing owners frees.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// Bytes that owners have to free, besides everything that is spare, so that nine tenths of `allowed`
    /// remain at most. `None`: less than that is held, or nothing could be freed.
    #[must_use]
    pub fn to_free(&self, allowed: u64) -> Option<u64> {
        let used = self.total();
        if used < allowed || (self.spare == 0 && self.owned == 0) {
            return None;
        }
        let retained = u64::try_from(u128::from(allowed) * RETAIN_TENTHS / 10).unwrap_or(u64::MAX);
        let missing = used.saturating_sub(retained).saturating_sub(self.spare);
        Some(missing.min(self.owned))
    }
}

impl std::ops::AddAssign<&Ledger> for Ledger {
    fn add_assign(&mut self, other: &Ledger) {
        self.owned = self.owned.saturating_add(other.owned);
        self.spare = self.spare.saturating_add(other.spare);
        self.fixed = self.fixed.saturating_add(other.fixed);
    }
}

impl<'a> std::iter::Sum<&'a Ledger> for Ledger {
    fn sum<I: Iterator<Item = &'a Ledger>>(ledgers: I) -> Self {
        ledgers.fold(Ledger::default(), |mut sum, ledger| {
            sum += ledger;
            sum
        })
    }
}

/// The owners of one thread, by cause and by the step that their weight is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings(BTreeMap<(Cause, u64), Step>);

/// Owners whose weight is in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Step {
    owners: u64,
    bytes: u64,
}

impl Holdings {
    /// Counts an owner.
    pub fn add(&mut self, cause: Cause, held: Held) {
        if held.bytes > 0 {
            let step = self.0.entry((cause, step_of(held.weight))).or_default();
            step.owners += 1;
            step.bytes = step.bytes.saturating_add(held.bytes as u64);
        }
    }

    /// All causes, each once.
    pub fn causes(&self) -> impl Iterator<Item = Cause> {
        let mut last = None;
        let causes = self.0.keys().map(|(cause, _)| *cause);
        causes.filter(move |cause| last.replace(*cause) != Some(*cause))
    }
}

/// Memory that one thread must free. Its spare memory is freed in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Bytes that the owners of each hop must free.
    shares: Vec<Share>,
    /// The place of a cause's hop among these.
    hops: BTreeMap<Cause, usize>,
}

/// Owners of at least this weight, heaviest first, until this number of bytes is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    weight: u64,
    bytes: u64,
}

impl Cut {
    /// `bytes` of the owners with these causes that weigh `weight` or more.
    pub fn new(causes: impl IntoIterator<Item = Cause>, weight: u64, bytes: u64) -> Self {
        let mut cut = Cut::default();
        cut.add(causes, Share { weight, bytes });
        cut
    }

    /// Adds the share of another hop.
    fn add(&mut self, causes: impl IntoIterator<Item = Cause>, share: Share) {
        let place = self.shares.len();
        self.shares.push(share);
        self.hops
            .extend(causes.into_iter().map(|cause| (cause, place)));
    }

    /// Bytes to free.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = self.shares.iter().map(|share| share.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// True if the owner is to be closed. The caller asks for the heaviest owners first.
    #[must_use]
    pub fn includes(&self, cause: Cause, held: Held) -> bool {
        let share = self.hops.get(&cause).and_then(|hop| self.shares.get(*hop));
        share.is_some_and(|share| share.bytes > 0 && held.weight >= share.weight)
    }

    /// An owner was closed.
    pub fn closed(&mut self, cause: Cause, held: Held) {
        let hop = self.hops.get(&cause);
        if let Some(share) = hop.and_then(|hop| self.shares.get_mut(*hop)) {
            share.bytes = share.bytes.saturating_sub(held.bytes as u64);
        }
    }
}

/// Memory of one hop on all threads.
#[derive(Debug, Default)]
struct Hop {
    bytes: u64,
    /// Causes, with their thread.
    causes: Vec<(usize, Cause)>,
    /// Its owners by the step of their weight, on each thread that has some.
    steps: BTreeMap<u64, Vec<(usize, Step)>>,
    /// Bytes that it must free, by thread.
    shares: BTreeMap<usize, Share>,
}

impl Hop {
    /// Frees its heaviest owner, and owners like that one until it holds less than `next` or `missing` bytes are freed.
    /// Returns how many bytes that frees.
    fn give_way(&mut self, next: u64, missing: u64) -> u64 {
        let Some(mut entry) = self.steps.last_entry() else {
            self.bytes = 0;
            return 0;
        };
        let weight = step_start(*entry.key());
        let threads = entry.get_mut();
        let Some((thread, step)) = threads.last_mut() else {
            entry.remove();
            return 0;
        };
        // The sizes of the step's owners are not known separately.
        let each = step.bytes.div_ceil(step.owners.max(1)).max(1);
        let wanted = self.bytes.saturating_sub(next).min(missing);
        let owners = wanted.div_ceil(each).clamp(1, step.owners.max(1));
        let bytes = each.saturating_mul(owners).min(step.bytes);
        let share = self
            .shares
            .entry(*thread)
            .or_insert(Share { weight, bytes: 0 });
        share.weight = weight;
        share.bytes = share.bytes.saturating_add(bytes);
        step.owners -= owners;
        step.bytes -= bytes;
        if step.owners == 0 || step.bytes == 0 {
            threads.pop();
            if threads.is_empty() {
                entry.remove();
            }
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        bytes
    }
}

/// Memory that each thread must free, given the owners of all threads, so that `missing` bytes are
/// freed: the hop that holds most closes its heaviest owner, repeatedly.
#[must_use]
pub fn relieve(
    threads: &[Holdings],
    mut missing: u64,
    hop_of: impl Fn(Cause) -> PreviousHop,
) -> Vec<Cut> {
    let mut hops = BTreeMap::<PreviousHop, Hop>::new();
    for (thread, holdings) in threads.iter().enumerate() {
        for cause in holdings.causes() {
            let hop = hops.entry(hop_of(cause)).or_default();
            hop.causes.push((thread, cause));
            let of_cause = holdings.0.range((cause, 0)..=(cause, u64::MAX));
            for ((_, number), step) in of_cause {
                hop.bytes = hop.bytes.saturating_add(step.bytes);
                let threads = hop.steps.entry(*number).or_default();
                match threads.last_mut() {
                    Some((last, sum)) if *last == thread => {
                        sum.owners += step.owners;
                        sum.bytes = sum.bytes.saturating_add(step.bytes);
                    }
                    _ => threads.push((thread, *step)),
                }
            }
        }
    }
    let mut hops: Vec<Hop> = hops.into_values().collect();
    let ranks = hops.iter().enumerate().map(|(at, hop)| (hop.bytes, at));
    let mut ranks: BinaryHeap<(u64, usize)> = ranks.collect();
    while missing > 0
        && let Some((bytes, at)) = ranks.pop()
        && let Some(hop) = hops.get_mut(at)
        && bytes > 0
    {
        let next = ranks.peek().map_or(0, |(bytes, _)| *bytes);
        missing = missing.saturating_sub(hop.give_way(next, missing));
        ranks.push((hop.bytes, at));
    }
    let mut cuts = vec![Cut::default(); threads.len()];
    for hop in hops {
        for (thread, share) in hop.shares {
            if let Some(cut) = cuts.get_mut(thread) {
                let mine = hop.causes.iter().filter(|(on, _)| *on == thread);
                cut.add(mine.map(|(_, cause)| *cause), share);
            }
        }
    }
    cuts
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

/// Waiting time of the front of a queue, without a note for each entry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    /// When the first of those that wait came, or one before it.
    since: Option<Instant>,
    /// One that waits, by its number, and when it came.
    next: Option<(u64, Instant)>,
}

impl Waits {
    /// Records that the cells from number `front` up to `end` wait now.
    pub fn note(&mut self, front: u64, end: u64, now: Instant) {
        if front == end {
            *self = Waits::default();
            return;
        }
        self.since.get_or_insert(now);
        if planted(Fault::AgeReset) {
            self.since = Some(now);
        }
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
    use std::cmp::Reverse;
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    /// An owner: its hop, the age of its bytes in milliseconds, and how many there are.
    type Owner = (u8, u64, usize);

    fn cause(hop: u8) -> Cause {
        Cause::Connection(ConnectionId(u64::from(hop)))
    }

    /// Connections that differ by 100 are of one hop.
    fn hop_of(cause: Cause) -> PreviousHop {
        match cause {
            Cause::Own => PreviousHop::Own,
            Cause::Hop(hop) => hop,
            Cause::Connection(id) => {
                let hop = u8::try_from(id.0 % 100).unwrap();
                PreviousHop::at(IpAddr::from([10, 0, 0, hop]))
            }
        }
    }

    fn held((_, age, bytes): Owner) -> Held {
        Held::waiting(bytes, Duration::from_millis(age))
    }

    fn sum(owners: &[Owner]) -> Ledger {
        let mut ledger = Ledger::default();
        for owner in owners {
            ledger.add(held(*owner));
        }
        ledger
    }

    fn holdings(owners: &[Owner]) -> Holdings {
        let mut holdings = Holdings::default();
        for owner in owners {
            holdings.add(cause(owner.0), held(*owner));
        }
        holdings
    }

    /// Owners that threads close, given all owners, to free `missing` bytes.
    fn close(threads: &[&[Owner]], missing: u64) -> Vec<Vec<Owner>> {
        let all: Vec<Holdings> = threads.iter().map(|owners| holdings(owners)).collect();
        let cuts = relieve(&all, missing, hop_of);
        let closed = threads.iter().zip(cuts).map(|(owners, mut cut)| {
            let mut owners = owners.to_vec();
            owners.sort_by_key(|owner| Reverse(held(*owner).weight()));
            owners.retain(|owner| {
                let includes = cut.includes(cause(owner.0), held(*owner));
                if includes {
                    cut.closed(cause(owner.0), held(*owner));
                }
                includes
            });
            assert_eq!(cut.bytes(), 0, "the thread finds what it must free");
            owners
        });
        closed.collect()
    }

    #[test]
    fn below_the_limit_nobody_dies() {
        let mut ledger = sum(&[(1, 10_000, 500)]);
        ledger.add_fixed(499);
        assert_eq!(ledger.to_free(1_000), None);
        ledger.add_fixed(1);
        assert_eq!(ledger.to_free(1_000), Some(100));
    }

    #[test]
    fn within_a_hop_the_oldest_and_largest_die() {
        let owners = [
            (1, 100, 400),
            (1, 900, 300),
            (101, 5_000, 200),
            (1, 200, 100),
        ];
        assert_eq!(
            close(&[&owners], 100),
            [[(101, 5_000, 200)]],
            "old, and not small"
        );
        // Many bytes that are kept young weigh more than a few that are old.
        let owners = [(1, 100, 100_000), (1, 5_000, 200), (101, 5_000, 300)];
        assert_eq!(close(&[&owners], 10_000), [[(1, 100, 100_000)]]);
        // Nobody is the first to be closed for having been there for hours.
        let owners = [(1, 100_000, 1_000), (1, 100_000_000, 900)];
        assert_eq!(close(&[&owners], 1), [[(1, 100_000, 1_000)]]);
    }

    #[test]
    fn the_hop_that_holds_most_gives_way_however_old_and_large_others_are() {
        let mut owners = vec![(2, 60_000, 5_000)];
        owners.extend([(1, 0, 10); 1_000]);
        let closed = close(&[&owners], 2_000).concat();
        assert_eq!(closed, [(1, 0, 10); 200]);
        // It gives way until another holds as much; then both do.
        let closed = close(&[&owners], 6_000).concat();
        let of = |hop| closed.iter().filter(|owner| owner.0 == hop).count();
        assert_eq!((of(1), of(2)), (500, 1));
    }

    #[test]
    fn of_owners_alike_no_more_die_than_must() {
        let of_one = [(1, 0, 1_000); 100];
        let of_each: Vec<Owner> = (0..100).map(|hop| (hop, 0, 1_000)).collect();
        for owners in [&of_one[..], &of_each] {
            assert_eq!(close(&[owners], 10_000).concat().len(), 10);
            let (some, others) = owners.split_at(30);
            assert_eq!(close(&[some, others], 10_000).concat().len(), 10);
        }
    }

    #[test]
    fn spare_memory_goes_first_and_what_nothing_frees_takes_nobody_along_in_vain() {
        let mut spare = sum(&[(1, 10_000, 500)]);
        spare.add_spare(600);
        assert_eq!(spare.to_free(1_000), Some(0));
        let mut fixed = Ledger::default();
        fixed.add_fixed(5_000);
        assert_eq!(fixed.to_free(1_000), None, "there is nothing to free");
        fixed.add(held((1, 0, 10)));
        assert_eq!(fixed.to_free(1_000), Some(10));
    }

    #[test]
    fn absurd_numbers_saturate() {
        let owners = [(1, 1, usize::MAX), (2, u64::MAX, usize::MAX), (3, 0, 0)];
        let mut ledger = sum(&owners);
        ledger.add_fixed(usize::MAX);
        assert_eq!(ledger.total(), u64::MAX);
        assert!(ledger.to_free(u64::MAX).is_some());
        assert!(ledger.to_free(0).is_some());
        assert_eq!(close(&[&owners, &owners], u64::MAX).len(), 2);
        assert_eq!(relieve(&[], 1, hop_of), []);
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
        fn enough_is_freed_and_of_hops_that_hold_most(
            threads in proptest::collection::vec(
                proptest::collection::vec((0..8_u8, 0..100_000_u64, 1..10_000_usize), 0..50), 1..5),
            part in 0..=100_u64,
        ) {
            let threads: Vec<&[Owner]> = threads.iter().map(Vec::as_slice).collect();
            let all = threads.concat();
            let bytes = |owners: &[Owner]| owners.iter().map(|owner| owner.2 as u64).sum::<u64>();
            let missing = bytes(&all) * part / 100;
            let closed = close(&threads, missing).concat();
            prop_assert!(bytes(&closed) >= missing);
            let of = |owners: &[Owner], hop| {
                let mine: Vec<Owner> = owners.iter().copied().filter(|owner| owner.0 == hop).collect();
                bytes(&mine)
            };
            // The owners in one step are assumed to be equally large, on each thread.
            let slack = 10_000 * threads.len() as u64;
            let left = |hop| of(&all, hop) - of(&closed, hop);
            let most = (0..8).map(left).max().unwrap_or(0);
            for hop in (0..8).filter(|hop| of(&closed, *hop) > 0) {
                prop_assert!(left(hop) + 2 * slack >= most, "hop {} gave way to one with more", hop);
            }
            prop_assert!(bytes(&closed) <= missing + 8 * slack, "no more than must be");
        }
    }
}
