//! Decides what to request from the authorities next; `answers.rs` handles their answers.
//!
//! Holds the certificates, the consensus in use, and one that waits for certificates. It does no
//! I/O: it returns requests, and is passed the answers.

mod answers;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::{Rng, RngExt as _};
use tor_llcrypto::pk::rsa::RsaIdentity;
use tor_netdoc::doc::authcert::AuthCertKeyIds;
use tor_netdoc::doc::netstatus::{ConsensusFlavor, MdConsensus};

use crate::authority::signers;
use crate::cache;
use crate::certs::Certs;
use crate::command::{DirectoryOptions, Severity};
use crate::consdiff::ConsensusDigest;
use crate::consensus::{
    CACHE_MAX_AGE, Consensus, ConsensusError, ListedDescriptor, verify, verify_ns,
};
use crate::downloads::{Attempts, Downloads};
use crate::http::Request;
use crate::paths::{certs_path, consensus_path};
use crate::publish::OwnListing;
use crate::schedule::{Backoff, Earliness, next_client_fetch, next_consensus_fetch};

/// Longest delay after failures; C tor forgets its failures every hour.
const RETRY_CAP: Duration = Duration::from_secs(3600);
/// Longest delay in a testing network, whose first consensus appears after some ten seconds.
const RETRY_CAP_TESTING: Duration = Duration::from_secs(5);
/// Certificates asked for at once.
const MAX_CERTS_ASKED: usize = 32;

/// Effect of an answer or of the cache.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum News {
    /// A consensus is now in use.
    Consensus(Box<Adopted>),
    /// There are new certificates; this text is to be cached.
    Certs(String),
    /// The consensus cannot be checked before certificates arrive.
    WaitingForCerts,
    /// Something for the log.
    Message(Severity, String),
}

impl News {
    /// True if the directory has sent something new.
    pub(crate) fn is_progress(&self) -> bool {
        matches!(self, News::Consensus(_) | News::Certs(_))
    }
}

/// A consensus that is in use from now on.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// The part that every node keeps.
    pub(crate) consensus: Arc<Consensus>,
    /// The documents that it lists.
    pub(crate) contents: Contents,
    /// The authorities of ours that signed it.
    pub(crate) signers: Vec<RsaIdentity>,
    pub(crate) text: String,
    /// True if it was fetched and must be cached; false if it came from the cache.
    pub(crate) fetched: bool,
}

/// The documents that a consensus lists, by its flavour.
#[derive(Debug)]
pub(crate) enum Contents {
    /// Relays with their microdescriptors: all of it, as path selection wants it.
    Relays(Box<MdConsensus>),
    /// Descriptors.
    Descriptors(Vec<ListedDescriptor>),
}

/// A consensus that has been verified.
struct Checked {
    consensus: Consensus,
    contents: Contents,
    signers: Vec<RsaIdentity>,
}

/// After how long past valid-after a consensus is expected to have changed (C tor
/// `DEFAULT_IF_MODIFIED_SINCE_DELAY`); half an interval, where that is less.
const IF_MODIFIED_SINCE_DELAY: Duration = Duration::from_secs(180);

/// The kind of node that fetches; decides when it fetches the next consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A relay, from authorities.
    Relay,
    /// A client, from caches.
    Client,
}

/// A consensus that cannot be verified yet.
#[derive(Debug)]
struct Waiting {
    /// The document.
    text: String,
    /// The certificates that it needs.
    missing: Vec<AuthCertKeyIds>,
    /// Number of requests for the certificates.
    asked: u32,
    /// True if it was fetched.
    fetched: bool,
}

/// Document of the current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Underway {
    /// A consensus.
    Consensus,
    /// Certificates.
    Certs,
}

/// The state of fetching.
#[derive(Debug)]
pub(crate) struct Fetcher {
    /// Of consensuses of this flavour.
    flavour: ConsensusFlavor,
    /// True if the next consensus must be requested as a whole, because a diff did not apply.
    whole: bool,
    /// The consensus in use.
    consensus: Option<Arc<Consensus>>,
    /// The certificates.
    certs: Certs,
    /// A consensus that waits for certificates.
    waiting: Option<Waiting>,
    /// Document of the current request.
    underway: Option<Underway>,
    /// Not before this monotonic time.
    not_before: Duration,
    /// When to fetch the successor of a live consensus.
    fetch_at: SystemTime,
    /// Delays after failures.
    backoff: Backoff,
    /// The kind of node that fetches.
    audience: Audience,
    /// Earlier fetching than that of other nodes.
    earliness: Earliness,
    /// Since when, in monotonic time, no authority can be reached, and when there was a warning about that.
    failing: Option<Duration>,
    warned: Option<Duration>,
    /// Whose turn it is among the authorities that sign consensuses, modulo their number.
    next: usize,
    /// Download state for controllers; the rest is filled in when it is reported.
    downloads: Downloads,
    /// The state as last reported.
    reported: Downloads,
}

