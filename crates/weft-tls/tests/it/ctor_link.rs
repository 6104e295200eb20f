//! Links between Weft and the real C tor, in all four combinations: either side opens the link,
//! as a client or as a relay.
//!
//! These tests need the `tor` program and fail without it. Everything is on loopback.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_cell::circ_msg::{CreateReply, CreateRequest, Extend2, handshake_type};
use weft_cell::frame::{self, Frame};
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_cell::{Cell, ChanCmd, RelayCmd, relay};
use weft_core::handshake::{
    EphemeralKeys, Established, LinkHandshake, LinkIdentity, PeerIdentity, Role,
};
use weft_crypto::circuit::OriginCircuit;
use weft_crypto::handshake::fast;
use weft_testing::ctor::{CTor, PATIENCE};
use weft_tls::{LinkLifetimes, LinkSession, LinkTls};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn rng(seed: u64) -> ChaCha12Rng {
    ChaCha12Rng::seed_from_u64(seed)
}

/// A Weft relay's keys for links.
fn weft_relay(seed: u64) -> LinkTls {
    let (mut rng, now) = (rng(seed), SystemTime::now());
    let keys = EphemeralKeys::generate(now, &mut rng).unwrap();
    LinkTls::relay(keys.keys(), LinkLifetimes::default(), now, &mut rng).unwrap()
}

/// A link over a blocking socket.
struct Link {
    socket: TcpStream,
    session: LinkSession,
    received: Vec<u8>,
}

