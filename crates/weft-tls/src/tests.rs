//! Links in memory: two rustls sessions with a handshake in each, and an attacker between them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Instant;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, HandshakeKind, ProtocolVersion};
use weft_core::handshake::{
    AuthField, CertError, CertKind, EphemeralKeys, HandshakeError, LinkHandshake, PeerIdentity,
    Role,
};

use super::*;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

/// A relay's link TLS; each renewal has another `generation`.
fn relay(seed: u64, generation: u64) -> LinkTls {
    let keys = EphemeralKeys::generate(now(), &mut rng(seed)).unwrap();
    LinkTls::relay(
        keys.keys(),
        LinkLifetimes::default(),
        now(),
        &mut rng(seed + 1000 * generation),
    )
    .unwrap()
}

static ALICE: LazyLock<LinkTls> = LazyLock::new(|| relay(1, 0));
static BOB: LazyLock<LinkTls> = LazyLock::new(|| relay(2, 0));
static MALLORY: LazyLock<LinkTls> = LazyLock::new(|| relay(3, 0));

fn is_relay(tls: &LinkTls) -> PeerIdentity {
    let identity = tls.identity().unwrap();
    PeerIdentity::Relay {
        rsa: *identity.rsa_id(),
        ed25519: *identity.ed_id(),
    }
}

/// Moves TLS records both ways until neither has any.
fn move_records(a: &mut LinkSession, b: &mut LinkSession) -> Result<(), rustls::Error> {
    while move_one_way(a, b)? | move_one_way(b, a)? {}
    Ok(())
}

fn move_one_way(from: &mut LinkSession, to: &mut LinkSession) -> Result<bool, rustls::Error> {
    let mut records = Vec::new();
    while from.tls().wants_write() {
        from.tls().write_tls(&mut records).unwrap();
    }
    let mut rest = records.as_slice();
    while !rest.is_empty() {
        to.tls().read_tls(&mut rest).unwrap();
        to.tls().process_new_packets()?;
    }
    Ok(!records.is_empty())
}

/// Plaintext received so far.
fn plaintext(session: &mut LinkSession) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Ends with WouldBlock, as a socket would.
    let _ = session.tls().reader().read_to_end(&mut bytes);
    bytes
}

/// One end of a link.
struct End {
    session: LinkSession,
    handshake: LinkHandshake,
    rng: ChaCha12Rng,
}

impl End {
    fn new(session: LinkSession, role: Role, me: Option<Arc<LinkIdentity>>) -> Self {
        let mut handshake = LinkHandshake::new(role, me, LOCALHOST, vec![], Instant::now());
        handshake.start();
        End {
            session,
            handshake,
            rng: rng(77),
        }
    }

    fn initiator(tls: &LinkTls) -> Self {
        let role = Role::Initiator {
            expected_rsa: None,
            expected_ed: None,
        };
        let session = tls.connect(&mut rng(5)).unwrap();
        let me = session.identity();
        End::new(session, role, me)
    }

    fn responder(tls: &LinkTls) -> Self {
        let session = tls.accept().unwrap();
        let me = session.identity();
        End::new(session, Role::Responder, me)
    }

    fn send(&mut self) -> Vec<u8> {
        let output = self.handshake.take_output();
        self.session.tls().writer().write_all(&output).unwrap();
        output
    }

    fn receive(&mut self) -> Result<(), HandshakeError> {
        let bytes = plaintext(&mut self.session);
        let consumed = self
            .handshake
            .receive(&bytes, &self.session, now(), &mut self.rng)?;
        assert_eq!(consumed, bytes.len());
        Ok(())
    }

    fn peer(&self) -> PeerIdentity {
        self.handshake.established().expect("not established").peer
    }
}

fn link(initiator: &mut End, responder: &mut End) -> Result<(), HandshakeError> {
    move_records(&mut initiator.session, &mut responder.session).unwrap();
    for _ in 0..2 {
        initiator.send();
        move_records(&mut initiator.session, &mut responder.session).unwrap();
        responder.receive()?;
        responder.send();
        move_records(&mut initiator.session, &mut responder.session).unwrap();
        initiator.receive()?;
    }
    Ok(())
}

/// A client configuration that speaks one version of TLS.
fn only(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::new(client_config(&[version]).unwrap())
}

