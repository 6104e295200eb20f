//! The relays of a consensus, as path selection wants them: in rows, with weights, families and
//! flags worked out once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tor_linkspec::{CircTarget as _, HasAddrs as _, RelayIdRef};
use tor_linkspec::{HasRelayIds as _, RelayIdType};
use tor_netdir::{NetDir, Relay, WeightRole};
use tor_netdoc::types::policy::PortPolicy;
use tor_protover::named::{FLOWCTRL_CC, RELAY_CRYPT_CGO, RELAY_NTORV3};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

use crate::bridges::{Bridge, StatedFamily};
use crate::guard_params::GuardParams;
use crate::nodes::{Recognised, RelayName, same_prefix};
use crate::options::PathOptions;
use crate::path::Hop;
use crate::timeout::CbtParams;

/// Bits of the address that make a subnet (path-spec 2.2, `EnforceDistinctSubnets`).
const SUBNET_V4: u32 = 16;
/// Bits of an IPv6 address that make a subnet.
const SUBNET_V6: u32 = 32;

/// Position in a path, by which a relay's bandwidth is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    Guard,
    Middle,
    Exit,
}

/// A relay with its microdescriptor.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) hop: Hop,
    pub(crate) fast: bool,
    pub(crate) middle_only: bool,
    /// It may be sampled as a guard (guard-spec, "GUARDS").
    pub(crate) possible_guard: bool,
    /// It is a bridge of ours: a first hop, and nothing else.
    pub(crate) bridge: bool,
    /// Weights as guard, middle and exit.
    pub(crate) weights: [u64; 3],
    /// The rows of its family, as both sides declare it; in order.
    family: Box<[usize]>,
    /// Families that are named by a key (proposal 321), by number; in order.
    family_keys: Box<[usize]>,
}

impl Row {
    pub(crate) fn recognised(&self) -> Recognised<'_> {
        Recognised {
            rsa: &self.hop.rsa,
            ed25519: Some(&self.hop.ed25519),
            nickname: &self.hop.nickname,
            addrs: &self.hop.addrs,
        }
    }

    /// A bridge, which the consensus has not.
    fn of_bridge(hop: Hop) -> Self {
        Self {
            hop,
            fast: true,
            middle_only: false,
            possible_guard: false,
            bridge: true,
            weights: [0; 3],
            family: Box::default(),
            family_keys: Box::default(),
        }
    }

    pub(crate) fn weight(&self, position: Position) -> u64 {
        let [guard, middle, exit] = self.weights;
        match position {
            Position::Guard => guard,
            Position::Middle => middle,
            Position::Exit => exit,
        }
    }

    fn in_subnet_of(&self, other: &Row) -> bool {
        let bits = |ip: IpAddr| if ip.is_ipv4() { SUBNET_V4 } else { SUBNET_V6 };
        self.hop.addrs.iter().any(|a| {
            other
                .hop
                .addrs
                .iter()
                .any(|b| same_prefix(a.ip(), b.ip(), bits(a.ip())))
        })
    }
}

/// A relay of a simulation, which has no documents that tor-netdir reads.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Path data of the relay.
    pub hop: Hop,
    /// `Fast`.
    pub is_fast: bool,
    /// `MiddleOnly`.
    pub is_middle_only: bool,
    /// It may be sampled as a guard (guard-spec, "GUARDS").
    pub is_possible_guard: bool,
    /// Its weights as guard, middle and exit; only their ratios count (dir-spec 3.8.3).
    pub weights: [u64; 3],
}

/// The relays of a consensus.
#[derive(Clone, Debug)]
pub struct Relays {
    rows: Vec<Row>,
    by_rsa: HashMap<RsaIdentity, usize>,
    by_ed25519: HashMap<Ed25519Identity, usize>,
    /// Relays that are listed and may be guards, with or without a microdescriptor.
    listed_guards: HashSet<RsaIdentity>,
    /// Bridges of ours, with or without a descriptor.
    bridges: Vec<Bridge>,
    /// Families of the relays, which families of bridges are compared with.
    families: Arc<Families>,
    /// When the consensus ends.
    valid_until: SystemTime,
    /// The consensus parameters of guards.
    pub(crate) guard_params: GuardParams,
    /// The consensus parameters of build times.
    cbt_params: CbtParams,
}

