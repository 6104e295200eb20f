//! A tunnel between two nodes without sockets: circuits of one hop over links of their own, each of which carries cells at its
//! own pace.

// Each test binary uses its own part of it.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tor_cell::relaycell::extend::CcRequest;
use weft_cell::Cell;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::conflux_msg::DesiredUx;
use weft_cell::stream_msg::BeginFlags;
use weft_core::address::{ConnectionId, HopIndex, ThreadId};
use weft_core::controller::Sharing;
use weft_core::flow::Terms;
use weft_core::handshake::{LinkRole, PeerIdentity};
use weft_core::message::TunnelTotals;
use weft_core::origin::{
    EndedBy, HopFlow, LinkTarget, OriginCommand, OriginEvent, OriginId, StreamOpening, TunnelKind,
};
use weft_core::slots::EdgeKey;
use weft_crypto::handshake::ntor_v3;

use crate::pair::{read, write};
use crate::world::{CLIENT, OWN_ED, OWN_RSA, World};

/// The tunnel's name.
pub const TUNNEL: OriginId = OriginId(50);
/// And its nonce.
pub const NONCE: [u8; 32] = [9; 32];

/// An origin, an exit, and the links between them.
pub struct Tunnel {
    pub origin: World,
    pub exit: World,
    /// Each link's connection at the origin and at the exit.
    pub links: Vec<Option<(ConnectionId, ConnectionId)>>,
    /// Time that each link takes for a cell, relative to the others.
    pub pace: Vec<u32>,
    /// Cells on their way, there and back, and how many each link carried.
    transit: Vec<[VecDeque<Cell>; 2]>,
    carried: Vec<[u64; 2]>,
    applications: BTreeMap<ConnectionId, (usize, EdgeKey)>,
    /// Steps of 2 ms; each 125th runs the timers.
    steps: u64,
    /// Rules that circuits negotiate.
    terms: Terms,
    rng: StdRng,
}

/// Proof that legs belong to one client.
pub const SECRET: [u8; 16] = [8; 16];

impl Tunnel {
    /// Circuits whose exit serves conflux: circuits 100, 101 and so on.
    pub fn circuits(threads: u16, seed: u64, legs: usize, terms: Terms) -> Self {
        let mut exit = World::new(threads, seed + 1);
        exit.sendme_inc = terms.is_vegas().then_some(31);
        exit.serve_streams = true;
        let mut origin = World::new(threads, seed);
        origin.share(Sharing::PerCircuit {
            per_relay: 64,
            total: 1000,
        });
        origin.controller.serve_client();
        let mut tunnel = Tunnel {
            origin,
            exit,
            links: Vec::new(),
            pace: vec![1; legs],
            transit: Vec::new(),
            carried: Vec::new(),
            applications: BTreeMap::new(),
            steps: 0,
            terms,
            rng: StdRng::seed_from_u64(seed ^ 0xa5a5),
        };
        for leg in 0..legs {
            tunnel.add_circuit(leg);
        }
        tunnel
    }

    /// A tunnel with its legs linked.
    pub fn new(threads: u16, seed: u64, legs: usize, ux: DesiredUx) -> Self {
        Self::conflux(threads, seed, legs, ux, Terms::Vegas)
    }

    /// A tunnel with its legs linked, over circuits that negotiate these rules.
    pub fn conflux(threads: u16, seed: u64, legs: usize, ux: DesiredUx, terms: Terms) -> Self {
        let mut tunnel = Self::circuits(threads, seed, legs, terms);
        for leg in 0..legs {
            tunnel.link_leg(leg, TunnelKind::Conflux { nonce: NONCE, ux });
        }
        tunnel
    }

    /// A tunnel of mTor over circuits that agree on this.
    pub fn mtor(threads: u16, seed: u64, legs: usize, terms: Terms) -> Self {
        let mut tunnel = Self::circuits(threads, seed, legs, terms);
        for leg in 0..legs {
            tunnel.link_leg(leg, TunnelKind::Mtor { secret: SECRET });
        }
        tunnel
    }

