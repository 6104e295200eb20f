//! Requests underway, and the handling of their answers.

use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;

use super::DirectoryTask;
use super::request::{Finished, Purpose};
use crate::cache;
use crate::clock::signed_seconds;
use crate::command::{Event, Severity, UploadOutcome};
use crate::held;
use crate::http::{self, HttpError, Limits, Request, Response};

/// Difference of clocks that is worth a warning (C tor `ALLOW_DIRECTORY_TIME_SKEW`).
const TOLERATED_SKEW: Duration = Duration::from_secs(30 * 60);
/// A publication time this far ahead is worth a warning.
const TOLERATED_WAIT: Duration = Duration::from_secs(120);

impl DirectoryTask {
    /// Starts a request to the authority with this index.
    pub(super) fn request(&mut self, index: usize, purpose: Purpose, request: Request) {
        let Some(authority) = self.options.authorities.get(index).cloned() else {
            return;
        };
        let purpose = match self.options.bridge {
            true => match self.request_by_circuit(&authority, purpose, &request) {
                Ok(()) => return,
                Err(purpose) => purpose,
            },
            false => purpose,
        };
        let (clock, route) = (self.clock.clone(), self.options.route.clone());
        let limits = Limits::with_stall(self.options.max_stall);
        let mut stop = self.stop.subscribe();
        let socket = self.sockets.count(Some(authority.dir_addr.ip()));
        self.requests.spawn(async move {
            let _open = socket;
            let sent = clock.wall();
            let result = tokio::select! {
                result = http::fetch(authority.dir_addr, &route, &request, limits, &*clock) => result,
                Ok(_) = stop.wait_for(|stop| *stop) => Err(HttpError::Unreachable),
            };
            Finished {
                purpose,
                authority: authority.identity,
                nickname: authority.nickname,
                circuit: None,
                sent,
                result,
            }
        });
    }

    /// A request has ended.
    pub(super) fn finished(&mut self, finished: Finished) {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let Finished {
            purpose,
            authority,
            nickname,
            circuit,
            sent,
            result,
        } = finished;
        // Only authorities are believed about the time and our address.
        if let (Ok(response), None) = (&result, &circuit) {
            self.note_headers(response, &nickname, sent, monotonic);
        }
        let by_circuit = circuit.is_some();
        // A document as new as ours is a useful answer; so is any answer of an authority.
        let mut useful = match &result {
            Ok(Response { status: 304, .. }) => match purpose {
                Purpose::FetchNs => self.ns.is_live(now),
                _ => self.fetcher.is_live(now),
            },
            Ok(_) => purpose.is_of_authority(),
            Err(_) => false,
        };
        match purpose {
            Purpose::Fetch => {
                let directory = &self.options.cache_directory;
                let cached = || cache::read(directory, cache::CONSENSUS).ok()?;
                let news = self.fetcher.answered(
                    result,
                    cached,
                    &nickname,
                    &self.options,
                    now,
                    monotonic,
                    &mut self.rng,
                );
                for news in news {
                    useful |= news.is_progress();
                    self.news(news, now, monotonic);
                }
            }
            Purpose::FetchNs => {
                useful |= self.ns_answered(result, &nickname, now, monotonic);
            }
            Purpose::Upload(generation) => match outcome(result) {
                // The authority's descriptor decides if that matters.
                UploadOutcome::NotNew if self.ask_held(generation, &authority) => {}
                outcome => self.uploaded(generation, authority, nickname, outcome),
            },
            Purpose::Microdescs(batch) => {
                useful |= self.microdescs_answered(&batch, result, &nickname, by_circuit);
            }
            Purpose::Descriptors(kind, batch) => {
                useful |= self.descriptors_answered(kind, &batch, result, &nickname, by_circuit);
            }
            Purpose::Held(generation) => {
                let outcome = self.held(generation, result, &nickname, now, monotonic);
                self.uploaded(generation, authority, nickname, outcome);
            }
        }
        if let Some(asked) = circuit {
            self.paths.answered(asked, useful);
        }
    }

