//! Values of command line options.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use weft_stats::bounds::Bounds;

/// Off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Off.
    Off,
    /// On.
    On,
}

impl Switch {
    /// The selected switches, each once: off, then on.
    pub(crate) fn each(asked: &[Switch]) -> Vec<bool> {
        let both = [(Switch::Off, false), (Switch::On, true)];
        let wanted = both
            .into_iter()
            .filter(|(switch, _)| asked.contains(switch));
        wanted.map(|(_, on)| on).collect()
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Switch::Off => "off",
            Switch::On => "on",
        })
    }
}

/// Number of repetitions.
pub(crate) const REPETITIONS: Bounds<u32> = Bounds::new(1, 1000);
/// Jobs, or threads of this program, at once.
pub(crate) const THREADS: Bounds<usize> = Bounds::new(1, 1024);
/// Connection threads of a node: as many as Weft has at most, by the table of its options.
pub(crate) const CONNECTION_THREADS: Bounds<u32> = Bounds::new(0, 256);
/// Length of a measurement, in real or simulated time: up to 30 days.
pub(crate) const LASTS: Bounds<Duration> = Bounds::new(Duration::from_millis(1), MONTH);
/// Length of a pause, which 0 leaves out.
pub(crate) const PAUSE: Bounds<Duration> = Bounds::new(Duration::ZERO, MONTH);
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// Longest duration of one step.
pub const PATIENCE: Bounds<Duration> =
    Bounds::new(Duration::from_millis(100), Duration::from_secs(86_400));
/// Streams at once.
pub(crate) const STREAMS: Bounds<usize> = Bounds::new(1, 10_000);
/// Megabytes, or mebibytes, of one transfer.
pub(crate) const MEGABYTES: Bounds<u64> = Bounds::new(1, 1_000_000);
/// A rate that one machine may reach.
pub(crate) const MBITS: Bounds<f64> = Bounds::new(0.001, 10_000.0).of("Mbit/s");
/// kB/s of bandwidth for each unit of a relay's weight.
pub(crate) const CAPACITY: Bounds<f64> = Bounds::new(0.001, 1000.0);
/// A fraction or multiple of the planned network.
pub(crate) const SCALE: Bounds<f64> = Bounds::new(0.001, 10.0);
/// A multiple of the planned users.
pub(crate) const LOAD: Bounds<f64> = Bounds::new(0.001, 100.0);

/// The bytes of one stream.
const BYTES: Bounds<u64> = Bounds::new(1, 1 << 40).of("bytes");

/// A number of bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    );
    let unit: Option<u64> = match unit {
        "" | "B" => Some(1),
        "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        _ => None,
    };
    let number: Option<u64> = number.trim().parse().ok();
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .filter(|bytes| BYTES.allow(*bytes))
        .ok_or_else(|| format!("{BYTES}, or a number and one of B, kB, MB, KiB, MiB"))
}

/// The selection without duplicates, or the default if it is empty.
pub(crate) fn chosen<T: Copy + PartialEq>(asked: &[T], default: &[T]) -> Vec<T> {
    let asked = if asked.is_empty() { default } else { asked };
    let mut once = Vec::new();
    for one in asked {
        if !once.contains(one) {
            once.push(*one);
        }
    }
    once
}
