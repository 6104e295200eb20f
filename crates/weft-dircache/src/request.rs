//! A request to our directory: the head of an HTTP request, total over hostile bytes.
//!
//! As C tor reads it (dircache.c `directory_handle_command_get`): a path with or without a scheme
//! and host in front of it, `.z` for zlib, `Accept-Encoding`, `If-Modified-Since`.

use std::time::SystemTime;

use weft_dir::consdiff::ConsensusDigest;
use weft_dir::http::Compression;
use weft_dir::http::parse_date;

/// Bytes of a head at most (C tor `MAX_HEADERS_SIZE`).
pub const MAX_HEAD: usize = 50_000;
/// Consensuses that a request may name; C tor's clients name one.
const MAX_DIGESTS: usize = 64;
/// Header lines at most.
const MAX_HEADERS: usize = 64;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The path, from `/tor/`, without `.z`.
    pub path: String,
    /// Compressions that the requester accepts.
    pub accepts: Accepts,
    /// `If-Modified-Since`.
    pub since: Option<SystemTime>,
    /// `X-Or-Diff-From-Consensus`: consensuses that the other side has.
    pub has: Vec<ConsensusDigest>,
}

/// The head of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The path, as it is asked for.
    pub path: String,
    /// Bytes of the head: the body begins behind them.
    pub head: usize,
    /// Bytes of the body.
    pub length: usize,
}

/// Compressions that the other side understands; none is always one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts(u8);

impl Accepts {
    /// Adds a compression.
    #[must_use]
    pub fn with(self, compression: Compression) -> Self {
        Self(self.0 | Self::bit(compression))
    }

    /// True if the requester accepts this compression.
    pub fn has(self, compression: Compression) -> bool {
        compression == Compression::Identity || self.0 & Self::bit(compression) != 0
    }

    fn bit(compression: Compression) -> u8 {
        match compression {
            Compression::Identity => 0,
            Compression::Deflate => 1,
            Compression::Gzip => 2,
            Compression::Zstd => 4,
            Compression::Lzma => 8,
        }
    }
}

/// The part of a request that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not all of it.
    Partial,
    /// A request for a document.
    Get(Request),
    /// The head of a request to take one.
    Post(Upload),
    /// Something else; the status and the reason to answer with.
    Bad(u16, &'static str),
}

/// Reads what has come so far.
pub fn parse(bytes: &[u8]) -> Parsed {
    const BAD: Parsed = Parsed::Bad(400, "Bad request");
    // An HTTP parser may skip empty lines, at length and again and again.
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return BAD;
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes.get(..MAX_HEAD).unwrap_or(bytes)) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(_) => return BAD,
    };
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return BAD;
    };
    match method {
        "GET" => {}
        "POST" => return upload(target, request.headers, length).map_or(BAD, Parsed::Post),
        _ => return BAD,
    }
    let Some(path) = path(target) else {
        return BAD;
    };
    let (path, compressed) = match path.strip_suffix(".z") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let path = if path.starts_with("/tor/") {
        path.to_string()
    } else {
        format!("/tor{path}")
    };
    let mut accepts = Accepts::default();
    if compressed {
        accepts = accepts.with(Compression::Deflate);
    }
    let (mut since, mut has) = (None, Vec::new());
    for header in request.headers.iter() {
        let Ok(value) = std::str::from_utf8(header.value) else {
            continue;
        };
        if header.name.eq_ignore_ascii_case("If-Modified-Since") {
            since = parse_date(value);
        } else if header.name.eq_ignore_ascii_case("Accept-Encoding") {
            let known = value.split(',').filter_map(Compression::from_name);
            accepts = known.fold(accepts, Accepts::with);
        } else if header.name.eq_ignore_ascii_case("X-Or-Diff-From-Consensus") {
            // Invalid digests are ignored (C tor `parse_or_diff_from_header`).
            let digests = value.split(' ').filter_map(ConsensusDigest::from_hex);
            has = digests.take(MAX_DIGESTS).collect();
        }
    }
    Parsed::Get(Request {
        path,
        accepts,
        since,
        has,
    })
}

