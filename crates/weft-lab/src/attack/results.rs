//! What attacks took from honest users, and what they left at the target: the shape of `results.json`,
//! and the table.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::catalogue::find;
use super::options::Options;
use super::probes::Fared;
use super::target::Held;
use crate::bench::report::Report;
use crate::bench::start::Program;
use crate::machine::{Machine, Versions};
use crate::report::{Metric, Table, Values};
use weft_stats::Summary;

/// The version of this shape.
pub const SCHEMA: u32 = 1;
/// What honest circuits must keep of their throughput.
pub(crate) const BAR: f64 = 0.9;
/// File descriptors that may be more after an attack than before: connections of the target's own.
pub const FILES_LEFT: u64 = 4;
/// The share of its processors beyond which the generator, not the target, may be what was measured.
const BUSY: f64 = 0.95;

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Where.
    pub machine: Machine,
    /// Of what.
    pub versions: Versions,
    /// How.
    pub setting: Setting,
    /// The attacks that were asked for.
    pub attacks: Vec<String>,
    /// All rounds were made.
    pub finished: bool,
    /// What was measured.
    pub rounds: Vec<Round>,
    /// Rounds that could not be made.
    pub failed: Vec<Failed>,
    /// Each attack over its repetitions.
    pub summaries: Vec<AttackSummary>,
}

/// How attacks are measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// `weft` or `tor`.
    pub target: String,
    /// Its ConnectionThreads, if they were set.
    pub threads: Option<u32>,
    /// How long is measured, without and with the attack.
    pub seconds: f64,
    /// How long loads are on before that.
    pub warm_up_s: f64,
    /// How long the target may take to give back what it held.
    pub settle_s: f64,
    /// How often each attack is measured.
    pub repetitions: u32,
    /// The most that attackers send, 10⁶ bits a second.
    pub mbits: f64,
    /// What honest circuits carry, 10⁶ bits of payload a second.
    pub honest_mbits: f64,
    /// The target's processors; empty: all.
    pub target_cpus: Vec<usize>,
    /// The generator's.
    pub generator_cpus: Vec<usize>,
}

impl Setting {
    pub(super) fn of(options: &Options) -> Setting {
        Setting {
            target: options.program.kind().to_owned(),
            threads: match &options.program {
                Program::Weft(_, threads) => *threads,
                _ => None,
            },
            seconds: options.seconds.as_secs_f64(),
            warm_up_s: options.warm_up.as_secs_f64(),
            settle_s: options.settle.as_secs_f64(),
            repetitions: options.repetitions,
            mbits: options.mbits,
            honest_mbits: options.honest_mbits,
            target_cpus: options.target_cpus.clone(),
            generator_cpus: options.generator_cpus.clone(),
        }
    }
}

/// The honest load on the target, without or with an attack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Payload that arrived, bits per second of the time that was to be measured.
    pub goodput_bits_per_s: f64,
    /// How long cells took, microseconds: half of them at most so long.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// What honest users who wanted something new got.
    pub fared: Fared,
    /// The target's processor time, divided by the time.
    pub target_cpu: f64,
    /// The generator's.
    pub generator_cpu: f64,
    /// Why honest circuits did not come to their planned end, if they did not: one was closed, or no
    /// more cells arrived.
    pub failure: Option<String>,
}

impl Phase {
    pub(super) fn of(report: Report, fared: Fared, planned: Duration) -> Phase {
        let measured = report.measured.unwrap_or_default();
        let payload = measured.cells.map_or(0, |cells| cells.payload_bytes);
        let latency = measured.latency.unwrap_or_default();
        let seconds = measured.seconds.max(1e-9);
        let usage = measured.usage.unwrap_or_default();
        // What ended early carried nothing in the rest of the time.
        let planned = planned.as_secs_f64().max(seconds);
        Phase {
            goodput_bits_per_s: payload as f64 * 8.0 / planned,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            fared,
            target_cpu: (usage.user_s + usage.system_s) / seconds,
            generator_cpu: (measured.generator.user_s + measured.generator.system_s) / seconds,
            failure: report.why.filter(|_| !report.complete),
        }
    }

    /// Honest circuits that the target closed, at least.
    pub fn closed(&self) -> u64 {
        self.fared.circuits_closed + u64::from(self.failure.is_some())
    }
}

/// One attack, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Which.
    pub attack: String,
    /// From 1.
    pub repetition: u32,
    /// Before the attack.
    pub without: Phase,
    /// Under it.
    pub with: Phase,
    /// What the target held before the attack.
    pub before: Held,
    /// The most that it held.
    pub peak: Held,
    /// What it held when it had settled, or time was up.
    pub after: Held,
    /// How long that took, seconds.
    pub settled_s: f64,
    /// How long the attack's phase lasted, seconds.
    pub attack_s: f64,
    /// What the attacker sent, bytes of cells or of what takes their place.
    pub attack_bytes: u64,
    /// What it counts: streams, circuits, connections, cells.
    pub deeds: u64,
    /// Links, circuits and connections that the target closed or refused.
    pub setbacks: u64,
    /// The first of them.
    pub first_setback: Option<String>,
    /// Lines of the target's log above `notice` since the attack began, and how often each came.
    pub complaints: BTreeMap<String, u64>,
    /// The target has ended.
    pub failure: Option<String>,
}

impl Round {
    /// The share of its throughput that the honest load kept.
    pub fn kept(&self) -> f64 {
        match self.without.goodput_bits_per_s > 0.0 {
            true => self.with.goodput_bits_per_s / self.without.goodput_bits_per_s,
            false => 0.0,
        }
    }
}

