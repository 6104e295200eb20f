//! Messages that halves seal with their keys: their own, and those of their edges as far as credit,
//! the circuit's window and its queue allow (tor-spec 7.3, 7.4).

use std::time::Instant;

use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{FlowControl, flow_control};
use weft_cell::stream_msg::Seen;
use weft_cell::{Cell, ChanCmd, RelayCmd};
use weft_crypto::circuit::{OriginCircuit, RelayCircuit};
use weft_planted::{Fault, planted};

use super::CellPath;
use super::closing::Notify;
use crate::address::{HopIndex, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role};
use crate::message::{Control, EdgeControl};
use crate::origin::traffic::CircuitTraffic;
use crate::slots::HalfKey;
use crate::stream::table::Streams;

impl CellPath {
    /// Sends what waits, as far as the circuit's window and its queue allow.
    pub(in crate::manager) fn package(&mut self, slot: HalfKey, hop: HopIndex, now: Instant) {
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        if half.leg.is_some() {
            return self.offer_room(slot);
        }
        let CircuitHalf {
            link,
            circ_id,
            queue,
            blocked,
            role,
            ..
        } = half;
        if let Role::Tunnel(_) = role {
            return self.package_tunnel(slot, now);
        }
        let waiting = queue.len();
        let was_empty = queue.is_empty();
        let mut sealed = true;
        let Some((streams, mut crypt, mut traffic)) = sealing(role, hop) else {
            return;
        };
        let (ends, mut table) = streams.split();
        let Some(end) = ends.get_mut(hop.index()) else {
            return;
        };
        let credits = &mut self.scratch.credits;
        while let Some((_, front)) = end.pending.front() {
            let command = RelayBody::new(front.body()).command();
            if queue.len() >= self.params.queue_high {
                *blocked = true;
                end.set_blocked(true);
                break;
            }
            let counted = flow_control(command) == FlowControl::Counted;
            if counted && end.room() == 0 {
                break;
            }
            let Some((edge, mut cell)) = end.take() else {
                break;
            };
            let body = RelayBody::new(cell.body());
            let id = body.stream_id();
            let Some((credit, generation)) = table.leaving(id, edge, end) else {
                self.pool.put(cell);
                continue;
            };
            if let Some(traffic) = &mut traffic {
                traffic.note_written(body.data().map_or(0, <[u8]>::len));
            }
            if !crypt.seal(cell.body_mut()) {
                // No edge makes such a cell; but no bytes may be missing from a stream that continues.
                self.pool.put(cell);
                sealed = false;
                break;
            }
            cell.set_command(ChanCmd::RELAY);
            cell.set_circ_id(*circ_id);
            if counted {
                if let Some(flow) = &mut end.flow {
                    if planted(Fault::CellCountedTwice) {
                        flow.note_sent(|| crypt.sent(), now);
                    }
                    flow.note_sent(|| crypt.sent(), now);
                }
                if credit > 0 {
                    let stream = StreamAddr {
                        half: addr,
                        id,
                        generation,
                    };
                    credits.push((edge, stream, credit));
                }
            } else {
                table.end_sent(id, end.rtt().map(|rtt| rtt.max), now);
            }
            queue.push(cell, now);
        }
        end.note(now);
        table.lend(end, addr, credits);
        let packaged = queue.len().saturating_sub(waiting);
        if let Role::Backward(backward) = role {
            let activity = &mut self.activity;
            activity.note_cells(slot, &mut backward.measured, packaged);
        }
        let key = *link;
        if was_empty && !queue.is_empty() {
            self.activate(slot, key);
        }
        self.send_credits();
        if !sealed {
            self.close_half(slot, DestroyReason::INTERNAL, Notify::Both, now);
        }
    }

    /// Sends the credit that is noted.
    pub(super) fn send_credits(&mut self) {
        for (edge, stream, cells) in self.scratch.credits.drain(..) {
            self.outboxes.send(Control::Edge(EdgeControl::Credit {
                to: edge,
                stream,
                cells,
            }));
        }
    }

    /// The half's queue has room again: its edges' cells are sent.
    pub(in crate::manager) fn unblock(&mut self, slot: HalfKey, now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        half.blocked = false;
        let hops = match half.streams_mut() {
            Some(streams) => {
                for end in &mut streams.ends {
                    end.set_blocked(false);
                }
                streams.ends.len()
            }
            None => 0,
        };
        for hop in 0..hops {
            self.package(slot, HopIndex::from_index(hop), now);
        }
    }

