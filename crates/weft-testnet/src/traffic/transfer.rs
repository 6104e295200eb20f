//! Payloads that are moved by way of a SOCKS proxy, and checked.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::payload::{CHUNK, Digest, Hasher, Payload};
use super::request::{Direction, Request, STALL};
use super::socks::{self, Far};

/// A transfer whose hashes were equal.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The request that it answered.
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
    let mut arrived = Hasher::default();
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
    use super::super::request::Direction;
    use super::super::server::Server;
    use super::*;

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
