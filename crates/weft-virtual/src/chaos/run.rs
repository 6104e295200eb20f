//! A round runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use weft_model::links::Moment;
use weft_model::traffic::Record;
use weft_model::traffic::records::Outcome;

use super::round::{Fault, FaultKind, Round};
use crate::world::{Attack, Odd, Remains, World};

/// Seed of the files' randomness, beside the round's: draws from it change nothing else.
const FILES: u64 = 0x6469_736b_7320_2020;
/// Steps between two comparisons of everything with everything.
const SELDOM: u64 = 4_096;
/// Steps between two such comparisons if the node that had a turn is checked after each.
const OFTEN: u64 = 64;
/// Steps between two checks of the node that had a turn, while users are at it: some of what is wrong does not last.
const TOUCHED: u64 = 64;
/// A fault that acts again and again does so this many times.
const TIMES: u64 = 8;
/// Streams that are open when users stop end within so long: each moves, or is given up. The slowest relays have 30 kB
/// each second for what all clients wait for.
const STREAMS: Duration = Duration::from_secs(3 * 3_600);
/// Time within which circuits that clients closed are gone everywhere: a node closes a stuck link
/// after ten times KeepalivePeriod and one more, and TCP reports an end after a quarter of an hour
/// of vain retransmission.
const CIRCUITS: Duration = Duration::from_secs(3_300 + 1_200);
/// Time that a link may exceed its idle time: for padding, ticks and its last bytes in flight.
const LINKS: Duration = Duration::from_secs(1_500);

/// Frequency of checks during a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Everything now and then, after each fault and at the end.
    Often,
    /// Besides, after each step the node that it was of.
    All,
}

/// A violated condition, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Virtual time.
    pub at: Duration,
    /// Steps until then.
    pub step: u64,
    /// Description of the violated condition.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "at {at:.6} s, step {}: {}", self.step, self.what)
    }
}

/// Totals of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Events of the network until users stopped.
    pub busy_events: u64,
    /// Streams that ended well.
    pub complete: u64,
    /// Streams that failed.
    pub failed: u64,
    /// Circuits that were built.
    pub circuits: u64,
    /// Bytes that relays sent each other and clients.
    pub relayed_bytes: u64,
    /// Messages that hostile nodes forged.
    pub forged: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.busy_events += other.busy_events;
        self.complete += other.complete;
        self.failed += other.failed;
        self.circuits += other.circuits;
        self.relayed_bytes += other.relayed_bytes;
        self.forged += other.forged;
    }
}

/// Result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Events of the network.
    pub events: u64,
    /// Totals until the end or the failure.
    pub counts: Counts,
    /// A number that follows from how all streams went, to compare two runs.
    pub digest: u64,
    /// The first condition that was violated, if any.
    pub failure: Option<Failure>,
}

/// Runs a round. `base` is what nodes take for the time at its beginning; nothing depends on it.
#[must_use]
pub fn run(round: &Round, checks: Checks, base: Instant) -> Ran {
    let setup = match round.setup() {
        Ok(setup) => setup,
        Err(error) => {
            return Ran {
                events: 0,
                counts: Counts::default(),
                digest: 0,
                failure: Some(Failure {
                    at: Duration::ZERO,
                    step: 0,
                    what: format!("this is no network: {error}"),
                }),
            };
        }
    };
    let mut runner = Runner::new(round, checks, World::new(setup, base));
    // What panics in a node is a failure like others. The network is not used after it.
    let result = catch_unwind(AssertUnwindSafe(|| runner.run()));
    let what = match result {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(format!("a panic: {}", message(panic.as_ref()))),
    };
    let (steps, at, events) = (runner.steps, runner.world.now(), runner.world.events());
    let mut counts = runner.counts;
    let excused = runner.world.excused();
    counts.forged = runner.world.forged();
    let results = runner.world.into_results();
    let what = what.or_else(|| fails_when_calm(round, &results.streams, &excused));
    let failure = what.map(|what| Failure {
        at,
        step: steps,
        what,
    });
    let mut hasher = DefaultHasher::new();
    events.hash(&mut hasher);
    format!("{:?}", results.streams).hash(&mut hasher);
    for stream in &results.streams {
        match stream.outcome {
            Outcome::Complete => counts.complete += 1,
            _ => counts.failed += 1,
        }
    }
    let built = results.circuits.iter().filter(|one| one.built.is_some());
    counts.circuits = built.count() as u64;
    counts.relayed_bytes = results.relayed_bytes;
    Ran {
        events,
        counts,
        digest: hasher.finish(),
        failure,
    }
}

