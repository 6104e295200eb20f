//! Files installed with the program: a systemd unit, manual pages, completions of shells.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_testing::not_run;

const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// A file of the checkout.
fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn weft(words: &[&str]) -> Output {
    Command::new(WEFT).args(words).output().expect("weft")
}

/// Output of `weft` with these words.
fn printed(words: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = weft(words);
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success() && errors.is_empty(), "{words:?}: {errors}");
    String::from_utf8(stdout).expect("text")
}

/// The unit with the program that was built.
fn unit() -> String {
    let unit = fs::read_to_string(checkout("examples/systemd/weft.service")).expect("the unit");
    unit.replace("/usr/local/bin/weft", WEFT)
}

#[test]
fn systemd_finds_no_fault_in_the_unit() {
    if !is_here("systemd-analyze") {
        not_run!("there is no systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft.service");
    fs::write(&path, unit()).expect("written");
    let analyze = |words: &[&str]| {
        let output = Command::new("systemd-analyze")
            .args(words)
            .arg(&path)
            .output();
        let output = output.expect("systemd-analyze");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    assert_eq!(analyze(&["verify", "--man=no"]), (true, String::new()));
    // Debian's unit for C tor gets more than 60.
    let (is_safe, text) = analyze(&["security", "--offline=yes", "--threshold=20"]);
    assert!(is_safe, "{text}");
}

#[test]
fn the_unit_notifies_and_starts_weft_with_words_that_it_takes() {
    let unit = unit();
    assert!(unit.contains("\nType=notify\n"));
    let folder = tempfile::tempdir().expect("a folder");
    let torrc = folder.path().join("torrc");
    fs::write(&torrc, "ORPort 9001\nExitRelay 0\nContactInfo x\n").expect("written");
    let data = folder.path().join("data");
    let mut commands = 0;
    for line in unit.lines() {
        let Some((_, command)) = line
            .split_once('=')
            .filter(|(key, _)| ["ExecStart", "ExecStartPre"].contains(key))
        else {
            continue;
        };
        let command = command
            .replace("/etc/weft/torrc", &torrc.to_string_lossy())
            .replace("/var/lib/weft", &data.to_string_lossy());
        let mut words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words.remove(0), WEFT, "{line}");
        words.push("--verify-config");
        let text = printed(&words);
        assert!(
            text.ends_with("Configuration was valid\n"),
            "{line}: {text}"
        );
        commands += 1;
    }
    assert_eq!(commands, 2);
    let asks = |line: &str| assert!(unit.contains(line), "{line}");
    // SIGHUP reloads; SIGINT ends with ShutdownWaitLength, which is longer than systemd waits unless it is asked to.
    asks("ExecReload=/bin/kill -HUP $MAINPID\n");
    asks("KillSignal=SIGINT\n");
    asks("LimitNOFILE=65536\n");
    asks("ProtectSystem=strict\n");
}

#[test]
fn every_command_has_a_manual_page_in_which_mandoc_finds_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    printed(&["man", "--dir", pages.to_str().expect("UTF-8")]);
    let mut files: Vec<PathBuf> = fs::read_dir(&pages)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let name = |file: &PathBuf| {
        file.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let names: Vec<String> = files.iter().map(name).collect();
    for page in ["weft.1", "weft-doctor.1", "weft-family-add.1", "weft-man.1"] {
        assert!(names.contains(&page.to_owned()), "{page}: {names:?}");
    }
    assert_eq!(
        printed(&["man", "weft-doctor"]),
        fs::read_to_string(pages.join("weft-doctor.1")).expect("a page")
    );
    let none = weft(&["man", "weft-docter"]);
    let errors = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        !none.status.success() && errors.contains("there is no page weft-docter"),
        "{errors}"
    );

    if !is_here("mandoc") {
        not_run!("there is no mandoc");
        return;
    }
    let lint = Command::new("mandoc")
        .args(["-Tlint", "-Wwarning"])
        .args(&files)
        .output()
        .expect("mandoc");
    let text = String::from_utf8_lossy(&lint.stdout);
    assert!(lint.status.success(), "{text}");
}

