//! The network and its users, as a scenario.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::comparison::{Arm, quoted, regions};
use crate::run::testbed::Testbed;

/// Model name of the users that browse.
pub(super) const WEB: &str = "web";
/// Model name of the users that download without a pause.
pub(super) const BULK: &str = "bulk";
/// Model name of the users that measure circuits.
pub(super) const MEASURE: &str = "measure";
/// Choices that are recorded in each network.
const CHOICES: u32 = 100_000;
/// Before the warm-up ends clients leave the circuits of its beginning, and build others.
const RENEWAL: Duration = Duration::from_secs(10);
/// Bytes that relays move are summed over so long (Schrock 2017, 3.3), seconds.
pub(super) const INTERVAL_S: u64 = 10;

/// Number of nodes and users of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) relays: u32,
    pub(super) web: u32,
    pub(super) bulk: u32,
    pub(super) servers: u32,
}

impl Size {
    /// Schrock 2017, 3.3.
    const PAPER: Size = Size {
        relays: 500,
        web: 1_350,
        bulk: 150,
        servers: 500,
    };
    /// With fewer there is hardly a choice of circuits, or no percentile.
    const LEAST: Size = Size {
        relays: 12,
        web: 10,
        bulk: 2,
        servers: 5,
    };

    /// This part of the paper's network, with a multiple of its clients.
    pub(super) fn of(scale: f64, load: f64) -> Size {
        let (paper, least) = (Size::PAPER, Size::LEAST);
        // Both are bounded by the command, so this fits.
        let part = |of: u32, least: u32, times: f64| {
            ((f64::from(of) * scale * times).round() as u32).max(least)
        };
        Size {
            relays: part(paper.relays, least.relays, 1.0),
            web: part(paper.web, least.web, load),
            bulk: part(paper.bulk, least.bulk, load),
            servers: part(paper.servers, least.servers, 1.0),
        }
    }
}

/// Everything that the scenario depends on.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) testbed: Testbed,
    pub(super) size: Size,
    /// With the part of its relays that is kept.
    pub(super) consensus: Option<(PathBuf, f64)>,
    pub(super) graph: Option<PathBuf>,
    /// kB/s for each unit of a relay's weight.
    pub(super) capacity: f64,
    /// After which streams and bytes are counted.
    pub(super) warm_up: Duration,
    /// Time during which streams are counted.
    pub(super) counted: Duration,
    pub(super) repetitions: u32,
    pub(super) congestion_control: bool,
    pub(super) arms: Vec<Arm>,
    /// Work of a relay's processor for each circuit.
    pub(super) handshake: Duration,
    /// Clients that measure circuits, and what they download over each, bytes.
    pub(super) measure: (u32, u64),
    /// The arm whose choices are recorded.
    pub(super) pools: Option<String>,
}

impl Plan {
    /// As TOML. Users begin within the warm-up.
    ///
    /// # Errors
    ///
    /// The name of a file is no text.
    pub(super) fn text(&self) -> Result<String> {
        let Plan { size, .. } = self;
        let (warm_up, whole) = (
            self.warm_up.as_secs_f64(),
            (self.warm_up + self.counted).as_secs_f64(),
        );
        let mut text = format!(
            "# Written by weft lab selection: web clients fetch 320 KB and pause for 1 ms to a minute, bulk clients fetch 5 MB \
             without pauses (Schrock 2017, 3.3).\nname = \"selection\"\nduration = \"{whole} s\"\nrepetitions = {}\n\
             congestion_control = {}\ninterval = \"{INTERVAL_S} s\"\n\n[network]\n",
            self.repetitions, self.congestion_control
        );
        match &self.consensus {
            Some((path, scale)) => {
                text += &format!("consensus = {}\nscale = {scale}\n", file(path)?);
            }
            None => text += &format!("synthetic = {{ relays = {} }}\n", size.relays),
        }
        text += &match &self.graph {
            Some(path) => format!("graph = {}\n", file(path)?),
            None => format!(
                "graph = \"{}\"\ncountries = [\"{}\"]\n",
                regions::FILE,
                regions::countries().join("\", \"")
            ),
        };
        // As operators do: a relay's bandwidth is its limit, and its line has more.
        text += &format!(
            "losses = false\nbuckets = true\ncapacity = {:?}\n",
            self.capacity
        );
        let users = [
            (
                size.web,
                WEB,
                "{ download = \"320 kB\", pause = [\"1 ms\", \"60 s\"] }",
            ),
            (size.bulk, BULK, "{ download = \"5 MB\" }"),
        ];
        for (count, name, model) in users {
            text += &format!(
                "\n[[clients]]\ncount = {count}\nname = \"{name}\"\nmodel = {model}\nwithin = \"{warm_up} s\"\n"
            );
        }
        if let (clients @ 1.., bytes) = self.measure {
            text += &format!(
                "\n[[clients]]\ncount = {clients}\nname = \"{MEASURE}\"\nmodel = {{ download = \"{bytes} bytes\" }}\n\
                 within = \"{warm_up} s\"\nmeasure = true\n"
            );
        }
        text += &format!("\n[[servers]]\ncount = {}\n", size.servers);
        if !self.handshake.is_zero() {
            text += &format!(
                "\n[costs]\nonionskin = \"{} ns\"\n",
                self.handshake.as_nanos()
            );
        }
        for arm in &self.arms {
            text += &arm.toml();
            if self.testbed == Testbed::Virtual {
                // Estimates need a hundred circuits, which clients have had before.
                let learning = self.warm_up.saturating_sub(RENEWAL).as_secs_f64();
                text += &format!("learning = \"{learning} s\"\n");
            }
            if self.pools.as_ref() == Some(&arm.name) {
                text += &format!("pools = {CHOICES}\n");
            }
        }
        Ok(text)
    }
}

fn file(path: &Path) -> Result<String> {
    let name = path.to_str();
    quoted(name.with_context(|| format!("{} is no text in UTF-8", path.display()))?)
}
