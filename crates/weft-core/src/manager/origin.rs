//! Circuits that begin here: the half that holds all hops' keys (tor-spec 5.1 to 5.5, 6).

use std::sync::Arc;
use std::time::Instant;

use rand::Rng as _;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extended2};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::{Cell, CellView, ChanCmd, RelayCmd};
use weft_crypto::HopKeys;

use super::{LocalConnectionManager, Tell};
use crate::address::{ConnectionId, EdgeAddr, HalfAddr, StreamAddr};
use crate::edge::{Asked, StreamAt};
use crate::flow::{CircuitFlow, Terms};
use crate::half::{CircuitHalf, Role, Waiting};
use crate::message::{EdgeControl, ToController};
use crate::origin::{HopFlow, OriginEvent, OriginId};
use crate::scheduler::LinkKey;
use crate::streams::{HopEnd, Place};

impl LocalConnectionManager {
    /// The controller found the link for a circuit of our own: make it and send its CREATE.
    pub(super) fn on_launch(
        &mut self,
        connection: ConnectionId,
        circuit: OriginId,
        create: &Arc<CreateRequest>,
        now: Instant,
    ) {
        let key = self.link_of(connection);
        let random = self.rng.next_u32();
        let circ_id = key
            .and_then(|key| self.links.get(key as usize))
            .filter(|link| link.circuits() < self.params.max_circuits_per_link)
            .and_then(|link| link.choose_circ_id(random));
        let (Some(key), Some(circ_id)) = (key, circ_id) else {
            return self.tell_origin(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::RESOURCELIMIT,
                remote: false,
            });
        };
        let made = create.encode(circ_id).ok();
        let half = self.add_half(CircuitHalf::origin(key, circ_id, circuit), now);
        let (Some(cell), Some(half)) = (made, half) else {
            return self.tell_origin(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::INTERNAL,
                remote: false,
            });
        };
        self.to_controller.push_back(ToController::OriginMade {
            circuit,
            half,
            connection,
        });
        let cell = self.pool.hold(cell);
        self.enqueue(half.slot, cell, now);
    }

    /// CREATED2 or CREATED_FAST on a circuit of our own.
    pub(super) fn on_origin_created(&mut self, slot: u32, reply: CreateReply, now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        match &mut half.role {
            Role::Origin(origin) if origin.waiting == Waiting::Created => {
                origin.waiting = Waiting::Nothing;
                let circuit = origin.id;
                self.tell_origin(OriginEvent::Answered { circuit, reply });
            }
            _ => self.protocol_error(slot, "an answer to no CREATE of ours", now),
        }
    }

    /// The handshake with a hop succeeded.
    pub(super) fn on_add_hop(&mut self, half: HalfAddr, keys: &HopKeys, flow: &HopFlow) {
        let cc = &self.params.cc;
        let Some(Role::Origin(origin)) = self.halves.at(half).map(|half| &mut half.role) else {
            return;
        };
        origin.crypt.add_hop(keys);
        let flow = match flow {
            HopFlow::Fixed => CircuitFlow::fixed(),
            HopFlow::Vegas { sendme_inc } => CircuitFlow::vegas(cc, *sendme_inc),
        };
        origin.streams.ends.push(HopEnd::new(flow));
    }

    /// Asks the last hop to extend: in a RELAY_EARLY cell (tor-spec 5.6).
    pub(super) fn on_send_extend(&mut self, half: HalfAddr, extend2: &[u8], now: Instant) {
        let Some(state) = self.halves.at(half) else {
            return;
        };
        let Role::Origin(origin) = &mut state.role else {
            return;
        };
        let last = origin.crypt.len().checked_sub(1);
        let left = origin.relay_early_left.checked_sub(1);
        let mut cell = self.pool.blank(state.circ_id, ChanCmd::RELAY_EARLY);
        let encoded = relay::encode(
            cell.body_mut(),
            RelayCmd::EXTEND2,
            0,
            extend2,
            &mut self.rng,
        );
        let early = ChanCmd::RELAY_EARLY;
        match (last, left, encoded) {
            (Some(last), Some(left), Ok(()))
                if (origin.crypt)
                    .encrypt_forward(last, early, cell.body_mut())
                    .is_ok() =>
            {
                origin.traffic.note_written(extend2.len());
                origin.relay_early_left = left;
                origin.waiting = Waiting::Extended;
                self.enqueue(half.slot, cell, now);
            }
            _ => {
                self.pool.put(cell);
                self.close_half(half.slot, DestroyReason::INTERNAL, Tell::Both, now);
            }
        }
    }

    /// RELAY on a circuit of our own.
    pub(super) fn on_origin_relay(
        &mut self,
        slot: u32,
        view: CellView<'_>,
        early: bool,
        now: Instant,
    ) {
        let Some(Role::Origin(origin)) = self.halves.get_mut(slot).map(|half| &mut half.role)
        else {
            return;
        };
        origin.traffic.note_read();
        if early {
            return self.protocol_error(slot, "RELAY_EARLY toward the circuit's origin", now);
        }
        let mut cell = self.pool.take();
        cell.set_command(ChanCmd::RELAY);
        let Some(hop) = (origin.crypt).decrypt_backward_to(view.body(), cell.body_mut()) else {
            self.pool.put(cell);
            let what = "a relay cell that no hop of our circuit made";
            return self.protocol_error(slot, what, now);
        };
        self.totals.cells_recognized += 1;
        match RelayBody::new(cell.body()).command() {
            RelayCmd::DATA
            | RelayCmd::END
            | RelayCmd::CONNECTED
            | RelayCmd::RESOLVED
            | RelayCmd::SENDME
            | RelayCmd::XON
            | RelayCmd::XOFF => self.on_stream_message(slot, hop, cell, now),
            _ => {
                self.on_origin_message(slot, hop, &cell, now);
                self.pool.put(cell);
            }
        }
    }

    /// A relay message about the circuit itself.
    fn on_origin_message(&mut self, slot: u32, hop: usize, cell: &Cell, now: Instant) {
        let body = RelayBody::new(cell.body());
        let Ok(data) = body.data() else {
            return self.protocol_error(slot, "a relay message longer than its cell", now);
        };
        let Some(Role::Origin(origin)) = self.halves.get_mut(slot).map(|half| &mut half.role)
        else {
            return;
        };
        let circuit = origin.id;
        match body.command() {
            RelayCmd::EXTENDED2
                if origin.waiting == Waiting::Extended && hop + 1 == origin.crypt.len() =>
            {
                origin.waiting = Waiting::Nothing;
                origin.traffic.note_valid(data.len());
                match Extended2::decode(data) {
                    Ok(extended) => self.tell_origin(OriginEvent::Answered {
                        circuit,
                        reply: CreateReply::Created2 {
                            data: extended.data,
                        },
                    }),
                    Err(_) => {
                        self.protocol_error(slot, "an EXTENDED2 that cannot be parsed", now);
                    }
                }
            }
            RelayCmd::TRUNCATED => {
                origin.traffic.note_valid(data.len());
                // As C tor: what is left of the circuit is of no use.
                let reason = data
                    .first()
                    .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
                self.close_origin(slot, reason, true, Tell::Both, now);
            }
            // Any hop may send it (tor-spec 7.2). Since no circuit padding was agreed on with one, it
            // is not counted as valid, as in C tor: a monitor sees it.
            RelayCmd::DROP => {
                self.totals.drops_received += 1;
                self.dropped_at_origin = true;
            }
            _ => {
                let what = "a relay message to the origin of a circuit that it did not ask for";
                self.protocol_error(slot, what, now);
            }
        }
    }

    /// An edge wants a stream (origin's side): give it a number and ask the hop.
    pub(super) fn on_edge_attach(
        &mut self,
        edge: EdgeAddr,
        asked: Asked,
        hop: u8,
        command: RelayCmd,
        data: &[u8],
        now: Instant,
    ) {
        let half = asked.half;
        let opened = self
            .halves
            .at(half)
            .and_then(|half| match &mut half.role {
                Role::Origin(origin) => Some(origin),
                _ => None,
            })
            .and_then(|origin| {
                let streams = &mut origin.streams;
                let vegas = streams.ends.get(usize::from(hop))?.flow.is_vegas();
                let terms = Terms::new(vegas, origin.crypt.is_cgo(hop.into()));
                let id = streams.free_id()?;
                let generation = streams.add(id, hop, Place::At(edge))?;
                streams.begin(id, command == RelayCmd::RESOLVE, asked.cells)?;
                let addr = StreamAddr {
                    half,
                    id,
                    generation,
                };
                Some(StreamAt { addr, terms })
            });
        if let Some(at) = opened {
            self.say(half.slot, usize::from(hop), command, at.addr.id, data, now);
        }
        self.send(
            EdgeControl::Answered {
                to: edge,
                asked,
                stream: opened,
            }
            .into(),
        );
    }

    /// Ends a circuit of our own, saying whether another relay ended it.
    pub(super) fn close_origin(
        &mut self,
        slot: u32,
        reason: DestroyReason,
        remote: bool,
        tell: Tell,
        now: Instant,
    ) {
        self.closed_by_peer = remote;
        self.close_half(slot, reason, tell, now);
        self.closed_by_peer = false;
    }

    /// DESTROY on a circuit of our own.
    pub(super) fn on_origin_destroy(&mut self, key: LinkKey, cell: CellView<'_>, now: Instant) {
        if let Some(slot) = self.slot_of(key, cell.circ_id()) {
            let reason = weft_cell::link_msg::Destroy::decode(cell.body()).reason;
            self.close_origin(slot, reason, true, Tell::Peer, now);
        }
    }
}
