//! The server's end.

use std::time::Duration;

use super::answer::ANSWER;
use super::failure::{Failure, FailureKind};
use super::pattern::{CHUNK, Pattern};
use super::request::{Parsed, Request};
use crate::traffic::plan::Pacer;

/// The longest complete request.
const MAX_REQUEST: usize = 64 + 8 * crate::traffic::plan::MAX_BURSTS;

/// The server's end of a stream.
///
/// Give it what arrives ([`ServerStream::receive`]) and send what [`ServerStream::output`] returns, reporting
/// how much of it was sent ([`ServerStream::sent`]); look again at [`ServerStream::next_time`].
#[derive(Debug, Default)]
pub struct ServerStream {
    /// Of the request, until it is whole.
    request: Vec<u8>,
    serving: Option<Serving>,
    /// Made, and not sent.
    out: Vec<u8>,
    /// Bytes of `out` that were sent.
    sent: usize,
}

#[derive(Debug)]
struct Serving {
    down: (Pattern, Pacer),
    /// Bytes of the download that were put into `out`.
    made: u64,
    up: (Pattern, u64),
    received: u64,
    is_right: bool,
    is_receipted: bool,
}

impl ServerStream {
    /// Takes bytes from the client.
    ///
    /// # Errors
    ///
    /// They are not a request, or longer than it. The connection is useless then.
    pub fn receive(&mut self, bytes: &[u8], now: Duration) -> Result<(), Failure> {
        let Some(serving) = &mut self.serving else {
            self.request.extend_from_slice(bytes);
            match Request::parse(&self.request) {
                Parsed::Incomplete if self.request.len() <= MAX_REQUEST => return Ok(()),
                Parsed::Whole(request, length) => {
                    let payload = self.request.split_off(length);
                    self.request = Vec::new();
                    self.out.push(ANSWER);
                    self.serving = Some(Serving {
                        down: (Pattern::down(request.seed), Pacer::new(request.down, now)),
                        made: 0,
                        up: (Pattern::up(request.seed), request.up),
                        received: 0,
                        is_right: true,
                        is_receipted: false,
                    });
                    return self.receive(&payload, now);
                }
                _ => {
                    let message = "this is no request of a traffic client";
                    return Err(Failure::new(FailureKind::Protocol, message));
                }
            }
        };
        let (pattern, wanted) = serving.up;
        if pattern.difference(serving.received, bytes).is_some() {
            serving.is_right = false;
        }
        serving.received = serving.received.saturating_add(bytes.len() as u64);
        if serving.received > wanted {
            let message = "the client sends more than it announced";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        Ok(())
    }

    /// Bytes to send now; empty if there are none.
    pub fn output(&mut self, now: Duration) -> &[u8] {
        if self.sent >= self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        if let Some(serving) = &mut self.serving
            && self.out.len() < CHUNK
        {
            serving.make(now, &mut self.out);
        }
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// The first `count` bytes of the output are sent.
    pub fn sent(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.out.len());
    }

    /// When there may be more output without anything arriving.
    #[must_use]
    pub fn next_time(&self) -> Option<Duration> {
        // With a whole chunk made, the socket is waited for, not the time.
        let serving = self.serving.as_ref()?;
        let next = serving.down.1.next_time();
        next.filter(|_| self.out.len() < CHUNK)
    }

    /// Returns true if everything is sent, including the receipt. The client closes then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_receipted = self
            .serving
            .as_ref()
            .is_some_and(|serving| serving.is_receipted);
        is_receipted && self.sent >= self.out.len()
    }
}

impl Serving {
    /// Adds a chunk of payload that is due, or the receipt.
    fn make(&mut self, now: Duration, out: &mut Vec<u8>) {
        let (pattern, pacer) = &mut self.down;
        let left = pacer.due(now).saturating_sub(self.made);
        let count = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let start = out.len();
        out.resize(start + count, 0);
        pattern.fill(self.made, out.get_mut(start..).unwrap_or_default());
        self.made = self.made.saturating_add(count as u64);
        let is_all = self.made >= pacer.total() && self.received >= self.up.1;
        if is_all && !self.is_receipted {
            self.is_receipted = true;
            out.extend(self.received.to_be_bytes());
            out.push(u8::from(self.is_right));
        }
    }
}
