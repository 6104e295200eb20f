//! The receiving end: bytes in order, bytes out of order, acknowledgements, and the receive window.

use std::collections::BTreeMap;

use super::segment::{Ack, Segment};

/// Delay of the acknowledgement of a lone segment, in nanoseconds.
const DELAYED: u64 = 40_000_000;
/// So many segments at the beginning are acknowledged at once.
const QUICK: u32 = 16;
/// The window to begin with, and the largest (`tcp_rmem` of Linux).
pub const FIRST_WINDOW: u64 = 65_535;
const MOST_WINDOW: u64 = 6 << 20;

/// The receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    mss: u32,
    /// All before it has come.
    next: u64,
    /// Data received behind holes: first byte and end.
    beyond: BTreeMap<u64, u64>,
    /// All before it has been read.
    read: u64,
    window: u64,
    /// Bytes that were read since then.
    measured: (u64, u64),
    quick: u32,
    waiting: u32,
    delayed: Option<u64>,
    announced: u64,
    out_of_order: u64,
}

impl Receiver {
    /// One that has nothing.
    #[must_use]
    pub fn new(mss: u32) -> Receiver {
        Receiver {
            mss,
            next: 0,
            beyond: BTreeMap::new(),
            read: 0,
            window: FIRST_WINDOW,
            measured: (0, 0),
            quick: QUICK,
            waiting: 0,
            delayed: None,
            announced: FIRST_WINDOW,
            out_of_order: 0,
        }
    }

    /// Segments that came before an earlier one.
    #[must_use]
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// A segment has come; the acknowledgement, if it goes out at once.
    pub fn segment(&mut self, now: u64, segment: Segment) -> Option<Ack> {
        let (from, end) = (segment.from, segment.from + u64::from(segment.length));
        if end <= self.next {
            // It has come before: the sender is to know.
            return Some(self.ack(None));
        }
        if from > self.next {
            self.out_of_order += 1;
            let range = self.keep(from, end);
            return Some(self.ack(Some(range)));
        }
        self.next = end;
        let mut closed_hole = false;
        while let Some((&from, &end)) = self.beyond.first_key_value()
            && from <= self.next
        {
            self.beyond.pop_first();
            self.next = self.next.max(end);
            closed_hole = true;
        }
        self.waiting += 1;
        let at_once = closed_hole || self.quick > 0 || self.waiting >= 2 || !self.beyond.is_empty();
        self.quick = self.quick.saturating_sub(1);
        if at_once {
            return Some(self.ack(None));
        }
        self.delayed = Some(now + DELAYED);
        None
    }

    /// Keeps what came behind a hole, and returns all that hangs together with it.
    fn keep(&mut self, mut from: u64, mut end: u64) -> (u64, u64) {
        if let Some((&before, &its_end)) = self.beyond.range(..=from).next_back()
            && its_end >= from
        {
            (from, end) = (before, end.max(its_end));
        }
        while let Some((&behind, &its_end)) = self.beyond.range(from..).next()
            && behind <= end
        {
            self.beyond.remove(&behind);
            end = end.max(its_end);
        }
        self.beyond.insert(from, end);
        (from, end)
    }

    fn ack(&mut self, selective: Option<(u64, u64)>) -> Ack {
        self.waiting = 0;
        self.delayed = None;
        self.announced = self.announced.max(self.read + self.window);
        Ack {
            cumulative: self.next,
            selective,
            window_end: self.announced,
        }
    }

    /// When to call [`timeout`](Self::timeout).
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.delayed
    }

    /// The acknowledgement that waited.
    pub fn timeout(&mut self, now: u64) -> Option<Ack> {
        self.delayed.filter(|at| *at <= now)?;
        Some(self.ack(None))
    }

    /// Bytes that can be read.
    #[must_use]
    pub fn readable(&self) -> u64 {
        self.next - self.read
    }

    /// The application has read `bytes`. Returns an acknowledgement for a sender whose window was
    /// almost closed. The window grows with the bytes read in a round trip (Linux's
    /// `tcp_rcv_space_adjust`).
    pub fn consume(&mut self, now: u64, bytes: u64, round_trip: u64) -> Option<Ack> {
        self.read += bytes.min(self.readable());
        let (since, at) = self.measured;
        if now.saturating_sub(since) >= round_trip {
            let copied = self.read - at;
            let wanted = 2 * copied + 16 * u64::from(self.mss);
            self.window = self.window.max(wanted.min(MOST_WINDOW));
            self.measured = (now, self.read);
        }
        let was = self.announced.saturating_sub(self.next);
        let now_open = (self.read + self.window).saturating_sub(self.next);
        let mss = u64::from(self.mss);
        (was < 2 * mss && now_open >= was + 2 * mss).then(|| self.ack(None))
    }
}
