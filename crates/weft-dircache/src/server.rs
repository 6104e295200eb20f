//! The directory that a relay serves (DirCache, DirPort): consensuses and diffs between them, certificates,
//! microdescriptors, its own descriptor, over HTTP/1.0 (dir-spec 4, 6; C tor dircache.c).
//!
//! Clients come by BEGIN_DIR streams of circuits, each of which is one end of a socket pair here,
//! or by the DirPort. Everything is bounded: streams at once, shared by the hops that they come by and their circuits;
//! bytes and time of a request; time without progress of an answer; the bytes that all of them hold ([`Budget`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use weft_counts::extrainfo::Way;
use weft_dir::clock::Clock;
use weft_dir::documents::CachedDocuments;
use weft_dir::http::head_may_end;

use crate::answer::{Answer, BUSY};
pub use crate::asker::{Asker, Bandwidth};
use crate::authority::{self, Authority};
use crate::budget::{Budget, Charge};
use crate::hs_dir::HsDir;
use crate::places::{Place, Places};
use crate::request::{MAX_HEAD, Parsed, parse};
use crate::requests::Requests;
use crate::resource::Resource;
use crate::{onion, plain};

/// Time for a request. It follows its BEGIN_DIR at once, or after one answer of the circuit's: on slow
/// circuits that is some seconds.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time without progress of an answer.
const STALL: Duration = Duration::from_secs(60);
/// Time for all of a stream.
const TOTAL: Duration = Duration::from_secs(1800);
/// After an answer, time for the other side to close.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes that are read after a request and not looked at: closing a socket that holds unread
/// bytes would reset the connection, and the answer could be lost.
const MAX_REST: usize = 64 << 10;
/// Bytes of an answer made and written at once, between two looks at the clock.
const CHUNK: usize = 16 << 10;

/// Interval at which expired descriptors of onion services are dropped.
const CLEANING: Duration = Duration::from_secs(60);

/// A directory that answers.
#[derive(Clone)]
pub struct CacheServer {
    /// The documents to serve.
    documents: Arc<CachedDocuments>,
    /// The authority that answers instead, if this relay is one.
    authority: Option<Arc<dyn Authority>>,
    /// Descriptors of onion services.
    hs_dir: Arc<HsDir>,
    /// Time.
    clock: Arc<dyn Clock>,
    /// Streams that are open.
    places: Arc<Places>,
    /// Memory that streams and connections hold.
    budget: Arc<Budget>,
    /// Counters of requests.
    requests: Arc<Requests>,
}

impl CacheServer {
    /// A directory that serves `documents` and `hs_dir` by `clock`.
    pub fn new(documents: Arc<CachedDocuments>, hs_dir: Arc<HsDir>, clock: Arc<dyn Clock>) -> Self {
        Self {
            documents,
            authority: None,
            requests: Arc::new(Requests::new(clock.clone())),
            hs_dir,
            clock,
            places: Arc::default(),
            budget: Arc::default(),
        }
    }

    /// Serves the documents of this authority, if there is one, and takes what is posted to it.
    #[must_use]
    pub fn with_authority(mut self, authority: Option<Arc<dyn Authority>>) -> Self {
        self.authority = authority;
        self
    }

    /// Counters of requests.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// The places of its streams.
    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Memory that its streams hold.
    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Serves a stream of a circuit; see [`serve`](Self::serve).
    pub async fn serve_tunneled(&self, stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker) {
        let stream = self.requests.watch(stream, &asker, Way::Tunneled);
        self.serve(stream, asker).await;
    }

    /// Serves a connection to the DirPort; see [`serve`](Self::serve).
    pub async fn serve_direct(&self, stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker) {
        let stream = self.requests.watch(stream, &asker, Way::Direct);
        self.serve(stream, asker).await;
    }

    /// Drops descriptors of onion services whose lifetimes have ended, as long as it is polled.
    pub async fn clean(&self) {
        loop {
            self.clock.sleep(CLEANING).await;
            self.hs_dir.clean(self.clock.monotonic());
        }
    }

