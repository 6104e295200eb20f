//! The file that tornettools reads: `tgen.analysis.json`, as `tgentools parse --complete` writes it.
//!
//! Layout: `tools/tgentools/analysis.py` of TGen 1.1.2. tornettools 2.2 (`parse_tgen.py`) reads
//! `stream_summary` and `streams` of clients named `perfclientNexit`, in which the time of the experiment
//! begins at 2000-01-01, as it does under Shadow. Times to first and last byte are counted from the request,
//! not from the connection, as `TGen` counts them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::record::{Outcome, Record};
use crate::traffic::seconds;
use crate::traffic::stream::{Way, tenth_of};

/// 2000-01-01 00:00 UTC in Unix seconds: when Shadow's time, and so tornettools', begins.
pub const EPOCH: u64 = 946_684_800;
/// The version of `TGen` whose layout this is; tgentools refuses others.
const VERSION: &str = "1.1.2";

/// The names of quantities in a summary, with their value for a stream.
type Quantity = fn(&Record) -> Option<(u64, Duration)>;
const QUANTITIES: [(&str, Quantity); 4] = [
    ("time_to_first_byte_recv", |record| {
        Some((record.times.down.wanted, record.times.down.first?))
    }),
    ("time_to_last_byte_recv", |record| {
        Some((record.times.down.wanted, record.times.down.last?))
    }),
    ("time_to_first_byte_send", |record| {
        Some((record.times.up.wanted, record.times.up.first?))
    }),
    ("time_to_last_byte_send", |record| {
        Some((record.times.up.wanted, record.times.up.last?))
    }),
];

/// These records as `tgen.analysis.json`. The n-th client of the model `performance`, by name, is called
/// `perfclientNexit`; tornettools ignores the others. Streams that were open at the end are left out, as
/// `TGen` logs nothing of them.
#[must_use]
pub fn tgen_analysis(records: &[Record]) -> String {
    let mut clients: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        clients.entry(&record.client).or_default().push(record);
    }
    let mut data = Map::new();
    let mut number = 0;
    for (name, records) in clients {
        let is_performance = records.iter().any(|record| record.model == "performance");
        let name = if is_performance {
            number += 1;
            format!("perfclient{number}exit")
        } else {
            name.to_owned()
        };
        let tgen = client(&name, &records);
        data.insert(name, json!({ "measurement_ip": "unknown", "tgen": tgen }));
    }
    let mut text = format!(
        "{:#}",
        json!({ "type": "tgen", "version": VERSION, "data": data })
    );
    text.push('\n');
    text
}

fn client(name: &str, records: &[&Record]) -> Value {
    let mut summary: Map<String, Value> = QUANTITIES
        .iter()
        .map(|(quantity, _)| ((*quantity).to_owned(), json!({})))
        .collect();
    summary.insert("round_trip_time".into(), json!({}));
    summary.insert("errors".into(), json!({}));
    let mut streams = Map::new();
    for record in records {
        let second = end(record).as_secs().to_string();
        match &record.outcome {
            Outcome::Unfinished => continue,
            Outcome::Complete => {
                if let Some(rtt) = record.round_trip() {
                    push(
                        &mut summary,
                        &["round_trip_time", &second],
                        json!(seconds::of(rtt)),
                    );
                }
                for (quantity, of) in QUANTITIES {
                    let Some(((size, at), opened)) = of(record).zip(record.times.opened) else {
                        continue;
                    };
                    let time = seconds::of(at.saturating_sub(opened));
                    let path = [quantity, &size.to_string(), &second];
                    push(&mut summary, &path, json!(time));
                }
            }
            Outcome::Failed(failure) => {
                let moved = json!([record.times.up.bytes, record.times.down.bytes]);
                let path = ["errors", failure.kind.tgen_code(), &second];
                push(&mut summary, &path, moved);
            }
        }
        let id = format!("{}:0:localhost:127.0.0.1:0:server:0.0.0.0:0", record.stream);
        streams.insert(id.clone(), stream(name, &id, record));
    }
    json!({
        "heartbeats": {},
        "init_ts": EPOCH,
        "stream_summary": summary,
        "streams": streams,
    })
}

/// Appends to the list at this path of objects.
fn push(object: &mut Map<String, Value>, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let empty = if rest.is_empty() {
        json!([])
    } else {
        json!({})
    };
    match object.entry(*first).or_insert(empty) {
        Value::Object(inner) => push(inner, rest, value),
        Value::Array(list) => list.push(value),
        _ => {}
    }
}

