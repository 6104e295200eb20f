//! Files installed with weft-lab: manual pages and completions; and the arguments that it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weft_testing::not_run;

const LAB: &str = env!("CARGO_BIN_EXE_weft-lab");

fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Output of a command that succeeds.
fn printed(words: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(LAB).args(words).output().expect("weft-lab");
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success() && errors.is_empty(), "{words:?}: {errors}");
    String::from_utf8(stdout).expect("text")
}

#[test]
fn every_command_has_a_manual_page_in_which_mandoc_finds_no_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    printed(&["man", "--dir", pages.to_str().expect("UTF-8")]);
    let files: Vec<PathBuf> = fs::read_dir(&pages)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    for page in ["weft-lab.1", "weft-lab-up.1", "weft-sim-links.1"] {
        assert!(pages.join(page).is_file(), "{page}: {files:?}");
    }
    assert!(!pages.join("weft-lab-profiled-node.1").exists());
    assert_eq!(
        printed(&["man", "weft-lab-up"]),
        fs::read_to_string(pages.join("weft-lab-up.1")).expect("a page")
    );
    let by_weft = Command::new(crate::weft())
        .args(["man", "weft-lab-up"])
        .output()
        .expect("weft");
    assert_eq!(
        by_weft.stdout,
        printed(&["man", "weft-lab-up"]).into_bytes()
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

#[test]
fn bash_completes_commands_and_options() {
    if !is_here("bash") {
        not_run!("there is no bash");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("weft-lab");
    fs::write(&script, printed(&["completions", "bash"])).expect("written");
    let code = r#"
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        before=; [ $COMP_CWORD -gt 0 ] && before=${COMP_WORDS[COMP_CWORD-1]}
        _weft__lab weft-lab "${COMP_WORDS[COMP_CWORD]}" "$before"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let complete = |line: &[&str]| -> Vec<String> {
        let output = Command::new("bash")
            .args(["--norc", "-c", code, "bash"])
            .arg(&script)
            .args(line)
            .output()
            .expect("bash");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(complete(&["weft-lab", "sel"]), ["selection"]);
    assert_eq!(complete(&["weft-lab", "up", "--auth"]), ["--authority"]);
    assert_eq!(
        complete(&["weft-lab", "up", "--authority", ""]),
        ["weft", "tor"]
    );
    assert_eq!(
        complete(&["weft-lab", "sim", "links", "--circ"]),
        ["--circuits", "--circuits-per-client"]
    );
    // Internal commands are not completed.
    assert_eq!(complete(&["weft-lab", "profiled"]), [""; 0]);
}

#[test]
fn a_weft_of_another_version_is_refused() {
    let output = Command::new(LAB)
        .arg("--help")
        .env("WEFT_VERSION", "0.0.1")
        .output()
        .expect("weft-lab");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("version 0.0.1") && errors.contains("install both of one version"),
        "{errors}"
    );
    let version = concat!("weft-lab ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(printed(&["--version"]), version);
}

#[test]
fn a_weft_lab_without_weft_says_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("weft-lab");
    fs::copy(LAB, &alone).expect("copied");
    let output = Command::new(&alone).arg("up").output().expect("weft-lab");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let weft = folder.path().join("weft");
    let begin = format!("there is no {}: ", weft.display());
    assert!(errors.contains(&begin), "{errors}");
}

#[test]
fn a_program_without_names_of_functions_is_not_profiled() {
    if !is_here("strip") {
        not_run!("there is no strip");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = folder.path().join("weft-lab");
    let strip = Command::new("strip")
        .args(["--strip-all", "-o"])
        .arg(&stripped)
        .arg(LAB)
        .status();
    assert!(strip.expect("strip").success());
    let start = |program: &Path| {
        let socket = folder.path().join("socket");
        let output = Command::new(program)
            .args(["profiled-node", "--socket"])
            .arg(socket)
            .args(["--", "--version"])
            .output()
            .expect("weft-lab");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (is_started, errors) = start(&stripped);
    assert!(
        !is_started && errors.contains("cargo build --profile profiling"),
        "{errors}"
    );
    let (_, errors) = start(Path::new(LAB));
    assert!(errors.contains("a node that is profiled runs"), "{errors}");
}
