//! Documents that a relay fetches for others: microdescriptors and the other flavour of the
//! consensus, kept and served with the consensus that it uses itself.

use std::time::{Duration, SystemTime};

use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::netstatus::ConsensusFlavor;

use super::DirectoryTask;
use super::request::Purpose;
use crate::cache::{self, CacheError};
use crate::command::{Event, Severity};
use crate::consensus::Consensus;
use crate::documents::{NewConsensus, Status};
use crate::fetch::{Adopted, Contents, News};
use crate::http::{HttpError, Request, Response};
use crate::microdesc::{self, Batch, MdDigest};

impl DirectoryTask {
    /// Reads the microdescriptors in the cache files.
    pub(super) fn load_microdescs(&mut self) {
        if !self.options.dir_cache {
            return;
        }
        let (now, directory) = (self.clock.wall(), &self.options.cache_directory);
        let loaded = self
            .documents
            .with_microdescs(|store| store.load(directory, now));
        if let Err(error) = loaded {
            (self.events)(Event::Message(
                Severity::Warn,
                format!("{error}; it will be fetched again."),
            ));
        }
    }

    /// Serves a new consensus, and wants the microdescriptors that it lists.
    pub(super) fn serve_consensus(
        &mut self,
        consensus: &Consensus,
        signers: Vec<RsaIdentity>,
        text: String,
    ) {
        if !self.options.dir_cache {
            return;
        }
        self.serve(ConsensusFlavor::Microdesc, consensus, signers, text);
        let listed = || consensus.relays().map(|(_, relay)| &relay.microdesc);
        let missing: Vec<MdDigest> = self.documents.with_microdescs(|store| {
            store.listed(listed(), consensus.valid_after);
            listed()
                .filter(|digest| store.get(digest).is_none())
                .copied()
                .collect()
        });
        self.lacking.want(missing, self.clock.monotonic());
    }

    /// Serves a consensus of either flavour, and has it compressed and diffs to it made.
    fn serve(
        &mut self,
        flavour: ConsensusFlavor,
        consensus: &Consensus,
        signers: Vec<RsaIdentity>,
        text: String,
    ) {
        let new = NewConsensus {
            status: Status {
                flavour,
                valid_after: consensus.valid_after,
                fresh_until: consensus.fresh_until,
                valid_until: consensus.valid_until,
                signers,
            },
            digest: consensus.as_signed,
            text,
        };
        self.documents.set_consensus(&new);
        self.making.add(new);
        self.make_diffs();
    }

    /// Begins to compress and to make diffs, if that is not underway.
    fn make_diffs(&mut self) {
        let by_consensus = self.params().max_consensus_age_to_cache_for_diff;
        let max_age = self.options.max_diff_age.unwrap_or(by_consensus);
        self.making
            .next(&self.documents, max_age, self.clock.wall());
    }

    /// Something has been made.
    pub(super) fn made(&mut self, messages: Vec<(Severity, String)>) {
        for (severity, text) in messages {
            (self.events)(Event::Message(severity, text));
        }
        self.make_diffs();
    }

    /// The consensus of the flavour `ns` in the cache.
    pub(super) fn load_ns(&mut self) {
        if !self.options.dir_cache {
            return;
        }
        self.load_descriptors();
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let directory = &self.options.cache_directory;
        let text = cache::read(directory, self.ns.cache_file()).unwrap_or_else(|error| {
            (self.events)(Event::Message(
                Severity::Warn,
                format!("{error}; it will be fetched again."),
            ));
            None
        });
        self.ns.set_certs(self.fetcher.certs());
        let (options, rng) = (&self.options, &mut self.rng);
        let news = self.ns.load(None, text.as_deref(), options, now, rng);
        self.ns_news(news, now, monotonic);
    }

    /// True if the consensus of the flavour `ns` is worth requesting: this relay has a consensus of
    /// its own flavour, and with it the certificates that both are signed with.
    fn wants_ns(&self, now: SystemTime) -> bool {
        self.options.dir_cache && self.fetcher.is_live(now)
    }

    /// Asks for the consensus of the flavour `ns` when that is due.
    pub(super) fn fetch_ns(&mut self, now: SystemTime, monotonic: Duration) {
        if !self.wants_ns(now) {
            return;
        }
        let (directory, file) = (&self.options.cache_directory, self.ns.cache_file());
        let cached = || cache::read(directory, file).ok()?;
        if let Some((index, request)) = self.ns.next(cached, &self.options, now, monotonic) {
            self.request(index, Purpose::FetchNs, request);
        }
    }

    /// Time until it may be requested.
    pub(super) fn wait_for_ns(&self, now: SystemTime, monotonic: Duration) -> Option<Duration> {
        self.ns.wait(now, monotonic).filter(|_| self.wants_ns(now))
    }

    /// It was answered, or not.
    pub(super) fn ns_answered(
        &mut self,
        result: Result<Response, HttpError>,
        source: &str,
        now: SystemTime,
        monotonic: Duration,
    ) -> bool {
        let (directory, file) = (&self.options.cache_directory, self.ns.cache_file());
        let cached = || cache::read(directory, file).ok()?;
        self.ns.set_certs(self.fetcher.certs());
        let news = self.ns.answered(
            result,
            cached,
            source,
            &self.options,
            now,
            monotonic,
            &mut self.rng,
        );
        let is_progress = news.iter().any(News::is_progress);
        self.ns_news(news, now, monotonic);
        is_progress
    }

