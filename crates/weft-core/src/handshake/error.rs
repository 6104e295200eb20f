//! Why a link handshake failed, and at which severity that is logged.

use std::time::SystemTime;

use thiserror::Error;
use weft_cell::frame::FrameError;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::link_msg::cert_type;

/// The certificates of a CERTS cell that Weft reads (tor-spec 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertKind {
    /// Type 2: the RSA identity key, self-signed, X.509.
    RsaIdentity,
    /// Type 4: the ed25519 signing key, signed with the ed25519 identity key.
    IdentityToSigning,
    /// Type 5: the TLS certificate's digest, signed with the signing key.
    SigningToTls,
    /// Type 6: the link authentication key, signed with the signing key.
    SigningToLinkAuth,
    /// Type 7: the ed25519 identity key, signed with the RSA identity key.
    RsaToIdentity,
}

impl CertKind {
    /// The CertType of a CERTS cell.
    pub fn cert_type(self) -> u8 {
        match self {
            Self::RsaIdentity => cert_type::RSA_IDENTITY,
            Self::IdentityToSigning => cert_type::ED25519_SIGNING,
            Self::SigningToTls => cert_type::ED25519_LINK,
            Self::SigningToLinkAuth => cert_type::ED25519_AUTHENTICATE,
            Self::RsaToIdentity => cert_type::RSA_TO_ED25519,
        }
    }
}

impl std::fmt::Display for CertKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RsaIdentity => "RSA identity certificate (type 2)",
            Self::IdentityToSigning => "identity-to-signing certificate (type 4)",
            Self::SigningToTls => "signing-to-TLS-link certificate (type 5)",
            Self::SigningToLinkAuth => "signing-to-link-authentication certificate (type 6)",
            Self::RsaToIdentity => "RSA-to-ed25519 cross-certificate (type 7)",
        })
    }
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From then on; `None`: certificates of its kind do not say.
    pub from: Option<SystemTime>,
    /// Until then.
    pub until: SystemTime,
}

/// Defect in the certificates of a CERTS cell.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CertError {
    /// A certificate that tor-spec 4.2 requires is not there.
    #[error("the {0} is missing")]
    Missing(CertKind),
    /// The bytes are not such a certificate.
    #[error("the {kind} cannot be read: {why}")]
    Malformed {
        /// The certificate.
        kind: CertKind,
        /// The parser's error.
        why: String,
    },
    /// It is not valid any more.
    #[error("the {0} has expired; if this happens with many relays, check this machine's clock")]
    Expired(CertKind, Validity),
    /// It is not valid yet.
    #[error(
        "the {0} is not valid yet; if this happens with many relays, check this machine's clock"
    )]
    NotYetValid(CertKind, Validity),
    /// It is not signed by the key that should have signed it.
    #[error("the {0} is not signed by the key that should have signed it")]
    BadSignature(CertKind),
    /// It certifies another key or certificate than the one in use.
    #[error("the {kind} certifies something else than {what}")]
    WrongSubject {
        /// The certificate.
        kind: CertKind,
        /// The key or certificate that it should certify.
        what: &'static str,
    },
}

/// The fields of an AUTHENTICATE cell that a responder recomputes (tor-spec 4.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's.
pub enum AuthField {
    Type,
    Cid,
    Sid,
    CidEd,
    SidEd,
    Slog,
    Clog,
    Scert,
    TlsSecrets,
}

impl std::fmt::Display for AuthField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Type => "TYPE",
            Self::Cid => "CID",
            Self::Sid => "SID",
            Self::CidEd => "CID_ED",
            Self::SidEd => "SID_ED",
            Self::Slog => "SLOG",
            Self::Clog => "CLOG",
            Self::Scert => "SCERT",
            Self::TlsSecrets => "TLSSECRETS",
        })
    }
}

