//! The legs of a tunnel: which takes the next message, and the numbers of messages on each.
//!
//! A leg lends the tunnel what its circuit's window and queue have room for, as circuits lend to edges; so the tunnel's streams
//! share one buffer from which legs take cells as fast as their circuits carry them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weft_planted::{Fault, planted};

use super::leg::{LegLink, LegSide, MAX_LEGS, Policy, Room, Sequence};
use super::outstanding::Outstanding;
use super::slow::Pace;
use crate::address::{HalfAddr, OriginId};
use crate::memory::ledger::{Held, queue_memory, shrink};

/// Rule by which legs are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheduling {
    /// The leg with the shortest round trip, or none: nothing is reordered in vain (C tor's `conflux_decide_circ_minrtt`).
    MinRtt,
    /// The leg with the shortest round trip among those that have room
    /// (`conflux_decide_circ_lowrtt`).
    #[default]
    LowRtt,
    /// Legs that have room take [`TURN`] messages each, in turn (Yang and Li 2015, IV-B).
    Fifo,
}

/// Messages that a leg takes in a turn, as far as it has room: what fits into two TLS records. With one message a turn each call that
/// writes to a link has half as many cells (docs/performance.md).
pub(super) const TURN: u32 = 64;

/// Time after which a leg of our own without an answer to MULTIPATH or JOIN is closed.
const JOINING: Duration = Duration::from_secs(60);
/// A leg on which MTOR_DROP was sent is closed after this time without any message: neither the
/// answer nor the messages that the far end sent before it. A slow relay takes longer than this for
/// a window, so each message that arrives restarts the time.
const DROPPING: Duration = Duration::from_secs(10);
/// Time after which a leg on which MTOR_DROP was sent, by either end, is closed, whatever arrives.
const STOPPED: Duration = Duration::from_secs(60);

/// A leg of a tunnel.
#[derive(Debug)]
pub(crate) struct Leg {
    /// Its half.
    pub half: HalfAddr,
    /// Its link.
    pub link: LegLink,
    /// Its name, if it is our own.
    pub circuit: Option<OriginId>,
    /// It is linked: it may send and receive.
    pub linked: bool,
    /// No more is sent on it, for good.
    pub dropped: bool,
    /// When it joined, or no more was sent on it.
    since: Instant,
    /// It is slow, as the client thread knows.
    pub slow: bool,
    /// Counted cells that it takes now.
    room: u32,
    /// Its round trip, once one was measured.
    pub(super) rtt: Option<Duration>,
    /// The number of the tunnel's last message that was sent on it, or skipped by SWITCH.
    pub(super) last_sent: u64,
    /// The number of the tunnel's last message that arrived on it, or was skipped by SWITCH.
    last_received: u64,
    /// Messages that were handed to it.
    handed: u64,
    /// Messages that came from it, SWITCH among them.
    arrived: u64,
    /// Its half has closed, and some that it handed on before are still on their way.
    pub(super) closing: Option<Closing>,
    /// Messages that were sent on it and that its SENDMEs have not acknowledged, in order (mTor).
    pub(super) carries: VecDeque<u64>,
    /// Number of these, from the first on, that were queued to be sent again because the leg
    /// stalled. No message is queued twice.
    pub(super) given_up: usize,
    /// It stands still: nothing new is sent on it.
    pub(super) stalled: bool,
    /// When its last turn ended (mTor): a count.
    pub(super) turn: u64,
    /// Messages that it has taken in the turn that it has now.
    in_turn: u32,
    /// Rate at which messages arrive (mTor).
    pub pace: Pace,
}

/// Final counts that a closed half leaves to its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The tunnel's messages that were sent on the circuit.
    pub taken: u64,
    /// Messages that were handed to the tunnel, SWITCH among them. This message overtakes them.
    pub given: u64,
    /// Some of those that were sent may not have arrived.
    pub in_flight: bool,
}

/// Effect of a removed leg on its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It does, or the leg's last messages are on their way.
    GoOn,
    /// It does not.
    End,
}

/// The leg that takes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its half.
    pub half: HalfAddr,
    /// The message's number.
    pub number: u64,
    /// Amount by which SWITCH must first raise the leg's sequence number (conflux).
    pub switch: Option<u32>,
}

