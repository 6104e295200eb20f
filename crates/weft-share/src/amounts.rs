//! Amounts of several owners under one bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ticket::Ticket;

/// An item and its owner.
#[derive(Debug)]
struct Item<G, M, T> {
    group: G,
    member: M,
    amount: usize,
    item: T,
}

/// Owners and how much each holds.
#[derive(Debug)]
struct Sums<K> {
    of: BTreeMap<K, usize>,
    order: BTreeSet<(usize, K)>,
}

impl<K> Default for Sums<K> {
    fn default() -> Self {
        Self {
            of: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord> Sums<K> {
    fn held(&self, owner: K) -> usize {
        self.of.get(&owner).copied().unwrap_or(0)
    }

    /// The owner that holds most.
    fn greatest(&self) -> Option<(usize, K)> {
        self.order.last().copied()
    }

    /// Replaces `before` by `after` in what an owner holds; one that holds nothing is forgotten.
    fn replace(&mut self, owner: K, before: usize, after: usize) {
        let held = self.of.remove(&owner).unwrap_or(0);
        self.order.remove(&(held, owner));
        let held = held.saturating_sub(before).saturating_add(after);
        if held > 0 {
            self.of.insert(owner, held);
            self.order.insert((held, owner));
        }
    }
}

/// Amounts of one group.
#[derive(Debug)]
struct Group<M> {
    members: Sums<M>,
    /// Items of each member that hold something, by amount; of equals the oldest is the last.
    items: BTreeMap<M, BTreeSet<(usize, Reverse<Ticket>)>>,
}

impl<M> Default for Group<M> {
    fn default() -> Self {
        Self {
            members: Sums::default(),
            items: BTreeMap::new(),
        }
    }
}

impl<M: Copy + Ord> Group<M> {
    fn heaviest_of(&self, member: M) -> Option<Ticket> {
        let (_, Reverse(ticket)) = self.items.get(&member)?.last()?;
        Some(*ticket)
    }
}

/// Items that each hold an amount of something bounded, bytes for example, and belong to a member of a group (a
/// circuit of a previous hop). [`Shares`](crate::Shares) bounds the number of items; this bounds the sum of their amounts.
///
/// Past the bound the group that holds most gives way to one that would still hold less; in it the member that holds
/// most; of its items the heaviest.
#[derive(Debug)]
pub struct Amounts<G, M, T> {
    last_ticket: u64,
    items: BTreeMap<Ticket, Item<G, M, T>>,
    groups: BTreeMap<G, Group<M>>,
    sums: Sums<G>,
    total: usize,
}

impl<G, M, T> Default for Amounts<G, M, T> {
    fn default() -> Self {
        Self {
            last_ticket: 0,
            items: BTreeMap::new(),
            groups: BTreeMap::new(),
            sums: Sums::default(),
            total: 0,
        }
    }
}

impl<G: Copy + Ord, M: Copy + Ord, T> Amounts<G, M, T> {
    /// Sum of all amounts.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Items, those that hold nothing included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Items with their groups and amounts.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, G, usize)> {
        let items = self.items.iter();
        items.map(|(ticket, item)| (*ticket, item.group, item.amount))
    }

    /// Adds an item that holds nothing yet.
    pub fn add(&mut self, group: G, member: M, item: T) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let item = Item {
            group,
            member,
            amount: 0,
            item,
        };
        self.items.insert(ticket, item);
        ticket
    }

    /// Changes the amount of an item, where all together may hold `bound`. Returns the items that
    /// gave way, which are no longer counted.
    ///
    /// # Errors
    /// There is no room, or the item has ended: its amount is unchanged. Items that gave way are
    /// returned nevertheless.
    pub fn set(&mut self, ticket: Ticket, amount: usize, bound: usize) -> Result<Vec<T>, Vec<T>> {
        let mut displaced = Vec::new();
        let Some(item) = self.items.get(&ticket) else {
            return Err(displaced);
        };
        let (group, member, before) = (item.group, item.member, item.amount);
        let after = |held: usize| held.saturating_sub(before).saturating_add(amount);
        // Giving something back is always possible.
        while amount > before && after(self.total) > bound {
            let gives_way = match amount <= bound {
                true => self.gives_way(group, member, after),
                false => None,
            };
            match gives_way.and_then(|ticket| self.release(ticket)) {
                Some(item) => displaced.push(item),
                None => return Err(displaced),
            }
        }
        self.replace(ticket, amount);
        Ok(displaced)
    }

    /// An item is over. `None`: it has left before.
    pub fn release(&mut self, ticket: Ticket) -> Option<T> {
        self.replace(ticket, 0);
        Some(self.items.remove(&ticket)?.item)
    }

    /// The item that gives way to growth of an item of this owner; `after` is what its sums are then.
    fn gives_way(&self, group: G, member: M, after: impl Fn(usize) -> usize) -> Option<Ticket> {
        let (most, heaviest) = self.sums.greatest()?;
        if heaviest != group && most > after(self.sums.held(group)) {
            let other = self.groups.get(&heaviest)?;
            let (_, member) = other.members.greatest()?;
            return other.heaviest_of(member);
        }
        let own = self.groups.get(&group)?;
        let (most, heaviest) = own.members.greatest()?;
        let is_fair = heaviest != member && most > after(own.members.held(member));
        is_fair.then(|| own.heaviest_of(heaviest)).flatten()
    }

    /// Gives an item another amount.
    fn replace(&mut self, ticket: Ticket, amount: usize) {
        let Some(item) = self.items.get_mut(&ticket) else {
            return;
        };
        let before = std::mem::replace(&mut item.amount, amount);
        let (name, member) = (item.group, item.member);
        self.total = self.total.saturating_sub(before).saturating_add(amount);
        self.sums.replace(name, before, amount);
        let group = self.groups.entry(name).or_default();
        group.members.replace(member, before, amount);
        let items = group.items.entry(member).or_default();
        items.remove(&(before, Reverse(ticket)));
        if amount > 0 {
            items.insert((amount, Reverse(ticket)));
        }
        if items.is_empty() {
            group.items.remove(&member);
        }
        if group.items.is_empty() {
            self.groups.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_nothing_is_forgotten() {
        let mut bytes = Amounts::default();
        let tickets: Vec<Ticket> = (0..9).map(|owner| bytes.add(owner, owner, ())).collect();
        for ticket in &tickets {
            bytes.set(*ticket, 10, 100).unwrap();
        }
        assert_eq!((bytes.groups.len(), bytes.sums.of.len()), (9, 9));
        for ticket in &tickets {
            bytes.set(*ticket, 0, 100).unwrap();
        }
        assert_eq!((bytes.len(), bytes.total()), (9, 0));
        assert!(bytes.groups.is_empty() && bytes.sums.of.is_empty() && bytes.sums.order.is_empty());
    }
}
