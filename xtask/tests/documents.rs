//! The pages of the book that lead through the code name only what exists.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages whose every word in backticks is a path, a command or an identifier, and a folder of such pages.
const PAGES: [&str; 2] = ["docs/architecture.md", "docs/testing.md"];
const FOLDER: &str = "docs/architecture";

/// The page whose rows end with the tests of their bounds.
const SENDERS: &str = "docs/senders.md";

/// Where sources are, from the root of the checkout.
const SOURCES: [&str; 8] = [
    "crates", "bench", "examples", "fuzz", "packages", "tests", "xtask", "docs",
];

/// What no source of ours has: a folder beside the checkout, and a check of cargo-deny.
const ELSEWHERE: [&str; 2] = ["../shared/data", "advisories"];

/// What the checkout has: paths, and for each identifier the sources that it occurs in.
#[derive(Default)]
struct Checkout {
    /// Files and folders, from the root, folders with a slash behind.
    paths: Vec<String>,
    /// Sources by number.
    sources: Vec<String>,
    /// Numbers of sources by identifier, in ascending order.
    sources_of: HashMap<String, Vec<usize>>,
    /// Tests, each with its source's path before it: `crates/weft-core/tests/it/streams.rs::name`.
    tests: Vec<String>,
}

impl Checkout {
    fn read() -> Self {
        let root = root();
        let mut checkout = Self::default();
        for folder in SOURCES {
            checkout.add_folder(&root, Path::new(folder));
        }
        for file in fs::read_dir(&root).unwrap() {
            let name = file.unwrap().file_name();
            checkout.paths.push(name.to_string_lossy().into_owned());
        }
        checkout
    }

    fn add_folder(&mut self, root: &Path, folder: &Path) {
        self.paths.push(format!("{}/", folder.display()));
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if !entry.file_type().unwrap().is_dir() {
                self.add_file(root, &path);
            } else if !path.ends_with("target") && !path.ends_with("corpus") {
                self.add_folder(root, &path);
            }
        }
    }

    fn add_file(&mut self, root: &Path, path: &Path) {
        self.paths.push(path.display().to_string());
        if path.extension().is_none_or(|end| end != "rs") {
            return;
        }
        let text = fs::read_to_string(root.join(path)).unwrap();
        let tests = tests(&text);
        self.tests
            .extend(tests.map(|test| format!("{}::{test}", path.display())));
        let number = self.sources.len();
        self.sources.push(path.display().to_string());
        let mut add = |name: &str| match self.sources_of.get_mut(name) {
            Some(sources) if sources.last() == Some(&number) => {}
            Some(sources) => sources.push(number),
            None => drop(self.sources_of.insert(name.to_owned(), vec![number])),
        };
        let module = match path.ends_with("mod.rs") {
            true => path.parent().unwrap().file_name(),
            false => path.file_stem(),
        };
        add(&module.unwrap().to_string_lossy());
        for line in text.lines() {
            let code = line.split_once("//").map_or(line, |(code, _)| code);
            code.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
                .for_each(&mut add);
        }
    }

    /// Whether a path from the root, from `crates/` or from a folder below is there.
    fn has_path(&self, name: &str) -> bool {
        self.paths.iter().any(|path| is_path(path, name))
    }

    /// Sources that have all segments of an identifier.
    fn sources_of<'a>(&'a self, name: &str) -> Vec<&'a str> {
        let mut segments = name.split("::").filter(|name| !name.is_empty());
        let numbers = |name: &str| self.sources_of.get(name).map_or(&[][..], Vec::as_slice);
        let first = segments.next().map_or(&[][..], numbers);
        let rest: Vec<_> = segments.map(numbers).collect();
        let common = first
            .iter()
            .filter(|number| rest.iter().all(|other| other.binary_search(number).is_ok()));
        common
            .filter_map(|number| self.sources.get(*number))
            .map(String::as_str)
            .collect()
    }

    /// Whether what stands in backticks exists.
    fn has(&self, quoted: &str) -> bool {
        is_command(quoted)
            || ELSEWHERE.contains(&quoted)
            || self.has_path(quoted)
            || (!looks_like_path(quoted)
                && identifiers(quoted).all(|name| !self.sources_of(name).is_empty()))
    }

    /// Tests of this name, which may have its source's before it (`tunnels::name`), or the fuzz target (`fuzz/NAME`).
    fn tests_of(&self, name: &str) -> usize {
        if let Some(target) = name.strip_prefix("fuzz/") {
            return usize::from(self.has_path(&format!("fuzz/fuzz_targets/{target}.rs")));
        }
        let name = match name.split_once("::") {
            Some((source, test)) => format!("/{source}.rs::{test}"),
            None => format!("::{name}"),
        };
        let tests = self.tests.iter();
        tests.filter(|test| test.ends_with(&name)).count()
    }

    /// Whether a source of this path has the identifier.
    fn has_in(&self, path: &str, quoted: &str) -> bool {
        let has = |name: &str| {
            let mut sources = self.sources_of(name).into_iter();
            sources.any(|source| is_path(source, path) || source.contains(&format!("/{path}")))
        };
        identifiers(quoted).all(has)
    }
}

/// The names of the tests in a source: functions behind an attribute that ends with `test`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[") {
            is_test |= ["#[test]", "#[tokio::test"]
                .iter()
                .any(|start| line.starts_with(start));
            return None;
        }
        let function = line.strip_prefix("async ").unwrap_or(line);
        let name = function.strip_prefix("fn ")?.split('(').next();
        name.filter(|_| std::mem::take(&mut is_test))
    })
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().to_owned()
}

