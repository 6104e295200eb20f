//! Exit policies: the grammar of `accept` and `reject` rules, what they allow, and the summary that
//! descriptors carry (src/core/or/policies.c, src/feature/dirparse/policy_parse.c, dir-spec 2.1.3).
//!
//! [`ExitPolicy::parse`] makes a policy of torrc's lines, [`ExitPolicy::allows`] decides one
//! connection, [`ExitPolicy::summary`] writes the ports that are open for (nearly) all addresses.
//! [`parse_rules`] reads the rules of other policies, such as torrc's `SocksPolicy`.
//! [`PortSummary`] makes the same summary from the rules of somebody else's descriptor, as an
//! authority does, and [`BandwidthTotals`] computes the bandwidth weights that it publishes.
//!
//! Not here: which policy is in force, the addresses of this machine (`weft-config`, `weft-node`).
//! It is state without I/O, clock or randomness.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod bandwidth_weights;
mod policy;
mod port_summary;
mod rule;
pub mod strtol;

pub use bandwidth_weights::{BandwidthTotals, BandwidthWeights, WEIGHT_SCALE};
pub use policy::{DEFAULT_EXIT_POLICY, ExitPolicy, PolicySettings};
pub use port_summary::{MAX_SUMMARY_LEN, PortSummary, Rule};
pub use rule::{Family, PRIVATE_NETS, PolicyEntry, parse_rules};
