//! Effects of attacks on honest users and on the target: the shape of `results.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::probes::Fared;
use super::target::Held;
use crate::machine::{Machine, Versions};
use crate::relay::program::Program;
use crate::relay::report::Report;
use weft_stats::Summary;

/// The version of this shape.
pub const SCHEMA: u32 = 1;
/// File descriptors that may be more after an attack than before: connections of the target's own.
pub const FILES_LEFT: u64 = 4;

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
    /// Its settings.
    pub setting: Setting,
    /// The attacks that were asked for.
    pub attacks: Vec<String>,
    /// All rounds were made.
    pub finished: bool,
    /// The measurements.
    pub rounds: Vec<Round>,
    /// Rounds that could not be made.
    pub failed: Vec<Failed>,
    /// Each attack over its repetitions.
    pub summaries: Vec<AttackSummary>,
}

/// Settings of the measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// `weft` or `tor`.
    pub target: String,
    /// Its ConnectionThreads, if they were set.
    pub threads: Option<u32>,
    /// Length of a measurement, without and with the attack, seconds.
    pub seconds: f64,
    /// Time that loads run before they are measured, seconds.
    pub warm_up_s: f64,
    /// Longest time that the target may take to free what it held, seconds.
    pub settle_s: f64,
    /// Measurements of each attack.
    pub repetitions: u32,
    /// The most that attackers send, 10⁶ bits a second.
    pub mbits: f64,
    /// Load of all honest circuits together, 10⁶ bits of payload a second.
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
    /// Median latency of cells, microseconds.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// Results of honest users' requests for something new.
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
        // A load that ended early carried nothing in the rest of the time.
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
    /// Name of the attack.
    pub attack: String,
    /// From 1.
    pub repetition: u32,
    /// Before the attack.
    pub without: Phase,
    /// Under it.
    pub with: Phase,
    /// Resources that the target held before the attack.
    pub before: Held,
    /// The most that it held.
    pub peak: Held,
    /// Resources that it held once it had settled, or time was up.
    pub after: Held,
    /// Time until then, seconds.
    pub settled_s: f64,
    /// Length of the attack's phase, seconds.
    pub attack_s: f64,
    /// Bytes that the attacker sent: of cells, or of whatever it sends in their place.
    pub attack_bytes: u64,
    /// Number of its acts: streams, circuits, connections, cells.
    pub deeds: u64,
    /// Links, circuits and connections that the target closed or refused.
    pub setbacks: u64,
    /// The first of them.
    pub first_setback: Option<String>,
    /// An answer that the target must not give.
    #[serde(default)]
    pub breach: Option<String>,
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
    /// Name of the attack.
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
    /// Fraction of new honest requests that were granted without it.
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
    /// Bars that it misses.
    pub missed: Vec<String>,
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
            breach: None,
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
            attacks: ["sniper", "padding-flood", "unread-answers"]
                .map(str::to_owned)
                .into(),
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
        let results = results(vec![round(1, phase(100.0, 10)), round(2, phase(95.0, 9))]);
        // Attacks that were not measured have no summary.
        assert_eq!(results.summaries.len(), 1);
        assert!(results.is_passed(), "{results}");
        assert!((results.summaries[0].kept.median - 0.975).abs() < 1e-9);
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
        let mut answers = round(1, phase(100.0, 10));
        answers.breach = Some("the target made a circuit".to_owned());
        let mut holds = round(1, phase(100.0, 10));
        holds.attack = "unread-answers".to_owned();
        holds.peak.rss_bytes = 74 << 20;
        let mut panicked = round(1, phase(100.0, 10));
        panicked.complaints.insert("thread panicked".to_owned(), 1);
        for (round, words) in [
            (round(1, phase(96.0, 10)), "kept 96 %"),
            (answers, "the target made a circuit"),
            (holds, "held 77 MB more, not 73 MB at most"),
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
