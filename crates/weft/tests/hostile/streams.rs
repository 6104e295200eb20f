//! Streams that are ended and begun anew before anything was decided about them.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use weft_cell::{Cell, ChanCmd, RelayCmd};

use crate::circuit::{Circuit, FIRST};
use crate::peer::Peer;
use crate::process::{PATIENCE, eventually};
use crate::{besieged_with, process::Weft};

/// How often the experiment is made: many more files than a relay has open by itself.
const ROUNDS: usize = 200;

/// Files that may be open besides at any moment: what closes a stream's socket is on other threads.
const UNDER_WAY: usize = 50;

/// An exit to destinations on this machine, for relays that no consensus lists.
const EXIT: &str = "ExitRelay 1\n\
                    ExitPolicy accept *:*\n\
                    ExitPolicyRejectPrivate 0\n\
                    RefuseUnknownExits 0\n";

/// A destination that never ends a connection by itself.
struct Destination {
    listener: TcpListener,
    accepted: Vec<TcpStream>,
}

impl Destination {
    fn new() -> Self {
        Destination {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            accepted: Vec::new(),
        }
    }

    /// BEGIN's data.
    fn begin(&self) -> Vec<u8> {
        format!("{}\0", self.listener.local_addr().unwrap()).into_bytes()
    }

    /// The next connection.
    fn accept(&mut self) -> &mut TcpStream {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        self.accepted.push(socket);
        self.accepted.last_mut().unwrap()
    }
}

/// The next message but SENDMEs.
fn answer(circuit: &mut Circuit, peer: &mut Peer) -> (RelayCmd, Vec<u8>) {
    loop {
        let (_, command, data) = circuit.receive(peer);
        if command != RelayCmd::SENDME {
            return (command, data);
        }
    }
}

/// All of these messages of stream 1 in one TLS record, so that no decision comes between them.
fn send_together(circuit: &mut Circuit, peer: &mut Peer, messages: &[(RelayCmd, &[u8])]) {
    let cells: Vec<Cell> = messages
        .iter()
        .map(|(command, data)| circuit.cell(peer, 0, ChanCmd::RELAY, *command, data))
        .collect();
    peer.send_all(&cells);
}

/// It has no more files open than before.
fn has_closed_all_but(weft: &Weft, before: usize) {
    eventually("all sockets that nobody uses are closed", || {
        weft.files() <= before
    });
}

#[test]
fn a_stream_that_is_ended_and_begun_anew_leaks_no_socket_of_an_exit() {
    besieged_with(EXIT, |weft| {
        let without = weft.files();
        let mut peer = Peer::relay(weft.or_port, weft.stranger());
        let mut circuit = Circuit::create_ntor(&mut peer, FIRST, &weft.onion_key());
        let before = weft.files();
        let (mut first, mut second) = (Destination::new(), Destination::new());
        for round in 0..ROUNDS {
            let (one, other) = (first.begin(), second.begin());
            send_together(
                &mut circuit,
                &mut peer,
                &[
                    (RelayCmd::BEGIN, &one),
                    (RelayCmd::END, &[6]),
                    (RelayCmd::BEGIN, &other),
                    (RelayCmd::DATA, b"for the second"),
                ],
            );
            let (command, _) = answer(&mut circuit, &mut peer);
            assert_eq!(command, RelayCmd::CONNECTED, "round {round}");
            let mut bytes = [0; 14];
            second.accept().read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"for the second");
            // The first was begun, and is closed without a byte.
            assert_eq!(first.accept().read(&mut bytes).unwrap(), 0);
            circuit.send(&mut peer, RelayCmd::END, &[6]);
        }
        has_closed_all_but(weft, before);
        drop(peer);
        has_closed_all_but(weft, without);
    });
}

#[test]
fn a_directory_stream_that_is_ended_and_begun_anew_leaks_no_socket() {
    const GET: &[u8] = b"GET /tor/server/authority HTTP/1.0\r\n\r\n";
    besieged_with("", |weft| {
        let without = weft.files();
        let mut peer = Peer::client(weft.or_port);
        let mut circuit = Circuit::create_ntor(&mut peer, FIRST, &weft.onion_key());
        let before = weft.files();
        for round in 0..ROUNDS {
            send_together(
                &mut circuit,
                &mut peer,
                &[
                    (RelayCmd::BEGIN_DIR, &[]),
                    (RelayCmd::DATA, GET),
                    (RelayCmd::END, &[6]),
                    (RelayCmd::BEGIN_DIR, &[]),
                    (RelayCmd::DATA, GET),
                ],
            );
            let (command, _) = answer(&mut circuit, &mut peer);
            assert_eq!(command, RelayCmd::CONNECTED, "round {round}");
            let mut text = Vec::new();
            loop {
                match answer(&mut circuit, &mut peer) {
                    (RelayCmd::DATA, data) => text.extend(data),
                    (RelayCmd::END, _) => break,
                    (other, _) => panic!("{other}"),
                }
            }
            let text = String::from_utf8_lossy(&text);
            assert_eq!(text.matches("HTTP/1.0 ").count(), 1, "one answer: {text}");
            // The directory server ends by itself what asks it nothing, or takes no answer, but only
            // after a minute.
            assert!(weft.files() <= before + UNDER_WAY, "round {round}");
        }
        has_closed_all_but(weft, before);
        drop(peer);
        has_closed_all_but(weft, without);
    });
}
