//! Keys of families (proposal 321): relays whose operator gives them the same key are one family.
//!
//! C tor's files (`load_family_id_keys`): `NAME.secret_family_key` in FamilyKeyDirectory, made by
//! `--keygen-family NAME`, which also writes the public half, the family's identity, to
//! `NAME.public_family_id`.

use std::fs;
use std::path::{Path, PathBuf};

use rand::CryptoRng;
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};
use zeroize::Zeroizing;

use super::format::{self, FormatError, Kind};
use super::store;
use crate::file::{self, FileError, Staged};

/// Suffix of a secret key's file.
const SECRET: &str = ".secret_family_key";
/// Suffix of the file with a family's identity.
const PUBLIC: &str = ".public_family_id";

/// The keys of the families that a relay is in, or why they cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// The system refused to read or write.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file has something else than its name promises.
    #[error("{} is not a family key: {what}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// Problem with its content.
        what: String,
    },
    /// FamilyId names a family whose key is not there.
    #[error("No key was found for listed FamilyID {id}: copy its {SECRET} file to {}", directory.display())]
    Missing {
        /// The family.
        id: Ed25519Identity,
        /// FamilyKeyDirectory.
        directory: PathBuf,
    },
    /// A new key would replace another.
    #[error("{} exists already; choose another name, or move it away", .0.display())]
    Exists(PathBuf),
}

/// Reads the keys of `directory`, in the order of their files' names: those of the families `expected`, each of which
/// must be there, or all (`FamilyId *`).
///
/// # Errors
///
/// [`FamilyError`].
pub fn load(
    directory: &Path,
    expected: &[Ed25519Identity],
    all: bool,
) -> Result<Vec<ExpandedKeypair>, FamilyError> {
    let mut keys = Vec::new();
    for path in secret_files(directory)? {
        let no_key = |what: String| FamilyError::NoKey {
            path: path.clone(),
            what,
        };
        let bytes = file::read(&path, format::MAX_LEN)?;
        let bytes = bytes.ok_or_else(|| no_key("it was removed".into()))?;
        let key = secret(&bytes).map_err(|error| no_key(error.to_string()))?;
        let id = identity(&key);
        if all || expected.contains(&id) {
            keys.push(key);
        } else {
            let path = path.display();
            tracing::warn!("Found secret family key in {path} with unexpected FamilyID {id}");
        }
    }
    let known: Vec<Ed25519Identity> = keys.iter().map(identity).collect();
    match expected.iter().find(|id| !known.contains(id)) {
        Some(id) => Err(FamilyError::Missing {
            id: *id,
            directory: directory.to_owned(),
        }),
        None => Ok(keys),
    }
}

/// True if a file of this name belongs to a family's key.
pub(crate) fn is_file(name: &str) -> bool {
    name.ends_with(SECRET) || name.ends_with(PUBLIC)
}

/// The files of `directory` that are called family keys, by name.
fn secret_files(directory: &Path) -> Result<Vec<PathBuf>, FamilyError> {
    let failed = |source| FileError::new("list", directory, source);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().ends_with(SECRET) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// The key of a file.
pub fn secret(bytes: &[u8]) -> Result<ExpandedKeypair, FormatError> {
    format::ed25519_key(Kind::FAMILY_SECRET, bytes)
}

/// The identity of a key's family.
pub fn identity(key: &ExpandedKeypair) -> Ed25519Identity {
    Ed25519Identity::from(*key.public())
}

/// A file that [`create`] has written, and the family's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFamily {
    /// The secret key's file.
    pub path: PathBuf,
    /// Identity of the family, as FamilyId names it.
    pub id: Ed25519Identity,
}

/// Makes the key of a new family, in `BASE.secret_family_key` and `BASE.public_family_id`. Other than C tor, it never
/// replaces a key.
///
/// # Errors
///
/// [`FamilyError`].
pub fn create(base: &Path, rng: &mut impl CryptoRng) -> Result<NewFamily, FamilyError> {
    let key = FamilyKey::generate(rng)?;
    let mut staged = Staged::default();
    let path = key.stage(base, &mut staged)?;
    staged.commit()?;
    Ok(NewFamily { path, id: key.id })
}

/// The key of a family, to be given to relays.
pub struct FamilyKey {
    bytes: Zeroizing<Vec<u8>>,
    /// Identity of the family, as FamilyId names it.
    pub id: Ed25519Identity,
}

impl std::fmt::Debug for FamilyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FamilyKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl FamilyKey {
    /// That of a new family.
    ///
    /// # Errors
    ///
    /// [`FamilyError`], never in practice.
    pub fn generate(rng: &mut impl CryptoRng) -> Result<Self, FamilyError> {
        let bytes = store::new_ed25519_file(Kind::FAMILY_SECRET, rng);
        Self::of(bytes, Path::new("a new key"))
    }

