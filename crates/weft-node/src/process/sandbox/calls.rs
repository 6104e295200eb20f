//! The system calls that are allowed, with their arguments.

use seccompiler::{SeccompCmpArgLen as Len, SeccompCmpOp as Is, SeccompCondition, SeccompRule};

use super::rules::{Role, Rules, SandboxError, failed};

/// Numbers with their names.
macro_rules! calls {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name)),*] };
}

/// A call: `SYS_` and its name, and its number.
type Call = (&'static str, libc::c_long);

/// Memory and threads: what every thread needs.
const COMPUTING: &[Call] = calls![
    SYS_brk,
    SYS_clock_getres,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_getcpu,
    SYS_getpid,
    SYS_getrandom,
    SYS_getrusage,
    SYS_gettid,
    SYS_gettimeofday,
    SYS_madvise,
    SYS_membarrier,
    SYS_mremap,
    SYS_munmap,
    SYS_nanosleep,
    SYS_restart_syscall,
    SYS_rseq,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sched_getaffinity,
    SYS_sched_yield,
    SYS_seccomp,
    SYS_set_robust_list,
    SYS_sigaltstack,
    SYS_sysinfo,
    SYS_uname,
];

/// Bytes from and to what is open already, and waiting for it: what threads with sockets need.
const OPEN_FILES: &[Call] = calls![
    SYS_accept,
    SYS_accept4,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_eventfd2,
    SYS_fcntl,
    SYS_fstat,
    SYS_getpeername,
    SYS_getsockname,
    SYS_getsockopt,
    SYS_lseek,
    SYS_ppoll,
    SYS_pread64,
    SYS_pwrite64,
    SYS_read,
    SYS_readv,
    SYS_recvfrom,
    SYS_recvmmsg,
    SYS_recvmsg,
    SYS_sendmmsg,
    SYS_sendmsg,
    SYS_sendto,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_write,
    SYS_writev,
];

/// Older forms of [`OPEN_FILES`], on architectures that have them.
#[cfg(target_arch = "x86_64")]
const OPEN_FILES_OLD: &[Call] = calls![SYS_dup2, SYS_epoll_create, SYS_epoll_wait, SYS_poll];
/// Older forms of [`OPEN_FILES`]: none here.
#[cfg(not(target_arch = "x86_64"))]
const OPEN_FILES_OLD: &[Call] = &[];

/// Files and sockets that are opened, and what there is to know of the process: what the rest needs.
const OTHERS: &[Call] = calls![
    SYS_bind,
    SYS_connect,
    SYS_copy_file_range,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fadvise64,
    SYS_fallocate,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_fdatasync,
    SYS_flock,
    SYS_fstatfs,
    SYS_fsync,
    SYS_ftruncate,
    SYS_getcwd,
    SYS_getdents64,
    SYS_getegid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getgroups,
    SYS_getppid,
    SYS_getresgid,
    SYS_getresuid,
    SYS_getuid,
    SYS_listen,
    SYS_mkdirat,
    SYS_newfstatat,
    SYS_openat,
    SYS_pipe2,
    SYS_readlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_sendfile,
    SYS_statfs,
    SYS_statx,
    SYS_umask,
    SYS_unlinkat,
    SYS_utimensat,
];

/// Older forms of [`OTHERS`], on architectures that have them.
#[cfg(target_arch = "x86_64")]
const OTHERS_OLD: &[Call] = calls![
    SYS_access,
    SYS_chmod,
    SYS_getdents,
    SYS_getrlimit,
    SYS_lstat,
    SYS_mkdir,
    SYS_open,
    SYS_pipe,
    SYS_readlink,
    SYS_rename,
    SYS_rmdir,
    SYS_stat,
    SYS_unlink,
];
/// Older forms of [`OTHERS`]: none here.
#[cfg(not(target_arch = "x86_64"))]
const OTHERS_OLD: &[Call] = &[];

/// Calls that are allowed with some arguments, or not at all: for their names.
const NAMED: &[Call] = calls![
    SYS_bpf,
    SYS_chroot,
    SYS_clone,
    SYS_clone3,
    SYS_execve,
    SYS_execveat,
    SYS_init_module,
    SYS_io_uring_setup,
    SYS_ioctl,
    SYS_kill,
    SYS_memfd_create,
    SYS_mlockall,
    SYS_mmap,
    SYS_mount,
    SYS_mprotect,
    SYS_perf_event_open,
    SYS_personality,
    SYS_pidfd_open,
    SYS_prctl,
    SYS_prlimit64,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_ptrace,
    SYS_sched_setaffinity,
    SYS_setgid,
    SYS_setgroups,
    SYS_setns,
    SYS_setpriority,
    SYS_setresgid,
    SYS_setresuid,
    SYS_setuid,
    SYS_socket,
    SYS_socketpair,
    SYS_tgkill,
    SYS_unshare,
    SYS_userfaultfd,
    SYS_wait4,
];

/// Older forms of [`PROCESSES`], on architectures that have them.
#[cfg(target_arch = "x86_64")]
const PROCESSES_OLD: &[Call] = calls![SYS_fork, SYS_vfork];
/// Older forms of [`PROCESSES`]: none here.
#[cfg(not(target_arch = "x86_64"))]
const PROCESSES_OLD: &[Call] = &[];

/// Calls whose arguments lie in memory, where no filter sees them.
pub(super) const WITHOUT_ARGUMENTS: [libc::c_long; 1] = [libc::SYS_clone3];

/// The name of a call.
pub(super) fn name(number: usize) -> String {
    let lists = [
        COMPUTING,
        OPEN_FILES,
        OPEN_FILES_OLD,
        OTHERS,
        OTHERS_OLD,
        NAMED,
        PROCESSES_OLD,
    ];
    let mut all = lists.iter().copied().flatten();
    let found = all.find(|(_, known)| usize::try_from(*known) == Ok(number));
    found.map_or_else(
        || format!("number {number}"),
        |(name, _)| name.trim_start_matches("SYS_").to_owned(),
    )
}

/// Calls that the process may make.
pub(super) fn all() -> Result<Rules, SandboxError> {
    let mut rules = computing()?;
    allow(
        &mut rules,
        &[OPEN_FILES, OPEN_FILES_OLD, OTHERS, OTHERS_OLD],
    );
    // Other filters answer these.
    allow(&mut rules, &[calls![SYS_clone, SYS_clone3], PROCESSES_OLD]);
    rules.insert(libc::SYS_ioctl, ioctls()?);
    // Checks that a process lives (signal 0); none can be ended.
    rules.insert(libc::SYS_kill, vec![rule(&[equal(1, 0)?])?]);
    // Limits of this process.
    rules.insert(libc::SYS_prlimit64, vec![rule(&[equal(0, 0)?])?]);
    let families = [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_UNIX,
        // The addresses of interfaces.
        libc::AF_NETLINK,
    ];
    let families = each(0, families.map(i64::from))?;
    rules.insert(libc::SYS_socket, families);
    rules.insert(libc::SYS_socketpair, each(0, [i64::from(libc::AF_UNIX)])?);
    Ok(rules)
}

/// Calls that create a process and not a thread.
pub(super) fn processes() -> Result<Rules, SandboxError> {
    let mut rules = Rules::new();
    allow(&mut rules, &[PROCESSES_OLD]);
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(&[masked(0, thread, 0)?])?]);
    Ok(rules)
}

