//! Port lines: `ORPort [address:]PORT [flags]` and the syntax that the other `…Port` options share
//! with it (src/app/config/config.c `port_parse_config`, src/feature/relay/relay_config.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::text::address::{AddressPort, parse_address_port, split_host_port};
use crate::text::number::parse_long;

/// A port number, or the operating system's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortNumber {
    /// This port; never 0.
    Fixed(u16),
    /// `auto`: whichever is free.
    Auto,
}

impl PortNumber {
    /// The number to bind to: 0 lets the operating system choose.
    #[must_use]
    pub const fn to_bind(self) -> u16 {
        match self {
            Self::Fixed(port) => port,
            Self::Auto => 0,
        }
    }
}

/// One address and port of the relay's ORPort lines, or of another option's.
///
/// A line without an address makes two of these: one for IPv4, one for IPv6 (unless `IPv4Only` or
/// `IPv6Only` excludes one), as in C tor since 0.4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrPort {
    /// The address to listen on or to advertise; unspecified (`0.0.0.0`, `::`) where the line
    /// names none.
    pub address: IpAddr,
    /// The port.
    pub port: PortNumber,
    /// True if the line names the address. Binding an address that it does not name may fail (on a
    /// machine without IPv6) without stopping the relay.
    pub explicit_address: bool,
    /// True if the descriptor contains it (not `NoAdvertise`).
    pub advertise: bool,
    /// True if the relay listens on it (not `NoListen`).
    pub listen: bool,
}

impl OrPort {
    /// Address to bind a listener to.
    #[must_use]
    pub const fn to_bind(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port.to_bind())
    }
}

impl std::fmt::Display for OrPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ORPort ")?;
        match (self.explicit_address, self.address) {
            (false, _) => {}
            (true, IpAddr::V4(address)) => write!(f, "{address}:")?,
            (true, IpAddr::V6(address)) => write!(f, "[{address}]:")?,
        }
        match self.port {
            PortNumber::Fixed(port) => write!(f, "{port}"),
            PortNumber::Auto => f.write_str("auto"),
        }
    }
}

/// Finds the address of a host name; the real one asks the system's resolver.
pub(crate) type Resolve<'a> = dyn Fn(&str) -> Option<IpAddr> + 'a;

/// The first part of a port line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `0`: no port at all.
    Off,
    /// A TCP port, with the address that the line names.
    Tcp(Option<IpAddr>, PortNumber),
    /// `unix:PATH`.
    Unix(String),
}

/// Splits a port line into its target and its flags.
pub(crate) fn parse_target<'a>(
    line: &'a str,
    resolve: &Resolve<'_>,
) -> Result<(Target, &'a str), String> {
    let line = line.trim_start();
    if let Some(quoted) = line
        .strip_prefix("unix:")
        .filter(|rest| rest.starts_with('"'))
    {
        let end = quoted
            .bytes()
            .enumerate()
            .skip(1)
            .scan(false, |escaped, (at, byte)| {
                let closes = byte == b'"' && !*escaped;
                *escaped = byte == b'\\' && !*escaped;
                Some((at, closes))
            })
            .find_map(|(at, closes)| closes.then_some(at));
        let (path, rest) = end
            .and_then(|end| Some((quoted.get(..=end)?, quoted.get(end + 1..)?)))
            .ok_or("its quoted path does not end")?;
        return Ok((Target::Unix(path.to_owned()), rest));
    }
    let end = line
        .find(|c: char| c.is_ascii_whitespace())
        .unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    if let Some(path) = word.strip_prefix("unix:") {
        return if path.is_empty() {
            Err("it names no path".to_owned())
        } else {
            Ok((Target::Unix(path.to_owned()), rest))
        };
    }
    if word.is_empty() {
        return Err("it names no port".to_owned());
    }
    Ok((parse_tcp_target(word, resolve)?, rest))
}

