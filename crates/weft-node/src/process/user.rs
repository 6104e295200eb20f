//! `User`: drops root's privileges for good.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{
    Gid, Uid, User, getgid, getgroups, getuid, setegid, seteuid, setgid, setgroups, setresgid,
    setresuid, setuid,
};
use weft_config::Options;

/// The process could not become the user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The system has no such user.
    #[error(
        "error setting configured user: {0} not found. Make that user, or change the User option"
    )]
    NotFound(String),
    /// The user database cannot be read.
    #[error("error looking up user {name}: {source}")]
    Lookup {
        /// The option's value.
        name: String,
        /// The system's error.
        source: nix::Error,
    },
    /// The process lacks the privilege.
    #[error(
        "error becoming user {name} ({step}): {source}. If you set the \"User\" option, you must \
         start Weft as root"
    )]
    Refused {
        /// The option's value.
        name: String,
        /// The call that failed.
        step: &'static str,
        /// The system's error.
        source: nix::Error,
    },
    /// The right to bind low ports cannot be kept.
    #[error(
        "KeepBindCapabilities: the right to bind ports below 1024 cannot be kept: {0}. If you set the \"User\" option, you \
         must start Weft as root"
    )]
    Capabilities(CapsError),
    /// The process could get its old credentials back.
    #[error(
        "was able to restore {0} credentials even after switching: dropping privileges did not work"
    )]
    Restored(&'static str),
}

/// Looks a user up.
///
/// # Errors
///
/// [`UserError::NotFound`], [`UserError::Lookup`].
pub(crate) fn find(name: &str) -> Result<User, UserError> {
    let found = User::from_name(name).map_err(|source| UserError::Lookup {
        name: name.to_owned(),
        source,
    })?;
    found.ok_or_else(|| UserError::NotFound(name.to_owned()))
}

/// Changes to user `name` and its primary group, with no other group and no way back (C tor's
/// `switch_id`). Does nothing if the process runs as `name` already. `keep_bind`: the right to bind ports below 1024
/// stays, and no other.
///
/// Ports below 1024 must be bound before. Call it while the process has a single thread.
pub(crate) fn drop_privileges(name: &str, keep_bind: bool) -> Result<(), UserError> {
    let user = find(name)?;
    become_user(name, user.uid, user.gid, keep_bind)
}

fn become_user(name: &str, uid: Uid, gid: Gid, keep_bind: bool) -> Result<(), UserError> {
    let (old_uid, old_gid) = (getuid(), getgid());
    if old_uid == uid && Uid::effective() == uid && !old_uid.is_root() {
        tracing::info!(
            "Already running as {name}: the \"User\" option has nothing to do. (If it is not in \
             your torrc, check whether a startup script gives it.)"
        );
        return Ok(());
    }
    let groups = getgroups().unwrap_or_default();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    tracing::info!(
        "Changing user and groups: UID {old_uid} to {uid}, GID {old_gid} to {gid}, groups were {}",
        groups.join(" ")
    );
    let refused = |step| {
        move |source| UserError::Refused {
            name: name.to_owned(),
            step,
            source,
        }
    };
    if keep_bind {
        keep_capabilities(true).map_err(UserError::Capabilities)?;
    }
    // Groups first: changing them needs the privileges that the user id has.
    setgroups(&[gid]).map_err(refused("setgroups"))?;
    setresgid(gid, gid, gid).map_err(refused("setresgid"))?;
    setresuid(uid, uid, uid).map_err(refused("setresuid"))?;
    if keep_bind {
        keep_capabilities(false).map_err(UserError::Capabilities)?;
    }
    if !uid.is_root() {
        check_dropped(uid, gid, old_uid, old_gid)?;
        // Changing ids turned core dumps off; the process holds no secrets of root.
        if let Err(e) = nix::sys::prctl::set_dumpable(true) {
            tracing::warn!("Unable to re-enable coredumps: {e}");
        }
    }
    Ok(())
}

/// Becomes the node's user for good, if this process is root's. From then on it can read and write
/// what the node can. Must be called while the process has a single thread.
///
/// # Errors
///
/// [`UserError`].
pub fn become_configured(options: &Options) -> Result<(), UserError> {
    match node_user(options)? {
        Some((name, uid, gid)) => become_user(&name, uid, gid, false),
        None => Ok(()),
    }
}

