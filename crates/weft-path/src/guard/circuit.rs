//! One circuit through a guard, as the guards see it.

use std::time::SystemTime;

use weft_cell::identity::RsaIdentity;

/// Result of a circuit, or of the attempt to build one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guard answered the CREATE; the circuit is extended. (Not for circuits of one hop.)
    FirstHop,
    /// The circuit is complete. The answer is whether it may carry streams.
    Built,
    /// The guard could not be connected to, or did not answer or refused the CREATE.
    GuardFailed,
    /// It failed beyond the guard, which is not the guard's fault.
    Failed,
    /// It took too long beyond the guard.
    TimedOut,
    /// It is not wanted any more.
    Cancelled,
    /// A stream is tried on it.
    Used,
    /// A stream on it was answered: the circuit is good for something.
    UseSucceeded,
    /// A built circuit was ended by the network, not by this node.
    Collapsed,
}

/// Permission to use a circuit for streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardUse {
    /// It may.
    Now,
    /// Perhaps: better guards are still being tried. See
    /// [`Selector::poll_guards`](crate::Selector::poll_guards).
    Later,
    /// It never will: close it.
    Never,
}

/// State of a circuit with regard to its guard (guard-spec 4.6 to 4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CircuitState {
    UsableOnCompletion,
    UsableIfNoBetterGuard,
    WaitingForBetterGuard,
    Complete,
    Dead,
}

#[derive(Debug)]
pub(super) struct GuardedCircuit {
    pub(super) sample: usize,
    pub(super) guard: RsaIdentity,
    pub(super) state: CircuitState,
    /// Since when it is in this state.
    pub(super) since: SystemTime,
    /// The relay at its end, whose family its guard must not be.
    pub(super) exit: Option<RsaIdentity>,
    /// Guards of other legs of its conflux set, which its guard must not be.
    pub(super) avoid: Vec<RsaIdentity>,
    pub(super) counted: Counted,
}

/// Path-bias counters of the guard that a circuit has been counted in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) attempt: bool,
    pub(super) built: bool,
    pub(super) used: bool,
    pub(super) of_use: bool,
    pub(super) collapsed: bool,
}

impl GuardedCircuit {
    pub(super) fn new(
        sample: usize,
        guard: RsaIdentity,
        state: CircuitState,
        now: SystemTime,
    ) -> Self {
        Self {
            sample,
            guard,
            state,
            since: now,
            exit: None,
            avoid: Vec::new(),
            counted: Counted::default(),
        }
    }

    pub(super) fn set(&mut self, state: CircuitState, now: SystemTime) {
        self.state = state;
        self.since = now;
    }
}
