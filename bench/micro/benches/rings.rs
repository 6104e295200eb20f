//! Cost of carrying messages between threads.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use criterion::{BatchSize, Criterion, Throughput};
use weft_sync::ring::{Receiver, Sender, ring};
use weft_sync::wake::WakeFlag;

/// As large as the cell lanes between connection threads.
const CAPACITY: usize = 64;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    one_thread(&mut criterion);
    two_threads(&mut criterion);
    wake(&mut criterion);
    criterion.final_summary();
}

/// Push and pop without another thread: what the ring itself costs.
fn one_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring, one thread");
    group.throughput(Throughput::Elements(CAPACITY as u64));
    let (mut sender, mut receiver) = ring(CAPACITY);
    group.bench_function("fill and empty", |bencher| {
        bencher.iter(|| {
            for item in 0..CAPACITY as u64 {
                let _ = sender.try_push(black_box(item));
            }
            while let Some(item) = receiver.pop() {
                black_box(item);
            }
        });
    });
    group.finish();
}

/// From one thread to another, both always awake: numbers, and batches of them as cells travel.
/// On a machine with one free core this measures the kernel's scheduler instead.
fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring, two threads");
    group.throughput(Throughput::Elements(1));
    group.bench_function("a number", |bencher| {
        bencher.iter_custom(|count| across(count, |number| number));
    });
    for size in [32, 512] {
        group.throughput(Throughput::Elements(size));
        group.bench_function(format!("a batch of {size}"), |bencher| {
            bencher.iter_custom(|count| across(count, |number| vec![number; size as usize]));
        });
    }
    group.finish();
}

/// The time that `count` items take to the other thread.
fn across<T: Send>(count: u64, make: impl Fn(u64) -> T + Sync) -> std::time::Duration {
    let (sender, receiver) = ring(CAPACITY);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| send(sender, count, &make));
        receive(receiver, count);
    });
    start.elapsed()
}

fn send<T>(mut sender: Sender<T>, count: u64, make: &impl Fn(u64) -> T) {
    for number in 0..count {
        let mut item = make(number);
        while let Err(back) = sender.try_push(item) {
            item = back;
            // Should both ends share a core, the other one must get it.
            thread::yield_now();
        }
    }
}

fn receive<T>(mut receiver: Receiver<T>, count: u64) {
    let mut left = count;
    while left > 0 {
        match receiver.pop() {
            Some(item) => {
                black_box(item);
                left -= 1;
            }
            None => thread::yield_now(),
        }
    }
}

/// Cost of one notification; a sender makes one for each receiver and turn.
fn wake(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wake-up flag");
    let awake = WakeFlag::new();
    group.bench_function("notify a thread that is awake", |bencher| {
        bencher.iter(|| black_box(&awake).notify());
    });
    group.bench_function("notify a thread that sleeps", |bencher| {
        bencher.iter_batched_ref(
            || {
                let flag = WakeFlag::new();
                assert!(flag.prepare_sleep(), "nothing waits");
                flag
            },
            |flag| flag.notify(),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
