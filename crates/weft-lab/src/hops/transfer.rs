//! Random data from a seeder to a sink, straight over TCP or through a SOCKS proxy.
//!
//! The data are a block of seeded random bytes again and again; the sink compares every byte. So both ends cost
//! little beside what is measured.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_testnet::traffic::socks;

/// The length of the block.
const BLOCK: usize = 1 << 20;
/// Bytes read or written at a time.
const CHUNK: usize = 64 << 10;
/// Longest time that a read or a write may make no progress.
const STALL: Duration = Duration::from_secs(30);
/// The most bytes that a sink may ask for.
const MOST: u64 = 1_000_000_000_000;

/// The block of random bytes that seeder and sink know.
pub(super) fn block(seed: u64) -> Arc<[u8]> {
    let mut block = vec![0; BLOCK];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut block);
    block.into()
}

/// Data after the first `at` bytes: up to `most` bytes, at most to the end of the block.
fn next(block: &[u8], at: u64, most: u64) -> &[u8] {
    // Less than the block's length, and no more than a chunk: nothing is cut.
    let place = (at % BLOCK as u64) as usize;
    let count = most.min(CHUNK as u64) as usize;
    let end = (place + count).min(block.len());
    block.get(place..end).unwrap_or_default()
}

/// The seeder: sends as many bytes as each connection asks for. Ends when dropped.
#[derive(Debug)]
pub(super) struct Seeder {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Seeder {
    /// Starts it on a free loopback port.
    pub(super) fn start(block: &Arc<[u8]>) -> Result<Seeder> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("starting the seeder")?;
        let address = listener.local_addr().context("starting the seeder")?;
        let (stop, block) = (Arc::new(AtomicBool::new(false)), Arc::clone(block));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("seeder".into())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let block = Arc::clone(&block);
                    // A sink whose connection breaks reports it.
                    let _ = thread::Builder::new()
                        .name("seeder".into())
                        .spawn(move || seed(stream, &block));
                }
            })
            .context("starting the seeder's thread")?;
        Ok(Seeder {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Seeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn seed(mut stream: TcpStream, block: &[u8]) -> Result<()> {
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    let mut count = [0; 8];
    loop {
        // The end of a sink that has all.
        stream.read_exact(&mut count)?;
        let bytes = u64::from_be_bytes(count);
        ensure!(bytes <= MOST, "{bytes} bytes are too many");
        let mut sent = 0;
        while sent < bytes {
            let part = next(block, sent, bytes - sent);
            stream.write_all(part)?;
            sent += part.len() as u64;
        }
    }
}

/// A connection of the sink to the seeder.
#[derive(Debug)]
pub(super) struct Sink {
    stream: TcpStream,
    block: Arc<[u8]>,
}

impl Sink {
    /// Connects straight, or through the proxy as this user.
    pub(super) fn connect(
        seeder: SocketAddr,
        proxy: Option<(SocketAddr, &str)>,
        block: &Arc<[u8]>,
    ) -> Result<Sink> {
        let stream = match proxy {
            Some((proxy, user)) => socks::connect(proxy, user, seeder.into(), STALL)?,
            None => {
                let stream = TcpStream::connect(seeder).context("connecting to the seeder")?;
                stream.set_read_timeout(Some(STALL))?;
                stream.set_write_timeout(Some(STALL))?;
                stream
            }
        };
        Ok(Sink {
            stream,
            block: Arc::clone(block),
        })
    }

    /// Receives this number of bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        self.stream
            .write_all(&bytes.to_be_bytes())
            .context("asking the seeder")?;
        let mut buffer = vec![0; CHUNK];
        let mut taken = 0;
        while taken < bytes {
            let wanted = next(&self.block, taken, bytes - taken);
            let room = buffer.get_mut(..wanted.len()).unwrap_or_default();
            let count = match self.stream.read(room) {
                // A profiler's signal: the system does not begin a read with a timeout again.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                count => {
                    count.with_context(|| format!("after {taken} of {bytes} bytes of data"))?
                }
            };
            ensure!(count > 0, "the data ended after {taken} of {bytes} bytes");
            ensure!(
                room.get(..count) == wanted.get(..count),
                "after {taken} bytes came others than were sent"
            );
            taken += count as u64;
        }
        Ok(())
    }
}

/// Makes all sinks receive this number of bytes at once. Returns the time that it took.
pub(super) fn take_all(sinks: &mut [Sink], bytes: u64) -> Result<Duration> {
    let start = Instant::now();
    thread::scope(|scope| {
        let takers: Vec<_> = sinks
            .iter_mut()
            .map(|sink| {
                thread::Builder::new()
                    .name("sink".into())
                    .spawn_scoped(scope, move || sink.take(bytes))
            })
            .collect();
        for taker in takers {
            let taker = taker.context("starting a thread of the sink")?;
            taker
                .join()
                .map_err(|_| anyhow::anyhow!("a thread of the sink panicked"))??;
        }
        Ok(start.elapsed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_arrive_whole_and_others_are_noticed() {
        let (known, other) = (block(7), block(8));
        let seeder = Seeder::start(&known).expect("a seeder");
        let connect = |block| Sink::connect(seeder.address(), None, block).expect("it listens");
        let mut sinks = [connect(&known), connect(&known)];
        for bytes in [0, 1, BLOCK as u64 * 2 + 77] {
            take_all(&mut sinks, bytes).expect("data");
        }
        let error = connect(&other).take(1000).expect_err("another seed");
        assert!(error.to_string().contains("others"), "{error}");
        let error = connect(&known).take(MOST + 1).expect_err("refused");
        assert!(format!("{error:#}").contains("after 0"), "{error:#}");
    }
}
