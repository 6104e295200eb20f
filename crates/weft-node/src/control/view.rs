//! Snapshots of circuits, streams, links and the node, with control-spec's status words, and their lines
//! in replies and events. A [`Backend`](super::backend::Backend) makes them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use time::OffsetDateTime;
use time::macros::format_description;
use weft_cell::identity::RsaIdentity;
use weft_config::Options;
use weft_config::settings::Settings;
use weft_core::controller::HandshakeCounts;
use weft_core::origin::AppCredentials;
use weft_dir::downloads::Downloads;
use weft_policy::ExitPolicy;

use super::fields::Fields;

/// The node's state that the main thread publishes for GETINFO and GETCONF, once a second and when the
/// configuration changes.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    /// The configuration in force.
    pub options: Arc<Options>,
    /// The default values of options.
    pub defaults: Arc<Settings>,
    /// The path of the torrc, if one was read.
    pub torrc: Option<PathBuf>,
    /// The path of the defaults torrc, whether or not there is one.
    pub defaults_torrc: Option<PathBuf>,
    /// The relay's fingerprint, in hexadecimal; `None`: the node is no relay.
    pub fingerprint: Option<String>,
    /// Open listeners: the kind in `net/listeners/KIND`, and the address.
    pub listeners: Vec<(&'static str, String)>,
    /// Bytes read by connections since the start.
    pub read: u64,
    /// Bytes written by connections since the start.
    pub written: u64,
    /// Bytes read and written in each of the last seconds, oldest first.
    pub recent: Vec<(u64, u64)>,
    /// Onionskins of relays since the start; `None`: the node is no relay.
    pub handshakes: Option<HandshakeCounts>,
    /// The self-test reached the ORPorts, or AssumeReachable is set.
    pub reachable: bool,
    /// The effective exit policy; `None`: the node is no relay.
    pub exit_policy: Option<ExitPolicy>,
    /// Addresses that the exit policy rejects besides those of torrc.
    pub rejected: Vec<IpAddr>,
    /// Bootstrap progress of a relay that is no client.
    pub bootstrap: Option<BootstrapView>,
    /// An authority has accepted the descriptor.
    pub accepted: bool,
    /// Progress of the fetches of the relay's directory; `None`: the node is no relay.
    pub downloads: Option<Arc<Downloads>>,
    /// The node's public IPv4 and IPv6 addresses, as far as they are known.
    pub addresses: Vec<IpAddr>,
    /// Usage of AccountingMax.
    pub accounting: weft_counts::accounting::View,
    /// `status/clients-seen` of a bridge.
    pub clients_seen: Option<String>,
    /// The node is shutting down.
    pub exiting: bool,
    pub started: Instant,
    /// The limit of open files.
    pub max_files: usize,
    /// The effective MaxMemInQueues, in bytes.
    pub max_queues: u64,
}

/// A circuit that begins at this node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CircuitView {
    pub id: u64,
    /// `LAUNCHED`, `BUILT`, `GUARD_WAIT`, `EXTENDED`, `FAILED`, `CLOSED`.
    pub status: &'static str,
    /// The relays that it has been extended to: RSA identity, nickname.
    pub path: Vec<(RsaIdentity, String)>,
    /// `ONEHOP_TUNNEL`, `IS_INTERNAL`, `NEED_CAPACITY`, `NEED_UPTIME`.
    pub build_flags: Vec<&'static str>,
    /// `GENERAL`, `CONTROLLER`, …
    pub purpose: &'static str,
    pub created: SystemTime,
    /// The SOCKS credentials of its streams, if all have the same.
    pub credentials: Option<Arc<AppCredentials>>,
    /// Measured speed.
    pub speed: Speed,
    /// The conflux set that it is a leg of: half of its nonce. The round trip is that of CONFLUX_LINK.
    pub conflux: Option<[u8; 16]>,
}

/// Speed and use of a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Speed {
    /// Time that it took to build.
    pub build_time: Option<Duration>,
    /// Round-trip time, if it was measured.
    pub round_trip: Option<Duration>,
    /// The sum of its relays' weights, in 1/(Mbit/s), if they were asked.
    pub weight: Option<f64>,
    /// Number of them whose weight is known.
    pub stated: usize,
    /// Streams that it was given so far.
    pub uses: u32,
}

/// A relay's LongName (control-spec 2.4): `$FINGERPRINT~nickname`.
#[must_use]
pub(crate) fn long_name(rsa: &RsaIdentity, nickname: &str) -> String {
    // A bridge that has stated no name yet goes by its address.
    let is_name = (1..=19).contains(&nickname.len())
        && nickname.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_name {
        true => format!("${rsa}~{nickname}"),
        false => format!("${rsa}"),
    }
}

