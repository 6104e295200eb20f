//! Plots of `weft sim` and `weft lab`: for screens and for papers, drawn again, and on a disk that is full.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn weft(words: &str, more: &[&Path]) -> Output {
    Command::new(crate::weft())
        .args(words.split(' '))
        .args(more)
        .output()
        .unwrap()
}

fn errors(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn done(run: &Output) {
    assert!(run.status.success(), "{}", errors(run));
}

/// Names in a folder that begin so, sorted.
fn names(folder: &Path, beginning: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(beginning)).collect();
    names.sort();
    names
}

const LINKS: &str = "sim links --circuits 5000 --repeat 3";
const IDLE: &str = "sim idle --repeat 3";
const OF_SCREEN: [&str; 3] = [
    "distribution.figure.json",
    "distribution.png",
    "distribution.svg",
];
const OF_PAPER: [&str; 5] = [
    "distribution.caption.txt",
    "distribution.figure.json",
    "distribution.pdf",
    "distribution.png",
    "distribution.svg",
];

/// SVG, PNG and PDF need nothing that a new machine lacks: the environment has no program and no font.
#[test]
fn a_figure_for_a_paper_has_its_words_beside_it() {
    let place = tempfile::tempdir().unwrap();
    let (screen, paper) = (place.path().join("screen"), place.path().join("paper"));
    for (folder, style) in [
        (&screen, [].as_slice()),
        (&paper, &["--style", "paper", "--width-mm", "100"]),
    ] {
        let run = Command::new(crate::weft())
            .args(LINKS.split(' '))
            .args(style)
            .arg("--out")
            .arg(folder)
            .env_clear()
            .output()
            .unwrap();
        done(&run);
        assert_eq!(errors(&run), "");
    }
    assert_eq!(names(&screen, "distribution."), names_with(&OF_SCREEN));
    assert_eq!(names(&paper, "distribution."), names_with(&OF_PAPER));

    let of = |folder: &Path| fs::read_to_string(folder.join("distribution.svg")).unwrap();
    let title = "How many circuits a link has";
    let whiskers = "whiskers: 95 % confidence interval, n = 3 repetitions";
    let (screen, drawn) = (of(&screen), of(&paper));
    assert!(
        screen.contains(title) && screen.contains("seed 1."),
        "{screen}"
    );
    assert!(screen.contains(whiskers), "{screen}");
    assert!(
        !drawn.contains(title) && !drawn.contains("seed 1."),
        "{drawn}"
    );
    assert!(drawn.contains(whiskers), "{drawn}");
    assert!(drawn.contains("width=\"100mm\""), "{drawn}");
    let caption = fs::read_to_string(paper.join("distribution.caption.txt")).unwrap();
    for words in [
        title,
        "Whiskers: 95 % confidence interval, n = 3 repetitions.",
        "The vertical axis is logarithmic.",
        "seed 1.",
    ] {
        assert!(caption.contains(words), "{words}: {caption}");
    }
    assert!(
        fs::read(paper.join("distribution.pdf"))
            .unwrap()
            .starts_with(b"%PDF-")
    );
    // 100 mm at 600 dots per inch.
    let png = fs::read(paper.join("distribution.png")).unwrap();
    assert_eq!(png[16..20], 2363_u32.to_be_bytes());
}

/// The files of a plot beside its table, sorted.
fn names_with(known: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    names.push("distribution.csv".to_owned());
    names.sort();
    names
}

#[test]
fn one_repetition_has_no_whiskers() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("one");
    done(&weft(
        "sim links --circuits 5000 --repeat 1 --style paper --out",
        &[&folder],
    ));
    for name in ["distribution.svg", "distribution.caption.txt"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!text.to_lowercase().contains("whiskers"), "{name}: {text}");
    }
}

