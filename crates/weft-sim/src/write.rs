//! Writing a network as a consensus document (dir-spec 3.4.1), which [`crate::read`] reads.

use std::fmt::Write as _;

use base64ct::{Base64Unpadded, Encoding as _};

use crate::network::{Flags, Network, Weights};
use crate::synth::METHOD;

/// A consensus of the plain flavour. Its only signature is invalid, so no Tor accepts it.
///
/// Values that a [`Network`] does not have are invented: digests of descriptors are zeros, DirPorts
/// are 0, all times are the network's `valid-after`.
pub fn consensus(network: &Network) -> String {
    let mut text = String::with_capacity(network.relays.len() * 400);
    let known = Flags::all().map(|(_, name)| name).collect::<Vec<_>>();
    let time = &network.valid_after;
    let _ = write!(
        text,
        "network-status-version 3\nvote-status consensus\nconsensus-method {METHOD}\n\
         valid-after {time}\nfresh-until {time}\nvalid-until {time}\nvoting-delay 300 300\n\
         known-flags {}\n",
        known.join(" ")
    );
    let digest = Base64Unpadded::encode_string(&[0; 20]);
    for relay in &network.relays {
        let _ = writeln!(
            text,
            "r {} {} {digest} {time} {} {} 0",
            relay.nickname,
            Base64Unpadded::encode_string(&relay.fingerprint),
            relay.address,
            relay.or_port
        );
        if let Some(ipv6) = relay.ipv6 {
            let _ = writeln!(text, "a [{ipv6}]:{}", relay.or_port);
        }
        text.push('s');
        for (flag, name) in Flags::all() {
            if relay.flags.has(flag) {
                let _ = write!(text, " {name}");
            }
        }
        let _ = write!(text, "\nw Bandwidth={}\n", relay.bandwidth);
        if let Some(policy) = &relay.policy {
            let _ = writeln!(text, "p {policy}");
        }
    }
    text.push_str("directory-footer\n");
    bandwidth_weights(&mut text, &network.weights);
    let _ = write!(
        text,
        "directory-signature {zeros} {zeros}\n-----BEGIN SIGNATURE-----\n{}\n\
         -----END SIGNATURE-----\n",
        Base64Unpadded::encode_string(b"no signature"),
        zeros = "0".repeat(40),
    );
    text
}

/// Adds the line `bandwidth-weights`. The weights for directory requests and bridges follow from
/// the others (dir-spec 3.8.3).
pub fn bandwidth_weights(text: &mut String, weights: &Weights) {
    let [wgm, wgg, _, wgd] = weights.guard;
    let [wmm, wmg, wme, wmd] = weights.middle;
    let [wem, weg, wee, wed] = weights.exit;
    let named = [
        ("Wbd", wmd),
        ("Wbe", wme),
        ("Wbg", wmg),
        ("Wbm", wmm),
        ("Wdb", 1.0),
        ("Web", 1.0),
        ("Wed", wed),
        ("Wee", wee),
        ("Weg", weg),
        ("Wem", wem),
        ("Wgb", 1.0),
        ("Wgd", wgd),
        ("Wgg", wgg),
        ("Wgm", wgm),
        ("Wmb", 1.0),
        ("Wmd", wmd),
        ("Wme", wme),
        ("Wmg", wmg),
        ("Wmm", wmm),
    ];
    text.push_str("bandwidth-weights");
    for (name, weight) in named {
        let _ = write!(text, " {name}={}", (weight * 10_000.0).round());
    }
    text.push('\n');
}
