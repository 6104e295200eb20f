//! This relay's weight, for circuits that ask; and what the hops of our own circuits state of theirs
//! (docs/extensions/abra.md).

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::abra::ASK;
use weft_cell::relay_command::RelayCommand;

use crate::address::{HalfAddr, HopIndex};
use crate::circuit::activity::Activity;
use crate::circuit::half::{Purpose, Role, Subscription, WeightsOf};
use crate::extensions::abra::{CapacityMeter, INTERVAL, PHASES, SECOND};
use crate::link::Link;
use crate::manager::LocalConnectionManager;
use crate::manager::audit::sure;
use crate::message::{AbraReport, ToController};
use crate::origin::OriginEvent;
use crate::slots::worklist::Worklist;
use crate::slots::{HalfKey, SlotKey as _};

/// Statements of a hop in a second that are handed on: the answer to an ASK, and one that was due.
const PER_SECOND: u32 = 2;

/// The same in [`INTERVAL`].
const PER_INTERVAL: u32 = 6;

/// Statements of a hop in [`INTERVAL`] past which its circuit is closed.
const FLOOD: u32 = 20;

/// What a thread knows about this relay's weight.
#[derive(Debug)]
pub(in crate::manager) struct Abra {
    /// What circuits moved.
    pub(in crate::manager) activity: Activity,
    /// What holds the thread back.
    meter: CapacityMeter,
    /// The number of the current second.
    second: u32,
    /// Ends of bins in it.
    ends: u32,
    /// The controller was sent [`ToController::AbraAsked`], and has not answered.
    asked: bool,
    /// Halves that asked, by the bin of the interval in which they get their statements.
    subscribers: Vec<Worklist<HalfKey>>,
    /// How many.
    subscribed: u32,
    /// The bin of the interval that ended last.
    phase: usize,
    /// The relay's statement of the last second.
    statement: Option<Arc<[u8]>>,
}

impl Default for Abra {
    fn default() -> Self {
        Abra {
            activity: Activity::default(),
            meter: CapacityMeter::default(),
            second: 0,
            ends: 0,
            asked: false,
            subscribers: (0..PHASES).map(|_| Worklist::default()).collect(),
            subscribed: 0,
            phase: 0,
            statement: None,
        }
    }
}

impl Abra {
    /// The controller's new statement.
    pub(in crate::manager) fn set_statement(&mut self, statement: Arc<[u8]>) {
        self.statement = Some(statement);
    }

    /// The scheduler chose cells for a link.
    pub(in crate::manager) fn note_scheduled(&mut self, link: &mut Link, cells: u32) {
        if self.activity.is_on() {
            self.meter.note_cells(cells);
            link.fill.note_cells(self.second, cells);
        }
    }

    /// Asks the controller that it be measured, once.
    fn ask_controller(&mut self) -> Option<ToController> {
        (!self.activity.is_on() && !std::mem::replace(&mut self.asked, true))
            .then_some(ToController::AbraAsked)
    }
}

/// The bin of the interval in which a half's statements are due.
fn phase_of(slot: HalfKey) -> usize {
    slot.index() % PHASES
}

impl LocalConnectionManager {
    /// The bandwidth that all connections share blocked reading or writing.
    pub fn note_limited(&mut self) {
        self.abra.meter.note_limited();
    }

    /// Whether what circuits move is measured.
    pub fn measures_abra(&self) -> bool {
        self.abra.activity.is_on()
    }

    /// A turn of the thread took so long; to be noted while it [is measured](Self::measures_abra).
    pub fn note_turn(&mut self, took: Duration) {
        self.abra.meter.note_turn(took);
    }

    /// ABRA_ASK: the circuit gets this relay's statement now, if there is one, and every [`INTERVAL`].
    pub(in crate::manager) fn on_abra_ask(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        if data != ASK {
            return self.protocol_error(slot, "ABRA_ASK of another version", now);
        }
        let Some((_, _, _, backward)) = self.halves.backward(slot) else {
            return;
        };
        if backward.purpose == Purpose::Rendezvous {
            return self.protocol_error(slot, "ABRA_ASK on a rendezvous circuit", now);
        }
        match &mut backward.measured.get_or_insert_default().subscription {
            Some(known) if now.saturating_duration_since(known.asked) < SECOND => {
                return self.protocol_error(slot, "ABRA_ASK twice in a second", now);
            }
            Some(known) => known.asked = now,
            None => self.subscribe(slot, now),
        }
        self.totals.abra_asked += 1;
        if let Some(message) = self.abra.ask_controller() {
            self.to_controller.push(message);
        }
        self.send_statement(slot, now);
    }

    /// Puts a half on the list of those that asked.
    pub(in crate::manager) fn subscribe(&mut self, slot: HalfKey, asked: Instant) {
        let Some((_, _, _, backward)) = self.halves.backward(slot) else {
            return;
        };
        let Some(list) = self.abra.subscribers.get_mut(phase_of(slot)) else {
            return;
        };
        let place = list.add(slot);
        backward.measured.get_or_insert_default().subscription =
            Some(Subscription { place, asked });
        self.abra.subscribed += 1;
    }

    /// Takes a half off the list of those that asked.
    pub(in crate::manager) fn unsubscribe(&mut self, slot: HalfKey) {
        let Some((_, _, _, backward)) = self.halves.backward(slot) else {
            return;
        };
        let measured = backward.measured.as_mut();
        let Some(subscription) = measured.and_then(|measured| measured.subscription.take()) else {
            return;
        };
        self.abra.subscribed = self.abra.subscribed.saturating_sub(1);
        let place = subscription.place;
        let list = self.abra.subscribers.get_mut(phase_of(slot));
        if let Some(moved) = list.and_then(|list| list.remove(place))
            && let Some((_, _, _, moved)) = self.halves.backward(moved)
            && let Some(subscription) =
                (moved.measured.as_mut()).and_then(|measured| measured.subscription.as_mut())
        {
            subscription.place = place;
        }
    }

