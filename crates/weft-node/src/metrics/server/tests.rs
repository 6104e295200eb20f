//! Peers that request the metrics, and peers that only connect.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use super::super::tests::snapshot;
use super::*;

const REQUEST: &[u8] = b"GET /metrics HTTP/1.0\r\n\r\n";

fn snapshots() -> Arc<Snapshots> {
    let all = Snapshots::of(1);
    all.set(0, Some(snapshot()));
    Arc::new(all)
}

/// A connection of `address` that got a place.
fn connect(server: &MetricsServer, address: [u8; 4]) -> StdTcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let to_thread = server.to_thread.as_ref().unwrap();
    while to_thread.capacity() == 0 {
        std::thread::yield_now();
    }
    assert!(server.serve(theirs, Ipv4Addr::from(address).into()));
    ours
}

/// Sends a request and returns the whole response.
fn scrape(mut socket: StdTcpStream) -> String {
    socket.write_all(REQUEST).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn silent_connections_do_not_lock_out_requests() {
    let server = MetricsServer::start(snapshots()).unwrap();
    let silent: Vec<StdTcpStream> = (0..2 * MAX_CONNECTIONS)
        .map(|_| connect(&server, [127, 0, 0, 2]))
        .collect();
    for address in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        let answer = scrape(connect(&server, address));
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    }
    drop(silent);
}

#[test]
fn unread_responses_do_not_lock_out_requests() {
    let server = MetricsServer::start(snapshots()).unwrap();
    let open: Vec<StdTcpStream> = (0..2 * MAX_CONNECTIONS)
        .map(|_| {
            let mut socket = connect(&server, [127, 0, 0, 2]);
            socket.write_all(REQUEST).unwrap();
            // It is answered and stays open.
            socket.read_exact(&mut [0; 12]).unwrap();
            socket
        })
        .collect();
    for address in [[127, 0, 0, 2], [127, 0, 0, 3]] {
        let answer = scrape(connect(&server, address));
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    }
    drop(open);
}
