//! Where an application may go (C tor: `connection_ap_handshake_rewrite_and_attach` of
//! connection_edge.c, address.c, addressmap.c).
//!
//! [`check`] is asked once for each request: by the handshake, or, where addresses are mapped
//! first, by whoever maps them.

use std::net::{IpAddr, Ipv6Addr};

use tracing::Level;
use weft_cell::stream_msg::{Answer, AnswerKind, BeginFlags, Resolved};
use weft_core::origin::{AppOpening, AppProtocol, AppRefusal};
use weft_core::routable::is_public;

use super::Notice;
use crate::logging::safe_client;
use crate::torrc::client_ports::StreamFlags;
use crate::torrc::options::AppOptions;

/// The low digit of socks-extensions' "onion service not found".
const NO_SUCH_ONION: u8 = 0;
/// The low digit of "invalid onion address".
pub(super) const BAD_ONION: u8 = 6;
/// Characters of an onion service's address, of base32 (rend-spec-v3 6).
const ONION_LEN: usize = 56;
/// For how long an answer that needs no exit is good, in seconds; C tor says nothing.
const OWN_TTL: u32 = 60;

/// Where nobody may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DestinationRules {
    /// `ClientRejectInternalAddresses`: not to private addresses.
    pub reject_internal: bool,
    /// `ClientDNSRejectInternalAddresses`: nor may their names be asked for.
    pub reject_internal_reverse: bool,
    /// `AllowNonRFC953Hostnames`: names may have any characters.
    pub allow_strange_names: bool,
    /// `WarnPlaintextPorts`: tell of it.
    pub warn_ports: Vec<u16>,
    /// `RejectPlaintextPorts`: not there.
    pub reject_ports: Vec<u16>,
}

impl DestinationRules {
    /// What torrc says.
    #[must_use]
    pub fn new(options: &AppOptions) -> Self {
        Self {
            reject_internal: options.reject_internal_addresses,
            reject_internal_reverse: options.reject_internal_answers,
            allow_strange_names: options.allow_strange_names,
            warn_ports: options.warn_plaintext_ports.clone(),
            reject_ports: options.reject_plaintext_ports.clone(),
        }
    }
}

impl DestinationRules {
    /// What can be said before addresses are mapped (MAPADDRESS); the client holds the rest against
    /// what they are mapped to.
    #[must_use]
    pub fn before_maps(options: &AppOptions) -> Self {
        Self {
            allow_strange_names: options.allow_strange_names,
            ..Self::default()
        }
    }
}

/// A request that is refused without asking the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the application hears.
    pub why: AppRefusal,
    /// What the log says.
    pub notice: Notice,
}

fn refused(why: AppRefusal, text: impl Into<String>) -> Refused {
    Refused {
        why,
        notice: Notice::new(Level::WARN, text),
    }
}

/// A name as it goes on: in lower case, an IPv6 address without its brackets; `None`: no name and
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

/// The address that a host is, if it is one.
#[must_use]
pub fn literal(host: &str) -> Option<IpAddr> {
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

/// What may be said at once, without a circuit: the address of an address.
#[must_use]
pub fn known_answer(opening: &AppOpening) -> Option<Resolved> {
    let AppOpening::Resolve { name } = opening else {
        return None;
    };
    let kind = match literal(name)? {
        IpAddr::V4(address) => AnswerKind::Ipv4(address),
        IpAddr::V6(address) => AnswerKind::Ipv6(address),
    };
    let answers = vec![Answer { kind, ttl: OWN_TTL }];
    Some(Resolved { answers })
}

/// Leaves out answers that are private addresses. Where nothing else was said, nothing is left,
/// which is no answer.
pub fn remove_internal(resolved: &mut Resolved) {
    resolved.answers.retain(|answer| match answer.kind {
        AnswerKind::Ipv4(address) => is_public(address.into()),
        AnswerKind::Ipv6(address) => is_public(address.into()),
        _ => true,
    });
}

/// The flags of BEGIN for a stream of a port with these flags (`connection_ap_get_begincell_flags`).
/// `exit_has_ipv6`: the exit's IPv6 policy may allow it.
#[must_use]
pub fn begin_flags(
    host: &str,
    protocol: AppProtocol,
    flags: &StreamFlags,
    exit_has_ipv6: bool,
) -> BeginFlags {
    let address = literal(host);
    // Each family's addresses exclude the other; SOCKS 4 knows no IPv6.
    let ipv4 = flags.ipv4_traffic && !address.is_some_and(|a| a.is_ipv6());
    let ipv6 = flags.ipv6_traffic
        && !address.is_some_and(|a| a.is_ipv4())
        && protocol != AppProtocol::Socks4;
    let ipv6_ok = ipv6 && exit_has_ipv6;
    BeginFlags {
        ipv6_ok,
        ipv4_not_ok: !ipv4,
        ipv6_preferred: ipv6_ok && ipv4 && flags.prefer_ipv6,
    }
}

/// Whether a request may go on; with something to tell of it, perhaps.
///
/// # Errors
///
/// It may not.
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
    check_suffix(host, port.is_some(), flags)?;
    check_name(host, rules)?;
    check_family(host, protocol, flags)?;
    match port {
        Some(port) => check_connect(host, port, rules),
        None => Ok(None),
    }
}

