//! `cargo xtask bench`: Weft, C tor and the bare pipe side by side, on this machine, in one run.
//!
//! Each measurement is a run of `weft lab relay`, which starts the target alone on loopback, plays
//! both of its neighbours and prints a report. All targets are measured at a point one after the
//! other, then at the next point, and all of it again for each repetition, so that whatever drifts on
//! the machine drifts for all.
//!
//! | module | what |
//! |---|---|
//! | `plan` | what is measured, in which order, on which processors |
//! | `launch` | one run |
//! | `pack` | a fixed plan, a time limit and a record that can be gone on with: `cargo xtask pack` |
//! | `machine` | what the numbers depend on |
//! | `results` | the file |
//! | `metrics`, `stats` | numbers of reports; medians and ranges |
//! | `bar`, `bars` | what Weft is held to |
//! | `plots`, `tables` | what people look at |

mod bar;
mod bars;
mod host;
mod launch;
mod metrics;
pub(crate) mod pack;
mod plan;
mod plots;
mod results;
mod tables;
#[cfg(test)]
mod testing;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use self::bars::bars;
use self::launch::Launch;
use self::plan::{CAPACITY_STEPS, FEW, LATENCY_AT, OF_TOR, Part, Place, Plan, Point, Step, Target};
use self::results::{File, Options, Results, Run, SCHEMA};
use weft_lab::machine::{Cpus, Machine, Versions};
use weft_stats::bounds::Bounds;

/// Measure Weft, C tor and the bare pipe side by side.
///
/// The results go into a new file in bench/results. Ctrl-C ends the run and keeps what was measured.
#[derive(clap::Args, Debug)]
pub(crate) struct BenchArgs {
    /// Fewer points, short, once: under two minutes, for orientation
    #[arg(long)]
    quick: bool,
    /// Number of times to measure everything [default: 5; of --quick: 1]
    #[arg(long, value_name = "N", value_parser = REPETITIONS.parser())]
    repetitions: Option<u32>,
    /// Seconds of each measurement [default: 10; of --quick: 1.5]
    #[arg(long, value_name = "S", value_parser = SECONDS.parser())]
    seconds: Option<f64>,
    /// Seconds of load before each measurement [default: 2; of --quick: 0.5]
    #[arg(long, value_name = "S", value_parser = WARM_UP.parser())]
    warm_up: Option<f64>,
    /// Only these parts [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Only these programs: pipe, tor, weft:0, weft:1 … [default: all, Weft with each number of
    /// threads up to the cores]
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM")]
    target: Vec<Target>,
    /// Bind target and generator to cores of their own, where there are enough
    #[arg(long, value_enum, default_value_t = Pin::Auto)]
    pin: Pin,
    /// Measure the weft at this path, not the one that was built
    #[arg(long, value_name = "FILE")]
    weft: Option<PathBuf>,
    /// Name of this machine in the results' file name [default: processor and cores]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Print the plan and end
    #[arg(long)]
    plan: bool,
    /// Measure nothing: have bench/README.md and the book show this file of bench/results
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
    /// Measure nothing: draw the plots of this results file, in a folder beside it that is not there
    /// yet
    #[arg(long, value_name = "FILE")]
    plots: Option<PathBuf>,
}

/// Seconds in which a relay of several threads has spread a full load over them.
const SPREAD: f64 = 10.0;
/// Number of repetitions of all measurements.
const REPETITIONS: Bounds<u32> = Bounds::new(1, 100);
/// Seconds of one measurement.
const SECONDS: Bounds<f64> = Bounds::new(0.1, 3600.0);
/// Seconds before it.
const WARM_UP: Bounds<f64> = Bounds::new(0.0, 3600.0);

/// Binding of processes to processors.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Pin {
    /// Each to separate cores, where there are enough for the target's threads and the generator
    Auto,
    /// Leave it to the kernel
    None,
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if let Some(file) = &args.tables {
        return tables::rewrite(file);
    }
    if let Some(path) = &args.plots {
        let file = File { path: path.clone() };
        return draw(&Results::read(path)?, &file);
    }
    let options = options(args);
    let cpus = Cpus::here();
    let plan = Plan::new(options.quick, &args.only, &args.target, cpus.cores.len());
    let bench = Bench::new(&options, &cpus, plan, PathBuf::new());
    ensure!(
        bench.total() > 0,
        "there is nothing to measure: --only and --target exclude it all"
    );
    bench.print_plan();
    if args.plan {
        return Ok(());
    }
    let machine = Machine::here(&cpus, args.machine.as_deref());
    let weft = crate::checkout::weft(args.weft.as_deref())?;
    let versions = Versions::here(&weft, &crate::checkout::root(), args.weft.is_none());
    let now = OffsetDateTime::now_utc();
    let results = Results {
        schema: SCHEMA,
        started_at: now.replace_nanosecond(0)?.format(&Rfc3339)?,
        finished: false,
        machine,
        versions,
        options: options.clone(),
        sharing: bench.sharing(),
        pack: None,
        bars: Vec::new(),
        runs: Vec::new(),
    };
    let date = now.format(format_description!("[year]-[month]-[day]"))?;
    let folder = crate::checkout::root().join("bench").join("results");
    let file = File::create(&folder, &date, &results.machine.name)?;
    println!("Results go to {}.\n", file.path.display());
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("waiting for signals")?;
    }
    Bench { weft, ..bench }.perform(results, file, &stop)
}

