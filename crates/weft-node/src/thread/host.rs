//! The threads of the process that take the turns of connection threads: of one each, or, where the process has several
//! identities, of one of each.
//!
//! Each connection thread has its own event loop, and shares nothing with the others. Where there are several, their event
//! loops are nested in one that waits for all of them; after each of its waits those have a turn that an event came for, or
//! whose own time has come: what happens at one identity costs the others nothing.
//!
//! The outer event loop reports an inner one once, when an event comes to it, not for as long as it has some. A turn takes all
//! that its loop has; where that is more than it can take at once, its next turn is due at once, whatever is reported.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::{ConnectionThread, clock};
use crate::logging::{IdentityName, current, enter};

/// Result of a connection thread.
type Ended = OnceLock<Result<(), String>>;

/// A connection thread, for a thread of the process.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(super) thread: ConnectionThread,
    /// The identity that it belongs to.
    identity: Option<IdentityName>,
    /// When its next turn is, if no event comes before.
    pub(super) due: Instant,
    ended: Arc<Ended>,
}

/// The handle of a connection thread that the main thread of its identity holds.
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
            due: clock::now(),
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
    /// Its result; `None`: it still runs.
    pub(crate) fn result(&self) -> Option<io::Result<()>> {
        // Before the result is looked for: a guest that ends sets it first.
        let is_gone = Arc::strong_count(&self.ended) == 1;
        match self.ended.get() {
            Some(result) => Some(result.clone().map_err(io::Error::other)),
            None if is_gone => Some(Err(panicked())),
            None => None,
        }
    }

    /// True if the thread has ended.
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
    let mut guests = match Guests::new(guests) {
        Ok(guests) => guests,
        Err((guests, error)) => return fail(guests, &error),
    };
    while !guests.all.is_empty() {
        if let Err(error) = guests.turn() {
            let guests = guests.all.into_iter().map(|(_, guest)| guest);
            return fail(guests.collect(), &error);
        }
    }
}

/// Ends them all: the event loop that they are nested in has failed.
fn fail(guests: Vec<Guest>, error: &io::Error) {
    for guest in guests {
        guest.end(Err(io::Error::other(error.to_string())));
    }
}

/// Several, and the event loop that theirs are nested in.
#[derive(Debug)]
pub(super) struct Guests {
    /// Guests that have not ended, by their tokens.
    pub(super) all: Vec<(Token, Guest)>,
    poll: Poll,
    events: Events,
}

impl Guests {
    /// Nests their event loops. A failure gives them back.
    pub(super) fn new(guests: Vec<Guest>) -> Result<Self, (Vec<Guest>, io::Error)> {
        let nest = || {
            let poll = Poll::new()?;
            for (number, guest) in guests.iter().enumerate() {
                guest.thread.nest_in(&poll, Token(number))?;
            }
            Ok(poll)
        };
        match nest() {
            Ok(poll) => Ok(Guests {
                events: Events::with_capacity(guests.len().max(1)),
                all: (0..).map(Token).zip(guests).collect(),
                poll,
            }),
            Err(error) => Err((guests, error)),
        }
    }

    /// Waits until one of them has something to do, and takes the turns of all that have.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let next = self.all.iter().map(|(_, guest)| guest.due).min();
        let wait = next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(clock::now())
        });
        match self.poll.poll(&mut self.events, Some(wait)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        let now = clock::now();
        for event in &self.events {
            let place = self.all.binary_search_by_key(&event.token(), |(of, _)| *of);
            if let Some((_, guest)) = place.ok().and_then(|place| self.all.get_mut(place)) {
                guest.due = now;
            }
        }
        let mut index = 0;
        while let Some((_, guest)) = self.all.get_mut(index) {
            if guest.due > now {
                index += 1;
                continue;
            }
            enter(guest.identity);
            // A panic ends its identity, and leaves the others.
            let turn = catch_unwind(AssertUnwindSafe(|| {
                guest.thread.work(Duration::ZERO)?;
                Ok(guest.thread.rest())
            }));
            match turn.unwrap_or_else(|_| Err(panicked())) {
                Ok(due) if !guest.thread.is_stopping() => {
                    guest.due = due;
                    index += 1;
                }
                ended => {
                    let (_, guest) = self.all.remove(index);
                    guest.end(ended.map(drop));
                }
            }
        }
        Ok(())
    }
}
