//! The authority of a private network, where torrc makes this relay one.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rand::rngs::StdRng;
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_authority::server::{AuthorityHandle, Log, Surroundings};
use weft_authority::{
    AuthorityConfig, AuthorityKeyError, AuthorityKeys, CountryTable, Lists, MAX_RELAYS,
    NamedRelays, PrivateAuthority, ReachabilityOptions, ReachabilityTest, is_tor_version,
    parse_bandwidths,
};
use weft_cell::identity::Ed25519Identity;
use weft_config::options::NetworkOptions;
use weft_config::{AccessPolicy, AuthorityOptions, Options};
use weft_datadir::file;
use weft_datadir::files::DataFile;
use weft_datadir::keys::RelayKeys;
use weft_dir::command::Severity;
use weft_path::{Countries, TableReader};

use super::address::Addresses;
use super::{Relay, dir_port};
use crate::client::countries::{TABLES, path_of, read_lines};
use crate::directory::granted;
use crate::logging::{current, within};
use crate::notice;
use crate::reachability::reach;

/// The longest bandwidth file that is read, in bytes.
const MAX_BANDWIDTHS: u64 = 16 << 20;
/// The same of `approved-routers`.
const MAX_APPROVED: u64 = 4 << 20;
/// The time limit of a test whether a relay can be reached (C tor: a link has a minute).
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// A file that decides about relays.
    #[error("cannot read {what} {}: {source}", path.display())]
    File {
        /// The option that names it, or its name.
        what: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Countries are named, and no table of countries.
    #[error("{0} is not set, and an option names countries of relays")]
    NoTable(String),
    /// The system has no thread for it.
    #[error("cannot start the authority: {0}")]
    Start(io::Error),
}

/// The authority, and what its thread uses of the configuration.
pub(super) struct AuthoritySide {
    pub(super) handle: AuthorityHandle,
    /// How relays are connected to.
    network: Arc<Mutex<NetworkOptions>>,
    /// Who may use the DirPort.
    policy: Arc<Mutex<AccessPolicy>>,
}

fn put<T>(place: &Mutex<T>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = value;
}

/// Starts the authority that torrc asks for.
pub(super) fn start(
    options: &Options,
    keys: &RelayKeys,
    addresses: &Addresses,
) -> Result<Option<AuthoritySide>, AuthorityError> {
    let Some(wanted) = &options.authority else {
        return Ok(None);
    };
    let (folder, now) = (&options.files.key_directory, SystemTime::now());
    let signing = AuthorityKeys::load(folder, now)?;
    let legacy = match wanted.legacy_key {
        true => Some(AuthorityKeys::load_legacy(folder, now)?),
        false => None,
    };
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
    notice!(
        "This relay is the authority of a private network ({} DirPort(s)).",
        listeners.len()
    );
    let authority = PrivateAuthority::new(config, signing, legacy);
    let network = Arc::new(Mutex::new(options.network.clone()));
    let policy = Arc::new(Mutex::new(options.directory.policy.clone()));
    let (route, allow) = (network.clone(), policy.clone());
    let own = current();
    let surroundings = Surroundings {
        allowed: Arc::new(move |peer| {
            let policy = allow.lock().unwrap_or_else(PoisonError::into_inner);
            !policy.rejects(peer)
        }),
        log: log(),
        tester: Some(Arc::new(move |test| {
            within(own, || test_relay(test, &route))
        })),
        folder: Some(options.files.data_directory.clone()),
    };
    let handle = AuthorityHandle::start(authority, listeners, surroundings)
        .map_err(AuthorityError::Start)?;
    Ok(Some(AuthoritySide {
        handle,
        network,
        policy,
    }))
}

impl Relay {
    /// SIGHUP: the authority follows its options.
    pub(super) fn reload_authority(&self) {
        let (Some(side), Some(wanted), Some(keys)) = (
            &self.directory.authority,
            &self.options.authority,
            &self.identity.keys,
        ) else {
            return;
        };
        put(&side.network, self.options.network.clone());
        put(&side.policy, self.options.directory.policy.clone());
        match config(&self.options, wanted, keys.rsa_id(), &self.own.addresses) {
            Ok(config) => side.handle.configure(config),
            Err(error) => tracing::warn!("{error}; the authority goes on as before"),
        }
    }
}

