//! What threads say to each other (seeds/000 Figure 4b).
//!
//! Three conversations, each over its own pair of rings: circuit half to circuit half
//! ([`HalfControl`] on the control lane, [`HalfCell`] on the cell lane), connection thread to relay
//! controller ([`ToController`]), and back ([`FromController`]). Every message is owned: sending it
//! gives it away.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use weft_cell::Cell;
use weft_cell::circ_msg::{CreateReply, CreateRequest};
use weft_cell::reason::DestroyReason;
use weft_crypto::Tor1Keys;

use crate::address::{ConnectionId, HalfAddr, ThreadId};
use crate::handshake::PeerIdentity;
use crate::memory::AgeHistogram;

/// One relay cell on its way to the half that owns the next link. Its circuit id is meaningless
/// here; the receiving half writes its own.
#[derive(Debug)]
pub struct HalfCell {
    /// The half that it comes from, which must be the receiver's peer.
    pub from: HalfAddr,
    /// The half that sends it on.
    pub to: HalfAddr,
    /// RELAY or RELAY_EARLY and the body.
    pub cell: Box<Cell>,
}

/// What one half tells another, ahead of all cells.
#[derive(Debug)]
pub enum HalfControl {
    /// The far half exists and its CREATE2 is on its way: cells may follow.
    Joined {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The new half.
        peer: HalfAddr,
        /// Which of its extensions this answers.
        extension: u32,
    },
    /// The next hop answered CREATED2: becomes an EXTENDED2 toward the origin.
    Created {
        /// The half that asked to be extended.
        to: HalfAddr,
        /// The far half, which must still be its peer.
        from: HalfAddr,
        /// The next hop's handshake.
        handshake: Vec<u8>,
    },
    /// Two circuits toward their own origins were spliced at this rendezvous point
    /// (rend-spec-v3 4.1).
    Spliced {
        /// The half that waited with a cookie.
        to: HalfAddr,
        /// The half that brought the RENDEZVOUS1.
        peer: HalfAddr,
        /// RENDEZVOUS1's handshake data, delivered as RENDEZVOUS2.
        handshake: Vec<u8>,
    },
    /// The circuit is over on the sender's side.
    Destroyed {
        /// The half that must close too.
        to: HalfAddr,
        /// The half that closed; no longer anyone's peer.
        from: HalfAddr,
        /// What DESTROY on the other link shall say.
        reason: DestroyReason,
        /// It closed because its queue was full: whoever is at the other end sent too much.
        overflowed: bool,
    },
    /// The extension could not be made; nothing was joined.
    ExtendFailed {
        /// The half that asked.
        to: HalfAddr,
        /// Which of its extensions this answers.
        extension: u32,
        /// What DESTROY shall say.
        reason: DestroyReason,
    },
}

impl HalfControl {
    /// The half this is for.
    pub fn to(&self) -> HalfAddr {
        match self {
            HalfControl::Joined { to, .. }
            | HalfControl::Created { to, .. }
            | HalfControl::Spliced { to, .. }
            | HalfControl::Destroyed { to, .. }
            | HalfControl::ExtendFailed { to, .. } => *to,
        }
    }
}

/// A request to extend a circuit to another relay, from a checked EXTEND2.
#[derive(Clone, Debug)]
pub struct ExtendRequest {
    /// Who asks.
    pub from: HalfAddr,
    /// Which of its extensions this is (a TRUNCATE may have come since).
    pub extension: u32,
    /// The next hop's addresses that we may connect to; at least one.
    pub addrs: Vec<SocketAddr>,
    /// Its RSA identity digest; never zero.
    pub rsa: [u8; 20],
    /// Its ed25519 identity, if the client named it.
    pub ed25519: Option<[u8; 32]>,
    /// CREATE2's handshake type.
    pub handshake_type: u16,
    /// CREATE2's handshake data.
    pub handshake: Arc<[u8]>,
}

