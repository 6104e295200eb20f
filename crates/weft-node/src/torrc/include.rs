//! `%include`: files, folders and patterns read in place (C tor: src/lib/fs/conffile.c).
//!
//! A relative path starts from the working directory of the process, as in C tor. A pattern may
//! hold `*` and `?`; a folder stands for its files in order of name, those in folders within it and
//! those whose name starts with a dot left out.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::lexer::{Line, lex};
use super::report::Report;

/// How deep files may include each other (MAX_INCLUDE_RECURSION_LEVEL).
const MAX_DEPTH: usize = 31;

/// How many files one torrc may include in all: a hundred times more than anybody has, and short of
/// what a folder that includes itself would come to.
const MAX_FILES: usize = 10_000;

/// How large a file may be: more is not a torrc.
pub(super) const MAX_FILE_SIZE: u64 = 16 << 20;

/// Reads the lines of `text` and of what it includes. What is wrong is added to `report`.
pub fn lex_with_includes(text: &[u8], source: &Arc<str>, report: &mut Report) -> Vec<Line> {
    let mut reader = Reader { report, files: 0 };
    let mut lines = Vec::new();
    reader.read(text, source, 1, &mut lines);
    lines
}

struct Reader<'a> {
    report: &'a mut Report,
    files: usize,
}

impl Reader<'_> {
    fn read(&mut self, text: &[u8], source: &Arc<str>, depth: usize, lines: &mut Vec<Line>) {
        for line in lex(text, source, self.report) {
            if line.key == "%include" {
                self.include(&line, depth, lines);
            } else {
                lines.push(line);
            }
        }
    }

    fn include(&mut self, line: &Line, depth: usize, lines: &mut Vec<Line>) {
        let origin = Some(&line.origin);
        if depth >= MAX_DEPTH {
            self.report.error(
                origin,
                format!("%include goes more than {MAX_DEPTH} files deep"),
            );
            return;
        }
        let files = match files_of(&line.value) {
            Ok(files) => files,
            Err(why) => {
                self.report
                    .error(origin, format!("%include {}: {why}", line.value));
                return;
            }
        };
        for file in files {
            self.files += 1;
            if self.files > MAX_FILES {
                self.report.error(
                    origin,
                    format!("%include comes to more than {MAX_FILES} files"),
                );
                return;
            }
            match read_file(&file) {
                Ok(text) => {
                    let source: Arc<str> = file.display().to_string().into();
                    self.read(&text, &source, depth + 1, lines);
                }
                Err(why) => self
                    .report
                    .error(origin, format!("cannot read {}: {why}", file.display())),
            }
        }
    }
}

/// Reads a whole file that is not too large to be a torrc.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut text = Vec::new();
    let size = fs::File::open(path)?
        .take(MAX_FILE_SIZE + 1)
        .read_to_end(&mut text)?;
    if size as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other("it is too large to be a torrc"));
    }
    Ok(text)
}

/// The files that one `%include` names.
fn files_of(pattern: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in expand(pattern)? {
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                let is_file = fs::metadata(entry.path()).is_ok_and(|m| m.is_file());
                if !hidden && is_file {
                    inside.push(entry.path());
                }
            }
            inside.sort();
            files.append(&mut inside);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The paths that match a pattern, sorted; the path itself where it is no pattern.
fn expand(pattern: &str) -> io::Result<Vec<PathBuf>> {
    if !is_pattern(pattern) {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let mut parts: VecDeque<Component<'_>> = Path::new(pattern).components().collect();
    let mut found = vec![PathBuf::new()];
    while let Some(part) = parts.pop_front() {
        let name = part.as_os_str().to_string_lossy().into_owned();
        if !is_pattern(&name) {
            let name = unescape(&name);
            found.iter_mut().for_each(|path| path.push(&name));
            found.retain(|path| fs::symlink_metadata(path).is_ok());
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let read_from = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            // A folder that cannot be read holds nothing that matches, as in glob(3).
            let Ok(entries) = fs::read_dir(read_from) else {
                continue;
            };
            for entry in entries {
                let file_name = entry?.file_name();
                if matches(name.as_bytes(), file_name.as_encoded_bytes()) {
                    next.push(folder.join(file_name));
                }
            }
        }
        found = next;
    }
    if pattern.ends_with('/') {
        found.retain(|path| path.is_dir());
    }
    found.sort();
    Ok(found)
}

/// Whether a path holds a `*` or `?` that is not escaped.
fn is_pattern(path: &str) -> bool {
    let mut escaped = false;
    path.bytes().any(|b| {
        let wild = !escaped && matches!(b, b'*' | b'?');
        escaped = !escaped && b == b'\\';
        wild
    })
}

fn unescape(name: &str) -> String {
    let mut chars = name.chars();
    let mut plain = String::with_capacity(name.len());
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' {
            chars.next().unwrap_or(c)
        } else {
            c
        });
    }
    plain
}

