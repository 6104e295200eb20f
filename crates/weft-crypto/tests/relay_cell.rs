//! Relay encryption from end to end: published vectors, and circuits of three
//! hops that carry thousands of seeded cells.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha3::Shake256;
use sha3::digest::{ExtendableOutput, Update, XofReader};
use tor_cell::chancell::ChanCmd;
use weft_cell::stream_msg::Seen;
use weft_crypto::Tor1Keys;
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::relay_cell::{BODY_LEN, RelayCrypt};

type Body = [u8; BODY_LEN];

/// Cells as C tor encrypts them (recorded for Arti's tests; the key material is
/// that of C tor's test_relaycrypt.c).
#[test]
fn a_client_encrypts_as_c_tor_does() {
    let mut origin = OriginCircuit::new();
    for material in [
        b"    'My public key is in this signed x509 object', said Tom assertively.      (N-PREG-VIRYL)",
        b"'Let's chart the pedal phlanges in the tomb', said Tom cryptographically.  (PELCG-GBR-TENCU)",
        b"     'Segmentation fault bugs don't _just happen_', said Tom seethingly.        (P-GUVAT-YL)",
    ] {
        origin.add_hop(&Tor1Keys::from_key_material(material).into());
    }
    let mut data = Shake256::default()
        .chain(
            b"'You mean to tell me that there's a version of Sha-3 with no limit on the output \
              length?', said Tom shakily.",
        )
        .finalize_xof();

    let recorded: Vec<(usize, &str)> = include_str!("data/relay_cells.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (number, body) = line.split_once(' ').unwrap();
            (number.parse().unwrap(), body)
        })
        .collect();
    assert_eq!(recorded.len(), 8);

    let mut compared = 0;
    for number in 0..=50 {
        // A DATA message of 498 bytes on stream 1.
        let mut body = [0; BODY_LEN];
        body[0] = 2;
        body[4] = 1;
        body[9] = 1;
        body[10] = 242;
        data.read(&mut body[11..]);
        origin
            .encrypt_forward(2, ChanCmd::RELAY, &mut body)
            .unwrap();
        if let Some((_, expected)) = recorded.iter().find(|(n, _)| *n == number) {
            assert_eq!(hex::encode(body), *expected, "cell {number}");
            compared += 1;
        }
    }
    assert_eq!(compared, recorded.len());
}

/// A circuit: its origin, and its relays, nearest first.
struct Circuit {
    origin: OriginCircuit,
    relays: Vec<RelayCrypt>,
}

impl Circuit {
    fn new(hops: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut circuit = Self {
            origin: OriginCircuit::new(),
            relays: Vec::new(),
        };
        for _ in 0..hops {
            let mut material = [0; Tor1Keys::LEN];
            rng.fill_bytes(&mut material);
            let keys = Tor1Keys::from_key_material(&material);
            circuit.relays.push(RelayCrypt::new(&keys));
            circuit.origin.add_hop(&keys.into());
        }
        circuit
    }

    /// Sends `body` from the client, which meant it for `hop`; returns which
    /// relay recognized it.
    fn forward(&mut self, hop: usize, body: &mut Body) -> Option<usize> {
        self.seal(hop, body);
        self.pass_forward(body)
    }

    /// Makes `body` a message of the client's for `hop`.
    fn seal(&mut self, hop: usize, body: &mut Body) {
        let result = self.origin.encrypt_forward(hop, ChanCmd::RELAY, body);
        assert_eq!(result, Ok(()));
    }

    /// Passes an encrypted `body` from relay to relay; returns which one
    /// recognized it.
    fn pass_forward(&mut self, body: &mut Body) -> Option<usize> {
        self.relays
            .iter_mut()
            .position(|relay| relay.decrypt_forward(body))
    }

    /// Sends `body` from `hop`; returns the hop that the client recognizes.
    fn backward(&mut self, hop: usize, body: &mut Body) -> Option<usize> {
        self.relays[hop].originate_backward(body);
        for relay in self.relays[..hop].iter_mut().rev() {
            relay.encrypt_backward(body);
        }
        self.origin.decrypt_backward(body)
    }

    fn forward_digests(&self) -> Vec<[u8; 20]> {
        self.relays.iter().map(RelayCrypt::forward_digest).collect()
    }
}

/// A message with random contents; `recognized` and the digest field are zero,
/// as they are after decryption.
fn message(rng: &mut ChaCha8Rng) -> Body {
    let mut body = [0; BODY_LEN];
    rng.fill_bytes(&mut body);
    body[1..3].fill(0);
    body[5..9].fill(0);
    body
}

/// A number below `end`.
fn below(end: usize, rng: &mut ChaCha8Rng) -> usize {
    usize::try_from(rng.next_u32()).unwrap() % end
}

