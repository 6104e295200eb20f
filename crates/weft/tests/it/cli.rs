//! Output of `weft`, its stream, and exit statuses.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::running::run_in;

struct Bench {
    folder: tempfile::TempDir,
}

/// Result of a run.
#[derive(Debug)]
struct Run {
    status: Option<i32>,
    out: String,
    err: String,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a torrc that keeps its data here.
    fn torrc(&self, text: &str) -> PathBuf {
        let path = self.path("torrc");
        fs::write(
            &path,
            format!("DataDirectory {}\n{text}", self.path("data").display()),
        )
        .unwrap();
        path
    }

    fn run(&self, words: &[&dyn AsRef<OsStr>]) -> Run {
        self.run_with(words, "")
    }

    /// Runs it with standard output and standard error in one place, as `2>&1` and services do.
    fn run_into_one(&self, words: &[&dyn AsRef<OsStr>]) -> String {
        let both = self.path("both");
        let file = fs::File::create(&both).unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_weft"))
            .args(words.iter().map(AsRef::as_ref))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(1));
        fs::read_to_string(both).unwrap()
    }

    fn run_with(&self, words: &[&dyn AsRef<OsStr>], input: &str) -> Run {
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.args(words.iter().map(AsRef::as_ref));
        let output = run_in(self.folder.path(), &mut weft, input);
        Run {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

#[test]
fn what_is_wrong_with_one_of_several_torrcs_is_reported_with_its_line_and_nothing_is_started() {
    let bench = Bench::new();
    let torrc = |name: &str, text: &str| {
        let data = bench.path(&format!("{name}.data"));
        let text = format!("DataDirectory {}\n{text}", data.display());
        fs::write(bench.path(name), text).unwrap();
    };
    let relay = |port: u16| {
        format!("ORPort 127.0.0.1:{port}\nContactInfo x\nExitRelay 0\nNickname r{port}\n")
    };
    torrc("a", &format!("{}NumCPUs 2\n", relay(9001)));
    torrc("b", &relay(9002));
    let both: [&dyn AsRef<OsStr>; 4] = [&"-f", &"a", &"-f", &"b"];
    let run = bench.run(&[&both[..], &[&"--verify-config"]].concat());
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.out.ends_with("Configuration was valid\n"), "{run:?}");
    for (name, text, why) in [
        ("b", "ORPrt 9002\n".to_owned(), "b:2: "),
        ("b", "ORPrt 9002\n".to_owned(), "did you mean ORPort?"),
        (
            "b",
            "SocksPort 0\n".to_owned(),
            "b: there is neither an ORPort",
        ),
        (
            "b",
            relay(9001),
            "port: ORPort 127.0.0.1:9001 (a:2) and ORPort 127.0.0.1:9001 (b:2)",
        ),
        (
            "b",
            format!("{}NumCPUs 3\n", relay(9002)),
            "b:6: NumCPUs is of the whole process, and a:6 sets it to something else",
        ),
        (
            "b",
            format!(
                "DataDirectory {}\n{}",
                bench.path("a.data").display(),
                relay(9002)
            ),
            "two identities cannot have the same directory: DataDirectory ",
        ),
    ] {
        torrc(name, &text);
        for more in [&[] as &[&dyn AsRef<OsStr>], &[&"--verify-config"]] {
            let run = bench.run(&[&both[..], more].concat());
            assert_eq!(run.status, Some(1), "{run:?}");
            assert!(run.err.contains(why), "{why}: {run:?}");
            assert!(!bench.path("a.data").exists(), "{run:?}");
        }
    }
    torrc("b", &relay(9002));
    for (words, why) in [
        (
            &[&"--list-fingerprint" as &dyn AsRef<OsStr>] as &[_],
            "name one torrc",
        ),
        (&[&"-f" as &dyn AsRef<OsStr>, &"-"], "standard input"),
    ] {
        let run = bench.run(&[&both[..], words].concat());
        assert_eq!(run.status, Some(1), "{run:?}");
        assert!(run.err.contains(why), "{run:?}");
    }
}

const QUIET: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";

#[test]
fn a_good_torrc_is_reported_as_valid() {
    let bench = Bench::new();
    let torrc = bench.torrc(QUIET);
    let run = bench.run(&[&"-f", &torrc, &"--verify-config"]);
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""));
    assert!(run.out.ends_with("Configuration was valid\n"), "{run:?}");
    assert!(
        run.out.contains("[notice] Read configuration file"),
        "{run:?}"
    );
    let run = bench.run(&[&"-f", &torrc, &"--verify-config", &"--hush"]);
    assert_eq!(
        (run.status, run.out.as_str(), run.err.as_str()),
        (Some(0), "", "")
    );
    // Nothing was made.
    assert!(!bench.path("data").exists());
}

