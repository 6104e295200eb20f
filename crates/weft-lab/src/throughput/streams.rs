//! The application processes and the server of Engler and Goldberg 2021, 5.2: streams that are opened first, begin
//! all at once, and are timed by the server.
//!
//! The paper's server forks for each stream; here one thread sends on all streams and one takes them
//! all in, so that on a machine with few processors more of them are left to the network. A stream
//! begins with its number and goes on with a pattern, which the server checks byte by byte.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weft_testnet::traffic::socks;

/// Bytes written or read at a time, and the length of the pattern.
const CHUNK: usize = 64 * 1024;

/// Longest time without any arrival, and longest time for one stream to open.
const STALL: Duration = Duration::from_secs(60);

/// Interval at which threads check whether to stop.
const BEAT: Duration = Duration::from_millis(100);

/// Length of a stream's head, in bytes: a word, and the stream's number.
const HEAD: usize = 8;
const WORD: [u8; 4] = *b"weft";

/// The least that a stream can carry, bytes.
pub(super) const LEAST: u64 = HEAD as u64;

/// When the server had a stream's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

/// Payload of streams after their heads: a repeated pattern.
#[derive(Clone, Debug)]
struct Pattern {
    /// The pattern twice, so that a chunk from any place is in one piece.
    twice: Arc<[u8]>,
}

impl Pattern {
    fn new(seed: u64) -> Pattern {
        let mut once = vec![0; CHUNK];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut once);
        let twice = once.repeat(2).into();
        Pattern { twice }
    }

    /// Up to [`CHUNK`] bytes of stream `number` after the first `at`. Streams begin at different
    /// places, so that bytes of another are noticed.
    fn chunk(&self, number: u32, at: u64, most: usize) -> &[u8] {
        let place = at.wrapping_add(u64::from(number).wrapping_mul(257)) % CHUNK as u64;
        // Less than CHUNK, so nothing is cut.
        let place = place as usize;
        self.twice
            .get(place..place + most.min(CHUNK))
            .unwrap_or_default()
    }
}

/// The first bytes of a stream.
fn head(number: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let (word, digits) = head.split_at_mut(WORD.len());
    word.copy_from_slice(&WORD);
    digits.copy_from_slice(&number.to_be_bytes());
    head
}

/// The number in the first bytes of a stream.
fn number_in(head: [u8; HEAD]) -> Option<u32> {
    let (word, digits) = head.split_first_chunk::<4>()?;
    (*word == WORD).then_some(u32::from_be_bytes(*digits.first_chunk()?))
}

/// Payload of all streams of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Number of streams.
    pub(super) streams: usize,
    /// Bytes of each, heads included.
    pub(super) bytes: u64,
    /// Seed of the bytes.
    pub(super) seed: u64,
}

/// The server: takes in all streams of one run.
#[derive(Debug)]
pub(super) struct Sink {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Vec<Option<Arrival>>>>>,
}

