//! Edges of applications until their streams are open: what they ask for, and what they are answered.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;

use super::socket::{Stage, end_reason};
use crate::apps::{Handshake, MAX_HANDSHAKE, Notice, Step};
use crate::logging::RateLimit;
use crate::thread::ConnectionThread;

/// Log lines about applications that ask for what they should not, at C tor's pace
/// (SOCKS_WARN_INTERVAL): every page of a browser can cause as many as it likes.
#[derive(Debug)]
pub(super) struct Warnings(RateLimit);

impl Default for Warnings {
    fn default() -> Self {
        Warnings(RateLimit::new(Duration::from_secs(5)))
    }
}

impl Warnings {
    fn log(&mut self, notice: &Notice, all: bool) {
        if all || notice.level > tracing::Level::WARN {
            notice.log();
        } else if let Some(more) = self.0.check(Instant::now()) {
            let mut notice = notice.clone();
            notice.text.push_str(&more.to_string());
            notice.log();
        }
    }
}

impl ConnectionThread {
    /// Hears what an application wants.
    pub(super) fn hear(&mut self, token: usize, scratch: &mut [u8]) -> Result<usize, EndReason> {
        let Some(connection) = self.edges.all.get_mut(token) else {
            return Ok(0);
        };
        let most = MAX_HANDSHAKE.saturating_sub(connection.held.len());
        if !connection.readable || most == 0 {
            return Ok(0);
        }
        let buffer = scratch.get_mut(..most).unwrap_or_default();
        let count = match connection.socket.read(buffer) {
            Ok(0) => return Err(EndReason::DONE),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.readable = false;
                return Ok(0);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(end_reason(&error)),
        };
        connection
            .held
            .extend_from_slice(scratch.get(..count).unwrap_or_default());
        self.edges.list(token);
        while let Some(connection) = self.edges.all.get_mut(token)
            && !connection.asked
        {
            let Stage::Asking(handshake) = &mut connection.stage else {
                break;
            };
            let step = handshake.receive(&connection.held);
            // TestSocks is there to tell of each.
            let all = handshake.tests();
            for notice in handshake.take_notices() {
                self.edges.warnings.log(&notice, all);
            }
            match step {
                Ok(Step::NeedMore) => break,
                Ok(Step::Reply { used, reply }) => {
                    connection.held.drain(..used.min(connection.held.len()));
                    connection.reply.extend_from_slice(&reply);
                    if !connection.flush_reply() {
                        return Err(EndReason::MISC);
                    }
                }
                Ok(Step::Request { used, request }) => {
                    connection.held.drain(..used.min(connection.held.len()));
                    connection.asked = true;
                    connection.deadline = None;
                    let edge = connection.edge;
                    self.manager.edge_asks(edge, request);
                }
                Ok(Step::Answered { reply }) => {
                    connection.reply.extend_from_slice(&reply);
                    connection.flush_reply();
                    return Err(EndReason::DONE);
                }
                Err(failure) => {
                    self.edges.warnings.log(&failure.notice, all);
                    connection.reply.extend_from_slice(&failure.reply);
                    connection.flush_reply();
                    return Err(EndReason::MISC);
                }
            }
        }
        Ok(count)
    }

    /// Tells an application that it is connected.
    pub(super) fn answer_connected(&mut self, edge: u32, addr: Option<IpAddr>, now: Instant) {
        let Some(token) = self.edges.token_of(edge) else {
            return;
        };
        let Some(connection) = self.edges.all.get_mut(token) else {
            return;
        };
        if let Stage::Asking(handshake) = &connection.stage {
            if addr.is_some_and(|addr| !handshake.may_be_connected_to(addr)) {
                let reply = handshake.refused(weft_core::origin::AppRefusal::General);
                connection.reply.extend_from_slice(&reply);
                connection.flush_reply();
                return self.close_edge(token, EndReason::MISC, now);
            }
            let reply = handshake.connected();
            connection.reply.extend_from_slice(&reply);
            connection.stage = Stage::Open;
            connection.flush_reply();
        }
        if connection.readable || !connection.held.is_empty() {
            self.edges.list(token);
        }
    }

    /// Tells an application the last thing that it hears; its edge is gone already.
    pub(super) fn answer_last(
        &mut self,
        id: ConnectionId,
        reply: impl FnOnce(&Handshake) -> Vec<u8>,
    ) {
        let Some(token) = self.edges.by_id.get(&id).copied() else {
            return;
        };
        if let Some(connection) = self.edges.all.get_mut(token) {
            if let Stage::Asking(handshake) = &connection.stage {
                let reply = reply(handshake);
                connection.reply.extend_from_slice(&reply);
            }
            // A few bytes, which a socket that has taken nothing yet takes.
            connection.flush_reply();
        }
        self.forget_edge(token);
    }

    /// Applications that do not say what they want have had their time.
    pub(in crate::thread) fn tick_edges(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.edges.asking.front().copied() {
            if deadline > now {
                break;
            }
            self.edges.asking.pop_front();
            if let Some(token) = self.edges.by_id.get(&id).copied()
                && let Some(connection) = self.edges.all.get(token)
                && connection.deadline.is_some()
            {
                tracing::debug!("An application did not say what it wants: {id}");
                self.close_edge(token, EndReason::TIMEOUT, now);
            }
        }
    }
}
