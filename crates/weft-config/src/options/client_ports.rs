//! Ports for this machine's own applications and controllers: `SocksPort`, `HTTPTunnelPort`, `TransPort`,
//! `NATDPort`, `DNSPort`, `ControlPort` and `ControlSocket`, with their flags (src/app/config/config.c,
//! `port_parse_config`).
//!
//! One difference from C tor: a node that has an ORPort gets no SocksPort unless a line asks for
//! one; C tor would listen on 9050.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::host::Host;
use crate::report::Report;
use crate::settings::Settings;
use crate::table::key::Key;
use crate::table::value::ListLine;
use crate::text::number::parse_long;
use crate::text::ports::{PortNumber, Resolve, Target, parse_target};

/// Where a port listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAt {
    /// A TCP port (of a `DNSPort`: UDP).
    Tcp {
        /// The address.
        address: IpAddr,
        /// The port.
        port: PortNumber,
    },
    /// A Unix socket.
    Unix(UnixPath),
}

/// A Unix socket's place, and which users may connect to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixPath {
    /// The socket.
    pub path: PathBuf,
    /// `GroupWritable`: the group may connect.
    pub group_writable: bool,
    /// `WorldWritable`: everybody may.
    pub world_writable: bool,
    /// `RelaxDirModeCheck`: the directory need not be private.
    pub relax_dir_mode_check: bool,
}

impl ListenAt {
    /// Address to bind to, if this is a TCP address.
    #[must_use]
    pub fn to_bind(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp { address, port } => Some(SocketAddr::new(*address, port.to_bind())),
            Self::Unix(_) => None,
        }
    }
}

impl std::fmt::Display for ListenAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp {
                address,
                port: PortNumber::Auto,
            } if address.is_ipv6() => write!(f, "[{address}]:auto"),
            Self::Tcp {
                address,
                port: PortNumber::Auto,
            } => write!(f, "{address}:auto"),
            Self::Tcp {
                address,
                port: PortNumber::Fixed(port),
            } => write!(f, "{}", SocketAddr::new(*address, *port)),
            Self::Unix(unix) => write!(f, "unix:{}", unix.path.display()),
        }
    }
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppService {
    /// `SocksPort`.
    Socks,
    /// `HTTPTunnelPort`.
    HttpTunnel,
    /// `DNSPort`.
    Dns,
    /// `TransPort`.
    Transparent(Redirection),
    /// `NATDPort`.
    Natd,
}

/// Method by which the firewall redirects connections to a `TransPort` (`TransProxyType`), which
/// decides where their destination is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Redirection {
    /// By REDIRECT or DNAT: netfilter knows it.
    #[default]
    Netfilter,
    /// By TPROXY: the socket's own address is the destination.
    Tproxy,
}

impl std::fmt::Display for AppService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Socks => "Socks",
            Self::HttpTunnel => "HTTP tunnel",
            Self::Dns => "DNS",
            // C tor's names.
            Self::Transparent(_) => "Transparent pf/netfilter",
            Self::Natd => "Transparent natd",
        })
    }
}

/// One port for applications.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppPort {
    /// Its protocol.
    pub service: AppService,
    /// Where it listens.
    pub at: ListenAt,
    /// Flags of its streams.
    pub flags: StreamFlags,
}

/// Fields that isolate streams of a port, besides NEWNYM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)]
pub struct Isolation {
    /// `IsolateClientAddr` (on unless `NoIsolateClientAddr`).
    pub client_addr: bool,
    /// `IsolateSOCKSAuth` (on unless `NoIsolateSOCKSAuth`).
    pub socks_auth: bool,
    /// `IsolateClientProtocol`.
    pub client_protocol: bool,
    /// `IsolateDestPort`.
    pub dest_port: bool,
    /// `IsolateDestAddr`.
    pub dest_addr: bool,
    /// `KeepAliveIsolateSOCKSAuth`: circuits of streams with credentials do not get too dirty.
    pub keep_alive_socks_auth: bool,
    /// `SessionGroup`: ports of one group may share circuits; `None`: the port is alone.
    pub session_group: Option<u32>,
}

impl Default for Isolation {
    fn default() -> Self {
        Self {
            client_addr: true,
            socks_auth: true,
            client_protocol: false,
            dest_port: false,
            dest_addr: false,
            keep_alive_socks_auth: false,
            session_group: None,
        }
    }
}

