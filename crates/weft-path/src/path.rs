//! Requests to a [`Selector`](crate::Selector), and its answers.

use std::net::SocketAddr;
use std::sync::Arc;

use tor_netdoc::types::policy::PortPolicy;
use tor_protover::Protocols;
use tor_protover::named::{FLOWCTRL_CC, RELAY_CRYPT_CGO, RELAY_NTORV3};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use crate::nodes::RelayName;
use crate::ticket::GuardTicket;

/// One relay of a path: everything that an extension to it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// SHA-1 of its RSA identity key.
    pub rsa: RsaIdentity,
    /// Its ed25519 identity.
    pub ed25519: Ed25519Identity,
    /// Its onion key.
    pub ntor: [u8; 32],
    /// Its ORPorts, the IPv4 one first.
    pub addrs: Vec<SocketAddr>,
    /// Its name, which other relays may have, too.
    pub nickname: String,
    /// It answers ntor-v3 handshakes (`Relay=4`).
    pub supports_ntor_v3: bool,
    /// It does congestion control (`FlowCtrl=2`).
    pub supports_cc: bool,
    /// It speaks Counter Galois Onion (Relay=6).
    pub supports_cgo: bool,
    /// It states to circuits how scarce its bandwidth is (WeftAbra=1; docs/extensions/abra.md).
    pub supports_abra: bool,
    /// It joins circuits to conflux sets (Conflux=1; proposal 329).
    pub supports_conflux: bool,
    /// It joins circuits to tunnels (WeftMtor=1; docs/extensions/mtor.md).
    pub supports_mtor: bool,
    /// Its weight in the consensus, in kilobytes a second or what the authorities measure in its place.
    pub bandwidth: u64,
    /// It answers BEGIN_DIR with documents (`V2Dir`).
    pub is_dir_cache: bool,
    /// The consensus calls it an exit.
    pub is_exit: bool,
    /// The consensus calls it stable.
    pub is_stable: bool,
    /// The ports that it connects to on IPv4; none where it is a bad exit.
    pub policy_v4: Arc<PortPolicy>,
    /// Summary of its exit policy for IPv6.
    pub policy_v6: Arc<PortPolicy>,
}

impl Hop {
    /// A bridge, from its descriptor: its name, identities, onion key and protocols.
    #[must_use]
    pub fn of_bridge(
        addr: SocketAddr,
        nickname: String,
        (rsa, ed25519): (RsaIdentity, Ed25519Identity),
        ntor: [u8; 32],
        protocols: &Protocols,
    ) -> Self {
        let nothing = Arc::new(PortPolicy::new_reject_all());
        Self {
            rsa,
            ed25519,
            ntor,
            addrs: vec![addr],
            nickname,
            supports_ntor_v3: protocols.supports_named_subver(RELAY_NTORV3),
            supports_cc: protocols.supports_named_subver(FLOWCTRL_CC),
            supports_cgo: protocols.supports_named_subver(RELAY_CRYPT_CGO),
            supports_abra: protocols.supports_subver("WeftAbra", 1),
            supports_conflux: false,
            supports_mtor: false,
            bandwidth: 0,
            is_dir_cache: true,
            is_exit: false,
            is_stable: true,
            policy_v4: nothing.clone(),
            policy_v6: nothing,
        }
    }

    /// Returns true if it can be the exit of a conflux set, which needs congestion control.
    #[must_use]
    pub fn joins_sets(&self) -> bool {
        self.supports_conflux && self.supports_cc && self.supports_ntor_v3
    }

    /// Returns true if it can be the exit of a tunnel, with congestion control or without.
    #[must_use]
    pub fn serves_mtor(&self) -> bool {
        self.supports_mtor
    }

    /// Returns true if the summary of its exit policy allows a stream to `target`. The relay may
    /// refuse the stream all the same: the summary has no addresses.
    #[must_use]
    pub fn allows(&self, target: TargetPort) -> bool {
        let policy = if target.ipv6 {
            &self.policy_v6
        } else {
            &self.policy_v4
        };
        policy.allows_port(target.port)
    }
}

