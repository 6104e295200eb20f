//! Work that is cut into pieces and done on all cores, with results that do not depend on them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weft_stats::bounds::Bounds;

/// Threads that anything may be asked to use.
pub const THREADS: Bounds<usize> = Bounds::new(1, 1024);

/// Number of threads that this machine runs at once.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does `work` for each piece, on the given number of threads, and returns the results in the order
/// of the pieces. `done` is called for each piece that is finished, on the thread that finished it.
///
/// # Panics
///
/// If `work` or `done` does.
pub fn map<R: Send>(
    pieces: usize,
    threads: usize,
    work: impl Fn(usize) -> R + Sync,
    done: impl Fn() + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut results = Vec::new();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return results;
            }
            results.push((piece, work(piece)));
            done();
        }
    };
    let threads = threads.clamp(1, pieces.max(1));
    if threads == 1 {
        return run().into_iter().map(|(_, result)| result).collect();
    }
    let mut results = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut results = run();
        for other in others {
            match other.join() {
                Ok(more) => results.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_by_key(|(piece, _)| *piece);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        for threads in [0, 1, 3, 100] {
            let done = AtomicUsize::new(0);
            let count = || {
                done.fetch_add(1, Ordering::Relaxed);
            };
            let squares = map(50, threads, |piece| piece * piece, count);
            assert!(squares.into_iter().eq((0..50).map(|piece| piece * piece)));
            assert_eq!(done.into_inner(), 50);
        }
        assert!(map(0, 4, |piece| piece, || ()).is_empty());
    }
}
