//! The emulator's thread goes before others: its lateness would be the network's.
#![allow(unsafe_code)]

use std::io;

/// The lowest real-time priority, which is above every ordinary thread.
const PRIORITY: libc::c_int = 1;

/// Puts the calling thread before all ordinary ones (`SCHED_RR`). The kernel leaves them a twentieth of the
/// time if it never sleeps.
///
/// # Errors
///
/// There is no CAP_SYS_NICE, or a limit forbids it.
pub(super) fn raise() -> io::Result<()> {
    // SAFETY: `sched_param` is a C struct of integers, for which all-zero bytes are a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = PRIORITY;
    // SAFETY: the pointer is valid for the call, which reads one `sched_param`; thread 0 is the calling one.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
