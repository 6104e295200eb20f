//! One end of a stream: windows of 500 cells (tor-spec 7.4), or XON and XOFF (proposal 324, 4).

use std::time::{Duration, Instant};

use weft_cell::relay::MAX_DATA;
use weft_cell::stream_msg::{Xoff, Xon};
use weft_planted::{Fault, planted};

use super::error::FlowError;
use super::params::CcParams;
use super::vegas::ewma;
use crate::limits::bucket::TokenBucket;

/// DATA cells that a stream's window begins with.
const WINDOW: u16 = 500;
/// DATA cells that one stream-level SENDME is about.
const INCREMENT: u16 = 50;
/// Bytes that wait for the socket below which a SENDME is sent: ten cells' worth.
const SENDME_BELOW: usize = 10 * MAX_DATA;

/// Bytes of data in the smallest relay message format that is in use; XOFF limits count in these.
const SMALL_CELL: u32 = 488;
/// Bytes of data in the largest relay message format in use, for XON.
const LARGE_CELL: u32 = 498;
/// Bytes that arrive at once and are no sign of a slow reader.
const BURST: usize = 32 * MAX_DATA;
/// Time that the queue may exceed its limit before XOFF is sent: it covers a turn that has not
/// written yet.
const XOFF_GRACE: Duration = Duration::from_millis(5);
/// The highest drain rate that is sent, in kB/s; as in C tor.
const MAX_RATE: u64 = i32::MAX as u64;

/// Messages that a stream's far end may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Fixed windows: numbers of DATA cells and SENDMEs.
    Windows {
        /// DATA cells.
        data: u16,
        /// SENDMEs.
        sendmes: u16,
    },
    /// Congestion control: what the far end sends before it gets our END. That is no more than one
    /// congestion window once END is sent, since any SENDME behind END comes after it.
    Vegas,
}

impl Left {
    /// Allowance of the far end of a request with one answer (RESOLVE).
    pub(crate) const NOTHING: Left = Left::Windows {
        data: 0,
        sendmes: 0,
    };
}

/// This node's end of the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that began it.
    Client,
    /// The one that streams leave.
    Exit,
}

/// A message for the other end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowMsg {
    /// SENDME: 50 cells more.
    Sendme,
    /// XOFF: stop.
    Xoff,
    /// XON: send, at most this number of kB/s; 0 for no limit.
    Xon(u32),
}

/// One end of a stream.
///
/// It continues to check what arrives after we sent END: what the other side sent before it saw that
/// (tor-spec 6.3) is what it would have been allowed.
#[derive(Debug)]
pub struct StreamFlow(Kind);

#[derive(Debug)]
enum Kind {
    Fixed {
        /// Cells that may still be sent.
        package: u16,
        /// Cells that may still come.
        deliver: u16,
    },
    XonXoff(Box<XonXoff>),
}

impl StreamFlow {
    /// Windows of 500 cells with a SENDME for 50 (tor-spec 7.4).
    pub fn fixed() -> Self {
        StreamFlow(Kind::Fixed {
            package: WINDOW,
            deliver: WINDOW,
        })
    }

    /// XON and XOFF, for a stream on a circuit with congestion control. `side` is ours.
    pub fn xon_xoff(params: &CcParams, side: Side) -> Self {
        StreamFlow(Kind::XonXoff(Box::new(XonXoff::new(params, side))))
    }

    /// DATA cells that may be sent now, as far as the stream counts: `u32::MAX` with XON and XOFF,
    /// 0 after XOFF.
    pub fn room(&self) -> u32 {
        match &self.0 {
            Kind::Fixed { package, .. } => u32::from(*package),
            Kind::XonXoff(state) if state.stopped => 0,
            Kind::XonXoff(_) => u32::MAX,
        }
    }

    /// The most that the other end wants, in bytes per second, by its last XON; `None` for no
    /// limit. [`pace`](Self::pace) keeps to it.
    pub fn rate(&self) -> Option<u64> {
        match &self.0 {
            Kind::Fixed { .. } => None,
            Kind::XonXoff(state) => state.rate,
        }
    }

    /// Returns how many of the `wanted` bytes to read from the socket now, so that the other end
    /// gets data no faster than it asked for, or how long to wait. [`note_read`](Self::note_read)
    /// records what was read.
    pub(crate) fn pace(&mut self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        match &mut self.0 {
            Kind::Fixed { .. } => Ok(wanted),
            Kind::XonXoff(state) => state.pace(wanted, now),
        }
    }

