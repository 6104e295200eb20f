//! Handling of directories' answers.

use std::time::{Duration, SystemTime};

use rand::Rng;
use tor_netdoc::doc::netstatus::ConsensusFlavor;

use super::{Audience, Fetcher, News, Underway, Waiting};
use crate::answers::Answer;
use crate::authority::signers;
use crate::command::{DirectoryOptions, Severity};
use crate::consdiff::{self, ConsensusDigest};
use crate::consensus::{ConsensusError, REASONABLY_LIVE};
use crate::http::{HttpError, Response};

/// Fetches of certificates after which a consensus that waits for them is let go: what claims to
/// be signed with keys without certificates is forged, or its signer is.
pub(super) const MAX_CERT_FETCHES: u32 = 3;
/// Time without a reachable authority before a warning, and the interval between such warnings.
const PATIENCE: Duration = Duration::from_secs(30);
const WARNING_INTERVAL: Duration = Duration::from_secs(3600);

impl Fetcher {
    /// The line about a directory that cannot be reached. A relay that has no consensus and reaches none is of no use; a
    /// client warns of the connections that it lacks.
    fn failure(
        &mut self,
        what: &str,
        source: &str,
        error: &HttpError,
        now: SystemTime,
        monotonic: Duration,
    ) -> News {
        let text = format!("Cannot fetch the {what} from {source}: {error}.");
        let silent = monotonic.saturating_sub(*self.failing.get_or_insert(monotonic));
        let is_recent = |warned: Duration| monotonic.saturating_sub(warned) < WARNING_INTERVAL;
        let is_quiet = self.audience == Audience::Client
            || self.flavour == ConsensusFlavor::Plain
            || self.is_live(now)
            || silent < PATIENCE
            || self.warned.is_some_and(is_recent);
        if is_quiet {
            return News::Message(Severity::Info, text);
        }
        self.warned = Some(monotonic);
        let text = format!(
            "{text} No authority has been reached for {} seconds, and this relay has no consensus that is in force.",
            silent.as_secs()
        );
        News::Message(Severity::Warn, text)
    }

    /// The request underway ended with this; `source` names the authority. `cached` reads the consensus in the cache,
    /// should the answer be a diff.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn answered(
        &mut self,
        result: Result<Response, HttpError>,
        cached: impl FnOnce() -> Option<String>,
        source: &str,
        options: &DirectoryOptions,
        now: SystemTime,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Vec<News> {
        let Some(underway) = self.underway.take() else {
            return Vec::new();
        };
        let what = match underway {
            Underway::Consensus => Answer::Consensus,
            Underway::Certs => Answer::Certificates,
        }
        .name();
        let mut news = Vec::new();
        let progress = match result {
            Err(error) => {
                news.push(self.failure(what, source, &error, now, monotonic));
                false
            }
            Ok(Response {
                status: 200, body, ..
            }) => match String::from_utf8(body) {
                Ok(text) if underway == Underway::Consensus => {
                    match self.whole_consensus(text, cached, source, &mut news) {
                        Ok(text) => {
                            self.consensus_arrived(text, true, source, options, now, rng, &mut news)
                        }
                        Err(why) => {
                            self.whole = true;
                            news.push(News::Message(
                                Severity::Warn,
                                format!(
                                    "Could not apply consensus diff received from server {source}: {why}. Asking for the whole consensus."
                                ),
                            ));
                            false
                        }
                    }
                }
                Ok(text) => self.certs_arrived(&text, source, options, now, rng, &mut news),
                Err(_) => {
                    news.push(News::Message(
                        Severity::Warn,
                        format!("The {what} from {source} is not text; asking another authority."),
                    ));
                    false
                }
            },
            Ok(Response { status, reason, .. }) => {
                // 404 before the first consensus and 304 before the next one are everyday answers.
                let everyday = status == 304 || status == 404 && self.consensus.is_none();
                let severity = if everyday {
                    Severity::Info
                } else {
                    Severity::Notice
                };
                news.push(News::Message(
                    severity,
                    format!("{source} answered {status} ({reason}) when asked for the {what}; asking again."),
                ));
                false
            }
        };
        if progress {
            self.failing = None;
            // Anybody can send a consensus whose certificates nobody has, again and again.
            if self.waiting.is_none() {
                self.backoff.succeeded();
            }
            self.not_before = monotonic;
        } else {
            self.next = self.next.wrapping_add(1);
            let delay = self.backoff.failed(rng);
            self.not_before = monotonic + delay;
            self.attempts(underway, now).failed(now, delay);
        }
        if self
            .waiting
            .as_ref()
            .is_some_and(|waiting| waiting.asked >= MAX_CERT_FETCHES)
        {
            self.waiting = None;
            news.push(News::Message(
                Severity::Warn,
                "No authority has the certificates that the consensus claims to be signed with; fetching another one.".into(),
            ));
        }
        news
    }

