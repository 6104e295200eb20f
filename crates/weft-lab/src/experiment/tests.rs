//! An experiment that measures nothing: what is kept, what is printed, and when.

use std::sync::atomic::Ordering;

use super::*;
use crate::report::{Metric, Values};

/// Counts to a number.
struct Count {
    to: u32,
    /// Stops itself at this number, as Ctrl-C would.
    stop_at: Option<u32>,
    /// Fails at this number.
    fail_at: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct CountArgs {
    #[arg(long)]
    to: u32,
    #[arg(long)]
    stop_at: Option<u32>,
    #[arg(long)]
    fail_at: Option<u32>,
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

#[derive(Serialize)]
struct Counted {
    started_at: String,
    finished: bool,
    numbers: Vec<u32>,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.numbers)
    }
}

impl Experiment for Count {
    const FOLDER: &'static str = "count";
    type Args = CountArgs;
    type Report = Counted;

    fn prepare(args: &CountArgs) -> Result<Prepared<Count>> {
        if args.list {
            return Ok(Prepared::Text("1, 2, 3\n".to_owned()));
        }
        ensure!(args.to > 0, "there is nothing to count");
        let count = Count {
            to: args.to,
            stop_at: args.stop_at,
            fail_at: args.fail_at,
        };
        Ok(Prepared::Run(count, args.folder.output()))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Counted> {
        let mut counted = Counted {
            started_at: session.started_at().to_owned(),
            finished: false,
            numbers: Vec::new(),
        };
        let stop = session.stop();
        for turn in turns(1, self.to as usize) {
            let number = turn.subject as u32 + 1;
            if self.stop_at == Some(number) {
                stop.flag().store(true, Ordering::SeqCst);
            }
            if stop.is_requested() {
                return Ok(counted);
            }
            ensure!(self.fail_at != Some(number), "a node died");
            session.progress(&Progress {
                done: turn.done(),
                step: format!("number {number} of {}", turn.of),
                detail: String::new(),
            });
            counted.numbers.push(number);
            counted.finished = turn.number == turn.of;
            session.keep(&counted)?;
        }
        Ok(counted)
    }
}

impl Report for Counted {
    fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.finished
    }

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::new("Numbers", ["what"], [Metric::plain("number", "")]);
        let numbers = self.numbers.iter().copied().map(f64::from);
        table.push(["all"], [Values::samples(numbers)]);
        vec![table]
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("seed".to_owned(), "7".to_owned())]
    }
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Watcher for Lines {
    fn progress(&mut self, progress: &Progress) {
        self.0.push(progress.to_string());
    }

    fn note(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
}

fn count(args: &[&str], watcher: &mut dyn Watcher) -> Result<Conclusion> {
    let command = <CountArgs as clap::Args>::augment_args(clap::Command::new("count"));
    let matches = command.try_get_matches_from(["count"].iter().chain(args))?;
    let args = <CountArgs as clap::FromArgMatches>::from_arg_matches(&matches)?;
    perform::<Count>(&args, &Stop::default(), watcher)
}

#[test]
fn results_are_kept_and_printed() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("results");
    let out = folder.to_str().expect("UTF-8");
    let mut lines = Lines::default();
    let conclusion = count(&["--to", "2", "--out", out], &mut lines).expect("it counts");
    assert!(conclusion.is_passed);
    assert!(conclusion.text.starts_with("[1, 2]\n"), "{conclusion:?}");
    assert!(conclusion.text.contains(out), "{conclusion:?}");
    assert_eq!(lines.0, ["number 1 of 2", "number 2 of 2"]);
    let text = fs::read_to_string(folder.join("results.json")).expect("results");
    assert!(text.contains("\"finished\": true"), "{text}");
    let run = Run::read(&folder).expect("a run");
    assert_eq!(
        (run.experiment.as_str(), run.ending),
        ("count", Ending::Complete)
    );
    assert_eq!((run.passed, run.seed), (true, Some(7)));
    assert_eq!(
        run.files,
        ["results.json", "raw.jsonl", "raw.csv", "run.json"]
    );
    let page = fs::read_to_string(folder.join("report.html")).expect("a report");
    assert!(page.contains("<strong>COMPLETE</strong>"), "{page}");
    let raw = fs::read_to_string(folder.join("raw.csv")).expect("numbers");
    assert!(raw.ends_with("Numbers,all,number,,2,2,,\n"), "{raw}");
    let again = count(&["--to", "2", "--out", out], &mut ()).expect_err("it is there");
    assert!(
        again.to_string().contains("nothing is overwritten"),
        "{again}"
    );
}

