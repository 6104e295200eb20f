//! The circuits of a tunnel: how they are made and joined.

use std::collections::VecDeque;

use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::conflux_msg::DesiredUx;
use weft_cell::mtor_msg::{Join, Joined, Multipath, MultipathAck, TunnelId};
use weft_cell::relay_command::RelayCommand;
use weft_cell::{ChanCmd, RelayCmd};
use weft_core::address::{ConnectionId, HopIndex};
use weft_core::handshake::{LinkRole, PeerIdentity};
use weft_core::origin::{HopFlow, LinkTarget, OriginCommand, OriginEvent, OriginId, TunnelKind};
use weft_crypto::Tor1Keys;
use weft_crypto::circuit::RelayCircuit;

use super::{
    Crypt, FarEnd, Kind, Leg, NONCE, SECRET, SENDME_INC, Side, TUNNEL, TUNNEL_ID, link_message,
};
use crate::world::{CLIENT, Circuit, OWN_ED, OWN_RSA};

impl FarEnd {
    /// Adds a circuit over a new link: its number.
    pub fn add_circuit(&mut self) -> usize {
        // Its handshake is nothing that a far end can hold up.
        self.world.room = u32::MAX;
        self.world.not_reading.clear();
        self.collect();
        let threads = self.world.managers.len();
        let connection = match self.side {
            Side::Client => self.world.link_on(self.legs.len() % threads, CLIENT),
            Side::Exit => ConnectionId(0),
        };
        self.add_circuit_on(connection)
    }

    /// Adds a circuit over this link; for an origin, over a new link: its number.
    pub fn add_circuit_on(&mut self, connection: ConnectionId) -> usize {
        let number = self.legs.len();
        let circuit = OriginId(100 + number as u64);
        let (connection, circ_id, crypt) = match self.side {
            Side::Client => {
                let circ_id = 0x8000_0001 + number as u32;
                let made = Circuit::create(&mut self.world, connection, circ_id);
                (connection, circ_id, Crypt::Client(made.crypt))
            }
            Side::Exit => self.launch(circuit),
        };
        self.legs.push(Leg {
            connection,
            circuit,
            circ_id,
            crypt,
            open: true,
            reason: None,
            due: VecDeque::new(),
            counted: 0,
            received: 0,
        });
        number
    }

    /// Has the origin build a circuit of one hop.
    fn launch(&mut self, circuit: OriginId) -> (ConnectionId, u32, Crypt) {
        let first = LinkTarget {
            addrs: vec!["127.0.0.9:9001".parse().unwrap()],
            rsa: OWN_RSA,
            ed25519: Some(OWN_ED),
        };
        let create = CreateRequest::Fast { x: [1; 20] };
        self.command(OriginCommand::Launch {
            circuit,
            first,
            create,
        });
        if let Some(connect) = self.world.connects.pop() {
            let identity = PeerIdentity::Relay {
                rsa: OWN_RSA,
                ed25519: OWN_ED,
            };
            let thread = usize::from(connect.thread.0);
            self.world.open_as(
                connect.connection,
                thread,
                LinkRole::OpenedAsClient,
                identity,
            );
        }
        self.world.settle();
        let launched = self.world.events.iter().find_map(|event| match event {
            OriginEvent::Launched {
                circuit: of,
                connection,
            } if *of == circuit => Some(*connection),
            _ => None,
        });
        let connection = launched.expect("a link to the exit");
        let written = std::iter::from_fn(|| self.world.take(connection));
        let mut created = written.filter(|cell| cell.command() == ChanCmd::CREATE_FAST);
        let circ_id = created.next().expect("CREATE_FAST").circ_id();
        let reply = CreateReply::Fast {
            y: [2; 20],
            kh: [3; 20],
        };
        let reply = reply.encode(circ_id).unwrap();
        self.world.receive(connection, &reply);
        let fill = u8::try_from(self.legs.len() % 200).unwrap() + 5;
        let keys = Tor1Keys::from_key_material(&[fill; Tor1Keys::LEN]);
        let crypt = Crypt::Exit(Box::new(RelayCircuit::new(&keys.clone().into())));
        let flow = match self.vegas {
            true => HopFlow::Vegas {
                sendme_inc: SENDME_INC,
            },
            false => HopFlow::Fixed,
        };
        self.command(OriginCommand::AddHop {
            circuit,
            keys: Box::new(keys.into()),
            flow,
        });
        (connection, circ_id, crypt)
    }

