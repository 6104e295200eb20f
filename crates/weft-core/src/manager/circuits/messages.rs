//! Relay messages for this relay, from the origin of a circuit (tor-spec 5.4, 5.5): what is about the
//! circuit is handled here, what is of a stream in `streams`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::circ_msg::{CreateRequest, Extend2};
use weft_cell::reason::DestroyReason;

use super::Circuits;
use crate::address::HopIndex;
use crate::circuit::half::Peer;
use crate::handshake::PeerIdentity;
use crate::message::{Asker, ExtendRequest, HalfControl, Requester, ToController};
use crate::params::RelayParams;
use crate::routable;
use crate::slots::HalfKey;

impl Circuits<'_> {
    /// EXTEND2 (tor-spec 5.1.2).
    pub(in crate::manager) fn on_extend2(
        &mut self,
        slot: HalfKey,
        data: &[u8],
        early: bool,
        now: Instant,
    ) {
        if !early && !self.path.params.nonearly_extend {
            return self
                .path
                .protocol_error(slot, "EXTEND2 outside a RELAY_EARLY cell", now);
        }
        let Ok(extend) = Extend2::decode(data) else {
            return self
                .path
                .protocol_error(slot, "an EXTEND2 that cannot be parsed", now);
        };
        let Some((from, key, peer, backward)) = self.path.halves.backward(slot) else {
            return;
        };
        let Some(link) = self.path.links.get(key) else {
            return;
        };
        let (connection, previous, network) = (link.connection, link.peer, link.network);
        let addrs = self.path.params.usable_addrs(&extend);
        let rsa = extend.rsa.filter(|id| !id.is_zero());
        let ed25519 = extend.ed25519.filter(|id| !id.is_zero());
        let to_ourselves =
            rsa == Some(self.path.params.own_rsa) || ed25519 == Some(self.path.params.own_ed25519);
        let to_previous = match previous {
            PeerIdentity::Relay { rsa: r, ed25519: e } => rsa == Some(r) || ed25519 == Some(e),
            PeerIdentity::Unauthenticated => false,
        };
        let (Some(rsa), false, false, false) = (rsa, to_ourselves, to_previous, addrs.is_empty())
        else {
            let what = "EXTEND2 to this relay, back to the previous one, or to nowhere that it may connect to";
            return self.path.protocol_error(slot, what, now);
        };
        if *peer != Peer::None || !backward.purpose.is_general() {
            return self.path.protocol_error(
                slot,
                "EXTEND2 on a circuit that is extended already",
                now,
            );
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
        self.path.wait_for(from, extension, now);
        let request = ToController::Extend(request);
        self.path.ask(network, Asker::Half(from), request, now);
    }

    /// The next hop answered: its handshake is sent backward in an EXTENDED2 (tor-spec 5.1.2).
    pub(in crate::manager) fn send_extended(
        &mut self,
        slot: HalfKey,
        handshake: &[u8],
        now: Instant,
    ) {
        let Ok(length) = u16::try_from(handshake.len()) else {
            return self
                .path
                .protocol_error(slot, "a CREATED2 that is too long", now);
        };
        let mut data = Vec::with_capacity(2 + handshake.len());
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(handshake);
        self.path
            .send_relay_msg(slot, HopIndex::ORIGIN, RelayCmd::EXTENDED2, 0, &data, now);
    }

    /// TRUNCATE (tor-spec 5.4): the rest of the circuit is closed, the circuit to here stays.
    pub(in crate::manager) fn on_truncate(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        let reason = data
            .first()
            .map_or(DestroyReason::NONE, |byte| DestroyReason::from(*byte));
        let Some((from, _, peer, backward)) = self.path.halves.backward(slot) else {
            return;
        };
        if !backward.purpose.is_general() {
            let what = "TRUNCATE on a circuit of a rendezvous, an introduction or a tunnel";
            return self.path.protocol_error(slot, what, now);
        }
        // An answer to the extension that is under way will find another number.
        backward.extension = backward.extension.wrapping_add(1);
        if let Peer::Joined(to) = std::mem::replace(peer, Peer::None) {
            self.path.outboxes.send_half(HalfControl::Destroyed {
                to,
                from,
                reason,
                overflowed: false,
            });
        }
        self.path.send_relay_msg(
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