/// A round that could not be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// Of which attack.
    pub attack: String,
    /// From 1.
    pub repetition: u32,
    /// Why not.
    pub why: String,
}

/// One attack over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackSummary {
    /// Which.
    pub attack: String,
    /// Honest payload without it, bits per second.
    pub without_bits_per_s: Summary,
    /// Under it.
    pub with_bits_per_s: Summary,
    /// The share that was kept, of each round.
    pub kept: Summary,
    /// 99 of 100 cells took at most so long without it, milliseconds.
    pub without_p99_ms: Summary,
    /// Under it.
    pub with_p99_ms: Summary,
    /// What new honest requests were granted without it, of 1.
    pub without_granted: Summary,
    /// Under it.
    pub with_granted: Summary,
    /// Honest circuits that were closed, at least, in all rounds.
    pub closed: u64,
    /// The attacker's rate, bits per second.
    pub attack_bits_per_s: Summary,
    /// Memory before, at the peak and afterwards, bytes.
    pub rss_bytes: [Summary; 3],
    /// File descriptors before, at the peak and afterwards.
    pub files: [Summary; 3],
    /// The target's processor time, divided by the time, without and with.
    pub target_cpu: [Summary; 2],
    /// The generator had hardly any processor time left in some round.
    pub generator_busy: bool,
    /// What falls short of the bars; empty: nothing.
    pub missed: Vec<String>,
}

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

    /// How it was measured, in sentences.
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

fn percent(summary: &Summary) -> String {
    format!("{:.0} %", summary.median * 100.0)
}

/// The median; its range too if that is wider than a twentieth of it.
fn ranged(summary: &Summary, factor: f64, digits: usize) -> String {
    let number = |value: f64| format!("{:.digits$}", value * factor);
    match summary.max - summary.min > summary.median * 0.05 {
        true => format!(
            "{} ({}–{})",
            number(summary.median),
            number(summary.min),
            number(summary.max)
        ),
        false => number(summary.median),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Report as _;

    fn phase(mbits: f64, granted: u64) -> Phase {
        Phase {
            goodput_bits_per_s: mbits * 1e6,
            fared: Fared {
                asked: 10,
                granted,
                ..Fared::default()
            },
            ..Phase::default()
        }
    }

    fn round(repetition: u32, with: Phase) -> Round {
        Round {
            attack: "sniper".to_owned(),
            repetition,
            without: phase(100.0, 10),
            with,
            before: Held::default(),
            peak: Held::default(),
            after: Held::default(),
            settled_s: 0.0,
            attack_s: 1.0,
            attack_bytes: 1000,
            deeds: 1,
            setbacks: 0,
            first_setback: None,
            complaints: BTreeMap::new(),
            failure: None,
        }
    }

    fn results(rounds: Vec<Round>) -> Results {
        let mut results = Results {
            schema: SCHEMA,
            started_at: String::new(),
            machine: Machine::default(),
            versions: Versions::default(),
            setting: Setting::default(),
            attacks: vec!["sniper".to_owned(), "padding-flood".to_owned()],
            finished: true,
            rounds,
            failed: Vec::new(),
            summaries: Vec::new(),
        };
        results.sum_up();
        results
    }

    #[test]
    fn an_attack_that_takes_nothing_passes() {
        let results = results(vec![round(1, phase(99.0, 10)), round(2, phase(91.0, 9))]);
        // What was not measured has no summary.
        assert_eq!(results.summaries.len(), 1);
        assert!(results.is_passed(), "{results}");
        assert!((results.summaries[0].kept.median - 0.95).abs() < 1e-9);
    }

    #[test]
    fn each_bar_that_is_missed_is_named() {
        let mut closed = phase(100.0, 10);
        closed.fared.circuits_closed = 1;
        let mut stopped = phase(100.0, 10);
        stopped.failure = Some("the target ended a circuit".to_owned());
        let mut leaks = round(1, phase(100.0, 10));
        leaks.after.files = FILES_LEFT + 1;
        let mut ended = round(1, phase(100.0, 10));
        ended.failure = Some("signal 6".to_owned());
        let mut panicked = round(1, phase(100.0, 10));
        panicked.complaints.insert("thread panicked".to_owned(), 1);
        for (round, words) in [
            (round(1, phase(89.0, 10)), "kept 89 %"),
            (round(1, phase(100.0, 8)), "80 % of new honest requests"),
            (round(1, closed), "1 honest circuits were closed"),
            (round(1, stopped), "1 honest circuits were closed"),
            (leaks, "file descriptors stayed open"),
            (ended, "the target ended"),
            (panicked, "the target panicked"),
        ] {
            let results = results(vec![round]);
            assert!(!results.is_passed(), "{words}");
            let missed = results.summaries[0].missed.join("; ");
            assert!(missed.contains(words), "{missed}");
            assert!(results.to_string().contains("MISSED"));
            assert!(results.markdown().contains(words));
        }
    }

    #[test]
    fn missing_rounds_do_not_pass() {
        let mut results = results(vec![round(1, phase(100.0, 10))]);
        results.finished = false;
        results.failed.push(Failed {
            attack: "padding-flood".to_owned(),
            repetition: 1,
            why: "no target".to_owned(),
        });
        assert!(!results.is_passed());
        assert!(
            results
                .to_string()
                .contains("padding-flood, repetition 1: no target")
        );
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let results = results(vec![round(1, phase(100.0, 10))]);
        let json = serde_json::to_string(&results).expect("JSON");
        let read: Results = serde_json::from_str(&json).expect("the same shape");
        assert_eq!(read, results);
    }
}