fn push_credentials(fields: &mut Fields, credentials: Option<&AppCredentials>) {
    let Some(credentials) = credentials else {
        return;
    };
    for (key, value) in [
        ("SOCKS_USERNAME", &credentials.user),
        ("SOCKS_PASSWORD", &credentials.password),
    ] {
        if !value.is_empty() {
            fields.quoted(key, value);
        }
    }
}

impl CircuitView {
    /// Its line in `circuit-pool`: what [`fields`](Self::fields) has of its path, and its speed in milliseconds and
    /// 1/(Mbit/s).
    #[must_use]
    pub(crate) fn describe_pool(&self) -> String {
        let mut fields = self.path_fields();
        let Speed {
            build_time,
            round_trip,
            weight,
            stated,
            uses,
        } = self.speed;
        fields.key("PURPOSE", self.purpose);
        fields.optional("BUILD_MS", build_time.map(millis));
        fields.optional("RTT_MS", round_trip.map(millis));
        if let Some(weight) = weight {
            fields.key("WEIGHT", weight).key("STATED", stated);
        }
        fields.key("STREAMS", uses);
        self.push_conflux(&mut fields);
        fields.into_text()
    }

    /// The set, and the round trip in microseconds.
    fn push_conflux(&self, fields: &mut Fields) {
        let Some(set) = &self.conflux else {
            return;
        };
        let set: String = set.iter().map(|byte| format!("{byte:02X}")).collect();
        fields.key("CONFLUX_ID", set);
        let micros = self.speed.round_trip.map(|time| time.as_micros());
        fields.optional("CONFLUX_RTT", micros);
    }

    fn path_fields(&self) -> Fields {
        let mut fields = Fields::default();
        fields.word(self.id).word(self.status);
        let path: Vec<_> = self
            .path
            .iter()
            .map(|(rsa, name)| long_name(rsa, name))
            .collect();
        if !path.is_empty() {
            fields.word(path.join(","));
        }
        fields
    }

    /// Its line in `circuit-status` and CIRC events (circuit_describe_status_for_controller). With CircuitAcceptance rtt or
    /// both there is its round trip, `RTT_MS`, at the end.
    #[must_use]
    pub(crate) fn fields(&self) -> Fields {
        let mut fields = self.path_fields();
        if !self.build_flags.is_empty() {
            fields.key("BUILD_FLAGS", self.build_flags.join(","));
        }
        fields.key("PURPOSE", self.purpose);
        fields.key("TIME_CREATED", iso_time_micros(self.created));
        push_credentials(&mut fields, self.credentials.as_deref());
        if self.conflux.is_some() {
            self.push_conflux(&mut fields);
        } else {
            fields.optional("RTT_MS", self.speed.round_trip.map(millis));
        }
        fields
    }
}

/// Milliseconds with one digit behind the point.
fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

/// A stream that begins at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamView {
    pub id: u64,
    /// `NEW`, `NEWRESOLVE`, `SENTCONNECT`, `SENTRESOLVE`, `SUCCEEDED`, `FAILED`, `CLOSED`,
    /// `DETACHED`, `CONTROLLER_WAIT`, `REMAP`.
    pub status: &'static str,
    /// The circuit that it is attached to; 0: none.
    pub circuit: u64,
    /// Host and port of the destination.
    pub target: String,
    /// The application's address.
    pub source: Option<SocketAddr>,
    /// `USER`, `DNS_REQUEST`, `DIR_FETCH`, …
    pub purpose: &'static str,
    /// `SOCKS4`, `SOCKS5`, `HTTPCONNECT`, `DNS`, `UNKNOWN`.
    pub protocol: &'static str,
    /// The number of NEWNYMs before it.
    pub nym_epoch: u64,
    /// The session group of its listener.
    pub session_group: i64,
    /// The fields by which it is isolated (`CLIENTADDR`).
    pub isolation: Vec<&'static str>,
    /// Its SOCKS credentials.
    pub credentials: Option<Arc<AppCredentials>>,
}

impl StreamView {
    fn begin(&self) -> Fields {
        let mut fields = Fields::default();
        fields.word(self.id).word(self.status);
        fields.word(self.circuit).word(&self.target);
        fields
    }

