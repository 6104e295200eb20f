//! The control messages that build and cut circuits: CREATE and CREATED cells of
//! all kinds, and EXTEND2, EXTENDED2 and TRUNCATED relay messages (tor-spec 5.1,
//! 5.4).
//!
//! What C tor refuses is refused here, too: if a relay passed it on, the next
//! relay would refuse it and log a protocol violation. TAP, dead since C tor 0.4.9, is refused by name.

use tor_cell::chancell::ChanCmd;

use crate::cell::{Body, Cell};
use crate::fields::{CutShort, Fields};
use crate::reason::DestroyReason;
use crate::relay;

mod extend2;
pub use extend2::Extend2;

/// Client handshake types (HTYPE, tor-spec 5.1).
pub mod handshake_type {
    /// The original handshake; obsolete.
    pub const TAP: u16 = 0;
    /// Reserved: never inside CREATE2.
    pub const FAST: u16 = 1;
    /// ntor (tor-spec 5.1.4).
    pub const NTOR: u16 = 2;
    /// ntor with extensions (proposal 332).
    pub const NTOR_V3: u16 = 3;
}

/// Most bytes of handshake in CREATE2: a body less HTYPE and HLEN.
pub(crate) const MAX_CREATE2_DATA: usize = 505;
/// Most bytes of handshake in CREATED2. It must fit into an EXTENDED2, too.
pub(crate) const MAX_CREATED2_DATA: usize = relay::MAX_DATA - 2;
/// Bytes of a client's ntor handshake: node id 20, key id 32, client key 32.
pub const NTOR_HANDSHAKE_LEN: usize = 84;

/// A circuit message that cannot be read or written. For the peer it is a
/// protocol violation: DESTROY with reason PROTOCOL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CircMsgError {
    /// The message ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// CREATE, CREATED, or the TAP handshake in another cell.
    #[error("the TAP handshake is obsolete and not supported")]
    Tap,
    /// CREATE_FAST's handshake inside CREATE2 or EXTEND2.
    #[error("handshake type 1 (CREATE_FAST) is reserved and not allowed here")]
    FastHandshake,
    /// Not one of the cells that create circuits.
    #[error("cell {0} does not create a circuit")]
    NotCreate(ChanCmd),
    /// Not one of the cells that answer the creation of a circuit.
    #[error("cell {0} does not answer the creation of a circuit")]
    NotCreated(ChanCmd),
    /// A handshake longer than its message.
    #[error("{message} has {len} bytes of handshake (at most {max})")]
    HandshakeTooLong {
        /// The message, in the specification's words.
        message: &'static str,
        /// Length in bytes.
        len: usize,
        /// The longest possible, in bytes.
        max: usize,
    },
    /// An ntor handshake that is not 84 bytes long.
    #[error("ntor handshake has {0} bytes (it has {NTOR_HANDSHAKE_LEN})")]
    NtorLength(usize),
    /// A link specifier whose length does not fit its type.
    #[error("EXTEND2 link specifier of type {spec_type} has {len} bytes")]
    LinkSpecifierLength {
        /// Type of the link specifier (LSTYPE).
        spec_type: u8,
        /// Its length in bytes.
        len: usize,
    },
    /// More than one identity of one kind.
    #[error("EXTEND2 has two identities of type {0} (at most one is allowed)")]
    DuplicateIdentity(u8),
    /// No RSA identity, or one of only zeros.
    #[error("EXTEND2 does not carry the RSA identity of the relay to extend to")]
    NoRsaIdentity,
    /// No address to which a connection could be made.
    #[error("EXTEND2 has no usable address of the relay to extend to")]
    NoAddress,
    /// The message to be written does not fit into a relay message.
    #[error("EXTEND2 of {0} bytes does not fit into a relay message (at most 498)")]
    TooLong(usize),
}

/// A request to create a circuit: a CREATE_FAST or CREATE2 cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateRequest {
    /// CREATE_FAST (tor-spec 5.1.5).
    Fast {
        /// The client's key material.
        x: [u8; 20],
    },
    /// CREATE2 (tor-spec 5.1).
    Create2 {
        /// HTYPE; may be an unknown one, but never TAP or FAST.
        handshake_type: u16,
        /// The client's handshake, at most [`MAX_CREATE2_DATA`] bytes; exactly 84
        /// for ntor.
        data: Vec<u8>,
    },
}

