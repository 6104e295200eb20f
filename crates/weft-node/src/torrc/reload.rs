//! SIGHUP: reads the configuration again and tells what changed (C tor: `options_transition_…` of
//! src/app/config/config.c, `options_transition_affects_descriptor` of relay_config.c).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use super::command_line::{CommandLine, TorrcSource};
use super::host::Host;
use super::known::Kind;
use super::load::{Loaded, load};
use super::options::Options;
use super::report::Report;

/// An option whose value a reload changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The option's canonical name; `ORPortLines` and its like for lists of several names.
    pub name: &'static str,
}

impl Change {
    /// Whether a new descriptor must be published (options_transition_affects_descriptor).
    #[must_use]
    pub fn affects_descriptor(&self) -> bool {
        [
            "Nickname",
            "Address",
            "AddressDisableIPv6",
            "ExitPolicy",
            "ExitRelay",
            "ExitPolicyRejectPrivate",
            "ReducedExitPolicy",
            "IPv6Exit",
            "ORPortLines",
            "ClientOnly",
            "PublishServerDescriptor",
            "ContactInfo",
            "MyFamily",
            "AssumeReachable",
            "AssumeReachableIPv6",
            "BandwidthRate",
            "BandwidthBurst",
            "RelayBandwidthRate",
            "RelayBandwidthBurst",
            "MaxAdvertisedBandwidth",
            "DisableNetwork",
        ]
        .contains(&self.name)
    }

    /// Whether listeners must be closed or opened.
    #[must_use]
    pub fn affects_listeners(&self) -> bool {
        [
            "ORPortLines",
            "ClientOnly",
            "SocksPortLines",
            "HTTPTunnelPortLines",
            "DNSPortLines",
            "ControlPortLines",
            "ControlSocket",
            "MetricsPortLines",
            "DisableNetwork",
        ]
        .contains(&self.name)
    }

    /// Whether rates and bursts are others.
    #[must_use]
    pub fn affects_bandwidth(&self) -> bool {
        [
            "BandwidthRate",
            "BandwidthBurst",
            "RelayBandwidthRate",
            "RelayBandwidthBurst",
        ]
        .contains(&self.name)
    }

    /// Whether logs must be set up again.
    #[must_use]
    pub fn affects_logs(&self) -> bool {
        [
            "Log",
            "LogTimeGranularity",
            "LogMessageDomains",
            "TruncateLogFile",
            "SafeLogging",
        ]
        .contains(&self.name)
    }

    /// Whether the change is only followed after a restart, although C tor lets it be made.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        ["NumCPUs"].contains(&self.name)
    }

    /// Whether there are other authorities.
    #[must_use]
    pub fn affects_authorities(&self) -> bool {
        ["DirAuthority", "AlternateDirAuthority"].contains(&self.name)
    }
}

/// Reads the configuration again.
///
/// # Errors
/// Everything that is wrong with it, changes that are not possible in a running node among it: then
/// the old options stay in force.
pub fn reload(
    command_line: &CommandLine,
    host: &Host,
    old: &Options,
) -> Result<(Loaded, Vec<Change>), Report> {
    if command_line.torrc == Some(TorrcSource::Stdin) {
        let mut report = Report::default();
        report.error(
            None,
            "torrc was read from standard input, which cannot be read again",
        );
        return Err(report);
    }
    let mut loaded = load(command_line, host)?;
    let changes = changes(old, &mut loaded)?;
    Ok((loaded, changes))
}

/// What differs between two configurations.
pub(super) fn changes(old: &Options, new: &mut Loaded) -> Result<Vec<Change>, Report> {
    let mut changes = Vec::new();
    for ((known, before, _), (_, after, origin)) in
        old.settings.iter().zip(new.options.settings.iter())
    {
        if matches!(known.kind, Kind::LinesOf(_) | Kind::Obsolete) || before == after {
            continue;
        }
        if known.immutable {
            let origin = origin.cloned();
            let text = format!(
                "while the node is running, {} cannot be changed; restart it for that",
                known.name
            );
            new.report.error(origin.as_ref(), text);
        }
        changes.push(Change { name: known.name });
    }
    if new.report.has_errors() {
        Err(new.report.clone())
    } else {
        Ok(changes)
    }
}
