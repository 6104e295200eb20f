//! The bridges of a client: requests for their descriptors, and their state (C tor: bridges.c).
//!
//! A bridge without a fingerprint in torrc is connected to first: it is the relay that answers
//! there. Its descriptor is requested from itself, again every three hours, and after a failure
//! with growing, randomised waits. A bridge with a known descriptor is a guard
//! ([`weft_path::Bridge`]).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt as _};
use weft_cell::identity::RsaIdentity;
use weft_config::options::BridgeLine;
use weft_config::options::BridgeOptions;
use weft_log::Line;
use weft_path::{Bridge, Hop, PathOptions, StatedFamily};

/// The least wait after a failure.
const LEAST: Duration = Duration::from_secs(1);

/// Something to do about a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeTask {
    /// Connect to it, to find out who it is ([`Client::meet`](crate::Client::meet)).
    Meet(SocketAddr),
    /// Ask it for its descriptor; the answer goes to [`Bridges::answered`].
    Ask(SocketAddr, RsaIdentity),
}

/// The pluggable transports of a client, as far as they matter to bridges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transports {
    /// Transports that can be used.
    pub ready: BTreeSet<String>,
    /// Some programs have not printed all their transports yet: bridges wait for theirs.
    pub pending: bool,
    /// Transports that a line of torrc names, usable or not.
    pub named: BTreeSet<String>,
}

/// The parts of a bridge's descriptor that paths need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedBridge {
    /// The hop of circuits that it is.
    pub hop: Hop,
    /// The families that it states.
    pub family: StatedFamily,
}

impl From<Hop> for DescribedBridge {
    /// One that states no family.
    fn from(hop: Hop) -> Self {
        let family = StatedFamily::default();
        Self { hop, family }
    }
}

#[derive(Clone, Debug)]
struct Known {
    line: BridgeLine,
    rsa: Option<RsaIdentity>,
    described: Option<DescribedBridge>,
    /// When it is asked again; `None`: not as long as torrc and transports are as they are.
    next: Option<Instant>,
    /// The last wait after a try.
    wait: Duration,
    /// It is being asked.
    asked: bool,
}

/// The bridges of torrc, their descriptors, and the tasks to fetch them.
#[derive(Debug)]
pub struct Bridges {
    options: BridgeOptions,
    all: Vec<Known>,
    transports: Transports,
    lines: Vec<Line>,
}

impl Default for Bridges {
    /// Without bridges; the transports are unknown until the first
    /// [`set_transports`](Bridges::set_transports).
    fn default() -> Self {
        Bridges {
            options: BridgeOptions::default(),
            all: Vec::new(),
            transports: Transports {
                pending: true,
                ..Transports::default()
            },
            lines: Vec::new(),
        }
    }
}

impl Bridges {
    /// Replaces the bridges of torrc. Information about bridges that stay is kept. Returns true if
    /// something has changed.
    pub fn configure(&mut self, options: &BridgeOptions, now: Instant) -> bool {
        let drops = options.reload_drops_descriptors;
        let changed = self.options != *options || drops;
        let mut before = std::mem::take(&mut self.all);
        let wanted = options.bridges.iter().filter(|_| options.in_use);
        self.all = wanted
            .map(|line| {
                let known = before.iter().position(|known| known.line == *line);
                let mut known = match known {
                    Some(at) => before.swap_remove(at),
                    None => Known {
                        rsa: line.rsa,
                        line: line.clone(),
                        described: None,
                        next: Some(now),
                        wait: Duration::ZERO,
                        asked: false,
                    },
                };
                if drops {
                    known.described = None;
                }
                // A request that failed may be allowed by now.
                if known.described.is_none() {
                    known.retry(now);
                }
                known
            })
            .collect();
        self.options = options.clone();
        changed
    }

    /// Other transports can be used: bridges that need them are tried at once.
    pub fn set_transports(&mut self, transports: Transports, now: Instant) {
        for known in &mut self.all {
            let lacked = |name: &String| !self.transports.ready.contains(name);
            if known.line.transport.as_ref().is_some_and(lacked) {
                known.retry(now);
            }
        }
        self.transports = transports;
    }

