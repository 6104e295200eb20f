//! Findings about one node, and their changes with one fact.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use weft_datadir::dir::WrongMode;
use weft_datadir::lock::Holder;

use super::facts::{Consensus, Facts, Keys, Listed, Unasked};
use super::judge::findings;
use super::ports::Port;
use super::tried::Tried;
use super::{Finding, Scope, Verdict};

/// C tor's version that Weft follows, as a consensus names it.
fn followed() -> &'static str {
    let (version, _) = crate::VERSION.split_once(' ').unwrap();
    version
}

const DAY: Duration = Duration::from_secs(86_400);

/// A relay that runs, is listed, and whose clock is right.
fn good() -> Facts {
    let tried = |what: &str| Tried {
        what: what.to_owned(),
        address: Some("192.0.2.1:9001".parse().unwrap()),
        answer: Ok(()),
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_795_838_400); // 2026-11-28 04:00:00
    Facts {
        now,
        scope: Scope { network: true },
        is_relay: true,
        is_bridge: false,
        is_client: false,
        publishes: true,
        assumes: false,
        is_exit: true,
        is_cache: true,
        check: Ok(()),
        keys: Some(Ok(Keys {
            fingerprint: "A".repeat(40),
            signing_expires: Some(now + 20 * DAY),
            renewed_before: Some(DAY),
        })),
        modes: Vec::new(),
        moved: None,
        holder: Ok(Holder::Process(7)),
        files: Some(65_536),
        ports: vec![Port {
            tried: tried("ORPort 0.0.0.0:9001"),
            may_hibernate: false,
        }],
        own: vec![tried("ORPort 192.0.2.1:9001")],
        names_unread: false,
        clocks: Ok(vec![
            ("one".to_owned(), Ok(Some(1))),
            ("two".to_owned(), Ok(Some(0))),
            ("three".to_owned(), Err("refused".to_owned())),
        ]),
        node: Some(Ok(BTreeMap::from([
            (
                "status/bootstrap-phase".to_owned(),
                "NOTICE BOOTSTRAP PROGRESS=100 TAG=done SUMMARY=\"Done\"".to_owned(),
            ),
            (
                "status/reachability-succeeded/or".to_owned(),
                "1".to_owned(),
            ),
        ]))),
        consensus: Some(Consensus {
            times: [
                "2026-11-28 03:00:00".to_owned(),
                "2026-11-28 04:30:00".to_owned(),
                "2026-11-28 06:00:00".to_owned(),
            ],
            relays: 9000,
            versions: format!("0.4.8.1,{}", followed()),
            floods: [true, true],
            listed: Some(Listed {
                or_ports: vec!["192.0.2.1:9001".parse().unwrap()],
                flags: vec![
                    "Exit", "Fast", "Guard", "HSDir", "Running", "Stable", "V2Dir", "Valid",
                ],
                bandwidth: 900,
                part: 0.001,
            }),
        }),
        entries: Vec::new(),
        programs: vec![tried("obfs4: /usr/bin/obfs4proxy")],
        memory: (1 << 30, Some(4 << 30)),
        floods: [None, None],
    }
}

/// Facts of a good relay that the consensus does not list, and that reports `reached` as the result
/// of its self-test.
fn unlisted(reached: &str) -> Facts {
    let mut facts = good();
    facts.consensus.as_mut().unwrap().listed = None;
    let node = facts.node.as_mut().unwrap().as_mut().unwrap();
    let key = "status/reachability-succeeded/or";
    node.insert(key.to_owned(), reached.to_owned());
    facts
}

/// The only finding about a subject.
fn only(facts: &Facts, about: &str) -> Finding {
    let mut all = findings(facts);
    all.retain(|finding| finding.about == about);
    assert_eq!(all.len(), 1, "{about}: {all:#?}");
    all.remove(0)
}

/// The worst that is found, and what that says.
fn worst(facts: &Facts) -> (Verdict, &'static str, String) {
    let all = findings(facts).into_iter();
    let worst = all.max_by_key(|finding| finding.verdict).unwrap();
    (worst.verdict, worst.about, worst.text)
}

#[test]
fn a_relay_that_is_well_has_no_complaints() {
    let all = findings(&good());
    assert!(
        all.iter().all(|one| one.verdict == Verdict::Good),
        "{all:#?}"
    );
    assert!(all.iter().all(|one| one.advice.is_none()));
    let about: Vec<&str> = all.iter().map(|one| one.about).collect();
    for wanted in [
        "files",
        "file limit",
        "memory",
        "transports",
        "keys",
        "process",
        "ports",
        "bootstrap",
        "clock",
        "consensus",
        "version",
        "reachable",
        "listed",
        "floods",
    ] {
        assert!(about.contains(&wanted), "{wanted}");
    }
}

