//! GUARD events from two lists of guards.

use std::collections::BTreeMap;

use weft_cell::identity::RsaIdentity;
use weft_path::{GuardInfo, GuardStatus};

/// The differences between two lists of guards, with C tor's word for each (control_event_guard).
pub fn guard_events<'a>(
    old: &'a BTreeMap<RsaIdentity, GuardInfo>,
    new: &'a BTreeMap<RsaIdentity, GuardInfo>,
) -> Vec<(&'a GuardInfo, &'static str)> {
    let is_down = |guard: &GuardInfo| matches!(guard.status, GuardStatus::Down(_));
    let is_up = |guard: &GuardInfo| guard.status == GuardStatus::Up;
    let mut events = Vec::new();
    for (id, guard) in old {
        if !new.contains_key(id) {
            events.push((guard, "DROPPED"));
        }
    }
    for (id, guard) in new {
        let before = old.get(id);
        if before.is_none() {
            events.push((guard, "NEW"));
        }
        if is_up(guard) && !before.is_some_and(is_up) {
            events.push((guard, "UP"));
        }
        if is_down(guard) && !before.is_some_and(is_down) {
            events.push((guard, "DOWN"));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_guards_are_reported_once() {
        let guards = |all: &[(u8, GuardStatus)]| -> BTreeMap<RsaIdentity, GuardInfo> {
            let guard = |(id, status): &(u8, GuardStatus)| GuardInfo {
                rsa: [*id; 20].into(),
                nickname: format!("relay{id}"),
                status: *status,
                primary: true,
            };
            all.iter()
                .map(|one| ([one.0; 20].into(), guard(one)))
                .collect()
        };
        let old = guards(&[
            (1, GuardStatus::Up),
            (2, GuardStatus::Down(None)),
            (3, GuardStatus::NeverConnected),
        ]);
        let new = guards(&[
            (1, GuardStatus::Down(None)),
            (2, GuardStatus::Up),
            (4, GuardStatus::NeverConnected),
        ]);
        let events = guard_events(&old, &new);
        let events_of: Vec<(u8, &str)> = events
            .iter()
            .map(|(guard, what)| (guard.rsa.0[0], *what))
            .collect();
        assert_eq!(
            events_of,
            [(3, "DROPPED"), (1, "DOWN"), (2, "UP"), (4, "NEW")]
        );
        assert!(guard_events(&new, &new).is_empty());
    }
}