impl Sink {
    /// Starts it on a free loopback port.
    pub(super) fn start(load: Load) -> Result<Sink> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .context("starting the server")?;
        let address = listener.local_addr().context("starting the server")?;
        let (stop, arrived) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let taking = Taking::new(load, listener, Arc::clone(&stop), Arc::clone(&arrived))?;
        let thread = thread::Builder::new()
            .name("server".into())
            .spawn(move || taking.run())
            .context("starting the server's thread")?;
        Ok(Sink {
            address,
            stop,
            arrived,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// True if its thread has ended, well or badly.
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// When each stream arrived, by its number. It must have ended, or it is ended here.
    ///
    /// # Errors
    ///
    /// What the server found wrong; else the error of `sent`, because a server that gives up closes all
    /// streams and the sender sees only that; else that streams are missing.
    pub(super) fn end(mut self, sent: Result<()>) -> Result<Vec<Arrival>> {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().context("a server ends once")?;
        let arrivals = thread
            .join()
            .map_err(|_| anyhow!("the server's thread panicked"))??;
        sent?;
        let (all, missing) = (arrivals.len(), arrivals.iter().filter(|one| one.is_none()));
        let missing = missing.count();
        ensure!(
            missing == 0,
            "{missing} of {all} streams did not arrive whole"
        );
        Ok(arrivals.into_iter().flatten().collect())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One accepted connection.
struct Incoming {
    stream: TcpStream,
    head: Vec<u8>,
    number: Option<u32>,
    /// Bytes so far, the head included.
    count: u64,
    first: Option<Instant>,
    /// It stands in the queue of those that may have bytes.
    is_ready: bool,
}

/// The server's thread.
struct Taking {
    load: Load,
    pattern: Pattern,
    listener: TcpListener,
    poll: Poll,
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    connections: Vec<Option<Incoming>>,
    arrivals: Vec<Option<Arrival>>,
    buffer: Vec<u8>,
}

const LISTENER: Token = Token(usize::MAX);

impl Taking {
    fn new(
        load: Load,
        mut listener: TcpListener,
        stop: Arc<AtomicBool>,
        arrived: Arc<AtomicU64>,
    ) -> Result<Taking> {
        let poll = Poll::new().context("starting the server")?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)
            .context("starting the server")?;
        Ok(Taking {
            load,
            pattern: Pattern::new(load.seed),
            listener,
            poll,
            stop,
            arrived,
            connections: Vec::new(),
            arrivals: vec![None; load.streams],
            buffer: vec![0; CHUNK],
        })
    }

    /// Takes streams in until all are through or `stop` is set.
    fn run(mut self) -> Result<Vec<Option<Arrival>>> {
        let mut events = Events::with_capacity(1024);
        let mut ready = VecDeque::new();
        loop {
            let wait = if ready.is_empty() {
                BEAT
            } else {
                Duration::ZERO
            };
            poll(&mut self.poll, &mut events, wait)?;
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(place) => {
                        let incoming = self.connections.get_mut(place).and_then(Option::as_mut);
                        if incoming.is_some_and(|one| !std::mem::replace(&mut one.is_ready, true)) {
                            ready.push_back(place);
                        }
                    }
                }
            }
            // Each once, so that all have their turn.
            for _ in 0..ready.len() {
                let Some(place) = ready.pop_front() else {
                    break;
                };
                let is_ready = self.take(place)?;
                if let Some(Some(incoming)) = self.connections.get_mut(place) {
                    incoming.is_ready = is_ready;
                }
                if is_ready {
                    ready.push_back(place);
                }
            }
            if self.arrivals.iter().all(Option::is_some) || self.stop.load(Ordering::SeqCst) {
                return Ok(self.arrivals);
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("accepting a stream"),
            };
            let token = Token(self.connections.len());
            self.poll
                .registry()
                .register(&mut stream, token, Interest::READABLE)
                .context("waiting for a stream")?;
            self.connections.push(Some(Incoming {
                stream,
                head: Vec::with_capacity(HEAD),
                number: None,
                count: 0,
                first: None,
                is_ready: false,
            }));
        }
    }

    /// Reads once. `true` if there may be more.
    fn take(&mut self, place: usize) -> Result<bool> {
        let Some(incoming) = self.connections.get_mut(place).and_then(Option::as_mut) else {
            return Ok(false);
        };
        let most = match incoming.number {
            None => HEAD - incoming.head.len(),
            Some(_) => CHUNK,
        };
        let buffer = self.buffer.get_mut(..most).unwrap_or_default();
        let count = match incoming.stream.read(buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error).context("reading a stream at the server"),
        };
        ensure!(
            count > 0,
            "a stream ended at the server after {} of {} bytes",
            incoming.count,
            self.load.bytes
        );
        let now = Instant::now();
        let first = *incoming.first.get_or_insert(now);
        let bytes = buffer.get(..count).unwrap_or_default();
        match incoming.number {
            None => {
                incoming.head.extend_from_slice(bytes);
                if let Ok(head) = <[u8; HEAD]>::try_from(&*incoming.head) {
                    let known = number_in(head).filter(|number| {
                        let place = usize::try_from(*number).ok();
                        place.is_some_and(|place| place < self.load.streams)
                    });
                    incoming.number = Some(known.with_context(|| {
                        format!("a stream began with {head:02x?}, which was not sent")
                    })?);
                }
            }
            Some(number) => {
                let expected = self.pattern.chunk(number, incoming.count, count);
                ensure!(
                    bytes == expected,
                    "stream {number}: other bytes arrived than were sent, near byte {}",
                    incoming.count
                );
            }
        }
        incoming.count += count as u64;
        self.arrived.fetch_add(count as u64, Ordering::Relaxed);
        if incoming.count < self.load.bytes {
            return Ok(true);
        }
        ensure!(
            incoming.count == self.load.bytes,
            "a stream brought {} bytes more than were sent",
            incoming.count - self.load.bytes
        );
        // The receipt: the sender closes when it has it, because C tor ends a stream that the
        // application half-closes.
        incoming
            .stream
            .write_all(&[1])
            .context("sending a receipt")?;
        let number = incoming
            .number
            .and_then(|number| usize::try_from(number).ok());
        let arrival = number.and_then(|number| self.arrivals.get_mut(number));
        let arrival = arrival.context("a stream shorter than its head")?;
        ensure!(arrival.is_none(), "a stream arrived twice");
        *arrival = Some(Arrival { first, last: now });
        if let Some(connection) = self.connections.get_mut(place) {
            *connection = None;
        }
        Ok(false)
    }
}

