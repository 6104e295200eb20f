//! One thread of clients.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mio::{Events, Interest, Poll, Token};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use slab::Slab;
use weft_model::traffic::records::Outcome;
use weft_model::traffic::{Action, ClientStream, Record, StreamEvent, StreamId, Times, User};
use weft_testnet::stop::Stop;

use super::clients::{BEAT, FlowClient, FlowSettings};
use super::connection::{Connection, Turn};
use super::socket::CHUNK;

/// A client of this thread.
struct Client<'a> {
    /// Its place among all clients.
    place: usize,
    settings: &'a FlowClient,
    user: User,
    rng: ChaCha8Rng,
}

/// A stream that is open.
struct Stream {
    /// Its place among this thread's clients.
    client: usize,
    id: StreamId,
    isolation: u32,
    connection: Connection,
    /// When it is looked at without its socket's doing; its place in `Driver::timers`.
    timer: Option<Duration>,
    /// It stands in the queue of those that have a turn.
    is_ready: bool,
}

/// The owner of a timer, in the order of `BTreeSet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Client(usize),
    Stream(usize),
}

/// One thread of clients.
pub(super) struct Driver<'a> {
    poll: Poll,
    start: Instant,
    duration: Duration,
    clients: Vec<Client<'a>>,
    streams: Slab<Stream>,
    timers: BTreeSet<(Duration, Due)>,
    ready: VecDeque<usize>,
    records: Vec<(usize, Record)>,
    buffer: Vec<u8>,
}

