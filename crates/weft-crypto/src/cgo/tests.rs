//! The reference implementation's vectors, and both sides of a circuit together.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::layout::REST_LEN;
use super::portable::{Prf, Tweaked};
use super::*;

const VECTORS: &str = include_str!("../../testdata/cgo.txt");

/// The fields of one vector, read one after the other.
struct Fields(Vec<&'static str>, usize);

impl Fields {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.vec().try_into().expect("a field of this length")
    }

    fn vec(&mut self) -> Vec<u8> {
        self.1 += 1;
        hex::decode(self.0[self.1 - 1]).unwrap()
    }

    fn number(&mut self) -> usize {
        self.1 += 1;
        self.0[self.1 - 1].parse().unwrap()
    }

    /// Several fields that belong together.
    fn joined<const N: usize>(&mut self, fields: usize) -> [u8; N] {
        let parts: Vec<Vec<u8>> = (0..fields).map(|_| self.vec()).collect();
        parts.concat().try_into().unwrap()
    }

    /// K, N and T'.
    fn layer<W: Way>(&mut self, by: Implementation) -> Layer<W> {
        let mut layer = by.layer(&self.joined(2));
        layer.before = self.bytes();
        layer
    }

    fn command(&mut self) -> ChanCmd {
        let [command] = self.bytes();
        command.into()
    }
}

/// Implementation under test. Where the processor has only one, both are the portable one.
#[derive(Clone, Copy)]
enum Implementation {
    Detected,
    Portable,
}

const BOTH: [Implementation; 2] = [Implementation::Detected, Implementation::Portable];

impl Implementation {
    fn uiv<W: Way>(self, keys: &[u8; WIDE_KEY_LEN]) -> Uiv<W> {
        match self {
            Self::Detected => Uiv::new(keys),
            Self::Portable => Uiv::portable(keys),
        }
    }

    fn layer<W: Way>(self, keys: &[u8; DIRECTION_LEN]) -> Layer<W> {
        let (uiv, nonce) = split(keys);
        Layer {
            uiv: self.uiv(uiv),
            nonce: *nonce,
            before: [0; TAG_LEN],
        }
    }

    fn relay(self, keys: &CgoKeys) -> CgoRelay {
        CgoRelay {
            forward: self.layer(&keys.forward),
            backward: self.layer(&keys.backward),
            kh: keys.kh,
        }
    }

    fn hop(self, keys: &CgoKeys) -> CgoHop {
        CgoHop {
            forward: self.layer(&keys.forward),
            backward: self.layer(&keys.backward),
        }
    }
}

/// All vectors of this name, for each implementation.
fn vectors_by(name: &str) -> impl Iterator<Item = (Implementation, Fields)> {
    BOTH.into_iter()
        .flat_map(|by| vectors(name).into_iter().map(move |vector| (by, vector)))
}

/// All vectors of this name.
fn vectors(name: &str) -> Vec<Fields> {
    let found: Vec<Fields> = VECTORS
        .split("\n\n")
        .filter_map(|vector| {
            let mut lines = vector.lines();
            (lines.next() == Some(name)).then(|| Fields(lines.collect(), 0))
        })
        .collect();
    assert!(found.len() > 1, "vectors of {name}");
    found
}

/// Both layers do the same from here on, so they have the same keys.
fn same<W: Way>(mut one: Layer<W>, mut other: Layer<W>) -> bool {
    let (mut first, mut second) = ([7; BODY_LEN], [7; BODY_LEN]);
    one.apply(ChanCmd::RELAY, &mut first);
    other.apply(ChanCmd::RELAY, &mut second);
    first == second && one.nonce == other.nonce && one.before == other.before
}

