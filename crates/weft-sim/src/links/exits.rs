//! Exits of external circuits: those of one class, or the measured mixture of classes.

use weft_stats::bounds::Bounds;

use super::class::Class;
use super::error::LinksError;
use crate::network::{Flags, Network, Position, Relay};

/// Shares of a mixture, which are made parts of their sum.
pub const SHARE: Bounds<f64> = Bounds::new(0.0, 1e6);

/// Exits of external circuits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exits {
    /// All circuits are of one class.
    One(Class),
    /// Shares of the classes of Table 1, in its order.
    Mixture([f64; 5]),
}

impl Default for Exits {
    fn default() -> Exits {
        Exits::One(Class::All)
    }
}

impl Exits {
    /// 1.7 other circuits for each web circuit (Pahl et al. 2023, 4.1.7). The paper does not
    /// give their division; here each of the four classes has as many.
    pub const MEASURED: Exits = Exits::Mixture([1.0, 0.425, 0.425, 0.425, 0.425]);
}

/// Weights of all relays as exits of a class: 0 for other relays, and for a `BadExit`.
pub(super) fn weights(network: &Network, class: Class) -> Result<Vec<f64>, LinksError> {
    let is_exit = |relay: &Relay| relay.flags.has(Flags::EXIT) && !relay.flags.has(Flags::BAD_EXIT);
    if class != Class::All
        && network.relays.iter().any(is_exit)
        && network.relays.iter().all(|relay| relay.policy.is_none())
    {
        return Err(LinksError::NoPolicies(class));
    }
    let weight = |relay: &Relay| {
        let serves = class == Class::All
            || relay
                .policy
                .as_ref()
                .is_some_and(|policy| class.is_served_by(policy));
        match is_exit(relay) && serves {
            true => relay.bandwidth as f64 * network.weights.of(Position::Exit, relay.flags),
            false => 0.0,
        }
    };
    Ok(network.relays.iter().map(weight).collect())
}
