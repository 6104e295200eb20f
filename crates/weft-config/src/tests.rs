//! Whole configurations: their options, errors, dumps, and reloads.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use weft_log::{SafeLogging, Severity};

use super::*;
use crate::table::KNOWN;
use crate::table::known::{Harm, Kind, Known, Support};
use crate::table::value::quote;
use crate::text::log_options::Destination;

mod bounds;

const AUTHORITY: &str = "DirAuthority a orport=5000 v3ident=E8A9C45EDE6D711294FADF8E7951F4DE6CA56B58 \
                         127.0.0.1:7000 7EA6EAD6FD83083C538F44038BBFA077587DD755\n";

fn loaded(text: &str) -> Loaded {
    load_text(text, &MemoryHost::new()).unwrap_or_else(|report| panic!("{text}\n{report}"))
}

fn wrong(text: &str) -> Vec<String> {
    let report = load_text(text, &MemoryHost::new()).map(|_| ()).unwrap_err();
    report.to_string().lines().map(str::to_owned).collect()
}

fn messages(loaded: &Loaded, severity: Severity) -> Vec<String> {
    let messages = loaded
        .report
        .messages()
        .iter()
        .filter(|m| m.severity == severity);
    messages.map(ToString::to_string).collect()
}

#[test]
fn torrc_of_the_machine_comes_before_the_one_in_the_home_directory() {
    let read = |host: &MemoryHost| {
        let loaded = load(&CommandLine::empty(), host).unwrap();
        let notices = messages(&loaded, Severity::Notice).join("\n");
        (loaded.options.identity.nickname.clone(), notices)
    };
    let host = MemoryHost::new();
    let (_, notices) = read(&host);
    assert!(
        notices.contains("/etc/tor/torrc\" not present, using reasonable defaults"),
        "{notices}"
    );
    let host = host.with_file("/home/nobody/.torrc", "Nickname fromhome\n");
    let (nickname, notices) = read(&host);
    assert_eq!(nickname, "fromhome");
    assert!(notices.contains("/.torrc\""), "{notices}");
    let host = host.with_file("/etc/tor/torrc", "Nickname ofmachine\n");
    let (nickname, notices) = read(&host);
    assert_eq!(nickname, "ofmachine");
    assert!(!notices.contains("/.torrc\""), "{notices}");
}

#[test]
fn a_torrc_that_cannot_be_read_is_not_one_that_is_missing() {
    let line = |args: &[&str]| {
        let args = args.iter().map(|arg| OsString::from(*arg));
        CommandLine::parse(args).unwrap()
    };
    let fails = |host: &MemoryHost, line: &CommandLine| {
        let report = load(line, host).map(|_| ()).unwrap_err().to_string();
        assert!(
            report.contains("cannot read configuration file"),
            "{report}"
        );
    };
    let of_user = "/home/nobody/.torrc";
    // As in "the file belongs to another user" and "the folder does".
    for closed in ["/etc/tor/torrc", "/etc/tor", of_user, "/home/nobody"] {
        let host = MemoryHost::new().with_closed(closed);
        fails(&host, &CommandLine::empty());
    }
    let closed = MemoryHost::new().with_closed("/t");
    let named = line(&["-f", "/t", "--ignore-missing-torrc"]);
    fails(&closed, &named);
    assert!(load(&named, &MemoryHost::new()).is_ok());
    // The one of the machine comes first all the same.
    let host = MemoryHost::new()
        .with_closed("/etc/tor/torrc")
        .with_file(of_user, "Nickname own\n");
    fails(&host, &CommandLine::empty());
}

#[test]
fn an_empty_torrc_is_c_tors_defaults() {
    let options = loaded("").options;
    assert!(!options.is_relay());
    assert_eq!(options.files.data_directory, Path::new("/home/nobody/.tor"));
    assert_eq!(
        options.files.key_directory,
        Path::new("/home/nobody/.tor/keys")
    );
    assert_eq!(options.bandwidth.rate, 1 << 30);
    assert_eq!(options.bandwidth.relay_rate, None);
    assert_eq!(options.resources.connection_threads, None);
    assert!(!options.resources.use_all_threads);
    assert_eq!(options.resources.conn_limit, 1000);
    assert_eq!(
        options.process.shutdown_wait_length,
        Duration::from_secs(30)
    );
    assert_eq!(
        options.log.heartbeat_period,
        Some(Duration::from_secs(6 * 3600))
    );
    assert_eq!(options.log.safe, SafeLogging::All);
    assert_eq!(options.scheduling.circuit_priority_halflife, None);
    assert_eq!(options.directory.authorities.len(), 10);
    assert!(options.directory.default_authorities && options.directory.publish);
}