/// From a connection thread to the relay controller.
#[derive(Debug)]
pub enum ToController {
    /// A link finished its handshake.
    LinkOpened {
        /// The connection.
        connection: ConnectionId,
        /// Who the peer proved to be.
        peer: PeerIdentity,
        /// The address is one that the peer's NETINFO says is its own (tor-spec 4.5).
        canonical: bool,
        /// Our clock minus the peer's, in seconds, if it said a time.
        clock_skew: Option<i64>,
        /// Our address as the peer sees it.
        my_addr: Option<IpAddr>,
    },
    /// A connection is gone, opened or not.
    LinkClosed {
        /// The connection.
        connection: ConnectionId,
        /// For circuits that waited for it.
        reason: DestroyReason,
    },
    /// A CREATE_FAST or CREATE2 arrived.
    Create {
        /// The new half, which waits.
        half: HalfAddr,
        /// The link it arrived on.
        connection: ConnectionId,
        /// The onionskin.
        request: CreateRequest,
    },
    /// An EXTEND2 arrived.
    Extend(ExtendRequest),
    /// The half waits here for a rendezvous (rend-spec-v3 4.1).
    EstablishRendezvous {
        /// The half that waits.
        half: HalfAddr,
        /// The link it came on.
        connection: ConnectionId,
        /// The cookie that the other side must show.
        cookie: [u8; 20],
    },
    /// A half that waited for a rendezvous is gone.
    RendezvousGone {
        /// The half.
        half: HalfAddr,
    },
    /// The half brings a rendezvous' other end.
    Rendezvous {
        /// The half that will be spliced.
        half: HalfAddr,
        /// The cookie.
        cookie: [u8; 20],
        /// What follows it: the handshake for the waiting client.
        handshake: Vec<u8>,
    },
    /// A circuit from this connection was closed because it filled the queue toward its next hop.
    QueueOverflowed {
        /// The connection toward the circuit's origin.
        connection: ConnectionId,
    },
    /// The periodic report (seeds/000 4.3, 4.5).
    Report(Box<Report>),
}

/// What a connection thread tells about itself, about once a second.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which thread.
    pub thread: ThreadId,
    /// Recent load: EWMA of bytes read and written, per second.
    pub bytes_per_second: f64,
    /// Bytes in cell queues by the age of their circuit's oldest cell.
    pub queued: AgeHistogram,
    /// Bytes in TLS and socket buffers.
    pub buffered: u64,
    /// Open links.
    pub links: u32,
    /// Circuit halves.
    pub halves: u32,
    /// Of these, halves toward a circuit's origin: the circuits, each counted once.
    pub circuits: u32,
    /// How deep its rings were.
    pub rings: RingDepths,
    /// Processor time of the thread since it started.
    pub cpu: Duration,
    /// Totals since the thread started.
    pub totals: Totals,
}

/// How full a connection thread found its rings when it came to empty them: the most since its
/// last report.
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

/// Counters of one connection thread since it started. Only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read from sockets, TLS included; none of private addresses, unless these count
    /// (`CountPrivateBandwidth`).
    pub bytes_read: u64,
    /// Bytes written to sockets, in the same way.
    pub bytes_written: u64,
    /// Of `bytes_read`, over IPv6.
    pub bytes_read_ipv6: u64,
    /// Of `bytes_written`, over IPv6.
    pub bytes_written_ipv6: u64,
    /// Relay cells passed on.
    pub cells_relayed: u64,
    /// Relay cells that were for this relay.
    pub cells_recognized: u64,
    /// Cells for circuits that are gone, or of unknown commands.
    pub cells_dropped: u64,
    /// Padding cells received.
    pub padding_received: u64,
    /// Padding cells sent.
    pub padding_sent: u64,
    /// DESTROY cells received.
    pub destroys_received: u64,
    /// RELAY_DROP messages received.
    pub drops_received: u64,
    /// Circuits closed because a cell queue reached its bound.
    pub queues_overflowed: u64,
    /// Of these, by a queue away from the circuit's origin.
    pub queues_overflowed_away: u64,
    /// Circuits closed to free memory.
    pub killed_for_memory: u64,
    /// Bytes that this freed.
    pub freed_for_memory: u64,
    /// Circuits closed because something waited too long.
    pub timed_out: u64,
    /// Circuits closed for breaking the protocol.
    pub protocol_errors: u64,
    /// Scheduler runs.
    pub scheduler_runs: u64,
    /// Requests of clients and onion services that meet here.
    pub rendezvous: RendezvousTotals,
    /// Turns of the thread's loop.
    pub turns: u64,
    /// Times that reading waited for the bandwidth that all connections share.
    pub reads_limited: u64,
    /// The same of writing.
    pub writes_limited: u64,
}

