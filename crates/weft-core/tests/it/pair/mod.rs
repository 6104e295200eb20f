//! Two nodes without sockets: one where circuits begin, one where streams end; and an origin whose
//! hops the test plays.

// Each test binary uses its own part of it.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt as _;
use tor_cell::relaycell::extend::CcRequest;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::relay::{self, RelayBody};
use weft_cell::stream_msg::BeginFlags;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, HopIndex, ThreadId};
use weft_core::flow::Terms;
use weft_core::handshake::{LinkRole, PeerIdentity};
use weft_core::origin::{HopFlow, LinkTarget, OriginCommand, OriginEvent, OriginId, StreamOpening};
use weft_core::slots::EdgeKey;
use weft_core::stream::edge::EdgeNews;
use weft_crypto::Tor1Keys;
use weft_crypto::handshake::ntor_v3;
use weft_crypto::relay_cell::RelayCrypt;

pub use crate::world::CLIENT;
use crate::world::{OWN_ED, OWN_RSA, World};

/// The circuit's name.
pub const CIRCUIT: OriginId = OriginId(7);

/// Begins the circuit, over a link to its first hop that is opened for it: that link.
pub fn launch(origin: &mut World, create: CreateRequest) -> ConnectionId {
    origin.controller.serve_client();
    let command = OriginCommand::Launch {
        circuit: CIRCUIT,
        first: LinkTarget {
            addrs: vec!["127.0.0.9:9001".parse().unwrap()],
            rsa: OWN_RSA,
            ed25519: Some(OWN_ED),
        },
        create,
    };
    origin.controller.origin(command, origin.now);
    origin.do_actions();
    let connect = origin.connects.pop().unwrap();
    let identity = PeerIdentity::Relay {
        rsa: OWN_RSA,
        ed25519: OWN_ED,
    };
    let thread = usize::from(connect.thread.0);
    origin.open_as(
        connect.connection,
        thread,
        LinkRole::OpenedAsClient,
        identity,
    );
    connect.connection
}

/// An origin, and the exit at the other end of its circuit of one hop.
pub struct Pair {
    pub origin: World,
    pub exit: World,
    pub links: (ConnectionId, ConnectionId),
    /// Applications: thread and edge by connection.
    pub applications: BTreeMap<ConnectionId, (usize, EdgeKey)>,
}

impl Pair {
    pub fn new(threads: u16, seed: u64, terms: Terms) -> Self {
        let exit = World::new(threads, seed + 1);
        Self::with_exit(World::new(threads, seed), exit, terms)
    }

    /// With an exit of the test's own.
    pub fn with_exit(mut origin: World, mut exit: World, terms: Terms) -> Self {
        exit.sendme_inc = terms.is_vegas().then_some(31);
        exit.serve_streams = true;
        // The origin's link to a relay that the test calls by the exit's name.
        let accepted = exit.link_on(0, CLIENT);
        let mut wishes = Vec::new();
        if terms.is_vegas() {
            wishes.push(CcRequest::default().into());
        }
        if terms == Terms::VegasCgo {
            wishes.push(ntor_v3::cgo_alone().into());
        }
        let public = exit.onion_keys.current_public();
        let (state, onionskin) =
            ntor_v3::ClientState::start(&OWN_ED, &public, &wishes, origin.rng()).unwrap();
        let create = CreateRequest::Create2 {
            handshake_type: 3,
            data: onionskin,
        };
        let link = launch(&mut origin, create);
        let mut pair = Pair {
            origin,
            exit,
            links: (link, accepted),
            applications: BTreeMap::new(),
        };
        pair.pump();
        let reply = pair
            .origin
            .events
            .iter()
            .find_map(|event| match event {
                OriginEvent::Answered { reply, .. } => Some(reply.clone()),
                _ => None,
            })
            .expect("CREATED2");
        let CreateReply::Created2 { data } = reply else {
            panic!("CREATED2 expected");
        };
        let flow = match terms.is_vegas() {
            true => HopFlow::Vegas { sendme_inc: 31 },
            false => HopFlow::Fixed,
        };
        let (_, keys) = state.finish(&data).unwrap();
        assert_eq!(keys.tor1().is_none(), terms == Terms::VegasCgo);
        pair.command(OriginCommand::AddHop {
            circuit: CIRCUIT,
            keys: Box::new(keys),
            flow,
        });
        pair
    }

    pub fn command(&mut self, command: OriginCommand) {
        self.origin.controller.origin(command, self.origin.now);
        self.origin.do_actions();
        self.pump();
    }

    /// Lets cells travel until none is left.
    pub fn pump(&mut self) {
        loop {
            self.origin.settle();
            self.exit.settle();
            let there: Vec<_> = std::iter::from_fn(|| self.origin.take(self.links.0)).collect();
            let back: Vec<_> = std::iter::from_fn(|| self.exit.take(self.links.1)).collect();
            if there.is_empty() && back.is_empty() {
                return;
            }
            for cell in there {
                self.exit.receive(self.links.1, &cell);
            }
            for cell in back {
                self.origin.receive(self.links.0, &cell);
            }
            // Round trips take time, of which congestion control makes something.
            self.origin.now += Duration::from_millis(2);
            self.exit.now += Duration::from_millis(2);
        }
    }

    /// An application, its edge on the thread of the test's choice.
    pub fn application(&mut self, thread: usize, number: u64) -> ConnectionId {
        let id = ConnectionId(u64::MAX - number);
        self.origin.controller.place_at(id, ThreadId(thread as u16));
        let edge = self.origin.managers[thread]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        self.applications.insert(id, (thread, edge));
        id
    }

