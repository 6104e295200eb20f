//! Legs of mTor: what is acknowledged, what is sent again, and which legs stand still or are slow (docs/extensions/mtor.md).

use std::time::{Duration, Instant};

use weft_cell::Cell;

use super::legs::{Choice, Leg, Legs};
use super::outstanding::SPAN;
use crate::address::{HalfAddr, OriginId};
use crate::memory::cells::CellPool;

/// A leg is stalled if a message that was sent on it this long ago, or three of the leg's round
/// trips ago, is still the next that the far end waits for, and has been for as long.
const STALLED: Duration = Duration::from_secs(1);

/// The last message is sent again if nothing under way was acknowledged for this time, or for three
/// round trips of its leg; then after twice as long, and so on.
const TAIL: Duration = Duration::from_secs(1);
/// Largest number of doublings.
const DOUBLINGS: u32 = 6;

/// Result of an MTOR_ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// It names what was not sent.
    NotSent,
    /// Nothing that was not known.
    Nothing,
    /// Messages that had not been acknowledged, or that are to be sent again.
    News,
}

impl Legs {
    /// Handles MTOR_ACK: everything before this number has arrived, and this one has not. The work
    /// is bounded by what was sent: each message is acknowledged once, and given up once on each
    /// leg that it was sent on.
    pub(crate) fn acknowledged(&mut self, next: u64, now: Instant) -> Acknowledged {
        if next > self.sent + 1 {
            return Acknowledged::NotSent;
        }
        let mut news = self.outstanding.acknowledged_before(next);
        if news {
            self.note_news(now);
        }
        let since = match self.named {
            // An older one came by a slower leg.
            Some((named, _)) if named > next => return Acknowledged::Nothing,
            Some((named, since)) if named == next => since,
            _ => now,
        };
        self.named = Some((next, since));
        if now.saturating_duration_since(since) >= STALLED {
            news |= self.give_up_carrier(next, now);
        }
        match news {
            true => Acknowledged::News,
            false => Acknowledged::Nothing,
        }
    }

    /// The far end has waited for this message for long: the leg that carries it stands still, if it has carried it for long. True: what
    /// it carries is to be sent again.
    fn give_up_carrier(&mut self, next: u64, now: Instant) -> bool {
        let Some((half, at)) = self.outstanding.carrier(next) else {
            // It was not sent, a SENDME has overtaken this, or it is to be sent again already.
            return false;
        };
        let allowed = self.may_give_up();
        let Some(leg) = self.legs.iter_mut().find(|leg| leg.half == half) else {
            return false;
        };
        let patience = leg.rtt.map_or(STALLED, |rtt| STALLED.max(3 * rtt));
        if now.saturating_duration_since(at) <= patience {
            return false;
        }
        leg.stalled = true;
        let numbers = leg.carries.iter().skip(leg.given_up).take(allowed);
        let mut any = false;
        for number in numbers {
            leg.given_up += 1;
            if self.outstanding.send_again(*number, half) {
                self.given_up += 1;
                any = true;
            }
        }
        any
    }

