//! What a run of the load generator found: the shape of `--format json`, and the table for people.
//!
//! Units are in the names: `_s` seconds, `_us` microseconds, `_bytes` bytes. A gigabyte is 10⁹
//! bytes of payload. The payload of a cell is what a version 0 relay cell can carry as data,
//! [`PAYLOAD_PER_CELL`] bytes, so that numbers compare with what streams carry.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of this shape. It changes when a field changes its meaning or goes; new fields that
/// may be absent do not change it.
pub const SCHEMA: u32 = 1;

/// Bytes of payload of one cell: the data of a full relay message (tor-spec 6.1).
pub const PAYLOAD_PER_CELL: u64 = weft_cell::relay::MAX_DATA as u64;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Whether the run came to its planned end. If not, what was measured until then is here.
    pub complete: bool,
    /// Why it did not.
    pub why: Option<String>,
    /// When it began, seconds since 1970.
    pub started_at_s: u64,
    /// What was measured.
    pub target: Target,
    /// What was asked of it.
    pub load: Load,
    /// What it took until the load could begin.
    pub setup: Setup,
    /// What was measured; none of it if the run ended before its measuring window began.
    pub measured: Option<Measured>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// `weft`, `tor`, `arti`, `pipe`, or `attached` for a program that ran already.
    pub kind: String,
    /// The version that it prints, if we started it.
    pub version: Option<String>,
    /// Its ConnectionThreads, if we set them.
    pub threads: Option<u32>,
    /// Where it listens.
    pub address: String,
    /// Its process, if it is on this machine and known.
    pub pid: Option<u32>,
    /// The processors that it was bound to; empty if it was not.
    pub cpus: Vec<usize>,
}

/// What was asked of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `cells`, `onionskins`, `links`, `idle-links` or `idle-circuits`.
    pub mode: String,
    /// `upload` (forward), `download` (backward) or `both`.
    pub direction: String,
    /// Circuits through the target.
    pub circuits: usize,
    /// Links that we opened to the target, as clients.
    pub origin_links: usize,
    /// Links that the target opened to us: one to each of so many relays.
    pub next_hop_links: usize,
    /// The most cells of one circuit and direction that were on their way at a time, or CREATE2
    /// cells of one link without an answer; 0 where that means nothing.
    pub window: usize,
    /// Cells per second over all circuits, each direction; `None` at full speed.
    pub rate_cells_per_s: Option<f64>,
    /// Before the measuring window.
    pub warm_up_s: f64,
    /// The measuring window that was asked for.
    pub seconds: f64,
    /// Payload bytes that each cell counts as.
    pub payload_bytes_per_cell: u64,
    /// Threads of the generator.
    pub generator_threads: usize,
    /// Processors that the generator was bound to; empty if it was not.
    pub generator_cpus: Vec<usize>,
}

/// What it took until the load could begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Until all links from us were open.
    pub links_s: f64,
    /// From then until all circuits were extended.
    pub circuits_s: f64,
}

/// What the measuring window showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long it was.
    pub seconds: f64,
    /// Cells that arrived in it and what they come to, if cells were driven.
    pub cells: Option<Cells>,
    /// How long cells were on their way, if cells were driven.
    pub latency: Option<Latency>,
    /// Circuits that the target made, if the mode is `onionskins`.
    pub onionskins: Option<Events>,
    /// Links that the target opened, if the mode is `links`.
    pub links: Option<Events>,
    /// Memory of idle things, if that is the mode.
    pub idle: Option<Idle>,
    /// What the target used, if it is on this machine and known.
    pub usage: Option<Usage>,
    /// What the generator itself used.
    pub generator: Usage,
}

/// Cells in the measuring window and, to be exact about losses, in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    /// Cells that arrived at the next hop.
    pub upload: u64,
    /// Cells that arrived at the origin.
    pub download: u64,
    /// Both, per second.
    pub per_s: f64,
    /// Their payload.
    pub payload_bytes: u64,
    /// Their payload in bits, per second.
    pub goodput_bits_per_s: f64,
    /// Cells that were sent in the whole run, warm-up and end included.
    pub sent: u64,
    /// Cells that had arrived when the run was over. After a complete run it is all that were sent.
    pub arrived: u64,
}

/// How long cells were on their way: from the moment that the generator gave them to TLS (at full
/// speed) or should have given them (at a fixed rate) until it had them back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Cells that were timed.
    pub samples: u64,
    /// The least.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 of 100 took no longer.
    pub p90_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1000 took no longer.
    pub p999_us: f64,
    /// The most.
    pub max_us: f64,
}

/// Things that happened in the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// How many.
    pub count: u64,
    /// Per second.
    pub per_s: f64,
    /// CPU seconds of the target for each, if they are known.
    pub cpu_s_each: Option<f64>,
}

/// What idle things cost the target in memory, taken from the second half of them, when the memory
/// that its beginning took has been given back or is in use again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// `links` or `circuits`.
    pub what: String,
    /// How many came between the two looks at memory.
    pub count: u64,
    /// Resident memory of the target before they were there.
    pub rss_before_bytes: u64,
    /// Resident memory while they were.
    pub rss_after_bytes: u64,
    /// The difference for each.
    pub bytes_each: f64,
}

