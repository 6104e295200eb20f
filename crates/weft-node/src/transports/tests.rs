//! Real processes: shell scripts that speak the protocol, and others.

use std::time::Duration;

use weft_transports::{Role, Side};

use super::*;

/// A program that runs this script.
fn script(text: &str) -> Wanted {
    let transports = vec!["obfs4".to_owned()];
    Wanted {
        program: Program {
            side: Side::Server,
            command: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
            transports: transports.clone(),
            by_proxy: false,
        },
        environment: Environment {
            state_folder: "/nowhere/".to_owned(),
            transports,
            outbound_v4: None,
            outbound_v6: None,
            role: Role::Server {
                listen: vec![("obfs4".to_owned(), "127.0.0.1:4711".to_owned())],
                options: Vec::new(),
                or_port: None,
                ext_or_port: None,
            },
        },
        lines: Vec::new(),
    }
}

/// Takes turns until something happens; the time that programs see passes as fast as `step`.
fn until_change(programs: &mut Programs, now: &mut Instant, step: Duration) -> Vec<Change> {
    for _ in 0..10_000 {
        let changes = programs.turn(*now);
        if !changes.is_empty() {
            return changes;
        }
        *now += step;
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing happened");
}

const GOOD: &str = "echo VERSION 1; echo \"SMETHOD $TOR_PT_SERVER_TRANSPORTS ${TOR_PT_SERVER_BINDADDR#*-}\"; \
                    echo SMETHODS DONE; read -r line";

#[test]
fn a_program_gets_its_variables_and_its_transports_are_known() {
    let (mut programs, mut now) = (Programs::default(), Instant::now());
    assert!(programs.follow(vec![script(GOOD)], now).is_empty());
    let changes = until_change(&mut programs, &mut now, Duration::ZERO);
    let [Change::Ready(transports)] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert_eq!(transports.len(), 1);
    assert_eq!(transports[0].name, "obfs4");
    assert_eq!(transports[0].address.to_string(), "127.0.0.1:4711");
    assert_eq!(programs.transports().count(), 1);
    assert!(!programs.is_configuring());
    // The same again changes nothing; another line starts it anew.
    assert!(programs.follow(vec![script(GOOD)], now).is_empty());
    assert_eq!(programs.transports().count(), 1);
    let mut other = script(GOOD);
    other.lines = vec!["obfs4 127.0.0.1:1".to_owned()];
    assert_eq!(programs.follow(vec![other], now), [Change::Lost]);
    assert_eq!(programs.transports().count(), 0);
    let changes = until_change(&mut programs, &mut now, Duration::ZERO);
    assert!(
        matches!(changes.as_slice(), [Change::Ready(_)]),
        "{changes:?}"
    );
    programs.end(now);
}

#[test]
fn a_program_that_is_not_wanted_any_more_ends() {
    let (mut programs, mut now) = (Programs::default(), Instant::now());
    let wanted = "trap '' TERM; ".to_owned() + GOOD;
    programs.follow(vec![script(&wanted)], now);
    until_change(&mut programs, &mut now, Duration::ZERO);
    let id = programs.running[0].child.as_ref().unwrap().id();
    assert_eq!(programs.follow(Vec::new(), now), [Change::Lost]);
    // It ignores the signal, and ends as its input is closed.
    for _ in 0..10_000 {
        programs.turn(now);
        if !std::path::Path::new(&format!("/proc/{id}")).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{id} runs");
}

#[test]
fn a_program_that_does_not_end_is_killed() {
    let (mut programs, mut now) = (Programs::default(), Instant::now());
    let stubborn = GOOD.replace("read -r line", "trap '' TERM; while :; do sleep 0.01; done");
    programs.follow(vec![script(&stubborn)], now);
    until_change(&mut programs, &mut now, Duration::ZERO);
    let id = programs.running[0].child.as_ref().unwrap().id();
    programs.follow(Vec::new(), now);
    programs.turn(now + PATIENCE_OF_TESTS);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

/// Longer than a process is waited for.
const PATIENCE_OF_TESTS: Duration = Duration::from_secs(11);

#[test]
fn a_program_that_dies_is_started_again() {
    let (mut programs, mut now) = (Programs::default(), Instant::now());
    let dying = GOOD.replace("read -r line", "exit 3");
    programs.follow(vec![script(&dying)], now);
    // What it printed last is read although it has ended.
    let step = Duration::from_millis(100);
    let mut changes = until_change(&mut programs, &mut now, step);
    while changes.len() < 3 {
        changes.extend(until_change(&mut programs, &mut now, step));
    }
    let kinds: Vec<bool> = changes
        .iter()
        .map(|change| *change == Change::Lost)
        .collect();
    assert_eq!(kinds[..3], [false, true, false], "{changes:?}");
    programs.end(now);
}

#[test]
fn what_cannot_be_started_prints_garbage_or_nothing_has_no_transports() {
    let (mut programs, mut now) = (Programs::default(), Instant::now());
    let mut missing = script("");
    missing.program.command = vec!["/nowhere/obfs4proxy".to_owned()];
    let garbage = script("head -c 100000 /dev/zero; echo; echo GET / HTTP/1.1; read -r line");
    let silent = script("exec 1>&-; read -r line");
    programs.follow(vec![missing.clone(), garbage, silent], now);
    let states = |programs: &Programs| -> Vec<State> {
        programs.running.iter().map(|r| r.managed.state()).collect()
    };
    for _ in 0..10_000 {
        assert!(programs.turn(now).is_empty());
        if states(&programs)[..2] == [State::FailedLaunch, State::Broken] {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(
        states(&programs),
        [State::FailedLaunch, State::Broken, State::Launched]
    );
    now += Duration::from_secs(60);
    programs.turn(now);
    assert_eq!(states(&programs)[2], State::Infant);
    // A reload tries again what failed.
    programs.follow(vec![missing], now);
    assert_eq!(states(&programs), [State::Infant]);
    programs.end(now);
}
