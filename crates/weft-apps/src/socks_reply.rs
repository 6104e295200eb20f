//! Replies of SOCKS 4 and 5.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_cell::stream_msg::{AnswerKind, Resolved};
use weft_config::options::StreamFlags;
use weft_core::origin::AppRefusal;

use crate::destination;

/// SOCKS 5's code for a refusal (RFC 1928; socks-extensions for those from 0xf0; without
/// `ExtendedErrors` the codes to which C tor maps END reasons).
pub(crate) fn status(why: AppRefusal, extended: bool) -> u8 {
    match why {
        AppRefusal::General => 1,
        AppRefusal::NotAllowed => 2,
        AppRefusal::NetUnreachable => 3,
        AppRefusal::HostUnreachable => 4,
        AppRefusal::ConnectionRefused => 5,
        AppRefusal::TtlExpired => 6,
        AppRefusal::CommandNotSupported => 7,
        AppRefusal::AddressTypeNotSupported => 8,
        AppRefusal::OnionService(which) if extended => 0xf0 | (which & 0x0f),
        AppRefusal::OnionService(destination::BAD_ONION) => 1,
        AppRefusal::OnionService(_) => 4,
    }
}

/// An answer of SOCKS 4.
pub(crate) fn reply4(granted: bool, address: Option<Ipv4Addr>) -> Vec<u8> {
    let mut reply = vec![0, if granted { 90 } else { 91 }, 0, 0];
    reply.extend(address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    reply
}

/// An answer of SOCKS 5 that names no address.
pub(crate) fn reply5_status(status: u8, ipv6: bool) -> Vec<u8> {
    let address = match ipv6 {
        true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    reply5(status, address)
}

fn reply5(status: u8, address: IpAddr) -> Vec<u8> {
    let mut reply = vec![5, status, 0];
    match address {
        IpAddr::V4(address) => {
            reply.push(1);
            reply.extend(address.octets());
        }
        IpAddr::V6(address) => {
            reply.push(4);
            reply.extend(address.octets());
        }
    }
    reply.extend([0, 0]);
    reply
}

/// The answer to SOCKS 4's RESOLVE: the first IPv4 address.
pub(crate) fn resolved4(resolved: &Resolved) -> Vec<u8> {
    let address = resolved
        .answers
        .iter()
        .find_map(|answer| match answer.kind {
            AnswerKind::Ipv4(address) => Some(address),
            _ => None,
        });
    reply4(address.is_some(), address)
}

/// The answer to SOCKS 5's RESOLVE_PTR: the first name.
pub(crate) fn resolved_name5(resolved: &Resolved) -> Vec<u8> {
    let name = resolved
        .answers
        .iter()
        .find_map(|answer| match &answer.kind {
            AnswerKind::Hostname(name) => Some((u8::try_from(name.len()).ok()?, name)),
            _ => None,
        });
    match name {
        Some((len, name)) => {
            let mut reply = vec![5, 0, 0, 3, len];
            reply.extend(name);
            reply.extend([0, 0]);
            reply
        }
        None => reply5_status(4, false),
    }
}

/// The answer to SOCKS 5's RESOLVE: the first address, of the family that the port prefers if
/// there is one of it (`connection_ap_handshake_socks_got_resolved_cell`).
pub(crate) fn resolved5(resolved: &Resolved, flags: &StreamFlags) -> Vec<u8> {
    let answers = || resolved.answers.iter().map(|answer| &answer.kind);
    let first = |v4: bool| {
        answers().find_map(|kind| match kind {
            AnswerKind::Ipv4(address) if v4 && flags.ipv4_traffic => Some(IpAddr::V4(*address)),
            AnswerKind::Ipv6(address) if !v4 && flags.ipv6_traffic => Some(IpAddr::V6(*address)),
            _ => None,
        })
    };
    let v4_first = !flags.prefer_ipv6;
    match first(v4_first).or_else(|| first(!v4_first)) {
        Some(address) => reply5(0, address),
        None => reply5_status(4, false),
    }
}
