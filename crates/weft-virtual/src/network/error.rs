//! Errors of networks, which name the place of the network in the scenario's file.

use crate::scenario::{Scenario, ScenarioError};

pub(super) type Result<T> = std::result::Result<T, ScenarioError>;

/// The place of the network in the scenario's file.
pub(super) fn place(scenario: &Scenario) -> String {
    format!("{}:{}", scenario.file, scenario.network.line)
}

pub(super) fn unusable(scenario: &Scenario, problem: String) -> ScenarioError {
    ScenarioError::Unusable {
        place: place(scenario),
        problem,
    }
}
