//! Small networks from their first moment to their last.

use std::time::{Duration, Instant};

use weft_model::traffic::records::Outcome;

use super::World;
use crate::{Files, Results, Scenario};

/// One client, three relays, one server; 20 ms between any two of them.
const THREE_HOPS: &str = r#"duration = "40 s"
[network]
delay = "20 ms"
[[host]]
name = "client"
up = "20 Mbit/s"
down = "20 Mbit/s"
[[host]]
name = "relay"
count = 3
up = "50 Mbit/s"
down = "50 Mbit/s"
[[host]]
name = "server"
[[relay]]
host = "relay-1"
roles = ["guard"]
[[relay]]
host = "relay-2"
[[relay]]
host = "relay-3"
roles = ["exit"]
[[clients]]
hosts = ["client"]
model = { download = "1 MB", pause = "1 s" }
start = "5 s"
[[servers]]
hosts = ["server"]
"#;

/// Twelve relays, all kinds of users.
const SYNTHETIC: &str = r#"duration = "30 s"
[network]
synthetic = { relays = 12, guards = 5, exits = 4 }
delay = "30 ms"
[[clients]]
count = 6
model = "page"
within = "5 s"
[[clients]]
count = 2
model = "bulk"
within = "5 s"
[[clients]]
count = 2
model = "audio"
[[servers]]
count = 3
"#;

fn run(text: &str, seed: u64) -> Results {
    let scenario = Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let setup = scenario.setup(&Files::default(), 0, 1, seed);
    let setup = setup.unwrap_or_else(|error| panic!("{error}"));
    let mut world = World::new(setup, Instant::now());
    world.run_until(scenario.duration);
    world.into_results()
}

fn complete(results: &Results) -> usize {
    let streams = results.streams.iter();
    streams.filter(|one| one.is_complete()).count()
}

#[test]
fn a_download_crosses_three_relays() {
    let results = run(THREE_HOPS, 1);
    for stream in results.streams.iter().take(3) {
        eprintln!("{stream:?}");
    }
    assert!(complete(&results) >= 10, "{:?}", results.streams.len());
    let failed = |one: &&weft_model::traffic::Record| matches!(one.outcome, Outcome::Failed(_));
    assert_eq!(results.streams.iter().filter(failed).count(), 0);
    // The request and the first byte cross four paths each way.
    let first = results.streams.first().expect("a stream");
    let ttfb = first.time_to_first_byte().expect("a first byte");
    assert!(ttfb >= Duration::from_millis(160), "{ttfb:?}");
    assert!(ttfb < Duration::from_millis(400), "{ttfb:?}");
    // 1 MB at 20 Mbit/s takes 0.4 s without a relay between.
    let ttlb = first.time_to_last_byte().expect("a last byte");
    assert!(ttlb > Duration::from_millis(560), "{ttlb:?}");
    assert!(ttlb < Duration::from_secs(3), "{ttlb:?}");
    let built = results.circuits.iter().filter(|one| one.built.is_some());
    assert!(built.clone().count() >= 1);
    assert!(
        built
            .flat_map(|one| &one.path)
            .all(|name| name.starts_with("relay"))
    );
    assert!(
        results.relayed_bytes > 30_000_000,
        "{}",
        results.relayed_bytes
    );
    assert_eq!(results.relays.len(), 3);
    assert_eq!(results.relays[0].written.len(), 40);
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let first = run(SYNTHETIC, 7);
    assert_eq!(first, run(SYNTHETIC, 7));
    let other = run(SYNTHETIC, 8);
    assert_ne!(first.streams, other.streams);
    assert!(complete(&first) > 20, "{}", complete(&first));
    assert!(complete(&other) > 20, "{}", complete(&other));
}

#[test]
fn a_host_that_stalls_ends_nothing_and_brings_nothing() {
    let fault = "[[fault]]\nhost = \"relay-2\"\nat = \"15 s\"\n";
    let goes_on = run(&format!("{THREE_HOPS}{fault}lasts = \"5 s\"\n"), 1);
    assert!(complete(&goes_on) >= goes_on.streams.len() - 1);
    let stalls = run(&format!("{THREE_HOPS}{fault}"), 1);
    assert!(complete(&stalls) < complete(&goes_on));
    let last = stalls.streams.last().expect("a stream");
    assert!(!last.is_complete(), "{last:?}");
    let written = |at: usize| stalls.relays[1].written[at];
    assert!(written(14) > 0 && written(39) == 0);
}

