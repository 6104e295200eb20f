//! A circuit is measured by a stream that its last hop must refuse (docs/extensions/circuit-rtt.md).

use std::time::Duration;

use crate::origin::{AtAnOrigin, LAYOUTS};
use crate::pair::CIRCUIT;
use weft_cell::ChanCmd;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::RelayCommand;
use weft_core::flow::Terms;
use weft_core::origin::{OriginCommand, OriginEvent};

const NONCE: [u8; 3] = [1, 2, 3];
const EXITPOLICY: u8 = 4;

/// An origin whose probe is on its way, and its stream.
fn asked(terms: Terms) -> (AtAnOrigin, u16) {
    let mut origin = AtAnOrigin::built(terms);
    let circuit = CIRCUIT;
    origin.command(OriginCommand::Probe {
        circuit,
        nonce: NONCE,
    });
    let (command, stream, data) = sent(&mut origin);
    assert_eq!(
        (command, &data[..]),
        (RelayCommand::Begin, &b"0.1.2.3:25\0"[..])
    );
    (origin, stream)
}

/// The next message to the hop.
fn sent(origin: &mut AtAnOrigin) -> (RelayCommand, u16, Vec<u8>) {
    let cell = origin.world.expect(origin.link, ChanCmd::RELAY);
    let mut plain = [0; weft_cell::BODY_LEN];
    let hop = &mut origin.hop;
    assert!(hop.decrypt_forward_to(ChanCmd::RELAY, cell.body(), &mut plain));
    let body = RelayBody::new(&plain);
    let command = RelayCommand::of(body.command()).unwrap();
    (command, body.stream_id(), body.data().unwrap().to_vec())
}

/// Results of probes that the client got: the time that each took, and true if it was refused.
fn learnt(origin: &mut AtAnOrigin) -> Vec<(Duration, bool)> {
    let events = std::mem::take(&mut origin.world.events);
    let probed = events.into_iter().filter_map(|event| match event {
        OriginEvent::Probed {
            circuit,
            took,
            refused,
        } => {
            assert_eq!(circuit, CIRCUIT);
            Some((took, refused))
        }
        _ => None,
    });
    probed.collect()
}

/// The hop answers after three quarters of a second.
const TOOK: Duration = Duration::from_millis(750);

fn answer(origin: &mut AtAnOrigin, stream: u16, command: RelayCommand, data: &[u8]) {
    origin.world.pass(TOOK);
    assert!(origin.send(command, stream, data));
}

#[test]
fn the_time_until_the_refusal_is_reported_and_that_it_was_one() {
    for terms in LAYOUTS {
        for (data, refused) in [
            (&[EXITPOLICY, 0, 1, 2, 3, 0, 0, 1, 0][..], true),
            (&[EXITPOLICY, 0, 1, 2, 3], true),
            // Of a relay that has not read the request, or refuses for another reason.
            (&[EXITPOLICY, 0, 1, 2, 4, 0, 0, 1, 0], false),
            (&[EXITPOLICY], false),
            (&[6], false),
            (&[], false),
        ] {
            let (mut origin, stream) = asked(terms);
            answer(&mut origin, stream, RelayCommand::End, data);
            assert_eq!(learnt(&mut origin), [(TOOK, refused)], "{data:?}");
            assert_eq!(origin.world.halves(), 1);
            origin.world.audit_at_rest();
        }
    }
}

#[test]
fn a_hop_that_connects_is_sent_end_and_what_it_had_under_way_is_dropped() {
    for terms in LAYOUTS {
        let (mut origin, stream) = asked(terms);
        answer(&mut origin, stream, RelayCommand::Connected, &[]);
        assert_eq!(learnt(&mut origin), [(TOOK, false)]);
        let (command, of, _) = sent(&mut origin);
        assert_eq!((command, of), (RelayCommand::End, stream));
        assert!(origin.send(RelayCommand::Data, stream, b"hello"));
        assert!(origin.send(RelayCommand::End, stream, &[6]));
        assert_eq!(learnt(&mut origin), []);
        assert_eq!(origin.world.halves(), 1);
        origin.world.audit_at_rest();
    }
}

#[test]
fn what_is_no_answer_closes_the_circuit() {
    for terms in LAYOUTS {
        // Under Counter Galois Onion streams have no SENDME.
        let of_windows = (terms == Terms::Windows).then_some(RelayCommand::Sendme);
        let commands = [RelayCommand::Data, RelayCommand::Resolved];
        for command in commands.into_iter().chain(of_windows) {
            let (mut origin, stream) = asked(terms);
            answer(&mut origin, stream, command, b"four");
            assert_eq!(learnt(&mut origin), []);
            assert_eq!(origin.world.halves(), 0, "{command:?}");
            origin.world.audit_at_rest();
        }
    }
}

#[test]
fn a_second_answer_closes_the_circuit() {
    let (mut origin, stream) = asked(Terms::Windows);
    answer(&mut origin, stream, RelayCommand::End, &[EXITPOLICY]);
    assert!(origin.send(RelayCommand::Connected, stream, &[]));
    assert_eq!(learnt(&mut origin).len(), 1);
    assert_eq!(origin.world.halves(), 0);
}

#[test]
fn a_circuit_that_closes_while_it_is_measured_leaves_nothing() {
    let (mut origin, _) = asked(Terms::Windows);
    let link = origin.link;
    origin.world.close(link);
    origin.world.settle();
    assert_eq!(learnt(&mut origin), []);
    assert_eq!(origin.world.halves(), 0);
    origin.world.audit_at_rest();
}

#[test]
fn streams_get_other_numbers_while_a_circuit_is_measured() {
    let (mut origin, stream) = asked(Terms::Windows);
    let circuit = CIRCUIT;
    origin.command(OriginCommand::Probe {
        circuit,
        nonce: [9, 9, 9],
    });
    let (_, other, _) = sent(&mut origin);
    assert_ne!(stream, other);
    answer(
        &mut origin,
        other,
        RelayCommand::End,
        &[EXITPOLICY, 0, 9, 9, 9],
    );
    answer(
        &mut origin,
        stream,
        RelayCommand::End,
        &[EXITPOLICY, 0, 1, 2, 3],
    );
    assert_eq!(learnt(&mut origin), [(TOOK, true), (2 * TOOK, true)]);
}
