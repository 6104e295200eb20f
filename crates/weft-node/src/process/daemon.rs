//! `RunAsDaemon`: the process continues in the background, as in C tor.
//!
//! The process in the foreground waits until the node is up or has failed, and exits with that
//! status. The node runs in a separate session without a terminal.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;

use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

/// The byte that the node writes to the pipe when it is up.
const UP: u8 = b'.';

/// The process cannot continue in the background.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The process has other threads, which a copy of it would not have.
    #[error("RunAsDaemon: the process has {0} threads already")]
    Threads(usize),
    /// The system refuses.
    #[error("RunAsDaemon: cannot {what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// An error of the system in the operation `what`.
fn refused(what: &'static str) -> impl Fn(io::Error) -> DaemonError {
    move |source| DaemonError::System { what, source }
}

/// Like [`refused`], for an error of `nix`.
fn refused_call(what: &'static str) -> impl Fn(nix::Error) -> DaemonError {
    move |errno| refused(what)(errno.into())
}

/// The process that [`split`] returns in.
#[derive(Debug)]
pub enum Side {
    /// The process that was started: wait, then exit.
    Foreground(Foreground),
    /// The process that becomes the node.
    Background(Background),
}

/// The process in the foreground.
#[derive(Debug)]
pub struct Foreground {
    pipe: PipeReader,
}

impl Foreground {
    /// Waits until the node is up or has ended. Returns whether it is up.
    #[must_use]
    pub fn wait(mut self) -> bool {
        let mut received = Vec::new();
        // A read error counts as a node that is not up.
        let _ = self.pipe.read_to_end(&mut received);
        received.contains(&UP)
    }
}

/// The process of the node. Until [`detach`](Self::detach) it has the standard streams, for error messages.
#[derive(Debug)]
pub struct Background {
    pipe: PipeWriter,
}

impl Background {
    /// Reports that the node is up, changes to `directory` (so that the process keeps no other file system
    /// busy), and closes the standard streams.
    ///
    /// # Errors
    ///
    /// The directory cannot be entered, or there is no `/dev/null`.
    pub fn detach(mut self, directory: &Path) -> Result<(), DaemonError> {
        std::env::set_current_dir(directory).map_err(refused("enter the DataDirectory"))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(refused("open /dev/null"))?;
        dup2_stdin(&null).map_err(refused_call("leave standard input"))?;
        dup2_stdout(&null).map_err(refused_call("leave standard output"))?;
        dup2_stderr(&null).map_err(refused_call("leave standard error"))?;
        // The process in the foreground may have been killed.
        let _ = self.pipe.write_all(&[UP]);
        Ok(())
    }
}

/// Forks the node's process. This process must have no other threads yet.
///
/// # Errors
///
/// The process has other threads, or the system refuses; then there is no second process.
pub fn split() -> Result<Side, DaemonError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(refused("count its threads"))?;
    let threads = threads.count();
    if threads != 1 {
        return Err(DaemonError::Threads(threads));
    }
    let (reader, writer) = io::pipe().map_err(refused("make a pipe"))?;
    // SAFETY: only the calling thread exists (counted above, and nothing since starts one), so that
    // no lock is held and no memory is half changed by a thread that the new process lacks.
    match unsafe { fork() }.map_err(refused_call("fork"))? {
        ForkResult::Parent { .. } => {
            drop(writer);
            Ok(Side::Foreground(Foreground { pipe: reader }))
        }
        ForkResult::Child => {
            drop(reader);
            setsid().map_err(refused_call("begin a session"))?;
            // Once more: a process that is not the session's leader cannot get a terminal again.
            // SAFETY: as above; a new process has one thread.
            match unsafe { fork() }.map_err(refused_call("fork again"))? {
                // SAFETY: ends the process at once, without destructors and exit handlers, which belong to
                // the other two.
                ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
                ForkResult::Child => Ok(Side::Background(Background { pipe: writer })),
            }
        }
    }
}
