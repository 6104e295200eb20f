//! The users of the traffic models, and their server, as processes of their own: `weft lab flow-client` and `weft lab
//! flow-server`, which simulated hosts run.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use weft_load::flows::{FlowClient, FlowServer, FlowSettings, run};
use weft_model::traffic::records::json_lines;
use weft_model::traffic::{MAX_BYTES, Model, ModelName, Pause, Plan};
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::stop::Stop;

use crate::args::LASTS;

/// Interval at which the server checks whether it should end: long, as each check is an event of
/// the simulation.
const LOOK: Duration = Duration::from_secs(1);
/// Users of one client.
const USERS: Bounds<u32> = Bounds::new(1, 1000);

/// Lets users do what their model does, and writes a record of each of their streams.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// The user's name in records, and for the SOCKS port.
    #[arg(long)]
    name: String,
    /// Its traffic model; without this, downloads that never end.
    #[arg(long)]
    model: Option<ModelName>,
    /// Number of such users.
    #[arg(long, default_value_t = 1, value_parser = USERS.parser())]
    users: u32,
    /// The SOCKS port to go through.
    #[arg(long, value_name = "IP:PORT")]
    socks: Option<SocketAddr>,
    /// The server.
    #[arg(long, value_name = "IP:PORT")]
    server: SocketAddr,
    /// For so long.
    #[arg(long, value_parser = LASTS.parser(), value_name = "SECONDS")]
    seconds: Duration,
    /// Seed of payloads and pauses.
    #[arg(long, default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// The file for the records, JSON on each line.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Answers the streams of users until SIGINT or SIGTERM.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Where to listen.
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
}

/// Downloads that last longer than any simulation.
fn endless() -> Model {
    Model::Repeat {
        plan: Plan::download(MAX_BYTES),
        pause: Pause::None,
    }
}

/// Drives the users, and writes the records at the end.
///
/// # Errors
///
/// The system refuses sockets or the file. A stream that fails is a record.
pub fn client(args: &ClientArgs, stop: &Stop) -> Result<()> {
    let (model_name, model) = match args.model {
        Some(name) => (name.name(), name.model()),
        None => ("endless", endless()),
    };
    let client = FlowClient {
        name: args.name.clone(),
        model_name: model_name.to_owned(),
        model,
        start: Duration::ZERO,
        proxy: args.socks,
        servers: vec![args.server],
    };
    let clients = vec![client; args.users as usize];
    let settings = FlowSettings {
        duration: args.seconds,
        seed: args.seed,
        threads: 1,
    };
    let records = run(&clients, settings, stop)?;
    let text = json_lines(&records).context("writing JSON")?;
    fs::write(&args.out, text).with_context(|| format!("writing {}", args.out.display()))
}

/// Serves until the stop is requested.
///
/// # Errors
///
/// The address is in use.
pub fn server(args: &ServerArgs, stop: &Stop) -> Result<()> {
    let _server = FlowServer::start(args.listen)?;
    while !stop.is_requested() {
        thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weft_model::traffic::records::from_json_lines;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        args: ClientArgs,
    }

    #[test]
    fn a_user_writes_a_record_of_each_stream() {
        let server = FlowServer::start(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a server");
        let server = server.address().to_string();
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("records.jsonl");
        let out = out.to_str().expect("UTF-8");
        let run = |words: &[&str]| {
            let common = ["x", "--server", &server, "--seconds", "0.5", "--out", out];
            let whole = Whole::try_parse_from(common.iter().chain(words)).expect("arguments");
            client(&whole.args, &Stop::default()).expect("driven");
            from_json_lines(&fs::read_to_string(out).expect("records")).expect("records")
        };
        let records = run(&["--name", "client1", "--model", "bulk"]);
        assert!(!records.is_empty());
        for record in &records {
            assert_eq!((&*record.client, &*record.model), ("client1", "bulk"));
        }
        // Two that never end.
        let records = run(&["--name", "background-0", "--users", "2"]);
        assert_eq!(records.len(), 2, "{records:?}");
        assert!(records.iter().all(|record| !record.is_complete()));
    }
}
