//! The addresses that others reach the relay at: found by C tor's rules (resolve_addr.c), with the
//! host names of `Address` looked up beside everything else.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_config::{Options, PortNumber};
use weft_core::routable;
use weft_dir::command::Command;

use super::Relay;
use crate::logging::{self, safe};

/// Interval between look-ups of host names, as in C tor (CHECK_DESCRIPTOR_INTERVAL).
const LOOK_UP_EVERY: Duration = Duration::from_secs(60);

/// Our addresses, and what they are found by.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    /// Host names of `Address`.
    pub(super) names: HostNames,
    pub(super) addresses: Addresses,
    /// Addresses that the log has reported as unusable.
    pub(super) refused: Vec<IpAddr>,
    /// Our address as an authority sees it.
    pub(super) seen: Option<IpAddr>,
}

impl OwnAddresses {
    /// Finds the addresses at the start. `ports` are the advertised ones.
    pub(super) fn find(options: &Options, ports: &[(IpAddr, u16)], now: Instant) -> Self {
        let names = HostNames::look_up(options, now);
        let found = Addresses::find(options, &names, ports, interface_address, None);
        log_refused(&found);
        OwnAddresses {
            names,
            addresses: found.addresses,
            refused: found.refused,
            seen: None,
        }
    }
}

/// The addresses that others reach the relay at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The IPv4 address and port; a descriptor needs one.
    pub(super) v4: Option<SocketAddrV4>,
    /// The IPv6 address and port.
    pub(super) v6: Option<SocketAddrV6>,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The addresses.
    pub(super) addresses: Addresses,
    /// Addresses that the operator set and that no node of the network could reach.
    pub(super) refused: Vec<IpAddr>,
}

impl Addresses {
    /// Finds the addresses: `Address`, else the ORPort lines', else this machine's
    /// (`interface`), else the one that an authority sees (`seen`). `ports` are the advertised ports by family,
    /// as bound.
    pub(super) fn find(
        options: &Options,
        names: &HostNames,
        ports: &[(IpAddr, u16)],
        interface: impl Fn(bool) -> Option<IpAddr>,
        seen: Option<IpAddr>,
    ) -> Found {
        let mut refused = Vec::new();
        let mut find = |v4: bool| {
            let (bound, port) = ports
                .iter()
                .find(|(addr, _)| addr.is_ipv4() == v4)
                .copied()?;
            let configured = options
                .network
                .addresses
                .iter()
                .flat_map(|text| match literal(text) {
                    Some(addr) => vec![(addr, true)],
                    None => names.addresses(text).map(|addr| (addr, false)).collect(),
                })
                .find(|(addr, _)| addr.is_ipv4() == v4);
            let addr = match configured {
                Some((addr, explicit)) if can_be_used(addr, options, explicit) => addr,
                Some((addr, _)) => {
                    refused.push(addr);
                    return None;
                }
                None => Some(bound)
                    .filter(|addr| can_be_used(*addr, options, true))
                    .or_else(|| interface(v4).filter(|addr| can_be_used(*addr, options, false)))
                    .or_else(|| {
                        seen.filter(|addr| addr.is_ipv4() == v4)
                            .filter(|addr| can_be_used(*addr, options, false))
                    })?,
            };
            Some(SocketAddr::new(addr, port))
        };
        let v4 = match find(true) {
            Some(SocketAddr::V4(addr)) => Some(addr),
            _ => None,
        };
        let v6 = match options.network.address_disable_ipv6 {
            true => None,
            false => match find(false) {
                Some(SocketAddr::V6(addr)) => Some(addr),
                _ => None,
            },
        };
        Found {
            addresses: Addresses { v4, v6 },
            refused,
        }
    }

    /// All of them.
    pub(super) fn ips(&self) -> Vec<IpAddr> {
        let v4 = self.v4.map(|addr| IpAddr::V4(*addr.ip()));
        let v6 = self.v6.map(|addr| IpAddr::V6(*addr.ip()));
        v4.into_iter().chain(v6).collect()
    }
}

/// True if an address may be published: it is public, or a private one is allowed
/// (`address_can_be_used`). `explicit`: the operator configured it.
fn can_be_used(addr: IpAddr, options: &Options, explicit: bool) -> bool {
    let directory = &options.directory;
    let assumed = directory.assume_reachable || (addr.is_ipv6() && directory.assume_reachable_ipv6);
    !addr.is_unspecified()
        && (routable::is_public(addr)
            || directory.allow_private_addresses
            || (!directory.publish && assumed)
            || (!directory.default_authorities && explicit))
}

/// A literal address of `Address`.
fn literal(text: &str) -> Option<IpAddr> {
    text.trim_matches(['[', ']']).parse().ok()
}

