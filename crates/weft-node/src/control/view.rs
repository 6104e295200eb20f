//! What a control port shows of the node: circuits, streams, links and the rest, in control-spec's
//! words. Whoever implements a [`Backend`](super::Backend) makes these of what it knows.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use time::OffsetDateTime;
use time::macros::format_description;
use weft_core::controller::HandshakeCounts;
use weft_core::origin::AppCredentials;

use super::words::quote;
use crate::torrc::settings::Settings;
use crate::torrc::{ExitPolicy, Options};

/// What every controller may ask for without asking anybody else; made anew when it changes.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The configuration in force.
    pub options: Arc<Options>,
    /// What options have where nothing sets them.
    pub defaults: Arc<Settings>,
    /// The torrc that was read, if one was.
    pub torrc: Option<PathBuf>,
    /// The defaults torrc.
    pub defaults_torrc: Option<PathBuf>,
    /// The relay's fingerprint, in hexadecimal; `None`: it is no relay.
    pub fingerprint: Option<String>,
    /// Open listeners: control-spec's name of their kind, and where.
    pub listeners: Vec<(&'static str, String)>,
    /// Bytes read by connections since the start.
    pub read: u64,
    /// Bytes written by connections since the start.
    pub written: u64,
    /// The same for each of the last seconds, oldest first.
    pub recent: Vec<(u64, u64)>,
    /// Onionskins of relays since the start; `None`: it is no relay.
    pub handshakes: Option<HandshakeCounts>,
    /// Whether the ORPorts were reached from outside, or are assumed to be reachable.
    pub reachable: bool,
    /// Where a relay lets streams go now; `None`: it is no relay.
    pub exit_policy: Option<ExitPolicy>,
    /// Our IPv4 and IPv6 addresses, as far as they are known.
    pub addresses: Vec<IpAddr>,
    /// When the node started.
    pub started: Instant,
    /// Files that may be open.
    pub max_files: usize,
    /// Bytes that queues may hold.
    pub max_queues: u64,
}

/// A circuit of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitView {
    /// Its number.
    pub id: u64,
    /// `LAUNCHED`, `BUILT`, `GUARD_WAIT`, `EXTENDED`, `FAILED`, `CLOSED`.
    pub status: &'static str,
    /// The relays that it reaches: RSA identity, nickname.
    pub path: Vec<([u8; 20], String)>,
    /// `ONEHOP_TUNNEL`, `IS_INTERNAL`, `NEED_CAPACITY`, `NEED_UPTIME`.
    pub build_flags: Vec<&'static str>,
    /// `GENERAL`, `CONTROLLER`, …
    pub purpose: &'static str,
    /// When it was begun.
    pub created: SystemTime,
    /// What its streams said to be kept apart by.
    pub credentials: Option<Arc<AppCredentials>>,
}

/// A relay as controllers name it (control-spec 2.4, LongName).
#[must_use]
pub fn long_name(rsa: &[u8; 20], nickname: &str) -> String {
    let digits = hex::encode_upper(rsa);
    match nickname {
        "" => format!("${digits}"),
        name => format!("${digits}~{name}"),
    }
}

fn push_credentials(text: &mut String, credentials: Option<&AppCredentials>) {
    let Some(credentials) = credentials else {
        return;
    };
    for (key, value) in [
        ("SOCKS_USERNAME", &credentials.user),
        ("SOCKS_PASSWORD", &credentials.password),
    ] {
        if !value.is_empty() {
            text.push_str(&format!(" {key}={}", quote(value)));
        }
    }
}

impl CircuitView {
    /// Its line, from the number on (circuit_describe_status_for_controller).
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = format!("{} {}", self.id, self.status);
        let path: Vec<_> = self
            .path
            .iter()
            .map(|(rsa, name)| long_name(rsa, name))
            .collect();
        if !path.is_empty() {
            text.push(' ');
            text.push_str(&path.join(","));
        }
        if !self.build_flags.is_empty() {
            text.push_str(" BUILD_FLAGS=");
            text.push_str(&self.build_flags.join(","));
        }
        text.push_str(&format!(
            " PURPOSE={} TIME_CREATED={}",
            self.purpose,
            iso_time_micros(self.created)
        ));
        push_credentials(&mut text, self.credentials.as_deref());
        text
    }
}

/// A stream of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    /// Its number.
    pub id: u64,
    /// `NEW`, `NEWRESOLVE`, `SENTCONNECT`, `SENTRESOLVE`, `SUCCEEDED`, `FAILED`, `CLOSED`,
    /// `DETACHED`, `CONTROLLER_WAIT`, `REMAP`.
    pub status: &'static str,
    /// The circuit that it is on; 0: none.
    pub circuit: u64,
    /// Where it goes: host and port.
    pub target: String,
    /// Where it comes from.
    pub source: Option<SocketAddr>,
    /// `USER`, `DNS_REQUEST`, `DIR_FETCH`, …
    pub purpose: &'static str,
    /// `SOCKS4`, `SOCKS5`, `HTTPCONNECT`, `DNS`, `UNKNOWN`.
    pub protocol: &'static str,
    /// How many NEWNYMs came before it.
    pub nym_epoch: u64,
    /// Its listener's session group.
    pub session_group: i64,
    /// By what it is kept apart.
    pub isolation: Vec<&'static str>,
    /// What it said to be kept apart by.
    pub credentials: Option<Arc<AppCredentials>>,
}