/// The legs of a tunnel.
#[derive(Debug)]
pub(crate) struct Legs {
    /// All of them, in the order in which they joined.
    pub(super) legs: Vec<Leg>,
    /// The place of the one that sent last.
    current: Option<usize>,
    /// Numbering of messages.
    policy: Policy,
    /// Rule by which legs are chosen.
    pub scheduling: Scheduling,
    /// Messages sent, each counted once.
    pub(super) sent: u64,
    /// Messages that may have to be sent again (mTor).
    pub(super) outstanding: Outstanding,
    /// The highest number that MTOR_ACK named, and when it did so first.
    pub(super) named: Option<(u64, Instant)>,
    /// Messages that were to be sent again because their leg stood still.
    pub(super) given_up: u64,
    /// Legs that joined, those that have closed among them.
    joined: u64,
    /// Counts messages and turns.
    pub(super) turns: u64,
    /// When something that was sent was acknowledged last (mTor).
    pub(super) news: Option<Instant>,
    /// Number of times that the last message was sent again since then.
    pub(super) tails: u32,
    /// Counts acknowledgements that were sent.
    pub(super) acks: usize,
}

impl Legs {
    /// None yet.
    pub(crate) fn new(policy: Policy) -> Self {
        Legs {
            legs: Vec::new(),
            current: None,
            policy,
            scheduling: match policy {
                Policy::Conflux => Scheduling::LowRtt,
                Policy::Mtor => Scheduling::Fifo,
            },
            sent: 0,
            outstanding: Outstanding::default(),
            named: None,
            given_up: 0,
            joined: 0,
            turns: 0,
            news: None,
            tails: 0,
            acks: 0,
        }
    }

