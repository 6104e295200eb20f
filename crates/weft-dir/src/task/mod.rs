//! The asynchronous task that keeps a node and the directory authorities informed of each other.
//!
//! Everything that is decided is decided in [`fetch`](crate::fetch), [`publish`](crate::publish)
//! and [`bandwidth`](crate::bandwidth); this task gives them time and randomness, makes their
//! requests, keeps the cache files, and speaks with the node: [`Command`]s in, [`Event`]s out. A
//! node runs it on a separate thread; tests run [`DirectoryTask::run`] with a clock of theirs.

mod bridge;
mod bridge_paths;
mod caching;
mod descriptors;
mod making;
mod notices;
mod request;
mod requests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tor_netdoc::types::relay_flags::RelayFlags;

use crate::bandwidth::BandwidthHistory;
use crate::cache;
use crate::circuits::Circuits;
use crate::clock::{Clock, signed_seconds};
use crate::command::{Command, DirectoryOptions, Event, Severity};
use crate::consensus::{Consensus, EARLY_NOTICE};
use crate::descriptor::{Moment, OwnDescriptor, SignedDescriptor};
use crate::descriptors::DescriptorDigest;
use crate::diff_maker::DiffMaker;
use crate::documents::CachedDocuments;
use crate::fetch::{Adopted, Fetcher, News};
use crate::http::Request;
use crate::microdesc::{DigestFetch, MicrodescFetch};
use crate::params::Params;
use crate::publish::{OwnListing, Publisher, Situation};
use crate::sockets::Sockets;
use crate::tap::TapForm;

use bridge_paths::BridgePaths;
use making::Making;
use request::{Finished, Purpose};

/// Longest time between looks at the wall clock, so that a jump of it is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// Interval at which the rules of publication are applied (C tor `CHECK_DESCRIPTOR_INTERVAL`).
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Interval in testing networks, whose consensuses are seconds apart.
const CHECK_INTERVAL_TESTING: Duration = Duration::from_secs(5);
/// Interval at which the bandwidth history is handed out for the state file.
const STATE_INTERVAL: Duration = Duration::from_secs(3600);

/// Settings and saved state with which a directory task starts.
#[derive(Clone)]
pub struct Config {
    /// Settings.
    pub options: DirectoryOptions,
    /// The state file's lines; those that are not bandwidth history are ignored.
    pub state: Vec<(String, String)>,
    /// Seed of its randomness: random in a node, fixed in a test.
    pub seed: [u8; 32],
    /// Makes a bridge's requests.
    pub circuits: Arc<dyn Circuits>,
}

/// Where a directory task sends its events; called on its thread, must not block.
pub type EventSink = Box<dyn FnMut(Event) + Send>;

