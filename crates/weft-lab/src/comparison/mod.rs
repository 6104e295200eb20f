//! Code shared by experiments that write a scenario with several arms and compare these repetition
//! by repetition: [`Arm`] and its argument, [`Quantity`] with its intervals, quantiles of times of
//! which some are not over ([`censored`]), the places of hosts where no graph is given
//! ([`regions`]).

mod arm;
pub(crate) mod censored;
mod quantity;
pub(crate) mod regions;

pub(crate) use arm::{Arm, Planned, chosen, quoted};
pub(crate) use quantity::{
    MEAN, Numbers, PERCENTILES, Quantity, STDDEV, changes, over_repetitions, times,
};
