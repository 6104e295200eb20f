//! Many records as a few numbers.

use serde::{Deserialize, Serialize};
use weft_stats::{Spread, quantile};

use super::record::{Outcome, Record};

/// One quantity over many streams. They depend on each other, so there is no interval of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Streams that have it.
    pub count: usize,
    /// The mean.
    pub mean: f64,
    /// The standard deviation; `None`: one stream has none.
    pub stddev: Option<f64>,
    /// Of a hundred streams, ten have less.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// Of a hundred streams, ten have more.
    pub p90: f64,
    /// Of a hundred streams, one has more.
    pub p99: f64,
}

impl Figure {
    /// `None` if there are no numbers.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Figure> {
        let spread = Spread::of(numbers)?;
        Some(Figure {
            count: spread.n,
            mean: spread.mean,
            stddev: spread.stddev,
            p10: quantile(numbers, 0.1)?,
            p50: quantile(numbers, 0.5)?,
            p90: quantile(numbers, 0.9)?,
            p99: quantile(numbers, 0.99)?,
        })
    }
}

/// Many streams as a few numbers. Where runs are repeated, intervals are those of the runs' means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Streams that began.
    pub streams: usize,
    /// Streams that completed.
    pub complete: usize,
    /// Streams that failed; the others were open at the end.
    pub failed: usize,
    /// Payload bytes that arrived at clients.
    pub down_bytes: u64,
    /// Payload bytes that clients sent.
    pub up_bytes: u64,
    /// Time to first byte.
    pub ttfb_ms: Option<Figure>,
    /// Time to last byte, of complete streams.
    pub ttlb_ms: Option<Figure>,
    /// Round trip from request to answer.
    pub rtt_ms: Option<Figure>,
    /// Goodput, of complete streams.
    pub goodput_mbit: Option<Figure>,
}

impl Summary {
    /// Of these records.
    #[must_use]
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Summary {
        let records: Vec<&Record> = records.into_iter().collect();
        let figure = |number: fn(&Record) -> Option<f64>| {
            let numbers: Vec<f64> = records.iter().filter_map(|record| number(record)).collect();
            Figure::of(&numbers)
        };
        let is_failed = |record: &&&Record| matches!(record.outcome, Outcome::Failed(_));
        Summary {
            streams: records.len(),
            complete: records.iter().filter(|record| record.is_complete()).count(),
            failed: records.iter().filter(is_failed).count(),
            down_bytes: records.iter().map(|record| record.times.down.bytes).sum(),
            up_bytes: records.iter().map(|record| record.times.up.bytes).sum(),
            ttfb_ms: figure(|record| Some(record.time_to_first_byte()?.as_secs_f64() * 1e3)),
            ttlb_ms: figure(|record| Some(record.time_to_last_byte()?.as_secs_f64() * 1e3)),
            rtt_ms: figure(|record| Some(record.round_trip()?.as_secs_f64() * 1e3)),
            goodput_mbit: figure(|record| {
                let mbit = record.goodput_mbit()?;
                record.is_complete().then_some(mbit)
            }),
        }
    }
}
