//! Where a relay's address and keys are read: its DataDirectory, and files of descriptors.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use weft_cell::identity::Ed25519Identity;
use weft_datadir::keys::{KeyConfig, RelayKeys};

use super::aim::{Known, fingerprint, key};
use super::arti;

/// The longest file of descriptors that is read: a `cached-descriptors` of the whole public network
/// takes about 30 MB.
const MAX_DESCRIPTORS: u64 = 256 << 20;

impl Known {
    /// The keys in a relay's DataDirectory, or in the `state_dir` of Arti's relay. Its address is not
    /// there.
    ///
    /// # Errors
    ///
    /// The folder has no keys of a relay, they are damaged, or they are not this user's.
    pub fn from_data_directory(folder: &Path) -> Result<Known> {
        if arti::is_state(folder) {
            return arti::keys(folder);
        }
        let config = KeyConfig::new(folder);
        let keys = RelayKeys::load(&config, SystemTime::now(), &mut rand::rng())
            .with_context(|| format!("reading the relay's keys under {}", folder.display()))?;
        Ok(Known {
            address: None,
            rsa: Some(keys.rsa_id().into()),
            ed25519: Some(keys.ed_identity.into()),
            ntor: Some(keys.ntor.current.public),
        })
    }

    /// A relay in a file of server descriptors or microdescriptors: C tor's `cached-descriptors` or
    /// `cached-microdescs`, or one descriptor. `wanted` is its nickname or fingerprint, which may
    /// be left out where the file has only one.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has not exactly one such relay.
    pub(crate) fn from_descriptors(path: &Path, wanted: Option<&str>) -> Result<Known> {
        let name = path.display();
        let size = fs::metadata(path).with_context(|| format!("reading {name}"))?;
        ensure!(
            size.len() <= MAX_DESCRIPTORS,
            "{name} is too long for a file of descriptors"
        );
        let text = fs::read(path).with_context(|| format!("reading {name}"))?;
        let text = String::from_utf8_lossy(&text);
        let mut found = descriptors(&text)
            .into_iter()
            .filter(|one| wanted.is_none_or(|wanted| one.is(wanted)));
        let wanted = wanted
            .map(|wanted| format!(" of {wanted}"))
            .unwrap_or_default();
        let first = found
            .next()
            .with_context(|| format!("{name} has no descriptor{wanted}"))?;
        // Of one relay the file may have several; the last is the newest (C tor appends to
        // cached-descriptors.new).
        let mut last = first.known;
        for one in found {
            ensure!(
                one.known.rsa == last.rsa && one.known.ed25519 == last.ed25519,
                "{name} has descriptors of several relays{wanted}: name one by --relay"
            );
            last = one.known;
        }
        Ok(last)
    }
}

/// One descriptor of a file.
#[derive(Clone, Debug, Default)]
struct Descriptor {
    nickname: Option<String>,
    known: Known,
}

impl Descriptor {
    fn is(&self, wanted: &str) -> bool {
        self.nickname.as_deref() == Some(wanted)
            || (self.known.rsa.is_some() && fingerprint(wanted).ok() == self.known.rsa)
            || (self.known.ed25519.is_some()
                && key(wanted).ok().map(Ed25519Identity) == self.known.ed25519)
    }
}

/// Cuts a file into descriptors and takes from each the lines that matter (dir-spec 2.1.1, 3.3).
/// Signatures are not checked: the user vouches for the file.
fn descriptors(text: &str) -> Vec<Descriptor> {
    let mut all: Vec<Descriptor> = Vec::new();
    let (mut first_line, mut microdescriptors) = (true, false);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(keyword) = words.next().filter(|word| !word.starts_with('@')) else {
            continue;
        };
        // A microdescriptor begins with its `onion-key` line, which a server descriptor has inside.
        if std::mem::take(&mut first_line) {
            microdescriptors = keyword == "onion-key";
        }
        if keyword == "router" || (microdescriptors && keyword == "onion-key") {
            all.push(Descriptor::default());
        }
        let Some(last) = all.last_mut() else {
            continue;
        };
        let words: Vec<&str> = words.collect();
        match (keyword, words.as_slice()) {
            ("router", [nickname, address, port, ..]) => {
                last.nickname = Some((*nickname).to_owned());
                let address = address.parse::<IpAddr>().ok().zip(port.parse().ok());
                last.known.address = address.map(SocketAddr::from);
            }
            ("fingerprint", digits) => last.known.rsa = fingerprint(&digits.concat()).ok(),
            ("ntor-onion-key", [value, ..]) => last.known.ntor = key(value).ok(),
            ("master-key-ed25519", [value, ..]) | ("id", ["ed25519", value, ..]) => {
                last.known.ed25519 = key(value).ok().map(Ed25519Identity);
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::aim::Aim;

    const SERVER: &str = "\
@downloaded-at 2026-01-01 00:00:00
router one 127.0.0.1 5001 0 0
master-key-ed25519 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE
fingerprint 0101 0101 0101 0101 0101 0101 0101 0101 0101 0101
onion-key
ntor-onion-key AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=
router two 127.0.0.1 5002 0 0
fingerprint 0202 0202 0202 0202 0202 0202 0202 0202 0202 0202
ntor-onion-key AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM
";

    fn read(text: &str, wanted: Option<&str>) -> Result<Known> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), text)?;
        Known::from_descriptors(file.path(), wanted)
    }

    #[test]
    fn a_server_descriptor_has_everything() {
        let one = Aim {
            address: "127.0.0.1:5001".parse().expect("an address"),
            rsa: [1; 20].into(),
            ed25519: Some([1; 32].into()),
            ntor: [2; 32],
        };
        for wanted in ["one", &"01".repeat(20), &format!("${}", "01".repeat(20))] {
            let known = read(SERVER, Some(wanted)).expect("a descriptor");
            assert_eq!(known.aim().expect("all of it"), one);
        }
    }

    #[test]
    fn a_relay_must_be_named_where_there_are_several() {
        let error = read(SERVER, None).expect_err("there are two").to_string();
        assert!(error.contains("several relays"), "{error}");
        let error = read(SERVER, Some("three")).expect_err("there is none");
        assert!(error.to_string().contains("of three"), "{error}");
    }

    #[test]
    fn the_newest_descriptor_of_a_relay_counts() {
        let newer = SERVER.replace("5001", "6001");
        let known = read(&format!("{SERVER}{newer}"), Some("one")).expect("descriptors");
        assert_eq!(known.address.map(|address| address.port()), Some(6001));
    }

    #[test]
    fn a_microdescriptor_lacks_the_address_and_flags_add_it() {
        let text = "onion-key\nntor-onion-key AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI\n\
                    id ed25519 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE\n";
        let known = read(text, None).expect("a microdescriptor");
        let error = known.aim().expect_err("no address").to_string();
        assert!(error.contains("address"), "{error}");
        let flags = Known {
            address: Some("127.0.0.1:1".parse().expect("an address")),
            rsa: Some([9; 20].into()),
            ..Known::default()
        };
        let aim = flags.or(known).aim().expect("all of it");
        assert_eq!((aim.rsa, aim.ntor), ([9; 20].into(), [2; 32]));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "AQ", "=", "not base64 at all", &"A".repeat(44)] {
            assert!(key(text).is_err(), "{text}");
        }
        assert!(fingerprint("0101").is_err());
    }
}
