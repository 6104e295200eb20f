//! A bounded queue from one thread to one other.
//!
//! [`ring`] makes the two ends. [`Sender::try_push`] and [`Receiver::pop`] never wait and never
//! take a lock: a full ring gives the item back, an empty one gives nothing. Waiting is the
//! business of [`crate::wake`].
//!
//! The ends keep their own index privately and a copy of the other's, and look at the other's real
//! index only when by the copy the ring is full (or empty). While both are busy, most
//! operations therefore touch no cache line that the other thread writes, except the slots.
#![allow(unsafe_code)]

use std::{fmt, mem::MaybeUninit};

use crate::sys::{Arc, AtomicBool, AtomicUsize, CachePadded, Ordering, UnsafeCell};

/// Makes a ring that holds at most `capacity` items.
///
/// # Panics
///
/// If `capacity` is 0, or if that many slots cannot be addressed.
#[must_use]
pub fn ring<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a ring needs room for at least one item");
    let slots = capacity
        .checked_next_power_of_two()
        .unwrap_or_else(|| panic!("a ring of {capacity} slots cannot be addressed"));
    let shared = Arc::new(Shared {
        slots: (0..slots)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
        capacity,
        head: CachePadded(AtomicUsize::new(0)),
        tail: CachePadded(AtomicUsize::new(0)),
        sender_gone: AtomicBool::new(false),
        receiver_gone: AtomicBool::new(false),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
        tail: 0,
        head_seen: 0,
    };
    let receiver = Receiver {
        shared,
        head: 0,
        tail_seen: 0,
    };
    (sender, receiver)
}

/// State that both ends share.
///
/// `head` counts the items ever popped and `tail` those ever pushed, both wrapping; the slot of
/// item number `n` is `n` modulo the number of slots, which is a power of two so that the
/// remainder survives the wrap. Always `tail - head <= capacity <= slots.len()`.
///
/// Ownership of slots: item numbers in `head..tail` belong to the receiver and hold a value; all
/// others belong to the sender and hold none. The sender hands a slot over by its Release store of
/// `tail`, the receiver gives it back by its Release store of `head`, and each takes over by an
/// Acquire load of the other's index.
struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    capacity: usize,
    /// Written by the receiver only.
    head: CachePadded<AtomicUsize>,
    /// Written by the sender only.
    tail: CachePadded<AtomicUsize>,
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
}

// SAFETY: the slots are the only part that is not Sync by itself. Each is accessed by one end at a
// time (see `Shared`), with a Release/Acquire pair between the accesses, so a `T` only ever moves
// from one thread to another, which `T: Send` allows. No `&T` is ever shared.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; dropping `Shared` drops the remaining items on that thread, a move of `T`.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    #[expect(
        clippy::indexing_slicing,
        reason = "the mask keeps the index below the length, a power of two"
    )]
    fn slot(&self, number: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[number & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are dropped, and the `Arc` has synchronized with their last accesses.
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            // Counted before the drop: a panic in `T`'s drop must not lead to a second one.
            let number = head;
            head = head.wrapping_add(1);
            self.slot(number).with_mut(|slot| {
                // SAFETY: the slots of `head..tail` hold a value, no other thread has access (we have
                // `&mut self`), and each number is visited once.
                unsafe { (*slot).assume_init_drop() }
            });
        }
    }
}

/// The end that items go into. It can move to another thread but cannot be cloned.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// The value of `shared.tail`, which only this end writes.
    tail: usize,
    /// A value that `shared.head` once had; the real one can only be further on.
    head_seen: usize,
}

