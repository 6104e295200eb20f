//! Padding on circuits whose origins ask for it: the relay's side of C tor's two padding machines
//! (padding-spec 3; C tor: circuitpadding_machines.c, `circpad_machine_relay_hide_intro_circuits` and
//! `…_hide_rend_circuits`).
//!
//! Both make the circuits of onion services' clients look like others in their beginning. The first sends some DROPs
//! after an INTRODUCE1, as if something were downloaded, and then ends itself; the second sends one. C tor's machines
//! are general; of what they can do these two use this:
//!
//! - the PADDING_NEGOTIATED that answers the client's request starts the first delay;
//! - a cell toward the origin makes the first machine draw its delay anew. C tor does that for each cell; here the
//!   machine looks, when the delay is over, whether there was one ([`BackwardMark`]), so that cells of all circuits cost
//!   nothing by it. The DROP that follows is as far behind the last cell, or further by one more delay;
//! - a circuit has one machine at a time, since both have C tor's machine index 0;
//! - their own limits of padding (`allowed_padding_count`) are never reached before they end.
//!
//! `manager/circuits/circpad.rs` is what a thread does about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::{Rng, RngExt as _};
use weft_crypto::circuit::BackwardMark;

use crate::address::HalfAddr;
use crate::memory::ledger::map_entry;

/// Consensus parameters for padding on circuits that concern relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircpadParams {
    /// No machine sends padding (`circpad_padding_disabled`).
    pub disabled: bool,
    /// DROPs of machines, on one thread, before the next limit holds (`circpad_global_allowed_cells`).
    pub global_allowed_cells: u32,
    /// The most that DROPs may be of all cells, in percent; 0: any part (`circpad_global_max_padding_pct`).
    pub global_max_padding_pct: u32,
    /// Cells in a circuit's queue past which DROPs are not sent (`circpad_max_circ_queued_cells`).
    pub max_circ_queued_cells: usize,
}

impl Default for CircpadParams {
    fn default() -> Self {
        CircpadParams {
            disabled: false,
            global_allowed_cells: 0,
            global_max_padding_pct: 0,
            max_circ_queued_cells: 1000,
        }
    }
}

impl CircpadParams {
    /// True if machines may send after this number of DROPs and of other cells.
    pub(crate) fn allows(&self, drops: u64, others: u64) -> bool {
        let within = self.global_max_padding_pct == 0
            || drops < u64::from(self.global_allowed_cells)
            || drops.saturating_mul(100) / drops.saturating_add(others).max(1)
                <= u64::from(self.global_max_padding_pct);
        !self.disabled && within
    }
}

/// A padding machine that relays have, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For clients that are introduced.
    Intro,
    /// For clients at their rendezvous.
    Rendezvous,
}

impl Kind {
    /// The one with this number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Kind::Intro),
            1 => Some(Kind::Rendezvous),
            _ => None,
        }
    }

    /// Its number.
    pub(crate) fn number(self) -> u8 {
        match self {
            Kind::Intro => 0,
            Kind::Rendezvous => 1,
        }
    }

    /// Draws the number of DROPs to send. C tor draws from 7 to 10 and from 1 to 2, and drops the
    /// fraction.
    fn draw_length(self, rng: &mut impl Rng) -> u8 {
        match self {
            Kind::Intro => rng.random_range(7..10),
            Kind::Rendezvous => 1,
        }
    }

    /// Draws the delay before the next DROP.
    fn draw_delay(self, rng: &mut impl Rng) -> Duration {
        Duration::from_micros(match self {
            Kind::Intro => rng.random_range(1000..10_000),
            Kind::Rendezvous => rng.random_range(0..1000),
        })
    }
}

/// A machine of a circuit.
#[derive(Clone, Copy, Debug)]
struct Machine {
    kind: Kind,
    /// Number of the machine on its circuit.
    counter: u32,
    /// DROPs that it is still to send.
    left: u8,
    /// Position of the circuit when the delay began.
    mark: BackwardMark,
    /// When the delay is over. `None`: it sends nothing more.
    due: Option<Instant>,
}

