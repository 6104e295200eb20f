//! HTTP/1.0 to a directory authority, bounded in every direction.
//!
//! One request per connection, the answer ends at end of file, as C tor's directory protocol has
//! it (dir-spec 4, 6.1; `dirclient.c`). The head, the body and what it decompresses to have limits,
//! and so does silence. [`parse_head`] and [`decode`] are total over hostile bytes.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::clock::Clock;

/// What a response may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of status line and headers (C tor `MAX_HEADERS_SIZE`).
    pub head: usize,
    /// Bytes of the body as sent (C tor `MAX_DIR_DL_SIZE`).
    pub body: usize,
    /// Bytes of the body once decompressed.
    pub decompressed: usize,
    /// Time to connect.
    pub connect: Duration,
    /// Time without any progress.
    pub stall: Duration,
    /// Time for everything.
    pub total: Duration,
}

impl Limits {
    /// C tor's limits, with this one for silence.
    pub fn with_stall(stall: Duration) -> Self {
        Self {
            head: 50_000,
            body: (1 << 24) - 1,
            decompressed: 32 << 20,
            connect: Duration::from_secs(60).min(stall),
            stall,
            total: Duration::from_secs(1800),
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Request {
    /// Fetch this path.
    Get {
        /// Path, beginning with `/`.
        path: String,
        /// Tell us nothing that is not newer than this.
        if_modified_since: Option<SystemTime>,
    },
    /// Send this body to this path.
    Post {
        /// Path, beginning with `/`.
        path: &'static str,
        /// `X-Desc-Gen-Reason`: why the descriptor was made.
        reason: &'static str,
        /// The body.
        body: Vec<u8>,
    },
}

impl Request {
    /// The bytes to send to `host`.
    fn encode(&self, host: SocketAddr) -> Vec<u8> {
        let host = if host.port() == 80 {
            host.ip().to_string()
        } else {
            host.to_string()
        };
        match self {
            Self::Get {
                path,
                if_modified_since,
            } => {
                let since = if_modified_since
                    .and_then(http_date)
                    .map(|date| format!("If-Modified-Since: {date}\r\n"))
                    .unwrap_or_default();
                format!(
                    "GET {path} HTTP/1.0\r\nHost: {host}\r\n{since}Accept-Encoding: deflate, gzip, identity\r\n\r\n"
                )
                .into_bytes()
            }
            Self::Post { path, reason, body } => {
                let length = body.len();
                let mut bytes = format!(
                    "POST {path} HTTP/1.0\r\nContent-Length: {length}\r\nHost: {host}\r\nX-Desc-Gen-Reason: {reason}\r\n\r\n"
                )
                .into_bytes();
                bytes.extend_from_slice(body);
                bytes
            }
        }
    }
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Reason phrase, printable and short.
    pub reason: String,
    /// `Date`.
    pub date: Option<SystemTime>,
    /// `X-Your-Address-Is`.
    pub your_address: Option<IpAddr>,
    /// `X-Descriptor-Not-New: Yes`.
    pub not_new: bool,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Identity,
    /// zlib (which HTTP calls deflate).
    Deflate,
    /// gzip.
    Gzip,
}

/// Status line and the headers that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes that status line and headers take.
    pub length: usize,
    /// Status code.
    pub status: u16,
    /// Reason phrase, printable and short.
    pub reason: String,
    /// `Content-Length`.
    pub content_length: Option<usize>,
    /// `Content-Encoding`.
    pub compression: Compression,
    /// `Date`.
    pub date: Option<SystemTime>,
    /// `X-Your-Address-Is`.
    pub your_address: Option<IpAddr>,
    /// `X-Descriptor-Not-New: Yes`.
    pub not_new: bool,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// What went wrong.
        source: io::Error,
    },
    /// Something took too long.
    #[error("gave up after {} s: {waiting}", after.as_secs())]
    Timeout {
        /// What was waited for.
        waiting: &'static str,
        /// How long.
        after: Duration,
    },
    /// The head is not HTTP.
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
    /// Something is larger than we read.
    #[error("the answer's {what} is larger than {limit} bytes")]
    TooLarge {
        /// `head`, `body`, `decompressed body`.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The connection ended before the answer did.
    #[error("the answer was cut off after {received} bytes")]
    Truncated {
        /// Bytes received.
        received: usize,
    },
    /// The body does not decompress.
    #[error("the answer's body does not decompress: {0}")]
    Decompression(io::Error),
}

/// Headers looked at before a head is refused.
const MAX_HEADERS: usize = 64;
/// Characters kept of a reason phrase.
const MAX_REASON: usize = 512;
/// Date format of HTTP (RFC 1123).
const DATE: &[BorrowedFormatItem<'static>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// A time as HTTP writes it.
fn http_date(time: SystemTime) -> Option<String> {
    time::OffsetDateTime::from(time).format(DATE).ok()
}

/// A time that HTTP wrote.
fn parse_date(text: &str) -> Option<SystemTime> {
    time::PrimitiveDateTime::parse(text.trim(), DATE)
        .ok()
        .map(|date| date.assume_utc().into())
}

/// Reads status line and headers; `None` if `bytes` do not hold all of them yet.
pub fn parse_head(bytes: &[u8]) -> Result<Option<Head>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(HttpError::Malformed("too many headers"));
        }
        Err(httparse::Error::Version) => {
            return Err(HttpError::Malformed("not HTTP/1.0 or HTTP/1.1"));
        }
        Err(_) => return Err(HttpError::Malformed("bad status line or header")),
    };
    let mut head = Head {
        length,
        status: response
            .code
            .ok_or(HttpError::Malformed("no status code"))?,
        reason: printable(response.reason.unwrap_or_default()),
        content_length: None,
        compression: Compression::Identity,
        date: None,
        your_address: None,
        not_new: false,
    };
    for header in response.headers.iter() {
        let Ok(value) = std::str::from_utf8(header.value) else {
            continue;
        };
        let value = value.trim();
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let length = value
                    .parse()
                    .map_err(|_| HttpError::Malformed("bad Content-Length"))?;
                if head.content_length.is_some_and(|before| before != length) {
                    return Err(HttpError::Malformed(
                        "two Content-Length headers that differ",
                    ));
                }
                head.content_length = Some(length);
            }
            "content-encoding" => {
                head.compression = match value.to_ascii_lowercase().as_str() {
                    "identity" | "" => Compression::Identity,
                    "deflate" => Compression::Deflate,
                    "gzip" | "x-gzip" => Compression::Gzip,
                    _ => {
                        return Err(HttpError::Malformed(
                            "a Content-Encoding that was not asked for",
                        ));
                    }
                };
            }
            "date" => head.date = parse_date(value),
            "x-your-address-is" => head.your_address = value.parse().ok(),
            "x-descriptor-not-new" => head.not_new = value == "Yes",
            _ => {}
        }
    }
    Ok(Some(head))
}

