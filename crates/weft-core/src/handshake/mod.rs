//! A link from its first byte inside TLS to an authenticated, opened link (tor-spec 4).
//!
//! [`LinkHandshake`] is the whole state machine of the "in-protocol" (v3) handshake for both
//! sides. It does no I/O: received bytes, the time and randomness go in, bytes to send and the
//! result come out.
//!
//! ```text
//! initiator                                   responder
//! VERSIONS ---------------------------------->
//!          <---------------------------------- VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO
//! a client:  NETINFO ------------------------>
//! a relay:   CERTS, AUTHENTICATE, NETINFO --->
//! ```
//!
//! Where tor-spec leaves room or C tor is stricter, Weft does what C tor does: bad certificates
//! in CERTS close the link on either side, and a clock is judged by NETINFO only when it came
//! within three minutes. Unlike C tor, Weft asks every relay for both identities (see
//! `certs.rs`), lets PADDING pass as it lets VPADDING pass, and ignores what AUTHENTICATE has
//! between RAND and SIG, as the specification demands.

mod authenticate;
mod certs;
mod ephemeral;
mod error;
mod identity;
mod session;
#[cfg(test)]
mod tests;
mod x509;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use digest::Digest as _;
use rand::CryptoRng;
use sha2::Sha256;
use weft_cell::frame::{self, Frame};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::link_msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Authenticate, Certs, Netinfo,
};
use weft_cell::{CellView, ChanCmd};

use authenticate::Fields;
use certs::{PeerCerts, Purpose};

pub use ephemeral::EphemeralKeys;
pub use error::{AuthField, CertError, CertKind, ErrorClass, HandshakeError, Validity};
pub use identity::{
    CERTIFICATE_NAME, IdentityKeys, LinkCertLifetimes, LinkIdentity, LinkIdentityError, SNI_NAME,
    random_hostname,
};
pub use session::{ExportError, TlsSession};

/// The link protocols that Weft speaks, lowest first (tor-spec 4.1): 4 has circuit ids of four
/// bytes, 5 adds link padding.
pub(crate) const LINK_PROTOCOLS: [u16; 2] = [4, 5];

/// Most bytes that a peer may send before its link is open. C tor's longest handshake takes
/// about 3 KiB; the rest is room for padding and for certificates to come. It bounds what a
/// connection that never authenticates can occupy.
pub const MAX_HANDSHAKE_BYTES: usize = 16 * 1024;

/// Longest time from a link's TCP connection to the end of its handshake: C tor's
/// `TLS_HANDSHAKE_TIMEOUT`.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// NETINFO's timestamp is not used to compare clocks when the handshake took longer than this
/// (C tor's `channel_tls_process_netinfo_cell`).
const NETINFO_SKEW_WINDOW: Duration = Duration::from_secs(180);

/// This node's side of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It accepted the connection.
    Responder,
    /// It opened the connection, perhaps to a known relay.
    Initiator {
        /// The RSA identity that the peer must prove, if given.
        expected_rsa: Option<RsaIdentity>,
        /// The ed25519 identity that the peer must prove, if given.
        expected_ed: Option<Ed25519Identity>,
    },
}

/// The identity that the peer has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Nobody: a client, or a bridge that behaves like one. Never extend circuits to it.
    Unauthenticated,
    /// The relay with these identities.
    Relay {
        /// SHA-1 of its RSA identity key: the fingerprint.
        rsa: RsaIdentity,
        /// Its ed25519 identity key.
        ed25519: Ed25519Identity,
    },
}

/// This node's role on an open link, for as long as the link exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRole {
    /// It accepted the connection: a server.
    Accepted,
    /// It opened the connection and proved its identity: a relay, which serves the peer's circuits too.
    OpenedAsRelay,
    /// It opened the connection and proved nothing: a client, or a bridge, which looks like one. It serves
    /// nothing here ([`OnOpenLink`](weft_cell::cell_command::OnOpenLink)).
    OpenedAsClient,
}

impl LinkRole {
    /// True if this node opened the connection.
    pub fn opened(self) -> bool {
        match self {
            Self::Accepted => false,
            Self::OpenedAsRelay | Self::OpenedAsClient => true,
        }
    }

