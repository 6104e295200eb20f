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
        self.managed.read_lines(self.now);
        while self.managed.has_more() {
            self.managed.read_lines(self.now);
        }
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
            "stop"
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
fn what_cannot_be_started_is_tried_again_ever_more_rarely() {
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
    assert!(run.managed.has_failed());
    assert_eq!(run.later(1), ["launch"]);
    run.managed.failed_to_launch(run.now, "Text file busy");
    run.done();
    assert!(run.later(1).is_empty());
    assert_eq!(run.later(1), ["launch"]);
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
    run.prints("VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n");
    assert!(run.prints(&"HELLO\n".repeat(1000)).is_empty());
    run.now += Duration::from_secs(60);
    assert!(run.prints("HELLO\n")[0].contains("HELLO"));
}

#[test]
fn what_a_program_logs_is_in_our_log() {
    let mut run = Run::server();
    assert_eq!(
        run.prints("LOG SEVERITY=notice MESSAGE=\"Hm, hm\"\n"),
        ["Managed proxy \"/usr/bin/obfs4proxy\": Hm, hm"]
    );
    assert!(
        run.prints("STATUS TRANSPORT=obfs4 CONNECT=Success\n")
            .is_empty()
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

const READY: &str = "VERSION 1\nSMETHOD obfs4 127.0.0.1:5\nSMETHODS DONE\n";

#[test]
fn transports_that_torrc_does_not_ask_for_are_skipped() {
    let mut run = Run::server();
    let done = run.prints(&READY.replace("SMETHOD ", "SMETHOD evil 127.0.0.1:6\nSMETHOD "));
    assert!(
        done[0].contains("transport 'evil', which torrc does not ask"),
        "{done:?}"
    );
    assert_eq!(done[1..], ["ready"]);
    let names = run.managed.transports().iter().map(|t| t.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["obfs4"]);
}

#[test]
fn a_program_without_a_transport_that_torrc_asks_for_is_started_again_later() {
    let mut run = Run::server();
    let printed =
        "VERSION 1\nSMETHOD evil 127.0.0.1:6\nSMETHOD-ERROR obfs4 in use\nSMETHODS DONE\n";
    for wait in [1, 2, 4] {
        let done = run.prints(printed);
        assert!(done[2].contains("didn't launch any"), "{done:?}");
        assert_eq!(done[3..], ["stop"]);
        assert!(run.managed.transports().is_empty());
        assert!(run.later(wait - 1).is_empty());
        assert_eq!(run.later(1), ["launch"]);
        run.managed.launched(run.now, 8);
    }
    assert_eq!(run.prints(READY), ["ready"]);
}

#[test]
fn many_lines_of_no_use_before_the_configuration_is_over_are_a_failure() {
    for line in [
        "HELLO\n",
        "LOG hm\n",
        "SMETHOD-ERROR obfs4 no\n",
        "SMETHOD evil 1.2.3.4:5\n",
    ] {
        let mut run = Run::server();
        run.prints("VERSION 1\n");
        run.prints(&line.repeat(64));
        assert_eq!(run.managed.state(), State::AcceptingMethods, "{line}");
        let done = run.prints(line);
        assert_eq!(done[done.len() - 2..], [FAILED, "stop"], "{line}");
        assert_eq!(run.managed.state(), State::Broken);
    }
}

#[test]
fn a_turn_reads_some_lines_and_the_next_ones_the_rest() {
    let mut run = Run::server();
    run.prints(READY);
    let lines: String = (0..600)
        .map(|n| format!("LOG SEVERITY=debug MESSAGE={n}\n"))
        .collect();
    let rest = "LOG SEVERITY=notice MESSAGE=last\n";
    run.managed
        .output(run.now, Stream::Output, (lines + rest).as_bytes());
    for left in [345, 89, 0] {
        run.managed.read_lines(run.now);
        assert_eq!(run.managed.waiting.len(), left);
    }
    assert_eq!(run.managed.waiting_bytes, 0);
}

#[test]
fn lines_that_wait_have_a_bound_and_the_program_goes_on() {
    let mut run = Run::server();
    run.prints(READY);
    for _ in 0..100 {
        let flood = "\n".repeat(10_000);
        run.managed
            .output(run.now, Stream::Output, flood.as_bytes());
        assert!(run.managed.waiting_bytes <= MOST_WAITING);
        assert!(run.managed.waiting.len() <= MOST_WAITING / LINE_OVERHEAD);
    }
    let done = run.done();
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0].contains("prints more than we read"));
    run.prints("");
    assert_eq!(run.managed.transports().len(), 1);
    // While it is configuring, what is lost may have been a transport.
    let mut run = Run::server();
    let flood = "LOG SEVERITY=debug MESSAGE=a\n".repeat(10_000);
    assert_eq!(run.prints(&flood)[1..], [FAILED, "stop"]);
    assert!(!run.managed.has_more());
}

#[test]
fn a_program_has_some_lines_in_the_log_and_the_others_are_counted() {
    let mut run = Run::server();
    run.prints(READY);
    let line = "LOG SEVERITY=warning MESSAGE=hm\n";
    assert_eq!(run.prints(&line.repeat(1000)).len(), 64);
    run.now += Duration::from_secs(60);
    assert_eq!(
        run.prints(line),
        ["Managed proxy \"/usr/bin/obfs4proxy\": hm [936 lines before it are not logged]"]
    );
    // So it is with what it writes for people.
    let (mut infos, text) = (0, "hm\n".repeat(1000));
    run.managed.output(run.now, Stream::Error, text.as_bytes());
    while let Some(action) = run.managed.poll() {
        infos += usize::from(matches!(action, Action::Log(_)));
    }
    // One of the protocol was shown before.
    assert_eq!(infos, 63);
}

#[test]
fn what_was_printed_before_the_end_counts() {
    let mut run = Run::server();
    run.managed
        .output(run.now, Stream::Output, READY.as_bytes());
    run.managed.exited(run.now, "3");
    let done = run.done();
    assert_eq!([&done[0], &done[2]], ["ready", "lost"], "{done:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_transports_that_torrc_does_not_ask_for(
        text in "(VERSION 1\n)?((SMETHOD (a[0-9]|obfs4) 1\\.2\\.3\\.4:[0-9]{1,5}|SMETHODS DONE|LOG A=b|[ -~]{0,30})\n){0,90}"
    ) {
        let mut run = Run::server();
        run.prints(&text);
        let asked = |t: &Transport| t.name == "obfs4";
        prop_assert!(run.managed.transports.len() <= 1 && run.managed.transports.iter().all(asked));
        let complete = run.managed.state() == State::Completed;
        prop_assert!(complete || run.managed.transports().is_empty());
    }
}
