//! Strict parser of a MetricsPort's answer: Prometheus' text format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Time within which an answer must arrive.
const ANSWER: Duration = Duration::from_secs(30);

/// The text at this MetricsPort.
///
/// # Errors
///
/// There is no answer, or not one of metrics.
pub fn scrape(port: SocketAddr) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(port)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n")?;
    // C tor ends its answer, but not the connection, unless we end ours.
    socket.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 OK") => Ok(body.to_owned()),
        _ => Err(std::io::Error::other(format!("{answer:?}"))),
    }
}

/// The value of a sample, named with its labels.
#[must_use]
pub fn sample(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (series == name).then_some(value)
    })?;
    value.parse().ok()
}

/// A family: its HELP and TYPE lines and the labels of its samples.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// Its HELP line.
    pub help: String,
    /// Its type.
    pub kind: String,
    /// The labels of each sample, in braces.
    pub labels: BTreeSet<String>,
}

/// Reads the text format, strictly.
///
/// # Panics
///
/// The text breaks a rule of the format.
#[must_use]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
pub fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            current = name.to_owned();
            let family = Family {
                help: help.to_owned(),
                ..Family::default()
            };
            assert_eq!(families.insert(current.clone(), family), None, "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current, "{line}");
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let labels = series.strip_prefix(current.as_str()).unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            let family = families.get_mut(&current).unwrap();
            assert!(family.labels.insert(labels.to_owned()), "twice: {line}");
        }
    }
    families
}
