//! The pluggable transports of a bridge: which programs run, where their transports listen, and the extended ORPort by
//! which they hand over connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Instant, SystemTime};

use mio::Registry;
use rand::RngExt as _;
use weft_config::Options;
use weft_config::options::TransportProgram;
use weft_core::routable;
use weft_datadir::state;
use weft_log::RateLimit;
use weft_proxy::transports::{Client, ExtOr, Offer, Role, Transport, cookie_file};

use super::Relay;
use super::address::Addresses;
use super::listen_socket::{Bound, OwnFile};
use super::listeners::Service;
use crate::control::auth::write_for_controllers;
use crate::control::events::Event as ControlEvent;
use crate::ext_or::{ExtOrServer, HandedOver};
use crate::notice;
use crate::transports::{Change, Plan, Programs, Wanted};

/// Where a transport listens that has no place yet.
const ANYWHERE: &str = "0.0.0.0:0";
/// The key of the state file, as in C tor.
const STATE_KEY: &str = "TransportProxy";
/// The interval of log lines about connections that find no place.
const QUIET: std::time::Duration = std::time::Duration::from_secs(300);
/// Connections that are taken of the extended ORPort's thread in one turn.
const TAKEN_PER_TURN: usize = 64;

/// The transport programs of a bridge, and its extended ORPort.
#[derive(Debug)]
pub(super) struct BridgeTransports {
    programs: Programs,
    wanted: Vec<Wanted>,
    /// Where transports have listened before, from the state file.
    places: BTreeMap<String, String>,
    cookie: Option<[u8; 32]>,
    /// The file that has the cookie.
    written: Option<OwnFile>,
    server: Option<ExtOrServer>,
    /// More connections may have been handed over than the last turn took.
    more_handed_over: bool,
    refusals: RateLimit,
}

impl BridgeTransports {
    /// Nothing runs yet. `state` is of the state file, `registry` of the main thread's poll.
    pub(super) fn new(state: &state::State, registry: Registry) -> Self {
        BridgeTransports {
            programs: Programs::new(registry),
            wanted: Vec::new(),
            places: places(state),
            cookie: None,
            written: None,
            server: None,
            more_handed_over: false,
            refusals: RateLimit::new(QUIET),
        }
    }

    /// Files of the extended ORPort's connections, those that were handed over and not taken yet among them.
    pub(super) fn open_files(&self) -> u64 {
        self.server.as_ref().map_or(0, ExtOrServer::open_files)
    }

    /// The transports that can be used, as the extra-info document has them.
    pub(super) fn lines(&self, addresses: &Addresses) -> Vec<String> {
        self.programs
            .transports()
            .filter_map(|transport| extra_info_line(transport, addresses))
            .collect()
    }
}

/// The lines of the state file; those that C tor would refuse are left out.
fn places(state: &state::State) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for value in state.get_all(STATE_KEY) {
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        match words.as_slice() {
            [name, place] if place.parse::<SocketAddr>().is_ok() => {
                places
                    .entry((*name).to_owned())
                    .or_insert_with(|| (*place).to_owned());
            }
            _ => tracing::warn!("state: Could not parse a TransportProxy line. Ignoring it."),
        }
    }
    places
}

/// `obfs4 192.0.2.1:443 cert=…`: an unspecified address is our own.
fn extra_info_line(transport: &Transport, addresses: &Addresses) -> Option<String> {
    let Transport {
        name,
        address,
        offer,
    } = transport;
    let mut at = *address;
    if at.ip().is_unspecified() {
        let own = addresses.v4.map(|v4| IpAddr::V4(*v4.ip()));
        let own = own.or(addresses.v6.map(|v6| IpAddr::V6(*v6.ip())));
        let Some(own) = own else {
            tracing::error!("Unable to find address for transport {name}");
            return None;
        };
        at.set_ip(own);
    }
    Some(match offer {
        Offer::Bridge {
            arguments: Some(arguments),
        } => format!("{name} {at} {arguments}"),
        _ => format!("{name} {at}"),
    })
}

