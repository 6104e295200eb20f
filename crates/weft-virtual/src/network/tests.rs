//! Networks made from scenarios: clients find paths in them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use weft_path::{ExitWanted, Path, Selector, TargetPort, Usage};
use weft_sim::{synth, write};

use super::*;
use crate::roles::Roles;
use crate::scenario::Files;

const SMALL: &str = r#"duration = "60 s"
[network]
synthetic = { relays = 20 }
[[clients]]
count = 30
model = "page"
within = "10 s"
[[servers]]
count = 12
"#;

fn scenario(text: &str) -> Scenario {
    Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn made(text: &str, files: &Files, seed: u64) -> Setup {
    let setup = scenario(text).setup(files, 0, 0, seed);
    setup.unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str, files: &Files) -> String {
    match scenario(text).setup(files, 0, 0, 1) {
        Ok(_) => panic!("no error: {text}"),
        Err(error) => error.to_string(),
    }
}

/// Paths to port 80 of a client that knows a setup's directory.
fn paths(setup: &Setup, count: usize) -> Vec<Path> {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let options = setup.options.paths.clone();
    let mut selector = Selector::new(options, [], setup.directory.epoch);
    selector.set_netdir(&setup.directory.netdir, setup.directory.epoch, &mut rng);
    let usage = Usage::Exit(ExitWanted {
        ports: vec![TargetPort {
            ipv6: false,
            port: 80,
        }],
        ..ExitWanted::default()
    });
    let path = |_| selector.path(&usage, setup.directory.epoch, &mut rng);
    (0..count)
        .map(path)
        .collect::<std::result::Result<_, _>>()
        .expect("a path")
}

/// The relay of a hop, by its place.
fn relay(setup: &Setup, hop: &weft_path::Hop) -> usize {
    let mut relays = setup.relays.iter();
    relays
        .position(|relay| relay.rsa == hop.rsa)
        .expect("a relay of the setup")
}

#[test]
fn clients_find_paths_in_a_small_network() {
    let setup = made(SMALL, &Files::default(), 1);
    assert_eq!(setup.relays.len(), 20);
    assert_eq!((setup.clients.len(), setup.servers.len()), (30, 12));
    assert_eq!(setup.hosts.len(), 62);
    let addresses: BTreeSet<IpAddr> = setup.hosts.iter().map(|host| host.addr).collect();
    assert_eq!(addresses.len(), setup.hosts.len());
    for path in paths(&setup, 20) {
        assert_eq!(path.hops.len(), 3);
        for hop in &path.hops {
            let relay = &setup.relays[relay(&setup, hop)];
            assert_eq!(hop.addrs, [setup.or_addr(relay).expect("an address")]);
            assert_eq!(hop.ed25519, relay.ed25519);
            let keys = weft_crypto::handshake::OnionKeys::new(
                relay.rsa,
                relay.ed25519,
                &relay.onion_key,
                None,
            );
            assert_eq!(hop.ntor, keys.current_public());
            assert!(hop.supports_ntor_v3 && hop.supports_cc && hop.supports_cgo);
        }
        let exit = &setup.relays[relay(&setup, &path.hops[2])];
        for server in &setup.servers {
            assert!(
                exit.policy
                    .allows(setup.hosts[server.host as usize].addr, 80)
            );
        }
    }
    for client in &setup.clients {
        assert_eq!(client.servers.len(), 10);
        assert!(client.start <= std::time::Duration::from_secs(10));
    }
}

#[test]
fn a_seed_and_a_repetition_are_one_network() {
    let scenario = scenario(SMALL);
    let files = Files::default();
    let setup = |repetition, seed| {
        let setup = scenario
            .setup(&files, 0, repetition, seed)
            .expect("a network");
        let keys: Vec<[u8; 32]> = setup.relays.iter().map(|relay| relay.onion_key).collect();
        let starts: Vec<_> = setup.clients.iter().map(|client| client.start).collect();
        (keys, starts, setup.seed)
    };
    assert_eq!(setup(0, 1), setup(0, 1));
    assert_ne!(setup(0, 1).0, setup(1, 1).0);
    assert_ne!(setup(0, 1).1, setup(0, 2).1);
}

#[test]
fn arms_share_the_network_and_differ_in_parameters() {
    let text = format!(
        "{SMALL}[[arm]]\nname = \"a\"\n[[arm]]\nname = \"b\"\ncongestion_control = false\n"
    );
    let scenario = scenario(&text);
    let files = Files::default();
    let setup = |arm| scenario.setup(&files, arm, 0, 1).expect("a network");
    let (one, other) = (setup(0), setup(1));
    assert_eq!(one.relays[3].onion_key, other.relays[3].onion_key);
    assert_eq!(one.seed, other.seed);
    assert_eq!(one.directory.params.congestion, Some(31));
    assert_eq!(other.directory.params.congestion, None);
    let error = scenario
        .setup(&files, 2, 0, 1)
        .expect_err("two arms")
        .to_string();
    assert_eq!(error, "there is no arm number 2: there are 2");
}

#[test]
fn synthetic_networks_have_the_guards_and_exits_asked_for() {
    for (relays, guards, exits) in [
        (3, Some(1), Some(1)),
        (50, Some(10), Some(40)),
        (500, None, Some(20)),
    ] {
        let all = relays::synthetic(relays, guards, exits, 1).expect("a network");
        assert_eq!(all.len(), relays as usize);
        let count = |has: fn(&Roles) -> bool| {
            all.iter()
                .filter(|relay| has(&relays::roles(relay)))
                .count()
        };
        assert!(guards.is_none_or(|guards| count(|roles| roles.guard) == guards as usize));
        assert!(exits.is_none_or(|exits| count(|roles| roles.exit) == exits as usize));
    }
    for relays in 4..40 {
        let text = SMALL.replace("relays = 20", &format!("relays = {relays}"));
        assert_eq!(
            paths(&made(&text, &Files::default(), 3), 1)[0].hops.len(),
            3
        );
    }
}

#[test]
fn one_guard_one_middle_and_one_exit_are_the_path() {
    let setup = made(crate::scenario::HOSTS, &Files::default(), 1);
    for path in paths(&setup, 5) {
        let names: Vec<&str> = path
            .hops
            .iter()
            .map(|hop| {
                setup.hosts[setup.relays[relay(&setup, hop)].host as usize]
                    .name
                    .as_str()
            })
            .collect();
        assert_eq!(names, ["relay-1", "relay-2", "relay-3"]);
    }
    assert_eq!(setup.relays[1].limit, Some((1_000_000, 1_000_000)));
}

#[test]
fn a_consensus_is_scaled_and_its_servers_are_elsewhere() {
    let text = write::consensus(&synth::network(400, 5).expect("a network"));
    let mut files = Files::default();
    files.insert("c", text.clone().into_bytes());
    let scenario = SMALL.replace(
        "synthetic = { relays = 20 }",
        "consensus = \"c\"\nscale = 0.1\nbuckets = true",
    );
    let setup = made(&scenario, &files, 1);
    // A tenth of each class, rounded.
    assert!((38..=42).contains(&setup.relays.len()));
    assert!(setup.relays.iter().all(|relay| relay.limit.is_some()));
    let part = scenario.replace("buckets = true", "buckets = true\ncapacity = 0.25");
    for (whole, part) in setup.relays.iter().zip(&made(&part, &files, 1).relays) {
        assert_eq!(part.bandwidth, whole.bandwidth);
        let [(whole, _), (part, _)] = [whole, part].map(|relay| relay.limit.expect("a limit"));
        assert_eq!(part, (whole / 4).max(75 * 1_024));
    }
    let network = |host: u32| match setup.hosts[host as usize].addr {
        IpAddr::V4(address) => [address.octets()[0], address.octets()[1]],
        IpAddr::V6(_) => panic!("IPv4 alone"),
    };
    let relays: BTreeSet<_> = setup
        .relays
        .iter()
        .map(|relay| network(relay.host))
        .collect();
    assert!(
        setup
            .servers
            .iter()
            .all(|server| !relays.contains(&network(server.host)))
    );
    paths(&setup, 5);
    // Damaged: the place is in the document.
    let damaged = text.replacen("w Bandwidth=", "w Bandwidth=x", 1);
    files.insert("c", damaged.into_bytes());
    let error_now = error(&scenario, &files);
    assert!(
        error_now.starts_with("c, line ") && error_now.contains("Bandwidth"),
        "{error_now}"
    );
    files.insert("c", text.as_bytes()[..text.len() / 2].to_vec());
    assert!(error(&scenario, &files).contains("breaks off"));
    // No exits.
    let shut = text.replace(" Exit", "");
    files.insert("c", shut.into_bytes());
    let error_now = error(&scenario, &files);
    assert!(
        error_now.starts_with("x.toml:2: ") && error_now.contains("no exit"),
        "{error_now}"
    );
    // None for the web.
    let policies = text.lines().map(|line| match line.starts_with("p ") {
        true => "p accept 22\n".to_owned(),
        false => format!("{line}\n"),
    });
    files.insert("c", policies.collect::<String>().into_bytes());
    let error_now = error(&scenario, &files);
    assert!(error_now.contains("no exit allows port 80"), "{error_now}");
    let none = error(&scenario, &Files::default());
    assert_eq!(none, "x.toml:2: the file \"c\" is not there");
}

#[test]
fn exits_may_have_lines_of_their_own() {
    let text = SMALL.replace(
        "synthetic = { relays = 20 }",
        "synthetic = { relays = 20, exits = 4 }\nbuckets = true\nexit_rate = \"3 Gbit/s\"",
    );
    let setup = made(&text, &Files::default(), 1);
    for relay in &setup.relays {
        let line = setup.net.line(weft_model::hosts::HostId(relay.host));
        let [up, _] = line.expect("a line");
        let is_own = up.rate.map(weft_model::links::Rate::bits) == Some(3_000_000_000);
        assert_eq!(
            (is_own, relay.limit.is_none()),
            (relay.roles.exit, relay.roles.exit)
        );
    }
}

#[test]
fn topologies_have_hosts_by_name() {
    let text = r#"duration = "5 s"
[network]
topology = "pahl-one"
[[relay]]
host = "entry1"
roles = ["guard"]
[[relay]]
host = "entry2"
roles = ["guard"]
[[relay]]
host = "middle"
[[relay]]
host = "exit"
roles = ["exit"]
[[clients]]
hosts = ["client1", "client2"]
model = "bulk"
[[servers]]
hosts = ["server"]
"#;
    let files = Files::default();
    let setup = made(text, &files, 1);
    assert_eq!((setup.relays.len(), setup.clients.len()), (4, 2));
    paths(&setup, 3);
    assert_eq!(
        error(&text.replace("\"middle\"", "\"midle\""), &files),
        "x.toml:10: unknown host \"midle\"; did you mean middle?"
    );
    let with = |entry: &str| text.replace("model = ", &format!("entry = \"{entry}\"\nmodel = "));
    let setup = made(&with("entry2"), &files, 1);
    assert!(setup.clients.iter().all(|client| client.entry == Some(1)));
    assert_eq!(
        error(&with("exit"), &files),
        "x.toml:15: clients cannot use this network: there is no guard on host exit, which is to be an entry"
    );
    // Its links have background streams.
    let busy = text.replace("pahl-one", "pahl-two");
    assert!(!made(&busy, &files, 1).background.is_empty());
}

#[test]
fn hosts_are_apart_what_their_countries_are() {
    let graph = r#"<graphml><key id="c" for="node" attr.name="countrycode"/><key id="u" for="node" attr.name="bandwidthup"/>
<key id="d" for="node" attr.name="bandwidthdown"/><key id="l" for="edge" attr.name="latency"/>
<graph edgedefault="undirected">
<node id="1"><data key="c">de</data><data key="u">100</data><data key="d">1000</data></node>
<node id="2"><data key="c">us</data><data key="u">200</data><data key="d">2000</data></node>
<edge source="1" target="1"><data key="l">5</data></edge>
<edge source="2" target="2"><data key="l">7</data></edge>
<edge source="1" target="2"><data key="l">50</data></edge>
</graph></graphml>"#;
    let mut files = Files::default();
    files.insert("g", graph.as_bytes().to_vec());
    let text = SMALL.replace("synthetic", "graph = \"g\"\nsynthetic");
    paths(&made(&text, &files, 1), 2);
    let one = SMALL.replace(
        "synthetic",
        "graph = \"g\"\ncountries = [\"de\"]\nsynthetic",
    );
    made(&one, &files, 1);
    let unknown = one.replace("\"de\"", "\"dd\"");
    let error_now = error(&unknown, &files);
    assert!(
        error_now.starts_with("x.toml:2: unknown country \"dd\""),
        "{error_now}"
    );
    files.insert("g", b"<graphml>".to_vec());
    assert!(error(&text, &files).starts_with("g: "));
}

#[test]
fn every_example_is_a_network() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/scenarios");
    let entries = std::fs::read_dir(folder).expect("examples");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let shown = path.display().to_string();
        let scenario = Scenario::parse(&shown, &text).unwrap_or_else(|error| panic!("{error}"));
        let files = Files::default();
        for arm in 0..scenario.arms.len() {
            let setup = scenario.setup(&files, arm, 0, 1);
            let setup = setup.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(paths(&setup, 1)[0].hops.len(), 3, "{shown}");
            let estimate = scenario.estimate(&files);
            assert_eq!(estimate.relays, setup.relays.len() as u64);
            assert_eq!(estimate.clients, setup.clients.len() as u64);
        }
        count += 1;
    }
    assert!(count >= 6);
}

#[test]
fn a_real_consensus_and_the_countries_of_2018_are_a_network() {
    let documents = [
        "consensus/2021-08-29-19-00-00-consensus.xz",
        "consensus/2025-12-09-20-00-00-consensus-microdesc.xz",
    ];
    for name in documents {
        let graph = "network/shadow_topology_2018.graphml.xml.xz";
        let found = [name, graph].map(weft_testing::real_document);
        let [Some(consensus), Some(graph)] = found else {
            weft_testing::not_run!("there is no ../shared/data/{name}, or no topology of 2018");
            return;
        };
        let mut files = Files::default();
        for (name, path) in [("c", consensus), ("g", graph)] {
            let document = weft_sim::read::file(&path).expect("a document");
            files.insert(name, document.text);
        }
        let kind = "consensus = \"c\"\nscale = 0.02\ngraph = \"g\"";
        let text = SMALL.replace("synthetic = { relays = 20 }", kind);
        let setup = made(&text, &files, 1);
        assert!(setup.relays.len() > 100 && setup.relays.len() < 250);
        assert_eq!(paths(&setup, 3)[2].hops.len(), 3);
    }
}
