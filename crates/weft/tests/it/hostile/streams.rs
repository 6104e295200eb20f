//! Streams that are ended and begun again before anything was decided about them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use weft_cell::reason::EndReason;
use weft_cell::stream_msg::End;
use weft_cell::{Cell, ChanCmd, RelayCmd};

use crate::hostile::circuit::{Circuit, FIRST, Through};
use crate::hostile::peer::Peer;
use crate::hostile::process::{Folder, PATIENCE, eventually, program};
use crate::hostile::{process::Weft, with_hostile_peers_and};

/// Number of rounds: many more than the files that a relay has open by itself.
const ROUNDS: usize = 200;

/// Additional files that may be open at any moment: other threads close the sockets of streams.
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
        Self::at(Ipv4Addr::LOCALHOST)
    }

    fn at(addr: Ipv4Addr) -> Self {
        Destination {
            listener: TcpListener::bind((addr, 0)).unwrap(),
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
    with_hostile_peers_and(EXIT, |weft| {
        let without = weft.files();
        let mut peer = Peer::relay(weft.or_port, weft.stranger());
        let mut circuit = Circuit::create_ntor(&mut peer, FIRST, &weft.onion_key());
        let before = weft.files();
        // The address in CONNECTED distinguishes them.
        const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
        let (mut first, mut second) = (Destination::new(), Destination::at(SECOND));
        for round in 0..ROUNDS {
            let (one, other) = (first.begin(), second.begin());
            send_together(&mut circuit, &mut peer, &[(RelayCmd::BEGIN, &one)]);
            let begun = round % 2 == 0;
            if begun {
                // Otherwise it may end before the relay has decided about it, or never be decided about.
                first.accept();
            }
            send_together(
                &mut circuit,
                &mut peer,
                &[
                    (RelayCmd::END, &[6]),
                    (RelayCmd::BEGIN, &other),
                    (RelayCmd::DATA, b"for the second"),
                ],
            );
            loop {
                let (command, data) = answer(&mut circuit, &mut peer);
                assert_eq!(command, RelayCmd::CONNECTED, "round {round}");
                if data.starts_with(&SECOND.octets()) {
                    break;
                }
            }
            let mut bytes = [0; 14];
            second.accept().read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"for the second");
            if begun {
                // It is closed without a byte.
                let socket = first.accepted.last_mut().unwrap();
                assert_eq!(socket.read(&mut bytes).unwrap(), 0);
            }
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
    with_hostile_peers_and("", |weft| {
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

/// Files that a relay may open in the tests of exhausted file descriptors.
const FILES: usize = 400;

/// Streams that one circuit asks for there, each for a socket.
const STREAMS: u16 = 600;

#[test]
fn streams_of_one_circuit_do_not_use_up_the_files_of_an_exit() {
    for threads in [1, 2] {
        let folder = Folder::new();
        folder.torrc(&format!(
            "ConnectionThreads {threads}\nUseAllThreads 1\nConnLimit 300\n{EXIT}"
        ));
        let command = folder.command_with_files(program(), FILES);
        let mut weft = Weft::run(command, folder, threads);
        let mut bystander = Through::new(&weft);
        bystander.carries_data();
        let without = weft.files();
        // Nobody accepts: the kernel's backlog of a listener is enough for these streams.
        let destinations: Vec<Destination> =
            (0..STREAMS / 100).map(|_| Destination::new()).collect();
        let mut attacker = Peer::relay(weft.or_port, weft.stranger());
        let mut circuit = Circuit::create_ntor(&mut attacker, FIRST, &weft.onion_key());
        let mut open = BTreeSet::new();
        let (mut ended, mut connected) = (0, 0);
        for stream in 1..=STREAMS {
            let destination = &destinations[usize::from(stream - 1) / 100];
            let begin = destination.begin();
            let cell = circuit.cell_of_stream(&mut attacker, stream, RelayCmd::BEGIN, &begin);
            attacker.send(&cell);
            while !open.contains(&stream) {
                let (of, command, data) = circuit.receive_of_stream(&mut attacker);
                match command {
                    RelayCmd::CONNECTED => {
                        connected += 1;
                        assert!(open.insert(of));
                    }
                    RelayCmd::END => {
                        ended += 1;
                        assert_eq!(End::decode(&data).reason, EndReason::RESOURCELIMIT);
                        assert!(open.remove(&of), "stream {of} was open");
                    }
                    other => panic!("{other}"),
                }
            }
        }
        println!(
            "{connected} connected, {ended} ended, {} files",
            weft.files()
        );
        assert_eq!(connected, STREAMS);
        assert!(ended > usize::from(STREAMS) - FILES && weft.files() < FILES);
        // Others come, and leave by other sockets.
        let mut late = Peer::relay(weft.or_port, weft.stranger());
        let mut other = Circuit::create_ntor(&mut late, FIRST, &weft.onion_key());
        for _ in 0..10 {
            let mut destination = Destination::new();
            let begin = destination.begin();
            other.send(&mut late, RelayCmd::BEGIN, &begin);
            let (command, _) = answer(&mut other, &mut late);
            assert_eq!(command, RelayCmd::CONNECTED);
            destination.accept();
            other.send(&mut late, RelayCmd::END, &[6]);
        }
        bystander.carries_data();
        drop((attacker, late));
        has_closed_all_but(&weft, without);
        weft.is_calm();
        drop(bystander);
        weft.terminate();
    }
}

#[test]
fn a_flood_of_the_directory_s_port_leaves_files_for_links() {
    let folder = Folder::new();
    folder.torrc("ConnectionThreads 1\nConnLimit 300\nDirPort 127.0.0.1:auto\n");
    let command = folder.command_with_files(program(), FILES);
    let weft = Weft::run(command, folder, 1);
    let line = weft.wait_for("Opened Directory listener connection (ready) on ");
    let (_, at) = line.split_once("(ready) on ").unwrap();
    let at: SocketAddr = at.trim().parse().unwrap();
    let without = weft.files();
    let flood: Vec<TcpStream> = (0..FILES + 100)
        .map(|_| TcpStream::connect(at).unwrap())
        .collect();
    // A quarter of all but 32, and those that are being closed.
    let most = (FILES - 32) / 4 * 5 / 4;
    let mut bystander = Through::new(&weft);
    bystander.carries_data();
    let files = weft.files();
    assert!(files > without + most / 2, "{files}, and {without} before");
    assert!(
        files <= without + most + UNDER_WAY,
        "{files}, and {without} before"
    );
    // Even in the midst of it a request is answered.
    eventually("the directory answers", || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let asked = stream.write_all(b"GET /tor/robots.txt HTTP/1.0\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.0 200 OK")
    });
    drop((flood, bystander));
    has_closed_all_but(&weft, without);
    weft.terminate();
}
