//! From options to a running relay.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use mio::{Events, Interest};
use rand::rngs::StdRng;
use rand::{CryptoRng, RngExt as _};
use weft_core::controller::RelayController;
use weft_core::handshake::{IdentityKeys, LinkCertLifetimes};
use weft_crypto::handshake::OnionKeys;
use weft_dir::command::Command;
use weft_dir::params::Params;
use weft_dir::task::{Config, DirectoryHandle};
use weft_sync::lease::{Lease, LeasePool};
use weft_sync::wake::WakeFlag;

use super::address::{self, Addresses, HostNames};
use super::apps::AppSide;
use super::authority::{self, AuthorityError};
use super::client::ClientSide;
use super::clock::WallClock;
use super::control::ControlSide;
use super::descriptor;
use super::heartbeat::Heartbeat;
use super::listeners::{ListenError, Listeners};
use super::local_ports::LocalPortError;
use super::metrics::Metrics;
use super::reload::tell_disabled;
use super::shutdown::Shutdown;
use super::signals::Signals;
use super::{Context, Relay, SIGNAL, exits, limits, upkeep};
use crate::keys::{KeyConfig, KeyError, RelayKeys};
use crate::logging::RateLimit;
use crate::notice;
use crate::process::daemon::DaemonError;
use crate::process::dir::{DirError, check_private};
use crate::process::limits::LimitError;
use crate::process::lock::{DataDirLock, LockError, PATIENCE};
use crate::process::manager::ServiceManager;
use crate::process::pid::PidFile;
use crate::process::user::UserError;
use crate::process::{file, machine, state, user};
use crate::reachability::Reachability;
use crate::thread::mesh::{self, WakeUp};
use crate::thread::{ConnectionThread, ThreadConfig, event_loop};
use crate::tls::{LinkLifetimes, LinkTls, LinkTlsError};
use crate::torrc::Options;
use crate::torrc::options::MAX_CONNECTION_THREADS;
use crate::workers::Workers;

/// Onionskin workers at most, where `NumCPUs` says how many.
const MAX_WORKERS: usize = 256;
/// Onionskin workers at most, where it does not: C tor's MAX_DETECTABLE_CPUS.
const MAX_DETECTED_WORKERS: usize = 16;
/// Directory events that may wait for the main thread.
const EVENTS: usize = 1024;
/// Log lines about one kind of trouble.
const QUIET: Duration = Duration::from_secs(300);

/// Why a relay did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither others nor this machine's applications could use it.
    #[error(
        "there is neither an ORPort nor a SocksPort in the configuration: add for example \
         \"ORPort 9001\" for a relay or \"SocksPort 9050\" for a client"
    )]
    NothingToDo,
    /// The process may not open enough files.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A port is taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A port for this machine's programs is taken.
    #[error(transparent)]
    LocalPort(#[from] LocalPortError),
    /// Two options ask for one port.
    #[error("{one} and {other} are the same port: change one of them")]
    SamePort {
        /// The first, with its address.
        one: String,
        /// The other.
        other: String,
    },
    /// `User` cannot be become.
    #[error(transparent)]
    User(#[from] UserError),
    /// Keys or their directories.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Another process has the DataDirectory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] file::FileError),
    /// The state file.
    #[error("state file: {0}")]
    State(#[from] state::StateError),
    /// Link TLS.
    #[error(transparent)]
    Tls(#[from] LinkTlsError),
    /// The authority of a private network.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The cache directory.
    #[error("CacheDirectory: {0}")]
    Cache(#[from] DirError),
    /// A directory that is there and cannot be used.
    #[error(transparent)]
    Directory(DirError),
    /// ServerDNSResolvConfFile cannot be read.
    #[error(
        "{0}; set ServerDNSAllowBrokenConfig 1 to start all the same, without being an exit until \
         it can be read"
    )]
    Dns(String),
    /// The background.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The network has gone on without this version.
    #[error(
        "the network requires protocols of {of} that this version of Weft does not speak: \
         {protocols}. It is too old to be used there: install a newer one"
    )]
    TooOld {
        /// `clients` or `relays`.
        of: &'static str,
        /// Which.
        protocols: String,
    },
    /// The system: threads, event loops.
    #[error("the operating system refused what the relay needs: {0}")]
    System(#[from] io::Error),
}

/// The failure of a node that lost a thread: its links, or what it decided, are gone, and others wait
/// for it.
pub(super) fn thread_ended(which: &str) -> StartError {
    StartError::System(io::Error::other(format!("{which} ended before its time")))
}

impl StartError {
    /// What C tor says, where programs that start a Tor look for it.
    #[must_use]
    pub fn in_tors_words(&self) -> Option<&'static str> {
        match self {
            Self::User(UserError::NotFound(_)) => Some(
                "Failed to parse/validate config: Problem with User value. See logs for details.",
            ),
            Self::Listen(_) | Self::LocalPort(_) | Self::SamePort { .. } => {
                Some("Failed to parse/validate config: Failed to bind one of the listener ports.")
            }
            _ => None,
        }
    }
}

