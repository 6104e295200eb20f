//! Topologies as TOML.
//!
//! `docs/testbeds.md` has the grammar. Every error names file and line.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::quantity::{Loss, QueueLimit, Rate, nearest, parse_delay};
use crate::routes::{RouteError, Routes};
use crate::topology::{
    LinkSettings, LinkSpec, MAX_BACKGROUND, MAX_HOSTS, MAX_LINKS, MAX_NAME, MAX_NODES, MAX_TCP,
    NodeId, RouteRule, Topology, is_name,
};

/// The longest text, in bytes: a mesh of 20,000 links with all their settings.
const MAX_TEXT: usize = 8 << 20;

/// What is wrong with a topology, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct TopologyError {
    file: String,
    line: usize,
    problem: String,
}

impl TopologyError {
    /// Counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

type Result<T> = std::result::Result<T, TopologyError>;
type Value<'i> = Spanned<DeValue<'i>>;
type Entries<'t, 'i> = HashMap<&'static str, &'t Value<'i>>;

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
/// Those of `defaults`, and of `back` in a link.
const SETTING_KEYS: &[&str] = &["rate", "delay", "jitter", "loss", "queue"];

/// Where errors are.
struct Source<'t> {
    file: &'t str,
    text: &'t str,
}

impl Topology {
    /// Reads and checks TOML; `file` names it in errors.
    ///
    /// # Errors
    ///
    /// With file and line: no TOML, an unknown key, host or unit, a value out of range, two nodes of one name,
    /// two ways between two hosts.
    pub fn parse(file: &str, text: &str) -> Result<Topology> {
        let source = Source { file, text };
        if text.len() > MAX_TEXT {
            return Err(source.fail(0, format!("longer than {MAX_TEXT} bytes")));
        }
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.fail(at, error.message().to_owned())
        })?;
        source.topology(document.get_ref())
    }
}

