//! Compressing consensuses and making diffs beside the directory's thread: a blocking task of its runtime, one at a
//! time, which nothing waits for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tor_netdoc::doc::netstatus::ConsensusFlavor;

use crate::diff_maker::{DiffMaker, Messages};
use crate::documents::{CachedDocuments, NewConsensus};

/// The consensuses to make compressions and diffs of, and the task that makes them.
pub(super) struct Making {
    /// Held by the one task that runs.
    diffs: Arc<Mutex<Box<dyn DiffMaker>>>,
    /// The newest consensuses that nothing has been made of.
    waiting: BTreeMap<ConsensusFlavor, NewConsensus>,
    /// The task, if one runs.
    task: JoinSet<Messages>,
    /// Of which flavour, and whether it is to end early.
    underway: Option<(ConsensusFlavor, Arc<AtomicBool>)>,
}

impl Making {
    /// Nothing yet.
    pub(super) fn new(diffs: Box<dyn DiffMaker>) -> Self {
        Self {
            diffs: Arc::new(Mutex::new(diffs)),
            waiting: BTreeMap::new(),
            task: JoinSet::new(),
            underway: None,
        }
    }

    /// This consensus is the newest of its flavour; what is being made of an older one is not needed any more.
    pub(super) fn add(&mut self, new: NewConsensus) {
        if let Some((flavour, stop)) = &self.underway
            && *flavour == new.status.flavour
        {
            stop.store(true, Ordering::Relaxed);
        }
        self.waiting.insert(new.status.flavour, new);
    }

    /// Begins with the next, if none is underway.
    pub(super) fn next(
        &mut self,
        documents: &Arc<CachedDocuments>,
        max_age: Duration,
        now: SystemTime,
    ) {
        if self.underway.is_some() {
            return;
        }
        let Some((flavour, new)) = self.waiting.pop_first() else {
            return;
        };
        let stop = Arc::new(AtomicBool::new(false));
        self.underway = Some((flavour, stop.clone()));
        let (diffs, documents) = (self.diffs.clone(), documents.clone());
        self.task.spawn_blocking(move || {
            // Should it have panicked before: its files are whole, and its list is one that is read again.
            let mut diffs = diffs.lock().unwrap_or_else(PoisonError::into_inner);
            diffs.add(&new, &documents, max_age, now, &stop)
        });
    }

    /// Waits for the task's messages; never returns if no task runs.
    pub(super) async fn made(&mut self) -> Option<Messages> {
        let made = self.task.join_next().await?;
        self.underway = None;
        // A panic is a bug that tokio has reported.
        Some(made.unwrap_or_default())
    }

    /// The task ends soon.
    pub(super) fn stop(&self) {
        if let Some((_, stop)) = &self.underway {
            stop.store(true, Ordering::Relaxed);
        }
    }
}
