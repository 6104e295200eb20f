//! Relay cells: those to pass on, and those that are for this relay (tor-spec 5.5, 6.1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayBody;
use weft_cell::{Cell, CellView, ChanCmd, RelayCmd};

use super::LocalConnectionManager;
use super::requests::Asker;
use crate::address::HalfAddr;
use crate::half::{Away, Peer, Purpose, Role};
use crate::handshake::PeerIdentity;
use crate::message::{ExtendRequest, HalfControl, Requester, ToController};
use crate::padding::LinkUse;
use crate::routable;
use crate::scheduler::LinkKey;

impl LocalConnectionManager {
    /// RELAY or RELAY_EARLY from a link: the road of a cell (docs/architecture.md).
    pub(super) fn on_relay(&mut self, key: LinkKey, view: CellView<'_>, early: bool, now: Instant) {
        let Some(slot) = self.slot_of(key, view.circ_id()) else {
            self.totals.cells_dropped += 1;
            return;
        };
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        match &mut half.role {
            Role::TowardOrigin(toward) => {
                let Some(crypt) = &mut toward.crypt else {
                    return self.protocol_error(
                        slot,
                        "a relay cell before the circuit was made",
                        now,
                    );
                };
                if early {
                    let Some(left) = toward.relay_early_left.checked_sub(1) else {
                        return self.protocol_error(slot, "too many RELAY_EARLY cells", now);
                    };
                    toward.relay_early_left = left;
                }
                let mut cell = self.pool.take();
                cell.set_command(view.command());
                if crypt.decrypt_forward_to(view.command(), view.body(), cell.body_mut()) {
                    self.totals.cells_recognized += 1;
                    self.on_recognized(slot, cell, early, now);
                } else if let Peer::Joined(to) = half.peer {
                    if let Some(link) = self.links.get_mut(key as usize) {
                        link.padding.carries(if early {
                            LinkUse::FullCircuits
                        } else {
                            LinkUse::UserTraffic
                        });
                    }
                    self.send_cell(to, from, cell, now);
                } else {
                    // Nobody else is on this circuit: it was for us, and it is broken.
                    self.pool.put(cell);
                    self.protocol_error(
                        slot,
                        "a relay cell that nobody on the circuit recognizes",
                        now,
                    );
                }
            }
            Role::AwayFromOrigin(away) => match half.peer {
                // RELAY_EARLY only ever moves away from the origin.
                Peer::Joined(to) if !early && *away == Away::Open => {
                    self.pass_toward_origin(to, from, view, now);
                }
                _ if early => {
                    self.protocol_error(slot, "RELAY_EARLY toward the circuit's origin", now)
                }
                _ => self.protocol_error(slot, "a relay cell before CREATED2", now),
            },
            Role::Origin(_) => self.on_origin_relay(slot, view, early, now),
        }
    }

    /// Passes a cell on toward the origin. If the half with the keys is on this thread too, the cell
    /// gets its layer on the way from the link's buffer to its own place.
    fn pass_toward_origin(
        &mut self,
        to: HalfAddr,
        from: HalfAddr,
        view: CellView<'_>,
        now: Instant,
    ) {
        if let Some(half) = self.halves.at(to)
            && half.peer == Peer::Joined(from)
            && let Role::TowardOrigin(toward) = &mut half.role
            && let Some(crypt) = &mut toward.crypt
        {
            let mut cell = self.pool.take();
            cell.set_command(ChanCmd::RELAY);
            crypt.encrypt_backward_to(view.body(), cell.body_mut());
            self.totals.cells_relayed += 1;
            self.enqueue(to.slot, cell, now);
        } else {
            let cell = self.pool.copy_of(view.as_bytes());
            self.send_cell(to, from, cell, now);
        }
    }

    /// A relay message for this relay, from the circuit's origin.
    fn on_recognized(&mut self, slot: u32, cell: Box<Cell>, early: bool, now: Instant) {
        match RelayBody::new(cell.body()).command() {
            RelayCmd::DATA | RelayCmd::END | RelayCmd::SENDME | RelayCmd::XON | RelayCmd::XOFF => {
                return self.on_stream_message(slot, 0, cell, now);
            }
            RelayCmd::BEGIN | RelayCmd::BEGIN_DIR | RelayCmd::RESOLVE => {
                self.on_stream_asked(slot, &cell, now);
            }
            _ => self.on_circuit_message(slot, &cell, early, now),
        }
        self.pool.put(cell);
    }

