//! Extensions of the protocol, which a relay offers and clients may ask for.
//!
//! - [`abra`]: how scarce the relay's bandwidth is, for clients that ask;
//! - [`circpad`]: padding on circuits whose origins ask for it.

pub mod abra;
pub mod circpad;
