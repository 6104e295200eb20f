//! Connection threads of several identities on one thread of the process.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::process::limits::raise_file_limit;
use crate::thread::host::{Guest, GuestHandle, Guests};

const HOUR: Duration = Duration::from_secs(3600);

/// One identity, as its main thread sees it.
struct Main {
    ends: MainEnds,
    handle: GuestHandle,
    _poll: Poll,
}

impl Main {
    /// An event for the thread, after which it has nothing to do.
    fn wake(&mut self) {
        let params = Box::new(ThreadParams::default());
        self.ends.send(ToThread::Params(params));
        self.ends.flush();
    }
}

/// So many identities with a connection thread each, after their first turns.
fn hosted(count: usize) -> (Guests, Vec<Main>) {
    let mut guests = Vec::new();
    let mut mains = Vec::new();
    for _ in 0..count {
        let bench = Bench::new();
        let (guest, handle) = Guest::new(bench.thread);
        guests.push(guest);
        mains.push(Main {
            ends: bench.main,
            handle,
            _poll: bench._main_poll,
        });
    }
    let mut guests = Guests::new(guests).unwrap();
    guests.turn().unwrap();
    assert_eq!(turns(&guests), vec![1; count]);
    (guests, mains)
}

/// The turns that each has had.
fn turns(guests: &Guests) -> Vec<u64> {
    let all = guests.all.iter();
    all.map(|(_, guest)| guest.thread.reports.turns).collect()
}

/// From now on only events give one of these a turn.
fn without_timers(guests: &mut Guests, of: impl IntoIterator<Item = usize>) {
    for index in of {
        guests.all[index].1.due = Instant::now() + HOUR;
    }
}

/// Hands a connection to one of them; its other end.
fn connect(main: &mut Main) -> std::net::TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, peer) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    main.ends.send(ToThread::Adopt(Box::new(Adopt {
        id: FIRST,
        socket,
        peer,
        role: Role::Responder,
        proxy: None,
        handed_over: false,
    })));
    main.ends.flush();
    client
}

#[test]
fn an_event_of_one_identity_gives_the_others_no_turn() {
    let (mut guests, mut mains) = hosted(3);
    for (number, woken) in [(0, [2, 1, 1]), (2, [2, 1, 2]), (1, [2, 2, 2])] {
        without_timers(&mut guests, 0..3);
        mains[number].wake();
        guests.turn().unwrap();
        assert_eq!(turns(&guests), woken);
    }
}

#[test]
fn one_that_has_much_to_do_does_not_keep_an_event_from_another() {
    for busy in [0, 1] {
        let idle = 1 - busy;
        let (mut guests, mut mains) = hosted(2);
        let mut client = connect(&mut mains[idle]);
        // It is taken over, and nothing else comes for it.
        let mut settled = false;
        for _ in 0..MANY_TURNS {
            let before = turns(&guests);
            without_timers(&mut guests, [0, 1]);
            guests.all[busy].1.due = Instant::now();
            guests.turn().unwrap();
            settled = turns(&guests)[idle] == before[idle];
            if settled {
                break;
            }
        }
        assert!(settled);
        assert_eq!(guests.all[idle].1.thread.sockets.all.len(), 1);
        // Nothing but the event gives it a turn. Bytes that are no TLS end the connection.
        for bytes in [&[22, 3][..], &[1; 1000]] {
            let before = turns(&guests);
            without_timers(&mut guests, [idle]);
            client.write_all(bytes).unwrap();
            for _ in 0..MANY_TURNS {
                guests.all[busy].1.due = Instant::now();
                guests.turn().unwrap();
                if turns(&guests)[idle] > before[idle] {
                    break;
                }
            }
            let after = turns(&guests);
            assert_eq!(after[idle], before[idle] + 1, "the event was lost");
            assert!(after[busy] > before[busy], "the other one waited");
        }
        let ended = std::iter::from_fn(|| mains[idle].ends.from.pop());
        let ended =
            ended.filter(|message| matches!(message, ToController::ConnectionClosed { .. }));
        assert_eq!(ended.count(), 1);
    }
}

#[test]
fn events_beyond_those_of_one_turn_have_the_next_one() {
    const MANY: usize = EVENTS + 500;
    raise_file_limit(MANY as u64 + 500).unwrap();
    for with_many in [0, 1] {
        let (mut guests, _mains) = hosted(2);
        without_timers(&mut guests, [0, 1]);
        // No tick comes, which would audit the sockets below.
        guests.all[with_many].1.thread.last_tick += HOUR;
        // Each can be written at once, which is an event for each; the thread does not know their tokens.
        let sockets: Vec<UnixDatagram> = (0..MANY)
            .map(|_| UnixDatagram::unbound().unwrap())
            .collect();
        let of = &guests.all[with_many].1.thread;
        for (number, socket) in sockets.iter().enumerate() {
            let fd = socket.as_raw_fd();
            let token = Token(usize::MAX / 2 + number);
            let registry = of.poll.registry();
            registry
                .register(&mut SourceFd(&fd), token, Interest::WRITABLE)
                .unwrap();
        }
        let mut taken = Vec::new();
        for turn in 2..=3 {
            guests.turn().unwrap();
            let thread = &guests.all[with_many].1.thread;
            assert_eq!(thread.reports.turns, turn);
            taken.push(thread.events.iter().count());
        }
        assert_eq!(taken, [EVENTS, MANY - EVENTS]);
        assert_eq!(turns(&guests)[1 - with_many], 1);
    }
}

#[test]
#[cfg_attr(
    not(debug_assertions),
    ignore = "the audit, which finds the mistake, is in debug builds"
)]
fn one_that_panics_ends_and_leaves_the_others_as_they_are() {
    let (mut guests, mut mains) = hosted(3);
    let broken = &mut guests.all[1].1.thread;
    broken.sockets.by_id.insert(ConnectionId(77), 7);
    broken.last_tick -= TICK;
    guests.all[1].1.due = Instant::now();
    guests.turn().unwrap();
    let ended = |main: &Main| {
        main.handle
            .result()
            .map(|result| result.map_err(|why| why.to_string()))
    };
    let ends: Vec<_> = mains.iter().map(ended).collect();
    let panicked = Some(Err("a connection thread panicked".to_owned()));
    assert_eq!(ends, [None, panicked, None]);
    // The others' tokens stay theirs.
    for (place, number) in [(0, 0), (1, 2)] {
        without_timers(&mut guests, [0, 1]);
        let before = turns(&guests);
        mains[number].wake();
        guests.turn().unwrap();
        let after = turns(&guests);
        assert_eq!(after[place], before[place] + 1);
        assert_eq!(after[1 - place], before[1 - place]);
    }
    // They end when they are to.
    for number in [0, 2] {
        mains[number].ends.send(ToThread::Stop);
        mains[number].ends.flush();
        guests.turn().unwrap();
        assert!(matches!(mains[number].handle.result(), Some(Ok(()))));
    }
    assert!(guests.all.is_empty());
}
