//! Choosing paths: relays by weight and by what a circuit is for, guards, and how long to wait for a
//! circuit (path-spec, guard-spec).
//!
//! A [`Selector`] holds everything: the relays of the newest consensus ([`Relays`]), what the
//! operator wants ([`PathOptions`]) and the guards. It opens no connection and reads no clock; its
//! caller builds the paths that it chooses and reports how that went ([`Outcome`]).
//!
//! ```text
//! Selector::path(usage)  -> Path {hops, guard}   the caller builds it; meanwhile or afterwards:
//! Selector::guard_outcome(guard, outcome)        -> may the circuit carry streams?
//! Selector::poll_guards(now)                     -> circuits that waited for better guards
//! Selector::forget(guard)                        when the circuit is closed
//! Selector::state_lines()                        -> C tor's `Guard` lines, when something changed
//! ```
//!
//! [`BuildTimes`] estimates how long building may take, from what earlier circuits took; [`RoundTrips`] how long the
//! round trip of a circuit may be that is used.
//!
//! A caller that wants to judge a circuit once it is built, and to drop it for a better one, does so
//! after `Outcome::Built`: paths and guards know nothing of what a circuit is used for.
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

// `testing` is shared with the integration tests, which know this crate by its name.
#[cfg(test)]
extern crate self as weft_path;

mod bridges;
mod choice;
mod countries;
mod draw;
mod guard;
mod guard_params;
mod nodes;
mod options;
mod path;
mod reachable;
mod relays;
mod round_trips;
mod selector;
#[cfg(test)]
mod testing;
mod ticket;
mod timeout;

pub use bridges::{Bridge, StatedFamily};
pub use choice::{Candidate, CircuitSelection, SCARCE, choose};
pub use countries::{Countries, CountriesError, TableReader};
pub use guard::{GuardInfo, GuardStatus, GuardUse, Outcome, Suspicion};
pub use nodes::{NodeSet, NodeSetError, RelayName};
pub use options::{PathBiasOptions, PathBiasSet, PathOptions};
pub use path::{ExitWanted, Hop, LegKind, LegWanted, Path, PathError, TargetPort, Usage};
pub use reachable::{AddressRule, Reachable};
pub use relays::{Listed, Relays};
pub use round_trips::{Acceptance, Gev, RoundTrips};
pub use selector::Selector;
pub use ticket::GuardTicket;
pub use timeout::{BuildTimes, BuildTimesOptions, CbtParams};