/// The authority's own settings, with the files that they name.
fn config(
    options: &Options,
    wanted: &AuthorityOptions,
    identity: RsaIdentity,
    addresses: &Addresses,
) -> Result<AuthorityConfig, AuthorityError> {
    warn_of_versions(wanted);
    Ok(AuthorityConfig {
        nickname: options.identity.nickname.clone(),
        identity,
        address: addresses.v4.map_or(Ipv4Addr::LOCALHOST, |v4| *v4.ip()),
        or_port: addresses.v4.map_or(0, |v4| v4.port()),
        dir_port: wanted.dir_ports.first().map_or(0, SocketAddr::port),
        contact: options.identity.contact_info.clone(),
        interval: wanted.interval,
        vote_delay: wanted.vote_delay,
        dist_delay: wanted.dist_delay,
        initial_delay: wanted.initial_delay,
        start_offset: wanted.start_offset,
        intervals_valid: wanted.intervals_valid,
        params: wanted.params.clone(),
        guards: granted(&wanted.guards),
        exits: granted(&wanted.exits),
        hidden_service_dirs: granted(&wanted.hidden_service_dirs),
        flags: wanted.flags.clone(),
        lists: lists(options, wanted)?,
        reachability: ReachabilityOptions {
            test: wanted.test_reachability,
            test_ed25519: wanted.test_ed25519,
            ipv6: wanted.ipv6,
            time_to_learn: wanted.time_to_learn,
        },
        max_relays: MAX_RELAYS,
        pin_keys: wanted.pin_keys,
        reject_under_load: wanted.reject_under_load,
        client_versions: wanted.client_versions.clone(),
        server_versions: wanted.server_versions.clone(),
        front_page: dir_port::front_page(options).map(|page| String::from_utf8_lossy(&page).into()),
        bandwidths: bandwidths(wanted)?,
    })
}

fn lists(options: &Options, wanted: &AuthorityOptions) -> Result<Lists, AuthorityError> {
    Ok(Lists {
        reject: wanted.reject.clone(),
        invalid: wanted.invalid.clone(),
        bad_exit: wanted.bad_exit.clone(),
        middle_only: wanted.middle_only.clone(),
        list_bad_exits: wanted.list_bad_exits,
        list_middle_only: wanted.list_middle_only,
        needs_tap: wanted.needs_tap,
        minimal_version: wanted.minimal_version.clone(),
        countries: countries(options, wanted)?,
        named: named(options)?,
    })
}

/// A file that decides about relays. Where it cannot be read whole, the relays that it keeps out would be let in.
fn read_file(what: impl ToString, path: &Path, at_most: u64) -> Result<Vec<u8>, AuthorityError> {
    file::required(path, at_most).map_err(|error| AuthorityError::File {
        what: what.to_string(),
        path: error.path,
        source: error.source,
    })
}

/// The relays that `approved-routers` in the DataDirectory names, if there is such a file.
fn named(options: &Options) -> Result<NamedRelays, AuthorityError> {
    let path = options
        .files
        .data_directory
        .join(DataFile::ApprovedRouters.name());
    let text = match read_file("the file of relays", &path, MAX_APPROVED) {
        Err(AuthorityError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(NamedRelays::default());
        }
        text => text?,
    };
    let (named, bad) = NamedRelays::parse(&text);
    for line in bad {
        tracing::warn!("Invalid fingerprint in {}: {line:?}", path.display());
    }
    Ok(named)
}

