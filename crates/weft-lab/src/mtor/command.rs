//! The command `weft lab mtor`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use weft_stats::bounds::{Bounds, SEED};

use super::arms;
use super::contention;
use super::controlled;
use super::downloads::{self, Downloads};
use super::measure::Sample;
use super::part::{Common, Kind, LEARNING, Load, source};
use super::relays::{self, Bandwidth, Relays, SLOW_PART, Wanted};
use super::results::{About, OfPart, Results};
use crate::args::{CAPACITY, LASTS, LOAD, PAUSE, REPETITIONS, SCALE, Switch, THREADS};
use crate::comparison::{Arm, regions};
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};
use crate::run::shadow::SimulationArgs;
use crate::run::sweep::{Part, Sweep};
use crate::run::testbed::Testbed;

/// Compares streams over several circuits through slow relays (mTor) with streams over one circuit, and with conflux sets.
///
/// Downloads of 5 and 10 MB beside other users, in virtual time or on real processes, in arms stor (one circuit), mtor2, mtor3, mtor5, mtor5-common
/// (one entry) and conflux; and two small networks of five equal slow circuits, one of which stalls in the second. With --contention, web clients beside bulk clients
/// instead, whose streams are on one circuit or on several. --arm chooses arms, or makes another: --arm
/// wide:multipath=8. Results go into a new folder, with the scenarios. Ctrl-C ends the run with the jobs that are over. The exit
/// status is 1 if some are missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Testbed of the networks. Real processes need root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, and a
    /// --scale for which this machine has processors.
    #[arg(long, value_enum, default_value_t = Testbed::Virtual)]
    testbed: Testbed,
    /// Web clients beside 110, 310 or 510 bulk clients, instead of downloads [of --contention without a load: all].
    #[arg(long, value_enum, value_name = "LOAD,…", value_delimiter = ',', num_args = 0..=1,
          default_missing_values = ["light", "medium", "heavy"])]
    contention: Vec<Load>,
    /// An arm by its name, or a new one with keys of a scenario's [[arm]]; may be repeated [default: --arm stor --arm mtor2 --arm mtor3
    /// --arm mtor5 --arm mtor5-common --arm conflux; with --contention --arm stor --arm mtor3 --arm mtor5].
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]")]
    arm: Vec<String>,
    /// Megabytes of the downloads.
    #[arg(long, value_name = "MB,…", value_delimiter = ',', default_values_t = [5, 10],
          value_parser = SIZE.parser(), conflicts_with = "contention")]
    size: Vec<u32>,
    /// Downloads of each size in each network, each of a client of its own [default: 12; of --quick: 3].
    #[arg(long, value_name = "COUNT", value_parser = DOWNLOADS.parser(), conflicts_with = "contention")]
    downloads: Option<u32>,
    /// The part of 100 relays, 160 web clients, 20 bulk clients and 20 servers [default: 1; of --quick: 0.4]; with --contention of 50 relays,
    /// 990 web clients, the bulk clients and 200 servers [default: 1; of --quick: 0.4].
    #[arg(long, value_name = "PART", value_parser = SCALE.parser())]
    scale: Option<f64>,
    /// So many times the other users of downloads.
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        value_parser = LOAD.parser(),
        conflicts_with = "contention"
    )]
    load: f64,
    /// The part of the relays that are slow: below 100 KiB/s of weight.
    #[arg(long, value_name = "PART", default_value_t = SLOW_PART, value_parser = SLOW.parser())]
    slow: f64,
    /// kB/s of bandwidth that a relay has for each unit of its weight, 75 KiB/s at least [default: so that the fast relays have 500 kB/s on
    /// average; with --contention so that the exits together have 250 kB/s for each relay].
    #[arg(long, value_name = "NUMBER", value_parser = CAPACITY.parser())]
    capacity: Option<f64>,
    /// Relays are sampled from this consensus [default: from a synthetic network].
    #[arg(long, value_name = "FILE")]
    consensus: Option<PathBuf>,
    /// Delays and access rates by country, a GraphML file [default: nine countries, with delays that are Weft's own].
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Seconds in which downloads begin [default: 240; of --quick: 90]; with --contention seconds that are counted, a multiple of 10
    /// [default: 600; of --quick: 60].
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS")]
    duration: Option<Duration>,
    /// Seconds before them, a multiple of 10: clients learn for 40 s, then other users begin [default: 80; of --quick: 60; with --contention 120
    /// and 80].
    #[arg(long, value_parser = PAUSE.parser(), value_name = "SECONDS")]
    warm_up: Option<Duration>,
    /// Networks of each arm [default: 10; of --quick: 2].
    #[arg(long, value_name = "COUNT", value_parser = REPETITIONS.parser())]
    repetitions: Option<u32>,
    /// Congestion control of circuits. Without it there is no arm conflux.
    #[arg(long, value_enum, value_name = "WHETHER", default_value_t = Switch::On)]
    congestion_control: Switch,
    /// Small and short, for orientation.
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

