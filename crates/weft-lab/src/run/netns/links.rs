//! The hosts and links of a scenario as a topology of the testbed.
//!
//! In virtual time a packet goes through its sender's line, then the path between the two hosts, then the receiver's
//! line. The same here: each host has a link to a switch of its own, which has the rates and queues, and each two
//! switches have a link, which has the delay and the loss. Both testbeds have their links from `weft-model`, so a packet
//! of one length takes as long on both.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use weft_model::hosts::HostId;
use weft_model::hosts::tcp::Algorithm;
use weft_model::links::{Rate, Topology, builtin};
use weft_virtual::scenario::NetworkKind;
use weft_virtual::{Scenario, Setup};

use super::super::source::Source;

/// The host of the authority, which the scenario does not have.
pub(in super::super) const AUTHORITY_HOST: &str = "authority";

/// Capacity of a testbed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Room {
    /// Its name.
    testbed: &'static str,
    /// Hosts, without the authority's: there is a link between each two.
    most_hosts: usize,
}

/// Of network namespaces.
pub(super) const NETNS: Room = Room {
    testbed: "netns",
    most_hosts: 150,
};
/// Of the simulator Shadow.
pub(in super::super) const SHADOW: Room = Room {
    testbed: "shadow",
    most_hosts: weft_testnet::shadow::MAX_HOSTS - 1,
};

/// The hosts of a scenario and the authority's, and what joins them.
///
/// # Errors
///
/// There are too many hosts, one has a name that is needed, or a topology has no host for the authority.
pub(in super::super) fn topology(source: &Source, setup: &Setup, room: Room) -> Result<Topology> {
    let scenario = &source.scenario;
    let NetworkKind::Topology { file } = &scenario.network.kind else {
        return of_hosts(scenario, setup, room);
    };
    let topology = match builtin::topology(file) {
        Some(topology) => topology?,
        None => {
            let text = source
                .files
                .get(file)
                .context("a topology that was not read")?;
            Topology::parse(file, &String::from_utf8_lossy(text))?
        }
    };
    ensure!(
        topology.host(AUTHORITY_HOST).is_some(),
        "{}:{}: --testbed {} needs a host named {AUTHORITY_HOST} in the topology {file}: the directory authority \
         runs there",
        scenario.file,
        scenario.network.line,
        room.testbed
    );
    Ok(topology)
}

fn of_hosts(scenario: &Scenario, setup: &Setup, room: Room) -> Result<Topology> {
    let Setup { hosts, net, .. } = setup;
    let Room {
        testbed,
        most_hosts,
    } = room;
    ensure!(
        hosts.len() <= most_hosts,
        "{}: {} hosts are more than --testbed {testbed} has room for: it runs {most_hosts} at most",
        scenario.file,
        hosts.len()
    );
    let names: BTreeSet<&str> = hosts.iter().map(|host| &*host.name).collect();
    ensure!(
        !names.contains(AUTHORITY_HOST),
        "{}: --testbed {testbed} has a host named {AUTHORITY_HOST} of its own: give this one another name",
        place_of(scenario, AUTHORITY_HOST)
    );
    // Names of switches, which no host has.
    let prefix = ["line", "switch", "the-line"];
    let is_free = |prefix: &&str| !names.iter().any(|name| name.starts_with(*prefix));
    let prefix = prefix.into_iter().find(is_free).unwrap_or("line-of-host");
    let quoted = |all: Vec<String>| {
        let all: Vec<String> = all.iter().map(|name| format!("\"{name}\"")).collect();
        all.join(", ")
    };
    let all = hosts.iter().map(|host| host.name.clone());
    let all = all.chain([AUTHORITY_HOST.to_owned()]).collect();
    let switches = (0..=hosts.len()).map(|number| format!("{prefix}-{number}"));
    let mut text = format!(
        "name = \"run\"\nhosts = [{}]\nswitches = [{}]\nroutes = \"fewest-links\"\ntcp = \"{}\"\n",
        quoted(all),
        quoted(switches.collect()),
        match scenario.tcp {
            Algorithm::Cubic => "cubic",
            Algorithm::Reno => "reno",
        }
    );
    let mut link = |one: &str, other: &str, settings: String| {
        let _ = write!(
            text,
            "[[link]]\nends = [\"{one}\", \"{other}\"]\n{settings}"
        );
    };
    for (id, host) in (0..).map(HostId).zip(hosts) {
        let [up, down] = net.line(id).context("a host without a line")?;
        let rate =
            |rate: Option<Rate>| rate.map_or(String::new(), |rate| format!("rate = \"{rate}\""));
        let settings = format!(
            "{}\nqueue = \"{}\"\nback = {{ {} }}\n",
            rate(up.rate),
            up.queue,
            rate(down.rate)
        );
        link(&host.name, &format!("{prefix}-{}", id.0), settings);
    }
    link(
        AUTHORITY_HOST,
        &format!("{prefix}-{}", hosts.len()),
        String::new(),
    );
    let end = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    for one in 0..=end {
        for other in one + 1..=end {
            let own = net.path(HostId(one), HostId(other));
            // To the authority.
            let (delay, loss) = match own {
                Some(path) => (path.delay, path.loss),
                None => (scenario.network.delay, scenario.network.loss),
            };
            let nanos = delay.as_nanos();
            let settings = format!("delay = \"{nanos} ns\"\nloss = \"{loss}\"\n");
            let [one, other] = [one, other].map(|number| format!("{prefix}-{number}"));
            link(&one, &other, settings);
        }
    }
    Ok(Topology::parse("the scenario's hosts", &text)?)
}

