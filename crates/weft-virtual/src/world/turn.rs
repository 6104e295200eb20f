//! A turn of a connection thread.

use std::time::{Duration, Instant};

use weft_core::link::loss::TcpCounters;
use weft_core::scheduler::kist;
use weft_core::slots::{LinkKey, SlotKey as _};
use weft_model::hosts::Socket;

use super::ground::Ground;
use super::link::{Link, Phase};
use super::thread::{Around, Thread};

/// Time limit of a link's handshake, as in a node.
const HANDSHAKE: Duration = Duration::from_secs(60);
/// Ticks in which the TCP counters of every link are read once.
const TCP_TURNS: usize = 4;

impl Thread {
    /// One turn, as `ConnectionThread::turn` of a node takes it.
    pub(super) fn turn(&mut self, around: &mut Around<'_>) {
        let now = around.ground.now();
        let start = around.ground.nanos();
        let cells_before = self.cells();
        if self.retry_at.is_some_and(|at| at <= start) {
            self.retry_at = None;
            self.to_read.extend(self.rate_limited.drain(..));
        }
        self.take_mail(now, around.ground);
        self.read_links(now, around);
        self.read_edges(now, around);
        if std::mem::take(&mut self.tick_is_due) {
            self.tick(now, around);
        }
        self.schedule_and_write(now, around);
        self.write_edges(now, around);
        let costs = around.costs;
        let work = costs.turn + costs.cell * (self.cells() - cells_before);
        self.worked += work;
        self.busy_until = start + work;
        if around.limits.take_refused() {
            self.manager.note_limited();
        }
        if self.manager.measures_abra() {
            self.manager.note_turn(Duration::from_nanos(work));
        }
    }

    /// Cells that it had to do with.
    fn cells(&self) -> u64 {
        let totals = self.manager.totals();
        totals.cells_relayed + totals.cells_recognized + totals.cells_scheduled
    }

    fn take_mail(&mut self, now: Instant, ground: &mut Ground) {
        while let Some(message) = self.mail.controller.pop_front() {
            for id in self.manager.handle_controller(message, now) {
                self.close_by_id(id, ground);
            }
        }
        // Cells that are there now were sent after control messages that are there now.
        let controls = std::mem::take(&mut self.mail.controls);
        self.manager.handle_controls(controls, now);
        for (from, cells, empties) in std::mem::take(&mut self.mail.cells) {
            self.manager.handle_cells(from, cells, empties, now);
        }
        self.move_links(now, ground);
    }

    fn schedule_and_write(&mut self, now: Instant, around: &mut Around<'_>) {
        let options = around.options;
        if self.runs.is_due(options.run_interval, now) && self.manager.has_backlog() {
            let (links, by_link) = (&self.links, &self.by_link);
            let net = &mut around.ground.net;
            self.manager.schedule(now, |key: LinkKey| {
                let place = by_link.get(key.index()).copied().flatten();
                let Some(link) = place.and_then(|place| links.get(place)) else {
                    return 0;
                };
                if !link.writable || link.muted || !link.out.is_empty() {
                    return 0;
                }
                let Some(socket) = net.socket(link.conn, link.end) else {
                    return 0;
                };
                let state = socket_state(&socket);
                let factor = options.sock_buf_size_factor;
                kist::cells(kist::write_limit(&state, 0, factor))
            });
            self.runs.ran(now, self.manager.has_backlog());
        }
        let mut writing = std::mem::take(&mut self.writing);
        writing.clear();
        writing.extend_from_slice(self.manager.links().listed());
        for key in writing.iter().copied() {
            self.write_link(key, now, around);
        }
        self.writing = writing;
        self.manager.links_mut().prune_written();
    }

    fn tick(&mut self, now: Instant, around: &mut Around<'_>) {
        self.ticks += 1;
        for (place, link) in &self.links {
            if place % TCP_TURNS == self.ticks % TCP_TURNS
                && let Phase::Open(key) = link.phase
                && self.manager.watches_loss(key)
                && let Some(counters) = counters(link, around.ground)
            {
                self.manager.links_mut().tcp_read(key, counters, now);
            }
        }
        for (id, _) in self.manager.handle_timeout(now) {
            if let Some(place) = self.by_id.get(&id).copied() {
                self.end_link(place, now, around.ground);
            }
        }
        let is_late = |link: &Link| {
            let waited = now.saturating_duration_since(link.since);
            matches!(link.phase, Phase::Handshake(_)) && waited >= HANDSHAKE
        };
        let late = self.links.iter().filter(|(_, link)| is_late(link));
        for place in late.map(|(place, _)| place).collect::<Vec<_>>() {
            self.end_link(place, now, around.ground);
        }
    }
}

/// State of a socket, as the kernel would report it.
fn socket_state(socket: &Socket) -> kist::SocketState {
    let segments = |bytes: u64| {
        let count = bytes.div_ceil(u64::from(socket.mss.max(1)));
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    kist::SocketState {
        congestion_window: segments(socket.window),
        unacked: segments(socket.unacknowledged),
        segment_size: socket.mss,
        not_sent: u32::try_from(socket.unsent).unwrap_or(u32::MAX),
    }
}

/// TCP counters of a link, as the kernel would report them.
fn counters(link: &Link, ground: &mut Ground) -> Option<TcpCounters> {
    let socket = ground.net.socket(link.conn, link.end)?;
    let other = ground.net.socket(link.conn, link.end.other())?;
    // The kernel's counters wrap as well.
    let count = |n: u64| (n & u64::from(u32::MAX)) as u32;
    Some(TcpCounters {
        sent: count(socket.sent.segments),
        retransmitted: count(socket.sent.again),
        received: count(other.sent.segments),
        out_of_order: count(socket.out_of_order),
        round_trip: socket.round_trip,
    })
}
