//! An exit without sockets, with one stream over one circuit, a conflux set or a tunnel of mTor. The client is played with the keys
//! of the circuits, as an honest one.
//!
//! Only what the exit does is counted: xtask has callgrind collect in the functions here whose names begin with `node_`. Counted is
//! what a connection thread does between TLS and the stream's socket, SENDMEs and acknowledgements among it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::conflux_msg::{DesiredUx, Link as LinkMsg, Switch};
use weft_cell::mtor_msg::{
    Join, MAX_SUBDATA, MtorAck, Multipath, MultipathAck, SUBDATA_HEADER_LEN, SequenceNumber,
    Subdata, TunnelId,
};
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{FlowControl, RelayCommand, flow_control};
use weft_cell::stream_msg::Sendme;
use weft_cell::{CELL_LEN, Cell, ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, HalfAddr, ThreadId};
use weft_core::handshake::{Established, LinkRole, PeerIdentity};
use weft_core::manager::{ControllerLoad, LocalConnectionManager};
use weft_core::memory::cells::Empties;
use weft_core::message::{
    FromController, LegRequest, ToController, TunnelAsk, TunnelNews, TunnelOrder,
};
use weft_core::params::RelayParams;
use weft_core::slots::{EdgeKey, LinkKey};
use weft_core::tunnel::TunnelName;
use weft_crypto::Tor1Keys;
use weft_crypto::circuit::OriginCircuit;

/// From one turn to the next.
const TURN: Duration = Duration::from_millis(10);
/// Turns between two runs of timers.
const TIMERS: u32 = 25;
/// Cells that move in one turn; a multiple of the numbers of legs.
const CELLS: usize = 60;
/// Cells of one leg that come in a row.
const RUN: usize = 6;
/// Cells that one SENDME acknowledges.
const SENDME_INC: u8 = 31;
/// The stream.
const STREAM: u16 = 1;
/// Name of a conflux set. [`SECRET`] proves that mTor legs belong to one client.
const NONCE: [u8; 32] = [9; 32];
const SECRET: [u8; 16] = [8; 16];

/// Protocol that joins the stream's circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// There is one.
    Plain,
    /// A conflux set of two legs.
    Conflux,
    /// A tunnel of mTor of five legs.
    Mtor,
}

impl Joined {
    /// Bytes of data in a full cell.
    fn data(self) -> usize {
        match self {
            Joined::Plain | Joined::Conflux => relay::MAX_DATA,
            Joined::Mtor => MAX_SUBDATA,
        }
    }

    fn legs(self) -> usize {
        match self {
            Joined::Plain => 1,
            Joined::Conflux => 2,
            Joined::Mtor => 5,
        }
    }
}

/// Direction of the stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From its socket to the client.
    Down,
    /// From the client to its socket.
    Up,
}

/// A circuit, with the client's keys.
struct Leg {
    link: LinkKey,
    circ_id: u32,
    crypt: OriginCircuit,
    /// Counted cells that have arrived since the last SENDME.
    counted: u8,
    /// The number of the last message that was sent on it, as conflux counts.
    last_sent: u64,
    /// Cells for the exit.
    out: Vec<u8>,
}

/// The exit under measurement, with its client played.
pub(crate) struct Exit {
    joined: Joined,
    now: Instant,
    manager: LocalConnectionManager,
    legs: Vec<Leg>,
    tunnel: Option<HalfAddr>,
    id: Option<TunnelId>,
    edge: Option<EdgeKey>,
    /// Messages that the client has sent.
    sent: u64,
    /// Numbers of SUBDATA that have arrived, past those before the next.
    early: BTreeMap<u32, ()>,
    next: u32,
    /// Bytes that the socket still has to give.
    to_give: usize,
    /// Bytes of the stream that have arrived at its other end.
    arrived: u64,
    turns: u32,
    written: Vec<(LinkKey, Empties)>,
    rng: ChaCha8Rng,
}

impl Exit {
    /// An exit with an open stream.
    pub(crate) fn new(joined: Joined) -> Result<Self> {
        let mut params = RelayParams::new([0xaa; 20].into(), [0xab; 32].into());
        params.serve_mtor = true;
        let manager = LocalConnectionManager::new(ThreadId(0), 1, Arc::new(params), [7; 32]);
        let mut this = Exit {
            joined,
            now: Instant::now(),
            manager,
            legs: Vec::new(),
            tunnel: None,
            id: None,
            edge: None,
            sent: 0,
            early: BTreeMap::new(),
            next: 1,
            to_give: 0,
            arrived: 0,
            turns: 0,
            written: Vec::new(),
            rng: ChaCha8Rng::seed_from_u64(1),
        };
        for number in 0..joined.legs() {
            this.make_circuit(number)?;
            this.join(number)?;
        }
        this.say(0, RelayCmd::BEGIN, b"example.com:80\0\0\0\0\0")?;
        this.settle()?;
        ensure!(this.edge.is_some(), "no stream was asked for");
        Ok(this)
    }

