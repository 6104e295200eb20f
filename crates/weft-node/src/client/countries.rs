//! The tables of countries, where torrc's sets of relays name some, or a controller asks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use weft_path::{Countries, PathOptions};

use crate::torrc::settings::Settings;

/// Bytes of a table at most; the real ones have some ten million.
const MAX_FILE: u64 = 128 << 20;

/// The options that name tables: of IPv4, and of IPv6.
pub(crate) const TABLES: [&str; 2] = ["GeoIPFile", "GeoIPv6File"];

/// The file of a table, if there is to be one.
pub(crate) fn named<'a>(settings: &'a Settings, option: &str) -> Option<&'a Path> {
    let path = settings.text(option).filter(|path| !path.is_empty());
    path.map(Path::new)
}

/// Reads the tables, if they are needed, and tells the sets of relays.
pub(super) fn find(paths: &mut PathOptions, settings: &Settings) {
    let exclude_unknown = settings.auto("GeoIPExcludeUnknown").map(|set| set == 1);
    if !paths.names_countries() && exclude_unknown != Some(true) {
        return;
    }
    let table = |name| {
        let Some(path) = named(settings, name) else {
            return String::new();
        };
        read(path).unwrap_or_else(|error| {
            tracing::warn!(
                "{name} {}: {error}; no relay is in a country by its addresses",
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
/// There is no such file, or it cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::torrc::host::Host;
    use crate::torrc::load::load_text;

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
            let options = load_text(&torrc, &Host::empty()).unwrap().options;
            let mut paths = options.paths.clone();
            find(&mut paths, &options.settings);
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
