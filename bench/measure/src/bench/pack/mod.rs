//! The pack of `cargo xtask pack`: programs in an archive, for a larger machine that is at hand for minutes.
//!
//! It is `cargo xtask bench` with a fixed plan, a time limit, and one record that is written after each row and
//! that a second run goes on with. Nothing of the checkout is needed.

pub(crate) mod record;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weft_lab::machine::{Cpus, Machine, Versions};
use weft_lab::relay::report::Report;
use weft_lab::throughput;
use weft_stats::bounds::Bounds;

use self::record::Stamp;
use self::rows::{Network, Plan, Row, STREAMS};
use super::host::{self, Host};
use super::launch::{self, Launch};
use super::plan::Place;
use super::results::{File, InNetwork, Options, Pack, Results, Run, SCHEMA};
use super::{bars, gist, line, metrics, minutes, words};

/// Measure how Weft and C tor use the cores of this machine, all on 127.0.0.1.
///
/// Needs neither root nor a network, ends within a given time, and writes one record after each
/// row. A second run continues where the first ended.
#[derive(clap::Args, Debug)]
pub(crate) struct PackArgs {
    /// The folder of the pack
    #[arg(long, value_name = "DIR", hide = true)]
    folder: PathBuf,
    /// End within this time
    #[arg(long, value_name = "MINUTES", default_value_t = 8.0, value_parser = MINUTES.parser())]
    minutes: f64,
    /// Fewer rows, short: about half a minute, to see that it works here
    #[arg(long)]
    quick: bool,
    /// The record [default: record.json in the folder of the pack]
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the plan and end
    #[arg(long)]
    plan: bool,
}

const MINUTES: Bounds<f64> = Bounds::new(0.1, 240.0).of("minutes");
/// Seconds before the end at which a row that still runs is ended.
const FAREWELL: Duration = Duration::from_secs(5);
/// Part of its time from which on a working thread is at its capacity, as in `weft lab relay
/// --capacity`.
const FULL: f64 = 0.93;
/// Microseconds: a generator that notices later what is due measures itself, as there.
const LATE: f64 = 25_000.0;
/// A target at full speed whose busiest thread works less was held up by something else.
const BUSY: f64 = 0.75;
/// The share from which the target in a private network had no more to give (Engler and Goldberg 2021).
const FULL_IN_NETWORK: f64 = 0.95;

pub(crate) fn run(args: &PackArgs) -> Result<()> {
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(args.minutes * 60.0);
    let folder = args
        .folder
        .canonicalize()
        .with_context(|| format!("there is no pack at {}", args.folder.display()))?;
    let stamp = Stamp::read(&folder)?;
    let host = Host::here();
    let cpus = host.cpus();
    let plan = Plan::new(cpus.cores.len(), host.open_files, args.quick);
    let machine = Machine::here(&cpus, None);
    println!("{}, {}", machine.cpu, machine.kernel);
    host.lines().iter().for_each(|line| println!("{line}"));
    let lacks = |flag: &&&str| machine.cpu_flags.iter().all(|other| other != **flag);
    for flag in ["aes", "avx2"].iter().filter(lacks) {
        println!(
            "The processor has no {flag}: compare these numbers with none of a processor that has it."
        );
    }
    print_plan(&plan, args.minutes);
    if args.plan {
        return Ok(());
    }
    host::check()?;
    let weft = folder.join("bin/weft");
    let versions = Versions {
        rustc: stamp.rustc,
        commit: Some(stamp.commit),
        dirty: stamp.dirty,
        built_here: true,
        ..Versions::here(&weft, &folder, true)
    };
    let now = OffsetDateTime::now_utc();
    let new = Results {
        schema: SCHEMA,
        started_at: now.replace_nanosecond(0)?.format(&Rfc3339)?,
        finished: false,
        machine,
        versions,
        options: Options {
            quick: args.quick,
            repetitions: 1,
            seconds: rows::seconds(args.quick).1,
            warm_up: rows::seconds(args.quick).0,
            pin: true,
            ..Options::default()
        },
        sharing: vec![
            "each thread of the target has a core, and the generator up to three others for each of these; several \
             connection threads warm up for 10 s"
                .to_owned(),
        ],
        pack: Some(Pack {
            left_out: plan.left_out.clone(),
            host,
            sessions: Vec::new(),
        }),
        bars: Vec::new(),
        runs: Vec::new(),
    };
    let path = match &args.record {
        Some(path) => path.clone(),
        None => folder.join("record.json"),
    };
    let (file, results) = record::open(&path, new)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("waiting for signals")?;
    }
    let mut session = Session {
        measures: std::env::current_exe().context("finding this program")?,
        cpus,
        temporary: temporary(&path)?,
        network: path.with_extension("network"),
        began,
        end,
        before: results
            .pack
            .as_ref()
            .map(|pack| pack.sessions.clone())
            .unwrap_or_default(),
        stop,
        file,
        results,
    };
    session.perform(&plan)?;
    session.finish(&plan)
}

