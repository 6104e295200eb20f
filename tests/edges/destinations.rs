//! Servers that behave in every way that a destination can.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use socket2::{Domain, SockRef, Socket, Type};
use weft_testnet::up::exit_address;

use crate::edges::net::PATIENCE;

/// What a flood is made of: byte `n` is `n % 251`.
pub(crate) fn flood_byte(at: u64) -> u8 {
    (at % 251) as u8
}

/// A server on a free port, which treats all connections alike. Ends when dropped.
pub(crate) struct Far {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Far {
    pub(crate) fn start(
        act: impl Fn(TcpStream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Far> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, act) = (Arc::clone(&stop), Arc::new(act));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let act = Arc::clone(&act);
                std::thread::spawn(move || {
                    let _ = stream.set_read_timeout(Some(PATIENCE));
                    let _ = stream.set_write_timeout(Some(PATIENCE));
                    // The test sees the result at the other end.
                    let _ = act(stream);
                });
            }
        });
        Ok(Far { address, stop })
    }

    /// Sends some bytes, then resets the connection.
    pub(crate) fn resets() -> Result<Far> {
        Far::start(|mut stream| {
            let mut first = [0];
            stream.read_exact(&mut first)?;
            stream.write_all(&[7; 1000])?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            Ok(())
        })
    }

    /// Sends this and closes its sending side; what arrives then is counted, until it ends.
    pub(crate) fn half_closes(bytes: Vec<u8>, heard: Arc<AtomicU64>) -> Result<Far> {
        Far::start(move |mut stream| {
            stream.write_all(&bytes)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            heard.fetch_add(rest.len() as u64 + 1, Ordering::SeqCst);
            Ok(())
        })
    }

    /// Takes everything until its end, then notes it.
    pub(crate) fn takes(taken: Arc<std::sync::Mutex<Option<Vec<u8>>>>) -> Result<Far> {
        Far::start(move |mut stream| {
            let mut all = Vec::new();
            let ended = stream.read_to_end(&mut all);
            if ended.is_ok()
                && let Ok(mut taken) = taken.lock()
            {
                *taken = Some(all);
            }
            Ok(())
        })
    }

    /// Reads nothing, and keeps the connection whatever the other end does.
    pub(crate) fn never_reads(left: Arc<AtomicBool>) -> Result<Far> {
        Far::start(move |stream| {
            while !left.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(stream);
            Ok(())
        })
    }

    /// Sends nothing and keeps the connection until the other end closes it, which is counted.
    pub(crate) fn is_silent(ended: Arc<AtomicU64>) -> Result<Far> {
        Far::start(move |mut stream| {
            let _ = stream.read_to_end(&mut Vec::new());
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    /// Sends as fast as it can and counts what it could send, of all connections.
    pub(crate) fn floods(sent: Arc<AtomicU64>) -> Result<Far> {
        Far::start(move |mut stream| {
            let mut at = 0;
            loop {
                let chunk: Vec<u8> = (at..at + 65_536).map(flood_byte).collect();
                let mut rest = chunk.as_slice();
                while !rest.is_empty() {
                    let count = stream.write(rest)?;
                    rest = &rest[count..];
                    sent.fetch_add(count as u64, Ordering::SeqCst);
                    at += count as u64;
                }
            }
        })
    }

    /// Sends these bytes one by one, each when the one before is on its way.
    pub(crate) fn trickles(bytes: Vec<u8>) -> Result<Far> {
        Far::start(move |mut stream| {
            stream.set_nodelay(true)?;
            for byte in &bytes {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        })
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
    }
}

/// A port that accepts no connection: its backlog is full, so that the kernel drops what comes.
pub(crate) struct Hole {
    pub(crate) address: SocketAddr,
    _listener: Socket,
    _waiting: Vec<Socket>,
}

impl Hole {
    pub(crate) fn dig() -> Result<Hole> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        listener.listen(0)?;
        let address = listener.local_addr()?.as_socket().context("no address")?;
        let mut waiting = Vec::new();
        // One more than a backlog of none takes.
        for _ in 0..3 {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            // It is under way.
            let _ = socket.connect(&address.into());
            waiting.push(socket);
        }
        Ok(Hole {
            address,
            _listener: listener,
            _waiting: waiting,
        })
    }
}

/// Sockets that exits have open for connections to this address: their states, as proc(5) numbers them. The kernel writes
/// its table in parts, while connections of others come and go: one may be missing once, or be there twice.
pub(crate) fn exit_sockets(to: SocketAddr) -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let hex = |ip: Ipv4Addr| format!("{:08X}", u32::from_le_bytes(ip.octets()));
    let exits = [0, 1].map(|number| hex(exit_address(number)));
    let IpAddr::V4(ip) = to.ip() else {
        bail!("{to} is not in the table of IPv4");
    };
    let to = format!("{}:{:04X}", hex(ip), to.port());
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, _, _, _, _, _, inode, ..] = words.as_slice() else {
            return None;
        };
        // What the kernel alone still has to do with has no inode.
        let open = *inode != "0" && *remote == to;
        let exits = exits.iter().any(|ip| local.starts_with(ip.as_str()));
        (open && exits).then(|| (*state).to_owned())
    });
    Ok(sockets.collect())
}
