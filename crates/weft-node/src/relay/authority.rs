//! The authority of a private network, where torrc makes this relay one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use weft_config::Options;
use weft_dir::command::Severity;
use weft_dir::private_authority::server::{AuthorityHandle, Log};
use weft_dir::private_authority::{
    AuthorityConfig, AuthorityKeyError, AuthorityKeys, PrivateAuthority, parse_bandwidths,
};

use super::address::Addresses;
use super::dir_port;
use crate::directory::granted;
use crate::notice;
use weft_datadir::keys::RelayKeys;

/// The longest bandwidth file that is read, in bytes.
const MAX_BANDWIDTHS: u64 = 16 << 20;

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// No keys.
    #[error(transparent)]
    Keys(#[from] AuthorityKeyError),
    /// The DirPort is taken.
    #[error("could not listen on DirPort {addr}: {source}; is another authority running?")]
    Listen {
        /// The address and port.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The bandwidth file.
    #[error("cannot read V3BandwidthsFile {}: {source}", path.display())]
    Bandwidths {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no thread for it.
    #[error("cannot start the authority: {0}")]
    Start(io::Error),
}

/// Starts the authority that torrc asks for.
pub(super) fn start(
    options: &Options,
    keys: &RelayKeys,
    addresses: &Addresses,
) -> Result<Option<AuthorityHandle>, AuthorityError> {
    let Some(wanted) = &options.authority else {
        return Ok(None);
    };
    let signing = AuthorityKeys::load(&options.files.key_directory, SystemTime::now())?;
    let listen = |addr: &SocketAddr| {
        TcpListener::bind(addr).map_err(|source| AuthorityError::Listen {
            addr: *addr,
            source,
        })
    };
    let listeners = wanted
        .dir_ports
        .iter()
        .map(listen)
        .collect::<Result<Vec<_>, _>>()?;
    let bandwidths = match &wanted.bandwidths {
        None => Default::default(),
        Some(path) => {
            let read = || {
                let length = std::fs::metadata(path)?.len();
                if length > MAX_BANDWIDTHS {
                    return Err(io::Error::other(format!("it has {length} bytes")));
                }
                std::fs::read_to_string(path)
            };
            let text = read().map_err(|source| AuthorityError::Bandwidths {
                path: path.clone(),
                source,
            })?;
            parse_bandwidths(&text)
        }
    };
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
    let config = AuthorityConfig {
        nickname: options.identity.nickname.clone(),
        identity,
        address: addresses.v4.map_or(Ipv4Addr::LOCALHOST, |v4| *v4.ip()),
        or_port: addresses.v4.map_or(0, |v4| v4.port()),
        dir_port: wanted.dir_ports.first().map_or(0, SocketAddr::port),
        contact: options.identity.contact_info.clone(),
        interval: wanted.interval,
        vote_delay: wanted.vote_delay,
        dist_delay: wanted.dist_delay,
        intervals_valid: wanted.intervals_valid,
        params: wanted.params.clone(),
        guards: granted(&wanted.guards),
        exits: granted(&wanted.exits),
        hidden_service_dirs: granted(&wanted.hidden_service_dirs),
        hs_dir_min_uptime: wanted.hs_dir_min_uptime,
        front_page: dir_port::front_page(options).map(|page| String::from_utf8_lossy(&page).into()),
        bandwidths,
    };
    notice!(
        "This relay is the authority of a private network ({} DirPort(s)).",
        listeners.len()
    );
    let authority = PrivateAuthority::new(config, signing);
    let policy = options.directory.policy.clone();
    let allowed = Arc::new(move |peer| !policy.rejects(peer));
    AuthorityHandle::start(authority, listeners, allowed, log())
        .map(Some)
        .map_err(AuthorityError::Start)
}

/// The authority's thread may log as any other.
fn log() -> Log {
    Box::new(|severity, text| match severity {
        Severity::Info => tracing::info!("{text}"),
        Severity::Notice => notice!("{text}"),
        Severity::Warn => tracing::warn!("{text}"),
    })
}