    /// All legs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter()
    }

    /// Number of legs.
    pub(crate) fn len(&self) -> usize {
        self.legs.len()
    }

    /// Messages sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The longest round trip of a leg.
    pub(crate) fn longest_rtt(&self) -> Option<Duration> {
        self.legs.iter().filter_map(|leg| leg.rtt).max()
    }

    /// Memory that this points to.
    pub(crate) fn held(&self, now: Instant) -> Held {
        let carries = self.legs.iter().map(|leg| queue_memory(&leg.carries));
        let messages = carries.sum::<usize>() + self.outstanding.memory();
        Held::kept(self.legs.capacity() * size_of::<Leg>())
            + Held::waiting(messages, self.outstanding.age(now))
    }

    /// Legs that joined, those that have closed among them.
    pub(crate) fn joined(&self) -> u64 {
        self.joined
    }

    /// A half joins.
    pub(crate) fn add(
        &mut self,
        half: HalfAddr,
        link: LegLink,
        circuit: Option<OriginId>,
        now: Instant,
    ) {
        self.joined += 1;
        self.legs.push(Leg {
            half,
            link,
            circuit,
            linked: false,
            dropped: false,
            since: now,
            slow: false,
            room: 0,
            rtt: None,
            last_sent: 0,
            last_received: 0,
            handed: 0,
            arrived: 0,
            closing: None,
            carries: VecDeque::new(),
            given_up: 0,
            stalled: false,
            turn: 0,
            in_turn: 0,
            pace: Pace::default(),
        });
    }

    /// A leg.
    pub(crate) fn get_mut(&mut self, half: HalfAddr) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.half == half)
    }

    /// A leg is linked. `far`: the far end's sequence, by its CONFLUX_LINK or CONFLUX_LINKED.
    pub(crate) fn linked(&mut self, half: HalfAddr, far: Sequence, rtt: Option<Duration>) {
        if let Some(leg) = self.get_mut(half) {
            leg.linked = true;
            leg.rtt = rtt;
            leg.last_sent = far.received;
            leg.last_received = far.sent;
        }
        // Legs share relays, and a new circuit has precedence there: what the others brought until now says nothing of what they
        // are to bring.
        for leg in &mut self.legs {
            leg.pace.begin_anew();
        }
    }

    /// A leg's circuit can take more, its round trip is another, or its far end has received something.
    pub(crate) fn note_room(&mut self, half: HalfAddr, room: Room, now: Instant) {
        let Some(mut place) = self.legs.iter().position(|leg| leg.half == half) else {
            return;
        };
        if room.acknowledged > 0 && planted(Fault::WrongLegAcknowledged) {
            place = (place + 1) % self.legs.len().max(1);
        }
        let Some(leg) = self.legs.get_mut(place) else {
            return;
        };
        leg.room = leg.room.saturating_add(room.cells);
        leg.rtt = room.rtt.or(leg.rtt);
        if room.acknowledged == 0 || self.policy != Policy::Mtor {
            return;
        }
        for _ in 0..room.acknowledged {
            if let Some(number) = leg.carries.pop_front() {
                leg.given_up = leg.given_up.saturating_sub(1);
                self.outstanding.acknowledged(number);
            }
        }
        shrink(&mut leg.carries);
        leg.stalled = false;
        self.note_news(now);
    }

    /// True if the leg is linked, and was not given up.
    pub(crate) fn is_in_use(&self, half: HalfAddr) -> bool {
        let mut legs = self.legs.iter();
        legs.any(|leg| leg.half == half && leg.is_usable())
    }

    /// Stops sending on a leg. Messages that it carries still count as under way.
    pub(crate) fn drop_leg(&mut self, half: HalfAddr, now: Instant) {
        if let Some(leg) = self.get_mut(half) {
            leg.dropped = true;
            leg.since = now;
        }
    }

    /// Legs to close because their far end has not answered for too long (mTor).
    pub(crate) fn overdue(&self, now: Instant) -> impl Iterator<Item = HalfAddr> {
        let overdue = move |leg: &&Leg| {
            let waited = now.saturating_duration_since(leg.since);
            let rested =
                (leg.pace.last()).map_or(waited, |last| now.saturating_duration_since(last));
            let is_overdue = match (leg.dropped, leg.circuit) {
                (true, Some(_)) => waited.min(rested) >= DROPPING || waited >= STOPPED,
                (true, None) => waited >= STOPPED,
                (false, _) => !leg.linked && waited >= JOINING,
            };
            leg.closing.is_none() && is_overdue
        };
        self.legs.iter().filter(overdue).map(|leg| leg.half)
    }

    /// A leg's half has closed.
    pub(crate) fn closed(&mut self, half: HalfAddr, closing: Closing) -> Removed {
        if let Some(place) = self.legs.iter().position(|leg| leg.half == half)
            && let Some(leg) = self.legs.get_mut(place)
        {
            leg.closing = Some(closing);
            leg.given_up = 0;
            for number in leg.carries.drain(..) {
                self.outstanding.send_again(number, half);
            }
        }
        self.remove_closed(half)
    }

    /// Removes a leg whose half has closed, once everything has arrived that it handed on.
    fn remove_closed(&mut self, half: HalfAddr) -> Removed {
        let Some(place) = self.legs.iter().position(|leg| leg.half == half) else {
            return Removed::GoOn;
        };
        let closed = self.legs.get(place).and_then(|leg| {
            let closing = leg.closing?;
            (leg.arrived >= closing.given).then_some(closing)
        });
        let Some(closing) = closed else {
            return Removed::GoOn;
        };
        let was_current = self.current == Some(place);
        let leg = self.legs.remove(place);
        self.current = match self.current {
            Some(current) if current > place => Some(current - 1),
            Some(current) if current < place => Some(current),
            _ => None,
        };
        // As in C tor: what it was the last to carry, in either direction, or may not have carried to the end, is missing. mTor's ends
        // send that again.
        let most_sent = self.legs.iter().map(|leg| leg.last_sent).max();
        let most_received = self.legs.iter().map(|leg| leg.last_received).max();
        let misses = leg.linked
            && self.policy == Policy::Conflux
            && (was_current
                || closing.in_flight
                || leg.handed != closing.taken
                || most_sent.unwrap_or(0) < leg.last_sent
                || most_received.unwrap_or(0) < leg.last_received);
        match misses || self.legs.is_empty() {
            true => Removed::End,
            false => Removed::GoOn,
        }
    }

    // ---- what is sent ----

    /// True if a leg takes a new message. `counted`: the message counts against its circuit's
    /// window.
    pub(crate) fn takes(&self, counted: bool) -> bool {
        match counted {
            true => self.next().is_some() && self.outstanding.has_room(),
            false => self.first().is_some(),
        }
    }

    /// The leg that takes the next message, which counts against its circuit's window or not. `None`: it waits.
    pub(crate) fn choose(&mut self, counted: bool) -> Option<Choice> {
        let place = match self.next() {
            Some(place) => place,
            // Messages that do not count follow the last message on its leg.
            None if !counted => self.current_usable().or_else(|| self.first())?,
            None => return None,
        };
        self.current = Some(place);
        let leg = self.legs.get_mut(place)?;
        // Both ends count from what they sent each other when the leg was linked.
        let skipped = self.sent.saturating_sub(leg.last_sent);
        let switch = (skipped > 0 && self.policy == Policy::Conflux)
            .then(|| u32::try_from(skipped).unwrap_or(u32::MAX));
        self.sent += 1;
        leg.last_sent = self.sent;
        let number = self.sent;
        self.take_turn(place, counted);
        let half = self.legs.get(place)?.half;
        Some(Choice {
            half,
            number,
            switch,
        })
    }

    /// A leg takes a message.
    pub(super) fn take_turn(&mut self, place: usize, counted: bool) {
        self.turns += 1;
        if let Some(leg) = self.legs.get_mut(place) {
            leg.handed += 1;
            leg.in_turn += 1;
            if leg.in_turn >= TURN {
                leg.end_turn(self.turns);
            }
            if counted {
                leg.room = leg.room.saturating_sub(1);
            }
        }
    }

    /// The leg that has the next message by the rules of scheduling.
    pub(super) fn next(&self) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let linked = legs.filter(|(_, leg)| leg.is_usable());
        // A round trip that is not known yet is longer than every other.
        let rtt = |leg: &Leg| leg.rtt.unwrap_or(Duration::MAX);
        // If all stand still it is not the legs.
        let all_stalled = (self.legs.iter()).all(|leg| leg.stalled || !leg.is_usable());
        let ready = |leg: &Leg| leg.room > 0 && (!leg.stalled || all_stalled);
        match self.scheduling {
            Scheduling::MinRtt => linked
                .min_by_key(|(_, leg)| rtt(leg))
                .filter(|(_, leg)| ready(leg)),
            Scheduling::LowRtt => linked
                .filter(|(_, leg)| ready(leg))
                .min_by_key(|(_, leg)| rtt(leg)),
            Scheduling::Fifo => linked
                .filter(|(_, leg)| ready(leg))
                .min_by_key(|(_, leg)| leg.turn),
        }
        .map(|(place, _)| place)
    }

    /// The leg that sent last, if it still may.
    fn current_usable(&self) -> Option<usize> {
        let place = self.current?;
        self.legs.get(place)?.is_usable().then_some(place)
    }

    /// The first leg that is linked.
    fn first(&self) -> Option<usize> {
        self.legs.iter().position(Leg::is_usable)
    }

    // ---- what arrives ----

    /// A message arrived on a leg: its number, if its place there gives one (conflux). `None`: the leg may not send.
    pub(crate) fn received(&mut self, half: HalfAddr) -> Option<u64> {
        let first = self.outstanding.first();
        let leg = self.get_mut(half).filter(|leg| leg.linked)?;
        leg.arrived += 1;
        // It moves, one way at least. Where everything that was sent on it has arrived, on others, it may be tried again.
        leg.stalled &= leg.last_sent >= first;
        leg.last_received = leg.last_received.checked_add(1)?;
        Some(leg.last_received)
    }

    /// SWITCH arrived on a leg. False: the leg may not send, or the number is too large.
    pub(crate) fn switched(&mut self, half: HalfAddr, relative: u32) -> bool {
        let Some(leg) = self.get_mut(half).filter(|leg| leg.linked) else {
            return false;
        };
        leg.arrived += 1;
        match leg.last_received.checked_add(u64::from(relative)) {
            Some(number) => {
                leg.last_received = number;
                true
            }
            None => false,
        }
    }

    /// A message from a leg was handled: its half may have closed behind it.
    pub(crate) fn handled(&mut self, half: HalfAddr) -> Removed {
        self.remove_closed(half)
    }

    /// True if copies, and the messages that legs carry, are within their bounds, for tests.
    pub(crate) fn audit(&self) -> bool {
        let given_up = |leg: &Leg| leg.given_up <= leg.carries.len();
        let conflux =
            || self.outstanding.memory() == 0 && self.legs.iter().all(|leg| leg.carries.is_empty());
        self.outstanding.audit()
            && self.legs.len() <= MAX_LEGS
            && self.legs.iter().all(given_up)
            && (self.policy == Policy::Mtor || conflux())
    }
}

