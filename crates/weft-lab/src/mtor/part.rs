//! The parts of the experiment, and what their scenarios have in common.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::Serialize;

use super::relays::{self, Relays};
use crate::comparison::{Arm, quoted, regions};
use crate::run::source::Source;
use crate::run::testbed::Testbed;

/// Model name of the users that browse.
pub(super) const WEB: &str = "web";
/// Model name of the users that download without a pause.
pub(super) const BULK: &str = "bulk";
/// Users of the paper: pages of 320 KB with pauses (V.B; it has them from 1 s to a minute).
pub(super) const WEB_MODEL: &str = "{ download = \"320 kB\", pause = [\"1 s\", \"60 s\"] }";
/// And downloads of 5 MB without any.
pub(super) const BULK_MODEL: &str = "{ download = \"5 MB\" }";
/// In virtual time clients learn so long how long circuits take: a hundred of them, and some more. Nobody uses the network then, which
/// these circuits alone would fill otherwise.
pub(super) const LEARNING: Duration = Duration::from_secs(40);
/// Series are summed over so long.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// One part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Downloads beside other users.
    Downloads,
    /// Five equal slow circuits.
    Equal,
    /// Five equal slow circuits, of which one stalls.
    Stall,
    /// Web clients beside bulk clients.
    Contention(Load),
}

/// Number of bulk clients beside the web clients (Yang and Li 2015, V.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Load {
    /// 110 at full size.
    Light,
    /// 310.
    Medium,
    /// 510.
    Heavy,
}

impl Load {
    /// Bulk clients at full size.
    pub(super) fn bulk(self) -> u32 {
        match self {
            Load::Light => 110,
            Load::Medium => 310,
            Load::Heavy => 510,
        }
    }
}

impl Kind {
    /// As folders and progress name it.
    pub(super) fn name(self) -> &'static str {
        let file = self.file();
        file.strip_suffix(".toml").unwrap_or(file)
    }

    /// The scenario's file.
    pub(super) fn file(self) -> &'static str {
        match self {
            Kind::Downloads => "downloads.toml",
            Kind::Equal => "equal.toml",
            Kind::Stall => "stall.toml",
            Kind::Contention(Load::Light) => "light.toml",
            Kind::Contention(Load::Medium) => "medium.toml",
            Kind::Contention(Load::Heavy) => "heavy.toml",
        }
    }
}

/// Settings that the scenarios share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) testbed: Testbed,
    pub(super) graph: Option<PathBuf>,
    pub(super) congestion_control: bool,
    pub(super) repetitions: u32,
    /// After which streams and bytes are counted.
    pub(super) warm_up: Duration,
    /// Time during which users are counted, or begin.
    pub(super) counted: Duration,
}

impl Common {
    /// The first lines of a scenario that lasts so long.
    pub(super) fn head(&self, kind: Kind, about: &str, lasts: Duration) -> String {
        format!(
            "# Written by weft lab mtor: {about} (Yang and Li 2015, V).\nname = \"{}\"\nduration = \"{} s\"\nrepetitions = {}\n\
             congestion_control = {}\ninterval = \"{} s\"\n",
            kind.name(),
            lasts.as_secs_f64(),
            self.repetitions,
            self.congestion_control,
            INTERVAL.as_secs_f64(),
        )
    }

    /// `[network]` with these relays.
    ///
    /// # Errors
    ///
    /// The name of a file is no text.
    pub(super) fn network(&self, relays: &Relays) -> Result<String> {
        let places = match &self.graph {
            Some(path) => format!("graph = {}\n", file(path)?),
            None => format!(
                "graph = \"{}\"\ncountries = [\"{}\"]\n",
                regions::FILE,
                regions::countries().join("\", \"")
            ),
        };
        Ok(format!(
            "\n[network]\n{}{places}losses = false\n",
            relays.toml()
        ))
    }

    /// Time during which clients learn.
    fn learning(&self) -> Duration {
        match self.testbed {
            Testbed::Virtual => LEARNING,
            Testbed::Netns | Testbed::Shadow => Duration::ZERO,
        }
    }

    /// All arms. In virtual time clients learn how long circuits take before there are users, as real ones have.
    pub(super) fn arms(&self, arms: &[Arm]) -> String {
        let learning = self.learning();
        let arm = |arm: &Arm| match learning.is_zero() {
            false => format!("{}learning = \"{} s\"\n", arm.toml(), learning.as_secs()),
            true => arm.toml(),
        };
        arms.iter().map(arm).collect()
    }

    /// Users that load the network: they begin after clients have learnt, and before anything is counted.
    pub(super) fn others(&self, count: u32, name: &str, model: &str, multipath: bool) -> String {
        let learning = self.learning();
        let more = format!(
            "start = \"{} s\"\nmultipath = {multipath}\n",
            learning.as_secs()
        );
        let within = self.warm_up.saturating_sub(learning);
        clients(count, name, model, within, &more)
    }
}

/// A group of clients.
pub(super) fn clients(count: u32, name: &str, model: &str, within: Duration, more: &str) -> String {
    format!(
        "\n[[clients]]\ncount = {count}\nname = \"{name}\"\nmodel = {model}\nwithin = \"{} s\"\n{more}",
        within.as_secs_f64()
    )
}

/// The scenario with the files of its own.
///
/// # Errors
///
/// It is wrong.
pub(super) fn source(kind: Kind, text: String, relays: &Relays) -> Result<Source> {
    let own = [
        (regions::FILE, regions::graph()),
        (relays::FILE, relays.text.clone()),
    ];
    // Files of the user's have absolute names.
    Source::parse(kind.file(), text, Path::new(""), &own)
}

fn file(path: &Path) -> Result<String> {
    let name = path.to_str();
    quoted(name.with_context(|| format!("{} is no text in UTF-8", path.display()))?)
}
