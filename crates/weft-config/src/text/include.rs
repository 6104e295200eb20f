//! `%include`: files, folders and patterns read in place (C tor: src/lib/fs/conffile.c).
//!
//! A relative path starts from the working directory of the process, as in C tor. A pattern may
//! hold `*` and `?`; a folder stands for its files in order of name, those in folders within it and
//! those whose name starts with a dot left out.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use weft_trust::{Limit, Payer, Role, Sender, Trust};

use crate::host::{FileKind, Host};
use crate::report::Report;
use crate::text::lexer::{Line, lex};

/// Deepest nesting of included files (MAX_INCLUDE_RECURSION_LEVEL).
const MAX_DEPTH: usize = 31;

/// Most files that one torrc may include in all: a hundred times more than anybody has, and fewer
/// than a folder that includes itself would add.
const MAX_FILES: usize = 10_000;

/// Largest size of a file, in bytes: a larger one is not a torrc.
pub(crate) const MAX_FILE_SIZE: u64 = 16 << 20;

/// torrc and the files that it includes: the party that may write them, and their limits.
pub const TORRC: Trust = Trust::new(
    Sender::OwnerOrController,
    Role::Torrc,
    Limit::new(
        "{weft-config/src/text/include.rs:MAX_FILE_SIZE} bytes of a file, {weft-config/src/text/include.rs:MAX_FILES} files, \
         {weft-config/src/text/include.rs:MAX_DEPTH} deep; {weft-config/src/report.rs:MAX_ERRORS} errors are shown",
        Payer::Start,
        &[
            "a_file_that_is_too_large_is_no_torrc",
            "files_that_include_each_other_without_end_are_an_error",
            "fuzz/torrc",
        ],
    ),
);

/// Reads the lines of `text` and of the files that it includes. Errors are added to `report`.
pub(crate) fn lex_with_includes(
    text: &[u8],
    source: &Arc<str>,
    host: &dyn Host,
    report: &mut Report,
) -> Vec<Line> {
    let mut reader = Reader {
        host,
        report,
        files: 0,
    };
    let mut lines = Vec::new();
    reader.read(text, source, 1, &mut lines);
    lines
}

struct Reader<'a> {
    host: &'a dyn Host,
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
        let files = match files_of(&line.value, self.host) {
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
            match read_file(&file, self.host) {
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
pub(crate) fn read_file(path: &Path, host: &dyn Host) -> io::Result<Vec<u8>> {
    let text = host.read(path, MAX_FILE_SIZE + 1)?;
    if text.len() as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other("it is too large to be a torrc"));
    }
    Ok(text)
}

/// The files that one `%include` names.
fn files_of(pattern: &str, host: &dyn Host) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in expand(pattern, host)? {
        let kind = host.kind(&path)?;
        if kind == FileKind::Pipe {
            let why = "it is a pipe, which cannot be read again when torrc is";
            return Err(at(&path, io::Error::other(why)));
        }
        if kind == FileKind::Folder {
            let names = host.list(&path)?.into_iter();
            let mut inside: Vec<_> = names
                .filter(|name| !name.as_encoded_bytes().starts_with(b"."))
                .map(|name| path.join(name))
                .collect();
            inside.sort();
            for file in inside {
                let kind = unless_absent(host.kind(&file)).map_err(|error| at(&file, error))?;
                // Not a folder, nor a symbolic link that leads nowhere.
                if kind == Some(FileKind::File) {
                    files.push(file);
                }
            }
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// An error with the path that it is about: it is not the one that the line names.
fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Makes `None` of the error that nothing is there. Other errors stay: options that cannot be read must not count as absent.
fn unless_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// The paths that match a pattern, sorted; the path itself where it is not a pattern.
fn expand(pattern: &str, host: &dyn Host) -> io::Result<Vec<PathBuf>> {
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
            let mut there = Vec::new();
            for path in found {
                let found = unless_absent(host.look(&path));
                if found.map_err(|error| at(&path, error))?.is_some() {
                    there.push(path);
                }
            }
            found = there;
            continue;
        }
        let mut next = Vec::new();
        for folder in &found {
            let read_from = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            let names =
                unless_absent(host.list(read_from)).map_err(|error| at(read_from, error))?;
            let matching = names
                .unwrap_or_default()
                .into_iter()
                .filter(|file| matches(name.as_bytes(), file.as_encoded_bytes()));
            next.extend(matching.map(|file| folder.join(file)));
        }
        found = next;
    }
    if pattern.ends_with('/') {
        found.retain(|path| host.kind(path).is_ok_and(|kind| kind == FileKind::Folder));
    }
    found.sort();
    Ok(found)
}

/// Returns true if a path contains an unescaped `*` or `?`.
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

/// Returns true if a file name matches a pattern. A leading dot is matched by a dot only.
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
mod tests {
    use super::*;
    use crate::host::MemoryHost;

