//! Definition of an attack.

use std::time::Duration;

use anyhow::Result;

use super::probes::Want;
use super::scene::Scene;
use super::servers::Behaviour;
use super::target::Needs;

/// For attacks that are in full swing at once.
pub(super) const NO_LEAD: Duration = Duration::ZERO;

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its action, in one sentence without a full stop.
    pub what: &'static str,
    /// Its bound besides `--mbits`.
    pub bound: &'static str,
    /// Its requirements on the target.
    pub needs: Needs,
    /// The request of honest users that it may hinder.
    pub want: Want,
    /// The server at which its streams end.
    pub(super) destination: Option<Behaviour>,
    /// Time that it runs before anything is measured.
    pub(super) lead: Duration,
    pub(super) run: fn(&Scene<'_>) -> Result<()>,
}
