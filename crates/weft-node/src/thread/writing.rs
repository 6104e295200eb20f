//! Output: the scheduler chooses, TLS encrypts, sockets take.

use std::time::Instant;

use weft_config::options::SchedulerKind;
use weft_core::manager::Room;
use weft_core::memory::cells::Empties;
use weft_core::scheduler::{RunTimes, kist};
use weft_core::slots::{LinkKey, SlotKey as _};

use super::close_reason::CloseReason;
use super::connection::{Connection, Phase};
use super::limit::Direction;
use super::params::ThreadParams;
use super::reading::TOUCHED;
use super::sockets::LinkSockets;
use super::{ConnectionThread, TICK, tcp};

/// Bytes written to one socket in one turn.
const WRITE_PER_TURN: usize = 1024 * 1024;

/// The state of writing: when the scheduler runs, and buffers that are used again.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// When the scheduler runs.
    pub(super) runs: RunTimes,
    /// Times that the kernel was asked for a link's room.
    pub(super) kernel_asked: u64,
    /// When a write that waits for bandwidth is tried again.
    pub(super) retry_at: Option<Instant>,
    /// Links being written in this turn.
    pub(super) links: Vec<LinkKey>,
    /// Sealed bytes on their way to the socket being written.
    pub(super) wire: Vec<u8>,
    /// Cells whose memory is free again.
    pub(super) spent: Empties,
}

impl ConnectionThread {
    /// Lets the scheduler choose if it is time, then writes.
    pub(super) fn schedule_and_write(&mut self, now: Instant) {
        let due = self.writing.runs.is_due(self.params.run_interval, now);
        if due && self.manager.has_backlog() {
            let rooms = Rooms {
                sockets: &mut self.sockets,
                params: &self.params,
                kernel_asked: &mut self.writing.kernel_asked,
                now,
            };
            self.manager.schedule(now, rooms);
            self.writing.runs.ran(now, self.manager.has_backlog());
        }
        self.writing.retry_at = None;
        if !self.manager.links().any_to_write() {
            return;
        }
        // Taken out of `self` for the loop: writing may close a link.
        let mut links = std::mem::take(&mut self.writing.links);
        links.clear();
        links.extend_from_slice(self.manager.links().listed());
        self.touch_writable(&links);
        for link in links.iter().copied() {
            let Some(token) = self.sockets.by_link.get(link.index()).copied().flatten() else {
                continue;
            };
            if let Err(reason) = self.write(token, link, now) {
                self.close(token, &reason, now);
            }
        }
        self.writing.links = links;
        self.manager.links_mut().prune_written();
    }

    /// Reads of the first of these links what writing them will need, as `touch_readable`
    /// does for reading.
    fn touch_writable(&self, links: &[LinkKey]) {
        for link in links.iter().take(TOUCHED) {
            if let Some(token) = self.sockets.by_link.get(link.index()).copied().flatten()
                && let Some(connection) = self.sockets.all.get(token)
                && let Phase::Open(_, records) = &connection.phase
            {
                records.touch_tx();
            }
        }
    }

    /// Writes what is ready for one link.
    pub(super) fn write(
        &mut self,
        token: usize,
        link: LinkKey,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.sockets.all.get_mut(token) else {
            return Ok(());
        };
        let Some(out) = self.manager.links_mut().outgoing(link) else {
            return Ok(());
        };
        if !connection.writable || (out.is_empty() && !connection.blocked) {
            return Ok(());
        }
        let direction = Direction::Write;
        let taken = connection
            .allowance
            .take(&mut self.limit, direction, WRITE_PER_TURN, now);
        let grant = match taken {
            Ok(grant) => grant,
            Err(refused) => {
                if refused.common {
                    self.manager.links_mut().refused(link);
                }
                let at = now + refused.wait.min(TICK);
                self.writing.retry_at =
                    Some(self.writing.retry_at.map_or(at, |other| other.min(at)));
                return Ok(());
            }
        };
        let result = connection.write(out, grant, &mut self.writing.wire, &mut self.writing.spent);
        let blocked = connection.blocked;
        self.manager.links_mut().set_held(link, blocked);
        let written = result?;
        connection
            .allowance
            .settle(&mut self.limit, direction, grant, written);
        self.reports
            .count(connection, &self.params, direction, written);
        if written > 0 {
            connection.limit.wrote(written as u64);
            self.moved += written;
            self.reports.link_writes += 1;
            self.manager.links_mut().wrote(link, now);
        }
        if !self.writing.spent.is_empty() {
            let cells = self.writing.spent.len() as u64;
            self.manager.links_mut().count_written(link, cells);
        }
        for cell in self.writing.spent.drain(..) {
            self.manager.links_mut().recycle(cell);
        }
        Ok(())
    }
}

/// Number of cells that links may write now: by the kernel's state of their sockets (KIST), or as
/// many as fill an output buffer (KISTLite, Vanilla, and kernels that do not report it).
pub(super) struct Rooms<'a> {
    pub(super) sockets: &'a mut LinkSockets,
    pub(super) params: &'a ThreadParams,
    pub(super) kernel_asked: &'a mut u64,
    pub(super) now: Instant,
}

impl Rooms<'_> {
    /// The connection of a link, if its socket takes anything.
    fn open(&mut self, link: LinkKey) -> Option<&mut Connection> {
        let token = self.sockets.by_link.get(link.index()).copied().flatten()?;
        let connection = self.sockets.all.get_mut(token)?;
        (connection.writable && !connection.blocked).then_some(connection)
    }

    fn asks(&self) -> bool {
        self.params.scheduler == SchedulerKind::Kist
    }
}

impl Room for Rooms<'_> {
    fn known(&mut self, link: LinkKey) -> u32 {
        let (asks, now) = (self.asks(), self.now);
        self.open(link).map_or(0, |connection| match asks {
            true => kist::cells(connection.limit.known(now)),
            false => lite_room(),
        })
    }

    fn asked(&mut self, link: LinkKey) -> u32 {
        let (asks, now) = (self.asks(), self.now);
        let factor = self.params.scheduling.kist_sock_buf_size_factor;
        let Some(connection) = self.open(link).filter(|_| asks) else {
            return 0;
        };
        if connection.limit.is_new(now) {
            return 0;
        }
        let limit = match tcp::info(&connection.socket) {
            Some(state) => kist::write_limit(&state, 0, factor),
            None => kist::lite_write_limit(0, kist::DEFAULT_OUTBUF_HIGH_WATER),
        };
        connection.limit.answered(limit, now);
        *self.kernel_asked += 1;
        kist::cells(limit)
    }
}

/// The room of an empty output buffer.
fn lite_room() -> u32 {
    kist::cells(kist::lite_write_limit(0, kist::DEFAULT_OUTBUF_HIGH_WATER))
}
