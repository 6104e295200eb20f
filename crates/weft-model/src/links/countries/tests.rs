use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::links::{Access, DrawError, HostId, Moment, Network, Topology, star};

/// Three countries; latencies are 10 ms within one, and 20, 30 and 50 ms between two.
const SMALL: &str = include_str!("../../../../../fuzz/corpus/countries/small");

const MS: u64 = 1_000_000;

fn small() -> Countries {
    Countries::parse(SMALL).unwrap()
}

fn access(host: &str, countries: &Countries, country: CountryId) -> Access {
    let [up, down] = countries.rates(country).unwrap();
    let host = host.to_owned();
    Access { host, up, down }
}

/// A topology of hosts `a`, `b` and so on at these countries.
fn hosts_at(countries: &Countries, codes: &[&str]) -> Result<Topology, DrawError> {
    let hosts = codes.iter().zip('a'..).map(|(code, name)| {
        let country = countries.find(code).unwrap();
        (access(&name.to_string(), countries, country), country)
    });
    countries.topology("countries", &hosts.collect::<Vec<_>>())
}

/// Time that a packet without length takes from one host to another, in nanoseconds.
fn one_way(topology: &Topology, from: usize, to: usize) -> u64 {
    let mut network = Network::new(topology.clone().calm(), 1);
    let mut packet = [0; 24];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&HostId(to).address().octets());
    network.send(Moment::START, HostId(from), &packet).unwrap();
    while let Some(due) = network.next_due() {
        if let Some(delivery) = network.deliver(due) {
            return delivery.at.nanos();
        }
    }
    panic!("lost");
}

#[test]
fn a_country_has_its_rates_and_two_countries_what_is_between_them() {
    let countries = small();
    let [de, us] = ["DE", "us"].map(|code| countries.find(code).unwrap());
    assert_eq!(countries.code(de), "de");
    let [up, down] = countries.rates(de).unwrap();
    // 1,370 and 6,105 KiB/s.
    assert_eq!((up.bits(), down.bits()), (11_223_040, 50_012_160));
    let crossing = countries.crossing(de, us).unwrap();
    assert_eq!(crossing.delay, Duration::from_millis(50));
    assert_eq!(crossing.jitter, Duration::from_micros(250));
    assert_eq!(crossing.loss.per_billion(), 5_000_000);
    assert_eq!(countries.crossing(us, de), Some(crossing));
}

#[test]
fn an_unknown_country_is_named_with_the_nearest() {
    let countries = small();
    let error = |code| countries.find(code).unwrap_err().to_string();
    assert_eq!(error("dd"), "unknown country \"dd\"; did you mean de?");
    assert_eq!(error("uk"), "unknown country \"uk\"; did you mean gb?");
    assert_eq!(error("france"), "unknown country \"france\"");
}

#[test]
fn hosts_are_apart_what_their_countries_are() {
    let countries = small();
    let topology = hosts_at(&countries, &["de", "us", "de", "de", "gb"]).unwrap();
    let again = Topology::parse("again.toml", &topology.to_string()).unwrap();
    assert_eq!(again, topology);
    // Without jitter, and with little time on the lines: 24 bytes at 11 Mbit/s take 17 µs.
    for (from, to, ms) in [
        (0, 1, 50),
        (1, 3, 50),
        (0, 2, 10),
        (3, 2, 10),
        (0, 4, 20),
        (4, 1, 30),
    ] {
        let nanos = one_way(&topology, from, to);
        let spread = 350_000;
        assert!(nanos.abs_diff(ms * MS) < spread, "{from} to {to}: {nanos}");
    }
}

#[test]
fn every_host_has_its_own_line() {
    let topology = hosts_at(&small(), &["de", "de", "us"]).unwrap();
    for host in topology.hosts() {
        let links = topology.links().iter();
        let lines: Vec<_> = links
            .filter(|link| link.ends.contains(&host.node()))
            .collect();
        assert_eq!(lines.len(), 1);
        let [up, down] = &lines[0].directions;
        assert_eq!(lines[0].ends[0], host.node());
        assert!(up.rate.is_some() && up.rate < down.rate);
    }
}

