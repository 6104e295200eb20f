//! Streams that are open at once, by the hops and circuits that they come by.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use weft_share::{PreviousHop, Shares, Ticket};

/// Streams at once, where there are files for as many. A hop that is alone may have all of them; past that, the one with most loses,
/// of its circuit with most, a stream that has not sent its request, or else its oldest.
pub(super) const MAX_STREAMS: usize = 1024;

/// Open streams; dropping a stream's sender ends it.
type Open = Shares<PreviousHop, u128, oneshot::Sender<()>>;

/// The open streams, and their bound.
#[derive(Debug)]
pub(crate) struct Places {
    open: Mutex<Open>,
    most: AtomicUsize,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            most: AtomicUsize::new(MAX_STREAMS),
        }
    }
}

/// A place among the streams that may be open.
pub(super) struct Place {
    places: Arc<Places>,
    ticket: Ticket,
}

impl Places {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams at once at most.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Has no more than `most` at once, of those that come from now on.
    pub(crate) fn set_most(&self, most: usize) {
        self.most.store(most.min(MAX_STREAMS), Ordering::Relaxed);
    }

    /// Streams that are open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open().len()
    }

    /// A place for a stream that came by this circuit of this hop, and what resolves when it has to give it up.
    /// `None`: there is none.
    pub(super) fn take(
        self: &Arc<Self>,
        hop: PreviousHop,
        circuit: u128,
    ) -> Option<(Place, oneshot::Receiver<()>)> {
        let (stays, lost) = oneshot::channel();
        let admitted = self.open().admit(hop, circuit, self.most(), stays).ok()?;
        let place = Place {
            places: self.clone(),
            ticket: admitted.ticket,
        };
        Some((place, lost))
    }
}

impl Place {
    /// The stream has sent its request.
    pub(super) fn prove(&self) {
        self.places.open().prove(self.ticket);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().release(self.ticket);
    }
}
