//! Applications: the client's side of SOCKS 4, 4a and 5, of HTTP CONNECT and of DNS, byte by byte, so
//! that it can be left in the middle or done wrong.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::edges::net::PATIENCE;

pub(crate) const CONNECT: u8 = 1;
pub(crate) const RESOLVE: u8 = 0xf0;
pub(crate) const RESOLVE_PTR: u8 = 0xf1;

/// What SOCKS 5 is asked for: a name, or an address as an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    Name(&'a str, u16),
    Addr(SocketAddr),
}

impl From<SocketAddr> for To<'_> {
    fn from(addr: SocketAddr) -> Self {
        To::Addr(addr)
    }
}

/// The answer of SOCKS 5: its code, and the address or name in it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u8,
    pub(crate) address: String,
    pub(crate) stream: TcpStream,
}

/// A connection to a listener that does not wait for ever.
pub(crate) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The bytes of a SOCKS 5 request.
pub(crate) fn request5(command: u8, to: To<'_>) -> Vec<u8> {
    let mut request = vec![5, command, 0];
    let port = match to {
        To::Addr(addr) => {
            match addr.ip() {
                IpAddr::V4(v4) => {
                    request.push(1);
                    request.extend(v4.octets());
                }
                IpAddr::V6(v6) => {
                    request.push(4);
                    request.extend(v6.octets());
                }
            }
            addr.port()
        }
        To::Name(name, port) => {
            request.extend([3, name.len() as u8]);
            request.extend(name.bytes());
            port
        }
    };
    request.extend(port.to_be_bytes());
    request
}

/// Authenticates; streams of one user share circuits.
pub(crate) fn greet5(stream: &mut TcpStream, user: &str) -> Result<()> {
    stream.write_all(&[5, 1, 2])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    ensure!(method == [5, 2], "{method:?}");
    let mut words = vec![1, user.len() as u8];
    words.extend(user.bytes());
    words.extend([1, b'x']);
    stream.write_all(&words)?;
    stream.read_exact(&mut method)?;
    ensure!(method == [1, 0], "{method:?}");
    Ok(())
}

/// A whole SOCKS 5 request, and its answer.
pub(crate) fn socks5<'a>(
    proxy: SocketAddr,
    user: &str,
    command: u8,
    to: impl Into<To<'a>>,
) -> Result<Answer> {
    let mut stream = connect(proxy)?;
    greet5(&mut stream, user)?;
    stream.write_all(&request5(command, to.into()))?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).context("no answer")?;
    let mut bytes = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let address = match head[3] {
        1 => {
            let octets: [u8; 4] = bytes(4)?.try_into().unwrap_or_default();
            IpAddr::from(octets).to_string()
        }
        4 => {
            let octets: [u8; 16] = bytes(16)?.try_into().unwrap_or_default();
            IpAddr::from(octets).to_string()
        }
        3 => {
            let length = bytes(1)?;
            String::from_utf8(bytes(usize::from(length[0]))?)?
        }
        other => bail!("an address of kind {other}"),
    };
    bytes(2)?;
    Ok(Answer {
        code: head[1],
        address,
        stream,
    })
}

/// A SOCKS 4 or 4a request, and the code and address of its answer.
pub(crate) fn socks4(
    proxy: SocketAddr,
    command: u8,
    to: To<'_>,
) -> Result<(u8, Ipv4Addr, TcpStream)> {
    let (address, name, port) = match to {
        To::Addr(SocketAddr::V4(v4)) => (*v4.ip(), None, v4.port()),
        To::Addr(SocketAddr::V6(_)) => bail!("SOCKS 4 has no IPv6"),
        To::Name(name, port) => (Ipv4Addr::new(0, 0, 0, 1), Some(name), port),
    };
    let mut request = vec![4, command];
    request.extend(port.to_be_bytes());
    request.extend(address.octets());
    request.extend(b"user\0");
    if let Some(name) = name {
        request.extend(name.bytes());
        request.push(0);
    }
    let mut stream = connect(proxy)?;
    stream.write_all(&request)?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let [0, code, _, _, a, b, c, d] = answer else {
        bail!("{answer:?}");
    };
    Ok((code, Ipv4Addr::new(a, b, c, d), stream))
}

/// CONNECT by HTTP: the status line and the header lines of the answer.
pub(crate) fn http_connect(proxy: SocketAddr, target: &str) -> Result<(Vec<String>, TcpStream)> {
    let mut stream = connect(proxy)?;
    write!(
        stream,
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    )?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < 10_000, "no end of the answer");
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let lines = String::from_utf8(head)?;
    Ok((lines.lines().map(str::to_owned).collect(), stream))
}

/// Everything that comes until the other end closes or resets; with how it ended.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Result<(Vec<u8>, Option<ErrorKind>)> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => Ok((all, None)),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {
            Ok((all, Some(ErrorKind::ConnectionReset)))
        }
        Err(error) => Err(error).context("reading to the end"),
    }
}

/// A DNSPort's answer: the code, and the data of the answers.
pub(crate) fn dns(port: SocketAddr, name: &str, kind: u16) -> Result<(u8, Vec<Vec<u8>>)> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.push(0);
    query.extend(kind.to_be_bytes());
    query.extend([0, 1]);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.send_to(&query, port)?;
    let mut packet = [0; 512];
    let (length, _) = socket
        .recv_from(&mut packet)
        .context("no answer of the DNSPort")?;
    let answer = &packet[..length];
    ensure!(
        answer.len() >= query.len() && answer[..2] == query[..2],
        "{answer:?}"
    );
    ensure!(answer[12..query.len()] == query[12..], "another question");
    let count = usize::from(answer[7]);
    let mut rest = &answer[query.len()..];
    let mut records = Vec::new();
    for _ in 0..count {
        // The name is a pointer; type, class and TTL follow.
        let (head, after) = rest.split_first_chunk::<12>().context("a record cut off")?;
        ensure!(head[0] & 0xc0 == 0xc0, "{head:?}");
        let length = usize::from(u16::from_be_bytes([head[10], head[11]]));
        let (data, after) = after.split_at_checked(length).context("data cut off")?;
        records.push(data.to_vec());
        rest = after;
    }
    Ok((answer[3] & 0xf, records))
}
