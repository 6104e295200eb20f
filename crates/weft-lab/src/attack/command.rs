//! The command `weft lab attack`: its arguments, and all rounds in turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use weft_stats::bounds::SEED;
use weft_testnet::process::raise_file_limit;
use weft_testnet::programs::{check_program, weft_program};

use weft_plot::Folder;

use super::cast::Cast;
use super::catalogue::{ATTACKS, find};
use super::definition::Attack;
use super::figures;
use super::options::{Options, max_connections};
use super::results::{Failed, Results, SCHEMA, Setting};
use super::round::round;
use crate::args::{CONNECTION_THREADS, LASTS, MBITS, PAUSE, REPETITIONS};
use crate::experiment::{self, Experiment, FolderArgs, Prepared, Progress, Report, Session, turns};
use crate::machine::Cpus;
use crate::relay::program::Program;
use crate::report::Table;

/// Attacks a relay of your own, and measures what honest circuits still get.
///
/// For each attack a relay is started alone on loopback. Honest circuits carry cells through it at a
/// fixed rate, and an honest user asks again and again for what the attack may take away: a circuit, a
/// stream, a name, an answer at a port. Both are measured without the attack, then with it. Attackers
/// send from addresses of their own, all on loopback, at a bounded rate.
///
/// Results go into a new folder: results.json, results.md, and plots as SVG and PNG. Ctrl-C ends the
/// experiment; what was measured until then is in the folder. The exit status is 1 if honest circuits
/// kept less than 97 % of their throughput under an attack, if one was closed, if new requests were
/// refused, if the target gave an answer or took memory that it must not, if file descriptors stayed
/// open, or if rounds are missing. docs/attacks.md explains the results.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The attacks.
    #[arg(value_name = "NAME", conflicts_with_all = ["all", "list"])]
    names: Vec<String>,
    /// All attacks.
    #[arg(long, conflicts_with = "list")]
    all: bool,
    /// Print the name, the deed and the bound of each attack, and attack nothing.
    #[arg(long)]
    list: bool,

    /// Program to attack.
    #[arg(long, value_enum, default_value_t = Victim::Weft)]
    target: Victim,
    /// Start the program at this path, not this weft or the tor that is installed.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The target's ConnectionThreads; C tor has one anyway.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = CONNECTION_THREADS.parser())]
    threads: u32,
    /// Length of a measurement, without and with each attack, in seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = LASTS.parser())]
    seconds: Duration,
    /// Length of the load before each measurement, in seconds.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = PAUSE.parser())]
    warm_up: Duration,
    /// Longest time that the target may take afterwards to free what it held, in seconds; the wait
    /// ends when it has.
    #[arg(long, value_name = "S", default_value = "5", value_parser = PAUSE.parser())]
    settle: Duration,
    /// Measurements of each attack.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// The most that an attack sends, in Mbit/s.
    #[arg(long, value_name = "MBIT/S", default_value_t = 100.0, value_parser = MBITS.parser())]
    mbits: f64,
    /// Load of all honest circuits together, in Mbit/s of payload.
    #[arg(long, value_name = "MBIT/S", default_value_t = 100.0, value_parser = MBITS.parser())]
    honest: f64,
    /// Keys and contents are functions of this.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,

    #[command(flatten)]
    folder: FolderArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Victim {
    Weft,
    Tor,
}

/// Attacks, and how they are measured.
#[derive(Clone, Debug)]
pub struct Attacks {
    attacks: Vec<Attack>,
    options: Options,
}

