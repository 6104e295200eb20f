//! Programs that do as they should, and others.

use proptest::prelude::*;
use weft_log::{SafeLogging, Severity};

use super::*;

fn program(side: Side) -> Program {
    Program {
        side,
        command: vec!["/usr/bin/obfs4proxy".to_owned(), "-v".to_owned()],
        transports: vec!["obfs4".to_owned()],
        by_proxy: false,
    }
}

/// A program, the time, and what it did.
struct Run {
    managed: Managed,
    now: Instant,
}

impl Run {
    fn of(program: Program) -> Self {
        let mut run = Run {
            managed: Managed::new(program),
            now: Instant::now(),
        };
        run.managed.tick(run.now);
        assert_eq!(run.done(), ["launch"]);
        run.managed.launched(run.now, 7);
        run.done();
        run
    }

    fn server() -> Self {
        Self::of(program(Side::Server))
    }

    fn later(&mut self, seconds: u64) -> Vec<String> {
        self.now += Duration::from_secs(seconds);
        self.managed.tick(self.now);
        self.done()
    }

    fn prints(&mut self, text: &str) -> Vec<String> {
        self.managed
            .output(self.now, Stream::Output, text.as_bytes());
        self.done()
    }

    /// All actions; of lines, those that people see.
    fn done(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(action) = self.managed.poll() {
            match action {
                Action::Launch => done.push("launch".to_owned()),
                Action::Stop => done.push("stop".to_owned()),
                Action::Ready => done.push("ready".to_owned()),
                Action::Lost => done.push("lost".to_owned()),
                Action::Event(event) => done.push(format!("{event:?}")),
                Action::Log(line) if line.severity() <= Severity::Notice => {
                    done.push(line.render(SafeLogging::Off));
                }
                Action::Log(_) => {}
            }
        }
        done
    }
}

const FAILED: &str = "Managed proxy at '/usr/bin/obfs4proxy' failed the configuration protocol and will be destroyed.";

#[test]
fn a_program_is_started_and_its_transports_are_ready_when_it_has_printed_all() {
    let mut run = Run::server();
    assert!(run.prints("VERSION 1\n").is_empty());
    assert!(
        run.prints("SMETHOD obfs4 0.0.0.0:443 ARGS:cert=a,iat-mode=0\n")
            .is_empty()
    );
    assert!(run.managed.transports().is_empty());
    assert_eq!(run.prints("SMETHODS DONE\n"), ["ready"]);
    assert_eq!(run.managed.state(), State::Completed);
    let [transport] = run.managed.transports() else {
        panic!("{:?}", run.managed.transports());
    };
    assert_eq!(transport.address, "0.0.0.0:443".parse().unwrap());
}

#[test]
fn a_client_s_program_is_read_alike() {
    let mut run = Run::of(program(Side::Client));
    let printed = "VERSION 1\nCMETHOD obfs4 socks5 127.0.0.1:5\nCMETHODS DONE\n";
    assert_eq!(run.prints(printed), ["ready"]);
    assert_eq!(run.managed.transports().len(), 1);
}

#[test]
fn a_program_that_must_use_a_proxy_has_to_confirm_it() {
    let by_proxy = Program {
        by_proxy: true,
        ..program(Side::Client)
    };
    let mut run = Run::of(by_proxy.clone());
    assert_eq!(
        run.prints("VERSION 1\nPROXY DONE\nCMETHODS DONE\n"),
        [
            "Managed proxy '/usr/bin/obfs4proxy' was spawned successfully, but it didn't launch any pluggable \
             transport listeners!",
            "ready"
        ]
    );
    let mut run = Run::of(by_proxy.clone());
    assert_eq!(
        run.prints("VERSION 1\nCMETHOD obfs4 socks5 127.0.0.1:5\nCMETHODS DONE\n"),
        [
            "Managed proxy '/usr/bin/obfs4proxy' did not configure the specified outgoing proxy and will be terminated.",
            "stop"
        ]
    );
    let mut run = Run::of(by_proxy);
    assert_eq!(
        run.prints("VERSION 1\nPROXY-ERROR SOCKS 4 is not spoken\n"),
        [
            "Managed proxy failed to configure the pluggable transport's outgoing proxy. (SOCKS 4 is not spoken)",
            FAILED,
            "stop"
        ]
    );
    assert_eq!(run.managed.state(), State::Broken);
}

#[test]
fn a_program_that_breaks_the_protocol_is_ended_and_not_started_again() {
    for (printed, why) in [
        ("SMETHODS DONE\n", None),
        ("VERSION 1\nVERSION 1\n", None),
        ("VERSION 2\n", Some("negotiate on version '2'")),
        ("VERSION-ERROR no-version\n", Some("could not pick")),
        ("ENV-ERROR no state\n", Some("(no state)")),
        ("VERSION 1\nSMETHOD obfs4\n", Some("too few arguments")),
        (
            "VERSION 1\nCMETHOD obfs4 socks5 127.0.0.1:5\n",
            Some("other side"),
        ),
        ("VERSION 1\nCMETHODS DONE\n", Some("other side")),
        (
            "VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHOD obfs4 127.0.0.1:6\n",
            Some("twice"),
        ),
    ] {
        let mut run = Run::server();
        let done = run.prints(printed);
        let (last, before) = done.split_last().unwrap();
        assert_eq!(last, "stop", "{printed}");
        let (last, before) = before.split_last().unwrap();
        assert_eq!(last, FAILED, "{printed}");
        match why {
            Some(why) => assert!(before.concat().contains(why), "{printed}: {before:?}"),
            None => assert!(before.is_empty(), "{printed}: {before:?}"),
        }
        run.managed.exited(run.now, "1");
        assert!(run.done().is_empty());
        assert!(run.later(100_000).is_empty());
        assert!(run.prints("VERSION 1\n").is_empty());
        assert_eq!(run.managed.state(), State::Broken);
    }
}

