//! This relay's weight, for circuits that ask; and what the hops of our own circuits state of theirs
//! (docs/extensions/abra.md).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::abra::ASK;
use weft_cell::relay_command::RelayCommand;

use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{Purpose, Role, WeightsOf};
use crate::extensions::abra::{CapacityMeter, INTERVAL, Metering, PHASES, SECOND};
use crate::manager::path::CellPath;
use crate::memory::ledger::map_entry;
use crate::message::{AbraReport, ToController};
use crate::origin::OriginEvent;
use crate::slots::{HalfKey, SlotKey as _};

/// Statements of a hop in a second that are handed on: the answer to an ASK, and one that was due.
const PER_SECOND: u32 = 2;

/// Statements of a hop in [`INTERVAL`] that are handed on.
const PER_INTERVAL: u32 = 6;

/// Statements of a hop in [`INTERVAL`] past which its circuit is closed.
const FLOOD: u32 = 20;

/// Measurement and statements of this relay's weight on one thread.
#[derive(Debug)]
pub(in crate::manager) struct Abra {
    /// Measurement of the limits that hold the thread back.
    pub(in crate::manager) metering: Metering,
    /// Ends of bins in the current second.
    ends: u32,
    /// The controller was sent [`ToController::AbraAsked`], and has not answered.
    asked: bool,
    /// Halves that asked, and when they did last, by the bin of the interval in which they get their statements.
    subscribers: Vec<BTreeMap<HalfAddr, Instant>>,
    /// The bin of the interval that ended last.
    phase: usize,
    /// The relay's statement of the last second.
    statement: Option<Arc<[u8]>>,
}

impl Default for Abra {
    fn default() -> Self {
        Abra {
            metering: Metering::default(),
            ends: 0,
            asked: false,
            subscribers: (0..PHASES).map(|_| BTreeMap::new()).collect(),
            phase: 0,
            statement: None,
        }
    }
}

/// The bin of the interval in which a half's statements are due.
fn phase_of(half: HalfAddr) -> usize {
    half.slot.index() % PHASES
}

impl Abra {
    /// The controller's new statement.
    pub(in crate::manager) fn set_statement(&mut self, statement: Arc<[u8]>) {
        self.statement = Some(statement);
    }

    /// Asks the controller that it be measured, once.
    fn ask_controller(&mut self, path: &mut CellPath) {
        if !path.activity.is_on() && !std::mem::replace(&mut self.asked, true) {
            path.to_controller.push(ToController::AbraAsked);
        }
    }

    /// ABRA_ASK: the circuit gets this relay's statement now, if there is one, and every [`INTERVAL`].
    pub(in crate::manager) fn on_abra_ask(
        &mut self,
        path: &mut CellPath,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        if data != ASK {
            return path.protocol_error(slot, "ABRA_ASK of another version", now);
        }
        let Some((half, _, _, backward)) = path.halves.backward(slot) else {
            return;
        };
        if backward.purpose == Purpose::Rendezvous {
            return path.protocol_error(slot, "ABRA_ASK on a rendezvous circuit", now);
        }
        let asked = self.subscribers.get(phase_of(half));
        let asked = asked.and_then(|asked| asked.get(&half));
        if asked.is_some_and(|asked| now.saturating_duration_since(*asked) < SECOND) {
            return path.protocol_error(slot, "ABRA_ASK twice in a second", now);
        }
        self.subscribe(half, now);
        path.totals.abra_asked += 1;
        self.ask_controller(path);
        self.send_statement(path, slot, now);
    }

    /// A half has asked then, or asks again.
    pub(in crate::manager) fn subscribe(&mut self, half: HalfAddr, asked: Instant) {
        if let Some(list) = self.subscribers.get_mut(phase_of(half)) {
            list.insert(half, asked);
        }
    }

    /// A half gets no more statements: it has closed, moves, or meets another. Returns when it asked last.
    pub(in crate::manager) fn unsubscribe(&mut self, half: HalfAddr) -> Option<Instant> {
        let list = self.subscribers.get_mut(phase_of(half));
        list.and_then(|list| list.remove(&half))
    }

    /// The halves that asked.
    pub(in crate::manager) fn subscribers(&self) -> impl Iterator<Item = HalfAddr> {
        self.subscribers.iter().flat_map(BTreeMap::keys).copied()
    }

    /// The number of these.
    fn subscribed(&self) -> u32 {
        let listed: usize = self.subscribers.iter().map(BTreeMap::len).sum();
        u32::try_from(listed).unwrap_or(u32::MAX)
    }

    /// Memory of their list.
    pub(in crate::manager) fn memory(&self) -> usize {
        self.subscribed() as usize * map_entry::<HalfAddr, Instant>()
    }

