//! The control messages of a link: its handshake, its padding, DESTROY.
//!
//! `decode` reads the body of a cell that [`crate::frame`] has cut; `encode` makes
//! the cell. Fixed-length messages encode to a [`Cell`], variable-length ones are
//! appended, whole cells with a 4-byte circuit id, to a buffer. Extra bytes at the
//! end of a body are ignored, as tor-spec 3 and 4 ask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tor_cell::chancell::ChanCmd;

use crate::cell::{BODY_LEN, Body, Cell};
use crate::fields::{CutShort, Fields};
use crate::frame::{self, FrameError};
use crate::reason::DestroyReason;

/// A link message that cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkMsgError {
    /// The message ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// CERTS with two certificates of one type (tor-spec 4.2 allows one).
    #[error("CERTS has two certificates of type {0} (at most one is allowed)")]
    DuplicateCert(u8),
    /// PADDING_NEGOTIATE of a version that does not exist yet.
    #[error("PADDING_NEGOTIATE has version {0} (only 0 is known)")]
    PaddingVersion(u8),
    /// PADDING_NEGOTIATE that neither starts nor stops.
    #[error("PADDING_NEGOTIATE has command {0} (1 is stop, 2 is start)")]
    PaddingCommand(u8),
    /// The message to be written has more of something than its format can hold.
    #[error("{message} cannot hold {count} {what} (at most {max})")]
    TooMany {
        /// The message being encoded.
        message: &'static str,
        /// The items that are too many.
        what: &'static str,
        /// Number of items.
        count: usize,
        /// Most items that fit.
        max: usize,
    },
    /// The message to be written is longer than a variable-length cell.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Certificate types of CERTS (tor-spec 4.2).
pub mod cert_type {
    /// Link key, certified by the RSA-1024 identity. X.509.
    pub const RSA_LINK: u8 = 1;
    /// RSA-1024 identity, self-signed. X.509.
    pub const RSA_IDENTITY: u8 = 2;
    /// RSA-1024 AUTHENTICATE key, certified by the RSA-1024 identity. X.509.
    pub const RSA_AUTHENTICATE: u8 = 3;
    /// Ed25519 signing key, signed with the identity key.
    pub const ED25519_SIGNING: u8 = 4;
    /// TLS link certificate, signed with the Ed25519 signing key.
    pub const ED25519_LINK: u8 = 5;
    /// Ed25519 AUTHENTICATE key, signed with the Ed25519 signing key.
    pub const ED25519_AUTHENTICATE: u8 = 6;
    /// Ed25519 identity, signed with the RSA identity.
    pub const RSA_TO_ED25519: u8 = 7;
}

/// CERTS (tor-spec 4.2): the keys that a peer claims to have. Variable-length.
///
/// At most one certificate of each type, so never more than 255 in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certs {
    /// Type ([`cert_type`]) and encoded certificate, in the order sent.
    pub certs: Vec<(u8, Vec<u8>)>,
}

impl Certs {
    /// Reads the body of a CERTS cell.
    pub fn decode(body: &[u8]) -> Result<Self, LinkMsgError> {
        let mut fields = Fields::new("CERTS", body);
        let count = fields.u8("number of certificates")?;
        let mut certs = Certs::default();
        for _ in 0..count {
            let cert_type = fields.u8("certificate type")?;
            let len = fields.u16("certificate length")?;
            let cert = fields.bytes("certificate", usize::from(len))?;
            if certs.get(cert_type).is_some() {
                return Err(LinkMsgError::DuplicateCert(cert_type));
            }
            certs.certs.push((cert_type, cert.to_vec()));
        }
        Ok(certs)
    }

    /// Appends the CERTS cell.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), LinkMsgError> {
        let message = "CERTS";
        let count = count_u8(message, "certificates", self.certs.len())?;
        let mut body = vec![count];
        for (index, (cert_type, cert)) in self.certs.iter().enumerate() {
            if self.certs.iter().take(index).any(|(t, _)| t == cert_type) {
                return Err(LinkMsgError::DuplicateCert(*cert_type));
            }
            let len = count_u16(message, "bytes of certificate", cert.len())?;
            body.push(*cert_type);
            body.extend_from_slice(&len.to_be_bytes());
            body.extend_from_slice(cert);
        }
        Ok(frame::encode_variable(0, ChanCmd::CERTS, &body, out)?)
    }

    /// The certificate of this type, encoded.
    pub fn get(&self, cert_type: u8) -> Option<&[u8]> {
        self.certs
            .iter()
            .find(|(t, _)| *t == cert_type)
            .map(|(_, cert)| cert.as_slice())
    }
}