    pub fn command(&mut self, command: OriginCommand) {
        self.world.controller.origin(command, self.world.now);
        self.world.do_actions();
        self.world.settle();
    }

    /// Joins a circuit as an honest far end does. False: the node closed it.
    pub fn link(&mut self, leg: usize) -> bool {
        if !self.has_tunnel() {
            self.begin_anew();
        }
        match (self.side, self.kind) {
            (Side::Client, Kind::Conflux) => {
                self.send(leg, RelayCmd::CONFLUX_LINK, 0, &link_message(0, 0));
                if self.take(leg, RelayCommand::ConfluxLinked).is_none() {
                    return false;
                }
                self.send(leg, RelayCmd::CONFLUX_LINKED_ACK, 0, &[]);
            }
            (Side::Client, Kind::Mtor) => {
                let answer = match self.id {
                    None => {
                        let data = Multipath { secret: SECRET }.encode();
                        self.send(leg, RelayCommand::Multipath.wire(), 0, &data);
                        let answer = self.take(leg, RelayCommand::MultipathAck);
                        self.id = answer
                            .as_ref()
                            .map(|data| MultipathAck::decode(data).unwrap().tunnel);
                        answer
                    }
                    Some(tunnel) => {
                        let secret = SECRET;
                        let data = Join { tunnel, secret }.encode();
                        self.send(leg, RelayCommand::Join.wire(), 0, &data);
                        self.take(leg, RelayCommand::Joined)
                    }
                };
                if answer.is_none() {
                    return false;
                }
            }
            (Side::Exit, Kind::Conflux) => {
                self.ask_link(leg);
                if self.take(leg, RelayCommand::ConfluxLink).is_none() {
                    return false;
                }
                self.send(leg, RelayCmd::CONFLUX_LINKED, 0, &link_message(0, 0));
                self.collect();
            }
            (Side::Exit, Kind::Mtor) => {
                self.ask_link(leg);
                let tunnel = TUNNEL_ID;
                let asked = self
                    .collect()
                    .into_iter()
                    .find(|message| message.leg == leg);
                match asked.map(|message| message.command) {
                    Some(RelayCommand::Multipath) => {
                        let data = MultipathAck { tunnel }.encode();
                        self.send(leg, RelayCommand::MultipathAck.wire(), 0, &data);
                    }
                    Some(RelayCommand::Join) => {
                        let data = Joined { tunnel }.encode();
                        self.send(leg, RelayCommand::Joined.wire(), 0, &data);
                    }
                    _ => return false,
                }
                self.collect();
            }
        }
        self.legs[leg].open
    }

    /// The next tunnel is another one.
    fn begin_anew(&mut self) {
        self.id = None;
        self.number = 1;
        self.numbers.clear();
        self.opened.clear();
    }

    /// Has the origin ask for a leg.
    pub fn ask_link(&mut self, leg: usize) {
        let kind = match self.kind {
            Kind::Conflux => TunnelKind::Conflux {
                nonce: NONCE,
                ux: DesiredUx::HighThroughput,
            },
            Kind::Mtor => TunnelKind::Mtor { secret: SECRET },
        };
        self.command(OriginCommand::Link {
            circuit: self.legs[leg].circuit,
            hop: HopIndex(0),
            tunnel: TUNNEL,
            kind,
        });
    }

    /// Creates a tunnel of another client, on a separate circuit: its id.
    pub fn another_tunnel(&mut self, secret: [u8; 16]) -> TunnelId {
        let leg = self.add_circuit();
        let data = Multipath { secret }.encode();
        self.send(leg, RelayCommand::Multipath.wire(), 0, &data);
        let answer = self.take(leg, RelayCommand::MultipathAck);
        let answer = answer.expect("MULTIPATH_ACK");
        MultipathAck::decode(&answer).unwrap().tunnel
    }
}
