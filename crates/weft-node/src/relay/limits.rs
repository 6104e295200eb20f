//! From torrc and consensus to the parameters of threads and controller.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_config::Options;
use weft_config::options::SchedulerKind;
use weft_core::controller::{ControllerParams, Sharing};
use weft_core::extensions::circpad::CircpadParams;
use weft_core::limits::dos::{DosParams, IntroDosParams};
use weft_core::limits::stream_dos::{StreamDefense, StreamDosParams};
use weft_core::link::padding::PaddingParams;
use weft_core::params::RelayParams;
use weft_dir::params::Params;

use super::{Relay, congestion};
use crate::process::machine;
use crate::thread::ThreadParams;
use crate::thread::mesh::ToThread;
use crate::workers::JOBS;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// Divisor of the part of all files that peers may have open at the directory.
const DIRECTORY_PART: usize = 4;
/// A link without circuits is closed after this time at most where each circuit has its own: most are
/// never needed again.
const IDLE_PER_CIRCUIT: Duration = Duration::from_secs(60);
/// Longest time that a link without circuits stays open if circuits get separate connections only
/// to some relays: as long as loss there is remembered.
const IDLE_AUTO: Duration = Duration::from_secs(600);

/// The parameters of every local connection manager.
pub(super) fn relay_params(
    options: &Options,
    consensus: &Params,
    own_rsa: RsaIdentity,
    own_ed25519: Ed25519Identity,
    has_ipv6: bool,
) -> RelayParams {
    let half_life = match options.scheduling.circuit_priority_halflife {
        // As in C tor: an EWMA without memory is no choice.
        Some(half_life) if half_life.is_zero() => Params::default().circuit_priority_halflife,
        Some(half_life) => half_life,
        None => consensus.circuit_priority_halflife,
    };
    RelayParams {
        extend_to_private: options.network.extend_allow_private_addresses,
        extend_over_ipv6: has_ipv6,
        nonearly_extend: consensus.allow_nonearly_extend,
        max_queue_forward: size(consensus.circ_max_cell_queue_size_out),
        max_queue_backward: size(consensus.circ_max_cell_queue_size),
        // C tor reads streams as soon as its queue has fallen to cellq_low, cell by cell; here a run of
        // the scheduler may take cellq_high cells at once, and the next comes a while later.
        queue_high: 2 * size(consensus.cellq_high),
        queue_low: size(consensus.cellq_high.max(consensus.cellq_low)),
        circuit_priority_half_life: half_life,
        report_load: options.network.connection_per_circuit != Some(false),
        watch_loss: options.network.connection_per_circuit.is_none(),
        measure_queues: queue_period(options, false),
        idle_relay_link: match options.network.connection_per_circuit {
            Some(false) => consensus.nf_conntimeout_relays,
            Some(true) => consensus.nf_conntimeout_relays.min(IDLE_PER_CIRCUIT),
            None => consensus.nf_conntimeout_relays.min(IDLE_AUTO),
        },
        serve_abra: options.network.abra_weights,
        serve_conflux: options.circuits.conflux.unwrap_or(consensus.cfx_enabled),
        conflux_legs: size(consensus.cfx_max_legs_set),
        serve_mtor: options.network.multipath_exit,
        keepalive: options.network.keepalive_period,
        padding: PaddingParams {
            connection_padding: options.scheduling.connection_padding,
            reduced: options.scheduling.reduced_connection_padding,
            low: consensus.nf_ito_low,
            high: consensus.nf_ito_high,
            low_reduced: consensus.nf_ito_low_reduced,
            high_reduced: consensus.nf_ito_high_reduced,
            pad_before_usage: consensus.nf_pad_before_usage,
            pad_relays: consensus.nf_pad_relays,
        },
        stream_dos: stream_dos(options, consensus),
        circpad: CircpadParams {
            disabled: consensus.circpad_padding_disabled,
            global_allowed_cells: consensus.circpad_global_allowed_cells,
            global_max_padding_pct: consensus.circpad_global_max_padding_pct,
            max_circ_queued_cells: size(consensus.circpad_max_circ_queued_cells),
        },
        cc: congestion::cc_params(&options.circuits, consensus),
        sendme_emit: congestion::byte(consensus.sendme_emit_min_version),
        sendme_accept: congestion::byte(consensus.sendme_accept_min_version),
        ..RelayParams::new(own_rsa, own_ed25519)
    }
}

