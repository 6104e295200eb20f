//! The results of attacks as tables: for a terminal, as Markdown and for the report.

use std::fmt;
use std::fmt::Write as _;

use weft_stats::Summary;

use super::catalogue::find;
use super::results::{AttackSummary, Results, Round};
use super::summary::percent;
use crate::report::{Metric, Table, Values};

impl Results {
    /// The table as Markdown, with what it means.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# Attacks on {}\n\n{}\n\n", self.target(), self.how());
        text += "| attack | kept | Mbit/s without | with | p99 ms without | with | asked for | granted without | with | closed | attack Mbit/s | RSS MB before | peak | after | files before | peak | after | CPU without | with |\n";
        text += &format!("|---{}|\n", "|---:".repeat(18));
        for one in &self.summaries {
            let mut cells = vec![one.attack.clone(), percent(&one.kept)];
            cells.extend(self.columns(one));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text += "\nMedians of the repetitions, with their range in parentheses where it is wide.\n";
        let missed = self.missed();
        if !missed.is_empty() {
            text += &format!("\nMissed:\n\n{missed}");
        }
        if !self.finished {
            text += &format!("\n{}\n", self.unfinished());
        }
        text
    }

    fn unfinished(&self) -> String {
        let planned = self.attacks.len() * self.setting.repetitions as usize;
        let made = self.rounds.len();
        format!("These are not all results: {made} of {planned} rounds were made.")
    }

    fn columns(&self, one: &AttackSummary) -> Vec<String> {
        let mb = |summary: &Summary| format!("{:.0}", summary.median / 1e6);
        let count = |summary: &Summary| format!("{:.0}", summary.median);
        let want = find(&one.attack).map_or("", |attack| attack.want.words());
        let mut columns = vec![
            ranged(&one.without_bits_per_s, 1e-6, 1),
            ranged(&one.with_bits_per_s, 1e-6, 1),
            ranged(&one.without_p99_ms, 1.0, 2),
            ranged(&one.with_p99_ms, 1.0, 2),
            want.to_owned(),
            percent(&one.without_granted),
            percent(&one.with_granted),
            one.closed.to_string(),
            ranged(&one.attack_bits_per_s, 1e-6, 1),
        ];
        columns.extend(one.rss_bytes.iter().map(mb));
        columns.extend(one.files.iter().map(count));
        columns.extend(one.target_cpu.iter().map(percent));
        columns
    }

    fn target(&self) -> String {
        let setting = &self.setting;
        match setting.threads {
            Some(1) => format!("{} with one connection thread", setting.target),
            Some(threads) => format!("{} with {threads} connection threads", setting.target),
            None => setting.target.clone(),
        }
    }

    /// Method of the measurement, in sentences.
    pub fn how(&self) -> String {
        let setting = &self.setting;
        let cpus = |cpus: &[usize]| match cpus.is_empty() {
            true => "all processors".to_owned(),
            false => format!("processors {cpus:?}"),
        };
        format!(
            "{} Honest circuits carry {:.0} Mbit/s; attackers send at most {:.0} Mbit/s. {} repetitions of \
             {} s without and {} s with each attack. The target has {}, the generator {}. {}, {}. {}.",
            self.started_at,
            setting.honest_mbits,
            setting.mbits,
            setting.repetitions,
            setting.seconds,
            setting.seconds,
            cpus(&setting.target_cpus),
            cpus(&setting.generator_cpus),
            self.machine.cpu,
            self.machine.kernel,
            self.versions.in_words(),
        )
    }

