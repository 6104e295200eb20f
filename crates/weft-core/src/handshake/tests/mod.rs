//! Two handshakes talk to each other, and to peers that lie.

mod authenticate;
mod honest;
mod identity;
mod limits;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::ed25519;
use weft_cell::Cell;
use weft_cell::frame::FrameError;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const INITIATOR_ADDR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const RESPONDER_ADDR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

/// A relay's keys, and the TLS certificate that it uses.
struct Relay {
    keys: EphemeralKeys,
    tls_certificate: Vec<u8>,
}

impl Relay {
    fn new(seed: u64) -> Self {
        Relay {
            keys: EphemeralKeys::generate(now(), &mut rng(seed)).unwrap(),
            tls_certificate: format!("TLS certificate of relay {seed}").into_bytes(),
        }
    }

    fn issue(&self, at: SystemTime) -> Result<LinkIdentity, LinkIdentityError> {
        let digest = Sha256::digest(&self.tls_certificate).into();
        LinkIdentity::issue(
            self.keys.keys(),
            digest,
            LinkCertLifetimes::default(),
            at,
            &mut rng(99),
        )
    }
}

static ALICE: LazyLock<Relay> = LazyLock::new(|| Relay::new(1));
static BOB: LazyLock<Relay> = LazyLock::new(|| Relay::new(2));
static ALICE_ID: LazyLock<Arc<LinkIdentity>> =
    LazyLock::new(|| Arc::new(ALICE.issue(now()).unwrap()));
static BOB_ID: LazyLock<Arc<LinkIdentity>> = LazyLock::new(|| Arc::new(BOB.issue(now()).unwrap()));

fn is_relay(id: &LinkIdentity) -> PeerIdentity {
    PeerIdentity::Relay {
        rsa: *id.rsa_id(),
        ed25519: *id.ed_id(),
    }
}

/// One end of a TLS session between an initiator and Bob, that exports what `secret` determines.
struct FakeTls {
    secret: u64,
    server: bool,
}

impl TlsSession for FakeTls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        (!self.server).then_some(&BOB.tls_certificate)
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        self.server
            .then(|| Sha256::digest(&BOB.tls_certificate).into())
    }

    fn export_keying_material(
        &self,
        out: &mut [u8; 32],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), ExportError> {
        let mut hash = Sha256::new();
        hash.update(self.secret.to_be_bytes());
        hash.update(label);
        hash.update(context.ok_or_else(|| ExportError("no context".to_owned()))?);
        *out = hash.finalize().into();
        Ok(())
    }
}

/// One side of a link: a handshake and everything it is fed with.
struct Side {
    handshake: LinkHandshake,
    tls: FakeTls,
    rng: ChaCha12Rng,
    now: SystemTime,
}

impl Side {
    fn feed(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        self.handshake
            .receive(bytes, &self.tls, self.now, &mut self.rng)
    }

    fn feed_err(&mut self, bytes: &[u8]) -> HandshakeError {
        self.feed(bytes).unwrap_err()
    }

    fn out(&mut self) -> Vec<u8> {
        self.handshake.take_output()
    }

    fn established(&self) -> &Established {
        self.handshake.established().expect("not established")
    }
}

fn initiator_to(
    me: Option<&Arc<LinkIdentity>>,
    expected_rsa: Option<RsaIdentity>,
    expected_ed: Option<Ed25519Identity>,
) -> Side {
    let role = Role::Initiator {
        expected_rsa,
        expected_ed,
    };
    let mut handshake = LinkHandshake::new(
        role,
        me.cloned(),
        RESPONDER_ADDR,
        vec![INITIATOR_ADDR],
        Instant::now(),
    );
    handshake.start();
    Side {
        handshake,
        tls: FakeTls {
            secret: 7,
            server: false,
        },
        rng: rng(3),
        now: now(),
    }
}

fn relay() -> Side {
    initiator_to(Some(&ALICE_ID), None, None)
}

fn client() -> Side {
    initiator_to(None, None, None)
}

fn responder() -> Side {
    Side {
        handshake: LinkHandshake::new(
            Role::Responder,
            Some(BOB_ID.clone()),
            INITIATOR_ADDR,
            vec![RESPONDER_ADDR, Ipv6Addr::LOCALHOST.into()],
            Instant::now(),
        ),
        tls: FakeTls {
            secret: 7,
            server: true,
        },
        rng: rng(4),
        now: now(),
    }
}

