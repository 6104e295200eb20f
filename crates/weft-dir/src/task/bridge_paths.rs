//! The relays by which a bridge asks directories, and the authorities that its descriptor goes to.

use tor_llcrypto::pk::rsa::RsaIdentity;

use super::request::Asked;
use crate::authority::Authority;

/// Relays that are the first of circuits, at most: as many as C tor's primary guards.
pub(super) const MOST_GUARDS: usize = 3;
/// Failures of one of them in a row after which the next is asked.
const MOST_FAILURES: u8 = 3;
/// The line of the state file that has the guards.
const STATE: &str = "BridgeGuards";

/// The relays that a bridge asks over circuits.
#[derive(Debug, Default)]
pub(super) struct BridgePaths {
    /// The first relays of circuits, which are also the directories; the first of these is asked. Each stays as long as it is
    /// listed, so that few relays ever see the bridge's requests, however much they fail.
    pub(super) guards: Vec<RsaIdentity>,
    /// Failures of the first relay in a row.
    pub(super) failures: u8,
}

impl BridgePaths {
    /// The guards of an earlier run.
    pub(super) fn of_state(state: &[(String, String)]) -> Self {
        let line = state.iter().find(|(key, _)| key == STATE);
        let ids = line.map_or("", |(_, value)| value.as_str()).split(',');
        Self {
            guards: ids
                .filter_map(RsaIdentity::from_hex)
                .take(MOST_GUARDS)
                .collect(),
            failures: 0,
        }
    }

    /// The line of the state file.
    pub(super) fn state(&self) -> (String, String) {
        let ids = self
            .guards
            .iter()
            .map(|id| hex::encode_upper(id.as_bytes()));
        (STATE.to_owned(), ids.collect::<Vec<_>>().join(","))
    }

    /// Records the result of a request. A useless answer counts against the guard, which may answer
    /// and still withhold every document. Requests that began at the same time fail together, and
    /// count once.
    pub(super) fn answered(&mut self, asked: Asked, useful: bool) {
        if self.guards.first() != Some(&asked.guard) {
            return;
        }
        if useful {
            self.failures = 0;
        } else if asked.failures == self.failures {
            self.failures += 1;
        }
        if self.failures >= MOST_FAILURES {
            self.guards.rotate_left(1);
            self.failures = 0;
        }
    }
}

/// True if this authority accepts descriptors of bridges, or with `bridge` false, of other relays.
pub(super) fn takes(authority: &Authority, bridge: bool) -> bool {
    match bridge {
        true => authority.bridge,
        false => authority.v3_ident.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_of_no_use_is_followed_by_the_next_and_requests_of_one_moment_count_once() {
        let [first, second, third] = [[1; 20], [2; 20], [3; 20]].map(RsaIdentity::from);
        let mut paths = BridgePaths {
            guards: vec![first, second, third],
            failures: 0,
        };
        let asked = |paths: &BridgePaths| Asked {
            guard: paths.guards[0],
            failures: paths.failures,
        };
        for round in 1..MOST_FAILURES {
            let together = [asked(&paths); 8];
            for asked in together {
                paths.answered(asked, false);
            }
            assert_eq!((paths.guards[0], paths.failures), (first, round));
        }
        // Something of use.
        let last = asked(&paths);
        paths.answered(last, true);
        assert_eq!(paths.failures, 0);
        for _ in 0..MOST_FAILURES {
            let asked = asked(&paths);
            paths.answered(asked, false);
        }
        assert_eq!(paths.guards, [second, third, first]);
        // A late answer of the one before changes nothing.
        paths.answered(last, false);
        assert_eq!((paths.guards[0], paths.failures), (second, 0));
        // They stay over a start; what is no fingerprint is left out.
        let (key, value) = paths.state();
        let state = [("Other".to_owned(), "x".to_owned()), (key, value + ",x,")];
        assert_eq!(BridgePaths::of_state(&state).guards, paths.guards);
        let many = vec!["01".repeat(20); 10].join(",");
        let state = [(STATE.to_owned(), many)];
        assert_eq!(BridgePaths::of_state(&state).guards.len(), MOST_GUARDS);
    }

    #[test]
    fn a_bridge_s_descriptor_goes_to_authorities_of_bridges_alone() {
        let authority = |bridge, v3: bool| crate::authority::Authority {
            nickname: "a".to_owned(),
            dir_addr: "192.0.2.1:80".parse().unwrap(),
            identity: [1; 20].into(),
            v3_ident: v3.then(|| [2; 20].into()),
            bridge,
        };
        let (v3, of_bridges) = (authority(false, true), authority(true, false));
        assert!(takes(&of_bridges, true) && !takes(&v3, true));
        assert!(takes(&v3, false) && !takes(&of_bridges, false));
    }
}
