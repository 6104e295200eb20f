//! Clients that choose the paths of tunnels: Weft's own path selection in the network of a consensus.
//!
//! Every client is a new one: it draws its guards, then the paths of a tunnel's legs, one after the other as Weft's client
//! does ([`weft_path::Selector`]). A consensus names no families, so that only subnets keep relays apart, and no guard ever
//! fails.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rand::Rng;
use tor_netdoc::types::policy::PortPolicy;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_path::{
    ExitWanted, Hop, LegKind, LegWanted, Listed, PathError, PathOptions, RelayName, Relays,
    Selector, TargetPort, Usage,
};

use crate::network::{Flags, Network, Position, Relay};

/// A tunnel has no more circuits (`MultipathCircuits`).
pub const MOST_CIRCUITS: u32 = 16;
/// Middle relays of tunnels weigh less, kilobytes a second (`MultipathMiddleBandwidth`).
const SLOW: u32 = 100;
/// Where a bulk download goes.
const PORT: u16 = 443;
/// Exits that a client tries before it gives up: of some no guard may be in a path with it.
const TRIES: u32 = 16;
/// When this takes place: no clock is read, and nothing depends on it.
const NOW: SystemTime = SystemTime::UNIX_EPOCH;
/// Factor that makes whole numbers of weights (the scale of `bandwidth-weights`).
const SCALE: f64 = 10_000.0;

/// Guards of a tunnel's legs (`MultipathEntry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Different ones.
    Distinct,
    /// That of the first.
    Common,
}

/// The ends of a tunnel, by place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Of each leg, in the order in which they are built. A tunnel of fewer legs has the first of them.
    pub guards: Vec<u32>,
    /// Of all.
    pub exit: u32,
}

/// A network as clients see it.
#[derive(Clone, Debug)]
pub struct Clients {
    relays: Arc<Relays>,
    options: PathOptions,
    guards: Vec<u64>,
    exits: Vec<u64>,
}

impl Clients {
    /// Reads a network. All its exits join tunnels.
    pub fn new(network: &Network) -> Clients {
        let mut policies = Policies::new(network);
        let relays = network.relays.iter().zip(0u32..);
        let listed: Vec<Listed> = relays
            .filter(|(relay, _)| relay.flags.has(Flags::RUNNING.with(Flags::VALID)))
            .map(|(relay, place)| listed(network, relay, place, policies.of(relay)))
            .collect();
        let mut clients = Clients {
            relays: Arc::new(Relays::of_simulation([], NOW)),
            options: PathOptions::default(),
            guards: vec![0; network.relays.len()],
            exits: vec![0; network.relays.len()],
        };
        for one in &listed {
            let [guard, _, exit] = one.weights;
            let place = place_of(&one.hop) as usize;
            let may_exit = one.is_fast && one.hop.policy_v4.allows_port(PORT);
            if let (true, Some(weight)) = (one.is_possible_guard, clients.guards.get_mut(place)) {
                *weight = guard;
            }
            if let (true, Some(weight)) = (may_exit, clients.exits.get_mut(place)) {
                *weight = exit;
            }
        }
        let live_until = NOW + Duration::from_secs(3600);
        clients.relays = Arc::new(Relays::of_simulation(listed, live_until));
        clients
    }

    /// The weights with which guards are drawn, by place in the network; 0 of those that are never drawn.
    pub fn guard_weights(&self) -> &[u64] {
        &self.guards
    }

    /// The weights with which exits are drawn, by place in the network; 0 for relays that are never
    /// drawn.
    pub fn exit_weights(&self) -> &[u64] {
        &self.exits
    }

    /// A client that nobody has seen before: it draws its guards.
    pub fn client(&self, rng: &mut impl Rng) -> Client {
        let mut selector = Selector::new(self.options.clone(), [], NOW);
        selector.set_relays(self.relays.clone(), NOW, rng);
        Client(selector)
    }
}

/// One client with its guards.
#[derive(Debug)]
pub struct Client(Selector);

