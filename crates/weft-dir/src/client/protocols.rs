//! Subprotocols that a consensus requires of clients (dir-spec 3.4.1, `required-client-protocols`).

use tor_netdoc::doc::netstatus::{ProtoStatus, ProtocolSupportError};
use tor_protover::Protocols;

/// Subprotocols of Weft's client (tor-spec 9). Onion services and padding machines are not among
/// them.
const SPOKEN: &str =
    "Conflux=1 Cons=2 Desc=2-4 DirCache=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2-3 Relay=2-6";

/// The consensus' protocols that we lack: true if they are required, and their names.
pub(super) fn missing(wanted: &ProtoStatus) -> Option<(bool, String)> {
    // The text is a constant; see the test.
    let spoken: Protocols = SPOKEN.parse().unwrap_or_default();
    match wanted.check_protocols(&spoken) {
        Err(ProtocolSupportError::MissingRequired(protocols)) => {
            Some((true, protocols.to_string()))
        }
        Err(ProtocolSupportError::MissingRecommended(protocols)) => {
            Some((false, protocols.to_string()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoken_can_be_read() {
        let spoken: Protocols = SPOKEN.parse().unwrap();
        assert_eq!(spoken.to_string(), SPOKEN);
    }

    /// The client implements paths by families' keys, documents without TAP keys, CGO, and conflux
    /// sets.
    #[test]
    fn the_client_speaks_what_c_tor_0_4_9_has_for_clients_but_onion_services() {
        let spoken: Protocols = SPOKEN.parse().unwrap();
        let wanted = "Conflux=1 Cons=2 Desc=2-4 FlowCtrl=1-2 Link=4-5 Microdesc=2-3 Relay=2-6";
        let missing = wanted.parse::<Protocols>().unwrap().difference(&spoken);
        assert!(missing.is_empty(), "{missing}");
    }
}
