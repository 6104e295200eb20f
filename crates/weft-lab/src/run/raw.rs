//! Everything that was measured, as files: for notebooks, and for [merging](super::merge).

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use weft_model::traffic::Record;

use super::job::Job;
use super::results::{Outcome, Results};

/// All but the streams of each job, a JSON object in each line.
pub(super) const JOBS: &str = "jobs.jsonl";
/// Every stream, a JSON object in each line.
pub(super) const STREAMS: &str = "streams.jsonl";
/// The scenario, as it was read.
pub(super) const SCENARIO: &str = "scenario.toml";
/// The report itself.
pub(super) const RESULTS: &str = "results.json";

/// A line of [`STREAMS`].
#[derive(Serialize)]
struct Line<'a> {
    arm: &'a str,
    repetition: u32,
    #[serde(flatten)]
    record: &'a Record,
}

/// A line of [`STREAMS`] when it is read.
#[derive(Deserialize)]
struct OwnLine {
    arm: String,
    repetition: u32,
    #[serde(flatten)]
    record: Record,
}

/// The files.
///
/// # Errors
///
/// A number has no form in JSON.
pub(super) fn files(results: &Results) -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        (SCENARIO, results.text.clone()),
        (JOBS, lines(&results.outcomes)?),
        (STREAMS, streams(&results.outcomes)?),
        ("relays.csv", relays(&results.outcomes)),
        ("circuits.csv", circuits(&results.outcomes)),
    ])
}

fn lines<T: Serialize>(all: impl IntoIterator<Item = T>) -> Result<String> {
    let mut text = String::new();
    for one in all {
        text += &serde_json::to_string(&one).context("writing JSON")?;
        text.push('\n');
    }
    Ok(text)
}

fn streams(outcomes: &[Outcome]) -> Result<String> {
    lines(outcomes.iter().flat_map(|outcome| {
        outcome.streams.iter().map(|record| Line {
            arm: &outcome.job.arm,
            repetition: outcome.job.repetition,
            record,
        })
    }))
}

/// A line for each interval of each relay.
fn relays(outcomes: &[Outcome]) -> String {
    let mut text =
        "arm,repetition,relay,from_s,to_s,written_bytes,queued_bytes,abra_weight\n".to_owned();
    for Outcome { job, results, .. } in outcomes {
        for relay in &results.relays {
            let name = quoted(&relay.name);
            for (number, written) in relay.written.iter().enumerate() {
                let (from, to) = interval(results, number);
                let queued = relay.queued.get(number).copied();
                let queued = queued.map_or_else(String::new, |bytes| bytes.to_string());
                let weight = relay.weights.get(number).copied();
                let weight = weight.map_or_else(String::new, |weight| weight.to_string());
                let _ = writeln!(
                    text,
                    "{},{},{name},{},{},{written},{queued},{weight}",
                    quoted(&job.arm),
                    job.repetition,
                    from.as_secs_f64(),
                    to.as_secs_f64(),
                );
            }
        }
    }
    text
}

/// When an interval of relays' series began and ended.
pub(super) fn interval(results: &weft_virtual::Results, number: usize) -> (Duration, Duration) {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let from = results.interval.saturating_mul(number);
    let to = from.saturating_add(results.interval);
    (from, to.min(results.simulated).max(from))
}

/// A line for each circuit.
fn circuits(outcomes: &[Outcome]) -> String {
    let mut text = "arm,repetition,client,path,began_s,built_s,round_trips_s\n".to_owned();
    let seconds = |time: &Duration| time.as_secs_f64().to_string();
    for Outcome { job, results, .. } in outcomes {
        for circuit in &results.circuits {
            let round_trips: Vec<String> = circuit.round_trips.iter().map(seconds).collect();
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{}",
                quoted(&job.arm),
                job.repetition,
                quoted(&circuit.client),
                quoted(&circuit.path.join(" ")),
                seconds(&circuit.began),
                circuit.built.as_ref().map_or_else(String::new, seconds),
                round_trips.join(" ")
            );
        }
    }
    text
}

/// A field of CSV (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// The outcomes in the texts of these two files.
///
/// # Errors
///
/// A line is none, or belongs to no job.
pub(super) fn outcomes(jobs: &str, streams: &str) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (number, line) in jobs.lines().enumerate() {
        let outcome = serde_json::from_str(line);
        outcomes.push(outcome.with_context(|| format!("{JOBS}, line {}", number + 1))?);
    }
    for (number, line) in streams.lines().enumerate() {
        let place = || format!("{STREAMS}, line {}", number + 1);
        let OwnLine {
            arm,
            repetition,
            record,
        } = serde_json::from_str(line).with_context(place)?;
        let is_its = |job: &Job| job.arm == arm && job.repetition == repetition;
        let outcome = outcomes.iter_mut().find(|one| is_its(&one.job));
        let outcome = outcome.with_context(|| format!("{}: there is no such job", place()))?;
        outcome.streams.push(record);
    }
    Ok(outcomes)
}
