//! Circuits that meet here: this relay as a rendezvous point (rend-spec-v3 4.1). The controller, which
//! knows all circuits, keeps the cookies.

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::identity::RendezvousCookie;
use weft_cell::reason::DestroyReason;

use super::Circuits;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{Peer, Purpose};
use crate::message::{HalfControl, ToController};
use crate::slots::HalfKey;

impl Circuits<'_> {
    /// ESTABLISH_RENDEZVOUS: asks the controller to keep the cookie.
    pub(in crate::manager) fn on_establish_rendezvous(
        &mut self,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        let cookie = <[u8; 20]>::try_from(data).map(RendezvousCookie);
        let connection = self
            .path
            .halves
            .get_mut(slot)
            .and_then(|half| self.path.links.get(half.link))
            .map(|link| link.connection);
        match (
            self.path
                .halves
                .unused_end(slot, Purpose::RendezvousWaiting),
            cookie,
            connection,
        ) {
            (Some(half), Ok(cookie), Some(connection)) => {
                self.path
                    .to_controller
                    .push(ToController::EstablishRendezvous {
                        half,
                        connection,
                        cookie,
                    });
            }
            (Some(_), ..) => {
                self.path.totals.rendezvous.establish_malformed += 1;
                self.path
                    .protocol_error(slot, "ESTABLISH_RENDEZVOUS that is no cookie", now);
            }
            (None, ..) => {
                self.path.totals.rendezvous.establish_unsuitable += 1;
                let what = "ESTABLISH_RENDEZVOUS on a circuit that is for something else";
                self.path.protocol_error(slot, what, now);
            }
        }
    }

    /// The cookie is kept: the client gets RENDEZVOUS_ESTABLISHED.
    pub(in crate::manager) fn on_rendezvous_established(&mut self, half: HalfAddr, now: Instant) {
        if self.path.halves.at(half).is_some() {
            self.path.totals.rendezvous.established += 1;
            self.path.send_relay_msg(
                self.path.halves.slot(half),
                HopIndex::ORIGIN,
                RelayCmd::RENDEZVOUS_ESTABLISHED,
                0,
                &[],
                now,
            );
        } else {
            self.path.totals.rendezvous.establish_dead += 1;
        }
    }

    /// RENDEZVOUS1: a cookie, and the handshake for the waiting client.
    pub(in crate::manager) fn on_rendezvous1(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let split = data.split_first_chunk::<20>();
        match (
            self.path.halves.unused_end(slot, Purpose::Rendezvous),
            split,
        ) {
            (Some(half), Some((cookie, handshake))) => {
                self.path.to_controller.push(ToController::Rendezvous {
                    half,
                    cookie: RendezvousCookie(*cookie),
                    handshake: handshake.to_vec(),
                });
            }
            (Some(_), None) => {
                self.path.totals.rendezvous.join_malformed += 1;
                self.path
                    .protocol_error(slot, "RENDEZVOUS1 without a whole cookie", now);
            }
            (None, _) => {
                self.path.totals.rendezvous.join_unsuitable += 1;
                let what = "RENDEZVOUS1 on a circuit that is for something else";
                self.path.protocol_error(slot, what, now);
            }
        }
    }

    /// The controller found the circuit that waited: join it.
    pub(in crate::manager) fn on_splice(
        &mut self,
        addr: HalfAddr,
        with: HalfAddr,
        handshake: Vec<u8>,
        now: Instant,
    ) {
        let Some(half) = self.path.halves.at(addr) else {
            // The waiting circuit's cookie is spent, and this circuit has closed: that one closes too.
            self.path.outboxes.send_half(HalfControl::Spliced {
                to: with,
                peer: addr,
                handshake,
            });
            return self.path.outboxes.send_half(HalfControl::Destroyed {
                to: with,
                from: addr,
                reason: DestroyReason::DESTROYED,
                overflowed: false,
            });
        };
        if half.peer != Peer::None {
            return self.path.protocol_error(
                self.path.halves.slot(addr),
                "RENDEZVOUS1, and then EXTEND2",
                now,
            );
        }
        half.peer = Peer::Joined(with);
        self.abra.unsubscribe(addr);
        self.path.outboxes.send_half(HalfControl::Spliced {
            to: with,
            peer: addr,
            handshake,
        });
    }
}