/// The user whom a process of root's becomes to be the node's: the one that torrc names or, where it names none, the owner
/// of DataDirectory, as whom a service manager starts the node. `None`: the process stays who it is.
fn node_user(options: &Options) -> Result<Option<(String, Uid, Gid)>, UserError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    Ok(match &options.process.user {
        Some(name) => {
            let user = find(name)?;
            Some((name.clone(), user.uid, user.gid))
        }
        None => other_owner(&options.files.data_directory)
            .map(|(uid, gid)| (format!("with id {uid}"), uid, gid)),
    })
}

/// Owner and group of a directory that is not root's; `None`: it is, or is not there.
fn other_owner(directory: &Path) -> Option<(Uid, Gid)> {
    // Of a link nothing follows: a node refuses it.
    let meta = fs::symlink_metadata(directory).ok()?;
    let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
    (meta.is_dir() && !uid.is_root()).then_some((uid, gid))
}

/// Runs `work` as the node's user, if this process is root's, and becomes root again after it: `work` can open the files that
/// the node can. After an error the process may be either user, and should end.
///
/// # Errors
///
/// [`UserError`].
pub fn as_configured<T>(options: &Options, work: impl FnOnce() -> T) -> Result<T, UserError> {
    match node_user(options)? {
        Some((name, uid, gid)) => as_user(&name, uid, gid, work),
        None => Ok(work()),
    }
}

/// Runs `work` as this user.
fn as_user<T>(name: &str, uid: Uid, gid: Gid, work: impl FnOnce() -> T) -> Result<T, UserError> {
    let refused = |step| {
        move |source| UserError::Refused {
            name: name.to_owned(),
            step,
            source,
        }
    };
    let (root, group) = (Uid::effective(), Gid::effective());
    let groups = getgroups().map_err(refused("getgroups"))?;
    // The real user stays root: the node's user can neither trace nor signal this process.
    setgroups(&[gid]).map_err(refused("setgroups"))?;
    setegid(gid).map_err(refused("setegid"))?;
    seteuid(uid).map_err(refused("seteuid"))?;
    let result = work();
    seteuid(root).map_err(refused("seteuid"))?;
    setegid(group).map_err(refused("setegid"))?;
    setgroups(&groups).map_err(refused("setgroups"))?;
    Ok(result)
}

/// Gives up every capability but that of binding low ports and, before the process becomes another user, those that
/// this takes (`drop_capabilities`).
fn keep_capabilities(is_before: bool) -> Result<(), CapsError> {
    let bind = [Capability::CAP_NET_BIND_SERVICE];
    let changes_user = [Capability::CAP_SETUID, Capability::CAP_SETGID];
    let kept: CapsHashSet = match is_before {
        true => bind.iter().chain(&changes_user).copied().collect(),
        false => bind.into_iter().collect(),
    };
    nix::sys::prctl::set_keepcaps(is_before).map_err(|why| CapsError::from(why.to_string()))?;
    // The effective capabilities are a part of the permitted ones, at each step.
    if is_before {
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)?;
    } else {
        caps::set(None, CapSet::Permitted, &kept)?;
        caps::set(None, CapSet::Effective, &kept)?;
    }
    Ok(())
}