    /// True if this node is a client on the link.
    #[inline]
    pub fn is_client(self) -> bool {
        self == Self::OpenedAsClient
    }
}

/// Result of a finished handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// 4 or 5.
    pub link_protocol: u16,
    /// This node's role.
    pub role: LinkRole,
    /// The peer's identity.
    pub peer: PeerIdentity,
    /// Our clock minus the peer's, in seconds: positive when ours is ahead. Unproven: the peer
    /// may lie. `None` when it sent no time or the handshake took too long to compare clocks.
    pub clock_skew: Option<i64>,
    /// Our address as the peer sees it. Unproven as well.
    pub my_addr: Option<IpAddr>,
    /// The addresses that the peer calls its own.
    pub peer_addrs: Vec<IpAddr>,
    /// One of them is the address of this connection (tor-spec 5.3.1). Meaningful only for a
    /// [`PeerIdentity::Relay`].
    pub canonical: bool,
}

/// Progress of the handshake.
#[derive(Debug)]
enum Stage {
    /// Nothing but padding has come.
    Versions,
    /// The version is agreed; the peer has not shown certificates.
    Certs,
    /// The peer's certificates are good. An initiator now knows the responder and waits for
    /// AUTH_CHALLENGE; a responder waits for AUTHENTICATE.
    Proof(Box<PeerCerts>),
    /// Only NETINFO is missing.
    Netinfo(PeerIdentity),
    /// Done.
    Open(Established),
    /// Failed; it will not recover.
    Failed(HandshakeError),
}

/// The handshake of one link.
///
/// 1. [`new`](Self::new) once TLS is up, then [`start`](Self::start) (an initiator speaks first).
/// 2. Feed what arrives to [`receive`](Self::receive) and send what
///    [`take_output`](Self::take_output) returns, until [`established`](Self::established) is
///    there or an error comes. An error is final: close the link.
/// 3. Bytes that `receive` did not consume belong to the open link.
///
/// The caller closes the link when [`deadline`](Self::deadline) passes before.
#[derive(Debug)]
pub struct LinkHandshake {
    role: Role,
    me: Option<Arc<LinkIdentity>>,
    peer_addr: IpAddr,
    my_addrs: Vec<IpAddr>,
    started: Instant,
    stage: Stage,
    /// The start of a cell whose rest has not come.
    partial: Vec<u8>,
    /// Bytes of whole cells so far.
    consumed: usize,
    output: Vec<u8>,
    /// SHA-256 of what we sent: CLOG or SLOG.
    sent_log: Sha256,
    /// SHA-256 of what the peer sent: SLOG or CLOG.
    received_log: Sha256,
    link_protocol: u16,
    sent_versions: bool,
    sent_netinfo: bool,
    /// AUTHENTICATE was sent.
    sent_proof: bool,
    /// When VERSIONS came.
    versions_at: Option<SystemTime>,
}

impl LinkHandshake {
    /// A handshake over a fresh TLS session.
    ///
    /// `me` is `None` for a client, which proves nothing. `peer_addr` is the other end of the TCP
    /// connection, `my_addrs` are the addresses that this relay publishes, `started` is when the
    /// connection was made.
    pub fn new(
        role: Role,
        me: Option<Arc<LinkIdentity>>,
        peer_addr: IpAddr,
        my_addrs: Vec<IpAddr>,
        started: Instant,
    ) -> Self {
        Self {
            role,
            me,
            peer_addr: peer_addr.to_canonical(),
            my_addrs,
            started,
            stage: Stage::Versions,
            partial: Vec::new(),
            consumed: 0,
            output: Vec::new(),
            sent_log: Sha256::new(),
            received_log: Sha256::new(),
            link_protocol: 0,
            sent_versions: false,
            sent_netinfo: false,
            sent_proof: false,
            versions_at: None,
        }
    }

    /// Lets an initiator queue its VERSIONS cell. A responder waits for the peer's.
    pub fn start(&mut self) {
        if !self.is_responder() && !self.sent_versions {
            // Two versions always fit; were they ever too many, the peer would see none and the
            // handshake would time out.
            if let Err(error) = self.send_versions() {
                self.stage = Stage::Failed(error);
            }
        }
    }

