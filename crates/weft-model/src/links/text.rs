//! Topologies as TOML.
//!
//! `docs/testbeds.md` has the grammar. Every error names file and line.

use std::collections::HashMap;

use toml::de::DeTable;

use crate::links::quantity::{Loss, QueueLimit, Rate, parse_delay};
use crate::links::routes::{RouteError, Routes};
use crate::links::source::{Entries, Source, TextError, Value, shorten, unknown};
use crate::links::topology::{
    LinkSettings, LinkSpec, MAX_BACKGROUND, MAX_HOSTS, MAX_LINKS, MAX_NAME, MAX_NODES, MAX_TCP,
    NodeId, RouteRule, Topology, is_name,
};

/// The longest text, in bytes: a mesh of 20,000 links with all their settings.
const MAX_TEXT: usize = 8 << 20;

/// Error in a topology, with file and line.
pub type TopologyError = TextError;

type Result<T> = std::result::Result<T, TopologyError>;

/// The keys of a file, and of its `link` and `defaults` tables.
const KEYS: &[&str] = &[
    "name", "hosts", "switches", "routes", "tcp", "defaults", "link",
];
const LINK_KEYS: &[&str] = &[
    "ends",
    "rate",
    "delay",
    "jitter",
    "loss",
    "queue",
    "back",
    "background",
];
/// Keys of `defaults`, and of `back` in a link.
const SETTING_KEYS: &[&str] = &["rate", "delay", "jitter", "loss", "queue"];

/// A topology's text.
struct Reader<'t> {
    source: Source<'t>,
}

impl Topology {
    /// Reads and checks TOML; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// With file and line: no TOML, an unknown key, host or unit, a value out of range, two nodes of one name,
    /// two ways between two hosts.
    pub fn parse(file: &str, text: &str) -> Result<Topology> {
        let source = Source::new(file, text, MAX_TEXT)?;
        let document = source.document()?;
        Reader { source }.topology(document.get_ref())
    }
}