/// Padding state of a circuit on which padding was ever negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitPadding {
    /// Machines that were started on it.
    counter: u32,
    machine: Option<Machine>,
}

/// The result of a request to stop a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It was there, and is not any more.
    Machine,
    /// There is no machine (any more), or another one: no answer is expected.
    Nothing,
}

/// Action of a machine whose delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Sends a DROP.
    Drop,
    /// Sends a DROP and ends: PADDING_NEGOTIATED with the counter of this machine.
    LastDrop(Option<(u8, u32)>),
    /// Waits on: there were other cells.
    Wait,
}

/// The padding machines of a thread's circuits. A circuit that was never asked for padding has nothing here.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    circuits: BTreeMap<HalfAddr, CircuitPadding>,
    due: BTreeSet<(Instant, HalfAddr)>,
}

impl Machines {
    /// Starts a machine, unless the circuit has one. False: it has.
    ///
    /// The machine sends nothing before [`begin`](Self::begin).
    pub(crate) fn start(&mut self, half: HalfAddr, kind: Kind, mark: BackwardMark) -> bool {
        let circuit = self.circuits.entry(half).or_insert(CircuitPadding {
            counter: 0,
            machine: None,
        });
        if circuit.machine.is_some() {
            return false;
        }
        // 0 means any machine.
        circuit.counter = circuit.counter.checked_add(1).unwrap_or(1);
        circuit.machine = Some(Machine {
            kind,
            counter: circuit.counter,
            left: 0,
            mark,
            due: None,
        });
        true
    }

    /// The answer to the request for the machine was sent: its first delay begins, if it may send.
    pub(crate) fn begin(
        &mut self,
        half: HalfAddr,
        mark: BackwardMark,
        may_send: bool,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        let circuit = self.circuits.get_mut(&half);
        if let Some(machine) = circuit.and_then(|circuit| circuit.machine.as_mut()) {
            machine.left = machine.kind.draw_length(rng);
            machine.wait(half, &mut self.due, mark, may_send, rng, now);
        }
    }

    /// Stops the machine of this number, if the counter is its own or 0.
    pub(crate) fn stop(&mut self, half: HalfAddr, number: u8, counter: u32) -> Stopped {
        let Some(circuit) = self.circuits.get_mut(&half) else {
            return Stopped::Nothing;
        };
        let it = |machine: &mut Machine| {
            machine.kind.number() == number && (counter == 0 || machine.counter == counter)
        };
        match circuit.machine.take_if(it) {
            Some(machine) => {
                machine.leave(half, &mut self.due);
                Stopped::Machine
            }
            None => Stopped::Nothing,
        }
    }

