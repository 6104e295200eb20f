//! The one X.509 certificate that still carries an identity: CERTS type 2, the self-signed
//! certificate of a relay's RSA identity key (tor-spec 4.2).
//!
//! Nothing else of X.509 is looked at: names, serial numbers and extensions mean nothing to Tor.

use std::time::{Duration, SystemTime};

use digest::Digest as _;
use tor_llcrypto::pk::rsa;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};

use super::error::Validity;

/// Tolerance for a certificate that has expired: C tor's `TOR_X509_PAST_SLOP`, which allows for the
/// clocks of both sides.
const PAST_SLOP: Duration = Duration::from_secs(2 * 24 * 60 * 60);
/// Tolerance for a certificate that is not yet valid: C tor's `TOR_X509_FUTURE_SLOP`.
const FUTURE_SLOP: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// RSA identity keys have this length and exponent, always (tor-spec 0.3).
const IDENTITY_BITS: usize = 1024;
const IDENTITY_EXPONENT: u32 = 65537;

/// rsaEncryption: the algorithm of the certified key.
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// sha256WithRSAEncryption: how every Tor since 0.2.8 signs it.
const SHA256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
/// Prefix of a SHA-256 digest in PKCS #1 v1.5 signatures (RFC 8017 9.2, note 1).
const SHA256_DIGEST_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];

/// Why an RSA identity certificate proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IdCertFault {
    /// Not DER, not a certificate, or not an RSA-1024 key signed with SHA-256.
    Malformed(&'static str),
    /// Its validity begins too far in the future.
    NotYetValid(Validity),
    /// Its validity ended too long ago.
    Expired(Validity),
    /// Not signed by the key it certifies.
    BadSignature,
}

/// Checks all that tor-spec 4.2 asks of the RSA identity certificate and returns the key.
pub(super) fn check_rsa_id_cert(
    der: &[u8],
    now: SystemTime,
) -> Result<rsa::PublicKey, IdCertFault> {
    let malformed = IdCertFault::Malformed;
    let cert = Certificate::from_der(der).map_err(|_| malformed("not an X.509 certificate"))?;
    let signed_part = signed_part(der).map_err(|_| malformed("not an X.509 certificate"))?;
    let tbs = &cert.tbs_certificate;

    if tbs.signature != cert.signature_algorithm {
        return Err(malformed("names two signature algorithms"));
    }
    if cert.signature_algorithm.oid != SHA256_WITH_RSA {
        return Err(malformed("not signed with RSA and SHA-256"));
    }
    let spki = &tbs.subject_public_key_info;
    if spki.algorithm.oid != RSA_ENCRYPTION {
        return Err(malformed("its key is not an RSA key"));
    }
    let key = spki
        .subject_public_key
        .as_bytes()
        .and_then(rsa::PublicKey::from_der)
        .ok_or(malformed("its RSA key cannot be read"))?;
    if key.bits() != IDENTITY_BITS || !key.exponent_is(IDENTITY_EXPONENT) {
        return Err(malformed("its key is not RSA-1024 with exponent 65537"));
    }

    // `now` comes from us and the dates from the peer; none of these sums can leave SystemTime's
    // range on the platforms that Weft runs on, but a clock is no reason to panic either.
    let begins = tbs.validity.not_before.to_system_time();
    let ends = tbs.validity.not_after.to_system_time();
    let validity = Validity {
        from: Some(begins),
        until: ends,
    };
    if now.checked_add(FUTURE_SLOP).is_some_and(|t| t < begins) {
        return Err(IdCertFault::NotYetValid(validity));
    }
    if ends.checked_add(PAST_SLOP).is_some_and(|t| t < now) {
        return Err(IdCertFault::Expired(validity));
    }

    let mut digest_info = SHA256_DIGEST_INFO.to_vec();
    digest_info.extend_from_slice(&sha2::Sha256::digest(signed_part));
    let signature = cert
        .signature
        .as_bytes()
        .ok_or(malformed("its signature is not whole bytes"))?;
    key.verify(&digest_info, signature)
        .map_err(|_| IdCertFault::BadSignature)?;
    Ok(key)
}

