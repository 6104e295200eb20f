//! The DNS thread with a name server on loopback whose behaviour depends on the queried name.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use hickory_resolver::proto::op::{Message, OpCode};
use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, PTR};

use super::*;

/// A name server, by UDP and TCP on the same port.
struct Server {
    addr: SocketAddr,
    /// The number of queries by UDP.
    queries: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        // The first port that is free for both.
        let (udp, tcp) = (0..100)
            .find_map(|_| {
                let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
                let tcp = TcpListener::bind(udp.local_addr().unwrap()).ok()?;
                Some((udp, tcp))
            })
            .unwrap();
        let addr = udp.local_addr().unwrap();
        let queries = Arc::new(AtomicUsize::new(0));
        let count = queries.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 4096];
            while let Ok((length, from)) = udp.recv_from(&mut packet) {
                count.fetch_add(1, Ordering::Relaxed);
                for answer in answers(&packet[..length], false) {
                    udp.send_to(&answer, from).unwrap();
                }
            }
        });
        std::thread::spawn(move || {
            for mut socket in tcp.incoming().flatten() {
                // Several queries may come by one connection. After an answer that cannot be read the asker waits for it to end.
                std::thread::spawn(move || {
                    let mut length = [0; 2];
                    while socket.read_exact(&mut length).is_ok() {
                        let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
                        socket.read_exact(&mut packet).unwrap();
                        for answer in answers(&packet, true) {
                            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                            socket.write_all(&[&length[..], &answer].concat()).unwrap();
                        }
                        let name = packet.to_ascii_lowercase();
                        if name.windows(7).any(|part| part == b"garbled") {
                            return;
                        }
                    }
                });
            }
        });
        Self { addr, queries }
    }
}

/// The packets that answer a query.
fn answers(packet: &[u8], tcp: bool) -> Vec<Vec<u8>> {
    let question = Message::from_vec(packet).unwrap();
    let query = question.queries[0].clone();
    let name = query.name().to_lowercase().to_string();
    let mut message = Message::response(question.id, OpCode::Query);
    message.add_query(query.clone());
    let record = |data| Record::from_rdata(query.name().clone(), 77, data);
    let address = match query.query_type() {
        RecordType::AAAA => RData::AAAA(AAAA::new(0x2620, 0, 0, 0, 0, 0, 0, 1)),
        _ => RData::A(A::new(8, 8, 4, 4)),
    };
    let first = name.split('.').next().unwrap();
    let fails = |message: &mut Message, code| message.metadata.response_code = code;
    match first {
        "silent" => return Vec::new(),
        "gone" | "host" if name.split('.').count() == 2 || first == "gone" => {
            fails(&mut message, ResponseCode::NXDomain);
        }
        "fail" => fails(&mut message, ResponseCode::ServFail),
        "refused" => fails(&mut message, ResponseCode::Refused),
        "notimp" => fails(&mut message, ResponseCode::NotImp),
        "formerr" => fails(&mut message, ResponseCode::FormErr),
        "notauth" => fails(&mut message, ResponseCode::NotAuth),
        // By TCP as well.
        "cut" => message.metadata.truncation = true,
        "garbled" => {
            let mut answer = message.to_vec().unwrap();
            // It has a second question, it says.
            answer[5] = 2;
            return vec![answer];
        }
        "dangling" => {
            fails(&mut message, ResponseCode::NXDomain);
            let target = Name::from_utf8("gone.example.").unwrap();
            message.add_answer(record(RData::CNAME(CNAME(target))));
        }
        "empty" => {}
        "four" if query.query_type() == RecordType::AAAA => {}
        "big" if !tcp => message.metadata.truncation = true,
        "alias" => {
            let target = Name::from_utf8("www.example.").unwrap();
            message.add_answer(record(RData::CNAME(CNAME(target.clone()))));
            message.add_answer(Record::from_rdata(target, 33, address));
        }
        "forged" => {
            // A forger answers first and does not know the query's id.
            let mut forged = Message::response(question.id.wrapping_add(1), OpCode::Query);
            forged.add_query(query.clone());
            forged.add_answer(record(RData::A(A::new(6, 6, 6, 6))));
            message.add_answer(record(address));
            let garbage = b"garbage".to_vec();
            return vec![garbage, forged.to_vec().unwrap(), message.to_vec().unwrap()];
        }
        "other" => {
            // The right id with another question.
            let mut forged = Message::response(question.id, OpCode::Query);
            let name = Name::from_utf8("bank.example.").unwrap();
            forged.add_query(hickory_resolver::proto::op::Query::query(
                name,
                query.query_type(),
            ));
            forged.add_answer(record(RData::A(A::new(6, 6, 6, 6))));
            message.add_answer(record(address));
            return vec![forged.to_vec().unwrap(), message.to_vec().unwrap()];
        }
        "case" if !tcp => {
            // The right id with a name in another case.
            let mut forged = Message::response(question.id, OpCode::Query);
            let name = Name::from_utf8("case.example.").unwrap();
            forged.add_query(hickory_resolver::proto::op::Query::query(
                name.clone(),
                query.query_type(),
            ));
            forged.add_answer(Record::from_rdata(name, 77, RData::A(A::new(6, 6, 6, 6))));
            return vec![forged.to_vec().unwrap()];
        }
        "8" => {
            let host = Name::from_utf8("dns.example.").unwrap();
            message.add_answer(record(RData::PTR(PTR(host))));
        }
        _ => {
            message.add_answer(record(address));
        }
    }
    vec![message.to_vec().unwrap()]
}

