//! CONN_BW and CELL_STATS (control-spec 4.1.22, 4.1.23): what threads reported of connections and of circuits'
//! queues within a second, put together by connection and by circuit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use weft_core::address::{ConnectionId, HalfAddr};
use weft_core::message::{Activity, CommandUse, ConnectionBytes, QueueKind, QueueUse};

/// Cells that left a queue, with the connection and the circuit id that they left by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queue {
    pub connection: u64,
    pub circ_id: u32,
    /// In the order of their numbers.
    pub commands: Vec<CommandUse>,
}

/// The queues of a circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CircuitQueues {
    /// The circuit's name, if it begins here.
    pub origin: Option<u64>,
    pub inbound: Option<Queue>,
    pub outbound: Option<Queue>,
}

/// Traffic reported since the last events.
#[derive(Debug, Default)]
pub(crate) struct PendingActivity {
    connections: BTreeMap<ConnectionId, ConnectionBytes>,
    circuits: BTreeMap<HalfAddr, CircuitQueues>,
}

impl PendingActivity {
    /// Adds a thread's report.
    pub(crate) fn add(&mut self, activity: &Activity, with_queues: bool) {
        for more in &activity.connections {
            let all = (self.connections.entry(more.connection)).or_insert(ConnectionBytes {
                read: 0,
                written: 0,
                ..*more
            });
            all.read += more.read;
            all.written += more.written;
        }
        for used in activity.queues.iter().filter(|_| with_queues) {
            if !used.commands.is_empty() {
                self.circuits.entry(used.circuit).or_default().add(used);
            }
        }
    }

    /// Takes all of it.
    pub(crate) fn take(&mut self) -> (Vec<ConnectionBytes>, Vec<CircuitQueues>) {
        let connections = std::mem::take(&mut self.connections);
        let circuits = std::mem::take(&mut self.circuits);
        (
            connections.into_values().collect(),
            circuits.into_values().collect(),
        )
    }
}

impl CircuitQueues {
    fn add(&mut self, used: &QueueUse) {
        let queue = match used.kind {
            QueueKind::Inbound => &mut self.inbound,
            QueueKind::Outbound => &mut self.outbound,
            QueueKind::Origin(id) => {
                self.origin = Some(id.0);
                &mut self.outbound
            }
        };
        let queue = queue.get_or_insert_default();
        queue.connection = used.connection.0;
        queue.circ_id = used.circ_id;
        for more in &used.commands {
            let found = (queue.commands).binary_search_by_key(&more.command, |used| used.command);
            match found {
                Ok(place) => {
                    if let Some(all) = queue.commands.get_mut(place) {
                        all.cells += more.cells;
                        all.waited += more.waited;
                    }
                }
                Err(place) => queue.commands.insert(place, *more),
            }
        }
    }

    /// The line of CELL_STATS behind its name (control_events.c, `format_cell_stats`). C tor 0.4.9 counts cells only when
    /// they leave a queue.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        if let Some(id) = self.origin {
            let _ = write!(text, " ID={id}");
        }
        for (name, queue) in [("Inbound", &self.inbound), ("Outbound", &self.outbound)] {
            let Some(queue) = queue else {
                continue;
            };
            let (cells, waited): (Vec<_>, Vec<_>) = (queue.commands.iter())
                .map(|used| {
                    let command = command_name(used.command);
                    let waited = tens_of_millis(used.waited);
                    (
                        format!("{command}:{}", used.cells),
                        format!("{command}:{waited}"),
                    )
                })
                .unzip();
            let _ = write!(
                text,
                " {name}Queue={} {name}Conn={} {name}Removed={} {name}Time={}",
                queue.circ_id,
                queue.connection,
                cells.join(","),
                waited.join(",")
            );
        }
        text.trim_start().to_owned()
    }
}

/// Milliseconds, in steps of ten, as C tor has them.
fn tens_of_millis(time: Duration) -> u128 {
    time.as_millis() / 10 * 10
}

