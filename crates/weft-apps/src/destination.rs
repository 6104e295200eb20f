//! The destinations that an application may connect to or resolve (C tor: `connection_ap_handshake_rewrite_and_attach` of
//! connection_edge.c, address.c, addressmap.c).
//!
//! Call [`check`] once for each request: the handshake does, unless addresses are mapped first.

use std::net::{IpAddr, Ipv6Addr};

use sha3::{Digest as _, Sha3_256};
use weft_config::Automap;
use weft_config::options::AppOptions;
use weft_config::options::StreamFlags;
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal};
use weft_core::routable::is_public;
use weft_log::Line;

use crate::notice::Notice;

/// The low digit of socks-extensions' "onion service not found".
pub(crate) const NO_SUCH_ONION: u8 = 0;
/// The low digit of "invalid onion address".
pub(crate) const BAD_ONION: u8 = 6;
/// Characters of an onion service's address, of base32, and the bytes that they are (rend-spec-v3 6).
const ONION_LEN: usize = 56;
const ONION_BYTES: usize = 35;

/// The destinations that are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationRules {
    /// `ClientRejectInternalAddresses`: private addresses are refused.
    pub reject_internal: bool,
    /// `ClientDNSRejectInternalAddresses`: reverse lookups of private addresses are refused.
    pub reject_internal_reverse: bool,
    /// `AllowNonRFC953Hostnames`: names may have any characters.
    pub allow_strange_names: bool,
    /// `WarnPlaintextPorts`: ports that cause a warning.
    pub warn_ports: Vec<u16>,
    /// `RejectPlaintextPorts`: ports that are refused.
    pub reject_ports: Vec<u16>,
    /// `AutomapHostsOnResolve`: names that may be looked up whatever they are, since no exit is asked.
    pub automap: Automap,
}

impl DestinationRules {
    /// All rules of torrc.
    #[must_use]
    pub fn new(options: &AppOptions) -> Self {
        Self {
            reject_internal: options.reject_internal_addresses,
            reject_internal_reverse: options.reject_internal_answers,
            allow_strange_names: options.allow_strange_names,
            warn_ports: options.warn_plaintext_ports.clone(),
            reject_ports: options.reject_plaintext_ports.clone(),
            automap: options.automap.clone(),
        }
    }
}

impl DestinationRules {
    /// The rules that apply before addresses are mapped (MAPADDRESS); the client applies the others to the
    /// mapped addresses.
    #[must_use]
    pub fn before_maps(options: &AppOptions) -> Self {
        Self {
            allow_strange_names: options.allow_strange_names,
            automap: options.automap.clone(),
            ..Self::default()
        }
    }
}

/// A request that is refused without a circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason for the reply.
    pub why: AppRefusal,
    /// The log line.
    pub notice: Notice,
}

fn refused(why: AppRefusal, text: impl std::fmt::Display) -> Refused {
    refused_line(why, Line::warn(text))
}

fn refused_line(why: AppRefusal, line: Line) -> Refused {
    Refused {
        why,
        notice: Notice::new(line),
    }
}

/// A host in canonical form: in lower case, an IPv6 address without its brackets; `None`: no name and
/// no address (`string_is_valid_dest`).
#[must_use]
pub fn clean_host(host: &str) -> Option<String> {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    let valid = literal(host).is_some() || is_name(host);
    valid.then(|| host.to_ascii_lowercase())
}

/// Parses a host that is an address.
#[must_use]
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    host.parse()
        .ok()
        .or_else(|| host.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

/// Labels of letters, digits, `-` and `_`, that do not begin with `-` or `_`; a dot may end them
/// (`string_is_valid_nonrfc_hostname`).
fn is_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
        label.as_bytes().iter().all(inner)
            && label.starts_with(|first: char| first.is_ascii_alphanumeric())
    };
    labels.split('.').all(is_label)
}