    /// A relay message about the circuit itself, from its origin.
    fn on_circuit_message(&mut self, slot: u32, cell: &Cell, early: bool, now: Instant) {
        let body = RelayBody::new(cell.body());
        let Ok(data) = body.data() else {
            return self.protocol_error(slot, "a relay message longer than its cell", now);
        };
        match body.command() {
            RelayCmd::EXTEND2 => self.on_extend2(slot, data, early, now),
            RelayCmd::TRUNCATE => self.on_truncate(slot, data, now),
            RelayCmd::DROP => self.totals.drops_received += 1,
            RelayCmd::ESTABLISH_RENDEZVOUS => self.on_establish_rendezvous(slot, data, now),
            RelayCmd::RENDEZVOUS1 => self.on_rendezvous1(slot, data, now),
            // An old EXTEND, a message that only an origin gets (CONNECTED, RESOLVED), one that this
            // relay's protocol list does not claim.
            _ => self.protocol_error(slot, "a relay message that this relay does not serve", now),
        }
    }

    /// EXTEND2 (tor-spec 5.1.2).
    fn on_extend2(&mut self, slot: u32, data: &[u8], early: bool, now: Instant) {
        if !early && !self.params.nonearly_extend {
            return self.protocol_error(slot, "EXTEND2 outside a RELAY_EARLY cell", now);
        }
        let Ok(extend) = Extend2::decode(data) else {
            return self.protocol_error(slot, "an EXTEND2 that cannot be parsed", now);
        };
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let Role::TowardOrigin(toward) = &mut half.role else {
            return;
        };
        let Some(link) = self.links.get(half.link as usize) else {
            return;
        };
        let (key, connection, previous) = (half.link, link.connection, link.peer);
        let addrs = self.params.usable_addrs(&extend);
        let rsa = extend.rsa.filter(|id| *id != [0; 20]);
        let ed25519 = extend.ed25519.filter(|id| *id != [0; 32]);
        let to_ourselves =
            rsa == Some(self.params.own_rsa) || ed25519 == Some(self.params.own_ed25519);
        let to_previous = match previous {
            PeerIdentity::Relay { rsa: r, ed25519: e } => rsa == Some(r) || ed25519 == Some(e),
            PeerIdentity::Unauthenticated => false,
        };
        let (Some(rsa), false, false, false) = (rsa, to_ourselves, to_previous, addrs.is_empty())
        else {
            let what = "EXTEND2 to this relay, back to the previous one, or to nowhere that it may connect to";
            return self.protocol_error(slot, what, now);
        };
        if half.peer != Peer::None || toward.purpose != Purpose::General {
            return self.protocol_error(slot, "EXTEND2 on a circuit that goes on already", now);
        }
        half.peer = Peer::Extending;
        toward.extension = toward.extension.wrapping_add(1);
        let extension = toward.extension;
        let request = ExtendRequest {
            from: Requester::Half {
                half: from,
                connection,
                extension,
            },
            addrs,
            rsa,
            ed25519,
            create: Arc::new(CreateRequest::Create2 {
                handshake_type: extend.handshake_type,
                data: extend.handshake,
            }),
        };
        self.wait_for(from, extension, now);
        self.ask(key, Asker::Half(from), ToController::Extend(request), now);
    }

    /// The next hop answered: EXTENDED2 carries its handshake back (tor-spec 5.1.2).
    pub(super) fn send_extended(&mut self, slot: u32, handshake: &[u8], now: Instant) {
        let Ok(length) = u16::try_from(handshake.len()) else {
            return self.protocol_error(slot, "a CREATED2 that is too long", now);
        };
        let mut data = Vec::with_capacity(2 + handshake.len());
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(handshake);
        self.say(slot, 0, RelayCmd::EXTENDED2, 0, &data, now);
    }