#[test]
fn what_a_start_would_fail_at_is_found_by_verify_config_in_the_same_words() {
    let bench = Bench::new();
    for (lines, words) in [
        ("SocksPort 0\n", "neither an ORPort nor a SocksPort"),
        ("User no-such-user\n", "no-such-user not found"),
        ("SocksPort 9050\nControlPort 9050\n", "are the same port"),
        ("ConnLimit 1000000000\n", "ConnLimit"),
        ("UseBridges 1\n", "you must specify at least one bridge"),
        (
            "Sandbox 1\nServerTransportPlugin obfs4 exec /bin/x\n",
            "Managed proxies are not compatible with Sandbox mode",
        ),
    ] {
        let torrc = bench.torrc(lines);
        let checked = bench.run(&[&"-f", &torrc, &"--verify-config"]);
        let started = bench.run(&[&"-f", &torrc]);
        assert_eq!(
            (checked.status, started.status),
            (Some(1), Some(1)),
            "{lines}"
        );
        assert!(checked.err.contains(words), "{lines}: {}", checked.err);
        assert_eq!(checked.err, started.err, "{lines}");
        assert!(!bench.path("data").exists(), "{lines}");
    }
}

#[test]
fn everything_wrong_with_a_torrc_is_printed_and_nothing_started() {
    let bench = Bench::new();
    let torrc = bench.torrc("Nicknme a\nORPort many\nExitRelay 2\n");
    let run = bench.run(&[&"-f", &torrc]);
    assert_eq!(run.status, Some(1));
    let name = torrc.display();
    for line in [
        format!("weft: {name}:2: unknown option \"Nicknme\"; did you mean Nickname?"),
        format!("weft: {name}:4: ExitRelay: \"2\" is neither 0 nor 1 nor auto"),
        format!("weft: {name}:3: ORPort many: \"many\" is neither a port nor an address and port"),
        "weft: nothing was started: correct the above first".to_owned(),
    ] {
        assert!(
            run.err.lines().any(|printed| printed == line),
            "{line}\n{}",
            run.err
        );
    }
    assert!(!bench.path("data").exists());
}

#[test]
fn a_misspelt_flag_is_refused_with_its_neighbour() {
    let run = Bench::new().run(&[&"--verify-confg"]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.err
            .contains("unknown flag --verify-confg; did you mean --verify-config?"),
        "{run:?}"
    );
}

#[test]
fn torrc_is_read_from_standard_input() {
    let run = Bench::new().run_with(&[&"-f", &"-", &"--dump-config", &"short"], "Nickname a\n");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "Nickname a\n"));
}

#[test]
fn without_f_torrc_is_looked_for_where_c_tor_looks() {
    // The order of the two is tested where the first can be chosen (weft-config's `tests.rs`);
    // Debian's C tor has the first.
    let bench = Bench::new();
    let run = bench.run(&[&"--verify-config"]);
    let printed = format!("{}{}", run.out, run.err);
    assert!(printed.contains("\"/etc/tor/torrc\""), "{run:?}");
}

#[test]
fn a_missing_torrc_is_an_error_unless_it_may_be_missing() {
    let bench = Bench::new();
    let run = bench.run(&[&"-f", &"none", &"--verify-config"]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.err.contains("cannot read configuration file \"none\""),
        "{run:?}"
    );
    for flag in ["--ignore-missing-torrc", "--allow-missing-torrc"] {
        assert_eq!(
            bench
                .run(&[&"-f", &"none", &"--verify-config", &flag])
                .status,
            Some(0)
        );
    }
}

#[test]
fn a_command_line_overrides_torrc() {
    let bench = Bench::new();
    let torrc = bench.torrc("Nickname a\nLog notice stdout\n");
    let words: [&dyn AsRef<OsStr>; 8] = [
        &"-f",
        &torrc,
        &"--Nickname",
        &"b",
        &"--+Log",
        &"warn stderr",
        &"--dump-config",
        &"short",
    ];
    let run = bench.run(&words);
    assert!(
        run.out
            .ends_with("Log notice stdout\nLog warn stderr\nNickname b\n"),
        "{run:?}"
    );
}

#[test]
fn a_fingerprint_is_tors() {
    let bench = Bench::new();
    let torrc = bench.torrc(QUIET);
    for kind in ["rsa", "ed25519"] {
        let weft = bench.run(&[&"-f", &torrc, &"--list-fingerprint", &kind, &"--quiet"]);
        assert_eq!((weft.status, weft.err.as_str()), (Some(0), ""), "{weft:?}");
        let tor = Command::new("tor")
            .args([
                "--list-fingerprint",
                kind,
                "--quiet",
                "--defaults-torrc",
                "/nonexistent",
                "-f",
            ])
            .arg(&torrc)
            .output()
            .expect("tor is needed: install it");
        assert_eq!(weft.out, String::from_utf8(tor.stdout).unwrap());
        assert!(weft.out.starts_with("Unnamed "), "{weft:?}");
    }
    let client = bench.torrc("");
    let run = bench.run(&[&"-f", &client, &"--list-fingerprint"]);
    assert_eq!(run.status, Some(1));
    assert!(run.err.contains("set ORPort"), "{run:?}");
}