#[test]
fn a_relay_follows_its_torrc() {
    let loaded = loaded(
        "ORPort 1.2.3.4:443 NoListen\nORPort 9001 NoAdvertise IPv4Only\nNickname weft\n\
         ContactInfo \"me <me AT example.com>\"\nDataDirectory /d\nKeyDirectory /k\n\
         RelayBandwidthRate 10 MBytes\nRelayBandwidthBurst 160 MBits\nMaxAdvertisedBandwidth 5 MB\n\
         ConnectionThreads 2\nUseAllThreads 1\nNumCPUs 3\nMaxMemInQueues 2 GB\nHeartbeatPeriod 0\nExitRelay 0\n\
         KISTSchedRunInterval 10 msec\nDoSConnectionEnabled 1\nDoSConnectionMaxConcurrentCount 50\n\
         OutboundBindAddress 1.2.3.4\nOutboundBindAddressOR [2001:db8::1]\nSocksPort 0\n\
         MyFamily $0123456789012345678901234567890123456789, \
         ABCDEF6789012345678901234567890123456789\nLog notice file /l\nSafeLogging relay\nUser tor\n",
    );
    let options = &loaded.options;
    let ports: Vec<_> = options
        .network
        .or_ports
        .iter()
        .map(|p| (p.to_bind().to_string(), p.listen))
        .collect();
    assert_eq!(
        ports,
        [
            ("1.2.3.4:443".to_owned(), false),
            ("0.0.0.0:9001".to_owned(), true)
        ]
    );
    assert_eq!(options.identity.nickname, "weft");
    assert_eq!(
        options.identity.my_family[1],
        "$ABCDEF6789012345678901234567890123456789"
    );
    assert_eq!(options.files.key_directory, Path::new("/k"));
    assert_eq!(
        (
            options.bandwidth.effective_rate(),
            options.bandwidth.effective_burst()
        ),
        (5 << 20, 20 << 20)
    );
    assert_eq!(options.resources.connection_threads, Some(2));
    assert!(options.resources.use_all_threads);
    assert_eq!(options.resources.max_mem_in_queues(Some(1)), 2 << 30);
    assert_eq!(options.log.heartbeat_period, None);
    assert_eq!(options.log.lines[0].to, Destination::File("/l".into()));
    assert_eq!(
        options.scheduling.kist_run_interval,
        Some(Duration::from_millis(10))
    );
    assert_eq!(options.dos.connection_enabled, Some(true));
    assert_eq!(options.dos.connection_max_concurrent, Some(50));
    let bind = &options.network.outbound_bind;
    assert_eq!(
        bind.for_relay([1, 1, 1, 1].into()).unwrap().to_string(),
        "1.2.3.4"
    );
    assert_eq!(
        bind.for_relay("::2".parse().unwrap()).unwrap().to_string(),
        "2001:db8::1"
    );
    assert_eq!(options.process.user.as_deref(), Some("tor"));
    assert!(options.exit.policy.rejects_all());
    assert_eq!(messages(&loaded, Severity::Warn), Vec::<String>::new());
}

#[test]
fn a_testing_network_changes_defaults_but_not_what_is_set() {
    let text = format!(
        "TestingTorNetwork 1\nCountPrivateBandwidth 0\nORPort 5001\nContactInfo x\n{AUTHORITY}"
    );
    let options = loaded(&text).options;
    assert!(options.testing.network && options.network.extend_allow_private_addresses);
    assert!(options.directory.allow_private_addresses && !options.bandwidth.count_private);
    assert_eq!(
        options.testing.dir_connection_max_stall,
        Duration::from_secs(30)
    );
    assert_eq!(options.directory.authorities.len(), 1);
    assert!(!options.directory.default_authorities);
}

#[test]
fn memory_for_queues_follows_the_machine() {
    const GB: u64 = 1 << 30;
    let resources = loaded("").options.resources;
    for (ram, queues) in [
        (GB / 8, GB / 4),
        (4 * GB, 3 * GB),
        (10 * GB, 10 * GB / 5 * 2),
        (64 * GB, 8 * GB),
    ] {
        assert_eq!(resources.max_mem_in_queues(Some(ram)), queues);
    }
    assert_eq!(resources.max_mem_in_queues(None), 8 * GB);
    let set = |text| loaded(text).options.resources.max_mem_in_queues(Some(GB));
    assert_eq!(set("ORPort 9001\nMaxMemInQueues 100 MB\n"), 100 << 20);
    assert_eq!(set("ORPort 9001\nMaxMemInQueues 1 MB\n"), 64 << 20);
}

