//! The doctor's facts: this machine's files, process and ports, the running node by its control
//! port, other machines.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::sys::resource::{Resource, getrlimit};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_config::options::PluginKind;
use weft_config::{DirAuthority, Options};
use weft_datadir::dir::{WrongMode, wrong_mode};
use weft_datadir::keys::{Identities, KeyConfig, KeysOnDisk};
use weft_datadir::lock::{self, Holder};
use weft_datadir::state;
use weft_dir::cache;
use weft_dir::listing::Listing;
use weft_proxy::Route;

use super::controller;
use super::ports::{Port, all_at_once, ports};
use super::tried::Tried;
use crate::process::machine::total_memory;
use crate::reachability::reach;
use crate::relay::{check, directories, has_host_names, key_config, own_addresses};

/// Time that another machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of authorities asked for the time.
const ASKED: usize = 3;
/// Number of guards and bridges tried.
const ENTRIES: usize = 8;

/// The identities of a relay, as links prove them.
type Ids = (RsaIdentity, Option<Ed25519Identity>);

/// Scope of the examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Other machines are asked, too. If not, only this one is.
    pub network: bool,
}

/// Facts for the findings.
pub(super) struct Facts {
    pub(super) now: SystemTime,
    pub(super) scope: Scope,
    pub(super) is_relay: bool,
    pub(super) is_bridge: bool,
    pub(super) is_client: bool,
    /// Its descriptor goes to the authorities.
    pub(super) publishes: bool,
    /// `AssumeReachable`: it publishes without having been reached.
    pub(super) assumes: bool,
    /// `ExitPolicy` lets something out.
    pub(super) is_exit: bool,
    /// It keeps documents for others (DirCache).
    pub(super) is_cache: bool,
    /// The error at which a start would fail: directories of another user, limits, ports of two
    /// options.
    pub(super) check: Result<(), String>,
    /// Directories that others may read, or the node not use.
    pub(super) modes: Vec<WrongMode>,
    /// A relay's.
    pub(super) keys: Option<Result<Keys, String>>,
    /// Why it does not start here any more: `weft backup --move`.
    pub(super) moved: Option<String>,
    /// The process that has the DataDirectory, or why that is not known.
    pub(super) holder: Result<Holder, String>,
    /// Number of files that it may have open; this process' number if the node's is unknown.
    pub(super) files: Option<u64>,
    /// This machine's ports.
    pub(super) ports: Vec<Port>,
    /// The relay's addresses, and whether they answer with its keys.
    pub(super) own: Vec<Tried>,
    /// `Address` names a host, which was not looked up: `own` is not known.
    pub(super) names_unread: bool,
    /// The seconds by which our clock is ahead of each authority's.
    pub(super) clocks: Result<Vec<Skew>, Unasked>,
    /// The running node's answers, by key; `None`: it has no port for controllers.
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

impl Facts {
    /// A process has the DataDirectory.
    pub(super) fn runs(&self) -> bool {
        is_running(&self.holder)
    }
}

fn is_running(holder: &Result<Holder, String>) -> bool {
    matches!(holder, Ok(Holder::Process(_) | Holder::Unseen))
}

/// An authority, and by how many seconds our clock is ahead of its.
pub(super) type Skew = (String, Result<Option<i64>, String>);

/// Reason for which no authority is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// `--offline`.
    Offline,
    /// `DisableNetwork`.
    NetworkDisabled,
    /// `UseBridges`: the network between is not to learn that this machine uses Tor.
    UsesBridges,
    /// `BridgeRelay`: for the same reason.
    IsBridge,
}

/// A relay's keys.
pub(super) struct Keys {
    pub(super) fingerprint: String,
    /// `None`: there is no signing key.
    pub(super) signing_expires: Option<SystemTime>,
    /// Time before its end at which the relay renews the signing key; `None`: it cannot, without
    /// the master key.
    pub(super) renewed_before: Option<Duration>,
}

/// The newest consensus that is kept.
pub(super) struct Consensus {
    /// Valid-after, fresh-until and valid-until: `2026-11-28 05:00:00`.
    pub(super) times: [String; 3],
    pub(super) relays: usize,
    /// The versions that it recommends to such a node.
    pub(super) versions: String,
    /// DoSCircuitCreationEnabled and DoSConnectionEnabled.
    pub(super) floods: [bool; 2],
    /// Entry of the relay.
    pub(super) listed: Option<Listed>,
}

impl Consensus {
    /// It may not be used any more.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        stamp(now) > self.times[2]
    }
}