#[test]
fn every_cell_of_a_three_hop_circuit_arrives_where_it_was_meant_to() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut circuit = Circuit::new(3, &mut rng);
    for number in 0..6_000 {
        let sent = message(&mut rng);
        let hop = below(3, &mut rng);
        let mut body = sent;
        if rng.next_u32() & 1 == 0 {
            assert_eq!(circuit.forward(hop, &mut body), Some(hop), "cell {number}");
            assert_eq!(
                circuit.origin.sent(hop),
                Some(Seen::Digest(circuit.relays[hop].forward_digest())),
                "cell {number}"
            );
        } else {
            assert_eq!(circuit.backward(hop, &mut body), Some(hop), "cell {number}");
            assert_eq!(
                circuit.origin.received(hop),
                Some(Seen::Digest(circuit.relays[hop].backward_digest())),
                "cell {number}"
            );
        }
        assert_eq!(body, sent, "cell {number}");
    }
}

#[test]
fn a_cell_changed_on_the_way_is_recognized_by_no_one_and_changes_no_digest() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for number in 0..500 {
        let mut circuit = Circuit::new(3, &mut rng);
        let mut body = message(&mut rng);
        circuit.seal(2, &mut body);
        let (byte, bit) = (below(BODY_LEN, &mut rng), below(8, &mut rng));
        body[byte] ^= 1 << bit;
        let before = circuit.forward_digests();
        assert_eq!(
            circuit.pass_forward(&mut body),
            None,
            "cell {number}: bit {bit} of byte {byte}"
        );
        assert_eq!(circuit.forward_digests(), before, "cell {number}");
    }
}

#[test]
fn a_changed_cell_toward_the_origin_comes_from_no_hop() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for number in 0..500 {
        let mut circuit = Circuit::new(2, &mut rng);
        let mut body = message(&mut rng);
        circuit.relays[1].originate_backward(&mut body);
        circuit.relays[0].encrypt_backward(&mut body);
        let (byte, bit) = (below(BODY_LEN, &mut rng), below(8, &mut rng));
        body[byte] ^= 1 << bit;
        let before = [0, 1].map(|hop| circuit.origin.received(hop));
        assert_eq!(
            circuit.origin.decrypt_backward(&mut body),
            None,
            "cell {number}"
        );
        assert_eq!([0, 1].map(|hop| circuit.origin.received(hop)), before);
    }
}

#[test]
fn replayed_dropped_and_reordered_cells_are_not_recognized() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let encrypt_two = |circuit: &mut Circuit, rng: &mut ChaCha8Rng| {
        let mut cells = [message(rng), message(rng)];
        for cell in &mut cells {
            circuit.seal(2, cell);
        }
        cells
    };

    let mut circuit = Circuit::new(3, &mut rng);
    let [first, second] = encrypt_two(&mut circuit, &mut rng);
    assert_eq!(circuit.pass_forward(&mut first.clone()), Some(2));
    let before = circuit.forward_digests();
    assert_eq!(circuit.pass_forward(&mut first.clone()), None, "replayed");
    assert_eq!(
        circuit.pass_forward(&mut second.clone()),
        None,
        "after a replay"
    );
    assert_eq!(circuit.forward_digests(), before);

    let mut circuit = Circuit::new(3, &mut rng);
    let [_, mut second] = encrypt_two(&mut circuit, &mut rng);
    assert_eq!(
        circuit.pass_forward(&mut second),
        None,
        "the first was lost"
    );

    let mut circuit = Circuit::new(3, &mut rng);
    let [mut first, mut second] = encrypt_two(&mut circuit, &mut rng);
    assert_eq!(circuit.pass_forward(&mut second), None, "overtaking");
    assert_eq!(circuit.pass_forward(&mut first), None, "overtaken");
}

#[test]
fn the_two_directions_do_not_touch_each_other() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut circuit = Circuit::new(3, &mut rng);
    let before = circuit.relays[2].backward_digest();
    for _ in 0..10 {
        assert_eq!(circuit.forward(2, &mut message(&mut rng)), Some(2));
    }
    assert_eq!(circuit.relays[2].backward_digest(), before);
    assert_eq!(circuit.backward(2, &mut message(&mut rng)), Some(2));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever bytes arrive, a relay takes them without harm: an unrecognized body is the pure
    /// counter-mode decryption, and another layer of the same key stream restores it.
    #[test]
    fn arbitrary_bodies_pass_through(
        seed: u64,
        bodies in prop::collection::vec(prop::array::uniform32(any::<u8>()), 1..8),
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut material = [0; Tor1Keys::LEN];
        rng.fill_bytes(&mut material);
        let keys = Tor1Keys::from_key_material(&material);
        // Kb := Kf, so that the backward direction undoes the forward one.
        let mut mirrored = keys.clone();
        mirrored.kb = keys.kf;
        let (mut relay, mut undo) = (RelayCrypt::new(&keys), RelayCrypt::new(&mirrored));
        for bytes in bodies {
            let mut body = [0; BODY_LEN];
            rng.fill_bytes(&mut body);
            body[..32].copy_from_slice(&bytes);
            let arrived = body;
            let digest = relay.forward_digest();
            prop_assert!(!relay.decrypt_forward(&mut body));
            prop_assert_eq!(relay.forward_digest(), digest);
            undo.encrypt_backward(&mut body);
            prop_assert_eq!(body, arrived);
        }
    }
}
