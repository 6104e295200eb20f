//! Exit policy, and name lookups of the exit.

use std::path::PathBuf;

use weft_policy::{ExitPolicy, PolicySettings};

use crate::report::Report;
use crate::settings::Settings;
use crate::table::keys;

/// Exit policy, and name lookups of the exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitOptions {
    /// The policy to publish and obey: the result of `ExitPolicy`, `ReducedExitPolicy`, `IPv6Exit`
    /// and the other options, without the relay's own addresses.
    pub policy: ExitPolicy,
    /// `IPv6Exit`.
    pub ipv6: bool,
    /// `ExitPolicyRejectPrivate`: the relay's own addresses are rejected, besides the private
    /// networks that `policy` rejects.
    pub reject_private: bool,
    /// `ExitPolicyRejectLocalInterfaces`: the addresses of this machine's interfaces, and those that
    /// connections are opened from, are rejected, too.
    pub reject_local_interfaces: bool,
    /// `RefuseUnknownExits`: no streams on circuits that come from relays that the consensus does
    /// not list (`None`: by consensus).
    pub refuse_unknown: Option<bool>,
    /// `ReevaluateExitPolicy`: a new policy ends streams that it forbids.
    pub reevaluate: bool,
    /// Name servers.
    pub dns: DnsOptions,
}

/// Name lookups of an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOptions {
    /// `ServerDNSResolvConfFile` (`None`: the system's).
    pub resolv_conf: Option<PathBuf>,
    /// `ServerDNSAllowBrokenConfig`: start even if that file cannot be read.
    pub allow_broken_config: bool,
    /// `ServerDNSSearchDomains`.
    pub search_domains: bool,
    /// `ServerDNSRandomizeCase`.
    pub randomize_case: bool,
    /// `ServerDNSDetectHijacking`.
    pub detect_hijacking: bool,
    /// `ServerDNSTestAddresses`, in lower case.
    pub test_addresses: Vec<String>,
    /// `ServerDNSAllowNonRFC953Hostnames`.
    pub allow_non_rfc953: bool,
}

/// Reads them.
pub(crate) fn read(settings: &Settings, is_relay: bool, report: &mut Report) -> ExitOptions {
    let lines = settings.texts(keys::ExitPolicy);
    let policy_settings = PolicySettings {
        ipv6: settings.flag(keys::IPv6Exit),
        reject_private: settings.flag(keys::ExitPolicyRejectPrivate),
        reduced: settings.flag(keys::ReducedExitPolicy),
    };
    let exit_relay = settings.auto_flag(keys::ExitRelay);
    let untouched = lines.is_empty()
        && exit_relay.is_none()
        && !policy_settings.reduced
        && !policy_settings.ipv6;
    let mut policy = ExitPolicy::reject_all();
    // C tor ignores the policy of a relay with `ExitRelay 0`. A bridge is not an exit; the check of
    // the options warned about it.
    let may_exit = exit_relay != Some(false) && !settings.flag(keys::BridgeRelay);
    if may_exit && !untouched {
        let mut warnings = Vec::new();
        match ExitPolicy::parse(&lines, policy_settings, &mut warnings) {
            Ok(parsed) => policy = parsed,
            Err(why) => report.error(
                settings.origin(keys::ExitPolicy),
                format!("ExitPolicy: {why}"),
            ),
        }
        let origin = settings.origin(keys::ExitPolicy);
        warnings
            .into_iter()
            .for_each(|warning| report.warn(origin, format!("ExitPolicy: {warning}")));
    }
    if is_relay && untouched {
        report.notice(
            None,
            "By default, Weft does not run as an exit relay, like C tor. If you want to be an exit \
             relay, set ExitRelay to 1. To suppress this message in the future, set ExitRelay \
             to 0.",
        );
    }
    ExitOptions {
        policy,
        ipv6: policy_settings.ipv6,
        reevaluate: settings.flag(keys::ReevaluateExitPolicy),
        reject_private: policy_settings.reject_private,
        reject_local_interfaces: settings.flag(keys::ExitPolicyRejectLocalInterfaces),
        refuse_unknown: settings.auto_flag(keys::RefuseUnknownExits),
        dns: dns(settings),
    }
}

fn dns(settings: &Settings) -> DnsOptions {
    let tests = settings.words(keys::ServerDNSTestAddresses).iter();
    DnsOptions {
        resolv_conf: settings
            .text(keys::ServerDNSResolvConfFile)
            .map(PathBuf::from),
        allow_broken_config: settings.flag(keys::ServerDNSAllowBrokenConfig),
        search_domains: settings.flag(keys::ServerDNSSearchDomains),
        randomize_case: settings.flag(keys::ServerDNSRandomizeCase),
        detect_hijacking: settings.flag(keys::ServerDNSDetectHijacking),
        test_addresses: tests.map(|name| name.to_ascii_lowercase()).collect(),
        allow_non_rfc953: settings.flag(keys::ServerDNSAllowNonRFC953Hostnames),
    }
}
