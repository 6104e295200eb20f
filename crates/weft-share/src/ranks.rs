//! Owners by how much they hold.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ticket::Turn;

/// Number of items of an owner, and the turn in which its first item gives way: the greatest gives
/// way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Items.
    pub(crate) held: usize,
    /// Of several that hold as much, the one whose item gives way soonest is the greatest.
    pub(crate) first: Reverse<Turn>,
}

/// Owners by rank.
#[derive(Debug)]
pub(crate) struct Ranks<K> {
    of: BTreeMap<K, Rank>,
    order: BTreeSet<(Rank, K)>,
}

impl<K> Default for Ranks<K> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord> Ranks<K> {
    /// Gives an owner another rank; `None` takes it out.
    pub(crate) fn set(&mut self, owner: K, rank: Option<Rank>) {
        let before = match rank {
            Some(rank) => self.of.insert(owner, rank),
            None => self.of.remove(&owner),
        };
        if let Some(before) = before {
            self.order.remove(&(before, owner));
        }
        if let Some(rank) = rank {
            self.order.insert((rank, owner));
        }
    }

    /// Number of items that an owner holds.
    pub(crate) fn held(&self, owner: K) -> usize {
        self.of.get(&owner).map_or(0, |rank| rank.held)
    }

    /// The owner that gives way.
    pub(crate) fn greatest(&self) -> Option<(Rank, K)> {
        self.order.last().copied()
    }
}