#[test]
fn relays_carry_what_circuits_of_each_model_carry() {
    let results = run(SYNTHETIC, 7);
    let sum = |of: &str| -> u64 {
        let relays = results
            .relays
            .iter()
            .filter_map(|relay| relay.carried.get(of));
        relays.flatten().sum()
    };
    let bytes = |of: &str| -> u64 {
        let streams = results.streams.iter().filter(|one| one.model == of);
        streams
            .map(|one| one.times.down.bytes + one.times.up.bytes)
            .sum()
    };
    // Each circuit has three relays, and cells have heads.
    for model in ["page", "bulk"] {
        let (carried, payload) = (sum(model) as f64, bytes(model) as f64);
        assert!(
            (3.0..3.5).contains(&(carried / payload)),
            "{model}: {carried} {payload}"
        );
    }
    let all: u64 = results
        .relays
        .iter()
        .flat_map(|relay| relay.carried.values().flatten())
        .sum();
    assert_eq!(all, sum("page") + sum("bulk") + sum("audio"));
}

#[test]
fn work_that_costs_time_slows_a_relay_down() {
    let costly = format!("{THREE_HOPS}[costs]\ncell = \"500 us\"\nonionskin = \"5 ms\"\n");
    let (free, slow) = (run(THREE_HOPS, 1), run(&costly, 1));
    assert!(complete(&slow) > 0 && complete(&slow) < complete(&free));
    let busy = |results: &Results| {
        results
            .relays
            .iter()
            .map(|one| one.busy)
            .fold(0.0, f64::max)
    };
    assert_eq!(busy(&free), 0.0);
    assert!(busy(&slow) > 0.5, "{}", busy(&slow));
}

#[test]
fn a_relay_keeps_to_its_limit() {
    let limited = THREE_HOPS.replace(
        "host = \"relay-2\"",
        "host = \"relay-2\"\nlimit = \"4 Mbit/s\"",
    );
    let results = run(&limited, 1);
    let middle = &results.relays[1].written;
    // Half a megabyte each second, and as much at once.
    let bytes: u64 = middle.iter().sum();
    assert!(bytes < 40 * 500_000 + 600_000, "{bytes}");
    assert!(bytes > 25 * 500_000, "{bytes}");
}

