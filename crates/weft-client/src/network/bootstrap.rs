//! Bootstrap progress in C tor's phases (control-spec 5.5; C tor's bootstrap.c). The directory
//! reports the phases from 25 to 75 percent; links and circuits report the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_core::origin::{LinkFailure, LinkState, LinkStep};

use crate::events::{Bootstrap, BootstrapProblem, CircuitPurpose, CircuitStatus};

/// A phase: per cent, tag, summary.
type Phase = (u8, &'static str, &'static str);

const STARTING: Phase = (0, "starting", "Starting");
const CONN_PT: Phase = (1, "conn_pt", "Connecting to pluggable transport");
const CONN_DONE_PT: Phase = (2, "conn_done_pt", "Connected to pluggable transport");
const CONN_PROXY: Phase = (3, "conn_proxy", "Connecting to proxy");
const CONN_DONE_PROXY: Phase = (4, "conn_done_proxy", "Connected to proxy");
const CONN: Phase = (5, "conn", "Connecting to a relay");
const CONN_DONE: Phase = (10, "conn_done", "Connected to a relay");
const HANDSHAKE: Phase = (14, "handshake", "Handshaking with a relay");
const HANDSHAKE_DONE: Phase = (15, "handshake_done", "Handshake with a relay done");
const ONEHOP_CREATE: Phase = (
    20,
    "onehop_create",
    "Establishing an encrypted directory connection",
);
const AP_CONN_PT: Phase = (
    76,
    "ap_conn_pt",
    "Connecting to pluggable transport to build circuits",
);
const AP_CONN_DONE_PT: Phase = (
    77,
    "ap_conn_done_pt",
    "Connected to pluggable transport to build circuits",
);
const AP_CONN_PROXY: Phase = (78, "ap_conn_proxy", "Connecting to proxy to build circuits");
const AP_CONN_DONE_PROXY: Phase = (
    79,
    "ap_conn_done_proxy",
    "Connected to proxy to build circuits",
);
const AP_CONN: Phase = (80, "ap_conn", "Connecting to a relay to build circuits");
const AP_CONN_DONE: Phase = (85, "ap_conn_done", "Connected to a relay to build circuits");
const AP_HANDSHAKE: Phase = (
    89,
    "ap_handshake",
    "Finishing handshake with a relay to build circuits",
);
const AP_HANDSHAKE_DONE: Phase = (
    90,
    "ap_handshake_done",
    "Handshake finished with a relay to build circuits",
);
const CIRCUIT_CREATE: Phase = (95, "circuit_create", "Establishing a Tor circuit");
const DONE: Phase = (100, "done", "Done");

/// Problems that are worth a warning (C tor's BOOTSTRAP_PROBLEM_THRESHOLD).
const PROBLEMS: u32 = 10;

/// The time from the first problem after which another is worth a warning, however few there were: authorities are asked
/// more and more seldom.
const PATIENCE: Duration = Duration::from_secs(30);

/// Proxy or transport that connections are made through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Nothing else.
    #[default]
    Direct,
    /// torrc's proxy.
    Proxy,
    /// A bridge's pluggable transport.
    Transport,
}

/// The phases so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// The phase that was reported last; `None`: none yet.
    current: Option<Bootstrap>,
    /// The directory is good enough to build circuits.
    enough: bool,
    /// Problems since the last progress, and when the first of them was.
    problems: u32,
    first_problem: Option<Instant>,
    /// The last of them, if no phase was reported after it.
    last_problem: Option<BootstrapProblem>,
    /// Links that are open or being opened.
    links: u32,
}

impl Progress {
    /// The start.
    pub fn start(&mut self) -> Option<Bootstrap> {
        self.reach(STARTING)
    }

    /// Handles a new phase of the directory.
    pub fn directory(
        &mut self,
        percent: u8,
        tag: &'static str,
        summary: &'static str,
    ) -> Option<Bootstrap> {
        self.reach((percent, tag, summary))
    }

    /// Paths can be chosen.
    pub fn enough(&mut self) -> Option<Bootstrap> {
        self.enough = true;
        None
    }

