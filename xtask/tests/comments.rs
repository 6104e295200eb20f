//! Doc comments begin with the noun, not with a clause (CONTRIBUTING.md, "How we work").

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words of a clause where a noun would do.
const CLAUSES: [&str; 6] = ["What", "Whether", "How", "The same", "Which", "Those"];

/// Packages whose comments are not mended yet, with the number of those that begin with a clause: it may only fall.
const LEFT: [(&str, usize); 1] = [("weft-config", 64)];

/// Rust files in a folder and below.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// Lines of a source on which a doc comment begins with a clause, counted from 1.
fn clauses(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut goes_on = false;
    for (number, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        if let (Some(text), false) = (comment, goes_on) {
            let rest = |word: &&str| text.trim_start().strip_prefix(*word);
            let next = CLAUSES
                .iter()
                .find_map(rest)
                .map(|rest| rest.chars().next());
            if next.is_some_and(|next| next.is_none_or(|next| !next.is_alphanumeric())) {
                found.push(number + 1);
            }
        }
        goes_on = comment.is_some() || (goes_on && line.starts_with("#["));
    }
    found
}

#[test]
fn doc_comments_begin_with_the_noun() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let left = BTreeMap::from(LEFT);
    let mut packages = vec![root.join("xtask")];
    let crates = fs::read_dir(root.join("crates")).unwrap();
    packages.extend(crates.map(|entry| entry.unwrap().path()));
    for package in packages {
        let mut files = Vec::new();
        sources(&package.join("src"), &mut files);
        let mut places = Vec::new();
        for file in files {
            let lines = clauses(&fs::read_to_string(&file).unwrap());
            places.extend(
                lines
                    .iter()
                    .map(|line| format!("{}:{line}", file.display())),
            );
        }
        let name = package.file_name().unwrap().to_string_lossy();
        let may = left.get(&*name).copied().unwrap_or_default();
        assert!(
            places.len() <= may,
            "{name}: {} doc comments begin with one of {CLAUSES:?}, and {may} may:\n{}",
            places.len(),
            places.join("\n")
        );
        assert!(
            places.len() == may,
            "{name}: {} are left; state that number in LEFT",
            places.len()
        );
    }
}

#[test]
fn a_clause_is_found_where_a_comment_begins() {
    let source = "/// What is there.\n/// How.\nfn a() {}\n/// Whatever comes.\n/// Whether\n\
                  fn b() {}\n//! The same as before.\n\n    /// Those, too.\n    x: u8,\n// What is no doc comment.\n";
    assert_eq!(clauses(source), [1, 7, 9]);
}
