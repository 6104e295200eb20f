//! SENDME (tor-spec 7.3.1, 7.4), and XON and XOFF (proposal 324, section 4).

use super::StreamMsgError;
use crate::fields::Fields;

/// Bytes of tor1's running digest.
const DIGEST_LEN: usize = 20;
/// Bytes of a tag of Counter Galois Onion.
const TAG_LEN: usize = 16;

/// Proof that the sender of a SENDME has seen the cell that it acknowledges. The encryption of the
/// hop decides which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// tor1: the running digest after the cell (tor-spec 7.3.1).
    Digest([u8; DIGEST_LEN]),
    /// Counter Galois Onion: the cell's tag (proposal 359).
    Tag([u8; TAG_LEN]),
}

impl Seen {
    /// The bytes that the SENDME carries.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Seen::Digest(digest) => digest,
            Seen::Tag(tag) => tag,
        }
    }
}

/// SENDME: the sender accepts one more window increment of DATA cells. On stream 0 it applies to
/// the circuit; on another stream its data is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sendme {
    /// 0, or 1 for an authenticated one. Empty data is version 0.
    pub version: u8,
    /// With version 1.
    pub seen: Option<Seen>,
}

impl Sendme {
    /// Reads the data of a circuit-level SENDME message.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        let mut fields = Fields::new("SENDME", data);
        let version = match data {
            [] => 0,
            _ => fields.u8("version")?,
        };
        let seen = match version {
            0 => None,
            1 => {
                let len = usize::from(fields.u16("digest length")?);
                let seen = fields.bytes("digest", len)?;
                let digest = seen.first_chunk().map(|digest| Seen::Digest(*digest));
                let tag = <[u8; TAG_LEN]>::try_from(seen).map(Seen::Tag).ok();
                Some(tag.or(digest).ok_or(StreamMsgError::DigestLength(len))?)
            }
            version => {
                return Err(StreamMsgError::Version {
                    message: "SENDME",
                    version,
                });
            }
        };
        Ok(Sendme { version, seen })
    }

    /// The data of the SENDME message.
    pub fn encode(&self) -> Vec<u8> {
        let Some(seen) = &self.seen else {
            return Vec::new();
        };
        let bytes = seen.as_bytes();
        let mut data = vec![1, 0, u8::try_from(bytes.len()).unwrap_or(0)];
        data.extend_from_slice(bytes);
        data
    }
}

/// XON: send again, at no more than this rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xon {
    /// Always 0.
    pub version: u8,
    /// Rate at which the sender's application reads the stream, in kB/s of 1000 bytes; 0: no limit.
    pub kbps_ewma: u32,
}

impl Xon {
    /// Reads the data of an XON message.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        let mut fields = Fields::new("XON", data);
        let version = version_0("XON", fields.u8("version")?)?;
        let kbps_ewma = fields.u32("drain rate")?;
        Ok(Xon { version, kbps_ewma })
    }

    /// The data of the XON message.
    pub fn encode(&self) -> [u8; 5] {
        let [a, b, c, d] = self.kbps_ewma.to_be_bytes();
        [self.version, a, b, c, d]
    }
}

/// XOFF: stop sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xoff {
    /// Always 0.
    pub version: u8,
}

impl Xoff {
    /// Reads the data of an XOFF message.
    pub fn decode(data: &[u8]) -> Result<Self, StreamMsgError> {
        let mut fields = Fields::new("XOFF", data);
        let version = version_0("XOFF", fields.u8("version")?)?;
        Ok(Xoff { version })
    }

    /// The data of the XOFF message.
    pub fn encode(&self) -> [u8; 1] {
        [self.version]
    }
}

