//! The relay message inside a decrypted RELAY or RELAY_EARLY body.
//!
//! The layout of relay encryption "tor1" (tor-spec 6.1; "V0" in proposal 340): command 1 byte,
//! recognized 2, stream id 2, digest 4, length 2, data up to 498, padding to the end. weft-crypto
//! finds the hop that a message is for, and checks that it is authentic, by [`field::RECOGNIZED`]
//! and [`field::DIGEST`].

use rand::CryptoRng;
use tor_cell::relaycell::RelayCmd;
use weft_planted::{Fault, planted};

use crate::cell::Body;

/// Most bytes of data in one relay message.
pub const MAX_DATA: usize = 498;

/// Zero bytes between a message's data and its random padding (tor-spec 6.1), left
/// for extensions.
const PADDING_ZEROS: usize = 4;

/// Where each field lies in a body.
pub mod field {
    use std::ops::Range;

    /// Relay command of the message.
    pub const COMMAND: usize = 0;
    /// Zero when the message is for the hop that has just decrypted it.
    pub const RECOGNIZED: Range<usize> = 1..3;
    /// The stream on the circuit; 0 for the circuit itself.
    pub const STREAM_ID: Range<usize> = 3..5;
    /// First four bytes of the running digest.
    pub const DIGEST: Range<usize> = 5..9;
    /// Length of the data, in bytes.
    pub const LENGTH: Range<usize> = 9..11;
    /// Data, then padding.
    pub const DATA: Range<usize> = 11..509;
}

/// A relay message that cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// The length field points past the body: a protocol violation.
    #[error("relay message claims {0} bytes of data (at most {MAX_DATA} fit)")]
    LengthField(usize),
    /// More data than one message carries; it must be cut before.
    #[error("{0} bytes of data do not fit into one relay message (at most {MAX_DATA})")]
    TooMuchData(usize),
}

/// A decrypted body, read as a relay message.
///
/// Before the digest has been checked, the fields are whatever a cell for another
/// hop happens to hold.
#[derive(Clone, Copy)]
pub struct RelayBody<'a>(&'a Body);

impl<'a> RelayBody<'a> {
    /// Reads this body as a relay message. Only [`data`](Self::data) can fail.
    pub fn new(body: &'a Body) -> Self {
        RelayBody(body)
    }

    /// Relay command of the message.
    pub fn command(self) -> RelayCmd {
        let [command, ..] = *self.0;
        RelayCmd::from(command)
    }

    /// Zero when the message may be for this hop.
    pub fn recognized(self) -> u16 {
        let [_, r0, r1, ..] = *self.0;
        u16::from_be_bytes([r0, r1])
    }

    /// The stream on the circuit; 0 for the circuit itself.
    pub fn stream_id(self) -> u16 {
        let [_, _, _, s0, s1, ..] = *self.0;
        u16::from_be_bytes([s0, s1])
    }

    /// First four bytes of the running digest.
    pub fn digest(self) -> [u8; 4] {
        let [_, _, _, _, _, d0, d1, d2, d3, ..] = *self.0;
        [d0, d1, d2, d3]
    }

    /// Bytes of data that the message claims; more than [`MAX_DATA`] is nonsense.
    pub fn length(self) -> usize {
        let [_, _, _, _, _, _, _, _, _, l0, l1, ..] = *self.0;
        usize::from(u16::from_be_bytes([l0, l1]))
    }

    /// The message's data, without padding.
    pub fn data(self) -> Result<&'a [u8], RelayError> {
        let [_, _, _, _, _, _, _, _, _, _, _, data_and_padding @ ..] = self.0;
        let mut length = self.length();
        if length > 400 && planted(Fault::MessageCutShort) {
            length -= 1;
        }
        data_and_padding
            .get(..length)
            .ok_or(RelayError::LengthField(length))
    }
}

