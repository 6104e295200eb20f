//! The plot of idle relays (Yang and Li 2015, Figure 1) and of their bandwidths.

use std::fmt::Write as _;

use weft_plot::{Figure, Group, Kind, Look, Panel, Series, Value};
use weft_stats::Spread;

use super::{Report, SLOW};
use crate::csv::{known, spread};
use crate::over::{value, whiskers};

/// Section III-A's text on 200,000 circuits; the other bars are only in its picture.
pub mod paper {
    /// Circuits.
    pub const CIRCUITS: u64 = 200_000;
    /// Share of relays that are idle, percent.
    pub const IDLE_PERCENT: f64 = 25.6;
    /// Share of idle relays below 100 KiB/s, percent.
    pub const SLOW_PERCENT_OF_IDLE: f64 = 97.7;
    /// Share of relays below 100 KiB/s that are idle, percent.
    pub const IDLE_PERCENT_OF_SLOW: f64 = 64.6;
    /// Idle relays.
    pub const IDLE: u64 = 1811;
    /// Relays below 100 KiB/s.
    pub const SLOW: u64 = 2740;
}

/// Classes of bandwidth, by their lower ends, bytes per second.
const CLASSES: [(u64, &str); 6] = [
    (0, "below\n10 KiB/s"),
    (10 * 1024, "10 to\n50 KiB/s"),
    (50 * 1024, "50 to\n100 KiB/s"),
    (SLOW, "100 to\n500 KiB/s"),
    (500 * 1024, "500 KiB/s to\n1 MiB/s"),
    (1024 * 1024, "1 MiB/s\nand more"),
];

impl Report {
    /// Figure 1 beside the paper's values, and the idle relays' bandwidths.
    pub fn figure(&self) -> Figure {
        let labels = self.points.iter().map(|point| thousands(point.circuits));
        let groups = (0..).zip(labels).map(|(at, label)| Group {
            at: f64::from(at),
            label,
        });
        let of = |name: &str, look: Look, spread: &dyn Fn(usize) -> Option<Value>| Series {
            name: name.to_owned(),
            look,
            values: (0..self.points.len()).map(spread).collect(),
        };
        let relays = self.relays as f64;
        let counted = of("simulated", Look::number(0), &|at| {
            Some(value(self.points.get(at)?.idle_percent))
        });
        let formula = of("formula", Look::number(2), &|at| {
            Some(Value::exact(self.points.get(at)?.expected / relays * 100.0))
        });
        let slow = of("simulated", Look::number(0), &|at| {
            Some(value(self.points.get(at)?.idle_percent_of_slow?))
        });
        let of_paper = |percent: f64| {
            of("paper, text", Look::grey(), &move |at| {
                let point = self.points.get(at)?;
                (point.circuits == paper::CIRCUITS).then_some(Value::exact(percent))
            })
        };
        let panel = |title: &str, x_label: &str, y_label: &str, groups, series| {
            Panel::of_values(Kind::Bars, title, x_label, y_label, groups, series)
        };
        let groups: Vec<Group> = groups.collect();
        let circuits = "concurrent circuits";
        let most = self.points.last().map_or(0, |point| point.circuits);
        Figure {
            title: "Relays that circuits leave idle (Yang and Li 2015, Figure 1)".to_owned(),
            subtitle: format!(
                "Consensus of {}: {} relays, {} of them below 100 KiB/s",
                self.valid_after, self.relays, self.slow_relays
            ),
            panels: vec![
                panel(
                    "Idle relays",
                    circuits,
                    "% of all relays",
                    groups.clone(),
                    vec![counted, formula, of_paper(paper::IDLE_PERCENT)],
                ),
                panel(
                    "Idle relays below 100 KiB/s",
                    circuits,
                    "% of the relays below 100 KiB/s",
                    groups,
                    vec![slow, of_paper(paper::IDLE_PERCENT_OF_SLOW)],
                ),
                self.classes(panel(
                    &format!("Bandwidths of idle relays, {} circuits", thousands(most)),
                    "",
                    "relays",
                    Vec::new(),
                    Vec::new(),
                )),
            ],
            columns: 1,
            footer: vec![
                "Means over the repetitions. Formula: sum of (1 - p)^n over all relays.".to_owned(),
                "Yang and Li used a consensus of 2014 or 2015, which they do not name.".to_owned(),
            ],
            whiskers: Some(whiskers(1)),
            same_scale: false,
            legend: true,
        }
    }

    fn classes(&self, panel: Panel) -> Panel {
        let ends = CLASSES
            .iter()
            .skip(1)
            .map(|(low, _)| *low)
            .chain([u64::MAX]);
        let counts = CLASSES.iter().zip(ends).map(|((low, _), end)| {
            let all = self.idle_bandwidths.iter();
            all.filter(|one| (*low..end).contains(one)).count() as f64
        });
        let values = counts.map(|count| Some(Value::exact(count)));
        let groups = (0..).zip(&CLASSES).map(|(at, (_, label))| Group {
            at: f64::from(at),
            label: (*label).to_owned(),
        });
        Panel {
            groups: groups.collect(),
            series: vec![Series {
                name: "simulated".to_owned(),
                look: Look::number(0),
                values: values.collect(),
            }],
            ..panel
        }
    }

    /// A line for each number of circuits.
    pub fn csv(&self) -> String {
        let mut text = "circuits,idle_mean,idle_stddev,idle_ci95,idle_expected,idle_percent,slow_percent_of_idle,idle_percent_of_slow,idle_bandwidth_percent\n".to_owned();
        let mean = |spread: Option<Spread>| known(spread.map(|spread| spread.mean));
        for point in &self.points {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{}",
                point.circuits,
                spread(&point.idle),
                point.expected,
                point.idle_percent.mean,
                mean(point.slow_percent_of_idle),
                mean(point.idle_percent_of_slow),
                point.idle_bandwidth_percent.mean,
            );
        }
        text
    }

    /// The idle relays' bandwidths, a line each.
    pub fn bandwidths_csv(&self) -> String {
        let mut text = "bytes_per_second\n".to_owned();
        for bandwidth in &self.idle_bandwidths {
            let _ = writeln!(text, "{bandwidth}");
        }
        text
    }
}

/// `200,000`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{IdleOptions, simulate};
    use super::*;
    use crate::testing::mixed;

    #[test]
    fn the_figure_and_the_tables_are_whole() {
        let options = IdleOptions {
            circuits: vec![1000, paper::CIRCUITS],
            repetitions: 2,
            seed: 1,
            any_speed: false,
            threads: 1,
        };
        let report = simulate(&mixed(400), &options, || ()).expect("circuits");
        let svg = report.figure().svg().expect("a plot");
        for words in ["200,000", "25.6", "64.6", "formula", "1 MiB/s"] {
            assert!(svg.contains(words), "{words}");
        }
        assert_eq!(report.csv().lines().count(), 3);
        let lines = report.bandwidths_csv().lines().count();
        assert_eq!(lines, report.idle_bandwidths.len() + 1);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(200_000), "200,000");
    }
}
