//! Measurements of circuits: a CSV file with one line for each circuit.

use std::collections::BTreeMap;
use std::io::{BufRead, Read as _};

use serde::Serialize;

/// The columns, in this order where we write them; a file may have them in another, and others besides.
pub const COLUMNS: [&str; 4] = ["build_ms", "rtt_ms", "latency_ms", "bandwidth_mbit"];
/// A column that may be there: whose circuit it is, any text.
pub const CLIENT: &str = "client";
/// Bytes of a line at most.
const LONGEST: u64 = 4096;
/// Circuits of a file at most.
const MOST: usize = 20_000_000;
/// Clients of a file at most.
const MOST_CLIENTS: usize = 1_000_000;
/// Numbers at most: milliseconds of four months, or Mbit/s.
const GREATEST: f64 = 1e10;

/// One circuit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tuple {
    /// Build time, in milliseconds.
    pub build_ms: f64,
    /// The round trip of a request that its last relay refused.
    pub rtt_ms: f64,
    /// Time until the first byte of the requested data.
    pub latency_ms: f64,
    /// Of a download.
    pub bandwidth_mbit: f64,
    /// Whose it is, by a number; limits are each client's own.
    pub client: u32,
}

/// Error in a file of measurements.
#[derive(Debug, thiserror::Error)]
pub enum TuplesError {
    /// The first line has not all columns.
    #[error(
        "line 1: there is no column `{0}`; the first line names the columns: build_ms,rtt_ms,latency_ms,bandwidth_mbit"
    )]
    NoColumn(&'static str),
    /// A field is missing, or not a number in the range.
    #[error("line {line}: {column} is '{found}', and must be a number above 0, at most 1e10")]
    Number {
        /// From 1.
        line: usize,
        /// Its name.
        column: &'static str,
        /// The text that was found, shortened.
        found: String,
    },
    /// No text, or a line without end.
    #[error("line {line}: it is longer than {LONGEST} bytes, or no text")]
    Line {
        /// From 1.
        line: usize,
    },
    /// Too many.
    #[error("line {0}: there are more than {MOST} circuits")]
    TooMany(usize),
    /// Too many.
    #[error("line {0}: there are more than {MOST_CLIENTS} clients")]
    TooManyClients(usize),
    /// None.
    #[error("there are {0} circuits; a distribution needs 100")]
    TooFew(usize),
    /// The system.
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

/// Reads a file.
///
/// # Errors
///
/// A line is malformed: the error names it.
pub fn read(mut from: impl BufRead) -> Result<Vec<Tuple>, TuplesError> {
    let mut number = 1;
    let header = next_line(&mut from, number)?.unwrap_or_default();
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let mut places = [0; 4];
    for (place, column) in places.iter_mut().zip(COLUMNS) {
        let found = names.iter().position(|name| *name == column);
        *place = found.ok_or(TuplesError::NoColumn(column))?;
    }
    let client = names.iter().position(|name| *name == CLIENT);
    let mut clients: BTreeMap<String, u32> = BTreeMap::new();
    let mut tuples = Vec::new();
    loop {
        number += 1;
        let Some(line) = next_line(&mut from, number)? else {
            break;
        };
        if line.trim().is_empty() {
            continue;
        }
        if tuples.len() >= MOST {
            return Err(TuplesError::TooMany(number));
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |column: usize| {
            let found = fields.get(places[column]).copied().unwrap_or_default();
            let parsed = found.parse().ok();
            let is_one = |value: &f64| *value > 0.0 && *value <= GREATEST;
            parsed.filter(is_one).ok_or_else(|| TuplesError::Number {
                line: number,
                column: COLUMNS[column],
                found: found
                    .chars()
                    .filter(|one| !one.is_control())
                    .take(40)
                    .collect(),
            })
        };
        // One that is not named is a client, too.
        let name = client
            .and_then(|place| fields.get(place))
            .copied()
            .unwrap_or_default();
        let next = u32::try_from(clients.len()).unwrap_or(u32::MAX);
        let client = match clients.get(name) {
            Some(client) => *client,
            None if clients.len() >= MOST_CLIENTS => {
                return Err(TuplesError::TooManyClients(number));
            }
            None => *clients.entry(name.to_owned()).or_insert(next),
        };
        tuples.push(Tuple {
            client,
            build_ms: field(0)?,
            rtt_ms: field(1)?,
            latency_ms: field(2)?,
            bandwidth_mbit: field(3)?,
        });
    }
    match tuples.len() {
        few @ 0..100 => Err(TuplesError::TooFew(few)),
        _ => Ok(tuples),
    }
}

/// The next line without its end. `None`: there is none.
fn next_line(from: &mut impl BufRead, line: usize) -> Result<Option<String>, TuplesError> {
    let mut bytes = Vec::new();
    from.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let is_whole = bytes.ends_with(b"\n") || (bytes.len() as u64) < LONGEST;
    let text = String::from_utf8(bytes).ok().filter(|_| is_whole);
    let text = text.ok_or(TuplesError::Line { line })?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

/// As a file. The column for clients is there if there are several.
#[must_use]
pub fn csv(tuples: &[Tuple]) -> String {
    let several = tuples
        .windows(2)
        .any(|pair| pair[0].client != pair[1].client);
    let mut text = COLUMNS.join(",");
    if several {
        text += &format!(",{CLIENT}");
    }
    text.push('\n');
    for one in tuples {
        text += &format!(
            "{:.3},{:.3},{:.3},{:.4}",
            one.build_ms, one.rtt_ms, one.latency_ms, one.bandwidth_mbit
        );
        if several {
            text += &format!(",{}", one.client);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: &[&str]) -> String {
        let good = "1,2,3,4\n".repeat(100);
        format!("{}\n{good}{}\n", COLUMNS.join(","), lines.join("\n"))
    }

    #[test]
    fn columns_may_be_in_any_order_and_others_beside_them() {
        let head = " rtt_ms ,name,bandwidth_mbit,build_ms,latency_ms\r\n";
        let text = format!("{head}{}\n", "20,x,4.5,10, 30\r\n".repeat(100));
        let tuples = read(text.as_bytes()).unwrap();
        let one = Tuple {
            build_ms: 10.0,
            rtt_ms: 20.0,
            latency_ms: 30.0,
            bandwidth_mbit: 4.5,
            client: 0,
        };
        assert_eq!((tuples.len(), tuples[99]), (100, one));
        assert_eq!(read(csv(&tuples).as_bytes()).unwrap(), tuples);
    }

    #[test]
    fn clients_are_told_apart_by_any_text() {
        let lines = "1,2,3,4,one\n1,2,3,4,2/client 7\n1,2,3,4\n".repeat(40);
        let text = format!("{},{CLIENT}\n{lines}", COLUMNS.join(","));
        let tuples = read(text.as_bytes()).unwrap();
        let clients: Vec<u32> = tuples.iter().take(4).map(|one| one.client).collect();
        assert_eq!(clients, [0, 1, 2, 0]);
        assert_eq!(read(csv(&tuples).as_bytes()).unwrap(), tuples);
    }

    #[test]
    fn an_error_names_line_and_column() {
        let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(error("").contains("no column `build_ms`"));
        assert!(error("build_ms,latency_ms,bandwidth_mbit\n").contains("no column `rtt_ms`"));
        for bad in ["soon", "", "NaN", "inf", "-3", "0", "1e11", "0x10"] {
            let text = error(&file(&[&format!("1,{bad},3,4")]));
            assert!(
                text.contains(&format!("line 102: rtt_ms is '{bad}'")),
                "{text}"
            );
        }
        assert!(error(&file(&["1,2,3"])).contains("line 102: bandwidth_mbit is ''"));
        // Control characters of terminals are removed.
        assert!(error(&file(&["1,\u{1b}[2J,3,4"])).contains("rtt_ms is '[2J'"));
        assert!(error(&file(&[&"9".repeat(5000)])).contains("line 102: it is longer"));
        assert!(
            error("build_ms,rtt_ms,latency_ms,bandwidth_mbit\n1,2,3,4\n")
                .contains("are 1 circuits")
        );
        let mut binary = file(&[]).into_bytes();
        binary.extend([0xff, 0xfe, b'\n']);
        assert!(read(&*binary).unwrap_err().to_string().contains("no text"));
    }
}
