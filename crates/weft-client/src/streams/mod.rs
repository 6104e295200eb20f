//! Streams, as the client knows them, and their destinations on the way to the network.
//! [`crate::Client`] works with them.

mod predicted;
mod refused;
mod rewritten;
mod rules;
mod stream;
mod tracked;

pub(crate) use predicted::Predicted;
pub(crate) use refused::Refused;
pub(crate) use rewritten::{ExitChoice, Rewritten};
pub(crate) use rules::{Checked, Verdict, answer_kind, check, plaintext_line};
pub(crate) use stream::{Stream, StreamEnded, StreamKind, StreamState};
pub(crate) use tracked::{Tracked, is_tracked};