impl Client {
    /// Chooses the paths of a tunnel with this number of circuits, at most [`MOST_CIRCUITS`].
    ///
    /// # Errors
    ///
    /// [`PathError`]: this network has no path for one of its legs.
    pub fn tunnel(
        &mut self,
        circuits: u32,
        entry: Entry,
        rng: &mut impl Rng,
    ) -> Result<Tunnel, PathError> {
        let port = TargetPort {
            ipv6: false,
            port: PORT,
        };
        let mut wanted = LegWanted {
            kind: LegKind::Mtor,
            exit: ExitWanted {
                ports: vec![port],
                ..ExitWanted::default()
            },
            middle_below: Some(SLOW),
            ..LegWanted::default()
        };
        let mut tunnel = Tunnel {
            guards: Vec::with_capacity(circuits.min(MOST_CIRCUITS) as usize),
            exit: 0,
        };
        let mut tries = 1;
        while tunnel.guards.len() < circuits.min(MOST_CIRCUITS) as usize {
            let path = self.0.path(&Usage::Leg(wanted.clone()), NOW, rng);
            let is_exits_fault = matches!(path, Err(PathError::NoGuard | PathError::NoMiddle));
            if is_exits_fault && tunnel.guards.is_empty() && tries < TRIES {
                tries += 1;
                continue;
            }
            let path = path?;
            let [guard, middle, exit] = path.hops.as_slice() else {
                return Err(PathError::BadPath);
            };
            tunnel.guards.push(place_of(guard));
            tunnel.exit = place_of(exit);
            wanted.exit.exit = Some(RelayName::Rsa(exit.rsa));
            wanted.middles.push(middle.rsa);
            match entry {
                Entry::Distinct => wanted.guards.push(guard.rsa),
                Entry::Common => wanted.entry = Some(guard.rsa),
            }
        }
        Ok(tunnel)
    }
}

/// Identities are places: those of a document might be there twice.
fn rsa(place: u32) -> RsaIdentity {
    let mut rsa = [0; 20];
    let [a, b, c, d] = place.to_be_bytes();
    rsa[..4].copy_from_slice(&[a, b, c, d]);
    RsaIdentity(rsa)
}

fn place_of(hop: &Hop) -> u32 {
    let [a, b, c, d, ..] = hop.rsa.0;
    u32::from_be_bytes([a, b, c, d])
}

fn listed(network: &Network, relay: &Relay, place: u32, policy_v4: Arc<PortPolicy>) -> Listed {
    let has = |flag: Flags| relay.flags.has(flag);
    let bandwidth = relay.bandwidth.min(u64::from(u32::MAX));
    let weight = |position: Position| {
        let factor = network.weights.of(position, relay.flags);
        (bandwidth as f64 * factor * SCALE).round() as u64
    };
    let ipv4 = SocketAddr::from((relay.address, relay.or_port));
    let ipv6 = (relay.ipv6).map(|address| SocketAddr::from((address, relay.or_port)));
    let mut ed25519 = [0; 32];
    ed25519[..4].copy_from_slice(&place.to_be_bytes());
    Listed {
        hop: Hop {
            rsa: rsa(place),
            ed25519: Ed25519Identity(ed25519),
            ntor: [0; 32],
            addrs: [ipv4].into_iter().chain(ipv6).collect(),
            nickname: String::new(),
            supports_ntor_v3: true,
            supports_cc: true,
            supports_cgo: false,
            supports_abra: false,
            supports_conflux: false,
            supports_mtor: true,
            bandwidth,
            is_dir_cache: has(Flags::V2DIR),
            is_exit: has(Flags::EXIT) && !has(Flags::BAD_EXIT),
            is_stable: has(Flags::STABLE),
            policy_v4,
            policy_v6: Arc::new(PortPolicy::new_reject_all()),
        },
        is_fast: has(Flags::FAST),
        is_middle_only: has(Flags::MIDDLE_ONLY),
        // Rules of tor-netdir and C tor (`node_is_possible_guard`).
        is_possible_guard: has(Flags::GUARD
            .with(Flags::FAST)
            .with(Flags::STABLE)
            .with(Flags::V2DIR)),
        weights: [
            weight(Position::Guard),
            weight(Position::Middle),
            weight(Position::Exit),
        ],
    }
}

