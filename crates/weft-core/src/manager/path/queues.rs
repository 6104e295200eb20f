//! Waiting times of cells in the queues of circuits (`CellStatistics`, CELL_STATS). While they are
//! not measured, the data path has one branch for each of the scheduler's choices; while they are,
//! a look-up for each and a sum for each cell.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::CellPath;
use crate::address::HalfAddr;
use crate::circuit::half::{CircuitHalf, Peer, Role};
use crate::link::Link;
use crate::memory::ledger::map_entry;
use crate::message::{CommandUse, QueueKind, QueueUse};
use crate::params::RelayParams;
use crate::slots::HalfKey;

/// The queues of a thread, while they are measured.
#[derive(Debug)]
pub(in crate::manager) struct QueueMeasuring {
    /// Interval between two reports.
    period: Duration,
    /// `None`: not yet.
    reported: Option<Instant>,
    /// Cells that left since then, by the slot of their half.
    used: BTreeMap<HalfKey, Departed>,
    /// Cells of halves that have closed, or whose links have moved away.
    gone: Vec<QueueUse>,
}

/// Cells that left one queue.
#[derive(Debug)]
struct Departed {
    since: Instant,
    /// In the order of their numbers; there are few.
    commands: Vec<CommandUse>,
}

impl Departed {
    fn add(&mut self, command: u8, waited: Duration) {
        let found = (self.commands).binary_search_by_key(&command, |used| used.command);
        let place = found.unwrap_or_else(|place| {
            let new = CommandUse {
                command,
                ..CommandUse::default()
            };
            self.commands.insert(place, new);
            place
        });
        if let Some(used) = self.commands.get_mut(place) {
            used.cells += 1;
            used.waited += waited;
        }
    }

    /// The report of it. `None`: a half without a queue of its own.
    fn report(
        self,
        half: &CircuitHalf,
        addr: HalfAddr,
        link: &Link,
        closed: bool,
    ) -> Option<QueueUse> {
        let (circuit, kind) = match (&half.role, half.peer) {
            (Role::Backward(_), _) => (addr, QueueKind::Inbound),
            (Role::Forward(_), Peer::Joined(peer)) => (peer, QueueKind::Outbound),
            (Role::Origin(origin), _) => (addr, QueueKind::Origin(origin.id)),
            (Role::Forward(_) | Role::Tunnel(_), _) => return None,
        };
        Some(QueueUse {
            circuit,
            kind,
            connection: link.connection,
            circ_id: half.circ_id,
            since: self.since,
            commands: self.commands,
            closed,
        })
    }
}

impl QueueMeasuring {
    /// The state that the parameters ask for at the start.
    pub(in crate::manager) fn wanted(params: &RelayParams) -> Option<Box<Self>> {
        let period = params.measure_queues?;
        Some(Box::new(QueueMeasuring {
            period,
            reported: None,
            used: BTreeMap::new(),
            gone: Vec::new(),
        }))
    }

    /// Memory of the measurement itself, in bytes.
    pub(in crate::manager) fn memory(&self) -> usize {
        let commands = |commands: &Vec<CommandUse>| commands.capacity() * size_of::<CommandUse>();
        let used = self
            .used
            .values()
            .map(|departed| commands(&departed.commands));
        let gone = self.gone.iter().map(|gone| commands(&gone.commands));
        self.used.len() * map_entry::<HalfKey, Departed>()
            + self.gone.capacity() * size_of::<QueueUse>()
            + used.chain(gone).sum::<usize>()
    }

    /// Forgets what is not reported yet: memory is short, and a statistic is worth less than a circuit.
    pub(in crate::manager) fn forget(&mut self) {
        self.used.clear();
        self.gone = Vec::new();
    }

    /// As [`CellQueue::move_to`](crate::memory::cells::CellQueue::move_to), with the times of the cells.
    pub(in crate::manager) fn move_to(
        &mut self,
        slot: HalfKey,
        half: &mut CircuitHalf,
        link: &mut Link,
        most: u32,
        now: Instant,
    ) -> u32 {
        let departed = self.used.entry(slot).or_insert_with(|| Departed {
            since: now,
            commands: Vec::new(),
        });
        half.queue.move_noting(&mut link.out, most, |since, cell| {
            departed.add(
                u8::from(cell.command()),
                now.saturating_duration_since(since),
            );
        })
    }
}

impl CellPath {
    /// Begins to measure, stops, or goes on with another period, as the parameters have it.
    pub(in crate::manager) fn follow_queue_measuring(&mut self) {
        match (&mut self.queues, self.params.measure_queues) {
            (Some(queues), Some(period)) => queues.period = period,
            (queues, _) => *queues = QueueMeasuring::wanted(&self.params),
        }
    }

    /// A half has closed (or leaves for another thread): what left its queue is reported with the next report.
    pub(in crate::manager) fn note_queue_gone(
        &mut self,
        slot: HalfKey,
        half: &CircuitHalf,
        addr: HalfAddr,
        closed: bool,
        now: Instant,
    ) {
        let Some(queues) = &mut self.queues else {
            return;
        };
        let departed = queues.used.remove(&slot).unwrap_or_else(|| Departed {
            since: now,
            commands: Vec::new(),
        });
        // Without cells only the end of the circuit is news.
        if !departed.commands.is_empty() || (closed && half.has_keys()) {
            let link = self.links.get(half.link);
            queues
                .gone
                .extend(link.and_then(|link| departed.report(half, addr, link, closed)));
        }
    }

    /// Cells that left queues since the last call, as far as a report is due now.
    pub(in crate::manager) fn take_queue_use(&mut self, now: Instant) -> Vec<QueueUse> {
        let Some(queues) = &mut self.queues else {
            return Vec::new();
        };
        let mut all = std::mem::take(&mut queues.gone);
        let last = *queues.reported.get_or_insert(now);
        if now.saturating_duration_since(last) < queues.period {
            return all;
        }
        queues.reported = Some(now);
        for (slot, departed) in std::mem::take(&mut queues.used) {
            let Some(addr) = self.halves.addr(slot) else {
                continue;
            };
            let half = self.halves.get(slot);
            let link = half.and_then(|half| self.links.get(half.link));
            if let (Some(half), Some(link)) = (half, link) {
                all.extend(departed.report(half, addr, link, false));
            }
        }
        all
    }
}
