//! torrc's options of links, on the wire: limits of bandwidth, keepalives, protocol violations.

use std::thread;

use weft_cell::{Cell, ChanCmd, RelayCmd};

use crate::hostile::circuit::{Circuit, FIRST, Through};
use crate::hostile::peer::Peer;
use crate::hostile::process::Weft;

#[test]
fn whatever_the_limit_everything_arrives() {
    // A full bucket is less than a handshake takes; the rest arrives in drops. TestingTorNetwork
    // makes private addresses count.
    let limits = [
        "BandwidthRate 76 KB\nBandwidthBurst 76 KB\n",
        "RelayBandwidthRate 76 KB\nRelayBandwidthBurst 76 KB\n",
        "PerConnBWRate 40 KB\nPerConnBWBurst 4 KB\n",
        "BandwidthRate 76 KB\nBandwidthBurst 76 KB\nCountPrivateBandwidth 0\n",
        "ConstrainedSockets 1\nConstrainedSockSize 2 KB\n",
        "Schedulers Vanilla\n",
        "Schedulers KISTLite\nKISTSchedRunInterval 10 msec\n",
        "KISTSockBufSizeFactor 0\nKISTSchedRunInterval 100 msec\n",
    ];
    let arrives = |torrc: &str| {
        for threads in [1, 2] {
            let mut weft = Weft::start_with(threads, torrc);
            let mut circuit = Through::new(&weft);
            for _ in 0..5 {
                circuit.carries_data();
            }
            weft.is_calm();
            weft.terminate();
        }
    };
    // They wait more than they work.
    thread::scope(|scope| {
        for torrc in limits {
            scope.spawn(move || arrives(torrc));
        }
    });
}

#[test]
fn a_silent_link_hears_a_keepalive() {
    let weft = Weft::start_with(1, "KeepalivePeriod 1 second\n");
    let mut client = Peer::client(weft.or_port);
    let cell = client.next_of_any_kind().unwrap();
    assert_eq!((cell.command(), cell.circ_id()), (ChanCmd::PADDING, 0));
    weft.terminate();
}

#[test]
fn a_protocol_violation_is_logged_at_the_level_that_torrc_sets() {
    for (torrc, severity) in [("", "[info]"), ("ProtocolWarnings 1\n", "[warn]")] {
        let weft = Weft::start_with(1, torrc);
        let mut client = Peer::client(weft.or_port);
        let _circuit = Circuit::create(&mut client, FIRST);
        client.send(&Cell::new(FIRST, ChanCmd::RELAY));
        let line = weft.wait_for("broke the protocol");
        assert!(line.contains(severity), "{line}");
        let what = "a relay cell that nobody on the circuit recognizes";
        assert!(line.contains(what), "{line}");
        weft.terminate();
    }
}

#[test]
fn a_rendezvous_point_is_silent_to_clients_that_come_directly_if_torrc_sets_it() {
    let weft = Weft::start_with(1, "DoSRefuseSingleHopClientRendezvous 1\n");
    let mut client = Peer::client(weft.or_port);
    let mut circuit = Circuit::create(&mut client, FIRST);
    circuit.send(&mut client, RelayCmd::ESTABLISH_RENDEZVOUS, &[7; 20]);
    // The next answer is to the next request.
    circuit.answers(&mut client);
    weft.terminate();
}
