//! Topologies that are made, not written: hosts with access lines, around one switch or at countries.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::links::countries::{Countries, CountryId};
use crate::links::quantity::Rate;
use crate::links::topology::{
    LinkSettings, LinkSpec, MAX_HOSTS, MAX_LINKS, MAX_NODES, NodeId, RouteRule, Topology, is_name,
};

/// Between these is the delay of an access line around one switch, every value as likely: two hosts are 10 to
/// 90 ms apart.
const LEAST_DELAY: Duration = Duration::from_millis(5);
const MOST_DELAY: Duration = Duration::from_millis(45);
/// The switch that all are around.
const CENTRE: &str = "internet";

/// A host and its access line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Of lower-case letters, digits and hyphens.
    pub host: String,
    /// Largest rate at which it sends.
    pub up: Rate,
    /// Largest rate at which it receives.
    pub down: Rate,
}

/// Hosts that make no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// None, or too many.
    #[error("{0} hosts: a topology has 1 to {MAX_HOSTS}")]
    Hosts(usize),
    /// Too many hosts and switches.
    #[error("{0} hosts and switches: a topology has {MAX_NODES} at most; take fewer hosts")]
    Nodes(usize),
    /// Too many links.
    #[error(
        "{0} links: a topology has {MAX_LINKS} at most; take fewer hosts, or fewer of one country"
    )]
    Links(usize),
    /// The graph has no edge for two hosts.
    #[error("the graph has no <edge> from {from} to {to}, and hosts are at both")]
    NoPath {
        /// The code of a country.
        from: String,
        /// The code of a country, perhaps the same.
        to: String,
    },
    /// An invalid name, or one that exists already.
    #[error("\"{0}\" is no name, or that of two hosts or switches")]
    Name(String),
}

/// Parts of the topology made so far.
#[derive(Default)]
struct Parts {
    hosts: Vec<String>,
    switches: Vec<String>,
    links: Vec<LinkSpec>,
}

/// A topology of hosts around one switch. The delays of their lines are drawn, between 5 and 45 ms.
///
/// # Errors
///
/// There are no hosts, or too many, or two of one name.
pub fn star(name: &str, hosts: &[Access], rng: &mut impl Rng) -> Result<Topology, DrawError> {
    check_hosts(hosts.len())?;
    let mut parts = Parts::default();
    let centre = NodeId(hosts.len());
    parts.switches.push(CENTRE.to_owned());
    for (number, access) in hosts.iter().enumerate() {
        let microseconds = LEAST_DELAY.as_micros()..=MOST_DELAY.as_micros();
        let drawn = rng.random_range(microseconds);
        let delay = Duration::from_micros(u64::try_from(drawn).unwrap_or(0));
        parts.hosts.push(access.host.clone());
        let line = access.directions(|settings| settings.delay = delay);
        parts.link([NodeId(number), centre], line);
    }
    parts.finish(name, RouteRule::Tree)
}

impl Access {
    /// The line's settings: from the host, and to it.
    fn directions(&self, set: impl Fn(&mut LinkSettings)) -> [LinkSettings; 2] {
        [self.up, self.down].map(|rate| {
            let mut settings = LinkSettings {
                rate: Some(rate),
                ..LinkSettings::default()
            };
            set(&mut settings);
            settings
        })
    }
}

impl Countries {
    /// A topology of hosts at countries, in which the path between two hosts is the graph's path
    /// between their countries.
    ///
    /// Each host has its access line to the switch of its country, and these switches are joined
    /// pairwise. Where a country has several hosts, each has another switch between, and these are
    /// joined pairwise, too, with the graph's path from the country to itself. So every packet
    /// crosses one path of the graph.
    ///
    /// # Errors
    ///
    /// There are no hosts or too many, two of one name, or no edge between the countries of two hosts.
    pub fn topology(
        &self,
        name: &str,
        hosts: &[(Access, CountryId)],
    ) -> Result<Topology, DrawError> {
        check_hosts(hosts.len())?;
        let mut parts = Parts {
            hosts: hosts
                .iter()
                .map(|(access, _)| access.host.clone())
                .collect(),
            ..Parts::default()
        };
        // Countries in the order of their first hosts, each with its hosts.
        let mut used: Vec<(CountryId, Vec<usize>)> = Vec::new();
        for (number, (_, country)) in hosts.iter().enumerate() {
            match used.iter_mut().find(|(known, _)| known == country) {
                Some((_, members)) => members.push(number),
                None => used.push((*country, vec![number])),
            }
        }
        check_size(hosts.len(), &used)?;
        let mut switches = Vec::with_capacity(used.len());
        for (country, members) in &used {
            let own = parts.switch(self.code(*country));
            switches.push((*country, own));
            self.access(&mut parts, hosts, (*country, own), members)?;
        }
        for (number, &(from, one)) in switches.iter().enumerate() {
            for &(to, other) in switches.iter().skip(number + 1) {
                let directions = [self.between(from, to)?, self.between(to, from)?];
                parts.link([one, other], directions);
            }
        }
        parts.finish(name, RouteRule::FewestLinks)
    }