/// A reason phrase that can go into a log line.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(MAX_REASON)
        .collect()
}

/// Decompresses a body, to `limit` bytes at most.
///
/// Also reads zlib that is not announced, which some authorities answer to `.z` paths with.
pub fn decode(body: Vec<u8>, compression: Compression, limit: usize) -> Result<Vec<u8>, HttpError> {
    let reader: Box<dyn Read + '_> = match compression {
        Compression::Identity if !looks_like_zlib(&body) => return Ok(body),
        Compression::Identity | Compression::Deflate => {
            Box::new(flate2::read::ZlibDecoder::new(&*body))
        }
        Compression::Gzip => Box::new(flate2::read::GzDecoder::new(&*body)),
    };
    let mut decoded = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(most)
        .read_to_end(&mut decoded)
        .map_err(HttpError::Decompression)?;
    if decoded.len() > limit {
        return Err(HttpError::TooLarge {
            what: "decompressed body",
            limit,
        });
    }
    Ok(decoded)
}

/// Whether these bytes begin as zlib does; no directory document does.
fn looks_like_zlib(bytes: &[u8]) -> bool {
    match bytes {
        [cmf, flags, ..] => cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flags)) % 31 == 0,
        _ => false,
    }
}

/// Connects to `server` (from `bind`, if given), asks, and reads the answer.
pub async fn fetch(
    server: SocketAddr,
    bind: Option<IpAddr>,
    request: &Request,
    limits: Limits,
    clock: &dyn Clock,
) -> Result<Response, HttpError> {
    let total = HttpError::Timeout {
        waiting: "the answer is still not complete",
        after: limits.total,
    };
    within(clock, limits.total, total, async {
        let late = HttpError::Timeout {
            waiting: "no connection",
            after: limits.connect,
        };
        let mut stream = within(clock, limits.connect, late, connect(server, bind)).await?;
        exchange(&mut stream, server, request, limits, clock).await
    })
    .await
}

