//! The families that only Weft has: the load of every thread (docs/operator.md explains them).

use std::time::SystemTime;

use weft_cell::abra::AbraReason;
use weft_core::controller::AbraCounts;
use weft_core::message::Report;
use weft_dircache::hs_dir::HsDirCounts;
use weft_exit::{ExitCounts, QueryKind};

use super::snapshot::{DirectoryMemory, Snapshot};
use super::text::{Kind, Text};
use crate::client::ClientCounts;

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    relay(text, snapshot);
    work(text, &snapshot.reports);
    waiting(text, &snapshot.reports);
    onionskins(text, snapshot);
    main_thread(text, snapshot);
    names(text, &snapshot.exits);
    tunnels(text, snapshot);
    onion_services(text, snapshot);
    if let Some(counts) = &snapshot.hs_dir {
        hs_dir(text, counts);
    }
    if let Some(memory) = &snapshot.directory {
        directory(text, memory);
    }
    if let Some(counts) = &snapshot.abra {
        abra(text, snapshot, counts);
    }
    if let Some(counts) = &snapshot.client {
        client(text, counts);
    }
}

/// Answers of name servers, by record type. C tor has the label but leaves it out, because its
/// resolver does not know the type of an answer.
fn names(text: &mut Text, counts: &ExitCounts) {
    text.family(
        "weft_exit_dns_queries_total",
        Kind::Counter,
        "Queries that name servers were sent, by record type",
    );
    for kind in QueryKind::ALL {
        text.sample(&[("record", kind.record())], counts.dns_queries_of(kind));
    }
    text.family(
        "weft_exit_dns_results_total",
        Kind::Counter,
        "Results of these queries: a record, or what went wrong",
    );
    for kind in QueryKind::ALL {
        for (reason, count) in counts.dns_results_of(kind) {
            text.sample(&[("record", kind.record()), ("reason", reason)], count);
        }
    }
}

/// Counts of conflux sets.
fn tunnels(text: &mut Text, snapshot: &Snapshot) {
    let totals = snapshot.totals().tunnels;
    text.family(
        "weft_tunnels_total",
        Kind::Counter,
        "Sets of circuits over which streams are spread (conflux), and what became of them",
    );
    for (event, count) in [
        ("made", totals.made),
        ("closed", totals.closed),
        ("broken", totals.broken),
        ("lost", totals.lost),
        ("overflowed", totals.overflowed),
    ] {
        text.sample(&[("event", event)], count);
    }
    text.family(
        "weft_tunnel_messages_total",
        Kind::Counter,
        "CONFLUX_LINKs that arrived, legs that were linked, CONFLUX_SWITCHes sent, and messages that waited for earlier ones",
    );
    for (message, count) in [
        ("link", totals.links),
        ("linked", totals.linked),
        ("switch", totals.switches),
        ("reordered", totals.reordered),
    ] {
        text.sample(&[("message", message)], count);
    }
}

/// Circuits of onion services and of their clients, and how they are padded.
fn onion_services(text: &mut Text, snapshot: &Snapshot) {
    let totals = snapshot.totals();
    text.single(
        "weft_introduction_circuits",
        Kind::Gauge,
        "Introduction circuits of onion services",
        snapshot.introductions,
    );
    text.single(
        "weft_rendezvous_cells_total",
        Kind::Counter,
        "Relay cells passed on between circuits that met here",
        totals.rendezvous.cells,
    );
    let padding = &totals.circpad;
    text.family(
        "weft_circuit_padding_machines_total",
        Kind::Counter,
        "Padding machines of circuits: started, stopped by clients, at their end; and requests for one that is not known",
    );
    for (event, count) in [
        ("started", padding.started),
        ("stopped", padding.stopped),
        ("ended", padding.ended),
        ("refused", padding.refused),
    ] {
        text.sample(&[("event", event)], count);
    }
    text.family(
        "weft_circuit_padding_cells_total",
        Kind::Counter,
        "DROPs for the padding of circuits: received, sent, and not sent because much waited",
    );
    for (result, count) in [
        ("received", totals.drops_received),
        ("sent", padding.drops_sent),
        ("held", padding.drops_held),
    ] {
        text.sample(&[("result", result)], count);
    }
}

