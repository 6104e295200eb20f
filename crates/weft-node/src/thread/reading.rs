//! What comes in: connections to be adopted, bytes of sockets, link handshakes.

use std::collections::VecDeque;
use std::time::{Instant, SystemTime};

use mio::net::TcpStream;
use mio::{Interest, Token};
use weft_cell::reason::DestroyReason;
use weft_core::handshake::{HANDSHAKE_TIMEOUT, LinkHandshake, PeerIdentity, Role};

use super::closing::CloseReason;
use super::connection::{Connection, Phase};
use super::limit::{Allowance, Direction};
use super::{Adopt, ConnectionThread, TICK};

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
        } = adopt;
        let initiated = matches!(role, Role::Initiator { .. });
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
        let mut handshake = Box::new(LinkHandshake::new(
            role,
            session.identity(),
            peer.ip(),
            self.params.my_addrs.clone(),
            now,
        ));
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
            session,
            phase: Phase::Handshake(handshake),
            initiated,
            readable: false,
            writable: false,
            listed: false,
            peer_ended: false,
            left: Vec::new(),
            skip: 0,
            unsent: 0,
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
    pub(super) fn service(
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
            let mut none = VecDeque::new();
            connection.write(&mut none, usize::MAX, &mut self.spent)?;
        }
        self.plain.clear();
        self.plain.append(&mut connection.left);
        let read = connection.read(max, &mut self.scratch, &mut self.plain)?;
        *used += read.socket_bytes;
        if let Phase::Handshake(_) = connection.phase {
            self.shake_hands(token, now)?;
        }
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        if let Phase::Open(link) = connection.phase {
            let skipped = connection.skip.min(self.plain.len());
            connection.skip -= skipped;
            let bytes = self.plain.get(skipped..).unwrap_or_default();
            let received = self.manager.receive(link, bytes, now)?;
            connection.skip += received.skip;
            connection
                .left
                .extend_from_slice(bytes.get(received.used..).unwrap_or_default());
        }
        if self.plain.capacity() > 4 * READ_PER_TURN {
            self.plain = Vec::new();
        }
        if read.ended {
            return Err(CloseReason::Ended);
        }
        Ok(())
    }

    /// Goes on with a link handshake; what is left in `plain` belongs to the opened link.
    pub(super) fn shake_hands(&mut self, token: usize, now: Instant) -> Result<(), CloseReason> {
        let Some(connection) = self.connections.get_mut(token) else {
            return Ok(());
        };
        let Phase::Handshake(handshake) = &mut connection.phase else {
            return Ok(());
        };
        if connection.session.tls().is_handshaking() {
            let mut none = VecDeque::new();
            connection.write(&mut none, usize::MAX, &mut self.spent)?;
            return Ok(());
        }
        let used = handshake.receive(
            &self.plain,
            &connection.session,
            SystemTime::now(),
            &mut self.rng,
        )?;
        let output = handshake.take_output();
        let established = handshake.established().cloned();
        if !output.is_empty() {
            connection.send(&output)?;
        }
        let mut none = VecDeque::new();
        connection.write(&mut none, usize::MAX, &mut self.spent)?;
        self.plain.drain(..used);
        let Some(established) = established else {
            return Ok(());
        };
        let (id, initiated) = (connection.id, connection.initiated);
        let link = self.manager.open_link(id, initiated, &established, now);
        connection.phase = Phase::Open(link);
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
        // The last of the handshake may still be with TLS.
        self.manager.set_held(link, connection.blocked);
        Ok(())
    }
}
