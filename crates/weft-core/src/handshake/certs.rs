//! Verification of a peer's CERTS cell: every rule of tor-spec 4.2 for relays with both identities.
//!
//! Relays that have only an RSA identity are not supported: the network has required ed25519 link
//! authentication (`LinkAuth=3`) of all relays for years. Types 1 and 3, which served them, are
//! ignored, as are unknown types.

use std::time::{Duration, SystemTime};

use digest::Digest as _;
use tor_cert::rsa::RsaCrosscert;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_checkable::{ExternallySigned as _, SelfSigned as _, TimeBound as _, TimeValidityError};
use tor_llcrypto::pk::ed25519::{self, Ed25519Identity};
use weft_cell::identity::{self, RsaIdentity};
use weft_cell::link_msg::Certs;

use super::error::{CertError, CertKind, Validity};
use super::x509::{self, IdCertFault};

/// Use for which the certificates must be valid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// A responder's: they must lead to the TLS certificate with this SHA-256 digest.
    Responder { tls_certificate: &'a [u8; 32] },
    /// An initiator's: they must lead to a key that AUTHENTICATE can be checked with.
    Initiator,
}

/// The relay that a CERTS cell names, all its certificates having been checked against each other.
#[derive(Clone, Debug)]
pub(super) struct PeerCerts {
    pub(super) rsa_id: RsaIdentity,
    /// SHA-256 of the RSA identity key in DER: CID or SID of AUTHENTICATE.
    pub(super) rsa_sha256: [u8; 32],
    pub(super) ed_id: identity::Ed25519Identity,
    /// Checks AUTHENTICATE's signature; always there for [`Purpose::Initiator`].
    pub(super) link_auth_key: Option<ed25519::PublicKey>,
}

/// Checks the certificates of a CERTS cell.
///
/// The cheap checks come first and the signatures last, so that garbage costs little.
pub(super) fn check(
    certs: &Certs,
    purpose: Purpose<'_>,
    now: SystemTime,
) -> Result<PeerCerts, CertError> {
    // The certificate, signed by the signing key, that leads from the identity to this link.
    let leaf_kind = match purpose {
        Purpose::Responder { .. } => CertKind::SigningToTls,
        Purpose::Initiator => CertKind::SigningToLinkAuth,
    };
    let find = |kind: CertKind| certs.get(kind.cert_type()).ok_or(CertError::Missing(kind));
    let rsa_cert = find(CertKind::RsaIdentity)?;
    let signing_cert = find(CertKind::IdentityToSigning)?;
    let leaf_cert = find(leaf_kind)?;
    let cross_cert = find(CertKind::RsaToIdentity)?;

    let signing_cert = Ed25519::decode(CertKind::IdentityToSigning, signing_cert)?;
    let identity = signing_cert.included_signer()?;
    let signing_key = signing_cert.certified_key()?;
    let leaf_cert = Ed25519::decode(leaf_kind, leaf_cert)?;
    let link_auth_key = match purpose {
        Purpose::Responder { tls_certificate } => {
            leaf_cert.must_certify_tls(tls_certificate)?;
            None
        }
        Purpose::Initiator => Some(leaf_cert.certified_key()?),
    };
    let cross_cert = RsaCrosscert::decode(cross_cert).map_err(|error| CertError::Malformed {
        kind: CertKind::RsaToIdentity,
        why: error.to_string(),
    })?;

    signing_cert.check(&identity, now)?;
    leaf_cert.check(&signing_key, now)?;
    let rsa_key = x509::check_rsa_id_cert(rsa_cert, now).map_err(|fault| {
        let kind = CertKind::RsaIdentity;
        match fault {
            IdCertFault::Malformed(why) => CertError::Malformed {
                kind,
                why: why.to_owned(),
            },
            IdCertFault::NotYetValid(validity) => CertError::NotYetValid(kind, validity),
            IdCertFault::Expired(validity) => CertError::Expired(kind, validity),
            IdCertFault::BadSignature => CertError::BadSignature(kind),
        }
    })?;
    let cross_cert = cross_cert
        .check_signature(&rsa_key)
        .map_err(|_| CertError::BadSignature(CertKind::RsaToIdentity))?
        .if_valid_at(&now)
        .map_err(|error| expired(CertKind::RsaToIdentity, &error, now))?;
    if !cross_cert.subject_key_matches(&identity) {
        return Err(CertError::WrongSubject {
            kind: CertKind::RsaToIdentity,
            what: "the ed25519 identity key",
        });
    }

    let link_auth_key = link_auth_key
        .map(|key| {
            ed25519::PublicKey::try_from(&key).map_err(|_| CertError::Malformed {
                kind: leaf_kind,
                why: "its key is not an ed25519 key".to_owned(),
            })
        })
        .transpose()?;
    Ok(PeerCerts {
        rsa_id: rsa_key.to_rsa_identity().into(),
        rsa_sha256: sha2::Sha256::digest(rsa_key.to_der()).into(),
        ed_id: identity.into(),
        link_auth_key,
    })
}

