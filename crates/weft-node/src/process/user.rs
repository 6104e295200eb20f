//! `User`: drops root's privileges for good.

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
    let (old_uid, old_gid) = (getuid(), getgid());
    if old_uid == user.uid && Uid::effective() == user.uid && !old_uid.is_root() {
        tracing::info!(
            "Already running as {name}: the \"User\" option has nothing to do. (If it is not in \
             your torrc, check whether a startup script gives it.)"
        );
        return Ok(());
    }
    let groups = getgroups().unwrap_or_default();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    tracing::info!(
        "Changing user and groups: UID {old_uid} to {}, GID {old_gid} to {}, groups were {}",
        user.uid,
        user.gid,
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
    setgroups(&[user.gid]).map_err(refused("setgroups"))?;
    setresgid(user.gid, user.gid, user.gid).map_err(refused("setresgid"))?;
    setresuid(user.uid, user.uid, user.uid).map_err(refused("setresuid"))?;
    if keep_bind {
        keep_capabilities(false).map_err(UserError::Capabilities)?;
    }
    if !user.uid.is_root() {
        check_dropped(user.uid, user.gid, old_uid, old_gid)?;
        // Changing ids turned core dumps off; the process holds no secrets of root.
        if let Err(e) = nix::sys::prctl::set_dumpable(true) {
            tracing::warn!("Unable to re-enable coredumps: {e}");
        }
    }
    Ok(())
}

/// Becomes the user that torrc names, if this process is root's: what it then writes is that user's, as what the node writes.
/// Call it while the process has a single thread.
///
/// # Errors
///
/// [`UserError`].
pub fn become_configured(options: &Options) -> Result<(), UserError> {
    match &options.process.user {
        Some(name) if Uid::effective().is_root() => drop_privileges(name, false),
        _ => Ok(()),
    }
}

/// Runs `work` as the user that torrc names, if this process is root's, and becomes root again after
/// it: `work` can open the files that the node can. After an error the process may be either user,
/// and should end.
///
/// # Errors
///
/// [`UserError`].
pub fn as_configured<T>(options: &Options, work: impl FnOnce() -> T) -> Result<T, UserError> {
    match &options.process.user {
        Some(name) if Uid::effective().is_root() => as_user(name, work),
        _ => Ok(work()),
    }
}

/// The same for user `name`.
fn as_user<T>(name: &str, work: impl FnOnce() -> T) -> Result<T, UserError> {
    let user = find(name)?;
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
    setgroups(&[user.gid]).map_err(refused("setgroups"))?;
    setegid(user.gid).map_err(refused("setegid"))?;
    seteuid(user.uid).map_err(refused("seteuid"))?;
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
    // What is effective is a part of what is permitted, at each step.
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
    use super::*;

    /// Not a test of its own: another test runs it in a separate process.
    #[test]
    #[ignore = "changes the user of its process"]
    fn child_for_a_while() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        let before = (getgroups().unwrap(), Gid::effective());
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "of root").unwrap();
        let read = || std::fs::read_to_string(&secret);
        let during = as_user("nobody", || {
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

    /// Not a test of its own: the next test runs it in another process.
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
        // The same user again is no error, and another one is refused.
        drop_privileges("nobody", false).unwrap();
        let error = drop_privileges("root", false).unwrap_err().to_string();
        assert!(error.contains("must start Weft as root"), "{error}");
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

    /// Runs an ignored test in another process.
    fn passes(test: &str) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--test-threads=1"])
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
