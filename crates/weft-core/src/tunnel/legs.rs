//! Which leg of a tunnel takes the next message.
//!
//! A leg lends the tunnel what its circuit's window and queue have room for, as circuits lend to edges; so the tunnel's streams
//! share one buffer from which legs take cells as fast as their circuits carry them.

use std::time::Duration;

use super::{LegLink, Sequence};
use crate::address::HalfAddr;

/// How legs are chosen (proposal 329; C tor's `conflux_decide_next_circ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheduling {
    /// The leg with the shortest round trip, or none: nothing is reordered in vain.
    MinRtt,
    /// Of the legs that have room, the one with the shortest round trip.
    #[default]
    LowRtt,
}

/// A leg of a tunnel.
#[derive(Debug)]
pub(crate) struct Leg {
    /// Its half.
    pub half: HalfAddr,
    /// Its link.
    pub link: LegLink,
    /// It is linked: it may send and receive.
    pub linked: bool,
    /// Counted cells that it takes now.
    room: u32,
    /// Its round trip, once one was measured.
    rtt: Option<Duration>,
    /// The number of the tunnel's last message that was sent on it, or skipped by SWITCH.
    last_sent: u64,
    /// The same of what arrives.
    last_received: u64,
    /// Messages that were handed to it.
    handed: u64,
    /// Messages that came from it, SWITCH among them.
    arrived: u64,
    /// Its half has closed, and some that it handed on before are still on their way.
    closing: Option<Closing>,
}

/// What a half that has closed had done for its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The tunnel's messages that were sent on the circuit.
    pub taken: u64,
    /// Messages that were handed to the tunnel, SWITCH among them. This message overtakes them.
    pub given: u64,
    /// Some of those that were sent may not have arrived.
    pub in_flight: bool,
}

/// Whether a tunnel goes on without a leg.
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
    /// By how much SWITCH must raise its sequence number before.
    pub switch: Option<u32>,
}

/// The legs of a tunnel.
#[derive(Debug, Default)]
pub(crate) struct Legs {
    /// All of them, in the order in which they joined.
    legs: Vec<Leg>,
    /// The place of the one that sent last.
    current: Option<usize>,
    /// How they are chosen.
    pub scheduling: Scheduling,
    /// Messages sent.
    sent: u64,
}

impl Legs {
    /// All legs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter()
    }

    /// How many there are.
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
    pub(crate) fn memory(&self) -> usize {
        self.legs.capacity() * size_of::<Leg>()
    }

    /// A half joins.
    pub(crate) fn add(&mut self, half: HalfAddr, link: LegLink) {
        self.legs.push(Leg {
            half,
            link,
            linked: false,
            room: 0,
            rtt: None,
            last_sent: 0,
            last_received: 0,
            handed: 0,
            arrived: 0,
            closing: None,
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
    }

    /// A leg's circuit can take more, or its round trip is another.
    pub(crate) fn note_room(&mut self, half: HalfAddr, room: super::Room) {
        if let Some(leg) = self.get_mut(half) {
            leg.room = leg.room.saturating_add(room.cells);
            leg.rtt = room.rtt.or(leg.rtt);
        }
    }

    /// A leg's half has closed.
    pub(crate) fn closed(&mut self, half: HalfAddr, closing: Closing) -> Removed {
        if let Some(leg) = self.get_mut(half) {
            leg.closing = Some(closing);
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
        // As in C tor: what it was the last to carry, in either direction, or may not have carried to the end, is missing.
        let most_sent = self.legs.iter().map(|leg| leg.last_sent).max();
        let most_received = self.legs.iter().map(|leg| leg.last_received).max();
        let misses = leg.linked
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

    /// Whether some leg takes a message that counts.
    pub(crate) fn has_room(&self) -> bool {
        self.next().is_some()
    }

    /// The leg that takes the next message, which counts against its circuit's window or not. `None`: it waits.
    pub(crate) fn choose(&mut self, counted: bool) -> Option<Choice> {
        let place = match self.next() {
            Some(place) => place,
            // What does not count goes where the last message went.
            None if !counted => self.current.or_else(|| self.first())?,
            None => return None,
        };
        self.current = Some(place);
        let leg = self.legs.get_mut(place)?;
        // Both ends count from what they sent each other when the leg was linked.
        let skipped = self.sent.saturating_sub(leg.last_sent);
        let switch = (skipped > 0).then(|| u32::try_from(skipped).unwrap_or(u32::MAX));
        self.sent += 1;
        leg.last_sent = self.sent;
        leg.handed += 1;
        if counted {
            leg.room = leg.room.saturating_sub(1);
        }
        Some(Choice {
            half: leg.half,
            switch,
        })
    }

    /// The leg that has the next message by the rules of scheduling.
    fn next(&self) -> Option<usize> {
        let legs = self.legs.iter().enumerate();
        let linked = legs.filter(|(_, leg)| leg.linked && leg.closing.is_none());
        // A round trip that is not known yet is longer than every other.
        let rtt = |leg: &Leg| leg.rtt.unwrap_or(Duration::MAX);
        let ready = |leg: &Leg| leg.room > 0;
        match self.scheduling {
            Scheduling::MinRtt => linked
                .min_by_key(|(_, leg)| rtt(leg))
                .filter(|(_, leg)| ready(leg)),
            Scheduling::LowRtt => linked
                .filter(|(_, leg)| ready(leg))
                .min_by_key(|(_, leg)| rtt(leg)),
        }
        .map(|(place, _)| place)
    }

    /// The first leg that is linked.
    fn first(&self) -> Option<usize> {
        let usable = |leg: &Leg| leg.linked && leg.closing.is_none();
        self.legs.iter().position(usable)
    }

    /// The number of a message that arrived on a leg. `None`: the leg may not send.
    pub(crate) fn received(&mut self, half: HalfAddr) -> Option<u64> {
        let leg = self.get_mut(half).filter(|leg| leg.linked)?;
        leg.arrived += 1;
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
}