/// Options of the run, with defaults filled in.
fn options(args: &BenchArgs) -> Options {
    let quick = args.quick;
    Options {
        quick,
        repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 5 }),
        seconds: args.seconds.unwrap_or(if quick { 1.5 } else { 10.0 }),
        warm_up: args.warm_up.unwrap_or(if quick { 0.5 } else { 2.0 }),
        only: args
            .only
            .iter()
            .filter_map(clap::ValueEnum::to_possible_value)
            .map(|value| value.get_name().to_owned())
            .collect(),
        targets: args.target.iter().map(Target::to_string).collect(),
        pin: args.pin == Pin::Auto,
    }
}

/// A run of the whole.
struct Bench<'a> {
    options: &'a Options,
    cpus: &'a Cpus,
    plan: Plan,
    weft: PathBuf,
}

/// One measurement of a repetition.
struct Job<'a> {
    point: &'a Point,
    target: Target,
    repetition: u32,
}

impl<'a> Bench<'a> {
    fn new(options: &'a Options, cpus: &'a Cpus, plan: Plan, weft: PathBuf) -> Bench<'a> {
        Bench {
            options,
            cpus,
            plan,
            weft,
        }
    }

    /// All measurements of a phase, in order. From one repetition to the next another target comes
    /// first, so that none always has the machine as the same other one left it.
    fn jobs(&self, steps: &'a [Step]) -> VecDeque<Job<'a>> {
        let mut jobs = VecDeque::new();
        for repetition in 1..=self.options.repetitions {
            for step in steps {
                let mut targets = step.targets.clone();
                let count = targets.len().max(1);
                targets.rotate_left((repetition as usize - 1) % count);
                jobs.extend(targets.into_iter().map(|target| Job {
                    point: &step.point,
                    target,
                    repetition,
                }));
            }
        }
        jobs
    }

    fn total(&self) -> usize {
        let steps = self.plan.first.iter().chain(&self.plan.second);
        let once: usize = steps.map(|step| step.targets.len()).sum();
        once * self.options.repetitions as usize
    }

    /// Planned time of a measurement, without starting, setting up and ending.
    fn window(&self, point: &Point, target: Target) -> Duration {
        let (warm_up, seconds) = self.times(point, target);
        // Cells of a rate that is too high take some time to arrive.
        let (rounds, end) = match point.is_in("capacity") {
            true => (f64::from(CAPACITY_STEPS), 2.0),
            false => (1.0, 0.0),
        };
        Duration::from_secs_f64((warm_up + seconds + end) * rounds)
    }

    /// Warm-up and measuring window. Memory settles in the one and in the other, whatever was asked
    /// for: programs give memory back some time after they have freed it. Threads take links over within [`SPREAD`].
    fn times(&self, point: &Point, target: Target) -> (f64, f64) {
        let settle = if self.options.quick { 1.0 } else { 3.0 };
        match point.mode.starts_with("idle") {
            true => (settle, settle),
            // Of many rates, each is tried shortly.
            false if point.is_in("capacity") => (1.0, self.options.seconds.min(4.0)),
            false if target.busy_threads() > 1 && !self.options.quick => {
                (self.options.warm_up.max(SPREAD), self.options.seconds)
            }
            false => (self.options.warm_up, self.options.seconds),
        }
    }

    /// Expected time of a measurement with starting, setting up and ending, by experience.
    fn expected(&self, point: &Point, target: Target) -> Duration {
        let around = 1.2 + point.circuits as f64 / 2500.0 + point.links as f64 / 500.0;
        self.window(point, target) + Duration::from_secs_f64(around)
    }

    fn expected_in_all(&self) -> Duration {
        let steps = self.plan.first.iter().chain(&self.plan.second);
        let once: Duration = steps
            .flat_map(|step| {
                step.targets
                    .iter()
                    .map(|target| self.expected(&step.point, *target))
            })
            .sum();
        once * self.options.repetitions
    }

    fn print_plan(&self) {
        println!(
            "{} measurements, {} times each point, {:.1} s each; about {} in all:",
            self.total(),
            self.options.repetitions,
            self.options.seconds,
            minutes(self.expected_in_all())
        );
        for step in self.plan.first.iter().chain(&self.plan.second) {
            let targets: Vec<String> = step.targets.iter().map(Target::to_string).collect();
            println!("  {:<53} {}", step.point.to_string(), targets.join(" "));
        }
        for line in self.sharing() {
            println!("{line}");
        }
    }

    /// Processors on which each program runs, in words.
    fn sharing(&self) -> Vec<String> {
        let mut targets: Vec<Target> = Vec::new();
        let steps = self.plan.first.iter().chain(&self.plan.second);
        let (by_threads, steps): (Vec<&Step>, Vec<&Step>) =
            steps.partition(|step| step.point.is_in("threads"));
        for step in steps {
            let new = step
                .targets
                .iter()
                .filter(|target| !targets.contains(target));
            targets.extend(new.copied().collect::<Vec<_>>());
        }
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for target in targets {
            let place = self.place(target, &Point::cells(FEW, "download"));
            let threads = match place.generator_threads {
                1 => "one thread".to_owned(),
                n => format!("{n} threads"),
            };
            let how = match (&place.pin, self.options.pin) {
                (Some(pin), _) => {
                    let (theirs, others) = pin.split_once('/').unwrap_or((pin, ""));
                    format!("bound to processor {theirs}, the generator ({threads}) to {others}")
                }
                (None, true) => format!(
                    "shares {} cores with the generator ({threads}): too few for both",
                    self.cpus.cores.len()
                ),
                (None, false) => format!("placed by the kernel, as the generator ({threads})"),
            };
            match lines.iter_mut().find(|(other, _)| *other == how) {
                Some((_, names)) => names.push(target.to_string()),
                None => lines.push((how, vec![target.to_string()])),
            }
        }
        let by_threads = (!by_threads.is_empty()).then(|| {
            "by threads: all placed by the kernel, as the generator (one thread)".to_owned()
        });
        lines
            .into_iter()
            .map(|(how, names)| format!("{}: {how}", names.join(", ")))
            .chain(by_threads)
            .collect()
    }

    fn place(&self, target: Target, point: &Point) -> Place {
        Place::of(target, point, self.cpus, self.options.pin)
    }

    /// The words of a run.
    fn words(&self, point: &Point, target: Target, rate: Option<f64>) -> Vec<String> {
        let place = self.place(target, point);
        let (warm_up, seconds) = self.times(point, target);
        let timing = Timing {
            warm_up,
            seconds,
            steps: CAPACITY_STEPS,
        };
        words(point, target, place, timing, rate)
    }

    fn perform(&self, mut results: Results, file: File, stop: &AtomicBool) -> Result<()> {
        let began = Instant::now();
        let mut left = self.expected_in_all();
        let mut number = 0;
        for steps in [&self.plan.first, &self.plan.second] {
            for job in self.jobs(steps) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                number += 1;
                let Some(rate) = rate(&results, job.point) else {
                    println!(
                        "{}: left out, as C tor's own speed was not found",
                        job.point
                    );
                    continue;
                };
                let words = self.words(job.point, job.target, rate);
                let outcome = launch::run(&Launch {
                    weft: &self.weft,
                    words: &words,
                    deadline: launch::patience(self.window(job.point, job.target)),
                    temporary: None,
                    stop,
                })?;
                left = left.saturating_sub(self.expected(job.point, job.target));
                let interrupted = stop.load(Ordering::Relaxed);
                let run = Run {
                    point: job.point.clone(),
                    target: job.target.to_string(),
                    repetition: job.repetition,
                    words: words.join(" "),
                    took_s: (outcome.took.as_secs_f64() * 1000.0).round() / 1000.0,
                    failure: outcome.failure,
                    limit: None,
                    report: outcome.report,
                    network: None,
                };
                println!(
                    "[{number:>3}/{}] {:<53} {:<8} {:<34} {} left",
                    self.total(),
                    job.point.to_string(),
                    run.target,
                    gist(&run),
                    minutes(left)
                );
                if interrupted && run.report.is_none() {
                    break;
                }
                results.runs.push(run);
                results.bars = bars(&results);
                file.write(&results)?;
            }
        }
        let interrupted = stop.load(Ordering::Relaxed);
        if results.runs.is_empty() {
            file.remove()?;
            bail!("interrupted before anything was measured");
        }
        results.finished = !interrupted;
        file.write(&results)?;
        println!("\nMeasured for {}.", minutes(began.elapsed()));
        finish(&results, &file)
    }
}

