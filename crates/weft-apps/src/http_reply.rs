//! Replies of HTTP CONNECT.

use weft_core::origin::AppRefusal;

use crate::destination;

/// Headers of replies to CONNECT.
const CONNECT_HEADERS: &str = concat!(
    "Tor-Capabilities: \r\nVia: tor/1.0 tor-network (weft ",
    env!("CARGO_PKG_VERSION"),
    ")\r\n"
);
/// Headers of other replies.
const OTHER_HEADERS: &str = concat!(
    "Tor-Capabilities: \r\nServer: tor/1.0 (weft ",
    env!("CARGO_PKG_VERSION"),
    ")\r\n"
);

/// A page for the user of a misconfigured browser.
fn page(status: &str, headers: &str, title: &str, text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/html; charset=utf-8\r\n{headers}\r\n\
         <!DOCTYPE html>\n<html>\n<head><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n\
         <p>{text}</p>\n</body>\n</html>\n"
    )
    .into_bytes()
}

/// The reply of a SocksPort to a browser that uses it as an HTTP proxy.
pub(crate) fn not_a_proxy() -> Vec<u8> {
    page(
        "501 Tor is not an HTTP Proxy",
        "",
        "This is a SOCKS proxy, not an HTTP proxy",
        "Your browser uses this port as an HTTP proxy, but it speaks SOCKS. Set it as the SOCKS \
         proxy (version 5) of your browser, or set HTTPTunnelPort in the torrc and use that port \
         as the HTTP proxy.",
    )
}

/// The reply of an HTTPTunnelPort to a browser that does not use CONNECT.
pub(crate) fn not_a_full_proxy() -> Vec<u8> {
    page(
        "405 Method Not Allowed",
        OTHER_HEADERS,
        "This is an HTTP CONNECT tunnel, not an HTTP proxy",
        "Your browser uses this port as a full HTTP proxy, but it only opens tunnels by CONNECT. \
         Browsers ask for a tunnel by themselves for pages of https.",
    )
}

/// The reply to a CONNECT that succeeded.
pub(crate) fn connected() -> Vec<u8> {
    answer("200 OK", "")
}

pub(crate) fn answer(status: &str, more: &str) -> Vec<u8> {
    format!("HTTP/1.0 {status}\r\n{CONNECT_HEADERS}{more}\r\n").into_bytes()
}

/// The reply to a CONNECT that failed.
pub(crate) fn refused(why: AppRefusal) -> Vec<u8> {
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
        // As C tor answers for a service that it does not find.
        AppRefusal::OnionService(destination::NO_SUCH_ONION) => (
            "503 Service Unavailable (resolve failed)",
            "end/RESOLVEFAILED",
        ),
        AppRefusal::OnionService(_) => (
            "502 Bad Gateway (tor protocol violation)",
            "end/TORPROTOCOL",
        ),
    };
    answer(status, &format!("Tor-Request-Failed: {reason}\r\n"))
}

/// The reply to OPTIONS.
pub(crate) fn options() -> Vec<u8> {
    format!("HTTP/1.0 200 OK\r\nAllow: OPTIONS, CONNECT\r\n{OTHER_HEADERS}\r\n").into_bytes()
}