/// Opens a stream to `server` on each circuit: a proxy, and the user name that stands for the circuit
/// there. In the order of the circuits; proxies are asked side by side, each for one at a time.
pub(super) fn open(
    circuits: &[(SocketAddr, String)],
    server: SocketAddr,
) -> Result<Vec<std::net::TcpStream>> {
    let mut proxies: Vec<SocketAddr> = Vec::new();
    for (proxy, _) in circuits {
        if !proxies.contains(proxy) {
            proxies.push(*proxy);
        }
    }
    let of_one = |proxy: SocketAddr| {
        let mine = circuits
            .iter()
            .enumerate()
            .filter(|(_, one)| one.0 == proxy);
        mine.map(|(place, (_, user))| {
            let stream = socks::connect(proxy, user, server.into(), STALL)?;
            Ok((place, stream))
        })
        .collect::<Result<Vec<_>>>()
    };
    let mut opened = thread::scope(|scope| {
        let asking = proxies.into_iter().map(|proxy| {
            thread::Builder::new()
                .name("opening streams".into())
                .spawn_scoped(scope, move || of_one(proxy))
                .context("starting a thread that opens streams")
        });
        let asking: Vec<_> = asking.collect::<Result<_>>()?;
        let mut opened = Vec::new();
        for one in asking {
            let streams = one
                .join()
                .map_err(|_| anyhow!("opening streams panicked"))?;
            opened.extend(streams?);
        }
        Ok::<_, anyhow::Error>(opened)
    })?;
    opened.sort_by_key(|(place, _)| *place);
    Ok(opened.into_iter().map(|(_, stream)| stream).collect())
}

/// One stream, at the application's end.
struct Outgoing {
    stream: TcpStream,
    sent: u64,
    has_receipt: bool,
}

/// Sends on all streams at once until each has its receipt. `progress` hears how many bytes have
/// arrived, some ten times a second.
///
/// # Errors
///
/// A stream ends before its receipt, the server finds other bytes than were sent, nothing arrives for
/// a minute, or `stop` becomes true.
pub(super) fn send(
    streams: Vec<std::net::TcpStream>,
    load: Load,
    sink: &Sink,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    ensure!(
        streams.len() == load.streams,
        "{} streams are open and {} are wanted",
        streams.len(),
        load.streams
    );
    let pattern = Pattern::new(load.seed);
    let mut poll_them = Poll::new().context("sending")?;
    let mut all = Vec::with_capacity(streams.len());
    for (place, stream) in streams.into_iter().enumerate() {
        stream.set_nonblocking(true).context("sending")?;
        let mut stream = TcpStream::from_std(stream);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll_them
            .registry()
            .register(&mut stream, Token(place), interest)
            .context("sending")?;
        all.push(Outgoing {
            stream,
            sent: 0,
            has_receipt: false,
        });
    }
    let mut events = Events::with_capacity(1024);
    let mut ready: VecDeque<usize> = VecDeque::new();
    let mut is_ready = vec![false; all.len()];
    let mut without_receipt = all.len();
    let (mut seen, mut since, mut reported) = (0, Instant::now(), Instant::now());
    while without_receipt > 0 {
        let wait = if ready.is_empty() {
            BEAT
        } else {
            Duration::ZERO
        };
        poll(&mut poll_them, &mut events, wait)?;
        for event in &events {
            let Token(place) = event.token();
            let (Some(one), Some(is_ready)) = (all.get_mut(place), is_ready.get_mut(place)) else {
                continue;
            };
            if event.is_readable() && !one.has_receipt {
                one.has_receipt = receipt(one, place, load)?;
                without_receipt -= usize::from(one.has_receipt);
            }
            if event.is_writable() && !*is_ready {
                *is_ready = true;
                ready.push_back(place);
            }
        }
        for _ in 0..ready.len() {
            let Some(place) = ready.pop_front() else {
                break;
            };
            let (Some(one), Some(is_ready)) = (all.get_mut(place), is_ready.get_mut(place)) else {
                continue;
            };
            *is_ready = push(one, place, load, &pattern)?;
            if *is_ready {
                ready.push_back(place);
            }
        }
        if reported.elapsed() < BEAT {
            continue;
        }
        reported = Instant::now();
        let arrived = sink.arrived.load(Ordering::Relaxed);
        progress(arrived);
        if arrived > seen {
            (seen, since) = (arrived, Instant::now());
        }
        ensure!(!stop.load(Ordering::SeqCst), "stopped");
        ensure!(
            since.elapsed() < STALL,
            "nothing has arrived for {STALL:?}, and {without_receipt} of {} streams are not through",
            load.streams
        );
        // With streams that are not through, its end is an error, which `Sink::end` returns.
        if sink.has_ended() && seen < load.bytes * load.streams as u64 {
            return Ok(());
        }
    }
    progress(sink.arrived.load(Ordering::Relaxed));
    Ok(())
}

