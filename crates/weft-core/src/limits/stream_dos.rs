//! Defence against circuits that open too many streams at an exit (C tor's dos.c,
//! `dos_stream_new_begin_or_resolve_cell`): each circuit has a bucket of streams, BEGIN and RESOLVE
//! take one out, and past the limit streams are refused, or the circuit is closed.

use std::time::Instant;

use crate::limits::bucket::TokenBucket;

/// Parameters of torrc and consensus; the defaults are C tor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamDosParams {
    /// `DoSStreamCreationEnabled`.
    pub enabled: bool,
    /// `DoSStreamCreationRate`: streams of one circuit per second.
    pub rate: u32,
    /// `DoSStreamCreationBurst`: streams of one circuit at once.
    pub burst: u32,
    /// `DoSStreamCreationDefenseType`.
    pub defense: StreamDefense,
}

/// Defence past the limit (`DoSStreamCreationDefenseType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamDefense {
    /// 1: nothing; it is counted.
    None,
    /// 2: the stream is refused.
    RefuseStream,
    /// 3: the circuit is closed.
    CloseCircuit,
}

impl StreamDefense {
    /// The defence with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::None),
            2 => Some(Self::RefuseStream),
            3 => Some(Self::CloseCircuit),
            _ => None,
        }
    }
}

impl Default for StreamDosParams {
    fn default() -> Self {
        Self {
            enabled: false,
            rate: 100,
            burst: 300,
            defense: StreamDefense::RefuseStream,
        }
    }
}

/// Decision on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum StreamVerdict {
    /// Let it be.
    Allow,
    /// It is too many, but nothing is done about it but counting.
    Count,
    /// A BEGIN is answered END with reason MISC (after RESOURCELIMIT a client would take the relay
    /// for useless), a RESOLVE with a transient error.
    RefuseStream,
    /// The circuit is closed with reason RESOURCELIMIT.
    CloseCircuit,
}

impl StreamVerdict {
    /// True if the stream is past the limit, and is counted as such.
    #[must_use]
    pub(crate) fn is_too_many(self) -> bool {
        self != Self::Allow
    }
}

/// The streams that one circuit may still open.
#[derive(Debug, Clone)]
pub(crate) struct StreamBucket(TokenBucket);

impl StreamBucket {
    /// Full. A circuit needs none before its first stream.
    #[must_use]
    pub(crate) fn new(params: &StreamDosParams, now: Instant) -> Self {
        Self(TokenBucket::new(
            params.rate.into(),
            params.burst.into(),
            now,
        ))
    }

    /// A BEGIN or RESOLVE came on the circuit.
    pub(crate) fn stream_asked(&mut self, params: &StreamDosParams, now: Instant) -> StreamVerdict {
        if !params.enabled {
            return StreamVerdict::Allow;
        }
        self.0.set_limit(params.rate.into(), params.burst.into());
        if self.0.take(1, now) == 1 {
            return StreamVerdict::Allow;
        }
        match params.defense {
            StreamDefense::None => StreamVerdict::Count,
            StreamDefense::RefuseStream => StreamVerdict::RefuseStream,
            StreamDefense::CloseCircuit => StreamVerdict::CloseCircuit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_circuit_has_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let params = StreamDosParams {
            enabled: true,
            rate: 2,
            burst: 5,
            ..StreamDosParams::default()
        };
        let mut bucket = StreamBucket::new(&params, start);
        let mut allowed = |after: u64, count: usize| {
            let now = start + Duration::from_millis(after);
            (0..count)
                .filter(|_| !bucket.stream_asked(&params, now).is_too_many())
                .count()
        };
        assert_eq!(allowed(0, 10), 5);
        assert_eq!(allowed(499, 10), 0);
        assert_eq!(allowed(500, 10), 1);
        assert_eq!(allowed(2000, 10), 3);
        assert_eq!(allowed(60_000, 10), 5);
    }

    #[test]
    fn what_is_done_past_the_limit_is_the_operator_s_choice() {
        let now = Instant::now();
        let mut params = StreamDosParams {
            enabled: true,
            burst: 1,
            ..StreamDosParams::default()
        };
        let mut bucket = StreamBucket::new(&params, now);
        assert_eq!(bucket.stream_asked(&params, now), StreamVerdict::Allow);
        for (number, verdict) in [
            (1, StreamVerdict::Count),
            (2, StreamVerdict::RefuseStream),
            (3, StreamVerdict::CloseCircuit),
        ] {
            params.defense = StreamDefense::from_number(number).unwrap_or(StreamDefense::None);
            assert_eq!(bucket.stream_asked(&params, now), verdict);
        }
        params.enabled = false;
        assert_eq!(bucket.stream_asked(&params, now), StreamVerdict::Allow);
        assert_eq!(StreamDefense::from_number(1), Some(StreamDefense::None));
        assert_eq!(StreamDefense::from_number(0), None);
        assert_eq!(StreamDefense::from_number(4), None);
    }
}
