//! Requests to the MetricsPort: parses the head of an HTTP request and ignores the body.
//!
//! Total over hostile bytes. The verdicts are C tor's (metrics.c): `GET /metrics` is served, with or
//! without a scheme and host before the path; another path is not found, another method not allowed,
//! and everything else is a bad request.
#![cfg_attr(
    not(fuzzing),
    expect(unreachable_pub, reason = "`weft_node::fuzzing` exports it")
)]

/// Bytes of a head, at most. C tor reads 1024; Prometheus' heads are near that.
pub const MAX_HEAD: usize = 4096;
/// Header lines, at most.
const MAX_HEADERS: usize = 64;

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
}

/// Parses the bytes received so far; `None` while the head is incomplete.
pub fn parse(bytes: &[u8]) -> Option<Verdict> {
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
    Some(match request.path.map(path) {
        Some("/metrics") => Verdict::Metrics,
        _ => Verdict::NotFound,
    })
}

/// The path of a request target, which may have a scheme and a host, as for a proxy.
fn path(target: &str) -> &str {
    let host = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("https://"));
    match host.and_then(|host| host.find('/').and_then(|at| host.get(at..))) {
        Some(path) => path,
        None => target,
    }
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
            assert_eq!(parse(request.as_bytes()), Some(verdict), "{request:?}");
        }
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
            let verdict = (0..=whole.len()).find_map(|length| parse(&whole[..length]));
            proptest::prop_assert_eq!(parse(whole), verdict);
            if verdict.is_some() {
                let more = [whole, b"GET /metrics HTTP/1.0\r\n\r\n"].concat();
                proptest::prop_assert_eq!(parse(&more), verdict);
            }
        }
    }

    #[test]
    fn a_head_may_arrive_byte_by_byte_but_not_without_end() {
        let request = b"GET /metrics HTTP/1.1\r\nAccept: text/plain\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(parse(&request[..length]), None, "{length}");
        }
        let mut long = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
        long.resize(MAX_HEAD - 1, b'a');
        assert_eq!(parse(&long), None);
        long.push(b'a');
        assert_eq!(parse(&long), Some(Verdict::Bad));
        long.extend(b"\r\n\r\n");
        assert_eq!(parse(&long), Some(Verdict::Bad));
        let many = "A: b\r\n".repeat(MAX_HEADERS + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{many}\r\n");
        assert_eq!(parse(many.as_bytes()), Some(Verdict::Bad));
    }
}
