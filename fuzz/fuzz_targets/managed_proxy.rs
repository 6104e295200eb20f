//! What a program of pluggable transports prints: the first byte of an input chooses a side and whether there is a proxy, the
//! next one how the rest is cut. Whatever it is, and however it is cut, a program is usable only if it has said so, and what it
//! offers is bounded.

#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use weft_proxy::transports::{Action, Managed, Offer, Program, Side, State, Stream, is_identifier};

/// All that happens to a program which prints this, cut into pieces of `cut` bytes.
fn run(by_proxy: bool, side: Side, printed: &[u8], cut: usize) -> (Managed, Vec<String>) {
    let mut managed = Managed::new(Program {
        side,
        command: vec!["/p".to_owned()],
        transports: vec!["obfs4".to_owned()],
        by_proxy,
    });
    // The time is no matter of the result, only its differences.
    let now = Instant::now();
    managed.tick(now);
    managed.launched(now, 1);
    for piece in printed.chunks(cut) {
        managed.output(now, Stream::Output, piece);
        managed.output(now, Stream::Error, piece);
    }
    managed.read_lines(now);
    while managed.has_more() {
        managed.read_lines(now);
    }
    let (mut ready, mut stopped) = (0, 0);
    let mut actions = Vec::new();
    while let Some(action) = managed.poll() {
        ready += usize::from(action == Action::Ready);
        stopped += usize::from(action == Action::Stop);
        if !matches!(action, Action::Log(_)) {
            actions.push(format!("{action:?}"));
        }
    }
    assert!(ready <= 1 && stopped <= 1);
    // What breaks the protocol, or offers nothing, is ended.
    let ended = [State::Broken, State::Infant].contains(&managed.state());
    assert_eq!(stopped == 1, ended);
    (managed, actions)
}

fuzz_target!(|data: &[u8]| {
    let [kind, cut, printed @ ..] = data else {
        return;
    };
    let side = if kind & 1 == 0 {
        Side::Server
    } else {
        Side::Client
    };
    let by_proxy = kind & 2 != 0;
    let (mut managed, actions) = run(by_proxy, side, printed, usize::from(*cut).max(1));
    for transport in managed.transports() {
        assert!(is_identifier(&transport.name) && transport.address.port() != 0);
        let of_server = matches!(transport.offer, Offer::Bridge { .. });
        assert_eq!(of_server, side == Side::Server);
    }
    assert!(
        managed.transports().iter().all(|one| one.name == "obfs4")
            && managed.transports().len() <= 1
    );
    let (whole, same) = run(by_proxy, side, printed, printed.len().max(1));
    assert_eq!(managed.transports(), whole.transports());
    assert_eq!(actions, same);
    // It ends, and is started again or not.
    let now = Instant::now() + Duration::from_secs(1);
    let broken = managed.state() == State::Broken;
    managed.exited(now, "1");
    assert!(managed.transports().is_empty());
    managed.tick(now + Duration::from_secs(3600));
    let launches = std::iter::from_fn(|| managed.poll()).filter(|action| *action == Action::Launch);
    assert_eq!(launches.count(), usize::from(!broken));
});
