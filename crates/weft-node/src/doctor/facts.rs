//! What is found out: this machine's files, process and ports, the running node by its control port, other machines.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::resource::{Resource, getrlimit};
use weft_cell::identity::RsaIdentity;
use weft_config::client_bridges::PluginKind;
use weft_config::client_ports::{AppService, ListenAt};
use weft_config::{Options, OrPort};
use weft_datadir::keys::{Identities, KeyConfig, RelayKeys};
use weft_datadir::{lock, state};
use weft_dir::cache;
use weft_dir::listing::Listing;
use weft_proxy::Route;

use super::{Ids, Scope, Tried, controller};
use crate::process::machine::total_memory;
use crate::reachability::reach;
use crate::relay::{check, key_config, own_addresses};

/// How long another machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long this one may.
const LOCAL_PATIENCE: Duration = Duration::from_secs(2);
/// How many authorities are asked for the time.
const ASKED: usize = 3;
/// How many guards and bridges are tried.
const ENTRIES: usize = 8;

/// What was found out.
pub(super) struct Facts {
    pub(super) now: SystemTime,
    pub(super) scope: Scope,
    pub(super) is_relay: bool,
    pub(super) is_bridge: bool,
    pub(super) is_client: bool,
    /// Its descriptor goes to the authorities.
    pub(super) publishes: bool,
    /// `AssumeReachable`: nobody has to reach it before it publishes.
    pub(super) assumes: bool,
    /// `ExitPolicy` lets something out.
    pub(super) is_exit: bool,
    /// It keeps documents for others (DirCache).
    pub(super) is_cache: bool,
    /// What a start would fail by: directories of another user, limits, ports of two options.
    pub(super) check: Result<(), String>,
    /// A relay's.
    pub(super) keys: Option<Result<Keys, String>>,
    /// The process that has the DataDirectory.
    pub(super) pid: Option<u32>,
    /// How many files it may have open; of this process, if that one is not known.
    pub(super) files: Option<u64>,
    /// This machine's ports.
    pub(super) ports: Vec<Tried>,
    /// The relay's addresses, and whether they answer with its keys.
    pub(super) own: Vec<Tried>,
    /// By how many seconds our clock is ahead, by whom.
    pub(super) clocks: Vec<(String, Result<Option<i64>, String>)>,
    /// What the running node says of itself, by key; `None`: it has no port for controllers.
    pub(super) node: Option<Result<BTreeMap<String, String>, String>>,
    pub(super) consensus: Option<Consensus>,
    /// Guards or bridges.
    pub(super) entries: Vec<Tried>,
    /// Programs of transports that cannot be run.
    pub(super) programs: Vec<Tried>,
    /// MaxMemInQueues, and the machine's memory.
    pub(super) memory: (u64, Option<u64>),
    /// DoSCircuitCreationEnabled and DoSConnectionEnabled of torrc.
    pub(super) floods: [Option<bool>; 2],
}

/// A relay's keys.
pub(super) struct Keys {
    pub(super) fingerprint: String,
    pub(super) signing_expires: SystemTime,
}

/// The newest consensus that is kept.
pub(super) struct Consensus {
    /// From when, until when it is the newest, until when it may be used: `2026-11-28 05:00:00`.
    pub(super) times: [String; 3],
    pub(super) relays: usize,
    /// The versions that it recommends to such a node.
    pub(super) versions: String,
    /// DoSCircuitCreationEnabled and DoSConnectionEnabled.
    pub(super) floods: [bool; 2],
    /// How it lists the relay.
    pub(super) listed: Option<Listed>,
}

pub(super) struct Listed {
    pub(super) or_ports: Vec<SocketAddr>,
    pub(super) flags: Vec<&'static str>,
    /// Its weight in kilobytes a second.
    pub(super) bandwidth: u64,
    /// Its part of the weight of all, 0 to 1.
    pub(super) part: f64,
}