/// Whether `name` is the end of `path`, cut at a slash.
fn is_path(path: &str, name: &str) -> bool {
    let path = match name.ends_with('/') {
        true => path,
        false => path.trim_end_matches('/'),
    };
    let before = path.strip_suffix(name);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// The pages, from the root.
fn pages() -> Vec<String> {
    let folder = fs::read_dir(root().join(FOLDER)).unwrap();
    let names = folder.map(|page| page.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = PAGES.map(str::to_owned).to_vec();
    pages.extend(names.map(|name| format!("{FOLDER}/{name}")));
    pages.sort();
    pages
}

fn looks_like_path(quoted: &str) -> bool {
    quoted.contains('/') || quoted.ends_with(".rs") || quoted.ends_with(".md")
}

fn is_command(quoted: &str) -> bool {
    let commands = ["cargo ", "RUSTFLAGS=", "weft "];
    commands.iter().any(|command| quoted.starts_with(command))
}

/// The identifiers in a word of the page: `Box<Cell>` has two, `Link::half` is one.
fn identifiers(quoted: &str) -> impl Iterator<Item = &str> {
    quoted
        .split(|char: char| !(char.is_ascii_alphanumeric() || "_:".contains(char)))
        .filter(|name| name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_'))
}

/// A word of a page that names something.
#[derive(Debug, PartialEq)]
struct Name<'a> {
    line: usize,
    text: String,
    /// What stands between the name before it and this one.
    joint: &'a str,
}

/// What stands in backticks on a page, and the names of crates and types in its drawings.
fn names(page: &str) -> Vec<Name<'_>> {
    let (mut names, mut line, mut is_drawing) = (Vec::new(), 1, false);
    let mut rest = page;
    while let Some((joint, from)) = rest.find('`').map(|at| rest.split_at(at)) {
        if is_drawing {
            for (number, drawn) in joint.lines().enumerate() {
                let words =
                    drawn.split(|char: char| !(char.is_ascii_alphanumeric() || char == '-'));
                let words = words.filter(|word| word.starts_with("weft-") || is_camel_case(word));
                names.extend(words.map(|word| Name {
                    line: line + number,
                    text: word.to_owned(),
                    joint: "",
                }));
            }
        }
        line += joint.matches('\n').count();
        if let Some(behind) = from.strip_prefix("```") {
            is_drawing = !is_drawing;
            rest = behind;
            continue;
        }
        rest = from.split_at(1).1;
        if !is_drawing {
            let (text, behind) = rest.split_once('`').unwrap_or((rest, ""));
            names.push(Name {
                line,
                text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                joint,
            });
            line += text.matches('\n').count();
            rest = behind;
        }
    }
    names
}

fn is_camel_case(word: &str) -> bool {
    let is_type = word.starts_with(|char: char| char.is_ascii_uppercase());
    let mut pairs = word.as_bytes().windows(2);
    is_type && pairs.any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

#[test]
fn pages_name_only_what_exists() {
    let checkout = Checkout::read();
    let mut missing = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let names = names(&text);
        for name in names.iter().filter(|name| !checkout.has(&name.text)) {
            missing.push(format!("{page}:{}: {}", name.line, name.text));
        }
        // `name` (`path` and `path`, `name`: the name is in that file.
        for (before, name) in names.iter().zip(names.iter().skip(1)) {
            let (path, of) = match name.joint.split_whitespace().collect::<String>().as_str() {
                "(" => (&name.text, before),
                "," => (&before.text, name),
                _ => continue,
            };
            let is_source = path.ends_with(".rs") && !looks_like_path(&of.text);
            if is_source && checkout.has(&of.text) && !checkout.has_in(path, &of.text) {
                missing.push(format!("{page}:{}: {} in {path}", of.line, of.text));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in the checkout:\n{}",
        missing.join("\n")
    );
}

#[test]
fn the_tests_of_what_may_be_sent_exist() {
    let checkout = Checkout::read();
    let text = fs::read_to_string(root().join(SENDERS)).unwrap();
    let rows = text.lines().enumerate();
    let rows = rows.filter(|(_, line)| line.starts_with("| ") && line.contains('`'));
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (number, line) in rows {
        let tests = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for test in tests.split(", ").map(|test| test.trim_matches('`')) {
            found += 1;
            let times = checkout.tests_of(test);
            if times != 1 {
                wrong.push(format!("{SENDERS}:{}: {test}: {times} tests", number + 1));
            }
        }
    }
    assert!(found > 100, "the page has {found} tests");
    assert!(wrong.is_empty(), "not one test:\n{}", wrong.join("\n"));
}

#[test]
fn functions_are_tests_by_their_attribute() {
    let text = "#[test]\nfn one() {\n    fn two() {}\n}\n#[tokio::test]\n#[ignore]\nasync fn three() {}\nfn four() {}";
    assert_eq!(tests(text).collect::<Vec<_>>(), ["one", "three"]);
}

#[test]
fn the_house_has_every_crate() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let names = names(&text);
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        let folder = folder.unwrap().file_name().into_string().unwrap();
        let is_named = names.iter().any(|name| name.text == folder);
        assert!(is_named, "{folder} is not on the page");
    }
}

#[test]
fn names_are_found_with_their_lines() {
    let page = "One `a::b` (`c.rs`) and `two\nwords`.\n```text\nweft-x -> MyType y\n```\n`d`";
    let found: Vec<_> = names(page)
        .into_iter()
        .map(|name| (name.line, name.text))
        .collect();
    let expected = [
        (1, "a::b"),
        (1, "c.rs"),
        (1, "two words"),
        (4, "weft-x"),
        (4, "MyType"),
        (6, "d"),
    ];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
    assert_eq!(names(page)[1].joint, " (");
}
