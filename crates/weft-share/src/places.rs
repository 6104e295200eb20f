//! Places for connections that are served at once.
//!
//! A server that refuses newcomers when it is full can be filled by connections that send nothing. Here a
//! connection that has not sent its request yet gives way to a newcomer.
#![expect(
    clippy::disallowed_types,
    reason = "a server accepts on one thread and serves on another, both beside the data path"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shares::Shares;
use crate::ticket::Ticket;

/// Connections of several owners under a common bound. Each leaves a value here whose drop ends it: a
/// channel's sender, for example.
///
/// At the bound one that is not [kept](Place::keep) gives way: the oldest of the owner that has most of
/// these. One that is kept never does.
#[derive(Debug)]
pub struct Places<K, E> {
    bound: usize,
    /// Most places that are kept.
    most_kept: usize,
    state: Mutex<State<K, E>>,
}

#[derive(Debug)]
struct State<K, E> {
    /// Places that may have to give way.
    waiting: Shares<K, (), E>,
    kept: BTreeMap<Ticket, E>,
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
pub struct Place<K: Copy + Ord, E> {
    places: Arc<Places<K, E>>,
    ticket: Ticket,
}

impl<K: Copy + Ord, E> Places<K, E> {
    /// Places for `bound` connections, at most `most_kept` of them kept. Where any client can cause
    /// its connection to be kept, `most_kept` must be less than `bound`.
    #[must_use]
    pub fn new(bound: usize, most_kept: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            most_kept,
            state: Mutex::new(State {
                waiting: Shares::default(),
                kept: BTreeMap::new(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<K, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that have a place.
    #[must_use]
    pub fn taken(&self) -> usize {
        let state = self.state();
        state.waiting.len() + state.kept.len()
    }

    /// A place for a connection of this owner, and the `end` of the connection that gave way to it.
    /// `None`: all places are kept.
    #[must_use]
    pub fn take(self: &Arc<Self>, owner: K, end: E) -> Option<(Place<K, E>, Option<E>)> {
        let mut state = self.state();
        let bound = self.bound.saturating_sub(state.kept.len());
        let admitted = state.waiting.admit(owner, (), bound, end).ok()?;
        let place = Place {
            places: self.clone(),
            ticket: admitted.ticket,
        };
        Some((place, admitted.displaced.map(|(_, end)| end)))
    }
}

impl<K: Copy + Ord, E> Place<K, E> {
    /// The connection has sent its request or authenticated: it does not give way from now on, unless as many are
    /// kept already as may be. False: it had to give way before.
    #[must_use]
    pub fn keep(&self) -> bool {
        let mut state = self.places.state();
        if state.kept.len() >= self.places.most_kept {
            return state.kept.contains_key(&self.ticket)
                || state.waiting.get(self.ticket).is_some();
        }
        match state.waiting.release(self.ticket) {
            Some(end) => state.kept.insert(self.ticket, end).is_none(),
            None => state.kept.contains_key(&self.ticket),
        }
    }

    /// It does not give way.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.places.state().kept.contains_key(&self.ticket)
    }
}

impl<K: Copy + Ord, E> Drop for Place<K, E> {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let ends = (
            state.waiting.release(self.ticket),
            state.kept.remove(&self.ticket),
        );
        // Dropped without the lock: it may wake tasks that take it.
        drop(state);
        drop(ends);
    }
}
