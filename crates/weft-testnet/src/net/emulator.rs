//! The thread that carries packets between hosts: it reads their devices, asks `weft-model` when each packet
//! arrives, and writes it then.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::time::{ClockId as Clock, clock_gettime};
use serde::Serialize;
use weft_model::links::{
    Counters, HostId, MAX_PACKET, Moment, Network, OtherShape, Topology, Totals,
};

use super::priority;

/// Packets that are read from one device before the next one has its turn.
const BURST: usize = 32;
/// A packet that is delivered later than this after its time counts as late: what the testbed promises.
const LATE: Duration = Duration::from_micros(500);

const WAKE: Token = Token(usize::MAX);
const TIMER: Token = Token(usize::MAX - 1);

/// Counters of the emulator so far.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Packets by result.
    pub totals: Totals,
    /// Each direction of each link, in the order of the topology's links, first from the first end.
    pub links: Vec<Counters>,
    /// Delay of deliveries.
    pub lateness: Lateness,
    /// Processor time of the emulator's thread.
    pub cpu: Duration,
}

/// Delay of packets after the time at which they were due.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lateness {
    /// Seconds, on average.
    pub mean: f64,
    /// Seconds, at most.
    pub most: f64,
    /// Packets that came over 0.5 ms after their time.
    pub late_packets: u64,
    /// Packets that a device did not take.
    pub refused: u64,
    /// The emulator's thread goes before ordinary ones; without, it waits for its turn on a busy machine.
    pub is_realtime: bool,
}

/// The emulator's thread. Dropped, it ends, and with it the devices.
#[derive(Debug)]
pub(super) struct Emulator {
    thread: Option<JoinHandle<Result<()>>>,
    requests: SyncSender<Request>,
    waker: Arc<Waker>,
}

enum Request {
    Report(SyncSender<Snapshot>),
    Change(Topology, SyncSender<Result<(), OtherShape>>),
    End,
}

impl Emulator {
    /// Starts it; `devices` are those of the hosts, in the order of the topology.
    pub(super) fn start(topology: Topology, seed: u64, devices: Vec<File>) -> Result<Emulator> {
        let poll = Poll::new().context("cannot wait for packets")?;
        let waker = Waker::new(poll.registry(), WAKE).context("cannot wake the emulator")?;
        let (requests, inbox) = sync_channel(16);
        let carrier = Carrier::new(topology, seed, devices, poll)?;
        let thread = thread::Builder::new()
            .name("weft-net".to_owned())
            .spawn(move || carrier.run(&inbox))
            .context("cannot start the emulator's thread")?;
        Ok(Emulator {
            thread: Some(thread),
            requests,
            waker: Arc::new(waker),
        })
    }

    /// Returns its counters so far.
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        let (answer, snapshot) = sync_channel(1);
        self.request(Request::Report(answer))?;
        let ended = "the emulator has ended";
        snapshot.recv().map_err(|_| anyhow!(ended))
    }

    /// Gives its links the settings of this topology.
    pub(super) fn change(&self, topology: Topology) -> Result<()> {
        let (answer, changed) = sync_channel(1);
        self.request(Request::Change(topology, answer))?;
        let ended = "the emulator has ended";
        Ok(changed.recv().map_err(|_| anyhow!(ended))??)
    }

    /// True while its thread runs.
    pub(super) fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    fn request(&self, request: Request) -> Result<()> {
        let sent = self.requests.send(request);
        sent.map_err(|_| anyhow!("the emulator has ended"))?;
        self.waker.wake().context("cannot wake the emulator")
    }

    /// Ends it.
    pub(super) fn end(&mut self) -> Result<()> {
        // It may have ended by itself: then the thread has the reason.
        let _ = self.request(Request::End);
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread
            .join()
            .map_err(|_| anyhow!("the emulator panicked"))?
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // A caller that wants its error has called `end`.
        let _ = self.end();
    }
}

/// The state of the thread.
struct Carrier {
    network: Network,
    hosts: Vec<HostId>,
    devices: Vec<File>,
    /// Devices that may have a packet, and whether each is in the list.
    readable: Vec<usize>,
    is_readable: Vec<bool>,
    poll: Poll,
    timer: TimerFd,
    /// When the timer goes off.
    armed: Option<Moment>,
    /// The monotonic clock at the network's start.
    epoch: Duration,
    lateness: Lateness,
    late_sum: Duration,
    late_most: Duration,
}