/// Lets both send until they have nothing more to send.
fn talk(initiator: &mut Side, responder: &mut Side) -> Result<(), HandshakeError> {
    loop {
        let (to_responder, to_initiator) = (initiator.out(), responder.out());
        if to_responder.is_empty() && to_initiator.is_empty() {
            return Ok(());
        }
        responder.feed(&to_responder)?;
        initiator.feed(&to_initiator)?;
    }
}

/// A responder that has sent its part to `initiator`'s VERSIONS, and that part.
fn greeted(initiator: &mut Side) -> (Side, Vec<u8>) {
    let mut responder = responder();
    responder.feed(&initiator.out()).unwrap();
    let flight = responder.out();
    (responder, flight)
}

/// Cells after VERSIONS, one by one.
fn cells(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut cells = Vec::new();
    while let Some((_, len)) = frame::next(bytes, 60_000).unwrap() {
        cells.push(bytes[..len].to_vec());
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty());
    cells
}

/// A responder's flight: VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.
fn responder_cells(flight: &[u8]) -> [Vec<u8>; 4] {
    let (_, len) = frame::next_versions(flight).unwrap().unwrap();
    let mut all = vec![flight[..len].to_vec()];
    all.extend(cells(&flight[len..]));
    all.try_into().unwrap()
}

fn versions(list: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_versions(list, &mut out).unwrap();
    out
}

fn variable(command: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_variable(0, command.into(), body, &mut out).unwrap();
    out
}

fn certs_cell(certs: &Certs) -> Vec<u8> {
    let mut out = Vec::new();
    certs.encode(&mut out).unwrap();
    out
}

/// `certs` with the certificate of this type replaced.
fn with(certs: &Certs, kind: CertKind, body: &[u8]) -> Certs {
    let mut certs = certs.clone();
    for (cert_type, old) in &mut certs.certs {
        if *cert_type == kind.cert_type() {
            *old = body.to_vec();
        }
    }
    certs
}

/// `certs` without the certificate of this type.
fn without(certs: &Certs, kind: CertKind) -> Certs {
    let mut certs = certs.clone();
    certs.certs.retain(|(t, _)| *t != kind.cert_type());
    certs
}

/// An initiator's verdict on this CERTS cell from Bob.
fn from_bob(cell: &[u8]) -> HandshakeError {
    let mut alice = relay();
    alice.feed(&versions(&[5])).unwrap();
    alice.feed_err(cell)
}

/// Bob's verdict on this CERTS cell from an initiator.
fn from_alice(cell: &[u8]) -> HandshakeError {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    bob.feed_err(cell)
}

/// Alice's AUTHENTICATE to Bob, after `sent` to him and `heard` (all cells; SLOG ends before
/// NETINFO) from him, with whatever `change` does to the fields and `extra` bytes after RAND.
fn authenticate_cell(
    sent: &[u8],
    heard: &[u8],
    change: impl Fn(&mut Fields),
    extra: &[u8],
) -> Vec<u8> {
    let mut fields = Fields {
        cid: ALICE_ID.rsa_sha256,
        sid: BOB_ID.rsa_sha256,
        cid_ed: ALICE_ID.ed_id,
        sid_ed: BOB_ID.ed_id,
        slog: Sha256::digest(&heard[..heard.len() - 514]).into(),
        clog: Sha256::digest(sent).into(),
        scert: Sha256::digest(&BOB.tls_certificate).into(),
    };
    change(&mut fields);
    let tls = FakeTls {
        secret: 7,
        server: false,
    };
    let mut body = fields.sign(&tls, &ALICE_ID.link_auth, &mut rng(6)).unwrap();
    if !extra.is_empty() {
        body.truncate(body.len() - 64);
        body.extend_from_slice(extra);
        let signature = ALICE_ID.link_auth.sign(&body).to_bytes();
        body.extend_from_slice(&signature);
    }
    let mut out = Vec::new();
    Authenticate { method: 3, body }.encode(&mut out).unwrap();
    out
}

/// Bob, after VERSIONS and Alice's CERTS; what she sent and what he sent.
fn certified() -> (Side, Vec<u8>, Vec<u8>) {
    let mut bob = responder();
    let mut sent = versions(&[4, 5]);
    sent.extend(certs_cell(&ALICE_ID.initiator_certs()));
    bob.feed(&sent).unwrap();
    let heard = bob.out();
    (bob, sent, heard)
}
