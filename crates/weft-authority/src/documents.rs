//! Documents that an authority serves by their digests: those of relays as they are now, and those that a consensus of
//! the last day names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a document that a consensus named is kept: as long as a client may have that consensus.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Documents of one kind.
#[derive(Debug)]
pub(super) struct Documents<K> {
    held: BTreeMap<K, Held>,
    /// Documents that no relay has any more, at most.
    max_old: usize,
}

#[derive(Debug)]
struct Held {
    text: Arc<str>,
    /// Relays whose document this is now.
    relays: usize,
    /// When a consensus named it last.
    named: Option<SystemTime>,
}

impl<K: Ord + Copy> Documents<K> {
    pub(super) fn new(max_old: usize) -> Self {
        Self {
            held: BTreeMap::new(),
            max_old,
        }
    }

    pub(super) fn get(&self, digest: &K) -> Option<&Arc<str>> {
        Some(&self.held.get(digest)?.text)
    }

    /// A relay has this document now.
    pub(super) fn add(&mut self, digest: K, text: &Arc<str>) {
        let held = self.held.entry(digest).or_insert_with(|| Held {
            text: text.clone(),
            relays: 0,
            named: None,
        });
        held.relays += 1;
    }

    /// Compares the counts of relays with these, which are right.
    pub(super) fn audit(&self, counts: &BTreeMap<K, usize>) -> Result<(), String> {
        for (digest, count) in counts {
            let held = self.held.get(digest).map(|held| held.relays);
            if held != Some(*count) {
                return Err(format!("{held:?} relay(s) have a document of {count}"));
            }
        }
        let held = self.held.iter();
        match held
            .filter(|(digest, held)| held.relays > 0 && !counts.contains_key(digest))
            .count()
        {
            0 => Ok(()),
            leaked => Err(format!("{leaked} document(s) are of no relay")),
        }
    }

    /// A relay that had this document has another one now, or is forgotten.
    pub(super) fn release(&mut self, digest: &K) {
        let Some(held) = self.held.get_mut(digest) else {
            return;
        };
        held.relays = held.relays.saturating_sub(1);
        if held.relays == 0 && held.named.is_none() {
            self.held.remove(digest);
        }
    }

    /// A consensus names this document.
    pub(super) fn name(&mut self, digest: &K, now: SystemTime) {
        if let Some(held) = self.held.get_mut(digest) {
            held.named = Some(now);
        }
    }

    /// Forgets what no relay has and no consensus of the last day names, and of the rest what was named first, where it
    /// is too much.
    pub(super) fn forget_old(&mut self, now: SystemTime) {
        self.held.retain(|_, held| {
            held.relays > 0 || held.named.is_some_and(|named| named + OLD >= now)
        });
        let unused = self.held.iter().filter(|(_, held)| held.relays == 0);
        let mut old: Vec<(Option<SystemTime>, K)> =
            unused.map(|(digest, held)| (held.named, *digest)).collect();
        old.sort_unstable();
        let surplus = old.len().saturating_sub(self.max_old);
        for (_, digest) in old.iter().take(surplus) {
            self.held.remove(digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{now, secs};

    fn add(documents: &mut Documents<u8>, digest: u8) {
        documents.add(digest, &Arc::from("text"));
    }

    #[test]
    fn what_a_consensus_named_stays_for_a_day_and_what_none_named_goes_with_its_relay() {
        let mut documents = Documents::new(9);
        for digest in 1..=3 {
            add(&mut documents, digest);
        }
        documents.name(&2, now());
        documents.name(&4, now());
        for digest in 1..=2 {
            documents.release(&digest);
        }
        assert_eq!(Vec::from_iter(documents.held.keys()), [&2, &3]);
        documents.forget_old(now() + OLD);
        assert_eq!(Vec::from_iter(documents.held.keys()), [&2, &3]);
        documents.forget_old(now() + OLD + secs(1));
        assert_eq!(Vec::from_iter(documents.held.keys()), [&3]);
    }

    #[test]
    fn a_document_of_two_relays_stays_until_neither_has_it() {
        let mut documents = Documents::new(9);
        add(&mut documents, 1);
        add(&mut documents, 1);
        documents.release(&1);
        assert!(documents.get(&1).is_some());
        documents.release(&1);
        documents.release(&1);
        assert!(documents.get(&1).is_none());
    }

    #[test]
    fn of_too_many_old_documents_those_that_were_named_last_stay() {
        let mut documents = Documents::new(2);
        for (digest, named) in [(1, 3), (2, 1), (3, 2), (4, 0)] {
            add(&mut documents, digest);
            documents.name(&digest, now() + secs(named));
        }
        for digest in 1..=3 {
            documents.release(&digest);
        }
        documents.forget_old(now() + secs(3));
        // The one that a relay has does not count.
        assert_eq!(Vec::from_iter(documents.held.keys()), [&1, &3, &4]);
    }
}
