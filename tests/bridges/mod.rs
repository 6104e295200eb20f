//! Bridges and pluggable transports among C tor's nodes: Weft as a bridge, and as a client of bridges.

/// The module's name marks the tests that need `tor` and some of a minute, for `cargo xtask test`.
mod private_network {
    mod as_bridge;
    mod as_client;
    mod node;
}
