//! Hosts, switches and the links between them.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::links::quantity::{Delay, Loss, QueueLimit, Rate};

/// Most hosts: each is a network namespace with a device.
pub(crate) const MAX_HOSTS: usize = 1_000;
/// Most hosts and switches.
pub(crate) const MAX_NODES: usize = 2_000;
/// Most links: a mesh of the 183 countries of Shadow's topology of 2018, and as many hosts.
pub(crate) const MAX_LINKS: usize = 20_000;
/// Most background streams over one link.
pub(crate) const MAX_BACKGROUND: u32 = 64;
/// The longest name of a host, a switch or a topology: it is a part of a file's name.
pub(crate) const MAX_NAME: usize = 40;

/// The longest name of a congestion control: TCP_CA_NAME_MAX of Linux, with its zero byte.
pub(crate) const MAX_TCP: usize = 15;

/// Returns true if this is a valid name of a host, a switch or a topology.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let starts = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= MAX_NAME
        && text.starts_with(starts)
        && text.chars().all(|c| starts(c) || c == '-')
}

/// A host or a switch of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// Counted from 0: the hosts first, then the switches.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// A host of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

impl HostId {
    /// Counted from 0, in the order of the topology.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }

    /// It as a node: hosts come before switches.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(self.0)
    }

    /// Its IPv4 address. The first 250 hosts are 10.1.0.1 to 10.250.0.1, so that each has a
    /// separate /16, as Tor does not put two relays of one /16 in a path. Then 10.1.1.1 and so on
    /// follow.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        let octet = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        Ipv4Addr::new(10, octet(1 + self.0 % 250), octet(self.0 / 250), 1)
    }

    /// The host with this address, in a topology with enough hosts.
    pub(crate) fn at(address: Ipv4Addr) -> Option<HostId> {
        let [ten, network, block, host] = address.octets();
        let is_ours = ten == 10 && (1..=250).contains(&network) && host == 1;
        is_ours.then(|| HostId(usize::from(block) * 250 + usize::from(network) - 1))
    }
}

/// Settings of one direction of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// None: as fast as the machine.
    pub rate: Option<Rate>,
    /// One way.
    pub delay: Duration,
    /// Largest deviation from the delay, in both directions; at most the delay.
    pub jitter: Duration,
    /// Packets that are lost at random.
    pub loss: Loss,
    /// Limit of the queue, where there is a rate.
    pub queue: QueueLimit,
}

impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::default(),
            queue: QueueLimit::DEFAULT,
        }
    }
}

impl LinkSettings {
    /// The keys whose values are others here, with these values.
    fn differences(&self, other: &LinkSettings) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        // Where the other one has a rate, this one has one: a file cannot take it away.
        if let Some(rate) = self.rate
            && self.rate != other.rate
        {
            found.push(("rate", rate.to_string()));
        }
        if self.delay != other.delay {
            found.push(("delay", Delay(self.delay).to_string()));
        }
        if self.jitter != other.jitter {
            found.push(("jitter", Delay(self.jitter).to_string()));
        }
        if self.loss != other.loss {
            found.push(("loss", self.loss.to_string()));
        }
        if self.queue != other.queue {
            found.push(("queue", self.queue.to_string()));
        }
        found
    }
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// The nodes that it joins.
    pub ends: [NodeId; 2],
    /// Settings from the first end to the second, and back.
    pub directions: [LinkSettings; 2],
    /// Bulk TCP streams from the second end to the first, for as long as the network is up. Both ends are
    /// hosts.
    pub background: u32,
}

/// Rule by which packets are routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteRule {
    /// The links have no cycle, so that there is one way.
    #[default]
    Tree,
    /// The route with the fewest links, which must be unique between two hosts.
    FewestLinks,
}

impl RouteRule {
    pub(crate) const ALL: [RouteRule; 2] = [RouteRule::Tree, RouteRule::FewestLinks];

    /// As topologies name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RouteRule::Tree => "tree",
            RouteRule::FewestLinks => "fewest-links",
        }
    }
}

