//! Where directory documents are from, and what is published.

use std::time::Duration;

use crate::authority::{DEFAULT_AUTHORITIES, DirAuthority, parse_dir_authority};
use crate::fallback::{DEFAULT_FALLBACKS, FallbackDir, default_fallbacks, parse_fallback_dir};
use crate::key::Key;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;
use crate::value::ListLine;

/// The real network's `DirAuthority` and `FallbackDir` lines, each with the option's name.
pub fn default_directory_lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let authorities = DEFAULT_AUTHORITIES
        .iter()
        .map(|line| ("DirAuthority", *line));
    authorities.chain(DEFAULT_FALLBACKS.lines().map(|line| ("FallbackDir", line)))
}

/// Where the directory is, and what is published to it.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryOptions {
    /// `DirAuthority`, or the real network's.
    pub authorities: Vec<DirAuthority>,
    /// Whether `authorities` are the real network's.
    pub default_authorities: bool,
    /// `PublishServerDescriptor`: whether the descriptor is uploaded.
    pub publish: bool,
    /// `AssumeReachable`: publish without having been reached from outside.
    pub assume_reachable: bool,
    /// `AssumeReachableIPv6`, with `auto` resolved.
    pub assume_reachable_ipv6: bool,
    /// `DirAllowPrivateAddresses`: descriptors with private addresses are fine.
    pub allow_private_addresses: bool,
    /// `ExtraInfoStatistics`: the extra-info document carries statistics.
    pub extra_info_statistics: bool,
    /// `OverloadStatistics`: the descriptor has when the relay was overloaded.
    pub overload_statistics: bool,
    /// `FallbackDir`, or the real network's; none where authorities are a torrc's own.
    pub fallbacks: Vec<FallbackDir>,
    /// `PathsNeededToBuildCircuits`: a fraction; `None`: as the consensus has it.
    pub paths_needed: Option<f64>,
    /// `DirCache`: serve directory documents to clients.
    pub cache: bool,
    /// `DownloadExtraInfo`: the directory fetches extra-info documents, too.
    pub download_extra_info: bool,
    /// `MaxConsensusAgeForDiffs`: how old a consensus may be of which a diff is made; `None`: as the consensus has it.
    pub max_diff_age: Option<Duration>,
}

/// Checks what is published.
pub(crate) fn check_publishing(settings: &Settings, report: &mut Report) {
    const KEY: Key<Vec<String>> = keys::PublishServerDescriptor;
    let words = settings.words(KEY).to_vec();
    for word in &words {
        match word.to_ascii_lowercase().as_str() {
            "0" | "1" | "v3" => {}
            "v1" | "v2" | "hidserv" => {
                report.warn(settings.origin(KEY), format!("{KEY} {word} has no effect"))
            }
            "bridge" => report.error(
                settings.origin(KEY),
                format!(
                    "{KEY} bridge: Weft cannot be a bridge yet, and must not publish one as a relay"
                ),
            ),
            _ => report.error(
                settings.origin(KEY),
                format!("{KEY}: \"{word}\" is none of 0, 1, v3, bridge"),
            ),
        }
    }
    if words.len() > 1 && words.iter().any(|word| word == "0" || word == "1") {
        report.warn(
            settings.origin(KEY),
            format!("{KEY}: 0 and 1 should stand alone"),
        );
    }
    if settings.flag(keys::AssumeReachable)
        && settings.auto_flag(keys::AssumeReachableIPv6) == Some(false)
    {
        report.error(
            settings.origin(keys::AssumeReachableIPv6),
            "AssumeReachable 1 and AssumeReachableIPv6 0 contradict each other",
        );
    }
}

