//! Directories that only the relay's user may look into, checked by C tor's rules.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User, getgid, getuid};

use crate::file::{CREATE_DIRECTORY, FileError, chown, user_name};

/// A directory that cannot be used for private files.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// Looking at, making or changing it failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is none, and the caller did not want one made.
    #[error("directory {} does not exist", .0.display())]
    Missing(PathBuf),
    /// It is something else.
    #[error("{} is not a directory. Move it away, or name another directory in the torrc", .0.display())]
    NotADirectory(PathBuf),
    /// It is a symbolic link, which could be pointed elsewhere between check and use.
    #[error("{} is a symbolic link. Name the directory that it points to in the torrc", .0.display())]
    Link(PathBuf),
    /// It belongs to someone else.
    #[error(
        "{} is not owned by this {kind} ({me}) but by {owner}. Perhaps you are running Weft as \
         the wrong user: see the User option, or {remedy}", path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// "user" or "group".
        kind: &'static str,
        /// The user of this process.
        me: String,
        /// Its owner.
        owner: String,
        /// Advice besides the User option.
        remedy: String,
    },
}

/// Advice that makes a directory of another user or group usable. Root is advised to become the
/// owner: a directory that root took would be lost to the node.
fn remedy(path: &Path, uid: Uid, gid: Option<Gid>) -> String {
    if !getuid().is_root() {
        return format!("run \"{}\" as root", chown(path));
    }
    let user = User::from_uid(uid).ok().flatten();
    let group = gid.map(|gid| Group::from_gid(gid).ok().flatten().map(|group| group.name));
    match (user, group) {
        (Some(user), None) => format!("run it as the owner (runuser -u {})", user.name),
        (Some(user), Some(Some(group))) => {
            format!(
                "run it with that group (runuser -u {} -g {group})",
                user.name
            )
        }
        // runuser takes names alone.
        _ => format!(
            "run it as the owner (setpriv --reuid {uid} --regid {} --clear-groups)",
            gid.map_or_else(|| uid.to_string(), |gid| gid.to_string())
        ),
    }
}

/// "name, id" of a group.
fn group_name(gid: Gid) -> String {
    let name = Group::from_gid(gid).ok().flatten().map(|g| g.name);
    format!("{}, {gid}", name.as_deref().unwrap_or("<unknown>"))
}

/// Checks a directory as [`check_private`] does, as far as that makes and changes nothing.
pub fn could_be_private(path: &Path, group_readable: bool) -> Result<(), DirError> {
    match open(path)? {
        Some(dir) => check_owner(&dir, path, group_readable).map(|_| ()),
        None => Ok(()),
    }
}

/// A directory whose mode is not the one that [`check_private`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongMode {
    /// The directory.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Permissions that it should have: 0700, or 0750 where the group may read it.
    pub wanted: u32,
}

/// Compares the permissions of a directory with those that it should have, and changes nothing. `None`: they are right, or
/// [`could_be_private`] has the reason why they are not known.
pub fn wrong_mode(path: &Path, group_readable: bool) -> Option<WrongMode> {
    let meta = fs::symlink_metadata(path).ok().filter(Metadata::is_dir)?;
    let mode = meta.mode() & 0o777;
    let wanted = if group_readable { 0o750 } else { 0o700 };
    (mode != wanted).then(|| WrongMode {
        path: path.to_owned(),
        mode,
        wanted,
    })
}

/// Opens a directory; `None`: there is none.
#[expect(clippy::disallowed_methods, reason = "it is opened to be read")]
fn open(path: &Path) -> Result<Option<File>, DirError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    match opened {
        Ok(dir) => Ok(Some(dir)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(_) if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) => {
            Err(DirError::Link(path.to_owned()))
        }
        Err(e) => Err(FileError::new("read directory", path, e).into()),
    }
}

/// Checks that it is a directory of this user and, where the group may read it, of its group.
fn check_owner(dir: &File, path: &Path, group_readable: bool) -> Result<Metadata, DirError> {
    let read = dir.metadata();
    let meta = read.map_err(|e| FileError::new("read directory", path, e))?;
    if !meta.is_dir() {
        return Err(DirError::NotADirectory(path.to_owned()));
    }
    let owner = Uid::from_raw(meta.uid());
    if owner != getuid() {
        return Err(DirError::Foreign {
            path: path.to_owned(),
            kind: "user",
            me: user_name(getuid()),
            owner: user_name(owner),
            remedy: remedy(path, owner, None),
        });
    }
    let group = Gid::from_raw(meta.gid());
    if group_readable && group != getgid() && group != Gid::from_raw(0) {
        return Err(DirError::Foreign {
            path: path.to_owned(),
            kind: "group",
            me: group_name(getgid()),
            owner: group_name(group),
            remedy: remedy(path, owner, Some(group)),
        });
    }
    Ok(meta)
}

