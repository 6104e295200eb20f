//! The handshake's view of its link's TLS session.

use thiserror::Error;

/// Values of the TLS session that the handshake needs.
pub trait TlsSession {
    /// The certificate that the peer presented, in DER; an initiator needs it.
    fn peer_certificate(&self) -> Option<&[u8]>;
    /// SHA-256 of the certificate that this side presented in this very session; a responder
    /// needs it.
    fn own_certificate_sha256(&self) -> Option<[u8; 32]>;
    /// Keying material of this session (RFC 5705, RFC 8446 7.5).
    fn export_keying_material(
        &self,
        out: &mut [u8; 32],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), ExportError>;
}

/// The TLS session could not export keying material.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no keying material can be exported: {0}")]
pub struct ExportError(pub String);
