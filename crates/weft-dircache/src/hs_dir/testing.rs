//! Descriptors of onion services made up for tests. Nobody could decrypt their inside, and no directory can.

use base64ct::{Base64, Base64Unpadded, Encoding as _};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert, EncodedCert as _};
use tor_llcrypto::pk::ed25519::{Ed25519PublicKey as _, Keypair};

use super::BlindedKey;
use crate::testing::{now, secs};

/// The default of `HSV3MaxDescriptorSize`.
pub(crate) const LIMIT: usize = 50_000;

/// A service with its keys, and what its descriptors have.
pub(crate) struct Service {
    pub(super) blinded: Keypair,
    pub(super) signing: Keypair,
    pub(crate) version: String,
    pub(crate) lifetime: String,
    /// Bytes of the encrypted part.
    pub(crate) encrypted: usize,
    /// Lines that are there besides.
    pub(crate) more: String,
    pub(crate) cert_type: CertType,
    /// The certificate names this key in place of the one that has signed it.
    pub(crate) claims: Option<BlindedKey>,
}

impl Service {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        Self {
            blinded: Keypair::generate(&mut rng),
            signing: Keypair::generate(&mut rng),
            version: "3".into(),
            lifetime: "180".into(),
            encrypted: 300,
            more: String::new(),
            cert_type: CertType::HS_BLINDED_ID_V_SIGNING,
            claims: None,
        }
    }

    /// Its blinded key.
    pub(crate) fn key(&self) -> BlindedKey {
        self.blinded.public_key().to_bytes()
    }

    /// The path at which its descriptor is fetched.
    pub(crate) fn path(&self) -> String {
        format!("/tor/hs/3/{}", Base64Unpadded::encode_string(&self.key()))
    }

    /// The certificate of the key that signs descriptors, for 54 hours (C tor `HS_DESC_CERT_LIFETIME`).
    fn cert(&self) -> Vec<u8> {
        let cert = Ed25519Cert::builder()
            .cert_type(self.cert_type)
            .cert_key(CertifiedKey::Ed25519(self.signing.public_key().into()))
            .signing_key(self.blinded.public_key().into())
            .expiration(now() + secs(54 * 3600))
            .encode_and_sign(&self.blinded)
            .unwrap();
        let mut cert = cert.encoded().to_vec();
        if let Some(other) = self.claims {
            let own = self.key();
            let at = cert.windows(32).position(|bytes| bytes == own).unwrap();
            cert[at..at + 32].copy_from_slice(&other);
        }
        cert
    }

    /// A descriptor, signed.
    pub(crate) fn descriptor(&self, revision: u64) -> String {
        let text = format!(
            "hs-descriptor {}\ndescriptor-lifetime {}\ndescriptor-signing-key-cert\n{}\
             revision-counter {revision}\n{}superencrypted\n{}",
            self.version,
            self.lifetime,
            object("ED25519 CERT", &self.cert()),
            self.more,
            object("MESSAGE", &vec![7; self.encrypted]),
        );
        let signed = format!("Tor onion service descriptor sig v3{text}");
        let signature = self.signing.sign(signed.as_bytes()).to_bytes();
        let signature = Base64Unpadded::encode_string(&signature);
        format!("{text}signature {signature}\n")
    }
}

fn object(tag: &str, bytes: &[u8]) -> String {
    let encoded = Base64::encode_string(bytes);
    let lines: Vec<&str> = encoded
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN {tag}-----\n{}\n-----END {tag}-----\n",
        lines.join("\n")
    )
}
