//! `--keygen`: makes the ed25519 keys of a relay whose master identity key is kept elsewhere, or behind a passphrase,
//! and renews its signing key (C tor: `load_ed_keys` for `CMD_KEYGEN`, `loadkey.c`).

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rand::CryptoRng;
use tor_llcrypto::pk::ed25519::ExpandedKeypair;
use zeroize::Zeroizing;

use super::ed;
use super::error::{KeyError, MasterKeyAbsence};
use super::format::{self, Kind};
use super::pwbox::{self, Pwbox, PwboxError};
use super::store::{self, Store};
use super::{KeyConfig, Passphrase};
use crate::file;

/// Where passphrases are from.
pub trait Passphrases {
    /// The passphrase of the key that there is; `None`: there is none, or no other to try.
    fn current(&mut self) -> Option<Passphrase>;

    /// The passphrase of a key that is written; empty: the key is not encrypted. `None`: there is none, and the key must
    /// not be written without.
    fn of_new_key(&mut self) -> Option<Passphrase>;
}

/// Requests of `--keygen` besides a new signing key.
#[derive(Clone, Debug, Default)]
pub struct KeygenRequest {
    /// `--newpass`: the master key is written again, behind another passphrase.
    pub new_passphrase: bool,
    /// `--master-key`: the file of the master key, encrypted or not; its public half is beside it, or made there.
    pub master_key: Option<PathBuf>,
}

/// The files of the master key.
struct MasterFiles {
    secret: PathBuf,
    encrypted: PathBuf,
    public: PathBuf,
}

impl MasterFiles {
    fn new(store: &Store<'_>, explicit: Option<&Path>) -> Self {
        match explicit {
            None => MasterFiles {
                secret: store.path(store::MASTER_SECRET),
                encrypted: store.path(store::MASTER_ENCRYPTED),
                public: store.path(store::MASTER_PUBLIC),
            },
            Some(path) => {
                let mut public = path.as_os_str().to_owned();
                public.push("_public_key");
                MasterFiles {
                    secret: path.to_owned(),
                    encrypted: path.to_owned(),
                    public: public.into(),
                }
            }
        }
    }
}

/// The master key, as it is in its file.
struct Master {
    bytes: Zeroizing<Vec<u8>>,
    key: ExpandedKeypair,
}

impl Master {
    /// The 64 bytes of a key.
    fn new(bytes: &[u8], path: &Path) -> Result<Self, KeyError> {
        let key = format::ed25519_secret(bytes)
            .map_err(|why| KeyError::damaged(path, why.to_string()))?;
        Ok(Master {
            bytes: Zeroizing::new(bytes.to_vec()),
            key,
        })
    }
}