/// The address that this machine would send from to the Internet; nothing is sent.
pub(super) fn interface_address(v4: bool) -> Option<IpAddr> {
    // Addresses that C tor asks the routing table about, too.
    let (bind, far) = if v4 {
        ("0.0.0.0:0", "18.0.0.1:9")
    } else {
        ("[::]:0", "[2002::]:9")
    };
    let socket = UdpSocket::bind(bind).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Results of a look-up, by name.
type Answers = BTreeMap<String, io::Result<Vec<IpAddr>>>;

/// The host names of `Address`. The system's resolver may take its time: except for the first time,
/// it is asked on a separate thread.
#[derive(Debug, Default)]
pub(super) struct HostNames {
    known: BTreeMap<String, Vec<IpAddr>>,
    running: Option<JoinHandle<Answers>>,
    next: Option<Instant>,
}

impl HostNames {
    /// Looks the names up and waits for the answers.
    pub(super) fn look_up(options: &Options, now: Instant) -> Self {
        let mut names = HostNames {
            next: Some(now + LOOK_UP_EVERY),
            ..HostNames::default()
        };
        names.note(ask(names_of(options)));
        names
    }

    /// The next [`poll`](Self::poll) looks the names up.
    pub(super) fn look_up_soon(&mut self) {
        self.next = None;
    }

    /// Starts a look-up that is due, and takes in the answers of one that has ended. Returns
    /// whether an address is another now.
    pub(super) fn poll(&mut self, options: &Options, now: Instant) -> bool {
        if let Some(done) = self.running.take_if(|running| running.is_finished()) {
            return done.join().is_ok_and(|answers| self.note(answers));
        }
        if self.running.is_none() && self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + LOOK_UP_EVERY);
            let names = names_of(options);
            self.known.retain(|name, _| names.contains(name));
            if !names.is_empty() {
                self.running = logging::spawn("resolver", move || ask(names))
                    .inspect_err(|error| tracing::warn!("Could not look up Address: {error}"))
                    .ok();
            }
        }
        false
    }

    /// Known addresses of a name.
    fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        self.known.get(name).into_iter().flatten().copied()
    }

    /// Takes answers in; a name that could not be looked up keeps what it had.
    fn note(&mut self, answers: Answers) -> bool {
        let mut changed = false;
        for (name, answer) in answers {
            match answer {
                Ok(mut addrs) => {
                    // Round-robin names come in another order each time.
                    addrs.sort_unstable();
                    addrs.dedup();
                    let before = self.known.insert(name, addrs.clone());
                    changed |= before != Some(addrs);
                }
                Err(error) => tracing::warn!(
                    "Could not resolve Address \"{name}\": {error}. Is the name right, and does \
                     this machine's name server answer?"
                ),
            }
        }
        changed
    }
}

/// The host names among the values of `Address`.
fn names_of(options: &Options) -> Vec<String> {
    let texts = options.network.addresses.iter();
    texts
        .filter(|text| literal(text).is_none())
        .cloned()
        .collect()
}

/// Asks the system's resolver.
fn ask(names: Vec<String>) -> Answers {
    names
        .into_iter()
        .map(|name| {
            let answer = (name.as_str(), 0)
                .to_socket_addrs()
                .map(|addrs| addrs.map(|addr| addr.ip()).collect());
            (name, answer)
        })
        .collect()
}

/// True if `Address` names hosts, which [`own_addresses`] looks up.
pub(crate) fn has_host_names(options: &Options) -> bool {
    !names_of(options).is_empty()
}

/// The addresses at which others reach a relay of these options, as far as that is known without listening: ports that the
/// system chooses are not among them.
pub fn own_addresses(options: &Options) -> Vec<SocketAddr> {
    let lines = options.network.or_ports.iter();
    let ports = lines.filter(|line| line.advertise && line.port != PortNumber::Auto);
    let ports: Vec<_> = ports
        .map(|line| (line.address, line.port.to_bind()))
        .collect();
    let names = HostNames::look_up(options, Instant::now());
    let found = Addresses::find(options, &names, &ports, interface_address, None);
    let v4 = found.addresses.v4.map(SocketAddr::V4);
    let v6 = found.addresses.v6.map(SocketAddr::V6);
    v4.into_iter().chain(v6).collect()
}

impl Relay {
    /// Looks for our addresses again.
    pub(super) fn find_addresses(&mut self) {
        let found = Addresses::find(
            &self.options,
            &self.own.names,
            &self.listeners.advertised(&self.options.network),
            interface_address,
            self.own.seen,
        );
        if found.refused != self.own.refused {
            log_refused(&found);
            self.own.refused.clone_from(&found.refused);
        }
        let found = found.addresses;
        if found != self.own.addresses {
            self.own.addresses = found;
            self.send_thread_params();
            self.apply_exits(false, Instant::now());
            let addresses = &self.own.addresses;
            self.self_test.set_addresses(addresses, Instant::now());
            let (ipv4, ipv6) = self.self_test.reachability.is_reachable();
            self.directory(Command::Reachable { ipv4, ipv6 });
            self.publish_descriptor();
        }
    }
}

