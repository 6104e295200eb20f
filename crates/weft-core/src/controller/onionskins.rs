//! Onionskins with the workers: how many of each kind, what one costs, and whether another can be
//! answered in time (C tor: onion_queue.c, `have_room_for_onionskin`; cpuworker.c,
//! `estimated_usec_for_onionskins`).

use std::time::Duration;

use weft_cell::circ_msg::{CreateRequest, handshake_type};

/// Onionskins of a kind that may wait in any case, as in C tor.
const ALWAYS: usize = 50;
/// Onionskins of a kind that are timed before their time is believed, as in C tor.
const ENOUGH: u32 = 100;
/// What one takes until then, as in C tor.
const GUESS: Duration = Duration::from_millis(1);
/// Times that count: at this number the sum is halved, so that the newer half weighs more.
const RECENT: u32 = 20_000;
/// Longer times tell of a machine that slept (C tor: MAX_BELIEVABLE_ONIONSKIN_DELAY).
const BELIEVABLE: Duration = Duration::from_secs(2);

/// Which handshake an onionskin asks for; each has its own cost.
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

/// What onionskins of one kind took.
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Onionskins {
    fast: (usize, Cost),
    ntor: (usize, Cost),
    ntor_v3: (usize, Cost),
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.fast.0 + self.ntor.0 + self.ntor_v3.0
    }

    /// How long this many workers will take for all of them.
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

    /// Whether another one may wait, where there may be `most` and the last may wait for `delay`.
    pub(super) fn has_room(
        &self,
        kind: OnionskinKind,
        workers: usize,
        most: usize,
        delay: Duration,
    ) -> bool {
        self.len() < most && (self.kind(kind).0 < ALWAYS || self.delay(workers) <= delay)
    }

    /// One goes to the workers.
    pub(super) fn add(&mut self, kind: OnionskinKind) {
        self.kind_mut(kind).0 += 1;
    }

    /// One is back; `spent` is what a worker took for it, where it was answered: what is refused is
    /// cheaper, and a client could make it cheap to have the queue grow.
    pub(super) fn done(&mut self, kind: OnionskinKind, spent: Option<Duration>) {
        let (waiting, cost) = self.kind_mut(kind);
        *waiting = waiting.saturating_sub(1);
        if let Some(spent) = spent {
            cost.note(spent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(1750);

    /// How many of a kind find room.
    fn room(queue: &mut Onionskins, kind: OnionskinKind, workers: usize) -> usize {
        let before = queue.len();
        while queue.has_room(kind, workers, 100_000, DELAY) {
            queue.add(kind);
        }
        let added = queue.len() - before;
        for _ in 0..added {
            queue.done(kind, None);
        }
        added
    }

    fn timed(queue: &mut Onionskins, kind: OnionskinKind, spent: Duration, times: u32) {
        for _ in 0..times {
            queue.add(kind);
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
            queue.add(OnionskinKind::NtorV3);
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
        assert!(!queue.has_room(ntor, 1, 0, DELAY));
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
}