/// What became of requests about rendezvous (rend-spec-v3 4.1), as far as connection threads decide
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RendezvousTotals {
    /// ESTABLISH_RENDEZVOUS that were granted.
    pub established: u64,
    /// Those on circuits that are for something else.
    pub establish_unsuitable: u64,
    /// Those that are no cookie.
    pub establish_malformed: u64,
    /// Those whose circuit went before the answer.
    pub establish_dead: u64,
    /// RENDEZVOUS1 whose circuit was joined to the one that waited.
    pub joined: u64,
    /// Those on circuits that are for something else.
    pub join_unsuitable: u64,
    /// Those without a whole cookie.
    pub join_malformed: u64,
    /// Those for which nobody waited any more when it came to joining.
    pub join_dead: u64,
}

impl RendezvousTotals {
    /// Adds another thread's counters.
    fn add(&mut self, other: &RendezvousTotals) {
        self.established += other.established;
        self.establish_unsuitable += other.establish_unsuitable;
        self.establish_malformed += other.establish_malformed;
        self.establish_dead += other.establish_dead;
        self.joined += other.joined;
        self.join_unsuitable += other.join_unsuitable;
        self.join_malformed += other.join_malformed;
        self.join_dead += other.join_dead;
    }
}

impl Totals {
    /// Adds another thread's counters.
    pub fn add(&mut self, other: &Totals) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.bytes_read_ipv6 += other.bytes_read_ipv6;
        self.bytes_written_ipv6 += other.bytes_written_ipv6;
        self.cells_relayed += other.cells_relayed;
        self.cells_recognized += other.cells_recognized;
        self.cells_dropped += other.cells_dropped;
        self.padding_received += other.padding_received;
        self.padding_sent += other.padding_sent;
        self.destroys_received += other.destroys_received;
        self.drops_received += other.drops_received;
        self.queues_overflowed += other.queues_overflowed;
        self.queues_overflowed_away += other.queues_overflowed_away;
        self.killed_for_memory += other.killed_for_memory;
        self.freed_for_memory += other.freed_for_memory;
        self.timed_out += other.timed_out;
        self.protocol_errors += other.protocol_errors;
        self.scheduler_runs += other.scheduler_runs;
        self.rendezvous.add(&other.rendezvous);
        self.turns += other.turns;
        self.reads_limited += other.reads_limited;
        self.writes_limited += other.writes_limited;
    }
}

/// From the relay controller to a connection thread.
#[derive(Debug)]
pub enum FromController {
    /// Make the far half of a circuit on this link and send CREATE2.
    Join {
        /// The link.
        connection: ConnectionId,
        /// The extension that this serves.
        request: ExtendRequest,
    },
    /// An extension that will not happen.
    ExtendFailed {
        /// The half that asked.
        half: HalfAddr,
        /// Which of its extensions.
        extension: u32,
        /// What DESTROY shall say.
        reason: DestroyReason,
    },
    /// An onionskin was answered.
    Created {
        /// The half that waits for it.
        half: HalfAddr,
        /// CREATED_FAST or CREATED2.
        reply: CreateReply,
        /// The keys that the half holds from now on.
        keys: Box<Tor1Keys>,
    },
    /// An onionskin was refused.
    CreateRefused {
        /// The half that waits for it.
        half: HalfAddr,
        /// What DESTROY shall say.
        reason: DestroyReason,
    },
    /// The half's rendezvous cookie is kept.
    RendezvousEstablished {
        /// The half that asked.
        half: HalfAddr,
    },
    /// The half's circuit meets the one that waited; the other half is told by it.
    Splice {
        /// The half that brought the RENDEZVOUS1.
        half: HalfAddr,
        /// The half that waited.
        with: HalfAddr,
        /// For the waiting client.
        handshake: Vec<u8>,
    },
    /// A rendezvous or hidden-service request that cannot be served.
    CloseHalf {
        /// The half.
        half: HalfAddr,
        /// What DESTROY shall say.
        reason: DestroyReason,
    },
    /// Close this connection (denial of service, duplicate, shutting down).
    CloseLink {
        /// The connection.
        connection: ConnectionId,
    },
    /// Circuits whose oldest queued cell is at least this old die, to free memory.
    FreeMemory {
        /// The age.
        older_than: Duration,
    },
    /// New parameters (a new consensus, SIGHUP).
    Params(Arc<crate::manager::RelayParams>),
    /// Refuse new circuits; the relay is going down.
    Drain,
}