/// Times of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timing {
    /// Seconds that the load is on before.
    warm_up: f64,
    /// Seconds of the measuring window.
    seconds: f64,
    /// Rates that a search for the capacity tries at most.
    steps: u32,
}

/// The words of a run. A search for the capacity begins with `rate`.
fn words(
    point: &Point,
    target: Target,
    place: Place,
    timing: Timing,
    rate: Option<f64>,
) -> Vec<String> {
    // The older name of `lab relay`: a build of before, named by `--weft`, has no other.
    let mut words: Vec<String> = ["bench", "relay", "--format", "json"]
        .map(str::to_owned)
        .into();
    let mut set = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    set("target", target.to_string());
    set("mode", point.mode.clone());
    match &point.live {
        Some(load) => set("load", load.clone()),
        None => set("direction", point.direction.clone()),
    }
    if point.circuits > 0 {
        set("circuits", point.circuits.to_string());
    }
    set("links", point.links.to_string());
    if let Some(workers) = point.workers {
        set("workers", workers.to_string());
    }
    set("warm-up", timing.warm_up.to_string());
    set("seconds", timing.seconds.to_string());
    set("generator-threads", place.generator_threads.to_string());
    if let Some(pin) = place.pin {
        set("pin", pin);
    }
    if let Some(rate) = rate {
        set("rate", format!("{rate:.0}"));
    }
    if point.is_in("capacity") {
        set("capacity-steps", timing.steps.to_string());
        words.push("--capacity".to_owned());
    }
    words
}

