//! The asynchronous task that keeps a client's directory.

mod answers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::asking::{Asked, ask};
use super::building::{Building, Progress};
use super::protocols;
use super::sources::Sources;
use super::{ClientHandle, ClientOptions, DirStreams, Network, Order};
use crate::authority::signers;
use crate::cache;
use crate::clock::Clock;
use crate::command::{DirectoryOptions, Event, Severity};
use crate::consensus::Consensus;
use crate::fetch::{Adopted, Contents, Fetcher, News};
use crate::http::{Limits, Request, Response};
use crate::microdesc::{self, Batch, MicrodescFetch, MicrodescStore};
use crate::paths::newest_certs_path;
use crate::schedule::Earliness;
use crate::task::EventSink;

/// Orders that may wait.
const QUEUE: usize = 16;
/// Longest time between looks at the wall clock, so that a jump of it is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// Difference of clocks that is worth a warning (C tor `ALLOW_DIRECTORY_TIME_SKEW`).
const TOLERATED_SKEW: i64 = 30 * 60;
/// Warnings about the clock are at least this far apart.
const SKEW_INTERVAL: Duration = Duration::from_secs(3600);

/// The purpose of a request.
#[derive(Debug)]
enum Purpose {
    /// Consensus or certificates: the [`Fetcher`] knows.
    Status,
    /// Certificates, while the first consensus is on its way.
    Certs,
    /// These microdescriptors.
    Microdescs(Batch),
}

/// A request that ended.
#[derive(Debug)]
struct Finished {
    /// Its purpose.
    purpose: Purpose,
    /// Wall clock when it was sent.
    sent: SystemTime,
    /// Its result.
    asked: Asked,
}

/// A client's directory. The events that it sends are [`Event::Bootstrap`] (C tor's phases from
/// 25 to 75 percent), [`Event::Consensus`], [`Event::ClockSkew`] and [`Event::Message`].
pub struct ClientDirectory {
    /// Settings.
    options: ClientOptions,
    /// The settings in the fetcher's form.
    fetching: DirectoryOptions,
    /// Time.
    clock: Arc<dyn Clock>,
    /// Randomness of schedules and of the choice of sources.
    rng: StdRng,
    /// Where streams come from.
    streams: Arc<dyn DirStreams>,
    /// Where events go.
    events: EventSink,
    /// Messages from the node.
    orders: mpsc::Receiver<Order>,
    /// Where networks go.
    network: watch::Sender<Option<Arc<Network>>>,
    /// Consensus and certificates.
    fetcher: Fetcher,
    /// Microdescriptors that are lacking.
    lacking: MicrodescFetch,
    /// Microdescriptors that are there.
    store: MicrodescStore,
    /// The newest consensus, as far as it has been completed.
    building: Option<Building>,
    /// The directories to ask.
    sources: Sources,
    /// Some bridge can be asked.
    bridges: bool,
    /// Requests underway.
    requests: JoinSet<Finished>,
    /// By which they report that a directory has been reached.
    reached: (mpsc::Sender<()>, mpsc::Receiver<()>),
    /// True once the cache files have been read.
    loaded: bool,
    /// True once certificates have been requested together with the first consensus, or are not
    /// needed.
    certs_begun: bool,
    /// True while certificates are being fetched; a consensus that lacks them waits for these.
    certs_underway: bool,
    /// Progress of the bootstrap, in percent, as last reported.
    bootstrap: Option<u8>,
    /// True if the network became unusable, so that its return is worth a notice.
    was_lost: bool,
    /// Presence of exits in the network, as last logged.
    exits_logged: Option<bool>,
    /// When the last warning about the clock was sent.
    skew_warned_at: Option<Duration>,
    /// Protocols that we lack, and whether they are required, as last reported.
    protocols_reported: Option<(bool, String)>,
}

impl ClientDirectory {
    /// A directory that has not begun, and the handle to it. `seed` is random in a node, fixed in
    /// a test.
    pub fn new(
        options: ClientOptions,
        seed: [u8; 32],
        streams: Arc<dyn DirStreams>,
        clock: Arc<dyn Clock>,
        events: EventSink,
    ) -> (Self, ClientHandle) {
        let (sender, orders) = mpsc::channel(QUEUE);
        let network = watch::Sender::new(None);
        let handle = ClientHandle {
            orders: sender,
            network: network.subscribe(),
        };
        let mut rng = StdRng::from_seed(seed);
        let fetching = fetching(&options);
        let directory = Self {
            fetcher: Fetcher::for_client(&fetching, clock.monotonic(), &mut rng),
            lacking: lacking(&options),
            store: MicrodescStore::default(),
            building: None,
            sources: Sources::of(&options),
            bridges: false,
            requests: JoinSet::new(),
            reached: mpsc::channel(1),
            loaded: false,
            certs_begun: false,
            certs_underway: false,
            bootstrap: None,
            was_lost: false,
            exits_logged: None,
            skew_warned_at: None,
            protocols_reported: None,
            fetching,
            options,
            clock,
            rng,
            streams,
            events,
            orders,
            network,
        };
        (directory, handle)
    }