    /// All rounds of each attack, for the report.
    pub(super) fn report_tables(&self) -> Vec<Table> {
        let mut honest = Table::new(
            "Honest users",
            ["attack"],
            [
                Metric::more("throughput kept", "%"),
                Metric::plain("without the attack", "Mbit/s"),
                Metric::more("under it", "Mbit/s"),
                Metric::plain("p99 without", "ms"),
                Metric::less("p99 under it", "ms"),
                Metric::plain("new requests granted without", "%"),
                Metric::more("granted under it", "%"),
                Metric::less("circuits closed", ""),
                Metric::plain("attack", "Mbit/s"),
            ],
        );
        let mut held = Table::new(
            "What the target holds",
            ["attack"],
            [
                Metric::plain("memory before", "MB"),
                Metric::less("peak", "MB"),
                Metric::less("after", "MB"),
                Metric::plain("files before", ""),
                Metric::less("files, peak", ""),
                Metric::less("files after", ""),
                Metric::plain("processors busy without", ""),
                Metric::less("busy under it", ""),
            ],
        );
        for attack in &self.attacks {
            let rounds = || self.rounds.iter().filter(|round| round.attack == *attack);
            if rounds().next().is_none() {
                continue;
            }
            let of = |number: &dyn Fn(&Round) -> f64| Values::samples(rounds().map(number));
            honest.push(
                [attack],
                [
                    of(&|round| round.kept() * 100.0),
                    of(&|round| round.without.goodput_bits_per_s * 1e-6),
                    of(&|round| round.with.goodput_bits_per_s * 1e-6),
                    of(&|round| round.without.p99_us * 1e-3),
                    of(&|round| round.with.p99_us * 1e-3),
                    of(&|round| round.without.fared.share() * 100.0),
                    of(&|round| round.with.fared.share() * 100.0),
                    of(&|round| round.with.closed() as f64),
                    of(&|round| round.attack_bytes as f64 * 8e-6 / round.attack_s.max(1e-9)),
                ],
            );
            held.push(
                [attack],
                [
                    of(&|round| round.before.rss_bytes as f64 * 1e-6),
                    of(&|round| round.peak.rss_bytes as f64 * 1e-6),
                    of(&|round| round.after.rss_bytes as f64 * 1e-6),
                    of(&|round| round.before.files as f64),
                    of(&|round| round.peak.files as f64),
                    of(&|round| round.after.files as f64),
                    of(&|round| round.without.target_cpu),
                    of(&|round| round.with.target_cpu),
                ],
            );
        }
        vec![honest, held]
    }

    /// A line for each bar that was missed.
    pub(super) fn missed(&self) -> String {
        let mut text = String::new();
        for one in &self.summaries {
            for why in &one.missed {
                let _ = writeln!(text, "- {}: {why}", one.attack);
            }
        }
        for one in &self.failed {
            let why = one.why.lines().next().unwrap_or_default();
            let _ = writeln!(
                text,
                "- {}, repetition {}: {why}",
                one.attack, one.repetition
            );
        }
        for round in &self.rounds {
            let failed = [
                ("target", &round.failure),
                ("honest circuits", &round.with.failure),
                ("asked for something new", &round.with.fared.first_failure),
                ("attacker", &round.first_setback),
            ];
            for (whose, why) in failed {
                if let Some(why) = why {
                    let why = why.lines().next().unwrap_or_default();
                    let _ = writeln!(
                        text,
                        "- {}, repetition {}, {whose}: {why}",
                        round.attack, round.repetition
                    );
                }
            }
        }
        text
    }
}

/// For a terminal.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Attacks on {}", self.target())?;
        writeln!(f, "{}", self.how())?;
        writeln!(f)?;
        writeln!(
            f,
            "{:<20} {:>6} {:>13} {:>15} {:>9} {:>12} {:>6} {:>7} {:>15} {:>18}",
            "attack",
            "kept",
            "Mbit/s",
            "p99 ms",
            "wanted",
            "granted",
            "closed",
            "attack",
            "RSS MB",
            "files"
        )?;
        for one in &self.summaries {
            let pair = |a: &Summary, b: &Summary, factor: f64, digits: usize| {
                format!(
                    "{:.digits$} {:.digits$}",
                    a.median * factor,
                    b.median * factor
                )
            };
            let three = |of: &[Summary; 3], factor: f64| {
                let parts = of.iter().map(|one| format!("{:.0}", one.median * factor));
                parts.collect::<Vec<_>>().join(" ")
            };
            let mark = if one.missed.is_empty() {
                ""
            } else {
                "  MISSED"
            };
            writeln!(
                f,
                "{:<20} {:>6} {:>13} {:>15} {:>9} {:>12} {:>6} {:>7} {:>15} {:>18}{mark}",
                one.attack,
                percent(&one.kept),
                pair(&one.without_bits_per_s, &one.with_bits_per_s, 1e-6, 1),
                pair(&one.without_p99_ms, &one.with_p99_ms, 1.0, 2),
                find(&one.attack).map_or("", |attack| attack.want.words()),
                format!(
                    "{} {}",
                    percent(&one.without_granted),
                    percent(&one.with_granted)
                ),
                one.closed,
                format!("{:.1}", one.attack_bits_per_s.median * 1e-6),
                three(&one.rss_bytes, 1e-6),
                three(&one.files, 1.0),
            )?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "Pairs: without the attack, with it. RSS and files: before, peak, after."
        )?;
        let missed = self.missed();
        if !missed.is_empty() {
            write!(f, "\n{missed}")?;
        }
        if !self.finished {
            writeln!(f, "\n{}", self.unfinished())?;
        }
        Ok(())
    }
}

/// The median; its range too if that is wider than a twentieth of it.
fn ranged(summary: &Summary, factor: f64, digits: usize) -> String {
    let number = |value: f64| format!("{:.digits$}", value * factor);
    match summary.max - summary.min > summary.median * 0.05 {
        true => summary.show(number),
        false => number(summary.median),
    }
}
