//! Reports of experiments: what every results folder has besides the experiment's own files, and how runs are
//! compared ([`report_command`](crate::report_command) is the command).
//!
//! [`Run`] is the shape that all experiments share. The frame writes it as `run.json` after each step, with
//! `raw.jsonl`, `raw.csv` and `report.html`.

mod compare;
mod html;
mod invocation;
mod model;
mod raw;
mod read;
#[cfg(test)]
mod tests;
mod text;

pub use compare::{Change, Comparison, Named, Verdict, change};
pub(crate) use html::{PAGE, write_page};
pub use invocation::Invocation;
pub(crate) use invocation::quote;
pub use model::{Better, Ending, Metric, Plot, Row, Run, SCHEMA, Setting, Table, Values};
pub(crate) use raw::{csv, jsonl};
pub(crate) use read::{FILE, LARGEST_PLOT_DATA, bounded};
pub(crate) use text::table as table_text;
