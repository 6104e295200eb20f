//! A relay's proof of identity on links: its certificates and link authentication key.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use digest::Digest as _;
use rand::{CryptoRng, RngExt as _};
use thiserror::Error;
use tor_cert::rsa::EncodedRsaCrosscert;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::ed25519::{self, Ed25519Identity, Ed25519PublicKey, Ed25519SigningKey};
use tor_llcrypto::pk::rsa;
use weft_cell::identity::{self, RsaIdentity};
use weft_cell::link_msg::Certs;

use super::certs::{self, Purpose};
use super::error::{CertError, CertKind};

/// Lifetime of the TLS link certificate (type 5) and the link authentication certificate (type 6):
/// C tor's defaults for TestingLinkCertLifetime and TestingAuthKeyLifetime.
pub(crate) const LINK_CERT_LIFETIME: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// Lifetimes of the certificates that a relay makes for its links. Peers see them rounded up to
/// whole hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCertLifetimes {
    /// The certificate of the TLS link certificate, type 5 (TestingLinkCertLifetime).
    pub tls: Duration,
    /// The certificate of the link authentication key, type 6 (TestingAuthKeyLifetime).
    pub link_auth: Duration,
}

impl Default for LinkCertLifetimes {
    fn default() -> Self {
        Self {
            tls: LINK_CERT_LIFETIME,
            link_auth: LINK_CERT_LIFETIME,
        }
    }
}

/// Lifetime of the RSA-to-ed25519 cross-certificate: C tor's.
const CROSS_CERT_LIFETIME: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// The long-lived keys that a [`LinkIdentity`] is made from.
pub struct IdentityKeys<'a, S> {
    /// The RSA-1024 identity key.
    pub rsa: &'a rsa::KeyPair,
    /// The ed25519 identity key's public half; its secret may be offline.
    pub ed_identity: Ed25519Identity,
    /// The certificate of type 4, with the signing key's extension (cert-spec 2.2.1).
    pub identity_signing_cert: &'a [u8],
    /// The ed25519 signing key that it certifies.
    pub signing: &'a S,
}

/// Why no link identity could be made.
#[derive(Debug, Error)]
pub enum LinkIdentityError {
    /// A certificate could not be made.
    #[error("could not make the {kind}: {why}")]
    Issue {
        /// The certificate.
        kind: CertKind,
        /// The error of its maker.
        why: String,
    },
    /// The certificates do not fit together: the keys on disk are not one relay's.
    #[error(
        "this relay's keys do not fit together ({0}); \
         check that the files in KeyDirectory belong to one relay and the clock is right"
    )]
    Inconsistent(#[from] CertError),
}

/// This node's proof of identity on links. Immutable, shared by `Arc`, and replaced whole, together
/// with the TLS certificate that it certifies, before its certificates expire.
pub struct LinkIdentity {
    pub(super) rsa_id: RsaIdentity,
    pub(super) rsa_sha256: [u8; 32],
    pub(super) ed_id: identity::Ed25519Identity,
    /// SHA-256 of the TLS certificate that type 5 certifies.
    pub(super) tls_certificate: [u8; 32],
    pub(super) link_auth: ed25519::Keypair,
    rsa_id_cert: Vec<u8>,
    identity_signing_cert: Vec<u8>,
    signing_tls_cert: Vec<u8>,
    signing_link_auth_cert: Vec<u8>,
    rsa_cross_cert: Vec<u8>,
}

