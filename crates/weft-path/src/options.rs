//! The options of path selection.

use std::sync::Arc;
use std::time::Duration;

use weft_cell::identity::RsaIdentity;

use crate::countries::Countries;
use crate::nodes::NodeSet;
use crate::reachable::Reachable;

/// Options of path selection, as torrc names them. [`Default`] has C tor's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct PathOptions {
    /// `ExitNodes`: only these are exits.
    pub exit_nodes: Option<NodeSet>,
    /// `EntryNodes`: only these are guards.
    pub entry_nodes: Option<NodeSet>,
    /// `MiddleNodes`: only these are in the middle.
    pub middle_nodes: Option<NodeSet>,
    /// `ExcludeNodes`: in no path. Weft never makes an exception; see `StrictNodes` in the manual.
    pub exclude_nodes: NodeSet,
    /// `ExcludeExitNodes`: no exits, in addition to `exclude_nodes`.
    pub exclude_exit_nodes: NodeSet,
    /// `NodeFamily`: each set is a family, whatever its relays declare.
    pub node_families: Vec<NodeSet>,
    /// `EnforceDistinctSubnets`: no two relays of a path in one IPv4 /16 or IPv6 /32.
    pub enforce_distinct_subnets: bool,
    /// `LongLivedPorts`: streams to these want stable relays.
    pub long_lived_ports: Vec<u16>,
    /// `UseEntryGuards`.
    pub use_entry_guards: bool,
    /// `UseBridges`: guards are bridges.
    pub use_bridges: bool,
    /// `NumEntryGuards`: primary guards that circuits go through (`None`: by consensus).
    pub num_entry_guards: Option<usize>,
    /// `NumDirectoryGuards`: primary guards that directory requests go through.
    pub num_directory_guards: Option<usize>,
    /// `NumPrimaryGuards`: how many guards are primary.
    pub num_primary_guards: Option<usize>,
    /// `GuardLifetime`, at least a day.
    pub guard_lifetime: Option<Duration>,
    /// `ReachableORAddresses`, `ClientUseIPv4` and the like: guards have such an address.
    pub reachable: Reachable,
    /// The RSA identity of the relay that this process is, too: never in its own paths.
    pub own_identity: Option<RsaIdentity>,
    /// `PathBias…`, where torrc sets it.
    pub path_bias_set: PathBiasSet,
    /// `PathBias…`, from torrc where it is set there, otherwise from the consensus.
    pub path_bias: PathBiasOptions,
}

impl Default for PathOptions {
    fn default() -> Self {
        Self {
            exit_nodes: None,
            entry_nodes: None,
            middle_nodes: None,
            exclude_nodes: NodeSet::default(),
            exclude_exit_nodes: NodeSet::default(),
            node_families: Vec::new(),
            enforce_distinct_subnets: true,
            long_lived_ports: vec![
                21, 22, 706, 1863, 5050, 5190, 5222, 5223, 6523, 6667, 6697, 8300,
            ],
            use_entry_guards: true,
            use_bridges: false,
            num_entry_guards: None,
            num_directory_guards: None,
            num_primary_guards: None,
            guard_lifetime: None,
            reachable: Reachable::default(),
            own_identity: None,
            path_bias_set: PathBiasSet::default(),
            path_bias: PathBiasOptions::default(),
        }
    }
}

impl PathOptions {
    /// Returns true if some set names a country.
    #[must_use]
    pub fn names_countries(&self) -> bool {
        let sets = [&self.exit_nodes, &self.entry_nodes, &self.middle_nodes];
        let mut all = sets
            .into_iter()
            .flatten()
            .chain([&self.exclude_nodes, &self.exclude_exit_nodes])
            .chain(&self.node_families);
        all.any(|set| !set.countries().is_empty())
    }

