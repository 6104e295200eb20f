//! The command `weft lab cci`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use weft_model::links::Rate;
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net;
use weft_testnet::network::Program;
use weft_testnet::programs::weft_program;

use super::options::Options;
use super::plan::Choice;
use super::results::Results;
use super::run;
use super::scenario::{Arm, Scenario, Traffic};
use super::virtual_time;
use crate::args::{LASTS, PATIENCE, PAUSE, REPETITIONS, Switch, chosen};
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};

/// Measures how circuits that share a TLS connection hold each other up, and what a connection for each changes.
///
/// C tor, Weft, Weft with ConnectionPerCircuit 1 and with ConnectionPerCircuit auto run whole networks in a testbed
/// of network namespaces, over the links of Pahl et al. 2023. Needs root or CAP_NET_ADMIN and CAP_SYS_ADMIN, and for
/// the arm `tor` C tor. With --testbed virtual the networks are in this process and in virtual time: no privileges, no C
/// tor, no processor times, and the same results for the same seed. Results go into a new folder, which has all that was measured so far at any time. Ctrl-C ends
/// the experiment. The exit status is 1 if measurements are missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Testbed of the networks.
    #[arg(long, value_enum, default_value_t = On::Netns)]
    testbed: On,
    /// Scenarios [default: all; of --quick: no-dropping,shared-dropping].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    scenarios: Vec<Scenario>,
    /// Traffic of the measured users; the others download in bulk [default: all; of --quick:
    /// bulk,web].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    traffic: Vec<Traffic>,
    /// Programs that run the nodes [default: all; of --quick: tor,weft,weft-pctls].
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    arms: Vec<Arm>,
    /// Without congestion control of circuits, with it, or both.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "off,on", default_values_t = [Switch::Off, Switch::On])]
    congestion_control: Vec<Switch>,
    /// Seconds of traffic for each cell [default: 300; of --quick: 4].
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS")]
    seconds: Option<Duration>,
    /// Seconds of the same traffic before the first cell of each scenario in a network, after which every client gets new
    /// circuits: `auto` needs some ten to find a link lossy [default: 20; of --quick: 0].
    #[arg(long, value_parser = PAUSE.parser(), value_name = "SECONDS")]
    warm_up: Option<Duration>,
    /// Give faster links this rate, such as 130Mbit/s. The scenarios' 300 Mbit/s let users be faster than those of the
    /// paper, which loss then costs more.
    #[arg(long, value_name = "RATE")]
    at_most: Option<Rate>,
    /// Circuits whose build times are measured in each network [default: 20; of --quick: 2].
    #[arg(long, value_name = "COUNT", value_parser = CIRCUITS.parser())]
    circuits: Option<u32>,
    /// Number of repetitions.
    #[arg(long, default_value_t = 1, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// A few seconds for each cell, for orientation, in under three minutes.
    #[arg(long)]
    quick: bool,
    /// Seed of losses, payloads and pauses.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Seconds that a network may take to start.
    #[arg(long, value_parser = PATIENCE.parser(), value_name = "SECONDS", default_value = "180")]
    patience: Duration,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    #[command(flatten)]
    folder: FolderArgs,
}

/// Circuits whose build times are measured.
const CIRCUITS: Bounds<u32> = Bounds::new(0, 1000);

/// Testbed of the networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// Processes in network namespaces, in real time.
    Netns,
    /// This process, in virtual time.
    Virtual,
}

impl Experiment for Options {
    const FOLDER: &'static str = "cci";
    const TITLE: &'static str = "Interference between circuits that share a connection";
    const QUESTION: &'static str = "How much do circuits lose to a lossy or congested link that they share, over one TLS \
         connection and over one for each?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let (scenarios, traffic, arms): (&[Scenario], &[Traffic], &[Arm]) = match args.quick {
            true => (
                &[Scenario::NoDropping, Scenario::SharedDropping],
                &[Traffic::Bulk, Traffic::Web],
                &[Arm::Tor, Arm::Weft, Arm::WeftPctls],
            ),
            false => (
                Scenario::value_variants(),
                Traffic::value_variants(),
                Arm::value_variants(),
            ),
        };
        let quick = |quick: u64, whole: u64| match args.quick {
            true => Duration::from_secs(quick),
            false => Duration::from_secs(whole),
        };
        let is_virtual = args.testbed == On::Virtual;
        if is_virtual && args.arms.contains(&Arm::Tor) {
            bail!(
                "C tor does not run in virtual time: leave the arm tor out, or use --testbed netns"
            );
        }
        let arms = arms
            .iter()
            .copied()
            .filter(|arm| !(is_virtual && *arm == Arm::Tor));
        let choice = Choice {
            scenarios: chosen(&args.scenarios, scenarios),
            traffic: chosen(&args.traffic, traffic),
            arms: chosen(&args.arms, &arms.collect::<Vec<_>>()),
            congestion_control: Switch::each(&args.congestion_control),
            repetitions: args.repetitions,
        };
        if let Some(missing) = net::missing().filter(|_| !is_virtual) {
            bail!("{missing}");
        }
        if choice.arms.contains(&Arm::Tor) {
            Program::tor_of_its_own()?;
        }
        let options = Options {
            is_virtual,
            choice,
            cell: args.seconds.unwrap_or(quick(4, 300)),
            warm_up: args.warm_up.unwrap_or(quick(0, 20)),
            at_most: args.at_most,
            circuits: args.circuits.unwrap_or(if args.quick { 2 } else { 20 }) as usize,
            seed: args.seed,
            patience: args.patience,
            weft: weft_program(args.program.as_deref())?,
        };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        match self.is_virtual {
            true => virtual_time::cci(self, session),
            false => run::cci(self, session),
        }
    }
}
