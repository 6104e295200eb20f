//! The link handshake, with a peer that sends anything.
//!
//! Input: one byte of role (0 a responder, 1 a relay that opens the link, 2 a client that does),
//! one byte of how many bytes arrive at once (0: all), then what the peer sends.
//!
//! Keys, randomness and time never change, so a recorded handshake of the two relays below is a
//! good one in every run.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use libfuzzer_sys::fuzz_target;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use weft_core::handshake::{
    EphemeralKeys, ExportError, LinkCertLifetimes, LinkHandshake, LinkIdentity,
    MAX_HANDSHAKE_BYTES, PeerIdentity, Role, TlsSession,
};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The responder's TLS certificate, as far as the handshake cares.
const CERTIFICATE: &[u8] = b"the responder's TLS certificate";
/// Its SHA-256.
const CERTIFICATE_SHA256: [u8; 32] = [
    0x90, 0x5b, 0x4a, 0x6d, 0x6b, 0x6e, 0x33, 0x85, 0x53, 0xb0, 0x16, 0xaf, 0x0d, 0xfa, 0xc0, 0xa1,
    0x52, 0x66, 0x53, 0xce, 0xed, 0x8c, 0x6f, 0x3a, 0x1f, 0x5f, 0x95, 0x71, 0x83, 0x1a, 0x5e, 0x62,
];

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

fn relay(seed: u64) -> Arc<LinkIdentity> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let keys = EphemeralKeys::generate(now(), &mut rng).expect("no keys");
    let identity = LinkIdentity::issue(
        keys.keys(),
        CERTIFICATE_SHA256,
        LinkCertLifetimes::default(),
        now(),
        &mut rng,
    );
    Arc::new(identity.expect("no identity"))
}

static INITIATOR: LazyLock<Arc<LinkIdentity>> = LazyLock::new(|| relay(1));
static RESPONDER: LazyLock<Arc<LinkIdentity>> = LazyLock::new(|| relay(2));

/// A TLS session between the two.
struct Session;

impl TlsSession for Session {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Some(CERTIFICATE)
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        Some(CERTIFICATE_SHA256)
    }

    fn export_keying_material(
        &self,
        out: &mut [u8; 32],
        _label: &[u8],
        _context: Option<&[u8]>,
    ) -> Result<(), ExportError> {
        *out = [7; 32];
        Ok(())
    }
}

/// One side, and the only relay that can be at the other.
fn side(role: u8) -> (LinkHandshake, &'static LinkIdentity) {
    let initiator = Role::Initiator {
        expected_rsa: None,
        expected_ed: None,
    };
    let (role, me, peer) = match role % 3 {
        0 => (Role::Responder, Some(RESPONDER.clone()), &*INITIATOR),
        1 => (initiator, Some(INITIATOR.clone()), &*RESPONDER),
        _ => (initiator, None, &*RESPONDER),
    };
    let mut handshake = LinkHandshake::new(role, me, LOCALHOST, vec![LOCALHOST], Instant::now());
    handshake.start();
    (handshake, peer)
}

fuzz_target!(|input: &[u8]| {
    let [role, at_once, input @ ..] = input else {
        return;
    };
    let (mut handshake, peer) = side(*role);
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    let at_once = match at_once {
        0 => input.len().max(1),
        n => usize::from(*n),
    };
    let (mut consumed, mut sent) = (0, 0);
    for bytes in input.chunks(at_once) {
        match handshake.receive(bytes, &Session, now(), &mut rng) {
            Ok(n) => {
                assert!(n == bytes.len() || handshake.established().is_some());
                consumed += n;
            }
            Err(error) => {
                // It is final, has a class, and can be printed.
                let again = handshake.receive(bytes, &Session, now(), &mut rng);
                assert_eq!(again.as_ref(), Err(&error));
                assert!(handshake.established().is_none());
                assert!(!error.to_string().is_empty());
                let _ = error.class();
                break;
            }
        }
        sent += handshake.take_output().len();
    }
    assert!(consumed <= MAX_HANDSHAKE_BYTES);
    assert!(sent <= 4096);
    if let Some(established) = handshake.established() {
        // Nobody else's certificates and signatures can be had.
        match established.peer {
            PeerIdentity::Unauthenticated => assert_eq!(*role % 3, 0),
            PeerIdentity::Relay { rsa, ed25519 } => {
                assert_eq!((&rsa, &ed25519), (peer.rsa_id(), peer.ed_id()));
            }
        }
    }
});
