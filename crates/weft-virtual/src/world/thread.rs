//! A connection thread in virtual time: what `weft-node/src/thread/` is to sockets, this is to the connections of
//! [`weft_model::hosts::Net`]. What is decided is decided by the same [`LocalConnectionManager`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use slab::Slab;
use weft_core::address::{ConnectionId, ThreadId};
use weft_core::link::load::Load;
use weft_core::manager::{ControllerLoad, LocalConnectionManager};
use weft_core::memory::cells::Empties;
use weft_core::message::{Control, FromController, LaneMsg, Report, RingDepths, ToController};
use weft_core::scheduler::RunTimes;
use weft_core::slots::LinkKey;
use weft_model::hosts::{ConnId, End};

use super::edge::Edges;
use super::ground::{Ground, Wake};
use super::limit::Limits;
use super::link::{Identities, Link, Phase};
use crate::setup::{Costs, NodeOptions};

/// Interval of timers, as in a node.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// Messages of other threads and of the controller that a thread has not read.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub(super) controls: Vec<Control>,
    /// By the thread that they come from.
    pub(super) cells: Vec<(ThreadId, Vec<LaneMsg>, Empties)>,
    pub(super) controller: VecDeque<FromController>,
}

impl Mail {
    pub(super) fn count(&self) -> usize {
        self.controls.len() + self.cells.len() + self.controller.len()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) node: u32,
    pub(super) me: ThreadId,
    pub(super) manager: LocalConnectionManager,
    pub(super) mail: Mail,
    pub(super) edges: Edges,
    pub(super) links: Slab<Link>,
    pub(super) by_id: BTreeMap<ConnectionId, usize>,
    /// The connection of the link that left last for another thread.
    pub(super) sent_away: Option<(ConnId, End)>,
    /// By the manager's slot.
    pub(super) by_link: Vec<Option<usize>>,
    pub(super) to_read: VecDeque<usize>,
    /// Circuits of a hostile node on which no RELAY cell is looked at, by connection and circuit id.
    pub(super) ignored: BTreeSet<(ConnectionId, u32)>,
    /// It reads none of them.
    pub(super) hangs: bool,
    /// Links that wait for bandwidth.
    pub(super) rate_limited: Vec<usize>,
    /// When what waits for bandwidth is looked at again, in nanoseconds since the beginning.
    pub(super) retry_at: Option<u64>,
    pub(super) runs: RunTimes,
    pub(super) tick_is_due: bool,
    pub(super) ticks: usize,
    /// The earliest turn that is asked for, in nanoseconds since the beginning.
    asked: Option<u64>,
    /// The earliest timer for a turn that has not gone off.
    armed: Option<u64>,
    /// No turn before then: work takes time.
    pub(super) busy_until: u64,
    /// Nanoseconds of work so far.
    pub(super) worked: u64,
    pub(super) load: Load,
    /// Bytes for links and destinations so far, and of these, for links.
    pub(super) written: u64,
    pub(super) link_bytes: u64,
    pub(super) spent: Empties,
    pub(super) writing: Vec<LinkKey>,
}

/// Parts of its node that a turn uses.
pub(super) struct Around<'a> {
    pub(super) ground: &'a mut Ground,
    pub(super) limits: &'a mut Limits,
    pub(super) options: &'a NodeOptions,
    pub(super) costs: Costs,
    pub(super) identities: &'a Identities,
}

impl Thread {
    pub(super) fn new(
        node: u32,
        me: ThreadId,
        manager: LocalConnectionManager,
        now: Instant,
    ) -> Thread {
        Thread {
            node,
            me,
            manager,
            mail: Mail::default(),
            edges: Edges::default(),
            links: Slab::new(),
            by_id: BTreeMap::new(),
            sent_away: None,
            by_link: Vec::new(),
            to_read: VecDeque::new(),
            ignored: BTreeSet::new(),
            hangs: false,
            rate_limited: Vec::new(),
            retry_at: None,
            runs: RunTimes::default(),
            tick_is_due: false,
            ticks: 0,
            asked: None,
            armed: None,
            busy_until: 0,
            worked: 0,
            load: Load::new(now),
            written: 0,
            link_bytes: 0,
            spent: Vec::new(),
            writing: Vec::new(),
        }
    }

