//! Printing of results.

use std::fs;

use clap::ValueEnum;

/// Format of printed results.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// A table.
    Human,
    /// One JSON object.
    Json,
}

/// The most memory that was resident since the start, bytes; 0 where the system does not report it.
pub(super) fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kibibytes| kibibytes * 1024)
}
