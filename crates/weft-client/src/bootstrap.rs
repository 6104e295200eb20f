//! How far the start has come, in C tor's phases (control-spec 5.5; C tor's bootstrap.c). The
//! directory reports those from 25 to 75 per cent; links and circuits the others.

use weft_core::origin::LinkState;

use crate::events::{Bootstrap, CircuitPurpose, CircuitStatus};

/// A phase: per cent, tag, summary.
type Phase = (u8, &'static str, &'static str);

const STARTING: Phase = (0, "starting", "Starting");
const CONN: Phase = (5, "conn", "Connecting to a relay");
const HANDSHAKE_DONE: Phase = (15, "handshake_done", "Handshake with a relay done");
const ONEHOP_CREATE: Phase = (
    20,
    "onehop_create",
    "Establishing an encrypted directory connection",
);
const AP_CONN: Phase = (80, "ap_conn", "Connecting to a relay to build circuits");
const AP_HANDSHAKE_DONE: Phase = (
    90,
    "ap_handshake_done",
    "Handshake finished with a relay to build circuits",
);
const CIRCUIT_CREATE: Phase = (95, "circuit_create", "Establishing a Tor circuit");
const DONE: Phase = (100, "done", "Done");

/// First hops that fail before it is worth a warning (C tor's BOOTSTRAP_PROBLEM_THRESHOLD).
const PROBLEMS: u32 = 10;

/// The phases so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// The phase that was reported last; `None`: none yet.
    current: Option<Bootstrap>,
    /// The directory is good enough to build circuits.
    enough: bool,
    /// First hops in a row that could not be reached.
    problems: u32,
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

    /// Something happened to a link.
    pub fn link(&mut self, state: LinkState) -> Option<Bootstrap> {
        match (state, self.enough) {
            (LinkState::Launched, false) => self.reach(CONN),
            (LinkState::Launched, true) => self.reach(AP_CONN),
            (LinkState::Connected, false) => self.reach(HANDSHAKE_DONE),
            (LinkState::Connected, true) => self.reach(AP_HANDSHAKE_DONE),
            (LinkState::Failed | LinkState::Closed, _) => None,
        }
    }

    /// Something happened to a circuit.
    pub fn circuit(&mut self, purpose: CircuitPurpose, status: CircuitStatus) -> Option<Bootstrap> {
        match (purpose, status) {
            (CircuitPurpose::Directory, CircuitStatus::Launched) if !self.enough => {
                self.reach(CONN)
            }
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
        match self.enough {
            false => self.reach(ONEHOP_CREATE),
            true => None,
        }
    }

    /// A first hop could not be reached. How often in a row, once it is worth a warning: then
    /// where the start is stuck.
    pub fn problem(&mut self) -> Option<(u32, &Bootstrap)> {
        self.problems = self.problems.saturating_add(1);
        if self.problems < PROBLEMS || self.is_done() {
            return None;
        }
        Some((self.problems, self.current.as_ref()?))
    }

    /// The phase that was reported last.
    pub fn current(&self) -> Option<&Bootstrap> {
        self.current.as_ref()
    }

    /// Whether it is over.
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
        Some(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_in_a_row_are_worth_a_warning_until_the_start_is_over() {
        let mut progress = Progress::default();
        progress.start();
        progress.link(LinkState::Launched);
        for _ in 1..PROBLEMS {
            assert!(progress.problem().is_none());
        }
        let (count, stuck) = progress.problem().expect("a warning");
        assert_eq!((count, stuck.tag), (PROBLEMS, "conn"));
        assert_eq!(progress.create_sent().map(|phase| phase.percent), Some(20));
        assert!(progress.problem().is_none());
        progress.circuit(CircuitPurpose::General, CircuitStatus::Built);
        for _ in 0..2 * PROBLEMS {
            assert!(progress.problem().is_none());
        }
    }

    #[test]
    fn phases_only_go_forward_and_each_is_reported_once() {
        let mut progress = Progress::default();
        let percent = |phase: Option<Bootstrap>| phase.map(|phase| phase.percent);
        assert_eq!(percent(progress.start()), Some(0));
        assert_eq!(percent(progress.link(LinkState::Launched)), Some(5));
        assert_eq!(percent(progress.link(LinkState::Launched)), None);
        assert_eq!(percent(progress.link(LinkState::Connected)), Some(15));
        assert_eq!(
            percent(progress.directory(25, "requesting_status", "")),
            Some(25)
        );
        assert_eq!(percent(progress.link(LinkState::Connected)), None);
        assert_eq!(
            percent(progress.directory(75, "enough_dirinfo", "")),
            Some(75)
        );
        progress.enough();
        assert_eq!(percent(progress.link(LinkState::Launched)), Some(80));
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
}