#[test]
fn relays_authenticate_over_either_version_of_tls() {
    for (config, version) in [
        (ALICE.client.clone(), ProtocolVersion::TLSv1_3),
        (only(&TLS13), ProtocolVersion::TLSv1_3),
        (only(&TLS12), ProtocolVersion::TLSv1_2),
    ] {
        let mut alice = End::initiator(&ALICE);
        let name = ServerName::try_from("www.example.com").unwrap();
        alice.session.connection = ClientConnection::new(config, name).unwrap().into();
        let mut bob = End::responder(&BOB);
        link(&mut alice, &mut bob).unwrap();
        assert_eq!(alice.session.tls().protocol_version(), Some(version));
        assert_eq!(alice.peer(), is_relay(&BOB));
        assert_eq!(bob.peer(), is_relay(&ALICE));
    }
}

#[test]
fn clients_stay_anonymous() {
    let client = LinkTls::client().unwrap();
    assert!(client.identity().is_none() && client.renew_at().is_none());
    let (mut client, mut bob) = (End::initiator(&client), End::responder(&BOB));
    link(&mut client, &mut bob).unwrap();
    assert_eq!(client.peer(), is_relay(&BOB));
    assert_eq!(bob.peer(), PeerIdentity::Unauthenticated);
}

#[test]
fn a_bridge_is_a_client_to_those_that_it_connects_to_and_a_relay_to_those_that_connect_to_it() {
    let bridge = relay(4, 0).connecting_as_client();
    let (mut out, mut bob) = (End::initiator(&bridge), End::responder(&BOB));
    link(&mut out, &mut bob).unwrap();
    assert_eq!(bob.peer(), PeerIdentity::Unauthenticated);
    assert_eq!(out.peer(), is_relay(&BOB));
    let (mut bob, mut accepted) = (End::initiator(&BOB), End::responder(&bridge));
    link(&mut bob, &mut accepted).unwrap();
    assert_eq!(bob.peer(), is_relay(&bridge));
    assert_eq!(accepted.peer(), is_relay(&BOB));
}

#[test]
fn clients_accept_no_links() {
    let error = LinkTls::client().unwrap().accept().unwrap_err();
    assert!(matches!(error, LinkTlsError::NotARelay));
}

#[test]
fn nothing_is_ever_resumed() {
    for config in [ALICE.client.clone(), only(&TLS12)] {
        for _ in 0..2 {
            let mut alice = End::initiator(&ALICE);
            let name = ServerName::try_from("www.example.com").unwrap();
            alice.session.connection = ClientConnection::new(config.clone(), name).unwrap().into();
            let mut bob = End::responder(&BOB);
            link(&mut alice, &mut bob).unwrap();
            let Connection::Client(client) = alice.session.tls() else {
                panic!("not a client");
            };
            assert_eq!(client.tls13_tickets_received(), 0);
            assert!(matches!(
                client.handshake_kind(),
                Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)
            ));
        }
    }
}

#[test]
fn a_man_in_the_middle_cannot_borrow_a_relays_certificates() {
    // Mallory ends TLS on both sides and passes the cells on.
    let mut alice = End::initiator(&ALICE);
    let mut to_alice = MALLORY.accept().unwrap();
    let mut to_bob = MALLORY.connect(&mut rng(9)).unwrap();
    let mut bob = End::responder(&BOB);
    move_records(&mut alice.session, &mut to_alice).unwrap();
    move_records(&mut to_bob, &mut bob.session).unwrap();
    alice.send();
    move_records(&mut alice.session, &mut to_alice).unwrap();
    let cells = plaintext(&mut to_alice);
    to_bob.tls().writer().write_all(&cells).unwrap();
    move_records(&mut to_bob, &mut bob.session).unwrap();
    bob.receive().unwrap();
    bob.send();
    move_records(&mut to_bob, &mut bob.session).unwrap();
    let cells = plaintext(&mut to_bob);
    assert!(!cells.is_empty());
    to_alice.tls().writer().write_all(&cells).unwrap();
    move_records(&mut alice.session, &mut to_alice).unwrap();
    assert_eq!(
        alice.receive().unwrap_err(),
        HandshakeError::BadCertificate(CertError::WrongSubject {
            kind: CertKind::SigningToTls,
            what: "the certificate of this TLS session",
        })
    );
}