/// Opens the connection.
async fn connect(server: SocketAddr, bind: Option<IpAddr>) -> Result<TcpStream, HttpError> {
    let error = |source| HttpError::Io {
        action: "connect",
        source,
    };
    let socket = if server.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }
    .map_err(error)?;
    if let Some(bind) = bind.filter(|bind| bind.is_ipv4() == server.is_ipv4()) {
        socket.bind(SocketAddr::new(bind, 0)).map_err(error)?;
    }
    socket.connect(server).await.map_err(error)
}

/// Sends `request` over `stream` and reads the answer.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    host: SocketAddr,
    request: &Request,
    limits: Limits,
    clock: &dyn Clock,
) -> Result<Response, HttpError> {
    let bytes = request.encode(host);
    for chunk in bytes.chunks(16 << 10) {
        let stall = HttpError::Timeout {
            waiting: "the directory does not read",
            after: limits.stall,
        };
        within(clock, limits.stall, stall, async {
            stream
                .write_all(chunk)
                .await
                .map_err(|source| HttpError::Io {
                    action: "send the request",
                    source,
                })
        })
        .await?;
    }

    let mut received = Vec::new();
    let mut head = None;
    loop {
        let before = received.len();
        let stall = HttpError::Timeout {
            waiting: "the directory does not answer",
            after: limits.stall,
        };
        let read = within(clock, limits.stall, stall, async {
            let mut chunk = (&mut *stream).take(64 << 10);
            chunk
                .read_buf(&mut received)
                .await
                .map_err(|source| HttpError::Io {
                    action: "read the answer",
                    source,
                })
        })
        .await?;
        if head.is_none() {
            head = parse_head(&received)?;
            if head.is_none() && received.len() > limits.head {
                return Err(HttpError::TooLarge {
                    what: "head",
                    limit: limits.head,
                });
            }
        }
        if let Some(head) = &head {
            let body = received.len().saturating_sub(head.length);
            if head.length > limits.head {
                return Err(HttpError::TooLarge {
                    what: "head",
                    limit: limits.head,
                });
            }
            if body > limits.body
                || head
                    .content_length
                    .is_some_and(|length| length > limits.body)
            {
                return Err(HttpError::TooLarge {
                    what: "body",
                    limit: limits.body,
                });
            }
            if head.content_length.is_some_and(|length| body >= length) {
                break;
            }
        }
        if read == 0 {
            debug_assert_eq!(before, received.len());
            break;
        }
    }
    let truncated = HttpError::Truncated {
        received: received.len(),
    };
    let Some(head) = head else {
        return Err(truncated);
    };
    let mut body = received.split_off(head.length.min(received.len()));
    if let Some(length) = head.content_length {
        if body.len() < length {
            return Err(truncated);
        }
        body.truncate(length);
    }
    Ok(Response {
        status: head.status,
        reason: head.reason,
        date: head.date,
        your_address: head.your_address,
        not_new: head.not_new,
        body: decode(body, head.compression, limits.decompressed)?,
    })
}