/// Finds out all that can be.
pub(super) fn gather(options: &Options, scope: Scope, now: SystemTime) -> Facts {
    let config = options.is_relay().then(|| key_config(options));
    let loaded = config.as_ref().map(load_keys);
    let ids = loaded.as_ref().and_then(|keys| keys.as_ref().ok());
    let ids = ids.map(|keys| (keys.rsa_id().into(), Some(keys.ed_identity.into())));
    let listing = listing(options);
    let own = if options.is_relay() {
        own_addresses(options)
    } else {
        Vec::new()
    };
    let pid = lock::holder(&options.files.data_directory);
    let consensus = listing
        .as_ref()
        .map(|listing| consensus(listing, options, ids.map(|(rsa, _)| rsa)));
    Facts {
        now,
        scope,
        is_relay: options.is_relay(),
        is_bridge: options.bridge_relay.enabled,
        is_client: options.is_client(),
        publishes: options.directory.publish,
        assumes: options.directory.assume_reachable,
        is_exit: !options.exit.policy.rejects_all(),
        is_cache: options.directory.cache,
        check: check(options).map_err(|error| error.to_string()),
        keys: loaded.map(|keys| {
            let keys = keys?;
            Ok(Keys {
                fingerprint: keys.fingerprint(),
                signing_expires: keys.signing_expires,
            })
        }),
        pid,
        files: file_limit(pid),
        ports: match pid {
            Some(_) => ports(options),
            None => Vec::new(),
        },
        own: match (scope.network, ids) {
            (true, Some(ids)) => own_answers(&own, ids),
            _ => own
                .iter()
                .map(|at| tried("ORPort", Some(*at), Ok(())))
                .collect(),
        },
        clocks: match scope.network {
            true => clocks(options),
            false => Vec::new(),
        },
        node: (pid.is_some() && !options.control.ports.is_empty()).then(|| {
            let keys = [
                "version",
                "status/bootstrap-phase",
                "status/reachability-succeeded/or",
                "entry-guards",
            ];
            controller::ask(options, &keys)
        }),
        consensus,
        entries: entries(options, listing.as_ref(), scope),
        programs: programs(options),
        memory: {
            let total = total_memory();
            (options.resources.max_mem_in_queues(total), total)
        },
        floods: [
            options.dos.circuit_creation_enabled,
            options.dos.connection_enabled,
        ],
    }
}

/// The addresses at which others reach the relay, by its options and by the consensus that it keeps.
pub fn addresses(options: &Options, identities: &Identities) -> Vec<SocketAddr> {
    let mut all = own_addresses(options);
    let listing = listing(options);
    let entries = listing.iter().flat_map(|listing| &listing.entries);
    let listed = entries.filter(|entry| entry.rsa == identities.rsa);
    all.extend(listed.flat_map(|entry| entry.or_ports.iter().copied()));
    all.sort();
    all.dedup();
    all
}

/// The first of these addresses at which a relay with these keys answers.
pub fn still_runs(
    options: &Options,
    addresses: &[SocketAddr],
    identities: &Identities,
) -> Option<SocketAddr> {
    let ids = (identities.rsa.into(), Some(identities.ed25519.into()));
    let route = |at| options.network.route(at);
    let answers = all_at_once(addresses, |at| (*at, answers_as(*at, ids, &route(*at))));
    answers
        .into_iter()
        .find_map(|(at, answer)| answer.is_ok().then_some(at))
}

fn load_keys(config: &KeyConfig) -> Result<RelayKeys, String> {
    let keys = RelayKeys::load(config, SystemTime::now(), &mut rand::rng());
    keys.map_err(|error| error.to_string())
}

fn tried(
    what: impl Into<String>,
    address: Option<SocketAddr>,
    answer: Result<(), String>,
) -> Tried {
    Tried {
        what: what.into(),
        address,
        answer,
    }
}

/// Asks each on a thread of its own: all take as long as the slowest.
fn all_at_once<T: Sync, R: Send>(these: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> = these
            .iter()
            .map(|this| scope.spawn(move || ask(this)))
            .collect();
        let answers = threads.into_iter();
        answers.filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Whether a relay with these keys answers there.
fn answers_as(at: SocketAddr, ids: Ids, route: &Route) -> Result<Option<i64>, String> {
    let (rsa, ed25519) = ids;
    let expected = (rsa, ed25519);
    let answer = reach(at, expected, route, PATIENCE, &mut rand::rng());
    answer.map_err(|error| root(&error))
}

/// What an error comes from: what it says itself is about tests of our own ORPort.
fn root(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root(source),
        None => error.to_string(),
    }
}

