//! Messages of the extension `WeftMtor=1` (docs/extensions/mtor.md): a client joins circuits that end at one
//! exit to a tunnel, and both ends spread the messages of streams over them (Yang and Li 2015, IV). All are
//! the data of relay messages.
//!
//! Only Weft's nodes send them to each other, so what follows the fields of a message is refused: room for
//! more would be room for a tag.

use crate::cell::Body;
use crate::fields::{CutShort, Fields};
use crate::relay::{RelayBody, RelayError, field};
use crate::relay_command::{RelayCommand, is_multiplexed};
use crate::relay_v1::MAX_STREAM_DATA;

/// Bytes of SUBDATA before the data of the message within.
pub const SUBDATA_HEADER_LEN: usize = 4 + 1;
/// Most bytes of data that a message within SUBDATA has, whichever the encryption of the exit.
pub const MAX_SUBDATA: usize = MAX_STREAM_DATA - SUBDATA_HEADER_LEN;

/// The version of the extension.
const VERSION: u8 = 1;

/// Data that is not a message of this extension, or cannot be made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MtorMsgError {
    /// It ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// It is longer than its cell.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// It is of another version.
    #[error("{message} has version {version} (known: 1)")]
    Version {
        /// The message.
        message: &'static str,
        /// Its version.
        version: u8,
    },
    /// Something follows its fields.
    #[error("{message} has {len} bytes after its last field")]
    Trailing {
        /// The message.
        message: &'static str,
        /// Number of bytes that follow.
        len: usize,
    },
    /// SUBDATA holds a message that is not sent over all legs.
    #[error("SUBDATA holds relay command {0}, which may not be in it")]
    Command(u8),
    /// The message to be put into SUBDATA has too much data.
    #[error("{0} bytes of data do not fit into SUBDATA (at most {MAX_SUBDATA})")]
    TooLong(usize),
}

/// A tunnel of an exit. The exit draws it at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelId(pub u32);

/// Sequence number of a message in one direction of a tunnel, as in SUBDATA: modulo 2^32. The first
/// is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceNumber(pub u32);

impl SequenceNumber {
    /// The sequence number of the message with this whole number.
    #[inline]
    pub const fn of(number: u64) -> SequenceNumber {
        let [_, _, _, _, a, b, c, d] = number.to_be_bytes();
        SequenceNumber(u32::from_be_bytes([a, b, c, d]))
    }

    /// The whole number that it stands for, if `expected` is the next: that one, or less than 2^31 after it.
    /// `None`: it stands for a message before that.
    #[inline]
    pub fn from_expected(self, expected: u64) -> Option<u64> {
        let ahead = self.0.wrapping_sub(SequenceNumber::of(expected).0);
        (ahead < 1 << 31).then(|| expected.wrapping_add(u64::from(ahead)))
    }
}

/// Bytes of the secret by which an exit knows that the legs of a tunnel are one client's.
pub const SECRET_LEN: usize = 16;

/// MULTIPATH: the client asks for a tunnel, whose first leg is this circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// Secret that the tunnel's other legs send to join it.
    pub secret: [u8; SECRET_LEN],
}

impl Multipath {
    const NAME: &'static str = "MULTIPATH";

    /// Reads the data of MULTIPATH.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
        version(Self::NAME, data)?;
        let mut fields = Fields::new(Self::NAME, data);
        fields.u8("version")?;
        let secret = fields.array("secret")?;
        end_of(Self::NAME, data, 1 + SECRET_LEN)?;
        Ok(Multipath { secret })
    }

    /// The data of MULTIPATH.
    pub fn encode(self) -> [u8; 1 + SECRET_LEN] {
        let mut data = [VERSION; 1 + SECRET_LEN];
        for (place, byte) in data.iter_mut().skip(1).zip(self.secret) {
            *place = byte;
        }
        data
    }
}

/// JOIN: the client asks that this circuit be a leg of a tunnel that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Secret that MULTIPATH had.
    pub secret: [u8; SECRET_LEN],
}

impl Join {
    const NAME: &'static str = "JOIN";

