//! One job in virtual time.

use std::time::{Duration, Instant};

use anyhow::Result;
use weft_virtual::World;

use super::job::{Job, Measured};
use super::source::Source;
use crate::jobs::Meter;

/// Virtual time that the world runs between checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(100);

/// Runs it to its end, or until Ctrl-C.
///
/// # Errors
///
/// The scenario is wrong in a way that shows only now: file, line, and what to do.
pub(crate) fn run(source: &Source, job: &Job, seed: u64, meter: &Meter<'_>) -> Result<Measured> {
    let (scenario, files) = (&source.scenario, &source.files);
    let setup = scenario.setup(files, job.arm_number, job.repetition, seed)?;
    let clients = setup.clients.len();
    let mut world = World::new(setup, Instant::now());
    let (mut at, end) = (Duration::ZERO, scenario.duration);
    while at < end && !meter.is_stopped() {
        at = end.min(at + SLICE);
        world.run_until(at);
        meter.at(at);
    }
    Ok(Measured {
        clients,
        results: world.into_results(),
    })
}
