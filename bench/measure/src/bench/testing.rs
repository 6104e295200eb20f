//! Results as a run would have them, for tests.

use weft_lab::relay::report::{
    Capacity, Cells, Churn, Events, Idle, Latency, Measured, Report, Target as ReportTarget, Usage,
};

use super::plan::{Plan, Point, THIN};
use super::results::{InNetwork, Options, Pack, Results, Run, SCHEMA};
use weft_lab::machine::{Machine, Versions};

/// Two repetitions of everything on a machine with two cores; numbers are made up.
pub(crate) fn results() -> Results {
    let plan = Plan::new(false, &[], &[], 2);
    let mut runs = Vec::new();
    for repetition in [1, 2] {
        for step in plan.first.iter().chain(&plan.second) {
            for target in &step.targets {
                runs.push(run(&step.point, &target.to_string(), repetition));
            }
        }
    }
    let mut results = Results {
        schema: SCHEMA,
        started_at: "2026-01-02T03:04:05Z".to_owned(),
        finished: true,
        machine: Machine {
            name: "m".to_owned(),
            cpu: "Some Processor".to_owned(),
            cores: 2,
            logical_cpus: 2,
            memory_bytes: 8 << 30,
            kernel: "Linux 6".to_owned(),
            ..Machine::default()
        },
        versions: Versions {
            commit: Some("0123456789abcdef".to_owned()),
            built_here: true,
            ..Versions::default()
        },
        options: Options {
            repetitions: 2,
            seconds: 10.0,
            warm_up: 2.0,
            pin: true,
            ..Options::default()
        },
        sharing: Vec::new(),
        pack: None,
        bars: Vec::new(),
        runs,
    };
    results.bars = super::bars::bars(&results);
    results
}

/// A record of a pack on a machine with this number of cores; numbers are made up.
pub(crate) fn pack(cores: usize) -> Results {
    let mut results = results();
    results.machine.cores = cores;
    results.pack = Some(Pack {
        sessions: vec![200.0, 100.0],
        ..Pack::default()
    });
    let scaling = Point::scaling();
    let thin = Point::scaling_thin(THIN);
    let mut runs = vec![run(&scaling, "tor", 1)];
    for threads in [1, 2, 4, 6, 8] {
        let target = format!("weft:{threads}");
        let mut one = run(&scaling, &target, 1);
        let report = one
            .report
            .as_mut()
            .and_then(|report| report.measured.as_mut());
        if let Some(cells) = report.and_then(|measured| measured.cells.as_mut()) {
            cells.goodput_bits_per_s =
                8e9 * f64::from(threads) * 0.75_f64.max(1.0 / f64::from(threads));
        }
        runs.extend([one, run(&thin, &target, 1)]);
    }
    for (target, bits) in [("tor", 1e9), ("weft:3", 5e9)] {
        runs.push(Run {
            report: None,
            network: Some(InNetwork {
                sustained_bits_per_s: bits,
                goodput_bits_per_s: 0.9 * bits,
                cpu_s_per_gb: 2.0,
                busiest_thread: 0.97,
                window_s: 3.0,
            }),
            ..run(&Point::network(100, 33), target, 1)
        });
    }
    results.runs = runs;
    results.bars = super::bars::of_pack(&results);
    results
}

fn run(point: &Point, target: &str, repetition: u32) -> Run {
    let first = repetition == 1;
    let two = |a, b| if first { a } else { b };
    let (cpu, p99, rss, circuit) = match target {
        "tor" => (two(4.0, 4.2), 60_000.0, 120e6, 4e-4),
        "pipe" => (0.9, 900.0, 9e6, 1e-4),
        _ => (two(1.0, 1.1), 1_000.0, 30e6, 1e-4),
    };
    let (mode, seconds) = (point.mode.as_str(), 10.0);
    let is_cells = mode == "cells";
    let goodput = 8e9 / cpu * if target == "weft:2" { 2.0 } else { 1.0 };
    let events = Events {
        count: 1000,
        per_s: 100.0,
        cpu_s_each: Some(circuit),
    };
    let measured = Measured {
        seconds,
        cells: is_cells.then(|| Cells {
            per_s: goodput / 498.0 / 8.0,
            goodput_bits_per_s: goodput,
            ..Cells::default()
        }),
        latency: is_cells.then(|| Latency {
            samples: 1000,
            min_us: p99 / 100.0,
            mean_us: p99 / 8.0,
            p50_us: p99 / 10.0,
            p90_us: p99 / 3.0,
            p99_us: p99,
            p999_us: 2.0 * p99,
            max_us: 3.0 * p99,
        }),
        generator_late: None,
        work: None,
        churn: point.live.as_ref().map(|_| Churn {
            circuits_made_per_s: 25.0,
            ..Churn::default()
        }),
        onionskins: (mode == "onionskins").then_some(events),
        links: None,
        idle: mode.starts_with("idle").then(|| Idle {
            bytes_each: rss / 2000.0,
            ..Idle::default()
        }),
        usage: Some(Usage {
            user_s: 6.0,
            system_s: 4.0,
            cpu_s_per_gb: is_cells.then_some(cpu),
            user_s_per_gb: is_cells.then_some(0.6 * cpu),
            system_s_per_gb: is_cells.then_some(0.4 * cpu),
            rss_bytes: rss as u64,
            peak_rss_bytes: rss as u64,
            ..Usage::default()
        }),
        generator: Usage::default(),
    };
    Run {
        point: point.clone(),
        target: target.to_owned(),
        repetition,
        words: "bench relay".to_owned(),
        took_s: 14.0,
        failure: None,
        limit: None,
        network: None,
        report: Some(Report {
            schema: 1,
            complete: true,
            target: ReportTarget {
                kind: target.split(':').next().unwrap_or(target).to_owned(),
                ..ReportTarget::default()
            },
            measured: Some(measured),
            capacity: point.is_in("capacity").then(|| Capacity {
                goodput_bits_per_s: Some(goodput),
                passed_cells_per_s: Some(goodput / 498.0 / 8.0),
                ..Capacity::default()
            }),
            ..Report::default()
        }),
    }
}

/// Changes the CPU time of a run in which cells were driven.
pub(crate) fn set_cpu_per_gb(run: &mut Run, seconds: f64) {
    let measured = run
        .report
        .as_mut()
        .and_then(|report| report.measured.as_mut());
    if let Some(usage) = measured.and_then(|measured| measured.usage.as_mut()) {
        usage.cpu_s_per_gb = usage.cpu_s_per_gb.map(|_| seconds);
    }
}