/// The result of `work`, or `late` if it takes longer than `limit`.
async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    late: HttpError,
    work: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    tokio::select! {
        biased;
        result = work => result,
        () = clock.sleep(limit) => Err(late),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use proptest::prelude::*;
    use std::io::Write;
    use std::sync::Arc;

    const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7000);

    fn get(path: &str) -> Request {
        Request::Get {
            path: path.to_string(),
            if_modified_since: None,
        }
    }

    /// What `answer` is understood as, with small limits.
    async fn answered(answer: &[u8]) -> Result<Response, HttpError> {
        let limits = Limits {
            head: 1000,
            body: 2000,
            decompressed: 5000,
            ..Limits::with_stall(Duration::from_secs(30))
        };
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH);
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let result = exchange(&mut ours, HOST, &get("/x"), limits, &clock).await;
        drop(theirs);
        result
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn an_answer_is_read_with_the_headers_that_matter() {
        let response = answered(
            b"HTTP/1.0 200 OK\r\nDate: Sat, 21 Nov 2026 01:01:03 GMT\r\nX-Your-Address-Is: 127.0.0.9\r\n\
              X-Descriptor-Not-New: Yes\r\nContent-Length: 4\r\n\r\nbodyjunk",
        )
        .await
        .unwrap();
        assert_eq!(
            (response.status, response.reason.as_str(), response.not_new),
            (200, "OK", true)
        );
        assert_eq!(response.body, b"body");
        assert_eq!(response.your_address, Some("127.0.0.9".parse().unwrap()));
        assert_eq!(
            response.date,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_222_863))
        );
    }

    #[tokio::test]
    async fn without_a_length_the_body_ends_with_the_connection() {
        let response = answered(b"HTTP/1.0 404 Not found\r\n\r\nsorry")
            .await
            .unwrap();
        assert_eq!(
            (response.status, response.body.as_slice()),
            (404, b"sorry".as_slice())
        );
    }

    #[tokio::test]
    async fn compressed_bodies_are_decompressed_announced_or_not() {
        for header in ["Content-Encoding: deflate\r\n", ""] {
            let mut answer = format!("HTTP/1.0 200 OK\r\n{header}\r\n").into_bytes();
            answer.extend(zlib(b"network-status-version 3 microdesc\n"));
            assert_eq!(
                answered(&answer).await.unwrap().body,
                b"network-status-version 3 microdesc\n"
            );
        }
    }

    #[tokio::test]
    async fn too_much_of_anything_is_refused_by_name() {
        let mut bomb = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n".to_vec();
        bomb.extend(zlib(&[0; 100_000]));
        let mut long = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
        long.extend([b'x'; 3000]);
        let announced = b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
        let mut header = b"HTTP/1.0 200 OK\r\nX-Long: ".to_vec();
        header.extend([b'x'; 3000]);
        for (answer, part) in [
            (bomb, "decompressed body"),
            (long, "body"),
            (announced, "body"),
            (header, "head"),
        ] {
            match answered(&answer).await {
                Err(HttpError::TooLarge { what, .. }) => assert_eq!(what, part),
                other => panic!("{part}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_answer_cut_off_is_refused() {
        for answer in [
            "",
            "HTTP/1.0 200",
            "HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        ] {
            assert!(
                matches!(
                    answered(answer.as_bytes()).await,
                    Err(HttpError::Truncated { .. })
                ),
                "{answer:?}"
            );
        }
        let mut answer = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n".to_vec();
        let body = zlib(
            &(0..1500_u32)
                .flat_map(u32::to_le_bytes)
                .collect::<Vec<u8>>(),
        );
        answer.extend(&body[..body.len() / 2]);
        assert!(matches!(
            answered(&answer).await,
            Err(HttpError::Decompression(_))
        ));
    }

    #[tokio::test]
    async fn what_is_not_http_is_refused() {
        for answer in [
            "SSH-2.0-x\r\n",
            "HTTP/1.0 OK\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Encoding: x-zstd\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ] {
            assert!(
                matches!(
                    answered(answer.as_bytes()).await,
                    Err(HttpError::Malformed(_))
                ),
                "{answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_directory_that_says_nothing_is_given_up() {
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let (mut ours, mut theirs) = tokio::io::duplex(1 << 16);
        let task = tokio::spawn({
            let clock = clock.clone();
            async move {
                let limits = Limits::with_stall(Duration::from_secs(30));
                exchange(&mut ours, HOST, &get("/tor/x"), limits, &*clock).await
            }
        });
        let mut request = [0; 16];
        theirs.read_exact(&mut request).await.unwrap();
        assert_eq!(&request, b"GET /tor/x HTTP/");
        theirs.write_all(b"HTTP/1.0 200 OK\r\n").await.unwrap();
        while !task.is_finished() {
            clock.advance(Duration::from_secs(10));
            tokio::task::yield_now().await;
        }
        assert!(matches!(
            task.await.unwrap(),
            Err(HttpError::Timeout { .. })
        ));
    }

    #[test]
    fn a_post_carries_length_reason_and_body() {
        let request = Request::Post {
            path: "/tor/",
            reason: "config change",
            body: b"router x".to_vec(),
        };
        let text = String::from_utf8(request.encode(HOST)).unwrap();
        assert!(
            text.starts_with(
                "POST /tor/ HTTP/1.0\r\nContent-Length: 8\r\nHost: 127.0.0.1:7000\r\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("X-Desc-Gen-Reason: config change\r\n\r\nrouter x"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_head_parser(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(Some(head)) = parse_head(&bytes) {
                prop_assert!(head.length <= bytes.len());
            }
        }

        #[test]
        fn no_bytes_decompress_past_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for compression in [Compression::Identity, Compression::Deflate, Compression::Gzip] {
                if let Ok(decoded) = decode(bytes.clone(), compression, 300) {
                    prop_assert!(decoded.len() <= 300 || compression == Compression::Identity);
                }
            }
        }
    }
}
