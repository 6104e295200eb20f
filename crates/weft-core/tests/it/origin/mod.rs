//! An origin whose circuit has one hop, which the test plays, in either layout of messages.

// Each test binary uses its own part of it.
#![allow(dead_code, unreachable_pub)]

use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::relay;
use weft_cell::relay_command::RelayCommand;
use weft_cell::{Cell, ChanCmd};
use weft_core::address::{ConnectionId, HopIndex};
use weft_core::flow::Terms;
use weft_core::origin::{HopFlow, OriginCommand, OriginEvent};
use weft_crypto::circuit::RelayCircuit;
use weft_crypto::handshake::{self, OnionKeys, ReplyParams, ntor_v3};

use crate::pair::{CIRCUIT, launch};
use crate::world::{self, OWN_ED, OWN_RSA, World};

/// Both layouts of messages. Counter Galois Onion needs congestion control.
pub const LAYOUTS: [Terms; 2] = [Terms::Windows, Terms::VegasCgo];

/// A client's part of a handshake that agrees on a layout.
pub fn onionskin(
    terms: Terms,
    keys: &OnionKeys,
    world: &mut World,
) -> (ntor_v3::ClientState, Vec<u8>) {
    let mut wishes = Vec::new();
    if terms == Terms::VegasCgo {
        wishes.push(tor_cell::relaycell::extend::CcRequest::default().into());
        wishes.push(ntor_v3::cgo_alone().into());
    }
    let public = keys.current_public();
    ntor_v3::ClientState::start(&OWN_ED, &public, &wishes, world.rng()).unwrap()
}

/// A circuit that begins here, and its first hop, which the test plays.
pub struct AtAnOrigin {
    pub world: World,
    pub link: ConnectionId,
    circ_id: u32,
    pub hop: RelayCircuit,
}

impl AtAnOrigin {
    /// An EXTENDED2 and a weight are awaited.
    pub fn new(terms: Terms) -> Self {
        let mut origin = Self::built(terms);
        origin.command(OriginCommand::Extend {
            circuit: CIRCUIT,
            extend2: world::Circuit::extend_message(9, &[1; 84]),
        });
        origin.ask_weight();
        origin.world.events.clear();
        origin
    }

    /// Nothing is awaited.
    pub fn built(terms: Terms) -> Self {
        let mut world = World::new(1, 2);
        let keys = OnionKeys::new(OWN_RSA, OWN_ED, &[7; 32], None);
        let (state, data) = onionskin(terms, &keys, &mut world);
        let handshake_type = 3;
        let create = CreateRequest::Create2 {
            handshake_type,
            data,
        };
        let link = launch(&mut world, create);
        world.settle();
        let create = world.expect(link, ChanCmd::CREATE2);
        let circ_id = create.circ_id();
        let request = CreateRequest::decode(create.command(), create.body()).unwrap();
        let params = ReplyParams {
            sendme_inc: terms.is_vegas().then_some(31),
        };
        let answer = handshake::negotiate(&request, &keys, &params, world.rng()).unwrap();
        let CreateReply::Created2 { data } = &answer.reply else {
            panic!("CREATED2 expected");
        };
        let (_, keys) = state.finish(data).unwrap();
        world.receive(link, &answer.reply.encode(circ_id).unwrap());
        world.settle();
        let mut origin = AtAnOrigin {
            world,
            link,
            circ_id,
            hop: RelayCircuit::new(&answer.keys),
        };
        origin.command(OriginCommand::AddHop {
            circuit: CIRCUIT,
            keys: Box::new(keys),
            flow: match terms.is_vegas() {
                true => HopFlow::Vegas { sendme_inc: 31 },
                false => HopFlow::Fixed,
            },
        });
        origin
    }

    pub fn ask_weight(&mut self) {
        self.command(OriginCommand::AskWeight {
            circuit: CIRCUIT,
            hop: HopIndex::from_index(0),
        });
    }

    /// Number of weights that the client was sent.
    pub fn weights(&self) -> usize {
        let events = self.world.events.iter();
        events
            .filter(|event| matches!(event, OriginEvent::Weight { .. }))
            .count()
    }

    pub fn command(&mut self, command: OriginCommand) {
        self.world.controller.origin(command, self.world.now);
        self.world.do_actions();
        self.world.settle();
    }

    /// The hop sends a message; false: the layout has no place for it.
    pub fn send(&mut self, command: RelayCommand, stream: u16, data: &[u8]) -> bool {
        let mut cell = Cell::new(self.circ_id, ChanCmd::RELAY);
        let (body, rng) = (cell.body_mut(), self.world.rng());
        relay::encode(body, command.wire(), stream, data, rng).unwrap();
        let sealed = self.hop.originate_backward(body);
        if sealed.is_ok() {
            self.world.receive(self.link, &cell);
            self.world.settle();
        }
        sealed.is_ok()
    }
}