    /// Sends a relay message of this half's own to a hop: the origin's, or on a circuit of our own
    /// any hop.
    pub(in crate::manager) fn send_relay_msg(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        command: RelayCmd,
        stream: u16,
        data: &[u8],
        now: Instant,
    ) {
        let mut cell = self.pool.blank(0, ChanCmd::RELAY);
        if relay::encode(cell.body_mut(), command, stream, data, &mut self.rng).is_err() {
            self.pool.put(cell);
            return self.close_half(slot, DestroyReason::INTERNAL, Notify::Both, now);
        }
        self.seal_and_enqueue(slot, hop, cell, now);
    }

    /// Encrypts a message that does not count, and queues it; one of a tunnel is sent on a leg. False: it cannot be sent, the circuit may
    /// be closed.
    pub(in crate::manager) fn seal_and_enqueue(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        mut cell: Box<Cell>,
        now: Instant,
    ) -> bool {
        let sealing = match self.halves.get_mut(slot).map(|half| &mut half.role) {
            Some(Role::Backward(backward)) => {
                self.activity.note(slot, &mut backward.measured);
                backward.crypt.as_mut().map(Sealing::Relay)
            }
            Some(Role::Origin(origin)) if hop.index() < origin.crypt.len() => {
                let data = RelayBody::new(cell.body()).data();
                origin.traffic.note_written(data.map_or(0, <[u8]>::len));
                Some(Sealing::Origin(&mut origin.crypt, hop))
            }
            Some(Role::Tunnel(_)) => {
                self.send_on_tunnel(slot, cell, now);
                return true;
            }
            _ => None,
        };
        let Some(mut sealing) = sealing else {
            self.pool.put(cell);
            return false;
        };
        if !sealing.seal(cell.body_mut()) {
            self.pool.put(cell);
            self.close_half(slot, DestroyReason::INTERNAL, Notify::Both, now);
            return false;
        }
        cell.set_command(ChanCmd::RELAY);
        self.enqueue(slot, cell, now);
        true
    }

    /// Counts a message of a tunnel's that was just encrypted against its leg's window.
    pub(in crate::manager) fn note_counted(&mut self, slot: HalfKey, hop: HopIndex, now: Instant) {
        let half = self.halves.get_mut(slot);
        if let Some((streams, crypt, _)) = half.and_then(|half| sealing(&mut half.role, hop))
            && let Some(end) = streams.ends.get_mut(hop.index())
            && let Some(flow) = &mut end.flow
        {
            flow.note_sent(|| crypt.sent(), now);
        }
    }
}

/// Parts that seal a half's stream messages to a hop: its streams, the keys, and the traffic counts
/// of a circuit that begins here.
#[inline]
fn sealing(
    role: &mut Role,
    hop: HopIndex,
) -> Option<(&mut Streams, Sealing<'_>, Option<&mut CircuitTraffic>)> {
    match role {
        Role::Backward(backward) => {
            let streams = backward.streams.as_deref_mut()?;
            Some((streams, Sealing::Relay(backward.crypt.as_mut()?), None))
        }
        Role::Origin(origin) => Some((
            &mut origin.streams,
            Sealing::Origin(&mut origin.crypt, hop),
            Some(&mut origin.traffic),
        )),
        Role::Forward(_) | Role::Tunnel(_) => None,
    }
}

/// The keys that a message is sealed with.
enum Sealing<'a> {
    /// A relay's: the message is for the circuit's origin.
    Relay(&'a mut RelayCircuit),
    /// The origin's: the message is for a hop.
    Origin(&'a mut OriginCircuit, HopIndex),
}

impl Sealing<'_> {
    /// Seals a message for a RELAY cell and adds the layers. False: the layout has no place for it.
    fn seal(&mut self, body: &mut weft_cell::Body) -> bool {
        match self {
            Sealing::Relay(crypt) => crypt.originate_backward(body).is_ok(),
            Sealing::Origin(crypt, hop) => {
                let sealed = crypt.encrypt_forward(hop.index(), ChanCmd::RELAY, body);
                sealed.is_ok()
            }
        }
    }

    /// Tag or digest that a SENDME for the last sealed message must carry.
    fn sent(&self) -> Seen {
        match self {
            Sealing::Relay(crypt) => crypt.sent(),
            // A message was just sealed for this hop.
            Sealing::Origin(crypt, hop) => crypt.sent(hop.index()).unwrap_or(Seen::Tag([0; 16])),
        }
    }
}