    /// Sends the relay's statement, if there is one. A circuit whose client does not read gets none: it
    /// would be of an hour ago when it is read.
    fn send_statement(&mut self, path: &mut CellPath, slot: HalfKey, now: Instant) {
        let Some(statement) = self.statement.clone() else {
            return;
        };
        let bound = path.params.queue_low;
        let waits = (path.halves.get(slot)).is_none_or(|half| half.queue.len() >= bound);
        if !waits {
            path.totals.abra_sent += 1;
            let command = RelayCommand::AbraWeight.wire();
            path.send_relay_msg(slot, HopIndex::ORIGIN, command, 0, &statement, now);
        }
    }

    /// The controller wants circuits' rates, or no longer.
    pub(in crate::manager) fn on_measure_abra(
        &mut self,
        path: &mut CellPath,
        on: bool,
        now: Instant,
    ) {
        self.asked = false;
        path.activity.set(on, &mut path.halves, now);
        if !on {
            self.metering.meter = CapacityMeter::default();
            self.statement = None;
            // A circuit may have asked while the message was on its way.
            if self.subscribed() > 0 {
                self.ask_controller(path);
            }
        }
    }

    /// Ends the bin, if it is time: statements that are due are sent, and after a second its rates are
    /// reported.
    pub(in crate::manager) fn pass_bins(&mut self, path: &mut CellPath, now: Instant) {
        let Some(ended) = path.activity.pass(&mut path.halves, now) else {
            return;
        };
        self.metering.meter.bins_ended(ended.bins);
        self.ends += 1;
        for key in path.links.listed().to_vec() {
            if let Some(link) = path.links.get_mut(key)
                && link.active_halves > 0
            {
                link.fill.note_full(self.metering.second);
            }
        }
        if let Some(took) = ended.second {
            self.report_abra(path, took);
        }
        let mut due = Vec::new();
        for _ in 0..usize::try_from(ended.bins).unwrap_or(PHASES).min(PHASES) {
            self.phase = (self.phase + 1) % PHASES;
            let list = self.subscribers.get(self.phase);
            due.extend(list.into_iter().flat_map(BTreeMap::keys).copied());
        }
        for half in due {
            self.send_statement(path, path.halves.slot(half), now);
        }
    }

    /// Reports the second that ended.
    fn report_abra(&mut self, path: &mut CellPath, took: Duration) {
        let (second, ends) = (self.metering.second, std::mem::take(&mut self.ends));
        self.metering.second = self.metering.second.wrapping_add(1);
        let mut full = 0u32;
        for key in path.links.listed().to_vec() {
            if let Some(link) = path.links.get_mut(key) {
                full = full.saturating_add(link.fill.cells_if_full(second, ends));
            }
        }
        let report = AbraReport {
            thread: path.outboxes.me(),
            rates: path.activity.take_rates(&mut path.halves),
            capacity: self.metering.meter.second_ended(took, full),
            subscribers: self.subscribed(),
        };
        path.to_controller
            .push(ToController::Abra(Box::new(report)));
    }

    /// Asks a hop of a circuit of our own.
    pub(in crate::manager) fn on_ask_weight(
        &mut self,
        path: &mut CellPath,
        half: HalfAddr,
        hop: HopIndex,
        now: Instant,
    ) {
        let Some(Role::Origin(origin)) = path.halves.at(half).map(|half| &mut half.role) else {
            return;
        };
        if hop.index() >= origin.crypt.len() {
            return;
        }
        if !origin.weights.iter().any(|asked| asked.hop == hop) {
            origin.weights.push(WeightsOf {
                hop,
                second: (now, 0),
                interval: (now, 0),
            });
        }
        let command = RelayCommand::AbraAsk.wire();
        path.send_relay_msg(path.halves.slot(half), hop, command, 0, &ASK, now);
    }

    /// ABRA_WEIGHT of a hop of a circuit of our own.
    pub(in crate::manager) fn on_abra_weight(
        &mut self,
        path: &mut CellPath,
        slot: HalfKey,
        hop: HopIndex,
        data: &[u8],
        now: Instant,
    ) {
        let Some(Role::Origin(origin)) = path.halves.get_mut(slot).map(|half| &mut half.role)
        else {
            return;
        };
        let circuit = origin.id;
        let Some(asked) = origin.weights.iter_mut().find(|asked| asked.hop == hop) else {
            return path.refuse_at_origin(slot, now);
        };
        let second = count_in(&mut asked.second, SECOND, now);
        let interval = count_in(&mut asked.interval, INTERVAL, now);
        if interval > FLOOD {
            return path.protocol_error(slot, "a hop that floods its weight", now);
        }
        if second > PER_SECOND || interval > PER_INTERVAL {
            path.totals.abra_dropped += 1;
            path.traffic.dropped_at_origin();
            return;
        }
        origin.traffic.note_valid(data.len());
        path.to_controller.origin(OriginEvent::Weight {
            circuit,
            hop,
            statement: data.to_vec(),
        });
    }
}

/// Counts one more, anew if the window is over.
fn count_in((since, count): &mut (Instant, u32), window: Duration, now: Instant) -> u32 {
    if now.saturating_duration_since(*since) >= window {
        (*since, *count) = (now, 0);
    }
    *count = count.saturating_add(1);
    *count
}
