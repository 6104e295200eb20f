//! The messages of streams: BEGIN, CONNECTED, END, RESOLVE and RESOLVED (tor-spec
//! 6.2 to 6.4), and those of flow control, SENDME, XON and XOFF (tor-spec 7.3, 7.4;
//! proposal 324). All are the data of relay messages.
//!
//! DATA, BEGIN_DIR and DROP have no fields: their data is what it is, or ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fields::{CutShort, Fields};
use crate::reason::EndReason;
use crate::relay_v1;

mod flow;
mod resolve;
mod reverse;
pub use flow::{Seen, Sendme, Xoff, Xon};
pub use resolve::{Answer, AnswerKind, Resolve, Resolved};
pub use reverse::{ReverseName, is_host_name, reverse_name};

/// The time to live of an address that came without one (tor-spec 6.3).
pub const TTL_ABSENT: u32 = u32::MAX;

/// The type byte before an IPv6 address, in CONNECTED (tor-spec 6.2).
const TYPE_IPV6: u8 = 6;

/// A stream message that cannot be read or written.
///
/// An exit answers a BEGIN like that with END, reason TORPROTOCOL; in the other
/// messages it is a protocol violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamMsgError {
    /// The message ended too early.
    #[error(transparent)]
    CutShort(#[from] CutShort),
    /// A string without the NUL byte that ends it.
    #[error("BEGIN has no NUL byte after its address and port")]
    NoNul,
    /// No decimal port from 1 to 65535 after the last colon.
    #[error("BEGIN does not end its address with a port from 1 to 65535")]
    Port,
    /// The host is empty, has an invalid byte, or looks like an IPv6 address but is not one.
    #[error("{0} has an empty or impossible host name or address")]
    Host(&'static str),
    /// CONNECTED with four zeros and then not an IPv6 address.
    #[error("CONNECTED has an address of type {0} (known: 6)")]
    AddressType(u8),
    /// An answer whose length does not fit its type.
    #[error("RESOLVED has an answer of type {answer_type} with {len} bytes")]
    AnswerLength {
        /// Type of the answer (tor-spec 6.4).
        answer_type: u8,
        /// Its length in bytes.
        len: usize,
    },
    /// An unknown version.
    #[error("{message} has version {version}, which is not known")]
    Version {
        /// The message, in the specification's words.
        message: &'static str,
        /// Its version.
        version: u8,
    },
    /// SENDME of version 1 with a digest that is too short.
    #[error("SENDME of version 1 has {0} bytes of digest (it has 20, or 16 under CGO)")]
    DigestLength(usize),
    /// The message to be written does not fit into a relay message.
    #[error("{message} of {len} bytes does not fit into a relay message (at most 498)")]
    TooLong {
        /// The message, in the specification's words.
        message: &'static str,
        /// Its length in bytes.
        len: usize,
    },
}

/// The flags about address families in BEGIN (tor-spec 6.2). Bits that
/// have no meaning are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BeginFlags {
    /// Connecting to an IPv6 address is fine.
    pub ipv6_ok: bool,
    /// Connecting to an IPv4 address is not.
    pub ipv4_not_ok: bool,
    /// Where there are both, IPv6 is preferred.
    pub ipv6_preferred: bool,
}

impl BeginFlags {
    const IPV6_OK: u32 = 1;
    const IPV4_NOT_OK: u32 = 2;
    const IPV6_PREFERRED: u32 = 4;

    /// The flags as BEGIN has them.
    pub fn bits(self) -> u32 {
        let bit = |flag: bool, bit: u32| if flag { bit } else { 0 };
        bit(self.ipv6_ok, Self::IPV6_OK)
            | bit(self.ipv4_not_ok, Self::IPV4_NOT_OK)
            | bit(self.ipv6_preferred, Self::IPV6_PREFERRED)
    }
}

impl From<u32> for BeginFlags {
    fn from(bits: u32) -> Self {
        BeginFlags {
            ipv6_ok: bits & Self::IPV6_OK != 0,
            ipv4_not_ok: bits & Self::IPV4_NOT_OK != 0,
            ipv6_preferred: bits & Self::IPV6_PREFERRED != 0,
        }
    }
}

