//! The MetricsPorts of Weft and C tor in one network: connections of every type are counted, and the dashboard of
//! `examples/grafana` asks for nothing that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use weft_testing::metrics::{Family, families, sample, scrape};
use weft_testnet::ports::Port;
use weft_testnet::up::{Kind, More, Plan, Up};

use crate::control::asking::{Asker, listener};
use crate::control::weft;

/// How long a number may take to be what it should.
const PATIENCE: Duration = Duration::from_secs(30);
/// Labels that Prometheus adds to every sample.
const ADDED: [&str; 2] = ["instance", "job"];

/// What one query asks of one family.
#[derive(Debug, PartialEq, Eq)]
struct Selector {
    name: String,
    /// Label, comparison, value.
    labels: Vec<(String, String, String)>,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The families that an expression of PromQL selects.
fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_name) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        if !name.starts_with("tor_") && !name.starts_with("weft_") {
            continue;
        }
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').expect("a brace is closed");
            rest = after;
            // No value of ours has a quote or a comma.
            for pair in inside.split(',') {
                let (label, compared) = pair.split_at(pair.find(|c| !is_name(c)).expect(pair));
                let (operator, value) = compared.split_at(compared.find('"').expect(pair));
                let value = value.trim_matches('"');
                labels.push((label.to_owned(), operator.to_owned(), value.to_owned()));
            }
        }
        found.push(Selector {
            name: name.to_owned(),
            labels,
        });
    }
    found
}

/// The labels that follow `by (`, and those of a legend.
fn named_labels(expression: &str, legend: &str) -> BTreeSet<String> {
    let groups = expression.split("by (").skip(1);
    let groups = groups.filter_map(|rest| Some(rest.split_once(')')?.0));
    let legends = legend.split("{{").skip(1);
    let legends = legends.filter_map(|rest| Some(rest.split_once("}}")?.0));
    let all = groups.flat_map(|group| group.split(", ")).chain(legends);
    all.map(str::to_owned).collect()
}

/// The labels and values of a family's samples.
fn values(family: &Family) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for labels in &family.labels {
        let labels = labels.trim_start_matches('{').trim_end_matches('}');
        for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
            let (label, value) = pair.split_once('=').expect(pair);
            values
                .entry(label)
                .or_default()
                .insert(value.trim_matches('"'));
        }
    }
    values
}

/// What a query has against these families; `None`: it selects something.
fn trouble(selector: &Selector, all: &BTreeMap<String, Family>) -> Option<String> {
    let Selector { name, labels } = selector;
    let Some(family) = all.get(name) else {
        return Some(format!("there is no {name}"));
    };
    let known = values(family);
    for (label, operator, value) in labels {
        if ADDED.contains(&label.as_str()) {
            continue;
        }
        let Some(values) = known.get(label.as_str()) else {
            return Some(format!("{name} has no label {label}"));
        };
        let there = match (operator.as_str(), value.as_str()) {
            ("=", "") => family.labels.iter().any(|labels| !labels.contains(label)),
            ("=" | "!=", value) => values.contains(value),
            ("=~" | "!~", ".* listener") => values.iter().any(|value| value.ends_with(" listener")),
            _ => return Some(format!("{label}{operator}{value:?} is not understood here")),
        };
        if !there {
            return Some(format!("{name} has no {label}{operator}{value:?}"));
        }
    }
    None
}

/// A panel's title, and its expressions with their legends.
type Panel = (String, Vec<(String, String)>);

/// The panels of a dashboard that query something.
fn panels(dashboard: &Value) -> Result<Vec<Panel>> {
    let text = |value: &Value, key: &str| -> Result<String> {
        let text = value[key]
            .as_str()
            .with_context(|| format!("no {key} in {value}"))?;
        Ok(text.to_owned())
    };
    let mut panels = Vec::new();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().context("no panels")? {
        ensure!(
            ids.insert(panel["id"].as_u64()),
            "two panels have the id of {panel}"
        );
        let place = |key: &str| panel["gridPos"][key].as_u64().context("no place");
        let (x, y, w, h) = (place("x")?, place("y")?, place("w")?, place("h")?);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            ensure!(
                cell.0 < 24 && places.insert(cell),
                "{panel} overlaps another"
            );
        }
        let Some(targets) = panel["targets"].as_array() else {
            ensure!(panel["type"] == "row", "nothing is queried by {panel}");
            continue;
        };
        let source = &panel["datasource"]["uid"];
        ensure!(
            source == "${datasource}",
            "{panel} has a data source of its own"
        );
        let mut queries = Vec::new();
        for target in targets {
            queries.push((text(target, "expr")?, text(target, "legendFormat")?));
        }
        panels.push((text(panel, "title")?, queries));
    }
    Ok(panels)
}

