//! `weft sim balance`: how evenly links load the connection threads of a relay.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use weft_cli::print;
use weft_sim::balance::{self, BalanceOptions, Row, pieces, simulate};

use super::given::Common;
use super::output::Format;
use crate::program::progress::progress_bar;

/// Computes by how much the busiest connection thread of a relay exceeds the mean, with links that
/// are only placed and with links that move.
///
/// Circuits with heavy-tailed rates open and close on links to the relays of a synthetic network,
/// by their weight. The code that a relay runs chooses the threads. The mean thread works half of
/// its time.
#[derive(Debug, Args)]
pub(super) struct BalanceArgs {
    /// Numbers of connection threads.
    #[arg(long = "connection-threads", value_name = "N,N", value_delimiter = ',', default_value = "2,4,8,16", value_parser = balance::THREADS.parser())]
    connection_threads: Vec<u16>,
    /// Relays that the relay may have links with.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = balance::PEERS.parser())]
    peers: u32,
    /// Circuits at the same time, on average.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = balance::CIRCUITS.parser())]
    circuits: u64,
    /// Hours to simulate.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = balance::HOURS.parser())]
    hours: u64,
    /// Repetitions.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = balance::REPETITIONS.parser())]
    repeat: u64,
    #[command(flatten)]
    common: Common,
}

pub(super) fn main(args: &BalanceArgs) -> Result<()> {
    let options = BalanceOptions {
        threads: args.connection_threads.clone(),
        peers: args.peers,
        circuits: args.circuits,
        hours: args.hours,
        repetitions: args.repeat,
        seed: args.common.seed,
        workers: args.common.threads(),
    };
    let folder = args.common.folder()?;
    let bar = progress_bar();
    bar.set_message("simulating threads");
    let done = AtomicU64::new(0);
    let rows = simulate(&options, || {
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.set_position((count as f64 / pieces(&options).max(1) as f64 * 1000.0) as u64);
    })?;
    bar.finish_and_clear();
    let as_json = json!({ "options": options, "rows": rows });
    let as_json = serde_json::to_string_pretty(&as_json)? + "\n";
    if let Some(folder) = folder {
        folder.write("results.json", &as_json)?;
    }
    print::print(&match args.common.format {
        Format::Json => as_json,
        Format::Human => table(&options, &rows),
    })
}

fn table(options: &BalanceOptions, rows: &[Row]) -> String {
    let mut text = format!(
        "{} circuits on links to {} relays, {} hours; ± 95 % over {} repetitions\n\n\
         threads   links       busiest above mean   in 1/20 of the time   past 10 %, of the time   moves an hour\n",
        options.circuits, options.peers, options.hours, options.repetitions,
    );
    for row in rows {
        let links = match row.moves {
            true => "move",
            false => "placed",
        };
        let _ = writeln!(
            text,
            "{:>7}   {links:<6} {:>21.1} % {:>17.1} % {:>20.1} % {:>17.1}",
            row.threads,
            row.above_mean_percent,
            row.above_mean_percent_p95,
            row.past_tenth_percent,
            row.moves_per_hour,
        );
    }
    text
}
