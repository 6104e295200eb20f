//! The consensus parameters that a relay follows, typed, defaulted and clamped.
//!
//! Names, defaults and ranges are C tor 0.4.9's (param-spec lists most of them): a value outside
//! its range is moved to the nearest end of it, and a parameter that the consensus does not carry
//! has its default, exactly as `networkstatus_get_param` does. [`Params::default`] is what a relay
//! follows before it has a consensus.

use std::time::Duration;

use tor_netdoc::doc::netstatus::NetParams;

/// Largest value of a consensus parameter, and the upper bound of those without one of their own.
const MAX: i32 = i32::MAX;

/// Declares [`Params`]: one field per consensus parameter, with its default and range.
macro_rules! params {
    ($( $(#[doc = $doc:literal])* $field:ident : $ty:ty = $name:literal, $default:expr, $min:expr, $max:expr, $convert:expr; )*) => {
        /// The network parameters that a relay follows.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Params {
            $(
                $(#[doc = $doc])*
                #[doc = concat!("\n\n`", $name, "` (default ", stringify!($default), ", from ", stringify!($min), " to ", stringify!($max), ").")]
                pub $field: $ty,
            )*
        }

        impl Params {
            /// Reads every parameter through `get`, which answers with the consensus's raw value.
            fn read(get: impl Fn(&str) -> Option<i32>) -> Self {
                let mut params = Params {
                    $( $field: ($convert)(get($name).unwrap_or($default).clamp($min, $max)), )*
                };
                params.relate(&get);
                params
            }

            /// Names of the parameters that are followed, as the consensus spells them.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}

/// A parameter that is a switch.
fn flag(value: i32) -> bool {
    value != 0
}

/// A parameter that counts something; ranges make it non-negative.
fn count(value: i32) -> u32 {
    value.unsigned_abs()
}

/// A parameter in milliseconds.
fn millis(value: i32) -> Duration {
    Duration::from_millis(value.unsigned_abs().into())
}

/// A parameter in seconds.
fn seconds(value: i32) -> Duration {
    Duration::from_secs(value.unsigned_abs().into())
}

/// A parameter in hours.
fn hours(value: i32) -> Duration {
    Duration::from_secs(u64::from(value.unsigned_abs()) * 3600)
}

/// A parameter in days.
fn days(value: i32) -> Duration {
    Duration::from_secs(u64::from(value.unsigned_abs()) * 86_400)
}

params! {
    /// Bytes per second of each connection whose peer is no known relay; 0: no such limit (C tor
    /// then takes BandwidthRate).
    per_conn_bw_rate: u32 = "perconnbwrate", 0, 0, MAX, count;
    /// Bytes at once of such a connection; 0: no such limit.
    per_conn_bw_burst: u32 = "perconnbwburst", 0, 0, MAX, count;
    /// Initial package window of a circuit, in cells.
    circwindow: u32 = "circwindow", 1000, 100, 1000, count;
    /// Lowest SENDME version that may be sent.
    sendme_emit_min_version: u32 = "sendme_emit_min_version", 1, 0, 255, count;
    /// Lowest SENDME version that is accepted.
    sendme_accept_min_version: u32 = "sendme_accept_min_version", 0, 0, 255, count;
    /// EXTEND cells may arrive outside RELAY_EARLY.
    allow_nonearly_extend: bool = "AllowNonearlyExtend", 0, 0, 1, flag;
    /// Our EXTEND2 cells name the ed25519 identity.
    extend_by_ed25519_id: bool = "ExtendByEd25519ID", 0, 0, 1, flag;
    /// An exit may connect to addresses of relays.
    allow_network_reentry: bool = "allow-network-reentry", 0, 0, 1, flag;
    /// An exit refuses circuits from hops that are not known relays.
    refuse_unknown_exits: bool = "refuseunknownexits", 1, 0, 1, flag;
    /// Time that an exit waits for a name server before it asks again.
    exit_dns_timeout: Duration = "exit_dns_timeout", 1000, 1, 120_000, millis;
    /// Attempts of an exit to resolve a name.
    exit_dns_num_attempts: u32 = "exit_dns_num_attempts", 2, 0, 255, count;

    /// Half-life of a circuit's priority.
    circuit_priority_halflife: Duration = "CircuitPriorityHalflifeMsec", 30_000, 1, MAX, millis;
    /// Interval between runs of the KIST scheduler.
    kist_sched_run_interval: Duration = "KISTSchedRunInterval", 2, 2, 100, millis;
    /// Interval between runs of a node that is no relay.
    kist_sched_run_interval_client: Duration = "KISTSchedRunIntervalClient", 2, 2, 100, millis;
    /// Most cells that one circuit may queue towards its origin before it is closed.
    circ_max_cell_queue_size: u32 = "circ_max_cell_queue_size", 2500, 50, MAX, count;
    /// Most cells that one circuit may queue forward (default:
    /// [`circ_max_cell_queue_size`](Params::circ_max_cell_queue_size)).
    circ_max_cell_queue_size_out: u32 = "circ_max_cell_queue_size_out", 2500, 50, MAX, count;

    /// Onion keys live this long before they are rotated.
    onion_key_lifetime: Duration = "onion-key-rotation-days", 28, 1, 90, days;
    /// Time for which rotated onion keys are still accepted.
    onion_key_grace_period: Duration = "onion-key-grace-period-days", 7, 1, 90, days;
    /// Bytes that a descriptor of an onion service must be shorter than.
    hs_v3_max_descriptor_size: u32 = "HSV3MaxDescriptorSize", 50_000, 1, MAX, count;
    /// A descriptor carries a TAP onion key that is never used. If the consensus has no such
    /// parameter, it does if the consensus is of a method below [`METHOD_WITHOUT_TAP`]; without a
    /// consensus it does.
    publish_dummy_tap_key: bool = "publish-dummy-tap-key", 1, 0, 1, flag;
    /// A descriptor carries the `family` line.
    publish_family_list: bool = "publish-family-list", 1, 0, 1, flag;
    /// Relays publish without having found their IPv4 ORPort reachable.
    assume_reachable: bool = "assume-reachable", 0, 0, 1, flag;
    /// Relays publish without having found their IPv6 ORPort reachable.
    assume_reachable_ipv6: bool = "assume-reachable-ipv6", 0, 0, 1, flag;
    /// Largest age of a consensus from which a cache makes a diff.
    max_consensus_age_to_cache_for_diff: Duration = "max-consensus-age-to-cache-for-diff", 8192, 0, 8192, hours;
    /// Largest age of a consensus from which a diff is requested.
    try_diff_for_consensus_newer_than: Duration = "try-diff-for-consensus-newer-than", 72, 0, 8192, hours;
    /// Longest time an onionskin may wait for its answer.
    max_onion_queue_delay: Duration = "MaxOnionQueueDelay", 1750, 1, MAX, millis;
    /// Longest wait of an onionskin for a worker before it is refused.
    onion_queue_wait_cutoff: Duration = "onion_queue_wait_cutoff", 5, 0, MAX, seconds;
    /// Share of refused onionskins from which a descriptor states overload, in thousandths of a percent.
    overload_onionskin_ntor_scale_percent: u32 = "overload_onionskin_ntor_scale_percent", 1000, 0, 100_000, count;
    /// Period over which that share is counted.
    overload_onionskin_ntor_period_secs: Duration = "overload_onionskin_ntor_period_secs", 21_600, 0, MAX, seconds;


    /// Circuit creation of client addresses is limited.
    dos_circuit_creation_enabled: bool = "DoSCircuitCreationEnabled", 0, 0, 1, flag;
    /// Concurrent connections of an address from which its circuits are counted.
    dos_circuit_creation_min_connections: u32 = "DoSCircuitCreationMinConnections", 3, 1, MAX, count;
    /// Circuits per second and address.
    dos_circuit_creation_rate: u32 = "DoSCircuitCreationRate", 3, 1, MAX, count;
    /// Burst of circuits per address.
    dos_circuit_creation_burst: u32 = "DoSCircuitCreationBurst", 90, 1, MAX, count;
    /// Defense against circuits past the limit: 1 nothing, 2 refuse.
    dos_circuit_creation_defense_type: u32 = "DoSCircuitCreationDefenseType", 2, 1, 2, count;
    /// Time for which an address that exceeded the limit is refused.
    dos_circuit_creation_defense_time: Duration = "DoSCircuitCreationDefenseTimePeriod", 3600, 0, MAX, seconds;
    /// Circuits whose queues filled up before an address is marked.
    dos_num_circ_max_outq: u32 = "dos_num_circ_max_outq", 3, 0, MAX, count;
    /// Connections of client addresses are limited.
    dos_connection_enabled: bool = "DoSConnectionEnabled", 0, 0, 1, flag;
    /// Concurrent connections allowed per address.
    dos_connection_max_concurrent: u32 = "DoSConnectionMaxConcurrentCount", 100, 1, MAX, count;
    /// Defense against connections past the limit: 1 nothing, 2 close.
    dos_connection_defense_type: u32 = "DoSConnectionDefenseType", 2, 1, 2, count;
    /// New connections per second and address.
    dos_connection_connect_rate: u32 = "DoSConnectionConnectRate", 20, 1, MAX, count;
    /// Burst of new connections per address.
    dos_connection_connect_burst: u32 = "DoSConnectionConnectBurst", 40, 1, MAX, count;
    /// Time for which an address that connected too fast is refused.
    dos_connection_connect_defense_time: Duration = "DoSConnectionConnectDefenseTimePeriod", 86_400, 10, MAX, seconds;
    /// Stream creation per circuit is limited (exits).
    dos_stream_creation_enabled: bool = "DoSStreamCreationEnabled", 0, 0, 1, flag;
    /// Streams per second and circuit.
    dos_stream_creation_rate: u32 = "DoSStreamCreationRate", 100, 1, MAX, count;
    /// Burst of streams per circuit.
    dos_stream_creation_burst: u32 = "DoSStreamCreationBurst", 300, 1, MAX, count;
    /// Defense against streams past the limit: 1 nothing, 2 refuse, 3 close the circuit.
    dos_stream_creation_defense_type: u32 = "DoSStreamCreationDefenseType", 2, 1, 3, count;
    /// ESTABLISH_RENDEZVOUS from single-hop clients is refused.
    dos_refuse_single_hop_client_rendezvous: bool = "DoSRefuseSingleHopClientRendezvous", 0, 0, 1, flag;
    /// Introductions are limited for an onion service that does not set limits itself.
    intro_dos_defense: bool = "HiddenServiceEnableIntroDoSDefense", 0, 0, 1, flag;
    /// Introductions per second and service.
    intro_dos_rate: u32 = "HiddenServiceEnableIntroDoSRatePerSec", 25, 0, MAX, count;
    /// Burst of introductions per service.
    intro_dos_burst: u32 = "HiddenServiceEnableIntroDoSBurstPerSec", 200, 0, MAX, count;

    /// Padding on circuits is switched off.
    circpad_padding_disabled: bool = "circpad_padding_disabled", 0, 0, 1, flag;
    /// Padding cells of circuits before their part of all cells is limited.
    circpad_global_allowed_cells: u32 = "circpad_global_allowed_cells", 0, 0, 65_534, count;
    /// The most that padding cells of circuits are of all cells, in percent; 0: any part.
    circpad_global_max_padding_pct: u32 = "circpad_global_max_padding_pct", 0, 0, 100, count;
    /// Cells in a circuit's queue past which it is not padded.
    circpad_max_circ_queued_cells: u32 = "circpad_max_circ_queued_cells", 1000, 0, 50_000, count;

    /// Shortest idle time before netflow padding.
    nf_ito_low: Duration = "nf_ito_low", 1500, 0, 60_000, millis;
    /// Longest idle time before netflow padding (at least [`nf_ito_low`](Params::nf_ito_low)).
    nf_ito_high: Duration = "nf_ito_high", 9500, 0, 60_000, millis;
    /// Shortest idle time before reduced netflow padding.
    nf_ito_low_reduced: Duration = "nf_ito_low_reduced", 9000, 0, 60_000, millis;
    /// Longest idle time before reduced netflow padding.
    nf_ito_high_reduced: Duration = "nf_ito_high_reduced", 14_000, 0, 60_000, millis;
    /// Time for which an unused connection between relays is kept.
    nf_conntimeout_relays: Duration = "nf_conntimeout_relays", 3600, 60, 604_800, seconds;
    /// Time for which an unused connection of a client is kept.
    nf_conntimeout_clients: Duration = "nf_conntimeout_clients", 1800, 60, 86_400, seconds;
    /// Connections are padded before they have carried a stream.
    nf_pad_before_usage: bool = "nf_pad_before_usage", 1, 0, 1, flag;
    /// Connections between relays are padded.
    nf_pad_relays: bool = "nf_pad_relays", 0, 0, 1, flag;


    /// Congestion control: 0 fixed windows, 2 Vegas; other values count as 2.
    cc_alg: u32 = "cc_alg", 2, 0, 3, count;
    /// Cells acknowledged by one SENDME.
    cc_sendme_inc: u32 = "cc_sendme_inc", 31, 1, 254, count;
    /// Initial congestion window, in cells.
    cc_cwnd_init: u32 = "cc_cwnd_init", 124, 31, 10_000, count;
    /// Smallest congestion window, in cells.
    cc_cwnd_min: u32 = "cc_cwnd_min", 124, 31, 1000, count;
    /// Largest congestion window, in cells.
    cc_cwnd_max: u32 = "cc_cwnd_max", MAX, 500, MAX, count;
    /// Growth of the congestion window per update, in cells.
    cc_cwnd_inc: u32 = "cc_cwnd_inc", 1, 1, 1000, count;
    /// Growth of the congestion window in slow start, in percent.
    cc_cwnd_inc_pct_ss: u32 = "cc_cwnd_inc_pct_ss", 100, 1, 500, count;
    /// Updates of the congestion window per window.
    cc_cwnd_inc_rate: u32 = "cc_cwnd_inc_rate", 31, 1, 250, count;
    /// Gap, in SENDMEs, within which the window counts as full.
    cc_cwnd_full_gap: u32 = "cc_cwnd_full_gap", 4, 0, 32_767, count;
    /// Percentage of the window that must have been used for it to count as full.
    cc_cwnd_full_minpct: u32 = "cc_cwnd_full_minpct", 25, 0, 100, count;
    /// Fullness of the congestion window is judged once per window (else per update).
    cc_cwnd_full_per_cwnd: bool = "cc_cwnd_full_per_cwnd", 1, 0, 1, flag;
    /// Smoothing of RTT and BDP, in percent of the window.
    cc_ewma_cwnd_pct: u32 = "cc_ewma_cwnd_pct", 50, 1, 255, count;
    /// Most samples in that smoothing.
    cc_ewma_max: u32 = "cc_ewma_max", 10, 2, MAX, count;
    /// Most samples in that smoothing during slow start.
    cc_ewma_ss: u32 = "cc_ewma_ss", 2, 2, MAX, count;
    /// Where between minimum and current RTT a reset lands, in percent.
    cc_rtt_reset_pct: u32 = "cc_rtt_reset_pct", 100, 0, 100, count;
    /// Largest window that slow start may reach, in cells.
    cc_ss_max: u32 = "cc_ss_max", 5000, 500, MAX, count;
    /// Vegas alpha of circuits through an exit.
    cc_vegas_alpha_exit: u32 = "cc_vegas_alpha_exit", 186, 0, 1000, count;
    /// Vegas beta of circuits through an exit.
    cc_vegas_beta_exit: u32 = "cc_vegas_beta_exit", 248, 0, 1000, count;
    /// Vegas gamma of circuits through an exit.
    cc_vegas_gamma_exit: u32 = "cc_vegas_gamma_exit", 186, 0, 1000, count;
    /// Vegas delta of circuits through an exit.
    cc_vegas_delta_exit: u32 = "cc_vegas_delta_exit", 310, 0, MAX, count;
    /// Slow-start cap of circuits through an exit.
    cc_sscap_exit: u32 = "cc_sscap_exit", 600, 100, MAX, count;
    /// Vegas alpha of circuits to onion services.
    cc_vegas_alpha_onion: u32 = "cc_vegas_alpha_onion", 186, 0, 1000, count;
    /// Vegas beta of circuits to onion services.
    cc_vegas_beta_onion: u32 = "cc_vegas_beta_onion", 372, 0, 1000, count;
    /// Vegas gamma of circuits to onion services.
    cc_vegas_gamma_onion: u32 = "cc_vegas_gamma_onion", 248, 0, 1000, count;
    /// Vegas delta of circuits to onion services.
    cc_vegas_delta_onion: u32 = "cc_vegas_delta_onion", 434, 0, MAX, count;
    /// Slow-start cap of circuits to onion services.
    cc_sscap_onion: u32 = "cc_sscap_onion", 475, 100, MAX, count;
    /// Vegas alpha of a bandwidth scanner's circuits.
    cc_vegas_alpha_sbws: u32 = "cc_vegas_alpha_sbws", 93, 0, 1000, count;
    /// Vegas beta of a bandwidth scanner's circuits.
    cc_vegas_beta_sbws: u32 = "cc_vegas_beta_sbws", 155, 0, 1000, count;
    /// Vegas gamma of a bandwidth scanner's circuits.
    cc_vegas_gamma_sbws: u32 = "cc_vegas_gamma_sbws", 124, 0, 1000, count;
    /// Vegas delta of a bandwidth scanner's circuits.
    cc_vegas_delta_sbws: u32 = "cc_vegas_delta_sbws", 248, 0, MAX, count;
    /// Slow-start cap of a bandwidth scanner's circuits.
    cc_sscap_sbws: u32 = "cc_sscap_sbws", 400, 100, MAX, count;
    /// Bytes, in cells' worth, buffered at an exit before XOFF.
    cc_xoff_exit: u32 = "cc_xoff_exit", 500, 1, 10_000, count;
    /// Bytes, in cells' worth, buffered at a client before XOFF.
    cc_xoff_client: u32 = "cc_xoff_client", 500, 1, 10_000, count;
    /// Bytes, in cells' worth, between XON rate updates.
    cc_xon_rate: u32 = "cc_xon_rate", 500, 1, 5000, count;
    /// Change of the drain rate that is worth an XON, in percent.
    cc_xon_change_pct: u32 = "cc_xon_change_pct", 25, 1, 99, count;
    /// Samples in the smoothing of the drain rate.
    cc_xon_ewma_cnt: u32 = "cc_xon_ewma_cnt", 2, 2, 100, count;
    /// Streams use conflux sets, unless torrc sets otherwise.
    cfx_enabled: bool = "cfx_enabled", 1, 0, 1, flag;
    /// The share of exits with conflux, in 1/10000, below which a client builds one set ahead.
    cfx_low_exit_threshold: u32 = "cfx_low_exit_threshold", 6000, 0, 10_000, count;
    /// Sets of a client that may carry streams at once.
    cfx_max_linked_set: u32 = "cfx_max_linked_set", 10, 0, 255, count;
    /// Sets that a client keeps ready.
    cfx_max_prebuilt_set: u32 = "cfx_max_prebuilt_set", 3, 0, 255, count;
    /// Legs of a set that a client may have launched in vain.
    cfx_max_unlinked_leg_retry: u32 = "cfx_max_unlinked_leg_retry", 3, 0, 255, count;
    /// Legs of a client's set.
    cfx_num_legs_set: u32 = "cfx_num_legs_set", 2, 0, 255, count;
    /// Legs of a set that an exit serves at most.
    cfx_max_legs_set: u32 = "cfx_max_legs_set", 8, 3, 255, count;
    /// Percentage to which a leg drains before its sender switches to another.
    cfx_drain_pct: u32 = "cfx_drain_pct", 0, 0, 255, count;
    /// Percentage of a leg's congestion window that is sent before its sender switches.
    cfx_send_pct: u32 = "cfx_send_pct", 100, 0, 255, count;
    /// Circuits before a guard is judged by those that fail.
    pb_mincircs: u32 = "pb_mincircs", 150, 5, MAX, count;
    /// Circuits that succeed, in percent, below which it is worth a notice.
    pb_noticepct: u32 = "pb_noticepct", 70, 0, 100, count;
    /// Circuits that succeed, in percent, below which it is worth a warning.
    pb_warnpct: u32 = "pb_warnpct", 50, 0, 100, count;
    /// Circuits that succeed, in percent, below which the guard is suspected.
    pb_extremepct: u32 = "pb_extremepct", 30, 0, 100, count;
    /// Suspect guards are not used any more.
    pb_dropguards: bool = "pb_dropguards", 0, 0, 1, flag;
    /// Circuits from which counters are made smaller.
    pb_scalecircs: u32 = "pb_scalecircs", 300, 10, MAX, count;
    /// Divisor of the counters when they are scaled down.
    pb_scalefactor: u32 = "pb_scalefactor", 2, 2, MAX, count;
    /// And multiplied with.
    pb_multfactor: u32 = "pb_multfactor", 1, 1, MAX, count;
    /// Uses before a guard is judged by those that fail.
    pb_minuse: u32 = "pb_minuse", 20, 3, MAX, count;
    /// Uses that succeed, in percent, below which it is worth a notice.
    pb_noticeusepct: u32 = "pb_noticeusepct", 80, 3, 100, count;
    /// Uses that succeed, in percent, below which the guard is suspected.
    pb_extremeusepct: u32 = "pb_extremeusepct", 60, 3, 100, count;
    /// Uses from which counters are made smaller.
    pb_scaleuse: u32 = "pb_scaleuse", 100, 10, MAX, count;
    /// Queue length, in cells, past which edge connections stop reading.
    cellq_high: u32 = "cellq_high", 256, 1, 1000, count;
    /// Queue length, in cells, below which edge connections read again.
    cellq_low: u32 = "cellq_low", 10, 1, 1000, count;
}

/// The consensus method from which on authorities take descriptors without TAP keys (C tor 0.4.9.12).
const METHOD_WITHOUT_TAP: u32 = 36;

impl Params {
    /// The parameters of a consensus of this method.
    pub(crate) fn from_consensus(params: &NetParams<i32>, method: u32) -> Self {
        let old = i32::from(method < METHOD_WITHOUT_TAP);
        let get = |name: &str| params.get(name).copied();
        Self::read(|name| match name {
            "publish-dummy-tap-key" => Some(get(name).unwrap_or(old)),
            _ => get(name),
        })
    }

    /// Rules between parameters: bounds and defaults that are themselves parameters.
    fn relate(&mut self, get: &impl Fn(&str) -> Option<i32>) {
        self.nf_ito_high = self.nf_ito_high.max(self.nf_ito_low);
        self.nf_ito_high_reduced = self.nf_ito_high_reduced.max(self.nf_ito_low_reduced);
        self.onion_key_grace_period = self.onion_key_grace_period.min(self.onion_key_lifetime);
        if get("circ_max_cell_queue_size_out").is_none() {
            self.circ_max_cell_queue_size_out = self.circ_max_cell_queue_size;
        }
        self.pb_multfactor = self.pb_multfactor.min(self.pb_scalefactor - 1);
        if self.cc_alg != 0 {
            self.cc_alg = 2;
        }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::read(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, i32)]) -> Params {
        let mut raw = NetParams::new();
        for (name, value) in pairs {
            raw.set((*name).to_string(), *value);
        }
        Params::from_consensus(&raw, METHOD_WITHOUT_TAP)
    }

    #[test]
    fn without_a_rule_there_is_no_tap_key_from_method_36_on() {
        let mut raw = NetParams::new();
        assert!(Params::default().publish_dummy_tap_key);
        let is_wanted = |raw: &NetParams<i32>, method| {
            Params::from_consensus(raw, method).publish_dummy_tap_key
        };
        assert!(is_wanted(&raw, 35) && !is_wanted(&raw, 36) && !is_wanted(&raw, 37));
        for rule in [0, 1] {
            raw.set("publish-dummy-tap-key".to_string(), rule);
            assert!([35, 36].map(|method| is_wanted(&raw, method)) == [rule == 1; 2]);
        }
    }

    #[test]
    fn without_a_consensus_the_defaults_are_c_tors() {
        let params = Params::default();
        assert_eq!(params.circuit_priority_halflife, Duration::from_secs(30));
        assert_eq!(params.kist_sched_run_interval, Duration::from_millis(2));
        assert_eq!(params.circ_max_cell_queue_size, 2500);
        assert_eq!(params.onion_key_lifetime, Duration::from_secs(28 * 86_400));
        assert_eq!(params.cc_sendme_inc, 31);
        assert!(!params.dos_circuit_creation_enabled);
    }

    #[test]
    fn a_value_outside_its_range_moves_to_the_nearest_end() {
        let params = with(&[
            ("KISTSchedRunInterval", 0),
            ("circwindow", i32::MAX),
            ("nf_ito_low", -5),
        ]);
        assert_eq!(params.kist_sched_run_interval, Duration::from_millis(2));
        assert_eq!(params.circwindow, 1000);
        assert_eq!(params.nf_ito_low, Duration::ZERO);
    }

    #[test]
    fn parameters_of_conflux_have_c_tors_defaults_and_bounds() {
        let numbers = |params: &Params| {
            [
                params.cfx_low_exit_threshold,
                params.cfx_max_linked_set,
                params.cfx_max_prebuilt_set,
                params.cfx_max_unlinked_leg_retry,
                params.cfx_num_legs_set,
                params.cfx_max_legs_set,
                params.cfx_drain_pct,
                params.cfx_send_pct,
            ]
        };
        let default = Params::default();
        assert!(default.cfx_enabled);
        assert_eq!(numbers(&default), [6000, 10, 3, 3, 2, 8, 0, 100]);
        let names = Params::NAMES.iter().filter(|name| name.starts_with("cfx_"));
        let all = |value| names.clone().map(|name| (*name, value)).collect::<Vec<_>>();
        let (low, high) = (with(&all(-1)), with(&all(i32::MAX)));
        assert!(!low.cfx_enabled && high.cfx_enabled);
        assert_eq!(numbers(&low), [0, 0, 0, 0, 0, 3, 0, 0]);
        assert_eq!(numbers(&high), [10_000, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn bounds_and_defaults_that_are_parameters_follow_them() {
        let params = with(&[
            ("nf_ito_low", 20_000),
            ("onion-key-rotation-days", 2),
            ("circ_max_cell_queue_size", 60),
            ("cc_alg", 1),
        ]);
        assert_eq!(params.nf_ito_high, Duration::from_secs(20));
        assert_eq!(
            params.onion_key_grace_period,
            Duration::from_secs(2 * 86_400)
        );
        assert_eq!(params.circ_max_cell_queue_size_out, 60);
        assert_eq!(params.cc_alg, 2);
    }

    #[test]
    fn no_value_that_a_consensus_can_carry_leaves_the_range() {
        for extreme in [i32::MIN, -1, 0, 1, i32::MAX] {
            let all: Vec<(&str, i32)> = Params::NAMES.iter().map(|name| (*name, extreme)).collect();
            let params = with(&all);
            assert!(params.nf_ito_low <= params.nf_ito_high);
            assert!((50..=i32::MAX as u32).contains(&params.circ_max_cell_queue_size));
            assert!((31..=10_000).contains(&params.cc_cwnd_init));
        }
    }
}