/// The script for a shell, in a folder that lives as long as the returned guard.
fn script(shell: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("weft");
    fs::write(&path, printed(&["completions", shell])).expect("written");
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn run(shell: &str, words: &[&str]) -> String {
    let output = Command::new(shell).args(words).output().expect(shell);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{shell}: {errors}"
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Words to which bash completes the last of these words.
fn bash(script: &str, line: &[&str]) -> Vec<String> {
    let code = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        before=; [ $COMP_CWORD -gt 0 ] && before=${COMP_WORDS[COMP_CWORD-1]}
        _weft weft "${COMP_WORDS[COMP_CWORD]}" "$before"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let words = [&["--norc", "-c", code, "bash", script], line].concat();
    run("bash", &words)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_flags_options_and_values() {
    if !is_here("bash") {
        not_run!("there is no bash");
        return;
    }
    let (_folder, script) = script("bash");
    let complete = |line: &[&str]| bash(&script, line);
    assert_eq!(complete(&["weft", "la"]), ["lab"]);
    assert_eq!(complete(&["weft", "--verify"]), ["--verify-config"]);
    assert_eq!(
        complete(&["weft", "--ConnectionThr"]),
        ["--ConnectionThreads"]
    );
    assert_eq!(complete(&["weft", "--dump-config", "s"]), ["short"]);
    assert_eq!(complete(&["weft", "--ClientOnly", ""]), ["0", "1"]);
    assert_eq!(complete(&["weft", "doctor", "--form"]), ["--format"]);
    assert_eq!(
        complete(&["weft", "doctor", "--format", ""]),
        ["text", "json"]
    );
    assert_eq!(complete(&["weft", "family", "a"]), ["add"]);
    let shells = complete(&["weft", "completions", ""]);
    assert!(shells.contains(&"fish".to_owned()), "{shells:?}");
}

#[test]
fn fish_completes_commands_flags_and_options() {
    if !is_here("fish") {
        not_run!("there is no fish");
        return;
    }
    let (folder, script) = script("fish");
    let complete = |line: &str| -> Vec<String> {
        let code = format!("source {script}; complete -C '{line}'");
        let output = Command::new("fish")
            .args(["--no-config", "-c", &code])
            .env("HOME", folder.path())
            .output()
            .expect("fish");
        let text = String::from_utf8(output.stdout).expect("text");
        let words = text.lines().filter_map(|line| line.split('\t').next());
        words.map(str::to_owned).collect()
    };
    assert_eq!(complete("weft doctor --form"), ["--format"]);
    assert_eq!(complete("weft --ConnectionThr"), ["--ConnectionThreads"]);
}

#[test]
fn zsh_takes_the_completions() {
    if !is_here("zsh") {
        not_run!("there is no zsh");
        return;
    }
    let (folder, script) = script("zsh");
    fs::rename(&script, folder.path().join("_weft")).expect("moved");
    let code = "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -d $1/dump; autoload +X _weft; print ${_comps[weft]}";
    let known = run(
        "zsh",
        &[
            "-f",
            "-c",
            code,
            "zsh",
            folder.path().to_str().expect("UTF-8"),
        ],
    );
    assert_eq!(known, "_weft\n");
}

#[test]
fn weft_lab_that_is_missing_or_of_another_version_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("weft");
    fs::copy(WEFT, &alone).expect("copied");
    let refusal = |words: &[&str]| {
        let output = Command::new(&alone).args(words).output().expect("weft");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("text")
    };
    for words in [&["lab", "up"][..], &["sim", "links"], &["lab", "--help"]] {
        let errors = refusal(words);
        let path = folder.path().join("weft-lab");
        assert!(
            errors.contains(&path.to_string_lossy().into_owned())
                && errors.contains("cargo install --path crates/weft-lab"),
            "{errors}"
        );
    }
    // The program beside it gets the words, and this weft's version.
    let lab = folder.path().join("weft-lab");
    fs::write(&lab, "#!/bin/sh\necho \"$WEFT_VERSION $*\"\n").expect("written");
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).expect("its mode");
    for (words, seen) in [
        (&["lab", "up", "--relays", "2"][..], "up --relays 2"),
        (&["bench", "relay"], "relay"),
        (&["sim", "links"], "sim links"),
    ] {
        let output = Command::new(&alone).args(words).output().expect("weft");
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!(text, format!("{} {seen}\n", env!("CARGO_PKG_VERSION")));
    }
}
