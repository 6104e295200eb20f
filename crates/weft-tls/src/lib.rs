//! TLS of links between relays (tor-spec 2): certificates, sessions, and records of open links.
//!
//! It opens no socket and makes no identity key: the caller drives a session over its socket, and hands
//! in the relay's keys, the clock and randomness. Tor's own handshake, which authenticates the peer inside
//! TLS, is `weft_core::handshake`.
//!
//! [`LinkTls`] holds the configurations and the relay's [`LinkIdentity`] that fits them; it is
//! immutable, and a relay makes a new one every [`LINK_KEY_LIFETIME`]. [`LinkSession`] is one TLS
//! session: the event loop drives its [`rustls::Connection`], the link handshake asks it what
//! [`TlsSession`] names. A session keeps the identity it began with, whatever is renewed
//! meanwhile.
//!
//! Once Tor's own handshake on the link is done too, a relay turns the session into [`records`].
//!
//! TLS itself authenticates no node in Tor. A responder presents a certificate that means
//! nothing but "this session's key"; the CERTS cell inside the link binds it to a relay's identity.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation
    )
)]

mod link_cert;
pub mod records;
mod secrets;
#[cfg(test)]
mod tests;
mod verifier;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::CryptoRng;
use rustls::client::{Resumption, Tls12Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection, Side,
    SupportedProtocolVersion,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tor_llcrypto::pk::ed25519::{Ed25519PublicKey, Ed25519SigningKey};
use weft_core::handshake::{
    CERTIFICATE_NAME, ExportError, IdentityKeys, LinkCertLifetimes, LinkIdentity,
    LinkIdentityError, SNI_NAME, TlsSession, random_hostname,
};

use link_cert::LinkCert;
pub use link_cert::LinkCertError;
use records::{RecordError, Records};
use secrets::SessionSecrets;
use verifier::AnyCertificate;

/// Lifetime of a relay's TLS key for new links: C tor's `MAX_SSL_KEY_LIFETIME_INTERNAL`.
pub const LINK_KEY_LIFETIME: Duration = Duration::from_secs(2 * 60 * 60);

/// Lifetimes of a relay's link certificates, and how early each is renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkLifetimes {
    /// Of the certificates.
    pub certs: LinkCertLifetimes,
    /// The TLS certificate's certificate is renewed this long before its end (TestingLinkKeySlop).
    pub tls_slop: Duration,
    /// The link authentication key is renewed this long before its certificate's end
    /// (TestingAuthKeySlop).
    pub link_auth_slop: Duration,
}

impl LinkLifetimes {
    /// For how long everything may be used.
    fn shortest(&self) -> Duration {
        let tls = self.certs.tls.saturating_sub(self.tls_slop);
        let link_auth = self.certs.link_auth.saturating_sub(self.link_auth_slop);
        LINK_KEY_LIFETIME.min(tls).min(link_auth)
    }
}

