//! Writes of the current thread that a full disk or a kill ends at a chosen step: for chaos (docs/chaos.md) and tests.
//!
//! Builds that have hooks for planted faults have it; in every other build nothing is interrupted, and steps leave no code.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use weft_planted::HAS_HOOKS;

/// End of an interrupted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The disk is full, for this one call.
    Full,
    /// The disk is full once it has this part of the bytes, in 256ths.
    Short(u8),
    /// The process is killed once the disk has this part of the bytes, in 256ths.
    Killed(u8),
}

/// An end of a write at its `step`th system call that changes something, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// Steps before it.
    pub step: u32,
    /// The end.
    pub end: End,
}

/// The process would not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed;

/// Where the interruption of this thread's write stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    /// Steps that are still taken.
    In(u32, End),
    /// The disk was full.
    Full,
    Killed,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::None) };
}

/// Runs `write`, and ends it. Also returns whether it came to that step.
///
/// # Errors
///
/// It was killed: nothing of `write` ran after that step, and the files are as such a process leaves them.
pub fn interrupted<T>(
    interruption: Interruption,
    write: impl FnOnce() -> T,
) -> Result<(T, bool), Killed> {
    if !HAS_HOOKS {
        return Ok((write(), false));
    }
    STATE.set(State::In(interruption.step, interruption.end));
    let result = catch_unwind(AssertUnwindSafe(write));
    let state = STATE.replace(State::None);
    match result {
        Ok(value) => Ok((value, state == State::Full)),
        Err(_) if state == State::Killed => Err(Killed),
        Err(panic) => resume_unwind(panic),
    }
}

/// True once the process was killed: cleanup on the way out does nothing then.
pub(super) fn is_killed() -> bool {
    HAS_HOOKS && STATE.get() == State::Killed
}

/// Precedes each system call that changes something.
pub(crate) fn step() -> io::Result<()> {
    next().map_or(Ok(()), end)
}

/// Has `fill` write a file: a step of which an interruption lets a part through.
pub(super) fn fill(file: &File, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let Some(how) = next() else {
        return fill(file);
    };
    if let End::Short(part) | End::Killed(part) = how
        && part > 0
    {
        fill(file)?;
        file.set_len(file.metadata()?.len() * u64::from(part) / 256)?;
    }
    end(how)
}

/// Counts a step. Returns what happens at it.
fn next() -> Option<End> {
    if !HAS_HOOKS {
        return None;
    }
    match STATE.get() {
        State::None | State::Full | State::Killed => None,
        State::In(0, end) => Some(end),
        State::In(left, end) => {
            STATE.set(State::In(left - 1, end));
            None
        }
    }
}

fn end(how: End) -> io::Result<()> {
    if let End::Full | End::Short(_) = how {
        STATE.set(State::Full);
        return Err(io::Error::from(io::ErrorKind::StorageFull));
    }
    #[cfg(test)]
    if REALLY.get() {
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL)?;
    }
    STATE.set(State::Killed);
    // No panic is reported: it is caught above.
    resume_unwind(Box::new(Killed))
}

#[cfg(test)]
thread_local! {
    /// Tests: the process of this thread is killed indeed.
    pub(super) static REALLY: Cell<bool> = const { Cell::new(false) };
}