/// Interval of reports on cells that left circuits' queues, if they are measured. Events for
/// controllers need it every second; daily statistics only need the rest from circuits that end.
fn queue_period(options: &Options, events: bool) -> Option<Duration> {
    match (
        options.testing.cell_events && events,
        options.statistics.cells,
    ) {
        (true, _) => Some(Duration::from_secs(1)),
        (false, true) => Some(Duration::from_secs(60)),
        (false, false) => None,
    }
}

/// Parameters of connection threads. `known_relays` are the relays of the consensus, `my_addrs` the
/// relay's own addresses.
pub(super) fn thread_params(
    options: &Options,
    consensus: &Params,
    known_relays: &Arc<BTreeSet<RsaIdentity>>,
    my_addrs: Vec<IpAddr>,
    total_memory: Option<u64>,
) -> ThreadParams {
    let scheduling = &options.scheduling;
    // Every one of them works here: where the kernel reports nothing about a socket, KIST is KISTLite.
    let scheduler = scheduling
        .schedulers
        .first()
        .copied()
        .unwrap_or(SchedulerKind::Kist);
    let by_consensus = match options.network.or_ports.is_empty() {
        true => consensus.kist_sched_run_interval_client,
        false => consensus.kist_sched_run_interval,
    };
    let run_interval = match scheduler {
        SchedulerKind::Kist | SchedulerKind::KistLite => {
            scheduling.kist_run_interval.unwrap_or(by_consensus)
        }
        SchedulerKind::Vanilla => Duration::ZERO,
    };
    ThreadParams {
        scheduler,
        run_interval,
        scheduling: scheduling.clone(),
        count_private: options.bandwidth.count_private,
        per_connection: per_connection(options, consensus),
        known_relays: known_relays.clone(),
        my_addrs,
        protocol_warnings: options.log.protocol_warnings,
        count_exit_ports: options.statistics.exit_ports,
        count_directions: options.statistics.directions,
        // Only while a controller wants it (`send_thread_params`).
        count_connections: false,
        max_memory: options.resources.max_mem_in_queues(total_memory),
        socks_timeout: options.apps.timeout,
    }
}

/// The rate and burst of each connection whose peer is no known relay; `None`: only the common
/// limit, which is what C tor's defaults come to (connection_or_update_token_buckets_helper).
pub(super) fn per_connection(options: &Options, consensus: &Params) -> Option<(u64, u64)> {
    let by_consensus = |bytes: u32| Some(u64::from(bytes)).filter(|bytes| *bytes > 0);
    let bandwidth = &options.bandwidth;
    let rate = bandwidth
        .per_connection_rate
        .or_else(|| by_consensus(consensus.per_conn_bw_rate));
    let burst = bandwidth
        .per_connection_burst
        .or_else(|| by_consensus(consensus.per_conn_bw_burst));
    (rate.is_some() || burst.is_some()).then(|| {
        (
            rate.unwrap_or(bandwidth.rate),
            burst.unwrap_or(bandwidth.burst),
        )
    })
}

/// Parameters of the controller.
pub(super) fn controller_params(
    options: &Options,
    consensus: &Params,
    max_connections: usize,
    workers: usize,
    total_memory: Option<u64>,
) -> ControllerParams {
    ControllerParams {
        max_connections,
        workers,
        max_onionskins: workers.saturating_mul(JOBS),
        max_onion_delay: options
            .resources
            .max_onion_queue_delay
            .unwrap_or(consensus.max_onion_queue_delay),
        onion_cutoff: consensus.onion_queue_wait_cutoff,
        max_memory: options.resources.max_mem_in_queues(total_memory),
        dos: dos_params(options, consensus),
        sharing: sharing(options, max_connections / 2),
    }
}

/// Rule by which circuits share connections, of which there are at most `total`.
fn sharing(options: &Options, total: usize) -> Sharing {
    let per_relay = options.network.max_connections_per_relay;
    match options.network.connection_per_circuit {
        Some(false) => Sharing::All,
        Some(true) => Sharing::PerCircuit { per_relay, total },
        None => Sharing::Auto { per_relay, total },
    }
}

