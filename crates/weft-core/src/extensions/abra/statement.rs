//! Verification that a statement comes from the relay that was asked.

use std::time::{Duration, SystemTime};

use thiserror::Error;
use tor_cert::{CertType, Ed25519Cert};
use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::pk::ed25519;
use weft_cell::abra::{AbraMsgError, Claim, Statement};
use weft_cell::identity::Ed25519Identity;

/// Statements older than this are stale: three that a relay sends every [`INTERVAL`](super::INTERVAL).
pub const MAX_AGE: Duration = Duration::from_secs(15);

/// Largest lead of a relay's clock over the client's, which may itself be wrong. C tor clients use
/// a consensus when their clock is off by hours, but then they know it: statements are not worth
/// that.
const MAX_AHEAD: Duration = Duration::from_secs(5);

/// Why a statement is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AbraError {
    /// It cannot be read.
    #[error(transparent)]
    Malformed(#[from] AbraMsgError),
    /// Its certificate cannot be read, or is no certificate of a signing key.
    #[error("a statement whose certificate certifies no signing key")]
    Certificate,
    /// Its certificate is not the relay's, or is not valid now.
    #[error("a statement with the certificate of another relay, or an expired one")]
    NotCertified,
    /// The signing key did not sign it.
    #[error("a statement with a wrong signature")]
    Forged,
    /// It is too old.
    #[error("a statement that is {0} seconds old")]
    Stale(u64),
    /// It is from the future.
    #[error("a statement that is {0} seconds ahead")]
    Ahead(u64),
    /// A newer one of this relay was accepted before.
    #[error("a statement that is older than the last one of its relay")]
    Replayed,
}

/// Reads a statement of the relay with this identity and checks the certificate and the signature. About 100
/// µs; [`Memo`] spares it. Times are not checked: see [`check_times`].
///
/// # Errors
///
/// Why it is not the relay's.
pub fn verify(
    body: &[u8],
    identity: &Ed25519Identity,
    wall_now: SystemTime,
) -> Result<Claim, AbraError> {
    let statement = Statement::decode(body)?;
    let cert = Ed25519Cert::decode(&statement.certificate).map_err(|_| AbraError::Certificate)?;
    if cert.peek_cert_type() != CertType::IDENTITY_V_SIGNING {
        return Err(AbraError::Certificate);
    }
    let key = (cert.peek_subject_key().as_ed25519())
        .and_then(|key| ed25519::PublicKey::try_from(key).ok())
        .ok_or(AbraError::Certificate)?;
    let signer = ed25519::Ed25519Identity::from(identity.0);
    cert.should_be_signed_with(&signer)
        .and_then(|cert| cert.check_signature())
        .map_err(|_| AbraError::NotCertified)?
        .check_valid_at(&wall_now)
        .map_err(|_| AbraError::NotCertified)?;
    let signature = ed25519::Signature::from(statement.signature);
    key.verify(&statement.signed_part(&identity.0), &signature)
        .map_err(|_| AbraError::Forged)?;
    Ok(statement.claim)
}

/// Checks that a claim is recent, and not older than `last`, the second of its relay's last
/// accepted claim. An equal claim is no replay: it arrives over each circuit that asked.
///
/// # Errors
///
/// Why it is to be ignored.
pub fn check_times(
    claim: &Claim,
    last: Option<u64>,
    wall_now: SystemTime,
) -> Result<(), AbraError> {
    let now = wall_now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    if let Some(age) = now.checked_sub(claim.time)
        && age > MAX_AGE.as_secs()
    {
        return Err(AbraError::Stale(age));
    }
    if let Some(ahead) = claim.time.checked_sub(now)
        && ahead > MAX_AHEAD.as_secs()
    {
        return Err(AbraError::Ahead(ahead));
    }
    match last.is_some_and(|last| claim.time < last) {
        true => Err(AbraError::Replayed),
        false => Ok(()),
    }
}

/// The last statement of a relay that was found to be its own: the same over another circuit is not verified
/// again.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    last: Option<(Vec<u8>, Claim)>,
}

impl Memo {
    /// [`verify`] and [`check_times`]. A statement that is refused leaves the one before.
    ///
    /// # Errors
    ///
    /// Why it is to be ignored.
    pub fn accept(
        &mut self,
        body: &[u8],
        identity: &Ed25519Identity,
        wall_now: SystemTime,
    ) -> Result<Claim, AbraError> {
        self.accept_by(body, wall_now, || verify(body, identity, wall_now))
    }

    /// Accepts a statement without checking certificate and signature: for virtual time, where
    /// relays do not sign.
    ///
    /// # Errors
    ///
    /// Why it is to be ignored.
    pub fn accept_unsigned(
        &mut self,
        body: &[u8],
        wall_now: SystemTime,
    ) -> Result<Claim, AbraError> {
        self.accept_by(body, wall_now, || Ok(Statement::decode(body)?.claim))
    }

