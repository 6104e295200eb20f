//! The bare pipe: the least that a relay can do, as a physical limit to measure others against.
//!
//! For each link that it accepts it opens one to the next hop, and moves cells between the two:
//! socket, TLS, one pass of AES-128-CTR over each cell's body with a key for each circuit, TLS,
//! socket. The libraries, the sizes of reads and records, and the single thread are those of a relay
//! with one connection thread. The cipher is RustCrypto's, the fastest that a library has; Weft's own
//! is what is measured against it. There is nothing else: no queue, no scheduler, no circuit but its
//! key. It speaks no link handshake: cells begin when TLS is there.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use aes::Aes128Enc;
use anyhow::{Context, Result, ensure};
use cipher::{KeyIvInit as _, StreamCipher as _};
use ctr::Ctr128BE;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use slab::Slab;
use weft_cell::{BODY_LEN, CELL_LEN};
use weft_core::handshake::EphemeralKeys;
use weft_tls::{LinkLifetimes, LinkTls};

use super::link::{BATCH, Link, READ_AT_ONCE, RECORD, Read};
use super::options::is_private;

/// Bytes that may wait for a socket before nothing more is read for it.
const HIGH_WATER: usize = 1 << 20;
/// Circuits with keys: more are refused, as everything must be bounded.
const MAX_CIRCUITS: usize = 1 << 20;

const LISTENER: Token = Token(usize::MAX - 1);

/// One end of a pair of links.
struct End {
    link: Link,
    /// The key in `ends` of the other link of the pair.
    other: usize,
    /// TCP is connected.
    connected: bool,
    /// Cells to be sent here, encrypted by the pipe but not yet by TLS.
    out: Vec<u8>,
    /// What of `out` TLS has taken.
    sent: usize,
    /// We accepted it: cells from here lose a layer, cells to it gain one.
    accepted: bool,
}

/// The key streams of one circuit, one each way.
struct Layers {
    forward: Ctr128BE<Aes128Enc>,
    backward: Ctr128BE<Aes128Enc>,
}

struct Pipe {
    poll: Poll,
    listener: TcpListener,
    connect: SocketAddr,
    tls: LinkTls,
    ends: Slab<End>,
    /// Keys of circuits, each way its own, by the link that we accepted and the circuit's id.
    circuits: HashMap<(usize, u32), Layers>,
    rng: ChaCha12Rng,
    scratch: Vec<u8>,
    plain: Vec<u8>,
}

/// Runs a pipe until `stop` becomes true. It listens at `listen` and opens links to `connect`.
///
/// # Errors
///
/// It cannot listen. A link that fails is closed together with its other end, no more.
pub fn run(listen: SocketAddr, connect: SocketAddr, stop: &AtomicBool) -> Result<()> {
    ensure!(
        is_private(connect),
        "{connect} is a public address: a pipe is for measurements on machines of your own"
    );
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let now = SystemTime::now();
    let keys = EphemeralKeys::generate(now, &mut rng).context("making the pipe's keys")?;
    let tls = LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng)
        .context("making the pipe's TLS key")?;
    let poll = Poll::new().context("making an epoll instance")?;
    let mut listener =
        TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)
        .context("watching the listener")?;
    let mut pipe = Pipe {
        poll,
        listener,
        connect,
        tls,
        ends: Slab::new(),
        circuits: HashMap::new(),
        rng,
        scratch: vec![0; READ_AT_ONCE],
        plain: Vec::new(),
    };
    let mut events = Events::with_capacity(1024);
    while !stop.load(Ordering::Relaxed) {
        pipe.turn(&mut events)?;
    }
    Ok(())
}

