//! Results of a run of the load generator: the shape of `--format json`, and the table for people.
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
    /// True if the run reached its planned end. If not, this has the measurements until then.
    pub complete: bool,
    /// Why it did not.
    pub why: Option<String>,
    /// When it began, seconds since 1970.
    pub started_at_s: u64,
    /// The measured target.
    pub target: Target,
    /// The load on it.
    pub load: Load,
    /// Time until the load could begin.
    pub setup: Setup,
    /// The measurements; `None` if the run ended before its measuring window began. Of a search,
    /// those at the highest rate that passed.
    pub measured: Option<Measured>,
    /// The result of a search, if one was requested.
    pub capacity: Option<Capacity>,
}

/// The highest rate at which the target kept latency under a bound and lost nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The bound of p99.
    pub p99_bound_us: f64,
    /// Largest distance between the two rates of the bracket, in percent.
    pub resolution_percent: f64,
    /// The highest rate that passed; `None`: none did.
    pub passed_cells_per_s: Option<f64>,
    /// The lowest that failed; `None`: the highest that is tried passed, or the steps did not suffice.
    pub failed_cells_per_s: Option<f64>,
    /// Goodput at the highest that passed.
    pub goodput_bits_per_s: Option<f64>,
    /// The side that failed at the lowest rate that failed: `target` or `generator`. If it was the
    /// generator, the target sustains at least the rate that passed.
    pub limit: Option<String>,
    /// All rates that were tried, in their order.
    pub steps: Vec<Step>,
}

/// One rate that was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Cells per second, as `rate_cells_per_s` of the load.
    pub rate_cells_per_s: f64,
    /// True if the target sustained it.
    pub passed: bool,
    /// Why not.
    pub why: Option<String>,
    /// If not: `target` or `generator`.
    pub limit: Option<String>,
    /// Goodput, if cells were measured.
    pub goodput_bits_per_s: Option<f64>,
    /// Its latency.
    pub p99_us: Option<f64>,
    /// 99 of 100 times the generator noticed no later than this that cells were due.
    pub generator_late_p99_us: Option<f64>,
    /// The part of a processor that the busiest thread of the target used, if it is known.
    pub target_busy: Option<f64>,
    /// The part of a processor that the busiest thread of the generator used.
    pub generator_busy: Option<f64>,
    /// CPU seconds of the target for each gigabyte.
    pub cpu_s_per_gb: Option<f64>,
}

/// The measured target.
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

/// The load on the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `cells`, `onionskins`, `links`, `idle-links` or `idle-circuits`.
    pub mode: String,
    /// `live-guard`, `live-middle` or `live-exit-side`; `None`: all circuits carry as much.
    pub live: Option<String>,
    /// Mean lifetime of a circuit of the live mix at its rate, seconds.
    pub circuit_life_s: Option<f64>,
    /// `upload` (forward), `download` (backward) or `both`.
    pub direction: String,
    /// Circuits through the target.
    pub circuits: usize,
    /// Links that we opened to the target, as clients.
    pub origin_links: usize,
    /// Links that the target opened to us, one to each of our relays.
    pub next_hop_links: usize,
    /// The most cells of one circuit and direction that were on their way at a time, or CREATE2
    /// cells of one link without an answer; 0 where that means nothing.
    pub window: usize,
    /// Cells per second over all circuits, each direction, of the live mix both together; `None` at full speed.
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

/// Time until the load could begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Until all links from us were open.
    pub links_s: f64,
    /// From then until all circuits were extended.
    pub circuits_s: f64,
}

/// Measurements of the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its length.
    pub seconds: f64,
    /// Cells that arrived in it and what they come to, if cells were driven.
    pub cells: Option<Cells>,
    /// Latency of cells, if cells were driven.
    pub latency: Option<Latency>,
    /// Delay with which the generator noticed that cells were due, if they were sent on a schedule:
    /// its own part of latency.
    pub generator_late: Option<Latency>,
    /// Circuits and links that opened and closed, in the live mix.
    pub churn: Option<Churn>,
    /// The target's counters of its own work, if they were requested.
    pub work: Option<Work>,
    /// Circuits that the target made, if the mode is `onionskins`.
    pub onionskins: Option<Events>,
    /// Links that the target opened, if the mode is `links`.
    pub links: Option<Events>,
    /// Memory of idle things, if that is the mode.
    pub idle: Option<Idle>,
    /// The target's usage, if it is on this machine and known.
    pub usage: Option<Usage>,
    /// The generator's own usage.
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

/// Latency of cells: from the moment that the generator gave them to TLS (at full speed) or should
/// have given them (at a fixed rate) until they returned to it.
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

/// Circuits and links of the live mix that came and went in the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Churn {
    /// Circuits that the target created and extended.
    pub circuits_made: u64,
    /// Their rate.
    pub circuits_made_per_s: f64,
    /// Circuits that ended because their time was over.
    pub circuits_ended: u64,
    /// Links to and from the target.
    pub links_opened: u64,
    /// Links to and from the target that closed.
    pub links_closed: u64,
    /// Payload that arrived for each circuit made.
    pub payload_bytes_per_circuit: Option<f64>,
}

