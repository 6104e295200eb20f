//! Demands of streams on their exit: a port that its policy allows, and stability for long-lived
//! streams.

use std::borrow::Cow;

use crate::microdesc::Microdescs;
use crate::network::{Flags, Network, PortPolicy, Relay};

/// Ports whose streams live long, so that all relays of their circuits must be `Stable`: the default of
/// C tor's `LongLivedPorts`.
pub const LONG_LIVED_PORTS: [u16; 12] = [
    21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300,
];

/// Ports that every relay with flag `Exit` lets through (dir-spec 3.4.2).
const WEB_PORTS: [u16; 2] = [80, 443];

/// The ports that circuits are for, and how often each.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Ports with their weights, which need not add up to anything.
    pub ports: Vec<(u16, f64)>,
}

impl Demand {
    /// All of these ports equally often.
    pub fn equally(ports: impl IntoIterator<Item = u16>) -> Demand {
        Demand {
            ports: ports.into_iter().map(|port| (port, 1.0)).collect(),
        }
    }

    /// Web traffic: ports 80 and 443 (Pahl et al. 2023, Table 1).
    pub fn web() -> Demand {
        Demand::equally(WEB_PORTS)
    }
}

/// Known exit policies of a network's relays.
pub(super) struct Policies<'a> {
    /// By relay. None where it has none, which refuses everything.
    of: Vec<Option<Cow<'a, PortPolicy>>>,
    is_known: bool,
}

impl<'a> Policies<'a> {
    /// From `p` lines, or from microdescriptors where there are some.
    pub(super) fn new(network: &'a Network, microdescs: Option<&'a Microdescs>) -> Policies<'a> {
        let policy = |relay: &'a Relay| {
            let of_microdesc = || {
                let microdesc = microdescs?.get(&relay.microdesc?)?;
                microdesc.policy.map(Cow::Owned)
            };
            relay
                .policy
                .as_ref()
                .map(Cow::Borrowed)
                .or_else(of_microdesc)
        };
        let of: Vec<_> = network.relays.iter().map(policy).collect();
        let is_known = of.iter().any(Option::is_some);
        Policies { of, is_known }
    }

    /// Returns true if it is known which exits allow streams to this port.
    pub(super) fn is_known_for(&self, port: u16) -> bool {
        self.is_known || WEB_PORTS.contains(&port)
    }

    /// Returns true if a relay allows streams to this port. Where no policy is known, flag `Exit`
    /// decides.
    pub(super) fn allow(&self, place: usize, relay: &Relay, port: u16) -> bool {
        if !self.is_known {
            return relay.flags.has(Flags::EXIT);
        }
        let policy = self.of.get(place).and_then(Option::as_deref);
        policy.is_some_and(|policy| policy.allows(port))
    }
}
