//! The link key and its self-made certificate, in the form that C tor's peers accept (tor-spec 2.1).
//!
//! tor-cert-x509 makes the same with a key of the crate `rsa`, whose search for primes was a quarter of the processor
//! time of networks in tests, and which every start of a relay waits for. The key is aws-lc's; the certificate has
//! the fields of tor-cert-x509's.

use std::time::{Duration, SystemTime};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use p256::ecdsa::{DerSignature, SigningKey};
use rand::CryptoRng;
use tor_llcrypto::util::rng::RngCompat;
use x509_cert::builder::{Builder as _, CertificateBuilder, Profile};
use x509_cert::der::asn1::GeneralizedTime;
use x509_cert::der::{DateTime, Decode as _, Encode as _};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::{Time, Validity};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(86_400);
/// Validity of the certificate from its first day on. A link key is replaced much earlier.
const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of a serial number.
const SERIAL: usize = 16;

/// The certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkCertError {
    /// aws-lc made no RSA key.
    #[error("no RSA key was made")]
    Key,
    /// The certificate has a part that X.509 cannot express.
    #[error("{0}")]
    Der(#[from] x509_cert::der::Error),
    /// The certificate could not be built.
    #[error("{0}")]
    Build(#[from] x509_cert::builder::Error),
}

/// An RSA-2048 key and a certificate for it.
pub(crate) struct LinkCert {
    /// The certificate, DER.
    pub(crate) certificate: Vec<u8>,
    /// The key, PKCS #8.
    pub(crate) key: Zeroizing<Vec<u8>>,
}

impl LinkCert {
    /// Makes both. `issuer` and `subject` are host names.
    ///
    /// The certificate is signed by a key that is dropped: what vouches for the link key is the certificate
    /// SIGNING_V_TLS_CERT in CERTS.
    pub(crate) fn create(
        now: SystemTime,
        mut rng: &mut dyn CryptoRng,
        issuer: &str,
        subject: &str,
    ) -> Result<Self, LinkCertError> {
        let key = KeyPair::generate(KeySize::Rsa2048).map_err(|_| LinkCertError::Key)?;
        let public: PublicKeyX509Der<'_> =
            (key.public_key().as_der()).map_err(|_| LinkCertError::Key)?;
        let private: Pkcs8V1Der<'_> = key.as_der().map_err(|_| LinkCertError::Key)?;
        let signer = SigningKey::random(&mut RngCompat::new(&mut rng));
        let profile = Profile::Leaf {
            issuer: format!("CN={issuer}").parse()?,
            enable_key_agreement: true,
            enable_key_encipherment: true,
            include_subject_key_identifier: true,
        };
        let mut serial = [0; SERIAL];
        rng.fill_bytes(&mut serial);
        let builder = CertificateBuilder::new(
            profile,
            SerialNumber::new(&serial)?,
            Validity {
                not_before: midnight(now - DAY)?,
                not_after: midnight(now - DAY + LIFETIME)?,
            },
            format!("CN={subject}").parse()?,
            SubjectPublicKeyInfoOwned::from_der(public.as_ref())?,
            &signer,
        )?;
        Ok(Self {
            certificate: builder.build::<DerSignature>()?.to_der()?,
            key: Zeroizing::new(private.as_ref().to_vec()),
        })
    }
}

/// The midnight before, UTC: a certificate does not state when it was made. A clock without a battery starts in 1970, and
/// there is no day before that.
fn midnight(at: SystemTime) -> Result<Time, x509_cert::der::Error> {
    let at = DateTime::from_system_time(at.max(SystemTime::UNIX_EPOCH))?;
    let midnight = DateTime::new(at.year(), at.month(), at.day(), 0, 0, 0)?;
    Ok(Time::GeneralTime(GeneralizedTime::from_date_time(midnight)))
}
