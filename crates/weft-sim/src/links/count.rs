//! Counting links: linear in the circuits, without hashing or comparing.
//!
//! Algorithm 1's COUNT: the links of all circuits are put into one list; every different member is a
//! link, every one that is there twice or more is a shared link. Here links are first put in order of
//! their one end (a counting sort). All links of one end are then counted in a table with a place for
//! each relay, which fits the nearest caches. Threads take ends that follow each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::thread;

/// Circuits, by relay of each position. All three are equally long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circuits {
    /// First hops.
    pub guards: Vec<u32>,
    /// Second hops.
    pub middles: Vec<u32>,
    /// Third hops.
    pub exits: Vec<u32>,
}

/// Different links, and those of them with two circuits or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Different links.
    pub links: u64,
    /// With two circuits or more.
    pub shared: u64,
}

impl Links {
    /// Algorithm 1, line 36; 0 if there is none.
    pub fn percent_shared(self) -> f64 {
        match self.links {
            0 => 0.0,
            links => self.shared as f64 * 100.0 / links as f64,
        }
    }

    fn add(&mut self, circuits: u64) {
        self.links += u64::from(circuits > 0);
        self.shared += u64::from(circuits > 1);
    }
}

/// Links and shared links of one repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of all links.
    pub all: Links,
    /// Of those between first and second hops, counted among themselves.
    pub guard_middle: Links,
    /// Of those between second and third hops.
    pub middle_exit: Links,
    /// Links by the number of circuits on them.
    pub by_circuits: BTreeMap<u64, u64>,
    /// Circuits without a shared link, with one, with two.
    pub circuits_by_shared: [u64; 3],
    /// Of each relay: in how many shared links it is.
    pub shared_of_relay: Vec<u32>,
    /// Relays that are in a circuit.
    pub relays_used: u64,
}

/// The other end of a link, and whose link it is.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    other: u32,
    /// The circuit's number, twice; and 1 for its second link.
    owner: u32,
}

/// Memory that counts can use again.
#[derive(Debug, Default)]
pub struct Memory {
    starts: Vec<u32>,
    workers: Vec<Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    halves: Vec<Half>,
    next: Vec<u32>,
    /// Of each other end: the first links in the lower half, the second ones in the upper.
    counts: Vec<u64>,
    /// Ends whose count is not yet back at 0.
    again: Vec<u32>,
    /// Of each circuit: its shared links.
    shared: Vec<u8>,
    small: Vec<u64>,
    tally: Tally,
}

/// Circuits of one link that are counted without a search.
const SMALL: usize = 64;
/// A second link in [`Worker::counts`].
const SECOND: u64 = 1 << 32;
/// In [`Worker::counts`]: this link is in the tally. Circuits are fewer than 2³¹.
const DONE: u64 = 1 << 63;

/// Counts links between relays below `relays`; circuits beyond 2³¹ − 1, and with relays that do not
/// exist, are left out.
pub fn count(
    circuits: &Circuits,
    relays: u32,
    directed: bool,
    threads: usize,
    memory: &mut Memory,
) -> Tally {
    match directed {
        true => count_as::<true>(circuits, relays, threads, memory),
        false => count_as::<false>(circuits, relays, threads, memory),
    }
}

/// The end by which a link is put in order, and the other.
#[inline]
fn ends<const DIRECTED: bool>(from: u32, to: u32) -> (u32, u32) {
    match DIRECTED {
        true => (from, to),
        false => (from.min(to), from.max(to)),
    }
}

