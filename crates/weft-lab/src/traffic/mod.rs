//! Bytes that are moved for a purpose: seeded, framed, hashed at both ends, timed.
//!
//! A [`Server`] on loopback sends and takes payloads; [`transfer`] asks it for one by way of a SOCKS
//! proxy. Every payload is a function of its seed, so each end knows what it must be without the
//! other's word: a download must have the hash that its seed gives, and an upload is answered with the hash
//! of what arrived. Both ends wait for an answer before they close, because C tor ends a stream when
//! the application half-closes it.

mod names;
mod payload;
mod server;
pub(crate) mod socks;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub use names::NameServer;
use payload::{CHUNK, Digest, Payload};
pub use server::Server;
pub use socks::Far;

/// How long one read or write may make no progress.
const STALL: Duration = Duration::from_secs(60);

/// Which way the bytes go, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Down,
    /// To the server.
    Up,
}

impl Direction {
    fn code(self) -> u8 {
        match self {
            Direction::Down => b'D',
            Direction::Up => b'U',
        }
    }

    fn from_code(code: u8) -> Option<Direction> {
        [Direction::Down, Direction::Up]
            .into_iter()
            .find(|direction| direction.code() == code)
    }
}

/// What a client asks of the server: 17 bytes, a code and two big-endian numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// How many bytes, at most [`Request::MOST`].
    pub bytes: u64,
    /// What the bytes are.
    pub seed: u64,
}

impl Request {
    /// The largest payload: 1 TB.
    pub const MOST: u64 = 1_000_000_000_000;
    const LENGTH: usize = 17;

    fn encode(self) -> [u8; Request::LENGTH] {
        let mut frame = [0; Request::LENGTH];
        frame[0] = self.direction.code();
        frame[1..9].copy_from_slice(&self.bytes.to_be_bytes());
        frame[9..].copy_from_slice(&self.seed.to_be_bytes());
        frame
    }

    fn decode(frame: [u8; Request::LENGTH]) -> Option<Request> {
        let [code, numbers @ ..] = frame;
        let (bytes, seed) = numbers.split_first_chunk()?;
        let bytes = u64::from_be_bytes(*bytes);
        let seed = u64::from_be_bytes(*seed.first_chunk()?);
        let direction = Direction::from_code(code)?;
        (bytes <= Request::MOST).then_some(Request {
            direction,
            bytes,
            seed,
        })
    }
}

/// A transfer whose hashes were equal.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What was asked for.
    pub request: Request,
    /// From the connection to the proxy to the first byte that came back: payload of a download,
    /// the receipt of an upload.
    pub first_byte: Duration,
    /// From the connection to the proxy to the last byte.
    pub last_byte: Duration,
}

/// Moves one payload between us and `server` by way of the SOCKS5 proxy at `proxy`, to which we are
/// `user`. An error if anything fails or a hash differs.
pub fn transfer<'a>(
    proxy: SocketAddr,
    user: &str,
    server: impl Into<Far<'a>>,
    request: Request,
) -> Result<Transfer> {
    let start = Instant::now();
    let mut stream = socks::connect(proxy, user, server.into(), STALL)?;
    let moved = match request.direction {
        Direction::Down => download(&mut stream, request),
        Direction::Up => upload(&mut stream, request),
    };
    let (first, sent, received) = moved.with_context(|| format!("{request:?} as {user:?}"))?;
    ensure!(
        sent == received,
        "{request:?} as {user:?}: the bytes that arrived are not those that were sent (SHA-256 {} and {})",
        hex::encode(received),
        hex::encode(sent),
    );
    Ok(Transfer {
        request,
        first_byte: first - start,
        last_byte: start.elapsed(),
    })
}

/// Moves the payloads of `streams` streams of one user at once, with seeds from that of `request` on.
///
/// # Errors
///
/// As of [`transfer`].
pub fn transfers(
    proxy: SocketAddr,
    user: &str,
    server: SocketAddr,
    request: Request,
    streams: u64,
) -> Result<()> {
    thread::scope(|scope| {
        let running = (0..streams).map(|number| {
            let seed = request.seed.wrapping_add(number);
            let request = Request { seed, ..request };
            scope.spawn(move || transfer(proxy, user, server, request))
        });
        let running: Vec<_> = running.collect();
        for stream in running {
            let ended = stream.join();
            ended.unwrap_or_else(|_| bail!("a stream's thread panicked"))?;
        }
        Ok(())
    })
}