    /// Number of messages that may still be given up on a stalled leg: as many as were
    /// acknowledged, so that a far end that repeats the same number is not sent more than it has
    /// received.
    fn may_give_up(&self) -> usize {
        let acknowledged = self.outstanding.first() - 1;
        let left = (acknowledged + SPAN).saturating_sub(self.given_up);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Something that was sent has arrived.
    pub(super) fn note_news(&mut self, now: Instant) {
        (self.news, self.tails) = (Some(now), 0);
    }

    /// Has the last message sent once more, on another leg if one has room, where nothing was acknowledged for long. The far end cannot
    /// know that it misses the last, so it names nothing; once it has that, it knows what else is missing. True: it is to be sent.
    pub(crate) fn send_tail_again(&mut self, now: Instant) -> bool {
        let Some((number, half, at)) = self.outstanding.last() else {
            return false;
        };
        let since = self.news.map_or(at, |news| news.max(at));
        let turns = self.turns + 1;
        let tails = self.tails;
        let Some(leg) = self.get_mut(half) else {
            return false;
        };
        let patience = leg.rtt.map_or(TAIL, |rtt| TAIL.max(3 * rtt));
        if now.saturating_duration_since(since) < patience * 2u32.pow(tails.min(DOUBLINGS)) {
            return false;
        }
        leg.end_turn(turns);
        (self.turns, self.tails) = (turns, tails.saturating_add(1));
        self.outstanding.send_again(number, half)
    }

    /// The leg that takes the next acknowledgement: each in turn, because this end may not know
    /// that a leg has ended, and an acknowledgement on it is lost. Stalled and slow legs are used
    /// only if there is no other.
    pub(crate) fn ack_leg(&mut self) -> Option<HalfAddr> {
        let rank = |leg: &&Leg| (!leg.stalled, !leg.slow);
        let usable = || self.legs.iter().filter(|leg| leg.is_usable());
        let best = usable().map(|leg| rank(&leg)).max()?;
        let mut good = usable().filter(|leg| rank(leg) == best);
        let place = self.acks % good.clone().count().max(1);
        let half = good.nth(place)?.half;
        self.acks = self.acks.wrapping_add(1);
        Some(half)
    }

    /// Keeps a copy of the message that was given to a leg last, until it is acknowledged (mTor).
    pub(crate) fn keep(&mut self, choice: Choice, message: &Cell, now: Instant) {
        self.outstanding.keep(message, choice.half, now);
        if let Some(leg) = self.get_mut(choice.half) {
            leg.carries.push_back(choice.number);
        }
    }

    /// The next message that must be sent again, with the leg that takes it. `None`: there is none, or no leg has room.
    pub(crate) fn next_again(
        &mut self,
        pool: &mut CellPool,
        now: Instant,
    ) -> Option<(Choice, Box<Cell>)> {
        if !self.outstanding.wants_again() {
            return None;
        }
        let place = self.next()?;
        let leg = self.legs.get_mut(place)?;
        let half = leg.half;
        let (number, cell) = self.outstanding.next_again(half, now)?;
        let copy = pool.copy_of(cell.as_bytes());
        leg.carries.push_back(number);
        self.take_turn(place, true);
        let choice = Choice {
            half,
            number,
            switch: None,
        };
        Some((choice, copy))
    }

    /// A message arrived on a leg of our own, the tunnel's `count`th: its circuit, if that has become slow (mTor). `before`: when the
    /// tunnel's last message arrived.
    pub(crate) fn paced(
        &mut self,
        half: HalfAddr,
        count: u64,
        before: Option<Instant>,
        now: Instant,
    ) -> Option<OriginId> {
        let leg = self.get_mut(half)?;
        match leg.pace.arrived(count, before, now) {
            true => leg.found_slow(),
            false => None,
        }
    }

    /// Circuits of our own that stand still, one way or the other, and were not known to be slow; the tunnel has `count` messages by
    /// now (mTor).
    pub(crate) fn standing_still(&mut self, count: u64, now: Instant) -> Vec<OriginId> {
        let others = self.legs.len().saturating_sub(1);
        let legs = self.legs.iter_mut();
        let still = legs.filter(|leg| leg.stalled || leg.pace.is_stalled(count, others, now));
        still.filter_map(Leg::found_slow).collect()
    }

    /// True if a copy of the message is kept.
    #[cfg(test)]
    pub(crate) fn keeps(&self, number: u64) -> bool {
        self.outstanding.keeps(number)
    }

    /// True if the message was sent and is not acknowledged, but no leg carries it and it is not
    /// queued to be sent again.
    #[cfg(test)]
    pub(crate) fn lost(&self, number: u64) -> bool {
        let carrier = self.outstanding.carrier(number);
        carrier.is_some_and(|(half, _)| {
            let legs = self.legs.iter().filter(|leg| leg.half == half);
            !legs.flat_map(|leg| &leg.carries).any(|one| *one == number)
        })
    }
}
