//! Options of the process.

use std::time::Duration;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Options of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// `User`: the user to become once ports are bound.
    pub user: Option<String>,
    /// `ShutdownWaitLength`: from SIGINT to the end.
    pub shutdown_wait_length: Duration,
    /// `__ReloadTorrcOnSIGHUP`.
    pub reload_on_sighup: bool,
    /// Not `__DisableSignalHandlers`: signals mean what they mean to C tor.
    pub signal_handlers: bool,
    /// `RunAsDaemon`: go into the background.
    pub run_as_daemon: bool,
    /// `KeepBindCapabilities` (`None`: where there is a port below 1024).
    pub keep_bind_capabilities: Option<bool>,
    /// `DisableAllSwap`: all memory stays out of swap space.
    pub disable_all_swap: bool,
    /// `DisableDebuggerAttachment`.
    pub disable_debugger_attachment: bool,
    /// `Sandbox`: system calls are restricted.
    pub sandbox: bool,
    /// `NoExec`: no program is started.
    pub no_exec: bool,
    /// `DormantClientTimeout`: idle time after which a client is dormant; `None`: not
    /// `DormantTimeoutEnabled`.
    pub dormant_timeout: Option<Duration>,
    /// `DormantTimeoutDisabledByIdleStreams`.
    pub dormant_disabled_by_streams: bool,
    /// `DormantOnFirstStartup`.
    pub dormant_on_first_startup: bool,
    /// `DormantCanceledByStartup`.
    pub dormant_canceled_by_startup: bool,
}

/// The shortest `DormantClientTimeout` of the public network.
const MIN_DORMANT_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Checks them.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let timeout = settings.time(keys::DormantClientTimeout);
    if timeout < MIN_DORMANT_TIMEOUT && !settings.flag(keys::TestingTorNetwork) {
        report.error(
            settings.origin(keys::DormantClientTimeout),
            "DormantClientTimeout is too low. It must be at least 10 minutes.",
        );
    }
    let plugins = [keys::ClientTransportPlugin, keys::ServerTransportPlugin];
    for plugin in plugins.into_iter().filter(|_| settings.flag(keys::Sandbox)) {
        if !settings.texts(plugin).is_empty() {
            // C tor's words.
            report.error(
                settings.origin(plugin),
                format!("Managed proxies are not compatible with Sandbox mode: remove {plugin}, or set Sandbox 0"),
            );
        }
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> ProcessOptions {
    ProcessOptions {
        user: settings.text(keys::User).map(str::to_owned),
        shutdown_wait_length: settings.time(keys::ShutdownWaitLength),
        reload_on_sighup: settings.flag(keys::__ReloadTorrcOnSIGHUP),
        signal_handlers: !settings.flag(keys::__DisableSignalHandlers),
        run_as_daemon: settings.flag(keys::RunAsDaemon),
        keep_bind_capabilities: settings.auto_flag(keys::KeepBindCapabilities),
        disable_all_swap: settings.flag(keys::DisableAllSwap),
        disable_debugger_attachment: settings.flag(keys::DisableDebuggerAttachment),
        sandbox: settings.flag(keys::Sandbox),
        no_exec: settings.flag(keys::NoExec),
        dormant_timeout: Some(settings.time(keys::DormantClientTimeout))
            .filter(|_| settings.flag(keys::DormantTimeoutEnabled)),
        dormant_disabled_by_streams: settings.flag(keys::DormantTimeoutDisabledByIdleStreams),
        dormant_on_first_startup: settings.flag(keys::DormantOnFirstStartup),
        dormant_canceled_by_startup: settings.flag(keys::DormantCanceledByStartup),
    }
}
