//! Test for addresses that are reachable on the Internet, by C tor's `tor_addr_is_internal`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_cell::stream_msg::{AnswerKind, Resolved};

/// True if the address is neither unspecified, loopback, private, link-local nor shared
/// (carrier-grade NAT) address space.
pub fn is_public(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_public_v4(v4),
            None => is_public_v6(v6),
        },
    }
}

/// Removes answers that are internal addresses; perhaps none is left. An exit knows nothing of this machine's own network.
pub fn remove_internal(resolved: &mut Resolved) {
    resolved.answers.retain(|answer| match answer.kind {
        AnswerKind::Ipv4(address) => is_public(address.into()),
        AnswerKind::Ipv6(address) => is_public(address.into()),
        _ => true,
    });
}

/// IPv4: 0/8, 10/8, 100.64/10, 127/8, 169.254/16, 172.16/12, 192.168/16 are internal.
fn is_public_v4(addr: Ipv4Addr) -> bool {
    let [a, b, ..] = addr.octets();
    !(a == 0
        || addr.is_private()
        || addr.is_loopback()
        || addr.is_link_local()
        || (a == 100 && (64..128).contains(&b)))
}

/// IPv6: ::, ::1, fc00::/7, fe80::/10, fec0::/10 are internal.
fn is_public_v6(addr: Ipv6Addr) -> bool {
    let first = addr.segments()[0];
    !(addr.is_unspecified()
        || addr.is_loopback()
        || (first & 0xfe00) == 0xfc00
        || (first & 0xffc0) == 0xfe80
        || (first & 0xffc0) == 0xfec0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_answers_the_internal_addresses_are_removed_and_nothing_else() {
        use weft_cell::stream_msg::Answer;

        let kinds = [
            AnswerKind::Hostname(b"a.example".to_vec()),
            AnswerKind::Ipv4([192, 168, 0, 1].into()),
            AnswerKind::Ipv4([8, 8, 8, 8].into()),
            AnswerKind::Ipv6("fe80::1".parse().unwrap()),
            AnswerKind::Ipv6("::ffff:127.0.0.1".parse().unwrap()),
            AnswerKind::Ipv6("2001:db8::1".parse().unwrap()),
            AnswerKind::Error,
            AnswerKind::TransientError,
        ];
        let answer = |kind: &AnswerKind| Answer {
            kind: kind.clone(),
            ttl: 60,
        };
        let mut resolved = Resolved {
            answers: kinds.iter().map(answer).collect(),
        };
        remove_internal(&mut resolved);
        let left: Vec<_> = resolved.answers.into_iter().map(|one| one.kind).collect();
        let [name, _, public, _, _, public_v6, error, transient] = kinds;
        assert_eq!(left, [name, public, public_v6, error, transient]);
    }

    #[test]
    fn internal_addresses_are_distinguished_from_public_ones() {
        for internal in [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "::",
            "::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(internal.parse().unwrap()), "{internal}");
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "193.23.244.244",
            "2001:db8::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