#[test]
fn the_block_cipher_with_a_tweak_is_the_reference_s() {
    for mut vector in vectors("et") {
        let encrypts = vector.number() == 1;
        let keys: [u8; 32] = vector.bytes();
        let tweak: [u8; 510] = vector.bytes();
        let mut block: Tag = vector.bytes();
        let (cipher, hash) = (keys.first_chunk().unwrap(), keys.last_chunk().unwrap());
        let (before, rest) = (tweak.first_chunk().unwrap(), tweak.last_chunk().unwrap());
        if encrypts {
            Tweaked::<Encrypt>::new(cipher, hash).apply(before, tweak[16], rest, &mut block);
        } else {
            Tweaked::<Decrypt>::new(cipher, hash).apply(before, tweak[16], rest, &mut block);
        }
        assert_eq!(block, vector.bytes());
    }
}

#[test]
fn the_pseudorandom_function_is_the_reference_s() {
    for mut vector in vectors("prf") {
        let keys: [u8; 32] = vector.bytes();
        let second = vector.number() == 1;
        let input = vector.bytes();
        let expected = vector.vec();
        let prf = Prf::new(keys.first_chunk().unwrap(), keys.last_chunk().unwrap());
        let mut stream = vec![0; expected.len()];
        prf.add::<32>(&input, if second { 31 } else { 0 }, &mut stream);
        // The reference shows more of the second stream than is used.
        let length = if second { DIRECTION_LEN } else { REST_LEN };
        assert!(stream.len() >= length);
        assert_eq!(stream[..length], expected[..length]);
    }
}

/// Without it every test that tries both implementations tries the portable one twice.
#[test]
fn this_processor_has_an_implementation_of_its_own() {
    if matches!(Uiv::<Encrypt>::new(&[0; WIDE_KEY_LEN]), Uiv::Portable(_)) {
        weft_testing::not_run!(
            "this processor has no VAES, VPCLMULQDQ and AVX-512: only the portable CGO is tested"
        );
    }
}

#[test]
fn the_wide_permutation_is_the_reference_s() {
    for (by, mut vector) in vectors_by("uiv") {
        let encrypts = vector.number() == 1;
        let keys = vector.bytes();
        let tweak: [u8; 17] = vector.bytes();
        let mut body: [u8; BODY_LEN] = vector.joined(2);
        let before = tweak.first_chunk().unwrap();
        if encrypts {
            by.uiv::<Encrypt>(&keys).apply(before, tweak[16], &mut body);
        } else {
            by.uiv::<Decrypt>(&keys).apply(before, tweak[16], &mut body);
        }
        assert_eq!(body, vector.joined(2));
    }
}

#[test]
fn new_keys_are_the_reference_s() {
    for (by, mut vector) in vectors_by("update") {
        let mut layer: Layer<Encrypt> = by.layer(&vector.joined(2));
        layer.update();
        assert!(same(layer, by.layer(&vector.joined(2))));
    }
}

#[test]
fn a_relay_passes_cells_on_as_the_reference_does() {
    for (by, mut vector) in vectors_by("relay") {
        let inbound = vector.number() == 1;
        let layer = vector.layer(by);
        let mut relay = CgoRelay {
            forward: layer.clone(),
            backward: layer,
            kh: [0; KH_LEN],
        };
        let command = vector.command();
        let mut body: [u8; BODY_LEN] = vector.joined(2);
        let layer = if inbound {
            relay.encrypt_backward(command, &mut body);
            relay.backward
        } else {
            assert_eq!(relay.decrypt_forward(command, &mut body), None);
            relay.forward
        };
        assert!(same(layer, vector.layer(by)));
        assert_eq!(body, vector.joined(2));
    }
}

/// A body with this after its tag.
fn with_rest(rest: &[u8]) -> [u8; BODY_LEN] {
    let mut body = [0xee; BODY_LEN];
    body[TAG_LEN..].copy_from_slice(rest);
    body
}

