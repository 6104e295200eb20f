//! Every relay command of the table, sent under tor1 and under Counter Galois Onion, to a relay and to the
//! origin of a circuit: both do with it what the table states.

use std::time::Duration;

use crate::origin::{AtAnOrigin, LAYOUTS, onionskin};
use crate::pair::CLIENT;
use crate::world::{self, OWN_ED, OWN_RSA, World};
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::mtor_msg;
use weft_cell::relay;
use weft_cell::relay_command::{AtOrigin, AtRelay, RelayCommand, Scope, StreamMessage};
use weft_cell::{Cell, ChanCmd};
use weft_core::address::ConnectionId;
use weft_core::flow::Terms;
use weft_core::message::Totals;
use weft_core::origin::OriginEvent;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::OnionKeys;

const NOT_SERVED: &str = "a relay message that this relay does not serve";
const NOT_ASKED_FOR: &str = "a relay message to the origin of a circuit that it did not ask for";

/// The stream that messages of streams name.
const STREAM: u16 = 5;

/// A stream id that suits a command, and one that does not, where there is one.
fn stream_ids(command: RelayCommand, terms: Terms) -> (u16, Option<u16>) {
    match (command.rules().scope, terms) {
        (Scope::Stream, _) => (STREAM, Some(0)),
        (Scope::Circuit, _) | (Scope::Either, Terms::VegasCgo) => (0, Some(STREAM)),
        (Scope::Either, _) => (0, None),
    }
}

/// A relay with one circuit, and the client that the test plays.
struct AtARelay {
    world: World,
    link: ConnectionId,
    crypt: OriginCircuit,
}

impl AtARelay {
    const CIRC_ID: u32 = 0x8000_0001;

    fn new(terms: Terms) -> Self {
        let mut world = World::new(1, 1);
        world.sendme_inc = terms.is_vegas().then_some(31);
        let link = world.link_on(0, CLIENT);
        let keys = OnionKeys::new(OWN_RSA, OWN_ED, &[7; 32], None);
        let (state, data) = onionskin(terms, &keys, &mut world);
        let handshake_type = 3;
        let create = CreateRequest::Create2 {
            handshake_type,
            data,
        };
        world.receive(link, &create.encode(Self::CIRC_ID).unwrap());
        world.settle();
        let cell = world.expect(link, ChanCmd::CREATED2);
        let reply = CreateReply::decode(cell.command(), cell.body()).unwrap();
        let CreateReply::Created2 { data } = reply else {
            panic!("CREATED2 expected");
        };
        let mut crypt = OriginCircuit::new();
        crypt.add_hop(&state.finish(&data).unwrap().1);
        assert_eq!(crypt.is_cgo(0), terms == Terms::VegasCgo);
        AtARelay { world, link, crypt }
    }

    /// Sends a message; false: the layout has no place for it.
    fn send(&mut self, command: RelayCommand, stream: u16, data: &[u8]) -> bool {
        let mut cell = Cell::new(Self::CIRC_ID, ChanCmd::RELAY_EARLY);
        let (body, rng) = (cell.body_mut(), self.world.rng());
        relay::encode(body, command.wire(), stream, data, rng).unwrap();
        let sealed = (self.crypt).encrypt_forward(0, ChanCmd::RELAY_EARLY, body);
        if sealed.is_ok() {
            self.world.receive(self.link, &cell);
            self.world.settle();
        }
        sealed.is_ok()
    }
}

/// Handlers of relays that refuse their message, some of them for now.
fn refuses_at_relay(handler: AtRelay) -> bool {
    match handler {
        AtRelay::Refuse | AtRelay::ConfluxSwitch | AtRelay::Subdata | AtRelay::MtorAck => true,
        AtRelay::ConfluxLink
        | AtRelay::Multipath
        | AtRelay::Join
        | AtRelay::MtorDrop
        | AtRelay::ConfluxLinkedAck
        | AtRelay::Stream(_)
        | AtRelay::Open(_)
        | AtRelay::Extend2
        | AtRelay::Truncate
        | AtRelay::Drop
        | AtRelay::EstablishRendezvous
        | AtRelay::Rendezvous1
        | AtRelay::EstablishIntro
        | AtRelay::Introduce1
        | AtRelay::PaddingNegotiate
        | AtRelay::AbraAsk => false,
    }
}

/// Handlers of origins that refuse their message, some of them for now.
fn refuses_at_origin(handler: AtOrigin) -> bool {
    match handler {
        AtOrigin::Refuse
        | AtOrigin::ConfluxLinked
        | AtOrigin::ConfluxSwitch
        | AtOrigin::MultipathAck
        | AtOrigin::Joined
        | AtOrigin::MtorDropped
        | AtOrigin::MtorStopped
        | AtOrigin::Subdata
        | AtOrigin::MtorAck => true,
        AtOrigin::Stream(_)
        | AtOrigin::Extended2
        | AtOrigin::Truncated
        | AtOrigin::Drop
        | AtOrigin::AbraWeight => false,
    }
}