impl StreamView {
    /// What is told of it beside its state (entry_connection_describe_status_for_controller).
    fn details(&self) -> String {
        let mut text = String::new();
        push_credentials(&mut text, self.credentials.as_deref());
        text.push_str(&format!(
            " CLIENT_PROTOCOL={} NYM_EPOCH={} SESSION_GROUP={} ISO_FIELDS={}",
            self.protocol,
            self.nym_epoch,
            self.session_group,
            self.isolation.join(",")
        ));
        text
    }

    /// Its line in a list, from the number on.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "{} {} {} {}{}",
            self.id,
            self.status,
            self.circuit,
            self.target,
            self.details()
        )
    }

    /// Its line in an event, from the number on; `more`: reasons, with a space before each.
    #[must_use]
    pub fn describe_event(&self, more: &str) -> String {
        let mut text = format!(
            "{} {} {} {}{more}",
            self.id, self.status, self.circuit, self.target
        );
        if matches!(self.status, "NEW" | "NEWRESOLVE") {
            if let Some(source) = self.source {
                text.push_str(&format!(" SOURCE_ADDR={source}"));
            }
            text.push_str(&format!(" PURPOSE={}", self.purpose));
        }
        text.push_str(&self.details());
        text
    }
}

/// A link to another relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Its number.
    pub id: u64,
    /// A [`long_name`], or its address.
    pub target: String,
    /// `NEW`, `LAUNCHED`, `CONNECTED`, `FAILED`, `CLOSED`.
    pub status: &'static str,
}

/// How far the start has come (control-spec 5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapView {
    /// Per cent.
    pub progress: u8,
    /// For programs.
    pub tag: String,
    /// For people.
    pub summary: String,
}

impl BootstrapView {
    /// As `status/bootstrap-phase` and the event have it, from the severity on.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "NOTICE BOOTSTRAP PROGRESS={} TAG={} SUMMARY={}",
            self.progress,
            self.tag,
            quote(self.summary.as_bytes())
        )
    }
}

/// `2026-11-22T01:02:03.000004`.
#[must_use]
pub fn iso_time_micros(time: SystemTime) -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]");
    OffsetDateTime::from(time)
        .format(format)
        .unwrap_or_default()
}

/// `2026-11-22 01:02:03`, or with a `T` in the middle.
#[must_use]
pub fn iso_time(time: OffsetDateTime, middle: char) -> String {
    let date = format_description!("[year]-[month]-[day]");
    let clock = format_description!("[hour]:[minute]:[second]");
    let part = |format| time.format(format).unwrap_or_default();
    format!("{}{middle}{}", part(date), part(clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuits_and_streams_have_c_tors_lines() {
        let created =
            SystemTime::UNIX_EPOCH + std::time::Duration::from_micros(1_700_000_000_000_004);
        let mut circuit = CircuitView {
            id: 7,
            status: "BUILT",
            path: vec![([0xab; 20], "one".to_owned()), ([1; 20], String::new())],
            build_flags: vec!["NEED_CAPACITY"],
            purpose: "GENERAL",
            created,
            credentials: Some(Arc::new(AppCredentials {
                user: b"a\"".to_vec(),
                password: Vec::new(),
            })),
        };
        assert_eq!(
            circuit.describe(),
            format!(
                "7 BUILT ${}~one,${} BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL \
                 TIME_CREATED=2023-11-14T22:13:20.000004 SOCKS_USERNAME=\"a\\\"\"",
                "AB".repeat(20),
                "01".repeat(20)
            )
        );
        circuit.path.clear();
        circuit.build_flags.clear();
        circuit.credentials = None;
        circuit.status = "LAUNCHED";
        let expected = "7 LAUNCHED PURPOSE=GENERAL TIME_CREATED=2023-11-14T22:13:20.000004";
        assert_eq!(circuit.describe(), expected);
        let stream = StreamView {
            id: 9,
            status: "NEW",
            circuit: 0,
            target: "example.com:80".to_owned(),
            source: Some(([127, 0, 0, 1], 4000).into()),
            purpose: "USER",
            protocol: "SOCKS5",
            nym_epoch: 0,
            session_group: -2,
            isolation: vec!["CLIENTADDR", "NYM_EPOCH"],
            credentials: None,
        };
        let details = "CLIENT_PROTOCOL=SOCKS5 NYM_EPOCH=0 SESSION_GROUP=-2 \
                       ISO_FIELDS=CLIENTADDR,NYM_EPOCH";
        assert_eq!(
            stream.describe(),
            format!("9 NEW 0 example.com:80 {details}")
        );
        assert_eq!(
            stream.describe_event(""),
            format!("9 NEW 0 example.com:80 SOURCE_ADDR=127.0.0.1:4000 PURPOSE=USER {details}")
        );
    }
}
