//! The bytes of C tor's key files.
//!
//! Newer keys are "tagged": 32 bytes `== TYPE: TAG ==`, filled up with zeros, then the key
//! (C tor's `crypto_write_tagged_contents_to_file`). RSA keys are PEM. Reading is total: whatever
//! the bytes, the answer is a key or what is wrong with them.

use std::time::SystemTime;

use digest::Digest;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey, LineEnding};
use rsa::traits::PublicKeyParts;
use tor_cert::{CertType, Ed25519Cert};
use tor_checkable::{SelfSigned, TimeBound};
use tor_llcrypto::d::Sha512;
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};
use tor_llcrypto::pk::{curve25519, rsa as tor_rsa};
use zeroize::Zeroizing;

/// Longest key file that is read, in bytes. The longest real one has some 900.
pub const MAX_LEN: usize = 16 << 10;

/// Length of a tagged file's header.
const HEADER_LEN: usize = 32;

/// TYPE and TAG of a tagged file, which describe its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The kind of contents.
    type_name: &'static str,
    /// Purpose of the contents; `typeN` where a certificate of type N certifies the key.
    tag: &'static str,
    /// Length of the contents, in bytes; `None` where it varies.
    len: Option<usize>,
}

impl Kind {
    /// The master identity's secret key: 64 bytes, see [`ed25519_key`].
    pub const MASTER_SECRET: Self = Self {
        type_name: "ed25519v1-secret",
        tag: "type0",
        len: Some(64),
    };
    /// The master identity's public key: 32 bytes.
    pub const MASTER_PUBLIC: Self = Self {
        type_name: "ed25519v1-public",
        tag: "type0",
        len: Some(32),
    };
    /// The signing key: 64 bytes, see [`ed25519_key`].
    pub const SIGNING_SECRET: Self = Self {
        type_name: "ed25519v1-secret",
        tag: "type4",
        len: Some(64),
    };
    /// The key of a family: 64 bytes, see [`ed25519_key`].
    pub const FAMILY_SECRET: Self = Self {
        type_name: "ed25519v1-secret",
        tag: "fmly-id",
        len: Some(64),
    };
    /// The certificate of the signing key.
    pub const SIGNING_CERT: Self = Self {
        type_name: "ed25519v1-cert",
        tag: "type4",
        len: None,
    };
    /// The master identity's secret key behind a passphrase: a [box](super::pwbox).
    pub const MASTER_ENCRYPTED: Self = Self {
        type_name: "Boxed Ed25519 key",
        tag: "master",
        len: None,
    };
    /// An ntor onion key: 32 bytes secret, 32 bytes public.
    pub const NTOR: Self = Self {
        type_name: "c25519v1",
        tag: "onion",
        len: Some(64),
    };
}

/// Error in a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Zero bytes.
    #[error("it is empty")]
    Empty,
    /// No tagged file.
    #[error("it does not begin with a key file's header (\"== TYPE: TAG ==\")")]
    NoHeader,
    /// Another tagged file.
    #[error("its header is \"{found}\", not \"{wanted}\"")]
    Foreign {
        /// The text of its header, without "==".
        found: String,
        /// The text that it should have.
        wanted: String,
    },
    /// The contents are too short or too long.
    #[error("it has {found} bytes instead of {wanted}")]
    Length {
        /// Length of the file.
        found: usize,
        /// Length that a file of its kind has.
        wanted: usize,
    },
    /// The two halves of a key pair differ.
    #[error("its public key does not belong to its secret key")]
    PublicKey,
    /// No key.
    #[error("its contents are not {0}")]
    Contents(&'static str),
}

/// `TYPE: TAG`.
fn name(kind: Kind) -> String {
    format!("{}: {}", kind.type_name, kind.tag)
}