    /// Joins the hosts of a country with its switch and with each other.
    fn access(
        &self,
        parts: &mut Parts,
        hosts: &[(Access, CountryId)],
        (country, switch): (CountryId, NodeId),
        members: &[usize],
    ) -> Result<(), DrawError> {
        let loss = self.get(country).map(|one| one.loss).unwrap_or_default();
        let mut own = Vec::with_capacity(members.len());
        for &number in members {
            let Some((access, _)) = hosts.get(number) else {
                continue;
            };
            let line = access.directions(|settings| settings.loss = loss);
            if members.len() == 1 {
                parts.link([NodeId(number), switch], line);
                continue;
            }
            let between = parts.switch(&format!("{}-line", access.host));
            parts.link([NodeId(number), between], line);
            parts.link([between, switch], Default::default());
            own.push(between);
        }
        for (number, &one) in own.iter().enumerate() {
            for &other in own.iter().skip(number + 1) {
                let settings = self.between(country, country)?;
                parts.link([one, other], [settings.clone(), settings]);
            }
        }
        Ok(())
    }

    /// The path from one country to another, as a link without a rate.
    ///
    /// # Errors
    ///
    /// The graph has no edge between them.
    pub fn between(&self, from: CountryId, to: CountryId) -> Result<LinkSettings, DrawError> {
        let crossing = self.crossing(from, to).ok_or_else(|| DrawError::NoPath {
            from: self.code(from).to_owned(),
            to: self.code(to).to_owned(),
        })?;
        Ok(LinkSettings {
            delay: crossing.delay,
            jitter: crossing.jitter,
            loss: crossing.loss,
            ..LinkSettings::default()
        })
    }
}

fn check_hosts(count: usize) -> Result<(), DrawError> {
    match count {
        1..=MAX_HOSTS => Ok(()),
        _ => Err(DrawError::Hosts(count)),
    }
}

/// Before anything is made of them.
fn check_size(hosts: usize, used: &[(CountryId, Vec<usize>)]) -> Result<(), DrawError> {
    let pairs = |count: usize| count * count.saturating_sub(1) / 2;
    let (mut nodes, mut links) = (hosts + used.len(), hosts + pairs(used.len()));
    for (_, members) in used.iter().filter(|(_, members)| members.len() > 1) {
        nodes += members.len();
        links += members.len() + pairs(members.len());
    }
    if nodes > MAX_NODES {
        return Err(DrawError::Nodes(nodes));
    }
    match links {
        ..=MAX_LINKS => Ok(()),
        _ => Err(DrawError::Links(links)),
    }
}

impl Parts {
    fn switch(&mut self, name: &str) -> NodeId {
        self.switches.push(name.to_owned());
        NodeId(self.hosts.len() + self.switches.len() - 1)
    }

    fn link(&mut self, ends: [NodeId; 2], directions: [LinkSettings; 2]) {
        self.links.push(LinkSpec {
            ends,
            directions,
            background: 0,
        });
    }

    /// The topology, if its names are good; all else was checked, or follows from how it is made.
    fn finish(self, name: &str, rule: RouteRule) -> Result<Topology, DrawError> {
        let hosts = self.hosts.len();
        let nodes: Vec<String> = self.hosts.into_iter().chain(self.switches).collect();
        let mut seen = BTreeSet::new();
        let mut names = nodes.iter().map(String::as_str);
        let wrong = names.find(|name| !is_name(name) || !seen.insert(*name));
        if let Some(wrong) = wrong.or((!is_name(name)).then_some(name)) {
            return Err(DrawError::Name(wrong.to_owned()));
        }
        Ok(Topology {
            name: name.to_owned(),
            nodes,
            hosts,
            links: self.links,
            rule,
            tcp: None,
        })
    }
}