/// What a process used in the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in the process's own code.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Both, for each gigabyte of payload; `None` where no cells were driven.
    pub cpu_s_per_gb: Option<f64>,
    /// [`user_s`](Self::user_s) for each gigabyte of payload.
    pub user_s_per_gb: Option<f64>,
    /// [`system_s`](Self::system_s) for each gigabyte of payload.
    pub system_s_per_gb: Option<f64>,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// The most resident memory since the process started.
    pub peak_rss_bytes: u64,
    /// Times that a thread gave up its processor to wait.
    pub voluntary_switches: u64,
    /// Times that a processor was taken from a thread.
    pub involuntary_switches: u64,
    /// Each thread that lived at the end, the main thread first.
    pub threads: Vec<Thread>,
}

/// What one thread used in the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// CPU time in the process's own code.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
}

/// The table for people.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.target;
        let threads = target.threads.map(|n| format!(", {n} connection threads"));
        row(
            f,
            "target",
            format_args!(
                "{}{} at {}",
                target.version.as_ref().unwrap_or(&target.kind),
                threads.unwrap_or_default(),
                target.address
            ),
        )?;
        let load = &self.load;
        let mut how = match load.mode.as_str() {
            "cells" => format!(" {}", load.direction),
            _ => String::new(),
        };
        if load.circuits > 0 {
            how += &format!(", {} circuits", load.circuits);
        }
        how += &format!(
            ", links {} in and {} out",
            load.origin_links, load.next_hop_links
        );
        if load.window > 0 {
            how += &format!(", window {} cells", load.window);
        }
        match load.rate_cells_per_s {
            Some(rate) => how += &format!(", {rate:.0} cells/s"),
            None if load.window > 0 => how += ", full speed",
            None => {}
        }
        row(f, "load", format_args!("{}{how}", load.mode))?;
        row(
            f,
            "set up",
            format_args!(
                "links in {:.3} s, circuits in {:.3} s",
                self.setup.links_s, self.setup.circuits_s
            ),
        )?;
        if let Some(measured) = &self.measured {
            measured.fmt(f)?;
        }
        if !self.complete {
            let why = self.why.as_deref().unwrap_or("the reason is not known");
            row(f, "INCOMPLETE", format_args!("{why}"))?;
        }
        Ok(())
    }
}

/// A line of the table.
fn row(f: &mut fmt::Formatter<'_>, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "{name:<18} {value}")
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "measured for", format_args!("{:.3} s", self.seconds))?;
        if let Some(cells) = &self.cells {
            row(
                f,
                "goodput",
                format_args!(
                    "{:.1} Mbit/s ({PAYLOAD_PER_CELL} payload bytes a cell), {:.0} cells/s",
                    cells.goodput_bits_per_s / 1e6,
                    cells.per_s
                ),
            )?;
            row(
                f,
                "cells",
                format_args!(
                    "{} up, {} down; in the whole run {} sent, {} arrived",
                    cells.upload, cells.download, cells.sent, cells.arrived
                ),
            )?;
        }
        if let Some(latency) = &self.latency {
            row(
                f,
                "latency",
                format_args!(
                    "p50 {:.0} µs, p90 {:.0}, p99 {:.0}, p99.9 {:.0}, max {:.0} ({} cells timed)",
                    latency.p50_us,
                    latency.p90_us,
                    latency.p99_us,
                    latency.p999_us,
                    latency.max_us,
                    latency.samples
                ),
            )?;
        }
        for (name, events) in [("onionskins", &self.onionskins), ("links", &self.links)] {
            if let Some(events) = events {
                let each = events
                    .cpu_s_each
                    .map(|cpu| format!(", {:.0} µs of CPU each", cpu * 1e6));
                row(
                    f,
                    name,
                    format_args!(
                        "{:.1}/s, {} in all{}",
                        events.per_s,
                        events.count,
                        each.unwrap_or_default()
                    ),
                )?;
            }
        }
        if let Some(idle) = &self.idle {
            row(
                f,
                "memory",
                format_args!(
                    "{:.0} bytes for each of {} idle {} ({} to {} KiB)",
                    idle.bytes_each,
                    idle.count,
                    idle.what,
                    idle.rss_before_bytes / 1024,
                    idle.rss_after_bytes / 1024
                ),
            )?;
        }
        if let Some(usage) = &self.usage {
            usage.table(f, "target")?;
        }
        self.generator.table(f, "generator")
    }
}

impl Usage {
    fn table(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        if let (Some(all), Some(user), Some(system)) =
            (self.cpu_s_per_gb, self.user_s_per_gb, self.system_s_per_gb)
        {
            row(
                f,
                &format!("{name} CPU/GB"),
                format_args!("{all:.3} s (user {user:.3}, system {system:.3})"),
            )?;
        }
        row(
            f,
            &format!("{name} CPU"),
            format_args!(
                "user {:.2} s, system {:.2} s; switches {} voluntary, {} not",
                self.user_s, self.system_s, self.voluntary_switches, self.involuntary_switches
            ),
        )?;
        row(
            f,
            &format!("{name} memory"),
            format_args!(
                "{:.1} MB now, {:.1} MB at most",
                self.rss_bytes as f64 / 1e6,
                self.peak_rss_bytes as f64 / 1e6
            ),
        )?;
        for thread in &self.threads {
            if thread.user_s + thread.system_s > 0.0 {
                row(
                    f,
                    "",
                    format_args!(
                        "{:<15} user {:.2} s, system {:.2} s",
                        thread.name, thread.user_s, thread.system_s
                    ),
                )?;
            }
        }
        Ok(())
    }
}
