//! Circuits by which clients are introduced to onion services: this relay as an introduction point (rend-spec-v3 3.1,
//! 3.2). The controller, which knows all circuits, keeps the services' keys, and verifies their signatures.

use std::time::Instant;

use weft_cell::RelayCmd;
use weft_cell::hs_msg::{
    EstablishIntro, HsMsgError, INTRO_ESTABLISHED, IntroduceStatus, LEGACY_KEY_ID_LEN,
};
use weft_cell::reason::DestroyReason;

use super::Circuits;
use crate::address::{HalfAddr, HopIndex};
use crate::circuit::half::{Peer, Purpose};
use crate::manager::path::closing::Notify;
use crate::message::{Asker, EstablishRequest, HalfControl, IntroNews, IntroOrder};
use crate::slots::HalfKey;

impl Circuits<'_> {
    /// ESTABLISH_INTRO: its MAC is checked here, where the circuit's keys are; the rest is the controller's.
    pub(in crate::manager) fn on_establish_intro(
        &mut self,
        slot: HalfKey,
        data: &[u8],
        now: Instant,
    ) {
        let Some(half) = self.path.halves.unused_end(slot, Purpose::Introduction) else {
            self.path.totals.intro.establish_unsuitable += 1;
            let what = "ESTABLISH_INTRO on a circuit that is for something else";
            return self.path.protocol_error(slot, what, now);
        };
        let read = match EstablishIntro::decode(data) {
            Ok(read) => read,
            Err(error) => {
                self.path.totals.intro.establish_malformed += 1;
                if error == HsMsgError::Obsolete {
                    // Old services are no reason to complain about the hop before.
                    let reason = DestroyReason::PROTOCOL;
                    return self.path.close_half(slot, reason, Notify::Both, now);
                }
                return self.path.protocol_error(
                    slot,
                    "an ESTABLISH_INTRO that cannot be parsed",
                    now,
                );
            }
        };
        let ours = self
            .path
            .halves
            .backward(slot)
            .and_then(|(_, link, _, backward)| {
                let crypt = backward.crypt.as_ref()?;
                let link = self.path.links.get(link)?;
                crypt
                    .authenticates(read.authenticated, &read.handshake_auth)
                    .then_some((link.connection, link.network))
            });
        let Some((connection, network)) = ours else {
            self.path.totals.intro.establish_malformed += 1;
            let what = "an ESTABLISH_INTRO whose MAC is not of its circuit";
            return self.path.protocol_error(slot, what, now);
        };
        let request = Box::new(EstablishRequest {
            auth_key: read.auth_key,
            defense: read.defense,
            signed: read.signed.to_vec(),
            signature: read.signature,
        });
        let news = IntroNews::Establish {
            half,
            connection,
            request,
        };
        self.path.ask(network, Asker::Half(half), news.into(), now);
    }

    /// INTRODUCE1, one for each circuit: the controller knows the service that it is for.
    pub(in crate::manager) fn on_introduce1(&mut self, slot: HalfKey, data: &[u8], now: Instant) {
        if data.len() < LEGACY_KEY_ID_LEN {
            self.path.totals.intro.introduce_malformed += 1;
            return self
                .path
                .protocol_error(slot, "an INTRODUCE1 that is too short", now);
        }
        let Some((half, link, peer, backward)) = self.path.halves.backward(slot) else {
            return;
        };
        if *peer != Peer::None || !backward.purpose.is_general() {
            let what = "INTRODUCE1 on a circuit that is for something else";
            return self.path.protocol_error(slot, what, now);
        }
        if backward.purpose == Purpose::Introduced {
            self.path.totals.intro.introduce_reused += 1;
            return self
                .path
                .protocol_error(slot, "a second INTRODUCE1 on one circuit", now);
        }
        let Some(link) = self.path.links.get(link) else {
            return;
        };
        backward.purpose = Purpose::Introduced;
        let (connection, network) = (link.connection, link.network);
        let news = IntroNews::Introduce {
            half,
            connection,
            message: data.to_vec(),
        };
        self.path.ask(network, Asker::Half(half), news.into(), now);
    }

    /// An order of the controller's.
    pub(in crate::manager) fn on_intro_order(&mut self, order: IntroOrder, now: Instant) {
        match order {
            IntroOrder::Established { half } => self.on_intro_established(half, now),
            IntroOrder::Introduce {
                half,
                client,
                message,
            } => self.on_introduce2(half, client, &message, now),
            IntroOrder::Refused { half, status } => self.on_introduced(half, status, now),
        }
    }

    /// The circuit's key is kept: the service gets INTRO_ESTABLISHED.
    fn on_intro_established(&mut self, half: HalfAddr, now: Instant) {
        if self.path.halves.at(half).is_none() {
            self.path.totals.intro.establish_dead += 1;
            return;
        }
        self.path.totals.intro.established += 1;
        self.path.send_relay_msg(
            self.path.halves.slot(half),
            HopIndex::ORIGIN,
            RelayCmd::INTRO_ESTABLISHED,
            0,
            &INTRO_ESTABLISHED,
            now,
        );
    }

    /// A client is introduced to this service. One that does not read what was sent to it gets no more: its circuit would
    /// end by a full queue, and the client's rendezvous would be over when it reads of it.
    fn on_introduce2(&mut self, service: HalfAddr, client: HalfAddr, message: &[u8], now: Instant) {
        let bound = self.path.params.queue_low;
        let takes = self
            .path
            .halves
            .peek(service)
            .is_some_and(|half| half.queue.len() < bound);
        let status = match takes {
            true => {
                self.path.totals.intro.introduced += 1;
                let (slot, command) = (self.path.halves.slot(service), RelayCmd::INTRODUCE2);
                self.path
                    .send_relay_msg(slot, HopIndex::ORIGIN, command, 0, message, now);
                IntroduceStatus::Success
            }
            false => {
                self.path.totals.intro.introduce_dead += 1;
                IntroduceStatus::UnknownId
            }
        };
        self.path
            .outboxes
            .send_half(HalfControl::Introduced { to: client, status });
    }

    /// Sends a client INTRODUCE_ACK, with the result of its INTRODUCE1.
    pub(in crate::manager) fn on_introduced(
        &mut self,
        client: HalfAddr,
        status: IntroduceStatus,
        now: Instant,
    ) {
        if self.path.halves.at(client).is_some() {
            self.path.send_relay_msg(
                self.path.halves.slot(client),
                HopIndex::ORIGIN,
                RelayCmd::INTRODUCE_ACK,
                0,
                &status.encode(),
                now,
            );
        }
    }
}
