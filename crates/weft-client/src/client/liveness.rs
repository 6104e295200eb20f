//! Which events show that the network is not down. C tor takes for that every cell, and every link of its own that opens
//! (`circuit_build_times_network_is_live`). Cells do not come here; what they cause does, and the bytes that a circuit got about
//! once a second.

use weft_core::origin::{EndedBy, LinkState, OriginEvent};

use crate::chooser::{BuildNews, Chooser};
use crate::now::Now;

use super::Client;

impl<C: Chooser> Client<C> {
    /// The network has sent something, if this event says so. What answers a handshake is noted with it.
    pub(super) fn note_liveness(&mut self, event: &OriginEvent, now: Now) {
        let is_live = match event {
            OriginEvent::Link { state, .. } => *state == LinkState::Connected,
            OriginEvent::Closed { remote, .. } => *remote,
            OriginEvent::Ended { by, .. } => *by == EndedBy::Exit,
            OriginEvent::Weight { .. }
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
        }
    }
}
