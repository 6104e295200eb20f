//! The scheduler against the rule that it implements, and the situations that the rule is for.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const HALF_LIFE: Duration = Duration::from_secs(30);

/// A moment to count from. Only differences to it matter.
fn start() -> Instant {
    Instant::now()
}

fn msec(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A scheduler whose links and circuits have bare numbers, and which sends one cell of each choice.
struct Numbered(Scheduler);

impl Numbered {
    fn new(half_life: Duration) -> Self {
        Numbered(Scheduler::new(half_life))
    }
    fn link_added(&mut self, link: u32) {
        self.0.link_added(LinkKey(link));
    }
    fn link_removed(&mut self, link: u32) {
        self.0.link_removed(LinkKey(link));
    }
    fn circuit_added(&mut self, half: u32, link: u32, now: Instant) {
        self.0.circuit_added(HalfKey(half), LinkKey(link), now);
    }
    fn circuit_removed(&mut self, half: u32) {
        self.0.circuit_removed(HalfKey(half));
    }
    fn set_active(&mut self, half: u32, active: bool) {
        self.0.set_active(HalfKey(half), active);
    }
    fn set_budget(&mut self, link: u32, cells: u32) {
        self.0.set_budget(LinkKey(link), cells);
    }
    fn set_half_life(&mut self, half_life: Duration, now: Instant) {
        self.0.set_half_life(half_life, now);
    }
    fn budget(&self, link: u32) -> u32 {
        self.0
            .links
            .get(link as usize)
            .map_or(0, |link| link.budget)
    }
    fn waiting_links(&self) -> Vec<u32> {
        self.0.waiting_links().iter().map(|link| link.0).collect()
    }
    fn is_ready(&self) -> bool {
        !self.0.ready.is_empty()
    }
    /// One cell of the circuit that is chosen, which has more.
    fn next(&mut self, now: Instant) -> Option<(u32, u32)> {
        let choice = self.0.choose()?;
        self.0.sent(choice, 1, true, now);
        Some((choice.link.0, choice.half.0))
    }
}

/// A scheduler with one link (0) and `circuits` idle circuits on it.
fn one_link(circuits: u32, now: Instant) -> Numbered {
    let mut scheduler = Numbered::new(HALF_LIFE);
    scheduler.link_added(0);
    for half in 0..circuits {
        scheduler.circuit_added(half, 0, now);
    }
    scheduler
}

#[test]
fn only_active_circuits_on_links_with_budget_are_chosen() {
    let now = start();
    let mut scheduler = one_link(2, now);
    scheduler.set_budget(0, 10);
    assert_eq!(scheduler.next(now), None, "nothing is queued");
    assert!(scheduler.waiting_links().is_empty());
    scheduler.set_active(1, true);
    assert_eq!(scheduler.waiting_links(), [0]);
    assert_eq!(scheduler.next(now), Some((0, 1)));
    scheduler.set_budget(0, 0);
    assert!(!scheduler.is_ready());
    assert_eq!(scheduler.next(now), None, "the link may not write");
    assert_eq!(scheduler.waiting_links(), [0], "but would like to");
    scheduler.set_budget(0, 1);
    assert_eq!(scheduler.next(now), Some((0, 1)));
    assert_eq!(scheduler.budget(0), 0);
    assert_eq!(scheduler.next(now), None, "the budget is spent");
}

#[test]
fn equal_circuits_take_turns() {
    let now = start();
    let mut scheduler = one_link(3, now);
    scheduler.set_budget(0, 9);
    for half in [2, 0, 1] {
        scheduler.set_active(half, true);
    }
    let chosen: Vec<_> = std::iter::from_fn(|| scheduler.next(now))
        .map(|(_, half)| half)
        .collect();
    assert_eq!(chosen, [2, 0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn a_bulk_circuit_does_not_starve_an_interactive_one_on_the_same_link() {
    const BULK: u32 = 0;
    const INTERACTIVE: u32 = 1;
    let mut now = start();
    let mut scheduler = one_link(2, now);
    // The bulk circuit always has more queued than the link may write. The interactive one queues
    // three cells every 50 ms, for ten minutes: what it queues goes out first, each time.
    scheduler.set_active(BULK, true);
    let mut late = 0;
    for run in 0..60_000_u64 {
        now += msec(10);
        let mut interactive = if run % 5 == 0 { 3 } else { 0 };
        scheduler.set_active(INTERACTIVE, interactive > 0);
        scheduler.set_budget(0, 20);
        for cell in 0.. {
            let Some((_, half)) = scheduler.next(now) else {
                assert_eq!(cell, 20, "the link is used to the full");
                break;
            };
            if half == INTERACTIVE {
                late += u32::from(cell > 2);
                interactive -= 1;
                scheduler.set_active(INTERACTIVE, interactive > 0);
            }
        }
        assert_eq!(interactive, 0, "everything went out in its own run");
    }
    // Only at the start, when neither has sent anything, may they alternate.
    assert!(late <= 3, "{late} cells waited behind the bulk circuit");
}

#[test]
fn a_circuit_that_was_bulk_is_forgiven_with_time() {
    let mut now = start();
    let mut scheduler = one_link(2, now);
    scheduler.set_budget(0, u32::MAX);
    scheduler.set_active(0, true);
    for _ in 0..1_000 {
        scheduler.next(now);
    }
    scheduler.set_active(0, false);
    // The other sends 200 cells two half-lives later, when the 1000 count as 250.
    now += 2 * HALF_LIFE;
    scheduler.set_active(1, true);
    for _ in 0..200 {
        assert_eq!(scheduler.next(now), Some((0, 1)));
    }
    scheduler.set_active(0, true);
    for _ in 0..49 {
        assert_eq!(
            scheduler.next(now),
            Some((0, 1)),
            "200 and some are less than 250"
        );
    }
    scheduler.next(now);
    now += 3 * HALF_LIFE;
    let next: Vec<_> = (0..20).filter_map(|_| scheduler.next(now)).collect();
    let first = next.iter().filter(|(_, half)| *half == 0).count();
    assert_eq!(first, 10, "now they are equal");
}

#[test]
fn the_most_urgent_circuit_of_all_links_goes_first() {
    let now = start();
    let mut scheduler = one_link(1, now);
    scheduler.link_added(5);
    scheduler.circuit_added(7, 5, now);
    scheduler.set_active(0, true);
    scheduler.set_active(7, true);
    scheduler.set_budget(0, 3);
    assert_eq!(scheduler.next(now), Some((0, 0)));
    assert_eq!(
        scheduler.next(now),
        Some((0, 0)),
        "the other link may not write"
    );
    scheduler.set_budget(5, 3);
    assert_eq!(scheduler.next(now), Some((5, 7)));
    assert_eq!(scheduler.next(now), Some((5, 7)));
    assert_eq!(scheduler.next(now), Some((0, 0)), "equal, and longer ago");
    assert_eq!(scheduler.next(now), Some((5, 7)));
    assert_eq!(scheduler.next(now), None);
}

#[test]
fn a_reused_link_key_does_not_inherit_circuits() {
    let now = start();
    let mut scheduler = one_link(2, now);
    scheduler.set_active(0, true);
    scheduler.link_removed(0);
    assert!(scheduler.waiting_links().is_empty());
    scheduler.link_added(0);
    scheduler.set_budget(0, 5);
    scheduler.set_active(0, true);
    scheduler.set_active(1, true);
    assert_eq!(
        scheduler.next(now),
        None,
        "both belong to the link that is gone"
    );
    scheduler.circuit_removed(0);
    scheduler.circuit_added(0, 0, now);
    scheduler.set_active(0, true);
    assert_eq!(scheduler.next(now), Some((0, 0)));
}

#[test]
fn a_reused_circuit_key_starts_anew() {
    let now = start();
    let mut scheduler = one_link(2, now);
    scheduler.set_budget(0, 100);
    scheduler.set_active(0, true);
    for _ in 0..10 {
        scheduler.next(now);
    }
    scheduler.circuit_removed(0);
    assert_eq!(scheduler.next(now), None);
    scheduler.set_active(1, true);
    scheduler.next(now);
    scheduler.circuit_added(0, 0, now);
    scheduler.set_active(0, true);
    assert_eq!(scheduler.next(now), Some((0, 0)), "it has sent nothing");
}

#[test]
fn keys_that_are_not_in_use_do_nothing() {
    let now = start();
    let mut scheduler = Numbered::new(HALF_LIFE);
    scheduler.set_active(3, true);
    scheduler.set_budget(3, 3);
    scheduler.link_removed(3);
    scheduler.circuit_removed(3);
    scheduler.circuit_added(3, 3, now);
    scheduler.set_active(3, true);
    assert_eq!(scheduler.next(now), None);
    assert_eq!(scheduler.budget(3), 0);
}

#[test]
fn a_clock_that_stands_or_jumps_back_is_harmless() {
    let now = start();
    let later = now + 100 * HALF_LIFE;
    let mut scheduler = one_link(2, now);
    scheduler.set_budget(0, 10);
    scheduler.set_active(0, true);
    scheduler.next(later);
    scheduler.set_active(1, true);
    assert_eq!(scheduler.next(now), Some((0, 1)));
    assert!(scheduler.next(now).is_some());
}

#[test]
fn a_new_half_life_keeps_the_order_and_then_counts() {
    let mut now = start();
    let mut scheduler = one_link(2, now);
    scheduler.set_budget(0, u32::MAX);
    scheduler.set_active(0, true);
    for _ in 0..64 {
        scheduler.next(now);
    }
    now += HALF_LIFE;
    scheduler.set_active(0, false);
    scheduler.set_half_life(msec(10), now);
    // 32 now, and 8 two of the new half-lives later.
    now += msec(20);
    scheduler.set_active(1, true);
    for _ in 0..4 {
        assert_eq!(scheduler.next(now), Some((0, 1)));
    }
    scheduler.set_active(0, true);
    let before = (0..4)
        .filter(|_| scheduler.next(now) == Some((0, 1)))
        .count();
    assert_eq!(before, 4);
    let both = (0..10)
        .filter(|_| scheduler.next(now) == Some((0, 1)))
        .count();
    assert_eq!(both, 5);
}

/// The rule itself, as slow as it likes: every cell sent is remembered with its time.
struct Model {
    half_life: Duration,
    sent: BTreeMap<u32, VecDeque<Instant>>,
}

impl Model {
    fn count(&self, half: u32, now: Instant) -> f64 {
        self.sent.get(&half).map_or(0.0, |sent| {
            sent.iter()
                .map(|at| {
                    let age = now.duration_since(*at).as_secs_f64();
                    (-age / self.half_life.as_secs_f64()).exp2()
                })
                .sum()
        })
    }
}

#[derive(Debug, Clone)]
enum Op {
    Active(u32, bool),
    Budget(u32, u32),
    Run(u32),
    Wait(u64),
    Replace(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..8_u32, any::<bool>()).prop_map(|(half, active)| Op::Active(half, active)),
        4 => (0..3_u32, 0..6_u32).prop_map(|(link, cells)| Op::Budget(link, cells)),
        6 => (1..8_u32).prop_map(Op::Run),
        3 => (0..3_000_u64).prop_map(Op::Wait),
        // Far past what the epoch may lag behind.
        1 => (0..300_000_u64).prop_map(Op::Wait),
        1 => (0..8_u32).prop_map(Op::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_the_lowest_count_of_those_that_may_send(
        ops in proptest::collection::vec(op(), 0..150),
    ) {
        let mut now = start();
        let half_life = msec(1_000);
        let mut scheduler = Numbered::new(half_life);
        let mut model = Model { half_life, sent: BTreeMap::new() };
        let mut active = [false; 8];
        let mut budgets = [0_u32; 3];
        let link_of = |half: u32| half % 3;
        (0..3).for_each(|link| scheduler.link_added(link));
        (0..8).for_each(|half| scheduler.circuit_added(half, link_of(half), now));
        for op in ops {
            match op {
                Op::Active(half, is_active) => {
                    scheduler.set_active(half, is_active);
                    active[half as usize] = is_active;
                }
                Op::Budget(link, cells) => {
                    scheduler.set_budget(link, cells);
                    budgets[link as usize] = cells;
                }
                Op::Wait(n) => now += msec(n),
                Op::Replace(half) => {
                    scheduler.circuit_added(half, link_of(half), now);
                    active[half as usize] = false;
                    model.sent.remove(&half);
                }
                Op::Run(cells) => for _ in 0..cells {
                    let lowest = (0..8)
                        .filter(|half| active[*half as usize])
                        .filter(|half| budgets[link_of(*half) as usize] > 0)
                        .map(|half| model.count(half, now))
                        .min_by(f64::total_cmp);
                    let chosen = scheduler.next(now);
                    prop_assert_eq!(chosen.is_some(), lowest.is_some());
                    let (Some((link, half)), Some(lowest)) = (chosen, lowest) else { break };
                    prop_assert!(active[half as usize]);
                    prop_assert_eq!(link, link_of(half));
                    let count = model.count(half, now);
                    prop_assert!(count <= lowest + 1e-9, "{} chosen over {}", count, lowest);
                    budgets[link as usize] -= 1;
                    model.sent.entry(half).or_default().push_back(now);
                },
            }
            let mut waiting = scheduler.waiting_links();
            waiting.sort_unstable();
            let expected: Vec<_> = (0..3)
                .filter(|link| (0..8).any(|half| active[half as usize] && link_of(half) == *link))
                .collect();
            prop_assert_eq!(waiting, expected);
        }
    }
}

/// Each is a wait for memory for every cell of a load of thousands of links and circuits.
#[test]
#[cfg(target_pointer_width = "64")]
fn a_circuit_and_a_link_are_in_one_line_of_the_cache_each() {
    assert_eq!(size_of::<Circuit>(), 32);
    assert_eq!(size_of::<Link>(), 64);
}