fn parse_tcp_target(word: &str, resolve: &Resolve<'_>) -> Result<Target, String> {
    let unknown = || format!("\"{word}\" is neither a port nor an address and port");
    if word.eq_ignore_ascii_case("auto") {
        return Ok(Target::Tcp(None, PortNumber::Auto));
    }
    if let Some(host) = strip_suffix_ignore_case(word, ":auto") {
        let address = match parse_address_port(host) {
            Some(AddressPort {
                address,
                port: None,
            }) => Some(address),
            Some(_) => None,
            None => resolve(host),
        };
        return Ok(Target::Tcp(
            Some(address.ok_or_else(unknown)?),
            PortNumber::Auto,
        ));
    }
    if let Some(port) = parse_long(word, 0, 65535) {
        return Ok(match u16::try_from(port) {
            Ok(0) | Err(_) => Target::Off,
            Ok(port) => Target::Tcp(None, PortNumber::Fixed(port)),
        });
    }
    let found = match parse_address_port(word) {
        Some(found) => found,
        None => {
            let (host, port) = split_host_port(word).ok_or_else(unknown)?;
            // A host that looks like an address is not a name.
            let name = host.contains(|c: char| c.is_ascii_alphabetic()) && !host.contains(':');
            let address = name.then(|| resolve(host)).flatten().ok_or_else(unknown)?;
            AddressPort { address, port }
        }
    };
    match found.port {
        Some(port) => Ok(Target::Tcp(Some(found.address), PortNumber::Fixed(port))),
        None => Err(format!("\"{word}\" names an address but no port")),
    }
}

fn strip_suffix_ignore_case<'a>(text: &'a str, suffix: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(suffix.len())?;
    let tail = text.get(at..)?;
    if tail.eq_ignore_ascii_case(suffix) {
        text.get(..at)
    } else {
        None
    }
}

