//! Results as tables for other programs.

use std::fmt::Write as _;

use super::{Results, Unit};
use crate::csv::quoted;

impl Results {
    /// A line for each repetition of each point.
    pub fn points_csv(&self) -> String {
        let mut text = "figure,document,series,at,repetition,percent\n".to_owned();
        for point in &self.points {
            for (repetition, percent) in point.percent.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "{},{},{},{},{repetition},{percent:.6}",
                    point.what.name(),
                    quoted(&point.document),
                    quoted(&point.series),
                    point.at
                );
            }
        }
        text
    }

    /// A line for each of the paper's values.
    pub fn comparison_csv(&self) -> String {
        let mut text =
            "figure,what,place,unit,paper_low,paper_high,ours_low,ours_high\n".to_owned();
        for one in self.comparisons() {
            let unit = match one.unit {
                Unit::Percent => "percent",
                Unit::Seconds => "s",
                Unit::Bytes => "bytes",
            };
            let _ = writeln!(
                text,
                "{},{},{},{unit},{},{},{},{}",
                one.figure,
                quoted(&one.what),
                one.place,
                one.paper.0,
                one.paper.1,
                one.ours.0,
                one.ours.1
            );
        }
        text
    }
}
