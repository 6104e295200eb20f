//! Records as a table, one line for each.

use std::time::Duration;

use super::record::{Outcome, Record};
use crate::traffic::seconds;

const HEAD: &str = "client,model,stream,isolation,started_s,opened_s,rtt_s,ttfb_s,ttlb_s,ended_s,\
    down_wanted,down_bytes,up_wanted,up_bytes,goodput_mbit,longest_gap_s,outcome,message\n";

/// A header and a line for each record (RFC 4180 with bare line feeds). Times are seconds since the
/// stream began, but for `started_s`, which is since the experiment began; unknown values are
/// empty.
#[must_use]
pub fn csv(records: &[Record]) -> String {
    let mut text = HEAD.to_owned();
    for record in records {
        let times = &record.times;
        let (outcome, message) = match &record.outcome {
            Outcome::Complete => ("complete", ""),
            Outcome::Unfinished => ("unfinished", ""),
            Outcome::Failed(failure) => (failure.kind.name(), failure.message.as_str()),
        };
        let goodput = record.goodput_mbit();
        let fields = [
            quoted(&record.client),
            quoted(&record.model),
            record.stream.to_string(),
            record.isolation.to_string(),
            time(Some(record.started)),
            time(times.opened),
            time(record.round_trip()),
            time(record.time_to_first_byte()),
            time(record.time_to_last_byte()),
            time(Some(record.ended)),
            times.down.wanted.to_string(),
            times.down.bytes.to_string(),
            times.up.wanted.to_string(),
            times.up.bytes.to_string(),
            goodput.map_or_else(String::new, |mbit| format!("{mbit:.6}")),
            time(Some(times.down.longest_gap.max(times.up.longest_gap))),
            outcome.to_owned(),
            quoted(message),
        ];
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn time(time: Option<Duration>) -> String {
    time.map_or_else(String::new, |time| format!("{:.6}", seconds::of(time)))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}
