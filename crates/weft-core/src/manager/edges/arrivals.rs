//! Messages that arrive at an edge from its circuit: those of the far end, and control messages of
//! its half (tor-spec 6.2 to 6.4).

use std::time::Instant;

use weft_cell::reason::EndReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamMessage;
use weft_cell::stream_msg::{Connected, End, Resolved};
use weft_planted::{Fault, planted};

use super::EdgeView;
use crate::address::EdgeAddr;
use crate::flow::{FlowError, Side};
use crate::message::{EdgeCell, EdgeControl, HalfControl};
use crate::origin::{EndedBy, OriginEvent};
use crate::slots::EdgeKey;
use crate::stream::edge::{Asked, Edge, EdgeNews, MAX_WAITING, Phase, StreamAt};

impl EdgeView<'_> {
    /// A relay message for an edge.
    pub(in crate::manager) fn handle_to_edge(&mut self, to_edge: EdgeCell, now: Instant) {
        let EdgeCell { half, edge, cell } = to_edge;
        let slot = edge.slot;
        let body = RelayBody::new(cell.body());
        let message = StreamMessage::of(body.command());
        let data = body.data().unwrap_or_default();
        let here = (half, body.stream_id());
        // An edge that has left a stream and is on the same half again has another stream id there: a
        // half does not give an id anew before it has sent the END of the stream that had it.
        let is_here = |edge: &&mut Edge| edge.at.map(|at| (at.addr.half, at.addr.id)) == Some(here);
        let Some(edge) = self.edge_side.edges.at(edge).filter(is_here) else {
            // Ended here while this was on its way from its half, which knew the stream.
            self.totals.late += 1;
            self.pool.put(cell);
            return;
        };
        let origin = edge.origin.is_some();
        let broken = |what| HalfControl::Broken { to: half, what }.into();
        let result = match (message, edge.phase) {
            (_, Phase::Over | Phase::Waiting) => Ok(()),
            (Some(StreamMessage::Data), Phase::Open) => self.edge_receive(slot, data, now),
            (Some(StreamMessage::Data), Phase::Opening) if !origin => {
                self.edge_receive(slot, data, now)
            }
            (Some(StreamMessage::Connected), Phase::Opening) if origin => {
                match Connected::decode(data) {
                    Ok(connected) => self.edge_is_connected(slot, connected),
                    // Without a readable address the stream is connected all the same, as in C tor.
                    Err(_) => self.edge_is_connected(slot, Connected { addr: None, ttl: 0 }),
                }
                Ok(())
            }
            (Some(StreamMessage::Resolved), Phase::Opening) if origin => {
                match Resolved::decode(data) {
                    Ok(resolved) => self.edge_is_resolved(slot, resolved.with_host_names_alone()),
                    Err(_) => self.far_end(slot, End::new(EndReason::TORPROTOCOL), EndedBy::Exit),
                }
                Ok(())
            }
            (Some(StreamMessage::End), Phase::Opening | Phase::Open) => {
                self.far_end(slot, End::decode(data), EndedBy::Exit);
                Ok(())
            }
            (Some(StreamMessage::Connected | StreamMessage::Resolved), Phase::Open) => {
                self.outboxes
                    .send(broken("CONNECTED or RESOLVED on a stream that is open"));
                Ok(())
            }
            (Some(StreamMessage::Sendme), Phase::Opening | Phase::Open) => edge.flow.sendme(),
            (Some(StreamMessage::Xoff), Phase::Opening | Phase::Open) => edge.flow.xoff(data),
            (Some(StreamMessage::Xon), Phase::Opening | Phase::Open) => edge.flow.xon(data),
            (
                Some(StreamMessage::Data | StreamMessage::Connected | StreamMessage::Resolved),
                Phase::Opening,
            )
            | (None, Phase::Opening | Phase::Open) => {
                self.outboxes
                    .send(broken("DATA of a stream that is not connected"));
                Ok(())
            }
        };
        self.pool.put(cell);
        match (result, message) {
            (Ok(()), Some(StreamMessage::Sendme | StreamMessage::Xon)) => {
                if planted(Fault::RoomNotAnnounced) {
                    return;
                }
                self.edge_side.news.push_back(EdgeNews::Room { edge: slot });
            }
            (Ok(()), _) => {}
            (Err(_), _) => {
                let what = "a stream's SENDME, XON, XOFF or DATA that its rules do not allow";
                self.outboxes.send(broken(what));
            }
        }
    }

    /// DATA for the socket.
    fn edge_receive(&mut self, slot: EdgeKey, data: &[u8], now: Instant) -> Result<(), FlowError> {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return Ok(());
        };
        edge.flow.note_received(data.len())?;
        if planted(Fault::DataLeftOut) {
            return Ok(());
        }
        edge.got += data.len() as u64;
        self.totals.delivered += data.len() as u64;
        if edge.out.len() + data.len() > MAX_WAITING {
            self.totals.overflowed += 1;
            self.give_up(slot, EndReason::RESOURCELIMIT);
            return Ok(());
        }
        edge.out.push(data, &mut self.edge_side.spares);
        if planted(Fault::DataTwice) {
            edge.got += data.len() as u64;
            edge.out.push(data, &mut self.edge_side.spares);
        }
        edge.note_out(now);
        self.edge_side.list(slot);
        self.update_flow_control(slot, 0, now);
        Ok(())
    }

    /// CONNECTED: the application is answered, and data flows.
    fn edge_is_connected(&mut self, slot: EdgeKey, connected: Connected) {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        edge.phase = Phase::Open;
        let stream = edge.id;
        let circuit = edge.origin.as_mut().and_then(|side| {
            side.optimistic = Vec::new();
            side.circuit
        });
        self.totals.connected += 1;
        self.edge_side.news.push_back(EdgeNews::Connected {
            edge: slot,
            addr: connected.addr,
        });
        self.edge_side.news.push_back(EdgeNews::Room { edge: slot });
        self.edge_side.list(slot);
        if let Some(circuit) = circuit {
            self.to_controller.origin(OriginEvent::Connected {
                stream,
                circuit,
                addr: connected.addr,
                ttl: connected.ttl,
            });
        }
    }

    /// RESOLVED: the application is answered, and that is all.
    fn edge_is_resolved(&mut self, slot: EdgeKey, resolved: Resolved) {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        let (id, circuit) = (edge.id, edge.origin.as_ref().and_then(|side| side.circuit));
        edge.phase = Phase::Over;
        if let Some(circuit) = circuit {
            self.to_controller.origin(OriginEvent::Resolved {
                stream: id,
                circuit,
                resolved: resolved.clone(),
            });
        }
        self.drop_edge(slot, EndReason::DONE, EndedBy::Exit);
        self.edge_side.news.push_back(EdgeNews::Resolved {
            id,
            resolved,
            by_exit: true,
        });
    }

    /// The far end ended the stream, or the circuit was closed.
    pub(super) fn far_end(&mut self, slot: EdgeKey, end: End, by: EndedBy) {
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        edge.at = None;
        edge.asked = None;
        let stream = edge.id;
        let waits = edge.phase == Phase::Opening && by != EndedBy::Us;
        if let Some(side) = &mut edge.origin {
            let circuit = side.circuit.take();
            edge.phase = if waits { Phase::Waiting } else { Phase::Over };
            let bytes = (edge.got, edge.gave);
            // Who hears of the end has heard of all bytes.
            if !waits && let Some((got, gave)) = edge.take_traffic() {
                self.to_controller.origin(OriginEvent::Traffic {
                    streams: vec![(stream, got, gave)],
                    circuits: Vec::new(),
                });
            }
            self.to_controller.origin(OriginEvent::Ended {
                stream,
                circuit,
                reason: end.reason,
                addr: end.addr,
                by,
                waiting: waits,
                bytes,
            });
            if waits {
                return;
            }
        } else {
            edge.phase = Phase::Over;
        }
        self.edge_side.list(slot);
        self.edge_side.news.push_back(EdgeNews::Over {
            edge: slot,
            reason: end.reason,
        });
    }

    /// A control message for an edge.
    pub(in crate::manager) fn on_edge_control(&mut self, control: EdgeControl, now: Instant) {
        let slot = control.to().slot;
        match control {
            EdgeControl::Answered { to, asked, stream } => {
                self.on_attach_answered(to, asked, stream, now);
            }
            EdgeControl::Credit { to, stream, cells } => {
                if let Some(edge) = self
                    .edge_side
                    .edges
                    .at(to)
                    .filter(|edge| edge.is_at(stream))
                {
                    let had = edge.room();
                    edge.credit = edge.credit.saturating_add(cells);
                    edge.asked_credit = false;
                    if had == 0 {
                        self.edge_side.news.push_back(EdgeNews::Room { edge: slot });
                    }
                }
            }
            EdgeControl::XoffSent { to, stream } => {
                if let Some(edge) = self
                    .edge_side
                    .edges
                    .at(to)
                    .filter(|edge| edge.is_at(stream))
                {
                    edge.flow.set_xoff_sent();
                }
            }
            EdgeControl::Detached { to, stream, reason } => {
                if self
                    .edge_side
                    .edges
                    .at(to)
                    .is_some_and(|edge| edge.is_at(stream))
                {
                    self.far_end(slot, End::new(reason), EndedBy::Circuit);
                }
            }
        }
    }

    /// A half answers an edge that asked it for a stream (origin's side).
    fn on_attach_answered(
        &mut self,
        to: EdgeAddr,
        asked: Asked,
        stream: Option<StreamAt>,
        now: Instant,
    ) {
        let slot = to.slot;
        let edge = self
            .edge_side
            .edges
            .at(to)
            .filter(|edge| edge.asked == Some(asked));
        let (edge, at) = match (edge, stream) {
            (Some(edge), Some(at)) => (edge, at),
            (Some(_), None) => {
                return self.far_end(slot, End::new(EndReason::DESTROY), EndedBy::Circuit);
            }
            // The edge was removed, or does not ask any more: a stream that was opened for it must not stay.
            (None, Some(at)) => return self.end_unwanted(to, at),
            (None, None) => return,
        };
        edge.at = Some(at);
        edge.asked = None;
        edge.credit = asked.cells;
        edge.asked_credit = false;
        let again = edge
            .origin
            .as_mut()
            .map(|side| std::mem::take(&mut side.optimistic))
            .unwrap_or_default();
        let flow = self.params.stream_flow(at.terms, Side::Client);
        if let Some(edge) = self.edge_side.edges.get_mut(slot) {
            edge.flow = flow;
            edge.gave = 0;
        }
        // What the application sent on a circuit that failed.
        self.edge_data(slot, &again, now);
        self.edge_side.news.push_back(EdgeNews::Room { edge: slot });
    }
}