    /// An upload of the descriptor of `generation` has come to an end.
    pub(super) fn uploaded(
        &mut self,
        generation: u64,
        authority: RsaIdentity,
        nickname: String,
        outcome: UploadOutcome,
    ) {
        let monotonic = self.clock.monotonic();
        match &outcome {
            UploadOutcome::Accepted if generation == self.generation => self.tap.accepted(),
            UploadOutcome::Refused(reason)
                if generation == self.generation && self.tap.refused(reason) =>
            {
                self.publisher
                    .mark_dirty("an authority wants another form of TAP key");
            }
            _ => {}
        }
        let round =
            self.publisher
                .ended(generation, &authority, &outcome, monotonic, &mut self.rng);
        (self.events)(Event::Uploaded {
            authority: nickname,
            outcome,
        });
        if let (Some(round), Some((signed, reason))) = (round, &self.signed) {
            (self.events)(Event::Published {
                accepted: round.accepted,
                of: round.of,
                reason,
                observed: signed.observed,
            });
        }
        self.maybe_done(self.clock.wall());
    }

    /// Asks an authority that declined our descriptor for the one that it has; false: there is none to
    /// ask, or nothing to compare with any more.
    fn ask_held(&mut self, generation: u64, authority: &RsaIdentity) -> bool {
        let index = self
            .options
            .authorities
            .iter()
            .position(|configured| configured.identity == *authority);
        let (Some(index), Some(descriptor)) = (index, &self.descriptor) else {
            return false;
        };
        if generation != self.generation {
            return false;
        }
        let request = Request::get(held::path(&descriptor.rsa_id()));
        self.request(index, Purpose::Held(generation), request);
        true
    }

    /// The result of a declined upload, by the descriptor that the authority holds.
    fn held(
        &mut self,
        generation: u64,
        result: Result<Response, HttpError>,
        source: &str,
        now: SystemTime,
        monotonic: Duration,
    ) -> UploadOutcome {
        let body = match result {
            Ok(Response {
                status: 200, body, ..
            }) => body,
            Ok(Response { status, .. }) if status < 500 => return UploadOutcome::NotNew,
            Ok(Response { status, reason, .. }) => {
                return UploadOutcome::Failed(format!("status {status} ({reason})"));
            }
            Err(error) => return UploadOutcome::Failed(error.to_string()),
        };
        let (Some(descriptor), Some((signed, _))) = (&self.descriptor, &self.signed) else {
            return UploadOutcome::NotNew;
        };
        let Some(published) = held::overtakes(&body, &descriptor.rsa_id(), signed)
            .filter(|_| generation == self.generation)
        else {
            return UploadOutcome::NotNew;
        };
        let wait = self.publisher.overtaken(published, now, monotonic);
        if wait > TOLERATED_WAIT {
            let minutes = wait.as_secs() / 60;
            (self.events)(Event::Message(
                Severity::Warn,
                format!(
                    "{source} has a descriptor of this relay that was published {minutes} minutes \
                     from now, and takes no other before that time. Was the clock fast when the \
                     relay ran before? Check that it is right now."
                ),
            ));
        }
        UploadOutcome::Overtaken(published)
    }

    /// Takes the directory's clock and our address from the headers of an answer.
    fn note_headers(
        &mut self,
        response: &Response,
        source: &str,
        sent: SystemTime,
        monotonic: Duration,
    ) {
        if let Some(address) = response.your_address {
            (self.events)(Event::AddressSuggested {
                address,
                source: source.to_string(),
            });
        }
        if let Some(date) = response.date {
            // The header was written just after we asked; downloads may take long.
            let seconds = signed_seconds(sent, date);
            if seconds.unsigned_abs() > TOLERATED_SKEW.as_secs() {
                self.skew(seconds, source.to_string(), monotonic);
            }
        }
    }
}

/// The result of an upload, by its answer.
fn outcome(result: Result<Response, HttpError>) -> UploadOutcome {
    match result {
        Ok(Response {
            status: 200,
            not_new,
            ..
        }) => match not_new {
            true => UploadOutcome::NotNew,
            false => UploadOutcome::Accepted,
        },
        Ok(Response {
            status: 400,
            reason,
            ..
        }) => UploadOutcome::Refused(reason),
        Ok(Response { status, reason, .. }) => {
            UploadOutcome::Failed(format!("status {status} ({reason})"))
        }
        Err(error) => UploadOutcome::Failed(error.to_string()),
    }
}
