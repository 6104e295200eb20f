//! The results of a run, and where its measurement begins.

use std::time::Duration;

use weft_model::traffic::records::Outcome;

use super::client::ClientResults;
use super::node::Node;
use super::state::{World, nanos};
use super::thread::Thread;
use crate::results::{RelayResults, Results, TunnelResults};

impl World {
    /// Begins the measurement anew: all streams end, clients leave their circuits, users begin after `pause`, and nothing from
    /// before that is in the results.
    pub fn restart(&mut self, pause: Duration) {
        let begin = self.ground.elapsed() + pause;
        for number in self.relays..self.nodes.len() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.enter(number);
            let now = self.ground.both();
            let Some(node) = self.nodes.get_mut(number as usize) else {
                continue;
            };
            for thread in &mut node.threads {
                thread.abort_apps(&Outcome::Unfinished, now.mono);
                // Nobody hears how they went.
                drop(thread.edges.take_finished());
                thread.ask_turn(self.ground.nanos(), &mut self.ground);
            }
            if let Some(client) = &mut node.client {
                client.restart(begin, now);
            }
            node.act(&self.common, &mut self.ground);
            self.run_user(number);
        }
        self.began = begin;
        self.relayed_before = self.relayed();
        for series in &mut self.series {
            series.written.clear();
            series.queued.clear();
            series.weights.clear();
            series.carried.clear();
        }
    }

    /// Build times of clients' circuits that are open, or were since the measurement began.
    #[must_use]
    pub fn build_times(&self) -> Vec<Duration> {
        let clients = self.nodes.iter().filter_map(|node| node.client.as_ref());
        clients.flat_map(|client| client.build_times()).collect()
    }

    /// Bytes that relays have written to links.
    fn relayed(&self) -> u64 {
        let relays = self.nodes.iter().take(self.relays);
        let threads = relays.flat_map(|node| &node.threads);
        threads.map(|thread| thread.link_bytes).sum()
    }

    /// Connections that relays have now, of every kind.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let relays = self.nodes.iter().take(self.relays);
        let threads = relays.flat_map(|node| &node.threads);
        threads.map(Thread::sockets).sum()
    }

    /// The results of the run. Streams that are still open count as unfinished.
    #[must_use]
    pub fn into_results(mut self) -> Results {
        let end = self.ground.elapsed();
        let simulated = end.saturating_sub(self.began);
        let mut results = Results {
            simulated,
            interval: self.interval,
            events: self.ground.net.handled(),
            relayed_bytes: self.relayed().saturating_sub(self.relayed_before),
            ..Results::default()
        };
        for (node, series) in self.nodes.iter().zip(self.series) {
            let worked = node.threads.iter().map(|thread| thread.worked).max();
            results.relays.push(RelayResults {
                busy: worked.unwrap_or(0) as f64 / (nanos(end).max(1)) as f64,
                circuits: node.relay.as_ref().map_or(0, |relay| relay.circuits),
                ..series
            });
        }
        for node in self.nodes.drain(self.relays..) {
            let Node {
                mut threads,
                client: Some(mut client),
                ..
            } = node
            else {
                continue;
            };
            let most = threads.iter().map(|thread| {
                let totals = thread.manager.totals();
                totals.tunnels.reorder_bytes_max
            });
            let most = most.max().unwrap_or(0);
            for app in threads
                .iter_mut()
                .flat_map(|thread| thread.take_open_apps())
            {
                client.record(app, Outcome::Unfinished, end);
            }
            let ClientResults {
                streams,
                circuits,
                measured,
                choices,
                tunnels,
            } = client.into_results();
            results.streams.extend(streams);
            results.circuits.extend(circuits);
            results.measured.extend(measured);
            results.choices.extend(choices);
            *results.tunnels.get_or_insert_default() += TunnelResults {
                reorder_bytes_max: most,
                ..tunnels
            };
        }
        for record in &mut results.streams {
            record.started = record.started.saturating_sub(self.began);
        }
        results.streams.sort_by_key(|record| record.started);
        results.circuits.sort_by_key(|circuit| circuit.began);
        results.measured.sort_by_key(|circuit| circuit.began);
        results
            .choices
            .sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        results
    }
}