/// Program and environment to start.
fn wanted(
    program: &TransportProgram,
    options: &Options,
    places: &BTreeMap<String, String>,
    (or_port, ext_or_port): (Option<SocketAddr>, Option<SocketAddr>),
) -> Wanted {
    let of = &options.bridge_relay;
    let listed = |list: &[(String, String)], name: &str| {
        let mut found = list.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.clone())
    };
    let listen = program.transports.iter().map(|name| {
        let place = listed(&of.listen, name).or_else(|| places.get(name).cloned());
        (name.clone(), place.unwrap_or_else(|| ANYWHERE.to_owned()))
    });
    let options_of: Vec<(String, String)> = program
        .transports
        .iter()
        .flat_map(|name| {
            of.transport_options
                .iter()
                .filter(move |(of, _)| of == name)
        })
        .cloned()
        .collect();
    // Settings whose change needs a restart of the program, without the places that transports
    // chose themselves.
    let mut lines: Vec<String> = program
        .transports
        .iter()
        .filter_map(|name| listed(&of.listen, name).map(|place| format!("{name} {place}")))
        .collect();
    lines.extend(
        options_of
            .iter()
            .map(|(name, option)| format!("{name} {option}")),
    );
    let ext_or_port = ext_or_port.map(|at| (at, of.cookie_file.display().to_string()));
    lines.push(format!("{or_port:?} {ext_or_port:?}"));
    let plan = Plan {
        command: &program.command,
        transports: &program.transports,
        outbound: (of.outbound.v4, of.outbound.v6),
        data_directory: &options.files.data_directory,
        role: Role::Server {
            listen: listen.collect(),
            options: options_of,
            or_port,
            ext_or_port,
        },
    };
    Wanted::new(plan, lines)
}

impl Relay {
    /// Follows torrc: at the start, and when it changes.
    pub(super) fn follow_bridge_transports(&mut self, now: Instant) {
        self.configure_ext_or_port();
        let bound = |service| {
            let mut bound = self.listeners.bound().filter(|(of, _)| *of == service);
            match bound.next()?.1 {
                Bound::Addr(addr) => Some(or_local(*addr)),
                Bound::Path(_) => None,
            }
        };
        let ports = (bound(Service::Or), bound(Service::ExtOr));
        let side = &mut self.bridge_transports;
        // A port without a cookie is of no use.
        let ports = (ports.0, ports.1.filter(|_| side.cookie.is_some()));
        let programs = match self.options.network.disabled {
            true => &[],
            false => self.options.bridge_relay.programs.as_slice(),
        };
        side.wanted = programs
            .iter()
            .map(|program| wanted(program, &self.options, &side.places, ports))
            .collect();
        let changes = side.programs.follow(side.wanted.clone(), now);
        self.on_transports(changes);
    }

    /// Makes the cookie, and starts the thread, where there is an extended ORPort.
    fn configure_ext_or_port(&mut self) {
        let of = &self.options.bridge_relay;
        let side = &mut self.bridge_transports;
        if of.ext_or_ports.is_empty() {
            (side.cookie, side.written, side.server) = (None, None, None);
            return;
        }
        if side.server.is_none() {
            match ExtOrServer::start(self.event_loop.wake.clone()) {
                Ok(server) => side.server = Some(server),
                Err(error) => tracing::warn!("Could not start the Extended ORPort: {error}"),
            }
        }
        let written = side.written.as_ref().map(OwnFile::path);
        if written == Some(&of.cookie_file) && side.cookie.is_some() {
            return;
        }
        let cookie: [u8; 32] = self.rng.random();
        match write_cookie(&of.cookie_file, &cookie, of.cookie_group_readable) {
            Ok(()) => {
                side.cookie = Some(cookie);
                side.written = OwnFile::of(&of.cookie_file).ok();
            }
            Err(error) => {
                side.cookie = None;
                tracing::warn!("Error creating Extended ORPort cookie file. {error}");
            }
        }
    }

