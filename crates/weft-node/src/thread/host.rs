//! The threads of the process that take the turns of connection threads: of one each, or, where the process has several
//! identities, of one of each.
//!
//! Each connection thread has its own event loop, and shares nothing with the others. Where there are several, their event
//! loops are nested in one that waits for all of them; after each of its waits each of them has a turn.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mio::{Events, Poll};

use super::ConnectionThread;
use crate::logging::{IdentityName, current, enter};

/// How a connection thread ended.
type Ended = OnceLock<Result<(), String>>;

/// A connection thread, for a thread of the process.
#[derive(Debug)]
pub(crate) struct Guest {
    thread: ConnectionThread,
    /// The identity that it belongs to.
    identity: Option<IdentityName>,
    /// The time until its next turn.
    wait: Duration,
    ended: Arc<Ended>,
}

/// A connection thread, as the main thread of its identity has it.
#[derive(Debug)]
pub(crate) struct GuestHandle {
    ended: Arc<Ended>,
}

impl Guest {
    /// A connection thread of the identity that the calling thread is of.
    pub(crate) fn new(thread: ConnectionThread) -> (Self, GuestHandle) {
        let ended = Arc::<Ended>::default();
        let handle = GuestHandle {
            ended: ended.clone(),
        };
        let guest = Guest {
            thread,
            identity: current(),
            wait: Duration::ZERO,
            ended,
        };
        (guest, handle)
    }

    /// It has ended.
    fn end(self, result: io::Result<()>) {
        let Guest { thread, ended, .. } = self;
        drop(thread);
        // Nobody else sets it.
        let _ = ended.set(result.map_err(|error| error.to_string()));
    }
}

impl GuestHandle {
    /// How it ended; `None`: it goes on.
    pub(crate) fn result(&self) -> Option<io::Result<()>> {
        // Before the result is looked for: a guest that ends sets it first.
        let is_gone = Arc::strong_count(&self.ended) == 1;
        match self.ended.get() {
            Some(result) => Some(result.clone().map_err(io::Error::other)),
            None if is_gone => Some(Err(panicked())),
            None => None,
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.result().is_some()
    }
}

fn panicked() -> io::Error {
    io::Error::other("a connection thread panicked")
}

/// Takes turns until all guests have ended.
pub(crate) fn host(mut guests: Vec<Guest>) {
    if guests.len() == 1
        && let Some(mut guest) = guests.pop()
    {
        enter(guest.identity);
        let result = guest.thread.run();
        return guest.end(result);
    }
    if let Err(error) = take_turns(&mut guests) {
        for guest in guests {
            guest.end(Err(io::Error::other(error.to_string())));
        }
    }
}

/// The same for several.
fn take_turns(guests: &mut Vec<Guest>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(guests.len().max(1));
    for guest in guests.iter() {
        guest.thread.nest_in(&poll)?;
    }
    while !guests.is_empty() {
        let wait = guests.iter().map(|guest| guest.wait).min();
        match poll.poll(&mut events, wait) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // Whose event it was does not matter: a turn without events costs one system call.
        let mut index = 0;
        while let Some(guest) = guests.get_mut(index) {
            enter(guest.identity);
            // A panic ends its identity, and leaves the others.
            let turn = catch_unwind(AssertUnwindSafe(|| {
                guest.thread.work(Duration::ZERO)?;
                Ok(guest.thread.rest())
            }));
            match turn.unwrap_or_else(|_| Err(panicked())) {
                Ok(wait) if !guest.thread.is_stopping() => {
                    guest.wait = wait;
                    index += 1;
                }
                ended => guests.remove(index).end(ended.map(drop)),
            }
        }
    }
    Ok(())
}
