//! What only a bridge does: it counts its users, and has its descriptor sent over circuits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tor_llcrypto::pk::rsa::RsaIdentity;
use weft_core::address::ConnectionId;
use weft_core::handshake::PeerIdentity;
use weft_core::message::ToController;
use weft_dir::command::{Command, Upload};

use super::Relay;
use crate::notice;
use crate::reachability::{CircuitRequest, RequestError};

/// How long an upload may take.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Uploads at once, at most: as many as there are authorities of bridges, and more.
const MOST_UPLOADS: usize = 8;

/// An upload that runs: of which generation, to which authority.
type Running = (u64, RsaIdentity, JoinHandle<Result<Vec<u8>, RequestError>>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BridgeRelay {
    uploads: Vec<Running>,
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
            ToController::LinkClosed { connection, .. }
            | ToController::LinkFailed { connection, .. } => {
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

    /// Begins to send the descriptor to an authority of bridges.
    pub(super) fn upload(&mut self, upload: Upload) {
        let (generation, authority) = (upload.generation, upload.authority);
        match self.start_upload(upload) {
            Ok(handle) => self
                .bridge_relay
                .uploads
                .push((generation, authority, handle)),
            Err(why) => self.directory(Command::Uploaded {
                generation,
                authority,
                answer: Err(why),
            }),
        }
    }

    fn start_upload(
        &mut self,
        upload: Upload,
    ) -> Result<JoinHandle<Result<Vec<u8>, RequestError>>, String> {
        let first = upload.path.first().ok_or("no path")?.addr;
        if self.bridge_relay.uploads.len() >= MOST_UPLOADS {
            return Err("too many uploads are under way".to_owned());
        }
        let nickname = &upload.nickname;
        tracing::info!("Sending our descriptor to the bridge authority '{nickname}'");
        let request = CircuitRequest {
            path: upload.path,
            route: self.options.network.route(first),
            request: upload.request,
            timeout: UPLOAD_TIMEOUT,
        };
        let mut rng = StdRng::from_rng(&mut self.rng);
        std::thread::Builder::new()
            .name("bridge-upload".into())
            .spawn(move || request.run(&mut rng))
            .map_err(|error| error.to_string())
    }

    /// Collects uploads, once a second.
    pub(super) fn tick_bridge_relay(&mut self) {
        let (done, running): (Vec<Running>, Vec<Running>) =
            std::mem::take(&mut self.bridge_relay.uploads)
                .into_iter()
                .partition(|(_, _, handle)| handle.is_finished());
        self.bridge_relay.uploads = running;
        for (generation, authority, handle) in done {
            let answer = match handle.join() {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err("the upload ended by an error of ours".to_owned()),
            };
            self.directory(Command::Uploaded {
                generation,
                authority,
                answer,
            });
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
        let failed = ToController::LinkFailed {
            connection: ids[2],
            failure: LinkFailure::Other,
        };
        assert_eq!(side.arrived(&failed), None);
        assert!(side.arriving.is_empty());
    }
}
