//! The ports that streams will probably want, from those that they wanted lately (path-spec 2.1.1).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_path::TargetPort;

/// The ports that are expected at the start.
const FIRST_PORTS: [u16; 2] = [80, 443];
/// Ports remembered at most.
const MAX_PORTS: usize = 64;
/// The ports that were wanted lately.
#[derive(Debug)]
pub(crate) struct Predicted {
    /// When each was wanted last.
    ports: BTreeMap<TargetPort, Instant>,
    /// When any was.
    last: Instant,
}

impl Predicted {
    pub(crate) fn new(now: Instant) -> Self {
        Predicted {
            ports: FIRST_PORTS
                .into_iter()
                .map(|port| (TargetPort { ipv6: false, port }, now))
                .collect(),
            last: now,
        }
    }

    /// Records that a stream needs this port.
    pub(crate) fn note(&mut self, target: TargetPort, now: Instant) {
        self.last = now;
        if self.ports.len() >= MAX_PORTS && !self.ports.contains_key(&target) {
            let oldest = self.ports.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(port, _)| *port) {
                self.ports.remove(&oldest);
            }
        }
        self.ports.insert(target, now);
    }

    /// For how long something is still expected.
    pub(crate) fn remaining(&self, keep: Duration, now: Instant) -> Duration {
        keep.saturating_sub(now.saturating_duration_since(self.last))
    }

    /// The ports that are still expected; the others are forgotten.
    pub(crate) fn expected(&mut self, keep: Duration, now: Instant) -> Vec<TargetPort> {
        self.ports
            .retain(|_, at| now.saturating_duration_since(*at) < keep);
        self.ports.keys().copied().collect()
    }
}