/// Makes a signing key, signed by the master key, which is made, too, where there is none.
///
/// # Errors
///
/// [`KeyError`]; no file was changed.
pub fn keygen(
    cfg: &KeyConfig,
    request: &KeygenRequest,
    passphrases: &mut impl Passphrases,
    now: SystemTime,
    rng: &mut impl CryptoRng,
) -> Result<(), KeyError> {
    cfg.prepare_directories()?;
    ed::finish_interrupted_renewal(&cfg.key_directory)?;
    let mut store = Store::writable(&cfg.key_directory);
    let files = MasterFiles::new(&store, request.master_key.as_deref());
    // A signing key that is damaged is replaced, as in C tor; one that is good bars another identity.
    let held = ed::load_signing(&store);
    let has_signing = held.as_ref().is_ok_and(|held| held.is_valid(now));
    ed::notice_need(&ed::Need {
        why: match has_signing {
            true => "you asked me to make one with --keygen",
            false => held
                .as_ref()
                .map_or("the one on disk is damaged", |held| held.need()),
        },
        can_create: !has_signing,
    });
    let public = store::read(&files.public, format::ed25519_public)?;
    let found = load_master(&files, passphrases)?;
    let mut superseded = None;
    let is_new = found.is_none();
    let master = match found {
        Some(master) => master,
        None => {
            // Weft is more careful than C tor, which makes another identity where the certificate of an old one is out
            // of date.
            let traces = [store::SIGNING_CERT, store::SIGNING_SECRET];
            if public.is_some() || traces.iter().any(|name| store.exists(name)) {
                tracing::warn!(
                    "We needed to load a secret key from {}, but couldn't find it. Did you forget to copy it over when \
                     you copied the rest of the signing key material?",
                    files.secret.display()
                );
                return Err(KeyError::NoMasterKey {
                    need: "--keygen makes one",
                    why: MasterKeyAbsence::Missing,
                });
            }
            let bytes = store::new_ed25519_bytes(rng);
            Master::new(bytes.as_slice(), &files.secret)?
        }
    };
    let identity = ed::public(&master.key);
    match public {
        Some(public) if public != identity => {
            return Err(KeyError::Mismatch {
                path: files.public,
                other: files.secret,
                what: "the public key is not the secret key's. If you are absolutely sure that the secret key is the \
                       right one for this relay, move the public key out of the way",
            });
        }
        Some(_) => {}
        None => {
            if !is_new {
                tracing::info!(
                    notice = true,
                    "Found secret key but not {}. Regenerating.",
                    files.public.display()
                );
            }
            store.write_at(
                &files.public,
                &format::tag(Kind::MASTER_PUBLIC, identity.as_bytes()),
            )?;
        }
    }
    if is_new || request.new_passphrase {
        superseded = write_master(&mut store, &files, &master, passphrases, rng)?;
    }
    ed::new_signing(&mut store, &master.key, cfg.signing_key_lifetime, now, rng)?;
    store.commit()?;
    if let Some(path) = superseded {
        // As in C tor, the key in the clear goes once the encrypted one is there.
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
                return Err(file::FileError::new("remove", &path, why).into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the master key: in the clear, or by its passphrase.
fn load_master(
    files: &MasterFiles,
    passphrases: &mut impl Passphrases,
) -> Result<Option<Master>, KeyError> {
    let is_one_file = files.secret == files.encrypted;
    let plain = store::read(&files.secret, |bytes| {
        // The file that --master-key names may be of either kind.
        if is_one_file && format::untag(Kind::MASTER_ENCRYPTED, bytes).is_ok() {
            return Ok(None);
        }
        format::untag(Kind::MASTER_SECRET, bytes).map(|bytes| Some(Zeroizing::new(bytes.to_vec())))
    })?;
    if let Some(bytes) = plain.flatten() {
        return Master::new(&bytes, &files.secret).map(Some);
    }
    let path = &files.encrypted;
    let Some(sealed) = store::read(path, |bytes| {
        format::untag(Kind::MASTER_ENCRYPTED, bytes).map(<[u8]>::to_vec)
    })?
    else {
        return Ok(None);
    };
    let corrupted = |why: PwboxError| KeyError::damaged(path, why.to_string());
    let sealed = Pwbox::parse(&sealed).map_err(corrupted)?;
    // Until it is right, or there is no other.
    while let Some(passphrase) = passphrases.current() {
        match sealed.open(&passphrase) {
            Ok(bytes) => return Master::new(&bytes, path).map(Some),
            Err(PwboxError::BadSecret) => {}
            Err(why) => return Err(corrupted(why)),
        }
    }
    // C tor's lines for a passphrase that is wrong or missing.
    tracing::warn!("Unable to read {}: Invalid argument", path.display());
    tracing::warn!("Missing identity key");
    Err(KeyError::Passphrase(path.clone()))
}

/// Stages the master key. Returns the file that it supersedes.
fn write_master(
    store: &mut Store<'_>,
    files: &MasterFiles,
    master: &Master,
    passphrases: &mut impl Passphrases,
    rng: &mut impl CryptoRng,
) -> Result<Option<PathBuf>, KeyError> {
    let Some(passphrase) = passphrases.of_new_key() else {
        tracing::warn!("NO/failed passphrase");
        tracing::warn!("Couldn't write keys or cert to file.");
        return Err(KeyError::NoNewPassphrase);
    };
    // C tor takes the passphrase of a new key as a string of C.
    let passphrase = passphrase
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    if passphrase.is_empty() {
        store.write_at(
            &files.secret,
            &format::tag(Kind::MASTER_SECRET, &master.bytes),
        )?;
        return Ok(None);
    }
    let sealed = pwbox::seal(&master.bytes, passphrase, rng)
        .ok_or(KeyError::Crypto("encrypt the master key"))?;
    store.write_at(
        &files.encrypted,
        &format::tag(Kind::MASTER_ENCRYPTED, &sealed),
    )?;
    Ok((files.secret != files.encrypted).then(|| files.secret.clone()))
}

#[cfg(test)]
mod tests;