fn count_as<const DIRECTED: bool>(
    circuits: &Circuits,
    relays: u32,
    threads: usize,
    memory: &mut Memory,
) -> Tally {
    let places = relays as usize;
    let starts = &mut memory.starts;
    starts.clear();
    starts.resize(places + 1, 0);
    let mut histogram = |from: &[u32], to: &[u32]| {
        for (from, to) in from.iter().zip(to) {
            let (one, _) = ends::<DIRECTED>(*from, *to);
            if let Some(start) = starts.get_mut(one as usize + 1) {
                *start += 1;
            }
        }
    };
    histogram(&circuits.guards, &circuits.middles);
    histogram(&circuits.middles, &circuits.exits);
    let mut sum = 0;
    for start in starts.iter_mut() {
        sum += *start;
        *start = sum;
    }
    let ranges = divided(starts, threads);
    memory.workers.resize_with(ranges.len(), Worker::default);
    let starts = &memory.starts;
    match memory.workers.as_mut_slice() {
        [only] => only.work::<DIRECTED>(circuits, 0..relays, starts),
        workers => thread::scope(|scope| {
            for (worker, range) in workers.iter_mut().zip(ranges) {
                scope.spawn(move || worker.work::<DIRECTED>(circuits, range, starts));
            }
        }),
    }
    let ends = starts.last().copied().unwrap_or_default();
    summed(circuits, places, ends.into(), &mut memory.workers)
}

/// Divides the ends so that all threads have about as many links.
fn divided(starts: &[u32], threads: usize) -> Vec<Range<u32>> {
    let last = starts.len().saturating_sub(1);
    let all = starts.last().copied().unwrap_or_default() as u64;
    let threads = threads.clamp(1, last.max(1)) as u64;
    let bound = |thread: u64| match thread == threads {
        true => last as u32,
        false => starts.partition_point(|start| u64::from(*start) < all * thread / threads) as u32,
    };
    (0..threads)
        .map(|thread| bound(thread).min(last as u32)..bound(thread + 1).min(last as u32))
        .collect()
}

impl Worker {
    fn work<const DIRECTED: bool>(
        &mut self,
        circuits: &Circuits,
        range: Range<u32>,
        starts: &[u32],
    ) {
        let places = starts.len() - 1;
        let mine = starts
            .get(range.start as usize..=range.end as usize)
            .unwrap_or_default();
        let base = mine.first().copied().unwrap_or_default();
        let size = mine.last().copied().unwrap_or_default() - base;
        self.halves.resize(size as usize, Half::default());
        self.next.clear();
        self.next.extend(mine.iter().map(|start| start - base));
        self.counts.clear();
        self.counts.resize(places, 0);
        self.shared.clear();
        self.shared.resize(circuits.guards.len(), 0);
        self.small.clear();
        self.small.resize(SMALL, 0);
        self.tally = Tally {
            shared_of_relay: vec![0; places],
            ..Tally::default()
        };
        self.scatter::<DIRECTED>(&circuits.guards, &circuits.middles, range.clone(), 0);
        self.scatter::<DIRECTED>(&circuits.middles, &circuits.exits, range.clone(), 1);
        let halves = std::mem::take(&mut self.halves);
        for (one, bounds) in range.zip(mine.windows(2)) {
            let [begin, end] = bounds else {
                continue;
            };
            let row = halves.get((begin - base) as usize..(end - base) as usize);
            self.row(one, row.unwrap_or_default());
        }
        self.halves = halves;
        for (circuits, links) in self.small.iter().enumerate() {
            if *links > 0 {
                *self.tally.by_circuits.entry(circuits as u64).or_default() += links;
            }
        }
    }

    fn scatter<const DIRECTED: bool>(
        &mut self,
        from: &[u32],
        to: &[u32],
        range: Range<u32>,
        second: u32,
    ) {
        for (circuit, (from, to)) in from.iter().zip(to).enumerate() {
            let (one, other) = ends::<DIRECTED>(*from, *to);
            if !range.contains(&one) {
                continue;
            }
            let Some(next) = self.next.get_mut((one - range.start) as usize) else {
                continue;
            };
            if let Some(half) = self.halves.get_mut(*next as usize) {
                *half = Half {
                    other,
                    owner: (circuit as u32) << 1 | second,
                };
            }
            *next += 1;
        }
    }