    /// The places of links that are open.
    pub(super) fn open_links(&self) -> impl Iterator<Item = usize> + '_ {
        let links = self.links.iter();
        let open = links.filter(|(_, link)| matches!(link.phase, Phase::Open(_)) && !link.broken);
        open.map(|(place, _)| place)
    }

    /// It is read again when there is bandwidth.
    pub(super) fn is_rate_limited(&self, place: usize) -> bool {
        self.rate_limited.contains(&place)
    }

    /// Asks for a turn at that time at the latest, in nanoseconds since the beginning.
    pub(super) fn ask_turn(&mut self, at: u64, ground: &mut Ground) {
        let at = at.max(self.busy_until);
        if self.asked.is_some_and(|asked| asked <= at) {
            return;
        }
        self.asked = Some(at);
        let (node, thread) = (self.node, self.me.0);
        if at <= ground.nanos() {
            ground.ready.push_back((node, thread));
        } else if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            ground.wake(at, Wake::Turn { node, thread });
        }
    }

    /// A timer of this thread went off, or it stands among the ready ones: whether it has a turn now.
    pub(super) fn is_due(&mut self, ground: &mut Ground) -> bool {
        let now = ground.nanos();
        self.armed = self.armed.filter(|armed| *armed > now);
        match self.asked.take() {
            Some(asked) if asked <= now => true,
            Some(asked) => {
                self.ask_turn(asked, ground);
                false
            }
            None => false,
        }
    }

    /// The ticks of a thread go on.
    pub(super) fn on_tick_timer(&mut self, ground: &mut Ground) {
        let now = ground.nanos();
        let (node, thread) = (self.node, self.me.0);
        let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
        ground.wake(now + tick, Wake::Tick { node, thread });
        self.tick_is_due = true;
        self.ask_turn(now, ground);
    }

    /// Something waits for bandwidth until then.
    pub(super) fn retry(&mut self, at: u64) {
        self.retry_at = Some(self.retry_at.map_or(at, |other| other.min(at)));
    }

    /// Asks for the next turn, if there must be one whatever happens.
    pub(super) fn ask_next(&mut self, around: &mut Around<'_>) {
        let now = around.ground.nanos();
        let ground = &mut *around.ground;
        let has_mail = !self.mail.controls.is_empty()
            || !self.mail.cells.is_empty()
            || !self.mail.controller.is_empty();
        let reads = !self.hangs && !self.to_read.is_empty();
        let is_ready = has_mail || reads || self.edges.is_ready();
        let run = match self.manager.has_backlog() {
            true => self.runs.next(around.options.run_interval),
            false => None,
        };
        let run = run.map(|at| ground.nanos_of(at));
        let next = [
            is_ready.then_some(now),
            run,
            self.edges.next_time(),
            self.retry_at,
        ];
        if let Some(at) = next.into_iter().flatten().min() {
            self.ask_turn(at.max(now), ground);
        }
    }

    /// Connections, of every kind.
    pub(super) fn sockets(&self) -> usize {
        self.links.len() + self.edges.sockets().count()
    }

    /// The next message for the controller.
    pub(super) fn poll_controller(&mut self) -> Option<ToController> {
        self.manager.poll_controller(ControllerLoad::Ready)
    }

    /// The thread's periodic report to the controller.
    pub(super) fn report(&mut self, now: Instant) -> Report {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Report {
            thread: self.me,
            bytes_per_second: self.load.bytes_per_second(now),
            ledger: self.manager.ledger(now),
            buffered: 0,
            memory_rounds: self.manager.memory_rounds(),
            links: count(self.manager.links().len()),
            halves: count(self.manager.halves()),
            circuits: count(self.manager.circuits()),
            edges: count(self.manager.edges().len()),
            heaviest: self.manager.links_mut().heaviest(now),
            rings: RingDepths::default(),
            cpu: Duration::from_nanos(self.worked),
            exit_ports: Default::default(),
            activity: Default::default(),
            directions: Default::default(),
            totals: self.manager.totals(),
        }
    }
}