    /// The next turn has something to do at once.
    pub(super) fn transports_have_more(&self) -> bool {
        self.bridge_transports.programs.has_more()
            || self.bridge_transports.more_handed_over
            || self.client_transports.has_more()
    }

    /// Takes what programs printed, and starts and ends what is due.
    pub(super) fn turn_bridge_transports(&mut self, now: Instant) {
        let changes = self.bridge_transports.programs.turn(now);
        self.on_transports(changes);
    }

    fn on_transports(&mut self, changes: Vec<Change>) {
        let mut publish = false;
        for change in changes {
            match change {
                Change::Ready(transports) => {
                    for transport in &transports {
                        self.note_transport(transport);
                    }
                    self.save_places();
                    publish = true;
                }
                Change::Lost => publish = true,
            }
        }
        if publish {
            self.publish_descriptor();
        }
    }

    fn note_transport(&mut self, transport: &Transport) {
        let Transport { name, address, .. } = transport;
        notice!("Registered server transport '{name}' at '{address}'");
        let (ip, port) = (address.ip(), address.port());
        let event = format!("server {name} {ip} {port}");
        self.report(ControlEvent::Status("TRANSPORT_LAUNCHED", event));
        let side = &mut self.bridge_transports;
        side.places.insert(name.clone(), address.to_string());
        // The next start of the program is at the same place.
        for wanted in &mut side.wanted {
            if let Role::Server { listen, .. } = &mut wanted.environment.role {
                let here = listen
                    .iter_mut()
                    .filter(|(of, at)| of == name && at == ANYWHERE);
                let mut changed = false;
                for (_, at) in here {
                    *at = address.to_string();
                    changed = true;
                }
                if changed {
                    let environment = wanted.environment.clone();
                    side.programs.set_environment(&wanted.program, environment);
                }
            }
        }
    }

    /// Keeps the places for the next start.
    fn save_places(&self) {
        let places = self.bridge_transports.places.iter();
        let values: Vec<String> = places.map(|(name, at)| format!("{name} {at}")).collect();
        let folder = &self.options.files.data_directory;
        let saved = state::update(folder, SystemTime::now(), |state| {
            state.set_all(STATE_KEY, &values);
        });
        if let Err(error) = saved {
            tracing::warn!("Could not save the state: {error}");
        }
    }

    /// A connection to the extended ORPort.
    pub(super) fn accept_ext_or(&mut self, socket: TcpStream, now: Instant) {
        if self.shutdown.is_under_way() || self.accounting.is_hibernating() {
            return;
        }
        self.count_other_files();
        let is_full = !self.controller.has_room_for_other();
        let nonce: [u8; 32] = self.rng.random();
        let side = &mut self.bridge_transports;
        if let (Some(server), Some(cookie)) = (&side.server, side.cookie)
            && server.serve(socket, ExtOr::new(cookie, nonce), is_full)
        {
            return;
        }
        if let Some(more) = side.refusals.check(now) {
            tracing::warn!("Refused a connection to the Extended ORPort: there are too many{more}");
        }
    }

    /// Takes connections whose clients are known, as if they had come to the ORPort.
    pub(super) fn take_from_transports(&mut self, now: Instant) {
        self.bridge_transports.more_handed_over = false;
        for _ in 0..TAKEN_PER_TURN {
            let server = self.bridge_transports.server.as_ref();
            // From here on it counts as a connection to the ORPort.
            let Some(HandedOver { socket, client, .. }) = server.and_then(ExtOrServer::next) else {
                return;
            };
            let transport = Some(client.transport_name().to_owned());
            if let Some(peer) = address_of(&client, socket.peer_addr().ok()) {
                self.accept_link(socket, peer, transport, now);
            }
        }
        // The thread has woken us for each of them, and does not do so again.
        self.bridge_transports.more_handed_over = true;
    }

    /// Ends all programs.
    pub(super) fn end_bridge_transports(&mut self) {
        self.bridge_transports.programs.end(Instant::now());
    }
}

