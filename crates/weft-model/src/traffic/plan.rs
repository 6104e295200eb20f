//! Payload of one stream: bytes in each direction, and their times.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most bursts that a schedule has; with 1,434 bytes each they are 143 MB.
pub const MAX_BURSTS: usize = 100_000;

/// Bytes that may be sent from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Since the burst before, or since the schedule's beginning for the first.
    pub gap: Duration,
    /// Size of the burst.
    pub bytes: u32,
}

/// Bytes that one end of a stream sends, and their times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schedule {
    /// All as fast as the stream takes them.
    AtOnce(u64),
    /// So many at a time, the first at once.
    Steady {
        /// In all.
        bytes: u64,
        /// At a time; 0 counts as 1.
        chunk: u32,
        /// The time from one to the next.
        every: Duration,
    },
    /// By a list of at most [`MAX_BURSTS`]. Drawn by Markov models only, and never kept.
    #[serde(skip)]
    Bursts(Arc<[Burst]>),
}

impl Schedule {
    /// No bytes.
    pub const NONE: Schedule = Schedule::AtOnce(0);

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Schedule::AtOnce(bytes) | Schedule::Steady { bytes, .. } => *bytes,
            Schedule::Bursts(bursts) => bursts.iter().map(|burst| u64::from(burst.bytes)).sum(),
        }
    }

    /// When its last bytes may be sent, since its beginning.
    #[must_use]
    pub fn duration(&self) -> Duration {
        match self {
            Schedule::AtOnce(_) => Duration::ZERO,
            Schedule::Steady {
                bytes,
                chunk,
                every,
            } => {
                let chunks = bytes.div_ceil(u64::from((*chunk).max(1)));
                let gaps = u32::try_from(chunks.saturating_sub(1)).unwrap_or(u32::MAX);
                every.saturating_mul(gaps)
            }
            Schedule::Bursts(bursts) => bursts
                .iter()
                .fold(Duration::ZERO, |sum, burst| sum.saturating_add(burst.gap)),
        }
    }
}

/// One stream, as its client wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// From the server.
    pub down: Schedule,
    /// To the server.
    pub up: Schedule,
    /// Time from the stream's beginning after which it fails if it is not complete.
    pub timeout: Option<Duration>,
    /// Time without a transferred byte after which the stream fails.
    pub stall: Option<Duration>,
}

impl Plan {
    /// A download as fast as it goes, without a limit of time.
    #[must_use]
    pub fn download(bytes: u64) -> Plan {
        Plan {
            down: Schedule::AtOnce(bytes),
            up: Schedule::NONE,
            timeout: None,
            stall: None,
        }
    }
}

/// Progress of a schedule: the bytes of it that may have been sent.
#[derive(Clone, Debug)]
pub struct Pacer {
    schedule: Schedule,
    total: u64,
    /// When the schedule began; of bursts, when the last one that is due became so.
    start: Duration,
    due: u64,
    /// When more is due.
    next: Option<Duration>,
    /// Of bursts: how many are due.
    place: usize,
}

impl Pacer {
    /// Begins a schedule at `start`.
    #[must_use]
    pub fn new(schedule: Schedule, start: Duration) -> Pacer {
        Pacer {
            total: schedule.bytes(),
            schedule,
            start,
            due: 0,
            next: Some(start),
            place: 0,
        }
    }

    /// All bytes of the schedule.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that may have been sent by `now`. The number never falls.
    pub fn due(&mut self, now: Duration) -> u64 {
        match &self.schedule {
            Schedule::AtOnce(_) => {
                self.due = self.total;
                self.next = None;
            }
            Schedule::Steady { chunk, every, .. } => {
                let passed = now.saturating_sub(self.start).as_nanos();
                let every = every.as_nanos();
                let chunk = u64::from((*chunk).max(1));
                let chunks = passed.checked_div(every).map_or(u64::MAX, |whole| {
                    u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1)
                });
                self.due = chunks.saturating_mul(chunk).min(self.total).max(self.due);
                let gone = every.saturating_mul(u128::from(chunks));
                let gone = Duration::from_nanos(u64::try_from(gone).unwrap_or(u64::MAX));
                self.next = (self.due < self.total).then(|| self.start.saturating_add(gone));
            }
            Schedule::Bursts(bursts) => {
                while let Some(burst) = bursts.get(self.place) {
                    let at = self.start.saturating_add(burst.gap);
                    if at > now {
                        self.next = Some(at);
                        return self.due;
                    }
                    self.start = at;
                    self.due = self.due.saturating_add(u64::from(burst.bytes));
                    self.place += 1;
                }
                self.next = None;
            }
        }
        self.due
    }

    /// When more bytes become due than at the last [`Pacer::due`]; `None` if all are.
    #[must_use]
    pub fn next_time(&self) -> Option<Duration> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// When which number of bytes is due, by waking at each time that the pacer asks for.
    fn followed(schedule: Schedule) -> Vec<(u64, u64)> {
        let mut pacer = Pacer::new(schedule, seconds(100));
        let mut all = Vec::new();
        while let Some(now) = pacer.next_time() {
            all.push((now.as_secs(), pacer.due(now)));
            assert!(all.len() < 50, "{all:?}");
        }
        all
    }

    #[test]
    fn bytes_become_due_when_the_schedule_has_them() {
        assert_eq!(followed(Schedule::AtOnce(7)), [(100, 7)]);
        let steady = Schedule::Steady {
            bytes: 25,
            chunk: 10,
            every: seconds(2),
        };
        assert_eq!(steady.duration(), seconds(4));
        assert_eq!(followed(steady), [(100, 10), (102, 20), (104, 25)]);
        let burst = |gap, bytes| Burst {
            gap: seconds(gap),
            bytes,
        };
        let bursts = Schedule::Bursts([burst(0, 1), burst(3, 2), burst(0, 4), burst(5, 8)].into());
        assert_eq!((bursts.bytes(), bursts.duration()), (15, seconds(8)));
        assert_eq!(followed(bursts), [(100, 1), (103, 7), (108, 15)]);
    }

    #[test]
    fn a_late_look_has_all_that_is_due() {
        let steady = Schedule::Steady {
            bytes: u64::MAX,
            chunk: 10,
            every: seconds(2),
        };
        let mut pacer = Pacer::new(steady, seconds(100));
        assert_eq!(pacer.due(seconds(109)), 50);
        assert_eq!(pacer.next_time(), Some(seconds(110)));
        assert_eq!(pacer.due(seconds(90)), 50);
    }

    #[test]
    fn a_schedule_without_time_is_due_at_once() {
        let steady = Schedule::Steady {
            bytes: 25,
            chunk: 0,
            every: Duration::ZERO,
        };
        assert_eq!(followed(steady), [(100, 25)]);
        assert_eq!(followed(Schedule::Bursts([].into())), [(100, 0)]);
    }
}
