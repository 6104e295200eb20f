//! A scenario: a network, what its users do and how its nodes are set, as a TOML file.
//!
//! `docs/scenarios.md` has the grammar. [`Scenario::parse`] reads the text, [`Scenario::files`] names the files that the
//! caller reads for it, and [`Scenario::setup`] makes a network that runs. [`Scenario::estimate`] is what a run takes.

mod arms;
mod error;
mod estimate;
mod files;
mod hosts;
mod read;
mod spec;
#[cfg(test)]
mod tests;
mod users;

pub use error::ScenarioError;
pub use estimate::Estimate;
pub use files::{FileKind, Files};
pub use spec::{
    Arm, Clients, FaultSpec, HostSpec, NetworkKind, NetworkSpec, PathSpec, Places, RelaySpec,
    Scenario, Servers, UserModel,
};
#[cfg(test)]
pub(crate) use tests::HOSTS;

impl Scenario {
    /// Reads and checks TOML; `file` names it in errors. The files that it names are not read.
    ///
    /// # Errors
    ///
    /// With file and line: no TOML, an unknown key, host, model or unit (with the nearest word), a value out of range, a
    /// network without guards, exits or servers.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        read::scenario(file, text)
    }

    /// The files that it names, each once, as they are written: relative to the scenario's folder, or absolute.
    #[must_use]
    pub fn files(&self) -> Vec<(&str, FileKind)> {
        files::named(self)
    }

    /// Estimated resources of one run (an arm, a repetition).
    #[must_use]
    pub fn estimate(&self, files: &Files) -> Estimate {
        estimate::estimate(self, files)
    }
}
