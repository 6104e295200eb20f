//! Links, wheels, topologies and networks, with times that the test hands in.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use crate::links::{
    Fate, HostId, Link, LinkSettings, Loss, Moment, Network, QueueLimit, Rate, Refusal, Topology,
    Wheel, builtin,
};

const MS: u64 = 1_000_000;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

fn settings(rate: Option<u64>, delay: Duration) -> LinkSettings {
    LinkSettings {
        rate: rate.map(|bits| Rate::from_bits(bits).unwrap()),
        delay,
        ..LinkSettings::default()
    }
}

/// An IPv4 packet of this length from nowhere, with a number in its body.
fn packet(to: HostId, length: usize, number: u32) -> Vec<u8> {
    let mut packet = vec![0; length.max(24)];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&to.address().octets());
    packet[20..24].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[20..24].try_into().unwrap())
}

/// When each packet is due, with its destination and number, until there are no more.
fn drain(network: &mut Network) -> Vec<(Moment, HostId, u32)> {
    let mut arrived = Vec::new();
    while let Some(due) = network.next_due() {
        while let Some(delivery) = network.deliver(due) {
            arrived.push((delivery.at, delivery.to, number(delivery.packet)));
        }
    }
    arrived
}

#[test]
fn a_delay_is_exact() {
    let mut link = Link::new(&settings(None, Duration::from_millis(50)));
    let fate = link.offer(Moment::from_nanos(7), 1_500, &mut rng());
    assert_eq!(fate, Fate::Arrives(Moment::from_nanos(7 + 50 * MS)));
}

#[test]
fn packets_follow_each_other_at_the_rate() {
    // 1,500 bytes at 300 Mbit/s are 40 µs.
    let mut link = Link::new(&settings(Some(300_000_000), Duration::ZERO));
    for number in 1..=10 {
        let fate = link.offer(Moment::START, 1_500, &mut rng());
        assert_eq!(fate, Fate::Arrives(Moment::from_nanos(number * 40_000)));
    }
    let fate = link.offer(Moment::from_nanos(MS), 750, &mut rng());
    assert_eq!(fate, Fate::Arrives(Moment::from_nanos(MS + 20_000)));
}

#[test]
fn rounding_does_not_add_up() {
    // 40 bytes at 3 kbit/s are 106,666,666.67 ns; three of them are 320 ms.
    let mut link = Link::new(&settings(Some(3_000), Duration::ZERO));
    let at: Vec<Fate> = (0..3)
        .map(|_| link.offer(Moment::START, 40, &mut rng()))
        .collect();
    let arrives = |nanos| Fate::Arrives(Moment::from_nanos(nanos));
    assert_eq!(
        at,
        [
            arrives(106_666_667),
            arrives(213_333_334),
            arrives(320_000_000)
        ]
    );
}

#[test]
fn a_full_queue_drops_what_comes_last() {
    let mut settings = settings(Some(1_000_000), Duration::ZERO);
    settings.queue = QueueLimit::Packets(3);
    let mut link = Link::new(&settings);
    let fates: Vec<bool> = (0..5)
        .map(|_| link.offer(Moment::START, 1_000, &mut rng()) == Fate::DroppedByQueue)
        .collect();
    assert_eq!(fates, [false, false, false, true, true]);
    // 8 ms for each: the first has been sent.
    let later = Moment::from_nanos(8 * MS);
    assert_ne!(link.offer(later, 1_000, &mut rng()), Fate::DroppedByQueue);
    assert_eq!(link.offer(later, 1_000, &mut rng()), Fate::DroppedByQueue);
    assert_eq!(link.counters().dropped_by_queue, 3);
    assert_eq!(link.counters().packets, 4);
}

#[test]
fn a_queue_in_bytes_takes_packets_while_any_byte_is_free() {
    let mut settings = settings(Some(1_000_000), Duration::ZERO);
    settings.queue = QueueLimit::Bytes(2_500);
    let mut link = Link::new(&settings);
    let fates: Vec<bool> = (0..4)
        .map(|_| link.offer(Moment::START, 1_000, &mut rng()) == Fate::DroppedByQueue)
        .collect();
    assert_eq!(fates, [false, false, false, true]);
}

