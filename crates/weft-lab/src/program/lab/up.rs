//! `weft lab up`: a private network to play with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use serde_json::json;
use weft_cli::print::{self, note};
use weft_lab::args::PATIENCE;
use weft_testnet::network::Node;
use weft_testnet::programs::weft_program;
use weft_testnet::stop::Stop;
use weft_testnet::up::{Kind, LOOPBACK, More, NODES, Plan, Up};

/// Interval at which the end and the nodes are checked.
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
    /// Program of relays, exits and clients; `mixed` takes turns.
    #[arg(long, value_enum, default_value_t = Peer::Weft)]
    peer: Peer,
    /// Program of the relays [default: as --peer].
    #[arg(long, value_enum)]
    relay_peer: Option<Peer>,
    /// Program of the exits [default: as --peer].
    #[arg(long, value_enum)]
    exit_peer: Option<Peer>,
    /// Program of the clients [default: as --peer].
    #[arg(long, value_enum)]
    client_peer: Option<Peer>,
    /// Program of the directory authority.
    #[arg(long, value_enum, default_value_t = Authority::Weft)]
    authority: Authority,
    /// The network's parameters are those of this consensus document, so that they need not be in torrcs.
    #[arg(long, value_name = "CONSENSUS", value_hint = ValueHint::FilePath)]
    params_of: Option<PathBuf>,
    /// A parameter of the consensus; it goes before that of --params-of.
    #[arg(long, value_name = "NAME=NUMBER")]
    param: Vec<String>,
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

/// Description of a running network, to print.
struct Summary {
    folder: PathBuf,
    /// The process to end.
    pid: u32,
    /// Duration of the start.
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
        params: params(args)?,
        more: More::default(),
        folder: args.dir.clone(),
        verbose: args.verbose,
        patience: args.patience,
        stop: stop.clone(),
        progress: |line| note(line),
    };
    let mut network = Up::start(&plan)?;
    print(&network, args.json)?;
    while !stop.is_requested() {
        network.check()?;
        std::thread::sleep(LOOK);
    }
    note("ending the private network");
    network.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// The parameters of the network's consensus.
fn params(args: &UpArgs) -> Result<Vec<String>> {
    let name = |param: &str| Some(param.split_once('=')?.0.to_owned());
    for param in &args.param {
        let value = param.split_once('=').map(|(name, value)| {
            let named = !name.is_empty() && !name.contains(char::is_whitespace);
            named && value.parse::<i32>().is_ok()
        });
        if value != Some(true) {
            bail!("--param \"{param}\": a parameter is NAME=NUMBER, the number of 32 bits");
        }
    }
    let Some(path) = &args.params_of else {
        return Ok(args.param.clone());
    };
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("--params-of {}", path.display()))?;
    let head = text.lines().take_while(|line| !line.starts_with("r "));
    let mut lines = head.filter_map(|line| line.strip_prefix("params "));
    let Some(line) = lines.next() else {
        bail!(
            "--params-of {}: it has no line `params`, and so is no consensus, or has no parameters",
            path.display()
        );
    };
    let own: Vec<String> = args.param.iter().filter_map(|param| name(param)).collect();
    let theirs = line.split(' ').filter(|param| {
        let name = name(param);
        name.is_some_and(|name| !own.contains(&name))
    });
    Ok(theirs
        .map(str::to_owned)
        .chain(args.param.clone())
        .collect())
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
    print::print(match json {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        up: UpArgs,
    }

    fn read(words: &[&str]) -> Result<Vec<String>> {
        let words = std::iter::once("up").chain(words.iter().copied());
        params(&Words::try_parse_from(words)?.up)
    }

    #[test]
    fn parameters_are_those_of_a_consensus_and_of_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("consensus");
        let at = path.to_str().unwrap();
        std::fs::write(
            &path,
            "known-flags x\nparams a=1 b=2 c=-3\nr x\nparams d=4\n",
        )
        .unwrap();
        assert_eq!(read(&[]).unwrap(), [""; 0]);
        assert_eq!(read(&["--params-of", at]).unwrap(), ["a=1", "b=2", "c=-3"]);
        assert_eq!(
            read(&["--params-of", at, "--param", "b=7", "--param", "e=8"]).unwrap(),
            ["a=1", "c=-3", "b=7", "e=8"]
        );
        for bad in ["b", "=1", "b=x", "b=99999999999", "b c=1"] {
            let error = read(&["--param", bad]).unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
        std::fs::write(&path, "r x\nparams d=4\n").unwrap();
        let error = read(&["--params-of", at]).unwrap_err().to_string();
        assert!(error.contains("no line `params`"), "{error}");
        assert!(read(&["--params-of", "/nowhere"]).is_err());
    }
}
