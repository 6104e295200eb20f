//! A directory between a relay and its authority: its first answers are lies, the others are the
//! authority's own.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::edges::net::PATIENCE;

/// What is wrong with the consensus that it gives first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A relay's weight is another than was signed.
    Forged,
    /// Its second half is missing, without a sign of it.
    Truncated,
    /// Its second half is missing, as its length shows.
    CutOff,
    /// It never ends.
    Enormous,
    /// 256 MiB, in few bytes.
    Bomb,
    /// It is something else.
    Nonsense,
}

/// The directory. It lives as long as the test.
pub(crate) struct Liar {
    pub(crate) address: SocketAddr,
    /// Lies that were sent.
    pub(crate) sent: Arc<AtomicU32>,
}

impl Liar {
    /// Sends this lie `times` times.
    pub(crate) fn start(authority: SocketAddr, lie: Lie, times: u32) -> Result<Liar> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let sent = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&sent);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // The client sees the result.
                let _ = serve(stream, authority, lie, &count, times);
            }
        });
        Ok(Liar { address, sent })
    }
}

fn serve(
    mut stream: TcpStream,
    authority: SocketAddr,
    lie: Lie,
    sent: &AtomicU32,
    times: u32,
) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(&mut stream)?;
    let honest = |path: &str| -> Result<Vec<u8>> {
        let mut there = TcpStream::connect(authority)?;
        write!(there, "GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
        let mut answer = Vec::new();
        there.take(32 << 20).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let path = head.split(' ').nth(1).context("no path")?;
    let lies = path.starts_with("/tor/status-vote/current/") && sent.load(Ordering::SeqCst) < times;
    if !lies {
        stream.write_all(&honest(path)?)?;
        return Ok(());
    }
    sent.fetch_add(1, Ordering::SeqCst);
    let plain = path.strip_suffix(".z").unwrap_or(path);
    match lie {
        Lie::Nonsense => stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")?,
        Lie::Enormous => {
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Encoding: identity\r\n\r\n")?;
            // As much as anybody takes.
            for _ in 0..16_384 {
                stream.write_all(&[b'a'; 65_536])?;
            }
        }
        Lie::Bomb => answer(&mut stream, "deflate", &bomb()?, None)?,
        Lie::Forged | Lie::Truncated | Lie::CutOff => {
            let whole = honest(plain)?;
            let at = whole.windows(4).position(|four| four == b"\r\n\r\n");
            let body = whole.get(at.context("no body")? + 4..).context("no body")?;
            let half = &body[..body.len() / 2];
            match lie {
                Lie::Forged => {
                    let text = String::from_utf8_lossy(body);
                    let other = text.replacen("Bandwidth=", "Bandwidth=9", 1);
                    ensure!(other != text, "nothing to forge");
                    answer(&mut stream, "identity", other.as_bytes(), None)?;
                }
                Lie::Truncated => answer(&mut stream, "identity", half, None)?,
                _ => answer(&mut stream, "identity", half, Some(body.len()))?,
            }
        }
    }
    Ok(())
}

/// An answer whose length is that of its body, or another.
fn answer(
    stream: &mut TcpStream,
    encoding: &str,
    body: &[u8],
    length: Option<usize>,
) -> Result<()> {
    let length = length.unwrap_or(body.len());
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)?;
    Ok(())
}

/// The head of a request.
fn head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < 20_000, "no end of the request");
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn bomb() -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for _ in 0..256 {
        encoder.write_all(&[0; 1 << 20])?;
    }
    Ok(encoder.finish()?)
}
