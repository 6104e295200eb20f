//! TCP as a model: both ends as pure state machines over bytes' places, without the bytes.

pub mod cubic;
pub mod receiver;
pub mod rtt;
pub mod segment;
pub mod sender;
#[cfg(test)]
mod tests;

pub use cubic::Algorithm;
pub use receiver::{FIRST_WINDOW, Receiver};
pub use segment::{Ack, Segment};
pub use sender::{Sender, Sent};
