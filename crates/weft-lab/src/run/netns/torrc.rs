//! Lines of torrc for the arms and relays of a scenario.

use weft_core::controller::Sharing;
use weft_path::{Acceptance, CircuitSelection};
use weft_testnet::nodes::torrc::{Duty, path_lines};
use weft_virtual::Roles;
use weft_virtual::scenario::Arm;
use weft_virtual::setup::{Client, MultipathEntry, MultipathOptions, NodeOptions, Relay};

/// Parameters of the consensus.
pub(super) fn params(arm: &Arm) -> Vec<String> {
    let params: &[&str] = match arm.congestion_control {
        true => &["cc_alg=2", "cc_sendme_inc=31"],
        false => &["cc_alg=0"],
    };
    params.iter().map(|&param| param.to_owned()).collect()
}

/// Lines of relays and clients.
pub(super) fn of_all(arm: &Arm) -> Vec<String> {
    let NodeOptions {
        sharing,
        run_interval,
        sock_buf_size_factor,
        ..
    } = &arm.options;
    let mut lines = match *sharing {
        Sharing::All => Vec::new(),
        Sharing::PerCircuit { per_relay, .. } => shared("1", per_relay),
        Sharing::Auto { per_relay, .. } => shared("auto", per_relay),
    };
    lines.push(format!(
        "KISTSchedRunInterval {} msec",
        run_interval.as_millis()
    ));
    lines.push(format!("KISTSockBufSizeFactor {sock_buf_size_factor}"));
    if arm.options.client.selection.asks_weights() {
        lines.push("AbraWeights 1".to_owned());
    }
    lines
}

fn shared(value: &str, per_relay: usize) -> Vec<String> {
    vec![
        format!("ConnectionPerCircuit {value}"),
        format!("MaxConnectionsPerRelay {per_relay}"),
    ]
}

/// Lines of a relay.
pub(super) fn of_relay(relay: &Relay, arm: &Arm) -> Vec<String> {
    let mut lines = vec![format!("ConnectionThreads {}", relay.threads)];
    if let Some((rate, burst)) = relay.limit {
        lines.push(format!("BandwidthRate {rate} bytes"));
        lines.push(format!("BandwidthBurst {burst} bytes"));
    }
    if arm.options.multipath && relay.roles.exit {
        lines.push("MultipathExit 1".to_owned());
    }
    lines
}

/// A client's streams get tunnels where the arm has them, if the scenario has that of the client.
pub(super) fn with_tunnels(duty: Duty, arm: &Arm, client: &Client) -> Duty {
    match duty {
        Duty::Client { socks, control, .. } => Duty::Client {
            socks,
            control,
            multipath: arm.options.multipath && client.multipath == Some(true),
        },
        other => other,
    }
}

/// Lines of a client.
pub(super) fn of_client(arm: &Arm) -> Vec<String> {
    let (client, paths) = (&arm.options.client, &arm.options.paths);
    let mut lines = vec![
        format!(
            "MaxCircuitDirtiness {} seconds",
            client.max_dirtiness.as_secs()
        ),
        format!(
            "__DisablePredictedCircuits {}",
            u8::from(client.disable_predicted)
        ),
        format!("UseEntryGuards {}", u8::from(paths.use_entry_guards)),
    ];
    if let Some(guards) = paths.num_entry_guards {
        lines.push(format!("NumEntryGuards {guards}"));
    }
    lines.push(format!(
        "CircuitAcceptance {}",
        match arm.options.times.acceptance {
            Acceptance::Cbt => "cbt",
            Acceptance::Rtt => "rtt",
            Acceptance::Both => "both",
            Acceptance::None => "none",
        }
    ));
    if let Some(quantile) = arm.options.times.quantile {
        lines.push(format!("CircuitAcceptanceQuantile {quantile}"));
    }
    lines.push(format!(
        "CircuitSelection {}",
        match client.selection {
            CircuitSelection::Default => "default",
            CircuitSelection::Abra => "abra",
            CircuitSelection::AbraStay => "abra-stay",
        }
    ));
    if arm.options.multipath {
        let MultipathOptions {
            circuits,
            entry,
            middle_below,
            ..
        } = &client.multipath;
        lines.push(format!("MultipathCircuits {circuits}"));
        let entry = match entry {
            MultipathEntry::Distinct => "distinct",
            MultipathEntry::Common => "common",
        };
        lines.push(format!("MultipathEntry {entry}"));
        // A unit of weight is a kB/s.
        let bytes = u64::from(*middle_below) * 1_000;
        lines.push(format!("MultipathMiddleBandwidth {bytes} bytes"));
    }
    lines
}