#[test]
fn a_log_that_cannot_be_written_stops_the_start() {
    let bench = Bench::new();
    let torrc = bench.torrc(&format!("{QUIET}Log notice file /dev/full\n"));
    let run = bench.run(&[&"-f", &torrc]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.err.contains("/dev/full") && run.err.contains("No space left"),
        "{run:?}"
    );
}

#[test]
fn help_version_and_lists_need_no_torrc() {
    let bench = Bench::new();
    for (flag, holds) in [
        ("--help", "Usage: weft"),
        ("-h", "--verify-config"),
        (
            "--version",
            concat!("Weft version ", env!("CARGO_PKG_VERSION")),
        ),
        ("--list-torrc-options", "\nConnectionThreads\n"),
        ("--list-deprecated-options", "HTTPProxy\n"),
        (
            "--list-modules",
            "relay: yes\ndirauth: yes\ndircache: yes\npow: no\n",
        ),
    ] {
        let run = bench.run(&[&"-f", &"none", &flag]);
        assert_eq!((run.status, run.err.as_str()), (Some(0), ""), "{flag}");
        assert!(run.out.contains(holds), "{flag}: {}", run.out);
    }
}

/// Lines that hold this.
fn lines_with<'a>(text: &'a str, part: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(part)).collect()
}

#[test]
fn an_error_is_said_once_in_each_place() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let empty = bench.torrc("");
    let port_in_use: [&dyn AsRef<OsStr>; 4] = [&"-f", &empty, &"--SocksPort", &port];
    let misspelt: [&dyn AsRef<OsStr>; 4] = [&"-f", &empty, &"--Nicknme", &"a"];
    let no_port: [&dyn AsRef<OsStr>; 4] = [&"-f", &empty, &"--SocksPort", &"many"];
    let no_user: [&dyn AsRef<OsStr>; 4] = [&"-f", &empty, &"--User", &"no-such-user"];
    let full: [&dyn AsRef<OsStr>; 4] = [&"-f", &empty, &"--Log", &"notice file /dev/full"];
    let cannot_listen = format!("could not listen on 127.0.0.1:{port}");
    let cases: [(&[&dyn AsRef<OsStr>], &str); 7] = [
        (&[&"--nosuch"], "nosuch"),
        (&[&"-f", &"no-such-file"], "no-such-file"),
        (&misspelt, "Nicknme"),
        (&no_port, "many"),
        (&port_in_use, &cannot_listen),
        (&no_user, "no-such-user"),
        (&full, "/dev/full"),
    ];
    for (words, part) in cases {
        let both = bench.run_into_one(words);
        assert_eq!(lines_with(&both, part).len(), 1, "{part}: {both}");
        assert!(!both.contains("weft: "), "{part}: {both}");
        assert_eq!(lines_with(&both, "[err]").len(), 1, "{part}: {both}");
        // Programs read the log on standard output, people standard error.
        let run = bench.run(words);
        assert_eq!(run.status, Some(1), "{run:?}");
        assert_eq!(lines_with(&run.out, part).len(), 1, "{part}: {}", run.out);
        assert_eq!(lines_with(&run.err, part).len(), 1, "{part}: {}", run.err);
    }
    // If the log is silent there, the error goes to standard error.
    let quiet = bench.run_into_one(&[&"--nosuch", &"--quiet"]);
    assert!(
        quiet.starts_with("weft: command line: unknown flag"),
        "{quiet}"
    );
}

#[test]
fn a_file_that_is_no_torrc_is_a_few_lines() {
    let bench = Bench::new();
    let both = bench.run_into_one(&[&"-f", &"/bin/ls"]);
    assert!(both.contains("this file is no torrc"), "{both}");
    assert!(both.lines().count() <= 5, "{both}");
    let text = bench.path("text");
    let words: String = (0..500).map(|number| format!("word{number} x\n")).collect();
    fs::write(&text, words).unwrap();
    let run = bench.run(&[&"-f", &text]);
    assert_eq!(
        lines_with(&run.err, "unknown option").len(),
        4,
        "{}",
        run.err
    );
    assert!(
        run.err
            .contains("and 496 more errors: is this file a torrc?"),
        "{}",
        run.err
    );
}

#[test]
fn the_first_line_of_every_log_is_the_version() {
    let bench = Bench::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let torrc = bench.torrc(&format!(
        "SocksPort {port}\nLog warn file {}\nLog notice stderr\n",
        bench.path("log").display()
    ));
    let run = bench.run(&[&"-f", &torrc]);
    assert_eq!(run.status, Some(1));
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let version = concat!("[notice] Weft ", env!("CARGO_PKG_VERSION"), " ");
    for text in [&run.out, &run.err, &log] {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.contains(version), "{text}");
        assert_eq!(lines_with(text, version).len(), 1, "{text}");
    }
}
