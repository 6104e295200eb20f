//! Carries out what the live mix decides: cells that are due, circuits and links that come and go.
//!
//! A circuit ends as an origin ends it: it gets no more cells, those on their way arrive, DESTROY
//! goes to the target, and when the target has passed it on, the circuit's number may be used for
//! the next one. A link closes once no circuit is on it: we reopen ours, and the target opens its
//! own when a circuit needs one.

use anyhow::Result;
use weft_cell::{Cell, ChanCmd};

use super::build::BUILDING;
use super::circuit::CircuitEnd;
use super::ends::{End, Phase, Side};
use super::state::World;
use crate::relay::live::mix::{At, Decision};

/// Number of times that links are drawn for a circuit before it waits for links that are closing or
/// opening.
const DRAWS: usize = 16;

impl World {
    /// The mix has a rate, or another one.
    pub(super) fn start_mix(&mut self, rate: f64) -> Result<()> {
        let now = self.now();
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        live.has_started = true;
        live.mix.start(now, rate);
        for number in 0..self.circuits.len() {
            self.destroy_if_drained(number)?;
        }
        Ok(())
    }

    /// Does what the mix has decided until now.
    pub(super) fn follow_mix(&mut self, now: u64) -> Result<()> {
        while let Some(decision) = self.live.as_mut().and_then(|live| live.mix.next(now)) {
            match decision {
                Decision::Send {
                    circuit,
                    forward,
                    cells,
                    due,
                } => self.release_cells(circuit, forward, cells, due, now),
                Decision::End { circuit } => self.end_circuit(circuit)?,
                Decision::Close { at, link } => self.close_link(at, link)?,
            }
        }
        Ok(())
    }

    /// A circuit can carry cells.
    pub(super) fn enter_mix(&mut self, number: usize) -> Result<()> {
        let now = self.now();
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        live.mix.begin(number, now);
        if live.has_started {
            self.churn.circuits_made += 1;
        }
        // A link of it may have been chosen to close meanwhile.
        let (origin, hop) = self.circuit(number).map(|c| (c.origin, c.hop))?;
        let closing = self.ends.get(origin).is_some_and(|end| end.closing)
            || self.hops.get(hop).is_some_and(|hop| hop.closing);
        if closing {
            self.end_by_link(number)?;
        }
        Ok(())
    }

    fn end_by_link(&mut self, number: usize) -> Result<()> {
        if let Some(live) = &mut self.live {
            live.mix.end(number);
        }
        self.end_circuit(number)
    }

    fn end_circuit(&mut self, number: usize) -> Result<()> {
        self.circuit(number)?.end = CircuitEnd::Draining;
        self.destroy_if_drained(number)
    }

    /// Sends DESTROY on a circuit that has come to its end.
    pub(super) fn destroy_if_drained(&mut self, number: usize) -> Result<()> {
        let circuit = self.circuit(number)?;
        let drained = circuit.up.is_drained() && circuit.down.is_drained();
        if circuit.end != CircuitEnd::Draining || !drained {
            return Ok(());
        }
        circuit.end = CircuitEnd::Destroyed;
        let (key, id) = (circuit.origin, circuit.origin_id);
        self.send(key, &Cell::new(id, ChanCmd::DESTROY))
    }

    /// True if a circuit has this id now, and not another one.
    pub(super) fn has_id(&self, number: usize, id: u32) -> bool {
        let circuit = self.circuits.get(number);
        circuit.is_some_and(|circuit| circuit.origin_id == id)
    }

    pub(super) fn is_destroyed(&self, number: usize) -> bool {
        let circuit = self.circuits.get(number);
        circuit.is_some_and(|circuit| circuit.end == CircuitEnd::Destroyed)
    }

    /// The target has passed DESTROY on.
    pub(super) fn vacate(&mut self, number: usize) -> Result<()> {
        let circuit = self.circuit(number)?;
        circuit.end = CircuitEnd::Vacant;
        let (origin, hop) = (circuit.origin, circuit.hop);
        self.churn.circuits_ended += 1;
        if let Some(live) = &mut self.live {
            live.vacant.push_back(number);
        }
        let end = self.end(origin)?;
        end.carried -= 1;
        if end.closing && end.carried == 0 {
            self.reopen(origin)?;
        }
        if let Some(hop) = self.hops.get_mut(hop) {
            hop.carried -= 1;
        }
        self.close_hop_if_unused(hop)
    }

