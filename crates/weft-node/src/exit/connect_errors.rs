//! Why the connection of an exit stream could not be started, and the END reason for it.

use std::io;

use weft_cell::reason::EndReason;

/// True if no local port was left for another connection.
#[must_use]
pub(crate) fn is_port_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)
    )
}

/// True if the process has no more files, or the system no more memory.
#[must_use]
pub(crate) fn is_resource_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// The reason of the END for a connection that failed (reasons.c, `errno_to_stream_end_reason`).
#[must_use]
pub(crate) fn end_reason(error: &io::Error) -> EndReason {
    match error.raw_os_error() {
        Some(libc::EPIPE) => EndReason::DONE,
        Some(
            libc::EBADF
            | libc::EFAULT
            | libc::EINVAL
            | libc::EISCONN
            | libc::ENOTSOCK
            | libc::EPROTONOSUPPORT
            | libc::EAFNOSUPPORT
            | libc::ENOTCONN,
        ) => EndReason::INTERNAL,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EPERM) => {
            EndReason::NOROUTE
        }
        Some(libc::ECONNREFUSED) => EndReason::CONNECTREFUSED,
        Some(libc::ECONNRESET) => EndReason::CONNRESET,
        Some(libc::ETIMEDOUT) => EndReason::TIMEOUT,
        _ if is_port_exhaustion(error) || is_resource_exhaustion(error) => EndReason::RESOURCELIMIT,
        _ => EndReason::MISC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_map_to_end_reasons() {
        let reason = |errno| end_reason(&io::Error::from_raw_os_error(errno));
        assert_eq!(reason(libc::ECONNREFUSED), EndReason::CONNECTREFUSED);
        assert_eq!(reason(libc::EHOSTUNREACH), EndReason::NOROUTE);
        assert_eq!(reason(libc::ETIMEDOUT), EndReason::TIMEOUT);
        assert_eq!(reason(libc::ECONNRESET), EndReason::CONNRESET);
        assert_eq!(reason(libc::EMFILE), EndReason::RESOURCELIMIT);
        assert_eq!(reason(libc::EADDRNOTAVAIL), EndReason::RESOURCELIMIT);
        assert_eq!(reason(libc::EINVAL), EndReason::INTERNAL);
        assert_eq!(reason(libc::ELOOP), EndReason::MISC);
        assert_eq!(end_reason(&io::Error::other("x")), EndReason::MISC);
    }
}