/// The rest of a line of CONN_BW. Connections to directories are none of these.
pub(crate) fn describe_connection(bytes: &ConnectionBytes) -> String {
    let kind = if bytes.exit { "EXIT" } else { "OR" };
    format!(
        "ID={} TYPE={kind} READ={} WRITTEN={}",
        bytes.connection.0, bytes.read, bytes.written
    )
}

/// C tor's `cell_command_to_string`.
fn command_name(command: u8) -> &'static str {
    match command {
        0 => "padding",
        1 => "create",
        2 => "created",
        3 => "relay",
        4 => "destroy",
        5 => "create_fast",
        6 => "created_fast",
        7 => "versions",
        8 => "netinfo",
        9 => "relay_early",
        10 => "create2",
        11 => "created2",
        128 => "vpadding",
        129 => "certs",
        130 => "auth_challenge",
        131 => "authenticate",
        132 => "authorize",
        _ => "unrecognized",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use weft_core::address::ThreadId;
    use weft_core::origin::OriginId;
    use weft_core::slots::HalfKey;

    use super::*;

    fn queue(slot: u32, kind: QueueKind, commands: &[(u8, u64, u64)]) -> QueueUse {
        QueueUse {
            circuit: HalfAddr {
                thread: ThreadId(0),
                slot: HalfKey(slot),
                generation: 0,
            },
            kind,
            connection: ConnectionId(7),
            circ_id: 5,
            since: Instant::now(),
            commands: (commands.iter())
                .map(|(command, cells, millis)| CommandUse {
                    command: *command,
                    cells: *cells,
                    waited: Duration::from_millis(*millis),
                })
                .collect(),
            closed: false,
        }
    }

    #[test]
    fn what_threads_report_of_a_circuit_is_one_event() {
        let mut pending = PendingActivity::default();
        let queues = vec![
            queue(1, QueueKind::Inbound, &[(3, 2, 25), (11, 1, 5)]),
            queue(1, QueueKind::Outbound, &[(3, 1, 0), (9, 1, 10)]),
            queue(2, QueueKind::Origin(OriginId(12)), &[(10, 1, 0)]),
            // A circuit that has ended, without cells since the last report.
            queue(3, QueueKind::Inbound, &[]),
        ];
        let first = Activity {
            queues,
            ..Activity::default()
        };
        let second = Activity {
            queues: vec![queue(1, QueueKind::Inbound, &[(3, 1, 20)])],
            ..Activity::default()
        };
        pending.add(&first, true);
        pending.add(&second, true);
        let (_, circuits) = pending.take();
        let lines: Vec<String> = circuits.iter().map(CircuitQueues::describe).collect();
        assert_eq!(
            lines,
            [
                "InboundQueue=5 InboundConn=7 InboundRemoved=relay:3,created2:1 \
                 InboundTime=relay:40,created2:0 OutboundQueue=5 OutboundConn=7 \
                 OutboundRemoved=relay:1,relay_early:1 OutboundTime=relay:0,relay_early:10",
                "ID=12 OutboundQueue=5 OutboundConn=7 OutboundRemoved=create2:1 \
                 OutboundTime=create2:0",
            ]
        );
        pending.add(&first, false);
        assert_eq!(pending.take(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn bytes_of_a_connection_add_up() {
        let mut pending = PendingActivity::default();
        let bytes = ConnectionBytes {
            connection: ConnectionId(9),
            exit: false,
            read: 1,
            written: 2,
        };
        let exit = ConnectionBytes {
            connection: ConnectionId(8),
            exit: true,
            ..bytes
        };
        let activity = Activity {
            connections: vec![bytes, exit, bytes],
            ..Activity::default()
        };
        pending.add(&activity, true);
        let (connections, _) = pending.take();
        let lines: Vec<String> = connections.iter().map(describe_connection).collect();
        assert_eq!(
            lines,
            [
                "ID=8 TYPE=EXIT READ=1 WRITTEN=2",
                "ID=9 TYPE=OR READ=2 WRITTEN=4"
            ]
        );
    }
}
