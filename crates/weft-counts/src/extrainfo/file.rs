//! The files of `DataDirectory/stats`, by which a day's result survives a restart (C tor `load_stats_file`).

use std::time::{Duration, SystemTime};

use crate::extrainfo::moment::{self, LENGTH};

/// A file is published for this long after its day.
const NEWS: Duration = Duration::from_secs(25 * 3600);
/// A file may be of this much later: the clock was set back.
const TOO_EARLY: Duration = Duration::from_secs(3600);

/// A file of statistics, in the order in which they are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatsFile {
    /// `dirreq-stats`.
    DirRequests,
    /// `hidserv-v3-stats`.
    Onions,
    /// `entry-stats`.
    Entry,
    /// `buffer-stats`.
    Cells,
    /// `exit-stats`.
    Exits,
    /// `conn-stats`.
    Connections,
    /// `bridge-stats`, behind all else.
    Bridge,
}

/// A file that is not one of these statistics, and cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl StatsFile {
    /// All, in order.
    pub const ALL: [Self; 7] = [
        Self::DirRequests,
        Self::Onions,
        Self::Entry,
        Self::Cells,
        Self::Exits,
        Self::Connections,
        Self::Bridge,
    ];
    /// Bytes of a file, at most: all of a document.
    pub const MOST: usize = 50_000;

    /// Its name in `DataDirectory/stats`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DirRequests => "dirreq-stats",
            Self::Onions => "hidserv-v3-stats",
            Self::Entry => "entry-stats",
            Self::Cells => "buffer-stats",
            Self::Exits => "exit-stats",
            Self::Connections => "conn-stats",
            Self::Bridge => "bridge-stats",
        }
    }

    /// The keywords of its lines; the first has the end of the day.
    fn keywords(self) -> &'static [&'static str] {
        match self {
            Self::DirRequests => &[
                "dirreq-stats-end",
                "dirreq-v3-ips",
                "dirreq-v3-reqs",
                "dirreq-v3-resp",
                "dirreq-v3-direct-dl",
                "dirreq-v3-tunneled-dl",
            ],
            Self::Onions => &[
                "hidserv-v3-stats-end",
                "hidserv-rend-v3-relayed-cells",
                "hidserv-dir-v3-onions-seen",
            ],
            Self::Entry => &["entry-stats-end", "entry-ips"],
            Self::Cells => &[
                "cell-stats-end",
                "cell-processed-cells",
                "cell-queued-cells",
                "cell-time-in-queue",
                "cell-circuits-per-decile",
            ],
            Self::Exits => &[
                "exit-stats-end",
                "exit-kibibytes-written",
                "exit-kibibytes-read",
                "exit-streams-opened",
            ],
            Self::Connections => &["conn-bi-direct", "ipv6-conn-bi-direct"],
            Self::Bridge => &[
                "bridge-stats-end",
                "bridge-ips",
                "bridge-ip-versions",
                "bridge-ip-transports",
            ],
        }
    }

    /// Returns true if `text` is such a file whose day ended lately. Published statistics are
    /// signed, so a file with anything but these lines is rejected.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn recent(self, text: &str, now: SystemTime) -> Result<bool, Malformed> {
        let keywords = self.keywords();
        let fits = text.len() <= Self::MOST && text.ends_with('\n');
        let mut lines = text.lines();
        let end = lines
            .next()
            .zip(keywords.first())
            .and_then(|(line, keyword)| line.strip_prefix(keyword)?.strip_prefix(' '))
            .and_then(|line| moment::parse(line.get(..LENGTH)?))
            .filter(|_| fits)
            .ok_or(Malformed)?;
        let printable = |line: &str| line.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let known = |line: &str| keywords.contains(&line.split(' ').next().unwrap_or_default());
        // Not `lines`, which would take a carriage return off.
        let mut all = text.split_terminator('\n');
        if !all.all(|line| printable(line) && known(line)) {
            return Err(Malformed);
        }
        Ok(match now.duration_since(end) {
            Ok(age) => age <= NEWS,
            Err(early) => early.duration() <= TOO_EARLY,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extrainfo::moment::parse;
    use proptest::prelude::*;

    const ENTRY: &str = "entry-stats-end 2026-01-01 12:00:00 (86400 s)\nentry-ips de=8\n";

    #[test]
    fn a_carriage_return_is_not_published() {
        let now = parse("2026-01-01 12:00:00").unwrap();
        assert_eq!(StatsFile::Entry.recent(ENTRY, now), Ok(true));
        let windows = ENTRY.replace('\n', "\r\n");
        assert_eq!(StatsFile::Entry.recent(&windows, now), Err(Malformed));
    }

    #[test]
    fn a_file_is_published_for_twenty_five_hours() {
        let end = parse("2026-01-01 12:00:00").unwrap();
        let hour = Duration::from_secs(3600);
        let second = Duration::from_secs(1);
        let recent = |now| StatsFile::Entry.recent(ENTRY, now);
        assert_eq!(recent(end), Ok(true));
        assert_eq!(recent(end + 25 * hour), Ok(true));
        assert_eq!(recent(end + 25 * hour + second), Ok(false));
        assert_eq!(recent(end - hour), Ok(true));
        assert_eq!(recent(end - hour - second), Ok(false));
    }

    #[test]
    fn nothing_but_a_files_own_lines_is_published() {
        let now = parse("2026-01-01 12:00:00").unwrap();
        let bad = |text: &str| StatsFile::Entry.recent(text, now) == Err(Malformed);
        assert!(bad(""));
        assert!(bad("\n"));
        assert!(bad("entry-stats-end\n"));
        assert!(bad("entry-stats-end 2026-01-01\n"));
        assert!(bad("entry-stats-end 2026-13-01 12:00:00 (86400 s)\n"));
        assert!(bad(
            "entry-ips de=8\nentry-stats-end 2026-01-01 12:00:00 (86400 s)\n"
        ));
        assert!(bad(&format!("{ENTRY}router-signature\n")));
        assert!(bad(&format!("{ENTRY}\n")));
        assert!(bad(&format!("{ENTRY}entry-ips \u{e4}\n")));
        assert!(bad(&format!("{ENTRY}entry-ips \r\n\r\n")));
        assert!(bad(ENTRY.trim_end()));
        let long = "entry-ips x\n".repeat(StatsFile::MOST / 12);
        assert!(bad(&format!("{ENTRY}{long}")));
        assert!(StatsFile::Exits.recent(ENTRY, now).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_file_or_none(text in "(entry-stats-end )?\\PC{0,80}\n?", seconds: u32) {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
            for file in StatsFile::ALL {
                let _ = file.recent(&text, now);
            }
        }
    }
}
