//! Reports of a small run whose every text is hostile, comparisons with known numbers, and broken files.

use std::fs;
use std::path::Path;

use super::html::escape;
use super::*;
use crate::machine::{Machine, Versions};

/// Text that a hostile file could have in any place.
const HOSTILE: &str = "</td><script src=\"http://example.com/x\">'&\u{7}";

fn run() -> Run {
    let mut table = Table::new(
        "Streams",
        ["arm", "scenario"],
        [
            Metric::more("goodput", "Mbit/s"),
            Metric::less("last byte", "ms"),
        ],
    )
    .note("Ten megabytes each.");
    table.push(
        ["tor", "quiet"],
        [
            Values::samples([9.0, 10.0, 11.0]),
            Values::mean(2000.0, 50.0, 10),
        ],
    );
    table.push(["weft", "quiet"], [Values::one(20.0)]);
    Run {
        schema: SCHEMA,
        experiment: "count".to_owned(),
        title: "Counting".to_owned(),
        question: "How far does it count?".to_owned(),
        started_at: "2026-01-02T03:04:05Z".to_owned(),
        seconds: 200.0,
        ending: Ending::Complete,
        passed: true,
        command: "weft lab count --to 3".to_owned(),
        settings: vec![Setting {
            name: "to".to_owned(),
            value: "3".to_owned(),
            is_default: false,
        }],
        seed: Some(1),
        machine: Machine {
            cpu: "Some Processor".to_owned(),
            ..Machine::default()
        },
        versions: Versions::default(),
        notes: vec!["A note.".to_owned()],
        tables: vec![table],
        plots: vec![Plot {
            file: "one.svg".to_owned(),
            caption: "What it shows.".to_owned(),
        }],
        files: vec!["raw.csv".to_owned()],
    }
}

fn hostile() -> Run {
    let text = || HOSTILE.to_owned();
    let mut run = run();
    run.experiment = text();
    run.title = text();
    run.question = text();
    run.started_at = text();
    run.command = text();
    run.settings[0].name = text();
    run.settings[0].value = text();
    run.machine.cpu = text();
    run.machine.kernel = text();
    run.machine.governor = Some(text());
    run.machine.cpu_flags = vec![text()];
    run.machine.load_average_before = text();
    run.versions.weft = Some(text());
    run.versions.tor = Some(text());
    run.versions.commit = Some(text());
    run.notes = vec![text()];
    run.plots[0].caption = text();
    run.plots[0].file = text();
    run.files = vec![text()];
    let table = &mut run.tables[0];
    table.title = text();
    table.note = text();
    table.labels[0] = text();
    table.metrics[0].name = text();
    table.metrics[0].unit = text();
    table.rows[0].labels[0] = text();
    run
}

/// Fails if tags do not nest, or one is not among those that reports have.
fn check_html(page: &str) {
    const VOID: [&str; 2] = ["meta", "img"];
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        assert!(
            open.last() == Some(&"style") || !before.contains('>'),
            "a bare > in {before:?}"
        );
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[1..end];
        rest = &tag[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes what is open");
            continue;
        }
        let name = inside.split([' ', '\n']).next().unwrap_or_default();
        let known = [
            "html",
            "head",
            "title",
            "style",
            "body",
            "main",
            "header",
            "footer",
            "p",
            "h1",
            "h2",
            "h3",
            "dl",
            "div",
            "dt",
            "dd",
            "strong",
            "span",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "ul",
            "li",
            "a",
            "pre",
            "code",
            "figure",
            "figcaption",
        ];
        assert!(known.contains(&name) || VOID.contains(&name), "<{name}>");
        assert_eq!(inside.matches('"').count() % 2, 0, "quotes in {inside}");
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
}

/// Fails if a browser would load something.
fn check_self_contained(page: &str) {
    for attribute in ["src=\"", "href=\""] {
        for (at, _) in page.match_indices(attribute) {
            let value = &page[at + attribute.len()..];
            let value = &value[..value.find('"').expect("it ends")];
            let is_here = match attribute {
                "src=\"" => value.starts_with("data:image/svg+xml;base64,"),
                _ => !value.contains([':', '/']) || value.contains("&lt;"),
            };
            assert!(is_here, "{attribute}{value}");
        }
    }
    for word in ["<script", "<link", "<iframe", "@import", "url("] {
        assert!(!page.contains(word), "{word}");
    }
}

