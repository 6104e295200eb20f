//! Onionskins that wait: how many of each kind, what one costs, and whether another can be answered
//! in time (C tor: onion_queue.c, `have_room_for_onionskin`; cpuworker.c,
//! `estimated_usec_for_onionskins`).
//!
//! The workers have as many as keep them busy. The others wait here, where those of each previous hop
//! have their turn, and the hop with most of them gives way when there are too many.

use std::time::{Duration, Instant};

use weft_cell::circ_msg::{CreateRequest, handshake_type};
use weft_planted::{Fault, planted};
use weft_share::{PreviousHop, Shares};

use crate::address::HalfAddr;

/// Onionskins that each worker has at most: a few milliseconds' work, eight of the batches that it
/// answers together, so that it need not wait for more.
const WITH_WORKER: usize = 64;

/// Onionskins of a kind that may wait in any case, as in C tor.
const ALWAYS: usize = 50;
/// Onionskins of a kind that are timed before their time is believed, as in C tor.
const ENOUGH: u32 = 100;
/// Assumed cost of an onionskin until some were measured, as in C tor.
const GUESS: Duration = Duration::from_millis(1);
/// Times that count: at this number the sum is halved, so that the newer half weighs more.
const RECENT: u32 = 20_000;
/// Longer times are those of a machine that slept (C tor: MAX_BELIEVABLE_ONIONSKIN_DELAY).
const BELIEVABLE: Duration = Duration::from_secs(2);

/// Handshake of an onionskin; each has its own cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnionskinKind {
    /// CREATE_FAST: hashes.
    Fast,
    /// ntor.
    Ntor,
    /// ntor-v3, and what no worker knows.
    NtorV3,
}

impl OnionskinKind {
    const ALL: [OnionskinKind; 3] = [
        OnionskinKind::Fast,
        OnionskinKind::Ntor,
        OnionskinKind::NtorV3,
    ];

    /// The kind of a request.
    pub fn of(request: &CreateRequest) -> Self {
        match request {
            CreateRequest::Fast { .. } => OnionskinKind::Fast,
            CreateRequest::Create2 {
                handshake_type: handshake_type::NTOR,
                ..
            } => OnionskinKind::Ntor,
            CreateRequest::Create2 { .. } => OnionskinKind::NtorV3,
        }
    }
}

/// Measured cost of the onionskins of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    sum: Duration,
    count: u32,
}

impl Cost {
    fn note(&mut self, spent: Duration) {
        if spent > BELIEVABLE {
            return;
        }
        self.sum += spent;
        self.count += 1;
        if self.count >= RECENT {
            self.sum /= 2;
            self.count /= 2;
        }
    }

    fn of_one(&self) -> Duration {
        if self.count < ENOUGH {
            return GUESS;
        }
        self.sum / self.count
    }
}

/// An onionskin that waits for the workers.
#[derive(Debug)]
pub(super) struct Create {
    /// The half that waits for its answer.
    pub(super) half: HalfAddr,
    /// The onionskin.
    pub(super) request: CreateRequest,
    /// A relay sent it.
    pub(super) by_relay: bool,
    /// When it arrived.
    pub(super) since: Instant,
}

/// Bounds on the onionskins that wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The workers that answer them.
    pub(super) workers: usize,
    /// Largest number that may wait, however fast they are.
    pub(super) most: usize,
    /// Longest time that the last one may have to wait.
    pub(super) delay: Duration,
}

/// Onionskins that wait or are with the workers.
#[derive(Debug, Default)]
pub(super) struct Onionskins {
    fast: (usize, Cost),
    ntor: (usize, Cost),
    ntor_v3: (usize, Cost),
    waiting: Shares<PreviousHop, (), Create>,
    /// Onionskins that the workers have.
    with_workers: usize,
}

impl Onionskins {
    fn kind(&self, kind: OnionskinKind) -> &(usize, Cost) {
        match kind {
            OnionskinKind::Fast => &self.fast,
            OnionskinKind::Ntor => &self.ntor,
            OnionskinKind::NtorV3 => &self.ntor_v3,
        }
    }

    fn kind_mut(&mut self, kind: OnionskinKind) -> &mut (usize, Cost) {
        match kind {
            OnionskinKind::Fast => &mut self.fast,
            OnionskinKind::Ntor => &mut self.ntor,
            OnionskinKind::NtorV3 => &mut self.ntor_v3,
        }
    }