/// The defences: torrc over consensus.
fn dos_params(options: &Options, consensus: &Params) -> DosParams {
    let torrc = &options.dos;
    DosParams {
        connection_enabled: torrc
            .connection_enabled
            .unwrap_or(consensus.dos_connection_enabled),
        connection_max_concurrent: torrc
            .connection_max_concurrent
            .unwrap_or(consensus.dos_connection_max_concurrent),
        connection_close: torrc
            .connection_defense_type
            .unwrap_or(consensus.dos_connection_defense_type)
            == 2,
        connection_connect_rate: torrc
            .connection_connect_rate
            .unwrap_or(consensus.dos_connection_connect_rate),
        connection_connect_burst: torrc
            .connection_connect_burst
            .unwrap_or(consensus.dos_connection_connect_burst),
        connection_connect_defense_time: torrc
            .connection_connect_defense_time
            .unwrap_or(consensus.dos_connection_connect_defense_time),
        circuit_creation_enabled: torrc
            .circuit_creation_enabled
            .unwrap_or(consensus.dos_circuit_creation_enabled),
        circuit_creation_min_connections: torrc
            .circuit_creation_min_connections
            .unwrap_or(consensus.dos_circuit_creation_min_connections),
        circuit_creation_rate: torrc
            .circuit_creation_rate
            .unwrap_or(consensus.dos_circuit_creation_rate),
        circuit_creation_burst: torrc
            .circuit_creation_burst
            .unwrap_or(consensus.dos_circuit_creation_burst),
        circuit_creation_refuse: torrc
            .circuit_creation_defense_type
            .unwrap_or(consensus.dos_circuit_creation_defense_type)
            == 2,
        circuit_creation_defense_time: torrc
            .circuit_creation_defense_time
            .unwrap_or(consensus.dos_circuit_creation_defense_time),
        circuit_max_queue_overflows: consensus.dos_num_circ_max_outq,
        refuse_single_hop_rendezvous: torrc
            .refuse_single_hop_rendezvous
            .unwrap_or(consensus.dos_refuse_single_hop_client_rendezvous),
        intro: IntroDosParams {
            enabled: consensus.intro_dos_defense,
            rate: consensus.intro_dos_rate,
            burst: consensus.intro_dos_burst,
        },
    }
}

/// Limit on the streams that a circuit may open: torrc over consensus.
fn stream_dos(options: &Options, consensus: &Params) -> StreamDosParams {
    let torrc = &options.dos;
    let defense = torrc
        .stream_creation_defense_type
        .unwrap_or(consensus.dos_stream_creation_defense_type);
    StreamDosParams {
        enabled: torrc
            .stream_creation_enabled
            .unwrap_or(consensus.dos_stream_creation_enabled),
        rate: torrc
            .stream_creation_rate
            .unwrap_or(consensus.dos_stream_creation_rate),
        burst: torrc
            .stream_creation_burst
            .unwrap_or(consensus.dos_stream_creation_burst),
        // A number that means nothing defends nothing, as in C tor.
        defense: StreamDefense::from_number(defense).unwrap_or(StreamDefense::None),
    }
}

/// The bytes per second and the burst that all threads share. C tor has two buckets, for all
/// traffic and for what is relayed; since all traffic of links is relayed, and the limit of that is
/// never above the other, the one with the lower limits is always the emptier one.
pub(super) fn bandwidth(options: &Options) -> (u64, u64) {
    let bandwidth = &options.bandwidth;
    (
        bandwidth.relay_rate.unwrap_or(u64::MAX).min(bandwidth.rate),
        bandwidth
            .relay_burst
            .unwrap_or(u64::MAX)
            .min(bandwidth.burst),
    )
}

fn size(cells: u32) -> usize {
    usize::try_from(cells).unwrap_or(usize::MAX)
}

impl Relay {
    /// Applies torrc and consensus.
    pub(super) fn apply_params(&mut self) {
        let has_ipv6 = self.own.addresses.v6.is_some();
        let mut params = relay_params(
            &self.options,
            &self.network.params,
            self.threads.params.own_rsa,
            self.threads.params.own_ed25519,
            has_ipv6,
        );
        params.measure_queues = queue_period(&self.options, self.control.measured.queues);
        self.threads.params = Arc::new(params);
        self.controller.set_relay_params(&self.threads.params);
        self.controller.set_params(controller_params(
            &self.options,
            &self.network.params,
            self.process.max_files,
            self.workers.count(),
            machine::total_memory(),
        ));
        // The others' part of the old limit may be more than all of the new one.
        self.share_limits();
        let (rate, burst) = bandwidth(&self.options);
        self.threads.pool.set_limit(rate, burst);
        self.know_relays();
        self.send_thread_params();
        let now = Instant::now();
        self.know_or_ports(now);
        self.apply_exits(false, now);
    }

