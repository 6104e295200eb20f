//! The stream by which a circuit is measured: its last hop must refuse it, and the client wants to know how soon
//! (docs/extensions/circuit-rtt.md). It has no edge.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use weft_cell::reason::EndReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::StreamMessage;
use weft_cell::stream_msg::End;
use weft_cell::{Cell, RelayCmd};

use super::StreamSide;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::Role;
use crate::flow::{Side, Terms};
use crate::origin::OriginEvent;
use crate::stream::table::{Place, Probe, Stream};

/// The address that is asked for: no host has it (RFC 1122, 3.2.1.3), and exit policies refuse it.
fn address([a, b, c]: [u8; 3]) -> Ipv4Addr {
    Ipv4Addr::new(0, a, b, c)
}

impl StreamSide<'_> {
    /// Asks the last hop of a circuit of our own for a stream that it must refuse, as C tor does to find out whether a
    /// circuit is any good (`pathbias_send_usable_probe`).
    pub(in crate::manager) fn on_probe(&mut self, half: HalfAddr, nonce: [u8; 3], now: Instant) {
        let Some(Role::Origin(origin)) = self.path.halves.at(half).map(|half| &mut half.role)
        else {
            return;
        };
        let Some(last) = origin.crypt.len().checked_sub(1) else {
            return;
        };
        let hop = HopIndex::from_index(last);
        let streams = &mut origin.streams;
        let place = Place::Probe(Probe { nonce, asked: now });
        let id = streams.free_id();
        // Without a free number there is no answer either, and the client gives up as when there is none.
        if let Some(id) = id.filter(|id| streams.add(*id, hop, place).is_some()) {
            let data = format!("{}:25\0", address(nonce));
            self.path.send_relay_msg(
                self.path.halves.slot(half),
                hop,
                RelayCmd::BEGIN,
                id,
                data.as_bytes(),
                now,
            );
        }
    }

    /// The hop answered.
    pub(super) fn on_probe_answer(
        &mut self,
        from: HalfAddr,
        probe: Probe,
        message: StreamMessage,
        cell: &Cell,
        now: Instant,
    ) {
        let body = RelayBody::new(cell.body());
        let (id, data) = (body.stream_id(), body.data().unwrap_or_default());
        let connected = match message {
            StreamMessage::End => false,
            StreamMessage::Connected => true,
            StreamMessage::Data
            | StreamMessage::Resolved
            | StreamMessage::Sendme
            | StreamMessage::Xoff
            | StreamMessage::Xon => return self.on_stray(self.path.halves.slot(from), now),
        };
        let Some(Role::Origin(origin)) = self.path.halves.at(from).map(|half| &mut half.role)
        else {
            return;
        };
        origin.traffic.note_valid(data.len());
        let circuit = origin.id;
        let Some(Stream { hop, .. }) = origin.streams.remove(id, &mut self.path.pool) else {
            return;
        };
        if connected {
            // It leads somewhere, of all addresses: to nobody who is asked for anything.
            let vegas = (origin.streams.ends.get(hop.index())).is_some_and(|end| end.is_vegas());
            let terms = Terms::new(vegas, origin.crypt.is_cgo(hop.index()));
            let left = self.path.params.stream_flow(terms, Side::Client).left();
            if let Some(Role::Origin(origin)) = self.path.halves.at(from).map(|half| &mut half.role)
            {
                origin.streams.ended_at_once(id, hop, left, now);
            }
            let end = End::new(EndReason::DONE).encode();
            self.path.send_relay_msg(
                self.path.halves.slot(from),
                hop,
                RelayCmd::END,
                id,
                &end,
                now,
            );
        }
        let end = End::decode(data);
        let refused = !connected && end.addr == Some(IpAddr::V4(address(probe.nonce)));
        self.path.to_controller.origin(OriginEvent::Probed {
            circuit,
            took: now.saturating_duration_since(probe.asked),
            refused,
        });
    }
}
