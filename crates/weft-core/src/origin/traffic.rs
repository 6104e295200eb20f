//! Traffic of a circuit that begins here, as shown to controllers (control-spec 4.1.22, CIRC_BW).
//!
//! Every relay cell that arrives counts as read. Only those that an honest far end may have sent
//! count as delivered and overhead, too: what is missing there was dropped, which is how monitors
//! such as vanguards' bandguards find cells that mark a circuit.

use std::time::Duration;

use weft_cell::BODY_LEN;
use weft_cell::relay::MAX_DATA;

use crate::address::OriginId;

/// Bytes of one circuit since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitTraffic {
    /// Relay cells that arrived, with relay headers and without circuit headers.
    pub read: u64,
    /// Relay cells that were sent, with relay headers and without circuit headers.
    pub written: u64,
    /// Data of valid messages in `read`.
    pub delivered_read: u64,
    /// Rest of the cells of valid messages in `read`.
    pub overhead_read: u64,
    /// Data of messages in `written`.
    pub delivered_written: u64,
    /// Rest of the cells of messages in `written`.
    pub overhead_written: u64,
}

impl CircuitTraffic {
    /// A relay cell arrived.
    #[inline]
    pub(crate) fn note_read(&mut self) {
        self.read += BODY_LEN as u64;
    }

    /// Notes a valid message with this number of data bytes.
    #[inline]
    pub(crate) fn note_valid(&mut self, data: usize) {
        self.delivered_read += data as u64;
        self.overhead_read += MAX_DATA.saturating_sub(data) as u64;
    }

    /// Notes a relay cell that was sent, with this number of data bytes.
    #[inline]
    pub(crate) fn note_written(&mut self, data: usize) {
        self.written += BODY_LEN as u64;
        self.delivered_written += data as u64;
        self.overhead_written += MAX_DATA.saturating_sub(data) as u64;
    }

    /// Nothing was carried.
    pub fn is_empty(&self) -> bool {
        self.read == 0 && self.written == 0
    }
}

/// The state of a circuit's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// The window still grows as in slow start.
    pub slow_start: bool,
    /// The congestion window, in cells.
    pub window: u32,
    /// The smoothed round-trip time, and the smallest; zero until one was measured.
    pub rtt: (Duration, Duration),
}

/// Traffic report of one circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitReport {
    /// The circuit.
    pub circuit: OriginId,
    /// Its bytes since the last report.
    pub traffic: CircuitTraffic,
    /// Congestion control with its last hop, if there is.
    pub congestion: Option<Congestion>,
}