fn folder_with_plot() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
    fs::write(folder.path().join("one.svg"), svg).expect("written");
    folder
}

#[test]
fn a_report_is_one_valid_page_that_loads_nothing() {
    let folder = folder_with_plot();
    let page = run().page(folder.path());
    check_html(&page);
    check_self_contained(&page);
    for words in [
        "<h1>Counting</h1>",
        "How far does it count?",
        "<strong>COMPLETE</strong>",
        "3 min 20 s",
        "10 <span class=\"interval\">± 2.5</span>",
        "n 3, 9 to 11",
        "2000 <span class=\"interval\">± 50</span>",
        "data:image/svg+xml;base64,",
        "weft lab count --to 3",
        "<a href=\"raw.csv\">",
        "Some Processor",
    ] {
        assert!(page.contains(words), "{words} in {page}");
    }
    // The plot's own script is no part of the page.
    assert!(!page.contains("alert"));
}

#[test]
fn every_text_is_escaped() {
    let nowhere = Path::new("/nonexistent");
    let page = hostile().page(nowhere);
    check_html(&page);
    check_self_contained(&page);
    assert!(page.contains(&escape(HOSTILE)));
    let named = |name: &str| Named {
        name: name.to_owned(),
        run: hostile(),
    };
    let mut other = named(HOSTILE);
    other.run.settings[0].value += "x";
    let compared = Comparison::of(vec![named("a"), other]).expect("of one experiment");
    let page = compared.page();
    check_html(&page);
    check_self_contained(&page);
    assert!(!hostile().text().contains('\u{7}'), "the bell rings");
    assert!(!compared.text().contains('\u{7}'));
}

#[test]
fn the_banner_shows_what_is_partial_or_missed() {
    let banner = |ending, passed| {
        let mut run = run();
        (run.ending, run.passed) = (ending, passed);
        run.page(Path::new("/nonexistent"))
    };
    for ending in [Ending::Running, Ending::Stopped, Ending::Incomplete] {
        assert!(banner(ending, false).contains("<strong>PARTIAL</strong>"));
    }
    assert!(banner(Ending::Complete, false).contains("<strong>BAR MISSED</strong>"));
    let mut stopped = run();
    stopped.ending = Ending::Stopped;
    assert!(stopped.text().contains("PARTIAL"));
}

#[test]
fn differences_are_ratios_of_means_with_intervals() {
    let base = Values::samples([9.0, 10.0, 11.0]);
    // Twice as much, and as much scatter: each relative variance of the mean is (1/√3/10)² = 1/300, so that
    // Welch's freedom is 4 and the interval of the logarithm 2.776·√(2/300).
    let twice = Values::samples([18.0, 20.0, 22.0]);
    let found = change(&base, &twice, Better::More).expect("a change");
    let half = 2.776 * (2.0f64 / 300.0).sqrt();
    let (low, high) = found.interval.expect("repetitions");
    assert!((found.percent - 100.0).abs() < 1e-9);
    assert!(
        (low - (2.0 * (-half).exp() - 1.0) * 100.0).abs() < 1e-6,
        "{low}"
    );
    assert!(
        (high - (2.0 * half.exp() - 1.0) * 100.0).abs() < 1e-6,
        "{high}"
    );
    assert_eq!(found.verdict, Verdict::Better);
    let verdict = |base: &Values, other: &Values, better| {
        change(base, other, better).expect("a change").verdict
    };
    assert_eq!(verdict(&base, &twice, Better::Less), Verdict::Worse);
    assert_eq!(verdict(&base, &twice, Better::Neither), Verdict::Different);
    assert_eq!(verdict(&twice, &base, Better::Less), Verdict::Better);
    assert_eq!(verdict(&base, &base, Better::More), Verdict::NoClear);
    // A mean whose samples are not there is the same as they.
    let known = twice.spread().expect("numbers");
    let known = Values::mean(known.mean, known.ci95.expect("repetitions"), known.n);
    let same = change(&base, &known, Better::More).expect("a change");
    assert!((same.interval.expect("repetitions").0 - low).abs() < 1e-9);
}

