//! A connection thread, one turn at a time, with a client at the other end of a real socket.

mod hosting;
mod moving;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use rand_chacha::ChaCha12Rng;
use weft_cell::frame::{self, Frame};
use weft_cell::{Cell, ChanCmd};
use weft_core::address::{ConnectionId, HalfAddr, StreamAddr};
use weft_core::flow::Terms;
use weft_core::handshake::{EphemeralKeys, HANDSHAKE_TIMEOUT, LinkHandshake, Role};
use weft_core::message::ToController;
use weft_core::origin::LinkStep;
use weft_core::slots::HalfKey;
use weft_core::stream::edge::StreamAt;
use weft_proxy::{Protocol, Proxy};
use weft_sync::lease::LeasePool;
use weft_sync::wake::WakeFlag;

use super::edges::{AdoptEdge, AdoptKind, EDGES_PER_TURN, EdgeSocket};
use super::mesh::{MainEnds, ThreadEnds, mesh};
use super::reading::HANDSHAKES_PER_TURN;
use super::*;
use crate::wake::WakeUp;
use weft_tls::{LinkLifetimes, LinkSession};

/// A connection that a client has opened.
fn responder(socket: std::net::TcpStream, peer: SocketAddr) -> Adopt {
    Adopt {
        id: FIRST,
        socket,
        peer,
        role: Role::Responder,
        proxy: None,
        handed_over: false,
    }
}

/// The first connection.
const FIRST: ConnectionId = ConnectionId(1);
/// Turns after which whatever is waited for will never come.
const MANY_TURNS: usize = 10_000;

/// A thread and the main thread's end of its channels, and perhaps other threads.
struct Bench {
    thread: ConnectionThread,
    main: MainEnds,
    others: Vec<(ConnectionThread, MainEnds)>,
    _main_poll: Poll,
}

impl Bench {
    fn new() -> Self {
        Self::of(1)
    }

    /// So many threads.
    fn of(count: u16) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let wall = SystemTime::now();
        let keys = EphemeralKeys::generate(wall, &mut rng).unwrap();
        let tls = LinkTls::relay(keys.keys(), LinkLifetimes::default(), wall, &mut rng).unwrap();
        let (main_poll, main_waker) = event_loop().unwrap();
        let loops = (0..count).map(|_| event_loop().unwrap());
        let (polls, wakers): (Vec<_>, Vec<_>) = loops.unzip();
        let main = WakeUp {
            flag: Arc::new(WakeFlag::new()),
            waker: main_waker,
        };
        let (threads, mains) = mesh(wakers, &main);
        let now = Instant::now();
        let rate = 1 << 40;
        let tls = Arc::new(tls);
        let pool = Arc::new(LeasePool::new(rate, rate, now));
        let start = |(ends, poll): (ThreadEnds, Poll)| {
            let config = ThreadConfig {
                ends,
                threads: count,
                poll,
                relay: Arc::new(RelayParams::new([1; 20].into(), [2; 32].into())),
                params: ThreadParams::default(),
                tls: tls.clone(),
                lease: Lease::new(pool.clone()),
                seed: [3; 32],
            };
            ConnectionThread::new(config, now)
        };
        let threads = threads.into_iter().zip(polls).map(start);
        let mut others: Vec<_> = threads.zip(mains).collect();
        let (thread, main) = others.remove(0);
        Bench {
            thread,
            main,
            others,
            _main_poll: main_poll,
        }
    }

    /// Gives the thread a connection; returns its other end. Both sockets hold little.
    fn connect(&mut self) -> std::net::TcpStream {
        self.connect_as(FIRST, Ipv4Addr::LOCALHOST)
    }

    /// Connects with this identifier and from this address.
    fn connect_as(&mut self, id: ConnectionId, from: Ipv4Addr) -> std::net::TcpStream {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let client = client.unwrap();
        client.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        let at = listener.local_addr().unwrap();
        client.connect(&at.into()).unwrap();
        let client = std::net::TcpStream::from(client);
        let (accepted, peer) = listener.accept().unwrap();
        for socket in [&client, &accepted] {
            socket.set_nonblocking(true).unwrap();
            let socket = socket2::SockRef::from(socket);
            socket.set_send_buffer_size(16 * 1024).unwrap();
            socket.set_recv_buffer_size(16 * 1024).unwrap();
        }
        let adopt = Adopt {
            id,
            ..responder(accepted, peer)
        };
        self.main.send(ToThread::Adopt(Box::new(adopt)));
        self.main.flush();
        self.turn();
        client
    }

    fn turn(&mut self) {
        self.thread.turn(Duration::from_millis(1)).unwrap();
        self.thread.audit().unwrap();
    }

    /// The reason of the connection's end that the main thread got, if it has ended.
    fn end(&mut self) -> Option<DestroyReason> {
        std::iter::from_fn(|| self.main.from.pop()).find_map(|message| match message {
            ToController::ConnectionClosed { connection, why } if connection == FIRST => {
                Some(why.destroy_reason())
            }
            _ => None,
        })
    }
}

