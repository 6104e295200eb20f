//! What streams meet at their ends, through a whole network of Weft: applications that speak every
//! dialect or nonsense, destinations and name servers that do anything, relays that vanish, directories
//! that lie. docs/testing.md has the row of "bad input" that each test shows.

mod apps;
mod destinations;
mod lies;
mod net;

/// The module's name marks the tests that need a network and some time, for `cargo xtask test`.
mod private_network {
    mod applications;
    mod directories;
    mod ends;
    mod names;
    mod ports;
    mod proxies;
}