#[test]
fn a_relay_originates_as_the_reference_does() {
    for (by, mut vector) in vectors_by("relay-originate") {
        let layer = vector.layer(by);
        let mut relay = CgoRelay {
            forward: layer.clone(),
            backward: layer,
            kh: [0; KH_LEN],
        };
        let command = vector.command();
        let mut body = with_rest(&vector.vec());
        let sent = relay.originate_backward(command, &mut body);
        assert!(same(relay.backward, vector.layer(by)));
        assert_eq!(body, vector.joined(2));
        assert_eq!(sent, body[..TAG_LEN]);
    }
}

#[test]
fn a_client_originates_as_the_reference_does() {
    for (by, mut vector) in vectors_by("client-originate") {
        let mut hops = Vec::new();
        for _ in 0..3 {
            let layer: Layer<Decrypt> = vector.layer(by);
            hops.push(CgoHop {
                forward: layer.clone(),
                backward: layer,
            });
        }
        let hop = vector.number() - 1;
        let command = vector.command();
        let mut body = with_rest(&vector.vec());
        seal(&mut hops[..=hop], command, &mut body);
        for hop in hops {
            assert!(same(hop.forward, vector.layer(by)));
        }
        assert_eq!(body, vector.joined(2));
    }
}

/// Both sides of a circuit of three hops.
fn circuit(seed: u64) -> (Vec<CgoHop>, Vec<CgoRelay>, ChaCha8Rng) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut hops = Vec::new();
    let mut relays = Vec::new();
    for _ in 0..3 {
        let mut material = [0; CgoKeys::LEN];
        rng.fill_bytes(&mut material);
        let keys = CgoKeys::from_key_material(&material);
        hops.push(CgoHop::new(&keys));
        relays.push(CgoRelay::new(&keys));
    }
    (hops, relays, rng)
}

/// Makes a message for the last of these hops, nearest first: the tag that a SENDME for it carries.
fn seal(hops: &mut [CgoHop], command: ChanCmd, body: &mut [u8; BODY_LEN]) -> Tag {
    let (last, nearer) = hops.split_last_mut().unwrap();
    let sent = last.originate(command, body);
    for hop in nearer.iter_mut().rev() {
        hop.add(command, body);
    }
    sent
}

/// Removes the layers of a cell at the client: which hop sent it, and by which tag.
fn backward(hops: &mut [CgoHop], body: &mut [u8; BODY_LEN]) -> Option<(usize, Tag)> {
    hops.iter_mut()
        .enumerate()
        .find_map(|(number, hop)| Some((number, hop.remove(ChanCmd::RELAY, body)?)))
}

fn message(rng: &mut ChaCha8Rng) -> [u8; BODY_LEN] {
    let mut body = [0; BODY_LEN];
    rng.fill_bytes(&mut body);
    body
}

/// Brings a cell from the client forward: which hop recognizes it, and by which tag.
fn forward(
    relays: &mut [CgoRelay],
    command: ChanCmd,
    body: &mut [u8; BODY_LEN],
) -> Option<(usize, Tag)> {
    relays
        .iter_mut()
        .enumerate()
        .find_map(|(hop, relay)| Some((hop, relay.decrypt_forward(command, body)?)))
}

#[test]
fn messages_reach_their_hop_and_come_back_from_it() {
    let (mut hops, mut relays, mut rng) = circuit(1);
    for _ in 0..200 {
        let hop = rng.random_range(0..3);
        let command = [ChanCmd::RELAY, ChanCmd::RELAY_EARLY][rng.random_range(0..2)];
        let sent = message(&mut rng);
        let mut body = sent;
        let tag = seal(&mut hops[..=hop], command, &mut body);
        assert_eq!(forward(&mut relays, command, &mut body), Some((hop, tag)));
        assert_eq!(body[TAG_LEN..], sent[TAG_LEN..]);

        let hop = rng.random_range(0..3);
        let sent = message(&mut rng);
        let mut body = sent;
        let tag = relays[hop].originate_backward(ChanCmd::RELAY, &mut body);
        for relay in relays[..hop].iter_mut().rev() {
            relay.encrypt_backward(ChanCmd::RELAY, &mut body);
        }
        assert_eq!(backward(&mut hops, &mut body), Some((hop, tag)));
        assert_eq!(body[TAG_LEN..], sent[TAG_LEN..]);
    }
}