impl CreateRequest {
    /// Reads a cell that creates a circuit.
    pub fn decode(command: ChanCmd, body: &Body) -> Result<Self, CircMsgError> {
        match command {
            ChanCmd::CREATE_FAST => {
                let mut fields = Fields::new("CREATE_FAST", body);
                Ok(CreateRequest::Fast {
                    x: fields.array("X")?,
                })
            }
            ChanCmd::CREATE2 => {
                let (handshake_type, data) = client_handshake(Fields::new("CREATE2", body))?;
                Ok(CreateRequest::Create2 {
                    handshake_type,
                    data,
                })
            }
            ChanCmd::CREATE => Err(CircMsgError::Tap),
            other => Err(CircMsgError::NotCreate(other)),
        }
    }

    /// Makes the cell.
    pub fn encode(&self, circ_id: u32) -> Result<Cell, CircMsgError> {
        match self {
            CreateRequest::Fast { x } => {
                let mut cell = Cell::new(circ_id, ChanCmd::CREATE_FAST);
                write_parts(cell.body_mut(), &[x]);
                Ok(cell)
            }
            CreateRequest::Create2 {
                handshake_type,
                data,
            } => {
                check_client_handshake(*handshake_type, data)?;
                let len = handshake_len("CREATE2", data, MAX_CREATE2_DATA)?;
                let mut cell = Cell::new(circ_id, ChanCmd::CREATE2);
                let parts = [&handshake_type.to_be_bytes(), &len[..], data];
                write_parts(cell.body_mut(), &parts);
                Ok(cell)
            }
        }
    }
}

/// The answer to a [`CreateRequest`]: a CREATED_FAST or CREATED2 cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateReply {
    /// CREATED_FAST (tor-spec 5.1.5).
    Fast {
        /// The relay's key material.
        y: [u8; 20],
        /// Derivative key data, which proves that the relay knows both.
        kh: [u8; 20],
    },
    /// CREATED2 (tor-spec 5.1).
    Created2 {
        /// The relay's handshake, at most [`MAX_CREATED2_DATA`] bytes.
        data: Vec<u8>,
    },
}

impl CreateReply {
    /// Reads a cell that answers the creation of a circuit.
    pub fn decode(command: ChanCmd, body: &Body) -> Result<Self, CircMsgError> {
        match command {
            ChanCmd::CREATED_FAST => {
                let mut fields = Fields::new("CREATED_FAST", body);
                Ok(CreateReply::Fast {
                    y: fields.array("Y")?,
                    kh: fields.array("KH")?,
                })
            }
            ChanCmd::CREATED2 => Ok(CreateReply::Created2 {
                data: server_handshake("CREATED2", body)?,
            }),
            ChanCmd::CREATED => Err(CircMsgError::Tap),
            other => Err(CircMsgError::NotCreated(other)),
        }
    }

    /// Makes the cell.
    pub fn encode(&self, circ_id: u32) -> Result<Cell, CircMsgError> {
        match self {
            CreateReply::Fast { y, kh } => {
                let mut cell = Cell::new(circ_id, ChanCmd::CREATED_FAST);
                write_parts(cell.body_mut(), &[y, kh]);
                Ok(cell)
            }
            CreateReply::Created2 { data } => {
                let len = handshake_len("CREATED2", data, MAX_CREATED2_DATA)?;
                let mut cell = Cell::new(circ_id, ChanCmd::CREATED2);
                write_parts(cell.body_mut(), &[&len, data]);
                Ok(cell)
            }
        }
    }
}

/// EXTENDED2 (tor-spec 5.1.2): the next hop's answer. The data of a relay message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended2 {
    /// The handshake of its CREATED2 cell, at most [`MAX_CREATED2_DATA`] bytes.
    pub data: Vec<u8>,
}

impl Extended2 {
    /// Reads the data of an EXTENDED2 message.
    pub fn decode(data: &[u8]) -> Result<Self, CircMsgError> {
        Ok(Extended2 {
            data: server_handshake("EXTENDED2", data)?,
        })
    }

    /// The data of the EXTENDED2 message.
    pub fn encode(&self) -> Result<Vec<u8>, CircMsgError> {
        let mut data = handshake_len("EXTENDED2", &self.data, MAX_CREATED2_DATA)?.to_vec();
        data.extend_from_slice(&self.data);
        Ok(data)
    }
}

/// TRUNCATED (tor-spec 5.4): the circuit now ends at the sender. The data of a
/// relay message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Why.
    pub reason: DestroyReason,
}

impl Truncated {
    /// Reads the data of a TRUNCATED message.
    pub fn decode(data: &[u8]) -> Result<Self, CircMsgError> {
        let reason = DestroyReason(Fields::new("TRUNCATED", data).u8("reason")?);
        Ok(Truncated { reason })
    }

