//! Threads that drive users.

use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use weft_model::traffic::Record;
use weft_testnet::stop::Stop;

use super::client::Driver;
use super::clients::{FlowClient, FlowSettings, Site};

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
            let driver = Driver::new(clients, share, threads, settings, start)?;
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
                    // Equal users on different hosts behave differently.
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