#[test]
fn without_repetitions_there_is_no_interval_and_without_numbers_no_difference() {
    let (one, two) = (Values::one(10.0), Values::samples([5.0, 5.0]));
    let found = change(&one, &two, Better::Less).expect("a change");
    assert_eq!(
        (found.percent, found.interval, found.verdict),
        (-50.0, None, Verdict::Unknown)
    );
    let exact = change(&two, &two, Better::Less).expect("a change");
    assert_eq!(exact.interval, Some((0.0, 0.0)));
    for nothing in [Values::None, Values::one(0.0), Values::one(-1.0)] {
        assert_eq!(change(&one, &nothing, Better::More), None);
        assert_eq!(change(&nothing, &one, Better::More), None);
    }
}

#[test]
fn what_differs_comes_first_and_other_machines_are_a_warning() {
    let mut other = run();
    other.machine.cpu = "Another".to_owned();
    other.versions.tor = Some("Tor 2".to_owned());
    other.settings[0].value = "4".to_owned();
    other.ending = Ending::Stopped;
    // It has a row that the first has not, and lacks one.
    other.tables[0].rows[1].labels[0] = "arti".to_owned();
    let named = |name: &str, run: Run| Named {
        name: name.to_owned(),
        run,
    };
    let compared = Comparison::of(vec![named("a", run()), named("b", other)]).expect("two runs");
    assert_eq!(compared.warnings.len(), 2, "{:?}", compared.warnings);
    let what: Vec<&str> = compared.differing.iter().map(|one| &*one.what).collect();
    assert_eq!(what, ["processor", "C tor", "to"]);
    let rows: Vec<(&str, bool, bool)> = compared.tables[0]
        .rows
        .iter()
        .map(|row| {
            (
                row.labels[0].as_str(),
                row.cells[0].is_some(),
                row.cells[1].is_some(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("tor", true, true),
            ("tor", true, true),
            ("weft", true, false),
            ("arti", false, true)
        ]
    );
    let text = compared.text();
    let at = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("{words} in {text}"))
    };
    assert!(at("WARNING: The machines differ") < at("Another"));
    assert!(at("Another") < at("goodput, Mbit/s"), "{text}");
    let same = Comparison::of(vec![named("a", run()), named("b", run())]).expect("two runs");
    assert!(same.warnings.is_empty() && same.differing.is_empty());
}

#[test]
fn runs_of_other_experiments_are_not_compared() {
    let mut other = run();
    other.experiment = "hops".to_owned();
    let named = |name: &str, run: Run| Named {
        name: name.to_owned(),
        run,
    };
    let error = Comparison::of(vec![named("a", run()), named("b", other)]).expect_err("two");
    let error = error.to_string();
    assert!(
        error.contains("a is a run of count, and b one of hops")
            && error.contains("compare runs of one"),
        "{error}"
    );
}

#[test]
fn a_run_is_read_as_it_was_written() {
    let text = crate::experiment::json(&run()).expect("JSON");
    assert_eq!(Run::parse(text.as_bytes()).expect("the same shape"), run());
}