    /// The consensus that `text` is, or is a diff to.
    fn whole_consensus(
        &self,
        text: String,
        cached: impl FnOnce() -> Option<String>,
        source: &str,
        news: &mut Vec<News>,
    ) -> Result<String, String> {
        if !consdiff::is_diff(&text) {
            return Ok(text);
        }
        let from = self.consensus.as_ref().map(|consensus| consensus.as_signed);
        let (base, from) = cached()
            .zip(from)
            .filter(|(base, from)| ConsensusDigest::of(base) == *from)
            .ok_or("the consensus that it begins at is not in our cache")?;
        let whole = consdiff::apply(&base, from, &text).map_err(|error| error.to_string())?;
        news.push(News::Message(
            Severity::Info,
            format!(
                "Applied consensus diff (size {}) from server {source}, resulting in a new consensus document (size {}).",
                text.len(),
                whole.len()
            ),
        ));
        Ok(whole)
    }

    /// Verifies a consensus. Returns true if that is progress.
    #[allow(clippy::too_many_arguments)]
    fn consensus_arrived(
        &mut self,
        text: String,
        fetched: bool,
        source: &str,
        options: &DirectoryOptions,
        now: SystemTime,
        rng: &mut impl Rng,
        news: &mut Vec<News>,
    ) -> bool {
        match self.check(&text, options, now, REASONABLY_LIVE) {
            Ok(verified) => {
                let newer = self
                    .consensus
                    .as_ref()
                    .is_none_or(|have| verified.consensus.valid_after > have.valid_after);
                if !newer {
                    news.push(News::Message(
                        Severity::Info,
                        format!(
                            "The consensus from {source} is not newer than the one that we have."
                        ),
                    ));
                    return false;
                }
                let adopted = self.adopt(verified, text, fetched, now, rng);
                let live = adopted.consensus.is_live(now);
                news.push(News::Consensus(Box::new(adopted)));
                live
            }
            Err(ConsensusError::MissingCerts(missing)) => {
                self.waiting = Some(Waiting {
                    text,
                    missing,
                    asked: 0,
                    fetched,
                });
                news.push(News::WaitingForCerts);
                true
            }
            Err(error) => {
                let severity = match error {
                    ConsensusError::Empty => Severity::Info,
                    _ => Severity::Warn,
                };
                news.push(News::Message(
                    severity,
                    format!("Not using the consensus from {source}: {error}."),
                ));
                false
            }
        }
    }

    /// Adds the certificates of an answer. Returns true if they made the waiting consensus
    /// verifiable.
    fn certs_arrived(
        &mut self,
        text: &str,
        source: &str,
        options: &DirectoryOptions,
        now: SystemTime,
        rng: &mut impl Rng,
        news: &mut Vec<News>,
    ) -> bool {
        let outcome = self.certs.add(text, &signers(&options.authorities), now);
        if let Some(problem) = outcome.bad.first() {
            news.push(News::Message(
                Severity::Warn,
                format!("Ignoring a certificate from {source}: {problem}."),
            ));
        }
        if outcome.added > 0 {
            self.downloads.certs.succeeded(now);
            news.push(News::Certs(self.certs.text()));
        }
        let Some(waiting) = self.waiting.take() else {
            return outcome.added > 0;
        };
        let asked = waiting.asked;
        let verified = self.consensus_arrived(
            waiting.text,
            waiting.fetched,
            source,
            options,
            now,
            rng,
            news,
        );
        match &mut self.waiting {
            Some(still) => {
                still.asked = asked;
                outcome.added > 0
            }
            None => verified,
        }
    }

    /// Certificates came that were asked for besides: one that waits for them may be verifiable.
    pub(crate) fn certs_came(
        &mut self,
        text: &str,
        source: &str,
        options: &DirectoryOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Vec<News> {
        let mut news = Vec::new();
        self.certs_arrived(text, source, options, now, rng, &mut news);
        news
    }
}