/// Every query of the dashboard finds its families, labels and values at Weft, and at C tor but for those
/// of Weft alone.
fn check_dashboard(weft: &BTreeMap<String, Family>, tor: &BTreeMap<String, Family>) -> Result<()> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/grafana/tor.json"
    );
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let variables = dashboard["templating"]["list"]
        .as_array()
        .context("no variables")?;
    let variables: Vec<&str> = variables
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    ensure!(variables == ["datasource", "instance"], "{variables:?}");
    let mut queried = BTreeSet::new();
    for (title, queries) in panels(&dashboard)? {
        for (expression, legend) in queries {
            let found = selectors(&expression);
            ensure!(!found.is_empty(), "{title} asks for nothing: {expression}");
            let mut labels: BTreeSet<&str> = ADDED.into();
            for selector in &found {
                let own = selector.name.starts_with("weft_");
                let nodes = [("Weft", weft), ("C tor", tor)];
                for (whose, families) in nodes.into_iter().take(2 - usize::from(own)) {
                    if let Some(trouble) = trouble(selector, families) {
                        bail!("{title}, of {whose}: {trouble}, asked by {expression}");
                    }
                }
                if let Some(family) = weft.get(&selector.name) {
                    labels.extend(values(family).into_keys());
                }
                queried.insert(selector.name.clone());
            }
            for label in named_labels(&expression, &legend) {
                ensure!(
                    labels.contains(label.as_str()),
                    "{title}: {expression} has no {label}"
                );
            }
        }
    }
    let shared = queried
        .iter()
        .filter(|name| name.starts_with("tor_"))
        .count();
    ensure!(
        shared >= 15 && queried.len() > shared,
        "only {queried:?} are queried"
    );
    Ok(())
}

/// The families at several MetricsPorts.
fn families_of(ports: &[SocketAddr]) -> Result<BTreeMap<String, Family>> {
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    for port in ports {
        for (name, family) in families(&scrape(*port)?) {
            let known = all.entry(name).or_insert_with(|| Family {
                labels: BTreeSet::new(),
                help: family.help.clone(),
                kind: family.kind.clone(),
            });
            known.labels.extend(family.labels);
        }
    }
    Ok(all)
}

/// Waits until these nodes together count as many connections of a type: at least `created` since the
/// start, and `open` now, if that is said.
fn counts(
    ports: &[SocketAddr],
    of: &str,
    direction: &str,
    created: f64,
    open: Option<f64>,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let texts: std::io::Result<Vec<String>> = ports.iter().copied().map(scrape).collect();
        let texts = texts?;
        let sum = |name: &str, state: &str| -> Option<f64> {
            let labels = format!(
                "type=\"{of}\",direction=\"{direction}\",state=\"{state}\",family=\"ipv4\""
            );
            let series = format!("{name}{{{labels}}}");
            texts.iter().map(|text| sample(text, &series)).sum()
        };
        let total = sum("tor_relay_connections_total", "created");
        let now = sum("tor_relay_connections", "opened");
        if total.is_some_and(|total| total >= created) && open.is_none_or(|open| now == Some(open))
        {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{of} {direction}: {total:?} in all, {now:?} open; wanted {created} and {open:?}"
        );
        thread::sleep(Duration::from_millis(200));
    }
}

/// Opens a stream to a server of ours through a SOCKS port; the two ends.
fn stream(socks: SocketAddr) -> Result<(TcpStream, TcpStream)> {
    let server = TcpListener::bind("127.0.0.1:0")?;
    let port = server.local_addr()?.port().to_be_bytes();
    let mut client = TcpStream::connect(socks)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(&[5, 1, 0])?;
    let mut chosen = [0; 2];
    client.read_exact(&mut chosen)?;
    client.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]])?;
    let mut answer = [0; 10];
    client.read_exact(&mut answer)?;
    ensure!(answer[1] == 0, "SOCKS answered {answer:?}");
    Ok((client, server.accept()?.0))
}

