//! What an authority keeps in its DataDirectory, in C tor's files: pairs of identities (`key-pinning-journal`) and how
//! steady relays are (`router-stability`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use weft_datadir::file::{self, FileError};
use weft_datadir::files::DataFile;
use weft_dir::cache;
use weft_dir::command::Severity;

use super::PrivateAuthority;
use crate::history::History;
use crate::pins::Journal;

const PINS: &str = DataFile::KeyPins.name();
const STABILITY: &str = DataFile::Stability.name();
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// How often `router-stability` is written (C tor `STABILITY_SAVE_PERIOD`: 30 minutes).
const SAVE: Duration = Duration::from_secs(30 * 60);

/// The files of an authority.
#[derive(Debug)]
pub(crate) struct Storage {
    folder: PathBuf,
    /// When `router-stability` is due.
    save: Option<SystemTime>,
}

impl Storage {
    /// Files in this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, save: None }
    }

    /// Lets the authority remember what earlier runs have written. Returns what to log.
    ///
    /// # Errors
    /// There is a `key-pinning-journal` that cannot be read: without it relays could take on other identities. C tor does
    /// not start, either.
    pub(crate) fn load(
        &self,
        authority: &mut PrivateAuthority,
        now: SystemTime,
    ) -> io::Result<Vec<(Severity, String)>> {
        let mut log = Vec::new();
        if let Some(text) = read(&self.folder, PINS)? {
            let loaded = authority.pins.load(&text);
            let severity = match loaded.corrupt {
                0 => Severity::Info,
                _ => Severity::Notice,
            };
            let text = format!(
                "Loaded {} entries from keypin journal. Found {} corrupt lines (ignored).",
                loaded.pairs, loaded.corrupt
            );
            log.push((severity, text));
        }
        let history = match read(&self.folder, STABILITY) {
            Ok(None) => return Ok(log),
            Ok(Some(text)) => History::read(&String::from_utf8_lossy(&text), now)
                .map_err(|why| format!("cannot read {STABILITY}: {why}")),
            Err(error) => Err(error.to_string()),
        };
        let warning = match history {
            Ok((history, corrupt)) => {
                authority.history = history;
                (corrupt > 0).then(|| format!("{STABILITY}: {corrupt} line(s) cannot be read"))
            }
            Err(why) => Some(format!("{why}; no relay is known from before")),
        };
        log.extend(warning.map(|text| (Severity::Warn, format!("{text}."))));
        Ok(log)
    }

    /// Writes what is due; `ends`: everything.
    pub(crate) fn save(
        &mut self,
        authority: &mut PrivateAuthority,
        now: SystemTime,
        ends: bool,
    ) -> Result<(), String> {
        let pins = match authority.pins.take_journal() {
            None => Ok(()),
            Some(Journal::More(lines)) => append(&self.folder.join(PINS), &lines)
                .map_err(|error| format!("Cannot write {PINS}: {error}")),
            Some(Journal::Whole(text)) => {
                cache::write(&self.folder, PINS, text).map_err(|error| error.to_string())
            }
        };
        if pins.is_err() {
            authority.pins.not_written();
        }
        let due = *self.save.get_or_insert(now + SAVE);
        // A clock that was set back makes it due, too.
        if !ends && due > now && due <= now + SAVE {
            return pins;
        }
        self.save = Some(now + SAVE);
        let text = authority.history.write(now);
        let stability =
            cache::write(&self.folder, STABILITY, text).map_err(|error| error.to_string());
        pins.and(stability)
    }
}

fn read(folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    file::contents(&folder.join(name), MAX_FILE).map_err(|error| {
        let kind = error.source.kind();
        io::Error::new(kind, error)
    })
}

fn append(path: &Path, text: &str) -> Result<(), FileError> {
    // The last line may be half of one.
    let begins = match std::fs::metadata(path) {
        Ok(meta) if meta.len() > 0 => "\n",
        _ => "",
    };
    file::append(path, format!("{begins}{text}").as_bytes())
}
