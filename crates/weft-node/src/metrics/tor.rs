//! The families that C tor has (relay_metrics.c), with C tor's names, types, help and labels. Families of
//! roles that Weft lacks are left out; docs/operator.md lists them.

use std::time::SystemTime;

use weft_core::controller::{FamilyCounts, Handled};
use weft_dir::command::RelayFlag;

use super::snapshot::{METRICS, Snapshot, TypedConnections};
use super::text::{Kind, Text};

/// Writes the families. `open` is the number of connections to the MetricsPort.
pub(super) fn write(text: &mut Text, snapshot: &Snapshot, open: FamilyCounts) {
    let mut all = snapshot.connections.clone();
    for one in all.iter_mut().filter(|one| one.name == METRICS) {
        one.open.received = open;
    }
    connections(text, &all);
    circuits(text, snapshot);
    load(text, snapshot, &all);
    defences(text, snapshot);
    introductions(text, snapshot);
    rendezvous(text, snapshot);
    exits(text, snapshot);
    network(text, snapshot);
}

/// Samples of one kind of connection, IPv4 and IPv6.
fn families(text: &mut Text, of: &str, direction: &str, state: &str, counts: FamilyCounts) {
    for (family, count) in [("ipv4", counts.ipv4), ("ipv6", counts.ipv6)] {
        let labels = [
            ("type", of),
            ("direction", direction),
            ("state", state),
            ("family", family),
        ];
        text.sample(&labels, count);
    }
}

/// `tor_relay_connections…`, of the types that Weft has, with every series that C tor has of each.
fn connections(text: &mut Text, all: &[TypedConnections]) {
    text.family(
        "tor_relay_connections_total",
        Kind::Counter,
        "Total number of created/rejected connections",
    );
    for one in all {
        for (direction, state, count) in [
            ("initiated", "created", one.created.initiated),
            ("received", "created", one.created.received),
            ("received", "rejected", one.rejected),
        ] {
            families(text, one.name, direction, state, count);
        }
    }
    text.family(
        "tor_relay_connections",
        Kind::Gauge,
        "Total number of opened connections",
    );
    for one in all {
        families(text, one.name, "initiated", "opened", one.open.initiated);
        families(text, one.name, "received", "opened", one.open.received);
    }
}

/// Circuits and the cells that control them.
fn circuits(text: &mut Text, snapshot: &Snapshot) {
    let totals = snapshot.totals();
    text.family(
        "tor_relay_circuits_total",
        Kind::Gauge,
        "Total number of circuits",
    );
    let circuits = snapshot.reports.iter();
    let circuits: u64 = circuits.map(|report| u64::from(report.circuits)).sum();
    text.sample(&[("state", "opened")], circuits);
    text.single(
        "tor_relay_destroy_cell_total",
        Kind::Counter,
        "Total number of DESTROY cell we received",
        totals.destroys_received,
    );
    text.single(
        "tor_relay_drop_cell_total",
        Kind::Counter,
        "Total number of DROP cell we received",
        totals.drops_received,
    );
    text.single(
        "tor_relay_circ_proto_violation_total",
        Kind::Counter,
        "Total number of circuit protocol violation",
        totals.protocol_errors,
    );
}

/// `tor_relay_load_…` and traffic.
fn load(text: &mut Text, snapshot: &Snapshot, all: &[TypedConnections]) {
    let (totals, counts) = (snapshot.totals(), &snapshot.counts);
    text.family(
        "tor_relay_load_onionskins_total",
        Kind::Counter,
        "Total number of onionskins handled",
    );
    let by_relays = &counts.relay_onionskins;
    for (handshake, handled) in [
        // An obsolete handshake that this relay refuses before counting, as C tor does.
        ("tap", Handled::default()),
        ("fast", by_relays.fast),
        ("ntor", by_relays.ntor),
        ("ntor_v3", by_relays.ntor_v3),
    ] {
        for (action, count) in [
            ("processed", handled.processed),
            ("dropped", handled.dropped),
        ] {
            text.sample(&[("type", handshake), ("action", action)], count);
        }
    }
    text.family(
        "tor_relay_load_oom_bytes_total",
        Kind::Counter,
        "Total number of bytes the OOM has freed by subsystem",
    );
    text.sample(&[("subsys", "cell")], totals.freed_for_memory);
    let pruned = snapshot.hs_dir.map_or(0, |counts| counts.pruned);
    text.sample(&[("subsys", "hsdir")], pruned);
    text.family(
        "tor_relay_load_socket_total",
        Kind::Gauge,
        "Total number of sockets",
    );
    let both = |counts: FamilyCounts| counts.ipv4 + counts.ipv6;
    let sockets: u64 = all
        .iter()
        .map(|one| both(one.open.initiated) + both(one.open.received))
        .sum();
    text.sample(&[("state", "opened")], sockets);
    text.sample(&[], snapshot.max_connections);
    text.family(
        "tor_relay_load_global_rate_limit_reached_total",
        Kind::Counter,
        "Total number of global connection bucket limit reached",
    );
    text.sample(&[("side", "read")], totals.reads_limited);
    text.sample(&[("side", "write")], totals.writes_limited);
    text.single(
        "tor_relay_load_tcp_exhaustion_total",
        Kind::Counter,
        "Total number of times we ran out of TCP ports",
        snapshot.ports_exhausted + snapshot.exits.ports_exhausted,
    );
    text.family(
        "tor_relay_traffic_bytes",
        Kind::Counter,
        "Traffic related counters",
    );
    text.sample(&[("direction", "read")], totals.bytes_read);
    text.sample(&[("direction", "written")], totals.bytes_written);
}

