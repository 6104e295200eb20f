//! A name server on loopback that knows a few names, for exits under test.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use weft_cell::stream_msg::reverse_name;

/// Interval at which the server checks whether it should end.
const PAUSE: Duration = Duration::from_millis(100);
/// Head of a DNS message (RFC 1035 4.1.1), in bytes.
const HEAD: usize = 12;
/// Time to live of its answers, in seconds.
const TTL: u32 = 60;
/// The port of DNS.
const DOMAIN: u16 = 53;
/// NXDOMAIN.
const NO_SUCH_NAME: u8 = 3;
/// After how long names that begin with `slow.` are answered.
const SLOW: Duration = Duration::from_secs(30);
/// Slow answers that wait at most; further ones are never given.
const MOST_WAITING: usize = 1024;

/// A name server on a free loopback port. Ends when dropped.
///
/// It knows addresses of the names that it is given, and these names by their addresses. To other names
/// it answers that they do not exist; to those that begin with `silent.` not at all, and to those that
/// begin with `slow.` after 30 s.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// The known records: the addresses of each name, and the name of each reversed address.
#[derive(Debug, Default)]
struct Zone {
    addresses: BTreeMap<String, Vec<IpAddr>>,
    names: BTreeMap<String, String>,
}

impl Zone {
    fn of<A: Into<IpAddr> + Copy>(known: &[(&str, A)]) -> Zone {
        let mut zone = Zone::default();
        for (name, address) in known {
            let (name, address) = ((*name).to_owned(), (*address).into());
            zone.names.insert(reverse_name(address), name.clone());
            zone.addresses.entry(name).or_default().push(address);
        }
        zone
    }
}

impl NameServer {
    /// Starts a server that knows these names, in lower case. A name may stand there more than once.
    pub fn start<A: Into<IpAddr> + Copy>(known: &[(&str, A)]) -> Result<NameServer> {
        NameServer::start_at((Ipv4Addr::LOCALHOST, 0).into(), known)
    }

    /// Starts one at the first address of 127.0.53.0/24 whose port 53 is free: C tor has no other port
    /// in resolv.conf.
    ///
    /// # Errors
    /// All are taken, or this process may not have them: low ports are not for everybody.
    pub fn start_for_tor<A: Into<IpAddr> + Copy>(known: &[(&str, A)]) -> Result<NameServer> {
        let start = |host| {
            let address = Ipv4Addr::new(127, 0, 53, host);
            NameServer::start_at((address, DOMAIN).into(), known)
        };
        let first = start(1);
        (2..=254).fold(first, |started, host| started.or_else(|_| start(host)))
    }

    fn start_at<A: Into<IpAddr> + Copy>(at: SocketAddr, known: &[(&str, A)]) -> Result<NameServer> {
        let socket =
            UdpSocket::bind(at).with_context(|| format!("starting a name server at {at}"))?;
        socket.set_read_timeout(Some(PAUSE))?;
        let address = socket.local_addr()?;
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, count): (_, Arc<AtomicU64>) = (Arc::clone(&stop), Arc::clone(&asked));
        let zone = Zone::of(known);
        let thread = thread::Builder::new()
            .name("name server".into())
            .spawn(move || serve(&socket, &zone, &stopped, &count))
            .context("starting the name server's thread")?;
        Ok(NameServer {
            address,
            stop,
            asked,
            thread: Some(thread),
        })
    }

    /// The line of a resolv.conf that leads to it; one with another port than 53 only Weft reads.
    pub fn resolv_conf(&self) -> String {
        match self.address.port() {
            DOMAIN => format!("nameserver {}\n", self.address.ip()),
            _ => format!("nameserver {}\n", self.address),
        }
    }

    /// Number of questions received.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, zone: &Zone, stopped: &AtomicBool, count: &AtomicU64) {
    let mut packet = [0; 512];
    let mut waiting: Vec<(Instant, Vec<u8>, SocketAddr)> = Vec::new();
    while !stopped.load(Ordering::SeqCst) {
        let now = Instant::now();
        waiting.retain(|(due, answer, from)| {
            if *due <= now {
                let _ = socket.send_to(answer, from);
            }
            *due > now
        });
        let Ok((length, from)) = socket.recv_from(&mut packet) else {
            continue;
        };
        count.fetch_add(1, Ordering::Relaxed);
        match packet.get(..length).and_then(|query| answer(query, zone)) {
            // Who asked may be gone.
            Some((answer, Duration::ZERO)) => drop(socket.send_to(&answer, from)),
            Some((answer, after)) if waiting.len() < MOST_WAITING => {
                waiting.push((now + after, answer, from));
            }
            _ => {}
        }
    }
}

