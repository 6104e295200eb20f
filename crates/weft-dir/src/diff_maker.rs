//! Compresses consensuses and makes diffs for those who fetch them from here. A directory cache
//! does the work; this crate only starts and stops it.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use crate::command::Severity;
use crate::documents::{CachedDocuments, NewConsensus};

/// Something for the log.
pub type Messages = Vec<(Severity, String)>;

/// Makes of each new consensus what a cache serves besides: compressions, and diffs that lead to it.
pub trait DiffMaker: Send {
    /// Serves `new` compressed, and diffs to it from consensuses that became valid within `max_age` before `now`. That
    /// takes seconds of processor time. Returns early once `stop` is set.
    fn add(
        &mut self,
        new: &NewConsensus,
        documents: &CachedDocuments,
        max_age: Duration,
        now: SystemTime,
        stop: &AtomicBool,
    ) -> Messages;
}

/// Makes none.
#[derive(Clone, Copy, Debug)]
pub struct NoDiffs;

impl DiffMaker for NoDiffs {
    fn add(
        &mut self,
        _: &NewConsensus,
        _: &CachedDocuments,
        _: Duration,
        _: SystemTime,
        _: &AtomicBool,
    ) -> Messages {
        Vec::new()
    }
}
