//! Why the relay's keys cannot be used.

use std::path::{Path, PathBuf};

use crate::dir::DirError;
use crate::file::FileError;
use crate::state::StateError;

/// The keys cannot be loaded, made or written. Nothing on disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A directory is not ours, not private or not there.
    #[error(transparent)]
    Directory(#[from] DirError),
    /// The system refused to read or write a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state file cannot be used.
    #[error("state file: {0}")]
    State(#[from] StateError),
    /// A file's content does not fit its name.
    #[error(
        "{} is damaged or not a key of this relay: {what}. It was left as it is. Restore it from \
         a backup; or, if you have none, move it away to have a new one made", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Problem with its content.
        what: String,
    },
    /// Two files do not belong together.
    #[error(
        "{} does not match {}: {what}. Both were left as they are. If you are restoring from a \
         backup, make sure that you did not mix up the key files of two relays",
        path.display(), other.display()
    )]
    Mismatch {
        /// A file.
        path: PathBuf,
        /// The one it contradicts.
        other: PathBuf,
        /// In what.
        what: &'static str,
    },
    /// There is no such file, and none may be made.
    #[error("{} is missing, and this command makes no new keys", .0.display())]
    Missing(PathBuf),
    /// The relay was moved to another machine, where it may run.
    #[error(
        "this relay was moved to another machine with `weft backup --move`, and two relays with the same keys harm each \
         other. To bring it back, run `weft backup --move` where it runs now, and restore that \
         backup here. If it never ran elsewhere, remove {}", .0.display()
    )]
    Moved(PathBuf),
    /// A new signing key is needed, and the master identity key that must sign it is not here.
    #[error(
        "a new medium-term signing key is needed, because {need}, but the master identity key \
         cannot sign it: {why}. {}", advice(*.why)
    )]
    NoMasterKey {
        /// Why a new one is needed.
        need: &'static str,
        /// Where the master key is.
        why: MasterKeyAbsence,
    },
    /// `--keygen` was not given the passphrase of the master key.
    #[error(
        "{} stays closed: the passphrase is wrong, or there is none", .0.display()
    )]
    Passphrase(PathBuf),
    /// `--keygen` was not given a passphrase for a key that it writes.
    #[error("there is no passphrase for the master key; --no-passphrase writes it without one")]
    NoNewPassphrase,
    /// A calculation with a key failed, which can only be a defect of Weft.
    #[error("cannot {0}: this is a defect of Weft; please report it")]
    Crypto(&'static str),
}

/// Why the master identity secret key is not at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterKeyAbsence {
    /// `OfflineMasterKey 1`.
    Offline,
    /// Only `ed25519_master_id_secret_key_encrypted` exists.
    Encrypted,
    /// There is none.
    Missing,
}

impl std::fmt::Display for MasterKeyAbsence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Offline => "you keep it offline (OfflineMasterKey is set)",
            Self::Encrypted => {
                "ed25519_master_id_secret_key_encrypted is protected by a passphrase"
            }
            Self::Missing => "ed25519_master_id_secret_key is missing",
        })
    }
}

/// Advice to the operator.
fn advice(why: MasterKeyAbsence) -> &'static str {
    match why {
        MasterKeyAbsence::Encrypted => {
            "Run 'weft --keygen' with this DataDirectory to enter the passphrase, and start again"
        }
        MasterKeyAbsence::Offline | MasterKeyAbsence::Missing => {
            "Where the master key is kept, run 'weft --keygen', and copy ed25519_signing_secret_key \
             and ed25519_signing_cert from there into the key directory"
        }
    }
}

impl KeyError {
    /// A file whose content does not fit its name.
    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}
