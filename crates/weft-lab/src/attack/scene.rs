//! An attack's environment: the target, the peers that it may play, its rate limit, and its end.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use super::cast::{Cast, Identity, attacker};
use super::peer::{BEAT, Peer, connect};
use super::servers::Server;
use super::target::Ports;
use crate::relay::aim::Aim;

/// Bytes that may be sent at once after a pause, in seconds of the rate.
const BURST_S: f64 = 0.02;

/// Counters of an attack, for the threads that watch it.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Bytes that it sent, those of TLS's records not counted.
    pub(super) bytes: AtomicU64,
    /// Misdeeds: circuits, streams, connections, whatever it counts.
    pub(super) deeds: AtomicU64,
    /// Links, circuits or connections that the target closed or refused.
    pub(super) setbacks: AtomicU64,
    /// The first of them.
    pub(super) first_setback: Mutex<Option<String>>,
    /// An answer that the target must not give.
    pub(super) breach: Mutex<Option<String>>,
    /// The attack is under way and must end.
    pub(super) over: AtomicBool,
}

/// The attack's view of its surroundings. It belongs to the attack's thread.
pub(super) struct Scene<'a> {
    pub(super) aim: Aim,
    pub(super) ports: Ports,
    pub(super) cast: &'a Cast,
    pub(super) counters: &'a Counters,
    /// Where streams may go that a [`Server`] of the attack's choice answers.
    pub(super) destination: Option<&'a Server>,
    /// Connections that the attack may hold at a time.
    pub(super) max_connections: usize,
    /// Bytes a second.
    pub(super) rate: f64,
    /// Bytes that may be sent now, and since when.
    pub(super) tokens: Cell<(f64, Instant)>,
    /// The next seed.
    pub(super) seed: Cell<u64>,
    /// Set by SIGINT and SIGTERM.
    pub(super) stop: &'a AtomicBool,
}

impl Scene<'_> {
    /// Makes the attack. Its error counts as a setback.
    pub(super) fn play(&self, attack: fn(&Scene<'_>) -> Result<()>) {
        if let Err(error) = attack(self) {
            self.set_back(&error);
        }
    }

    /// The attack must end.
    pub(super) fn is_over(&self) -> bool {
        self.counters.over.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    /// A new seed.
    pub(super) fn seed(&self) -> u64 {
        let seed = self.seed.get();
        self.seed.set(seed.wrapping_add(1));
        seed
    }

    /// Counts something that was done.
    pub(super) fn did(&self, count: u64) {
        self.counters.deeds.fetch_add(count, Ordering::Relaxed);
    }

    /// Waits until `bytes` may be sent, and counts them. Returns false if the attack is over.
    pub(super) fn spend(&self, bytes: usize) -> bool {
        let wanted = bytes as f64;
        loop {
            if self.is_over() {
                return false;
            }
            let (had, at) = self.tokens.get();
            let now = Instant::now();
            let fresh = now.duration_since(at).as_secs_f64() * self.rate;
            // A full bucket may send more than a burst at once, and is then in debt.
            let burst = self.rate * BURST_S;
            let tokens = (had + fresh).min(burst);
            if tokens >= wanted.min(burst) {
                self.tokens.set((tokens - wanted, now));
                self.counters
                    .bytes
                    .fetch_add(bytes as u64, Ordering::Relaxed);
                return true;
            }
            self.tokens.set((tokens, now));
            let missing = (wanted.min(burst) - tokens) / self.rate;
            std::thread::sleep(
                Duration::from_secs_f64(missing).clamp(Duration::from_micros(200), BEAT),
            );
        }
    }

    /// Sends bytes at the attack's rate and reads what comes. At most some 64 KiB wait unsent.
    ///
    /// # Errors
    ///
    /// The target has closed the link.
    pub(super) fn send(&self, peer: &mut Peer, bytes: &[u8]) -> Result<()> {
        for some in bytes.chunks(31 * weft_cell::CELL_LEN) {
            if !self.spend(some.len()) {
                return Ok(());
            }
            peer.queue(some)?;
            peer.pump(Duration::ZERO)?;
            while !peer.is_clear() && !self.is_over() {
                peer.pump(BEAT)?;
            }
        }
        Ok(())
    }

    /// Like [`send`](Self::send), without decrypting what arrives, for a caller that needs no
    /// answer.
    pub(super) fn send_blindly(&self, peer: &mut Peer, bytes: &[u8]) -> Result<()> {
        for some in bytes.chunks(31 * weft_cell::CELL_LEN) {
            if !self.spend(some.len()) {
                return Ok(());
            }
            peer.queue(some)?;
            peer.pump_blind(Duration::ZERO)?;
            while !peer.is_clear() && !self.is_over() {
                peer.pump_blind(BEAT)?;
            }
        }
        Ok(())
    }

    /// Sleeps, and wakes up when the attack is over.
    pub(super) fn pause(&self, length: Duration) {
        let deadline = Instant::now() + length;
        while !self.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(BEAT));
        }
    }

    /// A client's link from one of the attackers' addresses.
    pub(super) fn client(&self, number: usize) -> Result<Peer> {
        let socket = connect(attacker(number), self.aim.address, None)?;
        Peer::open(socket, &self.cast.client, self.seed())
    }

    /// The link of a relay that an attacker plays, from his address.
    pub(super) fn relay(&self, number: usize) -> Result<Peer> {
        let socket = connect(attacker(number), self.aim.address, None)?;
        Peer::open(socket, &self.identity(number).tls, self.seed())
    }

    /// One of the relays that attackers play.
    pub(super) fn identity(&self, number: usize) -> &Identity {
        let attackers = &self.cast.attackers;
        let count = attackers.len().max(1);
        attackers
            .get(number % count)
            .unwrap_or(&self.cast.honest_guard)
    }

    /// Where streams go.
    pub(super) fn destination(&self) -> Result<SocketAddr> {
        let server = self
            .destination
            .ok_or_else(|| Error::msg("no destination"))?;
        Ok(server.address)
    }

    /// Does something again and again until the attack is over. When the target closes what it was done
    /// on, which is its good right, that is counted, and it begins anew after a short pause.
    pub(super) fn again(&self, mut deed: impl FnMut() -> Result<()>) {
        while !self.is_over() {
            if let Err(error) = deed() {
                self.set_back(&error);
                self.pause(Duration::from_millis(10));
            }
        }
    }

    /// Reads what these peers are sent, and nothing else, until the attack is over.
    pub(super) fn linger(&self, mut peers: Vec<&mut Peer>) -> Result<()> {
        while !self.is_over() {
            for peer in &mut peers {
                peer.pump_blind(BEAT)?;
            }
        }
        Ok(())
    }

    /// Notes an answer that the target must not give.
    pub(super) fn breached(&self, how: String) {
        let breach = self.counters.breach.lock();
        *breach.unwrap_or_else(PoisonError::into_inner) = Some(how);
    }

    /// Counts something that the target refused.
    pub(super) fn set_back(&self, error: &Error) {
        if self.is_over() {
            return;
        }
        self.counters.setbacks.fetch_add(1, Ordering::Relaxed);
        let first = self.counters.first_setback.lock();
        let mut first = first.unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{error:#}"));
    }
}
