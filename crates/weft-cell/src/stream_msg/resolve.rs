//! RESOLVE and RESOLVED (tor-spec 6.4): the exit looks a name up for the client.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{StreamMsgError, fitting, is_host_name};
use crate::fields::Fields;

/// Types of answers (tor-spec 6.4).
mod answer_type {
    pub(super) const HOSTNAME: u8 = 0;
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 6;
    pub(super) const TRANSIENT_ERROR: u8 = 0xf0;
    pub(super) const ERROR: u8 = 0xf1;
}

/// Text of errors from C tor's relays; it is never read.
const ERROR_TEXT: &[u8] = b"Error resolving hostname";

/// RESOLVE: look up a name, or an address in its `in-addr.arpa` form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The name. Never empty, without NUL bytes; otherwise any bytes.
    pub name: Vec<u8>,
}

impl Resolve {
    /// Reads the data of a RESOLVE message. As in C tor, the NUL byte after the name may be
    /// missing, and data after it is ignored.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        match data.split(|byte| *byte == 0).next() {
            None | Some([]) => Err(StreamMsgError::Host("RESOLVE")),
            Some(name) => Ok(Resolve {
                name: name.to_vec(),
            }),
        }
    }

    /// The data of the RESOLVE message.
    pub fn encode(&self) -> Result<Vec<u8>, StreamMsgError> {
        if self.name.is_empty() || self.name.contains(&0) {
            return Err(StreamMsgError::Host("RESOLVE"));
        }
        fitting("RESOLVE", [&self.name[..], &[0]].concat())
    }
}

/// One answer of RESOLVED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name, address or error.
    pub kind: AnswerKind,
    /// For how many seconds the answer may be kept.
    pub ttl: u32,
}

/// One answer of a RESOLVED message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// A name, to the question for an address: from 1 to 255 bytes, of any value.
    Hostname(Vec<u8>),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// It did not work this time.
    TransientError,
    /// It does not work.
    Error,
}

impl AnswerKind {
    /// Returns true if it is one of the errors. An error beside other answers is ignored.
    pub fn is_error(&self) -> bool {
        matches!(self, AnswerKind::TransientError | AnswerKind::Error)
    }
}

/// RESOLVED: the exit's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The answers in their order, without those of unknown types.
    pub answers: Vec<Answer>,
}