#[test]
fn what_makes_no_topology_is_named() {
    let countries = small();
    let error = |codes: &[&str]| hosts_at(&countries, codes).unwrap_err();
    assert_eq!(error(&[]), DrawError::Hosts(0));
    assert!(error(&[]).to_string().contains("1 to 1000"));
    let us = countries.find("us").unwrap();
    let many = |count: usize| {
        let hosts = (0..count).map(|number| (access(&format!("h{number}"), &countries, us), us));
        countries.topology("many", &hosts.collect::<Vec<_>>())
    };
    assert_eq!(many(1_001), Err(DrawError::Hosts(1_001)));
    // 300 lines, as many links to the country's switch, 44,850 pairs.
    assert_eq!(many(300), Err(DrawError::Links(45_450)));
    assert!(many(198).is_ok());
    let twice = [("x", us), ("x", us)].map(|(name, at)| (access(name, &countries, at), at));
    let twice = countries.topology("twice", &twice).unwrap_err();
    assert_eq!(twice, DrawError::Name("x".to_owned()));

    // Countries that no edge joins; nothing is missing where no packet goes.
    let start = SMALL.find("<edge source=\"us\" target=\"us\">").unwrap();
    let end = start + SMALL[start..].find("</edge>").unwrap() + "</edge>".len();
    let text = SMALL.replace(&SMALL[start..end], "");
    let countries = Countries::parse(&text).unwrap();
    assert!(hosts_at(&countries, &["us", "de"]).is_ok());
    let error = hosts_at(&countries, &["us", "us"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the graph has no <edge> from us to us, and hosts are at both"
    );
}

/// The error in the small graph after `from` in it is replaced by `to`.
fn error(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    let text = SMALL.replacen(from, to, 1);
    Countries::parse(&text).unwrap_err().to_string()
}

#[test]
fn errors_name_line_and_element() {
    let latency = "<data key=\"d7\">50.0</data>";
    for (value, problem) in [
        ("-50.0", "latency is negative: -50"),
        ("NaN", "latency is no number: \"NaN\""),
        ("inf", "latency is no number: \"inf\""),
        ("10001", "latency is 10001 ms, and may be 10 s at most"),
        ("fast", "latency is no number: \"fast\""),
    ] {
        let found = error(latency, &format!("<data key=\"d7\">{value}</data>"));
        let place = "line 40, <edge source=\"de\" target=\"us\">: ";
        assert_eq!(found, format!("{place}{problem}"));
    }
    assert_eq!(
        error(latency, ""),
        "line 40, <edge source=\"de\" target=\"us\">: latency is missing"
    );
    let rate = "<data key=\"d4\">1370</data>";
    for (value, problem) in [
        ("-1370", "bandwidthup is negative: \"-1370\""),
        (
            "0",
            "bandwidthup is out of range (1 to 12,000,000 KiB/s): \"0\"",
        ),
        ("NaN", "bandwidthup is no whole number: \"NaN\""),
        (
            "99999999999999999999",
            "bandwidthup is no whole number: \"99999999999999999999\"",
        ),
    ] {
        let found = error(rate, &format!("<data key=\"d4\">{value}</data>"));
        assert_eq!(found, format!("line 14, <node id=\"de\">: {problem}"));
    }
    let code = "<data key=\"d2\">DE</data>";
    let of_code = |code_in: &str| error(code, code_in);
    assert!(of_code("").ends_with("countrycode is missing"));
    assert!(
        of_code("<data key=\"d2\">Mars</data>")
            .ends_with("countrycode is no two letters: \"Mars\"")
    );
    assert!(of_code("<data key=\"d2\">us</data>").contains("countrycode us, too"));
    let loss = "<data key=\"d9\">0.005</data>";
    for value in ["1", "-0.1", "1e300"] {
        let found = error(loss, &format!("<data key=\"d9\">{value}</data>"));
        assert!(found.contains("packetloss is"), "{found}");
    }
    assert!(error("target=\"us\"", "target=\"xx\"").contains("no node has the id \"xx\""));
    assert!(
        error("source=\"de\" target=\"gb\"", "source=\"us\" target=\"de\"")
            .contains("an earlier edge")
    );
    assert!(error("<graphml", "<gml").contains("'gml'"));
    let empty = "<graphml><graph/></graphml>";
    let empty = Countries::parse(empty).unwrap_err().to_string();
    assert_eq!(
        empty,
        "line 1, <graph>: there is no <node>: a country is one"
    );
    assert!(Countries::parse("name = \"pair\"\n").is_err());
}

#[test]
fn in_a_directed_graph_each_way_has_an_edge() {
    let text = SMALL.replace("undirected", "directed");
    let countries = Countries::parse(&text).unwrap();
    let error = hosts_at(&countries, &["de", "us"]).unwrap_err();
    let from = "us".to_owned();
    assert_eq!(
        error,
        DrawError::NoPath {
            from,
            to: "de".to_owned()
        }
    );
}

#[test]
fn a_draw_takes_each_country_before_one_twice() {
    let countries = small();
    let all: Vec<CountryId> = countries.ids().collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let drawn = countries.draw(&all, 7, &mut rng);
    assert_eq!(drawn.len(), 7);
    for third in drawn.chunks(3) {
        let mut different = third.to_vec();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), third.len());
    }
    assert!(countries.draw(&[], 7, &mut rng).is_empty());
    let again = countries.draw(&all, 7, &mut ChaCha8Rng::seed_from_u64(1));
    assert_eq!(again, drawn);
}

