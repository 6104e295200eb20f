//! What controllers read from files, anew when those have changed: documents of the directory, from
//! CacheDirectory, which C tor answers from, too, and the tables of countries.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use weft_dir::cache;
use weft_dir::listing::{Entry, Listing};
use weft_dir::microdesc::MicrodescStore;
use weft_path::Countries;

use super::backend::{Document, Which};
use crate::client::countries::{TABLES, named, read};
use crate::torrc::settings::Settings;

/// C tor's name of the other flavour's file. Weft does not write it, but may find it.
const CONSENSUS_NS: &str = "cached-consensus";
/// By what a file is known to be the one that was read: its length and when it was written.
type Stamp = Option<(u64, SystemTime)>;

fn stamp(directory: &Path, name: &str) -> Stamp {
    stamp_of(&directory.join(name))
}

fn stamp_of(file: &Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// What was read. See the module.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    consensus: (Stamp, Listing),
    microdescs: ([Stamp; 2], MicrodescStore),
    countries: ([(PathBuf, Stamp); 2], Arc<Countries>),
}

impl Shelf {
    /// A document; `None`: there is no such relay, or it is not here.
    pub(super) fn find(
        &mut self,
        directory: &Path,
        which: &Which,
        document: Document,
    ) -> Option<String> {
        match document {
            Document::ConsensusNs => cache::read(directory, CONSENSUS_NS).ok()?,
            Document::Consensus => cache::read(directory, cache::CONSENSUS).ok()?,
            Document::RouterStatus => {
                let consensus = self.consensus(directory);
                let mut text = String::new();
                for entry in find(consensus, which) {
                    text.push_str(&entry.status);
                }
                (*which == Which::All || !text.is_empty()).then_some(text)
            }
            Document::Versions => {
                let consensus = self.consensus(directory);
                consensus.valid_until.as_ref()?;
                Some(consensus.versions.clone())
            }
            Document::ValidAfter => self.consensus(directory).valid_after.clone(),
            Document::FreshUntil => self.consensus(directory).fresh_until.clone(),
            Document::ValidUntil => self.consensus(directory).valid_until.clone(),
            Document::Microdescriptor => {
                self.read_microdescs(directory);
                self.consensus(directory);
                let mut text = String::new();
                for entry in find(&self.consensus.1, which) {
                    text.push_str(self.microdescs.1.get(&entry.microdesc).map_or("", |t| t));
                }
                (*which == Which::All || !text.is_empty()).then_some(text)
            }
            // Weft fetches none.
            Document::Descriptor => None,
        }
    }

    /// The tables of countries. One that is not there, or cannot be read, is empty.
    pub(super) fn countries(&mut self, settings: &Settings) -> Arc<Countries> {
        let files = TABLES.map(|option| {
            let path = named(settings, option).unwrap_or(Path::new("")).to_owned();
            let stamp = stamp_of(&path);
            (path, stamp)
        });
        if self.countries.0 != files {
            let [v4, v6] = [0, 1].map(|index| {
                let there = files.get(index).filter(|(_, stamp)| stamp.is_some());
                there.and_then(|(path, _)| read(path).ok())
            });
            let (v4, v6) = (v4.unwrap_or_default(), v6.unwrap_or_default());
            let tables = Countries::parse(&v4, &v6).unwrap_or_else(|error| {
                tracing::warn!("GeoIPFile or GeoIPv6File cannot be read: {error}");
                Countries::default()
            });
            self.countries = (files, Arc::new(tables));
        }
        self.countries.1.clone()
    }

    /// The relays that the consensus on disk lists, by RSA identity, and their entries.
    pub(super) fn statuses(&mut self, directory: &Path) -> BTreeMap<[u8; 20], String> {
        let entries = self.consensus(directory).entries.iter();
        entries.map(|e| (e.rsa, e.status.clone())).collect()
    }

    fn consensus(&mut self, directory: &Path) -> &Listing {
        let found = stamp(directory, cache::CONSENSUS);
        if self.consensus.0 != found || found.is_none() {
            let text = cache::read(directory, cache::CONSENSUS).ok().flatten();
            self.consensus = (found, Listing::read(text.as_deref().unwrap_or_default()));
        }
        &self.consensus.1
    }

    fn read_microdescs(&mut self, directory: &Path) {
        let found = [cache::MICRODESCS, cache::MICRODESCS_NEW].map(|name| stamp(directory, name));
        if self.microdescs.0 != found {
            let mut store = MicrodescStore::default();
            // What cannot be read is not there; the directory's own task has told of it.
            let _ = store.load(directory, SystemTime::now());
            self.microdescs = (found, store);
        }
    }
}

