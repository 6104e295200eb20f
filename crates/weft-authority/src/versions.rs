//! Versions of C tor: how they are read, which is newer, and the lists of recommended ones (C tor versions.c,
//! `format_recommended_version_list`).

use std::cmp::Ordering;

/// The longest status tag that counts, in bytes (`MAX_STATUS_TAG_LEN`).
const MAX_TAG: usize = 31;
/// The longest version in a platform line.
const MAX_VERSION: usize = 127;

/// A version; the order of its fields is the order of comparison (`tor_version_compare`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TorVersion {
    major: u32,
    minor: u32,
    micro: u32,
    status: Status,
    patch: u32,
    tag: Vec<u8>,
    revision: i64,
    /// The git commit, shorter ones first.
    git: (usize, Vec<u8>),
}

/// `0.1.2pre3`, `0.1.2rc3`, and everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Pre,
    Candidate,
    Release,
}

impl TorVersion {
    /// Reads `0.4.9.11`, `0.4.8.0-alpha-dev`, `Tor 0.4.9.11 (git-0123)`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.split_at_checked(4) {
            Some((tor, rest)) if tor.eq_ignore_ascii_case("Tor ") => rest,
            _ => text,
        };
        let mut version = Self {
            major: 0,
            minor: 0,
            micro: 0,
            status: Status::Release,
            patch: 0,
            tag: Vec::new(),
            revision: 0,
            git: (0, Vec::new()),
        };
        let mut rest = text;
        version.major = number(&mut rest)?;
        rest = rest.strip_prefix('.')?;
        version.minor = number(&mut rest)?;
        if rest.is_empty() {
            return Some(version);
        }
        if !rest.starts_with('-') {
            rest = rest.strip_prefix('.')?;
            version.micro = number(&mut rest)?;
            if rest.is_empty() {
                return Some(version);
            }
            if !rest.starts_with('-') {
                if let Some(more) = rest.strip_prefix('.') {
                    rest = more;
                } else if let Some(more) = rest.strip_prefix("pre") {
                    (version.status, rest) = (Status::Pre, more);
                } else {
                    (version.status, rest) = (Status::Candidate, rest.strip_prefix("rc")?);
                }
                version.patch = number(&mut rest)?;
            }
        }
        rest = rest.strip_prefix(['-', '.']).unwrap_or(rest);
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (tag, build) = rest.split_at_checked(end)?;
        version.tag = tag.bytes().take(MAX_TAG).collect();
        let build = build.trim_start();
        if let Some(revision) = build.strip_prefix("(r") {
            let digits = revision.trim_end_matches(|c: char| !c.is_ascii_digit());
            version.revision = digits.parse().unwrap_or(0);
        } else if let Some(commit) = build.strip_prefix("(git-") {
            let commit = hex::decode(commit.split_once(')')?.0).ok()?;
            if commit.is_empty() || commit.len() > 20 {
                return None;
            }
            version.git = (commit.len(), commit);
        }
        Some(version)
    }
}

/// Takes a number of at most 31 bits off the front.
fn number(rest: &mut &str) -> Option<u32> {
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, more) = rest.split_at_checked(end)?;
    *rest = more;
    digits
        .parse()
        .ok()
        .filter(|number| i32::try_from(*number).is_ok())
}

/// What a platform line names (`tor_version_parse_platform`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    /// C tor of this version.
    Tor(TorVersion),
    /// Software with versions of its own.
    Other,
    /// It begins as C tor's and names no version.
    Malformed,
}

impl Platform {
    pub(super) fn parse(platform: &str) -> Self {
        let Some(rest) = platform.strip_prefix("Tor ") else {
            return Self::Other;
        };
        let rest = rest.trim_start();
        let mut words = rest.split_whitespace();
        let version = words.next().unwrap_or_default();
        // A build's number belongs to the version.
        let text = match words.next() {
            Some(build) if build.starts_with("(r") || build.starts_with("(git-") => {
                format!("{version} {build}")
            }
            _ => version.to_owned(),
        };
        match TorVersion::parse(&text) {
            Some(version) if text.len() < MAX_VERSION => Self::Tor(version),
            _ => Self::Malformed,
        }
    }