    /// Returns true if bridges are in use.
    pub fn are_used(&self) -> bool {
        self.options.in_use
    }

    /// The bridges for path selection.
    pub fn for_paths(&self) -> Vec<Bridge> {
        let all = self.all.iter();
        all.map(|known| {
            let described = known.described.clone();
            let (hop, family) = described.map(|of| (of.hop, of.family)).unzip();
            Bridge {
                addr: known.line.addr,
                rsa: known.rsa,
                hop,
                family: family.unwrap_or_default(),
            }
        })
        .collect()
    }

    /// Returns true if this relay is a bridge that is reached by a transport. A zero identity
    /// stands for a bridge that has not been met.
    pub fn is_by_transport(&self, rsa: &RsaIdentity) -> bool {
        let mut all = self.all.iter();
        all.any(|known| {
            let is_it = known.rsa.map_or(rsa.is_zero(), |known| known == *rsa);
            is_it && known.line.transport.is_some()
        })
    }

    /// Tasks that are due. Each counts as a try.
    pub fn due(
        &mut self,
        paths: &PathOptions,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Vec<BridgeTask> {
        let mut tasks = Vec::new();
        for known in &mut self.all {
            if known.asked || known.next.is_none_or(|next| next > now) {
                continue;
            }
            let addr = known.line.addr;
            let bridge = Bridge {
                addr,
                rsa: known.rsa,
                hop: None,
                family: StatedFamily::default(),
            };
            if bridge.is_excluded(paths) {
                known.next = None;
                let line = Line::warn("Not using bridge at ").client(addr);
                self.lines.push(line.text(": it is in ExcludeNodes."));
                continue;
            }
            if let Some(name) = &known.line.transport
                && !self.transports.ready.contains(name)
            {
                // C tor has all bridges wait then, but a program may never be ready.
                if self.transports.pending {
                    continue;
                }
                known.next = None;
                let line = Line::warn("Can't use bridge at ").client(addr);
                let why = match self.transports.named.contains(name) {
                    false => format!(": there is no configured transport called \"{name}\"."),
                    true => format!(": the transport \"{name}\" does not run."),
                };
                self.lines.push(line.text(why));
                continue;
            }
            known.tried(&self.options, now, rng);
            if !bridge.is_allowed(paths) {
                let line = Line::notice("Bridge at '").client(addr);
                let why = "' isn't reachable by our firewall policy. Skipping.";
                self.lines.push(line.text(why));
                continue;
            }
            tasks.push(match known.rsa {
                None => BridgeTask::Meet(addr),
                Some(rsa) => {
                    known.asked = true;
                    BridgeTask::Ask(addr, rsa)
                }
            });
        }
        tasks
    }

    /// A link to this address has proved the relay's identity. True: the relay is a bridge that had
    /// no known identity.
    pub fn met(&mut self, addr: SocketAddr, rsa: RsaIdentity, now: Instant) -> bool {
        let mut all = self.all.iter_mut();
        let Some(known) = all.find(|known| known.line.addr == addr && known.rsa.is_none()) else {
            return false;
        };
        known.rsa = Some(rsa);
        known.retry(now);
        let line = Line::notice(format!("Learned fingerprint {rsa} for bridge ")).client(addr);
        let with = match &known.line.transport {
            Some(name) => format!(" (with transport '{name}')."),
            None => ".".to_owned(),
        };
        self.lines.push(line.text(with));
        true
    }

    /// A bridge sent its descriptor, or did not. True: path selection has to know.
    pub fn answered(
        &mut self,
        addr: SocketAddr,
        answer: Result<impl Into<DescribedBridge>, String>,
        now: Instant,
    ) -> bool {
        let Some(known) = self.all.iter_mut().find(|known| known.line.addr == addr) else {
            return false;
        };
        known.asked = false;
        let answer = answer.map(Into::<DescribedBridge>::into);
        let described = answer.and_then(|of| match known.rsa == Some(of.hop.rsa) {
            true => Ok(of),
            false => Err(format!(
                "it sent the descriptor of another relay, ${}",
                of.hop.rsa
            )),
        });
        match described {
            Ok(described) => {
                known.wait = Duration::ZERO;
                known.next = Some(now + self.options.refetch_after.max(LEAST));
                let is_new = known.described.as_ref() != Some(&described);
                if is_new {
                    let (rsa, name) = (described.hop.rsa, &described.hop.nickname);
                    let text = format!("new bridge descriptor '{name}' (fresh): ${rsa}~{name} at ");
                    self.lines.push(Line::notice(text).client(addr.ip()));
                }
                known.described = Some(described);
                is_new
            }
            Err(why) => {
                let line = Line::info("No descriptor of the bridge at ").client(addr);
                self.lines.push(line.text(format!(": {why}")));
                false
            }
        }
    }

    /// Takes descriptors that were kept in an earlier run, for bridges without one: the bridges can
    /// be used, but are asked for new descriptors nevertheless. True: path selection must be
    /// updated.
    pub fn restore<D: Into<DescribedBridge>>(
        &mut self,
        kept: impl Fn(SocketAddr, RsaIdentity) -> Option<D>,
    ) -> bool {
        let mut is_new = false;
        for known in self
            .all
            .iter_mut()
            .filter(|known| known.described.is_none())
        {
            let addr = known.line.addr;
            let described = known.rsa.and_then(|rsa| kept(addr, rsa)).map(D::into);
            let Some(described) = described.filter(|of| known.rsa == Some(of.hop.rsa)) else {
                continue;
            };
            let (rsa, name) = (described.hop.rsa, &described.hop.nickname);
            let text = format!("new bridge descriptor '{name}' (cached): ${rsa}~{name} at ");
            self.lines.push(Line::notice(text).client(addr.ip()));
            known.described = Some(described);
            is_new = true;
        }
        is_new
    }

    /// Bridges that failed may be up again: those without a descriptor are asked at once (entrynodes.c,
    /// `mark_guard_maybe_reachable`).
    pub fn retry(&mut self, now: Instant) {
        let without = self
            .all
            .iter_mut()
            .filter(|known| known.described.is_none());
        without.for_each(|known| known.retry(now));
    }

    /// The log lines since the last call.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }
}

impl Known {
    fn retry(&mut self, now: Instant) {
        self.next = Some(now);
        self.wait = Duration::ZERO;
    }