/// Megabytes of a download.
const SIZE: Bounds<u32> = Bounds::new(1, 1000);
/// Downloads of each size.
const DOWNLOADS: Bounds<u32> = Bounds::new(1, 10_000);
/// The part of the relays that are slow; some must be left.
const SLOW: Bounds<f64> = Bounds::new(0.0, 0.8);
/// Mean bandwidth of fast relays, kB/s. A circuit beside other users then has some three times the
/// bandwidth of a slow relay.
const FAST: f64 = 500.0;
/// Bandwidth of exits beside the paper's clients, kB/s for each relay of the network: heavy load
/// fills them.
const EXITS: f64 = 250.0;
/// After the last download may have begun.
const REST: Duration = Duration::from_secs(120);
/// Time after the last download may have begun, with `--quick`.
const SHORT_REST: Duration = Duration::from_secs(60);

/// Settings of the experiment.
#[derive(Debug)]
pub struct Options {
    common: Common,
    relays: Relays,
    megabytes: Vec<u32>,
    parts: Vec<(Kind, Sweep, Vec<Arm>)>,
    seed: u64,
}

impl Args {
    fn is_contention(&self) -> bool {
        !self.contention.is_empty()
    }

    /// The given value, or the default of this kind of run.
    fn pick<T>(&self, given: Option<T>, quick: T, whole: T) -> T {
        given.unwrap_or(if self.quick { quick } else { whole })
    }

    fn common(&self) -> Result<Common> {
        let long = if self.is_contention() { 600 } else { 240 };
        let short = if self.is_contention() { 60 } else { 90 };
        let of = Duration::from_secs;
        let (quick_warm_up, whole_warm_up) = if self.is_contention() {
            (80, 120)
        } else {
            (60, 80)
        };
        let (warm_up, counted) = (
            self.pick(self.warm_up, of(quick_warm_up), of(whole_warm_up)),
            self.pick(self.duration, of(short), of(long)),
        );
        ensure!(
            self.testbed != Testbed::Virtual || warm_up > LEARNING,
            "--warm-up is more than {} s, in which clients learn how long circuits take",
            LEARNING.as_secs()
        );
        let whole = |time: Duration| time.as_nanos().is_multiple_of(10_000_000_000);
        ensure!(
            whole(warm_up),
            "--warm-up is a multiple of 10 s, over which bytes are summed"
        );
        ensure!(
            !self.is_contention() || whole(counted),
            "--duration is a multiple of 10 s, over which bytes are summed"
        );
        Ok(Common {
            testbed: self.testbed,
            graph: self.graph.as_deref().map(absolute).transpose()?,
            congestion_control: self.congestion_control == Switch::On,
            repetitions: self.pick(self.repetitions, 2, 10),
            warm_up,
            counted,
        })
    }

    fn scale(&self) -> Result<f64> {
        let (quick, most) = (0.4, if self.is_contention() { 2.0 } else { 10.0 });
        let scale = self.pick(self.scale, quick, 1.0);
        ensure!(
            scale <= most,
            "--scale {scale}: it is at most {most} with --contention"
        );
        Ok(scale)
    }

    fn relays(&self, count: u32) -> Result<Relays> {
        let network = relays::network(self.consensus.as_deref(), self.seed)?;
        let bandwidth = match (self.capacity, self.is_contention()) {
            (Some(unit), _) => Bandwidth::Unit(unit),
            (None, false) => Bandwidth::OfFast(FAST),
            (None, true) => Bandwidth::OfExits(EXITS),
        };
        Relays::sampled(
            &network,
            Wanted {
                relays: count,
                slow: self.slow,
                bandwidth,
            },
        )
    }

    fn sweep(&self, kind: Kind, text: String, relays: &Relays) -> Result<Sweep> {
        let source = source(kind, text, relays)?;
        let jobs = source.jobs(&[], None)?;
        Sweep::new(
            source,
            self.testbed,
            jobs,
            self.seed,
            self.threads.and_then(NonZeroUsize::new),
            &self.simulations,
        )
    }
}

