//! Descriptors and extra-info documents of others, which a directory cache fetches and keeps (C tor
//! `update_consensus_router_descriptor_downloads`, `update_extrainfo_downloads`).

use std::time::{Duration, SystemTime};

use super::DirectoryTask;
use super::caching::none_came;
use super::request::Purpose;
use crate::command::{Event, Severity};
use crate::consensus::ListedDescriptor;
use crate::descriptors::{self, DescriptorDigest, DocumentKind, Piece};
use crate::http::{HttpError, Request, Response};
use crate::microdesc::DigestFetch;

/// Both kinds, in the order in which they are needed.
const KINDS: [DocumentKind; 2] = [DocumentKind::Descriptor, DocumentKind::ExtraInfo];

impl DirectoryTask {
    /// The documents of one kind that are lacking.
    fn lacking_of(&mut self, kind: DocumentKind) -> &mut DigestFetch<DescriptorDigest> {
        match kind {
            DocumentKind::Descriptor => &mut self.lacking_descriptors,
            DocumentKind::ExtraInfo => &mut self.lacking_extra_infos,
        }
    }

    /// Reads those in the cache files.
    pub(super) fn load_descriptors(&mut self) {
        for kind in KINDS {
            let directory = &self.options.cache_directory;
            let loaded = self
                .documents
                .with_store(kind, |store| store.load(directory));
            if let Err(error) = loaded {
                (self.events)(Event::Message(
                    Severity::Warn,
                    format!("{error}; it will be fetched again."),
                ));
            }
        }
    }

    /// A new consensus lists these descriptors: those that are lacking are wanted, and what is old goes.
    pub(super) fn list_descriptors(&mut self, listed: Vec<ListedDescriptor>, now: SystemTime) {
        self.documents.set_current(listed.into_iter().collect());
        for kind in KINDS {
            self.want(kind);
            let wanted: std::collections::BTreeSet<DescriptorDigest> = match kind {
                DocumentKind::Descriptor => self.documents.current().into_iter().collect(),
                DocumentKind::ExtraInfo => {
                    self.documents.current_extra_infos().into_iter().collect()
                }
            };
            let directory = &self.options.cache_directory;
            let is_wanted = |digest: &DescriptorDigest| wanted.contains(digest);
            let cleaned = self
                .documents
                .with_store(kind, |store| store.clean(directory, is_wanted, now));
            if let Err(error) = cleaned {
                (self.events)(Event::Message(
                    Severity::Warn,
                    format!("{error}; going on without."),
                ));
            }
        }
    }

    /// Wants what is listed and not there, as far as there is room.
    fn want(&mut self, kind: DocumentKind) {
        let listed = match kind {
            DocumentKind::Descriptor => self.documents.current(),
            DocumentKind::ExtraInfo if self.options.download_extra_info => {
                self.documents.current_extra_infos()
            }
            DocumentKind::ExtraInfo => Vec::new(),
        };
        let missing: Vec<DescriptorDigest> = self.documents.with_store(kind, |store| {
            let is_missing =
                |digest: &DescriptorDigest| store.has_room(0) && store.get(digest).is_none();
            listed.into_iter().filter(is_missing).collect()
        });
        let monotonic = self.clock.monotonic();
        self.lacking_of(kind).want(missing, monotonic);
    }

    /// True if descriptors and extra-info documents are worth requesting.
    fn wants_descriptors(&self, now: SystemTime) -> bool {
        let consensus = self.ns.consensus();
        self.options.dir_cache
            && consensus.is_some_and(|consensus| consensus.is_reasonably_live(now))
    }

    /// Asks authorities for them, each in turn.
    pub(super) fn fetch_descriptors(&mut self, now: SystemTime, monotonic: Duration) {
        if !self.wants_descriptors(now) {
            return;
        }
        for kind in KINDS {
            while let Some(batch) = self.lacking_of(kind).next(monotonic) {
                let request = Request::get(kind.path(&batch));
                self.request_of_any(Purpose::Descriptors(kind, batch), request);
            }
        }
    }