impl Relays {
    /// Reads the relays of a directory.
    #[must_use]
    pub fn new(netdir: &NetDir) -> Self {
        let usable: Vec<Relay<'_>> = netdir.relays().collect();
        let by_rsa: HashMap<RsaIdentity, usize> = usable
            .iter()
            .enumerate()
            .map(|(index, relay)| (relay.rsa_id().into(), index))
            .collect();
        let (use_lists, use_keys) = (
            netdir.params().use_family_lists.get() != 0,
            netdir.params().use_family_ids.get() != 0,
        );
        let mut families = Families::default();
        let rows: Vec<Row> = usable
            .iter()
            .enumerate()
            .map(|(index, relay)| Row {
                family: families.members(index, relay, &usable, &by_rsa, use_lists),
                family_keys: families.keys_of(relay, use_keys),
                ..row(relay, netdir)
            })
            .collect();
        let listed_guards = netdir
            .all_relays()
            .filter(|relay| {
                let details = relay.low_level_details();
                details.is_suitable_as_guard() && details.is_dir_cache()
            })
            .filter_map(|relay| match relay.identity(RelayIdType::Rsa)? {
                RelayIdRef::Rsa(id) => Some(RsaIdentity::from(id)),
                _ => None,
            })
            .filter(|rsa| {
                let row = by_rsa.get(rsa).and_then(|&row| rows.get(row));
                row.is_none_or(|row| !row.middle_only)
            })
            .chain(
                rows.iter()
                    .filter(|row| row.possible_guard)
                    .map(|row| row.hop.rsa),
            )
            .collect();
        let relays = Self::from_rows(
            rows,
            listed_guards,
            netdir.lifetime().valid_until(),
            GuardParams::new(netdir.params()),
            CbtParams::new(netdir.params()),
        );
        Self {
            families: Arc::new(families),
            ..relays
        }
    }

    /// The relays of a simulation, of no families, with the default parameters of a consensus, which ends then.
    #[must_use]
    pub fn of_simulation(
        relays: impl IntoIterator<Item = Listed>,
        valid_until: SystemTime,
    ) -> Self {
        let rows: Vec<Row> = relays
            .into_iter()
            .map(|relay| Row {
                hop: relay.hop,
                fast: relay.is_fast,
                middle_only: relay.is_middle_only,
                possible_guard: relay.is_possible_guard,
                bridge: false,
                weights: relay.weights,
                family: Box::default(),
                family_keys: Box::default(),
            })
            .collect();
        let guards = rows.iter().filter(|row| row.possible_guard);
        let listed_guards = guards.map(|row| row.hop.rsa).collect();
        Self::from_rows(
            rows,
            listed_guards,
            valid_until,
            GuardParams::default(),
            CbtParams::default(),
        )
    }

    /// Relays of a consensus, if there is one, and bridges.
    #[must_use]
    pub fn with_bridges(consensus: Option<&Self>, bridges: &[Bridge]) -> Self {
        let mut relays = match consensus {
            Some(relays) => relays.clone(),
            None => Self::from_rows(
                Vec::new(),
                HashSet::new(),
                SystemTime::UNIX_EPOCH,
                GuardParams::default(),
                CbtParams::default(),
            ),
        };
        for bridge in bridges {
            if let (Some(rsa), Some(hop)) = (bridge.rsa, &bridge.hop) {
                let addrs = vec![bridge.addr];
                let hop = Hop {
                    rsa,
                    addrs,
                    ..hop.clone()
                };
                relays.put_bridge(Row::of_bridge(hop), &bridge.family);
            }
        }
        relays.bridges = bridges.to_vec();
        relays
    }

    fn from_rows(
        rows: Vec<Row>,
        listed_guards: HashSet<RsaIdentity>,
        valid_until: SystemTime,
        guard_params: GuardParams,
        cbt_params: CbtParams,
    ) -> Self {
        let by_rsa = rows
            .iter()
            .enumerate()
            .map(|(i, r)| (r.hop.rsa, i))
            .collect();
        let by_ed25519 = rows
            .iter()
            .enumerate()
            .map(|(i, r)| (r.hop.ed25519, i))
            .collect();
        Self {
            rows,
            by_rsa,
            by_ed25519,
            listed_guards,
            bridges: Vec::new(),
            families: Arc::default(),
            valid_until,
            guard_params,
            cbt_params,
        }
    }

