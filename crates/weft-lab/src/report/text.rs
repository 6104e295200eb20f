//! Runs and comparisons as text for a terminal, and the forms of numbers that pages share.

use std::fmt::Write as _;

use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};
use weft_stats::Spread;

use super::compare::{Change, Comparison};
use super::model::{Metric, Run, Table, Values};

/// Placeholder for a value that was not measured.
pub(crate) const NOTHING: &str = "–";

impl Run {
    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        run(self)
    }
}

impl Comparison {
    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        comparison(self)
    }
}

/// A run as text.
fn run(run: &Run) -> String {
    let mut text = format!("{}\n", run.title);
    if !run.question.is_empty() {
        let _ = writeln!(text, "{}", run.question);
    }
    let _ = writeln!(
        text,
        "{}, {}.",
        moment(&run.started_at),
        duration(run.seconds)
    );
    if let Some(why) = run.ending.warning() {
        let _ = writeln!(text, "PARTIAL: {why}");
    }
    for one in &run.tables {
        let _ = write!(text, "\n{}", table(one));
    }
    if !run.tables.is_empty() {
        text += "\nMeans with half of their 95 % intervals.\n";
    }
    for note in &run.notes {
        let _ = writeln!(text, "- {note}");
    }
    for_terminal(&text)
}

/// A table as text, under its title.
pub(crate) fn table(table: &Table) -> String {
    let heads = table.labels.iter().cloned();
    let mut rows: Vec<Vec<String>> = vec![
        heads
            .chain(table.metrics.iter().map(Metric::head))
            .collect(),
    ];
    for row in &table.rows {
        let labels = row.labels.iter().cloned();
        rows.push(labels.chain(row.values.iter().map(cell)).collect());
    }
    format!("{}\n\n{}", table.title, columns(&rows, table.labels.len()))
}

/// A comparison as text.
fn comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let names = || comparison.runs.iter().map(|named| named.name.clone());
    for warning in &comparison.warnings {
        let _ = writeln!(text, "WARNING: {warning}");
    }
    if !comparison.differing.is_empty() {
        let head = std::iter::once("what differs".to_owned()).chain(names());
        let mut rows: Vec<Vec<String>> = vec![head.collect()];
        rows.extend(comparison.differing.iter().map(|one| {
            let values = one.values.iter().cloned();
            std::iter::once(one.what.clone()).chain(values).collect()
        }));
        let _ = write!(text, "\n{}", columns(&rows, usize::MAX));
    }
    for table in &comparison.tables {
        let mut head = table.labels.clone();
        head.push("metric".to_owned());
        head.extend(names());
        head.extend(names().skip(1).map(|name| format!("{name}: difference")));
        let mut rows = vec![head];
        for row in &table.rows {
            let mut cells = row.labels.clone();
            cells.push(row.metric.clone());
            cells.extend(row.cells.iter().map(|one| spread(*one)));
            cells.extend(row.changes.iter().map(difference));
            rows.push(cells);
        }
        let _ = write!(
            text,
            "\n{}\n\n{}",
            table.title,
            columns(&rows, table.labels.len() + 1)
        );
    }
    text += "\nMeans with half of their 95 % intervals; differences from the first run with their 95 % intervals.\n";
    for_terminal(&text)
}

/// A terminal must not read commands in what a file has.
fn for_terminal(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() && c != '\n' {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(shown).collect()
}

/// A difference with its interval and what it means.
pub(crate) fn difference(change: &Option<Change>) -> String {
    let Some(change) = change else {
        return NOTHING.to_owned();
    };
    format!("{}, {}", percent(change), change.verdict.words())
}

/// A difference with its interval.
pub(crate) fn percent(change: &Change) -> String {
    match change.interval {
        Some((low, high)) => format!("{:+.1} % ({low:+.1} to {high:+.1})", change.percent),
        None => format!("{:+.1} %", change.percent),
    }
}

/// Mean and half of the 95 % interval.
pub(crate) fn cell(values: &Values) -> String {
    spread(values.spread())
}

pub(crate) fn spread(spread: Option<Spread>) -> String {
    match spread {
        None => NOTHING.to_owned(),
        Some(spread) => spread.show(|one| like(one, spread.mean)),
    }
}

/// The first number with as many digits after the point as the second needs.
pub(crate) fn like(number: f64, reference: f64) -> String {
    let size = reference.abs();
    let digits = match size {
        _ if size >= 100.0 || size.fract() == 0.0 && number.fract() == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.01 => 3,
        _ => return format!("{number:.2e}"),
    };
    grouped(&format!("{number:.digits$}"))
}

/// With a comma after each three digits, from five digits on.
fn grouped(text: &str) -> String {
    let (whole, rest) = match text.find('.') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    if digits.len() < 5 {
        return text.to_owned();
    }
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// `2026-01-02 03:04:05 UTC`; other text stays as it is.
pub(crate) fn moment(started_at: &str) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    let moment = OffsetDateTime::parse(started_at, &Rfc3339).ok();
    let text = moment.and_then(|one| one.to_offset(UtcOffset::UTC).format(format).ok());
    text.unwrap_or_else(|| started_at.to_owned())
}

/// `3 min 20 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, min, s) => format!("{min} min {s} s"),
        (h, min, _) => format!("{h} h {min} min"),
    }
}

/// The widest column of text. A longer cell is cut, so that one cell does not widen all lines.
const WIDEST: usize = 120;

/// Rows in columns; those from this one on have numbers and end at the same place.
fn columns(rows: &[Vec<String>], numbers_from: usize) -> String {
    let width = |text: &str| text.chars().count();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| cut(cell)).collect())
        .collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| width(cell)).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (at, (cell, column)) in row.iter().zip(&widths).enumerate() {
            let space = " ".repeat(column - width(cell));
            if at > 0 {
                line += "  ";
            }
            line += &match at >= numbers_from {
                true => format!("{space}{cell}"),
                false => format!("{cell}{space}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// On one line, and no wider than a column.
fn cut(cell: &str) -> String {
    let mut shown: String = cell
        .chars()
        .take(WIDEST)
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    if cell.chars().nth(WIDEST).is_some() {
        shown.pop();
        shown.push('…');
    }
    shown
}