    /// When the next delay is over.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next circuit whose delay is over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<HalfAddr> {
        let (at, half) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        let circuit = self.circuits.get_mut(&half);
        if let Some(machine) = circuit.and_then(|circuit| circuit.machine.as_mut()) {
            machine.due = None;
        }
        Some(half)
    }

    /// Action of the circuit's machine [whose delay is over](Self::take_due). After [`Due::Drop`]
    /// and [`Due::Wait`] the caller must [begin](Self::wait) the next delay.
    pub(crate) fn fire(&mut self, half: HalfAddr, mark: BackwardMark) -> Due {
        let circuit = self.circuits.get_mut(&half);
        let Some(circuit) = circuit else {
            return Due::Wait;
        };
        let Some(machine) = &mut circuit.machine else {
            return Due::Wait;
        };
        if machine.kind == Kind::Intro && machine.mark != mark {
            return Due::Wait;
        }
        machine.left = machine.left.saturating_sub(1);
        if machine.left > 0 {
            return Due::Drop;
        }
        Due::LastDrop(match machine.kind {
            Kind::Intro => {
                let ended = (machine.kind.number(), machine.counter);
                circuit.machine = None;
                Some(ended)
            }
            // It stays, and sends nothing more, until the client stops it.
            Kind::Rendezvous => None,
        })
    }

    /// The next delay of a circuit's machine begins, if it may send.
    pub(crate) fn wait(
        &mut self,
        half: HalfAddr,
        mark: BackwardMark,
        may_send: bool,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        let circuit = self.circuits.get_mut(&half);
        if let Some(machine) = circuit.and_then(|circuit| circuit.machine.as_mut()) {
            machine.wait(half, &mut self.due, mark, may_send, rng, now);
        }
    }

    /// A circuit has closed, or leaves for another thread.
    pub(crate) fn remove(&mut self, half: HalfAddr) -> Option<CircuitPadding> {
        if self.circuits.is_empty() {
            return None;
        }
        let circuit = self.circuits.remove(&half)?;
        if let Some(machine) = &circuit.machine {
            machine.leave(half, &mut self.due);
        }
        Some(circuit)
    }

    /// A circuit has come from another thread.
    pub(crate) fn put(&mut self, half: HalfAddr, circuit: CircuitPadding) {
        if let Some(at) = circuit.machine.and_then(|machine| machine.due) {
            self.due.insert((at, half));
        }
        self.circuits.insert(half, circuit);
    }

    /// Memory that this takes.
    pub(crate) fn memory(&self) -> usize {
        self.circuits.len() * map_entry::<HalfAddr, CircuitPadding>()
            + self.due.len() * map_entry::<(Instant, HalfAddr), ()>()
    }

    /// The circuits.
    pub(crate) fn halves(&self) -> impl Iterator<Item = HalfAddr> {
        self.circuits.keys().copied()
    }

    /// True if exactly the circuits whose delays run are listed.
    pub(crate) fn audit(&self) -> bool {
        let running = self.circuits.iter().filter_map(|(half, circuit)| {
            let machine = circuit.machine.as_ref()?;
            Some((machine.due?, *half))
        });
        running.collect::<BTreeSet<_>>() == self.due
    }
}

impl Machine {
    /// Its next delay begins, if it may send.
    fn wait(
        &mut self,
        half: HalfAddr,
        due: &mut BTreeSet<(Instant, HalfAddr)>,
        mark: BackwardMark,
        may_send: bool,
        rng: &mut impl Rng,
        now: Instant,
    ) {
        self.leave(half, due);
        self.mark = mark;
        self.due = may_send.then(|| now + self.kind.draw_delay(rng));
        due.extend(self.due.map(|at| (at, half)));
    }

