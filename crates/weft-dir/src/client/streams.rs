//! Streams to directories, as a client's directory wants them opened.

use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use weft_proxy::Route;

use super::options::DirServer;

/// A directory to ask.
#[derive(Clone, Debug, PartialEq)]
pub enum DirSource {
    /// This authority or fallback.
    Server(DirServer),
    /// A guard that is a directory cache, chosen by the implementation that opens the stream.
    Guard,
}

/// The result of a request, by which its source is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirOutcome {
    /// It answered as it should.
    Good,
    /// It answered, but does not have what we want (404, 304 or something not newer).
    NotThere,
    /// Its answer was no answer: broken off, malformed, forged, too large, none in time, busy.
    Bad,
}

/// Both directions of a stream.
pub trait DirIo: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> DirIo for T {}

/// A stream to a directory, ready for a request.
pub struct DirConnection {
    /// The stream: one request, one answer. A [`PairSocket`](crate::PairSocket) in a node.
    pub io: Box<dyn DirIo>,
    /// The directory that it leads to, for log lines: a nickname or a fingerprint.
    pub name: String,
    /// Names it in [`DirStreams::outcome`]; means something to its opener only.
    pub token: u64,
}

impl std::fmt::Debug for DirConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirConnection")
            .field("name", &self.name)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// Future returned by [`DirStreams::open`].
pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = io::Result<DirConnection>> + Send + 'a>>;

/// Opens streams to directories.
pub trait DirStreams: Send + Sync + 'static {
    /// Opens a stream to `source`. Dropping the future gives up; the caller limits the time.
    fn open(&self, source: DirSource) -> OpenFuture<'_>;

    /// Reports the result of asking over the connection with this token. Called once for each
    /// connection.
    fn outcome(&self, _token: u64, _outcome: DirOutcome) {}
}

/// Plain TCP to the DirPorts of [`DirSource::Server`]s: what relays use toward authorities, and
/// tests. Has no guards.
#[derive(Clone, Debug, Default)]
pub struct PlainStreams {
    /// Local address and proxies of the connections to directories.
    pub route: Route,
}

impl DirStreams for PlainStreams {
    fn open(&self, source: DirSource) -> OpenFuture<'_> {
        let route = self.route.clone();
        Box::pin(async move {
            let DirSource::Server(server) = source else {
                return Err(io::Error::other("there are no guards without circuits"));
            };
            let Some(address) = server.dir_addr else {
                return Err(io::Error::other("it has no DirPort"));
            };
            Ok(DirConnection {
                io: Box::new(crate::http::connect(address, &route).await?),
                name: server.nickname,
                token: 0,
            })
        })
    }
}
