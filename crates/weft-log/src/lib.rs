//! Log lines as values, so that code which does no I/O can log by returning them.
//!
//! A decider returns each [`Line`] beside its other actions; the shell around it
//! (`weft_node::logging::log`) writes it. A line keeps the addresses and names of others apart from
//! its text, because only the shell knows the `SafeLogging` option that is in force. A [`RateLimit`]
//! bounds the lines that a peer can cause.
//!
//! Not here: destinations, formats, the time of a line, `tracing` (all `weft_node::logging`), and the
//! options of torrc that select them (`weft-config`). Code that does I/O itself uses `tracing`'s macros.
//!
//! There is no static state, clock or I/O: the mode and the time are arguments.
//!
//! ```
//! use weft_log::{Line, SafeLogging};
//!
//! let line = Line::warn("Malformed exit address '")
//!     .client("www.example.com..exit")
//!     .text("'. Refusing.");
//! assert_eq!(
//!     line.render(SafeLogging::All),
//!     "Malformed exit address '[scrubbed]'. Refusing."
//! );
//! ```
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

mod line;
mod rate_limit;
mod severity;

pub use line::{Line, SafeLogging};
pub use rate_limit::{RateLimit, Suppressed};
pub use severity::Severity;
