//! Moments of a run, and what happened between two of them.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::mode::Mode;
use super::report::{Cells, Events, Measured, PAYLOAD_PER_CELL, Thread, Usage as ReportUsage};
use crate::process::Usage;

/// What all worlds have done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) upload: u64,
    pub(super) download: u64,
    pub(super) sent: u64,
    pub(super) events: u64,
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

    /// What happened since `before`, of all that the mode measures.
    pub(super) fn since(&self, before: &Sample, mode: Mode) -> Measured {
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
            onionskins: (mode == Mode::Onionskins).then(|| events.clone()),
            links: (mode == Mode::Links).then_some(events),
            idle: None,
            usage,
            generator: usage_of(&after.own.since(&before.own), gigabytes),
        }
    }
}

/// A usage as the report has it.
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
