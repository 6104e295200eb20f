//! Places of controllers that authenticate, and of connections that never do.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::SystemTime;

use weft_dir::clock::ManualClock;

use super::super::fake::{Fake, shared};
use super::*;

/// Connections that fill every place, and some more.
const FLOOD: u8 = 70;

fn start() -> (ControlServer, Arc<ManualClock>) {
    let fake = Fake::new("ControlPort 9051\n");
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let server = ControlServer::start(fake, shared(), async {}, clock.clone()).unwrap();
    (server, clock)
}

/// Connects from `address`: the test's end, and whether the connection got a place.
fn connect(server: &mut ControlServer, address: [u8; 4]) -> (TcpStream, bool) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let served = served(server, || {
        let theirs = theirs.try_clone().unwrap();
        ControlSocket::Tcp(theirs, Ipv4Addr::from(address).into())
    });
    (ours, served)
}

/// Serves a connection, once the channel to the thread has room. Returns whether it got a place.
fn served(server: &mut ControlServer, socket: impl Fn() -> ControlSocket) -> bool {
    let to_thread = server.to_thread.clone().unwrap();
    while to_thread.capacity() == 0 {
        std::thread::yield_now();
    }
    server.serve(socket(), Standing::Stranger, Instant::now())
}

/// Sends a line and returns the first line of the reply.
fn ask(mut socket: impl io::Read + io::Write, line: &str) -> String {
    socket.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).unwrap();
    answer
}

/// True if the server closes the connection.
fn is_closed(mut socket: impl io::Read) -> bool {
    matches!(socket.read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn silent_connections_do_not_lock_out_controllers() {
    let (mut server, _) = start();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..FLOOD {
        let (socket, served) = connect(&mut server, [127, 0, 0, 2]);
        assert!(served, "number {}", silent.len());
        silent.push(socket);
    }
    assert!(server.places.taken() <= MAX_CONTROLLERS);
    // The oldest were closed.
    let closed = silent.drain(..usize::from(FLOOD) - MAX_CONTROLLERS);
    assert!(closed.into_iter().all(is_closed));
    // One of another address is served, and so is one of the same.
    for address in [[127, 0, 0, 3], [127, 0, 0, 2]] {
        let (controller, served) = connect(&mut server, address);
        assert!(served);
        assert_eq!(ask(&controller, "AUTHENTICATE\r\n"), "250 OK\r\n");
        silent.push(controller);
    }
    // The flood displaces connections of its own address, not those of an address with fewer.
    let (slow, served) = connect(&mut server, [127, 0, 0, 4]);
    assert!(served);
    for _ in 0..FLOOD {
        silent.push(connect(&mut server, [127, 0, 0, 2]).0);
    }
    assert_eq!(ask(&slow, "AUTHENTICATE\r\n"), "250 OK\r\n");
}

#[test]
fn silent_connections_by_a_unix_socket_do_not_lock_out_controllers() {
    let (mut server, _) = start();
    let mut connect = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let socket = || ControlSocket::Unix(theirs.try_clone().unwrap());
        assert!(served(&mut server, socket));
        ours
    };
    let silent: Vec<UnixStream> = (0..FLOOD).map(|_| connect()).collect();
    assert_eq!(ask(connect(), "AUTHENTICATE\r\n"), "250 OK\r\n");
    drop(silent);
}

#[test]
fn an_authenticated_controller_keeps_its_place() {
    let (mut server, _) = start();
    let mut authenticated = Vec::new();
    let mut silent = Vec::new();
    // One address gets all places while others try.
    for _ in 0..MAX_CONTROLLERS {
        let (controller, served) = connect(&mut server, [127, 0, 0, 2]);
        assert!(served);
        assert_eq!(ask(&controller, "AUTHENTICATE\r\n"), "250 OK\r\n");
        authenticated.push(controller);
        for address in 3..6 {
            silent.push(connect(&mut server, [127, 0, 0, address]).0);
        }
    }
    assert!(
        !connect(&mut server, [127, 0, 0, 7]).1,
        "there is no place left"
    );
    assert!(silent.iter().all(is_closed));
    for controller in &authenticated {
        let answer = ask(controller, "GETINFO version\r\n");
        assert!(answer.starts_with("250-version="), "{answer}");
    }
}

#[test]
fn a_connection_without_authentication_is_closed_in_time() {
    let (mut server, clock) = start();
    let (controller, _) = connect(&mut server, [127, 0, 0, 2]);
    assert_eq!(ask(&controller, "AUTHENTICATE\r\n"), "250 OK\r\n");
    let (mut asking, _) = connect(&mut server, [127, 0, 0, 2]);
    let answer = ask(&asking, "PROTOCOLINFO 1\r\n");
    assert!(answer.starts_with("250-PROTOCOLINFO"), "{answer}");
    clock.advance(AUTHENTICATION_TIME - Duration::from_secs(1));
    let (late, _) = connect(&mut server, [127, 0, 0, 2]);
    let answer = ask(&late, "PROTOCOLINFO 1\r\n");
    assert!(answer.starts_with("250-PROTOCOLINFO"), "{answer}");
    clock.advance(Duration::from_secs(1));
    let mut rest = String::new();
    let _ = asking.read_to_string(&mut rest);
    for controller in [controller, late] {
        assert_eq!(ask(&controller, "AUTHENTICATE\r\n"), "250 OK\r\n");
    }
}

#[test]
fn the_owners_connection_needs_no_password_and_takes_the_node_along() {
    let fake = Fake::new(
        "HashedControlPassword 16:660537E3E1CD49996044A3BF558097A981F539FEA2F9DA662B4626C1C2\n",
    );
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let mut server = ControlServer::start(fake.clone(), shared(), async {}, clock).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let socket = ControlSocket::Unix(theirs);
    assert!(server.serve(socket, Standing::Owner, Instant::now()));
    assert_eq!(ask(&ours, "SETEVENTS SIGNAL\r\n"), "250 OK\r\n");
    drop(ours);
    // The thread has read the end of the connection before it ends.
    while server.sockets().open() > 0 {
        std::thread::yield_now();
    }
    drop(server);
    assert_eq!(fake.take_recorded(), ["Halt"]);
}

#[test]
fn a_controller_that_does_not_read_loses_its_oldest_events() {
    // Its channel holds 64.
    let fake = Fake::new("ControlPort 9051\n");
    let places = Places::new(1, 1);
    let (place, _) = places.take(None, oneshot::channel().0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut session = Session::new(fake.clone(), Arc::new(shared()));
        session.own();
        let subscribe = super::super::reader::RawCommand {
            word: "SETEVENTS".to_owned(),
            rest: "BW".to_owned(),
            data: String::new(),
        };
        session.command(&subscribe, [0; 32]).await;
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        let read = async {
            // The session does not run before this waits.
            for second in 0..100 {
                fake.events.send(Event::Bandwidth(second, 0)).unwrap();
            }
            let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(ours));
            for second in 36..100 {
                let line = lines.next_line().await.unwrap().unwrap();
                assert_eq!(line, format!("650 BW {second} 0"));
            }
        };
        tokio::select! {
            biased;
            ended = run_session(theirs, &mut session, &fake, &place) => panic!("{ended:?}"),
            () = read => {}
        }
    });
}