fn print_plan(plan: &Plan, minutes_given: f64) {
    let seconds: f64 = plan.rows.iter().map(|row| row.expected).sum();
    let seconds = seconds + plan.network.map_or(0.0, Network::start);
    println!(
        "\n{} rows, about {}; it ends within {minutes_given} min.",
        plan.rows.len(),
        minutes(Duration::from_secs_f64(seconds))
    );
    for row in &plan.rows {
        println!("  {:<58} {}", row.point.to_string(), row.target);
    }
    for out in &plan.left_out {
        println!("  left out: {}: {}", out.what, out.why);
    }
    println!();
}

/// A folder for temporary files, where the system has none: beside the record.
fn temporary(record: &Path) -> Result<Option<PathBuf>> {
    let system = std::env::temp_dir();
    let probe = system.join(format!("weft-pack-{}", std::process::id()));
    if fs::create_dir(&probe).is_ok() {
        fs::remove_dir(&probe).with_context(|| format!("removing {}", probe.display()))?;
        return Ok(None);
    }
    let folder = record.with_extension("tmp");
    fs::create_dir_all(&folder).with_context(|| {
        format!(
            "neither {} nor {} can be written: name a folder by TMPDIR",
            system.display(),
            folder.display()
        )
    })?;
    let folder = folder
        .canonicalize()
        .with_context(|| format!("finding {}", folder.display()))?;
    Ok(Some(folder))
}

/// One run of the pack.
struct Session {
    /// The program that measures a row: this one again.
    measures: PathBuf,
    cpus: Cpus,
    /// Where programs have temporary files, if not where the system has them.
    temporary: Option<PathBuf>,
    /// Where `weft lab throughput` writes.
    network: PathBuf,
    began: Instant,
    /// When it is over at the latest.
    end: Instant,
    /// Seconds of earlier runs.
    before: Vec<f64>,
    stop: Arc<AtomicBool>,
    file: File,
    results: Results,
}

