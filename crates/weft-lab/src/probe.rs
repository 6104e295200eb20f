//! `weft lab net probe`: whether a testbed does what its topology promises.
//!
//! One link after the other, each way: probes for the delay, numbered packets for the loss, more packets than the
//! link can carry for the rate. Then one bulk TCP stream over each link, all at once, for what the emulator
//! carries and what that costs.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use weft_model::links::{LinkSettings, MAX_PACKET, Topology};
use weft_plot::Style;
use weft_stats::bounds::{Bounds, SEED};
use weft_testnet::net::{self, Host, Lateness, Options, Testbed};

use crate::experiment::{Experiment, Format, Output, Place, Prepared, Progress, Report, Session};
use crate::machine::Machine;

/// Probes for the delay of each direction, and the time between two.
const PROBES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(2);
/// Duration of sending packets to measure a rate.
const RATE_TIME: Duration = Duration::from_millis(500);
/// Bytes of headers before those of a UDP packet.
const UDP_HEADERS: usize = 28;
/// The least delay that a rate is given to show itself, and what is waited for the last packet.
const MARGIN: Duration = Duration::from_millis(300);
const BULK_PORT: u16 = 4_999;
/// Packets by which a loss is measured.
const PACKETS: Bounds<u32> = Bounds::new(100, 100_000_000);
/// Seconds of bulk streams.
const SECONDS: Bounds<u32> = Bounds::new(1, 3600);

/// Starts a testbed and measures whether its links do what the topology promises.
///
/// Each way of each link: the delay (one way, by packets with a time), the loss (by numbered packets) and the
/// rate (by more packets than fit). Then one bulk TCP stream over each link at once, and the processor time of the
/// emulator. Links of switches are not measured on their own. A busy machine shows in the greatest
/// delays first.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A topology: a TOML file, or the name of a built-in one.
    topology: String,
    /// Seed of losses and jitter.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = SEED.parser())]
    seed: u64,
    /// Packets for the loss of each direction.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = PACKETS.parser())]
    packets: u32,
    /// Seconds of bulk streams.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = SECONDS.parser())]
    seconds: u32,
    /// Write the report to this new file instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Output at the end.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// Settings of the measurement.
#[derive(Debug)]
pub struct Probe {
    topology: Topology,
    seed: u64,
    packets: u32,
    bulk: Duration,
}

impl Experiment for Probe {
    const FOLDER: &'static str = "net-probe";
    type Args = Args;
    type Report = Results;

    fn prepare(args: &Args) -> Result<Prepared<Probe>> {
        let probe = Probe {
            topology: net::topology(&args.topology)?,
            seed: args.seed,
            packets: args.packets,
            bulk: Duration::from_secs(u64::from(args.seconds)),
        };
        let output = Output {
            place: Place::Report(args.out.clone()),
            format: args.format,
            style: Style::default(),
        };
        Ok(Prepared::Run(probe, output))
    }

    fn run(&self, session: &mut Session<'_>) -> Result<Results> {
        self.measure(session)
    }
}

/// Measurements of all links.
#[derive(Debug, Serialize)]
pub struct Results {
    topology: String,
    seed: u64,
    started_at: String,
    machine: Machine,
    finished: bool,
    directions: Vec<Measured>,
    bulk: Option<Bulk>,
    /// Of the emulator, over the whole run.
    lateness: Lateness,
}

/// One direction of a link, promised and measured.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    from: String,
    to: String,
    delay_ms: f64,
    jitter_ms: f64,
    least_ms: f64,
    median_ms: f64,
    p99_ms: f64,
    loss_percent: f64,
    packets: u32,
    lost: u32,
    rate_mbit: Option<f64>,
    measured_mbit: f64,
}

/// One TCP stream over each link, all at once.
#[derive(Clone, Debug, Serialize)]
struct Bulk {
    streams: usize,
    seconds: f64,
    /// Payload, of all streams.
    goodput_mbit: f64,
    /// Of the slowest and the fastest stream.
    least_mbit: f64,
    most_mbit: f64,
    packets_per_second: f64,
    /// Of one processor.
    emulator_cpu_percent: f64,
    late_packets: u64,
}