    /// Something happened to a link, which is made this way.
    pub fn link(&mut self, state: LinkState, via: Via) -> Option<Bootstrap> {
        self.links = match state {
            LinkState::Launched => self.links.saturating_add(1),
            LinkState::Connected => self.links,
            LinkState::Failed(_) | LinkState::Closed(_) => self.links.saturating_sub(1),
        };
        let phases = match (state, via) {
            (LinkState::Launched, Via::Transport) => [CONN_PT, AP_CONN_PT],
            (LinkState::Launched, Via::Proxy) => [CONN_PROXY, AP_CONN_PROXY],
            (LinkState::Launched, Via::Direct) => [CONN, AP_CONN],
            (LinkState::Connected, _) => [HANDSHAKE_DONE, AP_HANDSHAKE_DONE],
            (LinkState::Failed(_) | LinkState::Closed(_), _) => return None,
        };
        self.reach_either(phases)
    }

    /// A link that is being opened, this way, has come further.
    pub fn link_step(&mut self, step: LinkStep, via: Via) -> Option<Bootstrap> {
        let phases = match (step, via) {
            (LinkStep::ProxyConnected, Via::Transport) => [CONN_DONE_PT, AP_CONN_DONE_PT],
            (LinkStep::ProxyConnected, _) => [CONN_DONE_PROXY, AP_CONN_DONE_PROXY],
            (LinkStep::Connected, _) => [CONN_DONE, AP_CONN_DONE],
            (LinkStep::Encrypted, _) => [HANDSHAKE, AP_HANDSHAKE],
        };
        self.reach_either(phases)
    }

    /// Links lead to the first of two phases while the directory is fetched, and to the other when circuits can be built.
    fn reach_either(&mut self, [directory, circuits]: [Phase; 2]) -> Option<Bootstrap> {
        self.reach(if self.enough { circuits } else { directory })
    }

    /// Something happened to a circuit.
    pub fn circuit(&mut self, purpose: CircuitPurpose, status: CircuitStatus) -> Option<Bootstrap> {
        match (purpose, status) {
            (purpose, CircuitStatus::Extended) if purpose.is_for_streams() => {
                self.reach(CIRCUIT_CREATE)
            }
            (purpose, CircuitStatus::Built) if purpose.is_for_streams() => self.reach(DONE),
            _ => None,
        }
    }

    /// A CREATE went out.
    pub fn create_sent(&mut self) -> Option<Bootstrap> {
        self.problems = 0;
        self.first_problem = None;
        match self.enough {
            false => self.reach(ONEHOP_CREATE),
            true => None,
        }
    }

    /// A link could not be opened, of a client that uses bridges or does not. `None`: the start is over.
    pub fn link_failed(
        &mut self,
        host: RsaIdentity,
        addr: SocketAddr,
        failure: LinkFailure,
        uses_bridges: bool,
        now: Instant,
    ) -> Option<BootstrapProblem> {
        self.links = self.links.saturating_sub(1);
        // There are few bridges, and no others to try.
        let out_of_bridges = uses_bridges && self.links == 0;
        // A wrong clock keeps every relay away.
        let is_general = matches!(failure, LinkFailure::NoRoute | LinkFailure::Clock);
        let at_once = is_general || out_of_bridges;
        let what = (failure.message(), failure.name());
        self.problem(host, Some(addr), what, at_once, now)
    }

    /// A relay refused the first hop of a circuit, for a reason that the control port gives this name.
    pub fn refused(
        &mut self,
        host: RsaIdentity,
        reason: &'static str,
        now: Instant,
    ) -> Option<BootstrapProblem> {
        let message = "The relay refused a circuit";
        self.problem(host, None, (message, reason), false, now)
    }

    fn problem(
        &mut self,
        host: RsaIdentity,
        addr: Option<SocketAddr>,
        (message, reason): (&'static str, &'static str),
        at_once: bool,
        now: Instant,
    ) -> Option<BootstrapProblem> {
        if self.is_done() {
            return None;
        }
        let stuck = self.current.clone()?;
        self.problems = self.problems.saturating_add(1);
        let first = *self.first_problem.get_or_insert(now);
        let warn = at_once
            || self.problems >= PROBLEMS
            || now.saturating_duration_since(first) >= PATIENCE;
        let problem = BootstrapProblem {
            stuck,
            message,
            reason,
            count: self.problems,
            warn,
            host,
            addr,
        };
        self.last_problem = Some(problem.clone());
        Some(problem)
    }

