//! Measures on a host of a simulation: `weft lab simulated-host FILE`, a process beside each node.
//! It samples a relay by its MetricsPort; for a client it drives the user, and notes the events of
//! its circuits. It writes the results as files in the host's folder, which is its current one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result};
use weft_load::flows::{self, FlowClient, FlowSettings};
use weft_model::traffic::records::json_lines;
use weft_testnet::control::Control;
use weft_testnet::nodes::close_circuits;
use weft_testnet::overlay::place::{CONTROL_PORT, SOCKS_PORT};
use weft_testnet::shadow::RECORDS;
use weft_testnet::shadow::network::write;
use weft_testnet::stop::Stop;

use super::super::netns::circuits::Watch;
use super::super::netns::relays::Sampler;
use super::read;
use super::work::{CIRCUITS, Client, MAX_BYTES, RELAY, Relay, RelayFile, Task, Work};
use crate::experiment::json;

/// Measures on a host of a simulated network what a file asks for.
#[derive(Debug, clap::Args)]
pub struct HostArgs {
    /// The file that `weft lab` wrote for this host.
    file: PathBuf,
}

/// Measures, and writes the files.
///
/// # Errors
///
/// The file is none of ours, the node does not answer, or the system refuses.
pub fn measure(args: &HostArgs, stop: &Stop) -> Result<()> {
    let work: Work = read::json(&args.file, MAX_BYTES)?;
    match &work.task {
        Task::Relay(relay) => work.relay(relay),
        Task::Client(client) => work.client(client, stop),
    }
}

impl Work {
    /// Sleeps until the run begins.
    fn wait(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        thread::sleep(self.begin.saturating_sub(now.unwrap_or_default()));
    }

    fn relay(&self, relay: &Relay) -> Result<()> {
        self.wait();
        let begun = Instant::now();
        let mut sampler = Sampler::here(&self.host, relay.interval)?;
        loop {
            let elapsed = begun.elapsed();
            sampler.sample(elapsed.min(self.duration))?;
            let Some(left) = self
                .duration
                .checked_sub(elapsed)
                .filter(|left| !left.is_zero())
            else {
                break;
            };
            thread::sleep(sampler.until_next(elapsed).min(left));
        }
        let (mut results, cells) = sampler.finish(self.duration)?;
        let mut results = results.pop().context("no relay was sampled")?;
        // Programs compute in no time there, and what is counted as processor time is that of the clock.
        results.busy = 0.0;
        write(Path::new(RELAY), &json(&RelayFile { results, cells })?)
    }

    fn client(&self, client: &Client, stop: &Stop) -> Result<()> {
        let [control, socks] =
            [CONTROL_PORT, SOCKS_PORT].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let cookie = Path::new(&self.nickname).join("data/control_auth_cookie");
        let connect = || Control::connect_port(control, &cookie);
        // Its present circuits were built when nothing was lost.
        let watch = Watch::of(connect()?, self.host.clone(), &client.names)?;
        close_circuits(&mut connect()?)?;
        self.wait();
        let begun = Instant::now();
        let user = FlowClient {
            name: self.host.clone(),
            model_name: client.model_name.clone(),
            model: client.model.clone(),
            start: client.start,
            proxy: Some(socks),
            servers: client.servers.clone(),
        };
        let settings = FlowSettings {
            duration: self.duration,
            seed: client.seed,
            threads: 1,
        };
        let records = flows::run(&[user], settings, stop)?;
        let circuits = watch.finish(begun, self.duration);
        write(Path::new(CIRCUITS), &json(&circuits)?)?;
        // Last: with this file all is there.
        write(
            Path::new(RECORDS),
            &json_lines(&records).context("writing JSON")?,
        )
    }
}
