//! The parameters of a relay's connection threads: the effective values of torrc and consensus.

use std::time::Duration;

use crate::extensions::circpad::CircpadParams;
use crate::flow::{CcParams, Side, StreamFlow, Terms};
use crate::limits::stream_dos::StreamDosParams;
use crate::link::padding::PaddingParams;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};

/// The shortest time after which a link without circuits is closed that leads to no relay of the
/// consensus: C tor's `CONNTIMEOUT_CLIENTS_BASE`.
const IDLE_OTHERS: Duration = Duration::from_secs(180);

/// The parameters of every connection thread of this relay. Replaced whole when one changes.
#[derive(Clone, Debug)]
pub struct RelayParams {
    /// This relay's RSA identity digest.
    pub own_rsa: RsaIdentity,
    /// This relay's ed25519 identity.
    pub own_ed25519: Ed25519Identity,
    /// EXTEND2 to private and loopback addresses is allowed (`ExtendAllowPrivateAddresses`).
    pub extend_to_private: bool,
    /// EXTEND2 over IPv6 is possible: the relay has an IPv6 ORPort.
    pub extend_over_ipv6: bool,
    /// EXTEND2 in a RELAY cell that is not RELAY_EARLY is allowed (consensus `AllowNonearlyExtend`).
    pub nonearly_extend: bool,
    /// Cells that may wait in a forward half before its circuit is closed (consensus
    /// `circ_max_cell_queue_size_out`).
    pub max_queue_forward: usize,
    /// Cells that may wait in a backward half before its circuit is closed (consensus
    /// `circ_max_cell_queue_size`).
    pub max_queue_backward: usize,
    /// Cells in the queue of a circuit that ends or begins here past which its streams wait.
    pub queue_high: usize,
    /// Cells in that queue at which the streams continue.
    pub queue_low: usize,
    /// Circuits that one link may carry. A full link to a relay gets no others from here; circuits are extended over another.
    pub max_circuits_per_link: usize,
    /// The controller is notified of the circuits of each link whenever their number changes.
    pub report_load: bool,
    /// It is also notified of links that lost packets hold up.
    pub watch_loss: bool,
    /// Interval of reports on waiting times in circuits' queues, which are measured only if this is
    /// set (`CellStatistics`, `TestingEnableCellStatsEvent`).
    pub measure_queues: Option<Duration>,
    /// EWMA half-life of circuit priority (`CircuitPriorityHalflife`).
    pub circuit_priority_half_life: Duration,
    /// Time that a half waits for an onionskin's answer, for the controller to join it, or for
    /// CREATED2.
    pub wait: Duration,
    /// A link without circuits to a relay of the consensus, at an address of that relay's, is
    /// closed after this time, a quarter more or less.
    pub idle_relay_link: Duration,
    /// Time after which a link on which nothing was written gets a PADDING cell. A link whose peer
    /// takes nothing for ten times as long is closed (`KeepalivePeriod`).
    pub keepalive: Duration,
    /// Netflow padding.
    pub padding: PaddingParams,
    /// Padding of circuits whose origins ask for it.
    pub circpad: CircpadParams,
    /// Congestion control, of circuits whose handshake agrees on it.
    pub cc: CcParams,
    /// Limits on streams that a circuit may open here.
    pub stream_dos: StreamDosParams,
    /// Circuits that ask get this relay's weight: its protocol list has `WeftAbra=1` (`AbraWeights`).
    pub serve_abra: bool,
    /// Circuits that ask become legs of conflux sets: its protocol list has `Conflux=1` (`ConfluxEnabled`, consensus
    /// `cfx_enabled`).
    pub serve_conflux: bool,
    /// Legs that one of these sets has at most (consensus `cfx_max_legs_set`).
    pub conflux_legs: usize,
    /// Circuits that ask become legs of tunnels of mTor: its protocol list has `WeftMtor=1` (`Multipath`).
    pub serve_mtor: bool,
    /// The version of SENDMEs that this node sends (consensus `sendme_emit_min_version`).
    pub sendme_emit: u8,
    /// The lowest version that it accepts (consensus `sendme_accept_min_version`).
    pub sendme_accept: u8,
}

impl RelayParams {
    /// C tor's defaults for a relay with these identities.
    pub fn new(own_rsa: RsaIdentity, own_ed25519: Ed25519Identity) -> Self {
        RelayParams {
            own_rsa,
            own_ed25519,
            extend_to_private: false,
            extend_over_ipv6: false,
            nonearly_extend: false,
            max_queue_forward: 2500,
            max_queue_backward: 2500,
            queue_high: 512,
            queue_low: 256,
            max_circuits_per_link: 65536,
            report_load: false,
            watch_loss: false,
            measure_queues: None,
            circuit_priority_half_life: Duration::from_secs(30),
            wait: Duration::from_secs(60),
            idle_relay_link: Duration::from_secs(3600),
            keepalive: Duration::from_secs(300),
            padding: PaddingParams::default(),
            circpad: CircpadParams::default(),
            cc: CcParams::default(),
            stream_dos: StreamDosParams::default(),
            serve_abra: false,
            serve_conflux: true,
            conflux_legs: 8,
            serve_mtor: false,
            sendme_emit: 1,
            sendme_accept: 0,
        }
    }

    /// The rules of a new stream.
    pub(crate) fn stream_flow(&self, terms: Terms, side: Side) -> StreamFlow {
        match terms.is_vegas() {
            true => StreamFlow::xon_xoff(&self.cc, side),
            false => StreamFlow::fixed(),
        }
    }

    /// Longest time that a link without circuits may stay open; `part`, of 256, selects a point in
    /// the range of times. As in C tor (`channelpadding_get_channel_idle_timeout`), a link that is
    /// not `listed` has 3 to 4.5 minutes, whatever its peer has proved.
    pub(crate) fn idle_limit(&self, listed: bool, part: u8) -> Duration {
        let within = |low: Duration, range: Duration| low + range * u32::from(part) / 256;
        match listed {
            true => within(self.idle_relay_link * 3 / 4, self.idle_relay_link / 2),
            false => within(IDLE_OTHERS, IDLE_OTHERS / 2),
        }
    }

    /// Upper bound of the time that a link without circuits may stay open.
    pub fn longest_idle(&self) -> Duration {
        self.idle_limit(true, u8::MAX)
            .max(self.idle_limit(false, u8::MAX))
    }
}
