//! An authority's keys and certificate, in the files of C tor's `tor-gencert` (dir-spec 3.1).
//!
//! `authority_identity_key` certifies the signing key and is needed for nothing else; here it is
//! not encrypted, as it is worth nothing outside of its private network (tor-gencert reads it all
//! the same). `authority_signing_key` signs consensuses, `authority_certificate` certifies it.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::Rng;
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPrivateKey as _, LineEnding};
use rsa::pkcs8::EncodePrivateKey as _;
use rsa::rand_core as old_rand;
use tor_checkable::{SelfSigned as _, TimeBound as _};
use tor_llcrypto::pk::rsa::{KeyPair, RsaIdentity};
use tor_netdoc::doc::authcert::AuthCert;
use weft_datadir::file::{self, Access, FileError, Staged};
use weft_datadir::files::DataFile;

/// The file of the identity key.
const IDENTITY_KEY: &str = DataFile::AuthorityIdentity.name();
/// The file of the signing key.
const SIGNING_KEY: &str = DataFile::AuthoritySigning.name();
/// The file of the certificate.
const CERTIFICATE: &str = DataFile::AuthorityCertificate.name();

/// Lifetime of the signing key (tor-gencert: 12 months).
const LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates begin a little early, for nodes whose clocks are a little behind.
const EARLY: Duration = Duration::from_secs(60);
/// Bits of both keys: the least that tor-gencert makes.
const BITS: usize = 2048;
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityKeyError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file holds something else.
    #[error("{} is not what it should be: {problem}; make the authority's keys anew with tor-gencert", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// Making keys failed.
    #[error("cannot make an authority's keys: {0}")]
    Making(String),
}

/// Signing key, identity and certificate of an authority.
pub struct AuthorityKeys {
    /// Signs consensuses.
    signing: KeyPair,
    /// The authority's identity, `v3ident`.
    identity: RsaIdentity,
    /// The certificate, as it is served.
    certificate: Arc<str>,
}

impl std::fmt::Debug for AuthorityKeys {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityKeys")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl AuthorityKeys {
    /// Makes keys and a certificate for an authority that answers at `dir_address`, and writes all
    /// three files into `folder`, which is made if need be. Returns the authority's `v3ident`.
    ///
    /// # Errors
    /// [`AuthorityKeyError`]; also where there is such a file already.
    pub fn create(
        folder: &Path,
        dir_address: SocketAddr,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Result<RsaIdentity, AuthorityKeyError> {
        let making = |error: &dyn std::fmt::Display| AuthorityKeyError::Making(error.to_string());
        let mut key = || {
            rsa::RsaPrivateKey::new(&mut OldRng(&mut *rng), BITS)
                .map(KeyPair::from)
                .map_err(|error| making(&error))
        };
        let (identity, signing) = (key()?, key()?);
        let certificate = certificate(&identity, &signing, dir_address, now)?;
        let pem = identity
            .as_key()
            .to_pkcs8_pem(LineEnding::LF)
            .map_err(|error| making(&error))?;
        let signing_pem = signing
            .as_key()
            .to_pkcs1_pem(LineEnding::LF)
            .map_err(|error| making(&error))?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| file_error("create", folder, source))?;
        let files = [
            (IDENTITY_KEY, 0o400, pem.as_str()),
            (SIGNING_KEY, 0o600, signing_pem.as_str()),
            (CERTIFICATE, 0o644, certificate.as_str()),
        ];
        let mut staged = Staged::default();
        for (name, mode, text) in files {
            let path = folder.join(name);
            if std::fs::symlink_metadata(&path).is_ok() {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                return Err(file_error("write", &path, exists));
            }
            let fill = |mut file: &File| file.write_all(text.as_bytes());
            staged.add_with(&path, Access::mode(mode), fill)?;
        }
        staged.commit()?;
        Ok(identity.to_public_key().to_rsa_identity())
    }