    /// Reports this identity's use of the process' limits, and applies what the others leave of
    /// them. Called once a second, and when a limit changes.
    pub(super) fn share_limits(&mut self) {
        self.count_other_files();
        let membership = &self.process.membership;
        membership.set_memory(self.controller.held_memory());
        let of_others = membership.memory_of_others(self.controller.max_memory());
        self.controller.set_memory_of_others(of_others);
    }

    /// Counts the files of the directory, of the extended ORPort and of other identities with those of links and streams: all
    /// are under one limit.
    pub(super) fn count_other_files(&mut self) {
        let mut files = self.bridge_transports.open_files();
        if let Some(directory) = &self.directory.handle {
            directory.set_most_streams(self.controller.max_connections() / DIRECTORY_PART);
            files = files.saturating_add(directory.open_files());
        }
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        let membership = &self.process.membership;
        let of_others = membership.files_of_others(self.process.max_files);
        self.controller.set_other_files(files, of_others);
        self.publish_files();
    }

    /// Shows other identities how many files this one has. In each turn: connections close at any time.
    pub(super) fn publish_files(&self) {
        let membership = &self.process.membership;
        if membership.count() > 1 {
            membership.set_files(self.controller.open_files_of_own());
        }
    }

    /// Sends the connection threads their parameters.
    pub(super) fn send_thread_params(&mut self) {
        let mut params = thread_params(
            &self.options,
            &self.network.params,
            &self.network.relays,
            self.own.addresses.ips(),
            machine::total_memory(),
        );
        params.count_connections =
            self.options.testing.connection_events && self.control.measured.connections;
        self.threads
            .send_all(|| ToThread::Params(Box::new(params.clone())));
    }