    /// All links of one end.
    fn row(&mut self, one: u32, row: &[Half]) {
        for half in row {
            if let Some(count) = self.counts.get_mut(half.other as usize) {
                *count += 1 << (32 * (half.owner & 1));
            }
        }
        let (mut single_first, mut single_second) = (0, 0);
        for half in row {
            let Some(count) = self.counts.get_mut(half.other as usize) else {
                continue;
            };
            // Most links have one circuit.
            let (one_first, one_second) = (*count == 1, *count == SECOND);
            single_first += u64::from(one_first);
            single_second += u64::from(one_second);
            if one_first | one_second {
                *count = 0;
                continue;
            }
            if let Some(shared) = self.shared.get_mut((half.owner >> 1) as usize) {
                *shared += 1;
            }
            if *count & DONE != 0 {
                continue;
            }
            let (first, second) = (*count & (SECOND - 1), *count >> 32);
            *count |= DONE;
            self.again.push(half.other);
            self.tally.guard_middle.add(first);
            self.tally.middle_exit.add(second);
            self.tally.all.add(first + second);
            match self.small.get_mut((first + second) as usize) {
                Some(links) => *links += 1,
                None => *self.tally.by_circuits.entry(first + second).or_default() += 1,
            }
            for end in [one, half.other] {
                if let Some(shared) = self.tally.shared_of_relay.get_mut(end as usize) {
                    *shared += 1;
                }
            }
        }
        self.tally.guard_middle.links += single_first;
        self.tally.middle_exit.links += single_second;
        for other in self.again.drain(..) {
            if let Some(count) = self.counts.get_mut(other as usize) {
                *count = 0;
            }
        }
    }
}

/// Merges the counts of the workers into a tally, and computes its statistics.
fn summed(circuits: &Circuits, places: usize, ends: u64, workers: &mut [Worker]) -> Tally {
    let mut tally = Tally {
        shared_of_relay: vec![0; places],
        ..Tally::default()
    };
    let mut shared: Vec<&[u8]> = Vec::new();
    for worker in workers {
        let part = std::mem::take(&mut worker.tally);
        for (all, part) in [
            (&mut tally.all, part.all),
            (&mut tally.guard_middle, part.guard_middle),
            (&mut tally.middle_exit, part.middle_exit),
        ] {
            all.links += part.links;
            all.shared += part.shared;
        }
        for (circuits, links) in part.by_circuits {
            *tally.by_circuits.entry(circuits).or_default() += links;
        }
        for (all, part) in tally.shared_of_relay.iter_mut().zip(part.shared_of_relay) {
            *all += part;
        }
        shared.push(&worker.shared);
    }
    // Links with one circuit belong to one position each; those with more are counted already.
    let of_shared: u64 = tally
        .by_circuits
        .iter()
        .map(|(circuits, links)| circuits * links)
        .sum();
    let single = ends.saturating_sub(of_shared);
    if single > 0 {
        tally.by_circuits.insert(1, single);
    }
    tally.all.links += single;
    match shared.as_slice() {
        [only] => add_circuits(&mut tally, only),
        several => {
            let mut sum = vec![0; circuits.guards.len()];
            for shared in several {
                for (sum, shared) in sum.iter_mut().zip(*shared) {
                    *sum += shared;
                }
            }
            add_circuits(&mut tally, &sum);
        }
    }
    let mut used = vec![false; places];
    for hops in [&circuits.guards, &circuits.middles, &circuits.exits] {
        for relay in hops {
            if let Some(used) = used.get_mut(*relay as usize) {
                *used = true;
            }
        }
    }
    tally.relays_used = used.iter().filter(|used| **used).count() as u64;
    tally
}

/// Counts circuits by how many shared links they have: each pass is a few instructions for 64 of them.
fn add_circuits(tally: &mut Tally, shared: &[u8]) {
    for (links, circuits) in (0_u8..).zip(&mut tally.circuits_by_shared) {
        *circuits += shared.iter().filter(|shared| **shared == links).count() as u64;
    }
}