/// A decoded certificate in the format of cert-spec 2.1; nothing about it checked but its type.
struct Ed25519 {
    kind: CertKind,
    cert: tor_cert::KeyUnknownCert,
}

impl Ed25519 {
    /// Reads it, and checks that the type inside is the one that the CERTS cell gave.
    fn decode(kind: CertKind, bytes: &[u8]) -> Result<Self, CertError> {
        let cert = Ed25519Cert::decode(bytes).map_err(|error| CertError::Malformed {
            kind,
            why: error.to_string(),
        })?;
        if cert.peek_cert_type() != CertType::from(kind.cert_type()) {
            return Err(CertError::Malformed {
                kind,
                why: format!(
                    "it claims to be of type {}",
                    u8::from(cert.peek_cert_type())
                ),
            });
        }
        Ok(Self { kind, cert })
    }

    /// The signing key that is included by extension 4; without one there is no identity.
    fn included_signer(&self) -> Result<Ed25519Identity, CertError> {
        let cert = self.cert.clone().should_have_signing_key();
        Ok(*cert
            .map_err(|_| CertError::Malformed {
                kind: self.kind,
                why: "it does not include the key that signed it".to_owned(),
            })?
            .peek_signing_key())
    }

    /// The ed25519 key that it certifies.
    fn certified_key(&self) -> Result<Ed25519Identity, CertError> {
        let subject = self.cert.peek_subject_key().as_ed25519();
        subject.copied().ok_or(CertError::WrongSubject {
            kind: self.kind,
            what: "an ed25519 key",
        })
    }

    /// Sees that it certifies the TLS certificate with this SHA-256 digest.
    fn must_certify_tls(&self, digest: &[u8; 32]) -> Result<(), CertError> {
        match self.cert.peek_subject_key() {
            CertifiedKey::X509Sha256Digest(found) if found == digest => Ok(()),
            _ => Err(CertError::WrongSubject {
                kind: self.kind,
                what: "the certificate of this TLS session",
            }),
        }
    }

    /// Checks its signature, by `signer`, and its expiry.
    fn check(self, signer: &Ed25519Identity, now: SystemTime) -> Result<(), CertError> {
        let bad_signature = CertError::BadSignature(self.kind);
        self.cert
            .should_be_signed_with(signer)
            .and_then(|cert| cert.check_signature())
            .map_err(|_| bad_signature)?
            .check_valid_at(&now)
            .map_err(|error| expired(self.kind, &error, now))
    }
}

/// That a certificate which only says until when it is valid has expired.
fn expired(kind: CertKind, error: &TimeValidityError, now: SystemTime) -> CertError {
    let since = match error {
        TimeValidityError::Expired(since) => *since,
        _ => Duration::ZERO,
    };
    let until = now.checked_sub(since).unwrap_or(now);
    CertError::Expired(kind, Validity { from: None, until })
}
