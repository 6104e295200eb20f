//! Result of one stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::seconds;
use crate::traffic::stream::{Failure, Times};

/// End of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// All bytes arrived, and were the right ones.
    Complete,
    /// It was open when the measurement ended.
    Unfinished,
    /// It failed.
    Failed(Failure),
}

/// Result of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The client that opened it.
    pub client: String,
    /// Name of the client's model.
    pub model: String,
    /// The client's number for it, from 0.
    pub stream: u32,
    /// Its streams of one number may share a circuit.
    pub isolation: u32,
    /// When it began, since the beginning of the experiment. Every other time is counted from here.
    #[serde(rename = "started_s", with = "seconds")]
    pub started: Duration,
    /// Measurements on the way.
    #[serde(flatten)]
    pub times: Times,
    /// When it ended, since it began.
    #[serde(rename = "ended_s", with = "seconds")]
    pub ended: Duration,
    /// Complete, open at the end of the measurement, or failed with a reason.
    pub outcome: Outcome,
}

impl Record {
    /// Returns true if all bytes arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.outcome == Outcome::Complete
    }

    /// From the beginning of the connection to the first byte of payload that arrived; of an upload, to
    /// the receipt.
    #[must_use]
    pub fn time_to_first_byte(&self) -> Option<Duration> {
        match self.times.down.wanted {
            0 => self.times.receipt,
            _ => self.times.down.first,
        }
    }

    /// From the beginning of the connection to the last byte: of the download, or of the receipt
    /// for the upload where there is no download. `None` unless the stream is complete.
    #[must_use]
    pub fn time_to_last_byte(&self) -> Option<Duration> {
        if !self.is_complete() {
            return None;
        }
        match self.times.down.wanted {
            0 => self.times.receipt,
            _ => self.times.down.last,
        }
    }

    /// From the request to the server's answer: the circuit there and back, as it was before the payload.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.times.answered?.checked_sub(self.times.opened?)
    }

    /// Payload megabits (10⁶) per second from the request to the end, in both directions together;
    /// for an incomplete stream, of the bytes that arrived.
    #[must_use]
    pub fn goodput_mbit(&self) -> Option<f64> {
        let opened = self.times.opened?;
        let end = self.time_to_last_byte().unwrap_or(self.ended);
        let seconds = end.checked_sub(opened)?.as_secs_f64();
        let bytes = self.times.down.bytes.saturating_add(self.times.up.bytes);
        (seconds > 0.0).then(|| bytes as f64 * 8e-6 / seconds)
    }
}