/// Flags of a port's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools)]
pub struct StreamFlags {
    /// See there.
    pub isolation: Isolation,
    /// Not `NoIPv4Traffic`: exits may connect by IPv4.
    pub ipv4_traffic: bool,
    /// Not `NoIPv6Traffic`: exits may connect by IPv6.
    pub ipv6_traffic: bool,
    /// `PreferIPv6`: by IPv6 first.
    pub prefer_ipv6: bool,
    /// Not `NoDNSRequest`: exits may look up names.
    pub dns_request: bool,
    /// Not `NoOnionTraffic`.
    pub onion_traffic: bool,
    /// `PreferSOCKSNoAuth`: SOCKS5 clients that can do both are asked for no user name.
    pub prefer_no_auth: bool,
    /// `Multipath`: connections get tunnels of mTor.
    pub multipath: bool,
    /// Not `NoPreferIPv6Automap`: names that are looked up get virtual IPv6 addresses (`AutomapHostsOnResolve`).
    pub prefer_ipv6_automap: bool,
    /// `ExtendedErrors`: SOCKS5 answers of onion services have separate codes.
    pub extended_errors: bool,
}

impl Default for StreamFlags {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            ipv4_traffic: true,
            ipv6_traffic: true,
            prefer_ipv6: false,
            dns_request: true,
            onion_traffic: true,
            prefer_no_auth: false,
            multipath: false,
            prefer_ipv6_automap: true,
            extended_errors: false,
        }
    }
}

/// Flags that a port may have, and its address unless the line has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grammar {
    /// The option's name, for errors.
    pub(crate) option: &'static str,
    /// Its streams have flags; without: a control port.
    pub(crate) service: Option<AppService>,
    /// Lines are paths (`ControlSocket`).
    pub(crate) paths: bool,
    /// Unix sockets are `GroupWritable` unless a flag excludes it.
    pub(crate) group_writable: bool,
}

/// A port and its flags; those of a control port mean nothing.
pub(crate) type Parsed = (ListenAt, StreamFlags);

/// Reads the lines of a port option.
///
/// # Errors
/// A line is malformed: the text names it.
pub(crate) fn parse_client_ports(
    grammar: Grammar,
    lines: &[&str],
    resolve: &Resolve<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Parsed>, String> {
    let option = grammar.option;
    let mut ports = Vec::new();
    let (mut off, mut on) = (false, false);
    for line in lines {
        let wrong = |why: String| format!("{option} {line}: {why}");
        let (target, words) = split(grammar, line, resolve).map_err(wrong)?;
        let unix = matches!(target, Target::Unix(_));
        let only_tcp = matches!(
            grammar.service,
            Some(AppService::Dns | AppService::Transparent(_) | AppService::Natd)
        );
        if unix && only_tcp {
            return Err(wrong("it cannot be a Unix socket".to_owned()));
        }
        let flags = Flags::parse(grammar, words, warnings).map_err(wrong)?;
        // `ControlSocket 0 GroupWritable`: no socket, and how it would be is of no matter.
        let may_be_unix = unix || grammar.paths && matches!(target, Target::Off);
        flags.check(grammar, may_be_unix).map_err(wrong)?;
        let at = match target {
            Target::Off => {
                off = true;
                continue;
            }
            Target::Tcp(named, port) => ListenAt::Tcp {
                address: named.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                port,
            },
            Target::Unix(path) => ListenAt::Unix(UnixPath {
                path: unquote(&path).into(),
                group_writable: flags.group_writable,
                world_writable: flags.world_writable,
                relax_dir_mode_check: flags.relax_dir_mode_check,
            }),
        };
        on = true;
        if let (Some(service), ListenAt::Tcp { address, .. }) = (grammar.service, &at) {
            warn_of_strangers(service, option, *address, warnings);
        }
        let mut streams = flags.streams;
        // All connections to a Unix socket have the same address.
        streams.isolation.client_addr &= !unix;
        streams.prefer_no_auth |= !streams.isolation.socks_auth;
        if !ports.contains(&(at.clone(), streams)) {
            ports.push((at, streams));
        }
    }
    if off && on {
        return Err(format!(
            "{option} 0 disables the port, but other {option} lines set one"
        ));
    }
    Ok(ports)
}

/// Splits a line into its target and its flags.
fn split<'a>(
    grammar: Grammar,
    line: &'a str,
    resolve: &Resolve<'_>,
) -> Result<(Target, &'a str), String> {
    if !grammar.paths || line.trim_start().starts_with("unix:") {
        return parse_target(line, resolve);
    }
    let line = line.trim_start();
    let end = line
        .find(|c: char| c.is_ascii_whitespace())
        .unwrap_or(line.len());
    match line.split_at(end) {
        ("", _) => Err("it names no path".to_owned()),
        ("0", rest) => Ok((Target::Off, rest)),
        (path, rest) => Ok((Target::Unix(path.to_owned()), rest)),
    }
}

