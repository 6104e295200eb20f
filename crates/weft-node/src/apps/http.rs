//! HTTP CONNECT (`HTTPTunnelPort`; C tor: `connection_ap_process_http_connect`,
//! `end_reason_to_http_connect_response_line`; proposal 365).

use httparse::{EMPTY_HEADER, Request, Status};
use tracing::Level;
use weft_core::origin::{AppCredentials, AppOpening, AppProtocol, AppRefusal};

use super::{Failure, Handshake, MAX_HANDSHAKE, Notice, Step, Voice, destination};
use crate::logging::safe_client;

/// Header lines of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a host name, less one, in C tor's words MAX_SOCKS_ADDR_LEN.
const MAX_HOST: usize = 256;

/// What answers to CONNECT say of us.
const CONNECT_HEADERS: &str = concat!(
    "Tor-Capabilities: \r\nVia: tor/1.0 tor-network (weft ",
    env!("CARGO_PKG_VERSION"),
    ")\r\n"
);
/// What other answers say of us.
const OTHER_HEADERS: &str = concat!(
    "Tor-Capabilities: \r\nServer: tor/1.0 (weft ",
    env!("CARGO_PKG_VERSION"),
    ")\r\n"
);

/// A page for people whose browser was told the wrong thing.
fn page(status: &str, headers: &str, title: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/html; charset=utf-8\r\n{headers}\r\n\
         <!DOCTYPE html>\n<html>\n<head><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n\
         <p>{text}</p>\n</body>\n</html>\n"
    )
    .into_bytes()
}

/// What a SocksPort tells a browser that takes it for an HTTP proxy.
pub(super) fn not_a_proxy() -> Vec<u8> {
    page(
        "501 Tor is not an HTTP Proxy",
        "",
        "This is a SOCKS proxy, not an HTTP proxy",
        "Your browser uses this port as an HTTP proxy, but it speaks SOCKS. Set it as the SOCKS \
         proxy (version 5) of your browser, or set HTTPTunnelPort in the torrc and use that port \
         as the HTTP proxy.",
    )
}

/// What an HTTPTunnelPort tells a browser that does not tunnel.
fn not_a_full_proxy() -> Vec<u8> {
    page(
        "405 Method Not Allowed",
        OTHER_HEADERS,
        "This is an HTTP CONNECT tunnel, not an HTTP proxy",
        "Your browser uses this port as a full HTTP proxy, but it only opens tunnels by CONNECT. \
         Browsers ask for a tunnel by themselves for pages of https.",
    )
}

/// The answer to a CONNECT that did.
pub(super) fn connected() -> Vec<u8> {
    answer("200 OK", "")
}

fn answer(status: &str, more: &str) -> Vec<u8> {
    format!("HTTP/1.0 {status}\r\n{CONNECT_HEADERS}{more}\r\n").into_bytes()
}

/// The answer to a CONNECT that did not.
pub(super) fn refused(why: AppRefusal) -> Vec<u8> {
    let (status, reason) = match why {
        AppRefusal::General => ("500 Internal Server Error", "end/MISC"),
        AppRefusal::NotAllowed => ("403 Forbidden (exit policy)", "end/EXITPOLICY"),
        AppRefusal::NetUnreachable => ("503 Service Unavailable (no route)", "end/NOROUTE"),
        AppRefusal::HostUnreachable => (
            "503 Service Unavailable (resolve failed)",
            "end/RESOLVEFAILED",
        ),
        AppRefusal::ConnectionRefused => {
            ("403 Forbidden (connection refused)", "end/CONNECTREFUSED")
        }
        AppRefusal::TtlExpired => ("504 Gateway Timeout", "end/TIMEOUT"),
        AppRefusal::CommandNotSupported => ("501 Not Implemented", "c-tor/SOCKSPROTOCOL"),
        AppRefusal::AddressTypeNotSupported => ("400 Bad Request", "c-tor/SOCKSPROTOCOL"),
        AppRefusal::OnionService(_) => (
            "502 Bad Gateway (tor protocol violation)",
            "end/TORPROTOCOL",
        ),
    };
    answer(status, &format!("Tor-Request-Failed: {reason}\r\n"))
}