impl<T> Sender<T> {
    /// Puts `item` into the ring, or gives it back if the ring is full.
    ///
    /// The receiver is not woken: that is done once per turn of the event loop, by
    /// [`crate::wake::WakeFlag::notify`] after the last push of the turn. An item for a receiver
    /// that is dropped is taken and dropped together with the ring; see [`Sender::is_disconnected`].
    pub fn try_push(&mut self, item: T) -> Result<(), T> {
        if self.tail.wrapping_sub(self.head_seen) >= self.shared.capacity {
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head_seen) >= self.shared.capacity {
                return Err(item);
            }
        }
        self.shared.slot(self.tail).with_mut(|slot| {
            // SAFETY: `tail - head <= tail - head_seen < capacity`, so number `tail` is outside
            // `head..tail`: the slot is the sender's and holds no value. If it held one before,
            // the receiver's use of it happened before the Acquire load of `head` that set
            // `head_seen`. `&mut self` keeps out other pushes.
            unsafe { (*slot).write(item) };
        });
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Returns true if [`Sender::try_push`] would give the item back now. Only the receiver can
    /// change a `true`, and only this end can change a `false`.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.shared.capacity
    }

    /// The items in the ring: exact, or too many if the receiver is popping right now.
    #[must_use]
    pub fn len(&self) -> usize {
        let head = self.shared.head.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(head)
    }

    /// Returns true if the receiver has taken everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most items that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Returns true if the receiver is dropped, so that pushed items will not be popped.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.sender_gone.store(true, Ordering::Release);
    }
}

/// The end that items come out of, in the order in which they were pushed.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The value of `shared.head`, which only this end writes.
    head: usize,
    /// A value that `shared.tail` once had; the real one can only be further on.
    tail_seen: usize,
}