/// Memory of the directory.
fn directory(text: &mut Text, memory: &DirectoryMemory) {
    text.family(
        "weft_directory_bytes",
        Kind::Gauge,
        "Bytes of memory that the directory holds: answers being sent (counted for MaxMemInQueues), documents, and \
         compressions and diffs of a new consensus while they are made",
    );
    for (held, bytes) in [
        ("answers", memory.answers),
        ("documents", memory.documents),
        ("work", memory.work),
    ] {
        text.sample(&[("held", held)], bytes);
    }
}

/// Descriptors and counts of the directory of onion services.
fn hs_dir(text: &mut Text, counts: &HsDirCounts) {
    text.single(
        "weft_hsdir_descriptors",
        Kind::Gauge,
        "Descriptors of onion services that are kept",
        counts.descriptors,
    );
    text.single(
        "weft_hsdir_bytes",
        Kind::Gauge,
        "Bytes that they take (at most MaxHSDirCacheBytes)",
        counts.bytes,
    );
    text.family(
        "weft_hsdir_uploads_total",
        Kind::Counter,
        "Descriptors of onion services that were published here, by result",
    );
    for (result, count) in [
        ("stored", counts.stored),
        ("not_newer", counts.not_newer),
        ("unsigned", counts.unsigned),
        ("malformed", counts.malformed),
        ("too_long", counts.too_long),
    ] {
        text.sample(&[("result", result)], count);
    }
    text.family(
        "weft_hsdir_fetches_total",
        Kind::Counter,
        "Requests for descriptors of onion services, by result",
    );
    text.sample(&[("result", "found")], counts.found);
    text.sample(&[("result", "not_found")], counts.not_found);
    text.single(
        "weft_hsdir_single_hop_total",
        Kind::Counter,
        "Uploads and requests that were refused because they did not come by another relay",
        counts.single_hop,
    );
}

/// The relay's statements about its bandwidth (docs/extensions/abra.md).
fn abra(text: &mut Text, snapshot: &Snapshot, counts: &AbraCounts) {
    text.single(
        "weft_abra_weight",
        Kind::Gauge,
        "How scarce the relay's bandwidth is, in 1/(Mbit/s), as it stated last",
        counts.weight,
    );
    text.family(
        "weft_abra_reason",
        Kind::Gauge,
        "1 for what holds the relay back, as it stated last",
    );
    for reason in AbraReason::ALL {
        let is_it = u8::from(reason == counts.reason);
        text.sample(&[("reason", reason.word())], is_it);
    }
    text.single(
        "weft_abra_subscribers",
        Kind::Gauge,
        "Circuits that asked for the weight",
        counts.subscribers,
    );
    let totals = snapshot.totals();
    text.family(
        "weft_abra_messages_total",
        Kind::Counter,
        "Requests for the weight, and statements sent",
    );
    text.sample(&[("message", "asked")], totals.abra_asked);
    text.sample(&[("message", "sent")], totals.abra_sent);
}

/// Counts of a client.
fn client(text: &mut Text, counts: &ClientCounts) {
    text.single(
        "weft_client_circuits_open",
        Kind::Gauge,
        "Circuits that streams may use",
        counts.open,
    );
    let probes = &counts.probes;
    text.family(
        "weft_client_probes_total",
        Kind::Counter,
        "Circuits whose round trip was measured (CircuitAcceptance rtt or both), by result",
    );
    for (result, count) in [
        ("accepted", probes.accepted),
        ("slow", probes.slow),
        ("unproven", probes.unproven),
        ("unanswered", probes.unanswered),
    ] {
        text.sample(&[("result", result)], count);
    }
    text.single(
        "weft_client_round_trip_limit_seconds",
        Kind::Gauge,
        "The longest round trip of a circuit that is used; 0: there is no limit",
        counts.round_trip_limit.unwrap_or_default().as_secs_f64(),
    );
    let statements = &counts.statements;
    text.family(
        "weft_client_statements_total",
        Kind::Counter,
        "What relays stated of their bandwidth (CircuitSelection abra), by what became of it",
    );
    for (result, count) in [
        ("accepted", statements.accepted),
        ("malformed", statements.malformed),
        ("forged", statements.forged),
        ("stale", statements.stale),
        ("ahead", statements.ahead),
    ] {
        text.sample(&[("result", result)], count);
    }
    let tunnels = &counts.tunnels;
    text.family(
        "weft_client_tunnels_total",
        Kind::Counter,
        "Tunnels of mTor that the client has begun, those that carried streams, and streams that should have had one and got another circuit",
    );
    for (event, count) in [
        ("begun", tunnels.begun),
        ("ready", tunnels.ready),
        ("without", tunnels.without),
    ] {
        text.sample(&[("event", event)], count);
    }
    text.family(
        "weft_client_tunnel_legs_total",
        Kind::Counter,
        "Legs of tunnels of mTor that were launched, among them those in place of others, and legs that were slow or closed",
    );
    for (event, count) in [
        ("launched", tunnels.legs),
        ("replaced", tunnels.replaced),
        ("slow", tunnels.slow),
        ("lost", tunnels.lost),
    ] {
        text.sample(&[("event", event)], count);
    }
}