/// A client's link to the thread.
struct Client {
    socket: std::net::TcpStream,
    session: LinkSession,
    plain: Vec<u8>,
    /// Bytes that its socket gave and took.
    moved: (u64, u64),
}

impl Client {
    /// A link that is open on both sides.
    fn open(bench: &mut Bench) -> Self {
        Self::open_with(&LinkTls::client().unwrap(), bench)
    }

    fn open_with(tls: &LinkTls, bench: &mut Bench) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        let socket = bench.connect();
        let peer = socket.peer_addr().unwrap().ip();
        let mut session = tls.connect(&mut rng).unwrap();
        session.tls().set_buffer_limit(None);
        let role = Role::Initiator {
            expected_rsa: None,
            expected_ed: None,
        };
        let mut handshake = LinkHandshake::new(role, None, peer, Vec::new(), Instant::now());
        handshake.start();
        let mut client = Client {
            socket,
            session,
            plain: Vec::new(),
            moved: (0, 0),
        };
        for _ in 0..MANY_TURNS {
            client.write();
            bench.turn();
            client.read();
            if client.session.tls().is_handshaking() {
                continue;
            }
            let now = SystemTime::now();
            let used = handshake
                .receive(&client.plain, &client.session, now, &mut rng)
                .unwrap();
            client.plain.drain(..used);
            client.send(&handshake.take_output());
            if bench.thread.manager.links().len() == 1 && handshake.established().is_some() {
                return client;
            }
        }
        panic!("the link never opened");
    }

    fn send(&mut self, bytes: &[u8]) {
        self.session.tls().writer().write_all(bytes).unwrap();
        self.write();
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) {
        while self.session.tls().wants_write() {
            match self.session.tls().write_tls(&mut self.socket) {
                Ok(count) => self.moved.1 += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Reads all available bytes.
    fn read(&mut self) {
        loop {
            match self.session.tls().read_tls(&mut self.socket) {
                Ok(0) => panic!("the thread closed the connection"),
                Ok(count) => self.moved.0 += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
            let state = self.session.tls().process_new_packets().unwrap();
            let start = self.plain.len();
            self.plain
                .resize(start + state.plaintext_bytes_to_read(), 0);
            let room = &mut self.plain[start..];
            self.session.tls().reader().read_exact(room).unwrap();
        }
    }

    /// Cells that have come whole, by circuit id.
    fn cells(&mut self, command: ChanCmd) -> Vec<u32> {
        let mut cells = Vec::new();
        while let Some((frame, length)) = frame::next(&self.plain, 65535).unwrap() {
            if let Frame::Fixed(cell) = frame
                && cell.command() == command
            {
                cells.push(cell.circ_id());
            }
            self.plain.drain(..length);
        }
        cells
    }
}

#[test]
fn a_connection_that_opens_no_link_in_a_minute_is_closed() {
    let mut bench = Bench::new();
    let begin = Instant::now();
    let mut client = bench.connect();
    // Bytes that come now and then do not help.
    for (seconds, byte) in [(20, 22), (40, 3), (59, 1)] {
        client.write_all(&[byte]).unwrap();
        bench.turn();
        let now = begin + Duration::from_secs(seconds);
        bench.thread.tick(now);
        bench.thread.send_messages(now);
        assert_eq!(bench.end(), None);
    }
    let late = Instant::now() + HANDSHAKE_TIMEOUT;
    bench.thread.tick(late);
    bench.thread.send_messages(late);
    assert_eq!(bench.end(), Some(DestroyReason::CONNECTFAILED));
    assert!(bench.thread.sockets.all.is_empty() && bench.thread.sockets.by_id.is_empty());
    client.set_nonblocking(false).unwrap();
    // A reset, if the thread had not read the last byte yet.
    let end = client.read(&mut [0; 10]);
    assert!(
        matches!(&end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
    );
}

#[test]
fn a_link_that_opened_in_time_stays() {
    let mut bench = Bench::new();
    let _client = Client::open(&mut bench);
    let late = Instant::now() + 2 * HANDSHAKE_TIMEOUT;
    bench.thread.tick(late);
    bench.thread.send_messages(late);
    assert_eq!(bench.end(), None);
    assert!(bench.thread.sockets.handshakes.is_empty());
}

#[test]
fn what_a_full_socket_left_untaken_is_written_when_it_has_room() {
    let mut bench = Bench::new();
    let mut client = Client::open(&mut bench);
    // Each is answered by a DESTROY: many more bytes than the sockets hold.
    let wrong: Vec<u32> = (1..=600).collect();
    for id in &wrong {
        client.send(Cell::new(*id, ChanCmd::CREATE_FAST).as_bytes());
    }
    for _ in 0..MANY_TURNS {
        client.write();
        bench.turn();
        if !client.session.tls().wants_write() {
            break;
        }
    }
    // Nothing more is sent, nothing else happens: only the client reads.
    let mut destroyed = Vec::new();
    for _ in 0..MANY_TURNS {
        bench.turn();
        client.read();
        destroyed.extend(client.cells(ChanCmd::DESTROY));
        if destroyed.len() == wrong.len() {
            break;
        }
    }
    assert_eq!(destroyed.len(), wrong.len());
    assert_eq!(destroyed, wrong);
}

/// An end of a socket pair that does not block, and the other end.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// A socket for a stream of a circuit that is no more, and its other end.
fn unwanted(id: ConnectionId) -> (AdoptEdge, UnixStream) {
    let (ours, theirs) = pair();
    let half = HalfAddr {
        thread: ThreadId(0),
        slot: HalfKey(7),
        generation: 3,
    };
    let at = StreamAt {
        addr: StreamAddr {
            half,
            id: 1,
            generation: 1,
        },
        terms: Terms::Windows,
    };
    let adopt = AdoptEdge {
        id,
        socket: EdgeSocket::Unix(ours),
        kind: AdoptKind::Exit {
            at,
            peer: None,
            ttl: 0,
        },
    };
    (adopt, theirs)
}

#[test]
fn a_socket_for_a_stream_that_is_no_more_is_closed() {
    let mut bench = Bench::new();
    let (adopt, mut theirs) = unwanted(FIRST);
    bench.main.send(ToThread::AdoptEdge(Box::new(adopt)));
    bench.main.flush();
    let closed = (0..MANY_TURNS).any(|_| {
        bench.turn();
        std::iter::from_fn(|| bench.main.from.pop()).any(|message| {
            matches!(message, ToController::EdgeClosed { connection } if connection == FIRST)
        })
    });
    assert!(closed, "the controller hears of it");
    assert_eq!(theirs.read(&mut [0; 10]).unwrap(), 0);
    assert_eq!(bench.thread.manager.edges().len(), 0);
}

/// An edge of a stream that is no more, without a socket.
fn unwanted_number(number: usize) -> AdoptEdge {
    let id = ConnectionId(FIRST.0 + 1 + number as u64);
    let (adopt, _) = unwanted(id);
    let socket = EdgeSocket::None;
    AdoptEdge { socket, ..adopt }
}

/// Streams that one client has come or end at once.
const CROWD: usize = 1000;

#[test]
fn while_many_streams_come_and_end_the_cells_of_others_pass() {
    let mut bench = Bench::new();
    let mut client = Client::open(&mut bench);
    client.send(Cell::new(1, ChanCmd::CREATE_FAST).as_bytes());
    let (mut sent, mut closed, mut answered) = (0, 0, false);
    for _ in 0..MANY_TURNS {
        // There are always as many until the cell is answered.
        while sent < CROWD || (!answered && sent - closed < CROWD) {
            let adopt = unwanted_number(sent);
            bench.main.send(ToThread::AdoptEdge(Box::new(adopt)));
            sent += 1;
        }
        bench.main.flush();
        let waiting = bench.thread.ends.from_main.len();
        bench.turn();
        let adopted = waiting - bench.thread.ends.from_main.len();
        assert_eq!(adopted, waiting.min(ADOPTED_PER_TURN));
        let messages = std::iter::from_fn(|| bench.main.from.pop());
        let gone = |message: &ToController| matches!(message, ToController::EdgeClosed { .. });
        let closed_now = messages.filter(gone).count();
        assert!(closed_now <= EDGES_PER_TURN, "{closed_now} in one turn");
        closed += closed_now;
        client.read();
        answered |= client.cells(ChanCmd::DESTROY) == [1];
        if closed == sent {
            break;
        }
        let wait = bench.thread.wait_time(Instant::now());
        assert!(wait.is_zero(), "no event comes for what is left");
    }
    assert!(answered && closed == sent, "{closed} of {sent}");
    assert_eq!(bench.thread.edges.len(), 0);
}

#[test]
fn streams_that_end_at_once_are_closed_some_in_each_turn() {
    let mut bench = Bench::new();
    let now = Instant::now();
    for number in 0..CROWD {
        bench.thread.adopt_edge(unwanted_number(number), now);
    }
    let mut left = CROWD;
    while left > 0 {
        assert_eq!(bench.thread.edges.len(), left);
        assert!(bench.thread.wait_time(now).is_zero());
        bench.turn();
        left = left.saturating_sub(EDGES_PER_TURN);
    }
    assert_eq!(bench.thread.edges.len(), 0);
    assert_eq!(bench.thread.manager.edges().to_write(), []);
}

#[test]
fn streams_that_speak_at_once_are_read_some_in_each_turn() {
    const MANY: usize = 200;
    let mut bench = Bench::new();
    let now = Instant::now();
    let mut others = Vec::new();
    for number in 0..MANY {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"all at once").unwrap();
        others.push(theirs);
        let adopt = AdoptEdge {
            socket: EdgeSocket::Unix(ours),
            kind: AdoptKind::Internal,
            ..unwanted_number(number)
        };
        bench.thread.adopt_edge(adopt, now);
    }
    // The event loop reports all of them in the first turn.
    for turn in 1..=MANY.div_ceil(EDGES_PER_TURN) {
        bench.turn();
        let left = MANY.saturating_sub(turn * EDGES_PER_TURN);
        assert_eq!(bench.thread.edges.to_read(), left);
        assert!(left == 0 || bench.thread.wait_time(now).is_zero());
    }
}

#[test]
fn handshakes_that_begin_at_once_go_on_in_turns_by_address() {
    const MANY: usize = 40;
    let mut bench = Bench::new();
    let mut rng = ChaCha12Rng::seed_from_u64(4);
    let mut session = LinkTls::client().unwrap().connect(&mut rng).unwrap();
    let mut hello = Vec::new();
    while session.tls().wants_write() {
        session.tls().write_tls(&mut hello).unwrap();
    }
    // The last one comes from another address than the others.
    let mut crowd: Vec<_> = (1..=MANY)
        .map(|number| {
            let from = Ipv4Addr::new(127, 0, 0, if number == MANY { 2 } else { 1 });
            let id = ConnectionId(u64::try_from(number).unwrap());
            (number, bench.connect_as(id, from))
        })
        .collect();
    for (_, socket) in &mut crowd {
        socket.write_all(&hello).unwrap();
    }
    // The event loop reports all of them in the first turn.
    let mut turns = 0;
    while !crowd.is_empty() {
        bench.turn();
        turns += 1;
        let waited = crowd.len();
        crowd.retain_mut(|(_, socket)| socket.read(&mut [0; 4096]).is_err());
        let answered = waited - crowd.len();
        assert_eq!(answered, waited.min(HANDSHAKES_PER_TURN), "in turn {turns}");
        assert!(
            crowd.iter().all(|(number, _)| *number != MANY),
            "an address waits for others"
        );
        let wait = bench.thread.wait_time(Instant::now());
        assert!(
            crowd.is_empty() || wait.is_zero(),
            "no event comes for the others"
        );
    }
}

#[test]
fn audits_come_more_seldom_where_there_are_many_sockets() {
    let mut bench = Bench::new();
    let audits = |bench: &mut Bench| (0..100).filter(|_| bench.thread.audit_is_due()).count();
    assert_eq!(audits(&mut bench), 100);
    for number in 0..CROWD {
        let adopt = unwanted_number(number);
        bench.thread.adopt_edge(adopt, Instant::now());
    }
    assert_eq!(audits(&mut bench), 25);
}

#[test]
fn what_nobody_owns_is_found() {
    // An edge without a socket.
    let mut bench = Bench::new();
    bench.thread.manager.edges_mut().adopt_application(FIRST);
    let broken = bench.thread.audit().unwrap_err();
    assert_eq!(broken, "every edge has one socket");
    // A socket that the event loop watches without an owner.
    let bench = Bench::new();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let mut ours = mio::net::UnixStream::from_std(ours);
    let registry = bench.thread.poll.registry();
    registry
        .register(&mut ours, Token(77), Interest::READABLE)
        .unwrap();
    let broken = bench.thread.audit().unwrap_err();
    assert_eq!(broken, "the event loop watches every socket, and no other");
    // A link whose connection has gone.
    let mut bench = Bench::new();
    let _client = Client::open(&mut bench);
    assert_eq!(bench.thread.audit(), Ok(()));
    let (token, _) = bench.thread.sockets.all.iter().next().unwrap();
    let _lost = bench.thread.sockets.all.remove(token);
    let broken = bench.thread.audit().unwrap_err();
    assert_eq!(broken, "only connections are known");
}

#[test]
fn a_link_whose_keys_cannot_be_renewed_is_reported_once_as_worn() {
    for (tls, times) in [
        (LinkTls::client().unwrap(), 0),
        (LinkTls::tls12_client().unwrap(), 1),
    ] {
        let mut bench = Bench::new();
        let mut client = Client::open_with(&tls, &mut bench);
        for (_, connection) in &mut bench.thread.sockets.all {
            let Phase::Open(_, records) = &mut connection.phase else {
                panic!("the link is not open");
            };
            // The handshake took a few of these, and 20 are a fifth.
            records.limit_keys(100);
        }
        let mut worn = 0;
        for sent in 0..40 {
            client.send(Cell::new(0, ChanCmd::PADDING).as_bytes());
            for _ in 0..10 {
                bench.turn();
            }
            let now = Instant::now();
            bench.thread.tick(now);
            bench.thread.send_messages(now);
            worn += std::iter::from_fn(|| bench.main.from.pop())
                .filter(|message| {
                    matches!(message, ToController::LinkWorn { connection } if *connection == FIRST)
                })
                .count();
            assert!(sent > 3 || worn == 0, "after {sent} records");
        }
        assert_eq!(worn, times);
    }
}

/// A connection of the first thread's to the second one, by a SOCKS4 proxy or without one: what is reported of each.
fn steps(by_proxy: bool) -> [Vec<LinkStep>; 2] {
    let mut bench = Bench::of(2);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let place = listener.local_addr().unwrap();
    let socket = std::net::TcpStream::connect(place).unwrap();
    let (mut accepted, peer) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    accepted.set_nonblocking(true).unwrap();
    let opened = Adopt {
        id: FIRST,
        socket,
        peer: place,
        role: Role::Initiator {
            expected_rsa: None,
            expected_ed: None,
        },
        proxy: by_proxy.then(|| {
            Arc::new(Proxy {
                addr: place,
                protocol: Protocol::Socks4(None),
            })
        }),
        handed_over: false,
    };
    bench.main.send(ToThread::Adopt(Box::new(opened)));
    bench.main.flush();
    if by_proxy {
        // A request for an address without a user's name, and that it is granted.
        let mut request = Vec::new();
        for _ in 0..MANY_TURNS {
            bench.turn();
            let mut bytes = [0; 9];
            if let Ok(count) = accepted.read(&mut bytes) {
                request.extend_from_slice(&bytes[..count]);
            }
            if request.len() == 9 {
                break;
            }
        }
        assert_eq!(request.len(), 9);
        accepted.write_all(&[0, 90, 0, 0, 0, 0, 0, 0]).unwrap();
    }
    let (thread, main) = &mut bench.others[0];
    main.send(ToThread::Adopt(Box::new(responder(accepted, peer))));
    main.flush();
    let mut steps = [Vec::new(), Vec::new()];
    for _ in 0..MANY_TURNS {
        bench.thread.turn(Duration::from_millis(1)).unwrap();
        thread.turn(Duration::from_millis(1)).unwrap();
        for (main, steps) in [&mut bench.main, &mut *main].into_iter().zip(&mut steps) {
            let messages = std::iter::from_fn(|| main.from.pop());
            steps.extend(messages.filter_map(|message| match message {
                ToController::LinkStep { connection, step } => {
                    assert_eq!(connection, FIRST);
                    Some(step)
                }
                _ => None,
            }));
        }
        if bench.thread.manager.links().len() == 1 && thread.manager.links().len() == 1 {
            return steps;
        }
    }
    panic!("the link never opened");
}

#[test]
fn how_far_a_connection_of_ours_has_come_is_reported_once_each() {
    let direct = [LinkStep::Connected, LinkStep::Encrypted];
    let by_proxy = [&[LinkStep::ProxyConnected][..], &direct].concat();
    assert_eq!(steps(false), [direct.to_vec(), Vec::new()]);
    assert_eq!(steps(true), [by_proxy, Vec::new()]);
}

#[test]
fn a_thread_whose_main_thread_is_gone_stops() {
    let Bench {
        mut thread,
        main,
        others: _others,
        _main_poll,
    } = Bench::new();
    thread.turn(Duration::ZERO).unwrap();
    assert!(!thread.is_stopping());
    drop(main);
    thread.turn(Duration::ZERO).unwrap();
    assert!(thread.is_stopping());
}