/// A path that may stand in quotes.
fn unquote(path: &str) -> String {
    let Some(inner) = path
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return path.to_owned();
    };
    let mut escaped = false;
    inner
        .chars()
        .filter(|c| {
            escaped = *c == '\\' && !escaped;
            !escaped
        })
        .collect()
}

/// Warns about a port that others than this machine's own users reach.
fn warn_of_strangers(
    service: AppService,
    option: &str,
    address: IpAddr,
    warnings: &mut Vec<String>,
) {
    if address.is_loopback() {
        return;
    }
    let private = match address {
        IpAddr::V4(address) => address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    };
    warnings.push(if private {
        format!(
            "{option} listens on {address}, which is not this machine alone: everybody in the \
             local network can use it as a proxy"
        )
    } else {
        format!(
            "{option} listens on {address}, a public address: others on the Internet can find it \
             and use it as an open {service} proxy. Do not do this without a good reason"
        )
    });
}

#[derive(Default)]
struct Flags {
    streams: StreamFlags,
    group_writable: bool,
    world_writable: bool,
    relax_dir_mode_check: bool,
    /// One of the three above was named.
    of_unix_sockets: bool,
}

impl Flags {
    fn parse(grammar: Grammar, text: &str, warnings: &mut Vec<String>) -> Result<Self, String> {
        let mut flags = Self {
            group_writable: grammar.group_writable,
            ..Self::default()
        };
        for word in text.split_ascii_whitespace() {
            let lower = word.to_ascii_lowercase();
            if let Some(group) = lower.strip_prefix("sessiongroup=") {
                flags.set_session_group(grammar, word, group)?;
                continue;
            }
            let (on, name) = match lower.strip_prefix("no") {
                Some(name) => (false, name),
                None => (true, lower.as_str()),
            };
            let known = flags.set_unix(on, name)
                || (grammar.service.is_some()
                    && (flags.set_traffic(on, name)
                        || flags.set_other(on, name, word, warnings)
                        || flags.set_isolation(on, name)));
            if !known {
                warnings.push(format!(
                    "ignored the unknown {} flag \"{word}\"",
                    grammar.option
                ));
            }
        }
        Ok(flags)
    }

    fn set_session_group(
        &mut self,
        grammar: Grammar,
        word: &str,
        group: &str,
    ) -> Result<(), String> {
        let number = parse_long(group, 0, i64::from(i32::MAX)).and_then(|n| u32::try_from(n).ok());
        let isolation = &mut self.streams.isolation;
        match number.filter(|_| grammar.service.is_some()) {
            None => Err(format!("\"{word}\" is not a session group")),
            Some(_) if isolation.session_group.is_some() => {
                Err("it has more than one SessionGroup".to_owned())
            }
            Some(number) => {
                isolation.session_group = Some(number);
                Ok(())
            }
        }
    }

    fn set_unix(&mut self, on: bool, name: &str) -> bool {
        match name {
            "groupwritable" => self.group_writable = on,
            "worldwritable" => self.world_writable = on,
            "relaxdirmodecheck" => self.relax_dir_mode_check = on,
            _ => return false,
        }
        self.of_unix_sockets = true;
        true
    }

    fn set_traffic(&mut self, on: bool, name: &str) -> bool {
        let streams = &mut self.streams;
        match name {
            "ipv4traffic" => streams.ipv4_traffic = on,
            "ipv6traffic" => streams.ipv6_traffic = on,
            "preferipv6" => streams.prefer_ipv6 = on,
            "dnsrequest" => streams.dns_request = on,
            "oniontraffic" => streams.onion_traffic = on,
            "oniontrafficonly" if on => {
                streams.ipv4_traffic = false;
                streams.ipv6_traffic = false;
                streams.dns_request = false;
            }
            _ => return false,
        }
        true
    }

    fn set_other(&mut self, on: bool, name: &str, word: &str, warnings: &mut Vec<String>) -> bool {
        match name {
            "cacheipv4dns" | "cacheipv6dns" | "cachedns" | "useipv4cache" | "useipv6cache"
            | "usednscache" => {
                // Exits could distinguish clients by it; C tor warns, too.
                if on {
                    warnings.push(format!(
                        "ignored \"{word}\": Weft keeps no answers to its applications' DNS \
                         requests"
                    ));
                }
            }
            "preferipv6automap" => self.streams.prefer_ipv6_automap = on,
            "prefersocksnoauth" => self.streams.prefer_no_auth = on,
            "multipath" => self.streams.multipath = on,
            "keepaliveisolatesocksauth" => self.streams.isolation.keep_alive_socks_auth = on,
            "extendederrors" => self.streams.extended_errors = on,
            _ => return false,
        }
        true
    }

