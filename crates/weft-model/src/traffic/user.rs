//! A user: a model, and where it is.

use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::traffic::markov::{Observation, Walk};
use crate::traffic::model::{Markov, Model};
use crate::traffic::plan::Plan;

/// The least pause behind a stream that failed, so that a server that refuses is not asked all the time.
const RETRY: Duration = Duration::from_secs(1);
/// The least time between two flows of a Markov model.
const FLOW_GAP: Duration = Duration::from_millis(1);
/// The most streams of a Markov model that one user has open, and the most flows; more wait.
const MAX_OPEN: usize = 1000;

/// A stream of a user, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Action of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Opens a stream.
    Open {
        /// Its name in later events.
        stream: StreamId,
        /// Streams with different numbers must not share a circuit; counted from 0.
        isolation: u32,
        /// Payload of the stream.
        plan: Plan,
    },
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// All bytes of the plan arrived.
    Complete,
    /// They did not, and nothing more arrives.
    Failed,
}

/// A user of a model. See the crate for an example.
///
/// Call [`User::poll_action`] until it returns `None`, then again at [`User::poll_timeout`] or behind
/// [`User::handle`], which takes the end of each stream once. Time never goes back. All that is drawn is
/// drawn from the generator of `poll_action`; with a generator for each user, the same seed gives the same
/// user whatever others do.
#[derive(Clone, Debug)]
pub struct User {
    model: Model,
    next_stream: u32,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Repeat {
        /// When the next stream begins, unless one is open.
        at: Duration,
        /// The open one, and the pause behind it.
        open: Option<(StreamId, Duration)>,
    },
    Periodic {
        at: Duration,
    },
    Markov(Flows),
}

/// The flows of a Markov user.
#[derive(Clone, Debug)]
struct Flows {
    /// When the next one begins.
    at: Duration,
    /// Flows that began.
    count: u32,
    all: Vec<Flow>,
    open: usize,
}

/// Streams that may share a circuit.
#[derive(Clone, Copy, Debug)]
struct Flow {
    isolation: u32,
    walk: Walk,
    /// When its walk continues.
    at: Duration,
}

impl User {
    /// A user that begins at time 0.
    #[must_use]
    pub fn new(model: Model) -> User {
        User::starting_at(model, Duration::ZERO)
    }

    /// A user that begins at this time.
    #[must_use]
    pub fn starting_at(model: Model, at: Duration) -> User {
        let state = match &model {
            Model::Repeat { .. } => State::Repeat { at, open: None },
            Model::Periodic { .. } => State::Periodic { at },
            Model::Markov(_) => State::Markov(Flows {
                at,
                count: 0,
                all: Vec::new(),
                open: 0,
            }),
        };
        User {
            model,
            next_stream: 0,
            state,
        }
    }

    /// Returns the user's action at this time, if there is one.
    pub fn poll_action(&mut self, now: Duration, rng: &mut impl Rng) -> Option<Action> {
        let stream = StreamId(self.next_stream);
        let (isolation, plan) = match (&mut self.state, &self.model) {
            (State::Repeat { at, open }, Model::Repeat { plan, pause }) => {
                if open.is_some() || *at > now {
                    return None;
                }
                *open = Some((stream, pause.sample(rng)));
                (0, plan.clone())
            }
            (State::Periodic { at }, Model::Periodic { every, plans }) => {
                if *at > now {
                    return None;
                }
                // A late user does not open what it missed.
                let every = (*every).max(FLOW_GAP);
                let next = at.saturating_add(every);
                *at = if next > now {
                    next
                } else {
                    now.saturating_add(every)
                };
                (0, drawn(plans, rng)?)
            }
            (State::Markov(flows), Model::Markov(markov)) => flows.poll(markov, now, rng)?,
            _ => return None,
        };
        self.next_stream = self.next_stream.wrapping_add(1);
        Some(Action::Open {
            stream,
            isolation,
            plan,
        })
    }

    /// When [`User::poll_action`] may return something again, if no stream ends before. It may be in the
    /// past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        match &self.state {
            State::Repeat { at, open } => open.is_none().then_some(*at),
            State::Periodic { at } => Some(*at),
            State::Markov(flows) => flows.timeout(),
        }
    }

    /// Takes the end of a stream.
    pub fn handle(&mut self, now: Duration, stream: StreamId, event: StreamEvent) {
        match &mut self.state {
            State::Repeat { at, open } => {
                if let Some((_, pause)) = open.take_if(|(id, _)| *id == stream) {
                    let least = match event {
                        StreamEvent::Complete => Duration::ZERO,
                        StreamEvent::Failed => RETRY,
                    };
                    *at = now.saturating_add(pause.max(least));
                }
            }
            State::Periodic { .. } => {}
            State::Markov(flows) => flows.open = flows.open.saturating_sub(1),
        }
    }
}

/// One of these plans, by their weights.
fn drawn(plans: &[(u32, Plan)], rng: &mut impl Rng) -> Option<Plan> {
    let total: u64 = plans.iter().map(|(weight, _)| u64::from(*weight)).sum();
    if total == 0 {
        return None;
    }
    let mut at = rng.random_range(0..total);
    for (weight, plan) in plans {
        match at.checked_sub(u64::from(*weight)) {
            Some(rest) => at = rest,
            None => return Some(plan.clone()),
        }
    }
    None
}

impl Flows {
    /// The isolation and plan of a stream that begins now.
    fn poll(&mut self, markov: &Markov, now: Duration, rng: &mut impl Rng) -> Option<(u32, Plan)> {
        while self.open < MAX_OPEN {
            if self.at <= now && self.all.len() < MAX_OPEN {
                self.all.push(Flow {
                    isolation: self.count,
                    walk: markov.streams.walk(),
                    at: self.at,
                });
                self.count = self.count.wrapping_add(1);
                let gap = markov.flows.sample(rng).max(FLOW_GAP);
                self.at = self.at.saturating_add(gap);
                continue;
            }
            let earliest = self.all.iter().enumerate().min_by_key(|(_, flow)| flow.at);
            let place = earliest
                .filter(|(_, flow)| flow.at <= now)
                .map(|(place, _)| place)?;
            let flow = self.all.get_mut(place)?;
            match flow.walk.step(&markov.streams, rng) {
                Some(step) if step.observation != Observation::End => {
                    flow.at = flow.at.saturating_add(step.delay);
                    self.open += 1;
                    return Some((flow.isolation, markov.plan(rng)));
                }
                _ => {
                    self.all.swap_remove(place);
                }
            }
        }
        None
    }

    fn timeout(&self) -> Option<Duration> {
        if self.open >= MAX_OPEN {
            return None;
        }
        let flows = self.all.iter().map(|flow| flow.at).min();
        let next = (self.all.len() < MAX_OPEN).then_some(self.at);
        flows.into_iter().chain(next).min()
    }
}

#[cfg(test)]
mod tests;
