//! The line of haproxy's PROXY protocol, version 1 (proto_haproxy.c, `haproxy_format_proxy_header_line`).

use std::net::SocketAddr;

/// The line that names the target. Like C tor's it names no source.
pub(crate) fn line(target: SocketAddr) -> Vec<u8> {
    let (family, source) = match target {
        SocketAddr::V4(_) => ("TCP4", "0.0.0.0"),
        SocketAddr::V6(_) => ("TCP6", "::"),
    };
    let (address, port) = (target.ip(), target.port());
    format!("PROXY {family} {source} {address} 0 {port}\r\n").into_bytes()
}