    /// Runs until all handles are dropped.
    pub async fn run(mut self) {
        loop {
            self.turn();
            if let Some(downloads) = self.fetcher.new_downloads(self.clock.wall()) {
                (self.events)(Event::Downloads(Box::new(downloads)));
            }
            let (clock, wait) = (self.clock.clone(), self.wait());
            tokio::select! {
                order = self.orders.recv() => match order {
                    None => break,
                    Some(order) => self.obey(order),
                },
                Some(finished) = self.requests.join_next() => {
                    // A request that panicked is a bug that tokio has already reported.
                    if let Ok(finished) = finished {
                        self.finished(finished);
                    }
                }
                Some(()) = self.reached.1.recv() => self.reached(),
                () = clock.sleep(wait) => {}
            }
        }
    }

    /// A directory has been reached and is being asked for a consensus or certificates.
    fn reached(&mut self) {
        if !self.fetcher.is_live(self.clock.wall()) && !self.fetcher.is_waiting_for_certs() {
            self.progress(
                25,
                "requesting_status",
                "Asking for networkstatus consensus",
            );
        }
    }

    /// Obeys the node.
    fn obey(&mut self, order: Order) {
        let monotonic = self.clock.monotonic();
        match order {
            Order::Options(options) => {
                self.options = *options;
                self.fetching = fetching(&self.options);
                self.fetcher.options_changed(&self.fetching, monotonic);
                self.sources = Sources::of(&self.options);
                self.lacking.set_patience(patience(&self.options));
                // Failures while the network was switched off do not count.
                self.lacking.retry_now();
            }
            Order::Bridges(usable) => {
                if usable && !self.bridges {
                    // As after a failure that is forgotten (C tor's `routerlist_retry_directory_downloads`).
                    self.fetcher.options_changed(&self.fetching, monotonic);
                    self.lacking.retry_now();
                }
                self.bridges = usable;
            }
        }
    }

    /// Reads the cache files.
    fn load(&mut self) {
        let Some(directory) = self.options.cache_directory.clone() else {
            return;
        };
        let now = self.clock.wall();
        if let Err(error) = self.store.load(&directory, now) {
            self.warn(format!("{error}; it will be fetched again."));
        }
        let mut read = |name| {
            cache::read(&directory, name).unwrap_or_else(|error| {
                self.warn(format!("{error}; it will be fetched again."));
                None
            })
        };
        let (certs, consensus) = (read(cache::CERTS), read(cache::CONSENSUS));
        let news = self.fetcher.load(
            certs.as_deref(),
            consensus.as_deref(),
            &self.fetching,
            now,
            &mut self.rng,
        );
        self.news(news);
    }

    /// Asks for certificates together with the first consensus: they are needed in any case, and
    /// come as soon (C tor asks for those that it lacks at the start, too).
    fn ask_for_certs(&mut self) {
        let signers = signers(&self.options.authorities);
        if signers.is_empty() || !self.fetcher.certs().is_empty() {
            return;
        }
        self.certs_underway = true;
        self.fetcher.certs_asked();
        let request = Request::get(newest_certs_path(&signers));
        self.ask(Purpose::Certs, request);
    }

    /// True if the next request must wait because its certificates are already being fetched.
    fn is_held(&self) -> bool {
        self.certs_underway && self.fetcher.is_waiting_for_certs()
    }

    /// Does whatever is due now.
    fn turn(&mut self) {
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        self.check_network(now);
        if self.options.disabled {
            return;
        }
        if !self.loaded {
            self.loaded = true;
            self.load();
        }
        if !self.can_ask() {
            return;
        }
        if !self.certs_begun {
            self.certs_begun = true;
            self.ask_for_certs();
        }
        if !self.is_held()
            && let Some((_, request)) = self.next_status(now, monotonic)
        {
            self.ask(Purpose::Status, request);
        }
        let usable = |building: &Building| building.consensus().is_reasonably_live(now);
        if !self.building.as_ref().is_some_and(usable) {
            return;
        }
        while let Some(batch) = self.lacking.next(monotonic) {
            let request = Request::get(microdesc::path(&batch));
            self.ask(Purpose::Microdescs(batch), request);
        }
    }

