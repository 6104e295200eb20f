//! The layout of relay messages under Counter Galois Onion (proposal 359; "V1" in proposal 340).
//!
//! ```text
//! tag 16 | command 1 | length 2 | stream id 2, for messages of streams | data and padding
//! ```
//!
//! Everywhere in Weft a decrypted message lies in its body as in tor1's layout ([`crate::relay`]). It
//! is moved to this one just before a layer of CGO is put on it, and back just after it was taken off.

use tor_cell::relaycell::RelayCmd;

use crate::cell::{BODY_LEN, Body};
use crate::relay::field;
use crate::relay_command::{RelayCommand, Scope};

/// Bytes of the tag, which is for weft-crypto to fill and to check.
pub const TAG_LEN: usize = 16;
/// Most bytes of data in a message of a stream.
pub const MAX_STREAM_DATA: usize = BODY_LEN - WITH_STREAM;

/// Where the data of a message that is about the circuit begins.
const WITHOUT_STREAM: usize = TAG_LEN + 3;
/// Where the data of a message of a stream begins.
const WITH_STREAM: usize = WITHOUT_STREAM + 2;
/// A length that no body has: [`RelayBody::data`](crate::relay::RelayBody::data) fails on it.
const NO_LENGTH: u16 = u16::MAX;

/// A message that cannot be encoded under CGO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{command} for stream {stream} with {len} bytes of data cannot be encoded under CGO")]
pub struct NoSuchMessage {
    /// Command of the message.
    pub command: RelayCmd,
    /// Its stream.
    pub stream: u16,
    /// Its length.
    pub len: usize,
}

/// Returns true if messages with this command name a stream (proposal 340, "Routing"). SENDME does
/// not: under CGO only circuits have them.
#[inline]
fn names_stream(command: RelayCmd) -> bool {
    match RelayCommand::of(command).map(|known| known.rules().scope) {
        Some(Scope::Stream) => true,
        Some(Scope::Circuit | Scope::Either) | None => false,
    }
}

/// Moves a message from tor1's layout to this one. The tag is left zero; of the padding the last
/// bytes are lost.
///
/// # Errors
///
/// It has no place here, and has not been touched: its data is too long, or it names a stream and must
/// not, or the other way round.
pub fn from_tor1(body: &mut Body) -> Result<(), NoSuchMessage> {
    let view = crate::relay::RelayBody::new(body);
    let (command, stream, len) = (view.command(), view.stream_id(), view.length());
    let named = names_stream(command);
    let start = if named { WITH_STREAM } else { WITHOUT_STREAM };
    if named != (stream != 0) || len > BODY_LEN - start {
        return Err(NoSuchMessage {
            command,
            stream,
            len,
        });
    }
    let kept = BODY_LEN - start;
    body.copy_within(field::DATA.start..field::DATA.start + kept, start);
    let [tag @ .., _, _, _, _, _] = body.first_chunk_mut::<WITH_STREAM>().ok_or(NoSuchMessage {
        command,
        stream,
        len,
    })?;
    *tag = [0; TAG_LEN];
    // No longer than a body, so this is exact.
    let [high, low] = u16::try_from(len).unwrap_or(NO_LENGTH).to_be_bytes();
    let stream = stream.to_be_bytes();
    let head = [command.into(), high, low, stream[0], stream[1]];
    let head_len = start - TAG_LEN;
    for (place, byte) in body.iter_mut().skip(TAG_LEN).zip(head).take(head_len) {
        *place = byte;
    }
    Ok(())
}

