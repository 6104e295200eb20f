//! Statistics of repeated measurements and simulations: mean with a 95 % confidence interval
//! ([`Spread`]), median and range ([`Summary`]), [`quantile`] for everything between; and the ranges of numbers that people
//! give ([`bounds`]).
//!
//! Pure functions of numbers. It is not for histograms of a running node (`weft-node`'s metrics) nor for
//! latencies by the million (`weft-lab`'s `relay/latency.rs`), which do not keep each number.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod bounds;
mod quantile;
mod spread;
mod summary;

pub use quantile::quantile;
pub use spread::{Spread, student};
pub use summary::Summary;