/// The only authentication method in use: Ed25519-SHA256-RFC5705 (tor-spec 4.4.2).
pub const AUTH_ED25519_SHA256_RFC5705: u16 = 3;

/// AUTH_CHALLENGE (tor-spec 4.3): what an initiator that wants to authenticate
/// signs. Variable-length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthChallenge {
    /// Chosen at random by the responder.
    pub challenge: [u8; 32],
    /// Authentication methods that the responder accepts.
    pub methods: Vec<u16>,
}

impl AuthChallenge {
    /// Reads the body of an AUTH_CHALLENGE cell.
    pub fn decode(body: &[u8]) -> Result<Self, LinkMsgError> {
        let mut fields = Fields::new("AUTH_CHALLENGE", body);
        let challenge = fields.array("challenge")?;
        let count = fields.u16("number of methods")?;
        let methods = fields.bytes("methods", usize::from(count) * 2)?;
        let (pairs, _) = methods.as_chunks::<2>();
        Ok(AuthChallenge {
            challenge,
            methods: pairs.iter().copied().map(u16::from_be_bytes).collect(),
        })
    }

    /// Appends the AUTH_CHALLENGE cell.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), LinkMsgError> {
        let count = count_u16("AUTH_CHALLENGE", "methods", self.methods.len())?;
        let mut body = self.challenge.to_vec();
        body.extend_from_slice(&count.to_be_bytes());
        for method in &self.methods {
            body.extend_from_slice(&method.to_be_bytes());
        }
        let command = ChanCmd::AUTH_CHALLENGE;
        Ok(frame::encode_variable(0, command, &body, out)?)
    }
}

/// AUTHENTICATE (tor-spec 4.4): an initiator's proof of its identity.
/// Variable-length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticate {
    /// One of the methods of the responder's AUTH_CHALLENGE.
    pub method: u16,
    /// The Authentication field, whose layout the method gives.
    pub body: Vec<u8>,
}

impl Authenticate {
    /// Reads the body of an AUTHENTICATE cell.
    pub fn decode(body: &[u8]) -> Result<Self, LinkMsgError> {
        let mut fields = Fields::new("AUTHENTICATE", body);
        let method = fields.u16("method")?;
        let len = fields.u16("length")?;
        let body = fields.bytes("authentication", usize::from(len))?.to_vec();
        Ok(Authenticate { method, body })
    }

    /// Appends the AUTHENTICATE cell.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), LinkMsgError> {
        let len = count_u16("AUTHENTICATE", "bytes", self.body.len())?;
        let mut body = self.method.to_be_bytes().to_vec();
        body.extend_from_slice(&len.to_be_bytes());
        body.extend_from_slice(&self.body);
        let command = ChanCmd::AUTHENTICATE;
        Ok(frame::encode_variable(0, command, &body, out)?)
    }
}

/// NETINFO (tor-spec 4.5): the peer's clock, and the addresses of both sides.
/// Fixed-length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Netinfo {
    /// Seconds since the Unix epoch; clients send 0.
    pub timestamp: u32,
    /// The address that the sender sees us at. `None` when it has nothing that
    /// can be used: an unknown type, a wrong length, or 0.0.0.0 or ::.
    pub other_addr: Option<IpAddr>,
    /// The addresses that the sender claims; unknown types are left out.
    pub my_addrs: Vec<IpAddr>,
}

const ATYPE_IPV4: u8 = 4;
const ATYPE_IPV6: u8 = 6;

impl Netinfo {
    /// Reads the body of a NETINFO cell.
    pub fn decode(body: &[u8]) -> Result<Self, LinkMsgError> {
        let mut fields = Fields::new("NETINFO", body);
        let timestamp = fields.u32("timestamp")?;
        let other_addr = netinfo_addr(&mut fields)?.filter(|addr| !addr.is_unspecified());
        let count = fields.u8("number of addresses")?;
        let mut my_addrs = Vec::new();
        for _ in 0..count {
            my_addrs.extend(netinfo_addr(&mut fields)?);
        }
        Ok(Netinfo {
            timestamp,
            other_addr,
            my_addrs,
        })
    }

