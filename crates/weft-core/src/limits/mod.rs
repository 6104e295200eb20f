//! Limits against floods.
//!
//! - [`bucket`]: a token bucket;
//! - [`dos`]: clients that open too many connections or circuits;
//! - [`stream_dos`]: circuits that open too many streams.

pub mod bucket;
pub mod dos;
pub mod stream_dos;
