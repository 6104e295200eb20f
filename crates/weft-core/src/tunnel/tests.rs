//! Messages that are sent again, and the legs that take them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weft_cell::mtor_msg::SequenceNumber;
use weft_cell::{Cell, ChanCmd};

use super::legs::TURN;
use super::{
    Acknowledged, Arrival, Closing, LegLink, Legs, Policy, Removed, Reorder, Room, SPAN, Sequence,
};
use crate::address::{ConnectionId, HalfAddr, OriginId, ThreadId};
use crate::memory::cells::CellPool;
use crate::slots::HalfKey;

fn half(n: u32) -> HalfAddr {
    HalfAddr {
        thread: ThreadId(0),
        slot: HalfKey(n),
        generation: 0,
    }
}

/// Legs of mTor, with their pool and the time.
struct Play {
    legs: Legs,
    pool: CellPool,
    now: Instant,
    /// Numbers by leg that were handed to it, oldest first.
    carried: Vec<Vec<u64>>,
    again: u64,
}

impl Play {
    fn new(legs: u32) -> Self {
        let mut play = Play {
            legs: Legs::new(Policy::Mtor),
            pool: CellPool::default(),
            now: Instant::now(),
            carried: Vec::new(),
            again: 0,
        };
        for _ in 0..legs {
            play.join();
        }
        play
    }

    fn join(&mut self) {
        let leg = half(self.carried.len() as u32);
        let link = LegLink {
            connection: ConnectionId(0),
            network: IpAddr::V4(Ipv4Addr::LOCALHOST),
            from_client: true,
        };
        self.legs.add(leg, link, None, self.now);
        self.legs.linked(leg, Sequence::default(), None);
        self.carried.push(Vec::new());
    }

    /// Time passes; then the tunnel's `count`th message arrives on a leg.
    fn arrives(&mut self, leg: u32, count: u64, later: Duration) {
        let before = self.now;
        self.now += later;
        self.legs.paced(half(leg), count, Some(before), self.now);
    }

    fn overdue(&self, later: Duration) -> Vec<HalfAddr> {
        self.legs.overdue(self.now + later).collect()
    }

    fn room(&mut self, leg: u32, cells: u32, acknowledged: u32) {
        let carried = &mut self.carried[leg as usize];
        carried.drain(..carried.len().min(acknowledged as usize));
        let room = Room {
            cells,
            rtt: None,
            acknowledged,
        };
        self.legs.note_room(half(leg), room, self.now);
    }

    /// Sends as many new messages as legs take.
    fn send(&mut self, most: u32) -> u32 {
        let mut sent = 0;
        while sent < most && self.legs.takes(true) {
            let choice = self.legs.choose(true).unwrap();
            let message = Cell::new(choice.number as u32, ChanCmd::RELAY);
            self.legs.keep(choice, &message, self.now);
            self.carried[choice.half.slot.0 as usize].push(choice.number);
            sent += 1;
        }
        sent
    }

    /// Sends again what is to be.
    fn resend(&mut self) {
        while let Some((choice, cell)) = self.legs.next_again(&mut self.pool, self.now) {
            assert_eq!(u64::from(cell.circ_id()), choice.number);
            self.carried[choice.half.slot.0 as usize].push(choice.number);
            self.pool.put(cell);
            self.again += 1;
        }
    }

    fn ack(&mut self, next: u64) -> Acknowledged {
        let result = self.legs.acknowledged(next, self.now);
        self.resend();
        result
    }

    fn close(&mut self, leg: u32) -> Removed {
        let closing = Closing {
            taken: self.carried[leg as usize].len() as u64,
            given: 0,
            in_flight: false,
        };
        self.carried[leg as usize].clear();
        let removed = self.legs.closed(half(leg), closing);
        self.resend();
        removed
    }
}

