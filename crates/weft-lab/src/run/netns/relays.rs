//! Samples relays over time, by their MetricsPorts.
//!
//! A node gives its MetricsPort new numbers once a second, so the numbers of an interval belong to
//! one that begins and ends up to a second earlier.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use weft_cell::CELL_LEN;
use weft_testnet::metrics_port::{read, sum, values};
use weft_testnet::net::{Host, Testbed};
use weft_testnet::nodes::{AUTHORITY, Nodes};
use weft_virtual::results::RelayResults;

/// The MetricsPort of a relay, on its host.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9_035);

/// Time after which a MetricsPort has the numbers of all that its node has done by now: threads
/// report four times a second, and the port gets new numbers once a second.
const SETTLED: Duration = Duration::from_millis(1_500);

/// Lines of a relay that is sampled.
pub(super) fn metrics_lines() -> Vec<String> {
    vec![
        format!("MetricsPort {METRICS}"),
        format!("MetricsPortPolicy accept {}", METRICS.ip()),
    ]
}

/// Counters of a relay since its start.
#[derive(Clone, Debug, Default)]
struct Counters {
    written: f64,
    queued: f64,
    cells: f64,
    circuits: f64,
    /// None: it states none.
    weight: Option<f64>,
    /// Processor seconds of each connection thread.
    cpu: Vec<f64>,
}

impl Counters {
    fn of(text: &str) -> Counters {
        let written = values(text, "weft_thread_bytes_total")
            .filter(|(labels, _)| labels.contains("direction=\"written\""));
        Counters {
            written: written.map(|(_, bytes)| bytes).sum(),
            queued: sum(text, "weft_thread_queued_bytes"),
            cells: sum(text, "weft_thread_scheduled_cells_total"),
            circuits: sum(text, "weft_onionskins_answered_total"),
            weight: values(text, "weft_abra_weight")
                .next()
                .map(|(_, weight)| weight),
            cpu: values(text, "weft_thread_cpu_seconds_total")
                .map(|(_, seconds)| seconds)
                .collect(),
        }
    }
}

/// A relay that is sampled.
struct Sampled {
    /// Where it is; none: on this machine as it is.
    host: Option<Host>,
    first: Counters,
    last: Counters,
    results: RelayResults,
}

impl Sampled {
    fn start(host: Option<Host>, name: String) -> Result<Sampled> {
        let mut sampled = Sampled {
            host,
            last: Counters::default(),
            first: Counters::default(),
            results: RelayResults {
                name,
                ..RelayResults::default()
            },
        };
        sampled.first = sampled.read()?;
        sampled.last = sampled.first.clone();
        Ok(sampled)
    }

    fn read(&self) -> Result<Counters> {
        let text = match &self.host {
            Some(host) => host.enter(|| read(METRICS))?,
            None => read(METRICS),
        };
        let name = &self.results.name;
        let text = text.with_context(|| format!("reading the MetricsPort of {name}"))?;
        Ok(Counters::of(&text))
    }

    fn sample(&mut self) -> Result<()> {
        let now = self.read()?;
        self.results
            .written
            .push((now.written - self.last.written) as u64);
        self.results.queued.push(now.queued as u64);
        self.results.weights.extend(now.weight);
        self.last = now;
        Ok(())
    }
}

/// All relays.
pub(in super::super) struct Sampler {
    relays: Vec<Sampled>,
    interval: Duration,
    samples: u32,
}

impl Sampler {
    /// Reads all of them for the first time. `names` has the host of each nickname.
    ///
    /// # Errors
    ///
    /// One does not answer.
    pub(super) fn start(
        nodes: &Nodes,
        testbed: &Testbed,
        names: &BTreeMap<String, String>,
        interval: Duration,
    ) -> Result<Sampler> {
        let nicknames = nodes.relays().iter().map(|relay| relay.node().nickname());
        let relays = nicknames
            .filter(|nickname| *nickname != AUTHORITY)
            .map(|nickname| {
                let name = names.get(nickname).context("a relay without a host")?;
                Sampled::start(Some(testbed.host(name)?.clone()), name.clone())
            });
        Ok(Sampler {
            relays: relays.collect::<Result<_>>()?,
            interval,
            samples: 0,
        })
    }

    /// Reads the relay of this host, whose name this is, for the first time.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub(in super::super) fn here(name: &str, interval: Duration) -> Result<Sampler> {
        Ok(Sampler {
            relays: vec![Sampled::start(None, name.to_owned())?],
            interval,
            samples: 0,
        })
    }

    /// Time until the next interval is over.
    pub(in super::super) fn until_next(&self, elapsed: Duration) -> Duration {
        let next = self.interval.saturating_mul(self.samples + 1);
        next.saturating_sub(elapsed)
    }

    /// Notes the intervals that are over.
    ///
    /// # Errors
    ///
    /// A relay does not answer.
    pub(in super::super) fn sample(&mut self, elapsed: Duration) -> Result<()> {
        while self.interval.saturating_mul(self.samples + 1) <= elapsed {
            self.samples += 1;
            self.relays.iter_mut().try_for_each(Sampled::sample)?;
        }
        Ok(())
    }

    /// Results of all relays, and the bytes of cells that they wrote to links.
    ///
    /// # Errors
    ///
    /// One does not answer.
    pub(in super::super) fn finish(self, elapsed: Duration) -> Result<(Vec<RelayResults>, u64)> {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        // Totals are those of the end, not of a second before it.
        thread::sleep(SETTLED);
        let mut cells = 0.0;
        let relays = self.relays.into_iter().map(|relay| {
            let now = relay.read()?;
            cells += now.cells - relay.first.cells;
            let cpu = now.cpu.iter().zip(&relay.first.cpu);
            Ok(RelayResults {
                busy: cpu.map(|(now, first)| now - first).fold(0.0, f64::max) / seconds,
                circuits: (now.circuits - relay.first.circuits) as u64,
                ..relay.results
            })
        });
        let relays = relays.collect::<Result<Vec<_>>>()?;
        Ok((relays, (cells * CELL_LEN as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_told_from_bytes_read() {
        let text = "weft_thread_bytes_total{thread=\"0\",direction=\"read\"} 5\n\
            weft_thread_bytes_total{thread=\"0\",direction=\"written\"} 7\n\
            weft_thread_bytes_total{thread=\"1\",direction=\"written\"} 1\n\
            weft_thread_cpu_seconds_total{thread=\"0\"} 0.5\n\
            weft_thread_cpu_seconds_total{thread=\"1\"} 2.5\n";
        let counters = Counters::of(text);
        assert_eq!(counters.written, 8.0);
        assert_eq!(counters.cpu, [0.5, 2.5]);
        assert_eq!(counters.circuits, 0.0);
    }
}