#[test]
fn a_style_that_nothing_is_drawn_in_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("none");
    for (words, error) in [
        ("sim links --style paper", "--out"),
        ("sim links --width-mm 84 --out", "--style paper"),
        ("sim links --style paper --width-mm 0 --out", "--width-mm"),
        (
            "sim links --style paper --width-mm 1e300 --out",
            "--width-mm",
        ),
        ("sim links --style paper --width-mm NaN --out", "--width-mm"),
        ("sim links --style poster --out", "--style"),
        ("lab run none.toml --width-mm 84 --out", "--style paper"),
        (
            "lab throughput --style paper --seed 2 --plots",
            "cannot be used with",
        ),
    ] {
        let more: &[&Path] = if words.ends_with("paper") {
            &[]
        } else {
            &[&folder]
        };
        let run = weft(words, more);
        assert!(!run.status.success(), "{words}");
        assert!(errors(&run).contains(error), "{words}: {}", errors(&run));
        assert!(!folder.exists(), "{words}");
    }
}

/// A file that would be larger than the limit fails in the middle of a write, as on a full disk.
#[test]
fn a_disk_that_is_full_leaves_no_half_of_a_figure() {
    let place = tempfile::tempdir().unwrap();
    for (bytes, file, whole) in [
        (19 << 10, "idle.svg", [].as_slice()),
        (60 << 10, "idle.png", &["idle.svg"]),
    ] {
        let folder = place.path().join(file);
        let script = format!(
            "ulimit -f {}; trap '' XFSZ; exec \"$0\" \"$@\"",
            bytes / 512
        );
        let run = Command::new("sh")
            .args(["-c", &script, crate::weft()])
            .args(IDLE.split(' '))
            .arg("--out")
            .arg(&folder)
            .output()
            .unwrap();
        assert!(!run.status.success(), "{file}");
        let error = errors(&run);
        let path = folder.join(file);
        assert!(
            error.contains(&format!("writing {}", path.display())),
            "{error}"
        );
        let mut left = names(&folder, "idle.");
        left.retain(|name| name != "idle.csv");
        assert_eq!(left, whole, "{error}");
    }
}

#[test]
fn the_plots_of_a_run_are_drawn_again_for_a_paper() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    let scenario =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios/lossy-link.toml");
    done(&weft("lab run --out", &[&folder, &scenario]));
    let svg = |name: &str| fs::read_to_string(folder.join(format!("{name}.svg"))).unwrap();
    let title = "Circuits of clients";
    let first = svg("circuits");
    assert!(first.contains(title), "{first}");

    let redraw = |style: &str| weft(&format!("lab report --style {style}"), &[&folder]);
    done(&redraw("paper --width-mm 177"));
    assert!(!svg("circuits").contains(title), "{}", svg("circuits"));
    assert!(
        svg("circuits").contains("width=\"177mm\""),
        "{}",
        svg("circuits")
    );
    let page = || fs::read_to_string(folder.join("report.html")).unwrap();
    for words in [title, "circuits.pdf", "circuits.figure.json"] {
        assert!(page().contains(words), "{words}");
    }
    // Without the option plots stay as they are.
    done(&weft("lab report", &[&folder]));
    assert!(svg("circuits").contains("177mm"), "{}", svg("circuits"));
    done(&redraw("screen"));
    assert_eq!(svg("circuits"), first);
    assert!(!page().contains("circuits.pdf"));
    assert!(!folder.join("circuits.caption.txt").exists());

    let both = weft("lab report --style paper", &[&folder, &folder]);
    assert!(
        !both.status.success() && errors(&both).contains("--style"),
        "{}",
        errors(&both)
    );
    for damage in ["{\"figure\":{}}", "{", "\0"] {
        fs::write(folder.join("circuits.figure.json"), damage).unwrap();
        let run = redraw("paper");
        assert!(!run.status.success());
        let error = errors(&run);
        assert!(
            error.contains("circuits.figure.json") && error.contains("no plot's data"),
            "{error}"
        );
    }
    fs::remove_file(folder.join("circuits.figure.json")).unwrap();
    let error = errors(&redraw("paper"));
    assert!(error.contains("circuits.figure.json is missing"), "{error}");
}
