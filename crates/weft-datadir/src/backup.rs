//! A relay's identity in one encrypted file: what it needs to be the same relay on another machine.
//!
//! The file is C tor's box for keys behind a passphrase ([`pwbox`]: PBKDF2, AES-128 in counter mode, HMAC-SHA256). In it are
//! lines of text, `KEYWORD VALUE`, and behind each line `file FOLDER NAME LENGTH` as many bytes and a line's end. What
//! is opened is checked like keys at a start before anything is written, and no file is ever replaced.
//!
//! Two relays with one identity harm each other, so a backup names the addresses at which the relay
//! can be reached: `weft restore` asks there first whether it still runs. [`mark_moved`] keeps the
//! original from starting again. Only a backup that is newer than the mark removes it: an older one
//! was made before the move, and does not show that the relay has ended at its new place.

mod folders;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::CryptoRng;
use zeroize::Zeroizing;

use crate::dir::DirError;
use crate::file::{self, FileError, Staged};
use crate::keys::pwbox::{self, Pwbox, PwboxError};
use crate::keys::{self, Files, Identities, KeyConfig, KeyError, MOVED, family};

use folders::{make_folders, read_all, read_folder};

/// First line of an opened backup.
const FIRST: &str = "weft-backup 1";
/// Longest file that is kept: `state` of a relay that ran for years, a transport's own.
const MAX_FILE: usize = 4 << 20;
/// Most bytes of all files together.
const MAX_BYTES: usize = 16 << 20;
/// Most files.
const MAX_FILES: usize = 1024;
/// Longest mark of a relay that was moved.
const MAX_MARK: usize = 64 << 10;
/// Deepest nesting of transports' folders.
const MAX_DEPTH: usize = 4;
/// The folder of what transports keep (pt-spec: TOR_PT_STATE_LOCATION); the keys that bridge lines name among it.
const TRANSPORTS: &str = "pt_state";

/// A backup that cannot be made, opened or restored. No file was changed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The keys are damaged or missing.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The system refused to read or write.
    #[error(transparent)]
    File(#[from] FileError),
    /// A folder cannot be used.
    #[error(transparent)]
    Directory(#[from] DirError),
    /// There is more than a relay's identity.
    #[error("{0} holds more than a relay's identity has: move what is not of it away")]
    TooMuch(String),
    /// Files changed again and again while they were read.
    #[error("the relay's keys changed while they were read: try again")]
    Changed,
    /// The passphrase is another one, or there is none.
    #[error("the passphrase is wrong, or the backup was changed")]
    Passphrase,
    /// It is something else, or was cut.
    #[error("this is no backup of `weft backup`, or only a part of one")]
    NoBackup,
    /// It opens, and its content cannot be used.
    #[error("the backup's content cannot be used: {0}")]
    Damaged(String),
    /// A file would be replaced.
    #[error(
        "{} exists and is another one: nothing was restored. Move the directory away, or name another DataDirectory", .0.display()
    )]
    Occupied(PathBuf),
    /// A symbolic link whose file cannot be kept.
    #[error(
        "{} is a symbolic link that does not lead to a file. Put the file in its place, or remove \
         the link", .0.display()
    )]
    Link(PathBuf),
    /// The relay was moved away, and the backup is not newer than that.
    #[error(
        "the relay was moved to another machine by this backup or a later one, and two relays with \
         the same keys harm each other: nothing was restored. To bring it back, run \
         `weft backup --move` where it runs now, and restore that backup here. If it never ran \
         elsewhere, remove {}", .0.display()
    )]
    Moved(PathBuf),
    /// No address can be asked whether the relay still runs.
    #[error(
        "the backup has no address at which the relay could be asked whether it still runs. Make \
         sure that it has ended, and restore with --not-running. Nothing was restored"
    )]
    NoAddress,
}

/// Where a file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Folder {
    /// KeyDirectory.
    Keys,
    /// FamilyKeyDirectory, where it is another.
    Family,
    /// DataDirectory.
    Data,
    /// Folder of transports' files, below DataDirectory.
    Transports,
}

impl Folder {
    const ALL: [Folder; 4] = [
        Folder::Keys,
        Folder::Family,
        Folder::Data,
        Folder::Transports,
    ];

    fn name(self) -> &'static str {
        match self {
            Folder::Keys => "keys",
            Folder::Family => "family",
            Folder::Data => "data",
            Folder::Transports => "transports",
        }
    }
}

/// Where a relay keeps what makes it the same relay.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// DataDirectory, KeyDirectory, Nickname.
    pub keys: &'a KeyConfig,
    /// FamilyKeyDirectory.
    pub family: &'a Path,
}

