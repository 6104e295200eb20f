//! The ed25519 identity and the medium-term signing key that it certifies.
//!
//! C tor's `load_ed_keys`, with two differences for the operator's sake: a damaged file is an
//! error where C tor would replace it, and a new identity is made only where no trace of an old
//! one is left (C tor also makes one when an offline relay's certificate runs out).

use std::path::Path;
use std::time::{Duration, SystemTime};

use rand::CryptoRng;
use tor_cert::{CertType, CertifiedKey, Ed25519Cert};
use tor_llcrypto::pk::ed25519::{Ed25519Identity, ExpandedKeypair};

use super::error::{KeyError, MasterKeyAbsence};
use super::format::{self, Kind, SigningCert};
use super::store::{self, Store};
use crate::file;

/// Rules for the renewal of signing keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Never look for the master secret key.
    pub(super) offline_master: bool,
    /// Lifetime of a new signing key.
    pub(super) lifetime: Duration,
    /// Time before its end at which a signing key is renewed.
    pub(super) slop: Duration,
}

/// Why a signing key is of no use any more, as C tor puts it.
const EXPIRED: &str = "the one I have is expired";
/// In what a certificate contradicts the master key's file.
const OTHER_MASTER: &str = "the certificate was signed by another master identity key";
/// C tor's advice wherever it needs the master key.
const ADVICE: &str = "If the master identity key was not moved or encrypted with a passphrase, this will be done \
    automatically and no further action is required. Otherwise, provide the necessary data using 'weft --keygen' to do it \
    manually.";

/// That a new signing key is needed.
pub(super) struct Need {
    /// Why.
    pub(super) why: &'static str,
    /// True if the master key may be created for it.
    pub(super) can_create: bool,
}

/// Logs it, in C tor's words.
pub(super) fn notice_need(need: &Need) {
    tracing::info!(
        notice = true,
        "It looks like I need to generate and sign a new medium-term signing key, because {}. To do that, I need to \
         load{} the permanent master identity key. {ADVICE}",
        need.why,
        if need.can_create { " (or create)" } else { "" },
    );
}

/// The ed25519 keys in use.
pub(super) struct EdKeys {
    /// Master identity.
    pub(super) identity: Ed25519Identity,
    /// Signing key.
    pub(super) signing: ExpandedKeypair,
    /// Its certificate.
    pub(super) cert: SigningCert,
    /// It runs out soon and cannot be renewed here.
    pub(super) stuck: Option<MasterKeyAbsence>,
}

/// The public half as the type that documents carry.
pub(super) fn public(key: &ExpandedKeypair) -> Ed25519Identity {
    key.public().into()
}

/// Puts the second file of a renewal in its place that was interrupted after the first.
///
/// Certificate and key change together, but are two files; the certificate is renamed first. If
/// the key next to it does not fit and the one staged beside it does, that one is the key.
pub(super) fn finish_interrupted_renewal(dir: &Path) -> Result<(), KeyError> {
    let path = dir.join(store::SIGNING_SECRET);
    let staged = file::temporary(&path);
    let key = |bytes: &[u8]| format::ed25519_key(Kind::SIGNING_SECRET, bytes);
    // Half-written files of no use are simply overwritten by the next renewal.
    let Ok(Some(new)) = store::read(&staged, key) else {
        return Ok(());
    };
    let Ok(Some(cert)) = store::read(&dir.join(store::SIGNING_CERT), format::signing_cert) else {
        return Ok(());
    };
    let fits = |key: &ExpandedKeypair| public(key) == cert.subject;
    let old_fits = match store::read(&path, key) {
        Ok(Some(old)) => fits(&old),
        Ok(None) => false,
        // Damaged: for the person to see.
        Err(_) => true,
    };
    if fits(&new) && !old_fits {
        tracing::info!(
            notice = true,
            "Finishing an interrupted change of the signing key."
        );
        file::finish(&path)?;
    }
    Ok(())
}