impl Probe {
    fn measure(&self, session: &mut Session<'_>) -> Result<Results> {
        let options = Options {
            name: Some(format!("probe-{}", std::process::id())),
            seed: self.seed,
        };
        let mut results = Results {
            topology: self.topology.name().to_owned(),
            seed: self.seed,
            started_at: session.started_at().to_owned(),
            machine: session.machine(),
            finished: false,
            directions: Vec::new(),
            bulk: None,
            lateness: Lateness::default(),
        };
        let testbed = Testbed::start(self.topology.clone(), &options)?;
        let links: Vec<(&Host, &Host, &[LinkSettings; 2])> = self
            .topology
            .links()
            .iter()
            .filter_map(|link| {
                let [first, second] = link.ends.map(|end| self.topology.as_host(end));
                let host = |host: weft_model::links::HostId| testbed.hosts().get(host.index());
                Some((host(first?)?, host(second?)?, &link.directions))
            })
            .collect();
        ensure!(
            !links.is_empty(),
            "no link of {} joins two hosts",
            self.topology.name()
        );
        let stop = session.stop();
        let steps = 2 * links.len() + 1;
        let directions = links.iter().flat_map(|&(first, second, [forth, back])| {
            [(first, second, forth), (second, first, back)]
        });
        for (number, (from, to, settings)) in directions.enumerate() {
            if stop.is_requested() {
                break;
            }
            session.progress(&Progress {
                done: number as f64 / steps as f64,
                step: format!("{} to {}", from.name(), to.name()),
                detail: String::new(),
            });
            results.directions.push(self.direction(from, to, settings)?);
        }
        if !stop.is_requested() {
            session.progress(&Progress {
                done: (steps - 1) as f64 / steps as f64,
                step: "a bulk stream over each link".to_owned(),
                detail: String::new(),
            });
            results.bulk = Some(self.bulk(&testbed, &links)?);
            results.finished = true;
        }
        results.lateness = testbed.snapshot()?.lateness;
        testbed.end()?;
        Ok(results)
    }

    fn direction(&self, from: &Host, to: &Host, settings: &LinkSettings) -> Result<Measured> {
        let [sender, receiver] = [from, to].map(udp);
        let (sender, receiver) = (sender?, receiver?);
        sender
            .connect(
                receiver
                    .local_addr()
                    .context("a socket without an address")?,
            )
            .context("cannot connect a UDP socket")?;
        let patience = settings.delay + settings.jitter + MARGIN;
        receiver
            .set_read_timeout(Some(patience))
            .context("cannot set a time limit")?;
        let mut delays = delays(&sender, &receiver)?;
        delays.sort_by(f64::total_cmp);
        let received = self.count(&sender, &receiver, settings)?;
        let rate = rate(&sender, &receiver, patience)?;
        let at = |part: f64| {
            let index = ((delays.len().saturating_sub(1)) as f64 * part).round() as usize;
            delays.get(index).copied().unwrap_or(f64::NAN) * 1e3
        };
        Ok(Measured {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            delay_ms: settings.delay.as_secs_f64() * 1e3,
            jitter_ms: settings.jitter.as_secs_f64() * 1e3,
            least_ms: at(0.0),
            median_ms: at(0.5),
            p99_ms: at(0.99),
            loss_percent: settings.loss.fraction() * 100.0,
            packets: self.packets,
            lost: self.packets - received.min(self.packets),
            rate_mbit: settings.rate.map(|rate| rate.bits() as f64 / 1e6),
            measured_mbit: rate / 1e6,
        })
    }

