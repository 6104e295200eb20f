//! Plan of the measurements: points, targets, and their order.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use weft_lab::machine::Cpus;

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The physical limit: TLS and one pass of AES for each cell, nothing else.
    Pipe,
    /// C tor.
    Tor,
    /// Weft with this number of ConnectionThreads.
    Weft(u32),
}

impl Target {
    /// Threads that cells go through. Without connection threads it is the main thread.
    pub(crate) fn busy_threads(self) -> usize {
        match self {
            Target::Weft(threads) => (threads as usize).max(1),
            Target::Pipe | Target::Tor => 1,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Pipe => write!(f, "pipe"),
            Target::Tor => write!(f, "tor"),
            Target::Weft(threads) => write!(f, "weft:{threads}"),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Target> {
        Ok(match text.split_once(':').unwrap_or((text, "")) {
            ("pipe", "") => Target::Pipe,
            ("tor", "") => Target::Tor,
            ("weft", threads) => Target::Weft(
                threads
                    .parse()
                    .with_context(|| format!("{text:?}: weft:1 is one connection thread"))?,
            ),
            _ => bail!("{text:?} is none of pipe, tor, weft:THREADS"),
        })
    }
}

/// Weft's connection threads up to the cores: each number up to eight, then fewer of them.
pub(crate) fn thread_counts(cores: usize) -> Vec<u32> {
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let mut counts: Vec<u32> = (0..=cores.min(8)).collect();
    let (mut next, mut step) = (12, 4);
    while next < cores {
        counts.push(next);
        if next >= 4 * step {
            step *= 2;
        }
        next += step;
    }
    if cores > 8 {
        counts.push(cores);
    }
    counts
}

/// A group of points.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Cells at full speed: every target, circuits, links and directions
    Matrix,
    /// Circuits that are made, for each CPU second
    Onionskins,
    /// Latency of cells at a fixed rate: 80 % of the most that C tor can carry; and peak memory
    Latency,
    /// Idle links and idle circuits
    Memory,
    /// Thousands of links with a few cells a second each, at a fixed rate in both directions
    Thin,
    /// The loads of relays of the public network: guard, middle, exit-side
    Live,
    /// The highest rate with p99 under 50 ms over 2,000 links
    Capacity,
    /// Memory of 8,000 links and 50,000 circuits with little to do
    Size,
    /// CPU time by connection threads, at full speed and over 2,000 links
    Threads,
}

/// The part of C tor's full speed at which latency is measured.
pub(crate) const OF_TOR: f64 = 0.8;
/// Circuits and links of the points whose full speed [`OF_TOR`] is of.
pub(crate) const LATENCY_AT: (usize, usize) = (300, 30);
/// Circuits and links of the first row of the bars.
pub(crate) const FEW: (usize, usize) = (20, 4);
/// Circuits and links of the second.
pub(crate) const MANY: (usize, usize) = (1500, 150);
/// Idle links that are opened, each of which takes a descriptor on both sides. There must be many: a
/// program that has freed memory since its start, and kept it, has room for the first of them.
const IDLE_LINKS: usize = 3000;
const IDLE_LINKS_QUICK: usize = 1000;
/// Idle circuits and their links.
const IDLE_CIRCUITS: (usize, usize) = (20_000, 20);
const IDLE_CIRCUITS_QUICK: (usize, usize) = (5000, 20);
/// Circuits and links of the thin loads, and what they carry each way: 10 MB/s in cells.
pub(crate) const THIN: (usize, usize) = (4000, 2000);
pub(crate) const THIN_FEWER: (usize, usize) = (2000, 400);
const THIN_RATE: f64 = 10e6 / 498.0;
/// Circuits and links of a large relay, and the little that they carry each way.
const SIZE: (usize, usize) = (50_000, 8000);
const SIZE_RATE: f64 = 1e6 / 498.0;
/// The live loads, as `weft lab relay --load` names them, and circuits and links of each by its defaults.
pub(crate) const LIVE: [(&str, (usize, usize)); 3] = [
    ("live-middle", (12_500, 2000)),
    ("live-guard", (4000, 2000)),
    ("live-exit-side", (12_500, 2000)),
];
const LIVE_QUICK: (usize, usize) = (2500, 400);
/// Connection threads of Weft in [`Part::Threads`], however many cores there are.
pub(crate) const THREADS: [u32; 4] = [1, 2, 4, 8];
/// Rates that a search for the capacity tries at most.
pub(crate) const CAPACITY_STEPS: u32 = 12;

/// Links over which circuits are made.
pub(crate) const ONIONSKIN_LINKS: usize = 8;

/// Conditions at which a target is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// `cells`, `onionskins`, `idle-links` or `idle-circuits`.
    pub(crate) mode: String,
    /// `download` or `upload`.
    pub(crate) direction: String,
    /// Circuits through the target.
    pub(crate) circuits: usize,
    /// Links of the target, those to it and from it together.
    pub(crate) links: usize,
    /// At a rate that is such a part of C tor's full speed.
    pub(crate) of_tor: Option<f64>,
    /// At this rate, in cells per second each way; without this, `of_tor` and `live` at full speed.
    pub(crate) rate: Option<f64>,
    /// One of the loads of relays of the public network, at its own rate.
    pub(crate) live: Option<String>,
    /// Threads of the target that answer onionskins, where they are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<u32>,
    /// Where several points are alike but for what they are compared with: `capacity`, `size`, `threads` or `pack`.
    pub(crate) part: Option<String>,
}