/// An option of this arm that real processes cannot have; `None` if there is none.
pub(super) fn only_virtual(arm: &Arm) -> Option<&'static str> {
    match &arm.options {
        options if options.lies => Some("lies"),
        options if options.adversary > 0.0 => Some("adversary"),
        options if !options.learning.is_zero() => Some("learning"),
        options if options.pools > 0 => Some("pools"),
        _ => None,
    }
}

/// Who may be which hop, by nickname.
#[derive(Debug, Default)]
pub(super) struct Paths {
    guards: Vec<String>,
    /// Every relay: without this list, the authority would be one as well.
    middles: Vec<String>,
    exits: Vec<String>,
}

impl Paths {
    pub(super) fn add(&mut self, nickname: &str, roles: Roles) {
        if roles.guard {
            self.guards.push(nickname.to_owned());
        }
        if roles.exit {
            self.exits.push(nickname.to_owned());
        }
        self.middles.push(nickname.to_owned());
    }

    /// Lines of a client, whose only guard is this relay if it has one. Every relay may be in the middle, if it is neither
    /// of the other two.
    pub(super) fn lines(&self, entry: Option<&str>) -> Vec<String> {
        let [guards, middles, exits] = [&self.guards, &self.middles, &self.exits]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        path_lines(&entry.map_or(guards, |entry| vec![entry]), &middles, &exits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_an_arm_are_lines() {
        let per_relay = 7;
        let arm = Arm {
            name: "pctls".to_owned(),
            congestion_control: false,
            threads: 1,
            options: NodeOptions {
                sharing: Sharing::PerCircuit {
                    per_relay,
                    total: 500,
                },
                ..NodeOptions::default()
            },
        };
        let expected = [
            "ConnectionPerCircuit 1",
            "MaxConnectionsPerRelay 7",
            "KISTSchedRunInterval 10 msec",
            "KISTSockBufSizeFactor 1",
        ];
        assert_eq!(of_all(&arm), expected);
        assert_eq!(params(&arm), ["cc_alg=0"]);
        assert_eq!(only_virtual(&arm), None);
    }

    #[test]
    fn ways_of_choosing_circuits_are_lines() {
        let mut options = NodeOptions::default();
        options.client.selection = CircuitSelection::AbraStay;
        options.times.acceptance = Acceptance::Rtt;
        options.times.quantile = Some(0.5);
        let mut arm = Arm {
            name: "both".to_owned(),
            congestion_control: true,
            threads: 1,
            options,
        };
        assert!(of_all(&arm).contains(&"AbraWeights 1".to_owned()));
        let lines = of_client(&arm);
        for line in [
            "CircuitAcceptance rtt",
            "CircuitAcceptanceQuantile 0.5",
            "CircuitSelection abra-stay",
        ] {
            assert!(lines.contains(&line.to_owned()), "{lines:?}");
        }
        arm.options.lies = true;
        assert_eq!(only_virtual(&arm), Some("lies"));
    }

    #[test]
    fn tunnels_are_lines_of_clients() {
        let mut options = NodeOptions {
            multipath: true,
            ..NodeOptions::default()
        };
        options.client.multipath.circuits = 5;
        options.client.multipath.entry = MultipathEntry::Common;
        options.client.multipath.middle_below = 100;
        let arm = Arm {
            name: "mtor5-common".to_owned(),
            congestion_control: true,
            threads: 1,
            options,
        };
        let lines = of_client(&arm);
        for line in [
            "MultipathCircuits 5",
            "MultipathEntry common",
            "MultipathMiddleBandwidth 100000 bytes",
        ] {
            assert!(lines.contains(&line.to_owned()), "{lines:?}");
        }
    }

    #[test]
    fn guards_and_exits_are_those_of_the_roles() {
        let mut paths = Paths::default();
        let [guard, exit] =
            [(true, false), (false, true)].map(|(guard, exit)| Roles { guard, exit });
        paths.add("relay0", guard);
        paths.add("relay1", Roles::default());
        paths.add("relay2", exit);
        let lines = paths.lines(None);
        assert!(lines.contains(&"EntryNodes relay0".to_owned()), "{lines:?}");
        assert!(lines.contains(&"ExitNodes relay2".to_owned()), "{lines:?}");
        let middles = "MiddleNodes relay0,relay1,relay2".to_owned();
        assert!(lines.contains(&middles), "{lines:?}");
        let lines = paths.lines(Some("relay1"));
        assert!(lines.contains(&"EntryNodes relay1".to_owned()), "{lines:?}");
    }
}
