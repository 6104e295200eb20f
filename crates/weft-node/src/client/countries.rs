//! The tables of countries, where torrc's sets of relays name some.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use weft_path::{Countries, PathOptions};

use crate::torrc::settings::Settings;

/// Bytes of a table at most; the real ones have some ten million.
const MAX_FILE: u64 = 128 << 20;

/// Reads the tables, if they are needed, and tells the sets of relays.
pub(super) fn find(paths: &mut PathOptions, settings: &Settings) {
    let exclude_unknown = settings.auto("GeoIPExcludeUnknown").map(|set| set == 1);
    if !paths.names_countries() && exclude_unknown != Some(true) {
        return;
    }
    let table = |name| {
        let Some(path) = settings.text(name).filter(|path| !path.is_empty()) else {
            return String::new();
        };
        read(Path::new(path)).unwrap_or_else(|error| {
            tracing::warn!("{name} {path}: {error}; no relay is in a country by its addresses");
            String::new()
        })
    };
    let (v4, v6) = (table("GeoIPFile"), table("GeoIPv6File"));
    match Countries::parse(&v4, &v6) {
        Ok(countries) => paths.set_countries(&Arc::new(countries), exclude_unknown),
        Err(error) => tracing::warn!(
            "GeoIPFile or GeoIPv6File cannot be read: {error}; no relay is in a country"
        ),
    }
}

fn read(path: &Path) -> io::Result<String> {
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