/// The directory task.
pub struct DirectoryTask {
    options: DirectoryOptions,
    clock: Arc<dyn Clock>,
    /// Randomness of schedules.
    rng: StdRng,
    /// Where events go.
    events: EventSink,
    fetcher: Fetcher,
    /// Fetches the flavour `ns`, which is served to others.
    ns: Fetcher,
    /// Makes compressions of consensuses, and diffs.
    making: Making,
    publisher: Publisher,
    /// Decides whether the descriptor has a TAP key.
    tap: TapForm,
    /// The contents of our descriptor.
    descriptor: Option<Box<OwnDescriptor>>,
    /// The last signed descriptor, and the reason for it.
    signed: Option<(SignedDescriptor, &'static str)>,
    generation: u64,
    /// True for the IPv4 and the IPv6 ORPort once it has been found reachable.
    reachable: (bool, bool),
    bandwidth: BandwidthHistory,
    /// The other statistics of the extra-info document.
    statistics: Vec<String>,
    /// Start of the hour of the last overload.
    overloaded: Option<SystemTime>,
    /// Monotonic time of the start.
    started: Duration,
    /// When the rules of publication were last applied.
    checked: Duration,
    /// When the state was last handed out.
    state_sent_at: Duration,
    /// When the last warning about the clock was sent.
    skew_warned_at: Option<Duration>,
    /// Our listing, as last reported.
    listed: Option<Option<RelayFlags>>,
    /// Protocols that we lack, as last reported.
    protocols_reported: Option<(bool, String)>,
    /// Progress of the bootstrap, in percent, as last reported.
    bootstrap: Option<u8>,
    /// Requests underway.
    requests: JoinSet<Finished>,
    /// The documents served to clients.
    documents: Arc<CachedDocuments>,
    /// Microdescriptors that are to be served and lacking.
    lacking: MicrodescFetch,
    /// Descriptors and extra-info documents that are to be served and lacking.
    lacking_descriptors: DigestFetch<DescriptorDigest>,
    lacking_extra_infos: DigestFetch<DescriptorDigest>,
    /// True once the cache files have been read.
    loaded: bool,
    /// True if requests underway must end (DisableNetwork).
    stop: watch::Sender<bool>,
    /// Whose turn it is to be asked for microdescriptors, modulo the number of authorities.
    turn_of: usize,
    /// Connections to authorities.
    sockets: Arc<Sockets>,
    /// Makes a bridge's requests, and by which relays.
    circuits: Arc<dyn Circuits>,
    paths: BridgePaths,
}

impl DirectoryTask {
    /// A task that has not begun.
    pub fn new(
        config: Config,
        diffs: Box<dyn DiffMaker>,
        clock: Arc<dyn Clock>,
        mut events: EventSink,
    ) -> Self {
        let mut rng = StdRng::from_seed(config.seed);
        let (now, monotonic) = (clock.wall(), clock.monotonic());
        let bandwidth = BandwidthHistory::from_state(&config.state, now).unwrap_or_else(|error| {
            events(Event::Message(Severity::Warn, format!("{error}.")));
            BandwidthHistory::new(now)
        });
        let testing = config.options.testing;
        let delay = config.options.download_initial_delay;
        let documents = CachedDocuments::default();
        documents.set_front_page(config.options.front_page.clone());
        Self {
            fetcher: Fetcher::new(&config.options, monotonic, &mut rng),
            ns: Fetcher::of_descriptors(&config.options, monotonic, &mut rng),
            making: Making::new(diffs),
            options: config.options,
            clock,
            rng,
            events,
            publisher: Publisher::default(),
            tap: TapForm::default(),
            descriptor: None,
            signed: None,
            generation: 0,
            reachable: (false, false),
            bandwidth,
            statistics: Vec::new(),
            overloaded: None,
            started: monotonic,
            checked: monotonic,
            state_sent_at: monotonic,
            skew_warned_at: None,
            listed: None,
            protocols_reported: None,
            bootstrap: None,
            requests: JoinSet::new(),
            documents: Arc::new(documents),
            lacking: DigestFetch::new(testing, delay),
            lacking_descriptors: DigestFetch::new(testing, delay),
            lacking_extra_infos: DigestFetch::new(testing, delay),
            loaded: false,
            stop: watch::Sender::new(false),
            turn_of: 0,
            sockets: Arc::default(),
            circuits: config.circuits,
            paths: BridgePaths::of_state(&config.state),
        }
    }

    /// Connections to authorities.
    pub fn sockets(&self) -> Arc<Sockets> {
        self.sockets.clone()
    }

    /// The documents served to clients; empty unless DirCache is set.
    pub fn documents(&self) -> Arc<CachedDocuments> {
        self.documents.clone()
    }