#[test]
fn a_tenth_of_a_percent_is_lost_within_a_tenth_of_it() {
    let mut settings = settings(None, Duration::ZERO);
    settings.loss = Loss::from_per_billion(1_000_000).unwrap();
    for seed in 0..4 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut link = Link::new(&settings);
        // 10 % of the expected 4,000 are over six standard deviations.
        for _ in 0..4_000_000 {
            link.offer(Moment::START, 100, &mut rng);
        }
        let lost = link.counters().dropped_by_loss;
        assert!((3_600..=4_400).contains(&lost), "{lost} of 4,000,000");
    }
}

#[test]
fn what_no_buffer_holds_is_refused_and_counted() {
    let topology = builtin::topology("pair").unwrap().unwrap();
    let (client, server) = (HostId(0), HostId(1));
    let mut network = Network::new(topology, 1);
    let mut send = |packet: &[u8]| network.send(Moment::START, client, packet);
    assert_eq!(send(&[]), Err(Refusal::Malformed));
    assert_eq!(send(&packet(server, 1_501, 0)), Err(Refusal::Malformed));
    assert_eq!(send(&[0x60; 40]), Err(Refusal::Malformed));
    assert_eq!(send(&packet(HostId(2), 40, 0)), Err(Refusal::NoRoute));
    assert_eq!(send(&packet(server, 1_500, 0)), Ok(()));
    let totals = network.totals();
    assert_eq!((totals.malformed, totals.no_route, totals.sent), (3, 1, 5));
}

#[test]
fn a_packet_crosses_every_link_of_its_way() {
    let topology = builtin::topology("pahl-no-dropping").unwrap().unwrap();
    let [client, server] = ["client8", "server"].map(|name| topology.host(name).unwrap());
    let mut network = Network::new(topology, 1);
    let bytes = packet(server, 1_500, 9);
    network.send(Moment::START, client, &bytes).unwrap();
    let arrived = drain(&mut network);
    // Three links of 300 Mbit/s, one of 1 Gbit/s, and 12.5 ms twice.
    let at = 3 * 40_000 + 12_000 + 25 * MS;
    assert_eq!(arrived, [(Moment::from_nanos(at), server, 9)]);
    let crossed = network.counters().filter(|(_, link)| link.packets == 1);
    assert_eq!(crossed.count(), 4);
}

#[test]
fn lateness_does_not_add_up() {
    let topology = builtin::topology("pahl-no-dropping").unwrap().unwrap();
    let [client, exit] = ["client1", "exit"].map(|name| topology.host(name).unwrap());
    let mut network = Network::new(topology, 1);
    let bytes = packet(exit, 1_500, 9);
    network.send(Moment::START, client, &bytes).unwrap();
    // Called once only, when the packet should be there.
    let at = Moment::from_nanos(3 * 40_000 + 25 * MS);
    assert!(network.deliver(at).is_some());
}

#[test]
fn losses_of_one_link_do_not_change_those_of_another() {
    let text = "name = \"x\"\nhosts = [\"a\", \"b\", \"c\", \"d\"]\ndefaults = { loss = \"50 %\" }\n\
                [[link]]\nends = [\"a\", \"b\"]\n[[link]]\nends = [\"c\", \"d\"]\n";
    let topology = Topology::parse("x.toml", text).unwrap();
    let [a, b, c, d] = [0, 1, 2, 3].map(HostId);
    let fates = |with_other: bool| -> Vec<bool> {
        let mut network = Network::new(topology.clone(), 5);
        let mut send = |from, to| {
            network
                .send(Moment::START, from, &packet(to, 40, 0))
                .is_ok()
        };
        (0..100)
            .map(|_| {
                if with_other {
                    send(c, d);
                }
                send(a, b)
            })
            .collect()
    };
    assert_eq!(fates(false), fates(true));
}

#[test]
fn every_built_in_topology_is_good_and_survives_its_own_text() {
    for name in builtin::names() {
        let topology = builtin::topology(name).unwrap().unwrap();
        assert_eq!(topology.name(), name);
        let again = Topology::parse("again.toml", &topology.to_string()).unwrap();
        assert_eq!(again, topology);
    }
    assert!(builtin::topology("par").is_none());
}

