//! The relay's identity: its long-term and onion keys, in C tor's own files.
//!
//! `tor` and Weft can take turns on one DataDirectory: file names, formats, lifetimes and the
//! `LastRotatedOnionKey` line of the state file are C tor's (`router.c`, `routerkeys.c`,
//! `loadkey.c`), so the relay keeps its identity and its onion keys. A damaged, foreign or
//! mismatched file is an error that names it and is never overwritten; new files appear all
//! together or not at all.

mod ed;
mod error;
pub mod family;
pub mod format;
mod keygen;
mod onion;
pub mod pwbox;
mod store;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rand::CryptoRng;
use sha1::{Digest as _, Sha1};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};
use tor_llcrypto::pk::rsa::{self, RsaIdentity};

use crate::files::DataFile;
use crate::{dir, file, state};
pub use error::{KeyError, MasterKeyAbsence};
pub use keygen::{KeygenRequest, Passphrases, keygen};
pub use onion::{NtorKeypair, NtorKeys, OnionKeyParams};
pub use store::Files;
use store::Store;
pub(crate) use store::is_file;
use zeroize::Zeroizing;

/// A passphrase: any bytes.
pub type Passphrase = Zeroizing<Vec<u8>>;

/// Where the keys are and how they are renewed: the options of the torrc that matter here.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    /// DataDirectory: the state file, `fingerprint`, `fingerprint-ed25519`.
    pub data_directory: PathBuf,
    /// KeyDirectory; C tor's default is DataDirectory/keys.
    pub key_directory: PathBuf,
    /// DataDirectoryGroupReadable.
    pub data_directory_group_readable: bool,
    /// KeyDirectoryGroupReadable; `None` is "auto".
    pub key_directory_group_readable: Option<bool>,
    /// Nickname, for the fingerprint files.
    pub nickname: String,
    /// BridgeRelay: there is a file with the digest of the fingerprint, by which a bridge may be spoken of.
    pub bridge: bool,
    /// OfflineMasterKey: never look for the master secret key.
    pub offline_master_key: bool,
    /// SigningKeyLifetime.
    pub signing_key_lifetime: Duration,
    /// TestingSigningKeySlop: how long before its end a signing key is renewed.
    pub signing_key_slop: Duration,
}

impl KeyConfig {
    /// C tor's defaults for the DataDirectory `data_directory`.
    pub fn new(data_directory: impl Into<PathBuf>) -> Self {
        let data_directory = data_directory.into();
        Self {
            key_directory: data_directory.join("keys"),
            data_directory,
            data_directory_group_readable: false,
            key_directory_group_readable: None,
            nickname: "Unnamed".to_owned(),
            bridge: false,
            offline_master_key: false,
            signing_key_lifetime: Duration::from_secs(30 * 24 * 60 * 60),
            signing_key_slop: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Makes DataDirectory and KeyDirectory where they are missing, and checks that they are
    /// this user's and private. DataDirectory must be there before its
    /// [lock](crate::lock) can be taken.
    pub fn prepare_directories(&self) -> Result<(), KeyError> {
        for (path, group_readable) in self.directories() {
            dir::check_private(path, true, group_readable)?;
        }
        Ok(())
    }

    /// Both directories, and whether the group may read them.
    fn directories(&self) -> [(&Path, bool); 2] {
        let group = self.data_directory_group_readable;
        let same = self.key_directory == self.data_directory;
        let keys_group = self.key_directory_group_readable;
        [
            (&self.data_directory, group),
            (&self.key_directory, keys_group.unwrap_or(same && group)),
        ]
    }

    /// Checks that the relay was not moved to another machine.
    ///
    /// # Errors
    ///
    /// [`KeyError::Moved`].
    pub fn check_here(&self) -> Result<(), KeyError> {
        let path = self.key_directory.join(MOVED);
        match path.symlink_metadata() {
            Ok(_) => Err(KeyError::Moved(path)),
            Err(_) => Ok(()),
        }
    }

    /// The file of the signing key's certificate.
    pub fn signing_cert_path(&self) -> PathBuf {
        self.key_directory.join(store::SIGNING_CERT)
    }

    /// Options for the renewal of signing keys.
    fn policy(&self) -> ed::Policy {
        ed::Policy {
            offline_master: self.offline_master_key,
            lifetime: self.signing_key_lifetime,
            slop: self.signing_key_slop,
        }
    }
}

/// Until when the signing key in `cfg`'s directory is valid; `None`: there is none.
///
/// # Errors
///
/// Its certificate is damaged, or cannot be read.
pub fn signing_key_expires(cfg: &KeyConfig) -> Result<Option<SystemTime>, KeyError> {
    let cert = store::read(&cfg.signing_cert_path(), format::signing_cert)?;
    Ok(cert.map(|cert| cert.expires))
}

/// A relay's two identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identities {
    /// The RSA identity's digest, which is the fingerprint.
    pub rsa: RsaIdentity,
    /// The ed25519 master identity.
    pub ed25519: Ed25519Identity,
}

impl Identities {
    /// Identities in the key files `files`, which must belong together and be readable. Onion keys
    /// may be missing, and the signing key may have expired: a start makes both again.
    ///
    /// # Errors
    ///
    /// A file is damaged, is of another relay, or an identity is missing; errors name the files as if they were in `directory`.
    pub fn of(files: &Files, directory: &Path) -> Result<Self, KeyError> {
        Self::of_store(&Store::of_files(directory, files))
    }

