//! Circuits through guards: which may be used, and which wait for a better guard (guard-spec 4.6 to
//! 4.9).

use std::time::{Duration, SystemTime};

use rand::Rng;
use weft_cell::identity::RsaIdentity;

use super::bias::Suspicion;
use super::circuit::{CircuitState, GuardUse, GuardedCircuit, Outcome};
use super::env::Env;
use super::guards::Guards;
use super::info::Restriction;
use crate::options::PathOptions;
use crate::relays::Relays;
use crate::ticket::GuardTicket;

impl Guards {
    /// Notes how a circuit went, and returns whether it may carry streams.
    pub(crate) fn outcome(
        &mut self,
        ticket: GuardTicket,
        outcome: Outcome,
        relays: &Relays,
        options: &PathOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> GuardUse {
        let Some(circuit) = self.circuits.get_mut(&ticket) else {
            return GuardUse::Never;
        };
        let Some(sample) = self.samples.get_mut(circuit.sample) else {
            return GuardUse::Never;
        };
        match outcome {
            Outcome::Built => {
                let env = Env {
                    relays,
                    options,
                    now,
                };
                let restricted = circuit.sample != 0;
                let state =
                    sample.note_success(&circuit.guard, circuit.state, restricted, &env, rng);
                circuit.set(state, now);
            }
            Outcome::GuardFailed => {
                sample.note_failure(&circuit.guard, now);
                circuit.set(CircuitState::Dead, now);
            }
            Outcome::Failed | Outcome::TimedOut | Outcome::Cancelled => {
                if let Some(guard) = sample.find_mut(&circuit.guard) {
                    guard.pending = false;
                }
                circuit.set(CircuitState::Dead, now);
            }
            Outcome::FirstHop | Outcome::Used | Outcome::UseSucceeded | Outcome::Collapsed => {}
        }
        let state = circuit.state;
        self.count(ticket, outcome, options);
        match state {
            CircuitState::Complete => GuardUse::Now,
            CircuitState::Dead => GuardUse::Never,
            _ => GuardUse::Later,
        }
    }

    /// Counts for path-spec 7.
    fn count(&mut self, ticket: GuardTicket, outcome: Outcome, options: &PathOptions) {
        let Some(circuit) = self.circuits.get_mut(&ticket) else {
            return;
        };
        let Some(sample) = self.samples.get_mut(circuit.sample) else {
            return;
        };
        let Some(guard) = sample.find_mut(&circuit.guard) else {
            return;
        };
        let (counted, bias) = (&mut circuit.counted, &mut guard.bias);
        let first = |flag: &mut bool| !std::mem::replace(flag, true);
        match outcome {
            Outcome::FirstHop if first(&mut counted.attempt) => bias.circ_attempts += 1.0,
            Outcome::Built if counted.attempt && first(&mut counted.built) => {
                bias.circ_successes += 1.0;
            }
            Outcome::TimedOut if counted.attempt => bias.timeouts += 1.0,
            Outcome::Used if counted.built && first(&mut counted.used) => bias.use_attempts += 1.0,
            Outcome::UseSucceeded if counted.used => counted.of_use = true,
            Outcome::Collapsed if counted.built && first(&mut counted.collapsed) => {
                bias.collapsed_circuits += 1.0;
            }
            _ => return,
        }
        bias.scale(&options.path_bias);
        sample.changed = true;
    }

    /// Circuits through a guard that are open: how many were of use, and how many may still end
    /// well. Attempts are counted when they are made, successes when a circuit ends, so that these
    /// belong to the guard's record (`pathbias_get_use_success_count`).
    pub(super) fn open_successes(&self, sample: usize, guard: &RsaIdentity) -> (f64, f64) {
        let (mut of_use, mut well) = (0.0, 0.0);
        for circuit in self.circuits.values() {
            let counted = circuit.counted;
            if circuit.sample == sample && circuit.guard == *guard && counted.built {
                of_use += f64::from(u8::from(counted.of_use));
                well += f64::from(u8::from(!counted.collapsed));
            }
        }
        (of_use, well)
    }

    /// Forgets a circuit that is closed.
    pub(crate) fn forget(&mut self, ticket: GuardTicket, options: &PathOptions) {
        let Some(circuit) = self.circuits.remove(&ticket) else {
            return;
        };
        let open = self.open_successes(circuit.sample, &circuit.guard);
        let Some(sample) = self.samples.get_mut(circuit.sample) else {
            return;
        };
        let Some(guard) = sample.find_mut(&circuit.guard) else {
            return;
        };
        if matches!(
            circuit.state,
            CircuitState::UsableIfNoBetterGuard | CircuitState::UsableOnCompletion
        ) {
            guard.pending = false;
        }
        let counted = circuit.counted;
        if !counted.built {
            return;
        }
        // pathbias_check_close
        match (counted.used, counted.of_use) {
            (true, true) => {
                guard.bias.use_successes += 1.0;
                guard.bias.successful_circuits_closed += 1.0;
            }
            (true, false) => guard.bias.unusable_circuits += 1.0,
            (false, _) if !counted.collapsed => guard.bias.successful_circuits_closed += 1.0,
            (false, _) => {}
        }
        let before = guard.bias_noted;
        let record = guard.bias.with_open(open);
        let now = record
            .judge_circuits(&options.path_bias)
            .max(record.judge_uses(&options.path_bias));
        guard.bias_noted = now;
        if now == Some(Suspicion::Extreme) && options.path_bias.drop_guards {
            guard.bias_disabled = true;
        }
        let rsa = guard.rsa;
        sample.refilter();
        sample.changed = true;
        if now > before
            && let Some(suspicion) = now
            && let Some(guard) = sample.find(&rsa)
        {
            let info = sample.info(guard);
            self.suspicions.push((info, suspicion));
        }
    }

    /// Circuits whose waiting is over (guard-spec 4.9): they may be used now, or never will.
    pub(crate) fn poll(
        &mut self,
        relays: &Relays,
        options: &PathOptions,
        now: SystemTime,
    ) -> Vec<(GuardTicket, GuardUse)> {
        let mut over = Vec::new();
        // Each turn upgrades at least one circuit.
        loop {
            let upgraded = self.upgrade(relays, options, now);
            if upgraded.is_empty() {
                break;
            }
            over.extend(upgraded);
        }
        let idle = relays.guard_params.nonprimary_idle_timeout;
        for (ticket, circuit) in &mut self.circuits {
            if circuit.state == CircuitState::WaitingForBetterGuard
                && elapsed(now, circuit.since) > idle
            {
                circuit.set(CircuitState::Dead, now);
                over.push((*ticket, GuardUse::Never));
            }
        }
        over
    }

    fn upgrade(
        &mut self,
        relays: &Relays,
        options: &PathOptions,
        now: SystemTime,
    ) -> Vec<(GuardTicket, GuardUse)> {
        let current = self.current;
        let Some(sample) = self.samples.get_mut(current) else {
            return Vec::new();
        };
        let waits = |c: &GuardedCircuit| c.state == CircuitState::WaitingForBetterGuard;
        let ours = || self.circuits.iter().filter(|(_, c)| c.sample == current);
        if !ours().any(|(_, c)| waits(c)) || !sample.all_primary_down(now) {
            return Vec::new();
        }
        let sample = &*sample;
        let best = ours().filter(|(_, c)| waits(c)).reduce(|best, other| {
            if sample.precedes(&other.1.guard, &best.1.guard) {
                other
            } else {
                best
            }
        });
        let Some((&best_ticket, best)) = best else {
            return Vec::new();
        };
        let best_guard = best.guard;
        let best_restriction = Restriction {
            exit: best.exit.and_then(|exit| relays.by_rsa(&exit)),
            avoid: &best.avoid,
        };
        let is_free = best.exit.is_none() && best.avoid.is_empty();
        let env = Env {
            relays,
            options,
            now,
        };
        let fresh = relays.guard_params.nonprimary_connect_timeout;
        let blocked = ours().any(|(_, c)| {
            let counts = match c.state {
                CircuitState::Complete => true,
                CircuitState::UsableIfNoBetterGuard => elapsed(now, c.since) < fresh,
                _ => false,
            };
            counts
                && sample.obeys(&c.guard, best_restriction, &env)
                && sample.precedes(&c.guard, &best_guard)
        });
        if blocked {
            return Vec::new();
        }
        // All circuits that are as good as the best; but where its guard was restricted, it alone,
        // as the other guards were not checked.
        let mut over = Vec::new();
        for (ticket, circuit) in &mut self.circuits {
            let as_good = *ticket == best_ticket
                || (is_free && !sample.precedes(&best_guard, &circuit.guard));
            if circuit.sample == current && waits(circuit) && as_good {
                circuit.set(CircuitState::Complete, now);
                over.push((*ticket, GuardUse::Now));
            }
        }
        over
    }
}

fn elapsed(now: SystemTime, since: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}
