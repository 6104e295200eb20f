//! Circuits that begin here: the half that holds all hops' keys (tor-spec 5.1 to 5.5, 6).

use std::sync::Arc;
use std::time::Instant;

use rand::Rng as _;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extended2};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::{self};
use weft_cell::{CellView, ChanCmd, RelayCmd};
use weft_crypto::HopKeys;

use super::Circuits;
use crate::address::{ConnectionId, EdgeAddr, HalfAddr, HopIndex, OriginId, StreamAddr};
use crate::circuit::half::{CircuitHalf, Role, Waiting};
use crate::flow::{CircuitFlow, PathKind};
use crate::link::padding::LinkUse;
use crate::manager::path::closing::{ClosedBy, Notify};
use crate::message::{EdgeControl, ToController};
use crate::origin::{HopFlow, OriginEvent};
use crate::slots::{HalfKey, LinkKey};
use crate::stream::edge::{Asked, StreamAt};
use crate::stream::table::{HopEnd, Place};

impl Circuits<'_> {
    /// The controller found the link for a circuit of our own: make it and send its CREATE.
    pub(in crate::manager) fn on_launch(
        &mut self,
        connection: ConnectionId,
        circuit: OriginId,
        create: &Arc<CreateRequest>,
        now: Instant,
    ) {
        let key = self.path.links.of(connection);
        let random = self.path.rng.next_u32();
        let circ_id = key
            .and_then(|key| self.path.links.get(key))
            .and_then(|link| link.choose_circ_id(random));
        let (Some(key), Some(circ_id)) = (key, circ_id) else {
            return self.path.to_controller.origin(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::RESOURCELIMIT,
                remote: false,
            });
        };
        let made = create.encode(circ_id).ok();
        let half = self
            .path
            .add_half(CircuitHalf::origin(key, circ_id, circuit), now);
        let (Some(cell), Some(half)) = (made, half) else {
            return self.path.to_controller.origin(OriginEvent::Closed {
                circuit,
                reason: DestroyReason::INTERNAL,
                remote: false,
            });
        };
        self.path.to_controller.push(ToController::OriginMade {
            circuit,
            half,
            connection,
        });
        let cell = self.path.pool.hold(cell);
        self.path.enqueue(self.path.halves.slot(half), cell, now);
    }

    /// CREATED2 or CREATED_FAST on a circuit of our own.
    pub(in crate::manager) fn on_origin_created(
        &mut self,
        slot: HalfKey,
        reply: CreateReply,
        now: Instant,
    ) {
        let Some(half) = self.path.halves.get_mut(slot) else {
            return;
        };
        match &mut half.role {
            Role::Origin(origin) if origin.waiting == Waiting::Created => {
                origin.waiting = Waiting::Nothing;
                let circuit = origin.id;
                self.path
                    .to_controller
                    .origin(OriginEvent::Answered { circuit, reply });
            }
            _ => self
                .path
                .protocol_error(slot, "an answer to no CREATE of ours", now),
        }
    }

    /// The handshake with a hop succeeded.
    pub(in crate::manager) fn on_add_hop(
        &mut self,
        half: HalfAddr,
        keys: &HopKeys,
        flow: &HopFlow,
    ) {
        let cc = &self.path.params.cc;
        let Some(Role::Origin(origin)) = self.path.halves.at(half).map(|half| &mut half.role)
        else {
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
        let Some(state) = self.path.halves.at(half) else {
            return;
        };
        let Role::Origin(origin) = &mut state.role else {
            return;
        };
        let last = origin.crypt.len().checked_sub(1);
        let left = origin.relay_early_left.checked_sub(1);
        let mut cell = self.path.pool.blank(state.circ_id, ChanCmd::RELAY_EARLY);
        let encoded = relay::encode(
            cell.body_mut(),
            RelayCmd::EXTEND2,
            0,
            extend2,
            &mut self.path.rng,
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
                self.path.links.carries(link, LinkUse::FullCircuits);
                self.path.enqueue(self.path.halves.slot(half), cell, now);
            }
            _ => {
                self.path.pool.put(cell);
                self.path.close_half(
                    self.path.halves.slot(half),
                    DestroyReason::INTERNAL,
                    Notify::Both,
                    now,
                );
            }
        }
    }

    /// EXTENDED2 (tor-spec 5.1.2).
    pub(in crate::manager) fn on_extended2(
        &mut self,
        slot: HalfKey,
        hop: HopIndex,
        data: &[u8],
        now: Instant,
    ) {
        let Some(half) = self.path.halves.get_mut(slot) else {
            return;
        };
        let Role::Origin(origin) = &mut half.role else {
            return;
        };
        if origin.waiting != Waiting::Extended || hop.index() + 1 != origin.crypt.len() {
            return self.path.refuse_at_origin(slot, now);
        }
        let circuit = origin.id;
        origin.waiting = Waiting::Nothing;
        origin.traffic.note_valid(data.len());
        let link = half.link;
        self.path.links.carries(link, LinkUse::UserTraffic);
        match Extended2::decode(data) {
            Ok(extended) => self.path.to_controller.origin(OriginEvent::Answered {
                circuit,
                reply: CreateReply::Created2 {
                    data: extended.data,
                },
            }),
            Err(_) => self
                .path
                .protocol_error(slot, "an EXTENDED2 that cannot be parsed", now),
        }
    }

    /// TRUNCATED (tor-spec 5.4). As in C tor, the rest of the circuit is of no use.
    pub(in crate::manager) fn on_truncated(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        if let Some(Role::Origin(origin)) =
            self.path.halves.get_mut(slot).map(|half| &mut half.role)
        {
            origin.traffic.note_valid(data.len());
        }
        let reason = data
            .first()
            .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
        self.path
            .close_half_by(slot, reason, ClosedBy::Peer, Notify::Both, now);
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
        let opened = self.path.halves.at(half).and_then(|state| {
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
            self.path.send_relay_msg(
                self.path.halves.slot(half),
                hop,
                command,
                at.addr.id,
                data,
                now,
            );
        }
        self.path.outboxes.send(
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
        if let Some(slot) = self.path.links.half_of(key, cell.circ_id()) {
            let reason = weft_cell::link_msg::Destroy::decode(cell.body()).reason;
            self.path
                .close_half_by(slot, reason, ClosedBy::Peer, Notify::Peer, now);
        }
    }
}