    /// Reads the data of JOIN.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
        version(Self::NAME, data)?;
        let mut fields = Fields::new(Self::NAME, data);
        fields.u8("version")?;
        let tunnel = TunnelId(fields.u32("tunnel id")?);
        let secret = fields.array("secret")?;
        end_of(Self::NAME, data, 5 + SECRET_LEN)?;
        Ok(Join { tunnel, secret })
    }

    /// The data of JOIN.
    pub fn encode(self) -> [u8; 5 + SECRET_LEN] {
        let fields = [VERSION]
            .into_iter()
            .chain(self.tunnel.0.to_be_bytes())
            .chain(self.secret);
        let mut data = [0; 5 + SECRET_LEN];
        for (place, byte) in data.iter_mut().zip(fields) {
            *place = byte;
        }
        data
    }
}

/// Messages that consist of a version and a tunnel id.
macro_rules! tunnel_messages {
    ($($(#[$doc:meta])* $name:ident, $wire:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                /// The tunnel.
                pub tunnel: TunnelId,
            }

            impl $name {
                #[doc = concat!("Reads the data of ", $wire, ".")]
                ///
                /// # Errors
                ///
                /// The message is malformed.
                pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
                    version($wire, data)?;
                    let mut fields = Fields::new($wire, data);
                    fields.u8("version")?;
                    let tunnel = TunnelId(fields.u32("tunnel id")?);
                    end_of($wire, data, 5)?;
                    Ok($name { tunnel })
                }

                #[doc = concat!("The data of ", $wire, ".")]
                pub const fn encode(self) -> [u8; 5] {
                    let [a, b, c, d] = self.tunnel.0.to_be_bytes();
                    [VERSION, a, b, c, d]
                }
            }
        )*
    };
}

tunnel_messages! {
    /// MULTIPATH_ACK: the exit has made the tunnel, with this circuit as its first leg.
    MultipathAck, "MULTIPATH_ACK";
    /// JOINED: this circuit is a leg of the tunnel now.
    Joined, "JOINED";
}

/// MTOR_ACK: all of the tunnel's messages before this one have arrived, on whatever leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtorAck {
    /// The number of the first that has not.
    pub next: SequenceNumber,
}

impl MtorAck {
    /// Reads the data of MTOR_ACK.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
        let next = SequenceNumber(Fields::new("MTOR_ACK", data).u32("next")?);
        end_of("MTOR_ACK", data, 4)?;
        Ok(MtorAck { next })
    }

    /// The data of MTOR_ACK.
    pub const fn encode(self) -> [u8; 4] {
        self.next.0.to_be_bytes()
    }
}

/// Messages that consist of a count.
macro_rules! count_messages {
    ($($(#[$doc:meta])* $name:ident, $wire:literal, $(#[$field_doc:meta])* $field:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                $(#[$field_doc])*
                pub $field: u64,
            }

            impl $name {
                #[doc = concat!("Reads the data of ", $wire, ".")]
                ///
                /// # Errors
                ///
                /// The message is malformed.
                pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
                    let $field = Fields::new($wire, data).u64("count")?;
                    end_of($wire, data, 8)?;
                    Ok($name { $field })
                }

                #[doc = concat!("The data of ", $wire, ".")]
                pub const fn encode(self) -> [u8; 8] {
                    self.$field.to_be_bytes()
                }
            }
        )*
    };
}

count_messages! {
    /// MTOR_DROP (RELAY_DROP in the paper, a name that tor-spec has for another command): the client uses
    /// this leg no more, and asks the exit to do the same.
    MtorDrop, "MTOR_DROP",
    /// SUBDATA messages that the client has received on this leg.
    received;
    /// MTOR_STOPPED: the exit sends nothing more on this leg; some messages were still on their
    /// way.
    MtorStopped, "MTOR_STOPPED",
    /// SUBDATA messages that the exit has sent on this leg.
    sent;
}

/// MTOR_DROPPED: the exit sends nothing more on this leg, and the client has received all that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtorDropped;

impl MtorDropped {
    /// Reads the data of MTOR_DROPPED.
    ///
    /// # Errors
    ///
    /// [`MtorMsgError::Trailing`].
    pub fn decode(data: &[u8]) -> Result<Self, MtorMsgError> {
        end_of("MTOR_DROPPED", data, 0)?;
        Ok(MtorDropped)
    }