/// Loads identity and signing key, making what is missing or running out as far as `store` and
/// `policy` allow.
pub(super) fn load(
    store: &mut Store<'_>,
    policy: Policy,
    now: SystemTime,
    rng: &mut impl CryptoRng,
) -> Result<EdKeys, KeyError> {
    let held = load_signing(store)?;
    let (secret, public_file) = load_master(store, policy.offline_master)?;

    let identity = match (&secret, public_file, &held.pair) {
        (Some(key), None, _) => {
            let id = public(key);
            if store.can_write() {
                tracing::info!(
                    notice = true,
                    "Found secret key but not {}. Regenerating.",
                    store.path(store::MASTER_PUBLIC).display()
                );
                write_public(store, &id)?;
            }
            id
        }
        (_, Some(id), _) => id,
        (None, None, Some((_, cert))) => {
            if store.can_write() {
                tracing::warn!(
                    "Master public key was absent; inferring from public key in signing \
                     certificate and saving to disk."
                );
                write_public(store, &cert.identity)?;
            }
            cert.identity
        }
        (None, None, None) => {
            return create(store, policy, held.need(), now, rng);
        }
    };

    if let Some((_, cert)) = &held.pair
        && cert.identity != identity
    {
        return Err(KeyError::Mismatch {
            path: store.path(store::SIGNING_CERT),
            other: store.path(store::MASTER_PUBLIC),
            what: OTHER_MASTER,
        });
    }

    let need = (!held.is_valid(now)).then(|| held.need());
    let expires = held.pair.as_ref().map(|(_, cert)| cert.expires);
    let soon = expires.is_none_or(|t| now.checked_add(policy.slop).is_none_or(|then| t < then));
    match (held.pair, need, secret) {
        (Some((signing, cert)), None, secret)
            if !soon || !store.can_write() || secret.is_none() =>
        {
            let stuck = (soon && secret.is_none()).then(|| absence(store, policy.offline_master));
            Ok(EdKeys {
                identity,
                signing,
                cert,
                stuck,
            })
        }
        (_, _, Some(master)) => {
            match need {
                Some(why) => notice_need(&Need {
                    why,
                    can_create: false,
                }),
                None => tracing::info!(
                    notice = true,
                    "It looks like I should try to generate and sign a new medium-term signing key, because the one I \
                     have is going to expire soon. {ADVICE}"
                ),
            }
            let (signing, cert) = new_signing(store, &master, policy.lifetime, now, rng)?;
            Ok(EdKeys {
                identity,
                signing,
                cert,
                stuck: None,
            })
        }
        (_, need, None) => Err(KeyError::NoMasterKey {
            need: need.unwrap_or(EXPIRED),
            why: absence(store, policy.offline_master),
        }),
    }
}

/// Signing key and certificate on disk.
pub(super) struct Held {
    /// Both, if both are there.
    pair: Option<(ExpandedKeypair, SigningCert)>,
    /// Only the key is there.
    key_alone: bool,
    /// Only the certificate is there.
    cert_alone: bool,
}

impl Held {
    /// True if both exist and the certificate has not expired.
    pub(super) fn is_valid(&self, now: SystemTime) -> bool {
        self.pair
            .as_ref()
            .is_some_and(|(_, cert)| cert.expires >= now)
    }

    /// Why a new signing key is needed where none is valid.
    pub(super) fn need(&self) -> &'static str {
        match (&self.pair, self.key_alone, self.cert_alone) {
            (Some(_), ..) => EXPIRED,
            (None, true, _) => "ed25519_signing_cert is missing",
            (None, _, true) => "ed25519_signing_secret_key is missing",
            (None, false, false) => "I don't have one",
        }
    }
}

/// Reads signing key and certificate and checks that they belong together.
pub(super) fn load_signing(store: &Store<'_>) -> Result<Held, KeyError> {
    let key = store.read(store::SIGNING_SECRET, |bytes| {
        format::ed25519_key(Kind::SIGNING_SECRET, bytes)
    })?;
    let cert = store.read(store::SIGNING_CERT, format::signing_cert)?;
    let (key_alone, cert_alone) = (
        cert.is_none() && key.is_some(),
        key.is_none() && cert.is_some(),
    );
    let pair = key.zip(cert);
    if let Some((key, cert)) = &pair
        && cert.subject != public(key)
    {
        return Err(KeyError::Mismatch {
            path: store.path(store::SIGNING_CERT),
            other: store.path(store::SIGNING_SECRET),
            what: "the certificate is for another signing key",
        });
    }
    Ok(Held {
        pair,
        key_alone,
        cert_alone,
    })
}

/// Reads the master identity's two halves, as far as they are here.
fn load_master(
    store: &Store<'_>,
    offline: bool,
) -> Result<(Option<ExpandedKeypair>, Option<Ed25519Identity>), KeyError> {
    let secret = if offline {
        None
    } else {
        store.read(store::MASTER_SECRET, |bytes| {
            format::ed25519_key(Kind::MASTER_SECRET, bytes)
        })?
    };
    let public_file = store.read(store::MASTER_PUBLIC, format::ed25519_public)?;
    if let (Some(secret), Some(id)) = (&secret, &public_file)
        && public(secret) != *id
    {
        return Err(KeyError::Mismatch {
            path: store.path(store::MASTER_PUBLIC),
            other: store.path(store::MASTER_SECRET),
            what: "the public key is not the secret key's",
        });
    }
    Ok((secret, public_file))
}

