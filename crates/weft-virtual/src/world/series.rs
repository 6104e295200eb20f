//! Measurements of relays in each interval.

use super::ground::Wake;
use super::state::{World, nanos};
use crate::results::RelayResults;

impl World {
    /// An interval is over.
    pub(super) fn sample(&mut self) {
        let relays = self.nodes.iter().take(self.relays);
        for ((place, node), number) in relays.enumerate().zip(0..) {
            self.ground.enter(number);
            let now = self.ground.now();
            let written: u64 = node.threads.iter().map(|thread| thread.written).sum();
            if let (Some(series), Some(before)) =
                (self.series.get_mut(place), self.before.get_mut(place))
            {
                series.written.push(written.saturating_sub(*before));
                *before = written;
                series.queued.push(node.held(now));
                series.weights.push(node.controller.abra().weight);
            }
        }
        let clients = self.nodes.iter_mut().skip(self.relays);
        for client in clients.filter_map(|node| node.client.as_mut()) {
            let (model, carried) = client.take_carried();
            for (relay, bytes) in carried {
                if let Some(series) = self.series.get_mut(relay as usize) {
                    note_carried(series, model, bytes);
                }
            }
        }
        let next = self.ground.nanos() + nanos(self.interval);
        self.ground.wake(next, Wake::Sample);
    }
}

/// Adds bytes of clients with this model to those of the relay's last interval.
fn note_carried(series: &mut RelayResults, model: &str, bytes: u64) {
    let intervals = series.written.len();
    if !series.carried.contains_key(model) {
        series.carried.insert(model.to_owned(), Vec::new());
    }
    if let Some(carried) = series.carried.get_mut(model) {
        carried.resize(intervals, 0);
        if let Some(last) = carried.last_mut() {
            *last += bytes;
        }
    }
}
