//! Bulk TCP streams over a link, for as long as the testbed is up.
//!
//! The second end of the link sends, the first reads. Each end is a thread in the host's namespace; a stream
//! that breaks is opened again.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use weft_model::links::Topology;

use super::host::Host;

/// The port of the first link's streams; the next link has the next one.
const FIRST_PORT: u16 = 5_001;
/// Interval at which a waiting thread checks whether it should end.
const LOOK: Duration = Duration::from_millis(200);
const BUFFER: usize = 64 << 10;

/// The streams of all links. Dropped, they end.
#[derive(Debug, Default)]
pub(super) struct Background {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts the streams that the topology asks for.
    pub(super) fn start(topology: &Topology, hosts: &[Host]) -> Result<Background> {
        let mut background = Background::default();
        for (number, link) in topology.links().iter().enumerate() {
            if link.background == 0 {
                continue;
            }
            let [reader, sender] = link.ends.map(|end| {
                let host = topology.as_host(end);
                host.and_then(|host| hosts.get(host.index()))
            });
            let (reader, sender) = reader.zip(sender).context("background over a switch")?;
            let port = u16::try_from(number)
                .ok()
                .and_then(|number| FIRST_PORT.checked_add(number))
                .context("too many links for background streams")?;
            let address = SocketAddr::from((sender.address(), port));
            let listener = sender.enter(|| TcpListener::bind(address))?;
            let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
            listener
                .set_nonblocking(true)
                .context("cannot accept without waiting")?;
            let is_over = Arc::clone(&background.is_over);
            background.spawn(move || accept(&listener, &is_over))?;
            for _ in 0..link.background {
                let is_over = Arc::clone(&background.is_over);
                let namespace = reader.namespace().clone();
                background.spawn(move || {
                    // The host is there as long as the testbed is.
                    if namespace.join_for_good().is_ok() {
                        read(address, &is_over);
                    }
                })?;
            }
        }
        Ok(background)
    }

    fn spawn(&mut self, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new()
            .name("weft-net-bulk".to_owned())
            .spawn(run)
            .context("cannot start a thread for background streams")?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

/// Accepts streams and sends on each.
fn accept(listener: &TcpListener, is_over: &AtomicBool) {
    thread::scope(|scope| {
        while !is_over.load(Ordering::SeqCst) {
            match listener.accept() {
                Ok((stream, _)) => drop(scope.spawn(move || send(&stream, is_over))),
                Err(_) => thread::sleep(LOOK),
            }
        }
    });
}

fn send(mut stream: &TcpStream, is_over: &AtomicBool) {
    if stream.set_nonblocking(false).is_err() || stream.set_write_timeout(Some(LOOK)).is_err() {
        return;
    }
    let bytes = [0; BUFFER];
    while !is_over.load(Ordering::SeqCst) {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(error) if is_patient(error.kind()) => {}
            Err(_) => return,
        }
    }
}

/// Reads from a stream, and opens it again when it breaks.
fn read(address: SocketAddr, is_over: &AtomicBool) {
    let mut bytes = vec![0; BUFFER];
    while !is_over.load(Ordering::SeqCst) {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        let Ok(mut stream) = stream.and_then(|stream| {
            stream.set_read_timeout(Some(LOOK))?;
            Ok(stream)
        }) else {
            thread::sleep(LOOK);
            continue;
        };
        while !is_over.load(Ordering::SeqCst) {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if is_patient(error.kind()) => {}
                Err(_) => break,
            }
        }
    }
}

fn is_patient(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