/// Why the master secret is not at hand.
fn absence(store: &Store<'_>, offline: bool) -> MasterKeyAbsence {
    if offline {
        MasterKeyAbsence::Offline
    } else if store.exists(store::MASTER_ENCRYPTED) {
        MasterKeyAbsence::Encrypted
    } else {
        MasterKeyAbsence::Missing
    }
}

/// The identity alone, of files that belong together: its signing key may have run out, and nothing is made.
pub(super) fn identity(store: &Store<'_>) -> Result<Ed25519Identity, KeyError> {
    let held = load_signing(store)?;
    let (secret, public_file) = load_master(store, false)?;
    let certified = held.pair.map(|(_, cert)| cert.identity);
    let identity = public_file
        .or_else(|| secret.as_ref().map(public))
        .or(certified)
        .ok_or_else(|| KeyError::Missing(store.path(store::MASTER_PUBLIC)))?;
    match certified {
        Some(certified) if certified != identity => Err(KeyError::Mismatch {
            path: store.path(store::SIGNING_CERT),
            other: store.path(store::MASTER_PUBLIC),
            what: OTHER_MASTER,
        }),
        _ => Ok(identity),
    }
}

/// Makes an identity and its first signing key, unless there are traces of an older identity.
fn create(
    store: &mut Store<'_>,
    policy: Policy,
    need: &'static str,
    now: SystemTime,
    rng: &mut impl CryptoRng,
) -> Result<EdKeys, KeyError> {
    if !store.can_write() {
        return Err(KeyError::Missing(store.path(store::MASTER_PUBLIC)));
    }
    let traces = [
        store::MASTER_ENCRYPTED,
        store::SIGNING_CERT,
        store::SIGNING_SECRET,
    ];
    if policy.offline_master || traces.iter().any(|name| store.exists(name)) {
        return Err(KeyError::NoMasterKey {
            need,
            why: absence(store, policy.offline_master),
        });
    }
    notice_need(&Need {
        why: need,
        can_create: true,
    });
    let file = store::new_ed25519_file(Kind::MASTER_SECRET, rng);
    let master = format::ed25519_key(Kind::MASTER_SECRET, &file)
        .map_err(|_| KeyError::Crypto("make an ed25519 key"))?;
    let identity = public(&master);
    store.write(store::MASTER_SECRET, &file)?;
    write_public(store, &identity)?;
    let (signing, cert) = new_signing(store, &master, policy.lifetime, now, rng)?;
    Ok(EdKeys {
        identity,
        signing,
        cert,
        stuck: None,
    })
}

/// Stages the public half of the identity.
fn write_public(store: &mut Store<'_>, id: &Ed25519Identity) -> Result<(), KeyError> {
    store.write(
        store::MASTER_PUBLIC,
        &format::tag(Kind::MASTER_PUBLIC, id.as_bytes()),
    )
}

/// Makes, certifies and stages a signing key.
pub(super) fn new_signing(
    store: &mut Store<'_>,
    master: &ExpandedKeypair,
    lifetime: Duration,
    now: SystemTime,
    rng: &mut impl CryptoRng,
) -> Result<(ExpandedKeypair, SigningCert), KeyError> {
    let key_file = store::new_ed25519_file(Kind::SIGNING_SECRET, rng);
    let failed = KeyError::Crypto("certify a signing key");
    let Ok(key) = format::ed25519_key(Kind::SIGNING_SECRET, &key_file) else {
        return Err(failed);
    };
    let Some(expires) = now.checked_add(lifetime) else {
        return Err(failed);
    };
    let encoded = Ed25519Cert::builder()
        .cert_type(CertType::IDENTITY_V_SIGNING)
        .expiration(expires)
        .cert_key(CertifiedKey::Ed25519(public(&key)))
        .signing_key(public(master))
        .encode_and_sign(master);
    let Ok(encoded) = encoded else {
        return Err(failed);
    };
    let cert_file = format::tag(Kind::SIGNING_CERT, &encoded);
    let Ok(cert) = format::signing_cert(&cert_file) else {
        return Err(failed);
    };
    // In this order: see `finish_interrupted_renewal`.
    store.write(store::SIGNING_CERT, &cert_file)?;
    store.write(store::SIGNING_SECRET, &key_file)?;
    Ok((key, cert))
}
