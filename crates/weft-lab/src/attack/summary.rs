//! An attack over its repetitions, and the bars that it must meet.

use weft_stats::Summary;

use super::results::{AttackSummary, FILES_LEFT, Round};
use super::tables::percent;

/// What honest circuits must keep of their throughput.
const BAR: f64 = 0.9;
/// The share of its processors beyond which the generator, not the target, may be what was measured.
const BUSY: f64 = 0.95;

/// What these rounds of one attack add up to, if there are any.
pub(super) fn summary(
    attack: &str,
    rounds: &[&Round],
    generator_cpus: usize,
) -> Option<AttackSummary> {
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
    if one.kept.median < BAR {
        missed.push(format!(
            "honest circuits kept {} of their throughput, not {:.0} %",
            percent(&one.kept),
            BAR * 100.0
        ));
    }
    if one.closed > 0 {
        missed.push(format!("{} honest circuits were closed", one.closed));
    }
    if one.with_granted.median < BAR * one.without_granted.median {
        missed.push(format!(
            "{} of new honest requests were granted, {} without the attack",
            percent(&one.with_granted),
            percent(&one.without_granted)
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