    /// That of a file.
    ///
    /// # Errors
    ///
    /// [`FamilyError`].
    pub fn read(path: &Path) -> Result<Self, FamilyError> {
        match file::read(path, format::MAX_LEN)? {
            Some(bytes) => Self::of(bytes, path),
            None => Err(FamilyError::NoKey {
                path: path.to_owned(),
                what: "there is no such file".into(),
            }),
        }
    }

    /// That of these bytes of a file.
    fn of(bytes: Zeroizing<Vec<u8>>, path: &Path) -> Result<Self, FamilyError> {
        let key = secret(&bytes).map_err(|error| FamilyError::NoKey {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        let id = identity(&key);
        Ok(Self { bytes, id })
    }

    /// The file in `directory` that has this key, under whatever name.
    ///
    /// # Errors
    ///
    /// [`FamilyError`].
    pub fn find_in(&self, directory: &Path) -> Result<Option<PathBuf>, FamilyError> {
        for path in secret_files(directory)? {
            // What is no key is for the relay to complain of.
            if Self::read(&path).is_ok_and(|other| other.id == self.id) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Adds `BASE.secret_family_key` and `BASE.public_family_id` to the files that are to be written. Returns the first.
    ///
    /// # Errors
    ///
    /// [`FamilyError`]: one of them exists, for example.
    pub fn stage(&self, base: &Path, staged: &mut Staged) -> Result<PathBuf, FamilyError> {
        let [path, public] = files(base);
        for path in [&path, &public] {
            if path.symlink_metadata().is_ok() {
                return Err(FamilyError::Exists(path.clone()));
            }
        }
        staged.add(&path, &self.bytes)?;
        staged.add(&public, format!("{}\n", self.id).as_bytes())?;
        Ok(path)
    }
}

/// The files of a family's key: the secret one, and its identity.
#[must_use]
pub fn files(base: &Path) -> [PathBuf; 2] {
    [SECRET, PUBLIC].map(|suffix| {
        let mut name = base.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    fn rng(seed: u64) -> ChaCha12Rng {
        ChaCha12Rng::seed_from_u64(seed)
    }

    #[test]
    fn a_new_family_is_read_by_relays_that_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = [(1, "a"), (2, "b")]
            .map(|(seed, name)| create(&folder.path().join(name), &mut rng(seed)).unwrap());
        assert_ne!(a.id, b.id);
        let public = std::fs::read_to_string(folder.path().join("a.public_family_id")).unwrap();
        assert_eq!(public, format!("{}\n", a.id));
        let bytes = std::fs::read(&a.path).unwrap();
        assert_eq!(&bytes[..32], b"== ed25519v1-secret: fmly-id ==\0");
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&a.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let ids = |expected: &[Ed25519Identity], all| {
            let keys = load(folder.path(), expected, all).unwrap();
            keys.iter().map(identity).collect::<Vec<_>>()
        };
        assert_eq!(ids(&[b.id], false), [b.id], "the other one is not expected");
        assert_eq!(ids(&[b.id, a.id], false), [a.id, b.id]);
        assert_eq!(ids(&[], true), [a.id, b.id]);
        assert_eq!(ids(&[b.id], true), [a.id, b.id]);
    }

    #[test]
    fn a_family_without_its_key_and_a_file_that_is_no_key_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let made = create(&folder.path().join("x"), &mut rng(1)).unwrap();
        let other = Ed25519Identity::new([7; 32]);
        let why = |expected: &[Ed25519Identity]| {
            let loaded = load(folder.path(), expected, false);
            loaded
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert!(why(&[made.id, other]).contains(&format!("listed FamilyID {other}")));
        let nowhere = load(&folder.path().join("none"), &[], true);
        assert!(matches!(nowhere, Err(FamilyError::File(_))));
        // The key of a relay's identity is none of a family.
        let wrong = store::new_ed25519_file(Kind::MASTER_SECRET, &mut rng(2));
        std::fs::write(folder.path().join("y.secret_family_key"), &wrong).unwrap();
        assert!(why(&[made.id]).contains("type0"), "{}", why(&[made.id]));
        for bad in [&b""[..], b"nonsense", &[0; 96], &[0; 100_000]] {
            std::fs::write(folder.path().join("y.secret_family_key"), bad).unwrap();
            assert_ne!(why(&[made.id]), "", "{} bytes", bad.len());
        }
    }

    #[test]
    fn a_key_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("x");
        let made = create(&base, &mut rng(1)).unwrap();
        let before = std::fs::read(&made.path).unwrap();
        assert!(matches!(
            create(&base, &mut rng(2)),
            Err(FamilyError::Exists(_))
        ));
        assert_eq!(std::fs::read(&made.path).unwrap(), before);
        std::fs::remove_file(&made.path).unwrap();
        assert!(matches!(
            create(&base, &mut rng(2)),
            Err(FamilyError::Exists(_))
        ));
        let nowhere = create(&folder.path().join("none/x"), &mut rng(2));
        assert!(matches!(nowhere, Err(FamilyError::File(_))));
    }
}