/// A DNS thread that uses this server, and the channel of its answers.
fn start(
    server: &Server,
    change: impl Fn(&mut DnsConfig),
) -> (DnsThread, mpsc::Receiver<DnsAnswer>) {
    let mut config = DnsConfig {
        resolv_conf: None,
        search: false,
        randomize_case: true,
        // The server answers at once, but a busy machine may be slow.
        timeout: Duration::from_secs(30),
        attempts: 2,
        max_files: 1024,
    };
    change(&mut config);
    let conf = ResolvConf {
        servers: vec![server.addr],
        search: vec!["search.example".into()],
        ndots: None,
    };
    let (sender, answers) = mpsc::sync_channel(QUEUE);
    let sink = Box::new(move |answer| sender.try_send(answer).unwrap());
    (DnsThread::start(config, conf, sink).unwrap(), answers)
}

fn query(name: &str, kind: QueryKind) -> Query {
    Query {
        name: name.as_bytes().into(),
        kind,
        purpose: QueryPurpose::Stream,
    }
}

fn addresses(text: &str, ttl: u64) -> Result<(Found, Duration), DnsError> {
    let found = Found::Addresses(vec![text.parse().unwrap()]);
    Ok((found, Duration::from_secs(ttl)))
}

#[test]
fn answers_have_addresses_names_and_errors() {
    let server = Server::start();
    let (dns, answers) = start(&server, |_| {});
    let ask = |name: &str, kind| {
        dns.look_up(query(name, kind)).unwrap();
        let answer = answers.recv().unwrap();
        assert_eq!(answer.query, query(name, kind));
        answer.result
    };
    assert_eq!(ask("www.example", QueryKind::V4), addresses("8.8.4.4", 77));
    assert_eq!(ask("www.example", QueryKind::V6), addresses("2620::1", 77));
    assert_eq!(
        ask("alias.example", QueryKind::V4),
        addresses("8.8.4.4", 33)
    );
    assert_eq!(ask("big.example", QueryKind::V4), addresses("8.8.4.4", 77));
    assert_eq!(ask("four.example", QueryKind::V6), Err(DnsError::NoData));
    assert_eq!(ask("empty.example", QueryKind::V4), Err(DnsError::NoData));
    assert_eq!(ask("gone.example", QueryKind::V4), Err(DnsError::NotExist));
    assert_eq!(
        ask("fail.example", QueryKind::V4),
        Err(DnsError::ServerFailed)
    );
    assert_eq!(
        ask("refused.example", QueryKind::V4),
        Err(DnsError::Refused)
    );
    assert_eq!(
        ask("notimp.example", QueryKind::V4),
        Err(DnsError::NotImplemented)
    );
    let reverse = ask("8.8.8.8.in-addr.arpa", QueryKind::Reverse);
    assert_eq!(reverse.unwrap().0, Found::Host(b"dns.example"[..].into()));
    // Special names are not sent to a name server.
    assert_eq!(ask("x.onion", QueryKind::V4), Err(DnsError::NotExist));
    // Names without dots are not looked up in the search domains.
    assert_eq!(ask("host", QueryKind::V4), Err(DnsError::NotExist));
    dns.shutdown();
}

#[test]
fn each_way_to_fail_is_an_error_of_its_own_for_each_record_type() {
    let server = Server::start();
    let (patient, answers) = start(&server, |_| {});
    // Not for what is answered: a busy machine may be slow.
    let (hasty, no_answers) = start(&server, |config| config.timeout = Duration::from_secs(1));
    for (name, error) in [
        ("gone", DnsError::NotExist),
        ("dangling", DnsError::NotExist),
        ("empty", DnsError::NoData),
        ("fail", DnsError::ServerFailed),
        ("refused", DnsError::Refused),
        ("notimp", DnsError::NotImplemented),
        ("formerr", DnsError::Format),
        ("notauth", DnsError::Unknown),
        ("cut", DnsError::Truncated),
        ("garbled", DnsError::Unknown),
        ("silent", DnsError::Timeout),
    ] {
        let (dns, answers) = match error {
            DnsError::Timeout => (&hasty, &no_answers),
            _ => (&patient, &answers),
        };
        // One after the other: what shares a connection of TCP shares its end.
        for kind in QueryKind::ALL {
            let query = query(&format!("{name}.example"), kind);
            dns.look_up(query).unwrap();
            let answer = answers.recv().unwrap();
            assert_eq!(answer.result, Err(error), "{name} {:?}", answer.query.kind);
        }
    }
    // A name that no query can have: a label is empty.
    for kind in QueryKind::ALL {
        patient.look_up(query("a..example", kind)).unwrap();
        assert_eq!(answers.recv().unwrap().result, Err(DnsError::Format));
    }
}

