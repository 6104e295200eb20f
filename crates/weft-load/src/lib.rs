//! Traffic through private networks: what drives users and streams against the nodes of `weft-testnet`.
//!
//! [`flows`] drives the users of the traffic models (`weft-model`) on real sockets; [`bulk`] builds circuits through a
//! target, moves bytes over them and reads what the target paid for it; [`surf`] measures what the user of a client's
//! SOCKS port sees and pays; [`interop`] holds the scenarios that the interoperation tests and the demo run; [`proxy`] is a
//! proxy that a node can be configured to use, and that remembers what it was asked for.

pub mod bulk;
pub mod flows;
pub mod interop;
pub mod proxy;
pub mod surf;