#[test]
fn rules_between_options_are_c_tors() {
    const RELAY: &str = "ORPort 9001\n";
    for (text, word) in [
        ("Nickname a-b", "Nickname"),
        ("Nickname abcdefghijklmnopqrst", "Nickname"),
        ("ORPort 9001\nBandwidthRate 10 KB", "BandwidthRate"),
        (
            "ORPort 9001\nMaxAdvertisedBandwidth 10 KB",
            "MaxAdvertisedBandwidth",
        ),
        (
            "ORPort 9001\nRelayBandwidthRate 10 KB",
            "RelayBandwidthRate",
        ),
        ("BandwidthRate 2 MB\nBandwidthBurst 1 MB", "BandwidthBurst"),
        (
            "RelayBandwidthRate 2 MB\nRelayBandwidthBurst 1 MB",
            "RelayBandwidthBurst",
        ),
        ("BandwidthRate 3 GB", "BandwidthRate"),
        ("ConnLimit 0", "ConnLimit"),
        ("ORPort 9001\nConnectionPadding 1", "ConnectionPadding"),
        ("ORPort 9001\nCircuitPadding 0", "CircuitPadding"),
        ("ORPort 9001\nReachableAddresses *:80", "ReachableAddresses"),
        ("ORPort 9001\nFascistFirewall 1", "FascistFirewall"),
        (
            "AssumeReachable 1\nAssumeReachableIPv6 0",
            "AssumeReachable",
        ),
        ("Schedulers", "Schedulers"),
        ("Schedulers FIFO", "FIFO"),
        ("KISTSchedRunInterval 200 msec", "KISTSchedRunInterval"),
        ("KeepalivePeriod 0", "KeepalivePeriod"),
        ("SigningKeyLifetime 1 day", "SigningKeyLifetime"),
        ("TestingTorNetwork 1", "DirAuthority"),
        ("TestingLinkCertLifetime 1 day", "TestingLinkCertLifetime"),
        ("SafeLogging 2", "SafeLogging"),
        ("LogTimeGranularity 0", "LogTimeGranularity"),
        ("Log loud stdout", "loud"),
        ("PublishServerDescriptor v4", "v4"),
        ("BridgeRelay 1", "BridgeRelay"),
        ("OutboundBindAddress example.com", "OutboundBindAddress"),
        (
            "OutboundBindAddress 1.2.3.4\nOutboundBindAddress 1.2.3.5",
            "only one",
        ),
        ("MyFamily a b", "MyFamily"),
        ("DirAuthority nonsense", "DirAuthority"),
        ("ORPort 9001\nExitRelay 1\nExitPolicy accept", "ExitPolicy"),
        ("DirPolicy accept", "DirPolicy"),
        ("SocksPort x", "SocksPort"),
        ("DataDirectory relative\nRunAsDaemon 1", "DataDirectory"),
    ] {
        let errors = wrong(text);
        assert!(
            errors.iter().any(|line| line.contains(word)),
            "{text:?} gave {errors:?}"
        );
    }
    assert_eq!(
        loaded(&format!("{RELAY}BandwidthRate 2 GB\nBandwidthBurst 2 GB"))
            .options
            .bandwidth
            .rate,
        i32::MAX as u64
    );
}

#[test]
fn everything_wrong_is_reported_at_once_with_its_place() {
    assert_eq!(
        wrong("ORPort 9001\nNickname a_b\nConectionThreads 2\n# c\nExitRelay yes\nBandwidthRate 1 KB\n"),
        [
            "torrc:3: unknown option \"ConectionThreads\"; did you mean ConnectionThreads?".to_owned(),
            "torrc:5: ExitRelay: \"yes\" is neither 0 nor 1 nor auto".to_owned(),
            "torrc:2: Nickname \"a_b\": a nickname has 1 to 19 characters, each a letter or digit (a-z, A-Z, 0-9)".to_owned(),
            "torrc:6: BandwidthRate is 1024 bytes per second; a relay needs at least 76800".to_owned(),
        ]
    );
}

#[test]
fn an_option_that_weft_lacks_is_reported_once_and_what_is_lost_comes_first() {
    let torrc = "ORPort 9001\nContactInfo x\nClientOnionAuthDir /k\nControlPort 0\nHidServAuth x\n\
                 HiddenServiceDir /h\nHiddenServicePort 80\nHiddenServiceDir /i\nHiddenServicePort 81\n\
                 RunAsDaemon 0\nExitRelay 0\n";
    let host = MemoryHost::new().with_file("/k/a.auth_private", "");
    let loaded = load_text(torrc, &host).unwrap();
    assert_eq!(
        messages(&loaded, Severity::Warn),
        [
            "torrc:3: ClientOnionAuthDir: Weft does not support this option: onion services will NOT be reachable, with these keys or \
             without",
            "torrc:6: HiddenServiceDir: Weft does not support this option: the onion service will \
             NOT be started",
            "HidServAuth is obsolete and does nothing; remove it",
        ]
    );
}