/// The policies of a network, each read once.
struct Policies {
    known: HashMap<String, Arc<PortPolicy>>,
    none: Arc<PortPolicy>,
    /// That of all exits, where the document has no policies (dir-spec 3.4.2).
    of_exits: Option<Arc<PortPolicy>>,
}

impl Policies {
    fn new(network: &Network) -> Policies {
        let is_known = network.relays.iter().any(|relay| relay.policy.is_some());
        let none = Arc::new(PortPolicy::new_reject_all());
        let web = "accept 80,443"
            .parse()
            .map_or_else(|_| none.clone(), Arc::new);
        Policies {
            known: HashMap::new(),
            none,
            of_exits: (!is_known).then_some(web),
        }
    }

    fn of(&mut self, relay: &Relay) -> Arc<PortPolicy> {
        // C tor and tor-netdir take these for no exits, whatever they allow.
        if relay.flags.has(Flags::BAD_EXIT) || relay.flags.has(Flags::MIDDLE_ONLY) {
            return self.none.clone();
        }
        if let Some(web) = &self.of_exits {
            let policy = if relay.flags.has(Flags::EXIT) {
                web
            } else {
                &self.none
            };
            return policy.clone();
        }
        let Some(text) = relay.policy.as_ref().map(ToString::to_string) else {
            return self.none.clone();
        };
        let none = &self.none;
        let read = |text: &String| text.parse().map_or_else(|_| none.clone(), Arc::new);
        let policy = self.known.entry(text).or_insert_with_key(read);
        policy.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::generator;
    use crate::synth;

    #[test]
    fn a_clients_tunnels_are_those_of_its_guards() {
        let mut network = synth::network(800, 3).expect("a network");
        // Synthetic IPv6 addresses are all of one /32, so that every third guard is related to such an exit.
        for relay in &mut network.relays {
            relay.ipv6 = None;
        }
        let clients = Clients::new(&network);
        let mut rng = generator(1, 2, 3);
        let mut exits = BTreeSet::new();
        for _ in 0..50 {
            let mut client = clients.client(&mut rng);
            let wide = client.tunnel(16, Entry::Distinct, &mut rng).expect("paths");
            let narrow = client.tunnel(3, Entry::Distinct, &mut rng).expect("paths");
            let common = client.tunnel(5, Entry::Common, &mut rng).expect("paths");
            let guards: BTreeSet<u32> = wide.guards.iter().copied().collect();
            // Of twenty guards an exit is related to few: then legs share others.
            assert!(wide.guards.len() == 16 && guards.len() > 12, "{wide:?}");
            // All are of its sample of twenty.
            let all: BTreeSet<u32> = (guards.iter().chain(&narrow.guards).chain(&common.guards))
                .copied()
                .collect();
            assert!(all.len() <= 20, "{all:?}");
            let first: BTreeSet<u32> = common.guards.iter().copied().collect();
            assert_eq!((common.guards.len(), first.len()), (5, 1));
            for tunnel in [wide, narrow, common] {
                let weight = |of: &[u64], place: u32| of[place as usize];
                assert!(weight(clients.exit_weights(), tunnel.exit) > 0);
                let mut guards = tunnel.guards.iter();
                assert!(guards.all(|guard| weight(clients.guard_weights(), *guard) > 0));
                assert!(!tunnel.guards.contains(&tunnel.exit));
                exits.insert(tunnel.exit);
            }
        }
        assert!(exits.len() > 40, "{exits:?}");
    }

    #[test]
    fn a_network_without_exits_has_no_tunnels() {
        let mut network = synth::network(50, 3).expect("a network");
        for relay in &mut network.relays {
            relay.policy = None;
            relay.flags = Flags::RUNNING.with(Flags::VALID).with(Flags::FAST);
        }
        let clients = Clients::new(&network);
        let mut rng = generator(1, 2, 3);
        let none = clients
            .client(&mut rng)
            .tunnel(1, Entry::Distinct, &mut rng);
        assert!(matches!(none, Err(PathError::NoExit(_))), "{none:?}");
    }
}
