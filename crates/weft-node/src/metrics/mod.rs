//! The MetricsPort: the relay's counters as text for Prometheus, over HTTP.
//!
//! The main thread makes a [`Snapshot`] about once a second, from the connection threads' reports
//! and its own counters; a separate thread ([`MetricsServer`]) writes the latest as text for each
//! request. So requests cost the main thread and the connection threads nothing. If the process has
//! several identities, one of them answers for all, with a label that names each number's identity.
//!
//! [`tor`] writes the families that C tor has, with C tor's names, types and labels; [`weft`] writes those
//! that only Weft has: the load of every thread.

mod render;
pub(crate) mod request;
mod server;
mod snapshot;
mod text;
mod tor;
mod weft;

pub(crate) use server::MetricsServer;
pub(crate) use snapshot::{
    DirectoryMemory, ListenerCounts, METRICS, MainCounts, Snapshot, Snapshots, TypedConnections,
};

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use weft_cell::abra::AbraReason;
    use weft_client::{ProbeCounts, StatementCounts, TunnelCounts};
    use weft_core::address::ThreadId;
    use weft_core::controller::{AbraCounts, FamilyCounts};
    use weft_core::memory::ledger::Ledger;
    use weft_core::message::{
        CircpadTotals, IntroTotals, RendezvousTotals, Report, RingDepths, Totals,
    };
    use weft_dir::command::{RelayFlag, RelayFlags};
    use weft_dircache::hs_dir::HsDirCounts;

    use super::render::render;
    use super::*;
    use crate::client::ClientCounts;
    use crate::workers::WorkerCounts;

    /// A report whose numbers all differ.
    fn report(thread: u16) -> Report {
        let base = 100 * u64::from(thread);
        Report {
            thread: ThreadId(thread),
            bytes_per_second: 1234.6,
            ledger: Ledger::default(),
            memory_rounds: 0,
            buffered: base + 1,
            links: 2,
            halves: 5,
            circuits: 3,
            edges: 4,
            heaviest: Vec::new(),
            rings: RingDepths {
                control: 4,
                cells: 63,
                controller: 6,
                stuck_cells: 7,
            },
            cpu: Duration::from_millis(2500),
            exit_ports: Default::default(),
            activity: Default::default(),
            directions: Default::default(),
            totals: Totals {
                bytes_read: base + 10,
                destroys_received: base + 11,
                queues_overflowed: 3,
                queues_overflowed_forward: 2,
                reads_limited: base + 12,
                links_moved: base + 13,
                rendezvous: RendezvousTotals {
                    cells: base + 14,
                    ..RendezvousTotals::default()
                },
                intro: IntroTotals {
                    introduced: base + 15,
                    establish_malformed: base + 16,
                    ..IntroTotals::default()
                },
                circpad: CircpadTotals {
                    drops_sent: base + 17,
                    started: base + 18,
                    ..CircpadTotals::default()
                },
                ..Totals::default()
            },
        }
    }

    fn connections() -> Vec<TypedConnections> {
        let ipv4 = |ipv4| FamilyCounts { ipv4, ipv6: 0 };
        let or = weft_core::controller::ConnectionCounts {
            initiated: FamilyCounts { ipv4: 0, ipv6: 9 },
            ..Default::default()
        };
        let mut socks = TypedConnections::received("Socks", ipv4(21), ipv4(22));
        socks.rejected.ipv6 = 23;
        vec![
            TypedConnections::initiated("Socks listener", ipv4(2), ipv4(1)),
            TypedConnections {
                name: "OR",
                created: or,
                ..TypedConnections::default()
            },
            TypedConnections::initiated("Exit", ipv4(24), ipv4(25)),
            socks,
            TypedConnections::received(METRICS, FamilyCounts { ipv4: 5, ipv6: 1 }, ipv4(0)),
        ]
    }

    pub(super) fn snapshot() -> Snapshot {
        let mut counts = weft_core::controller::Counts::default();
        counts.relay_onionskins.ntor_v3.dropped = 8;
        (counts.intro_unsigned, counts.introduce_limited) = (26, 27);
        (counts.refused_dos, counts.refused_full) = (43, 44);
        (counts.exempted, counts.exempted_full) = (45, 46);
        let mut exits = weft_exit::ExitCounts::default();
        (exits.begins, exits.resolves, exits.ports_exhausted) = (13, 14, 2);
        Snapshot {
            identity: None,
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(1500),
            reports: vec![report(0), report(1)],
            counts,
            introductions: 21,
            dos: weft_core::limits::dos::DosCounts::default(),
            dir_port_full: 47,
            connections: connections(),
            max_connections: 19968,
            ports_exhausted: 1,
            exits,
            flags: RelayFlags::empty() | RelayFlag::Fast | RelayFlag::Running,
            hs_dir: Some(HsDirCounts {
                descriptors: 31,
                bytes: 32,
                stored: 33,
                not_newer: 34,
                not_found: 35,
                single_hop: 36,
                pruned: 37,
                ..HsDirCounts::default()
            }),
            directory: Some(DirectoryMemory {
                answers: 51,
                documents: 52,
                work: 53,
            }),
            client: Some(ClientCounts {
                open: 7,
                probes: ProbeCounts {
                    slow: 15,
                    ..ProbeCounts::default()
                },
                round_trip_limit: Some(Duration::from_millis(500)),
                statements: StatementCounts {
                    forged: 16,
                    ..StatementCounts::default()
                },
                tunnels: TunnelCounts {
                    ready: 19,
                    slow: 20,
                    ..TunnelCounts::default()
                },
            }),
            abra: Some(AbraCounts {
                weight: 0.25,
                reason: AbraReason::FullLink,
                subscribers: 17,
                statements: 18,
            }),
            signing_expires: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(77)),
            onionskins_queued: 6,
            workers: vec![WorkerCounts {
                pending: 1,
                answered: 4,
                worked: Duration::from_micros(250),
                waited: Duration::from_secs(2),
            }],
            main: MainCounts {
                turns: 1,
                threads_in_use: 2,
                cpu: Duration::from_secs(3),
                from_threads: vec![40, 41],
                to_threads: vec![0, 42],
            },
        }
    }

    #[test]
    fn the_text_has_every_number_of_a_snapshot() {
        let text = render(&[snapshot().into()], FamilyCounts { ipv4: 1, ipv6: 0 });
        for line in [
            // The threads' counters are added up under C tor's names,
            "tor_relay_traffic_bytes{direction=\"read\"} 120",
            "tor_relay_destroy_cell_total 122",
            "tor_relay_circuits_total{state=\"opened\"} 6",
            "tor_relay_load_global_rate_limit_reached_total{side=\"read\"} 124",
            "tor_relay_dos_total{type=\"circuit_killed_max_cell\"} 6",
            "tor_relay_dos_total{type=\"circuit_killed_max_cell_outq\"} 4",
            "tor_relay_dos_total{type=\"introduce2_rejected\"} 27",
            "tor_relay_est_intro_total{action=\"malformed\"} 158",
            "tor_relay_intro1_total{action=\"success\"} 130",
            "tor_relay_intro1_total{action=\"rate_limited\"} 27",
            "tor_relay_load_onionskins_total{type=\"ntor_v3\",action=\"dropped\"} 8",
            "tor_relay_load_socket_total{state=\"opened\"} 49",
            "tor_relay_load_socket_total 19968",
            "weft_exit_dns_queries_total{record=\"AAAA\"} 0",
            "weft_exit_dns_results_total{record=\"PTR\",reason=\"unreachable\"} 0",
            "weft_connections_refused_total{reason=\"address\"} 43",
            "weft_connections_refused_total{reason=\"full\"} 44",
            "weft_connections_refused_total{reason=\"directory\"} 47",
            "weft_connections_exempted_total{limit=\"address\"} 45",
            "weft_connections_exempted_total{limit=\"full\"} 46",
            "tor_relay_load_oom_bytes_total{subsys=\"hsdir\"} 37",
            "tor_relay_connections_total{type=\"OR\",direction=\"initiated\",state=\"created\",\
             family=\"ipv6\"} 9",
            "tor_relay_connections{type=\"Metrics\",direction=\"received\",state=\"opened\",\
             family=\"ipv4\"} 1",
            "tor_relay_connections_total{type=\"Metrics\",direction=\"received\",state=\"created\",\
             family=\"ipv4\"} 5",
            "tor_relay_connections_total{type=\"Socks\",direction=\"received\",state=\"rejected\",\
             family=\"ipv6\"} 23",
            "tor_relay_connections_total{type=\"Socks listener\",direction=\"initiated\",\
             state=\"created\",family=\"ipv4\"} 2",
            "tor_relay_connections{type=\"Socks\",direction=\"received\",state=\"opened\",\
             family=\"ipv4\"} 22",
            "tor_relay_connections{type=\"Exit\",direction=\"initiated\",state=\"opened\",\
             family=\"ipv4\"} 25",
            "tor_relay_load_tcp_exhaustion_total 3",
            "tor_relay_streams_total{type=\"BEGIN\"} 13",
            "tor_relay_streams_total{type=\"RESOLVE\"} 14",
            "tor_relay_exit_dns_query_total 0",
            "tor_relay_exit_dns_error_total{reason=\"tor_timeout\"} 0",
            "tor_relay_flag{type=\"Fast\"} 1",
            "tor_relay_flag{type=\"Guard\"} 0",
            "tor_relay_signing_cert_expiry_timestamp 77",
            // and listed one by one under Weft's.
            "weft_thread_load_bytes_per_second{thread=\"1\"} 1235",
            "weft_thread_cpu_seconds_total{thread=\"0\"} 2.5",
            "weft_thread_bytes_total{thread=\"1\",direction=\"read\"} 110",
            "weft_thread_ring_depth{thread=\"1\",lane=\"cells\"} 63",
            "weft_thread_links_moved_total{thread=\"1\"} 113",
            "weft_threads_in_use 2",
            "weft_thread_stuck_cells{thread=\"0\"} 7",
            "weft_thread_buffered_bytes{thread=\"1\"} 101",
            "weft_introduction_circuits 21",
            "weft_rendezvous_cells_total 128",
            "weft_circuit_padding_cells_total{result=\"sent\"} 134",
            "weft_circuit_padding_machines_total{event=\"started\"} 136",
            "weft_onionskins_waiting{worker=\"0\"} 1",
            "weft_onionskin_work_seconds_total{worker=\"0\"} 0.00025",
            "weft_onionskin_wait_seconds_total{worker=\"0\"} 2",
            "weft_main_ring_depth{thread=\"1\"} 41",
            "weft_main_stuck_messages{thread=\"1\"} 42",
            "weft_hsdir_descriptors 31",
            "weft_hsdir_bytes 32",
            "weft_directory_bytes{held=\"answers\"} 51",
            "weft_directory_bytes{held=\"documents\"} 52",
            "weft_directory_bytes{held=\"work\"} 53",
            "weft_hsdir_uploads_total{result=\"stored\"} 33",
            "weft_hsdir_uploads_total{result=\"not_newer\"} 34",
            "weft_hsdir_fetches_total{result=\"not_found\"} 35",
            "weft_hsdir_single_hop_total 36",
            "weft_abra_weight 0.25",
            "weft_abra_reason{reason=\"full_link\"} 1",
            "weft_abra_reason{reason=\"own_limits\"} 0",
            "weft_abra_subscribers 17",
            "weft_client_circuits_open 7",
            "weft_client_probes_total{result=\"slow\"} 15",
            "weft_client_round_trip_limit_seconds 0.5",
            "weft_client_statements_total{result=\"forged\"} 16",
            "weft_client_tunnels_total{event=\"ready\"} 19",
            "weft_client_tunnel_legs_total{event=\"slow\"} 20",
            "weft_start_time_seconds 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn the_expiry_of_the_signing_key_needs_an_offline_master_key() {
        let mut snapshot = snapshot();
        snapshot.signing_expires = None;
        let text = render(&[snapshot.into()], FamilyCounts::default());
        assert!(!text.contains("signing_cert_expiry"));
    }
}
