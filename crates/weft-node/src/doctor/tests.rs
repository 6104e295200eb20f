//! What is found of one node, and how that changes with one fact.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use super::facts::{Consensus, Facts, Keys, Listed};
use super::judge::findings;
use super::{Scope, Tried, Verdict};

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
            signing_expires: now + Duration::from_secs(20 * 86_400),
        })),
        pid: Some(7),
        files: Some(65_536),
        ports: vec![tried("ORPort 0.0.0.0:9001")],
        own: vec![tried("ORPort 192.0.2.1:9001")],
        clocks: vec![
            ("one".to_owned(), Ok(Some(1))),
            ("two".to_owned(), Ok(Some(0))),
            ("three".to_owned(), Err("refused".to_owned())),
        ],
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
            versions: format!("0.4.8.1,{}", crate::VERSION),
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
    let table: [(Change, Verdict, &str, &str); 22] = [
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
            |f| f.now += Duration::from_secs(21 * 86_400),
            Verdict::Bad,
            "consensus",
            "it ended at 2026-11-28 06:00:00",
        ),
        (|f| f.pid = None, Verdict::Bad, "process", "does not run"),
        (
            |f| f.ports[0].answer = Err("refused".into()),
            Verdict::Bad,
            "ports",
            "ORPort 0.0.0.0:9001 does not answer here: refused",
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
            |f| f.clocks = vec![("one".into(), Ok(Some(-7200)))],
            Verdict::Bad,
            "clock",
            "7200 seconds behind",
        ),
        (
            |f| f.clocks = vec![("one".into(), Ok(Some(90)))],
            Verdict::Warning,
            "clock",
            "90 seconds ahead",
        ),
        (
            |f| f.clocks = vec![("one".into(), Err("refused".into()))],
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
        (|f| f.own.clear(), Verdict::Bad, "reachable", "no address"),
        (
            |f| {
                f.consensus.as_mut().unwrap().listed = None;
                let node = f.node.as_mut().unwrap().as_mut().unwrap();
                node.insert(
                    "status/reachability-succeeded/or".to_owned(),
                    "0".to_owned(),
                );
            },
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