/// Checks whether a request is allowed; returns a warning about it, if there is one.
///
/// # Errors
///
/// The request is refused.
pub fn check(
    opening: &AppOpening,
    protocol: AppProtocol,
    flags: &StreamFlags,
    rules: &DestinationRules,
) -> Result<Option<Notice>, Refused> {
    let (host, port) = match opening {
        AppOpening::Connect { host, port } => (host.as_str(), Some(*port)),
        AppOpening::Resolve { name } => (name.as_str(), None),
        AppOpening::ResolvePtr { addr } => {
            if rules.reject_internal_reverse && !is_public(*addr) {
                let text = "Rejecting the reverse lookup of a private address";
                return Err(refused(AppRefusal::HostUnreachable, text));
            }
            if flags.dns_request {
                return Ok(None);
            }
            let text = "Refusing a reverse lookup because Port has NoDNSRequest set";
            return Err(refused(AppRefusal::NotAllowed, text));
        }
    };
    let automapped = port.is_none() && rules.automap.covers(&host.to_ascii_lowercase());
    check_suffix(host, port.is_some(), automapped, flags)?;
    check_name(host, rules)?;
    check_family(host, protocol, flags)?;
    match port {
        Some(port) => check_connect(host, port, rules),
        None => Ok(None),
    }
}

/// Checks names that are not in the DNS: `.onion` and `.exit`.
fn check_suffix(
    host: &str,
    connect: bool,
    automapped: bool,
    flags: &StreamFlags,
) -> Result<(), Refused> {
    let Some((name, suffix)) = host.trim_end_matches('.').rsplit_once('.') else {
        return Ok(());
    };
    if suffix.eq_ignore_ascii_case("exit") {
        let mut refused = refused(
            AppRefusal::General,
            "The \".exit\" notation is disabled in Tor due to security risks",
        );
        refused.notice.event = Some(format!("SOCKS_BAD_HOSTNAME HOSTNAME=\"{host}\""));
        return Err(refused);
    }
    if automapped || !suffix.eq_ignore_ascii_case("onion") {
        return Ok(());
    }
    check_onion(name, host, connect, flags).map_err(|refused| Refused {
        notice: refused.notice.always(),
        ..refused
    })
}

/// Checks a name in `.onion`, given without that: it is refused in any case, each with its reason.
fn check_onion(name: &str, host: &str, connect: bool, flags: &StreamFlags) -> Result<(), Refused> {
    let service = name.rsplit('.').next().unwrap_or(name);
    if !is_onion_address(service) {
        let why = match connect {
            true => AppRefusal::OnionService(BAD_ONION),
            false => AppRefusal::HostUnreachable,
        };
        let line = Line::warn("Invalid onion hostname ").client(host);
        let mut refused = refused_line(why, line.text("; rejecting"));
        refused.notice.event = Some(format!("SOCKS_BAD_HOSTNAME HOSTNAME=\"{host}\""));
        return Err(refused);
    }
    if !flags.onion_traffic {
        return Err(refused_line(
            AppRefusal::NotAllowed,
            Line::warn("Onion address ")
                .client(host)
                .text(" requested from a port with .onion disabled"),
        ));
    }
    if !connect {
        return Err(refused(
            AppRefusal::HostUnreachable,
            "Resolve requests to hidden services not allowed. Failing.",
        ));
    }
    Err(refused_line(
        AppRefusal::OnionService(NO_SUCH_ONION),
        Line::warn("")
            .client(host)
            .text(" is an onion service; this version of Weft cannot connect to them"),
    ))
}

/// True if a label is the address of an onion service: key, checksum and version in base32
/// (rend-spec-v3 6).
#[must_use]
pub fn is_onion_address(label: &str) -> bool {
    let mut bytes = [0; ONION_BYTES];
    if label.len() != ONION_LEN || !decode_base32(label, &mut bytes) {
        return false;
    }
    let (key, rest) = bytes.split_at(32);
    let (checksum, version) = rest.split_at(2);
    let mut hash = Sha3_256::new();
    for part in [&b".onion checksum"[..], key, version] {
        hash.update(part);
    }
    version == [3] && hash.finalize().starts_with(checksum)
}

