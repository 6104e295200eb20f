//! One direction of one link.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::links::quantity::{Loss, QueueLimit};
use crate::links::{LinkSettings, Moment};

/// Result of sending a packet over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Lost at random, after it was sent.
    DroppedByLoss,
    /// The queue was full.
    DroppedByQueue,
    /// It arrives at the other end then.
    Arrives(Moment),
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrive, or will.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were lost at random.
    pub dropped_by_loss: u64,
    /// Packets that found the queue full.
    pub dropped_by_queue: u64,
}

/// One direction of one link: a queue, a line that sends one packet after another at its rate, then a delay.
///
/// A packet that finds the queue full is dropped. Each other one is sent behind those before it,
/// takes its length divided by the rate, and is then lost with the link's loss or arrives after its delay.
/// A lost packet has used the line. Lengths are those of IP packets, without a frame around them.
///
/// Jitter adds to the delay of each packet a time between its negative and itself, every value as likely,
/// but never overtakes: a packet arrives no earlier than the one before it.
#[derive(Clone, Debug)]
pub struct Link {
    rate: Option<u64>,
    delay: u64,
    jitter: u64,
    loss: Loss,
    queue: QueueLimit,
    /// When the line has sent all that it took: nanoseconds, and a rest in units of 1/rate nanoseconds,
    /// so that no rounding adds up.
    free: (u64, u64),
    /// When each waiting packet will have been sent, and its length; the first may be on the line.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    last_arrival: Moment,
    counters: Counters,
}

impl Link {
    /// An idle one.
    #[must_use]
    pub fn new(settings: &LinkSettings) -> Link {
        Link {
            rate: settings.rate.map(|rate| rate.bits()),
            delay: nanos(settings.delay),
            // A packet cannot arrive before it was sent.
            jitter: nanos(settings.jitter.min(settings.delay)),
            loss: settings.loss,
            queue: settings.queue,
            free: (0, 0),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            last_arrival: Moment::START,
            counters: Counters::default(),
        }
    }

    /// Changes the settings. Packets already taken keep their times, and nothing overtakes them.
    pub fn change(&mut self, settings: &LinkSettings) {
        let Link {
            rate,
            delay,
            jitter,
            loss,
            queue,
            ..
        } = Link::new(settings);
        if self.rate != rate {
            // Its rest is in units of the old rate.
            self.free.1 = 0;
        }
        (self.rate, self.delay, self.jitter) = (rate, delay, jitter);
        (self.loss, self.queue) = (loss, queue);
    }

    /// Returns the fate of a packet of `length` bytes that arrives at `now`. Draws from `rng` only
    /// for loss and jitter.
    pub fn offer(&mut self, now: Moment, length: u32, rng: &mut impl Rng) -> Fate {
        let sent = match self.rate {
            None => now.nanos(),
            Some(rate) => {
                self.forget_sent(now.nanos());
                if self.is_full() {
                    self.counters.dropped_by_queue += 1;
                    return Fate::DroppedByQueue;
                }
                let sent = self.occupy_line(now.nanos(), length, rate);
                self.waiting.push_back((sent, length));
                self.waiting_bytes += u64::from(length);
                sent
            }
        };
        let lost = self.loss.per_billion();
        if lost > 0 && rng.random_range(0..Loss::BILLION) < lost {
            self.counters.dropped_by_loss += 1;
            return Fate::DroppedByLoss;
        }
        let delay = match self.jitter {
            0 => self.delay,
            jitter => self.delay - jitter + rng.random_range(0..=2 * jitter),
        };
        let arrival = Moment::from_nanos(sent).plus(delay).max(self.last_arrival);
        self.last_arrival = arrival;
        self.counters.packets += 1;
        self.counters.bytes += u64::from(length);
        Fate::Arrives(arrival)
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn forget_sent(&mut self, now: u64) {
        while let Some(&(sent, length)) = self.waiting.front()
            && sent <= now
        {
            self.waiting.pop_front();
            self.waiting_bytes -= u64::from(length);
        }
    }

    fn is_full(&self) -> bool {
        match self.queue {
            QueueLimit::Packets(limit) => self.waiting.len() as u64 >= u64::from(limit),
            QueueLimit::Bytes(limit) => self.waiting_bytes >= u64::from(limit),
        }
    }

    /// Keeps the line busy with a packet, and returns when it is sent, rounded up.
    fn occupy_line(&mut self, now: u64, length: u32, rate: u64) -> u64 {
        let (start, rest) = self.free.max((now, 0));
        let work = rest + u64::from(length) * 8 * 1_000_000_000;
        self.free = (start.saturating_add(work / rate), work % rate);
        self.free.0 + u64::from(self.free.1 > 0)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