#[test]
fn connections_of_every_type_are_counted_and_the_dashboard_finds_what_it_asks_for() {
    let run = || -> Result<()> {
        let policy = "MetricsPortPolicy accept 127.0.0.1";
        let lines = |more: &[&str]| more.iter().map(|line| (*line).to_owned()).collect();
        // C tor's MetricsPort takes no `auto`, so that there is one C tor.
        let reserved = Port::reserve()?;
        let tors = format!("MetricsPort {}", reserved.address());
        let weft_exit = [
            "MetricsPort auto",
            policy,
            "ControlPort auto",
            "CookieAuthentication 1",
        ];
        let weft_client = [
            "MetricsPort auto",
            policy,
            "DNSPort 127.0.0.1:auto",
            "HTTPTunnelPort 127.0.0.1:auto",
        ];
        let network = Up::start(&Plan {
            relays: 1,
            relays_run: Kind::Tor,
            more: More {
                relays: lines(&[&tors, policy]),
                exits: lines(&weft_exit),
                clients: lines(&weft_client),
            },
            progress: |line| eprintln!("{line}"),
            ..Plan::of_weft(weft())
        })?;
        let metrics = |name: &str| listener(network.node(name)?, "Metrics");
        let (client, exits) = (
            [metrics("client0")?],
            [metrics("exit0")?, metrics("exit1")?],
        );
        let tor = [reserved.address()];
        let at_client = |kind: &str| listener(network.node("client0")?, kind);

        // What the network did while it came up has ended.
        counts(&client, "Socks", "received", 1.0, Some(0.0))?;
        counts(&exits, "Exit", "initiated", 1.0, Some(0.0))?;
        let socks = network.client("client0")?.socks();
        let (far, near) = stream(socks)?;
        counts(&client, "Socks", "received", 2.0, Some(1.0))?;
        counts(&exits, "Exit", "initiated", 2.0, Some(1.0))?;
        // One by HTTP CONNECT is an application's, too, as in C tor.
        let tunnel = TcpStream::connect(at_client("HTTP tunnel")?)?;
        counts(&client, "Socks", "received", 3.0, Some(2.0))?;
        drop((far, near, tunnel));
        counts(&client, "Socks", "received", 3.0, Some(0.0))?;
        counts(&exits, "Exit", "initiated", 2.0, Some(0.0))?;

        let exit = network.node("exit0")?;
        let controllers = [Asker::connect(exit)?, Asker::connect(exit)?];
        counts(&exits, "Control", "received", 2.0, Some(2.0))?;
        drop(controllers);
        counts(&exits, "Control", "received", 2.0, Some(0.0))?;

        for of in ["Socks", "DNS", "HTTP tunnel", "Control", "Metrics"] {
            let of = format!("{of} listener");
            counts(&client, &of, "initiated", 1.0, Some(1.0))?;
        }
        for of in ["OR", "Control", "Metrics"] {
            counts(
                &exits,
                &format!("{of} listener"),
                "initiated",
                2.0,
                Some(2.0),
            )?;
        }
        // A query is no connection, in C tor either.
        let query = UdpSocket::bind("127.0.0.1:0")?;
        query.send_to(b"nonsense", at_client("DNS")?)?;
        counts(&client, "Socks", "received", 3.0, Some(0.0))?;
        counts(&client, "OR", "initiated", 1.0, None)?;
        // Who asks is connected; and relays fetch from the authority's DirPort. C tor counts the same.
        for (ports, nodes) in [(&exits[..], 2.0), (&tor[..], 1.0)] {
            counts(ports, "OR listener", "initiated", nodes, Some(nodes))?;
            counts(ports, "OR", "received", 1.0, None)?;
            counts(ports, "OR", "initiated", 1.0, None)?;
            counts(ports, "Directory", "initiated", nodes, None)?;
            counts(ports, "Metrics", "received", nodes, Some(nodes))?;
        }

        let (ours, theirs) = (
            families_of(&[client[0], exits[0], exits[1]])?,
            families_of(&tor)?,
        );
        for name in ["tor_relay_connections", "tor_relay_connections_total"] {
            let (ours, theirs) = (
                ours.get(name).context(name)?,
                theirs.get(name).context(name)?,
            );
            let types = |family| values(family).remove("type").unwrap_or_default().len();
            ensure!(types(ours) == 14, "{ours:?}");
            ensure!(
                ours.labels.is_subset(&theirs.labels),
                "{ours:?}, and C tor {theirs:?}"
            );
        }
        check_dashboard(&ours, &theirs)?;
        network.stop()
    };
    run().unwrap_or_else(|error| panic!("{error:#}"));
}

/// Checks that ask nothing of a network: the module's name has them run beside those that do.
#[test]
fn a_query_for_what_is_not_there_is_found() {
    let text = "# HELP tor_a A\n# TYPE tor_a gauge\ntor_a{type=\"x\",of=\"y\"} 1\ntor_a 2\n";
    let all = families(text);
    let against = |expression: &str| {
        let found = selectors(expression);
        assert_eq!(found.len(), 1, "{expression}");
        trouble(&found[0], &all)
    };
    for fine in [
        "rate(tor_a[5m])",
        "sum by (type) (rate(tor_a{instance=~\"$instance\",type=\"x\"}[$__rate_interval])) > 0",
        "tor_a{type=\"\"}",
    ] {
        assert_eq!(against(fine), None, "{fine}");
    }
    for (bad, what) in [
        ("tor_b", "there is no tor_b"),
        ("tor_a{kind=\"x\"}", "tor_a has no label kind"),
        ("tor_a{type=\"z\"}", "tor_a has no type=\"z\""),
        (
            "tor_a{type=~\".* listener\"}",
            "tor_a has no type=~\".* listener\"",
        ),
    ] {
        assert_eq!(against(bad).as_deref(), Some(what), "{bad}");
    }
    let labels = named_labels("sum by (instance, type) (tor_a)", "{{instance}} {{of}}");
    assert_eq!(labels, ["instance", "of", "type"].map(str::to_owned).into());
}
