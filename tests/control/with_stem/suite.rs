//! Stem's own integration tests, run by its own runner (`tests/stem/run.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use weft_testing::not_run;

use crate::control::weft;

/// Those that Weft does not pass, and why.
const KNOWN: [(&str, &str); 4] = [
    ("test_help_argument", "it wants C tor's own text"),
    ("test_ephemeral_hidden_services_v3", "ADD_ONION"),
    ("test_with_detached_ephemeral_hidden_services", "ADD_ONION"),
    (
        "test_with_ephemeral_hidden_services_v3_client_auth",
        "ADD_ONION",
    ),
];

/// Why Stem leaves tests of its own out. Any other reason, such as a Python package that is not there,
/// fails.
const LEFT_OUT: [(&str, &str); 6] = [
    ("requires online target", "they need the public network"),
    (
        "no connection",
        "they need a control port, which one of the eight configurations lacks",
    ),
    (
        "requires older than 0.4.6.1-alpha",
        "they are about onion services of version 2",
    ),
    ("requires server descriptors", "Weft fetches none"),
    (
        "requires only password auth",
        "they are run in the configuration that has it",
    ),
    (
        "already ran",
        "they are run in the first configuration alone",
    ),
];

/// Starts a node that knows no network but an authority on loopback that is not there: Stem's
/// torrcs name none, and would have it look for the public network.
const WRAPPER: &str = r#"#!/bin/sh
case " $* " in
*" --dump-config "* | *" --list-"* | *" --help "* | *" -h "* | *" --version "* | *" --hash-password"*)
    exec "$STEM_TOR" "$@" ;;
*)
    exec "$STEM_TOR" --DirAuthority "none orport=9 no-v2 v3ident=0123456789ABCDEF0123456789ABCDEF01234567 127.0.0.1:9 0123456789ABCDEF0123456789ABCDEF01234567" \
        --TestingTorNetwork 1 --Address 127.0.0.1 "$@" ;;
esac
"#;

/// The ports of ControlPort, SocksPort and ORPort in Stem's tests, which have them written down.
const PORTS: [u16; 3] = [1111, 1112, 1113];

#[test]
fn stems_own_tests_find_no_more_than_is_known() {
    let named = |variable| env::var_os(variable).map(PathBuf::from);
    let (Some(sources), Some(python)) = (named("WEFT_STEM_SOURCES"), named("WEFT_STEM_PYTHON"))
    else {
        not_run!(
            "WEFT_STEM_SOURCES and WEFT_STEM_PYTHON name no Stem; `cargo xtask test --only stem` gets it"
        );
        return;
    };
    for port in PORTS {
        if let Err(why) = TcpListener::bind(("127.0.0.1", port)) {
            panic!("Stem's tests need port {port}: {why} (are they running somewhere else?)");
        }
    }
    // Tests that run beside the others wait for ever when their module is not among these.
    let mut modules = vec![
        "control",
        "connection",
        "socket",
        "response",
        "process",
        "version",
    ];
    if has_wrap_socket(&python) {
        modules.push("client");
    } else {
        not_run!(
            "test.integ.client of Stem 1.8.2 needs ssl.wrap_socket, which Python 3.12 removed"
        );
    }
    let printed = run(&sources, &python, &modules);
    let passed = printed.matches("[SUCCESS]").count();
    assert!(passed > 600, "only {passed} passed:\n{printed}");
    // `  [RUN_OPEN] test_name (test.integ.…) ... FAIL`
    let failed: BTreeSet<&str> = printed
        .lines()
        .filter(|line| line.ends_with("... FAIL") || line.ends_with("... ERROR"))
        .filter_map(|line| line.trim_start().strip_prefix("[RUN_")?.split(' ').nth(1))
        .collect();
    let known: BTreeSet<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
    assert_eq!(failed, known, "{passed} passed:\n{printed}");
    report_left_out(&printed);
}

fn has_wrap_socket(python: &Path) -> bool {
    let tried = Command::new(python)
        .args(["-c", "import ssl; ssl.wrap_socket"])
        .output();
    tried.expect("Python runs").status.success()
}

/// Runs these modules in all of Stem's configurations; the result is what it prints.
fn run(sources: &Path, python: &Path, modules: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let wrapper = folder.path().join("node");
    fs::write(&wrapper, WRAPPER).expect("the wrapper");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("its mode");
    let config = folder.path().join("stem.cfg");
    let data = folder.path().join("data");
    let text = format!("integ.test_directory {}\ninteg.log\n", data.display());
    fs::write(&config, text).expect("the configuration");
    // Another program to compare with: `tor`.
    let node = env::var_os("WEFT_STEM_TOR").map_or_else(weft, PathBuf::from);
    // Ends all processes of its group when they take too long.
    let output = Command::new("timeout")
        .args(["-k", "5", "400"])
        .arg(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stem/run.py"))
        .args(["--integ", "--verbose", "--targets", "RUN_ALL", "--tor"])
        .arg(&wrapper)
        .args(modules.iter().flat_map(|module| ["--test", module]))
        .current_dir(sources)
        .env("STEM_TOR", node)
        .env("STEM_TEST_CONFIG", &config)
        .output()
        .expect("timeout and python are there");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Reports how many of its own tests Stem leaves out, and why.
fn report_left_out(printed: &str) {
    // `test_name (reason)   [SKIPPED]`
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in printed
        .lines()
        .filter(|line| line.trim_end().ends_with("[SKIPPED]"))
    {
        let reason = line
            .split_once(" (")
            .and_then(|(_, rest)| rest.rsplit_once(')'));
        let (reason, _) = reason.unwrap_or_else(|| panic!("no reason: {line}"));
        *counts.entry(reason).or_default() += 1;
    }
    for (reason, count) in counts {
        let known = LEFT_OUT.iter().find(|(known, _)| *known == reason);
        let (_, why) = known.unwrap_or_else(|| panic!("left out: {reason}\n{printed}"));
        not_run!("{count} of Stem's own tests ({reason}): {why}");
    }
}