/// The address of a client, as far as it is known: the one that the transport program states, if it
/// is public; else the program's own.
fn address_of(client: &Client, program: Option<SocketAddr>) -> Option<SocketAddr> {
    let stated = client.address;
    stated.filter(|at| routable::is_public(at.ip())).or(program)
}

/// The address by which a program on this machine reaches a port of ours.
fn or_local(addr: SocketAddr) -> SocketAddr {
    match (addr.ip().is_unspecified(), addr.ip()) {
        (false, _) => addr,
        (true, IpAddr::V4(_)) => SocketAddr::from(([127, 0, 0, 1], addr.port())),
        (true, IpAddr::V6(_)) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), addr.port()),
    }
}

fn write_cookie(
    path: &Path,
    cookie: &[u8; 32],
    group_readable: bool,
) -> Result<(), weft_datadir::file::FileError> {
    write_for_controllers(path, &cookie_file(cookie), group_readable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const BRIDGE: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\nBridgeRelay 1\nDataDirectory /d\n\
                          ServerTransportPlugin obfs3,obfs4 exec /o -x\n";

    fn of(torrc: &str, places: &[(&str, &str)], ext: bool) -> Wanted {
        let options = options(&format!("{BRIDGE}{torrc}"));
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        let places: BTreeMap<String, String> = places.iter().map(owned).collect();
        let or_port = "127.0.0.1:9001".parse().unwrap();
        let ext_or_port = ext.then(|| "127.0.0.1:5000".parse().unwrap());
        let program = &options.bridge_relay.programs[0];
        wanted(program, &options, &places, (Some(or_port), ext_or_port))
    }

    fn variable(wanted: &Wanted, name: &str) -> Option<String> {
        let variables = wanted.environment.variables();
        let mut found = variables.into_iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value)
    }

    #[test]
    fn a_transport_listens_where_torrc_has_it_or_where_it_has_before() {
        let listen = |torrc: &str, places: &[(&str, &str)]| {
            variable(&of(torrc, places, false), "TOR_PT_SERVER_BINDADDR").unwrap()
        };
        assert_eq!(listen("", &[]), "obfs3-0.0.0.0:0,obfs4-0.0.0.0:0");
        let before = [("obfs4", "0.0.0.0:4711"), ("meek", "0.0.0.0:1")];
        assert_eq!(listen("", &before), "obfs3-0.0.0.0:0,obfs4-0.0.0.0:4711");
        let torrc = "ServerTransportListenAddr obfs4 0.0.0.0:443\n";
        assert_eq!(listen(torrc, &before), "obfs3-0.0.0.0:0,obfs4-0.0.0.0:443");
    }

    #[test]
    fn a_program_is_started_anew_where_its_lines_change_and_not_where_its_places_do() {
        let plain = of("", &[], true);
        assert_eq!(
            plain.lines,
            of("", &[("obfs4", "0.0.0.0:4711")], true).lines
        );
        for torrc in [
            "ServerTransportListenAddr obfs4 0.0.0.0:443\n",
            "ServerTransportOptions obfs4 iat-mode=1\n",
            "OutboundBindAddressPT 192.0.2.1\n",
            "ExtORPortCookieAuthFile /elsewhere\n",
        ] {
            assert_ne!(plain.lines, of(torrc, &[], true).lines, "{torrc}");
        }
        assert_ne!(plain.lines, of("", &[], false).lines);
        let others = "ServerTransportOptions meek a=b\nServerTransportListenAddr meek 0.0.0.0:1\n";
        assert_eq!(plain.lines, of(others, &[], true).lines);
    }

    #[test]
    fn a_program_gets_the_ports_and_the_cookie_s_file() {
        let with = of("ServerTransportOptions obfs4 a=b:c\n", &[], true);
        let has = |name| variable(&with, name);
        assert_eq!(
            has("TOR_PT_STATE_LOCATION").as_deref(),
            Some("/d/pt_state/")
        );
        assert_eq!(has("TOR_PT_ORPORT").as_deref(), Some("127.0.0.1:9001"));
        assert_eq!(
            has("TOR_PT_EXTENDED_SERVER_PORT").as_deref(),
            Some("127.0.0.1:5000")
        );
        assert_eq!(
            has("TOR_PT_AUTH_COOKIE_FILE").as_deref(),
            Some("/d/extended_orport_auth_cookie")
        );
        assert_eq!(
            has("TOR_PT_SERVER_TRANSPORT_OPTIONS").as_deref(),
            Some("obfs4:a=b\\:c")
        );
        let without = of("", &[], false);
        assert_eq!(
            variable(&without, "TOR_PT_EXTENDED_SERVER_PORT").as_deref(),
            Some("")
        );
        assert_eq!(variable(&without, "TOR_PT_AUTH_COOKIE_FILE"), None);
    }

    #[test]
    fn the_state_file_s_lines_are_those_of_c_tor() {
        let text = b"TransportProxy obfs4 0.0.0.0:4711\nTransportProxy obfs4 0.0.0.0:1\n\
                     TransportProxy nonsense\nTransportProxy a b:c\nTransportProxy obfs3 [::]:5\n";
        let state = state::State::parse(text).unwrap();
        let found: Vec<String> = places(&state)
            .iter()
            .map(|(name, at)| format!("{name} {at}"))
            .collect();
        assert_eq!(found, ["obfs3 [::]:5", "obfs4 0.0.0.0:4711"]);
    }

    #[test]
    fn the_extra_info_document_has_our_own_address_for_any() {
        let transport = |address: &str, arguments: Option<&str>| Transport {
            name: "obfs4".to_owned(),
            address: address.parse().unwrap(),
            offer: Offer::Bridge {
                arguments: arguments.map(str::to_owned),
            },
        };
        let addresses = Addresses {
            v4: Some("192.0.2.7:9001".parse().unwrap()),
            v6: None,
        };
        let line = |transport: &Transport| extra_info_line(transport, &addresses);
        assert_eq!(
            line(&transport("0.0.0.0:443", Some("cert=a,iat-mode=0"))).as_deref(),
            Some("obfs4 192.0.2.7:443 cert=a,iat-mode=0")
        );
        assert_eq!(
            line(&transport("198.51.100.1:443", None)).as_deref(),
            Some("obfs4 198.51.100.1:443")
        );
        let nowhere = Addresses::default();
        assert_eq!(extra_info_line(&transport("[::]:1", None), &nowhere), None);
    }

    #[test]
    fn a_client_is_where_its_transport_states_unless_nobody_can_come_from_there() {
        let program: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        let of = |address: Option<&str>| {
            let client = Client {
                address: address.map(|address| address.parse().unwrap()),
                transport: None,
            };
            let found = address_of(&client, Some(program)).unwrap();
            assert_eq!(address_of(&client, None).is_none(), found == program);
            found.to_string()
        };
        for public in ["192.0.2.1:5", "[2001:db8::1]:0"] {
            assert_eq!(of(Some(public)), public);
        }
        for none in [
            "127.0.0.2:1",
            "10.0.0.1:1",
            "[::ffff:192.168.0.1]:1",
            "[fe80::1]:1",
            "0.0.0.0:1",
        ] {
            assert_eq!(of(Some(none)), program.to_string(), "{none}");
        }
        assert_eq!(of(None), program.to_string());
    }

    #[test]
    fn programs_reach_ports_of_all_addresses_by_loopback() {
        let of = |addr: &str| or_local(addr.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:5"), "127.0.0.1:5");
        assert_eq!(of("[::]:5"), "[::1]:5");
        assert_eq!(of("192.0.2.1:5"), "192.0.2.1:5");
    }

    #[test]
    fn the_cookie_is_for_its_owner_alone_unless_torrc_allows_the_group() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cookie");
        for (group, mode) in [(false, 0o600), (true, 0o640)] {
            write_cookie(&path, &[7; 32], group).unwrap();
            let file = std::fs::read(&path).unwrap();
            assert_eq!(file, cookie_file(&[7; 32]));
            let found = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
    }
}
