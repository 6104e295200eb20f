//! HTTP/1.0 to a directory authority, bounded in every direction.
//!
//! One request per connection, the answer ends at end of file, as C tor's directory protocol has
//! it (dir-spec 4, 6.1; `dirclient.c`). The head, the body and what it decompresses to have limits,
//! and so does silence.

mod compress;
mod error;
mod message;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
pub use weft_proxy::Route;

use crate::clock::Clock;

pub use compress::{Compression, best_effort_memory, compress, decode};
pub use error::HttpError;
pub use message::{Head, Request, Response, head_may_end, http_date, parse_date, parse_head};

/// Bytes of status line and headers, at most (C tor `MAX_HEADERS_SIZE`).
const MAX_HEAD: usize = 50_000;
/// Bytes of a body as sent, at most (C tor `MAX_DIR_DL_SIZE`).
const MAX_BODY: usize = 16_777_215;
/// Bytes of a body once decompressed, at most.
const MAX_DECOMPRESSED: usize = 32 << 20;
/// Time for a whole answer, at most.
const TOTAL: Duration = Duration::from_secs(1800);

/// Limits on the cost of a response.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of status line and headers.
    pub head: usize,
    /// Bytes of the body as sent.
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
            head: MAX_HEAD,
            body: MAX_BODY,
            decompressed: MAX_DECOMPRESSED,
            connect: Duration::from_secs(60).min(stall),
            stall,
            total: TOTAL,
        }
    }
}

/// Connects to `server`, asks, and reads the answer.
pub async fn fetch(
    server: SocketAddr,
    route: &Route,
    request: &Request,
    limits: Limits,
    clock: &dyn Clock,
) -> Result<Response, HttpError> {
    within(clock, limits.total, too_slow(limits), async {
        let late = HttpError::Timeout {
            waiting: "no connection",
            after: limits.connect,
        };
        let mut stream = within(clock, limits.connect, late, async {
            connect_for_documents(server, route)
                .await
                .map_err(|source| HttpError::Io {
                    action: "connect",
                    source,
                })
        })
        .await?;
        let bytes = request.encode(Some(server), route.http.as_deref());
        converse(&mut stream, &bytes, limits, clock).await
    })
    .await
}

/// Connects to the proxy that documents are asked of, if the route has one, and to `server` otherwise.
async fn connect_for_documents(server: SocketAddr, route: &Route) -> io::Result<TcpStream> {
    match &route.http {
        None => connect(server, route).await,
        Some(http) => {
            let direct = Route {
                bind: route.bind,
                ..Route::default()
            };
            connect(http.addr, &direct).await
        }
    }
}

/// Connects to `server`, through the route's proxy if it has one and never without it.
pub(crate) async fn connect(server: SocketAddr, route: &Route) -> io::Result<TcpStream> {
    let to = route.first(server);
    let socket = if to.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    if let Some(from) = route.source(server) {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    let mut stream = socket.connect(to).await?;
    if let Some(request) = route.request(server).map_err(io::Error::other)? {
        ask_proxy(&mut stream, request).await?;
    }
    Ok(stream)
}

/// Asks a proxy for a connection; the caller limits the time.
async fn ask_proxy(stream: &mut TcpStream, mut request: weft_proxy::Request) -> io::Result<()> {
    let mut answer = [0; 512];
    loop {
        stream.write_all(request.output()).await?;
        request.sent(request.output().len());
        if request.is_connected() {
            return Ok(());
        }
        let count = stream.read(&mut answer).await?;
        if count == 0 {
            let why = "the proxy closed the connection";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        let received = answer.get(..count).unwrap_or_default();
        request.receive(received).map_err(io::Error::other)?;
    }
}

/// The answer comes, and not in time.
fn too_slow(limits: Limits) -> HttpError {
    HttpError::Timeout {
        waiting: "the answer is still not complete",
        after: limits.total,
    }
}

/// Sends `request` to `host`, if that has an address, over `stream` and reads the answer.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    host: Option<SocketAddr>,
    request: &Request,
    limits: Limits,
    clock: &dyn Clock,
) -> Result<Response, HttpError> {
    let bytes = request.encode(host, None);
    let answer = converse(stream, &bytes, limits, clock);
    within(clock, limits.total, too_slow(limits), answer).await
}

/// Sends a request and reads the answer.
async fn converse(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin + Send),
    bytes: &[u8],
    limits: Limits,
    clock: &dyn Clock,
) -> Result<Response, HttpError> {
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
            if read == 0 || head_may_end(&received, before) {
                head = parse_head(&received)?;
            }
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
    response(received, head, limits)
}

/// Parses the bytes that a directory sent before it ended the stream.
///
/// # Errors
///
/// It is no answer, or is larger than one may be.
pub fn answer(received: Vec<u8>, limits: Limits) -> Result<Response, HttpError> {
    let head = parse_head(&received)?;
    let too_large = |what, limit| Err(HttpError::TooLarge { what, limit });
    let length = head.as_ref().map_or(received.len(), |head| head.length);
    if length > limits.head {
        return too_large("head", limits.head);
    }
    if received.len() - length.min(received.len()) > limits.body {
        return too_large("body", limits.body);
    }
    response(received, head, limits)
}

/// The answer of which all has arrived that will.
fn response(
    mut received: Vec<u8>,
    head: Option<Head>,
    limits: Limits,
) -> Result<Response, HttpError> {
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
mod tests;
