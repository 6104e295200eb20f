//! The tables of countries (GeoIPFile), for torrc's sets of relays and for controllers.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::path::Path;
use std::sync::Arc;

use weft_path::{Countries, CountriesError, PathOptions, TableReader};

use weft_config::{Key, Settings, keys};
use weft_datadir::file::{self, FileError};

/// Bytes of a table, at most; Tor's have about ten million.
pub(crate) const MAX_FILE: u64 = 128 << 20;

/// The options that name the tables: IPv4's and IPv6's.
pub(crate) const TABLES: [Key<String>; 2] = [keys::GeoIPFile, keys::GeoIPv6File];

/// The path of a table, if the option is set.
pub(crate) fn path_of(settings: &Settings, option: Key<String>) -> Option<&Path> {
    let path = settings.text(option).filter(|path| !path.is_empty());
    path.map(Path::new)
}

/// Reads the tables, if the sets of relays need them, and adds them to `paths`.
pub(super) fn add_countries(paths: &mut PathOptions, settings: &Settings) {
    let exclude_unknown = settings.auto_flag(keys::GeoIPExcludeUnknown);
    if !paths.names_countries() && exclude_unknown != Some(true) {
        return;
    }
    let (mut v4, mut v6) = (TableReader::v4(), TableReader::v6());
    let [first, second] = TABLES;
    let read = |key: Key<String>, line: &mut dyn FnMut(&str) -> Result<(), CountriesError>| {
        let Some(path) = path_of(settings, key) else {
            return true;
        };
        match read_lines(path, line) {
            // As a table without ranges.
            Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                tracing::warn!(
                    "{key} {}: {error}; no relay is in a country by its addresses",
                    path.display()
                );
                true
            }
            Err(error) => {
                tracing::warn!("{key} cannot be read: {error}; no relay is in a country");
                false
            }
            Ok(()) => true,
        }
    };
    if read(first, &mut |line| v4.line(line)) && read(second, &mut |line| v6.line(line)) {
        let countries = Countries::of_tables(v4, v6);
        paths.set_countries(&Arc::new(countries), exclude_unknown);
    }
}

/// Gives the lines of a table to `line`, one by one: its text is much larger than what is kept of it.
///
/// # Errors
///
/// The file is missing or cannot be read; `InvalidData`: a line is none of a table.
pub(crate) fn read_lines(
    path: &Path,
    mut line: impl FnMut(&str) -> Result<(), CountriesError>,
) -> io::Result<()> {
    let mut file = io::BufReader::new(open(path)?.take(MAX_FILE));
    let mut text = String::new();
    while file.read_line(&mut text)? > 0 {
        line(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        text.clear();
    }
    Ok(())
}

/// A table's text.
///
/// # Errors
///
/// The file is missing or cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn open(path: &Path) -> io::Result<File> {
    match file::open(path, MAX_FILE) {
        Ok(found) => Ok(found.ok_or(io::ErrorKind::NotFound)?.0),
        // It is not a table with a wrong line.
        Err(FileError { source, .. }) if source.kind() == io::ErrorKind::InvalidData => {
            Err(io::Error::other(source))
        }
        Err(error) => Err(error.source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::{MemoryHost, load_text};

    #[test]
    fn tables_are_read_where_they_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (v4, v6) = (folder.path().join("4"), folder.path().join("6"));
        std::fs::write(&v4, "1.0.0.0,1.0.0.255,AU\n").unwrap();
        std::fs::write(&v6, "").unwrap();
        let with = |line: &str| {
            let torrc = format!(
                "GeoIPFile {}\nGeoIPv6File {}\n{line}\n",
                v4.display(),
                v6.display()
            );
            let options = load_text(&torrc, &MemoryHost::new()).unwrap().options;
            let mut paths = options.paths.clone();
            add_countries(&mut paths, &options.settings);
            (paths == options.paths, paths)
        };
        assert!(with("ExcludeNodes a").0, "nothing changes");
        let (same, paths) = with("ExcludeNodes {au}");
        assert!(!same);
        assert_eq!(paths.exclude_nodes.countries(), ["au", "??"]);
        let (_, paths) = with("ExcludeNodes {au}\nGeoIPExcludeUnknown 0");
        assert_eq!(paths.exclude_nodes.countries(), ["au"]);
    }
}
