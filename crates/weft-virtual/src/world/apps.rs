//! The streams of a client's user, as edges of its thread.

use std::time::Instant;

use weft_cell::reason::EndReason;
use weft_core::address::ConnectionId;
use weft_model::traffic::records::Outcome;
use weft_model::traffic::{Failure, FailureKind};

use super::app::{App, Finished};
use super::edge::{Edge, Outer};
use super::ground::Ground;
use super::thread::Thread;

impl Thread {
    /// A stream of the user's, which waits for a circuit from now on.
    pub(super) fn open_app(
        &mut self,
        id: ConnectionId,
        app: App,
        request: weft_core::origin::AppRequest,
        now: u64,
    ) {
        if let Some(key) = self.manager.edges_mut().adopt_application(id) {
            let place = self.edges.insert(id, key, Outer::App(Box::new(app)));
            self.edges.set_timer(place, now);
            self.manager.edge_asks(key, request);
        }
    }

    /// Takes what a user sends.
    pub(super) fn read_app(&mut self, place: usize, now: Instant, ground: &Ground) {
        let elapsed = ground.elapsed();
        loop {
            let Some(key) = self.edges.all.get(place).map(|edge| edge.key) else {
                return;
            };
            let room = self.manager.edge_room(key, now);
            let Some(Edge {
                outer: Outer::App(app),
                ..
            }) = self.edges.all.get_mut(place)
            else {
                return;
            };
            let out = app.traffic.output(elapsed);
            let count = out.len().min(room);
            let Some(bytes) = out.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            self.manager.edge_data(key, bytes, now);
            app.traffic.sent(count, elapsed);
        }
        self.edges.set_timer(place, ground.nanos());
    }

    /// Ends a user's stream whose patience is over.
    pub(super) fn check_app(&mut self, place: usize, now: Instant, ground: &mut Ground) {
        let elapsed = ground.elapsed();
        if let Some(Edge {
            outer: Outer::App(app),
            ..
        }) = self.edges.all.get_mut(place)
            && let Err(failure) = app.traffic.check(elapsed)
        {
            return self.finish_app(place, Outcome::Failed(failure), now);
        }
        self.edges.set_timer(place, ground.nanos());
    }

    pub(super) fn write_app(&mut self, place: usize, now: Instant, ground: &Ground) {
        let elapsed = ground.elapsed();
        let Some(Edge {
            key,
            outer: Outer::App(app),
            ..
        }) = self.edges.all.get_mut(place)
        else {
            return;
        };
        let key = *key;
        if self.edges.deaf || self.edges.rests {
            return;
        }
        let (bytes, over) = self.manager.edges().out(key);
        let count = bytes.len();
        let result = app.traffic.receive(bytes, elapsed);
        let is_complete = app.traffic.is_complete();
        self.manager.edge_wrote(key, count, now);
        match result {
            Err(failure) => self.finish_app(place, Outcome::Failed(failure), now),
            Ok(()) if is_complete => self.finish_app(place, Outcome::Complete, now),
            Ok(()) if over => {
                let failure = Failure::new(FailureKind::Closed, "the stream ended early");
                self.finish_app(place, Outcome::Failed(failure), now);
            }
            Ok(()) => self.edges.set_timer(place, ground.nanos()),
        }
    }

    pub(super) fn finish_app(&mut self, place: usize, outcome: Outcome, now: Instant) {
        let Some((id, key)) = (self.edges.all.get(place)).map(|edge| (edge.id, edge.key)) else {
            return;
        };
        if let Some(Outer::App(app)) = self.edges.remove(place) {
            self.edges.finished.push(Finished { id, app, outcome });
        }
        self.manager.end_edge(key, EndReason::DONE, now);
    }

    /// Ends every stream of the user's so.
    pub(super) fn abort_apps(&mut self, outcome: &Outcome, now: Instant) {
        let apps = self.edges.all.iter();
        let apps = apps.filter(|(_, edge)| matches!(edge.outer, Outer::App(_)));
        let places: Vec<usize> = apps.map(|(place, _)| place).collect();
        for place in places {
            self.finish_app(place, outcome.clone(), now);
        }
    }

    /// Every stream of the user's that is open, at the end of a run.
    pub(super) fn take_open_apps(&mut self) -> Vec<App> {
        let places: Vec<usize> = self.edges.all.iter().map(|(place, _)| place).collect();
        let outers = places
            .into_iter()
            .filter_map(|place| self.edges.remove(place));
        outers
            .filter_map(|outer| match outer {
                Outer::App(app) => Some(*app),
                Outer::Socket(_) => None,
            })
            .collect()
    }
}