/// Decodes base32 (RFC 4648 6) in any case; false: it is none.
fn decode_base32(text: &str, into: &mut [u8]) -> bool {
    let (mut bits, mut count) = (0_u32, 0);
    let mut into = into.iter_mut();
    for byte in text.bytes() {
        let value = match byte.to_ascii_lowercase() {
            letter @ b'a'..=b'z' => letter - b'a',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return false,
        };
        bits = bits << 5 | u32::from(value);
        count += 5;
        if count >= 8
            && let Some(place) = into.next()
        {
            count -= 8;
            let [.., low] = (bits >> count).to_be_bytes();
            *place = low;
        }
    }
    true
}

/// Checks for characters that names must not have (`address_is_invalid_destination`).
fn check_name(host: &str, rules: &DestinationRules) -> Result<(), Refused> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let strange = host.is_empty() || !host.bytes().all(plain);
    if literal(host).is_some() || (!host.is_empty() && rules.allow_strange_names) || !strange {
        return Ok(());
    }
    let mut refused = refused_line(
        AppRefusal::General,
        Line::warn("Destination '")
            .client(host.escape_default())
            .text("' seems to be an invalid hostname. Failing"),
    );
    refused.notice.event = Some(format!(
        "SOCKS_BAD_HOSTNAME HOSTNAME=\"{}\"",
        host.escape_default()
    ));
    Err(refused)
}

/// Checks the address family against the flags of the port.
fn check_family(host: &str, protocol: AppProtocol, flags: &StreamFlags) -> Result<(), Refused> {
    let no = |what: &str, why: &str| {
        let line = Line::warn(format!("Refusing to connect to {what}"));
        let line = line.client(host).text(format!(" because Port has {why}"));
        Err(refused_line(AppRefusal::NotAllowed, line))
    };
    if !flags.dns_request && !flags.ipv4_traffic && !flags.ipv6_traffic {
        return no(
            "",
            "OnionTrafficOnly set (or NoDNSRequest, NoIPv4Traffic, and NoIPv6Traffic)",
        );
    }
    match literal(host) {
        None if !flags.dns_request => no("hostname ", "NoDNSRequest set"),
        Some(IpAddr::V4(_)) if !flags.ipv4_traffic => no("IPv4 address ", "NoIPv4Traffic set"),
        Some(IpAddr::V6(_)) if !flags.ipv6_traffic => no("IPv6 address ", "NoIPv6Traffic set"),
        Some(IpAddr::V6(_)) if protocol == AppProtocol::Socks4 => {
            let text = "Rejecting SOCKS4 request for an IPv6 address";
            Err(refused(AppRefusal::NotAllowed, text))
        }
        _ => Ok(()),
    }
}

/// C tor's words about a request to connect to port 0.
pub(crate) fn port_0() -> Line {
    Line::notice("Application asked to connect to port 0. Refusing.")
}

/// The checks for connections alone.
fn check_connect(
    host: &str,
    port: u16,
    rules: &DestinationRules,
) -> Result<Option<Notice>, Refused> {
    if port == 0 {
        return Err(Refused {
            why: AppRefusal::AddressTypeNotSupported,
            notice: Notice::new(port_0()),
        });
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let local_name = ["localhost", "local"]
        .iter()
        .any(|local| name.eq_ignore_ascii_case(local))
        || name
            .len()
            .checked_sub(".local".len())
            .and_then(|at| name.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case(".local"));
    if rules.reject_internal && (local_name || literal(host).is_some_and(|a| !is_public(a))) {
        return Err(refused_line(
            AppRefusal::General,
            Line::warn("Rejecting request for anonymous connection to private address ")
                .client(host),
        ));
    }
    let reject = rules.reject_ports.contains(&port);
    if !reject && !rules.warn_ports.contains(&port) {
        return Ok(None);
    }
    let (end, result) = if reject {
        (" Closing.", "REJECT")
    } else {
        ("", "WARN")
    };
    let line = Line::warn(format!(
        "Application request to port {port}: this port is commonly used for unencrypted protocols. \
         Please make sure you don't send anything you would mind the rest of the Internet reading!{end}"
    ));
    let notice =
        Notice::new(line).with_event(format!("DANGEROUS_PORT PORT={port} RESULT={result}"));
    if reject {
        return Err(Refused {
            why: AppRefusal::NotAllowed,
            notice,
        });
    }
    Ok(Some(notice))
}
