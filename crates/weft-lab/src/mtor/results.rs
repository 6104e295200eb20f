//! Results of the experiment: the shape of `results.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_stats::Spread;

use super::aggregate::{
    OF_CARRIED, OfArm, OfContention, OfStreams, Samples, bulk_mbit, ratio, shares, tunnels,
};
use super::arms::{MTOR5, STOR};
use super::controlled;
use super::downloads::model;
use super::measure::Sample;
use super::part::{BULK, Kind, Load, WEB};
use super::relays::Relays;
use crate::comparison::{Arm, MEAN, Quantity};
use crate::run::testbed::Testbed;
use crate::run::{FailedJob, Job};

/// The version of this shape.
const SCHEMA: u32 = 1;

/// Streams over several circuits beside those over one. The arguments and the seed determine it;
/// the number of threads does not matter.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub(super) schema: u32,
    pub(super) testbed: Testbed,
    pub(super) seed: u64,
    /// Every job came to its end.
    pub(super) finished: bool,
    pub(super) congestion_control: bool,
    pub(super) repetitions: u32,
    /// Not counted, seconds.
    pub(super) warm_up_s: f64,
    /// Relays with a weight of 100 KiB/s and more.
    pub(super) fast_relays: u32,
    /// With less.
    pub(super) slow_relays: u32,
    /// kB/s of bandwidth that a relay has for each unit of its weight.
    pub(super) capacity: f64,
    /// Downloads, by arm, with underscores.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) arms: BTreeMap<String, OfArm>,
    /// Downloads over five equal slow circuits, by arm.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) equal: BTreeMap<String, OfStreams>,
    /// Downloads over five equal slow circuits of which one stalls, by arm.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stall: BTreeMap<String, OfStreams>,
    /// Web clients beside bulk clients, by load, then by arm.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) contention: BTreeMap<Load, BTreeMap<String, OfContention>>,
    /// Bars of the arms, as far as they were measured.
    pub(super) bars: BTreeMap<&'static str, Bar>,
    /// Jobs without results.
    pub(super) failures: Vec<Failed>,
    /// Megabytes that are downloaded.
    #[serde(skip)]
    pub(super) megabytes: Vec<u32>,
    #[serde(skip)]
    pub(super) parts: Vec<OfPart>,
    /// Files of all parts: the relays, and where hosts are if no graph is given.
    #[serde(skip)]
    pub(super) own_files: Vec<(&'static str, String)>,
}

/// A job without results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failed {
    /// The part of the experiment.
    pub(super) part: &'static str,
    #[serde(flatten)]
    pub(super) failed: FailedJob,
}

/// Measurements of one part.
#[derive(Clone, Debug)]
pub(super) struct OfPart {
    pub(super) kind: Kind,
    /// The scenario's text.
    pub(super) text: String,
    /// Number of jobs.
    pub(super) planned: usize,
    /// One circuit first, where it is there.
    pub(super) samples: Vec<(Arm, Samples)>,
}

impl OfPart {
    /// The samples of an arm.
    pub(super) fn arm(&self, name: &str) -> Option<&Samples> {
        let found = self.samples.iter().find(|(arm, _)| arm.name == name);
        found.map(|(_, samples)| samples)
    }

    /// Arms that have samples, by their keys in JSON, with those of one circuit.
    fn each(&self) -> impl Iterator<Item = (String, &Samples, &Samples)> {
        static NONE: Samples = Samples::new();
        let base = self.arm(STOR).unwrap_or(&NONE);
        let some = self
            .samples
            .iter()
            .filter(|(_, samples)| !samples.is_empty());
        some.map(move |(arm, samples)| (arm.json_key(), samples, base))
    }
}

/// A goal, and the measured value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Bar {
    /// The mean over repetitions.
    pub(super) value: Option<f64>,
    /// Half of its 95 % interval.
    pub(super) ci95: Option<f64>,
    /// The least value that passes, or the greatest.
    pub(super) bar: f64,
    /// A good value.
    pub(super) goal: f64,
    /// It is.
    pub(super) met: Option<bool>,
}