    /// Feeds received bytes; returns how many were consumed. The rest belongs to the open link
    /// and is never touched.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<usize, HandshakeError> {
        match &self.stage {
            Stage::Open(_) => return Ok(0),
            Stage::Failed(error) => return Err(error.clone()),
            _ => {}
        }
        let result = self.receive_cells(bytes, tls, now, rng);
        if let Err(error) = &result {
            self.stage = Stage::Failed(error.clone());
            self.partial = Vec::new();
        }
        result
    }

    /// The bytes to send. After a failure there may be some left; they need not be sent.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The result of the handshake, once it is finished.
    pub fn established(&self) -> Option<&Established> {
        match &self.stage {
            Stage::Open(established) => Some(established),
            _ => None,
        }
    }

    /// When to give up.
    pub fn deadline(&self) -> Instant {
        self.started + HANDSHAKE_TIMEOUT
    }

    /// True if this node accepted the connection.
    fn is_responder(&self) -> bool {
        self.role == Role::Responder
    }

    /// Cuts `bytes` into cells until they end or the link opens.
    fn receive_cells(
        &mut self,
        bytes: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<usize, HandshakeError> {
        // Far more than a handshake may follow NETINFO; it is not read here.
        let room = MAX_HANDSHAKE_BYTES
            .saturating_sub(self.consumed)
            .saturating_sub(self.partial.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        let mut buffer = std::mem::take(&mut self.partial);
        buffer.extend_from_slice(taken);

        let mut at = 0;
        while !matches!(self.stage, Stage::Open(_)) {
            let rest = buffer.get(at..).unwrap_or_default();
            let Some(len) = self.receive_cell(rest, tls, now, rng)? else {
                if taken.len() < bytes.len() || rest.len() + self.consumed >= MAX_HANDSHAKE_BYTES {
                    return Err(HandshakeError::TooManyBytes {
                        limit: MAX_HANDSHAKE_BYTES,
                    });
                }
                buffer.drain(..at);
                self.partial = buffer;
                return Ok(bytes.len());
            };
            at += len;
            self.consumed += len;
        }
        // The partial cell of earlier calls ended inside these bytes, so all that is left over
        // is at their end.
        Ok(taken.len().saturating_sub(buffer.len().saturating_sub(at)))
    }

    /// Handles the cell at the start of `bytes`; returns its length, or `None` if its end has
    /// not come.
    fn receive_cell(
        &mut self,
        bytes: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<Option<usize>, HandshakeError> {
        if matches!(self.stage, Stage::Versions) {
            let Some((versions, len)) = frame::next_versions(bytes)? else {
                return Ok(None);
            };
            self.received_log.update(bytes.get(..len).unwrap_or(bytes));
            self.on_versions(versions, tls, now, rng)?;
            return Ok(Some(len));
        }
        let Some((frame, len)) = frame::next(bytes, MAX_HANDSHAKE_BYTES)? else {
            return Ok(None);
        };
        let raw = bytes.get(..len).unwrap_or(bytes);
        match frame {
            Frame::Fixed(cell) => {
                self.received_log.update(raw);
                self.on_fixed(cell, now)?;
            }
            Frame::Variable {
                circ_id,
                command,
                body,
            } => {
                // CLOG ends before AUTHENTICATE.
                if command != ChanCmd::AUTHENTICATE {
                    self.received_log.update(raw);
                }
                self.on_variable(circ_id, command, body, tls, now, rng)?;
            }
        }
        Ok(Some(len))
    }

    /// VERSIONS: both sides take the highest version that both named (tor-spec 4.1). The
    /// responder then sends all its messages.
    fn on_versions(
        &mut self,
        mut offered: Vec<u16>,
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<(), HandshakeError> {
        let common = LINK_PROTOCOLS.iter().rev().find(|v| offered.contains(v));
        let Some(&version) = common else {
            offered.truncate(16);
            return Err(HandshakeError::NoCommonVersion { offered });
        };
        self.link_protocol = version;
        self.versions_at = Some(now);
        self.stage = Stage::Certs;
        if self.is_responder() {
            let me = self.me.clone().ok_or(HandshakeError::NoIdentity)?;
            if tls.own_certificate_sha256() != Some(me.tls_certificate) {
                return Err(HandshakeError::Tls(
                    "its certificate is not the one that this relay's identity vouches for"
                        .to_owned(),
                ));
            }
            self.send_versions()?;
            self.send("CERTS", |out| me.responder_certs().encode(out))?;
            self.send_auth_challenge(rng)?;
            self.send_netinfo(now)?;
        }
        Ok(())
    }

    /// Handles fixed-length cells: only NETINFO and padding are allowed (C tor's
    /// `channel_tls_handle_cell`).
    fn on_fixed(&mut self, cell: CellView<'_>, now: SystemTime) -> Result<(), HandshakeError> {
        match cell.command() {
            ChanCmd::PADDING => Ok(()),
            ChanCmd::NETINFO => self.on_netinfo(cell, now),
            other => Err(self.unexpected(other)),
        }
    }

    /// Handles variable-length cells. VPADDING, later VERSIONS cells and unknown ones are ignored
    /// (tor-spec 3, 4.1), but count for the logs and the byte limit.
    fn on_variable(
        &mut self,
        circ_id: u32,
        command: ChanCmd,
        body: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<(), HandshakeError> {
        match command {
            ChanCmd::CERTS => {
                no_circuit(circ_id, "CERTS")?;
                self.on_certs(body, tls, now)
            }
            ChanCmd::AUTH_CHALLENGE => {
                no_circuit(circ_id, "AUTH_CHALLENGE")?;
                self.on_auth_challenge(body, tls, now, rng)
            }
            ChanCmd::AUTHENTICATE => {
                no_circuit(circ_id, "AUTHENTICATE")?;
                self.on_authenticate(body, tls)
            }
            _ => Ok(()),
        }
    }

    /// CERTS: a responder proves itself with it at once, an initiator must still sign.
    fn on_certs(
        &mut self,
        body: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
    ) -> Result<(), HandshakeError> {
        if !matches!(self.stage, Stage::Certs) {
            return Err(HandshakeError::DuplicateCell("CERTS"));
        }
        let certs = Certs::decode(body).map_err(malformed("CERTS"))?;
        let Role::Initiator {
            expected_rsa,
            expected_ed,
        } = self.role
        else {
            let peer = certs::check(&certs, Purpose::Initiator, now)?;
            self.stage = Stage::Proof(Box::new(peer));
            return Ok(());
        };

        let tls_certificate = peer_certificate_sha256(tls)?;
        let purpose = Purpose::Responder {
            tls_certificate: &tls_certificate,
        };
        let peer = certs::check(&certs, purpose, now)?;
        if expected_rsa.is_some_and(|wanted| wanted != peer.rsa_id)
            || expected_ed.is_some_and(|wanted| wanted != peer.ed_id)
        {
            return Err(HandshakeError::WrongIdentity {
                wanted_rsa: expected_rsa,
                wanted_ed: expected_ed,
                found_rsa: peer.rsa_id,
                found_ed: peer.ed_id,
            });
        }
        self.stage = Stage::Proof(Box::new(peer));
        if self.me.is_none() {
            // A client has nothing to wait for.
            self.send_netinfo(now)?;
        }
        Ok(())
    }

    /// AUTH_CHALLENGE: a relay answers with CERTS, AUTHENTICATE and NETINFO. Only here, where
    /// the responder is known, does an initiator send its identity.
    fn on_auth_challenge(
        &mut self,
        body: &[u8],
        tls: &dyn TlsSession,
        now: SystemTime,
        rng: &mut dyn CryptoRng,
    ) -> Result<(), HandshakeError> {
        if self.is_responder() {
            return Err(self.unexpected(ChanCmd::AUTH_CHALLENGE));
        }
        let peer = match &self.stage {
            Stage::Proof(peer) => peer.as_ref().clone(),
            Stage::Netinfo(_) => return Err(HandshakeError::DuplicateCell("AUTH_CHALLENGE")),
            _ => return Err(self.unexpected(ChanCmd::AUTH_CHALLENGE)),
        };
        let challenge = AuthChallenge::decode(body).map_err(malformed("AUTH_CHALLENGE"))?;
        if let Some(me) = self.me.clone() {
            if challenge.methods.contains(&AUTH_ED25519_SHA256_RFC5705) {
                self.send("CERTS", |out| me.initiator_certs().encode(out))?;
                let fields = Fields {
                    cid: me.rsa_sha256,
                    sid: peer.rsa_sha256,
                    cid_ed: me.ed_id,
                    sid_ed: peer.ed_id,
                    slog: self.received_log.clone().finalize().into(),
                    clog: self.sent_log.clone().finalize().into(),
                    scert: peer_certificate_sha256(tls)?,
                };
                let proof = Authenticate {
                    method: AUTH_ED25519_SHA256_RFC5705,
                    body: fields.sign(tls, &me.link_auth, rng)?,
                };
                self.send("AUTHENTICATE", |out| proof.encode(out))?;
                self.sent_proof = true;
            }
            self.send_netinfo(now)?;
        }
        self.stage = Stage::Netinfo(PeerIdentity::of(&peer));
        Ok(())
    }

    /// AUTHENTICATE: the initiator's proof.
    fn on_authenticate(&mut self, body: &[u8], tls: &dyn TlsSession) -> Result<(), HandshakeError> {
        if !self.is_responder() {
            return Err(self.unexpected(ChanCmd::AUTHENTICATE));
        }
        let (peer, me) = match (&self.stage, &self.me) {
            (Stage::Proof(peer), Some(me)) => (peer, me),
            (Stage::Netinfo(_), _) => return Err(HandshakeError::DuplicateCell("AUTHENTICATE")),
            _ => return Err(self.unexpected(ChanCmd::AUTHENTICATE)),
        };
        let proof = Authenticate::decode(body).map_err(malformed("AUTHENTICATE"))?;
        if proof.method != AUTH_ED25519_SHA256_RFC5705 {
            return Err(HandshakeError::AuthenticationMethod(proof.method));
        }
        let key = peer
            .link_auth_key
            .as_ref()
            .ok_or(CertError::Missing(CertKind::SigningToLinkAuth))?;
        let fields = Fields {
            cid: peer.rsa_sha256,
            sid: me.rsa_sha256,
            cid_ed: peer.ed_id,
            sid_ed: me.ed_id,
            slog: self.sent_log.clone().finalize().into(),
            clog: self.received_log.clone().finalize().into(),
            scert: me.tls_certificate,
        };
        fields.verify(&proof.body, tls, key)?;
        self.stage = Stage::Netinfo(PeerIdentity::of(peer));
        Ok(())
    }

    /// NETINFO ends the handshake. From a responder it counts only after good certificates; an
    /// initiator that has not authenticated by now is a client.
    fn on_netinfo(&mut self, cell: CellView<'_>, now: SystemTime) -> Result<(), HandshakeError> {
        let peer = match &self.stage {
            Stage::Netinfo(peer) => *peer,
            Stage::Certs | Stage::Proof(_) if self.is_responder() => PeerIdentity::Unauthenticated,
            // A responder that does not ask for authentication (C tor allows it).
            Stage::Proof(peer) => PeerIdentity::of(peer),
            _ => return Err(self.unexpected(ChanCmd::NETINFO)),
        };
        let netinfo = Netinfo::decode(cell.body()).map_err(malformed("NETINFO"))?;
        self.send_netinfo(now)?;
        let quick = self.versions_at.is_some_and(|then| {
            // A clock that was set back meanwhile makes the time unknowable too.
            now.duration_since(then)
                .is_ok_and(|took| took < NETINFO_SKEW_WINDOW)
        });
        let clock_skew = (quick && netinfo.timestamp != 0)
            .then(|| i64::from(unix_time(now)) - i64::from(netinfo.timestamp));
        let canonical = netinfo
            .my_addrs
            .iter()
            .any(|addr| addr.to_canonical() == self.peer_addr);
        self.stage = Stage::Open(Established {
            link_protocol: self.link_protocol,
            role: match (self.is_responder(), self.sent_proof) {
                (true, _) => LinkRole::Accepted,
                (false, true) => LinkRole::OpenedAsRelay,
                (false, false) => LinkRole::OpenedAsClient,
            },
            peer,
            clock_skew,
            my_addr: netinfo.other_addr,
            peer_addrs: netinfo.my_addrs,
            canonical,
        });
        Ok(())
    }

    /// The error for a cell that has no place at this stage.
    fn unexpected(&self, command: ChanCmd) -> HandshakeError {
        HandshakeError::UnexpectedCell {
            cell: command.to_string(),
            expected: match (&self.stage, self.is_responder()) {
                (Stage::Versions, _) => "VERSIONS",
                (Stage::Certs, true) => "CERTS or NETINFO",
                (Stage::Certs, false) => "CERTS",
                (Stage::Proof(_), true) => "AUTHENTICATE or NETINFO",
                (Stage::Proof(_), false) => "AUTH_CHALLENGE or NETINFO",
                _ => "NETINFO",
            },
        }
    }

    fn send_versions(&mut self) -> Result<(), HandshakeError> {
        self.sent_versions = true;
        self.send("VERSIONS", |out| {
            frame::encode_versions(&LINK_PROTOCOLS, out)
        })
    }

    fn send_auth_challenge(&mut self, rng: &mut dyn CryptoRng) -> Result<(), HandshakeError> {
        let mut challenge = [0; 32];
        rng.fill_bytes(&mut challenge);
        let methods = vec![AUTH_ED25519_SHA256_RFC5705];
        let message = AuthChallenge { challenge, methods };
        self.send("AUTH_CHALLENGE", |out| message.encode(out))
    }

    /// NETINFO, once. A client gives neither its time nor its addresses away (tor-spec 4.5).
    fn send_netinfo(&mut self, now: SystemTime) -> Result<(), HandshakeError> {
        if self.sent_netinfo {
            return Ok(());
        }
        let known = self.is_responder() || self.me.is_some();
        let cell = Netinfo {
            timestamp: if known { unix_time(now) } else { 0 },
            other_addr: Some(self.peer_addr),
            my_addrs: if known {
                self.my_addrs.clone()
            } else {
                Vec::new()
            },
        }
        .encode()
        .map_err(unsendable("NETINFO"))?;
        self.output.extend_from_slice(cell.as_bytes());
        self.sent_netinfo = true;
        Ok(())
    }

    /// Queues a cell that CLOG or SLOG counts.
    fn send<E: std::fmt::Display>(
        &mut self,
        cell: &'static str,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), HandshakeError> {
        let start = self.output.len();
        encode(&mut self.output).map_err(unsendable(cell))?;
        self.sent_log
            .update(self.output.get(start..).unwrap_or_default());
        Ok(())
    }
}

impl PeerIdentity {
    fn of(certs: &PeerCerts) -> Self {
        Self::Relay {
            rsa: certs.rsa_id,
            ed25519: certs.ed_id,
        }
    }
}

/// SHA-256 of the certificate that the peer presented to us.
fn peer_certificate_sha256(tls: &dyn TlsSession) -> Result<[u8; 32], HandshakeError> {
    let der = tls
        .peer_certificate()
        .ok_or_else(|| HandshakeError::Tls("the peer presented no certificate".to_owned()))?;
    Ok(Sha256::digest(der).into())
}

/// Seconds since 1970 as NETINFO counts them.
fn unix_time(now: SystemTime) -> u32 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |d| u32::try_from(d.as_secs()).unwrap_or(u32::MAX))
}

/// Cells that concern the link have circuit id 0.
fn no_circuit(circ_id: u32, cell: &'static str) -> Result<(), HandshakeError> {
    match circ_id {
        0 => Ok(()),
        _ => Err(HandshakeError::NonZeroCircuitId(cell)),
    }
}

/// Names the cell that a decoder refused.
fn malformed<E: std::fmt::Display>(cell: &'static str) -> impl Fn(E) -> HandshakeError {
    move |error| HandshakeError::MalformedCell {
        cell,
        why: error.to_string(),
    }
}

/// Names the cell that an encoder refused.
fn unsendable<E: std::fmt::Display>(cell: &'static str) -> impl Fn(E) -> HandshakeError {
    move |error| HandshakeError::CannotEncode {
        cell,
        why: error.to_string(),
    }
}
