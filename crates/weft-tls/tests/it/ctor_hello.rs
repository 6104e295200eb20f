//! The first bytes of a link that an observer sees: Weft's ClientHello beside the real C tor's,
//! field by field.
//!
//! These tests need the `tor` program and fail without it. Everything is on loopback. The numbers
//! are those of IANA's registries for TLS. docs/client.md explains them.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_testing::ctor::{CTor, PATIENCE};
use weft_tls::LinkTls;

const SNI: u16 = 0;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURES: u16 = 13;
const VERSIONS: u16 = 43;
const KEY_EXCHANGE_MODES: u16 = 45;
const KEY_SHARE: u16 = 51;

/// A ClientHello (RFC 8446 4.1.2), with its record.
#[derive(Debug)]
struct Hello {
    record_version: u16,
    version: u16,
    session_id: Vec<u8>,
    suites: Vec<u16>,
    compression: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
}

/// Takes bytes off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// A big-endian number of this length, in bytes.
    fn number(&mut self, length: usize) -> usize {
        self.take(length)
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte))
    }

    fn u16(&mut self) -> u16 {
        u16::try_from(self.number(2)).unwrap()
    }

    /// Bytes behind their length, which has so many.
    fn counted(&mut self, length: usize) -> Reader<'a> {
        let length = self.number(length);
        Reader(self.take(length))
    }
}

fn u16s(mut bytes: Reader<'_>) -> Vec<u16> {
    let mut all = Vec::new();
    while !bytes.0.is_empty() {
        all.push(bytes.u16());
    }
    all
}

impl Hello {
    /// Of a whole record.
    fn parse(record: &[u8]) -> Self {
        let mut record = Reader(record);
        assert_eq!(record.take(1), [22], "no handshake record");
        let record_version = record.u16();
        let mut message = record.counted(2);
        assert!(record.0.is_empty(), "more than one record");
        assert_eq!(message.take(1), [1], "no ClientHello");
        let mut hello = message.counted(3);
        assert!(message.0.is_empty(), "more than one message");
        let version = hello.u16();
        hello.take(32);
        let session_id = hello.counted(1).0.to_vec();
        let suites = u16s(hello.counted(2));
        let compression = hello.counted(1).0.to_vec();
        let mut rest = hello.counted(2);
        assert!(hello.0.is_empty());
        let mut extensions = Vec::new();
        while !rest.0.is_empty() {
            extensions.push((rest.u16(), rest.counted(2).0.to_vec()));
        }
        Hello {
            record_version,
            version,
            session_id,
            suites,
            compression,
            extensions,
        }
    }

    /// Of a client that connects to us.
    fn read(mut socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut record = vec![0; 5];
        socket.read_exact(&mut record).expect("no TLS record");
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        socket.read_exact(&mut record[5..]).expect("half a record");
        Self::parse(&record)
    }

    /// Of the real C tor, as a client whose bridge we are.
    fn of_ctor() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let here = listener.local_addr().unwrap();
        let _tor = CTor::start(&format!(
            "AddressDisableIPv6 1\nSocksPort 127.0.0.1:auto\nUseBridges 1\nBridge {here}"
        ));
        let deadline = Instant::now() + PATIENCE;
        loop {
            match listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(false).unwrap();
                    return Self::read(socket);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("cannot accept: {error}"),
            }
            assert!(Instant::now() < deadline, "tor never connected");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Of a Weft client.
    fn of_weft(seed: u64) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut session = LinkTls::client().unwrap().connect(&mut rng).unwrap();
        let mut record = Vec::new();
        session.tls().write_tls(&mut record).unwrap();
        Self::parse(&record)
    }

    fn extension(&self, number: u16) -> &[u8] {
        let found = self.extensions.iter().find(|(kind, _)| *kind == number);
        &found.unwrap_or_else(|| panic!("no extension {number}")).1
    }

    /// A list of 16-bit numbers behind its length, as three extensions are.
    fn list(&self, number: u16) -> Vec<u16> {
        u16s(Reader(self.extension(number)).counted(2))
    }

    fn list_of_versions(&self) -> Vec<u16> {
        u16s(Reader(self.extension(VERSIONS)).counted(1))
    }

    /// The groups of the key shares.
    fn shares(&self) -> Vec<u16> {
        let mut rest = Reader(self.extension(KEY_SHARE)).counted(2);
        let mut groups = Vec::new();
        while !rest.0.is_empty() {
            groups.push(rest.u16());
            rest.counted(2);
        }
        groups
    }

    fn extension_kinds(&self) -> Vec<u16> {
        let mut kinds: Vec<u16> = self.extensions.iter().map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        kinds
    }

    /// The host name that it asks for.
    fn server_name(&self) -> String {
        let mut names = Reader(self.extension(SNI)).counted(2);
        assert_eq!(names.take(1), [0], "no host name");
        String::from_utf8(names.counted(2).0.to_vec()).unwrap()
    }
}