    /// Whether it is at least this version; other software always is (`tor_version_as_new_as`).
    pub(super) fn is_as_new_as(&self, least: &TorVersion) -> bool {
        match self {
            Self::Tor(version) => version >= least,
            Self::Other | Self::Malformed => true,
        }
    }
}

/// Whether a text can be read as a version of C tor.
#[must_use]
pub fn is_tor_version(text: &str) -> bool {
    TorVersion::parse(text).is_some()
}

/// The list of recommended versions that a consensus has: the words of these lines in order, each once.
pub(super) fn recommended(lines: &[String]) -> String {
    let words = lines
        .iter()
        .flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
    let mut versions: Vec<(Option<TorVersion>, &str)> = words
        .filter(|word| !word.is_empty())
        .map(|word| (TorVersion::parse(word), word))
        .collect();
    let order = |a: &(Option<TorVersion>, &str), b: &(Option<TorVersion>, &str)| match (&a.0, &b.0)
    {
        (Some(one), Some(other)) => one.cmp(other),
        // What is no version comes last.
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.1.cmp(b.1),
    };
    versions.sort_by(order);
    versions.dedup_by(|a, b| order(a, b).is_eq());
    let words: Vec<&str> = versions.into_iter().map(|(_, word)| word).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_are_greater_as_c_tor_compares_them() {
        let ordered = [
            "0.1.2pre3",
            "0.1.2rc1",
            "0.1.2",
            "0.1.2.1",
            "0.4.8.0",
            "0.4.8.0-alpha-dev",
            "0.4.8.1-alpha",
            "0.4.8.10",
            "0.4.9.11",
            "0.4.9.11-dev",
            "0.4.9.11-dev (git-0123)",
            "0.4.10",
        ];
        let parsed: Vec<TorVersion> = ordered
            .iter()
            .map(|text| TorVersion::parse(text).unwrap())
            .collect();
        assert!(
            parsed.is_sorted_by(|a, b| a < b),
            "each is newer than the one before"
        );
        assert_eq!(
            TorVersion::parse("tor 0.4.9.11"),
            TorVersion::parse("0.4.9.11")
        );
    }

    #[test]
    fn what_is_no_version_is_refused() {
        for text in [
            "",
            "Tor",
            "0",
            "0.",
            "x.y",
            "0.4.8x",
            "0.4.8.x",
            "0.4.99999999999.1",
            "0.4.8.1 (git-",
            "0.4.8.1 (git-1)",
            "é.1",
        ] {
            assert!(!is_tor_version(text), "{text}");
        }
    }

    #[test]
    fn platforms_of_other_software_have_no_version_and_torn_ones_are_malformed() {
        let Platform::Tor(version) = Platform::parse("Tor 0.4.9.11 (git-0123) on Linux") else {
            panic!("no version");
        };
        assert_eq!(
            Some(&version),
            TorVersion::parse("0.4.9.11 (git-0123)").as_ref()
        );
        assert_eq!(Platform::parse("Weft 1.0 on Linux"), Platform::Other);
        assert_eq!(Platform::parse("Tor on Linux"), Platform::Malformed);
        let least = TorVersion::parse("0.4.9.1").unwrap();
        assert!(Platform::parse("Tor 0.4.9.1 on x").is_as_new_as(&least));
        assert!(!Platform::parse("Tor 0.4.8.21 on x").is_as_new_as(&least));
        assert!(Platform::Other.is_as_new_as(&least));
    }

    proptest::proptest! {
        #[test]
        fn any_platform_line_is_read(platform in "(Tor )?[0-9.]{0,9}(pre|rc|-)?\\PC*") {
            Platform::parse(&platform);
        }
    }

    #[test]
    fn recommended_versions_are_sorted_and_each_is_named_once() {
        let lines = [
            "0.4.9.11,0.4.8.21".into(),
            "0.4.8.3  0.4.8.21, zebra".into(),
        ];
        assert_eq!(recommended(&lines), "0.4.8.3,0.4.8.21,0.4.9.11,zebra");
        assert_eq!(recommended(&[]), "");
    }
}