/// The contents of a tagged file of this kind.
pub fn untag(kind: Kind, file: &[u8]) -> Result<&[u8], FormatError> {
    if file.is_empty() {
        return Err(FormatError::Empty);
    }
    let (header, contents) = file.split_at_checked(HEADER_LEN).ok_or(match kind.len {
        Some(len) => FormatError::Length {
            found: file.len(),
            wanted: HEADER_LEN.saturating_add(len),
        },
        None => FormatError::NoHeader,
    })?;
    let end = header
        .iter()
        .rposition(|&b| b != 0)
        .map_or(0, |i| i.saturating_add(1));
    let found = header
        .get(..end)
        .and_then(|h| h.strip_prefix(b"== "))
        .and_then(|h| h.strip_suffix(b" =="))
        .ok_or(FormatError::NoHeader)?;
    let wanted = name(kind);
    if found != wanted.as_bytes() {
        return Err(FormatError::Foreign {
            found: String::from_utf8_lossy(found).escape_debug().to_string(),
            wanted,
        });
    }
    match kind.len {
        Some(len) if contents.len() != len => Err(FormatError::Length {
            found: file.len(),
            wanted: HEADER_LEN.saturating_add(len),
        }),
        _ => Ok(contents),
    }
}

/// A tagged file of this kind.
pub fn tag(kind: Kind, contents: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut file = Zeroizing::new(Vec::with_capacity(
        HEADER_LEN.saturating_add(contents.len()),
    ));
    file.extend_from_slice(format!("== {} ==", name(kind)).as_bytes());
    file.resize(HEADER_LEN, 0);
    file.extend_from_slice(contents);
    file
}

/// Reads an ed25519 secret key file.
///
/// C tor keeps the 64 bytes that the seed expands to (scalar, then prefix of the nonce), and not
/// the seed; so the result cannot be an [`ed25519::Keypair`](tor_llcrypto::pk::ed25519::Keypair).
pub fn ed25519_key(kind: Kind, file: &[u8]) -> Result<ExpandedKeypair, FormatError> {
    ed25519_secret(untag(kind, file)?)
}

/// Reads the 64 bytes of an ed25519 secret key file behind its header.
pub fn ed25519_secret(bytes: &[u8]) -> Result<ExpandedKeypair, FormatError> {
    let bytes: [u8; 64] = bytes
        .try_into()
        .map_err(|_| FormatError::Contents("an ed25519 secret key"))?;
    let bytes = Zeroizing::new(bytes);
    let key = ExpandedKeypair::from_secret_key_bytes(*bytes)
        .ok_or(FormatError::Contents("an ed25519 secret key"))?;
    // A zero scalar would sign for the neutral point, which everyone can forge.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    if key.public().as_bytes() == &neutral {
        return Err(FormatError::Contents("an ed25519 secret key"));
    }
    Ok(key)
}

/// The 64 bytes that an ed25519 secret key file holds for this seed (RFC 8032, 5.1.5).
pub fn expand_ed25519_seed(seed: &[u8; 32]) -> Zeroizing<[u8; 64]> {
    let mut bytes: Zeroizing<[u8; 64]> = Zeroizing::new(Sha512::digest(seed).into());
    // Clamped, as C tor writes it.
    if let Some(first) = bytes.first_mut() {
        *first &= 248;
    }
    if let Some(last) = bytes.get_mut(31) {
        *last = (*last & 63) | 64;
    }
    bytes
}

/// Reads `ed25519_master_id_public_key`.
pub fn ed25519_public(file: &[u8]) -> Result<Ed25519Identity, FormatError> {
    let not_a_key = FormatError::Contents("an ed25519 public key");
    let id = Ed25519Identity::from_bytes(untag(Kind::MASTER_PUBLIC, file)?)
        .ok_or_else(|| not_a_key.clone())?;
    match tor_llcrypto::pk::ed25519::PublicKey::try_from(&id) {
        Ok(_) => Ok(id),
        Err(_) => Err(not_a_key),
    }
}

/// The content of `ed25519_signing_cert`, its signature checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningCert {
    /// The certificate, without the file's header.
    pub encoded: Vec<u8>,
    /// The key that signed it: the master identity.
    pub identity: Ed25519Identity,
    /// The signing key that it is about.
    pub subject: Ed25519Identity,
    /// Good until then.
    pub expires: SystemTime,
}

/// Reads `ed25519_signing_cert` (cert-spec 2.1, type 4, with the key that signed it inside).
pub fn signing_cert(file: &[u8]) -> Result<SigningCert, FormatError> {
    let encoded = untag(Kind::SIGNING_CERT, file)?;
    let cert = Ed25519Cert::decode(encoded)
        .map_err(|_| FormatError::Contents("an ed25519 certificate"))?;
    if cert.peek_cert_type() != CertType::IDENTITY_V_SIGNING {
        return Err(FormatError::Contents("a certificate of a signing key"));
    }
    let cert = cert
        .should_have_signing_key()
        .map_err(|_| FormatError::Contents("a certificate with its signing key included"))?
        .check_signature()
        .map_err(|_| FormatError::Contents("a correctly signed certificate"))?
        // Expired ones are read too: the caller has a better message.
        .dangerously_assume_timely();
    match (cert.signing_key(), cert.subject_key().as_ed25519()) {
        (Some(identity), Some(subject)) => Ok(SigningCert {
            encoded: encoded.to_vec(),
            identity: *identity,
            subject: *subject,
            expires: cert.expiry(),
        }),
        _ => Err(FormatError::Contents("a certificate of an ed25519 key")),
    }
}

