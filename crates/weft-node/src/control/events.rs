//! Asynchronous events for controllers, and their encoding (control-spec 4.1).

use super::activity::{CircuitQueues, describe_connection};
use super::fields::Fields;
use super::reply::push_data;
use super::view::{BootstrapView, CircuitView, LinkView, StreamView};
use weft_core::message::ConnectionBytes;
use weft_core::origin::traffic::{CircuitReport, CircuitTraffic};
use weft_trust::{Limit, Payer};

/// The names of events, in C tor's order (`control_event_table`), and what bounds each. SETEVENTS accepts all of them, also
/// those that this node never sends.
pub(crate) const EVENTS: [(&str, Limit); 33] = [
    ("CIRC", CAUSED),
    ("CIRC_MINOR", CAUSED),
    ("STREAM", CAUSED),
    ("ORCONN", CAUSED),
    ("BW", PACED),
    ("DEBUG", LOGGED),
    ("INFO", LOGGED),
    ("NOTICE", LOGGED),
    ("WARN", LOGGED),
    ("ERR", LOGGED),
    ("NEWDESC", DOCUMENTS),
    ("ADDRMAP", CAUSED),
    ("DESCCHANGED", DOCUMENTS),
    ("NS", DOCUMENTS),
    ("STATUS_GENERAL", STATE),
    ("STATUS_CLIENT", STATE),
    ("STATUS_SERVER", STATE),
    ("GUARD", CAUSED),
    ("STREAM_BW", PACED),
    ("CLIENTS_SEEN", STATE),
    ("NEWCONSENSUS", DOCUMENTS),
    ("BUILDTIMEOUT_SET", STATE),
    ("SIGNAL", STATE),
    ("CONF_CHANGED", STATE),
    ("CONN_BW", PACED),
    ("CELL_STATS", PACED),
    ("CIRC_BW", PACED),
    ("TRANSPORT_LAUNCHED", STATE),
    ("HS_DESC", NEVER),
    ("HS_DESC_CONTENT", NEVER),
    ("NETWORK_LIVENESS", STATE),
    ("EXTENDED", NEVER),
    ("AUTHDIR_NEWDESCS", NEVER),
];

const PACED: Limit = Limit::new(
    "once a second: a line for each circuit, stream or connection that has moved something",
    Payer::Message,
    &[
        "a_controller_that_does_not_read_loses_its_oldest_events",
        "bytes_of_streams_are_reported_while_they_flow_and_at_their_end",
    ],
);
const CAUSED: Limit = Limit::new(
    "one for each change, which peers, exits and applications may cause: {weft-node/src/control/node_backend.rs:EVENTS} that \
            a controller has not read; a value of theirs ends no field",
    Payer::Message,
    &[
        "a_controller_that_does_not_read_loses_its_oldest_events",
        "a_name_from_an_exit_forges_no_field_of_addrmap",
        "no_value_ends_its_field",
    ],
);
const LOGGED: Limit = Limit::new(
    "the log's own: what peers can cause is limited in its rate; {weft-node/src/control/node_backend.rs:EVENTS} that a \
            controller has not read",
    Payer::Message,
    &[
        "a_controller_that_does_not_read_loses_its_oldest_events",
        "what_breaks_the_protocol_is_logged_once_per_turn_and_counted_always",
    ],
);
const DOCUMENTS: Limit = Limit::new(
    "one for each document that was verified; {weft-node/src/control/node_backend.rs:EVENTS} that a controller has not \
            read, which share one text",
    Payer::Message,
    &[
        "a_controller_that_does_not_read_loses_its_oldest_events",
        "events_have_c_tors_lines",
    ],
);
const STATE: Limit = Limit::new(
    "one for each change of the node itself; {weft-node/src/control/node_backend.rs:EVENTS} that a controller has not read",
    Payer::Message,
    &[
        "a_controller_that_does_not_read_loses_its_oldest_events",
        "events_have_c_tors_lines",
    ],
);
const NEVER: Limit = Limit::new("never sent", Payer::NoOne, &["a_mask_holds_events_by_name"]);