#[test]
fn harmless_options_share_one_notice() {
    let loaded = loaded(
        "ORPort 9001\nContactInfo x\nExitRelay 0\nDisableOOSCheck 0\nHiddenServiceDir /h\nHiddenServicePort 80\n\
         HiddenServiceVersion 3\nHiddenServicePort 81\nHardwareAccel 1\n",
    );
    let warnings = messages(&loaded, Severity::Warn);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("HiddenServiceDir"), "{warnings:?}");
    let notices = messages(&loaded, Severity::Notice);
    assert_eq!(notices.len(), 1, "{notices:?}");
    let names = "DisableOOSCheck, HardwareAccel, HiddenServicePort, HiddenServiceVersion";
    assert!(notices[0].ends_with(names), "{notices:?}");
}

/// A line that requests an option's effect, where the table does not allow every value.
fn asking(known: &Known) -> String {
    let value = match known.kind {
        Kind::Bool | Kind::AutoBool => "1",
        Kind::Text => "127.0.0.1:1080",
        Kind::Lines => "192.0.2.1:443",
        kind => panic!("{}: no value of {kind:?}", known.name),
    };
    format!("{} {value}", known.name)
}

#[test]
fn what_would_be_unsafe_to_ignore_is_refused_with_its_line_and_a_remedy() {
    let mut count = 0;
    for known in &KNOWN {
        let Support::None { harm, fine, why } = known.support else {
            continue;
        };
        if harm != Harm::Unsafe {
            continue;
        }
        count += 1;
        let line = asking(known);
        let report = load_text(&format!("# first\n{line}\n"), &MemoryHost::new()).unwrap_err();
        let errors = report.to_string();
        let place = format!("torrc:2: {}", known.name);
        assert!(
            errors.contains(&place) && errors.contains(why) && errors.contains("remove the line"),
            "{line}: {errors}"
        );
        assert!(
            !errors.contains("192.0.2.1"),
            "an address in the log: {errors}"
        );
        // SETCONF gives the same error and leaves everything as it was.
        let old = loaded("SocksPort 9050\n").options;
        let (name, value) = line.split_once(' ').unwrap();
        let pairs = [(name.to_owned(), Some(value.to_owned()))];
        let error = change(&old, &pairs, false, false, &MemoryHost::new()).unwrap_err();
        let ChangeError::Whole(report) = error else {
            panic!("{line}: {error:?}");
        };
        assert!(report.to_string().contains(why), "{line}: {report}");
        // Cleared, it asks for nothing.
        let cleared = [(name.to_owned(), None)];
        change(&old, &cleared, false, false, &MemoryHost::new()).unwrap();
        for fine in fine {
            loaded(&format!("{} {fine}\n", known.name));
        }
    }
    assert!(count > 0, "{count}");
}

#[test]
fn an_exit_has_the_policy_that_it_asks_for() {
    for text in [
        "ExitRelay 1",
        "ExitPolicy accept *:80",
        "ReducedExitPolicy 1",
        "IPv6Exit 1",
    ] {
        let loaded = loaded(&format!("ORPort 9001\nContactInfo x\n{text}\n"));
        assert_eq!(messages(&loaded, Severity::Warn), [""; 0]);
        let exit = &loaded.options.exit;
        assert!(exit.policy.allows([8, 8, 8, 8].into(), 80), "{text}");
        assert!(!exit.policy.allows([8, 8, 8, 8].into(), 25), "{text}");
        assert!(!exit.policy.allows([10, 8, 8, 8].into(), 80), "{text}");
        assert_eq!(exit.ipv6, text.starts_with("IPv6"));
    }
    for text in ["ExitRelay 0\nExitPolicy accept *:80", "ExitRelay 0", ""] {
        let loaded = loaded(&format!("ORPort 9001\nContactInfo x\n{text}\n"));
        assert!(loaded.options.exit.policy.rejects_all(), "{text}");
    }
}

