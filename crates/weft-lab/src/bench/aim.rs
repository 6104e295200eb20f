//! Which relay is measured: its address, identities and ntor onion key, and where they are read.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use base64ct::{Base64, Base64Unpadded, Encoding as _};
use weft_node::keys::{KeyConfig, RelayKeys};

use super::arti;

/// The longest file of descriptors that is read: a `cached-descriptors` of the whole public network
/// takes about 30 MB.
const MAX_DESCRIPTORS: u64 = 256 << 20;

/// A relay as circuits need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Its ORPort.
    pub address: SocketAddr,
    /// SHA-1 of its RSA identity key.
    pub rsa: [u8; 20],
    /// Its ed25519 identity key; not checked if absent.
    pub ed25519: Option<[u8; 32]>,
    /// Its ntor onion key.
    pub ntor: [u8; 32],
}

/// What is known of a relay so far. Sources are merged: what came first stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Its ORPort.
    pub address: Option<SocketAddr>,
    /// SHA-1 of its RSA identity key.
    pub rsa: Option<[u8; 20]>,
    /// Its ed25519 identity key.
    pub ed25519: Option<[u8; 32]>,
    /// Its ntor onion key.
    pub ntor: Option<[u8; 32]>,
}

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
            rsa: Some(keys.rsa_id().to_bytes()),
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
    pub fn from_descriptors(path: &Path, wanted: Option<&str>) -> Result<Known> {
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

    /// Takes from `other` what is missing.
    #[must_use]
    pub fn or(self, other: Known) -> Known {
        Known {
            address: self.address.or(other.address),
            rsa: self.rsa.or(other.rsa),
            ed25519: self.ed25519.or(other.ed25519),
            ntor: self.ntor.or(other.ntor),
        }
    }

    /// The relay, if all is known that must be.
    ///
    /// # Errors
    ///
    /// Names what is missing.
    pub fn aim(self) -> Result<Aim> {
        let missing = |what| format!("the relay's {what} is not known");
        Ok(Aim {
            address: self.address.with_context(|| missing("address"))?,
            rsa: self
                .rsa
                .with_context(|| missing("RSA identity (fingerprint)"))?,
            ed25519: self.ed25519,
            ntor: self.ntor.with_context(|| missing("ntor onion key"))?,
        })
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
            || (self.known.ed25519.is_some() && key(wanted).ok() == self.known.ed25519)
    }
}

/// Cuts a file into descriptors and takes from each the lines that matter (dir-spec 2.1.1, 3.3).
/// Signatures are not checked: the file is the user's own word.
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
                last.known.ed25519 = key(value).ok();
            }
            _ => {}
        }
    }
    all
}

/// 40 hexadecimal digits, with or without spaces and a `$`.
///
/// # Errors
///
/// They are not that.
pub fn fingerprint(text: &str) -> Result<[u8; 20]> {
    let digits: String = text.split_whitespace().collect();
    let digits = digits.strip_prefix('$').unwrap_or(&digits);
    let mut bytes = [0; 20];
    match hex::decode_to_slice(digits, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => bail!("{text:?} is no fingerprint: it should be 40 hexadecimal digits"),
    }
}

/// A key of 32 bytes in base64, with or without `=`, as descriptors have it.
///
/// # Errors
///
/// It is not that.
pub fn key(text: &str) -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let decoded = if text.ends_with('=') {
        Base64::decode(text, &mut bytes)
    } else {
        Base64Unpadded::decode(text, &mut bytes)
    };
    match decoded.map(<[u8]>::len) {
        Ok(32) => Ok(bytes),
        _ => bail!("{text:?} is no key: it should be 32 bytes in base64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_server_descriptor_says_all() {
        let one = Aim {
            address: "127.0.0.1:5001".parse().expect("an address"),
            rsa: [1; 20],
            ed25519: Some([1; 32]),
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
            rsa: Some([9; 20]),
            ..Known::default()
        };
        let aim = flags.or(known).aim().expect("all of it");
        assert_eq!((aim.rsa, aim.ntor), ([9; 20], [2; 32]));
    }

    #[test]
    fn what_is_no_key_is_told() {
        for text in ["", "AQ", "=", "not base64 at all", &"A".repeat(44)] {
            assert!(key(text).is_err(), "{text}");
        }
        assert!(fingerprint("0101").is_err());
    }
}
