//! When the relay ends.

use std::time::{Duration, Instant};

/// How an end goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shutdown {
    /// When it ends at the latest.
    at: Option<Instant>,
}

impl Shutdown {
    /// Ends in this turn.
    pub(super) fn now(&mut self, now: Instant) {
        self.at = Some(now);
    }

    /// Ends after some time, or as soon as nobody is connected.
    pub(super) fn after(&mut self, wait: Duration, now: Instant) {
        self.at = Some(now + wait);
    }

    /// New connections are refused.
    pub(super) fn is_under_way(&self) -> bool {
        self.at.is_some()
    }

    /// Nothing more is to be waited for.
    pub(super) fn is_over(&self, now: Instant, connections: usize) -> bool {
        self.at.is_some_and(|at| now >= at || connections == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_waits_for_its_connections_but_not_for_ever() {
        let start = Instant::now();
        let mut shutdown = Shutdown::default();
        assert!(!shutdown.is_over(start, 0));
        shutdown.after(Duration::from_secs(30), start);
        assert!(shutdown.is_under_way());
        assert!(!shutdown.is_over(start, 1));
        assert!(shutdown.is_over(start, 0));
        assert!(shutdown.is_over(start + Duration::from_secs(30), 1));
        shutdown.now(start);
        assert!(shutdown.is_over(start, 1));
    }
}