impl Reader<'_> {
    fn topology(&self, document: &DeTable<'_>) -> Result<Topology> {
        let entries = self.source.entries(document, KEYS, "key")?;
        let name = entries.get("name").ok_or_else(|| {
            self.source
                .fail(0, "there is no name, such as name = \"pair\"".to_owned())
        })?;
        let mut nodes = Nodes::default();
        let hosts = entries.get("hosts").ok_or_else(|| {
            let problem = "there are no hosts, such as hosts = [\"client\", \"server\"]";
            self.source.fail(0, problem.to_owned())
        })?;
        self.add_nodes(&mut nodes, hosts)?;
        let host_count = nodes.names.len();
        if host_count == 0 || host_count > MAX_HOSTS {
            let problem = format!("{host_count} hosts: a topology has 1 to {MAX_HOSTS}");
            return Err(self.source.at(hosts, problem));
        }
        if let Some(switches) = entries.get("switches") {
            self.add_nodes(&mut nodes, switches)?;
            if nodes.names.len() > MAX_NODES {
                let problem = format!("more than {MAX_NODES} hosts and switches");
                return Err(self.source.at(switches, problem));
            }
        }
        let rule = match entries.get("routes") {
            Some(value) => self.rule(value)?,
            None => RouteRule::default(),
        };
        let tcp = match entries.get("tcp") {
            Some(value) => Some(self.tcp(value)?),
            None => None,
        };
        let defaults = match entries.get("defaults") {
            Some(value) => {
                let entries =
                    self.source
                        .entries(self.source.table(value)?, SETTING_KEYS, "default")?;
                self.settings(&entries, LinkSettings::default())?
            }
            None => LinkSettings::default(),
        };
        let (links, lines) = match entries.get("link") {
            Some(value) => self.links(value, &nodes, host_count, &defaults)?,
            None => (Vec::new(), Vec::new()),
        };
        let topology = Topology {
            name: self.name(name)?,
            nodes: nodes.names,
            hosts: host_count,
            links,
            rule,
            tcp,
        };
        match Routes::find(&topology) {
            Ok(_) => Ok(topology),
            Err(error) => Err(self.route_error(&topology, &error, &lines)),
        }
    }

    fn route_error(
        &self,
        topology: &Topology,
        error: &RouteError,
        positions: &[usize],
    ) -> TopologyError {
        let name = |node| topology.node_name(node);
        match error {
            RouteError::Cycle(link) => {
                let ends = topology.links.get(*link).map(|link| link.ends);
                let [first, second] = ends.map_or(["", ""], |ends| ends.map(name));
                let problem = format!(
                    "the link between {first} and {second} closes a cycle: packets would have two ways; \
                     remove a link, or write routes = \"fewest-links\""
                );
                self.source
                    .fail(positions.get(*link).copied().unwrap_or(0), problem)
            }
            RouteError::Ambiguous { from, to } => {
                let problem = format!(
                    "two ways with the fewest links lead from {} to {}: routes must be unique",
                    name(*from),
                    name(to.node())
                );
                self.source.fail(0, problem)
            }
        }
    }

    fn add_nodes(&self, nodes: &mut Nodes, value: &Value<'_>) -> Result<()> {
        for value in self.source.array(value)? {
            let name = self.name(value)?;
            if nodes.numbers.contains_key(&name) {
                return Err(self
                    .source
                    .at(value, format!("two hosts or switches are named {name}")));
            }
            nodes
                .numbers
                .insert(name.clone(), NodeId(nodes.names.len()));
            nodes.names.push(name);
        }
        Ok(())
    }

    fn name(&self, value: &Value<'_>) -> Result<String> {
        let name = self.source.string(value)?;
        if is_name(name) {
            return Ok(name.to_owned());
        }
        let problem = format!(
            "\"{}\" is no name: a name has 1 to {MAX_NAME} lower-case letters, digits and hyphens",
            shorten(name)
        );
        Err(self.source.at(value, problem))
    }

    fn rule(&self, value: &Value<'_>) -> Result<RouteRule> {
        let name = self.source.string(value)?;
        let rules = RouteRule::ALL;
        let rule = rules.into_iter().find(|rule| rule.name() == name);
        rule.ok_or_else(|| {
            let names = rules.iter().map(|rule| rule.name());
            self.source
                .at(value, unknown("rule of routes", name, names))
        })
    }

    /// The name of a congestion control of TCP; the kernel knows which ones exist.
    fn tcp(&self, value: &Value<'_>) -> Result<String> {
        let name = self.source.string(value)?;
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if (1..=MAX_TCP).contains(&name.len()) && name.chars().all(is_good) {
            return Ok(name.to_owned());
        }
        let problem = format!(
            "\"{}\" is no congestion control of TCP, such as \"cubic\" or \"reno\"",
            shorten(name)
        );
        Err(self.source.at(value, problem))
    }

    /// The links, and where each of them is in the text.
    fn links(
        &self,
        value: &Value<'_>,
        nodes: &Nodes,
        hosts: usize,
        defaults: &LinkSettings,
    ) -> Result<(Vec<LinkSpec>, Vec<usize>)> {
        let list = self.source.array(value)?;
        if list.len() > MAX_LINKS {
            return Err(self
                .source
                .at(value, format!("more than {MAX_LINKS} links")));
        }
        let mut links = Vec::with_capacity(list.len());
        let mut positions = Vec::with_capacity(list.len());
        for value in list {
            let entries =
                self.source
                    .entries(self.source.table(value)?, LINK_KEYS, "key of a link")?;
            let position = entries.get("ends").unwrap_or(&value).span().start;
            positions.push(position);
            links.push(self.link(value, &entries, nodes, hosts, defaults)?);
        }
        Ok((links, positions))
    }

    fn link(
        &self,
        value: &Value<'_>,
        entries: &Entries<'_, '_>,
        nodes: &Nodes,
        hosts: usize,
        defaults: &LinkSettings,
    ) -> Result<LinkSpec> {
        let Some(ends) = entries.get("ends") else {
            let problem = "a link without ends, such as ends = [\"client\", \"server\"]";
            return Err(self.source.at(value, problem.to_owned()));
        };
        let [first, second] = self.source.array(ends)? else {
            return Err(self.source.at(ends, "a link has two ends".to_owned()));
        };
        let ends = [self.node(nodes, first)?, self.node(nodes, second)?];
        let [one, other] = ends;
        if one == other {
            return Err(self
                .source
                .at(second, "a link joins two different ends".to_owned()));
        }
        let background = match entries.get("background") {
            Some(value) => self.background(value, ends, hosts)?,
            None => 0,
        };
        let forth = self.settings(entries, defaults.clone())?;
        let back = match entries.get("back") {
            Some(value) => {
                let entries = self.source.entries(
                    self.source.table(value)?,
                    SETTING_KEYS,
                    "key of the way back",
                )?;
                self.settings(&entries, forth.clone())?
            }
            None => forth.clone(),
        };
        Ok(LinkSpec {
            ends,
            directions: [forth, back],
            background,
        })
    }

    fn node(&self, nodes: &Nodes, value: &Value<'_>) -> Result<NodeId> {
        let name = self.source.string(value)?;
        nodes.numbers.get(name).copied().ok_or_else(|| {
            let names = nodes.names.iter().map(String::as_str);
            self.source.at(value, unknown("host", name, names))
        })
    }

    fn background(&self, value: &Value<'_>, ends: [NodeId; 2], hosts: usize) -> Result<u32> {
        let what = "background is a number of TCP streams";
        let count = self.source.integer(value, what, 0..=MAX_BACKGROUND)?;
        if count > 0 && ends.iter().any(|end| end.0 >= hosts) {
            let problem = "background streams need a host at both ends of the link, not a switch";
            return Err(self.source.at(value, problem.to_owned()));
        }
        Ok(count)
    }

    /// The settings of these entries, and the given ones where there are none.
    fn settings(
        &self,
        entries: &Entries<'_, '_>,
        mut settings: LinkSettings,
    ) -> Result<LinkSettings> {
        if let Some(value) = entries.get("rate") {
            settings.rate = Some(self.source.read(value, Rate::parse)?);
        }
        if let Some(value) = entries.get("delay") {
            settings.delay = self.source.read(value, parse_delay)?;
        }
        if let Some(value) = entries.get("jitter") {
            settings.jitter = self.source.read(value, parse_delay)?;
        }
        if let Some(value) = entries.get("loss") {
            settings.loss = self.source.read(value, Loss::parse)?;
        }
        if let Some(value) = entries.get("queue") {
            settings.queue = self.source.read(value, QueueLimit::parse)?;
        }
        if settings.jitter > settings.delay
            && let Some(value) = entries.get("jitter").or(entries.get("delay"))
        {
            let problem = "the jitter is greater than the delay: packets would arrive early";
            return Err(self.source.at(value, problem.to_owned()));
        }
        Ok(settings)
    }
}

/// The nodes so far.
#[derive(Default)]
struct Nodes {
    names: Vec<String>,
    numbers: HashMap<String, NodeId>,
}