    /// Sets the table of the countries of addresses. `exclude_unknown` is `GeoIPExcludeUnknown`: whether
    /// relays of unknown country are excluded; `None`: if some country is.
    pub fn set_countries(&mut self, table: &Arc<Countries>, exclude_unknown: Option<bool>) {
        for set in [&mut self.exclude_nodes, &mut self.exclude_exit_nodes] {
            if table.knows(true) && exclude_unknown.unwrap_or(!set.countries().is_empty()) {
                set.add_unknown();
            }
        }
        let sets = [
            &mut self.exit_nodes,
            &mut self.entry_nodes,
            &mut self.middle_nodes,
        ];
        let all = sets
            .into_iter()
            .flatten()
            .chain([&mut self.exclude_nodes, &mut self.exclude_exit_nodes])
            .chain(&mut self.node_families);
        for set in all {
            set.set_countries(table);
        }
    }
}

/// `PathBias…`: when failures beyond a guard are suspicious (path-spec 7). Rates are from 0 to 1,
/// thresholds count circuits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathBiasOptions {
    /// `PathBiasCircThreshold`: circuits before a guard is judged.
    pub circ_threshold: f64,
    /// `PathBiasNoticeRate`: fewer successes are worth a notice.
    pub notice_rate: f64,
    /// `PathBiasWarnRate`.
    pub warn_rate: f64,
    /// `PathBiasExtremeRate`: fewer make the guard suspect.
    pub extreme_rate: f64,
    /// `PathBiasDropGuards`: suspect guards are not used any more.
    pub drop_guards: bool,
    /// `PathBiasScaleThreshold`: counters are halved from here.
    pub scale_threshold: f64,
    /// `PathBiasUseThreshold`: uses before a guard is judged.
    pub use_threshold: f64,
    /// `PathBiasNoticeUseRate`.
    pub notice_use_rate: f64,
    /// `PathBiasExtremeUseRate`.
    pub extreme_use_rate: f64,
    /// `PathBiasScaleUseThreshold`.
    pub scale_use_threshold: f64,
    /// Factor by which counters are scaled (pb_multfactor and pb_scalefactor; not in torrc).
    pub scale_ratio: f64,
}

/// [`PathBiasOptions`] as torrc sets them; the consensus decides the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathBiasSet {
    /// See [`PathBiasOptions`], as all of these.
    pub circ_threshold: Option<f64>,
    /// `PathBiasNoticeRate`.
    pub notice_rate: Option<f64>,
    /// `PathBiasWarnRate`.
    pub warn_rate: Option<f64>,
    /// `PathBiasExtremeRate`.
    pub extreme_rate: Option<f64>,
    /// `PathBiasDropGuards`.
    pub drop_guards: Option<bool>,
    /// `PathBiasScaleThreshold`.
    pub scale_threshold: Option<f64>,
    /// `PathBiasUseThreshold`.
    pub use_threshold: Option<f64>,
    /// `PathBiasNoticeUseRate`.
    pub notice_use_rate: Option<f64>,
    /// `PathBiasExtremeUseRate`.
    pub extreme_use_rate: Option<f64>,
    /// `PathBiasScaleUseThreshold`.
    pub scale_use_threshold: Option<f64>,
}

impl Default for PathBiasSet {
    /// One is set by default, as in C tor: no guard is dropped, whatever the consensus wants.
    fn default() -> Self {
        Self {
            circ_threshold: None,
            notice_rate: None,
            warn_rate: None,
            extreme_rate: None,
            drop_guards: Some(false),
            scale_threshold: None,
            use_threshold: None,
            notice_use_rate: None,
            extreme_use_rate: None,
            scale_use_threshold: None,
        }
    }
}

