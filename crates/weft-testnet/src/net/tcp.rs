//! The congestion control of TCP in network namespaces.
//!
//! The kernel lets a namespace choose only among those that are allowed to everybody (`ip-sysctl`,
//! `tcp_allowed_congestion_control`), a list of the whole machine. So one that is not in it is added for the moment of
//! the choice, and taken out again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Held while the list is changed, by any process.
const LOCK: &str = "/run/weft-net-tcp.lock";

fn setting(name: &str) -> PathBuf {
    Path::new("/proc/sys/net/ipv4").join(format!("tcp_{name}congestion_control"))
}

/// One that namespaces may choose until this is dropped.
#[derive(Debug)]
pub(super) struct Allowed {
    /// The list as it was, if it had to be changed.
    before: Option<String>,
    _lock: File,
}

impl Allowed {
    /// Lets namespaces choose this one.
    ///
    /// # Errors
    ///
    /// The kernel does not have it, or the system refuses.
    pub(super) fn add(name: &str) -> Result<Allowed> {
        let lock = File::create(LOCK).with_context(|| format!("cannot make {LOCK}"))?;
        lock.lock().with_context(|| format!("cannot lock {LOCK}"))?;
        let list = |which: &str| {
            let path = setting(which);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let has = |list: &str| list.split_whitespace().any(|one| one == name);
        let available = list("available_")?;
        ensure!(
            has(&available),
            "this kernel has no congestion control \"{name}\" of TCP, it has {}: load the module tcp_{name}, or choose \
             another one by `tcp` in the topology",
            available.trim()
        );
        let before = list("allowed_")?;
        if has(&before) {
            return Ok(Allowed {
                before: None,
                _lock: lock,
            });
        }
        write(&setting("allowed_"), &format!("{} {name}", before.trim()))?;
        Ok(Allowed {
            before: Some(before),
            _lock: lock,
        })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // More is allowed than was: nothing depends on that.
            let _ = write(&setting("allowed_"), before.trim());
        }
    }
}

/// Sets it in the network namespace of the calling thread.
///
/// # Errors
///
/// It is not [`Allowed`].
pub(super) fn choose(name: &str) -> Result<()> {
    write(&setting(""), name)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}
