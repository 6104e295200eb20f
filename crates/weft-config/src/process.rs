//! How the process behaves.

use std::time::Duration;

use crate::settings::Settings;
use crate::table::keys;

/// How the process behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// `User`: the user to become once ports are bound.
    pub user: Option<String>,
    /// `ShutdownWaitLength`: from SIGINT to the end.
    pub shutdown_wait_length: Duration,
    /// `__ReloadTorrcOnSIGHUP`.
    pub reload_on_sighup: bool,
    /// `RunAsDaemon`: go into the background.
    pub run_as_daemon: bool,
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> ProcessOptions {
    ProcessOptions {
        user: settings.text(keys::User).map(str::to_owned),
        shutdown_wait_length: settings.time(keys::ShutdownWaitLength),
        reload_on_sighup: settings.flag(keys::__ReloadTorrcOnSIGHUP),
        run_as_daemon: settings.flag(keys::RunAsDaemon),
    }
}
