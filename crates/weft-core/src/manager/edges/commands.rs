//! The client thread's commands for applications' streams: put one on a circuit, take it back, answer,
//! refuse or end it.

use weft_cell::RelayCmd;
use weft_cell::reason::EndReason;
use weft_cell::stream_msg::{Begin, End, Resolve, Resolved};

use super::EdgeView;
use crate::address::{ConnectionId, HalfAddr, HopIndex, OriginId};
use crate::message::HalfControl;
use crate::origin::{AppRefusal, EndedBy, StreamOpening};
use crate::stream::edge::{EdgeNews, Phase};

impl EdgeView<'_> {
    /// A stream is attached to a circuit.
    pub(in crate::manager) fn on_attach(
        &mut self,
        stream: ConnectionId,
        circuit: OriginId,
        half: HalfAddr,
        hop: HopIndex,
        opening: &StreamOpening,
    ) {
        let Some(slot) = self.edge_side.of(stream) else {
            return;
        };
        let message = match opening {
            StreamOpening::Begin { host, port, flags } => Begin {
                target: host.clone().into_bytes(),
                port: *port,
                flags: *flags,
            }
            .encode()
            .map(|data| (RelayCmd::BEGIN, data)),
            StreamOpening::BeginDir => Ok((RelayCmd::BEGIN_DIR, Vec::new())),
            StreamOpening::Resolve { name } => Resolve {
                name: name.clone().into_bytes(),
            }
            .encode()
            .map(|data| (RelayCmd::RESOLVE, data)),
        };
        let Some(addr) = self.edge_side.edges.addr(slot) else {
            return;
        };
        let Some(edge) = self.edge_side.edges.get_mut(slot) else {
            return;
        };
        let Some(side) = edge
            .origin
            .as_mut()
            .filter(|_| edge.phase == Phase::Waiting)
        else {
            return;
        };
        side.circuit = Some(circuit);
        edge.phase = Phase::Opening;
        let asked = edge.ask(half);
        match message {
            Ok((command, data)) => self.outboxes.send(
                HalfControl::Attach {
                    edge: addr,
                    asked,
                    hop,
                    command,
                    data,
                }
                .into(),
            ),
            // A name that fits in no BEGIN.
            Err(_) => self.far_end(slot, End::new(EndReason::TORPROTOCOL), EndedBy::Circuit),
        }
    }

    /// An application's request fails.
    pub(in crate::manager) fn on_refuse_app(&mut self, stream: ConnectionId, why: AppRefusal) {
        if let Some(slot) = self.edge_side.of(stream) {
            self.end_edge_by(slot, End::new(EndReason::MISC), EndedBy::Us);
            self.edge_side
                .news
                .push_back(EdgeNews::Refused { id: stream, why });
        }
    }

    /// An application's resolve request is answered from what is known.
    pub(in crate::manager) fn on_answer_app(&mut self, stream: ConnectionId, resolved: Resolved) {
        if let Some(slot) = self.edge_side.of(stream) {
            self.drop_edge(slot, EndReason::DONE, EndedBy::Us);
            self.edge_side.news.push_back(EdgeNews::Resolved {
                id: stream,
                resolved,
                by_exit: false,
            });
        }
    }

    /// A stream that is not connected yet leaves its circuit, and waits for another.
    pub(in crate::manager) fn on_detach(&mut self, stream: ConnectionId, reason: EndReason) {
        let Some(slot) = self.edge_side.of(stream) else {
            return;
        };
        let Some(edge) = self.edge_side.edges.get(slot) else {
            return;
        };
        // One that is being attached has no stream yet to end: `EdgeControl::Answered` will find
        // no request that it answers.
        if edge.phase == Phase::Opening && edge.origin.is_some() {
            let end = End::new(reason);
            self.edge_send(slot, RelayCmd::END, &end.encode());
        }
        if let Some(edge) = self.edge_side.edges.get_mut(slot)
            && edge.phase == Phase::Opening
            && let Some(side) = &mut edge.origin
        {
            side.circuit = None;
            edge.at = None;
            edge.asked = None;
            edge.phase = Phase::Waiting;
        }
    }

    /// A stream shall end.
    pub(in crate::manager) fn on_close_stream(&mut self, stream: ConnectionId, reason: EndReason) {
        let Some(slot) = self.edge_side.of(stream) else {
            return;
        };
        let Some(edge) = self.edge_side.edges.get(slot) else {
            return;
        };
        match edge.phase {
            Phase::Over => {}
            Phase::Waiting => self.on_refuse_app(stream, AppRefusal::General),
            Phase::Opening | Phase::Open => {
                let waits = edge.phase == Phase::Opening;
                if edge.at.is_some() {
                    let end = End::new(EndReason::MISC).encode();
                    self.edge_send(slot, RelayCmd::END, &end);
                }
                if waits {
                    self.on_refuse_app(stream, AppRefusal::General);
                } else {
                    self.far_end(slot, End::new(reason), EndedBy::Us);
                }
            }
        }
    }
}
