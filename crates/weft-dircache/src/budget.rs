//! Bytes that a directory holds for the streams that are open: requests as they come, and answers as they are read and
//! compressed. One client can open a thousand streams and read none of them.
//!
//! Each stream has a [`Charge`]. All charges together have a bound, which previous hops share and the circuits of each:
//! past it the heaviest stream of the hop that holds most ends for one that would still hold less, and what finds no room is
//! answered 503. The node counts the charges with its own memory, and ends the heaviest when that is short
//! ([`Budget::end`]).

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use weft_share::{Amounts, PreviousHop, Ticket};

/// The bound that a node replaces before it listens.
const MOST: usize = 64 << 20;

/// Open streams by hop and circuit; dropping a stream's sender ends it.
type Open = Amounts<PreviousHop, u128, oneshot::Sender<()>>;

/// The memory of all open streams, and its bound.
#[derive(Debug)]
pub struct Budget {
    /// Held for moments only.
    open: Mutex<Open>,
    most: AtomicUsize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            most: AtomicUsize::new(MOST),
        }
    }
}

/// Bytes charged to one stream until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    ticket: Ticket,
}

impl Budget {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has streams hold no more than `most` bytes from now on.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Bytes held.
    pub fn total(&self) -> usize {
        self.open().total()
    }

    /// The bytes that each stream holds, with the hop that it comes by; streams that hold none are
    /// left out.
    pub fn held(&self) -> Vec<(PreviousHop, usize)> {
        let open = self.open();
        let held = open.iter().map(|(_, hop, bytes)| (hop, bytes));
        held.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Ends the streams that `ends` picks, by their hops and bytes; it is asked for the heaviest first.
    pub fn end(&self, mut ends: impl FnMut(PreviousHop, usize) -> bool) {
        let mut open = self.open();
        let held = open.iter().filter(|(.., bytes)| *bytes > 0);
        let mut held: Vec<(Ticket, PreviousHop, usize)> = held.collect();
        held.sort_unstable_by_key(|(ticket, _, bytes)| (Reverse(*bytes), *ticket));
        held.retain(|(_, hop, bytes)| ends(*hop, *bytes));
        let ended = held.iter().map(|(ticket, ..)| open.release(*ticket));
        let ended: Vec<_> = ended.collect();
        // Dropping these wakes tasks, so it happens without the lock.
        drop(open);
        drop(ended);
    }

    /// A charge for a stream of this circuit, and what resolves when the stream has to end.
    pub fn charge(
        self: &Arc<Self>,
        hop: PreviousHop,
        circuit: u128,
    ) -> (Charge, oneshot::Receiver<()>) {
        let (stays, ended) = oneshot::channel();
        let charge = Charge {
            budget: self.clone(),
            ticket: self.open().add(hop, circuit, stays),
        };
        (charge, ended)
    }
}

impl Charge {
    /// The stream holds this many bytes. False: there is no room, and it holds what it held.
    pub fn set(&self, bytes: usize) -> bool {
        let most = self.budget.most.load(Ordering::Relaxed);
        let set = self.budget.open().set(self.ticket, bytes, most);
        set.is_ok()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let ended = self.budget.open().release(self.ticket);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn hop(number: u8) -> PreviousHop {
        PreviousHop::at(IpAddr::V4(Ipv4Addr::new(203, 0, 113, number)))
    }

    #[test]
    fn the_heaviest_ends_for_others_and_when_memory_is_short() {
        let budget = Arc::<Budget>::default();
        budget.set_most(100);
        let (one, mut one_ends) = budget.charge(hop(1), 1);
        let (two, mut two_ends) = budget.charge(hop(1), 2);
        assert!(one.set(60) && two.set(40));
        assert!(!two.set(61), "the bound is kept");
        let (other, mut other_ends) = budget.charge(hop(2), 1);
        assert!(other.set(30));
        assert!(
            one_ends
                .try_recv()
                .is_err_and(|why| why == oneshot::error::TryRecvError::Closed)
        );
        assert_eq!(budget.total(), 70);
        assert_eq!(budget.held(), [(hop(1), 40), (hop(2), 30)]);
        // One that has ended holds nothing, whatever it still says.
        assert!(!one.set(1));
        drop(one);
        assert_eq!(budget.total(), 70);
        let mut asked = Vec::new();
        budget.end(|hop, bytes| {
            asked.push((hop, bytes));
            bytes == 40
        });
        assert_eq!(asked, [(hop(1), 40), (hop(2), 30)]);
        let ended = |receiver: &mut oneshot::Receiver<()>| {
            receiver.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        assert!(ended(&mut two_ends) && !ended(&mut other_ends));
        drop((two, other));
        assert_eq!((budget.total(), budget.held()), (0, Vec::new()));
    }
}