#[test]
fn each_trouble_is_found_and_named() {
    type Change = fn(&mut Facts);
    let table: [(Change, Verdict, &str, &str); 26] = [
        (
            |f| f.check = Err("not yours".into()),
            Verdict::Bad,
            "files",
            "not yours",
        ),
        (
            |f| f.files = Some(1024),
            Verdict::Warning,
            "file limit",
            "1024",
        ),
        (
            |f| f.memory = (8 << 30, Some(4 << 30)),
            Verdict::Warning,
            "memory",
            "8192 MB of 4096",
        ),
        (
            |f| f.programs[0].answer = Err("No such file".into()),
            Verdict::Bad,
            "transports",
            "No such file",
        ),
        (
            |f| f.keys = Some(Err("damaged".into())),
            Verdict::Bad,
            "keys",
            "damaged",
        ),
        (
            |f| f.now += 21 * DAY,
            Verdict::Bad,
            "consensus",
            "it ended at 2026-11-28 06:00:00",
        ),
        (
            |f| f.holder = Ok(Holder::Nobody),
            Verdict::Bad,
            "process",
            "does not run",
        ),
        (
            |f| f.holder = Err("cannot open lock".into()),
            Verdict::Unknown,
            "process",
            "not known whether it runs: cannot open lock",
        ),
        (
            |f| {
                f.modes = vec![WrongMode {
                    path: "/data".into(),
                    mode: 0o755,
                    wanted: 0o700,
                }];
            },
            Verdict::Warning,
            "files",
            "/data has mode 0755, and should have 0700",
        ),
        (
            |f| f.moved = Some("this relay was moved".into()),
            Verdict::Bad,
            "moved",
            "it runs here, and this relay was moved",
        ),
        (
            |f| f.ports[0].tried.answer = Err("refused".into()),
            Verdict::Bad,
            "ports",
            "ORPort 0.0.0.0:9001 does not answer here: refused",
        ),
        (
            |f| {
                f.ports[0].tried.answer = Err("refused".into());
                f.ports[0].may_hibernate = true;
            },
            Verdict::Warning,
            "ports",
            "closed while the node hibernates (AccountingMax)",
        ),
        (
            |f| {
                let phase = "WARN BOOTSTRAP PROGRESS=5 TAG=conn".to_owned();
                let node = f.node.as_mut().unwrap().as_mut().unwrap();
                node.insert("status/bootstrap-phase".to_owned(), phase);
            },
            Verdict::Bad,
            "bootstrap",
            "PROGRESS=5",
        ),
        (
            |f| f.node = Some(Err("no cookie".into())),
            Verdict::Unknown,
            "control port",
            "no cookie",
        ),
        (
            |f| f.clocks = Ok(vec![("one".into(), Ok(Some(-7200)))]),
            Verdict::Bad,
            "clock",
            "7200 seconds behind",
        ),
        (
            |f| f.clocks = Ok(vec![("one".into(), Ok(Some(90)))]),
            Verdict::Warning,
            "clock",
            "90 seconds ahead",
        ),
        (
            |f| f.clocks = Ok(vec![("one".into(), Err("refused".into()))]),
            Verdict::Unknown,
            "clock",
            "one: refused",
        ),
        (
            |f| f.now -= Duration::from_secs(7200),
            Verdict::Bad,
            "consensus",
            "in the future",
        ),
        (
            |f| f.consensus = None,
            Verdict::Warning,
            "consensus",
            "none is kept",
        ),
        (
            |f| f.consensus.as_mut().unwrap().versions = "0.4.9.1,9.9.9.9".into(),
            Verdict::Warning,
            "version",
            "up to 9.9.9.9",
        ),
        (
            |f| {
                *f = unlisted("0");
                f.own.clear();
                f.node = None;
            },
            Verdict::Bad,
            "reachable",
            "no address",
        ),
        (
            |f| *f = unlisted("0"),
            Verdict::Bad,
            "reachable",
            "nobody has reached it from outside at 192.0.2.1:9001",
        ),
        (
            |f| f.consensus.as_mut().unwrap().listed = None,
            Verdict::Warning,
            "listed",
            "does not list it",
        ),
        (
            |f| {
                let listed = f.consensus.as_mut().unwrap().listed.as_mut().unwrap();
                listed.or_ports = vec!["198.51.100.7:9001".parse().unwrap()];
            },
            Verdict::Warning,
            "listed",
            "198.51.100.7:9001, which is no address of this machine",
        ),
        (
            |f| {
                let listed = f.consensus.as_mut().unwrap().listed.as_mut().unwrap();
                listed.flags.push("BadExit");
            },
            Verdict::Warning,
            "listed",
            "BadExit",
        ),
        (
            |f| f.floods = [Some(false), None],
            Verdict::Warning,
            "floods",
            "not limited by torrc",
        ),
    ];
    for (change, verdict, about, part) in table {
        let mut facts = good();
        change(&mut facts);
        let found = worst(&facts);
        assert_eq!((found.0, found.1), (verdict, about), "{}", found.2);
        assert!(found.2.contains(part), "{part}: {}", found.2);
    }
}