    /// Makes the NETINFO cell.
    ///
    /// An absent `other_addr` is sent as 0.0.0.0: C tor closes a link whose NETINFO
    /// has another address type there.
    pub fn encode(&self) -> Result<Cell, LinkMsgError> {
        let message = "NETINFO";
        let count = count_u8(message, "addresses", self.my_addrs.len())?;
        let mut bytes = self.timestamp.to_be_bytes().to_vec();
        let other = self.other_addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        push_netinfo_addr(&mut bytes, other);
        bytes.push(count);
        for addr in &self.my_addrs {
            push_netinfo_addr(&mut bytes, *addr);
        }
        let mut cell = Cell::new(0, ChanCmd::NETINFO);
        let Some(start) = cell.body_mut().get_mut(..bytes.len()) else {
            return Err(LinkMsgError::TooMany {
                message,
                what: "bytes of addresses",
                count: bytes.len(),
                max: BODY_LEN,
            });
        };
        start.copy_from_slice(&bytes);
        Ok(cell)
    }
}

/// One address; `None` for an unknown type, or a length that is wrong for the type.
fn netinfo_addr(fields: &mut Fields<'_>) -> Result<Option<IpAddr>, CutShort> {
    let addr_type = fields.u8("address type")?;
    let len = fields.u8("address length")?;
    let value = fields.bytes("address", usize::from(len))?;
    Ok(match addr_type {
        ATYPE_IPV4 => <[u8; 4]>::try_from(value)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).into()),
        ATYPE_IPV6 => <[u8; 16]>::try_from(value)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    })
}

fn push_netinfo_addr(out: &mut Vec<u8>, addr: IpAddr) {
    match addr {
        IpAddr::V4(v4) => {
            out.extend_from_slice(&[ATYPE_IPV4, 4]);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.extend_from_slice(&[ATYPE_IPV6, 16]);
            out.extend_from_slice(&v6.octets());
        }
    }
}

/// Start or stop of padding, in PADDING_NEGOTIATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingCommand {
    /// Send no padding on this link.
    Stop = 1,
    /// Send padding, with the given timeouts.
    Start = 2,
}

/// PADDING_NEGOTIATE (padding-spec 2.2): how a client wants its link padded.
/// Fixed-length; link protocol 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingNegotiate {
    /// Always 0.
    pub version: u8,
    /// Start or stop.
    pub command: PaddingCommand,
    /// Shortest time without cells after which padding is sent, in milliseconds.
    pub ito_low_ms: u16,
    /// Longest time without cells after which padding is sent, in milliseconds.
    pub ito_high_ms: u16,
}

impl PaddingNegotiate {
    /// Reads the body of a PADDING_NEGOTIATE cell.
    pub fn decode(body: &[u8]) -> Result<Self, LinkMsgError> {
        let mut fields = Fields::new("PADDING_NEGOTIATE", body);
        let version = fields.u8("version")?;
        if version != 0 {
            return Err(LinkMsgError::PaddingVersion(version));
        }
        let command = match fields.u8("command")? {
            1 => PaddingCommand::Stop,
            2 => PaddingCommand::Start,
            other => return Err(LinkMsgError::PaddingCommand(other)),
        };
        Ok(PaddingNegotiate {
            version,
            command,
            ito_low_ms: fields.u16("ito_low_ms")?,
            ito_high_ms: fields.u16("ito_high_ms")?,
        })
    }

    /// Makes the PADDING_NEGOTIATE cell.
    pub fn encode(&self) -> Cell {
        let mut cell = Cell::new(0, ChanCmd::PADDING_NEGOTIATE);
        let [version, command, low0, low1, high0, high1, ..] = cell.body_mut();
        *version = self.version;
        *command = self.command as u8;
        [*low0, *low1] = self.ito_low_ms.to_be_bytes();
        [*high0, *high1] = self.ito_high_ms.to_be_bytes();
        cell
    }
}

/// DESTROY (tor-spec 5.4): the end of a circuit. Fixed-length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destroy {
    /// Why.
    pub reason: DestroyReason,
}

