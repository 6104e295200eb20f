//! Two handshakes talk to each other, and to peers that lie.

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

/// One end of a TLS session between whoever and Bob, that exports what `secret` determines.
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
    expected_rsa: Option<[u8; 20]>,
    expected_ed: Option<[u8; 32]>,
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

/// Lets both talk until they have nothing more to say.
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

/// A responder that has said its part to `initiator`'s VERSIONS, and that part.
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

// ---------------------------------------------------------------------------------------------
// What honest peers find out
// ---------------------------------------------------------------------------------------------

#[test]
fn two_relays_learn_each_others_identities() {
    let mut alice = initiator_to(
        Some(&ALICE_ID),
        Some(*BOB_ID.rsa_id()),
        Some(*BOB_ID.ed_id()),
    );
    let mut bob = responder();
    talk(&mut alice, &mut bob).unwrap();
    assert_eq!(
        *alice.established(),
        Established {
            link_protocol: 5,
            peer: is_relay(&BOB_ID),
            clock_skew: Some(0),
            my_addr: Some(INITIATOR_ADDR),
            peer_addrs: vec![RESPONDER_ADDR, Ipv6Addr::LOCALHOST.into()],
            canonical: true,
        }
    );
    assert_eq!(
        *bob.established(),
        Established {
            link_protocol: 5,
            peer: is_relay(&ALICE_ID),
            clock_skew: Some(0),
            my_addr: Some(RESPONDER_ADDR),
            peer_addrs: vec![INITIATOR_ADDR],
            canonical: true,
        }
    );
}

#[test]
fn a_client_stays_anonymous() {
    let (mut client, mut bob) = (client(), responder());
    talk(&mut client, &mut bob).unwrap();
    assert_eq!(client.established().peer, is_relay(&BOB_ID));
    let seen = bob.established();
    assert_eq!(seen.peer, PeerIdentity::Unauthenticated);
    assert_eq!(seen.clock_skew, None);
    assert_eq!(seen.peer_addrs, Vec::<IpAddr>::new());
    assert!(!seen.canonical);
}

#[test]
fn an_initiator_says_nothing_about_itself_before_it_knows_the_responder() {
    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    let [versions, certs, challenge, _] = responder_cells(&flight);
    alice.feed(&versions).unwrap();
    assert!(alice.out().is_empty());
    alice.feed(&certs).unwrap();
    assert!(alice.out().is_empty());
    alice.feed(&challenge).unwrap();
    let commands: Vec<u8> = cells(&alice.out()).iter().map(|cell| cell[4]).collect();
    assert_eq!(commands, [129, 131, 8]);
}

#[test]
fn bytes_may_come_one_at_a_time_and_the_rest_is_left_alone() {
    let (mut alice, mut bob) = (relay(), responder());
    for byte in alice.out() {
        assert_eq!(bob.feed(&[byte]), Ok(1));
    }
    for byte in bob.out() {
        assert_eq!(alice.feed(&[byte]), Ok(1));
    }
    // The first cells of the open link come with the end of the handshake.
    let mut flight = alice.out();
    let after = vec![0xAA; 50_000];
    let (first, second) = flight.split_at_mut(700);
    assert_eq!(bob.feed(first), Ok(700));
    let mut bytes = second.to_vec();
    bytes.extend_from_slice(&after);
    assert_eq!(bob.feed(&bytes), Ok(second.len()));
    assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
    assert_eq!(bob.feed(&after), Ok(0));
}

#[test]
fn the_highest_common_version_is_taken() {
    for (offer, taken) in [
        (&[3, 4, 5][..], Some(5)),
        (&[4, 3], Some(4)),
        (&[5, 4, 6, 900], Some(5)),
        (&[3], None),
        (&[6], None),
        (&[], None),
    ] {
        let mut bob = responder();
        match (bob.feed(&versions(offer)), taken) {
            (Ok(_), Some(version)) => assert_eq!(bob.handshake.link_protocol, version),
            (Err(error), None) => {
                assert_eq!(
                    error,
                    HandshakeError::NoCommonVersion {
                        offered: offer.to_vec()
                    }
                );
                assert_eq!(error.class(), ErrorClass::NoCommonProtocol);
                assert!(bob.out().is_empty());
            }
            (result, _) => panic!("{offer:?}: {result:?}"),
        }
    }
}