    /// One more leg of it: its number.
    pub fn add_mtor_leg(&mut self) -> usize {
        let leg = self.links.len();
        self.pace.push(1);
        self.add_circuit(leg);
        self.link_leg(leg, TunnelKind::Mtor { secret: SECRET });
        leg
    }

    fn add_circuit(&mut self, leg: usize) {
        let circuit = OriginId(100 + leg as u64);
        let mut wishes = Vec::new();
        if self.terms.is_vegas() {
            wishes.push(CcRequest::default().into());
        }
        if self.terms == Terms::VegasCgo {
            wishes.push(ntor_v3::cgo_alone().into());
        }
        let public = self.exit.onion_keys.current_public();
        let (state, onionskin) =
            ntor_v3::ClientState::start(&OWN_ED, &public, &wishes, self.origin.rng()).unwrap();
        let create = CreateRequest::Create2 {
            handshake_type: 3,
            data: onionskin,
        };
        let first = LinkTarget {
            addrs: vec!["127.0.0.9:9001".parse().unwrap()],
            rsa: OWN_RSA,
            ed25519: Some(OWN_ED),
        };
        let command = OriginCommand::Launch {
            circuit,
            first,
            create,
        };
        self.origin.controller.origin(command, self.origin.now);
        self.origin.do_actions();
        let link = match self.origin.connects.pop() {
            Some(connect) => {
                let identity = PeerIdentity::Relay {
                    rsa: OWN_RSA,
                    ed25519: OWN_ED,
                };
                let thread = usize::from(connect.thread.0);
                self.origin.open_as(
                    connect.connection,
                    thread,
                    LinkRole::OpenedAsClient,
                    identity,
                );
                let threads = self.exit.managers.len();
                (connect.connection, self.exit.link_on(leg % threads, CLIENT))
            }
            // That of a leg that has closed.
            None => {
                self.origin.settle();
                let mut events = self.origin.events.iter();
                let launched = events.find_map(|event| match event {
                    OriginEvent::Launched {
                        circuit: of,
                        connection,
                    } if *of == circuit => Some(*connection),
                    _ => None,
                });
                let mut links = self.links.iter_mut();
                let old = links.find(|link| link.is_some_and(|(here, _)| Some(here) == launched));
                old.and_then(Option::take).expect("a link of a leg")
            }
        };
        self.links.push(Some(link));
        self.transit.push([VecDeque::new(), VecDeque::new()]);
        self.carried.push([0; 2]);
        self.pump();
        let reply = self
            .origin
            .events
            .iter()
            .rev()
            .find_map(|event| match event {
                OriginEvent::Answered { circuit: of, reply } if *of == circuit => {
                    Some(reply.clone())
                }
                _ => None,
            });
        let Some(CreateReply::Created2 { data }) = reply else {
            panic!("CREATED2 expected, not {reply:?}");
        };
        let (_, keys) = state.finish(&data).unwrap();
        self.command(OriginCommand::AddHop {
            circuit,
            keys: Box::new(keys),
            flow: match self.terms.is_vegas() {
                true => HopFlow::Vegas { sendme_inc: 31 },
                false => HopFlow::Fixed,
            },
        });
    }

    /// Links a circuit, and waits for the answer.
    pub fn link_leg(&mut self, leg: usize, kind: TunnelKind) {
        let circuit = OriginId(100 + leg as u64);
        self.command(OriginCommand::Link {
            circuit,
            hop: HopIndex(0),
            tunnel: TUNNEL,
            kind,
        });
        self.pump();
        let linked = |event: &OriginEvent| matches!(event, OriginEvent::Linked { circuit: of, .. } if *of == circuit);
        assert!(self.origin.events.iter().any(linked), "{circuit} is linked");
        // The exit knows it as well.
        self.audit();
    }

    pub fn command(&mut self, command: OriginCommand) {
        self.origin.controller.origin(command, self.origin.now);
        self.origin.do_actions();
        self.pump();
    }

