//! Options that only private networks change.

use std::time::Duration;

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Options that only private networks change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestingOptions {
    /// `TestingTorNetwork`.
    pub network: bool,
    /// `TestingMinTimeToReportBandwidth`: a relay's bandwidth is published after this.
    pub min_time_to_report_bandwidth: Duration,
    /// `TestingDirConnectionMaxStall`: a directory request that stands still this long fails.
    pub dir_connection_max_stall: Duration,
    /// `TestingServerConsensusDownloadInitialDelay`.
    pub server_consensus_download_initial_delay: Duration,
    /// `TestingServerDownloadInitialDelay`.
    pub server_download_initial_delay: Duration,
    /// `TestingClientConsensusDownloadInitialDelay`.
    pub client_consensus_download_initial_delay: Duration,
    /// `TestingClientDownloadInitialDelay`.
    pub client_download_initial_delay: Duration,
    /// `TestingClientMaxIntervalWithoutRequest`: how long a client gathers microdescriptors to ask for.
    pub client_max_interval_without_request: Duration,
    /// `TestingEnableConnBwEvent`: controllers get CONN_BW.
    pub connection_events: bool,
    /// `TestingEnableCellStatsEvent`: controllers get CELL_STATS.
    pub cell_events: bool,
}

/// Checks whether this is a private network.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let own_authorities = !settings.lines(keys::DirAuthority).is_empty()
        || (!settings.lines(keys::AlternateDirAuthority).is_empty()
            && !settings.lines(keys::AlternateBridgeAuthority).is_empty());
    let testing = settings.flag(keys::TestingTorNetwork);
    if testing && !own_authorities {
        report.error(
            settings.origin(keys::TestingTorNetwork),
            "TestingTorNetwork needs authorities of its own: set DirAuthority",
        );
    }
    if !settings.flag(keys::ClientDNSRejectInternalAddresses) && !own_authorities {
        report.error(
            settings.origin(keys::ClientDNSRejectInternalAddresses),
            "ClientDNSRejectInternalAddresses 0 is only for networks with authorities of their own",
        );
    }
    if testing {
        report.warn(
            None,
            "TestingTorNetwork is set: this node is of no use in the public Tor network",
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings) -> TestingOptions {
    TestingOptions {
        network: settings.flag(keys::TestingTorNetwork),
        min_time_to_report_bandwidth: settings.time(keys::TestingMinTimeToReportBandwidth),
        dir_connection_max_stall: settings.time(keys::TestingDirConnectionMaxStall),
        server_consensus_download_initial_delay: settings
            .time(keys::TestingServerConsensusDownloadInitialDelay),
        server_download_initial_delay: settings.time(keys::TestingServerDownloadInitialDelay),
        client_consensus_download_initial_delay: settings
            .time(keys::TestingClientConsensusDownloadInitialDelay),
        client_download_initial_delay: settings.time(keys::TestingClientDownloadInitialDelay),
        client_max_interval_without_request: settings
            .time(keys::TestingClientMaxIntervalWithoutRequest),
        connection_events: settings.flag(keys::TestingEnableConnBwEvent),
        cell_events: settings.flag(keys::TestingEnableCellStatsEvent),
    }
}
