//! Dispatch to halves: tables decide which duty handles each cell of a link, each relay message for
//! this node and each control message.

use std::time::Instant;

use weft_cell::cell_command::OnOpenLink;
use weft_cell::link_msg::PaddingNegotiate;
use weft_cell::mtor_msg::{Joined, MtorDropped, MtorStopped, MultipathAck};
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::{AtOrigin, AtRelay, RelayCommand};
use weft_cell::{Cell, CellView, ChanCmd};

use super::circuits::Circuits;
use super::circuits::circpad::CircuitPaddings;
use super::path::closing::Notify;
use super::path::forward::Recognized;
use super::streams::StreamSide;
use super::tunnels::{Tunnels, Watched};
use crate::address::HopIndex;
use crate::manager::circuits::abra::Abra;
use crate::manager::path::CellPath;
use crate::message::{EdgeControl, HalfControl};
use crate::slots::{HalfKey, LinkKey};

/// Halves, with the duties that handle what is for them. No edge is within reach: halves send to edges by the outboxes,
/// on one thread as on two (architecture rule 2).
#[derive(Debug)]
pub(super) struct HalfView<'a> {
    pub(super) path: &'a mut CellPath,
    pub(super) watched: &'a mut Watched,
    pub(super) abra: &'a mut Abra,
    pub(super) circpad: &'a mut CircuitPaddings,
}

