//! The sending end of one direction of a TCP connection: bytes in flight, losses, and
//! retransmissions.
//!
//! Loss is detected by selective acknowledgements and times of transmission (RFC 8985, RACK): a
//! segment sent before one that has arrived is lost, as packets do not overtake in these networks,
//! once three segments have arrived out of order (RFC 6675). A probe of the tail comes after two
//! round trips (RFC 8985, 7), the timeout last.

use std::collections::VecDeque;

use super::cubic::{Algorithm, Window};
use super::rtt::Rtt;
use super::segment::{Ack, Segment};

/// Segments that must have arrived behind a hole before it counts as a loss.
const REORDERING: u32 = 3;
/// Longest time that a receiver delays the acknowledgement of a lone segment, in nanoseconds.
const DELAYED_ACK: u64 = 40_000_000;

/// A segment that was sent and is not acknowledged.
#[derive(Clone, Copy, Debug)]
struct Flight {
    from: u64,
    length: u32,
    sent_at: u64,
    /// Counts transmissions of all segments, so that those of one moment have an order.
    order: u64,
    again: bool,
    arrived: bool,
    lost: bool,
}

impl Flight {
    fn end(&self) -> u64 {
        self.from + u64::from(self.length)
    }
}

/// Why growth of the window waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    None,
    /// Until this byte is acknowledged.
    Fast(u64),
    /// After a timeout, until this byte is acknowledged: the window grows meanwhile.
    Timeout(u64),
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Segments.
    pub segments: u64,
    /// Of these, segments that were sent before.
    pub again: u64,
    /// Timeouts.
    pub timeouts: u64,
}

/// Use of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// All of it was, in this window of data.
    was_full: bool,
    /// The most that was on its way in this window of data, bytes.
    most: u64,
    /// This window of data ends when this byte is acknowledged.
    until: u64,
    /// The most that was on its way since then, bytes and time.
    lately: u64,
    since: u64,
}

impl Usage {
    /// The window keeps bytes back.
    fn is_full(&mut self, now: u64, next: u64) {
        self.was_full = true;
        self.until = next;
        self.lately = 0;
        self.since = now;
    }
}

/// The sending end.
#[derive(Clone, Debug)]
pub struct Sender {
    mss: u32,
    window: Window,
    rtt: Rtt,
    flight: VecDeque<Flight>,
    /// All before it has been acknowledged.
    acknowledged: u64,
    /// The first byte that was never sent.
    next: u64,
    /// The end of the written bytes.
    written: u64,
    /// The receiver takes no byte from here on.
    allowed: u64,
    /// Bytes on their way, as far as is known.
    pipe: u64,
    /// Segments that arrived behind a hole.
    out_of_order: u32,
    /// Segments to retransmit.
    lost: u32,
    order: u64,
    /// The last transmission of a segment that has arrived.
    newest: u64,
    recovery: Recovery,
    /// The tail was probed since the last acknowledgement.
    probed: bool,
    /// Use of the window, by which growth is limited.
    usage: Usage,
    timer: Option<u64>,
    last_sent: u64,
    sent: Sent,
}

impl Sender {
    /// One whose receiver takes `window` bytes to begin with.
    #[must_use]
    pub fn new(algorithm: Algorithm, mss: u32, window: u64) -> Sender {
        Sender {
            mss,
            window: Window::new(algorithm, mss),
            rtt: Rtt::default(),
            flight: VecDeque::new(),
            acknowledged: 0,
            next: 0,
            written: 0,
            allowed: window,
            pipe: 0,
            out_of_order: 0,
            lost: 0,
            order: 0,
            newest: 0,
            recovery: Recovery::None,
            probed: false,
            usage: Usage::default(),
            timer: None,
            last_sent: 0,
            sent: Sent::default(),
        }
    }

    /// Takes the round trip time that the handshake measured, in nanoseconds.
    pub fn handshake_took(&mut self, rtt: u64) {
        self.rtt.measured(rtt);
    }

    /// The application has written `bytes` more.
    pub fn write(&mut self, now: u64, bytes: u64) {
        if self.flight.is_empty() && self.next == self.written && self.sent.segments > 0 {
            let pause = now.saturating_sub(self.last_sent);
            self.window.paused(now, pause);
            let idle = pause / self.rtt.timeout().max(1);
            if idle > 0 {
                self.window.idle(u32::try_from(idle).unwrap_or(u32::MAX));
            }
        }
        self.written += bytes;
    }