impl Session {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() + FAREWELL >= self.end
    }

    /// Seconds that are left for rows.
    fn left(&self) -> f64 {
        let left = self.end.saturating_duration_since(Instant::now());
        left.saturating_sub(FAREWELL).as_secs_f64()
    }

    /// Every row that the record lacks, as far as time allows. Where a long one does not fit a later, shorter one may.
    fn perform(&mut self, plan: &Plan) -> Result<()> {
        // Of a run that was killed.
        let begun = self.in_network(plan, "");
        self.keep(begun)?;
        let is_network = |row: &&Row| row.point.mode == "network";
        let mut network_done = false;
        for row in &plan.rows {
            if self.is_over() {
                break;
            }
            if self.has(row) {
                continue;
            }
            if !is_network(&row) {
                if row.expected <= self.left() {
                    let run = self.load(row)?;
                    self.keep(vec![run])?;
                }
                continue;
            }
            let (false, Some(network)) = (network_done, plan.network) else {
                continue;
            };
            network_done = true;
            let mut time = self.left() - network.start();
            let rows: Vec<&Row> = plan
                .rows
                .iter()
                .filter(is_network)
                .filter(|row| !self.has(row))
                .take_while(|row| {
                    time -= row.expected;
                    time >= 0.0
                })
                .collect();
            if !rows.is_empty() {
                let runs = self.throughput(plan, network, &rows)?;
                self.keep(runs)?;
            }
        }
        Ok(())
    }

    /// The record has this row.
    fn has(&self, row: &Row) -> bool {
        let target = row.target.to_string();
        self.results
            .runs
            .iter()
            .any(|run| run.point == row.point && run.target == target && run.failure.is_none())
    }

    fn launch<'a>(&'a self, words: &'a [String], seconds: f64) -> Launch<'a> {
        println!("$ weft {}", words.join(" "));
        let deadline = launch::patience(Duration::from_secs_f64(seconds));
        Launch {
            weft: &self.measures,
            words,
            deadline: deadline.min(self.end - FAREWELL),
            temporary: self.temporary.as_deref(),
            stop: &self.stop,
        }
    }

    /// A row of the load generator.
    fn load(&self, row: &Row) -> Result<Run> {
        let place = Place::of(row.target, &row.point, &self.cpus, true);
        let words = words(&row.point, row.target, place, row.timing, row.rate);
        let outcome = launch::run(&self.launch(&words, row.expected))?;
        Ok(Run {
            point: row.point.clone(),
            target: row.target.to_string(),
            repetition: 1,
            words: words.join(" "),
            took_s: milliseconds(outcome.took),
            limit: outcome.report.as_ref().and_then(limit),
            failure: outcome.failure,
            report: outcome.report,
            network: None,
        })
    }

    /// Rows in a private network, which is started once for all of them.
    fn throughput(&self, plan: &Plan, network: Network, rows: &[&Row]) -> Result<Vec<Run>> {
        let targets: Vec<String> = rows.iter().map(|row| row.target.to_string()).collect();
        let count = network.clients.to_string();
        let timing = rows.first().map(|row| row.timing);
        let timing = timing.context("a network without a target")?;
        let words: Vec<String> = [
            ["lab", "throughput"].map(str::to_owned).to_vec(),
            [
                ("target", targets.join(",")),
                ("around", "weft".to_owned()),
                ("clients", count.clone()),
                ("entries", count.clone()),
                ("exits", count),
                ("streams", STREAMS.to_string()),
                ("data", network.bytes_per_stream.to_string()),
                ("repetitions", "1".to_owned()),
                ("discard", timing.warm_up.to_string()),
                ("window", timing.seconds.to_string()),
                ("pin", network.pin(&self.cpus)),
                ("out", self.network.display().to_string()),
            ]
            .into_iter()
            .flat_map(|(name, value)| [format!("--{name}"), value])
            .collect(),
        ]
        .concat();
        let seconds = network.start() + rows.iter().map(|row| row.expected).sum::<f64>();
        let ended = launch::end(&self.launch(&words, seconds))?;
        let mut runs = self.in_network(plan, &words.join(" "));
        let why = match ended.stderr.trim() {
            "" => ended.status.to_string(),
            errors => errors.lines().last().unwrap_or_default().to_owned(),
        };
        for row in rows {
            let target = row.target.to_string();
            if runs.iter().all(|run| run.target != target) {
                runs.push(Run {
                    took_s: milliseconds(ended.took),
                    ..failed(row, &words.join(" "), &why)
                });
            }
        }
        Ok(runs)
    }

    /// The rows that `weft lab throughput` has measured so far; its folder is removed.
    fn in_network(&self, plan: &Plan, words: &str) -> Vec<Run> {
        let found = throughput::Results::read(&self.network.join("results.json"));
        // It is there only if one was begun.
        let _ = fs::remove_dir_all(&self.network);
        let rows = plan.rows.iter().filter(|row| row.point.mode == "network");
        match found {
            Ok(found) => rows
                .filter_map(|row| in_network(row, words, &found))
                .collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Adds runs to the record, and writes it.
    fn keep(&mut self, runs: Vec<Run>) -> Result<()> {
        for run in runs {
            println!(
                "{:<58} {:<8} {}; {} left",
                run.point.to_string(),
                run.target,
                shown(&run),
                minutes(self.end.saturating_duration_since(Instant::now())),
            );
            if let Some(limit) = &run.limit {
                println!("  no result: the limit was {limit}");
            }
            record::add(&mut self.results, run);
        }
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        if let Some(pack) = &mut self.results.pack {
            pack.sessions = self.before.clone();
            let seconds = self.began.elapsed().as_secs_f64();
            pack.sessions.push((seconds * 10.0).round() / 10.0);
        }
        self.results.bars = bars::of_pack(&self.results);
        record::write(&self.file, &self.results)
    }

    fn finish(&mut self, plan: &Plan) -> Result<()> {
        if let Some(folder) = &self.temporary {
            // Programs that were killed leave files.
            let _ = fs::remove_dir_all(folder);
        }
        let missing: Vec<&Row> = plan.rows.iter().filter(|row| !self.has(row)).collect();
        self.results.finished = missing.is_empty();
        self.write()?;
        for bar in &self.results.bars {
            println!("{}", line(bar));
        }
        println!("\nRecord: {}", self.file.path.display());
        if plan.rows.is_empty() {
            println!("This machine can measure no row: the record has the reasons.");
            return Ok(());
        }
        if missing.is_empty() && self.results.options.quick {
            println!("All {} rows are in it.", plan.rows.len());
            return Ok(());
        }
        if missing.is_empty() {
            println!(
                "All {} rows are in it. In the checkout: copy it to bench/results/{}-{}-pack.json, then\n\
                 cargo xtask bench --tables bench/results/…-pack.json",
                plan.rows.len(),
                self.results.started_at.get(..10).unwrap_or_default(),
                self.results.machine.name
            );
            return Ok(());
        }
        println!(
            "{} of {} rows are missing: run it again, and it goes on.",
            missing.len(),
            plan.rows.len()
        );
        let failed = self.results.runs.iter().filter(|run| run.failure.is_some());
        match failed.count() {
            0 => Ok(()),
            failed => bail!("{failed} rows failed (see above)"),
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// The main numbers of a run.
fn shown(run: &Run) -> String {
    if let (None, Some(network)) = (&run.failure, &run.network) {
        return format!(
            "sustained {:.0} Mbit/s, {:.2} CPU s/GB, busiest thread {:.0} %",
            network.sustained_bits_per_s / 1e6,
            network.cpu_s_per_gb,
            network.busiest_thread * 100.0
        );
    }
    let busy = run.report.as_ref().and_then(|report| {
        let (target, generator) = (
            metrics::busiest_thread(report)?,
            metrics::generator_busiest(report)?,
        );
        Some(format!(
            ", busiest thread {:.0} %, of the generator {:.0} %",
            target * 100.0,
            generator * 100.0
        ))
    });
    gist(run) + &busy.unwrap_or_default()
}

/// The limit of a run, if it was not the target.
fn limit(report: &Report) -> Option<String> {
    let generator = || Some("the generator".to_owned());
    if let Some(capacity) = &report.capacity {
        return generator().filter(|_| capacity.limit.as_deref() == Some("generator"));
    }
    let target = metrics::busiest_thread(report)?;
    let is_late = metrics::generator_late(report).is_some_and(|late| late > LATE);
    if is_late || (target < FULL && metrics::generator_busiest(report)? >= FULL) {
        return generator();
    }
    let is_rated = report.load.rate_cells_per_s.is_some();
    (target < BUSY && !is_rated).then(|| {
        format!(
            "something else, such as other programs: the target's busiest thread worked {:.0} % of the time",
            target * 100.0
        )
    })
}

fn failed(row: &Row, words: &str, why: &str) -> Run {
    Run {
        point: row.point.clone(),
        target: row.target.to_string(),
        repetition: 1,
        words: words.to_owned(),
        took_s: 0.0,
        failure: Some(why.to_owned()),
        limit: None,
        report: None,
        network: None,
    }
}

/// A row, as `weft lab throughput` has measured it.
fn in_network(row: &Row, words: &str, found: &throughput::Results) -> Option<Run> {
    let target = row.target.to_string();
    let run = found
        .runs
        .iter()
        .find(|run| run.target.to_string() == target)?;
    if let Some(why) = &run.failure {
        return Some(failed(row, words, why));
    }
    let summaries = &mut found.summaries.iter();
    let summary = summaries.find(|one| one.target == run.target);
    let measured = summary.and_then(|one| sustained(one, found.rule.window_s));
    Some(match measured {
        Some(measured) => Run {
            took_s: run.seconds,
            ..judged(row, words, measured)
        },
        None => failed(row, words, "it was too short to sustain anything"),
    })
}

fn sustained(one: &throughput::TargetSummary, window_s: f64) -> Option<InNetwork> {
    Some(InNetwork {
        sustained_bits_per_s: one.sustained_bits_per_s?.median,
        goodput_bits_per_s: one.goodput_bits_per_s?.median,
        cpu_s_per_gb: one.cpu_s_per_gb?.median,
        busiest_thread: one.busiest_sustained?.median,
        window_s,
    })
}

/// A row, which is a result if the target had no more to give.
fn judged(row: &Row, words: &str, measured: InNetwork) -> Run {
    let is_full = measured.busiest_thread >= FULL_IN_NETWORK;
    Run {
        failure: None,
        limit: (!is_full).then(|| {
            format!(
                "the nodes around: the target's busiest thread worked {:.0} % of the time",
                measured.busiest_thread * 100.0
            )
        }),
        network: Some(measured),
        ..failed(row, words, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::{Point, Target};
    use weft_lab::relay::report::{Latency, Measured, Thread, Usage};

    fn report(target: f64, generator: f64) -> Report {
        let usage = |busy: f64| Usage {
            threads: vec![Thread {
                user_s: busy,
                ..Thread::default()
            }],
            ..Usage::default()
        };
        Report {
            measured: Some(Measured {
                seconds: 1.0,
                usage: Some(usage(target)),
                generator: usage(generator),
                ..Measured::default()
            }),
            ..Report::default()
        }
    }

    #[test]
    fn a_row_whose_generator_is_the_limit_is_no_result() {
        assert_eq!(limit(&report(0.98, 0.98)), None);
        assert_eq!(limit(&report(0.8, 0.8)), None);
        let shared = limit(&report(0.5, 0.4)).expect("it was held up");
        assert!(shared.contains("other programs"), "{shared}");
        // At a rate a target is idle now and then.
        let mut rated = report(0.5, 0.4);
        rated.load.rate_cells_per_s = Some(1000.0);
        assert_eq!(limit(&rated), None);
        if let Some(measured) = &mut rated.measured {
            measured.generator_late = Some(Latency {
                p99_us: 26_000.0,
                ..Latency::default()
            });
        }
        assert_eq!(limit(&rated).as_deref(), Some("the generator"));
        let row = Plan::new(2, 1 << 20, true).rows.remove(0);
        let run = Run {
            limit: limit(&report(0.7, 0.98)),
            failure: None,
            report: Some(Report {
                complete: true,
                ..report(0.7, 0.98)
            }),
            ..failed(&row, "", "")
        };
        assert_eq!(run.limit.as_deref(), Some("the generator"));
        assert_eq!(run.complete(), None);
    }

    #[test]
    fn a_target_in_a_network_counts_if_it_was_busy() {
        let row = Row {
            point: Point::network(20, 9),
            target: Target::Tor,
            ..Plan::new(2, 1 << 20, true).rows.remove(0)
        };
        let of = |busiest_thread: f64| {
            let measured = InNetwork {
                sustained_bits_per_s: 1e9,
                goodput_bits_per_s: 9e8,
                cpu_s_per_gb: 6.0,
                busiest_thread,
                window_s: 3.0,
            };
            judged(&row, "lab throughput", measured).limit
        };
        assert_eq!(of(0.97), None);
        assert!(of(0.8).is_some_and(|limit| limit.contains("80 %")));
    }
}