    pub fn attach(&mut self, stream: ConnectionId) {
        self.command(OriginCommand::Attach {
            stream,
            circuit: CIRCUIT,
            hop: HopIndex(0),
            opening: StreamOpening::Begin {
                host: "example.com".to_owned(),
                port: 80,
                flags: BeginFlags::default(),
            },
        });
    }

    /// Writes what an application may write now, of what it has left; true: it wrote some.
    pub fn write_application(&mut self, id: ConnectionId, bytes: &mut &[u8]) -> bool {
        let (thread, edge) = self.applications[&id];
        let now = self.origin.now;
        write(&mut self.origin.managers[thread], edge, bytes, now)
    }

    pub fn read_application(&mut self, id: ConnectionId, most: usize) -> Vec<u8> {
        let (thread, edge) = self.applications[&id];
        let now = self.origin.now;
        read(&mut self.origin.managers[thread], edge, most, now)
    }

    pub fn write_exit(&mut self, number: usize, bytes: &mut &[u8]) -> bool {
        let (thread, edge) = self.exit.edges[number];
        let now = self.exit.now;
        write(&mut self.exit.managers[thread], edge, bytes, now)
    }

    pub fn read_exit(&mut self, number: usize, most: usize) -> Vec<u8> {
        let (thread, edge) = self.exit.edges[number];
        let now = self.exit.now;
        read(&mut self.exit.managers[thread], edge, most, now)
    }

    pub fn news(&mut self, thread: usize) -> Vec<EdgeNews> {
        let manager = &mut self.origin.managers[thread];
        std::iter::from_fn(|| manager.edges_mut().poll()).collect()
    }
}

pub fn write(
    manager: &mut weft_core::manager::LocalConnectionManager,
    edge: EdgeKey,
    bytes: &mut &[u8],
    now: std::time::Instant,
) -> bool {
    let count = manager.edge_room(edge, now).min(bytes.len());
    let (now_bytes, rest) = bytes.split_at(count);
    manager.edge_data(edge, now_bytes, now);
    *bytes = rest;
    count > 0
}

pub fn read(
    manager: &mut weft_core::manager::LocalConnectionManager,
    edge: EdgeKey,
    most: usize,
    now: std::time::Instant,
) -> Vec<u8> {
    let (bytes, _) = manager.edges().out(edge);
    let bytes = bytes[..most.min(bytes.len())].to_vec();
    manager.edge_wrote(edge, bytes.len(), now);
    bytes
}

pub fn payload(seed: u64, length: usize) -> Vec<u8> {
    use rand::SeedableRng as _;
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    (0..length).map(|_| rng.random()).collect()
}

/// A circuit of two hops, whose keys the test has; an application's stream leads to the second.
pub struct TwoHops {
    pub origin: World,
    pub link: ConnectionId,
    pub circ_id: u32,
    pub hops: [RelayCrypt; 2],
    pub application: ConnectionId,
    pub stream: u16,
}

impl TwoHops {
    pub fn new(seed: u64) -> Self {
        Self::with_flow(seed, HopFlow::Fixed)
    }

    /// Both hops have agreed on this.
    pub fn with_flow(seed: u64, flow: HopFlow) -> Self {
        let mut origin = World::new(1, seed);
        let link = launch(&mut origin, CreateRequest::Fast { x: [1; 20] });
        origin.settle();
        let circ_id = origin.take(link).expect("CREATE_FAST").circ_id();
        let reply = CreateReply::Fast {
            y: [2; 20],
            kh: [3; 20],
        };
        origin.receive(link, &reply.encode(circ_id).unwrap());
        let keys = [5, 6].map(|fill| Tor1Keys::from_key_material(&[fill; Tor1Keys::LEN]));
        let mut pair = TwoHops {
            hops: keys.each_ref().map(RelayCrypt::new),
            origin,
            link,
            circ_id,
            application: ConnectionId(u64::MAX),
            stream: 0,
        };
        for keys in keys {
            pair.command(OriginCommand::AddHop {
                circuit: CIRCUIT,
                keys: Box::new(keys.into()),
                flow: flow.clone(),
            });
        }
        let id = pair.application;
        pair.origin.controller.place_at(id, ThreadId(0));
        pair.origin.managers[0]
            .edges_mut()
            .adopt_application(id)
            .unwrap();
        pair.command(OriginCommand::Attach {
            stream: id,
            circuit: CIRCUIT,
            hop: HopIndex(1),
            opening: StreamOpening::BeginDir,
        });
        let mut begin = *pair.origin.take(link).expect("BEGIN_DIR").body();
        assert!(!pair.hops[0].decrypt_forward(&mut begin));
        assert!(pair.hops[1].decrypt_forward(&mut begin));
        pair.stream = RelayBody::new(&begin).stream_id();
        pair
    }

    pub fn command(&mut self, command: OriginCommand) {
        self.origin.controller.origin(command, self.origin.now);
        self.origin.do_actions();
        self.origin.settle();
    }

    /// A hop sends a message of the stream.
    pub fn sends(&mut self, hop: usize, command: RelayCmd, data: &[u8]) {
        let mut cell = Cell::new(self.circ_id, ChanCmd::RELAY);
        let stream = self.stream;
        relay::encode(cell.body_mut(), command, stream, data, self.origin.rng()).unwrap();
        self.hops[hop].originate_backward(cell.body_mut());
        for nearer in self.hops[..hop].iter_mut().rev() {
            nearer.encrypt_backward(cell.body_mut());
        }
        self.origin.receive(self.link, &cell);
        self.origin.settle();
    }

    pub fn read(&mut self) -> Vec<u8> {
        let edge = self.origin.managers[0]
            .edges()
            .of(self.application)
            .unwrap();
        let now = self.origin.now;
        read(&mut self.origin.managers[0], edge, 1000, now)
    }
}
