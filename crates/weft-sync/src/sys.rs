//! The primitives that everything here is built on: the standard library's, or loom's where loom
//! searches the interleavings.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

/// `std::cell::UnsafeCell` with loom's interface, which lets loom see how long an access lasts.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A value alone on its cache lines, so that one thread's writes do not slow another thread's
/// reads of a neighbour. 128 bytes: x86-64 fetches lines in pairs, and some ARM cores have lines
/// this long.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Threads and the search for interleavings, for the models in the tests.
#[cfg(test)]
pub(crate) mod model {
    #[cfg(loom)]
    pub(crate) use loom::thread::{Thread, current, park, spawn, yield_now};
    #[cfg(not(loom))]
    pub(crate) use std::thread::{Thread, current, park, spawn, yield_now};

    /// Runs `f` once for every interleaving under loom, and otherwise a number of times on real
    /// threads.
    pub(crate) fn check(f: impl Fn() + Sync + Send + 'static) {
        #[cfg(loom)]
        loom::model(f);
        #[cfg(not(loom))]
        for _ in 0..if cfg!(miri) { 4 } else { 200 } {
            f();
        }
    }
}
