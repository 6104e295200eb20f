//! `weft sim` over several documents and with one repetition: no number claims more than is known.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use weft_testing::{not_run, real_document};

fn sim(words: &[&str]) -> Output {
    Command::new(crate::weft())
        .arg("sim")
        .args(words)
        .output()
        .expect("weft runs")
}

fn printed(words: &[&str]) -> String {
    let output = sim(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(words: &[&str]) -> Value {
    let text = printed(&[words, &["--format", "json"]].concat());
    serde_json::from_str(&text).expect("one JSON object")
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

/// A synthetic consensus of this number of relays.
fn document(folder: &Path, relays: &str) -> String {
    let file = path(folder, &format!("{relays}-consensus"));
    printed(&["synth", "--relays", relays, "--out", &file]);
    file
}

/// The fields of a line of CSV, by the names in its head.
fn field(csv: &str, line: usize, name: &str) -> String {
    let mut lines = csv.lines();
    let head = lines.next().expect("a head").split(',');
    let place = head.clone().position(|one| one == name);
    let place = place.unwrap_or_else(|| panic!("{name} in {csv}"));
    let line = lines.nth(line).expect("a line");
    line.split(',').nth(place).expect("a field").to_owned()
}

#[test]
fn several_documents_have_a_row_each_and_an_interval_of_as_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let (few, many) = (
        document(folder.path(), "100"),
        document(folder.path(), "3000"),
    );
    let out = path(folder.path(), "out");
    let words = [
        "links",
        "--circuits",
        "5000",
        "--repeat",
        "40",
        "--consensus",
        &few,
        &many,
    ];
    let found = json(&[&words[..], &["--out", &out]].concat());
    let number = |value: &Value| value.as_f64().expect("a number");
    let documents = found["documents"].as_array().expect("documents");
    let means: Vec<f64> = documents
        .iter()
        .map(|one| number(&one["shared_percent"]["mean"]))
        .collect();
    let &[one, other] = means.as_slice() else {
        panic!("{found:#}");
    };
    // Fewer relays share far more: repetitions do not show that.
    assert!(one - other > 20.0, "{means:?}");
    for document in documents {
        assert_eq!(document["shared_percent"]["n"], 40, "{document:#}");
        let own = number(&document["shared_percent"]["ci95"]);
        assert!(own > 0.0 && own < 1.0, "{document:#}");
    }
    // Student's t with one degree of freedom is 12.706.
    let expected = 12.706 * (one - other) / 2.0;
    assert!(
        (number(&found["shared_percent_ci95"]) - expected).abs() < 1e-6,
        "{found:#}"
    );
    assert_eq!(found["intervals_over"], "documents");
    for name in ["shared_percent", "guard_middle", "middle_exit"] {
        let one = match name {
            "shared_percent" => &found[name],
            _ => &found[name]["shared_percent"],
        };
        assert_eq!(one["n"], 2, "{name}");
        assert!(
            number(&one["range"][0]) < number(&one["range"][1]),
            "{name}"
        );
    }
    let read = |name: &str| fs::read_to_string(path(Path::new(&out), name)).expect("a file");
    assert_eq!(read("documents.csv").lines().count(), 3);
    let own: f64 = field(&read("documents.csv"), 0, "shared_percent_mean")
        .parse()
        .expect("a number");
    assert!((own - one).abs() < 1e-9);
    assert_eq!(read("runs.csv").lines().count(), 81);
    for document in [&few, &many] {
        let name = format!("{document},");
        assert!(
            read("distribution.csv")
                .lines()
                .any(|line| line.starts_with(&name)),
            "{name}"
        );
    }
    let plot = read("distribution.svg");
    assert!(plot.contains("n = 2 documents"), "{plot}");
    let table = printed(&words);
    for text in [&*few, &*many, "in 2 documents", "n = 2"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    // A row for each has its own interval.
    let rows = table
        .lines()
        .filter(|line| line.contains("-consensus ") && line.contains('±'));
    assert_eq!(rows.count(), 2, "{table}");
}

#[test]
fn one_repetition_claims_nothing_of_its_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = document(folder.path(), "300");
    let out = path(folder.path(), "links");
    let words = [
        "links",
        "--circuits",
        "2000",
        "--repeat",
        "1",
        "--consensus",
        &file,
    ];
    let found = json(&[&words[..], &["--out", &out]].concat());
    assert!(found["shared_percent_mean"].is_number(), "{found:#}");
    for name in ["shared_percent_stddev", "shared_percent_ci95"] {
        assert!(found[name].is_null(), "{name}: {found:#}");
    }
    assert!(
        found["guard_middle"]["shared_percent"]["ci95"].is_null(),
        "{found:#}"
    );
    let read = |name: &str| fs::read_to_string(path(Path::new(&out), name)).expect("a file");
    for name in ["shared_percent_stddev", "shared_percent_ci95"] {
        assert_eq!(field(&read("documents.csv"), 0, name), "");
    }
    assert_eq!(field(&read("distribution.csv"), 0, "percent_stddev"), "");
    assert!(!read("distribution.svg").contains("hiskers"));
    let table = printed(&words);
    assert!(
        !table.contains('±') && !table.contains("deviation"),
        "{table}"
    );
    let both = printed(&[&words[..], &["--model", "full"]].concat());
    assert!(
        !both.contains('±') && both.contains("simple model"),
        "{both}"
    );

    let words = [
        "idle",
        "--circuits",
        "500,900",
        "--repeat",
        "1",
        "--consensus",
        &file,
    ];
    let found = json(&words);
    let point = &found["documents"][0]["report"]["points"][1];
    assert!(point["idle"]["mean"].is_number(), "{point:#}");
    assert!(
        point["idle"]["stddev"].is_null() && point["idle"]["ci95"].is_null(),
        "{point:#}"
    );
    let table = printed(&words);
    assert!(!table.contains('±'), "{table}");
    let several = printed(&[
        "idle",
        "--circuits",
        "500",
        "--repeat",
        "3",
        "--consensus",
        &file,
    ]);
    assert!(several.contains(" ± "), "{several}");

    // One group of clients, which share their adversaries.
    let words = [
        "compromise",
        "tunnels",
        "--clients",
        "40",
        "--circuits",
        "2",
        "--consensus",
        &file,
    ];
    let found = json(&words);
    let row = &found["table_iii"][0];
    assert!(
        row["ci95_percent"].is_null() && row["counted_percent"].is_number(),
        "{row:#}"
    );
    let table = printed(&words);
    assert!(!table.contains('±'), "{table}");
}

#[test]
fn what_is_about_one_document_takes_none_of_several_by_chance() {
    let folder = tempfile::tempdir().expect("a folder");
    document(folder.path(), "100");
    document(folder.path(), "200");
    let here = folder.path().to_string_lossy().into_owned();
    for words in [
        &["compromise", "tunnels", "--clients", "10", "--consensus"][..],
        &["compromise", "abra", "--seconds", "10", "--consensus"],
    ] {
        let refused = sim(&[words, &[&*here]].concat());
        let error = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(
            error.contains(&here) && error.contains("it holds 2 documents"),
            "{error}"
        );
    }
}

#[test]
fn microdescriptors_of_no_relay_are_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = document(folder.path(), "300");
    let other = path(folder.path(), "microdescs");
    fs::write(&other, "onion-key\nntor-onion-key qnjz\np accept 80\n").expect("written");
    for model in ["simple", "full"] {
        let words = [
            "links",
            "--circuits",
            "100",
            "--model",
            model,
            "--consensus",
            &file,
        ];
        let refused = sim(&[&words[..], &["--microdescs", &other]].concat());
        let error = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(1), "{error}");
        let text = "0 of 300 relays have a microdescriptor in these files, which hold 1: ";
        assert!(
            error.contains(text) && error.contains(&file),
            "{model}: {error}"
        );
    }
    let real = |name: &str| real_document(name).map(|path| path.to_string_lossy().into_owned());
    let (Some(consensus), Some(of_2018), Some(of_2019)) = (
        real("consensus/2019-12-15-13-00-00-consensus-microdesc.xz"),
        real("microdescs/2018-07-04-11-06-18-microdescs-a808497d.xz"),
        real("microdescs/2019-12-14-21-31-11-microdescs-4e2fa46b.xz"),
    ) else {
        not_run!("consensuses and microdescriptors of 2018 and 2019 are not in ../shared/data");
        return;
    };
    let words = [
        "links",
        "--circuits",
        "100",
        "--exits",
        "web",
        "--consensus",
        &consensus,
    ];
    let refused = sim(&[&words[..], &["--microdescs", &of_2018]].concat());
    let error = String::from_utf8(refused.stderr).expect("text");
    assert!(!refused.status.success(), "{error}");
    let text = format!("{consensus}: 2 of 6,345 relays have a microdescriptor in these files");
    assert!(
        error.contains(&text) && error.contains("they are of another time"),
        "{error}"
    );
    // Most are there, and how many are not is a warning.
    let some = sim(&[&words[..], &["--microdescs", &of_2019]].concat());
    let warning = String::from_utf8(some.stderr).expect("text");
    assert!(some.status.success(), "{warning}");
    assert_eq!(
        warning
            .matches(" relays of 2019-12-15 13:00:00 have a microdescriptor")
            .count(),
        1,
        "{warning}"
    );
}
