//! Honest users who want something new while the attack goes on: a circuit, a stream, a name, an answer
//! at a port. What an attack takes from them need not show in the cells of circuits that are there.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use weft_cell::circ_msg::{CreateRequest, Extended2};
use weft_cell::stream_msg::{AnswerKind, Resolve, Resolved};
use weft_cell::{ChanCmd, RelayCmd};
use weft_crypto::handshake::{self, ReplyParams, ntor};

use super::cast::{Cast, HONEST};
use super::circuit::{Circuit, begin, extend2};
use super::peer::{BEAT, Peer, connect, wait_for};
use super::servers::{Behaviour, Server};
use super::target::{Ports, name};
use crate::relay::aim::Aim;
use weft_stats::Summary;

/// Time between the beginnings of two probes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait of a probe for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of the answer on a stream.
const ANSWER: usize = 10_000;

/// Request of an honest user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// A new link, a circuit on it, and its extension to a relay that is up, over a new link.
    Circuit,
    /// A stream to a server, and 10 kB of it.
    Stream,
    /// The address of a name that nobody has asked for before.
    Name,
    /// An answer of the directory cache, on a circuit.
    Directory,
    /// An answer at the DirPort.
    DirPort,
    /// An answer at the SocksPort.
    Socks,
    /// An answer at the ControlPort.
    Control,
    /// An answer at the MetricsPort.
    Metrics,
}

impl Want {
    /// Its name in tables.
    pub fn words(self) -> &'static str {
        match self {
            Want::Circuit => "circuit",
            Want::Stream => "stream",
            Want::Name => "name",
            Want::Directory => "directory",
            Want::DirPort => "DirPort",
            Want::Socks => "SOCKS",
            Want::Control => "control",
            Want::Metrics => "metrics",
        }
    }
}

/// Results of honest users' requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fared {
    /// Requests.
    pub asked: u64,
    /// Requests granted within 2 s.
    pub granted: u64,
    /// Circuits that the target closed under them.
    pub circuits_closed: u64,
    /// Duration of the granted requests, milliseconds.
    pub took_ms: Option<Summary>,
    /// Why the first was not granted.
    pub first_failure: Option<String>,
}

impl Fared {
    /// The share that was granted; 1 if nothing was asked for.
    pub fn share(&self) -> f64 {
        match self.asked {
            0 => 1.0,
            asked => self.granted as f64 / asked as f64,
        }
    }
}

/// An honest user.
pub(super) struct Prober<'a> {
    aim: Aim,
    ports: Ports,
    cast: &'a Cast,
    want: Want,
    server: Option<Server>,
    listener: TcpListener,
    /// For what needs a circuit: the link and the circuit.
    kept: Option<(Peer, Circuit)>,
    stream: u16,
    names: usize,
    seed: u64,
    fared: Fared,
    took: Vec<f64>,
}

