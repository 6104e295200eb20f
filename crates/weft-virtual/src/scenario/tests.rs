//! Errors in scenarios are reported with their place.

use std::time::Duration;

use weft_client::{MultipathEntry, MultipathOptions};
use weft_core::controller::Sharing;
use weft_model::hosts::tcp::Algorithm;
use weft_model::traffic::{ModelName, Pause};
use weft_path::{Acceptance, CircuitSelection};

use super::*;

/// A scenario of a synthetic network, line by line.
const SMALL: &str = r#"duration = "60 s"
[network]
synthetic = { relays = 20, guards = 8, exits = 5 }
delay = "40 ms"
[[clients]]
count = 3
model = "page"
within = "10 s"
[[servers]]
count = 2
"#;

/// One of hosts.
pub(crate) const HOSTS: &str = r#"duration = "30 s"
[[host]]
name = "client"
up = "10 Mbit/s"
down = "20 Mbit/s"
[[host]]
name = "relay"
count = 3
[[host]]
name = "server"
[[path]]
between = ["relay", "client"]
delay = "25 ms"
loss = "0.1 %"
[[relay]]
host = "relay-1"
roles = ["guard"]
[[relay]]
host = "relay-2"
limit = "8 Mbit/s"
[[relay]]
host = "relay-3"
roles = ["exit"]
[[clients]]
hosts = ["client"]
model = { download = "5 MB", pause = ["1 ms", "2 s"] }
[[servers]]
hosts = ["server"]
"#;

fn parse(text: &str) -> Scenario {
    Scenario::parse("x.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    match Scenario::parse("x.toml", text) {
        Ok(_) => panic!("no error in: {text}"),
        Err(error) => error.to_string(),
    }
}

/// The error of [`SMALL`] with one change.
fn error_of(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    error(&SMALL.replacen(from, to, 1))
}

#[test]
fn a_small_scenario_has_defaults_for_the_rest() {
    let scenario = parse(SMALL);
    assert_eq!(scenario.name, "x");
    assert_eq!(scenario.duration, Duration::from_secs(60));
    assert_eq!(
        (scenario.repetitions, scenario.congestion_control),
        (1, true)
    );
    assert_eq!(scenario.tcp, Algorithm::Cubic);
    assert_eq!(scenario.arms.len(), 1);
    assert_eq!(scenario.arms[0].name, "weft");
    assert_eq!(scenario.network.delay, Duration::from_millis(40));
    let clients = &scenario.clients[0];
    assert_eq!((clients.count, clients.name.as_str()), (3, "page"));
    assert_eq!(clients.model, UserModel::Named(ModelName::Page));
    assert_eq!(scenario.files(), []);
}

#[test]
fn hosts_are_named_one_by_one_or_all_at_once() {
    let scenario = parse(HOSTS);
    let NetworkKind::Hosts { hosts, paths } = &scenario.network.kind else {
        panic!("it has hosts");
    };
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["client", "relay-1", "relay-2", "relay-3", "server"]);
    let ends: Vec<[usize; 2]> = paths.iter().map(|path| path.between).collect();
    assert_eq!(ends, [[1, 0], [2, 0], [3, 0]]);
    assert_eq!(paths[0].loss.per_billion(), 1_000_000);
    assert_eq!(
        scenario.clients[0].model,
        UserModel::Download {
            bytes: 5_000_000,
            pause: Pause::Uniform(Duration::from_millis(1), Duration::from_secs(2)),
            timeout: None,
        }
    );
}

#[test]
fn a_typo_has_its_line_and_the_nearest_word() {
    assert_eq!(
        error_of("synthetic", "syntetic"),
        "x.toml:3: unknown key of the network \"syntetic\"; did you mean synthetic?"
    );
    assert_eq!(
        error_of("\"page\"", "\"pages\""),
        "x.toml:7: unknown model \"pages\"; did you mean page?"
    );
    assert_eq!(
        error_of("duration", "durration"),
        "x.toml:1: unknown key \"durration\"; did you mean duration?"
    );
    assert_eq!(
        error_of("guards", "guard"),
        "x.toml:3: unknown key of a synthetic network \"guard\"; did you mean guards?"
    );
    assert_eq!(
        error_of("40 ms", "40 msec"),
        "x.toml:4: unknown unit \"msec\" in \"40 msec\": the units are h, min, s, ms, us, ns"
    );
    assert_eq!(
        error(&HOSTS.replace("host = \"relay-2\"", "host = \"realy-2\"")),
        "x.toml:19: unknown host \"realy-2\"; did you mean relay-2?"
    );
}