    /// It waits for nothing any more.
    fn leave(&self, half: HalfAddr, due: &mut BTreeSet<(Instant, HalfAddr)>) {
        if let Some(at) = self.due {
            due.remove(&(at, half));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ThreadId;
    use crate::slots::HalfKey;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    const HALF: HalfAddr = HalfAddr {
        thread: ThreadId(0),
        slot: HalfKey(1),
        generation: 0,
    };

    /// The DROPs of one machine, and how it ends; before each delay another cell has passed with this chance.
    fn play(kind: Kind, seed: u64, disturbed: f64) -> (Vec<Duration>, Due) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut machines = Machines::default();
        let (start, mut position) = (Instant::now(), 0);
        let mut now = start;
        let mark = |position: u64| BackwardMark::Position(position);
        assert!(machines.start(HALF, kind, mark(position)));
        assert_eq!(machines.next_due(), None);
        machines.begin(HALF, mark(position), true, &mut rng, now);
        let mut drops = Vec::new();
        while let Some(at) = machines.next_due() {
            assert!(machines.audit());
            assert_eq!(machines.take_due(at - Duration::from_nanos(1)), None);
            now = at;
            position += u64::from(rng.random_bool(disturbed));
            assert_eq!(machines.take_due(now), Some(HALF));
            let due = machines.fire(HALF, mark(position));
            match due {
                Due::Wait => {}
                Due::Drop | Due::LastDrop(_) => drops.push(now.duration_since(start)),
            }
            if let Due::LastDrop(_) = due {
                assert!(machines.audit() && machines.next_due().is_none());
                return (drops, due);
            }
            position += u64::from(due == Due::Drop);
            machines.wait(HALF, mark(position), true, &mut rng, now);
        }
        panic!("the machine ends nowhere");
    }

    #[test]
    fn the_first_machine_sends_seven_to_nine_drops_ten_milliseconds_apart_at_most_and_ends() {
        let mut lengths = BTreeSet::new();
        for seed in 0..200 {
            let (drops, end) = play(Kind::Intro, seed, 0.0);
            assert_eq!(end, Due::LastDrop(Some((0, 1))));
            lengths.insert(drops.len());
            let mut before = Duration::ZERO;
            for drop in drops {
                let gap = (drop - before).as_micros();
                assert!((1000..10_000).contains(&gap), "{gap}");
                before = drop;
            }
        }
        assert_eq!(lengths, BTreeSet::from([7, 8, 9]));
    }

    #[test]
    fn the_second_machine_sends_one_drop_within_a_millisecond_and_stays() {
        for seed in 0..200 {
            let (drops, end) = play(Kind::Rendezvous, seed, 0.5);
            assert_eq!((drops.len(), end), (1, Due::LastDrop(None)));
            assert!(drops[0] < Duration::from_millis(1));
        }
    }

    #[test]
    fn other_cells_put_the_first_machine_s_drops_off() {
        let mut put_off = false;
        for seed in 0..50 {
            let (drops, _) = play(Kind::Intro, seed, 0.5);
            assert!((7..10).contains(&drops.len()));
            let mut before = Duration::ZERO;
            for drop in drops {
                put_off |= drop - before >= Duration::from_millis(10);
                before = drop;
            }
        }
        assert!(put_off);
    }

    #[test]
    fn one_machine_at_a_time_is_stopped_by_its_number_and_its_counter() {
        let mut machines = Machines::default();
        let mark = BackwardMark::Position(0);
        assert_eq!(machines.stop(HALF, 0, 0), Stopped::Nothing);
        assert!(machines.start(HALF, Kind::Intro, mark));
        assert!(!machines.start(HALF, Kind::Rendezvous, mark));
        assert_eq!(machines.stop(HALF, 1, 0), Stopped::Nothing);
        assert_eq!(machines.stop(HALF, 0, 2), Stopped::Nothing);
        assert_eq!(machines.stop(HALF, 0, 1), Stopped::Machine);
        assert_eq!(machines.stop(HALF, 0, 1), Stopped::Nothing);
        // The next has the next number.
        assert!(machines.start(HALF, Kind::Rendezvous, mark));
        assert_eq!(machines.stop(HALF, 1, 1), Stopped::Nothing);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        machines.begin(HALF, mark, true, &mut rng, Instant::now());
        assert!(machines.next_due().is_some());
        assert_eq!(machines.stop(HALF, 1, 0), Stopped::Machine);
        assert!(machines.next_due().is_none() && machines.audit());
    }

    #[test]
    fn a_machine_that_moves_keeps_its_delay_and_one_that_closes_leaves_nothing() {
        let (mut from, mut to) = (Machines::default(), Machines::default());
        let (mark, now) = (BackwardMark::Position(0), Instant::now());
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        from.start(HALF, Kind::Intro, mark);
        from.begin(HALF, mark, true, &mut rng, now);
        let due = from.next_due();
        to.put(HALF, from.remove(HALF).unwrap());
        assert_eq!((from.memory(), to.next_due()), (0, due));
        assert!(from.audit() && to.audit() && to.memory() > 0);
        assert!(to.remove(HALF).is_some() && to.remove(HALF).is_none());
        assert_eq!((to.memory(), to.next_due()), (0, None));
    }

    #[test]
    fn the_consensus_limits_padding_as_in_c_tor() {
        let params = CircpadParams::default();
        assert!(params.allows(1_000_000, 0));
        let disabled = CircpadParams {
            disabled: true,
            ..params
        };
        assert!(!disabled.allows(0, 1_000_000));
        let limited = CircpadParams {
            global_allowed_cells: 10,
            global_max_padding_pct: 5,
            ..params
        };
        assert!(limited.allows(9, 0));
        assert!(!limited.allows(10, 0));
        assert!(!limited.allows(10, 156) && limited.allows(10, 157));
        // Machines that may not send wait for nothing.
        let mut machines = Machines::default();
        let (mark, now) = (BackwardMark::Position(0), Instant::now());
        machines.start(HALF, Kind::Rendezvous, mark);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        machines.begin(HALF, mark, false, &mut rng, now);
        assert!(machines.next_due().is_none() && machines.audit());
    }
}