#[test]
fn hosts_around_a_switch_are_10_to_90_ms_apart() {
    let rate = |megabit: u64| Rate::from_bits(megabit * 1_000_000).unwrap();
    let hosts: Vec<Access> = (0..20)
        .map(|number| Access {
            host: format!("host{number}"),
            up: rate(10),
            down: rate(50),
        })
        .collect();
    let topology = star("star", &hosts, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    assert_eq!(
        Topology::parse("again", &topology.to_string()),
        Ok(topology.clone())
    );
    let times: Vec<u64> = (1..20).map(|to| one_way(&topology, 0, to)).collect();
    assert!(
        times.iter().all(|time| (10 * MS..91 * MS).contains(time)),
        "{times:?}"
    );
    assert!(times.iter().max() > times.iter().min());
    let again = star("star", &hosts, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    assert_eq!(again, topology);
    assert_eq!(
        star("x", &[], &mut ChaCha8Rng::seed_from_u64(1)),
        Err(DrawError::Hosts(0))
    );
    let mut wrong = hosts;
    wrong[3].host = "Host".to_owned();
    let error = star("x", &wrong, &mut ChaCha8Rng::seed_from_u64(1)).unwrap_err();
    assert_eq!(error, DrawError::Name("Host".to_owned()));
}

/// Shadow's own, where the data is here.
#[test]
fn shadows_topology_of_2018_is_read() {
    const NAME: &str = "network/shadow_topology_2018.graphml.xml.xz";
    let Some(path) = weft_testing::real_document(NAME) else {
        return weft_testing::not_run!("{NAME} is not in ../shared/data");
    };
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    let mut reader = lzma_rust2::XzReader::new(file, false);
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    let countries = Countries::parse(&text).unwrap();
    assert_eq!(countries.ids().len(), 183);
    let all: Vec<_> = countries
        .ids()
        .map(|country| {
            (
                access(countries.code(country), &countries, country),
                country,
            )
        })
        .map(|(access, country)| {
            let host = format!("{}1", access.host);
            (Access { host, ..access }, country)
        })
        .collect();
    let topology = countries.topology("countries", &all).unwrap();
    assert_eq!(topology.links().len(), 183 + 183 * 182 / 2);
    assert_eq!(
        Topology::parse("again", &topology.to_string()),
        Ok(topology)
    );
}

proptest! {
    #[test]
    fn hosts_anywhere_make_a_topology_that_is_read_again(
        places in vec(0_usize..3, 1..30),
    ) {
        let countries = small();
        let codes: Vec<&str> = places.iter().map(|place| ["de", "us", "gb"][*place]).collect();
        let hosts: Vec<_> = (0..).zip(&codes).map(|(number, code)| {
            let country = countries.find(code).unwrap();
            (access(&format!("host{number}"), &countries, country), country)
        }).collect();
        let topology = countries.topology("drawn", &hosts).unwrap();
        prop_assert_eq!(Topology::parse("again", &topology.to_string()), Ok(topology));
    }
}
