//! Paths through the network as it was on 2019-12-15, where the documents are beside the checkout.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::time::{Duration, SystemTime};

use crate::testing::{assert_in_proportion, netdir};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use tor_netdoc::AllowAnnotations;
use tor_netdoc::doc::microdesc::MicrodescReader;
use weft_cell::identity::RsaIdentity;
use weft_path::{ExitWanted, PathOptions, Relays, Selector, TargetPort, Usage};
use weft_testing::{not_run, real_document};

fn unpacked(file: &str) -> Option<String> {
    let packed = fs::read(real_document(file)?).unwrap();
    let mut text = String::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true)
        .read_to_string(&mut text)
        .unwrap();
    Some(text)
}

/// A relay as the consensus lists it.
struct Listed {
    /// `d`, `g`, `e` or `m`: by its Guard and Exit flags.
    kind: char,
    bandwidth: f64,
}

/// Relays by the base64 of their identities, and the document's weights.
fn read(consensus: &str) -> (HashMap<RsaIdentity, Listed>, HashMap<String, f64>) {
    use base64ct::{Base64Unpadded, Encoding as _};
    let (mut relays, mut weights) = (HashMap::new(), HashMap::new());
    let (mut id, mut kind) = ([0; 20], 'm');
    for line in consensus.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("r") => {
                let text = words.nth(1).unwrap();
                Base64Unpadded::decode(text, &mut id).unwrap();
            }
            Some("s") => {
                let flags: Vec<&str> = words.collect();
                kind = match (flags.contains(&"Guard"), flags.contains(&"Exit")) {
                    (true, true) => 'd',
                    (true, false) => 'g',
                    (false, true) => 'e',
                    (false, false) => 'm',
                };
            }
            Some("w") => {
                // Without a measurement, a relay's bandwidth is nobody's word but its own.
                let bandwidth = if line.contains("Unmeasured=1") {
                    0.0
                } else {
                    let text = words.next().unwrap().strip_prefix("Bandwidth=").unwrap();
                    text.parse().unwrap()
                };
                relays.insert(RsaIdentity(id), Listed { kind, bandwidth });
            }
            Some("bandwidth-weights") => {
                for word in words {
                    let (name, weight) = word.split_once('=').unwrap();
                    weights.insert(name.to_owned(), weight.parse().unwrap());
                }
            }
            _ => {}
        }
    }
    (relays, weights)
}

#[test]
fn paths_through_the_real_network_keep_to_its_weights_and_rules() {
    let files = [
        "consensus/2019-12-15-13-00-00-consensus-microdesc.xz",
        "microdescs/2019-12-14-21-31-11-microdescs-4e2fa46b.xz",
        "microdescs/2019-12-15-13-39-21-microdescs.new-52efeb17.xz",
    ];
    let [Some(consensus), Some(first), Some(second)] = files.map(unpacked) else {
        not_run!(
            "{} or its microdescriptors are not in ../shared/data",
            files[0]
        );
        return;
    };
    let microdescs = [&first, &second].into_iter().flat_map(|text| {
        MicrodescReader::new(text, &AllowAnnotations::AnnotationsAllowed)
            .unwrap()
            .filter_map(Result::ok)
            .map(tor_netdoc::doc::microdesc::AnnotatedMicrodesc::into_microdesc)
    });
    let relays = Relays::new(&netdir(&consensus, microdescs));
    let (listed, weights) = read(&consensus);
    assert!(relays.len() > 6000, "{} of {}", relays.len(), listed.len());

    // 2019-12-15 13:30:00.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_576_416_600);
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let options = PathOptions {
        use_entry_guards: false,
        ..PathOptions::default()
    };
    let mut selector = Selector::new(options, [], now);
    selector.set_relays(relays.into(), now, &mut rng);
    let kinds = ['d', 'g', 'e', 'm'];
    let mut counts = [0; 4];
    for _ in 0..3000 {
        let usage = Usage::Internal { stable: false };
        let path = selector.path(&usage, now, &mut rng).unwrap();
        let end = path.hops.last().unwrap();
        let kind = listed[&end.rsa].kind;
        counts[kinds.iter().position(|&k| k == kind).unwrap()] += 1;
        for (at, a) in path.hops.iter().enumerate() {
            for b in &path.hops[at + 1..] {
                assert_ne!(a.rsa, b.rsa);
                let subnet = |hop: &weft_path::Hop| match hop.addrs[0].ip() {
                    std::net::IpAddr::V4(ip) => ip.octets()[..2].to_vec(),
                    std::net::IpAddr::V6(_) => panic!("the first address is IPv4"),
                };
                assert_ne!(subnet(a), subnet(b));
            }
        }
    }
    // Nearly all relays are fast and have a microdescriptor; the weight of the rest is less than
    // these few draws can show.
    let expected = kinds.map(|kind| {
        let weight = weights[&format!("Wm{kind}")];
        let of_kind = listed.values().filter(|relay| relay.kind == kind);
        of_kind.map(|relay| relay.bandwidth * weight).sum::<f64>()
    });
    assert_in_proportion(&counts, &expected);

    let usage = Usage::Exit(ExitWanted {
        ports: [80, 443]
            .map(|port| TargetPort { ipv6: false, port })
            .to_vec(),
        ..ExitWanted::default()
    });
    for _ in 0..300 {
        let path = selector.path(&usage, now, &mut rng).unwrap();
        assert!(path.hops[2].is_exit);
    }
}
