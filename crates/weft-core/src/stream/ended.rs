//! Streams that this side ended first: what their far end may still send, because it had not seen our
//! END yet (tor-spec 6.3; C tor's `half_edge_t`, which it has for the origin only).
//!
//! All of it is dropped. But messages that the far end may have under way are distinguished from
//! those that no honest peer sends: a message of a stream that never existed, of one whose far end
//! has ended it too, or past the stream's remaining windows. Such a message closes the circuit. At
//! the origin it would mark the circuit for an observer along the path (Rochet and Pereira 2018,
//! "dropping on the edge"); at an exit it would be unlimited work for nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_cell::relay_command::StreamMessage;

use crate::address::HopIndex;
use crate::flow::{Left, MAX_CWND};
use crate::memory::ledger::map_entry;

/// Shortest time for which a far end under congestion control is expected to go on sending after
/// our END. C tor takes its circuit build timeout, which has this value until it has learned one.
const LEAST_TIME: Duration = Duration::from_secs(60);
/// Ended streams that one circuit remembers one by one. A far end that has nothing to send never
/// lets go of one; past this the oldest is remembered by what it leaves alone.
pub(crate) const MAX_ENDED: usize = 512;
/// Messages that a far end under congestion control may send while our END still waits for the
/// circuit's window: 2 GB of DATA, more than anybody sends in that time.
const BEFORE_END: u32 = 1 << 22;
/// SENDMEs and XONs that a far end may send behind its own END: Arti's clients do, if the
/// application reads at the moment when it closes. A stream's window is about this number of
/// SENDMEs.
const BEHIND_END: u32 = 10;

/// Messages that the far end of one stream may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    /// The hop that it leads to.
    pub hop: HopIndex,
    /// CONNECTED.
    pub connected: bool,
    /// DATA and SENDME, or DATA, XOFF and XON.
    pub left: Left,
}

/// Judgement of a message for a stream that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Its sender did not know of our END.
    Expected,
    /// Its sender most likely did not know of our END, but C tor no longer counts it as valid.
    Overdue,
    /// Nobody honest sends it.
    Forbidden,
}

/// One ended stream.
#[derive(Debug)]
struct Entry {
    hop: HopIndex,
    connected: bool,
    /// It has XON and XOFF, which count as DATA does.
    vegas: bool,
    /// DATA cells.
    data: u32,
    /// SENDMEs.
    sendmes: u16,
    /// Since END was sent, under congestion control: how long its far end is expected to go on.
    until: Option<Instant>,
}

/// A circuit's ended streams, by stream id.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    table: BTreeMap<u16, Entry>,
    /// DATA, XOFF and XON of streams that are not remembered one by one any more.
    other_data: u32,
    /// SENDME, END, CONNECTED and RESOLVED of such streams, and messages that may follow a far
    /// end's own END.
    other_control: u32,
}

impl Ended {
    /// A stream was ended on this side before its far end ended it; END is about to be sent.
    /// `newest`: the stream id that was given last.
    pub(crate) fn add(&mut self, id: u16, late: Late, newest: u16) {
        if self.table.len() >= MAX_ENDED && !self.table.contains_key(&id) {
            // Ids are given in turn: the oldest stream has the one that comes next.
            let oldest = self.table.range(newest.saturating_add(1)..).next();
            let oldest = oldest.or_else(|| self.table.first_key_value());
            if let Some(oldest) = oldest.map(|(oldest, _)| *oldest)
                && let Some(entry) = self.table.remove(&oldest)
            {
                self.other_data = self.other_data.saturating_add(entry.data);
                let control = u32::from(entry.sendmes) + u32::from(entry.connected) + 1;
                self.other_control = self.other_control.saturating_add(control);
            }
        }
        let (data, sendmes) = match late.left {
            Left::Windows { data, sendmes } => (data.into(), sendmes),
            Left::Vegas => (BEFORE_END, 0),
        };
        let entry = Entry {
            hop: late.hop,
            connected: late.connected,
            vegas: late.left == Left::Vegas,
            data,
            sendmes,
            until: None,
        };
        self.table.insert(id, entry);
    }

