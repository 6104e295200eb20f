//! The bare pipe: the least that a relay can do, as a physical limit to measure others against.
//!
//! For each link that it accepts it opens one to the next hop, and moves cells between the two:
//! socket, TLS, one pass of AES-128-CTR over each cell's body with a key for each circuit, TLS,
//! socket. The libraries, the sizes of reads and records, and the single thread are those of a relay
//! with one connection thread. The cipher is RustCrypto's, the fastest that a library has; Weft's own
//! is what is measured against it. There is nothing else: no queue, no scheduler, no circuit but its
//! key. It speaks no link handshake: cells begin when TLS is there.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
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

use super::link::{BATCH, IdHasher, Link, READ_AT_ONCE, RECORD, Read};
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
    /// Bytes of `out` that TLS has taken.
    sent: usize,
    /// We accepted it: cells from here lose a layer, cells to it gain one.
    accepted: bool,
    /// The keys of the circuits of an accepted link, by their ids.
    circuits: Circuits,
    /// Listed to be read, and to be written.
    listed: bool,
    dirty: bool,
}

impl End {
    fn new(link: Link, other: usize, accepted: bool) -> End {
        End {
            link,
            other,
            connected: accepted,
            out: Vec::new(),
            sent: 0,
            accepted,
            circuits: Circuits::default(),
            listed: false,
            dirty: false,
        }
    }

    /// True if it has something to write once the socket is writable.
    fn has_to_write(&mut self) -> bool {
        !self.connected || !self.out.is_empty() || self.link.session.tls().wants_write()
    }

    fn is_full(&self) -> bool {
        self.out.len() - self.sent >= HIGH_WATER
    }
}

/// The key streams of one circuit, one each way.
struct Layers {
    forward: Ctr128BE<Aes128Enc>,
    backward: Ctr128BE<Aes128Enc>,
}

type Circuits = HashMap<u32, Box<Layers>, BuildHasherDefault<IdHasher>>;

struct Pipe {
    poll: Poll,
    listener: TcpListener,
    connect: SocketAddr,
    tls: LinkTls,
    ends: Slab<End>,
    /// Links to be read, and to be written, in this turn.
    readable: Vec<usize>,
    dirty: Vec<usize>,
    /// Circuits of all links.
    circuits: usize,
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
        readable: Vec::new(),
        dirty: Vec::new(),
        circuits: 0,
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
        let wait = match self.readable.is_empty() && self.dirty.is_empty() {
            true => Duration::from_millis(100),
            false => Duration::ZERO,
        };
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled.context("waiting for sockets")?,
        }
        for event in events.iter() {
            let key = event.token().0;
            if event.token() == LISTENER {
                self.accept()?;
            } else if let Some(end) = self.ends.get_mut(key) {
                end.link.note(event);
                if event.is_writable() && end.has_to_write() {
                    self.mark(key);
                }
                self.list(key);
            }
        }
        // Entries that are added meanwhile are for the next turn. The lists keep their memory.
        let mut listed = std::mem::take(&mut self.readable);
        for key in listed.drain(..) {
            if self.read(key).is_err() {
                self.close(key);
            }
        }
        listed.append(&mut self.readable);
        self.readable = listed;
        let mut listed = std::mem::take(&mut self.dirty);
        for key in listed.drain(..) {
            if self.write(key).is_err() {
                self.close(key);
            }
        }
        listed.append(&mut self.dirty);
        self.dirty = listed;
        Ok(())
    }

    /// The link is to be read in this turn or the next, if it may have something and the other end has room. It is
    /// listed again when that has changed.
    fn list(&mut self, key: usize) {
        let Some(end) = self.ends.get(key) else {
            return;
        };
        let has_room = self
            .ends
            .get(end.other)
            .is_some_and(|other| !other.is_full());
        if end.connected
            && end.link.readable
            && has_room
            && let Some(end) = self.ends.get_mut(key)
            && !std::mem::replace(&mut end.listed, true)
        {
            self.readable.push(key);
        }
    }

    /// The link has something to be written.
    fn mark(&mut self, key: usize) {
        if let Some(end) = self.ends.get_mut(key)
            && !std::mem::replace(&mut end.dirty, true)
        {
            self.dirty.push(key);
        }
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
            let first = self
                .ends
                .insert(End::new(Link::new(socket, accepted), 0, true));
            let second = self
                .ends
                .insert(End::new(Link::new(onward, opened), first, false));
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
        end.listed = false;
        let (other, accepted) = (end.other, end.accepted);
        let outcome = end.link.read(&mut self.scratch, &mut self.plain)?;
        // A handshake has an answer, and what waited for its end can go.
        let answers = end.has_to_write();
        let whole = self.plain.len() - self.plain.len() % CELL_LEN;
        let (cells, rest) = self.plain.split_at_mut(whole);
        end.link.keep(rest);
        let owner = if accepted { key } else { other };
        if let Some(owner) = self.ends.get_mut(owner) {
            for cell in cells.as_chunks_mut::<CELL_LEN>().0 {
                let [c0, c1, c2, c3, _, body @ ..] = cell;
                let id = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
                let layers = match owner.circuits.get_mut(&id) {
                    Some(layers) => layers,
                    None if self.circuits >= MAX_CIRCUITS => {
                        return Err(io::ErrorKind::QuotaExceeded.into());
                    }
                    None => {
                        self.circuits += 1;
                        let layers = Layers::new(&mut self.rng);
                        owner.circuits.entry(id).or_insert(Box::new(layers))
                    }
                };
                let body: &mut [u8; BODY_LEN] = body;
                match accepted {
                    true => layers.forward.apply_keystream(body),
                    false => layers.backward.apply_keystream(body),
                }
            }
        }
        if whole > 0
            && let Some(end) = self.ends.get_mut(other)
        {
            end.out.extend_from_slice(cells);
            self.mark(other);
        }
        if answers {
            self.mark(key);
        }
        self.list(key);
        match outcome {
            Read::Ended => Err(io::ErrorKind::UnexpectedEof.into()),
            Read::Empty | Read::More => Ok(()),
        }
    }

    fn write(&mut self, key: usize) -> io::Result<()> {
        let Some(end) = self.ends.get_mut(key) else {
            return Ok(());
        };
        end.dirty = false;
        if !end.link.writable {
            return Ok(());
        }
        let was_full = end.is_full();
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
                break;
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
            } else if end.sent >= HIGH_WATER {
                end.out.drain(..end.sent);
                end.sent = 0;
            }
        }
        let other = end.other;
        if was_full {
            self.list(other);
        }
        // Bytes that arrived before TCP was connected.
        self.list(key);
        Ok(())
    }

    /// Closes a link and the other of its pair.
    fn close(&mut self, key: usize) {
        let Some(end) = self.ends.try_remove(key) else {
            return;
        };
        self.circuits -= end.circuits.len();
        end.link.close();
        if let Some(other) = self.ends.try_remove(end.other) {
            self.circuits -= other.circuits.len();
            other.link.close();
        }
    }
}

impl Layers {
    fn new(rng: &mut ChaCha12Rng) -> Layers {
        let (mut forward, mut backward) = ([0; 16], [0; 16]);
        rng.fill_bytes(&mut forward);
        rng.fill_bytes(&mut backward);
        Layers {
            forward: Ctr128BE::new(&forward.into(), &[0; 16].into()),
            backward: Ctr128BE::new(&backward.into(), &[0; 16].into()),
        }
    }
}
