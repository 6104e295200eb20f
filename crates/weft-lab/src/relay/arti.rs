//! Arti's relay, as a target: the configuration of one that is alone on loopback, and the keys in its
//! keystore.
//!
//! The keystore is a folder of OpenSSH private keys (PROTOCOL.key of OpenSSH; names of algorithms that
//! OpenSSH lacks: torspec, "SSH protocols"). Only their public parts are read.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base64ct::{Base64, Encoding as _};
use tor_bytes::Reader;
use tor_llcrypto::pk::rsa::PublicKey;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use super::aim::Known;

/// The program that is looked for.
pub(super) const PROGRAM: &str = "arti-relay";

/// Where the keys of the relay lie under its `state_dir`.
const KEYS: &str = "keystore/relay";
/// No key file is as long as this.
const MAX_KEY: u64 = 64 << 10;

/// The configuration of a relay that listens on `address` only, and knows nobody but a port on
/// loopback where nobody listens.
///
/// All four lists of addresses must be there: each that is missing would be the public network's. The
/// folders are relative to the one that it is started in.
pub(super) fn config(address: SocketAddr) -> String {
    format!(
        "[relay]\n\
         listen = [\"{address}\"]\n\
         advertise = {{ ipv4 = [\"{address}\"], ipv6 = [] }}\n\
         [tor_network]\n\
         fallback_caches = [{{ rsa_identity = \"{rsa}\", ed_identity = \"{ed25519}\", orports = [\"127.0.0.1:1\"] }}]\n\
         [tor_network.authorities]\n\
         v3idents = [\"{rsa}\"]\n\
         uploads = [[\"127.0.0.1:1\"]]\n\
         downloads = [[\"127.0.0.1:1\"]]\n\
         votes = [[\"127.0.0.1:1\"]]\n\
         [storage]\n\
         state_dir = \"data\"\n\
         cache_dir = \"cache\"\n\
         [logging]\n\
         console = \"warn\"\n",
        rsa = "A".repeat(40),
        ed25519 = "A".repeat(43),
    )
}

/// True if Arti keeps its state in this folder.
pub(super) fn is_state(folder: &Path) -> bool {
    folder.join(KEYS).is_dir()
}

/// The keys of the relay whose `state_dir` this is. Its address is not there.
pub(super) fn keys(state: &Path) -> Result<Known> {
    let folder = state.join(KEYS);
    let rsa = public_part(&folder.join("ks_relayid_rsa.rsa_private"))?;
    let ed25519 = public_part(&folder.join("ks_relayid_ed.ed25519_private"))?;
    let ntor = public_part(&newest_ntor(&folder)?)?;
    Ok(Known {
        address: None,
        rsa: Some(rsa_identity(&rsa)?),
        ed25519: Some(Ed25519Identity(plain_key(&ed25519, b"ssh-ed25519")?)),
        ntor: Some(plain_key(&ntor, b"x25519@spec.torproject.org")?),
    })
}

/// The ntor onion key that ends last, which is the current one. Its name has the time when it ends, in
/// 14 digits.
fn newest_ntor(folder: &Path) -> Result<PathBuf> {
    let doing = || format!("reading {}", folder.display());
    let mut newest: Option<String> = None;
    for entry in fs::read_dir(folder).with_context(doing)? {
        let name = entry.with_context(doing)?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("ks_ntor+") && name.ends_with(".x25519_private") {
            newest = newest.max(Some(name.to_owned()));
        }
    }
    match newest {
        Some(name) => Ok(folder.join(name)),
        None => bail!("{} has no ntor onion key", folder.display()),
    }
}

/// The public key that a file with a private one begins with, in the form of RFC 4253 section 6.6.
fn public_part(path: &Path) -> Result<Vec<u8>> {
    let doing = || format!("reading {}", path.display());
    let mut text = String::new();
    File::open(path)
        .with_context(doing)?
        .take(MAX_KEY)
        .read_to_string(&mut text)
        .with_context(doing)?;
    let key = decode(&text);
    key.with_context(|| format!("{} is no OpenSSH private key", path.display()))
}

fn decode(text: &str) -> Result<Vec<u8>> {
    let (_, text) = text
        .split_once("-----BEGIN OPENSSH PRIVATE KEY-----")
        .context("it does not begin like one")?;
    let (text, _) = text
        .split_once("-----END OPENSSH PRIVATE KEY-----")
        .context("it does not end like one")?;
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = Base64::decode_vec(&text).context("it is not base64")?;
    let mut reader = Reader::from_slice(&bytes);
    ensure!(
        reader.take_until(0)? == b"openssh-key-v1",
        "its first word is another"
    );
    // The public keys are not encrypted even where the private ones are.
    let (_cipher, _kdf, _options) = (
        string(&mut reader)?,
        string(&mut reader)?,
        string(&mut reader)?,
    );
    ensure!(reader.take_u32()? == 1, "it is not one key");
    Ok(string(&mut reader)?.to_vec())
}

/// Bytes with their length before them (RFC 4251 section 5, "string").
fn string<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = usize::try_from(reader.take_u32()?)?;
    Ok(reader.take(length)?)
}

/// A public key that is 32 bytes after the name of its algorithm.
fn plain_key(key: &[u8], algorithm: &[u8]) -> Result<[u8; 32]> {
    let mut reader = Reader::from_slice(key);
    let found = string(&mut reader)?;
    ensure!(
        found == algorithm,
        "a key in Arti's keystore is of {}, not of {}",
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(algorithm)
    );
    let key = string(&mut reader)?;
    key.try_into()
        .context("a key in Arti's keystore has not 32 bytes")
}