impl<T> Receiver<T> {
    /// Takes the oldest item out of the ring, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        let item = self.shared.slot(self.head).with_mut(|slot| {
            // SAFETY: `head < tail_seen <= tail`, so the slot is the receiver's and holds a value,
            // whose write happened before the Acquire load of `tail` that set `tail_seen`. The
            // value is read once: `head` moves on below, and `&mut self` keeps out other pops.
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
        Some(item)
    }

    /// The items in the ring: exact, or too few if the sender is pushing right now.
    #[must_use]
    pub fn len(&self) -> usize {
        let tail = self.shared.tail.0.load(Ordering::Acquire);
        tail.wrapping_sub(self.head)
    }

    /// Returns true if [`Receiver::pop`] would find nothing now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most items that the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }

    /// Returns true if the sender is dropped and everything that it pushed has been popped: no more
    /// items will arrive.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        // In this order: the Acquire load makes the sender's last push visible to `is_empty`.
        self.shared.sender_gone.load(Ordering::Acquire) && self.is_empty()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receiver_gone.store(true, Ordering::Release);
        // Items in the ring may hold sockets and memory: free them now, not with the sender.
        while self.pop().is_some() {}
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("capacity", &self.shared.capacity)
            .field("pushed", &self.tail)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("capacity", &self.shared.capacity)
            .field("popped", &self.head)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::model;

    /// Counts how often it is dropped.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn items_cross_threads_whole_and_in_order() {
        model::check(|| {
            // Three items through two slots: both ends wrap, and each can find the ring full or
            // empty.
            let (mut sender, mut receiver) = ring::<Box<usize>>(2);
            let thread = model::spawn(move || {
                for n in 0..3 {
                    let mut item = Box::new(n);
                    while let Err(back) = sender.try_push(item) {
                        item = back;
                        model::yield_now();
                    }
                }
            });
            for expected in 0..3 {
                let item = loop {
                    match receiver.pop() {
                        Some(item) => break item,
                        None => model::yield_now(),
                    }
                };
                assert_eq!(*item, expected);
            }
            thread.join().unwrap();
            assert!(receiver.is_disconnected());
            assert!(receiver.pop().is_none());
        });
    }

    #[test]
    fn a_disconnected_ring_has_nothing_left_in_it() {
        model::check(|| {
            let (mut sender, mut receiver) = ring(2);
            let thread = model::spawn(move || {
                sender.try_push(1).unwrap();
                sender.try_push(2).unwrap();
            });
            let mut received = Vec::new();
            while !receiver.is_disconnected() {
                match receiver.pop() {
                    Some(item) => received.push(item),
                    None => model::yield_now(),
                }
            }
            assert_eq!(received, [1, 2]);
            thread.join().unwrap();
        });
    }

    #[test]
    fn every_item_is_dropped_exactly_once_whichever_end_goes_first() {
        model::check(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let (mut sender, mut receiver) = ring(2);
            let sender_drops = Arc::clone(&drops);
            let thread = model::spawn(move || {
                for _ in 0..3 {
                    // The third may come back, and is dropped here.
                    let _ = sender.try_push(Counted(Arc::clone(&sender_drops)));
                }
            });
            let _ = receiver.pop();
            drop(receiver);
            thread.join().unwrap();
            assert_eq!(drops.load(Ordering::Relaxed), 3);
        });
    }

    #[test]
    #[cfg(not(loom))]
    fn a_full_ring_gives_the_item_back() {
        // Not a power of two: the capacity that was asked for counts, not the number of slots.
        let (mut sender, mut receiver) = ring(3);
        for n in 0..3 {
            assert!(!sender.is_full());
            assert_eq!(sender.try_push(n), Ok(()));
        }
        assert!(sender.is_full());
        assert_eq!(sender.try_push(3), Err(3));
        assert_eq!(receiver.len(), 3);
        assert_eq!(receiver.pop(), Some(0));
        assert_eq!(sender.try_push(3), Ok(()));
        assert!(sender.is_full());
        let rest: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
        assert_eq!(rest, [1, 2, 3]);
        assert!(sender.is_empty() && receiver.is_empty());
    }

    #[test]
    #[cfg(not(loom))]
    fn the_indices_may_wrap() {
        let (mut sender, mut receiver) = ring(3);
        // As if usize::MAX - 1 items had already passed.
        let start = usize::MAX - 1;
        sender.tail = start;
        sender.head_seen = start;
        receiver.head = start;
        receiver.tail_seen = start;
        sender.shared.tail.0.store(start, Ordering::Relaxed);
        sender.shared.head.0.store(start, Ordering::Relaxed);
        for n in 0..10 {
            assert_eq!(sender.try_push(n), Ok(()));
            assert_eq!(sender.try_push(n + 100), Ok(()));
            assert_eq!(receiver.len(), 2);
            assert_eq!(receiver.pop(), Some(n));
            assert_eq!(receiver.pop(), Some(n + 100));
            assert_eq!(receiver.pop(), None);
        }
        // Two items across the wrap are still dropped with the ring.
    }

    #[test]
    #[cfg(not(loom))]
    fn each_end_learns_that_the_other_is_gone() {
        let (mut sender, receiver) = ring(2);
        assert!(!sender.is_disconnected());
        drop(receiver);
        assert!(sender.is_disconnected());
        // Harmless, and nothing is lost twice.
        assert_eq!(sender.try_push(String::from("into the void")), Ok(()));

        let (mut sender, mut receiver) = ring(2);
        sender.try_push(1).unwrap();
        drop(sender);
        assert!(!receiver.is_disconnected(), "one item is still to come");
        assert_eq!(receiver.pop(), Some(1));
        assert!(receiver.is_disconnected());
    }

    #[test]
    #[cfg(not(loom))]
    #[should_panic(expected = "at least one item")]
    fn a_ring_without_room_is_refused() {
        let _ = ring::<u8>(0);
    }

    #[cfg(not(loom))]
    mod properties {
        use std::collections::VecDeque;

        use proptest::prelude::*;

        use super::*;

        proptest! {
            #![proptest_config(ProptestConfig {
                cases: if cfg!(miri) { 8 } else { 256 },
                failure_persistence: None,
                ..ProptestConfig::default()
            })]

            #[test]
            fn a_ring_is_a_bounded_queue(
                capacity in 1_usize..9,
                pushes in proptest::collection::vec(any::<bool>(), 0..200),
            ) {
                let (mut sender, mut receiver) = ring(capacity);
                let mut queue = VecDeque::new();
                for (n, push) in pushes.into_iter().enumerate() {
                    if push {
                        let expected = if queue.len() < capacity {
                            queue.push_back(n);
                            Ok(())
                        } else {
                            Err(n)
                        };
                        prop_assert_eq!(sender.try_push(n), expected);
                    } else {
                        prop_assert_eq!(receiver.pop(), queue.pop_front());
                    }
                    prop_assert_eq!(sender.len(), queue.len());
                    prop_assert_eq!(receiver.len(), queue.len());
                    prop_assert_eq!(sender.is_full(), queue.len() == capacity);
                    prop_assert_eq!(receiver.is_empty(), queue.is_empty());
                }
            }
        }
    }
}
