//! The bars that a measurement must meet.

use std::collections::BTreeMap;

use super::results::{Bar, Role, TunnelRole, many};

/// Least share of cryptography and networking together in a node's processor time.
const GROUPS_BAR: f64 = 0.8;
/// Weft's bars: this many times the throughput, and this many times less processor time.
const THROUGHPUT_BAR: f64 = 2.0;
const CPU_BAR: f64 = 3.0;

/// Cryptography and networking together, of the relay in which they have the least.
pub(super) fn groups_bar(roles: &[Role]) -> Option<Bar> {
    let relays = roles.iter().filter(|one| one.is_relay() && one.samples > 0);
    let least = relays
        .map(|one| one.crypto + one.networking)
        .min_by(f64::total_cmp)?;
    Some(Bar {
        what: "least share of crypto and networking together in a relay".to_owned(),
        found: least,
        at_least: GROUPS_BAR,
        met: least >= GROUPS_BAR,
    })
}

/// Weft beside the tunnels: throughput over each number of hops and circuits, and the processor time of each role
/// where the tunnels are nearest.
pub(super) fn tunnel_bars(weft: &[Role], tunnels: &[TunnelRole]) -> Vec<Bar> {
    let mut bars = throughput(weft, tunnels);
    let mut least: BTreeMap<(usize, &str), f64> = BTreeMap::new();
    for tunnel in tunnels {
        // The only relay of one hop is compared with the exit, which is the tunnel's.
        let same = |weft: &str| match &*tunnel.role {
            "relay" => weft == "entry" || weft == "middle",
            "exit" => weft == "exit" || weft == "relay",
            role => weft == role,
        };
        for one in like(weft, tunnel) {
            if same(one.role) && one.cpu_s_per_gb > 0.0 {
                let times = tunnel.cpu_s_per_gb / one.cpu_s_per_gb;
                let least = least.entry((tunnel.hops, &tunnel.role)).or_insert(times);
                *least = least.min(times);
            }
        }
    }
    bars.extend(least.into_iter().map(|((hops, role), times)| {
        let what = format!(
            "processor time of ipv8-rust-tunnels' {role} of {}, times Weft's, at least",
            many(hops, "hop")
        );
        bar(what, times, CPU_BAR)
    }));
    bars
}

/// Weft's nodes at the tunnel's hops and circuits.
fn like<'a>(weft: &'a [Role], tunnel: &'a TunnelRole) -> impl Iterator<Item = &'a Role> {
    weft.iter()
        .filter(|one| one.is_node() && (one.hops, one.circuits) == (tunnel.hops, tunnel.circuits))
}

fn throughput(weft: &[Role], tunnels: &[TunnelRole]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for tunnel in tunnels.iter().filter(|one| one.role == "exit") {
        let mut done = Vec::new();
        for one in like(weft, tunnel) {
            // All roles have the throughput of the whole.
            if done.contains(&one.congestion_control) {
                continue;
            }
            done.push(one.congestion_control);
            let what = format!(
                "throughput over {}, {}{}, times ipv8-rust-tunnels'",
                many(one.hops, "hop"),
                many(one.circuits, "circuit"),
                match one.congestion_control {
                    Some(true) => ", with congestion control",
                    Some(false) => ", without congestion control",
                    None => "",
                }
            );
            bars.push(bar(what, one.mbit / tunnel.mbit, THROUGHPUT_BAR));
        }
    }
    bars
}

fn bar(what: String, found: f64, at_least: f64) -> Bar {
    Bar {
        what,
        found,
        at_least,
        met: found >= at_least,
    }
}