/// Tries to get the old credentials back; success is an error.
fn check_dropped(uid: Uid, gid: Gid, old_uid: Uid, old_gid: Gid) -> Result<(), UserError> {
    if gid != old_gid && (setgid(old_gid).is_ok() || setegid(old_gid).is_ok()) {
        return Err(UserError::Restored("group"));
    }
    if uid != old_uid && (setuid(old_uid).is_ok() || seteuid(old_uid).is_ok()) {
        return Err(UserError::Restored("user"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// No separate test: another test runs it in a separate process.
    #[test]
    #[ignore = "changes the user of its process"]
    fn child_for_a_while() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let before = (getgroups().unwrap(), Gid::effective());
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "of root").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let read = || fs::read_to_string(&secret);
        let during = as_user("nobody", nobody.uid, nobody.gid, || {
            (Uid::effective(), Gid::effective(), getgroups(), read())
        });
        let (user, group, groups, denied) = during.unwrap();
        assert_eq!((user, group), (nobody.uid, nobody.gid));
        assert_eq!(groups.unwrap(), [nobody.gid]);
        assert!(denied.is_err());
        assert_eq!((getgroups().unwrap(), Gid::effective()), before);
        assert_eq!(read().unwrap(), "of root");
        drop(folder);
        // It can still become that user for good.
        drop_privileges("nobody", false).unwrap();
        assert_eq!(getuid(), nobody.uid);
    }

    /// No separate test: the next test runs it in another process.
    #[test]
    #[ignore = "changes the user of its process"]
    fn child() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        drop_privileges("nobody", true).unwrap();
        let bind: CapsHashSet = [Capability::CAP_NET_BIND_SERVICE].into();
        for set in [CapSet::Permitted, CapSet::Effective] {
            assert_eq!(caps::read(None, set).unwrap(), bind);
        }
        assert_eq!(nix::unistd::getresuid().unwrap().saved, nobody.uid);
        assert_eq!(nix::unistd::getresgid().unwrap().saved, nobody.gid);
        assert_eq!(getgroups().unwrap(), [nobody.gid]);
        assert!(setuid(Uid::from_raw(0)).is_err() && setgid(Gid::from_raw(0)).is_err());
        // Becoming the current user again is no error, and another user is refused.
        drop_privileges("nobody", false).unwrap();
        let error = drop_privileges("root", false).unwrap_err().to_string();
        assert!(error.contains("must start Weft as root"), "{error}");
    }

    /// No separate test: a test below runs it in another process.
    #[test]
    #[ignore = "changes the user of its process"]
    fn owners_child() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let torrc = format!("DataDirectory {}\nSocksPort 9050\n", data.display());
        let host = weft_config::MemoryHost::new();
        let options = weft_config::load_text(&torrc, &host).unwrap().options;
        let become_it = || {
            become_configured(&options).unwrap();
            nix::unistd::getresuid().unwrap().saved.as_raw()
        };
        assert_eq!(become_it(), 0, "it is not there");
        fs::create_dir(&data).unwrap();
        assert_eq!(become_it(), 0, "it is root's");
        nix::unistd::chown(
            &data,
            Some(Uid::from_raw(12345)),
            Some(Gid::from_raw(54321)),
        )
        .unwrap();
        assert_eq!(become_it(), 12345);
        assert_eq!(nix::unistd::getresgid().unwrap().saved.as_raw(), 54321);
        assert_eq!(getgroups().unwrap(), [Gid::from_raw(54321)]);
        assert!(setuid(Uid::from_raw(0)).is_err());
        assert_eq!(become_it(), 12345, "again");
        // Its folder is root's, who removes it.
        std::mem::forget(folder);
    }

    #[test]
    fn root_becomes_an_ordinary_user_for_good() {
        if !getuid().is_root() {
            let error = drop_privileges("root", false).unwrap_err().to_string();
            assert!(error.contains("must start Weft as root"), "{error}");
            weft_testing::not_run!("only root can become another user; the refusal is tested");
            return;
        }
        passes("process::user::tests::child");
    }

    #[test]
    fn root_becomes_an_ordinary_user_for_a_while() {
        if !getuid().is_root() {
            weft_testing::not_run!("only root can become another user");
            return;
        }
        passes("process::user::tests::child_for_a_while");
    }

    #[test]
    fn without_user_root_becomes_the_owner_of_the_data_directory() {
        if !getuid().is_root() {
            weft_testing::not_run!("only root can become another user");
            return;
        }
        passes("process::user::tests::owners_child");
    }

    /// Runs an ignored test in another process, with a folder that is removed after it.
    fn passes(test: &str) {
        let folder = tempfile::tempdir().unwrap();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--test-threads=1"])
            .env("TMPDIR", folder.path())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && output.contains("1 passed"),
            "{output}"
        );
    }

    #[test]
    fn an_unknown_user_is_named() {
        let error = drop_privileges("no-such-user-here", false).unwrap_err();
        assert!(
            error.to_string().contains("no-such-user-here not found"),
            "{error}"
        );
    }
}