/// The bytes of `tbsCertificate`, as they were signed.
fn signed_part(der: &[u8]) -> x509_cert::der::Result<&[u8]> {
    SliceReader::new(der)?.sequence(|certificate| {
        let signed_part = certificate.tlv_bytes()?;
        let _algorithm = certificate.tlv_bytes()?;
        let _signature = certificate.tlv_bytes()?;
        Ok(signed_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;
    use std::sync::LazyLock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * 20_000
    }

    static CERT: LazyLock<(Vec<u8>, rsa::PublicKey)> = LazyLock::new(|| {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let key = rsa::KeyPair::generate(&mut rng).unwrap();
        let der =
            tor_cert_x509::create_legacy_rsa_id_cert(&mut rng, now(), "www.example.com", &key)
                .unwrap();
        (der, key.to_public_key())
    });

    #[test]
    fn a_self_signed_rsa_1024_certificate_yields_its_key() {
        assert_eq!(check_rsa_id_cert(&CERT.0, now()).unwrap(), CERT.1);
    }

    #[test]
    fn dates_are_checked_with_c_tors_slop() {
        // create_legacy_rsa_id_cert: from the midnight a day before, for 365 days.
        let fault = |t| check_rsa_id_cert(&CERT.0, t).unwrap_err();
        assert!(check_rsa_id_cert(&CERT.0, now() + DAY * 366).is_ok());
        let IdCertFault::Expired(validity) = fault(now() + DAY * 367) else {
            panic!("not expired");
        };
        assert!(validity.from.unwrap() < now() && validity.until > now() + DAY * 363);
        let expired = IdCertFault::Expired(validity);
        let not_yet = IdCertFault::NotYetValid(validity);
        assert_eq!(fault(now() + DAY * 367), expired);
        assert!(check_rsa_id_cert(&CERT.0, now() - DAY * 31).is_ok());
        assert_eq!(fault(now() - DAY * 32), not_yet);
        assert_eq!(fault(SystemTime::UNIX_EPOCH), not_yet);
    }

    #[test]
    fn a_certificate_signed_by_another_key_proves_nothing() {
        // An equal certificate with another key of equal size in it.
        let other = rsa::KeyPair::generate(&mut ChaCha12Rng::seed_from_u64(2)).unwrap();
        let (mine, theirs) = (CERT.1.to_der(), other.to_public_key().to_der());
        assert_eq!(mine.len(), theirs.len());
        let mut der = CERT.0.clone();
        let at = der.windows(mine.len()).position(|w| w == mine).unwrap();
        der[at..at + mine.len()].copy_from_slice(&theirs);
        assert_eq!(
            check_rsa_id_cert(&der, now()).unwrap_err(),
            IdCertFault::BadSignature
        );
    }

    #[test]
    fn a_longer_key_is_not_an_identity() {
        let mut rng = ChaCha12Rng::seed_from_u64(3);
        let tls = tor_cert_x509::TlsKeyAndCert::create(&mut rng, now(), "www.a.com", "www.b.net")
            .unwrap();
        assert!(matches!(
            check_rsa_id_cert(tls.certificates_der()[0], now()).unwrap_err(),
            IdCertFault::Malformed(_)
        ));
    }

    #[test]
    fn a_key_with_another_exponent_is_not_an_identity() {
        let key = CERT.1.to_der();
        let at = CERT.0.windows(key.len()).position(|w| w == key).unwrap();
        let mut der = CERT.0.clone();
        // The last byte of 65537.
        der[at + key.len() - 1] ^= 2;
        let fault = check_rsa_id_cert(&der, now()).unwrap_err();
        let is_exponent = matches!(&fault, IdCertFault::Malformed(why) if why.contains("exponent"));
        assert!(is_exponent, "{fault:?}");
    }

    #[test]
    fn no_changed_byte_and_no_truncation_passes() {
        for at in 0..CERT.0.len() {
            let mut der = CERT.0.clone();
            der[at] ^= 1;
            assert!(check_rsa_id_cert(&der, now()).is_err(), "byte {at}");
            assert!(check_rsa_id_cert(&CERT.0[..at], now()).is_err());
        }
        let mut longer = CERT.0.clone();
        longer.push(0);
        assert!(check_rsa_id_cert(&longer, now()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = check_rsa_id_cert(&bytes, now());
        }
    }
}