#[test]
fn padding_and_unknown_cells_pass() {
    let noise = || {
        let mut noise = variable(128, &[1; 300]);
        noise.extend_from_slice(Cell::new(0, ChanCmd::PADDING).as_bytes());
        noise.extend(variable(200, b"from the future"));
        noise.extend(variable(132, b""));
        // A second VERSIONS must be ignored, whatever is in it (tor-spec 4.1).
        noise.extend(variable(7, &[1, 2, 3]));
        noise
    };
    let (mut client, mut bob) = (client(), responder());
    // Before VERSIONS a circuit id has two bytes.
    bob.feed(&[0, 0, 128, 0, 3, 9, 9, 9]).unwrap();
    bob.feed(&client.out()).unwrap();
    bob.feed(&noise()).unwrap();
    let mut flight = Vec::new();
    let [versions, certs, challenge, netinfo] = responder_cells(&bob.out());
    for cell in [versions, certs, challenge] {
        flight.extend(cell);
        flight.extend(noise());
    }
    flight.extend(netinfo);
    client.feed(&flight).unwrap();
    bob.feed(&client.out()).unwrap();
    assert_eq!(client.established().peer, is_relay(&BOB_ID));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_relay_that_pads_can_still_authenticate() {
    // CLOG contains the padding (tor-spec 4.4.1), before VERSIONS too.
    let mut bob = responder();
    let mut said = vec![0, 0, 128, 0, 1, 9];
    said.extend(versions(&[4, 5]));
    said.extend(variable(128, &[1; 30]));
    said.extend(certs_cell(&ALICE_ID.initiator_certs()));
    said.extend_from_slice(Cell::new(0, ChanCmd::PADDING).as_bytes());
    bob.feed(&said).unwrap();
    let flight = bob.out();
    bob.feed(&authenticate_cell(&said, &flight, |_| {}, &[]))
        .unwrap();
    bob.feed(Netinfo::default().encode().unwrap().as_bytes())
        .unwrap();
    assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
}

#[test]
fn without_a_common_method_a_relay_goes_on_as_a_client() {
    let mut alice = relay();
    let (mut bob, flight) = greeted(&mut alice);
    let [versions, certs, _, netinfo] = responder_cells(&flight);
    let mut challenge = vec![0; 32];
    challenge.extend_from_slice(&[0, 2, 0, 1, 0, 9]);
    for cell in [versions, certs, variable(130, &challenge), netinfo] {
        alice.feed(&cell).unwrap();
    }
    let answer = alice.out();
    assert_eq!(cells(&answer).len(), 1);
    bob.feed(&answer).unwrap();
    assert_eq!(alice.established().peer, is_relay(&BOB_ID));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_responder_need_not_challenge() {
    let mut alice = relay();
    let (mut bob, flight) = greeted(&mut alice);
    let [versions, certs, _, netinfo] = responder_cells(&flight);
    for cell in [versions, certs, netinfo] {
        alice.feed(&cell).unwrap();
    }
    assert_eq!(alice.established().peer, is_relay(&BOB_ID));
    bob.feed(&alice.out()).unwrap();
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn clock_skew_is_ours_minus_theirs_and_only_of_quick_handshakes() {
    let skew = |took: Duration, ahead: i64| {
        let mut alice = relay();
        let (mut bob, flight) = greeted(&mut alice);
        alice.feed(&flight).unwrap();
        bob.now += took;
        let mut answer = alice.out();
        let netinfo = answer.len() - 514;
        let theirs = i64::from(unix_time(bob.now)) - ahead;
        answer[netinfo + 5..netinfo + 9].copy_from_slice(&(theirs as u32).to_be_bytes());
        bob.feed(&answer).unwrap();
        bob.established().clock_skew
    };
    assert_eq!(skew(Duration::ZERO, 0), Some(0));
    assert_eq!(skew(Duration::from_secs(2), 4000), Some(4000));
    assert_eq!(skew(Duration::from_secs(179), -4000), Some(-4000));
    assert_eq!(skew(Duration::from_secs(180), 4000), None);
}

#[test]
fn an_unclaimed_address_is_not_canonical() {
    let mut alice = relay();
    alice.handshake.my_addrs = vec![IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1))];
    let mut bob = responder();
    // The kernel calls an IPv4 peer of an IPv6 socket so.
    bob.handshake.peer_addr = INITIATOR_ADDR;
    talk(&mut alice, &mut bob).unwrap();
    assert!(!bob.established().canonical);
    assert!(alice.established().canonical);
}

#[test]
fn a_mapped_address_is_the_same_address() {
    let IpAddr::V4(v4) = RESPONDER_ADDR else {
        unreachable!()
    };
    let mut alice = LinkHandshake::new(
        Role::Responder,
        None,
        v4.to_ipv6_mapped().into(),
        vec![],
        Instant::now(),
    );
    assert_eq!(alice.peer_addr, RESPONDER_ADDR);
    alice.start();
    assert!(alice.take_output().is_empty());
}

#[test]
fn the_deadline_is_a_minute_after_the_connection() {
    let started = Instant::now();
    let handshake = LinkHandshake::new(Role::Responder, None, RESPONDER_ADDR, vec![], started);
    assert_eq!(handshake.deadline(), started + Duration::from_secs(60));
}

// ---------------------------------------------------------------------------------------------
// Who is at the other end
// ---------------------------------------------------------------------------------------------

#[test]
fn another_relay_than_the_wanted_one_is_refused() {
    for (rsa, ed) in [
        (Some(*ALICE_ID.rsa_id()), Some(*BOB_ID.ed_id())),
        (Some(*BOB_ID.rsa_id()), Some(*ALICE_ID.ed_id())),
        (Some(*ALICE_ID.rsa_id()), None),
        (None, Some(*ALICE_ID.ed_id())),
    ] {
        let mut alice = initiator_to(Some(&ALICE_ID), rsa, ed);
        let (_, flight) = greeted(&mut alice);
        let error = alice.feed_err(&flight);
        assert_eq!(
            error,
            HandshakeError::WrongIdentity {
                wanted_rsa: rsa,
                wanted_ed: ed,
                found_rsa: *BOB_ID.rsa_id(),
                found_ed: *BOB_ID.ed_id(),
            }
        );
        assert_eq!(error.class(), ErrorClass::WrongIdentity);
        // And it has learned nothing about us.
        assert!(alice.out().is_empty());
    }
}

#[test]
fn every_certificate_is_needed() {
    for kind in [
        CertKind::RsaIdentity,
        CertKind::IdentityToSigning,
        CertKind::SigningToTls,
        CertKind::RsaToIdentity,
    ] {
        let cell = certs_cell(&without(&BOB_ID.responder_certs(), kind));
        assert_eq!(from_bob(&cell), CertError::Missing(kind).into());
    }
    for kind in [
        CertKind::RsaIdentity,
        CertKind::IdentityToSigning,
        CertKind::SigningToLinkAuth,
        CertKind::RsaToIdentity,
    ] {
        let cell = certs_cell(&without(&ALICE_ID.initiator_certs(), kind));
        assert_eq!(from_alice(&cell), CertError::Missing(kind).into());
    }
    // Each side's leaf is none for the other.
    let cell = certs_cell(&BOB_ID.initiator_certs());
    assert_eq!(
        from_bob(&cell),
        CertError::Missing(CertKind::SigningToTls).into()
    );
}

/// What an initiator says to this CERTS cell from Bob.
fn from_bob(cell: &[u8]) -> HandshakeError {
    let mut alice = relay();
    alice.feed(&versions(&[5])).unwrap();
    alice.feed_err(cell)
}

/// What Bob says to this CERTS cell from an initiator.
fn from_alice(cell: &[u8]) -> HandshakeError {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    bob.feed_err(cell)
}

#[test]
fn certificates_expire() {
    // Alice issued hers two days and more ago; the clocks agree.
    let at = |late: Duration| {
        let mut bob = responder();
        bob.now += late;
        bob.feed(&versions(&[5])).unwrap();
        bob.feed(&certs_cell(&ALICE_ID.initiator_certs()))
    };
    at(LINK_CERT_LIFETIME).unwrap();
    assert_eq!(
        at(LINK_CERT_LIFETIME + HOUR).unwrap_err(),
        CertError::Expired(CertKind::SigningToLinkAuth).into()
    );
    assert_eq!(
        at(DAY * 31).unwrap_err(),
        CertError::Expired(CertKind::IdentityToSigning).into()
    );
    assert_eq!(
        at(DAY * 31).unwrap_err().class(),
        ErrorClass::BadCertificate
    );

    // With fresh leaves the old ones are found too.
    let certs = BOB_ID.responder_certs();
    let tls_certificate = Sha256::digest(&BOB.tls_certificate).into();
    let check = |certs: &Certs, now| {
        let purpose = Purpose::Responder {
            tls_certificate: &tls_certificate,
        };
        certs::check(certs, purpose, now).map(|_| ())
    };
    check(&certs, now()).unwrap();
    let forever = now() + DAY * 4000;
    let fresh = with(
        &with(
            &certs,
            CertKind::IdentityToSigning,
            &ed_cert(4, &BOB.keys.identity, Some(&BOB.keys.signing), forever),
        ),
        CertKind::SigningToTls,
        &ed_cert(5, &BOB.keys.signing, None, forever),
    );
    check(&fresh, now() + DAY * 179).unwrap();
    assert_eq!(
        check(&fresh, now() + DAY * 181).unwrap_err(),
        CertError::Expired(CertKind::RsaToIdentity)
    );
    assert_eq!(
        check(&fresh, now() + DAY * 400).unwrap_err(),
        CertError::Expired(CertKind::RsaIdentity)
    );
    assert_eq!(
        check(&fresh, now() - DAY * 40).unwrap_err(),
        CertError::NotYetValid(CertKind::RsaIdentity)
    );
}

/// A certificate of any type: for `subject`, or for Bob's TLS certificate.
fn ed_cert(
    cert_type: u8,
    signer: &ed25519::Keypair,
    subject: Option<&ed25519::Keypair>,
    expires: SystemTime,
) -> Vec<u8> {
    let subject = match subject {
        Some(key) => CertifiedKey::Ed25519(key.verifying_key().into()),
        None => CertifiedKey::X509Sha256Digest(Sha256::digest(&BOB.tls_certificate).into()),
    };
    Ed25519Cert::builder()
        .cert_type(cert_type.into())
        .expiration(expires)
        .signing_key(signer.verifying_key().into())
        .cert_key(subject)
        .encode_and_sign(signer)
        .unwrap()
        .into()
}

#[test]
fn certificates_must_belong_together() {
    use CertKind::*;
    let certs = BOB_ID.responder_certs();
    let alices = ALICE_ID.responder_certs();
    let tomorrow = now() + DAY;
    let refused = |kind, body: &[u8], error| {
        let cell = certs_cell(&with(&certs, kind, body));
        assert_eq!(from_bob(&cell), HandshakeError::from(error), "{kind}");
    };
    // Another relay's, certificate by certificate.
    let of_alice = |kind: CertKind| alices.get(kind.cert_type()).unwrap();
    refused(
        RsaIdentity,
        of_alice(RsaIdentity),
        CertError::BadSignature(RsaToIdentity),
    );
    refused(
        IdentityToSigning,
        of_alice(IdentityToSigning),
        CertError::BadSignature(SigningToTls),
    );
    refused(
        SigningToTls,
        of_alice(SigningToTls),
        CertError::WrongSubject {
            kind: SigningToTls,
            what: "the certificate of this TLS session",
        },
    );
    refused(
        RsaToIdentity,
        of_alice(RsaToIdentity),
        CertError::BadSignature(RsaToIdentity),
    );
    // Bob's TLS certificate, vouched for by Alice.
    refused(
        SigningToTls,
        &ed_cert(5, &ALICE.keys.signing, None, tomorrow),
        CertError::BadSignature(SigningToTls),
    );
    // A key where a digest should be, a digest where a key should be.
    refused(
        SigningToTls,
        &ed_cert(5, &BOB.keys.signing, Some(&BOB.keys.signing), tomorrow),
        CertError::WrongSubject {
            kind: SigningToTls,
            what: "the certificate of this TLS session",
        },
    );
    refused(
        IdentityToSigning,
        &ed_cert(4, &BOB.keys.identity, None, tomorrow),
        CertError::WrongSubject {
            kind: IdentityToSigning,
            what: "an ed25519 key",
        },
    );
    // A good certificate of another type.
    refused(
        SigningToTls,
        &ed_cert(6, &BOB.keys.signing, None, tomorrow),
        CertError::Malformed {
            kind: SigningToTls,
            why: "it says to be of type 6".to_owned(),
        },
    );
    // Bob's RSA key speaks for Alice's ed25519 identity, not for Bob's.
    let cross = tor_cert::rsa::EncodedRsaCrosscert::encode_and_sign(
        &BOB.keys.rsa,
        &ALICE.keys.identity.verifying_key().into(),
        tomorrow,
    )
    .unwrap();
    refused(
        RsaToIdentity,
        &cross,
        CertError::WrongSubject {
            kind: RsaToIdentity,
            what: "the ed25519 identity key",
        },
    );
    // Alice's signing key, certified by a key that only claims to be Bob's identity.
    let mut forged = ed_cert(4, &ALICE.keys.identity, Some(&BOB.keys.signing), tomorrow);
    let at = forged.len() - 64 - 32;
    forged[at..at + 32].copy_from_slice(BOB.keys.identity.verifying_key().as_bytes());
    refused(
        IdentityToSigning,
        &forged,
        CertError::BadSignature(IdentityToSigning),
    );
    // Without the extension nobody knows whose identity it is.
    let anonymous = Ed25519Cert::builder()
        .cert_type(CertType::IDENTITY_V_SIGNING)
        .expiration(tomorrow)
        .cert_key(CertifiedKey::Ed25519(
            BOB.keys.signing.verifying_key().into(),
        ))
        .encode_and_sign(&BOB.keys.identity)
        .unwrap();
    refused(
        IdentityToSigning,
        &anonymous,
        CertError::Malformed {
            kind: IdentityToSigning,
            why: "it does not include the key that signed it".to_owned(),
        },
    );
}

#[test]
fn the_old_key_type_of_link_certificates_is_understood() {
    // C tor before 0.4.5 says "ed25519 key" where a certificate's digest is (cert-spec A.4).
    let mut cert = Vec::new();
    cert.extend_from_slice(&[1, 5]);
    let hours = (now() + DAY)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        / 3600;
    cert.extend_from_slice(&(hours as u32).to_be_bytes());
    cert.push(1);
    cert.extend_from_slice(&Sha256::digest(&BOB.tls_certificate));
    cert.push(0);
    let signature = BOB.keys.signing.sign(&cert).to_bytes();
    cert.extend_from_slice(&signature);
    let certs = with(&BOB_ID.responder_certs(), CertKind::SigningToTls, &cert);
    let mut alice = relay();
    alice.feed(&versions(&[5])).unwrap();
    alice.feed(&certs_cell(&certs)).unwrap();
}

#[test]
fn no_bit_of_a_responders_certificates_can_be_changed() {
    let good = certs_cell(&BOB_ID.responder_certs());
    for at in 0..good.len() {
        let mut cell = good.clone();
        cell[at] ^= 1;
        let mut alice = relay();
        alice.feed(&versions(&[5])).unwrap();
        let result = alice.feed(&cell);
        let accepted = matches!(alice.handshake.stage, Stage::Proof(_));
        assert!(!accepted, "byte {at}: {result:?}");
    }
}

#[test]
fn keys_that_do_not_fit_together_make_no_identity() {
    let keys = |rsa, identity: &'static Relay, cert: &'static Relay, signing: &'static Relay| {
        let keys = IdentityKeys {
            rsa,
            ed_identity: identity.keys.identity.verifying_key().into(),
            identity_signing_cert: &cert.keys.identity_signing_cert,
            signing: &signing.keys.signing,
        };
        LinkIdentity::issue(
            keys,
            [0; 32],
            LinkCertLifetimes::default(),
            now(),
            &mut rng(5),
        )
    };
    let (alice, bob): (&'static Relay, &'static Relay) = (&ALICE, &BOB);
    keys(&alice.keys.rsa, alice, alice, alice).unwrap();
    for (identity, cert, signing) in [(alice, alice, bob), (alice, bob, bob), (bob, alice, alice)] {
        let error = keys(&alice.keys.rsa, identity, cert, signing).unwrap_err();
        assert!(
            matches!(error, LinkIdentityError::Inconsistent(_)),
            "{error}"
        );
        assert!(error.to_string().contains("KeyDirectory"), "{error}");
    }
    let expired = alice.issue(now() + DAY * 40).unwrap_err();
    assert!(expired.to_string().contains("has expired"), "{expired}");
}

