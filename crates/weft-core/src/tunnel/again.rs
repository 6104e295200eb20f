//! Legs of mTor: what is acknowledged, what is sent again, and which legs stand still or are slow (docs/extensions/mtor.md).

use std::time::{Duration, Instant};

use weft_cell::Cell;

use super::legs::{Choice, Leg, Legs};
use super::outstanding::SPAN;
use crate::address::{HalfAddr, OriginId};
use crate::cells::CellPool;

/// A leg stands still if a message that was sent on it so long ago, or three round trips of the leg, is still the next that the far
/// end waits for, and has been for so long.
const STALLED: Duration = Duration::from_secs(1);

/// What MTOR_ACK brings.
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
    /// MTOR_ACK: everything before this number has arrived, and this one has not. What that takes is paid for by what was sent:
    /// each message is acknowledged once, and given up once on each leg that it was sent on.
    pub(crate) fn acknowledged(
        &mut self,
        next: u64,
        pool: &mut CellPool,
        now: Instant,
    ) -> Acknowledged {
        if next > self.sent + 1 {
            return Acknowledged::NotSent;
        }
        let mut news = self.outstanding.acknowledged_before(next, pool);
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

    /// How many messages may still be given up on a leg that stands still: as many as were acknowledged, so that a far end that names
    /// the same number again and again is not sent more than it has received.
    fn may_give_up(&self) -> usize {
        let acknowledged = self.outstanding.first() - 1;
        let left = (acknowledged + SPAN).saturating_sub(self.given_up);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// A leg that an acknowledgement may be sent on.
    pub(crate) fn any_open(&self) -> Option<HalfAddr> {
        let usable = self.legs.iter().filter(|leg| leg.is_usable());
        // One that stands still last, then the one that was used last.
        let best = usable.max_by_key(|leg| (!leg.stalled, !leg.slow, leg.turn));
        best.map(|leg| leg.half)
    }

    /// Keeps a copy of the message that was given to a leg last, until it is acknowledged (mTor).
    pub(crate) fn keep(&mut self, choice: Choice, copy: Box<Cell>, now: Instant) {
        self.outstanding.keep(copy, choice.half, now);
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

    /// All copies, to be dropped.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Cell>> {
        self.outstanding.drain()
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

    /// Whether a message was sent that is not acknowledged, on no leg and not to be sent again.
    #[cfg(test)]
    pub(crate) fn lost(&self, number: u64) -> bool {
        let carrier = self.outstanding.carrier(number);
        carrier.is_some_and(|(half, _)| {
            let legs = self.legs.iter().filter(|leg| leg.half == half);
            !legs.flat_map(|leg| &leg.carries).any(|one| *one == number)
        })
    }
}
