//! Invariants of a connection thread between two turns: every socket has one owner, which the
//! manager and the event loop know, and every link and edge has its socket.
//!
//! In debug builds a thread compares its tables with each other four times a second, or more seldom where
//! it has many sockets, and panics when they do not fit: a socket without an owner is never closed, and shows
//! nowhere else.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;

use super::connection::Phase;
use super::{ConnectionThread, NESTED, WAKE};
use crate::process::sandbox;
use weft_core::slots::SlotKey as _;

/// Sockets for which an audit waits one more tick. It takes some microseconds for each socket: so
/// its part of a thread's time does not grow, however many an attacker opens.
const SOCKETS_PER_TICK: usize = 256;

/// Nothing, or what does not hold.
pub(super) fn sure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl ConnectionThread {
    /// True if the tables are to be compared now. Must be called once in each tick.
    pub(super) fn audit_is_due(&mut self) -> bool {
        if let Some(left) = self.ticks_to_audit.checked_sub(1) {
            self.ticks_to_audit = left;
            return false;
        }
        self.ticks_to_audit = (self.sockets.all.len() + self.edges.len()) / SOCKETS_PER_TICK;
        true
    }

    /// Compares all tables with each other, with the manager's and with the event loop's.
    ///
    /// # Errors
    ///
    /// The inconsistency that was found.
    pub(super) fn audit(&self) -> Result<(), String> {
        self.manager.inspect().audit()?;
        self.audit_links()?;
        self.edges.audit(&self.manager)?;
        self.audit_registrations()
    }

    /// Connections, and the links of those that are open.
    fn audit_links(&self) -> Result<(), String> {
        let mut open = 0;
        for (token, connection) in &self.sockets.all {
            let id = connection.id;
            sure(
                self.sockets.by_id.get(&id) == Some(&token),
                "a connection is known by its identifier",
            )?;
            match &connection.phase {
                Phase::Handshake(_) => {}
                Phase::Transition => return Err(format!("{id} has its TLS session back")),
                Phase::Open(link, _) => {
                    open += 1;
                    let known = self.sockets.by_link.get(link.index()).copied().flatten();
                    sure(
                        known == Some(token) && self.manager.links().of(id) == Some(*link),
                        "an open connection has its link",
                    )?;
                }
            }
        }
        sure(
            self.sockets.by_id.len() == self.sockets.all.len(),
            "only connections are known",
        )?;
        sure(
            self.sockets.by_link.iter().flatten().count() == open
                && self.manager.links().len() == open,
            "every link has its connection",
        )
    }

    /// The sockets that the kernel watches for this thread, as /proc lists them.
    #[expect(clippy::disallowed_methods, reason = "/proc, beside the data path")]
    fn audit_registrations(&self) -> Result<(), String> {
        // A connection thread in the sandbox opens no files.
        if sandbox::is_active() {
            return Ok(());
        }
        let path = format!("/proc/self/fdinfo/{}", self.poll.as_raw_fd());
        let info = match std::fs::read_to_string(&path) {
            // The waker is always there.
            Ok(info) if info.contains("tfd:") => info,
            // In Shadow the file is missing or of another one: sockets are Shadow's there, not the kernel's.
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("{path}: {error}")),
        };
        let data = |line: &str| {
            let (_, data) = line.split_once("data:")?;
            u64::from_str_radix(data.split_whitespace().next()?, 16).ok()
        };
        let watched: BTreeSet<u64> = info.lines().filter_map(data).collect();
        let connections = self.sockets.all.iter().map(|(token, _)| token);
        let mut known: BTreeSet<u64> = connections
            .chain(self.edges.watched())
            .map(|token| token as u64)
            .collect();
        known.insert(WAKE.0 as u64);
        if watched.contains(&(NESTED.0 as u64)) {
            known.insert(NESTED.0 as u64);
        }
        sure(
            watched == known,
            "the event loop watches every socket, and no other",
        )
    }
}