    fn set_isolation(&mut self, on: bool, name: &str) -> bool {
        let isolation = &mut self.streams.isolation;
        match name.strip_suffix('s').unwrap_or(name) {
            "isolateclientaddr" => isolation.client_addr = on,
            "isolatesocksauth" => isolation.socks_auth = on,
            "isolateclientprotocol" => isolation.client_protocol = on,
            "isolatedestport" => isolation.dest_port = on,
            "isolatedestaddr" => isolation.dest_addr = on,
            _ => return false,
        }
        true
    }

    /// Flags that do not go together.
    fn check(&self, grammar: Grammar, unix: bool) -> Result<(), String> {
        let streams = &self.streams;
        let addresses = streams.ipv4_traffic || streams.ipv6_traffic;
        let wrong = if grammar.service == Some(AppService::Dns) && !streams.dns_request {
            Some("NoDNSRequest leaves it nothing to do")
        } else if grammar.service == Some(AppService::Dns) && streams.multipath {
            Some("Multipath is for connections, and requests here are lookups")
        } else if grammar.service != Some(AppService::Dns) && !addresses && !streams.onion_traffic {
            Some("IPv4, IPv6 and onion traffic are all disabled")
        } else if grammar.service != Some(AppService::Dns) && !addresses && streams.dns_request {
            Some(
                "IPv4 and IPv6 are disabled, and DNSRequest is not: sites with names will not work",
            )
        } else if self.of_unix_sockets && !unix {
            Some("GroupWritable, WorldWritable and RelaxDirModeCheck are for Unix sockets")
        } else if !streams.isolation.socks_auth && streams.isolation.keep_alive_socks_auth {
            Some("NoIsolateSOCKSAuth and KeepAliveIsolateSOCKSAuth contradict each other")
        } else {
            None
        };
        wrong.map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

/// Reads the lines of one port option.
pub(crate) fn read_ports(
    grammar: Grammar,
    key: Key<Vec<ListLine>>,
    settings: &Settings,
    host: &dyn Host,
    report: &mut Report,
) -> Vec<Parsed> {
    let lines = settings.lines(key);
    let texts: Vec<&str> = lines.iter().map(|line| line.value.as_str()).collect();
    let mut warnings = Vec::new();
    let origin = settings.origin(key);
    let parsed = parse_client_ports(grammar, &texts, &|name| host.resolve(name), &mut warnings);
    for warning in warnings {
        report.warn(origin, warning);
    }
    parsed.unwrap_or_else(|why| {
        report.error_with_c_tor_message(origin, why, invalid_port(grammar.option));
        Vec::new()
    })
}

/// C tor's message for a port that cannot be read.
pub(crate) fn invalid_port(option: &str) -> String {
    format!("Failed to parse/validate config: Invalid {option} configuration")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKS: Grammar = Grammar {
        option: "SocksPort",
        service: Some(AppService::Socks),
        paths: false,
        group_writable: false,
    };
    const DNS: Grammar = Grammar {
        option: "DNSPort",
        service: Some(AppService::Dns),
        ..SOCKS
    };
    const CONTROL: Grammar = Grammar {
        option: "ControlSocket",
        service: None,
        paths: true,
        group_writable: true,
    };

    fn parse(grammar: Grammar, lines: &[&str]) -> Result<(Vec<Parsed>, Vec<String>), String> {
        let mut warnings = Vec::new();
        let ports = parse_client_ports(grammar, lines, &|_| None, &mut warnings)?;
        Ok((ports, warnings))
    }

    fn one(line: &str) -> (String, StreamFlags) {
        let (mut ports, warnings) = parse(SOCKS, &[line]).unwrap();
        assert_eq!(warnings, Vec::<String>::new(), "{line}");
        let (at, flags) = ports.remove(0);
        (at.to_string(), flags)
    }

    #[test]
    fn ports_are_local_unless_they_name_an_address() {
        assert_eq!(one("9050").0, "127.0.0.1:9050");
        assert_eq!(one("auto").0, "127.0.0.1:auto");
        assert_eq!(one("[::1]:9150").0, "[::1]:9150");
        assert_eq!(one("unix:/run/weft/socks").0, "unix:/run/weft/socks");
        assert_eq!(one("unix:\"/run/a \\\"b\\\\\"").0, "unix:/run/a \"b\\");
        assert_eq!(parse(SOCKS, &["0"]).unwrap().0, []);
        let (_, warnings) = parse(SOCKS, &["192.168.1.1:9050", "192.0.2.1:9050"]).unwrap();
        assert!(warnings[0].contains("local network"), "{warnings:?}");
        assert!(warnings[1].contains("open Socks proxy"), "{warnings:?}");
    }

    #[test]
    fn a_port_that_strangers_reach_has_a_warning_that_says_who() {
        for (address, who) in [
            ("127.0.0.2", ""),
            ("[::1]", ""),
            ("10.0.0.1", "local network"),
            ("169.254.1.1", "local network"),
            ("[fd00::1]", "local network"),
            ("[fe80::1]", "local network"),
            ("8.8.8.8", "a public address"),
            ("[2620::1]", "a public address"),
        ] {
            let (_, warnings) = parse(SOCKS, &[&format!("{address}:9050")]).unwrap();
            let warned = warnings.join("\n");
            assert_eq!(warnings.is_empty(), who.is_empty(), "{address}: {warned}");
            assert!(warned.contains(who), "{address}: {warned}");
        }
    }

    #[test]
    fn streams_are_isolated_by_the_flags() {
        let default = Isolation::default();
        assert_eq!(one("1").1.isolation, default);
        assert_eq!(
            one(
                "1 IsolateDestAddrs isolatedestport IsolateClientProtocol SessionGroup=3 \
                 NoIsolateClientAddr KeepAliveIsolateSOCKSAuth"
            )
            .1
            .isolation,
            Isolation {
                client_addr: false,
                socks_auth: true,
                client_protocol: true,
                dest_port: true,
                dest_addr: true,
                keep_alive_socks_auth: true,
                session_group: Some(3),
            }
        );
        let shared = one("1 NoIsolateSOCKSAuth").1;
        assert!(!shared.isolation.socks_auth && shared.prefer_no_auth);
        assert!(!one("unix:/a IsolateClientAddr").1.isolation.client_addr);
    }

    #[test]
    fn traffic_is_limited_by_the_flags() {
        let onion = one("1 OnionTrafficOnly").1;
        assert!(!onion.ipv4_traffic && !onion.ipv6_traffic && !onion.dns_request);
        assert!(onion.onion_traffic);
        let six = one("1 NoIPv4Traffic PreferIPv6 ExtendedErrors NoOnionTraffic").1;
        assert!(!six.ipv4_traffic && six.prefer_ipv6 && six.extended_errors);
        assert!(!six.onion_traffic);
        let (_, warnings) = parse(SOCKS, &["1 CacheIPv4DNS NoUseDNSCache"]).unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }

    #[test]
    fn unix_sockets_have_modes_for_connecting() {
        let (ports, _) = parse(CONTROL, &["/a NoGroupWritable WorldWritable", "unix:/b"]).unwrap();
        let of = |at: &ListenAt| match at {
            ListenAt::Unix(unix) => (unix.group_writable, unix.world_writable),
            ListenAt::Tcp { .. } => panic!("{at}"),
        };
        assert_eq!(
            (of(&ports[0].0), of(&ports[1].0)),
            ((false, true), (true, false))
        );
        assert_eq!(parse(CONTROL, &["0"]).unwrap().0, []);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for line in [
            "",
            "x",
            "1 SessionGroup=x",
            "1 SessionGroup=-1",
            "1 SessionGroup=1 SessionGroup=1",
            "1 NoIPv4Traffic NoIPv6Traffic",
            "1 NoIPv4Traffic NoIPv6Traffic NoDNSRequest NoOnionTraffic",
            "1 WorldWritable",
            "1 NoIsolateSOCKSAuth KeepAliveIsolateSOCKSAuth",
            "unix:",
            "127.0.0.1:0",
        ] {
            assert!(parse(SOCKS, &[line]).is_err(), "{line:?}");
        }
        assert!(parse(SOCKS, &["0", "1"]).is_err());
        assert!(parse(DNS, &["1 NoDNSRequest"]).is_err());
        assert!(parse(DNS, &["1 Multipath"]).is_err());
        assert!(parse(DNS, &["unix:/a"]).is_err());
        let transparent = Grammar {
            option: "TransPort",
            service: Some(AppService::Transparent(Redirection::Netfilter)),
            ..SOCKS
        };
        assert!(parse(transparent, &["unix:/a"]).is_err());
        assert!(parse(CONTROL, &["/a SessionGroup=1"]).is_err());
        let (_, warnings) = parse(SOCKS, &["1 Frobnicate NoOnionTrafficOnly"]).unwrap();
        assert_eq!(warnings.len(), 2);
        let (_, warnings) = parse(CONTROL, &["/a IPv6Traffic"]).unwrap();
        assert_eq!(warnings.len(), 1);
    }
}
