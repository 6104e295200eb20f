//! Signs that the network is up, and log lines when it seems down. C tor counts every cell as a
//! sign, and each of its own links that opens (`circuit_build_times_network_is_live`). Cells never
//! reach this crate; it sees the events that they cause, and, about once a second, the bytes that a
//! circuit received.

use std::net::SocketAddr;

use weft_cell::identity::RsaIdentity;
use weft_core::origin::{EndedBy, LinkState, OriginEvent};

use crate::chooser::{BuildNews, Chooser};
use crate::circuits::Circuit;
use crate::now::Now;
use crate::streams::{Stream, StreamKind, StreamState};

use super::Client;

impl<C: Chooser> Client<C> {
    /// Notes that the network has sent something, if this event shows it.
    pub(super) fn note_liveness(&mut self, event: &OriginEvent, now: Now) {
        let is_live = match event {
            OriginEvent::Link { state, .. } => *state == LinkState::Connected,
            OriginEvent::Closed { remote, .. } => *remote,
            OriginEvent::Ended { by, .. } => *by == EndedBy::Exit,
            OriginEvent::Answered { .. }
            | OriginEvent::Weight { .. }
            | OriginEvent::Probed { .. }
            | OriginEvent::Connected { .. }
            | OriginEvent::Resolved { .. }
            | OriginEvent::Linked { .. } => true,
            OriginEvent::Traffic { streams, circuits } => {
                streams.iter().any(|(_, got, _)| *got > 0)
                    || circuits.iter().any(|report| report.traffic.read > 0)
            }
            _ => false,
        };
        if is_live {
            self.chooser.built(BuildNews::Alive, now);
            if let Some(line) = self.outage.answered(now.mono) {
                self.log(line);
            }
        }
    }

    /// Notes that a link could not be opened, if its state is that. On a relay most links are those
    /// of others' circuits.
    pub(super) fn note_failed_link(
        &mut self,
        rsa: RsaIdentity,
        addr: SocketAddr,
        state: LinkState,
        now: Now,
    ) {
        let LinkState::Failed(failure) = state else {
            return;
        };
        let waits = |circuit: &Circuit<C::Guard>| {
            circuit.is_building() && circuit.hops.first().is_some_and(|hop| hop.rsa == rsa)
        };
        if self.circuits.values().any(waits) {
            self.outage.link_failed(rsa, addr, failure, now.mono);
        }
    }

    /// Logs that the network does not answer, if it does not.
    pub(super) fn check_outage(&mut self, now: Now) {
        if !self.established || self.config.disable_network {
            self.outage.forget();
            return;
        }
        let waits = |stream: &&Stream| {
            stream.state == StreamState::Waiting && !matches!(stream.kind, StreamKind::Directory(_))
        };
        let waiting = self.streams.values().filter(waits).count();
        if let Some(line) = self.outage.check(waiting, now.mono) {
            self.log(line);
        }
    }
}
