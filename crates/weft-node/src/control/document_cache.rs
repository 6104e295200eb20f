//! A cache of the files that GETINFO reads: directory documents in CacheDirectory and the tables of
//! countries. A file is read again when it has changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use weft_cell::identity::RsaIdentity;
use weft_config::settings::Settings;
use weft_dir::cache;
use weft_dir::listing::{Entry, Listing};
use weft_dir::microdesc::MicrodescStore;
use weft_path::Countries;

use super::backend::{DocumentKind, RelaySelector};
use crate::client::countries::{TABLES, path_of, read};

/// Length and modification time of a file; a change means that the file must be read again.
type Stamp = Option<(u64, SystemTime)>;

fn stamp(directory: &Path, name: &str) -> Stamp {
    stamp_of(&directory.join(name))
}

fn stamp_of(file: &Path) -> Stamp {
    let found = std::fs::metadata(file).ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// The files read so far, with their stamps.
#[derive(Debug, Default)]
pub(super) struct DocumentCache {
    consensus: (Stamp, Listing),
    microdescs: ([Stamp; 2], MicrodescStore),
    countries: ([(PathBuf, Stamp); 2], Arc<Countries>),
}

impl DocumentCache {
    /// A document of the directory at `directory`; `None`: there is no such relay or document.
    pub(super) fn find(
        &mut self,
        directory: &Path,
        which: &RelaySelector,
        document: DocumentKind,
    ) -> Option<String> {
        match document {
            DocumentKind::ConsensusNs => cache::read(directory, cache::CONSENSUS_NS).ok()?,
            DocumentKind::Consensus => cache::read(directory, cache::CONSENSUS).ok()?,
            DocumentKind::RouterStatus => {
                let consensus = self.consensus(directory);
                let mut text = String::new();
                for entry in find(consensus, which) {
                    text.push_str(&entry.status);
                }
                (*which == RelaySelector::All || !text.is_empty()).then_some(text)
            }
            DocumentKind::Versions => {
                let consensus = self.consensus(directory);
                consensus.valid_until.as_ref()?;
                Some(consensus.versions.clone())
            }
            DocumentKind::ValidAfter => self.consensus(directory).valid_after.clone(),
            DocumentKind::FreshUntil => self.consensus(directory).fresh_until.clone(),
            DocumentKind::CurrentRandom => self.consensus(directory).shared_random[0].clone(),
            DocumentKind::PreviousRandom => self.consensus(directory).shared_random[1].clone(),
            DocumentKind::ValidUntil => self.consensus(directory).valid_until.clone(),
            DocumentKind::Microdescriptor => {
                self.read_microdescs(directory);
                self.consensus(directory);
                let mut text = String::new();
                for entry in find(&self.consensus.1, which) {
                    text.push_str(self.microdescs.1.get(&entry.microdesc).map_or("", |t| t));
                }
                (*which == RelaySelector::All || !text.is_empty()).then_some(text)
            }
        }
    }

    /// The tables of countries. A table whose file is missing or unreadable is empty.
    pub(super) fn countries(&mut self, settings: &Settings) -> Arc<Countries> {
        let files = TABLES.map(|option| {
            let path = path_of(settings, option)
                .unwrap_or(Path::new(""))
                .to_owned();
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

    /// The entries of the consensus on disk, by RSA identity.
    pub(super) fn statuses(&mut self, directory: &Path) -> BTreeMap<RsaIdentity, String> {
        let entries = self.consensus(directory).entries.iter();
        entries.map(|e| (e.rsa.into(), e.status.clone())).collect()
    }

    /// The nickname of a relay that the consensus lists.
    pub(super) fn nickname(&mut self, directory: &Path, relay: &RsaIdentity) -> Option<String> {
        let entries = &self.consensus(directory).entries;
        let found = entries
            .iter()
            .find(|entry| RsaIdentity::from(entry.rsa) == *relay);
        found.map(|entry| entry.nickname.clone())
    }

    /// The relay of this nickname.
    pub(super) fn named(&mut self, directory: &Path, nickname: &str) -> Option<RsaIdentity> {
        let which = RelaySelector::Nickname(nickname.to_owned());
        let found = find(self.consensus(directory), &which);
        found.first().map(|entry| entry.rsa.into())
    }

    /// The nicknames of all relays that the consensus lists.
    pub(super) fn nicknames(&mut self, directory: &Path) -> BTreeMap<RsaIdentity, String> {
        let entries = self.consensus(directory).entries.iter();
        entries
            .map(|e| (e.rsa.into(), e.nickname.clone()))
            .collect()
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
            // A file that cannot be read counts as missing; the directory's task has logged the error.
            let _ = store.load(directory, SystemTime::now());
            self.microdescs = (found, store);
        }
    }
}

/// The entries that `which` selects. Of several relays with one nickname, the one with the most bandwidth.
fn find<'a>(listing: &'a Listing, which: &RelaySelector) -> Vec<&'a Entry> {
    let entries = listing.entries.iter();
    match which {
        RelaySelector::All => entries.collect(),
        RelaySelector::Id(id) => entries
            .filter(|e| RsaIdentity::from(e.rsa) == *id)
            .collect(),
        RelaySelector::Nickname(name) => {
            let found = entries.filter(|e| e.nickname.eq_ignore_ascii_case(name));
            found.max_by_key(|e| e.bandwidth).into_iter().collect()
        }
    }
}

#[cfg(test)]
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
    fn documents_have_c_tors_format() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = DocumentCache::default();
        let path = directory.path();
        let ask = |files: &mut DocumentCache, which: RelaySelector, document| {
            files.find(path, &which, document)
        };
        assert_eq!(
            ask(&mut files, RelaySelector::All, DocumentKind::RouterStatus).as_deref(),
            Some("")
        );
        assert_eq!(
            ask(&mut files, RelaySelector::All, DocumentKind::Consensus),
            None
        );
        let digest = Base64Unpadded::encode_string(&sha256(MICRODESC));
        let text = CONSENSUS.replace("IPge+xK2IqGmLR2qv/fwMj4WRqNBaR1uJA4cVPoVrHo", &digest);
        std::fs::write(path.join(cache::CONSENSUS), &text).unwrap();
        std::fs::write(path.join(cache::MICRODESCS_NEW), MICRODESC).unwrap();

        let all = ask(&mut files, RelaySelector::All, DocumentKind::RouterStatus).unwrap();
        let short = Base64Unpadded::encode_string(&sha256(MICRODESC)[..20]);
        let one = ONE.replace("MDDIGEST", &short);
        assert_eq!(all, format!("{one}{TWO}"));
        let id = RelaySelector::Id([1; 20].into());
        assert_eq!(
            ask(&mut files, id.clone(), DocumentKind::RouterStatus).as_deref(),
            Some(&*one)
        );
        let name = RelaySelector::Nickname("One".to_owned());
        assert_eq!(
            ask(&mut files, name, DocumentKind::RouterStatus).as_deref(),
            Some(TWO)
        );
        assert_eq!(
            ask(
                &mut files,
                RelaySelector::Id([9; 20].into()),
                DocumentKind::RouterStatus
            ),
            None
        );
        let md = DocumentKind::Microdescriptor;
        assert_eq!(ask(&mut files, id, md).as_deref(), Some(MICRODESC));
        assert_eq!(
            ask(&mut files, RelaySelector::Id([2; 20].into()), md),
            None,
            "not here"
        );
        assert_eq!(
            ask(&mut files, RelaySelector::All, md).as_deref(),
            Some(MICRODESC)
        );
        assert_eq!(
            ask(&mut files, RelaySelector::All, DocumentKind::Consensus),
            Some(text)
        );
        let until = ask(&mut files, RelaySelector::All, DocumentKind::ValidUntil);
        assert_eq!(until.as_deref(), Some("2026-11-22 04:00:00"));
        let versions = ask(&mut files, RelaySelector::All, DocumentKind::Versions);
        assert_eq!(versions.as_deref(), Some("0.4.8.1,0.4.9.1"));
        assert_eq!(files.statuses(path).len(), 2);
        let name = |files: &mut DocumentCache, id: u8| files.nickname(path, &[id; 20].into());
        assert_eq!(name(&mut files, 1).as_deref(), Some("one"));
        assert_eq!(name(&mut files, 9), None);
        assert_eq!(files.named(path, "oNe"), Some([2; 20].into()));
        assert_eq!(files.named(path, "two"), None);
        let names = files.nicknames(path);
        assert_eq!(names.get(&[2; 20].into()).map(String::as_str), Some("one"));
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn tables_of_countries_are_read_again_when_they_change() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("4");
        let torrc = format!("GeoIPFile {}\nGeoIPv6File {0}6\n", file.display());
        let host = weft_config::MemoryHost::new();
        let settings = weft_config::load_text(&torrc, &host)
            .unwrap()
            .options
            .settings;
        let mut files = DocumentCache::default();
        let of = |files: &mut DocumentCache| {
            let tables = files.countries(&settings);
            (tables.knows(true), tables.of([1, 0, 0, 1].into()))
        };
        assert_eq!(of(&mut files), (false, *b"??"));
        std::fs::write(&file, "1.0.0.0,1.0.0.255,AU\n").unwrap();
        assert_eq!(of(&mut files), (true, *b"au"));
        std::fs::write(&file, "1.0.0.0,1.0.0.255,NZ,\n").unwrap();
        assert_eq!(of(&mut files), (false, *b"??"), "that is no table");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(of(&mut files), (false, *b"??"));
    }

    fn sha256(text: &str) -> [u8; 32] {
        use digest::Digest as _;
        tor_llcrypto::d::Sha256::digest(text).into()
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = DocumentCache::default();
        let file = directory.path().join(cache::CONSENSUS);
        std::fs::write(&file, CONSENSUS).unwrap();
        assert_eq!(files.statuses(directory.path()).len(), 2);
        std::fs::write(&file, "").unwrap();
        assert_eq!(files.statuses(directory.path()).len(), 0);
    }
}