impl Places<'_> {
    fn of(&self, folder: Folder) -> PathBuf {
        match folder {
            Folder::Keys => self.keys.key_directory.clone(),
            Folder::Family => self.family.to_owned(),
            Folder::Data => self.keys.data_directory.clone(),
            Folder::Transports => self.keys.data_directory.join(TRANSPORTS),
        }
    }

    /// True if a file of KeyDirectory belongs to the identity. All do, unless KeyDirectory is also
    /// DataDirectory.
    fn is_key(&self, name: &str) -> bool {
        let shared = self.keys.key_directory == self.keys.data_directory;
        !shared || keys::is_file(name) || family::is_file(name)
    }
}

/// A relay's identity, as it was.
#[derive(Clone, PartialEq, Eq)]
pub struct Backup {
    /// When it was made.
    pub made: SystemTime,
    /// The relay's nickname.
    pub nickname: String,
    /// The ORPorts at which the relay can be reached.
    pub addresses: Vec<SocketAddr>,
    files: All,
}

/// Files by where they belong.
type All = BTreeMap<(Folder, String), Zeroizing<Vec<u8>>>;

impl fmt::Debug for Backup {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup")
            .field("made", &self.made)
            .field("nickname", &self.nickname)
            .field("addresses", &self.addresses)
            .field("files", &self.files.keys())
            .finish()
    }
}

impl Backup {
    /// Reads the files of a relay, which may run meanwhile.
    ///
    /// # Errors
    ///
    /// Keys are missing or do not belong together, a file cannot be read, or there is more than an identity has.
    pub fn collect(
        places: Places<'_>,
        addresses: Vec<SocketAddr>,
        now: SystemTime,
    ) -> Result<Self, BackupError> {
        // A relay renews keys in two steps. Files that were the same twice are of one moment.
        let mut files = read_all(places)?;
        for _ in 0..3 {
            let again = read_all(places)?;
            if again == files {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                let backup = Backup {
                    // As it is written.
                    made: UNIX_EPOCH + Duration::from_secs(seconds),
                    nickname: places.keys.nickname.clone(),
                    addresses,
                    files,
                };
                backup.identities(&places.keys.key_directory)?;
                return Ok(backup);
            }
            files = again;
        }
        Err(BackupError::Changed)
    }

    /// The identities, of keys that were checked. Errors name files as if they were in `directory`.
    ///
    /// # Errors
    ///
    /// Keys are damaged, missing, or do not belong together.
    pub fn identities(&self, directory: &Path) -> Result<Identities, BackupError> {
        let keys = self.files.iter();
        let keys = keys.filter(|((folder, _), _)| *folder == Folder::Keys);
        let keys: Files = keys
            .map(|((_, name), bytes)| (name.clone(), bytes.clone()))
            .collect();
        Ok(Identities::of(&keys, directory)?)
    }

    /// True if the master identity key is in it; otherwise its owner keeps it elsewhere
    /// (OfflineMasterKey).
    pub fn has_master_key(&self) -> bool {
        let keys = self.files.keys();
        let mut keys = keys.filter(|(folder, _)| *folder == Folder::Keys);
        keys.any(|(_, name)| name.starts_with("ed25519_master_id_secret_key"))
    }