    fn read(text: &str, host: &MemoryHost) -> Result<Vec<String>, String> {
        let mut report = Report::default();
        let lines = lex_with_includes(text.as_bytes(), &"torrc".into(), host, &mut report);
        if report.has_errors() {
            return Err(report.to_string());
        }
        Ok(lines
            .into_iter()
            .map(|line| format!("{} {}", line.key, line.value))
            .collect())
    }

    fn host(files: &[(&str, &str)]) -> MemoryHost {
        files.iter().fold(MemoryHost::new(), |host, (name, text)| {
            host.with_file(Path::new("/etc/x").join(name), *text)
        })
    }

    #[test]
    fn a_file_is_read_in_place() {
        let host = host(&[("b", "B 2\n")]);
        let text = "A 1\n%include /etc/x/b\nC 3";
        assert_eq!(read(text, &host).unwrap(), ["A 1", "B 2", "C 3"]);
    }

    #[test]
    fn as_many_files_are_read_as_may_be_and_no_more() {
        let host = host(&[("b", "")]);
        let text = "%include /etc/x/b\n".repeat(MAX_FILES);
        assert_eq!(read(&text, &host), Ok(Vec::new()));
        let why = read(&format!("{text}%include /etc/x/b\n"), &host).unwrap_err();
        assert!(why.contains("10000 files"), "{why}");
    }

    #[test]
    fn a_folder_is_read_in_order_of_name_without_hidden_files_and_folders() {
        let host = host(&[
            ("20", "B 2"),
            ("10", "A 1"),
            (".30", "C 3"),
            ("sub/40", "D 4"),
            ("50", ""),
        ]);
        assert_eq!(read("%include /etc/x", &host).unwrap(), ["A 1", "B 2"]);
    }

    #[test]
    fn a_pattern_may_match_nothing_but_a_file_must_exist() {
        let host = host(&[
            ("a.conf", "A 1"),
            ("b.conf", "B 2"),
            ("c.txt", "C 3"),
            (".d.conf", "D 4"),
            ("e/f.conf", "F 5"),
        ]);
        let read = |name: &str| read(&format!("%include /etc/x/{name}"), &host);
        assert_eq!(read("*.conf").unwrap(), ["A 1", "B 2"]);
        assert_eq!(read("?.txt").unwrap(), ["C 3"]);
        assert_eq!(read("*/*.conf").unwrap(), ["F 5"]);
        assert_eq!(read(".*.conf").unwrap(), ["D 4"]);
        assert_eq!(read("*/").unwrap(), ["F 5"]);
        assert_eq!(read("*.none").unwrap(), Vec::<String>::new());
        assert!(read("none").unwrap_err().starts_with("torrc:1: %include"));
    }

    /// Options that cannot be read must not count as absent: a client of bridges would connect without them.
    #[test]
    fn a_folder_that_cannot_be_read_is_an_error_also_where_a_pattern_leads_through_it() {
        let host = host(&[("a.conf", "A 1"), ("closed/b.conf", "B 2"), ("d/c", "C 3")])
            .with_closed("/etc/x/closed")
            .with_closed("/etc/x/d/c");
        for name in [
            "closed",
            "closed/*.conf",
            "*/*.conf",
            "?losed/b.conf",
            "d/*",
        ] {
            let why = read(&format!("%include /etc/x/{name}"), &host).unwrap_err();
            let is_told = why.contains("/etc/x/closed") || why.contains("/etc/x/d/c");
            assert!(
                is_told && why.contains("permission denied"),
                "{name}: {why}"
            );
        }
        assert_eq!(read("%include /etc/x/*.conf", &host).unwrap(), ["A 1"]);
        assert_eq!(
            read("%include /etc/y/*.conf", &host).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn files_that_include_each_other_without_end_are_an_error() {
        let text = "%include /etc/x/loop".to_owned();
        let once = host(&[("loop", &text)]);
        assert!(read(&text, &once).unwrap_err().contains("31 files deep"));
        // And where each level doubles them.
        let twice = host(&[("loop", &format!("{text}\n{text}"))]);
        assert!(read(&text, &twice).unwrap_err().contains("10000 files"));
    }

    #[test]
    fn a_file_that_is_too_large_is_no_torrc() {
        let bytes = usize::try_from(MAX_FILE_SIZE).unwrap();
        let lines = |bytes: usize| "#".repeat(bytes);
        let (most, more) = (lines(bytes), lines(bytes + 1));
        let host = host(&[("most", &most), ("more", &more)]);
        assert_eq!(read("%include /etc/x/most", &host), Ok(Vec::new()));
        let why = read("%include /etc/x/more", &host).unwrap_err();
        assert!(why.contains("too large to be a torrc"), "{why}");
    }

    #[test]
    fn errors_name_the_included_file() {
        let host = host(&[("b", "B 2\nC \"x")]);
        let why = read("%include /etc/x/b", &host).unwrap_err();
        assert!(why.starts_with("/etc/x/b:2: "), "{why}");
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