/// Reads an ntor onion key file. Returns the secret and the public half.
pub fn ntor_key(file: &[u8]) -> Result<(Zeroizing<[u8; 32]>, [u8; 32]), FormatError> {
    let contents = untag(Kind::NTOR, file)?;
    let (secret, public) = contents
        .split_first_chunk::<32>()
        .ok_or(FormatError::Contents("a curve25519 key pair"))?;
    let secret = Zeroizing::new(*secret);
    let computed = ntor_public(&secret);
    if computed.as_slice() != public {
        return Err(FormatError::PublicKey);
    }
    Ok((secret, computed))
}

/// The public half of an ntor onion key.
pub fn ntor_public(secret: &[u8; 32]) -> [u8; 32] {
    curve25519::PublicKey::from(&curve25519::StaticSecret::from(*secret)).to_bytes()
}

/// Reads an RSA key file: PKCS#1 in PEM, 1024 bits, exponent 65537 (tor-spec 0.3).
pub fn rsa_key(file: &[u8]) -> Result<tor_rsa::KeyPair, FormatError> {
    if file.is_empty() {
        return Err(FormatError::Empty);
    }
    let not_a_key = FormatError::Contents("an RSA private key in PEM");
    let text = std::str::from_utf8(file).map_err(|_| not_a_key.clone())?;
    // C tor writes the zero byte that ends the string in memory, too.
    let pem = text.trim_end_matches('\0');
    // Bounds the work below: the numbers of a 1024-bit key need 900 characters.
    if pem.len() > 4096 {
        return Err(FormatError::Contents("a 1024-bit RSA key"));
    }
    let key = rsa::RsaPrivateKey::from_pkcs1_pem(pem).map_err(|_| not_a_key.clone())?;
    if key.n().bits() != 1024 || key.e() != &rsa::BigUint::from(65_537_u32) {
        return Err(FormatError::Contents(
            "a 1024-bit RSA key with exponent 65537",
        ));
    }
    // The numbers that speed up signing are recomputed above; here they are compared, so that
    // damage to them is noticed too.
    let again = write_rsa(&key).ok_or(not_a_key.clone())?;
    if !again.lines().eq(pem.lines()) {
        return Err(not_a_key);
    }
    Ok(key.into())
}

/// The text of an RSA key file.
pub fn rsa_pem(key: &tor_rsa::KeyPair) -> Option<Zeroizing<String>> {
    write_rsa(key.as_key())
}