    /// Reads signing key and certificate from `folder`.
    ///
    /// # Errors
    /// [`AuthorityKeyError`]; also where the certificate is not of that key or not valid at `now`.
    pub fn load(folder: &Path, now: SystemTime) -> Result<Self, AuthorityKeyError> {
        let [key_path, path] = [SIGNING_KEY, CERTIFICATE].map(|file| folder.join(file));
        let wrong = |path: &Path, problem: &dyn std::fmt::Display| AuthorityKeyError::Contents {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let signing = rsa::RsaPrivateKey::from_pkcs1_pem(&read(&key_path)?)
            .map(KeyPair::from)
            .map_err(|error| wrong(&key_path, &error))?;
        Self::new(signing, read(&path)?, now).map_err(|problem| wrong(&path, &problem))
    }

    /// These keys, if `certificate` is of `signing` and valid at `now`; otherwise why not.
    ///
    /// # Errors
    /// What is wrong with the certificate.
    pub fn new(signing: KeyPair, certificate: String, now: SystemTime) -> Result<Self, String> {
        let parsed = AuthCert::parse(&certificate)
            .map_err(|error| error.to_string())?
            .check_signature()
            .map_err(|error| error.to_string())?
            .if_valid_at(&now)
            .map_err(|error| error.to_string())?;
        if parsed.signing_key().to_der() != signing.to_public_key().to_der() {
            return Err("it certifies another signing key than ours".into());
        }
        Ok(Self {
            signing,
            identity: *parsed.id_fingerprint(),
            certificate: certificate.into(),
        })
    }

    /// The authority's identity, `v3ident`.
    #[must_use]
    pub fn identity(&self) -> RsaIdentity {
        self.identity
    }

    /// The digest of the signing key.
    #[must_use]
    pub(crate) fn signing_id(&self) -> RsaIdentity {
        self.signing.to_public_key().to_rsa_identity()
    }

    /// The certificate as a document.
    pub(crate) fn certificate(&self) -> &Arc<str> {
        &self.certificate
    }

    /// Signs a digest; `None` where the library fails, which it does not for keys that it read.
    pub(crate) fn sign(&self, digest: &[u8]) -> Option<Vec<u8>> {
        self.signing.sign(digest).ok()
    }
}

/// A certificate of `signing` by `identity`.
fn certificate(
    identity: &KeyPair,
    signing: &KeyPair,
    dir_address: SocketAddr,
    now: SystemTime,
) -> Result<String, AuthorityKeyError> {
    let making = |error: &dyn std::fmt::Display| AuthorityKeyError::Making(error.to_string());
    let base = AuthCert::new_base(identity, signing, now - EARLY, now + LIFETIME)
        .map_err(|error| making(&error))?;
    // Certificates have IPv4 addresses only (`dir-address`).
    let dir_address = match dir_address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    };
    let cert = AuthCert {
        dir_address,
        ..base
    };
    let encoded = cert.encode_sign(identity).map_err(|error| making(&error))?;
    Ok(encoded.as_ref().to_string())
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> AuthorityKeyError {
    FileError::new(action, path, source).into()
}

fn read(path: &Path) -> Result<String, AuthorityKeyError> {
    let bytes = file::required(path, MAX_FILE)?;
    String::from_utf8(bytes).map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is no text");
        file_error("read", path, source)
    })
}

/// Randomness for the rsa crate, which asks by an older trait.
struct OldRng<'a, R>(&'a mut R);

impl<R: Rng> old_rand::RngCore for OldRng<'_, R> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill_bytes(dest);
    }

    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), old_rand::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

impl<R: Rng> old_rand::CryptoRng for OldRng<'_, R> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::now;
    use rand_chacha::ChaCha12Rng;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn keys_are_read_as_they_were_written_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let address = "127.0.0.1:7000".parse().unwrap();
        let id = AuthorityKeys::create(&keys, address, now(), &mut rng).unwrap();
        let loaded = AuthorityKeys::load(&keys, now()).unwrap();
        assert_eq!(loaded.identity(), id);
        assert!(
            loaded
                .certificate()
                .contains("\ndir-address 127.0.0.1:7000\n")
        );
        let again = AuthorityKeys::create(&keys, address, now(), &mut rng);
        assert!(
            matches!(again, Err(AuthorityKeyError::File { .. })),
            "{again:?}"
        );
        let late = AuthorityKeys::load(&keys, now() + 2 * LIFETIME);
        assert!(
            matches!(late, Err(AuthorityKeyError::Contents { .. })),
            "{late:?}"
        );
        std::fs::write(keys.join(CERTIFICATE), "nonsense").unwrap();
        let error = AuthorityKeys::load(&keys, now()).unwrap_err().to_string();
        assert!(error.contains("authority_certificate is not"), "{error}");
    }
}
