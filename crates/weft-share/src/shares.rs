//! Items of several owners under one bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use weft_planted::{Fault, planted};

use crate::ranks::{Rank, Ranks};
use crate::ticket::{Ticket, Turn};

/// An item was admitted.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    /// Its name, until it is released, served or displaced.
    pub ticket: Ticket,
    /// The item that gave way to it and is no longer counted, with its ticket.
    pub displaced: Option<(Ticket, T)>,
}

/// An item and its owner.
#[derive(Debug)]
struct Item<G, M, T> {
    group: G,
    member: M,
    turn: Turn,
    item: T,
}

/// Items of one group.
#[derive(Debug)]
struct Group<M> {
    /// Items by member, in the order in which they give way.
    members: BTreeMap<M, BTreeSet<Turn>>,
    ranks: Ranks<M>,
    held: usize,
    /// The member that was served last.
    served: Option<M>,
}

impl<M: Copy + Ord> Group<M> {
    fn rank(&self) -> Option<Rank> {
        let (Rank { first, .. }, _) = self.ranks.greatest()?;
        let held = self.held;
        Some(Rank { held, first })
    }
}

/// Items under a common bound, each of which belongs to a member of a group (a circuit of a previous
/// hop). Shares are fair among groups, and in a group among its members.
///
/// [`admit`](Self::admit) takes an item in, or leaves it with the caller. Each admitted item leaves
/// exactly once: by [`release`](Self::release), by [`serve`](Self::serve), or displaced by another
/// [`admit`](Self::admit).
///
/// At the bound:
/// - the group that holds most gives way to one that would still hold less; in it the member that
///   holds most; of its items the one that has not been [proven](Self::prove) for longest, else the
///   oldest;
/// - among equals, and in place of the asker's own, only an item that is not proven gives way, the
///   one that has not been for longest. Useful items prove themselves soon; items made to fill the
///   bound never do. So a flood that comes by as many owners as there are places, or by the same
///   hop as others, has to be as fast as the places are many to keep anybody out.
#[derive(Debug)]
pub struct Shares<G, M, T> {
    last_ticket: u64,
    items: BTreeMap<Ticket, Item<G, M, T>>,
    groups: BTreeMap<G, Group<M>>,
    ranks: Ranks<G>,
    /// The group that was served last.
    served: Option<G>,
}

impl<G, M, T> Default for Shares<G, M, T> {
    fn default() -> Self {
        Self {
            last_ticket: 0,
            items: BTreeMap::new(),
            groups: BTreeMap::new(),
            ranks: Ranks::default(),
            served: None,
        }
    }
}

impl<G: Copy + Ord, M: Copy + Ord, T> Shares<G, M, T> {
    /// Items in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Items of one group.
    #[must_use]
    pub fn held(&self, group: G) -> usize {
        self.ranks.held(group)
    }

    /// Items of the group that holds most.
    #[must_use]
    pub fn most(&self) -> usize {
        self.ranks.greatest().map_or(0, |(rank, _)| rank.held)
    }

