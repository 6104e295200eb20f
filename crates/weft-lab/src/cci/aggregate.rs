//! Cells over all repetitions.

use std::collections::BTreeMap;

use super::results::{Aggregate, Cell, Results};
use super::scenario::{Links, Scenario};
use crate::report::Values;

impl Results {
    /// Makes [`Results::cells`] of [`Results::runs`].
    pub(crate) fn sum_up(&mut self) {
        self.cells = Aggregate::of(&self.runs);
    }
}

impl Aggregate {
    /// The cells that were measured.
    fn of(runs: &[Cell]) -> Vec<Aggregate> {
        let no_dropping = Links::from(Scenario::NoDropping);
        let mut groups: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.failure.is_none()) {
            groups.entry(run.key()).or_default().push(run);
        }
        let cells = groups.iter().map(|(&key, runs)| {
            let (congestion_control, scenario, traffic, arm) = key;
            let clients = || runs.iter().flat_map(|run| run.measured());
            let of_runs = |value: &dyn Fn(&Cell) -> Option<f64>| {
                Values::samples(runs.iter().filter_map(|run| value(run)))
            };
            let clean = groups.get(&(congestion_control, &no_dropping, traffic, arm));
            let is_comparable = scenario.scenario().is_some_and(|one| {
                one != Scenario::NoDropping && one.network() == Scenario::NoDropping
            });
            let lost_percent = of_runs(&|run| {
                let clean = clean?.iter().find(|one| one.repetition == run.repetition)?;
                let (with, without) = (run.goodput()?, clean.goodput()?);
                (is_comparable && without > 0.0).then(|| 100.0 * (1.0 - with / without))
            });
            Aggregate {
                arm,
                scenario: scenario.clone(),
                traffic,
                congestion_control,
                streams: clients().map(|client| client.ttlb_ms.len()).sum(),
                goodput_mbit: of_runs(&Cell::goodput),
                ttlb_ms: of_runs(&|run| run.mean(|client| &client.ttlb_ms)),
                rtt_ms: of_runs(&|run| run.mean(|client| &client.rtt_ms)),
                lost_percent,
                cpu_s_per_gb: of_runs(&|run| {
                    let cpu_s = run.relays_cpu_s.filter(|_| run.bytes > 0)?;
                    Some(cpu_s * 1e9 / run.bytes as f64)
                }),
                relays_rss_mb: of_runs(&|run| Some(run.relays_rss_bytes? as f64 * 1e-6)),
                relays_sockets: of_runs(&|run| Some(run.relays_sockets? as f64)),
            }
        });
        cells.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::Client;
    use super::super::scenario::{Arm, Traffic};
    use super::*;

    #[test]
    fn users_of_one_repetition_are_no_repetitions() {
        let run = |repetition, mbit: [f64; 2]| {
            let cell = (Scenario::NoDropping.into(), Traffic::Bulk);
            let mut run = Cell::unmeasured(Arm::Weft, false, cell, repetition);
            run.clients.extend(mbit.map(|mbit| Client {
                host: "client".to_owned(),
                model: Traffic::Bulk.name().to_owned(),
                goodput_mbit: Some(mbit),
                ttlb_ms: Vec::new(),
                rtt_ms: vec![mbit * 10.0, mbit * 10.0],
                failed: 0,
            }));
            run
        };
        let runs = [run(1, [1.0, 3.0]), run(2, [5.0, 7.0])];
        let once = Aggregate::of(&runs[..1]).remove(0);
        assert_eq!(once.goodput_mbit, Values::one(2.0));
        let json = serde_json::to_value(&once).expect("JSON");
        assert!(json["goodput_mbit"]["ci95"].is_null(), "{json:#}");
        assert!(json["rtt_ms"]["ci95"].is_null(), "{json:#}");
        let twice = Aggregate::of(&runs).remove(0);
        assert_eq!(twice.goodput_mbit, Values::samples([2.0, 6.0]));
        assert_eq!(twice.rtt_ms, Values::samples([20.0, 60.0]));
        assert_eq!(twice.ttlb_ms, Values::None);
    }

    #[test]
    fn numbers_in_json_are_means_with_intervals() {
        let cell = Aggregate {
            arm: Arm::WeftPctls,
            scenario: Scenario::SharedDropping.into(),
            traffic: Traffic::Bulk,
            congestion_control: true,
            streams: 3,
            goodput_mbit: Values::samples([1.0, 3.0]),
            ttlb_ms: Values::None,
            rtt_ms: Values::one(7.0),
            lost_percent: Values::one(28.0),
            cpu_s_per_gb: Values::None,
            relays_rss_mb: Values::None,
            relays_sockets: Values::None,
        };
        let json = serde_json::to_value(&cell).expect("JSON");
        assert_eq!(json["arm"], "weft-pctls");
        assert_eq!(json["goodput_mbit"]["mean"], 2.0);
        assert!(json["goodput_mbit"]["ci95"].is_number());
        assert!(json["ttlb_ms"].is_null());
        assert_eq!(json["rtt_ms"]["mean"], 7.0);
        assert!(json["rtt_ms"]["ci95"].is_null());
        assert_eq!(json["lost_percent"], 28.0);
        assert!(json["lost_percent_ci95"].is_null());
    }
}
