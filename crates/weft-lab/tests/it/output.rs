//! Output that cannot be written: closed pipes, full disks; and input that is no document.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use weft_testing::not_run;

use crate::weft;

/// `network-status-version 3`, forty times, by `xz`.
const XZ: &str = "fd377a585a0000016922de360200210116000000742fe5a3e003e700255d0037194af05bf81775957c766144911b93950590762785e6df666db7278fc84acb219c36b500000000008530526b00013de8070000000974c2fe3e300d8b020000000001595a";

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

/// Its error message, with exit status 1.
fn refused(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let torrc = path(folder.path(), "torrc");
    fs::write(&torrc, "SocksPort auto\n").expect("written");
    for words in [
        // More than a pipe holds: `weft sim synth | head`.
        &["sim", "synth"][..],
        &["sim", "links", "--circuits", "2000"],
        &[
            "sim",
            "selection",
            "--synthetic",
            "500",
            "--resamples",
            "40",
            "--format",
            "json",
        ],
        &["sim", "--help"],
        &["sim", "links", "--help"],
        &["sim", "compromise", "abra", "--help"],
        &["lab", "--help"],
        &["lab", "run", "--help"],
        &["lab", "net", "topology", "eight-pairs"],
        &["--help"],
        &["--version"],
        &["--list-torrc-options"],
        &["--list-deprecated-options"],
        &["--list-modules"],
        &["--hash-password", "secret"],
        &["--dump-config", "full", "-f", &torrc],
        &["--verify-config", "-f", &torrc],
    ] {
        let mut child = Command::new(weft())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft starts");
        // The reader is gone before anything is written, or while it is.
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {error}");
        assert_eq!(error, "", "{words:?}");
    }
}

#[test]
fn an_error_that_nobody_reads_is_an_exit_status_and_no_panic() {
    for words in [
        &["sim", "nothing"][..],
        &["sim", "links", "--circuits", "0"],
        &["sim", "idle", "--consensus", "/nowhere/at-all"],
        &["lab", "nothing"],
        &["lab", "report", "/nowhere/at-all"],
        &["--nosuch", "1"],
    ] {
        let mut child = Command::new(weft())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft starts");
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(1), "{words:?}");
    }
}

