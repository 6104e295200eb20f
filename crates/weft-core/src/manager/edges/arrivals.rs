//! What comes to an edge from its circuit: messages of the far end, and what the half says of itself
//! (tor-spec 6.2 to 6.4).

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::reason::EndReason;
use weft_cell::relay::RelayBody;
use weft_cell::stream_msg::{Connected, End, Resolved};

use crate::address::EdgeAddr;
use crate::edge::{Asked, Edge, EdgeNews, MAX_WAITING, Phase, StreamAt};
use crate::flow::{FlowError, Side};
use crate::manager::LocalConnectionManager;
use crate::message::{EdgeCell, EdgeControl, HalfControl};
use crate::origin::{EndedBy, OriginEvent};

impl LocalConnectionManager {
    /// A relay message for an edge.
    pub(in crate::manager) fn on_off(&mut self, message: EdgeCell, now: Instant) {
        let EdgeCell { half, edge, cell } = message;
        let slot = edge.slot;
        let body = RelayBody::new(cell.body());
        let (command, data) = (body.command(), body.data().unwrap_or_default());
        let here = (half, body.stream_id());
        // An edge that has left a stream and is on the same half again has another stream id there: a
        // half does not give an id anew before it has sent the END of the stream that had it.
        let is_here = |edge: &&mut Edge| edge.at.map(|at| (at.addr.half, at.addr.id)) == Some(here);
        let Some(edge) = self.edges.at(edge).filter(is_here) else {
            // Ended here while this was on its way from its half, which knew the stream.
            self.totals.streams.late += 1;
            self.pool.put(cell);
            return;
        };
        let origin = edge.origin.is_some();
        let result = match (command, edge.phase) {
            (_, Phase::Over | Phase::Waiting) => Ok(()),
            (RelayCmd::DATA, Phase::Open) => self.edge_gets(slot, data, now),
            (RelayCmd::DATA, Phase::Opening) if !origin => self.edge_gets(slot, data, now),
            (RelayCmd::CONNECTED, Phase::Opening) if origin => {
                match Connected::decode(data) {
                    Ok(connected) => self.edge_is_connected(slot, connected),
                    // An address that cannot be told does not matter, as in C tor.
                    Err(_) => self.edge_is_connected(slot, Connected { addr: None, ttl: 0 }),
                }
                Ok(())
            }
            (RelayCmd::RESOLVED, Phase::Opening) if origin => {
                match Resolved::decode(data) {
                    Ok(resolved) => self.edge_is_resolved(slot, resolved),
                    Err(_) => self.far_end(slot, End::new(EndReason::TORPROTOCOL), EndedBy::Exit),
                }
                Ok(())
            }
            (RelayCmd::END, _) => {
                self.far_end(slot, End::decode(data), EndedBy::Exit);
                Ok(())
            }
            (RelayCmd::CONNECTED | RelayCmd::RESOLVED, Phase::Open) => {
                self.send(
                    HalfControl::Broken {
                        to: half,
                        what: "CONNECTED or RESOLVED on a stream that is open",
                    }
                    .into(),
                );
                Ok(())
            }
            (RelayCmd::SENDME, _) => edge.flow.sendme(),
            (RelayCmd::XOFF, _) => edge.flow.xoff(data),
            (RelayCmd::XON, _) => edge.flow.xon(data),
            _ => {
                let what = "DATA of a stream that is not connected";
                self.send(HalfControl::Broken { to: half, what }.into());
                Ok(())
            }
        };
        self.pool.put(cell);
        match result {
            Ok(()) if command == RelayCmd::SENDME || command == RelayCmd::XON => {
                self.edge_news.push_back(EdgeNews::Room { edge: slot });
            }
            Ok(()) => {}
            Err(_) => self.send(
                HalfControl::Broken {
                    to: half,
                    what: "a stream's SENDME, XON, XOFF or DATA that its rules do not allow",
                }
                .into(),
            ),
        }
    }