#[test]
fn an_exit_s_name_servers_are_asked_by_its_torrc() {
    let dns = |text: &str| {
        let text = format!("ORPort 9001\nContactInfo x\nExitRelay 1\n{text}");
        let options = loaded(&text).options;
        (options.exit.dns, options.exit.refuse_unknown, options.dos)
    };
    let (plain, refuse_unknown, dos) = dns("");
    assert!(plain.randomize_case && plain.detect_hijacking && plain.allow_broken_config);
    assert!(!plain.search_domains && !plain.allow_non_rfc953);
    assert_eq!((plain.resolv_conf, refuse_unknown), (None, None));
    assert_eq!(plain.test_addresses.len(), 4);
    assert_eq!(dos.stream_creation_enabled, None);
    let (set, refuse_unknown, dos) = dns(
        "ServerDNSResolvConfFile /r\nServerDNSRandomizeCase 0\nServerDNSDetectHijacking 0\n\
         ServerDNSAllowBrokenConfig 0\nServerDNSSearchDomains 1\n\
         ServerDNSAllowNonRFC953Hostnames 1\nServerDNSTestAddresses A.example\n\
         RefuseUnknownExits 0\nDoSStreamCreationEnabled 1\nDoSStreamCreationRate 2\n\
         DoSStreamCreationBurst 3\nDoSStreamCreationDefenseType 3\n",
    );
    assert!(!set.randomize_case && !set.detect_hijacking && !set.allow_broken_config);
    assert!(set.search_domains && set.allow_non_rfc953);
    assert_eq!(set.resolv_conf.unwrap().to_str(), Some("/r"));
    assert_eq!(set.test_addresses, ["a.example"]);
    assert_eq!(refuse_unknown, Some(false));
    assert_eq!(dos.stream_creation_enabled, Some(true));
    assert_eq!(dos.stream_creation_rate, Some(2));
    assert_eq!(dos.stream_creation_burst, Some(3));
    assert_eq!(dos.stream_creation_defense_type, Some(3));
}

#[test]
fn dumps_are_c_tors() {
    let loaded = loaded(
        "orport 9001\nORPort [2001:db8::1]:9002 IPv6Only\nRelayBandwidthRate 2 MB\nContactInfo \"a\\tb # c\"\n\
         ExitPolicy reject *:25, \\\n# why\n reject *:26\nHeartbeatPeriod 5 minutes\nLog notice stdout\n\
         Log [dir]info file \"/a\"\nCircuitPriorityHalflife 2.5\nSchedulers KISTLite, Vanilla\n__ORPort 9003\n",
    );
    assert_eq!(
        dump(&loaded.options.settings, &loaded.defaults, DumpKind::Short),
        "CircuitPriorityHalflife 2.500000\n\
         ContactInfo \"a\\tb # c\"\n\
         ExitPolicy reject *:25,  reject *:26\n\
         HeartbeatPeriod 1800\n\
         Log notice stdout\n\
         Log [dir]info file \"/a\"\n\
         Nickname Unnamed\n\
         ORPort 9001\n\
         ORPort [2001:db8::1]:9002 IPv6Only\n\
         RelayBandwidthBurst 2097152\n\
         RelayBandwidthRate 2097152\n\
         Schedulers KISTLite,Vanilla\n"
    );
}

/// A controller may set what the defaults torrc has otherwise, or clear it.
#[test]
fn what_is_saved_beside_a_defaults_torrc_is_read_back() {
    let defaults = "SocksPort 9050\nSocksPort 9150\nControlSocket /run/c\nSafeLogging 0\nSafeSocks 1\n\
                    CookieAuthentication 1\nMapAddress a b\n";
    let host = MemoryHost::new().with_file("/defaults", defaults);
    let read = |torrc: &str| {
        let host = host.clone().with_file("/torrc", torrc);
        let words = ["--defaults-torrc", "/defaults", "-f", "/torrc"];
        let line = CommandLine::parse(words.map(OsString::from)).unwrap();
        let loaded = load(&line, &host).unwrap();
        let defaults = read_defaults(&line, &host, false);
        assert_eq!(defaults, loaded.defaults);
        (loaded.options, defaults)
    };
    let (before, defaults) = read("Nickname a\n");
    let pairs = [
        ("SafeLogging", Some("1")),
        ("SafeSocks", Some("0")),
        ("CookieAuthentication", Some("0")),
        ("SocksPort", None),
        ("ControlSocket", None),
        ("MapAddress", Some("c d")),
    ];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
    let (changed, _) = change(&before, &pairs, false, false, &host).unwrap();
    let settings = changed.options.settings;
    let saved = dump(&settings, &defaults, DumpKind::Short);
    let (after, _) = read(&saved);
    assert_eq!(after.settings, settings, "{saved}");
    assert!(!saved.contains("9050"), "{saved}");
}

