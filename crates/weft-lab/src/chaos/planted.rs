//! `weft lab chaos --planted`: which planted faults the rounds of a seed find.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use weft_model::links::nearest;
use weft_planted::{Fault, HAS_HOOKS};
use weft_virtual::chaos::{Checks, Round, hunt, run_with, shrink};

use weft_cli::say;

use super::files::write;

/// Settings of a search for planted faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings<'a> {
    pub(super) seed: u64,
    /// Events of the network for each fault at most.
    pub(super) events: u64,
    /// Runs at most while a round that fails is made smaller.
    pub(super) tries: u32,
    /// Where rounds that fail are written to.
    pub(super) keep: &'a Path,
}

/// The faults of these names, or all faults if there is none.
///
/// # Errors
///
/// This program has no hooks, or a fault does not exist.
pub(super) fn named(names: &[String]) -> Result<Vec<Fault>> {
    ensure!(
        HAS_HOOKS,
        "this program was built without hooks for faults; cargo xtask chaos --planted builds one that has them"
    );
    if names.is_empty() {
        return Ok(Fault::ALL.to_vec());
    }
    let found = names
        .iter()
        .map(|name| Fault::named(name).ok_or_else(|| unknown(name)));
    found.collect()
}

fn unknown(name: &str) -> anyhow::Error {
    let names = || Fault::ALL.iter().map(|fault| fault.name());
    let hint =
        nearest(name, names()).map_or_else(String::new, |near| format!("; did you mean {near}?"));
    let all: Vec<&str> = names().collect();
    anyhow!(
        "there is no fault {name:?}{hint} (there are {})",
        all.join(", ")
    )
}

/// Runs the same rounds without a fault and with each of these, and prints a row of a table for
/// each fault. Returns true if everything held without a fault, and every fault was found.
///
/// # Errors
///
/// A round cannot be written.
pub(super) fn find(faults: &[Fault], settings: Settings<'_>, base: Instant) -> Result<bool> {
    let Settings { seed, events, .. } = settings;
    let honest = hunt(None, seed, events, base);
    if let Some((number, failure)) = &honest.found {
        say!("Seed {seed}, round {number}, fails without a planted fault {failure}");
        return Ok(false);
    }
    say!(
        "Without a fault {} rounds of seed {seed} hold ({} events, {:.0} s).\n",
        honest.rounds,
        honest.events,
        base.elapsed().as_secs_f64()
    );
    say!("| fault | planted | found by | events until then | round, smallest round |");
    say!("|---|---|---|---|---|");
    let mut missed = Vec::new();
    for fault in faults.iter().copied() {
        if !find_one(fault, settings, base)? {
            missed.push(fault.name());
        }
    }
    let found = faults.len() - missed.len();
    say!(
        "\nFound: {found} of {} in {:.0} s.",
        faults.len(),
        base.elapsed().as_secs_f64()
    );
    if !missed.is_empty() {
        say!("Not found: {}.", missed.join(", "));
    }
    Ok(missed.is_empty())
}

/// Returns true if the fault is found. Prints and writes it at once, so that Ctrl-C loses nothing.
fn find_one(fault: Fault, settings: Settings<'_>, base: Instant) -> Result<bool> {
    let Settings {
        seed,
        events,
        tries,
        keep,
    } = settings;
    let start = Instant::now();
    let hunt = hunt(Some(fault), seed, events, base);
    let (name, what, every) = (fault.name(), fault.what(), fault.every());
    let what = match every {
        1 => what.to_owned(),
        _ => format!("{what}, one in {every}"),
    };
    let Some((number, failure)) = &hunt.found else {
        say!(
            "| {name} | {what} | nothing; its place was passed {} times | {} | |",
            hunt.passed,
            hunt.events
        );
        return Ok(false);
    };
    let round = Round::draw(seed, *number);
    write(&keep.join(format!("planted-{name}.json")), &round)?;
    let mut left = tries;
    let small = shrink(&round, |candidate| {
        left = left.saturating_sub(1);
        left > 0 && fails(fault, candidate, base)
    });
    write(&keep.join(format!("planted-{name}-small.json")), &small)?;
    say!(
        "| {name} | {what} | {} | {} | {number}: {} → {} ({:.1} s) |",
        failure.what.replace('|', "/"),
        hunt.events,
        shape(&round),
        shape(&small),
        start.elapsed().as_secs_f64()
    );
    Ok(true)
}

fn fails(fault: Fault, round: &Round, base: Instant) -> bool {
    let (ran, _) = run_with(Some(fault), round, Checks::Often, base);
    ran.failure.is_some()
}

/// Relays, clients and faults of a round.
fn shape(round: &Round) -> String {
    format!(
        "{}, {}, {}",
        round.relays.len(),
        round.clients.len(),
        round.faults.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_does_not_exist_is_answered_with_the_nearest_and_all_names() {
        let error = named(&["destroy-droped".to_owned()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean destroy-dropped?"), "{error}");
        assert!(error.contains("age-reset"), "{error}");
        let far = named(&["nonsense".to_owned()]).unwrap_err().to_string();
        assert!(!far.contains("did you mean"), "{far}");
        assert_eq!(named(&[]).unwrap().len(), Fault::ALL.len());
        let one = named(&["age-reset".to_owned()]).unwrap();
        assert_eq!(one, [Fault::AgeReset]);
    }
}
