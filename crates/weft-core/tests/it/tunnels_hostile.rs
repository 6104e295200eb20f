//! Tunnels, of conflux and of mTor, with an arbitrary far end: it has the keys of the circuits.
//! `tunnels_bad_input.rs` tests its allowed actions one by one.

use std::time::Duration;

use crate::far_end::{FarEnd, Kind, Side, play};
use proptest::prelude::*;
use weft_cell::RelayCmd;

/// Number of runs: PROPTEST_CASES, or 200.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(200)
}

/// Operations of [`play`]: mostly those that keep to the rules, so that what breaks them meets a tunnel that is in use.
fn operations() -> impl Strategy<Value = Vec<u8>> {
    let any_of = |operations: &'static [u8]| {
        let operation = proptest::sample::select(operations);
        (operation, any::<[u8; 3]>()).prop_map(|(operation, arguments)| {
            let [a, b, c] = arguments;
            vec![operation, a, b, c]
        })
    };
    let lawful = any_of(&[0, 4, 5, 6, 13, 16, 17, 18, 19, 21, 22, 23]);
    let lawless = any_of(&[3, 7, 10, 11, 12, 14, 15, 20]);
    let operation = prop_oneof![8 => lawful, 1 => lawless];
    let operations = proptest::collection::vec(operation, 0..200);
    (any::<u8>(), operations).prop_map(|(how, operations)| {
        let mut input = vec![how];
        input.extend(operations.into_iter().flatten());
        input
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_far_end_that_does_anything_harms_itself_alone(input in operations()) {
        play::play(&input);
    }

    #[test]
    fn so_does_one_that_keeps_to_no_rule(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        play::play(&input);
    }
}

// ---- acknowledgements, and what is repeated ----

#[test]
fn an_exit_is_not_made_to_send_again_what_one_number_names() {
    let mut far = FarEnd::with_legs(Side::Client, Kind::Mtor, 3, 1);
    far.open_stream(0);
    // Nothing is acknowledged by SENDMEs: this is what the windows of three legs hold.
    for _ in 0..100 {
        far.write(0, 1000);
        far.collect();
    }
    let sent: u64 = far.legs.iter().map(|leg| leg.received).sum();
    for _ in 0..240 {
        far.pass(Duration::from_millis(250));
        far.acknowledge(0, 1);
        far.collect();
    }
    let again = far.world.totals().tunnels.again;
    let window = 3 * 124;
    assert!(again > 0 && again <= window - sent, "{again}");
    assert!(far.has_tunnel() && far.open_legs() == 3);
}

#[test]
fn acknowledgements_that_come_too_often_close_the_tunnel() {
    for side in [Side::Client, Side::Exit] {
        let mut far = FarEnd::with_legs(side, Kind::Mtor, 2, 2);
        far.open_stream(0);
        // As many as a leg can have held up.
        for _ in 0..1000 {
            far.acknowledge(0, 1);
        }
        far.collect();
        far.pass(Duration::from_secs(10));
        assert_eq!(far.open_legs(), 2);
        for _ in 0..1100 {
            far.acknowledge(1, 1);
        }
        far.collect();
        assert_eq!((far.open_legs(), far.has_tunnel()), (0, false), "{side:?}");
        assert_eq!(far.world.totals().protocol_errors, 1);
        far.world.audit_at_rest();
    }
}

#[test]
fn messages_that_are_repeated_too_often_close_the_tunnel() {
    for side in [Side::Client, Side::Exit] {
        let mut far = FarEnd::with_legs(side, Kind::Mtor, 2, 3);
        let stream = far.open_stream(0);
        // As many as an honest far end may have had to send again: what two legs carried, and one that stood still.
        let mut repeated = 0;
        while far.has_tunnel() && repeated < 100_000 {
            for _ in 0..100 {
                far.subdata(repeated % 2, 1, RelayCmd::DATA.into(), stream, &[1; 10]);
                repeated += 1;
            }
            far.collect();
        }
        assert!(
            (3 * 16_384..3 * 16_384 + 200).contains(&repeated),
            "{side:?}: {repeated}"
        );
        assert_eq!(far.open_legs(), 0);
        far.world.audit_at_rest();
    }
}
