//! Messages to others: cells and messages for other threads, reports for the controller, violations for
//! the log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_core::link::load::Load;
use weft_core::manager::ControllerLoad;
use weft_core::memory::ledger::Ledger;
use weft_core::message::{Activity, ConnectionBytes, Report, RingDepths, ToController, Totals};
use weft_counts::extrainfo::{Directions, PortTraffic};

use super::ConnectionThread;
use super::closing::protocol_warning;
use super::connection::Connection;
use super::limit::{Allowance, Direction};
use super::mesh::ToPeer;
use super::params::ThreadParams;
use crate::logging::safe;
use crate::process::cpu;

/// Messages that may wait for the controller before circuits' requests wait here: what it answers in some
/// milliseconds. Behind them a request of a client with few requests would wait as long.
const CONTROLLER_BUSY: usize = 256;
/// The interval of reports about load, memory and counters: readers of the MetricsPort every 500 ms, as in
/// Engler and Goldberg 2021, 5.3.1, get a new report each time.
const REPORT: Duration = Duration::from_millis(250);
/// The parts of MaxMemInQueues that threads may read before one of them that holds much of it states what it holds.
const READ_PARTS: u64 = 32;
/// The part of MaxMemInQueues below which all threads hold little.
const MUCH_PART: u64 = 4;
/// Between two such statements. Each takes a walk over all circuits.
const HELD: Duration = Duration::from_millis(25);
/// The interval of what connections moved, where that is reported (CONN_BW).
const CONNECTIONS: Duration = Duration::from_secs(1);

impl ConnectionThread {
    /// Pushes messages for other threads, and reports from time to time.
    pub(super) fn send_messages(&mut self, now: Instant) {
        for peer in &mut self.ends.to_peers {
            if let Some(outbox) = self.manager.outbox(peer.to) {
                peer.flush(outbox);
            }
        }
        if now.saturating_duration_since(self.reports.last) >= REPORT {
            self.count_directions(now);
            self.reports.last = now;
            let report = self.report(now);
            self.reports.note_held(&report.ledger, now);
            self.reports
                .stuck
                .push_back(ToController::Report(Box::new(report)));
        } else if self.reports.has_grown(self.memory_part(), now) {
            let stuck_cells = self.ends.to_peers.iter().map(ToPeer::stuck_cells).sum();
            let (ledger, _) = self.ledger(stuck_cells, now);
            self.reports.note_held(&ledger, now);
            self.reports.stuck.push_back(ToController::Held {
                thread: self.me,
                ledger: Box::new(ledger),
                memory_rounds: self.manager.memory_rounds(),
            });
        }
        self.log_violation(now);
        let mut sent = false;
        loop {
            let load = match self.ends.to_main.len() < CONTROLLER_BUSY {
                true => ControllerLoad::Ready,
                false => ControllerLoad::Busy,
            };
            let manager = &mut self.manager;
            let Some(message) =
                (self.reports.stuck.pop_front()).or_else(|| manager.poll_controller(load))
            else {
                break;
            };
            match self.ends.to_main.try_push(message) {
                Ok(()) => sent = true,
                Err(message) => {
                    self.reports.stuck.push_front(message);
                    break;
                }
            }
        }
        if sent || !self.reports.stuck.is_empty() || self.manager.has_requests() {
            self.ends.main.notify();
        }
    }

    /// This thread's part of MaxMemInQueues, in bytes.
    fn memory_part(&self) -> u64 {
        let threads = self.ends.to_peers.len() as u64 + 1;
        self.params.max_memory / threads
    }