/// Writes one number of each connection thread.
fn each<T: std::fmt::Display>(
    text: &mut Text,
    reports: &[Report],
    family: (&'static str, Kind, &'static str),
    number: impl Fn(&Report) -> T,
) {
    text.family(family.0, family.1, family.2);
    for report in reports {
        let thread = report.thread.0.to_string();
        text.sample(&[("thread", &thread)], number(report));
    }
}

/// Writes several numbers of each connection thread, distinguished by a label.
fn each_of<const N: usize>(
    text: &mut Text,
    reports: &[Report],
    family: (&'static str, Kind, &'static str),
    label: &str,
    numbers: impl Fn(&Report) -> [(&'static str, u64); N],
) {
    text.family(family.0, family.1, family.2);
    for report in reports {
        let thread = report.thread.0.to_string();
        for (name, number) in numbers(report) {
            text.sample(&[("thread", &thread), (label, name)], number);
        }
    }
}

fn relay(text: &mut Text, snapshot: &Snapshot) {
    text.family("weft_build_info", Kind::Gauge, "Version of Weft");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let started = snapshot.started.duration_since(SystemTime::UNIX_EPOCH);
    text.single(
        "weft_start_time_seconds",
        Kind::Gauge,
        "Unix time at which the relay started",
        started.map_or(0.0, |since| since.as_secs_f64()),
    );
    let counts = &snapshot.counts;
    text.family(
        "weft_extends_total",
        Kind::Counter,
        "EXTEND2 by result: an open link served it, it waited for a new one, it failed",
    );
    for (result, count) in [
        ("joined", counts.extends_joined),
        ("waited", counts.extends_waited),
        ("failed", counts.extends_failed),
    ] {
        text.sample(&[("result", result)], count);
    }
    text.family(
        "weft_relay_connections_total",
        Kind::Counter,
        "Connections opened to relays, by reason: there was none that serves, each circuit has its own, or packets are lost on the other",
    );
    for (reason, count) in [
        (
            "first",
            counts.connected.saturating_sub(counts.connected_again),
        ),
        (
            "circuit",
            counts
                .connected_again
                .saturating_sub(counts.connected_for_loss),
        ),
        ("loss", counts.connected_for_loss),
    ] {
        text.sample(&[("reason", reason)], count);
    }
    text.family(
        "weft_circuits_shared_at_bound_total",
        Kind::Counter,
        "Circuits that share a connection in spite of ConnectionPerCircuit: there are as many connections as may be",
    );
    text.sample(&[], counts.extends_shared);
    text.family(
        "weft_connections_refused_total",
        Kind::Counter,
        "Connections refused when they came, and streams of exits: the address has too many or makes them too fast, or there are no files (full: ORPort and exit, directory: DirPort)",
    );
    for (reason, count) in [
        ("address", counts.refused_dos),
        ("full", counts.refused_full),
        ("directory", snapshot.dir_port_full),
    ] {
        text.sample(&[("reason", reason)], count);
    }
    text.family(
        "weft_connections_exempted_total",
        Kind::Counter,
        "Connections from addresses of relays: not counted for their address, and accepted where others would have had to give way",
    );
    text.sample(&[("limit", "address")], counts.exempted);
    text.sample(&[("limit", "full")], counts.exempted_full);
    text.family(
        "weft_displaced_total",
        Kind::Counter,
        "Items displaced because their previous hop held most of a full bound",
    );
    let requests = snapshot.reports.iter();
    let requests = requests
        .map(|report| report.totals.requests_displaced)
        .sum();
    for (of, count) in [
        ("requests", requests),
        ("connecting", counts.connections_displaced),
        ("open", counts.open_displaced),
        ("extends", counts.extends_displaced),
        ("rendezvous", counts.cookies_displaced),
        ("introductions", counts.intros_displaced),
        ("names", snapshot.exits.look_ups_refused),
    ] {
        text.sample(&[("of", of)], count);
    }
}

/// The work of connection threads.
fn work(text: &mut Text, reports: &[Report]) {
    let load = (
        "weft_thread_load_bytes_per_second",
        Kind::Gauge,
        "Bytes read and written, averaged: those of ten seconds ago count half",
    );
    each(text, reports, load, |report| {
        report.bytes_per_second.round()
    });
    let cpu = (
        "weft_thread_cpu_seconds_total",
        Kind::Counter,
        "Processor time of a connection thread",
    );
    each(text, reports, cpu, |report| report.cpu.as_secs_f64());
    let turns = (
        "weft_thread_turns_total",
        Kind::Counter,
        "Turns of a connection thread's loop",
    );
    each(text, reports, turns, |report| report.totals.turns);
    let moved = (
        "weft_thread_links_moved_total",
        Kind::Counter,
        "Links that moved to a connection thread from another one",
    );
    each(text, reports, moved, |report| report.totals.links_moved);
    let runs = (
        "weft_thread_scheduler_runs_total",
        Kind::Counter,
        "Turns in which the scheduler chose cells",
    );
    each(text, reports, runs, |report| report.totals.scheduler_runs);
    let scheduled = (
        "weft_thread_scheduled_cells_total",
        Kind::Counter,
        "Cells that the scheduler chose",
    );
    each(text, reports, scheduled, |report| {
        report.totals.cells_scheduled
    });
    let reads = (
        "weft_thread_link_reads_total",
        Kind::Counter,
        "Times that a link's socket gave bytes",
    );
    each(text, reports, reads, |report| report.totals.link_reads);
    let writes = (
        "weft_thread_link_writes_total",
        Kind::Counter,
        "Times that a link's socket took bytes",
    );
    each(text, reports, writes, |report| report.totals.link_writes);
    let asked = (
        "weft_thread_kernel_asked_total",
        Kind::Counter,
        "Times that the kernel was asked how much a link's socket may be given (KIST)",
    );
    each(text, reports, asked, |report| report.totals.kernel_asked);
    let bytes = (
        "weft_thread_bytes_total",
        Kind::Counter,
        "Bytes moved by a connection thread, TLS included",
    );
    each_of(text, reports, bytes, "direction", |report| {
        [
            ("read", report.totals.bytes_read),
            ("written", report.totals.bytes_written),
        ]
    });
    let cells = (
        "weft_thread_cells_total",
        Kind::Counter,
        "Cells of circuits: relayed to a link of this thread, for this relay, dropped",
    );
    each_of(text, reports, cells, "result", |report| {
        [
            ("relayed", report.totals.cells_relayed),
            ("recognized", report.totals.cells_recognized),
            ("dropped", report.totals.cells_dropped),
        ]
    });
    let padding = (
        "weft_thread_padding_cells_total",
        Kind::Counter,
        "Padding cells of links",
    );
    each_of(text, reports, padding, "direction", |report| {
        [
            ("received", report.totals.padding_received),
            ("sent", report.totals.padding_sent),
        ]
    });
    let closed = (
        "weft_thread_circuits_closed_total",
        Kind::Counter,
        "Circuits that a connection thread closed, by reason",
    );
    each_of(text, reports, closed, "reason", |report| {
        [
            ("queue", report.totals.queues_overflowed),
            ("memory", report.totals.killed_for_memory),
            ("timeout", report.totals.timed_out),
            ("protocol", report.totals.protocol_errors),
        ]
    });
    let links = (
        "weft_thread_links_closed_total",
        Kind::Counter,
        "Links that the relay closed, by reason",
    );
    each_of(text, reports, links, "reason", |report| {
        [("memory", report.totals.links_killed_for_memory)]
    });
}

/// The links and circuits of connection threads, and their queues.
fn waiting(text: &mut Text, reports: &[Report]) {
    let links = ("weft_thread_links", Kind::Gauge, "Open links");
    each(text, reports, links, |report| report.links);
    let halves = ("weft_thread_circuit_halves", Kind::Gauge, "Circuit halves");
    each(text, reports, halves, |report| report.halves);
    let queued = (
        "weft_thread_queued_bytes",
        Kind::Gauge,
        "Bytes of memory that circuits, streams and links hold",
    );
    each(text, reports, queued, |report| report.ledger.total());
    let buffered = (
        "weft_thread_buffered_bytes",
        Kind::Gauge,
        "Of these, bytes in TLS and socket buffers, and in cells for which a ring had no room",
    );
    each(text, reports, buffered, |report| report.buffered);
    let depth = (
        "weft_thread_ring_depth",
        Kind::Gauge,
        "The most that waited in one ring to the thread during the last second: control messages \
         and batches of cells of any one thread, messages of the main thread",
    );
    each_of(text, reports, depth, "lane", |report| {
        [
            ("control", report.rings.control.into()),
            ("cells", report.rings.cells.into()),
            ("main", report.rings.controller.into()),
        ]
    });
    let stuck = (
        "weft_thread_stuck_cells",
        Kind::Gauge,
        "Cells of the thread for others whose ring is full",
    );
    each(text, reports, stuck, |report| report.rings.stuck_cells);
}

fn onionskins(text: &mut Text, snapshot: &Snapshot) {
    let numbered = || (0u32..).map(|number| number.to_string());
    let workers = || numbered().zip(&snapshot.workers);
    text.family(
        "weft_onionskins_waiting",
        Kind::Gauge,
        "Onionskins that a worker has not answered yet",
    );
    for (worker, counts) in workers() {
        text.sample(&[("worker", &worker)], counts.pending);
    }
    text.single(
        "weft_onionskins_queued",
        Kind::Gauge,
        "Onionskins that wait until a worker takes them",
        snapshot.onionskins_queued,
    );
    text.family(
        "weft_onionskins_answered_total",
        Kind::Counter,
        "Onionskins that a worker answered",
    );
    for (worker, counts) in workers() {
        text.sample(&[("worker", &worker)], counts.answered);
    }
    text.family(
        "weft_onionskin_work_seconds_total",
        Kind::Counter,
        "Time that a worker spent on answering them",
    );
    for (worker, counts) in workers() {
        text.sample(&[("worker", &worker)], counts.worked.as_secs_f64());
    }
    text.family(
        "weft_onionskin_wait_seconds_total",
        Kind::Counter,
        "Time that they had waited for it",
    );
    for (worker, counts) in workers() {
        text.sample(&[("worker", &worker)], counts.waited.as_secs_f64());
    }
    text.single(
        "weft_onionskins_refused_total",
        Kind::Counter,
        "Onionskins refused because too many waited",
        snapshot.counts.onionskins_dropped,
    );
}

fn main_thread(text: &mut Text, snapshot: &Snapshot) {
    let main = &snapshot.main;
    text.single(
        "weft_main_cpu_seconds_total",
        Kind::Counter,
        "Processor time of the main thread",
        main.cpu.as_secs_f64(),
    );
    text.single(
        "weft_threads_in_use",
        Kind::Gauge,
        "Connection threads that get links",
        main.threads_in_use,
    );
    text.single(
        "weft_main_turns_total",
        Kind::Counter,
        "Turns of the main thread's loop",
        main.turns,
    );
    let threads = |lengths: &[usize]| -> Vec<(String, usize)> {
        let lengths = lengths.iter().copied();
        (0u32..)
            .map(|thread| thread.to_string())
            .zip(lengths)
            .collect()
    };
    text.family(
        "weft_main_ring_depth",
        Kind::Gauge,
        "The most messages of a connection thread that waited for the main thread in the last second",
    );
    for (thread, length) in threads(&main.from_threads) {
        text.sample(&[("thread", &thread)], length);
    }
    text.family(
        "weft_main_stuck_messages",
        Kind::Gauge,
        "Messages of the main thread for a connection thread whose ring is full",
    );
    for (thread, length) in threads(&main.to_threads) {
        text.sample(&[("thread", &thread)], length);
    }
}
