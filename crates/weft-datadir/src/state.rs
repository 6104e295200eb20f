//! `DataDirectory/state`: what C tor and Weft remember between runs, as `Key value` lines.
//!
//! Lines that Weft has no use for (guards, build times, whatever a newer tor adds) are kept as
//! they are, so that the two can take turns. The file on disk is the only copy: [`update`] reads
//! it, changes it and writes it back in one call, and the holder of the
//! [DataDirectory's lock](crate::lock) is the only writer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use weft_planted::{Fault, planted};

use crate::file::{self, FileError};
use crate::files::DataFile;

/// Its name in DataDirectory.
pub(crate) const FILE: &str = DataFile::State.name();

/// Longest state file that is read, in bytes: C tor's has some tens of kilobytes.
const MAX_LEN: usize = 16 << 20;

/// "2026-11-21 00:59:59", always UTC (dir-spec's time format).
const ISO: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");

/// The file cannot be read, written or understood.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not a state file.
    #[error("line {line} is not \"Key value\" text")]
    Damaged {
        /// Counted from 1.
        line: usize,
    },
}

/// One `Key value` line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Compared without regard to case, as C tor does.
    key: String,
    /// As it stands in the file, without space around it.
    value: String,
}

/// The lines of a state file, in order, without comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the file's order.
    lines: Vec<Line>,
}

impl State {
    /// Reads the text of a state file. Comments and empty lines are dropped; every other line
    /// is kept.
    pub fn parse(bytes: &[u8]) -> Result<Self, StateError> {
        let mut lines = Vec::new();
        for (index, raw) in bytes.split(|&b| b == b'\n').enumerate() {
            let damaged = StateError::Damaged {
                line: index.saturating_add(1),
            };
            let Ok(text) = std::str::from_utf8(raw) else {
                return Err(damaged);
            };
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if text.chars().any(|c| c.is_control() && c != '\t') {
                return Err(damaged);
            }
            let (key, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
            lines.push(Line {
                key: key.to_owned(),
                value: value.trim().to_owned(),
            });
        }
        Ok(Self { lines })
    }

    /// The last value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.get_all(key).last()
    }

    /// Every value of `key`, in order.
    pub fn get_all<'s>(&'s self, key: &str) -> impl Iterator<Item = &'s str> {
        self.lines
            .iter()
            .filter(move |line| line.key.eq_ignore_ascii_case(key))
            .map(|line| line.value.as_str())
    }

    /// Every key and value, in order.
    pub fn lines(&self) -> Vec<(String, String)> {
        self.lines
            .iter()
            .map(|line| (line.key.clone(), line.value.clone()))
            .collect()
    }

    /// The time of `key`, if it has one.
    pub fn get_time(&self, key: &str) -> Option<SystemTime> {
        let value = self.get(key)?;
        match time::PrimitiveDateTime::parse(value, ISO) {
            Ok(t) => {
                let seconds = t.assume_utc().unix_timestamp();
                let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
                UNIX_EPOCH.checked_add(seconds)
            }
            Err(_) => {
                tracing::warn!("The state file's {key} is not a time: {value:?}. Ignoring it.");
                None
            }
        }
    }

    /// Gives `key` this one value, in the place of its first.
    pub fn set(&mut self, key: &str, value: &str) {
        // A line break would make two lines of it.
        let value: String = value
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let line = Line {
            key: key.to_owned(),
            value: value.trim().to_owned(),
        };
        let same = |l: &Line| l.key.eq_ignore_ascii_case(key);
        match self.lines.iter().position(same) {
            Some(at) => {
                let mut index = 0;
                self.lines.retain(|l| {
                    let keep = index <= at || !same(l);
                    index += 1;
                    keep
                });
                if let Some(first) = self.lines.get_mut(at) {
                    *first = line;
                }
            }
            None => self.lines.push(line),
        }
    }

    /// Gives `key` these values, in the place of its first.
    pub fn set_all(&mut self, key: &str, values: &[String]) {
        let Some((first, rest)) = values.split_first() else {
            self.remove(key);
            return;
        };
        self.set(key, first);
        let at = |l: &Line| l.key.eq_ignore_ascii_case(key);
        let Some(at) = self.lines.iter().position(at) else {
            return;
        };
        let more: Vec<Line> = rest
            .iter()
            .map(|value| Line {
                key: key.to_owned(),
                value: value.replace(char::is_control, " ").trim().to_owned(),
            })
            .collect();
        self.lines.splice(at + 1..at + 1, more);
    }

    /// Gives `key` this time (whole seconds).
    pub fn set_time(&mut self, key: &str, when: SystemTime) {
        self.set(key, &format_time(when));
    }

    /// Forgets `key`.
    pub fn remove(&mut self, key: &str) {
        self.lines.retain(|l| !l.key.eq_ignore_ascii_case(key));
    }

    /// The text of the file, as C tor lays it out.
    pub fn to_text(&self, now: SystemTime) -> String {
        let mut text = format!(
            "# Tor state file last generated on {} UTC\n\
             # Other times below are in UTC\n\
             # You *do not* need to edit this file.\n\n",
            format_time(now)
        );
        for Line { key, value } in &self.lines {
            text.push_str(key);
            if !value.is_empty() {
                text.push(' ');
                text.push_str(value);
            }
            text.push('\n');
        }
        text
    }
}

