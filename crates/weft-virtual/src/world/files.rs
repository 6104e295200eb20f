//! The files of a client: the state file, in which it keeps guards and build times, and the torrc, which a controller changes and a person edits.
//!
//! They are real files, in a folder of this process, and are written by what a node writes them with (`weft_datadir`). Disks that are full and processes
//! that are killed are those of `weft_datadir::file::interruption`. Each write is checked: what is on disk, beside it, and what is reported.
#![expect(
    clippy::disallowed_methods,
    reason = "the shell of virtual time has these files"
)]

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use weft_client::{Now, Paths};
use weft_config::{DumpKind, MemoryHost, Options, Settings, dump, load_text};
use weft_datadir::file::FileError;
use weft_datadir::file::interruption::{End, Interruption, Killed, interrupted};
use weft_datadir::state::{self, Keeper, Lines, State};
use weft_datadir::torrc::Torrc;

/// Where folders are made if there is such a file system: it is in memory, and needs no disk to have written something.
const IN_MEMORY: &str = "/dev/shm";
const STATE: &str = "state";
const TORRC: &str = "torrc";
/// The end of the names of files that are being written.
const TEMPORARY: &str = ".tmp";
/// Keys of the state file.
const GUARD: &str = "Guard";
const TOTAL: &str = "TotalBuildTimes";
const BIN: &str = "CircuitBuildTimeBin";
/// Changes of a controller that are valid.
const SETTINGS: &[&[(&str, Option<&str>)]] = &[
    &[("MaxCircuitDirtiness", Some("15 seconds"))],
    &[("MaxCircuitDirtiness", Some("2 hours"))],
    &[("ContactInfo", Some("a \"person\" # with \\ everything\\"))],
    &[("ContactInfo", None)],
    &[
        ("MapAddress", Some("one.test two.test")),
        ("MapAddress", Some("three.test four.test")),
    ],
    &[("MapAddress", None)],
    &[
        ("TrackHostExits", Some("one.test,.two.test")),
        ("LongLivedPorts", Some("21,22")),
    ],
];
/// Changes of a controller that are rejected.
const NO_SETTINGS: &[(&str, &str)] = &[
    ("MaxCircuitDirtiness", "much"),
    ("NoSuchOption", "1"),
    ("SocksPort", "x"),
];

/// Failure of a write before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskFault {
    /// The disk is full.
    Full,
    /// It is once this part of the bytes is written, in 256ths.
    Short(u8),
    /// The process is killed once this part of the bytes is written.
    Killed(u8),
}

impl DiskFault {
    fn end(self) -> End {
        match self {
            DiskFault::Full => End::Full,
            DiskFault::Short(part) => End::Short(part),
            DiskFault::Killed(part) => End::Killed(part),
        }
    }
}

/// The end of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Written,
    /// There was nothing to write.
    Unchanged,
    /// It failed, as it had to.
    Failed,
    Killed,
}

/// A file before it is written.
struct Before {
    /// `None`: there is none.
    contents: Option<Vec<u8>>,
    /// A program that has it open.
    reader: Option<File>,
}

/// Damaged parts of the state file.
#[derive(Debug, Default)]
struct Damage {
    /// Lines of guards.
    guards: BTreeSet<String>,
    build_times: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Files {
    folder: TempDir,
    every: Duration,
    next: Duration,
    rng: ChaCha8Rng,
    /// Permissions of the torrc.
    mode: u32,
    pub(super) disk: Option<(u32, DiskFault)>,
    /// The process' part: its lines of the state file, and the options in force.
    keeper: Keeper,
    options: Box<Options>,
    defaults: Settings,
    /// Torrcs that a person wrote, the newest last.
    edits: Vec<String>,
    /// Names that a killed process left.
    left: BTreeSet<String>,
    damage: Damage,
}

type Checked = Result<(), String>;

impl Files {
    /// A folder with a torrc, which is written `every` so often. Everything follows from `rng`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn new(every: Duration, mut rng: ChaCha8Rng) -> Result<Files, String> {
        let mut new = tempfile::Builder::new();
        new.prefix("weft-chaos-");
        let folder = match Path::new(IN_MEMORY).is_dir() {
            true => new.tempdir_in(IN_MEMORY).or_else(|_| new.tempdir()),
            false => new.tempdir(),
        };
        let folder = folder.map_err(|error| format!("no folder for a client's files: {error}"))?;
        let mode = match rng.random_range(0..3) {
            0 => 0o600,
            1 => 0o640,
            _ => 0o644,
        };
        let loaded = load_text("", &MemoryHost::new());
        let loaded = loaded.map_err(|report| format!("no options are an error: {report:?}"))?;
        let mut files = Files {
            folder,
            every,
            next: every,
            rng,
            mode,
            disk: None,
            keeper: Keeper::default(),
            options: Box::new(loaded.options),
            defaults: loaded.defaults,
            edits: Vec::new(),
            left: BTreeSet::new(),
            damage: Damage::default(),
        };
        files.edit()?;
        Ok(files)
    }

