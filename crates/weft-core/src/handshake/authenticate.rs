//! The AUTH0003 body of AUTHENTICATE: an initiator's proof that it holds its link
//! authentication key in this very TLS session (tor-spec 4.4.2).

use rand::CryptoRng;
use subtle::ConstantTimeEq as _;
use tor_llcrypto::pk::ed25519;
use weft_cell::identity::Ed25519Identity;

use super::error::{AuthField, HandshakeError};
use super::session::TlsSession;

/// The first field.
const TYPE: &[u8; 8] = b"AUTH0003";
/// RFC 5705 label of TLSSECRETS.
const EXPORTER_LABEL: &[u8] = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
/// RAND's length.
const RAND_LEN: usize = 24;
/// SIG's length.
const SIG_LEN: usize = 64;

/// Values of the session that both sides know and must agree on, named as in the specification.
pub(super) struct Fields {
    /// SHA-256 of the initiator's RSA identity key.
    pub(super) cid: [u8; 32],
    /// SHA-256 of the responder's RSA identity key.
    pub(super) sid: [u8; 32],
    /// The initiator's ed25519 identity.
    pub(super) cid_ed: Ed25519Identity,
    /// The responder's ed25519 identity.
    pub(super) sid_ed: Ed25519Identity,
    /// SHA-256 of all that the responder sent, up to and including AUTH_CHALLENGE.
    pub(super) slog: [u8; 32],
    /// SHA-256 of all that the initiator sent before AUTHENTICATE.
    pub(super) clog: [u8; 32],
    /// SHA-256 of the responder's TLS certificate.
    pub(super) scert: [u8; 32],
}

impl Fields {
    /// The fields in order, TLSSECRETS last.
    fn laid_out(&self, tls: &dyn TlsSession) -> Result<[(AuthField, [u8; 32]); 8], HandshakeError> {
        let mut tls_secrets = [0; 32];
        // By the specification the context is the initiator's ed25519 identity. C tor, and
        // with it the whole network, uses CID.
        tls.export_keying_material(&mut tls_secrets, EXPORTER_LABEL, Some(&self.cid))
            .map_err(|error| HandshakeError::Tls(error.to_string()))?;
        Ok([
            (AuthField::Cid, self.cid),
            (AuthField::Sid, self.sid),
            (AuthField::CidEd, *self.cid_ed.as_bytes()),
            (AuthField::SidEd, *self.sid_ed.as_bytes()),
            (AuthField::Slog, self.slog),
            (AuthField::Clog, self.clog),
            (AuthField::Scert, self.scert),
            (AuthField::TlsSecrets, tls_secrets),
        ])
    }

    /// The initiator's side: the signed body.
    pub(super) fn sign(
        &self,
        tls: &dyn TlsSession,
        key: &ed25519::Keypair,
        rng: &mut dyn CryptoRng,
    ) -> Result<Vec<u8>, HandshakeError> {
        let mut body = TYPE.to_vec();
        for (_, value) in self.laid_out(tls)? {
            body.extend_from_slice(&value);
        }
        let mut random = [0; RAND_LEN];
        rng.fill_bytes(&mut random);
        body.extend_from_slice(&random);
        let signature = key.sign(&body).to_bytes();
        body.extend_from_slice(&signature);
        Ok(body)
    }

    /// The responder's side: compares every field and then checks the signature. Bytes between
    /// RAND and SIG are signed but mean nothing (tor-spec 4.4.2: "MUST ignore").
    pub(super) fn verify(
        &self,
        body: &[u8],
        tls: &dyn TlsSession,
        key: &ed25519::PublicKey,
    ) -> Result<(), HandshakeError> {
        let expected = self.laid_out(tls)?;
        let needed = TYPE.len() + expected.len() * 32 + RAND_LEN + SIG_LEN;
        let too_short = || HandshakeError::AuthenticationTooShort(needed - body.len().min(needed));
        if body.len() < needed {
            return Err(too_short());
        }
        let (signed, signature) = body.split_last_chunk::<SIG_LEN>().ok_or_else(too_short)?;

        let (auth_type, mut rest) = signed.split_first_chunk().ok_or_else(too_short)?;
        if auth_type != TYPE {
            return Err(HandshakeError::AuthenticationMismatch(AuthField::Type));
        }
        for (field, value) in expected {
            let (found, after) = rest.split_first_chunk::<32>().ok_or_else(too_short)?;
            if !bool::from(found.ct_eq(&value)) {
                return Err(HandshakeError::AuthenticationMismatch(field));
            }
            rest = after;
        }

        key.verify(signed, &ed25519::Signature::from_bytes(signature))
            .map_err(|_| HandshakeError::AuthenticationSignature)
    }
}
