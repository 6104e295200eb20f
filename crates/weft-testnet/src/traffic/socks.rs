//! The client side of SOCKS 5 with a user name (RFC 1928, RFC 1929).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Destination that a proxy is asked to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Far<'a> {
    /// An address.
    Addr(SocketAddr),
    /// A host name, which the proxy has looked up, and a port.
    Name(&'a str, u16),
}

impl From<SocketAddr> for Far<'_> {
    fn from(addr: SocketAddr) -> Self {
        Far::Addr(addr)
    }
}

impl std::fmt::Display for Far<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Far::Addr(addr) => write!(f, "{addr}"),
            Far::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// CONNECT of RFC 1928.
const CONNECT: u8 = 1;
/// C tor's own: look a name up (socks-extensions).
const RESOLVE: u8 = 0xf0;

/// Connects to `target` through the proxy, to which we are `user`. Reads and writes of the stream
/// fail after `stall` without progress.
pub fn connect(
    proxy: SocketAddr,
    user: &str,
    target: Far<'_>,
    stall: Duration,
) -> Result<TcpStream> {
    Ok(ask(proxy, user, CONNECT, target, stall)?.0)
}

/// Has the proxy look a name up.
pub(crate) fn resolve(
    proxy: SocketAddr,
    user: &str,
    name: &str,
    stall: Duration,
) -> Result<IpAddr> {
    let (_, found) = ask(proxy, user, RESOLVE, Far::Name(name, 0), stall)?;
    found.context("the answer is no address")
}

/// The stream that the proxy gives, and the address in its reply.
fn ask(
    proxy: SocketAddr,
    user: &str,
    command: u8,
    target: Far<'_>,
    stall: Duration,
) -> Result<(TcpStream, Option<IpAddr>)> {
    let mut stream = TcpStream::connect(proxy)
        .with_context(|| format!("connecting to the SOCKS port {proxy}"))?;
    stream.set_read_timeout(Some(stall))?;
    stream.set_write_timeout(Some(stall))?;
    stream.set_nodelay(true)?;
    let found = handshake(&mut stream, user, command, target)
        .with_context(|| format!("asking the SOCKS port {proxy} for {target} as {user:?}"))?;
    Ok((stream, found))
}

fn handshake(
    stream: &mut (impl Read + Write),
    user: &str,
    command: u8,
    target: Far<'_>,
) -> Result<Option<IpAddr>> {
    stream.write_all(&[5, 1, 2])?; // version 5, one method: user name and password
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    ensure!(method == [5, 2], "it does not take user names: {method:?}");

    let length = u8::try_from(user.len()).context("a SOCKS user name has at most 255 bytes")?;
    let mut words = vec![1, length];
    words.extend_from_slice(user.as_bytes());
    words.extend_from_slice(&[1, b'x']); // an empty password is not allowed
    stream.write_all(&words)?;
    let mut status = [0; 2];
    stream.read_exact(&mut status)?;
    ensure!(status[1] == 0, "it refused the user name: {status:?}");

    let mut request = vec![5, command, 0]; // version 5, command, reserved
    let port = match target {
        Far::Addr(SocketAddr::V4(v4)) => {
            request.push(1);
            request.extend_from_slice(&v4.ip().octets());
            v4.port()
        }
        Far::Addr(SocketAddr::V6(v6)) => {
            request.push(4);
            request.extend_from_slice(&v6.ip().octets());
            v6.port()
        }
        Far::Name(name, port) => {
            let length = u8::try_from(name.len()).context("a SOCKS name has at most 255 bytes")?;
            request.extend([3, length]);
            request.extend_from_slice(name.as_bytes());
            port
        }
    };
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply)?;
    ensure!(reply[1] == 0, "it refused: {}", reason(reply[1]));
    let bound = match reply[3] {
        1 => 4 + 2,
        4 => 16 + 2,
        3 => {
            let mut length = [0];
            stream.read_exact(&mut length)?;
            usize::from(length[0]) + 2
        }
        other => bail!("it answered with an address of unknown kind {other}"),
    };
    let mut rest = vec![0; bound];
    stream.read_exact(&mut rest)?;
    let v4 = rest.first_chunk::<4>().filter(|_| reply[3] == 1);
    let v6 = rest.first_chunk::<16>().filter(|_| reply[3] == 4);
    let v6 = v6.map(|octets| IpAddr::from(*octets));
    Ok(v4.map(|octets| IpAddr::from(*octets)).or(v6))
}

/// The words of RFC 1928, section 6.
fn reason(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown reason",
    }
}

/// The proxy's side, for tests: the user's name, whatever it is, and the target, of IPv4.
#[cfg(test)]
pub(crate) fn serve(client: &mut (impl Read + Write)) -> Result<(String, SocketAddr)> {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting)?;
    client.read_exact(&mut vec![0; usize::from(greeting[1])])?;
    client.write_all(&[5, 2])?;
    let mut user = [0; 2];
    client.read_exact(&mut user)?;
    let mut rest = vec![0; usize::from(user[1]) + 2];
    client.read_exact(&mut rest)?;
    let name = rest.get(..usize::from(user[1])).unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    client.write_all(&[1, 0])?;
    let mut request = [0; 10];
    client.read_exact(&mut request)?;
    let [5, 1, 0, 1, a, b, c, d, high, low] = request else {
        bail!("not a CONNECT to an IPv4 address: {request:?}");
    };
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
    let target = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    Ok((name, target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refusal_gives_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let proxy = listener.local_addr().expect("an address");
        let serving = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            client
                .write_all(&[5, 2, 1, 0, 5, 5, 0, 1])
                .expect("a refusal");
            // Everything it sends, until it closes: a close with bytes unread would reset it.
            let _ = client.read_to_end(&mut Vec::new());
        });
        let error =
            connect(proxy, "7", proxy.into(), Duration::from_secs(10)).expect_err("refused");
        assert!(
            format!("{error:#}").contains("connection refused"),
            "{error:#}"
        );
        serving.join().expect("the proxy ends");
    }
}