impl<'a> Driver<'a> {
    /// With every `of`-th client, from number `share` on.
    pub(super) fn new(
        clients: &'a [FlowClient],
        share: usize,
        of: usize,
        settings: FlowSettings,
        start: Instant,
    ) -> Result<Driver<'a>> {
        let mine = clients.iter().enumerate().skip(share).step_by(of);
        let mine = mine.map(|(place, client)| Client {
            place,
            settings: client,
            user: User::starting_at(client.model.clone(), client.start),
            rng: generator(settings.seed, place as u64),
        });
        Ok(Driver {
            poll: Poll::new().context("starting the traffic clients")?,
            start,
            duration: settings.duration,
            clients: mine.collect(),
            streams: Slab::new(),
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            records: Vec::new(),
            buffer: vec![0; CHUNK],
        })
    }

    /// Drives until the time is over or a stop is requested.
    pub(super) fn run(mut self, stop: &Stop) -> Result<Vec<(usize, Record)>> {
        let mut events = Events::with_capacity(1024);
        for client in 0..self.clients.len() {
            self.timers.insert((Duration::ZERO, Due::Client(client)));
        }
        loop {
            let now = self.now();
            if now >= self.duration || stop.is_requested() || self.is_idle() {
                break;
            }
            self.run_timers(now);
            let wait = self.wait(self.now());
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result.context("waiting for the traffic clients' sockets")?,
            }
            for event in &events {
                self.make_ready(event.token().0);
            }
            for _ in 0..self.ready.len() {
                if let Some(place) = self.ready.pop_front() {
                    self.turn(place);
                }
            }
        }
        let now = self.now();
        for stream in self.streams.drain().collect::<Vec<_>>() {
            let traffic = stream.connection.traffic;
            let (client, id, isolation) = (stream.client, stream.id, stream.isolation);
            self.record(client, id, isolation, traffic, now, Outcome::Unfinished);
        }
        Ok(self.records)
    }

    /// True if nothing can happen any more before the time is over.
    fn is_idle(&self) -> bool {
        let next = self.timers.first();
        self.streams.is_empty() && next.is_none_or(|(at, _)| *at >= self.duration)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self, now: Duration) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        let next = self
            .timers
            .first()
            .map_or(BEAT, |(at, _)| at.saturating_sub(now));
        // Epoll counts in milliseconds, and one too early would only be waited for again.
        next.min(BEAT).min(self.duration.saturating_sub(now))
    }

    fn make_ready(&mut self, place: usize) {
        if let Some(stream) = self.streams.get_mut(place)
            && !std::mem::replace(&mut stream.is_ready, true)
        {
            self.ready.push_back(place);
        }
    }

    fn run_timers(&mut self, now: Duration) {
        while let Some((at, due)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.remove(&(at, due));
            match due {
                Due::Client(client) => self.act(client),
                Due::Stream(place) => {
                    if let Some(stream) = self.streams.get_mut(place) {
                        stream.timer = None;
                        self.turn(place);
                    }
                }
            }
        }
    }

    /// Lets a client do what it does now, and sets its timer.
    fn act(&mut self, place: usize) {
        loop {
            let now = self.now();
            let Some(client) = self.clients.get_mut(place) else {
                return;
            };
            let Some(action) = client.user.poll_action(now, &mut client.rng) else {
                let next = client.user.poll_timeout();
                self.timers.extend(next.map(|at| (at, Due::Client(place))));
                return;
            };
            let Action::Open {
                stream,
                isolation,
                plan,
            } = action;
            let seed = client.rng.next_u64();
            let user = format!("{}-{isolation}", client.settings.name);
            let servers = &client.settings.servers;
            let Some(&server) = servers.get(stream.0 as usize % servers.len().max(1)) else {
                return;
            };
            let proxy = client.settings.proxy;
            match Connection::begin(proxy, server, user, plan, seed, now) {
                Ok(connection) => self.add(place, stream, isolation, connection),
                Err(failed) => {
                    let (traffic, failure) = *failed;
                    let outcome = Outcome::Failed(failure);
                    self.end(place, stream, isolation, traffic, outcome);
                }
            }
        }
    }

    fn add(&mut self, client: usize, id: StreamId, isolation: u32, connection: Connection) {
        let entry = self.streams.vacant_entry();
        let place = entry.key();
        let stream = entry.insert(Stream {
            client,
            id,
            isolation,
            connection,
            timer: None,
            is_ready: false,
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        let socket = &mut stream.connection.stream;
        // Without it the stream ends by its limits of time; epoll refuses only when memory is out.
        let _ = self.poll.registry().register(socket, Token(place), both);
        self.set_timer(place);
    }

    /// One turn of a stream.
    fn turn(&mut self, place: usize) {
        let now = self.now();
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        stream.is_ready = false;
        let connection = &mut stream.connection;
        let result = connection
            .turn(now, &mut self.buffer)
            .and_then(|turn| connection.traffic.check(now).map(|()| turn));
        let outcome = match result {
            Err(failure) => Outcome::Failed(failure),
            Ok(_) if connection.traffic.is_complete() => Outcome::Complete,
            Ok(turn) => {
                if turn == Turn::Goes {
                    self.make_ready(place);
                }
                self.set_timer(place);
                return;
            }
        };
        let stream = self.streams.remove(place);
        if let Some(at) = stream.timer {
            self.timers.remove(&(at, Due::Stream(place)));
        }
        let traffic = stream.connection.traffic;
        // The socket closes here.
        drop(stream.connection.stream);
        self.end(stream.client, stream.id, stream.isolation, traffic, outcome);
    }

    fn set_timer(&mut self, place: usize) {
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        let next = stream.connection.traffic.next_time();
        if next == stream.timer {
            return;
        }
        if let Some(at) = stream.timer.take() {
            self.timers.remove(&(at, Due::Stream(place)));
        }
        stream.timer = next;
        self.timers.extend(next.map(|at| (at, Due::Stream(place))));
    }

    /// Notes the end of a stream, and lets its client go on.
    fn end(
        &mut self,
        client: usize,
        id: StreamId,
        isolation: u32,
        traffic: ClientStream,
        outcome: Outcome,
    ) {
        let now = self.now();
        let event = match outcome {
            Outcome::Complete => StreamEvent::Complete,
            _ => StreamEvent::Failed,
        };
        self.record(client, id, isolation, traffic, now, outcome);
        if let Some(owner) = self.clients.get_mut(client) {
            owner.user.handle(now, id, event);
        }
        // Its other timers find nothing to do.
        self.timers.insert((now, Due::Client(client)));
    }

    fn record(
        &mut self,
        client: usize,
        id: StreamId,
        isolation: u32,
        traffic: ClientStream,
        now: Duration,
        outcome: Outcome,
    ) {
        let Some(owner) = self.clients.get(client) else {
            return;
        };
        let (started, times): (Duration, Times) = traffic.into_times();
        let record = Record {
            client: owner.settings.name.clone(),
            model: owner.settings.model_name.clone(),
            stream: id.0,
            isolation,
            started,
            times,
            ended: now.saturating_sub(started),
            outcome,
        };
        self.records.push((owner.place, record));
    }
}

/// The generator of the n-th client.
fn generator(seed: u64, place: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(place);
    rng
}