/// The head of an upload; `None`: it has no length that makes sense.
fn upload(target: &str, headers: &[httparse::Header<'_>], head: usize) -> Option<Upload> {
    let mut length = None;
    for header in headers {
        if header.name.eq_ignore_ascii_case("Content-Length") {
            let value = std::str::from_utf8(header.value).ok()?.trim();
            // Two that differ have two readers disagree on where the body ends.
            if length.replace(value).is_some_and(|before| before != value) {
                return None;
            }
        }
    }
    Some(Upload {
        path: path(target)?.to_owned(),
        head,
        length: length.unwrap_or("0").parse().ok()?,
    })
}

/// The path of a target that may have a scheme and a host in front of it, as for a proxy; with a
/// slash at its beginning.
fn path(target: &str) -> Option<&str> {
    let host = target
        .strip_prefix("http://")
        .or_else(|| target.strip_prefix("https://"));
    match host {
        Some(host) => host.get(host.find('/')?..),
        None => target.starts_with('/').then_some(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn get(head: &str) -> Request {
        match parse(head.as_bytes()) {
            Parsed::Get(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_of_c_tor_are_read() {
        let request = get("GET /tor/micro/d/abc.z HTTP/1.0\r\nHost: 1.2.3.4\r\n\
             Accept-Encoding: x-zstd, deflate , gzip\r\n\
             If-Modified-Since: Sat, 21 Nov 2026 01:00:00 GMT\r\n\r\n");
        assert_eq!(request.path, "/tor/micro/d/abc");
        let all = [Compression::Zstd, Compression::Deflate, Compression::Gzip];
        assert_eq!(
            request.accepts,
            all.into_iter().fold(Accepts::default(), Accepts::with)
        );
        assert!(
            !request.accepts.has(Compression::Lzma) && request.accepts.has(Compression::Identity)
        );
        let since = request.since.unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_800);
        assert_eq!(since, at);

        let request = get("GET http://1.2.3.4:80/tor/keys/all HTTP/1.1\r\n\
             If-Modified-Since: yesterday\r\n\r\n");
        assert_eq!(request.path, "/tor/keys/all");
        assert_eq!(request.accepts, Accepts::default());
        assert_eq!(request.since, None);
        assert_eq!(
            get("GET /robots.txt HTTP/1.0\r\n\r\n").path,
            "/tor/robots.txt"
        );
        let compressed = get("GET /tor/x.z HTTP/1.0\r\n\r\n").accepts;
        assert_eq!(compressed, Accepts::default().with(Compression::Deflate));
    }

    #[test]
    fn consensuses_that_a_client_has_are_read_and_bounded() {
        let digest = |byte: &str| byte.repeat(32);
        let request = get(&format!(
            "GET /tor/x HTTP/1.0\r\nX-Or-Diff-From-Consensus:  {} nonsense {}  {}0\r\n\r\n",
            digest("aB"),
            digest("01"),
            digest("02"),
        ));
        assert_eq!(
            request.has,
            [ConsensusDigest([0xab; 32]), ConsensusDigest([1; 32])]
        );
        let many = vec![digest("07"); MAX_DIGESTS + 1].join(" ");
        let request = get(&format!(
            "GET /tor/x HTTP/1.0\r\nX-Or-Diff-From-Consensus: {many}\r\n\r\n"
        ));
        assert_eq!(request.has.len(), MAX_DIGESTS);
        assert_eq!(get("GET /tor/x HTTP/1.0\r\n\r\n").has, []);
    }

    #[test]
    fn uploads_have_a_path_and_a_length() {
        let head = "POST /tor/hs/3/publish HTTP/1.0\r\nHost: 1.2.3.4\r\nContent-Length: 7\r\n\r\n";
        let expected = Upload {
            path: "/tor/hs/3/publish".into(),
            head: head.len(),
            length: 7,
        };
        let parsed = parse(format!("{head}hs-desc").as_bytes());
        assert_eq!(parsed, Parsed::Post(expected));
        match parse(b"POST http://1.2.3.4/tor/ HTTP/1.0\n\n") {
            Parsed::Post(upload) => assert_eq!((&*upload.path, upload.length), ("/tor/", 0)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_request_is_answered_with_its_error() {
        for (bytes, status) in [
            ("BREW /tor/ HTTP/1.0\r\n\r\n", 400),
            ("GET tor HTTP/1.0\r\n\r\n", 400),
            ("GET http://x HTTP/1.0\r\n\r\n", 400),
            ("\x16\x03\x01", 400),
            ("POST tor HTTP/1.0\r\n\r\n", 400),
            (
                "POST /tor/hs/3/publish HTTP/1.0\r\nContent-Length: -1\r\n\r\n",
                400,
            ),
            (
                "POST /tor/hs/3/publish HTTP/1.0\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                400,
            ),
            (
                "POST /tor/ HTTP/1.0\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n",
                400,
            ),
        ] {
            assert!(
                matches!(parse(bytes.as_bytes()), Parsed::Bad(got, _) if got == status),
                "{bytes:?}"
            );
        }
        assert_eq!(parse(b"GET /tor/ HTTP/1.0\r\n"), Parsed::Partial);
        let endless = [b"GET /".to_vec(), vec![b'a'; MAX_HEAD]].concat();
        assert!(matches!(parse(&endless), Parsed::Bad(400, _)));
    }
}