/// An address of this machine to connect to, for one that is listened at.
pub(super) fn local(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Whether what torrc opens is open. Ports that the system chooses are not known.
fn ports(options: &Options) -> Vec<Tried> {
    let or = |name: &'static str, ports: &[OrPort]| {
        let ports = ports
            .iter()
            .filter(|port| port.listen && port.explicit_address || port.address.is_ipv4());
        ports
            .map(|port| {
                (
                    name,
                    ListenAt::Tcp {
                        address: port.address,
                        port: port.port,
                    },
                )
            })
            .collect::<Vec<_>>()
    };
    let mut all = or("ORPort", &options.network.or_ports);
    all.extend(or("MetricsPort", &options.metrics.ports));
    all.extend(or("DirPort", &options.directory.dir_ports));
    let control = options.control.ports.iter();
    all.extend(control.map(|at| ("ControlPort", at.clone())));
    let apps = options
        .apps
        .ports
        .iter()
        .filter(|port| port.service != AppService::Dns);
    all.extend(apps.map(|port| ("port for applications", port.at.clone())));
    let known = |at: &ListenAt| match at {
        ListenAt::Tcp { port, .. } => port.to_bind() != 0,
        ListenAt::Unix(_) => true,
    };
    all.retain(|(_, at)| known(at));
    all_at_once(&all, |(name, at)| match at {
        ListenAt::Tcp { address, port } => {
            let at = SocketAddr::new(*address, port.to_bind());
            let answer = TcpStream::connect_timeout(&local(at), LOCAL_PATIENCE);
            let answer = answer.map(|_| ()).map_err(|error| error.to_string());
            tried(format!("{name} {at}"), Some(at), answer)
        }
        ListenAt::Unix(at) => {
            let answer = UnixStream::connect(&at.path).map(|_| ());
            let answer = answer.map_err(|error| error.to_string());
            tried(format!("{name} unix:{}", at.path.display()), None, answer)
        }
    })
}

/// Whether the relay answers with its keys at its addresses, asked from this machine.
fn own_answers(own: &[SocketAddr], ids: Ids) -> Vec<Tried> {
    all_at_once(own, |at| {
        let answer = answers_as(*at, ids, &Route::default());
        tried(format!("ORPort {at}"), Some(*at), answer.map(|_| ()))
    })
}

/// What authorities say of the time.
fn clocks(options: &Options) -> Vec<(String, Result<Option<i64>, String>)> {
    let authorities = options.directory.authorities.iter();
    let with_port = authorities.filter_map(|authority| {
        let at = SocketAddr::new((*authority.dir_address.ip()).into(), authority.or_port?);
        Some((authority, at))
    });
    let asked: Vec<_> = with_port.take(ASKED).collect();
    all_at_once(&asked, |(authority, at)| {
        let ids = (authority.fingerprint, None);
        let name = authority.nickname.clone().unwrap_or_else(|| at.to_string());
        (name, answers_as(*at, ids, &options.network.route(*at)))
    })
}

/// The consensus that the node keeps.
fn listing(options: &Options) -> Option<Listing> {
    let text = cache::read(&options.files.cache_directory, cache::CONSENSUS);
    let listing = Listing::read(&text.ok()??);
    listing.valid_after.is_some().then_some(listing)
}

fn consensus(listing: &Listing, options: &Options, rsa: Option<RsaIdentity>) -> Consensus {
    let time = |time: &Option<String>| time.clone().unwrap_or_default();
    let all: u64 = listing.entries.iter().map(|entry| entry.bandwidth).sum();
    let param = |name: &str| {
        let mut params = listing.params.split(' ');
        params.any(|param| param.strip_prefix(name) == Some("=1"))
    };
    let mut entries = listing.entries.iter();
    let listed = entries.find(|entry| Some(entry.rsa.into()) == rsa);
    Consensus {
        times: [
            time(&listing.valid_after),
            time(&listing.fresh_until),
            time(&listing.valid_until),
        ],
        relays: listing.entries.len(),
        versions: match options.is_relay() {
            true => listing.relay_versions.clone(),
            false => listing.versions.clone(),
        },
        floods: [
            param("DoSCircuitCreationEnabled"),
            param("DoSConnectionEnabled"),
        ],
        listed: listed.map(|entry| Listed {
            or_ports: entry.or_ports.clone(),
            flags: entry.flags.clone(),
            bandwidth: entry.bandwidth,
            part: entry.bandwidth as f64 / all.max(1) as f64,
        }),
    }
}

