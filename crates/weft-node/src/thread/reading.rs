//! What comes in: connections to be adopted, bytes of sockets, link handshakes.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::{Instant, SystemTime};

use mio::net::TcpStream;
use mio::{Interest, Token};
use weft_cell::reason::DestroyReason;
use weft_core::handshake::{HANDSHAKE_TIMEOUT, LinkHandshake, PeerIdentity, Role};

use super::closing::CloseReason;
use super::connection::{Connection, Phase, Proxying, Shaking};
use super::limit::{Allowance, Direction};
use super::{Adopt, ConnectionThread, TICK};
use crate::logging::safe;
use crate::tls::records::{self, Content};

/// Bytes read from one socket in one turn: enough for large TLS batches, small enough for
/// fairness among sockets.
pub(super) const READ_PER_TURN: usize = 128 * 1024;
/// Bytes read from all sockets in one turn: what they bring is written before more is read.
const READ_PER_TURN_IN_ALL: usize = 1024 * 1024;

impl ConnectionThread {
    /// Takes over a connection.
    pub(super) fn adopt(&mut self, adopt: Adopt, now: Instant) {
        let Adopt {
            id,
            socket,
            peer,
            role,
            proxy,
        } = adopt;
        let initiated = matches!(role, Role::Initiator { .. });
        let proxy = match proxy.map(|proxy| Proxying::new(proxy, peer)).transpose() {
            Ok(proxy) => proxy,
            Err(error) => {
                tracing::info!("Could not connect to {}: {error}", safe(peer));
                self.manager
                    .connection_failed(id, DestroyReason::CONNECTFAILED);
                return;
            }
        };
        let session = if initiated {
            self.tls.connect(&mut self.rng)
        } else {
            self.tls.accept()
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!("Could not start TLS on a connection: {error}");
                self.manager.connection_failed(id, DestroyReason::INTERNAL);
                return;
            }
        };
        // The bound is ours: only what the socket takes soon is encrypted (connection.rs).
        session.tls().set_buffer_limit(None);
        let mut handshake = LinkHandshake::new(
            role,
            session.identity(),
            peer.ip(),
            self.params.my_addrs.clone(),
            now,
        );
        handshake.start();
        let mut socket = TcpStream::from_std(socket);
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let registered = self.poll.registry().register(
            &mut socket,
            Token(token),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!("Could not watch a connection's socket: {error}");
            self.manager
                .connection_failed(id, DestroyReason::RESOURCELIMIT);
            return;
        }
        let deadline = now + HANDSHAKE_TIMEOUT;
        entry.insert(Box::new(Connection {
            id,
            peer,
            socket,
            allowance: Allowance::new(peer.ip(), &self.params, now),
            phase: Phase::Handshake(Box::new(Shaking::new(proxy, session, handshake))),
            initiated,
            readable: false,
            writable: false,
            listed: false,
            peer_ended: false,
            wire_in: Vec::new(),
            left: Vec::new(),
            skip: 0,
            wire_out: Vec::new(),
            blocked: false,
        }));
        self.by_id.insert(id, token);
        // Connections come and go faster than their time runs out.
        if self.handshakes.len() > 1024 && self.handshakes.len() > 4 * self.connections.len() {
            let by_id = &self.by_id;
            self.handshakes.retain(|(_, id)| by_id.contains_key(id));
        }
        self.handshakes.push_back((deadline, id));
    }

    /// Reads the sockets that may have bytes, a bounded amount each and in all.
    pub(super) fn read_sockets(&mut self, now: Instant) {
        if self.is_stuck() {
            return;
        }
        self.wake_rested(now);
        self.thirsty_until = None;
        let direction = Direction::Read;
        let mut in_all = 0;
        for _ in 0..self.to_read.len() {
            let Some(listed) = self.to_read.pop_front() else {
                break;
            };
            let Some(connection) = self
                .connections
                .get_mut(listed.token)
                .filter(|connection| connection.id == listed.id)
            else {
                continue;
            };
            let taken = connection
                .allowance
                .take(&mut self.common, direction, READ_PER_TURN, now);
            let grant = match taken {
                Ok(grant) => grant,
                Err(wait) => {
                    let until = now + wait.min(TICK);
                    if self.common.is_dry(direction) {
                        // Nobody gets anything now: they wait in their order.
                        self.to_read.push_front(listed);
                        self.thirsty_until = Some(until);
                        break;
                    }
                    self.resting.push_back((until, listed));
                    self.rest_until = Some(self.rest_until.map_or(until, |other| other.min(until)));
                    continue;
                }
            };
            let mut used = 0;
            let result = self.service(listed.token, grant, &mut used, now);
            in_all += used;
            self.load.add(used as u64);
            if let Some(connection) = self.connections.get_mut(listed.token) {
                connection
                    .allowance
                    .settle(&mut self.common, direction, grant, used);
                self.moved.add(&connection.allowance, direction, used);
                connection.listed = connection.readable && result.is_ok();
                if connection.listed {
                    self.to_read.push_back(listed);
                }
            }
            if let Err(reason) = result {
                self.close(listed.token, &reason, now);
            }
            if in_all >= READ_PER_TURN_IN_ALL {
                break;
            }
        }
    }

    /// Lists the sockets again that have waited long enough for bandwidth, first of all.
    pub(super) fn wake_rested(&mut self, now: Instant) {
        if self.rest_until.is_none_or(|until| until > now) {
            return;
        }
        let (rested, resting): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.resting)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        for (_, listed) in rested.into_iter().rev() {
            self.to_read.push_front(listed);
        }
        self.rest_until = resting.iter().map(|(until, _)| *until).min();
        self.resting = resting;
    }

    /// Reads one socket and handles what came; `used` grows by the bytes taken from the socket.
    fn service(
        &mut self,
        token: usize,
        max: usize,
        used: &mut usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        if matches!(connection.phase, Phase::Handshake(_)) && connection.writable {
            // TCP may have failed to connect; and TLS has something to say first.
            if let Some(error) = connection.socket.take_error()? {
                return Err(error.into());
            }
            connection.flush_handshake()?;
        }
        // Out of `self` while its records are at work in it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.read_records(token, max, &mut scratch, used, now);
        self.scratch = scratch;
        result
    }

    /// Fills `scratch` from a socket and handles the records in it.
    fn read_records(
        &mut self,
        token: usize,
        max: usize,
        scratch: &mut [u8],
        used: &mut usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        let read = connection.fill(max, scratch)?;
        *used += read.socket_bytes;
        let mut ended = read.ended;
        let mut rest = scratch.get_mut(..read.filled).unwrap_or_default();
        while let Some(connection) = self.connections.get_mut(token) {
            if let Some(taken) = connection.receive_from_proxy(rest) {
                taken?;
                break;
            }
            let shaking = matches!(connection.phase, Phase::Handshake(_));
            let length = match records::whole(rest) {
                Ok(Some(length)) => length,
                // rustls knows best what to say to who does not speak TLS.
                Err(_) if shaking => rest.len(),
                Ok(None) => {
                    connection.wire_in = rest.to_vec();
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            let (record, after) = rest.split_at_mut(length);
            rest = after;
            match &mut connection.phase {
                Phase::Open(link, records) => {
                    let link = *link;
                    match records.open(record)? {
                        Content::Data(bytes) => {
                            connection.receive(link, bytes, &mut self.manager, now)?;
                        }
                        Content::Nothing => {}
                        Content::Closed => ended = true,
                    }
                }
                Phase::Handshake(_) => ended |= self.shake_hands(token, record, now)?,
                Phase::Passing => break,
            }
            if ended {
                break;
            }
        }
        if ended {
            return Err(CloseReason::Ended);
        }
        Ok(())
    }

    /// Goes on with the handshakes. True: the peer has said that it ends here.
    fn shake_hands(
        &mut self,
        token: usize,
        record: &[u8],
        now: Instant,
    ) -> Result<bool, CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(false);
        };
        let Phase::Handshake(shaking) = &mut connection.phase else {
            return Ok(false);
        };
        self.plain.clear();
        let ended = shaking.decrypt(record, &mut self.plain)?;
        if shaking.session.tls().is_handshaking() {
            connection.flush_handshake()?;
            return Ok(ended);
        }
        let used = shaking.handshake.receive(
            &self.plain,
            &shaking.session,
            SystemTime::now(),
            &mut self.rng,
        )?;
        let output = shaking.handshake.take_output();
        let established = shaking.handshake.established().cloned();
        if !output.is_empty() {
            shaking.session.tls().writer().write_all(&output)?;
        }
        connection.flush_handshake()?;
        let Some(established) = established else {
            return Ok(ended);
        };
        let phase = std::mem::replace(&mut connection.phase, Phase::Passing);
        let Phase::Handshake(shaking) = phase else {
            return Ok(ended);
        };
        let (unsent, records) = shaking.session.into_records()?;
        // The last of the handshake may not be sent yet.
        connection.blocked = !unsent.is_empty();
        connection.wire_out = unsent;
        let (id, addr, initiated) = (connection.id, connection.peer.ip(), connection.initiated);
        let link = (self.manager).open_link(id, addr, initiated, &established, now);
        connection.phase = Phase::Open(link, Box::new(records));
        let relay = match established.peer {
            PeerIdentity::Relay { rsa, .. } => Some(rsa),
            PeerIdentity::Unauthenticated => None,
        };
        connection.allowance.opened(relay, &self.params, now);
        let index = link as usize;
        if self.by_link.len() <= index {
            self.by_link.resize(index + 1, None);
        }
        if let Some(entry) = self.by_link.get_mut(index) {
            *entry = Some(token);
        }
        self.manager.set_held(link, connection.blocked);
        let cells = self.plain.get(used..).unwrap_or_default();
        connection.receive(link, cells, &mut self.manager, now)?;
        Ok(ended)
    }
}