/// `2026-11-28 05:00:00`, which sort as they follow each other.
pub(super) fn stamp(time: SystemTime) -> String {
    let time = time::OffsetDateTime::from(time);
    let form = time::macros::format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    time.format(form).unwrap_or_default()
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
    let authorities = authorities(options, scope);
    let scope = Scope {
        network: scope.network && !options.network.disabled,
    };
    let config = options.is_relay().then(|| key_config(options));
    let loaded = config.as_ref().map(load_keys);
    let ids = loaded.as_ref().and_then(|keys| keys.as_ref().ok());
    let ids = ids.map(|keys| keys.identities);
    let listing = listing(options);
    let own = known_addresses(options, scope);
    let holder = lock::holder(&options.files.data_directory);
    let holder = holder.map_err(|error| error.to_string());
    let consensus = listing
        .as_ref()
        .map(|listing| consensus(listing, options, ids.map(|ids| ids.rsa.into())));
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
        modes: wrong_modes(options),
        moved: config.as_ref().and_then(|config| {
            let moved = config.check_here().err()?;
            Some(moved.to_string())
        }),
        keys: loaded.map(|keys| {
            let keys = keys?;
            Ok(Keys {
                fingerprint: keys.identities.fingerprint(),
                signing_expires: keys.signing_expires,
                renewed_before: keys.has_master_key.then_some(options.keys.signing_key_slop),
            })
        }),
        files: file_limit(holder.as_ref().ok().copied()),
        ports: match is_running(&holder) {
            true => ports(options),
            false => Vec::new(),
        },
        names_unread: own.is_none(),
        own: match (own, ids) {
            (Some(own), Some(ids)) if scope.network => {
                own_answers(&own, (ids.rsa.into(), Some(ids.ed25519.into())))
            }
            (own, _) => own
                .into_iter()
                .flatten()
                .map(|at| Tried::new("ORPort", Some(at), Ok(())))
                .collect(),
        },
        clocks: authorities.map(|asked| clocks(options, &asked)),
        node: (is_running(&holder) && !options.control.ports.is_empty()).then(|| {
            let keys = [
                "status/bootstrap-phase",
                "status/reachability-succeeded/or",
                "address",
            ];
            controller::ask(options, &keys)
        }),
        holder,
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

fn wrong_modes(options: &Options) -> Vec<WrongMode> {
    let wrong = directories(options).map(|(path, group)| wrong_mode(path, group));
    let mut wrong: Vec<_> = wrong.into_iter().flatten().collect();
    // The DataDirectory may be two of them.
    wrong.sort_by(|one, other| one.path.cmp(&other.path));
    wrong.dedup_by(|one, other| one.path == other.path);
    wrong
}

/// Addresses that the relay publishes; `None`: host names of `Address` would have to be looked up for them, and others
/// are not to be asked.
fn known_addresses(options: &Options, scope: Scope) -> Option<Vec<SocketAddr>> {
    match options.is_relay() {
        true if !scope.network && has_host_names(options) => None,
        true => Some(own_addresses(options)),
        false => Some(Vec::new()),
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

fn load_keys(config: &KeyConfig) -> Result<KeysOnDisk, String> {
    KeysOnDisk::read(config).map_err(|error| error.to_string())
}

/// Asks the relay at an address; fails unless it answers with these keys. Returns the clock skew,
/// in seconds, if known.
fn answers_as(at: SocketAddr, ids: Ids, route: &Route) -> Result<Option<i64>, String> {
    let (rsa, ed25519) = ids;
    let expected = (rsa, ed25519);
    let answer = reach(at, expected, route, PATIENCE, &mut rand::rng());
    answer.map_err(|error| root(&error))
}

/// The deepest cause of an error: the outer text is about tests of our own ORPort.
fn root(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root(source),
        None => error.to_string(),
    }
}

/// Tries the relay's own addresses from this machine: it must answer with its keys.
fn own_answers(own: &[SocketAddr], ids: Ids) -> Vec<Tried> {
    all_at_once(own, |at| {
        let answer = answers_as(*at, ids, &Route::default());
        Tried::new(format!("ORPort {at}"), Some(*at), answer.map(|_| ()))
    })
}

/// Authorities to be asked for the time, and where they answer.
fn authorities(
    options: &Options,
    scope: Scope,
) -> Result<Vec<(&DirAuthority, SocketAddr)>, Unasked> {
    match () {
        () if !scope.network => return Err(Unasked::Offline),
        () if options.network.disabled => return Err(Unasked::NetworkDisabled),
        () if options.bridges.in_use => return Err(Unasked::UsesBridges),
        () if options.bridge_relay.enabled => return Err(Unasked::IsBridge),
        () => {}
    }
    let authorities = options.directory.authorities.iter();
    let with_port = authorities.filter_map(|authority| {
        let at = SocketAddr::new((*authority.dir_address.ip()).into(), authority.or_port?);
        Some((authority, at))
    });
    Ok(with_port.take(ASKED).collect())
}

/// Asks authorities for the time.
fn clocks(options: &Options, asked: &[(&DirAuthority, SocketAddr)]) -> Vec<Skew> {
    all_at_once(asked, |(authority, at)| {
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
fn file_limit(holder: Option<Holder>) -> Option<u64> {
    let of_node = holder.and_then(|holder| {
        let Holder::Process(pid) = holder else {
            return None;
        };
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
    all_at_once(&all, |(name, at, rsa)| match (scope.network, at, rsa) {
        (true, Some(at), Some(rsa)) => {
            let answer = answers_as(*at, (*rsa, None), &options.network.route(*at));
            Tried::new(name.clone(), Some(*at), answer.map(|_| ()))
        }
        // Without an address: not asked.
        _ => Tried::new(name.clone(), None, Ok(())),
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
        Tried::new(format!("{transports}: {program}"), None, answer)
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

    const ALL: Scope = Scope { network: true };
    const HERE: Scope = Scope { network: false };

    fn options(torrc: &str) -> Options {
        let host = weft_config::MemoryHost::new();
        weft_config::load_text(torrc, &host).unwrap().options
    }

    #[test]
    fn authorities_are_asked_by_nodes_that_need_not_hide_tor() {
        let of = |torrc: &str, scope| authorities(&options(torrc), scope).map(|all| all.len());
        let client = "SocksPort 9050\n";
        let bridges = "SocksPort 9050\nUseBridges 1\nBridge 192.0.2.1:443\n";
        let bridge = "ORPort 9001\nBridgeRelay 1\n";
        assert_eq!(of(client, ALL), Ok(ASKED));
        assert_eq!(of(client, HERE), Err(Unasked::Offline));
        let disabled = format!("{client}DisableNetwork 1\n");
        assert_eq!(of(&disabled, ALL), Err(Unasked::NetworkDisabled));
        assert_eq!(of(bridges, ALL), Err(Unasked::UsesBridges));
        assert_eq!(of(bridge, ALL), Err(Unasked::IsBridge));
    }

    #[test]
    fn names_are_not_looked_up_where_others_are_not_asked() {
        let torrc = "ORPort 9001\nAddress relay.invalid\n";
        assert_eq!(known_addresses(&options(torrc), HERE), None);
        let torrc = "ORPort 9001\nAddress 9.0.0.9\nAddressDisableIPv6 1\n";
        let found = known_addresses(&options(torrc), HERE).unwrap();
        assert_eq!(found, ["9.0.0.9:9001".parse().unwrap()]);
    }

    #[test]
    fn an_entry_that_cannot_be_asked_has_no_address() {
        let torrc = "SocksPort 9050\nUseBridges 1\nBridge 192.0.2.1:443\n";
        let found = entries(&options(torrc), None, ALL);
        assert_eq!(found, [Tried::new("bridge 192.0.2.1:443", None, Ok(()))]);
    }

    #[test]
    fn facts_of_a_relay_change_nothing_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let torrc = format!("ORPort 9001\nDataDirectory {}\n", data.display());
        let options = options(&torrc);
        let config = key_config(&options);
        let now = SystemTime::now();
        let keys = weft_datadir::keys::RelayKeys::load_or_create(&config, now, &mut rand::rng());
        let keys = keys.unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
        let facts = gather(&options, HERE, now);
        let found = facts.keys.unwrap().unwrap();
        assert_eq!(found.fingerprint, keys.fingerprint());
        assert_eq!(found.signing_expires, Some(keys.signing_expires));
        assert_eq!(found.renewed_before, Some(Duration::from_secs(86_400)));
        assert_eq!(facts.moved, None);
        assert_eq!(facts.holder, Ok(Holder::Nobody));
        assert!(!data.join("lock").exists());
        let modes: Vec<_> = facts.modes.iter().map(|of| (&of.path, of.mode)).collect();
        assert_eq!(modes, [(&data, 0o755)]);
        let mode = fs::metadata(&data).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        weft_datadir::backup::mark_moved(&config, Path::new("a.backup"), now).unwrap();
        let moved = gather(&options, HERE, now).moved.unwrap();
        assert!(moved.contains("keys/moved"), "{moved}");
    }
}
