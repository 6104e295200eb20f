//! What a relay counts of itself over hours, days and months, and what follows from it.
//!
//! - [`accounting`]: how many bytes it may carry in a month, a week or a day, and when it sleeps (`AccountingMax`)
//! - [`extrainfo`]: the statistics of its extra-info document, rounded and noised before anyone sees them
//!
//! No I/O, no clock: time, randomness and countries of addresses are arguments, and what is to be kept is returned as text.
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
