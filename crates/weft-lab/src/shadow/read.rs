//! What Shadow's hosts wrote, as results of the experiment.

use std::fs;
use std::path::Path;
use std::time::Duration;

use weft_model::traffic::Record;

use super::network::{CONFIGURATION, DATA, HOSTS};
use super::plan::{Plan, PlannedUser, Simulation};
use super::simulation::RECORDS;
use crate::cci::{Cell, Client, Results, Testbed};
use crate::experiment::Session;

/// The longest file of records that is read.
const MAX_BYTES: u64 = 1 << 30;

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

/// Adds what there is of a simulation in this folder of simulations. What is missing is among the results, with its
/// file.
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

/// The records of a user, and what is wrong with them.
pub(crate) fn records_of(
    hosts: &Path,
    user: &PlannedUser,
) -> (Option<Vec<Record>>, Option<String>) {
    let path = hosts.join(&user.host).join(RECORDS);
    let shown = path.display();
    let absent = |why: String| (None, Some(why));
    let text = match fs::metadata(&path) {
        Ok(file) if file.len() > MAX_BYTES => {
            return absent(format!(
                "{shown} has {} bytes: these are no records",
                file.len()
            ));
        }
        Ok(_) => fs::read_to_string(&path),
        Err(error) => Err(error),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return absent(format!(
                "{shown} is missing: the simulation did not come to its end, or the user failed (shadow.log and the \
                 files *.stderr beside it have the reason)"
            ));
        }
        Err(error) => return absent(format!("{shown} cannot be read: {error}")),
    };
    let mut records = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        match serde_json::from_str::<Record>(line) {
            Ok(record) if record.client == user.host && record.model == user.model => {
                records.push(record);
            }
            Ok(record) => {
                let problem = format!(
                    "{shown}:{number}: a stream of {} ({}), and the plan has {} ({}) there",
                    record.client, record.model, user.host, user.model
                );
                return (Some(records), Some(problem));
            }
            Err(error) => {
                let problem =
                    format!("{shown}:{number} is no record, and what follows is left out: {error}");
                return (Some(records), Some(problem));
            }
        }
    }
    (Some(records), None)
}
