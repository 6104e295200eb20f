//! `weft lab soak`, briefly: what it writes, and what it refuses.

use std::path::Path;
use std::process::{Command, Output};

use weft_lab::attack::soak::results::{Soak, Tide};

fn soak(args: &[&str], folder: &Path) -> Output {
    Command::new(crate::weft())
        .args(["lab", "soak"])
        .args(args)
        .arg("--out")
        .arg(folder)
        .output()
        .unwrap()
}

#[test]
fn a_soak_watches_flood_and_ebb_and_keeps_what_it_saw() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("soak");
    // Too short for a verdict: relays may keep what has lost its user for a minute.
    let short = "--minutes 0.4 --cycle 12 --ebb 5 --every 1 --attackers 2 --mbits 2 --honest 1";
    let args: Vec<&str> = short.split(' ').collect();
    let output = soak(&args, &folder);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("| ebb after |"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for name in ["results.md", "samples.csv", "soak.svg"] {
        assert!(folder.join(name).is_file(), "{name}");
    }
    let text = std::fs::read_to_string(folder.join("results.json")).unwrap();
    let soak: Soak = serde_json::from_str(&text).unwrap();
    assert!(soak.finished);
    assert_eq!(soak.ebbs.len(), 2, "{printed}");
    for tide in [Tide::Before, Tide::Flood, Tide::Ebb] {
        assert!(soak.samples.iter().any(|one| one.tide == tide), "{tide:?}");
    }
    assert!(
        soak.samples
            .iter()
            .all(|one| one.rss_bytes > 0 && one.files > 0)
    );
    assert!(soak.samples.iter().any(|one| one.halves > 0), "nobody came");
    assert!(soak.deeds.attacks > 0 && soak.deeds.visits > 0 && soak.deeds.asked > 0);
    assert!(
        !soak.complaints.keys().any(|line| line.contains("panicked")),
        "{:#?}",
        soak.complaints
    );
    // Two ebbs are no trend: that is no success.
    assert_eq!(output.status.code(), Some(1), "{printed}");
}

#[test]
fn what_makes_no_soak_is_refused_before_anything_starts() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("soak");
    for (args, words) in [
        ("--minutes 0", "it must be a number from 0.01 to 10080"),
        ("--cycle 60 --ebb 60", "leaves nothing of a cycle"),
        ("--minutes 1 --cycle 120", "less than one cycle"),
        (
            "--mbits 1e300",
            "it must be a number of Mbit/s from 0.001 to 10000",
        ),
    ] {
        let output = soak(&args.split(' ').collect::<Vec<_>>(), &folder);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains(words), "{args}: {printed}");
        assert!(!output.status.success(), "{args}");
        assert!(!folder.exists(), "{args}");
    }
}
