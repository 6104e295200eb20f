//! Tables of the cells, for the terminal and the report.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use weft_plot::Folder;

use super::figures;
use super::results::Results;
use crate::experiment::{Report, json};
use crate::report::{Metric, Table, Values, table_text};

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in self.tables() {
            writeln!(f, "{}", table_text(&table))?;
        }
        for note in self.notes() {
            writeln!(f, "{note}\n")?;
        }
        Ok(())
    }
}

impl Report for Results {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn is_passed(&self) -> bool {
        self.is_complete() == Some(true)
    }

    fn is_complete(&self) -> Option<bool> {
        let is_whole = self.missing.is_empty() && self.runs.iter().all(|run| run.failure.is_none());
        Some(self.finished && is_whole)
    }

    fn tables(&self) -> Vec<Table> {
        let labels = ["congestion control", "scenario", "traffic", "arm"];
        let metrics = [
            Metric::more("goodput", "Mbit/s"),
            Metric::less("time to last byte", "ms"),
            Metric::less("round trip", "ms"),
            Metric::less("lost against NoDropping", "%"),
            Metric::less("CPU of relays", "s/GB"),
            Metric::less("memory of relays", "MB"),
            Metric::less("sockets of relays", ""),
        ];
        let mut cells = Table::new("Cells", labels, metrics).note(
            "Goodput is the payload of a user while it has a stream open, over users and repetitions; time to last \
             byte is of streams that completed.",
        );
        for cell in &self.cells {
            let switch = if cell.congestion_control { "on" } else { "off" };
            cells.push(
                [
                    switch,
                    cell.scenario.name(),
                    cell.traffic.name(),
                    cell.arm.name(),
                ],
                [
                    cell.goodput_mbit.clone(),
                    cell.ttlb_ms.clone(),
                    cell.rtt_ms.clone(),
                    cell.lost_percent.clone(),
                    cell.cpu_s_per_gb.clone(),
                    cell.relays_rss_mb.clone(),
                    cell.relays_sockets.clone(),
                ],
            );
        }
        let mut builds = Table::new(
            "Build times of circuits",
            ["links", "arm", "congestion control"],
            [Metric::less("build time", "ms")],
        )
        .note("Circuits of three hops, one after another, without traffic.");
        for (key, times) in &self.builds {
            builds.push(key.split(' '), [Values::samples(times.iter().copied())]);
        }
        let tables = [cells, builds].into_iter();
        tables.filter(|table| !table.rows.is_empty()).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.remarks.clone();
        let late = self.runs.iter().filter_map(|run| run.late_packets_share);
        let late = late.fold(0.0, f64::max);
        if late > 0.01 {
            notes.push(format!(
                "In one run the testbed delivered {:.0} % of all packets over 0.5 ms late: this machine is too busy for \
                 its links, and numbers near their rates are the machine's.",
                late * 100.0
            ));
        }
        for run in &self.runs {
            if let Some(why) = &run.failure {
                notes.push(format!(
                    "Not measured: {} {} {}, repetition {}: {why}",
                    run.arm, run.scenario, run.traffic, run.repetition
                ));
            }
        }
        notes.extend(self.missing.iter().cloned());
        notes
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![
            ("testbed".into(), self.testbed.name().to_owned()),
            ("seconds of a cell".into(), self.seconds.to_string()),
            ("seconds of warm-up".into(), self.warm_up_s.to_string()),
        ];
        settings.extend(self.more_settings.iter().cloned());
        settings
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        Ok(vec![
            ("results.json", json(self)?),
            ("streams.jsonl", self.streams()?),
        ])
    }

    fn draw(&self, folder: &Folder) -> Result<Vec<PathBuf>> {
        figures::draw(self, folder)
    }

    fn caption(&self, plot: &str) -> String {
        figures::caption(plot).to_owned()
    }
}