/// Makes sure that `path` is a directory of this user that no other user can read.
///
/// C tor's `check_private_dir`: not a link; owned by the running user; mode 0700, or 0750 and a
/// group that is ours or root if `group_readable`. Wider permissions are narrowed with a warning.
/// `create` makes a missing directory (its parent must exist).
pub fn check_private(path: &Path, create: bool, group_readable: bool) -> Result<(), DirError> {
    let failed = |doing, source| DirError::File(FileError::new(doing, path, source));
    let dir = match open(path)? {
        Some(dir) => dir,
        None if !create => return Err(DirError::Missing(path.to_owned())),
        None => {
            let mode = if group_readable { 0o750 } else { 0o700 };
            DirBuilder::new()
                .mode(mode)
                .create(path)
                .map_err(|e| failed(CREATE_DIRECTORY, e))?;
            open(path)?.ok_or_else(|| DirError::Missing(path.to_owned()))?
        }
    };
    let meta = check_owner(&dir, path, group_readable)?;
    let unwanted = if group_readable { 0o027 } else { 0o077 };
    let mode = meta.mode() & 0o7777;
    let wanted = if group_readable {
        // C tor makes it readable even where it was narrower.
        (mode | 0o750) & !unwanted
    } else if mode & unwanted != 0 {
        (mode | 0o700) & !unwanted
    } else {
        mode
    };
    if mode & unwanted != 0 {
        tracing::warn!(
            "Fixing permissions on directory {} ({mode:04o} to {wanted:04o})",
            path.display()
        );
    }
    if wanted != mode {
        // By the open handle: the name could point elsewhere by now.
        dir.set_permissions(Permissions::from_mode(wanted))
            .map_err(|e| failed("change the permissions of", e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_missing_directory_is_made_private_or_reported() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().join("d");
        assert!(matches!(
            check_private(&d, false, false),
            Err(DirError::Missing(_))
        ));
        check_private(&d, true, false).unwrap();
        assert_eq!(mode(&d), 0o700);
        let g = dir.path().join("g");
        check_private(&g, true, true).unwrap();
        assert_eq!(mode(&g), 0o750);
        assert!(check_private(&dir.path().join("no/parent"), true, false).is_err());
    }

    #[test]
    fn wide_permissions_are_narrowed() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().join("d");
        fs::create_dir(&d).unwrap();
        for (before, group, after) in [
            (0o755, false, 0o700),
            (0o777, true, 0o750),
            (0o700, true, 0o750),
            (0o500, false, 0o500),
        ] {
            fs::set_permissions(&d, Permissions::from_mode(before)).unwrap();
            check_private(&d, true, group).unwrap();
            assert_eq!(mode(&d), after, "from {before:o}");
        }
    }

    #[test]
    fn a_wrong_mode_is_found_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().join("d");
        assert_eq!(wrong_mode(&d, false), None, "it is not there");
        fs::create_dir(&d).unwrap();
        for (mode, group, wanted) in [
            (0o700, false, None),
            (0o2700, false, None),
            (0o750, true, None),
            (0o750, false, Some(0o700)),
            (0o700, true, Some(0o750)),
            (0o755, true, Some(0o750)),
            (0o500, false, Some(0o700)),
        ] {
            fs::set_permissions(&d, Permissions::from_mode(mode)).unwrap();
            let found = wrong_mode(&d, group);
            assert_eq!(found.as_ref().map(|of| of.wanted), wanted, "{mode:o}");
            assert!(found.is_none_or(|of| of.mode == mode && of.path == d));
            assert_eq!(fs::metadata(&d).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    fn files_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let f = dir.path().join("f");
        fs::write(&f, "").unwrap();
        assert!(matches!(
            check_private(&f, true, false),
            Err(DirError::NotADirectory(_))
        ));
        let l = dir.path().join("l");
        std::os::unix::fs::symlink(dir.path(), &l).unwrap();
        assert!(matches!(
            check_private(&l, true, false),
            Err(DirError::Link(_))
        ));
    }

    #[test]
    fn a_foreign_owner_is_named_with_advice() {
        // "/" belongs to root; anyone else's directory where we are root ourselves.
        let dir = tempfile::tempdir().unwrap();
        let foreign = if getuid().is_root() {
            nix::unistd::chown(dir.path(), Some(Uid::from_raw(12345)), None).unwrap();
            dir.path().to_owned()
        } else {
            PathBuf::from("/")
        };
        let message = check_private(&foreign, true, false)
            .unwrap_err()
            .to_string();
        assert!(message.contains("wrong user"), "{message}");
        if getuid().is_root() {
            assert!(message.contains("12345"), "{message}");
            // Root must not take it from its owner.
            let command =
                "run it as the owner (setpriv --reuid 12345 --regid 12345 --clear-groups)";
            assert!(message.ends_with(command), "{message}");
            let nobody = User::from_name("nobody").unwrap().unwrap();
            nix::unistd::chown(&foreign, Some(nobody.uid), None).unwrap();
            let message = could_be_private(&foreign, false).unwrap_err().to_string();
            assert!(message.ends_with("(runuser -u nobody)"), "{message}");
        }
    }
}