    /// Runs until [`Command::Shutdown`] or until the command channel is closed.
    pub async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        self.progress(0, "starting", "Starting");
        loop {
            self.turn();
            if let Some(downloads) = self.fetcher.new_downloads(self.clock.wall()) {
                (self.events)(Event::Downloads(Box::new(downloads)));
            }
            let (clock, wait) = (self.clock.clone(), self.wait());
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(Command::Shutdown) => break,
                    Some(command) => self.command(command),
                },
                Some(finished) = self.requests.join_next() => {
                    // A request that panicked is a bug that tokio has already reported.
                    if let Ok(finished) = finished {
                        self.finished(finished);
                    }
                }
                Some(messages) = self.making.made() => self.made(messages),
                () = clock.sleep(wait) => {}
            }
        }
        self.making.stop();
        self.send_state();
    }

    /// Does whatever is due now.
    fn turn(&mut self) {
        if !self.loaded && !self.options.disabled {
            self.loaded = true;
            self.load_cache();
        }
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let interval = if self.options.testing {
            CHECK_INTERVAL_TESTING
        } else {
            CHECK_INTERVAL
        };
        if monotonic.saturating_sub(self.checked) >= interval {
            self.checked = monotonic;
            let situation = self.situation(now, monotonic);
            self.publisher.check(&situation);
            self.report_listing(now);
        }
        if monotonic.saturating_sub(self.state_sent_at) >= STATE_INTERVAL {
            self.state_sent_at = monotonic;
            self.send_state();
        }
        if self.options.disabled {
            return;
        }
        if self.options.fetch {
            self.fetch(now, monotonic);
        }
        self.publish(now, monotonic);
    }

    /// Asks for what is due.
    fn fetch(&mut self, now: SystemTime, monotonic: Duration) {
        let directory = &self.options.cache_directory;
        let cached = || cache::read(directory, cache::CONSENSUS).ok()?;
        if let Some((index, request)) = self.fetcher.next(cached, &self.options, now, monotonic) {
            if !self.fetcher.is_live(now) {
                self.progress(
                    25,
                    "requesting_status",
                    "Asking for networkstatus consensus",
                );
            }
            self.request(index, Purpose::Fetch, request);
        }
        self.fetch_ns(now, monotonic);
        self.fetch_microdescs(now, monotonic);
        self.fetch_descriptors(now, monotonic);
    }

    /// Sends the lines of the state file.
    fn send_state(&mut self) {
        let mut lines = self.bandwidth.state();
        if self.options.bridge {
            lines.push(self.paths.state());
        }
        (self.events)(Event::State(lines));
    }

    /// Time until the next action if no message arrives.
    fn wait(&self) -> Duration {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let interval = if self.options.testing {
            CHECK_INTERVAL_TESTING
        } else {
            LONGEST_SLEEP
        };
        if self.options.disabled {
            return interval;
        }
        let publish = self
            .publisher
            .next_wake()
            .filter(|_| self.may_publish() || self.options.bridge)
            .map(|at| at.saturating_sub(monotonic));
        if !self.options.fetch {
            return publish.map_or(interval, |publish| publish.min(interval));
        }
        let fetch = self.fetcher.wait(now, monotonic);
        let ns = self.wait_for_ns(now, monotonic);
        let microdescs = self.wait_for_microdescs(now, monotonic);
        let descriptors = self.wait_for_descriptors(now, monotonic);
        [publish, fetch, ns, microdescs, descriptors]
            .into_iter()
            .flatten()
            .fold(interval, Duration::min)
    }

    /// Obeys a command.
    fn command(&mut self, command: Command) {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        match command {
            Command::Options(options) => {
                let kind = |of: &DirectoryOptions| (of.authorities.clone(), of.bridge);
                if kind(&options) != kind(&self.options) {
                    self.publisher.mark_dirty("authorities have changed");
                }
                let was_disabled = self.options.disabled;
                self.options = *options;
                self.documents
                    .set_front_page(self.options.front_page.clone());
                self.fetcher.options_changed(&self.options, monotonic);
                self.ns.options_changed(&self.options, monotonic);
                self.stop.send_replace(self.options.disabled);
                if was_disabled && !self.options.disabled {
                    // Failures while the network was switched off do not count.
                    self.fetcher.retry_now(monotonic);
                    self.ns.retry_now(monotonic);
                    self.lacking.retry_now();
                    self.lacking_descriptors.retry_now();
                    self.lacking_extra_infos.retry_now();
                    self.publisher.mark_dirty("config change");
                }
            }
            Command::Descriptor(descriptor) => {
                match &self.descriptor {
                    None => self.publisher.mark_dirty("initialized"),
                    Some(before) => {
                        if let Some(reason) = before.changed(&descriptor) {
                            self.publisher.mark_dirty(reason);
                        }
                    }
                }
                self.descriptor = Some(descriptor);
                self.report_listing(now);
                self.check_protocols();
            }
            Command::Publish(reason) => self.publisher.mark_dirty(reason),
            Command::Reachable { ipv4, ipv6 } => self.reachable = (ipv4, ipv6),
            Command::Bandwidth(totals) => self.bandwidth.note(now, totals),
            Command::Statistics(lines) => self.statistics = lines,
            Command::Overloaded(when) => self.overloaded = Some(start_of_hour(when)),
            // `run` ends the loop itself.
            Command::Shutdown => {}
        }
    }

    /// The parameters to follow.
    fn params(&self) -> Params {
        self.fetcher
            .consensus()
            .map(|consensus| consensus.params.clone())
            .unwrap_or_default()
    }

    /// True if a descriptor may be published at all.
    fn may_publish(&self) -> bool {
        let Some(descriptor) = &self.descriptor else {
            return false;
        };
        let consensus = self.fetcher.consensus();
        let assume = |of: fn(&Params) -> bool| {
            self.options.assume_reachable
                || consensus.is_some_and(|consensus| of(&consensus.params))
        };
        let ipv4 = self.reachable.0 || assume(|params| params.assume_reachable);
        let ipv6 = descriptor.ipv6.is_none()
            || self.reachable.1
            || assume(|params| params.assume_reachable_ipv6);
        self.options.publish && ipv4 && ipv6
    }

    /// Inputs of the rules of publication.
    fn situation(&self, now: SystemTime, monotonic: Duration) -> Situation {
        let listing = match &self.descriptor {
            Some(descriptor) if !self.options.bridge => {
                self.fetcher.listing(&descriptor.rsa_id(), now)
            }
            // No consensus lists a bridge.
            _ => OwnListing::Unknown,
        };
        let observed = self
            .bandwidth
            .observed(self.options.min_time_to_report_bandwidth);
        let cap = self
            .descriptor
            .as_ref()
            .and_then(|descriptor| descriptor.max_advertised);
        Situation {
            now,
            listing,
            uptime: monotonic.saturating_sub(self.started),
            observed: observed.min(cap.unwrap_or(u64::MAX)),
            testing: self.options.testing,
        }
    }

    /// Makes a descriptor if one is wanted, and uploads where it is due.
    fn publish(&mut self, now: SystemTime, monotonic: Duration) {
        let may = self.may_publish();
        // Clients ask a bridge itself for its descriptor, whether or not it is published.
        let may_make = may || self.options.bridge && self.descriptor.is_some();
        if let Some(reason) = self.publisher.wants(monotonic).filter(|_| may_make) {
            self.make(reason, now, monotonic);
        }
        if !may {
            return;
        }
        while let Some(id) = self.publisher.next_upload(monotonic) {
            let Some((signed, reason)) = &self.signed else {
                break;
            };
            let request = Request::Post {
                path: "/tor/",
                reason,
                body: signed.upload_body(),
            };
            let Some(index) = self
                .options
                .authorities
                .iter()
                .position(|authority| authority.identity == id)
            else {
                continue;
            };
            self.request(index, Purpose::Upload(self.generation), request);
        }
    }

    /// Signs a new descriptor.
    fn make(&mut self, reason: &'static str, now: SystemTime, monotonic: Duration) {
        let Some(descriptor) = &self.descriptor else {
            return;
        };
        let params = self.params();
        let situation = self.situation(now, monotonic);
        let moment = Moment {
            published: now,
            uptime: situation.uptime,
            observed: situation.observed,
            overload_general: self.overloaded,
            onion_key_lifetime: params.onion_key_lifetime,
            with_tap: self.tap.next(params.publish_dummy_tap_key),
            with_family: params.publish_family_list,
            history: self.bandwidth.lines(descriptor.relay_bandwidth_rate),
            statistics: self.statistics.clone(),
        };
        match descriptor.sign(&moment) {
            Ok(signed) => {
                self.generation = self.publisher.made(
                    now,
                    signed.observed,
                    monotonic,
                    self.options
                        .authorities
                        .iter()
                        .filter(|authority| bridge_paths::takes(authority, self.options.bridge))
                        .map(|authority| authority.identity),
                    self.options.testing,
                );
                let bridge = self.options.bridge;
                self.documents.set_own(descriptor.rsa_id(), &signed, bridge);
                self.signed = Some((signed, reason));
            }
            Err(error) => {
                self.publisher.give_up(now);
                (self.events)(Event::Message(Severity::Warn, format!("{error}.")));
            }
        }
    }

    /// Reads the cache files.
    fn load_cache(&mut self) {
        self.load_microdescs();
        let mut read = |name| {
            cache::read(&self.options.cache_directory, name).unwrap_or_else(|error| {
                (self.events)(Event::Message(
                    Severity::Warn,
                    format!("{error}; it will be fetched again."),
                ));
                None
            })
        };
        let (certs, consensus) = (read(cache::CERTS), read(cache::CONSENSUS));
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let news = self.fetcher.load(
            certs.as_deref(),
            consensus.as_deref(),
            &self.options,
            now,
            &mut self.rng,
        );
        self.documents.set_certs(self.fetcher.certs());
        for news in news {
            self.news(news, now, monotonic);
        }
        (self.events)(Event::CacheRead);
        self.load_ns();
    }

    /// Acts on what fetching led to.
    fn news(&mut self, news: News, now: SystemTime, monotonic: Duration) {
        match news {
            News::Consensus(adopted) => {
                let Adopted {
                    consensus,
                    signers,
                    text,
                    fetched,
                    ..
                } = *adopted;
                if fetched {
                    self.store(cache::CONSENSUS, &text);
                }
                // Before others can have it from here: who knows it uses relays that only it lists.
                self.adopted(Arc::clone(&consensus), now, monotonic);
                self.serve_consensus(&consensus, signers, text);
            }
            News::Certs(text) => {
                self.store(cache::CERTS, &text);
                self.documents.set_certs(self.fetcher.certs());
            }
            News::WaitingForCerts => {
                self.progress(40, "loading_keys", "Loading authority key certs")
            }
            News::Message(severity, text) => (self.events)(Event::Message(severity, text)),
        }
    }

    /// A new consensus is in use.
    fn adopted(&mut self, consensus: Arc<Consensus>, now: SystemTime, monotonic: Duration) {
        let live = consensus.is_live(now);
        if consensus
            .valid_after
            .duration_since(now)
            .is_ok_and(|early| early > EARLY_NOTICE)
        {
            self.skew(
                signed_seconds(now, consensus.valid_after),
                "the consensus".into(),
                monotonic,
            );
        }
        (self.events)(Event::Consensus(consensus));
        self.check_protocols();
        self.report_listing(now);
        if live {
            self.progress(
                75,
                "enough_dirinfo",
                "Loaded enough directory info to build circuits",
            );
            self.maybe_done(now);
        }
    }

    /// Writes a cache file; a full disk is no reason to stop.
    fn store(&mut self, name: &str, text: &str) {
        if let Err(error) = cache::write(&self.options.cache_directory, name, text) {
            (self.events)(Event::Message(
                Severity::Warn,
                format!("{error}; going on without."),
            ));
        }
    }
}

/// Published times of overload are hours, to reveal no more than needed.
fn start_of_hour(when: SystemTime) -> SystemTime {
    let since = when
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since - since % 3600)
}
