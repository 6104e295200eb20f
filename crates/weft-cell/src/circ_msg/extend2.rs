//! EXTEND2 (tor-spec 5.1.2): make the circuit one hop longer.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::{CircMsgError, check_client_handshake, client_handshake, handshake_len};
use crate::fields::Fields;
use crate::identity::{Ed25519Identity, RsaIdentity};
use crate::relay;

/// Types of link specifiers (LSTYPE, tor-spec 5.1.2).
mod spec_type {
    pub(super) const IPV4: u8 = 0;
    pub(super) const IPV6: u8 = 1;
    pub(super) const RSA_ID: u8 = 2;
    pub(super) const ED25519_ID: u8 = 3;
}

/// EXTEND2 (tor-spec 5.1.2): make the circuit one hop longer. The data of a relay
/// message.
///
/// `decode` follows C tor: the first address of each family counts; addresses or ports of zero
/// count as missing, and one usable address is needed; so is the RSA identity; a second identity of
/// one kind is an error. The caller decides whether to connect to that address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extend2 {
    /// Where the relay listens by IPv4; port and address are not zero.
    pub ipv4: Option<SocketAddrV4>,
    /// Where the relay listens by IPv6; port and address are not zero.
    pub ipv6: Option<SocketAddrV6>,
    /// SHA-1 of the relay's RSA identity key. Always there after `decode`.
    pub rsa: Option<RsaIdentity>,
    /// The relay's ed25519 identity key.
    pub ed25519: Option<Ed25519Identity>,
    /// Type and bytes of every link specifier that the fields above do not hold:
    /// of unknown types, further addresses, unusable ones.
    pub link_specifiers: Vec<(u8, Vec<u8>)>,
    /// HTYPE of the CREATE2 cell that the next relay shall get; see
    /// [`super::handshake_type`].
    pub handshake_type: u16,
    /// The handshake of that CREATE2 cell.
    pub handshake: Vec<u8>,
}

impl Extend2 {
    /// Reads the data of an EXTEND2 message.
    pub fn decode(data: &[u8]) -> Result<Self, CircMsgError> {
        let mut fields = Fields::new("EXTEND2", data);
        let mut extend = Extend2::default();
        let (mut ipv4_seen, mut ipv6_seen) = (false, false);
        let count = fields.u8("number of link specifiers")?;
        for _ in 0..count {
            let spec_type = fields.u8("link specifier type")?;
            let len = usize::from(fields.u8("link specifier length")?);
            let spec = fields.bytes("link specifier", len)?;
            let wrong_length = CircMsgError::LinkSpecifierLength { spec_type, len };
            let mut held = false;
            match spec_type {
                spec_type::IPV4 => {
                    let bytes: [u8; 6] = spec.try_into().map_err(|_| wrong_length)?;
                    if !ipv4_seen {
                        ipv4_seen = true;
                        extend.ipv4 = usable_ipv4(bytes);
                        held = extend.ipv4.is_some();
                    }
                }
                spec_type::IPV6 => {
                    let bytes: [u8; 18] = spec.try_into().map_err(|_| wrong_length)?;
                    if !ipv6_seen {
                        ipv6_seen = true;
                        extend.ipv6 = usable_ipv6(bytes);
                        held = extend.ipv6.is_some();
                    }
                }
                spec_type::RSA_ID => {
                    let id: [u8; 20] = spec.try_into().map_err(|_| wrong_length)?;
                    if extend.rsa.replace(id.into()).is_some() {
                        return Err(CircMsgError::DuplicateIdentity(spec_type));
                    }
                    held = true;
                }
                spec_type::ED25519_ID => {
                    let id: [u8; 32] = spec.try_into().map_err(|_| wrong_length)?;
                    if extend.ed25519.replace(id.into()).is_some() {
                        return Err(CircMsgError::DuplicateIdentity(spec_type));
                    }
                    held = true;
                }
                _ => {}
            }
            if !held {
                extend.link_specifiers.push((spec_type, spec.to_vec()));
            }
        }
        (extend.handshake_type, extend.handshake) = client_handshake(fields)?;
        extend.check()?;
        Ok(extend)
    }