/// BEGIN (tor-spec 6.2): open a stream to a host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// A host name, an IPv4 address, or an IPv6 address without its brackets. Never
    /// empty, without NUL bytes; otherwise any bytes. `encode` does not change its
    /// case, which a client should have made lower.
    pub target: Vec<u8>,
    /// The port, never 0.
    pub port: u16,
    /// Address families that the client accepts and prefers.
    pub flags: BeginFlags,
}

impl Begin {
    /// Reads the data of a BEGIN message. Data after the flags is ignored; flags that are cut short
    /// count as missing.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        let nul = data.iter().position(|byte| *byte == 0);
        let (addr_port, rest) = nul
            .and_then(|nul| Some((data.get(..nul)?, data.get(nul..)?)))
            .ok_or(StreamMsgError::NoNul)?;
        let flags = match rest {
            [_nul, f0, f1, f2, f3, ..] => u32::from_be_bytes([*f0, *f1, *f2, *f3]),
            _ => 0,
        };
        let colon = addr_port.iter().rposition(|byte| *byte == b':');
        let (host, port) = colon
            .and_then(|colon| Some((addr_port.get(..colon)?, addr_port.get(colon + 1..)?)))
            .ok_or(StreamMsgError::Port)?;
        let target = match host {
            [b'[', ip @ .., b']'] if is_ipv6(ip) => ip,
            _ if host.is_empty() || host.contains(&b':') => {
                return Err(StreamMsgError::Host("BEGIN"));
            }
            name => name,
        };
        Ok(Begin {
            target: target.to_vec(),
            port: decimal_port(port).ok_or(StreamMsgError::Port)?,
            flags: BeginFlags::from(flags),
        })
    }

    /// The data of the BEGIN message. As in C tor, flags are left out when none is
    /// set.
    pub fn encode(&self) -> Result<Vec<u8>, StreamMsgError> {
        if self.port == 0 {
            return Err(StreamMsgError::Port);
        }
        let ipv6 = self.target.contains(&b':');
        if self.target.is_empty() || self.target.contains(&0) || ipv6 && !is_ipv6(&self.target) {
            return Err(StreamMsgError::Host("BEGIN"));
        }
        let mut data = Vec::with_capacity(self.target.len() + 13);
        data.extend(ipv6.then_some(b'['));
        data.extend_from_slice(&self.target);
        data.extend(ipv6.then_some(b']'));
        data.extend_from_slice(format!(":{}\0", self.port).as_bytes());
        if self.flags != BeginFlags::default() {
            data.extend(self.flags.bits().to_be_bytes());
        }
        fitting("BEGIN", data)
    }

    /// The address, where the target is one.
    pub fn address(&self) -> Option<IpAddr> {
        std::str::from_utf8(&self.target).ok()?.parse().ok()
    }
}

/// CONNECTED (tor-spec 6.2): the stream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The address that the exit connected to. `None` for a directory stream, or
    /// where the message has none.
    pub addr: Option<IpAddr>,
    /// Seconds for which the address may be kept; [`TTL_ABSENT`] where the message has none.
    pub ttl: u32,
}

