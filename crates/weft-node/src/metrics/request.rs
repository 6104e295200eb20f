//! Requests to the MetricsPort: parses the head of an HTTP request and ignores the body.
//!
//! Total over hostile bytes. The verdicts are C tor's (metrics.c): `GET /metrics` is served, with or
//! without a scheme and host before the path; another path is not found, another method not allowed,
//! and everything else is a bad request.
//!
//! C tor does not look at `Host`. A web page whose name its owner lets lead to 127.0.0.1 (DNS rebinding)
//! could then read the metrics with the browser of someone at this machine. So over loopback the host must
//! be an address or `localhost`, which no page has for its name.
#![cfg_attr(
    not(fuzzing),
    expect(unreachable_pub, reason = "`weft_node::fuzzing` exports it")
)]

use std::net::{Ipv4Addr, Ipv6Addr};

#[cfg(test)]
use weft_trust::{Limit, Payer, Role, Sender, Trust};

/// Bytes of a head, at most. C tor reads 1024; Prometheus' heads are near that.
pub const MAX_HEAD: usize = 4096;
/// Header lines, at most.
const MAX_HEADERS: usize = 64;

/// `GET /metrics`, the one request: who may send it, and what bounds it.
#[cfg(test)]
pub(crate) const TRUST: Trust = Trust::new(
    Sender::Anybody,
    Role::MetricsPort,
    Limit::new(
        "whom MetricsPortPolicy lets in; {weft-node/src/metrics/request.rs:MAX_HEAD} bytes, \
                {weft-node/src/metrics/server.rs:MAX_TIME}, {weft-node/src/metrics/server.rs:MAX_CONNECTIONS} connections of which \
                half are answered; over loopback no name but `localhost`",
        Payer::Address,
        &[
            "requests_are_answered_as_c_tor_answers_them",
            "a_head_may_arrive_byte_by_byte_but_not_without_end",
            "over_loopback_a_web_page_does_not_read_the_metrics_by_its_name",
            "silent_connections_do_not_lock_out_requests",
            "unread_responses_do_not_lock_out_requests",
            "fuzz/metrics_request",
        ],
    ),
);

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 200, with the metrics.
    Metrics,
    /// 400: it is no HTTP/1.0 or HTTP/1.1 request, or too long.
    Bad,
    /// 404: another path.
    NotFound,
    /// 405: another method than GET.
    NotAllowed,
    /// 403: over loopback, by another name than `localhost`.
    OtherHost,
}

/// Parses the bytes received so far; `None` while the head is incomplete. `loopback`: the connection came
/// over it.
pub fn parse(bytes: &[u8], loopback: bool) -> Option<Verdict> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes.get(..MAX_HEAD).unwrap_or(bytes)) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return None,
        Ok(httparse::Status::Partial) | Err(_) => return Some(Verdict::Bad),
    }
    if request.method != Some("GET") {
        return Some(Verdict::NotAllowed);
    }
    let (named, path) = split(request.path.unwrap_or_default());
    let hosts = request.headers.iter();
    let hosts = hosts.filter(|header| header.name.eq_ignore_ascii_case("host"));
    let hosts = hosts.map(|header| std::str::from_utf8(header.value).ok());
    if loopback
        && !hosts
            .chain(named.map(Some))
            .all(|host| host.is_some_and(is_no_name))
    {
        return Some(Verdict::OtherHost);
    }
    Some(match path {
        "/metrics" => Verdict::Metrics,
        _ => Verdict::NotFound,
    })
}

/// Host and path of a request target, which may have a scheme and a host, as for a proxy.
fn split(target: &str) -> (Option<&str>, &str) {
    let rest = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("https://"));
    let at = rest.and_then(|rest| Some(rest.split_at(rest.find('/')?)));
    at.map_or((None, target), |(host, path)| (Some(host), path))
}

