//! Requests as they are sent and answers as they are read: HTTP/1.0 as far as directories speak it
//! (dir-spec 4, 6.1). [`parse_head`] is total over hostile bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use weft_proxy::HttpProxy;

use super::compress::Compression;
use super::error::HttpError;
use crate::consdiff::ConsensusDigest;

/// A request to a directory.
#[derive(Clone, Debug)]
pub enum Request {
    /// Fetch this path.
    Get {
        /// Path, beginning with `/`.
        path: String,
        /// Only a document newer than this is wanted.
        if_modified_since: Option<SystemTime>,
        /// A diff from the consensus with this digest will do (`X-Or-Diff-From-Consensus`).
        diff_from: Option<ConsensusDigest>,
    },
    /// Send this body to this path.
    Post {
        /// Path, beginning with `/`.
        path: &'static str,
        /// `X-Desc-Gen-Reason`: why the descriptor was made.
        reason: &'static str,
        /// The document to publish.
        body: Vec<u8>,
    },
}

impl Request {
    /// A request for this path.
    pub fn get(path: String) -> Self {
        Self::Get {
            path,
            if_modified_since: None,
            diff_from: None,
        }
    }

    /// The bytes to send to `host`, if it has an address, or to the proxy that is to ask it.
    pub(crate) fn encode(&self, host: Option<SocketAddr>, proxy: Option<&HttpProxy>) -> Vec<u8> {
        let name = host.map(|host| match host.port() {
            80 if host.is_ipv6() => format!("[{}]", host.ip()),
            80 => host.ip().to_string(),
            _ => host.to_string(),
        });
        // A proxy is given whole addresses (dirclient.c, `directory_send_command`).
        let before = match (&name, proxy) {
            (Some(name), Some(_)) => format!("http://{name}"),
            _ => String::new(),
        };
        let host = name.map_or_else(String::new, |name| format!("Host: {name}\r\n"));
        let host = host + &proxy.map(HttpProxy::header).unwrap_or_default();
        match self {
            Self::Get {
                path,
                if_modified_since,
                diff_from,
            } => {
                let since = if_modified_since
                    .and_then(http_date)
                    .map(|date| format!("If-Modified-Since: {date}\r\n"))
                    .unwrap_or_default();
                let diff = diff_from
                    .map(|digest| format!("X-Or-Diff-From-Consensus: {}\r\n", digest.hex()))
                    .unwrap_or_default();
                // The codings in C tor's order (`client_meth_pref`).
                format!(
                    "GET {before}{path} HTTP/1.0\r\n{host}{since}Accept-Encoding: x-tor-lzma, x-zstd, deflate, gzip, identity\r\n{diff}\r\n"
                )
                .into_bytes()
            }
            Self::Post { path, reason, body } => {
                let length = body.len();
                let mut bytes = format!(
                    "POST {before}{path} HTTP/1.0\r\nContent-Length: {length}\r\n{host}X-Desc-Gen-Reason: {reason}\r\n\r\n"
                )
                .into_bytes();
                bytes.extend_from_slice(body);
                bytes
            }
        }
    }
}

/// A directory's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Reason phrase, printable and short.
    pub reason: String,
    /// `Date`.
    pub date: Option<SystemTime>,
    /// `X-Your-Address-Is`.
    pub(crate) your_address: Option<IpAddr>,
    /// `X-Descriptor-Not-New: Yes`.
    pub not_new: bool,
    /// The body, decompressed.
    pub body: Vec<u8>,
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

/// Headers looked at before a head is refused.
const MAX_HEADERS: usize = 64;
/// Characters kept of a reason phrase.
const MAX_REASON: usize = 512;
/// Date format of HTTP (RFC 1123).
const DATE: &[BorrowedFormatItem<'static>] = format_description!(
    "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
);

/// A time as HTTP writes it.
pub fn http_date(time: SystemTime) -> Option<String> {
    time::OffsetDateTime::from(time).format(DATE).ok()
}

/// A time that HTTP wrote.
pub fn parse_date(text: &str) -> Option<SystemTime> {
    time::PrimitiveDateTime::parse(text.trim(), DATE)
        .ok()
        .map(|date| date.assume_utc().into())
}

#[cfg(test)]
thread_local! {
    /// Calls of [`parse_head`] by this thread.
    pub(crate) static PARSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// True if a head may end in `bytes`, of which those from `before` on are new: an empty line has
/// arrived. Callers parse a head only then. Otherwise a peer that sends single bytes would have it
/// parsed at each of them. A head that begins with empty lines is refused, although a parser would
/// skip them.
pub fn head_may_end(bytes: &[u8], before: usize) -> bool {
    let new = bytes.get(before.saturating_sub(2)..).unwrap_or_default();
    let empty_line = |end: &[u8]| new.windows(end.len()).any(|window| window == end);
    empty_line(b"\n\r\n") || empty_line(b"\n\n")
}

/// Reads status line and headers; `None` if `bytes` do not hold all of them yet.
pub fn parse_head(bytes: &[u8]) -> Result<Option<Head>, HttpError> {
    #[cfg(test)]
    PARSED.set(PARSED.get() + 1);
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return Err(HttpError::Malformed("an empty line before the status line"));
    }
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
                head.compression = match value {
                    "" => Compression::Identity,
                    name => Compression::from_name(name).ok_or(HttpError::Malformed(
                        "a Content-Encoding that was not asked for",
                    ))?,
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
