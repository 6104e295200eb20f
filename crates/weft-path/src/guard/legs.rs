//! The guards of a tunnel's legs after the first (docs/extensions/mtor.md, "Setting up"). The guard
//! of the first leg is chosen as for any circuit.
//!
//! A tunnel may have more legs than a client has primary guards. Further guards are used at once
//! then: the better guards have legs of the same tunnel already, so there is nothing to wait for.

use rand::Rng;
use weft_cell::identity::RsaIdentity;

use super::circuit::CircuitState;
use super::env::Env;
use super::info::Restriction;
use super::sample::Sample;
use super::sampled::Guard;

impl Sample {
    /// Chooses, of the guards that can be used, one with the fewest legs, by the guards of
    /// `others`; of these the one that comes first: primary guards, confirmed ones, others, each in
    /// the order of the sample. So the legs of all tunnels use the same guards, as long as these
    /// are usable.
    pub(super) fn select_spread(
        &mut self,
        others: &[RsaIdentity],
        restriction: Restriction<'_>,
        restricted: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> Option<(RsaIdentity, CircuitState)> {
        self.bring_up_to_date(restricted, env, rng);
        self.consider_retries(env.now);
        let is_free =
            |guard: &&Guard| is_usable(guard, restriction, env) && !others.contains(&guard.rsa);
        if !self.guards.iter().any(|guard| is_free(&guard)) {
            self.expand(restricted, env, rng);
        }
        let fitting = |guard: &&Guard| is_usable(guard, restriction, env);
        let chosen = self.guards.iter().filter(fitting).min_by_key(|guard| {
            let legs = others.iter().filter(|other| **other == guard.rsa).count();
            let primary = self.primary.iter().position(|id| *id == guard.rsa);
            (
                legs,
                primary.unwrap_or(usize::MAX),
                guard.confirmed.is_none(),
            )
        });
        let Some(chosen) = chosen.map(|guard| guard.rsa) else {
            // As where everything has failed that a circuit could go through (`select`).
            self.all_maybe_reachable();
            return None;
        };
        self.begin(&chosen, env)
    }

    /// Chooses this guard, if it can be used.
    pub(super) fn select_exactly(
        &mut self,
        rsa: &RsaIdentity,
        restriction: Restriction<'_>,
        restricted: bool,
        env: &Env<'_>,
        rng: &mut impl Rng,
    ) -> Option<(RsaIdentity, CircuitState)> {
        self.bring_up_to_date(restricted, env, rng);
        self.consider_retries(env.now);
        (self.find(rsa)).filter(|guard| is_usable(guard, restriction, env))?;
        self.begin(rsa, env)
    }

    fn begin(&mut self, rsa: &RsaIdentity, env: &Env<'_>) -> Option<(RsaIdentity, CircuitState)> {
        self.find_mut(rsa)?.last_tried = Some(env.now);
        Some((*rsa, CircuitState::UsableOnCompletion))
    }
}

/// Returns true if a circuit with this restriction can use the guard now. Without its
/// microdescriptor not even the address is known.
fn is_usable(guard: &Guard, restriction: Restriction<'_>, env: &Env<'_>) -> bool {
    guard.is_usable() && guard.obeys(restriction, env) && env.relays.by_rsa(&guard.rsa).is_some()
}
