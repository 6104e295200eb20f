//! The report of a connection thread to the controller: its load, its queues and its counters (Engler
//! and Goldberg 2021, 4.3, 4.5).

use std::time::Duration;

use super::activity::Activity;
use crate::address::{ConnectionId, ThreadId};
use crate::memory::ledger::Ledger;
use weft_counts::extrainfo::{Directions, PaddingTotals, PortTraffic};

/// Links that a thread names in a report: the heaviest.
pub const HEAVIEST: usize = 16;

/// The report of a connection thread, sent several times a second.
#[derive(Clone, Debug)]
pub struct Report {
    /// The thread.
    pub thread: ThreadId,
    /// Recent load: EWMA of bytes read and written, per second.
    pub bytes_per_second: f64,
    /// Everything that it holds.
    pub ledger: Ledger,
    /// Bytes of the ledger in TLS and socket buffers, and in cells that found no room in a ring.
    pub buffered: u64,
    /// Number of requests to free memory that the thread has carried out.
    pub memory_rounds: u64,
    /// Open links.
    pub links: u32,
    /// Circuit halves.
    pub halves: u32,
    /// Halves with keys: the circuits, each counted once.
    pub circuits: u32,
    /// Edges.
    pub edges: u32,
    /// The thread's links that carry most (at most [`HEAVIEST`]).
    pub heaviest: Vec<HeavyLink>,
    /// Fill levels of its rings.
    pub rings: RingDepths,
    /// Processor time of the thread since it started.
    pub cpu: Duration,
    /// Bytes that exits moved, by port, since the last report; only while they are counted.
    pub exit_ports: PortTraffic,
    /// Traffic of connections and queues since the last report; only while it is measured.
    pub activity: Activity,
    /// Connections by the way that they were used, since the thread started; only while that is counted.
    pub directions: Directions,
    /// Totals since the thread started.
    pub totals: Totals,
}

/// A link, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeavyLink {
    /// Its connection.
    pub connection: ConnectionId,
    /// Bytes of cells in both directions.
    pub bytes_per_second: f64,
}

/// Fill levels of a connection thread's rings when it emptied them: the highest since its last
/// report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingDepths {
    /// Control messages from any one thread.
    pub control: u32,
    /// Batches of cells from any one thread.
    pub cells: u32,
    /// Messages from the controller.
    pub controller: u32,
    /// Cells for other threads that found no room; as of the report.
    pub stuck_cells: u32,
}

impl RingDepths {
    /// Notes the lengths of one thread's lanes.
    pub fn see_peer(&mut self, control: usize, cells: usize) {
        raise(&mut self.control, control);
        raise(&mut self.cells, cells);
    }

    /// Notes the length of the controller's lane.
    pub fn see_controller(&mut self, messages: usize) {
        raise(&mut self.controller, messages);
    }
}

