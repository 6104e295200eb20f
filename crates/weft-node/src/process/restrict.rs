//! Restrictions that the process puts on itself: no swap space, no inspection by other processes,
//! no starting of programs (C tor: `restrict.c`).

use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use weft_config::options::ProcessOptions;

use crate::notice;

/// Memory cannot be kept out of swap space.
#[derive(Debug, thiserror::Error)]
#[error(
    "DisableAllSwap failure. Do you have proper permissions? {source}: start Weft as root, or raise the limit on locked \
     memory (ulimit -l, LimitMEMLOCK)"
)]
pub struct SwapError {
    /// The system's error.
    pub source: nix::Error,
}

/// Keeps all memory, now and from now on, out of swap space. Call it before the process becomes another user.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn disable_swap(options: &ProcessOptions) -> Result<(), SwapError> {
    if !options.disable_all_swap {
        return Ok(());
    }
    // Without the right to raise the limit, it may be high enough.
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        tracing::debug!("RLIMIT_MEMLOCK is now set to RLIM_INFINITY.");
    }
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|source| SwapError { source })?;
    tracing::info!("Insecure OS paging is effectively disabled.");
    Ok(())
}

/// Gives up what torrc asks for. Call it when the process is the user that it stays.
pub(crate) fn restrict(options: &ProcessOptions) {
    if !options.disable_debugger_attachment {
        notice!("Not disabling debugger attaching for unprivileged users.");
    } else if let Err(why) = prctl::set_dumpable(false) {
        tracing::warn!("Unable to disable debugger attaching: {why}");
    }
    // NoExec: the process never starts programs, so an attacker who takes it over cannot gain
    // rights by one either.
    if options.no_exec
        && let Err(why) = prctl::set_no_new_privs()
    {
        tracing::warn!(
            "NoExec: the process may still gain privileges by a program that it starts: {why}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> ProcessOptions {
        let loaded = weft_config::load_text(text, &weft_config::MemoryHost::new());
        loaded.unwrap().options.process
    }

    /// No separate test: the next test runs it in another process.
    #[test]
    #[ignore = "restricts its process"]
    fn child() {
        restrict(&options("DisableDebuggerAttachment 0\n"));
        assert!(prctl::get_dumpable().unwrap() && !prctl::get_no_new_privs().unwrap());
        restrict(&options("NoExec 1\n"));
        assert!(!prctl::get_dumpable().unwrap() && prctl::get_no_new_privs().unwrap());
        disable_swap(&options("")).unwrap();
        let locked = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmLck:"));
            line.unwrap()
                .split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        assert_eq!(locked(), 0);
        match disable_swap(&options("DisableAllSwap 1\n")) {
            Ok(()) => assert!(locked() > 0),
            Err(why) => assert!(why.to_string().contains("LimitMEMLOCK"), "{why}"),
        }
    }

    #[test]
    fn a_process_gives_up_what_torrc_asks_for() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "process::restrict::tests::child",
                "--ignored",
                "--test-threads=1",
            ])
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && output.contains("1 passed"),
            "{output}"
        );
    }
}
