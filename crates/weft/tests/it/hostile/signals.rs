//! Signals of an operator while circuits are up.

use std::fs;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd};

use crate::hostile::circuit::{FIRST, Through};
use crate::hostile::peer::Peer;
use crate::hostile::process::{Weft, eventually};

/// Both ends of a circuit are notified that the relay shuts down.
fn expect_end(mut through: Through) {
    let gone = DestroyReason::HIBERNATING;
    through.client.expect_destroy(through.circuit.id, gone);
    through.client.expect_closed();
    through.hop.expect_destroy(through.hop_id, gone);
    through.hop.expect_closed();
}

#[test]
fn sigterm_ends_every_circuit_at_once() {
    for threads in [0, 1, 2] {
        let mut weft = Weft::start(threads);
        let mut through = Through::new(&weft);
        through.carries_data();
        weft.signal(Signal::SIGTERM);
        expect_end(through);
        assert_eq!(weft.wait().code(), Some(0));
        weft.wait_for("Catching signal TERM, exiting cleanly.");
        assert!(TcpStream::connect(weft.or_port).is_err());
    }
}

#[test]
fn sigint_drains_and_a_second_one_does_not_wait() {
    for threads in [0, 1, 2] {
        let mut weft = Weft::start_with(threads, "ShutdownWaitLength 1000");
        let mut through = Through::new(&weft);
        through.carries_data();
        let mut idle = Peer::client(weft.or_port);
        weft.signal(Signal::SIGINT);
        weft.wait_for("we have stopped accepting new connections");
        // Open circuits stay up; nothing new begins.
        through.carries_data();
        eventually("new circuits were refused", || {
            idle.send(&Cell::new(FIRST, ChanCmd::CREATE_FAST));
            match idle.next().unwrap().command() {
                ChanCmd::DESTROY => true,
                // It crossed the signal.
                _ => {
                    idle.send(&Cell::new(FIRST, ChanCmd::DESTROY));
                    false
                }
            }
        });
        idle.send(&Cell::new(FIRST, ChanCmd::CREATE_FAST));
        idle.expect_destroy(FIRST, DestroyReason::HIBERNATING);
        through.carries_data();
        weft.signal(Signal::SIGINT);
        expect_end(through);
        assert_eq!(weft.wait().code(), Some(0));
    }
}

#[test]
fn sigint_waits_no_longer_than_it_logs_and_not_at_all_without_circuits() {
    for threads in [0, 1, 2] {
        let mut weft = Weft::start_with(threads, "ShutdownWaitLength 1");
        let through = Through::new(&weft);
        weft.signal(Signal::SIGINT);
        expect_end(through);
        assert_eq!(weft.wait().code(), Some(0));
        // With nobody connected there is nothing to wait for.
        let mut weft = Weft::start_with(threads, "ShutdownWaitLength 1000");
        weft.signal(Signal::SIGINT);
        assert_eq!(weft.wait().code(), Some(0));
    }
}

#[test]
fn sighup_with_a_broken_torrc_logs_what_is_wrong_and_changes_nothing() {
    for threads in [1, 2] {
        let weft = Weft::start(threads);
        let mut through = Through::new(&weft);
        let torrc = weft.folder.path("torrc");
        let good = fs::read_to_string(&torrc).unwrap();
        for (broken, warning) in [
            (
                "Nicknme other\n",
                "unknown option \"Nicknme\"; did you mean Nickname?",
            ),
            ("BandwidthRate much\n", "BandwidthRate"),
            // More descriptors than any system gives.
            (
                "ConnLimit 2147483647\n",
                "(ConnLimit), and we're limited to",
            ),
            ("%include /nonexistent/torrc\n", "/nonexistent/torrc"),
        ] {
            fs::write(&torrc, format!("{good}{broken}")).unwrap();
            let seen = weft.lines().len();
            weft.signal(Signal::SIGHUP);
            weft.wait_after(seen, warning);
            weft.wait_after(seen, "stays in force");
            through.carries_data();
            Through::new(&weft).carries_data();
        }
        // A correct one is taken again.
        let better = format!("{good}ContactInfo somebody\nConnLimit 500\n");
        fs::write(&torrc, better).unwrap();
        let seen = weft.lines().len();
        weft.signal(Signal::SIGHUP);
        weft.wait_after(seen, "Received reload signal");
        through.carries_data();
        assert!(
            !weft.lines()[seen..]
                .iter()
                .any(|line| line.contains("stays in force")),
            "{:#?}",
            weft.lines()
        );
        weft.terminate();
    }
}

#[test]
fn a_relay_whose_network_is_disabled_has_no_connection_until_it_is_taken_back() {
    for threads in [0, 2] {
        let weft = Weft::start(threads);
        let torrc = weft.folder.path("torrc");
        let good = fs::read_to_string(&torrc).unwrap();
        let set = |disabled: &str| {
            fs::write(&torrc, format!("{good}DisableNetwork {disabled}\n")).unwrap();
            let seen = weft.lines().len();
            weft.signal(Signal::SIGHUP);
            seen
        };
        let (mut through, mut idle) = (Through::new(&weft), Peer::client(weft.or_port));
        through.carries_data();
        let seen = set("1");
        weft.wait_after(seen, "DisableNetwork is set. Weft will not make or accept");
        idle.expect_closed();
        through.client.expect_closed();
        through.hop.expect_closed();
        assert!(TcpStream::connect(weft.or_port).is_err());
        eventually("the relay had no connection", || weft.connections() == 0);
        let seen = set("0");
        let line = weft.wait_after(seen, "Opened OR listener connection (ready) on ");
        let (_, address) = line.rsplit_once(' ').unwrap();
        let mut peer = Peer::client(address.parse().unwrap());
        peer.send(&Cell::new(FIRST, ChanCmd::CREATE_FAST));
        peer.expect(ChanCmd::CREATED_FAST, FIRST);
        weft.terminate();
    }
}

#[test]
fn sigusr1_logs_what_the_relay_does() {
    for threads in [0, 1, 2] {
        let weft = Weft::start(threads);
        let mut through = Through::new(&weft);
        through.carries_data();
        // Threads report once a second.
        eventually("statistics with the circuit", || {
            let statistics = weft.statistics().join("\n");
            statistics.contains("with 2 links and 2 circuit halves")
                && statistics.contains("Cells: 40 relayed")
                && statistics.contains("Connections: 2 now; 1 accepted, 1 opened")
        });
        weft.terminate();
    }
}
