//! What torrc says of the authority of a private network (dirauth_options.inc; dirauth_config.c).

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use weft_dir::private_authority::Granted;

use super::host::Host;
use super::ports::{PortNumber, parse_relay_ports};
use super::report::Report;
use super::settings::Settings;

/// The authority that this node is (`AuthoritativeDirectory 1`, `V3AuthoritativeDirectory 1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityOptions {
    /// `DirPort`: where it answers. Never empty.
    pub dir_ports: Vec<SocketAddr>,
    /// `V3AuthVotingInterval`.
    pub interval: Duration,
    /// `V3AuthVoteDelay`.
    pub vote_delay: Duration,
    /// `V3AuthDistDelay`.
    pub dist_delay: Duration,
    /// `V3AuthNIntervalsValid`.
    pub intervals_valid: u32,
    /// `ConsensusParams`.
    pub params: BTreeMap<String, i32>,
    /// `TestingDirAuthVoteGuard`.
    pub guards: Granted,
    /// `TestingDirAuthVoteExit`.
    pub exits: Granted,
    /// `TestingDirAuthVoteHSDir`.
    pub hidden_service_dirs: Granted,
    /// `V3BandwidthsFile`.
    pub bandwidths: Option<PathBuf>,
}

/// The authority that torrc asks for.
pub(super) fn authority_options(
    settings: &Settings,
    host: &Host,
    report: &mut Report,
) -> Option<AuthorityOptions> {
    let dir_ports = dir_ports(settings, host, report);
    if !settings.flag("AuthoritativeDirectory") {
        if !dir_ports.is_empty() {
            report.warn(
                settings.origin("DirPortLines"),
                "DirPort is opened by authorities only; it is ignored",
            );
        }
        return None;
    }
    let origin = settings.origin("AuthoritativeDirectory");
    if !settings.flag("V3AuthoritativeDirectory") {
        report.error(
            origin,
            "AuthoritativeDirectory is set, but V3AuthoritativeDirectory, the one kind that Weft \
             can be, is not",
        );
    }
    if !settings.flag("TestingTorNetwork") {
        report.error(
            origin,
            "AuthoritativeDirectory: Weft's authority is one for private networks; it needs \
             TestingTorNetwork 1",
        );
    }
    if settings.flag("DisableNetwork") {
        report.error(
            settings.origin("DisableNetwork"),
            "DisableNetwork: an authority would answer at its DirPort all the same",
        );
    }
    if dir_ports.is_empty() {
        report.error(
            origin,
            "AuthoritativeDirectory needs a DirPort with a number, where relays publish",
        );
    }
    let seconds = |name| Duration::from_secs(u64::try_from(settings.number(name)).unwrap_or(0));
    Some(AuthorityOptions {
        dir_ports,
        interval: seconds("V3AuthVotingInterval"),
        vote_delay: seconds("V3AuthVoteDelay"),
        dist_delay: seconds("V3AuthDistDelay"),
        intervals_valid: u32::try_from(settings.number("V3AuthNIntervalsValid")).unwrap_or(3),
        params: params(settings, report),
        guards: granted("TestingDirAuthVoteGuard", settings, report),
        exits: granted("TestingDirAuthVoteExit", settings, report),
        hidden_service_dirs: granted("TestingDirAuthVoteHSDir", settings, report),
        bandwidths: settings.text("V3BandwidthsFile").map(PathBuf::from),
    })
}

fn dir_ports(settings: &Settings, host: &Host, report: &mut Report) -> Vec<SocketAddr> {
    let name = "DirPortLines";
    let lines: Vec<&str> = settings
        .lines(name)
        .iter()
        .map(|line| line.value.as_str())
        .collect();
    let mut warnings = Vec::new();
    // A line without address stands for IPv4: documents name no other address of a DirPort.
    let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let parsed = parse_relay_ports("DirPort", &lines, &families, &host.resolve, &mut warnings);
    let origin = settings.origin(name);
    for warning in warnings {
        report.warn(origin, warning);
    }
    let ports = match parsed {
        Ok(ports) => ports,
        Err(why) => {
            report.error(origin, why);
            return Vec::new();
        }
    };
    ports
        .iter()
        .filter(|port| port.listen && port.port != PortNumber::Auto)
        .map(|port| port.to_bind())
        .collect()
}

