//! A simulation over many documents, each as soon as it is read.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::Paths;
use super::error::LinksError;
use super::run::{Plan, run};
pub use super::sample::DocumentResult;
use super::sample::Sample;
use crate::network::{Flags, Network};
use crate::random::seed_for;
use crate::read::{Document, ReadError, documents, parse};

/// Makes a model of paths for a network.
pub type Build<'a> =
    dyn Fn(&Network) -> Result<Box<dyn Paths>, Box<dyn Error + Send + Sync>> + Sync + 'a;

/// Prepares a network that was read, by scaling it for example.
pub type Prepare<'a> = dyn Fn(Network) -> Result<Network, Box<dyn Error + Send + Sync>> + Sync + 'a;

/// Work to do for each document.
pub struct Work<'a> {
    /// Before anything is simulated.
    pub prepare: &'a Prepare<'a>,
    /// The model.
    pub build: &'a Build<'a>,
    /// Repetitions on each document. The threads are for everything together.
    pub plan: Plan,
    /// Called after each repetition and after each document.
    pub done: &'a (dyn Fn(Done) + Sync),
}

/// A piece of work that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A repetition.
    Repetition,
    /// A document with all its repetitions.
    Document,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// A document cannot be used.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The plan makes no sense.
    #[error(transparent)]
    Plan(#[from] LinksError),
    /// The document's network cannot be simulated.
    #[error("{name}: {error}")]
    Network {
        /// The document.
        name: String,
        /// Why.
        error: Box<dyn Error + Send + Sync>,
    },
}

/// Simulates each document that the paths name, and returns the results in their order.
///
/// One document has all threads; of several each has one.
///
/// # Errors
///
/// [`SimulationError`], of the first document that has one.
pub fn simulate(
    paths: &[PathBuf],
    work: &Work<'_>,
) -> Result<Vec<DocumentResult>, SimulationError> {
    let threads = work.plan.threads;
    work.plan.check()?;
    let results: Mutex<Vec<(usize, Result<DocumentResult, SimulationError>)>> = Mutex::default();
    let keep = |number, result| {
        if let Ok(mut results) = results.lock() {
            results.push((number, result));
        }
    };
    let mut first = None;
    let read = thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel::<(usize, Document)>(1);
        let receive = std::sync::Arc::new(Mutex::new(receive));
        let mut count = 0_usize;
        let result = documents(paths, &mut |document| {
            count += 1;
            if count == 1 {
                first = Some(document);
                return Ok(());
            }
            if let Some(first) = first.take() {
                for _ in 0..threads {
                    let receive = receive.clone();
                    scope.spawn(move || {
                        loop {
                            // The lock is released before the document is worked on.
                            let next = receive.lock().ok().and_then(|next| next.recv().ok());
                            let Some((number, document)) = next else {
                                break;
                            };
                            keep(number, one(document, work, 1));
                        }
                    });
                }
                let _ = send.send((1, first));
            }
            // Threads end only when this end does.
            let _ = send.send((count, document));
            Ok(())
        });
        drop(send);
        result
    });
    if let Some(document) = first {
        keep(1, one(document, work, threads));
    }
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(number, _)| *number);
    let results = results.into_iter().map(|(_, result)| result);
    let results = results.collect::<Result<Vec<_>, _>>()?;
    read.map_err(|error: SimulationError| error)?;
    Ok(results)
}

fn one(
    document: Document,
    work: &Work<'_>,
    threads: usize,
) -> Result<DocumentResult, SimulationError> {
    let begin = Instant::now();
    let network = parse(&document.text, &document.name)?;
    let parse = begin.elapsed();
    let name = document.name;
    drop(document.text);
    of_network(name, network, parse, work, threads)
}

/// Simulates a network that is there already.
///
/// # Errors
///
/// [`SimulationError`].
pub fn of_network(
    name: String,
    network: Network,
    parse: Duration,
    work: &Work<'_>,
    threads: usize,
) -> Result<DocumentResult, SimulationError> {
    let of_it = |error| SimulationError::Network {
        name: name.clone(),
        error,
    };
    let network = (work.prepare)(network).map_err(of_it)?;
    let paths = (work.build)(&network).map_err(of_it)?;
    let plan = Plan {
        seed: seed_for(work.plan.seed, &network.valid_after),
        threads,
        ..work.plan
    };
    let runs = run(paths.as_ref(), &plan, || (work.done)(Done::Repetition))?;
    let has = |yes: Flags, no: Flags| {
        let flags = network.relays.iter().map(|relay| relay.flags);
        flags
            .filter(|flags| flags.has(yes) && (no == Flags::default() || !flags.has(no)))
            .count()
    };
    let result = DocumentResult {
        relays: network.relays.len(),
        guards: has(Flags::GUARD, Flags::default()),
        exits: has(Flags::EXIT, Flags::BAD_EXIT),
        samples: runs
            .tallies
            .into_iter()
            .map(|tally| Sample::new(tally, &network))
            .collect(),
        parse,
        elapsed: runs.elapsed,
        valid_after: network.valid_after,
        name,
    };
    (work.done)(Done::Document);
    Ok(result)
}