    /// The data of MTOR_DROPPED.
    pub const fn encode(self) -> [u8; 0] {
        []
    }
}

/// SUBDATA: a message of a stream, which the tunnel numbers. It names the stream of the message within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subdata<'a> {
    /// Its number in this direction of the tunnel.
    pub sequence: SequenceNumber,
    /// The message within: one that [`is_multiplexed`].
    pub command: RelayCommand,
    /// The data of the message within.
    pub data: &'a [u8],
}

impl<'a> Subdata<'a> {
    /// Reads the data of SUBDATA. The data of the message within is not checked.
    ///
    /// # Errors
    ///
    /// It is too short, or the message within may not be in it.
    pub fn decode(data: &'a [u8]) -> Result<Self, MtorMsgError> {
        let mut fields = Fields::new("SUBDATA", data);
        let sequence = SequenceNumber(fields.u32("sequence number")?);
        let number = fields.u8("relay command")?;
        let command = RelayCommand::of(number.into())
            .filter(|_| is_multiplexed(number.into()))
            .ok_or(MtorMsgError::Command(number))?;
        Ok(Subdata {
            sequence,
            command,
            data: data.get(SUBDATA_HEADER_LEN..).unwrap_or_default(),
        })
    }

    /// Writes the data of SUBDATA into `buffer`, and returns what it is.
    ///
    /// # Errors
    ///
    /// The message within has more than [`MAX_SUBDATA`] bytes, or may not be in SUBDATA.
    pub fn encode<'b>(
        &self,
        buffer: &'b mut [u8; MAX_STREAM_DATA],
    ) -> Result<&'b [u8], MtorMsgError> {
        let number = u8::from(self.command.wire());
        if !is_multiplexed(self.command.wire()) {
            return Err(MtorMsgError::Command(number));
        }
        let too_long = MtorMsgError::TooLong(self.data.len());
        let len = SUBDATA_HEADER_LEN + self.data.len();
        let message = buffer.get_mut(..len).ok_or(too_long)?;
        let (header, data) = message
            .split_at_mut_checked(SUBDATA_HEADER_LEN)
            .ok_or(too_long)?;
        let [a, b, c, d] = self.sequence.0.to_be_bytes();
        header.copy_from_slice(&[a, b, c, d, number]);
        data.copy_from_slice(self.data);
        Ok(message)
    }
}

/// Makes a message SUBDATA that holds it, where it lies in its body (in tor1's layout, [`crate::relay`]). It
/// moves by [`SUBDATA_HEADER_LEN`] bytes; as many of the padding are lost.
///
/// # Errors
///
/// It has more than [`MAX_SUBDATA`] bytes of data, or may not be in SUBDATA. It has not been touched.
pub fn wrap_subdata(body: &mut Body, sequence: SequenceNumber) -> Result<(), MtorMsgError> {
    let view = RelayBody::new(body);
    let number = u8::from(view.command());
    if !is_multiplexed(view.command()) {
        return Err(MtorMsgError::Command(number));
    }
    let len = view.length();
    if len > MAX_SUBDATA {
        return Err(MtorMsgError::TooLong(len));
    }
    let kept = field::DATA.start..field::DATA.end - SUBDATA_HEADER_LEN;
    body.copy_within(kept, field::DATA.start + SUBDATA_HEADER_LEN);
    set_length(body, len + SUBDATA_HEADER_LEN);
    let [command, ..] = body;
    *command = RelayCommand::Subdata.wire().into();
    let [a, b, c, d] = sequence.0.to_be_bytes();
    let header = [a, b, c, d, number];
    for (place, byte) in body.iter_mut().skip(field::DATA.start).zip(header) {
        *place = byte;
    }
    Ok(())
}

/// Makes SUBDATA the message that it holds, in place in its body: the inverse of [`wrap_subdata`].
/// Some bytes at the end of the padding are duplicates.
///
/// # Errors
///
/// It is longer than its cell, or [`Subdata::decode`] refuses it. The body is unchanged then.
pub fn unwrap_subdata(body: &mut Body) -> Result<SequenceNumber, MtorMsgError> {
    let message = Subdata::decode(RelayBody::new(body).data()?)?;
    let (sequence, within, len) = (message.sequence, message.command, message.data.len());
    body.copy_within(field::DATA.start + SUBDATA_HEADER_LEN.., field::DATA.start);
    set_length(body, len);
    let [command, ..] = body;
    *command = within.wire().into();
    Ok(sequence)
}