/// Where nothing goes wrong, a stream that fails shows what is lost on the way: a cell, a credit, a wake-up. Where nothing does but
/// that nodes are hostile, only streams that go through these may fail.
fn fails_when_calm(
    round: &Round,
    streams: &[Record],
    excused: &BTreeSet<(String, u32)>,
) -> Option<String> {
    let failed = |stream: &&Record| {
        let is_excused = excused.contains(&(stream.client.clone(), stream.stream));
        matches!(stream.outcome, Outcome::Failed(_)) && !is_excused
    };
    let is_quiet = round.is_calm() || round.is_siege();
    let stream = streams.iter().filter(|_| is_quiet).find(failed)?;
    let Record {
        client,
        stream: number,
        outcome,
        ..
    } = stream;
    let but = match round.is_calm() {
        true => "nothing is wrong with the network",
        false => "nothing is wrong but hostile nodes elsewhere",
    };
    Some(format!(
        "{but}, but stream {number} of {client} did not complete: {outcome:?}"
    ))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

/// Step in the life of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    End,
    Begin,
    Again(u64),
}

pub(super) struct Runner<'r> {
    round: &'r Round,
    checks: Checks,
    pub(super) world: World,
    steps: u64,
    counts: Counts,
    /// Users are at it.
    is_busy: bool,
    /// By fault: whether it lasts.
    active: Vec<bool>,
}

