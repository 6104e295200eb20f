//! Circuits before they are needed: for the ports that were wanted lately (C tor's
//! predict_ports.c, path-spec 2.1.1).

use weft_log::Line;
use weft_path::{ExitWanted, PathError, TargetPort, Usage};

use crate::chooser::Chooser;
use crate::events::CircuitPurpose;

use crate::now::Now;

use super::Client;

/// Clean circuits for each port (C tor's MIN_CIRCUITS_HANDLING_STREAM).
const PER_PORT: usize = 2;
/// Clean circuits at most (C tor's MAX_UNUSED_OPEN_CIRCUITS).
const MAX_CLEAN: usize = 14;
/// Clean circuits at most while only build times are learnt (C tor's DFLT_CBT_UNUSED_OPEN_CIRCS).
const MAX_CLEAN_FOR_TIMES: usize = 10;
/// Circuits begun ahead of need in one turn.
const LAUNCHES: usize = 4;

impl<C: Chooser> Client<C> {
    /// Launches circuits for predicted streams.
    pub(super) fn predict(&mut self, now: Now) {
        if self.config.disable_predicted
            || self.is_dormant()
            || self.config.disable_network
            || !self.chooser.is_ready()
        {
            return;
        }
        let expected = self.predicted.expected(self.config.predict_for, now.mono);
        self.predict_sets(&expected, now);
        self.predict_tunnels(now);
        for _ in 0..LAUNCHES {
            let clean = self.clean_circuits();
            if clean >= MAX_CLEAN
                || self.is_launch_paused(now)
                || self.pending() >= self.config.max_pending
            {
                return;
            }
            let missing: Vec<TargetPort> = expected
                .iter()
                .copied()
                .filter(|port| !self.is_handled(*port, now))
                .collect();
            if missing.is_empty() {
                let wants = self.chooser.timeouts().wants_circuits;
                if wants && clean < MAX_CLEAN_FOR_TIMES && !expected.is_empty() {
                    self.launch_for(&[], now);
                }
                return;
            }
            if !self.launch_for(&missing, now) {
                return;
            }
        }
    }

    /// Begins a circuit for these ports; if no exit takes all of them, for the first that one
    /// takes. False: there is none.
    fn launch_for(&mut self, ports: &[TargetPort], now: Now) -> bool {
        let all = std::iter::once(ports.to_vec());
        let each = ports.iter().map(|port| vec![*port]);
        for ports in all.chain(each) {
            let wanted = ExitWanted {
                stable: ports
                    .iter()
                    .any(|port| self.config.long_lived_ports.contains(&port.port)),
                ports,
                avoid: self.refusing.iter().copied().collect(),
                exit: None,
            };
            match self.launch(&Usage::Exit(wanted), CircuitPurpose::General, now) {
                Ok(_) => return true,
                Err(PathError::NoExit(_)) => {}
                Err(error) => {
                    let line = format!("No circuit ahead of need now: {error}");
                    self.log(Line::debug(line));
                    return false;
                }
            }
        }
        false
    }

    /// Returns true if enough clean circuits lead to this port, built or not.
    pub(super) fn is_handled(&self, port: TargetPort, now: Now) -> bool {
        let stable = self.config.long_lived_ports.contains(&port.port);
        self.circuits
            .values()
            .filter(|circuit| {
                matches!(
                    circuit.purpose,
                    CircuitPurpose::General | CircuitPurpose::ConfluxSet
                ) && !circuit.unusable
                    && !circuit.is_too_dirty(self.config.max_dirtiness, now.mono)
                    && !circuit.isolation.is_used()
                    && (circuit.stable || !stable)
                    && circuit.allows(Some(port))
            })
            // As in C tor, each leg of a set counts.
            .map(|circuit| self.legs_of(circuit.id).max(1))
            .sum::<usize>()
            >= PER_PORT
    }

    /// Circuits that no stream used.
    fn clean_circuits(&self) -> usize {
        self.circuits
            .values()
            .filter(|circuit| {
                circuit.purpose == CircuitPurpose::General
                    && circuit.dirty.is_none()
                    && !circuit.unusable
            })
            .count()
    }

    /// Circuits for streams that are being built.
    fn pending(&self) -> usize {
        self.circuits
            .values()
            .filter(|circuit| circuit.is_building() && circuit.purpose == CircuitPurpose::General)
            .count()
    }
}
