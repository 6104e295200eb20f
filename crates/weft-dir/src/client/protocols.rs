//! What a consensus wants of clients (dir-spec 3.4.1, `required-client-protocols`).

use tor_netdoc::doc::netstatus::{ProtoStatus, ProtocolSupportError};
use tor_protover::Protocols;

/// What Weft's client speaks (tor-spec 9). Onion services and padding machines are not among it.
const SPOKEN: &str =
    "Cons=2 Desc=2 DirCache=2 FlowCtrl=1-2 Link=4-5 LinkAuth=3 Microdesc=2 Relay=2-4";

/// Those of the consensus' protocols that we lack: whether they are required, and which.
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
}