/// When a stream ended, in Unix time.
fn end(record: &Record) -> Duration {
    Duration::from_secs(EPOCH)
        .saturating_add(record.started)
        .saturating_add(record.ended)
}

fn stream(name: &str, id: &str, record: &Record) -> Value {
    let times = &record.times;
    let start = Duration::from_secs(EPOCH).saturating_add(record.started);
    let (error, is_error) = match &record.outcome {
        Outcome::Failed(failure) => (failure.kind.tgen_code(), true),
        _ => ("NONE", false),
    };
    // PROXY-STATUS is the code of a stream and of its transport in one.
    let (error, transport_error) = match error.split_once('-') {
        Some((error, transport)) => (error, transport),
        None => (error, "NONE"),
    };
    let micros = |time: Option<Duration>| {
        time.map_or_else(|| "-1".to_owned(), |time| time.as_micros().to_string())
    };
    let state = |way: &str| {
        let state = if is_error { "ERROR" } else { "SUCCESS" };
        format!("{way}_{state}")
    };
    let mut value = json!({
        "byte_info": {
            "payload-bytes-recv": times.down.bytes.to_string(),
            "payload-bytes-send": times.up.bytes.to_string(),
            "payload-progress-recv": percent(&times.down),
            "payload-progress-send": percent(&times.up),
            "total-bytes-recv": times.down.bytes.to_string(),
            "total-bytes-send": times.up.bytes.to_string(),
        },
        "is_complete": true,
        "is_error": is_error,
        "is_success": !is_error,
        "stream_id": id,
        "stream_info": {
            "error": error,
            "id": record.stream.to_string(),
            "name": name,
            "peername": "server",
            "recvsize": times.down.wanted.to_string(),
            "recvstate": state("RECV"),
            "sendsize": times.up.wanted.to_string(),
            "sendstate": state("SEND"),
            "vertexid": record.model,
        },
        "time_info": {
            "created-ts": start.as_micros().to_string(),
            "now-ts": end(record).as_micros().to_string(),
            "usecs-to-checksum-recv": micros(times.receipt),
            "usecs-to-checksum-send": micros(times.up.last),
            "usecs-to-command": micros(times.opened),
            "usecs-to-first-byte-recv": micros(times.down.first),
            "usecs-to-first-byte-send": micros(times.up.first),
            "usecs-to-last-byte-recv": micros(times.down.last),
            "usecs-to-last-byte-send": micros(times.up.last),
            "usecs-to-proxy-response": micros(times.opened),
            "usecs-to-response": micros(times.answered),
        },
        "transport_info": {
            "error": transport_error,
            "fd": "0",
            "local": "localhost:127.0.0.1:0",
            "proxy": "localhost:127.0.0.1:0",
            "remote": "server:0.0.0.0:0",
            "state": if is_error { "ERROR" } else { "SUCCESS_OPEN" },
        },
        "unix_ts_end": seconds::of(end(record)),
        "unix_ts_start": seconds::of(start),
    });
    if let (false, Some(object)) = (is_error, value.as_object_mut()) {
        let elapsed = json!({
            "payload_bytes_recv": partials(&times.down),
            "payload_bytes_send": partials(&times.up),
            "payload_progress_recv": tenths(&times.down, times.opened),
            "payload_progress_send": tenths(&times.up, times.opened),
        });
        object.insert("elapsed_seconds".to_owned(), elapsed);
    }
    value
}

fn percent(way: &Way) -> String {
    let share = match way.wanted {
        0 => 1.0,
        wanted => way.bytes as f64 / wanted as f64,
    };
    format!("{:.2}%", share * 100.0)
}

fn partials(way: &Way) -> Map<String, Value> {
    let marks = way.partials();
    marks
        .map(|mark| (mark.bytes.to_string(), json!(seconds::of(mark.at))))
        .collect()
}

/// When each tenth had moved; an empty direction is complete when the stream opens.
fn tenths(way: &Way, opened: Option<Duration>) -> Map<String, Value> {
    let mut all = Map::new();
    for tenth in 0..=10 {
        let at = match tenth_of(way.wanted, tenth) {
            0 => opened,
            bytes => way.at(bytes),
        };
        if let Some(at) = at {
            let key = format!("{}.{}", tenth / 10, tenth % 10);
            all.insert(key, json!(seconds::of(at)));
        }
    }
    all
}
