//! A running relay among peers that break the protocol, the connection or their word.
//!
//! Each test starts the built `weft` on loopback, with one and with two connection threads, and
//! plays all peers over real sockets. Besides the effect of the misdeed itself, each checks that a
//! bystander's circuit continues, and that the relay neither panics nor lets a peer fill its log.

mod cells;
mod circuit;
mod clock;
mod crowds;
mod hops;
mod identities;
mod ipv6;
mod limits;
mod links;
mod memory;
mod peer;
mod process;
mod signals;
mod start;
mod streams;

use circuit::Through;
use process::Weft;

/// Runs a misdeed against a relay with one connection thread and one with two.
fn with_hostile_peers(misdeed: impl Fn(&mut Weft)) {
    with_hostile_peers_and("", misdeed);
}

/// Runs a misdeed against such relays with more lines in torrc.
fn with_hostile_peers_and(torrc: &str, misdeed: impl Fn(&mut Weft)) {
    for threads in [1, 2] {
        let mut weft = Weft::start_with(threads, torrc);
        let mut bystander = Through::new(&weft);
        bystander.carries_data();
        misdeed(&mut weft);
        bystander.carries_data();
        Through::new(&weft).carries_data();
        weft.is_calm();
        drop(bystander);
        weft.terminate();
    }
}
