//! The connection threads, as the main thread holds them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use rand::{CryptoRng, RngExt as _};
use weft_config::Options;
use weft_config::options::MAX_CONNECTION_THREADS;
use weft_core::params::RelayParams;
use weft_sync::lease::{Lease, LeasePool};
use weft_tls::LinkTls;

use super::event_loop::EventLoop;
use crate::logging;
use crate::process::{machine, sandbox};
use crate::thread::host::{Guest, GuestHandle, host};
use crate::thread::mesh::{self, MainEnds, ToThread};
use crate::thread::{ConnectionThread, ThreadConfig, ThreadParams, event_loop};

/// The number of connection threads that torrc asks for; 0: the main thread is the only one.
pub(super) fn wanted(options: &Options) -> u32 {
    let cores = u32::try_from(machine::usable_cores()).unwrap_or(u32::MAX);
    options
        .resources
        .connection_threads
        .unwrap_or(cores)
        .min(MAX_CONNECTION_THREADS)
}

/// Initial configuration of the threads.
pub(super) struct Setup {
    pub(super) params: Arc<RelayParams>,
    pub(super) thread_params: ThreadParams,
    /// The rate in bytes a second, and the burst in bytes.
    pub(super) bandwidth: (u64, u64),
    pub(super) tls: Arc<LinkTls>,
}

/// The connection threads, the rings to them, and what all of them share.
///
/// [`make`](Self::make) once; then [`send`](Self::send), [`flush`](Self::flush) at the end of each turn.
pub(super) struct Threads {
    /// The main thread's ends of the rings, by thread.
    pub(super) ends: Vec<MainEnds>,
    pub(super) handles: Vec<GuestHandle>,
    /// The connection thread that the main thread is, with `ConnectionThreads 0`.
    pub(super) inline: Option<ConnectionThread>,
    /// The bandwidth limit that they share.
    pub(super) pool: Arc<LeasePool>,
    /// The parameters in force.
    pub(super) params: Arc<RelayParams>,
}

/// Starts the thread of the process with this number, which takes the turns of these.
///
/// # Errors
///
/// The system has no more threads.
pub(super) fn spawn(number: usize, guests: Vec<Guest>) -> io::Result<()> {
    let name = format!("connections-{number}");
    // It ends with its guests; no thread waits for more.
    logging::spawn(&name, || {
        sandbox::narrow(sandbox::Role::Connections);
        host(guests);
    })?;
    Ok(())
}

impl Threads {
    /// Makes the connection threads, `wanted` of them, and returns those whose turns threads of the process are to take.
    ///
    /// # Errors
    ///
    /// The system has no more event loops.
    pub(super) fn make(
        wanted: u32,
        event_loop: &EventLoop,
        setup: Setup,
        rng: &mut impl CryptoRng,
        now: Instant,
    ) -> io::Result<(Self, Vec<Guest>)> {
        let count = u16::try_from(wanted.max(1)).unwrap_or(1);
        let pool = Arc::new(LeasePool::new(setup.bandwidth.0, setup.bandwidth.1, now));
        let (polls, wakers): (Vec<_>, Vec<_>) = (0..count)
            .map(|_| self::event_loop())
            .collect::<io::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        let (thread_ends, ends) = mesh::mesh(wakers, &event_loop.wake);
        let mut threads = Threads {
            ends,
            handles: Vec::new(),
            inline: None,
            pool,
            params: setup.params,
        };
        let mut guests = Vec::new();
        for (ends, poll) in thread_ends.into_iter().zip(polls) {
            let thread = ConnectionThread::new(
                ThreadConfig {
                    ends,
                    threads: count,
                    poll,
                    relay: threads.params.clone(),
                    params: setup.thread_params.clone(),
                    tls: setup.tls.clone(),
                    lease: Lease::new(threads.pool.clone()),
                    seed: rng.random(),
                },
                now,
            );
            if wanted == 0 {
                thread.nest(&event_loop.poll)?;
                threads.inline = Some(thread);
            } else {
                let (guest, handle) = Guest::new(thread);
                guests.push(guest);
                threads.handles.push(handle);
            }
        }
        Ok((threads, guests))
    }

    /// Number of threads.
    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.ends.len()).unwrap_or(u16::MAX)
    }

    /// Queues a message for a thread.
    pub(super) fn send(&mut self, thread: u16, message: ToThread) {
        if let Some(ends) = self.ends.get_mut(usize::from(thread)) {
            ends.send(message);
        }
    }

    /// Queues a message for each thread.
    pub(super) fn send_all(&mut self, message: impl Fn() -> ToThread) {
        for ends in &mut self.ends {
            ends.send(message());
        }
    }

    /// Pushes what is queued into the rings, and wakes the threads that sleep.
    pub(super) fn flush(&mut self) {
        for ends in &mut self.ends {
            ends.flush();
        }
    }
}
