//! A name server on loopback that knows a few names, for exits under test.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

/// How often the server looks whether it should end.
const PAUSE: Duration = Duration::from_millis(100);
/// Head of a DNS message (RFC 1035 4.1.1), in bytes.
const HEAD: usize = 12;
/// How long its answers are good, in seconds.
const TTL: u32 = 60;
/// NXDOMAIN.
const NO_SUCH_NAME: u8 = 3;

/// A name server on a free loopback port. Ends when dropped.
///
/// It knows the IPv4 addresses of the names that it is given; says of other names that they do not
/// exist; and says nothing at all of those that begin with `silent.`.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a server that knows these names, in lower case.
    pub fn start(names: &[(&str, Ipv4Addr)]) -> Result<NameServer> {
        let socket =
            UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("starting the name server")?;
        socket.set_read_timeout(Some(PAUSE))?;
        let address = socket.local_addr()?;
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, count): (_, Arc<AtomicU64>) = (Arc::clone(&stop), Arc::clone(&asked));
        let names: BTreeMap<String, Ipv4Addr> = names
            .iter()
            .map(|(name, addr)| ((*name).to_owned(), *addr))
            .collect();
        let thread = thread::Builder::new()
            .name("name server".into())
            .spawn(move || {
                let mut packet = [0; 512];
                while !stopped.load(Ordering::SeqCst) {
                    let Ok((length, from)) = socket.recv_from(&mut packet) else {
                        continue;
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    if let Some(answer) = packet.get(..length).and_then(|q| answer(q, &names)) {
                        // Who asked may be gone.
                        let _ = socket.send_to(&answer, from);
                    }
                }
            })
            .context("starting the name server's thread")?;
        Ok(NameServer {
            address,
            stop,
            asked,
            thread: Some(thread),
        })
    }

    /// The line of a resolv.conf that leads to it, as Weft reads it.
    pub fn resolv_conf(&self) -> String {
        format!("nameserver {}\n", self.address)
    }

    /// How many questions came.
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

/// The answer to a question (RFC 1035 4), if there shall be one.
fn answer(packet: &[u8], names: &BTreeMap<String, Ipv4Addr>) -> Option<Vec<u8>> {
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
    if labels.first().is_some_and(|label| label == "silent") {
        return None;
    }
    let question = packet.get(HEAD..packet.len() - rest.len() + 5)?;
    let known = names.get(&labels.join("."));
    let wants_ipv4 = [*type_high, *type_low] == [0, 1];
    let found = known.filter(|_| wants_ipv4);
    let code = if known.is_some() { 0 } else { NO_SUCH_NAME };
    // A response, recursion available, one question, one answer or none.
    let mut answer = vec![head[0], head[1], 0x81, 0x80 | code, 0, 1];
    answer.extend([0, u8::from(found.is_some()), 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    if let Some(addr) = found {
        // The name is the question's, at the end of the head.
        answer.extend([0xc0, HEAD as u8, 0, 1, 0, 1]);
        answer.extend(TTL.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(addr.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(name: &str, kind: u8) -> Option<Vec<u8>> {
        let mut packet = vec![7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(label.len() as u8);
            packet.extend(label.bytes());
        }
        packet.extend([0, 0, kind, 0, 1]);
        let names = [("www.example".to_owned(), Ipv4Addr::new(127, 0, 0, 9))];
        answer(&packet, &names.into())
    }

    #[test]
    fn known_names_have_an_address_and_others_do_not_exist() {
        let known = ask("wWw.example", 1).expect("an answer");
        assert_eq!(known[..4], [7, 8, 0x81, 0x80]);
        assert_eq!(known[known.len() - 6..], [0, 4, 127, 0, 0, 9]);
        let six = ask("www.example", 28).expect("an answer");
        assert_eq!(six[3..8], [0x80, 0, 1, 0, 0]);
        let none = ask("gone.example", 1).expect("an answer");
        assert_eq!(none[3], 0x83);
        assert_eq!(ask("silent.example", 1), None);
        assert_eq!(answer(b"garbage", &BTreeMap::new()), None);
        assert_eq!(answer(&[9; 20], &BTreeMap::new()), None);
    }

    #[test]
    fn it_answers_on_its_port() {
        let server = NameServer::start(&[]).expect("a server");
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
