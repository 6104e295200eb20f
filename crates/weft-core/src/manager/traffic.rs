//! Reports of what circuits that begin here, and their streams, have carried (control-spec 4.1.6,
//! 4.1.22).

use std::time::{Duration, Instant};

use super::LocalConnectionManager;
use crate::half::{Origin, Role};
use crate::origin::OriginEvent;
use crate::traffic::{CircuitReport, Congestion};

/// How often all of it is reported.
const PERIOD: Duration = Duration::from_secs(1);

impl LocalConnectionManager {
    /// Reports what is due: everything once a second, circuits at once where something was dropped.
    pub(super) fn report_traffic(&mut self, now: Instant) {
        let all = self
            .traffic_reported
            .is_none_or(|last| now.saturating_duration_since(last) >= PERIOD);
        if !all && !self.dropped_at_origin {
            return;
        }
        self.dropped_at_origin = false;
        let circuits: Vec<CircuitReport> = self
            .halves
            .iter_mut()
            .filter_map(|(_, half)| match &mut half.role {
                Role::Origin(origin) => origin.take_report(),
                Role::TowardOrigin(_) | Role::AwayFromOrigin(_) => None,
            })
            .collect();
        let mut streams = Vec::new();
        if all {
            self.traffic_reported = Some(now);
            streams.extend(self.edges.iter_mut().filter_map(|(_, edge)| {
                let (got, gave) = edge.take_traffic().filter(|_| edge.origin.is_some())?;
                Some((edge.id, got, gave))
            }));
        }
        if !circuits.is_empty() || !streams.is_empty() {
            self.tell_origin(OriginEvent::Traffic { streams, circuits });
        }
    }
}

impl Origin {
    /// What the circuit has carried since the last report, if it was anything.
    pub(super) fn take_report(&mut self) -> Option<CircuitReport> {
        let traffic = std::mem::take(&mut self.traffic);
        let last = self.streams.ends.last();
        let congestion = last
            .filter(|end| end.flow.is_vegas())
            .map(|end| Congestion {
                slow_start: end.flow.in_slow_start(),
                window: end.flow.window(),
                rtt: end
                    .flow
                    .rtt()
                    .map_or_else(Default::default, |rtt| (rtt.smoothed, rtt.min)),
            });
        (!traffic.is_empty()).then_some(CircuitReport {
            circuit: self.id,
            traffic,
            congestion,
        })
    }
}