    /// The problem that holds the start up; `None` if a phase was reported after it.
    pub fn last_problem(&self) -> Option<&BootstrapProblem> {
        self.last_problem.as_ref()
    }

    /// The phase that was reported last.
    pub fn current(&self) -> Option<&Bootstrap> {
        self.current.as_ref()
    }

    /// Returns true if bootstrap is complete.
    pub fn is_done(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|phase| phase.percent >= 100)
    }

    /// Returns a phase if it is further than the last.
    fn reach(&mut self, (percent, tag, summary): Phase) -> Option<Bootstrap> {
        if self
            .current
            .as_ref()
            .is_some_and(|phase| phase.percent >= percent)
        {
            return None;
        }
        let phase = Bootstrap {
            percent,
            tag,
            summary,
        };
        self.current = Some(phase.clone());
        self.last_problem = None;
        Some(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(progress: &mut Progress, now: Instant) -> Option<BootstrapProblem> {
        let addr = SocketAddr::from(([192, 0, 2, 1], 9001));
        progress.link_failed([0xab; 20].into(), addr, LinkFailure::Refused, false, now)
    }

    #[test]
    fn the_last_bridge_that_fails_is_worth_a_warning_at_once() {
        let now = Instant::now();
        let mut progress = Progress::default();
        progress.start();
        progress.link(LinkState::Launched, Via::Direct);
        progress.link(LinkState::Launched, Via::Direct);
        let addr = SocketAddr::from(([192, 0, 2, 1], 9001));
        let fails = |progress: &mut Progress| {
            let failure = LinkFailure::Refused;
            progress.link_failed([1; 20].into(), addr, failure, true, now)
        };
        let first = fails(&mut progress).unwrap();
        assert!(!first.warn, "the other may answer");
        assert_eq!(progress.last_problem(), Some(&first));
        assert!(fails(&mut progress).unwrap().warn);
        progress.directory(25, "requesting_status", "");
        assert_eq!(progress.last_problem(), None);
    }

    #[test]
    fn ten_failures_in_a_row_are_worth_a_warning_until_the_start_is_over() {
        let now = Instant::now();
        let mut progress = Progress::default();
        progress.start();
        progress.link(LinkState::Launched, Via::Direct);
        for count in 1..PROBLEMS {
            let problem = refuse(&mut progress, now).unwrap();
            assert_eq!((problem.count, problem.warn), (count, false));
        }
        let problem = refuse(&mut progress, now).unwrap();
        assert_eq!((problem.count, problem.warn), (PROBLEMS, true));
        assert_eq!(progress.create_sent().map(|phase| phase.percent), Some(20));
        assert!(!refuse(&mut progress, now).unwrap().warn);
        progress.circuit(CircuitPurpose::General, CircuitStatus::Built);
        assert_eq!(refuse(&mut progress, now), None);
    }

    #[test]
    fn few_failures_are_worth_a_warning_after_a_while_and_what_is_wrong_here_at_once() {
        let now = Instant::now();
        let mut progress = Progress::default();
        progress.start();
        assert!(!refuse(&mut progress, now).unwrap().warn);
        assert!(!refuse(&mut progress, now + PATIENCE / 2).unwrap().warn);
        assert!(refuse(&mut progress, now + PATIENCE).unwrap().warn);
        // A clock of 1970 keeps every relay away, too.
        for failure in [LinkFailure::NoRoute, LinkFailure::Clock] {
            let mut progress = Progress::default();
            progress.start();
            let addr = SocketAddr::from(([192, 0, 2, 1], 9001));
            let problem = progress.link_failed([1; 20].into(), addr, failure, false, now);
            assert!(problem.unwrap().warn);
        }
    }

    #[test]
    fn a_problem_is_written_as_c_tor_writes_it() {
        let now = Instant::now();
        let mut progress = Progress::default();
        progress.start();
        progress.link(LinkState::Launched, Via::Direct);
        let host = "ABABABABABABABABABABABABABABABABABABABAB";
        let problem = refuse(&mut progress, now).unwrap();
        assert_eq!(
            problem.to_string(),
            format!(
                "Problem bootstrapping. Stuck at 5% (conn): Connecting to a relay. (Connection refused; CONNECTREFUSED; \
                 count 1; recommendation ignore; host {host} at 192.0.2.1:9001)"
            )
        );
        assert_eq!(
            problem.event(),
            format!(
                "BOOTSTRAP PROGRESS=5 TAG=conn SUMMARY=\"Connecting to a relay\" WARNING=\"Connection refused\" \
                 REASON=CONNECTREFUSED COUNT=1 RECOMMENDATION=ignore HOSTID=\"{host}\" \
                 HOSTADDR=\"192.0.2.1:9001\""
            )
        );
        let problem = progress
            .refused([0xab; 20].into(), "RESOURCELIMIT", now)
            .unwrap();
        assert!(problem.to_string().ends_with(&format!("host {host} at ?)")));
    }

    fn percent(phase: Option<Bootstrap>) -> Option<u8> {
        phase.map(|phase| phase.percent)
    }

    #[test]
    fn phases_only_go_forward_and_each_is_reported_once() {
        let mut progress = Progress::default();
        assert_eq!(percent(progress.start()), Some(0));
        for (via, wanted) in [
            (Via::Transport, Some(1)),
            (Via::Proxy, Some(3)),
            (Via::Direct, Some(5)),
            (Via::Transport, None),
        ] {
            assert_eq!(percent(progress.link(LinkState::Launched, via)), wanted);
        }
        let connected = |progress: &mut Progress| progress.link(LinkState::Connected, Via::Proxy);
        assert_eq!(percent(connected(&mut progress)), Some(15));
        assert_eq!(
            percent(progress.directory(25, "requesting_status", "")),
            Some(25)
        );
        assert_eq!(percent(connected(&mut progress)), None);
        assert_eq!(
            percent(progress.directory(75, "enough_dirinfo", "")),
            Some(75)
        );
        progress.enough();
        assert_eq!(
            percent(progress.link(LinkState::Launched, Via::Direct)),
            Some(80)
        );
        let circuit = CircuitPurpose::General;
        assert_eq!(
            percent(progress.circuit(circuit, CircuitStatus::Built)),
            Some(100)
        );
        assert!(progress.is_done());
        assert_eq!(
            percent(progress.circuit(circuit, CircuitStatus::Extended)),
            None
        );
        assert_eq!(progress.current().map(|phase| phase.tag), Some("done"));
    }

    /// The tags of a link's phases.
    fn tags(via: Via, enough: bool) -> Vec<&'static str> {
        let mut progress = Progress::default();
        if enough {
            progress.enough();
        }
        let mut phases = vec![progress.link(LinkState::Launched, via)];
        let mut steps = vec![LinkStep::Connected, LinkStep::Encrypted];
        if via != Via::Direct {
            steps.insert(0, LinkStep::ProxyConnected);
        }
        phases.extend(steps.iter().map(|step| progress.link_step(*step, via)));
        phases.push(progress.link(LinkState::Connected, via));
        phases.into_iter().map(|phase| phase.unwrap().tag).collect()
    }

    #[test]
    fn a_link_has_the_phases_of_what_it_is_made_by() {
        let rest = ["conn_done", "handshake", "handshake_done"];
        for (via, before) in [
            (Via::Transport, &["conn_pt", "conn_done_pt"][..]),
            (Via::Proxy, &["conn_proxy", "conn_done_proxy"]),
            (Via::Direct, &["conn"]),
        ] {
            let all = [before, &rest].concat();
            assert_eq!(tags(via, false), all);
            let of_circuits: Vec<String> = all.iter().map(|tag| format!("ap_{tag}")).collect();
            assert_eq!(tags(via, true), of_circuits);
        }
    }
}