/// Moves a message from this layout to tor1's. One that claims more data than there is does so
/// afterwards, too: [`RelayBody::data`](crate::relay::RelayBody::data) fails on it.
pub fn to_tor1(body: &mut Body) {
    let Some(&[.., command, high, low, s0, s1]) = body.first_chunk::<WITH_STREAM>() else {
        return;
    };
    let len = u16::from_be_bytes([high, low]);
    let (start, stream) = match names_stream(command.into()) {
        true => (WITH_STREAM, [s0, s1]),
        false => (WITHOUT_STREAM, [0; 2]),
    };
    let fits = usize::from(len) <= BODY_LEN - start;
    let len = if fits { len } else { NO_LENGTH };
    body.copy_within(start.., field::DATA.start);
    if let Some(head) = body.first_chunk_mut::<{ field::DATA.start }>() {
        let [high, low] = len.to_be_bytes();
        *head = [command, 0, 0, stream[0], stream[1], 0, 0, 0, 0, high, low];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{self, MAX_DATA, RelayBody};
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn message(command: RelayCmd, stream: u16, data: &[u8]) -> Body {
        let mut body = [0xee; BODY_LEN];
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        relay::encode(&mut body, command, stream, data, &mut rng).unwrap();
        body
    }

    #[test]
    fn fields_lie_where_proposal_340_puts_them() {
        let mut body = message(RelayCmd::DATA, 0x1234, b"hello");
        from_tor1(&mut body).unwrap();
        assert_eq!(body[..16], [0; 16]);
        assert_eq!(
            body[16..30],
            [
                2, 0, 5, 0x12, 0x34, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0
            ]
        );
        let mut body = message(RelayCmd::SENDME, 0, b"hello");
        from_tor1(&mut body).unwrap();
        assert_eq!(body[16..24], [5, 0, 5, b'h', b'e', b'l', b'l', b'o']);
    }

    #[test]
    fn arti_reads_what_we_write() {
        use tor_cell::relaycell::{RelayCellFormat, UnparsedRelayMsg};
        let mut body = message(RelayCmd::DATA, 77, b"data");
        from_tor1(&mut body).unwrap();
        let format = RelayCellFormat::V1;
        let theirs = UnparsedRelayMsg::from_singleton_body(format, Box::new(body)).unwrap();
        assert_eq!(theirs.cmd(), RelayCmd::DATA);
        assert_eq!(theirs.stream_id().map(u16::from), Some(77));
        assert_eq!(theirs.data_len().unwrap(), 4);
    }

    #[test]
    fn what_cannot_be_encoded_is_an_error_and_not_touched() {
        for (command, stream, len) in [
            (RelayCmd::DATA, 0, 5),
            (RelayCmd::SENDME, 3, 5),
            (RelayCmd::DATA, 1, MAX_STREAM_DATA + 1),
            (RelayCmd::EXTEND2, 0, 491),
        ] {
            let mut body = message(command, stream, &vec![7; len]);
            let before = body;
            let result = from_tor1(&mut body);
            assert_eq!(
                result,
                Err(NoSuchMessage {
                    command,
                    stream,
                    len
                })
            );
            assert_eq!(body, before);
        }
    }

    #[test]
    fn a_message_that_fills_its_body_comes_back() {
        for (command, stream, len) in [
            (RelayCmd::DATA, 1, MAX_STREAM_DATA),
            (RelayCmd::EXTEND2, 0, 490),
        ] {
            let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut body = message(command, stream, &data);
            from_tor1(&mut body).unwrap();
            to_tor1(&mut body);
            assert_eq!(RelayBody::new(&body).data(), Ok(&data[..]));
        }
    }

    #[test]
    fn no_message_has_more_data_than_its_body() {
        for (command, most) in [(RelayCmd::DATA, 488), (RelayCmd::EXTEND2, 490)] {
            for claimed in (0..=600).chain([u16::MAX - 1, u16::MAX]) {
                let mut body = [0; BODY_LEN];
                body[TAG_LEN] = command.into();
                body[TAG_LEN + 1..TAG_LEN + 3].copy_from_slice(&claimed.to_be_bytes());
                to_tor1(&mut body);
                let data = RelayBody::new(&body).data().map(<[u8]>::len).ok();
                let expected = (claimed <= most).then_some(usize::from(claimed));
                assert_eq!(data, expected, "{command}, {claimed} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn messages_come_back(
            command in any::<u8>(),
            stream in 1u16..,
            data in proptest::collection::vec(any::<u8>(), 0..=MAX_STREAM_DATA),
        ) {
            let command = RelayCmd::from(command);
            let stream = if names_stream(command) { stream } else { 0 };
            let mut body = message(command, stream, &data);
            from_tor1(&mut body).unwrap();
            to_tor1(&mut body);
            let view = RelayBody::new(&body);
            prop_assert_eq!((view.command(), view.stream_id()), (command, stream));
            prop_assert_eq!((view.recognized(), view.digest()), (0, [0; 4]));
            prop_assert_eq!(view.data(), Ok(&data[..]));
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes in proptest::collection::vec(any::<u8>(), BODY_LEN)) {
            let mut body: Body = bytes.try_into().unwrap();
            let claimed = usize::from(u16::from_be_bytes([body[17], body[18]]));
            let most = if names_stream(body[16].into()) { 488 } else { 490 };
            to_tor1(&mut body);
            let view = RelayBody::new(&body);
            prop_assert_eq!(view.data().is_ok(), claimed <= most);
            prop_assert!(view.data().is_err() || view.length() <= MAX_DATA);
        }
    }
}
