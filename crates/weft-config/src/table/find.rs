//! Search for the option that a key of torrc means: names in any case, other names, abbreviations,
//! and the known name that is most like a misspelt one (C tor: `option_abbrevs_` of
//! src/app/config/config.c).

use crate::table;
use crate::table::known::Known;

/// Option that a key means.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) index: usize,
    pub(crate) known: &'static Known,
    /// Warning about the way in which it was written.
    pub(crate) warning: Option<String>,
}

/// The option that a key of torrc means; controllers may use the same keys.
#[must_use]
pub fn option_of(key: &str) -> Option<&'static Known> {
    find(key, false).map(|found| found.known)
}

/// Finds the option that a key means: by its name in any case, by an alias, or by the start of its
/// name.
pub(crate) fn find(key: &str, command_line: bool) -> Option<Found> {
    let mut name = key;
    let mut warning = None;
    // In order, as C tor does, so that an alias may lead to another further down.
    for alias in &ALIASES {
        if alias.alias.eq_ignore_ascii_case(name) && (command_line || !alias.command_line_only) {
            if alias.deprecated {
                warning = Some(format!(
                    "{} is deprecated; use {} instead",
                    alias.alias, alias.name
                ));
            }
            name = alias.name;
        }
    }
    if name.is_empty() {
        return None;
    }
    if let Some((index, known)) = table::by_name(name) {
        return Some(Found {
            index,
            known,
            warning,
        });
    }
    let starts = |known: &Known| {
        known
            .name
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let (index, known) = table::indexed().find(|(_, known)| starts(known))?;
    let warning = Some(format!(
        "the abbreviation {key} is deprecated; write {} instead",
        known.name
    ));
    Some(Found {
        index,
        known,
        warning,
    })
}

/// The option whose name is most like `key`, where one is like it.
#[must_use]
pub(crate) fn nearest(key: &str) -> Option<&'static str> {
    let names = table::all()
        .filter(|known| known.is_settable())
        .map(|known| known.name);
    nearest_of(key, names)
}