    /// The addresses at which to ask whether the relay still runs. `not_running`: its operator has
    /// ended it, so there may be none.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn addresses_to_ask(&self, not_running: bool) -> Result<&[SocketAddr], BackupError> {
        match self.addresses.as_slice() {
            [] if !not_running => Err(BackupError::NoAddress),
            addresses => Ok(addresses),
        }
    }

    /// Number of files in it.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// True if it has no files, which no backup that opens is.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The backup as bytes of a file, encrypted with this passphrase.
    ///
    /// # Errors
    ///
    /// It cannot be encrypted.
    pub fn seal(
        &self,
        passphrase: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, BackupError> {
        let crypto = BackupError::Keys(KeyError::Crypto("encrypt a backup"));
        pwbox::seal(&self.to_bytes(), passphrase, rng).ok_or(crypto)
    }

    /// Opens what [`Backup::seal`] made.
    ///
    /// # Errors
    ///
    /// Another passphrase, or no backup.
    pub fn open(sealed: &[u8], passphrase: &[u8]) -> Result<Self, BackupError> {
        let sealed = Pwbox::parse(sealed).map_err(|_| BackupError::NoBackup)?;
        let bytes = sealed.open(passphrase).map_err(|error| match error {
            PwboxError::BadSecret => BackupError::Passphrase,
            PwboxError::Corrupted => BackupError::NoBackup,
        })?;
        Self::from_bytes(&bytes)
    }

    /// True if these bytes have the form of a backup, whatever its passphrase.
    pub fn is_sealed(bytes: &[u8]) -> bool {
        Pwbox::parse(bytes).is_ok()
    }

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let made = self.made.duration_since(UNIX_EPOCH).unwrap_or_default();
        let addresses: String = self
            .addresses
            .iter()
            .map(|address| format!("address {address}\n"))
            .collect();
        let head = format!(
            "{FIRST}\nmade {}\nnickname {}\n{addresses}",
            made.as_secs(),
            self.nickname
        );
        let length = |((_, name), bytes): (&(Folder, String), &Zeroizing<Vec<u8>>)| {
            name.len().saturating_add(bytes.len()).saturating_add(64)
        };
        let all = self.files.iter().map(length).sum::<usize>();
        // The buffer must not grow: a copy left behind would not be wiped.
        let mut out = Zeroizing::new(Vec::with_capacity(head.len().saturating_add(all)));
        out.extend_from_slice(head.as_bytes());
        for ((folder, name), bytes) in &self.files {
            let line = format!("file {} {name} {}\n", folder.name(), bytes.len());
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(bytes);
            out.push(b'\n');
        }
        out
    }

    /// Reads the content of a box.
    ///
    /// # Errors
    ///
    /// It is no backup, or a line of it is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BackupError> {
        let damaged = |line: &str| BackupError::Damaged(format!("the line \"{line}\""));
        let (first, mut rest) = line(bytes).ok_or(BackupError::NoBackup)?;
        if first != FIRST {
            return Err(match first.starts_with("weft-backup ") {
                true => BackupError::Damaged(format!(
                    "\"{first}\" is of a newer version of Weft than this one"
                )),
                false => BackupError::NoBackup,
            });
        }
        let mut backup = Backup {
            made: UNIX_EPOCH,
            nickname: String::new(),
            addresses: Vec::new(),
            files: BTreeMap::new(),
        };
        while !rest.is_empty() {
            let (text, after) =
                line(rest).ok_or(BackupError::Damaged("a line without an end".into()))?;
            rest = after;
            let (keyword, value) = text.split_once(' ').ok_or_else(|| damaged(text))?;
            match keyword {
                "made" => {
                    let seconds = value.parse().map_err(|_| damaged(text))?;
                    let made = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
                    backup.made = made.ok_or_else(|| damaged(text))?;
                }
                "nickname" if is_nickname(value) => value.clone_into(&mut backup.nickname),
                "address" => backup
                    .addresses
                    .push(value.parse().map_err(|_| damaged(text))?),
                "file" => {
                    let (place, length) = place(value).ok_or_else(|| damaged(text))?;
                    let (content, after) = rest
                        .split_at_checked(length)
                        .and_then(|(content, after)| Some((content, after.strip_prefix(b"\n")?)))
                        .ok_or_else(|| damaged(text))?;
                    rest = after;
                    let content = Zeroizing::new(content.to_vec());
                    if backup.files.insert(place, content).is_some() {
                        return Err(damaged(text));
                    }
                }
                _ => return Err(damaged(text)),
            }
        }
        Ok(backup)
    }

    /// Writes the files where they belong: all of them or none, and none in place of another. The caller holds the
    /// DataDirectory's [lock](crate::lock). Returns how many were not there yet.
    ///
    /// # Errors
    ///
    /// Keys do not belong together, the relay was moved away by this backup or a later one, a file
    /// that is there is another one, or a file cannot be written.
    pub fn restore(&self, places: Places<'_>) -> Result<usize, BackupError> {
        self.identities(&places.keys.key_directory)?;
        let keys = places.of(Folder::Keys);
        let mark = keys.join(MOVED);
        self.check_newer_than(&mark)?;
        // By path: two folders of the backup may be one here.
        let mut files = BTreeMap::new();
        for ((folder, name), bytes) in &self.files {
            let path = places.of(*folder).join(name);
            let file = (*folder, name, bytes);
            if let Some((_, _, other)) = files.insert(path.clone(), file)
                && other != bytes
            {
                let what = format!("it has two files for {}", path.display());
                return Err(BackupError::Damaged(what));
            }
        }
        // Keys that are not of the backup would make another relay of it.
        for (name, _) in read_folder(&keys, |name| places.is_key(name))? {
            let path = keys.join(name);
            if !files.contains_key(&path) {
                return Err(BackupError::Occupied(path));
            }
        }
        let mut missing = Vec::new();
        for (path, (folder, name, bytes)) in files {
            match file::read(&path, MAX_FILE)? {
                Some(there) if there == *bytes => {}
                None if path.symlink_metadata().is_err() => {
                    missing.push((folder, name, path, bytes));
                }
                // Another file, or a link to one that is not there now.
                _ => return Err(BackupError::Occupied(path)),
            }
        }
        let written = missing.len();
        let mut staged = Staged::default();
        for (folder, name, path, bytes) in missing {
            make_folders(&places.of(folder), name)?;
            staged.add(&path, bytes)?;
        }
        staged.commit()?;
        // It is here now.
        match fs::remove_file(&mark) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::new("remove", &mark, error).into())
            }
            _ => Ok(written),
        }
    }

    /// Checks that the backup was made after the mark of [`mark_moved`], if there is one.
    fn check_newer_than(&self, mark: &Path) -> Result<(), BackupError> {
        if mark.symlink_metadata().is_err() {
            return Ok(());
        }
        let text = file::read(mark, MAX_MARK)?.unwrap_or_default();
        match moved_at(&text) {
            Some(moved) if self.made > moved => Ok(()),
            _ => Err(BackupError::Moved(mark.to_owned())),
        }
    }
}

