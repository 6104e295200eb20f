//! The heartbeat: a log line a few times a day about uptime, load and traffic.

use std::time::{Duration, Instant};

use weft_core::controller::RelayController;

/// When the next line is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    started: Instant,
    last: Instant,
}

impl Heartbeat {
    /// Begins to count.
    pub(super) fn new(now: Instant) -> Self {
        Heartbeat {
            started: now,
            last: now,
        }
    }

    /// True if a line is due.
    pub(super) fn due(&mut self, now: Instant, period: Duration) -> bool {
        let due = now.saturating_duration_since(self.last) >= period;
        if due {
            self.last = now;
        }
        due
    }

    /// The line.
    pub(super) fn line(
        &self,
        now: Instant,
        controller: &RelayController,
        configured: Option<u32>,
        threads: usize,
    ) -> String {
        let totals = controller.totals();
        let (links, halves) = controller.reports().fold((0u64, 0u64), |sum, report| {
            (
                sum.0 + u64::from(report.links),
                sum.1 + u64::from(report.halves),
            )
        });
        let load: Vec<String> = controller
            .reports()
            .map(|report| format!("{:.1}", report.bytes_per_second / 1e6))
            .collect();
        let place = if configured == Some(0) {
            "the main thread".to_owned()
        } else {
            format!("{threads} connection thread(s)")
        };
        format!(
            "Heartbeat: Weft's uptime is {}, with {links} links and {halves} circuit halves on \
             {place} (recent load {} MB/s). We've sent {:.2} GB and received {:.2} GB.",
            uptime(now.saturating_duration_since(self.started)),
            load.join(", "),
            gigabytes(totals.bytes_written),
            gigabytes(totals.bytes_read),
        )
    }

    /// More, for SIGUSR1.
    pub(super) fn details(controller: &RelayController) -> Vec<String> {
        let (totals, counts, dos) = (
            controller.totals(),
            controller.counts(),
            controller.dos_counts(),
        );
        vec![
            format!(
                "Connections: {} now; {} accepted, {} opened, {} refused because full.",
                controller.connections(),
                counts.accepted,
                counts.connected,
                counts.refused_full
            ),
            format!(
                "Circuits: {} onionskins, {} refused by overload; {} extended over open links, {} \
                 over new ones, {} not at all.",
                counts.onionskins,
                counts.onionskins_dropped,
                counts.extends_joined,
                counts.extends_waited,
                counts.extends_failed
            ),
            format!(
                "Cells: {} relayed, {} for us, {} dropped, {} scheduler runs; padding: {} \
                 received, {} sent.",
                totals.cells_relayed,
                totals.cells_recognized,
                totals.cells_dropped,
                totals.scheduler_runs,
                totals.padding_received,
                totals.padding_sent
            ),
            format!(
                "Circuits closed: {} by full queues, {} for memory, {} timed out, {} for breaking \
                 the protocol.",
                totals.queues_overflowed,
                totals.killed_for_memory,
                totals.timed_out,
                totals.protocol_errors
            ),
            format!(
                "Onion services: {} introduction circuits, {} introductions, {} rendezvous with {} cells; circuits \
                 padded: {}, with {} cells.",
                controller.introductions(),
                totals.intro.introduced,
                totals.rendezvous.joined,
                totals.rendezvous.cells,
                totals.circpad.started,
                totals.circpad.drops_sent
            ),
            format!(
                "DoS mitigation since startup: {} connections refused ({} concurrent, {} too \
                 fast; {} more were of relays), {} circuits refused, {} addresses marked for circuits, {} for queues.",
                counts.refused_dos,
                dos.connections_concurrent,
                dos.connections_too_fast,
                counts.exempted,
                counts.circuits_refused_dos,
                dos.addresses_marked,
                dos.addresses_marked_for_queues
            ),
        ]
    }
}

/// `3 days 2:05 hours`, as C tor.
fn uptime(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match days {
        0 => format!("{hours}:{minutes:02} hours"),
        1 => format!("1 day {hours}:{minutes:02} hours"),
        _ => format!("{days} days {hours}:{minutes:02} hours"),
    }
}

fn gigabytes(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let bytes = bytes as f64;
    bytes / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_reads_as_in_c_tor() {
        assert_eq!(uptime(Duration::from_secs(59)), "0:00 hours");
        assert_eq!(uptime(Duration::from_secs(7500)), "2:05 hours");
        assert_eq!(uptime(Duration::from_secs(90_000)), "1 day 1:00 hours");
        assert_eq!(uptime(Duration::from_secs(266_700)), "3 days 2:05 hours");
    }

    #[test]
    fn a_line_is_due_once_per_period() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        let period = Duration::from_secs(60);
        assert!(!heartbeat.due(start + Duration::from_secs(59), period));
        assert!(heartbeat.due(start + period, period));
        assert!(!heartbeat.due(start + period, period));
        assert!(heartbeat.due(start + 2 * period, period));
    }
}