    /// A request for a consensus or certificates.
    fn next_status(&mut self, now: SystemTime, monotonic: Duration) -> Option<(usize, Request)> {
        let directory = &self.options.cache_directory;
        let cached = || cached_consensus(directory.as_deref());
        self.fetcher.next(cached, &self.fetching, now, monotonic)
    }

    /// True if some directory may be asked.
    fn can_ask(&self) -> bool {
        self.options.fetch && (self.bridges || !self.options.by_bridges)
    }

    /// Time until the next action if no message arrives.
    fn wait(&self) -> Duration {
        if self.options.disabled || !self.can_ask() {
            return LONGEST_SLEEP;
        }
        let (now, monotonic) = (self.clock.wall(), self.clock.monotonic());
        let status = self
            .fetcher
            .wait(now, monotonic)
            .filter(|_| !self.is_held());
        let microdescs = match &self.building {
            Some(building) if building.consensus().is_reasonably_live(now) => {
                self.lacking.wait(monotonic)
            }
            _ => None,
        };
        [status, microdescs]
            .into_iter()
            .flatten()
            .fold(LONGEST_SLEEP, Duration::min)
    }

    /// Starts a request.
    fn ask(&mut self, purpose: Purpose, request: Request) {
        let monotonic = self.clock.monotonic();
        let guards = self.network.borrow().is_some();
        let bootstrap = &self.options.bootstrap;
        let first = (!guards && matches!(purpose, Purpose::Status)).then_some(bootstrap);
        let max_tries = bootstrap.max_tries;
        let candidates = (self.sources).candidates(guards, first, monotonic, &mut self.rng);
        let (streams, clock) = (self.streams.clone(), self.clock.clone());
        let limits = Limits::with_stall(self.options.max_stall);
        let reached = matches!(purpose, Purpose::Status).then(|| self.reached.0.clone());
        self.requests.spawn(async move {
            let reached = || {
                if let Some(reached) = reached {
                    // It is about progress only.
                    let _ = reached.try_send(());
                }
            };
            Finished {
                purpose,
                sent: clock.wall(),
                asked: ask(
                    streams, candidates, max_tries, request, limits, clock, reached,
                )
                .await,
            }
        });
    }

