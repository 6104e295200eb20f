//! In which order cells are measured.

use super::scenario::{Arm, Scenario, Traffic};

/// A network that is started, and what is measured in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// From 1.
    pub(super) repetition: u32,
    pub(super) congestion_control: bool,
    pub(super) arm: Arm,
    /// Its links, but for loss and background.
    pub(super) links: Scenario,
    pub(super) cells: Vec<(Scenario, Traffic)>,
}

impl Network {
    /// The cells in order, and whether the links change before it: it is the first of its scenario.
    pub(super) fn turns(&self) -> impl Iterator<Item = ((Scenario, Traffic), bool)> {
        let mut latest = None;
        let cells = self.cells.iter();
        cells.map(move |&(scenario, traffic)| {
            let is_new = latest.replace(scenario) != Some(scenario);
            ((scenario, traffic), is_new)
        })
    }
}

/// Cells to measure.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) traffic: Vec<Traffic>,
    pub(super) arms: Vec<Arm>,
    pub(super) congestion_control: Vec<bool>,
    pub(super) repetitions: u32,
}

impl Choice {
    /// All networks, in order. Scenarios of one network are measured in one; arms take turns, and another is the
    /// first in each repetition.
    pub(super) fn networks(&self) -> Vec<Network> {
        let mut links: Vec<Scenario> = self.scenarios.iter().map(|one| one.network()).collect();
        links.sort_unstable();
        links.dedup();
        let mut networks = Vec::new();
        for repetition in 1..=self.repetitions {
            let mut arms = self.arms.clone();
            let first = (repetition as usize - 1) % arms.len().max(1);
            arms.rotate_left(first);
            for &congestion_control in &self.congestion_control {
                for &links in &links {
                    let cells = self.cells(links);
                    networks.extend(arms.iter().map(|&arm| Network {
                        repetition,
                        congestion_control,
                        arm,
                        links,
                        cells: cells.clone(),
                    }));
                }
            }
        }
        networks
    }

    /// The cells in one network, those without loss first: after loss, TCP needs ten seconds and more until a shared
    /// connection is as fast as before, which would be measured as the next scenario's loss.
    fn cells(&self, links: Scenario) -> Vec<(Scenario, Traffic)> {
        let mut scenarios = self.scenarios.clone();
        scenarios.retain(|one| one.network() == links);
        scenarios.sort_unstable();
        let cells = scenarios.into_iter().flat_map(|scenario| {
            let traffic = self.traffic.iter();
            traffic.map(move |&traffic| (scenario, traffic))
        });
        cells.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_measured_once_in_each_repetition() {
        let choice = Choice {
            scenarios: vec![
                Scenario::NoDropping,
                Scenario::SharedDropping,
                Scenario::Two,
            ],
            traffic: vec![Traffic::Bulk, Traffic::Web],
            arms: vec![Arm::Tor, Arm::Weft, Arm::WeftPctls],
            congestion_control: vec![false, true],
            repetitions: 2,
        };
        let networks = choice.networks();
        // Two sets of links, three arms, with and without congestion control, twice.
        assert_eq!(networks.len(), 2 * 3 * 2 * 2);
        let cells: usize = networks.iter().map(|network| network.cells.len()).sum();
        assert_eq!(cells, 3 * 2 * 3 * 2 * 2);
        let firsts: Vec<Arm> = networks.iter().step_by(12).map(|one| one.arm).collect();
        assert_eq!(firsts, [Arm::Tor, Arm::Weft]);
        // Scenarios with loss come after those without.
        for network in [&networks[0], &networks[12]] {
            assert_eq!(network.cells[0], (Scenario::NoDropping, Traffic::Bulk));
            assert_eq!(network.cells[3], (Scenario::SharedDropping, Traffic::Web));
            // The links change once for each scenario.
            let changes: Vec<bool> = network.turns().map(|(_, is_new)| is_new).collect();
            assert_eq!(changes, [true, false, true, false]);
        }
    }
}
