//! Flow and congestion control: how much may be sent, and when to allow the other side more.
//!
//! Each end of a circuit has a [`CircuitFlow`], each end of a stream a [`StreamFlow`]. Both come in
//! two kinds, which the circuit's handshake chooses between: the fixed windows of tor-spec 7.3 and
//! 7.4, or Vegas on the circuit and XON/XOFF on its streams (proposal 324).
//!
//! Only DATA counts. The owner of a circuit asks [`CircuitFlow::room`] before it packages a DATA
//! cell and notes it afterwards; what the other side sends is checked here, and a [`FlowError`]
//! ends the circuit.

mod circuit;
mod error;
mod params;
mod stream;
mod terms;
mod vegas;

#[cfg(test)]
mod tests;

pub use circuit::CircuitFlow;
pub use error::FlowError;
pub use params::{CcParams, MAX_CWND, PathKind, VegasParams, accepts_sendme_inc};
pub use stream::{FlowMsg, Left, Side, StreamFlow};
pub use terms::Terms;
pub use vegas::Rtt;
