//! The command `weft lab hops`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::programs::weft_program;

use super::figures;
use super::options::Options;
use super::results::Results;
use super::run;
use crate::args::{CONNECTION_THREADS, MEGABYTES, REPETITIONS, Switch};
use crate::experiment::{Experiment, FolderArgs, Prepared, Report, Session, json};
use crate::report::Table;
use weft_plot::Folder;

/// Measures where the processor time of onion routing goes, by hops, circuits and role, and how fast it is.
///
/// A private network of Weft nodes carries random data from a seeder to a sink over 0 to 3 relays, and each node
/// samples itself meanwhile. 0 hops is TCP without Tor. Of 1 hop, which no exit lets streams leave by, load
/// generators play both neighbours. Where the Python packages pyipv8 and ipv8-rust-tunnels are installed, the same
/// data go over their tunnels.
///
/// All of it runs on this machine, on loopback. Results go into a new folder, which has all that was measured so far
/// at any time. Ctrl-C ends the experiment. The exit status is 1 if measurements are missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of repetitions [default: 10; of --quick: 3].
    #[arg(long, value_parser = REPETITIONS.parser())]
    repetitions: Option<u32>,
    /// Numbers of relays between sink and seeder, from 0 to 3.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "0,1,2,3",
        value_parser = HOPS.parser()
    )]
    hops: Vec<usize>,
    /// Numbers of circuits at once, from 1 to 64.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,4", value_parser = CIRCUITS.parser())]
    circuits: Vec<usize>,
    /// Without congestion control of circuits, with it, or both; of 2 hops and more.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "off,on", default_values_t = [Switch::Off, Switch::On])]
    congestion_control: Vec<Switch>,
    /// 10⁶ bytes of one transfer, over all its circuits together [default: 500; of --quick: 100].
    #[arg(long, value_parser = MEGABYTES.parser())]
    megabytes: Option<u64>,
    /// Fewer and shorter measurements, for orientation: under three minutes.
    #[arg(long)]
    quick: bool,
    /// Connection threads of each node.
    #[arg(long, default_value_t = 1, value_parser = NODE_THREADS.parser())]
    threads: u32,
    /// Data and the order of measurements are functions of this.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// The Python that has py-ipv8 [default: the python3 on PATH].
    #[arg(long, value_name = "FILE", conflicts_with = "without_ipv8")]
    python: Option<PathBuf>,
    /// Leave the tunnels of py-ipv8 out.
    #[arg(long)]
    without_ipv8: bool,
    /// Measure the weft at this path, not this one.
    #[arg(long, alias = "weft", value_name = "FILE")]
    program: Option<PathBuf>,

    #[command(flatten)]
    folder: FolderArgs,
}

/// Relays between sink and seeder.
const HOPS: Bounds<usize> = Bounds::new(0, 3);
/// Circuits at once.
const CIRCUITS: Bounds<usize> = Bounds::new(1, 64);
/// Threads whose work is counted apart from the main thread's.
const NODE_THREADS: Bounds<u32> = Bounds::new(1, CONNECTION_THREADS.most());

impl Experiment for Options {
    const FOLDER: &'static str = "hops";
    const TITLE: &'static str = "Where the processor time of onion routing goes";
    const QUESTION: &'static str = "Which functions do the nodes of onion routing spend their processor time in, by hops and role, and what does each hop cost in throughput?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let (megabytes, repetitions) = match args.quick {
            true => (100, 3),
            false => (500, 10),
        };
        let options = Options {
            weft: weft_program(args.program.as_deref())?,
            hops: numbers("--hops", &args.hops)?,
            circuits: numbers("--circuits", &args.circuits)?,
            congestion_control: Switch::each(&args.congestion_control),
            megabytes: args.megabytes.unwrap_or(megabytes),
            repetitions: args.repetitions.unwrap_or(repetitions),
            threads: args.threads,
            seed: args.seed,
            ipv8: !args.without_ipv8,
            python: args.python.clone(),
        };
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        run::hops(self, session)
    }
}

/// A list in order, without doubles.
fn numbers(option: &str, given: &[usize]) -> Result<Vec<usize>> {
    let mut numbers = given.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    ensure!(!numbers.is_empty(), "{option} needs at least one number");
    Ok(numbers)
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.roles.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.finished
    }

    fn failure(&self) -> Option<String> {
        (!self.finished).then(|| "it ended before everything was measured".to_owned())
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.finished)
    }

    fn tables(&self) -> Vec<Table> {
        self.report_tables()
    }

    fn notes(&self) -> Vec<String> {
        self.notes_in_words()
    }

    fn caption(&self, plot: &str) -> String {
        match plot.strip_prefix("flame-") {
            Some(role) => format!("Flame graph of {role} (hops, role): width is processor time."),
            None => String::new(),
        }
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("results.json", json(self)?),
            ("table.txt", self.to_string()),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_order_and_without_doubles() {
        let hops = |given: &[usize]| numbers("--hops", given);
        assert_eq!(hops(&[3, 1, 3]).expect("a list"), [1, 3]);
        assert!(hops(&[]).is_err());
    }
}