/// Data that a handler accepts, where it looks at any.
fn data_at_relay(command: RelayCommand) -> Vec<u8> {
    match command {
        RelayCommand::Begin => b"example.com:80\0\0\0\0\0".to_vec(),
        RelayCommand::Resolve => b"example.com\0".to_vec(),
        RelayCommand::Extend2 => world::Circuit::extend_message(9, &[1; 84]),
        RelayCommand::EstablishRendezvous => vec![3; 20],
        RelayCommand::Rendezvous1 => vec![3; 84],
        RelayCommand::AbraAsk => weft_cell::abra::ASK.to_vec(),
        // For a service that is not here.
        RelayCommand::Introduce1 => [&[0; 20][..], &[2, 0, 32], &[7; 32], &[0, 1]].concat(),
        RelayCommand::PaddingNegotiate => vec![0, 2, 0, 0, 0, 0, 0, 1],
        RelayCommand::ConfluxLink => {
            let link = weft_cell::conflux_msg::Link {
                nonce: [7; 32],
                last_seqno_sent: 0,
                last_seqno_recv: 0,
                desired_ux: weft_cell::conflux_msg::DesiredUx::NoOpinion,
            };
            link.encode().to_vec()
        }
        RelayCommand::Multipath => mtor_msg::Multipath { secret: [7; 16] }.encode().to_vec(),
        RelayCommand::Join => {
            let (tunnel, secret) = (mtor_msg::TunnelId(1), [7; 16]);
            mtor_msg::Join { tunnel, secret }.encode().to_vec()
        }
        _ => b"four".to_vec(),
    }
}

/// The counter that a handler of relays leaves a trace in, if it does.
fn trace_at_relay(handler: AtRelay, totals: &Totals) -> Option<u64> {
    match handler {
        AtRelay::Open(_) => {
            let streams = &totals.streams;
            Some(streams.begin + streams.begin_dir + streams.resolve)
        }
        AtRelay::Drop => Some(totals.drops_received),
        // A message of no stream.
        AtRelay::Stream(StreamMessage::Sendme) => Some(totals.streams.flow_violations),
        AtRelay::Stream(_) => Some(totals.streams.stray),
        // Without congestion control there is no conflux.
        AtRelay::ConfluxLink => Some(totals.tunnels.made + totals.protocol_errors),
        AtRelay::Multipath => Some(totals.tunnels.made),
        // There is no such tunnel.
        AtRelay::Join => Some(totals.tunnels.links),
        AtRelay::Refuse
        | AtRelay::ConfluxLinkedAck
        | AtRelay::ConfluxSwitch
        | AtRelay::MtorDrop
        | AtRelay::Subdata
        | AtRelay::MtorAck => Some(totals.protocol_errors),
        AtRelay::Extend2 | AtRelay::Truncate => None,
        AtRelay::EstablishRendezvous => Some(totals.rendezvous.established),
        AtRelay::Rendezvous1 => None,
        // What it is sent is none.
        AtRelay::EstablishIntro => Some(totals.intro.establish_malformed),
        AtRelay::Introduce1 => None,
        AtRelay::PaddingNegotiate => Some(totals.circpad.started),
        AtRelay::AbraAsk => Some(totals.abra_asked),
    }
}

#[test]
fn a_relay_does_with_each_command_what_the_table_states() {
    for terms in LAYOUTS {
        for command in RelayCommand::ALL.iter().copied() {
            let what = format!("{command:?} under {terms:?}");
            let mut relay = AtARelay::new(terms);
            let (stream, unsuitable) = stream_ids(command, terms);
            if let Some(unsuitable) = unsuitable.filter(|_| terms == Terms::VegasCgo) {
                let sent = relay.send(command, unsuitable, &[]);
                assert!(!sent, "{what} has a place for stream {unsuitable}");
            }
            let data = data_at_relay(command);
            assert!(relay.send(command, stream, &data), "{what} has no place");
            let handler = command.rules().at_relay;
            let violation = relay.world.managers[0].take_violation();
            let refused = violation.is_some_and(|violation| violation.what == NOT_SERVED);
            assert_eq!(refused, refuses_at_relay(handler), "{what}: {violation:?}");
            let trace = trace_at_relay(handler, &relay.world.totals());
            assert_ne!(trace, Some(0), "{what} left no trace");
            let expected = match handler {
                // The circuit, and its tunnel.
                AtRelay::ConfluxLink if terms.is_vegas() => 2,
                AtRelay::Multipath => 2,
                AtRelay::ConfluxLink | AtRelay::ConfluxLinkedAck | AtRelay::Stream(_) => 0,
                AtRelay::Join | AtRelay::MtorDrop => 0,
                // Nobody waits for the rendezvous; the client that would be introduced has no other hop.
                AtRelay::Rendezvous1 | AtRelay::Introduce1 | AtRelay::EstablishIntro => 0,
                _ => usize::from(!refuses_at_relay(handler)),
            };
            let halves = relay.world.halves();
            assert_eq!(halves, expected, "{what}: {violation:?}");
            relay.world.audit_at_rest();
        }
    }
}

