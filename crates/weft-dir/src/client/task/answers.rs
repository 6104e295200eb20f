//! Handling of directories' answers, and of requests that failed.

use std::time::SystemTime;

use super::super::asking::Answered;
use super::super::streams::DirOutcome;
use super::{ClientDirectory, Finished, Purpose, cached_consensus};
use crate::command::Severity;
use crate::fetch::News;
use crate::http::{HttpError, Response};
use crate::microdesc::{self, Batch};

impl ClientDirectory {
    /// A request has ended.
    pub(super) fn finished(&mut self, finished: Finished) {
        // It may have come at the same time, and was before.
        if self.reached.1.try_recv().is_ok() {
            self.reached();
        }
        let Finished {
            purpose,
            sent,
            asked,
        } = finished;
        let monotonic = self.clock.monotonic();
        for (candidate, error) in &asked.unreachable {
            let name = candidate.name();
            self.message(
                Severity::Info,
                format!("Cannot reach the directory {name}: {error}."),
            );
            self.sources
                .outcome(candidate.index, DirOutcome::Bad, monotonic);
        }
        let Some(answered) = asked.answered else {
            self.unanswered(purpose);
            return;
        };
        let Answered {
            candidate,
            name,
            token,
            result,
        } = answered;
        if let Ok(response) = &result {
            self.check_clock(response, sent, &name);
        }
        let outcome = match purpose {
            Purpose::Status => self.status_answered(result, &name),
            Purpose::Certs => self.certs_answered(result, &name),
            Purpose::Microdescs(batch) => self.microdescs_answered(&batch, result, &name),
        };
        self.sources.outcome(candidate.index, outcome, monotonic);
        self.streams.outcome(token, outcome);
    }

    /// No directory could be reached.
    fn unanswered(&mut self, purpose: Purpose) {
        let monotonic = self.clock.monotonic();
        match purpose {
            Purpose::Status => {
                let result = Err(HttpError::Unreachable);
                self.status_answered(result, "any directory");
            }
            Purpose::Certs => {
                self.certs_underway = false;
                self.fetcher.certs_failed(self.clock.wall());
            }
            Purpose::Microdescs(batch) => {
                self.lacking.answered(&batch, monotonic, &mut self.rng);
            }
        }
    }

    /// Certificates that were asked for at the start were answered. If they were not, they will
    /// be asked for when a consensus needs them.
    fn certs_answered(&mut self, result: Result<Response, HttpError>, name: &str) -> DirOutcome {
        self.certs_underway = false;
        let outcome = outcome(&result);
        let Ok(Response {
            status: 200, body, ..
        }) = result
        else {
            self.fetcher.certs_failed(self.clock.wall());
            return outcome;
        };
        let text = String::from_utf8_lossy(&body);
        let now = self.clock.wall();
        let news = self
            .fetcher
            .certs_came(&text, name, &self.fetching, now, &mut self.rng);
        let warned = has_warning(&news);
        self.news(news);
        if warned { DirOutcome::Bad } else { outcome }
    }

    /// A consensus or certificates were answered, or not.
    fn status_answered(&mut self, result: Result<Response, HttpError>, name: &str) -> DirOutcome {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let outcome = outcome(&result);
        if outcome == DirOutcome::Good && !self.fetcher.is_waiting_for_certs() {
            self.progress(30, "loading_status", "Loading networkstatus consensus");
        }
        let directory = &self.options.cache_directory;
        let news = self.fetcher.answered(
            result,
            || cached_consensus(directory.as_deref()),
            name,
            &self.fetching,
            now,
            monotonic,
            &mut self.rng,
        );
        let warned = has_warning(&news);
        self.news(news);
        if warned { DirOutcome::Bad } else { outcome }
    }

    /// Microdescriptors were answered, or not.
    fn microdescs_answered(
        &mut self,
        batch: &Batch,
        result: Result<Response, HttpError>,
        name: &str,
    ) -> DirOutcome {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let mut outcome = outcome(&result);
        let body = match result {
            Ok(Response {
                status: 200, body, ..
            }) => Some(body),
            Ok(Response { status, reason, .. }) => {
                self.message(
                    Severity::Info,
                    format!("{name} answered {status} ({reason}) when asked for microdescriptors; asking again."),
                );
                None
            }
            Err(error) => {
                self.message(
                    Severity::Info,
                    format!("Cannot fetch microdescriptors from {name}: {error}."),
                );
                None
            }
        };
        if let Some(body) = body {
            let (arrived, unasked) = self.take_in(&body, now);
            if arrived == 0 {
                outcome = DirOutcome::Bad;
                self.warn(format!(
                    "{name} sent none of the {} microdescriptors that it was asked for, but {unasked} others; asking another directory.",
                    batch.len()
                ));
            } else if unasked > 0 {
                self.message(
                    Severity::Info,
                    format!("{name} sent {unasked} microdescriptors that it was not asked for."),
                );
            }
        }
        self.lacking.answered(batch, monotonic, &mut self.rng);
        if let Some(directory) = &self.options.cache_directory
            && let Err(error) = self.store.save(directory)
        {
            self.warn(format!("{error}; going on without."));
        }
        self.advance();
        outcome
    }

    /// Keeps the microdescriptors in `body` that are lacking; how many, and how many are not.
    fn take_in(&mut self, body: &[u8], now: SystemTime) -> (usize, usize) {
        let (mut arrived, mut unasked) = (0, 0);
        // Bytes that are no text have a digest that was not requested.
        let body = String::from_utf8_lossy(body);
        for piece in microdesc::split(&body) {
            let digest = piece.digest();
            if !self.lacking.arrived(&digest) {
                unasked += 1;
                continue;
            }
            arrived += 1;
            let Some(building) = &mut self.building else {
                continue;
            };
            match building.add(&digest, piece.text) {
                Ok(()) => self.store.add(digest, piece.text, now),
                // The authorities have agreed on it, so no directory has a better one.
                Err(problem) => self.warn(format!(
                    "The consensus lists a microdescriptor that cannot be read ({problem}); its relay will not be used."
                )),
            }
        }
        (arrived, unasked)
    }
}

/// True if the answer led to a warning.
fn has_warning(news: &[News]) -> bool {
    news.iter()
        .any(|news| matches!(news, News::Message(Severity::Warn, _)))
}

/// Classifies an answer.
fn outcome(result: &Result<Response, HttpError>) -> DirOutcome {
    match result {
        Ok(Response { status: 200, .. }) => DirOutcome::Good,
        Ok(Response {
            status: 304 | 404, ..
        }) => DirOutcome::NotThere,
        Ok(_) | Err(_) => DirOutcome::Bad,
    }
}