#[test]
fn a_proof_is_worth_nothing_in_another_tls_session() {
    // Bob's challenge repeats (a broken generator), so the sessions differ in TLS alone.
    let (mut alice, mut bob) = (End::initiator(&ALICE), End::responder(&BOB));
    move_records(&mut alice.session, &mut bob.session).unwrap();
    let versions = alice.send();
    move_records(&mut alice.session, &mut bob.session).unwrap();
    bob.receive().unwrap();
    bob.send();
    move_records(&mut alice.session, &mut bob.session).unwrap();
    alice.receive().unwrap();
    let proof = alice.send();

    let mut mallory = MALLORY.connect(&mut rng(9)).unwrap();
    let mut bob_again = End::responder(&BOB);
    move_records(&mut mallory, &mut bob_again.session).unwrap();
    for cells in [versions, proof] {
        mallory.tls().writer().write_all(&cells).unwrap();
    }
    move_records(&mut mallory, &mut bob_again.session).unwrap();
    assert_eq!(
        bob_again.receive().unwrap_err(),
        HandshakeError::AuthenticationMismatch(AuthField::TlsSecrets)
    );
}

/// Presents one relay's certificate and signs with another's key.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[test]
fn a_certificate_without_its_key_ends_the_tls_handshake() {
    let mut rng = rng(11);
    let mut key = || LinkCert::create(now(), &mut rng, "www.a.com", "www.b.net").unwrap();
    let (stolen, own) = (key(), key());
    let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(
        &PrivatePkcs8KeyDer::from(own.key.as_slice()).into(),
    )
    .unwrap();
    let chain = vec![CertificateDer::from(stolen.certificate)];
    let impostor = Impostor(Arc::new(CertifiedKey::new(chain, signer)));
    let server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(impostor));
    let server = Arc::new(server);
    for version in [&TLS13, &TLS12] {
        let mut alice = ALICE.connect(&mut self::rng(5)).unwrap();
        let name = ServerName::try_from("www.example.com").unwrap();
        alice.connection = ClientConnection::new(only(version), name).unwrap().into();
        let mut bob = BOB.accept().unwrap();
        bob.connection = ServerConnection::new(server.clone()).unwrap().into();
        let error = move_records(&mut alice, &mut bob).unwrap_err();
        assert_eq!(
            error,
            rustls::Error::InvalidCertificate(CertificateError::BadSignature)
        );
    }
}

#[test]
fn a_link_keeps_the_certificate_that_it_began_with() {
    let before = relay(4, 0);
    let mut early = End::responder(&before);
    let after = relay(4, 1);
    assert_eq!(is_relay(&before), is_relay(&after));
    assert_ne!(
        before.identity().unwrap().tls_certificate_sha256(),
        after.identity().unwrap().tls_certificate_sha256()
    );
    assert_eq!(after.renew_at(), Some(now() + LINK_KEY_LIFETIME));
    drop(before);
    for bob in [&mut early, &mut End::responder(&after)] {
        let mut alice = End::initiator(&ALICE);
        link(&mut alice, bob).unwrap();
        assert_eq!(alice.peer(), is_relay(&after));
    }

    // The certificates of one generation do not vouch for the other's sessions.
    let mut bob = End::responder(&after);
    bob.handshake = LinkHandshake::new(
        Role::Responder,
        relay(4, 0).identity(),
        LOCALHOST,
        vec![],
        Instant::now(),
    );
    let mut alice = End::initiator(&ALICE);
    assert!(matches!(
        link(&mut alice, &mut bob).unwrap_err(),
        HandshakeError::Tls(_)
    ));
}

#[test]
fn keys_are_renewed_before_their_certificates_end() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let renewed_after = |tls, tls_slop, link_auth, link_auth_slop| {
        let lifetimes = LinkLifetimes {
            certs: LinkCertLifetimes {
                tls: hours(tls),
                link_auth: hours(link_auth),
            },
            tls_slop: hours(tls_slop),
            link_auth_slop: hours(link_auth_slop),
        };
        lifetimes.shortest()
    };
    assert_eq!(renewed_after(48, 3, 48, 3), LINK_KEY_LIFETIME);
    assert_eq!(renewed_after(4, 3, 48, 3), hours(1));
    assert_eq!(renewed_after(48, 3, 5, 4), hours(1));
    assert_eq!(renewed_after(1, 2, 5, 4), Duration::ZERO);
    let short = LinkLifetimes {
        certs: LinkCertLifetimes {
            tls: hours(1),
            link_auth: hours(2),
        },
        ..LinkLifetimes::default()
    };
    let keys = EphemeralKeys::generate(now(), &mut rng(9)).unwrap();
    let tls = LinkTls::relay(keys.keys(), short, now(), &mut rng(10)).unwrap();
    assert_eq!(tls.renew_at(), Some(now() + hours(1)));
}