/// `www.`, 4 to 25 letters and digits of base32, `.com`.
fn is_decoy(name: &str) -> bool {
    name.strip_prefix("www.")
        .and_then(|name| name.strip_suffix(".com"))
        .is_some_and(|name| {
            (4..=25).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
        })
}

/// Values that are in both lists, in the order of `all`.
fn shared(all: &[u16], other: &[u16]) -> Vec<u16> {
    let both = all.iter().filter(|one| other.contains(one));
    both.copied().collect()
}

/// Values that are in `all` and not in `other`.
fn only(all: &[u16], other: &[u16]) -> Vec<u16> {
    let one_sided = all.iter().filter(|one| !other.contains(one));
    one_sided.copied().collect()
}

#[test]
fn wefts_client_hello_is_c_tors_as_far_as_rustls_goes() {
    let (tor, weft) = (Hello::of_ctor(), Hello::of_weft(1));

    // Equal.
    assert_eq!(weft.record_version, tor.record_version);
    assert_eq!(weft.version, tor.version);
    assert_eq!(weft.session_id.len(), tor.session_id.len());
    assert_eq!(weft.compression, tor.compression);
    assert_eq!(weft.list_of_versions(), tor.list_of_versions());
    assert_eq!(
        weft.extension(KEY_EXCHANGE_MODES),
        tor.extension(KEY_EXCHANGE_MODES)
    );
    assert!(is_decoy(&tor.server_name()), "{}", tor.server_name());
    for seed in 1..20 {
        let name = Hello::of_weft(seed).server_name();
        assert!(is_decoy(&name), "{name}");
    }
    for (ours, theirs) in [
        (&weft.suites, &tor.suites),
        (&weft.list(GROUPS), &tor.list(GROUPS)),
        (&weft.list(SIGNATURES), &tor.list(SIGNATURES)),
    ] {
        // Values that both have are in the same order.
        assert_eq!(shared(ours, theirs), shared(theirs, ours));
    }
    // Weft offers no suite and no signature that C tor does not.
    assert_eq!(only(&weft.suites, &tor.suites), []);
    assert_eq!(only(&weft.list(SIGNATURES), &tor.list(SIGNATURES)), []);

    // Missing in rustls: CBC and static RSA; Ed448, RSASSA-PSS keys, SHA-1, SHA-224 and DSA.
    assert_eq!(
        only(&tor.suites, &weft.suites),
        [
            0xc00a, 0xc009, 0xc013, 0xc014, 0x009c, 0x009d, 0x002f, 0x0035
        ]
    );
    let signatures = only(&tor.list(SIGNATURES), &weft.list(SIGNATURES));
    for missing in [0x0808, 0x0809, 0x080a, 0x080b] {
        assert!(signatures.contains(&missing), "{signatures:x?}");
    }
    assert_eq!(weft.extension(POINT_FORMATS), [1, 0]);
    assert_eq!(tor.extension(POINT_FORMATS), [3, 0, 1, 2]);
    // P-256 first, then X25519; C tor has the hybrid group of ML-KEM-768 before them with OpenSSL
    // 3.5, and P-224 after them.
    assert_eq!(weft.list(GROUPS), [0x0017, 0x001d, 0x11ec]);
    assert_eq!(tor.list(GROUPS).last(), Some(&0x0015));
    if tor.list(GROUPS).contains(&0x11ec) {
        assert_eq!(tor.shares(), [0x11ec, 0x0017]);
    } else {
        assert_eq!(tor.list(GROUPS), [0x0017, 0x001d, 0x0015]);
        assert_eq!(tor.shares(), weft.shares());
    }
    assert_eq!(weft.shares(), [0x0017]);

    // Extensions. rustls always sends status_request (5) and never encrypt_then_mac (22) nor padding
    // (21); both send an empty session_ticket (35). C tor pads a short ClientHello to 512 bytes.
    let (ours, theirs) = (weft.extension_kinds(), tor.extension_kinds());
    assert_eq!(ours, [0, 5, 10, 11, 13, 23, 35, 43, 45, 51]);
    assert_eq!(only(&ours, &theirs), [5]);
    let missing = only(&theirs, &ours);
    assert_eq!(only(&missing, &[21]), [22]);
    // And its order is another each time.
    let order =
        |hello: &Hello| -> Vec<u16> { hello.extensions.iter().map(|(kind, _)| *kind).collect() };
    let orders: Vec<_> = (0..8).map(|_| order(&Hello::of_weft(1))).collect();
    assert!(orders.iter().any(|other| *other != orders[0]));
}