    /// Lets cells travel until none is left.
    pub fn pump(&mut self) {
        while self.step() {}
    }

    /// Lets some cells travel. False: none is under way.
    pub fn step(&mut self) -> bool {
        self.steps += 1;
        if self.steps.is_multiple_of(125) {
            self.origin.tick();
            self.exit.tick();
        }
        self.origin.settle();
        self.exit.settle();
        for (leg, link) in self.links.iter().enumerate() {
            let Some((here, there)) = *link else {
                continue;
            };
            while let Some(cell) = self.origin.take(here) {
                self.transit[leg][0].push_back(cell);
            }
            while let Some(cell) = self.exit.take(there) {
                self.transit[leg][1].push_back(cell);
            }
        }
        // Cells on a stalled link stay there.
        let moving = self
            .transit
            .iter()
            .zip(&self.pace)
            .filter(|(_, pace)| **pace > 0);
        if moving
            .flat_map(|(transit, _)| transit)
            .all(VecDeque::is_empty)
        {
            self.origin.now += Duration::from_millis(2);
            self.exit.now += Duration::from_millis(2);
            return false;
        }
        // Round trips take time, of which congestion control makes something.
        self.origin.now += Duration::from_millis(2);
        self.exit.now += Duration::from_millis(2);
        for leg in 0..self.links.len() {
            let pace = self.pace[leg];
            for direction in 0..2 {
                // A link that stands still.
                if pace == 0 {
                    continue;
                }
                if self.rng.random_range(0..pace) > 0 {
                    continue;
                }
                let most = self.rng.random_range(1..64);
                for _ in 0..most {
                    let Some(cell) = self.transit[leg][direction].pop_front() else {
                        break;
                    };
                    let Some((here, there)) = self.links[leg] else {
                        break;
                    };
                    self.carried[leg][direction] += 1;
                    match direction {
                        0 => self.exit.receive(there, &cell),
                        _ => self.origin.receive(here, &cell),
                    }
                }
            }
        }
        true
    }

    /// A stream on the tunnel, its application on this thread: it is connected.
    pub fn open_stream(&mut self, thread: usize) -> ConnectionId {
        let id = ConnectionId(u64::MAX - self.applications.len() as u64);
        self.origin.controller.place_at(id, ThreadId(thread as u16));
        let edge = self.origin.managers[thread]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        self.applications.insert(id, (thread, edge));
        self.command(OriginCommand::Attach {
            stream: id,
            circuit: TUNNEL,
            hop: HopIndex(0),
            opening: StreamOpening::Begin {
                host: "example.com".to_owned(),
                port: 80,
                flags: BeginFlags::default(),
            },
        });
        let connected = |event: &OriginEvent| matches!(event, OriginEvent::Connected { stream, circuit, .. } if (*stream, *circuit) == (id, TUNNEL));
        assert!(
            self.origin.events.iter().any(connected),
            "{id} is connected"
        );
        id
    }

    /// Moves bytes both ways on a stream: what arrived at the exit, and at the application.
    pub fn transfer(&mut self, id: ConnectionId, up: &[u8], down: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.transfer_with(id, up, down, |_, _| {})
    }

    /// Moves bytes both ways on a stream, like [`transfer`](Self::transfer), and calls `meanwhile`
    /// with the number of each step.
    pub fn transfer_with(
        &mut self,
        id: ConnectionId,
        up: &[u8],
        down: &[u8],
        mut meanwhile: impl FnMut(&mut Self, usize),
    ) -> (Vec<u8>, Vec<u8>) {
        let number = self
            .applications
            .keys()
            .rev()
            .position(|one| *one == id)
            .unwrap();
        let (mut up, mut down) = (up, down);
        let expected = (up.len(), down.len());
        let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
        let mut idle = 0;
        let mut steps = 0;
        while (got_up.len(), got_down.len()) != expected {
            meanwhile(self, steps);
            steps += 1;
            let now = self.origin.now;
            let (thread, edge) = self.applications[&id];
            write(&mut self.origin.managers[thread], edge, &mut up, now);
            got_down.extend(read(&mut self.origin.managers[thread], edge, 50_000, now));
            let now = self.exit.now;
            let (thread, edge) = self.exit.edges[number];
            write(&mut self.exit.managers[thread], edge, &mut down, now);
            got_up.extend(read(&mut self.exit.managers[thread], edge, 50_000, now));
            idle = if self.step() { 0 } else { idle + 1 };
            assert!(
                idle < 4000,
                "stuck at {} and {} of {expected:?}",
                got_up.len(),
                got_down.len()
            );
        }
        self.pump();
        (got_up, got_down)
    }