/// The error in this text after a name and hosts `client`, `server` and `exit` on lines 1 and 2.
fn error(text: &str) -> String {
    let text = format!("name = \"x\"\nhosts = [\"client\", \"server\", \"exit\"]\n{text}");
    Topology::parse("x.toml", &text).unwrap_err().to_string()
}

#[test]
fn errors_name_file_line_and_what_was_meant() {
    let link = "[[link]]\nends = [\"client\", \"server\"]\n";
    assert_eq!(
        error("[[link]]\nends = [\"client\", \"servr\"]\n"),
        "x.toml:4: unknown host \"servr\"; did you mean server?"
    );
    assert_eq!(
        error(&format!("{link}rat = \"1 Mbit/s\"\n")),
        "x.toml:5: unknown key of a link \"rat\"; did you mean rate?"
    );
    assert_eq!(
        error("switchs = []\n"),
        "x.toml:3: unknown key \"switchs\"; did you mean switches?"
    );
    assert_eq!(
        error(&format!("{link}rate = \"-1 Mbit/s\"\n")),
        "x.toml:5: \"-1 Mbit/s\" is negative: expected a rate such as \"300 Mbit/s\""
    );
    assert_eq!(
        error(&format!("{link}delay = \"50 m\"\n")),
        "x.toml:5: unknown unit \"m\" in \"50 m\"; did you mean ms?"
    );
    assert_eq!(
        error("switches = [\"client\"]\n"),
        "x.toml:3: two hosts or switches are named client"
    );
    assert_eq!(
        error(&format!("{link}delay = \"1 ms\"\njitter = \"2 ms\"\n")),
        "x.toml:6: the jitter is greater than the delay: packets would arrive early"
    );
    assert_eq!(
        error(&format!("{link}background = -1\n")),
        "x.toml:5: background is a number of TCP streams from 0 to 64"
    );
    assert!(error("name = \"y\"\n").starts_with("x.toml:3: "));
    assert!(error("[[link]]\n").contains("x.toml:3: a link without ends"));
    assert!(error("[[link]]\nends = [\"client\"]\n").contains("x.toml:4: a link has two ends"));
    assert!(error("[[link]]\nends = [\"client\", \"client\"]\n").contains("different ends"));
    assert!(error("link = 3\n").contains("x.toml:3: expected a list"));
}

#[test]
fn two_ways_are_refused() {
    let triangle = "[[link]]\nends = [\"client\", \"server\"]\n[[link]]\nends = [\"server\", \"exit\"]\n\
                    [[link]]\nends = [\"exit\", \"client\"]\n";
    assert!(
        error(triangle).starts_with("x.toml:8: the link between exit and client closes a cycle"),
        "{}",
        error(triangle)
    );
    let text = |rest: &str| {
        format!(
            "name = \"x\"\nhosts = [\"client\", \"server\", \"exit\"]\nroutes = \"fewest-links\"\n{rest}"
        )
    };
    // A mesh has cycles, but one shortest way.
    assert!(Topology::parse("x.toml", &text(triangle)).is_ok());
    let double =
        "[[link]]\nends = [\"client\", \"server\"]\n[[link]]\nends = [\"server\", \"client\"]\n";
    let error = Topology::parse("x.toml", &text(double)).unwrap_err();
    assert!(error.to_string().contains("two ways"), "{error}");
}

#[test]
fn addresses_are_distinct_and_found_again() {
    let mut seen = std::collections::HashSet::new();
    for index in 0..1_000 {
        let host = HostId(index);
        assert!(seen.insert(host.address()));
        assert_eq!(HostId::at(host.address()), Some(host));
    }
    assert_eq!(HostId(0).address().to_string(), "10.1.0.1");
    assert_eq!(HostId(250).address().to_string(), "10.1.1.1");
}

#[test]
fn a_full_wheel_gives_the_value_back() {
    let mut wheel = Wheel::new(2);
    assert_eq!(wheel.insert(Moment::START, 1), Ok(()));
    assert_eq!(wheel.insert(Moment::START, 2), Ok(()));
    assert_eq!(wheel.insert(Moment::START, 3), Err(3));
    assert_eq!(wheel.pop(Moment::START), Some((Moment::START, 1)));
    assert_eq!(wheel.insert(Moment::START, 4), Ok(()));
    assert_eq!(wheel.len(), 2);
}

