//! Statistics of a relay's day, to be published in its extra-info document.

use crate::settings::Settings;
use crate::table::keys;

/// Switches of statistics; off where the node is not a relay, as in C tor
/// (`options_validate_relay_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsOptions {
    /// `ExtraInfoStatistics`: they are published.
    pub published: bool,
    /// `DirReqStatistics`, of a relay that serves a directory.
    pub dir_requests: bool,
    /// `EntryStatistics`.
    pub entry: bool,
    /// `CellStatistics`.
    pub cells: bool,
    /// `ExitPortStatistics`.
    pub exit_ports: bool,
    /// `HiddenServiceStatistics`.
    pub hidden_services: bool,
    /// `ConnDirectionStatistics`.
    pub directions: bool,
    /// `PaddingStatistics`.
    pub padding: bool,
    /// `OverloadStatistics`.
    pub overload: bool,
}

/// Reads them.
pub(crate) fn read(settings: &Settings, is_relay: bool) -> StatisticsOptions {
    let flag = |key| is_relay && settings.flag(key);
    StatisticsOptions {
        published: flag(keys::ExtraInfoStatistics),
        dir_requests: flag(keys::DirReqStatistics) && settings.flag(keys::DirCache),
        entry: flag(keys::EntryStatistics),
        cells: flag(keys::CellStatistics),
        exit_ports: flag(keys::ExitPortStatistics),
        hidden_services: flag(keys::HiddenServiceStatistics),
        directions: flag(keys::ConnDirectionStatistics),
        padding: flag(keys::PaddingStatistics),
        overload: flag(keys::OverloadStatistics),
    }
}

#[cfg(test)]
mod tests {
    use crate::host::MemoryHost;
    use crate::load_text;
    use crate::options::Options;

    fn options(torrc: &str) -> Options {
        load_text(torrc, &MemoryHost::new()).unwrap().options
    }

    #[test]
    fn statistics_are_those_of_c_tor_and_of_relays_alone() {
        let relay = "ORPort 9001\nContactInfo x\nExitRelay 0\n";
        let on = options(relay).statistics;
        assert!(on.published && on.dir_requests && on.hidden_services && on.padding && on.overload);
        assert!(!(on.entry || on.cells || on.exit_ports || on.directions));
        let set = options(&format!(
            "{relay}EntryStatistics 1\nCellStatistics 1\nExitPortStatistics 1\nConnDirectionStatistics 1\n\
             DirCache 0\nHiddenServiceStatistics 0\nPaddingStatistics 0\nOverloadStatistics 0\n\
             ExtraInfoStatistics 0\n"
        ))
        .statistics;
        assert!(set.entry && set.cells && set.exit_ports && set.directions);
        assert!(!(set.dir_requests || set.hidden_services || set.padding || set.overload));
        assert!(!set.published);
        assert_eq!(options("SocksPort 9050\n").statistics, Default::default());
    }
}