impl Point {
    /// Cells at full speed.
    pub(crate) fn cells((circuits, links): (usize, usize), direction: &str) -> Point {
        Point {
            mode: "cells".to_owned(),
            direction: direction.to_owned(),
            circuits,
            links,
            of_tor: None,
            rate: None,
            live: None,
            workers: None,
            part: None,
        }
    }

    /// Many links with little on each.
    pub(crate) fn thin(size: (usize, usize)) -> Point {
        Point {
            rate: Some(THIN_RATE),
            ..Point::cells(size, "both")
        }
    }

    /// A load of the public network.
    pub(crate) fn live(load: &str, size: (usize, usize)) -> Point {
        Point {
            live: Some(load.to_owned()),
            ..Point::cells(size, "both")
        }
    }

    /// The middle's load; a quick run has less.
    pub(crate) fn live_middle(quick: bool) -> Point {
        let [(load, size), ..] = LIVE;
        Point::live(load, if quick { LIVE_QUICK } else { size })
    }

    pub(crate) fn capacity() -> Point {
        Point::cells(THIN, "both").in_part("capacity")
    }

    pub(crate) fn size() -> Point {
        Point {
            rate: Some(SIZE_RATE),
            ..Point::cells(SIZE, "both").in_part("size")
        }
    }

    /// Comparison of numbers of threads, at full speed.
    pub(crate) fn threads_full() -> Point {
        Point::cells(LATENCY_AT, "download").in_part("threads")
    }

    /// Comparison of numbers of threads, over many links.
    pub(crate) fn threads_thin() -> Point {
        Point::thin(THIN).in_part("threads")
    }

    /// Weft's threads at full speed, with processors for each of them and for the generator.
    pub(crate) fn scaling() -> Point {
        Point::cells(LATENCY_AT, "download").in_part("pack")
    }

    /// Weft's threads with many thin links.
    pub(crate) fn scaling_thin(size: (usize, usize)) -> Point {
        Point::thin(size).in_part("pack")
    }

    /// Onionskins by the threads that answer them.
    pub(crate) fn workers(count: u32) -> Point {
        Point {
            workers: Some(count),
            ..Point::onionskins().in_part("pack")
        }
    }

    /// Streams through the middle of a private network.
    pub(crate) fn network(circuits: usize, nodes: usize) -> Point {
        Point {
            mode: "network".to_owned(),
            ..Point::cells((circuits, nodes), "upload").in_part("pack")
        }
    }

    fn in_part(self, part: &str) -> Point {
        Point {
            part: Some(part.to_owned()),
            ..self
        }
    }

    pub(crate) fn is_in(&self, part: &str) -> bool {
        self.part.as_deref() == Some(part)
    }

