//! Clients that measure circuits (Schrock 2017, 4.2 and 4.3): each stream gets one of its own, whose build time and round trip are
//! measured before the stream is on it.

use std::collections::BTreeMap;
use std::time::Duration;

use weft_client::CircuitInfo;
use weft_core::address::ConnectionId;
use weft_core::origin::{AppRequest, OriginId};
use weft_model::traffic::Record;

use crate::results::MeasuredCircuit;

/// The streams of such a client, and what it has measured.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// The user's number of a stream that waits for a circuit.
    numbers: BTreeMap<ConnectionId, u32>,
    /// Of each number, the circuit that the stream was put on last, and when its BEGIN was sent.
    on: BTreeMap<u32, (OriginId, Duration)>,
    pub(super) measured: Vec<MeasuredCircuit>,
}

impl Measuring {
    /// Credentials that isolate a stream from all others.
    pub(super) fn credentials(number: u32) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    /// The user asked for a stream.
    pub(super) fn asked(&mut self, stream: ConnectionId, request: &AppRequest) {
        let user = request.credentials.as_ref().map(|one| one.user.as_slice());
        if let Some(Ok(bytes)) = user.map(<[u8; 4]>::try_from) {
            self.numbers.insert(stream, u32::from_be_bytes(bytes));
        }
    }

    /// A stream is put on a circuit; perhaps not its first.
    pub(super) fn attached(&mut self, stream: ConnectionId, circuit: OriginId, elapsed: Duration) {
        if let Some(number) = self.numbers.get(&stream) {
            self.on.insert(*number, (circuit, elapsed));
        }
    }

    /// A stream is over: which circuit it was on.
    pub(super) fn ended(&mut self, number: u32) -> Option<(OriginId, Duration)> {
        self.numbers.retain(|_, one| *one != number);
        self.on.remove(&number)
    }

    /// The stream's times, on a circuit whose build time and round trip are known.
    pub(super) fn note(
        &mut self,
        record: &Record,
        begun: Duration,
        circuit: &CircuitInfo,
        began: Duration,
    ) {
        // Times of a record are since the user wanted the stream, when there was no circuit.
        let since_begin = |time: Duration| (record.started + time).checked_sub(begun);
        let first = record.time_to_first_byte().and_then(since_begin);
        let last = record.time_to_last_byte().and_then(since_begin);
        let (Some(build), Some(round_trip)) = (circuit.build_time, circuit.round_trip) else {
            return;
        };
        let (Some(latency), Some(last)) = (first, last.filter(|last| !last.is_zero())) else {
            return;
        };
        self.measured.push(MeasuredCircuit {
            client: record.client.clone(),
            began,
            build,
            round_trip,
            latency,
            bandwidth_mbit: record.times.down.bytes as f64 * 8e-6 / last.as_secs_f64(),
        });
    }
}
