//! The folder of a testbed in /run: a lock, the process, and what there is to remove.
//!
//! The lock is held by the testbed's process and by its guardian. So a folder whose lock is free is what a
//! crash left of both, and [`clean`] removes it with the namespaces that it lists. Nothing else is
//! ever removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::namespace::Namespace;

/// Where the folders are.
const FOLDER: &str = "/run/weft-net";
/// Prefix of every namespace's name.
const PREFIX: &str = "weft-";
/// A testbed that was asked to end takes no longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// A testbed whose process has ended is removed by its guardian within this.
const CLEANING: Duration = Duration::from_secs(10);
/// Interval at which that is checked.
const LOOK: Duration = Duration::from_millis(50);

/// The folder of one testbed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) lock: File,
}

impl Place {
    /// Makes the folder of a testbed of this name, and removes what a crash left of one before. One that is ending
    /// is waited for.
    pub(super) fn take(name: &str, namespaces: &[Namespace]) -> Result<Place> {
        let folder = Path::new(FOLDER).join(name);
        let begun = Instant::now();
        let lock = loop {
            match lock(&folder, true)? {
                Lock::Free(lock) => break lock,
                _ if is_ending(&folder) && begun.elapsed() < CLEANING => thread::sleep(LOOK),
                _ => bail!(
                    "a testbed named {name} is up{}: wait for its end, or end it with `weft lab net down {name}`; \
                     `weft lab net up` gives another name by --name",
                    process(&folder).map_or(String::new(), |pid| format!(", process {pid}"))
                ),
            }
        };
        remove_namespaces(&folder)?;
        if let Some(taken) = namespaces.iter().find(|space| space.is_there()) {
            bail!(
                "there is a network namespace {} that no testbed of ours has made: give this one another name \
                 with --name",
                taken.name
            );
        }
        let list: String = namespaces
            .iter()
            .map(|space| format!("{}\n", space.name))
            .collect();
        write(&folder, "process", &format!("{}\n", std::process::id()))?;
        // Before they are made, so that none is forgotten.
        write(&folder, "namespaces", &list)?;
        Ok(Place { folder, lock })
    }

    /// From now on a testbed of this name waits for the end of this one, and is not refused.
    pub(super) fn note_ending(&self) {
        // If that fails, it is refused.
        let _ = fs::remove_file(self.folder.join("process"));
    }
}

/// The namespace of a host.
pub(super) fn namespace(testbed: &str, host: &str) -> Namespace {
    Namespace {
        name: format!("{PREFIX}{testbed}-{host}"),
    }
}

/// Testbeds found by [`clean`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Testbeds with leftovers of a crash; they are removed.
    pub removed: Vec<String>,
    /// Testbeds that are up, with their process if it is known; nothing of them is touched.
    pub up: Vec<(String, Option<u32>)>,
}

/// Removes what crashed testbeds left.
///
/// # Errors
///
/// The system refuses.
pub fn clean() -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cleaned),
        Err(error) => return Err(error).with_context(|| format!("cannot read {FOLDER}")),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names {
        let folder = Path::new(FOLDER).join(&name);
        match lock(&folder, false)? {
            Lock::Free(_lock) => {
                remove_namespaces(&folder)?;
                fs::remove_dir_all(&folder)
                    .with_context(|| format!("cannot remove {}", folder.display()))?;
                cleaned.removed.push(name);
            }
            Lock::Held => cleaned.up.push((name, process(&folder))),
            // It has just ended.
            Lock::Gone => {}
        }
    }
    Ok(cleaned)
}

/// Ends the testbed of this name, and waits until everything of it is removed.
///
/// # Errors
///
/// There is none, or it does not end.
pub fn down(name: &str) -> Result<()> {
    // A part of a path.
    ensure!(
        !name.is_empty() && !name.contains(['/', '.']),
        "\"{name}\" is no name of a testbed"
    );
    let folder = Path::new(FOLDER).join(name);
    let begun = Instant::now();
    let mut is_asked = false;
    loop {
        match lock(&folder, false)? {
            Lock::Gone => {
                ensure!(is_asked, "no testbed named {name} is up");
                return Ok(());
            }
            Lock::Free(_lock) => {
                remove_namespaces(&folder)?;
                return fs::remove_dir_all(&folder)
                    .with_context(|| format!("cannot remove {}", folder.display()));
            }
            Lock::Held => {}
        }
        if !is_asked && let Some(pid) = process(&folder) {
            // Its process may be gone, and its guardian be at work.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
        }
        is_asked = true;
        ensure!(
            begun.elapsed() < PATIENCE,
            "the testbed {name} has not ended after {PATIENCE:?}{}",
            process(&folder).map_or(String::new(), |pid| format!(": look at process {pid}"))
        );
        thread::sleep(LOOK);
    }
}

/// State of a folder's lock.
enum Lock {
    /// It was free, and is ours while this file is open.
    Free(File),
    /// A testbed or its guardian holds it.
    Held,
    /// There is no such folder.
    Gone,
}

/// Takes the lock of a folder if it is free; `create` makes the folder first. The one that had the lock before may
/// have removed the folder meanwhile: then the lock is one of a file that is not there any more.
fn lock(folder: &Path, create: bool) -> Result<Lock> {
    let path = folder.join("lock");
    let context = || format!("cannot lock {}", path.display());
    for _ in 0..100 {
        if create {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut options = File::options();
        let file = match options.create(true).append(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => match create {
                true => continue,
                false => return Ok(Lock::Gone),
            },
            Err(error) => return Err(error).with_context(context),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Lock::Held),
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        let locked = file.metadata().with_context(context)?.ino();
        if fs::metadata(&path).is_ok_and(|there| there.ino() == locked) {
            return Ok(Lock::Free(file));
        }
    }
    bail!("{} is removed again and again", folder.display())
}

fn process(folder: &Path) -> Option<u32> {
    let text = fs::read_to_string(folder.join("process")).ok()?;
    text.trim().parse().ok()
}

/// True if the process of a testbed whose lock is held has ended, so that only its guardian holds
/// the lock. Also true if the folder names no process: the testbed is about to begin or to end.
fn is_ending(folder: &Path) -> bool {
    let Some(pid) = process(folder) else {
        return true;
    };
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // Behind the program's name in parentheses: a process that ended is a zombie until its parent asks.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// Removes the namespaces that a folder lists.
fn remove_namespaces(folder: &Path) -> Result<()> {
    let path = folder.join("namespaces");
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    for name in list.lines().filter(|name| name.starts_with(PREFIX)) {
        let name = name.to_owned();
        Namespace { name }.remove()?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
