//! A load on one target: circuits through it, bytes over them, and what it cost the target.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use weft_testnet::control::{Attacher, Fingerprint};
use weft_testnet::network::{Network, Node, Relay};
use weft_testnet::process::Usage;
use weft_testnet::traffic::{Direction, Request, Server, Transfer, transfer};

/// Where in the circuits the target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// First hop: the clients' own links end at it.
    Guard,
    /// Second of three hops.
    Middle,
    /// Last hop: streams leave by it (its options must let them).
    Exit,
}

/// Settings of a bulk transfer.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Where the target stands.
    pub place: Place,
    /// Number of circuits, spread over clients, guards and exits.
    pub circuits: usize,
    /// Payload bytes over each circuit, in each direction.
    pub bytes: u64,
    /// Payloads are functions of this.
    pub seed: u64,
}

/// One direction of a load.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Direction of the bytes.
    pub direction: Direction,
    /// All transfers, every one with equal hashes.
    pub transfers: Vec<Transfer>,
    /// From the first request to the last byte.
    pub wall: Duration,
    /// Processor time and memory of the target during the phase.
    pub used: Usage,
}

impl Phase {
    /// Payload bytes that were moved.
    pub fn bytes(&self) -> u64 {
        self.transfers
            .iter()
            .map(|transfer| transfer.request.bytes)
            .sum()
    }

    /// Payload megabits per second, all circuits together.
    pub fn megabits_per_second(&self) -> f64 {
        self.bytes() as f64 * 8e-6 / self.wall.as_secs_f64()
    }

    /// CPU seconds of the target per 10⁹ payload bytes.
    pub fn cpu_per_gigabyte(&self) -> f64 {
        self.used.cpu.as_secs_f64() * 1e9 / self.bytes() as f64
    }

    /// The median time to the first byte.
    pub(crate) fn median_first_byte(&self) -> Duration {
        let mut times: Vec<Duration> = self
            .transfers
            .iter()
            .map(|transfer| transfer.first_byte)
            .collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

/// Circuits through a target, open until dropped, on which loads can be put again and again.
#[derive(Debug)]
pub struct Circuits<'a> {
    network: &'a Network,
    nickname: String,
    server: Server,
    /// Client and circuit id of each.
    circuits: Vec<(usize, u32)>,
    attachers: Vec<Attacher>,
}

impl<'a> Circuits<'a> {
    /// Builds `count` circuits through the target `nickname` at `place`.
    pub fn build(
        network: &'a Network,
        nickname: &str,
        place: Place,
        count: usize,
    ) -> Result<Circuits<'a>> {
        let target = network.target(nickname)?.fingerprint();
        let mut attachers = Vec::new();
        let mut circuits = Vec::new();
        for (client, paths) in paths(network, target, place, count)?
            .into_iter()
            .enumerate()
        {
            let owner = &network.clients()[client];
            attachers.push(Attacher::start(&owner.node().control_socket())?);
            let built = owner
                .control()?
                .build_circuits(&paths)
                .with_context(|| format!("building circuits with {nickname} as {place:?}"))
                .map_err(|error| explained(network, nickname, error))?;
            circuits.extend(built.into_iter().map(|circuit| (client, circuit)));
        }
        let (nickname, server) = (nickname.to_owned(), Server::start()?);
        Ok(Circuits {
            network,
            nickname,
            server,
            circuits,
            attachers,
        })
    }

    /// Moves `bytes` over every circuit at once, one way.
    pub fn run(&self, direction: Direction, bytes: u64, seed: u64) -> Result<Phase> {
        let node = self.network.target(&self.nickname)?.node();
        let before = node.usage()?;
        let start = Instant::now();
        let (sender, receiver) = mpsc::channel();
        for (number, (client, circuit)) in (0u64..).zip(&self.circuits) {
            let (proxy, user, server) = (
                self.network.clients()[*client].socks(),
                circuit.to_string(),
                self.server.address(),
            );
            let request = Request {
                direction,
                bytes,
                seed: seed.wrapping_add(number),
            };
            let sender = sender.clone();
            thread::Builder::new()
                .name(format!("transfer {user}"))
                .spawn(move || sender.send(transfer(proxy, &user, server, request)))
                .context("starting a thread for a transfer")?;
        }
        drop(sender);
        let transfers: Result<Vec<Transfer>> = receiver.iter().collect();
        let wall = start.elapsed();
        let transfers = transfers
            .with_context(|| self.troubles())
            .map_err(|error| explained(self.network, &self.nickname, error))?;
        ensure!(
            transfers.len() == self.circuits.len(),
            "a transfer's thread ended without a word"
        );
        let used = node.usage()?.since(&before);
        Ok(Phase {
            direction,
            transfers,
            wall,
            used,
        })
    }

