//! The network of a round.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use weft_core::controller;
use weft_core::limits::dos::DosParams;
use weft_model::traffic::{Burst, Model, Pause, Plan, Schedule};

use super::round::{Client, Role, Round, Sharing, Traffic};
use crate::scenario::{Files, Scenario, ScenarioError};
use crate::setup::Setup;

/// The time between two parts of a stream.
const PART: Duration = Duration::from_millis(100);

impl Round {
    /// The network before it runs.
    ///
    /// # Errors
    ///
    /// It is none: a round that was written by hand.
    pub(super) fn setup(&self) -> Result<Setup, ScenarioError> {
        let scenario = Scenario::parse("round", &self.scenario())?;
        let mut setup = scenario.setup(&Files::default(), 0, 1, self.seed)?;
        setup.options.sharing = match self.sharing {
            Sharing::All => controller::Sharing::All,
            Sharing::PerCircuit => controller::Sharing::PerCircuit {
                per_relay: 16,
                total: 300,
            },
            Sharing::Auto => controller::Sharing::Auto {
                per_relay: 16,
                total: 300,
            },
        };
        setup.options.refuse_unknown = !self.any_previous;
        // Addresses are counted, and none is refused.
        setup.options.dos = DosParams {
            connection_enabled: true,
            connection_max_concurrent: u32::MAX,
            connection_connect_rate: u32::MAX,
            connection_connect_burst: u32::MAX,
            ..DosParams::default()
        };
        for (client, ours) in setup.clients.iter_mut().zip(&self.clients) {
            client.model = ours.traffic.model();
            client.one_hop = ours.one_hop;
            client.start = Duration::from_millis(ours.start);
        }
        Ok(setup)
    }

    /// The round as a scenario's text, as far as a scenario can express it.
    fn scenario(&self) -> String {
        let mut text = format!(
            "duration = \"1 h\"\ninterval = \"60 s\"\ncongestion_control = {}\ntcp = \"{}\"\n[network]\ndelay = \"{} ms\"\nloss = \"{} %\"\n",
            self.congestion_control,
            if self.reno { "reno" } else { "cubic" },
            self.delay,
            percent(self.loss),
        );
        let [turn, cell, onionskin] = self.costs;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[costs]\nturn = \"{turn} ns\"\ncell = \"{cell} ns\"\nonionskin = \"{onionskin} ns\"\n"
        );
        let mut host = |name: String, rate: u64, queue: u32| {
            let _ = write!(
                text,
                "[[host]]\nname = \"{name}\"\nup = \"{rate} kbit/s\"\ndown = \"{rate} kbit/s\"\nqueue = \"{queue} packets\"\n"
            );
        };
        for (place, relay) in self.relays.iter().enumerate() {
            host(node(self, place), relay.rate, relay.queue);
        }
        for (place, client) in self.clients.iter().enumerate() {
            host(
                node(self, self.relays.len() + place),
                client.rate,
                client.queue,
            );
        }
        for server in 0..self.servers {
            host(format!("server-{server}"), 1_000_000, 1_000);
        }
        for (one, other, delay, loss) in &self.paths {
            let (one, other) = (node(self, *one), node(self, *other));
            let loss = percent(*loss);
            let _ = write!(
                text,
                "[[path]]\nbetween = [\"{one}\", \"{other}\"]\ndelay = \"{delay} ms\"\nloss = \"{loss} %\"\n"
            );
        }
        for (place, relay) in self.relays.iter().enumerate() {
            let role = match relay.role {
                Role::Guard => "\"guard\"",
                Role::Exit => "\"exit\"",
                Role::Middle => "",
            };
            let name = node(self, place);
            let _ = write!(
                text,
                "[[relay]]\nhost = \"{name}\"\nroles = [{role}]\nthreads = {}\n",
                relay.threads
            );
            if let Some(limit) = relay.limit {
                let _ = writeln!(text, "limit = \"{} bit/s\"", limit * 8);
            }
        }
        for (place, client) in self.clients.iter().enumerate() {
            let name = node(self, self.relays.len() + place);
            // The model is replaced.
            let _ = write!(
                text,
                "[[clients]]\nhosts = [\"{name}\"]\nmodel = \"page\"\n"
            );
            if client.tunnels {
                text += "multipath = true\n";
            }
        }
        for server in 0..self.servers {
            let _ = write!(text, "[[servers]]\nhosts = [\"server-{server}\"]\n");
        }
        let _ = write!(
            text,
            "[[arm]]\nname = \"weft\"\nconflux = {}\nselection = \"{}\"\n",
            self.conflux,
            if self.abra { "abra" } else { "default" },
        );
        if self.legs > 0 {
            let entry = if self.common_entry {
                "common"
            } else {
                "distinct"
            };
            let _ = write!(
                text,
                "multipath = {}\nmultipath_entry = \"{entry}\"\n",
                self.legs
            );
        }
        text
    }
}

/// The name of a node's host.
fn node(round: &Round, node: usize) -> String {
    match node.checked_sub(round.relays.len()) {
        None => format!("relay-{node}"),
        Some(client) => format!("client-{client}"),
    }
}

/// Parts of a million as percent.
fn percent(loss: u32) -> String {
    format!("{}.{:04}", loss / 10_000, loss % 10_000)
}

impl Traffic {
    fn model(&self) -> Model {
        let plan = Plan {
            down: self.schedule(self.down),
            up: self.schedule(self.up),
            timeout: self.timeout.map(Duration::from_millis),
            stall: Some(Duration::from_millis(self.stall)),
        };
        let pause = Duration::from_millis(self.pause);
        match self.periodic {
            true => Model::Periodic {
                every: pause,
                plans: vec![(1, plan)],
            },
            false => Model::Repeat {
                plan,
                pause: Pause::Fixed(pause),
            },
        }
    }

    fn schedule(&self, bytes: u64) -> Schedule {
        let parts = u64::from(self.parts.max(1));
        if parts == 1 || bytes < parts {
            return Schedule::AtOnce(bytes);
        }
        let Ok(part) = u32::try_from(bytes / parts) else {
            return Schedule::AtOnce(bytes);
        };
        // An odd number of parts for the one kind of schedule, an even one for the other.
        if parts % 2 == 1 {
            return Schedule::Steady {
                bytes,
                chunk: part,
                every: PART,
            };
        }
        let bursts = (0..parts).map(|_| Burst {
            gap: PART,
            bytes: part,
        });
        Schedule::Bursts(bursts.collect::<Arc<[Burst]>>())
    }
}

impl Client {
    /// Longest time that a stream may take once no fault is left, in milliseconds.
    pub(super) fn longest(&self) -> u64 {
        u64::from(self.traffic.parts) * 100 + self.traffic.stall
    }
}
