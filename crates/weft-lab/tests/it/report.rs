//! `weft lab report`: the report of a run that was killed, comparisons, and folders that are none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const RUN: &str = include_str!("report/run.json");
const PLOT: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>"#;

fn report(place: &Path, args: &[&str]) -> Output {
    Command::new(crate::weft())
        .current_dir(place)
        .args(["lab", "report"])
        .args(args)
        .output()
        .expect("weft runs")
}

fn printed(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn refused(output: &Output, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{error}");
    for one in words {
        assert!(error.contains(one), "{one} in {error}");
    }
}

/// A folder of a run that was killed.
fn folder(place: &Path, name: &str, run: &str) -> PathBuf {
    let folder = place.join(name);
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("run.json"), run).expect("written");
    fs::write(folder.join("figure7.svg"), PLOT).expect("written");
    folder
}

#[test]
fn a_folder_of_a_run_that_was_killed_gets_its_report() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = folder(place.path(), "one", RUN);
    for _ in 0..2 {
        let text = printed(&report(place.path(), &["one"]));
        for words in [
            "PARTIAL: The run was not over",
            "100 ± 5",
            "one/report.html",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }
    let page = fs::read_to_string(folder.join("report.html")).expect("a report");
    for words in [
        "<strong>PARTIAL</strong>",
        "Some &lt;Processor&gt;",
        "data:image/svg+xml;base64,",
        "weft lab throughput --target tor,weft:1 --repetitions 3",
        "12 min 34 s",
    ] {
        assert!(page.contains(words), "{words} in {page}");
    }
}

#[test]
fn runs_are_compared_on_the_terminal_and_in_a_page() {
    let place = tempfile::tempdir().expect("a folder");
    folder(place.path(), "before", RUN);
    let after = RUN
        .replace("[300.0, 310.0, 305.0]", "[400.0, 410.0, 405.0]")
        .replace("Some <Processor>", "Another")
        .replace("\"running\"", "\"complete\"");
    folder(place.path(), "after", &after);
    let text = printed(&report(
        place.path(),
        &["before", "after", "--out", "page.html"],
    ));
    for words in [
        "WARNING: The machines differ",
        "WARNING: before is partial",
        "Another",
        "+32.8 %",
        "better",
        "no clear difference",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let page = fs::read_to_string(place.path().join("page.html")).expect("a page");
    assert!(page.contains("2 runs compared") && page.contains("Some &lt;Processor&gt;"));
    let again = report(place.path(), &["before", "after", "--out", "page.html"]);
    refused(&again, &["page.html", "nothing is overwritten"]);
    printed(&report(place.path(), &["before", "after"]));
    assert!(place.path().join("comparison.html").is_file());
}

#[test]
fn what_cannot_be_reported_is_named_with_what_to_do() {
    let place = tempfile::tempdir().expect("a folder");
    let here = place.path();
    folder(here, "good", RUN);
    folder(here, "other", &RUN.replace("\"throughput\"", "\"hops\""));
    folder(
        here,
        "newer",
        &RUN.replace("\"schema\": 1", "\"schema\": 2"),
    );
    folder(here, "broken", &RUN[..RUN.len() / 2]);
    folder(
        here,
        "outside",
        &RUN.replace("figure7.svg", "../figure7.svg"),
    );
    fs::create_dir(here.join("empty")).expect("a folder");
    for (args, words) in [
        (&["none"][..], &["there is no folder none"][..]),
        (
            &["empty"],
            &["empty is no folder of `weft lab`", "name one"],
        ),
        (&["broken"], &["broken/run.json", "measure again"]),
        (
            &["newer"],
            &["newer/run.json", "schema 2", "use the Weft that wrote it"],
        ),
        (&["outside"], &["outside/run.json", "no name of a file"]),
        (
            &["good", "other"],
            &["other", "compare runs of one experiment"],
        ),
        (&["good", "broken"], &["broken/run.json"]),
        (&["good", "--out", "x.html"], &["--out is for comparisons"]),
        (&[], &["FOLDER"]),
    ] {
        refused(&report(here, args), words);
    }
    assert!(!here.join("comparison.html").exists());
}