impl<'a> Prober<'a> {
    /// A user who wants this, and has the circuit that is needed for it within `patience`.
    pub(super) fn new(
        want: Want,
        aim: Aim,
        ports: Ports,
        cast: &'a Cast,
        patience: Duration,
    ) -> Result<Prober<'a>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let server = match want {
            Want::Stream => Some(Server::start(Behaviour::Answer(ANSWER))?),
            _ => None,
        };
        let mut prober = Prober {
            aim,
            ports,
            cast,
            want,
            server,
            listener,
            kept: None,
            stream: 0,
            names: 0,
            seed: 1 << 32,
            fared: Fared::default(),
            took: Vec::new(),
        };
        if prober.keeps_a_circuit() {
            let deadline = Instant::now() + patience;
            while let Err(error) = prober.kept() {
                if Instant::now() >= deadline {
                    return Err(error);
                }
            }
        }
        Ok(prober)
    }

    fn keeps_a_circuit(&self) -> bool {
        matches!(self.want, Want::Stream | Want::Name | Want::Directory)
    }

    /// Asks again and again until `over`, and while nothing has been granted for so much longer.
    /// Returns the results since the last call.
    pub(super) fn run(&mut self, over: &AtomicBool, longer: Duration) -> Fared {
        let mut deadline = None;
        loop {
            if over.load(Ordering::Relaxed) {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + longer);
                if self.fared.granted > 0 || Instant::now() >= deadline {
                    break;
                }
            }
            let began = Instant::now();
            self.probe();
            while deadline.is_some() || !over.load(Ordering::Relaxed) {
                let left = INTERVAL.saturating_sub(began.elapsed());
                if left.is_zero() {
                    break;
                }
                // Cells that come late, and SENDMEs, must not wait.
                let pumped = match &mut self.kept {
                    Some((peer, _)) => peer.pump(left.min(BEAT)).is_ok(),
                    None => false,
                };
                if !pumped {
                    std::thread::sleep(left.min(BEAT));
                }
            }
        }
        let mut fared = std::mem::take(&mut self.fared);
        fared.took_ms = Summary::of(self.took.drain(..));
        fared
    }

    fn probe(&mut self) {
        let began = Instant::now();
        self.fared.asked += 1;
        let granted = match self.want {
            Want::Circuit => self.circuit(),
            Want::Stream | Want::Name | Want::Directory => self.on_circuit(),
            Want::DirPort => ask(
                self.ports.directory,
                b"GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n",
                b"HTTP/1.",
            ),
            Want::Socks => ask(self.ports.socks, &[5, 1, 0], &[5, 0]),
            Want::Control => ask(self.ports.control, b"PROTOCOLINFO 1\r\n", b"250-"),
            Want::Metrics => ask(
                self.ports.metrics,
                b"GET /metrics HTTP/1.0\r\n\r\n",
                b"HTTP/1.0 200",
            ),
        };
        match granted {
            Ok(()) => {
                self.fared.granted += 1;
                self.took.push(began.elapsed().as_secs_f64() * 1e3);
            }
            Err(error) => {
                let failure = format!("{error:#}");
                self.fared.first_failure.get_or_insert(failure);
            }
        }
    }

    fn seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// A new link, a circuit, an extension to our relay, whose link is closed afterwards.
    fn circuit(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (seed, hop_seed) = (self.seed(), self.seed());
        let socket = connect(HONEST, self.aim.address, None)?;
        let mut peer = Peer::open(socket, &self.cast.client, seed)?;
        let mut circuit = Circuit::create_ntor(&mut peer, 1, &self.aim)?;
        let hop = &self.cast.honest_hop;
        let key = hop.onion.current_public();
        let state = ntor::ClientState::start(&hop.rsa, &key, &mut peer.rng);
        let at = self.listener.local_addr()?;
        let message = extend2(hop.rsa, hop.ed25519, at, &state.onionskin())?;
        circuit.send(&mut peer, RelayCmd::EXTEND2, 0, &message)?;
        let mut accepted = None;
        let extended = loop {
            ensure!(Instant::now() < deadline, "no answer to EXTEND2 in time");
            peer.pump(Duration::from_millis(2))?;
            if let Some(cell) = peer.next_cell()?
                && cell.circ_id() == circuit.id
            {
                break circuit.receive(&mut peer, cell)?;
            }
            if accepted.is_none() {
                match self.listener.accept() {
                    Ok((socket, _)) => {
                        accepted = Some(Peer::accept(socket, &hop.tls, hop_seed)?);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("accepting the target's link"),
                }
            }
            if let Some(link) = &mut accepted {
                link.pump(Duration::ZERO)?;
                if let Some(cell) = link.next_cell()?
                    && cell.command() == ChanCmd::CREATE2
                {
                    let request = CreateRequest::decode(cell.command(), cell.body())?;
                    let params = ReplyParams::default();
                    let answer =
                        handshake::negotiate(&request, &hop.onion, &params, &mut link.rng)?;
                    link.queue(answer.reply.encode(cell.circ_id())?.as_bytes())?;
                    link.pump(Duration::ZERO)?;
                }
            }
        };
        ensure!(
            extended.command == RelayCmd::EXTENDED2,
            "the target answered EXTEND2 with {}",
            extended.command
        );
        state.finish(&Extended2::decode(&extended.data)?.data)?;
        peer.close();
        if let Some(link) = accepted {
            link.close();
        }
        Ok(())
    }

    /// The link and circuit that are kept, replaced if they closed.
    fn kept(&mut self) -> Result<&mut (Peer, Circuit)> {
        if self.kept.is_none() {
            let seed = self.seed();
            let socket = connect(HONEST, self.aim.address, None)?;
            let mut peer = Peer::open(socket, &self.cast.honest_guard.tls, seed)?;
            let circuit = Circuit::create_ntor(&mut peer, 1, &self.aim)?;
            self.kept = Some((peer, circuit));
        }
        self.kept.as_mut().context("no circuit")
    }

    fn on_circuit(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        self.stream = self.stream.checked_add(1).unwrap_or(1);
        self.names += 1;
        let (want, stream, number) = (self.want, self.stream, self.names);
        let to = self.server.as_ref().map(|server| server.address);
        let (peer, circuit) = self.kept()?;
        let outcome = ask_on(peer, circuit, want, stream, number, to, deadline);
        if let Err(error) = &outcome
            && format!("{error:#}").contains("closed the")
        {
            self.kept = None;
            self.fared.circuits_closed += 1;
        }
        outcome
    }
}