    /// So many bytes were read from the socket.
    pub(crate) fn note_read(&mut self, bytes: usize, now: Instant) {
        if let Kind::XonXoff(state) = &mut self.0
            && let Some(bucket) = &mut state.bucket
        {
            bucket.take(u64::try_from(bytes).unwrap_or(u64::MAX), now);
        }
    }

    /// So many DATA cells were sent.
    pub fn note_sent(&mut self, cells: u32) {
        match &mut self.0 {
            Kind::Fixed { package, .. } => {
                *package = package.saturating_sub(u16::try_from(cells).unwrap_or(u16::MAX));
            }
            Kind::XonXoff(state) => state.peer.note_sent(cells),
        }
    }

    /// XOFF was sent for this stream already, before this end of it existed.
    pub(crate) fn set_xoff_sent(&mut self) {
        if let Kind::XonXoff(state) = &mut self.0 {
            state.drain.xoff_sent = true;
        }
    }

    /// Bytes of memory that this points to.
    pub fn memory(&self) -> usize {
        match &self.0 {
            Kind::Fixed { .. } => 0,
            Kind::XonXoff(_) => size_of::<XonXoff>(),
        }
    }

    /// Messages that the other end may still send between our END and its arrival.
    pub fn left(&self) -> Left {
        match &self.0 {
            Kind::Fixed { package, deliver } => Left::Windows {
                data: *deliver,
                sendmes: (WINDOW - *package) / INCREMENT,
            },
            Kind::XonXoff(_) => Left::Vegas,
        }
    }

    /// A SENDME came. Its data is not looked at (tor-spec 7.4).
    pub fn sendme(&mut self) -> Result<(), FlowError> {
        match &mut self.0 {
            Kind::Fixed { package, .. } if *package + INCREMENT > WINDOW => {
                Err(FlowError::UnexpectedStreamSendme)
            }
            Kind::Fixed { package, .. } => {
                *package += INCREMENT;
                Ok(())
            }
            Kind::XonXoff(_) => Err(FlowError::WrongKind("SENDME")),
        }
    }

    /// An XOFF came.
    pub fn xoff(&mut self, data: &[u8]) -> Result<(), FlowError> {
        match &mut self.0 {
            Kind::Fixed { .. } => Err(FlowError::WrongKind("XOFF")),
            Kind::XonXoff(state) => state.receive_xoff(data),
        }
    }

    /// An XON came.
    pub fn xon(&mut self, data: &[u8]) -> Result<(), FlowError> {
        if planted(Fault::XonIgnored) {
            return Ok(());
        }
        match &mut self.0 {
            Kind::Fixed { .. } => Err(FlowError::WrongKind("XON")),
            Kind::XonXoff(state) => state.receive_xon(data),
        }
    }

    /// Notes a DATA cell with this number of bytes. With XON and XOFF any amount is allowed,
    /// because its sender may not have seen our XOFF; only memory bounds it (proposal 324, 4.1.3).
    pub fn note_received(&mut self, _bytes: usize) -> Result<(), FlowError> {
        match &mut self.0 {
            Kind::Fixed { deliver, .. } => {
                *deliver = deliver
                    .checked_sub(1)
                    .ok_or(FlowError::TooMuchData("stream"))?;
                Ok(())
            }
            Kind::XonXoff(_) => Ok(()),
        }
    }

    /// The message for the other end, now that `queued_bytes` wait for the socket, of which `written`
    /// more were taken since the last call. To be called after data was queued and after every
    /// write, and again, with nothing written, until it returns nothing.
    pub fn note_queue(
        &mut self,
        queued_bytes: usize,
        written: usize,
        now: Instant,
    ) -> Option<FlowMsg> {
        match &mut self.0 {
            Kind::Fixed { deliver, .. } => {
                let due = *deliver <= WINDOW - INCREMENT && queued_bytes < SENDME_BELOW;
                due.then(|| {
                    *deliver += INCREMENT;
                    FlowMsg::Sendme
                })
            }
            Kind::XonXoff(state) => state.note_queue(queued_bytes, written, now),
        }
    }
}

/// A stream without windows.
#[derive(Debug)]
struct XonXoff {
    /// The other end sent XOFF, and no XON since.
    stopped: bool,
    /// The rate of its last XON, in bytes per second.
    rate: Option<u64>,
    /// Bytes that may be sent at once at that rate; created on first use.
    bucket: Option<TokenBucket>,
    peer: Peer,
    drain: Drain,
}

