//! Handling of a forbidden system call: the kernel sends the thread SIGSYS, and the handler makes
//! the call return EPERM.
//!
//! Only a handler with the thread's registers can do that, and only `sigaction` installs one: hence this module's unsafe
//! code.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::calls;

/// Numbers of system calls from 0 to this are named one by one in the log. Linux has fewer on each architecture.
const CALLS: usize = 512;
/// Calls that were denied since they were last asked for: a bit for each number.
static DENIED: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];
/// True if the handler is installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// `SYS_SECCOMP`, the code of a SIGSYS that a filter causes.
const BY_FILTER: libc::c_int = 1;

/// Installs the handler.
///
/// # Errors
///
/// The system refuses.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: `sigaction` is a C struct of integers and a nullable pointer: all-zero bytes are one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigsys;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the mask is a live local. `on_sigsys` has the signature that SA_SIGINFO demands, and does only what a handler
    // may do: it calls nothing but atomic operations, allocates nothing, and does not unwind.
    let done = unsafe {
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut())
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// True if the process is restricted.
pub(super) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// The registers of the call: its number, and where its result goes.
#[cfg(target_arch = "x86_64")]
fn registers(context: &mut libc::ucontext_t) -> (i64, Option<&mut i64>) {
    let register = context.uc_mcontext.gregs.get_mut(libc::REG_RAX as usize);
    (register.as_ref().map_or(-1, |number| **number), register)
}

/// The registers of the call: its number, and where its result goes.
#[cfg(target_arch = "aarch64")]
fn registers(context: &mut libc::ucontext_t) -> (i64, Option<&mut u64>) {
    let number = context.uc_mcontext.regs.get(8).copied().unwrap_or(u64::MAX);
    (number as i64, context.uc_mcontext.regs.get_mut(0))
}

extern "C" fn on_sigsys(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel calls a handler with SA_SIGINFO with pointers to a siginfo_t and a
    // ucontext_t on the handler's stack, to which nothing else has a reference; null is checked all
    // the same.
    let (info, context) = unsafe { (info.as_ref(), context.cast::<libc::ucontext_t>().as_mut()) };
    let (Some(info), Some(context)) = (info, context) else {
        return;
    };
    // A SIGSYS that another process sent does not come from the filter.
    if info.si_code != BY_FILTER {
        return;
    }
    let (number, result) = registers(context);
    if let Ok(number) = usize::try_from(number)
        && let Some(word) = DENIED.get(number / 64)
    {
        word.fetch_or(1 << (number % 64), Ordering::Relaxed);
    }
    if let Some(result) = result {
        let refused = -i64::from(libc::EPERM);
        #[cfg(target_arch = "x86_64")]
        {
            *result = refused;
        }
        #[cfg(target_arch = "aarch64")]
        {
            *result = refused as u64;
        }
    }
}

/// The names of the calls that were denied since the last time.
pub(crate) fn denied() -> Vec<String> {
    let mut names = Vec::new();
    for (index, word) in DENIED.iter().enumerate() {
        let bits = word.swap(0, Ordering::Relaxed);
        for bit in (0..64).filter(|bit| bits & (1 << bit) != 0) {
            names.push(calls::name(index * 64 + bit));
        }
    }
    names
}
