//! Measures a client's SOCKS port from its user's side: the time to the first bytes, and processor
//! time and memory for each byte.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weft_testnet::network::{Network, Node, Program};
use weft_testnet::process::Usage;
use weft_testnet::traffic::{Direction, Request, Server, Transfer, transfer};

/// Streams at once, each isolated from the others by its SOCKS user name.
#[derive(Clone, Copy, Debug)]
pub struct Surf {
    /// Number of streams.
    pub streams: usize,
    /// Payload bytes of each.
    pub bytes: u64,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Payloads are functions of this.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Surfed {
    /// All transfers, every one with equal hashes.
    pub transfers: Vec<Transfer>,
    /// From the first request to the last byte.
    pub wall: Duration,
    /// Processor time and memory of each watched node during the transfer, in the order of the
    /// arguments.
    pub used: Vec<Usage>,
}

impl Surfed {
    /// Payload bytes that were moved.
    pub fn bytes(&self) -> u64 {
        let bytes = self.transfers.iter().map(|moved| moved.request.bytes);
        bytes.sum()
    }

    /// Processor seconds of a watched node for 10⁹ payload bytes.
    pub fn cpu_per_gigabyte(&self, node: usize) -> f64 {
        self.used
            .get(node)
            .map_or(f64::NAN, |used| used.cpu.as_secs_f64())
            * 1e9
            / self.bytes() as f64
    }

    /// Payload megabits per second, all streams together.
    pub fn megabits_per_second(&self) -> f64 {
        self.bytes() as f64 * 8e-6 / self.wall.as_secs_f64()
    }
}

/// Moves bytes over many streams at once and watches what that costs these nodes.
pub fn surf(proxy: SocketAddr, server: &Server, load: Surf, watched: &[&Node]) -> Result<Surfed> {
    let before: Vec<Usage> = watched
        .iter()
        .map(|node| node.usage())
        .collect::<Result<_>>()?;
    let start = Instant::now();
    let (sender, receiver) = mpsc::channel();
    for number in 0..load.streams as u64 {
        let (sender, server) = (sender.clone(), server.address());
        let request = Request {
            direction: load.direction,
            bytes: load.bytes,
            seed: load.seed.wrapping_add(number),
        };
        thread::Builder::new()
            .name(format!("stream {number}"))
            .spawn(move || {
                let user = format!("stream{number}");
                sender.send(transfer(proxy, &user, server, request))
            })
            .context("starting a thread for a stream")?;
    }
    drop(sender);
    let transfers: Vec<Transfer> = receiver.iter().collect::<Result<_>>()?;
    let wall = start.elapsed();
    ensure!(
        transfers.len() == load.streams,
        "a stream's thread ended without a word"
    );
    let used = watched
        .iter()
        .zip(&before)
        .map(|(node, before)| Ok(node.usage()?.since(before)))
        .collect::<Result<_>>()?;
    Ok(Surfed {
        transfers,
        wall,
        used,
    })
}

/// Starts a client with nothing on its disk, and returns the time from its start to the first byte of
/// a small download through it.
pub fn first_byte(
    network: &mut Network,
    nickname: &str,
    program: &Program,
    server: &Server,
    patience: Duration,
) -> Result<Duration> {
    let start = Instant::now();
    let proxy = network.start_proxy(nickname, program)?.socks();
    let request = Request {
        direction: Direction::Down,
        bytes: 50_000,
        seed: 77,
    };
    loop {
        // Until it listens, and whenever it gives up, it is asked again at once: so does a user.
        let asked = Instant::now();
        match transfer(proxy, "first", server.address(), request) {
            Ok(moved) => return Ok(asked.duration_since(start) + moved.first_byte),
            Err(error) if start.elapsed() > patience => {
                let statement = network.proxy(nickname)?.node().statement();
                bail!(
                    "no byte through {nickname} in {patience:?}: {error:#}\n{}",
                    statement.unwrap_or_default()
                );
            }
            Err(_) => {
                network.check()?;
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
