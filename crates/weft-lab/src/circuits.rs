//! `weft lab circuits`: the pool of a running client's circuits, from its control port.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde::Serialize;
use weft_testnet::control::Control;

/// Shows the circuits of a running client: build time, round trip, weight and use.
///
/// The client is one of Weft's with a ControlSocket, or a ControlPort with CookieAuthentication. Weights are there with
/// CircuitSelection abra, round trips with CircuitAcceptance rtt or both.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The client's ControlSocket.
    #[arg(long, value_name = "FILE", required_unless_present = "port")]
    socket: Option<PathBuf>,
    /// The client's ControlPort.
    #[arg(
        long,
        value_name = "IP:PORT",
        conflicts_with = "socket",
        requires = "cookie"
    )]
    port: Option<SocketAddr>,
    /// The file of the cookie for --port: control_auth_cookie in the client's DataDirectory.
    #[arg(long, value_name = "FILE")]
    cookie: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A circuit.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Circuit {
    id: u64,
    status: String,
    purpose: String,
    /// `$FINGERPRINT~nickname`, the first hop first.
    path: Vec<String>,
    build_ms: Option<f64>,
    rtt_ms: Option<f64>,
    /// 1/(Mbit/s).
    weight: Option<f64>,
    /// Of how many of its relays the weight is known; the others count as the mean.
    stated: Option<u64>,
    /// Streams so far; of a leg of a conflux set, those of the set.
    streams: Option<u64>,
    /// The conflux set that it is a leg of: half of its nonce, in hexadecimal.
    set: Option<String>,
}

/// Reads the pool, and prints it.
///
/// # Errors
///
/// The client cannot be reached, does not accept us, or is not Weft.
pub fn circuits(args: &Args) -> Result<String> {
    let mut control = match (&args.socket, args.port, &args.cookie) {
        (Some(socket), ..) => Control::connect(socket)?,
        (None, Some(port), Some(cookie)) => Control::connect_port(port, cookie)?,
        // The command line needs one of them.
        (None, ..) => anyhow::bail!("--socket FILE, or --port IP:PORT with --cookie FILE"),
    };
    let pool = control
        .info("circuit-pool")
        .context("this node does not know GETINFO circuit-pool: is it Weft?")?;
    // Control characters, which a terminal would obey, are left out.
    let pool: String = pool
        .chars()
        .filter(|one| *one == '\n' || !one.is_control())
        .collect();
    let circuits: Vec<Circuit> = pool.lines().filter_map(read).collect();
    match args.format {
        Format::Json => Ok(serde_json::to_string_pretty(&circuits)? + "\n"),
        Format::Text => Ok(table(&circuits)),
    }
}

/// A line of `circuit-pool`; `None`: it is none.
fn read(line: &str) -> Option<Circuit> {
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let status = words.next()?.to_owned();
    let mut circuit = Circuit {
        id,
        status,
        purpose: String::new(),
        path: Vec::new(),
        build_ms: None,
        rtt_ms: None,
        weight: None,
        stated: None,
        streams: None,
        set: None,
    };
    for word in words {
        match word.split_once('=') {
            None => circuit.path = word.split(',').map(str::to_owned).collect(),
            Some(("PURPOSE", value)) => circuit.purpose = value.to_owned(),
            Some(("BUILD_MS", value)) => circuit.build_ms = value.parse().ok(),
            Some(("RTT_MS", value)) => circuit.rtt_ms = value.parse().ok(),
            Some(("WEIGHT", value)) => circuit.weight = value.parse().ok(),
            Some(("STATED", value)) => circuit.stated = value.parse().ok(),
            Some(("STREAMS", value)) => circuit.streams = value.parse().ok(),
            Some(("CONFLUX_ID", value)) => circuit.set = Some(value.to_owned()),
            // A later version's.
            Some(_) => {}
        }
    }
    Some(circuit)
}

/// The nickname of a `$FINGERPRINT~nickname`, or the beginning of its fingerprint.
fn short(relay: &str) -> String {
    match relay.split_once('~') {
        Some((_, nickname)) => nickname.to_owned(),
        None => relay.chars().take(9).collect(),
    }
}

fn table(circuits: &[Circuit]) -> String {
    if circuits.is_empty() {
        return "This client has no circuits.\n".to_owned();
    }
    let number = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let head = [
        "circuit",
        "status",
        "purpose",
        "build, ms",
        "round trip, ms",
        "weight, 1/(Mbit/s)",
        "streams",
        "set",
        "path",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for circuit in circuits {
        let path: Vec<String> = circuit.path.iter().map(|relay| short(relay)).collect();
        rows.push([
            circuit.id.to_string(),
            circuit.status.clone(),
            circuit.purpose.clone(),
            number(circuit.build_ms, 0),
            number(circuit.rtt_ms, 1),
            number(circuit.weight, 3),
            circuit
                .streams
                .map_or_else(|| "-".to_owned(), |streams| streams.to_string()),
            circuit
                .set
                .as_ref()
                .map_or_else(|| "-".to_owned(), |set| set.chars().take(6).collect()),
            path.join(" "),
        ]);
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                3..=6 => format!("{cell:>width$}"),
                _ => format!("{cell:<width$}"),
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_pool_is_read_and_what_is_unknown_is_left_out() {
        let line = "7 BUILT $AB~one,$CD~two,$EF PURPOSE=GENERAL BUILD_MS=812.0 RTT_MS=300.1 WEIGHT=0.125 STATED=2 NEW=1 STREAMS=3 CONFLUX_ID=6DAF01 CONFLUX_RTT=7";
        let circuit = read(line).unwrap();
        assert_eq!(circuit.path, ["$AB~one", "$CD~two", "$EF"]);
        assert_eq!(
            (circuit.id, circuit.stated, circuit.streams),
            (7, Some(2), Some(3))
        );
        assert_eq!(
            (circuit.build_ms, circuit.rtt_ms, circuit.weight),
            (Some(812.0), Some(300.1), Some(0.125))
        );
        assert_eq!(circuit.set.as_deref(), Some("6DAF01"));
        let launched = read("8 LAUNCHED PURPOSE=GENERAL STREAMS=0").unwrap();
        assert_eq!((launched.path.len(), launched.weight), (0, None));
        assert_eq!(read("no circuit"), None);
        let text = table(&[circuit, launched]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "7        BUILT     GENERAL        812           300.1               0.125        3  6DAF01  one two $EF"
        );
        assert!(lines[2].starts_with("8        LAUNCHED  GENERAL          -               -"));
        assert_eq!(table(&[]), "This client has no circuits.\n");
    }
}