    /// The keyword arguments of its line (entry_connection_describe_status_for_controller).
    fn push_details(&self, fields: &mut Fields) {
        push_credentials(fields, self.credentials.as_deref());
        fields.key("CLIENT_PROTOCOL", self.protocol);
        fields.key("NYM_EPOCH", self.nym_epoch);
        fields.key("SESSION_GROUP", self.session_group);
        fields.key("ISO_FIELDS", self.isolation.join(","));
    }

    /// Its line in `stream-status`: C tor's four words; the second is NEW for all that wait.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        let status = match self.status {
            "CONTROLLER_WAIT" => "NEW",
            status => status,
        };
        let line = StreamView {
            status,
            ..self.clone()
        };
        line.begin().into_text()
    }

    /// Its line in a STREAM event.
    #[must_use]
    pub(crate) fn event_fields(&self, reasons: &[(&'static str, &'static str)]) -> Fields {
        let mut fields = self.begin();
        for &(key, reason) in reasons {
            fields.key(key, reason);
        }
        if matches!(self.status, "NEW" | "NEWRESOLVE") {
            fields.optional("SOURCE_ADDR", self.source);
            fields.key("PURPOSE", self.purpose);
        }
        self.push_details(&mut fields);
        fields
    }
}

/// A link to another relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkView {
    pub id: u64,
    /// A [`long_name`], or the peer's address.
    pub target: String,
    /// `NEW`, `LAUNCHED`, `CONNECTED`, `FAILED`, `CLOSED`.
    pub status: &'static str,
}

/// The progress of bootstrapping (control-spec 5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BootstrapView {
    /// Per cent.
    pub progress: u8,
    /// The phase, for programs.
    pub tag: String,
    /// The phase, for people.
    pub summary: String,
    /// The problem that holds it up, in the words of its event.
    pub problem: Option<String>,
}

impl BootstrapView {
    /// Its line in `status/bootstrap-phase` and in STATUS_CLIENT, from the severity on.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!("WARN {problem}");
        }
        let mut fields = Fields::default();
        fields.word("NOTICE").word("BOOTSTRAP");
        fields.key("PROGRESS", self.progress);
        fields.key("TAG", &self.tag);
        fields.quoted("SUMMARY", self.summary.as_bytes());
        fields.into_text()
    }
}

/// `2026-11-22T01:02:03.000004`.
#[must_use]
pub(crate) fn iso_time_micros(time: SystemTime) -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]");
    OffsetDateTime::from(time)
        .format(format)
        .unwrap_or_default()
}

/// `2026-11-22 01:02:03`, or with a `T` in the middle.
#[must_use]
pub(crate) fn iso_time(time: OffsetDateTime, middle: char) -> String {
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
            path: vec![
                ([0xab; 20].into(), "one".to_owned()),
                ([1; 20].into(), String::new()),
            ],
            build_flags: vec!["NEED_CAPACITY"],
            purpose: "GENERAL",
            created,
            credentials: Some(Arc::new(AppCredentials {
                user: b"a\"".to_vec(),
                password: Vec::new(),
            })),
            speed: Speed::default(),
            conflux: None,
        };
        assert_eq!(
            circuit.fields().text(),
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
        assert_eq!(circuit.fields().text(), expected);
        assert_eq!(
            circuit.describe_pool(),
            "7 LAUNCHED PURPOSE=GENERAL STREAMS=0"
        );
        circuit.speed = Speed {
            build_time: Some(Duration::from_millis(812)),
            round_trip: Some(Duration::from_micros(300_050)),
            weight: Some(0.125),
            stated: 2,
            uses: 3,
        };
        assert_eq!(circuit.fields().text(), format!("{expected} RTT_MS=300.1"));
        let pool = "7 LAUNCHED PURPOSE=GENERAL BUILD_MS=812.0 RTT_MS=300.1 WEIGHT=0.125 STATED=2 STREAMS=3";
        assert_eq!(circuit.describe_pool(), pool);
        circuit.conflux = Some([0x6d; 16]);
        let leg = format!(" CONFLUX_ID={} CONFLUX_RTT=300050", "6D".repeat(16));
        assert_eq!(circuit.fields().text(), format!("{expected}{leg}"));
        assert_eq!(circuit.describe_pool(), format!("{pool}{leg}"));
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
        assert_eq!(stream.describe(), "9 NEW 0 example.com:80");
        let held = StreamView {
            status: "CONTROLLER_WAIT",
            ..stream.clone()
        };
        assert_eq!(held.describe(), "9 NEW 0 example.com:80");
        assert_eq!(
            stream.event_fields(&[]).text(),
            format!("9 NEW 0 example.com:80 SOURCE_ADDR=127.0.0.1:4000 PURPOSE=USER {details}")
        );
    }
}