/// The most files that the process may have open.
fn file_limit(pid: Option<u32>) -> Option<u64> {
    let of_node = pid.filter(|pid| *pid != 0).and_then(|pid| {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        let soft = line.split_ascii_whitespace().next()?;
        match soft {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    });
    // A node raises its own to the hard one.
    of_node.or_else(|| Some(getrlimit(Resource::RLIMIT_NOFILE).ok()?.1))
}

/// The bridges, or the guards that the client chose, and whether they answer.
fn entries(options: &Options, listing: Option<&Listing>, scope: Scope) -> Vec<Tried> {
    if !options.is_client() {
        return Vec::new();
    }
    let mut all: Vec<(String, Option<SocketAddr>, Option<RsaIdentity>)> = Vec::new();
    if options.bridges.in_use {
        for bridge in &options.bridges.bridges {
            // One behind a transport is reached by the transport alone.
            let at = bridge.transport.is_none().then_some(bridge.addr);
            let name = match &bridge.transport {
                Some(transport) => format!("bridge {} by {transport}", bridge.addr),
                None => format!("bridge {}", bridge.addr),
            };
            all.push((name, at, bridge.rsa));
        }
    } else {
        let kept = state::load(&options.files.data_directory).ok();
        let lines = kept.iter().flat_map(|state| state.get_all("Guard"));
        let mut guards: Vec<_> = lines.filter_map(Guard::read).collect();
        guards.sort_by_key(|guard| guard.place);
        for guard in guards {
            let entries = listing.into_iter().flat_map(|listing| &listing.entries);
            let mut entries = entries.filter(|entry| entry.rsa == guard.rsa.into());
            let at = entries.next().and_then(|entry| entry.or_ports.first());
            let name = format!(
                "guard {} ({})",
                guard.nickname,
                hex::encode_upper(guard.rsa.0)
            );
            all.push((name, at.copied(), Some(guard.rsa)));
        }
    }
    all.truncate(ENTRIES);
    all_at_once(&all, |(name, at, rsa)| {
        let answer = match (scope.network, at, rsa) {
            (true, Some(at), Some(rsa)) => {
                answers_as(*at, (*rsa, None), &options.network.route(*at)).map(|_| ())
            }
            _ => Ok(()),
        };
        tried(name.clone(), *at, answer)
    })
}

/// A guard that has been used, by its line in `state`.
struct Guard {
    rsa: RsaIdentity,
    nickname: String,
    /// Its place among those that were used.
    place: u64,
}

impl Guard {
    fn read(line: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let rsa: [u8; 20] = hex::decode(value("rsa_id")?).ok()?.try_into().ok()?;
        (value("in") == Some("default")).then_some(())?;
        Some(Guard {
            rsa: rsa.into(),
            nickname: value("nickname").unwrap_or("?").to_owned(),
            place: value("confirmed_idx")?.parse().ok()?,
        })
    }
}

/// Programs of transports that cannot be run.
fn programs(options: &Options) -> Vec<Tried> {
    let client = options.bridges.plugins.iter().filter_map(|plugin| {
        let PluginKind::Exec(words) = &plugin.kind else {
            return None;
        };
        Some((plugin.transports.join(","), words.first()?.clone()))
    });
    let server = options.bridge_relay.programs.iter();
    let server =
        server.filter_map(|of| Some((of.transports.join(","), of.command.first()?.clone())));
    let all = client.chain(server);
    all.map(|(transports, program)| {
        let answer = can_run(Path::new(&program));
        tried(format!("{transports}: {program}"), None, answer)
    })
    .collect()
}

fn can_run(program: &Path) -> Result<(), String> {
    let meta = fs::metadata(program).map_err(|error| error.to_string())?;
    match meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err("it is no program that may be run".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_those_that_were_used() {
        let of = |line: &str| Guard::read(line).map(|guard| (guard.nickname, guard.place));
        let id = "rsa_id=0101010101010101010101010101010101010101";
        let used = format!("in=default {id} nickname=one sampled_on=x confirmed_idx=2 listed=1");
        assert_eq!(of(&used), Some(("one".to_owned(), 2)));
        for other in [
            format!("in=bridges {id} nickname=one confirmed_idx=2"),
            format!("in=default {id} nickname=one"),
            "in=default rsa_id=01 nickname=one confirmed_idx=2".to_owned(),
            String::new(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
    }

    #[test]
    fn what_listens_everywhere_is_asked_here() {
        let of = |at: &str| local(at.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:9001"), "127.0.0.1:9001");
        assert_eq!(of("[::]:9001"), "[::1]:9001");
        assert_eq!(of("192.0.2.1:9001"), "192.0.2.1:9001");
    }
}