#[test]
fn a_number_that_is_named_for_a_second_has_its_leg_s_messages_sent_again() {
    let mut play = Play::new(2);
    play.room(0, 3 * TURN, 0);
    play.room(1, 3 * TURN, 0);
    assert_eq!(play.send(2 * TURN), 2 * TURN);
    assert_eq!(play.ack(1), Acknowledged::Nothing);
    play.now += Duration::from_millis(900);
    assert_eq!(play.ack(1), Acknowledged::Nothing);
    play.now += Duration::from_millis(200);
    // Messages of the leg that has the first one, on the other leg.
    let first = play.carried[0].clone();
    assert_eq!(play.ack(1), Acknowledged::News);
    assert_eq!(play.again, u64::from(TURN));
    assert_eq!(play.carried[1][TURN as usize..], first);
    // They have just been sent: named once more, they are not.
    play.now += Duration::from_millis(900);
    assert_eq!(play.ack(1), Acknowledged::Nothing);
    let next = u64::from(2 * TURN) + 1;
    assert_eq!(play.ack(next), Acknowledged::News);
    assert!(play.legs.audit());
    assert_eq!(play.ack(next + 1), Acknowledged::NotSent);
}

#[test]
fn the_last_message_is_sent_once_more_on_another_leg_each_time_after_twice_as_long() {
    let mut play = Play::new(2);
    play.room(0, 100, 0);
    play.room(1, 100, 0);
    play.send(3);
    let carrier = usize::from(play.carried[1].contains(&3));
    let mut times = Vec::new();
    for second in 1..=200 {
        play.now += Duration::from_secs(1);
        if play.legs.send_tail_again(play.now) {
            play.resend();
            times.push(second);
            assert_eq!(play.carried[(carrier + times.len()) % 2].last(), Some(&3));
        }
    }
    assert_eq!(times, [1, 3, 7, 15, 31, 63, 127, 191]);
    // News restart it, and then there is nothing to send.
    play.ack(3);
    play.now += Duration::from_secs(1);
    assert!(play.legs.send_tail_again(play.now));
    play.resend();
    play.ack(4);
    play.now += Duration::from_secs(100);
    assert!(!play.legs.send_tail_again(play.now));
    assert!(play.legs.audit());
}