    /// Lists the consensus' relays, if connections to others are limited.
    fn know_relays(&mut self) {
        let needed = per_connection(&self.options, &self.network.params).is_some();
        let relays = self.network.consensus.iter().filter(|_| needed);
        let relays = relays.flat_map(|consensus| consensus.relays());
        let ids = relays.map(|(id, _)| id.into());
        self.network.relays = Arc::new(ids.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::testing::options;

    #[test]
    fn queues_are_measured_for_statistics_and_only_for_events_that_somebody_wants() {
        let seconds = |torrc: &str, events| {
            let options = options(&format!("{RELAY}{torrc}"));
            queue_period(&options, events).map(|period| period.as_secs())
        };
        assert_eq!(seconds("", true), None);
        assert_eq!(seconds("CellStatistics 1\n", true), Some(60));
        let testing = "TestingTorNetwork 1\nDirAuthority a orport=1 v3ident=\
                       1111111111111111111111111111111111111111 127.0.0.1:2 \
                       2222222222222222222222222222222222222222\n";
        assert_eq!(seconds(testing, false), None);
        assert_eq!(seconds(testing, true), Some(1));
    }

    const RELAY: &str = "ORPort 9001\nContactInfo x\nExitRelay 0\n";

    /// The options of a relay with these lines.
    fn with(torrc: &str) -> Options {
        options(&format!("{RELAY}{torrc}"))
    }

    fn relay(torrc: &str) -> RelayParams {
        relay_params(
            &with(torrc),
            &Params::default(),
            [1; 20].into(),
            [2; 32].into(),
            false,
        )
    }

    fn thread(torrc: &str) -> ThreadParams {
        let known = Arc::default();
        let memory = Some(16 << 30);
        thread_params(&with(torrc), &Params::default(), &known, Vec::new(), memory)
    }

    fn controller(torrc: &str) -> ControllerParams {
        controller_params(&with(torrc), &Params::default(), 1000, 2, Some(16 << 30))
    }

    #[test]
    fn without_a_word_of_the_operator_s_threads_follow_c_tor_s_defaults() {
        let max_memory = (16 << 30) / 5 * 2;
        let defaults = ThreadParams {
            max_memory,
            ..ThreadParams::default()
        };
        assert_eq!(thread(""), defaults);
        let params = relay("");
        let defaults = RelayParams::new([1; 20].into(), [2; 32].into());
        assert_eq!(format!("{params:?}"), format!("{defaults:?}"));
        assert_eq!(controller("").max_memory, max_memory);
    }

    #[test]
    fn the_first_scheduler_is_used_and_vanilla_does_not_wait() {
        let msec = Duration::from_millis;
        let lite = thread("Schedulers KISTLite,KIST\nKISTSchedRunInterval 7 msec\n");
        assert_eq!(
            (lite.scheduler, lite.run_interval),
            (SchedulerKind::KistLite, msec(7))
        );
        let vanilla = thread("Schedulers Vanilla\n");
        assert_eq!(
            (vanilla.scheduler, vanilla.run_interval),
            (SchedulerKind::Vanilla, Duration::ZERO)
        );
        let kist = thread("KISTSockBufSizeFactor 0.5\n");
        assert_eq!(
            (kist.run_interval, kist.scheduling.kist_sock_buf_size_factor),
            (msec(2), 0.5)
        );
    }

    #[test]
    fn relays_and_clients_have_intervals_of_their_own_in_the_consensus() {
        let mut consensus = Params::default();
        consensus.kist_sched_run_interval = Duration::from_millis(3);
        consensus.kist_sched_run_interval_client = Duration::from_millis(5);
        let interval = |options: &Options| {
            let known = Arc::default();
            let params = thread_params(options, &consensus, &known, Vec::new(), None);
            params.run_interval.as_millis()
        };
        assert_eq!(interval(&with("")), 3);
        assert_eq!(interval(&options("SocksPort 9050\n")), 5);
        let own = "KISTSchedRunInterval 7 msec\n";
        assert_eq!(interval(&options(&format!("SocksPort 9050\n{own}"))), 7);
    }

    #[test]
    fn streams_of_a_circuit_are_limited_as_torrc_or_the_consensus_sets() {
        let set = relay(
            "DoSStreamCreationEnabled 1\nDoSStreamCreationRate 2\nDoSStreamCreationBurst 3\n\
             DoSStreamCreationDefenseType 3\n",
        );
        let expected = StreamDosParams {
            enabled: true,
            rate: 2,
            burst: 3,
            defense: StreamDefense::CloseCircuit,
        };
        assert_eq!(set.stream_dos, expected);
        let mut consensus = Params::default();
        consensus.dos_stream_creation_enabled = true;
        consensus.dos_stream_creation_defense_type = 1;
        let by_consensus = stream_dos(&with("DoSStreamCreationBurst 7\n"), &consensus);
        let expected = StreamDosParams {
            enabled: true,
            burst: 7,
            defense: StreamDefense::None,
            ..StreamDosParams::default()
        };
        assert_eq!(by_consensus, expected);
    }

    #[test]
    fn circuit_priority_is_the_operator_s_or_the_consensus() {
        let half_life = |torrc| relay(torrc).circuit_priority_half_life.as_secs_f64();
        assert_eq!(half_life("CircuitPriorityHalflife 2.5\n"), 2.5);
        assert_eq!(half_life("CircuitPriorityHalflife 0\n"), 30.0);
        let mut consensus = Params::default();
        consensus.circuit_priority_halflife = Duration::from_secs(7);
        let params = relay_params(&with(""), &consensus, [1; 20].into(), [2; 32].into(), false);
        assert_eq!(params.circuit_priority_half_life, Duration::from_secs(7));
    }

    #[test]
    fn links_follow_torrc() {
        let params = relay("KeepalivePeriod 90\nExtendAllowPrivateAddresses 1\n");
        assert_eq!(params.keepalive, Duration::from_secs(90));
        assert!(params.extend_to_private);
        let params = thread("CountPrivateBandwidth 1\nProtocolWarnings 1\n");
        assert!(params.count_private && params.protocol_warnings);
    }

    #[test]
    fn clients_are_limited_by_torrc_or_by_the_consensus() {
        let mut consensus = Params::default();
        let limit = |torrc, consensus: &Params| per_connection(&with(torrc), consensus);
        let both = "PerConnBWRate 20 KB\nPerConnBWBurst 40 KB\n";
        assert_eq!(limit("", &consensus), None);
        assert_eq!(limit(both, &consensus), Some((20 << 10, 40 << 10)));
        assert_eq!(
            limit(
                "PerConnBWRate 20 KB\nBandwidthBurst 1 MB\nBandwidthRate 1 MB\n",
                &consensus
            ),
            Some((20 << 10, 1 << 20))
        );
        (consensus.per_conn_bw_rate, consensus.per_conn_bw_burst) = (1000, 2000);
        assert_eq!(limit("", &consensus), Some((1000, 2000)));
        assert_eq!(limit(both, &consensus), Some((20 << 10, 40 << 10)));
    }

    #[test]
    fn what_is_relayed_is_limited_by_the_lower_of_two_rates() {
        assert_eq!(bandwidth(&with("")), (1 << 30, 1 << 30));
        let all = "BandwidthRate 200 KB\nBandwidthBurst 400 KB\n";
        assert_eq!(bandwidth(&with(all)), (200 << 10, 400 << 10));
        let relayed = "RelayBandwidthRate 100 KB\nRelayBandwidthBurst 300 KB\n";
        let both = format!("{all}{relayed}");
        assert_eq!(bandwidth(&with(&both)), (100 << 10, 300 << 10));
    }

    #[test]
    fn onionskins_wait_as_long_as_torrc_sets() {
        let delay = |torrc| controller(torrc).max_onion_delay;
        assert_eq!(
            delay("MaxOnionQueueDelay 1 second\n"),
            Duration::from_secs(1)
        );
        assert_eq!(delay(""), Duration::from_millis(1750));
        assert_eq!(controller("").max_onionskins, 2 * JOBS);
        assert_eq!(controller("MaxMemInQueues 512 MB\n").max_memory, 512 << 20);
    }

    #[test]
    fn defences_are_the_operator_s_or_the_consensus() {
        let dos = controller(
            "DoSCircuitCreationEnabled 1\nDoSCircuitCreationMinConnections 5\n\
             DoSCircuitCreationRate 6\nDoSCircuitCreationBurst 7\n\
             DoSCircuitCreationDefenseType 1\nDoSCircuitCreationDefenseTimePeriod 8\n\
             DoSConnectionEnabled 1\nDoSConnectionMaxConcurrentCount 9\n\
             DoSConnectionDefenseType 1\nDoSConnectionConnectRate 10\n\
             DoSConnectionConnectBurst 11\nDoSConnectionConnectDefenseTimePeriod 12\n\
             DoSRefuseSingleHopClientRendezvous 1\n",
        )
        .dos;
        let expected = DosParams {
            connection_enabled: true,
            connection_max_concurrent: 9,
            connection_close: false,
            connection_connect_rate: 10,
            connection_connect_burst: 11,
            connection_connect_defense_time: Duration::from_secs(12),
            circuit_creation_enabled: true,
            circuit_creation_min_connections: 5,
            circuit_creation_rate: 6,
            circuit_creation_burst: 7,
            circuit_creation_refuse: false,
            circuit_creation_defense_time: Duration::from_secs(8),
            circuit_max_queue_overflows: 3,
            refuse_single_hop_rendezvous: true,
            intro: IntroDosParams::default(),
        };
        assert_eq!(format!("{dos:?}"), format!("{expected:?}"));
        assert!(!controller("").dos.connection_enabled);
    }

    #[test]
    fn onion_services_are_defended_and_circuits_padded_as_the_consensus_sets() {
        let mut consensus = Params::default();
        consensus.intro_dos_defense = true;
        (consensus.intro_dos_rate, consensus.intro_dos_burst) = (3, 4);
        let expected = IntroDosParams {
            enabled: true,
            rate: 3,
            burst: 4,
        };
        let options = with("");
        let params = controller_params(&options, &consensus, 1000, 2, Some(16 << 30));
        assert_eq!(params.dos.intro, expected);
        consensus.circpad_padding_disabled = true;
        consensus.circpad_global_allowed_cells = 5;
        consensus.circpad_global_max_padding_pct = 6;
        consensus.circpad_max_circ_queued_cells = 7;
        let expected = CircpadParams {
            disabled: true,
            global_allowed_cells: 5,
            global_max_padding_pct: 6,
            max_circ_queued_cells: 7,
        };
        let params = relay_params(&options, &consensus, [1; 20].into(), [2; 32].into(), false);
        assert_eq!(params.circpad, expected);
    }

    #[test]
    fn circuits_share_connections_as_torrc_has_it() {
        let of = |torrc: &str| {
            let params = relay(torrc);
            (
                controller(torrc).sharing,
                (params.report_load, params.watch_loss),
                params.idle_relay_link.as_secs(),
            )
        };
        let total = 500;
        assert_eq!(of(""), (Sharing::All, (false, false), 3600));
        let per_relay = 64;
        let own = Sharing::PerCircuit { per_relay, total };
        assert_eq!(of("ConnectionPerCircuit 1\n"), (own, (true, false), 60));
        let per_relay = 7;
        let auto = Sharing::Auto { per_relay, total };
        assert_eq!(
            of("ConnectionPerCircuit auto\nMaxConnectionsPerRelay 7\n"),
            (auto, (true, true), 600)
        );
    }
}