impl Connected {
    /// Reads the data of a CONNECTED message. The answer to BEGIN_DIR is not read
    /// at all (tor-spec 6.2.1).
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        if data.is_empty() {
            return Ok(Connected {
                addr: None,
                ttl: TTL_ABSENT,
            });
        }
        let mut fields = Fields::new("CONNECTED", data);
        let ipv4: [u8; 4] = fields.array("IPv4 address")?;
        if ipv4 != [0; 4] {
            return Ok(Connected {
                addr: Some(Ipv4Addr::from(ipv4).into()),
                // C tor, too, takes an address without it.
                ttl: fields.u32("TTL").unwrap_or(TTL_ABSENT),
            });
        }
        let address_type = fields.u8("address type")?;
        if address_type != TYPE_IPV6 {
            return Err(StreamMsgError::AddressType(address_type));
        }
        let ipv6: [u8; 16] = fields.array("IPv6 address")?;
        Ok(Connected {
            addr: Some(Ipv6Addr::from(ipv6).into()),
            ttl: fields.u32("TTL")?,
        })
    }

    /// The data of the CONNECTED message. The IPv4 address 0.0.0.0, which it cannot
    /// express, is as none.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        match self.addr {
            Some(IpAddr::V4(addr)) if !addr.is_unspecified() => data.extend(addr.octets()),
            Some(IpAddr::V6(addr)) => {
                data.extend([0, 0, 0, 0, TYPE_IPV6]);
                data.extend(addr.octets());
            }
            _ => return data,
        }
        data.extend(self.ttl.to_be_bytes());
        data
    }
}

/// END (tor-spec 6.3): the stream is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// With reason EXITPOLICY: the address that the exit refused.
    pub addr: Option<IpAddr>,
    /// Seconds for which that address may be kept; [`TTL_ABSENT`] where the message has none.
    pub ttl: u32,
}

impl End {
    /// An END that carries the reason alone.
    pub fn new(reason: EndReason) -> Self {
        End {
            reason,
            addr: None,
            ttl: TTL_ABSENT,
        }
    }

    /// Reads the data of an END message; any bytes are valid. A missing reason is MISC, and an
    /// address of a wrong length counts as missing (tor-spec 6.3).
    pub fn decode(data: &[u8]) -> Self {
        let mut end = End::new(EndReason::from_end_data(data));
        if end.reason != EndReason::EXITPOLICY {
            return end;
        }
        let rest = data.get(1..).unwrap_or_default();
        let (addr, ttl) = match rest.len() {
            8 | 20 => rest.split_at(rest.len() - 4),
            _ => (rest, &[][..]),
        };
        end.addr = match addr.len() {
            4 => <[u8; 4]>::try_from(addr).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(addr).ok().map(IpAddr::from),
            _ => None,
        };
        if let Ok(ttl) = ttl.try_into() {
            end.ttl = u32::from_be_bytes(ttl);
        }
        end
    }

    /// The data of the END message.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = vec![self.reason.0];
        if self.reason == EndReason::EXITPOLICY
            && let Some(addr) = self.addr
        {
            match addr {
                IpAddr::V4(addr) => data.extend(addr.octets()),
                IpAddr::V6(addr) => data.extend(addr.octets()),
            }
            data.extend(self.ttl.to_be_bytes());
        }
        data
    }
}

