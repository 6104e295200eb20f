//! Small networks for tests.

use std::net::Ipv4Addr;

use crate::network::{Flags, Network, Relay, Weights};

pub(crate) const MIDDLE: Flags = Flags::RUNNING.with(Flags::VALID).with(Flags::FAST);
pub(crate) const GUARD: Flags = MIDDLE.with(Flags::GUARD);
pub(crate) const EXIT: Flags = MIDDLE.with(Flags::EXIT);

/// Relays with these flags and bandwidths, every one weighed fully wherever it may be.
pub(crate) fn network(relays: &[(Flags, u64)]) -> Network {
    let relay = |(number, (flags, bandwidth)): (u16, &(Flags, u64))| {
        let mut fingerprint = [0; 20];
        fingerprint[..2].copy_from_slice(&number.to_be_bytes());
        Relay {
            nickname: format!("relay{number}").into(),
            fingerprint,
            address: Ipv4Addr::LOCALHOST,
            or_port: 9001,
            ipv6: None,
            flags: *flags,
            bandwidth: *bandwidth,
            policy: None,
            microdesc: None,
        }
    };
    Network {
        valid_after: "2021-08-29 19:00:00".to_owned(),
        relays: (0..).zip(relays).map(relay).collect(),
        weights: Weights {
            guard: [0.0, 1.0, 0.0, 1.0],
            middle: [1.0; 4],
            exit: [0.0, 0.0, 1.0, 1.0],
        },
    }
}

/// A network of several hundred relays of all kinds, whose bandwidths span four powers of ten.
pub(crate) fn mixed(count: u64) -> Network {
    let relays: Vec<(Flags, u64)> = (0..count)
        .map(|number| {
            let flags = match number % 7 {
                0 | 1 => GUARD,
                2 => GUARD.with(Flags::EXIT),
                3 => EXIT,
                _ => MIDDLE,
            };
            // The golden ratio spreads them evenly over the powers.
            let part = (number as f64 * 0.618_033_988_75).fract();
            (flags, 10f64.powf(1.0 + 4.0 * part) as u64)
        })
        .collect();
    network(&relays)
}