impl Experiment for Attacks {
    const FOLDER: &'static str = "attacks";
    const TITLE: &'static str = "Attacks on a relay";
    const QUESTION: &'static str =
        "What do honest users keep while a relay is attacked, and what does it give back?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Attacks>> {
        if args.list {
            return Ok(Prepared::Text(list()));
        }
        let attacks = Attacks {
            attacks: chosen(args)?,
            options: options(args)?,
        };
        Ok(Prepared::Run(attacks, args.folder.output()))
    }

    /// Measures each attack so often, in turns. A round that fails is among the results.
    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        let Attacks { attacks, options } = self;
        raise_file_limit();
        let mut results = Results {
            schema: SCHEMA,
            started_at: session.started_at().to_owned(),
            machine: session.machine(),
            versions: session.versions(options.program.weft()),
            setting: Setting::of(options),
            attacks: attacks
                .iter()
                .map(|attack| attack.name.to_owned())
                .collect(),
            finished: false,
            rounds: Vec::new(),
            failed: Vec::new(),
            summaries: Vec::new(),
        };
        let cast = Cast::new(options.seed)?;
        let stop = session.stop();
        for turn in turns(options.repetitions, attacks.len()) {
            let Some(attack) = attacks.get(turn.subject) else {
                continue;
            };
            session.progress(&Progress {
                done: turn.done(),
                step: format!("round {} of {}: {}", turn.number, turn.of, attack.name),
                detail: String::new(),
            });
            let outcome = round(options, attack, turn.repetition, &cast, stop.flag());
            if stop.is_requested() {
                break;
            }
            match outcome {
                Ok(round) => results.rounds.push(round),
                Err(error) => results.failed.push(Failed {
                    attack: attack.name.to_owned(),
                    repetition: turn.repetition,
                    why: format!("{error:#}"),
                }),
            }
            results.finished = results.rounds.len() == turn.of;
            results.sum_up();
            session.keep(&results)?;
        }
        Ok(results)
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.rounds.is_empty() && self.failed.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.finished && self.summaries.iter().all(|one| one.missed.is_empty())
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        self.report_tables()
    }

    fn notes(&self) -> Vec<String> {
        let missed = self.missed();
        let missed = missed.lines().map(|line| line.trim_start_matches("- "));
        missed.map(str::to_owned).collect()
    }

    fn settings(&self) -> Vec<(String, String)> {
        let setting = &self.setting;
        let cpus = |cpus: &[usize]| match cpus.is_empty() {
            true => "all".to_owned(),
            false => format!("{cpus:?}"),
        };
        [
            ("names", self.attacks.join(", ")),
            ("processors of the target", cpus(&setting.target_cpus)),
            ("processors of the generator", cpus(&setting.generator_cpus)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn caption(&self, plot: &str) -> String {
        match plot {
            "throughput" => "Honest throughput without and under each attack.",
            "latency" => "99th percentile of honest cells' latency without and under each attack.",
            _ => "",
        }
        .to_owned()
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("results.json", experiment::json(self)?),
            ("results.md", self.markdown()),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        match self.summaries.is_empty() {
            true => Ok(Vec::new()),
            false => figures::draw(self, folder),
        }
    }
}

fn list() -> String {
    let mut text = String::new();
    for attack in ATTACKS {
        text += &format!("{}\n    {}.\n", attack.name, attack.what);
        text += &format!("    Bound: {}.\n", attack.bound);
    }
    text
}

fn chosen(args: &Args) -> Result<Vec<Attack>> {
    if args.all {
        return Ok(ATTACKS.to_vec());
    }
    ensure!(
        !args.names.is_empty(),
        "name an attack, or --all; --list prints what there is"
    );
    let mut attacks: Vec<Attack> = Vec::new();
    for name in &args.names {
        ensure!(
            !attacks.iter().any(|attack| attack.name == name),
            "the attack {name:?} is named twice"
        );
        attacks.push(find(name)?);
    }
    Ok(attacks)
}

fn options(args: &Args) -> Result<Options> {
    let program = match args.target {
        Victim::Weft => Program::Weft(weft_program(args.program.as_deref())?, Some(args.threads)),
        Victim::Tor => {
            if let Some(path) = &args.program {
                check_program(path)?;
            }
            Program::Tor(args.program.clone())
        }
    };
    let mut options = Options {
        program,
        seconds: args.seconds,
        warm_up: args.warm_up,
        settle: args.settle,
        memory_left: 16 << 20,
        repetitions: args.repetitions,
        mbits: args.mbits,
        honest_mbits: args.honest,
        max_lead: Duration::MAX,
        max_connections: max_connections(),
        patience: Duration::from_secs(20),
        until_granted: false,
        seed: args.seed,
        target_cpus: Vec::new(),
        generator_cpus: Vec::new(),
    };
    let threads = match args.target {
        Victim::Weft => args.threads as usize,
        Victim::Tor => 1,
    };
    options.part_cpus(threads, &Cpus::here());
    Ok(options)
}