/// Calls that a thread of this role may make.
pub(super) fn of(role: Role) -> Result<Rules, SandboxError> {
    let mut rules = computing()?;
    // `fstat` in glibc: on open descriptors, by no path.
    let by_descriptor = equal(3, i64::from(libc::AT_EMPTY_PATH))?;
    rules.insert(libc::SYS_newfstatat, vec![rule(&[by_descriptor])?]);
    match role {
        Role::Connections => {
            allow(&mut rules, &[OPEN_FILES, OPEN_FILES_OLD]);
            rules.insert(libc::SYS_ioctl, ioctls()?);
        }
        // Wakes the main thread, and writes to the log.
        Role::Worker => allow(
            &mut rules,
            &[calls![
                SYS_read, SYS_write, SYS_writev, SYS_close, SYS_lseek, SYS_fstat
            ]],
        ),
    }
    Ok(rules)
}

/// Memory without code, names of threads, and signals to this process alone.
fn computing() -> Result<Rules, SandboxError> {
    let mut rules = Rules::new();
    allow(&mut rules, &[COMPUTING]);
    let not_executable = || rule(&[masked(2, libc::PROT_EXEC as u64, 0)?]);
    rules.insert(libc::SYS_mmap, vec![not_executable()?]);
    rules.insert(libc::SYS_mprotect, vec![not_executable()?]);
    // Of the last, names of memory.
    let of_process = [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_GET_DUMPABLE,
        libc::PR_SET_VMA,
    ];
    rules.insert(libc::SYS_prctl, each(0, of_process.map(i64::from))?);
    // `abort` and panics in C. Another process of this user may have fewer restrictions.
    let own = equal(0, i64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![rule(&[own])?]);
    Ok(rules)
}

/// Not blocking, and what waits in a socket: KIST asks for that.
fn ioctls() -> Result<Vec<SeccompRule>, SandboxError> {
    let requests = [
        libc::FIONBIO,
        libc::FIONREAD,
        libc::FIOCLEX,
        libc::TIOCOUTQ,
        SIOCOUTQNSD,
        // Checks that a log is a terminal.
        libc::TCGETS,
    ];
    let requests = requests.map(|request| i64::try_from(request).unwrap_or(-1));
    each(1, requests)
}

/// Request for the bytes of a socket that were not sent yet.
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

fn allow(rules: &mut Rules, lists: &[&[Call]]) {
    for (_, number) in lists.iter().copied().flatten() {
        rules.insert(*number, Vec::new());
    }
}

/// An argument that is one of these.
fn each<const N: usize>(argument: u8, values: [i64; N]) -> Result<Vec<SeccompRule>, SandboxError> {
    let values = values.into_iter();
    values
        .map(|value| rule(&[equal(argument, value)?]))
        .collect()
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, SandboxError> {
    SeccompRule::new(conditions.to_vec()).map_err(failed)
}

/// Arguments of these calls have 32 bits.
fn equal(argument: u8, value: i64) -> Result<SeccompCondition, SandboxError> {
    let value = value as u64 & u64::from(u32::MAX);
    SeccompCondition::new(argument, Len::Dword, Is::Eq, value).map_err(failed)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, SandboxError> {
    SeccompCondition::new(argument, Len::Qword, Is::MaskedEq(mask), value).map_err(failed)
}
