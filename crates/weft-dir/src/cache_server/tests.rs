//! Streams of clients that behave and of some that do not.

use super::*;
use crate::clock::ManualClock;
use crate::testing::{now, secs};
use tokio::io::DuplexStream;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7));

fn server() -> (CacheServer, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(now()));
    let documents = Arc::new(CachedDocuments::default());
    (CacheServer::new(documents, clock.clone()), clock)
}

/// A stream that the server serves, and its end.
fn open(server: &CacheServer, peer: IpAddr) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    open_by(server, PreviousHop::at(peer))
}

/// The same, by a hop.
fn open_by(server: &CacheServer, hop: PreviousHop) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1024);
    let server = server.clone();
    let task = tokio::spawn(async move { server.serve(theirs, PEER, hop).await });
    (ours, task)
}

async fn answer(mut stream: DuplexStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_request_is_answered_however_it_is_cut() {
    for pieces in [
        vec!["GET /tor/robots.txt HTTP/1.0\r\n\r\n"],
        vec!["GET /tor/robots.txt HTTP/1.0\r", "\n", "\r", "\n"],
        vec!["GET /tor/robots.txt HTTP/1.0\n\n and more that nobody reads"],
    ] {
        let (server, _) = server();
        let (mut stream, task) = open(&server, PEER);
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = answer(stream).await;
        assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("Disallow: /\r\n"), "{answer}");
        task.await.unwrap();
        assert_eq!(server.places.len(), 0);
    }
}

#[tokio::test]
async fn garbage_is_a_bad_request_and_silence_ends() {
    let (server, clock) = server();
    let (mut stream, task) = open(&server, PEER);
    stream.write_all(b"\x16\x03\x01\n\r\n").await.unwrap();
    assert!(answer(stream).await.starts_with("HTTP/1.0 400 Bad request"));
    task.await.unwrap();

    // More than a head may have; what is not read any more cannot be written any more.
    let (mut stream, task) = open(&server, PEER);
    let endless = [b"GET /".to_vec(), vec![b'a'; MAX_HEAD]].concat();
    let _ = stream.write_all(&endless).await;
    assert!(answer(stream).await.starts_with("HTTP/1.0 400 Bad request"));
    task.await.unwrap();

    let (mut stream, task) = open(&server, PEER);
    stream.write_all(b"GET /tor/").await.unwrap();
    settle().await;
    clock.advance(secs(9));
    settle().await;
    assert!(!task.is_finished());
    clock.advance(secs(1));
    settle().await;
    assert!(task.is_finished());
    assert_eq!(answer(stream).await, "");
}

#[tokio::test]
async fn one_that_does_not_read_is_given_up() {
    let (server, clock) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(20_000));
        store.add([1; 32], &text, now());
    });
    let (mut stream, task) = open(&server, PEER);
    let path = crate::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished());
    for _ in 0..20 {
        clock.advance(secs(10));
        tokio::task::yield_now().await;
    }
    task.await.unwrap();
    assert!(answer(stream).await.len() <= 1024);
}

/// Lets every task do what it can.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn relay(number: u8) -> PreviousHop {
    PreviousHop::Relay([number; 20].into())
}

/// A request by this hop, and its answer.
async fn ask(server: &CacheServer, hop: PreviousHop) -> String {
    let (mut stream, _) = open_by(server, hop);
    let request = b"GET /tor/robots.txt HTTP/1.0\r\n\r\n";
    stream.write_all(request).await.unwrap();
    answer(stream).await
}

#[tokio::test]
async fn silent_streams_by_four_hops_do_not_keep_others_from_a_directory() {
    let (server, _) = server();
    let mut held = Vec::new();
    for number in 0..4 * 300 {
        held.push(open_by(&server, relay(number as u8 % 4)));
        settle().await;
    }
    assert_eq!(server.places.len(), places::MAX_STREAMS);
    assert_eq!(
        held.iter().filter(|(_, task)| task.is_finished()).count(),
        176
    );
    // Clients of their own address, those that come by other hops, and even by the same.
    for hop in [PreviousHop::at(PEER), relay(9), relay(1)] {
        let answer = ask(&server, hop).await;
        assert!(answer.starts_with("HTTP/1.0 200 OK"), "{answer}");
    }
    // Nothing is left of those that went.
    for (stream, task) in held {
        drop(stream);
        task.await.unwrap();
    }
    assert_eq!(server.places.len(), 0);
}

#[tokio::test]
async fn a_stream_that_has_asked_is_not_ended_for_those_that_have_not() {
    let (server, _) = server();
    server.documents.with_microdescs(|store| {
        let text = format!("onion-key\n{}", "x".repeat(20_000));
        store.add([1; 32], &text, now());
    });
    let (mut stream, task) = open_by(&server, relay(1));
    let path = crate::microdesc::path(&[[1; 32]]);
    let path = path.strip_suffix(".z").unwrap();
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    settle().await;
    let mut held = Vec::new();
    // By as many hops as there are places, and by its own.
    for number in 0..3_000_u32 {
        let mut hop = [7; 20];
        hop[..4].copy_from_slice(&number.to_be_bytes());
        held.push(open_by(&server, PreviousHop::Relay(hop.into())));
        held.push(open_by(&server, relay(1)));
        tokio::task::yield_now().await;
    }
    settle().await;
    assert!(!task.is_finished());
    assert!(answer(stream).await.len() > 20_000);
}
