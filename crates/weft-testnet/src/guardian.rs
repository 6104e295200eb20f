//! A guardian: a small shell that outlives us by a moment and ends what we started.
//!
//! The kernel can end a child together with its parent (`PR_SET_PDEATHSIG`), but only from `unsafe`
//! code between fork and exec, and "parent" means the *thread* that forked. A guardian needs
//! neither: it reads names of process groups and of a folder from a pipe. When the pipe ends,
//! because we closed it or because we are gone for whatever reason, it kills those groups and
//! removes the folder. It also removes the network namespaces that it was given, with their
//! processes. It is in a separate process group, so that Ctrl-C, which reaches every process of the
//! terminal's foreground group, does not end it first.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

/// The guardian's shell script. `$1` is the folder to remove, empty for none.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=" "
namespaces=""
while read -r verb group; do
    case $verb in
        watch) groups="$groups$group " ;;
        forget) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
        namespace) namespaces="$namespaces$group " ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
for name in $namespaces; do
    for process in $(ip netns pids "$name" 2>/dev/null); do kill -s KILL "$process" 2>/dev/null; done
    ip netns del "$name" 2>/dev/null
done
# The lock of a testbed last: without it the folder can be that of the next one.
[ -z "$1" ] || rm -f -- "$1/process" "$1/namespaces"
[ -z "$1" ] || rm -rf -- "$1"
"#;

/// A new temporary folder for nodes.
pub fn temporary_folder() -> Result<PathBuf> {
    let folder = tempfile::Builder::new()
        .prefix("weft-lab-")
        .tempdir()
        .context("creating a folder for the private network")?;
    Ok(folder.keep())
}

/// True if folders are to be kept, for people who want to read logs afterwards.
pub fn keep_folders() -> bool {
    std::env::var_os("WEFT_LAB_KEEP").is_some()
}

/// Ends the watched process groups and removes the folder when dropped, or when we die.
#[derive(Debug)]
pub struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guardian {
    /// Starts a guardian that in the end removes `folder`, if one is given.
    pub fn start(folder: Option<&Path>) -> Result<Guardian> {
        Self::start_with(folder, Stdio::null())
    }

    /// Starts a guardian that has `lock` open until it has done all this.
    pub(crate) fn start_holding(folder: &Path, lock: File) -> Result<Guardian> {
        Self::start_with(Some(folder), lock.into())
    }

    fn start_with(folder: Option<&Path>, stdout: Stdio) -> Result<Guardian> {
        let folder = folder.map_or_else(PathBuf::new, Path::to_owned);
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "weft-lab-guardian"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("starting the guardian shell /bin/sh, which ends our processes when we die")?;
        let pipe = shell.stdin.take();
        Ok(Guardian { shell, pipe })
    }

    /// From now on this process group dies with us.
    pub fn watch(&mut self, group: u32) -> Result<()> {
        self.send("watch", group)
    }

    /// This process group has ended; the system may use its number again.
    pub fn forget(&mut self, group: u32) -> Result<()> {
        self.send("forget", group)
    }

    /// From now on this network namespace, as `ip netns` names it, is removed with us.
    pub(crate) fn watch_namespace(&mut self, name: &str) -> Result<()> {
        self.send("namespace", name)
    }

    fn send(&mut self, verb: &str, what: impl Display) -> Result<()> {
        let pipe = self
            .pipe
            .as_mut()
            .context("the guardian has been dismissed")?;
        pipe.write_all(format!("{verb} {what}\n").as_bytes())
            .with_context(|| format!("sending \"{verb} {what}\" to the guardian"))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Nothing can be done about a guardian that cannot be waited for.
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .expect("sleep starts")
    }

    #[test]
    fn a_dropped_guardian_ends_what_it_watches_and_removes_its_folder() {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let mut guardian = Guardian::start(Some(&folder)).expect("a guardian");
        let mut watched = [sleeper(), sleeper(), sleeper()];
        for child in &watched {
            guardian.watch(child.id()).expect("it hears us");
        }
        drop(guardian);
        for child in &mut watched {
            let status = child.wait().expect("the child ends");
            assert!(!status.success(), "killed, not finished");
        }
        assert!(!folder.exists());
    }

    #[test]
    fn a_forgotten_group_lives_on_and_the_others_do_not() {
        let mut guardian = Guardian::start(None).expect("a guardian");
        let mut children = [sleeper(), sleeper(), sleeper()];
        for child in &children {
            guardian.watch(child.id()).expect("it hears us");
        }
        guardian.forget(children[1].id()).expect("it hears us");
        drop(guardian);
        assert!(!children[0].wait().expect("the first ends").success());
        assert!(!children[2].wait().expect("the third ends").success());
        assert!(
            children[1]
                .try_wait()
                .expect("the second can be asked")
                .is_none()
        );
        children[1].kill().expect("the second can be ended");
        children[1].wait().expect("the second ends");
    }
}
