//! A running relay among peers that break the protocol, the connection or their word.
//!
//! Each test starts the built `weft` on loopback, with one and with two connection threads, and
//! plays everybody else over real sockets. Beside what the misdeed itself must lead to, each sees
//! a bystander's circuit go on, and a relay that neither panics nor lets a peer fill its log.

#[path = "hostile/cells.rs"]
mod cells;
#[path = "hostile/circuit.rs"]
mod circuit;
#[path = "hostile/clock.rs"]
mod clock;
#[path = "hostile/crowds.rs"]
mod crowds;
#[path = "hostile/hops.rs"]
mod hops;
#[path = "hostile/identities.rs"]
mod identities;
#[path = "hostile/ipv6.rs"]
mod ipv6;
#[path = "hostile/limits.rs"]
mod limits;
#[path = "hostile/links.rs"]
mod links;
#[path = "hostile/memory.rs"]
mod memory;
#[path = "hostile/peer.rs"]
mod peer;
#[path = "hostile/process.rs"]
mod process;
#[path = "hostile/signals.rs"]
mod signals;
#[path = "hostile/start.rs"]
mod start;
#[path = "hostile/streams.rs"]
mod streams;

use circuit::Through;
use process::Weft;

/// Runs a misdeed against a relay with one connection thread and one with two.
fn with_hostile_peers(misdeed: impl Fn(&mut Weft)) {
    with_hostile_peers_and("", misdeed);
}

/// The same, with more lines in torrc.
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