/// Where the scenario has a host of this name.
fn place_of(scenario: &Scenario, name: &str) -> String {
    let line = match &scenario.network.kind {
        NetworkKind::Hosts { hosts, .. } => hosts.iter().find(|host| host.name == name),
        _ => None,
    };
    let line = line.map_or(scenario.network.line, |host| host.line);
    format!("{}:{line}", scenario.file)
}

#[cfg(test)]
mod tests {
    use weft_model::links::Loss;
    use weft_virtual::Files;

    use super::*;

    fn source(text: &str) -> Source {
        Source {
            name: "test.toml".to_owned(),
            text: text.to_owned(),
            scenario: Scenario::parse("test.toml", text).expect("a scenario"),
            files: Files::default(),
        }
    }

    fn drawn(source: &Source) -> Result<Topology> {
        let setup = source.scenario.setup(&source.files, 0, 1, 1)?;
        topology(source, &setup, NETNS)
    }

    #[test]
    fn a_drawn_network_has_the_lines_and_paths_of_virtual_time() {
        let text = "duration = \"10 s\"\n[network]\nsynthetic = { relays = 5 }\ndelay = \"40 ms\"\n\
            [[clients]]\nmodel = \"bulk\"\n[[servers]]\nrate = \"7 Mbit/s\"\n";
        let topology = drawn(&source(text)).expect("it fits");
        let hosts: Vec<&str> = topology
            .hosts()
            .map(|host| topology.node_name(host.node()))
            .collect();
        assert_eq!(hosts.len(), 8);
        assert_eq!(hosts[5..], ["server-1", "client-1", AUTHORITY_HOST]);
        let links = topology.links();
        let [up, down] = &links[5].directions;
        let rate: Option<Rate> = Some("7 Mbit/s".parse().expect("a rate"));
        assert_eq!((up.rate, down.rate), (rate, rate));
        let last = links.last().expect("there are links");
        assert_eq!(last.directions[0].delay.as_millis(), 40);
    }

    #[test]
    fn more_hosts_than_fit_are_refused() {
        let text = "duration = \"10 s\"\n[network]\nsynthetic = { relays = 5 }\n[[clients]]\ncount = 200\n\
            model = \"bulk\"\n[[servers]]\n";
        let error = drawn(&source(text)).expect_err("206 hosts").to_string();
        assert!(error.contains("206 hosts"), "{error}");
    }

    const SCENARIO: &str = r#"
        duration = "10 s"
        tcp = "reno"
        [network]
        delay = "25 ms"
        [[host]]
        name = "client"
        up = "1 Mbit/s"
        down = "10 Mbit/s"
        [[host]]
        name = "relay"
        count = 3
        [[host]]
        name = "server"
        [[path]]
        between = ["relay-2", "relay-3"]
        delay = "5 ms"
        loss = "0.1 %"
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
        model = "bulk"
        [[servers]]
        hosts = ["server"]
    "#;

    #[test]
    fn hosts_have_lines_and_paths_are_between_them() {
        let source = source(SCENARIO);
        let topology = drawn(&source).expect("it fits");
        assert_eq!(topology.tcp(), Some("reno"));
        let hosts = topology.hosts().map(|host| topology.node_name(host.node()));
        let hosts: Vec<&str> = hosts.collect();
        let expected = [
            "client",
            "relay-1",
            "relay-2",
            "relay-3",
            "server",
            "authority",
        ];
        assert_eq!(hosts, expected);
        // Six lines, and a path for each two of them.
        let links = topology.links();
        assert_eq!(links.len(), 6 + 15);
        let [up, down] = &links[0].directions;
        let rate = |text: &str| Some(text.parse().expect("a rate"));
        assert_eq!((up.rate, down.rate), (rate("1 Mbit/s"), rate("10 Mbit/s")));
        let lossy = links
            .iter()
            .filter(|link| link.directions[0].loss != Loss::default());
        let lossy: Vec<_> = lossy.collect();
        assert_eq!(lossy.len(), 1);
        assert_eq!(lossy[0].directions[1].delay.as_millis(), 5);
    }

    #[test]
    fn a_host_with_the_authoritys_name_is_refused() {
        let text = SCENARIO.replace("\"server\"", "\"authority\"");
        let error = drawn(&source(&text)).expect_err("taken").to_string();
        assert!(
            error.contains("test.toml:") && error.contains("another name"),
            "{error}"
        );
    }
}
