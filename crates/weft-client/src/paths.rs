//! The path selection of a client: weft-path's selector and its estimate of build times, over the newest
//! network.

use std::sync::Arc;

use rand::Rng;
use rand::rngs::StdRng;
use tor_netdir::NetDir;
use weft_cell::identity::RsaIdentity;
use weft_log::Line;
use weft_path::{
    Bridge, BuildTimes, BuildTimesOptions, GuardInfo, GuardTicket, GuardUse, Outcome,
    PathBiasOptions, PathError, PathOptions, RelayName, Relays, RoundTrips, Selector, Suspicion,
    Usage,
};
use weft_planted::{Fault, planted};

use crate::chooser::{BuildNews, BuildTimeouts, Chooser, Chosen};
use crate::circuits::ConfluxParams;
use crate::now::Now;

/// The parameters of a consensus that path selection needs beside the relays.
#[derive(Clone, Debug, PartialEq)]
pub struct PathParams {
    /// The limits for guards through which circuits fail (param-spec, `pb_…`).
    pub bias: PathBiasOptions,
    /// `cc_sendme_inc`, where the consensus selects congestion control by Vegas (proposal 324).
    pub congestion: Option<u8>,
    /// The parameters of conflux sets (`cfx_…`).
    pub conflux: ConfluxParams,
}

/// Path selection by the relays of a consensus.
#[derive(Debug)]
pub struct Paths {
    selector: Selector,
    times: BuildTimes,
    round_trips: RoundTrips,
    times_options: BuildTimesOptions,
    bias: PathBiasOptions,
    /// There is a network to choose from.
    ready: bool,
    congestion: Option<u8>,
    conflux: Option<ConfluxParams>,
    guards_dropped: bool,
    /// Log lines for the caller.
    lines: Vec<Line>,
}

