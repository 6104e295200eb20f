//! Asynchronous events for controllers, and their encoding (control-spec 4.1).

use super::activity::{CircuitQueues, describe_connection};
use super::args::quote;
use super::reply::push_data;
use super::view::{BootstrapView, CircuitView, LinkView, StreamView};
use weft_core::message::ConnectionBytes;
use weft_core::traffic::{CircuitReport, CircuitTraffic};

/// The names of events, in C tor's order (`control_event_table`). SETEVENTS accepts all of them, also
/// those that this node never sends.
pub(crate) const NAMES: [&str; 33] = [
    "CIRC",
    "CIRC_MINOR",
    "STREAM",
    "ORCONN",
    "BW",
    "DEBUG",
    "INFO",
    "NOTICE",
    "WARN",
    "ERR",
    "NEWDESC",
    "ADDRMAP",
    "DESCCHANGED",
    "NS",
    "STATUS_GENERAL",
    "STATUS_CLIENT",
    "STATUS_SERVER",
    "GUARD",
    "STREAM_BW",
    "CLIENTS_SEEN",
    "NEWCONSENSUS",
    "BUILDTIMEOUT_SET",
    "SIGNAL",
    "CONF_CHANGED",
    "CONN_BW",
    "CELL_STATS",
    "CIRC_BW",
    "TRANSPORT_LAUNCHED",
    "HS_DESC",
    "HS_DESC_CONTENT",
    "NETWORK_LIVENESS",
    "EXTENDED",
    "AUTHDIR_NEWDESCS",
];

/// The set of events that a controller has subscribed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventMask(u64);

impl EventMask {
    /// Adds an event; false: there is none of that name.
    pub(crate) fn add(&mut self, name: &str) -> bool {
        let found = NAMES
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name));
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
        NAMES
            .iter()
            .position(|known| *known == name)
            .is_some_and(|index| self.0 & (1 << index) != 0)
    }
}

/// An event, with the data that its line needs.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// CIRC: the circuit, and its reasons with a space before each.
    Circuit(CircuitView, String),
    /// CIRC_MINOR: the circuit and its previous purpose.
    Purpose(CircuitView, &'static str),
    /// STREAM: the stream, and its reasons with a space before each.
    Stream(StreamView, String),
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
    /// ADDRMAP: from, to (`None`: the lookup failed), and the rest of the line.
    Mapped(String, Option<String>, String),
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
    /// NEWDESC: the names of relays of which the directory cache has new descriptors.
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
            Event::Circuit(circuit, more) => line(name, &format!("{}{more}", circuit.describe())),
            Event::Purpose(circuit, was) => {
                let circuit = CircuitView {
                    status: "PURPOSE_CHANGED",
                    ..circuit.clone()
                };
                line(name, &format!("{} OLD_PURPOSE={was}", circuit.describe()))
            }
            Event::Stream(stream, more) => line(name, &stream.describe_event(more)),
            Event::Link(link, reason) => {
                let reason = reason.map(|reason| format!(" REASON={reason}"));
                let reason = reason.unwrap_or_default();
                let LinkView { id, target, status } = link;
                line(name, &format!("{target} {status}{reason} ID={id}"))
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
            Event::Mapped(from, to, more) => {
                let to = to.as_deref().unwrap_or("<error>");
                line(name, &format!("{from} {to}{more}"))
            }
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
            Event::Guard(guard, status) => line(name, &format!("ENTRY {guard} {status}")),
            Event::NewDescriptors(relays) => line(name, &relays.join(" ")),
            Event::DescriptorChanged => format!("650 {name}\r\n"),
            Event::Liveness(live) => line(name, if *live { "UP" } else { "DOWN" }),
        }
    }

    /// The part of ADDRMAP after the addresses (control_event_address_mapped): the expiry in local time,
    /// then keyword arguments.
    #[must_use]
    pub(crate) fn map_details(
        local: &str,
        utc: Option<&str>,
        failed: bool,
        stream: Option<u64>,
    ) -> String {
        let mut text = match utc {
            Some(_) => format!(" {}", quote(local.as_bytes())),
            None => " NEVER".to_owned(),
        };
        if failed {
            text.push_str(" error=yes");
        }
        if let Some(utc) = utc {
            text.push_str(&format!(" EXPIRES={}", quote(utc.as_bytes())));
        }
        text.push_str(" CACHED=\"NO\"");
        if let Some(stream) = stream {
            text.push_str(&format!(" STREAMID={stream}"));
        }
        text
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
    let id = report.circuit.0;
    let mut text = format!(
        "ID={id} READ={read} WRITTEN={written} TIME={now} DELIVERED_READ={delivered_read} \
         OVERHEAD_READ={overhead_read} DELIVERED_WRITTEN={delivered_written} \
         OVERHEAD_WRITTEN={overhead_written}"
    );
    if let Some(state) = report.congestion {
        let (rtt, least) = state.rtt;
        text.push_str(&format!(
            " SS={} CWND={} RTT={} MIN_RTT={}",
            u8::from(state.slow_start),
            state.window,
            rtt.as_millis(),
            least.as_millis()
        ));
    }
    text
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
    use weft_core::traffic::Congestion;

    use super::*;

    #[test]
    fn a_mask_holds_events_by_name() {
        let mut wanted = EventMask::default();
        assert!(wanted.add("circ") && wanted.add("NETWORK_LIVENESS"));
        assert!(!wanted.add("FROB"));
        assert!(wanted.has("CIRC") && !wanted.has("STREAM") && wanted.has("NETWORK_LIVENESS"));
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
