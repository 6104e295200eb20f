//! The graph that is written.

use weft_model::links::{Topology, builtin};

use super::graph::{self, Rates};

fn built_in(name: &str) -> Topology {
    let topology = builtin::topology(name).expect("built in");
    topology.expect("well-formed")
}

/// The value of a key in each edge or node of a graph, in order.
fn values<'g>(graph: &'g str, key: &str) -> Vec<&'g str> {
    let lines = graph.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(' ')?;
        (name == key).then_some(value)
    });
    lines.collect()
}

#[test]
fn a_graph_has_every_host_and_every_path() {
    let topology = built_in("pahl-shared-dropping");
    let graph = graph::gml(&topology).expect("a graph");
    let hosts = topology.hosts().len();
    assert_eq!(values(&graph, "id").len(), hosts);
    assert_eq!(values(&graph, "source").len(), hosts * hosts);
    let of = |from: &str, to: &str, key: &str| -> String {
        let number = |name: &str| topology.host(name).expect("a host").index();
        let place = number(from) * hosts + number(to);
        values(&graph, key)[place].to_owned()
    };
    // The shared link of 12.5 ms and 0.1 %, both ways.
    assert_eq!(of("middle", "exit", "latency"), "\"12500000 ns\"");
    assert_eq!(of("middle", "exit", "packet_loss"), "0.001000000");
    assert_eq!(of("exit", "middle", "packet_loss"), "0.001000000");
    assert_eq!(of("entry1", "exit", "latency"), "\"25000000 ns\"");
    assert_eq!(of("entry1", "exit", "packet_loss"), "0.001000000");
    assert_eq!(of("client1", "entry1", "packet_loss"), "0.000000000");
    // No link without delay has none in Shadow.
    assert_eq!(of("client1", "entry1", "latency"), "\"100000 ns\"");
    assert_eq!(of("exit", "exit", "latency"), "\"100000 ns\"");
    assert_eq!(values(&graph, "host_bandwidth_up")[0], "\"300000000 bit\"");
}

#[test]
fn a_host_has_the_least_rate_of_its_links_each_way() {
    let text = "name = \"x\"\nhosts = [\"a\", \"b\", \"c\"]\n\
                [[link]]\nends = [\"a\", \"b\"]\nrate = \"8 Mbit/s\"\nback = { rate = \"2 Mbit/s\" }\n\
                [[link]]\nends = [\"b\", \"c\"]\nrate = \"5 Mbit/s\"\njitter = \"1 ms\"\ndelay = \"2 ms\"\n";
    let topology = Topology::parse("x.toml", text).expect("well-formed");
    let host = topology.host("b").expect("a host");
    let rates = graph::rates(&topology, host);
    let expected = Rates {
        up: 2_000_000,
        down: 5_000_000,
    };
    assert_eq!(rates, expected);
    let lost = graph::losses(&topology).join("\n");
    for words in ["least rate of its links", "links: b.", "Jitter", "0.1 ms"] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
    assert!(!lost.contains("TCP"), "{lost}");
}