#[test]
fn an_origin_does_with_each_command_what_the_table_states() {
    for terms in LAYOUTS {
        for command in RelayCommand::ALL.iter().copied() {
            let what = format!("{command:?} under {terms:?}");
            let mut origin = AtAnOrigin::new(terms);
            let (stream, unsuitable) = stream_ids(command, terms);
            if let Some(unsuitable) = unsuitable.filter(|_| terms == Terms::VegasCgo) {
                let sent = origin.send(command, unsuitable, &[]);
                assert!(!sent, "{what} has a place for stream {unsuitable}");
            }
            // EXTENDED2: the length of a handshake, and the handshake.
            let sent = origin.send(command, stream, &[0, 2, 8, 9]);
            assert!(sent, "{what} has no place");
            let handler = command.rules().at_origin;
            let violation = origin.world.managers[0].take_violation();
            let refused = violation.is_some_and(|violation| violation.what == NOT_ASKED_FOR);
            assert_eq!(refused, refuses_at_origin(handler), "{what}: {violation:?}");
            let totals = origin.world.totals();
            let (mut answered, mut closed_by_peer, mut weighed) = (false, false, false);
            for event in &origin.world.events {
                answered |= matches!(event, OriginEvent::Answered { .. });
                weighed |= matches!(event, OriginEvent::Weight { .. });
                closed_by_peer |= matches!(event, OriginEvent::Closed { remote: true, .. });
            }
            let handled = match handler {
                AtOrigin::Stream(StreamMessage::Sendme) => totals.streams.flow_violations == 1,
                AtOrigin::Stream(_) => totals.streams.stray == 1,
                AtOrigin::Extended2 => answered,
                AtOrigin::Truncated => closed_by_peer,
                AtOrigin::Drop => totals.drops_received == 1,
                AtOrigin::AbraWeight => weighed,
                AtOrigin::Refuse
                | AtOrigin::ConfluxLinked
                | AtOrigin::ConfluxSwitch
                | AtOrigin::MultipathAck
                | AtOrigin::Joined
                | AtOrigin::MtorDropped
                | AtOrigin::MtorStopped
                | AtOrigin::Subdata
                | AtOrigin::MtorAck => totals.protocol_errors == 1,
            };
            assert!(handled, "{what}: {violation:?}");
            let open = matches!(
                handler,
                AtOrigin::Extended2 | AtOrigin::Drop | AtOrigin::AbraWeight
            );
            assert_eq!(origin.world.halves(), usize::from(open), "{what}");
            origin.world.audit_at_rest();
        }
    }
}

#[test]
fn a_weight_that_was_not_asked_for_closes_the_circuit() {
    for terms in LAYOUTS {
        let mut origin = AtAnOrigin::built(terms);
        assert!(origin.send(RelayCommand::AbraWeight, 0, b"weight"));
        let violation = origin.world.managers[0].take_violation();
        assert_eq!(violation.unwrap().what, NOT_ASKED_FOR);
        assert_eq!((origin.world.halves(), origin.weights()), (0, 0));
    }
}

#[test]
fn weights_that_come_too_often_are_dropped_and_a_flood_closes_the_circuit() {
    let mut origin = AtAnOrigin::built(Terms::Windows);
    origin.ask_weight();
    // Two in a second, of ten in a second.
    for _ in 0..10 {
        assert!(origin.send(RelayCommand::AbraWeight, 0, b"weight"));
    }
    assert_eq!(origin.weights(), 2);
    assert_eq!(origin.world.totals().abra_dropped, 8);
    // The six of these five seconds are used up.
    origin.world.pass(Duration::from_secs(1));
    assert!(origin.send(RelayCommand::AbraWeight, 0, b"weight"));
    assert_eq!((origin.weights(), origin.world.halves()), (2, 1));
    origin.world.pass(Duration::from_secs(5));
    assert!(origin.send(RelayCommand::AbraWeight, 0, b"weight"));
    assert_eq!((origin.weights(), origin.world.halves()), (3, 1));
    origin.world.pass(Duration::from_secs(1));
    for _ in 0..20 {
        assert_eq!(origin.world.halves(), 1);
        assert!(origin.send(RelayCommand::AbraWeight, 0, b"weight"));
    }
    assert_eq!(origin.world.halves(), 0);
}
