//! From torrc and consensus to what threads and controller follow.

use std::time::Duration;

use weft_core::controller::ControllerParams;
use weft_core::dos::DosParams;
use weft_core::manager::RelayParams;
use weft_core::padding::PaddingParams;
use weft_dir::params::Params;

use crate::torrc::Options;
use crate::torrc::options::SchedulerKind;

/// Onionskins that one worker answers in a second, at least; bounds the queue so that the last of
/// it still waits no longer than `MaxOnionQueueDelay`.
const ONIONSKINS_PER_SECOND: u64 = 4000;

/// What every connection thread follows.
pub(super) fn relay_params(
    options: &Options,
    consensus: &Params,
    own_rsa: [u8; 20],
    own_ed25519: [u8; 32],
    has_ipv6: bool,
) -> RelayParams {
    let half_life = options
        .scheduling
        .circuit_priority_halflife
        .filter(|half_life| !half_life.is_zero())
        .unwrap_or(consensus.circuit_priority_halflife);
    RelayParams {
        extend_to_private: options.network.extend_allow_private_addresses,
        extend_over_ipv6: has_ipv6,
        nonearly_extend: consensus.allow_nonearly_extend,
        max_queue_away: size(consensus.circ_max_cell_queue_size_out),
        max_queue_toward: size(consensus.circ_max_cell_queue_size),
        circuit_priority_half_life: half_life,
        idle_relay_link: consensus.nf_conntimeout_relays,
        idle_client_link: consensus.nf_conntimeout_clients,
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
        ..RelayParams::new(own_rsa, own_ed25519)
    }
}

/// How often the scheduler runs; zero is KISTLite, which runs every turn.
pub(super) fn run_interval(options: &Options, consensus: &Params) -> Duration {
    match options.scheduling.schedulers.first() {
        Some(SchedulerKind::Kist) | None => options
            .scheduling
            .kist_run_interval
            .filter(|interval| !interval.is_zero())
            .unwrap_or(consensus.kist_sched_run_interval),
        Some(SchedulerKind::KistLite | SchedulerKind::Vanilla) => Duration::ZERO,
    }
}

/// What the controller follows.
pub(super) fn controller_params(
    options: &Options,
    consensus: &Params,
    max_connections: usize,
    workers: usize,
    total_memory: Option<u64>,
) -> ControllerParams {
    let delay = options
        .resources
        .max_onion_queue_delay
        .unwrap_or(consensus.max_onion_queue_delay);
    let per_worker = delay.as_millis() * u128::from(ONIONSKINS_PER_SECOND) / 1000;
    ControllerParams {
        max_connections,
        max_onionskins: usize::try_from(per_worker)
            .unwrap_or(usize::MAX)
            .max(1)
            .saturating_mul(workers),
        max_memory: options.resources.max_mem_in_queues(total_memory),
        dos: dos_params(options, consensus),
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
    }
}

/// The bytes per second and the burst that all threads share: what relays may carry.
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
