//! Circuits that meet here: this relay as a rendezvous point (rend-spec-v3 4.1). The controller, which
//! knows all circuits, keeps the cookies.

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::identity::RendezvousCookie;
use weft_cell::reason::DestroyReason;

use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{Peer, Purpose};
use crate::manager::LocalConnectionManager;
use crate::message::{HalfControl, ToController};
use crate::slots::HalfKey;

impl LocalConnectionManager {
    /// ESTABLISH_RENDEZVOUS: asks the controller to keep the cookie.
    pub(in crate::manager) fn on_establish_rendezvous(
        &mut self,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        let cookie = <[u8; 20]>::try_from(data).map(RendezvousCookie);
        let connection = self
            .halves
            .get_mut(slot)
            .and_then(|half| self.links.get(half.link))
            .map(|link| link.connection);
        match (
            self.unused_end(slot, Purpose::RendezvousWaiting),
            cookie,
            connection,
        ) {
            (Some(half), Ok(cookie), Some(connection)) => {
                self.to_controller.push(ToController::EstablishRendezvous {
                    half,
                    connection,
                    cookie,
                });
            }
            (Some(_), ..) => {
                self.totals.rendezvous.establish_malformed += 1;
                self.protocol_error(slot, "ESTABLISH_RENDEZVOUS that is no cookie", now);
            }
            (None, ..) => {
                self.totals.rendezvous.establish_unsuitable += 1;
                let what = "ESTABLISH_RENDEZVOUS on a circuit that is for something else";
                self.protocol_error(slot, what, now);
            }
        }
    }

    /// The cookie is kept: the client gets RENDEZVOUS_ESTABLISHED.
    pub(in crate::manager) fn on_rendezvous_established(&mut self, half: HalfAddr, now: Instant) {
        if self.halves.at(half).is_some() {
            self.totals.rendezvous.established += 1;
            self.send_relay_msg(
                self.halves.slot(half),
                HopIndex::ORIGIN,
                RelayCmd::RENDEZVOUS_ESTABLISHED,
                0,
                &[],
                now,
            );
        } else {
            self.totals.rendezvous.establish_dead += 1;
        }
    }

    /// RENDEZVOUS1: a cookie, and the handshake for the waiting client.
    pub(in crate::manager) fn on_rendezvous1(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let split = data.split_first_chunk::<20>();
        match (self.unused_end(slot, Purpose::Rendezvous), split) {
            (Some(half), Some((cookie, handshake))) => {
                self.to_controller.push(ToController::Rendezvous {
                    half,
                    cookie: RendezvousCookie(*cookie),
                    handshake: handshake.to_vec(),
                });
            }
            (Some(_), None) => {
                self.totals.rendezvous.join_malformed += 1;
                self.protocol_error(slot, "RENDEZVOUS1 without a whole cookie", now);
            }
            (None, _) => {
                self.totals.rendezvous.join_unsuitable += 1;
                let what = "RENDEZVOUS1 on a circuit that is for something else";
                self.protocol_error(slot, what, now);
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
        let Some(half) = self.halves.at(addr) else {
            // The waiting circuit's cookie is spent, and this circuit has closed: that one closes too.
            self.send_control(HalfControl::Spliced {
                to: with,
                peer: addr,
                handshake,
            });
            return self.send_control(HalfControl::Destroyed {
                to: with,
                from: addr,
                reason: DestroyReason::DESTROYED,
                overflowed: false,
            });
        };
        if half.peer != Peer::None {
            return self.protocol_error(
                self.halves.slot(addr),
                "RENDEZVOUS1, and then EXTEND2",
                now,
            );
        }
        half.peer = Peer::Joined(with);
        self.unsubscribe(self.halves.slot(addr));
        self.send_control(HalfControl::Spliced {
            to: with,
            peer: addr,
            handshake,
        });
    }

    /// Gives a circuit that ends here and has no purpose yet this one.
    pub(in crate::manager) fn unused_end(
        &mut self,
        slot: HalfKey,
        purpose: Purpose,
    ) -> Option<HalfAddr> {
        let (addr, _, peer, backward) = self.halves.backward(slot)?;
        if *peer != Peer::None || !backward.purpose.is_general() {
            return None;
        }
        backward.purpose = purpose;
        Some(addr)
    }
}
