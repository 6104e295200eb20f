//! Streams of our own that we ended: what their far end may still send, because it has not seen our
//! END yet (tor-spec 6.3; C tor's `half_edge_t`).
//!
//! All of it is dropped. But what was allowed is told from what was not, as that may be somebody
//! along the path who marks a circuit with cells that its client does not expect (proposal 344,
//! "dropped cell" attacks). The circuit stays open in either case, as in C tor.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_cell::RelayCmd;

use crate::ledger::map_entry;

/// How long a far end under congestion control may go on at least: there is no window to count
/// down. C tor takes the time in which a circuit must be built, which is this before it has
/// learned one.
const LEAST_TIME: Duration = Duration::from_secs(60);
/// Ended streams that one circuit remembers at most. A far end that has nothing to say never lets go
/// of one; past this the oldest is forgotten.
pub const MAX_ENDED: usize = 4096;

/// What a stream's windows leave to its far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Fixed windows: so many DATA cells, and so many SENDMEs.
    Windows {
        /// DATA cells.
        data: u16,
        /// SENDMEs.
        sendmes: u16,
    },
    /// Congestion control: anything, for some time.
    Time,
}

/// What the far end of one stream may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The hop that it leads to.
    pub hop: u8,
    /// CONNECTED.
    pub connected: bool,
    /// DATA and SENDME, or DATA, XOFF and XON.
    pub left: Left,
}

/// A circuit's ended streams, by stream id, with the time until which [`Left::Time`] lasts.
#[derive(Debug, Default)]
pub struct Ended(BTreeMap<u16, (Late, Instant)>);

impl Ended {
    /// A stream was ended on this side before its far end ended it. `rtt`: the longest round trip
    /// of the circuit; `newest`: the stream id that was given last.
    pub fn add(&mut self, id: u16, late: Late, rtt: Option<Duration>, newest: u16, now: Instant) {
        if self.0.len() >= MAX_ENDED && !self.0.contains_key(&id) {
            // Ids are given in turn: the oldest stream has the one that comes next.
            let oldest = self.0.range(newest.saturating_add(1)..).next();
            let oldest = oldest.or_else(|| self.0.first_key_value());
            if let Some(oldest) = oldest.map(|(oldest, _)| *oldest) {
                self.0.remove(&oldest);
            }
        }
        let until = now + rtt.unwrap_or_default().max(LEAST_TIME);
        self.0.insert(id, (late, until));
    }

    /// Whether a stream id must not be given again yet.
    pub fn has(&self, id: u16) -> bool {
        self.0.contains_key(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Memory that this takes.
    pub fn memory(&self) -> usize {
        self.0.len() * map_entry::<u16, (Late, Instant)>()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A message of such a stream came from a hop: whether its far end was allowed to send it. It
    /// is counted against what is left.
    pub fn allows(&mut self, id: u16, hop: u8, command: RelayCmd, now: Instant) -> bool {
        let Some((late, until)) = self.0.get_mut(&id).filter(|(late, _)| late.hop == hop) else {
            return false;
        };
        match (command, &mut late.left) {
            (RelayCmd::END | RelayCmd::RESOLVED, _) => {
                self.0.remove(&id);
                true
            }
            (RelayCmd::CONNECTED, _) => std::mem::take(&mut late.connected),
            (RelayCmd::DATA, Left::Windows { data, .. }) => take_one(data),
            (RelayCmd::SENDME, Left::Windows { sendmes, .. }) => take_one(sendmes),
            (RelayCmd::DATA | RelayCmd::XOFF | RelayCmd::XON, Left::Time) => now <= *until,
            _ => false,
        }
    }
}

/// Takes one of what is left, if there is any.
fn take_one(left: &mut u16) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(connected: bool, left: Left, rtt: Option<Duration>) -> (Ended, Instant) {
        let now = Instant::now();
        let mut ended = Ended::default();
        let late = Late {
            hop: 2,
            connected,
            left,
        };
        ended.add(7, late, rtt, 7, now);
        (ended, now)
    }

    #[test]
    fn what_the_windows_left_may_still_come_and_no_more() {
        let windows = Left::Windows {
            data: 2,
            sendmes: 1,
        };
        let (mut ended, now) = one(true, windows, None);
        let mut allows = |command| ended.allows(7, 2, command, now);
        assert!(allows(RelayCmd::DATA) && allows(RelayCmd::DATA));
        assert!(!allows(RelayCmd::DATA));
        assert!(allows(RelayCmd::SENDME) && !allows(RelayCmd::SENDME));
        assert!(allows(RelayCmd::CONNECTED) && !allows(RelayCmd::CONNECTED));
        assert!(!allows(RelayCmd::XOFF) && !allows(RelayCmd::XON));
        assert!(allows(RelayCmd::END) && !allows(RelayCmd::END));
        assert!(ended.is_empty());
    }

    #[test]
    fn under_congestion_control_time_is_what_bounds_it() {
        let (mut ended, now) = one(false, Left::Time, Some(Duration::from_secs(90)));
        let later = now + Duration::from_secs(90);
        for command in [RelayCmd::DATA, RelayCmd::XOFF, RelayCmd::XON] {
            assert!(ended.allows(7, 2, command, later));
            assert!(!ended.allows(7, 2, command, later + Duration::from_nanos(1)));
        }
        assert!(!ended.allows(7, 2, RelayCmd::SENDME, now));
        assert!(!ended.allows(7, 2, RelayCmd::CONNECTED, now));
        // It may still end, and only from there.
        assert!(!ended.allows(7, 1, RelayCmd::END, later));
        assert!(!ended.allows(8, 2, RelayCmd::END, later));
        assert!(ended.allows(7, 2, RelayCmd::END, later));
    }

    #[test]
    fn a_circuit_remembers_so_many_and_forgets_the_oldest() {
        let now = Instant::now();
        let mut ended = Ended::default();
        let late = Late {
            hop: 0,
            connected: false,
            left: Left::Time,
        };
        let mut ids = (60_000..=u16::MAX).chain(1..);
        for id in ids.by_ref().take(MAX_ENDED) {
            ended.add(id, late, None, id, now);
        }
        assert_eq!(ended.len(), MAX_ENDED);
        let id = ids.next().expect("another");
        ended.add(id, late, None, id, now);
        assert_eq!(ended.len(), MAX_ENDED);
        assert!(!ended.has(60_000) && ended.has(60_001) && ended.has(id));
    }
}