/// Prints what came out.
fn finish(results: &Results, file: &File) -> Result<()> {
    println!();
    for bar in &results.bars {
        println!("{}", line(bar));
    }
    println!("\nResults: {}", file.path.display());
    draw(results, file)?;
    let failed = results.runs.iter().filter(|run| run.failure.is_some());
    match failed.count() {
        _ if !results.finished => bail!("interrupted: what was measured until then is kept"),
        0 => Ok(()),
        failed => bail!("{failed} of {} measurements failed", results.runs.len()),
    }
}

/// Draws the plots beside the results.
fn draw(results: &Results, file: &File) -> Result<()> {
    let folder = file.plots();
    let plots = plots::draw(results, &folder)?;
    println!("Plots:   {} in {}", plots.len(), folder.display());
    Ok(())
}

/// A bar on one line.
fn line(bar: &bar::Bar) -> String {
    let sign = if bar.at_least { "≥" } else { "≤" };
    let ratio = match bar.worst() {
        None => String::new(),
        Some(part) => {
            let ratio = part.ratio.show(|number| format!("{number:.2}"));
            match part.what.is_empty() {
                true => ratio,
                false => format!("{ratio}, {}", part.what),
            }
        }
    };
    format!(
        "{:<19} {sign} {:<4} {ratio:<42} {}{}",
        bar.verdict,
        bar.bar,
        bar.name,
        bar.note
            .as_ref()
            .map(|note| format!(" ({note})"))
            .unwrap_or_default()
    )
}

/// `Some(None)`: full speed. `None`: it is a part of what is not known.
#[allow(clippy::option_option)]
fn rate(results: &Results, point: &Point) -> Option<Option<f64>> {
    let Some(part) = point.of_tor else {
        return Some(point.rate);
    };
    let full = Point::cells(LATENCY_AT, &point.direction);
    let speed = results.summary(&full, "tor", metrics::cells_per_s)?;
    debug_assert!(part <= OF_TOR);
    Some(Some((part * speed.median).max(1.0)))
}

