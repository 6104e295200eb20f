//! Counters of a running soak.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Counters of attacks, and of honest users' requests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) attacks: AtomicU64,
    pub(super) deeds: AtomicU64,
    pub(super) setbacks: AtomicU64,
    pub(super) visits: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) asked: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) first_broken: Mutex<Option<String>>,
}