/// The countries of relays, where an option names countries. Lists go by IPv4 addresses.
fn countries(options: &Options, wanted: &AuthorityOptions) -> Result<CountryTable, AuthorityError> {
    let [table, _] = TABLES;
    if !wanted.names_countries() {
        return Ok(CountryTable::default());
    }
    let path = path_of(&options.settings, table);
    let path = path.ok_or_else(|| AuthorityError::NoTable(table.to_string()))?;
    let mut v4 = TableReader::v4();
    read_lines(path, |line| v4.line(line)).map_err(|source| AuthorityError::File {
        what: table.to_string(),
        path: path.to_owned(),
        source,
    })?;
    let countries = Countries::of_tables(v4, TableReader::v6());
    Ok(CountryTable(Arc::new(move |address| countries.of(address))))
}

/// C tor's warnings about versions that are none.
fn warn_of_versions(wanted: &AuthorityOptions) {
    let lines = wanted
        .client_versions
        .iter()
        .chain(&wanted.server_versions)
        .flat_map(|line| line.split([',', ' ']));
    for version in lines.filter(|word| !word.is_empty() && !is_tor_version(word)) {
        tracing::warn!(
            "Recommended version \"{version}\" does not look valid. It is listed all the same."
        );
    }
}

fn bandwidths(wanted: &AuthorityOptions) -> Result<BTreeMap<RsaIdentity, u64>, AuthorityError> {
    let Some(path) = &wanted.bandwidths else {
        return Ok(BTreeMap::new());
    };
    let text = read_file("V3BandwidthsFile", path, MAX_BANDWIDTHS)?;
    let text = String::from_utf8_lossy(&text);
    Ok(parse_bandwidths(&text))
}

/// Whether a relay can be reached and is the one that it should be.
fn test_relay(test: &ReachabilityTest, network: &Mutex<NetworkOptions>) -> bool {
    let route = {
        let network = network.lock().unwrap_or_else(PoisonError::into_inner);
        network.route(test.address)
    };
    let ed25519 = test.ed25519.map(|id| Ed25519Identity(id.into()));
    let expected = (test.rsa.into(), ed25519);
    let mut rng: StdRng = rand::make_rng();
    match reach(test.address, expected, &route, TEST_TIMEOUT, &mut rng) {
        Ok(_) => true,
        Err(error) => {
            tracing::info!("A relay was not reached: {error}");
            false
        }
    }
}