    /// Number of onionskins, waiting or with the workers.
    pub(super) fn len(&self) -> usize {
        self.fast.0 + self.ntor.0 + self.ntor_v3.0
    }

    /// Onionskins that the workers do not have yet.
    pub(super) fn queued(&self) -> usize {
        self.waiting.len()
    }

    /// Time that this number of workers needs for all onionskins.
    fn delay(&self, workers: usize) -> Duration {
        let all: Duration = OnionskinKind::ALL
            .into_iter()
            .map(|kind| {
                let (waiting, cost) = self.kind(kind);
                cost.of_one()
                    .saturating_mul(u32::try_from(*waiting).unwrap_or(u32::MAX))
            })
            .fold(Duration::ZERO, Duration::saturating_add);
        all / u32::try_from(workers.max(1)).unwrap_or(u32::MAX)
    }

    /// True if another onionskin of this kind may wait.
    fn has_room(&self, kind: OnionskinKind, room: Room) -> bool {
        self.len() < room.most
            && (self.kind(kind).0 < ALWAYS || self.delay(room.workers) <= room.delay)
    }

    /// Has one wait. The one that gives way to it, if there is no room.
    ///
    /// # Errors
    /// None does: those that wait are answered by the workers already, or there is no share for it.
    pub(super) fn admit(
        &mut self,
        hop: PreviousHop,
        create: Create,
        room: Room,
    ) -> Result<Option<Create>, Create> {
        let kind = OnionskinKind::of(&create.request);
        let bound = match self.has_room(kind, room) {
            true => usize::MAX,
            false => self.waiting.len(),
        };
        let admitted = self.waiting.admit(hop, (), bound, create)?;
        self.kind_mut(kind).0 += 1;
        let displaced = admitted.displaced.map(|(_, create)| create);
        if let Some(create) = &displaced {
            self.leave(OnionskinKind::of(&create.request));
        }
        Ok(displaced)
    }

    /// The next one for this many workers.
    pub(super) fn next(&mut self, workers: usize) -> Option<Create> {
        if self.with_workers >= workers.max(1) * WITH_WORKER {
            return None;
        }
        let create = self.waiting.serve()?;
        self.with_workers += 1;
        Some(create)
    }

    /// One is back from the workers; `spent` is what one of them took for it, where it was answered:
    /// what is refused is cheaper, and a client could make it cheap to have the queue grow.
    pub(super) fn done(&mut self, kind: OnionskinKind, spent: Option<Duration>) {
        self.with_workers = self.with_workers.saturating_sub(1);
        self.leave(kind);
        if let Some(spent) = spent {
            self.kind_mut(kind).1.note(spent);
        }
    }

    /// Compares the numbers of each kind with what waits and what workers have.
    pub(super) fn audit(&self) -> Result<(), String> {
        self.waiting.audit()?;
        let (counted, there) = (self.len(), self.waiting.len() + self.with_workers);
        match counted == there {
            true => Ok(()),
            false => Err(format!("{counted} onionskins are counted, of {there}")),
        }
    }