impl Paths {
    /// Without a network; `state` are the lines of the state file.
    pub fn new(
        options: PathOptions,
        times_options: BuildTimesOptions,
        state: &[(String, String)],
        now: Now,
        rng: &mut StdRng,
    ) -> Self {
        let of = |key: &'static str| {
            state
                .iter()
                .filter(move |(found, _)| found.eq_ignore_ascii_case(key))
                .map(|(_, value)| value.as_str())
        };
        let forgets = planted(Fault::GuardsForgottenAtStart);
        let guards = of("Guard").filter(|_| !forgets);
        let selector = Selector::new(options, guards, now.wall);
        let params = weft_path::CbtParams::default();
        let lines = state
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let mut times = BuildTimes::new(times_options, params);
        let mut problems = Vec::new();
        if !times.load(lines, rng) {
            problems.push(Line::warn(
                "The state file's circuit build times do not fit together: ignored",
            ));
        }
        let mut round_trips = RoundTrips::new(round_trip_quantile(times_options));
        let lines = state
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        if !round_trips.load(lines) {
            problems.push(Line::warn(
                "The state file's round-trip times of circuits are damaged: ignored",
            ));
        }
        Paths {
            selector,
            times,
            round_trips,
            times_options,
            bias: PathBiasOptions::default(),
            ready: false,
            congestion: None,
            conflux: None,
            guards_dropped: false,
            lines: problems,
        }
    }

    /// Takes a new network. Returns whether the guards have changed.
    pub fn set_network(
        &mut self,
        network: &NetDir,
        params: &PathParams,
        now: Now,
        rng: &mut StdRng,
    ) -> bool {
        self.set_relays(Arc::new(Relays::new(network)), params, now, rng)
    }

    /// Sets relays that were parsed already: the clients of one process share them.
    pub fn set_relays(
        &mut self,
        relays: Arc<Relays>,
        params: &PathParams,
        now: Now,
        rng: &mut StdRng,
    ) -> bool {
        self.bias.clone_from(&params.bias);
        self.congestion = params.congestion;
        self.conflux = params.conflux.with_exits(relays.conflux_share());
        self.selector.set_path_bias(&self.bias);
        let cbt_params = relays.cbt_params().clone();
        let changed = self.selector.set_relays(relays, now.wall, rng);
        self.times.update(self.times_options, cbt_params);
        self.ready = true;
        changed
    }

    /// Takes what is known of bridges. Returns whether other guards are in use now.
    pub fn set_bridges(&mut self, bridges: Vec<Bridge>, now: Now, rng: &mut StdRng) -> bool {
        self.selector.set_bridges(bridges, now.wall, rng)
    }

    /// Returns true if bridges without a descriptor may be up again, as found since the last call.
    pub fn take_asks_bridges(&mut self) -> bool {
        self.selector.take_asks_bridges()
    }

    /// Returns true if some bridge can be asked for documents.
    pub fn has_usable_bridge(&self) -> bool {
        self.selector.has_usable_bridge()
    }

    /// The options in use.
    pub fn options(&self) -> &PathOptions {
        self.selector.options()
    }

    /// Stops choosing paths: the network is too old, or too little of it is known.
    pub fn lose_network(&mut self) {
        self.ready = false;
    }

    /// torrc has changed. True: circuits so far were chosen by other rules.
    pub fn set_options(
        &mut self,
        mut options: PathOptions,
        times: BuildTimesOptions,
        now: Now,
        rng: &mut StdRng,
    ) -> bool {
        options.path_bias = options.path_bias_set.over(&self.bias);
        self.times_options = times;
        let params = self.times.params().clone();
        self.times.update(times, params);
        self.round_trips.set_quantile(round_trip_quantile(times));
        let others = *self.selector.options() != options;
        self.selector.set_options(options, now.wall, rng);
        others
    }

    /// The guards, those that are used first in front.
    pub fn guards(&self) -> Vec<GuardInfo> {
        self.selector.guards()
    }

    /// DROPGUARDS: drops all guards; others are drawn.
    pub fn drop_guards(&mut self, now: Now, rng: &mut impl Rng) {
        self.selector.drop_guards(now.wall, rng);
        self.guards_dropped = true;
    }

    /// Returns true if guards were dropped since the last call: the present ones are new, even if
    /// they are the same relays.
    pub fn take_guards_dropped(&mut self) -> bool {
        std::mem::take(&mut self.guards_dropped)
    }

    /// DROPTIMEOUTS: how long building and measuring took so far does not count any more.
    pub fn drop_timeouts(&mut self) {
        self.times.forget();
        self.round_trips.forget();
    }

    /// The round trips of circuits.
    pub fn round_trips(&self) -> &RoundTrips {
        &self.round_trips
    }

    /// The lines of the state file that have changed: all values of each key.
    pub fn state_lines(&mut self) -> Vec<(&'static str, Vec<String>)> {
        let mut changed = Vec::new();
        if let Some(lines) = self.selector.state_lines()
            && !planted(Fault::GuardsNotSaved)
        {
            changed.push(("Guard", lines));
        }
        let times = self.times.state_lines();
        changed.extend(by_key(&BuildTimes::STATE_KEYS, times));
        let round_trips = self.round_trips.state_lines();
        changed.extend(by_key(&RoundTrips::STATE_KEYS, round_trips));
        changed
    }

    /// All lines of the state file, changed or not.
    #[must_use]
    pub fn all_state_lines(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut all = vec![("Guard", self.selector.all_state_lines())];
        let times = self.times.all_state_lines();
        all.extend(by_key(&BuildTimes::STATE_KEYS, Some(times)));
        let round_trips = self.round_trips.all_state_lines();
        all.extend(by_key(&RoundTrips::STATE_KEYS, Some(round_trips)));
        all
    }

    /// The log lines since the last call, those about suspicious guards among them.
    pub fn take_lines(&mut self) -> Vec<Line> {
        let mut lines = std::mem::take(&mut self.lines);
        let suspicions = self.selector.take_suspicions();
        lines.extend(
            suspicions
                .into_iter()
                .map(|(guard, suspicion)| suspicion_line(&guard.nickname, suspicion)),
        );
        lines
    }
}

/// A share of circuits that is used if torrc states none: `cbtquantile`'s default, and that of Schrock 2017, 4.2.
const QUANTILE: f64 = 0.8;

fn round_trip_quantile(options: BuildTimesOptions) -> f64 {
    options.quantile.unwrap_or(QUANTILE)
}

