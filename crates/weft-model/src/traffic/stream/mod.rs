//! The two ends of one stream, and their protocol.
//!
//! The client sends a request (`request.rs`), to which the server answers with one byte as soon as
//! it has it: the round trip of the circuit. Then both send their payloads by their schedules
//! (`pattern.rs`), and each checks what it gets. When the server has sent and received all, it adds
//! a receipt of nine bytes: the number of bytes that arrived, and whether they were right. With it
//! the stream is complete. Neither end closes before, because C tor ends a stream when the
//! application half-closes it.

mod answer;
mod client;
mod failure;
mod pattern;
mod request;
mod server;
mod times;

pub use client::ClientStream;
pub use failure::{Failure, FailureKind};
pub use request::MAX_BYTES;
pub use server::ServerStream;
pub(crate) use times::tenth_of;
pub use times::{Mark, Times, Way};

#[cfg(test)]
mod tests;