/// Events that the other end can have had reason to report.
///
/// An exit does not check them; a client does, because needless messages can mark its streams for
/// an observer along the path (proposal 324, 4.1.4). The other end may have another consensus, so
/// half of its limits is enough, as in Arti.
#[derive(Debug)]
struct Peer {
    /// Violations are checked.
    strict: bool,
    /// The least bytes that can make it send XOFF.
    xoff_limit: u64,
    /// The least bytes between two XONs.
    xon_limit: u64,
    /// Bytes that it got, at most.
    sent: u64,
    xoffs: u64,
    /// XONs that ended no XOFF.
    xons: u64,
}

/// State of the XON and XOFF that we send about our own queue.
#[derive(Debug)]
struct Drain {
    /// Bytes in the queue past which the other end must stop.
    xoff_limit: usize,
    /// Bytes between two looks at the rate.
    rate_bytes: u64,
    change_pct: u64,
    ewma_cnt: u64,
    /// We sent XOFF, and no XON since.
    xoff_sent: bool,
    /// The time at which the queue exceeded its limit.
    over_since: Option<Instant>,
    /// The time from which on `drained` counts, while bytes wait.
    waiting_since: Option<Instant>,
    /// Bytes written since then, or since the last look at the rate.
    drained: u64,
    /// Rate at which the socket takes bytes, in kB/s; 0: not known.
    rate: u64,
    /// The rate of the last XON; 0: none was sent, or the rate is not known.
    sent_rate: u64,
    /// Bytes that the socket took without leaving any, since it left some or the rate was doubled.
    free: u64,
}

impl XonXoff {
    fn new(params: &CcParams, side: Side) -> Self {
        let bytes = |cells: u32, each: u32| u64::from(cells) * u64::from(each);
        let ours = match side {
            Side::Client => params.xoff_client,
            Side::Exit => params.xoff_exit,
        };
        let theirs = params.xoff_client.min(params.xoff_exit);
        XonXoff {
            stopped: false,
            rate: None,
            bucket: None,
            peer: Peer {
                strict: side == Side::Client,
                xoff_limit: (bytes(theirs, SMALL_CELL) / 2).max(1),
                xon_limit: (bytes(params.xon_rate, SMALL_CELL) / 2).max(1),
                sent: 0,
                xoffs: 0,
                xons: 0,
            },
            drain: Drain {
                xoff_limit: usize::try_from(bytes(ours, SMALL_CELL)).unwrap_or(usize::MAX),
                rate_bytes: bytes(params.xon_rate, LARGE_CELL),
                change_pct: params.xon_change_pct.into(),
                ewma_cnt: params.xon_ewma_cnt.max(1).into(),
                xoff_sent: false,
                over_since: None,
                waiting_since: None,
                drained: 0,
                rate: 0,
                sent_rate: 0,
                free: 0,
            },
        }
    }

    fn receive_xoff(&mut self, data: &[u8]) -> Result<(), FlowError> {
        Xoff::decode(data)?;
        self.peer.check_xoff(self.stopped)?;
        self.stopped = true;
        Ok(())
    }

    fn receive_xon(&mut self, data: &[u8]) -> Result<(), FlowError> {
        let xon = Xon::decode(data)?;
        self.peer.check_xon(self.stopped)?;
        self.stopped = false;
        self.rate = match u64::from(xon.kbps_ewma) {
            0 => None,
            rate => Some(rate * 1000),
        };
        Ok(())
    }

    fn pace(&mut self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        let Some(rate) = self.rate else {
            self.bucket = None;
            return Ok(wanted);
        };
        // A tenth of a second's worth, but no more than makes the other end send XOFF again; and no
        // less than comes between two looks at the clock.
        let burst = (rate / 10).min(self.peer.xoff_limit);
        let burst = burst.max(rate / 500).max(2 * u64::from(LARGE_CELL));
        let bucket = self
            .bucket
            .get_or_insert_with(|| TokenBucket::new(rate, burst, now));
        bucket.set_limit(rate, burst);
        // Not by drops: no cell may be emptier than it would otherwise be.
        let least = wanted.min(MAX_DATA);
        match bucket.ready_in(u64::try_from(least).unwrap_or(u64::MAX), now) {
            Some(Duration::ZERO) => {
                let level = usize::try_from(bucket.level(now)).unwrap_or(usize::MAX);
                Ok(wanted.min(level))
            }
            wait => Err(wait.unwrap_or(Duration::MAX)),
        }
    }

