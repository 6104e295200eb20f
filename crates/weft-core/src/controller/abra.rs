//! Scarcity of the relay's bandwidth: threads measure it, the shell signs a statement, and threads
//! send the statement to the circuits that asked (docs/extensions/abra.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::abra::{AbraReason, Claim};

use super::{Action, RelayController};
use crate::extensions::abra::{Capacity, Rates, THRESHOLD};
use crate::message::{AbraReport, FromController};

/// Interval between statements: nearly a second, so that the threads' reports, which arrive every
/// second, do not count as early.
const PERIOD: Duration = Duration::from_millis(900);

/// Time without a request after which threads stop measuring.
const IDLE: Duration = Duration::from_secs(60);

/// The relay's weight, for metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbraCounts {
    /// The weight that was stated last, in 1/(Mbit/s).
    pub weight: f64,
    /// Why it is not 0.
    pub reason: AbraReason,
    /// Circuits that asked.
    pub subscribers: u32,
    /// Statements that were signed.
    pub statements: u64,
}

/// The controller's state for ABRA.
#[derive(Debug)]
pub(super) struct Abra {
    /// Threads measure.
    measuring: bool,
    /// Their latest reports.
    reports: Vec<Option<AbraReport>>,
    /// When a statement was asked for last.
    stated: Option<Instant>,
    /// When there was a circuit that had asked.
    wanted: Option<Instant>,
    /// For metrics.
    counts: AbraCounts,
}

impl Abra {
    /// Nobody has asked yet.
    pub(super) fn new(threads: u16) -> Self {
        Abra {
            measuring: false,
            reports: (0..threads).map(|_| None).collect(),
            stated: None,
            wanted: None,
            counts: AbraCounts {
                weight: 0.0,
                reason: AbraReason::BelowCapacity,
                subscribers: 0,
                statements: 0,
            },
        }
    }

    /// The weight by the threads' reports, and why: 0 below capacity.
    fn combined(&self) -> (f64, AbraReason) {
        let mut capacity = Capacity::default();
        let mut rates = Rates::default();
        for report in self.reports.iter().flatten() {
            capacity = capacity.or(report.capacity);
            rates.add(&report.rates);
        }
        match capacity.reason() {
            AbraReason::BelowCapacity => (0.0, AbraReason::BelowCapacity),
            reason => (rates.weight(THRESHOLD), reason),
        }
    }
}

impl RelayController {
    /// A circuit asks for the weight on a thread that does not measure.
    pub(super) fn on_abra_asked(&mut self, now: Instant) {
        self.abra.wanted = Some(now);
        if self.abra.measuring {
            // The thread will read what was sent to all.
            return;
        }
        self.abra.measuring = true;
        self.send_all(|| FromController::MeasureAbra(true));
    }

    /// A thread measured a second.
    pub(super) fn on_abra_report(&mut self, report: AbraReport, now: Instant) {
        let abra = &mut self.abra;
        if !abra.measuring {
            return;
        }
        if let Some(known) = abra.reports.get_mut(usize::from(report.thread.0)) {
            *known = Some(report);
        }
        abra.counts.subscribers = (abra.reports.iter().flatten())
            .map(|report| report.subscribers)
            .sum();
        if abra.counts.subscribers > 0 {
            abra.wanted = Some(now);
        }
        let since = |then: Option<Instant>| then.map(|then| now.saturating_duration_since(then));
        if since(abra.wanted).is_none_or(|idle| idle >= IDLE) {
            abra.measuring = false;
            abra.reports.fill_with(|| None);
            return self.send_all(|| FromController::MeasureAbra(false));
        }
        if since(abra.stated).is_none_or(|since| since >= PERIOD) {
            abra.stated = Some(now);
            let (weight, reason) = abra.combined();
            // As it will be stated.
            let claim = Claim::new(0, weight, reason);
            abra.counts.weight = claim.weight;
            abra.counts.reason = claim.reason;
            self.actions.push_back(Action::SignAbra {
                weight: claim.weight,
                reason: claim.reason,
            });
        }
    }

    /// The relay's statement is signed: threads send it.
    pub fn abra_signed(&mut self, statement: Arc<[u8]>) {
        if self.abra.measuring {
            self.abra.counts.statements += 1;
            self.send_all(|| FromController::AbraStatement(statement.clone()));
        }
    }

    /// The relay's weight and who wants it.
    pub fn abra(&self) -> AbraCounts {
        self.abra.counts
    }
}