/// Logs addresses that cannot be used, and what to do.
fn log_refused(found: &Found) {
    for addr in &found.refused {
        tracing::warn!(
            "Address {} is private: nobody on the public network can reach it, and no descriptor \
             is published. Set Address to this machine's public address. In a network of your own \
             set DirAuthority, or DirAllowPrivateAddresses 1",
            safe(addr)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    const BOTH: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";
    const OWN_AUTHORITY: &str = "DirAuthority a orport=1 127.0.0.1:2 \
         AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Both families are bound to every address of a machine that has the given ones.
    fn find(torrc: &str, names: &HostNames, machine: &[&str], seen: Option<&str>) -> Found {
        let ports = [(ip("0.0.0.0"), 9001), (ip("::"), 9001)];
        let interface = |v4| machine.iter().map(|a| ip(a)).find(|a| a.is_ipv4() == v4);
        let options = options(&format!("{BOTH}{torrc}"));
        Addresses::find(&options, names, &ports, interface, seen.map(ip))
    }

    fn ips(found: &Found) -> Vec<String> {
        let ips = found.addresses.ips();
        ips.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn the_operator_s_word_comes_first_then_the_machine_s_then_the_others() {
        let none = HostNames::default();
        let machine = ["1.0.0.1", "2620::1"];
        let found = find("Address 9.0.0.9\n", &none, &machine, None);
        assert_eq!(ips(&found), ["9.0.0.9", "2620::1"]);
        let found = find("", &none, &machine, Some("5.0.0.5"));
        assert_eq!(ips(&found), ["1.0.0.1", "2620::1"]);
        let found = find("", &none, &["10.0.0.1"], Some("5.0.0.5"));
        assert_eq!(ips(&found), ["5.0.0.5"]);
        let found = find("AddressDisableIPv6 1\n", &none, &machine, None);
        assert_eq!(ips(&found), ["1.0.0.1"]);
        assert_eq!(found.addresses.v4.unwrap().port(), 9001);
    }

    #[test]
    fn a_private_address_is_refused_unless_the_network_is_the_operator_s_own() {
        let none = HostNames::default();
        let private = "Address 10.0.0.1\n";
        let found = find(private, &none, &["1.0.0.1"], None);
        assert_eq!(found.refused, [ip("10.0.0.1")]);
        assert_eq!(ips(&found), [""; 0], "and nothing else is made up");
        for allowed in [
            "DirAllowPrivateAddresses 1\n",
            OWN_AUTHORITY,
            "PublishServerDescriptor 0\nAssumeReachable 1\n",
        ] {
            let found = find(&format!("{private}{allowed}"), &none, &[], None);
            assert_eq!(ips(&found), ["10.0.0.1"], "{allowed}");
        }
        // An address that the operator did not configure must be allowed explicitly.
        let found = find(OWN_AUTHORITY, &none, &["10.0.0.1"], None);
        assert_eq!(ips(&found), [""; 0]);
        let found = find("DirAllowPrivateAddresses 1\n", &none, &["10.0.0.1"], None);
        assert_eq!(ips(&found), ["10.0.0.1"]);
    }

    #[test]
    fn a_name_s_addresses_are_followed_and_kept_when_it_cannot_be_looked_up() {
        let name = || "relay.example".to_owned();
        let mut names = HostNames::default();
        let torrc = "Address relay.example\n";
        assert_eq!(ips(&find(torrc, &names, &["1.0.0.1"], None)), ["1.0.0.1"]);
        let answer =
            |addrs: &[&str]| Answers::from([(name(), Ok(addrs.iter().map(|a| ip(a)).collect()))]);
        assert!(names.note(answer(&["9.0.0.9", "9.0.0.8", "2620::9"])));
        assert!(!names.note(answer(&["2620::9", "9.0.0.8", "9.0.0.9"])));
        let found = find(torrc, &names, &["1.0.0.1"], None);
        assert_eq!(ips(&found), ["9.0.0.8", "2620::9"]);
        assert!(!names.note(Answers::from([(name(), Err(io::Error::other("silence")))])));
        assert_eq!(find(torrc, &names, &["1.0.0.1"], None), found);
        assert!(names.note(answer(&["9.0.0.7"])));
        assert_eq!(ips(&find(torrc, &names, &[], None)), ["9.0.0.7"]);
        // A name with a private address is refused even in a private network.
        assert!(names.note(answer(&["10.0.0.1"])));
        let found = find(&format!("{torrc}{OWN_AUTHORITY}"), &names, &[], None);
        assert_eq!(found.refused, [ip("10.0.0.1")]);
    }

    #[test]
    fn names_are_looked_up_on_another_thread_when_it_is_time() {
        let options = options(&format!("{BOTH}Address localhost\n"));
        let start = Instant::now();
        let mut names = HostNames {
            next: Some(start + LOOK_UP_EVERY),
            ..HostNames::default()
        };
        assert!(!names.poll(&options, start));
        assert!(names.running.is_none());
        names.look_up_soon();
        assert!(!names.poll(&options, start));
        assert!(names.running.is_some());
        while !names.poll(&options, start) {
            std::thread::yield_now();
        }
        assert!(names.addresses("localhost").all(|addr| addr.is_loopback()));
        assert!(names.addresses("localhost").next().is_some());
        // No name any more: nothing is kept.
        let without = crate::relay::testing::options(BOTH);
        assert!(!names.poll(&without, start + LOOK_UP_EVERY));
        assert!(names.running.is_none() && names.known.is_empty());
    }
}
