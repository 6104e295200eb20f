//! Reads the output of Shadow's hosts as results of the experiment.

use std::path::Path;
use std::time::Duration;

use weft_testnet::shadow::{CONFIGURATION, DATA, HOSTS, records_of};

use super::plan::{Plan, Simulation};
use crate::cci::{Cell, Client, Results, Testbed};
use crate::experiment::Session;

/// Results without a cell.
pub(super) fn begin(plan: &Plan, session: &Session<'_>, weft: Option<&Path>) -> Results {
    let mut results = Results::empty(session, weft);
    results.testbed = Testbed::Shadow;
    results.seed = plan.seed;
    results.seconds = plan.seconds;
    results.warm_up_s = plan.warm_up_s;
    results.repetitions = plan.repetitions;
    results.remarks.push(
        "Time is Shadow's, in which programs compute without taking any: processor time, memory and sockets of relays \
         are left out, and so are build times of circuits."
            .to_owned(),
    );
    results.remarks.extend(plan.remarks.iter().cloned());
    let more = [
        ("seed", plan.seed.to_string()),
        ("seconds to settle", plan.settle_s.to_string()),
    ];
    let more = more.map(|(name, value)| (name.to_owned(), value));
    results.more_settings.extend(more);
    results
}

/// Adds what there is of a simulation in this folder of simulations. Missing results are listed
/// with their files.
pub(super) fn add(results: &mut Results, plan: &Plan, simulation: &Simulation, folder: &Path) {
    let mut cell = Cell::unmeasured(
        simulation.arm,
        simulation.congestion_control,
        (simulation.scenario.clone(), simulation.traffic),
        simulation.repetition,
    );
    let folder = folder.join(&simulation.folder);
    let hosts = folder.join(DATA).join(HOSTS);
    if !hosts.is_dir() {
        cell.failure = Some(format!(
            "there is no {}: run `shadow {CONFIGURATION}` in {}",
            hosts.display(),
            folder.display()
        ));
        results.runs.push(cell);
        return;
    }
    // A length that is none is a plan of somebody else's, in which nothing was measured.
    let length = Duration::try_from_secs_f64(plan.seconds).unwrap_or_default();
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for user in &simulation.users {
        let (records, problem) = records_of(&hosts, user);
        problems.extend(problem);
        let Some(records) = records else {
            continue;
        };
        cell.clients
            .push(Client::of(&user.host, &user.model, records.iter(), length));
        all.extend(records);
    }
    if cell.clients.is_empty() {
        let first = problems.into_iter().next();
        cell.failure = Some(first.unwrap_or_else(|| "it has no users".to_owned()));
        results.runs.push(cell);
        return;
    }
    cell.bytes = all.iter().map(|record| record.times.down.bytes).sum();
    results.runs.push(cell);
    results.add_records(results.runs.len() - 1, all);
    results.missing.extend(problems);
}