/// Writes a relay message into `body`, all of it.
///
/// `recognized` and `digest` become zero, for weft-crypto to fill. After the data
/// come four zero bytes and then random ones, so that no peer can predict the
/// digests that authenticate SENDMEs (tor-spec 6.1, proposal 289). On an error
/// nothing has been written.
pub fn encode<R: CryptoRng + ?Sized>(
    body: &mut Body,
    command: RelayCmd,
    stream_id: u16,
    data: &[u8],
    rng: &mut R,
) -> Result<(), RelayError> {
    let too_much = RelayError::TooMuchData(data.len());
    let length = u16::try_from(data.len()).map_err(|_| too_much)?;
    let [c, r0, r1, s0, s1, d0, d1, d2, d3, l0, l1, rest @ ..] = body;
    let (message, padding) = rest.split_at_mut_checked(data.len()).ok_or(too_much)?;

    *c = u8::from(command);
    [*r0, *r1] = [0; 2];
    [*s0, *s1] = stream_id.to_be_bytes();
    [*d0, *d1, *d2, *d3] = [0; 4];
    [*l0, *l1] = length.to_be_bytes();
    message.copy_from_slice(data);
    let (zeros, random) = padding.split_at_mut(PADDING_ZEROS.min(padding.len()));
    zeros.fill(0);
    rng.fill_bytes(random);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::BODY_LEN;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(7)
    }

    #[test]
    fn fields_lie_where_tor_spec_6_1_puts_them() {
        let mut body = [0xee; BODY_LEN];
        encode(&mut body, RelayCmd::DATA, 0x1234, b"hello", &mut rng()).unwrap();
        assert_eq!(
            body[..20],
            [
                2, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 0
            ]
        );
        body[field::RECOGNIZED].copy_from_slice(&[0xab, 0xcd]);
        body[field::DIGEST].copy_from_slice(&[1, 2, 3, 4]);
        let view = RelayBody::new(&body);
        assert_eq!(view.recognized(), 0xabcd);
        assert_eq!(view.digest(), [1, 2, 3, 4]);
        assert_eq!(view.command(), RelayCmd::DATA);
        assert_eq!(view.stream_id(), 0x1234);
        assert_eq!(body[field::STREAM_ID], [0x12, 0x34]);
        assert_eq!(body[field::LENGTH], [0, 5]);
        assert_eq!(body[field::COMMAND], 2);
        assert_eq!(field::DATA.len(), MAX_DATA);
        assert_eq!(field::DATA.end, BODY_LEN);
    }

    #[test]
    fn padding_is_four_zeros_and_then_random() {
        let mut rng = rng();
        let mut first = [0; BODY_LEN];
        let mut second = [0; BODY_LEN];
        encode(&mut first, RelayCmd::DROP, 0, &[], &mut rng).unwrap();
        encode(&mut second, RelayCmd::DROP, 0, &[], &mut rng).unwrap();
        assert_eq!(first[11..15], [0; 4]);
        assert_ne!(first[15..], second[15..]);
        assert!(first[15..].iter().filter(|byte| **byte == 0).count() < 50);
    }

    #[test]
    fn short_padding_is_all_zeros() {
        for len in MAX_DATA - PADDING_ZEROS..=MAX_DATA {
            let mut body = [0xee; BODY_LEN];
            encode(&mut body, RelayCmd::DATA, 1, &vec![7; len], &mut rng()).unwrap();
            assert!(body[11 + len..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_length_past_the_body_is_an_error() {
        let mut body = [0; BODY_LEN];
        body[field::LENGTH].copy_from_slice(&499u16.to_be_bytes());
        assert_eq!(
            RelayBody::new(&body).data(),
            Err(RelayError::LengthField(499))
        );
        body[field::LENGTH].copy_from_slice(&498u16.to_be_bytes());
        assert_eq!(RelayBody::new(&body).data().unwrap().len(), 498);
    }

    #[test]
    fn too_much_data_is_an_error_and_writes_nothing() {
        for len in [MAX_DATA + 1, 70_000] {
            let mut body = [0xee; BODY_LEN];
            let data = vec![0; len];
            assert_eq!(
                encode(&mut body, RelayCmd::DATA, 1, &data, &mut rng()),
                Err(RelayError::TooMuchData(len))
            );
            assert_eq!(body, [0xee; BODY_LEN]);
        }
    }

    #[test]
    fn arti_reads_what_we_write() {
        use tor_cell::relaycell::{RelayCellFormat, UnparsedRelayMsg};
        let mut body = [0; BODY_LEN];
        encode(&mut body, RelayCmd::DATA, 77, b"data", &mut rng()).unwrap();
        let format = RelayCellFormat::V0;
        let theirs = UnparsedRelayMsg::from_singleton_body(format, Box::new(body)).unwrap();
        assert_eq!(theirs.cmd(), RelayCmd::DATA);
        assert_eq!(theirs.stream_id().map(u16::from), Some(77));
        assert_eq!(theirs.data_len().unwrap(), 4);
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            command in any::<u8>(),
            stream_id in any::<u16>(),
            data in proptest::collection::vec(any::<u8>(), 0..=MAX_DATA),
        ) {
            let mut body = [0xee; BODY_LEN];
            encode(&mut body, RelayCmd::from(command), stream_id, &data, &mut rng()).unwrap();
            let view = RelayBody::new(&body);
            prop_assert_eq!(view.recognized(), 0);
            prop_assert_eq!(view.digest(), [0; 4]);
            prop_assert_eq!(u8::from(view.command()), command);
            prop_assert_eq!(view.stream_id(), stream_id);
            prop_assert_eq!(view.length(), data.len());
            prop_assert_eq!(view.data(), Ok(&data[..]));
        }

        #[test]
        fn arbitrary_bodies_never_panic(bytes in proptest::collection::vec(any::<u8>(), BODY_LEN)) {
            let body: Body = bytes.try_into().unwrap();
            let view = RelayBody::new(&body);
            prop_assert_eq!(view.data().is_ok(), view.length() <= MAX_DATA);
        }
    }
}