/// A world that has run.
fn world(text: &str, arm: &str, seconds: u64) -> World {
    let text = format!("{text}[[arm]]\nname = \"one\"\n{arm}\n");
    let scenario = Scenario::parse("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let setup = scenario.setup(&Files::default(), 0, 1, 5);
    let setup = setup.unwrap_or_else(|error| panic!("{error}"));
    let mut world = World::new(setup, Instant::now());
    world.run_until(Duration::from_secs(seconds));
    world.check().unwrap_or_else(|broken| panic!("{broken}"));
    world
}

fn clients(world: &World) -> impl Iterator<Item = &weft_client::Client<super::choosing::Choosing>> {
    let nodes = world.nodes.iter();
    nodes.filter_map(|node| node.client.as_ref().map(|side| &side.client))
}

#[test]
fn streams_are_spread_over_the_legs_of_conflux_sets() {
    let world = world(SYNTHETIC, "conflux = true", 30);
    let mut sets = 0;
    let mut uses = 0;
    for client in clients(&world) {
        let circuits: Vec<_> = client.circuits().collect();
        let legs = circuits
            .iter()
            .filter(|circuit| circuit.purpose == weft_client::CircuitPurpose::ConfluxLinked);
        for leg in legs {
            let others = circuits.iter().filter(|other| other.conflux == leg.conflux);
            for other in others.filter(|other| other.id != leg.id) {
                assert_ne!(leg.path[0], other.path[0]);
                assert_ne!(leg.path[1], other.path[1]);
                assert_eq!(leg.path[2], other.path[2]);
            }
            sets += 1;
            uses += leg.uses;
        }
    }
    let results = world.into_results();
    eprintln!("{sets} legs, {uses} uses, {} streams", complete(&results));
    assert!(sets > 20 && uses > 20, "{sets} {uses}");
    let failed = |one: &&weft_model::traffic::Record| matches!(one.outcome, Outcome::Failed(_));
    assert_eq!(results.streams.iter().filter(failed).count(), 0);
    assert!(complete(&results) > 20, "{}", complete(&results));
}

#[test]
fn streams_of_clients_with_tunnels_are_spread_over_their_legs() {
    let text = SYNTHETIC.replace("model = \"bulk\"", "model = \"bulk\"\nmultipath = true");
    // Of so few relays one at most is slow by default.
    let arm = "multipath = 3\nmultipath_below = \"8 Gbit/s\"";
    let world = world(&text, arm, 30);
    let mut legs = 0;
    for client in clients(&world) {
        let circuits: Vec<_> = client.circuits().collect();
        let own: Vec<_> = circuits
            .iter()
            .filter(|circuit| circuit.purpose == weft_client::CircuitPurpose::MtorLinked)
            .collect();
        for (place, leg) in own.iter().enumerate() {
            let others = own[place + 1..].iter();
            for other in others.filter(|other| other.conflux == leg.conflux) {
                assert_ne!(leg.path[0], other.path[0]);
                assert_ne!(leg.path[1], other.path[1]);
                assert_eq!(leg.path[2], other.path[2]);
            }
        }
        legs += own.len();
    }
    // Two clients have one tunnel each; the others have none.
    assert_eq!(legs, 6);
    let results = world.into_results();
    let tunnels = results.tunnels.expect("tunnels were counted");
    assert!(tunnels.begun >= 2 && tunnels.legs >= 6, "{tunnels:?}");
    assert_eq!(tunnels.without, 0);
    assert!(tunnels.reorder_bytes_max > 0, "{tunnels:?}");
    let failed = |one: &&weft_model::traffic::Record| matches!(one.outcome, Outcome::Failed(_));
    assert_eq!(results.streams.iter().filter(failed).count(), 0);
    assert!(complete(&results) > 20, "{}", complete(&results));
}

#[test]
fn clients_learn_what_relays_state_of_their_bandwidth() {
    let stated = |world: &World| -> [u64; 4] {
        let counts = clients(world).map(|client| client.statements());
        counts.fold([0; 4], |[asked, accepted, bad, clients], one| {
            let refused = one.malformed + one.forged + one.stale + one.ahead;
            [
                asked + one.asked,
                accepted + one.accepted,
                bad + refused,
                clients + 1,
            ]
        })
    };
    let [asked, accepted, bad, clients] = stated(&world(SYNTHETIC, "selection = \"abra\"", 30));
    assert!(asked > 3 * clients, "{asked} of {clients}");
    assert!(accepted > asked, "{accepted} of {asked}");
    assert_eq!(bad, 0);
    assert_eq!(stated(&world(SYNTHETIC, "", 30))[..2], [0, 0]);
}

#[test]
fn a_relay_at_its_limit_states_a_weight_and_a_liar_does_not() {
    let limited = THREE_HOPS.replace(
        "host = \"relay-2\"",
        "host = \"relay-2\"\nlimit = \"2 Mbit/s\"",
    );
    // The largest weight that a relay stated, and that a circuit had, in ten seconds.
    let heaviest = |arm: &str| {
        let mut world = world(&limited, arm, 15);
        let mut most = [0.0_f64; 2];
        for second in 16..=25 {
            world.run_until(Duration::from_secs(second));
            let relays = world.nodes.iter().map(|node| node.controller.abra().weight);
            let circuits = clients(&world)
                .flat_map(|client| client.weighed_circuits(world.ground.both()))
                .filter_map(|circuit| circuit.weight);
            most[0] = relays.fold(most[0], f64::max);
            most[1] = circuits.fold(most[1], f64::max);
        }
        most
    };
    let [relay, circuit] = heaviest("selection = \"abra\"");
    assert!(relay > 0.0 && circuit > 0.0, "{relay} {circuit}");
    let [relay, circuit] = heaviest("selection = \"abra\"\nadversary = 1.0\nlies = true");
    assert!(relay > 0.0, "{relay}");
    assert_eq!(circuit, 0.0);
}

#[test]
fn what_was_built_to_learn_from_carries_nothing_afterwards() {
    // The only user begins three seconds after learning ends, when ten seconds' worth of those circuits are still open.
    let later = THREE_HOPS.replace("start = \"5 s\"", "start = \"23 s\"");
    let text = later + "[[arm]]\nname = \"one\"\nlearning = \"20 s\"\n";
    let results = run(&text, 1);
    assert!(complete(&results) > 5, "{:#?}", results.streams);
    let used = results.circuits.iter();
    let used: Vec<_> = used.filter(|one| !one.round_trips.is_empty()).collect();
    let is_new = |began: Duration| began >= Duration::from_secs(20);
    assert!(
        !used.is_empty() && used.iter().all(|one| is_new(one.began)),
        "{used:#?}"
    );
}

#[test]
fn clients_measure_circuits_and_leave_slow_ones_once_they_have_learnt() {
    let counts = |arm: &str| {
        let world = world(SYNTHETIC, arm, 60);
        let probes = clients(&world).map(|client| client.probes());
        probes.fold([0; 4], |[asked, accepted, slow, other], one| {
            [
                asked + one.asked,
                accepted + one.accepted,
                slow + one.slow,
                other + one.unproven + one.unanswered,
            ]
        })
    };
    let [asked, accepted, slow, other] = counts("acceptance = \"rtt\"\nlearning = \"50 s\"");
    assert!(asked > 1000, "{asked}");
    assert!(slow > 20, "{slow}");
    assert!(accepted > 3 * slow, "{accepted} {slow}");
    assert_eq!(other, 0);
    assert_eq!(counts(""), [0; 4]);
}

#[test]
fn clients_that_measure_use_each_circuit_once() {
    let measuring = "[[clients]]\ncount = 2\nname = \"measure\"\nmodel = { download = \"100 kB\" }\nmeasure = true\n[[servers]]";
    let results = run(&SYNTHETIC.replace("[[servers]]", measuring), 1);
    assert!(results.measured.len() > 20, "{}", results.measured.len());
    let ms = Duration::from_millis;
    for one in &results.measured {
        assert!(
            ["client-11", "client-12"].contains(&one.client.as_str()),
            "{one:?}"
        );
        // From hop to hop and back it takes 60 ms, and so it does from the exit to the server.
        assert!(one.build >= ms(360), "{one:?}");
        assert!(
            one.round_trip >= ms(180) && one.round_trip < one.build,
            "{one:?}"
        );
        assert!(one.latency >= ms(480), "{one:?}");
        // No faster than the latency allows.
        assert!(
            one.bandwidth_mbit > 0.0 && one.bandwidth_mbit < 0.8 / 0.48,
            "{one:?}"
        );
    }
    let own = results.circuits.iter();
    let own: Vec<_> = own.filter(|one| one.client == "client-12").collect();
    assert!(
        own.len() > 10 && own.iter().all(|one| one.round_trips.len() <= 1),
        "{own:#?}"
    );
    assert!(run(SYNTHETIC, 1).measured.is_empty());
}

#[test]
fn choices_are_recorded_as_clients_made_them() {
    let recorders = |world: &World| -> [u64; 2] {
        let clients = world.nodes.iter().filter_map(|node| node.client.as_ref());
        let recorders = clients.filter_map(|client| client.recorder.as_ref());
        recorders.fold([0; 2], |[kept, left_out], one| {
            [kept + one.choices.len() as u64, left_out + one.left_out]
        })
    };
    let all = world(SYNTHETIC, "selection = \"abra\"\npools = 10000", 30);
    let [kept, left_out] = recorders(&all);
    assert!(kept > 30 && left_out * 20 <= kept, "{kept} {left_out}");
    let results = all.into_results();
    assert_eq!(results.choices.len() as u64, kept);
    for choice in &results.choices {
        let relays = choice.circuits.iter().flat_map(|circuit| &circuit.relays);
        assert!(
            relays
                .into_iter()
                .all(|relay| (*relay as usize) < results.relays.len())
        );
        assert!(choice.chosen < choice.circuits.len());
    }
    assert!(
        results
            .choices
            .iter()
            .any(|choice| choice.circuits.len() > 1)
    );
    assert!(results.relays.iter().all(|relay| relay.bandwidth > 0));
    // As many as are asked for, and none where clients do not choose by weight.
    let few = world(SYNTHETIC, "selection = \"abra\"\npools = 20", 30);
    assert!(few.into_results().choices.len() <= 20);
    assert_eq!(recorders(&world(SYNTHETIC, "pools = 10000", 30)), [0, 0]);
    assert!(run(SYNTHETIC, 1).choices.is_empty());
}
