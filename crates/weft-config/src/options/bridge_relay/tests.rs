//! Tests of lines that C tor accepts or refuses, with its messages.

use super::*;
use crate::{MemoryHost, Options, load_text};

const BRIDGE: &str =
    "ORPort 9001\nContactInfo x\nNickname x\nExitRelay 0\nBridgeRelay 1\nDataDirectory /d\n";

fn options(torrc: &str) -> Options {
    let loaded = load_text(torrc, &MemoryHost::new());
    loaded
        .unwrap_or_else(|report| panic!("{torrc}: {report}"))
        .options
}

fn bridge(torrc: &str) -> BridgeRelayOptions {
    options(&format!("{BRIDGE}{torrc}")).bridge_relay
}

fn messages(torrc: &str) -> Vec<String> {
    let report = match load_text(torrc, &MemoryHost::new()) {
        Ok(loaded) => loaded.report,
        Err(report) => report,
    };
    report.messages().iter().map(ToString::to_string).collect()
}

#[test]
fn a_bridge_is_one_that_torrc_makes_so() {
    let plain = bridge("");
    assert!(plain.enabled && plain.count_users);
    assert_eq!(plain.distribution.as_deref(), Some("any"));
    assert_eq!(
        bridge("BridgeDistribution Email\n").distribution.as_deref(),
        Some("email")
    );
    assert!(!bridge("BridgeRecordUsageByCountry 0\n").count_users);
    let relay = options("ORPort 9001\nContactInfo x\nExitRelay 0\n").bridge_relay;
    assert!(!relay.enabled && !relay.count_users && relay.distribution.is_none());
}

#[test]
fn a_bridge_publishes_to_the_bridge_authority_and_no_other() {
    let of = |torrc: &str| options(&format!("{BRIDGE}{torrc}")).directory.publish;
    assert!(of(""));
    assert!(of("PublishServerDescriptor bridge\n"));
    assert!(!of("PublishServerDescriptor 0\n"));
    let plain = |torrc: &str| {
        let torrc = format!("ORPort 9001\nContactInfo x\nExitRelay 0\n{torrc}");
        options(&torrc).directory.publish
    };
    assert!(plain(""));
    assert!(!plain("PublishServerDescriptor bridge\n"));
}

#[test]
fn what_contradicts_itself_is_refused_in_c_tor_s_words() {
    for (torrc, why) in [
        (
            format!("{BRIDGE}PublishServerDescriptor v3\n"),
            "Bridges are not supposed to publish router descriptors to the directory authorities. Please correct your \
             PublishServerDescriptor line.",
        ),
        (
            "ORPort 9001\nContactInfo x\nExitRelay 0\nPublishServerDescriptor v3,bridge\n"
                .to_owned(),
            "Bridges are not supposed to publish",
        ),
        (
            "BridgeRelay 1\nSocksPort 9050\n".to_owned(),
            "BridgeRelay is 1, ORPort is not set. This is an invalid combination.",
        ),
        (
            format!("{BRIDGE}DirCache 0\n"),
            "We're a bridge but DirCache is disabled. BridgeRelay requires DirCache.",
        ),
        (
            "ORPort 9001\nContactInfo x\nExitRelay 0\nBridgeDistribution email\n".to_owned(),
            "You set BridgeDistribution, but you didn't set BridgeRelay!",
        ),
        (
            format!("{BRIDGE}BridgeDistribution e,mail\n"),
            "Invalid BridgeDistribution value.",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin obfs4 exec\n"),
            "Too few arguments on ServerTransportPlugin line.",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin obfs-4 exec /o\n"),
            "Transport name is not a C identifier (obfs-4).",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin obfs4 socks5 127.0.0.1:1\n"),
            "Strange ServerTransportPlugin type 'socks5'",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin a,b proxy 127.0.0.1:1\n"),
            "You can't have an external proxy with more than one transport.",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin a proxy 127.0.0.1\n"),
            "Transport address '127.0.0.1' has no port.",
        ),
        (
            format!("{BRIDGE}ServerTransportListenAddr obfs4\n"),
            "Too few arguments on ServerTransportListenAddr line.",
        ),
        (
            format!("{BRIDGE}ServerTransportListenAddr obfs4 example\n"),
            "Error parsing ServerTransportListenAddr address 'example'",
        ),
        (
            format!("{BRIDGE}ServerTransportOptions obfs4\n"),
            "Too few arguments on ServerTransportOptions line.",
        ),
        (
            format!("{BRIDGE}ServerTransportOptions obfs4 iat-mode\n"),
            "\"iat-mode\" is not a k=v value.",
        ),
        (
            format!("{BRIDGE}ServerTransportPlugin obfs4 exec /o\nSandbox 1\n"),
            "Managed proxies are not compatible with Sandbox mode",
        ),
        (format!("{BRIDGE}ExtORPort x\n"), "ExtORPort"),
    ] {
        let report = load_text(&torrc, &MemoryHost::new()).unwrap_err();
        assert!(report.to_string().contains(why), "{torrc}: {report}");
    }
}