/// Why a link handshake failed. The link must be closed; nothing can be retried on it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The bytes cannot be cut into cells, or the first cell is not VERSIONS.
    #[error("the peer sent what cannot be a cell: {0}")]
    NotACell(#[from] FrameError),
    /// More bytes than any honest handshake needs.
    #[error("the peer sent more than {limit} bytes without finishing the handshake")]
    TooManyBytes {
        /// The limit, in bytes.
        limit: usize,
    },
    /// No link protocol that both speak.
    #[error(
        "no link protocol in common: the peer offers {} and Weft speaks 4 and 5",
        list(offered)
    )]
    NoCommonVersion {
        /// The peer's list, cut to its first sixteen.
        offered: Vec<u16>,
    },
    /// A cell whose body breaks its format.
    #[error("the peer's {cell} cell is malformed: {why}")]
    MalformedCell {
        /// Its name.
        cell: &'static str,
        /// The defect.
        why: String,
    },
    /// A cell that has no place here.
    #[error("the peer sent {cell} while {expected} was expected")]
    UnexpectedCell {
        /// The cell that arrived.
        cell: String,
        /// The cells that tor-spec 4 allows at this point, besides padding.
        expected: &'static str,
    },
    /// A cell that may come once came again.
    #[error("the peer sent a second {0} cell")]
    DuplicateCell(&'static str),
    /// A link-level cell with a circuit id.
    #[error("the peer's {0} cell has a circuit id")]
    NonZeroCircuitId(&'static str),
    /// The certificates prove nothing.
    #[error("the peer's certificates are not acceptable: {0}")]
    BadCertificate(#[from] CertError),
    /// The peer is a relay, but not the one that was wanted.
    #[error(
        "connected to the wrong relay: wanted {} and {}, found {} and {}",
        .wanted_rsa.map_or_else(|| "any RSA identity".to_owned(), |id| format!("RSA identity {id}")),
        .wanted_ed.map_or_else(|| "any ed25519 identity".to_owned(), |id| format!("ed25519 identity {id}")),
        .found_rsa,
        .found_ed
    )]
    WrongIdentity {
        /// The RSA identity that was asked for.
        wanted_rsa: Option<RsaIdentity>,
        /// The ed25519 identity that was asked for.
        wanted_ed: Option<Ed25519Identity>,
        /// The RSA identity that was proven.
        found_rsa: RsaIdentity,
        /// The ed25519 identity that was proven.
        found_ed: Ed25519Identity,
    },
    /// AUTHENTICATE of a type other than AUTH0003.
    #[error("the peer authenticates with method {0}; Weft accepts 3 (Ed25519-SHA256-RFC5705)")]
    AuthenticationMethod(u16),
    /// AUTHENTICATE's body is shorter than its fields.
    #[error("the peer's AUTHENTICATE cell is {0} bytes short")]
    AuthenticationTooShort(usize),
    /// A field is not what both sides of this very session must compute.
    #[error("field {0} of the peer's AUTHENTICATE cell does not belong to this session")]
    AuthenticationMismatch(AuthField),
    /// The signature does not verify with the link authentication key.
    #[error("the peer's AUTHENTICATE cell is not signed by its link authentication key")]
    AuthenticationSignature,
    /// A responder without an identity.
    #[error("this node has no relay identity and so cannot answer incoming links")]
    NoIdentity,
    /// The TLS session does not offer what the handshake needs.
    #[error("the TLS session cannot be bound to the link: {0}")]
    Tls(String),
    /// A cell of ours does not fit its own format.
    #[error("could not build this node's {cell} cell: {why}")]
    CannotEncode {
        /// Its name.
        cell: &'static str,
        /// The defect.
        why: String,
    },
}

/// Class of a failed handshake. The caller chooses log severities by it, as C tor does: a peer's
/// protocol violation is not an operator's problem, a wrong identity may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The peer does not follow tor-spec (C tor: `LOG_PROTOCOL_WARN`).
    ProtocolViolation,
    /// The peer follows it but shares no version with us.
    NoCommonProtocol,
    /// The peer's certificates are bad or expired; perhaps a clock is wrong.
    BadCertificate,
    /// The peer is not the one expected.
    WrongIdentity,
    /// The peer could not prove that it is the relay it claims to be.
    AuthenticationFailed,
    /// The peer wasted our memory.
    LimitExceeded,
    /// This node's own fault.
    Local,
}

/// Versions as text.
fn list(versions: &[u16]) -> String {
    let versions: Vec<String> = versions.iter().map(ToString::to_string).collect();
    match versions.is_empty() {
        true => "none".to_owned(),
        false => versions.join(", "),
    }
}

impl HandshakeError {
    /// When the certificate is valid that is not valid now: one of the two clocks is wrong.
    pub fn outside(&self) -> Option<Validity> {
        match self {
            Self::BadCertificate(
                CertError::Expired(_, validity) | CertError::NotYetValid(_, validity),
            ) => Some(*validity),
            _ => None,
        }
    }

    /// The class of this failure.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotACell(FrameError::TooLong { .. } | FrameError::TooMuchBeforeVersions)
            | Self::TooManyBytes { .. } => ErrorClass::LimitExceeded,
            Self::NotACell(_)
            | Self::MalformedCell { .. }
            | Self::UnexpectedCell { .. }
            | Self::DuplicateCell(_)
            | Self::NonZeroCircuitId(_) => ErrorClass::ProtocolViolation,
            Self::NoCommonVersion { .. } => ErrorClass::NoCommonProtocol,
            Self::BadCertificate(_) => ErrorClass::BadCertificate,
            Self::WrongIdentity { .. } => ErrorClass::WrongIdentity,
            Self::AuthenticationMethod(_)
            | Self::AuthenticationTooShort(_)
            | Self::AuthenticationMismatch(_)
            | Self::AuthenticationSignature => ErrorClass::AuthenticationFailed,
            Self::NoIdentity | Self::Tls(_) | Self::CannotEncode { .. } => ErrorClass::Local,
        }
    }
}
