//! HTTP CONNECT (`HTTPTunnelPort`; C tor: `connection_ap_process_http_connect`,
//! `end_reason_to_http_connect_response_line`; proposal 365).

use httparse::{EMPTY_HEADER, Request, Status};
use weft_core::origin::{AppCredentials, AppOpening, AppProtocol};
use weft_log::Line;

use super::Handshake;
use crate::notice::Notice;
use crate::phase::ReplyProtocol;
use crate::step::{Failure, MAX_HANDSHAKE, Step};
use crate::{destination, http_reply};

/// Header lines of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a host name, less one, C tor's MAX_SOCKS_ADDR_LEN.
const MAX_HOST: usize = 256;

/// The first header of this name, if any.
fn header<'a>(request: &Request<'_, 'a>, name: &str) -> Option<&'a [u8]> {
    let header = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(header.value)
}

/// True if a Host header names this machine. A web page can reach this port by a name of its own
/// domain that resolves to this machine, and must not learn that it is an HTTPTunnelPort.
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

/// The credentials of a request, by which its stream is isolated.
fn credentials(request: &Request<'_, '_>) -> Option<AppCredentials> {
    let isolation = header(request, "Tor-Stream-Isolation");
    let x_isolation = header(request, "X-Tor-Stream-Isolation");
    let authorization = header(request, "Proxy-Authorization");
    if isolation.is_none() && x_isolation.is_none() && authorization.is_none() {
        return None;
    }
    // No header value has a line end, so that the separator is unambiguous.
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
            let reply = http_reply::options();
            return Ok(Step::Answered { reply });
        }
        if !method.eq_ignore_ascii_case("CONNECT") {
            let reply = if local {
                http_reply::not_a_full_proxy()
            } else {
                Vec::new()
            };
            return Err(self.http_failure(reply, "the method is not CONNECT"));
        }
        self.reply_protocol = ReplyProtocol::Http;
        let Some((host, port)) = split(target) else {
            let reply = http_reply::answer("400 Bad Request", "");
            return Err(self.http_failure(reply, "the target is not a host and a port"));
        };
        if host.len() >= MAX_HOST {
            let reply = http_reply::answer("414 Request-URI Too Long", "");
            return Err(self.http_failure(reply, "the host name is too long"));
        }
        if header(&request, "Tor-RPC-Target").is_some() {
            let reply = http_reply::answer("501 Not implemented (No RPC Support)", "");
            return Err(self.http_failure(reply, "the request is for Arti's RPC"));
        }
        let Some(host) = destination::clean_host(host) else {
            let line = Line::info("Refused a request to the HTTPTunnelPort: the host name ")
                .client(host.escape_default())
                .text(" is malformed");
            let reply = http_reply::answer("400 Bad Request", "");
            return Err(self.fail(reply, Notice::new(line)));
        };
        self.credentials = credentials(&request);
        let opening = AppOpening::Connect { host, port };
        self.request(used, opening, AppProtocol::HttpConnect)
    }

    fn http_failure(&self, reply: Vec<u8>, why: &str) -> Failure {
        let line = format!("Refused a request to the HTTPTunnelPort: {why}");
        self.fail(reply, Notice::new(Line::info(line)))
    }
}