    /// The END of such a stream was sent. `rtt`: the longest round trip of the circuit.
    pub(crate) fn end_sent(&mut self, id: u16, rtt: Option<Duration>, now: Instant) {
        if let Some(entry) = self.table.get_mut(&id).filter(|entry| entry.vegas) {
            entry.data = MAX_CWND;
            entry.until = Some(now + rtt.unwrap_or_default().max(LEAST_TIME));
        }
    }

    /// A far end ended its stream first.
    pub(crate) fn far_end_ended(&mut self) {
        self.other_control = self.other_control.saturating_add(BEHIND_END);
    }

    /// A stream id is given again, by the far end.
    pub(crate) fn forget(&mut self, id: u16) {
        self.table.remove(&id);
    }

    /// True if the stream id must not be used again yet.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.table.contains_key(&id)
    }

    /// Number of streams that are remembered one by one.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Memory that this takes.
    pub(crate) fn memory(&self) -> usize {
        self.table.len() * map_entry::<u16, Entry>()
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// A message of a stream that is not there came from a hop: whether its far end was allowed to
    /// send it. It is counted against the remainder.
    pub(crate) fn judge(
        &mut self,
        id: u16,
        hop: HopIndex,
        message: StreamMessage,
        now: Instant,
    ) -> Judgement {
        let Some(entry) = self.table.get_mut(&id) else {
            let left = match message {
                StreamMessage::Data => &mut self.other_data,
                StreamMessage::Xoff | StreamMessage::Xon if self.other_data > 0 => {
                    &mut self.other_data
                }
                StreamMessage::Xoff
                | StreamMessage::Xon
                | StreamMessage::Sendme
                | StreamMessage::End
                | StreamMessage::Connected
                | StreamMessage::Resolved => &mut self.other_control,
            };
            return match take_one(left) {
                true => Judgement::Overdue,
                false => Judgement::Forbidden,
            };
        };
        if entry.hop != hop {
            return Judgement::Forbidden;
        }
        let allowed = match message {
            StreamMessage::End | StreamMessage::Resolved => {
                self.table.remove(&id);
                return Judgement::Expected;
            }
            StreamMessage::Connected => std::mem::take(&mut entry.connected),
            StreamMessage::Xoff | StreamMessage::Xon if !entry.vegas => false,
            StreamMessage::Data | StreamMessage::Xoff | StreamMessage::Xon => {
                take_one(&mut entry.data)
            }
            StreamMessage::Sendme => {
                let some = entry.sendmes > 0;
                entry.sendmes = entry.sendmes.saturating_sub(1);
                some
            }
        };
        match (allowed, entry.until) {
            (false, _) => Judgement::Forbidden,
            (true, Some(until)) if now > until => Judgement::Overdue,
            (true, _) => Judgement::Expected,
        }
    }
}

/// Takes one of the remainder, if there is any.
fn take_one(left: &mut u32) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(1);
    some
}

#[cfg(test)]
mod tests {
    use super::Judgement::{Expected, Forbidden, Overdue};
    use super::*;

    fn one(connected: bool, left: Left) -> (Ended, Instant) {
        let mut ended = Ended::default();
        let late = Late {
            hop: HopIndex(2),
            connected,
            left,
        };
        ended.add(7, late, 7);
        (ended, Instant::now())
    }

    #[test]
    fn what_the_windows_left_may_still_come_and_no_more() {
        let windows = Left::Windows {
            data: 2,
            sendmes: 1,
        };
        let (mut ended, now) = one(true, windows);
        ended.end_sent(7, None, now);
        // Time is no matter.
        let later = now + Duration::from_secs(3600);
        let mut judge = |command| ended.judge(7, HopIndex(2), command, later);
        assert_eq!(
            [judge(StreamMessage::Data), judge(StreamMessage::Data)],
            [Expected; 2]
        );
        assert_eq!(judge(StreamMessage::Data), Forbidden);
        assert_eq!(judge(StreamMessage::Sendme), Expected);
        assert_eq!(judge(StreamMessage::Sendme), Forbidden);
        assert_eq!(judge(StreamMessage::Connected), Expected);
        assert_eq!(judge(StreamMessage::Connected), Forbidden);
        assert_eq!(
            [judge(StreamMessage::Xoff), judge(StreamMessage::Xon)],
            [Forbidden; 2]
        );
        assert_eq!(judge(StreamMessage::End), Expected);
        assert_eq!(judge(StreamMessage::End), Forbidden);
        assert!(ended.is_empty());
    }

