//! Cost of choosing cells, by the number of circuits that have some: the calls that
//! `LocalConnectionManager::schedule` makes, without the cells.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use weft_core::scheduler::{CELLS_AT_ONCE, DEFAULT_HALF_LIFE, Scheduler};
use weft_core::slots::{HalfKey, LinkKey};

/// Circuits, and the links that they are spread over.
const SIZES: [(u32, u32); 3] = [(10, 2), (1_000, 20), (100_000, 500)];
/// Cells in one run.
const RUN: u32 = 1024;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    backlog(&mut criterion);
    one_cell_each(&mut criterion);
    criterion.final_summary();
}

/// A scheduler with this number of circuits, none active.
fn scheduler(circuits: u32, links: u32, now: Instant) -> Scheduler {
    let mut scheduler = Scheduler::new(DEFAULT_HALF_LIFE);
    for link in 0..links {
        scheduler.link_added(LinkKey(link));
    }
    for half in 0..circuits {
        scheduler.circuit_added(HalfKey(half), LinkKey(half % links), now);
    }
    scheduler
}

/// Every circuit always has another cell: bulk transfers on all of them.
fn backlog(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler, all circuits busy");
    group.throughput(Throughput::Elements(u64::from(RUN)));
    for (circuits, links) in SIZES {
        let mut now = Instant::now();
        let mut scheduler = scheduler(circuits, links, now);
        for half in 0..circuits {
            scheduler.set_active(HalfKey(half), true);
        }
        group.bench_function(BenchmarkId::from_parameter(circuits), |bencher| {
            bencher.iter(|| {
                now += Duration::from_millis(1);
                for link in 0..links {
                    scheduler.set_budget(LinkKey(link), RUN.div_ceil(links));
                }
                let mut chosen = 0u64;
                while let Some(choice) = scheduler.choose() {
                    scheduler.sent(choice, choice.budget.min(CELLS_AT_ONCE), true, now);
                    chosen += u64::from(choice.half.0);
                }
                chosen
            });
        });
    }
    group.finish();
}

/// Circuits become active with one cell, one run after the other, and are idle after it: many
/// clients that browse. As many as there are, 1,024 at most, of the number given.
fn one_cell_each(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scheduler, one cell each");
    for (circuits, links) in SIZES {
        let at_once = RUN.min(circuits);
        group.throughput(Throughput::Elements(u64::from(at_once)));
        let mut now = Instant::now();
        let mut scheduler = scheduler(circuits, links, now);
        let mut first = 0;
        group.bench_function(BenchmarkId::from_parameter(circuits), |bencher| {
            bencher.iter(|| {
                now += Duration::from_millis(1);
                for number in 0..at_once {
                    scheduler.set_active(HalfKey((first + number) % circuits), true);
                }
                first = (first + at_once) % circuits;
                for link in 0..links {
                    scheduler.set_budget(LinkKey(link), RUN);
                }
                while let Some(choice) = scheduler.choose() {
                    scheduler.sent(choice, 1, false, now);
                }
            });
        });
    }
    group.finish();
}