/// Denial of service.
fn defences(text: &mut Text, snapshot: &Snapshot) {
    let (totals, dos) = (snapshot.totals(), &snapshot.dos);
    text.family(
        "tor_relay_dos_total",
        Kind::Counter,
        "Denial of Service defenses related counters",
    );
    for (of, count) in [
        ("circuit_rejected", dos.circuits),
        ("circuit_killed_max_cell", totals.queues_overflowed),
        (
            "circuit_killed_max_cell_outq",
            totals.queues_overflowed_forward,
        ),
        ("marked_address", dos.addresses_marked),
        ("marked_address_maxq", dos.addresses_marked_for_queues),
        ("conn_rejected", dos.connections_too_fast),
        ("concurrent_conn_rejected", dos.connections_concurrent),
        ("single_hop_refused", dos.single_hop),
        ("introduce2_rejected", snapshot.counts.introduce_limited),
        ("stream_rejected", totals.streams.too_many),
    ] {
        text.sample(&[("type", of)], count);
    }
}

/// Introduction circuits of onion services, and the clients that are introduced on them.
fn introductions(text: &mut Text, snapshot: &Snapshot) {
    let (totals, counts) = (snapshot.totals().intro, &snapshot.counts);
    text.family(
        "tor_relay_est_intro_total",
        Kind::Counter,
        "Total number of EST_INTRO cells we received",
    );
    for (action, count) in [
        ("success", totals.established),
        (
            "malformed",
            totals.establish_malformed + counts.intro_unsigned,
        ),
        ("unsuitable_circuit", totals.establish_unsuitable),
        ("circuit_dead", totals.establish_dead),
    ] {
        text.sample(&[("action", action)], count);
    }
    text.family(
        "tor_relay_intro1_total",
        Kind::Counter,
        "Total number of INTRO1 cells we received",
    );
    for (action, count) in [
        ("success", totals.introduced),
        ("circuit_dead", totals.introduce_dead),
        (
            "malformed",
            totals.introduce_malformed + counts.introduce_malformed,
        ),
        ("unknown_service", counts.introduce_unknown),
        ("rate_limited", counts.introduce_limited),
        ("circuit_reused", totals.introduce_reused),
        ("single_hop", counts.introduce_single_hop),
    ] {
        text.sample(&[("action", action)], count);
    }
}

/// Rendezvous circuits of clients and onion services.
fn rendezvous(text: &mut Text, snapshot: &Snapshot) {
    let (totals, counts) = (snapshot.totals().rendezvous, &snapshot.counts);
    text.family(
        "tor_relay_est_rend_total",
        Kind::Counter,
        "Total number of EST_REND cells we received",
    );
    for (action, count) in [
        ("success", totals.established),
        ("unsuitable_circuit", totals.establish_unsuitable),
        ("single_hop", snapshot.dos.single_hop),
        ("malformed", totals.establish_malformed),
        ("duplicate_cookie", counts.cookies_taken),
        ("circuit_dead", totals.establish_dead),
    ] {
        text.sample(&[("action", action)], count);
    }
    text.family(
        "tor_relay_rend1_total",
        Kind::Counter,
        "Total number of REND1 cells we received",
    );
    for (action, count) in [
        ("success", totals.joined),
        ("unsuitable_circuit", totals.join_unsuitable),
        ("malformed", totals.join_malformed),
        ("unknown_cookie", counts.cookies_unknown),
        ("circuit_dead", totals.join_dead),
    ] {
        text.sample(&[("action", action)], count);
    }
}

/// Streams that end at this relay, and their DNS queries.
fn exits(text: &mut Text, snapshot: &Snapshot) {
    let exits = &snapshot.exits;
    text.family(
        "tor_relay_streams_total",
        Kind::Counter,
        "Total number of streams",
    );
    for (command, count) in [
        ("BEGIN", exits.begins),
        ("BEGIN_DIR", exits.begin_dirs),
        ("RESOLVE", exits.resolves),
    ] {
        text.sample(&[("type", command)], count);
    }
    text.single(
        "tor_relay_exit_dns_query_total",
        Kind::Counter,
        "Total number of DNS queries done by this relay",
        exits.dns_queries(),
    );
    text.family(
        "tor_relay_exit_dns_error_total",
        Kind::Counter,
        "Total number of DNS errors encountered by this relay",
    );
    for (reason, count) in exits.dns_results() {
        text.sample(&[("reason", reason)], count);
    }
}

/// The relay's flags in the consensus, and the end of its signing key.
fn network(text: &mut Text, snapshot: &Snapshot) {
    text.family("tor_relay_flag", Kind::Gauge, "Relay flags from consensus");
    for (name, flag) in [
        ("Fast", RelayFlag::Fast),
        ("Exit", RelayFlag::Exit),
        ("Authority", RelayFlag::Authority),
        ("Stable", RelayFlag::Stable),
        ("HSDir", RelayFlag::HSDir),
        ("Running", RelayFlag::Running),
        ("V2Dir", RelayFlag::V2Dir),
        ("Guard", RelayFlag::Guard),
    ] {
        let has = snapshot.flags.contains(flag);
        text.sample(&[("type", name)], u8::from(has));
    }
    if let Some(expires) = snapshot.signing_expires {
        let expires = expires.duration_since(SystemTime::UNIX_EPOCH);
        text.single(
            "tor_relay_signing_cert_expiry_timestamp",
            Kind::Gauge,
            "Timestamp at which the current online keys will expire",
            expires.map_or(0, |since| since.as_secs()),
        );
    }
}
