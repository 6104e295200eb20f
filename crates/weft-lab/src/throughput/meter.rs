//! The traffic that the target reports, every 500 ms, by its MetricsPort: a number that C tor and Weft
//! give under the same name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use weft_testnet::metrics_port;
use weft_testnet::process::Usage;

use super::sustained::Sample;

/// Interval between samples (Engler and Goldberg 2021, 5.3.1).
pub const INTERVAL: Duration = Duration::from_millis(500);

/// Readings after the end. The first may lack what a thread of Weft has not reported yet, as it does so every
/// 250 ms.
const AFTER: usize = 2;

/// A thread that reads the counters until it is stopped.
#[derive(Debug)]
pub(super) struct Meter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Sample>>>>,
}

impl Meter {
    /// Starts reading, the first time at `zero`, from which samples count their time. `pid` is the target's process.
    pub(super) fn start(metrics: SocketAddr, pid: Option<u32>, zero: Instant) -> Result<Meter> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("meter".into())
            .spawn(move || {
                let mut samples = Vec::new();
                let mut next = zero;
                let mut after = 0;
                let mut work = Work::new(pid);
                while after < AFTER {
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                    // Before the reading, which is then after the end.
                    after += usize::from(stopped.load(Ordering::SeqCst));
                    let [read, written] = traffic(metrics)?;
                    samples.push(Sample {
                        at_s: zero.elapsed().as_secs_f64(),
                        read,
                        written,
                        busy: work.busiest(),
                    });
                    next += INTERVAL;
                }
                Ok(samples)
            })
            .context("starting a thread that reads the target's traffic")?;
        Ok(Meter {
            stop,
            thread: Some(thread),
        })
    }

    /// Everything that was read, until all that was moved before is in it.
    pub(super) fn end(mut self) -> Result<Vec<Sample>> {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().context("a meter ends once")?;
        thread
            .join()
            .map_err(|_| anyhow!("the thread that reads the target's traffic panicked"))?
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Processor time of the target's threads, from one reading to the next.
struct Work {
    pid: Option<u32>,
    last: Option<(Instant, Usage)>,
}

impl Work {
    fn new(pid: Option<u32>) -> Work {
        Work { pid, last: None }
    }

    /// The share of the time since the last call that the busiest thread worked; `None` at the first.
    fn busiest(&mut self) -> Option<f64> {
        let usage = Usage::of(self.pid?).ok()?;
        let now = Instant::now();
        let (then, before) = self.last.replace((now, usage.clone()))?;
        let threads = usage.since(&before).threads;
        let busiest = threads.iter().map(|thread| thread.cpu).max()?;
        Some(busiest.as_secs_f64() / now.duration_since(then).as_secs_f64().max(1e-9))
    }
}

/// Bytes that the relay has read and written.
pub(super) fn traffic(metrics: SocketAddr) -> Result<[u64; 2]> {
    let text = metrics_port::read(metrics)
        .with_context(|| format!("reading the target's MetricsPort {metrics}"))?;
    counters(&text).with_context(|| {
        format!("the target's MetricsPort {metrics} has no tor_relay_traffic_bytes")
    })
}

/// The two counters in Prometheus' text.
fn counters(text: &str) -> Option<[u64; 2]> {
    let counter = |direction: &str| {
        let name = format!("tor_relay_traffic_bytes{{direction=\"{direction}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        line.trim().parse().ok()
    };
    Some([counter("read")?, counter("written")?])
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    const TEXT: &str = "# TYPE tor_relay_traffic_bytes counter\n\
        tor_relay_traffic_bytes{direction=\"read\"} 120\n\
        tor_relay_traffic_bytes{direction=\"written\"} 99\n";

    #[test]
    fn both_counters_are_found_or_nothing_is() {
        assert_eq!(counters(TEXT), Some([120, 99]));
        assert_eq!(
            counters("tor_relay_traffic_bytes{direction=\"read\"} 120\n"),
            None
        );
        assert_eq!(counters(&TEXT.replace("99", "many")), None);
    }

    /// A MetricsPort that answers so often with this, and leaves connections open as C tor does.
    fn port(answers: usize, head: &'static str) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = thread::spawn(move || {
            let mut open = Vec::new();
            for _ in 0..answers {
                let (mut client, _) = listener.accept().expect("a client");
                let mut request = [0; 256];
                let _ = client.read(&mut request).expect("a request");
                let length = TEXT.len();
                let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{TEXT}");
                let _ = client.write_all(answer.as_bytes());
                open.push(client);
            }
        });
        (address, serving)
    }

    #[test]
    fn a_meter_reads_at_the_start_and_after_the_end() {
        let (address, serving) = port(1 + AFTER, "HTTP/1.0 200 OK");
        let samples = Meter::start(address, None, Instant::now())
            .and_then(Meter::end)
            .expect("samples");
        let read = samples.len();
        assert!((AFTER..=1 + AFTER).contains(&read), "{samples:?}");
        assert!(
            samples
                .iter()
                .all(|sample| (sample.read, sample.written) == (120, 99))
        );
        if read == AFTER {
            // It was stopped before its first reading.
            traffic(address).expect("the other answer");
        }
        serving.join().expect("the port ends");
    }

    #[test]
    fn a_refusal_is_an_error() {
        let (address, serving) = port(1, "HTTP/1.0 403 Forbidden");
        let error = traffic(address).expect_err("refused");
        assert!(format!("{error:#}").contains("403"), "{error:#}");
        serving.join().expect("the port ends");
    }
}