    /// Sends the relay's statement, if there is one. A circuit whose client does not read gets none: it
    /// would be of an hour ago when it is read.
    fn send_statement(&mut self, slot: HalfKey, now: Instant) {
        let Some(statement) = self.abra.statement.clone() else {
            return;
        };
        let bound = self.params.queue_low;
        let waits = (self.halves.get(slot)).is_none_or(|half| half.queue.len() >= bound);
        if !waits {
            self.totals.abra_sent += 1;
            let command = RelayCommand::AbraWeight.wire();
            self.send_relay_msg(slot, HopIndex::ORIGIN, command, 0, &statement, now);
        }
    }

    /// The controller wants circuits' rates, or no longer.
    pub(in crate::manager) fn on_measure_abra(&mut self, on: bool, now: Instant) {
        let abra = &mut self.abra;
        abra.asked = false;
        abra.activity.set(on, &mut self.halves, now);
        if !on {
            abra.meter = CapacityMeter::default();
            abra.statement = None;
            // A circuit may have asked while the message was on its way.
            if abra.subscribed > 0
                && let Some(message) = abra.ask_controller()
            {
                self.to_controller.push(message);
            }
        }
    }

    /// Ends the bin, if it is time: statements that are due are sent, and after a second its rates are
    /// reported.
    pub(in crate::manager) fn pass_bins(&mut self, now: Instant) {
        let Some(ended) = self.abra.activity.pass(&mut self.halves, now) else {
            return;
        };
        let abra = &mut self.abra;
        abra.meter.bins_ended(ended.bins);
        abra.ends += 1;
        for key in self.links.listed().to_vec() {
            if let Some(link) = self.links.get_mut(key)
                && link.active_halves > 0
            {
                link.fill.note_full(abra.second);
            }
        }
        if let Some(took) = ended.second {
            self.report_abra(took);
        }
        let mut due = Vec::new();
        for _ in 0..usize::try_from(ended.bins).unwrap_or(PHASES).min(PHASES) {
            self.abra.phase = (self.abra.phase + 1) % PHASES;
            let list = self.abra.subscribers.get(self.abra.phase);
            due.extend_from_slice(list.map_or(&[], Worklist::as_slice));
        }
        for slot in due {
            self.send_statement(slot, now);
        }
    }

    /// Reports the second that ended.
    fn report_abra(&mut self, took: Duration) {
        let abra = &mut self.abra;
        let (second, ends) = (abra.second, std::mem::take(&mut abra.ends));
        abra.second = abra.second.wrapping_add(1);
        let mut full = 0u32;
        for key in self.links.listed().to_vec() {
            if let Some(link) = self.links.get_mut(key) {
                full = full.saturating_add(link.fill.cells_if_full(second, ends));
            }
        }
        let report = AbraReport {
            thread: self.outboxes.me(),
            rates: abra.activity.take_rates(&mut self.halves),
            capacity: abra.meter.second_ended(took, full),
            subscribers: abra.subscribed,
        };
        self.to_controller
            .push(ToController::Abra(Box::new(report)));
    }

    /// Asks a hop of a circuit of our own.
    pub(in crate::manager) fn on_ask_weight(
        &mut self,
        half: HalfAddr,
        hop: HopIndex,
        now: Instant,
    ) {
        let Some(Role::Origin(origin)) = self.halves.at(half).map(|half| &mut half.role) else {
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
        self.send_relay_msg(self.halves.slot(half), hop, command, 0, &ASK, now);
    }

    /// ABRA_WEIGHT of a hop of a circuit of our own.
    pub(in crate::manager) fn on_abra_weight(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        data: &[u8],
        now: Instant,
    ) {
        let Some(Role::Origin(origin)) = self.halves.get_mut(slot).map(|half| &mut half.role)
        else {
            return;
        };
        let circuit = origin.id;
        let Some(asked) = origin.weights.iter_mut().find(|asked| asked.hop == hop) else {
            return self.refuse_at_origin(slot, now);
        };
        let second = count_in(&mut asked.second, SECOND, now);
        let interval = count_in(&mut asked.interval, INTERVAL, now);
        if interval > FLOOD {
            return self.protocol_error(slot, "a hop that floods its weight", now);
        }
        if second > PER_SECOND || interval > PER_INTERVAL {
            self.totals.abra_dropped += 1;
            self.traffic.dropped_at_origin();
            return;
        }
        origin.traffic.note_valid(data.len());
        self.send_origin_event(OriginEvent::Weight {
            circuit,
            hop,
            statement: data.to_vec(),
        });
    }

    /// Circuits that asked, and the lists of them.
    pub(in crate::manager) fn audit_subscribers(&self) -> Result<(), String> {
        let mut subscribed = 0u32;
        for (slot, half) in self.halves.iter() {
            let Role::Backward(backward) = &half.role else {
                continue;
            };
            let measured = backward.measured.as_ref();
            let Some(subscription) = measured.and_then(|measured| measured.subscription) else {
                continue;
            };
            subscribed += 1;
            let list = self.abra.subscribers.get(phase_of(slot));
            let listed = list.and_then(|list| list.at(subscription.place));
            sure(
                listed == Some(slot),
                "a half that asked for the weight is listed at the place that it has noted",
            )?;
        }
        let listed: usize = (self.abra.subscribers.iter())
            .map(|list| list.as_slice().len())
            .sum();
        sure(
            self.abra.subscribed == subscribed && u32::try_from(listed) == Ok(subscribed),
            "only halves that asked for the weight are listed, each once",
        )
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
