//! The outer layer of an onion-service descriptor, as a directory checks it before it keeps it (rend-spec
//! HSDESC-OUTER; C tor `hs_desc_decode_plaintext`): total over hostile bytes.
//!
//! tor-netdoc checks the same document, but gives out nothing of what it has read, and would bring eight crates (keys of SSH,
//! curves of NIST). So its six lines are read here; certificate and signatures are tor-cert's and
//! tor-llcrypto's.

use std::time::{Duration, SystemTime};

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use tor_cert::{CertType, Ed25519Cert};
use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::pk::ed25519::{PublicKey, Signature};

/// The blinded public key of an onion service, which names its descriptor.
pub type BlindedKey = [u8; 32];

/// Bytes that are signed before the text.
const PREFIX: &[u8] = b"Tor onion service descriptor sig v3";
/// Minutes that a descriptor may live (rend-spec; C tor `HS_DESC_MAX_LIFETIME`).
const LIFETIMES: std::ops::RangeInclusive<u64> = 30..=720;
/// Bytes of salt and MAC of the encrypted part; there must be more (C tor `encrypted_data_length_is_valid`).
const SALT_AND_MAC: usize = 16 + 32;

/// The parts of a descriptor that a directory checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The key that signed it.
    pub key: BlindedKey,
    /// `revision-counter`: a descriptor replaces those with lower counters.
    pub revision: u64,
    /// `descriptor-lifetime`: how long it is kept.
    pub lifetime: Duration,
}

/// Why a descriptor is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many bytes as `HSV3MaxDescriptorSize`, or more.
    #[error("too long")]
    TooLong,
    /// Not a descriptor of version 3, or with values that none may have.
    #[error("malformed")]
    Malformed,
    /// Its certificate or the descriptor itself is not signed by the key that it names.
    #[error("signature does not verify")]
    Signature,
    /// Its certificate has ended.
    #[error("certificate has ended")]
    Expired,
    /// One with the same or a higher revision counter is there.
    #[error("not newer")]
    NotNewer,
}

/// Checks a descriptor, which must have fewer than `limit` bytes.
pub fn read(bytes: &[u8], limit: usize, now: SystemTime) -> Result<Descriptor, Refused> {
    if bytes.len() >= limit {
        return Err(Refused::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Refused::Malformed)?;
    let outer = Outer::parse(text).ok_or(Refused::Malformed)?;
    let cert = Ed25519Cert::decode(&outer.cert).map_err(|_| Refused::Malformed)?;
    if cert.peek_cert_type() != CertType::HS_BLINDED_ID_V_SIGNING {
        return Err(Refused::Malformed);
    }
    let cert = cert
        .should_have_signing_key()
        .map_err(|_| Refused::Malformed)?;
    let key = *cert.peek_signing_key();
    let signing = cert.peek_subject_key().as_ed25519();
    let signing = signing.and_then(|key| PublicKey::try_from(key).ok());
    let signing = signing.ok_or(Refused::Malformed)?;
    let cert = cert.check_signature().map_err(|_| Refused::Signature)?;
    cert.if_valid_at(&now).map_err(|_| Refused::Expired)?;
    let signed = [PREFIX, outer.signed.as_bytes()].concat();
    signing
        .verify(&signed, &outer.signature)
        .map_err(|_| Refused::Signature)?;
    Ok(Descriptor {
        key: key.into(),
        revision: outer.revision,
        lifetime: outer.lifetime,
    })
}

/// The document, whose signatures are still to be checked.
struct Outer<'a> {
    lifetime: Duration,
    cert: Vec<u8>,
    revision: u64,
    signature: Signature,
    /// The signed text: everything before the line with the signature.
    signed: &'a str,
}