/// Lines of the state file as all values of each key. Nothing if there are no new lines.
fn by_key(
    keys: &'static [&'static str],
    lines: Option<Vec<(&'static str, String)>>,
) -> impl Iterator<Item = (&'static str, Vec<String>)> {
    lines.into_iter().flat_map(move |lines| {
        keys.iter().map(move |key| {
            let of_key = lines.iter().filter(|(found, _)| found == key);
            (*key, of_key.map(|(_, value)| value.clone()).collect())
        })
    })
}

fn suspicion_line(name: &str, suspicion: Suspicion) -> Line {
    match suspicion {
        Suspicion::Low => Line::notice(format!(
            "Your guard {name} is failing more circuits than usual. Most likely this means that the \
             network is overloaded"
        )),
        Suspicion::VeryLow => Line::warn(format!(
            "Your guard {name} is failing a very large amount of circuits. Most likely this means \
             that the network is overloaded, but it could also mean an attack against you or \
             potentially the guard itself"
        )),
        Suspicion::Extreme => Line::warn(format!(
            "Your guard {name} is failing an extremely large amount of circuits. This could \
             indicate a route manipulation attack, extreme network overload, or a bug"
        )),
    }
}

impl Chooser for Paths {
    type Guard = GuardTicket;

    fn path(
        &mut self,
        usage: &Usage,
        now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<GuardTicket>, PathError> {
        let path = self.selector.path(usage, now.wall, rng)?;
        Ok(Chosen {
            hops: path.hops,
            guard: path.guard,
        })
    }

    fn guard(
        &mut self,
        guard: &GuardTicket,
        outcome: Outcome,
        now: Now,
        rng: &mut StdRng,
    ) -> GuardUse {
        self.selector.guard_outcome(*guard, outcome, now.wall, rng)
    }

    fn bridge(&mut self, rsa: &RsaIdentity, now: Now) -> Option<GuardTicket> {
        let is_used = self.selector.options().use_bridges;
        is_used.then(|| self.selector.ticket_of(rsa, now.wall))?
    }

    fn settled_guards(&mut self, now: Now) -> Vec<(GuardTicket, GuardUse)> {
        self.selector.poll_guards(now.wall)
    }

    fn forget(&mut self, guard: &GuardTicket) {
        self.selector.forget(*guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        let probe = self.times_options.acceptance.checks_round_trip();
        let limit = self.round_trips.limit().filter(|_| probe);
        BuildTimeouts {
            timeout: self.times.timeout(),
            close: self.times.close_after(),
            measure: self.times.measures(),
            wants_circuits: self.times.wants_circuits() || probe && limit.is_none(),
            probe,
            round_trip: limit,
        }
    }

    fn built(&mut self, news: BuildNews, now: Now) {
        match news {
            BuildNews::Alive => self.times.note_alive(now.mono),
            BuildNews::Built { took, in_time } => self.times.note_built(took, in_time),
            BuildNews::TimedOut { first_hop } => {
                if self.times.note_timeout(first_hop) {
                    let line = "Many circuits time out: learning build times anew";
                    self.lines.push(Line::info(line));
                }
            }
            BuildNews::Abandoned { began } => self.times.note_abandoned(began, now.mono),
            BuildNews::RoundTrip { took } => {
                self.round_trips.note(took);
                if self.round_trips.is_empty() {
                    let line = "Many circuits are slow: learning round trips anew";
                    self.lines.push(Line::info(line));
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn congestion(&self) -> Option<u8> {
        self.congestion.filter(|_| self.ready)
    }

    fn conflux(&self) -> Option<ConfluxParams> {
        self.conflux.filter(|_| self.congestion().is_some())
    }

    fn find(&self, name: &RelayName) -> Option<weft_path::Hop> {
        self.selector.relays()?.find(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use rand::SeedableRng as _;
    use weft_path::Acceptance;

    use super::*;

    fn paths(state: &[(String, String)]) -> Paths {
        let now = Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        };
        let times = BuildTimesOptions {
            acceptance: Acceptance::Rtt,
            ..BuildTimesOptions::default()
        };
        let mut rng = StdRng::seed_from_u64(1);
        Paths::new(PathOptions::default(), times, state, now, &mut rng)
    }

    fn now() -> Now {
        Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        }
    }

    fn hop(number: u8) -> weft_path::Hop {
        weft_path::Hop {
            is_exit: true,
            is_dir_cache: true,
            supports_conflux: true,
            supports_cc: true,
            supports_ntor_v3: true,
            bandwidth: 1000,
            ..weft_path::Hop::of_bridge(
                format!("192.0.2.{number}:9001").parse().unwrap(),
                format!("relay{number}"),
                ([number; 20].into(), [number; 32].into()),
                [number; 32],
                &Default::default(),
            )
        }
    }

    /// Paths by a network of forty guards.
    fn in_network(rng: &mut StdRng) -> Paths {
        let relay = |number| weft_path::Listed {
            hop: hop(number),
            is_fast: true,
            is_middle_only: false,
            is_possible_guard: true,
            weights: [1; 3],
        };
        let until = now().wall + Duration::from_secs(3600);
        let relays = Relays::of_simulation((1..=40).map(relay), until);
        let params = PathParams {
            bias: PathBiasOptions::default(),
            congestion: Some(31),
            conflux: ConfluxParams::default(),
        };
        let mut paths = paths(&[]);
        paths.set_relays(Arc::new(relays), &params, now(), rng);
        paths
    }

    #[test]
    fn the_network_is_what_was_set_until_it_is_lost() {
        let name: RelayName = "relay7".parse().unwrap();
        let paths = paths(&[]);
        assert!(!paths.is_ready() && paths.find(&name).is_none() && paths.guards().is_empty());
        let mut paths = in_network(&mut StdRng::seed_from_u64(2));
        assert!(paths.is_ready());
        assert_eq!(paths.congestion(), Some(31));
        assert!(paths.conflux().is_some());
        assert_eq!(paths.find(&name).unwrap().rsa, hop(7).rsa);
        assert_eq!(paths.guards().len(), 20);
        paths.lose_network();
        assert!(!paths.is_ready());
        assert_eq!((paths.congestion(), paths.conflux()), (None, None));
    }

    #[test]
    fn guards_that_are_dropped_are_others_and_that_is_reported_once() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut paths = in_network(&mut rng);
        let before = paths.guards();
        assert!(!paths.take_guards_dropped());
        paths.drop_guards(now(), &mut rng);
        assert_ne!(paths.guards(), before);
        assert!(paths.take_guards_dropped() && !paths.take_guards_dropped());
    }

    #[test]
    fn options_are_a_change_if_they_are_others() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut paths = in_network(&mut rng);
        let times = BuildTimesOptions::default();
        let other = PathOptions {
            use_entry_guards: false,
            ..PathOptions::default()
        };
        let mut set = |options: &PathOptions| {
            let changed = paths.set_options(options.clone(), times, now(), &mut rng);
            assert_eq!(paths.options(), options);
            changed
        };
        assert!(!set(&PathOptions::default()));
        assert!(set(&other));
        assert!(!set(&other));
    }

    #[test]
    fn bridges_have_tickets_and_can_be_used_until_they_fail() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut paths = in_network(&mut rng);
        let guard = paths.guards()[0].rsa;
        assert!(paths.bridge(&guard, now()).is_none(), "it is no bridge");
        let bridges = PathOptions {
            use_bridges: true,
            ..PathOptions::default()
        };
        let times = BuildTimesOptions::default();
        paths.set_options(bridges, times, now(), &mut rng);
        assert!(!paths.has_usable_bridge());
        let bridge = Bridge {
            addr: hop(99).addrs[0],
            rsa: Some(hop(99).rsa),
            hop: Some(hop(99)),
            family: Default::default(),
        };
        assert!(
            !paths.set_bridges(vec![bridge], now(), &mut rng),
            "the same sample"
        );
        assert!(paths.has_usable_bridge() && !paths.take_asks_bridges());
        let ticket = paths.bridge(&hop(99).rsa, now()).unwrap();
        let failed = paths.guard(&ticket, Outcome::GuardFailed, now(), &mut rng);
        assert_eq!(failed, GuardUse::Never);
        assert!(paths.settled_guards(now()).is_empty());
        paths.forget(&ticket);
        assert!(!paths.has_usable_bridge());
    }

    fn learn(paths: &mut Paths) {
        let now = Now {
            mono: Instant::now(),
            wall: SystemTime::UNIX_EPOCH,
        };
        for number in 0..150 {
            let took = Duration::from_millis(200 + 7 * (number % 50));
            paths.built(BuildNews::RoundTrip { took }, now);
        }
    }

    #[test]
    fn round_trips_survive_a_restart() {
        let mut first = paths(&[]);
        assert!(first.timeouts().probe && first.timeouts().wants_circuits);
        assert_eq!(first.timeouts().round_trip, None);
        learn(&mut first);
        let state: Vec<(String, String)> = first
            .state_lines()
            .into_iter()
            .flat_map(|(key, values)| values.into_iter().map(move |value| (key.to_owned(), value)))
            .collect();
        let mut next = paths(&state);
        assert_eq!(next.round_trips().len(), 150);
        assert!(next.timeouts().round_trip.is_some());
        assert!(next.take_lines().is_empty());
        // Lines on file are not written again.
        assert!(
            next.state_lines()
                .iter()
                .all(|(key, _)| *key != "CircuitRoundTrips")
        );
    }

    #[test]
    fn a_damaged_state_file_is_said_to_be_one_and_learning_begins_anew() {
        let state = [("CircuitRoundTrips".to_owned(), "300,x".to_owned())];
        let mut damaged = paths(&state);
        assert!(damaged.round_trips().is_empty());
        let lines = format!("{:?}", damaged.take_lines());
        assert!(
            lines.contains("round-trip times of circuits are damaged"),
            "{lines}"
        );
    }

    /// Each kind of line by itself: one that is damaged does not take the other with it, and is one line in the log.
    #[test]
    fn damaged_lines_restore_the_defaults_of_their_kind_alone() {
        let line = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let times = [
            ("TotalBuildTimes", "150"),
            ("CircuitBuildTimeBin", "305 100"),
            ("CircuitBuildTimeBin", "505 50"),
        ]
        .map(line);
        let trips = vec!["200000"; 100].join(",");
        let trips = [line(("CircuitRoundTrips", &trips))];
        let whole = paths(&[&times[..], &trips[..]].concat());
        assert!(whole.times.is_computed() && whole.timeouts().round_trip.is_some());
        for (key, value) in [
            ("TotalBuildTimes", "many"),
            ("CircuitBuildTimeBin", "505"),
            ("CircuitBuildTimeBin", "-5 1"),
            ("CircuitBuildAbandonedCount", "NaN"),
        ] {
            let damaged = [&times[..], &trips[..], &[line((key, value))]].concat();
            let mut damaged = paths(&damaged);
            assert_eq!(damaged.times.timeout(), Duration::from_secs(60), "{value}");
            assert!(!damaged.times.is_computed() && damaged.times.wants_circuits());
            assert!(damaged.timeouts().round_trip.is_some(), "{key} {value}");
            assert_eq!(damaged.take_lines().len(), 1, "{key} {value}");
        }
        for value in ["", "1,,2", "0", "1e5", "inf", "\u{0}"] {
            let damaged = [
                &times[..],
                &trips[..],
                &[line(("CircuitRoundTrips", value))],
            ]
            .concat();
            let mut damaged = paths(&damaged);
            assert!(damaged.times.is_computed(), "{value}");
            assert!(damaged.round_trips().is_empty(), "{value}");
            assert_eq!(damaged.timeouts().round_trip, None, "{value}");
            assert_eq!(damaged.take_lines().len(), 1, "{value}");
            // New times replace the damaged ones.
            learn(&mut damaged);
            assert!(damaged.timeouts().round_trip.is_some(), "{value}");
        }
    }

    #[test]
    fn dropping_timeouts_forgets_round_trips() {
        let mut paths = paths(&[]);
        learn(&mut paths);
        paths.drop_timeouts();
        assert_eq!(paths.timeouts().round_trip, None);
        assert!(
            paths
                .state_lines()
                .iter()
                .any(|(key, values)| *key == "CircuitRoundTrips" && values.is_empty())
        );
    }
}
