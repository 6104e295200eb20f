//! Circuit halves of a thread (Engler and Goldberg 2021, 4.2, Figure 5).
//!
//! - `half`: the state of one circuit on one link; `halves`: those of a thread, by slot;
//! - `waits`: halves that wait for an answer, and until when;
//! - `activity`: what circuits moved, while that is counted.

pub(crate) mod activity;
pub(crate) mod half;
pub(crate) mod halves;
pub(crate) mod waits;
