//! The tables of countries, as statistics use them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use digest::Digest as _;
use tor_llcrypto::d::Sha1;
use weft_config::Settings;
use weft_counts::extrainfo::GeoipDigests;
use weft_path::{Countries, CountriesError, TableReader};

use crate::client::countries::{TABLES, path_of, read_lines};

/// The tables of countries.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) paths: [Option<PathBuf>; 2],
    pub(super) countries: Arc<Countries>,
    pub(super) digests: GeoipDigests,
}

/// The paths of the tables in torrc.
pub(super) fn table_paths(settings: &Settings) -> [Option<PathBuf>; 2] {
    TABLES.map(|key| path_of(settings, key).map(Path::to_owned))
}

impl Tables {
    /// Reads the tables; one that cannot be read is empty, as in C tor, which logs that.
    pub(super) fn load(paths: [Option<PathBuf>; 2]) -> Self {
        let (mut v4, mut v6) = (TableReader::v4(), TableReader::v6());
        let [path_v4, path_v6] = &paths;
        let digest_v4 = read_table(path_v4.as_deref(), |line| v4.line(line));
        let digest_v6 = read_table(path_v6.as_deref(), |line| v6.line(line));
        let countries = Countries::of_tables(v4, v6);
        Tables {
            digests: GeoipDigests {
                v4: digest_v4.filter(|_| countries.knows(true)),
                v6: digest_v6.filter(|_| countries.knows(false)),
            },
            countries: Arc::new(countries),
            paths,
        }
    }
}

/// Reads a table line by line, as far as it can be read; its digest.
fn read_table(
    path: Option<&Path>,
    mut line: impl FnMut(&str) -> Result<(), CountriesError>,
) -> Option<String> {
    let path = path?;
    let mut digest = Sha1::new();
    let read = read_lines(path, |text| {
        digest.update(text);
        line(text)
    });
    if let Err(error) = read {
        let shown = path.display();
        match error.kind() {
            io::ErrorKind::NotFound => tracing::info!("No table of countries {shown}"),
            _ => tracing::warn!("Could not read the table of countries {shown}: {error}"),
        }
        return None;
    }
    Some(hex::encode_upper(digest.finalize()))
}

/// The tables that identities of the process use: those that name the same files have the same tables.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTables(Arc<Mutex<Weak<Tables>>>);

impl SharedTables {
    /// The tables of these files: those that another identity uses, or else read. Who else asks waits for them.
    pub(super) fn load(&self, paths: [Option<PathBuf>; 2]) -> Arc<Tables> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = known.upgrade().filter(|tables| tables.paths == paths) {
            return tables;
        }
        let tables = Arc::new(Tables::load(paths));
        *known = Arc::downgrade(&tables);
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_with_the_same_files_have_the_same_tables_and_nobody_s_are_freed() {
        let shared = SharedTables::default();
        let one = shared.load([None, None]);
        assert!(Arc::ptr_eq(&one, &shared.load([None, None])));
        let other = shared.load([Some("/none".into()), None]);
        assert!(!Arc::ptr_eq(&one, &other));
        let known = Arc::downgrade(&other);
        drop(other);
        assert!(known.upgrade().is_none());
    }
}