impl HalfView<'_> {
    /// Their streams.
    pub(super) fn streams(&mut self) -> StreamSide<'_> {
        StreamSide { path: self.path }
    }

    /// Their tunnels.
    pub(super) fn tunnels(&mut self) -> Tunnels<'_> {
        Tunnels {
            path: self.path,
            watched: self.watched,
        }
    }

    /// Their circuits.
    pub(super) fn circuits(&mut self) -> Circuits<'_> {
        Circuits {
            path: self.path,
            abra: self.abra,
        }
    }

    /// One fixed-length cell of a link. The table of cell commands decides what is done with it.
    pub(super) fn on_cell(
        &mut self,
        link: LinkKey,
        cell: CellView<'_>,
        as_client: bool,
        now: Instant,
    ) {
        match OnOpenLink::of(cell.command(), as_client) {
            OnOpenLink::Relay => self.on_relay(link, cell, false, now),
            OnOpenLink::RelayEarly => self.on_relay(link, cell, true, now),
            OnOpenLink::Create => self.circuits().on_create(link, cell, now),
            OnOpenLink::RefuseCreate => self.circuits().refuse_create(link, cell),
            OnOpenLink::Created => self.circuits().on_created(link, cell, now),
            OnOpenLink::Destroy => self.circuits().on_destroy(link, cell, now),
            OnOpenLink::Padding => self.path.totals.padding_received += 1,
            OnOpenLink::PaddingNegotiate => {
                if let Ok(negotiate) = PaddingNegotiate::decode(cell.body())
                    && let Some(link) = self.path.links.get_mut(link)
                {
                    link.padding.negotiate(&negotiate);
                } else {
                    self.path.totals.cells_dropped += 1;
                }
            }
            OnOpenLink::Refuse => {
                self.path.totals.cells_dropped += 1;
                self.path.note_violation(
                    link,
                    "a cell that only clients send, from a relay to us as its client",
                );
            }
            OnOpenLink::Ignore => self.path.totals.cells_dropped += 1,
        }
    }

    /// One variable-length cell of a link: padding, or nothing that an open link needs.
    pub(super) fn on_variable_cell(&mut self, command: ChanCmd, as_client: bool) {
        match OnOpenLink::of(command, as_client) {
            OnOpenLink::Padding => self.path.totals.padding_received += 1,
            OnOpenLink::Relay
            | OnOpenLink::RelayEarly
            | OnOpenLink::Create
            | OnOpenLink::RefuseCreate
            | OnOpenLink::Created
            | OnOpenLink::Destroy
            | OnOpenLink::PaddingNegotiate
            | OnOpenLink::Refuse
            | OnOpenLink::Ignore => self.path.totals.cells_dropped += 1,
        }
    }

    /// A RELAY or RELAY_EARLY cell of a link, which goes on or is for this node.
    fn on_relay(&mut self, link: LinkKey, cell: CellView<'_>, early: bool, now: Instant) {
        match self.path.on_relay(link, cell, early, now) {
            None => {}
            Some(Recognized {
                slot,
                hop,
                cell,
                at_origin: true,
                ..
            }) => self.on_hop_message(slot, hop, cell, now),
            Some(Recognized {
                slot, cell, early, ..
            }) => self.on_recognized(slot, cell, early, now),
        }
    }

    /// A relay message for this relay. The table decides what is done with it.
    fn on_recognized(&mut self, slot: HalfKey, cell: Box<Cell>, early: bool, now: Instant) {
        let Some(cell) = self
            .tunnels()
            .take_leg_message(slot, HopIndex::ORIGIN, cell, now)
        else {
            return;
        };
        let body = RelayBody::new(cell.body());
        let command = RelayCommand::of(body.command());
        let handler = command.map_or(AtRelay::Refuse, |known| known.rules().at_relay);
        if let AtRelay::Stream(message) = handler {
            return self
                .streams()
                .on_stream_message(slot, HopIndex::ORIGIN, message, cell, now);
        }
        match (handler, body.data()) {
            (AtRelay::Stream(_), _) => {}
            (AtRelay::Open(opener), _) => self.streams().on_stream_asked(slot, opener, &cell, now),
            (_, Err(_)) => {
                self.path
                    .protocol_error(slot, "a relay message longer than its cell", now)
            }
            (AtRelay::Extend2, Ok(data)) => self.circuits().on_extend2(slot, data, early, now),
            (AtRelay::Truncate, Ok(data)) => self.circuits().on_truncate(slot, data, now),
            (AtRelay::Drop, Ok(_)) => self.path.totals.drops_received += 1,
            (AtRelay::EstablishRendezvous, Ok(data)) => {
                self.circuits().on_establish_rendezvous(slot, data, now);
            }
            (AtRelay::Rendezvous1, Ok(data)) => self.circuits().on_rendezvous1(slot, data, now),
            (AtRelay::EstablishIntro, Ok(data)) => {
                self.circuits().on_establish_intro(slot, data, now)
            }
            (AtRelay::Introduce1, Ok(data)) => self.circuits().on_introduce1(slot, data, now),
            (AtRelay::PaddingNegotiate, Ok(data)) => self
                .circpad
                .on_padding_negotiate(self.path, slot, data, now),
            (AtRelay::AbraAsk, Ok(data)) if self.path.params.serve_abra => {
                self.abra.on_abra_ask(self.path, slot, data, now);
            }
            // It was served until torrc changed: clients learn that from the next consensus.
            (AtRelay::AbraAsk, Ok(_)) => {}
            (AtRelay::ConfluxLink, Ok(data)) if self.path.params.serve_conflux => {
                self.tunnels().on_conflux_link(slot, data, now);
            }
            (AtRelay::ConfluxLinkedAck, Ok(_)) => self.tunnels().on_conflux_linked_ack(slot, now),
            (AtRelay::Multipath, Ok(data)) if self.path.params.serve_mtor => {
                self.tunnels().on_multipath(slot, data, now);
            }
            (AtRelay::Join, Ok(data)) if self.path.params.serve_mtor => {
                self.tunnels().on_join_leg(slot, data, now);
            }
            (AtRelay::MtorDrop, Ok(data)) => self.tunnels().on_mtor_drop(slot, data, now),
            // SWITCH and SUBDATA of legs were taken above.
            (
                AtRelay::ConfluxLink
                | AtRelay::ConfluxSwitch
                | AtRelay::Multipath
                | AtRelay::Join
                | AtRelay::Subdata
                | AtRelay::MtorAck,
                Ok(_),
            )
            | (AtRelay::Refuse, Ok(_)) => {
                self.path.protocol_error(
                    slot,
                    "a relay message that this relay does not serve",
                    now,
                );
            }
        }
        self.path.pool.put(cell);
    }

    /// A relay message of a hop. The table decides what is done with it.
    fn on_hop_message(&mut self, slot: HalfKey, hop: HopIndex, cell: Box<Cell>, now: Instant) {
        let Some(cell) = self.tunnels().take_leg_message(slot, hop, cell, now) else {
            return;
        };
        let body = RelayBody::new(cell.body());
        let command = RelayCommand::of(body.command());
        let handler = command.map_or(AtOrigin::Refuse, |known| known.rules().at_origin);
        if let AtOrigin::Stream(message) = handler {
            return self
                .streams()
                .on_stream_message(slot, hop, message, cell, now);
        }
        match (handler, body.data()) {
            (AtOrigin::Stream(_), _) => {}
            (_, Err(_)) => {
                self.path
                    .protocol_error(slot, "a relay message longer than its cell", now)
            }
            (AtOrigin::Extended2, Ok(data)) => self.circuits().on_extended2(slot, hop, data, now),
            (AtOrigin::Truncated, Ok(data)) => self.circuits().on_truncated(slot, data, now),
            // Any hop may send it (tor-spec 7.2). Since no circuit padding was agreed on with one, it
            // is not counted as valid, as in C tor: a monitor sees it.
            (AtOrigin::Drop, Ok(_)) => {
                self.path.totals.drops_received += 1;
                self.path.traffic.dropped_at_origin();
            }
            (AtOrigin::AbraWeight, Ok(data)) => {
                self.abra.on_abra_weight(self.path, slot, hop, data, now)
            }
            (AtOrigin::ConfluxLinked, Ok(data)) => {
                self.tunnels().on_conflux_linked(slot, hop, data, now)
            }
            (AtOrigin::MultipathAck, Ok(data)) => {
                let id = MultipathAck::decode(data).ok().map(|ack| ack.tunnel);
                self.tunnels()
                    .on_mtor_answer(slot, hop, (id, false), data.len(), now);
            }
            (AtOrigin::Joined, Ok(data)) => {
                let id = Joined::decode(data).ok().map(|joined| joined.tunnel);
                self.tunnels()
                    .on_mtor_answer(slot, hop, (id, true), data.len(), now);
            }
            (AtOrigin::MtorDropped, Ok(data)) => {
                let last = MtorDropped::decode(data).ok().map(|_| None);
                self.tunnels()
                    .on_mtor_stopped(slot, hop, last, data.len(), now);
            }
            (AtOrigin::MtorStopped, Ok(data)) => {
                let last = MtorStopped::decode(data).ok();
                let last = last.map(|stopped| Some(stopped.sent));
                self.tunnels()
                    .on_mtor_stopped(slot, hop, last, data.len(), now);
            }
            // SWITCH and SUBDATA of legs were taken above.
            (
                AtOrigin::ConfluxSwitch | AtOrigin::Subdata | AtOrigin::MtorAck | AtOrigin::Refuse,
                Ok(_),
            ) => self.path.refuse_at_origin(slot, now),
        }
        self.path.pool.put(cell);
    }

    /// A control message for a half.
    pub(super) fn on_control(&mut self, control: HalfControl, now: Instant) {
        let addr = control.to();
        if self.path.halves.at(addr).is_none() {
            return self.on_control_too_late(control);
        }
        match control {
            HalfControl::EdgeMade { stream, edge } => {
                self.streams().on_edge_made(stream, edge, now)
            }
            HalfControl::CreditAsked { stream } => self.streams().on_credit_asked(stream, now),
            HalfControl::CreditReturned { stream, cells } => {
                self.streams().on_credit_returned(stream, cells, now);
            }
            HalfControl::Broken { what, .. } => self.streams().on_stream_broken(addr, what, now),
            HalfControl::Ending {
                stream,
                connected,
                left,
            } => self.streams().on_ending(stream, connected, left),
            HalfControl::Attach {
                edge,
                asked,
                hop,
                command,
                data,
            } => self
                .circuits()
                .on_edge_attach(edge, asked, hop, command, &data, now),
            HalfControl::Joined {
                peer, extension, ..
            } => self.circuits().on_joined(addr, peer, extension),
            HalfControl::Created {
                from, handshake, ..
            } => {
                if self.path.halves.is_peer(addr, from) {
                    let slot = self.path.halves.slot(addr);
                    self.circuits().send_extended(slot, &handshake, now);
                }
            }
            HalfControl::Spliced {
                peer, handshake, ..
            } => self.circuits().on_spliced(addr, peer, &handshake, now),
            HalfControl::Destroyed {
                from,
                reason,
                overflowed,
                ..
            } => {
                if self.path.halves.is_peer(addr, from) {
                    self.circuits().on_destroyed(addr, reason, overflowed, now);
                }
            }
            HalfControl::Introduced { status, .. } => {
                self.circuits().on_introduced(addr, status, now)
            }
            HalfControl::Leg(control) => self.tunnels().on_leg_control(addr, control, now),
            // Carried out before, wherever the half is.
            HalfControl::Controller { .. } => {}
            HalfControl::ExtendFailed {
                extension, reason, ..
            } => {
                if self.path.halves.is_extending(addr, extension) {
                    self.path
                        .close_half(self.path.halves.slot(addr), reason, Notify::Link, now);
                }
            }
        }
    }

    /// A control message for a half that has closed: what was made for it must not live on.
    fn on_control_too_late(&mut self, control: HalfControl) {
        match control {
            HalfControl::EdgeMade { stream, edge } => self.path.outboxes.detach(edge, stream),
            HalfControl::Attach { edge, asked, .. } => self.path.outboxes.send(
                EdgeControl::Answered {
                    to: edge,
                    asked,
                    stream: None,
                }
                .into(),
            ),
            HalfControl::Joined { to, peer, .. } => self.path.outboxes.send_destroyed(peer, to),
            HalfControl::Spliced { to, peer, .. } => {
                self.path.totals.rendezvous.join_dead += 1;
                self.path.outboxes.send_destroyed(peer, to);
            }
            HalfControl::Leg(control) => self.tunnels().on_leg_control_too_late(control),
            HalfControl::CreditAsked { .. }
            | HalfControl::CreditReturned { .. }
            | HalfControl::Broken { .. }
            | HalfControl::Ending { .. }
            | HalfControl::Created { .. }
            | HalfControl::Introduced { .. }
            | HalfControl::Destroyed { .. }
            | HalfControl::ExtendFailed { .. }
            | HalfControl::Controller { .. } => {}
        }
    }
}