    fn of_store(store: &Store<'_>) -> Result<Self, KeyError> {
        let rsa = store.read(store::RSA_IDENTITY, format::rsa_key)?;
        let rsa = rsa.ok_or_else(|| KeyError::Missing(store.path(store::RSA_IDENTITY)))?;
        let identities = Identities {
            rsa: rsa.to_public_key().to_rsa_identity(),
            ed25519: ed::identity(store)?,
        };
        store.read(store::TAP, format::rsa_key)?;
        onion::check(store)?;
        Ok(identities)
    }

    /// The fingerprint: 40 upper-case hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.rsa.as_hex_upper()
    }
}

/// State of a relay's key files, read beside the relay.
#[derive(Clone, Copy, Debug)]
pub struct KeysOnDisk {
    /// Both identities.
    pub identities: Identities,
    /// End of the signing key, which may have passed; `None`: there is none.
    pub signing_expires: Option<SystemTime>,
    /// Set if the relay can sign the next signing key itself: the master key is here, without a passphrase, and
    /// OfflineMasterKey does not forbid its use.
    pub has_master_key: bool,
}

impl KeysOnDisk {
    /// Reads and compares the files. Unlike [`RelayKeys::load`] it needs no valid signing key and no onion keys, which a
    /// start makes.
    ///
    /// # Errors
    ///
    /// As [`Identities::of`]; a file cannot be read.
    pub fn read(cfg: &KeyConfig) -> Result<Self, KeyError> {
        let store = Store::read_only(&cfg.key_directory);
        Ok(KeysOnDisk {
            identities: Identities::of_store(&store)?,
            signing_expires: signing_key_expires(cfg)?,
            has_master_key: !cfg.offline_master_key && store.exists(store::MASTER_SECRET),
        })
    }
}

/// The file of the key directory by which [`crate::backup`] says that the relay runs elsewhere now.
pub const MOVED: &str = DataFile::Moved.name();

/// The keys of one relay. The master identity's secret half is read only while it is needed.
pub struct RelayKeys {
    /// RSA-1024 identity: signs descriptors and the RSA→ed25519 cross-certificate.
    pub rsa_identity: rsa::KeyPair,
    /// ed25519 master identity.
    pub ed_identity: Ed25519Identity,
    /// Medium-term signing key. C tor's file holds no seed, so this cannot be a
    /// [`Keypair`](tor_llcrypto::pk::ed25519::Keypair); both implement
    /// [`Ed25519SigningKey`](tor_llcrypto::pk::ed25519::Ed25519SigningKey).
    pub signing: ExpandedKeypair,
    /// The identity's certificate of the signing key (cert-spec 2.1, type 4) with the
    /// signed-with-ed25519-key extension, as descriptors and CERTS cells carry it.
    pub signing_cert: Vec<u8>,
    /// When that certificate runs out.
    pub signing_expires: SystemTime,
    /// ntor onion keys.
    pub ntor: NtorKeys,
    /// The dummy TAP onion key: no one builds circuits with it, but descriptors must have one
    /// unless the consensus has `publish-dummy-tap-key=0`.
    pub tap: rsa::KeyPair,
    /// When the onion keys were last rotated.
    onion_set_at: SystemTime,
    /// Where all this is kept.
    config: KeyConfig,
    /// When the last warning about a certificate that runs out was logged.
    warned_at: Option<SystemTime>,
}

impl std::fmt::Debug for RelayKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayKeys")
            .field("rsa_identity", &self.rsa_id())
            .field("ed_identity", &self.ed_identity)
            .field("signing_expires", &self.signing_expires)
            .field("ntor", &self.ntor)
            .finish_non_exhaustive()
    }
}

/// Result of [`RelayKeys::rotate_if_due`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Nothing was due.
    None,
    /// The previous onion key's grace period is over; the threads must forget it.
    PreviousExpired,
    /// There is a new onion key: the threads and the descriptor must have it.
    Rotated,
}

