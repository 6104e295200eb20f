//! A decrypted RELAY body, read as a relay message and written again, in tor1's layout and in that of
//! Counter Galois Onion.
//!
//! Input: the body, without the zeros at its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_v1;
use weft_fuzz::zero_padded;

fuzz_target!(|input: &[u8]| {
    let body = zero_padded(input);
    under_cgo(body);
    let view = RelayBody::new(&body);
    let Ok(data) = view.data() else {
        assert!(view.length() > relay::MAX_DATA);
        return;
    };
    let mut again = [0xff; weft_cell::BODY_LEN];
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    relay::encode(&mut again, view.command(), view.stream_id(), data, &mut rng)
        .expect("this data was in a body");
    let again = RelayBody::new(&again);
    assert_eq!(again.command(), view.command());
    assert_eq!(again.stream_id(), view.stream_id());
    assert_eq!(again.data(), Ok(data));
    assert_eq!((again.recognized(), again.digest()), (0, [0; 4]));
});

/// The same bytes, as a message under Counter Galois Onion: what can be read can be written again.
fn under_cgo(body: weft_cell::Body) {
    let mut moved = body;
    relay_v1::to_tor1(&mut moved);
    let view = RelayBody::new(&moved);
    let Ok(data) = view.data() else {
        return;
    };
    let (command, stream) = (view.command(), view.stream_id());
    let mut again = moved;
    if relay_v1::from_tor1(&mut again).is_err() {
        // Only a message of a stream that names none.
        assert_eq!(stream, 0);
        return;
    }
    relay_v1::to_tor1(&mut again);
    let again = RelayBody::new(&again);
    assert_eq!((again.command(), again.stream_id()), (command, stream));
    assert_eq!(again.data(), Ok(data));
}
