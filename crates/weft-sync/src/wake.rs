//! Flag of a sleeping thread, so that others wake it only when they must.
//!
//! A wake-up is a system call. A sender makes at most one for each receiver in a turn of its event
//! loop, and none if the receiver is awake or has already been woken: then the receiver looks at
//! its rings anyway before it sleeps.
//!
//! The thread that owns the flag runs this loop:
//!
//! ```
//! # let flag = weft_sync::wake::WakeFlag::new();
//! # let (drain_rings, wait_for_events, mut turns) = (|| (), |_may_sleep: bool| (), 0);
//! loop {
//!     flag.take(); // first: what is pushed after this is announced again
//!     drain_rings(); // whole, or else the loop must not sleep
//!     // ... other work, pushes to other threads, `notify` for each of them ...
//!     let may_sleep = flag.prepare_sleep();
//!     wait_for_events(may_sleep); // epoll_wait with timeout 0 if it may not sleep
//! #   turns += 1;
//! #   if turns == 2 { break }
//! }
//! ```
//!
//! The others push into a ring and then call [`WakeFlag::notify`]; if it returns true, they make the
//! system call (an eventfd, mio's `Waker`) that ends the owner's `epoll_wait`. The end of a sender
//! (its drop) is announced in the same way.

use crate::sys::{AtomicU8, Ordering};

/// The owner is running its loop and has not been notified since it last took the flag.
const AWAKE: u8 = 0;
/// A sender has pushed something for the owner. If the owner was asleep, that sender makes the system
/// call.
const NOTIFIED: u8 = 1;
/// The owner waits for events, or is about to.
const ASLEEP: u8 = 2;

/// The flag of one thread, shared with all that send to it.
///
/// Why no wake-up is lost: all changes of the flag are atomic read-modify-writes, so they have one
/// order. A `notify` stands in it before the owner's next `take` (then the owner drains after it),
/// or between the last `take` and `prepare_sleep` (then the owner does not sleep), or after
/// `prepare_sleep` (then the notifier makes the system call). Each of them acquires what the
/// earlier ones released, so the owner then sees what was pushed before the `notify`, also when
/// another `notify` came in between.
#[derive(Debug)]
pub struct WakeFlag {
    state: AtomicU8,
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl WakeFlag {
    /// A flag whose owner is awake.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: AtomicU8::new(AWAKE),
        }
    }

    /// Notes that something has been pushed for the owner. If this is `true`, the caller must make
    /// the wake-up system call; for one sleep of the owner exactly one caller gets `true`.
    #[must_use = "if true, the owner sleeps until the caller makes the wake-up system call"]
    pub fn notify(&self) -> bool {
        self.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }

    /// For the owner, at the start of each turn and before it drains its rings: it is awake.
    /// `true` if it was notified since the last call.
    pub fn take(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }

    /// For the owner, when it has nothing left to do. `true`: it may wait for events as long as it
    /// likes, a wake-up will end the wait. `false`: something came since [`WakeFlag::take`], and
    /// the owner must drain again first.
    #[must_use = "if false, something waits in a ring and no wake-up will announce it"]
    pub fn prepare_sleep(&self) -> bool {
        match self
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => true,
            Err(state) => state == ASLEEP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ring::{Receiver, Sender, ring},
        sys::{Arc, model},
    };

    /// Pushes `items`, then notifies and makes the "system call". Unparking stands for the write
    /// to an eventfd: it ends the owner's wait, or its next wait if it does not wait yet.
    fn push_and_notify(
        sender: &mut Sender<u32>,
        items: std::ops::Range<u32>,
        flag: &WakeFlag,
        owner: &model::Thread,
    ) {
        for item in items {
            sender.try_push(item).unwrap();
        }
        if flag.notify() {
            owner.unpark();
        }
    }

    /// The owner's loop until `expected` items have come: how often it slept. A sleep that no
    /// wake-up ends is a deadlock, which loom reports.
    fn receive(rings: &mut [Receiver<u32>], expected: usize, flag: &WakeFlag) -> usize {
        let mut received = 0;
        let mut slept = 0;
        loop {
            flag.take();
            for ring in &mut *rings {
                while ring.pop().is_some() {
                    received += 1;
                }
            }
            if received == expected {
                return slept;
            }
            if flag.prepare_sleep() {
                slept += 1;
                model::park();
            }
        }
    }

    #[test]
    fn no_wake_up_is_lost_between_the_last_drain_and_the_sleep() {
        model::check(|| {
            let flag = Arc::new(WakeFlag::new());
            let (mut sender, receiver) = ring(4);
            let thread = {
                let (flag, owner) = (Arc::clone(&flag), model::current());
                model::spawn(move || {
                    push_and_notify(&mut sender, 0..2, &flag, &owner);
                    push_and_notify(&mut sender, 2..3, &flag, &owner);
                })
            };
            let slept = receive(&mut [receiver], 3, &flag);
            thread.join().unwrap();
            // The standard library's park may also return without a reason.
            assert!(slept <= 2 || cfg!(not(loom)), "one for each announcement");
        });
    }

    #[test]
    fn two_senders_do_not_hide_each_other() {
        model::check(|| {
            let flag = Arc::new(WakeFlag::new());
            let mut receivers = Vec::new();
            let mut threads = Vec::new();
            for _ in 0..2 {
                let (mut sender, receiver) = ring(1);
                receivers.push(receiver);
                let (flag, owner) = (Arc::clone(&flag), model::current());
                threads.push(model::spawn(move || {
                    push_and_notify(&mut sender, 0..1, &flag, &owner);
                }));
            }
            receive(&mut receivers, 2, &flag);
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    #[cfg(not(loom))]
    fn only_a_sleeper_costs_a_system_call_and_only_one() {
        let flag = WakeFlag::new();
        assert!(!flag.notify(), "the owner is awake");
        assert!(!flag.prepare_sleep(), "and has been notified");
        assert!(flag.take());
        assert!(!flag.take(), "once");
        assert!(flag.prepare_sleep());
        assert!(flag.prepare_sleep(), "asking twice changes nothing");
        assert!(flag.notify(), "the first to come wakes it");
        assert!(!flag.notify(), "the next relies on the first");
        assert!(flag.take());
        assert!(!flag.notify());
    }
}