impl Link {
    fn connect(tls: &LinkTls, to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).expect("cannot connect to tor");
        Link::new(socket, tls.connect(&mut rng(3)).unwrap())
    }

    fn accept(tls: &LinkTls, listener: &TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false).unwrap();
                    return Link::new(socket, tls.accept().unwrap());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("cannot accept: {error}"),
            }
            assert!(Instant::now() < deadline, "tor never connected");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn new(socket: TcpStream, session: LinkSession) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Link {
            socket,
            session,
            received: Vec::new(),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let tls = self.session.tls();
        tls.writer().write_all(bytes).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut self.socket).expect("cannot write");
        }
    }

    /// Waits for more.
    fn receive(&mut self) {
        self.send(&[]);
        let tls = self.session.tls();
        let count = tls.read_tls(&mut self.socket).expect("cannot read");
        assert_ne!(count, 0, "tor closed the link");
        tls.process_new_packets().expect("TLS failed");
        match tls.reader().read_to_end(&mut self.received) {
            Ok(_) => panic!("tor ended the TLS session"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        self.send(&[]);
    }

    /// Shakes hands to the end.
    fn establish(&mut self, role: Role, me: Option<Arc<LinkIdentity>>) -> Established {
        let mut rng = rng(4);
        let started = Instant::now();
        let mut handshake = LinkHandshake::new(role, me, LOCALHOST, vec![LOCALHOST], started);
        handshake.start();
        loop {
            self.send(&handshake.take_output());
            if let Some(established) = handshake.established() {
                return established.clone();
            }
            self.receive();
            let now = SystemTime::now();
            let consumed = handshake
                .receive(&self.received, &self.session, now, &mut rng)
                .expect("the handshake failed");
            self.received.drain(..consumed);
        }
    }

    /// The next fixed-length cell that is not padding.
    fn cell(&mut self) -> Cell {
        loop {
            let mut found = None;
            if let Some((frame, len)) = frame::next(&self.received, 60_000).unwrap() {
                if let Frame::Fixed(cell) = frame {
                    found = Some(Cell::from_bytes(*cell.as_bytes()));
                }
                self.received.drain(..len);
            } else {
                self.receive();
            }
            match found {
                Some(cell) if !is_padding(cell.command()) => return cell,
                _ => {}
            }
        }
    }

    /// Makes a circuit of one hop, which shows that the other side thinks the link open.
    fn create_fast(&mut self, circ_id: u32) -> OriginCircuit {
        let state = fast::ClientState::start(&mut rng(5));
        let request = CreateRequest::Fast { x: *state.x() };
        self.send(request.encode(circ_id).unwrap().as_bytes());
        let reply = self.cell();
        assert_eq!(reply.circ_id(), circ_id);
        let reply = CreateReply::decode(reply.command(), reply.body()).expect("no CREATED_FAST");
        let CreateReply::Fast { y, kh } = reply else {
            panic!("{reply:?}");
        };
        let mut crypt = OriginCircuit::new();
        let keys = state.finish(&y, &kh).expect("tor knows other keys");
        crypt.add_hop(&keys.into());
        crypt
    }
}

fn is_padding(command: ChanCmd) -> bool {
    matches!(command, ChanCmd::PADDING | ChanCmd::PADDING_NEGOTIATE)
}

fn to_relay((rsa, ed): (RsaIdentity, Ed25519Identity)) -> Role {
    Role::Initiator {
        expected_rsa: Some(rsa),
        expected_ed: Some(ed),
    }
}

fn is_relay((rsa, ed25519): (RsaIdentity, Ed25519Identity)) -> PeerIdentity {
    PeerIdentity::Relay { rsa, ed25519 }
}

#[test]
fn weft_opens_links_to_a_c_tor_relay_as_a_relay_and_as_a_client() {
    let mut tor = CTor::relay();
    let address = tor.or_port();
    let identity = tor.identity();

    let weft = weft_relay(1);
    let mut link = Link::connect(&weft, address);
    let me = link.session.identity();
    let found = link.establish(to_relay(identity), me.clone());
    assert_eq!(found.link_protocol, 5);
    assert_eq!(found.peer, is_relay(identity));
    assert_eq!(found.my_addr, Some(LOCALHOST));
    // Both read the same clock, but a second may begin in between.
    assert!(matches!(found.clock_skew, Some(-1..=1)), "{found:?}");
    // It names its address once it has made a descriptor.
    assert_eq!(found.canonical, found.peer_addrs == [LOCALHOST]);
    // It knows Weft by its proof, and thinks the link open.
    let fingerprint = me.as_ref().unwrap().rsa_id().to_string();
    tor.wait_for(&format!("RSA_ID={fingerprint}; OR connection is now open"));

    let mut client = Link::connect(&LinkTls::client().unwrap(), address);
    let found = client.establish(to_relay(identity), None);
    assert_eq!(found.peer, is_relay(identity));
    assert_eq!(client.create_fast(1 << 31).len(), 1);
    tor.assert_content();

    // Another relay than the one that is wanted is not spoken to.
    let me = me.unwrap();
    let mut wrong = LinkHandshake::new(
        to_relay((*me.rsa_id(), *me.ed_id())),
        None,
        LOCALHOST,
        vec![],
        Instant::now(),
    );
    wrong.start();
    let mut link = Link::connect(&weft, address);
    link.send(&wrong.take_output());
    let error = loop {
        link.receive();
        let now = SystemTime::now();
        match wrong.receive(&link.received, &link.session, now, &mut rng(6)) {
            Ok(consumed) => drop(link.received.drain(..consumed)),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains(&hex::encode_upper(identity.0)), "{error}");
}

#[test]
fn a_c_tor_relay_opens_a_link_to_weft() {
    let mut tor = CTor::relay();
    let address = tor.or_port();
    let identity = tor.identity();
    let weft = weft_relay(2);
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(here) = listener.local_addr().unwrap() else {
        panic!("not IPv4");
    };

    // A client asks C tor to extend its circuit to Weft.
    let mut client = Link::connect(&LinkTls::client().unwrap(), address);
    client.establish(to_relay(identity), None);
    let circ_id = 1 << 31;
    let mut crypt = client.create_fast(circ_id);
    let me = weft.identity().unwrap();
    let onionskin = vec![7; 84];
    let extend = Extend2 {
        ipv4: Some(SocketAddrV4::new(*here.ip(), here.port())),
        ipv6: None,
        rsa: Some(*me.rsa_id()),
        ed25519: Some(*me.ed_id()),
        link_specifiers: Vec::new(),
        handshake_type: handshake_type::NTOR,
        handshake: onionskin.clone(),
    };
    let mut cell = Cell::new(circ_id, ChanCmd::RELAY_EARLY);
    let extend = extend.encode().unwrap();
    relay::encode(cell.body_mut(), RelayCmd::EXTEND2, 0, &extend, &mut rng(8)).unwrap();
    crypt
        .encrypt_forward(0, cell.command(), cell.body_mut())
        .unwrap();
    client.send(cell.as_bytes());

    let mut link = Link::accept(&weft, &listener);
    let me = link.session.identity();
    let found = link.establish(Role::Responder, me);
    assert_eq!(found.link_protocol, 5);
    assert_eq!(found.peer, is_relay(identity));
    assert_eq!(found.my_addr, Some(LOCALHOST));
    // It names its address once it has made a descriptor.
    assert_eq!(found.canonical, found.peer_addrs == [LOCALHOST]);
    // It thinks so too, and sends what the client wanted.
    let create = link.cell();
    assert_eq!(
        CreateRequest::decode(create.command(), create.body()),
        Ok(CreateRequest::Create2 {
            handshake_type: handshake_type::NTOR,
            data: onionskin,
        })
    );
    tor.assert_content();
}

#[test]
fn a_c_tor_client_opens_a_link_to_weft() {
    let weft = weft_relay(3);
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let here = listener.local_addr().unwrap();
    let fingerprint = weft.identity().unwrap().rsa_id().to_string();
    let tor = CTor::start(&format!(
        "AddressDisableIPv6 1\nSocksPort 127.0.0.1:auto\nUseBridges 1\n\
         Bridge {here} {fingerprint}"
    ));

    let mut link = Link::accept(&weft, &listener);
    let me = link.session.identity();
    let found = link.establish(Role::Responder, me);
    assert_eq!(found.link_protocol, 5);
    assert_eq!(found.peer, PeerIdentity::Unauthenticated);
    assert_eq!(found.clock_skew, None);
    assert_eq!(found.peer_addrs, Vec::<IpAddr>::new());
    let create = link.cell();
    let request = CreateRequest::decode(create.command(), create.body());
    assert!(
        matches!(request, Ok(CreateRequest::Fast { .. })),
        "{request:?}"
    );
    tor.assert_content();
}
