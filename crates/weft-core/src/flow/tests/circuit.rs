//! Fixed windows, and the SENDMEs that an attacker might send.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;
use super::{digest, send, sendme};

#[test]
fn a_fixed_window_is_a_thousand_cells_and_opens_by_a_hundred() {
    let now = Instant::now();
    let mut flow = CircuitFlow::fixed();
    assert!(!flow.is_vegas() && flow.rtt().is_none() && !flow.in_slow_start());
    assert_eq!((flow.room(), flow.window()), (1000, 1000));
    send(&mut flow, 1, 1000, now);
    assert_eq!((flow.room(), flow.in_flight()), (0, 1000));
    for hundred in 1..=10 {
        flow.sendme(&sendme(hundred * 100), 1, false, now).unwrap();
        assert_eq!(flow.room(), u32::try_from(hundred).unwrap() * 100);
    }
    assert_eq!(flow.in_flight(), 0);
}

#[test]
fn only_the_cell_that_is_answered_has_its_digest_taken() {
    let now = Instant::now();
    let mut taken = Vec::new();
    let mut flow = CircuitFlow::fixed();
    for cell in 1..=250 {
        flow.note_sent(
            || {
                taken.push(cell);
                digest(cell)
            },
            now,
        );
    }
    assert_eq!(taken, [100, 200]);
    let mut flow = CircuitFlow::vegas(&CcParams::default(), 31);
    let mut taken = Vec::new();
    for cell in 1..=100 {
        flow.note_sent(
            || {
                taken.push(cell);
                digest(cell)
            },
            now,
        );
    }
    assert_eq!(taken, [31, 62, 93]);
}

#[test]
fn what_is_received_is_acknowledged_at_once_after_every_increment() {
    let mut fixed = CircuitFlow::fixed();
    let mut vegas = CircuitFlow::vegas(&CcParams::default(), 31);
    for cell in 1..=1000 {
        assert_eq!(fixed.note_received(0), Ok(cell % 100 == 0));
        assert_eq!(vegas.note_received(0), Ok(cell % 31 == 0));
    }
}

#[test]
fn a_fixed_window_opens_by_the_sendmes_that_have_left_and_no_others() {
    // SENDMEs are cells 10, 20, 30 and so on of the queue.
    let receive = |flow: &mut CircuitFlow, cells: u64, departed| {
        let mut number = 0;
        for _ in 0..cells {
            if flow.note_received(departed).unwrap() {
                number += 10;
                flow.sendme_queued(number);
            }
        }
    };
    let past = Err(FlowError::TooMuchData("circuit"));
    for (departed, allowed) in [(9, 1000), (10, 1100), (29, 1200), (30, 1300)] {
        let mut fixed = CircuitFlow::fixed();
        receive(&mut fixed, 1000, 0);
        receive(&mut fixed, allowed - 1000, departed);
        assert_eq!(fixed.note_received(departed), past);
    }
    // Under congestion control there is no window here (proposal 324).
    let mut vegas = CircuitFlow::vegas(&CcParams::default(), 31);
    receive(&mut vegas, 100_000, 0);
}

/// Both kinds of flow, after their first increment was sent, and the cell that ends that.
fn both() -> [(CircuitFlow, u64); 2] {
    let now = Instant::now();
    let mut fixed = CircuitFlow::fixed();
    send(&mut fixed, 1, 100, now);
    let mut vegas = CircuitFlow::vegas(&CcParams::default(), 31);
    send(&mut vegas, 1, 31, now);
    [(fixed, 100), (vegas, 31)]
}

#[test]
fn a_sendme_too_many_is_refused() {
    let now = Instant::now() + Duration::from_secs(1);
    for (mut flow, cell) in both() {
        flow.sendme(&sendme(cell), 1, false, now).unwrap();
        // A copy, one that is made up, and an old one without a digest.
        for extra in [sendme(cell), sendme(9), Vec::new()] {
            assert_eq!(
                flow.sendme(&extra, 0, false, now),
                Err(FlowError::UnexpectedSendme)
            );
        }
    }
}

#[test]
fn a_sendme_before_its_cell_is_refused() {
    let now = Instant::now();
    let early = Err(FlowError::UnexpectedSendme);
    let mut fixed = CircuitFlow::fixed();
    send(&mut fixed, 1, 99, now);
    assert_eq!(fixed.sendme(&sendme(100), 1, false, now), early);
    let mut vegas = CircuitFlow::vegas(&CcParams::default(), 31);
    send(&mut vegas, 1, 30, now);
    assert_eq!(vegas.sendme(&sendme(31), 1, false, now), early);
}

#[test]
fn a_forged_sendme_is_refused() {
    let now = Instant::now() + Duration::from_secs(1);
    for (mut flow, cell) in both() {
        let mut forged = sendme(cell);
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(
            flow.sendme(&forged, 1, false, now),
            Err(FlowError::ForgedSendme)
        );
    }
}

#[test]
fn sendmes_that_overtake_each_other_are_forged() {
    let now = Instant::now();
    let mut flow = CircuitFlow::fixed();
    send(&mut flow, 1, 200, now);
    assert_eq!(
        flow.sendme(&sendme(200), 1, false, now),
        Err(FlowError::ForgedSendme)
    );
}

#[test]
fn an_old_version_is_taken_only_as_long_as_the_consensus_does() {
    let now = Instant::now() + Duration::from_secs(1);
    for (mut flow, _) in both() {
        assert_eq!(
            flow.sendme(&[], 1, false, now),
            Err(FlowError::Version { version: 0, min: 1 })
        );
        // Nothing was used up.
        flow.sendme(&[], 0, false, now).unwrap();
        assert_eq!(flow.in_flight(), 0);
    }
    for (mut flow, cell) in both() {
        let mut later = sendme(cell);
        later[0] = 2;
        let error = flow.sendme(&later, 0, false, now).unwrap_err();
        assert!(matches!(error, FlowError::Malformed(_)));
        assert!(flow.sendme(&sendme(cell)[..22], 0, false, now).is_err());
        assert!(matches!(
            flow.sendme(&sendme(cell), 2, false, now),
            Err(FlowError::Version { version: 1, min: 2 })
        ));
        flow.sendme(&sendme(cell), 1, false, now).unwrap();
    }
}

#[test]
fn errors_name_what_was_attempted() {
    assert_eq!(
        FlowError::Version { version: 0, min: 1 }.to_string(),
        "SENDME of version 0 (accepted: 1 or later)"
    );
    assert_eq!(
        FlowError::TooMuchData("stream").to_string(),
        "DATA past the stream window"
    );
}

proptest! {
    /// Whatever is sent and acknowledged, room and flight add up to the window and every SENDME
    /// that is due is taken.
    #[test]
    fn fixed_windows_add_up(steps in proptest::collection::vec(0..300u32, 1..60)) {
        let now = Instant::now();
        let mut flow = CircuitFlow::fixed();
        let (mut sent, mut acknowledged) = (0u64, 0u64);
        for step in steps {
            let cells = u64::from(step.min(flow.room()));
            send(&mut flow, sent + 1, cells, now);
            sent += cells;
            while step % 3 != 0 && acknowledged + 100 <= sent {
                acknowledged += 100;
                flow.sendme(&sendme(acknowledged), 1, step % 2 == 0, now).unwrap();
            }
            prop_assert_eq!(u64::from(flow.in_flight()), sent - acknowledged);
            prop_assert_eq!(flow.room() + flow.in_flight(), 1000);
        }
    }
}