proptest! {
    #[test]
    fn a_wheel_returns_everything_once_in_order_and_never_early(
        times in vec(0_u64..2_000_000_000, 1..200),
        steps in vec(1_u64..700_000_000, 1..20),
    ) {
        let mut wheel = Wheel::new(1_000);
        let mut expected: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
        for &(at, value) in &expected {
            wheel.insert(Moment::from_nanos(at), value).unwrap();
        }
        expected.sort_unstable();
        let mut popped = Vec::new();
        let mut now = 0;
        for step in steps {
            now += step;
            while let Some((at, value)) = wheel.pop(Moment::from_nanos(now)) {
                prop_assert!(at.nanos() <= now);
                popped.push((at.nanos(), value));
            }
            prop_assert!(wheel.next_due().is_none_or(|due| due.nanos() > now || wheel.is_empty()));
        }
        while let Some(due) = wheel.next_due() {
            while let Some((at, value)) = wheel.pop(due) {
                popped.push((at.nanos(), value));
            }
        }
        prop_assert!(wheel.is_empty());
        prop_assert_eq!(popped, expected);
    }

    #[test]
    fn a_wheel_that_is_filled_and_emptied_at_once_is_a_sorted_list(
        operations in vec((any::<bool>(), 0_u64..600_000_000), 1..300),
    ) {
        let mut wheel = Wheel::new(1_000);
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (order, (is_insert, time)) in operations.into_iter().enumerate() {
            if is_insert {
                wheel.insert(Moment::from_nanos(now + time), order as u64).unwrap();
                list.push((now + time, order as u64));
                list.sort_unstable();
            } else {
                now += time / 10;
                while let Some((at, value)) = wheel.pop(Moment::from_nanos(now)) {
                    prop_assert_eq!((at.nanos(), value), list.remove(0));
                }
                prop_assert!(list.first().is_none_or(|first| first.0 > now));
                let due = wheel.next_due();
                prop_assert_eq!(due.is_some(), !list.is_empty());
                if let (Some(due), Some(first)) = (due, list.first()) {
                    prop_assert!(due.nanos() <= first.0);
                }
            }
        }
    }

    #[test]
    fn a_link_keeps_order_and_its_rate(
        rate in 1_000_000_u64..1_000_000_000,
        delay_ms in 0_u64..100,
        jitter in 0_u64..100,
        packets in vec((0_u64..100_000, 20_u32..1_500), 2..200),
    ) {
        let mut settings = settings(Some(rate), Duration::from_millis(delay_ms));
        settings.jitter = Duration::from_millis(jitter.min(delay_ms));
        settings.queue = QueueLimit::Packets(10_000);
        let has_jitter = !settings.jitter.is_zero();
        let mut link = Link::new(&settings);
        let mut rng = rng();
        let (mut now, mut last, mut bits) = (0, 0, 0_u128);
        let mut first = None;
        for (pause, length) in packets {
            now += pause;
            let Fate::Arrives(at) = link.offer(Moment::from_nanos(now), length, &mut rng) else {
                panic!("dropped");
            };
            prop_assert!(at.nanos() >= last);
            last = at.nanos();
            // Never early, and never faster than the rate since the first packet.
            let line = u128::from(length) * 8 * 1_000_000_000 / u128::from(rate);
            let least = u128::from(now) + line + u128::from((delay_ms - jitter.min(delay_ms)) * MS);
            prop_assert!(u128::from(last) >= least);
            bits += u128::from(length) * 8;
            if !has_jitter {
                let begun = *first.get_or_insert(now);
                let elapsed = u128::from(last - begun - delay_ms * MS);
                prop_assert!(elapsed * u128::from(rate) >= bits * 1_000_000_000);
            }
        }
    }

    #[test]
    fn a_network_loses_and_doubles_nothing(
        packets in vec((0_u64..3_000_000, 0_usize..8, 24_usize..1_500), 1..150),
    ) {
        let topology = builtin::topology("pahl-no-dropping").unwrap().unwrap();
        let server = topology.host("server").unwrap();
        let mut network = Network::new(topology, 1);
        let (mut now, mut arrived) = (0, Vec::new());
        let sent = packets.len();
        for (number, (pause, client, length)) in packets.into_iter().enumerate() {
            now += pause;
            while let Some(delivery) = network.deliver(Moment::from_nanos(now)) {
                arrived.push(super::tests::number(delivery.packet));
            }
            let bytes = packet(server, length, number as u32);
            network.send(Moment::from_nanos(now), HostId(client), &bytes).unwrap();
        }
        arrived.extend(drain(&mut network).into_iter().map(|(_, _, number)| number));
        arrived.sort_unstable();
        prop_assert_eq!(arrived, (0..sent as u32).collect::<Vec<_>>());
        prop_assert_eq!(network.under_way(), 0);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Topology::parse("x.toml", &text);
    }
}