    /// Sends numbered packets at half the link's rate at most, and returns how many arrive.
    fn count(
        &self,
        sender: &UdpSocket,
        receiver: &UdpSocket,
        settings: &LinkSettings,
    ) -> Result<u32> {
        const LENGTH: usize = 36;
        let bits = ((LENGTH + UDP_HEADERS) * 8) as f64;
        let rate = settings
            .rate
            .map_or(f64::INFINITY, |rate| rate.bits() as f64);
        let per_second = (rate / bits / 2.0).min(40_000.0);
        thread::scope(|scope| {
            let sending = scope.spawn(|| -> Result<()> {
                let begun = Instant::now();
                let mut sent = 0;
                while sent < self.packets {
                    let due = (begun.elapsed().as_secs_f64() * per_second) as u32;
                    for number in sent..due.clamp(sent, self.packets) {
                        let mut packet = [0; LENGTH];
                        packet[..4].copy_from_slice(&number.to_be_bytes());
                        sender.send(&packet).context("cannot send")?;
                    }
                    sent = due.clamp(sent, self.packets);
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            let mut received = 0;
            let mut bytes = [0; MAX_PACKET];
            loop {
                match receiver.recv(&mut bytes) {
                    Ok(LENGTH) => received += 1,
                    Ok(_) => {}
                    Err(error) if is_timeout(error.kind()) => {
                        if sending.is_finished() {
                            break;
                        }
                    }
                    Err(error) => return Err(error).context("cannot receive"),
                }
            }
            finish(sending.join())?;
            Ok(received)
        })
    }

    fn bulk(
        &self,
        testbed: &Testbed,
        links: &[(&Host, &Host, &[LinkSettings; 2])],
    ) -> Result<Bulk> {
        let is_over = AtomicBool::new(false);
        let counts: Vec<AtomicU64> = links.iter().map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            // However this ends, the streams end.
            let _end = EndOnDrop(&is_over);
            for (number, ((sender, receiver, _), count)) in links.iter().zip(&counts).enumerate() {
                let port = BULK_PORT - u16::try_from(number % 1_000)?;
                let address = SocketAddr::from((receiver.address(), port));
                let listener = receiver.enter(|| TcpListener::bind(address))?;
                let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
                let stream = sender.enter(|| TcpStream::connect(address))?;
                let mut stream = stream.with_context(|| format!("cannot connect to {address}"))?;
                let (mut accepted, _) = listener.accept().context("cannot accept")?;
                let look = Some(Duration::from_millis(100));
                stream
                    .set_write_timeout(look)
                    .context("cannot set a time limit")?;
                accepted
                    .set_read_timeout(look)
                    .context("cannot set a time limit")?;
                let is_over = &is_over;
                scope.spawn(move || {
                    let bytes = [0; 64 << 10];
                    while !is_over.load(Ordering::SeqCst) {
                        match stream.write(&bytes) {
                            Err(error) if !is_timeout(error.kind()) => return,
                            _ => {}
                        }
                    }
                });
                scope.spawn(move || {
                    let mut bytes = vec![0; 64 << 10];
                    while !is_over.load(Ordering::SeqCst) {
                        match accepted.read(&mut bytes) {
                            Ok(0) => return,
                            Ok(length) => {
                                count.fetch_add(length as u64, Ordering::Relaxed);
                            }
                            Err(error) if is_timeout(error.kind()) => {}
                            Err(_) => return,
                        }
                    }
                });
            }
            // TCP's start is not measured.
            thread::sleep(Duration::from_secs(1));
            let look = || -> Result<_> {
                let counts: Vec<u64> = counts
                    .iter()
                    .map(|count| count.load(Ordering::Relaxed))
                    .collect();
                Ok((Instant::now(), counts, testbed.snapshot()?))
            };
            let (begun, before, at_start) = look()?;
            thread::sleep(self.bulk);
            let (ended, after, at_end) = look()?;
            let seconds = ended.duration_since(begun).as_secs_f64();
            let mbit: Vec<f64> = before
                .iter()
                .zip(&after)
                .map(|(before, after)| (after - before) as f64 * 8e-6 / seconds)
                .collect();
            let packets = at_end.totals.delivered - at_start.totals.delivered;
            let cpu = at_end.cpu.saturating_sub(at_start.cpu).as_secs_f64();
            Ok(Bulk {
                streams: links.len(),
                seconds,
                goodput_mbit: mbit.iter().sum(),
                least_mbit: mbit.iter().copied().fold(f64::INFINITY, f64::min),
                most_mbit: mbit.iter().copied().fold(0.0, f64::max),
                packets_per_second: packets as f64 / seconds,
                emulator_cpu_percent: 100.0 * cpu / seconds,
                late_packets: at_end.lateness.late_packets - at_start.lateness.late_packets,
            })
        })
    }
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Seconds that each probe takes from one host to the other.
fn delays(sender: &UdpSocket, receiver: &UdpSocket) -> Result<Vec<f64>> {
    let epoch = Instant::now();
    let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
    thread::scope(|scope| {
        let sending = scope.spawn(|| -> Result<()> {
            for _ in 0..PROBES {
                sender.send(&now().to_be_bytes()).context("cannot send")?;
                thread::sleep(PAUSE);
            }
            Ok(())
        });
        let mut delays = Vec::new();
        let mut bytes = [0; 64];
        loop {
            match receiver.recv(&mut bytes) {
                Ok(8) => {
                    let mut sent = [0; 8];
                    sent.copy_from_slice(&bytes[..8]);
                    let taken = now().saturating_sub(u64::from_be_bytes(sent));
                    delays.push(taken as f64 * 1e-9);
                    if delays.len() == PROBES as usize {
                        break;
                    }
                }
                Ok(_) => {}
                Err(error) if is_timeout(error.kind()) => {
                    if sending.is_finished() {
                        break;
                    }
                }
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
        finish(sending.join())?;
        ensure!(!delays.is_empty(), "no probe arrived");
        Ok(delays)
    })
}

/// Bits per second of IP packets that arrive while more are sent than fit. Where the link has no rate, this is
/// what the machine carries.
fn rate(sender: &UdpSocket, receiver: &UdpSocket, patience: Duration) -> Result<f64> {
    const LENGTH: usize = MAX_PACKET - UDP_HEADERS;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        let sending = scope.spawn(|| {
            let packet = [0; LENGTH];
            while !is_over.load(Ordering::SeqCst) {
                // The device may be full for a moment.
                let _ = sender.send(&packet);
            }
        });
        let mut bytes = [0; MAX_PACKET];
        let mut first = None;
        let mut last = Instant::now();
        let mut count: u64 = 0;
        loop {
            match receiver.recv(&mut bytes) {
                Ok(LENGTH) => {
                    last = Instant::now();
                    match first {
                        None => first = Some(last),
                        // The first one only begins the time.
                        Some(_) => count += 1,
                    }
                    if first.is_some_and(|first| last.duration_since(first) >= RATE_TIME) {
                        break;
                    }
                }
                Ok(_) => {}
                Err(error) if is_timeout(error.kind()) => break,
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
        is_over.store(true, Ordering::SeqCst);
        sending.join().ok().context("a sender panicked")?;
        // Receives the packets that are still in the queue and on the link.
        let until = Instant::now() + Duration::from_secs(10);
        while receiver.recv(&mut bytes).is_ok() && Instant::now() < until {}
        let seconds = first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
        ensure!(
            count > 0 && seconds > 0.0,
            "no packets arrived within {patience:?}"
        );
        Ok((count as usize * MAX_PACKET * 8) as f64 / seconds)
    })
}

fn udp(host: &Host) -> Result<UdpSocket> {
    let socket = host.enter(|| UdpSocket::bind((host.address(), 0)))?;
    let socket = socket.with_context(|| format!("cannot open a UDP socket in {}", host.name()))?;
    let sized = socket2::SockRef::from(&socket).set_recv_buffer_size(8 << 20);
    sized.context("cannot set a buffer's size")?;
    Ok(socket)
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn finish(result: thread::Result<Result<()>>) -> Result<()> {
    result.ok().context("a sender panicked")?
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.directions.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.finished
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |measured: &Measured| format!("{} to {}", measured.from, measured.to);
        let wide = self.directions.iter().map(|one| named(one).len()).max();
        let wide = wide.unwrap_or(0).max(4);
        writeln!(
            f,
            "{:wide$}  {:>28}  {:>22}  {:>18}",
            "link", "one-way delay, ms", "lost of packets", "rate, Mbit/s"
        )?;
        writeln!(
            f,
            "{:wide$}  {:>7} {:>6} {:>6} {:>6}  {:>8} {:>13}  {:>8} {:>9}",
            "", "promise", "least", "median", "p99", "promise", "measured", "promise", "measured"
        )?;
        for one in &self.directions {
            let rate = one
                .rate_mbit
                .map_or("-".to_owned(), |rate| format!("{rate:.1}"));
            let lost = 100.0 * f64::from(one.lost) / f64::from(one.packets.max(1));
            writeln!(
                f,
                "{:wide$}  {:>7.2} {:>6.2} {:>6.2} {:>6.2}  {:>6.3} % {:>5} {:>5.3} %  {:>8} {:>9.1}",
                named(one),
                one.delay_ms,
                one.least_ms,
                one.median_ms,
                one.p99_ms,
                one.loss_percent,
                one.lost,
                lost,
                rate,
                one.measured_mbit
            )?;
        }
        if let Some(bulk) = &self.bulk {
            writeln!(
                f,
                "\n{} bulk TCP streams at once, {:.1} s: {:.0} Mbit/s in all ({:.0} to {:.0} each), {:.0} packets/s, \
                 {:.0} % of one processor for the emulator.",
                bulk.streams,
                bulk.seconds,
                bulk.goodput_mbit,
                bulk.least_mbit,
                bulk.most_mbit,
                bulk.packets_per_second,
                bulk.emulator_cpu_percent
            )?;
        }
        write!(
            f,
            "Packets were delivered {:.3} ms late on average, {:.1} ms at most; {} over 0.5 ms late.",
            self.lateness.mean * 1e3,
            self.lateness.most * 1e3,
            self.lateness.late_packets
        )?;
        writeln!(f)
    }
}