/// A line without its end, and what follows.
fn line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (text, rest) = bytes.split_at_checked(end)?;
    Some((std::str::from_utf8(text).ok()?, rest.get(1..)?))
}

/// A nickname as torrc takes it. It is printed, and a file may be anybody's.
fn is_nickname(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain && (1..=19).contains(&text.len())
}

/// Place and length of a file, from its line `file`.
fn place(value: &str) -> Option<((Folder, String), usize)> {
    let (folder, rest) = value.split_once(' ')?;
    let (name, length) = rest.rsplit_once(' ')?;
    let folder = Folder::ALL.into_iter().find(|of| of.name() == folder)?;
    let length = length.parse().ok().filter(|length| *length <= MAX_FILE)?;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let parts = Path::new(name).components();
    let deepest = if folder == Folder::Transports {
        MAX_DEPTH
    } else {
        1
    };
    // As it stands: nothing that leads elsewhere, no `a//b`, which would be a second name of `a/b`.
    let plain: PathBuf = parts.clone().filter(|part| is_plain(*part)).collect();
    let fits = (1..=deepest).contains(&parts.count()) && plain.as_os_str() == name;
    fits.then(|| ((folder, name.to_owned()), length))
}

/// Stands before the time in a mark of [`mark_moved`], in seconds.
const MOVED_AT: &str = "Moved by `weft backup --move` at ";

/// Keeps the relay of this directory from being started: it was moved to another machine, in the backup at `file`.
///
/// # Errors
///
/// The mark cannot be written.
pub fn mark_moved(keys: &KeyConfig, file: &Path, now: SystemTime) -> Result<PathBuf, FileError> {
    let path = keys.key_directory.join(MOVED);
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = format!(
        "{MOVED_AT}{seconds} (seconds since 1970), into {}.\n\
         A newer backup of the relay brings it back: run `weft backup --move` where it runs now, and \
         `weft restore` here. Remove this file only if the relay never ran elsewhere.\n",
        file.display()
    );
    // As root it is the relay's user who removes it again.
    let mut staged = Staged::for_owners();
    staged.add(&path, text.as_bytes())?;
    staged.commit()?;
    Ok(path)
}

/// The time in a mark of [`mark_moved`]; `None`: it has none.
fn moved_at(mark: &[u8]) -> Option<SystemTime> {
    let rest = mark.strip_prefix(MOVED_AT.as_bytes())?;
    let seconds = rest.split(|byte| *byte == b' ').next()?;
    let seconds = std::str::from_utf8(seconds).ok()?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Writes a sealed backup to a new file, and makes it last.
///
/// # Errors
///
/// There is such a file, or it cannot be written.
pub fn write_new(path: &Path, sealed: &[u8]) -> Result<(), FileError> {
    let failed = |source| FileError::new("write", path, source);
    if path.symlink_metadata().is_ok() {
        return Err(failed(io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    file::replace_with(path, file::Access::PRIVATE, |mut file| {
        file.write_all(sealed)
    })
}

/// Reads a sealed backup.
///
/// # Errors
///
/// There is none, or it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let bytes = file::read(path, MAX_BYTES.saturating_mul(2))?;
    let bytes = bytes.ok_or_else(|| FileError::new("read", path, missing()))?;
    Ok(bytes.to_vec())
}