    #[test]
    fn under_congestion_control_one_window_may_come_after_end_and_is_overdue_in_time() {
        let (mut ended, now) = one(false, Left::Vegas);
        let later = now + Duration::from_secs(3600);
        // As long as END waits, its far end cannot know.
        for _ in 0..2 * MAX_CWND {
            assert_eq!(
                ended.judge(7, HopIndex(2), StreamMessage::Data, later),
                Expected
            );
        }
        ended.end_sent(7, Some(Duration::from_secs(90)), now);
        let until = now + Duration::from_secs(90);
        for command in [StreamMessage::Data, StreamMessage::Xoff, StreamMessage::Xon] {
            assert_eq!(ended.judge(7, HopIndex(2), command, until), Expected);
            let after = until + Duration::from_nanos(1);
            assert_eq!(ended.judge(7, HopIndex(2), command, after), Overdue);
        }
        assert_eq!(
            ended.judge(7, HopIndex(2), StreamMessage::Sendme, now),
            Forbidden
        );
        assert_eq!(
            ended.judge(7, HopIndex(2), StreamMessage::Connected, now),
            Forbidden
        );
        for _ in 6..MAX_CWND {
            assert_eq!(
                ended.judge(7, HopIndex(2), StreamMessage::Data, now),
                Expected
            );
        }
        assert_eq!(
            ended.judge(7, HopIndex(2), StreamMessage::Data, now),
            Forbidden
        );
        // It may still end, and only from there.
        assert_eq!(
            ended.judge(7, HopIndex(1), StreamMessage::End, later),
            Forbidden
        );
        assert_eq!(
            ended.judge(8, HopIndex(2), StreamMessage::End, later),
            Forbidden
        );
        assert_eq!(
            ended.judge(7, HopIndex(2), StreamMessage::End, later),
            Expected
        );
    }

    #[test]
    fn a_circuit_remembers_so_many_and_what_the_oldest_left() {
        let now = Instant::now();
        let mut ended = Ended::default();
        let late = Late {
            hop: HopIndex(0),
            connected: false,
            left: Left::Windows {
                data: 3,
                sendmes: 1,
            },
        };
        let first = u16::MAX - 100;
        let mut ids = (first..=u16::MAX).chain(1..);
        for id in ids.by_ref().take(MAX_ENDED) {
            ended.add(id, late, id);
        }
        assert_eq!(ended.len(), MAX_ENDED);
        let id = ids.next().expect("another");
        ended.add(id, late, id);
        assert_eq!(ended.len(), MAX_ENDED);
        assert!(!ended.has(first) && ended.has(first + 1) && ended.has(id));
        // The oldest's far end is not found to break the rules by our forgetting.
        let mut judge = |command| ended.judge(first, HopIndex(0), command, now);
        for command in [
            StreamMessage::Data,
            StreamMessage::Data,
            StreamMessage::Data,
        ] {
            assert_eq!(judge(command), Overdue);
        }
        assert_eq!(
            [judge(StreamMessage::Sendme), judge(StreamMessage::End)],
            [Overdue; 2]
        );
        assert_eq!(
            [judge(StreamMessage::Data), judge(StreamMessage::End)],
            [Forbidden; 2]
        );
    }

    #[test]
    fn signals_may_follow_a_far_end_s_own_end_but_no_data() {
        let now = Instant::now();
        let mut ended = Ended::default();
        ended.far_end_ended();
        for _ in 0..BEHIND_END {
            assert_eq!(
                ended.judge(7, HopIndex(0), StreamMessage::Sendme, now),
                Overdue
            );
        }
        assert_eq!(
            ended.judge(7, HopIndex(0), StreamMessage::Sendme, now),
            Forbidden
        );
        ended.far_end_ended();
        assert_eq!(
            ended.judge(7, HopIndex(0), StreamMessage::Xon, now),
            Overdue
        );
        assert_eq!(
            ended.judge(7, HopIndex(0), StreamMessage::Data, now),
            Forbidden
        );
    }
}