impl Experiment for Options {
    const FOLDER: &'static str = "mtor";
    const TITLE: &'static str = "Streams over several circuits";
    const QUESTION: &'static str = "What do downloads and other users gain if downloads are spread over several circuits through slow \
         relays?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let (common, scale) = (args.common()?, args.scale()?);
        let mut sizes = args.size.clone();
        sizes.dedup();
        let mut parts = Vec::new();
        let relays;
        if args.is_contention() {
            let arms = arms::chosen(&args.arm, &arms::CONTENTION, common.congestion_control)?;
            let mut loads = args.contention.clone();
            loads.sort_unstable();
            loads.dedup();
            relays = args.relays(contention::Size::of(scale, Load::Light).relays)?;
            for load in loads {
                let size = contention::Size::of(scale, load);
                let text = contention::text(load, size, &common, &relays, &arms)?;
                let kind = Kind::Contention(load);
                parts.push((kind, args.sweep(kind, text, &relays)?, arms.clone()));
            }
        } else {
            let arms = arms::chosen(&args.arm, &arms::DOWNLOADS, common.congestion_control)?;
            let downloads = Downloads {
                size: downloads::Size::of(scale, args.load),
                megabytes: sizes.clone(),
                each: args.pick(args.downloads, 3, 12),
                rest: args.pick(None, SHORT_REST, REST),
            };
            relays = args.relays(downloads.size.relays)?;
            let text = downloads.text(&common, &relays, &arms)?;
            let kind = Kind::Downloads;
            parts.push((kind, args.sweep(kind, text, &relays)?, arms));
            for (kind, planned) in controlled::PARTS {
                // Real processes cannot be made to stall at a time.
                if args.arm.is_empty() && (kind == Kind::Equal || args.testbed == Testbed::Virtual)
                {
                    let arms = arms::chosen(&[], planned, common.congestion_control)?;
                    let arms = controlled::used(kind, arms);
                    let text = controlled::text(kind, &common, &arms);
                    parts.push((kind, args.sweep(kind, text, &relays)?, arms));
                }
            }
        }
        let options = Options {
            common,
            relays,
            megabytes: sizes,
            parts,
            seed: args.seed,
        };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let mut results = self.empty();
        for (number, (kind, sweep, _)) in self.parts.iter().enumerate() {
            let duration = sweep.source.scenario.duration;
            let part = Part {
                name: kind.name(),
                number,
                of: self.parts.len(),
            };
            let from = match kind {
                Kind::Downloads | Kind::Contention(_) => self.common.warm_up,
                Kind::Equal | Kind::Stall => Duration::ZERO,
            };
            sweep.run(
                session,
                part,
                |_, measured| {
                    // The rest is not kept: at full size it would fill the memory.
                    let is_whole = measured.results.simulated >= duration;
                    is_whole.then(|| Sample::of(&measured.results, from))
                },
                |session, job, outcome| {
                    results.add(number, job, outcome);
                    if results.done() > 0 {
                        results.sum_up();
                        session.keep(&results)?;
                    }
                    Ok(())
                },
            )?;
        }
        if let (0, Some(failed)) = (results.done(), results.failures.first()) {
            bail!("{}", failed.failed.why);
        }
        results.sum_up();
        Ok(results)
    }
}

impl Options {
    /// Results without measurements.
    fn empty(&self) -> Results {
        let parts = self.parts.iter().map(|(kind, sweep, arms)| OfPart {
            kind: *kind,
            text: sweep.source.text.clone(),
            planned: sweep.jobs.len(),
            samples: arms
                .iter()
                .map(|arm| (arm.clone(), Default::default()))
                .collect(),
        });
        let own_graph = self.common.graph.is_none();
        let graph = own_graph.then(|| (regions::FILE, regions::graph()));
        let relays = (relays::FILE, self.relays.text.clone());
        Results::new(About {
            testbed: self.common.testbed,
            seed: self.seed,
            congestion_control: self.common.congestion_control,
            repetitions: self.common.repetitions,
            warm_up_s: self.common.warm_up.as_secs_f64(),
            relays: self.relays.clone(),
            megabytes: self.megabytes.clone(),
            parts: parts.collect(),
            own_files: [relays].into_iter().chain(graph).collect(),
        })
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path);
    absolute.with_context(|| format!("{} cannot be used", path.display()))
}