impl Destroy {
    /// Reads the body of a DESTROY cell; every body is one.
    pub fn decode(body: &Body) -> Self {
        let [reason, ..] = *body;
        Destroy {
            reason: DestroyReason(reason),
        }
    }

    /// Makes the DESTROY cell of this circuit.
    pub fn encode(&self, circ_id: u32) -> Cell {
        let mut cell = Cell::new(circ_id, ChanCmd::DESTROY);
        let [reason, ..] = cell.body_mut();
        *reason = self.reason.0;
        cell
    }
}

/// A count as the 1-byte field that holds it.
fn count_u8(message: &'static str, what: &'static str, count: usize) -> Result<u8, LinkMsgError> {
    u8::try_from(count).map_err(|_| LinkMsgError::TooMany {
        message,
        what,
        count,
        max: usize::from(u8::MAX),
    })
}

/// A count as the 2-byte field that holds it.
fn count_u16(message: &'static str, what: &'static str, count: usize) -> Result<u16, LinkMsgError> {
    u16::try_from(count).map_err(|_| LinkMsgError::TooMany {
        message,
        what,
        count,
        max: usize::from(u16::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tor_cell::chancell::ChanMsg;
    use tor_cell::chancell::msg::AnyChanMsg;

    /// The body of the one variable-length cell in `wire`.
    fn variable(wire: &[u8], expected: ChanCmd) -> &[u8] {
        match frame::next(wire, usize::MAX) {
            Ok(Some((
                Frame::Variable {
                    circ_id: 0,
                    command,
                    body,
                },
                used,
            ))) if command == expected && used == wire.len() => body,
            other => panic!("not one {expected} cell: {other:?}"),
        }
    }

    /// Arti's reading of a body.
    fn arti(command: ChanCmd, body: &[u8]) -> Result<AnyChanMsg, tor_bytes::Error> {
        AnyChanMsg::decode_from_reader(command, &mut tor_bytes::Reader::from_slice(body))
    }

    #[test]
    fn certs_as_tor_spec_4_2_lays_them_out() {
        let body = [
            2, 4, 0, 3, b'a', b'b', b'c', 7, 0, 0, /* ignored */ 0xff,
        ];
        let certs = Certs::decode(&body).unwrap();
        assert_eq!(certs.get(cert_type::ED25519_SIGNING), Some(&b"abc"[..]));
        assert_eq!(certs.get(cert_type::RSA_TO_ED25519), Some(&[][..]));
        assert_eq!(certs.get(cert_type::RSA_LINK), None);
        let mut wire = Vec::new();
        certs.encode(&mut wire).unwrap();
        assert_eq!(wire[..7], [0, 0, 0, 0, 129, 0, 10]);
        assert_eq!(wire[7..], body[..10]);
    }

    #[test]
    fn certs_of_one_type_twice_are_refused_both_ways() {
        let body = [2, 4, 0, 0, 4, 0, 1, 9];
        assert_eq!(Certs::decode(&body), Err(LinkMsgError::DuplicateCert(4)));
        let certs = vec![(4, vec![]), (4, vec![9])];
        let mut wire = Vec::new();
        assert_eq!(
            Certs { certs }.encode(&mut wire),
            Err(LinkMsgError::DuplicateCert(4))
        );
        assert!(wire.is_empty());
    }

    #[test]
    fn certs_that_claim_more_than_they_hold_are_refused() {
        for (body, field) in [
            (&[][..], "number of certificates"),
            (&[1], "certificate type"),
            (&[1, 4, 0], "certificate length"),
            (&[1, 4, 0, 2, 9], "certificate"),
        ] {
            let message = "CERTS";
            assert_eq!(Certs::decode(body), Err(CutShort { message, field }.into()));
        }
    }

    #[test]
    fn auth_challenge_as_tor_spec_4_3_lays_it_out() {
        let mut body = vec![0x5a; 32];
        body.extend([0, 2, 0, 1, 0, 3, 0xff]);
        let challenge = AuthChallenge::decode(&body).unwrap();
        assert_eq!(challenge.challenge, [0x5a; 32]);
        assert_eq!(challenge.methods, [1, AUTH_ED25519_SHA256_RFC5705]);
        let mut wire = Vec::new();
        challenge.encode(&mut wire).unwrap();
        assert_eq!(variable(&wire, ChanCmd::AUTH_CHALLENGE), &body[..38]);
        let cut = AuthChallenge::decode(&body[..37]).unwrap_err();
        assert_eq!(cut.to_string(), "AUTH_CHALLENGE ends inside its methods");
    }

    #[test]
    fn authenticate_as_tor_spec_4_4_lays_it_out() {
        let body = [0, 3, 0, 2, 7, 8, /* ignored */ 9];
        let authenticate = Authenticate::decode(&body).unwrap();
        assert_eq!(
            (authenticate.method, &authenticate.body[..]),
            (3, &[7, 8][..])
        );
        assert!(Authenticate::decode(&body[..5]).is_err());
    }

    #[test]
    fn netinfo_as_tor_spec_4_5_lays_it_out() {
        let netinfo = Netinfo {
            timestamp: 0x6400_0001,
            other_addr: Some("192.0.2.7".parse().unwrap()),
            my_addrs: vec![
                "198.51.100.1".parse().unwrap(),
                "2001:db8::1".parse().unwrap(),
            ],
        };
        let cell = netinfo.encode().unwrap();
        let mut expected = vec![
            0x64, 0, 0, 1, 4, 4, 192, 0, 2, 7, 2, 4, 4, 198, 51, 100, 1, 6, 16,
        ];
        expected.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(cell.body()[..expected.len()], expected);
        assert!(cell.body()[expected.len()..].iter().all(|byte| *byte == 0));
        assert_eq!((cell.circ_id(), cell.command()), (0, ChanCmd::NETINFO));
        assert_eq!(Netinfo::decode(cell.body()), Ok(netinfo));
    }

    #[test]
    fn netinfo_skips_addresses_that_it_does_not_know() {
        // Type 0 (hostname), an IPv4 address of 5 bytes, then a good one.
        let mut body = [0; BODY_LEN];
        let start = [
            0, 0, 0, 0, 0, 2, b'h', b'i', 2, 4, 5, 1, 2, 3, 4, 5, 4, 4, 10, 0, 0, 1,
        ];
        body[..start.len()].copy_from_slice(&start);
        let netinfo = Netinfo::decode(&body).unwrap();
        assert_eq!(netinfo.other_addr, None);
        assert_eq!(netinfo.my_addrs, [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn netinfo_without_the_other_address_sends_0_0_0_0() {
        let cell = Netinfo::default().encode().unwrap();
        assert_eq!(cell.body()[..11], [0, 0, 0, 0, 4, 4, 0, 0, 0, 0, 0]);
        assert_eq!(Netinfo::decode(cell.body()), Ok(Netinfo::default()));
    }

    #[test]
    fn netinfo_with_too_many_addresses_is_an_error() {
        let with = |count| Netinfo {
            my_addrs: vec![Ipv6Addr::LOCALHOST.into(); count],
            ..Netinfo::default()
        };
        assert!(with(27).encode().is_ok());
        let error = with(28).encode().unwrap_err();
        assert_eq!(
            error.to_string(),
            "NETINFO cannot hold 515 bytes of addresses (at most 509)"
        );
        assert!(with(256).encode().is_err());
        let mut claims_255 = [0; BODY_LEN];
        claims_255[..11].copy_from_slice(&[0, 0, 0, 0, 4, 4, 0, 0, 0, 0, 255]);
        claims_255[11..].fill(4);
        assert!(Netinfo::decode(&claims_255).is_err());
    }

    #[test]
    fn padding_negotiate_as_padding_spec_2_2_lays_it_out() {
        let start = PaddingNegotiate {
            version: 0,
            command: PaddingCommand::Start,
            ito_low_ms: 1500,
            ito_high_ms: 9500,
        };
        let cell = start.encode();
        assert_eq!(cell.command(), ChanCmd::PADDING_NEGOTIATE);
        assert_eq!(cell.body()[..7], [0, 2, 0x05, 0xdc, 0x25, 0x1c, 0]);
        assert_eq!(PaddingNegotiate::decode(cell.body()), Ok(start));
        assert_eq!(
            PaddingNegotiate::decode(&[1, 2, 0, 0, 0, 0]),
            Err(LinkMsgError::PaddingVersion(1))
        );
        assert_eq!(
            PaddingNegotiate::decode(&[0, 3, 0, 0, 0, 0]),
            Err(LinkMsgError::PaddingCommand(3))
        );
    }

    #[test]
    fn destroy_is_one_byte_of_reason() {
        let reason = DestroyReason::DESTROYED;
        let cell = Destroy { reason }.encode(0x8000_0001);
        assert_eq!(cell.as_bytes()[..7], [0x80, 0, 0, 1, 4, 11, 0]);
        assert_eq!(Destroy::decode(cell.body()).reason, reason);
    }

    fn any_certs() -> impl Strategy<Value = Certs> {
        vec((any::<u8>(), vec(any::<u8>(), 0..300)), 0..20).prop_map(|list| {
            let mut certs = Certs::default();
            for (cert_type, cert) in list {
                if certs.get(cert_type).is_none() {
                    certs.certs.push((cert_type, cert));
                }
            }
            certs
        })
    }

    proptest! {
        #[test]
        fn certs_round_trip_and_arti_agrees(certs in any_certs()) {
            let mut wire = Vec::new();
            certs.encode(&mut wire).unwrap();
            let body = variable(&wire, ChanCmd::CERTS);
            prop_assert_eq!(&Certs::decode(body).unwrap(), &certs);
            let Ok(AnyChanMsg::Certs(theirs)) = arti(ChanCmd::CERTS, body) else {
                panic!("Arti refuses")
            };
            for (cert_type, cert) in &certs.certs {
                prop_assert_eq!(theirs.cert_body((*cert_type).into()), Some(&cert[..]));
            }
        }

        #[test]
        fn auth_challenge_round_trips_and_arti_agrees(
            challenge in any::<[u8; 32]>(),
            methods in vec(any::<u16>(), 0..40),
        ) {
            let ours = AuthChallenge { challenge, methods };
            let mut wire = Vec::new();
            ours.encode(&mut wire).unwrap();
            let body = variable(&wire, ChanCmd::AUTH_CHALLENGE);
            prop_assert_eq!(AuthChallenge::decode(body), Ok(ours.clone()));
            let Ok(AnyChanMsg::AuthChallenge(theirs)) = arti(ChanCmd::AUTH_CHALLENGE, body) else {
                panic!("Arti refuses")
            };
            prop_assert_eq!(theirs.methods(), &ours.methods[..]);
        }

        #[test]
        fn authenticate_round_trips(method in any::<u16>(), body in vec(any::<u8>(), 0..600)) {
            let ours = Authenticate { method, body };
            let mut wire = Vec::new();
            ours.encode(&mut wire).unwrap();
            prop_assert_eq!(Authenticate::decode(variable(&wire, ChanCmd::AUTHENTICATE)), Ok(ours));
        }

        #[test]
        fn netinfo_round_trips_and_arti_agrees(
            timestamp in any::<u32>(),
            other_addr in any::<Option<IpAddr>>(),
            my_addrs in vec(any::<IpAddr>(), 0..20),
        ) {
            let other_addr = other_addr.filter(|addr| !addr.is_unspecified());
            let ours = Netinfo { timestamp, other_addr, my_addrs };
            let cell = ours.encode().unwrap();
            prop_assert_eq!(&Netinfo::decode(cell.body()).unwrap(), &ours);
            let Ok(AnyChanMsg::Netinfo(theirs)) = arti(ChanCmd::NETINFO, cell.body()) else {
                panic!("Arti refuses")
            };
            prop_assert_eq!(theirs.their_addr(), ours.other_addr.as_ref());
            prop_assert_eq!(theirs.my_addrs(), &ours.my_addrs[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            body in vec(any::<u8>(), 0..BODY_LEN),
        ) {
            let mut wire = Vec::new();
            if let Ok(certs) = Certs::decode(&body) {
                prop_assert_eq!(certs.encode(&mut wire), Ok(()));
            }
            if let Ok(challenge) = AuthChallenge::decode(&body) {
                prop_assert_eq!(challenge.encode(&mut wire), Ok(()));
            }
            if let Ok(authenticate) = Authenticate::decode(&body) {
                prop_assert_eq!(authenticate.encode(&mut wire), Ok(()));
            }
            let _ = Netinfo::decode(&body);
            let _ = PaddingNegotiate::decode(&body);
        }
    }
}
