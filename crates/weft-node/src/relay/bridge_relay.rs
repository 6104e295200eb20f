//! Functions of bridges alone: a bridge counts its users.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weft_core::address::ConnectionId;
use weft_core::handshake::PeerIdentity;
use weft_core::message::ToController;

use super::Relay;
use crate::notice;

/// The bridge's count of its users.
#[derive(Debug, Default)]
pub(super) struct BridgeRelay {
    /// Whose links are not open yet, and by which transport they come. There are as many as connections.
    arriving: BTreeMap<ConnectionId, (IpAddr, Option<String>)>,
}

impl BridgeRelay {
    /// Who has opened a link by this message: a client, and not a relay.
    fn arrived(&mut self, message: &ToController) -> Option<(IpAddr, Option<String>)> {
        match message {
            ToController::LinkOpened {
                connection, peer, ..
            } => {
                let arrived = self.arriving.remove(connection)?;
                (*peer == PeerIdentity::Unauthenticated).then_some(arrived)
            }
            ToController::ConnectionClosed { connection, .. } => {
                self.arriving.remove(connection);
                None
            }
            _ => None,
        }
    }
}

impl Relay {
    /// A connection was accepted, or handed over by a program of transports.
    pub(super) fn note_arrival(
        &mut self,
        id: ConnectionId,
        from: IpAddr,
        transport: Option<String>,
    ) {
        if self.options.bridge_relay.count_users {
            self.bridge_relay.arriving.insert(id, (from, transport));
        }
    }

    /// Counts a client whose link is open, as C tor does (`channel_do_open_actions`).
    pub(super) fn note_bridge_link(&mut self, message: &ToController) {
        if let Some((addr, transport)) = self.bridge_relay.arrived(message) {
            self.note_bridge_user(addr, transport.as_deref());
        }
    }

    /// The heartbeat's line about users.
    pub(super) fn log_bridge_users(&mut self) {
        if let Some(users) = self.new_bridge_users() {
            // C tor's text.
            notice!("Heartbeat: Since last heartbeat message, I have seen {users} unique clients.");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::origin::LinkFailure;

    fn opened(connection: ConnectionId, peer: PeerIdentity) -> ToController {
        ToController::LinkOpened {
            connection,
            peer,
            canonical: false,
            clock_skew: None,
            my_addr: None,
        }
    }

    #[test]
    fn clients_are_users_once_their_link_is_open_and_relays_are_not() {
        let mut side = BridgeRelay::default();
        let addr: IpAddr = [192, 0, 2, 1].into();
        let ids: Vec<ConnectionId> = (1..=3).map(ConnectionId).collect();
        for id in &ids {
            side.arriving.insert(*id, (addr, Some("obfs4".to_owned())));
        }
        let client = opened(ids[0], PeerIdentity::Unauthenticated);
        assert_eq!(
            side.arrived(&client),
            Some((addr, Some("obfs4".to_owned())))
        );
        assert_eq!(side.arrived(&client), None, "it is counted once");
        let relay = PeerIdentity::Relay {
            rsa: [1; 20].into(),
            ed25519: [2; 32].into(),
        };
        assert_eq!(side.arrived(&opened(ids[1], relay)), None);
        let failed = ToController::ConnectionClosed {
            connection: ids[2],
            why: LinkFailure::Other,
        };
        assert_eq!(side.arrived(&failed), None);
        assert!(side.arriving.is_empty());
    }
}
