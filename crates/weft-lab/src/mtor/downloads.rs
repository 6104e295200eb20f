//! Downloads over one circuit and over several, beside users that load the network (Yang and Li 2015, V.A).
//!
//! The paper's client was alone with its tunnels on the live network: fast relays were busy with the traffic of others, slow ones
//! were idle, and the exit was the authors' own, which bounded nothing. So here other users load the network over one circuit each, in
//! every arm; downloads begin one after another, so that few tunnels share the slow relays; and exits have lines that are never full.

use std::time::Duration;

use anyhow::Result;

use super::part::{BULK, BULK_MODEL, Common, Kind, WEB, WEB_MODEL, clients};
use super::relays::Relays;
use crate::comparison::Arm;

/// Lines of exits.
const EXITS: &str = "10 Gbit/s";
/// Lines of those that download: they bound nothing.
const LINE: &str = "100 Mbit/s";

/// Number of nodes and users of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) relays: u32,
    /// Other users.
    pub(super) web: u32,
    pub(super) bulk: u32,
    pub(super) servers: u32,
}

impl Size {
    const WHOLE: Size = Size {
        relays: 100,
        web: 160,
        bulk: 20,
        servers: 20,
    };
    /// With fewer relays five circuits have no entries of their own.
    const LEAST: Size = Size {
        relays: 30,
        web: 10,
        bulk: 2,
        servers: 5,
    };

    /// This part of the network, with a multiple of its other users.
    pub(super) fn of(scale: f64, load: f64) -> Size {
        let (whole, least) = (Size::WHOLE, Size::LEAST);
        // Both are bounded by the command, so this fits.
        let part = |of: u32, least: u32, times: f64| {
            ((f64::from(of) * scale * times).round() as u32).max(least)
        };
        Size {
            relays: part(whole.relays, least.relays, 1.0),
            web: part(whole.web, least.web, load),
            bulk: part(whole.bulk, least.bulk, load),
            servers: part(whole.servers, least.servers, 1.0),
        }
    }
}

/// Downloads of a network.
#[derive(Clone, Debug)]
pub(super) struct Downloads {
    pub(super) size: Size,
    /// Megabytes of each.
    pub(super) megabytes: Vec<u32>,
    /// Downloads of each size.
    pub(super) each: u32,
    /// After the last one may have begun.
    pub(super) rest: Duration,
}

/// Model name of the clients that download `megabytes` each.
pub(super) fn model(megabytes: u32) -> String {
    format!("download-{megabytes}-mb")
}

impl Downloads {
    /// Duration of a network's run.
    pub(super) fn lasts(&self, common: &Common) -> Duration {
        common.warm_up + common.counted + self.rest
    }

    /// As a scenario.
    ///
    /// # Errors
    ///
    /// The name of a file is no text.
    pub(super) fn text(&self, common: &Common, relays: &Relays, arms: &[Arm]) -> Result<String> {
        let Downloads { size, .. } = self;
        let about = "downloads over one circuit and over several, one for each client, beside users with one circuit each";
        let mut text = common.head(Kind::Downloads, about, self.lasts(common));
        text += &common.network(relays)?;
        text += &format!("exit_rate = \"{EXITS}\"\n");
        // Not theirs is what several circuits are compared for.
        text += &common.others(size.web, WEB, WEB_MODEL, false);
        text += &common.others(size.bulk, BULK, BULK_MODEL, false);
        for &megabytes in &self.megabytes {
            let user = format!("{{ download = \"{megabytes} MB\", pause = \"24 h\" }}");
            let more = format!(
                "start = \"{} s\"\nup = \"{LINE}\"\ndown = \"{LINE}\"\nmultipath = true\n",
                common.warm_up.as_secs_f64()
            );
            text += &clients(self.each, &model(megabytes), &user, common.counted, &more);
        }
        text += &format!("\n[[servers]]\ncount = {}\n", size.servers);
        text += &common.arms(arms);
        Ok(text)
    }
}