    /// The next segment to be sent now, if there is one.
    pub fn poll(&mut self, now: u64) -> Option<Segment> {
        let cwnd = self.window.bytes();
        if self.lost > 0 {
            if self.pipe > 0 && self.pipe >= cwnd {
                return None;
            }
            let (order, sent_at) = (self.order, now);
            let flight = self.flight.iter_mut().find(|one| one.lost)?;
            (flight.lost, flight.again) = (false, true);
            (flight.order, flight.sent_at) = (order, sent_at);
            let segment = Segment {
                from: flight.from,
                length: flight.length,
            };
            self.lost -= 1;
            self.sent.again += 1;
            self.sends(now, segment.length);
            return Some(segment);
        }
        let end = self.written.min(self.allowed);
        let left = end.saturating_sub(self.next);
        if left == 0 {
            if self.flight.is_empty() && self.unsent() > 0 && self.timer.is_none() {
                // The receiver takes nothing, and the news that it does again may be lost.
                self.timer = Some(now.saturating_add(self.rtt.timeout()));
            }
            return None;
        }
        let length = u32::try_from(left.min(u64::from(self.mss))).unwrap_or(self.mss);
        if self.pipe > 0 && self.pipe + u64::from(length) > cwnd {
            self.usage.is_full(now, self.next);
            return None;
        }
        let segment = Segment {
            from: self.next,
            length,
        };
        self.flight.push_back(Flight {
            from: self.next,
            length,
            sent_at: now,
            order: self.order,
            again: false,
            arrived: false,
            lost: false,
        });
        self.next += u64::from(length);
        self.sends(now, length);
        Some(segment)
    }

    fn sends(&mut self, now: u64, length: u32) {
        self.order += 1;
        self.pipe += u64::from(length);
        self.sent.segments += 1;
        self.last_sent = now;
        self.validate(now);
        if self.timer.is_none() {
            self.arm(now);
        }
    }

    /// Keeps account of how much of the window is used, as Linux does (`tcp_cwnd_validate`). A sender that has used little of it
    /// for a timeout gives some of it up (RFC 2861).
    fn validate(&mut self, now: u64) {
        let is_full = self.pipe + u64::from(self.mss) > self.window.bytes();
        let usage = &mut self.usage;
        let is_over = self.acknowledged >= usage.until;
        if is_over || is_full || (!usage.was_full && self.pipe > usage.most) {
            usage.was_full = is_full;
            usage.most = self.pipe;
            usage.until = self.next;
        }
        if self.is_limited() {
            self.usage.lately = 0;
            self.usage.since = now;
            return;
        }
        let usage = &mut self.usage;
        usage.lately = usage.lately.max(self.pipe);
        if now.saturating_sub(usage.since) >= self.rtt.timeout() {
            self.window.starved(usage.lately);
            usage.lately = 0;
            usage.since = now;
        }
    }

    /// Returns true if the window limits the sender, so that it should grow
    /// (`tcp_is_cwnd_limited`).
    fn is_limited(&self) -> bool {
        let half = 2 * self.usage.most > self.window.bytes();
        self.usage.was_full || (self.window.is_slow_start() && half)
    }

    /// Takes an acknowledgement in.
    pub fn acknowledge(&mut self, now: u64, ack: &Ack) {
        self.allowed = self.allowed.max(ack.window_end);
        let mut sample = None;
        let mut delivered = 0;
        while let Some(first) = self.flight.front()
            && first.end() <= ack.cumulative
        {
            let first = *first;
            self.flight.pop_front();
            match first.arrived {
                true => self.out_of_order -= 1,
                false => {
                    delivered += u64::from(first.length);
                    self.arrives(&first, now, &mut sample);
                }
            }
            if first.lost {
                self.lost -= 1;
            }
        }
        let progress = ack.cumulative > self.acknowledged;
        self.acknowledged = self.acknowledged.max(ack.cumulative);
        if let Some((from, end)) = ack.selective {
            let begin = self.flight.partition_point(|one| one.from < from);
            for at in begin..self.flight.len() {
                let Some(one) = self.flight.get_mut(at).filter(|one| one.end() <= end) else {
                    break;
                };
                if one.arrived {
                    continue;
                }
                let was = *one;
                one.arrived = true;
                if one.lost {
                    one.lost = false;
                    self.lost -= 1;
                }
                self.out_of_order += 1;
                delivered += u64::from(was.length);
                self.arrives(&was, now, &mut sample);
            }
        }
        if let Some(rtt) = sample {
            self.rtt.measured(rtt);
            let least = self.rtt.least();
            self.window
                .measured(rtt, least, self.next, self.acknowledged);
        }
        self.find_losses();
        match self.recovery {
            Recovery::Fast(end) | Recovery::Timeout(end) if self.acknowledged >= end => {
                self.recovery = Recovery::None;
            }
            _ => {}
        }
        let grows = !matches!(self.recovery, Recovery::Fast(_));
        if grows && delivered > 0 && self.is_limited() {
            self.window
                .acknowledged(now, delivered, self.rtt.smoothed());
        }
        if delivered > 0 {
            self.probed = false;
        }
        if self.flight.is_empty() {
            self.timer = None;
        } else if progress || delivered > 0 {
            self.arm(now);
        }
    }

