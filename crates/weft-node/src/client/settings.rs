//! The settings of the client thread, from torrc.

use std::time::Duration;

use weft_cell::identity::RsaIdentity;
use weft_client::{ClientConfig, DormancyOptions, Isolation, ListenerConfig};
use weft_dir::client::ClientOptions;
use weft_path::{BuildTimesOptions, PathOptions};

use super::countries;
use crate::directory;
use weft_config::Options;
use weft_config::options::AppPort;
use weft_config::options::BridgeOptions;

/// Time after the last use for which circuits are kept ready, before `spread` is added: the time
/// for which clients keep links (`nf_conntimeout_clients`; C tor's
/// predicted_ports_prediction_time_remaining).
const PREDICT_FOR: Duration = Duration::from_secs(1800);

/// Settings of the client thread.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) config: ClientConfig,
    pub(crate) paths: PathOptions,
    /// The options of circuit build timeouts.
    pub(crate) times: BuildTimesOptions,
    pub(crate) directory: ClientOptions,
    pub(crate) bridges: BridgeOptions,
    /// All connections go through a proxy.
    pub(crate) proxied: bool,
    /// `__AlwaysCongestionControl`.
    pub(crate) always_congestion_control: bool,
}

impl ClientSettings {
    /// The settings of torrc. `ports` are the listeners by number, `own` is our RSA identity as a relay;
    /// `spread`, from 0 to 1, is random, so that clients keep circuits for different times.
    pub(crate) fn new(
        options: &Options,
        ports: &[AppPort],
        own: Option<RsaIdentity>,
        spread: f64,
    ) -> Self {
        let (apps, circuits) = (&options.apps, &options.circuits);
        let mut paths = options.paths.clone();
        paths.own_identity = own;
        countries::add_countries(&mut paths, &options.settings);
        // Circuits that are kept ready keep links open, and these are padded.
        let predict_for = match options.scheduling.reduced_connection_padding {
            true => PREDICT_FOR / 2,
            false => PREDICT_FOR,
        };
        ClientSettings {
            config: ClientConfig {
                max_dirtiness: circuits.max_dirtiness,
                new_circuit_period: circuits.new_circuit_period,
                predict_for: circuits
                    .available_timeout
                    .unwrap_or(predict_for)
                    .mul_f64(1.0 + spread),
                max_pending: circuits.max_pending,
                socks_timeout: apps.timeout,
                stream_timeout: circuits.stream_timeout,
                reject_internal: apps.reject_internal_addresses,
                reject_internal_answers: circuits.reject_internal_answers,
                selection: circuits.selection,
                conflux: circuits.conflux,
                conflux_ux: circuits.conflux_ux,
                multipath: circuits.multipath.clone(),
                check_statements: true,
                long_lived_ports: options.paths.long_lived_ports.clone(),
                warn_plaintext_ports: apps.warn_plaintext_ports.clone(),
                reject_plaintext_ports: apps.reject_plaintext_ports.clone(),
                allow_strange_names: apps.allow_strange_names,
                maps: circuits.maps.clone(),
                track_hosts: circuits.track_hosts.clone(),
                track_for: circuits.track_for,
                leave_streams_unattached: circuits.leave_streams_unattached,
                disable_predicted: circuits.disable_predicted,
                disable_network: options.network.disabled,
                dormancy: dormancy(options),
                automap: apps.automap.clone(),
                virtual_networks: apps.virtual_networks,
                listeners: (0_i64..).zip(ports).map(listener).collect(),
            },
            paths,
            times: options.build_times,
            directory: directory::client_options(options),
            bridges: options.bridges.clone(),
            proxied: options.network.proxy.is_some(),
            always_congestion_control: circuits.always_congestion_control,
        }
    }
}

/// When the client takes no part in the network. A relay always does.
fn dormancy(options: &Options) -> DormancyOptions {
    let process = &options.process;
    DormancyOptions {
        timeout: process.dormant_timeout.filter(|_| !options.is_relay()),
        streams_are_use: process.dormant_disabled_by_streams,
        on_first_start: process.dormant_on_first_startup,
        start_is_use: process.dormant_canceled_by_startup,
    }
}

/// The settings of a listener; a port without a session group gets a separate group.
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
        prefer_ipv6_automap: flags.prefer_ipv6_automap,
        dns: flags.dns_request,
        keep_alive_auth: asked.keep_alive_socks_auth,
        multipath: flags.multipath,
    }
}