    /// The data of the TRUNCATED message.
    pub fn encode(&self) -> [u8; 1] {
        [self.reason.0]
    }
}

/// Reads HTYPE, HLEN and HDATA, which end CREATE2 and EXTEND2 alike.
fn client_handshake(mut fields: Fields<'_>) -> Result<(u16, Vec<u8>), CircMsgError> {
    let handshake_type = fields.u16("handshake type")?;
    let len = fields.u16("handshake length")?;
    let data = fields.bytes("handshake", usize::from(len))?.to_vec();
    check_client_handshake(handshake_type, &data)?;
    Ok((handshake_type, data))
}

/// Checks a client's handshake as C tor does before it parses it.
fn check_client_handshake(handshake_type: u16, data: &[u8]) -> Result<(), CircMsgError> {
    match handshake_type {
        handshake_type::TAP => Err(CircMsgError::Tap),
        handshake_type::FAST => Err(CircMsgError::FastHandshake),
        handshake_type::NTOR if data.len() != NTOR_HANDSHAKE_LEN => {
            Err(CircMsgError::NtorLength(data.len()))
        }
        _ => Ok(()),
    }
}

/// Reads HLEN and HDATA of CREATED2 and EXTENDED2.
fn server_handshake(message: &'static str, bytes: &[u8]) -> Result<Vec<u8>, CircMsgError> {
    let mut fields = Fields::new(message, bytes);
    let len = usize::from(fields.u16("handshake length")?);
    check_handshake_len(message, len, MAX_CREATED2_DATA)?;
    Ok(fields.bytes("handshake", len)?.to_vec())
}

/// HLEN of a handshake that may have up to `max` bytes.
fn handshake_len(
    message: &'static str,
    handshake: &[u8],
    max: usize,
) -> Result<[u8; 2], CircMsgError> {
    let len = handshake.len();
    check_handshake_len(message, len, max)?;
    match u16::try_from(len) {
        Ok(field) => Ok(field.to_be_bytes()),
        Err(_) => Err(CircMsgError::HandshakeTooLong { message, len, max }),
    }
}

fn check_handshake_len(message: &'static str, len: usize, max: usize) -> Result<(), CircMsgError> {
    if len > max {
        return Err(CircMsgError::HandshakeTooLong { message, len, max });
    }
    Ok(())
}