impl Pipe {
    fn turn(&mut self, events: &mut Events) -> Result<()> {
        // Sockets that may be read although epoll reported nothing new: those that were held back.
        let more = self.ends.iter().any(|(_, end)| self.may_read(end));
        let wait = if more {
            Duration::ZERO
        } else {
            Duration::from_millis(100)
        };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("waiting for sockets")?,
        }
        for event in events.iter() {
            if event.token() == LISTENER {
                self.accept()?;
            } else if let Some(end) = self.ends.get_mut(event.token().0) {
                end.link.note(event);
            }
        }
        let keys: Vec<usize> = self.ends.iter().map(|(key, _)| key).collect();
        for key in &keys {
            if self.ends.get(*key).is_some_and(|end| self.may_read(end)) && self.read(*key).is_err()
            {
                self.close(*key);
            }
        }
        for key in &keys {
            if self.ends.get(*key).is_some_and(|end| end.link.writable) && self.write(*key).is_err()
            {
                self.close(*key);
            }
        }
        Ok(())
    }

    fn may_read(&self, end: &End) -> bool {
        let other = self.ends.get(end.other);
        end.connected
            && end.link.readable
            && other.is_some_and(|other| other.out.len() - other.sent < HIGH_WATER)
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let (socket, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("accepting a link"),
            };
            // A next hop that is not there ends this pair only.
            let Ok(onward) = TcpStream::connect(self.connect) else {
                continue;
            };
            socket.set_nodelay(true)?;
            let accepted = self.tls.accept().context("beginning a TLS session")?;
            let opened = self
                .tls
                .connect(&mut self.rng)
                .context("beginning a TLS session")?;
            let first = self.ends.insert(End {
                link: Link::new(socket, accepted),
                other: 0,
                connected: true,
                out: Vec::new(),
                sent: 0,
                accepted: true,
            });
            let second = self.ends.insert(End {
                link: Link::new(onward, opened),
                other: first,
                connected: false,
                out: Vec::new(),
                sent: 0,
                accepted: false,
            });
            for (key, other) in [(first, second), (second, first)] {
                if let Some(end) = self.ends.get_mut(key) {
                    end.other = other;
                    self.poll
                        .registry()
                        .register(
                            &mut end.link.socket,
                            Token(key),
                            Interest::READABLE | Interest::WRITABLE,
                        )
                        .context("watching a socket")?;
                }
            }
        }
    }

    fn read(&mut self, key: usize) -> io::Result<()> {
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        let (other, accepted) = (end.other, end.accepted);
        let outcome = end.link.read(&mut self.scratch, &mut self.plain)?;
        let whole = self.plain.len() - self.plain.len() % CELL_LEN;
        let (cells, rest) = self.plain.split_at_mut(whole);
        end.link.keep(rest);
        for cell in cells.as_chunks_mut::<CELL_LEN>().0 {
            let [c0, c1, c2, c3, _, body @ ..] = cell;
            let id = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
            let owner = if accepted { key } else { other };
            let room = self.circuits.len() < MAX_CIRCUITS;
            let crypt = match self.circuits.get_mut(&(owner, id)) {
                Some(crypt) => crypt,
                None if room => {
                    let (mut forward, mut backward) = ([0; 16], [0; 16]);
                    self.rng.fill_bytes(&mut forward);
                    self.rng.fill_bytes(&mut backward);
                    self.circuits.entry((owner, id)).or_insert_with(|| Layers {
                        forward: Ctr128BE::new(&forward.into(), &[0; 16].into()),
                        backward: Ctr128BE::new(&backward.into(), &[0; 16].into()),
                    })
                }
                None => return Err(io::ErrorKind::QuotaExceeded.into()),
            };
            let body: &mut [u8; BODY_LEN] = body;
            if accepted {
                crypt.forward.apply_keystream(body);
            } else {
                crypt.backward.apply_keystream(body);
            }
        }
        if let Some(other) = self.ends.get_mut(other) {
            other.out.extend_from_slice(cells);
        }
        match outcome {
            Read::Ended => Err(io::ErrorKind::UnexpectedEof.into()),
            Read::Empty | Read::More => Ok(()),
        }
    }

    fn write(&mut self, key: usize) -> io::Result<()> {
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        if !end.connected {
            if let Some(error) = end.link.socket.take_error()? {
                return Err(error);
            }
            match end.link.socket.peer_addr() {
                Ok(_) => end.link.socket.set_nodelay(true)?,
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
                Err(error) => return Err(error),
            }
            end.connected = true;
        }
        while end.link.flush()? {
            if end.link.session.tls().is_handshaking() || end.sent == end.out.len() {
                return Ok(());
            }
            let mut batch = 0;
            while end.sent < end.out.len() && batch < BATCH {
                let rest = end.out.get(end.sent..).unwrap_or_default();
                let record = rest.get(..RECORD).unwrap_or(rest);
                end.link.encrypt(record)?;
                end.sent += record.len();
                batch += record.len();
            }
            if end.sent == end.out.len() {
                end.out.clear();
                end.sent = 0;
            }
        }
        Ok(())
    }

    /// Closes a link and the other of its pair.
    fn close(&mut self, key: usize) {
        let Some(end) = self.ends.try_remove(key) else {
            return;
        };
        let (other, accepted) = (end.other, end.accepted);
        end.link.close();
        if let Some(end) = self.ends.try_remove(other) {
            end.link.close();
        }
        let owner = if accepted { key } else { other };
        self.circuits.retain(|(link, _), _| *link != owner);
    }
}
