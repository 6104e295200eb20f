//! The node's identity: keys, what is made of them, and the directories that hold them.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rand::CryptoRng;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_config::Options;
use weft_core::handshake::{IdentityKeys, LinkCertLifetimes};
use weft_crypto::handshake::OnionKeys;
use weft_datadir::dir::{DirError, check_private};
use weft_datadir::keys::{KeyConfig, RelayKeys};
use weft_tls::{LinkLifetimes, LinkTls, LinkTlsError};

use super::error::StartError;
use super::family::{self, Families};

/// Interval at which the signing key's lifetime is checked, as in C tor.
pub(super) const SIGNING_CHECK: Duration = Duration::from_secs(30);

/// The keys, and what other threads use of them.
///
/// [`load`](Self::load) at the start; `upkeep.rs` renews the signing key and rotates the onion keys.
#[derive(Debug)]
pub(super) struct Identity {
    /// `None`: the node is a client alone.
    pub(super) keys: Option<RelayKeys>,
    /// The keys of the families that the relay is in.
    pub(super) families: Families,
    /// The operator was warned of a family without a list.
    pub(super) warned_of_family: bool,
    /// For the onionskin workers.
    pub(super) onion_keys: Option<OnionKeys>,
    /// For links.
    pub(super) tls: Arc<LinkTls>,
    pub(super) next_signing_check: Instant,
    pub(super) next_onion_check: Instant,
}

impl Identity {
    /// Reads the keys of a relay, or makes them; a client makes new ones each time.
    ///
    /// # Errors
    ///
    /// The keys cannot be read or written, or are no keys of a relay.
    pub(super) fn load(
        options: &Options,
        now: Instant,
        wall: SystemTime,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, StartError> {
        let keys = match options.is_relay() {
            true => Some(RelayKeys::load_or_create(&key_config(options), wall, rng)?),
            false => None,
        };
        let tls = Arc::new(match &keys {
            Some(keys) => link_tls(keys, options, wall, rng)?,
            None => LinkTls::client()?,
        });
        Ok(Identity {
            families: family::load(options)?,
            warned_of_family: false,
            onion_keys: keys.as_ref().map(onion_keys),
            keys,
            tls,
            next_signing_check: now + SIGNING_CHECK,
            next_onion_check: now,
        })
    }

    /// The RSA and Ed25519 identities; zeros for a client.
    pub(super) fn ids(&self) -> (RsaIdentity, Ed25519Identity) {
        match &self.onion_keys {
            Some(keys) => (*keys.rsa_identity(), *keys.ed_identity()),
            None => ([0; 20].into(), [0; 32].into()),
        }
    }
}

/// Makes DataDirectory, KeyDirectory and CacheDirectory, or checks that they are private.
pub(super) fn prepare_directories(options: &Options) -> Result<(), StartError> {
    key_config(options).prepare_directories()?;
    Ok(prepare_cache(options)?)
}

/// Makes the CacheDirectory, or checks that no other user can read it, as C tor does.
fn prepare_cache(options: &Options) -> Result<(), DirError> {
    let files = &options.files;
    check_private(
        &files.cache_directory,
        true,
        files.cache_directory_group_readable,
    )
}

/// Lifetimes of link keys and certificates.
fn link_lifetimes(options: &Options) -> LinkLifetimes {
    let keys = &options.keys;
    LinkLifetimes {
        certs: LinkCertLifetimes {
            tls: keys.link_cert_lifetime,
            link_auth: keys.auth_key_lifetime,
        },
        tls_slop: keys.link_key_slop,
        link_auth_slop: keys.auth_key_slop,
    }
}

/// Link TLS and identity from the relay's keys.
pub(super) fn link_tls(
    keys: &RelayKeys,
    options: &Options,
    now: SystemTime,
    rng: &mut dyn CryptoRng,
) -> Result<LinkTls, LinkTlsError> {
    let tls = LinkTls::relay(
        IdentityKeys {
            rsa: &keys.rsa_identity,
            ed_identity: keys.ed_identity,
            identity_signing_cert: &keys.signing_cert,
            signing: &keys.signing,
        },
        link_lifetimes(options),
        now,
        rng,
    )?;
    Ok(match options.bridge_relay.enabled {
        true => tls.connecting_as_client(),
        false => tls,
    })
}

/// The onion keys as the workers use them.
pub(super) fn onion_keys(keys: &RelayKeys) -> OnionKeys {
    OnionKeys::new(
        keys.rsa_id().into(),
        keys.ed_identity.into(),
        &keys.ntor.current.secret,
        keys.ntor.previous.as_ref().map(|key| &*key.secret),
    )
}

/// The places of the keys and their lifetimes.
pub fn key_config(options: &Options) -> KeyConfig {
    KeyConfig {
        data_directory: options.files.data_directory.clone(),
        key_directory: options.files.key_directory.clone(),
        data_directory_group_readable: options.files.data_directory_group_readable,
        key_directory_group_readable: Some(options.files.key_directory_group_readable),
        nickname: options.identity.nickname.clone(),
        bridge: options.bridge_relay.enabled,
        offline_master_key: options.keys.offline_master_key,
        signing_key_lifetime: options.keys.signing_key_lifetime,
        signing_key_slop: options.keys.signing_key_slop,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn link_keys_live_as_long_as_torrc_sets() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let expected = LinkLifetimes {
            certs: LinkCertLifetimes {
                tls: hours(48),
                link_auth: hours(48),
            },
            tls_slop: hours(3),
            link_auth_slop: hours(3),
        };
        assert_eq!(link_lifetimes(&options("")), expected);
        let torrc = "DirAuthority a orport=1 127.0.0.1:2 \
             AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nTestingTorNetwork 1\n\
             TestingLinkCertLifetime 5 hours\nTestingAuthKeyLifetime 6 hours\n\
             TestingLinkKeySlop 1 hour\nTestingAuthKeySlop 2 hours\n";
        let expected = LinkLifetimes {
            certs: LinkCertLifetimes {
                tls: hours(5),
                link_auth: hours(6),
            },
            tls_slop: hours(1),
            link_auth_slop: hours(2),
        };
        assert_eq!(link_lifetimes(&options(torrc)), expected);
    }

    #[test]
    fn the_cache_is_the_user_s_own_or_by_torrc_the_group_s() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        let mode = |more: &str| {
            let torrc = format!("CacheDirectory {}\n{more}", cache.display());
            prepare_cache(&options(&torrc)).unwrap();
            std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(""), 0o700);
        assert_eq!(mode("CacheDirectoryGroupReadable 1\n"), 0o750);
        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(mode(""), 0o700);
    }

    #[test]
    fn keys_are_where_and_as_torrc_sets() {
        let config = key_config(&options(
            "DataDirectory /d\nKeyDirectory /k\nNickname me\nOfflineMasterKey 1\n\
             SigningKeyLifetime 9 days\nDataDirectoryGroupReadable 1\n\
             KeyDirectoryGroupReadable 1\n",
        ));
        assert_eq!(config.data_directory.to_str(), Some("/d"));
        assert_eq!(config.key_directory.to_str(), Some("/k"));
        assert_eq!(config.nickname, "me");
        assert!(config.offline_master_key && config.data_directory_group_readable);
        assert_eq!(config.key_directory_group_readable, Some(true));
        assert_eq!(config.signing_key_lifetime, Duration::from_secs(9 * 86400));
        assert_eq!(config.signing_key_slop, Duration::from_secs(86400));
    }
}