    /// Acts on what fetching consensus and certificates led to.
    fn news(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Consensus(adopted) => self.adopted(*adopted),
                News::Certs(text) => self.write(cache::CERTS, &text),
                News::WaitingForCerts => {
                    self.progress(40, "loading_keys", "Loading authority key certs");
                }
                News::Message(severity, text) => self.message(severity, text),
            }
        }
    }

    /// A new consensus is in use: complete it with microdescriptors.
    fn adopted(&mut self, adopted: Adopted) {
        // The fetcher's flavour lists relays.
        let Contents::Relays(document) = adopted.contents else {
            return;
        };
        let now = self.clock.wall();
        if adopted.fetched {
            self.write(cache::CONSENSUS, &adopted.text);
        }
        (self.events)(Event::Consensus(adopted.consensus.clone()));
        self.check_protocols(&adopted.consensus);
        let before = self.network.borrow().clone();
        let (building, broken) = Building::new(
            adopted.consensus.clone(),
            *document,
            self.options.paths_needed,
            before.as_deref(),
            &self.store,
        );
        if let Some(problem) = broken {
            self.warn(format!(
                "Ignoring a cached microdescriptor that cannot be read ({problem})."
            ));
        }
        self.store
            .listed(building.listed(), adopted.consensus.valid_after);
        self.lacking
            .want(building.missing(), self.clock.monotonic());
        let lacking = self.lacking.lacking();
        self.building = Some(building);
        if lacking > 0 && adopted.consensus.is_reasonably_live(now) {
            self.progress(45, "requesting_descriptors", "Asking for relay descriptors");
        }
        self.advance();
    }

    /// Compares what a consensus wants of clients with what this one speaks.
    fn check_protocols(&mut self, consensus: &Consensus) {
        let missing = protocols::missing(&consensus.client_protocols);
        if missing == self.protocols_reported {
            return;
        }
        self.protocols_reported.clone_from(&missing);
        let (required, protocols) = missing.unwrap_or_default();
        (self.events)(Event::MissingProtocols {
            required,
            protocols,
        });
    }

    /// Hands out the network if that is possible now, and reports progress.
    fn advance(&mut self) {
        let now = self.clock.wall();
        let Some(building) = &mut self.building else {
            return;
        };
        if !building.consensus().is_reasonably_live(now) {
            return;
        }
        match building.progress(self.options.paths_needed) {
            Progress::Lacking { done, status } => {
                #[expect(clippy::cast_possible_truncation, reason = "at most 24")]
                let percent = 50 + (done * 24.0) as u8;
                self.progress(percent, "loading_descriptors", "Loading relay descriptors");
                self.message(
                    Severity::Info,
                    format!("We need more microdescriptors: {status}"),
                );
            }
            Progress::Enough { has_exits } => {
                let first = !building.is_handed_out();
                // While requests are underway more comes in a moment.
                if !first && self.lacking.is_underway() {
                    return;
                }
                let Some(network) = building.hand_out() else {
                    return;
                };
                self.network.send_replace(Some(Arc::new(network)));
                self.report_enough(has_exits);
            }
        }
    }

    /// The network can be used.
    fn report_enough(&mut self, has_exits: bool) {
        if self.exits_logged != Some(has_exits) {
            if !has_exits {
                self.message(
                    Severity::Notice,
                    "The current consensus has no exit nodes. Weft can only build internal paths, such as paths to onion services.".into(),
                );
            } else if self.exits_logged.is_some() {
                self.message(
                    Severity::Notice,
                    "The current consensus contains exit nodes. Weft can build exit and internal paths.".into(),
                );
            }
            self.exits_logged = Some(has_exits);
        }
        if self.bootstrap.is_none_or(|percent| percent < 75) || self.was_lost {
            let severity = if self.was_lost {
                Severity::Notice
            } else {
                Severity::Info
            };
            self.was_lost = false;
            self.message(
                severity,
                "We now have enough directory information to build circuits.".into(),
            );
        }
        self.progress(
            75,
            "enough_dirinfo",
            "Loaded enough directory info to build circuits",
        );
    }

    /// Takes the network back when it has become too old.
    fn check_network(&mut self, now: SystemTime) {
        let expired = |network: &Option<Arc<Network>>| {
            network
                .as_ref()
                .is_some_and(|network| !network.is_usable(now))
        };
        if !expired(&self.network.borrow()) {
            return;
        }
        self.network.send_replace(None);
        self.was_lost = true;
        self.message(
            Severity::Notice,
            "Our directory information is no longer up-to-date enough to build circuits: We have no recent usable consensus.".into(),
        );
    }

    /// Compares our clock with a directory's.
    fn check_clock(&mut self, response: &Response, sent: SystemTime, name: &str) {
        let Some(date) = response.date else {
            return;
        };
        let seconds = crate::clock::signed_seconds(sent, date);
        let monotonic = self.clock.monotonic();
        let recently = self
            .skew_warned_at
            .is_some_and(|at| monotonic.saturating_sub(at) < SKEW_INTERVAL);
        if seconds.abs() > TOLERATED_SKEW && !recently {
            self.skew_warned_at = Some(monotonic);
            (self.events)(Event::ClockSkew {
                seconds,
                source: name.to_string(),
            });
        }
    }

    /// Writes a cache file; a full disk is no reason to stop.
    fn write(&mut self, name: &str, text: &str) {
        if let Some(directory) = &self.options.cache_directory
            && let Err(error) = cache::write(directory, name, text)
        {
            self.warn(format!("{error}; going on without."));
        }
    }

    /// Reports how far the start has come; never goes back.
    fn progress(&mut self, percent: u8, tag: &'static str, summary: &'static str) {
        if self.bootstrap.is_none_or(|before| percent > before) {
            self.bootstrap = Some(percent);
            (self.events)(Event::Bootstrap {
                percent,
                tag,
                summary,
            });
        }
    }

    /// Something for the log.
    fn message(&mut self, severity: Severity, text: String) {
        (self.events)(Event::Message(severity, text));
    }

    /// A warning.
    fn warn(&mut self, text: String) {
        self.message(Severity::Warn, text);
    }
}

/// The consensus in the cache file, which a diff may begin at.
fn cached_consensus(directory: Option<&Path>) -> Option<String> {
    cache::read(directory?, cache::CONSENSUS).ok()?
}

/// The microdescriptors that are lacking, of which nothing is known yet.
fn lacking(options: &ClientOptions) -> MicrodescFetch {
    let mut lacking = MicrodescFetch::new(options.testing, options.download_initial_delay);
    lacking.set_patience(patience(options));
    lacking
}

/// Time that a few missing microdescriptors wait for more. Clients that fetch early do not wait.
fn patience(options: &ClientOptions) -> Duration {
    match options.earliness {
        Earliness::Usual => options.max_interval_without_request,
        Earliness::Early | Earliness::ExtraEarly => Duration::ZERO,
    }
}

/// The fetcher's settings, from those of a client.
fn fetching(options: &ClientOptions) -> DirectoryOptions {
    DirectoryOptions {
        consensus_initial_delay: options.initial_delay,
        earliness: options.earliness,
        max_stall: options.max_stall,
        ..DirectoryOptions::new(
            options.authorities.clone(),
            options.cache_directory.clone().unwrap_or_default(),
            options.testing,
        )
    }
}