/// Years 1970 to 9999; outside of that the nearest time that the format has.
fn format_time(when: SystemTime) -> String {
    /// 9999-12-31 23:59:59.
    const LAST: i64 = 253_402_300_799;
    let seconds = when
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(LAST).min(LAST));
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|t| t.format(ISO).ok())
        .unwrap_or_else(|| "1970-01-01 00:00:00".to_owned())
}

/// Where `data_dir` has its state file.
fn path_in(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The state in `data_dir`; empty where there is none yet.
///
/// A file that is no state file is moved aside to `state.N` with a warning, as C tor does.
pub fn load(data_dir: &Path) -> Result<State, StateError> {
    let path = path_in(data_dir);
    let Some(bytes) = file::read(&path, MAX_LEN)? else {
        return Ok(State::default());
    };
    match State::parse(&bytes) {
        Ok(state) => Ok(state),
        Err(what) => {
            let aside = (0..100)
                .map(|n| data_dir.join(format!("state.{n}")))
                .find(|p| fs::symlink_metadata(p).is_err());
            // With a hundred bad ones about, the last is replaced: none holds an identity.
            let aside = aside.unwrap_or_else(|| data_dir.join("state.99"));
            tracing::warn!(
                "Unable to parse state in {}: {what}. Moving it aside to {}.",
                path.display(),
                aside.display()
            );
            file::move_aside(&path, &aside)?;
            Ok(State::default())
        }
    }
}

/// Reads the state, lets `change` change it, and writes it back with the time of writing.
pub fn update(
    data_dir: &Path,
    now: SystemTime,
    change: impl FnOnce(&mut State),
) -> Result<State, StateError> {
    let mut state = load(data_dir)?;
    change(&mut state);
    state.set("TorVersion", concat!("Weft ", env!("CARGO_PKG_VERSION")));
    state.set_time("LastWritten", now);
    file::replace(&path_in(data_dir), state.to_text(now).as_bytes())?;
    Ok(state)
}

/// A part of the node's lines of the state file: all values of a key.
pub type Lines = (&'static str, Vec<String>);

/// A part of the node that keeps lines in the state file: what it saved last, and what it wants saved since then. What a
/// failed write had is saved with the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    saved: BTreeMap<&'static str, Vec<String>>,
    wanted: BTreeMap<&'static str, Vec<String>>,
    /// Keys that are no reason to write.
    minor: &'static [&'static str],
}