impl RelayKeys {
    /// Loads the relay's keys and makes those that it does not have yet, on a first start all of
    /// them; renews the signing key if it is running out; writes the fingerprint files.
    ///
    /// The caller holds the DataDirectory's [lock](crate::lock). On an error no key file
    /// was changed.
    pub fn load_or_create(
        cfg: &KeyConfig,
        now: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, KeyError> {
        cfg.prepare_directories()?;
        cfg.check_here()?;
        ed::finish_interrupted_renewal(&cfg.key_directory)?;
        let mut store = Store::writable(&cfg.key_directory);
        let mut keys = Self::load_from(&mut store, cfg, now, rng)?;
        store.commit()?;
        keys.write_fingerprints()?;
        let last = state::load(&cfg.data_directory)?.get_time(onion::LAST_ROTATED);
        match onion::set_at(last, now) {
            Some(then) => keys.onion_set_at = then,
            None => keys.set_onion_time(now)?,
        }
        Ok(keys)
    }

    /// Loads the relay's keys without changing anything, for which no lock is needed: what
    /// `--list-fingerprint` wants beside a running relay. A missing key is
    /// [`KeyError::Missing`].
    pub fn load(
        cfg: &KeyConfig,
        now: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, KeyError> {
        for (path, group_readable) in cfg.directories() {
            dir::could_be_private(path, group_readable)?;
        }
        let mut keys = Self::load_from(&mut Store::read_only(&cfg.key_directory), cfg, now, rng)?;
        let last = state::load(&cfg.data_directory)?.get_time(onion::LAST_ROTATED);
        keys.onion_set_at = onion::set_at(last, now).unwrap_or(now);
        Ok(keys)
    }

    /// Every key through one store.
    fn load_from(
        store: &mut Store<'_>,
        cfg: &KeyConfig,
        now: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, KeyError> {
        let rsa_identity = store.rsa_key(store::RSA_IDENTITY, rng)?;
        let ed = ed::load(store, cfg.policy(), now, rng)?;
        let tap = store.rsa_key(store::TAP, rng)?;
        let ntor = onion::load_ntor(store, rng)?;
        let mut keys = Self {
            rsa_identity,
            ed_identity: ed.identity,
            signing: ed.signing,
            signing_cert: ed.cert.encoded,
            signing_expires: ed.cert.expires,
            ntor,
            tap,
            onion_set_at: now,
            config: cfg.clone(),
            warned_at: None,
        };
        keys.warn_if_stuck(ed.stuck, now);
        Ok(keys)
    }

    /// Follows other options from now on (SIGHUP). Directories cannot change while a node runs.
    pub fn set_config(&mut self, config: KeyConfig) {
        self.config = config;
    }

    /// The RSA identity's digest.
    pub fn rsa_id(&self) -> RsaIdentity {
        self.rsa_identity.to_public_key().to_rsa_identity()
    }

    /// The relay's fingerprint: 40 upper-case hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.rsa_id().as_hex_upper()
    }

    /// The digest of the fingerprint's bytes, by which services speak of a bridge without naming it.
    pub fn hashed_fingerprint(&self) -> String {
        hex::encode_upper(Sha1::digest(self.rsa_id().as_bytes()))
    }

    /// The fingerprint in ten groups of four digits, as `--list-fingerprint` prints it.
    pub fn fingerprint_spaced(&self) -> String {
        let digits: Vec<char> = self.fingerprint().chars().collect();
        let groups: Vec<String> = digits.chunks(4).map(|g| g.iter().collect()).collect();
        groups.join(" ")
    }

    /// The ed25519 identity in base64 without padding, as `--list-fingerprint ed25519` prints it.
    pub fn ed25519_fingerprint(&self) -> String {
        self.ed_identity.to_string()
    }

    /// Writes `fingerprint` and `fingerprint-ed25519` where their content differs.
    fn write_fingerprints(&self) -> Result<(), KeyError> {
        let hashed = self.config.bridge.then(|| self.hashed_fingerprint());
        let own = [
            (
                DataFile::Fingerprint.name(),
                "server's identity key",
                self.fingerprint(),
            ),
            (
                DataFile::FingerprintEd25519.name(),
                "server's identity key ed25519",
                self.ed25519_fingerprint(),
            ),
        ];
        let hashed = hashed.map(|print| {
            let kind = "Tor bridge's hashed identity key";
            (DataFile::HashedFingerprint.name(), kind, print)
        });
        for (name, kind, print) in own.into_iter().chain(hashed) {
            let nickname = &self.config.nickname;
            tracing::info!(
                notice = true,
                "Your {kind} fingerprint is '{nickname} {print}'"
            );
            let path = self.config.data_directory.join(name);
            let line = format!("{nickname} {print}\n");
            let on_disk = file::read(&path, format::MAX_LEN)?;
            if on_disk.is_none_or(|old| old.as_slice() != line.as_bytes()) {
                file::replace(&path, line.as_bytes())?;
            }
        }
        Ok(())
    }

    /// When the onion keys were last rotated.
    pub fn onion_key_set_at(&self) -> SystemTime {
        self.onion_set_at
    }

    /// Notes here and on disk when the onion keys were set. On an error it is noted here.
    fn set_onion_time(&mut self, when: SystemTime) -> Result<(), KeyError> {
        self.onion_set_at = when;
        state::update(&self.config.data_directory, when, |s| {
            s.set_time(onion::LAST_ROTATED, when);
        })?;
        Ok(())
    }

    /// Does so for keys that are in use, or on disk, by now: an error would hide from the caller that they are.
    fn note_onion_time(&mut self, when: SystemTime) {
        if let Err(error) = self.set_onion_time(when) {
            tracing::warn!(
                "Could not save when the onion keys were set; after a restart they are rotated too early: {error}"
            );
        }
    }

    /// Rotates the onion keys when their lifetime is over, and forgets the previous ones when
    /// their grace period is. To be called once an hour (C tor's
    /// `ONION_KEY_CONSENSUS_CHECK_INTERVAL`). On an error the keys held before stay in use.
    pub fn rotate_if_due(
        &mut self,
        now: SystemTime,
        params: OnionKeyParams,
        rng: &mut impl CryptoRng,
    ) -> Result<Rotation, KeyError> {
        // A clock that was set back must not keep a key in use for years.
        if self.onion_set_at > now {
            self.note_onion_time(now);
        }
        let age = now.duration_since(self.onion_set_at).unwrap_or_default();
        if age >= params.lifetime {
            let (ntor, tap) = onion::rotate(&self.config.key_directory, rng)?;
            let previous = std::mem::replace(&mut self.ntor.current, ntor);
            self.ntor.previous = Some(previous);
            self.tap = tap;
            tracing::info!("Rotated onion keys.");
            self.note_onion_time(now);
            return Ok(Rotation::Rotated);
        }
        if age >= params.grace {
            let on_disk = onion::forget_previous(&self.config.key_directory)?;
            let held = self.ntor.previous.take().is_some();
            if on_disk || held {
                tracing::info!("Expired old onion keys.");
                return Ok(Rotation::PreviousExpired);
            }
        }
        Ok(Rotation::None)
    }

    /// Renews the signing key when it is running out, or takes over the one that the operator
    /// put on disk by then. Returns whether it changed: certificates made with it must be made
    /// anew. To be called every 30 seconds, as C tor does.
    ///
    /// On an error the keys held before stay in use; they are of no use past
    /// [`RelayKeys::signing_expires`].
    pub fn renew_signing_if_due(
        &mut self,
        now: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<bool, KeyError> {
        let soon = now.checked_add(self.config.signing_key_slop);
        if soon.is_some_and(|soon| self.signing_expires >= soon) {
            return Ok(false);
        }
        self.reload_signing(now, rng)
    }

    /// Reads the ed25519 keys from disk again (SIGHUP) and renews the signing key if it is
    /// running out. Returns whether it changed. On an error the keys held before stay in use.
    pub fn reload_signing(
        &mut self,
        now: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<bool, KeyError> {
        let dir = self.config.key_directory.clone();
        ed::finish_interrupted_renewal(&dir)?;
        let mut store = Store::writable(&dir);
        let ed = ed::load(&mut store, self.config.policy(), now, rng)?;
        if ed.identity != self.ed_identity {
            return Err(KeyError::damaged(
                &store.path(store::MASTER_PUBLIC),
                "the identity key on disk is not the one that this relay was started with",
            ));
        }
        store.commit()?;
        self.warn_if_stuck(ed.stuck, now);
        if ed.cert.encoded == self.signing_cert {
            return Ok(false);
        }
        self.signing = ed.signing;
        self.signing_cert = ed.cert.encoded;
        self.signing_expires = ed.cert.expires;
        Ok(true)
    }

    /// Logs, at most once an hour, that the operator must provide a new signing key.
    fn warn_if_stuck(&mut self, stuck: Option<MasterKeyAbsence>, now: SystemTime) {
        /// C tor's rate limit of this warning.
        const INTERVAL: Duration = Duration::from_secs(3600);
        let Some(why) = stuck else {
            return;
        };
        let lately = |t| now.duration_since(t).is_ok_and(|d| d < INTERVAL);
        if self.warned_at.is_some_and(lately) {
            return;
        }
        self.warned_at = Some(now);
        let left = self
            .signing_expires
            .duration_since(now)
            .unwrap_or_default()
            .as_secs()
            / 3600;
        tracing::warn!(
            "Signing key will expire soon, but I can't load the master key to sign a new one! Its certificate ({}) \
             expires in {left} hours: {why}. Run 'weft --keygen' where the master key is and copy \
             ed25519_signing_secret_key and ed25519_signing_cert from there.",
            self.config
                .key_directory
                .join(store::SIGNING_CERT)
                .display()
        );
    }
}

#[cfg(test)]
mod tests;
