//! Edges of applications until their streams are open: requests and replies.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weft_apps::{Handshake, MAX_HANDSHAKE, Notice, Step};
use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_core::slots::EdgeKey;
use weft_log::{RateLimit, Severity};

use super::socket::{Stage, end_reason};
use crate::logging;
use crate::thread::{ConnectionThread, clock};

/// Limits log lines about refused requests of applications to C tor's rate (SOCKS_WARN_INTERVAL): every page
/// of a browser can cause many.
#[derive(Debug)]
pub(super) struct Warnings(RateLimit);

impl Default for Warnings {
    fn default() -> Self {
        Warnings(RateLimit::new(Duration::from_secs(5)))
    }
}

impl Warnings {
    fn log(&mut self, notice: &Notice, all: bool) {
        if all || notice.always || notice.line.severity() > Severity::Warn {
            logging::log(&notice.line);
        } else if let Some(more) = self.0.check(clock::now()) {
            logging::log(&notice.line.clone().text(more));
        }
    }
}

impl ConnectionThread {
    /// Reads the request of an application.
    pub(super) fn receive_request(
        &mut self,
        token: usize,
        scratch: &mut [u8],
    ) -> Result<usize, EndReason> {
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
        self.advance_request(token)?;
        Ok(count)
    }

    /// Handles what has arrived of the request of an application.
    pub(super) fn advance_request(&mut self, token: usize) -> Result<(), EndReason> {
        while let Some(connection) = self.edges.all.get_mut(token)
            && !connection.asked
        {
            let Stage::Asking(handshake) = &mut connection.stage else {
                break;
            };
            let step = handshake.receive(&connection.held);
            // TestSocks asks for a line about each.
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
        Ok(())
    }

    /// Sends an application the reply that it is connected.
    pub(super) fn answer_connected(&mut self, edge: EdgeKey, addr: Option<IpAddr>, now: Instant) {
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

    /// Sends an application its last reply; its edge is freed already.
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

    /// Closes connections of applications that sent no request in time.
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
                tracing::debug!("An application sent no request in time: {id}");
                self.close_edge(token, EndReason::TIMEOUT, now);
            }
        }
    }
}
