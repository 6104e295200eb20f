//! The command `weft lab traffic`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net;
use weft_testnet::programs::weft_program;
use weft_testnet::up::{Kind, NODES};

use super::mix::{self, Asked};
use super::options::Options;
use super::results::Results;
use super::run;
use super::way::Way;
use crate::args::{LASTS, PATIENCE, PAUSE, REPETITIONS};
use crate::experiment::{Experiment, FolderArgs, Prepared, Session};

/// Lets users of the traffic models work, and measures how their streams go.
///
/// They are in a private network of Weft nodes on loopback; with --topology in one on a testbed of network namespaces.
/// With --socks they use a SOCKS port that is there, with --direct nothing but TCP, for comparison. The server is this
/// program, and nothing leaves this machine. docs/traffic.md describes the models. Results go into a new folder, which
/// has all that was measured so far after each repetition. Ctrl-C ends the experiment. The exit status is 1 if
/// measurements are missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Users: models, and how many users follow each. Models are bulk, web, audio, video, page, slow-page,
    /// performance, and markov with --streams and --packets.
    #[arg(
        long,
        value_name = "MODEL=N,…",
        value_delimiter = ',',
        value_parser = mix::asked,
        default_value = "bulk=2,web=10,performance=2"
    )]
    users: Vec<Asked>,
    /// The Markov model of when users open streams, in TGen's or PrivCount's GraphML.
    #[arg(long, value_name = "FILE")]
    streams: Option<PathBuf>,
    /// The Markov model of the packets of a stream.
    #[arg(long, value_name = "FILE")]
    packets: Option<PathBuf>,
    /// Seconds of traffic in each repetition [default: 60; of --quick: 10].
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS")]
    seconds: Option<Duration>,
    /// Seconds within which users begin, one after another [default: a tenth of --seconds, at most 10].
    #[arg(long, value_parser = PAUSE.parser(), value_name = "SECONDS")]
    spread: Option<Duration>,
    /// Number of repetitions, in one network.
    #[arg(long, default_value_t = 1, value_parser = REPETITIONS.parser())]
    repetitions: u32,
    /// A few seconds, for orientation.
    #[arg(long)]
    quick: bool,
    /// Seed of users' draws, payloads and losses.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Program of the network's nodes.
    #[arg(long, value_enum, default_value_t = Kind::Weft, conflicts_with_all = ["socks", "direct"])]
    kind: Kind,
    /// Relays on loopback for first and middle hops.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = NODES.parser(), conflicts_with_all = ["topology", "socks", "direct"])]
    relays: usize,
    /// Relays on loopback that let streams leave.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = NODES.parser(), conflicts_with_all = ["topology", "socks", "direct"])]
    exits: usize,
    /// Clients on loopback; users take turns at them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = CLIENTS.parser(), conflicts_with_all = ["topology", "socks", "direct"])]
    clients: usize,
    /// Put the network on a testbed: a TOML file, or the name of a built-in topology (`weft lab net topology` lists
    /// them). Needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN.
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["socks", "direct"])]
    topology: Option<String>,
    /// Use this SOCKS port on this machine, whose exits must reach servers of this machine, as those of `weft lab up` do.
    #[arg(long, value_name = "IP:PORT", conflicts_with = "direct")]
    socks: Option<SocketAddr>,
    /// Go straight to the server, without Tor.
    #[arg(long)]
    direct: bool,
    /// Seconds that a step of the network's start may take.
    #[arg(long, value_parser = PATIENCE.parser(), value_name = "SECONDS", default_value = "180")]
    patience: Duration,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    #[command(flatten)]
    folder: FolderArgs,
}

/// Users need at least one.
const CLIENTS: Bounds<usize> = Bounds::new(1, NODES.most());

impl Args {
    fn way(&self) -> Result<Way> {
        Ok(match (&self.topology, self.socks, self.direct) {
            (Some(named), ..) => Way::Testbed {
                kind: self.kind,
                topology: Box::new(net::topology(named)?),
            },
            (None, Some(address), _) => Way::Socks(address),
            (None, None, true) => Way::Direct,
            (None, None, false) => Way::Loopback {
                kind: self.kind,
                relays: self.relays,
                exits: self.exits,
                clients: self.clients,
            },
        })
    }
}

impl Experiment for Options {
    const FOLDER: &'static str = "traffic";
    const TITLE: &'static str = "Streams of users";
    const QUESTION: &'static str =
        "How soon and how fast do users of each kind get what they ask for?";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Options>> {
        let duration = args.seconds.unwrap_or(match args.quick {
            true => Duration::from_secs(10),
            false => Duration::from_secs(60),
        });
        let spread = args
            .spread
            .unwrap_or((duration / 10).min(Duration::from_secs(10)));
        ensure!(
            spread < duration,
            "--spread {} leaves some users no time: it must be below the {} seconds of traffic",
            spread.as_secs_f64(),
            duration.as_secs_f64()
        );
        let options = Options {
            users: mix::users(
                &args.users,
                args.streams.as_deref(),
                args.packets.as_deref(),
            )?,
            way: args.way()?,
            duration,
            spread,
            repetitions: args.repetitions,
            seed: args.seed,
            patience: args.patience,
            weft: weft_program(args.program.as_deref())?,
        };
        options.way.check()?;
        Ok(Prepared::Run(options, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        run::traffic(self, session)
    }
}
