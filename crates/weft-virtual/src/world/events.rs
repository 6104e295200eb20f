//! Events, in order of time: each goes to the nodes and servers that it concerns.

use std::net::SocketAddr;
use std::time::Duration;

use weft_model::hosts::{ConnId, End, Happening, HostId};
use weft_model::links::Moment;
use weft_model::traffic::FailureKind;
use weft_model::traffic::records::Outcome;

use super::app::Finished;
use super::background;
use super::ground::{Listener, News, Owner, Wake};
use super::state::{SECOND, World};
use crate::setup::Background;

impl World {
    /// Lets time pass until then.
    pub fn run_until(&mut self, at: Duration) {
        let until = Moment::after_start(at);
        while self.step(until) {}
    }

    /// Lets one thing happen: a turn of a thread, or what the network has next. False: nothing does until then.
    pub(crate) fn step(&mut self, until: Moment) -> bool {
        if let Some((node, thread)) = self.ground.ready.pop_front() {
            self.turn(node, thread);
            return true;
        }
        match self.ground.net.next(until) {
            Some(happening) => {
                self.on_happening(happening);
                true
            }
            None => false,
        }
    }

    fn turn(&mut self, number: u32, thread: u16) {
        self.enter(number);
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.turn(thread, &self.common, &mut self.ground);
            self.after(number);
        }
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::Accepted(conn, host, port) => self.on_accepted(conn, host, port),
            Happening::Connected(conn) => self.note(conn, End::Opener, News::Connected),
            Happening::Readable(conn, end) => self.note(conn, end, News::Readable),
            Happening::Writable(conn, end) => self.note(conn, end, News::Writable),
            Happening::Broken(conn, end) => self.note(conn, end, News::Broken),
            Happening::Timer(tag) => self.on_timer(Wake::from_tag(tag)),
        }
    }

    fn on_accepted(&mut self, conn: ConnId, host: HostId, port: u16) {
        match self.ground.listener(host, port) {
            Some(Listener::OrPort(number)) => {
                let opener = match self.ground.owner(conn, End::Opener) {
                    Some(Owner::Link { node, .. }) => Some(node),
                    _ => None,
                };
                let addr = (self.ground.net.host_of(conn, End::Opener))
                    .and_then(|host| self.ground.addr_of(host));
                let Some(addr) = addr else {
                    return;
                };
                // Port numbers mean nothing here.
                let from = SocketAddr::new(addr, 40_000);
                self.enter(number);
                if let Some(node) = self.nodes.get_mut(number as usize) {
                    node.accept(conn, from, opener, &mut self.ground);
                }
            }
            Some(Listener::Server) => self.servers.accept(conn, &mut self.ground),
            Some(Listener::Background) => background::accept(conn, &mut self.ground),
            None => self.ground.net.reset(conn, End::Accepter),
        }
    }

    /// Hands an event of a connection to the owner of its end.
    fn note(&mut self, conn: ConnId, end: End, news: News) {
        let Some(owner) = self.ground.owner(conn, end) else {
            return;
        };
        match owner {
            Owner::Link {
                node,
                thread,
                place,
            }
            | Owner::Edge {
                node,
                thread,
                place,
            } => {
                let node = self.nodes.get_mut(node as usize);
                let Some(thread) = node.and_then(|node| node.threads.get_mut(usize::from(thread)))
                else {
                    return;
                };
                match owner {
                    Owner::Link { .. } => thread.note_link(place as usize, conn, news),
                    _ => thread.note_edge(place as usize, conn, news),
                }
                thread.ask_turn(self.ground.nanos(), &mut self.ground);
            }
            Owner::Server { place } => self.servers.note(place, news, &mut self.ground),
            Owner::Background { from, to } => {
                let stream = Background { from, to };
                background::note(stream, conn, end, news, &mut self.ground);
            }
        }
    }

    fn on_timer(&mut self, wake: Wake) {
        match wake {
            Wake::Turn { node, thread } => self.turn(node, thread),
            Wake::Lag { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.hand_out(&self.common, &mut self.ground);
                }
            }
            Wake::Tick { node, thread } => {
                self.enter(node);
                let node = self.nodes.get_mut(node as usize);
                if let Some(thread) =
                    node.and_then(|node| node.threads.get_mut(usize::from(thread)))
                {
                    thread.on_tick_timer(&mut self.ground);
                }
            }
            Wake::User { node } => self.run_user(node),
            Wake::Second { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.second(&self.common, &mut self.ground);
                }
                self.write_files(node);
                let next = self.ground.nanos() + SECOND;
                self.ground.wake(next, Wake::Second { node });
            }
            Wake::Onionskin { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.workers_done(&self.common, &mut self.ground);
                }
            }
            Wake::Name { node } => {
                self.enter(node);
                if let Some(found) = self.nodes.get_mut(node as usize) {
                    found.names_answered(&self.common, &mut self.ground);
                }
            }
            Wake::Server { place } => self.servers.on_timer(place, &mut self.ground),
            Wake::Sample => self.sample(),
            Wake::Fault { host, begins } => self.ground.net.set_silent(HostId(host), begins),
        }
    }

    /// A client writes its files, if that is due, and begins again if it is killed meanwhile.
    fn write_files(&mut self, number: u32) {
        let (now, elapsed) = (self.ground.both(), self.ground.elapsed());
        let node = self.nodes.get_mut(number as usize);
        let Some((node, client)) = node.and_then(|node| Some((node.number, node.client.as_mut()?)))
        else {
            return;
        };
        if client.files.is_none() {
            return;
        }
        if client.write_files(now, elapsed) {
            return self.begin_again(node);
        }
        if let Some(node) = self.nodes.get_mut(number as usize) {
            node.act(&self.common, &mut self.ground);
        }
    }

    /// After a node's turn: hands the streams that ended in it to the node's user.
    pub(super) fn after(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        let Some(client) = &mut node.client else {
            return;
        };
        let elapsed = self.ground.elapsed();
        let finished: Vec<_> = (node.threads.iter_mut())
            .flat_map(|thread| thread.edges.take_finished())
            .collect();
        if finished.is_empty() {
            return;
        }
        for one in finished {
            if !client.went_through(&one, number, &self.hostile) {
                self.defects.extend(defect(&one));
            }
            client.finished(one, elapsed);
        }
        self.run_user(number);
    }

    /// Lets a user do what it does now.
    pub(super) fn run_user(&mut self, number: u32) {
        self.enter(number);
        let now = self.ground.nanos();
        let elapsed = self.ground.elapsed();
        let Some(node) = self.nodes.get_mut(number as usize) else {
            return;
        };
        while let Some((app, request)) =
            (node.client.as_mut()).and_then(|one| one.next_stream(elapsed))
        {
            let Some(id) = node.place_application() else {
                break;
            };
            if let Some(thread) = node.threads.first_mut() {
                thread.open_app(id, app, request, now);
                thread.ask_turn(now, &mut self.ground);
            }
        }
        let Some(client) = &mut node.client else {
            return;
        };
        let next = client.user_time().map(|at| at.max(now + 1));
        if let Some(at) = next
            && client.user_timer != Some(at)
        {
            client.user_timer = Some(at);
            self.ground.wake(at, Wake::User { node: number });
        }
    }
}

/// A stream whose bytes are not those that were sent: that is wrong whatever others do.
fn defect(finished: &Finished) -> Option<String> {
    let Outcome::Failed(failure) = &finished.outcome else {
        return None;
    };
    let is_wrong = matches!(failure.kind, FailureKind::Corrupt | FailureKind::Protocol);
    is_wrong.then(|| failure.to_string())
}