impl Keeper {
    /// Nothing was saved yet. A change of the `minor` keys alone is not written; they are saved with others.
    #[must_use]
    pub fn new(minor: &'static [&'static str]) -> Self {
        Self {
            minor,
            ..Self::default()
        }
    }

    /// Takes lines that have changed, and writes what is to be saved. Returns whether there was something to write.
    ///
    /// # Errors
    ///
    /// As of [`update`].
    pub fn save(
        &mut self,
        data_dir: &Path,
        now: SystemTime,
        lines: Vec<Lines>,
    ) -> Result<bool, StateError> {
        if planted(Fault::FailedSaveForgotten) {
            self.wanted.clear();
        }
        self.wanted.extend(lines);
        let is_news = |(key, values): (&&'static str, &Vec<String>)| {
            !self.minor.contains(key) && self.saved.get(key) != Some(values)
        };
        if !self.wanted.iter().any(is_news) {
            return Ok(false);
        }
        update(data_dir, now, |state| {
            for (key, values) in &self.wanted {
                state.set_all(key, values);
            }
        })?;
        self.saved.append(&mut self.wanted);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::interruption::{End, Interruption, interrupted};
    use proptest::prelude::*;

    const TOR: &str = "# Tor state file last generated on 2026-11-21 00:59:59 local time\n\
        # Other times below are in UTC\n\
        # You *do not* need to edit this file.\n\
        \n\
        CircuitBuildTimeBin 275 1\n\
        CircuitBuildTimeBin 285 2\n\
        Guard in=default rsa_id=0123 confirmed_idx=0\n\
        LastRotatedOnionKey 2026-11-01 10:11:12\n\
        BWHistoryReadValues \n\
        Dormant 0\n";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_can_have_several_values() {
        let mut state = State::parse(TOR.as_bytes()).unwrap();
        let values = ["a", "b", "c"].map(str::to_owned);
        state.set_all("Guard", &values);
        state.set_all("CircuitBuildTimeBin", &[]);
        state.set_all("New", &values[..1]);
        let found: Vec<_> = state.get_all("guard").collect();
        assert_eq!(found, ["a", "b", "c"]);
        assert_eq!(state.get("CircuitBuildTimeBin"), None);
        assert_eq!(state.get("New"), Some("a"));
        let lines = state.lines();
        assert_eq!(lines[3].0, "LastRotatedOnionKey");
    }

    #[test]
    fn every_line_of_tors_survives_an_update() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(&path, TOR).unwrap();
        update(dir.path(), at(1_800_000_000), |s| {
            s.set_time("lastrotatedonionkey", at(86_400));
        })
        .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "",
                "CircuitBuildTimeBin 275 1",
                "CircuitBuildTimeBin 285 2",
                "Guard in=default rsa_id=0123 confirmed_idx=0",
                "lastrotatedonionkey 1970-01-02 00:00:00",
                "BWHistoryReadValues",
                "Dormant 0",
                "TorVersion Weft 0.1.0",
                "LastWritten 2027-01-15 08:00:00",
            ]
        );
    }

    #[test]
    fn values_are_found_whatever_their_case() {
        let state = State::parse(TOR.as_bytes()).unwrap();
        assert_eq!(state.get("circuitbuildtimebin"), Some("285 2"));
        assert_eq!(state.get_all("CircuitBuildTimeBin").count(), 2);
        assert_eq!(state.get("BWHistoryReadValues"), Some(""));
        assert_eq!(
            state.get_time("LastRotatedOnionKey"),
            Some(at(1_793_527_872))
        );
        assert_eq!(state.get_time("Dormant"), None);
        assert_eq!(state.get("Nothing"), None);
    }

    #[test]
    fn one_value_takes_the_place_of_several() {
        let mut state = State::parse(TOR.as_bytes()).unwrap();
        state.set("CircuitBuildTimeBin", "1 1\nGuard evil");
        assert_eq!(
            state.get_all("CircuitBuildTimeBin").collect::<Vec<_>>(),
            ["1 1 Guard evil"]
        );
        assert_eq!(state.lines[0].value, "1 1 Guard evil");
        assert_eq!(state.lines.len(), 5);
        state.remove("guard");
        assert_eq!(state.lines.len(), 4);
    }

    #[test]
    fn a_damaged_file_is_moved_aside_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state"), b"Key \xff\n").unwrap();
        fs::write(dir.path().join("state.0"), "earlier").unwrap();
        assert_eq!(load(dir.path()).unwrap(), State::default());
        assert_eq!(fs::read(dir.path().join("state.0")).unwrap(), b"earlier");
        assert_eq!(fs::read(dir.path().join("state.1")).unwrap(), b"Key \xff\n");
        assert!(!dir.path().join("state").exists());
    }

    #[test]
    fn lines_are_written_where_more_has_changed_than_what_is_minor() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::new(&["Minutes"]);
        let mut save = |guard: &str, minutes: &str| {
            let line = |key, value: &str| (key, vec![value.to_owned()]);
            let lines = vec![line("Guard", guard), line("Minutes", minutes)];
            let written = keeper.save(dir.path(), at(0), lines).unwrap();
            let state = load(dir.path()).unwrap();
            (written, state.get("Minutes").unwrap().to_owned())
        };
        assert_eq!(save("a", "0"), (true, "0".to_owned()));
        assert_eq!(save("a", "7"), (false, "0".to_owned()));
        assert_eq!(save("b", "8"), (true, "8".to_owned()));
    }

    #[test]
    fn lines_whose_save_failed_are_saved_with_the_next_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::default();
        let line = |key, value: &str| vec![(key, vec![value.to_owned()])];
        keeper.save(dir.path(), at(0), line("Guard", "a")).unwrap();
        let full = Interruption {
            step: 0,
            end: End::Full,
        };
        let (result, _) =
            interrupted(full, || keeper.save(dir.path(), at(1), line("Guard", "b"))).unwrap();
        result.unwrap_err();
        assert_eq!(load(dir.path()).unwrap().get("Guard"), Some("a"));
        keeper.save(dir.path(), at(2), line("Other", "c")).unwrap();
        let state = load(dir.path()).unwrap();
        assert_eq!(
            (state.get("Guard"), state.get("Other")),
            (Some("b"), Some("c"))
        );
    }

    #[test]
    fn a_directory_in_its_place_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        assert!(
            load(dir.path())
                .unwrap_err()
                .to_string()
                .contains("directory")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(state) = State::parse(&bytes) {
                let text = state.to_text(at(0));
                prop_assert_eq!(State::parse(text.as_bytes()).unwrap(), state);
            }
        }

        #[test]
        fn times_are_read_back(seconds in 0u64..253_402_300_799) {
            let mut state = State::default();
            state.set_time("T", at(seconds));
            prop_assert_eq!(state.get_time("T"), Some(at(seconds)));
        }
    }
}
