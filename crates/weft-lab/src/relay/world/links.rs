//! Links: opening and accepting them, the handshakes on them, reading and writing.

use std::io;
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use mio::net::TcpStream;
use mio::{Interest, Token};
use weft_core::handshake::{LinkHandshake, PeerIdentity, Role};
use weft_tls::LinkSession;

use super::circuit::INITIATOR;
use super::ends::{End, Phase, Side};
use super::orders::Stage;
use super::state::World;
use super::tokens::FIRST_LINK;
use crate::relay::aim::Peer;
use crate::relay::link::{BATCH, Link, RECORD, Read};
use crate::relay::mode::Mode;

/// Links that are being opened at a time when links are what is measured.
pub(super) const OPENING: usize = 16;

impl World {
    /// Opens a link to the target.
    pub(super) fn open(&mut self) -> Result<usize> {
        let address = self.plan.peer.address();
        let socket = TcpStream::connect(address)
            .with_context(|| format!("connecting to the target at {address}"))?;
        let session = self
            .client
            .connect(&mut self.rng)
            .context("beginning a TLS session")?;
        self.insert(socket, session, Side::Origin, Phase::Connecting)
    }

    /// Accepts what has connected to the relay of this number.
    pub(super) fn accept(&mut self, number: usize) -> Result<()> {
        loop {
            let Some(hop) = self.hops.get(number) else {
                return Ok(());
            };
            // The target needs one link to each next hop, and two where both sides open one at once;
            // more are a mistake that must not eat our memory.
            let bound = self.plan.origin_links * 2 + self.plan.next_hops * 4 + 16;
            ensure!(
                self.ends.len() < bound,
                "the target opened more than {bound} links to the next hops"
            );
            let (socket, peer) = match hop.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("accepting a link from the target"),
            };
            // Otherwise small writes wait for each other's acknowledgements.
            socket
                .set_nodelay(true)
                .context("accepting a link from the target")?;
            let session = hop.tls.accept().context("beginning a TLS session")?;
            let phase = match self.plan.peer {
                Peer::Pipe(_) => Phase::Raw,
                Peer::Relay(_) => {
                    let role = Role::Responder;
                    self.handshake(role, &session, peer.ip(), vec![hop.address.ip()])
                }
            };
            let key = self.insert(socket, session, Side::NextHop(number), phase)?;
            self.list(key);
        }
    }

    fn handshake(
        &self,
        role: Role,
        session: &LinkSession,
        peer: IpAddr,
        own: Vec<IpAddr>,
    ) -> Phase {
        // As an origin we are a client and prove nothing.
        let me = match role {
            Role::Responder => session.identity(),
            Role::Initiator { .. } => None,
        };
        let mut handshake = LinkHandshake::new(role, me, peer, own, Instant::now());
        handshake.start();
        Phase::Handshake(Box::new(handshake))
    }

    fn insert(
        &mut self,
        socket: TcpStream,
        session: LinkSession,
        side: Side,
        phase: Phase,
    ) -> Result<usize> {
        let mut link = Link::new(socket, session);
        // Bytes may already have arrived on an accepted link.
        link.readable = side != Side::Origin;
        link.writable = side != Side::Origin;
        let key = self.ends.insert(End {
            link,
            side,
            phase,
            out: Vec::new(),
            active: std::collections::VecDeque::new(),
            by_id: std::collections::HashMap::default(),
            carried: 0,
            closing: false,
            unanswered: 0,
            next_id: INITIATOR,
            listed: false,
            dirty: false,
        });
        if let Some(end) = self.ends.get_mut(key) {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut end.link.socket, Token(FIRST_LINK + key), interest)
                .context("watching a socket")?;
        }
        Ok(key)
    }

    /// Reads a link and does what the bytes ask for.
    pub(super) fn read(&mut self, key: usize) -> Result<()> {
        let (mut scratch, mut plain) = (
            std::mem::take(&mut self.scratch),
            std::mem::take(&mut self.plain),
        );
        let read = self.read_with(key, &mut scratch, &mut plain);
        (self.scratch, self.plain) = (scratch, plain);
        read?;
        self.list(key);
        Ok(())
    }

    fn read_with(&mut self, key: usize, scratch: &mut [u8], plain: &mut Vec<u8>) -> Result<()> {
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        end.listed = false;
        if matches!(end.phase, Phase::Connecting) && !self.connected(key)? {
            return Ok(());
        }
        let end = self.end(key)?;
        let side = end.side;
        let outcome = match end.link.read(scratch, plain) {
            Ok(Read::Ended) | Err(_)
                if matches!((&end.phase, side), (Phase::Raw, Side::NextHop(_))) =>
            {
                // A pipe has opened a link for somebody who only looked whether it listens.
                self.ends.remove(key);
                return Ok(());
            }
            Ok(Read::Ended) | Err(_) if self.may_end(key) => return self.ended(key),
            Ok(outcome) => outcome,
            Err(error) => return Err(self.broken(key, side, error.into())),
        };
        let wants_write = self.end(key)?.link.session.tls().wants_write();
        if wants_write {
            self.mark(key);
        }
        // The first cells may have come together with the end of TLS's handshake.
        if matches!(self.end(key)?.phase, Phase::Raw) {
            self.opened_raw(key)?;
        }
        let mut used = 0;
        if !plain.is_empty() {
            self.sign_of_life = Instant::now();
            used = self.shake_hands(key, plain)?;
        }
        let rest = plain.get(used..).unwrap_or_default();
        let open = self
            .ends
            .get(key)
            .is_some_and(|end| matches!(end.phase, Phase::Open));
        let taken = if open { self.on_cells(key, rest)? } else { 0 };
        if let Some(end) = self.ends.get_mut(key) {
            end.link.keep(rest.get(taken..).unwrap_or_default());
            if outcome == Read::Ended {
                return Err(self.broken(key, side, anyhow!("it closed the connection")));
            }
        }
        Ok(())
    }

    /// Returns true once TCP is connected; then the handshakes begin.
    fn connected(&mut self, key: usize) -> Result<bool> {
        let peer = self.plan.peer;
        let address = peer.address();
        let end = self.end(key)?;
        if let Some(error) = end.link.socket.take_error()? {
            return Err(error).with_context(|| format!("connecting to the target at {address}"));
        }
        match end.link.socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("connecting to the target at {address}"));
            }
        }
        end.link.socket.set_nodelay(true)?;
        self.end(key)?.phase = match peer {
            Peer::Pipe(_) => Phase::Raw,
            Peer::Relay(aim) => {
                let role = Role::Initiator {
                    expected_rsa: Some(aim.rsa),
                    expected_ed: aim.ed25519,
                };
                // Lies in the session until TLS is there.
                let mut handshake =
                    LinkHandshake::new(role, None, address.ip(), Vec::new(), Instant::now());
                handshake.start();
                let first = handshake.take_output();
                self.end(key)?.link.encrypt(&first)?;
                Phase::Handshake(Box::new(handshake))
            }
        };
        self.mark(key);
        Ok(true)
    }

    /// Gives the bytes to the link handshake if it still goes on; how many it took.
    fn shake_hands(&mut self, key: usize, bytes: &[u8]) -> Result<usize> {
        let mut rng = self.rng.clone();
        let aim = self.plan.peer;
        let end = self.end(key)?;
        let side = end.side;
        let Phase::Handshake(handshake) = &mut end.phase else {
            return Ok(0);
        };
        let received = handshake.receive(bytes, &end.link.session, SystemTime::now(), &mut rng);
        let output = handshake.take_output();
        let peer = handshake.established().map(|established| established.peer);
        end.link.encrypt(&output)?;
        self.rng = rng;
        self.mark(key);
        let used = match received {
            Ok(used) => used,
            Err(error) => return Err(self.broken(key, side, error.into())),
        };
        let Some(peer) = peer else {
            return Ok(used);
        };
        if let (Side::NextHop(_), Peer::Relay(aim)) = (side, aim) {
            // A bridge proves no identity.
            let other = matches!(peer, PeerIdentity::Relay { rsa, .. } if rsa != aim.rsa);
            ensure!(
                !other,
                "somebody else than the target opened a link to us: {peer:?}"
            );
        }
        self.opened(key)?;
        Ok(used)
    }

    /// TLS to or from a pipe may be ready.
    fn opened_raw(&mut self, key: usize) -> Result<()> {
        if !self.end(key)?.link.session.tls().is_handshaking() {
            self.opened(key)?;
        }
        Ok(())
    }

    /// Cells may go.
    fn opened(&mut self, key: usize) -> Result<()> {
        let end = self.end(key)?;
        end.phase = Phase::Open;
        let side = end.side;
        if self.stage >= Stage::Run {
            self.churn.links_opened += 1;
        }
        if side == Side::Origin {
            self.events += 1;
            self.origins_open += 1;
            if self.plan.mode == Mode::Links {
                let end = self.ends.remove(key);
                end.link.close();
            }
        }
        Ok(())
    }

    /// A link has ended that should not have: what that means.
    fn broken(&self, key: usize, side: Side, error: Error) -> Error {
        let address = self.plan.peer.address();
        let open = self
            .ends
            .get(key)
            .is_some_and(|end| matches!(end.phase, Phase::Open));
        let during = match (side, open) {
            (Side::Origin, false) => {
                return error.context(format!(
                    "no link to {address}: it is no relay, or not the one that it should be"
                ));
            }
            (Side::Origin, true) => "a link to the target broke",
            (Side::NextHop(_), false) => "the target could not open a link to a next hop",
            (Side::NextHop(_), true) => "a link from the target to a next hop broke",
        };
        let when = match self.stage {
            Stage::Wait | Stage::LinkHalf | Stage::Link | Stage::BuildHalf | Stage::Build => {
                "while setting up"
            }
            Stage::Run => "in the warm-up",
            Stage::Measure => "while measuring",
            Stage::Drain | Stage::Stop => "at the end",
        };
        error.context(format!("{during} {when}"))
    }

    /// Writes what the link has to send, as far as its socket goes.
    pub(super) fn write(&mut self, key: usize) -> Result<()> {
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        end.dirty = false;
        if matches!(end.phase, Phase::Connecting) && !self.connected(key)? {
            return Ok(());
        }
        let driving = matches!(self.stage, Stage::Run | Stage::Measure);
        loop {
            let end = self.end(key)?;
            let side = end.side;
            // A link on which nothing can be written is marked again when that changes.
            if !end.link.writable {
                return Ok(());
            }
            match end.link.flush() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) if self.may_end(key) => return self.ended(key),
                Err(error) => return Err(self.broken(key, side, error.into())),
            }
            if !matches!(end.phase, Phase::Open) {
                return Ok(());
            }
            if !end.out.is_empty() {
                let length = end.out.len().min(RECORD);
                end.link
                    .encrypt(end.out.get(..length).unwrap_or_default())?;
                end.out.drain(..length);
                continue;
            }
            if !driving || end.active.is_empty() {
                return Ok(());
            }
            for _ in 0..BATCH / RECORD {
                self.send_record(key)?;
            }
        }
    }

    /// Links are what is measured: opens more.
    pub(super) fn request_links(&mut self) -> Result<()> {
        while self.ends.len() < OPENING {
            if let Err(error) = self.open() {
                bail!("{error:#} (links so far: {})", self.events);
            }
        }
        Ok(())
    }
}
