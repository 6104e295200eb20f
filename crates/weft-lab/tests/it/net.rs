//! `weft lab net` as its users run it. It needs privileges; where they are missing, the tests report it.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weft_testnet::net::{Options, Testbed, Topology, missing};

fn weft() -> Command {
    let mut weft = Command::new(crate::weft());
    weft.args(["lab", "net"]).stdin(Stdio::null());
    weft
}

/// A testbed that is up, run by a `weft` of its own.
struct Up {
    process: Child,
    name: String,
    summary: serde_json::Value,
}

impl Up {
    fn start(name: &str) -> Up {
        let name = format!("cli-{}-{name}", std::process::id());
        let mut process = weft()
            .args(["up", "pair", "--json", "--name", &name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        Up {
            process,
            summary: serde_json::from_str(&line).unwrap(),
            name,
        }
    }

    fn is_gone(&self) -> bool {
        let spaces =
            ["client", "server"].map(|host| format!("/run/netns/weft-{}-{host}", self.name));
        let folder = format!("/run/weft-net/{}", self.name);
        !spaces.iter().any(|path| Path::new(path).exists()) && !Path::new(&folder).exists()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It has ended where the test went well; otherwise its guardian removes what it made.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_program_in_one_host_reaches_another_and_down_removes_all() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("down");
    assert!(!up.is_gone());
    let host = &up.summary["hosts"][0];
    assert_eq!(host["name"], "client");
    assert_eq!(host["address"], "10.1.0.1");
    let route = Command::new("ip")
        .args(["netns", "exec", host["namespace"].as_str().unwrap()])
        .args(["ip", "route", "get", "10.2.0.1"])
        .output()
        .unwrap();
    let route = String::from_utf8(route.stdout).unwrap();
    assert!(route.contains("dev weft0 src 10.1.0.1"), "{route}");
    let output = weft().args(["down", &up.name]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(up.process.wait().unwrap().success());
    assert!(up.is_gone());
}

#[test]
fn a_second_of_one_name_is_refused_with_what_to_do() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("twice");
    let output = weft()
        .args(["up", "pair", "--name", &up.name])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains(&format!("weft lab net down {}", up.name)),
        "{text}"
    );
    assert!(weft().args(["down", &up.name]).status().unwrap().success());
    assert!(up.process.wait().unwrap().success());
}

#[test]
fn a_testbed_that_is_killed_is_removed_by_its_guardian() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let mut up = Up::start("killed");
    up.process.kill().unwrap();
    up.process.wait().unwrap();
    for _ in 0..3_000 {
        if up.is_gone() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{} is still there", up.name);
}

#[test]
fn a_probe_measures_each_way_of_each_link() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let output = weft()
        .args([
            "probe",
            "pair",
            "--packets",
            "100",
            "--seconds",
            "1",
            "--format",
            "json",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["finished"], true);
    let directions = results["directions"].as_array().unwrap();
    assert_eq!(directions.len(), 2);
    for direction in directions {
        assert!(direction["least_ms"].as_f64().unwrap() >= 50.0);
        assert_eq!(direction["lost"], 0);
    }
    assert!(results["bulk"]["goodput_mbit"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_probe_holds_each_way_of_an_access_line_to_its_own_promise() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    let text = "name = \"access\"\nhosts = [\"home\", \"server\"]\n[[link]]\nends = [\"home\", \"server\"]\n\
                rate = \"2 Mbit/s\"\ndelay = \"20 ms\"\nback = { rate = \"10 Mbit/s\", delay = \"5 ms\" }\n";
    std::fs::write(&file, text).unwrap();
    let output = weft()
        .arg("probe")
        .arg(&file)
        .args(["--packets", "100", "--seconds", "1", "--format", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    for (place, rate, delay) in [(0, 2.0, 20.0), (1, 10.0, 5.0)] {
        let way = &results["directions"][place];
        assert_eq!(
            (number(&way["rate_mbit"]), number(&way["delay_ms"])),
            (rate, delay)
        );
        assert!(number(&way["least_ms"]) >= delay, "{way}");
        // The measured rate depends on the scheduling of this process.
        assert!(number(&way["measured_mbit"]) > 0.0, "{way}");
    }
}

#[test]
fn what_is_wrong_with_a_topology_is_printed() {
    let output = weft().args(["up", "par"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains("no built-in topology") && text.contains("eight-pairs"),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "name = \"x\"\nhosts = [\"a\"]\nswitchs = []\n").unwrap();
    let output = weft().arg("up").arg(&file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("wrong.toml:3: unknown key \"switchs\"; did you mean switches?"),
        "{text}"
    );
}

#[test]
fn topologies_are_listed_and_printed() {
    let output = weft().arg("topology").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|name| name == "pahl-shared-dropping"));
    let output = weft().args(["topology", "pair"]).output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("delay = \"50 ms\"")
    );
}

/// Three countries: 50 ms from DE to US, 20 from DE to GB, 30 from US to GB, 10 within each.
const GRAPH: &str = include_str!("../../../../fuzz/corpus/countries/small");

/// Output of `weft lab net topology` with these arguments.
fn drawn(args: &[&str]) -> Result<String, String> {
    let output = weft().arg("topology").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// The hosts of a topology whose names are this and a number.
fn called(topology: &Topology, name: &str) -> usize {
    let hosts = topology.hosts().map(|host| topology.node_name(host.node()));
    let names = hosts.map(|host| host.trim_end_matches(|c: char| c.is_ascii_digit()));
    names.filter(|found| *found == name).count()
}

#[test]
fn hosts_at_countries_are_drawn_by_a_seed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.xml");
    std::fs::write(&path, GRAPH).unwrap();
    let path = path.to_str().unwrap();
    let all = drawn(&["countries", "--graph", path]).unwrap();
    let first = all.lines().next().unwrap();
    assert_eq!(
        first,
        format!("# weft lab net topology countries --graph {path}")
    );
    let all = Topology::parse("all.toml", &all).unwrap();
    assert_eq!((all.hosts().len(), all.links().len()), (3, 6));
    let some = drawn(&["countries", "--graph", path, "--countries", "de,US,de"]).unwrap();
    let some = Topology::parse("some.toml", &some).unwrap();
    assert_eq!((called(&some, "de"), called(&some, "us")), (2, 1));
    let draw = |seed| {
        let text = drawn(&[
            "countries",
            "--graph",
            path,
            "--hosts",
            "20",
            "--seed",
            seed,
        ])
        .unwrap();
        Topology::parse("draw.toml", &text).unwrap()
    };
    assert_eq!(draw("1"), draw("1"));
    assert_ne!(draw("1"), draw("2"));
    assert_eq!(draw("1").hosts().len(), 20);
}

#[test]
fn random_networks_follow_a_consensus() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (graph, consensus, geoip) = (path("graph.xml"), path("consensus"), path("geoip"));
    std::fs::write(&graph, GRAPH).unwrap();
    std::fs::write(&geoip, "0,4294967295,GB\n").unwrap();
    let synth = Command::new(crate::weft())
        .args(["sim", "synth", "--relays", "200", "--out", &consensus])
        .status();
    assert!(synth.unwrap().success());
    let random = |more: &[&str]| {
        let args = [
            "random",
            "--relays",
            "30",
            "--clients",
            "7",
            "--consensus",
            &consensus,
        ];
        let text = drawn(&[&args[..], more].concat()).unwrap();
        Topology::parse("random.toml", &text).unwrap()
    };
    let relays =
        |topology: &Topology| ["entry", "middle", "exit"].map(|role| called(topology, role));
    let star = random(&[]);
    assert_eq!(relays(&star).iter().sum::<usize>(), 30);
    assert_eq!((called(&star, "client"), star.hosts().len()), (7, 39));
    assert_eq!(random(&[]), star);
    assert_ne!(random(&["--seed", "2"]), star);
    assert_eq!(relays(&random(&["--exits", "1"]))[2], 1);
    // The sum of the rates is that of a relay of each group of the consensus: neither all the same, nor the least.
    let mut rates: Vec<u64> = star
        .links()
        .iter()
        .map(|link| link.directions[0].rate.unwrap().bits())
        .collect();
    rates.sort_unstable();
    rates.dedup();
    assert!(rates.len() > 20, "{rates:?}");

    let placed = random(&["--graph", &graph, "--countries", "de,us", "--geoip", &geoip]);
    assert_eq!(relays(&placed), relays(&star));
    let switches = placed.to_string();
    // 30 relays at the country of all addresses, each with a switch of its own.
    assert!(switches.contains("\"gb\"") && switches.contains("\"exit1-line\""));
    let client = placed.host("client1").unwrap().node();
    let line = placed
        .links()
        .iter()
        .find(|link| link.ends[0] == client)
        .unwrap();
    let [up, down] = line
        .directions
        .each_ref()
        .map(|way| way.rate.unwrap().bits());
    let countries = [
        (3_666 * 8_192, 9_438 * 8_192),
        (1_370 * 8_192, 6_105 * 8_192),
    ];
    assert!(countries.contains(&(up, down)), "{up} {down}");

    // Without a consensus it is a synthetic one.
    let text = drawn(&["random", "--relays", "3", "--clients", "0"]).unwrap();
    assert_eq!(Topology::parse("x.toml", &text).unwrap().hosts().len(), 5);
}

#[test]
fn what_cannot_be_drawn_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let graph = write("graph.xml", GRAPH);
    let negative = write("negative.xml", &GRAPH.replace(">50.0<", ">-50.0<"));
    let number = write("nan.xml", &GRAPH.replace(">50.0<", ">NaN<"));
    let text = write("text", "This is\nneither.\n");
    let none = folder.path().join("none");
    let (none, here) = (none.to_str().unwrap(), folder.path().to_str().unwrap());
    let edge = "line 40, <edge source=\"de\" target=\"us\">: latency is ";
    for (args, expected) in [
        (
            vec!["countries", "--graph", &negative],
            format!("negative.xml is no graph of countries: {edge}negative: -50"),
        ),
        (
            vec!["countries", "--graph", &number],
            format!("{edge}no number: \"NaN\""),
        ),
        (
            vec!["countries", "--graph", &text],
            "text is no graph of countries: line 1, the document: ".to_owned(),
        ),
        (
            vec!["countries", "--graph", none],
            "none: cannot open it: No such file".to_owned(),
        ),
        (
            vec!["countries", "--graph", here],
            "is a folder: name one graph".to_owned(),
        ),
        (vec!["countries"], "--graph <FILE>".to_owned()),
        (
            vec!["countries", "--graph", &graph, "--hosts", "0"],
            "it must be a whole number from 1 to 1000".to_owned(),
        ),
        (
            vec!["countries", "--graph", &graph, "--hosts", "1000"],
            "take fewer hosts".to_owned(),
        ),
        (
            vec!["countries", "--graph", &graph, "--countries", "dd"],
            "unknown country \"dd\"; did you mean de?".to_owned(),
        ),
        (
            vec!["random", "--consensus", &text],
            "text, line 1: ".to_owned(),
        ),
        (
            vec!["random", "--consensus", here],
            "is a folder: name one consensus".to_owned(),
        ),
        (
            vec!["random", "--relays", "0"],
            "it must be a whole number from 1 to 1000".to_owned(),
        ),
        (
            vec!["random", "--relays", "5", "--exits", "6"],
            "6 exits: there must be 1 to 5".to_owned(),
        ),
        (
            vec!["random", "--relays", "1000", "--clients", "10"],
            "1012 hosts: a topology has 1 to 1000".to_owned(),
        ),
        (
            vec!["random", "--countries", "de"],
            "--graph <FILE>".to_owned(),
        ),
        (
            vec!["random", "--graph", &graph, "--geoip", &text],
            "text: line 1 is no range".to_owned(),
        ),
    ] {
        let error = drawn(&args).unwrap_err();
        assert!(error.contains(&expected), "{args:?}: {error}");
    }
    let small = folder.path().join("small");
    let synth = Command::new(crate::weft())
        .args(["sim", "synth", "--relays", "10", "--out"])
        .arg(&small)
        .status();
    assert!(synth.unwrap().success());
    let error = drawn(&[
        "random",
        "--relays",
        "11",
        "--consensus",
        small.to_str().unwrap(),
    ]);
    let error = error.unwrap_err();
    assert!(
        error.contains("11 relays: there must be 1 to 10"),
        "{error}"
    );
}

/// Twenty hosts at countries, with real packets: from DE to US and back takes twice 50 ms.
#[test]
fn a_drawn_network_has_the_delays_of_its_graph() {
    if let Some(missing) = missing() {
        return weft_testing::not_run!("{missing}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (graph, toml) = (path("graph.xml"), path("drawn.toml"));
    // Without losses, so that each packet returns.
    std::fs::write(&graph, GRAPH.replace("0.005", "0")).unwrap();
    let codes = ["de,us,gb"; 7].join(",");
    let text = drawn(&["countries", "--graph", &graph, "--countries", &codes[..59]]).unwrap();
    std::fs::write(&toml, text).unwrap();
    let topology = Topology::parse("x", &std::fs::read_to_string(&toml).unwrap()).unwrap();
    assert_eq!(topology.hosts().len(), 20);
    let options = Options {
        name: Some(format!("drawn-{}", std::process::id())),
        seed: 1,
    };
    let testbed = Testbed::start(topology, &options).unwrap();
    for (from, to, least) in [("de1", "us1", 99), ("de1", "de2", 20), ("gb6", "us7", 60)] {
        let [from, to] = [from, to].map(|name| testbed.host(name).unwrap());
        let socket = |host: &weft_testnet::net::Host| {
            let socket = host.enter(|| UdpSocket::bind((host.address(), 0))).unwrap();
            socket.unwrap()
        };
        let (one, other) = (socket(from), socket(to));
        let begun = Instant::now();
        one.send_to(b"there", other.local_addr().unwrap()).unwrap();
        let (_, back) = other.recv_from(&mut [0; 8]).unwrap();
        other.send_to(b"back", back).unwrap();
        one.recv(&mut [0; 8]).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(least));
    }
    testbed.end().unwrap();
}