/// The most important numbers of a run.
fn gist(run: &Run) -> String {
    if let Some(failure) = &run.failure {
        let line = failure.lines().next().unwrap_or_default();
        return format!("FAILED: {line}");
    }
    let Some(report) = &run.report else {
        return String::new();
    };
    let mut words = Vec::new();
    if let Some(capacity) = &report.capacity {
        let goodput = capacity.goodput_bits_per_s.unwrap_or(0.0) / 1e6;
        let limit = capacity.limit.as_deref().unwrap_or("steps");
        words.push(format!("bears {goodput:.0} Mbit/s, limit: {limit}"));
    } else if run.point.is_in("size") {
        words.extend(metrics::rss(report).map(|bytes| format!("RSS {:.1} MB", bytes / 1e6)));
    } else if run.point.is_real() {
        words.extend(metrics::cpu_per_gb(report).map(|s| format!("{s:.2} CPU s/GB")));
        words.extend(metrics::p99(report).map(|us| format!("p99 {:.2} ms", us / 1000.0)));
    } else if run.point.of_tor.is_some() {
        words.extend(metrics::p99(report).map(|us| format!("p99 {:.2} ms", us / 1000.0)));
        words.extend(metrics::peak_rss(report).map(|bytes| format!("peak {:.1} MB", bytes / 1e6)));
    } else {
        words.extend(metrics::cpu_per_gb(report).map(|s| format!("{s:.2} CPU s/GB")));
        words.extend(metrics::goodput(report).map(|bits| format!("{:.0} Mbit/s", bits / 1e6)));
    }
    words.extend(metrics::onionskins_per_cpu_s(report).map(|n| format!("{n:.0} a CPU second")));
    words.extend(metrics::idle_bytes(report).map(|bytes| format!("{:.1} kB each", bytes / 1e3)));
    words.join(", ")
}

/// A time for people.
fn minutes(time: Duration) -> String {
    let seconds = time.as_secs_f64().round();
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench<'a>(options: &'a Options, cpus: &'a Cpus) -> Bench<'a> {
        let plan = Plan::new(options.quick, &[], &[], cpus.cores.len());
        Bench::new(options, cpus, plan, PathBuf::new())
    }

    #[test]
    fn targets_take_turns() {
        let options = Options {
            repetitions: 2,
            ..Options::default()
        };
        let cpus = Cpus { cores: vec![0, 1] };
        let bench = bench(&options, &cpus);
        let jobs: Vec<(u32, String)> = bench
            .jobs(&bench.plan.first[..1])
            .into_iter()
            .map(|job| (job.repetition, job.target.to_string()))
            .collect();
        let names: Vec<&str> = jobs.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names[..5], ["pipe", "tor", "weft:0", "weft:1", "weft:2"]);
        assert_eq!(names[5..], ["tor", "weft:0", "weft:1", "weft:2", "pipe"]);
    }

    #[test]
    fn quick_is_expected_to_take_less_than_two_minutes() {
        let args = <BenchLine as clap::Parser>::parse_from(["bench", "--quick"]);
        let options = options(&args.args);
        let cpus = Cpus { cores: vec![0, 1] };
        let time = bench(&options, &cpus).expected_in_all();
        assert!(time < Duration::from_secs(110), "{time:?}");
    }

    #[derive(clap::Parser)]
    struct BenchLine {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn the_rate_is_a_part_of_tors_speed() {
        let results = testing::results();
        let point = Point::latency("download");
        let full = results
            .summary(
                &Point::cells(LATENCY_AT, "download"),
                "tor",
                metrics::cells_per_s,
            )
            .expect("it was measured");
        assert_eq!(rate(&results, &point), Some(Some(OF_TOR * full.median)));
        assert_eq!(rate(&results, &Point::onionskins()), Some(None));
        let thin = Point::thin((4000, 2000));
        assert_eq!(rate(&results, &thin), Some(Some(10e6 / 498.0)));
        let none = Results {
            runs: Vec::new(),
            ..results
        };
        assert_eq!(rate(&none, &point), None);
    }

    #[test]
    fn the_placement_names_the_processors_of_each_program() {
        let options = Options {
            pin: true,
            repetitions: 1,
            seconds: 10.0,
            warm_up: 2.0,
            ..Options::default()
        };
        let cpus = Cpus { cores: vec![0, 1] };
        let bench = bench(&options, &cpus);
        let words = bench.words(&Point::latency("upload"), Target::Tor, Some(1234.4));
        assert_eq!(
            words.join(" "),
            "bench relay --format json --target tor --mode cells --direction upload --circuits 300 \
             --links 30 --warm-up 2 --seconds 10 --generator-threads 1 --pin 0/1 --rate 1234"
        );
        let words = |point: &Point| bench.words(point, Target::Tor, point.rate).join(" ");
        assert!(
            words(&Point::live_middle(false)).contains(
                "--mode cells --load live-middle --circuits 12500 --links 2000 --warm-up 2"
            )
        );
        assert!(words(&Point::capacity()).ends_with(
            "--direction both --circuits 4000 --links 2000 --warm-up 1 --seconds 4 \
             --generator-threads 1 --pin 0/1 --capacity-steps 12 --capacity"
        ));
        assert!(!words(&Point::threads_full()).contains("--pin"));
        let sharing = bench.sharing();
        assert!(
            sharing
                .iter()
                .any(|line| line.starts_with("weft:2: shares 2 cores")),
            "{sharing:?}"
        );
    }
}