    /// One of the matrix.
    pub(crate) fn is_full_speed(&self) -> bool {
        self.mode == "cells"
            && self.of_tor.is_none()
            && self.rate.is_none()
            && self.live.is_none()
            && self.part.is_none()
    }

    /// One at a part of C tor's full speed.
    pub(crate) fn is_latency(&self) -> bool {
        self.mode == "cells" && self.of_tor.is_some()
    }

    /// One of [`Part::Thin`] or [`Part::Live`].
    pub(crate) fn is_real(&self) -> bool {
        self.part.is_none() && (self.rate.is_some() || self.live.is_some())
    }

    /// Cells at a part of C tor's full speed.
    pub(crate) fn latency(direction: &str) -> Point {
        Point {
            of_tor: Some(OF_TOR),
            ..Point::cells(LATENCY_AT, direction)
        }
    }

    pub(crate) fn onionskins() -> Point {
        Point {
            mode: "onionskins".to_owned(),
            ..Point::cells((0, ONIONSKIN_LINKS), "upload")
        }
    }

    pub(crate) fn idle_links(quick: bool) -> Point {
        let links = if quick { IDLE_LINKS_QUICK } else { IDLE_LINKS };
        Point {
            mode: "idle-links".to_owned(),
            ..Point::cells((0, links), "upload")
        }
    }

