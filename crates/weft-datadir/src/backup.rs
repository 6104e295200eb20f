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

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::CryptoRng;
use zeroize::Zeroizing;

use crate::dir::{DirError, check_private};
use crate::file::{self, FileError, Staged};
use crate::keys::pwbox::{self, Pwbox, PwboxError};
use crate::keys::{self, Files, Identities, KeyConfig, KeyError, MOVED, family};
use crate::state;

/// What the first line is.
const FIRST: &str = "weft-backup 1";
/// Longest file that is kept: `state` of a relay that ran for years, a transport's own.
const MAX_FILE: usize = 4 << 20;
/// Most bytes of all files together.
const MAX_BYTES: usize = 16 << 20;
/// Most files.
const MAX_FILES: usize = 1024;
/// Longest mark of a relay that was moved.
const MAX_MARK: usize = 64 << 10;
/// How deep folders of transports may be.
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
    /// What transports keep, below DataDirectory.
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

    /// Whether a file of KeyDirectory belongs to the identity. All do, unless KeyDirectory is also
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

    /// Whether the master identity key is in it: if not, its owner keeps it elsewhere (OfflineMasterKey).
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

    /// How many files it has.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether it has none, which no backup that opens does.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What is written to a file, by this passphrase.
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

    /// Whether this has the form of a backup, whatever its passphrase.
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
                "nickname" => value.clone_into(&mut backup.nickname),
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

/// What a line `file` says: where the file belongs, and how long it is.
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

/// Makes the folders that a file needs.
fn make_folders(folder: &Path, name: &str) -> Result<(), DirError> {
    check_private(folder, true, false)?;
    let mut path = folder.to_owned();
    let mut parts = Path::new(name).components();
    parts.next_back();
    for part in parts {
        path.push(part);
        check_private(&path, true, false)?;
    }
    Ok(())
}

/// All files that belong to a relay's identity.
fn read_all(places: Places<'_>) -> Result<All, BackupError> {
    let is_family = |name: &str| family::is_file(name);
    let mut all = BTreeMap::new();
    for folder in Folder::ALL {
        let path = places.of(folder);
        let files = match folder {
            Folder::Keys => read_folder(&path, |name| places.is_key(name))?,
            Folder::Family if path == places.of(Folder::Keys) => Vec::new(),
            Folder::Family => read_folder(&path, is_family)?,
            Folder::Data => read_folder(&path, |name| name == state::FILE)?,
            Folder::Transports => read_tree(&path, "", MAX_DEPTH)?,
        };
        all.extend(
            files
                .into_iter()
                .map(|(name, bytes)| ((folder, name), bytes)),
        );
        let bytes = all.values().map(|bytes| bytes.len()).sum::<usize>();
        if all.len() > MAX_FILES || bytes > MAX_BYTES {
            return Err(BackupError::TooMuch(path.display().to_string()));
        }
    }
    Ok(all)
}

/// A file's name, and what it has.
type Named = (String, Zeroizing<Vec<u8>>);

/// The files of a folder, if it is there, that are wanted; none of those that are being written, and no mark of ours.
fn read_folder(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<Named>, BackupError> {
    let mut files = Vec::new();
    for (name, is_folder) in list(path, wanted)? {
        if is_folder {
            continue;
        }
        if let Some(bytes) = file::read(&path.join(&name), MAX_FILE)? {
            files.push((name, bytes));
        }
    }
    Ok(files)
}

/// The files of a folder and of those in it.
fn read_tree(path: &Path, prefix: &str, depth: usize) -> Result<Vec<Named>, BackupError> {
    let mut files = Vec::new();
    for (name, bytes) in read_folder(path, |_| true)? {
        files.push((format!("{prefix}{name}"), bytes));
    }
    for (name, is_folder) in list(path, |_| true)? {
        if !is_folder {
            continue;
        }
        let inner = path.join(&name);
        if depth <= 1 {
            return Err(BackupError::TooMuch(inner.display().to_string()));
        }
        files.extend(read_tree(&inner, &format!("{prefix}{name}/"), depth - 1)?);
    }
    Ok(files)
}

/// The wanted names in a folder, and which of them are folders; nothing where there is none. A link
/// to a file is a file. Sockets and the like, of a transport, do not belong to the identity.
fn list(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, bool)>, BackupError> {
    let failed = |source| FileError::new("list", path, source);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error).into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        let is_ours = shown == MOVED || shown.ends_with(".tmp");
        if !wanted(&shown) || is_ours && !kind.is_dir() {
            continue;
        }
        if kind.is_symlink() {
            check_link(&entry.path())?;
        } else if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        if names.len() >= MAX_FILES {
            return Err(BackupError::TooMuch(path.display().to_string()));
        }
        let name = name.into_string().map_err(|name| {
            BackupError::TooMuch(format!(
                "{} with the name {}",
                path.display(),
                name.to_string_lossy()
            ))
        })?;
        names.push((name, kind.is_dir()));
    }
    names.sort();
    Ok(names)
}