    /// A segment has arrived: its bytes leave the pipe, and if it was sent once its round trip is a sample.
    fn arrives(&mut self, one: &Flight, now: u64, sample: &mut Option<u64>) {
        if !one.lost {
            self.pipe = self.pipe.saturating_sub(u64::from(one.length));
        }
        self.newest = self.newest.max(one.order);
        if !one.again {
            *sample = Some(now.saturating_sub(one.sent_at));
        }
    }

    fn find_losses(&mut self) {
        let sure = self.out_of_order >= REORDERING || self.recovery != Recovery::None;
        if self.out_of_order == 0 || !sure {
            return;
        }
        let newest = self.newest;
        let mut lost = 0;
        for one in &mut self.flight {
            if one.order < newest && !one.arrived && !one.lost {
                one.lost = true;
                lost += 1;
                self.pipe = self.pipe.saturating_sub(u64::from(one.length));
            }
        }
        self.lost += lost;
        if lost > 0 && self.recovery == Recovery::None {
            self.window.lost();
            self.recovery = Recovery::Fast(self.next);
        }
    }

    /// When to call [`timeout`](Self::timeout).
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.timer
    }

    fn arm(&mut self, now: u64) {
        let timeout = self.rtt.timeout();
        let can_probe = !self.probed && self.recovery == Recovery::None && self.rtt.is_known();
        let wait = match can_probe {
            true => {
                let lone = if self.flight.len() < 2 {
                    DELAYED_ACK
                } else {
                    0
                };
                (2 * self.rtt.smoothed() + lone).min(timeout)
            }
            false => timeout,
        };
        self.timer = Some(now.saturating_add(wait));
    }

    /// The deadline has passed.
    pub fn timeout(&mut self, now: u64) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        if self.flight.is_empty() {
            // A byte past the window asks how large it is (RFC 9293, 3.8.6.1).
            self.timer = None;
            self.rtt.timed_out();
            if self.unsent() > 0 {
                self.allowed = self.allowed.max(self.next + 1);
            }
            return;
        }
        let is_probe = !self.probed && self.recovery == Recovery::None && self.rtt.is_known();
        if is_probe {
            self.probed = true;
            // New data would do as well, but the window may be full.
            if let Some(last) = self
                .flight
                .back_mut()
                .filter(|one| !one.arrived && !one.lost)
            {
                last.lost = true;
                self.lost += 1;
                self.pipe = self.pipe.saturating_sub(u64::from(last.length));
            }
        } else {
            self.sent.timeouts += 1;
            self.rtt.timed_out();
            for one in self
                .flight
                .iter_mut()
                .filter(|one| !one.arrived && !one.lost)
            {
                one.lost = true;
                self.lost += 1;
            }
            self.pipe = 0;
            if !matches!(self.recovery, Recovery::Timeout(_)) {
                self.window.timed_out();
            }
            self.recovery = Recovery::Timeout(self.next);
        }
        self.arm(now);
    }

    /// Bytes that may be on their way.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window.bytes()
    }

    /// Bytes that were sent and are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        self.next - self.acknowledged
    }

    /// Bytes that were written and not sent.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// The smoothed round trip.
    #[must_use]
    pub fn round_trip(&self) -> u64 {
        self.rtt.smoothed()
    }

    /// Timeouts since something was acknowledged last.
    #[must_use]
    pub fn timeouts_in_vain(&self) -> u32 {
        self.rtt.backoff()
    }

    /// Counters so far.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent
    }
}