impl PathBiasSet {
    /// The options as set, and those of the consensus for the rest.
    #[must_use]
    pub fn over(&self, consensus: &PathBiasOptions) -> PathBiasOptions {
        let Self {
            circ_threshold,
            notice_rate,
            warn_rate,
            extreme_rate,
            drop_guards,
            scale_threshold,
            use_threshold,
            notice_use_rate,
            extreme_use_rate,
            scale_use_threshold,
        } = self;
        PathBiasOptions {
            circ_threshold: circ_threshold.unwrap_or(consensus.circ_threshold),
            notice_rate: notice_rate.unwrap_or(consensus.notice_rate),
            warn_rate: warn_rate.unwrap_or(consensus.warn_rate),
            extreme_rate: extreme_rate.unwrap_or(consensus.extreme_rate),
            drop_guards: drop_guards.unwrap_or(consensus.drop_guards),
            scale_threshold: scale_threshold.unwrap_or(consensus.scale_threshold),
            use_threshold: use_threshold.unwrap_or(consensus.use_threshold),
            notice_use_rate: notice_use_rate.unwrap_or(consensus.notice_use_rate),
            extreme_use_rate: extreme_use_rate.unwrap_or(consensus.extreme_use_rate),
            scale_use_threshold: scale_use_threshold.unwrap_or(consensus.scale_use_threshold),
            scale_ratio: consensus.scale_ratio,
        }
    }
}

impl Default for PathBiasOptions {
    /// C tor's defaults (circpathbias.c).
    fn default() -> Self {
        Self {
            circ_threshold: 150.0,
            notice_rate: 0.70,
            warn_rate: 0.50,
            extreme_rate: 0.30,
            drop_guards: false,
            scale_threshold: 300.0,
            use_threshold: 20.0,
            notice_use_rate: 0.80,
            extreme_use_rate: 0.60,
            scale_use_threshold: 100.0,
            scale_ratio: 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Recognised;

    fn of(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_country_may_be_named_by_any_set() {
        assert!(!PathOptions::default().names_countries());
        let names: [fn(&mut PathOptions); 6] = [
            |options| options.exit_nodes = Some(of("{de}")),
            |options| options.entry_nodes = Some(of("{de}")),
            |options| options.middle_nodes = Some(of("{de}")),
            |options| options.exclude_nodes = of("x,{de}"),
            |options| options.exclude_exit_nodes = of("{de}"),
            |options| options.node_families = vec![of("x,y"), of("x,{de}")],
        ];
        for name in names {
            let mut options = PathOptions::default();
            name(&mut options);
            assert!(options.names_countries(), "{options:?}");
        }
    }

    #[test]
    fn relays_of_unknown_country_are_excluded_with_some_country_or_by_torrc() {
        let v4 = Arc::new(Countries::parse("10.0.0.0,10.255.255.255,DE", "").unwrap());
        let none = Arc::new(Countries::parse("", "2001:db8::,2001:db8::ff,FR").unwrap());
        for (table, excluded, by_torrc, expected) in [
            (&v4, "{fr}", None, true),
            (&v4, "x", None, false),
            (&v4, "x", Some(true), true),
            (&v4, "{fr}", Some(false), false),
            // Without a table every relay would be excluded.
            (&none, "{fr}", None, false),
            (&none, "x", Some(true), false),
        ] {
            let mut options = PathOptions {
                exclude_nodes: of(excluded),
                exclude_exit_nodes: of(excluded),
                ..PathOptions::default()
            };
            options.set_countries(table, by_torrc);
            for (set, addr, is_in) in [
                (&options.exclude_nodes, "192.0.2.1:9001", expected),
                (&options.exclude_exit_nodes, "192.0.2.1:9001", expected),
                (&options.exclude_nodes, "10.1.2.3:9001", false),
            ] {
                let relay = Recognised {
                    rsa: &RsaIdentity([1; 20]),
                    ed25519: None,
                    nickname: "a",
                    addrs: &[addr.parse().unwrap()],
                };
                assert_eq!(
                    set.contains(&relay),
                    is_in,
                    "{addr}, {excluded}, {by_torrc:?}"
                );
            }
        }
    }
}
