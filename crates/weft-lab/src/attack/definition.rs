//! What an attack is.

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
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in one sentence without a full stop.
    pub what: &'static str,
    /// What bounds it besides `--mbits`.
    pub bound: &'static str,
    /// What it needs of its target.
    pub needs: Needs,
    /// What it may take from honest users.
    pub want: Want,
    /// The server at which its streams end.
    pub(super) destination: Option<Behaviour>,
    /// How long it goes on before anything is measured.
    pub(super) lead: Duration,
    pub(super) run: fn(&Scene<'_>) -> Result<()>,
}
