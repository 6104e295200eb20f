//! Onion keys: ntor keys of circuit handshakes, their rotation, and the dummy TAP key.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rand::CryptoRng;
use tor_llcrypto::pk::rsa;
use zeroize::Zeroizing;

use super::error::KeyError;
use super::format::{self, Kind};
use super::store::{self, Store};
use crate::file::{self, FileError};

/// Seconds of a day.
const DAY: u64 = 24 * 60 * 60;

/// The key of the state file for the last rotation of onion keys.
pub(super) const LAST_ROTATED: &str = "LastRotatedOnionKey";

/// One ntor onion key (tor-spec 5.1.4: b and B).
#[derive(Clone)]
pub struct NtorKeypair {
    /// Wiped when dropped.
    pub secret: Zeroizing<[u8; 32]>,
    /// As descriptors carry it.
    pub public: [u8; 32],
}

impl std::fmt::Debug for NtorKeypair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NtorKeypair({})", hex::encode(self.public))
    }
}

/// The ntor onion keys that circuits may be built with.
#[derive(Clone, Debug)]
pub struct NtorKeys {
    /// The one in our descriptor.
    pub current: NtorKeypair,
    /// The one before, for clients that have not seen the new descriptor yet.
    pub previous: Option<NtorKeypair>,
}

/// Lifetimes of onion keys, from consensus parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnionKeyParams {
    /// `onion-key-rotation-days`.
    pub lifetime: Duration,
    /// `onion-key-grace-period-days`.
    pub grace: Duration,
}

impl OnionKeyParams {
    /// From the consensus parameters' values, clamped as C tor does: rotation to 1..=90 days,
    /// grace to 1 day ..= rotation.
    pub fn from_days(rotation: i32, grace: i32) -> Self {
        let rotation = rotation.clamp(1, 90);
        let grace = grace.clamp(1, rotation);
        let days = |n: i32| Duration::from_secs(DAY * u64::from(n.unsigned_abs()));
        Self {
            lifetime: days(rotation),
            grace: days(grace),
        }
    }
}

impl Default for OnionKeyParams {
    /// 28 days, 7 days of grace.
    fn default() -> Self {
        Self::from_days(28, 7)
    }
}

/// Reads an ntor key file.
fn decode_ntor(bytes: &[u8]) -> Result<NtorKeypair, format::FormatError> {
    let (secret, public) = format::ntor_key(bytes)?;
    Ok(NtorKeypair { secret, public })
}

/// A fresh ntor key and its file.
fn new_ntor(rng: &mut impl CryptoRng) -> (NtorKeypair, Zeroizing<Vec<u8>>) {
    let mut secret = Zeroizing::new([0; 32]);
    rng.fill_bytes(secret.as_mut_slice());
    // Clamped, as C tor writes it (curve25519 clamps again when using it).
    let [first, .., last] = &mut *secret;
    *first &= 248;
    *last = *last & 127 | 64;
    let public = format::ntor_public(&secret);
    let mut contents = Zeroizing::new(Vec::with_capacity(64));
    contents.extend_from_slice(secret.as_slice());
    contents.extend_from_slice(&public);
    let file = format::tag(Kind::NTOR, &contents);
    (NtorKeypair { secret, public }, file)
}

/// Checks that the existing ntor keys can be read.
pub(super) fn check(store: &Store<'_>) -> Result<(), KeyError> {
    store.read(store::NTOR, decode_ntor)?;
    // As `load_ntor` reads it.
    if !store.is_folder(store::NTOR_OLD) {
        store.read(store::NTOR_OLD, decode_ntor)?;
    }
    Ok(())
}

/// Loads the ntor keys; makes the current one where there is none. A missing previous key is
/// not made up.
pub(super) fn load_ntor(
    store: &mut Store<'_>,
    rng: &mut impl CryptoRng,
) -> Result<NtorKeys, KeyError> {
    // Bridges of several processes with one identity have a folder there, so that none of them rotates.
    let previous = match store.is_folder(store::NTOR_OLD) {
        true => {
            tracing::warn!(
                "{} is a folder: onion keys are not rotated. Remove it, unless that is why you made it.",
                store.path(store::NTOR_OLD).display()
            );
            None
        }
        false => store.read(store::NTOR_OLD, decode_ntor)?,
    };
    let current = match store.read(store::NTOR, decode_ntor)? {
        Some(key) => key,
        None if store.can_write() => {
            let (key, file) = new_ntor(rng);
            tracing::info!(
                "No key found in {}; generating fresh key.",
                store.path(store::NTOR).display()
            );
            store.write(store::NTOR, &file)?;
            key
        }
        None => return Err(KeyError::Missing(store.path(store::NTOR))),
    };
    // C tor keeps a rotated key twice if it is stopped at the wrong moment.
    let previous = previous.filter(|p| p.public != current.public);
    Ok(NtorKeys { current, previous })
}

/// Replaces both onion keys on disk; what was current becomes `.old`. Returns the new ones.
pub(super) fn rotate(
    dir: &Path,
    rng: &mut impl CryptoRng,
) -> Result<(NtorKeypair, rsa::KeyPair), KeyError> {
    let mut store = Store::writable(dir);
    // The old ones first: whenever this is interrupted, the current files are there, and the key
    // that clients know is in one of the two.
    for (current, old) in [(store::TAP, store::TAP_OLD), (store::NTOR, store::NTOR_OLD)] {
        if let Some(bytes) = file::read(&store.path(current), format::MAX_LEN)? {
            store.write(old, &bytes)?;
        }
    }
    let (tap, tap_pem) = store::new_rsa_key(rng)?;
    let (ntor, ntor_file) = new_ntor(rng);
    store.write(store::TAP, tap_pem.as_bytes())?;
    store.write(store::NTOR, &ntor_file)?;
    store.commit()?;
    Ok((ntor, tap))
}

/// Removes the previous onion keys from disk. Returns whether there were any.
pub(super) fn forget_previous(dir: &Path) -> Result<bool, KeyError> {
    let mut any = false;
    for name in [store::TAP_OLD, store::NTOR_OLD] {
        let path = dir.join(name);
        match std::fs::remove_file(&path) {
            Ok(()) => any = true,
            // Nothing, or a folder, which is no key.
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory
                ) => {}
            Err(e) => return Err(FileError::new("remove", &path, e).into()),
        }
    }
    Ok(any)
}

/// When the onion keys were set, given the state file (C tor's `init_keys`): a time in
/// the future or long past is not believed, and the clock starts now.
pub(super) fn set_at(last_rotated: Option<SystemTime>, now: SystemTime) -> Option<SystemTime> {
    let earliest = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    last_rotated.filter(|&t| t > earliest && t < now)
}
