//! Requests to a directory that is one hop away, and that obeys the windows.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use rand_chacha::ChaCha12Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_core::handshake::{EphemeralKeys, Role};
use weft_crypto::handshake::fast;
use weft_crypto::relay_cell::RelayCrypt;
use weft_tls::{LinkLifetimes, LinkTls};

use super::super::conversation::{PER_CIRCUIT_SENDME, PER_STREAM_SENDME};
use super::*;

/// Longer than anything that does not hang.
const PATIENCE: Duration = Duration::from_secs(120);
/// DATA cells that may be sent before a SENDME arrives, on a circuit and on a stream (tor-spec 7.3,
/// 7.4).
const CIRCUIT_WINDOW: usize = 1000;
const STREAM_WINDOW: usize = 500;

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

static DIRECTORY: LazyLock<LinkTls> = LazyLock::new(|| {
    let (mut rng, now) = (rng(2), SystemTime::now());
    let keys = EphemeralKeys::generate(now, &mut rng).unwrap();
    LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng).unwrap()
});

/// A directory with one circuit.
struct Directory {
    link: Link,
    id: u32,
    crypt: RelayCrypt,
    /// The digest after each cell for which a circuit's SENDME is due.
    due: Vec<[u8; 20]>,
    circuit_window: usize,
    stream_window: usize,
}

impl Directory {
    fn accept(listener: &TcpListener) -> Self {
        let (socket, peer) = listener.accept().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut link = Link::new(socket, DIRECTORY.accept().unwrap(), deadline).with_room(1 << 20);
        link.tls_handshake().unwrap();
        link.link_handshake(Role::Responder, peer.ip(), &mut rng(3))
            .unwrap();
        let cell = link.next_cell().unwrap();
        let Ok(CreateRequest::Fast { x }) = CreateRequest::decode(cell.command(), cell.body())
        else {
            panic!("CREATE_FAST should come first");
        };
        let id = cell.circ_id();
        let fast::Reply { y, kh, keys } = fast::server(&x, &mut rng(4));
        link.send_cell(&CreateReply::Fast { y, kh }.encode(id).unwrap())
            .unwrap();
        Self {
            link,
            id,
            crypt: RelayCrypt::new(&keys),
            due: Vec::new(),
            circuit_window: CIRCUIT_WINDOW,
            stream_window: STREAM_WINDOW,
        }
    }

    fn send(&mut self, command: RelayCmd, data: &[u8]) {
        let mut cell = Cell::new(self.id, ChanCmd::RELAY);
        relay::encode(cell.body_mut(), command, STREAM, data, &mut rng(5)).unwrap();
        self.crypt.originate_backward(cell.body_mut());
        self.link.send_cell(&cell).unwrap();
    }

    /// The next message: its command, stream and data. `None`: the circuit is over.
    fn next(&mut self) -> Option<(RelayCmd, u16, Vec<u8>)> {
        let mut cell = self.link.next_cell().unwrap();
        if cell.command() == ChanCmd::DESTROY {
            return None;
        }
        assert!(self.crypt.decrypt_forward(cell.body_mut()));
        let message = RelayBody::new(cell.body());
        let data = message.data().unwrap().to_vec();
        Some((message.command(), message.stream_id(), data))
    }

    /// Reads BEGIN_DIR and a request, and answers CONNECTED.
    fn request(&mut self) -> Vec<u8> {
        assert_eq!(self.next().unwrap().0, RelayCmd::BEGIN_DIR);
        self.send(RelayCmd::CONNECTED, &[]);
        let (command, stream, data) = self.next().unwrap();
        assert_eq!((command, stream), (RelayCmd::DATA, STREAM));
        data
    }

    /// Sends a piece of the answer, once the windows allow it.
    fn data(&mut self, data: &[u8]) {
        while self.circuit_window == 0 || self.stream_window == 0 {
            match self.next() {
                Some((RelayCmd::SENDME, 0, data)) => {
                    let sendme = Sendme::decode(&data).unwrap();
                    let digest = self.due.remove(0);
                    assert_eq!(sendme.seen.unwrap().as_bytes(), digest);
                    self.circuit_window += PER_CIRCUIT_SENDME;
                }
                Some((RelayCmd::SENDME, STREAM, _)) => self.stream_window += PER_STREAM_SENDME,
                other => panic!("no SENDME: {other:?}"),
            }
        }
        self.send(RelayCmd::DATA, data);
        self.circuit_window -= 1;
        self.stream_window -= 1;
        if (CIRCUIT_WINDOW - self.circuit_window).is_multiple_of(PER_CIRCUIT_SENDME) {
            self.due.push(self.crypt.backward_digest());
        }
    }
}

/// A directory that does this, and a request to it.
fn directory<T: Send + 'static>(
    act: impl FnOnce(Directory) -> T + Send + 'static,
) -> (CircuitRequest, JoinHandle<T>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let identity = DIRECTORY.identity().unwrap();
    let hop = Hop {
        addr: listener.local_addr().unwrap(),
        rsa: identity.rsa_id().as_bytes().to_owned().into(),
        ed25519: Some(*identity.ed_id().as_bytes()),
        ntor: [0; 32],
    };
    let request = CircuitRequest {
        path: vec![hop],
        route: weft_proxy::Route::default(),
        request: b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        longest: 1 << 20,
        timeout: PATIENCE,
        is_upload: false,
        sockets: Arc::default(),
    };
    let thread = thread::spawn(move || act(Directory::accept(&listener)));
    (request, thread)
}

#[test]
fn an_answer_past_both_windows_comes_whole() {
    // More than the circuit's window, and no multiple of a cell.
    let length = 1600 * relay::MAX_DATA + 7;
    let body: Vec<u8> = (0..251).cycle().take(length).collect();
    let sent = body.clone();
    let (mut request, directory) = directory(move |mut directory| {
        let asked = directory.request();
        for part in sent.chunks(relay::MAX_DATA) {
            directory.data(part);
        }
        directory.send(RelayCmd::END, &[6]);
        // All that is left are SENDMEs.
        while let Some((command, ..)) = directory.next() {
            assert_eq!(command, RelayCmd::SENDME);
        }
        asked
    });
    assert_eq!(ask(&request, &mut rng(1)).unwrap(), body);
    assert_eq!(directory.join().unwrap(), request.request);
    request.path.clear();
    assert!(matches!(
        ask(&request, &mut rng(1)),
        Err(RequestError::NoPath)
    ));
    request.request = vec![0; (MOST_CELLS + 1) * relay::MAX_DATA];
    assert!(matches!(
        ask(&request, &mut rng(1)),
        Err(RequestError::TooLong)
    ));
}

#[test]
fn an_answer_that_is_too_long_or_none_is_an_error() {
    let (mut request, directory_of_much) = directory(|mut directory| {
        directory.request();
        for _ in 0..3 {
            directory.data(&[1; relay::MAX_DATA]);
        }
        while directory.next().is_some() {}
    });
    request.longest = 2 * relay::MAX_DATA;
    let error = ask(&request, &mut rng(1)).unwrap_err();
    assert!(matches!(error, RequestError::Longer(_)), "{error}");
    directory_of_much.join().unwrap();

    let (request, directory) = directory(|mut directory| {
        assert_eq!(directory.next().unwrap().0, RelayCmd::BEGIN_DIR);
        directory.send(RelayCmd::END, &[6]);
        while directory.next().is_some() {}
    });
    let error = ask(&request, &mut rng(1)).unwrap_err();
    assert!(matches!(error, RequestError::Ended), "{error}");
    directory.join().unwrap();
}