/// Starts a relay and runs it until a signal ends it.
///
/// # Errors
///
/// [`StartError`]: nothing was started, or the event loop failed.
pub fn run(options: Options, context: Context) -> Result<(), StartError> {
    start(options, context)?.run()
}

fn start(options: Options, context: Context) -> Result<Relay, StartError> {
    super::check(&options)?;
    crate::process::machine::keep_pages_small();
    let mut rng: StdRng = rand::make_rng();
    let max_connections =
        crate::process::limits::raise_file_limit(u64::from(options.resources.conn_limit))?;
    if options.network.disabled {
        tell_disabled();
    }
    // Ports first, as the one who may bind them; files then, as the one who will own them.
    let mut listeners = Listeners::open(&options)?;
    let mut apps = AppSide::open(&options)?;
    let mut control = ControlSide::open(&options)?;
    if let Some(name) = &options.process.user {
        user::drop_privileges(name)?;
    }
    prepare_directories(&options)?;
    let key_config = key_config(&options);
    let lock = DataDirLock::acquire(&options.files.data_directory, PATIENCE)?;
    let wall = SystemTime::now();
    let keys = match options.is_relay() {
        true => Some(RelayKeys::load_or_create(&key_config, wall, &mut rng)?),
        false => None,
    };
    let pid_file = options
        .files
        .pid_file
        .as_ref()
        .map(|path| PidFile::write(path))
        .transpose()?;
    let tls = Arc::new(match &keys {
        Some(keys) => link_tls(keys, &options, wall, &mut rng)?,
        None => LinkTls::client()?,
    });
    let onion_keys = keys.as_ref().map(onion_keys);

    let (now, wall) = (Instant::now(), SystemTime::now());
    let network = Params::default();
    let names = HostNames::look_up(&options, now);
    let found = Addresses::find(
        &options,
        &names,
        &listeners.advertised,
        address::interface_address,
        None,
    );
    address::tell_refused(&found);
    let addresses = found.addresses;
    let params = Arc::new(limits::relay_params(
        &options,
        &network,
        onion_keys
            .as_ref()
            .map_or([0; 20], |keys| *keys.rsa_identity()),
        onion_keys
            .as_ref()
            .map_or([0; 32], |keys| *keys.ed_identity()),
        addresses.v6.is_some(),
    ));

    // The main thread's own loop, then one for each connection thread.
    let (poll, waker) = event_loop()?;
    let flag = Arc::new(WakeFlag::new());
    let main = WakeUp {
        flag: flag.clone(),
        waker,
    };
    listeners.register(poll.registry())?;
    apps.register(poll.registry())?;
    control.register(poll.registry())?;
    let mut signals = Signals::register()?;
    poll.registry()
        .register(&mut signals.pipe, SIGNAL, Interest::READABLE)?;
    let cores = machine::usable_cores();
    let wanted = options
        .resources
        .connection_threads
        .unwrap_or_else(|| u32::try_from(cores).unwrap_or(u32::MAX))
        .min(MAX_CONNECTION_THREADS);
    let count = u16::try_from(wanted.max(1)).unwrap_or(1);
    let (rate, burst) = limits::bandwidth(&options);
    let pool = Arc::new(LeasePool::new(rate, burst, now));
    let mut polls = Vec::new();
    let mut wakers = Vec::new();
    for _ in 0..count {
        let (poll, waker) = event_loop()?;
        polls.push(poll);
        wakers.push(waker);
    }
    let (ends, threads) = mesh::mesh(wakers, &main);
    let known_relays = Arc::default();
    let thread_params = limits::thread_params(&options, &network, &known_relays, addresses.ips());
    let mut handles = Vec::new();
    let mut inline = None;
    for (ends, thread_poll) in ends.into_iter().zip(polls) {
        let id = ends.me.0;
        let thread = ConnectionThread::new(
            ThreadConfig {
                ends,
                threads: count,
                poll: thread_poll,
                relay: params.clone(),
                params: thread_params.clone(),
                tls: tls.clone(),
                lease: Lease::new(pool.clone()),
                seed: rng.random(),
            },
            now,
        );
        if wanted == 0 {
            thread.nest(&poll)?;
            inline = Some(thread);
        } else {
            handles.push(
                std::thread::Builder::new()
                    .name(format!("connections-{id}"))
                    .spawn(move || thread.run())?,
            );
        }
    }
    let memory = machine::total_memory();
    if options.resources.max_mem_in_queues_set.is_none() {
        notice!(
            "{}MaxMemInQueues is set to {} MB. You can override this by setting MaxMemInQueues by \
             hand.",
            memory.map_or("", |_| "Based on detected system memory, "),
            options.resources.max_mem_in_queues(memory) >> 20
        );
    }
    let worker_count = options
        .resources
        .num_cpus
        .map_or(cores.min(MAX_DETECTED_WORKERS), |count| {
            usize::try_from(count).unwrap_or(MAX_WORKERS)
        })
        .clamp(1, if keys.is_some() { MAX_WORKERS } else { 1 });
    let workers = Workers::start(worker_count, &main, &mut rng)?;
    let mut controller = RelayController::new(
        count,
        limits::controller_params(&options, &network, max_connections, worker_count, memory),
        rng.random(),
        now,
    );

    let settings = exits::exit_settings(&options, &network, addresses.ips());
    let mut exits = exits::ExitSide::new(main.clone(), settings, rng.random());
    let dns = exits::dns_config(&options, &network, max_connections);
    if let Err(why) = exits.configure(dns, true, now) {
        if !options.exit.dns.allow_broken_config {
            return Err(StartError::Dns(why));
        }
        tracing::warn!(
            "{why}. Couldn't set up any working nameservers. Network not up yet?  Will try again \
             soon."
        );
    }
    // Before the directory, which publishes to it.
    let authority = match &keys {
        Some(keys) => authority::start(&options, keys, &addresses)?,
        None => None,
    };
    let state = state::load(&options.files.data_directory)?.lines();
    let ports = apps.ports();
    let client = ClientSide::start(&options, ports, keys.as_ref(), &state, &main, &mut rng)?;
    if client.is_some() {
        controller.serve_client();
    }
    let wake = main.clone();
    let (sender, directory_events) = mpsc::sync_channel(EVENTS);
    // A client alone has its directory on its own thread.
    let directory = match &keys {
        None => None,
        Some(_) => Some(DirectoryHandle::start(
            Config {
                options: descriptor::directory_options(&options),
                state,
                seed: rng.random(),
            },
            Box::new(move |event| {
                // A main thread that is a thousand events behind has other troubles.
                let _ = sender.try_send(event);
                main.notify();
            }),
        )?),
    };
    let reachability = Reachability::new(
        addresses.v4.map(SocketAddr::V4),
        addresses.v6.map(SocketAddr::V6),
        options.directory.assume_reachable,
        options.directory.assume_reachable_ipv6,
    );
    notice!(
        "Weft {} {} on {} ({} onionskin worker(s))",
        env!("CARGO_PKG_VERSION"),
        match (&keys, &client) {
            (Some(_), Some(_)) => "relay and client",
            (Some(_), None) => "relay",
            (None, _) => "client",
        },
        match wanted {
            0 => "the main thread".to_owned(),
            1 => "1 connection thread".to_owned(),
            n => format!("{n} connection threads"),
        },
        workers.count()
    );
    let mut relay = Relay {
        options,
        context,
        poll,
        events: Events::with_capacity(256),
        flag,
        wake,
        listeners,
        signals,
        keys,
        onion_keys,
        tls,
        controller,
        params,
        pool,
        threads,
        handles,
        inline,
        workers,
        directory,
        apps,
        control,
        client,
        directory_events,
        authority,
        consensus: None,
        network,
        names,
        addresses,
        refused: found.refused,
        known_relays,
        address_seen: None,
        reachability,
        probes: Vec::new(),
        heartbeat: Heartbeat::new(now),
        exits,
        metrics: Metrics::new(usize::from(count)),
        shutdown: Shutdown::default(),
        max_connections,
        last_tick: now,
        wall_clock: WallClock::new(now, wall),
        next_signing_check: now + upkeep::SIGNING_CHECK,
        next_onion_check: now,
        accept_failures: RateLimit::new(QUIET),
        accept_again: false,
        failed: None,
        overloads: RateLimit::new(QUIET),
        memory_lines: RateLimit::new(QUIET),
        freed_lines: RateLimit::new(QUIET),
        skew_lines: RateLimit::new(QUIET),
        rng,
        pid_file,
        manager: ServiceManager::of_this_process(now),
        _lock: lock,
    };
    relay.start_control();
    let (ipv4, ipv6) = relay.reachability.is_reachable();
    relay.directory(Command::Reachable { ipv4, ipv6 });
    relay.publish_descriptor();
    relay.tell_metrics(Instant::now());
    if let Some(background) = relay.context.background.take() {
        background.detach(&relay.options.files.data_directory)?;
    }
    relay.manager.ready();
    Ok(relay)
}

