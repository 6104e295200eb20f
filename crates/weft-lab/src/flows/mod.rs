//! Users of the traffic models (`weft-model`) on real sockets: [`run`] drives any number of them through
//! SOCKS ports, or straight, against a [`FlowServer`], for a bounded time.
//!
//! A few threads wait in epoll for all streams; nothing has a thread of its own. What a user does is a
//! function of the seed and of when its streams end; every byte is checked at both ends. When the time is
//! over, the stop is requested, or nothing can happen any more, what was measured is returned, and streams that
//! are open are records, too (`Unfinished`).
//!
//! [`measure`] is the experiment `weft lab traffic`. [`crate::traffic`] moves single payloads with hashes, for tests
//! and measurements that need no users.

mod client;
mod connection;
pub mod measure;
pub mod process;
mod server;
mod socket;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use weft_model::traffic::{Model, Record};

use crate::net::Host;
use crate::stop::Stop;

pub use server::FlowServer;

/// How often threads look whether they are to stop.
const BEAT: Duration = Duration::from_millis(100);

/// A user of a model, and how it reaches its server.
#[derive(Clone, Debug)]
pub struct FlowClient {
    /// Its name in records.
    pub name: String,
    /// The name of its model in records.
    pub model_name: String,
    /// What it does.
    pub model: Model,
    /// When it begins.
    pub start: Duration,
    /// The SOCKS5 port that it asks for connections; `None`: it connects to servers itself.
    ///
    /// Streams of different clients, and of different flows of one, have different user names there, which
    /// keeps them on different circuits (IsolateSOCKSAuth).
    pub proxy: Option<SocketAddr>,
    /// Servers, as exits reach them, at least one. Streams go to them one after another.
    pub servers: Vec<SocketAddr>,
}

/// How clients are driven.
#[derive(Clone, Copy, Debug)]
pub struct FlowSettings {
    /// How long, from the first action.
    pub duration: Duration,
    /// Payloads, pauses and sizes are functions of it.
    pub seed: u64,
    /// How many threads drive clients, at least 1.
    pub threads: usize,
}

/// Drives clients until the time is over or `stop` is requested. The records are in the order of the clients
/// and, of each, of their streams.
///
/// # Errors
///
/// There are no clients, or the system refuses threads or epoll. A stream that fails is a record.
pub fn run(clients: &[FlowClient], settings: FlowSettings, stop: &Stop) -> Result<Vec<Record>> {
    ensure!(!clients.is_empty(), "there are no traffic clients to drive");
    if let Some(client) = clients.iter().find(|client| client.servers.is_empty()) {
        bail!("the traffic client {} has no server", client.name);
    }
    let threads = settings.threads.clamp(1, clients.len());
    let start = Instant::now();
    let mut records: Vec<(usize, Record)> = thread::scope(|scope| {
        let mut running = Vec::new();
        for share in 0..threads {
            let driver = client::Driver::new(clients, share, threads, settings, start)?;
            let thread = thread::Builder::new()
                .name(format!("flows {share}"))
                .spawn_scoped(scope, move || driver.run(stop))
                .context("starting a thread for traffic clients")?;
            running.push(thread);
        }
        let mut records = Vec::new();
        for thread in running {
            let result = thread
                .join()
                .map_err(|_| anyhow!("a thread of clients panicked"))?;
            records.extend(result?);
        }
        anyhow::Ok(records)
    })?;
    records.sort_by_key(|(client, record)| (*client, record.stream));
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

/// Clients of one host.
#[derive(Clone, Debug)]
pub struct Site {
    /// A host of a testbed; `None`: this machine.
    pub host: Option<Host>,
    /// At least one.
    pub clients: Vec<FlowClient>,
}

/// Drives clients of several hosts at once, as [`run`] does those of one. The records are in the order of the sites.
///
/// # Errors
///
/// As [`run`]; a host is gone.
pub fn run_on(sites: &[Site], settings: FlowSettings, stop: &Stop) -> Result<Vec<Record>> {
    ensure!(!sites.is_empty(), "there are no traffic clients to drive");
    let records: Vec<Result<Vec<Record>>> = thread::scope(|scope| {
        let running: Vec<_> = (0..)
            .zip(sites)
            .map(|(index, site)| {
                let settings = FlowSettings {
                    // The same users on different hosts are different.
                    seed: settings.seed.wrapping_mul(1_000).wrapping_add(index),
                    ..settings
                };
                let drive = move || run(&site.clients, settings, stop);
                scope.spawn(move || match &site.host {
                    Some(host) => host.enter(drive)?,
                    None => drive(),
                })
            })
            .collect();
        let ended = running.into_iter().map(|thread| {
            let panicked = |_| anyhow!("a thread of users panicked");
            thread.join().map_err(panicked)?
        });
        ended.collect()
    });
    let records: Result<Vec<Vec<Record>>> = records.into_iter().collect();
    Ok(records?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests;