/// The set of events that a controller has subscribed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventMask(u64);

impl EventMask {
    /// Adds an event; false: there is none of that name.
    pub(crate) fn add(&mut self, name: &str) -> bool {
        let found = EVENTS
            .iter()
            .position(|(known, _)| known.eq_ignore_ascii_case(name));
        match found {
            Some(index) => {
                self.0 |= 1 << index;
                true
            }
            None => false,
        }
    }

    #[must_use]
    pub(crate) fn has(self, name: &str) -> bool {
        EVENTS
            .iter()
            .position(|(known, _)| *known == name)
            .is_some_and(|index| self.0 & (1 << index) != 0)
    }
}

/// Why something came to its status: keyword arguments.
pub(crate) type Reasons = Vec<(&'static str, &'static str)>;

/// A name that was looked up or mapped, in the terms of ADDRMAP.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub from: String,
    /// `None`: the lookup failed.
    pub to: Option<String>,
    /// Expiry time, local and in UTC; `None`: never.
    pub expires: Option<(String, String)>,
    pub stream: Option<u64>,
}

impl Mapping {
    /// The rest of its line (control_event_address_mapped).
    fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        fields.word(&self.from);
        fields.word(self.to.as_deref().unwrap_or("<error>"));
        match &self.expires {
            Some((local, _)) => fields.quoted_word(local.as_bytes()),
            None => fields.word("NEVER"),
        };
        fields.optional("error", self.to.is_none().then_some("yes"));
        if let Some((_, utc)) = &self.expires {
            fields.quoted("EXPIRES", utc.as_bytes());
        }
        fields.quoted("CACHED", b"NO");
        fields.optional("STREAMID", self.stream);
        fields
    }
}

