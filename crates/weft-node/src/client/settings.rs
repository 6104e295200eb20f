//! All that torrc says about a client.

use std::time::Duration;

use weft_dir::client::ClientOptions;
use weft_path::{BuildTimesOptions, PathOptions};

use super::config::{ClientConfig, ListenerConfig};
use super::countries;
use super::isolation::Isolation;
use crate::torrc::Options;
use crate::torrc::client_ports::AppPort;

/// How long after the last use circuits are kept ready, before it is spread out: as long as links
/// of clients are (`nf_conntimeout_clients`; C tor's predicted_ports_prediction_time_remaining).
const PREDICT_FOR: Duration = Duration::from_secs(1800);

/// Settings of the client thread.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Of circuits and streams.
    pub config: ClientConfig,
    /// Of paths.
    pub paths: PathOptions,
    /// Of the time that building takes.
    pub times: BuildTimesOptions,
    /// Of the directory.
    pub directory: ClientOptions,
    /// Names that stand for others (`MapAddress`).
    pub maps: Vec<(String, String)>,
}

impl ClientSettings {
    /// From torrc. `ports` are the listeners by their numbers, `own` is our identity as a relay;
    /// `spread`, from 0 to 1, is what makes clients differ in their habits.
    pub fn new(options: &Options, ports: &[AppPort], own: Option<[u8; 20]>, spread: f64) -> Self {
        let (apps, circuits) = (&options.apps, &options.circuits);
        let mut paths = options.paths.clone();
        paths.own_identity = own;
        countries::find(&mut paths, &options.settings);
        ClientSettings {
            config: ClientConfig {
                max_dirtiness: circuits.max_dirtiness,
                new_circuit_period: circuits.new_circuit_period,
                predict_for: circuits
                    .available_timeout
                    .unwrap_or(PREDICT_FOR)
                    .mul_f64(1.0 + spread),
                max_pending: circuits.max_pending,
                socks_timeout: apps.timeout,
                stream_timeout: circuits.stream_timeout,
                reject_internal: apps.reject_internal_addresses,
                reject_internal_answers: circuits.reject_internal_answers,
                long_lived_ports: options.paths.long_lived_ports.clone(),
                warn_plaintext_ports: apps.warn_plaintext_ports.clone(),
                reject_plaintext_ports: apps.reject_plaintext_ports.clone(),
                track_hosts: circuits.track_hosts.clone(),
                track_for: circuits.track_for,
                leave_streams_unattached: circuits.leave_streams_unattached,
                disable_predicted: circuits.disable_predicted,
                disable_network: options.network.disabled,
                listeners: (0_i64..).zip(ports).map(listener).collect(),
            },
            paths,
            times: options.build_times,
            directory: options.client_directory(),
            maps: circuits.maps.clone(),
        }
    }
}

/// What a listener asks for; a port without a session group is a group of its own.
fn listener((number, port): (i64, &AppPort)) -> ListenerConfig {
    let flags = &port.flags;
    let asked = &flags.isolation;
    let mut isolation = Isolation::SESSION_GROUP | Isolation::NYM_EPOCH;
    for (wanted, field) in [
        (asked.client_addr, Isolation::CLIENT_ADDR),
        (asked.socks_auth, Isolation::AUTH),
        (asked.client_protocol, Isolation::PROTOCOL),
        (asked.dest_port, Isolation::DEST_PORT),
        (asked.dest_addr, Isolation::DEST_ADDR),
    ] {
        if wanted {
            isolation |= field;
        }
    }
    ListenerConfig {
        isolation,
        session_group: asked.session_group.map_or(-1 - number, i64::from),
        ipv4: flags.ipv4_traffic,
        ipv6: flags.ipv6_traffic,
        prefer_ipv6: flags.prefer_ipv6,
        dns: flags.dns_request,
        keep_alive_auth: asked.keep_alive_socks_auth,
    }
}
