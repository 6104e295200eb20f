//! One request: a stream to the first directory that can be reached, the request, its answer.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::sources::Candidate;
use super::streams::{DirConnection, DirStreams};
use crate::clock::Clock;
use crate::http::{self, HttpError, Limits, Request, Response};

/// A directory that is not reached in this time is not given up, but the next one is tried, too
/// (C tor makes several connections at once while it bootstraps).
const PATIENCE: Duration = Duration::from_secs(5);

/// How a request ended.
#[derive(Debug)]
pub(super) struct Asked {
    /// Those that could not be reached, and why.
    pub(super) unreachable: Vec<(Candidate, io::Error)>,
    /// The directory that was asked, if one could be reached.
    pub(super) answered: Option<Answered>,
}

/// A directory that was asked, and its answer.
#[derive(Debug)]
pub(super) struct Answered {
    /// The directory.
    pub(super) candidate: Candidate,
    /// Its name for log lines.
    pub(super) name: String,
    /// What its connection is known by.
    pub(super) token: u64,
    /// What came.
    pub(super) result: Result<Response, HttpError>,
}

/// Asks the first of `candidates` that can be reached; `reached` is called when one is.
pub(super) async fn ask(
    streams: Arc<dyn DirStreams>,
    candidates: Vec<Candidate>,
    request: Request,
    limits: Limits,
    clock: Arc<dyn Clock>,
    reached: impl FnOnce(),
) -> Asked {
    let mut unreachable = Vec::new();
    let opened = open(streams, candidates, &limits, &*clock, &mut unreachable).await;
    let answered = match opened {
        None => None,
        Some((candidate, connection)) => {
            let DirConnection {
                mut io,
                name,
                token,
            } = connection;
            reached();
            let host = candidate.host();
            let result = http::exchange(&mut io, host, &request, limits, &*clock).await;
            Some(Answered {
                candidate,
                name,
                token,
                result,
            })
        }
    };
    Asked {
        unreachable,
        answered,
    }
}

/// A stream to the first of `candidates` that can be reached; the others are tried when it fails
/// or takes long.
async fn open(
    streams: Arc<dyn DirStreams>,
    candidates: Vec<Candidate>,
    limits: &Limits,
    clock: &dyn Clock,
    unreachable: &mut Vec<(Candidate, io::Error)>,
) -> Option<(Candidate, DirConnection)> {
    let mut waiting: VecDeque<Candidate> = candidates.into();
    let mut opening = JoinSet::new();
    let mut underway: Vec<Candidate> = Vec::new();
    let late = clock.sleep(limits.connect);
    tokio::pin!(late);
    loop {
        if let Some(candidate) = waiting.pop_front() {
            let (streams, source) = (streams.clone(), candidate.source.clone());
            underway.push(candidate.clone());
            opening.spawn(async move { (candidate, streams.open(source).await) });
        }
        tokio::select! {
            ended = opening.join_next() => match ended {
                None => return None,
                Some(Ok((candidate, Ok(connection)))) => return Some((candidate, connection)),
                Some(Ok((candidate, Err(error)))) => {
                    underway.retain(|other| *other != candidate);
                    unreachable.push((candidate, error));
                }
                // A panic in there is a bug that tokio has reported; it is not reached.
                Some(Err(_)) => {}
            },
            () = clock.sleep(PATIENCE), if !waiting.is_empty() => {}
            () = &mut late => {
                let error = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
                unreachable.extend(underway.into_iter().map(|candidate| (candidate, error())));
                return None;
            }
        }
    }
}