/// The answer to a question (RFC 1035 4), if there is one, and its delay.
fn answer(packet: &[u8], zone: &Zone) -> Option<(Vec<u8>, Duration)> {
    let (head, mut rest) = packet.split_first_chunk::<HEAD>()?;
    let mut labels: Vec<String> = Vec::new();
    while let (Some(length @ 1..=63), after) = (rest.first().copied(), rest.get(1..)?) {
        let (label, further) = after.split_at_checked(usize::from(length))?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        rest = further;
    }
    let [0, type_high, type_low, _, _, ..] = rest else {
        return None;
    };
    let after = match labels.first().map(String::as_str) {
        Some("silent") => return None,
        Some("slow") => SLOW,
        _ => Duration::ZERO,
    };
    let question = packet.get(HEAD..packet.len() - rest.len() + 5)?;
    let name = labels.join(".");
    let kind = u16::from_be_bytes([*type_high, *type_low]);
    let (exists, records) = records(zone, &name, kind);
    let code = if exists { 0 } else { NO_SUCH_NAME };
    // A response, recursion available, one question, some answers or none.
    let mut answer = vec![head[0], head[1], 0x81, 0x80 | code, 0, 1];
    answer.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
    answer.extend([0; 4]);
    answer.extend_from_slice(question);
    for record in records {
        // The name is the question's, at the end of the head.
        answer.extend([0xc0, HEAD as u8]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1]);
        answer.extend(TTL.to_be_bytes());
        answer.extend(u16::try_from(record.len()).ok()?.to_be_bytes());
        answer.extend(record);
    }
    Some((answer, after))
}

/// True if the zone has this name, and the data of its records of one kind (RFC 1035 3.3).
fn records(zone: &Zone, name: &str, kind: u16) -> (bool, Vec<Vec<u8>>) {
    const A: u16 = 1;
    const PTR: u16 = 12;
    const AAAA: u16 = 28;
    if let Some(addresses) = zone.addresses.get(name) {
        let of_kind = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(v4) if kind == A => Some(v4.octets().to_vec()),
            IpAddr::V6(v6) if kind == AAAA => Some(v6.octets().to_vec()),
            _ => None,
        });
        return (true, of_kind.collect());
    }
    match zone.names.get(name) {
        Some(named) if kind == PTR => {
            let mut data = Vec::new();
            for label in named.split('.') {
                data.push(label.len() as u8);
                data.extend(label.bytes());
            }
            data.push(0);
            (true, vec![data])
        }
        named => (named.is_some(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, kind: u8) -> Option<(Vec<u8>, Duration)> {
        let mut packet = vec![7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend(label.bytes());
        }
        packet.extend([0, 0, kind, 0, 1]);
        let known = [
            ("www.example", IpAddr::from([127, 0, 0, 9])),
            ("six.example", IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
        ];
        answer(&packet, &Zone::of(&known))
    }

    fn answer_to(name: &str, kind: u8) -> Vec<u8> {
        ask(name, kind).expect("an answer").0
    }

    #[test]
    fn known_names_have_an_address_and_others_do_not_exist() {
        let known = answer_to("wWw.example", 1);
        assert_eq!(known[..4], [7, 8, 0x81, 0x80]);
        assert_eq!(known[known.len() - 6..], [0, 4, 127, 0, 0, 9]);
        assert_eq!(answer_to("www.example", 28)[3..8], [0x80, 0, 1, 0, 0]);
        let six = answer_to("six.example", 28);
        assert_eq!(six[3..8], [0x80, 0, 1, 0, 1]);
        assert_eq!(six[six.len() - 18..][..3], [0, 16, 0]);
        assert_eq!(answer_to("gone.example", 1)[3], 0x83);
        assert_eq!(ask("silent.example", 1), None);
        assert_eq!(ask("slow.example", 1).expect("an answer").1, SLOW);
        assert_eq!(answer(b"garbage", &Zone::default()), None);
        assert_eq!(answer(&[9; 20], &Zone::default()), None);
    }

    #[test]
    fn addresses_have_the_names_that_have_them() {
        let name = answer_to("9.0.0.127.in-addr.arpa", 12);
        assert_eq!(name[3..8], [0x80, 0, 1, 0, 1]);
        assert!(name.ends_with(b"\x03www\x07example\0"));
        assert_eq!(answer_to("8.0.0.127.in-addr.arpa", 12)[3], 0x83);
    }

    #[test]
    fn it_answers_on_its_port() {
        let nothing: [(&str, IpAddr); 0] = [];
        let server = NameServer::start(&nothing).expect("a server");
        assert!(server.resolv_conf().starts_with("nameserver 127.0.0.1:"));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let question = [1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'x', 0, 0, 1, 0, 1];
        socket.send_to(&question, server.address).expect("sent");
        let mut packet = [0; 64];
        let (length, _) = socket.recv_from(&mut packet).expect("an answer");
        assert_eq!((length, packet[3]), (19, 0x83));
        assert_eq!(server.asked(), 1);
    }
}