    fn leave(&mut self, kind: OnionskinKind) {
        if planted(Fault::OnionskinStaysCounted) {
            return;
        }
        let (waiting, _) = self.kind_mut(kind);
        *waiting = waiting.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::HalfKey;

    const DELAY: Duration = Duration::from_millis(1750);

    fn room_for(workers: usize, most: usize) -> Room {
        Room {
            workers,
            most,
            delay: DELAY,
        }
    }

    fn create(slot: u32) -> Create {
        let half = HalfAddr {
            thread: crate::address::ThreadId(0),
            slot: HalfKey(slot),
            generation: 0,
        };
        Create {
            half,
            request: CreateRequest::Fast { x: [0; 20] },
            by_relay: false,
            since: Instant::now(),
        }
    }

    /// Number of onionskins of a kind that find room.
    fn room(queue: &mut Onionskins, kind: OnionskinKind, workers: usize) -> usize {
        let before = queue.len();
        while queue.has_room(kind, room_for(workers, 100_000)) {
            queue.kind_mut(kind).0 += 1;
        }
        let added = queue.len() - before;
        for _ in 0..added {
            queue.leave(kind);
        }
        added
    }

    fn timed(queue: &mut Onionskins, kind: OnionskinKind, spent: Duration, times: u32) {
        for _ in 0..times {
            queue.kind_mut(kind).0 += 1;
            queue.done(kind, Some(spent));
        }
    }

    #[test]
    fn the_queue_is_as_long_as_the_workers_are_fast() {
        let mut queue = Onionskins::default();
        let ntor = OnionskinKind::Ntor;
        assert_eq!(room(&mut queue, ntor, 1), 1751);
        assert_eq!(room(&mut queue, ntor, 4), 7001);
        timed(&mut queue, ntor, Duration::from_micros(100), ENOUGH);
        assert_eq!(room(&mut queue, ntor, 1), 17_501);
        // Slower ones count once they are the most of the recent ones.
        timed(&mut queue, ntor, Duration::from_millis(10), 10 * RECENT);
        assert!((176..200).contains(&room(&mut queue, ntor, 1)));
    }

    #[test]
    fn each_kind_has_its_own_cost_and_all_of_them_wait_together() {
        let mut queue = Onionskins::default();
        timed(
            &mut queue,
            OnionskinKind::Fast,
            Duration::from_micros(5),
            ENOUGH,
        );
        timed(
            &mut queue,
            OnionskinKind::NtorV3,
            Duration::from_millis(5),
            ENOUGH,
        );
        assert_eq!(room(&mut queue, OnionskinKind::NtorV3, 1), 351);
        for _ in 0..300 {
            queue.kind_mut(OnionskinKind::NtorV3).0 += 1;
        }
        // 250 ms are left.
        assert_eq!(room(&mut queue, OnionskinKind::Ntor, 1), 251);
        assert_eq!(room(&mut queue, OnionskinKind::Fast, 1), 50_001);
    }

    #[test]
    fn some_may_always_wait_but_never_more_than_there_is_memory_for() {
        let mut queue = Onionskins::default();
        let ntor = OnionskinKind::Ntor;
        timed(&mut queue, ntor, Duration::from_secs(1), ENOUGH);
        assert_eq!(room(&mut queue, ntor, 1), ALWAYS);
        assert!(!queue.has_room(ntor, room_for(1, 0)));
        // A machine that slept is not a slow one.
        timed(
            &mut queue,
            OnionskinKind::Fast,
            Duration::from_secs(3600),
            ENOUGH,
        );
        assert_eq!(room(&mut queue, OnionskinKind::Fast, 1), 1751);
    }

    #[test]
    fn requests_are_of_their_handshake_s_kind() {
        let create2 = |handshake_type| CreateRequest::Create2 {
            handshake_type,
            data: Vec::new(),
        };
        assert_eq!(
            OnionskinKind::of(&create2(handshake_type::NTOR)),
            OnionskinKind::Ntor
        );
        assert_eq!(
            OnionskinKind::of(&create2(handshake_type::NTOR_V3)),
            OnionskinKind::NtorV3
        );
        let fast = CreateRequest::Fast { x: [0; 20] };
        assert_eq!(OnionskinKind::of(&fast), OnionskinKind::Fast);
    }

    #[test]
    fn a_flood_of_one_hop_waits_behind_the_onionskins_of_the_others() {
        let mut queue = Onionskins::default();
        let hop = |n| PreviousHop::Relay([n; 20].into());
        let room = room_for(1, WITH_WORKER + 20);
        let mut dropped = 0;
        for slot in 0..1000 {
            let displaced = queue.admit(hop(1), create(slot), room).unwrap();
            dropped += u32::from(displaced.is_some());
            queue.next(1);
        }
        assert_eq!((dropped, queue.len()), (1000 - 84, WITH_WORKER + 20));
        // Another hop's find a place, and come next.
        for slot in 2000..2005 {
            let displaced = queue.admit(hop(2), create(slot), room).unwrap();
            assert!(displaced.unwrap().half.slot.0 < 1000);
        }
        assert_eq!(queue.len(), WITH_WORKER + 20);
        let mut answered = Vec::new();
        for _ in 0..10 {
            queue.done(OnionskinKind::Fast, None);
            answered.extend(queue.next(1).map(|create| create.half.slot.0));
        }
        answered.retain(|slot| *slot >= 2000);
        assert_eq!(answered, [2000, 2001, 2002, 2003, 2004]);
    }
}