/// Both implementations for thousands of cells, with new keys and without, and from one place to
/// another as in place.
#[test]
fn this_processors_implementation_is_the_portable_one_at_the_relay() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..40 {
        let mut material = [0; CgoKeys::LEN];
        rng.fill_bytes(&mut material);
        let keys = CgoKeys::from_key_material(&material);
        let mut client = CgoHop::new(&keys);
        let [mut ours, mut reference] = BOTH.map(|by| by.relay(&keys));
        for _ in 0..50 {
            let command = ChanCmd::from(rng.random::<u8>());
            let mut body = message(&mut rng);
            let for_us = rng.random();
            if for_us {
                client.originate(command, &mut body);
            }
            let mut expected = body;
            let expected_tag = reference.decrypt_forward(command, &mut expected);
            let mut moved = [0; BODY_LEN];
            let moved_tag = ours.clone().decrypt_forward_to(command, &body, &mut moved);
            assert_eq!((moved, moved_tag), (expected, expected_tag));
            let tag = ours.decrypt_forward(command, &mut body);
            assert_eq!((body, tag), (expected, expected_tag));
            assert_eq!(tag.is_some(), for_us);
            if !for_us {
                // The client did not know of this cell.
                client.forward.before = *super::tag(&body);
            }

            let command = ChanCmd::from(rng.random::<u8>());
            let mut body = message(&mut rng);
            let mut expected = body;
            let mut moved = [0; BODY_LEN];
            if rng.random() {
                let tag = ours.originate_backward(command, &mut body);
                assert_eq!(tag, reference.originate_backward(command, &mut expected));
            } else {
                ours.clone().encrypt_backward_to(command, &body, &mut moved);
                ours.encrypt_backward(command, &mut body);
                reference.encrypt_backward(command, &mut expected);
                assert_eq!(moved, expected);
            }
            assert_eq!(body, expected);
        }
        assert!(same(ours.forward, reference.forward));
        assert!(same(ours.backward, reference.backward));
    }
}

#[test]
fn this_processors_implementation_is_the_portable_one_at_the_client() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for _ in 0..40 {
        let mut material = [0; CgoKeys::LEN];
        rng.fill_bytes(&mut material);
        let keys = CgoKeys::from_key_material(&material);
        let mut relay = CgoRelay::new(&keys);
        let [mut ours, mut reference] = BOTH.map(|by| by.hop(&keys));
        for _ in 0..50 {
            let command = ChanCmd::from(rng.random::<u8>());
            let mut body = message(&mut rng);
            let mut expected = body;
            if rng.random() {
                let tag = ours.originate(command, &mut body);
                assert_eq!(tag, reference.originate(command, &mut expected));
            } else {
                ours.add(command, &mut body);
                reference.add(command, &mut expected);
            }
            assert_eq!(body, expected);

            let command = ChanCmd::from(rng.random::<u8>());
            let mut body = message(&mut rng);
            let originated = rng.random();
            if originated {
                relay.originate_backward(command, &mut body);
            } else {
                relay.encrypt_backward(command, &mut body);
            }
            let mut expected = body;
            let tag = ours.remove(command, &mut body);
            assert_eq!(tag, reference.remove(command, &mut expected));
            assert_eq!((body, tag.is_some()), (expected, originated));
        }
        assert!(same(ours.forward, reference.forward));
        assert!(same(ours.backward, reference.backward));
    }
}

