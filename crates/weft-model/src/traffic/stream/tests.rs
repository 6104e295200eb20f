use std::time::Duration;

use super::request::Request;
use super::*;
use crate::traffic::plan::{Burst, Plan, Schedule};

/// Moves bytes between the two ends with `delay` each way, in pieces; the client's result.
fn run(plan: Plan, delay: Duration, corrupt: Option<u64>) -> (ClientStream, Result<(), Failure>) {
    let mut client = ClientStream::new(plan, 7, Duration::ZERO);
    let mut server = ServerStream::default();
    let mut now = delay;
    client.opened(now);
    let mut wires: [Vec<(Duration, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    let mut down = 0;
    for _ in 0..200_000 {
        let count = client.output(now).len().min(1000);
        if count > 0 {
            let piece = client.output(now)[..count].to_vec();
            client.sent(count, now);
            wires[0].push((now + delay, piece));
            continue;
        }
        let count = server.output(now).len().min(1000);
        if count > 0 {
            let mut piece = server.output(now)[..count].to_vec();
            server.sent(count);
            if let Some(place) = corrupt.and_then(|place| place.checked_sub(down))
                && let Some(byte) = piece.get_mut(place as usize)
            {
                *byte ^= 1;
            }
            down += count as u64;
            wires[1].push((now + delay, piece));
            continue;
        }
        let next = wires
            .iter()
            .filter_map(|wire| wire.first())
            .map(|(at, _)| *at);
        let timers = [client.next_time(), server.next_time()]
            .into_iter()
            .flatten();
        let Some(at) = next.chain(timers).min() else {
            break;
        };
        now = now.max(at);
        while let Some((at, _)) = wires[0].first()
            && *at <= now
        {
            let (_, bytes) = wires[0].remove(0);
            server.receive(&bytes, now).unwrap();
        }
        while let Some((at, _)) = wires[1].first()
            && *at <= now
        {
            let (_, bytes) = wires[1].remove(0);
            if let Err(failure) = client.receive(&bytes, now) {
                return (client, Err(failure));
            }
        }
        if let Err(failure) = client.check(now) {
            return (client, Err(failure));
        }
        if client.is_complete() {
            return (client, Ok(()));
        }
    }
    panic!("the stream does not end: {client:?}, {server:?}");
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn plans() -> Vec<Plan> {
    let burst = |gap, bytes| Burst {
        gap: ms(gap),
        bytes,
    };
    let steady = Schedule::Steady {
        bytes: 2500,
        chunk: 1000,
        every: ms(1000),
    };
    let bursts = Schedule::Bursts([burst(0, 1434), burst(500, 30_000)].into());
    let both = |down: &Schedule, up: &Schedule| Plan {
        down: down.clone(),
        up: up.clone(),
        timeout: None,
        stall: Some(ms(700)),
    };
    let schedules = [
        Schedule::AtOnce(0),
        Schedule::AtOnce(100_001),
        steady,
        bursts,
    ];
    let pairs = schedules
        .iter()
        .flat_map(|down| schedules.iter().map(move |up| (down, up)));
    pairs.map(|(down, up)| both(down, up)).collect()
}

#[test]
fn all_bytes_arrive_at_their_times_and_a_pause_is_no_stall() {
    for plan in plans() {
        let (client, result) = run(plan.clone(), ms(10), None);
        assert_eq!(result, Ok(()), "{plan:?}");
        let (_, times) = client.into_times();
        assert_eq!((times.down.left(), times.up.left()), (0, 0));
        assert_eq!(times.opened, Some(ms(10)));
        // There and back.
        assert_eq!(times.answered, Some(ms(30)));
        let length = plan.down.duration().max(plan.up.duration());
        assert!(
            times.receipt.unwrap() >= ms(30) + length,
            "{plan:?} {times:?}"
        );
        if plan.down.bytes() > 0 {
            assert_eq!(times.down.first, Some(ms(30)));
            assert_eq!(times.down.last, Some(ms(30) + plan.down.duration()));
        }
        if plan.up.bytes() > 0 {
            assert_eq!(times.up.first, Some(ms(10)));
            assert_eq!(times.up.last, Some(ms(10) + plan.up.duration()));
        }
    }
}

#[test]
fn a_flipped_bit_is_found_at_its_place() {
    // One byte of answer stands before the payload.
    let (_, result) = run(Plan::download(100_000), ms(1), Some(77_001));
    let failure = result.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Corrupt);
    assert!(failure.message.contains("byte 77000 "), "{failure}");
}

#[test]
fn an_upload_that_was_changed_is_found() {
    let mut server = ServerStream::default();
    let request = Request {
        seed: 1,
        up: 3,
        down: Schedule::NONE,
    };
    server.receive(&request.encode(), ms(0)).unwrap();
    server.receive(b"abc", ms(0)).unwrap();
    assert_eq!(server.output(ms(0)), b"!\0\0\0\0\0\0\0\x03\0");
    server.sent(10);
    assert!(server.is_over());
    assert!(server.receive(b"d", ms(0)).is_err());
}

#[test]
fn the_limits_of_a_plan_end_a_stream() {
    let plan = Plan {
        timeout: Some(ms(5000)),
        stall: Some(ms(2000)),
        ..Plan::download(10)
    };
    let mut client = ClientStream::new(plan, 1, ms(100));
    assert_eq!(client.next_time(), Some(ms(2100)));
    client.opened(ms(1000));
    assert!(!client.output(ms(1000)).is_empty());
    assert_eq!(client.check(ms(2999)), Ok(()));
    assert_eq!(client.check(ms(3000)).unwrap_err().kind, FailureKind::Stall);
    client.receive(b"!", ms(4900)).unwrap();
    assert_eq!(client.next_time(), Some(ms(5100)));
    assert_eq!(
        client.check(ms(5100)).unwrap_err().kind,
        FailureKind::Timeout
    );
}
