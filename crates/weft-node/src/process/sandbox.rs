//! `Sandbox`: the system calls that the process may make from now on (C tor: `sandbox.c`).
//!
//! The list is what a relay and a client call in the tests and in networks of `weft lab`. It has no call that starts a
//! program, makes memory executable, changes users or looks into other processes. A call that is not on it, or has
//! other arguments than those on it, is not made: it returns EPERM, and the main thread logs its name within a second
//! ([`denied`]); if the thread blocks SIGSYS, the process ends. Making a process returns EPERM without a name. Paths of files are not restricted: seccomp sees their addresses, not their texts.
//!
//! All threads have the filter: it is installed before the first of them starts, and inherited. Threads that do one
//! thing alone narrow it down for themselves ([`narrow`]).

mod calls;
mod rules;
mod trap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, apply_filter_all_threads,
};

use rules::{Rules, failed};

pub(crate) use rules::{Role, SandboxError};
pub(crate) use trap::denied;

/// Restricts the process. Call it while it has one thread, before others start.
///
/// # Errors
///
/// The kernel refuses.
pub(crate) fn enter() -> Result<(), SandboxError> {
    trap::install().map_err(failed)?;
    // Calls whose arguments a filter cannot see, and that have an older form with visible ones:
    // refused, so that the C library uses the older form.
    let hidden = calls::WITHOUT_ARGUMENTS.map(|call| (call, Vec::new()));
    let errno = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let hide = program(hidden.into(), SeccompAction::Allow, errno(libc::ENOSYS))?;
    // The C library makes processes with all signals blocked: SIGSYS would end this one.
    let alone = program(
        calls::processes()?,
        SeccompAction::Allow,
        errno(libc::EPERM),
    )?;
    let allow = program(calls::all()?, SeccompAction::Trap, SeccompAction::Allow)?;
    for filter in [&allow, &hide, &alone] {
        apply_filter_all_threads(filter).map_err(failed)?;
    }
    Ok(())
}

/// True if the process is restricted.
pub(crate) fn is_active() -> bool {
    trap::is_installed()
}

/// Restricts the calling thread further, where the process is restricted.
pub(crate) fn narrow(role: Role) {
    if !is_active() {
        return;
    }
    let narrowed = calls::of(role)
        .and_then(|rules| program(rules, SeccompAction::Trap, SeccompAction::Allow))
        .and_then(|filter| apply_filter(&filter).map_err(failed));
    if let Err(why) = narrowed {
        tracing::warn!("A thread has the whole process's system calls: {why}");
    }
}

fn program(
    rules: Rules,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, SandboxError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    SeccompFilter::new(rules, others, these, arch)
        .and_then(BpfProgram::try_from)
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    /// Checks that the first thread of a process could be sent a signal.
    #[expect(unsafe_code, reason = "the C library has no such function")]
    fn tgkill(process: i32) -> Result<(), Option<i32>> {
        // SAFETY: the call takes three numbers and touches no memory; signal 0 is none.
        match unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error()),
        }
    }

    /// No separate test: the next test runs it in another process.
    #[test]
    #[ignore = "restricts its process"]
    fn child() {
        let folder = tempfile::tempdir().unwrap();
        let before = std::thread::spawn(std::thread::park);
        enter().unwrap();
        before.thread().unpark();
        before.join().unwrap();
        // Files, sockets, threads.
        std::fs::write(folder.path().join("a"), "a").unwrap();
        std::fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        std::fs::create_dir(folder.path().join("c")).unwrap();
        std::fs::remove_file(folder.path().join("b")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || std::net::TcpStream::connect(to));
        listener.accept().unwrap();
        client.join().unwrap().unwrap();
        UnixListener::bind(folder.path().join("s")).unwrap();
        nix::sys::signal::kill(nix::unistd::getpid(), None).unwrap();
        tgkill(nix::unistd::getpid().as_raw()).unwrap();
        assert_eq!(denied(), [""; 0], "what a relay does is allowed");
        // Programs, other users, other processes.
        assert!(std::process::Command::new("/bin/true").spawn().is_err());
        assert!(nix::unistd::execv(c"/bin/true", &[c"true"]).is_err());
        assert!(nix::unistd::setuid(nix::unistd::Uid::from_raw(1)).is_err());
        let flags = nix::sched::CloneFlags::CLONE_NEWUSER;
        assert!(nix::sched::unshare(flags).is_err());
        let socket = socket2::Socket::new(17.into(), socket2::Type::RAW, None);
        assert_eq!(socket.unwrap_err().raw_os_error(), Some(libc::EPERM));
        let parent = nix::unistd::getppid().as_raw();
        assert_eq!(tgkill(parent), Err(Some(libc::EPERM)));
        let names = denied();
        for name in ["execve", "setuid", "unshare", "socket", "tgkill"] {
            assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
        }
        assert_eq!(denied(), [""; 0], "each is named once");
        // In threads, and less in those that do one thing.
        let worker = std::thread::spawn(|| {
            narrow(Role::Worker);
            std::fs::read("/proc/self/status").map_err(|why| why.raw_os_error())
        });
        assert_eq!(worker.join().unwrap(), Err(Some(libc::EPERM)));
        let connections = std::thread::spawn(move || {
            narrow(Role::Connections);
            let file = std::fs::read("/proc/self/status").map_err(|why| why.raw_os_error());
            (file, std::net::UdpSocket::bind("127.0.0.1:0").is_err())
        });
        assert_eq!(connections.join().unwrap(), (Err(Some(libc::EPERM)), true));
        assert!(
            std::fs::read("/proc/self/status").is_ok(),
            "the process still may"
        );
    }

    #[test]
    fn what_a_relay_does_not_do_is_denied_and_named() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "process::sandbox::tests::child",
                "--ignored",
                "--test-threads=1",
            ])
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && output.contains("1 passed"),
            "{output}{}",
            String::from_utf8_lossy(&child.stderr)
        );
    }
}