/// The word most like `word`, where one is like it: no more than a third of it differs. The start
/// of a longer word is like it, too.
pub(crate) fn nearest_of<'a>(word: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    // Comparing costs the product of the lengths; nothing this long is a misspelt name.
    if word.len() > 80 {
        return None;
    }
    let allowed = ((word.chars().count() + 1) / 3).max(1);
    let distance = |name: &str| {
        let name = name.to_ascii_lowercase();
        let starts = (0..=2).filter_map(|more| name.get(..word.len() + more));
        starts
            .filter(|_| word.len() > 4)
            .map(|start| 1 + strsim::damerau_levenshtein(&word, start))
            .chain([strsim::damerau_levenshtein(&word, &name)])
            .min()
            .unwrap_or(usize::MAX)
    };
    among
        .map(|name| (distance(name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Another name of an option.
struct Alias {
    alias: &'static str,
    name: &'static str,
    command_line_only: bool,
    deprecated: bool,
}

const fn alias(
    alias: &'static str,
    name: &'static str,
    command_line_only: bool,
    deprecated: bool,
) -> Alias {
    Alias {
        alias,
        name,
        command_line_only,
        deprecated,
    }
}

/// Other names, in C tor's order (`option_abbrevs_`).
const ALIASES: [Alias; 54] = [
    alias("AuthDirBadDirCC", "AuthDirBadDirCCs", false, false),
    alias("AuthDirBadExitCC", "AuthDirBadExitCCs", false, false),
    alias("AuthDirInvalidCC", "AuthDirInvalidCCs", false, false),
    alias("AuthDirMiddleOnlyCC", "AuthDirMiddleOnlyCCs", false, false),
    alias("AuthDirRejectCC", "AuthDirRejectCCs", false, false),
    alias("EntryNode", "EntryNodes", false, false),
    alias("ExcludeNode", "ExcludeNodes", false, false),
    alias("FirewallPort", "FirewallPorts", false, false),
    alias("LongLivedPort", "LongLivedPorts", false, false),
    alias("HiddenServiceNode", "HiddenServiceNodes", false, false),
    alias(
        "HiddenServiceExcludeNode",
        "HiddenServiceExcludeNodes",
        false,
        false,
    ),
    alias("NumCPU", "NumCPUs", false, false),
    alias("RendNode", "RendNodes", false, false),
    alias("RecommendedPackage", "RecommendedPackages", false, false),
    alias("RendExcludeNode", "RendExcludeNodes", false, false),
    alias("StrictEntryNode", "StrictEntryNodes", false, false),
    alias("StrictExitNode", "StrictExitNodes", false, false),
    alias("StrictNode", "StrictNodes", false, false),
    alias("l", "Log", true, false),
    alias("AllowUnverifiedNodes", "AllowInvalidNodes", false, false),
    alias("AutomapHostSuffixes", "AutomapHostsSuffixes", false, false),
    alias(
        "AutomapHostOnResolve",
        "AutomapHostsOnResolve",
        false,
        false,
    ),
    alias("BandwidthRateBytes", "BandwidthRate", false, false),
    alias("BandwidthBurstBytes", "BandwidthBurst", false, false),
    alias("DirFetchPostPeriod", "StatusFetchPeriod", false, false),
    alias("DirServer", "DirAuthority", false, false),
    alias("MaxConn", "ConnLimit", false, true),
    alias("MaxMemInCellQueues", "MaxMemInQueues", false, false),
    alias("ORBindAddress", "ORListenAddress", false, false),
    alias("DirBindAddress", "DirListenAddress", false, false),
    alias("SocksBindAddress", "SocksListenAddress", false, false),
    alias("UseHelperNodes", "UseEntryGuards", false, false),
    alias("NumHelperNodes", "NumEntryGuards", false, false),
    alias("UseEntryNodes", "UseEntryGuards", false, false),
    alias("NumEntryNodes", "NumEntryGuards", false, false),
    alias("ResolvConf", "ServerDNSResolvConfFile", false, true),
    alias("SearchDomains", "ServerDNSSearchDomains", false, true),
    alias(
        "ServerDNSAllowBrokenResolvConf",
        "ServerDNSAllowBrokenConfig",
        false,
        false,
    ),
    alias(
        "PreferTunnelledDirConns",
        "PreferTunneledDirConns",
        false,
        false,
    ),
    alias(
        "BridgeAuthoritativeDirectory",
        "BridgeAuthoritativeDir",
        false,
        false,
    ),
    alias(
        "HashedControlPassword",
        "__HashedControlSessionPassword",
        true,
        false,
    ),
    alias("VirtualAddrNetwork", "VirtualAddrNetworkIPv4", false, false),
    alias(
        "SocksSocketsGroupWritable",
        "UnixSocksGroupWritable",
        false,
        true,
    ),
    alias("_HSLayer2Nodes", "HSLayer2Nodes", false, true),
    alias("_HSLayer3Nodes", "HSLayer3Nodes", false, true),
    alias(
        "ClientBootstrapConsensusAuthorityDownloadSchedule",
        "ClientBootstrapConsensusAuthorityDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "ClientBootstrapConsensusAuthorityOnlyDownloadSchedule",
        "ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "ClientBootstrapConsensusFallbackDownloadSchedule",
        "ClientBootstrapConsensusFallbackDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingBridgeDownloadSchedule",
        "TestingBridgeDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingBridgeBootstrapDownloadSchedule",
        "TestingBridgeBootstrapDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingClientDownloadSchedule",
        "TestingClientDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingClientConsensusDownloadSchedule",
        "TestingClientConsensusDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingServerDownloadSchedule",
        "TestingServerDownloadInitialDelay",
        false,
        true,
    ),
    alias(
        "TestingServerConsensusDownloadSchedule",
        "TestingServerConsensusDownloadInitialDelay",
        false,
        true,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_by_alias_and_by_their_start() {
        let name = |key, command_line| {
            find(key, command_line).map(|f| (f.known.name, f.warning.is_some()))
        };
        assert_eq!(name("orport", false), Some(("ORPort", false)));
        assert_eq!(name("NumCPU", false), Some(("NumCPUs", false)));
        assert_eq!(name("MaxConn", false), Some(("ConnLimit", true)));
        assert_eq!(name("l", true), Some(("Log", false)));
        assert_eq!(name("l", false), Some(("LearnCircuitBuildTimeout", true)));
        assert_eq!(name("Nicknam", false), Some(("Nickname", true)));
        assert_eq!(name("Nicknamex", false), None);
        assert_eq!(name("", false), None);
    }

    #[test]
    fn a_misspelt_name_finds_its_neighbour() {
        assert_eq!(nearest("Nicknme"), Some("Nickname"));
        assert_eq!(nearest("RelayBandwithRate"), Some("RelayBandwidthRate"));
        assert_eq!(nearest("ConectionThread"), Some("ConnectionThreads"));
        assert_eq!(
            nearest("ExitPlicyRejectPriv"),
            Some("ExitPolicyRejectPrivate")
        );
        assert_eq!(nearest("Frobnicate"), None);
        assert_eq!(nearest(&"x".repeat(1000)), None);
    }
}