/// Checks the rest.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let set = |key| !settings.lines(key).is_empty();
    let alternate = set(keys::AlternateDirAuthority) || set(keys::AlternateBridgeAuthority);
    if set(keys::DirAuthority) && alternate {
        report.error(
            settings.origin(keys::DirAuthority),
            "DirAuthority and Alternate…Authority cannot both be set",
        );
    }
    if set(keys::DirAuthority) || set(keys::AlternateDirAuthority) {
        report.warn(
            None,
            "DirAuthority or AlternateDirAuthority names other authorities than the Tor \
             network's: this node will be part of their network",
        );
    }
    if settings.flag(keys::FetchDirInfoExtraEarly) && !settings.flag(keys::FetchDirInfoEarly) {
        report.error(
            settings.origin(keys::FetchDirInfoExtraEarly),
            "FetchDirInfoExtraEarly needs FetchDirInfoEarly",
        );
    }
}

/// Reads them.
pub(crate) fn read(settings: &Settings, report: &mut Report) -> DirectoryOptions {
    let own = authorities(keys::DirAuthority, settings, report);
    let alternate = authorities(keys::AlternateDirAuthority, settings, report);
    let mut unused = Vec::new();
    let mut builtin = DEFAULT_AUTHORITIES
        .iter()
        .filter_map(|line| parse_dir_authority(line, &mut unused).ok());
    let authorities = if !own.is_empty() {
        own
    } else if !alternate.is_empty() {
        // The bridge authority stays the network's.
        builtin
            .filter(|authority| !authority.is_v3())
            .chain(alternate)
            .collect()
    } else {
        builtin.by_ref().collect()
    };
    let none = |key| settings.lines(key).is_empty();
    let publish = settings.words(keys::PublishServerDescriptor);
    let assume_reachable = settings.flag(keys::AssumeReachable);
    DirectoryOptions {
        default_authorities: none(keys::DirAuthority) && none(keys::AlternateDirAuthority),
        authorities,
        publish: publish
            .iter()
            .any(|word| word == "1" || word.eq_ignore_ascii_case("v3")),
        assume_reachable,
        assume_reachable_ipv6: assume_reachable
            || settings.auto_flag(keys::AssumeReachableIPv6) == Some(true),
        allow_private_addresses: settings.flag(keys::DirAllowPrivateAddresses),
        extra_info_statistics: settings.flag(keys::ExtraInfoStatistics),
        overload_statistics: settings.flag(keys::OverloadStatistics),
        fallbacks: fallbacks(settings, report),
        paths_needed: Some(settings.double(keys::PathsNeededToBuildCircuits))
            .filter(|needed| *needed >= 0.0),
        cache: settings.flag(keys::DirCache),
        download_extra_info: settings.flag(keys::DownloadExtraInfo),
        max_diff_age: Some(settings.time(keys::MaxConsensusAgeForDiffs))
            .filter(|age| !age.is_zero()),
    }
}

/// `FallbackDir` lines; without them the network's own, if its authorities are used (C tor
/// `consider_adding_dir_servers`).
fn fallbacks(settings: &Settings, report: &mut Report) -> Vec<FallbackDir> {
    let mut fallbacks = Vec::new();
    for line in settings.lines(keys::FallbackDir) {
        let mut warnings = Vec::new();
        match parse_fallback_dir(&line.value, &mut warnings) {
            Ok(fallback) => fallbacks.push(fallback),
            Err(why) => report.error(Some(&line.origin), format!("FallbackDir: {why}")),
        }
        for warning in warnings {
            report.warn(Some(&line.origin), format!("FallbackDir: {warning}"));
        }
    }
    let none = |key| settings.lines(key).is_empty();
    let real = none(keys::DirAuthority) && none(keys::AlternateDirAuthority);
    if real && none(keys::FallbackDir) && settings.flag(keys::UseDefaultFallbackDirs) {
        fallbacks = default_fallbacks();
    }
    fallbacks
}

fn authorities(
    key: Key<Vec<ListLine>>,
    settings: &Settings,
    report: &mut Report,
) -> Vec<DirAuthority> {
    let mut authorities = Vec::new();
    for line in settings.lines(key) {
        let mut warnings = Vec::new();
        match parse_dir_authority(&line.value, &mut warnings) {
            Ok(authority) => authorities.push(authority),
            Err(why) => report.error(Some(&line.origin), format!("{key}: {why}")),
        }
        for warning in warnings {
            report.warn(Some(&line.origin), format!("{key}: {warning}"));
        }
    }
    authorities
}