#[test]
fn rates_and_times_that_are_absurd_are_refused() {
    let up = |rate: &str| error_of("count = 3", &format!("count = 3\nup = \"{rate}\""));
    assert_eq!(
        up("-5 Mbit/s"),
        "x.toml:7: \"-5 Mbit/s\" is negative: expected a rate such as \"300 Mbit/s\""
    );
    assert!(up("0 Mbit/s").contains("x.toml:7: \"0 Mbit/s\" is out of range"));
    assert!(up("9000 Gbit/s").contains("out of range"));
    assert!(error_of("60 s", "90000 h").contains("x.toml:1: \"90000 h\" is out of range"));
    assert!(error_of("60 s", "-60 s").contains("negative"));
    assert!(error_of("40 ms", "40 s").contains("x.toml:4: \"40 s\" is out of range"));
    let interval = error_of("\"60 s\"", "\"24 h\"\ninterval = \"1 ms\"");
    assert!(
        interval.starts_with("x.toml:2: the interval is too short"),
        "{interval}"
    );
}

#[test]
fn a_network_needs_guards_and_exits() {
    for (from, to) in [("guards = 8", "guards = 0"), ("exits = 5", "exits = 0")] {
        let error = error_of(from, to);
        let expected = "is a number (a network needs one, and has 20 relays) from 1 to 20";
        assert!(
            error.starts_with("x.toml:3: ") && error.ends_with(expected),
            "{error}"
        );
    }
    let error_of = |from: &str, to: &str| error(&HOSTS.replace(from, to));
    assert_eq!(
        error_of("[\"exit\"]", "[\"middle\"]"),
        "x.toml:15: there is no exit among the relays: streams leave by one (roles = [\"exit\"])"
    );
    assert!(error_of("[\"guard\"]", "[]").contains("there is no guard"));
    assert!(
        error_of("[\"exit\"]", "[\"exit\", \"guardd\"]")
            .contains("unknown role \"guardd\"; did you mean guard?")
    );
}

#[test]
fn a_network_is_one_of_four_kinds() {
    assert_eq!(
        error("duration = \"1 s\"\n"),
        "x.toml:1: there is no network: [network] has synthetic, consensus or topology, or there are [[host]]s"
    );
    assert_eq!(
        error_of("delay = \"40 ms\"", "consensus = \"c\""),
        "x.toml:4: there are synthetic and consensus: a network is one of them"
    );
    assert!(error_of("delay = \"40 ms\"", "scale = 0.1").contains("scale needs a consensus"));
    let host = error_of("[[clients]]", "[[host]]\nname = \"a\"\n[[clients]]");
    assert!(host.contains("synthetic and [[host]]"), "{host}");
    let relay = error_of("[[clients]]", "[[relay]]\nhost = \"a\"\n[[clients]]");
    assert!(relay.contains("relays come from the network"), "{relay}");
}

#[test]
fn a_host_has_one_thing() {
    let error_of = |from: &str, to: &str| error(&HOSTS.replace(from, to));
    let double = error_of("hosts = [\"server\"]", "hosts = [\"relay-2\"]");
    assert_eq!(
        double,
        "x.toml:27: host relay-2 has something already: it takes one relay, client or server"
    );
    assert!(error_of("hosts = [\"server\"]", "").contains("x.toml:27: on which hosts?"));
    assert!(
        error_of(
            "hosts = [\"client\"]",
            "hosts = [\"client\"]\nup = \"1 Mbit/s\""
        )
        .contains("remove up")
    );
}

#[test]
fn arms_differ_in_what_nodes_have() {
    let arms = "[[arm]]\nname = \"plain\"\n[[arm]]\nname = \"pctls\"\nconnection_per_circuit = \"1\"\n\
                congestion_control = false\nmax_connections_per_relay = 8\n";
    let scenario = parse(&format!("{SMALL}{arms}"));
    let [plain, pctls] = scenario.arms.as_slice() else {
        panic!("two arms");
    };
    assert_eq!(plain.options.sharing, Sharing::All);
    assert!(plain.congestion_control && !pctls.congestion_control);
    let is_right = matches!(
        pctls.options.sharing,
        Sharing::PerCircuit { per_relay: 8, .. }
    );
    assert!(is_right);
    assert!(error(&format!("{SMALL}[[arm]]\n")).contains("x.toml:11: an arm without a name"));
    let twice = format!("{SMALL}[[arm]]\nname = \"a\"\n[[arm]]\nname = \"a\"\n");
    assert_eq!(error(&twice), "x.toml:13: two arms are named a");
}