impl<'a> Outer<'a> {
    /// Each of the six lines is there once, the version first and the signature last. Others may be between them.
    fn parse(text: &'a str) -> Option<Self> {
        let (mut lifetime, mut cert, mut revision, mut signature) = (None, None, None, None);
        let (mut is_first, mut encrypted) = (true, None);
        let mut rest = text;
        while !rest.is_empty() && signature.is_none() {
            let begin = text.len() - rest.len();
            let item = Item::next(&mut rest)?;
            let is_new = match item.keyword {
                "hs-descriptor" => is_first && item.argument? == "3",
                _ if is_first => false,
                "descriptor-lifetime" => {
                    let minutes = item.argument?.parse().ok()?;
                    let minutes = Some(minutes).filter(|minutes| LIFETIMES.contains(minutes))?;
                    lifetime
                        .replace(Duration::from_secs(60 * minutes))
                        .is_none()
                }
                "descriptor-signing-key-cert" => {
                    cert.replace(item.object("ED25519 CERT")?).is_none()
                }
                "revision-counter" => revision.replace(item.argument?.parse().ok()?).is_none(),
                "superencrypted" => encrypted.replace(item.object("MESSAGE")?.len()).is_none(),
                "signature" => {
                    let bytes = Base64Unpadded::decode_vec(item.argument?).ok()?;
                    let bytes: [u8; 64] = bytes.try_into().ok()?;
                    signature.replace((Signature::from(bytes), begin)).is_none()
                }
                _ => true,
            };
            if !is_new {
                return None;
            }
            is_first = false;
        }
        if !rest.is_empty() || encrypted? <= SALT_AND_MAC {
            return None;
        }
        let (signature, end) = signature?;
        Some(Self {
            lifetime: lifetime?,
            cert: cert?,
            revision: revision?,
            signature,
            signed: text.get(..end)?,
        })
    }
}

/// A line of the document, with the object behind it (dir-spec 1.2).
struct Item<'a> {
    keyword: &'a str,
    /// The first argument, where it is the only one.
    argument: Option<&'a str>,
    /// Its tag, and the lines of its base64.
    object: Option<(&'a str, Vec<&'a str>)>,
}

impl<'a> Item<'a> {
    /// Takes the next one off `rest`.
    fn next(rest: &mut &'a str) -> Option<Self> {
        let mut words = line(rest)?.split([' ', '\t']);
        let keyword = words.next().filter(|word| !word.is_empty())?;
        let (first, second) = (words.next(), words.next());
        let mut object = None;
        if rest.starts_with(BEGIN) {
            let tag = line(rest)?.strip_prefix(BEGIN)?.strip_suffix(DASHES)?;
            let mut lines = Vec::new();
            loop {
                let line = line(rest)?;
                match line.strip_prefix(END) {
                    None => lines.push(line),
                    Some(end) if end.strip_suffix(DASHES) == Some(tag) => break,
                    Some(_) => return None,
                }
            }
            object = Some((tag, lines));
        }
        Some(Self {
            keyword,
            argument: first.filter(|_| second.is_none()),
            object,
        })
    }

    /// The bytes of its object, which has this tag.
    fn object(&self, tag: &str) -> Option<Vec<u8>> {
        let (found, lines) = self.object.as_ref()?;
        (*found == tag).then(|| Base64::decode_vec(&lines.concat()).ok())?
    }
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Takes the next line off `rest`; `None`: there is none that ends.
fn line<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (line, more) = rest.split_once('\n')?;
    *rest = more;
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hs_dir::testing::{LIMIT, Service};
    use crate::testing::{now, secs};

    fn read_at(text: &str, when: SystemTime) -> Result<Descriptor, Refused> {
        read(text.as_bytes(), LIMIT, when)
    }

    fn read_now(text: &str) -> Result<Descriptor, Refused> {
        read_at(text, now())
    }

    #[test]
    fn a_descriptor_is_read_with_key_counter_and_lifetime() {
        let service = Service::new(1);
        let descriptor = read_now(&service.descriptor(17)).unwrap();
        let expected = Descriptor {
            key: service.key(),
            revision: 17,
            lifetime: secs(3 * 3600),
        };
        assert_eq!(descriptor, expected);
        let most = Service {
            lifetime: "720".into(),
            ..Service::new(1)
        };
        let descriptor = read_now(&most.descriptor(u64::MAX)).unwrap();
        assert_eq!(
            (descriptor.lifetime, descriptor.revision),
            (secs(12 * 3600), u64::MAX)
        );
    }