/// Why links cannot be encrypted.
#[derive(Debug, Error)]
pub enum LinkTlsError {
    /// The link certificate could not be made.
    #[error("could not make a TLS link certificate: {0}")]
    Certificate(#[from] LinkCertError),
    /// The link identity could not be made.
    #[error("could not make this relay's link certificates: {0}")]
    Identity(#[from] LinkIdentityError),
    /// rustls refused.
    #[error("could not set up TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// A session could not be taken over from rustls.
    #[error("could not take a TLS session over: {0}")]
    Records(#[from] RecordError),
    /// rustls could not write to memory.
    #[error("could not take a TLS session's bytes over: {0}")]
    Io(#[from] std::io::Error),
    /// A client was asked to accept a link.
    #[error("this node is no relay and cannot accept links")]
    NotARelay,
}

/// Settings of this node's links: how it encrypts them, and the identity that it proves on them.
#[derive(Debug)]
pub struct LinkTls {
    client: Arc<ClientConfig>,
    relay: Option<RelaySide>,
    /// Links that are opened prove nothing.
    connects_as_client: bool,
}

/// The state that only a relay has.
#[derive(Debug)]
struct RelaySide {
    server: Arc<ServerConfig>,
    identity: Arc<LinkIdentity>,
    renew_at: SystemTime,
}

impl LinkTls {
    /// For a client, which opens links and proves nothing.
    pub fn client() -> Result<Self, LinkTlsError> {
        Ok(Self {
            client: Arc::new(client_config(&[&TLS13, &TLS12])?),
            relay: None,
            connects_as_client: true,
        })
    }

    /// A client that offers TLS 1.2 alone, for tests of links to older peers.
    pub fn tls12_client() -> Result<Self, LinkTlsError> {
        Ok(Self {
            client: Arc::new(client_config(&[&TLS12])?),
            relay: None,
            connects_as_client: true,
        })
    }

    /// For a relay: makes a fresh RSA-2048 link key, its self-made certificate and the Tor
    /// certificates that vouch for it. Takes some tenths of a second; do it beside the cells.
    pub fn relay<S>(
        keys: IdentityKeys<'_, S>,
        lifetimes: LinkLifetimes,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<Self, LinkTlsError>
    where
        S: Ed25519PublicKey + Ed25519SigningKey,
    {
        let link = LinkKey::create(now, rng)?;
        link.vouched_by(keys, lifetimes, now, rng)
    }

    /// Opens links as a client does, and proves itself on those that it accepts alone: a bridge, of which the relays that
    /// it connects to must not learn.
    #[must_use]
    pub fn connecting_as_client(mut self) -> Self {
        self.connects_as_client = true;
        self
    }

    /// The identity that this node proves on links; `None` for a client.
    pub fn identity(&self) -> Option<Arc<LinkIdentity>> {
        self.relay.as_ref().map(|relay| relay.identity.clone())
    }

    /// When a relay should make a new `LinkTls` from its keys. Links that are up keep theirs.
    pub fn renew_at(&self) -> Option<SystemTime> {
        self.relay.as_ref().map(|relay| relay.renew_at)
    }

    /// The responder's side of a new connection.
    pub fn accept(&self) -> Result<LinkSession, LinkTlsError> {
        let relay = self.relay.as_ref().ok_or(LinkTlsError::NotARelay)?;
        let secrets = Arc::new(SessionSecrets::default());
        let mut config = (*relay.server).clone();
        config.key_log = secrets.clone();
        Ok(LinkSession {
            connection: ServerConnection::new(Arc::new(config))?.into(),
            identity: Some(relay.identity.clone()),
            secrets,
        })
    }

    /// The initiator's side of a new connection, with a random host name in C tor's form as SNI.
    pub fn connect(&self, rng: &mut dyn CryptoRng) -> Result<LinkSession, LinkTlsError> {
        let name = ServerName::try_from(random_hostname(SNI_NAME, rng))
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let secrets = Arc::new(SessionSecrets::default());
        let mut config = (*self.client).clone();
        config.key_log = secrets.clone();
        Ok(LinkSession {
            connection: ClientConnection::new(Arc::new(config), name)?.into(),
            identity: self.identity().filter(|_| !self.connects_as_client),
            secrets,
        })
    }
}

/// A fresh RSA-2048 key and its self-made certificate, as both sides of TLS see them. A relay has
/// one for itself; a test or a load generator that plays many relays can have one for all.
pub struct LinkKey {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    certificate_sha256: [u8; 32],
}

impl LinkKey {
    /// Makes the key, which takes some tenths of a second.
    pub fn create(now: SystemTime, rng: &mut dyn CryptoRng) -> Result<Self, LinkTlsError> {
        let mut rng = rng;
        // C tor's decoy names: a ".com" that issues to a ".net".
        let issuer = random_hostname(CERTIFICATE_NAME, &mut rng);
        let subject = random_hostname(CERTIFICATE_NAME, &mut rng).replace(".com", ".net");
        let link = LinkCert::create(now, rng, &issuer, &subject)?;
        Ok(Self {
            server: Arc::new(server_config(&link)?),
            client: Arc::new(client_config(&[&TLS13, &TLS12])?),
            certificate_sha256: Sha256::digest(&link.certificate).into(),
        })
    }

    /// The relay of these keys vouches for this link key.
    pub fn vouched_by<S>(
        &self,
        keys: IdentityKeys<'_, S>,
        lifetimes: LinkLifetimes,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<LinkTls, LinkTlsError>
    where
        S: Ed25519PublicKey + Ed25519SigningKey,
    {
        let identity =
            LinkIdentity::issue(keys, self.certificate_sha256, lifetimes.certs, now, rng)?;
        Ok(LinkTls {
            client: self.client.clone(),
            relay: Some(RelaySide {
                server: self.server.clone(),
                identity: Arc::new(identity),
                renew_at: now + lifetimes.shortest(),
            }),
            connects_as_client: false,
        })
    }
}

/// The TLS session of one link.
#[derive(Debug)]
pub struct LinkSession {
    connection: Connection,
    identity: Option<Arc<LinkIdentity>>,
    secrets: Arc<SessionSecrets>,
}

impl LinkSession {
    /// The TLS connection, to be driven by the owner of the socket.
    pub fn tls(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The identity to give to this link's handshake: the one that vouches for this session's
    /// certificate, even if the node's has been renewed since.
    pub fn identity(&self) -> Option<Arc<LinkIdentity>> {
        self.identity.clone()
    }

    /// Takes the session over from rustls: what it has not sent yet, and the means to go on.
    ///
    /// Only whole records may have been given to rustls ([`records::whole`]), and their plaintext
    /// must have been taken: what it still held would be lost.
    ///
    /// # Errors
    ///
    /// The TLS handshake is not done, or its keys are no longer the first
    /// ([`RecordError::UpdatedTooEarly`]).
    pub fn into_records(mut self) -> Result<(Vec<u8>, Records), LinkTlsError> {
        let mut unsent = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut unsent)?;
        }
        let version = self.connection.protocol_version();
        let client = self.secrets.client.get().cloned();
        let server = self.secrets.server.get().cloned();
        let (side, tx, rx) = match self.connection {
            Connection::Client(_) => (Side::Client, client, server),
            Connection::Server(_) => (Side::Server, server, client),
        };
        let extracted = self.connection.dangerous_extract_secrets()?;
        let records = Records::new(side, version, extracted, tx, rx)?;
        Ok((unsent, records))
    }
}

impl TlsSession for LinkSession {
    fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.connection.peer_certificates()?;
        chain.first().map(|certificate| certificate.as_ref())
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        match (&self.connection, &self.identity) {
            (Connection::Server(_), Some(identity)) => Some(*identity.tls_certificate_sha256()),
            _ => None,
        }
    }

    fn export_keying_material(
        &self,
        out: &mut [u8; 32],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), ExportError> {
        self.connection
            .export_keying_material(out, label, context)
            .map(|_| ())
            .map_err(|error| ExportError(error.to_string()))
    }
}

/// Makes the library open what it needs of the system, once: its source of randomness looks for devices when it is
/// first used. To be called before a sandbox allows no files any more.
pub fn prepare() {
    let mut byte = [0];
    // Should it fail, so will the first handshake, which reports it.
    let _ = aws_lc_rs::rand::fill(&mut byte);
}

/// The cryptography that links use, in the order of C tor's clients (`ciphers_v13.inc`,
/// `ciphers.inc`; the groups of `tortls_openssl.c`), as far as rustls has it. rustls offers nothing
/// that tor-spec 2.1 forbids: every suite has ephemeral keys and an AEAD. docs/client.md lists what
/// an observer can still distinguish.
///
/// That AES-128-GCM goes first suits a relay, too: circuits are AES-128, and a link costs a fifth
/// less than with AES-256. The hybrid group, which C tor has with OpenSSL 3.5, is for peers that
/// prefer it; its share is not sent unasked.
fn provider() -> Arc<CryptoProvider> {
    let provider = CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ],
        kx_groups: vec![
            kx_group::SECP256R1,
            kx_group::X25519,
            kx_group::X25519MLKEM768,
        ],
        ..rustls::crypto::aws_lc_rs::default_provider()
    };
    Arc::new(provider)
}

/// A responder's configuration: one certificate, no client certificates, and no resumption of any
/// kind (tor-spec 2.2).
fn server_config(link: &LinkCert) -> Result<ServerConfig, LinkTlsError> {
    let chain = vec![CertificateDer::from(link.certificate.clone())];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(link.key.as_slice())).clone_key();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    // The server's preference decides, as in C tor (SSL_OP_CIPHER_SERVER_PREFERENCE).
    config.ignore_client_order = true;
    config.enable_secret_extraction = true;
    Ok(config)
}

/// An initiator's configuration: any certificate, no resumption.
fn client_config(
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, LinkTlsError> {
    let provider = provider();
    let verifier = AnyCertificate::new(provider.signature_verification_algorithms);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // Nothing is kept that could be resumed; but C tor's clients ask for TLS 1.2's tickets.
    config.resumption =
        Resumption::disabled().tls12_resumption(Tls12Resumption::SessionIdOrTickets);
    config.enable_secret_extraction = true;
    Ok(config)
}