    /// Sets when it is tried again if this fails (dlstatus.c, `next_random_exponential_delay`).
    fn tried(&mut self, options: &BridgeOptions, now: Instant, rng: &mut impl Rng) {
        let least = options.retry_after.max(LEAST);
        let most = (self.wait * 3).max(least + LEAST);
        let wait = least + (most - least).mul_f64(rng.random::<f64>());
        // C tor has no bound; one that is up again is used within the time after which its descriptor would be old.
        self.wait = wait.min(options.refetch_after.max(least));
        self.next = Some(now + self.wait);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use weft_config::options::parse_bridge;
    use weft_log::SafeLogging;

    use super::*;

    fn hop(number: u8) -> Hop {
        let ids = ([number; 20].into(), [number; 32].into());
        let protocols = "Relay=1-4".parse().unwrap();
        Hop::of_bridge(
            addr(),
            format!("bridge{number}"),
            ids,
            [number; 32],
            &protocols,
        )
    }

    const HOURS: Duration = Duration::from_secs(3 * 3600);

    struct World {
        bridges: Bridges,
        paths: PathOptions,
        now: Instant,
        rng: StdRng,
    }

    impl World {
        fn new(lines: &[&str]) -> Self {
            let mut world = World {
                bridges: Bridges::default(),
                paths: PathOptions::default(),
                now: Instant::now(),
                rng: StdRng::seed_from_u64(1),
            };
            world.configure(lines);
            world
                .bridges
                .set_transports(Transports::default(), world.now);
            world
        }

        fn options(lines: &[&str]) -> BridgeOptions {
            BridgeOptions {
                in_use: true,
                bridges: lines
                    .iter()
                    .map(|line| parse_bridge(line).unwrap())
                    .collect(),
                refetch_after: HOURS,
                ..BridgeOptions::default()
            }
        }

        fn configure(&mut self, lines: &[&str]) -> bool {
            self.bridges.configure(&Self::options(lines), self.now)
        }

        fn due(&mut self) -> Vec<BridgeTask> {
            self.bridges.due(&self.paths, self.now, &mut self.rng)
        }

        fn log(&mut self) -> String {
            let lines = self.bridges.take_lines();
            let shown = lines.iter().map(|line| line.render(SafeLogging::Off));
            shown.map(|line| line + "\n").collect()
        }
    }

    fn addr() -> SocketAddr {
        "192.0.2.1:443".parse().unwrap()
    }

    /// A line with the fingerprint of relay 1.
    fn line() -> String {
        format!("192.0.2.1:443 {}", hop(1).rsa)
    }

    #[test]
    fn a_bridge_is_asked_at_once_and_again_after_hours() {
        let mut world = World::new(&[&line()]);
        let ask = [BridgeTask::Ask(addr(), hop(1).rsa)];
        assert_eq!(world.due(), ask);
        assert!(world.due().is_empty(), "it is being asked");
        assert!(world.bridges.answered(addr(), Ok(hop(1)), world.now));
        assert_eq!(world.bridges.for_paths()[0].hop, Some(hop(1)));
        world.now += HOURS - Duration::from_secs(1);
        assert!(world.due().is_empty());
        world.now += Duration::from_secs(1);
        assert_eq!(world.due(), ask);
        // An unchanged descriptor has no effect.
        assert!(!world.bridges.answered(addr(), Ok(hop(1)), world.now));
        assert_eq!(world.log().matches("new bridge descriptor").count(), 1);
    }

    #[test]
    fn one_without_a_fingerprint_is_met_first_and_is_who_answers() {
        let mut world = World::new(&["192.0.2.1:443"]);
        assert_eq!(world.due(), [BridgeTask::Meet(addr())]);
        assert_eq!(world.bridges.for_paths()[0].rsa, None);
        let other = "192.0.2.2:443".parse().unwrap();
        assert!(!world.bridges.met(other, hop(2).rsa, world.now));
        assert!(world.bridges.met(addr(), hop(1).rsa, world.now));
        assert!(world.log().contains("Learned fingerprint"));
        assert_eq!(world.due(), [BridgeTask::Ask(addr(), hop(1).rsa)]);
        // From then on it is nobody else, after a reload, too.
        assert!(!world.bridges.met(addr(), hop(2).rsa, world.now));
        assert!(!world.configure(&["192.0.2.1:443"]));
        assert_eq!(world.bridges.for_paths()[0].rsa, Some(hop(1).rsa));
        // Another line for the same address is another bridge.
        assert!(world.configure(&[&line()]));
        assert_eq!(world.bridges.for_paths()[0].hop, None);
    }

    #[test]
    fn a_descriptor_that_was_kept_is_of_use_at_once_and_a_new_one_is_asked_for() {
        let mut world = World::new(&[&line(), "192.0.2.2:443"]);
        let other = "192.0.2.2:443".parse().unwrap();
        // Another relay's is not taken, nor one of a bridge whose identity is not known.
        assert!(!world.bridges.restore(|_, _| Some(hop(2))));
        assert!(
            world
                .bridges
                .restore(|at, rsa| { (at == addr() && rsa == hop(1).rsa).then(|| hop(1)) })
        );
        let bridges = world.bridges.for_paths();
        assert_eq!((&bridges[0].hop, &bridges[1].hop), (&Some(hop(1)), &None));
        assert!(
            world
                .log()
                .contains("new bridge descriptor 'bridge1' (cached)")
        );
        let ask = BridgeTask::Ask(addr(), hop(1).rsa);
        assert_eq!(world.due(), [ask, BridgeTask::Meet(other)]);
        // A cached descriptor does not replace a newer one.
        let newer = Hop {
            ntor: [7; 32],
            ..hop(1)
        };
        let answer = Ok(newer.clone());
        assert!(world.bridges.answered(addr(), answer, world.now));
        assert!(!world.bridges.restore(|_, _| Some(hop(1))));
        assert_eq!(world.bridges.for_paths()[0].hop, Some(newer));
    }

    #[test]
    fn waits_grow_after_failures_and_end_when_bridges_may_be_up_again() {
        let mut world = World::new(&[&line()]);
        let mut waits = Vec::new();
        for _ in 0..20 {
            let begun = world.now;
            while world.due().is_empty() {
                world.now += Duration::from_secs(1);
            }
            waits.push(world.now - begun);
            let failed = Err::<Hop, _>("no".to_owned());
            assert!(!world.bridges.answered(addr(), failed, world.now));
        }
        assert!(waits[1] <= Duration::from_secs(3), "{waits:?}");
        assert!(
            *waits.last().unwrap() > Duration::from_secs(60),
            "{waits:?}"
        );
        assert!(waits.iter().all(|wait| *wait <= HOURS), "{waits:?}");
        assert!(world.due().is_empty());
        world.bridges.retry(world.now);
        assert_eq!(world.due().len(), 1);
    }

    #[test]
    fn the_descriptor_of_another_relay_is_none() {
        let mut world = World::new(&[&line()]);
        world.due();
        assert!(!world.bridges.answered(addr(), Ok(hop(2)), world.now));
        assert_eq!(world.bridges.for_paths()[0].hop, None);
        assert!(world.log().contains("the descriptor of another relay"));
    }

    #[test]
    fn a_bridge_without_its_transport_is_warned_of_once_and_others_are_used() {
        let second = format!("192.0.2.2:443 {}", hop(2).rsa);
        let mut world = World::new(&["obfs9 192.0.2.1:443", &second]);
        let other = "192.0.2.2:443".parse().unwrap();
        assert_eq!(world.due(), [BridgeTask::Ask(other, hop(2).rsa)]);
        let log = world.log();
        assert!(
            log.contains("there is no configured transport called"),
            "{log}"
        );
        assert!(world.due().is_empty() && world.log().is_empty());
        let transports = Transports {
            ready: ["obfs9".to_owned()].into(),
            ..Transports::default()
        };
        world.bridges.set_transports(transports, world.now);
        assert_eq!(world.due(), [BridgeTask::Meet(addr())]);
        assert!(world.bridges.is_by_transport(&[0; 20].into()));
        assert!(!world.bridges.is_by_transport(&hop(2).rsa));
    }

    #[test]
    fn a_bridge_waits_for_its_transport_while_a_program_starts() {
        let mut world = World::new(&["obfs9 192.0.2.1:443", &line().replace("2.1", "2.2")]);
        let mut transports = Transports {
            pending: true,
            ..Transports::default()
        };
        world.bridges.set_transports(transports.clone(), world.now);
        // Another one does not wait.
        assert_eq!(world.due().len(), 1);
        assert!(world.log().is_empty());
        transports.pending = false;
        transports.named.insert("obfs9".to_owned());
        world.bridges.set_transports(transports, world.now);
        assert!(world.due().is_empty());
        let log = world.log();
        assert!(
            log.contains("the transport \"obfs9\" does not run"),
            "{log}"
        );
    }

    #[test]
    fn excluded_and_unreachable_bridges_are_not_asked() {
        let mut world = World::new(&[&line()]);
        world.paths.exclude_nodes = "192.0.2.1".parse().unwrap();
        assert!(world.due().is_empty());
        assert!(world.log().contains("it is in ExcludeNodes"));
        world.paths = PathOptions::default();
        assert!(world.due().is_empty(), "until torrc changes");
        world.configure(&[&line()]);
        world.paths.reachable.ipv4 = false;
        assert!(world.due().is_empty());
        assert!(world.log().contains("by our firewall policy"));
    }

    #[test]
    fn a_reload_drops_descriptors_where_torrc_wants_it() {
        let mut world = World::new(&[&line()]);
        world.due();
        world.bridges.answered(addr(), Ok(hop(1)), world.now);
        let mut options = World::options(&[&line()]);
        assert!(!world.bridges.configure(&options, world.now));
        assert!(world.bridges.for_paths()[0].hop.is_some());
        options.reload_drops_descriptors = true;
        assert!(world.bridges.configure(&options, world.now));
        assert!(world.bridges.for_paths()[0].hop.is_none());
        assert_eq!(world.due().len(), 1);
        options.in_use = false;
        world.bridges.configure(&options, world.now);
        assert!(world.bridges.for_paths().is_empty());
    }
}