/// Reads the lines of a relay's port option (`ORPort`; `DirPort` and `ExtORPort` have the same
/// grammar). `families` are the addresses that a line without one stands for.
///
/// # Errors
/// A line is malformed: the text names it.
pub(crate) fn parse_relay_ports(
    option: &str,
    lines: &[&str],
    families: &[IpAddr],
    resolve: &Resolve<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<OrPort>, String> {
    let mut ports = Vec::new();
    let (mut off, mut on) = (false, false);
    for line in lines {
        let wrong = |why: String| format!("{option} {line}: {why}");
        let (target, flags) = parse_target(line, resolve).map_err(wrong)?;
        let flags = Flags::parse(option, flags, warnings);
        if flags.no_listen && flags.no_advertise {
            return Err(wrong(
                "NoListen and NoAdvertise together leave nothing to do".to_owned(),
            ));
        }
        if flags.ipv4_only && flags.ipv6_only {
            return Err(wrong("IPv4Only and IPv6Only exclude each other".to_owned()));
        }
        let (named, port) = match target {
            Target::Off => {
                off = true;
                continue;
            }
            Target::Unix(_) => return Err(wrong("it cannot be a Unix socket".to_owned())),
            Target::Tcp(named, port) => (named, port),
        };
        on = true;
        match named {
            Some(IpAddr::V6(_)) if flags.ipv4_only => {
                return Err(wrong("IPv4Only goes with no IPv6 address".to_owned()));
            }
            Some(IpAddr::V4(_)) if flags.ipv6_only => {
                return Err(wrong("IPv6Only goes with no IPv4 address".to_owned()));
            }
            _ => {}
        }
        let defaults: &[IpAddr] = named.as_ref().map_or(families, std::slice::from_ref);
        for address in defaults {
            let excluded = if address.is_ipv4() {
                flags.ipv6_only
            } else {
                flags.ipv4_only
            };
            if !excluded {
                ports.push(OrPort {
                    address: *address,
                    port,
                    explicit_address: named.is_some(),
                    advertise: !flags.no_advertise,
                    listen: !flags.no_listen,
                });
            }
        }
    }
    if off && on {
        return Err(format!(
            "{option} 0 disables the port, but other {option} lines set one"
        ));
    }
    Ok(ports)
}

#[derive(Default)]
struct Flags {
    no_advertise: bool,
    no_listen: bool,
    ipv4_only: bool,
    ipv6_only: bool,
}

impl Flags {
    fn parse(option: &str, text: &str, warnings: &mut Vec<String>) -> Self {
        let mut flags = Self::default();
        for word in text.split_ascii_whitespace() {
            match word.to_ascii_lowercase().as_str() {
                "noadvertise" => flags.no_advertise = true,
                "nolisten" => flags.no_listen = true,
                "ipv4only" => flags.ipv4_only = true,
                "ipv6only" => flags.ipv6_only = true,
                _ => warnings.push(format!("ignored the unknown {option} flag \"{word}\"")),
            }
        }
        flags
    }
}

/// Reads a `MetricsPort` line: `[address:]port [format]`, on 127.0.0.1 unless an address is named
/// (metrics.c, `metrics_parse_ports`). `None`: `0`, no port.
///
/// C tor reads the first line only and knows no `auto`; there `0` means `auto`.
///
/// # Errors
/// The line is malformed.
pub(crate) fn parse_metrics_port(
    line: &str,
    resolve: &Resolve<'_>,
) -> Result<Option<OrPort>, String> {
    let (target, format) = parse_target(line, resolve)?;
    let format = format.trim();
    if !format.is_empty() && !format.eq_ignore_ascii_case("prometheus") {
        return Err(format!(
            "the format \"{format}\" is not known; the one there is is \"prometheus\""
        ));
    }
    match target {
        Target::Off => Ok(None),
        Target::Unix(_) => Err("it cannot be a Unix socket".to_owned()),
        Target::Tcp(named, port) => Ok(Some(OrPort {
            address: named.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            port,
            explicit_address: true,
            advertise: false,
            listen: true,
        })),
    }
}

/// The addresses that an `ORPort` without one stands for.
pub(crate) const BOTH_FAMILIES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// Reads all `ORPort` lines, drops those that another line gives more exactly, and checks that the
/// rest makes a relay.
///
/// # Errors
/// A line is malformed, or the lines do not fit together.
pub(crate) fn parse_or_ports(
    lines: &[&str],
    resolve: &Resolve<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<OrPort>, String> {
    let mut ports = parse_relay_ports("ORPort", lines, &BOTH_FAMILIES, resolve, warnings)?;
    remove_superseded(&mut ports, warnings);
    check_relay_ports(&ports)?;
    Ok(ports)
}

/// Leaves out duplicates, and lines without an address where another line gives the same port with
/// one (relay_config.c, `remove_duplicate_orports`).
fn remove_superseded(ports: &mut Vec<OrPort>, warnings: &mut Vec<String>) {
    let mut kept: Vec<OrPort> = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        let earlier_twin = ports.iter().take(index).any(|other| other == port);
        let superseded_by = ports.iter().enumerate().find(|(at, other)| {
            let same_family = other.address.is_ipv4() == port.address.is_ipv4();
            let both_explicit_elsewhere =
                other.address != port.address && other.explicit_address && port.explicit_address;
            *at != index
                && *other != port
                && same_family
                && !both_explicit_elsewhere
                && other.port == port.port
                // Of two that are as exact as each other, the first stays.
                && (other.explicit_address, index > *at) > (port.explicit_address, false)
        });
        if earlier_twin {
            continue;
        }
        match superseded_by {
            Some((_, by)) => warnings.push(format!("{port} is superseded by {by}")),
            None => kept.push(*port),
        }
    }
    *ports = kept;
}

/// A relay that nobody can reach, or that nobody can learn about, is an error (relay_config.c,
/// `check_and_prune_server_ports`).
fn check_relay_ports(ports: &[OrPort]) -> Result<(), String> {
    let listens = ports.iter().any(|p| p.listen);
    let advertised: Vec<_> = ports.iter().filter(|p| p.advertise).collect();
    if !advertised.is_empty() && !listens {
        return Err("ORPort is advertised, but no line listens on one".to_owned());
    }
    if listens && advertised.is_empty() {
        return Err("ORPort is listened on, but every line has NoAdvertise: \
                    without one that is advertised the relay cannot be used"
            .to_owned());
    }
    if !advertised.is_empty() && !advertised.iter().any(|p| p.address.is_ipv4()) {
        return Err(
            "every advertised ORPort is IPv6: a relay needs an IPv4 address too".to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_names(_: &str) -> Option<IpAddr> {
        None
    }

    fn parse(lines: &[&str]) -> Result<Vec<String>, String> {
        let show = |p: OrPort| {
            let flag = |on: bool, c| if on { c } else { '-' };
            format!(
                "{} {}{}",
                p.to_bind(),
                flag(p.listen, 'l'),
                flag(p.advertise, 'a')
            )
        };
        parse_or_ports(lines, &no_names, &mut Vec::new())
            .map(|ports| ports.into_iter().map(show).collect())
    }

    #[test]
    fn a_bare_port_listens_on_both_families() {
        assert_eq!(
            parse(&["9001"]).unwrap(),
            ["0.0.0.0:9001 la", "[::]:9001 la"]
        );
        assert_eq!(parse(&["auto IPv4Only"]).unwrap(), ["0.0.0.0:0 la"]);
        assert_eq!(
            parse(&["9001 ipv4only", "9002 IPv6Only"]).unwrap(),
            ["0.0.0.0:9001 la", "[::]:9002 la"]
        );
        assert_eq!(parse(&["0"]).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn flags_decide_what_is_listened_on_and_what_is_advertised() {
        assert_eq!(
            parse(&["1.2.3.4:443 NoListen", "10.0.0.1:9001 noadvertise"]).unwrap(),
            ["1.2.3.4:443 -a", "10.0.0.1:9001 l-"]
        );
        assert_eq!(
            parse(&["[2001:db8::1]:auto", "1.2.3.4:9001"]).unwrap(),
            ["[2001:db8::1]:0 la", "1.2.3.4:9001 la"]
        );
    }

    #[test]
    fn an_exact_line_supersedes_a_bare_one_of_the_same_port() {
        let mut warnings = Vec::new();
        let ports = parse_or_ports(
            &["9001", "[2001:db8::1]:9001", "9001"],
            &no_names,
            &mut warnings,
        )
        .unwrap();
        let shown: Vec<_> = ports.iter().map(|p| p.to_bind().to_string()).collect();
        assert_eq!(shown, ["0.0.0.0:9001", "[2001:db8::1]:9001"]);
        assert_eq!(
            warnings,
            ["ORPort 9001 is superseded by ORPort [2001:db8::1]:9001"]
        );
    }

    #[test]
    fn a_metrics_port_is_local_unless_it_names_an_address() {
        let port = |line| {
            let port = parse_metrics_port(line, &no_names)?;
            Ok::<_, String>(port.map(|port| port.to_bind().to_string()))
        };
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(port("9035"), some("127.0.0.1:9035"));
        assert_eq!(port("9035 Prometheus"), some("127.0.0.1:9035"));
        assert_eq!(port("192.0.2.1:9035 prometheus"), some("192.0.2.1:9035"));
        assert_eq!(port("[::1]:9035"), some("[::1]:9035"));
        assert_eq!(port("auto"), some("127.0.0.1:0"));
        assert_eq!(port("0"), Ok(None));
        for bad in [
            "",
            "x",
            "70000",
            "127.0.0.1:0",
            "9035 json",
            "9035 prometheus x",
            "unix:/a",
        ] {
            assert!(port(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for lines in [
            &["" as &str][..],
            &["x"],
            &["-1"],
            &["65536"],
            &["1.2.3.4"],
            &["1.2.3.4:0"],
            &["::1:9001"],
            &["[::1]"],
            &["9001 NoListen NoAdvertise"],
            &["9001 IPv4Only IPv6Only"],
            &["1.2.3.4:1 IPv6Only"],
            &["[::1]:1 IPv4Only"],
            &["unix:/a"],
            &["0", "9001"],
            &["9001 NoAdvertise"],
            &["9001 NoListen"],
            &["[2001:db8::1]:9001"],
            &["host:9001"],
            &["1.2.3.4:5:auto"],
            &["unix:\"abc"],
        ] {
            assert!(parse(lines).is_err(), "{lines:?} gave {:?}", parse(lines));
        }
    }

    #[test]
    fn an_unknown_flag_is_only_warned_about() {
        let mut warnings = Vec::new();
        assert!(parse_or_ports(&["9001 AllAddrs"], &no_names, &mut warnings).is_ok());
        assert_eq!(warnings, ["ignored the unknown ORPort flag \"AllAddrs\""]);
    }

    #[test]
    fn a_name_is_looked_up() {
        let resolve =
            |name: &str| (name == "relay.example").then_some(IpAddr::V4(Ipv4Addr::new(1, 2, 3, 4)));
        let ports = parse_or_ports(&["relay.example:9001"], &resolve, &mut Vec::new()).unwrap();
        assert_eq!(ports.first().unwrap().to_bind().to_string(), "1.2.3.4:9001");
        assert!(parse_or_ports(&["other.example:9001"], &resolve, &mut Vec::new()).is_err());
    }
}