    /// TRUNCATE (tor-spec 5.4): the rest of the circuit goes, the circuit to here stays.
    fn on_truncate(&mut self, slot: u32, data: &[u8], now: Instant) {
        let reason = data
            .first()
            .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
        let Some(from) = self.halves.addr(slot) else {
            return;
        };
        let Some(half) = self.halves.get_mut(slot) else {
            return;
        };
        let Role::TowardOrigin(toward) = &mut half.role else {
            return;
        };
        if toward.purpose != Purpose::General {
            return self.protocol_error(slot, "TRUNCATE on a rendezvous circuit", now);
        }
        // An answer to the extension that is under way will find its number gone.
        toward.extension = toward.extension.wrapping_add(1);
        if let Peer::Joined(to) = std::mem::replace(&mut half.peer, Peer::None) {
            self.send_control(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: false,
            });
        }
        self.say(slot, 0, RelayCmd::TRUNCATED, 0, &[reason.into()], now);
    }

    // ---- rendezvous (rend-spec-v3 4.1) ----

    /// ESTABLISH_RENDEZVOUS: the controller, which sees all circuits, keeps the cookie.
    fn on_establish_rendezvous(&mut self, slot: u32, data: &[u8], now: Instant) {
        let cookie = <[u8; 20]>::try_from(data);
        let connection = self
            .halves
            .get_mut(slot)
            .and_then(|half| self.links.get(half.link as usize))
            .map(|link| link.connection);
        match (
            self.unused_end(slot, Purpose::RendezvousWaiting),
            cookie,
            connection,
        ) {
            (Some(half), Ok(cookie), Some(connection)) => {
                self.to_controller
                    .push_back(ToController::EstablishRendezvous {
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

    /// The cookie is kept: say so.
    pub(super) fn on_rendezvous_established(&mut self, half: HalfAddr, now: Instant) {
        if self.halves.at(half).is_some() {
            self.totals.rendezvous.established += 1;
            self.say(half.slot, 0, RelayCmd::RENDEZVOUS_ESTABLISHED, 0, &[], now);
        } else {
            self.totals.rendezvous.establish_dead += 1;
        }
    }

    /// RENDEZVOUS1: cookie, then what the waiting client shall get.
    fn on_rendezvous1(&mut self, slot: u32, data: &[u8], now: Instant) {
        let split = data.split_first_chunk::<20>();
        match (self.unused_end(slot, Purpose::Rendezvous), split) {
            (Some(half), Some((cookie, handshake))) => {
                self.to_controller.push_back(ToController::Rendezvous {
                    half,
                    cookie: *cookie,
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
    pub(super) fn on_splice(
        &mut self,
        addr: HalfAddr,
        with: HalfAddr,
        handshake: Vec<u8>,
        now: Instant,
    ) {
        let Some(half) = self.halves.at(addr) else {
            // The waiting circuit's cookie is spent, and its other end has gone: it ends too.
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
            return self.protocol_error(addr.slot, "RENDEZVOUS1, and then EXTEND2", now);
        }
        half.peer = Peer::Joined(with);
        self.send_control(HalfControl::Spliced {
            to: with,
            peer: addr,
            handshake,
        });
    }

    /// Gives a circuit that ends here and is for nothing yet its purpose.
    fn unused_end(&mut self, slot: u32, purpose: Purpose) -> Option<HalfAddr> {
        let addr = self.halves.addr(slot)?;
        let half = self.halves.get_mut(slot)?;
        match &mut half.role {
            Role::TowardOrigin(toward)
                if half.peer == Peer::None && toward.purpose == Purpose::General =>
            {
                toward.purpose = purpose;
                Some(addr)
            }
            _ => None,
        }
    }
}

impl super::RelayParams {
    /// The addresses of an EXTEND2 that this relay may connect to, in the order given.
    fn usable_addrs(&self, extend: &Extend2) -> Vec<SocketAddr> {
        let v4 = extend.ipv4.map(SocketAddr::V4);
        let v6 = extend
            .ipv6
            .filter(|_| self.extend_over_ipv6)
            .map(SocketAddr::V6);
        v4.into_iter()
            .chain(v6)
            .filter(|addr| addr.port() != 0 && !addr.ip().is_unspecified())
            .filter(|addr| self.extend_to_private || routable::is_public(addr.ip()))
            .collect()
    }
}
