//! Real processes: shell scripts that speak the protocol, and others.

use std::fs;
use std::time::Duration;

use mio::{Events, Poll};

use super::*;

fn programs() -> Programs {
    Programs::new(Poll::new().unwrap().registry().try_clone().unwrap())
}

/// A program that runs this script.
fn script(text: &str) -> Wanted {
    Wanted::new(
        Plan {
            command: &["/bin/sh", "-c", text].map(str::to_owned),
            transports: &["obfs4".to_owned()],
            outbound: (None, None),
            data_directory: Path::new("/nowhere"),
            role: Role::Server {
                listen: vec![("obfs4".to_owned(), "127.0.0.1:4711".to_owned())],
                options: Vec::new(),
                or_port: None,
                ext_or_port: None,
            },
        },
        Vec::new(),
    )
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
    let (mut programs, mut now) = (programs(), Instant::now());
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
    // Equal lines change nothing; another line restarts it.
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
    let (mut programs, mut now) = (programs(), Instant::now());
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
    let (mut programs, mut now) = (programs(), Instant::now());
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
    let (mut programs, mut now) = (programs(), Instant::now());
    let dying = GOOD.replace("read -r line", "exit 3");
    programs.follow(vec![script(&dying)], now);
    // Its last output is read although it has ended.
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
    let (mut programs, mut now) = (programs(), Instant::now());
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
        let failed = programs.running.iter().map(|r| r.managed.has_failed());
        if failed.eq([true, true, false]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(
        states(&programs),
        [State::Infant, State::Broken, State::Launched]
    );
    now += Duration::from_secs(60);
    programs.turn(now);
    assert_eq!(states(&programs)[2], State::Infant);
    // A reload tries again what failed.
    programs.follow(vec![missing], now);
    assert_eq!(states(&programs), [State::Infant]);
    programs.end(now);
}

/// True if the process runs; a zombie does not.
fn runs(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[test]
fn what_a_program_writes_is_an_event_and_is_read_to_the_end() {
    let mut poll = Poll::new().unwrap();
    let registry = poll.registry().try_clone().unwrap();
    let (mut programs, now) = (Programs::new(registry), Instant::now());
    // More than a pipe holds, and than a turn reads: the program gets no further until all is read.
    let noisy = format!("head -c 2000000 /dev/zero | tr '\\0' '\\n' >&2; {GOOD}");
    programs.follow(vec![script(&noisy)], now);
    let mut changes = programs.turn(now);
    let mut events = Events::with_capacity(8);
    while changes.is_empty() {
        if !programs.has_more() {
            // No turn without an event.
            poll.poll(&mut events, Some(Duration::from_secs(60)))
                .unwrap();
            assert!(events.iter().any(|event| event.token() == PIPES));
        }
        changes = programs.turn(now);
    }
    assert!(matches!(changes.as_slice(), [Change::Ready(_)]));
    programs.end(now);
}

#[test]
fn what_a_program_has_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("id");
    let starting = format!("sleep 1000 & echo $! > {}; {GOOD}", file.display());
    // It is stopped, or ends by itself.
    for program in [starting.clone(), starting.replace("read -r line", "exit 0")] {
        let (mut programs, mut now) = (programs(), Instant::now());
        programs.follow(vec![script(&program)], now);
        until_change(&mut programs, &mut now, Duration::ZERO);
        let id = fs::read_to_string(&file).unwrap().trim().to_owned();
        programs.follow(Vec::new(), now);
        for _ in 0..10_000 {
            programs.turn(now);
            if !runs(&id) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!runs(&id));
        programs.end(now);
    }
}

#[test]
fn a_program_is_started_when_the_one_before_it_has_ended() {
    let (mut programs, mut now) = (programs(), Instant::now());
    let stubborn = GOOD.replace("read -r line", "trap '' TERM; while :; do sleep 0.01; done");
    programs.follow(vec![script(&stubborn)], now);
    until_change(&mut programs, &mut now, Duration::ZERO);
    let id = programs.running[0].child.as_ref().unwrap().id().to_string();
    // Another command for the same transport.
    programs.follow(vec![script(GOOD)], now);
    for _ in 0..20 {
        assert!(programs.turn(now).is_empty());
        assert!(programs.running[0].child.is_none() && runs(&id));
        std::thread::sleep(Duration::from_millis(2));
    }
    now += PATIENCE_OF_TESTS;
    let changes = until_change(&mut programs, &mut now, Duration::ZERO);
    assert!(
        matches!(changes.as_slice(), [Change::Ready(_)]),
        "{changes:?}"
    );
    assert!(!runs(&id));
    programs.end(now);
}