    /// Adds a bridge; one that the consensus lists is from now on a bridge alone.
    fn put_bridge(&mut self, mut bridge: Row, stated: &StatedFamily) {
        let known = self.by_rsa.get(&bridge.hop.rsa);
        if let Some(row) = known.and_then(|index| self.rows.get_mut(*index)) {
            row.hop = bridge.hop;
            row.bridge = true;
            return;
        }
        let families = &self.families;
        let state_it = families.unlisted.get(&bridge.hop.rsa);
        let members: BTreeSet<usize> = (stated.relays.iter())
            .filter_map(|id| self.by_rsa.get(id).copied())
            .filter(|index| state_it.is_some_and(|all| all.contains(index)))
            .collect();
        let keys: BTreeSet<usize> = (stated.keys.iter())
            .filter_map(|key| families.keys.get(key).copied())
            .collect();
        bridge.family = members.into_iter().collect();
        bridge.family_keys = keys.into_iter().collect();
        let index = self.rows.len();
        self.by_rsa.insert(bridge.hop.rsa, index);
        self.by_ed25519.insert(bridge.hop.ed25519, index);
        self.rows.push(bridge);
    }

    /// Bridges of ours, with or without a descriptor.
    pub(crate) fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }

    /// The bridge with this address and identity.
    pub(crate) fn bridge(&self, addr: SocketAddr, rsa: &RsaIdentity) -> Option<&Bridge> {
        let mut all = self.bridges.iter();
        all.find(|bridge| bridge.addr == addr && bridge.rsa.as_ref() == Some(rsa))
    }

    /// Number of relays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no relays.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The consensus parameters of build times.
    #[must_use]
    pub fn cbt_params(&self) -> &CbtParams {
        &self.cbt_params
    }

    /// The share of exits that have conflux (conflux_params.c, `count_exit_with_conflux_support`).
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts of relays")]
    pub fn conflux_share(&self) -> f64 {
        let exits = || self.rows.iter().filter(|row| row.hop.is_exit);
        let with = exits().filter(|row| row.hop.joins_sets()).count();
        match exits().count() {
            0 => 0.0,
            all => with as f64 / all as f64,
        }
    }

    /// The relay of this name. Of several with one nickname, the one of the most
    /// bandwidth.
    #[must_use]
    pub fn find(&self, name: &RelayName) -> Option<Hop> {
        let index = self.index(name)?;
        Some(self.rows.get(index)?.hop.clone())
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(crate) fn index(&self, name: &RelayName) -> Option<usize> {
        match name {
            RelayName::Rsa(id) => self.by_rsa.get(id).copied(),
            RelayName::Ed25519(id) => self.by_ed25519.get(id).copied(),
            RelayName::Nickname(name) => self
                .rows
                .iter()
                .enumerate()
                .filter(|(_, row)| row.hop.nickname.eq_ignore_ascii_case(name))
                .max_by_key(|(_, row)| row.hop.bandwidth)
                .map(|(index, _)| index),
        }
    }

    pub(crate) fn by_rsa(&self, rsa: &RsaIdentity) -> Option<usize> {
        self.by_rsa.get(rsa).copied()
    }

    pub(crate) fn is_listed_guard(&self, rsa: &RsaIdentity) -> bool {
        self.listed_guards.contains(rsa)
    }

    /// Returns true if the consensus is still usable: it expired less than a day ago
    /// (networkstatus.c, `networkstatus_consensus_reasonably_live`).
    pub(crate) fn is_reasonably_live(&self, now: SystemTime) -> bool {
        const DAY: Duration = Duration::from_secs(86_400);
        now <= self
            .valid_until
            .checked_add(DAY)
            .unwrap_or(self.valid_until)
    }

    /// Returns true if two relays must not be in one path: by their families, their subnets, or the
    /// `NodeFamily` lines of torrc.
    pub(crate) fn related_by(
        &self,
        options: &PathOptions,
        a: usize,
        b: usize,
        subnets: bool,
    ) -> bool {
        if self.related(a, b, subnets) {
            return true;
        }
        let (Some(a), Some(b)) = (self.rows.get(a), self.rows.get(b)) else {
            return false;
        };
        options
            .node_families
            .iter()
            .any(|set| set.contains(&a.recognised()) && set.contains(&b.recognised()))
    }

    /// Returns true if two relays must not be in one path (path-spec 2.2): they are one, declare
    /// each other as family, or (where that is enforced) are in one subnet.
    pub(crate) fn related(&self, a: usize, b: usize, subnets: bool) -> bool {
        if a == b {
            return true;
        }
        let (Some(row_a), Some(row_b)) = (self.rows.get(a), self.rows.get(b)) else {
            return false;
        };
        // A bridge's row alone has what is stated by both.
        row_a.family.binary_search(&b).is_ok()
            || row_b.family.binary_search(&a).is_ok()
            || row_a
                .family_keys
                .iter()
                .any(|key| row_b.family_keys.binary_search(key).is_ok())
            || (subnets && row_a.in_subnet_of(row_b))
    }
}