/// Makes DataDirectory, KeyDirectory and CacheDirectory, or checks that they are private.
pub(super) fn prepare_directories(options: &Options) -> Result<(), StartError> {
    key_config(options).prepare_directories()?;
    Ok(prepare_cache(options)?)
}

/// Makes the CacheDirectory, or checks that nobody else can read it, as C tor does.
fn prepare_cache(options: &Options) -> Result<(), DirError> {
    let files = &options.files;
    check_private(
        &files.cache_directory,
        true,
        files.cache_directory_group_readable,
    )
}

/// How long link keys and certificates are good.
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
    LinkTls::relay(
        IdentityKeys {
            rsa: &keys.rsa_identity,
            ed_identity: keys.ed_identity,
            identity_signing_cert: &keys.signing_cert,
            signing: &keys.signing,
        },
        link_lifetimes(options),
        now,
        rng,
    )
}

/// The onion keys as the workers use them.
pub(super) fn onion_keys(keys: &RelayKeys) -> OnionKeys {
    OnionKeys::new(
        array(keys.rsa_id().as_bytes()),
        array(keys.ed_identity.as_bytes()),
        &keys.ntor.current.secret,
        keys.ntor.previous.as_ref().map(|key| &*key.secret),
    )
}

/// Bytes of a known number as an array.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(bytes) {
        *to = *from;
    }
    array
}

/// Where the keys are, as the options say.
pub fn key_config(options: &Options) -> KeyConfig {
    KeyConfig {
        data_directory: options.files.data_directory.clone(),
        key_directory: options.files.key_directory.clone(),
        data_directory_group_readable: options.files.data_directory_group_readable,
        key_directory_group_readable: Some(options.files.key_directory_group_readable),
        nickname: options.identity.nickname.clone(),
        offline_master_key: options.keys.offline_master_key,
        signing_key_lifetime: options.keys.signing_key_lifetime,
        signing_key_slop: options.keys.signing_key_slop,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn link_keys_live_as_long_as_torrc_says() {
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
    fn the_cache_is_the_user_s_own_or_the_group_s_where_torrc_says_so() {
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
    fn keys_are_where_and_as_torrc_says() {
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
