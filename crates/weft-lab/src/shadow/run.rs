//! Shadow, one simulation after another.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use weft_testnet::shadow::{simulate_in, version};

use super::prepare::Prepare;
use super::read;
use crate::cci::Results;
use crate::experiment::{Progress, Session};

/// The folder of the simulations in that of the results.
const FOLDER: &str = "simulations";
/// Failed simulations in a row that end the experiment: the others would fail, too.
const FAILURES: usize = 3;

/// Writes, runs and reads all simulations, and keeps the results after each.
///
/// # Errors
///
/// The simulations cannot be written, Shadow cannot be started, or results cannot be kept.
pub(super) fn all(prepare: &Prepare, shadow: &Path, session: &mut Session<'_>) -> Result<Results> {
    let folder = session.folder().context("simulations need a folder")?;
    // Shadow runs in the folders of the simulations.
    let folder = fs::canonicalize(folder).context("finding the folder of the results")?;
    let folder = folder.join(FOLDER);
    let plan = prepare.write(&folder)?;
    let settings = &prepare.settings;
    let mut results = read::begin(&plan, session, Some(&settings.weft));
    results
        .more_settings
        .extend(version(shadow).map(|version| ("shadow".to_owned(), version)));
    let stop = session.stop();
    let mut failures = 0;
    for (number, simulation) in plan.simulations.iter().enumerate() {
        let place = folder.join(&simulation.folder);
        let mut progress = |part: f64| {
            session.progress(&Progress {
                done: (number as f64 + part) / plan.simulations.len().max(1) as f64,
                step: simulation.folder.clone(),
                detail: "simulating".to_owned(),
            });
        };
        progress(0.0);
        let whole = settings.stop_at().as_secs_f64();
        let ended = simulate_in(
            shadow,
            &place,
            || stop.is_requested(),
            |now| {
                progress((now.as_secs_f64() / whole).min(1.0));
            },
        )?;
        let Some(ended) = ended else {
            results.sum_up();
            return Ok(results);
        };
        read::add(&mut results, &plan, simulation, &folder);
        let failed = results.runs.last().and_then(|run| run.failure.clone());
        if let Err(why) = ended {
            let why = format!("{}: {why}", simulation.folder);
            session.note(&why);
            results.missing.push(why);
        }
        failures = if failed.is_some() { failures + 1 } else { 0 };
        results.sum_up();
        session.keep(&results)?;
        if failures == FAILURES {
            session.note(&format!(
                "{FAILURES} simulations in a row have no results: giving up"
            ));
            return Ok(results);
        }
    }
    results.finished = true;
    Ok(results)
}
