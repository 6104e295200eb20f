//! `RunAsDaemon`: the process goes on in the background, as C tor does it.
//!
//! Who started it waits until the node is up, or has said what is wrong: its exit status tells. The
//! node is in a session of its own without a terminal.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;

use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

/// What a node that is up writes.
const UP: u8 = b'.';

/// There is no going into the background.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The process has other threads, which a copy of it would not have.
    #[error("RunAsDaemon: the process has {0} threads already")]
    Threads(usize),
    /// The system refuses.
    #[error("RunAsDaemon: cannot {what}: {source}")]
    System {
        /// What it was asked for.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// An error of the system when it was to do `what`.
fn refused(what: &'static str) -> impl Fn(io::Error) -> DaemonError {
    move |source| DaemonError::System { what, source }
}

/// The same of a call by `nix`.
fn refused_call(what: &'static str) -> impl Fn(nix::Error) -> DaemonError {
    move |errno| refused(what)(errno.into())
}

/// Who goes on after [`split`].
#[derive(Debug)]
pub enum Side {
    /// The process that was started.
    Foreground(Waiting),
    /// The one that is to be the node.
    Background(Background),
}

/// What the process that was started has left to do.
#[derive(Debug)]
pub struct Waiting {
    pipe: PipeReader,
}

impl Waiting {
    /// Waits until the node is up, or has ended without that: whether it is up.
    #[must_use]
    pub fn is_up(mut self) -> bool {
        let mut said = Vec::new();
        // What cannot be read was not said.
        let _ = self.pipe.read_to_end(&mut said);
        said.contains(&UP)
    }
}

/// The node's side: it still has the standard streams, to tell what is wrong.
#[derive(Debug)]
pub struct Background {
    pipe: PipeWriter,
}

impl Background {
    /// The node is up: from now on it works in `directory` (so that it holds no other file system),
    /// and reads from and writes to nobody's terminal.
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
        // Nobody may be waiting any more.
        let _ = self.pipe.write_all(&[UP]);
        Ok(())
    }
}

/// Makes two processes of this one. It must have no other threads yet.
///
/// # Errors
///
/// The process has other threads, or the system refuses: there is one process as before.
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
            Ok(Side::Foreground(Waiting { pipe: reader }))
        }
        ForkResult::Child => {
            drop(reader);
            setsid().map_err(refused_call("begin a session"))?;
            // Once more: one who did not begin the session never gets a terminal again.
            // SAFETY: as above; a new process has one thread.
            match unsafe { fork() }.map_err(refused_call("fork again"))? {
                // SAFETY: ends the process at once. What it would still do at its end is for the
                // other two to do.
                ForkResult::Parent { .. } => unsafe { libc::_exit(0) },
                ForkResult::Child => Ok(Side::Background(Background { pipe: writer })),
            }
        }
    }
}