/// Whether a file name matches a pattern. A leading dot is matched by a dot only.
///
/// Goes back to the last `*` only, so that it takes the product of the lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = name.get(n) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(b'?') => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            Some(b'\\') if pattern.get(p + 1) == Some(&byte) => {
                (p, n) = (p + 2, n + 1);
                continue;
            }
            Some(b) if *b != b'\\' && *b == byte => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, at)) = star else {
            return false;
        };
        star = Some((after, at + 1));
        (p, n) = (after, at + 1);
    }
    pattern
        .get(p..)
        .is_some_and(|rest| rest.iter().all(|b| *b == b'*'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let mut report = Report::default();
        let lines = lex_with_includes(text.as_bytes(), &"torrc".into(), &mut report);
        if report.has_errors() {
            return Err(report.to_string());
        }
        Ok(lines
            .into_iter()
            .map(|line| format!("{} {}", line.key, line.value))
            .collect())
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_file_is_read_in_place() {
        let folder = folder(&[("b", "B 2\n")]);
        let text = format!("A 1\n%include {}\nC 3", folder.path().join("b").display());
        assert_eq!(read(&text).unwrap(), ["A 1", "B 2", "C 3"]);
    }

    #[test]
    fn a_folder_is_read_in_order_of_name_without_hidden_files_and_folders() {
        let folder = folder(&[
            ("20", "B 2"),
            ("10", "A 1"),
            (".30", "C 3"),
            ("sub/40", "D 4"),
            ("50", ""),
        ]);
        let text = format!("%include {}", folder.path().display());
        assert_eq!(read(&text).unwrap(), ["A 1", "B 2"]);
    }

    #[test]
    fn a_pattern_may_match_nothing_but_a_file_must_exist() {
        let folder = folder(&[
            ("a.conf", "A 1"),
            ("b.conf", "B 2"),
            ("c.txt", "C 3"),
            (".d.conf", "D 4"),
            ("e/f.conf", "F 5"),
        ]);
        let at = |name: &str| format!("%include {}/{name}", folder.path().display());
        assert_eq!(read(&at("*.conf")).unwrap(), ["A 1", "B 2"]);
        assert_eq!(read(&at("?.txt")).unwrap(), ["C 3"]);
        assert_eq!(read(&at("*/*.conf")).unwrap(), ["F 5"]);
        assert_eq!(read(&at(".*.conf")).unwrap(), ["D 4"]);
        assert_eq!(read(&at("*/")).unwrap(), ["F 5"]);
        assert_eq!(read(&at("*.none")).unwrap(), Vec::<String>::new());
        assert!(
            read(&at("none"))
                .unwrap_err()
                .starts_with("torrc:1: %include")
        );
    }

    #[test]
    fn files_that_include_each_other_without_end_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop");
        let text = format!("%include {}", path.display());
        fs::write(&path, &text).unwrap();
        assert!(read(&text).unwrap_err().contains("31 files deep"));
        // And where each level doubles them.
        fs::write(&path, format!("{text}\n{text}")).unwrap();
        assert!(read(&text).unwrap_err().contains("10000 files"));
    }

    #[test]
    fn errors_name_the_included_file() {
        let folder = folder(&[("b", "B 2\nC \"x")]);
        let text = format!("%include {}/b", folder.path().display());
        assert!(
            read(&text)
                .unwrap_err()
                .starts_with(&format!("{}/b:2: ", folder.path().display()))
        );
    }

    #[test]
    fn names_match_patterns() {
        for (pattern, name, want) in [
            ("*", "a", true),
            ("*", "", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                want,
                "{pattern} {name}"
            );
        }
    }
}
