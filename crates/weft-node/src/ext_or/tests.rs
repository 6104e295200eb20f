//! Programs that hand over connections, and others that do not.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use aws_lc_rs::hmac;

use super::*;
use crate::thread::event_loop;
use weft_sync::wake::WakeFlag;

const COOKIE: [u8; 32] = [3; 32];

struct Bench {
    server: ExtOrServer,
    listener: TcpListener,
    poll: mio::Poll,
}

impl Bench {
    fn new() -> Self {
        Bench::with_patience(PROVE_WITHIN)
    }

    fn with_patience(prove_within: Duration) -> Self {
        let (poll, waker) = event_loop().unwrap();
        let flag = Arc::new(WakeFlag::new());
        let server = ExtOrServer::with_patience(WakeUp { flag, waker }, prove_within).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Bench {
            server,
            listener,
            poll,
        }
    }

    fn connect(&self) -> StdTcpStream {
        self.connect_if(false).expect("it is refused")
    }

    /// One that may be refused.
    fn connect_if(&self, is_full: bool) -> Option<StdTcpStream> {
        let program = StdTcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        program.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let protocol = ExtOr::new(COOKIE, [4; 32]);
        let is_taken = self.server.serve(socket, protocol, is_full);
        is_taken.then_some(program)
    }

    /// Waits until this number of connections is open.
    fn wait_for_open(&self, count: u64) {
        for _ in 0..30_000 {
            if self.server.open_files() == count {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("{} are open", self.server.open_files());
    }

    /// The next connection that was handed over.
    fn next(&mut self) -> HandedOver {
        let mut events = mio::Events::with_capacity(4);
        loop {
            if let Some(next) = self.server.next() {
                return next;
            }
            let short = Some(Duration::from_millis(50));
            self.poll.poll(&mut events, short).unwrap();
        }
    }
}

fn read<const N: usize>(program: &mut StdTcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    program.read_exact(&mut bytes).unwrap();
    bytes
}

/// Authenticates by this cookie; what we get for it.
fn login(program: &mut StdTcpStream, cookie: &[u8; 32]) -> u8 {
    assert_eq!(read::<2>(program), [1, 0]);
    let nonce = [5; 32];
    program.write_all(&[1]).unwrap();
    program.write_all(&nonce).unwrap();
    let answer: [u8; 64] = read(program);
    let sign = |text: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, cookie);
        hmac::sign(&key, &[text, &nonce, &answer[32..]].concat())
    };
    let ours = sign(b"ExtORPort authentication server-to-client hash");
    if *cookie == COOKIE {
        assert_eq!(ours.as_ref(), &answer[..32]);
    }
    let hash = sign(b"ExtORPort authentication client-to-server hash");
    program.write_all(hash.as_ref()).unwrap();
    read::<1>(program)[0]
}

#[test]
fn a_connection_is_handed_over_with_its_client_and_nothing_of_it_is_lost() {
    let mut bench = Bench::new();
    let mut program = bench.connect();
    assert_eq!(login(&mut program, &COOKIE), 1);
    program.write_all(b"\0\x01\0\x0e192.0.2.7:4711").unwrap();
    program.write_all(b"\0\x02\0\x05obfs4").unwrap();
    program.write_all(b"\0\0\0\0").unwrap();
    assert_eq!(read::<4>(&mut program), [0x10, 0, 0, 0]);
    program.write_all(b"client's first bytes").unwrap();
    let HandedOver {
        mut socket, client, ..
    } = bench.next();
    assert_eq!(client.address, Some("192.0.2.7:4711".parse().unwrap()));
    assert_eq!(client.transport_name(), "obfs4");
    socket.set_nonblocking(false).unwrap();
    let first: [u8; 20] = read(&mut socket);
    assert_eq!(&first, b"client's first bytes");
}

#[test]
fn who_does_not_know_the_cookie_is_closed_and_others_are_served() {
    let mut bench = Bench::new();
    let mut stranger = bench.connect();
    assert_eq!(login(&mut stranger, &[9; 32]), 0);
    assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0);
    let mut browser = bench.connect();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(read::<2>(&mut browser), [1, 0]);
    // Closed, and reset where it had sent more than was read.
    assert!(!matches!(browser.read(&mut [0; 1]), Ok(1..)));
    let mut program = bench.connect();
    assert_eq!(login(&mut program, &COOKIE), 1);
    program.write_all(b"\0\0\0\0").unwrap();
    let client = bench.next().client;
    assert_eq!((client.address, client.transport), (None, None));
}

#[test]
fn of_those_that_have_proved_nothing_the_oldest_gives_way_and_no_other() {
    let mut bench = Bench::new();
    let mut program = bench.connect();
    assert_eq!(login(&mut program, &COOKIE), 1);
    let mut silent: Vec<StdTcpStream> = Vec::new();
    for _ in 0..MOST_STRANGERS + 2 {
        let mut stranger = bench.connect();
        // It is there before the next one is.
        assert_eq!(read::<2>(&mut stranger), [1, 0]);
        silent.push(stranger);
    }
    bench.wait_for_open(129);
    for closed in &mut silent[..2] {
        assert!(!matches!(closed.read(&mut [0; 1]), Ok(1..)));
    }
    // The others are served yet.
    for open in &mut silent[2..4] {
        open.write_all(&[1]).unwrap();
        open.write_all(&[5; 32]).unwrap();
        read::<64>(open);
    }
    program.write_all(b"\0\0\0\0").unwrap();
    assert_eq!(bench.next().client, Client::default());
}

#[test]
fn what_proves_nothing_in_time_is_closed() {
    let bench = Bench::with_patience(Duration::from_millis(1));
    let mut silent = bench.connect();
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting, [1, 0]);
    bench.wait_for_open(0);
}

#[test]
fn connections_count_as_files_until_they_are_taken() {
    let mut bench = Bench::new();
    let mut program = bench.connect();
    assert_eq!(bench.server.open_files(), 1);
    login(&mut program, &COOKIE);
    program.write_all(b"\0\0\0\0").unwrap();
    read::<4>(&mut program);
    assert_eq!(bench.server.open_files(), 1);
    let handed_over = bench.next();
    assert_eq!(bench.server.open_files(), 1);
    drop(handed_over);
    assert_eq!(bench.server.open_files(), 0);
    let gone = bench.connect();
    drop(gone);
    bench.wait_for_open(0);
}

#[test]
fn where_the_node_has_all_its_files_few_are_open_and_the_oldest_gives_way() {
    let bench = Bench::new();
    let taken: Vec<StdTcpStream> = (0..20)
        .map(|_| bench.connect_if(true).expect("none is refused"))
        .collect();
    bench.wait_for_open(16);
    let other = bench.connect_if(false);
    assert!(other.is_some());
    bench.wait_for_open(17);
    // A program that knows the cookie is not locked out by those that do not.
    drop((taken, other));
    bench.wait_for_open(0);
    assert!(bench.connect_if(true).is_some());
}
