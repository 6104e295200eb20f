//! What others hear: cells and messages for other threads, reports for the controller, complaints
//! for the log.

use std::time::{Duration, Instant};

use weft_core::message::{Report, ToController, Totals};

use super::ConnectionThread;
use super::closing::protocol_warning;
use super::limit::{Allowance, Direction};
use super::mesh::ToPeer;
use crate::logging::safe;
use crate::process::cpu;

/// Messages that may wait for the controller before circuits' requests wait here: what it answers in some
/// milliseconds. Behind them a request of a client that asks for little would wait as long.
const CONTROLLER_BUSY: usize = 256;
/// How often the controller hears of load, memory and counters: those who read the MetricsPort every
/// 500 ms, as seeds/000 5.3.1 does, want each reading to differ.
const REPORT: Duration = Duration::from_millis(250);

impl ConnectionThread {
    /// Pushes what is for others, and reports from time to time.
    pub(super) fn tell(&mut self, now: Instant) {
        for peer in &mut self.ends.to_peers {
            if let Some(outbox) = self.manager.outbox(peer.to) {
                peer.flush(outbox);
            }
        }
        if now.saturating_duration_since(self.last_report) >= REPORT {
            self.last_report = now;
            let report = self.report(now);
            self.stuck.push_back(ToController::Report(Box::new(report)));
        }
        self.tell_complaint(now);
        let mut sent = false;
        loop {
            let ask = self.ends.to_main.len() < CONTROLLER_BUSY;
            let manager = &mut self.manager;
            let Some(message) = (self.stuck.pop_front()).or_else(|| manager.poll_controller(ask))
            else {
                break;
            };
            match self.ends.to_main.try_push(message) {
                Ok(()) => sent = true,
                Err(message) => {
                    self.stuck.push_front(message);
                    break;
                }
            }
        }
        if sent || !self.stuck.is_empty() || self.manager.has_requests() {
            self.ends.main.notify();
        }
    }

    /// What the controller hears every [`REPORT`].
    pub(super) fn report(&mut self, now: Instant) -> Report {
        let mut totals = self.manager.totals();
        self.moved.tell(&mut totals);
        self.common.tell(&mut totals);
        totals.turns = self.turns;
        let stuck_cells: usize = self.ends.to_peers.iter().map(ToPeer::stuck_cells).sum();
        let mut rings = std::mem::take(&mut self.rings);
        rings.stuck_cells = u32::try_from(stuck_cells).unwrap_or(u32::MAX);
        let (ledger, buffered) = self.ledger(stuck_cells, now);
        Report {
            thread: self.me,
            bytes_per_second: self.load.bytes_per_second(now),
            ledger,
            buffered: buffered as u64,
            memory_rounds: self.manager.memory_rounds(),
            links: u32::try_from(self.manager.links()).unwrap_or(u32::MAX),
            halves: u32::try_from(self.manager.halves()).unwrap_or(u32::MAX),
            circuits: u32::try_from(self.manager.circuits()).unwrap_or(u32::MAX),
            edges: u32::try_from(self.manager.edges()).unwrap_or(u32::MAX),
            rings,
            cpu: cpu::thread_time(),
            totals,
        }
    }

    /// One line, now and then, about a peer that broke the protocol on a circuit.
    pub(super) fn tell_complaint(&mut self, now: Instant) {
        let Some(complaint) = self.manager.take_complaint() else {
            return;
        };
        let connection = self
            .by_id
            .get(&complaint.connection)
            .and_then(|token| self.connections.get(*token));
        if let Some(connection) = connection
            && let Some(more) = self.quiet_circuits.check(now)
        {
            let (id, peer) = (connection.id, safe(connection.peer));
            let what = complaint.what;
            let line = format_args!("The peer of {id} at {peer} broke the protocol: {what}{more}");
            protocol_warning(&self.params, line);
        }
    }
}

/// Bytes moved since the thread started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    read: u64,
    written: u64,
    read_ipv6: u64,
    written_ipv6: u64,
}

impl Moved {
    /// Adds bytes of a connection, unless they do not count.
    pub(super) fn add(&mut self, allowance: &Allowance, direction: Direction, bytes: usize) {
        if !allowance.is_counted() {
            return;
        }
        let (all, ipv6) = match direction {
            Direction::Read => (&mut self.read, &mut self.read_ipv6),
            Direction::Write => (&mut self.written, &mut self.written_ipv6),
        };
        *all += bytes as u64;
        *ipv6 += if allowance.is_ipv6() { bytes as u64 } else { 0 };
    }

    /// Puts them into a report.
    pub(super) fn tell(&self, totals: &mut Totals) {
        totals.bytes_read = self.read;
        totals.bytes_written = self.written;
        totals.bytes_read_ipv6 = self.read_ipv6;
        totals.bytes_written_ipv6 = self.written_ipv6;
    }
}
