//! Counters that a relay keeps of itself over hours, days and months, and their consequences.
//!
//! - [`accounting`]: bytes that it may carry in a month, a week or a day, and hibernation
//!   (`AccountingMax`)
//! - [`extrainfo`]: the statistics of its extra-info document, rounded and noised before anyone sees them
//!
//! No I/O, no clock: time, randomness and countries of addresses are arguments, and state to keep
//! is returned as text.
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

pub mod accounting;
pub mod extrainfo;