#[test]
fn one_transport_that_fails_leaves_the_others() {
    let mut run = Run::server();
    let printed =
        "VERSION 1\nSMETHOD-ERROR obfs3 in use\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n";
    assert_eq!(
        run.prints(printed),
        [
            "Server managed proxy encountered a method error. (obfs3 in use)",
            "ready"
        ]
    );
}

#[test]
fn a_program_that_prints_nothing_is_ended_after_a_minute_and_started_again() {
    let mut run = Run::server();
    assert!(run.later(59).is_empty());
    let done = run.later(1);
    assert!(done[0].contains("has not finished the configuration protocol in 60 seconds"));
    assert_eq!(done[1..], ["stop"]);
    // That it ends is no news.
    run.managed.exited(run.now, "15");
    assert!(run.done().is_empty());
    assert_eq!(run.later(1), ["launch"]);
    run.managed.launched(run.now, 8);
    assert_eq!(
        run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n"),
        ["ready"]
    );
}

#[test]
fn a_program_that_dies_again_and_again_is_started_ever_more_rarely() {
    let mut run = Run::server();
    let mut waits = Vec::new();
    for _ in 0..12 {
        run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n");
        run.managed.exited(run.now, "2");
        assert_eq!(
            run.done(),
            [
                "Managed proxy \"/usr/bin/obfs4proxy\" process terminated with status code 2",
                "lost"
            ]
        );
        assert!(run.managed.transports().is_empty());
        let mut waited = 1;
        while run.later(1).is_empty() {
            waited += 1;
        }
        waits.push(waited);
        run.managed.launched(run.now, 9);
    }
    assert_eq!(waits[..4], [1, 2, 4, 8]);
    assert_eq!(waits[11], 600);
    // One that ran for long is started again at once.
    run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n");
    run.later(60);
    run.managed.exited(run.now, "2");
    run.done();
    assert_eq!(run.later(1), ["launch"]);
}

#[test]
fn what_cannot_be_started_is_not_tried_again() {
    let mut managed = Managed::new(program(Side::Server));
    let now = Instant::now();
    managed.tick(now);
    assert_eq!(managed.poll(), Some(Action::Launch));
    managed.failed_to_launch(now, "No such file or directory");
    let mut run = Run { managed, now };
    assert_eq!(
        run.done(),
        ["Managed proxy at '/usr/bin/obfs4proxy' failed at launch. (No such file or directory)"]
    );
    assert!(run.later(100_000).is_empty());
}

#[test]
fn lines_without_an_end_break_the_configuration_and_are_ignored_later() {
    let endless = "x".repeat(20_000);
    let mut run = Run::server();
    let done = run.prints(&endless);
    assert!(
        done[0].contains("wrote a line of more than 8192 bytes"),
        "{done:?}"
    );
    assert_eq!(done[1..], [FAILED, "stop"]);
    let mut run = Run::server();
    run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n");
    assert_eq!(run.prints(&endless).len(), 1);
    assert!(run.prints(&endless).is_empty());
    assert_eq!(run.managed.transports().len(), 1);
}

#[test]
fn garbage_is_logged_once_a_minute() {
    let mut run = Run::server();
    assert_eq!(
        run.prints("HELLO\n"),
        ["Unknown line received by managed proxy (HELLO)."]
    );
    assert!(run.prints(&"HELLO\n".repeat(1000)).is_empty());
    run.now += Duration::from_secs(59);
    run.prints("VERSION 1\nSMETHODS DONE\n");
    run.now += Duration::from_secs(1);
    assert!(run.prints("HELLO\n")[0].contains("HELLO"));
}

#[test]
fn what_a_program_logs_is_in_our_log_and_sent_to_controllers() {
    let mut run = Run::server();
    assert_eq!(
        run.prints("LOG SEVERITY=notice MESSAGE=\"Hm, hm\"\n"),
        [
            "Managed proxy \"/usr/bin/obfs4proxy\": Hm, hm",
            "Log(\"PT=/usr/bin/obfs4proxy SEVERITY=notice MESSAGE=\\\"Hm, hm\\\"\")"
        ]
    );
    assert_eq!(
        run.prints("STATUS TRANSPORT=obfs4 CONNECT=Success\n"),
        ["Status(\"PT=/usr/bin/obfs4proxy TRANSPORT=obfs4 CONNECT=Success\")"]
    );
    assert_eq!(
        run.prints("LOG MESSAGE=hm\n"),
        ["Managed proxy \"/usr/bin/obfs4proxy\" wrote a LOG line without SEVERITY: MESSAGE=hm"]
    );
}

#[test]
fn a_program_that_is_stopped_stays_so() {
    let mut run = Run::server();
    run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n");
    run.managed.stop(run.now);
    assert_eq!(run.done(), ["lost", "stop"]);
    run.managed.exited(run.now, "0");
    assert!(run.later(100_000).is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_more_transports_than_the_bound(
        text in "(VERSION 1\n)?((SMETHOD a[0-9]{1,3} 1\\.2\\.3\\.4:[0-9]{1,5}|SMETHODS DONE|LOG A=b|[ -~]{0,30})\n){0,90}"
    ) {
        let mut run = Run::server();
        run.prints(&text);
        prop_assert!(run.managed.transports.len() <= MOST_TRANSPORTS);
        let complete = run.managed.state() == State::Completed;
        prop_assert!(complete || run.managed.transports().is_empty());
    }
}
