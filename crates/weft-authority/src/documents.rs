//! Documents that an authority serves by their digests: those of relays as they are now, and those that a consensus of
//! the last day names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time for which a document is kept after a consensus named it last: as long as clients may have
/// that consensus.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Documents of one kind, each with the time when a consensus named it last.
#[derive(Debug)]
pub(crate) struct Documents<K> {
    held: BTreeMap<K, (Option<SystemTime>, Arc<str>)>,
    /// Documents that no relay has any more, at most.
    max_old: usize,
}

impl<K: Ord + Copy> Documents<K> {
    pub(crate) fn new(max_old: usize) -> Self {
        Self {
            held: BTreeMap::new(),
            max_old,
        }
    }

    pub(crate) fn get(&self, digest: &K) -> Option<&Arc<str>> {
        Some(&self.held.get(digest)?.1)
    }

    /// A relay has this document now.
    pub(crate) fn add(&mut self, digest: K, text: &Arc<str>) {
        let new = || (None, text.clone());
        self.held.entry(digest).or_insert_with(new);
    }

    /// The relay that had this document does not have it any more.
    pub(crate) fn release(&mut self, digest: &K) {
        if self
            .held
            .get(digest)
            .is_some_and(|(named, _)| named.is_none())
        {
            self.held.remove(digest);
        }
    }

    /// A consensus names these documents. Forgets what no relay has (`has` is all that they have) and no consensus of the
    /// last day names, and of the rest what was named first, where it is too much.
    pub(crate) fn name(&mut self, named: &[K], has: &BTreeSet<K>, now: SystemTime) {
        for digest in named {
            if let Some((last, _)) = self.held.get_mut(digest) {
                *last = Some(now);
            }
        }
        self.held.retain(|digest, (named, _)| {
            has.contains(digest) || named.is_some_and(|named| named + OLD >= now)
        });
        let unused = self.held.iter().filter(|(digest, _)| !has.contains(digest));
        let mut old: Vec<(Option<SystemTime>, K)> = unused
            .map(|(digest, (named, _))| (*named, *digest))
            .collect();
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

    fn documents(max_old: usize, digests: std::ops::RangeInclusive<u8>) -> Documents<u8> {
        let mut documents = Documents::new(max_old);
        digests.for_each(|digest| documents.add(digest, &Arc::from("text")));
        documents
    }

    fn held(documents: &Documents<u8>) -> Vec<u8> {
        documents.held.keys().copied().collect()
    }

    #[test]
    fn what_a_consensus_named_stays_for_a_day_and_what_none_named_goes_with_its_relay() {
        let mut documents = documents(9, 1..=3);
        let has = BTreeSet::from([3]);
        documents.name(&[2, 4], &BTreeSet::from([1, 2, 3]), now());
        for digest in 1..=2 {
            documents.release(&digest);
        }
        assert_eq!(held(&documents), [2, 3]);
        documents.name(&[], &has, now() + OLD);
        assert_eq!(held(&documents), [2, 3]);
        documents.name(&[], &has, now() + OLD + secs(1));
        assert_eq!(held(&documents), [3]);
    }

    #[test]
    fn of_too_many_old_documents_those_that_were_named_last_stay() {
        let mut documents = documents(2, 1..=4);
        let all = BTreeSet::from([1, 2, 3, 4]);
        for (digest, named) in [(4, 0), (2, 1), (3, 2), (1, 3)] {
            documents.name(&[digest], &all, now() + secs(named));
        }
        documents.name(&[], &BTreeSet::from([4]), now() + secs(3));
        // The one that a relay has does not count.
        assert_eq!(held(&documents), [1, 3, 4]);
    }
}