impl Source<'_> {
    fn topology(&self, document: &DeTable<'_>) -> Result<Topology> {
        let entries = self.entries(document, KEYS, "key")?;
        let name = entries
            .get("name")
            .ok_or_else(|| self.fail(0, "there is no name, such as name = \"pair\"".to_owned()))?;
        let mut nodes = Nodes::default();
        let hosts = entries.get("hosts").ok_or_else(|| {
            let problem = "there are no hosts, such as hosts = [\"client\", \"server\"]";
            self.fail(0, problem.to_owned())
        })?;
        self.add_nodes(&mut nodes, hosts)?;
        let host_count = nodes.names.len();
        if host_count == 0 || host_count > MAX_HOSTS {
            let problem = format!("{host_count} hosts: a topology has 1 to {MAX_HOSTS}");
            return Err(self.at(hosts, problem));
        }
        if let Some(switches) = entries.get("switches") {
            self.add_nodes(&mut nodes, switches)?;
            if nodes.names.len() > MAX_NODES {
                let problem = format!("more than {MAX_NODES} hosts and switches");
                return Err(self.at(switches, problem));
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
                let entries = self.entries(self.table(value)?, SETTING_KEYS, "default")?;
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
                self.fail(positions.get(*link).copied().unwrap_or(0), problem)
            }
            RouteError::Ambiguous { from, to } => {
                let problem = format!(
                    "two ways with the fewest links lead from {} to {}: routes must be unique",
                    name(*from),
                    name(to.node())
                );
                self.fail(0, problem)
            }
        }
    }

    /// The values of a table by their keys.
    fn entries<'t, 'i>(
        &self,
        table: &'t DeTable<'i>,
        known: &[&'static str],
        what: &str,
    ) -> Result<Entries<'t, 'i>> {
        let mut entries = HashMap::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let Some(known) = known.iter().find(|known| **known == name) else {
                let problem = unknown(what, name, known.iter().copied());
                return Err(self.fail(key.span().start, problem));
            };
            entries.insert(*known, value);
        }
        Ok(entries)
    }

    fn add_nodes(&self, nodes: &mut Nodes, value: &Value<'_>) -> Result<()> {
        for value in self.array(value)? {
            let name = self.name(value)?;
            if nodes.numbers.contains_key(&name) {
                return Err(self.at(value, format!("two hosts or switches are named {name}")));
            }
            nodes
                .numbers
                .insert(name.clone(), NodeId(nodes.names.len()));
            nodes.names.push(name);
        }
        Ok(())
    }

    fn name(&self, value: &Value<'_>) -> Result<String> {
        let name = self.string(value)?;
        if is_name(name) {
            return Ok(name.to_owned());
        }
        let problem = format!(
            "\"{}\" is no name: a name has 1 to {MAX_NAME} lower-case letters, digits and hyphens",
            shorten(name)
        );
        Err(self.at(value, problem))
    }

    fn rule(&self, value: &Value<'_>) -> Result<RouteRule> {
        let name = self.string(value)?;
        let rules = RouteRule::ALL;
        let rule = rules.into_iter().find(|rule| rule.name() == name);
        rule.ok_or_else(|| {
            let names = rules.iter().map(|rule| rule.name());
            self.at(value, unknown("rule of routes", name, names))
        })
    }

    /// The name of a congestion control of TCP. Which of them there are, the kernel knows.
    fn tcp(&self, value: &Value<'_>) -> Result<String> {
        let name = self.string(value)?;
        let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if (1..=MAX_TCP).contains(&name.len()) && name.chars().all(is_good) {
            return Ok(name.to_owned());
        }
        let problem = format!(
            "\"{}\" is no congestion control of TCP, such as \"cubic\" or \"reno\"",
            shorten(name)
        );
        Err(self.at(value, problem))
    }

    /// The links, and where each of them is in the text.
    fn links(
        &self,
        value: &Value<'_>,
        nodes: &Nodes,
        hosts: usize,
        defaults: &LinkSettings,
    ) -> Result<(Vec<LinkSpec>, Vec<usize>)> {
        let list = self.array(value)?;
        if list.len() > MAX_LINKS {
            return Err(self.at(value, format!("more than {MAX_LINKS} links")));
        }
        let mut links = Vec::with_capacity(list.len());
        let mut positions = Vec::with_capacity(list.len());
        for value in list {
            let entries = self.entries(self.table(value)?, LINK_KEYS, "key of a link")?;
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
            return Err(self.at(value, problem.to_owned()));
        };
        let [first, second] = self.array(ends)? else {
            return Err(self.at(ends, "a link has two ends".to_owned()));
        };
        let ends = [self.node(nodes, first)?, self.node(nodes, second)?];
        let [one, other] = ends;
        if one == other {
            return Err(self.at(second, "a link joins two different ends".to_owned()));
        }
        let background = match entries.get("background") {
            Some(value) => self.background(value, ends, hosts)?,
            None => 0,
        };
        let forth = self.settings(entries, defaults.clone())?;
        let back = match entries.get("back") {
            Some(value) => {
                let entries =
                    self.entries(self.table(value)?, SETTING_KEYS, "key of the way back")?;
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
        let name = self.string(value)?;
        nodes.numbers.get(name).copied().ok_or_else(|| {
            let names = nodes.names.iter().map(String::as_str);
            self.at(value, unknown("host", name, names))
        })
    }

    fn background(&self, value: &Value<'_>, ends: [NodeId; 2], hosts: usize) -> Result<u32> {
        let count = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let count = count.filter(|count| *count <= MAX_BACKGROUND);
        let count = count.ok_or_else(|| {
            let problem =
                format!("background is a number of TCP streams from 0 to {MAX_BACKGROUND}");
            self.at(value, problem)
        })?;
        if count > 0 && ends.iter().any(|end| end.0 >= hosts) {
            let problem = "background streams need a host at both ends of the link, not a switch";
            return Err(self.at(value, problem.to_owned()));
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
            settings.rate = Some(self.read(value, Rate::parse)?);
        }
        if let Some(value) = entries.get("delay") {
            settings.delay = self.read(value, parse_delay)?;
        }
        if let Some(value) = entries.get("jitter") {
            settings.jitter = self.read(value, parse_delay)?;
        }
        if let Some(value) = entries.get("loss") {
            settings.loss = self.read(value, Loss::parse)?;
        }
        if let Some(value) = entries.get("queue") {
            settings.queue = self.read(value, QueueLimit::parse)?;
        }
        if settings.jitter > settings.delay
            && let Some(value) = entries.get("jitter").or(entries.get("delay"))
        {
            let problem = "the jitter is greater than the delay: packets would arrive early";
            return Err(self.at(value, problem.to_owned()));
        }
        Ok(settings)
    }

    /// A string, read by `parse`.
    fn read<T>(
        &self,
        value: &Value<'_>,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let text = self.string(value)?;
        if text.len() > 64 {
            return Err(self.at(value, format!("\"{}\" is too long", shorten(text))));
        }
        parse(text).map_err(|problem| self.at(value, problem))
    }

    fn string<'v>(&self, value: &'v Value<'_>) -> Result<&'v str> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.at(value, "expected a string in quotes".to_owned())),
        }
    }

    fn array<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v [Value<'i>]> {
        match value.get_ref() {
            DeValue::Array(values) => Ok(values),
            _ => Err(self.at(value, "expected a list".to_owned())),
        }
    }

    fn table<'v, 'i>(&self, value: &'v Value<'i>) -> Result<&'v DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.at(value, "expected a table".to_owned())),
        }
    }

    fn at(&self, value: &Value<'_>, problem: String) -> TopologyError {
        let Range { start, .. } = value.span();
        self.fail(start, problem)
    }

    fn fail(&self, position: usize, problem: String) -> TopologyError {
        let before = self.text.bytes().take(position);
        TopologyError {
            file: self.file.to_owned(),
            line: 1 + before.filter(|byte| *byte == b'\n').count(),
            problem,
        }
    }
}

/// The nodes so far.
#[derive(Default)]
struct Nodes {
    names: Vec<String>,
    numbers: HashMap<String, NodeId>,
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let shown = shorten(name);
    match nearest(&shown, known) {
        Some(near) => format!("unknown {what} \"{shown}\"; did you mean {near}?"),
        None => format!("unknown {what} \"{shown}\""),
    }
}

/// Not more of a name than fits in an error.
fn shorten(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => Cow::Owned(format!("{}…", name.get(..end).unwrap_or(""))),
        None => Cow::Borrowed(name),
    }
}
