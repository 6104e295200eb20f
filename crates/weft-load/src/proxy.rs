//! A proxy on loopback that a node can be configured to use: SOCKS4, SOCKS5 and HTTP CONNECT on one
//! port. It remembers what it was asked for.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// A request or a write that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest request head of HTTP.
const MAX_HEAD: usize = 4096;

/// A proxy's behaviour toward requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Connects and carries bytes.
    Connect,
    /// Refuses, in the words of the protocol.
    Refuse,
    /// Answers with bytes that are of no protocol.
    Nonsense,
    /// Closes the connection without an answer.
    Close,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `SOCKS4`, `SOCKS5` or `HTTP`.
    pub protocol: &'static str,
    /// Where to.
    pub target: SocketAddr,
    /// Name and password as they were sent (`name:password`; in base64 by HTTP), where they were.
    pub credentials: Option<String>,
    /// The address from which the proxy connected to the target, if it did.
    pub from: Option<SocketAddr>,
}

/// A running proxy. Its threads end with the connections, or with the process.
#[derive(Debug)]
pub struct TestProxy {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl TestProxy {
    /// Starts a proxy on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// There is no port.
    pub fn start(behaviour: Behaviour) -> Result<TestProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let all = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = all.clone();
                // A client that breaks off is no error of the test's.
                thread::spawn(move || serve(stream, behaviour, &all).ok());
            }
        });
        Ok(TestProxy { addr, asked })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Requests received so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }
}

fn lock(asked: &Mutex<Vec<Asked>>) -> MutexGuard<'_, Vec<Asked>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one client.
fn serve(mut client: TcpStream, behaviour: Behaviour, all: &Mutex<Vec<Asked>>) -> Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let first = bytes::<1>(&mut client)?;
    let mut asked = match first {
        [4] => read_socks4(&mut client)?,
        [5] => read_socks5(&mut client)?,
        [b'C'] => read_http(&mut client)?,
        other => bail!("{other:?} begins no protocol"),
    };
    if behaviour != Behaviour::Connect {
        let protocol = asked.protocol;
        lock(all).push(asked);
        return match behaviour {
            Behaviour::Refuse => Ok(client.write_all(&answer(protocol, false))?),
            Behaviour::Nonsense => Ok(client.write_all(b"What do you mean?\r\n\r\n")?),
            Behaviour::Close | Behaviour::Connect => Ok(()),
        };
    }
    let target = TcpStream::connect_timeout(&asked.target, PATIENCE);
    asked.from = target
        .as_ref()
        .ok()
        .and_then(|target| target.local_addr().ok());
    let protocol = asked.protocol;
    lock(all).push(asked);
    let Ok(target) = target else {
        return Ok(client.write_all(&answer(protocol, false))?);
    };
    client.write_all(&answer(protocol, true))?;
    carry(client, target)
}

/// The answer to a request.
fn answer(protocol: &str, granted: bool) -> Vec<u8> {
    match (protocol, granted) {
        ("SOCKS4", true) => vec![0, 90, 0, 0, 0, 0, 0, 0],
        ("SOCKS4", false) => vec![0, 91, 0, 0, 0, 0, 0, 0],
        ("SOCKS5", true) => vec![5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        ("SOCKS5", false) => vec![5, 2, 0, 1, 0, 0, 0, 0, 0, 0],
        (_, true) => b"HTTP/1.1 200 Connection established\r\nProxy-Agent: lab\r\n\r\n".to_vec(),
        (_, false) => b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(),
    }
}

fn bytes<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn text(stream: &mut TcpStream) -> Result<String> {
    let [length] = bytes(stream)?;
    let mut text = vec![0; usize::from(length)];
    stream.read_exact(&mut text)?;
    Ok(String::from_utf8(text)?)
}

fn read_socks4(client: &mut TcpStream) -> Result<Asked> {
    let [command, p0, p1, a, b, c, d, end] = bytes(client)?;
    ensure!((command, end) == (1, 0), "CONNECT without a user");
    Ok(Asked {
        protocol: "SOCKS4",
        target: SocketAddr::from(([a, b, c, d], u16::from_be_bytes([p0, p1]))),
        credentials: None,
        from: None,
    })
}

fn read_socks5(client: &mut TcpStream) -> Result<Asked> {
    let [count] = bytes(client)?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods)?;
    let mut credentials = None;
    // Who offers a password is asked for it.
    if methods.contains(&2) {
        client.write_all(&[5, 2])?;
        ensure!(bytes(client)? == [1_u8], "RFC 1929");
        credentials = Some(format!("{}:{}", text(client)?, text(client)?));
        client.write_all(&[1, 0])?;
    } else {
        client.write_all(&[5, 0])?;
    }
    let [version, command, _, kind] = bytes(client)?;
    ensure!((version, command) == (5, 1), "CONNECT");
    let ip: IpAddr = match kind {
        1 => Ipv4Addr::from(bytes::<4>(client)?).into(),
        4 => Ipv6Addr::from(bytes::<16>(client)?).into(),
        other => bail!("an address of kind {other}"),
    };
    let port = u16::from_be_bytes(bytes(client)?);
    Ok(Asked {
        protocol: "SOCKS5",
        target: SocketAddr::new(ip, port),
        credentials,
        from: None,
    })
}

fn read_http(client: &mut TcpStream) -> Result<Asked> {
    let mut head = b"C".to_vec();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_HEAD, "too long");
        head.extend(bytes::<1>(client)?);
    }
    let head = String::from_utf8(head)?;
    let target = head.strip_prefix("CONNECT ").context("CONNECT")?;
    let (target, _) = target.split_once(' ').context("a version")?;
    let field = |line: &str| {
        let value = line.strip_prefix("Proxy-Authorization: Basic ")?;
        Some(value.to_owned())
    };
    Ok(Asked {
        protocol: "HTTP",
        target: target.parse()?,
        credentials: head.lines().find_map(field),
        from: None,
    })
}

/// Carries bytes both ways until both sides have ended.
fn carry(client: TcpStream, target: TcpStream) -> Result<()> {
    client.set_read_timeout(None)?;
    let (from_target, to_client) = (target.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || copy(from_target, to_client));
    copy(client, target);
    // The other direction's errors end it as well as its end.
    let _ = back.join();
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // A connection that breaks ends both ways.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