#[test]
fn arms_differ_in_which_circuits_are_used() {
    let arm = "[[arm]]\nname = \"a\"\n";
    let keys = "acceptance = \"both\"\nquantile = 0.5\nselection = \"abra-stay\"\nconflux = true\nadversary = 0.2\nlies = true\nlearning = \"40 s\"\n";
    let scenario = parse(&format!("{SMALL}{arm}{keys}"));
    let options = &scenario.arms[0].options;
    assert_eq!(options.times.acceptance, Acceptance::Both);
    assert_eq!(options.times.quantile, Some(0.5));
    assert_eq!(options.client.selection, CircuitSelection::AbraStay);
    assert_eq!(options.client.conflux, Some(true));
    assert_eq!(
        (options.adversary, options.lies, options.learning),
        (0.2, true, Duration::from_secs(40))
    );
    for (wrong, why) in [
        (
            "acceptance = \"ctb\"",
            "acceptance is \"cbt\", \"rtt\", \"both\" or \"none\"",
        ),
        ("quantile = 0.3", "quantile is a number"),
        ("selection = \"arba\"", "selection is \"default\""),
        ("adversary = 1.5", "adversary is a share"),
        ("learning = 5", "x.toml:13"),
    ] {
        let error = error(&format!("{SMALL}{arm}{wrong}\n"));
        assert!(
            error.contains("x.toml:13") && error.contains(why),
            "{error}"
        );
    }
}

#[test]
fn files_are_named_once() {
    let text = SMALL
        .replace(
            "synthetic = { relays = 20, guards = 8, exits = 5 }",
            "consensus = \"c.xz\"\nscale = 0.5",
        )
        .replace("delay = \"40 ms\"", "graph = \"g\"\ncountries = [\"de\"]")
        .replace("\"page\"", "{ streams = \"s\", packets = \"g\" }");
    let scenario = parse(&text);
    assert_eq!(
        scenario.files(),
        [
            ("c.xz", FileKind::Consensus),
            ("g", FileKind::GraphMl),
            ("s", FileKind::GraphMl)
        ]
    );
}

#[test]
fn more_of_everything_takes_more() {
    let files = Files::default();
    let small = parse(SMALL).estimate(&files);
    let large = SMALL
        .replace("count = 3", "count = 3000")
        .replace("relays = 20", "relays = 500");
    let large = parse(&large).estimate(&files);
    assert_eq!((small.relays, small.clients), (20, 3));
    assert!(
        small.bytes > 10 << 20 && small.bytes < 200 << 20,
        "{small:?}"
    );
    assert!(large.bytes > 1 << 30 && large.bytes < 16 << 30, "{large:?}");
    assert!(large.events > 900 * small.events, "{small:?} {large:?}");
}

#[test]
fn hosts_of_the_file_stall_and_others_do_not() {
    let fault = "[[fault]]\nhost = \"relay\"\nat = \"10 s\"\nlasts = \"5 s\"\n";
    let scenario = parse(&format!("{HOSTS}{fault}"));
    let [fault_read] = &*scenario.faults else {
        panic!("{:?}", scenario.faults);
    };
    assert_eq!((&*fault_read.host, fault_read.line), ("relay", 29));
    assert_eq!(fault_read.at, Duration::from_secs(10));
    assert_eq!(fault_read.lasts, Some(Duration::from_secs(5)));
    let setup = scenario
        .setup(&Files::default(), 0, 1, 1)
        .expect("a network");
    let hosts: Vec<u32> = setup.faults.iter().map(|fault| fault.host).collect();
    assert_eq!(hosts, [1, 2, 3]);
    assert_eq!(
        error(&format!("{SMALL}{fault}")),
        "x.toml:11: a [[fault]] is of a [[host]], and there are none"
    );
    let wrong = fault.replace("relay", "realy");
    assert!(error(&format!("{HOSTS}{wrong}")).contains("did you mean relay"));
    let late = fault.replace("10 s", "31 s");
    assert!(error(&format!("{HOSTS}{late}")).contains("out of range"));
    assert!(error(&format!("{HOSTS}[[fault]]\nhost = \"relay\"\n")).contains("and when?"));
}

