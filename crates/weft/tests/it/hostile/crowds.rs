//! Too much of something: connections, onionskins, answers that nobody reads.

use std::net::TcpStream;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};
use weft_cell::reason::DestroyReason;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::handshake::PeerIdentity;
use weft_crypto::handshake::ntor;
use weft_node::process::limits;
use weft_testing::not_run;

use crate::hostile::circuit::{Circuit, FIRST, Through, create2};
use crate::hostile::peer::Peer;
use crate::hostile::process::eventually;
use crate::hostile::{with_hostile_peers, with_hostile_peers_and};

/// Connections that never send anything, if there are descriptors for them.
const SILENT: usize = 10_000;
/// Memory that one of them may cost the relay, TLS and all.
const MEMORY_OF_A_SILENT_ONE: u64 = 16 * 1024;
/// Memory by which the relay may have grown when a crowd has closed: caches, and pages that the
/// allocator has not given back yet.
const MEMORY_LEFT: u64 = 48 << 20;
/// Cells that may wait on one circuit (C tor's circ_max_cell_queue_size).
const MAX_QUEUE: usize = 2500;

#[test]
fn ten_thousand_connections_that_never_authenticate_keep_nobody_out() {
    limits::raise_file_limit(limits::RESERVED).unwrap();
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let descriptors = usize::try_from(soft).unwrap_or(usize::MAX);
    // Other tests of this process need some, too.
    let crowd = SILENT.min(descriptors / 2);
    if crowd < SILENT {
        not_run!("with {crowd} connections only: this process may open {descriptors} files");
    }
    with_hostile_peers(|weft| {
        let before = weft.memory();
        let silent: Vec<TcpStream> = (0..crowd)
            .map(|_| TcpStream::connect(weft.or_port).unwrap())
            .collect();
        // Some begin TLS, and stop.
        let begun: Vec<Peer> = (0..50).map(|_| Peer::tls(weft.or_port)).collect();
        let all = crowd + begun.len() + 2;
        eventually("every connection was accepted", || {
            weft.connections() == all
        });
        // A client that comes now is served.
        let mut late = Through::new(weft);
        late.carries_data();
        let peak = weft.memory();
        let grown = peak.saturating_sub(before);
        println!(
            "{crowd} silent connections: {} KiB each",
            grown / 1024 / crowd as u64
        );
        assert!(
            grown < crowd as u64 * MEMORY_OF_A_SILENT_ONE + MEMORY_LEFT,
            "{before} bytes, then {peak}"
        );
        drop(silent);
        drop(begun);
        drop(late);
        eventually("only the bystander was left", || weft.connections() == 2);
        eventually("memory came back", || {
            // The allocator gives pages back when it is used again.
            let some: Vec<Peer> = (0..20).map(|_| Peer::client(weft.or_port)).collect();
            drop(some);
            weft.memory() < before + grown / 4 + MEMORY_LEFT
        });
    });
}

#[test]
fn onionskins_past_the_bound_are_refused_and_the_rest_answered() {
    // The bound goes by the time that an onionskin may wait.
    with_hostile_peers_and("NumCPUs 1\nMaxOnionQueueDelay 5 msec", |weft| {
        let mut peer = Peer::client(weft.or_port);
        let PeerIdentity::Relay { rsa, .. } = peer.identity else {
            panic!("the relay did not prove its identity");
        };
        let state = ntor::ClientState::start(&rsa, &weft.onion_key(), &mut peer.rng);
        let onionskin = state.onionskin();
        let sent = 2000u32;
        let flood: Vec<Cell> = (0..sent).map(|n| create2(FIRST + n, &onionskin)).collect();
        peer.send_all(&flood);
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..sent {
            let cell = peer.next().expect("an answer to each onionskin");
            match cell.command() {
                ChanCmd::CREATED2 => answered += 1,
                ChanCmd::DESTROY => {
                    let reason = DestroyReason::from(cell.body()[0]);
                    assert_eq!(reason, DestroyReason::RESOURCELIMIT);
                    refused += 1;
                }
                other => panic!("{other} answers a CREATE2"),
            }
        }
        println!("{answered} answered, {refused} refused");
        assert!(answered > 0 && refused > 0, "{answered} and {refused}");
        weft.wait_for("too slow to handle this many circuit creation requests");
        // It is over when it is over.
        Circuit::create_ntor(&mut peer, FIRST + sent, &weft.onion_key()).answers(&mut peer);
    });
}