/// The authority's thread may log as any other. Its lines are the identity's of the thread that calls this.
fn log() -> Log {
    let own = current();
    Arc::new(move |severity, text| {
        within(own, || match severity {
            Severity::Info => tracing::info!("{text}"),
            Severity::Notice => notice!("{text}"),
            Severity::Warn => tracing::warn!("{text}"),
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::{IdentityName, Logger, Tap};
    use crate::relay::testing::options;

    #[test]
    fn lines_of_the_authority_s_threads_are_those_of_its_identity() {
        let logger = Arc::new(Logger::new(SystemTime::now));
        let dispatch = tracing::Dispatch::new(logger.clone());
        let [own, other] = [(0, "a"), (1, "b")].map(|(number, name)| IdentityName { number, name });
        let lines = Arc::new(Mutex::new(Vec::new()));
        for of in [own, other] {
            let lines = lines.clone();
            let tap: Tap = Box::new(move |_, text| {
                assert!(text.ends_with("voted"), "{text}");
                lines.lock().unwrap().push(of.name);
            });
            within(Some(of), || {
                logger.set_tap(Some((weft_log::Severity::Info, tap)))
            });
        }
        let log = within(Some(own), log);
        // The thread's own identity, if it has one, is another.
        for thread in [None, Some(other)] {
            within(thread, || {
                tracing::dispatcher::with_default(&dispatch, || {
                    log(Severity::Info, "voted".to_owned())
                });
            });
        }
        assert_eq!(*lines.lock().unwrap(), ["a", "a"]);
    }

    const NETWORK: &str = "DirAuthority a orport=1 127.0.0.1:2 \
                           AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nTestingTorNetwork 1\n\
                           ORPort 127.0.0.1:5000\nContactInfo x\nAuthoritativeDirectory 1\n\
                           V3AuthoritativeDirectory 1\nDirPort 127.0.0.1:7000\n";

    fn read_files(lines: &str) -> Result<AuthorityConfig, AuthorityError> {
        let options = options(&format!("{NETWORK}{lines}"));
        let wanted = options.authority.as_ref().unwrap();
        config(&options, wanted, [1; 20].into(), &Addresses::default())
    }

    /// A folder with an authority's files, and torrc's lines about them.
    fn files() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("geoip"), "1.0.0.0,1.0.0.255,AU\n").unwrap();
        let id = "01".repeat(20);
        let bandwidths = format!("1700000000\nnode_id=${id} bw=7\n");
        std::fs::write(path("approved-routers"), format!("!badexit {id}\n")).unwrap();
        std::fs::write(path("bw"), bandwidths).unwrap();
        let lines = format!(
            "GeoIPFile {}\nDataDirectory {}\nV3BandwidthsFile {}\n",
            path("geoip").display(),
            folder.path().display(),
            path("bw").display()
        );
        (folder, lines)
    }

    const REJECT: &str = "AuthDirRejectCCs au\n";

    #[test]
    fn countries_relays_and_bandwidths_are_those_of_files() {
        let (folder, files) = files();
        let country = |lists: &Lists| (lists.countries.0)("1.0.0.1".parse().unwrap());
        let with = read_files(&format!("{files}{REJECT}")).unwrap();
        assert_eq!(country(&with.lists), *b"au");
        let id = "01".repeat(20);
        let named = NamedRelays::parse(format!("!badexit {id}").as_bytes()).0;
        assert_eq!(with.lists.named, named);
        assert_eq!(with.bandwidths.get(&[1; 20].into()), Some(&7));
        // The table is large: it is not read for nothing.
        assert_eq!(country(&read_files(&files).unwrap().lists), *b"??");
        // No relay has to be named.
        std::fs::remove_file(folder.path().join("approved-routers")).unwrap();
        let without = read_files(&files).unwrap();
        assert_eq!(without.lists.named, NamedRelays::default());
    }

    #[test]
    fn a_file_that_keeps_relays_out_is_read_or_there_is_no_authority() {
        let reason = |lines: &str| {
            read_files(&format!("{lines}{REJECT}"))
                .unwrap_err()
                .to_string()
        };
        for (name, begin) in [
            ("geoip", "cannot read GeoIPFile /"),
            ("bw", "cannot read V3BandwidthsFile /"),
            ("approved-routers", "cannot read the file of relays /"),
        ] {
            let (folder, files) = files();
            let path = folder.path().join(name);
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            assert!(reason(&files).starts_with(begin), "{}", reason(&files));
        }
        let (folder, files) = files();
        std::fs::write(folder.path().join("geoip"), "1.0.0.0,1.0.0.255,AU\nx\n").unwrap();
        assert!(reason(&files).starts_with("cannot read GeoIPFile /"));
        assert!(reason("GeoIPFile \n").starts_with("GeoIPFile is not set"));
    }

    #[test]
    fn lines_of_approved_routers_that_are_no_text_cost_the_others_nothing() {
        let (folder, files) = files();
        let path = folder.path().join("approved-routers");
        let (one, other) = ("01".repeat(20), "02".repeat(20));
        let text = [
            b"# M\xfcller\n\xff!reject ",
            other.as_bytes(),
            b"\n!badexit ",
            one.as_bytes(),
            b"\n",
        ];
        std::fs::write(&path, text.concat()).unwrap();
        let named = NamedRelays::parse(format!("!badexit {one}").as_bytes()).0;
        assert_eq!(read_files(&files).unwrap().lists.named, named);
        // Nor are lines dropped because there are too many.
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MAX_APPROVED + 1).unwrap();
        let error = read_files(&files).unwrap_err().to_string();
        assert!(
            error.ends_with("it is too long: at most 4194304 bytes are read"),
            "{error}"
        );
    }

    #[test]
    fn a_relay_that_does_not_listen_is_not_reached() {
        let address = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap()
        };
        let test = ReachabilityTest {
            address,
            rsa: [1; 20].into(),
            ed25519: Some([2; 32].into()),
        };
        let network = Mutex::new(options(NETWORK).network);
        assert!(!test_relay(&test, &network));
    }
}