impl Carrier {
    fn new(topology: Topology, seed: u64, devices: Vec<File>, poll: Poll) -> Result<Carrier> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context("cannot make a timer")?;
        let registry = poll.registry();
        for (number, device) in devices.iter().enumerate() {
            let fd = device.as_raw_fd();
            registry
                .register(&mut SourceFd(&fd), Token(number), Interest::READABLE)
                .context("cannot wait for a device")?;
        }
        let fd = timer.as_fd().as_raw_fd();
        registry
            .register(&mut SourceFd(&fd), TIMER, Interest::READABLE)
            .context("cannot wait for a timer")?;
        Ok(Carrier {
            hosts: topology.hosts().collect(),
            network: Network::new(topology, seed),
            // All devices, as packets may have arrived before they were registered.
            readable: (0..devices.len()).collect(),
            is_readable: vec![true; devices.len()],
            devices,
            poll,
            timer,
            armed: None,
            epoch: monotonic()?,
            lateness: Lateness::default(),
            late_sum: Duration::ZERO,
            late_most: Duration::ZERO,
        })
    }

    fn run(mut self, inbox: &Receiver<Request>) -> Result<()> {
        let mut events = Events::with_capacity(256);
        // Where that is forbidden the testbed works as well, and is late on a busy machine.
        self.lateness.is_realtime = priority::raise().is_ok();
        loop {
            self.deliver_due()?;
            self.read_devices()?;
            let timeout = match self.readable.is_empty() {
                true => self.arm()?,
                false => Some(Duration::ZERO),
            };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).context("cannot wait for packets");
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    TIMER => {}
                    WAKE => {
                        for request in inbox.try_iter() {
                            match request {
                                Request::End => return Ok(()),
                                // The one that asked may have given up.
                                Request::Report(answer) => drop(answer.try_send(self.snapshot()?)),
                                Request::Change(topology, answer) => {
                                    let _ = answer.try_send(self.network.change(topology));
                                }
                            }
                        }
                    }
                    Token(number) => self.note_readable(number),
                }
            }
        }
    }

    fn note_readable(&mut self, number: usize) {
        if let Some(is_readable) = self.is_readable.get_mut(number)
            && !std::mem::replace(is_readable, true)
        {
            self.readable.push(number);
        }
    }

    /// Reads up to [`BURST`] packets of each device that may have some.
    fn read_devices(&mut self) -> Result<()> {
        let mut packet = [0; MAX_PACKET + 1];
        let readable = std::mem::take(&mut self.readable);
        for number in readable {
            let mut is_empty = false;
            for _ in 0..BURST {
                let Some(mut device) = self.devices.get(number) else {
                    break;
                };
                match device.read(&mut packet) {
                    Ok(length) => {
                        self.deliver_due()?;
                        let now = self.now()?;
                        // A packet that does not arrive is counted by the network.
                        let _ = self
                            .network
                            .send(now, self.hosts[number], &packet[..length]);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        is_empty = true;
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error).context("cannot read from a device"),
                }
            }
            match is_empty {
                true => self.is_readable[number] = false,
                false => self.readable.push(number),
            }
        }
        Ok(())
    }

    /// Writes every packet that is due.
    fn deliver_due(&mut self) -> Result<()> {
        let now = self.now()?;
        while let Some(delivery) = self.network.deliver(now) {
            let late = now.since(delivery.at);
            self.late_sum += late;
            self.late_most = self.late_most.max(late);
            self.lateness.late_packets += u64::from(late > LATE);
            let Some(mut device) = self.devices.get(delivery.to.index()) else {
                continue;
            };
            match device.write(delivery.packet) {
                Ok(_) => {}
                // No memory for it, or its checksum is wrong: as on a real network, it is dropped.
                Err(error) if is_one_packet(&error) => self.lateness.refused += 1,
                Err(error) => return Err(error).context("cannot write to a device"),
            }
        }
        Ok(())
    }

    /// Sets the timer to the next packet's time. The result is how long to wait beside it.
    fn arm(&mut self) -> Result<Option<Duration>> {
        let Some(due) = self.network.next_due() else {
            return Ok(None);
        };
        if due <= self.now()? {
            return Ok(Some(Duration::ZERO));
        }
        if self.armed != Some(due) {
            let at = self.epoch + Duration::from_nanos(due.nanos());
            self.timer
                .set(
                    Expiration::OneShot(TimeSpec::from_duration(at)),
                    TimerSetTimeFlags::TFD_TIMER_ABSTIME,
                )
                .context("cannot set the timer")?;
            self.armed = Some(due);
        }
        Ok(None)
    }

    fn now(&self) -> Result<Moment> {
        Ok(Moment::after_start(monotonic()?.saturating_sub(self.epoch)))
    }

    fn snapshot(&self) -> Result<Snapshot> {
        let cpu = clock_gettime(Clock::CLOCK_THREAD_CPUTIME_ID).context("cannot read a clock")?;
        let totals = self.network.totals();
        let count = totals.delivered.max(1) as f64;
        Ok(Snapshot {
            totals,
            links: self.network.counters().map(|(_, link)| link).collect(),
            lateness: Lateness {
                mean: self.late_sum.as_secs_f64() / count,
                most: self.late_most.as_secs_f64(),
                ..self.lateness
            },
            cpu: Duration::from(cpu),
        })
    }
}

/// An error of one packet, not of the device.
fn is_one_packet(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::EINVAL | libc::ENOBUFS | libc::ENOMEM | libc::EIO)
    )
}

fn monotonic() -> Result<Duration> {
    let now = clock_gettime(Clock::CLOCK_MONOTONIC).context("cannot read the clock")?;
    Ok(Duration::from(now))
}