/// True if a `Host` is an address or `localhost`, with or without a port.
fn is_no_name(host: &str) -> bool {
    let host = host.trim();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let v6 = |host: &str| {
        let host = host.strip_prefix('[')?.strip_suffix(']')?;
        host.parse::<Ipv6Addr>().ok()
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok()
        || [name, host].into_iter().any(|host| v6(host).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_as_c_tor_answers_them() {
        // C tor 0.4.9.11 answers the same, except to "GETX", which it takes for GET.
        for (request, verdict) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Verdict::Metrics),
            ("GET /metrics HTTP/1.0\r\n\r\n", Verdict::Metrics),
            (
                "GET http://x:9035/metrics HTTP/1.0\r\n\r\n",
                Verdict::Metrics,
            ),
            ("GET / HTTP/1.0\r\n\r\n", Verdict::NotFound),
            ("GET /metrics/ HTTP/1.0\r\n\r\n", Verdict::NotFound),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Verdict::NotFound),
            ("GET http://x HTTP/1.0\r\n\r\n", Verdict::NotFound),
            (
                "POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
                Verdict::NotAllowed,
            ),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", Verdict::NotAllowed),
            ("GETX /metrics HTTP/1.0\r\n\r\n", Verdict::NotAllowed),
            ("garbage\r\n\r\n", Verdict::Bad),
            ("GET /metrics\r\n\r\n", Verdict::Bad),
            ("GET /metrics HTTP/2.0\r\n\r\n", Verdict::Bad),
            ("\0\0\0\0", Verdict::Bad),
            ("\x16\x03\x01\x02\0", Verdict::Bad),
        ] {
            assert_eq!(
                parse(request.as_bytes(), false),
                Some(verdict),
                "{request:?}"
            );
        }
    }

    #[test]
    fn over_loopback_a_web_page_does_not_read_the_metrics_by_its_name() {
        for (host, is_served) in [
            ("", true),
            ("Host: 127.0.0.1:9035\r\n", true),
            ("Host: [::1]:9035\r\n", true),
            ("host:  LocalHost \r\n", true),
            ("Host: localhost:9035\r\n", true),
            ("Host: 192.0.2.1\r\n", true),
            ("Host: [::1]\r\n", true),
            ("Host: rebound.example:9035\r\n", false),
            ("Host: localhost.rebound.example\r\n", false),
            ("Host: 127.0.0.1.rebound.example\r\n", false),
            ("Host: é\r\n", false),
            ("Host: \r\n", false),
            ("Host: localhost\r\nHost: rebound.example\r\n", false),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\n{host}\r\n");
            let verdict = match is_served {
                true => Verdict::Metrics,
                false => Verdict::OtherHost,
            };
            assert_eq!(parse(request.as_bytes(), true), Some(verdict), "{host:?}");
            // Prometheus asks a relay by its name from another machine.
            assert_eq!(parse(request.as_bytes(), false), Some(Verdict::Metrics));
        }
        let whole = b"GET http://rebound.example/metrics HTTP/1.0\r\n\r\n";
        assert_eq!(parse(whole, true), Some(Verdict::OtherHost));
        let whole = b"GET http://127.0.0.1:1/metrics HTTP/1.0\r\n\r\n";
        assert_eq!(parse(whole, true), Some(Verdict::Metrics));
    }

    proptest::proptest! {
        #[test]
        fn later_bytes_do_not_change_a_verdict(
            start in proptest::sample::select(&["GET /metrics HTTP/1.1\r\n", "GET / HT", "\r\n", ""][..]),
            noise in "[\\x00-\\x7f]{0,40}",
            lines in 0_usize..80,
        ) {
            let whole = format!("{start}{}{noise}\r\n\r\n", "A: b\r\n".repeat(lines));
            let whole = whole.as_bytes();
            let verdict = (0..=whole.len()).find_map(|length| parse(&whole[..length], true));
            proptest::prop_assert_eq!(parse(whole, true), verdict);
            if verdict.is_some() {
                let more = [whole, b"GET /metrics HTTP/1.0\r\n\r\n"].concat();
                proptest::prop_assert_eq!(parse(&more, true), verdict);
            }
        }
    }

    #[test]
    fn a_head_may_arrive_byte_by_byte_but_not_without_end() {
        let request = b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(parse(&request[..length], true), None, "{length}");
        }
        let mut long = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
        long.resize(MAX_HEAD - 1, b'a');
        assert_eq!(parse(&long, true), None);
        long.push(b'a');
        assert_eq!(parse(&long, true), Some(Verdict::Bad));
        long.extend(b"\r\n\r\n");
        assert_eq!(parse(&long, true), Some(Verdict::Bad));
        let many = "A: b\r\n".repeat(MAX_HEADERS + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{many}\r\n");
        assert_eq!(parse(many.as_bytes(), true), Some(Verdict::Bad));
    }
}