impl Leg {
    /// Compares what this leg's tunnel knows of it with what its half knows, where no message between them is under way, for
    /// tests. `in_flight`: counted cells of the half's circuit that are not acknowledged.
    ///
    /// # Errors
    ///
    /// The inconsistency that was found.
    pub(crate) fn audit(
        &self,
        side: &LegSide,
        in_flight: u32,
        policy: Policy,
    ) -> Result<(), &'static str> {
        if !self.is_usable() || side.dropped {
            return Ok(());
        }
        let carried = self.carries.len() as u64;
        let unacknowledged = u64::from(in_flight) + u64::from(side.acknowledged);
        match () {
            () if self.room != side.granted => Err("a tunnel has the room that its leg has lent"),
            () if self.handed != side.taken => Err("a leg has sent what its tunnel gave it"),
            () if self.arrived != side.given => Err("a tunnel has what its leg has received"),
            () if policy == Policy::Mtor && carried != unacknowledged => {
                Err("a tunnel knows how much of what a leg carries is acknowledged")
            }
            () => Ok(()),
        }
    }

    /// All others have their turns before it has another. `now`: a count of turns.
    pub(super) fn end_turn(&mut self, now: u64) {
        (self.turn, self.in_turn) = (now, 0);
    }

    /// It is slow: its circuit, if that is our own and was not known to be.
    pub(super) fn found_slow(&mut self) -> Option<OriginId> {
        if !self.linked || std::mem::replace(&mut self.slow, true) {
            return None;
        }
        self.circuit
    }

    /// True if messages may be sent on it.
    pub(super) fn is_usable(&self) -> bool {
        self.linked && self.closing.is_none() && !self.dropped
    }
}
