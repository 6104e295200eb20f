//! A relay identity that lives in memory only: for tests, fuzzing, simulators and load
//! generators. A relay that people use keeps its identity on disk.

use std::time::{Duration, SystemTime};

use rand::CryptoRng;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::{ed25519, rsa};

use super::error::CertKind;
use super::identity::{IdentityKeys, LinkIdentityError};

/// Lifetime of the signing key's certificate: C tor's default SigningKeyLifetime.
const SIGNING_KEY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The long-lived keys of a relay that is forgotten when it ends.
pub struct EphemeralKeys {
    /// The RSA-1024 identity key.
    pub rsa: rsa::KeyPair,
    /// The ed25519 identity key.
    pub identity: ed25519::Keypair,
    /// The ed25519 signing key.
    pub signing: ed25519::Keypair,
    /// The identity's certificate for the signing key, good for thirty days.
    pub identity_signing_cert: Vec<u8>,
}

impl EphemeralKeys {
    /// Generates fresh keys. Equal seeds give equal relays.
    pub fn generate(now: SystemTime, rng: &mut dyn CryptoRng) -> Result<Self, LinkIdentityError> {
        Self::with_rsa(now, rng, |mut rng| {
            rsa::KeyPair::generate(&mut rng).map_err(|error| error.to_string())
        })
    }

    /// Fresh keys but for the RSA identity, which `make_rsa` makes: a load generator that plays thousands of relays
    /// has no time for the primes of each.
    pub fn with_rsa(
        now: SystemTime,
        rng: &mut dyn CryptoRng,
        make_rsa: impl FnOnce(&mut dyn CryptoRng) -> Result<rsa::KeyPair, String>,
    ) -> Result<Self, LinkIdentityError> {
        let mut rng = rng;
        let failed = |kind, why| LinkIdentityError::Issue { kind, why };
        let identity = ed25519::Keypair::generate(&mut rng);
        let signing = ed25519::Keypair::generate(&mut rng);
        let identity_signing_cert = Ed25519Cert::builder()
            .cert_type(CertType::IDENTITY_V_SIGNING)
            .expiration(now + SIGNING_KEY_LIFETIME)
            .signing_key(identity.verifying_key().into())
            .cert_key(CertifiedKey::Ed25519(signing.verifying_key().into()))
            .encode_and_sign(&identity)
            .map_err(|error| failed(CertKind::IdentityToSigning, error.to_string()))?;
        let rsa = make_rsa(rng).map_err(|why| failed(CertKind::RsaIdentity, why))?;
        Ok(Self {
            rsa,
            identity,
            signing,
            identity_signing_cert: identity_signing_cert.into(),
        })
    }

    /// Keys from which link identities are made.
    pub fn keys(&self) -> IdentityKeys<'_, ed25519::Keypair> {
        IdentityKeys {
            rsa: &self.rsa,
            ed_identity: self.identity.verifying_key().into(),
            identity_signing_cert: &self.identity_signing_cert,
            signing: &self.signing,
        }
    }
}
