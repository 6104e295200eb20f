//! The key files of one relay: their names, and reading and staging them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::CryptoRng;
use tor_llcrypto::pk::rsa;
use zeroize::Zeroizing;

use super::error::KeyError;
use super::format::{self, FormatError, Kind};
use crate::file::{self, FileError, Staged};
use crate::files::DataFile;

/// RSA-1024 identity.
pub(super) const RSA_IDENTITY: &str = DataFile::RsaIdentity.name();
/// ed25519 master identity, secret half.
pub(super) const MASTER_SECRET: &str = DataFile::MasterSecret.name();
/// ed25519 master identity, secret half behind a passphrase: only `--keygen` makes and opens it.
pub(super) const MASTER_ENCRYPTED: &str = DataFile::MasterEncrypted.name();
/// ed25519 master identity, public half.
pub(super) const MASTER_PUBLIC: &str = DataFile::MasterPublic.name();
/// Medium-term signing key.
pub(super) const SIGNING_SECRET: &str = DataFile::SigningSecret.name();
/// The master identity's certificate of it.
pub(super) const SIGNING_CERT: &str = DataFile::SigningCert.name();
/// ntor onion key, and the one before it.
pub(super) const NTOR: &str = DataFile::Ntor.name();
/// The previous ntor onion key, in its grace period.
pub(super) const NTOR_OLD: &str = DataFile::NtorOld.name();
/// TAP onion key, which only descriptors need any more.
pub(super) const TAP: &str = DataFile::Tap.name();
/// The previous TAP onion key.
pub(super) const TAP_OLD: &str = DataFile::TapOld.name();

/// True if C tor and Weft keep a key of a relay in a file of this name.
pub(crate) fn is_file(name: &str) -> bool {
    [
        RSA_IDENTITY,
        MASTER_SECRET,
        MASTER_ENCRYPTED,
        MASTER_PUBLIC,
        SIGNING_SECRET,
        SIGNING_CERT,
        NTOR,
        NTOR_OLD,
        TAP,
        TAP_OLD,
    ]
    .contains(&name)
}

/// Files by their names in the key directory.
pub type Files = BTreeMap<String, Zeroizing<Vec<u8>>>;

/// One key directory being read, and new files for it.
pub(super) struct Store<'a> {
    /// KeyDirectory.
    dir: &'a Path,
    /// Files that are read instead of the directory's.
    files: Option<&'a Files>,
    /// Files to be written at the end, all or none; `None` where nothing may be written.
    staged: Option<Staged>,
}

impl<'a> Store<'a> {
    /// May make missing files.
    pub(super) fn writable(dir: &'a Path) -> Self {
        Self {
            dir,
            files: None,
            staged: Some(Staged::default()),
        }
    }

    /// Only reads.
    pub(super) fn read_only(dir: &'a Path) -> Self {
        Self {
            dir,
            files: None,
            staged: None,
        }
    }

    /// Only reads, and reads these files: those of `dir` as they were elsewhere.
    pub(super) fn of_files(dir: &'a Path, files: &'a Files) -> Self {
        Self {
            dir,
            files: Some(files),
            staged: None,
        }
    }

    /// True if missing files may be created.
    pub(super) fn can_write(&self) -> bool {
        self.staged.is_some()
    }

    /// Full name of a file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// True if anything of that name exists.
    pub(super) fn exists(&self, name: &str) -> bool {
        match self.files {
            Some(files) => files.contains_key(name),
            None => self.path(name).symlink_metadata().is_ok(),
        }
    }

    /// Checks for a folder of that name.
    pub(super) fn is_folder(&self, name: &str) -> bool {
        self.files.is_none() && self.path(name).is_dir()
    }