/// A network of links: hosts, switches, which only forward, and links. Hosts forward as well, so that
/// a relay can stand between two others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) name: String,
    /// The hosts first.
    pub(crate) nodes: Vec<String>,
    pub(crate) hosts: usize,
    pub(crate) links: Vec<LinkSpec>,
    pub(crate) rule: RouteRule,
    pub(crate) tcp: Option<String>,
}

impl Topology {
    /// Its name: lower-case letters, digits and hyphens.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The hosts, in order.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = HostId> + use<> {
        (0..self.hosts).map(HostId)
    }

    /// The hosts and the switches, in order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<HostId> {
        let hosts = self.nodes.iter().take(self.hosts);
        hosts.into_iter().position(|host| host == name).map(HostId)
    }

    /// Number of hosts and switches.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The name of a host or a switch.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> &str {
        self.nodes.get(node.0).map_or("", String::as_str)
    }

    /// The host that this node is, if it is no switch.
    #[must_use]
    pub fn as_host(&self, node: NodeId) -> Option<HostId> {
        (node.0 < self.hosts).then_some(HostId(node.0))
    }

    /// The host with this address.
    #[must_use]
    pub fn host_at(&self, address: Ipv4Addr) -> Option<HostId> {
        HostId::at(address).filter(|host| host.0 < self.hosts)
    }

    /// The links, in order.
    #[must_use]
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// Rule by which packets are routed.
    #[must_use]
    pub fn rule(&self) -> RouteRule {
        self.rule
    }

    /// The congestion control of the hosts' TCP; none: the machine's.
    #[must_use]
    pub fn tcp(&self) -> Option<&str> {
        self.tcp.as_deref()
    }

    /// Returns true if the other topology has the same nodes, routes and TCP, and links between the
    /// same nodes.
    #[must_use]
    pub fn has_shape_of(&self, other: &Topology) -> bool {
        let ends = |topology: &Topology| -> Vec<[NodeId; 2]> {
            topology.links.iter().map(|link| link.ends).collect()
        };
        self.nodes == other.nodes
            && self.hosts == other.hosts
            && self.rule == other.rule
            && self.tcp == other.tcp
            && ends(self) == ends(other)
    }

    /// Limits links that are faster than this to this rate.
    #[must_use]
    pub fn at_most(mut self, rate: Rate) -> Topology {
        for link in &mut self.links {
            for settings in &mut link.directions {
                settings.rate = settings.rate.map(|own| own.min(rate));
            }
        }
        self
    }

    /// Removes random loss and background streams.
    #[must_use]
    pub fn calm(mut self) -> Topology {
        for link in &mut self.links {
            for settings in &mut link.directions {
                settings.loss = Loss::default();
            }
            link.background = 0;
        }
        self
    }
}

/// As TOML that [`Topology::parse`] reads.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[String]| {
            let quoted: Vec<String> = nodes.iter().map(|name| format!("\"{name}\"")).collect();
            quoted.join(", ")
        };
        let (hosts, switches) = self.nodes.split_at(self.hosts.min(self.nodes.len()));
        writeln!(f, "name = \"{}\"", self.name)?;
        writeln!(f, "hosts = [{}]", list(hosts))?;
        if !switches.is_empty() {
            writeln!(f, "switches = [{}]", list(switches))?;
        }
        if self.rule != RouteRule::default() {
            writeln!(f, "routes = \"{}\"", self.rule.name())?;
        }
        if let Some(tcp) = &self.tcp {
            writeln!(f, "tcp = \"{tcp}\"")?;
        }
        for link in &self.links {
            let [first, second] = link.ends.map(|end| self.node_name(end));
            writeln!(f, "\n[[link]]\nends = [\"{first}\", \"{second}\"]")?;
            let [forth, back] = &link.directions;
            for (key, value) in forth.differences(&LinkSettings::default()) {
                writeln!(f, "{key} = \"{value}\"")?;
            }
            let other = back.differences(forth);
            if !other.is_empty() {
                let values = other
                    .iter()
                    .map(|(key, value)| format!("{key} = \"{value}\""));
                let values: Vec<String> = values.collect();
                writeln!(f, "back = {{ {} }}", values.join(", "))?;
            }
            if link.background > 0 {
                writeln!(f, "background = {}", link.background)?;
            }
        }
        Ok(())
    }
}