/// A stream to `far` by way of the SOCKS5 proxy at `proxy`, to which we are `user`. Its reads and writes fail after a
/// minute without progress.
pub fn connect<'a>(proxy: SocketAddr, user: &str, far: impl Into<Far<'a>>) -> Result<TcpStream> {
    socks::connect(proxy, user, far.into(), STALL)
}

/// Has the SOCKS5 proxy at `proxy`, to which we are `user`, look a name up.
pub fn resolve(proxy: SocketAddr, user: &str, name: &str) -> Result<IpAddr> {
    socks::resolve(proxy, user, name, STALL)
}

/// When the first byte came, the hash that the seed gives, and what arrived.
fn download(
    stream: &mut (impl Read + Write),
    request: Request,
) -> Result<(Instant, Digest, Digest)> {
    stream
        .write_all(&request.encode())
        .context("sending the request")?;
    let mut expected = Payload::new(request.seed, request.bytes);
    let mut arrived = payload::Hasher::default();
    let (mut buffer, mut wanted) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut first = None;
    let mut left = request.bytes;
    while left > 0 {
        let most = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = stream.read(&mut buffer[..most]).with_context(|| {
            format!("receiving, with {left} of {} bytes to come", request.bytes)
        })?;
        ensure!(
            count > 0,
            "the stream ended with {left} of {} bytes to come",
            request.bytes
        );
        first.get_or_insert_with(Instant::now);
        arrived.update(&buffer[..count]);
        left -= count as u64;
    }
    let mut receipt = Digest::default();
    stream
        .read_exact(&mut receipt)
        .context("receiving the server's hash")?;
    let first = first.unwrap_or_else(Instant::now);
    while expected.fill(&mut wanted) > 0 {}
    let expected = expected.digest();
    ensure!(
        receipt == expected,
        "the server did not send the bytes of the seed: two programs of different age?"
    );
    Ok((first, expected, arrived.digest()))
}

fn upload(stream: &mut (impl Read + Write), request: Request) -> Result<(Instant, Digest, Digest)> {
    stream
        .write_all(&request.encode())
        .context("sending the request")?;
    let mut payload = Payload::new(request.seed, request.bytes);
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = payload.fill(&mut buffer);
        if count == 0 {
            break;
        }
        stream.write_all(&buffer[..count]).context("sending")?;
    }
    let mut receipt = Digest::default();
    stream
        .read_exact(&mut receipt)
        .context("waiting for the receipt")?;
    Ok((Instant::now(), payload.digest(), receipt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_encoding() {
        for direction in [Direction::Down, Direction::Up] {
            let request = Request {
                direction,
                bytes: 123_456_789_012,
                seed: u64::MAX,
            };
            assert_eq!(Request::decode(request.encode()), Some(request));
        }
    }

    #[test]
    fn a_request_of_another_kind_or_beyond_the_bound_is_none() {
        let request = Request {
            direction: Direction::Down,
            bytes: 1,
            seed: 2,
        };
        let mut frame = request.encode();
        frame[0] = b'X';
        assert_eq!(Request::decode(frame), None);
        let request = Request {
            bytes: Request::MOST + 1,
            ..request
        };
        assert_eq!(Request::decode(request.encode()), None);
    }

    /// A SOCKS5 proxy of one connection that flips a bit of the payload on request.
    fn proxy(corrupt: bool) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let (_, server) = socks::serve(&mut client).expect("a well-formed request");
            let mut server = std::net::TcpStream::connect(server).expect("the server listens");
            let mut up = (
                client.try_clone().expect("clone"),
                server.try_clone().expect("clone"),
            );
            std::thread::spawn(move || std::io::copy(&mut up.0, &mut up.1));
            let mut byte = [0];
            if corrupt && server.read_exact(&mut byte).is_ok() {
                let _ = client.write_all(&[byte[0] ^ 1]);
            }
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(std::net::Shutdown::Both);
        });
        address
    }

    #[test]
    fn both_directions_arrive_whole_through_a_proxy() {
        let server = Server::start().expect("a server");
        for direction in [Direction::Down, Direction::Up] {
            for bytes in [0, 1, 3_000_001] {
                let request = Request {
                    direction,
                    bytes,
                    seed: 7,
                };
                let done =
                    transfer(proxy(false), "1", server.address(), request).expect("it arrives");
                assert!(done.first_byte <= done.last_byte);
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error() {
        let server = Server::start().expect("a server");
        for direction in [Direction::Down, Direction::Up] {
            let request = Request {
                direction,
                bytes: 100_000,
                seed: 7,
            };
            let error =
                transfer(proxy(true), "1", server.address(), request).expect_err("a flipped bit");
            assert!(
                format!("{error:#}").contains("not those that were sent"),
                "{error:#}"
            );
        }
    }
}