    fn note_queue(&mut self, queued: usize, written: usize, now: Instant) -> Option<FlowMsg> {
        self.drain.measure(queued, written, now);
        if queued == 0 {
            self.drain.emptied(written);
        }
        self.drain.decide(queued, now)
    }
}

impl Peer {
    fn note_sent(&mut self, cells: u32) {
        let bytes = u64::from(cells) * u64::from(LARGE_CELL);
        self.sent = self.sent.saturating_add(bytes);
    }

    /// An XOFF came; `stopped`: after another.
    fn check_xoff(&mut self, stopped: bool) -> Result<(), FlowError> {
        if !self.strict {
            return Ok(());
        }
        self.xoffs += 1;
        if self.sent < self.xoff_limit {
            return Err(FlowError::TooEarly("XOFF"));
        }
        if stopped || self.xoffs > self.sent / self.xoff_limit {
            return Err(FlowError::TooOften("XOFF"));
        }
        Ok(())
    }

    /// An XON came; `stopped`: after an XOFF, and then it is none too many.
    fn check_xon(&mut self, stopped: bool) -> Result<(), FlowError> {
        if !self.strict || stopped {
            return Ok(());
        }
        self.xons += 1;
        if self.sent < self.xoff_limit.min(self.xon_limit) {
            return Err(FlowError::TooEarly("XON"));
        }
        if self.xons > self.sent / self.xon_limit {
            return Err(FlowError::TooOften("XON"));
        }
        Ok(())
    }
}

impl Drain {
    /// Takes `written` bytes into the rate at which the queue drains (proposal 324, 4.1.2).
    fn measure(&mut self, queued: usize, written: usize, now: Instant) {
        self.drained = self
            .drained
            .saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        if written > 0 && queued > 0 {
            self.free = 0;
        }
        let Some(since) = self.waiting_since else {
            // Bytes that have just arrived and were not offered to the socket do not wait yet.
            if queued > BURST || (queued > 0 && written > 0) {
                self.waiting_since = Some(now);
                self.drained = 0;
            }
            return;
        };
        if self.drained <= self.rate_bytes {
            return;
        }
        let elapsed = now.saturating_duration_since(since).as_micros();
        // Bytes per microsecond are MB/s. A clock that stands still measures nothing.
        let rate = (u128::from(self.drained) * 1000).checked_div(elapsed);
        if let Some(rate) = rate {
            let rate = u64::try_from(rate).unwrap_or(MAX_RATE).clamp(1, MAX_RATE);
            self.rate = ewma(rate, self.rate, self.ewma_cnt);
            self.waiting_since = None;
            self.drained = 0;
        }
    }

    /// Decides on the message to send about the queue, if any.
    fn decide(&mut self, queued: usize, now: Instant) -> Option<FlowMsg> {
        if queued <= self.xoff_limit {
            self.over_since = None;
        }
        if self.xoff_sent {
            return (queued == 0).then(|| self.send_xon());
        }
        if queued > self.xoff_limit {
            let since = *self.over_since.get_or_insert(now);
            if now.saturating_duration_since(since) > XOFF_GRACE {
                self.xoff_sent = true;
                self.over_since = None;
                // It led here, so it was wrong.
                self.rate = 0;
                return Some(FlowMsg::Xoff);
            }
        }
        let changed = self.sent_rate != 0
            && (self.rate * 100 > (100 + self.change_pct) * self.sent_rate
                || self.rate * 100 < 100u64.saturating_sub(self.change_pct) * self.sent_rate);
        changed.then(|| self.send_xon())
    }

    fn send_xon(&mut self) -> FlowMsg {
        self.xoff_sent = false;
        self.sent_rate = self.rate;
        FlowMsg::Xon(u32::try_from(self.rate).unwrap_or(u32::MAX))
    }

    /// Nothing waits, after `written` more bytes were taken. A socket that takes all that comes may be
    /// faster than we could see: how fast that was depends on the far end, which keeps to our last
    /// XON. So the rate is doubled, once for as many bytes as XONs must be apart.
    ///
    /// C tor restarts its count whenever something waits. There, that is after 32 cells at most.
    /// Here a turn may bring many more before it writes, and a reader that now and then takes them
    /// all at once would be judged for ever by the bytes that arrived while it paused.
    fn emptied(&mut self, written: usize) {
        self.waiting_since = None;
        self.free = (self.free).saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        if self.free >= self.rate_bytes {
            self.free = 0;
            if self.sent_rate != 0 {
                self.rate = (self.rate * 2).min(MAX_RATE);
            }
        }
    }
}