/// Raises a mark to a length.
fn raise(mark: &mut u32, length: usize) {
    *mark = (*mark).max(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Counters and marks of one connection thread since it started. Only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read from sockets, TLS included; none of private addresses, unless these count
    /// (`CountPrivateBandwidth`).
    pub bytes_read: u64,
    /// Bytes written to sockets, in the same way.
    pub bytes_written: u64,
    /// Part of `bytes_read` over IPv6.
    pub bytes_read_ipv6: u64,
    /// Part of `bytes_written` over IPv6.
    pub bytes_written_ipv6: u64,
    /// Relay cells passed on.
    pub cells_relayed: u64,
    /// Relay cells that were for this relay.
    pub cells_recognized: u64,
    /// Cells for circuits that have closed, or of unknown commands.
    pub cells_dropped: u64,
    /// Padding cells received.
    pub padding_received: u64,
    /// Padding cells sent.
    pub padding_sent: u64,
    /// Fixed-length cells of links.
    pub link_cells: LinkCells,
    /// DESTROY cells received.
    pub destroys_received: u64,
    /// RELAY_DROP messages received.
    pub drops_received: u64,
    /// Circuits closed because a cell queue reached its bound.
    pub queues_overflowed: u64,
    /// Part of these with a full forward queue.
    pub queues_overflowed_forward: u64,
    /// Circuits closed to free memory.
    pub killed_for_memory: u64,
    /// Links closed to free memory.
    pub links_killed_for_memory: u64,
    /// Onionskins, extensions and streams that gave way while they waited for the controller, or found
    /// no room.
    pub requests_displaced: u64,
    /// Bytes that closing circuits, streams and links for memory freed.
    pub freed_for_memory: u64,
    /// Circuits closed because something waited too long.
    pub timed_out: u64,
    /// Circuits closed for breaking the protocol.
    pub protocol_errors: u64,
    /// Counts of streams.
    pub streams: StreamTotals,
    /// Scheduler runs.
    pub scheduler_runs: u64,
    /// Cells that they chose.
    pub cells_scheduled: u64,
    /// Times that a link's socket was read and gave bytes.
    pub link_reads: u64,
    /// Times that a link's socket was written to and took bytes.
    pub link_writes: u64,
    /// Times that the kernel was asked how much a link's socket may be given.
    pub kernel_asked: u64,
    /// Requests of clients and onion services that meet here.
    pub rendezvous: RendezvousTotals,
    /// Counts of introductions of clients to onion services.
    pub intro: IntroTotals,
    /// Counts of padding machines.
    pub circpad: CircpadTotals,
    /// Counts of tunnels.
    pub tunnels: TunnelTotals,
    /// Links that came from another thread.
    pub links_moved: u64,
    /// Circuit halves that came with them.
    pub halves_moved: u64,
    /// Turns of the thread's loop.
    pub turns: u64,
    /// Times that reading waited for the bandwidth that all connections share.
    pub reads_limited: u64,
    /// Times that writing waited for the bandwidth that all connections share.
    pub writes_limited: u64,
    /// Times that a circuit asked for this relay's weight.
    pub abra_asked: u64,
    /// Statements about it that were sent.
    pub abra_sent: u64,
    /// Statements of other relays that were dropped because too many came.
    pub abra_dropped: u64,
}

impl Totals {
    /// Padding traffic, for the extra-info document.
    #[must_use]
    pub fn padding(&self) -> PaddingTotals {
        let cells = self.link_cells;
        PaddingTotals {
            write_drop: self.circpad.drops_sent,
            write_pad: self.padding_sent,
            write_total: cells.written,
            read_drop: self.drops_received,
            read_pad: self.padding_received,
            read_total: cells.read,
            enabled_read_pad: cells.padding_read,
            enabled_read_total: cells.padded_read,
            enabled_write_pad: cells.padding_written,
            enabled_write_total: cells.padded_written,
        }
    }
}

/// Results of requests about rendezvous (rend-spec-v3 4.1), as far as connection threads decide
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RendezvousTotals {
    /// ESTABLISH_RENDEZVOUS that were granted.
    pub established: u64,
    /// ESTABLISH_RENDEZVOUS on circuits with another use.
    pub establish_unsuitable: u64,
    /// ESTABLISH_RENDEZVOUS without a valid cookie.
    pub establish_malformed: u64,
    /// ESTABLISH_RENDEZVOUS whose circuit was closed before the answer.
    pub establish_dead: u64,
    /// RENDEZVOUS1 whose circuit was joined to the one that waited.
    pub joined: u64,
    /// RENDEZVOUS1 on circuits with another use.
    pub join_unsuitable: u64,
    /// RENDEZVOUS1 without a whole cookie.
    pub join_malformed: u64,
    /// RENDEZVOUS1 whose waiting circuit was gone when they were to be joined.
    pub join_dead: u64,
    /// Relay cells passed on between circuits that were joined, in both directions: what `hidserv-rend-v3-relayed-cells` of
    /// an extra-info document is made of.
    pub cells: u64,
}

/// Results of requests about introductions (rend-spec-v3 3.1, 3.2), as far as connection threads decide that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntroTotals {
    /// ESTABLISH_INTRO that were granted.
    pub established: u64,
    /// ESTABLISH_INTRO on circuits with another use.
    pub establish_unsuitable: u64,
    /// ESTABLISH_INTRO that cannot be parsed, or have a wrong MAC.
    pub establish_malformed: u64,
    /// ESTABLISH_INTRO whose circuit was closed before the answer.
    pub establish_dead: u64,
    /// INTRODUCE1 that were passed on.
    pub introduced: u64,
    /// INTRODUCE1 that are too short to be answered.
    pub introduce_malformed: u64,
    /// INTRODUCE1 on a circuit that had already carried one.
    pub introduce_reused: u64,
    /// INTRODUCE1 whose service's circuit was closed, or does not drain its queue.
    pub introduce_dead: u64,
}

/// Counts of circuits' padding machines (padding-spec 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircpadTotals {
    /// Machines that were started.
    pub started: u64,
    /// Requests to start one that is not known.
    pub refused: u64,
    /// Machines that were stopped by clients.
    pub stopped: u64,
    /// Machines that came to their end.
    pub ended: u64,
    /// DROPs sent.
    pub drops_sent: u64,
    /// DROPs that were not sent, because too much waited in the circuit's queue.
    pub drops_held: u64,
}

/// Fixed-length cells of open links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCells {
    /// Cells received.
    pub read: u64,
    /// Cells sent.
    pub written: u64,
    /// Part of `read` on links with padding.
    pub padded_read: u64,
    /// Part of `written` on links with padding.
    pub padded_written: u64,
    /// PADDING cells among `padded_read`.
    pub padding_read: u64,
    /// PADDING cells among `padded_written`.
    pub padding_written: u64,
    /// Links that a timer for padding runs for, now.
    pub timers: u64,
}