impl Fetcher {
    /// Nothing known yet; the first fetch may start at `monotonic` plus the initial delay.
    pub(crate) fn new(options: &DirectoryOptions, monotonic: Duration, rng: &mut impl Rng) -> Self {
        let cap = if options.testing {
            RETRY_CAP_TESTING
        } else {
            RETRY_CAP
        };
        Self {
            flavour: ConsensusFlavor::Microdesc,
            whole: false,
            consensus: None,
            certs: Certs::default(),
            waiting: None,
            underway: None,
            not_before: monotonic + options.consensus_initial_delay,
            fetch_at: SystemTime::UNIX_EPOCH,
            backoff: Backoff::new(options.consensus_initial_delay, cap),
            audience: Audience::Relay,
            earliness: options.earliness,
            failing: None,
            warned: None,
            next: usize::from(rng.random::<u16>()),
            downloads: Downloads::default(),
            reported: Downloads::default(),
        }
    }

    /// The download state, if it has changed since the last report.
    pub(crate) fn new_downloads(&mut self, now: SystemTime) -> Option<Downloads> {
        let mut downloads = self.downloads.clone();
        downloads.has_consensus = self.is_live(now);
        for (cert, _) in self.certs.iter() {
            let ids = cert.key_ids();
            let keys = downloads.keys.entry(ids.id_fingerprint.to_bytes());
            keys.or_default().insert(ids.sk_fingerprint.to_bytes());
        }
        if downloads == self.reported {
            return None;
        }
        self.reported = downloads.clone();
        Some(downloads)
    }

    /// The attempts at what is underway.
    fn attempts(&mut self, underway: Underway, now: SystemTime) -> &mut Attempts {
        match underway {
            Underway::Certs => &mut self.downloads.certs,
            Underway::Consensus if self.is_live(now) => &mut self.downloads.following,
            Underway::Consensus => &mut self.downloads.first,
        }
    }

    /// Certificates are asked for besides.
    pub(crate) fn certs_asked(&mut self) {
        self.downloads.certs.begun();
    }

    /// Certificates that were asked for besides did not come.
    pub(crate) fn certs_failed(&mut self, now: SystemTime) {
        self.downloads.certs.failed(now, Duration::ZERO);
    }

    /// Like [`new`](Self::new), for a client, which fetches the next consensus later than a cache.
    pub(crate) fn for_client(
        options: &DirectoryOptions,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        Self {
            audience: Audience::Client,
            ..Self::new(options, monotonic, rng)
        }
    }

    /// Like [`new`](Self::new), for the flavour `ns`, which a cache serves to others.
    pub(crate) fn of_descriptors(
        options: &DirectoryOptions,
        monotonic: Duration,
        rng: &mut impl Rng,
    ) -> Self {
        Self {
            flavour: ConsensusFlavor::Plain,
            ..Self::new(options, monotonic, rng)
        }
    }