    #[test]
    fn lines_that_nobody_knows_yet_are_passed_over() {
        let service = Service {
            more: "new-line a b\n-----BEGIN THING-----\nAAAA\n-----END THING-----\n".into(),
            ..Service::new(1)
        };
        assert!(read_now(&service.descriptor(1)).is_ok());
    }

    #[test]
    fn one_byte_below_the_limit_is_taken_and_the_limit_is_not() {
        let text = Service::new(1).descriptor(1);
        let read = |limit| read(text.as_bytes(), limit, now());
        assert!(read(text.len() + 1).is_ok());
        assert_eq!(read(text.len()), Err(Refused::TooLong));
    }

    #[test]
    fn versions_lifetimes_and_counters_that_none_may_have_are_refused() {
        let with = |change: fn(&mut Service)| {
            let mut service = Service::new(1);
            change(&mut service);
            read_now(&service.descriptor(1))
        };
        assert!(with(|_| {}).is_ok());
        for (name, got) in [
            ("version", with(|service| service.version = "2".into())),
            ("later", with(|service| service.version = "4".into())),
            ("long", with(|service| service.lifetime = "721".into())),
            ("short", with(|service| service.lifetime = "29".into())),
            (
                "overflow",
                with(|service| service.lifetime = "9".repeat(19)),
            ),
            ("negative", with(|service| service.lifetime = "-1".into())),
            ("empty", with(|service| service.encrypted = 48)),
        ] {
            assert_eq!(got, Err(Refused::Malformed), "{name}");
        }
        let other_type = with(|service| service.cert_type = tor_cert::CertType::IDENTITY_V_SIGNING);
        assert_eq!(other_type, Err(Refused::Malformed));
        let text = Service::new(1).descriptor(1);
        let counter = text.replace("revision-counter 1", "revision-counter 1x");
        assert_eq!(read_now(&counter), Err(Refused::Malformed));
    }

    #[test]
    fn what_another_key_signed_is_refused() {
        let (one, other) = (Service::new(1), Service::new(2));
        let text = one.descriptor(1);
        // A higher counter than the one that was signed.
        let changed = text.replace("revision-counter 1", "revision-counter 2");
        assert_eq!(read_now(&changed), Err(Refused::Signature));
        // A certificate that names another service's key, which has not signed it.
        let thief = Service {
            claims: Some(other.key()),
            ..one
        };
        let stolen = thief.descriptor(1);
        assert_eq!(read_now(&stolen), Err(Refused::Signature));
    }

    #[test]
    fn a_certificate_that_has_ended_is_refused() {
        let text = Service::new(1).descriptor(1);
        assert!(read_at(&text, now() + secs(53 * 3600)).is_ok());
        let late = read_at(&text, now() + secs(56 * 3600));
        assert_eq!(late, Err(Refused::Expired));
    }

    #[test]
    fn what_is_cut_doubled_or_no_text_is_refused() {
        let text = Service::new(1).descriptor(1);
        for end in 0..text.len() - 1 {
            assert!(read_now(&text[..end]).is_err(), "cut after {end}");
        }
        assert!(read_now(&format!("{text}{text}")).is_err());
        assert!(read_now(&format!("{text}\0")).is_err());
        assert_eq!(read(b"\xff\xfe", LIMIT, now()), Err(Refused::Malformed));
        assert!(read_now(&format!("{text}x\n")).is_err());
        for (line, again) in [
            (
                "revision-counter 1\n",
                "revision-counter 1\nrevision-counter 1\n",
            ),
            (
                "descriptor-lifetime 180\n",
                "descriptor-lifetime 180 minutes\n",
            ),
            ("-----END MESSAGE", "-----END MASSAGE"),
            ("hs-descriptor 3\n", "revision-counter 2\nhs-descriptor 3\n"),
        ] {
            assert!(text.contains(line));
            let changed = text.replacen(line, again, 1);
            assert_eq!(read_now(&changed), Err(Refused::Malformed), "{again}");
        }
        for line in text.lines() {
            assert!(read_now(&text.replacen(line, "", 1)).is_err(), "{line}");
        }
    }
}
