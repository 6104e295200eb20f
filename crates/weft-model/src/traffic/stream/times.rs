//! Measurements of a running stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::traffic::seconds;

/// The numbers of bytes at which `tgentools` wants times (`analysis.py`).
const PARTIALS: [u64; 9] = [
    10_240, 20_480, 51_200, 102_400, 204_800, 512_000, 1_048_576, 2_097_152, 5_242_880,
];

/// The time at which a number of bytes had been transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Number of bytes.
    pub bytes: u64,
    /// When, since the stream began.
    #[serde(rename = "s", with = "seconds")]
    pub at: Duration,
}

/// One direction of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Bytes of payload that the plan has.
    pub wanted: u64,
    /// Bytes that moved: arrived, or given to the socket.
    pub bytes: u64,
    /// When the first did, since the stream began.
    #[serde(rename = "first_s", with = "seconds::optional")]
    pub first: Option<Duration>,
    /// When the last did that has moved so far.
    #[serde(rename = "last_s", with = "seconds::optional")]
    pub last: Option<Duration>,
    /// The longest time between two moments at which bytes moved.
    #[serde(rename = "longest_gap_s", with = "seconds")]
    pub longest_gap: Duration,
    /// When each tenth of the wanted bytes had moved, and each of the sizes that tornettools plots.
    pub marks: Vec<Mark>,
}

/// Measurements of a running stream. All times are since it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// When there was a connection to the server, by way of the proxy; the request is sent then.
    #[serde(rename = "opened_s", with = "seconds::optional")]
    pub opened: Option<Duration>,
    /// When the server's answer to the request arrived.
    #[serde(rename = "answered_s", with = "seconds::optional")]
    pub answered: Option<Duration>,
    /// When the server's receipt arrived.
    #[serde(rename = "receipt_s", with = "seconds::optional")]
    pub receipt: Option<Duration>,
    /// From the server.
    pub down: Way,
    /// To the server.
    pub up: Way,
}

impl Way {
    fn new(wanted: u64) -> Way {
        Way {
            wanted,
            bytes: 0,
            first: None,
            last: None,
            longest_gap: Duration::ZERO,
            marks: Vec::new(),
        }
    }

    /// Bytes that have not moved.
    pub(crate) fn left(&self) -> u64 {
        self.wanted.saturating_sub(self.bytes)
    }

    /// So many more bytes moved.
    pub(crate) fn add(&mut self, count: u64, at: Duration) {
        if count == 0 {
            return;
        }
        let before = self.bytes;
        self.bytes = before.saturating_add(count);
        self.first.get_or_insert(at);
        if let Some(last) = self.last.replace(at) {
            self.longest_gap = self.longest_gap.max(at.saturating_sub(last));
        }
        let passed = before.saturating_add(1)..=self.bytes;
        let tenths = (1..=10).map(|tenth| tenth_of(self.wanted, tenth));
        let mut new: Vec<u64> = tenths
            .chain(PARTIALS)
            .filter(|bytes| passed.contains(bytes))
            .collect();
        new.sort_unstable();
        new.dedup();
        let new = new.into_iter().map(|bytes| Mark { bytes, at });
        self.marks.extend(new);
    }

    /// The time at which `bytes` had been transferred, if that is one of the marks.
    pub(crate) fn at(&self, bytes: u64) -> Option<Duration> {
        let mark = self.marks.iter().find(|mark| mark.bytes == bytes);
        mark.map(|mark| mark.at)
    }

    /// The marks at the sizes that `tgentools` has.
    pub(crate) fn partials(&self) -> impl Iterator<Item = Mark> {
        let marks = self.marks.iter().copied();
        marks.filter(|mark| PARTIALS.contains(&mark.bytes))
    }
}

/// Bytes in the given number of tenths of `bytes`.
pub(crate) fn tenth_of(bytes: u64, tenth: u64) -> u64 {
    // In two parts, which cannot overflow.
    (bytes / 10) * tenth + ((bytes % 10) * tenth).div_ceil(10)
}

impl Times {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(down: u64, up: u64) -> Times {
        Times {
            opened: None,
            answered: None,
            receipt: None,
            down: Way::new(down),
            up: Way::new(up),
        }
    }
}