fn row(relay: &Relay<'_>, netdir: &NetDir) -> Row {
    let details = relay.low_level_details();
    let rs = relay.rs();
    let mut addrs: Vec<SocketAddr> = relay.addrs().collect();
    addrs.sort_by_key(|addr| !addr.is_ipv4());
    let weight = |role| {
        netdir
            .relay_weight(relay, role)
            .checked_div(1.into())
            .map_or(0, as_weight)
    };
    // Authorities take the other flags from such a relay (dir-spec 3.4.2); that they did is not relied on.
    let middle_only = rs.is_flagged_middle_only();
    let policy = |policy: Arc<PortPolicy>| {
        if middle_only {
            Arc::new(PortPolicy::new_reject_all())
        } else {
            policy
        }
    };
    Row {
        hop: Hop {
            rsa: relay.rsa_id().into(),
            ed25519: relay.id().into(),
            ntor: *relay.ntor_onion_key().as_bytes(),
            nickname: rs.nickname().to_owned(),
            supports_ntor_v3: relay.protovers().supports_named_subver(RELAY_NTORV3),
            supports_cc: relay.protovers().supports_named_subver(FLOWCTRL_CC),
            supports_cgo: relay.protovers().supports_named_subver(RELAY_CRYPT_CGO),
            supports_abra: relay.protovers().supports_subver("WeftAbra", 1),
            supports_conflux: relay.protovers().supports_subver("Conflux", 1),
            supports_mtor: relay.protovers().supports_subver("WeftMtor", 1),
            bandwidth: bandwidth(rs.weight()),
            is_dir_cache: rs.is_flagged_v2dir(),
            is_exit: rs.is_flagged_exit() && !rs.is_flagged_bad_exit() && !middle_only,
            is_stable: rs.is_flagged_stable(),
            policy_v4: policy(details.ipv4_policy()),
            policy_v6: policy(details.ipv6_policy()),
            addrs,
        },
        fast: rs.is_flagged_fast(),
        middle_only,
        possible_guard: details.is_suitable_as_guard() && rs.is_flagged_v2dir() && !middle_only,
        bridge: false,
        weights: [
            weight(WeightRole::Guard),
            weight(WeightRole::Middle),
            weight(WeightRole::Exit),
        ],
        family: Box::default(),
        family_keys: Box::default(),
    }
}

/// A weight is below 2^53 as long as bandwidths have 32 bits and weights 16, so that nothing is
/// lost on the way through tor-netdir's ratios.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to 2^53, clamped"
)]
fn as_weight(weight: f64) -> u64 {
    weight.clamp(0.0, 9_007_199_254_740_992.0) as u64
}

fn bandwidth(weight: &tor_netdoc::doc::netstatus::RelayWeight) -> u64 {
    use tor_netdoc::doc::netstatus::RelayWeight;
    match weight {
        RelayWeight::Measured(w) | RelayWeight::Unmeasured(w) => u64::from(*w),
        _ => 0,
    }
}

/// Families as the microdescriptors of a consensus state them.
#[derive(Clone, Debug, Default)]
struct Families {
    /// The rows of relays that list one that the consensus has not, as a bridge is.
    unlisted: HashMap<RsaIdentity, Vec<usize>>,
    /// Numbers for family keys.
    keys: HashMap<String, usize>,
}

impl Families {
    /// The relays that this one lists and that list it (dir-spec, `family`).
    fn members(
        &mut self,
        index: usize,
        relay: &Relay<'_>,
        usable: &[Relay<'_>],
        by_rsa: &HashMap<RsaIdentity, usize>,
        use_lists: bool,
    ) -> Box<[usize]> {
        if !use_lists {
            return Box::default();
        }
        let mut members = BTreeSet::new();
        for id in relay.md().family().members() {
            let id: RsaIdentity = id.into();
            match by_rsa.get(&id) {
                None => self.unlisted.entry(id).or_default().push(index),
                Some(&other) => {
                    let lists_it = |other: &Relay<'_>| other.md().family().contains(relay.rsa_id());
                    if other != index && usable.get(other).is_some_and(lists_it) {
                        members.insert(other);
                    }
                }
            }
        }
        members.into_iter().collect()
    }

    fn keys_of(&mut self, relay: &Relay<'_>, use_keys: bool) -> Box<[usize]> {
        if !use_keys {
            return Box::default();
        }
        let numbers: BTreeSet<usize> = relay
            .md()
            .family_ids()
            .iter()
            .map(|id| {
                let next = self.keys.len();
                *self.keys.entry(id.to_string()).or_insert(next)
            })
            .collect();
        numbers.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