#[test]
fn search_domains_are_used_with_the_option() {
    let server = Server::start();
    let (dns, answers) = start(&server, |config| config.search = true);
    dns.look_up(query("host", QueryKind::V4)).unwrap();
    assert_eq!(answers.recv().unwrap().result, addresses("8.8.4.4", 77));
}

#[test]
fn forged_answers_are_ignored() {
    let server = Server::start();
    let (dns, answers) = start(&server, |_| {});
    for name in ["forged.example", "other.example", "case.example"] {
        dns.look_up(query(name, QueryKind::V4)).unwrap();
        assert_eq!(
            answers.recv().unwrap().result,
            addresses("8.8.4.4", 77),
            "{name}"
        );
    }
    drop(dns);
    // Without random case, the right id is enough for a forger.
    let (dns, answers) = start(&server, |config| config.randomize_case = false);
    dns.look_up(query("case.example", QueryKind::V4)).unwrap();
    assert_eq!(answers.recv().unwrap().result, addresses("6.6.6.6", 77));
}

#[test]
fn a_silent_server_times_out_and_delays_no_other_query() {
    let server = Server::start();
    let (dns, answers) = start(&server, |config| config.timeout = Duration::from_secs(3));
    dns.look_up(query("silent.example", QueryKind::V4)).unwrap();
    dns.look_up(query("www.example", QueryKind::V4)).unwrap();
    let first = answers.recv().unwrap();
    assert_eq!(first.result, addresses("8.8.4.4", 77));
    assert_eq!(answers.recv().unwrap().result, Err(DnsError::Timeout));
    assert!(
        server.queries.load(Ordering::Relaxed) >= 3,
        "the query was repeated"
    );
}

#[test]
fn a_missing_server_is_a_silent_one_and_none_that_can_be_asked_is_no_failed_one() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = Server {
        addr: closed.local_addr().unwrap(),
        queries: Arc::default(),
    };
    drop(closed);
    let (dns, answers) = start(&server, |config| {
        config.timeout = Duration::from_millis(200)
    });
    dns.look_up(query("www.example", QueryKind::V4)).unwrap();
    let error = answers.recv().unwrap().result.unwrap_err();
    // Queries by UDP: no server answers.
    assert_eq!(error, DnsError::Timeout);
    let no_way = io::Error::from(io::ErrorKind::NetworkUnreachable);
    for none in [
        NetError::NoConnections,
        NetError::Busy,
        NetError::Io(Arc::new(no_way)),
    ] {
        assert_eq!(error_of(&none), DnsError::Unreachable);
    }
    assert!(error.is_transient() && DnsError::Unreachable.is_transient());
}

#[test]
fn a_flood_is_answered_a_few_at_a_time() {
    const NAMES: usize = 1500;
    let server = Server::start();
    // Sixteen at once; the time of the others does not run while they wait.
    let (dns, answers) = start(&server, |config| {
        config.max_files = 0;
    });
    for number in 0..NAMES {
        dns.look_up(query(&format!("n{number}.example"), QueryKind::V4))
            .unwrap();
    }
    let mut names: Vec<_> = (0..NAMES)
        .map(|_| {
            let answer = answers.recv().unwrap();
            assert_eq!(answer.result, addresses("8.8.4.4", 77));
            answer.query.name
        })
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), NAMES);
}

#[test]
fn other_name_servers_take_over() {
    let (first, second) = (Server::start(), Server::start());
    let (dns, answers) = start(&first, |_| {});
    let config = DnsConfig {
        resolv_conf: None,
        search: false,
        randomize_case: false,
        timeout: Duration::from_secs(30),
        attempts: 1,
        max_files: 1024,
    };
    let conf = ResolvConf {
        servers: vec![second.addr],
        ..ResolvConf::default()
    };
    dns.configure(config, conf);
    dns.look_up(query("www.example", QueryKind::V4)).unwrap();
    assert!(answers.recv().unwrap().result.is_ok());
    assert_eq!(first.queries.load(Ordering::Relaxed), 0);
    assert_eq!(second.queries.load(Ordering::Relaxed), 1);
}

#[test]
fn a_host_name_that_could_be_misread_is_refused() {
    let host = |labels: &[&[u8]]| host_of(&Name::from_labels(labels.to_vec()).unwrap());
    assert_eq!(
        host(&[b"a", b"example"]).as_deref(),
        Some(&b"a.example"[..])
    );
    assert_eq!(host(&[b"a.b", b"example"]), None);
    for label in [&b"a\0"[..], b"a b", b"\r\n250 OK", b"\xff", b"a/b"] {
        assert_eq!(host(&[label, b"example"]), None, "{label:?}");
    }
    assert!(host(&[b"a-b_c", b"example"]).is_some());
    assert_eq!(host(&[]), None);
}
