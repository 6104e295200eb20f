//! `weft lab up`: a private network to play with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use weft_lab::args::{PATIENCE, weft_program};
use weft_lab::network::Node;
use weft_lab::stop::Stop;
use weft_lab::up::{Kind, LOOPBACK, More, NODES, Plan, Up};

use crate::output;

/// How often the end and the nodes are checked.
const LOOK: Duration = Duration::from_millis(200);

/// Starts a private Tor network on this machine and keeps it up until Ctrl-C.
///
/// An authority, relays, exits and clients are configured and started on loopback. Once every client
/// has fetched something through a circuit, SOCKS ports, control ports and logs are printed. Streams
/// reach servers on this machine and nothing else. Weft runs all nodes by default; where C
/// tor runs some, `tor` must be installed. Ctrl-C, or SIGTERM, ends everything.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Relays for first and middle hops.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = NODES.parser())]
    relays: usize,
    /// Relays that let streams leave.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = NODES.parser())]
    exits: usize,
    /// Clients, each with a SOCKS port.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = NODES.parser())]
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
    #[arg(long, value_name = "SECONDS", default_value = "180", value_parser = PATIENCE.parser())]
    patience: Duration,
    /// Nodes log at `info` instead of `notice`.
    #[arg(long)]
    verbose: bool,
    /// Print what is up as one JSON object on one line.
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

/// What is printed of a network that is up.
struct Summary {
    folder: PathBuf,
    /// The process to end.
    pid: u32,
    /// How long the start took.
    seconds: f64,
    clients: Vec<ClientSummary>,
    relays: Vec<RelaySummary>,
}

struct ClientSummary {
    nickname: String,
    program: &'static str,
    socks: SocketAddr,
    control: String,
    torrc: PathBuf,
}

struct RelaySummary {
    nickname: String,
    program: String,
}

impl Summary {
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
            "loopback": LOOPBACK,
            "clients": clients.collect::<Vec<_>>(),
            "relays": relays.collect::<Vec<_>>(),
        })
    }
}

/// Does what the arguments ask for.
pub(super) fn up(args: &UpArgs, stop: &Stop) -> Result<ExitCode> {
    let kind = |own: Option<Peer>| Kind::from(own.unwrap_or(args.peer));
    let plan = Plan {
        relays: args.relays,
        relays_run: kind(args.relay_peer),
        exits: args.exits,
        exits_run: kind(args.exit_peer),
        clients: args.clients,
        clients_run: kind(args.client_peer),
        authority: match args.authority {
            Authority::Weft => Kind::Weft,
            Authority::Tor => Kind::Tor,
        },
        weft: weft_program(args.program.as_deref())?,
        profiled: false,
        hs_dirs: Kind::Mixed,
        params: Vec::new(),
        more: More::default(),
        folder: args.dir.clone(),
        verbose: args.verbose,
        patience: args.patience,
        stop: stop.clone(),
        progress: |line| output::note(line),
    };
    let mut network = Up::start(&plan)?;
    print(&network, args.json)?;
    while !stop.is_requested() {
        network.check()?;
        std::thread::sleep(LOOK);
    }
    output::note("ending the private network");
    network.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn print(network: &Up, json: bool) -> Result<()> {
    let torrc = |node: &Node| node.folder().join("torrc");
    let clients = network.clients().iter().map(|client| ClientSummary {
        nickname: client.node().nickname().to_owned(),
        program: if client.is_weft() { "weft" } else { "tor" },
        socks: client.socks(),
        control: client.control().to_string(),
        torrc: torrc(client.node()),
    });
    let relays = network.relays().map(|(nickname, program)| RelaySummary {
        nickname: nickname.to_owned(),
        program: program.name().to_owned(),
    });
    let summary = Summary {
        folder: network.folder().to_owned(),
        pid: std::process::id(),
        seconds: network.took().as_secs_f64(),
        clients: clients.collect(),
        relays: relays.collect(),
    };
    output::print(match json {
        true => format!("{}\n", summary.json()),
        false => human(&summary),
    })
}

fn human(summary: &Summary) -> String {
    let mut text = format!(
        "\nA private Tor network of {} nodes carries traffic after {:.1} s.\n\n",
        summary.clients.len() + summary.relays.len(),
        summary.seconds
    );
    for client in &summary.clients {
        text += &format!(
            "  {:<10} {:<5} SOCKS {:<18} control {}\n",
            client.nickname,
            client.program,
            client.socks.to_string(),
            client.control
        );
    }
    for relay in &summary.relays {
        text += &format!("  {:<10} {}\n", relay.nickname, relay.program);
    }
    if let Some(client) = summary.clients.first() {
        text += &format!(
            "\nServers on this machine can be reached, for example\n\
             \x20 curl --proxy socks5h://{socks} http://127.0.0.1:PORT/\n\
             \x20 torsocks --address {} --port {} curl http://{LOOPBACK}:PORT/\n\
             torsocks lets nothing connect to 127.0.0.1; clients map {LOOPBACK} to it.\n",
            client.socks.ip(),
            client.socks.port(),
            socks = client.socks,
        );
    }
    text + &format!(
        "torrc, logs and data of each node are in {}/NODE.\nCtrl-C here, or `kill {}`, ends all of it.\n",
        summary.folder.display(),
        summary.pid
    )
}