#[test]
fn an_early_end_keeps_what_there_is_and_does_not_pass() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("results");
    let out = folder.to_str().expect("UTF-8");
    let args = [
        "--to",
        "9",
        "--stop-at",
        "3",
        "--format",
        "json",
        "--out",
        out,
    ];
    let conclusion = count(&args, &mut ()).expect("two numbers");
    assert!(!conclusion.is_passed);
    let printed: serde_json::Value = serde_json::from_str(&conclusion.text).expect("JSON");
    assert_eq!(printed["numbers"], serde_json::json!([1, 2]));
    assert!(folder.join("results.json").is_file());
    let run = Run::read(&folder).expect("a run");
    assert_eq!((run.ending, run.passed), (Ending::Stopped, false));
    let page = fs::read_to_string(folder.join("report.html")).expect("a report");
    assert!(page.contains("<strong>PARTIAL</strong>"), "{page}");
}

#[test]
fn an_early_end_is_named_under_the_table() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("results");
    let out = folder.to_str().expect("UTF-8");
    let args = ["--to", "9", "--stop-at", "3", "--out", out];
    let conclusion = count(&args, &mut ()).expect("two numbers");
    assert!(
        conclusion.text.contains("PARTIAL: The run was stopped"),
        "{conclusion:?}"
    );
}

#[test]
fn a_failure_names_the_folder_of_what_was_measured() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("results");
    let out = folder.to_str().expect("UTF-8");
    let error =
        count(&["--to", "9", "--fail-at", "3", "--out", out], &mut ()).expect_err("it fails");
    let error = format!("{error:#}");
    assert!(
        error.contains(out) && error.contains("a node died"),
        "{error}"
    );
    assert_eq!(Run::read(&folder).expect("a run").ending, Ending::Running);
    fs::remove_dir_all(&folder).expect("removed");
    let error =
        count(&["--to", "9", "--fail-at", "1", "--out", out], &mut ()).expect_err("it fails");
    assert!(
        !format!("{error:#}").contains(out) && !folder.exists(),
        "{error:#}"
    );
}

#[test]
fn what_is_kept_before_the_end_is_partial() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("results");
    let session = Session {
        about: ["count", "Counting", ""],
        started_at: String::new(),
        since: Instant::now(),
        machine: OnceCell::new(),
        versions: RefCell::new(None),
        plots: RefCell::new(Vec::new()),
        stop: Stop::default(),
        folder: Some(Folder::create(&path).expect("a new one")),
        watcher: &mut (),
    };
    let counted = Counted {
        started_at: String::new(),
        finished: false,
        numbers: vec![1],
    };
    session.keep(&counted).expect("kept");
    assert_eq!(Run::read(&path).expect("a run").ending, Ending::Running);
}

#[test]
fn without_a_measurement_there_is_no_folder() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("results");
    let out = folder.to_str().expect("UTF-8");
    for (args, words) in [
        (["--to", "0", "--out", out].as_slice(), "nothing to count"),
        (
            &["--to", "1", "--stop-at", "1", "--out", out],
            "stopped before anything was measured",
        ),
    ] {
        let error = count(args, &mut ()).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
        assert!(!folder.exists(), "{args:?}");
    }
    let list = count(&["--to", "1", "--list", "--out", out], &mut ()).expect("a list");
    assert_eq!(list.text, "1, 2, 3\n");
    assert!(!folder.exists());
}

#[test]
fn every_subject_has_its_turn_and_rotation_changes_the_first() {
    let subjects = |turns: &mut dyn Iterator<Item = Turn>| -> Vec<(u32, usize)> {
        turns.map(|turn| (turn.repetition, turn.subject)).collect()
    };
    assert_eq!(
        subjects(&mut turns(2, 3)),
        [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    );
    assert_eq!(
        subjects(&mut rotating_turns(2, 3)),
        [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 0)]
    );
    let numbers: Vec<usize> = turns(2, 3).map(|turn| turn.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(turns(5, 0).count(), 0);
}