impl LinkIdentity {
    /// Makes a fresh link authentication key and every certificate that the relay's keys do not
    /// bring themselves, then checks the whole as a peer would.
    ///
    /// `tls_certificate` is the SHA-256 digest of the link certificate in use, in DER.
    pub fn issue<S>(
        keys: IdentityKeys<'_, S>,
        tls_certificate: [u8; 32],
        lifetimes: LinkCertLifetimes,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<Self, LinkIdentityError>
    where
        S: Ed25519PublicKey + Ed25519SigningKey,
    {
        let mut rng = rng;
        let failed = |kind| {
            move |error: &dyn std::fmt::Display| LinkIdentityError::Issue {
                kind,
                why: error.to_string(),
            }
        };
        let link_auth = ed25519::Keypair::generate(&mut rng);
        // The host name is a decoy: C tor puts random ones there, and no peer checks it.
        let host = random_hostname(CERTIFICATE_NAME, &mut rng);
        let rsa_id_cert = tor_cert_x509::create_legacy_rsa_id_cert(&mut rng, now, &host, keys.rsa)
            .map_err(|error| failed(CertKind::RsaIdentity)(&error))?;
        let rsa_cross_cert = EncodedRsaCrosscert::encode_and_sign(
            keys.rsa,
            &keys.ed_identity,
            now + CROSS_CERT_LIFETIME,
        )
        .map_err(|error| failed(CertKind::RsaToIdentity)(&error))?;
        let signed = |kind: CertKind, lifetime, subject| {
            Ed25519Cert::builder()
                .cert_type(CertType::from(kind.cert_type()))
                .expiration(now + lifetime)
                .signing_key(keys.signing.public_key().into())
                .cert_key(subject)
                .encode_and_sign(keys.signing)
                .map(Vec::from)
                .map_err(|error| failed(kind)(&error))
        };
        let signing_tls_cert = signed(
            CertKind::SigningToTls,
            lifetimes.tls,
            CertifiedKey::X509Sha256Digest(tls_certificate),
        )?;
        let signing_link_auth_cert = signed(
            CertKind::SigningToLinkAuth,
            lifetimes.link_auth,
            CertifiedKey::Ed25519(link_auth.verifying_key().into()),
        )?;

        let identity = Self {
            rsa_id: keys.rsa.to_public_key().to_rsa_identity().into(),
            rsa_sha256: sha2::Sha256::digest(keys.rsa.to_public_key().to_der()).into(),
            ed_id: keys.ed_identity.into(),
            tls_certificate,
            link_auth,
            rsa_id_cert,
            identity_signing_cert: keys.identity_signing_cert.to_vec(),
            signing_tls_cert,
            signing_link_auth_cert,
            rsa_cross_cert: rsa_cross_cert.into(),
        };
        // The cross-certificate binds `ed_identity`, so another relay's signing certificate shows.
        let as_responder = Purpose::Responder {
            tls_certificate: &tls_certificate,
        };
        certs::check(&identity.responder_certs(), as_responder, now)?;
        certs::check(&identity.initiator_certs(), Purpose::Initiator, now)?;
        Ok(identity)
    }

    /// The RSA identity that the certificates prove.
    pub fn rsa_id(&self) -> &RsaIdentity {
        &self.rsa_id
    }

    /// The Ed25519 identity that the certificates prove.
    pub fn ed_id(&self) -> &identity::Ed25519Identity {
        &self.ed_id
    }

    /// SHA-256 of the TLS certificate that this identity's CERTS cells vouch for. A link's TLS
    /// session must use that very certificate.
    pub fn tls_certificate_sha256(&self) -> &[u8; 32] {
        &self.tls_certificate
    }

    /// The certificates of a responder's CERTS cell.
    pub(super) fn responder_certs(&self) -> Certs {
        self.certs(CertKind::SigningToTls, &self.signing_tls_cert)
    }

    /// The certificates of an initiator's CERTS cell.
    pub(super) fn initiator_certs(&self) -> Certs {
        self.certs(CertKind::SigningToLinkAuth, &self.signing_link_auth_cert)
    }

    /// In the order in which C tor sends them.
    fn certs(&self, leaf_kind: CertKind, leaf: &[u8]) -> Certs {
        let certs = [
            (CertKind::RsaIdentity, self.rsa_id_cert.as_slice()),
            (CertKind::IdentityToSigning, &self.identity_signing_cert),
            (leaf_kind, leaf),
            (CertKind::RsaToIdentity, &self.rsa_cross_cert),
        ]
        .map(|(kind, body)| (kind.cert_type(), body.to_vec()));
        Certs {
            certs: certs.into(),
        }
    }
}

impl std::fmt::Debug for LinkIdentity {
    /// Only what every peer may know.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkIdentity")
            .field("rsa_id", &hex(self.rsa_id.as_ref()))
            .field("ed_id", &hex(self.ed_id.as_ref()))
            .finish_non_exhaustive()
    }
}

/// Lengths of the names that C tor puts into its certificates.
pub const CERTIFICATE_NAME: RangeInclusive<usize> = 8..=20;
/// Lengths of the names that C tor's clients ask for (SNI).
pub const SNI_NAME: RangeInclusive<usize> = 4..=25;

/// A random host name like C tor's: `www.`, base32 letters and digits, their number from `lengths`,
/// and `.com`.
pub fn random_hostname(lengths: RangeInclusive<usize>, rng: &mut dyn CryptoRng) -> String {
    const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let length = rng.random_range(lengths);
    let name = (0..length)
        .filter_map(|_| BASE32.get(rng.random_range(0..BASE32.len())))
        .map(|b| char::from(*b));
    format!("www.{}.com", name.collect::<String>())
}

/// Upper-case hexadecimal, as fingerprints are written.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect()
}
