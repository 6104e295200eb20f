//! Reading a MetricsPort: Prometheus' text, and sums over it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Longest wait for the target's answer: it may be as busy as it can be.
const ANSWER: Duration = Duration::from_secs(10);

/// The most that an answer may have, in bytes; C tor's has some ten thousand.
const MOST: u64 = 4 << 20;

/// The text that a MetricsPort answers with.
///
/// # Errors
///
/// Nobody answers in time, or with anything but 200.
pub fn read(metrics: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&metrics, ANSWER)?;
    // The simulator Shadow has no timeouts of reads, and ends by itself.
    let _ = stream.set_read_timeout(Some(ANSWER));
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = BufReader::new(stream.take(MOST));
    let mut line = String::new();
    answer.read_line(&mut line)?;
    ensure!(
        line.starts_with("HTTP/1.") && line.get(8..).is_some_and(|rest| rest.starts_with(" 200 ")),
        "it answered {:?}",
        line.trim_end()
    );
    // C tor does not close the connection after its answer.
    let mut length = MOST;
    loop {
        line.clear();
        answer.read_line(&mut line)?;
        match line.split_once(':') {
            _ if line.trim_end().is_empty() => break,
            Some((name, value)) if name.eq_ignore_ascii_case("Content-Length") => {
                length = value.trim().parse().context("its Content-Length")?;
            }
            _ => {}
        }
    }
    let mut text = String::new();
    answer.take(length).read_to_string(&mut text)?;
    Ok(text)
}

/// The sum over all samples of one name, whatever their labels; 0 if there is none.
pub fn sum(text: &str, name: &str) -> f64 {
    values(text, name).map(|(_, value)| value).sum()
}

/// All samples of one name, with their labels.
pub fn values<'t>(text: &'t str, name: &str) -> impl Iterator<Item = (&'t str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(labels) => labels.split_once('}')?,
            None => ("", rest),
        };
        // A longer name begins in the same way.
        let value = value.strip_prefix(' ')?;
        Some((labels, value.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_name_add_up() {
        let text = "# TYPE weft_thread_links gauge\n\
            weft_thread_links{thread=\"0\"} 2\n\
            weft_thread_links{thread=\"1\"} 3\n\
            weft_thread_links_total 7\n\
            weft_main_turns_total 9\n";
        assert_eq!(sum(text, "weft_thread_links"), 5.0);
        assert_eq!(sum(text, "weft_main_turns_total"), 9.0);
        assert_eq!(sum(text, "weft_thread"), 0.0);
    }
}
