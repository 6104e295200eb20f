//! Repetitions of a simulation over one network.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::count::{Circuits, Memory, Tally, count};
use super::error::LinksError;
use super::{CIRCUITS, Chunk, Paths, REPETITIONS};
use crate::parallel;
use crate::random::{CHUNK, generator};

/// Size of a simulation, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Active circuits.
    pub circuits: u64,
    /// True if a link from A to B differs from one from B to A (Pahl et al. 2023, 4.1.4).
    pub directed: bool,
    /// Circuits are drawn and counted so often.
    pub repetitions: u32,
    /// All draws are functions of it, and of nothing else.
    pub seed: u64,
    /// They change no number.
    pub threads: usize,
}

impl Default for Plan {
    /// The circuits of November 2021 (Pahl et al. 2023, 4.2), once.
    fn default() -> Plan {
        Plan {
            circuits: 96_000,
            directed: true,
            repetitions: 1,
            seed: 1,
            threads: 1,
        }
    }
}

impl Plan {
    /// Checks the numbers of the plan.
    ///
    /// # Errors
    ///
    /// [`LinksError::Number`].
    pub fn check(&self) -> Result<(), LinksError> {
        CIRCUITS.check("circuits", self.circuits)?;
        REPETITIONS.check("repetitions", self.repetitions)?;
        parallel::THREADS.check("threads", self.threads)?;
        Ok(())
    }
}

/// The results of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// One for each repetition, in order.
    pub tallies: Vec<Tally>,
    /// Wall-clock time of drawing and counting, over all repetitions.
    pub elapsed: Duration,
}

/// Draws circuits and counts their links, as often as planned. `done` is called for each
/// repetition, from any thread.
///
/// # Errors
///
/// [`LinksError`]: a plan that cannot be run.
pub fn run(paths: &dyn Paths, plan: &Plan, done: impl Fn() + Sync) -> Result<Runs, LinksError> {
    plan.check()?;
    let begin = Instant::now();
    // Repetitions first: they share nothing. The remaining threads work within them.
    let repetitions = usize::try_from(plan.repetitions).unwrap_or(usize::MAX);
    let outer = plan.threads.min(repetitions);
    let inner = plan.threads / outer;
    let spare: Mutex<Vec<(Circuits, Memory)>> = Mutex::new(Vec::new());
    let one = |repetition: usize| {
        let taken = spare.lock().ok().and_then(|mut spare| spare.pop());
        let (mut circuits, mut memory) = taken.unwrap_or_default();
        draw(paths, plan, repetition as u64, inner, &mut circuits);
        let tally = count(&circuits, paths.relays(), plan.directed, inner, &mut memory);
        if let Ok(mut spare) = spare.lock() {
            spare.push((circuits, memory));
        }
        tally
    };
    let tallies = parallel::map(repetitions, outer, one, done);
    Ok(Runs {
        tallies,
        elapsed: begin.elapsed(),
    })
}

/// Draws the circuits of a repetition.
pub fn draw(
    paths: &dyn Paths,
    plan: &Plan,
    repetition: u64,
    threads: usize,
    circuits: &mut Circuits,
) {
    let number = plan.circuits as usize;
    for hops in [
        &mut circuits.guards,
        &mut circuits.middles,
        &mut circuits.exits,
    ] {
        hops.resize(number, 0);
    }
    let together = paths.together().clamp(1, CHUNK);
    let size = CHUNK / together * together;
    let chunks = circuits
        .guards
        .chunks_mut(size)
        .zip(circuits.middles.chunks_mut(size))
        .zip(circuits.exits.chunks_mut(size))
        .zip(0_u64..);
    let one = |(((guards, middles), exits), chunk): (((_, _), _), u64)| {
        let mut random = generator(plan.seed, repetition, chunk);
        let chunk_of = Chunk {
            guards,
            middles,
            exits,
        };
        paths.draw(&mut random, chunk * size as u64, chunk_of);
    };
    if threads <= 1 {
        chunks.for_each(one);
        return;
    }
    let chunks = Mutex::new(chunks);
    let work = || {
        // The lock is held for taking the next chunk only.
        while let Some(chunk) = chunks.lock().ok().and_then(|mut chunks| chunks.next()) {
            one(chunk);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}