/// Counts of tunnels that end here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelTotals {
    /// CONFLUX_LINKs received.
    pub links: u64,
    /// Tunnels made.
    pub made: u64,
    /// Legs linked.
    pub linked: u64,
    /// Tunnels closed.
    pub closed: u64,
    /// Tunnels closed because a leg closed with messages under way.
    pub broken: u64,
    /// Tunnels closed because a leg was linked too late for messages sent before.
    pub lost: u64,
    /// Tunnels closed because too much arrived before messages sent earlier.
    pub overflowed: u64,
    /// CONFLUX_SWITCHes sent.
    pub switches: u64,
    /// Messages that had to wait for others that were sent before them.
    pub reordered: u64,
    /// Messages sent again, because a leg had closed or stood still (mTor).
    pub again: u64,
    /// Legs of our own that were found to be slow (mTor).
    pub slow: u64,
    /// Legs that were given up by MTOR_DROP, of either end's.
    pub legs_dropped: u64,
    /// Linked legs that closed before their tunnel and without being given up.
    pub legs_lost: u64,
    /// Most bytes that ever waited in one tunnel for messages that were sent before them: of all tunnels, the one that had most.
    pub reorder_bytes_max: u64,
}

/// Counts of streams that end here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// BEGINs received.
    pub begin: u64,
    /// BEGIN_DIRs received.
    pub begin_dir: u64,
    /// RESOLVEs received.
    pub resolve: u64,
    /// Streams that were connected.
    pub connected: u64,
    /// Bytes taken off circuits.
    pub(crate) delivered: u64,
    /// Bytes put onto circuits.
    pub(crate) packaged: u64,
    /// Streams ended because their socket took nothing while too much came.
    pub overflowed: u64,
    /// SENDMEs, XONs and XOFFs that broke the rules.
    pub flow_violations: u64,
    /// Messages of streams that we ended, from far ends that did not know yet.
    pub late: u64,
    /// Messages of unknown streams that no honest peer sends: each closed its circuit.
    pub stray: u64,
    /// BEGINs and RESOLVEs past what one circuit may ask for.
    pub too_many: u64,
}

/// Adds the counters of another thread, field by field, and keeps the larger of two marks; one that is missing here does not compile.
macro_rules! add_counters {
    ($type:ident { $($field:ident),* $(,)? } $(max { $($mark:ident),* })?) => {
        impl std::ops::AddAssign for $type {
            fn add_assign(&mut self, other: $type) {
                let $type { $($field,)* $($($mark),*)? } = other;
                $(self.$field += $field;)*
                $($(self.$mark = self.$mark.max($mark);)*)?
            }
        }
    };
}

add_counters!(StreamTotals {
    begin,
    begin_dir,
    resolve,
    connected,
    delivered,
    packaged,
    overflowed,
    flow_violations,
    late,
    stray,
    too_many,
});

add_counters!(LinkCells {
    read,
    written,
    padded_read,
    padded_written,
    padding_read,
    padding_written,
    timers,
});

add_counters!(RendezvousTotals {
    established,
    establish_unsuitable,
    establish_malformed,
    establish_dead,
    joined,
    join_unsuitable,
    join_malformed,
    join_dead,
    cells,
});

add_counters!(IntroTotals {
    established,
    establish_unsuitable,
    establish_malformed,
    establish_dead,
    introduced,
    introduce_malformed,
    introduce_reused,
    introduce_dead,
});

add_counters!(CircpadTotals {
    started,
    refused,
    stopped,
    ended,
    drops_sent,
    drops_held,
});

add_counters!(TunnelTotals {
    links,
    made,
    linked,
    closed,
    broken,
    lost,
    overflowed,
    switches,
    reordered,
    again,
    slow,
    legs_dropped,
    legs_lost,
} max { reorder_bytes_max });

add_counters!(Totals {
    bytes_read,
    bytes_written,
    bytes_read_ipv6,
    bytes_written_ipv6,
    cells_relayed,
    cells_recognized,
    cells_dropped,
    padding_received,
    padding_sent,
    link_cells,
    destroys_received,
    drops_received,
    queues_overflowed,
    queues_overflowed_forward,
    killed_for_memory,
    links_killed_for_memory,
    requests_displaced,
    freed_for_memory,
    timed_out,
    protocol_errors,
    streams,
    scheduler_runs,
    cells_scheduled,
    link_reads,
    link_writes,
    kernel_asked,
    rendezvous,
    intro,
    circpad,
    tunnels,
    links_moved,
    halves_moved,
    turns,
    reads_limited,
    writes_limited,
    abra_asked,
    abra_sent,
    abra_dropped,
});
