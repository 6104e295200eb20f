//! The tables of countries (GeoIPFile), for torrc's sets of relays and for controllers.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use weft_path::{Countries, PathOptions};

use weft_config::{Key, Settings, keys};

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
    let table = |key| {
        let Some(path) = path_of(settings, key) else {
            return String::new();
        };
        read(path).unwrap_or_else(|error| {
            tracing::warn!(
                "{key} {}: {error}; no relay is in a country by its addresses",
                path.display()
            );
            String::new()
        })
    };
    match Countries::parse(&table(TABLES[0]), &table(TABLES[1])) {
        Ok(countries) => paths.set_countries(&Arc::new(countries), exclude_unknown),
        Err(error) => tracing::warn!(
            "GeoIPFile or GeoIPv6File cannot be read: {error}; no relay is in a country"
        ),
    }
}

/// A table's text.
///
/// # Errors
///
/// The file is missing or cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
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