    /// An item that is still held.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&T> {
        self.items.get(&ticket).map(|held| &held.item)
    }

    /// The owner of an item that is still held.
    #[must_use]
    pub fn owner(&self, ticket: Ticket) -> Option<(G, M)> {
        let item = self.items.get(&ticket)?;
        Some((item.group, item.member))
    }

    /// Takes an item in, where there may be `bound` in all; another may have to give way.
    ///
    /// # Errors
    /// There is no room, and nothing gives way: the caller gets the item back.
    pub fn admit(&mut self, group: G, member: M, bound: usize, item: T) -> Result<Admitted<T>, T> {
        let displaced = if self.items.len() < bound {
            None
        } else {
            match self.gives_way(group, member).filter(|_| bound > 0) {
                Some(ticket) => self.release(ticket).map(|item| (ticket, item)),
                None => return Err(item),
            }
        };
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let turn = Turn {
            proven: false,
            since: self.last_ticket,
            ticket,
        };
        let held = Item {
            group,
            member,
            turn,
            item,
        };
        self.items.insert(ticket, held);
        self.add(group, member, turn);
        Ok(Admitted { ticket, displaced })
    }

    /// An item has shown that it is of use: it gives way only to an owner that holds less, and after
    /// the owner's other items.
    pub fn prove(&mut self, ticket: Ticket) {
        self.set_proven(ticket, true, ticket.0);
    }

    /// An item is not of use any more: it gives way as if it had come now.
    pub fn unprove(&mut self, ticket: Ticket) {
        self.last_ticket += 1;
        self.set_proven(ticket, false, self.last_ticket);
    }

    fn set_proven(&mut self, ticket: Ticket, proven: bool, since: u64) {
        let Some(item) = self.items.get_mut(&ticket) else {
            return;
        };
        if item.turn.proven == proven {
            return;
        }
        let turn = Turn {
            proven,
            since,
            ticket,
        };
        let before = std::mem::replace(&mut item.turn, turn);
        let (group, member) = (item.group, item.member);
        self.take(group, member, before);
        self.add(group, member, turn);
    }

    /// An item is over. `None`: it has left before.
    pub fn release(&mut self, ticket: Ticket) -> Option<T> {
        let Item {
            group,
            member,
            turn,
            item,
        } = self.items.remove(&ticket)?;
        if !planted(Fault::ShareNotReleased) {
            self.take(group, member, turn);
        }
        Some(item)
    }

    /// Takes the next item out, so that each group has its turn, in it each member, and of a member's
    /// items the oldest is first.
    pub fn serve(&mut self) -> Option<T> {
        let name = after(&self.groups, self.served)?;
        self.served = Some(name);
        let group = self.groups.get_mut(&name)?;
        let member = after(&group.members, group.served)?;
        group.served = Some(member);
        let ticket = group.members.get(&member)?.first()?.ticket;
        self.release(ticket)
    }

    /// Checks that each item is counted for its owner, and nothing else is.
    ///
    /// # Errors
    ///
    /// The first count that differs.
    pub fn audit(&self) -> Result<(), String> {
        let mut turns = 0;
        for (name, group) in &self.groups {
            let of_members: usize = group.members.values().map(BTreeSet::len).sum();
            if of_members != group.held || self.ranks.held(*name) != group.held {
                return Err("a group's share is the sum of its members'".to_owned());
            }
            turns += of_members;
        }
        match turns == self.items.len() {
            true => Ok(()),
            false => Err(format!(
                "{} items are held, and {turns} are counted for owners",
                self.items.len()
            )),
        }
    }

    /// The item that gives way to one more of this owner.
    fn gives_way(&self, group: G, member: M) -> Option<Ticket> {
        let (most, _) = self.ranks.greatest()?;
        let held = self.ranks.held(group);
        let Reverse(mut first) = most.first;
        if held + 1 < most.held {
            return Some(first.ticket);
        }
        if held >= most.held {
            // The asker's own group is one of those that hold most.
            let own = self.groups.get(&group)?;
            let (most, _) = own.ranks.greatest()?;
            let held = own.ranks.held(member);
            Reverse(first) = most.first;
            if held + 1 < most.held {
                return Some(first.ticket);
            }
            if held >= most.held {
                first = *own.members.get(&member)?.first()?;
            }
        }
        (!first.proven).then_some(first.ticket)
    }

    fn add(&mut self, name: G, member: M, turn: Turn) {
        let group = self.groups.entry(name).or_insert_with(|| Group {
            members: BTreeMap::new(),
            ranks: Ranks::default(),
            held: 0,
            served: None,
        });
        group.members.entry(member).or_default().insert(turn);
        group.held += 1;
        self.rank(name, member);
    }

    fn take(&mut self, name: G, member: M, turn: Turn) {
        let Some(group) = self.groups.get_mut(&name) else {
            return;
        };
        if let Some(turns) = group.members.get_mut(&member)
            && turns.remove(&turn)
        {
            group.held -= 1;
            if turns.is_empty() {
                group.members.remove(&member);
            }
        }
        self.rank(name, member);
    }

    /// Notes what a member, and with it its group, holds now.
    fn rank(&mut self, name: G, member: M) {
        let Some(group) = self.groups.get_mut(&name) else {
            return;
        };
        let of_member = group.members.get(&member).and_then(|turns| {
            let held = turns.len();
            let first = Reverse(*turns.first()?);
            Some(Rank { held, first })
        });
        group.ranks.set(member, of_member);
        let of_group = group.rank();
        if of_group.is_none() {
            self.groups.remove(&name);
        }
        self.ranks.set(name, of_group);
    }
}

/// The key behind another one, in a circle.
fn after<K: Copy + Ord, V>(map: &BTreeMap<K, V>, last: Option<K>) -> Option<K> {
    let next = last.and_then(|last| map.range((Excluded(last), Unbounded)).next());
    next.or_else(|| map.first_key_value()).map(|(key, _)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_finds_what_is_counted_wrongly() {
        let held = || {
            let mut shares = Shares::<u8, u8, ()>::default();
            for member in 0..3 {
                shares.admit(1, member, 10, ()).unwrap();
            }
            assert_eq!(shares.audit(), Ok(()));
            shares
        };
        let mut shares = held();
        shares.items.pop_first();
        let error = shares.audit().unwrap_err();
        assert_eq!(error, "2 items are held, and 3 are counted for owners");
        let sum = Err("a group's share is the sum of its members'".to_owned());
        let mut shares = held();
        shares.groups.get_mut(&1).unwrap().held += 1;
        assert_eq!(shares.audit(), sum);
        // One of the two counts alone.
        let mut shares = held();
        shares.ranks = Ranks::default();
        assert_eq!(shares.audit(), sum);
        let mut shares = held();
        shares.groups.get_mut(&1).unwrap().members.pop_first();
        assert_eq!(shares.audit(), sum);
    }
}