impl Bar {
    fn of(quantity: &Quantity, bar: f64, goal: f64) -> Bar {
        let value = quantity.mean(MEAN);
        Bar {
            value,
            ci95: quantity.interval(MEAN),
            bar,
            goal,
            met: value.map(|value| match goal > bar {
                true => value >= bar,
                false => value <= bar,
            }),
        }
    }
}

/// Times of the streams of this model to the last byte.
fn took(sample: &Sample, model: &str) -> Option<Spread> {
    let streams = sample.streams.get(model)?;
    let took: Vec<f64> = streams.last.iter().map(|time| time.took).collect();
    Spread::of(&took)
}

/// The time of the only download of a small network.
fn download_s(sample: &Sample) -> Option<f64> {
    took(sample, controlled::MODEL).map(|took| took.mean)
}

impl Results {
    /// Adds what a job of a part measured: `None` if it was stopped before its end.
    pub(super) fn add(&mut self, part: usize, job: Job, outcome: anyhow::Result<Option<Sample>>) {
        let Some(part) = self.parts.get_mut(part) else {
            return;
        };
        match outcome {
            Ok(Some(sample)) => {
                if let Some((_, samples)) = part.samples.get_mut(job.arm_number) {
                    samples.insert(job.repetition, sample);
                }
            }
            Ok(None) => {}
            Err(error) => {
                let why = format!("{error:#}");
                let part = part.kind.name();
                let failed = FailedJob { job, why };
                self.failures.push(Failed { part, failed });
                // Jobs end in any order.
                let place = |one: &Failed| (one.part, one.failed.job.clone());
                self.failures.sort_by_key(place);
            }
        }
    }

    /// Jobs that came to their end.
    pub(super) fn done(&self) -> usize {
        let samples = self.parts.iter().flat_map(|part| &part.samples);
        samples.map(|(_, samples)| samples.len()).sum()
    }

    /// Makes all numbers from the samples.
    pub(super) fn sum_up(&mut self) {
        let planned: usize = self.parts.iter().map(|part| part.planned).sum();
        self.finished = self.done() == planned;
        for part in &self.parts {
            let of_model = |model: &str| {
                let arms = part.each();
                let arms = arms.map(|(name, own, base)| (name, OfStreams::of(model, own, base)));
                arms.collect::<BTreeMap<String, OfStreams>>()
            };
            match part.kind {
                Kind::Downloads => self.arms = downloads(part, &self.megabytes),
                Kind::Equal => self.equal = of_model(controlled::MODEL),
                Kind::Stall => self.stall = of_model(controlled::MODEL),
                Kind::Contention(load) => {
                    self.contention.insert(load, contention(part));
                }
            }
        }
        self.bars = self.reached();
    }

    fn part(&self, kind: Kind) -> Option<&OfPart> {
        self.parts.iter().find(|part| part.kind == kind)
    }