    /// Client and circuit id of each circuit, in the order in which they were asked for by each client.
    pub(crate) fn circuits(&self) -> &[(usize, u32)] {
        &self.circuits
    }

    /// Where a stream asks for each circuit: the client's SOCKS port, and the user name there. In the order in which they
    /// were asked for by each client.
    pub fn proxies(&self) -> Vec<(SocketAddr, String)> {
        let clients = self.network.clients();
        let circuits = self.circuits.iter();
        circuits
            .filter_map(|(client, circuit)| {
                Some((clients.get(*client)?.socks(), circuit.to_string()))
            })
            .collect()
    }

    /// The server that loads talk to.
    pub fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// The faults that clients and logs report.
    pub fn troubles(&self) -> String {
        let clients = self.attachers.iter().zip(self.network.clients());
        let events = clients.flat_map(|(attacher, client)| {
            let nickname = client.node().nickname().to_owned();
            attacher
                .troubles()
                .into_iter()
                .map(move |event| format!("\n  {nickname}: {event}"))
        });
        let warnings = self.network.warnings().unwrap_or_default();
        let warnings = warnings.into_iter().map(|warning| format!("\n  {warning}"));
        let all: String = events.chain(warnings).collect();
        format!(
            "a transfer through {} failed; messages of clients and logs:{all}",
            self.nickname
        )
    }
}

impl Drop for Circuits<'_> {
    fn drop(&mut self) {
        for (number, client) in self.network.clients().iter().enumerate() {
            let circuits: Vec<u32> = self
                .circuits
                .iter()
                .filter(|(owner, _)| *owner == number)
                .map(|(_, circuit)| *circuit)
                .collect();
            // A client that has ended has no circuits any more.
            if let Ok(mut control) = client.control() {
                control.close_circuits(&circuits);
            }
        }
    }
}

/// Puts a load on a target, first down and then up, and returns both phases.
pub fn run(network: &Network, nickname: &str, load: Load) -> Result<[Phase; 2]> {
    let circuits = Circuits::build(network, nickname, load.place, load.circuits)?;
    let down = circuits.run(Direction::Down, load.bytes, load.seed)?;
    let up = circuits.run(Direction::Up, load.bytes, !load.seed)?;
    Ok([down, up])
}

/// An error, and after it what the target logs: why a relay refuses a circuit, only the relay knows.
fn explained(network: &Network, nickname: &str, error: anyhow::Error) -> anyhow::Error {
    let node = network.target(nickname).map(Relay::node);
    match node.and_then(Node::statement) {
        Ok(statement) => anyhow!("{error:#}\nthe log of {nickname}:\n{statement}"),
        Err(silent) => anyhow!("{error:#}\n{nickname} has no log: {silent:#}"),
    }
}

/// Paths of three hops for each client: every client, guard and exit gets its share.
fn paths(
    network: &Network,
    target: &Fingerprint,
    place: Place,
    count: usize,
) -> Result<Vec<Vec<Vec<Fingerprint>>>> {
    let (clients, guards, exits) = (network.clients().len(), network.guards(), network.exits());
    ensure!(
        clients > 0 && !guards.is_empty() && !exits.is_empty(),
        "circuits need a client, a guard and an exit"
    );
    let mut paths = vec![Vec::new(); clients];
    for number in 0..count {
        let turn = number / clients;
        let guard = guards[(number + turn) % guards.len()].fingerprint().clone();
        let exit = exits[turn % exits.len()].fingerprint().clone();
        paths[number % clients].push(match place {
            Place::Guard => vec![target.clone(), guard, exit],
            Place::Middle => vec![guard, target.clone(), exit],
            Place::Exit => vec![guard, exit, target.clone()],
        });
    }
    Ok(paths)
}
