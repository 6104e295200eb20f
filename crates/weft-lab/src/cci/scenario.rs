//! The compared cases: scenarios, traffic, programs.

use std::fmt;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weft_load::flows::overlay::User;
use weft_model::links::{Topology, builtin};
use weft_model::traffic::Model;

/// A network and what its links do (Pahl et al. 2023, Table 3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
pub enum Scenario {
    /// Eight clients, 300 Mbit/s, 50 ms, no loss.
    NoDropping,
    /// Eight clients, 300 Mbit/s, 50 ms; the link between middle and exit loses 0.1 %.
    SharedDropping,
    /// Eight clients, 300 Mbit/s, 50 ms; all links but the one between middle and exit lose 0.1 %.
    DroppingRemaining,
    /// Two clients, 300 Mbit/s, 50 ms; the link between middle and exit loses 0.1 %.
    One,
    /// Two clients, 300 Mbit/s, no delay; four TCP streams on the link between middle and exit.
    Two,
    /// Two clients, 300 Mbit/s, but 2 Mbit/s between relays, no delay; four TCP streams on the link
    /// between middle and exit.
    Three,
}

impl Scenario {
    /// As results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::NoDropping => "NoDropping",
            Scenario::SharedDropping => "SharedDropping",
            Scenario::DroppingRemaining => "DroppingRemaining",
            Scenario::One => "One",
            Scenario::Two => "Two",
            Scenario::Three => "Three",
        }
    }

    /// Its links.
    ///
    /// # Errors
    ///
    /// A built-in topology is wrong, which a test rules out.
    pub(crate) fn topology(self) -> Result<Topology> {
        let name = match self {
            Scenario::NoDropping => "pahl-no-dropping",
            Scenario::SharedDropping => "pahl-shared-dropping",
            Scenario::DroppingRemaining => "pahl-dropping-remaining",
            Scenario::One => "pahl-one",
            Scenario::Two => "pahl-two",
            Scenario::Three => "pahl-three",
        };
        let topology = builtin::topology(name).with_context(|| format!("no topology {name}"))?;
        Ok(topology?)
    }

    /// The scenario in whose network it is measured, without loss and background: circuits that were built there
    /// have the round-trip times that they have in this one.
    pub(super) fn network(self) -> Scenario {
        match self {
            Scenario::SharedDropping | Scenario::DroppingRemaining => Scenario::NoDropping,
            own => own,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The links of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Links {
    /// A scenario of the paper.
    Scenario(Scenario),
    /// Another topology, by its name.
    Topology(String),
}

impl Links {
    /// The links of this topology.
    #[must_use]
    pub fn of(topology: &Topology) -> Links {
        let mut scenarios = Scenario::value_variants().iter();
        let is_it = |scenario: &&Scenario| scenario.topology().is_ok_and(|its| its == *topology);
        match scenarios.find(is_it) {
            Some(scenario) => Links::Scenario(*scenario),
            None => Links::Topology(topology.name().to_owned()),
        }
    }

    /// As results name them.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Links::Scenario(scenario) => scenario.name(),
            Links::Topology(name) => name,
        }
    }

    /// The scenario, if they are one.
    #[must_use]
    pub fn scenario(&self) -> Option<Scenario> {
        match self {
            Links::Scenario(scenario) => Some(*scenario),
            Links::Topology(_) => None,
        }
    }
}

impl From<Scenario> for Links {
    fn from(scenario: Scenario) -> Links {
        Links::Scenario(scenario)
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Traffic of the measured users.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// 5 MB, again at once.
    Bulk,
    /// 50 kB each second.
    Audio,
    /// 1 MB each second.
    Video,
    /// 2 MB, then 10 s of pause.
    Web,
}

impl Traffic {
    /// As results and records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Bulk => "bulk",
            Traffic::Audio => "audio",
            Traffic::Video => "video",
            Traffic::Web => "web",
        }
    }

    fn model(self) -> Model {
        match self {
            Traffic::Bulk => Model::bulk(),
            Traffic::Audio => Model::audio(),
            Traffic::Video => Model::video(),
            Traffic::Web => Model::web(),
        }
    }

    /// A user on each host: the first, third and so on download in bulk, the others do this.
    pub(crate) fn users<'a>(self, hosts: impl Iterator<Item = &'a str>) -> Vec<User> {
        let users = hosts.enumerate().map(|(number, host)| {
            let traffic = match number % 2 {
                0 => Traffic::Bulk,
                _ => self,
            };
            User {
                host: host.to_owned(),
                model_name: traffic.name().to_owned(),
                model: traffic.model(),
            }
        });
        users.collect()
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parameters of the consensus with or without congestion control.
pub(crate) fn consensus_params(congestion_control: bool) -> Vec<String> {
    let algorithm = match congestion_control {
        true => 2,
        false => 0,
    };
    vec![format!("cc_alg={algorithm}")]
}

/// Programs of relays, exit and clients.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// C tor.
    Tor,
    /// Weft as it is.
    Weft,
    /// Weft with `ConnectionPerCircuit 1`.
    WeftPctls,
    /// Weft with `ConnectionPerCircuit auto`.
    WeftAuto,
}

impl Arm {
    /// As results name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Arm::Tor => "tor",
            Arm::Weft => "weft",
            Arm::WeftPctls => "weft-pctls",
            Arm::WeftAuto => "weft-auto",
        }
    }

    /// As people call it.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Arm::Tor => "C tor",
            Arm::Weft => "Weft",
            Arm::WeftPctls => "Weft, PCTLS",
            Arm::WeftAuto => "Weft, auto",
        }
    }

    /// Lines of its torrcs, relays' and clients'.
    pub(crate) fn torrc(self) -> Vec<String> {
        let value = match self {
            Arm::Tor | Arm::Weft => return Vec::new(),
            Arm::WeftPctls => "1",
            Arm::WeftAuto => "auto",
        };
        vec![format!("ConnectionPerCircuit {value}")]
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_of_one_network_differ_in_loss_alone() {
        for &scenario in Scenario::value_variants() {
            let topology = scenario.topology().expect("built in");
            let network = scenario.network().topology().expect("built in");
            let [ours, theirs] = [topology.calm(), network.calm()];
            assert_eq!(ours.links(), theirs.links(), "{scenario}");
            assert!(ours.has_shape_of(&theirs), "{scenario}");
        }
    }

    #[test]
    fn every_other_user_downloads_in_bulk() {
        let users = Traffic::Web.users(["a", "b", "c"].into_iter());
        let models: Vec<&str> = users.iter().map(|user| &*user.model_name).collect();
        assert_eq!(models, ["bulk", "web", "bulk"]);
    }
}