    /// `MaxCircuitDirtiness` of the options in force.
    pub(super) fn max_dirtiness(&self) -> Duration {
        self.options.circuits.max_dirtiness
    }

    /// Writes what is due. Returns whether the process was killed while it did.
    ///
    /// # Errors
    ///
    /// Something does not hold.
    pub(super) fn write(
        &mut self,
        paths: &mut Paths,
        now: Now,
        elapsed: Duration,
    ) -> Result<bool, String> {
        if elapsed < self.next {
            return Ok(false);
        }
        self.next = elapsed + self.every;
        if self.save_state(paths, now.wall)? == Ended::Killed {
            return Ok(true);
        }
        match self.rng.random_range(0..8) {
            0..4 => {
                self.set_options()?;
                Ok(self.save_torrc()? == Ended::Killed)
            }
            4 => self.set_options().map(|()| false),
            5 => self.edit().map(|()| false),
            _ => Ok(false),
        }
    }

    // ---- the state file ----

    fn save_state(&mut self, paths: &mut Paths, now: SystemTime) -> Result<Ended, String> {
        let before = self.before(STATE)?;
        let lines = paths.state_lines();
        let (folder, keeper) = (self.folder.path(), &mut self.keeper);
        let ended = end(self.disk, folder, "a save of the state", || {
            keeper.save(folder, now, lines)
        })?;
        let mut damage = std::mem::take(&mut self.damage);
        let mode = 0o600;
        self.check_written(STATE, before, ended, mode, |text| {
            let written = (ended != Ended::Unchanged).then_some(now);
            check_state(text, paths, written, &mut damage)
        })?;
        self.damage = damage;
        self.check_folder(STATE, ended)?;
        Ok(ended)
    }

    /// Damages a line of the state file.
    pub(super) fn damage(&mut self) -> Checked {
        let text = self.read(STATE)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_of = |line: &str, key: &str| line.split(' ').next() == Some(key);
        let lines = text.lines().enumerate();
        let places = lines
            .filter(|(_, line)| [GUARD, TOTAL, BIN].iter().any(|key| is_of(line, key)))
            .map(|(place, _)| place);
        let places: Vec<usize> = places.collect();
        let pick = self.rng.random_range(0..places.len().max(1));
        let kind = self.rng.random_range(0..3);
        let Some(place) = places.get(pick).copied() else {
            return Ok(());
        };
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let Some(line) = lines.get_mut(place) else {
            return Ok(());
        };
        if is_of(line, GUARD) {
            let values = match kind {
                0 => "in=default",
                1 => "in=default rsa_id=00 listed=1",
                _ => "?",
            };
            *line = format!("{GUARD} {values}");
            self.damage.guards.insert(values.to_owned());
        } else {
            let key = if is_of(line, TOTAL) { TOTAL } else { BIN };
            let values = match (key, kind) {
                (TOTAL, 0) => "999",
                (TOTAL, _) => "many",
                (_, 0) => "175 999",
                (_, 1) => "175",
                _ => "-1 1",
            };
            *line = format!("{key} {values}");
            self.damage.build_times = true;
        }
        let path = self.path(STATE);
        fs::write(path, lines.join("\n") + "\n").map_err(|error| self.failed("damage", &error))
    }

    /// Another process begins: reads the torrc, and returns the lines of the state file.
    ///
    /// # Errors
    ///
    /// It cannot begin so.
    pub(super) fn begin(&mut self) -> Result<Vec<(String, String)>, String> {
        self.keeper = Keeper::default();
        self.read_torrc()?;
        let state = state::load(self.folder.path());
        let state = state.map_err(|error| self.failed("reading the state", &error))?;
        Ok(state.lines())
    }