impl Resolved {
    /// Reads the data of a RESOLVED message. One bad answer spoils all, as in C tor.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        let mut answers = Vec::new();
        let mut rest = data;
        while let [answer_type, len, after @ ..] = rest {
            let (answer_type, len) = (*answer_type, usize::from(*len));
            let mut fields = Fields::new("RESOLVED", after);
            let value = fields.bytes("answer", len)?;
            let ttl = fields.u32("TTL of an answer")?;
            rest = after.get(len + 4..).unwrap_or_default();

            let wrong_length = StreamMsgError::AnswerLength { answer_type, len };
            let kind = match answer_type {
                answer_type::HOSTNAME if value.is_empty() => return Err(wrong_length),
                answer_type::HOSTNAME => AnswerKind::Hostname(value.to_vec()),
                answer_type::IPV4 => {
                    let octets: [u8; 4] = value.try_into().map_err(|_| wrong_length)?;
                    AnswerKind::Ipv4(octets.into())
                }
                answer_type::IPV6 => {
                    let octets: [u8; 16] = value.try_into().map_err(|_| wrong_length)?;
                    AnswerKind::Ipv6(octets.into())
                }
                answer_type::TRANSIENT_ERROR => AnswerKind::TransientError,
                answer_type::ERROR => AnswerKind::Error,
                _ => continue,
            };
            answers.push(Answer { kind, ttl });
        }
        // One remaining byte is not an answer.
        if !rest.is_empty() {
            Fields::new("RESOLVED", rest).array::<2>("length of an answer")?;
        }
        Ok(Resolved { answers })
    }

    /// Removes names that are not host names: an exit may send anything, and applications believe
    /// it. If no answer remains, adds an error.
    #[must_use]
    pub fn with_host_names_alone(mut self) -> Self {
        let ttl = self.answers.first().map_or(0, |answer| answer.ttl);
        let any = !self.answers.is_empty();
        self.answers.retain(|answer| match &answer.kind {
            AnswerKind::Hostname(name) => is_host_name(name),
            _ => true,
        });
        if any && self.answers.is_empty() {
            let kind = AnswerKind::Error;
            self.answers.push(Answer { kind, ttl });
        }
        self
    }

    /// The data of the RESOLVED message.
    pub fn encode(&self) -> Result<Vec<u8>, StreamMsgError> {
        let mut data = Vec::new();
        for answer in &self.answers {
            let (v4, v6);
            let (answer_type, value): (u8, &[u8]) = match &answer.kind {
                AnswerKind::Hostname(name) => (answer_type::HOSTNAME, name),
                AnswerKind::Ipv4(addr) => {
                    v4 = addr.octets();
                    (answer_type::IPV4, &v4)
                }
                AnswerKind::Ipv6(addr) => {
                    v6 = addr.octets();
                    (answer_type::IPV6, &v6)
                }
                AnswerKind::TransientError => (answer_type::TRANSIENT_ERROR, ERROR_TEXT),
                AnswerKind::Error => (answer_type::ERROR, ERROR_TEXT),
            };
            let len = u8::try_from(value.len())
                .ok()
                .filter(|len| *len > 0)
                .ok_or(StreamMsgError::AnswerLength {
                    answer_type,
                    len: value.len(),
                })?;
            data.extend([answer_type, len]);
            data.extend_from_slice(value);
            data.extend(answer.ttl.to_be_bytes());
        }
        fitting("RESOLVED", data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay_v1::MAX_STREAM_DATA as MAX_DATA;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tor_cell::relaycell::msg::{self as arti, Body as _};

    #[test]
    fn resolve_as_tor_spec_6_4_lays_it_out() {
        let resolve = Resolve {
            name: b"example.com".to_vec(),
        };
        assert_eq!(resolve.encode().unwrap(), b"example.com\0");
        for data in [&b"example.com\0"[..], b"example.com", b"example.com\0x"] {
            assert_eq!(Resolve::decode(data), Ok(resolve.clone()));
        }
        for data in [&b""[..], b"\0", b"\0a\0"] {
            assert_eq!(Resolve::decode(data), Err(StreamMsgError::Host("RESOLVE")));
        }
        assert!(Resolve { name: vec![] }.encode().is_err());
        assert!(Resolve { name: vec![97, 0] }.encode().is_err());
        assert!(
            Resolve {
                name: vec![97; 498]
            }
            .encode()
            .is_err()
        );
    }

    #[test]
    fn names_that_are_none_are_not_believed() {
        let of = |name: &[u8]| Answer {
            kind: AnswerKind::Hostname(name.to_vec()),
            ttl: 60,
        };
        let read = |answers: Vec<Answer>| Resolved { answers }.with_host_names_alone().answers;
        let good = of(b"a-1.b_c.example.");
        assert_eq!(
            read(vec![of(b"a b"), good.clone()]),
            std::slice::from_ref(&good)
        );
        let long = [b'a'; 64];
        for bad in [
            &b"\r\n250 OK"[..],
            b"a..b",
            b".",
            b"a\0",
            b"\xff.example",
            &long,
        ] {
            let answers = read(vec![of(bad)]);
            assert_eq!(
                (answers.len(), &answers[0].kind),
                (1, &AnswerKind::Error),
                "{bad:?}"
            );
        }
        assert!(read(Vec::new()).is_empty());
    }

    #[test]
    fn resolved_as_tor_spec_6_4_lays_it_out() {
        let data = [
            &[4, 4, 192, 0, 2, 1, 0, 0, 0, 60][..],
            &[99, 2, 1, 2, 0, 0, 0, 0], // of a type to come
            &[0, 3, b'a', b'.', b'b', 0, 0, 1, 0],
            &[6, 16],
            &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 9],
            &[0xf0, 1, b'?', 0, 0, 0, 1],
            &[0xf1, 0, 0, 0, 0, 2],
        ]
        .concat();
        let answer = |kind, ttl| Answer { kind, ttl };
        let resolved = Resolved::decode(&data).unwrap();
        assert_eq!(
            resolved.answers,
            [
                answer(AnswerKind::Ipv4("192.0.2.1".parse().unwrap()), 60),
                answer(AnswerKind::Hostname(b"a.b".to_vec()), 256),
                answer(AnswerKind::Ipv6("2001:db8::1".parse().unwrap()), 9),
                answer(AnswerKind::TransientError, 1),
                answer(AnswerKind::Error, 2),
            ]
        );
        assert!(resolved.answers[3].kind.is_error() && !resolved.answers[0].kind.is_error());
        assert_eq!(Resolved::decode(&resolved.encode().unwrap()), Ok(resolved));
        assert_eq!(Resolved::decode(&[]), Ok(Resolved::default()));
    }

    #[test]
    fn answers_that_do_not_hold_together_are_named() {
        let error = |data: &[u8]| Resolved::decode(data).unwrap_err();
        assert_eq!(
            error(&[4, 3, 1, 2, 3, 0, 0, 0, 0]),
            StreamMsgError::AnswerLength {
                answer_type: 4,
                len: 3
            }
        );
        assert!(matches!(
            error(&[0, 0, 0, 0, 0, 0]),
            StreamMsgError::AnswerLength { .. }
        ));
        assert!(matches!(
            error(&[6, 4, 1, 2, 3, 4, 0, 0, 0, 0]),
            StreamMsgError::AnswerLength { .. }
        ));
        for data in [&[4][..], &[4, 4, 1, 2, 3], &[4, 4, 1, 2, 3, 4, 0, 0, 0]] {
            assert!(
                matches!(error(data), StreamMsgError::CutShort(_)),
                "{data:?}"
            );
        }
        let named = |len| Resolved {
            answers: vec![Answer {
                kind: AnswerKind::Hostname(vec![97; len]),
                ttl: 0,
            }],
        };
        assert!(named(0).encode().is_err());
        assert!(named(255).encode().is_ok());
        assert!(named(256).encode().is_err());
        let many = Resolved {
            answers: vec![
                Answer {
                    kind: AnswerKind::Error,
                    ttl: 0
                };
                17
            ],
        };
        assert!(matches!(many.encode(), Err(StreamMsgError::TooLong { .. })));
    }

    fn any_answer() -> impl Strategy<Value = Answer> {
        let kind = prop_oneof![
            vec(any::<u8>(), 1..20).prop_map(AnswerKind::Hostname),
            any::<u32>().prop_map(|ip| AnswerKind::Ipv4(ip.into())),
            any::<u128>().prop_map(|ip| AnswerKind::Ipv6(ip.into())),
            Just(AnswerKind::TransientError),
            Just(AnswerKind::Error),
        ];
        (kind, any::<u32>()).prop_map(|(kind, ttl)| Answer { kind, ttl })
    }

    proptest! {
        #[test]
        fn resolved_round_trips_and_arti_reads_as_much(answers in vec(any_answer(), 0..12)) {
            let resolved = Resolved { answers };
            let data = resolved.encode().unwrap();
            let mut reader = tor_bytes::Reader::from_slice(&data);
            let theirs = arti::Resolved::decode_from_reader(&mut reader).unwrap();
            prop_assert_eq!(theirs.into_answers().len(), resolved.answers.len());
            prop_assert_eq!(Resolved::decode(&data), Ok(resolved));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            data in vec(any::<u8>(), 0..=MAX_DATA),
        ) {
            if let Ok(resolve) = Resolve::decode(&data) && resolve.name.len() < MAX_DATA {
                prop_assert_eq!(Resolve::decode(&resolve.encode().unwrap()), Ok(resolve));
            }
            // An error's text may be longer than it came.
            if let Ok(resolved) = Resolved::decode(&data) && let Ok(again) = resolved.encode() {
                prop_assert_eq!(Resolved::decode(&again), Ok(resolved));
            }
        }
    }
}
