//! `weft lab up`: a private network to play with.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde_json::json;
use weft_lab::network::Node;
use weft_lab::up::{Kind, More, Plan, Up};

use super::{STOP, weft_program};

/// How often somebody looks whether it is over, or whether a node is.
const LOOK: Duration = Duration::from_millis(200);

/// Starts a private Tor network on this machine and keeps it up until Ctrl-C.
///
/// An authority, relays, exits and clients are configured and started on loopback. Once every client
/// has fetched something through a circuit, SOCKS ports, control ports and logs are told. Streams
/// reach servers on this machine and nothing else. Weft runs all nodes unless told otherwise; where C
/// tor runs some, `tor` must be installed. Ctrl-C, or SIGTERM, ends everything.
#[derive(Debug, Args)]
pub(super) struct UpWords {
    /// Relays for first and middle hops.
    #[arg(long, value_name = "N", default_value_t = 3)]
    relays: usize,
    /// Relays that let streams leave.
    #[arg(long, value_name = "N", default_value_t = 2)]
    exits: usize,
    /// Clients, each with a SOCKS port.
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: usize,
    /// What runs relays, exits and clients; `mixed` takes turns.
    #[arg(long, value_enum, default_value_t = Peer::Weft)]
    peer: Peer,
    /// What runs the relays [default: as --peer].
    #[arg(long, value_enum)]
    relay_peer: Option<Peer>,
    /// What runs the exits [default: as --peer].
    #[arg(long, value_enum)]
    exit_peer: Option<Peer>,
    /// What runs the clients [default: as --peer].
    #[arg(long, value_enum)]
    client_peer: Option<Peer>,
    /// What runs the directory authority.
    #[arg(long, value_enum, default_value_t = Authority::Weft)]
    authority: Authority,
    /// Where everything goes, and stays afterwards: a folder that is empty or not there yet
    /// [default: a temporary one, removed at the end].
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Run the weft at this path, not this one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Give up where one step of the start takes longer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// Nodes log at `info` instead of `notice`.
    #[arg(long)]
    verbose: bool,
    /// Tell what is up as one JSON object on one line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peer {
    Weft,
    Tor,
    Mixed,
}

impl From<Peer> for Kind {
    fn from(peer: Peer) -> Kind {
        match peer {
            Peer::Weft => Kind::Weft,
            Peer::Tor => Kind::Tor,
            Peer::Mixed => Kind::Mixed,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Authority {
    Weft,
    Tor,
}

/// What is told of a network that is up.
struct Told {
    folder: PathBuf,
    /// The process to end.
    pid: u32,
    /// How long the start took.
    seconds: f64,
    clients: Vec<ClientTold>,
    relays: Vec<RelayTold>,
}

struct ClientTold {
    nickname: String,
    program: &'static str,
    socks: String,
    control: String,
    torrc: PathBuf,
}

struct RelayTold {
    nickname: String,
    program: String,
}

impl Told {
    fn json(&self) -> serde_json::Value {
        let clients = self.clients.iter().map(|client| {
            json!({
                "nickname": client.nickname,
                "program": client.program,
                "socks": client.socks,
                "control": client.control,
                "torrc": client.torrc,
            })
        });
        let relays = self
            .relays
            .iter()
            .map(|relay| json!({ "nickname": relay.nickname, "program": relay.program }));
        json!({
            "folder": self.folder,
            "pid": self.pid,
            "seconds": self.seconds,
            "clients": clients.collect::<Vec<_>>(),
            "relays": relays.collect::<Vec<_>>(),
        })
    }
}

/// Does what the words ask for.
pub(super) fn up(words: &UpWords) -> Result<ExitCode> {
    let stop = STOP.get_or_init(Arc::default);
    crate::stop::set_on_signals(stop)?;
    let kind = |own: Option<Peer>| Kind::from(own.unwrap_or(words.peer));
    let plan = Plan {
        relays: words.relays,
        relays_run: kind(words.relay_peer),
        exits: words.exits,
        exits_run: kind(words.exit_peer),
        clients: words.clients,
        clients_run: kind(words.client_peer),
        authority: match words.authority {
            Authority::Weft => Kind::Weft,
            Authority::Tor => Kind::Tor,
        },
        weft: weft_program(words.program.as_deref())?,
        more: More::default(),
        folder: words.dir.clone(),
        verbose: words.verbose,
        patience: Duration::from_secs(words.patience),
        stopped,
        progress: |line| eprintln!("{line}"),
    };
    let mut network = Up::start(&plan)?;
    tell(&network, words.json)?;
    while !stopped() {
        network.check()?;
        std::thread::sleep(LOOK);
    }
    eprintln!("ending the private network");
    network.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn stopped() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::SeqCst))
}

fn tell(network: &Up, json: bool) -> Result<()> {
    let torrc = |node: &Node| node.folder().join("torrc");
    let clients = network.clients().iter().map(|client| ClientTold {
        nickname: client.node().nickname().to_owned(),
        program: if client.is_weft() { "weft" } else { "tor" },
        socks: client.socks().to_string(),
        control: client.control().to_string(),
        torrc: torrc(client.node()),
    });
    let relays = network.relays().map(|(nickname, program)| RelayTold {
        nickname: nickname.to_owned(),
        program: program.name().to_owned(),
    });
    let told = Told {
        folder: network.folder().to_owned(),
        pid: std::process::id(),
        seconds: network.took().as_secs_f64(),
        clients: clients.collect(),
        relays: relays.collect(),
    };
    let mut out = std::io::stdout().lock();
    let mut write = || {
        if json {
            writeln!(out, "{}", told.json())?;
        } else {
            write!(out, "{}", human(&told))?;
        }
        out.flush()
    };
    write().context("cannot write to standard output")
}

fn human(told: &Told) -> String {
    let mut text = format!(
        "\nA private Tor network of {} nodes carries traffic after {:.1} s.\n\n",
        told.clients.len() + told.relays.len(),
        told.seconds
    );
    for client in &told.clients {
        text += &format!(
            "  {:<10} {:<5} SOCKS {:<18} control {}\n",
            client.nickname, client.program, client.socks, client.control
        );
    }
    for relay in &told.relays {
        text += &format!("  {:<10} {}\n", relay.nickname, relay.program);
    }
    if let Some(client) = told.clients.first() {
        text += &format!(
            "\nServers on this machine can be reached, for example\n  curl --proxy socks5h://{} http://127.0.0.1:PORT/\n",
            client.socks
        );
    }
    text + &format!(
        "torrc, logs and data of each node are in {}/NODE.\nCtrl-C here, or `kill {}`, ends all of it.\n",
        told.folder.display(),
        told.pid
    )
}
