//! Counters of a node's connection threads, as its MetricsPort has them: how many cells each step handles at once.
//!
//! A node gives its MetricsPort new numbers once a second, so a difference of two readings is of a time that begins
//! and ends up to a second before the measured one: good for ratios, in which only traffic counts, and for nothing else.

use std::iter::Sum;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde::Serialize;
use weft_testnet::metrics_port::{read, sum};

/// Counters, or what they grew by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Turns of the threads' loops.
    turns: f64,
    /// Times that a link's socket gave bytes.
    reads: f64,
    /// Relay cells that came.
    came: f64,
    /// Runs of the scheduler.
    runs: f64,
    /// Cells that these chose.
    chosen: f64,
    /// Times that a link's socket took bytes.
    writes: f64,
}

/// Mean number of cells that each step handles at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stages {
    /// Relay cells that one read of a link's socket brings; none: nothing came.
    pub cells_per_read: Option<f64>,
    /// Cells that one run of the scheduler chooses.
    pub cells_per_run: Option<f64>,
    /// Cells that are written to a link's socket at once.
    pub cells_per_write: Option<f64>,
    /// Cells that came and cells that were chosen, the greater of the two, for each turn of a thread's loop.
    pub cells_per_turn: Option<f64>,
}

impl Counted {
    /// The counters of the node with this MetricsPort.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub(super) fn read(metrics: SocketAddr) -> Result<Counted> {
        let text = read(metrics).with_context(|| format!("reading the MetricsPort {metrics}"))?;
        Ok(Counted::of(&text))
    }

    fn of(text: &str) -> Counted {
        let of = |name: &str| sum(text, &format!("weft_thread_{name}_total"));
        Counted {
            turns: of("turns"),
            reads: of("link_reads"),
            came: of("cells"),
            runs: of("scheduler_runs"),
            chosen: of("scheduled_cells"),
            writes: of("link_writes"),
        }
    }

    /// Increase since `before`.
    pub(super) fn since(self, before: Counted) -> Counted {
        Counted {
            turns: self.turns - before.turns,
            reads: self.reads - before.reads,
            came: self.came - before.came,
            runs: self.runs - before.runs,
            chosen: self.chosen - before.chosen,
            writes: self.writes - before.writes,
        }
    }

    /// None: nothing was counted.
    pub(super) fn stages(self) -> Option<Stages> {
        let by = |cells: f64, times: f64| (cells > 0.0 && times > 0.0).then(|| cells / times);
        (self.came > 0.0 || self.chosen > 0.0).then(|| Stages {
            cells_per_read: by(self.came, self.reads),
            cells_per_run: by(self.chosen, self.runs),
            cells_per_write: by(self.chosen, self.writes),
            cells_per_turn: by(self.came.max(self.chosen), self.turns),
        })
    }
}

impl Sum for Counted {
    fn sum<I: Iterator<Item = Counted>>(all: I) -> Counted {
        all.fold(Counted::default(), |sum, one| Counted {
            turns: sum.turns + one.turns,
            reads: sum.reads + one.reads,
            came: sum.came + one.came,
            runs: sum.runs + one.runs,
            chosen: sum.chosen + one.chosen,
            writes: sum.writes + one.writes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "weft_thread_turns_total{thread=\"0\"} 10\n\
        weft_thread_cells_total{thread=\"0\",result=\"relayed\"} 100\n\
        weft_thread_link_reads_total{thread=\"0\"} 5\n\
        weft_thread_scheduler_runs_total{thread=\"0\"} 4\n\
        weft_thread_scheduled_cells_total{thread=\"0\"} 100\n\
        weft_thread_link_writes_total{thread=\"0\"} 4\n";
    const AFTER: &str = "weft_thread_turns_total{thread=\"0\"} 20\n\
        weft_thread_turns_total{thread=\"1\"} 30\n\
        weft_thread_cells_total{thread=\"0\",result=\"relayed\"} 500\n\
        weft_thread_cells_total{thread=\"0\",result=\"recognized\"} 100\n\
        weft_thread_link_reads_total{thread=\"0\"} 30\n\
        weft_thread_scheduler_runs_total{thread=\"0\"} 14\n\
        weft_thread_scheduled_cells_total{thread=\"0\"} 500\n\
        weft_thread_link_writes_total{thread=\"0\"} 24\n";

    #[test]
    fn differences_of_counters_are_ratios() {
        let grown = Counted::of(AFTER).since(Counted::of(BEFORE));
        let stages = grown.stages().expect("cells");
        let expected = Stages {
            cells_per_read: Some(500.0 / 25.0),
            cells_per_run: Some(400.0 / 10.0),
            cells_per_write: Some(400.0 / 20.0),
            cells_per_turn: Some(500.0 / 40.0),
        };
        assert_eq!(stages, expected);
        let twice: Counted = [grown, grown].into_iter().sum();
        assert_eq!(twice.stages(), Some(expected));
    }

    #[test]
    fn an_idle_node_has_no_stages() {
        let same = Counted::of(BEFORE).since(Counted::of(BEFORE));
        assert_eq!(same.stages(), None);
        assert_eq!(Counted::of("").stages(), None);
    }
}
