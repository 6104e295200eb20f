//! What a relay fetches for others: microdescriptors, kept and served with the consensus.

use std::time::{Duration, SystemTime};

use super::DirectoryTask;
use super::request::Purpose;
use crate::cache::CacheError;
use crate::command::{Event, Severity};
use crate::fetch::Adopted;
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
    pub(super) fn serve_consensus(&mut self, adopted: &Adopted) {
        if !self.options.dir_cache {
            return;
        }
        let consensus = &adopted.consensus;
        self.documents
            .set_consensus(consensus, adopted.signers.clone(), &adopted.text);
        let listed = || consensus.relays().map(|(_, relay)| &relay.microdesc);
        let missing: Vec<MdDigest> = self.documents.with_microdescs(|store| {
            store.listed(listed(), consensus.valid_after);
            listed()
                .filter(|digest| store.get(digest).is_none())
                .copied()
                .collect()
        });
        self.lacking.want(missing);
    }

    /// Whether microdescriptors are worth asking for.
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
        let signing: Vec<usize> = (0..)
            .zip(&self.options.authorities)
            .filter(|(_, authority)| authority.v3_ident.is_some())
            .map(|(index, _)| index)
            .collect();
        let Some(turn) = self.turn_of.checked_rem(signing.len()) else {
            return;
        };
        let mut turns = signing.iter().cycle().skip(turn);
        while let Some(batch) = self.lacking.next(monotonic) {
            let request = Request::Get {
                path: microdesc::path(&batch),
                if_modified_since: None,
            };
            if let Some(index) = turns.next() {
                self.turn_of = self.turn_of.wrapping_add(1);
                self.request(*index, Purpose::Microdescs(batch), request);
            }
        }
    }

    /// How long until microdescriptors may be asked for.
    pub(super) fn wait_for_microdescs(
        &self,
        now: SystemTime,
        monotonic: Duration,
    ) -> Option<Duration> {
        self.lacking
            .wait(monotonic)
            .filter(|_| self.wants_microdescs(now))
    }

    /// Microdescriptors were answered, or not.
    pub(super) fn microdescs_answered(
        &mut self,
        batch: &Batch,
        result: Result<Response, HttpError>,
        source: &str,
    ) {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let message = match result {
            Ok(Response {
                status: 200, body, ..
            }) => {
                let arrived = self.take_in(&body, now);
                (arrived == 0).then(|| {
                    let warning = format!(
                        "{source} sent none of the {} microdescriptors that it was asked for.",
                        batch.len()
                    );
                    (Severity::Warn, warning)
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
    }

    /// Keeps the microdescriptors in `body` that are lacking; how many those are.
    fn take_in(&mut self, body: &[u8], now: SystemTime) -> usize {
        // What is not text has a digest that was not asked for.
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
