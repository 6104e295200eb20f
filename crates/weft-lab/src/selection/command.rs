//! The command `weft lab selection`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use weft_sim::read;
use weft_stats::bounds::{Bounds, SEED};

use super::arms;
use super::measure::Sample;
use super::plan::{INTERVAL_S, Plan, Size};
use super::results::Results;
use crate::args::{CAPACITY, LASTS, LOAD, PAUSE, REPETITIONS, SCALE, Switch, THREADS};
use crate::comparison::regions;
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};
use crate::run::shadow::SimulationArgs;
use crate::run::source::Source;
use crate::run::sweep::{Part, Sweep};
use crate::run::testbed::Testbed;

/// Compares ways of choosing circuits: by build time, by round trip, by the load that relays report.
///
/// A network of relays with web clients (320 KB, pauses of 1 ms to a minute) and bulk clients (5 MB, no pauses) runs once
/// for each arm and repetition, in virtual time or on real processes. Arms of a repetition have the same network and users. The arms are
/// default, abra, rtt and abra-rtt; --arm chooses some, or makes another: --arm short:max_circuit_dirtiness=1min. Results go into
/// a new folder, with the scenario. Ctrl-C ends the run with the jobs that are over. The exit status is 1 if some are
/// missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Testbed of the networks. Real processes need root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and a
    /// --scale for which this machine has processors.
    #[arg(long, value_enum, default_value_t = Testbed::Virtual)]
    testbed: Testbed,
    /// An arm by its name, or a new one with keys of a scenario's [[arm]]; may be repeated [default: all four].
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]")]
    arm: Vec<String>,
    /// Also an adversary with this part of the relays, once watching and once lying that it has bandwidth left, and the streams that it
    /// sees at both ends; may be repeated.
    #[arg(long, value_name = "PART", value_parser = arms::PART.parser())]
    adversary: Vec<f64>,
    /// So many more clients that measure circuits: each is built for one download, its build time and its round trip before it, and
    /// closed. Those of the arm default are kept as circuits.csv, for weft sim selection --tuples.
    #[arg(long, value_name = "CLIENTS", default_value_t = 0, hide_default_value = true,
          value_parser = MEASURED.parser())]
    measure: u32,
    /// Size of their downloads, in bytes or with a unit.
    #[arg(long, value_name = "SIZE", default_value = "5 MB", value_parser = size, requires = "measure")]
    download: u64,
    /// Time that a relay's processor is busy with each handshake of a circuit, such as "2 ms"
    /// [default: no time].
    #[arg(long, value_name = "TIME", value_parser = handshake)]
    handshake: Option<Duration>,
    /// Keeps the choices that clients of this arm make by weight, with what they could choose from, as pools.jsonl, for weft sim
    /// compromise abra --pools.
    #[arg(long, value_name = "ARM")]
    pools: Option<String>,
    /// The part of 500 relays, 1,350 web clients, 150 bulk clients and 500 servers [default: 0.2; of --quick: 0.02].
    #[arg(long, value_name = "PART", value_parser = SCALE.parser())]
    scale: Option<f64>,
    /// So many times the paper's clients for each relay.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = LOAD.parser())]
    load: f64,
    /// kB/s of bandwidth that a relay has for each unit of its weight. Weights compare relays, and are no bandwidths.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = CAPACITY.parser())]
    capacity: f64,
    /// Relays are those of this consensus, sampled [default: synthetic ones].
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Delays and access rates by country, a GraphML file [default: nine countries, with delays that are Weft's own].
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Seconds that are counted, a multiple of 10 [default: 600; of --quick: 20].
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS")]
    duration: Option<Duration>,
    /// Seconds before them, in which users begin [default: 60; of --quick: 50].
    #[arg(long, value_parser = PAUSE.parser(), value_name = "SECONDS")]
    warm_up: Option<Duration>,
    /// Networks of each arm [default: 10; of --quick: 2].
    #[arg(long, value_name = "COUNT", value_parser = REPETITIONS.parser())]
    repetitions: Option<u32>,
    /// Circuits have congestion control; without it they have windows of 1000 cells, as in 2016.
    #[arg(long, value_enum, default_value_t = Switch::On, value_name = "off|on")]
    congestion_control: Switch,
    /// A small network for a short time, for orientation.
    #[arg(long)]
    quick: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// So many jobs run at once; results do not depend on it [default: as many as this machine has cores; with --testbed
    /// netns always one].
    #[arg(long, value_name = "N", value_parser = THREADS.parser())]
    threads: Option<usize>,

    #[command(flatten)]
    simulations: SimulationArgs,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Settings of the experiment.
#[derive(Debug)]
pub struct Options {
    plan: Plan,
    sweep: Sweep,
}

impl Experiment for Options {
    const FOLDER: &'static str = "selection";
    const TITLE: &'static str = "Ways of choosing circuits";
    const QUESTION: &'static str = "What do users and the network gain if clients choose circuits by round trip, or by the load \
         that relays report?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let pick = |given: Option<Duration>, quick: u64, whole: u64| {
            given.unwrap_or(Duration::from_secs(if args.quick { quick } else { whole }))
        };
        let scale = args.scale.unwrap_or(if args.quick { 0.02 } else { 0.2 });
        let size = Size::of(scale, args.load);
        let (warm_up, counted) = (pick(args.warm_up, 50, 60), pick(args.duration, 20, 600));
        let interval = Duration::from_secs(INTERVAL_S);
        ensure!(
            counted >= interval && counted.as_nanos() % interval.as_nanos() == 0,
            "--duration is a multiple of {INTERVAL_S} s, over which bytes are summed"
        );
        ensure!(
            warm_up.as_nanos() % interval.as_nanos() == 0,
            "--warm-up is a multiple of {INTERVAL_S} s, over which bytes are summed"
        );
        let plan = Plan {
            testbed: args.testbed,
            size,
            consensus: match &args.consensus {
                Some(path) => {
                    let path = absolute(path)?;
                    let shown = path.display().to_string();
                    let all = read::parse(&read::file(&path)?.text, &shown)?.relays.len();
                    let kept = f64::from(size.relays) / all.max(1) as f64;
                    ensure!(
                        kept <= 1.0,
                        "--scale {scale} asks for {} relays, and {shown} has {all}",
                        size.relays
                    );
                    Some((path, kept))
                }
                None => None,
            },
            graph: args.graph.as_deref().map(absolute).transpose()?,
            capacity: args.capacity,
            warm_up,
            counted,
            repetitions: args.repetitions.unwrap_or(if args.quick { 2 } else { 10 }),
            congestion_control: args.congestion_control == Switch::On,
            arms: [
                arms::chosen(&args.arm)?,
                arms::adversaries(&args.adversary)?,
            ]
            .concat(),
            handshake: args.handshake.unwrap_or_default(),
            measure: (args.measure, args.download),
            pools: args.pools.clone().map(|name| name.replace('_', "-")),
        };
        ensure!(
            args.testbed == Testbed::Virtual
                || args.measure == 0 && args.pools.is_none() && args.handshake.is_none(),
            "--measure, --pools and --handshake are for --testbed virtual: real nodes have no such option"
        );
        if let Some(name) = &plan.pools {
            let arm = plan.arms.iter().find(|arm| arm.name == *name);
            let arm = arm.with_context(|| format!("--pools {name}: no arm is named so"))?;
            let by_weight = ("selection".to_owned(), "\"abra\"".to_owned());
            ensure!(
                arm.keys.contains(&by_weight),
                "--pools {name}: this arm does not choose each circuit by weight; abra does"
            );
        }
        // Files have absolute names.
        let own = [(regions::FILE, regions::graph())];
        let source = Source::parse("selection.toml", plan.text()?, Path::new(""), &own)?;
        let jobs = source.jobs(&[], None)?;
        let (seed, threads) = (args.seed, args.threads.and_then(NonZeroUsize::new));
        let sweep = Sweep::new(source, args.testbed, jobs, seed, threads, &args.simulations)?;
        let options = Options { plan, sweep };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let Options { plan, sweep } = self;
        let text = sweep.source.text.clone();
        let mut results = Results::new(plan, text, sweep.seed, sweep.jobs.len());
        let duration = sweep.source.scenario.duration;
        sweep.run(
            session,
            Part::ALL,
            |_, measured| {
                // The rest is not kept: at full size it would fill the memory.
                let is_whole = measured.results.simulated >= duration;
                is_whole.then(|| Sample::of(&measured.results, plan.warm_up))
            },
            |session, job, outcome| {
                results.add(job, outcome);
                if results.done() > 0 {
                    results.sum_up();
                    session.keep(&results)?;
                }
                Ok(())
            },
        )?;
        if let (0, Some(failed)) = (results.done(), results.failures.first()) {
            bail!("{}", failed.why);
        }
        results.sum_up();
        Ok(results)
    }
}

/// Clients that measure.
const MEASURED: Bounds<u32> = Bounds::new(0, 100_000);
/// Size of a download, in bytes.
const SIZE: Bounds<u64> = Bounds::new(1, weft_model::traffic::MAX_BYTES).of("bytes");
/// Processor time of one handshake.
const HANDSHAKE: Bounds<Duration> = Bounds::new(Duration::ZERO, Duration::from_secs(1));

fn handshake(text: &str) -> Result<Duration, String> {
    let time = weft_model::links::parse_time(text, HANDSHAKE.most()).ok();
    time.filter(|time| HANDSHAKE.allow(*time))
        .ok_or_else(|| format!("{HANDSHAKE}, as in \"2 ms\""))
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok();
    let bytes = bytes.or_else(|| weft_model::links::parse_bytes(text).ok());
    bytes
        .filter(|bytes| SIZE.allow(*bytes))
        .ok_or_else(|| format!("{SIZE}, or a number with a unit, as in \"5 MB\""))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path);
    absolute.with_context(|| format!("{} cannot be used", path.display()))
}