/// Work of Weft's connection threads for each cell that they relayed, by its own counters, in about
/// the measuring window: Weft publishes them once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Cells that came and were relayed.
    pub relayed: u64,
    /// Turns of the loop: each waits once for sockets.
    pub turns_per_cell: f64,
    /// Turns in which the scheduler chose cells.
    pub scheduler_runs_per_cell: f64,
    /// Reads of a link's socket that gave bytes.
    pub link_reads_per_cell: f64,
    /// Writes that a link's socket took.
    pub link_writes_per_cell: f64,
}

/// Things that happened in the measuring window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Number of events.
    pub count: u64,
    /// Per second.
    pub per_s: f64,
    /// CPU seconds of the target for each, if they are known.
    pub cpu_s_each: Option<f64>,
}

/// Memory that idle links or circuits cost the target. It is measured over the second half of them,
/// once the memory of the start has been freed or is in use again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// `links` or `circuits`.
    pub what: String,
    /// Number of them that were added between the two measurements of memory.
    pub count: u64,
    /// Resident memory of the target before they were there.
    pub rss_before_bytes: u64,
    /// Resident memory while they were.
    pub rss_after_bytes: u64,
    /// The difference for each.
    pub bytes_each: f64,
}

/// Processor time and memory of a process in the measuring window.
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

/// Processor time of one thread in the measuring window.
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
            "cells" => format!(" {}", load.live.as_ref().unwrap_or(&load.direction)),
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
        if let Some(life) = load.circuit_life_s {
            how += &format!(", a circuit lives {life:.0} s");
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
        if let Some(capacity) = &self.capacity {
            capacity.fmt(f)?;
        }
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

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            let ms = |us: Option<f64>| us.map_or("?".to_owned(), |us| format!("{:.2}", us / 1e3));
            let part = |busy: Option<f64>| busy.map_or("?".to_owned(), |busy| format!("{busy:.2}"));
            row(
                f,
                "tried",
                format_args!(
                    "{:.0} cells/s: {:.1} Mbit/s, p99 {} ms, busy {} (generator {}, late {} ms): {}",
                    step.rate_cells_per_s,
                    step.goodput_bits_per_s.unwrap_or(0.0) / 1e6,
                    ms(step.p99_us),
                    part(step.target_busy),
                    part(step.generator_busy),
                    ms(step.generator_late_p99_us),
                    match (step.passed, &step.why) {
                        (true, _) => "passed",
                        (false, Some(why)) => why,
                        (false, None) => "failed",
                    }
                ),
            )?;
        }
        let bound = self.p99_bound_us / 1e3;
        match (self.passed_cells_per_s, self.goodput_bits_per_s) {
            (Some(passed), Some(goodput)) => {
                let failed = self.failed_cells_per_s.map_or_else(
                    || "none that was tried failed".to_owned(),
                    |failed| format!("{failed:.0} failed"),
                );
                row(
                    f,
                    "capacity",
                    format_args!(
                        "{:.1} Mbit/s with p99 under {bound} ms: {passed:.0} cells/s passed, {failed}",
                        goodput / 1e6
                    ),
                )?;
            }
            _ => row(
                f,
                "capacity",
                format_args!("no rate that was tried has p99 under {bound} ms"),
            )?,
        }
        match self.limit.as_deref() {
            Some("generator") => row(
                f,
                "limit",
                format_args!("the generator, not the target: the target bears at least this"),
            ),
            Some(limit) => row(f, "limit", format_args!("the {limit}")),
            None => Ok(()),
        }
    }
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
        if let Some(late) = &self.generator_late {
            row(
                f,
                "generator late",
                format_args!(
                    "p50 {:.0} µs, p99 {:.0}, max {:.0}: its part of that",
                    late.p50_us, late.p99_us, late.max_us
                ),
            )?;
        }
        if let Some(churn) = &self.churn {
            let each = churn
                .payload_bytes_per_circuit
                .map(|bytes| format!(" ({:.0} kB of payload each)", bytes / 1e3));
            row(
                f,
                "came and went",
                format_args!(
                    "circuits: {} made, {:.1}/s{}, {} ended; links: {} opened, {} closed",
                    churn.circuits_made,
                    churn.circuits_made_per_s,
                    each.unwrap_or_default(),
                    churn.circuits_ended,
                    churn.links_opened,
                    churn.links_closed
                ),
            )?;
        }
        if let Some(work) = &self.work {
            row(
                f,
                "for each cell",
                format_args!(
                    "{:.3} turns, {:.3} runs of the scheduler, {:.3} reads, {:.3} writes ({} relayed)",
                    work.turns_per_cell,
                    work.scheduler_runs_per_cell,
                    work.link_reads_per_cell,
                    work.link_writes_per_cell,
                    work.relayed
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