#[test]
fn a_peer_that_does_not_read_loses_its_circuit_and_nobody_else_anything() {
    with_hostile_peers(|weft| {
        let before = weft.memory();
        let mut peer = Peer::client_with_small_buffer(weft.or_port);
        let mut circuit = Circuit::create(&mut peer, FIRST);
        // Each is answered by a TRUNCATED. Sockets hold some thousand cells, the circuit's queue 2500.
        let asked: Vec<Cell> = (0..30_000)
            .map(|_| circuit.cell(&mut peer, 0, ChanCmd::RELAY, RelayCmd::TRUNCATE, &[0]))
            .collect();
        peer.send_all(&asked);
        eventually("the circuit's queue overflowed", || {
            weft.statistics()
                .iter()
                .any(|line| line.contains("Circuits closed: 1 by full queues"))
        });
        assert!(weft.memory() < before + MEMORY_LEFT);
        // Now it reads: the answers on their way, then the reason for the end.
        let mut answers = 0;
        loop {
            let cell = peer.next().unwrap();
            if cell.command() == ChanCmd::DESTROY {
                let reason = DestroyReason::from(cell.body()[0]);
                assert_eq!(reason, DestroyReason::RESOURCELIMIT);
                break;
            }
            let (_, command, _) = circuit.open(cell);
            assert_eq!(command, RelayCmd::TRUNCATED);
            answers += 1;
        }
        println!("{answers} answers came");
        assert!(answers < asked.len() - MAX_QUEUE);
        // The link is as good as ever.
        Circuit::create(&mut peer, FIRST).answers(&mut peer);
    });
}

#[test]
fn a_peer_that_makes_the_relay_talk_and_never_reads_is_cut_off() {
    with_hostile_peers(|weft| {
        let mut peer = Peer::client_with_small_buffer(weft.or_port);
        // Ids that a client may not choose: a DESTROY for each, up to 2^17 that wait.
        for some in 0..170u32 {
            let cells: Vec<Cell> = (1..=1000)
                .map(|n| Cell::new(some * 1000 + n, ChanCmd::CREATE_FAST))
                .collect();
            peer.send_all(&cells);
        }
        weft.wait_for("the peer does not read what it asked for");
        peer.expect_closed_below_tls();
        eventually("the connection was closed", || weft.connections() == 2);
    });
}

#[test]
fn a_peer_that_reads_late_gets_everything() {
    with_hostile_peers(|weft| {
        let client = Peer::client_with_small_buffer(weft.or_port);
        let mut through = Through::from(client, weft);
        // As much as the circuit's queue holds, and nothing after it that would push it on.
        let cells: Vec<Cell> = (0..MAX_QUEUE)
            .map(|_| through.backward(&[7; 400]))
            .collect();
        through.hop.send_all(&cells);
        let Through {
            mut client,
            mut circuit,
            hop,
            ..
        } = through;
        eventually("the relay read all of it", || {
            weft.statistic("Cells: ") >= MAX_QUEUE
        });
        for _ in 0..MAX_QUEUE {
            let (_, command, data) = circuit.receive(&mut client);
            assert_eq!((command, data), (RelayCmd::DATA, vec![7; 400]));
        }
        drop(hop);
    });
}

#[test]
fn circuits_made_and_destroyed_at_once_leave_nothing() {
    with_hostile_peers(|weft| {
        let before = weft.memory();
        let peers: Vec<_> = (0..4)
            .map(|_| {
                let relay = weft.or_port;
                thread::spawn(move || {
                    let mut peer = Peer::client(relay);
                    for round in 0..50u32 {
                        let cells: Vec<Cell> = (0..100)
                            .flat_map(|n| {
                                let id = FIRST + round * 100 + n;
                                [
                                    Cell::new(id, ChanCmd::CREATE_FAST),
                                    Cell::new(id, ChanCmd::DESTROY),
                                ]
                            })
                            .collect();
                        peer.send_all(&cells);
                    }
                    // Answers may have crossed the DESTROYs; the last circuit's must not.
                    let id = FIRST + 1_000_000;
                    peer.send(&Cell::new(id, ChanCmd::CREATE_FAST));
                    while peer.next().unwrap().circ_id() != id {}
                })
            })
            .collect();
        for peer in peers {
            peer.join().unwrap();
        }
        eventually("no circuit but the bystander's was left", || {
            weft.statistics()
                .iter()
                .any(|line| line.contains("with 2 links and 2 circuit halves"))
        });
        assert!(weft.memory() < before + MEMORY_LEFT);
    });
}