// ---------------------------------------------------------------------------------------------
// AUTHENTICATE
// ---------------------------------------------------------------------------------------------

/// Alice's AUTHENTICATE to Bob, after `said` to him and `heard` (all cells; SLOG ends before
/// NETINFO) from him, with whatever `change` does to the fields and `extra` bytes after RAND.
fn authenticate_cell(
    said: &[u8],
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
        clog: Sha256::digest(said).into(),
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

/// Bob, after VERSIONS and Alice's CERTS; what she said and what he did.
fn certified() -> (Side, Vec<u8>, Vec<u8>) {
    let mut bob = responder();
    let mut said = versions(&[4, 5]);
    said.extend(certs_cell(&ALICE_ID.initiator_certs()));
    bob.feed(&said).unwrap();
    let heard = bob.out();
    (bob, said, heard)
}

#[test]
fn every_field_of_authenticate_is_checked() {
    let result = |change: &dyn Fn(&mut Fields)| {
        let (mut bob, said, heard) = certified();
        bob.feed(&authenticate_cell(&said, &heard, change, &[]))
    };
    result(&|_| {}).unwrap();
    type Change<'a> = &'a dyn Fn(&mut Fields);
    let changes: [(AuthField, Change<'_>); 7] = [
        (AuthField::Cid, &|f| f.cid = f.sid),
        (AuthField::Sid, &|f| f.sid[31] ^= 1),
        (AuthField::CidEd, &|f| f.cid_ed = f.sid_ed),
        (AuthField::SidEd, &|f| f.sid_ed = [0; 32]),
        (AuthField::Slog, &|f| f.slog = f.clog),
        (AuthField::Clog, &|f| f.clog = f.slog),
        (AuthField::Scert, &|f| f.scert[0] ^= 128),
    ];
    for (field, change) in changes {
        let error = result(change).unwrap_err();
        assert_eq!(error, HandshakeError::AuthenticationMismatch(field));
        assert_eq!(error.class(), ErrorClass::AuthenticationFailed);
    }
}

#[test]
fn authenticate_is_bound_to_the_tls_session() {
    let (mut bob, said, heard) = certified();
    bob.tls.secret = 8;
    assert_eq!(
        bob.feed_err(&authenticate_cell(&said, &heard, |_| {}, &[])),
        HandshakeError::AuthenticationMismatch(AuthField::TlsSecrets)
    );
}

#[test]
fn authenticate_of_another_session_cannot_be_replayed() {
    let (mut bob, said, heard) = certified();
    let proof = authenticate_cell(&said, &heard, |_| {}, &[]);
    bob.feed(&proof).unwrap();
    // The same TLS secret even; only the challenge is new.
    let mut again = responder();
    again.rng = rng(1234);
    again.feed(&said).unwrap();
    assert_eq!(
        again.feed_err(&proof),
        HandshakeError::AuthenticationMismatch(AuthField::Slog)
    );
}

#[test]
fn authenticate_may_have_more_fields_but_not_less() {
    let (mut bob, said, heard) = certified();
    bob.feed(&authenticate_cell(&said, &heard, |_| {}, b"more to come"))
        .unwrap();

    for len in [0, 1, 71, 72, 287, 351] {
        let (mut bob, said, heard) = certified();
        let body = authenticate_cell(&said, &heard, |_| {}, &[])[11..][..len].to_vec();
        let mut cell = Vec::new();
        Authenticate { method: 3, body }.encode(&mut cell).unwrap();
        assert_eq!(
            bob.feed_err(&cell),
            HandshakeError::AuthenticationTooShort(352 - len)
        );
    }
}

#[test]
fn authenticate_must_be_of_type_3_and_signed() {
    let (mut bob, said, heard) = certified();
    let mut cell = authenticate_cell(&said, &heard, |_| {}, &[]);
    cell[8] = 1;
    assert_eq!(bob.feed_err(&cell), HandshakeError::AuthenticationMethod(1));

    let (mut bob, said, heard) = certified();
    let mut cell = authenticate_cell(&said, &heard, |_| {}, &[]);
    cell[11 + 7] = b'1';
    assert_eq!(
        bob.feed_err(&cell),
        HandshakeError::AuthenticationMismatch(AuthField::Type)
    );

    // RAND, then the signature itself.
    for at in [11 + 270, 11 + 351] {
        let (mut bob, said, heard) = certified();
        let mut cell = authenticate_cell(&said, &heard, |_| {}, &[]);
        cell[at] ^= 1;
        assert_eq!(bob.feed_err(&cell), HandshakeError::AuthenticationSignature);
    }
}

#[test]
fn no_bit_of_a_relays_proof_can_be_changed() {
    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    alice.feed(&flight).unwrap();
    let proof = alice.out();
    let netinfo = proof.len() - 514;
    for at in 0..netinfo {
        let mut bytes = proof.clone();
        bytes[at] ^= 1;
        let mut alice = relay();
        let (mut bob, _) = greeted(&mut alice);
        let result = bob.feed(&bytes);
        let peer = bob.handshake.established().map(|found| found.peer);
        assert!(
            result.is_err() || peer.is_none_or(|peer| peer == PeerIdentity::Unauthenticated),
            "byte {at}: {result:?}, {peer:?}"
        );
    }
}

#[test]
fn nobody_can_change_what_the_responder_said_before_a_proof() {
    // VERSIONS (a downgrade), CERTS (an unknown type more) and AUTH_CHALLENGE, all acceptable.
    let mut more = BOB_ID.responder_certs();
    more.certs.push((99, vec![1, 2, 3]));
    let mut challenge = vec![0; 32];
    challenge.extend_from_slice(&[0, 1, 0, 3]);
    for (index, cell) in [
        (0, versions(&[4])),
        (1, certs_cell(&more)),
        (2, variable(130, &challenge)),
    ] {
        let mut alice = relay();
        let (mut bob, flight) = greeted(&mut alice);
        let mut flight = responder_cells(&flight);
        flight[index] = cell;
        alice.feed(&flight.concat()).unwrap();
        assert_eq!(
            bob.feed_err(&alice.out()),
            HandshakeError::AuthenticationMismatch(AuthField::Slog)
        );
    }
}

// ---------------------------------------------------------------------------------------------
// Order, limits, local faults
// ---------------------------------------------------------------------------------------------

fn unexpected(cell: &str, expected: &'static str) -> HandshakeError {
    HandshakeError::UnexpectedCell {
        cell: cell.to_owned(),
        expected,
    }
}

#[test]
fn an_initiator_insists_on_the_order() {
    let cell_at = |order: &[usize]| {
        let mut alice = relay();
        let (_, flight) = greeted(&mut alice);
        let flight = responder_cells(&flight);
        let bytes: Vec<u8> = order.iter().flat_map(|i| flight[*i].clone()).collect();
        alice.feed_err(&bytes)
    };
    assert_eq!(cell_at(&[0, 3]), unexpected("NETINFO", "CERTS"));
    assert_eq!(cell_at(&[0, 2]), unexpected("AUTH_CHALLENGE", "CERTS"));
    assert_eq!(cell_at(&[0, 1, 1]), HandshakeError::DuplicateCell("CERTS"));
    assert_eq!(
        cell_at(&[0, 1, 2, 1]),
        HandshakeError::DuplicateCell("CERTS")
    );
    assert_eq!(
        cell_at(&[0, 1, 2, 2]),
        HandshakeError::DuplicateCell("AUTH_CHALLENGE")
    );
    // CERTS with a 4-byte circuit id read as a first cell: command 0, whatever it is.
    assert_eq!(cell_at(&[1]).class(), ErrorClass::ProtocolViolation);

    let mut alice = relay();
    let (_, flight) = greeted(&mut alice);
    let [versions, certs, ..] = responder_cells(&flight);
    alice.feed(&[versions, certs].concat()).unwrap();
    assert_eq!(
        alice.feed_err(&variable(131, &[0; 400])),
        unexpected("AUTHENTICATE", "AUTH_CHALLENGE or NETINFO")
    );
}

#[test]
fn a_responder_insists_on_the_order() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    assert_eq!(
        bob.feed_err(&variable(131, &[0; 400])),
        unexpected("AUTHENTICATE", "CERTS or NETINFO")
    );

    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    assert_eq!(
        bob.feed_err(&variable(130, &[0; 36])),
        unexpected("AUTH_CHALLENGE", "CERTS or NETINFO")
    );

    let (mut bob, ..) = certified();
    assert_eq!(
        bob.feed_err(&certs_cell(&ALICE_ID.initiator_certs())),
        HandshakeError::DuplicateCell("CERTS")
    );

    let (mut bob, said, heard) = certified();
    let proof = authenticate_cell(&said, &heard, |_| {}, &[]);
    bob.feed(&proof).unwrap();
    assert_eq!(
        bob.feed_err(&proof),
        HandshakeError::DuplicateCell("AUTHENTICATE")
    );

    for command in [ChanCmd::CREATE2, ChanCmd::CREATE_FAST, ChanCmd::RELAY] {
        let mut bob = responder();
        bob.feed(&versions(&[5])).unwrap();
        let error = bob.feed_err(Cell::new(1, command).as_bytes());
        assert_eq!(error, unexpected(&command.to_string(), "CERTS or NETINFO"));
        assert_eq!(error.class(), ErrorClass::ProtocolViolation);
    }
}

#[test]
fn a_link_opens_with_versions() {
    let mut bob = responder();
    let error = bob.feed_err(b"GET / HTTP/1.1\r\n");
    assert!(
        matches!(
            error,
            HandshakeError::NotACell(FrameError::NotVersions { .. })
        ),
        "{error}"
    );
    assert!(bob.out().is_empty());
    let mut bob = responder();
    let error = bob.feed_err(&[0, 0, 7, 0, 3, 0, 4, 0]);
    assert_eq!(error, HandshakeError::NotACell(FrameError::OddVersions(3)));
}

#[test]
fn link_cells_have_no_circuit_id() {
    let mut cell = certs_cell(&ALICE_ID.initiator_certs());
    cell[3] = 1;
    assert_eq!(from_alice(&cell), HandshakeError::NonZeroCircuitId("CERTS"));
}

#[test]
fn malformed_cells_are_named() {
    for (command, body, name) in [
        (129, &[][..], "CERTS"),
        (129, &[1, 2, 0, 9], "CERTS"),
        (129, &[2, 9, 0, 0, 9, 0, 0], "CERTS"),
    ] {
        let error = from_alice(&variable(command, body));
        let HandshakeError::MalformedCell { cell, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(cell, name);
    }
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let mut netinfo = Cell::new(0, ChanCmd::NETINFO);
    netinfo.body_mut().fill(255);
    assert!(matches!(
        bob.feed_err(netinfo.as_bytes()),
        HandshakeError::MalformedCell {
            cell: "NETINFO",
            ..
        }
    ));
}

#[test]
fn an_error_is_final() {
    let mut bob = responder();
    let error = bob.feed_err(&versions(&[2]));
    assert_eq!(bob.feed_err(&versions(&[5])), error);
    assert_eq!(bob.handshake.established(), None);
    assert!(bob.out().is_empty());
}

#[test]
fn a_peer_that_only_pads_is_cut_off() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let cell = variable(128, &[0; 1000]);
    let mut sent = 9;
    let error = loop {
        match bob.feed(&cell) {
            Ok(consumed) => sent += consumed,
            Err(error) => break error,
        }
    };
    assert_eq!(
        error,
        HandshakeError::TooManyBytes {
            limit: MAX_HANDSHAKE_BYTES
        }
    );
    assert_eq!(error.class(), ErrorClass::LimitExceeded);
    assert!(sent <= MAX_HANDSHAKE_BYTES && sent + cell.len() > MAX_HANDSHAKE_BYTES);

    // All at once is no better.
    let mut bob = responder();
    let mut bytes = versions(&[5]);
    bytes.extend(cell.repeat(100));
    assert_eq!(bob.feed_err(&bytes), error);
}

#[test]
fn a_huge_cell_is_refused_by_its_header() {
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let error = bob.feed_err(&[0, 0, 0, 0, 129, 255, 255]);
    assert_eq!(error.class(), ErrorClass::LimitExceeded);
    // One that would just pass the limit is not waited for either.
    let mut bob = responder();
    bob.feed(&versions(&[5])).unwrap();
    let cell = variable(129, &vec![0; MAX_HANDSHAKE_BYTES]);
    assert_eq!(
        bob.feed_err(&cell[..MAX_HANDSHAKE_BYTES]),
        HandshakeError::TooManyBytes {
            limit: MAX_HANDSHAKE_BYTES
        }
    );
}

#[test]
fn a_handshake_that_fits_the_limit_passes_with_any_amount_behind_it() {
    let (mut client, mut bob) = (client(), responder());
    bob.feed(&client.out()).unwrap();
    client.feed(&bob.out()).unwrap();
    let netinfo = client.out();
    let pad = MAX_HANDSHAKE_BYTES - 9 - netinfo.len() - 7;
    let mut bytes = variable(128, &vec![0; pad]);
    bytes.extend_from_slice(&netinfo);
    let handshake = bytes.len();
    bytes.extend_from_slice(&[1; 100_000]);
    assert_eq!(bob.feed(&bytes), Ok(handshake));
    assert_eq!(bob.established().peer, PeerIdentity::Unauthenticated);
}

#[test]
fn a_responder_needs_the_identity_of_its_tls_certificate() {
    let mut nobody = responder();
    nobody.handshake.me = None;
    assert_eq!(nobody.feed_err(&versions(&[5])), HandshakeError::NoIdentity);
    let mut confused = responder();
    confused.handshake.me = Some(ALICE_ID.clone());
    let error = confused.feed_err(&versions(&[5]));
    assert!(matches!(error, HandshakeError::Tls(_)));
    assert_eq!(error.class(), ErrorClass::Local);
}

#[test]
fn identities_do_not_print_their_secrets() {
    let shown = format!("{:?}", *ALICE_ID);
    assert!(shown.contains(&hex(ALICE_ID.rsa_id())));
    assert!(!shown.contains("link_auth"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic_and_never_authenticate(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        cut in 1usize..500,
        as_responder: bool,
    ) {
        let mut side = if as_responder { responder() } else { relay() };
        side.feed(&versions(&[5])).unwrap();
        for chunk in bytes.chunks(cut) {
            if side.feed(chunk).is_err() {
                break;
            }
        }
        let peer = side.handshake.established().map(|found| found.peer);
        prop_assert!(peer.is_none_or(|peer| peer == PeerIdentity::Unauthenticated));
    }

    #[test]
    fn chunks_of_any_size_give_the_same_result(cut in 1usize..3000) {
        let (mut alice, mut bob) = (relay(), responder());
        for _ in 0..3 {
            for chunk in alice.out().chunks(cut) {
                prop_assert_eq!(bob.feed(chunk), Ok(chunk.len()));
            }
            for chunk in bob.out().chunks(cut) {
                prop_assert_eq!(alice.feed(chunk), Ok(chunk.len()));
            }
        }
        prop_assert_eq!(alice.established().peer, is_relay(&BOB_ID));
        prop_assert_eq!(bob.established().peer, is_relay(&ALICE_ID));
    }
}