#[test]
fn what_a_bridge_does_not_do_has_a_warning() {
    for (torrc, words) in [
        (
            "DirPort 9030\n",
            "Can't set a DirPort on a bridge relay; disabling DirPort",
        ),
        (
            "MyFamily $AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
            "Listing a family for a bridge relay is not supported",
        ),
        ("ExitRelay 1\n", "it will not function as an exit relay"),
        (
            "BridgeDistribution moat\n",
            "Unrecognized BridgeDistribution value \"moat\"",
        ),
        (
            "ServerTransportPlugin obfs4 exec /o\nNoExec 1\n",
            "Managed proxies are not compatible with NoExec mode",
        ),
        (
            "ServerTransportPlugin obfs4 exec /o\n",
            "the Extended ORPort is disabled",
        ),
        (
            "ServerTransportListenAddr obfs4 0.0.0.0:1\n",
            "You need at least a single managed-proxy",
        ),
        (
            "ExtORPort 192.0.2.1:1\n",
            "You specified a public address '192.0.2.1:1' for ExtORPort",
        ),
    ] {
        let messages = messages(&format!("{}{torrc}", BRIDGE.replace("ExitRelay 0\n", "")));
        assert!(
            messages.iter().any(|message| message.contains(words)),
            "{torrc}: {messages:?}"
        );
    }
    let options = options(&format!("{BRIDGE}DirPort 9030\n").replace("ExitRelay 0", "ExitRelay 1"));
    assert!(options.directory.dir_ports.is_empty());
    assert!(options.exit.policy.rejects_all());
}

#[test]
fn programs_have_their_transports_addresses_and_options() {
    let of = bridge(
        "ServerTransportPlugin obfs3,obfs4 exec /usr/bin/obfs4proxy -enableLogging\n\
         ServerTransportPlugin scramblesuit,obfs4 exec /usr/bin/obfs4proxy -enableLogging\n\
         ServerTransportPlugin meek exec /usr/bin/meek-server\n\
         ServerTransportPlugin other proxy 127.0.0.1:7\n\
         ServerTransportListenAddr obfs4 0.0.0.0:443\n\
         ServerTransportListenAddr obfs4 0.0.0.0:444\n\
         ServerTransportListenAddr obfs3 [::]:0\n\
         ServerTransportOptions obfs4 iat-mode=1 a=b=c\n\
         ServerTransportOptions obfs4 iat-mode=2\n\
         ExtORPort auto\n__ExtORPort [::1]:4\nOutboundBindAddressPT 192.0.2.9\nOutboundBindAddress ::1\n",
    );
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|w| (*w).to_owned()).collect() };
    assert_eq!(
        of.programs,
        [
            TransportProgram {
                transports: words(&["obfs3", "obfs4", "scramblesuit"]),
                command: words(&["/usr/bin/obfs4proxy", "-enableLogging"]),
            },
            TransportProgram {
                transports: words(&["meek"]),
                command: words(&["/usr/bin/meek-server"]),
            },
        ]
    );
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        of.listen,
        [pair("obfs4", "0.0.0.0:443"), pair("obfs3", "[::]:0")]
    );
    assert_eq!(
        of.transport_options,
        [pair("obfs4", "iat-mode=1"), pair("obfs4", "a=b=c")]
    );
    assert_eq!(of.outbound.v4, Some(Ipv4Addr::new(192, 0, 2, 9)));
    assert!(of.outbound.v6.is_some());
    let ports: Vec<String> = of
        .ext_or_ports
        .iter()
        .map(|port| port.to_bind().to_string())
        .collect();
    assert_eq!(ports, ["127.0.0.1:0", "[::1]:4"]);
    assert_eq!(of.cookie_file, Path::new("/d/extended_orport_auth_cookie"));
    assert!(!of.cookie_group_readable);
    let set = bridge("ExtORPortCookieAuthFile /c\nExtORPortCookieAuthFileGroupReadable 1\n");
    assert!(set.cookie_group_readable && set.cookie_file == Path::new("/c"));
    // A client starts none of a server's programs.
    let client = options("SocksPort 9050\nServerTransportPlugin obfs4 exec /o\n");
    assert!(client.bridge_relay.programs.is_empty());
}

#[test]
fn another_bridge_authority_takes_the_place_of_the_network_s() {
    let line = "AlternateBridgeAuthority mine orport=5 bridge 192.0.2.1:80 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
    let of = |torrc: &str| {
        let authorities = options(&format!("{BRIDGE}{torrc}")).directory.authorities;
        let bridges = authorities.iter().filter(|one| one.bridge);
        let names: Vec<String> = bridges.map(|one| one.nickname.clone().unwrap()).collect();
        (authorities.len(), names)
    };
    assert_eq!(of(""), (10, vec!["Serge".to_owned()]));
    assert_eq!(of(line), (10, vec!["mine".to_owned()]));
}
