//! One request: a stream to the first directory that can be reached, the request, its answer.

use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::sources::Candidate;
use super::streams::{DirConnection, DirStreams};
use crate::clock::Clock;
use crate::http::{self, HttpError, Limits, Request, Response};

/// The result of a request.
#[derive(Debug)]
pub(super) struct Asked {
    /// Directories that could not be reached, and why.
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
    /// Token of its connection.
    pub(super) token: u64,
    /// Its response.
    pub(super) result: Result<Response, HttpError>,
}

/// Asks the first of `candidates` that can be reached, of which so many are tried at once at most; `reached` is called
/// when one is.
#[allow(clippy::too_many_arguments)]
pub(super) async fn ask(
    streams: Arc<dyn DirStreams>,
    candidates: Vec<Candidate>,
    max_tries: usize,
    request: Request,
    limits: Limits,
    clock: Arc<dyn Clock>,
    reached: impl FnOnce(),
) -> Asked {
    let mut unreachable = Vec::new();
    let opened = open(
        streams,
        candidates,
        max_tries,
        &limits,
        &*clock,
        &mut unreachable,
    )
    .await;
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

/// A stream to the first of `candidates` that can be reached; the others are tried in their time, or when one fails.
async fn open(
    streams: Arc<dyn DirStreams>,
    candidates: Vec<Candidate>,
    max_tries: usize,
    limits: &Limits,
    clock: &dyn Clock,
    unreachable: &mut Vec<(Candidate, io::Error)>,
) -> Option<(Candidate, DirConnection)> {
    let began = clock.monotonic();
    let mut waiting = candidates;
    let mut opening = JoinSet::new();
    let mut underway: Vec<Candidate> = Vec::new();
    // One has failed: the next need not wait for its time.
    let mut failed = false;
    let late = clock.sleep(limits.connect);
    tokio::pin!(late);
    loop {
        let elapsed = clock.monotonic().saturating_sub(began);
        let may_begin = |candidate: &Candidate| {
            candidate.after <= elapsed || (failed && !candidate.not_earlier)
        };
        if underway.len() < max_tries.max(1)
            && let Some(next) = waiting.iter().position(may_begin)
        {
            let candidate = waiting.remove(next);
            failed = false;
            let (streams, source) = (streams.clone(), candidate.source.clone());
            underway.push(candidate.clone());
            opening.spawn(async move { (candidate, streams.open(source).await) });
            continue;
        }
        if opening.is_empty() && waiting.is_empty() {
            return None;
        }
        let next = waiting.iter().map(|candidate| candidate.after).min();
        let next = next.filter(|_| underway.len() < max_tries.max(1));
        let until_next = next.map(|after| after.saturating_sub(elapsed));
        tokio::select! {
            Some(ended) = opening.join_next(), if !opening.is_empty() => match ended {
                Ok((candidate, Ok(connection))) => return Some((candidate, connection)),
                Ok((candidate, Err(error))) => {
                    underway.retain(|other| *other != candidate);
                    unreachable.push((candidate, error));
                    failed = true;
                }
                // A panic in there is a bug that tokio has reported; it is not reached.
                Err(_) => {}
            },
            () = clock.sleep(until_next.unwrap_or_default()), if until_next.is_some() => {}
            () = &mut late => {
                let error = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
                unreachable.extend(underway.into_iter().map(|candidate| (candidate, error())));
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, SystemTime};

    use super::super::options::DirServer;
    use super::super::streams::{DirSource, OpenFuture};
    use super::*;
    use crate::clock::ManualClock;

    /// Directories of which none is ever reached, or none can be.
    struct Nobody {
        hang: bool,
        tried: Mutex<Vec<String>>,
    }

    impl DirStreams for Nobody {
        fn open(&self, source: DirSource) -> OpenFuture<'_> {
            if let DirSource::Server(server) = source {
                self.tried.lock().unwrap().push(server.nickname);
            }
            Box::pin(async {
                if self.hang {
                    std::future::pending::<()>().await;
                }
                Err(io::Error::other("nobody there"))
            })
        }
    }

    fn candidate((name, after, not_earlier): (&str, u64, bool)) -> Candidate {
        Candidate {
            index: None,
            source: DirSource::Server(DirServer {
                nickname: name.into(),
                rsa: [1; 20].into(),
                ed25519: None,
                or_addrs: Vec::new(),
                dir_addr: None,
                weight: 1.0,
                authority: not_earlier,
            }),
            after: Duration::from_secs(after),
            not_earlier,
        }
    }

    /// The directories tried before each of these seconds was over.
    async fn tried(hang: bool, max_tries: usize, seconds: &[u64]) -> Vec<String> {
        let candidates = [
            ("a", 0, false),
            ("b", 5, false),
            ("x", 6, true),
            ("c", 10, false),
        ];
        let candidates = candidates.map(candidate).to_vec();
        let tried = Mutex::default();
        let streams = Arc::new(Nobody { hang, tried });
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        let limits = Limits::with_stall(Duration::from_secs(60));
        let request = Request::get("/x".into());
        let asking = tokio::spawn(ask(
            streams.clone(),
            candidates,
            max_tries,
            request,
            limits,
            clock.clone(),
            || {},
        ));
        let mut all = Vec::new();
        let mut at = 0;
        for second in seconds {
            clock.advance(Duration::from_secs(second - at));
            at = *second;
            // More than enough for whatever this has woken.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            all.push(streams.tried.lock().unwrap().concat());
        }
        asking.abort();
        all
    }

    #[tokio::test]
    async fn directories_are_tried_in_their_time_and_no_more_at_once_than_allowed() {
        let seconds = [0, 4, 5, 6, 10];
        assert_eq!(
            tried(true, 4, &seconds).await,
            ["a", "a", "ab", "abx", "abxc"]
        );
        assert_eq!(
            tried(true, 3, &seconds).await,
            ["a", "a", "ab", "abx", "abx"]
        );
        assert_eq!(tried(true, 1, &seconds).await, ["a", "a", "a", "a", "a"]);
    }

    #[tokio::test]
    async fn one_that_fails_makes_room_for_the_next_but_not_for_an_authority_before_its_time() {
        assert_eq!(tried(false, 3, &[0, 5, 6]).await, ["abc", "abc", "abcx"]);
        assert_eq!(tried(false, 1, &[0, 5, 6]).await, ["abc", "abc", "abcx"]);
    }
}