/// Checks that a link leads to a file. Links to folders are refused, as they could form a loop.
fn check_link(path: &Path) -> Result<(), BackupError> {
    match path.metadata() {
        Ok(meta) if meta.is_file() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::new("read", path, error).into())
        }
        _ => Err(BackupError::Link(path.to_owned())),
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::keys::RelayKeys;

    fn rng() -> ChaCha20Rng {
        ChaCha20Rng::seed_from_u64(1)
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_800_000_000_123)
    }

    fn config(at: &Path) -> KeyConfig {
        let mut config = KeyConfig::new(at.join("data"));
        config.nickname = "one".to_owned();
        config
    }

    fn places(config: &KeyConfig) -> Places<'_> {
        Places {
            keys: config,
            family: &config.key_directory,
        }
    }

    /// A relay with a key of a family and the keys of a transport.
    fn relay(at: &Path) -> (KeyConfig, RelayKeys) {
        let config = config(at);
        let keys = RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap();
        family::create(&config.key_directory.join("ours"), &mut rng()).unwrap();
        let transport = config.data_directory.join("pt_state/obfs4");
        fs::create_dir_all(&transport).unwrap();
        for folder in [&transport, transport.parent().unwrap()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(transport.join("state.json"), "{}").unwrap();
        (config, keys)
    }

    fn backup_of(config: &KeyConfig) -> Backup {
        let addresses = vec!["192.0.2.1:9001".parse().unwrap()];
        Backup::collect(places(config), addresses, now()).unwrap()
    }

    #[test]
    fn a_relay_is_the_same_elsewhere() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config_here, keys) = relay(here.path());
        let sealed = backup_of(&config_here).seal(b"secret", &mut rng()).unwrap();
        assert!(!sealed.windows(11).any(|bytes| bytes == b"weft-backup"));
        let opened = Backup::open(&sealed, b"secret").unwrap();
        assert_eq!(opened, backup_of(&config_here));
        assert!(opened.has_master_key());

        let config_there = config(there.path());
        config_there.prepare_directories().unwrap();
        let written = opened.restore(places(&config_there)).unwrap();
        assert_eq!(written, opened.len());
        // Months later: the signing key is made anew, the relay is the same.
        let later = now() + Duration::from_secs(90 * 86_400);
        let again = RelayKeys::load_or_create(&config_there, later, &mut rng()).unwrap();
        assert_eq!(again.fingerprint(), keys.fingerprint());
        assert_eq!(again.ed_identity, keys.ed_identity);
        assert_eq!(again.ntor.current.public, keys.ntor.current.public);
        assert_ne!(again.signing_cert, keys.signing_cert);
        let data = &config_there.data_directory;
        assert_eq!(
            fs::read_to_string(data.join("pt_state/obfs4/state.json")).unwrap(),
            "{}"
        );
        assert!(data.join("keys/ours.secret_family_key").exists());
        assert!(data.join("state").exists());
    }

    #[test]
    fn what_is_there_is_never_replaced() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config_here, _) = relay(here.path());
        let backup = backup_of(&config_here);
        // Twice is once.
        assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);
        let config_there = config(there.path());
        RelayKeys::load_or_create(&config_there, now(), &mut ChaCha20Rng::seed_from_u64(2))
            .unwrap();
        let key = config_there.key_directory.join("secret_id_key");
        let before = fs::read(&key).unwrap();
        let error = backup.restore(places(&config_there)).unwrap_err();
        assert!(matches!(error, BackupError::Occupied(_)), "{error}");
        assert_eq!(fs::read(&key).unwrap(), before);
        // A key that the backup lacks is another relay's, too.
        let third = tempfile::tempdir().unwrap();
        let config_third = config(third.path());
        config_third.prepare_directories().unwrap();
        fs::write(
            config_third.key_directory.join("authority_identity_key"),
            "x",
        )
        .unwrap();
        let error = backup.restore(places(&config_third)).unwrap_err();
        assert!(
            error.to_string().contains("authority_identity_key"),
            "{error}"
        );
        assert!(!config_third.key_directory.join("secret_id_key").exists());
    }

    #[test]
    fn a_relay_that_was_moved_does_not_start_until_it_is_brought_back() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let backup = backup_of(&config);
        let mark = mark_moved(&config, Path::new("/media/one.backup"), now()).unwrap();
        let is_refused = || {
            let error = RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap_err();
            matches!(error, KeyError::Moved(_)) && error.to_string().contains("keys/moved")
        };
        assert!(is_refused());
        // The mark is of this machine.
        assert_eq!(backup_of(&config), backup);
        // By the backup that moved it, or one before, it may run elsewhere now.
        for age in [0, 1, 86_400] {
            let mut old = backup.clone();
            old.made -= Duration::from_secs(age);
            let error = old.restore(places(&config)).unwrap_err();
            assert!(matches!(error, BackupError::Moved(_)), "{error}");
            let error = error.to_string();
            assert!(
                error.contains("keys/moved") && error.contains("--move"),
                "{error}"
            );
            assert!(is_refused());
        }
        // One that is made later is of where it ran since.
        let mut new = backup;
        new.made += Duration::from_secs(1);
        assert_eq!(new.restore(places(&config)).unwrap(), 0);
        assert!(!mark.exists());
        RelayKeys::load_or_create(&config, now(), &mut rng()).unwrap();
    }

    #[test]
    fn a_mark_without_a_time_is_lifted_by_no_backup() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let backup = backup_of(&config);
        let mark = config.key_directory.join(MOVED);
        let is_refused = || {
            let error = backup.restore(places(&config)).unwrap_err();
            matches!(error, BackupError::Moved(_))
        };
        for text in [
            "",
            "moved to B",
            "Moved by `weft backup --move` at noon (\n",
        ] {
            fs::write(&mark, text).unwrap();
            assert!(is_refused(), "{text}");
        }
        fs::remove_file(&mark).unwrap();
        symlink("nowhere", &mark).unwrap();
        assert!(is_refused());
        fs::remove_file(&mark).unwrap();
        assert_eq!(backup.restore(places(&config)).unwrap(), 0);
    }

    #[test]
    fn without_an_address_to_ask_the_operator_answers_for_the_relay() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let mut backup = backup_of(&config);
        for not_running in [false, true] {
            let asked = backup.addresses_to_ask(not_running).unwrap();
            assert_eq!(asked, backup.addresses);
        }
        backup.addresses.clear();
        let error = backup.addresses_to_ask(false).unwrap_err();
        assert!(error.to_string().contains("--not-running"), "{error}");
        assert!(backup.addresses_to_ask(true).unwrap().is_empty());
    }

    /// Moves a file out of the relay's directories, and links to it.
    fn link_out(file: &Path, to: &Path) {
        fs::rename(file, to).unwrap();
        symlink(to, file).unwrap();
    }

    #[test]
    fn linked_files_are_kept_as_files() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config_here, _) = relay(here.path());
        let before = backup_of(&config_here);
        let (keys, data) = (&config_here.key_directory, &config_here.data_directory);
        for (index, file) in [
            keys.join("ed25519_master_id_secret_key"),
            keys.join("ours.secret_family_key"),
            data.join("state"),
            data.join("pt_state/obfs4/state.json"),
        ]
        .iter()
        .enumerate()
        {
            link_out(file, &here.path().join(index.to_string()));
        }
        // What is not of the identity may lead anywhere.
        symlink("nowhere", data.join("cached-descriptors")).unwrap();
        symlink("nowhere", keys.join("secret_id_key.tmp")).unwrap();
        let backup = backup_of(&config_here);
        assert_eq!(backup, before);
        assert!(backup.has_master_key());
        assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);
        let config_there = config(there.path());
        config_there.prepare_directories().unwrap();
        backup.restore(places(&config_there)).unwrap();
        let master = config_there
            .key_directory
            .join("ed25519_master_id_secret_key");
        assert!(master.symlink_metadata().unwrap().is_file());
        assert_eq!(backup_of(&config_there), backup);
    }

    #[test]
    fn a_link_that_leads_to_no_file_is_named() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let (keys, data) = (&config.key_directory, &config.data_directory);
        let folders = data.join("pt_state");
        let backup = backup_of(&config);
        for (link, to) in [
            (
                keys.join("ed25519_master_id_secret_key_encrypted"),
                "nowhere",
            ),
            (keys.join("secret_onion_key_ntor.old"), "."),
            (keys.join("theirs.secret_family_key"), "/dev/null"),
            (folders.join("circle"), ".."),
            (folders.join("obfs4/bridgeline"), "nowhere"),
        ] {
            symlink(to, &link).unwrap();
            let error = Backup::collect(places(&config), Vec::new(), now()).unwrap_err();
            assert!(matches!(error, BackupError::Link(_)), "{error}");
            let error = error.to_string();
            assert!(error.contains(&link.display().to_string()), "{error}");
            fs::remove_file(link).unwrap();
        }
        // A link whose file is away for now is not replaced.
        let state = data.join("state");
        fs::remove_file(&state).unwrap();
        symlink("nowhere", &state).unwrap();
        let error = backup.restore(places(&config)).unwrap_err();
        assert!(matches!(error, BackupError::Occupied(_)), "{error}");
        assert!(state.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn keys_in_the_data_directory_itself_come_back() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let shared = |at: &Path| {
            let mut config = config(at);
            config.key_directory.clone_from(&config.data_directory);
            config
        };
        let (config_here, config_there) = (shared(here.path()), shared(there.path()));
        let keys = RelayKeys::load_or_create(&config_here, now(), &mut rng()).unwrap();
        let data = &config_here.data_directory;
        family::create(&data.join("ours"), &mut rng()).unwrap();
        let cached = fs::File::create(data.join("cached-microdescs")).unwrap();
        cached.set_len(MAX_FILE as u64 + 1).unwrap();
        let backup = backup_of(&config_here);
        let names = backup.files.keys().map(|(_, name)| name.as_str());
        assert_eq!(names.clone().filter(|name| *name == "state").count(), 1);
        assert!(names.clone().any(|name| name == "ours.public_family_id"));
        assert!(!names.clone().any(|name| name.starts_with("fingerprint")));
        assert_eq!(backup.restore(places(&config_here)).unwrap(), 0);

        config_there.prepare_directories().unwrap();
        let data = &config_there.data_directory;
        fs::write(data.join("lock"), "").unwrap();
        fs::write(data.join("cached-certs"), "x").unwrap();
        assert_eq!(backup.restore(places(&config_there)).unwrap(), backup.len());
        assert_eq!(backup.restore(places(&config_there)).unwrap(), 0);
        let again = RelayKeys::load_or_create(&config_there, now(), &mut rng()).unwrap();
        assert_eq!(again.fingerprint(), keys.fingerprint());
        assert_eq!(again.ntor.current.public, keys.ntor.current.public);
        // Keys that the backup lacks are still another relay's.
        family::create(&data.join("theirs"), &mut rng()).unwrap();
        let error = backup.restore(places(&config_there)).unwrap_err();
        assert!(error.to_string().contains("theirs."), "{error}");
    }

    #[test]
    fn folders_that_are_one_where_it_is_restored_have_each_file_once() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config_here, _) = relay(here.path());
        let family = here.path().join("families");
        fs::create_dir(&family).unwrap();
        let ours = "ours.secret_family_key";
        fs::copy(config_here.key_directory.join(ours), family.join(ours)).unwrap();
        let apart = Places {
            keys: &config_here,
            family: &family,
        };
        let collect = || Backup::collect(apart, Vec::new(), now()).unwrap();
        let backup = collect();
        let config_there = config(there.path());
        config_there.prepare_directories().unwrap();
        let written = backup.restore(places(&config_there)).unwrap();
        assert_eq!(written, backup.len() - 1);
        assert_eq!(backup.restore(places(&config_there)).unwrap(), 0);
        // Two that differ cannot be in one place.
        let theirs = family::create(&family.join("theirs"), &mut ChaCha20Rng::seed_from_u64(2));
        fs::rename(theirs.unwrap().path, family.join(ours)).unwrap();
        let error = collect().restore(places(&config_there)).unwrap_err();
        assert!(matches!(error, BackupError::Damaged(_)), "{error}");
    }

    #[test]
    fn an_identity_that_is_empty_is_damaged_and_an_onion_key_is_none() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let collect = || Backup::collect(places(&config), Vec::new(), now());
        for onion in ["secret_onion_key_ntor", "secret_onion_key"] {
            fs::write(config.key_directory.join(onion), "").unwrap();
            collect().unwrap();
        }
        for name in [
            "ed25519_master_id_secret_key",
            "ed25519_signing_cert",
            "secret_id_key",
        ] {
            let path = config.key_directory.join(name);
            let before = fs::read(&path).unwrap();
            fs::write(&path, "").unwrap();
            let error = collect().unwrap_err();
            assert!(
                matches!(error, BackupError::Keys(KeyError::Damaged { .. })),
                "{name}: {error}"
            );
            fs::write(&path, before).unwrap();
        }
    }

    #[test]
    fn keys_of_two_relays_or_damaged_ones_are_no_backup() {
        let (here, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config, _) = relay(here.path());
        let of_other = self::config(other.path());
        RelayKeys::load_or_create(&of_other, now(), &mut ChaCha20Rng::seed_from_u64(2)).unwrap();
        let name = "ed25519_signing_cert";
        fs::copy(
            of_other.key_directory.join(name),
            config.key_directory.join(name),
        )
        .unwrap();
        let collect = || Backup::collect(places(&config), Vec::new(), now()).unwrap_err();
        assert!(matches!(
            collect(),
            BackupError::Keys(KeyError::Mismatch { .. })
        ));
        fs::write(config.key_directory.join("secret_id_key"), "half a k").unwrap();
        assert!(matches!(
            collect(),
            BackupError::Keys(KeyError::Damaged { .. })
        ));
        fs::remove_file(config.key_directory.join("secret_id_key")).unwrap();
        assert!(matches!(collect(), BackupError::Keys(KeyError::Missing(_))));
    }

    #[test]
    fn what_is_no_backup_says_so() {
        let here = tempfile::tempdir().unwrap();
        let (config, _) = relay(here.path());
        let sealed = backup_of(&config).seal(b"secret", &mut rng()).unwrap();
        let open = |bytes: &[u8], passphrase: &[u8]| Backup::open(bytes, passphrase).unwrap_err();
        assert!(matches!(open(&sealed, b"Secret"), BackupError::Passphrase));
        assert!(matches!(open(b"", b"secret"), BackupError::NoBackup));
        assert!(matches!(
            open(b"ControlPort 9051\n", b""),
            BackupError::NoBackup
        ));
        assert!(matches!(
            open(&sealed[..sealed.len() - 1], b"secret"),
            BackupError::Passphrase
        ));
        // An encrypted master key opens, and is none.
        let key = pwbox::seal(&[7; 64], b"secret", &mut rng()).unwrap();
        assert!(matches!(open(&key, b"secret"), BackupError::NoBackup));
    }

    #[test]
    fn files_stay_in_their_folders() {
        let text = |lines: &str| format!("weft-backup 1\nmade 1\nnickname x\n{lines}").into_bytes();
        let names = |lines: &str| {
            let backup = Backup::from_bytes(&text(lines))?;
            Ok::<_, BackupError>(
                backup
                    .files
                    .into_keys()
                    .map(|(_, name)| name)
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(names("file keys a 0\n\n").unwrap(), ["a"]);
        assert_eq!(names("file transports a b/c 1\nx\n").unwrap(), ["a b/c"]);
        for wrong in [
            "file keys ../a 0\n\n",
            "file keys /etc/passwd 0\n\n",
            "file keys a/b 0\n\n",
            "file keys . 0\n\n",
            "file keys  0\n\n",
            "file transports a//b 0\n\n",
            "file transports a/./b 0\n\n",
            "file transports a/b/c/d/e 0\n\n",
            "file elsewhere a 0\n\n",
            "file keys a 1\n\n",
            "file keys a 99999999999\n\n",
            "file keys a 0\n\nfile keys a 0\n\n",
            "address 192.0.2.1\n",
            "made -1\n",
            "made 99999999999999999999\n",
            "unknown x\n",
            "nothing\n",
            "no end",
        ] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }
}