#[test]
fn a_text_that_was_cleared_stays_so() {
    let settings = settings_of("SafeLogging\n");
    let text = dump(&settings, &settings::Settings::default(), DumpKind::Short);
    assert_eq!(text, "SafeLogging\n");
    assert_eq!(settings_of(&text), settings);
}

/// A value that an option of this kind can have.
fn value_of(kind: Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Text | Kind::Path | Kind::RouterSet => "[ -~é\\t\\n]{1,12}".prop_map(|s| s).boxed(),
        Kind::Lines => "[!-~][ -~é]{0,20}".prop_map(|s| s).boxed(),
        Kind::Int => any::<i32>().prop_map(|n| n.to_string()).boxed(),
        Kind::PosInt => (0..i32::MAX).prop_map(|n| n.to_string()).boxed(),
        Kind::U64 => any::<u64>().prop_map(|n| n.to_string()).boxed(),
        Kind::Memory => ((0..9999_u32), prop_oneof!["KB", "MB", "GBits", "bytes"])
            .prop_map(|(n, u)| format!("{n} {u}"))
            .boxed(),
        Kind::Seconds | Kind::FirstSeconds => {
            ((0..99_u32), prop_oneof!["seconds", "weeks", "hours"])
                .prop_map(|(n, u)| format!("{n} {u}"))
                .boxed()
        }
        Kind::Millis => (0..99_999_u32).prop_map(|n| format!("{n} msec")).boxed(),
        Kind::Double => (-1000..1000_i32)
            .prop_map(|n| format!("{}", f64::from(n) / 8.0))
            .boxed(),
        Kind::Bool => prop_oneof!["0", "1"].boxed(),
        Kind::AutoBool | Kind::Count => prop_oneof!["0", "1", "auto"].boxed(),
        Kind::Csv => "[a-z]{1,3}(, ?[a-z]{1,3}){0,3}".prop_map(|s| s).boxed(),
        Kind::LinesOf(_) | Kind::LinesVirtual | Kind::Obsolete => Just(String::new()).boxed(),
    }
}

/// One line of a torrc that sets an option to a value of its kind.
fn any_line() -> impl Strategy<Value = String> {
    (0..KNOWN.len()).prop_flat_map(|index| {
        let known = &KNOWN[index];
        value_of(known.kind).prop_map(move |value| format!("{} {}\n", known.name, quote(&value)))
    })
}

fn settings_of(text: &str) -> settings::Settings {
    let mut report = Report::default();
    let lines = lexer::lex(text.as_bytes(), &"torrc".into(), &mut report);
    let mut settings = settings::Settings::default();
    settings.assign(&lines, false, &mut report);
    settings
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn what_is_dumped_is_read_back(lines in proptest::collection::vec(any_line(), 0..40)) {
        let settings = settings_of(&lines.concat());
        for kind in [DumpKind::Short, DumpKind::Full] {
            let text = dump(&settings, &settings::Settings::default(), kind);
            let again = settings_of(&text);
            // Options that a controller sets for its own session are not dumped.
            for ((known, before, _), (_, after, _)) in settings.iter().zip(again.iter()) {
                if !known.hidden && !known.name.starts_with("__") {
                    prop_assert_eq!(before, after, "{}\n{}", known.name, &text);
                }
            }
        }
    }

    #[test]
    fn no_bytes_can_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut report = Report::default();
        let lines = lexer::lex(&bytes, &"torrc".into(), &mut report);
        let mut settings = settings::Settings::default();
        settings.assign(&lines, false, &mut report);
    }
}

fn reloaded(old: &str, new: &str) -> Result<Vec<&'static str>, String> {
    let command_line = CommandLine::parse(["-f", "/torrc"].map(OsString::from)).unwrap();
    let host = |torrc: &str| MemoryHost::new().with_file("/torrc", torrc);
    let first = load(&command_line, &host(old)).unwrap();
    match reload(&command_line, 0, &host(new), &first.options) {
        Ok((_, changes)) => Ok(changes.iter().map(|change| change.name).collect()),
        Err(report) => Err(report.to_string()),
    }
}

#[test]
fn a_reload_returns_what_changed() {
    assert_eq!(
        reloaded("ORPort 9001", "# c\nORPort   9001").unwrap(),
        Vec::<&str>::new()
    );
    assert_eq!(
        reloaded(
            "ORPort 9001\nLog info stdout",
            "ORPort 9002\nLog notice stdout\nRelayBandwidthRate 1 MB"
        )
        .unwrap(),
        [
            "Log",
            "ORPortLines",
            "RelayBandwidthBurst",
            "RelayBandwidthRate"
        ]
    );
}

