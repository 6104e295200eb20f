//! Every number of a run for other programs: `raw.jsonl` and `raw.csv`, one line for each.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::model::{Run, Values};

/// One number.
#[derive(Serialize)]
struct Line<'a> {
    table: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    metric: &'a str,
    unit: &'a str,
    /// From 1; none if this is a mean.
    sample: Option<usize>,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ci95: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<usize>,
}

fn lines(run: &Run) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for table in &run.tables {
        for row in &table.rows {
            for (metric, values) in table.metrics.iter().zip(&row.values) {
                let line = |sample, value, ci95, n| Line {
                    table: &table.title,
                    labels: table
                        .labels
                        .iter()
                        .map(String::as_str)
                        .zip(row.labels.iter().map(String::as_str))
                        .collect(),
                    metric: &metric.name,
                    unit: &metric.unit,
                    sample,
                    value,
                    ci95,
                    n,
                };
                match values {
                    Values::None => {}
                    Values::Samples(numbers) => {
                        let numbers = numbers.iter().enumerate();
                        lines.extend(
                            numbers.map(|(at, value)| line(Some(at + 1), *value, None, None)),
                        );
                    }
                    Values::Mean { mean, ci95, n } => {
                        lines.push(line(None, *mean, Some(*ci95), Some(*n)));
                    }
                }
            }
        }
    }
    lines
}

/// A JSON object on each line.
///
/// # Errors
///
/// A number has no form in JSON.
pub(crate) fn jsonl(run: &Run) -> Result<String> {
    let mut text = String::new();
    for line in lines(run) {
        text += &serde_json::to_string(&line).context("writing JSON")?;
        text.push('\n');
    }
    Ok(text)
}

/// Measurements as CSV (RFC 4180), with a column for each label of any table.
pub(crate) fn csv(run: &Run) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for label in run.tables.iter().flat_map(|table| &table.labels) {
        if !labels.contains(&label.as_str()) {
            labels.push(label);
        }
    }
    let head = ["table"].into_iter().chain(labels.iter().copied());
    let head = head.chain(["metric", "unit", "sample", "value", "ci95", "n"]);
    let mut text = record(head);
    for line in lines(run) {
        let or_empty = |number: Option<usize>| number.map_or_else(String::new, |n| n.to_string());
        let of_labels = labels
            .iter()
            .map(|label| line.labels.get(label).copied().unwrap_or_default());
        let numbers = [
            or_empty(line.sample),
            line.value.to_string(),
            line.ci95.map_or_else(String::new, |ci95| ci95.to_string()),
            or_empty(line.n),
        ];
        let fields = [line.table].into_iter().chain(of_labels);
        let fields = fields.chain([line.metric, line.unit]);
        text += &record(fields.chain(numbers.iter().map(String::as_str)));
    }
    text
}

fn record<'a>(fields: impl Iterator<Item = &'a str>) -> String {
    let fields: Vec<String> = fields.map(field).collect();
    fields.join(",") + "\n"
}

fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
