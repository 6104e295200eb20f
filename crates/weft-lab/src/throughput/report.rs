//! The results as a table for people.

use std::fmt;

use super::results::Results;
use weft_stats::Summary;

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Throughput experiment (Engler and Goldberg 2021, 5.2) at {}.",
            self.size_in_words()
        )?;
        writeln!(f, "{}, of what the target reads.\n", self.rule_in_words())?;
        writeln!(
            f,
            "{:<10} {:>4} | {:>22} | {:>14} | {:>16} | {:>16} | {:>9} {:>8} {:>7}",
            "target",
            "runs",
            "sustained Mbit/s",
            "goodput Mbit/s",
            "first byte, s",
            "last byte, s",
            "CPU s/GB",
            "busiest",
            "RSS MB"
        )?;
        for one in &self.summaries {
            writeln!(
                f,
                "{:<10} {:>4} | {:>22} | {:>14} | {:>16} | {:>16} | {:>9} {:>8} {:>7}",
                one.target.to_string(),
                self.of(one.target).count(),
                range(one.sustained_bits_per_s, 1e-6, 0),
                median(one.goodput_bits_per_s, 1e-6, 0),
                spread(one.first_byte_s),
                spread(one.last_byte_s),
                median(one.cpu_s_per_gb, 1.0, 2),
                format!("{} %", median(one.busiest_thread, 100.0, 0)),
                median(one.peak_rss_bytes, 1e-6, 0),
            )?;
        }
        writeln!(
            f,
            "\nThroughput: median of the runs and their range. Times: median of all streams, and the latest."
        )?;
        writeln!(f, "{}.", self.bottleneck_in_words())?;
        let failed = self.runs.iter().filter(|run| run.failure.is_some()).count();
        let planned = self.targets.len() * self.repetitions as usize;
        if failed > 0 {
            writeln!(
                f,
                "{failed} of {} runs failed; they count for nothing.",
                self.runs.len()
            )?;
        }
        if !self.finished {
            writeln!(
                f,
                "The experiment ended early: {} of {planned} runs were made.",
                self.runs.len()
            )?;
        }
        Ok(())
    }
}

fn median(summary: Option<Summary>, factor: f64, digits: usize) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |summary| format!("{:.digits$}", summary.median * factor),
    )
}

fn range(summary: Option<Summary>, factor: f64, digits: usize) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |Summary {
             median, min, max, ..
         }| {
            let [median, min, max] = [median, min, max].map(|number| number * factor);
            format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
        },
    )
}

fn spread(summary: Option<Summary>) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |summary| format!("{:.2}, {:.2}", summary.median, summary.max),
    )
}
