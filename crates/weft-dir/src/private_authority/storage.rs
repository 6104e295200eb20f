//! What an authority keeps in its DataDirectory, in C tor's files: pairs of identities (`key-pinning-journal`) and how
//! steady relays are (`router-stability`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::PrivateAuthority;
use super::history::History;
use crate::cache;
use crate::command::Severity;

const PINS: &str = "key-pinning-journal";
const STABILITY: &str = "router-stability";
/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// How often `router-stability` is written (C tor `STABILITY_SAVE_PERIOD`: 30 minutes).
const SAVE: Duration = Duration::from_secs(30 * 60);

/// The files of an authority.
#[derive(Debug)]
pub(super) struct Storage {
    folder: PathBuf,
    /// When `router-stability` is due.
    save: Option<SystemTime>,
}

impl Storage {
    /// Files in this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, save: None }
    }

    /// Lets the authority remember what earlier runs have written. Returns what to log.
    pub(super) fn load(
        &self,
        authority: &mut PrivateAuthority,
        now: SystemTime,
    ) -> Vec<(Severity, String)> {
        let mut log = Vec::new();
        match read(&self.folder.join(PINS)) {
            Ok(None) => {}
            Ok(Some(text)) => {
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
            Err(error) => log.push((Severity::Warn, format!("Cannot read {PINS}: {error}."))),
        }
        let history = match read(&self.folder.join(STABILITY)) {
            Ok(None) => return log,
            Ok(Some(text)) => History::read(&text, now),
            Err(error) => Err(error.to_string()),
        };
        match history {
            Ok(history) => authority.history = history,
            Err(why) => {
                let text =
                    format!("Cannot read {STABILITY}: {why}. No relay is known from before.");
                log.push((Severity::Warn, text));
            }
        }
        log
    }

    /// Writes what is due; `ends`: everything.
    pub(super) fn save(
        &mut self,
        authority: &mut PrivateAuthority,
        now: SystemTime,
        ends: bool,
    ) -> Result<(), String> {
        let journal = authority.pins.take_journal();
        if !journal.is_empty() {
            append(&self.folder.join(PINS), &journal)
                .map_err(|error| format!("Cannot write {PINS}: {error}"))?;
        }
        let due = *self.save.get_or_insert(now + SAVE);
        // A clock that was set back makes it due, too.
        if !ends && due > now && due <= now + SAVE {
            return Ok(());
        }
        self.save = Some(now + SAVE);
        let text = authority.history.write(now);
        cache::write(&self.folder, STABILITY, text).map_err(|error| error.to_string())
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    // The last line may be half of one.
    let begins = match file.metadata()?.len() {
        0 => "",
        _ => "\n",
    };
    file.write_all(format!("{begins}{text}").as_bytes())
}
