//! Just enough HTTP to ask an authority that we started for its consensus.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longest silence of the authority.
const STALL: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes.
const MOST: u64 = 32 << 20;

/// The body at `path`, uncompressed; anything but 200 is an error.
pub(crate) fn get(server: SocketAddr, path: &str) -> Result<String> {
    let mut stream =
        TcpStream::connect(server).with_context(|| format!("connecting to DirPort {server}"))?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream
        .take(MOST)
        .read_to_end(&mut answer)
        .with_context(|| format!("reading the answer of DirPort {server}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("DirPort {server} did not answer"))?;
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => bail!("DirPort {server}: {status}"),
    }
}