fn version_0(message: &'static str, version: u8) -> Result<u8, StreamMsgError> {
    match version {
        0 => Ok(0),
        version => Err(StreamMsgError::Version { message, version }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tor_cell::relaycell::{flow_ctrl, msg as arti, msg::Body as _};

    #[test]
    fn sendme_as_tor_spec_7_3_1_lays_it_out() {
        let digest: [u8; 20] = std::array::from_fn(|at| at as u8);
        let data = [&[1, 0, 20][..], &digest].concat();
        let sendme = Sendme::decode(&data).unwrap();
        assert_eq!(sendme.version, 1);
        assert_eq!(sendme.seen, Some(Seen::Digest(digest)));
        assert_eq!(sendme.encode(), data);
        let mut theirs = Vec::new();
        let arti = arti::Sendme::from(arti::SendmeTag::from(digest));
        arti.encode_onto(&mut theirs).unwrap();
        assert_eq!(theirs, data);
        for cut in 1..data.len() {
            assert!(
                matches!(
                    Sendme::decode(&data[..cut]),
                    Err(StreamMsgError::CutShort(_))
                ),
                "cut at {cut}"
            );
        }
        // More than 20 bytes: the first 20 count.
        let longer = [&[1, 0, 21][..], &digest, &[9, 9]].concat();
        assert_eq!(Sendme::decode(&longer), Ok(sendme));
        let shorter = [&[1, 0, 19][..], &digest].concat();
        assert_eq!(
            Sendme::decode(&shorter),
            Err(StreamMsgError::DigestLength(19))
        );
    }

    #[test]
    fn sendme_under_cgo_has_a_tag() {
        let data = [&[1, 0, 16][..], &[7; 16]].concat();
        let sendme = Sendme::decode(&data).unwrap();
        assert_eq!(sendme.seen, Some(Seen::Tag([7; 16])));
        assert_eq!(sendme.encode(), data);
    }

    #[test]
    fn sendme_of_version_0_has_nothing_to_read() {
        let old = Sendme {
            version: 0,
            seen: None,
        };
        assert_eq!(Sendme::decode(&[]), Ok(old));
        assert_eq!(Sendme::decode(&[0, 9]), Ok(old));
        assert!(old.encode().is_empty());
        assert_eq!(
            Sendme::decode(&[2, 0, 0]),
            Err(StreamMsgError::Version {
                message: "SENDME",
                version: 2
            })
        );
    }

    #[test]
    fn xon_and_xoff_as_proposal_324_lays_them_out() {
        let xon = Xon {
            version: 0,
            kbps_ewma: 0x0102_0304,
        };
        assert_eq!(xon.encode(), [0, 1, 2, 3, 4]);
        assert_eq!(Xon::decode(&[0, 1, 2, 3, 4, 5]), Ok(xon));
        assert!(matches!(
            Xon::decode(&[0, 1, 2, 3]),
            Err(StreamMsgError::CutShort(_))
        ));
        let xoff = Xoff { version: 0 };
        assert_eq!(xoff.encode(), [0]);
        assert_eq!(Xoff::decode(&[0, 7]), Ok(xoff));
        assert!(Xoff::decode(&[]).is_err());
        for error in [
            Xon::decode(&[1, 1, 2, 3, 4]).unwrap_err(),
            Xoff::decode(&[1]).unwrap_err(),
        ] {
            assert!(matches!(error, StreamMsgError::Version { version: 1, .. }));
        }
        let mut reader = tor_bytes::Reader::from_slice(&[0, 1, 2, 3, 4]);
        let theirs = flow_ctrl::Xon::decode_from_reader(&mut reader).unwrap();
        let mut again = Vec::new();
        theirs.encode_onto(&mut again).unwrap();
        assert_eq!(again, xon.encode());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_what_is_read_can_be_written(
            data in vec(any::<u8>(), 0..40),
        ) {
            if let Ok(sendme) = Sendme::decode(&data) {
                prop_assert_eq!(Sendme::decode(&sendme.encode()), Ok(sendme));
            }
            if let Ok(xon) = Xon::decode(&data) {
                prop_assert_eq!(&xon.encode()[..], &data[..5]);
            }
            if let Ok(xoff) = Xoff::decode(&data) {
                prop_assert_eq!(&xoff.encode()[..], &data[..1]);
            }
        }
    }
}