/// Writes once. `true` if more can be written.
fn push(one: &mut Outgoing, place: usize, load: Load, pattern: &Pattern) -> Result<bool> {
    let number = u32::try_from(place).context("too many streams")?;
    let left = usize::try_from(load.bytes - one.sent).unwrap_or(usize::MAX);
    let head = head(number);
    let bytes = match usize::try_from(one.sent) {
        Ok(sent) if sent < HEAD => head.get(sent..).unwrap_or_default(),
        _ => pattern.chunk(number, one.sent, left),
    };
    if bytes.is_empty() {
        return Ok(false);
    }
    match one.stream.write(bytes) {
        Ok(count) => {
            one.sent += count as u64;
            Ok(one.sent < load.bytes)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error).with_context(|| lost(one, place, load)),
    }
}

/// Returns true once the receipt has arrived.
fn receipt(one: &mut Outgoing, place: usize, load: Load) -> Result<bool> {
    let mut byte = [0];
    match one.stream.read(&mut byte) {
        Ok(1) if one.sent == load.bytes => Ok(true),
        Ok(0) => bail!("{}", lost(one, place, load)),
        Ok(_) => bail!("stream {place} was answered before it was through"),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| lost(one, place, load)),
    }
}

fn lost(one: &Outgoing, place: usize, load: Load) -> String {
    format!(
        "stream {place} was closed when {} of {} bytes were sent",
        one.sent, load.bytes
    )
}

/// Waits; a signal is no error.
fn poll(poll: &mut Poll, events: &mut Events, wait: Duration) -> Result<()> {
    match poll.poll(events, Some(wait)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        other => other.context("waiting for streams"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams without a proxy.
    fn direct(load: Load, sink: &Sink) -> Vec<std::net::TcpStream> {
        (0..load.streams)
            .map(|_| std::net::TcpStream::connect(sink.address()).expect("the server listens"))
            .collect()
    }

    const LOAD: Load = Load {
        streams: 5,
        bytes: 300_001,
        seed: 7,
    };

    #[test]
    fn all_streams_arrive_whole_and_in_order_of_time() {
        for bytes in [LEAST, LEAST + 1, LOAD.bytes] {
            let load = Load { bytes, ..LOAD };
            let sink = Sink::start(load).expect("a server");
            let streams = direct(load, &sink);
            let start = Instant::now();
            let (stop, mut last) = (AtomicBool::new(false), 0);
            let sent = send(streams, load, &sink, &stop, &mut |arrived| last = arrived);
            let arrivals = sink.end(sent).expect("all arrived");
            assert_eq!((arrivals.len(), last), (5, 5 * bytes));
            for arrival in arrivals {
                assert!(start <= arrival.first && arrival.first <= arrival.last);
            }
        }
    }

    #[test]
    fn other_bytes_than_were_sent_are_an_error() {
        let sink = Sink::start(LOAD).expect("a server");
        let streams = direct(LOAD, &sink);
        let other = Load { seed: 8, ..LOAD };
        // The sender may see the server's end first, which is not what is reported.
        let sent = send(streams, other, &sink, &AtomicBool::new(false), &mut |_| {});
        let error = sink.end(sent).expect_err("other bytes");
        assert!(format!("{error:#}").contains("other bytes"), "{error:#}");
    }

    #[test]
    fn a_stream_that_is_closed_is_an_error_that_names_it() {
        let sink = Sink::start(LOAD).expect("a server");
        let mut streams = direct(LOAD, &sink);
        let closed = streams.pop().expect("a stream");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        streams.push(
            std::net::TcpStream::connect(listener.local_addr().expect("an address"))
                .expect("connected"),
        );
        drop((listener.accept().expect("a client"), closed));
        let sent = send(streams, LOAD, &sink, &AtomicBool::new(false), &mut |_| {});
        let error = sink.end(sent).expect_err("a stream that is closed");
        let error = format!("{error:#}");
        assert!(
            error.contains("stream 4 was closed") || error.contains("a stream ended at the server"),
            "{error}"
        );
    }

    #[test]
    fn a_stop_ends_a_run() {
        let sink = Sink::start(LOAD).expect("a server");
        // One is missing: the server waits for it.
        let load = Load { streams: 4, ..LOAD };
        let mut streams = direct(load, &sink);
        let idle = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        streams.push(
            std::net::TcpStream::connect(idle.local_addr().expect("an address"))
                .expect("connected"),
        );
        let error = send(streams, LOAD, &sink, &AtomicBool::new(true), &mut |_| {})
            .expect_err("it was stopped");
        assert!(format!("{error:#}").contains("stopped"), "{error:#}");
    }

    #[test]
    fn heads_are_distinguished_from_other_bytes() {
        assert_eq!(number_in(head(0)), Some(0));
        assert_eq!(number_in(head(u32::MAX)), Some(u32::MAX));
        assert_eq!(number_in(*b"other\0\0\0"), None);
    }
}