#[test]
fn arms_have_tunnels_and_clients_use_them() {
    let arm = "[[arm]]\nname = \"a\"\n";
    let keys = "multipath = 5\nmultipath_entry = \"common\"\nmultipath_below = \"800 kbit/s\"\n";
    let with = |keys: &str| {
        format!(
            "{}{arm}{keys}",
            SMALL.replace("model", "multipath = true\nmodel")
        )
    };
    let scenario = parse(&with(keys));
    assert_eq!(scenario.clients[0].multipath, Some(true));
    let options = &scenario.arms[0].options;
    let tunnels = MultipathOptions {
        circuits: 5,
        entry: MultipathEntry::Common,
        middle_below: 100,
        users: Vec::new(),
    };
    assert_eq!(
        (options.multipath, &options.client.multipath),
        (true, &tunnels)
    );
    let plain = parse(&with(""));
    assert_eq!(
        (
            plain.arms[0].options.multipath,
            &plain.arms[0].options.client.multipath
        ),
        (false, &MultipathOptions::default())
    );
    for (wrong, why) in [
        ("multipath = 17", "a number of circuits"),
        ("multipath_entry = \"common\"", "there are none"),
        (
            "multipath = 3\nmultipath_entry = \"comon\"",
            "\"distinct\" or \"common\"",
        ),
    ] {
        let error = error(&with(&format!("{wrong}\n")));
        assert!(
            error.starts_with("x.toml:1") && error.contains(why),
            "{error}"
        );
    }
}

/// A scenario of a consensus with every number that has a place in it, and one of hosts with the others.
const NUMBERS: [&str; 2] = [
    r#"duration = "60 s"
interval = "2 s"
repetitions = 3
[network]
consensus = "c"
scale = 0.5
delay = "40 ms"
loss = "0.1 %"
threads = 2
capacity = 1.5
exit_rate = "1 Gbit/s"
[costs]
turn = "10 us"
cell = "2 us"
onionskin = "200 us"
[[clients]]
count = 7
model = { download = "5 MB", pause = "10 s", timeout = "1 min" }
up = "10 Mbit/s"
down = "50 Mbit/s"
start = "3 s"
within = "10 s"
servers = 4
[[servers]]
count = 6
rate = "2 Gbit/s"
port = 8080
[[arm]]
name = "all"
threads = 5
connection_per_circuit = "1"
max_connections_per_relay = 9
kist_interval = "11 ms"
kist_factor = 1.25
max_circuit_dirtiness = "12 min"
num_entry_guards = 13
quantile = 0.75
multipath = 14
multipath_below = "15 Mbit/s"
adversary = 0.25
learning = "16 s"
pools = 17
"#,
    r#"duration = "30 s"
[[host]]
name = "client"
up = "10 Mbit/s"
down = "20 Mbit/s"
queue = "64 kB"
[[host]]
name = "relay"
count = 3
[[host]]
name = "server"
[[path]]
between = ["relay", "client"]
delay = "25 ms"
loss = "0.1 %"
[[relay]]
host = "relay-1"
roles = ["guard"]
threads = 2
limit = "20 Mbit/s"
burst = "5 MB"
bandwidth = "21 Mbit/s"
[[relay]]
host = "relay-2"
[[relay]]
host = "relay-3"
roles = ["exit"]
[[clients]]
hosts = ["client"]
model = { download = "6 MB", pause = ["1 ms", "2 s"] }
[[servers]]
hosts = ["server"]
[[fault]]
host = "relay"
at = "7 s"
lasts = "8 s"
"#,
];

/// Where the numbers of a line are: of `a = 1`, `a = "1 s"` and `a = ["1 ms", "2 s"]`.
fn numbers(line: &str) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut before = ' ';
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        match begin {
            None if c.is_ascii_digit() && [' ', '"'].contains(&before) => begin = Some(at),
            Some(start) if !is_part(c) => {
                // Not the version of a word, such as "1" alone in quotes.
                found.extend((c != '"').then_some(start..at));
                begin = None;
            }
            _ => {}
        }
        before = c;
    }
    found
}

#[test]
fn no_number_of_a_scenario_is_without_a_bound() {
    let mut tried = 0;
    for text in NUMBERS {
        parse(text);
        let lines: Vec<&str> = text.lines().collect();
        for (place, line) in lines.iter().enumerate() {
            for number in numbers(line) {
                for silly in [
                    "1e300",
                    "nan",
                    "inf",
                    "-1",
                    "1000000000000",
                    "99999999999999999999",
                ] {
                    let mut changed = (*line).to_owned();
                    changed.replace_range(number.clone(), silly);
                    let mut all = lines.clone();
                    all[place] = &changed;
                    match Scenario::parse("x.toml", &all.join("\n")) {
                        Ok(_) => panic!("{changed} is taken"),
                        Err(error) => {
                            let error = error.to_string();
                            let expected = format!("x.toml:{}: ", place + 1);
                            assert!(error.starts_with(&expected), "{changed}: {error}");
                        }
                    }
                    tried += 1;
                }
            }
        }
    }
    // Six each.
    assert!(tried > 6 * 45, "{tried}");
}
