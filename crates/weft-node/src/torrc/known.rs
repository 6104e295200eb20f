//! Every option that C tor 0.4.9 knows, and Weft's own, in one table: name, type, default, and what
//! Weft does with it (C tor: `option_vars_` of src/app/config/config.c and the `…_options.inc`
//! files).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

/// What a value is, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or directory.
    Path,
    /// A whole number.
    Int,
    /// A whole number from 0.
    PosInt,
    /// A whole number from 0 of 64 bits.
    U64,
    /// An amount of information, in bytes.
    Memory,
    /// A length of time, in seconds.
    Seconds,
    /// A length of time, in milliseconds.
    Millis,
    /// A length of time, in seconds; what follows a comma is ignored, as it has been since
    /// download schedules became exponential.
    FirstSeconds,
    /// A decimal fraction.
    Double,
    /// 0 or 1.
    Bool,
    /// 0, 1 or auto.
    AutoBool,
    /// A whole number from 0 to [`MAX_CONNECTION_THREADS`](super::options::MAX_CONNECTION_THREADS),
    /// or auto.
    Count,
    /// Words separated by commas.
    Csv,
    /// A set of relays; Weft keeps it as text.
    RouterSet,
    /// Several lines of the same name.
    Lines,
    /// Lines that are kept, with others, in the list of this name.
    LinesOf(&'static str),
    /// A list that is set by other names only.
    LinesVirtual,
    /// An option that does nothing any more.
    Obsolete,
}

/// What Weft does with an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// What C tor does.
    Full,
    /// Nothing.
    None {
        /// What ignoring the option does to the operator who sets it.
        harm: Harm,
        /// Values, as they are dumped, that ask for nothing that Weft does not do: no message.
        fine: &'static [&'static str],
        /// What happens, or does not, because the option is ignored.
        why: &'static str,
    },
}

/// What ignoring an option does to the operator who sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Safety rests on it: the configuration is refused.
    Unsafe,
    /// Something that was asked for does not happen: a warning that names it, before all others.
    Lost,
    /// Nothing that anybody would miss: all such options share one notice.
    Harmless,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name, as it is dumped.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// The value that it has unless set, as it would be written; `None`: nothing, or zero.
    pub default: Option<&'static str>,
    /// What Weft does with it.
    pub support: Support,
    /// Whether it cannot change while the node runs.
    pub immutable: bool,
    /// Whether it is left out of dumps.
    pub hidden: bool,
}

const fn known(name: &'static str, kind: Kind, default: Option<&'static str>) -> Known {
    let support = Support::None {
        harm: Harm::Lost,
        fine: &[],
        why: "",
    };
    Known {
        name,
        kind,
        default,
        support,
        immutable: false,
        hidden: false,
    }
}

const fn obsolete(name: &'static str) -> Known {
    known(name, Kind::Obsolete, None).harmless("it does nothing in C tor either")
}

impl Known {
    const fn supported(mut self) -> Self {
        self.support = Support::Full;
        self
    }

    /// Not supported, and refused unless its value is one of `fine`.
    const fn refused(self, fine: &'static [&'static str], why: &'static str) -> Self {
        self.unsupported(Harm::Unsafe, fine, why)
    }

    /// Not supported, with a warning unless its value is one of `fine`.
    const fn lost(self, fine: &'static [&'static str], why: &'static str) -> Self {
        self.unsupported(Harm::Lost, fine, why)
    }

    /// Not supported, and nobody misses it.
    const fn harmless(self, why: &'static str) -> Self {
        self.unsupported(Harm::Harmless, &[], why)
    }

    const fn unsupported(
        mut self,
        harm: Harm,
        fine: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        self.support = Support::None { harm, fine, why };
        self
    }

    const fn immutable(mut self) -> Self {
        self.immutable = true;
        self
    }

    const fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Whether further lines add to earlier ones instead of replacing them.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        matches!(
            self.kind,
            Kind::Lines | Kind::LinesOf(_) | Kind::LinesVirtual
        )
    }

    /// Whether an operator can set it by this name.
    #[must_use]
    pub const fn is_settable(&self) -> bool {
        !matches!(self.kind, Kind::LinesVirtual | Kind::Obsolete)
    }
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

/// Options that still work but should not be used, and why (`option_deprecation_notes_`).
const DEPRECATED: [(&str, &str); 5] = [
    (
        "HTTPProxy",
        "It only applies to unencrypted connections to directory servers.",
    ),
    (
        "HTTPProxyAuthenticator",
        "HTTPProxy is deprecated in favour of HTTPSProxy.",
    ),
    ("ReachableDirAddresses", "It has no effect."),
    ("ClientPreferIPv6DirPort", "It has no effect."),
    (
        "ClientAutoIPv6ORPort",
        "It is unreliable unless a connection is reliably dual-stack.",
    ),
];

/// The names of deprecated options, in C tor's order.
pub fn deprecated_names() -> impl Iterator<Item = &'static str> {
    DEPRECATED.iter().map(|(name, _)| *name)
}

/// Why an option should not be used any more, where it should not.
pub(super) fn deprecation(name: &str) -> Option<&'static str> {
    DEPRECATED
        .iter()
        .find(|(deprecated, _)| *deprecated == name)
        .map(|(_, why)| *why)
}

/// What a key turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) index: usize,
    pub(super) known: &'static Known,
    /// Something to tell about the way it was written.
    pub(super) warning: Option<String>,
}