#[test]
fn acknowledgements_take_legs_in_turn_and_leave_out_those_that_stand_still() {
    let mut play = Play::new(3);
    let legs = |play: &mut Play| -> Vec<u32> {
        (0..3)
            .map(|_| play.legs.ack_leg().unwrap().slot.0)
            .collect()
    };
    let mut all = legs(&mut play);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
    play.legs.get_mut(half(1)).unwrap().stalled = true;
    assert!(!legs(&mut play).contains(&1));
    for leg in [0, 2] {
        play.legs.get_mut(half(leg)).unwrap().stalled = true;
    }
    let mut all = legs(&mut play);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn a_leg_that_moves_does_not_stand_still_however_late_its_messages_are() {
    let mut play = Play::new(2);
    play.room(0, 1000, 0);
    play.room(1, 1000, 0);
    play.send(1000);
    // Each message takes ten seconds to arrive, one after the other.
    for next in 1..100 {
        play.now += Duration::from_millis(100);
        play.ack(next);
    }
    assert_eq!(play.again, 0);
}

#[test]
fn a_leg_that_was_dropped_has_a_minute_while_it_brings_something() {
    const SEC: Duration = Duration::from_secs(1);
    let mut play = Play::new(2);
    for leg in 0..2 {
        play.legs.get_mut(half(leg)).unwrap().circuit = Some(OriginId(u64::from(leg)));
    }
    play.arrives(1, 1, SEC);
    play.legs.drop_leg(half(1), play.now);
    assert!(play.overdue(9 * SEC).is_empty());
    assert_eq!(play.overdue(10 * SEC), [half(1)]);
    // A thin relay takes that long for a window.
    for second in 1..60_u32 {
        play.arrives(1, 1 + u64::from(second), SEC);
        assert!(play.overdue(Duration::ZERO).is_empty(), "{second}");
    }
    play.arrives(1, 61, SEC);
    assert_eq!(play.overdue(Duration::ZERO), [half(1)]);
    // The other was not dropped.
    assert_eq!(play.overdue(1000 * SEC), [half(1)]);
}

#[test]
fn a_far_end_that_names_one_number_for_ever_is_sent_a_bounded_number_of_messages() {
    let mut play = Play::new(3);
    for leg in 0..3 {
        play.room(leg, u32::MAX, 0);
    }
    play.send(3000);
    for _ in 0..10_000 {
        play.now += Duration::from_millis(100);
        play.ack(1);
    }
    assert_eq!(play.again, SPAN);
    assert!(play.legs.audit());
    // Messages that its legs lose are sent all the same.
    play.close(0);
    play.close(1);
    assert!(play.again <= SPAN + 6000);
    let mut carried = play.carried[2].clone();
    carried.sort_unstable();
    carried.dedup();
    assert!(carried.into_iter().eq(1..=3000));
}

#[test]
fn no_number_is_given_out_that_the_far_end_would_not_keep() {
    let mut play = Play::new(1);
    play.room(0, u32::MAX, 0);
    assert_eq!(u64::from(play.send(u32::MAX)), SPAN);
    play.ack(11);
    assert_eq!(play.send(u32::MAX), 10);
    assert!(play.legs.audit());
}

#[test]
fn numbers_go_on_past_a_wrap() {
    // As many messages as 32 bits count, but for a few.
    let mut reorder = Reorder::after(u64::from(u32::MAX) - 10);
    let now = Instant::now();
    for number in (u64::from(u32::MAX) - 9)..=(u64::from(u32::MAX) + 10) {
        let expected = reorder.delivered() + 1;
        let sequence = SequenceNumber::of(number);
        assert_eq!(sequence.from_expected(expected), Some(number));
        // The one before it comes once more, behind the wrap or before.
        assert_eq!(SequenceNumber::of(number - 1).from_expected(expected), None);
        // One that is early keeps its place.
        let early = SequenceNumber::of(number + SPAN - 1).from_expected(expected);
        assert_eq!(early, Some(number + SPAN - 1));
        let cell = Box::new(Cell::new(0, ChanCmd::RELAY));
        assert!(matches!(
            reorder.arrived(number, cell, now),
            Arrival::Next(_)
        ));
    }
    assert_eq!(reorder.delivered(), (1 << 32) + 9);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_acknowledged_nothing_is_lost(
        operations in proptest::collection::vec((0u8..8, any::<u16>(), any::<u8>()), 0..200),
    ) {
        let mut play = Play::new(2);
        for (what, number, leg) in operations {
            let leg = u32::from(leg) % play.carried.len() as u32;
            match what {
                0 => play.room(leg, u32::from(number % 64), 0),
                1 => {
                    let some = play.carried[leg as usize].len() as u32;
                    play.room(leg, 0, u32::from(number) % (some + 1));
                }
                2 | 3 => { play.send(u32::from(number % 32)); }
                4 => play.now += Duration::from_millis(u64::from(number) % 2000),
                5 => {
                    let next = u64::from(number) % (play.legs.sent() + 3);
                    let result = play.ack(next);
                    prop_assert_eq!(result == Acknowledged::NotSent, next > play.legs.sent() + 1);
                }
                6 if play.legs.len() > 1 => { play.close(leg); }
                _ if play.legs.len() < 16 => play.join(),
                _ => {}
            }
            play.resend();
            prop_assert!(play.legs.audit());
        }
        // Each message is acknowledged, on a leg that is there, or to be sent again.
        for number in 1..=play.legs.sent() {
            let carried = play.carried.iter().flatten().any(|one| *one == number);
            prop_assert!(carried || !play.legs.lost(number), "{}", number);
        }
        prop_assert!(play.again <= SPAN * (play.legs.joined() + 1) + play.legs.sent());
    }
}
