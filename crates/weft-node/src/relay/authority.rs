//! The authority of a private network, where torrc makes this relay one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::SystemTime;

use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_authority::{
    AuthorityConfig, AuthorityKeyError, AuthorityKeys, MAX_RELAYS, PrivateAuthority,
    SharedAuthority, parse_bandwidths,
};
use weft_config::{AuthorityOptions, Options};
use weft_datadir::file::{self, FileError};
use weft_datadir::keys::RelayKeys;

use super::Relay;
use super::address::Addresses;
use crate::notice;

/// The longest bandwidth file that is read, in bytes.
const MAX_BANDWIDTHS: u64 = 16 << 20;

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// No keys.
    #[error(transparent)]
    Keys(#[from] AuthorityKeyError),
    /// The bandwidths of relays.
    #[error("V3BandwidthsFile: {0}")]
    Bandwidths(FileError),
}

/// The authority that torrc asks for.
pub(super) fn start(
    options: &Options,
    keys: &RelayKeys,
    addresses: &Addresses,
) -> Result<Option<Arc<SharedAuthority>>, AuthorityError> {
    let Some(wanted) = &options.authority else {
        return Ok(None);
    };
    let (folder, now) = (&options.files.key_directory, SystemTime::now());
    let signing = AuthorityKeys::load(folder, now)?;
    let identity = keys.rsa_id();
    let known = options.directory.authorities.iter().any(|authority| {
        authority.fingerprint == identity.into()
            && authority.v3ident == Some(signing.identity().into())
    });
    if !known {
        tracing::warn!(
            "This relay is an authority, and no DirAuthority line names it: \"v3ident={}\" and {}.",
            signing.identity().as_hex_upper(),
            identity.as_hex_upper()
        );
    }
    let config = config(options, wanted, identity, addresses)?;
    notice!("This relay is the authority of a private network.");
    let authority = PrivateAuthority::new(config, signing);
    Ok(Some(Arc::new(SharedAuthority::new(authority))))
}

impl Relay {
    /// SIGHUP: the authority follows its options.
    pub(super) fn reload_authority(&self) {
        let (Some(authority), Some(wanted), Some(keys)) = (
            &self.directory.authority,
            &self.options.authority,
            &self.identity.keys,
        ) else {
            return;
        };
        match config(&self.options, wanted, keys.rsa_id(), &self.own.addresses) {
            Ok(config) => authority.configure(config),
            Err(error) => tracing::warn!("{error}; the authority goes on as before"),
        }
    }
}

/// The authority's own settings, with the file that they name. One that is there and cannot be read would leave relays
/// with the bandwidths that they claim.
fn config(
    options: &Options,
    wanted: &AuthorityOptions,
    identity: RsaIdentity,
    addresses: &Addresses,
) -> Result<AuthorityConfig, AuthorityError> {
    let bandwidths = match &wanted.bandwidths {
        None => BTreeMap::new(),
        Some(path) => {
            let text = file::required(path, MAX_BANDWIDTHS).map_err(AuthorityError::Bandwidths)?;
            parse_bandwidths(&String::from_utf8_lossy(&text))
        }
    };
    Ok(AuthorityConfig {
        nickname: options.identity.nickname.clone(),
        identity,
        address: addresses.v4.map_or(Ipv4Addr::LOCALHOST, |v4| *v4.ip()),
        or_port: addresses.v4.map_or(0, |v4| v4.port()),
        dir_port: wanted.dir_port,
        contact: options.identity.contact_info.clone(),
        options: wanted.clone(),
        bandwidths,
        max_relays: MAX_RELAYS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const NETWORK: &str = "DirAuthority a orport=1 127.0.0.1:2 \
                           AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nTestingTorNetwork 1\n\
                           ORPort 127.0.0.1:5000\nContactInfo x\nAuthoritativeDirectory 1\n\
                           V3AuthoritativeDirectory 1\nDirPort 127.0.0.1:7000\n";

    #[test]
    fn bandwidths_are_those_of_the_file_or_there_is_no_authority() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bw");
        let read = || {
            let lines = format!("{NETWORK}V3BandwidthsFile {}\n", path.display());
            let options = options(&lines);
            let wanted = options.authority.as_ref().unwrap();
            config(&options, wanted, [1; 20].into(), &Addresses::default())
        };
        let text = format!("1700000000\nnode_id=${} bw=7\n", "01".repeat(20));
        std::fs::write(&path, text).unwrap();
        assert_eq!(read().unwrap().bandwidths.get(&[1; 20].into()), Some(&7));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.starts_with("V3BandwidthsFile: "), "{error}");
    }
}
