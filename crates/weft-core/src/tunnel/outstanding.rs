//! Messages that a tunnel has sent and that its far end may not have received: they are sent again on another leg when theirs
//! closes, or stands still (docs/extensions/mtor.md).

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use weft_cell::Cell;

use super::copies::Copies;
use crate::address::HalfAddr;
use crate::memory::ledger::{map_entry, queue_memory, shrink};

/// A number may be this far past the oldest that is not acknowledged: the far end keeps as many.
pub(crate) const SPAN: u64 = super::reorder::MAX_REORDER as u64;

/// A message that is not acknowledged.
#[derive(Debug)]
struct Sent {
    /// The leg that it was sent on last.
    leg: HalfAddr,
    /// When.
    at: Instant,
    /// It is to be sent again.
    again: bool,
}

/// Messages that may have to be sent again. Numbers are consecutive, so a message is found by its
/// place.
#[derive(Debug)]
pub(crate) struct Outstanding {
    /// From number `first` on. `None`: acknowledged; the first one is not.
    sent: VecDeque<Option<Sent>>,
    /// Everything before this number is acknowledged.
    first: u64,
    /// The messages, as their legs got them.
    copies: Copies,
    /// The numbers of those that are to be sent again.
    again: BTreeSet<u64>,
}

impl Default for Outstanding {
    fn default() -> Self {
        Outstanding {
            sent: VecDeque::new(),
            first: 1,
            copies: Copies::default(),
            again: BTreeSet::new(),
        }
    }
}

impl Outstanding {
    /// True if another number may be assigned.
    pub(crate) fn has_room(&self) -> bool {
        (self.sent.len() as u64) < SPAN
    }

    /// The number of the first message that is not acknowledged, or else of the next to be sent.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The next number is sent for the first time.
    pub(crate) fn keep(&mut self, message: &Cell, leg: HalfAddr, at: Instant) {
        let number = self.first + self.sent.len() as u64;
        self.copies.push(number, message, at);
        let again = false;
        self.sent.push_back(Some(Sent { leg, at, again }));
    }

    /// The message of a number, if it is not acknowledged.
    fn get_mut(&mut self, number: u64) -> Option<&mut Option<Sent>> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get_mut(place)
    }

    /// The far end has received a message.
    pub(crate) fn acknowledged(&mut self, number: u64) {
        let Some(sent) = self.get_mut(number).and_then(Option::take) else {
            return;
        };
        self.free(number, sent);
        self.advance();
    }

    /// The far end has received everything before this number. True: that was not known.
    pub(crate) fn acknowledged_before(&mut self, next: u64) -> bool {
        let before = self.first;
        while self.first < next
            && let Some(front) = self.sent.pop_front()
        {
            if let Some(sent) = front {
                self.free(self.first, sent);
            }
            self.first += 1;
        }
        self.advance();
        self.first > before
    }

    /// A message is not kept any more.
    fn free(&mut self, number: u64, sent: Sent) {
        if sent.again {
            self.again.remove(&number);
        }
    }

    /// Forgets the places of those at the front that are acknowledged.
    fn advance(&mut self) {
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first += 1;
        }
        shrink(&mut self.sent);
        match self.sent.is_empty() {
            true => self.copies.clear(),
            false => self.copies.forget_before(self.first),
        }
    }

    /// The leg that a message was sent on last, and when. `None`: it is acknowledged, was never sent, or is to be sent again.
    pub(crate) fn carrier(&self, number: u64) -> Option<(HalfAddr, Instant)> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let sent = self.sent.get(place)?.as_ref()?;
        (!sent.again).then_some((sent.leg, sent.at))
    }

    /// The last message that is not acknowledged, with the leg that it was sent on last, and when. `None`: there is none, or it is to be
    /// sent again.
    pub(crate) fn last(&self) -> Option<(u64, HalfAddr, Instant)> {
        let place = self.sent.iter().rposition(Option::is_some)?;
        let number = self.first + place as u64;
        let (leg, at) = self.carrier(number)?;
        Some((number, leg, at))
    }

    /// A message is to be sent again, if it was sent on this leg last. True: it is.
    pub(crate) fn send_again(&mut self, number: u64, leg: HalfAddr) -> bool {
        match self.get_mut(number) {
            Some(Some(sent)) if sent.leg == leg && !sent.again => {
                sent.again = true;
                self.again.insert(number)
            }
            _ => false,
        }
    }

    /// True if some messages wait to be sent again.
    pub(crate) fn wants_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// The next of these, which this leg takes: its number, and the message as it was sent before.
    pub(crate) fn next_again(&mut self, leg: HalfAddr, now: Instant) -> Option<(u64, &Cell)> {
        let number = self.again.pop_first()?;
        let sent = self.get_mut(number)?.as_mut()?;
        (sent.again, sent.leg, sent.at) = (false, leg, now);
        Some((number, self.copies.get(number)?))
    }

    /// True if the message was sent and is not acknowledged.
    #[cfg(test)]
    pub(crate) fn keeps(&self, number: u64) -> bool {
        let place = number
            .checked_sub(self.first)
            .and_then(|place| usize::try_from(place).ok());
        (place.and_then(|place| self.sent.get(place))).is_some_and(Option::is_some)
    }

    /// Memory of the messages and of what is known of each.
    pub(crate) fn memory(&self) -> usize {
        self.copies.memory() + queue_memory(&self.sent) + self.again.len() * map_entry::<u64, ()>()
    }

    /// Time for which the first unacknowledged message has been kept.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.copies.age(now)
    }

    /// True if the records of all messages are consistent, for tests.
    pub(crate) fn audit(&self) -> bool {
        let numbered = || (self.first..).zip(&self.sent);
        let again = numbered().filter(|(_, sent)| sent.as_ref().is_some_and(|sent| sent.again));
        let mut kept = numbered().filter(|(_, sent)| sent.is_some());
        self.sent.len() as u64 <= SPAN
            && kept.all(|(number, _)| self.copies.get(number).is_some())
            && self.sent.is_empty() == (self.copies.memory() == 0)
            && !matches!(self.sent.front(), Some(None))
            && again
                .map(|(number, _)| number)
                .eq(self.again.iter().copied())
    }
}
