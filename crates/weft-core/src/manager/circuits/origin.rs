//! Circuits that begin here: the half that holds all hops' keys (tor-spec 5.1 to 5.5, 6).

use std::sync::Arc;
use std::time::Instant;

use rand::Rng as _;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extended2};
use weft_cell::mtor_msg::{Joined, MtorDropped, MtorStopped, MultipathAck};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self, RelayBody};
use weft_cell::relay_command::{AtOrigin, RelayCommand};
use weft_cell::{Cell, CellView, ChanCmd, RelayCmd};
use weft_crypto::HopKeys;

use crate::address::{ConnectionId, EdgeAddr, HalfAddr, HopIndex, OriginId, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role, Waiting};
use crate::flow::{CircuitFlow, PathKind};
use crate::link::padding::LinkUse;
use crate::manager::circuits::ClosedBy;
use crate::manager::{LocalConnectionManager, Notify};
use crate::message::{EdgeControl, ToController};
use crate::origin::{HopFlow, OriginEvent};
use crate::slots::{HalfKey, LinkKey};
use crate::stream::edge::{Asked, StreamAt};
use crate::stream::table::{HopEnd, Place};

impl LocalConnectionManager {
    /// The controller found the link for a circuit of our own: make it and send its CREATE.
    pub(in crate::manager) fn on_launch(
        &mut self,
        connection: ConnectionId,
        circuit: OriginId,
        create: &Arc<CreateRequest>,
        now: Instant,
    ) {
        let key = self.link_of(connection);
        let random = self.rng.next_u32();
        let circ_id = key
            .and_then(|key| self.links.get(key))
            .and_then(|link| link.choose_circ_id(random));
        let (Some(key), Some(circ_id)) = (key, circ_id) else {
            return self.send_origin_event(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::RESOURCELIMIT,
                remote: false,
            });
        };
        let made = create.encode(circ_id).ok();
        let half = self.add_half(CircuitHalf::origin(key, circ_id, circuit), now);
        let (Some(cell), Some(half)) = (made, half) else {
            return self.send_origin_event(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::INTERNAL,
                remote: false,
            });
        };
        self.to_controller.push(ToController::OriginMade {
            circuit,
            half,
            connection,
        });
        let cell = self.pool.hold(cell);
        self.enqueue(self.halves.slot(half), cell, now);
    }

    /// CREATED2 or CREATED_FAST on a circuit of our own.
    pub(in crate::manager) fn on_origin_created(
        &mut self,
        slot: HalfKey,
        reply: CreateReply,
        now: Instant,
    ) {
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        match &mut half.role {
            Role::Origin(origin) if origin.waiting == Waiting::Created => {
                origin.waiting = Waiting::Nothing;
                let circuit = origin.id;
                self.send_origin_event(OriginEvent::Answered { circuit, reply });
            }
            _ => self.protocol_error(slot, "an answer to no CREATE of ours", now),
        }
    }

    /// The handshake with a hop succeeded.
    pub(in crate::manager) fn on_add_hop(
        &mut self,
        half: HalfAddr,
        keys: &HopKeys,
        flow: &HopFlow,
    ) {
        let cc = &self.params.cc;
        let Some(Role::Origin(origin)) = self.halves.at(half).map(|half| &mut half.role) else {
            return;
        };
        origin.crypt.add_hop(keys);
        let flow = match flow {
            HopFlow::Fixed => CircuitFlow::fixed(),
            // What an exit is for (`__SbwsExit`) is no rule for our own circuits.
            HopFlow::Vegas { sendme_inc } => {
                CircuitFlow::vegas(&cc.clone().for_path(PathKind::Exit), *sendme_inc)
            }
        };
        origin.streams.ends.push(HopEnd::new(Some(flow)));
    }

    /// Asks the last hop to extend: in a RELAY_EARLY cell (tor-spec 5.6).
    pub(in crate::manager) fn on_send_extend(
        &mut self,
        half: HalfAddr,
        extend2: &[u8],
        now: Instant,
    ) {
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
                let link = state.link;
                self.link_carries(link, LinkUse::FullCircuits);
                self.enqueue(self.halves.slot(half), cell, now);
            }
            _ => {
                self.pool.put(cell);
                self.close_half(
                    self.halves.slot(half),
                    DestroyReason::INTERNAL,
                    Notify::Both,
                    now,
                );
            }
        }
    }

    /// RELAY on a circuit of our own.
    pub(in crate::manager) fn on_origin_relay(
        &mut self,
        slot: HalfKey,
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
            return self.protocol_error(slot, "a backward RELAY_EARLY cell", now);
        }
        let mut cell = self.pool.take();
        cell.set_command(ChanCmd::RELAY);
        let Some(hop) = (origin.crypt).decrypt_backward_to(view.body(), cell.body_mut()) else {
            self.pool.put(cell);
            let what = "a relay cell that no hop of our circuit made";
            return self.protocol_error(slot, what, now);
        };
        self.totals.cells_recognized += 1;
        self.on_hop_message(slot, HopIndex::from_index(hop), cell, now);
    }

    /// A relay message of a hop. The table decides what is done with it.
    fn on_hop_message(&mut self, slot: HalfKey, hop: HopIndex, cell: Box<Cell>, now: Instant) {
        let Some(cell) = self.take_leg_message(slot, hop, cell, now) else {
            return;
        };
        let body = RelayBody::new(cell.body());
        let command = RelayCommand::of(body.command());
        let handler = command.map_or(AtOrigin::Refuse, |known| known.rules().at_origin);
        if let AtOrigin::Stream(message) = handler {
            return self.on_stream_message(slot, hop, message, cell, now);
        }
        match (handler, body.data()) {
            (AtOrigin::Stream(_), _) => {}
            (_, Err(_)) => self.protocol_error(slot, "a relay message longer than its cell", now),
            (AtOrigin::Extended2, Ok(data)) => self.on_extended2(slot, hop, data, now),
            (AtOrigin::Truncated, Ok(data)) => self.on_truncated(slot, data, now),
            // Any hop may send it (tor-spec 7.2). Since no circuit padding was agreed on with one, it
            // is not counted as valid, as in C tor: a monitor sees it.
            (AtOrigin::Drop, Ok(_)) => {
                self.totals.drops_received += 1;
                self.traffic.dropped_at_origin();
            }
            (AtOrigin::AbraWeight, Ok(data)) => self.on_abra_weight(slot, hop, data, now),
            (AtOrigin::ConfluxLinked, Ok(data)) => self.on_conflux_linked(slot, hop, data, now),
            (AtOrigin::MultipathAck, Ok(data)) => {
                let id = MultipathAck::decode(data).ok().map(|ack| ack.tunnel);
                self.on_mtor_answer(slot, hop, (id, false), data.len(), now);
            }
            (AtOrigin::Joined, Ok(data)) => {
                let id = Joined::decode(data).ok().map(|joined| joined.tunnel);
                self.on_mtor_answer(slot, hop, (id, true), data.len(), now);
            }
            (AtOrigin::MtorDropped, Ok(data)) => {
                let last = MtorDropped::decode(data).ok().map(|_| None);
                self.on_mtor_stopped(slot, hop, last, data.len(), now);
            }
            (AtOrigin::MtorStopped, Ok(data)) => {
                let last = MtorStopped::decode(data).ok();
                let last = last.map(|stopped| Some(stopped.sent));
                self.on_mtor_stopped(slot, hop, last, data.len(), now);
            }
            // SWITCH and SUBDATA of legs were taken above.
            (
                AtOrigin::ConfluxSwitch | AtOrigin::Subdata | AtOrigin::MtorAck | AtOrigin::Refuse,
                Ok(_),
            ) => self.refuse_at_origin(slot, now),
        }
        self.pool.put(cell);
    }

    /// Closes a circuit whose hop sent what was not asked for.
    pub(in crate::manager) fn refuse_at_origin(&mut self, slot: HalfKey, now: Instant) {
        let what = "a relay message to the origin of a circuit that it did not ask for";
        self.protocol_error(slot, what, now);
    }

    /// EXTENDED2 (tor-spec 5.1.2).
    fn on_extended2(&mut self, slot: HalfKey, hop: HopIndex, data: &[u8], now: Instant) {
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let Role::Origin(origin) = &mut half.role else {
            return;
        };
        if origin.waiting != Waiting::Extended || hop.index() + 1 != origin.crypt.len() {
            return self.refuse_at_origin(slot, now);
        }
        let circuit = origin.id;
        origin.waiting = Waiting::Nothing;
        origin.traffic.note_valid(data.len());
        let link = half.link;
        self.link_carries(link, LinkUse::UserTraffic);
        match Extended2::decode(data) {
            Ok(extended) => self.send_origin_event(OriginEvent::Answered {
                circuit,
                reply: CreateReply::Created2 {
                    data: extended.data,
                },
            }),
            Err(_) => self.protocol_error(slot, "an EXTENDED2 that cannot be parsed", now),
        }
    }

    /// TRUNCATED (tor-spec 5.4). As in C tor, the rest of the circuit is of no use.
    fn on_truncated(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        if let Some(Role::Origin(origin)) = self.halves.get_mut(slot).map(|half| &mut half.role) {
            origin.traffic.note_valid(data.len());
        }
        let reason = data
            .first()
            .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
        self.close_half_by(slot, reason, ClosedBy::Peer, Notify::Both, now);
    }

    /// An edge wants a stream (origin's side): give it a number and ask the hop.
    pub(in crate::manager) fn on_edge_attach(
        &mut self,
        edge: EdgeAddr,
        asked: Asked,
        hop: HopIndex,
        command: RelayCmd,
        data: &[u8],
        now: Instant,
    ) {
        let half = asked.half;
        let opened = self.halves.at(half).and_then(|state| {
            let terms = state.terms(hop)?;
            let streams = match &mut state.role {
                // A leg's streams are the tunnel's.
                Role::Origin(origin) if state.leg.is_none() => &mut origin.streams,
                Role::Tunnel(tunnel) => &mut tunnel.streams,
                _ => return None,
            };
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
            self.send_relay_msg(self.halves.slot(half), hop, command, at.addr.id, data, now);
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

    /// DESTROY on a circuit of our own.
    pub(in crate::manager) fn on_origin_destroy(
        &mut self,
        key: LinkKey,
        cell: CellView<'_>,
        now: Instant,
    ) {
        if let Some(slot) = self.slot_of(key, cell.circ_id()) {
            let reason = weft_cell::link_msg::Destroy::decode(cell.body()).reason;
            self.close_half_by(slot, reason, ClosedBy::Peer, Notify::Peer, now);
        }
    }
}