    /// A circuit by CREATE_FAST, with keys that no handshake made.
    fn make_circuit(&mut self, number: usize) -> Result<()> {
        let established = Established {
            link_protocol: 5,
            role: LinkRole::Accepted,
            peer: PeerIdentity::Unauthenticated,
            clock_skew: None,
            my_addr: None,
            peer_addrs: Vec::new(),
            canonical: true,
        };
        let connection = ConnectionId(number as u64);
        let network = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let link = (self.manager).open_link(connection, network, &established, self.now);
        let circ_id = (1 << 31) | (number as u32 + 1);
        let create = CreateRequest::Fast { x: [0; 20] }.encode(circ_id)?;
        self.manager
            .receive(link, create.as_bytes(), self.now)
            .context("CREATE_FAST")?;
        let half = loop {
            match self.manager.poll_controller(ControllerLoad::Ready) {
                Some(ToController::Create { half, .. }) => break half,
                Some(_) => {}
                None => bail!("no CREATE"),
            }
        };
        let mut material = [0; Tor1Keys::LEN];
        self.rng.fill_bytes(&mut material);
        let keys = Tor1Keys::from_key_material(&material);
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&keys.clone().into());
        let created = FromController::Created {
            half,
            reply: CreateReply::Fast {
                y: [0; 20],
                kh: keys.kh,
            },
            keys: Box::new(keys.into()),
            sendme_inc: Some(SENDME_INC),
        };
        self.manager.handle_controller(created, self.now);
        self.legs.push(Leg {
            link,
            circ_id,
            crypt,
            counted: 0,
            last_sent: 0,
            out: Vec::new(),
        });
        Ok(())
    }

    /// Makes a circuit a leg.
    fn join(&mut self, leg: usize) -> Result<()> {
        match (self.joined, self.id) {
            (Joined::Plain, _) => return Ok(()),
            (Joined::Conflux, _) => {
                let link = LinkMsg {
                    nonce: NONCE,
                    last_seqno_sent: 0,
                    last_seqno_recv: 0,
                    desired_ux: DesiredUx::HighThroughput,
                };
                self.send(leg, RelayCmd::CONFLUX_LINK, 0, &link.encode())?;
                self.settle()?;
                self.send(leg, RelayCmd::CONFLUX_LINKED_ACK, 0, &[])?;
            }
            (Joined::Mtor, None) => {
                let data = Multipath { secret: SECRET }.encode();
                self.send(leg, RelayCommand::Multipath.wire(), 0, &data)?;
            }
            (Joined::Mtor, Some(tunnel)) => {
                let secret = SECRET;
                let data = Join { tunnel, secret }.encode();
                self.send(leg, RelayCommand::Join.wire(), 0, &data)?;
            }
        }
        self.settle()
    }

    /// A message of the client's, ready to be received.
    fn send(&mut self, leg: usize, command: RelayCmd, stream: u16, data: &[u8]) -> Result<()> {
        let leg = self.legs.get_mut(leg).context("no such leg")?;
        let mut cell = Cell::new(leg.circ_id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, stream, data, &mut self.rng)?;
        leg.crypt
            .encrypt_forward(0, ChanCmd::RELAY, cell.body_mut())?;
        leg.out.extend_from_slice(cell.as_bytes());
        Ok(())
    }

    /// The next message of the stream, on a leg.
    fn say(&mut self, number: usize, command: RelayCmd, data: &[u8]) -> Result<()> {
        self.sent += 1;
        match self.joined {
            Joined::Plain => self.send(number, command, STREAM, data),
            Joined::Conflux => {
                let leg = self.legs.get_mut(number).context("no such leg")?;
                let skipped = self.sent - 1 - leg.last_sent;
                leg.last_sent = self.sent;
                if skipped > 0 {
                    let relative = u32::try_from(skipped)?;
                    let switch = Switch { relative }.encode();
                    self.send(number, RelayCmd::CONFLUX_SWITCH, 0, &switch)?;
                }
                self.send(number, command, STREAM, data)
            }
            Joined::Mtor => {
                let mut subdata = Vec::with_capacity(SUBDATA_HEADER_LEN + data.len());
                subdata.extend_from_slice(&SequenceNumber::of(self.sent).0.to_be_bytes());
                subdata.push(command.into());
                subdata.extend_from_slice(data);
                let command = RelayCommand::Subdata.wire();
                self.send(number, command, STREAM, &subdata)
            }
        }
    }

    /// One turn: the exit's socket gives or takes bytes, and the client answers.
    pub(crate) fn turn(&mut self, way: Way) -> Result<()> {
        self.now += TURN;
        self.turns += 1;
        if self.turns.is_multiple_of(TIMERS) {
            node_timers(&mut self.manager, self.now);
            self.acknowledge()?;
        }
        match way {
            Way::Down => self.to_give += CELLS * self.joined.data(),
            Way::Up => {
                let legs = self.legs.len();
                let data = [7; relay::MAX_DATA];
                let data = &data[..self.joined.data()];
                // By turns, as a client whose legs are alike sends; conflux keeps to a leg for longer.
                for n in 0..CELLS {
                    let leg = match self.joined {
                        Joined::Plain | Joined::Mtor => n % legs,
                        Joined::Conflux => n / RUN % legs,
                    };
                    self.say(leg, RelayCmd::DATA, data)?;
                }
            }
        }
        self.settle()
    }

    /// Sends the acknowledgements that a client sends four times a second.
    fn acknowledge(&mut self) -> Result<()> {
        if self.joined == Joined::Mtor {
            let next = SequenceNumber(self.next);
            let data = MtorAck { next }.encode();
            self.send(0, RelayCommand::MtorAck.wire(), 0, &data)?;
        }
        Ok(())
    }

    /// Lets cells travel until none is under way.
    fn settle(&mut self) -> Result<()> {
        loop {
            for number in 0..self.legs.len() {
                let leg = &mut self.legs[number];
                if leg.out.is_empty() {
                    continue;
                }
                let (link, bytes) = (leg.link, std::mem::take(&mut leg.out));
                let cells = bytes.chunks(RUN * CELL_LEN);
                for cells in cells {
                    node_receives(&mut self.manager, link, cells, self.now)?;
                }
                let leg = &mut self.legs[number];
                leg.out = bytes;
                leg.out.clear();
            }
            self.answer_controller()?;
            if let Some(edge) = self.edge {
                let bytes = [7; 16 * 1024];
                let most = self.to_give.min(bytes.len());
                let left = node_reads_socket(&mut self.manager, edge, &bytes[..most], self.now);
                self.to_give -= most - left;
                self.arrived += node_writes_socket(&mut self.manager, edge, self.now) as u64;
            }
            node_writes_links(&mut self.manager, &mut self.written, self.now);
            if self.written.is_empty() && self.legs.iter().all(|leg| leg.out.is_empty()) {
                ensure!(self.to_give == 0, "the exit takes no more from the socket");
                return Ok(());
            }
            for (link, mut cells) in std::mem::take(&mut self.written) {
                for cell in &cells {
                    self.receive(link, cell)?;
                }
                node_recycles(&mut self.manager, &mut cells);
            }
        }
    }

    /// A cell of the exit's reaches the client.
    fn receive(&mut self, link: LinkKey, cell: &Cell) -> Result<()> {
        let place = self.legs.iter().position(|leg| leg.link == link);
        let place = place.context("a cell on no leg")?;
        if cell.command() != ChanCmd::RELAY {
            ensure!(cell.command() == ChanCmd::CREATED_FAST, "{cell:?}");
            return Ok(());
        }
        let leg = &mut self.legs[place];
        let mut body = *cell.body();
        ensure!(
            leg.crypt.decrypt_backward(&mut body) == Some(0),
            "a cell that is not the exit's"
        );
        let body = RelayBody::new(&body);
        if flow_control(body.command()) == FlowControl::Counted {
            leg.counted += 1;
            if leg.counted == SENDME_INC {
                leg.counted = 0;
                let seen = leg.crypt.received(0);
                let data = Sendme { version: 1, seen }.encode();
                self.send(place, RelayCmd::SENDME, 0, &data)?;
            }
        }
        match RelayCommand::of(body.command()) {
            Some(RelayCommand::Subdata) => {
                let subdata = Subdata::decode(body.data()?)?;
                self.arrived += subdata.data.len() as u64;
                self.early.insert(subdata.sequence.0, ());
                while self.early.remove(&self.next).is_some() {
                    self.next += 1;
                }
            }
            Some(RelayCommand::Data) => self.arrived += body.data()?.len() as u64,
            Some(RelayCommand::MultipathAck) => {
                self.id = Some(MultipathAck::decode(body.data()?)?.tunnel);
            }
            _ => {}
        }
        Ok(())
    }

    /// Plays the main thread.
    fn answer_controller(&mut self) -> Result<()> {
        while let Some(message) = self.manager.poll_controller(ControllerLoad::Ready) {
            match message {
                ToController::Tunnel(TunnelNews::Asked { half, ask, .. }) => {
                    let leg = LegRequest { half, ours: None };
                    let name = match ask {
                        TunnelAsk::Named(name) | TunnelAsk::Existing(name) => name,
                        TunnelAsk::New(secret) => TunnelName::Given(TunnelId(5), secret),
                    };
                    let order = match self.tunnel {
                        Some(tunnel) => TunnelOrder::Join { leg, tunnel },
                        None => TunnelOrder::Make { leg, name },
                    };
                    self.manager.handle_controller(order.into(), self.now);
                }
                ToController::Tunnel(TunnelNews::Made { tunnel, .. }) => self.tunnel = tunnel,
                ToController::Stream(request) => {
                    let connection = ConnectionId(1000);
                    let edge = self.manager.adopt_exit(connection, request.at, self.now);
                    let edge = edge.context("no edge")?;
                    (self.manager).edge_connected(edge, None, 0, self.now);
                    self.edge = Some(edge);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Full plain cells' worth of data that has arrived at the other end.
    ///
    /// # Errors
    ///
    /// The exit closed a circuit, or lost data.
    pub(crate) fn moved(&self) -> Result<u64> {
        ensure!(
            self.manager.totals().protocol_errors == 0,
            "the exit closed a circuit"
        );
        let expected = u64::from(self.turns) * (CELLS * self.joined.data()) as u64;
        ensure!(
            self.arrived == expected,
            "{} of {expected} bytes arrived",
            self.arrived
        );
        Ok(self.arrived / relay::MAX_DATA as u64)
    }
}

// ---- what is counted ----

/// Bytes of a link arrive.
#[inline(never)]
fn node_receives(
    manager: &mut LocalConnectionManager,
    link: LinkKey,
    bytes: &[u8],
    now: Instant,
) -> Result<()> {
    manager.receive(link, bytes, now)?;
    Ok(())
}

/// The stream's socket gives bytes: how many were not taken.
#[inline(never)]
fn node_reads_socket(
    manager: &mut LocalConnectionManager,
    edge: EdgeKey,
    mut bytes: &[u8],
    now: Instant,
) -> usize {
    let room = manager.edge_room(edge, now).min(bytes.len());
    if let Some((some, rest)) = bytes.split_at_checked(room)
        && !some.is_empty()
    {
        manager.edge_data(edge, some, now);
        bytes = rest;
    }
    bytes.len()
}

/// The stream's socket takes bytes: how many.
#[inline(never)]
fn node_writes_socket(manager: &mut LocalConnectionManager, edge: EdgeKey, now: Instant) -> usize {
    let count = manager.edges().out(edge).0.len();
    if count > 0 {
        manager.edge_wrote(edge, count, now);
        manager.edges_mut().prune(edge);
    }
    count
}

/// Cells are chosen, and written to nowhere.
#[inline(never)]
fn node_writes_links(
    manager: &mut LocalConnectionManager,
    written: &mut Vec<(LinkKey, Empties)>,
    now: Instant,
) {
    manager.schedule(now, |_| 1000);
    for key in manager.links().listed().to_vec() {
        if let Some(out) = manager.links_mut().outgoing(key)
            && !out.is_empty()
        {
            written.push((key, out.drain(..).collect()));
            manager.links_mut().wrote(key, now);
        }
    }
    manager.links_mut().prune_written();
}

/// Memory of cells that were written comes back.
#[inline(never)]
fn node_recycles(manager: &mut LocalConnectionManager, cells: &mut Empties) {
    for cell in cells.drain(..) {
        manager.links_mut().recycle(cell);
    }
}

/// A quarter second has passed.
#[inline(never)]
fn node_timers(manager: &mut LocalConnectionManager, now: Instant) {
    manager.handle_timeout(now);
}