    pub(crate) fn idle_circuits(quick: bool) -> Point {
        let size = if quick {
            IDLE_CIRCUITS_QUICK
        } else {
            IDLE_CIRCUITS
        };
        Point {
            mode: "idle-circuits".to_owned(),
            ..Point::cells(size, "upload")
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode.as_str() {
            "onionskins" => {
                write!(f, "onionskins over {} links", self.links)?;
                match self.workers {
                    Some(workers) => write!(f, ", workers: {workers}"),
                    None => Ok(()),
                }
            }
            "network" => write!(
                f,
                "{} circuits in a private network of {} nodes",
                self.circuits, self.links
            ),
            "idle-links" => write!(f, "{} idle links", self.links),
            "idle-circuits" => write!(
                f,
                "{} idle circuits over {} links",
                self.circuits, self.links
            ),
            _ => {
                let way = self.live.as_ref().unwrap_or(&self.direction);
                let (circuits, links) = (self.circuits, self.links);
                write!(f, "{circuits} circuits over {links} links, {way}")?;
                if let Some(part) = self.of_tor {
                    write!(f, " at {:.0} % of C tor", part * 100.0)?;
                }
                if let Some(rate) = self.rate {
                    write!(f, " at {:.0} MB/s", rate * 498.0 / 1e6)?;
                }
                match &self.part {
                    Some(part) => write!(f, " ({part})"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// A point, and the targets that are measured there one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) point: Point,
    pub(crate) targets: Vec<Target>,
}

/// Everything that is to be measured. All repetitions of the first phase come before the second,
/// which needs what it found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) first: Vec<Step>,
    pub(crate) second: Vec<Step>,
}

impl Plan {
    /// `parts` and `targets` that are empty mean all.
    pub(crate) fn new(quick: bool, parts: &[Part], targets: &[Target], cores: usize) -> Plan {
        let wants = |part| parts.is_empty() || parts.contains(&part);
        let most = u32::try_from(cores).unwrap_or(u32::MAX);
        let all: Vec<Target> = match (targets, quick) {
            ([], false) => [Target::Pipe, Target::Tor]
                .into_iter()
                .chain(thread_counts(cores).into_iter().map(Target::Weft))
                .collect(),
            ([], true) => {
                let mut few = vec![Target::Pipe, Target::Tor, Target::Weft(1)];
                few.extend((most > 1).then_some(Target::Weft(most)));
                few
            }
            (given, _) => given.to_vec(),
        };
        // One of each kind is enough for what does not depend on the number of threads.
        let wanted = |some: &[Target]| -> Vec<Target> {
            let wanted = |target: &&Target| targets.is_empty() || targets.contains(target);
            some.iter().filter(wanted).copied().collect()
        };
        let relays = wanted(&[Target::Tor, Target::Weft(1)]);
        let mut plan = Plan::default();
        let mut first = |point: Point, targets: Vec<Target>| {
            if !targets.is_empty() {
                plan.first.push(Step { point, targets });
            }
        };
        if wants(Part::Matrix) {
            let points: Vec<Point> = match quick {
                true => vec![
                    Point::cells(FEW, "download"),
                    Point::cells(FEW, "upload"),
                    Point::cells(LATENCY_AT, "download"),
                    Point::cells(MANY, "download"),
                ],
                false => [(10, 2), FEW, LATENCY_AT, MANY]
                    .into_iter()
                    .flat_map(|size| ["download", "upload"].map(|way| Point::cells(size, way)))
                    .collect(),
            };
            for point in points {
                first(point, all.clone());
            }
        }
        let ways: &[&str] = match quick {
            true => &["download"],
            false => &["download", "upload"],
        };
        if wants(Part::Latency) && !(wants(Part::Matrix) && all.contains(&Target::Tor)) {
            for way in ways {
                first(Point::cells(LATENCY_AT, way), vec![Target::Tor]);
            }
        }
        if wants(Part::Onionskins) {
            first(Point::onionskins(), relays.clone());
        }
        if wants(Part::Memory) {
            first(Point::idle_links(quick), relays.clone());
            first(Point::idle_circuits(quick), relays.clone());
        }
        plan.add_real_loads(quick, &wants, &wanted, &relays);
        if wants(Part::Latency) {
            for way in ways {
                let targets = match quick {
                    true => relays.clone(),
                    false => all.clone(),
                };
                if !targets.is_empty() {
                    let point = Point::latency(way);
                    plan.second.push(Step { point, targets });
                }
            }
        }
        plan
    }
}

impl Plan {
    /// Adds the loads that real relays carry. A quick run has one point of two parts.
    fn add_real_loads(
        &mut self,
        quick: bool,
        wants: &dyn Fn(Part) -> bool,
        wanted: &dyn Fn(&[Target]) -> Vec<Target>,
        relays: &[Target],
    ) {
        let mut add = |point: Point, targets: &[Target]| {
            if !targets.is_empty() {
                self.first.push(Step {
                    point,
                    targets: targets.to_vec(),
                });
            }
        };
        let with_pipe = wanted(&[Target::Pipe, Target::Tor, Target::Weft(1)]);
        if wants(Part::Thin) {
            add(
                Point::thin(THIN_FEWER),
                if quick { relays } else { &with_pipe },
            );
            if !quick {
                add(Point::thin(THIN), &with_pipe);
            }
        }
        if wants(Part::Live) {
            match quick {
                true => add(Point::live_middle(true), relays),
                false => LIVE
                    .iter()
                    .for_each(|(load, size)| add(Point::live(load, *size), &with_pipe)),
            }
        }
        if quick {
            return;
        }
        if wants(Part::Capacity) {
            add(Point::capacity(), relays);
        }
        if wants(Part::Size) {
            add(Point::size(), relays);
        }
        if wants(Part::Threads) {
            let threads = wanted(&THREADS.map(Target::Weft));
            add(Point::threads_full(), &threads);
            add(Point::threads_thin(), &threads);
        }
    }
}

/// Processors for a target and the generator, and the number of the generator's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The words of `--pin`, where they have processors of their own.
    pub(crate) pin: Option<String>,
    pub(crate) generator_threads: usize,
}

impl Place {
    /// The target gets a core for each thread that cells go through, the generator others: up to
    /// three for each of the target's, so that it is not what limits. With too few cores they share.
    ///
    /// Comparisons of numbers of threads do not bind them, so that all have the same processors.
    pub(crate) fn of(target: Target, point: &Point, cpus: &Cpus, pin: bool) -> Place {
        if point.is_in("threads") {
            return Place {
                pin: None,
                generator_threads: 1,
            };
        }
        let workers = point.workers.map(|workers| workers as usize);
        let busy = workers.unwrap_or_else(|| target.busy_threads());
        let cores = cpus.cores.len();
        if cores <= busy {
            return Place {
                pin: None,
                generator_threads: (cores / 2).max(1),
            };
        }
        let generator_threads = (cores - busy).min(3 * busy);
        let list = |cpus: &[usize]| {
            let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
            words.join(",")
        };
        let (theirs, others) = cpus.cores.split_at(busy);
        Place {
            pin: pin.then(|| format!("{}/{}", list(theirs), list(&others[..generator_threads]))),
            generator_threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        for name in ["pipe", "tor", "weft:0", "weft:16"] {
            let target: Target = name.parse().expect("a target");
            assert_eq!(target.to_string(), name);
        }
        for wrong in ["", "weft", "weft:x", "tor:1", "arti"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_up_to_the_cores() {
        assert_eq!(thread_counts(2), [0, 1, 2]);
        assert_eq!(thread_counts(8), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(thread_counts(9), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(thread_counts(16), [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16]);
        let many = thread_counts(64);
        assert!(many.is_sorted() && many.ends_with(&[64]), "{many:?}");
    }

    #[test]
    fn the_whole_matrix() {
        let plan = Plan::new(false, &[], &[], 2);
        let cells = plan.first.iter().filter(|step| step.point.is_full_speed());
        let cells: Vec<&Step> = cells.collect();
        // Four sizes, two directions; pipe, C tor and Weft with 0, 1 and 2 threads.
        assert_eq!(cells.len(), 8);
        assert!(cells.iter().all(|step| step.targets.len() == 5));
        assert_eq!(plan.second.len(), 2);
    }

    #[test]
    fn the_loads_of_real_relays_have_a_part_each() {
        let points = |part| {
            let plan = Plan::new(false, &[part], &[], 2);
            let names = plan.first.iter().map(|step| {
                let targets: Vec<String> = step.targets.iter().map(Target::to_string).collect();
                format!("{}: {}", step.point, targets.join(" "))
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            points(Part::Thin),
            [
                "2000 circuits over 400 links, both at 10 MB/s: pipe tor weft:1",
                "4000 circuits over 2000 links, both at 10 MB/s: pipe tor weft:1",
            ]
        );
        assert_eq!(
            points(Part::Live)[0],
            "12500 circuits over 2000 links, live-middle: pipe tor weft:1"
        );
        assert_eq!(
            points(Part::Capacity),
            ["4000 circuits over 2000 links, both (capacity): tor weft:1"]
        );
        assert_eq!(
            points(Part::Size),
            ["50000 circuits over 8000 links, both at 1 MB/s (size): tor weft:1"]
        );
        let threads = points(Part::Threads);
        assert_eq!(threads.len(), 2);
        assert!(
            threads
                .iter()
                .all(|name| name.ends_with(": weft:1 weft:2 weft:4 weft:8"))
        );
        // A target that is not asked for is left out.
        let plan = Plan::new(false, &[Part::Threads], &[Target::Tor], 2);
        assert!(plan.first.is_empty());
    }

    #[test]
    fn latency_alone_finds_the_speed_of_tor_first() {
        let only = [Target::Weft(1)];
        let plan = Plan::new(false, &[Part::Latency], &only, 2);
        assert!(plan.first.iter().all(|step| step.targets == [Target::Tor]));
        assert_eq!(plan.first.len(), 2);
        assert!(plan.second.iter().all(|step| step.targets == only));
    }

    #[test]
    fn a_core_for_each_thread_and_for_the_generator() {
        let cpus = |count| Cpus {
            cores: (0..count).collect(),
        };
        let point = Point::cells(FEW, "upload");
        let place = |target, count| Place::of(target, &point, &cpus(count), true);
        assert_eq!(place(Target::Tor, 2).pin.as_deref(), Some("0/1"));
        assert_eq!(place(Target::Weft(2), 2).pin, None);
        let weft = place(Target::Weft(2), 16);
        assert_eq!(weft.pin.as_deref(), Some("0,1/2,3,4,5,6,7"));
        assert_eq!(weft.generator_threads, 6);
        assert_eq!(Place::of(Target::Tor, &point, &cpus(2), false).pin, None);
        let threads = Point::threads_full();
        let one = Place::of(Target::Weft(1), &threads, &cpus(2), true);
        assert_eq!(one, Place::of(Target::Weft(8), &threads, &cpus(2), true));
    }
}