impl<'r> Runner<'r> {
    /// The round before its beginning.
    pub(super) fn new(round: &'r Round, checks: Checks, world: World) -> Runner<'r> {
        Runner {
            round,
            checks,
            world,
            steps: 0,
            counts: Counts::default(),
            is_busy: true,
            active: vec![false; round.faults.len()],
        }
    }

    /// Applies the options of users and nodes that a network's setup cannot express.
    pub(super) fn prepare(&mut self) {
        for (place, client) in self.round.clients.iter().enumerate() {
            let odd = Odd {
                names: client.names,
                refused: client.refused,
                held: client.held,
                rests: client.rests,
                unmapped_at: Duration::from_millis(self.round.lasts / 2),
            };
            if odd.names || odd.refused || odd.held || odd.rests > 0 {
                self.world.set_odd(place, odd);
            }
            if client.files > 0 {
                let mut rng = ChaCha8Rng::seed_from_u64(self.round.seed ^ FILES);
                rng.set_stream(place as u64);
                let every = Duration::from_millis(client.files);
                self.world.give_files(place, every, rng);
            }
        }
        for (relay, other) in &self.round.unlisted {
            self.world.unlist(*relay, *other);
        }
        self.world.set_hostile(self.round.forgers());
    }

    fn run(&mut self) -> Result<(), String> {
        self.prepare();
        for ((at, change, fault), ()) in agenda(self.round) {
            self.until(Duration::from_millis(at))?;
            if let Some(known) = self.round.faults.get(fault) {
                self.change(fault, known, change);
                self.check()?;
            }
        }
        self.until(Duration::from_millis(self.round.lasts))?;
        self.counts.busy_events = self.world.events();
        self.is_busy = false;
        self.world.stop_users();
        let longest = self.round.clients.iter().map(super::round::Client::longest);
        let longest = Duration::from_millis(longest.max().unwrap_or(0));
        let streams = |one: &Remains| one.apps + one.client_streams == 0;
        self.wait(STREAMS.max(longest), 1, "users stopped", streams)?;
        self.world.stop_clients();
        self.end_hostile_circuits();
        let circuits = |one: &Remains| {
            let waits = one.onionskins + one.messages + one.client_circuits;
            one.halves + one.routes + one.edges + one.server_streams + waits == 0 && one.owned == 0
        };
        self.wait(CIRCUITS, 1, "clients closed their circuits", circuits)?;
        let links = |one: &Remains| one.links + one.connections == 0;
        let idle = self.world.idle_link() + LINKS;
        self.wait(idle, 60, "circuits were gone", links)?;
        self.check()
    }

    /// Lets time pass until then.
    pub(super) fn until(&mut self, at: Duration) -> Result<(), String> {
        let until = Moment::after_start(at);
        while self.world.step(until) {
            self.steps += 1;
            if let Some(defect) = self.world.defect() {
                return Err(format!("a stream has bytes that were not sent: {defect}"));
            }
            if let Some(wrong) = self.world.wrong() {
                return Err(wrong.to_owned());
            }
            match self.checks {
                Checks::Often if self.steps.is_multiple_of(SELDOM) => self.check()?,
                Checks::Often if self.is_busy && self.steps.is_multiple_of(TOUCHED) => {
                    self.world.check_touched()?;
                }
                Checks::Often => {}
                Checks::All if self.steps.is_multiple_of(OFTEN) => self.check()?,
                Checks::All => self.world.check_touched()?,
            }
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> Result<(), String> {
        self.world.check()?;
        self.world.check_times()?;
        let hostile = self.round.hostile();
        if hostile.iter().all(|node| *node >= self.round.relays.len()) {
            self.world.check_honest(&hostile)?;
        }
        match self.round.is_calm() {
            true => self.world.check_calm(),
            false => Ok(()),
        }
    }

    /// Lets time pass until nothing of that is left, in steps of so many seconds.
    fn wait(
        &mut self,
        most: Duration,
        slice: u64,
        since: &str,
        is_over: impl Fn(&Remains) -> bool,
    ) -> Result<(), String> {
        let end = self.world.now() + most;
        loop {
            let remains = self.world.remains();
            if is_over(&remains) {
                return self.check();
            }
            if self.world.now() >= end {
                let place = self.world.where_remains();
                let most = most.as_secs();
                return Err(format!(
                    "{most} s after {since} there is still: {remains:?} ({place})"
                ));
            }
            self.until(self.world.now() + Duration::from_secs(slice))?;
            self.world.probe_idle();
        }
    }

    /// Breaks the links of hostile nodes. Circuits that such nodes made on others' links, also on
    /// each other's, stay as long as these links. An exit that destroyed its circuits on the link
    /// alone keeps its streams until then. Links of nodes that fell silent stay: a timer has to end
    /// them.
    fn end_hostile_circuits(&mut self) {
        for fault in &self.round.faults {
            if let FaultKind::Hostile { node, attack, .. } = &fault.kind
                && *attack != Attack::HalfRecord
            {
                self.world.break_links(*node);
            }
        }
    }

    /// A fault begins.
    pub(super) fn begin(&mut self, number: usize, fault: &Fault) {
        self.change(number, fault, Change::Begin);
    }

    /// Something begins to be wrong, or ends.
    fn change(&mut self, number: usize, fault: &Fault, change: Change) {
        let begins = change == Change::Begin;
        if let Some(active) = self.active.get_mut(number) {
            *active = change != Change::End;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.round.seed ^ number as u64);
        if let Change::Again(times) = change {
            rng.set_stream(times);
        }
        let is_on = begins || self.lasts_elsewhere(number, fault);
        let world = &mut self.world;
        match &fault.kind {
            FaultKind::Dies { relay, silent } => match (change, is_on) {
                (Change::Begin, _) => world.kill_relay(*relay, *silent, rng.random()),
                (Change::End, false) => world.start_relay(*relay),
                _ => {}
            },
            FaultKind::Breaks { pick } if begins => world.break_connection(*pick),
            FaultKind::Breaks { .. } => {}
            FaultKind::Cut { one, other } => world.set_cut(*one, *other, is_on),
            FaultKind::DeafServer { server } => {
                let host = self.round.nodes() + server;
                world.set_server_deaf(u32::try_from(host).unwrap_or(u32::MAX), is_on);
            }
            FaultKind::DeafUser { client } => world.set_user_deaf(*client, is_on),
            FaultKind::Hangs { node } => world.set_hangs(*node, is_on),
            FaultKind::Memory { node, percent } if change != Change::End => {
                world.press_memory(*node, *percent);
            }
            FaultKind::Memory { .. } => {}
            FaultKind::Hostile {
                node,
                attack,
                count,
            } if change != Change::End => world.attack(*node, *attack, *count, &mut rng),
            FaultKind::Hostile { .. } => {}
            FaultKind::Forges {
                node,
                messages,
                count,
            } if change != Change::End => world.forge(*node, *messages, *count, &mut rng),
            FaultKind::Forges { .. } => {}
            FaultKind::Late { node, most } if begins => {
                let (lasts, most) = (fault.lasts, Duration::from_micros(*most));
                world.hold_back(*node, Duration::from_millis(lasts), most, rng.random());
            }
            FaultKind::Late { .. } => {}
            FaultKind::Moves { relay } if change != Change::End => {
                world.move_link(*relay, rng.random());
            }
            FaultKind::Moves { .. } => {}
            FaultKind::Jump { node, mono, wall } if begins => {
                world.jump(*node, Duration::from_millis(*mono), *wall);
            }
            FaultKind::Jump { .. } => {}
            FaultKind::Disk { client, step, how } => {
                world.set_disk(*client, is_on.then_some((*step, *how)));
            }
            FaultKind::Restarts { client, damaged } if begins => {
                world.restart_client(*client, *damaged);
            }
            FaultKind::Restarts { .. } => {}
        }
    }

    /// True if another active fault has the same effect on the same target.
    fn lasts_elsewhere(&self, number: usize, fault: &Fault) -> bool {
        let others = self.round.faults.iter().zip(&self.active).enumerate();
        others
            .filter(|(place, (_, active))| *place != number && **active)
            .any(|(_, (other, _))| same(&other.kind, &fault.kind))
    }
}

fn same(one: &FaultKind, other: &FaultKind) -> bool {
    match (one, other) {
        (FaultKind::Dies { relay, .. }, FaultKind::Dies { relay: other, .. }) => relay == other,
        _ => one == other,
    }
}

/// Beginnings, repetitions and ends of faults, in order of time.
fn agenda(round: &Round) -> BTreeMap<(u64, Change, usize), ()> {
    let mut agenda = BTreeMap::new();
    for (number, fault) in round.faults.iter().enumerate() {
        let begin = fault.at.min(round.lasts);
        let end = begin.saturating_add(fault.lasts).min(round.lasts);
        agenda.insert((begin, Change::Begin, number), ());
        let again = matches!(
            fault.kind,
            FaultKind::Memory { .. }
                | FaultKind::Hostile { .. }
                | FaultKind::Forges { .. }
                | FaultKind::Moves { .. }
        );
        for times in 1..=TIMES {
            let at = begin + fault.lasts * times / (TIMES + 1);
            if again && at > begin && at < end {
                agenda.insert((at, Change::Again(times), number), ());
            }
        }
        // One that begins at the last moment ends behind it.
        agenda.insert((end.max(begin + 1), Change::End, number), ());
    }
    agenda
}