    /// The report of every [`REPORT`].
    pub(super) fn report(&mut self, now: Instant) -> Report {
        let mut totals = self.manager.totals();
        self.reports.moved.add_to(&mut totals);
        self.limit.add_to(&mut totals);
        totals.turns = self.reports.turns;
        totals.link_reads = self.reports.link_reads;
        totals.link_writes = self.reports.link_writes;
        totals.kernel_asked = self.writing.kernel_asked;
        let stuck_cells: usize = self.ends.to_peers.iter().map(ToPeer::stuck_cells).sum();
        let mut rings = std::mem::take(&mut self.reports.rings);
        rings.stuck_cells = u32::try_from(stuck_cells).unwrap_or(u32::MAX);
        let (ledger, buffered) = self.ledger(stuck_cells, now);
        Report {
            thread: self.me,
            bytes_per_second: self.reports.load.bytes_per_second(now),
            ledger,
            buffered: buffered as u64,
            memory_rounds: self.manager.memory_rounds(),
            links: u32::try_from(self.manager.links().len()).unwrap_or(u32::MAX),
            halves: u32::try_from(self.manager.halves()).unwrap_or(u32::MAX),
            circuits: u32::try_from(self.manager.circuits()).unwrap_or(u32::MAX),
            edges: u32::try_from(self.manager.edges().len()).unwrap_or(u32::MAX),
            heaviest: self.manager.links_mut().heaviest(now),
            rings,
            cpu: cpu::thread_time(),
            exit_ports: std::mem::take(&mut self.reports.exit_ports),
            directions: self.reports.directions,
            activity: Activity {
                connections: self.take_connection_bytes(now),
                queues: self.manager.take_queue_use(now),
            },
            totals,
        }
    }

    /// Counts connections by the way that they were used since the last call, a whole interval later.
    fn count_directions(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.reports.directions_at);
        if !self.params.count_directions || since < Directions::INTERVAL {
            return;
        }
        self.reports.directions_at = now;
        for (_, connection) in &mut self.sockets.all {
            let (read, written) = std::mem::take(&mut connection.moved);
            let ipv6 = connection.allowance.is_ipv6();
            self.reports.directions.add(read, written, ipv6);
        }
    }

    /// The bytes of connections in the last second, if one is over.
    fn take_connection_bytes(&mut self, now: Instant) -> Vec<ConnectionBytes> {
        let since = now.saturating_duration_since(self.reports.connections_at);
        let mut all = Vec::new();
        if !self.params.count_connections || since < CONNECTIONS {
            return all;
        }
        self.reports.connections_at = now;
        for (_, connection) in &mut self.sockets.all {
            let (read, written) = std::mem::take(&mut connection.unreported);
            if (read, written) != (0, 0) {
                all.push(ConnectionBytes {
                    connection: connection.id,
                    exit: false,
                    read,
                    written,
                });
            }
        }
        self.edges.take_bytes(&mut all);
        all
    }

    /// One line, now and then, about a peer that broke the protocol on a circuit.
    pub(super) fn log_violation(&mut self, now: Instant) {
        let Some(violation) = self.manager.take_violation() else {
            return;
        };
        let connection = self
            .sockets
            .by_id
            .get(&violation.connection)
            .and_then(|token| self.sockets.all.get(*token));
        if let Some(connection) = connection
            && let Some(more) = self.log_limits.circuit.check(now)
        {
            let (id, peer) = (connection.id, safe(connection.peer));
            let what = violation.what;
            let line = format_args!("The peer of {id} at {peer} broke the protocol: {what}{more}");
            protocol_warning(&self.params, line);
        }
    }
}