/// Two hosts, and a link with this line.
fn pair_with(line: &str) -> Topology {
    let text = format!(
        "name = \"pair\"\nhosts = [\"a\", \"b\"]\n[[link]]\nends = [\"a\", \"b\"]\n{line}\n"
    );
    Topology::parse("pair.toml", &text).unwrap()
}

#[test]
fn links_take_other_settings_and_packets_under_way_keep_their_times() {
    let mut network = Network::new(pair_with("delay = \"50 ms\""), 1);
    let [a, b] = [0, 1].map(|index| network.topology().hosts().nth(index).unwrap());
    let start = Moment::START;
    network.send(start, a, &packet(b, 100, 1)).unwrap();
    network.change(pair_with("delay = \"80 ms\"")).unwrap();
    network.send(start, a, &packet(b, 100, 2)).unwrap();
    network.change(pair_with("delay = \"10 ms\"")).unwrap();
    // It would arrive first, and does not overtake.
    network.send(start, a, &packet(b, 100, 3)).unwrap();
    network
        .change(pair_with("loss = \"99.9999999 %\""))
        .unwrap();
    let lost = network.send(start, a, &packet(b, 100, 4));
    assert_eq!(lost, Err(Refusal::Dropped));
    let expected = [(50, 1), (80, 2), (80, 3)].map(|(ms, number)| (start.plus(ms * MS), b, number));
    assert_eq!(drain(&mut network), expected);
}

#[test]
fn a_topology_of_another_shape_is_refused() {
    let mut network = Network::new(pair_with(""), 1);
    let other = builtin::topology("pahl-one").unwrap().unwrap();
    assert!(network.change(other).is_err());
    assert_eq!(network.topology().name(), "pair");
}

#[test]
fn a_calm_topology_loses_nothing_and_has_no_background() {
    for name in ["pahl-shared-dropping", "pahl-two"] {
        let topology = builtin::topology(name).unwrap().unwrap();
        let calm = topology.clone().calm();
        assert!(calm.has_shape_of(&topology));
        for (before, after) in topology.links().iter().zip(calm.links()) {
            assert_eq!(after.background, 0);
            for (before, after) in before.directions.iter().zip(&after.directions) {
                assert_eq!(after.loss, Loss::default());
                assert_eq!(after.delay, before.delay);
            }
        }
    }
}

#[test]
fn a_topology_names_the_congestion_control_of_tcp() {
    let with = |line: &str| {
        let text = format!("name = \"x\"\nhosts = [\"a\"]\n{line}\n");
        Topology::parse("x.toml", &text)
    };
    assert_eq!(with("").unwrap().tcp(), None);
    let cubic = with("tcp = \"cubic\"").unwrap();
    assert_eq!(cubic.tcp(), Some("cubic"));
    assert_eq!(Topology::parse("again", &cubic.to_string()).unwrap(), cubic);
    for bad in ["\"\"", "\"../x\"", "\"Cubic\"", "\"sixteen-letters-\"", "1"] {
        let error = with(&format!("tcp = {bad}")).unwrap_err();
        assert_eq!(error.line(), 3, "{error}");
    }
}

/// An access line: 10 Mbit/s up, 50 Mbit/s down.
const ACCESS: &str = "delay = \"10 ms\"\nrate = \"10 Mbit/s\"\nqueue = \"3 packets\"\nloss = \"50 %\"\n\
                      back = { rate = \"50 Mbit/s\", delay = \"5 ms\", queue = \"64 kB\", loss = \"0 %\" }";