    /// Time until they may be requested.
    pub(super) fn wait_for_descriptors(
        &self,
        now: SystemTime,
        monotonic: Duration,
    ) -> Option<Duration> {
        let lacking = [&self.lacking_descriptors, &self.lacking_extra_infos];
        let waits = lacking
            .into_iter()
            .filter_map(|lacking| lacking.wait(monotonic));
        waits.min().filter(|_| self.wants_descriptors(now))
    }

    /// They were answered, or not.
    pub(super) fn descriptors_answered(
        &mut self,
        kind: DocumentKind,
        batch: &[DescriptorDigest],
        result: Result<Response, HttpError>,
        source: &str,
        by_circuit: bool,
    ) -> bool {
        let monotonic = self.clock.monotonic();
        let what = kind.name();
        let mut arrived = false;
        let message = match result {
            Ok(Response {
                status: 200, body, ..
            }) => match self.take_descriptors(kind, batch, &body) {
                Ok(0) => {
                    let count = batch.len();
                    let text =
                        format!("{source} sent none of the {count} {what} that it was asked for.");
                    Some((none_came(by_circuit), text))
                }
                Ok(_) => {
                    arrived = true;
                    None
                }
                Err(warning) => Some((Severity::Warn, warning)),
            },
            Ok(Response { status, reason, .. }) => Some((
                Severity::Info,
                format!(
                    "{source} answered {status} ({reason}) when asked for {what}; asking again."
                ),
            )),
            Err(error) => Some((
                Severity::Info,
                format!("Cannot fetch {what} from {source}: {error}."),
            )),
        };
        if let Some((severity, text)) = message {
            (self.events)(Event::Message(severity, text));
        }
        let (lacking, rng) = match kind {
            DocumentKind::Descriptor => (&mut self.lacking_descriptors, &mut self.rng),
            DocumentKind::ExtraInfo => (&mut self.lacking_extra_infos, &mut self.rng),
        };
        lacking.answered(batch, monotonic, rng);
        if kind == DocumentKind::Descriptor {
            // Documents that could not be kept are not requested again before the next consensus.
            self.want(DocumentKind::ExtraInfo);
        }
        arrived
    }

    /// Keeps the documents in `body` that are still lacking; how many were asked for.
    fn take_descriptors(
        &mut self,
        kind: DocumentKind,
        batch: &[DescriptorDigest],
        body: &[u8],
    ) -> Result<usize, String> {
        let lacking = self.lacking_of(kind);
        let mut arrived: Vec<Piece<'_>> = descriptors::split(kind, body)
            .filter(|piece| batch.contains(&piece.digest))
            .collect();
        let count = arrived.len();
        // A consensus that came in the meantime may not list all of them.
        arrived.retain(|piece| lacking.arrived(&piece.digest));
        let directory = &self.options.cache_directory;
        self.documents
            .with_store(kind, |store| store.add(directory, &arrived))
            .map_err(|error| format!("{error}; going on without."))?;
        if kind == DocumentKind::Descriptor {
            self.report_new(&arrived);
        }
        Ok(count)
    }

    /// Reports the descriptors that have been kept of these.
    fn report_new(&mut self, arrived: &[Piece<'_>]) {
        let kept = self
            .documents
            .with_store(DocumentKind::Descriptor, |store| {
                let mut kept = arrived.to_vec();
                kept.retain(|piece| store.get(&piece.digest).is_some());
                kept
            });
        let named = |piece: &Piece<'_>| {
            let relay = self.documents.relay_of(&piece.digest)?;
            Some((relay, piece.nickname().to_owned()))
        };
        let new: Vec<_> = kept.iter().filter_map(named).collect();
        if !new.is_empty() {
            (self.events)(Event::NewDescriptors(new));
        }
    }
}