/// A request's header, if it has it; the first of several.
fn header<'a>(request: &Request<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    let header = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(header.value)
}

/// Whether a Host header names this machine. Other hosts' pages reach this port by names of their
/// own that lead here, and must not learn what is behind it.
fn is_localhost(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let host = match split(host) {
        Some((host, _)) => host,
        None => host.trim_start_matches('[').trim_end_matches(']'),
    };
    host.eq_ignore_ascii_case("localhost")
        || destination::literal(host).is_some_and(|address| address.is_loopback())
}

/// A host, without brackets, and a port.
fn split(target: &str) -> Option<(&str, u16)> {
    let (host, port) = target.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let bracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(inner) => Some((inner, port)),
        None if host.contains(':') => None,
        None => Some((host, port)),
    }
}

/// What streams of a request are kept apart by.
fn credentials(request: &Request<'_, '_>) -> Option<AppCredentials> {
    let isolation = header(request, "Tor-Stream-Isolation");
    let x_isolation = header(request, "X-Tor-Stream-Isolation");
    let authorization = header(request, "Proxy-Authorization");
    if isolation.is_none() && x_isolation.is_none() && authorization.is_none() {
        return None;
    }
    // No header holds a line's end, so the two never run together.
    let user = [
        isolation.unwrap_or_default(),
        b"\r\n",
        x_isolation.unwrap_or_default(),
    ];
    Some(AppCredentials {
        user: user.concat(),
        password: authorization.unwrap_or_default().to_vec(),
    })
}

impl Handshake {
    /// An HTTPTunnelPort's bytes.
    pub(super) fn http(&mut self, bytes: &[u8]) -> Result<Step, Failure> {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = Request::new(&mut headers);
        let head = bytes.get(..MAX_HANDSHAKE).unwrap_or(bytes);
        let used = match request.parse(head) {
            Ok(Status::Complete(used)) => used,
            Ok(Status::Partial) if bytes.len() < MAX_HANDSHAKE => return Ok(Step::NeedMore),
            Ok(Status::Partial) => {
                return Err(self.http_failure(Vec::new(), "the head of the request is too long"));
            }
            Err(error) => {
                let text = format!("this is not HTTP ({error})");
                return Err(self.http_failure(Vec::new(), &text));
            }
        };
        let method = request.method.unwrap_or_default();
        let target = request.path.unwrap_or_default();
        let local = header(&request, "Host").is_some_and(is_localhost);
        if method.eq_ignore_ascii_case("OPTIONS") && local {
            let reply =
                format!("HTTP/1.0 200 OK\r\nAllow: OPTIONS, CONNECT\r\n{OTHER_HEADERS}\r\n");
            return Ok(Step::Answered {
                reply: reply.into_bytes(),
            });
        }
        if !method.eq_ignore_ascii_case("CONNECT") {
            let reply = if local {
                not_a_full_proxy()
            } else {
                Vec::new()
            };
            return Err(self.http_failure(reply, "the method is not CONNECT"));
        }
        self.voice = Voice::Http;
        let Some((host, port)) = split(target) else {
            let reply = answer("400 Bad Request", "");
            return Err(self.http_failure(reply, "the target is not a host and a port"));
        };
        if host.len() >= MAX_HOST {
            let reply = answer("414 Request-URI Too Long", "");
            return Err(self.http_failure(reply, "the host name is too long"));
        }
        if header(&request, "Tor-RPC-Target").is_some() {
            let reply = answer("501 Not implemented (No RPC Support)", "");
            return Err(self.http_failure(reply, "the request is for Arti's RPC"));
        }
        let Some(host) = destination::clean_host(host) else {
            let text = format!(
                "the host name {} is malformed",
                safe_client(host.escape_default())
            );
            return Err(self.http_failure(answer("400 Bad Request", ""), &text));
        };
        self.credentials = credentials(&request);
        let opening = AppOpening::Connect { host, port };
        self.request(used, opening, AppProtocol::HttpConnect)
    }

    fn http_failure(&self, reply: Vec<u8>, why: &str) -> Failure {
        let text = format!("Refused a request to the HTTPTunnelPort: {why}");
        self.fail(reply, Notice::new(Level::INFO, text))
    }
}
