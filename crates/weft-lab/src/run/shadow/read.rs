//! Results of what the hosts of a simulation wrote.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::de::DeserializeOwned;
use weft_testnet::shadow::{PlannedUser, records_of};
use weft_virtual::results::CircuitResults;
use weft_virtual::{Results, Scenario, Setup};

use super::super::netns::host_name;
use super::work::{CIRCUITS, RELAY, RelayFile};

/// The longest file that is read.
const MAX_BYTES: u64 = 1 << 30;

/// The results of a job, from the folders of its hosts.
///
/// # Errors
///
/// A file is missing or damaged: which, and why it may be so.
pub(super) fn results(scenario: &Scenario, setup: &Setup, hosts: &Path) -> Result<Results> {
    let mut results = Results {
        simulated: scenario.duration,
        interval: scenario.interval,
        ..Results::default()
    };
    for relay in &setup.relays {
        let name = host_name(setup, relay.host)?;
        let path = hosts.join(name).join(RELAY);
        let file: RelayFile = json(&path, MAX_BYTES)?;
        ensure!(
            file.results.name == name,
            "{} is of the host {:?}",
            path.display(),
            file.results.name
        );
        results.relayed_bytes = results.relayed_bytes.saturating_add(file.cells);
        results.relays.push(file.results);
    }
    for client in &setup.clients {
        let host = host_name(setup, client.host)?.to_owned();
        let path = hosts.join(&host).join(CIRCUITS);
        let circuits: Vec<CircuitResults> = json(&path, MAX_BYTES)?;
        let is_other = |circuit: &&CircuitResults| circuit.client != host;
        if let Some(other) = circuits.iter().find(is_other) {
            bail!("{} has a circuit of {:?}", path.display(), other.client);
        }
        results.circuits.extend(circuits);
        let user = PlannedUser {
            host,
            model: client.model_name.clone(),
        };
        let (records, problem) = records_of(hosts, &user);
        if let Some(problem) = problem {
            bail!("{problem}");
        }
        results.streams.extend(records.unwrap_or_default());
    }
    results.streams.sort_by_key(|record| record.started);
    results.circuits.sort_by_key(|circuit| circuit.began);
    Ok(results)
}

/// Reads a JSON file of bounded size.
///
/// # Errors
///
/// It is missing, longer, or has another shape.
pub(super) fn json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T> {
    let shown = path.display();
    let length = match fs::metadata(path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "{shown} is missing: the simulation did not come to its end, or what measures there failed (shadow.log and \
             the files *.stderr beside it have the reason)"
        ),
        Err(error) => bail!("{shown} cannot be read: {error}"),
    };
    ensure!(
        length <= most,
        "{shown} has {length} bytes: it is none of ours"
    );
    let file = File::open(path).with_context(|| format!("reading {shown}"))?;
    serde_json::from_reader(BufReader::new(file))
        .with_context(|| format!("{shown} has not the shape that weft lab writes"))
}