/// Finds the option that a key means: by its name in any case, by an alias, or by the start of its
/// name.
pub(super) fn find(key: &str, command_line: bool) -> Option<Found> {
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
    if let Some(index) = index_of(name) {
        return KNOWN.get(index).map(|known| Found {
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
    let index = KNOWN.iter().position(starts)?;
    let known = KNOWN.get(index)?;
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

/// The place in [`KNOWN`] of the option with exactly this name, in any case.
pub(super) fn index_of(name: &str) -> Option<usize> {
    KNOWN
        .iter()
        .position(|known| known.name.eq_ignore_ascii_case(name))
}

/// The option whose name is most like `key`, where one is like it.
#[must_use]
pub fn nearest(key: &str) -> Option<&'static str> {
    let names = KNOWN
        .iter()
        .filter(|known| known.is_settable())
        .map(|known| known.name);
    nearest_of(key, names)
}

/// The word most like `word`, where one is like it: no more than a third of it differs. The start
/// of a longer word is like it, too.
pub(super) fn nearest_of<'a>(word: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
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

/// Every option, sorted by its name without regard to case.
pub static KNOWN: [Known; 458] = [
    known("___UsingTestNetworkDefaults", Kind::Bool, Some("0"))
        .supported()
        .hidden(),
    known("__AllDirActionsPrivate", Kind::Bool, Some("0"))
        .hidden()
        .refused(
            &["0"],
            "directory requests would go to guards by one hop, not \
                          anonymously",
        ),
    known("__AlwaysCongestionControl", Kind::Bool, Some("0"))
        .harmless("only measurements of C tor need it"),
    known("__ControlPort", Kind::LinesOf("ControlPortLines"), None)
        .supported()
        .hidden(),
    known("__DirPort", Kind::LinesOf("DirPortLines"), None)
        .hidden()
        .lost(&["0"], "the port will NOT be opened"),
    known("__DisablePredictedCircuits", Kind::Bool, Some("0"))
        .supported()
        .hidden(),
    known("__DisableSignalHandlers", Kind::Bool, Some("0"))
        .hidden()
        .immutable()
        .lost(&["0"], "signals will be handled all the same"),
    known("__DNSPort", Kind::LinesOf("DNSPortLines"), None)
        .supported()
        .hidden(),
    known("__ExtORPort", Kind::LinesOf("ExtORPortLines"), None)
        .hidden()
        .lost(
            &["0"],
            "the port will NOT be opened: no pluggable transport can use it",
        ),
    known("__HashedControlSessionPassword", Kind::Lines, None)
        .supported()
        .hidden(),
    known(
        "__HTTPTunnelPort",
        Kind::LinesOf("HTTPTunnelPortLines"),
        None,
    )
    .supported()
    .hidden(),
    known("__LeaveStreamsUnattached", Kind::Bool, Some("0"))
        .supported()
        .hidden(),
    known("__MetricsPort", Kind::LinesOf("MetricsPortLines"), None)
        .supported()
        .hidden(),
    known("__NATDPort", Kind::LinesOf("NATDPortLines"), None)
        .hidden()
        .lost(&["0"], "the port will NOT be opened"),
    known("__ORPort", Kind::LinesOf("ORPortLines"), None)
        .supported()
        .hidden(),
    known(
        "__OwningControllerFD",
        Kind::U64,
        Some("18446744073709551615"),
    )
    .hidden()
    .immutable()
    .lost(
        &["18446744073709551615"],
        "Weft will NOT end when this connection \
                                          closes (__OwningControllerProcess and \
                                          TAKEOWNERSHIP are supported)",
    ),
    known("__OwningControllerProcess", Kind::Text, None)
        .supported()
        .hidden(),
    known("__ReloadTorrcOnSIGHUP", Kind::Bool, Some("1"))
        .supported()
        .hidden(),
    known("__SbwsExit", Kind::Bool, Some("0")).harmless("only measurements of C tor need it"),
    known("__SocksPort", Kind::LinesOf("SocksPortLines"), None)
        .supported()
        .hidden(),
    known("__TransPort", Kind::LinesOf("TransPortLines"), None)
        .hidden()
        .lost(&["0"], "the port will NOT be opened"),
    obsolete("__UseFilteringSSLBufferevents"),
    known("AccelDir", Kind::Path, None)
        .immutable()
        .harmless("there is no OpenSSL to configure"),
    known("AccelName", Kind::Text, None)
        .immutable()
        .harmless("there is no OpenSSL to configure"),
    known("AccountingMax", Kind::Memory, Some("0 bytes"))
        .lost(&["0"], "traffic will NOT be limited to this amount"),
    known("AccountingRule", Kind::Text, Some("max"))
        .harmless("it only describes AccountingMax, which has a warning of its own"),
    known("AccountingStart", Kind::Text, None)
        .harmless("it only describes AccountingMax, which has a warning of its own"),
    known("Address", Kind::Lines, None).supported(),
    known("AddressDisableIPv6", Kind::Bool, Some("0")).supported(),
    obsolete("AllowDotExit"),
    obsolete("AllowInvalidNodes"),
    known("AllowNonRFC953Hostnames", Kind::Bool, Some("0")).supported(),
    obsolete("AllowSingleHopCircuits"),
    obsolete("AllowSingleHopExits"),
    known("AlternateBridgeAuthority", Kind::Lines, None)
        .harmless("it only describes bridges, which are refused"),
    known("AlternateDirAuthority", Kind::Lines, None).supported(),
    obsolete("AlternateHSAuthority"),
    obsolete("AndroidIdentityTag"),
    known("AssumeReachable", Kind::Bool, Some("0")).supported(),
    known("AssumeReachableIPv6", Kind::AutoBool, Some("auto")).supported(),
    obsolete("AuthDirBadDir"),
    obsolete("AuthDirBadDirCCs"),
    known("AuthDirBadExit", Kind::Lines, None)
        .lost(&[], "the authority will NOT call these relays bad exits"),
    known("AuthDirBadExitCCs", Kind::Csv, Some(""))
        .lost(&[], "the authority will NOT call these relays bad exits"),
    known("AuthDirFastGuarantee", Kind::Memory, Some("100 KB"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirGuardBWGuarantee", Kind::Memory, Some("2 MB"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirHasIPv6Connectivity", Kind::Bool, Some("0"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirInvalid", Kind::Lines, None)
        .lost(&[], "the authority will NOT call these relays invalid"),
    known("AuthDirInvalidCCs", Kind::Csv, Some(""))
        .lost(&[], "the authority will NOT call these relays invalid"),
    obsolete("AuthDirListBadDirs"),
    known("AuthDirListBadExits", Kind::Bool, Some("0"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirListMiddleOnly", Kind::Bool, Some("0"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirMaxServersPerAddr", Kind::PosInt, Some("2")).lost(
        &["0"],
        "the authority will NOT limit relays for each address",
    ),
    obsolete("AuthDirMaxServersPerAuthAddr"),
    known("AuthDirMiddleOnly", Kind::Lines, None).lost(
        &[],
        "the authority will NOT restrict these relays to the middle",
    ),
    known("AuthDirMiddleOnlyCCs", Kind::Csv, Some("")).lost(
        &[],
        "the authority will NOT restrict these relays to the middle",
    ),
    known("AuthDirPinKeys", Kind::Bool, Some("1")).harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    known("AuthDirReject", Kind::Lines, None)
        .lost(&[], "the authority will NOT reject these relays"),
    known("AuthDirRejectCCs", Kind::Csv, Some(""))
        .lost(&[], "the authority will NOT reject these relays"),
    known("AuthDirRejectRequestsUnderLoad", Kind::Bool, Some("1")).harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    obsolete("AuthDirRejectUnlisted"),
    known("AuthDirSharedRandomness", Kind::Bool, Some("1"))
        .harmless("only onion services need shared randomness"),
    known("AuthDirTestEd25519LinkKeys", Kind::Bool, Some("1"))
        .lost(&["0"], "the authority will NOT test relays' link keys"),
    known("AuthDirTestReachability", Kind::Bool, Some("1")).lost(
        &["0"],
        "the authority will NOT test whether relays can be reached",
    ),
    known("AuthDirVoteGuard", Kind::RouterSet, None)
        .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "AuthDirVoteGuardBwThresholdFraction",
        Kind::Double,
        Some("0.75"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "AuthDirVoteGuardGuaranteeTimeKnown",
        Kind::Seconds,
        Some("8 days"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthDirVoteGuardGuaranteeWFU", Kind::Double, Some("0.98"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "AuthDirVoteStableGuaranteeMinUptime",
        Kind::Seconds,
        Some("30 days"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "AuthDirVoteStableGuaranteeMTBF",
        Kind::Seconds,
        Some("5 days"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known("AuthoritativeDirectory", Kind::Bool, Some("0")).supported(),
    known("AutomapHostsOnResolve", Kind::Bool, Some("0"))
        .lost(&["0"], "names will NOT be mapped to virtual addresses"),
    known("AutomapHostsSuffixes", Kind::Csv, Some(".onion,.exit")).harmless(
        "it only describes AutomapHostsOnResolve, which has a warning of \
                   its own",
    ),
    known("AvoidDiskWrites", Kind::Bool, Some("0"))
        .lost(&["0"], "the disk will NOT be written less often"),
    known("BandwidthBurst", Kind::Memory, Some("1 GB")).supported(),
    known("BandwidthRate", Kind::Memory, Some("1 GB")).supported(),
    known("Bridge", Kind::Lines, None).refused(
        &[],
        "connections would go to guards directly, not to this bridge",
    ),
    known("BridgeAuthoritativeDir", Kind::Bool, Some("0"))
        .lost(&["0"], "this node will NOT be an authority of bridges"),
    known("BridgeDistribution", Kind::Text, None)
        .harmless("it only describes bridges, which are refused"),
    known("BridgePassword", Kind::Text, None)
        .harmless("it only describes bridges, which are refused"),
    known("BridgeRecordUsageByCountry", Kind::Bool, Some("1"))
        .harmless("it only describes bridges, which are refused"),
    known("BridgeRelay", Kind::Bool, Some("0"))
        .refused(&["0"], "the bridge would be published as a public relay"),
    known("CacheDirectory", Kind::Path, None)
        .supported()
        .immutable(),
    known("CacheDirectoryGroupReadable", Kind::AutoBool, Some("auto")).supported(),
    known("CellStatistics", Kind::Bool, Some("0"))
        .harmless("these statistics are neither collected nor published"),
    known("CircuitBuildTimeout", Kind::Seconds, Some("0")).supported(),
    obsolete("CircuitIdleTimeout"),
    known("CircuitPadding", Kind::Bool, Some("1")).supported(),
    known("CircuitPriorityHalflife", Kind::Double, Some("-1.0")).supported(),
    known("CircuitsAvailableTimeout", Kind::Seconds, Some("0")).supported(),
    known("CircuitStreamTimeout", Kind::Seconds, Some("0")).supported(),
    obsolete("ClientAutoIPv6ORPort"),
    known(
        "ClientBootstrapConsensusAuthorityDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("6"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known(
        "ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("ClientBootstrapConsensusAuthorityOnlyMaxDownloadTries"),
    known(
        "ClientBootstrapConsensusFallbackDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("ClientBootstrapConsensusMaxDownloadTries"),
    known(
        "ClientBootstrapConsensusMaxInProgressTries",
        Kind::PosInt,
        Some("3"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known("ClientDNSRejectInternalAddresses", Kind::Bool, Some("1")).supported(),
    known("ClientOnionAuthDir", Kind::Path, None).lost(
        &[],
        "onion services will NOT be reachable, with these keys or without",
    ),
    known("ClientOnly", Kind::Bool, Some("0")).supported(),
    known("ClientPreferIPv6DirPort", Kind::AutoBool, Some("auto"))
        .harmless("it has no effect in C tor either"),
    known("ClientPreferIPv6ORPort", Kind::AutoBool, Some("auto")).supported(),
    known("ClientRejectInternalAddresses", Kind::Bool, Some("1")).supported(),
    known("ClientTransportPlugin", Kind::Lines, None)
        .harmless("only bridges use pluggable transports, and bridges are refused"),
    known("ClientUseIPv4", Kind::Bool, Some("1")).supported(),
    known("ClientUseIPv6", Kind::Bool, Some("1")).supported(),
    obsolete("CloseHSClientCircuitsImmediatelyOnTimeout"),
    obsolete("CloseHSServiceRendCircuitsImmediatelyOnTimeout"),
    known("CompiledProofOfWorkHash", Kind::AutoBool, Some("auto")).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("ConfluxClientUX", Kind::Text, Some("throughput"))
        .harmless("traffic is never split over two circuits"),
    known("ConfluxEnabled", Kind::AutoBool, Some("auto"))
        .harmless("traffic is never split over two circuits"),
    known("ConnDirectionStatistics", Kind::Bool, Some("0"))
        .harmless("these statistics are neither collected nor published"),
    known("ConnectionPadding", Kind::AutoBool, Some("auto")).supported(),
    known("ConnectionThreads", Kind::Count, Some("auto"))
        .supported()
        .immutable(),
    known("ConnLimit", Kind::PosInt, Some("1000")).supported(),
    known("ConsensusParams", Kind::Lines, None).supported(),
    known("ConstrainedSockets", Kind::Bool, Some("0")).supported(),
    known("ConstrainedSockSize", Kind::Memory, Some("8192")).supported(),
    known("ContactInfo", Kind::Text, None).supported(),
    obsolete("ControlListenAddress"),
    known("ControlPort", Kind::LinesOf("ControlPortLines"), None).supported(),
    known("ControlPortFileGroupReadable", Kind::Bool, Some("0")).supported(),
    known("ControlPortLines", Kind::LinesVirtual, None).supported(),
    known("ControlPortWriteToFile", Kind::Path, None).supported(),
    known("ControlSocket", Kind::Lines, None).supported(),
    known("ControlSocketsGroupWritable", Kind::Bool, Some("0")).supported(),
    known("CookieAuthentication", Kind::Bool, Some("0")).supported(),
    known("CookieAuthFile", Kind::Path, None).supported(),
    known("CookieAuthFileGroupReadable", Kind::Bool, Some("0")).supported(),
    known("CountPrivateBandwidth", Kind::Bool, Some("0")).supported(),
    known("DataDirectory", Kind::Path, None)
        .supported()
        .immutable(),
    known("DataDirectoryGroupReadable", Kind::Bool, Some("0")).supported(),
    known("DirAllowPrivateAddresses", Kind::Bool, Some("0")).supported(),
    known("DirAuthority", Kind::Lines, None).supported(),
    known("DirAuthorityFallbackRate", Kind::Double, Some("0.1"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    known("DirCache", Kind::Bool, Some("1")).supported(),
    obsolete("DirListenAddress"),
    known("DirPolicy", Kind::Lines, None).lost(&[], "nobody will be kept from the DirPort by it"),
    known("DirPort", Kind::LinesOf("DirPortLines"), None).supported(),
    known("DirPortFrontPage", Kind::Path, None).lost(&[], "the page will NOT be shown to anybody"),
    known("DirPortLines", Kind::LinesVirtual, None)
        .harmless("it is a list that other options fill"),
    known("DirReqStatistics", Kind::Bool, Some("1"))
        .harmless("these statistics are neither collected nor published"),
    known("DisableAllSwap", Kind::Bool, Some("0"))
        .immutable()
        .refused(&["0"], "keys and traffic may be written to swap space"),
    known("DisableDebuggerAttachment", Kind::Bool, Some("1"))
        .immutable()
        .lost(
            &["0"],
            "other processes of the same user can attach to this one and \
                       read its keys",
        ),
    obsolete("DisableIOCP"),
    known("DisableNetwork", Kind::Bool, Some("0")).supported(),
    known("DisableOOSCheck", Kind::Bool, Some("1"))
        .harmless("Weft bounds its sockets by rules of its own"),
    obsolete("DisableV2DirectoryInfo_"),
    obsolete("DNSListenAddress"),
    known("DNSPort", Kind::LinesOf("DNSPortLines"), None).supported(),
    known("DNSPortLines", Kind::LinesVirtual, None).supported(),
    known("DormantCanceledByStartup", Kind::Bool, Some("0")).harmless("Weft is never dormant"),
    known("DormantClientTimeout", Kind::Seconds, Some("24 hours"))
        .harmless("Weft is never dormant"),
    known("DormantOnFirstStartup", Kind::Bool, Some("0")).harmless("Weft is never dormant"),
    known("DormantTimeoutDisabledByIdleStreams", Kind::Bool, Some("1"))
        .harmless("Weft is never dormant"),
    known("DormantTimeoutEnabled", Kind::Bool, Some("1")).harmless("Weft is never dormant"),
    known("DoSCircuitCreationBurst", Kind::PosInt, Some("0")).supported(),
    known(
        "DoSCircuitCreationDefenseTimePeriod",
        Kind::Seconds,
        Some("0"),
    )
    .supported(),
    known("DoSCircuitCreationDefenseType", Kind::Int, Some("0")).supported(),
    known("DoSCircuitCreationEnabled", Kind::AutoBool, Some("auto")).supported(),
    known("DoSCircuitCreationMinConnections", Kind::PosInt, Some("0")).supported(),
    known("DoSCircuitCreationRate", Kind::PosInt, Some("0")).supported(),
    known("DoSConnectionConnectBurst", Kind::PosInt, Some("0")).supported(),
    known(
        "DoSConnectionConnectDefenseTimePeriod",
        Kind::Seconds,
        Some("0"),
    )
    .supported(),
    known("DoSConnectionConnectRate", Kind::PosInt, Some("0")).supported(),
    known("DoSConnectionDefenseType", Kind::Int, Some("0")).supported(),
    known("DoSConnectionEnabled", Kind::AutoBool, Some("auto")).supported(),
    known("DoSConnectionMaxConcurrentCount", Kind::PosInt, Some("0")).supported(),
    known(
        "DoSRefuseSingleHopClientRendezvous",
        Kind::AutoBool,
        Some("auto"),
    )
    .supported(),
    known("DoSStreamCreationBurst", Kind::PosInt, Some("0")).supported(),
    known("DoSStreamCreationDefenseType", Kind::Int, Some("0")).supported(),
    known("DoSStreamCreationEnabled", Kind::AutoBool, Some("auto")).supported(),
    known("DoSStreamCreationRate", Kind::PosInt, Some("0")).supported(),
    known("DownloadExtraInfo", Kind::Bool, Some("0"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("DynamicDHGroups"),
    known("EnforceDistinctSubnets", Kind::Bool, Some("1")).supported(),
    known("EntryNodes", Kind::RouterSet, None).supported(),
    known("EntryStatistics", Kind::Bool, Some("0"))
        .harmless("these statistics are neither collected nor published"),
    known("ExcludeExitNodes", Kind::RouterSet, None).supported(),
    known("ExcludeNodes", Kind::RouterSet, None).supported(),
    obsolete("ExcludeSingleHopRelays"),
    known("ExitNodes", Kind::RouterSet, None).supported(),
    known("ExitPolicy", Kind::Lines, None).supported(),
    known("ExitPolicyRejectLocalInterfaces", Kind::Bool, Some("0")).supported(),
    known("ExitPolicyRejectPrivate", Kind::Bool, Some("1")).supported(),
    known("ExitPortStatistics", Kind::Bool, Some("0"))
        .harmless("these statistics are neither collected nor published"),
    known("ExitRelay", Kind::AutoBool, Some("auto")).supported(),
    known("ExtendAllowPrivateAddresses", Kind::Bool, Some("0")).supported(),
    known("ExtendByEd25519ID", Kind::AutoBool, Some("auto")).supported(),
    known("ExtORPort", Kind::LinesOf("ExtORPortLines"), None).lost(
        &["0"],
        "the port will NOT be opened: no pluggable transport can use it",
    ),
    known("ExtORPortCookieAuthFile", Kind::Path, None)
        .harmless("it only describes the ExtORPort, which has a warning of its own"),
    known(
        "ExtORPortCookieAuthFileGroupReadable",
        Kind::Bool,
        Some("0"),
    )
    .harmless("it only describes the ExtORPort, which has a warning of its own"),
    known("ExtORPortLines", Kind::LinesVirtual, None)
        .harmless("it is a list that other options fill"),
    known("ExtraInfoStatistics", Kind::Bool, Some("1")).supported(),
    known("FallbackDir", Kind::Lines, None).supported(),
    obsolete("FallbackNetworkstatusFile"),
    known("FamilyId", Kind::Lines, None).lost(
        &[],
        "this relay will NOT be in the family of this key: list its relays \
                    in MyFamily",
    ),
    known("FamilyKeyDirectory", Kind::Path, None)
        .immutable()
        .harmless("it only describes FamilyId, which has a warning of its own"),
    known("FascistFirewall", Kind::Bool, Some("0")).supported(),
    obsolete("FastFirstHopPK"),
    known("FetchDirInfoEarly", Kind::Bool, Some("0"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    known("FetchDirInfoExtraEarly", Kind::Bool, Some("0"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    known("FetchHidServDescriptors", Kind::Bool, Some("1")).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("FetchServerDescriptors", Kind::Bool, Some("1"))
        .lost(&["1"], "relays will be downloaded all the same"),
    known("FetchUselessDescriptors", Kind::Bool, Some("0"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("FetchV2Networkstatus"),
    known("FirewallPorts", Kind::Csv, Some("")).supported(),
    known("GeoIPExcludeUnknown", Kind::AutoBool, Some("auto")).supported(),
    known("GeoIPFile", Kind::Path, Some("/usr/share/tor/geoip")).supported(),
    known("GeoIPv6File", Kind::Path, Some("/usr/share/tor/geoip6")).supported(),
    obsolete("Group"),
    known("GuardfractionFile", Kind::Path, None)
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("GuardLifetime", Kind::Seconds, Some("0 minutes")).supported(),
    known("HardwareAccel", Kind::Bool, Some("0"))
        .immutable()
        .harmless("there is no OpenSSL to configure"),
    known("HashedControlPassword", Kind::Lines, None).supported(),
    known("HeartbeatPeriod", Kind::Seconds, Some("6 hours")).supported(),
    known(
        "HiddenServiceAllowUnknownPorts",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    obsolete("HiddenServiceAuthorizeClient"),
    known(
        "HiddenServiceDir",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .lost(&[], "the onion service will NOT be started"),
    known(
        "HiddenServiceDirGroupReadable",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceEnableIntroDoSBurstPerSec",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceEnableIntroDoSDefense",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceEnableIntroDoSRatePerSec",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceExportCircuitID",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceMaxStreams",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceMaxStreamsCloseCircuit",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known("HiddenServiceNonAnonymousMode", Kind::Bool, Some("0"))
        .immutable()
        .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceNumIntroductionPoints",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServiceOnionBalanceInstance",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known("HiddenServiceOptions", Kind::LinesVirtual, None)
        .harmless("it is a list that other options fill"),
    known(
        "HiddenServicePort",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServicePoWDefensesEnabled",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServicePoWQueueBurst",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known(
        "HiddenServicePoWQueueRate",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known("HiddenServiceSingleHopMode", Kind::Bool, Some("0"))
        .immutable()
        .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    known("HiddenServiceStatistics", Kind::Bool, Some("1"))
        .harmless("these statistics are neither collected nor published"),
    known(
        "HiddenServiceVersion",
        Kind::LinesOf("HiddenServiceOptions"),
        None,
    )
    .harmless("it only describes HiddenServiceDir, which has a warning of its own"),
    obsolete("HidServAuth"),
    obsolete("HidServDirectoryV2"),
    known("HSLayer2Nodes", Kind::RouterSet, None).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("HSLayer3Nodes", Kind::RouterSet, None).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("HTTPProxy", Kind::Text, None).refused(
        &[],
        "directory requests would NOT go through this proxy \
                       (HTTPSProxy, which takes all connections to relays and \
                       directories, is supported)",
    ),
    known("HTTPProxyAuthenticator", Kind::Text, None)
        .harmless("it only describes HTTPProxy, which is refused"),
    known("HTTPSProxy", Kind::Text, None).supported(),
    known("HTTPSProxyAuthenticator", Kind::Text, None).supported(),
    known("HTTPTunnelPort", Kind::LinesOf("HTTPTunnelPortLines"), None).supported(),
    known("HTTPTunnelPortLines", Kind::LinesVirtual, None).supported(),
    known("IPv6Exit", Kind::Bool, Some("0")).supported(),
    known("KeepalivePeriod", Kind::Seconds, Some("5 minutes")).supported(),
    known("KeepBindCapabilities", Kind::AutoBool, Some("auto"))
        .immutable()
        .lost(
            &["0", "auto"],
            "ports below 1024 that are added while Weft runs cannot \
                               be bound",
        ),
    known("KeyDirectory", Kind::Path, None)
        .supported()
        .immutable(),
    known("KeyDirectoryGroupReadable", Kind::AutoBool, Some("auto")).supported(),
    known("KISTSchedRunInterval", Kind::Millis, Some("0 msec")).supported(),
    known("KISTSockBufSizeFactor", Kind::Double, Some("1.0")).supported(),
    known("LearnCircuitBuildTimeout", Kind::Bool, Some("1")).supported(),
    known("Log", Kind::Lines, None).supported(),
    known("LogMessageDomains", Kind::Bool, Some("0")).supported(),
    known("LogTimeGranularity", Kind::Millis, Some("1 second")).supported(),
    known(
        "LongLivedPorts",
        Kind::Csv,
        Some("21,22,706,1863,5050,5190,5222,5223,6523,6667,6697,8300"),
    )
    .supported(),
    known("MainloopStats", Kind::Bool, Some("0"))
        .harmless("these statistics are neither collected nor published"),
    known("MapAddress", Kind::Lines, None).supported(),
    known("MaxAdvertisedBandwidth", Kind::Memory, Some("1 GB")).supported(),
    known("MaxCircuitDirtiness", Kind::Seconds, Some("10 minutes")).supported(),
    known("MaxClientCircuitsPending", Kind::PosInt, Some("32")).supported(),
    known("MaxConsensusAgeForDiffs", Kind::Seconds, Some("0 seconds"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    known("MaxHSDirCacheBytes", Kind::Memory, Some("0")).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("MaxMemInQueues", Kind::Memory, Some("0")).supported(),
    known("MaxOnionQueueDelay", Kind::Millis, Some("0")).supported(),
    obsolete("MaxOnionsPending"),
    known("MaxUnparseableDescSizeToLog", Kind::Memory, Some("10 MB"))
        .harmless("documents that cannot be read are not written to files"),
    known("MetricsPort", Kind::LinesOf("MetricsPortLines"), None).supported(),
    known("MetricsPortLines", Kind::LinesVirtual, None).supported(),
    known("MetricsPortPolicy", Kind::Lines, None).supported(),
    known("MiddleNodes", Kind::RouterSet, None).supported(),
    known(
        "MinimalAcceptedServerVersion",
        Kind::Text,
        Some("0.4.8.0-alpha-dev"),
    )
    .lost(&[], "the authority will accept older relays, too"),
    known(
        "MinMeasuredBWsForAuthToIgnoreAdvertised",
        Kind::Int,
        Some("500"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "MinUptimeHidServDirectoryV2",
        Kind::Seconds,
        Some("96 hours"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known("MyFamily", Kind::Lines, None).supported(),
    obsolete("NamingAuthoritativeDirectory"),
    obsolete("NATDListenAddress"),
    known("NATDPort", Kind::LinesOf("NATDPortLines"), None)
        .lost(&["0"], "the port will NOT be opened"),
    known("NATDPortLines", Kind::LinesVirtual, None)
        .harmless("it is a list that other options fill"),
    known("NewCircuitPeriod", Kind::Seconds, Some("30 seconds")).supported(),
    known("Nickname", Kind::Text, None).supported(),
    known("NodeFamily", Kind::Lines, None).supported(),
    known("NoExec", Kind::Bool, Some("0"))
        .immutable()
        .harmless("Weft starts no other program in any case"),
    known("NumCPUs", Kind::PosInt, Some("0")).supported(),
    known("NumDirectoryGuards", Kind::PosInt, Some("0")).supported(),
    known("NumEntryGuards", Kind::PosInt, Some("0")).supported(),
    known("NumPrimaryGuards", Kind::PosInt, Some("0")).supported(),
    known("OfflineMasterKey", Kind::Bool, Some("0")).supported(),
    obsolete("OptimisticData"),
    obsolete("ORListenAddress"),
    known("ORPort", Kind::LinesOf("ORPortLines"), None).supported(),
    known("ORPortLines", Kind::LinesVirtual, None).supported(),
    known("OutboundBindAddress", Kind::Lines, None).supported(),
    known("OutboundBindAddressExit", Kind::Lines, None).supported(),
    known("OutboundBindAddressOR", Kind::Lines, None).supported(),
    known("OutboundBindAddressPT", Kind::Lines, None)
        .harmless("only bridges use pluggable transports, and bridges are refused"),
    known("OverloadStatistics", Kind::Bool, Some("1")).supported(),
    known("PaddingStatistics", Kind::Bool, Some("1"))
        .harmless("these statistics are neither collected nor published"),
    known("PathBiasCircThreshold", Kind::Int, Some("-1")).supported(),
    obsolete("PathBiasDisableRate"),
    known("PathBiasDropGuards", Kind::AutoBool, Some("0")).supported(),
    known("PathBiasExtremeRate", Kind::Double, Some("-1")).supported(),
    known("PathBiasExtremeUseRate", Kind::Double, Some("-1")).supported(),
    obsolete("PathBiasMultFactor"),
    known("PathBiasNoticeRate", Kind::Double, Some("-1")).supported(),
    known("PathBiasNoticeUseRate", Kind::Double, Some("-1")).supported(),
    obsolete("PathBiasScaleFactor"),
    known("PathBiasScaleThreshold", Kind::Int, Some("-1")).supported(),
    known("PathBiasScaleUseThreshold", Kind::Int, Some("-1")).supported(),
    obsolete("PathBiasUseCloseCounts"),
    known("PathBiasUseThreshold", Kind::Int, Some("-1")).supported(),
    known("PathBiasWarnRate", Kind::Double, Some("-1")).supported(),
    known("PathsNeededToBuildCircuits", Kind::Double, Some("-1")).supported(),
    known("PerConnBWBurst", Kind::Memory, Some("0")).supported(),
    known("PerConnBWRate", Kind::Memory, Some("0")).supported(),
    known("PidFile", Kind::Path, None).supported().immutable(),
    obsolete("PortForwarding"),
    obsolete("PortForwardingHelper"),
    obsolete("PredictedPortsRelevanceTime"),
    obsolete("PreferTunneledDirConns"),
    known("ProtocolWarnings", Kind::Bool, Some("0")).supported(),
    known("PublishHidServDescriptors", Kind::Bool, Some("1")).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("PublishServerDescriptor", Kind::Csv, Some("1")).supported(),
    known("ReachableAddresses", Kind::Lines, None).supported(),
    known("ReachableDirAddresses", Kind::Lines, None).supported(),
    known("ReachableORAddresses", Kind::Lines, None).supported(),
    known("RecommendedClientVersions", Kind::Lines, None)
        .harmless("an authority of a private network recommends no versions"),
    obsolete("RecommendedPackages"),
    known("RecommendedServerVersions", Kind::Lines, None)
        .harmless("an authority of a private network recommends no versions"),
    known("RecommendedVersions", Kind::Lines, None)
        .harmless("an authority of a private network recommends no versions"),
    known("ReconfigDropsBridgeDescs", Kind::Bool, Some("0"))
        .harmless("it only describes bridges, which are refused"),
    known("ReducedCircuitPadding", Kind::Bool, Some("0")).supported(),
    known("ReducedConnectionPadding", Kind::Bool, Some("0")).supported(),
    known("ReducedExitPolicy", Kind::Bool, Some("0")).supported(),
    known("ReevaluateExitPolicy", Kind::Bool, Some("0")).lost(
        &["0"],
        "streams that a new exit policy forbids will NOT be closed",
    ),
    known("RefuseUnknownExits", Kind::AutoBool, Some("auto")).supported(),
    known("RejectPlaintextPorts", Kind::Csv, Some("")).supported(),
    known("RelayBandwidthBurst", Kind::Memory, Some("0")).supported(),
    known("RelayBandwidthRate", Kind::Memory, Some("0")).supported(),
    known("RephistTrackTime", Kind::Seconds, Some("24 hours"))
        .harmless("these statistics are neither collected nor published"),
    known("RunAsDaemon", Kind::Bool, Some("0"))
        .supported()
        .immutable(),
    obsolete("RunTesting"),
    known("SafeLogging", Kind::Text, Some("1")).supported(),
    known("SafeSocks", Kind::Bool, Some("0")).supported(),
    known("Sandbox", Kind::Bool, Some("0"))
        .immutable()
        .refused(&["0"], "system calls would NOT be restricted"),
    obsolete("SchedulerHighWaterMark__"),
    obsolete("SchedulerLowWaterMark__"),
    obsolete("SchedulerMaxFlushCells__"),
    known("Schedulers", Kind::Csv, Some("KIST,KISTLite,Vanilla")).supported(),
    known("ServerDNSAllowBrokenConfig", Kind::Bool, Some("1")).supported(),
    known("ServerDNSAllowNonRFC953Hostnames", Kind::Bool, Some("0")).supported(),
    known("ServerDNSDetectHijacking", Kind::Bool, Some("1")).supported(),
    known("ServerDNSRandomizeCase", Kind::Bool, Some("1")).supported(),
    known("ServerDNSResolvConfFile", Kind::Path, None).supported(),
    known("ServerDNSSearchDomains", Kind::Bool, Some("0")).supported(),
    known(
        "ServerDNSTestAddresses",
        Kind::Csv,
        Some("www.google.com,www.mit.edu,www.yahoo.com,www.slashdot.org"),
    )
    .supported(),
    known("ServerTransportListenAddr", Kind::Lines, None).harmless(
        "it only describes ServerTransportPlugin, which has a warning of \
                   its own",
    ),
    known("ServerTransportOptions", Kind::Lines, None).harmless(
        "it only describes ServerTransportPlugin, which has a warning of \
                   its own",
    ),
    known("ServerTransportPlugin", Kind::Lines, None)
        .lost(&[], "the pluggable transport will NOT be started"),
    known("ShutdownWaitLength", Kind::Seconds, Some("30 seconds")).supported(),
    known("SigningKeyLifetime", Kind::Seconds, Some("30 days")).supported(),
    known("Socks4Proxy", Kind::Text, None).supported(),
    known("Socks5Proxy", Kind::Text, None).supported(),
    known("Socks5ProxyPassword", Kind::Text, None).supported(),
    known("Socks5ProxyUsername", Kind::Text, None).supported(),
    obsolete("SocksListenAddress"),
    known("SocksPolicy", Kind::Lines, None).supported(),
    known("SocksPort", Kind::LinesOf("SocksPortLines"), None).supported(),
    known("SocksPortLines", Kind::LinesVirtual, None).supported(),
    known("SocksTimeout", Kind::Seconds, Some("2 minutes")).supported(),
    known("SSLKeyLifetime", Kind::Seconds, Some("0"))
        .harmless("link keys are renewed by the schedule of their certificates"),
    obsolete("StrictEntryNodes"),
    obsolete("StrictExitNodes"),
    known("StrictNodes", Kind::Bool, Some("0")).supported(),
    obsolete("Support022HiddenServices"),
    known("SyslogIdentityTag", Kind::Text, None)
        .supported()
        .immutable(),
    known("TCPProxy", Kind::Text, None).refused(
        &[],
        "connections would NOT go through this proxy (Socks4Proxy, \
                       Socks5Proxy and HTTPSProxy are supported)",
    ),
    known(
        "TestingAuthDirTimeToLearnReachability",
        Kind::Seconds,
        Some("30 minutes"),
    )
    .harmless("an authority of a private network gives flags by fixed rules"),
    known("TestingAuthKeyLifetime", Kind::Seconds, Some("2 days")).supported(),
    known("TestingAuthKeySlop", Kind::Seconds, Some("3 hours")).supported(),
    known(
        "TestingBridgeBootstrapDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known(
        "TestingBridgeDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("10800"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("TestingCertMaxDownloadTries"),
    known(
        "TestingClientConsensusDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known(
        "TestingClientDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known(
        "TestingClientMaxIntervalWithoutRequest",
        Kind::Seconds,
        Some("10 minutes"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("TestingConsensusMaxDownloadTries"),
    obsolete("TestingDescriptorMaxDownloadTries"),
    known("TestingDirAuthVoteExit", Kind::RouterSet, None).supported(),
    known("TestingDirAuthVoteExitIsStrict", Kind::Bool, Some("0")).supported(),
    known("TestingDirAuthVoteGuard", Kind::RouterSet, None).supported(),
    known("TestingDirAuthVoteGuardIsStrict", Kind::Bool, Some("0")).supported(),
    known("TestingDirAuthVoteHSDir", Kind::RouterSet, None).supported(),
    known("TestingDirAuthVoteHSDirIsStrict", Kind::Bool, Some("0")).supported(),
    known(
        "TestingDirConnectionMaxStall",
        Kind::Seconds,
        Some("5 minutes"),
    )
    .supported(),
    known("TestingEnableCellStatsEvent", Kind::Bool, Some("0"))
        .harmless("only measurements of C tor need it"),
    known("TestingEnableConnBwEvent", Kind::Bool, Some("0"))
        .harmless("only measurements of C tor need it"),
    obsolete("TestingEnableTbEmptyEvent"),
    obsolete("TestingEstimatedDescriptorPropagationTime"),
    known("TestingLinkCertLifetime", Kind::Seconds, Some("2 days")).supported(),
    known("TestingLinkKeySlop", Kind::Seconds, Some("3 hours")).supported(),
    obsolete("TestingMicrodescMaxDownloadTries"),
    known("TestingMinExitFlagThreshold", Kind::Memory, Some("0"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known("TestingMinFastFlagThreshold", Kind::Memory, Some("0"))
        .harmless("an authority of a private network gives flags by fixed rules"),
    known(
        "TestingMinTimeToReportBandwidth",
        Kind::Seconds,
        Some("1 day"),
    )
    .supported(),
    known(
        "TestingServerConsensusDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .supported(),
    known(
        "TestingServerDownloadInitialDelay",
        Kind::FirstSeconds,
        Some("0"),
    )
    .harmless("Weft downloads what it needs by a schedule of its own"),
    known("TestingSigningKeySlop", Kind::Seconds, Some("1 day")).supported(),
    known("TestingTorNetwork", Kind::Bool, Some("0"))
        .supported()
        .immutable(),
    known(
        "TestingV3AuthInitialDistDelay",
        Kind::Seconds,
        Some("5 minutes"),
    )
    .harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    known(
        "TestingV3AuthInitialVoteDelay",
        Kind::Seconds,
        Some("5 minutes"),
    )
    .harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    known(
        "TestingV3AuthInitialVotingInterval",
        Kind::Seconds,
        Some("30 minutes"),
    )
    .harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    known("TestingV3AuthVotingStartOffset", Kind::Seconds, Some("0")).harmless(
        "an authority of a private network has no others to vote with and \
                   few to serve",
    ),
    known("TestSocks", Kind::Bool, Some("0")).supported(),
    obsolete("TLSECGroup"),
    known("TokenBucketRefillInterval", Kind::Millis, Some("100 msec"))
        .immutable()
        .harmless("bandwidth is given out continuously"),
    obsolete("Tor2webMode"),
    obsolete("Tor2webRendezvousPoints"),
    known("TrackHostExits", Kind::Csv, None).supported(),
    known("TrackHostExitsExpire", Kind::Seconds, Some("30 minutes")).supported(),
    obsolete("TransListenAddress"),
    known("TransPort", Kind::LinesOf("TransPortLines"), None)
        .lost(&["0"], "the port will NOT be opened"),
    known("TransPortLines", Kind::LinesVirtual, None)
        .harmless("it is a list that other options fill"),
    known("TransProxyType", Kind::Text, Some("default"))
        .harmless("it only describes the TransPort, which has a warning of its own"),
    known("TruncateLogFile", Kind::Bool, Some("0")).supported(),
    obsolete("TunnelDirConns"),
    known("UnixSocksGroupWritable", Kind::Bool, Some("0")).supported(),
    known("UpdateBridgesFromAuthority", Kind::Bool, Some("0"))
        .harmless("it only describes bridges, which are refused"),
    known("UseBridges", Kind::Bool, Some("0")).refused(
        &["0"],
        "connections would go to guards directly, not to bridges",
    ),
    known("UseDefaultFallbackDirs", Kind::Bool, Some("1")).supported(),
    known("UseEntryGuards", Kind::Bool, Some("1")).supported(),
    obsolete("UseEntryGuardsAsDirGuards"),
    obsolete("UseFilteringSSLBufferevents"),
    known("UseGuardFraction", Kind::AutoBool, Some("auto"))
        .harmless("no consensus has guard fractions any more"),
    known("UseMicrodescriptors", Kind::AutoBool, Some("auto"))
        .harmless("Weft downloads what it needs by a schedule of its own"),
    obsolete("UseNTorHandshake"),
    known("User", Kind::Text, None).supported().immutable(),
    obsolete("UserspaceIOCPBuffers"),
    obsolete("V1AuthoritativeDirectory"),
    obsolete("V2AuthoritativeDirectory"),
    known("V3AuthDistDelay", Kind::Seconds, Some("5 minutes")).supported(),
    known("V3AuthNIntervalsValid", Kind::PosInt, Some("3")).supported(),
    known("V3AuthoritativeDirectory", Kind::Bool, Some("0")).supported(),
    known("V3AuthUseLegacyKey", Kind::Bool, Some("0"))
        .lost(&["0"], "votes will NOT be signed by the legacy key"),
    known("V3AuthVoteDelay", Kind::Seconds, Some("5 minutes")).supported(),
    known("V3AuthVotingInterval", Kind::Seconds, Some("1 hour")).supported(),
    known("V3BandwidthsFile", Kind::Path, None).supported(),
    known("VanguardsLiteEnabled", Kind::AutoBool, Some("auto")).harmless(
        "no circuits of onion services are built, and no descriptors of \
                   theirs are kept",
    ),
    known("VersioningAuthoritativeDirectory", Kind::Bool, Some("0"))
        .harmless("an authority of a private network recommends no versions"),
    known("VirtualAddrNetworkIPv4", Kind::Text, Some("127.192.0.0/10")).supported(),
    known("VirtualAddrNetworkIPv6", Kind::Text, Some("[FE80::]/10")).supported(),
    obsolete("VoteOnHidServDirectoriesV2"),
    known("WarnPlaintextPorts", Kind::Csv, Some("23,109,110,143")).supported(),
    obsolete("WarnUnsafeSocks"),
];

/// What `TestingTorNetwork 1` sets unless the operator does (src/app/config/testnet.inc).
pub(super) const TESTING_DEFAULTS: [(&str, &str); 31] = [
    ("DirAllowPrivateAddresses", "1"),
    ("EnforceDistinctSubnets", "0"),
    ("AuthDirMaxServersPerAddr", "0"),
    ("ClientBootstrapConsensusAuthorityDownloadInitialDelay", "0"),
    ("ClientBootstrapConsensusFallbackDownloadInitialDelay", "0"),
    (
        "ClientBootstrapConsensusAuthorityOnlyDownloadInitialDelay",
        "0",
    ),
    ("ClientDNSRejectInternalAddresses", "0"),
    ("ClientRejectInternalAddresses", "0"),
    ("CountPrivateBandwidth", "1"),
    ("ExitPolicyRejectPrivate", "0"),
    ("ExtendAllowPrivateAddresses", "1"),
    ("V3AuthVotingInterval", "5 minutes"),
    ("V3AuthVoteDelay", "20 seconds"),
    ("V3AuthDistDelay", "20 seconds"),
    ("TestingV3AuthInitialVotingInterval", "150 seconds"),
    ("TestingV3AuthInitialVoteDelay", "20 seconds"),
    ("TestingV3AuthInitialDistDelay", "20 seconds"),
    ("TestingAuthDirTimeToLearnReachability", "0 minutes"),
    ("MinUptimeHidServDirectoryV2", "0 minutes"),
    ("TestingMinTimeToReportBandwidth", "0 seconds"),
    ("TestingServerDownloadInitialDelay", "0"),
    ("TestingClientDownloadInitialDelay", "0"),
    ("TestingServerConsensusDownloadInitialDelay", "0"),
    ("TestingClientConsensusDownloadInitialDelay", "0"),
    ("TestingBridgeDownloadInitialDelay", "10"),
    ("TestingBridgeBootstrapDownloadInitialDelay", "0"),
    ("TestingClientMaxIntervalWithoutRequest", "5 seconds"),
    ("TestingDirConnectionMaxStall", "30 seconds"),
    ("TestingEnableConnBwEvent", "1"),
    ("TestingEnableCellStatsEvent", "1"),
    ("___UsingTestNetworkDefaults", "1"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::torrc::value::Value;

    #[test]
    fn the_table_is_sorted_and_holds_each_name_once() {
        let names: Vec<_> = KNOWN
            .iter()
            .map(|known| known.name.to_ascii_lowercase())
            .collect();
        assert!(names.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_option_that_is_not_supported_has_a_class_and_a_reason() {
        for known in &KNOWN {
            let Support::None { harm, fine, why } = known.support else {
                continue;
            };
            assert!(!why.is_empty(), "{} has no reason", known.name);
            assert!(!why.ends_with('.') && !why.contains("  "), "{why:?}");
            for fine in fine {
                let single = Value::parse(known.kind, fine).ok();
                let dumped = single.and_then(|value| value.encode());
                let dumped = dumped.as_deref().unwrap_or(fine);
                assert_eq!(dumped, *fine, "{}", known.name);
            }
            // What hurts hurts by default, too, unless the default asks for nothing.
            if let (Harm::Unsafe, Some(default)) = (harm, known.default) {
                assert!(fine.contains(&default), "{}", known.name);
            }
        }
    }

    #[test]
    fn lists_and_testing_defaults_name_options_that_exist() {
        for known in &KNOWN {
            if let Kind::LinesOf(list) = known.kind {
                let index = index_of(list).unwrap();
                assert_eq!(KNOWN[index].kind, Kind::LinesVirtual, "{}", known.name);
            }
        }
        for (name, _) in TESTING_DEFAULTS {
            assert!(index_of(name).is_some(), "{name}");
        }
    }

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