#[test]
fn a_full_disk_is_named_with_what_was_being_written() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        not_run!("there is no /dev/full");
        return;
    };
    for words in [
        &["sim", "synth", "--relays", "300"][..],
        &["sim", "links", "--help"],
        &["lab", "--help"],
        &["--list-torrc-options"],
    ] {
        let full = full.try_clone().expect("another handle");
        let error = refused(Command::new(weft()).args(words).stdout(full));
        assert!(
            error.contains("cannot write to standard output: No space left on device"),
            "{words:?}: {error}"
        );
    }
    // A file system that takes no more: no file of this process may be longer than some kilobytes.
    let folder = tempfile::tempdir().expect("a folder");
    let limited = |words: &[&str]| {
        let mut shell = Command::new("sh");
        // SIGXFSZ would end it; ignored, the write fails.
        shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh", weft()]);
        shell.args(words);
        shell
    };
    let file = path(folder.path(), "consensus");
    let error = refused(&mut limited(&[
        "sim", "synth", "--relays", "900", "--out", &file,
    ]));
    let text = format!("{file}: cannot write it: File too large");
    assert!(error.contains(&text), "{error}");
    assert!(!Path::new(&file).exists(), "half a document is left");
    let out = path(folder.path(), "out");
    let words = [
        "sim",
        "idle",
        "--circuits",
        "2000",
        "--repeat",
        "2",
        "--out",
        &out,
    ];
    let error = refused(&mut limited(&words));
    assert!(
        error.contains(&out) && error.contains("File too large"),
        "{error}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_what_was_being_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = hex::decode(XZ).expect("hexadecimal digits");
    let cut = path(folder.path(), "cut-consensus.xz");
    fs::write(&cut, &whole[..60]).expect("written");
    let empty = path(folder.path(), "empty");
    fs::create_dir(&empty).expect("a folder");
    let missing = path(folder.path(), "missing");
    let below_a_file = path(folder.path(), "cut-consensus.xz/below");
    let cut_short = "cannot unpack it as .xz: it ends too early, as a file that was cut short does";
    for words in [
        &["links", "--circuits", "100", "--consensus"][..],
        &["idle", "--circuits", "100", "--consensus"],
        &["compromise", "tunnels", "--clients", "10", "--consensus"],
        &["compromise", "abra", "--consensus"],
        &["figures", "salsa", "--consensus"],
        &["links", "--circuits", "100", "--microdescs"],
    ] {
        for (file, why) in [
            (&cut, cut_short),
            (&empty, "there is no consensus in it"),
            (&missing, "cannot open it: No such file or directory"),
            (&below_a_file, "cannot open it: Not a directory"),
        ] {
            let error = refused(Command::new(weft()).arg("sim").args(words).arg(file));
            let why = match words.contains(&"--microdescs") && *file == empty {
                true => "no file in it is named as CollecTor names microdescriptors",
                false => why,
            };
            assert!(
                error.contains(&format!("{file}: ")) && error.contains(why),
                "{words:?}: {error}"
            );
        }
    }
    for words in [
        &["selection", "--tuples"][..],
        &["compromise", "abra", "--pools"],
    ] {
        for (file, why) in [
            (&empty, "it is a folder, not a file"),
            (&missing, "cannot open it: No such file or directory"),
        ] {
            let error = refused(Command::new(weft()).arg("sim").args(words).arg(file));
            assert!(
                error.contains(&format!("{file}: {why}")),
                "{words:?}: {error}"
            );
        }
    }
}

#[test]
fn a_number_that_makes_no_sense_is_refused_with_its_name_and_what_is_allowed() {
    for (words, name, allowed) in [
        (
            &["compromise", "abra", "--capacity"][..],
            "--capacity <PART>",
            "a number from 0.001 to 1000",
        ),
        (
            &["compromise", "abra", "--circuit-rate"],
            "--circuit-rate <BYTES>",
            "bytes per second from 1 to",
        ),
        (
            &["compromise", "tunnels", "--weight"],
            "--weight <WEIGHT>",
            "a number from 0 to",
        ),
        (
            &["links", "--repeat"],
            "--repeat <N>",
            "a whole number from 1 to 10000",
        ),
        (
            &["links", "--circuits"],
            "--circuits <N>",
            "a whole number from 1 to 100000000",
        ),
        (
            &["links", "--scale"],
            "--scale <PART>",
            "a number from 0.000001 to 1",
        ),
        (
            &["links", "--seed"],
            "--seed <N>",
            "a whole number from 0 to 18446744073709551615",
        ),
        (
            &["idle", "--circuits"],
            "--circuits <N,N>",
            "a whole number from 1 to 2147483648",
        ),
        (
            &["selection", "--handshake"],
            "--handshake <MS>",
            "a number of milliseconds from 0 to 10000",
        ),
        (
            &["synth", "--relays"],
            "--relays <N>",
            "a whole number from 10 to 1000000",
        ),
    ] {
        for value in ["1e300", "NaN", "inf", "-1", "-inf", "99999999999999999999"] {
            let last = [words.last().expect("a word"), "=", value].concat();
            let before = &words[..words.len() - 1];
            let error = refused(Command::new(weft()).arg("sim").args(before).arg(last));
            let start = format!("invalid value '{value}' for '{name}': it must be ");
            assert!(
                error.contains(&start) && error.contains(allowed),
                "{words:?}: {error}"
            );
        }
        // As people write it.
        let error = refused(Command::new(weft()).arg("sim").args(words).arg("-1"));
        assert!(error.contains(allowed), "{words:?}: {error}");
    }
}
