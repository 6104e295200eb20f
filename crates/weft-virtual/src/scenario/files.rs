//! The files that a scenario names.

use std::collections::BTreeMap;

use super::error::ScenarioError;
use super::spec::{NetworkKind, Scenario, UserModel};

/// Format of a file that a scenario names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A consensus document, plain or of microdescriptors.
    Consensus,
    /// A topology of `weft lab net`. One that is built in need not be there.
    Topology,
    /// Shadow's graph of countries, or a Markov model of traffic.
    GraphMl,
}

/// Contents of files, unpacked, by their names as the scenario has them.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<String, Vec<u8>>);

impl Files {
    /// Adds one.
    pub fn insert(&mut self, name: &str, content: Vec<u8>) {
        self.0.insert(name.to_owned(), content);
    }

    /// The content of one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The content of one that `place` names.
    pub(crate) fn content(&self, place: &str, name: &str) -> Result<&[u8], ScenarioError> {
        self.get(name).ok_or_else(|| ScenarioError::Missing {
            place: place.to_owned(),
            file: name.to_owned(),
        })
    }

    /// The content of one that `place` names, as text.
    pub(crate) fn text(&self, place: &str, name: &str) -> Result<&str, ScenarioError> {
        let content = self.content(place, name)?;
        std::str::from_utf8(content).map_err(|_| ScenarioError::NoText(name.to_owned()))
    }
}

/// See [`Scenario::files`].
pub(super) fn named(scenario: &Scenario) -> Vec<(&str, FileKind)> {
    let mut files: Vec<(&str, FileKind)> = Vec::new();
    let mut add = |name, kind| {
        if !files.contains(&(name, kind)) {
            files.push((name, kind));
        }
    };
    match &scenario.network.kind {
        NetworkKind::Consensus { file, .. } => add(file.as_str(), FileKind::Consensus),
        NetworkKind::Topology { file } if weft_model::links::builtin::text(file).is_none() => {
            add(file, FileKind::Topology);
        }
        NetworkKind::Topology { .. }
        | NetworkKind::Synthetic { .. }
        | NetworkKind::Hosts { .. } => {}
    }
    if let Some(places) = &scenario.network.places {
        add(&places.file, FileKind::GraphMl);
    }
    for clients in &scenario.clients {
        if let UserModel::Markov { streams, packets } = &clients.model {
            add(streams, FileKind::GraphMl);
            add(packets, FileKind::GraphMl);
        }
    }
    files
}