    /// Makes circuits whose numbers are free, some at a time.
    pub(super) fn renew_circuits(&mut self) -> Result<()> {
        while self.begun - self.built < BUILDING {
            let Some(live) = &mut self.live else {
                return Ok(());
            };
            let Some(number) = live.vacant.pop_front() else {
                return Ok(());
            };
            let place = (0..DRAWS).find_map(|_| {
                let (origin, hop) = live.mix.place();
                let end = self.origins.get(origin).and_then(|key| self.ends.get(*key));
                let is_open =
                    end.is_some_and(|end| matches!(end.phase, Phase::Open) && !end.closing);
                let free = self.hops.get(hop).is_some_and(|hop| !hop.closing);
                (is_open && free).then_some((origin, hop))
            });
            let Some((origin, hop)) = place else {
                live.vacant.push_front(number);
                return Ok(());
            };
            self.begin_again(number, origin, hop)?;
        }
        Ok(())
    }

    /// Ends the circuits of a link, and the link with the last of them.
    fn close_link(&mut self, at: At, link: usize) -> Result<()> {
        let origin = self.origins.get(link).copied();
        match at {
            At::Origin => {
                let end = origin.and_then(|key| self.ends.get_mut(key));
                let Some(end) = end.filter(|end| matches!(end.phase, Phase::Open)) else {
                    return Ok(());
                };
                if std::mem::replace(&mut end.closing, true) {
                    return Ok(());
                }
            }
            At::Hop => {
                let Some(hop) = self.hops.get_mut(link) else {
                    return Ok(());
                };
                if std::mem::replace(&mut hop.closing, true) {
                    return Ok(());
                }
            }
        }
        for number in 0..self.circuits.len() {
            let circuit = self.circuit(number)?;
            let on_it = match at {
                At::Origin => Some(circuit.origin) == origin,
                At::Hop => circuit.hop == link,
            };
            if on_it && circuit.build.is_none() && circuit.end == CircuitEnd::Open {
                self.end_by_link(number)?;
            }
        }
        match (at, origin) {
            (At::Hop, _) => self.close_hop_if_unused(link),
            (At::Origin, Some(key)) if self.end(key)?.carried == 0 => self.reopen(key),
            (At::Origin, _) => Ok(()),
        }
    }

    /// Closes a link of ours, and opens another in its place.
    fn reopen(&mut self, key: usize) -> Result<()> {
        let Some(end) = self.ends.try_remove(key) else {
            return Ok(());
        };
        end.link.close();
        self.churn.links_closed += 1;
        self.origins_open -= 1;
        let opened = self.open()?;
        if let Some(place) = self.origins.iter_mut().find(|origin| **origin == key) {
            *place = opened;
        }
        Ok(())
    }

    /// Ends the target's links to a relay of ours that is to be closed, if no circuit needs it.
    fn close_hop_if_unused(&mut self, number: usize) -> Result<()> {
        let Some(hop) = self.hops.get(number) else {
            return Ok(());
        };
        if !hop.closing || hop.carried > 0 {
            return Ok(());
        }
        let links: Vec<usize> = self
            .ends
            .iter()
            .filter(|(_, end)| end.side == Side::NextHop(number))
            .map(|(key, _)| key)
            .collect();
        for key in &links {
            let end = self.end(*key)?;
            end.phase = Phase::Closing;
            if end.link.end_writing().is_err() {
                self.ended(*key)?;
            }
        }
        if links.is_empty()
            && let Some(hop) = self.hops.get_mut(number)
        {
            hop.closing = false;
        }
        Ok(())
    }

    /// True if the target may close this link: we have closed it ourselves, or it carries no
    /// circuit of the mix.
    pub(super) fn may_end(&self, key: usize) -> bool {
        let Some(end) = self.ends.get(key).filter(|_| self.live.is_some()) else {
            return false;
        };
        match (&end.phase, end.side) {
            (Phase::Closing, _) => true,
            (Phase::Open, Side::Origin) => end.carried == 0,
            (Phase::Open, Side::NextHop(hop)) => {
                self.hops.get(hop).is_some_and(|hop| hop.carried == 0)
            }
            _ => false,
        }
    }

    /// The target has ended such a link.
    pub(super) fn ended(&mut self, key: usize) -> Result<()> {
        let Some(end) = self.ends.get(key) else {
            return Ok(());
        };
        let Side::NextHop(number) = end.side else {
            return self.reopen(key);
        };
        self.ends.remove(key);
        self.churn.links_closed += 1;
        let another = |(_, end): (usize, &End)| end.side == Side::NextHop(number);
        if !self.ends.iter().any(another)
            && let Some(hop) = self.hops.get_mut(number)
        {
            hop.closing = false;
        }
        Ok(())
    }
}
