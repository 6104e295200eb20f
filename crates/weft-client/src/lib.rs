//! Decisions of a client: the circuits that it builds, their relays, the streams on them, and the
//! handling of failures (path-spec, tor-spec 6, control-spec; C tor's circuituse.c,
//! connection_edge.c, circuitbuild.c).
//!
//! No sockets, no threads, no clock and no ambient randomness: [`Client`] takes events and the time, and
//! returns [`Output`]s. It chooses paths by a [`Chooser`]: [`Paths`] is that of a node, over weft-path and
//! the relays of a consensus; tests and simulations may choose by other rules.
//!
//! ```text
//! applications, controllers ->  Client<Paths>  -> Output: commands for circuits and streams
//! events of circuits        ->                            events for controllers, log lines
//! ```
//!
//! In a node, `weft-node/src/client` runs it on the client thread. Cells never come here: a circuit that
//! begins at this node is a half on a connection thread, and its streams are edges there
//! ([`weft_core::origin`]).

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

mod addresses;
mod chooser;
mod circuits;
mod client;
mod config;
mod events;
mod isolation;
mod network;
mod now;
mod output;
mod paths;
mod streams;

pub use addresses::{AddressMap, Host, MapSource, Virtual};
pub use chooser::{BuildNews, BuildTimeouts, Chooser, Chosen};
pub use circuits::{ConfluxParams, Hop, StatementCounts, TunnelCounts};
pub use client::{Client, ProbeCounts};
pub use config::{ClientConfig, ListenerConfig};
pub use events::{
    Bootstrap, BootstrapProblem, CircuitEnd, CircuitInfo, CircuitPurpose, CircuitStatus,
    ClientEvent, EndOfCircuit, RemapSource, StreamEnd, StreamInfo, StreamNews, StreamPurpose,
    StreamStatus,
};
pub use isolation::{Fields, Isolation};
pub use network::{
    BridgeTask, Bridges, DescribedBridge, DormancyOptions, Progress, Remembered, Transports, Via,
    guard_events,
};
pub use now::Now;
pub use output::{ControlError, DirectoryTarget, Output};
pub use paths::{PathParams, Paths};
pub use weft_config::options::{MultipathEntry, MultipathOptions};
