//! Input: connections to be adopted, bytes of sockets, link handshakes.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Token};
use weft_core::address::ConnectionId;
use weft_core::handshake::{HANDSHAKE_TIMEOUT, LinkHandshake, PeerIdentity, Role};
use weft_core::origin::LinkFailure;
use weft_core::scheduler::kist::KnownLimit;
use weft_share::{PreviousHop, Shares};

use super::adopt::Adopt;
use super::close_reason::CloseReason;
use super::connection::{Connection, Handshaking, Phase, Proxying};
use super::limit::{Allowance, Direction};
use super::{ConnectionThread, TICK, clock};
use crate::logging::safe;
use weft_tls::records::{self, Content, MAX_RECORD};

/// Bytes read from one socket in one turn: enough for large TLS batches, small enough for
/// fairness among sockets.
pub(super) const READ_PER_TURN: usize = 128 * 1024;
/// Bytes read from all sockets in one turn: what they bring is written before more is read.
const READ_PER_TURN_IN_ALL: usize = 1024 * 1024;

/// Sockets whose handshakes are gone on with in one turn: a ClientHello costs a signature, as much
/// as hundreds of cells.
pub(super) const HANDSHAKES_PER_TURN: usize = 4;
/// Sockets that are looked at for them, also those that bring nothing.
const LOOKS_PER_TURN: usize = 4 * HANDSHAKES_PER_TURN;
/// Bytes that are read for one of them: the largest record.
const READ_PER_HANDSHAKE: usize = 16 * 1024;

/// Connections whose memory is fetched at once: this number fits the nearest caches, with the rest
/// that a cell needs.
pub(super) const TOUCHED: usize = 64;

/// A socket in a list; its token may have another owner by the time that its turn comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) token: usize,
    pub(super) id: ConnectionId,
}

/// The state of reading: which sockets are next, and which wait for bandwidth.
#[derive(Debug)]
pub(super) struct Reading {
    /// Sockets that may have bytes, in the order in which they will be read.
    pub(super) queue: VecDeque<Listed>,
    /// Links of `queue` in a handshake, in turns of the hops at their other ends.
    pub(super) handshakes: Shares<PreviousHop, (), Listed>,
    /// The bandwidth that all connections share is out of tokens until then: nothing is read.
    pub(super) blocked_until: Option<Instant>,
    /// Sockets that may have bytes but must wait for bandwidth of their own, and until when.
    pub(super) rate_limited: VecDeque<(Instant, Listed)>,
    /// The earliest of these times.
    pub(super) resume_at: Option<Instant>,
    /// Bytes as they come from the socket being read, decrypted in place.
    pub(super) scratch: Vec<u8>,
    /// The decrypted record of a handshake.
    pub(super) plain: Vec<u8>,
}

impl Reading {
    pub(super) fn new() -> Self {
        Reading {
            queue: VecDeque::new(),
            handshakes: Shares::default(),
            blocked_until: None,
            rate_limited: VecDeque::new(),
            resume_at: None,
            scratch: vec![0; MAX_RECORD + READ_PER_TURN],
            plain: Vec::new(),
        }
    }
}