    /// The destination sends bytes, of which some are under way afterwards.
    pub fn write_some(&mut self, id: ConnectionId, bytes: &[u8]) {
        let number = self
            .applications
            .keys()
            .rev()
            .position(|one| *one == id)
            .unwrap();
        let mut bytes = bytes;
        for _ in 0..20 {
            let now = self.exit.now;
            let (thread, edge) = self.exit.edges[number];
            write(&mut self.exit.managers[thread], edge, &mut bytes, now);
            self.step();
        }
    }

    /// Takes a link away at both ends, with what is on it.
    pub fn lose_link(&mut self, leg: usize) {
        let (here, there) = self.links[leg].take().unwrap();
        self.transit[leg] = [VecDeque::new(), VecDeque::new()];
        for (world, connection) in [(&mut self.origin, here), (&mut self.exit, there)] {
            if world.is_open(connection) {
                world.close(connection);
            }
        }
    }

    /// True if every leg carried more than its linking.
    pub fn sent_on_all_legs(&self) -> bool {
        self.carried.iter().all(|carried| carried[1] > 20)
    }

    /// A leg that only one end of sent anything but its linking: CREATE2, LINK and ACK there, CREATED2 and LINKED back.
    pub fn unused_leg(&self) -> Option<OriginId> {
        let unused = self.carried.iter().position(|carried| *carried == [3, 2])?;
        Some(OriginId(100 + unused as u64))
    }

    /// Totals of tunnels at both ends.
    pub fn totals(&self) -> (TunnelTotals, TunnelTotals) {
        let of = |world: &World| {
            let mut sum = TunnelTotals::default();
            for manager in &world.managers {
                sum += manager.totals().tunnels;
            }
            sum
        };
        (of(&self.origin), of(&self.exit))
    }

    /// Legs that were reported to be slow.
    pub fn slow(&self) -> Vec<OriginId> {
        let events = self.origin.events.iter();
        events
            .filter_map(|event| match event {
                OriginEvent::LegSlow { circuit, tunnel } => {
                    assert_eq!(*tunnel, TUNNEL);
                    Some(*circuit)
                }
                _ => None,
            })
            .collect()
    }

    /// Links that are there.
    pub fn open_links(&self) -> Vec<usize> {
        let links = self.links.iter().enumerate();
        links.filter_map(|(leg, link)| link.map(|_| leg)).collect()
    }

    /// Circuits and tunnels that have closed.
    pub fn closed(&self) -> Vec<OriginId> {
        let events = self.origin.events.iter();
        events
            .filter_map(|event| match event {
                OriginEvent::Closed { circuit, .. } => Some(*circuit),
                _ => None,
            })
            .collect()
    }

    /// Cause of a stream's end.
    pub fn ended(&self, id: ConnectionId) -> Option<EndedBy> {
        self.origin.events.iter().find_map(|event| match event {
            OriginEvent::Ended { stream, by, .. } if *stream == id => Some(*by),
            _ => None,
        })
    }

    /// Halves at both ends.
    pub fn halves(&self) -> (usize, usize) {
        let of = |world: &World| world.managers.iter().map(|manager| manager.halves()).sum();
        (of(&self.origin), of(&self.exit))
    }

    pub fn audit(&mut self) {
        self.origin.settle();
        self.exit.settle();
        self.origin.audit_at_rest();
        self.exit.audit_at_rest();
    }
}