    /// Acts on what fetching it led to.
    fn ns_news(&mut self, news: Vec<News>, now: SystemTime, monotonic: Duration) {
        for news in news {
            match news {
                News::Consensus(adopted) => {
                    let Adopted {
                        consensus,
                        contents,
                        signers,
                        text,
                        fetched,
                    } = *adopted;
                    if let Contents::Descriptors(listed) = contents {
                        self.list_descriptors(listed, now);
                    }
                    if fetched {
                        self.store(self.ns.cache_file(), &text);
                    }
                    self.serve(ConsensusFlavor::Plain, &consensus, signers, text);
                }
                // The certificates are those of both flavours.
                News::WaitingForCerts => {}
                news @ (News::Certs(_) | News::Message(..)) => self.news(news, now, monotonic),
            }
        }
    }

    /// True if microdescriptors are worth requesting.
    fn wants_microdescs(&self, now: SystemTime) -> bool {
        self.options.dir_cache
            && self
                .fetcher
                .consensus()
                .is_some_and(|consensus| consensus.is_reasonably_live(now))
    }

    /// Asks authorities for microdescriptors, each in turn.
    pub(super) fn fetch_microdescs(&mut self, now: SystemTime, monotonic: Duration) {
        if !self.wants_microdescs(now) {
            return;
        }
        while let Some(batch) = self.lacking.next(monotonic) {
            let request = Request::get(microdesc::path(&batch));
            self.request_of_any(Purpose::Microdescs(batch), request);
        }
    }

    /// Makes a request to the authority whose turn it is.
    pub(super) fn request_of_any(&mut self, purpose: Purpose, request: Request) {
        let authorities = (0..).zip(&self.options.authorities);
        let signing: Vec<usize> = authorities
            .filter(|(_, authority)| authority.v3_ident.is_some())
            .map(|(index, _)| index)
            .collect();
        let turn = self.turn_of.checked_rem(signing.len());
        self.turn_of = self.turn_of.wrapping_add(1);
        if let Some(index) = turn.and_then(|turn| signing.get(turn)) {
            self.request(*index, purpose, request);
        }
    }

    /// Time until microdescriptors may be requested.
    pub(super) fn wait_for_microdescs(
        &self,
        now: SystemTime,
        monotonic: Duration,
    ) -> Option<Duration> {
        self.lacking
            .wait(monotonic)
            .filter(|_| self.wants_microdescs(now))
    }

    /// Microdescriptors were answered, or not; whether any came.
    pub(super) fn microdescs_answered(
        &mut self,
        batch: &Batch,
        result: Result<Response, HttpError>,
        source: &str,
        by_circuit: bool,
    ) -> bool {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let mut arrived = 0;
        let message = match result {
            Ok(Response {
                status: 200, body, ..
            }) => {
                arrived = self.take_in(&body, now);
                (arrived == 0).then(|| {
                    let warning = format!(
                        "{source} sent none of the {} microdescriptors that it was asked for.",
                        batch.len()
                    );
                    (none_came(by_circuit), warning)
                })
            }
            Ok(Response { status, reason, .. }) => Some((
                Severity::Info,
                format!(
                    "{source} answered {status} ({reason}) when asked for microdescriptors; asking again."
                ),
            )),
            Err(error) => Some((
                Severity::Info,
                format!("Cannot fetch microdescriptors from {source}: {error}."),
            )),
        };
        if let Some((severity, text)) = message {
            (self.events)(Event::Message(severity, text));
        }
        self.lacking.answered(batch, monotonic, &mut self.rng);
        if let Err(error) = self.save_microdescs() {
            (self.events)(Event::Message(
                Severity::Warn,
                format!("{error}; going on without."),
            ));
        }
        arrived > 0
    }

    /// Keeps the microdescriptors in `body` that are lacking; how many those are.
    fn take_in(&mut self, body: &[u8], now: SystemTime) -> usize {
        // Bytes that are no text have a digest that was not requested.
        let body = String::from_utf8_lossy(body);
        let lacking = &mut self.lacking;
        self.documents.with_microdescs(|store| {
            let mut arrived = 0;
            for piece in microdesc::split(&body) {
                let digest = piece.digest();
                if lacking.arrived(&digest) {
                    store.add(digest, piece.text, now);
                    arrived += 1;
                }
            }
            arrived
        })
    }

    /// Writes the microdescriptors that have come.
    fn save_microdescs(&self) -> Result<(), CacheError> {
        let directory = &self.options.cache_directory;
        self.documents
            .with_microdescs(|store| store.save(directory))
    }
}

/// Severity of the message that a directory sent none of the requested documents. Authorities are
/// trusted to have them; other directories could fill the log.
pub(super) fn none_came(by_circuit: bool) -> Severity {
    match by_circuit {
        true => Severity::Info,
        false => Severity::Warn,
    }
}
