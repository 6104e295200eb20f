//! Relay messages for this relay, from the origin of a circuit (tor-spec 5.4, 5.5): what is about the
//! circuit is handled here, what is of a stream in `streams`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::reason::DestroyReason;
use weft_cell::relay::RelayBody;
use weft_cell::relay_command::{AtRelay, RelayCommand};
use weft_cell::{Cell, RelayCmd};

use crate::address::HopIndex;
use crate::circuit::half::Peer;
use crate::handshake::PeerIdentity;
use crate::manager::LocalConnectionManager;
use crate::message::{Asker, ExtendRequest, HalfControl, Requester, ToController};
use crate::params::RelayParams;
use crate::routable;
use crate::slots::HalfKey;

impl LocalConnectionManager {
    /// A relay message for this relay. The table decides what is done with it.
    pub(in crate::manager) fn on_recognized(
        &mut self,
        slot: HalfKey,
        cell: Box<Cell>,
        early: bool,
        now: Instant,
    ) {
        let Some(cell) = self.take_leg_message(slot, HopIndex::ORIGIN, cell, now) else {
            return;
        };
        let body = RelayBody::new(cell.body());
        let command = RelayCommand::of(body.command());
        let handler = command.map_or(AtRelay::Refuse, |known| known.rules().at_relay);
        if let AtRelay::Stream(message) = handler {
            return self.on_stream_message(slot, HopIndex::ORIGIN, message, cell, now);
        }
        match (handler, body.data()) {
            (AtRelay::Stream(_), _) => {}
            (AtRelay::Open(opener), _) => self.on_stream_asked(slot, opener, &cell, now),
            (_, Err(_)) => self.protocol_error(slot, "a relay message longer than its cell", now),
            (AtRelay::Extend2, Ok(data)) => self.on_extend2(slot, data, early, now),
            (AtRelay::Truncate, Ok(data)) => self.on_truncate(slot, data, now),
            (AtRelay::Drop, Ok(_)) => self.totals.drops_received += 1,
            (AtRelay::EstablishRendezvous, Ok(data)) => {
                self.on_establish_rendezvous(slot, data, now);
            }
            (AtRelay::Rendezvous1, Ok(data)) => self.on_rendezvous1(slot, data, now),
            (AtRelay::EstablishIntro, Ok(data)) => self.on_establish_intro(slot, data, now),
            (AtRelay::Introduce1, Ok(data)) => self.on_introduce1(slot, data, now),
            (AtRelay::PaddingNegotiate, Ok(data)) => self.on_padding_negotiate(slot, data, now),
            (AtRelay::AbraAsk, Ok(data)) if self.params.serve_abra => {
                self.on_abra_ask(slot, data, now);
            }
            // It was served until torrc changed: clients learn that from the next consensus.
            (AtRelay::AbraAsk, Ok(_)) => {}
            (AtRelay::ConfluxLink, Ok(data)) if self.params.serve_conflux => {
                self.on_conflux_link(slot, data, now);
            }
            (AtRelay::ConfluxLinkedAck, Ok(_)) => self.on_conflux_linked_ack(slot, now),
            (AtRelay::Multipath, Ok(data)) if self.params.serve_mtor => {
                self.on_multipath(slot, data, now);
            }
            (AtRelay::Join, Ok(data)) if self.params.serve_mtor => {
                self.on_join_leg(slot, data, now);
            }
            (AtRelay::MtorDrop, Ok(data)) => self.on_mtor_drop(slot, data, now),
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
                self.protocol_error(slot, "a relay message that this relay does not serve", now);
            }
        }
        self.pool.put(cell);
    }

    /// EXTEND2 (tor-spec 5.1.2).
    fn on_extend2(&mut self, slot: HalfKey, data: &[u8], early: bool, now: Instant) {
        if !early && !self.params.nonearly_extend {
            return self.protocol_error(slot, "EXTEND2 outside a RELAY_EARLY cell", now);
        }
        let Ok(extend) = Extend2::decode(data) else {
            return self.protocol_error(slot, "an EXTEND2 that cannot be parsed", now);
        };
        let Some((from, key, peer, backward)) = self.halves.backward(slot) else {
            return;
        };
        let Some(link) = self.links.get(key) else {
            return;
        };
        let (connection, previous, network) = (link.connection, link.peer, link.network);
        let addrs = self.params.usable_addrs(&extend);
        let rsa = extend.rsa.filter(|id| !id.is_zero());
        let ed25519 = extend.ed25519.filter(|id| !id.is_zero());
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
        if *peer != Peer::None || !backward.purpose.is_general() {
            return self.protocol_error(slot, "EXTEND2 on a circuit that is extended already", now);
        }
        *peer = Peer::Extending;
        backward.extension = backward.extension.wrapping_add(1);
        let extension = backward.extension;
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
        let request = ToController::Extend(request);
        self.ask(network, Asker::Half(from), request, now);
    }

    /// The next hop answered: its handshake is sent backward in an EXTENDED2 (tor-spec 5.1.2).
    pub(in crate::manager) fn send_extended(
        &mut self,
        slot: HalfKey,
        handshake: &[u8],
        now: Instant,
    ) {
        let Ok(length) = u16::try_from(handshake.len()) else {
            return self.protocol_error(slot, "a CREATED2 that is too long", now);
        };
        let mut data = Vec::with_capacity(2 + handshake.len());
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(handshake);
        self.send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::EXTENDED2, 0, &data, now);
    }

    /// TRUNCATE (tor-spec 5.4): the rest of the circuit is closed, the circuit to here stays.
    fn on_truncate(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let reason = data
            .first()
            .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
        let Some((from, _, peer, backward)) = self.halves.backward(slot) else {
            return;
        };
        if !backward.purpose.is_general() {
            let what = "TRUNCATE on a circuit of a rendezvous, an introduction or a tunnel";
            return self.protocol_error(slot, what, now);
        }
        // An answer to the extension that is under way will find another number.
        backward.extension = backward.extension.wrapping_add(1);
        if let Peer::Joined(to) = std::mem::replace(peer, Peer::None) {
            self.send_control(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: false,
            });
        }
        self.send_relay_msg(
            slot,
            HopIndex::ORIGIN,
            RelayCmd::TRUNCATED,
            0,
            &[reason.into()],
            now,
        );
    }
}

impl RelayParams {
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
