//! Reports of what circuits that begin here, and their streams, have carried (control-spec 4.1.6,
//! 4.1.22).

use std::time::{Duration, Instant};

use super::CellPath;
use crate::address::ConnectionId;
use crate::circuit::half::{Origin, Role};
use crate::origin::OriginEvent;
use crate::origin::traffic::{CircuitReport, Congestion};

/// Interval between two reports of all circuits' traffic.
const PERIOD: Duration = Duration::from_secs(1);

/// When traffic is due to be reported.
#[derive(Debug, Default)]
pub(in crate::manager) struct TrafficReports {
    /// Something arrived on a circuit that begins here and was dropped: that is reported soon.
    dropped: bool,
    /// When all was reported last.
    reported: Option<Instant>,
}

impl TrafficReports {
    /// A message arrived at an origin that was dropped.
    pub(in crate::manager) fn dropped_at_origin(&mut self) {
        self.dropped = true;
    }

    /// Takes what is due now: circuits, and whether streams too.
    fn take_due(&mut self, now: Instant) -> Option<bool> {
        let all = self
            .reported
            .is_none_or(|last| now.saturating_duration_since(last) >= PERIOD);
        if !all && !self.dropped {
            return None;
        }
        self.dropped = false;
        if all {
            self.reported = Some(now);
        }
        Some(all)
    }
}

impl CellPath {
    /// Reports what is due: everything once a second, with what `streams` have carried; circuits at once where something
    /// was dropped.
    pub(in crate::manager) fn report_traffic(
        &mut self,
        streams: impl FnOnce() -> Vec<(ConnectionId, u64, u64)>,
        now: Instant,
    ) {
        let Some(all) = self.traffic.take_due(now) else {
            return;
        };
        let circuits: Vec<CircuitReport> = self
            .halves
            .iter_mut()
            .filter_map(|(_, half)| match &mut half.role {
                Role::Origin(origin) => origin.take_report(),
                Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => None,
            })
            .collect();
        let streams = match all {
            true => streams(),
            false => Vec::new(),
        };
        if !circuits.is_empty() || !streams.is_empty() {
            self.to_controller
                .origin(OriginEvent::Traffic { streams, circuits });
        }
    }
}

impl Origin {
    /// Traffic of the circuit since the last report, if there was any.
    pub(in crate::manager) fn take_report(&mut self) -> Option<CircuitReport> {
        let traffic = std::mem::take(&mut self.traffic);
        let last = self.streams.ends.last().and_then(|end| end.flow.as_ref());
        let vegas = last.filter(|flow| flow.is_vegas());
        let congestion = vegas.map(|flow| Congestion {
            slow_start: flow.in_slow_start(),
            window: flow.window(),
            rtt: (flow.rtt()).map_or_else(Default::default, |rtt| (rtt.smoothed, rtt.min)),
        });
        (!traffic.is_empty()).then_some(CircuitReport {
            circuit: self.id,
            traffic,
            congestion,
        })
    }
}