    fn accept_by(
        &mut self,
        body: &[u8],
        wall_now: SystemTime,
        check: impl FnOnce() -> Result<Claim, AbraError>,
    ) -> Result<Claim, AbraError> {
        let known = (self.last.as_ref()).filter(|(last, _)| last.as_slice() == body);
        let last_time = self.last.as_ref().map(|(_, claim)| claim.time);
        let (claim, is_new) = match known {
            Some((_, claim)) => (*claim, false),
            None => (check()?, true),
        };
        check_times(&claim, last_time, wall_now)?;
        if is_new {
            self.last = Some((body.to_vec(), claim));
        }
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;
    use tor_cert::{CertifiedKey, EncodedCert as _};
    use tor_llcrypto::pk::ed25519::Keypair;
    use weft_cell::abra::{self, AbraReason};

    use super::*;

    const NOW: u64 = 1_795_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    struct Relay {
        identity: Keypair,
        signing: Keypair,
    }

    impl Relay {
        fn new(seed: u64) -> Self {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            Relay {
                identity: Keypair::generate(&mut rng),
                signing: Keypair::generate(&mut rng),
            }
        }

        fn id(&self) -> Ed25519Identity {
            Ed25519Identity(self.identity.verifying_key().to_bytes())
        }

        fn cert(&self, kind: CertType) -> Vec<u8> {
            Ed25519Cert::builder()
                .cert_type(kind)
                .cert_key(CertifiedKey::Ed25519(self.signing.verifying_key().into()))
                .signing_key(ed25519::Ed25519Identity::from(self.id().0))
                .expiration(at(NOW + 86_400))
                .encode_and_sign(&self.identity)
                .unwrap()
                .encoded()
                .to_vec()
        }

        fn state_with(&self, time: u64, weight: f64, cert: &[u8]) -> Vec<u8> {
            let claim = Claim::new(time, weight, AbraReason::OwnLimits);
            let mut bytes = abra::unsigned(&claim, cert).unwrap();
            let signature = self.signing.sign(&abra::signed_part(&self.id().0, &bytes));
            bytes.extend_from_slice(&signature.to_bytes());
            bytes
        }

        fn state(&self, time: u64, weight: f64) -> Vec<u8> {
            self.state_with(time, weight, &self.cert(CertType::IDENTITY_V_SIGNING))
        }
    }

    #[test]
    fn a_relays_own_statement_is_accepted() {
        let relay = Relay::new(1);
        let claim = verify(&relay.state(NOW, 0.5), &relay.id(), at(NOW)).unwrap();
        assert_eq!(claim, Claim::new(NOW, 0.5, AbraReason::OwnLimits));
    }

    #[test]
    fn no_bit_of_a_statement_can_be_changed() {
        let relay = Relay::new(1);
        let good = relay.state(NOW, 0.5);
        for byte in 0..good.len() {
            for bit in [0x01, 0x80] {
                let mut bad = good.clone();
                bad[byte] ^= bit;
                assert!(
                    verify(&bad, &relay.id(), at(NOW)).is_err(),
                    "byte {byte} does not matter"
                );
            }
        }
    }

    #[test]
    fn one_relay_cannot_speak_for_another() {
        let (relay, liar) = (Relay::new(1), Relay::new(2));
        let id = relay.id();
        let wrong = |body: Vec<u8>| verify(&body, &id, at(NOW)).unwrap_err();
        assert_eq!(wrong(liar.state(NOW, 0.0)), AbraError::NotCertified);
        let cert = relay.cert(CertType::IDENTITY_V_SIGNING);
        assert_eq!(wrong(liar.state_with(NOW, 0.0, &cert)), AbraError::Forged);
    }

    #[test]
    fn other_and_expired_certificates_are_refused() {
        let relay = Relay::new(1);
        let other = relay.state_with(NOW, 0.0, &relay.cert(CertType::SIGNING_V_LINK_AUTH));
        assert_eq!(
            verify(&other, &relay.id(), at(NOW)),
            Err(AbraError::Certificate)
        );
        let garbage = relay.state_with(NOW, 0.0, &[9; 140]);
        assert_eq!(
            verify(&garbage, &relay.id(), at(NOW)),
            Err(AbraError::Certificate)
        );
        assert_eq!(
            verify(&relay.state(NOW, 0.0), &relay.id(), at(NOW + 2 * 86_400)),
            Err(AbraError::NotCertified)
        );
    }

    #[test]
    fn stale_and_future_statements_are_ignored() {
        let relay = Relay::new(1);
        let accept = |time| Memo::default().accept(&relay.state(time, 1.0), &relay.id(), at(NOW));
        assert!(accept(NOW - 15).is_ok());
        assert!(accept(NOW + 5).is_ok());
        assert_eq!(accept(NOW - 16), Err(AbraError::Stale(16)));
        assert_eq!(accept(NOW + 6), Err(AbraError::Ahead(6)));
        assert_eq!(accept(u64::MAX), Err(AbraError::Ahead(u64::MAX - NOW)));
    }

    #[test]
    fn a_replayed_statement_is_ignored_and_the_same_one_is_not() {
        let relay = Relay::new(1);
        let mut memo = Memo::default();
        let (old, new) = (relay.state(NOW - 2, 1.0), relay.state(NOW, 2.0));
        let mut accept = |body: &[u8], now| memo.accept(body, &relay.id(), at(now));
        assert!(accept(&old, NOW).is_ok());
        assert!(accept(&new, NOW).is_ok());
        assert!(accept(&new, NOW + 1).is_ok());
        assert_eq!(accept(&old, NOW + 1), Err(AbraError::Replayed));
        // One that is remembered gets stale all the same.
        assert_eq!(accept(&new, NOW + 16), Err(AbraError::Stale(16)));
    }
}