/// A body lies at any address, among bytes that are nobody's business.
#[test]
fn what_lies_around_a_body_neither_matters_nor_changes() {
    const AROUND: usize = 64;
    fn body_at(start: usize, bytes: &mut [u8]) -> &mut [u8; BODY_LEN] {
        bytes[start..].first_chunk_mut().unwrap()
    }
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut material = [0; CgoKeys::LEN];
    rng.fill_bytes(&mut material);
    let keys = CgoKeys::from_key_material(&material);
    let [mut relay, mut relays_reference] = BOTH.map(|by| by.relay(&keys));
    let [mut hop, mut hops_reference] = BOTH.map(|by| by.hop(&keys));
    for start in 0..AROUND {
        let mut bytes = [0; AROUND + BODY_LEN + AROUND];
        rng.fill_bytes(&mut bytes);
        let mut expected = bytes;
        let mut moved = bytes;
        let from = *body_at(start, &mut bytes);
        relay
            .clone()
            .encrypt_backward_to(ChanCmd::RELAY, &from, body_at(start, &mut moved));
        relay.encrypt_backward(ChanCmd::RELAY, body_at(start, &mut bytes));
        relays_reference.encrypt_backward(ChanCmd::RELAY, body_at(start, &mut expected));
        assert_eq!(bytes, expected);
        assert_eq!(moved, expected);
        hop.add(ChanCmd::RELAY, body_at(start, &mut bytes));
        hops_reference.add(ChanCmd::RELAY, body_at(start, &mut expected));
        assert_eq!(bytes, expected);
    }
}

#[test]
fn the_cell_s_command_is_part_of_what_is_encrypted() {
    let (mut hops, mut relays, mut rng) = circuit(2);
    let mut body = message(&mut rng);
    seal(&mut hops[..1], ChanCmd::RELAY_EARLY, &mut body);
    assert_eq!(forward(&mut relays, ChanCmd::RELAY, &mut body), None);
}

/// C tor takes KH from behind the keys (`onion_skin_server_handshake`).
#[test]
fn kh_is_behind_the_keys() {
    let material = std::array::from_fn(|n| u8::try_from(n).unwrap());
    let keys = CgoKeys::from_key_material(&material);
    assert_eq!((keys.forward[0], keys.backward[0]), (0, 80));
    assert_eq!((keys.kh[0], keys.kh[19]), (160, 179));
    assert_eq!(CgoRelay::new(&keys).kh(), &keys.kh);
}

#[test]
fn debug_shows_no_keys() {
    let keys = CgoKeys::from_key_material(&[0xab; CgoKeys::LEN]);
    assert_eq!(format!("{keys:?}"), "CgoKeys(..)");
    assert_eq!(format!("{:?}", CgoRelay::new(&keys)), "CgoRelay { .. }");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A relay that flips a bit, to find it flipped at the far end, finds noise: half of the bits
    /// differ, in this cell and in the next, which nobody touched.
    #[test]
    fn a_flipped_bit_makes_noise_of_the_cell_and_of_the_next(
        seed in any::<u64>(),
        bit in 0..BODY_LEN * 8,
    ) {
        let (mut hops, mut relays, mut rng) = circuit(seed);
        let sent = message(&mut rng);
        let mut body = sent;
        seal(&mut hops, ChanCmd::RELAY, &mut body);
        body[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(forward(&mut relays, ChanCmd::RELAY, &mut body), None);
        let differ = |body: &[u8], sent: &[u8]| -> u32 {
            body.iter().zip(sent).map(|(one, other)| (one ^ other).count_ones()).sum()
        };
        let bits = differ(&body[TAG_LEN..], &sent[TAG_LEN..]);
        prop_assert!((1700..2250).contains(&bits), "{} bits differ", bits);

        let sent = message(&mut rng);
        let mut body = sent;
        seal(&mut hops, ChanCmd::RELAY, &mut body);
        prop_assert_eq!(forward(&mut relays, ChanCmd::RELAY, &mut body), None);
        let bits = differ(&body[TAG_LEN..], &sent[TAG_LEN..]);
        prop_assert!((1700..2250).contains(&bits), "{} bits differ", bits);
    }
}
