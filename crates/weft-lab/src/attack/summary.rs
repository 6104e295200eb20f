//! An attack over its repetitions, and the bars that it must meet.

use weft_stats::Summary;

use super::catalogue::ATTACKS;
use super::definition::Attack;
use super::results::{AttackSummary, FILES_LEFT, Results, Round};
use super::target::LITTLE_MEMORY;

/// Fraction of their throughput that honest circuits must keep.
const KEPT: f64 = 0.97;
/// The share of new requests that must be granted, of those that are granted without the attack.
const GRANTED: f64 = 0.9;
/// The share of its processors beyond which the generator, not the target, may be what was measured.
const BUSY: f64 = 0.95;

/// Resident memory that a target may take more, where that is bounded, in bytes.
const MEMORY: u64 = LITTLE_MEMORY + LITTLE_MEMORY / 10;

impl Results {
    /// Finds the summaries by the rounds that there are.
    pub(super) fn sum_up(&mut self) {
        let summaries = self.attacks.iter().filter_map(|attack| {
            let rounds = self.rounds.iter().filter(|round| round.attack == *attack);
            let rounds: Vec<&Round> = rounds.collect();
            summary(attack, &rounds, self.setting.generator_cpus.len().max(1))
        });
        self.summaries = summaries.collect();
    }
}

/// Summary of these rounds of one attack; `None` if there are none.
fn summary(attack: &str, rounds: &[&Round], generator_cpus: usize) -> Option<AttackSummary> {
    let of = |number: &dyn Fn(&Round) -> f64| Summary::of(rounds.iter().map(|round| number(round)));
    let mut one = AttackSummary {
        attack: attack.to_owned(),
        without_bits_per_s: of(&|round| round.without.goodput_bits_per_s)?,
        with_bits_per_s: of(&|round| round.with.goodput_bits_per_s)?,
        kept: of(&Round::kept)?,
        without_p99_ms: of(&|round| round.without.p99_us * 1e-3)?,
        with_p99_ms: of(&|round| round.with.p99_us * 1e-3)?,
        without_granted: of(&|round| round.without.fared.share())?,
        with_granted: of(&|round| round.with.fared.share())?,
        closed: rounds.iter().map(|round| round.with.closed()).sum(),
        attack_bits_per_s: of(&|round| round.attack_bytes as f64 * 8.0 / round.attack_s.max(1e-9))?,
        rss_bytes: [
            of(&|round| round.before.rss_bytes as f64)?,
            of(&|round| round.peak.rss_bytes as f64)?,
            of(&|round| round.after.rss_bytes as f64)?,
        ],
        files: [
            of(&|round| round.before.files as f64)?,
            of(&|round| round.peak.files as f64)?,
            of(&|round| round.after.files as f64)?,
        ],
        target_cpu: [
            of(&|round| round.without.target_cpu)?,
            of(&|round| round.with.target_cpu)?,
        ],
        generator_busy: rounds
            .iter()
            .any(|round| round.with.generator_cpu > BUSY * generator_cpus as f64),
        missed: Vec::new(),
    };
    let mut missed = Vec::new();
    if one.kept.median < KEPT {
        missed.push(format!(
            "honest circuits kept {} of their throughput, not {:.0} %",
            percent(&one.kept),
            KEPT * 100.0
        ));
    }
    if one.closed > 0 {
        missed.push(format!("{} honest circuits were closed", one.closed));
    }
    if one.with_granted.median < GRANTED * one.without_granted.median {
        missed.push(format!(
            "{} of new honest requests were granted, {} without the attack",
            percent(&one.with_granted),
            percent(&one.without_granted)
        ));
    }
    let breaches = rounds.iter().filter_map(|round| round.breach.clone());
    missed.extend(breaches.take(1));
    let held = |round: &&Round| round.peak.rss_bytes.saturating_sub(round.before.rss_bytes);
    let most = rounds.iter().map(held).max().unwrap_or_default();
    let is_bounded = |one: &Attack| one.name == attack && one.needs.bounded_memory;
    if ATTACKS.iter().any(is_bounded) && most > MEMORY {
        missed.push(format!(
            "the target held {} MB more, not {} MB at most",
            most / 1_000_000,
            MEMORY / 1_000_000
        ));
    }
    let left = |round: &&Round| round.after.files > round.before.files + FILES_LEFT;
    if let Some(round) = rounds.iter().copied().find(|round| left(round)) {
        missed.push(format!(
            "{} file descriptors stayed open",
            round.after.files - round.before.files
        ));
    }
    if rounds.iter().any(|round| round.failure.is_some()) {
        missed.push("the target ended".to_owned());
    }
    let panicked = |line: &String| line.contains("panicked");
    if rounds
        .iter()
        .any(|round| round.complaints.keys().any(panicked))
    {
        missed.push("the target panicked".to_owned());
    }
    if !missed.is_empty() && one.generator_busy {
        missed
            .push("(the generator had no processor time left: measure with more cores)".to_owned());
    }
    one.missed = missed;
    Some(one)
}

pub(super) fn percent(summary: &Summary) -> String {
    format!("{:.0} %", summary.median * 100.0)
}
