//! Keeps destinations on one exit (`TrackHostExits`): for sites that end a session when the address changes.

use weft_cell::identity::RsaIdentity;
use weft_core::address::ConnectionId;
use weft_core::origin::OriginId;
use weft_path::RelayName;

use crate::chooser::Chooser;

use crate::now::Now;
use crate::stream::StreamKind;
use crate::tracked::is_tracked;

use super::Client;

impl<C: Chooser> Client<C> {
    /// Sends a stream to the exit that reached its destination before.
    pub(super) fn keep_to_exit(&mut self, id: ConnectionId, now: Now) {
        if self.config.track_hosts.is_empty() {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.kind != StreamKind::Connect || stream.exit.is_some() {
            return;
        }
        let host = stream.host.to_ascii_lowercase();
        if let Some(exit) = self.tracked.get(&host, now.mono) {
            stream.exit = Some(RelayName::Rsa(exit));
            stream.exit_optional = true;
        }
    }

    /// A stream is open: its destination is kept to this exit from now on, or for longer.
    pub(super) fn note_exit(&mut self, id: ConnectionId, circuit: OriginId, now: Now) {
        let (Some(stream), Some(circuit)) = (self.streams.get(&id), self.circuits.get(&circuit))
        else {
            return;
        };
        let host = stream.host.to_ascii_lowercase();
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
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        if !std::mem::take(&mut stream.exit_optional) {
            return false;
        }
        if let Some(RelayName::Rsa(exit)) = stream.exit.take() {
            self.tracked.forget_exit(&exit);
        }
        true
    }

    /// No circuit could be built to an exit: streams that were only kept to it go elsewhere
    /// (C tor's `circuit_discard_optional_exit_enclaves`).
    pub(super) fn leave_unreachable_exit(&mut self, exit: &RsaIdentity) {
        let name = RelayName::Rsa(*exit);
        let kept: Vec<ConnectionId> = self
            .streams
            .values()
            .filter(|stream| stream.exit_optional && stream.exit.as_ref() == Some(&name))
            .map(|stream| stream.id)
            .collect();
        for id in kept {
            self.leave_exit(id);
        }
    }
}