    /// Answers one request of `asker`; returns when the stream is done with, or has to give its place or what it
    /// holds to one of another hop.
    pub async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker) {
        let Some((place, lost)) = self.places.take(asker.hop, asker.circuit) else {
            // A few hundred bytes always fit into the socket's buffer: nothing is waited for.
            let busy = Answer::short(503, BUSY, self.clock.wall());
            let _ =
                tokio::time::timeout(Duration::ZERO, stream.write_all(busy.head.as_bytes())).await;
            return;
        };
        let (charge, ended) = self.budget.charge(asker.hop, asker.circuit);
        tokio::select! {
            // A peer that goes away or takes too long has lost nothing but its own answer.
            _ = self.exchange(&mut stream, &asker, &place, &charge) => {}
            () = self.clock.sleep(TOTAL) => {}
            _ = lost => {}
            _ = ended => {}
        }
        drop((place, charge));
    }

    /// A request, an answer, the end.
    async fn exchange(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        asker: &Asker,
        place: &Place,
        charge: &Charge,
    ) -> io::Result<()> {
        let asked = tokio::select! {
            biased;
            asked = read_head(stream, charge) => asked?,
            () = self.clock.sleep(REQUEST_TIME) => return Ok(()),
        };
        let Some((parsed, bytes)) = asked else {
            return Ok(());
        };
        let (now, peer, by_relay) = (self.clock.wall(), asker.peer, asker.by_relay);
        let bandwidth = asker.bandwidth.as_deref();
        let mut fetching = None;
        let mut answer = match parsed {
            Parsed::Get(request) => {
                let now = (now, self.clock.monotonic());
                match onion::fetch(&self.hs_dir, &request.path, by_relay, peer, now) {
                    Some((answer, fetch)) => {
                        fetching = fetch;
                        answer
                    }
                    None if matches!(
                        Resource::get(&request.path),
                        Some((Resource::FrontPage, _))
                    ) =>
                    {
                        plain::page(self.documents.front_page(), now.0, peer)
                    }
                    None => {
                        let answer = match &self.authority {
                            None => Answer::new(&self.documents, &request, now.0, peer),
                            Some(authority) => {
                                let found = authority.find(&request, now.0);
                                Answer::of(found, request.accepts, now.0, peer)
                            }
                        };
                        let length = answer.body.length();
                        match bandwidth.is_some_and(|bandwidth| bandwidth.room() < length) {
                            true => Answer::short(503, BUSY, now.0),
                            false => answer,
                        }
                    }
                }
            }
            Parsed::Post(upload) => {
                let (dir, clock) = (&self.hs_dir, &self.clock);
                let answer = match (&self.authority, Resource::post(&upload.path)) {
                    (Some(authority), Some((Resource::RelayUpload, _))) => {
                        authority::post(&**authority, &upload, &bytes, charge, stream, clock)
                            .await?
                    }
                    _ => {
                        onion::publish(dir, &upload, &bytes, charge, stream, by_relay, clock)
                            .await?
                    }
                };
                match answer {
                    Some(answer) => answer,
                    None => return Ok(()),
                }
            }
            Parsed::Bad(status, reason) => Answer::short(status, reason, now),
            // `read_head` goes on until it is whole.
            Parsed::Partial => return Ok(()),
        };
        place.prove();
        drop(bytes);
        if !charge.set(answer.memory()) {
            answer = Answer::short(503, BUSY, now);
            charge.set(answer.memory());
        }
        // The first write carries head and body, so that a small answer is one cell or two.
        let mut chunk = answer.head.into_bytes();
        chunk.extend(answer.body.next(CHUNK).unwrap_or_default());
        loop {
            tokio::select! {
                biased;
                written = self.write(stream, &chunk, bandwidth) => written?,
                () = self.clock.sleep(STALL) => return Ok(()),
            }
            chunk = match answer.body.next(CHUNK) {
                Some(chunk) => chunk,
                None => break,
            };
        }
        drop(chunk);
        charge.set(answer.retained);
        stream.shutdown().await?;
        let ended = tokio::select! {
            biased;
            rest = drain(stream) => rest,
            () = self.clock.sleep(FAREWELL) => Ok(()),
        };
        drop(fetching);
        ended
    }

    /// Writes all of `bytes`, as fast as `bandwidth` allows.
    async fn write(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        mut bytes: &[u8],
        bandwidth: Option<&dyn Bandwidth>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let granted = match bandwidth.map(|bandwidth| bandwidth.take(bytes.len())) {
                None => bytes.len(),
                Some(Ok(granted)) => granted,
                Some(Err(wait)) => {
                    self.clock.sleep(wait).await;
                    continue;
                }
            };
            let (now, later) = bytes.split_at_checked(granted).unwrap_or((bytes, &[]));
            stream.write_all(now).await?;
            bytes = later;
        }
        Ok(())
    }
}

/// Reads a request's head ([`parse`]) and returns it with all bytes that came, of which an upload's body begins behind
/// the head. `None` if the other side closes the stream before. Memory is charged to `charge`; a head that finds no room
/// is answered with 503.
///
/// # Errors
/// The stream's.
pub async fn read_head(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    charge: &Charge,
) -> io::Result<Option<(Parsed, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        let room = u64::try_from(MAX_HEAD.saturating_sub(bytes.len())).unwrap_or(0);
        let before = bytes.len();
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 && room > 0 {
            return Ok(None);
        }
        if !charge.set(bytes.capacity()) {
            return Ok(Some((Parsed::Bad(503, BUSY), Vec::new())));
        }
        if bytes.len() >= MAX_HEAD || head_may_end(&bytes, before) {
            match parse(&bytes) {
                Parsed::Partial => {}
                parsed => return Ok(Some((parsed, bytes))),
            }
        }
    }
}

/// Reads what still comes, to some bound.
async fn drain(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut rest = [0; 1024];
    let mut read = 0;
    while read < MAX_REST {
        match stream.read(&mut rest).await? {
            0 => break,
            more => read += more,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