/// An event, with the data that its line needs.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// CIRC: the circuit, and its reasons.
    Circuit(CircuitView, Reasons),
    /// CIRC_MINOR: the circuit and its previous purpose.
    Purpose(CircuitView, &'static str),
    /// STREAM: the stream, and its reasons.
    Stream(StreamView, Reasons),
    /// ORCONN: the link, and the reason of its status.
    Link(LinkView, Option<&'static str>),
    /// Bytes read and written in the last second.
    Bandwidth(u64, u64),
    /// Bytes of streams in the last second: stream, read, written.
    StreamBandwidth(Vec<(u64, u64, u64)>),
    /// Bytes of circuits in the last second.
    CircuitBandwidth(Vec<CircuitReport>),
    /// CONN_BW: bytes of connections in the last second.
    ConnectionBandwidth(Vec<ConnectionBytes>),
    /// CELL_STATS: cells that left the queues of circuits in the last second.
    CellStats(Vec<CircuitQueues>),
    /// A log line: its severity (`NOTICE`) and text.
    Log(&'static str, String),
    /// A status event: its name (`STATUS_CLIENT`) and the rest of its line.
    Status(&'static str, String),
    /// STATUS_CLIENT BOOTSTRAP.
    Bootstrap(BootstrapView),
    /// ADDRMAP.
    Mapped(Mapping),
    /// The canonical name of a signal that the node got.
    Signal(&'static str),
    /// CONF_CHANGED: options that changed; the value, unless it is the default now.
    Configuration(Vec<(String, Option<String>)>),
    /// NEWCONSENSUS: the relays of a new consensus, in the format of `ns/all`.
    Consensus(std::sync::Arc<str>),
    /// NS: entries that differ from those of the previous consensus, in the format of `ns/all`.
    Statuses(std::sync::Arc<str>),
    /// BUILDTIMEOUT_SET: the rest of its line.
    BuildTimes(String),
    /// The guard's name, and `NEW`, `UP`, `DOWN`, `BAD`, `GOOD` or `DROPPED`.
    Guard(String, &'static str),
    /// NETWORK_LIVENESS: whether the network is up.
    Liveness(bool),
    /// NEWDESC: the names of relays with new descriptors in the directory cache.
    NewDescriptors(Vec<String>),
    /// DESCCHANGED: the relay has another descriptor.
    DescriptorChanged,
}

impl Event {
    /// The name by which SETEVENTS subscribes to it.
    #[must_use]
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Event::Circuit(..) => "CIRC",
            Event::Purpose(..) => "CIRC_MINOR",
            Event::Stream(..) => "STREAM",
            Event::Link(..) => "ORCONN",
            Event::Bandwidth(..) => "BW",
            Event::StreamBandwidth(_) => "STREAM_BW",
            Event::CircuitBandwidth(_) => "CIRC_BW",
            Event::ConnectionBandwidth(_) => "CONN_BW",
            Event::CellStats(_) => "CELL_STATS",
            Event::Log(severity, _) => severity,
            Event::Status(kind, _) => kind,
            Event::Bootstrap(_) => "STATUS_CLIENT",
            Event::Mapped(..) => "ADDRMAP",
            Event::Signal(_) => "SIGNAL",
            Event::Configuration(_) => "CONF_CHANGED",
            Event::Consensus(_) => "NEWCONSENSUS",
            Event::Statuses(_) => "NS",
            Event::BuildTimes(_) => "BUILDTIMEOUT_SET",
            Event::Guard(..) => "GUARD",
            Event::Liveness(_) => "NETWORK_LIVENESS",
            Event::NewDescriptors(_) => "NEWDESC",
            Event::DescriptorChanged => "DESCCHANGED",
        }
    }

    /// The lines for the controller. `now` is the time in the format of [`iso_time_micros`].
    ///
    /// [`iso_time_micros`]: super::view::iso_time_micros
    #[must_use]
    pub(crate) fn encode(&self, now: &str) -> String {
        let name = self.name();
        match self {
            Event::Circuit(circuit, reasons) => {
                let mut fields = circuit.fields();
                for &(key, reason) in reasons {
                    fields.key(key, reason);
                }
                line(name, fields.text())
            }
            Event::Purpose(circuit, was) => {
                let circuit = CircuitView {
                    status: "PURPOSE_CHANGED",
                    ..circuit.clone()
                };
                line(name, circuit.fields().key("OLD_PURPOSE", was).text())
            }
            Event::Stream(stream, reasons) => line(name, stream.event_fields(reasons).text()),
            Event::Link(link, reason) => {
                let LinkView { id, target, status } = link;
                let mut fields = Fields::default();
                fields.word(target).word(status);
                fields.optional("REASON", *reason).key("ID", id);
                line(name, fields.text())
            }
            Event::Bandwidth(read, written) => line(name, &format!("{read} {written}")),
            Event::StreamBandwidth(all) => each(all, |(id, read, written)| {
                // C tor's order is written, read: the application's point of view.
                line(name, &format!("{id} {written} {read} {now}"))
            }),
            Event::CircuitBandwidth(all) => {
                each(all, |report| line(name, &circuit_bandwidth(&report, now)))
            }
            Event::ConnectionBandwidth(all) => {
                each(all, |bytes| line(name, &describe_connection(&bytes)))
            }
            Event::CellStats(all) => (all.iter())
                .map(|circuit| line(name, &circuit.describe()))
                .collect(),
            Event::Log(_, text) => match text.contains('\n') {
                false => line(name, text),
                true => data(name, text),
            },
            Event::Status(_, text) => line(name, text),
            Event::Bootstrap(bootstrap) => line(name, &bootstrap.describe()),
            Event::Mapped(mapping) => line(name, mapping.fields().text()),
            Event::Signal(signal) => line(name, signal),
            Event::Configuration(all) => {
                let mut text = "650-CONF_CHANGED\r\n".to_owned();
                for (option, value) in all {
                    let value = value.as_ref().map(|value| format!("={}", one_line(value)));
                    text.push_str(&format!("650-{option}{}\r\n", value.unwrap_or_default()));
                }
                text.push_str("650 OK\r\n");
                text
            }
            Event::Consensus(relays) | Event::Statuses(relays) => data(name, relays),
            Event::BuildTimes(text) => line(name, text),
            Event::Guard(guard, status) => {
                let mut fields = Fields::default();
                line(name, fields.word("ENTRY").word(guard).word(status).text())
            }
            Event::NewDescriptors(relays) => {
                let mut fields = Fields::default();
                for relay in relays {
                    fields.word(relay);
                }
                line(name, fields.text())
            }
            Event::DescriptorChanged => format!("650 {name}\r\n"),
            Event::Liveness(live) => line(name, if *live { "UP" } else { "DOWN" }),
        }
    }
}

/// The fields of CIRC_BW, in the order of C tor's `control_event_circ_bandwidth_used_for_circ`.
fn circuit_bandwidth(report: &CircuitReport, now: &str) -> String {
    let CircuitTraffic {
        read,
        written,
        delivered_read,
        overhead_read,
        delivered_written,
        overhead_written,
    } = report.traffic;
    let mut fields = Fields::default();
    fields.key("ID", report.circuit.0);
    fields.key("READ", read).key("WRITTEN", written);
    fields.key("TIME", now);
    fields.key("DELIVERED_READ", delivered_read);
    fields.key("OVERHEAD_READ", overhead_read);
    fields.key("DELIVERED_WRITTEN", delivered_written);
    fields.key("OVERHEAD_WRITTEN", overhead_written);
    if let Some(state) = report.congestion {
        let (rtt, least) = state.rtt;
        fields.key("SS", u8::from(state.slow_start));
        fields.key("CWND", state.window);
        fields.key("RTT", rtt.as_millis());
        fields.key("MIN_RTT", least.as_millis());
    }
    fields.into_text()
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

fn line(name: &str, text: &str) -> String {
    format!("650 {name} {}\r\n", one_line(text))
}

fn data(name: &str, text: &str) -> String {
    let mut event = format!("650+{name}\r\n");
    push_data(&mut event, text);
    event.push_str("650 OK\r\n");
    event
}

fn each<T: Copy>(all: &[T], encode: impl Fn(T) -> String) -> String {
    all.iter().map(|item| encode(*item)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_core::origin::OriginId;
    use weft_core::origin::traffic::Congestion;

    use super::*;

    #[test]
    fn a_mask_holds_events_by_name() {
        let mut wanted = EventMask::default();
        assert!(wanted.add("circ") && wanted.add("NETWORK_LIVENESS"));
        assert!(!wanted.add("FROB"));
        assert!(wanted.has("CIRC") && !wanted.has("STREAM") && wanted.has("NETWORK_LIVENESS"));
    }

    /// An exit chooses the name that an address has; it could write the rest of the line.
    #[test]
    fn a_name_from_an_exit_forges_no_field_of_addrmap() {
        let show = |to: Option<&str>| {
            let mapping = Mapping {
                from: "192.0.2.1".to_owned(),
                to: to.map(str::to_owned),
                expires: Some(("LOCAL TIME".to_owned(), "UTC TIME".to_owned())),
                stream: Some(7),
            };
            Event::Mapped(mapping).encode("now")
        };
        let rest = "\"LOCAL TIME\" EXPIRES=\"UTC TIME\" CACHED=\"NO\" STREAMID=7\r\n";
        assert_eq!(
            show(Some("a.example")),
            format!("650 ADDRMAP 192.0.2.1 a.example {rest}")
        );
        assert_eq!(
            show(Some("evil.example NEVER STREAMID=9\r\n650 OK")),
            format!(
                "650 ADDRMAP 192.0.2.1 \"evil.example\\040NEVER\\040STREAMID\\0759\\r\\n650\\040OK\" {rest}"
            )
        );
        assert_eq!(
            show(None),
            format!(
                "650 ADDRMAP 192.0.2.1 <error> {}",
                rest.replace(" EXPIRES", " error=yes EXPIRES")
            )
        );
    }

    #[test]
    fn events_have_c_tors_lines() {
        let show = |event: Event| event.encode("2026-01-02T03:04:05.000006");
        assert_eq!(show(Event::Bandwidth(1, 2)), "650 BW 1 2\r\n");
        assert_eq!(show(Event::DescriptorChanged), "650 DESCCHANGED\r\n");
        let new = vec!["$AB~one".to_owned(), "$CD~two".to_owned()];
        assert_eq!(
            show(Event::NewDescriptors(new)),
            "650 NEWDESC $AB~one $CD~two\r\n"
        );
        let slept = "NOTICE HIBERNATION_STATUS STATUS=HARD".to_owned();
        assert_eq!(
            show(Event::Status("STATUS_SERVER", slept)),
            "650 STATUS_SERVER NOTICE HIBERNATION_STATUS STATUS=HARD\r\n"
        );
        let link = LinkView {
            id: 7,
            target: "$AB~one".to_owned(),
            status: "FAILED",
        };
        assert_eq!(
            show(Event::Link(link.clone(), Some("TIMEOUT"))),
            "650 ORCONN $AB~one FAILED REASON=TIMEOUT ID=7\r\n"
        );
        let link = LinkView {
            status: "CONNECTED",
            ..link
        };
        assert_eq!(
            show(Event::Link(link, None)),
            "650 ORCONN $AB~one CONNECTED ID=7\r\n"
        );
        assert_eq!(
            show(Event::Log("NOTICE", "a".to_owned())),
            "650 NOTICE a\r\n"
        );
        assert_eq!(
            show(Event::Log("WARN", "a\n.b".to_owned())),
            "650+WARN\r\na\r\n..b\r\n.\r\n650 OK\r\n"
        );
        let changed = vec![
            ("Nickname".to_owned(), Some("x".to_owned())),
            ("Log".to_owned(), None),
        ];
        assert_eq!(
            show(Event::Configuration(changed)),
            "650-CONF_CHANGED\r\n650-Nickname=x\r\n650-Log\r\n650 OK\r\n"
        );
        let bootstrap = BootstrapView {
            progress: 100,
            tag: "done".to_owned(),
            summary: "Done".to_owned(),
            problem: None,
        };
        assert_eq!(
            show(Event::Bootstrap(bootstrap)),
            "650 STATUS_CLIENT NOTICE BOOTSTRAP PROGRESS=100 TAG=done SUMMARY=\"Done\"\r\n"
        );
        assert_eq!(
            show(Event::StreamBandwidth(vec![(1, 2, 3), (4, 5, 6)])),
            "650 STREAM_BW 1 3 2 2026-01-02T03:04:05.000006\r\n\
             650 STREAM_BW 4 6 5 2026-01-02T03:04:05.000006\r\n"
        );
        let plain = CircuitReport {
            circuit: OriginId(7),
            traffic: CircuitTraffic {
                read: 1018,
                written: 509,
                delivered_read: 5,
                overhead_read: 493,
                delivered_written: 1,
                overhead_written: 497,
            },
            congestion: None,
        };
        let controlled = CircuitReport {
            circuit: OriginId(8),
            congestion: Some(Congestion {
                slow_start: true,
                window: 124,
                rtt: (Duration::from_millis(300), Duration::from_micros(200_500)),
            }),
            ..plain
        };
        assert_eq!(
            show(Event::CircuitBandwidth(vec![plain, controlled])),
            "650 CIRC_BW ID=7 READ=1018 WRITTEN=509 TIME=2026-01-02T03:04:05.000006 \
             DELIVERED_READ=5 OVERHEAD_READ=493 DELIVERED_WRITTEN=1 OVERHEAD_WRITTEN=497\r\n\
             650 CIRC_BW ID=8 READ=1018 WRITTEN=509 TIME=2026-01-02T03:04:05.000006 \
             DELIVERED_READ=5 OVERHEAD_READ=493 DELIVERED_WRITTEN=1 OVERHEAD_WRITTEN=497 \
             SS=1 CWND=124 RTT=300 MIN_RTT=200\r\n"
        );
    }
}