#[test]
fn the_directions_of_a_link_can_differ() {
    let topology = pair_with(ACCESS);
    let [up, down] = &topology.links()[0].directions;
    assert_eq!(up.rate.unwrap().bits(), 10_000_000);
    assert_eq!(down.rate.unwrap().bits(), 50_000_000);
    assert_eq!(
        (up.queue, down.queue),
        (QueueLimit::Packets(3), QueueLimit::Bytes(64_000))
    );
    assert_eq!(down.loss, Loss::default());
    let again = Topology::parse("again.toml", &topology.to_string()).unwrap();
    assert_eq!(again, topology);

    // Each way has its own in a network, too, from the start and after a change.
    let calm = topology.calm();
    let changed = || {
        let mut network = Network::new(pair_with(""), 1);
        network.change(calm.clone()).unwrap();
        network
    };
    let one_way = |mut network: Network, from: usize| {
        let [from, to] = [from, 1 - from].map(HostId);
        let bytes = packet(to, 1_250, 1);
        network.send(Moment::START, from, &bytes).unwrap();
        drain(&mut network)[0].0.nanos()
    };
    for (from, nanos) in [(0, 11 * MS), (1, 5 * MS + MS / 5)] {
        assert_eq!(one_way(Network::new(calm.clone(), 1), from), nanos);
        assert_eq!(one_way(changed(), from), nanos);
    }
}

#[test]
fn losses_of_one_direction_are_not_those_of_the_other() {
    let mut network = Network::new(pair_with("back = { loss = \"99.9999999 %\" }"), 1);
    let [a, b] = [0, 1].map(HostId);
    assert_eq!(network.send(Moment::START, a, &packet(b, 40, 0)), Ok(()));
    let back = network.send(Moment::START, b, &packet(a, 40, 0));
    assert_eq!(back, Err(Refusal::Dropped));
}

#[test]
fn a_way_back_has_what_it_does_not_set_from_the_way_there() {
    let text = "[defaults]\nrate = \"1 Mbit/s\"\n[[link]]\nends = [\"client\", \"server\"]\ndelay = \"20 ms\"\n\
                jitter = \"2 ms\"\n[link.back]\ndelay = \"0 ms\"\njitter = \"0 ms\"\n";
    let topology = Topology::parse(
        "x.toml",
        &format!("name = \"x\"\nhosts = [\"client\", \"server\"]\n{text}"),
    )
    .unwrap();
    let [forth, back] = &topology.links()[0].directions;
    assert_eq!(back.rate, forth.rate);
    assert_eq!((back.delay, back.jitter), (Duration::ZERO, Duration::ZERO));
    assert_eq!(
        Topology::parse("again", &topology.to_string()),
        Ok(topology)
    );

    let link = "[[link]]\nends = [\"client\", \"server\"]\n";
    assert_eq!(
        error(&format!("{link}back = {{ rat = \"1 Mbit/s\" }}\n")),
        "x.toml:5: unknown key of the way back \"rat\"; did you mean rate?"
    );
    assert_eq!(
        error(&format!("{link}back = {{ rate = \"-1 Mbit/s\" }}\n")),
        "x.toml:5: \"-1 Mbit/s\" is negative: expected a rate such as \"300 Mbit/s\""
    );
    assert_eq!(
        error(&format!(
            "{link}delay = \"9 ms\"\njitter = \"9 ms\"\n[link.back]\ndelay = \"1 ms\"\n"
        )),
        "x.toml:8: the jitter is greater than the delay: packets would arrive early"
    );
    assert_eq!(
        error(&format!("{link}back = \"10 Mbit/s\"\n")),
        "x.toml:5: expected a table"
    );
}

#[test]
fn faster_links_are_made_slower_and_no_others() {
    let three = builtin::topology("pahl-three").unwrap().unwrap();
    let rate: Rate = "100 Mbit/s".parse().unwrap();
    let slower = three.clone().at_most(rate);
    assert!(slower.has_shape_of(&three));
    let rates = |topology: &Topology| -> Vec<Option<u64>> {
        let settings = topology.links().iter().flat_map(|link| &link.directions);
        settings.map(|one| one.rate.map(Rate::bits)).collect()
    };
    for (before, after) in rates(&three).into_iter().zip(rates(&slower)) {
        assert_eq!(after, before.map(|bits| bits.min(100_000_000)));
    }
    assert!(rates(&slower).contains(&Some(2_000_000)));
    assert!("fast".parse::<Rate>().is_err());
}
