//! ConnLimit: the system's limit of sockets for this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// File descriptors kept for logs, keys and the like, beyond connections (C tor's
/// `ULIMIT_BUFFER`).
pub const RESERVED: u64 = 32;

/// Descriptors that one more identity needs beyond connections: as [`RESERVED`], and two for each connection thread's event
/// loop.
pub(crate) fn files_of_identity(threads: usize) -> usize {
    usize::try_from(RESERVED)
        .unwrap_or(usize::MAX)
        .saturating_add(threads.saturating_mul(2))
}

/// Too few descriptors to run with this ConnLimit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LimitError {
    /// The option itself is too small.
    #[error("ConnLimit must be at least {RESERVED}, not {0}")]
    TooSmall(u64),
    /// The system's hard limit is below it.
    #[error(
        "we need {wanted} file descriptors available (ConnLimit), and we're limited to {hard}. \
         Please change your ulimit -n, or set a smaller ConnLimit"
    )]
    HardLimit {
        /// ConnLimit.
        wanted: u64,
        /// `ulimit -Hn`.
        hard: u64,
    },
    /// The system does not report the limit.
    #[error("could not get maximum number of file descriptors: {0}")]
    Unknown(nix::Error),
}

/// Raises the soft limit of descriptors to the hard one. Returns the number of connections that it
/// allows beside [`RESERVED`]; fails if the hard limit is below `conn_limit`.
pub fn raise_file_limit(conn_limit: u64) -> Result<usize, LimitError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(LimitError::Unknown)?;
    let target = check(conn_limit, hard)?;
    if hard > soft {
        tracing::info!("Raising max file descriptors from {soft} to {target}.");
    }
    match setrlimit(Resource::RLIMIT_NOFILE, target, hard) {
        Ok(()) => Ok(connections(target)),
        Err(e) => {
            tracing::warn!("Couldn't set maximum number of file descriptors: {e}");
            Ok(connections(soft))
        }
    }
}

/// Checks that [`raise_file_limit`] would succeed, without changing the limit.
///
/// # Errors
///
/// As [`raise_file_limit`].
pub fn check_file_limit(conn_limit: u64) -> Result<(), LimitError> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(LimitError::Unknown)?;
    check(conn_limit, hard).map(|_| ())
}

/// The soft limit to ask for.
fn check(conn_limit: u64, hard: u64) -> Result<u64, LimitError> {
    if conn_limit < RESERVED {
        return Err(LimitError::TooSmall(conn_limit));
    }
    if hard < conn_limit {
        return Err(LimitError::HardLimit {
            wanted: conn_limit,
            hard,
        });
    }
    Ok(hard)
}

/// The number of connections that `descriptors` allow; at most C tor's `INT_MAX`.
fn connections(descriptors: u64) -> usize {
    let most = descriptors.min(i32::MAX.unsigned_abs().into());
    usize::try_from(most.saturating_sub(RESERVED)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_as_in_c_tor() {
        assert_eq!(check(31, 1024), Err(LimitError::TooSmall(31)));
        assert_eq!(
            check(1025, 1024),
            Err(LimitError::HardLimit {
                wanted: 1025,
                hard: 1024
            })
        );
        assert_eq!(check(1000, 4096), Ok(4096));
        assert_eq!(connections(4096), 4064);
        assert_eq!(connections(10), 0);
        assert_eq!(connections(u64::MAX), 2_147_483_615);
    }

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let got = raise_file_limit(RESERVED).unwrap();
        assert_eq!(got, connections(hard));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