/// Writes `parts`, which together fit, one after the other to the start of `body`.
fn write_parts(body: &mut Body, parts: &[&[u8]]) {
    let bytes = parts.iter().copied().flatten();
    for (place, byte) in body.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::BODY_LEN;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn body(start: &[u8]) -> Body {
        let mut body = [0; BODY_LEN];
        body[..start.len()].copy_from_slice(start);
        body
    }

    /// `first`, `first` + 1, and so on.
    pub(super) fn bytes<const N: usize>(first: u8) -> [u8; N] {
        std::array::from_fn(|index| first.wrapping_add(index as u8))
    }

    #[test]
    fn create_fast_and_created_fast_as_tor_spec_5_1_5_lays_them_out() {
        let request = CreateRequest::Fast { x: bytes(1) };
        let cell = request.encode(0x8000_0001).unwrap();
        assert_eq!(cell.as_bytes()[..5], [0x80, 0, 0, 1, 5]);
        assert_eq!(cell.body()[..21], body(&bytes::<20>(1))[..21]);
        assert_eq!(
            CreateRequest::decode(cell.command(), cell.body()),
            Ok(request)
        );

        let reply = CreateReply::Fast {
            y: bytes(1),
            kh: bytes(21),
        };
        let cell = reply.encode(0x8000_0001).unwrap();
        assert_eq!(cell.command(), ChanCmd::CREATED_FAST);
        assert_eq!(cell.body()[..41], body(&bytes::<40>(1))[..41]);
        assert_eq!(CreateReply::decode(cell.command(), cell.body()), Ok(reply));
    }

    #[test]
    fn create2_and_created2_as_tor_spec_5_1_lays_them_out() {
        let request = CreateRequest::Create2 {
            handshake_type: handshake_type::NTOR,
            data: bytes::<84>(9).to_vec(),
        };
        let cell = request.encode(7).unwrap();
        assert_eq!(cell.as_bytes()[..9], [0, 0, 0, 7, 10, 0, 2, 0, 84]);
        assert_eq!(cell.body()[4..88], bytes::<84>(9));
        assert_eq!(
            CreateRequest::decode(cell.command(), cell.body()),
            Ok(request)
        );

        let reply = CreateReply::Created2 { data: vec![5, 6] };
        let cell = reply.encode(7).unwrap();
        assert_eq!(cell.as_bytes()[..10], [0, 0, 0, 7, 11, 0, 2, 5, 6, 0]);
        assert_eq!(CreateReply::decode(cell.command(), cell.body()), Ok(reply));
    }

    #[test]
    fn creates_that_c_tor_refuses_are_named() {
        let decode = CreateRequest::decode;
        let zeros = body(&[]);
        assert_eq!(decode(ChanCmd::CREATE, &zeros), Err(CircMsgError::Tap));
        assert_eq!(
            decode(ChanCmd::RELAY, &zeros),
            Err(CircMsgError::NotCreate(ChanCmd::RELAY))
        );
        let create2 = |start: &[u8]| decode(ChanCmd::CREATE2, &body(start)).map(|_| ());
        assert_eq!(create2(&[0, 0, 0, 186]), Err(CircMsgError::Tap));
        assert_eq!(create2(&[0, 1, 0, 20]), Err(CircMsgError::FastHandshake));
        assert_eq!(create2(&[0, 2, 0, 83]), Err(CircMsgError::NtorLength(83)));
        assert_eq!(create2(&[0, 3, 1, 249]), Ok(()));
        let too_long = create2(&[0, 3, 1, 250]).unwrap_err();
        assert_eq!(too_long.to_string(), "CREATE2 ends inside its handshake");
        // A handshake type of the future is not malformed, only unknown.
        assert_eq!(create2(&[0x7f, 0xff, 0, 0]), Ok(()));
    }

    #[test]
    fn created2_must_fit_into_extended2() {
        let created2 = |len: u16| {
            CreateReply::decode(ChanCmd::CREATED2, &body(&len.to_be_bytes())).map(|_| ())
        };
        assert_eq!(created2(496), Ok(()));
        let error = created2(497).unwrap_err();
        assert_eq!(
            error.to_string(),
            "CREATED2 has 497 bytes of handshake (at most 496)"
        );
        assert!(
            CreateReply::Created2 { data: vec![0; 497] }
                .encode(1)
                .is_err()
        );
        let zeros = body(&[]);
        assert_eq!(
            CreateReply::decode(ChanCmd::CREATED, &zeros),
            Err(CircMsgError::Tap)
        );
        assert_eq!(
            CreateReply::decode(ChanCmd::CREATE2, &zeros),
            Err(CircMsgError::NotCreated(ChanCmd::CREATE2))
        );
    }

    #[test]
    fn extended2_and_truncated_as_tor_spec_lays_them_out() {
        let extended = Extended2::decode(&[0, 2, 7, 8, 9]).unwrap();
        assert_eq!(extended.data, [7, 8]);
        assert_eq!(extended.encode().unwrap(), [0, 2, 7, 8]);
        assert!(Extended2::decode(&[0]).is_err());
        assert!(Extended2::decode(&[0, 3, 7, 8]).is_err());
        let reason = DestroyReason::CHANNEL_CLOSED;
        assert_eq!(Truncated::decode(&[8, 1]), Ok(Truncated { reason }));
        assert_eq!(Truncated { reason }.encode(), [8]);
        assert!(Truncated::decode(&[]).is_err());
    }

    proptest! {
        #[test]
        fn handshakes_round_trip(
            handshake_type in 3u16..,
            data in vec(any::<u8>(), 0..=MAX_CREATED2_DATA),
        ) {
            let reply = CreateReply::Created2 { data: data.clone() };
            let cell = reply.encode(1).unwrap();
            prop_assert_eq!(CreateReply::decode(cell.command(), cell.body()), Ok(reply));
            let extended = Extended2 { data: data.clone() };
            prop_assert_eq!(Extended2::decode(&extended.encode().unwrap()), Ok(extended));
            let request = CreateRequest::Create2 { handshake_type, data };
            let cell = request.encode(1).unwrap();
            prop_assert_eq!(CreateRequest::decode(cell.command(), cell.body()), Ok(request));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            command in any::<u8>(),
            body in vec(any::<u8>(), BODY_LEN),
            data in vec(any::<u8>(), 0..=relay::MAX_DATA),
        ) {
            let body: Body = body.try_into().unwrap();
            if let Ok(request) = CreateRequest::decode(command.into(), &body) {
                prop_assert!(request.encode(1).is_ok());
            }
            if let Ok(reply) = CreateReply::decode(command.into(), &body) {
                prop_assert!(reply.encode(1).is_ok());
            }
            if let Ok(extended) = Extended2::decode(&data) {
                prop_assert!(extended.encode().is_ok());
            }
            let _ = Truncated::decode(&data);
        }
    }
}