    /// The bars that these results have values for.
    fn reached(&self) -> BTreeMap<&'static str, Bar> {
        let mut bars = BTreeMap::new();
        let arm = |kind: Kind, name: &str| self.part(kind).and_then(|part| part.arm(name));
        let both = |kind: Kind, own: &str| arm(kind, own).zip(arm(kind, STOR));
        if let Some((own, base)) = both(Kind::Equal, MTOR5) {
            // Bytes are the same.
            let speed = |sample: &Sample| download_s(sample).map(|took| 1.0 / took);
            let quantity = ratio(own, base, speed);
            bars.insert("equal_goodput_ratio", Bar::of(&quantity, 4.0, 4.7));
        }
        if let Some((own, base)) = arm(Kind::Stall, MTOR5).zip(arm(Kind::Equal, "mtor4")) {
            let mut quantity = ratio(own, base, download_s);
            scale(&mut quantity, |ratio| (ratio - 1.0) * 100.0, 100.0);
            bars.insert("stall_added_percent", Bar::of(&quantity, 20.0, 5.0));
        }
        if let Some((own, base)) = both(Kind::Downloads, MTOR5)
            && let Some(megabytes) = self.megabytes.first()
        {
            let model = model(*megabytes);
            let quantity = ratio(own, base, |sample| {
                took(sample, &model).and_then(|took| took.stddev)
            });
            bars.insert("stddev_ratio", Bar::of(&quantity, 0.55, 0.3));
        }
        let heaviest = self.parts.iter().filter_map(|part| match part.kind {
            Kind::Contention(load) => Some(load),
            _ => None,
        });
        if let Some(kind) = heaviest.max().map(Kind::Contention)
            && let Some((own, base)) = both(kind, "mtor3")
        {
            let share = shares(own, false);
            let quantity = Quantity {
                means: [(MEAN, share.mean(OF_CARRIED))].into(),
                ci95: [(MEAN, share.interval(OF_CARRIED))].into(),
            };
            bars.insert("bulk_on_fast_percent", Bar::of(&quantity, 20.0, 15.0));
            bars.insert(
                "web_ratio",
                Bar::of(
                    &ratio(own, base, |sample| took(sample, WEB).map(|took| took.mean)),
                    0.95,
                    0.8,
                ),
            );
        }
        bars
    }
}

fn downloads(part: &OfPart, megabytes: &[u32]) -> BTreeMap<String, OfArm> {
    let arms = part.each().map(|(name, own, base)| {
        let sizes = megabytes.iter();
        let of = |megabytes: &u32| OfStreams::of(&model(*megabytes), own, base);
        let arm = OfArm {
            first: megabytes.first().map(of).unwrap_or_default(),
            tunnels: tunnels(own),
            sizes: sizes.map(|one| (format!("{one}_mb"), of(one))).collect(),
            repetitions: own.len(),
        };
        (name, arm)
    });
    arms.collect()
}

fn contention(part: &OfPart) -> BTreeMap<String, OfContention> {
    let arms = part.each().map(|(name, own, base)| {
        let arm = OfContention {
            web: OfStreams::of(WEB, own, base),
            bulk: OfStreams::of(BULK, own, base),
            bulk_mbit: bulk_mbit(own),
            fast_percent: shares(own, false),
            slow_percent: shares(own, true),
            tunnels: tunnels(own),
            repetitions: own.len(),
        };
        (name, arm)
    });
    arms.collect()
}

/// Converts a quantity to another unit: means by a function, intervals by its slope.
fn scale(quantity: &mut Quantity, of: impl Fn(f64) -> f64, slope: f64) {
    for mean in quantity.means.values_mut().flatten() {
        *mean = of(*mean);
    }
    for interval in quantity.ci95.values_mut().flatten() {
        *interval *= slope;
    }
}

/// Settings known before anything is measured.
pub(super) struct About {
    pub(super) testbed: Testbed,
    pub(super) seed: u64,
    pub(super) congestion_control: bool,
    pub(super) repetitions: u32,
    pub(super) warm_up_s: f64,
    pub(super) relays: Relays,
    pub(super) megabytes: Vec<u32>,
    pub(super) parts: Vec<OfPart>,
    pub(super) own_files: Vec<(&'static str, String)>,
}

impl Results {
    /// Without measurements.
    pub(super) fn new(about: About) -> Results {
        Results {
            schema: SCHEMA,
            testbed: about.testbed,
            seed: about.seed,
            finished: false,
            congestion_control: about.congestion_control,
            repetitions: about.repetitions,
            warm_up_s: about.warm_up_s,
            fast_relays: about.relays.fast,
            slow_relays: about.relays.slow,
            capacity: about.relays.capacity,
            arms: BTreeMap::new(),
            equal: BTreeMap::new(),
            stall: BTreeMap::new(),
            contention: BTreeMap::new(),
            bars: BTreeMap::new(),
            failures: Vec::new(),
            megabytes: about.megabytes,
            parts: about.parts,
            own_files: about.own_files,
        }
    }
}