/// SHA-1 of an RSA key as Tor encodes it: exponent and modulus come after the algorithm's name.
fn rsa_identity(key: &[u8]) -> Result<RsaIdentity> {
    let mut reader = Reader::from_slice(key);
    ensure!(
        string(&mut reader)? == b"ssh-rsa",
        "the RSA identity in Arti's keystore is no RSA key"
    );
    let mut number = || string(&mut reader).map(rsa::BigUint::from_bytes_be);
    let (exponent, modulus) = (number()?, number()?);
    let key = rsa::RsaPublicKey::new(modulus, exponent)
        .context("the RSA identity in Arti's keystore is damaged")?;
    Ok(PublicKey::from(key).to_rsa_identity().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const X25519: &str = "x25519@spec.torproject.org";

    fn string_of(bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).expect("a short string");
        [&length.to_be_bytes(), bytes].concat()
    }

    /// A key file whose public key has these parts.
    fn file(parts: &[&[u8]]) -> String {
        let public = parts
            .iter()
            .flat_map(|part| string_of(part))
            .collect::<Vec<u8>>();
        let bytes = [
            b"openssh-key-v1\0".to_vec(),
            string_of(b"none"),
            string_of(b"none"),
            string_of(b""),
            vec![0, 0, 0, 1],
            string_of(&public),
            string_of(b"the private part, which is not looked at"),
        ]
        .concat();
        let text = Base64::encode_string(&bytes);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(70)
            .map(|line| std::str::from_utf8(line).expect("base64"))
            .collect();
        format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
            lines.join("\n")
        )
    }

    /// A `state_dir` with a whole keystore; the current ntor key is of ones.
    fn state() -> tempfile::TempDir {
        let state = tempfile::tempdir().expect("a folder");
        let modulus = [&[0], [0xC1; 128].as_slice()].concat();
        for (name, key) in [
            (
                "ks_relayid_rsa.rsa_private",
                file(&[b"ssh-rsa", &[1, 0, 1], &modulus]),
            ),
            (
                "ks_relayid_ed.ed25519_private",
                file(&[b"ssh-ed25519", &[3; 32]]),
            ),
            (
                "ks_ntor+20260201000000.x25519_private",
                file(&[X25519.as_bytes(), &[1; 32]]),
            ),
            (
                "ks_ntor+20260101000000.x25519_private",
                file(&[X25519.as_bytes(), &[2; 32]]),
            ),
            ("ks_link_ed+20270101000000.ed25519_private", String::new()),
        ] {
            put(state.path(), name, &key);
        }
        state
    }

    fn put(state: &Path, name: &str, text: &str) {
        let folder = state.join(KEYS);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), text).expect("a file");
    }

    #[test]
    fn the_keystore_has_identities_and_the_newest_onion_key() {
        let state = state();
        let known = Known::from_data_directory(state.path()).expect("all keys");
        let rsa = known.rsa.map(hex::encode);
        // SHA-1 of that key's DER, as another program computed it.
        assert_eq!(
            rsa.as_deref(),
            Some("f2d28379501d197113eec59ac266119e6ab74d41")
        );
        assert_eq!(
            (known.ed25519, known.ntor),
            (Some([3; 32].into()), Some([1; 32]))
        );
        assert_eq!(known.address, None);
    }

    #[test]
    fn what_is_no_key_is_an_error() {
        let ntor = "ks_ntor+20260301000000.x25519_private";
        let whole = file(&[X25519.as_bytes(), &[1; 32]]);
        for (text, expected) in [
            (String::new(), "does not begin"),
            (whole.replace("-----END", "-----"), "does not end"),
            (whole.replace('\n', "\n?"), "not base64"),
            (file(&[b"ssh-ed25519", &[1; 32]]), "not of x25519"),
            (file(&[X25519.as_bytes(), &[1; 31]]), "32 bytes"),
            (file(&[X25519.as_bytes()]), ""),
        ] {
            let state = state();
            put(state.path(), ntor, &text);
            let error = Known::from_data_directory(state.path()).expect_err("no key");
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[test]
    fn a_key_that_is_missing_is_an_error() {
        for (start, expected) in [
            ("ks_relayid_ed", "ks_relayid_ed.ed25519_private"),
            ("ks_relayid_rsa", "ks_relayid_rsa.rsa_private"),
            ("ks_ntor", "no ntor onion key"),
        ] {
            let state = state();
            for entry in fs::read_dir(state.path().join(KEYS)).expect("a folder") {
                let path = entry.expect("a file").path();
                if path.to_string_lossy().contains(start) {
                    fs::remove_file(path).expect("it was there");
                }
            }
            let error = keys(state.path()).expect_err("it is gone").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_relay_knows_of_nothing_outside_this_machine() {
        let text = config("127.0.0.1:5001".parse().expect("an address"));
        for list in [
            "fallback_caches",
            "v3idents",
            "uploads",
            "downloads",
            "votes",
        ] {
            assert!(text.contains(&format!("\n{list} = [")), "{list}: {text}");
        }
        let addresses: Vec<SocketAddr> = text
            .split('"')
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(addresses.len(), 6, "{text}");
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    }
}