#[test]
fn a_relay_that_is_assumed_to_be_reachable_is_not_known_to_be() {
    let mut facts = good();
    let listed = facts.consensus.as_mut().unwrap().listed.as_mut().unwrap();
    listed.flags.clear();
    facts.assumes = true;
    let (verdict, about, text) = worst(&facts);
    assert_eq!((verdict, about), (Verdict::Unknown, "reachable"));
    assert!(text.contains("AssumeReachable"), "{text}");
}

#[test]
fn a_missing_flag_is_explained_and_is_no_trouble() {
    let mut facts = good();
    let listed = facts.consensus.as_mut().unwrap().listed.as_mut().unwrap();
    listed
        .flags
        .retain(|flag| !matches!(*flag, "Guard" | "Exit"));
    let all = findings(&facts);
    let flags: Vec<_> = all.iter().filter(|one| one.about == "flags").collect();
    assert!(
        flags[0].text.starts_with("no Guard yet"),
        "{}",
        flags[0].text
    );
    assert!(flags[1].text.starts_with("no Exit"), "{}", flags[1].text);
    assert_eq!(worst(&facts).0, Verdict::Good);
}

#[test]
fn a_client_is_asked_for_its_guards() {
    let mut facts = good();
    facts.is_relay = false;
    facts.is_client = true;
    facts.keys = None;
    let guard = |what: &str, answer: Result<(), String>| Tried {
        what: what.to_owned(),
        address: Some("192.0.2.9:443".parse().unwrap()),
        answer,
    };
    facts.entries = vec![
        guard("guard a", Ok(())),
        guard("guard b", Err("timed out".into())),
    ];
    assert_eq!(worst(&facts).0, Verdict::Warning);
    facts.entries.remove(0);
    let (verdict, about, text) = worst(&facts);
    assert_eq!((verdict, about), (Verdict::Bad, "entry"));
    assert_eq!(text, "guard b does not answer at 192.0.2.9:443: timed out");
    facts.scope.network = false;
    facts.entries = vec![guard("guard a", Ok(()))];
    assert_eq!(worst(&facts).0, Verdict::Unknown);
}

#[test]
fn a_relay_is_reached_where_the_consensus_lists_it_as_running() {
    // By an address that this machine does not have: a router's.
    let mut facts = good();
    facts.own.clear();
    let found = only(&facts, "reachable");
    assert_eq!(found.verdict, Verdict::Good);
    assert!(
        found.text.contains("reach it at 192.0.2.1:9001, by"),
        "{}",
        found.text
    );
    // One that has ended shows nothing.
    facts.now += DAY;
    assert_eq!(only(&facts, "reachable").verdict, Verdict::Unknown);
    facts.node = None;
    assert_eq!(only(&facts, "reachable").verdict, Verdict::Bad);
}

#[test]
fn the_node_s_answer_counts_where_no_address_is_known_here() {
    let mut facts = unlisted("1");
    assert_eq!(only(&facts, "reachable").verdict, Verdict::Good);
    facts.own.clear();
    // It has no address, so no test could fail.
    let found = only(&facts, "reachable");
    assert_eq!(found.verdict, Verdict::Unknown);
    assert!(
        found.text.contains("the running node has none yet"),
        "{}",
        found.text
    );
    let node = facts.node.as_mut().unwrap().as_mut().unwrap();
    node.insert("address".to_owned(), "192.0.2.7".to_owned());
    let found = only(&facts, "reachable");
    assert_eq!(found.verdict, Verdict::Good);
    assert_eq!(found.text, "it was reached from outside at 192.0.2.7");
    facts.assumes = true;
    assert_eq!(only(&facts, "reachable").verdict, Verdict::Unknown);
    // Before the empty list of addresses.
    facts.node = None;
    assert_eq!(only(&facts, "reachable").verdict, Verdict::Unknown);
}