/// A port that an exit should connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetPort {
    /// The destination is an IPv6 address. A name counts as IPv4, unless only IPv6 is wanted.
    pub ipv6: bool,
    /// The port.
    pub port: u16,
}

/// Requirements on the last relay of a path for streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitWanted {
    /// It allows all of these. Empty: an exit that allows some port, which is what RESOLVE needs.
    pub ports: Vec<TargetPort>,
    /// Every relay is stable. Asked for by itself where a port is one of `LongLivedPorts`.
    pub stable: bool,
    /// Exits that have refused what is wanted, by RSA identity.
    pub avoid: Vec<RsaIdentity>,
    /// Exactly this relay (`name.exit`).
    pub exit: Option<RelayName>,
}

/// Kind of set that a leg belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LegKind {
    /// A conflux set (proposal 329).
    #[default]
    Conflux,
    /// A tunnel (docs/extensions/mtor.md, "Setting up").
    Mtor,
}

/// Requirements on the path of a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegWanted {
    /// Kind of set: it decides which relays can be the exit, and the meaning of `guards` and
    /// `middles`.
    pub kind: LegKind,
    /// Its exit; for the second leg and later ones, the relay of the first by its identity.
    pub exit: ExitWanted,
    /// Exactly this guard, that of the first leg (`MultipathEntry common`). `guards` means nothing then.
    pub entry: Option<RsaIdentity>,
    /// The guards of the other legs, by RSA identity, each as often as it has legs. A leg of a conflux set has another guard or
    /// none. A leg of a tunnel has, of the guards that can be used, one with the fewest legs, and of these the one that
    /// comes first: primary guards, then others of the sample in its order.
    pub guards: Vec<RsaIdentity>,
    /// The middle relays of the other legs, by RSA identity, each as often as it has legs. A leg of
    /// a conflux set has another middle relay. A leg of a tunnel has one with the fewest legs.
    pub middles: Vec<RsaIdentity>,
    /// The middle relay's weight in the consensus is below this, in kilobytes a second ([`Hop::bandwidth`]), if any such relay fits:
    /// this comes before `middles`. `Fast` is not asked of such a relay.
    pub middle_below: Option<u32>,
}

/// Use of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Streams to the rest of the Internet: three hops, the last one an exit.
    Exit(ExitWanted),
    /// Streams on a leg of a conflux set, whose exit has conflux and congestion control, or of a
    /// tunnel.
    Leg(LegWanted),
    /// Three hops, the last one any relay: circuits that carry no exit stream (measuring build
    /// times, onion services).
    Internal {
        /// Every relay is stable.
        stable: bool,
    },
    /// One hop to a directory cache among the guards (BEGIN_DIR).
    Directory,
    /// These relays in this order, as a controller asks for. The first is not one of our guards,
    /// and the only rule is that no relay comes twice in a row.
    Exact(Vec<RelayName>),
}

/// A path to build.
#[derive(Debug)]
pub struct Path {
    /// From the guard on; never empty.
    pub hops: Vec<Hop>,
    /// Names the circuit when its outcome is reported. `None`: the first hop is not a guard
    /// (`UseEntryGuards 0`, [`Usage::Exact`]), and the circuit may be used as soon as it is built.
    pub guard: Option<GuardTicket>,
}

/// Why there is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No consensus with microdescriptors yet.
    #[error("the directory is not there yet")]
    NoDirectory,
    /// No exit fits.
    #[error("no exit relay allows what is wanted{0}")]
    NoExit(&'static str),
    /// No guard may be used now: all are down, or the configuration excludes them.
    #[error("no guard can be used now")]
    NoGuard,
    /// The guard that a leg must have cannot be used now: it is down, or no longer one of this
    /// client's guards, or the exit is in its family.
    #[error("the guard of the other legs, ${0}, cannot be used now")]
    EntryUnusable(RsaIdentity),
    /// Nothing fits between guard and exit.
    #[error("no relay fits in the middle")]
    NoMiddle,
    /// A relay that was named is not known.
    #[error("no relay is known as {0}")]
    UnknownRelay(String),
    /// The relays that were named do not make a path.
    #[error("these relays make no path")]
    BadPath,
}