fn ask_on(
    peer: &mut Peer,
    circuit: &mut Circuit,
    want: Want,
    stream: u16,
    number: usize,
    to: Option<SocketAddr>,
    deadline: Instant,
) -> Result<()> {
    match want {
        Want::Stream => {
            let data = begin(to.context("no server")?);
            circuit.send(peer, RelayCmd::BEGIN, stream, &data)?;
        }
        Want::Directory => circuit.send(peer, RelayCmd::BEGIN_DIR, stream, &[])?,
        _ => {
            let data = Resolve {
                name: name(number).into_bytes(),
            };
            circuit.send(peer, RelayCmd::RESOLVE, stream, &data.encode()?)?;
        }
    }
    let mut got = 0;
    loop {
        let message = circuit.next(peer, deadline)?;
        if message.stream != stream {
            continue;
        }
        match message.command {
            RelayCmd::CONNECTED => {
                let request = b"GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n";
                circuit.send(peer, RelayCmd::DATA, stream, request)?;
            }
            RelayCmd::DATA => got += message.data.len(),
            RelayCmd::END if want == Want::Stream => {
                ensure!(got == ANSWER, "the stream ended after {got} bytes");
                return Ok(());
            }
            RelayCmd::END => {
                ensure!(got > 0, "the stream ended without an answer");
                return Ok(());
            }
            RelayCmd::RESOLVED => {
                let resolved = Resolved::decode(&message.data)?;
                let found = resolved
                    .answers
                    .iter()
                    .any(|answer| matches!(answer.kind, AnswerKind::Ipv4(Ipv4Addr::LOCALHOST)));
                ensure!(found, "the name was not found: {:?}", resolved.answers);
                return Ok(());
            }
            _ => {}
        }
    }
}

/// Sends some bytes to a port and expects an answer that begins so.
fn ask(to: Option<SocketAddr>, request: &[u8], answer: &[u8]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut socket = connect(HONEST, to.context("the target has no such port")?, None)?;
    socket.write_all(request)?;
    let mut got = vec![0; answer.len()];
    let mut have = 0;
    while have < got.len() {
        match socket.read(got.get_mut(have..).unwrap_or_default()) {
            Ok(0) => bail!("the port closed the connection without an answer"),
            Ok(count) => have += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                ensure!(Instant::now() < deadline, "no answer at the port in time");
                wait_for(&socket, false, BEAT)?;
            }
            Err(error) => return Err(error).context("asking at a port"),
        }
    }
    ensure!(
        got == answer,
        "the port answered {:?}",
        String::from_utf8_lossy(&got)
    );
    Ok(())
}