/// Sets the length of a message, which fits into a cell.
fn set_length(body: &mut Body, len: usize) {
    let [.., high, low] = len.to_be_bytes();
    for (place, byte) in body.iter_mut().skip(field::LENGTH.start).zip([high, low]) {
        *place = byte;
    }
}

/// Reads a message's first byte, its version.
fn version(message: &'static str, data: &[u8]) -> Result<(), MtorMsgError> {
    match Fields::new(message, data).u8("version")? {
        VERSION => Ok(()),
        version => Err(MtorMsgError::Version { message, version }),
    }
}

/// Checks that a message with `len` bytes of fields ends after them.
fn end_of(message: &'static str, data: &[u8], len: usize) -> Result<(), MtorMsgError> {
    match data.len().saturating_sub(len) {
        0 => Ok(()),
        len => Err(MtorMsgError::Trailing { message, len }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const MULTIPLEXED: [RelayCommand; 8] = [
        RelayCommand::Begin,
        RelayCommand::Data,
        RelayCommand::End,
        RelayCommand::Connected,
        RelayCommand::Resolve,
        RelayCommand::Resolved,
        RelayCommand::Xoff,
        RelayCommand::Xon,
    ];

    /// The data of SUBDATA.
    fn subdata(sequence: u32, command: RelayCommand, data: &[u8]) -> Result<Vec<u8>, MtorMsgError> {
        let message = Subdata {
            sequence: SequenceNumber(sequence),
            command,
            data,
        };
        let mut buffer = [0; MAX_STREAM_DATA];
        message.encode(&mut buffer).map(<[u8]>::to_vec)
    }

    #[test]
    fn messages_as_the_extensions_document_lays_them_out() {
        let tunnel = TunnelId(0x0102_0304);
        let secret = [9; SECRET_LEN];
        assert_eq!(Multipath { secret }.encode()[..3], [1, 9, 9]);
        let join = Join { tunnel, secret }.encode();
        assert_eq!(join[..7], [1, 1, 2, 3, 4, 9, 9]);
        for data in [MultipathAck { tunnel }.encode(), Joined { tunnel }.encode()] {
            assert_eq!(data, [1, 1, 2, 3, 4]);
        }
        assert_eq!(
            MtorDrop { received: 258 }.encode(),
            [0, 0, 0, 0, 0, 0, 1, 2]
        );
        assert_eq!(MtorStopped { sent: 772 }.encode(), [0, 0, 0, 0, 0, 0, 3, 4]);
        assert!(MtorDropped.encode().is_empty());
        let next = SequenceNumber(0x0506_0708);
        assert_eq!(MtorAck { next }.encode(), [5, 6, 7, 8]);
        assert_eq!(
            subdata(0x0506_0708, RelayCommand::Data, b"abc"),
            Ok(b"\x05\x06\x07\x08\x02abc".to_vec())
        );
    }

    /// A message in its body.
    fn message(command: RelayCommand, data: &[u8]) -> Body {
        let mut body = [0x55; crate::BODY_LEN];
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        crate::relay::encode(&mut body, command.wire(), 77, data, &mut rng).unwrap();
        body
    }

    #[test]
    fn what_cannot_be_wrapped_or_unwrapped_is_not_touched() {
        for (command, len, error) in [
            (RelayCommand::Sendme, 3, MtorMsgError::Command(5)),
            (RelayCommand::Subdata, 9, MtorMsgError::Command(249)),
            (RelayCommand::Data, 484, MtorMsgError::TooLong(484)),
        ] {
            let mut body = message(command, &vec![7; len]);
            let before = body;
            assert_eq!(wrap_subdata(&mut body, SequenceNumber(1)), Err(error));
            assert_eq!(body, before);
        }
        let mut body = message(RelayCommand::Subdata, &[0, 0, 0, 1, 5]);
        let before = body;
        assert_eq!(unwrap_subdata(&mut body), Err(MtorMsgError::Command(5)));
        assert_eq!(body, before);
        [body[9], body[10]] = [255; 2];
        assert!(matches!(
            unwrap_subdata(&mut body),
            Err(MtorMsgError::Relay(_))
        ));
    }

    /// Errors of `data`, decoded as each message.
    fn errors(data: &[u8]) -> [Option<MtorMsgError>; 8] {
        [
            Multipath::decode(data).err(),
            MultipathAck::decode(data).err(),
            Join::decode(data).err(),
            Joined::decode(data).err(),
            MtorDrop::decode(data).err(),
            MtorStopped::decode(data).err(),
            MtorDropped::decode(data).err(),
            MtorAck::decode(data).err(),
        ]
    }

    #[test]
    fn other_versions_are_refused() {
        for version in [0, 2, 255] {
            let errors = errors(&[version, 0, 0, 0, 0]);
            for error in &errors[..4] {
                let is_version = matches!(
                    error,
                    Some(MtorMsgError::Version { version: named, .. }) if *named == version
                );
                assert!(is_version, "{error:?}");
            }
        }
    }

    #[test]
    fn what_is_shorter_or_longer_is_refused() {
        let lengths = [1 + SECRET_LEN, 5, 5 + SECRET_LEN, 5, 8, 8, 0, 4];
        for len in 0..600 {
            let data = vec![1; len];
            for (error, right) in errors(&data).into_iter().zip(lengths) {
                let as_expected = match error {
                    None => len == right,
                    Some(MtorMsgError::CutShort(_)) => len < right,
                    Some(MtorMsgError::Trailing { len: more, .. }) => len == right + more,
                    Some(_) => false,
                };
                assert!(as_expected, "{len} bytes for {right}: {error:?}");
            }
        }
    }

    #[test]
    fn subdata_holds_what_is_multiplexed_and_nothing_else() {
        for number in 0..=u8::MAX {
            let data = [0, 0, 0, 9, number, 7];
            let command = RelayCommand::of(number.into());
            match Subdata::decode(&data) {
                Ok(message) => {
                    assert!(MULTIPLEXED.contains(&message.command));
                    assert_eq!(subdata(9, message.command, &[7]), Ok(data.to_vec()));
                }
                Err(error) => {
                    assert_eq!(error, MtorMsgError::Command(number));
                    if let Some(command) = command {
                        assert!(!MULTIPLEXED.contains(&command));
                        assert_eq!(subdata(9, command, &[7]), Err(error));
                    }
                }
            }
        }
        for cut in 0..SUBDATA_HEADER_LEN {
            let result = Subdata::decode(&[0, 0, 0, 9, 2][..cut]);
            assert!(matches!(result, Err(MtorMsgError::CutShort(_))));
        }
    }

    #[test]
    fn subdata_fits_a_relay_message_of_either_layout() {
        let most = subdata(1, RelayCommand::Data, &[7; MAX_SUBDATA]).unwrap();
        assert_eq!(most.len(), MAX_STREAM_DATA);
        assert_eq!(
            subdata(1, RelayCommand::Data, &[7; MAX_SUBDATA + 1]),
            Err(MtorMsgError::TooLong(MAX_SUBDATA + 1))
        );
    }

    #[test]
    fn numbers_wrap() {
        let wrap = 1u64 << 32;
        assert_eq!(SequenceNumber::of(wrap + 5), SequenceNumber(5));
        assert_eq!(SequenceNumber(5).from_expected(wrap - 3), Some(wrap + 5));
        assert_eq!(SequenceNumber(u32::MAX).from_expected(wrap + 5), None);
        assert_eq!(SequenceNumber(1).from_expected(1), Some(1));
        assert_eq!(SequenceNumber(0).from_expected(1), None);
        let half = 1u32 << 31;
        assert_eq!(SequenceNumber(half).from_expected(1), Some(1 << 31));
        assert_eq!(SequenceNumber(half + 1).from_expected(1), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            tunnel in any::<u32>(),
            count in any::<u64>(),
            sequence in any::<u32>(),
            command in 0..MULTIPLEXED.len(),
            data in vec(any::<u8>(), 0..=MAX_SUBDATA),
            of_secret in any::<u8>(),
        ) {
            let tunnel = TunnelId(tunnel);
            let secret = [of_secret; SECRET_LEN];
            let multipath = Multipath { secret };
            prop_assert_eq!(Multipath::decode(&multipath.encode()), Ok(multipath));
            let ack = MultipathAck { tunnel };
            prop_assert_eq!(MultipathAck::decode(&ack.encode()), Ok(ack));
            let join = Join { tunnel, secret };
            prop_assert_eq!(Join::decode(&join.encode()), Ok(join));
            let joined = Joined { tunnel };
            prop_assert_eq!(Joined::decode(&joined.encode()), Ok(joined));
            let drop = MtorDrop { received: count };
            prop_assert_eq!(MtorDrop::decode(&drop.encode()), Ok(drop));
            let stopped = MtorStopped { sent: count };
            prop_assert_eq!(MtorStopped::decode(&stopped.encode()), Ok(stopped));
            prop_assert_eq!(MtorDropped::decode(&MtorDropped.encode()), Ok(MtorDropped));
            let message = Subdata {
                sequence: SequenceNumber(sequence),
                command: MULTIPLEXED[command],
                data: &data,
            };
            let mut buffer = [0; MAX_STREAM_DATA];
            let encoded = message.encode(&mut buffer).unwrap();
            prop_assert_eq!(Subdata::decode(encoded), Ok(message));
            let mut body = self::message(message.command, &data);
            wrap_subdata(&mut body, message.sequence).unwrap();
            let view = RelayBody::new(&body);
            prop_assert_eq!(view.command(), RelayCommand::Subdata.wire());
            prop_assert_eq!(view.data(), Ok(encoded));
            prop_assert_eq!(unwrap_subdata(&mut body), Ok(message.sequence));
            let view = RelayBody::new(&body);
            prop_assert_eq!((view.command(), view.stream_id()), (message.command.wire(), 77));
            prop_assert_eq!(view.data(), Ok(&data[..]));
        }

        #[test]
        fn any_bytes_are_refused_or_encode_as_they_were(
            data in vec(any::<u8>(), 0..24),
            version in any::<bool>(),
            command in any::<u8>(),
        ) {
            let mut data = data;
            if version && let Some(first) = data.first_mut() {
                *first = VERSION;
            }
            if let Some(place) = data.get_mut(4) {
                *place = command % 12;
            }
            if let Ok(multipath) = Multipath::decode(&data) {
                prop_assert_eq!(&multipath.encode()[..], &data[..]);
            }
            if let Ok(join) = Join::decode(&data) {
                prop_assert_eq!(&join.encode()[..], &data[..]);
            }
            for encoded in [
                MultipathAck::decode(&data).map(MultipathAck::encode),
                Joined::decode(&data).map(Joined::encode),
            ]
            .into_iter()
            .flatten()
            {
                prop_assert_eq!(&encoded[..], &data[..]);
            }
            if let Ok(drop) = MtorDrop::decode(&data) {
                prop_assert_eq!(&drop.encode()[..], &data[..]);
            }
            if let Ok(stopped) = MtorStopped::decode(&data) {
                prop_assert_eq!(&stopped.encode()[..], &data[..]);
            }
            if MtorDropped::decode(&data).is_ok() {
                prop_assert!(data.is_empty());
            }
            if let Ok(message) = Subdata::decode(&data) {
                let mut buffer = [0; MAX_STREAM_DATA];
                prop_assert_eq!(message.encode(&mut buffer).unwrap(), &data[..]);
            }
        }

        #[test]
        fn a_number_near_the_expected_one_is_recognized(
            expected in 0..u64::MAX - (1 << 32),
            ahead in 0u32..1 << 31,
            behind in 1u32..=1 << 31,
        ) {
            let number = expected + u64::from(ahead);
            prop_assert_eq!(SequenceNumber::of(number).from_expected(expected), Some(number));
            if let Some(number) = expected.checked_sub(behind.into()) {
                prop_assert_eq!(SequenceNumber::of(number).from_expected(expected), None);
            }
        }
    }
}