    /// DATA for the socket.
    fn edge_gets(&mut self, slot: u32, data: &[u8], now: Instant) -> Result<(), FlowError> {
        let Some(edge) = self.edges.get_mut(slot) else {
            return Ok(());
        };
        edge.flow.note_received(data.len())?;
        edge.got += data.len() as u64;
        self.totals.streams.delivered += data.len() as u64;
        if edge.out.len() + data.len() > MAX_WAITING {
            self.totals.streams.overflowed += 1;
            self.give_up(slot, now);
            return Ok(());
        }
        edge.out.push(data, &mut self.spares);
        edge.note_out(now);
        self.list_edge(slot);
        self.mind_queue(slot, 0, now);
        Ok(())
    }

    /// CONNECTED: the application is told, and data flows.
    fn edge_is_connected(&mut self, slot: u32, connected: Connected) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        edge.phase = Phase::Open;
        let stream = edge.id;
        let circuit = edge.origin.as_mut().and_then(|side| {
            side.optimistic = Vec::new();
            side.circuit
        });
        self.totals.streams.connected += 1;
        self.edge_news.push_back(EdgeNews::Connected {
            edge: slot,
            addr: connected.addr,
        });
        self.edge_news.push_back(EdgeNews::Room { edge: slot });
        self.list_edge(slot);
        if let Some(circuit) = circuit {
            self.tell_origin(OriginEvent::Connected {
                stream,
                circuit,
                addr: connected.addr,
                ttl: connected.ttl,
            });
        }
    }

    /// RESOLVED: the application is answered, and that is all.
    fn edge_is_resolved(&mut self, slot: u32, resolved: Resolved) {
        let Some(edge) = self.edges.get_mut(slot) else {
            return;
        };
        let (id, circuit) = (edge.id, edge.origin.as_ref().and_then(|side| side.circuit));
        edge.phase = Phase::Over;
        if let Some(circuit) = circuit {
            self.tell_origin(OriginEvent::Resolved {
                stream: id,
                circuit,
                resolved: resolved.clone(),
            });
        }
        self.drop_edge(slot, EndReason::DONE, EndedBy::Exit);
        self.edge_news
            .push_back(EdgeNews::Resolved { id, resolved });
    }

    /// The far end is gone: END came, or the circuit went.
    pub(super) fn far_end(&mut self, slot: u32, end: End, by: EndedBy) {
        let Some(edge) = self.edges.get_mut(slot) else {
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
            self.tell_origin(OriginEvent::Ended {
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
        self.list_edge(slot);
        self.edge_news.push_back(EdgeNews::Over {
            edge: slot,
            reason: end.reason,
        });
    }

    /// What a half says to an edge.
    pub(in crate::manager) fn on_edge_control(&mut self, control: EdgeControl, now: Instant) {
        let slot = control.to().slot;
        match control {
            EdgeControl::Answered { to, asked, stream } => {
                self.on_attach_answered(to, asked, stream, now);
            }
            EdgeControl::Credit { to, stream, cells } => {
                if let Some(edge) = self.edges.at(to).filter(|edge| edge.is_at(stream)) {
                    let had = edge.room();
                    edge.credit = edge.credit.saturating_add(cells);
                    edge.asked_credit = false;
                    if had == 0 {
                        self.edge_news.push_back(EdgeNews::Room { edge: slot });
                    }
                }
            }
            EdgeControl::XoffSent { to, stream } => {
                if let Some(edge) = self.edges.at(to).filter(|edge| edge.is_at(stream)) {
                    edge.flow.set_xoff_sent();
                }
            }
            EdgeControl::Detached { to, stream, reason } => {
                if self.edges.at(to).is_some_and(|edge| edge.is_at(stream)) {
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
        let edge = self.edges.at(to).filter(|edge| edge.asked == Some(asked));
        let (edge, at) = match (edge, stream) {
            (Some(edge), Some(at)) => (edge, at),
            (Some(_), None) => {
                return self.far_end(slot, End::new(EndReason::DESTROY), EndedBy::Circuit);
            }
            // It is gone, or does not ask any more: a stream that was opened for it must not stay.
            (None, Some(at)) => return self.end_unwanted(to, at, now),
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
        let flow = self.stream_flow(at.terms, Side::Client);
        if let Some(edge) = self.edges.get_mut(slot) {
            edge.flow = flow;
            edge.gave = 0;
        }
        // What the application said to a circuit that failed it.
        self.edge_data(slot, &again, now);
        self.edge_news.push_back(EdgeNews::Room { edge: slot });
    }
}