impl ConnectionThread {
    /// Takes over a connection.
    pub(super) fn adopt(&mut self, adopt: Adopt, now: Instant) {
        let Adopt {
            id,
            socket,
            peer,
            role,
            proxy,
            handed_over,
        } = adopt;
        let initiated = matches!(role, Role::Initiator { .. });
        let proxy = match proxy.map(|proxy| Proxying::new(proxy, peer)).transpose() {
            Ok(proxy) => proxy,
            Err(error) => {
                tracing::info!("Could not connect to {}: {error}", safe(peer));
                self.manager
                    .links_mut()
                    .connection_failed(id, LinkFailure::Proxy);
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
                self.manager
                    .links_mut()
                    .connection_failed(id, LinkFailure::Resource);
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
        let entry = self.sockets.all.vacant_entry();
        let token = entry.key();
        let registered = self.poll.registry().register(
            &mut socket,
            Token(token),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!("Could not watch a connection's socket: {error}");
            self.manager
                .links_mut()
                .connection_failed(id, LinkFailure::Resource);
            return;
        }
        let deadline = now + HANDSHAKE_TIMEOUT;
        entry.insert(Box::new(Connection {
            id,
            peer,
            socket,
            allowance: match handed_over {
                true => Allowance::handed_over(peer.ip(), &self.params, now),
                false => Allowance::new(peer.ip(), &self.params, now),
            },
            phase: Phase::Handshake(Box::new(Handshaking::new(proxy, session, handshake))),
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
            limit: KnownLimit::default(),
            handshake_written: 0,
            moved: (0, 0),
            unreported: (0, 0),
        }));
        self.sockets.by_id.insert(id, token);
        // Connections come and go faster than their time runs out.
        if self.sockets.handshakes.len() > 1024
            && self.sockets.handshakes.len() > 4 * self.sockets.all.len()
        {
            let by_id = &self.sockets.by_id;
            self.sockets
                .handshakes
                .retain(|(_, id)| by_id.contains_key(id));
        }
        self.sockets.handshakes.push_back((deadline, id));
    }

    /// True if sockets wait to be read without an event to come.
    pub(super) fn has_to_read(&self) -> bool {
        !self.reading.queue.is_empty() || !self.reading.handshakes.is_empty()
    }

    /// Reads the sockets that may have bytes, a bounded amount each and in all: those of links, and
    /// then those of a few handshakes.
    pub(super) fn read_sockets(&mut self, now: Instant) {
        if self.is_stuck() {
            return;
        }
        self.resume_rate_limited(now);
        self.reading.blocked_until = None;
        self.touch_readable();
        let mut in_all = 0;
        for _ in 0..self.reading.queue.len() {
            let Some(listed) = self.reading.queue.pop_front() else {
                break;
            };
            let Some(connection) = self.sockets.listed(listed) else {
                continue;
            };
            match &connection.phase {
                Phase::Handshake(_) => {
                    let hop = PreviousHop::at(connection.peer.ip());
                    // There are as many as sockets: each is listed once.
                    let admitted = self.reading.handshakes.admit(hop, (), usize::MAX, listed);
                    debug_assert!(admitted.is_ok_and(|admitted| admitted.displaced.is_none()));
                }
                Phase::Open(link, _) if self.manager.is_leaving(*link) => {
                    // The thread where it goes reads on.
                    connection.listed = false;
                }
                Phase::Open(..) | Phase::Transition => {
                    in_all += self.read_socket(listed, READ_PER_TURN, now);
                }
            }
            if in_all >= READ_PER_TURN_IN_ALL || self.reading.blocked_until.is_some() {
                break;
            }
        }
        let (mut left, mut looks) = (HANDSHAKES_PER_TURN, LOOKS_PER_TURN);
        while left > 0
            && looks > 0
            && self.reading.blocked_until.is_none()
            && let Some(listed) = self.reading.handshakes.serve()
        {
            if let Some(connection) = self.sockets.listed(listed) {
                looks -= 1;
                if connection.peer_ended && !connection.initiated {
                    // Nobody waits for the answer to its ClientHello, which costs a signature.
                    self.close(listed.token, &CloseReason::Ended, now);
                    continue;
                }
                // One that has been read is looked at once more, and mostly has nothing then.
                left -= usize::from(self.read_socket(listed, READ_PER_HANDSHAKE, now) > 0);
            }
        }
    }

    /// Reads a socket, as far as bandwidth allows, and handles what came. Returns how many bytes
    /// came.
    fn read_socket(&mut self, listed: Listed, most: usize, now: Instant) -> usize {
        let direction = Direction::Read;
        let Some(connection) = self.sockets.all.get_mut(listed.token) else {
            return 0;
        };
        let taken = connection
            .allowance
            .take(&mut self.limit, direction, most, now);
        let grant = match taken {
            Ok(grant) => grant,
            Err(refused) => {
                let until = now + refused.wait.min(TICK);
                if refused.common {
                    // No connection gets tokens now: all wait in their order.
                    self.reading.queue.push_front(listed);
                    self.reading.blocked_until = Some(until);
                    return 0;
                }
                self.reading.rate_limited.push_back((until, listed));
                self.reading.resume_at = Some(
                    self.reading
                        .resume_at
                        .map_or(until, |other| other.min(until)),
                );
                return 0;
            }
        };
        let mut used = 0;
        let result = self.service(listed.token, grant, &mut used, now);
        self.moved += used;
        self.writing.runs.gathered(used);
        self.reports.link_reads += u64::from(used > 0);
        if let Some(connection) = self.sockets.all.get_mut(listed.token) {
            connection
                .allowance
                .settle(&mut self.limit, direction, grant, used);
            self.reports
                .count(connection, &self.params, direction, used);
            let written = std::mem::take(&mut connection.handshake_written);
            if written > 0 {
                // Nothing was granted: it is owed.
                connection
                    .allowance
                    .settle(&mut self.limit, Direction::Write, 0, written);
                self.reports
                    .count(connection, &self.params, Direction::Write, written);
            }
            connection.listed = connection.readable && result.is_ok();
            if connection.listed {
                self.reading.queue.push_back(listed);
            }
        }
        if let Err(reason) = result {
            self.close(listed.token, &reason, now);
        }
        used
    }

    /// Reads of the first connections in the queue what their bytes will need. Of thousands of links nothing is in
    /// the processor's cache: here it waits for the memory of all at the same time, and not for each in its turn.
    fn touch_readable(&self) {
        for listed in self.reading.queue.iter().take(TOUCHED) {
            if let Some(connection) = self.sockets.all.get(listed.token)
                && let Phase::Open(link, records) = &connection.phase
            {
                records.touch_rx();
                self.manager.links().touch(*link);
            }
        }
    }

    /// Lists the sockets again that have waited long enough for bandwidth, first of all.
    pub(super) fn resume_rate_limited(&mut self, now: Instant) {
        if self.reading.resume_at.is_none_or(|until| until > now) {
            return;
        }
        let (ready, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.reading.rate_limited)
                .into_iter()
                .partition(|(until, _)| *until <= now);
        for (_, listed) in ready.into_iter().rev() {
            self.reading.queue.push_front(listed);
        }
        self.reading.resume_at = waiting.iter().map(|(until, _)| *until).min();
        self.reading.rate_limited = waiting;
    }

    /// Reads one socket and handles what came; `used` grows by the bytes taken from the socket.
    fn service(
        &mut self,
        token: usize,
        max: usize,
        used: &mut usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let Some(connection) = self.sockets.all.get_mut(token) else {
            return Ok(());
        };
        if matches!(connection.phase, Phase::Handshake(_)) && connection.writable {
            // TCP may have failed to connect; and TLS has bytes to send first.
            if let Some(error) = connection.socket.take_error()? {
                return Err(error.into());
            }
            connection.report_step(&mut self.manager);
            connection.flush_handshake()?;
            connection.report_step(&mut self.manager);
        }
        // Out of `self` while its records are at work in it.
        let mut scratch = std::mem::take(&mut self.reading.scratch);
        let result = self.read_records(token, max, &mut scratch, used, now);
        self.reading.scratch = scratch;
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
        let Some(connection) = self.sockets.all.get_mut(token) else {
            return Ok(());
        };
        if !connection.readable {
            // It was listed for its handshake, which had something to send.
            return Ok(());
        }
        let read = connection.fill(max, scratch)?;
        *used += read.socket_bytes;
        let mut ended = read.ended;
        let mut rest = scratch.get_mut(..read.filled).unwrap_or_default();
        while let Some(connection) = self.sockets.all.get_mut(token) {
            if let Some(taken) = connection.receive_from_proxy(rest) {
                taken?;
                connection.report_step(&mut self.manager);
                break;
            }
            let handshaking = matches!(connection.phase, Phase::Handshake(_));
            let length = match records::whole(rest) {
                Ok(Some(length)) => length,
                // rustls has the alert for a peer that does not speak TLS.
                Err(_) if handshaking => rest.len(),
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
                Phase::Transition => break,
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

    /// Goes on with the handshakes. Returns whether the peer has ended the connection.
    fn shake_hands(
        &mut self,
        token: usize,
        record: &[u8],
        now: Instant,
    ) -> Result<bool, CloseReason> {
        let Some(connection) = self.sockets.all.get_mut(token) else {
            return Ok(false);
        };
        let Phase::Handshake(handshaking) = &mut connection.phase else {
            return Ok(false);
        };
        self.reading.plain.clear();
        let ended = handshaking.decrypt(record, &mut self.reading.plain)?;
        if handshaking.session.tls().is_handshaking() {
            connection.flush_handshake()?;
            return Ok(ended);
        }
        connection.report_step(&mut self.manager);
        let Phase::Handshake(handshaking) = &mut connection.phase else {
            return Ok(ended);
        };
        let used = handshaking.handshake.receive(
            &self.reading.plain,
            &handshaking.session,
            clock::wall_clock(),
            &mut self.rng,
        )?;
        let output = handshaking.handshake.take_output();
        let established = handshaking.handshake.established().cloned();
        if !output.is_empty() {
            handshaking.session.tls().writer().write_all(&output)?;
        }
        connection.flush_handshake()?;
        let Some(established) = established else {
            return Ok(ended);
        };
        let phase = std::mem::replace(&mut connection.phase, Phase::Transition);
        let Phase::Handshake(handshaking) = phase else {
            return Ok(ended);
        };
        let (unsent, records) = handshaking.session.into_records()?;
        // The last of the handshake may not be sent yet.
        connection.blocked = !unsent.is_empty();
        connection.wire_out = unsent;
        let (id, addr) = (connection.id, connection.peer.ip());
        let link = self.manager.open_link(id, addr, &established, now);
        connection.phase = Phase::Open(link, Box::new(records));
        let relay = match established.peer {
            PeerIdentity::Relay { rsa, .. } => Some(rsa),
            PeerIdentity::Unauthenticated => None,
        };
        connection.allowance.opened(relay, &self.params, now);
        self.manager.links_mut().set_held(link, connection.blocked);
        let cells = self.reading.plain.get(used..).unwrap_or_default();
        connection.receive(link, cells, &mut self.manager, now)?;
        self.sockets.note_link(link, token);
        Ok(ended)
    }
}
