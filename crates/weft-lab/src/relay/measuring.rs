//! Moments of a run, and what happened between two of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use weft_testnet::metrics_port;
use weft_testnet::process::Usage;

use super::mode::Mode;
use super::report::{
    Cells, Churn, Events, Measured, PAYLOAD_PER_CELL, Thread, Usage as ReportUsage, Work,
};
use super::world;

/// Sum of all worlds' counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) upload: u64,
    pub(super) download: u64,
    pub(super) sent: u64,
    pub(super) events: u64,
    pub(super) churn: world::Churn<u64>,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) counts: Counts,
    pub(super) target: Option<Usage>,
    pub(super) own: Usage,
}

impl Counts {
    /// Whatever the mode counts.
    pub(super) fn moved(self) -> u64 {
        self.upload + self.download + self.events
    }
}

impl Sample {
    /// Everything now, by the worlds' counts and the target's process.
    pub(super) fn take(counts: Counts, pid: Option<u32>) -> Result<Sample> {
        Ok(Sample {
            at: Instant::now(),
            counts,
            target: pid.map(Usage::of).transpose()?,
            own: Usage::of(std::process::id())?,
        })
    }

    /// Measurements since `before`, of all that the mode measures.
    pub(super) fn since(&self, before: &Sample, mode: Mode, live: bool) -> Measured {
        let after = self;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let per_s = |count: u64| count as f64 / seconds.max(1e-9);
        let (upload, download) = (
            after.counts.upload - before.counts.upload,
            after.counts.download - before.counts.download,
        );
        let payload = (upload + download) * PAYLOAD_PER_CELL;
        let cells = mode == Mode::Cells;
        let gigabytes = (cells && payload > 0).then_some(payload as f64 / 1e9);
        let usage = match (&before.target, &after.target) {
            (Some(before), Some(after)) => Some(usage_of(&after.since(before), gigabytes)),
            _ => None,
        };
        let count = after.counts.events - before.counts.events;
        let events = Events {
            count,
            per_s: per_s(count),
            cpu_s_each: usage
                .as_ref()
                .filter(|_| count > 0)
                .map(|usage| (usage.user_s + usage.system_s) / count as f64),
        };
        Measured {
            seconds,
            cells: cells.then(|| Cells {
                upload,
                download,
                per_s: per_s(upload + download),
                payload_bytes: payload,
                goodput_bits_per_s: per_s(payload * 8),
                sent: 0,
                arrived: 0,
            }),
            latency: None,
            generator_late: None,
            churn: live.then(|| churn(after.counts.churn, before.counts.churn, seconds, payload)),
            work: None,
            onionskins: (mode == Mode::Onionskins).then(|| events.clone()),
            links: (mode == Mode::Links).then_some(events),
            idle: None,
            usage,
            generator: usage_of(&after.own.since(&before.own), gigabytes),
        }
    }
}

/// The counters of a Weft that matter here, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    relayed: f64,
    turns: f64,
    scheduler_runs: f64,
    link_reads: f64,
    link_writes: f64,
}

impl Counted {
    pub(super) fn read(metrics: SocketAddr) -> Result<Counted> {
        let text = metrics_port::read(metrics).context("reading the target's counters")?;
        let sum = |name| metrics_port::sum(&text, name);
        let relayed = metrics_port::values(&text, "weft_thread_cells_total")
            .filter(|(labels, _)| labels.contains("result=\"relayed\""));
        Ok(Counted {
            relayed: relayed.map(|(_, count)| count).sum(),
            turns: sum("weft_thread_turns_total"),
            scheduler_runs: sum("weft_thread_scheduler_runs_total"),
            link_reads: sum("weft_thread_link_reads_total"),
            link_writes: sum("weft_thread_link_writes_total"),
        })
    }

    /// For each cell since then; `None`: there was none.
    pub(super) fn since(&self, before: &Counted) -> Option<Work> {
        let relayed = self.relayed - before.relayed;
        (relayed > 0.0).then(|| Work {
            relayed: relayed as u64,
            turns_per_cell: (self.turns - before.turns) / relayed,
            scheduler_runs_per_cell: (self.scheduler_runs - before.scheduler_runs) / relayed,
            link_reads_per_cell: (self.link_reads - before.link_reads) / relayed,
            link_writes_per_cell: (self.link_writes - before.link_writes) / relayed,
        })
    }
}

/// Circuits and links that opened and closed, for the report.
fn churn(after: world::Churn<u64>, before: world::Churn<u64>, seconds: f64, payload: u64) -> Churn {
    let circuits_made = after.circuits_made - before.circuits_made;
    Churn {
        circuits_made,
        circuits_made_per_s: circuits_made as f64 / seconds.max(1e-9),
        circuits_ended: after.circuits_ended - before.circuits_ended,
        links_opened: after.links_opened - before.links_opened,
        links_closed: after.links_closed - before.links_closed,
        payload_bytes_per_circuit: (circuits_made > 0)
            .then(|| payload as f64 / circuits_made as f64),
    }
}

/// A usage in the report's form.
fn usage_of(used: &Usage, gigabytes: Option<f64>) -> ReportUsage {
    let user = |cpu: Duration, system: Duration| cpu.saturating_sub(system).as_secs_f64();
    let (user_s, system_s) = (user(used.cpu, used.system), used.system.as_secs_f64());
    ReportUsage {
        user_s,
        system_s,
        cpu_s_per_gb: gigabytes.map(|gb| (user_s + system_s) / gb),
        user_s_per_gb: gigabytes.map(|gb| user_s / gb),
        system_s_per_gb: gigabytes.map(|gb| system_s / gb),
        rss_bytes: used.rss,
        peak_rss_bytes: used.peak_rss,
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        threads: used
            .threads
            .iter()
            .map(|thread| Thread {
                name: thread.name.clone(),
                user_s: user(thread.cpu, thread.system),
                system_s: thread.system.as_secs_f64(),
            })
            .collect(),
    }
}
