//! Results of the experiment: the shape of `results.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weft_sim::compromise::abra::pools::Pools;
use weft_sim::selection::Tuple;

use super::aggregate::{OfArm, Samples};
use super::measure::Sample;
use crate::comparison::Arm;
use crate::run::testbed::Testbed;
use crate::run::{FailedJob, Job};

/// The version of this shape.
const SCHEMA: u32 = 1;

/// Ways of choosing circuits beside one another. The arguments and the seed determine it; the
/// number of threads does not matter.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    pub(super) schema: u32,
    pub(super) testbed: Testbed,
    pub(super) seed: u64,
    /// Every job came to its end.
    pub(super) finished: bool,
    pub(super) congestion_control: bool,
    /// kB/s of bandwidth that a relay has for each unit of its weight.
    pub(super) capacity: f64,
    /// Not counted, seconds.
    pub(super) warm_up_s: f64,
    /// Counted, seconds.
    pub(super) seconds: f64,
    pub(super) repetitions: u32,
    pub(super) relays: u32,
    pub(super) web_clients: u32,
    pub(super) bulk_clients: u32,
    pub(super) servers: u32,
    /// Clients that measure circuits.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) measuring_clients: u32,
    /// Circuits that they measured in the arm default.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) measured_circuits: u32,
    /// By name, with underscores.
    pub(super) arms: BTreeMap<String, OfArm>,
    /// Jobs without results.
    pub(super) failures: Vec<FailedJob>,
    /// Number of jobs.
    #[serde(skip)]
    pub(super) planned: usize,
    /// The base first.
    #[serde(skip)]
    pub(super) samples: Vec<(Arm, Samples)>,
    /// The scenario's text.
    #[serde(skip)]
    pub(super) text: String,
}

impl Results {
    /// Without measurements.
    pub(super) fn new(
        plan: &super::plan::Plan,
        text: String,
        seed: u64,
        planned: usize,
    ) -> Results {
        let arms = plan.arms.iter();
        Results {
            schema: SCHEMA,
            testbed: plan.testbed,
            seed,
            finished: false,
            congestion_control: plan.congestion_control,
            capacity: plan.capacity,
            warm_up_s: plan.warm_up.as_secs_f64(),
            seconds: plan.counted.as_secs_f64(),
            repetitions: plan.repetitions,
            relays: plan.size.relays,
            web_clients: plan.size.web,
            bulk_clients: plan.size.bulk,
            servers: plan.size.servers,
            measuring_clients: plan.measure.0,
            measured_circuits: 0,
            arms: BTreeMap::new(),
            failures: Vec::new(),
            planned,
            samples: arms.map(|arm| (arm.clone(), Samples::new())).collect(),
            text,
        }
    }

    /// Adds what a job measured: `None` if it was stopped before its end.
    pub(super) fn add(&mut self, job: Job, outcome: anyhow::Result<Option<Sample>>) {
        match outcome {
            Ok(Some(sample)) => {
                let own = self.samples.get_mut(job.arm_number);
                if let Some((_, samples)) = own {
                    samples.insert(job.repetition, sample);
                }
            }
            Ok(None) => {}
            Err(error) => {
                let why = format!("{error:#}");
                self.failures.push(FailedJob { job, why });
                // Jobs end in any order.
                self.failures.sort_by(|one, other| one.job.cmp(&other.job));
            }
        }
    }

    /// Jobs that came to their end.
    pub(super) fn done(&self) -> usize {
        self.samples.iter().map(|(_, samples)| samples.len()).sum()
    }

    /// Makes all numbers from the samples.
    pub(super) fn sum_up(&mut self) {
        self.finished = self.done() == self.planned;
        let none = Samples::new();
        let base = self.samples.first().map_or(&none, |(_, samples)| samples);
        let arms = self.samples.iter();
        let arms = arms.filter(|(_, samples)| !samples.is_empty());
        self.arms = arms
            .map(|(arm, samples)| (arm.json_key(), OfArm::of(samples, base)))
            .collect();
        self.measured_circuits = u32::try_from(self.circuits().len()).unwrap_or(u32::MAX);
    }

    /// Circuits that were measured in the arm default, client by client's number, each network's clients being others.
    pub(super) fn circuits(&self) -> Vec<Tuple> {
        let mut clients = BTreeMap::new();
        let mut tuples = Vec::new();
        let base = self.samples.iter().take(1);
        for (repetition, sample) in base.flat_map(|(_, samples)| samples) {
            for one in &sample.measured {
                let next = u32::try_from(clients.len()).unwrap_or(u32::MAX);
                let ms = |time: Duration| time.as_secs_f64() * 1e3;
                tuples.push(Tuple {
                    build_ms: ms(one.build),
                    rtt_ms: ms(one.round_trip),
                    latency_ms: ms(one.latency),
                    bandwidth_mbit: one.bandwidth_mbit,
                    client: *clients.entry((repetition, &*one.client)).or_insert(next),
                });
            }
        }
        tuples
    }

    /// Choices that were recorded, network by network.
    pub(super) fn pools(&self) -> Vec<Pools> {
        let samples = self
            .samples
            .iter()
            .flat_map(|(_, samples)| samples.values());
        samples.filter_map(|sample| sample.pools.clone()).collect()
    }
}

/// Where nothing is measured, nothing is said of it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
