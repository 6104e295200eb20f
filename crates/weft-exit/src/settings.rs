//! The settings that the exit's decisions depend on.

use std::sync::Arc;

use weft_policy::ExitPolicy;

/// The settings that follow from torrc, the consensus and the relay's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitSettings {
    /// The effective ExitPolicy, with the relay's own addresses rejected.
    pub policy: ExitPolicy,
    /// `IPv6Exit`.
    pub ipv6: bool,
    /// `ServerDNSAllowNonRFC953Hostnames`.
    pub any_names: bool,
    /// Streams of circuits that come from unknown relays are refused (`RefuseUnknownExits`,
    /// consensus `refuseunknownexits`).
    pub refuse_unknown: bool,
    /// Connections to relays' ORPorts are allowed (consensus `allow-network-reentry`).
    pub reentry: bool,
    /// `ServerDNSDetectHijacking`.
    pub detect_hijacking: bool,
    /// `ServerDNSTestAddresses`.
    pub test_addresses: Vec<Arc<[u8]>>,
}