#[test]
fn an_address_that_was_not_looked_up_is_not_missing() {
    let mut facts = unlisted("0");
    facts.own.clear();
    facts.node = None;
    facts.names_unread = true;
    let found = only(&facts, "reachable");
    assert_eq!(found.verdict, Verdict::Unknown);
    assert!(found.text.contains("was not looked up"), "{}", found.text);
}

#[test]
fn the_time_of_a_node_that_hides_tor_is_unknown_without_advice() {
    for (why, text) in [
        (Unasked::UsesBridges, "UseBridges"),
        (Unasked::IsBridge, "a bridge"),
        (Unasked::NetworkDisabled, "DisableNetwork"),
    ] {
        let mut facts = good();
        facts.clocks = Err(why);
        let found = only(&facts, "clock");
        assert_eq!((found.verdict, found.advice), (Verdict::Unknown, None));
        assert!(found.text.contains("were not asked"), "{}", found.text);
        assert!(found.text.contains(text), "{}", found.text);
    }
    let mut facts = good();
    facts.clocks = Err(Unasked::Offline);
    assert!(findings(&facts).iter().all(|one| one.about != "clock"));
}

#[test]
fn a_process_that_is_not_seen_runs() {
    let mut facts = good();
    facts.holder = Ok(Holder::Unseen);
    assert_eq!(worst(&facts).0, Verdict::Good);
}

#[test]
fn an_old_consensus_of_a_client_is_no_defect() {
    let mut facts = good();
    facts.is_relay = false;
    facts.keys = None;
    facts.now += DAY;
    let found = only(&facts, "consensus");
    assert_eq!(found.verdict, Verdict::Warning);
    assert!(found.text.contains("idle"), "{}", found.text);
    assert!(found.advice.unwrap().contains("when it is used"));
}

#[test]
fn a_signing_key_is_worth_a_look_when_the_relay_should_have_renewed_it() {
    const HOUR: Duration = Duration::from_secs(3600);
    let verdict = |left, renewed_before| {
        let mut facts = good();
        facts.keys = Some(Ok(Keys {
            fingerprint: "A".repeat(40),
            signing_expires: Some(facts.now + left),
            renewed_before,
        }));
        let found = only(&facts, "keys");
        (found.verdict, found.advice.unwrap_or_default())
    };
    let here = Some(DAY);
    assert_eq!(verdict(4 * DAY, here).0, Verdict::Good);
    assert_eq!(verdict(20 * HOUR, here).0, Verdict::Good);
    let (is, advice) = verdict(17 * HOUR, here);
    assert_eq!(is, Verdict::Warning);
    assert!(advice.contains("by itself"), "{advice}");
    assert_eq!(verdict(6 * DAY, None).0, Verdict::Good);
    let (is, advice) = verdict(4 * DAY, None);
    assert_eq!(is, Verdict::Warning);
    assert!(advice.contains("weft --keygen"), "{advice}");
    // A shorter TestingSigningKeySlop.
    assert_eq!(verdict(HOUR, Some(HOUR)).0, Verdict::Good);
}

#[test]
fn nobody_is_advised_to_start_a_relay_that_was_moved() {
    let mut facts = good();
    facts.holder = Ok(Holder::Nobody);
    facts.now += 20 * DAY + DAY;
    let starts = |facts: &Facts| {
        let all = findings(facts).into_iter();
        let advice = all.filter_map(|one| one.advice);
        advice.filter(|advice| advice.starts_with("start")).count()
    };
    assert_eq!(starts(&facts), 2, "keys and process");
    facts.moved = Some("this relay was moved".to_owned());
    assert_eq!(starts(&facts), 0);
    let found = only(&facts, "moved");
    assert_eq!(found.verdict, Verdict::Bad);
    assert_eq!(found.text, "this relay was moved");
}

#[test]
fn a_version_is_recommended_or_newer() {
    let text = |versions: &str| {
        let mut facts = good();
        facts.consensus.as_mut().unwrap().versions = versions.to_owned();
        let found = only(&facts, "version");
        assert_eq!(found.verdict, Verdict::Good);
        found.text
    };
    let recommended = text(&format!("0.4.8.1,{}", followed()));
    assert!(
        recommended.ends_with("which the consensus recommends"),
        "{recommended}"
    );
    let newer = text("0.4.8.1,0.4.8.2");
    assert!(
        newer.contains("newer than all") && newer.contains("0.4.8.2"),
        "{newer}"
    );
}