/// `name=value` words, later ones over earlier ones.
fn params(settings: &Settings, report: &mut Report) -> BTreeMap<String, i32> {
    let mut params = BTreeMap::new();
    for line in settings.lines("ConsensusParams") {
        for word in line.value.split_whitespace() {
            let parsed = word
                .split_once('=')
                .filter(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()))
                .and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
            match parsed {
                Some((name, value)) => {
                    params.insert(name, value);
                }
                None => report.error(
                    Some(&line.origin),
                    format!("ConsensusParams: \"{word}\" is not a name, \"=\" and a whole number"),
                ),
            }
        }
    }
    params
}

fn granted(name: &str, settings: &Settings, report: &mut Report) -> Granted {
    let strict = settings.flag(&format!("{name}IsStrict"));
    let text = settings.text(name).unwrap_or_default();
    Granted::parse(text, strict).unwrap_or_else(|word| {
        report.error(
            settings.origin(name),
            format!("{name}: \"{word}\" is neither * nor a fingerprint"),
        );
        Granted::default()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::torrc::load_text;

    const NETWORK: &str = "DirAuthority a orport=1 127.0.0.1:2 \
                           AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nTestingTorNetwork 1\n\
                           ORPort 127.0.0.1:5000\nContactInfo x\n";

    fn authority(torrc: &str) -> Result<Option<AuthorityOptions>, String> {
        let loaded = load_text(torrc, &Host::empty());
        loaded
            .map(|loaded| loaded.options.authority)
            .map_err(|report| report.to_string())
    }

    #[test]
    fn an_authority_is_what_torrc_says() {
        let torrc = format!(
            "{NETWORK}AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nDirPort 127.0.0.1:7000\n\
             V3AuthVotingInterval 20\nV3AuthVoteDelay 2\nV3AuthDistDelay 3\n\
             ConsensusParams circwindow=500 cc_alg=2\nTestingDirAuthVoteGuard *\n\
             TestingDirAuthVoteExit $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
             TestingDirAuthVoteExitIsStrict 1\n"
        );
        let options = authority(&torrc).unwrap().unwrap();
        assert_eq!(options.dir_ports, ["127.0.0.1:7000".parse().unwrap()]);
        let seconds = [options.interval, options.vote_delay, options.dist_delay];
        assert_eq!(seconds, [20, 2, 3].map(Duration::from_secs));
        assert_eq!(options.intervals_valid, 3);
        assert_eq!(options.params.get("cc_alg"), Some(&2));
        assert!(options.guards.all && !options.exits.all && options.exits.strict);
        assert_eq!(options.exits.relays, [[0xaa; 20].into()]);
    }

    #[test]
    fn without_the_words_there_is_none() {
        assert_eq!(authority(NETWORK).unwrap(), None);
        assert_eq!(
            authority(&format!("{NETWORK}DirPort 7000\n")).unwrap(),
            None
        );
    }

    #[test]
    fn it_is_refused_outside_of_private_networks_and_without_what_it_needs() {
        let words = "AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n";
        let public = authority(&format!(
            "ORPort 5000\nContactInfo x\nDirPort 7000\n{words}"
        ));
        assert!(public.unwrap_err().contains("TestingTorNetwork 1"));
        let deaf = authority(&format!("{NETWORK}{words}"));
        assert!(deaf.unwrap_err().contains("needs a DirPort"));
        let kind = authority(&format!(
            "{NETWORK}DirPort 7000\nAuthoritativeDirectory 1\n"
        ));
        assert!(kind.unwrap_err().contains("V3AuthoritativeDirectory"));
        for wrong in [
            "ConsensusParams x",
            "ConsensusParams x=y",
            "TestingDirAuthVoteExit nobody",
        ] {
            let torrc = format!("{NETWORK}{words}DirPort 7000\n{wrong}\n");
            let error = authority(&torrc).unwrap_err();
            assert!(error.contains(wrong.split(' ').next().unwrap()), "{error}");
        }
    }
}