#[test]
fn a_reload_that_cannot_be_is_an_error_that_names_everything() {
    let why = reloaded(
        "ORPort 9001",
        "ORPort 9001\nDataDirectory /d\nConnectionThreads 3\nUser x",
    )
    .unwrap_err();
    assert_eq!(why.lines().count(), 3, "{why}");
    assert!(
        why.contains("torrc:3: while the node is running, ConnectionThreads cannot be changed"),
        "{why}"
    );
    assert!(
        reloaded("ORPort 9001", "ORPort x")
            .unwrap_err()
            .contains("ORPort")
    );
}

#[test]
fn files_come_in_order_defaults_torrc_command_line() {
    let host = MemoryHost::new().with_file(
        "/defaults",
        "Nickname a\nContactInfo d\nAddress 1.1.1.1\nLog notice stdout\n",
    );
    let host = host.with_file("/torrc", "Nickname b\n+Address 2.2.2.2\nLog warn stdout\n");
    let words = [
        "--defaults-torrc",
        "/defaults",
        "-f",
        "/torrc",
        "--Nickname",
        "c",
    ];
    let loaded = load(
        &CommandLine::parse(words.map(OsString::from)).unwrap(),
        &host,
    )
    .unwrap();
    let options = &loaded.options;
    assert_eq!(options.identity.nickname, "c");
    assert_eq!(options.identity.contact_info.as_deref(), Some("d"));
    assert_eq!(options.network.addresses, ["1.1.1.1", "2.2.2.2"]);
    assert_eq!(options.log.lines.len(), 1);
    let short = dump(&options.settings, &loaded.defaults, DumpKind::Short);
    assert_eq!(
        short,
        "Address 1.1.1.1\nAddress 2.2.2.2\nLog warn stdout\nNickname c\n"
    );
}

#[test]
fn a_torrc_that_is_missing_is_an_error_only_where_it_was_named() {
    let load = |words: &[&str]| {
        let line = CommandLine::parse(words.iter().map(OsString::from)).unwrap();
        load(&line, &MemoryHost::new()).map(|loaded| messages(&loaded, Severity::Notice).len())
    };
    assert_eq!(load(&[]), Ok(1));
    assert!(
        load(&["-f", "/nonexistent/x"])
            .unwrap_err()
            .to_string()
            .contains("/nonexistent/x")
    );
    assert!(load(&["-f", "/nonexistent/x", "--ignore-missing-torrc"]).is_ok());
    assert!(load(&["-f", "/nonexistent/x", "--allow-missing-torrc"]).is_ok());
    assert!(load(&["--defaults-torrc", "/nonexistent/x"]).is_ok());
    assert!(
        load(&["-f", "/"])
            .unwrap_err()
            .to_string()
            .contains("not a file")
    );
}

#[test]
fn a_pipe_is_a_torrc_and_a_device_is_none() {
    let host = MemoryHost::new()
        .with_special("/dev/fd/63", FileKind::Pipe, "Nickname piped\n")
        .with_special("/dev/null", FileKind::Other, "");
    let load = |words: &[&str]| {
        let line = CommandLine::parse(words.iter().map(OsString::from)).unwrap();
        load(&line, &host).map_err(|report| report.to_string())
    };
    for flags in [&[][..], &["--ignore-missing-torrc"]] {
        let piped = load(&[&["-f", "/dev/fd/63"], flags].concat()).unwrap();
        assert_eq!(piped.options.identity.nickname, "piped");
        let notices = messages(&piped, Severity::Notice);
        let read = "Read configuration file \"/dev/fd/63\".".to_owned();
        assert!(notices.contains(&read), "{notices:?}");
    }
    let ignored = load(&["--ignore-missing-torrc", "-f", "/dev/null"]).unwrap();
    assert_eq!(
        messages(&ignored, Severity::Notice),
        ["Configuration file \"/dev/null\" not present, using reasonable defaults."]
    );
    let allowed = load(&["--allow-missing-torrc", "-f", "/dev/null"]).unwrap();
    let warnings = messages(&allowed, Severity::Warn);
    assert!(warnings[0].contains("\"/dev/null\""), "{warnings:?}");
    assert!(load(&["-f", "/dev/null"]).unwrap_err().contains("device"));
    // A folder is a mistake, whatever the flags: C tor would start without the options of its operator.
    for flag in ["--ignore-missing-torrc", "--allow-missing-torrc"] {
        let why = load(&["-f", "/dev", flag]).unwrap_err();
        assert!(why.contains("it is a folder"), "{why}");
    }
}

