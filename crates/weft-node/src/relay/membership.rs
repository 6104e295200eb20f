//! State that the identities of one process share besides threads (`weft -f A -f B`): limits,
//! metrics, tables, and the process as the service manager sees it. A single identity is one of
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::tables::SharedTables;
use crate::metrics::Snapshots;
use crate::process::limits::files_of_identity;

/// State of one identity that all can see.
#[derive(Debug, Default)]
struct Member {
    /// Its use of the limits.
    files: AtomicUsize,
    memory: AtomicU64,
    is_up: AtomicBool,
    is_ending: AtomicBool,
    has_ended: AtomicBool,
    /// Its main thread has taken a turn since the last notification of the watchdog.
    is_alive: AtomicBool,
}

#[derive(Debug)]
struct Common {
    members: Vec<Member>,
    snapshots: Arc<Snapshots>,
    tables: SharedTables,
}

/// One identity's part in the process. Dropping it gives back what the identity used.
#[derive(Debug)]
pub(super) struct Membership {
    common: Arc<Common>,
    number: usize,
}

impl Membership {
    /// One for each of `count` identities.
    pub(super) fn of(count: usize) -> Vec<Self> {
        let common = Arc::new(Common {
            members: (0..count).map(|_| Member::default()).collect(),
            snapshots: Arc::new(Snapshots::of(count)),
            tables: SharedTables::default(),
        });
        let member = |number| Membership {
            common: common.clone(),
            number,
        };
        (0..count).map(member).collect()
    }

    /// Number of identities with which the process was started.
    pub(super) fn count(&self) -> usize {
        self.common.members.len()
    }

    /// Its place among them.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// True if the identity is the first that has not ended. It does what the process does once: it
    /// has the MetricsPort, opens logs, and notifies the service manager.
    pub(super) fn leads(&self) -> bool {
        let mut before = self.common.members.iter().take(self.number);
        before.all(|member| member.has_ended.load(Ordering::Acquire))
    }

    /// The latest metrics of each.
    pub(super) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.common.snapshots
    }

    /// The tables of countries.
    pub(super) fn tables(&self) -> &SharedTables {
        &self.common.tables
    }

    /// Number of connections that the process may have, if the system allows `most` to a process of
    /// one identity.
    pub(super) fn max_files(&self, most: usize, threads: usize) -> usize {
        let others = self.count().saturating_sub(1);
        most.saturating_sub(others.saturating_mul(files_of_identity(threads)))
    }

    /// Notes the bytes of memory that this identity uses.
    pub(super) fn set_memory(&self, bytes: u64) {
        self.mark(|member| member.memory.store(bytes, Ordering::Relaxed));
    }

    /// Notes the files that it uses.
    pub(super) fn set_files(&self, files: usize) {
        self.mark(|member| member.files.store(files, Ordering::Relaxed));
    }

    /// The files that this identity leaves to the others, of `most`.
    pub(super) fn files_of_others(&self, most: usize) -> usize {
        let used = |member: &Member| of_size(member.files.load(Ordering::Relaxed));
        let left = self.of_others(of_size(most), used);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// The bytes of memory that it leaves to them, of `most`.
    pub(super) fn memory_of_others(&self, most: u64) -> u64 {
        self.of_others(most, |member| member.memory.load(Ordering::Relaxed))
    }

    /// Part of `most` that this identity must leave to the others: what they use, and for each at
    /// least half of an equal part, as this one keeps half of one. So a flood at one identity does
    /// not take what the peers of the others need.
    fn of_others(&self, most: u64, used: impl Fn(&Member) -> u64) -> u64 {
        let part = most / (2 * of_size(self.count().max(1)));
        let left = self.others().fold(0, |sum: u64, member| {
            sum.saturating_add(used(member).max(part))
        });
        left.min(most - part)
    }

    /// The others that have not ended.
    fn others(&self) -> impl Iterator<Item = &Member> {
        let all = self.common.members.iter().enumerate();
        let others = all.filter(|(number, _)| *number != self.number);
        others
            .map(|(_, member)| member)
            .filter(|member| !member.has_ended.load(Ordering::Acquire))
    }

    /// This identity is up. Returns whether all are.
    pub(super) fn up(&self) -> bool {
        self.mark(|member| member.is_up.store(true, Ordering::Release));
        self.all(|member| &member.is_up)
    }

    /// This identity begins to end. Returns whether all do.
    pub(super) fn end(&self) -> bool {
        self.mark(|member| member.is_ending.store(true, Ordering::Release));
        self.all(|member| &member.is_ending)
    }

    /// This identity's main thread takes turns. Returns whether those of all have since this was last true.
    pub(super) fn alive(&self) -> bool {
        self.mark(|member| member.is_alive.store(true, Ordering::Release));
        let all = self.all(|member| &member.is_alive);
        if all {
            for member in &self.common.members {
                member.is_alive.store(false, Ordering::Release);
            }
        }
        all
    }

    fn mark(&self, mark: impl Fn(&Member)) {
        if let Some(member) = self.common.members.get(self.number) {
            mark(member);
        }
    }

    /// True if the flag is set for all identities that have not ended.
    fn all(&self, of: impl Fn(&Member) -> &AtomicBool) -> bool {
        let members = self.common.members.iter();
        members
            .filter(|member| !member.has_ended.load(Ordering::Acquire))
            .all(|member| of(member).load(Ordering::Acquire))
    }
}