    /// The data of the EXTEND2 message: link specifiers in the order that tor-spec
    /// 5.1.2 recommends, those of `link_specifiers` last.
    pub fn encode(&self) -> Result<Vec<u8>, CircMsgError> {
        self.check()?;
        let mut count = 0usize;
        let mut specs = Vec::new();
        let mut push = |spec_type: u8, parts: [&[u8]; 2]| {
            let len = parts.iter().map(|part| part.len()).sum();
            let wrong_length = CircMsgError::LinkSpecifierLength { spec_type, len };
            specs.push(spec_type);
            specs.push(u8::try_from(len).map_err(|_| wrong_length)?);
            specs.extend(parts.into_iter().flatten());
            count += 1;
            Ok::<_, CircMsgError>(())
        };
        if let Some(addr) = self.ipv4 {
            let parts = [&addr.ip().octets()[..], &addr.port().to_be_bytes()];
            push(spec_type::IPV4, parts)?;
        }
        if let Some(id) = &self.rsa {
            push(spec_type::RSA_ID, [id.as_bytes(), &[]])?;
        }
        if let Some(id) = &self.ed25519 {
            push(spec_type::ED25519_ID, [id.as_bytes(), &[]])?;
        }
        if let Some(addr) = self.ipv6 {
            let parts = [&addr.ip().octets()[..], &addr.port().to_be_bytes()];
            push(spec_type::IPV6, parts)?;
        }
        for (spec_type, spec) in &self.link_specifiers {
            if matches!(*spec_type, spec_type::RSA_ID | spec_type::ED25519_ID) {
                return Err(CircMsgError::DuplicateIdentity(*spec_type));
            }
            push(*spec_type, [spec, &[]])?;
        }

        let hlen = handshake_len("EXTEND2", &self.handshake, relay::MAX_DATA)?;
        let len = 1 + specs.len() + 2 + hlen.len() + self.handshake.len();
        let too_long = CircMsgError::TooLong(len);
        if len > relay::MAX_DATA {
            return Err(too_long);
        }
        let mut data = vec![u8::try_from(count).map_err(|_| too_long)?];
        data.extend(specs);
        data.extend(self.handshake_type.to_be_bytes());
        data.extend(hlen);
        data.extend_from_slice(&self.handshake);
        Ok(data)
    }

    /// Checks the fields as C tor does for every EXTEND2.
    fn check(&self) -> Result<(), CircMsgError> {
        if self.rsa.is_none_or(|id| id.is_zero()) {
            return Err(CircMsgError::NoRsaIdentity);
        }
        let usable = |ip_is_zero: bool, port: u16| !ip_is_zero && port != 0;
        let ipv4 = self.ipv4.map(|a| usable(a.ip().is_unspecified(), a.port()));
        let ipv6 = self.ipv6.map(|a| usable(a.ip().is_unspecified(), a.port()));
        if !matches!(
            (ipv4, ipv6),
            (Some(true), None | Some(true)) | (None, Some(true))
        ) {
            return Err(CircMsgError::NoAddress);
        }
        check_client_handshake(self.handshake_type, &self.handshake)
    }
}

fn usable_ipv4(bytes: [u8; 6]) -> Option<SocketAddrV4> {
    let [a, b, c, d, p0, p1] = bytes;
    let ip = Ipv4Addr::new(a, b, c, d);
    let port = u16::from_be_bytes([p0, p1]);
    (port != 0 && !ip.is_unspecified()).then(|| SocketAddrV4::new(ip, port))
}