/// The state of the reports to the controller.
#[derive(Debug)]
pub(super) struct Reports {
    /// The time of the last report.
    pub(super) last: Instant,
    /// Recent load.
    pub(super) load: Load,
    /// Bytes moved, TLS included, by connections that count ([`Allowance::is_counted`]).
    pub(super) moved: Moved,
    /// Fill levels of the rings since the last report.
    pub(super) rings: RingDepths,
    /// Turns taken.
    pub(super) turns: u64,
    /// Times that a link's socket gave bytes.
    pub(super) link_reads: u64,
    /// Times that a link's socket took bytes.
    pub(super) link_writes: u64,
    /// Bytes that exits moved by port since the last report, while they are counted.
    pub(super) exit_ports: PortTraffic,
    /// Connections by the way that they were used, while that is counted.
    pub(super) directions: Directions,
    /// When they were counted last.
    pub(super) directions_at: Instant,
    /// When the bytes of connections were reported last.
    pub(super) connections_at: Instant,
    /// Bytes read since it was stated last what the thread holds.
    pub(super) read: u64,
    /// Memory stated then, in bytes.
    held: u64,
    /// The time of that statement.
    held_at: Instant,
    /// Messages that the ring to the controller had no room for.
    pub(super) stuck: VecDeque<ToController>,
}

impl Reports {
    pub(super) fn new(now: Instant) -> Self {
        Reports {
            last: now,
            load: Load::new(now),
            moved: Moved::default(),
            rings: RingDepths::default(),
            turns: 0,
            link_reads: 0,
            link_writes: 0,
            exit_ports: PortTraffic::default(),
            directions: Directions::default(),
            directions_at: now,
            connections_at: now,
            read: 0,
            held: 0,
            held_at: now,
            stuck: VecDeque::new(),
        }
    }

    /// It is stated that the thread holds this.
    fn note_held(&mut self, ledger: &Ledger, now: Instant) {
        (self.read, self.held, self.held_at) = (0, ledger.total(), now);
    }

    /// True if the memory of the thread may have grown so far past the last statement that it
    /// should state it at once: `part` is its share of MaxMemInQueues.
    fn has_grown(&self, part: u64, now: Instant) -> bool {
        self.read > part / READ_PARTS
            && self.held + self.read > part / MUCH_PART
            && now.saturating_duration_since(self.held_at) >= HELD
    }

    /// Counts bytes that a link moved.
    pub(super) fn count(
        &mut self,
        connection: &mut Connection,
        params: &ThreadParams,
        direction: Direction,
        bytes: usize,
    ) {
        self.load.add(bytes as u64);
        if direction == Direction::Read {
            self.read += bytes as u64;
        }
        self.moved.add(&connection.allowance, direction, bytes);
        if params.count_directions && connection.allowance.is_counted() {
            add(&mut connection.moved, direction, bytes);
        }
        if params.count_connections {
            add(&mut connection.unreported, direction, bytes);
        }
    }
}

/// Adds bytes to those that were read or to those that were written.
fn add((read, written): &mut (u64, u64), direction: Direction, bytes: usize) {
    *match direction {
        Direction::Read => read,
        Direction::Write => written,
    } += bytes as u64;
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

    /// Adds them to a report.
    pub(super) fn add_to(&self, totals: &mut Totals) {
        let Moved {
            read,
            written,
            read_ipv6,
            written_ipv6,
        } = *self;
        totals.bytes_read = read;
        totals.bytes_written = written;
        totals.bytes_read_ipv6 = read_ipv6;
        totals.bytes_written_ipv6 = written_ipv6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_thread_that_holds_much_and_has_read_much_states_it_before_its_next_report() {
        let start = Instant::now();
        let part = 64 * MIB;
        let grown = |held: u64, read: u64, after: u64| {
            let mut reports = Reports::new(start);
            let mut ledger = Ledger::default();
            ledger.add_fixed(usize::try_from(held).unwrap());
            reports.read = 1;
            reports.note_held(&ledger, start);
            reports.read += read;
            reports.has_grown(part, start + Duration::from_millis(after))
        };
        assert!(grown(20 * MIB, 3 * MIB, 25));
        // The bytes that stay are not known: all of them may.
        assert!(grown(0, 17 * MIB, 25));
        assert!(!grown(20 * MIB, 2 * MIB, 25), "little was read");
        assert!(!grown(3 * MIB, 3 * MIB, 25), "little is held");
        assert!(!grown(20 * MIB, 3 * MIB, 24), "too soon");
    }
}