fn of_size(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.set_files(0);
        self.set_memory(0);
        self.common.snapshots.set(self.number, None);
        self.mark(|member| member.has_ended.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_alone_leads_and_shares_nothing() {
        let mut members = Membership::of(1);
        let alone = members.remove(0);
        alone.set_files(7);
        alone.set_memory(8);
        assert_eq!(
            (alone.files_of_others(9), alone.memory_of_others(9)),
            (0, 0)
        );
        assert_eq!(alone.max_files(9, 64), 9);
        assert!(alone.leads() && alone.up() && alone.alive() && alone.alive() && alone.end());
    }

    #[test]
    fn limits_are_common_and_one_that_has_ended_uses_nothing_of_them() {
        let mut members = Membership::of(3);
        for (number, member) in members.iter().enumerate() {
            member.set_files(number + 1);
            member.set_memory(10 * (number as u64 + 1));
        }
        assert_eq!(members[0].files_of_others(6), 5);
        assert_eq!(members[0].memory_of_others(60), 50);
        assert_eq!(members[2].files_of_others(6), 3);
        assert_eq!(members[2].memory_of_others(60), 30);
        // A sixth is each one's in any case: the others', and one's own.
        assert_eq!(members[0].files_of_others(600), 200);
        members[1].set_files(500);
        assert_eq!(members[0].files_of_others(600), 500);
        members[1].set_files(400);
        assert_eq!(members[0].files_of_others(600), 500);
        members[1].set_files(350);
        assert_eq!(members[0].files_of_others(600), 450);
        members.remove(1);
        assert_eq!(members[0].files_of_others(6), 3);
        assert_eq!(members[0].files_of_others(600), 100);
        assert_eq!(members[0].memory_of_others(60), 30);
        assert!(members[0].max_files(1000, 2) < 950, "files of two others");
        assert_eq!(members[0].max_files(10, 2), 0);
    }

    #[test]
    fn the_process_is_up_and_alive_with_the_last_and_ends_with_the_last() {
        let mut members = Membership::of(2);
        assert!(!members[1].up() && !members[1].up());
        assert!(members[0].up() && members[1].up());
        assert!(!members[0].alive() && !members[0].alive());
        assert!(members[1].alive() && !members[1].alive());
        assert!(!members[0].end() && !members[0].end());
        assert!(members[1].end());
        // One that has ended is not waited for.
        assert!(members[0].leads() && !members[1].leads());
        members.remove(0);
        assert!(members[0].leads() && members[0].alive());
    }
}