#[test]
fn a_defaults_torrc_that_was_read_from_a_pipe_is_not_read_again() {
    let line = ["--defaults-torrc", "/p", "-f", "/torrc"].map(OsString::from);
    let line = CommandLine::parse(line).unwrap();
    let host = |content: &str| {
        MemoryHost::new()
            .with_special("/p", FileKind::Pipe, content)
            .with_file("/torrc", "Nickname a\n")
    };
    let first = load(&line, &host("ContactInfo piped\n")).unwrap().options;
    assert_eq!(first.identity.contact_info.as_deref(), Some("piped"));
    // On a real machine a second read waits for ever.
    let again = host("ContactInfo again\n");
    let why = "the pipe /p, which cannot be read again";
    let report = reload(&line, 0, &again, &first).unwrap_err();
    assert!(report.to_string().contains(why), "{report}");
    match reload_text(&line, &again, "Nickname b\n", &first) {
        Err(ChangeError::Value(report)) => assert!(report.to_string().contains(why), "{report}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(read_defaults(&line, &again, false), settings_of(""));
}

/// A running node waits for ever for another writer: at a reload, or at LOADCONF.
#[test]
fn a_pipe_is_not_included() {
    let host = MemoryHost::new().with_special("/p", FileKind::Pipe, "Nickname a\n");
    let report = load_text("%include /p\n", &host).unwrap_err().to_string();
    let why = "/p: it is a pipe, which cannot be read again when torrc is";
    assert!(report.contains(why), "{report}");
}

#[test]
fn a_pipe_that_is_too_long_is_no_torrc_and_one_that_was_read_is_not_read_again() {
    let line = CommandLine::parse(["-f", "/p"].map(OsString::from)).unwrap();
    let pipe = |content: Vec<u8>| MemoryHost::new().with_special("/p", FileKind::Pipe, content);
    let report = load(&line, &pipe(vec![b'\n'; (16 << 20) + 1])).unwrap_err();
    assert!(report.to_string().contains("too large"), "{report}");
    let first = load(&line, &pipe(b"Nickname piped\n".to_vec())).unwrap();
    let report = reload(&line, 0, &pipe(Vec::new()), &first.options).unwrap_err();
    let why = "torrc was read from the pipe /p, which cannot be read again";
    assert_eq!(report.to_string(), why);
}

/// The operator's guide, which describes options.
const GUIDE: &str = include_str!("../../../docs/operator.md");

/// The names of options that are taken for one reason, sorted.
fn names(of: impl Fn(&Known) -> bool) -> Vec<String> {
    let names = KNOWN.iter().filter(|known| of(known));
    let mut names: Vec<_> = names.map(|known| known.name.to_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_operators_guide_names_what_sighup_cannot_change() {
    let list = GUIDE.split("SIGHUP cannot change ").nth(1).unwrap();
    let list = list.split('.').next().unwrap().replace(" and ", ", ");
    let mut named: Vec<_> = list.split(',').map(|name| name.trim().to_owned()).collect();
    named.sort();
    let fixed = names(|known| known.support == Support::Full && known.immutable);
    assert_eq!(named, fixed);
}

#[test]
fn an_orport_that_cannot_be_read_is_the_only_thing_wrong_with_it() {
    for port in ["70000", "name.example:x", "9001 NoListen NoAdvertise"] {
        let report = load_text(
            &format!("ORPort {port}\nContactInfo x\n"),
            &MemoryHost::new(),
        );
        let report = report.unwrap_err();
        let lines: Vec<_> = report.messages().iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("torrc:1: "), "{lines:?}");
    }
}

#[test]
fn a_port_that_cannot_be_read_is_one_error_whatever_reads_it() {
    for option in [
        "SocksPort",
        "DNSPort",
        "HTTPTunnelPort",
        "TransPort",
        "NATDPort",
        "ControlPort",
        "MetricsPort",
        "DirPort",
        "ExtORPort",
        "ORPort",
    ] {
        let torrc = format!("ContactInfo me\nNickname me\n{option} many\n");
        let report = load_text(&torrc, &MemoryHost::new()).unwrap_err();
        assert_eq!(report.to_string().lines().count(), 1, "{option}: {report}");
    }
}

#[test]
fn a_program_in_place_of_a_torrc_is_one_error() {
    let mut program = b"\x7fELF\x02\x01\n".to_vec();
    for number in 0..500 {
        program.extend_from_slice(format!("word{number} x\n").as_bytes());
    }
    program.push(0);
    let host = MemoryHost::new().with_file("/bin/x", program);
    let mut line = CommandLine::empty();
    line.torrc = Some(TorrcSource::File("/bin/x".into()));
    let report = load(&line, &host).unwrap_err();
    assert_eq!(
        report.to_string(),
        "/bin/x:502: this file is no torrc: it holds a zero byte"
    );
}