/// The relays that are asked for. Of several with one nickname, the one of the most bandwidth.
fn find<'a>(listing: &'a Listing, which: &Which) -> Vec<&'a Entry> {
    let entries = listing.entries.iter();
    match which {
        Which::All => entries.collect(),
        Which::Id(id) => entries.filter(|e| e.rsa == *id).collect(),
        Which::Name(name) => {
            let found = entries.filter(|e| e.nickname.eq_ignore_ascii_case(name));
            found.max_by_key(|e| e.bandwidth).into_iter().collect()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use base64ct::{Base64Unpadded, Encoding as _};

    use super::*;

    const CONSENSUS: &str = "network-status-version 3 microdesc\n\
        valid-until 2026-11-22 04:00:00\nclient-versions 0.4.8.1,0.4.9.1\n\
        r one AQEBAQEBAQEBAQEBAQEBAQEBAQE 2038-01-01 00:00:00 192.0.2.1 9001 0\n\
        m IPge+xK2IqGmLR2qv/fwMj4WRqNBaR1uJA4cVPoVrHo\ns Running\nw Bandwidth=20\n\
        r one AgICAgICAgICAgICAgICAgICAgI 2038-01-01 00:00:00 192.0.2.2 9001 9030\n\
        m AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\ns Running\nw Bandwidth=30\n";
    const ONE: &str = "r one AQEBAQEBAQEBAQEBAQEBAQEBAQE MDDIGEST \
        2038-01-01 00:00:00 192.0.2.1 9001 0\ns Running\nw Bandwidth=20\n";
    const TWO: &str = "r one AgICAgICAgICAgICAgICAgICAgI AAAAAAAAAAAAAAAAAAAAAAAAAAA \
        2038-01-01 00:00:00 192.0.2.2 9001 9030\ns Running\nw Bandwidth=30\n";
    const MICRODESC: &str = "onion-key\nntor-onion-key abc\n";

    #[test]
    fn relays_have_c_tors_entries_and_their_microdescriptors() {
        let directory = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::default();
        let path = directory.path();
        let ask = |shelf: &mut Shelf, which: Which, document| shelf.find(path, &which, document);
        assert_eq!(
            ask(&mut shelf, Which::All, Document::RouterStatus).as_deref(),
            Some("")
        );
        assert_eq!(ask(&mut shelf, Which::All, Document::Consensus), None);
        let digest = Base64Unpadded::encode_string(&sha256(MICRODESC));
        let text = CONSENSUS.replace("IPge+xK2IqGmLR2qv/fwMj4WRqNBaR1uJA4cVPoVrHo", &digest);
        std::fs::write(path.join(cache::CONSENSUS), &text).unwrap();
        std::fs::write(path.join(cache::MICRODESCS_NEW), MICRODESC).unwrap();

        let all = ask(&mut shelf, Which::All, Document::RouterStatus).unwrap();
        let short = Base64Unpadded::encode_string(&sha256(MICRODESC)[..20]);
        let one = ONE.replace("MDDIGEST", &short);
        assert_eq!(all, format!("{one}{TWO}"));
        let id = Which::Id([1; 20]);
        assert_eq!(
            ask(&mut shelf, id.clone(), Document::RouterStatus).as_deref(),
            Some(&*one)
        );
        let name = Which::Name("One".to_owned());
        assert_eq!(
            ask(&mut shelf, name, Document::RouterStatus).as_deref(),
            Some(TWO)
        );
        assert_eq!(
            ask(&mut shelf, Which::Id([9; 20]), Document::RouterStatus),
            None
        );
        let md = Document::Microdescriptor;
        assert_eq!(ask(&mut shelf, id, md).as_deref(), Some(MICRODESC));
        assert_eq!(ask(&mut shelf, Which::Id([2; 20]), md), None, "not here");
        assert_eq!(ask(&mut shelf, Which::All, md).as_deref(), Some(MICRODESC));
        assert_eq!(ask(&mut shelf, Which::All, Document::Consensus), Some(text));
        let until = ask(&mut shelf, Which::All, Document::ValidUntil);
        assert_eq!(until.as_deref(), Some("2026-11-22 04:00:00"));
        let versions = ask(&mut shelf, Which::All, Document::Versions);
        assert_eq!(versions.as_deref(), Some("0.4.8.1,0.4.9.1"));
        assert_eq!(shelf.statuses(path).len(), 2);
    }

    #[test]
    fn tables_of_countries_are_read_when_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("4");
        let torrc = format!("GeoIPFile {}\nGeoIPv6File {0}6\n", file.display());
        let host = crate::torrc::Host::empty();
        let settings = crate::torrc::load_text(&torrc, &host)
            .unwrap()
            .options
            .settings;
        let mut shelf = Shelf::default();
        let of = |shelf: &mut Shelf| {
            let tables = shelf.countries(&settings);
            (tables.knows(true), tables.of([1, 0, 0, 1].into()))
        };
        assert_eq!(of(&mut shelf), (false, *b"??"));
        std::fs::write(&file, "1.0.0.0,1.0.0.255,AU\n").unwrap();
        assert_eq!(of(&mut shelf), (true, *b"au"));
        std::fs::write(&file, "1.0.0.0,1.0.0.255,NZ,\n").unwrap();
        assert_eq!(of(&mut shelf), (false, *b"??"), "that is no table");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(of(&mut shelf), (false, *b"??"));
    }

    fn sha256(text: &str) -> [u8; 32] {
        use digest::Digest as _;
        tor_llcrypto::d::Sha256::digest(text).into()
    }

    #[test]
    fn a_file_that_is_written_anew_is_read_anew() {
        let directory = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::default();
        let file = directory.path().join(cache::CONSENSUS);
        std::fs::write(&file, CONSENSUS).unwrap();
        assert_eq!(shelf.statuses(directory.path()).len(), 2);
        std::fs::write(&file, "").unwrap();
        assert_eq!(shelf.statuses(directory.path()).len(), 0);
    }
}