#[test]
fn broken_bytes_are_refused_with_what_to_do() {
    let text = crate::experiment::json(&run()).expect("JSON");
    let refused = |bytes: &[u8], words: &str| {
        let error = format!("{:#}", Run::parse(bytes).expect_err(words));
        assert!(error.contains(words), "{words} in {error}");
    };
    refused(b"", "restore it, or measure again");
    refused(b"\xff\xfe{}", "restore it, or measure again");
    refused(b"[1]", "restore it, or measure again");
    refused(&vec![b'['; 1 << 20], "restore it, or measure again");
    refused(br#"{"schema": 7}"#, "schema 7, and this Weft reads 1");
    refused(br#"{"schema": 1}"#, "restore it, or measure again");
    // Every cut of it.
    for end in (0..text.len() - 2).filter(|end| text.is_char_boundary(*end)) {
        assert!(Run::parse(&text.as_bytes()[..end]).is_err(), "{end}");
    }
    for (from, to, words) in [
        ("9.0", "1e999", "number out of range"),
        ("\"one.svg\"", "\"../../etc/passwd\"", "no name of a file"),
        ("\"raw.csv\"", "\"javascript:x\"", "no name of a file"),
        ("\"tor\",", "", "as many cells"),
        ("\"ci95\": 50.0", "\"ci95\": -1.0", "no number"),
        ("\"n\": 10", "\"n\": 0", "no number"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        refused(text.replacen(from, to, 1).as_bytes(), words);
    }
}

#[test]
fn what_would_make_a_page_without_bounds_is_refused() {
    let refused = |change: &dyn Fn(&mut Table), words: &str| {
        let mut run = run();
        change(&mut run.tables[0]);
        let bytes = serde_json::to_vec(&run).expect("JSON");
        let error = format!("{:#}", Run::parse(&bytes).expect_err(words));
        assert!(error.contains(words), "{words} in {error}");
    };
    let row = run().tables[0].rows[0].clone();
    refused(
        &|table| table.rows = vec![row.clone(); 100_000],
        "cells in all",
    );
    refused(
        &|table| table.labels = vec![String::new(); 101],
        "100 columns",
    );
    refused(
        &|table| table.metrics[0].name = "x".repeat(101),
        "a head of over",
    );
    refused(
        &|table| table.rows[0].labels[0] = "x".repeat(4_001),
        "a title or label",
    );
    // A long label that is allowed does not widen every line of the text.
    let mut long = run();
    long.tables[0].rows[0].labels[0] = "x".repeat(4_000);
    assert!(long.text().lines().all(|line| line.chars().count() < 400));
}

#[test]
fn a_folder_that_is_none_of_ours_is_named() {
    let place = tempfile::tempdir().expect("a folder");
    let refused = |folder: &Path, words: &str| {
        let error = format!("{:#}", Run::read(folder).expect_err(words));
        assert!(error.contains(words), "{words} in {error}");
    };
    refused(&place.path().join("none"), "there is no folder");
    refused(place.path(), "is no folder of `weft lab`");
    fs::write(place.path().join("results.json"), "{}").expect("written");
    refused(place.path(), "measure again");
    fs::create_dir(place.path().join(FILE)).expect("a folder in its place");
    refused(place.path(), "is no file");
    fs::remove_dir(place.path().join(FILE)).expect("removed");
    fs::write(place.path().join(FILE), "{").expect("written");
    refused(place.path(), "run.json cannot be used");
}

#[test]
fn raw_files_have_every_number() {
    let mut run = run();
    run.tables[0].rows[0].labels[1] = "a \"b\", c".to_owned();
    let csv = csv(&run);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "table,arm,scenario,metric,unit,sample,value,ci95,n"
    );
    assert_eq!(lines[1], r#"Streams,tor,"a ""b"", c",goodput,Mbit/s,1,9,,"#);
    assert_eq!(
        lines[4],
        r#"Streams,tor,"a ""b"", c",last byte,ms,,2000,50,10"#
    );
    assert_eq!(lines.len(), 6);
    let jsonl = jsonl(&run).expect("JSON");
    let first: serde_json::Value =
        serde_json::from_str(jsonl.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["labels"]["arm"], "tor");
    assert_eq!(first["value"], 9.0);
    assert_eq!(jsonl.lines().count(), 5);
}

#[test]
fn numbers_have_the_digits_that_people_read() {
    for (number, words) in [
        (0.0, "0"),
        (0.1234, "0.123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (1234.5, "1234"),
        (1_234_567.0, "1,234,567"),
        (-12_345.0, "-12,345"),
        (0.000_12, "1.20e-4"),
    ] {
        assert_eq!(text::like(number, number), words);
    }
    assert_eq!(
        text::moment("2026-01-02T03:04:05.678Z"),
        "2026-01-02 03:04:05 UTC"
    );
    assert_eq!(text::moment("x"), "x");
    assert_eq!(text::duration(59.6), "1 min 0 s");
    assert_eq!(text::duration(3700.0), "1 h 1 min");
}