/// `.onion` and `.exit` are no names of the DNS.
fn check_suffix(host: &str, connect: bool, flags: &StreamFlags) -> Result<(), Refused> {
    let Some((name, suffix)) = host.trim_end_matches('.').rsplit_once('.') else {
        return Ok(());
    };
    let bad = |refused: Refused| Refused {
        notice: refused
            .notice
            .with_event(format!("SOCKS_BAD_HOSTNAME HOSTNAME=\"{host}\"")),
        ..refused
    };
    if suffix.eq_ignore_ascii_case("exit") {
        return Err(bad(refused(
            AppRefusal::General,
            "The \".exit\" notation is disabled in Tor due to security risks",
        )));
    }
    if !suffix.eq_ignore_ascii_case("onion") {
        return Ok(());
    }
    let service = name.rsplit('.').next().unwrap_or(name);
    let base32 = |byte: u8| byte.is_ascii_alphabetic() || (b'2'..=b'7').contains(&byte);
    if service.len() != ONION_LEN || !service.bytes().all(base32) {
        return Err(bad(refused(
            AppRefusal::OnionService(BAD_ONION),
            format!("Invalid onion hostname {}; rejecting", safe_client(host)),
        )));
    }
    if !flags.onion_traffic {
        return Err(refused(
            AppRefusal::NotAllowed,
            format!(
                "Onion address {} requested from a port with .onion disabled",
                safe_client(host)
            ),
        ));
    }
    if !connect {
        return Err(refused(
            AppRefusal::HostUnreachable,
            "Resolve requests to hidden services not allowed. Failing",
        ));
    }
    Err(refused(
        AppRefusal::OnionService(NO_SUCH_ONION),
        format!(
            "{} is an onion service; this version of Weft cannot connect to them",
            safe_client(host)
        ),
    ))
}

/// Characters that names do not have (`address_is_invalid_destination`).
fn check_name(host: &str, rules: &DestinationRules) -> Result<(), Refused> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let strange = host.is_empty() || !host.bytes().all(plain);
    if literal(host).is_some() || (!host.is_empty() && rules.allow_strange_names) || !strange {
        return Ok(());
    }
    let mut refused = refused(
        AppRefusal::General,
        format!(
            "Destination '{}' seems to be an invalid hostname. Failing",
            safe_client(host.escape_default())
        ),
    );
    refused.notice.event = Some(format!(
        "SOCKS_BAD_HOSTNAME HOSTNAME=\"{}\"",
        host.escape_default()
    ));
    Err(refused)
}

/// What the port's flags let out.
fn check_family(host: &str, protocol: AppProtocol, flags: &StreamFlags) -> Result<(), Refused> {
    let no = |text: String| Err(refused(AppRefusal::NotAllowed, text));
    let host_shown = safe_client(host);
    if !flags.dns_request && !flags.ipv4_traffic && !flags.ipv6_traffic {
        return no(format!(
            "Refusing to connect to {host_shown} because Port has OnionTrafficOnly set (or \
             NoDNSRequest, NoIPv4Traffic, and NoIPv6Traffic)"
        ));
    }
    match literal(host) {
        None if !flags.dns_request => no(format!(
            "Refusing to connect to hostname {host_shown} because Port has NoDNSRequest set"
        )),
        Some(IpAddr::V4(_)) if !flags.ipv4_traffic => no(format!(
            "Refusing to connect to IPv4 address {host_shown} because Port has NoIPv4Traffic set"
        )),
        Some(IpAddr::V6(_)) if !flags.ipv6_traffic => no(format!(
            "Refusing to connect to IPv6 address {host_shown} because Port has NoIPv6Traffic set"
        )),
        Some(IpAddr::V6(_)) if protocol == AppProtocol::Socks4 => {
            no("Rejecting SOCKS4 request for an IPv6 address".to_owned())
        }
        _ => Ok(()),
    }
}

/// What only connections are held against.
fn check_connect(
    host: &str,
    port: u16,
    rules: &DestinationRules,
) -> Result<Option<Notice>, Refused> {
    if port == 0 {
        return Err(refused(
            AppRefusal::General,
            "Application asked to connect to port 0. Refusing",
        ));
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
        return Err(refused(
            AppRefusal::General,
            format!(
                "Rejecting request for anonymous connection to private address {}",
                safe_client(host)
            ),
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
    let notice = Notice::new(
        Level::WARN,
        format!(
            "Application request to port {port}: this port is commonly used for unencrypted \
             protocols. Please make sure you don't send anything you would mind the rest of the \
             Internet reading!{end}"
        ),
    )
    .with_event(format!("DANGEROUS_PORT PORT={port} RESULT={result}"));
    if reject {
        return Err(Refused {
            why: AppRefusal::NotAllowed,
            notice,
        });
    }
    Ok(Some(notice))
}
