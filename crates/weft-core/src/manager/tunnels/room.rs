//! What legs lend their tunnel: the room of their circuits' windows and queues.

use std::time::{Duration, Instant};

use weft_planted::{Fault, planted};

use crate::address::HalfAddr;
use crate::circuit::half::CircuitHalf;
use crate::manager::LocalConnectionManager;
use crate::message::LegControl;
use crate::slots::HalfKey;
use crate::tunnel::{LEG_BATCH, Room, Stage};

impl LocalConnectionManager {
    /// Lends the tunnel what a leg's window and queue have room for.
    pub(in crate::manager) fn offer_room(&mut self, slot: HalfKey) {
        let high = self.params.queue_high;
        let Some(addr) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let queued = half.queue.len();
        let Some(mut leg) = half.leg.take() else {
            return;
        };
        let streams = half.streams_mut();
        let end = streams.and_then(|streams| streams.ends.get_mut(leg.hop.index()));
        let offered = end.map(|end| {
            let queue = high.saturating_sub(queued);
            let room = end.room().min(u32::try_from(queue).unwrap_or(u32::MAX));
            let more = room.saturating_sub(leg.granted);
            (queue == 0, more, end.rtt().map(|rtt| rtt.smoothed))
        });
        let acknowledged = std::mem::take(&mut leg.acknowledged);
        let open = leg.stage != Stage::Joining;
        let mut send = None;
        if let (Some((full, more, rtt)), Some(tunnel), true) = (offered, leg.tunnel, open) {
            if full {
                half.blocked = true;
            }
            let lends = more >= LEG_BATCH || more > 0 && leg.granted == 0;
            let cells = if lends && !leg.dropped { more } else { 0 };
            if cells > 0 || acknowledged > 0 {
                if !planted(Fault::LegRoomLentTwice) {
                    leg.granted += cells;
                }
                let room = Room {
                    cells,
                    rtt,
                    acknowledged,
                };
                send = Some((tunnel, room));
            }
        }
        let (hop, full) = (leg.hop, half.blocked);
        half.leg = Some(leg);
        if full
            && let Some(streams) = half.streams_mut()
            && let Some(end) = streams.ends.get_mut(hop.index())
        {
            end.set_blocked(true);
        }
        if let Some((to, room)) = send {
            self.send_control(LegControl::Room {
                to,
                leg: addr,
                room,
            });
        }
    }

    /// A leg's round trip was measured by CONFLUX_LINKED_ACK.
    pub(super) fn send_leg_rtt(&mut self, slot: HalfKey, rtt: Duration) {
        let leg = self.halves.addr(slot);
        let half = self.halves.get(slot);
        let tunnel = half.and_then(|half| half.leg.as_ref()?.tunnel);
        if let (Some(to), Some(leg)) = (tunnel, leg) {
            let room = Room {
                rtt: Some(rtt),
                ..Room::default()
            };
            self.send_control(LegControl::Room { to, leg, room });
        }
    }

    /// A leg has room: what waits is sent.
    pub(in crate::manager) fn on_leg_room(
        &mut self,
        addr: HalfAddr,
        leg: HalfAddr,
        room: Room,
        now: Instant,
    ) {
        if let Some(tunnel) = self.halves.at(addr).and_then(CircuitHalf::as_tunnel) {
            tunnel.legs.note_room(leg, room, now);
            self.package_tunnel(self.halves.slot(addr), now);
        }
    }
}