    /// The cache file of its consensus.
    pub(crate) fn cache_file(&self) -> &'static str {
        match self.flavour {
            ConsensusFlavor::Microdesc => cache::CONSENSUS,
            ConsensusFlavor::Plain => cache::CONSENSUS_NS,
        }
    }

    /// These certificates are known, too.
    pub(crate) fn set_certs(&mut self, certs: &Certs) {
        self.certs = certs.clone();
    }

    /// Parses and verifies a consensus.
    fn check(
        &self,
        text: &str,
        options: &DirectoryOptions,
        now: SystemTime,
        tolerance: Duration,
    ) -> Result<Checked, ConsensusError> {
        let signers = signers(&options.authorities);
        Ok(match self.flavour {
            ConsensusFlavor::Microdesc => {
                let verified = verify(text, &signers, &self.certs, now, tolerance)?;
                Checked {
                    consensus: verified.consensus,
                    contents: Contents::Relays(verified.document),
                    signers: verified.signers,
                }
            }
            ConsensusFlavor::Plain => {
                let verified = verify_ns(text, &signers, &self.certs, now, tolerance)?;
                Checked {
                    consensus: verified.consensus,
                    contents: Contents::Descriptors(verified.descriptors),
                    signers: verified.signers,
                }
            }
        })
    }

    /// True if a consensus waits for certificates.
    pub(crate) fn is_waiting_for_certs(&self) -> bool {
        self.waiting.is_some()
    }

    /// The certificates.
    pub(crate) fn certs(&self) -> &Certs {
        &self.certs
    }

    /// Delays after failures are forgotten.
    pub(crate) fn retry_now(&mut self, monotonic: Duration) {
        self.not_before = self.not_before.min(monotonic);
        self.backoff.succeeded();
    }

    /// The consensus in use.
    pub(crate) fn consensus(&self) -> Option<&Arc<Consensus>> {
        self.consensus.as_ref()
    }

    /// Takes over what the cache files hold.
    pub(crate) fn load(
        &mut self,
        certs: Option<&str>,
        consensus: Option<&str>,
        options: &DirectoryOptions,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Vec<News> {
        let signers = signers(&options.authorities);
        let path = |name| options.cache_directory.join(name).display().to_string();
        let mut news = Vec::new();
        if let Some(text) = certs {
            let outcome = self.certs.add(text, &signers, now);
            if let Some(problem) = outcome.bad.first() {
                news.push(News::Message(
                    Severity::Warn,
                    format!(
                        "Ignoring what is damaged in {} ({problem}); it will be fetched again.",
                        path(cache::CERTS)
                    ),
                ));
            }
        }
        let Some(text) = consensus else {
            return news;
        };
        match self.check(text, options, now, CACHE_MAX_AGE) {
            Ok(verified) => {
                let adopted = self.adopt(verified, text.to_string(), false, now, rng);
                news.push(News::Consensus(Box::new(adopted)));
            }
            Err(ConsensusError::MissingCerts(missing)) => {
                self.waiting = Some(Waiting {
                    text: text.to_string(),
                    missing,
                    asked: 0,
                    fetched: false,
                });
                news.push(News::WaitingForCerts);
            }
            Err(
                error @ (ConsensusError::Expired { .. } | ConsensusError::TooFewSignatures { .. }),
            ) => {
                news.push(News::Message(
                    Severity::Info,
                    format!("Not using the cached consensus: {error}."),
                ));
            }
            Err(error) => news.push(News::Message(
                Severity::Warn,
                format!(
                    "Ignoring {} ({error}); it will be fetched again.",
                    path(self.cache_file())
                ),
            )),
        }
        news
    }

    /// The settings have changed: ask again at once, and others if the authorities are others.
    pub(crate) fn options_changed(&mut self, options: &DirectoryOptions, monotonic: Duration) {
        let cap = if options.testing {
            RETRY_CAP_TESTING
        } else {
            RETRY_CAP
        };
        self.backoff = Backoff::new(options.consensus_initial_delay, cap);
        self.not_before = self
            .not_before
            .min(monotonic + options.consensus_initial_delay);
        self.earliness = options.earliness;
        self.waiting = None;
    }

    /// A request to make now, and the index of the authority to ask. It counts as underway until
    /// [`answered`](Fetcher::answered). `cached` reads the consensus in the cache, which a diff may begin at.
    pub(crate) fn next(
        &mut self,
        cached: impl FnOnce() -> Option<String>,
        options: &DirectoryOptions,
        now: SystemTime,
        monotonic: Duration,
    ) -> Option<(usize, Request)> {
        if self.underway.is_some() || monotonic < self.not_before {
            return None;
        }
        if self.waiting.is_none() && self.is_live(now) && now < self.fetch_at {
            return None;
        }
        let signing =
            || (options.authorities.iter().enumerate()).filter(|(_, a)| a.v3_ident.is_some());
        let turn = self.next.checked_rem(signing().count())?;
        let (authority, _) = signing().nth(turn)?;
        let (underway, request) = match &mut self.waiting {
            Some(waiting) => {
                waiting.asked += 1;
                let missing = waiting
                    .missing
                    .get(..MAX_CERTS_ASKED)
                    .unwrap_or(&waiting.missing);
                let request = Request::get(certs_path(missing));
                (Underway::Certs, request)
            }
            None => {
                let path = consensus_path(self.flavour, &signers(&options.authorities));
                let request = match &self.consensus {
                    None => Request::get(path),
                    Some(consensus) => Request::Get {
                        path,
                        if_modified_since: Some(worth_asking_after(consensus)),
                        diff_from: Some(consensus.as_signed).filter(|digest| {
                            // Another thread of this node may have put a newer one there.
                            let is_there = |text: String| ConsensusDigest::of(&text) == *digest;
                            !self.whole
                                && is_young(consensus, now)
                                && cached().is_some_and(is_there)
                        }),
                    },
                };
                (Underway::Consensus, request)
            }
        };
        self.underway = Some(underway);
        self.attempts(underway, now).begun();
        Some((authority, request))
    }

    /// Uses a consensus from now on.
    fn adopt(
        &mut self,
        verified: Checked,
        text: String,
        fetched: bool,
        now: SystemTime,
        rng: &mut impl Rng,
    ) -> Adopted {
        let consensus = verified.consensus;
        let (after, fresh, until) = (
            consensus.valid_after,
            consensus.fresh_until,
            consensus.valid_until,
        );
        self.fetch_at = match (self.audience, self.earliness) {
            (Audience::Client, Earliness::Usual) => next_client_fetch(after, fresh, until, rng),
            (Audience::Relay | Audience::Client, earliness) => {
                let extra = earliness == Earliness::ExtraEarly;
                next_consensus_fetch(after, fresh, until, extra, rng)
            }
        };
        if !consensus.is_live(now) {
            self.fetch_at = now;
        }
        self.waiting = None;
        self.whole = false;
        self.downloads.first.succeeded(self.fetch_at);
        self.downloads.following.succeeded(self.fetch_at);
        let consensus = Arc::new(consensus);
        self.consensus = Some(consensus.clone());
        Adopted {
            consensus,
            contents: verified.contents,
            signers: verified.signers,
            text,
            fetched,
        }
    }

    /// True if the consensus in use is valid now.
    pub(crate) fn is_live(&self, now: SystemTime) -> bool {
        self.consensus
            .as_ref()
            .is_some_and(|consensus| consensus.is_live(now))
    }

    /// Time until there may be something to request, if nothing else happens.
    pub(crate) fn wait(&self, now: SystemTime, monotonic: Duration) -> Option<Duration> {
        if self.underway.is_some() {
            return None;
        }
        let held_off = self.not_before.saturating_sub(monotonic);
        let until_fetch = match (&self.waiting, self.is_live(now)) {
            (None, true) => self.fetch_at.duration_since(now).unwrap_or_default(),
            _ => Duration::ZERO,
        };
        Some(held_off.max(until_fetch))
    }

    /// The listing of the relay `id` in the consensus, if that is live.
    pub(crate) fn listing(&self, id: &RsaIdentity, now: SystemTime) -> OwnListing {
        use tor_netdoc::types::relay_flags::RelayFlag;
        match self
            .consensus
            .as_ref()
            .filter(|consensus| consensus.is_live(now))
        {
            None => OwnListing::Unknown,
            Some(consensus) => match consensus.relay(id) {
                None => OwnListing::Unlisted,
                Some(relay) => OwnListing::Listed {
                    stale: relay.has(RelayFlag::StaleDesc),
                    valid_after: consensus.valid_after,
                },
            },
        }
    }
}

/// The time since which the successor of `consensus` is worth an answer (C tor
/// `dir_consensus_request_set_additional_headers`).
fn worth_asking_after(consensus: &Consensus) -> SystemTime {
    let interval = consensus.fresh_until.duration_since(consensus.valid_after);
    let delay = match interval {
        Ok(interval) if !interval.is_zero() => IF_MODIFIED_SINCE_DELAY.min(interval / 2),
        _ => IF_MODIFIED_SINCE_DELAY,
    };
    consensus.valid_after + delay
}

/// True if a directory may have a diff that begins at `consensus`.
fn is_young(consensus: &Consensus, now: SystemTime) -> bool {
    let age = now
        .duration_since(consensus.valid_after)
        .unwrap_or_default();
    age <= consensus.params.try_diff_for_consensus_newer_than
}

#[cfg(test)]
mod tests;
