//! The client's end, which keeps the times.

use std::time::Duration;

use super::answer::{ANSWER, RECEIPT};
use super::failure::{Failure, FailureKind};
use super::pattern::{CHUNK, Pattern};
use super::request::Request;
use super::times::Times;
use crate::traffic::plan::{Pacer, Plan};

/// The client's end of a stream.
///
/// Make it when the connection is begun, call [`ClientStream::opened`] when there is one, then give it what
/// arrives ([`ClientStream::receive`]) and send what [`ClientStream::output`] returns, reporting how much of it
/// was sent ([`ClientStream::sent`]). Look at [`ClientStream::check`] at [`ClientStream::next_time`]. It is
/// over when [`ClientStream::is_complete`] or with the first error.
#[derive(Debug)]
pub struct ClientStream {
    plan: Plan,
    seed: u64,
    started: Duration,
    state: State,
    /// Made, and not sent.
    out: Vec<u8>,
    /// Bytes of `out` that were sent.
    sent: usize,
    /// Bytes of `out` that belong to the request.
    request: usize,
    times: Times,
    /// Time of the last transferred byte, or of the moment from which the next was expected.
    moved: Duration,
}

#[derive(Debug)]
enum State {
    Connecting,
    Open(Box<Open>),
    Complete,
}

#[derive(Debug)]
struct Open {
    up: Pacer,
    /// The bytes that the server should have sent by our clock.
    down: Pacer,
    /// Bytes of the upload that were put into `out`.
    made: u64,
    receipt: Vec<u8>,
}

impl ClientStream {
    /// A stream whose connection begins now. Payloads are functions of the seed.
    #[must_use]
    pub fn new(plan: Plan, seed: u64, now: Duration) -> ClientStream {
        let times = Times::new(plan.down.bytes(), plan.up.bytes());
        ClientStream {
            plan,
            seed,
            started: now,
            state: State::Connecting,
            out: Vec::new(),
            sent: 0,
            request: 0,
            times,
            moved: now,
        }
    }

    /// There is a connection to the server.
    pub fn opened(&mut self, now: Duration) {
        self.times.opened = Some(self.since_start(now));
        let request = Request {
            seed: self.seed,
            up: self.plan.up.bytes(),
            down: self.plan.down.clone(),
        };
        self.out = request.encode();
        self.request = self.out.len();
        self.moved = now;
        self.state = State::Open(Box::new(Open {
            up: Pacer::new(self.plan.up.clone(), now),
            down: Pacer::new(self.plan.down.clone(), now),
            made: 0,
            receipt: Vec::new(),
        }));
    }

    /// Bytes to send now; empty if there are none.
    pub fn output(&mut self, now: Duration) -> &[u8] {
        if self.sent >= self.out.len() {
            self.out.clear();
            (self.sent, self.request) = (0, 0);
        }
        if let State::Open(open) = &mut self.state
            && self.out.len() < CHUNK
        {
            let left = open.up.due(now).saturating_sub(open.made);
            let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let start = self.out.len();
            self.out.resize(start + count, 0);
            let made = self.out.get_mut(start..).unwrap_or_default();
            Pattern::up(self.seed).fill(open.made, made);
            open.made = open.made.saturating_add(count as u64);
        }
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// The first `count` bytes of the output are sent.
    pub fn sent(&mut self, count: usize, now: Duration) {
        let before = self.sent;
        self.sent = before.saturating_add(count).min(self.out.len());
        let payload = self.sent.saturating_sub(before.max(self.request));
        self.times.up.add(payload as u64, self.since_start(now));
        self.moved = now;
    }

    /// Takes bytes from the server.
    ///
    /// # Errors
    ///
    /// They are not those of the seed, or the server did not get ours.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<(), Failure> {
        let at = self.since_start(now);
        self.moved = now;
        let State::Open(open) = &mut self.state else {
            return match bytes.is_empty() {
                true => Ok(()),
                false => Err(protocol("bytes before a request or behind the receipt")),
            };
        };
        let mut rest = bytes;
        if self.times.answered.is_none() {
            let Some((first, others)) = rest.split_first() else {
                return Ok(());
            };
            if *first != ANSWER {
                return Err(protocol("this is no answer of a traffic server"));
            }
            self.times.answered = Some(at);
            rest = others;
        }
        let left = self.times.down.left();
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let (payload, rest) = rest.split_at(count);
        let place = self.times.down.bytes;
        if let Some(wrong) = Pattern::down(self.seed).difference(place, payload) {
            let message = format!("byte {wrong} of the download is not what was sent");
            return Err(Failure::new(FailureKind::Corrupt, message));
        }
        self.times.down.add(count as u64, at);
        open.receipt.extend_from_slice(rest);
        if open.receipt.len() < RECEIPT {
            return Ok(());
        }
        let receipt = &open.receipt;
        let arrived = receipt
            .first_chunk()
            .map(|count| u64::from_be_bytes(*count));
        if receipt.len() > RECEIPT {
            return Err(protocol("bytes behind the receipt"));
        }
        if arrived != Some(self.times.up.wanted) || receipt.last() != Some(&1) {
            let message = "what the server got is not what was sent";
            return Err(Failure::new(FailureKind::Corrupt, message));
        }
        self.times.receipt = Some(at);
        self.state = State::Complete;
        Ok(())
    }

    /// Checks the limits of the plan.
    ///
    /// # Errors
    ///
    /// The plan's `timeout` or `stall` has passed.
    pub fn check(&mut self, now: Duration) -> Result<(), Failure> {
        if self.is_complete() {
            return Ok(());
        }
        if let Some(limit) = self.plan.timeout
            && self.since_start(now) >= limit
        {
            let message = format!("not complete in {} s", limit.as_secs_f64());
            return Err(Failure::new(FailureKind::Timeout, message));
        }
        let Some(limit) = self.plan.stall else {
            return Ok(());
        };
        if self.is_idle(now) {
            self.moved = now;
        }
        if now.saturating_sub(self.moved) >= limit {
            let message = format!("no byte moved in {} s", limit.as_secs_f64());
            return Err(Failure::new(FailureKind::Stall, message));
        }
        Ok(())
    }

    /// When [`ClientStream::output`] may return more, or [`ClientStream::check`] an error.
    #[must_use]
    pub fn next_time(&self) -> Option<Duration> {
        let limit = self
            .plan
            .timeout
            .map(|limit| self.started.saturating_add(limit));
        let stall = self
            .plan
            .stall
            .map(|limit| self.moved.saturating_add(limit));
        let up = match &self.state {
            State::Complete => return None,
            State::Connecting => None,
            // The socket that takes what is made is waited for then, not the time.
            State::Open(_) if self.out.len() >= CHUNK => None,
            State::Open(open) => open.up.next_time(),
        };
        limit.into_iter().chain(stall).chain(up).min()
    }

    /// Returns true if everything arrived on both ends.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// When it began, and its measurements.
    #[must_use]
    pub fn into_times(self) -> (Duration, Times) {
        (self.started, self.times)
    }

    /// Returns true if everything that was due has been transferred, so that silence is not a
    /// stall.
    fn is_idle(&mut self, now: Duration) -> bool {
        let State::Open(open) = &mut self.state else {
            return false;
        };
        let is_all = self.times.down.left() == 0 && self.times.up.left() == 0;
        !is_all
            && open.down.due(now) <= self.times.down.bytes
            && open.up.due(now) <= self.times.up.bytes
    }

    fn since_start(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }
}

fn protocol(message: &str) -> Failure {
    Failure::new(FailureKind::Protocol, message)
}