    /// Checks what a client has of these lines, before it knows a network.
    pub(super) fn check_begun(&self, lines: &[(String, String)], begun: &[Lines]) -> Checked {
        let saved = |key: &str| -> Vec<&str> {
            let of_key = lines.iter().filter(|(found, _)| found == key);
            of_key.map(|(_, value)| value.as_str()).collect()
        };
        for (key, values) in begun {
            let (saved, values) = (saved(key), strs(values));
            match *key {
                GUARD => {
                    let damaged = &self.damage.guards;
                    let [saved, has] = [&saved, &values].map(|lines| sampled(lines, damaged));
                    if saved != has {
                        return Err(format!(
                            "a client comes back with the guards {has:?}, and had saved {saved:?}"
                        ));
                    }
                }
                _ => {
                    let is_default = without_zero(&values).is_empty();
                    let is_it = match self.damage.build_times && is_of_times(key) {
                        true => is_default,
                        false => without_zero(&saved) == without_zero(&values),
                    };
                    if !is_it {
                        return Err(format!(
                            "a client comes back with {key} {values:?} of the lines {saved:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    // ---- the torrc ----

    /// SETCONF.
    fn set_options(&mut self) -> Checked {
        let pick = self.rng.random_range(0..SETTINGS.len() + NO_SETTINGS.len());
        let own = |text: &str| text.to_owned();
        let (pairs, is_good) = match (SETTINGS.get(pick), pick.checked_sub(SETTINGS.len())) {
            (Some(pairs), _) => {
                let pairs = pairs.iter();
                let pairs = pairs.map(|(key, value)| (own(key), value.map(own)));
                (pairs.collect::<Vec<_>>(), true)
            }
            (None, Some(place)) => {
                let pair = NO_SETTINGS.get(place).into_iter();
                let pairs = pair.map(|(key, value)| (own(key), Some(own(value))));
                (pairs.collect(), false)
            }
            (None, None) => return Ok(()),
        };
        let changed = weft_config::change(&self.options, &pairs, false, false, &MemoryHost::new());
        match changed {
            Ok((loaded, _)) if is_good => {
                *self.options = loaded.options;
                Ok(())
            }
            Err(_) if !is_good => Ok(()),
            _ => Err(format!("SETCONF {pairs:?}: {is_good} is what it has to be")),
        }
    }

    /// SAVECONF (weft-node/src/relay/control.rs, `save_torrc`).
    fn save_torrc(&mut self) -> Result<Ended, String> {
        let before = self.before(TORRC)?;
        let wanted = self.in_force();
        let path = self.path(TORRC);
        let save = || -> Result<bool, FileError> {
            Torrc::read(&path)?.replace(&wanted)?;
            Ok(true)
        };
        let ended = end(self.disk, self.folder.path(), "SAVECONF", save)?;
        self.check_written(TORRC, before, ended, self.mode, |text| {
            let text = String::from_utf8_lossy(text);
            let is_whole = text.starts_with('#') && text.ends_with(&wanted);
            match is_whole && options_of(&text)?.1 == wanted {
                true => Ok(()),
                false => Err(format!("it is {text:?}, and the options are {wanted:?}")),
            }
        })?;
        self.check_edits()?;
        self.check_folder(TORRC, ended)?;
        Ok(ended)
    }

    /// A person writes the torrc, and has it read (SIGHUP).
    fn edit(&mut self) -> Checked {
        let (number, minutes) = (self.edits.len(), self.rng.random_range(1..100));
        let text = format!("# Edited, {number}\nMaxCircuitDirtiness {minutes} minutes\n");
        let path = self.path(TORRC);
        let is_edited = self.read(TORRC)?.is_some_and(|old| {
            let last = self.edits.last();
            last.is_some_and(|last| last.as_bytes() == old)
        });
        if is_edited {
            // Nobody keeps what a person overwrites.
            self.edits.pop();
        }
        let mode = fs::Permissions::from_mode(self.mode);
        fs::write(&path, &text)
            .and_then(|()| fs::set_permissions(&path, mode))
            .map_err(|error| self.failed("an edit", &error))?;
        self.edits.push(text);
        self.read_torrc()
    }

    fn read_torrc(&mut self) -> Checked {
        let text = self.read(TORRC)?.unwrap_or_default();
        *self.options = options_of(&String::from_utf8_lossy(&text))?.0;
        Ok(())
    }

    /// The options in force, as a torrc.
    fn in_force(&self) -> String {
        dump(&self.options.settings, &self.defaults, DumpKind::Short)
    }

    /// Checks that each torrc that a person wrote is kept, in place or beside it.
    fn check_edits(&self) -> Checked {
        let names = self.names()?;
        let names = names.iter().filter(|(name, _)| is_torrc(name));
        let kept: Result<BTreeSet<Vec<u8>>, String> = names
            .map(|(name, _)| Ok(self.read(name)?.unwrap_or_default()))
            .collect();
        let kept = kept?;
        let mut edits = self.edits.iter();
        match edits.find(|edit| !kept.contains(edit.as_bytes())) {
            Some(lost) => Err(format!("SAVECONF loses what a person wrote: {lost:?}")),
            None => Ok(()),
        }
    }

    // ---- on disk ----

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn failed(&self, what: &str, error: &impl Display) -> String {
        failed(self.folder.path(), what, error)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match fs::read(self.path(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("reading", &error)),
        }
    }

    fn before(&self, name: &str) -> Result<Before, String> {
        Ok(Before {
            contents: self.read(name)?,
            reader: File::open(self.path(name)).ok(),
        })
    }

    /// Checks a file that was written: it is the new one, or, where the write did not come to its end, the old one, and each with its mode.
    fn check_written(
        &self,
        name: &str,
        before: Before,
        ended: Ended,
        mode: u32,
        mut check_new: impl FnMut(&[u8]) -> Checked,
    ) -> Checked {
        let after = self.read(name)?;
        let is_old = after == before.contents;
        let may_be_old = ended != Ended::Written;
        if ended == Ended::Unchanged && !is_old {
            return Err(format!(
                "there was nothing to write, and the {name} is another"
            ));
        }
        if !(is_old && may_be_old) || ended == Ended::Unchanged {
            check_new(after.as_deref().unwrap_or_default()).map_err(|what| {
                format!("the {name} is neither the old one nor the new one: {what}")
            })?;
        }
        let mut seen = Vec::new();
        if let Some(mut reader) = before.reader {
            let read = reader.read_to_end(&mut seen);
            read.map_err(|error| self.failed("reading", &error))?;
            if Some(seen) != before.contents {
                return Err(format!(
                    "a program that had the {name} open does not read the old one"
                ));
            }
        }
        let found = fs::metadata(self.path(name)).map(|meta| meta.permissions().mode() & 0o777);
        match found {
            Ok(found) if found != mode => {
                Err(format!("the {name} has the mode {found:o}, not {mode:o}"))
            }
            Ok(_) => Ok(()),
            // There was none before.
            Err(_) if after.is_none() => Ok(()),
            Err(error) => Err(self.failed("reading", &error)),
        }
    }

    /// Names and modes in the folder.
    fn names(&self) -> Result<Vec<(String, u32)>, String> {
        let failed = |error: io::Error| self.failed("reading", &error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.folder.path()).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let mode = entry.metadata().map_err(failed)?.permissions().mode() & 0o777;
            names.push((entry.file_name().to_string_lossy().into_owned(), mode));
        }
        names.sort();
        Ok(names)
    }

    /// Checks what is in the folder: files of the node, and beside them what a killed process was writing, until the next write of the same file.
    fn check_folder(&mut self, written: &str, ended: Ended) -> Checked {
        let mut left = BTreeSet::new();
        for (name, mode) in self.names()? {
            let of = name.strip_suffix(TEMPORARY);
            let is_known = |name: &str| name == STATE || is_torrc(name);
            if !is_known(of.unwrap_or(&name)) {
                return Err(format!("{name} is beside the files of a node"));
            }
            let Some(of) = of else {
                if is_torrc(&name) && mode != self.mode {
                    return Err(format!("{name} has the mode {mode:o}"));
                }
                continue;
            };
            let is_of_written = is_torrc(of) == is_torrc(written);
            let may_stay = match ended {
                Ended::Killed => true,
                Ended::Written if is_of_written => false,
                _ => self.left.contains(&name),
            };
            if !may_stay {
                return Err(format!("{name} stays beside the files of a node"));
            }
            if mode != 0o600 && mode != self.mode {
                return Err(format!("{name} has the mode {mode:o}"));
            }
            left.insert(name);
        }
        self.left = left;
        Ok(())
    }
}

/// Runs a write on a disk. Returns its end.
///
/// # Errors
///
/// It reports another end than it had.
fn end<E: Display>(
    disk: Option<(u32, DiskFault)>,
    folder: &Path,
    what: &str,
    write: impl FnOnce() -> Result<bool, E>,
) -> Result<Ended, String> {
    let (result, is_full) = match disk {
        None => (write(), false),
        Some((step, how)) => {
            let end = how.end();
            match interrupted(Interruption { step, end }, write) {
                Ok(ended) => ended,
                Err(Killed) => return Ok(Ended::Killed),
            }
        }
    };
    match (result, is_full) {
        (Ok(true), false) => Ok(Ended::Written),
        (Ok(false), false) => Ok(Ended::Unchanged),
        (Err(_), true) => Ok(Ended::Failed),
        (Ok(_), true) => Err(format!("the disk is full, and {what} reports no error")),
        (Err(error), false) => {
            let error = failed(folder, what, &error);
            Err(format!("nothing is wrong with the disk, but {error}"))
        }
    }
}

/// A failure, without the folder, which has another name each time.
fn failed(folder: &Path, what: &str, error: &impl Display) -> String {
    let error = error.to_string();
    let error = error.replace(&*folder.to_string_lossy(), "");
    format!("{what} failed: {error}")
}

/// True if it names the torrc, or a copy that is kept beside it.
fn is_torrc(name: &str) -> bool {
    let rest = name
        .strip_prefix(TORRC)
        .map(|rest| rest.strip_prefix(".orig."));
    match rest {
        Some(Some(number)) => number.parse::<u32>().is_ok(),
        Some(None) => name == TORRC,
        None => false,
    }
}

/// The options of a torrc, and these as a torrc again.
fn options_of(text: &str) -> Result<(Options, String), String> {
    let loaded = load_text(text, &MemoryHost::new());
    let loaded = loaded.map_err(|_| format!("the torrc cannot be read: {text:?}"))?;
    let again = dump(&loaded.options.settings, &loaded.defaults, DumpKind::Short);
    Ok((loaded.options, again))
}

/// Checks that a state file has what the client has, and, where it was written, that it was then.
fn check_state(
    text: &[u8],
    paths: &Paths,
    written: Option<SystemTime>,
    damage: &mut Damage,
) -> Checked {
    let state = State::parse(text).map_err(|error| format!("the state is damaged: {error}"))?;
    let mut times_are = true;
    for (key, values) in paths.all_state_lines() {
        let found: Vec<&str> = state.get_all(key).collect();
        let values = strs(&values);
        if key == GUARD {
            let damaged = &damage.guards;
            let [found, has] = [&found, &values].map(|lines| sampled(lines, damaged));
            if found != has {
                return Err(format!("it has the guards {found:?}, the client {has:?}"));
            }
            continue;
        }
        let is_it = without_zero(&found) == without_zero(&values);
        times_are &= is_it || !is_of_times(key);
        // What was damaged stays until something is learnt.
        if !(is_it || damage.build_times && is_of_times(key)) {
            return Err(format!("it has {key} {found:?}, the client {values:?}"));
        }
    }
    damage.build_times &= !times_are;
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    };
    let last = state.get_time("LastWritten").map(seconds);
    match written.map(seconds) {
        Some(written) if last != Some(written) => {
            Err(format!("it was written last at {last:?}, not {written}"))
        }
        _ => Ok(()),
    }
}

/// Guards of lines: in the order of the sample, and those that are confirmed, in theirs. Without lines that are damaged.
fn sampled(lines: &[&str], damaged: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let (mut guards, mut confirmed) = (Vec::new(), Vec::new());
    for line in lines.iter().filter(|line| !damaged.contains(**line)) {
        let word = |key: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
        };
        let guard = word("rsa_id").unwrap_or_else(|| (*line).to_owned());
        if let Some(place) = word("confirmed_idx") {
            confirmed.push((place.parse::<u32>().unwrap_or(u32::MAX), guard.clone()));
        }
        guards.push(guard);
    }
    confirmed.sort();
    let confirmed = confirmed.into_iter().map(|(_, guard)| guard);
    (guards, confirmed.collect())
}

/// Values of build times. A file without any has none.
fn without_zero<'a>(values: &[&'a str]) -> Vec<&'a str> {
    let values = values.iter().copied();
    values.filter(|value| *value != "0").collect()
}

fn is_of_times(key: &str) -> bool {
    weft_path::BuildTimes::STATE_KEYS.contains(&key)
}

fn strs(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}