/// `data`, if one relay message can carry it, whichever the encryption of its hop.
fn fitting(message: &'static str, data: Vec<u8>) -> Result<Vec<u8>, StreamMsgError> {
    match data.len() {
        ..=relay_v1::MAX_STREAM_DATA => Ok(data),
        len => Err(StreamMsgError::TooLong { message, len }),
    }
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// A port from 1 to 65535 in at most five decimal digits.
fn decimal_port(text: &[u8]) -> Option<u16> {
    if text.len() > 5 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let port = std::str::from_utf8(text).ok()?.parse().ok()?;
    (port != 0).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tor_cell::relaycell::msg::{self as arti, Body as _};

    /// Arti's reading of the same data.
    fn theirs<T: arti::Body>(data: &[u8]) -> Option<T> {
        let mut reader = tor_bytes::Reader::from_slice(data);
        T::decode_from_reader(&mut reader).ok()
    }

    fn begin(target: &str, port: u16) -> Begin {
        Begin {
            target: target.into(),
            port,
            flags: BeginFlags::default(),
        }
    }

    #[test]
    fn begin_as_tor_spec_6_2_lays_it_out() {
        let data = b"www.example.com:80\0";
        assert_eq!(Begin::decode(data), Ok(begin("www.example.com", 80)));
        assert_eq!(begin("www.example.com", 80).encode().unwrap(), data);
        assert_eq!(begin("x", 1).address(), None);

        let v4 = Begin::decode(b"192.0.2.7:65535\0\0\0\0\0").unwrap();
        assert_eq!(v4.address(), Some("192.0.2.7".parse().unwrap()));
        assert_eq!(v4.port, 65535);

        let v6 = Begin::decode(b"[2001:db8::7]:443\0\0\0\0\x05").unwrap();
        assert_eq!(v6.target, b"2001:db8::7");
        assert_eq!(v6.address(), Some("2001:db8::7".parse().unwrap()));
        assert!(v6.flags.ipv6_ok && v6.flags.ipv6_preferred && !v6.flags.ipv4_not_ok);
        assert_eq!(v6.encode().unwrap(), b"[2001:db8::7]:443\0\0\0\0\x05");
    }

    #[test]
    fn begin_flags_may_be_cut_short_or_unknown() {
        let flags = |rest: &[u8]| Begin::decode(&[b"a:1\0", rest].concat()).unwrap().flags;
        assert_eq!(flags(&[0, 0, 2]).bits(), 0);
        assert_eq!(flags(&[0xff, 0xff, 0xff, 0xfa]).bits(), 2);
        assert_eq!(flags(&[0, 0, 0, 7, 9, 9]).bits(), 7);
    }

    #[test]
    fn begins_without_a_usable_target_are_named() {
        let error = |data: &[u8]| Begin::decode(data).unwrap_err();
        assert_eq!(error(b""), StreamMsgError::NoNul);
        assert_eq!(error(b"a:80"), StreamMsgError::NoNul);
        for data in [
            &b"a\0"[..],
            b"\0",
            b"a:\0",
            b"a:0\0",
            b"a:65536\0",
            b"a:000080\0",
            b"a:+80\0",
            b"a: 80\0",
            b"a:80 \0",
            b"a:8\xff\0",
        ] {
            assert_eq!(error(data), StreamMsgError::Port, "{data:?}");
        }
        // C tor reads the last of these as an address without a port.
        for data in [
            &b":80\0"[..],
            b"[::g]:80\0",
            b"a:b:80\0",
            b"2001:db8::1:80\0",
        ] {
            assert_eq!(error(data), StreamMsgError::Host("BEGIN"), "{data:?}");
        }
        assert!(begin("", 80).encode().is_err());
        assert!(begin("a", 0).encode().is_err());
        assert!(begin("a:b", 80).encode().is_err());
        assert!(begin("a\0", 80).encode().is_err());
        assert_eq!(
            begin(&"a".repeat(495), 80).encode(),
            Err(StreamMsgError::TooLong {
                message: "BEGIN",
                len: 499
            })
        );
    }

    #[test]
    fn connected_as_tor_spec_6_2_lays_it_out() {
        let none = Connected {
            addr: None,
            ttl: TTL_ABSENT,
        };
        assert_eq!(Connected::decode(&[]), Ok(none));
        assert!(none.encode().is_empty());

        let v4 = Connected {
            addr: Some("192.0.2.1".parse().unwrap()),
            ttl: 0x0102_0304,
        };
        assert_eq!(v4.encode(), [192, 0, 2, 1, 1, 2, 3, 4]);
        assert_eq!(Connected::decode(&v4.encode()), Ok(v4));
        let without_ttl = Connected::decode(&[192, 0, 2, 1]).unwrap();
        assert_eq!((without_ttl.addr, without_ttl.ttl), (v4.addr, TTL_ABSENT));

        let v6 = Connected {
            addr: Some("2001:db8::1".parse().unwrap()),
            ttl: 60,
        };
        let data = v6.encode();
        assert_eq!(data[..9], [0, 0, 0, 0, 6, 0x20, 1, 0x0d, 0xb8]);
        assert_eq!(data.len(), 25);
        assert_eq!(Connected::decode(&data), Ok(v6));
        for cut in 1..25 {
            assert!(Connected::decode(&data[..cut]).is_err(), "cut at {cut}");
        }
        let mut wrong = data;
        wrong[4] = 4;
        assert_eq!(
            Connected::decode(&wrong),
            Err(StreamMsgError::AddressType(4))
        );
        let unspecified = Connected {
            addr: Some("0.0.0.0".parse().unwrap()),
            ttl: 1,
        };
        assert!(unspecified.encode().is_empty());
    }

    #[test]
    fn end_as_tor_spec_6_3_lays_it_out() {
        assert_eq!(End::decode(&[]), End::new(EndReason::MISC));
        assert_eq!(End::decode(&[6]), End::new(EndReason::DONE));
        // Only EXITPOLICY carries more.
        assert_eq!(
            End::decode(&[6, 1, 2, 3, 4, 0, 0, 0, 1]),
            End::new(EndReason::DONE)
        );
        let v4 = End::decode(&[4, 192, 0, 2, 1, 0, 0, 0, 9]);
        assert_eq!(v4.addr, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(v4.ttl, 9);
        assert_eq!(v4.encode(), [4, 192, 0, 2, 1, 0, 0, 0, 9]);
        assert_eq!(End::decode(&[4, 192, 0, 2, 1]).ttl, TTL_ABSENT);
        assert_eq!(
            End::decode(&[4, 192, 0, 2]),
            End::new(EndReason::EXITPOLICY)
        );
        let v6 = End {
            addr: Some("2001:db8::1".parse().unwrap()),
            ..v4
        };
        assert_eq!(v6.encode().len(), 21);
        assert_eq!(End::decode(&v6.encode()), v6);
        assert_eq!(End::decode(&v6.encode()[..17]).addr, v6.addr);
        assert_eq!(End { ..v6 }.reason, EndReason::EXITPOLICY);
    }

    fn any_ip() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (1..=u32::MAX).prop_map(|ip| IpAddr::from(Ipv4Addr::from(ip))),
            any::<u128>().prop_map(|ip| IpAddr::from(Ipv6Addr::from(ip))),
        ]
    }

    proptest! {
        #[test]
        fn begin_round_trips_and_arti_agrees(
            target in prop_oneof![
                "[a-z0-9.-]{1,80}",
                any::<u128>().prop_map(|ip| Ipv6Addr::from(ip).to_string()),
            ],
            port in 1..=u16::MAX,
            flags in 0..8u32,
        ) {
            let flags = BeginFlags::from(flags);
            let ours = Begin { target: target.clone().into_bytes(), port, flags };
            let data = ours.encode().unwrap();
            prop_assert_eq!(Begin::decode(&data), Ok(ours));
            let arti: arti::Begin = theirs(&data).unwrap();
            prop_assert_eq!(arti.addr(), target.as_bytes());
            prop_assert_eq!(arti.port(), port);
            prop_assert_eq!(arti.flags(), flags.bits().into());
        }

        #[test]
        fn connected_and_end_round_trip_and_arti_writes_the_same(
            addr in any_ip(),
            ttl in any::<u32>(),
        ) {
            let connected = Connected { addr: Some(addr), ttl };
            prop_assert_eq!(Connected::decode(&connected.encode()), Ok(connected));
            let mut data = Vec::new();
            arti::Connected::new_with_addr(addr, ttl).encode_onto(&mut data).unwrap();
            prop_assert_eq!(connected.encode(), data);

            let end = End { reason: EndReason::EXITPOLICY, addr: Some(addr), ttl };
            prop_assert_eq!(End::decode(&end.encode()), end);
            let mut data = Vec::new();
            arti::End::new_exitpolicy(addr, ttl).encode_onto(&mut data).unwrap();
            prop_assert_eq!(end.encode(), data);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            data in vec(any::<u8>(), 0..=crate::relay::MAX_DATA),
        ) {
            if let Ok(begin) = Begin::decode(&data) {
                prop_assert_eq!(Begin::decode(&begin.encode().unwrap()), Ok(begin));
            }
            if let Ok(connected) = Connected::decode(&data) {
                prop_assert_eq!(Connected::decode(&connected.encode()), Ok(connected));
            }
            let end = End::decode(&data);
            prop_assert_eq!(End::decode(&end.encode()), end);
        }
    }
}
