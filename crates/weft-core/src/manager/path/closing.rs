//! Circuit halves close: here, and by messages to whatever belonged to them.

use std::time::Instant;

use weft_cell::reason::DestroyReason;
use weft_planted::{Fault, planted};

use super::CellPath;
use crate::address::{HalfAddr, StreamAddr};
use crate::circuit::half::{CircuitHalf, Peer, Purpose, Role};
use crate::message::{Asker, HalfControl, IntroNews, LegControl, ToController, TunnelNews};
use crate::origin::OriginEvent;
use crate::slots::HalfKey;
use crate::stream::table::Place;
use crate::tunnel::{Closing, TunnelName};

/// The sides that are notified when a half closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum Notify {
    /// The link (by DESTROY) and the peer half.
    Both,
    /// Both, and the peer half that this half's queue was full.
    Overflowed,
    /// Only the peer half: the link's peer knows, or the link is closed.
    Peer,
    /// Only the link: the peer half knows, or is closed.
    Link,
}

/// The side that closes a circuit that begins here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum ClosedBy {
    /// This node.
    Us,
    /// Another relay of the circuit.
    Peer,
}

impl CellPath {
    /// Closes a half: its queued cells are dropped, the sides that `notify` names are notified, and its
    /// slot is free.
    pub(in crate::manager) fn close_half(
        &mut self,
        slot: HalfKey,
        reason: DestroyReason,
        notify: Notify,
        now: Instant,
    ) {
        self.close_half_by(slot, reason, ClosedBy::Us, notify, now);
    }

    /// Closes a half like [`close_half`](Self::close_half). `by` is reported of a circuit that
    /// begins here.
    pub(in crate::manager) fn close_half_by(
        &mut self,
        slot: HalfKey,
        reason: DestroyReason,
        by: ClosedBy,
        notify: Notify,
        now: Instant,
    ) {
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        let Some(mut half) = self.halves.remove(slot) else {
            return;
        };
        self.closed.push(from);
        if half.is_guest {
            self.outboxes.forget_route(from);
        }
        self.note_queue_gone(slot, &half, from, true, now);
        if !planted(Fault::SchedulerKeepsHalf) {
            self.scheduler.circuit_removed(slot);
        }
        self.to_controller.cancel(Asker::Half(from));
        if let Some(link) = self.links.get_mut(half.link) {
            link.remove(half.circ_id, now);
        }
        if !half.queue.is_empty() && !planted(Fault::ClosedHalfStaysActive) {
            self.links.deactivated(half.link);
        }
        self.load_changed(half.link);
        if !planted(Fault::StreamsOutliveHalf) {
            self.end_streams(from, &mut half);
        }
        if !planted(Fault::LegEndNotReported) {
            self.end_leg(from, &mut half);
        }
        self.end_tunnel(from, &mut half, reason);
        // CREATE2 is the first cell of a forward half. If it still waits, the next hop has nothing to destroy. Cells
        // that wait show nothing: the origin may send some before CREATED2.
        let unsent = matches!(half.role, Role::Forward(_)) && half.queue.departed() == 0;
        while let Some(cell) = half.queue.pop() {
            self.pool.put(cell);
        }
        let mut sent_reason = reason;
        match &mut half.role {
            Role::Backward(backward) if backward.purpose == Purpose::RendezvousWaiting => {
                self.to_controller
                    .push(ToController::RendezvousGone { half: from });
            }
            Role::Backward(backward) if backward.purpose == Purpose::Introduction => {
                let gone = IntroNews::Gone { half: from };
                self.to_controller.push(gone.into());
            }
            Role::Backward(_) | Role::Forward(_) | Role::Tunnel(_) => {}
            Role::Origin(origin) => {
                // An origin sends no reason (tor-spec 5.4).
                sent_reason = DestroyReason::NONE;
                let circuit = origin.id;
                if let Some(report) = origin.take_report() {
                    self.to_controller.origin(OriginEvent::Traffic {
                        streams: Vec::new(),
                        circuits: vec![report],
                    });
                }
                self.to_controller.origin(OriginEvent::Closed {
                    circuit,
                    reason,
                    remote: by == ClosedBy::Peer,
                });
            }
        }
        if matches!(notify, Notify::Both | Notify::Overflowed | Notify::Link) && !unsent {
            self.links
                .push_destroy(half.link, half.circ_id, sent_reason);
        }
        if let (Peer::Joined(to), Notify::Both | Notify::Overflowed | Notify::Peer) =
            (half.peer, notify)
            && !planted(Fault::PeerNotNotified)
        {
            self.outboxes.send_half(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: notify == Notify::Overflowed && matches!(half.role, Role::Forward(_)),
            });
        }
    }

    /// The streams of a half that is closing lose it.
    fn end_streams(&mut self, from: HalfAddr, half: &mut CircuitHalf) {
        let Some(streams) = half.streams_mut() else {
            return;
        };
        for end in &mut streams.ends {
            for (_, cell) in end.pending.drain(..) {
                self.pool.put(cell);
            }
        }
        for (id, stream) in streams.drain() {
            let addr = StreamAddr {
                half: from,
                id,
                generation: stream.generation,
            };
            match stream.edge {
                Place::At(edge) => self.outboxes.detach(edge, addr),
                Place::Deciding(early) => {
                    for cell in early.into_cells() {
                        self.pool.put(cell);
                    }
                    self.to_controller.cancel_stream(addr);
                }
                Place::Over(_) | Place::Probe(_) => {}
            }
        }
    }

    // tunnels/mod.rs
    /// A half that is closing was a leg: its tunnel learns of that.
    pub(super) fn end_leg(&mut self, addr: HalfAddr, half: &mut CircuitHalf) {
        let Some(leg) = half.leg.take() else {
            return;
        };
        let Some(tunnel) = leg.tunnel else {
            // The controller's answer will find no half.
            return;
        };
        // As in C tor, which may miss less than what one SENDME is about.
        let end = half
            .streams()
            .and_then(|streams| streams.ends.get(leg.hop.index()));
        let flow = end.and_then(|end| end.flow.as_ref());
        let in_flight = flow.is_some_and(|flow| flow.in_flight() >= flow.increment());
        let closing = Closing {
            taken: leg.taken,
            given: leg.given,
            in_flight: in_flight || !half.queue.is_empty(),
        };
        self.outboxes.send_half(LegControl::Closed {
            to: tunnel,
            leg: addr,
            closing,
        });
    }

    // tunnels/mod.rs
    /// A half that is closing was a tunnel: so close its legs.
    pub(super) fn end_tunnel(
        &mut self,
        addr: HalfAddr,
        half: &mut CircuitHalf,
        reason: DestroyReason,
    ) {
        let Role::Tunnel(tunnel) = &mut half.role else {
            return;
        };
        let unsent = std::iter::from_fn(|| tunnel.waiting.pop());
        let waiting = tunnel.reorder.drain().chain(unsent);
        for cell in waiting {
            self.pool.put(cell);
        }
        let name = tunnel.name;
        let legs: Vec<HalfAddr> = tunnel.legs.iter().map(|leg| leg.half).collect();
        for leg in legs {
            self.outboxes.refuse_leg(leg, addr, reason);
        }
        self.totals.tunnels.closed += 1;
        let closed = TunnelNews::Closed { name, tunnel: addr };
        self.to_controller.push(closed.into());
        if let TunnelName::Origin(circuit) = name {
            self.to_controller.origin(OriginEvent::Closed {
                circuit,
                reason,
                remote: false,
            });
        }
    }
}