/// PKCS#1 in PEM, as OpenSSL writes it.
fn write_rsa(key: &rsa::RsaPrivateKey) -> Option<Zeroizing<String>> {
    key.to_pkcs1_pem(LineEnding::LF).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;
    use tor_llcrypto::pk::ed25519::Keypair;

    #[test]
    fn headers_are_32_bytes_and_name_what_follows() {
        let file = tag(Kind::MASTER_SECRET, &[7; 64]);
        assert_eq!(&file[..32], b"== ed25519v1-secret: type0 ==\0\0\0");
        assert_eq!(file.len(), 96);
        assert_eq!(untag(Kind::MASTER_SECRET, &file), Ok(&[7; 64][..]));
        assert_eq!(
            untag(Kind::SIGNING_SECRET, &file),
            Err(FormatError::Foreign {
                found: "ed25519v1-secret: type0".into(),
                wanted: "ed25519v1-secret: type4".into()
            })
        );
        assert_eq!(
            untag(Kind::MASTER_SECRET, &file[..95]),
            Err(FormatError::Length {
                found: 95,
                wanted: 96
            })
        );
        assert_eq!(untag(Kind::MASTER_SECRET, &[]), Err(FormatError::Empty));
        assert_eq!(untag(Kind::NTOR, &[0; 96]), Err(FormatError::NoHeader));
    }

    #[test]
    fn an_expanded_seed_is_the_seeds_key() {
        // RFC 8032, 7.1, test 1.
        let seed: [u8; 32] =
            hex::decode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
                .unwrap()
                .try_into()
                .unwrap();
        let file = tag(Kind::SIGNING_SECRET, expand_ed25519_seed(&seed).as_slice());
        let key = ed25519_key(Kind::SIGNING_SECRET, &file).unwrap();
        assert_eq!(
            hex::encode(key.public().as_bytes()),
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
        );
        assert_eq!(
            key.sign(b"").to_bytes(),
            Keypair::from_bytes(&seed).sign(b"").to_bytes()
        );
    }

    #[test]
    fn a_zero_scalar_is_no_key() {
        let file = tag(Kind::SIGNING_SECRET, &[0; 64]);
        assert!(ed25519_key(Kind::SIGNING_SECRET, &file).is_err());
    }

    #[test]
    fn rsa_keys_are_read_back_and_any_changed_digit_is_noticed() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let key = tor_rsa::KeyPair::generate(&mut rng).unwrap();
        let pem = rsa_pem(&key).unwrap();
        assert!(pem.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        assert!(pem.ends_with("\n-----END RSA PRIVATE KEY-----\n"));
        let back = rsa_key(pem.as_bytes()).unwrap();
        assert_eq!(
            back.to_public_key().to_rsa_identity(),
            key.to_public_key().to_rsa_identity()
        );
        // C tor ends some of its files with a zero byte.
        assert!(rsa_key(format!("{}\0", *pem).as_bytes()).is_ok());
        for at in (0..pem.len()).step_by(11) {
            let mut bytes = pem.as_bytes().to_vec();
            bytes[at] ^= 1;
            assert!(rsa_key(&bytes).is_err(), "digit {at}");
            assert!(rsa_key(&pem.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn other_rsa_keys_are_refused() {
        // A real key of 512 bits.
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        struct Compat<'a>(&'a mut ChaCha20Rng);
        impl rsa::rand_core::RngCore for Compat<'_> {
            fn next_u32(&mut self) -> u32 {
                rand::Rng::next_u32(self.0)
            }
            fn next_u64(&mut self) -> u64 {
                rand::Rng::next_u64(self.0)
            }
            fn fill_bytes(&mut self, dest: &mut [u8]) {
                rand::Rng::fill_bytes(self.0, dest);
            }
            fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), rsa::rand_core::Error> {
                rand::Rng::fill_bytes(self.0, dest);
                Ok(())
            }
        }
        impl rsa::rand_core::CryptoRng for Compat<'_> {}
        let small = rsa::RsaPrivateKey::new(&mut Compat(&mut rng), 512).unwrap();
        let pem = small.to_pkcs1_pem(LineEnding::LF).unwrap();
        let error = rsa_key(pem.as_bytes()).err().unwrap();
        assert!(error.to_string().contains("1024-bit"), "{error}");
    }

    #[test]
    fn an_ntor_key_is_checked_against_its_public_half() {
        let secret = [0x40; 32];
        let mut contents = secret.to_vec();
        contents.extend_from_slice(&ntor_public(&secret));
        let file = tag(Kind::NTOR, &contents);
        assert_eq!(&file[..32], b"== c25519v1: onion ==\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(*ntor_key(&file).unwrap().0, secret);
        let mut changed = file.to_vec();
        changed[95] ^= 1;
        assert_eq!(ntor_key(&changed).err(), Some(FormatError::PublicKey));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_key_or_an_error(
            head in prop_oneof![
                Just(tag(Kind::MASTER_SECRET, &[]).to_vec()),
                Just(tag(Kind::MASTER_PUBLIC, &[]).to_vec()),
                Just(tag(Kind::SIGNING_CERT, &[]).to_vec()),
                Just(tag(Kind::NTOR, &[]).to_vec()),
                Just(tag(Kind::MASTER_ENCRYPTED, &[]).to_vec()),
                Just(Vec::new()),
            ],
            tail in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let file = [head, tail].concat();
            let _ = ed25519_key(Kind::MASTER_SECRET, &file);
            let _ = ed25519_public(&file);
            prop_assert!(signing_cert(&file).is_err());
            let _ = ntor_key(&file);
            prop_assert!(rsa_key(&file).is_err());
        }
    }
}