fn usable_ipv6(bytes: [u8; 18]) -> Option<SocketAddrV6> {
    let [ip @ .., p0, p1] = bytes;
    let ip = Ipv6Addr::from(ip);
    let port = u16::from_be_bytes([p0, p1]);
    (port != 0 && !ip.is_unspecified()).then(|| SocketAddrV6::new(ip, port, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::super::handshake_type;
    use super::super::tests::bytes;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tor_cell::relaycell::msg as arti;

    const V4: [u8; 8] = [0, 6, 192, 0, 2, 1, 0x23, 0x29];
    const V4_OTHER: [u8; 8] = [0, 6, 192, 0, 2, 2, 0x23, 0x29];
    const V4_PORT_0: [u8; 8] = [0, 6, 192, 0, 2, 1, 0, 0];
    const V6: [u8; 20] = [
        1, 18, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x23, 0x2a,
    ];

    fn rsa(id: [u8; 20]) -> Vec<u8> {
        [&[2, 20][..], &id].concat()
    }

    fn ed25519(id: [u8; 32]) -> Vec<u8> {
        [&[3, 32][..], &id].concat()
    }

    /// An EXTEND2 with these link specifiers and an ntor handshake of 0x55.
    fn extend2(specs: &[&[u8]]) -> Vec<u8> {
        let mut data = vec![specs.len() as u8];
        data.extend(specs.concat());
        data.extend([0, 2, 0, 84]);
        data.extend([0x55; 84]);
        data
    }

    #[test]
    fn extend2_as_tor_spec_5_1_2_lays_it_out() {
        let data = extend2(&[&V4, &rsa(bytes(1)), &ed25519(bytes(50)), &V6]);
        let extend = Extend2::decode(&data).unwrap();
        assert_eq!(extend.ipv4, Some("192.0.2.1:9001".parse().unwrap()));
        assert_eq!(extend.ipv6, Some("[2001:db8::1]:9002".parse().unwrap()));
        assert_eq!(extend.rsa, Some(RsaIdentity(bytes(1))));
        assert_eq!(extend.ed25519, Some(Ed25519Identity(bytes(50))));
        assert_eq!(extend.handshake_type, handshake_type::NTOR);
        assert_eq!(extend.handshake, [0x55; 84]);
        assert!(extend.link_specifiers.is_empty());
        // Already in the recommended order.
        assert_eq!(extend.encode().unwrap(), data);
        // Data after the handshake is ignored.
        assert_eq!(Extend2::decode(&[&data[..], &[9]].concat()), Ok(extend));
        for cut in 0..data.len() {
            assert!(
                matches!(
                    Extend2::decode(&data[..cut]),
                    Err(CircMsgError::CutShort(_))
                ),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn extend2_uses_the_first_address_and_keeps_the_rest() {
        let unknown = [200, 3, 1, 2, 3];
        let extend =
            Extend2::decode(&extend2(&[&unknown, &V4, &rsa(bytes(1)), &V4_OTHER])).unwrap();
        assert_eq!(extend.ipv4, Some("192.0.2.1:9001".parse().unwrap()));
        assert_eq!(
            extend.link_specifiers,
            [(200, vec![1, 2, 3]), (0, V4_OTHER[2..].to_vec())]
        );
    }

    #[test]
    fn extend2_does_not_count_addresses_of_zero() {
        let id = rsa(bytes(1));
        let extend = Extend2::decode(&extend2(&[&V4_PORT_0, &id, &V6])).unwrap();
        assert_eq!(extend.ipv4, None);
        assert!(extend.ipv6.is_some());
        // As in C tor, a second address does not replace a bad first one.
        for specs in [&[&V4_PORT_0[..], &id, &V4][..], &[&id]] {
            assert_eq!(
                Extend2::decode(&extend2(specs)),
                Err(CircMsgError::NoAddress)
            );
        }
    }

    #[test]
    fn an_address_needs_a_host_and_a_port_in_either_family() {
        let id = rsa(bytes(1));
        let with = |spec_type: u8, host: &[u8], port: [u8; 2]| {
            let len = (host.len() + 2) as u8;
            let spec = [&[spec_type, len][..], host, &port].concat();
            Extend2::decode(&extend2(&[&spec, &id])).map(|_| ())
        };
        for (spec_type, len) in [(0, 4), (1, 16)] {
            let (some, none) = (vec![1; len], vec![0; len]);
            assert_eq!(with(spec_type, &some, [0, 1]), Ok(()));
            for (host, port) in [(&some, [0, 0]), (&none, [0, 1]), (&none, [0, 0])] {
                let refused = with(spec_type, host, port);
                assert_eq!(refused, Err(CircMsgError::NoAddress), "{host:?}, {port:?}");
                // Beside one of the other family it is left out.
                let spec = [&[spec_type, (len + 2) as u8][..], host, &port].concat();
                let other = if spec_type == 0 { &V6[..] } else { &V4 };
                let both = Extend2::decode(&extend2(&[&spec, other, &id])).unwrap();
                let addrs = (both.ipv4.is_some(), both.ipv6.is_some());
                assert_eq!(addrs, (spec_type == 1, spec_type == 0));
            }
        }
    }

    #[test]
    fn an_extend2_that_fills_its_message_can_be_sent_and_one_byte_more_cannot() {
        let good = Extend2::decode(&extend2(&[&V4, &rsa(bytes(1))])).unwrap();
        let rest = relay::MAX_DATA - good.encode().unwrap().len();
        for more in [0, 1] {
            let mut extend = good.clone();
            extend.link_specifiers = vec![(9, vec![7; 200]), (9, vec![7; rest + more - 204])];
            let len = extend.encode().map(|data| data.len());
            let expected = match more {
                0 => Ok(relay::MAX_DATA),
                _ => Err(CircMsgError::TooLong(relay::MAX_DATA + 1)),
            };
            assert_eq!(len, expected);
        }
    }

    #[test]
    fn extend2_needs_exactly_one_rsa_identity_and_at_most_one_ed25519() {
        let (id, ed) = (rsa(bytes(1)), ed25519(bytes(2)));
        let decode = |specs: &[&[u8]]| Extend2::decode(&extend2(specs)).map(|_| ());
        assert_eq!(decode(&[&V4, &id]), Ok(()));
        assert_eq!(decode(&[&V4, &ed]), Err(CircMsgError::NoRsaIdentity));
        assert_eq!(
            decode(&[&V4, &rsa([0; 20])]),
            Err(CircMsgError::NoRsaIdentity)
        );
        assert_eq!(
            decode(&[&V4, &id, &id]),
            Err(CircMsgError::DuplicateIdentity(2))
        );
        assert_eq!(
            decode(&[&V4, &id, &ed, &ed]),
            Err(CircMsgError::DuplicateIdentity(3))
        );
    }

    #[test]
    fn extend2_refuses_link_specifiers_of_a_wrong_length() {
        let id = rsa(bytes(1));
        for (spec_type, len) in [(0, 5), (1, 17), (2, 19), (3, 33), (0, 7)] {
            let mut spec = vec![spec_type, len];
            spec.resize(2 + usize::from(len), 1);
            let len = usize::from(len);
            assert_eq!(
                Extend2::decode(&extend2(&[&V4, &id, &spec])),
                Err(CircMsgError::LinkSpecifierLength { spec_type, len })
            );
        }
    }

    #[test]
    fn extend2_does_not_carry_tap_or_fast() {
        let good = extend2(&[&V4, &rsa(bytes(1))]);
        let htype = good.len() - 88;
        for (value, error) in [(0, CircMsgError::Tap), (1, CircMsgError::FastHandshake)] {
            let mut data = good.clone();
            data[htype + 1] = value;
            assert_eq!(Extend2::decode(&data), Err(error));
        }
        let mut short = good;
        short[htype + 3] = 83;
        assert_eq!(Extend2::decode(&short), Err(CircMsgError::NtorLength(83)));
    }

    #[test]
    fn extend2_that_cannot_be_sent_is_an_error() {
        let good = Extend2::decode(&extend2(&[&V4, &rsa(bytes(1))])).unwrap();
        let with = |change: fn(&mut Extend2)| {
            let mut extend = good.clone();
            change(&mut extend);
            extend.encode().map(|_| ())
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|e| e.rsa = None), Err(CircMsgError::NoRsaIdentity));
        assert_eq!(with(|e| e.ipv4 = None), Err(CircMsgError::NoAddress));
        assert_eq!(
            with(|e| e.ipv4 = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))),
            Err(CircMsgError::NoAddress)
        );
        assert_eq!(
            with(|e| e.link_specifiers.push((3, vec![0; 32]))),
            Err(CircMsgError::DuplicateIdentity(3))
        );
        assert_eq!(
            with(|e| e.link_specifiers = vec![(9, vec![0; 200]); 2]),
            Err(CircMsgError::TooLong(1 + 8 + 22 + 2 * 202 + 4 + 84))
        );
        assert!(with(|e| e.link_specifiers.push((9, vec![0; 256]))).is_err());
        assert!(
            with(|e| {
                e.handshake_type = 3;
                e.handshake = vec![0; 70_000];
            })
            .is_err()
        );
    }

    fn any_extend2() -> impl Strategy<Value = Extend2> {
        (
            any::<Option<(u32, u16)>>(),
            any::<(u128, u16)>(),
            any::<[u8; 20]>(),
            any::<Option<[u8; 32]>>(),
            vec((4..=255u8, vec(any::<u8>(), 0..20)), 0..4),
            vec(any::<u8>(), 0..200),
        )
            .prop_map(
                |(v4, (v6, port6), id, ed25519, link_specifiers, handshake)| {
                    let ipv4 =
                        v4.map(|(ip, port)| SocketAddrV4::new(Ipv4Addr::from(ip | 1), port | 1));
                    Extend2 {
                        ipv4,
                        ipv6: Some(SocketAddrV6::new(Ipv6Addr::from(v6 | 1), port6 | 1, 0, 0)),
                        rsa: Some(RsaIdentity(id.map(|byte| byte | 1))),
                        ed25519: ed25519.map(Ed25519Identity),
                        link_specifiers,
                        handshake_type: handshake_type::NTOR_V3,
                        handshake,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn extend2_round_trips_and_arti_agrees(extend in any_extend2()) {
            use tor_cell::relaycell::msg::Body as _;
            let data = extend.encode().unwrap();
            prop_assert_eq!(&Extend2::decode(&data).unwrap(), &extend);
            let mut reader = tor_bytes::Reader::from_slice(&data);
            let theirs = arti::Extend2::decode_from_reader(&mut reader).unwrap();
            prop_assert_eq!(reader.remaining(), 0);
            prop_assert_eq!(theirs.handshake(), &extend.handshake[..]);
            prop_assert_eq!(u16::from(theirs.handshake_type()), extend.handshake_type);
            let known = 2 + usize::from(extend.ipv4.is_some()) + usize::from(extend.ed25519.is_some());
            prop_assert_eq!(theirs.linkspecs().len(), known + extend.link_specifiers.len());
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            data in vec(any::<u8>(), 0..=relay::MAX_DATA),
        ) {
            if let Ok(extend) = Extend2::decode(&data) {
                prop_assert_eq!(Extend2::decode(&extend.encode().unwrap()), Ok(extend));
            }
        }
    }
}