    /// Reads and decodes a file; `None` where there is none. An onion key that is empty is none, as in C tor: a disk was full
    /// when it was written, and a new one costs nothing that lasts, unlike an identity.
    pub(super) fn read<T>(
        &self,
        name: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<Option<T>, KeyError> {
        let path = self.path(name);
        let may_be_empty = matches!(name, NTOR | TAP);
        if let Some(files) = self.files {
            let is_none = |bytes: &[u8]| bytes.is_empty() && may_be_empty;
            let bytes = files.get(name).filter(|bytes| !is_none(bytes));
            let decoded = bytes.map(|bytes| decode(bytes)).transpose();
            return decoded.map_err(|error| KeyError::damaged(&path, error.to_string()));
        }
        let is_empty = || {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.len() == 0)
        };
        if may_be_empty && is_empty() {
            return Ok(None);
        }
        read(&path, decode)
    }

    /// Keeps new contents for [`Store::commit`].
    pub(super) fn write(&mut self, name: &str, contents: &[u8]) -> Result<(), KeyError> {
        self.write_at(&self.path(name), contents)
    }

    /// Keeps new contents of a file that may be elsewhere for [`Store::commit`].
    pub(super) fn write_at(&mut self, path: &Path, contents: &[u8]) -> Result<(), KeyError> {
        match &mut self.staged {
            Some(staged) => Ok(staged.add(path, contents)?),
            None => Err(KeyError::Missing(path.to_owned())),
        }
    }

    /// Writes what was kept. Nothing was changed on disk before.
    pub(super) fn commit(self) -> Result<(), KeyError> {
        match self.staged {
            Some(staged) if !staged.is_empty() => Ok(staged.commit()?),
            _ => Ok(()),
        }
    }

    /// An RSA key, made where there is none.
    pub(super) fn rsa_key(
        &mut self,
        name: &str,
        rng: &mut impl CryptoRng,
    ) -> Result<rsa::KeyPair, KeyError> {
        if let Some(key) = self.read(name, format::rsa_key)? {
            return Ok(key);
        }
        if !self.can_write() {
            return Err(KeyError::Missing(self.path(name)));
        }
        let (key, pem) = new_rsa_key(rng)?;
        tracing::info!(
            "No key found in {}; generating fresh key.",
            self.path(name).display()
        );
        self.write(name, pem.as_bytes())?;
        Ok(key)
    }
}

/// Reads and decodes the file at `path`; `None` where there is none.
pub(super) fn read<T>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
) -> Result<Option<T>, KeyError> {
    let bytes = match file::read(path, format::MAX_LEN) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(FileError { source, .. }) if source.kind() == std::io::ErrorKind::InvalidData => {
            return Err(KeyError::damaged(path, source.to_string()));
        }
        Err(e) => return Err(e.into()),
    };
    match decode(&bytes) {
        Ok(key) => Ok(Some(key)),
        Err(e) => Err(KeyError::damaged(path, e.to_string())),
    }
}

/// A fresh RSA-1024 key and its file.
pub(super) fn new_rsa_key(
    rng: &mut impl CryptoRng,
) -> Result<(rsa::KeyPair, Zeroizing<String>), KeyError> {
    let key = rsa::KeyPair::generate(rng).map_err(|_| KeyError::Crypto("make an RSA key"))?;
    let pem = format::rsa_pem(&key).ok_or(KeyError::Crypto("write an RSA key"))?;
    Ok((key, pem))
}

/// A fresh ed25519 secret key's file, for the tagged file of this kind.
pub(super) fn new_ed25519_file(kind: Kind, rng: &mut impl CryptoRng) -> Zeroizing<Vec<u8>> {
    format::tag(kind, new_ed25519_bytes(rng).as_slice())
}

/// A fresh ed25519 secret key, as its file has it after the header.
pub(super) fn new_ed25519_bytes(rng: &mut impl CryptoRng) -> Zeroizing<[u8; 64]> {
    let mut seed = Zeroizing::new([0; 32]);
    rng.fill_bytes(seed.as_mut_slice());
    format::expand_ed25519_seed(&seed)
}
