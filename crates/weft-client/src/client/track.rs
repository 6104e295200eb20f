//! Keeps destinations on one exit (`TrackHostExits`): for sites that end a session when the address changes.

use weft_cell::identity::RsaIdentity;
use weft_core::address::ConnectionId;
use weft_core::origin::OriginId;

use crate::addresses::Host;
use crate::chooser::Chooser;
use crate::streams::{ExitChoice, Rewritten, StreamKind, is_tracked};

use crate::now::Now;

use super::Client;

impl<C: Chooser> Client<C> {
    /// The exit that reached a destination before, if it is kept to that one.
    pub(super) fn tracked_exit(
        &self,
        kind: StreamKind,
        host: &Host,
        now: Now,
    ) -> Option<RsaIdentity> {
        let tracks = kind == StreamKind::Connect && !self.config.track_hosts.is_empty();
        tracks.then(|| self.tracked.get(host, now.mono)).flatten()
    }

    /// A stream is open: its destination is kept to this exit from now on, or for longer.
    pub(super) fn note_exit(&mut self, id: ConnectionId, circuit: OriginId, now: Now) {
        let (Some(stream), Some(circuit)) = (self.streams.get(&id), self.circuits.get(&circuit))
        else {
            return;
        };
        let host = stream.host().clone();
        if stream.kind != StreamKind::Connect || !is_tracked(&self.config.track_hosts, &host) {
            return;
        }
        if let Some(exit) = &circuit.exit {
            let until = now.mono + self.config.track_for;
            self.tracked.note(host, exit.rsa, until, now.mono);
        }
    }

    /// Allows any exit for a stream whose tracked exit failed. Returns false if it had no tracked exit, or
    /// requested its exit itself.
    pub(super) fn leave_exit(&mut self, id: ConnectionId) -> bool {
        let stream = self.streams.get_mut(&id);
        let rewritten = stream.and_then(|stream| stream.rewritten.as_mut());
        let Some(exit) = rewritten.and_then(Rewritten::leave_tracked) else {
            return false;
        };
        self.tracked.forget_exit(&exit);
        true
    }

    /// No circuit could be built to an exit: streams that were only kept to it go elsewhere
    /// (C tor's `circuit_discard_optional_exit_enclaves`).
    pub(super) fn leave_unreachable_exit(&mut self, exit: &RsaIdentity) {
        let tracked = ExitChoice::Tracked(*exit);
        let kept: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| *stream.exit() == tracked)
            .map(|stream| stream.id)
            .collect();
        for id in kept {
            self.leave_exit(id);
        }
    }
}
