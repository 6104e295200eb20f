//! Reading a scenario: its own hosts, the paths between them, and which of them stall.

use std::time::Duration;

use weft_model::links::source::{Value, unknown};
use weft_model::links::{Loss, QueueLimit, Rate};

use super::read::{MAX_DELAY, MAX_DURATION, Reader, Result};
use super::spec::{FaultSpec, HostSpec, NetworkKind, PathSpec, Scenario, named};

/// At most so many hosts of the file, as there is a path between each two.
const MAX_HOSTS: usize = 1_000;

const HOST_KEYS: &[&str] = &["name", "count", "up", "down", "queue"];
const PATH_KEYS: &[&str] = &["between", "delay", "loss"];
const FAULT_KEYS: &[&str] = &["host", "at", "lasts"];

impl Reader<'_> {
    pub(super) fn hosts(&self, value: &Value<'_>) -> Result<Vec<HostSpec>> {
        let one_gigabit = Rate::from_bits(1_000_000_000);
        let mut hosts: Vec<HostSpec> = Vec::new();
        for value in self.tables(value, "[[host]]")? {
            let table = self.source.table(value)?;
            let entries = self.source.entries(table, HOST_KEYS, "key of a host")?;
            let Some(name) = entries.get("name") else {
                let problem = "a host without a name, such as name = \"client\"";
                return Err(self.source.at(value, problem.to_owned()));
            };
            let group = self.name(name)?;
            let rate = |key: &str| match entries.get(key) {
                Some(value) => self.rate(value).map(Some),
                None => Ok(one_gigabit),
            };
            let (Some(up), Some(down)) = (rate("up")?, rate("down")?) else {
                return Err(self.source.at(value, "a host without a rate".to_owned()));
            };
            let queue = match entries.get("queue") {
                Some(value) => self.source.read(value, str::parse::<QueueLimit>)?,
                None => QueueLimit::DEFAULT,
            };
            let count = match entries.get("count") {
                Some(value) => {
                    let range = 1..=u32::try_from(MAX_HOSTS).unwrap_or(u32::MAX);
                    Some(self.source.integer(value, "count is a number", range)?)
                }
                None => None,
            };
            let line = self.source.line(value);
            for number in 1..=count.unwrap_or(1) {
                let name = match count {
                    Some(_) => format!("{group}-{number}"),
                    None => group.clone(),
                };
                if hosts
                    .iter()
                    .any(|one| one.name == name || one.group == name)
                {
                    let problem = format!("two hosts are named {name}");
                    return Err(self.source.at(value, problem));
                }
                hosts.push(HostSpec {
                    line,
                    name,
                    group: group.clone(),
                    up,
                    down,
                    queue,
                });
            }
            if hosts.len() > MAX_HOSTS {
                let problem = format!("more than {MAX_HOSTS} hosts; take a synthetic network");
                return Err(self.source.at(value, problem));
            }
        }
        Ok(hosts)
    }

    pub(super) fn paths(
        &self,
        value: &Value<'_>,
        hosts: &[HostSpec],
        delay: Duration,
        loss: Loss,
    ) -> Result<Vec<PathSpec>> {
        let mut paths: Vec<PathSpec> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for value in self.tables(value, "[[path]]")? {
            let table = self.source.table(value)?;
            let entries = self.source.entries(table, PATH_KEYS, "key of a path")?;
            let Some(between) = entries.get("between") else {
                let problem = "a path without ends, such as between = [\"client\", \"guard\"]";
                return Err(self.source.at(value, problem.to_owned()));
            };
            let [first, second] = self.source.array(between)? else {
                return Err(self.source.at(between, "a path has two ends".to_owned()));
            };
            let (first, second) = (self.ends(first, hosts)?, self.ends(second, hosts)?);
            let delay = match entries.get("delay") {
                Some(value) => self.time(value, MAX_DELAY)?,
                None => delay,
            };
            let loss = match entries.get("loss") {
                Some(value) => self.source.read(value, str::parse::<Loss>)?,
                None => loss,
            };
            let line = self.source.line(value);
            for &one in &first {
                for &other in &second {
                    if one == other {
                        let problem = "a path is between two different hosts".to_owned();
                        return Err(self.source.at(between, problem));
                    }
                    if !known.insert([one.min(other), one.max(other)]) {
                        let problem = "two paths are between the same hosts".to_owned();
                        return Err(self.source.at(between, problem));
                    }
                    paths.push(PathSpec {
                        line,
                        between: [one, other],
                        delay,
                        loss,
                    });
                }
            }
        }
        Ok(paths)
    }

    fn ends(&self, value: &Value<'_>, hosts: &[HostSpec]) -> Result<Vec<usize>> {
        let name = self.source.string(value)?;
        let found = named(hosts, name);
        match found.is_empty() {
            true => Err(self.source.at(value, unknown_host(name, hosts))),
            false => Ok(found),
        }
    }

    /// Hosts of the file that stall.
    pub(super) fn faults(
        &self,
        value: Option<&Value<'_>>,
        scenario: &Scenario,
    ) -> Result<Vec<FaultSpec>> {
        let Some(value) = value else {
            return Ok(Vec::new());
        };
        if !matches!(scenario.network.kind, NetworkKind::Hosts { .. }) {
            let problem = "a [[fault]] is of a [[host]], and there are none";
            return Err(self.source.at(value, problem.to_owned()));
        }
        let fault = |value: &Value<'_>| {
            let table = self.source.table(value)?;
            let entries = self.source.entries(table, FAULT_KEYS, "key of a fault")?;
            let (Some(host), Some(at)) = (entries.get("host"), entries.get("at")) else {
                let problem =
                    "which host stalls, and when? Such as host = \"middle\", at = \"10 s\"";
                return Err(self.source.at(value, problem.to_owned()));
            };
            Ok(FaultSpec {
                line: self.source.line(value),
                host: self.host(host, scenario)?,
                at: self.time(at, scenario.duration)?,
                lasts: match entries.get("lasts") {
                    Some(value) => Some(self.time(value, MAX_DURATION)?),
                    None => None,
                },
            })
        };
        self.tables(value, "[[fault]]")?.iter().map(fault).collect()
    }
}

/// Error text for a host that does not exist.
pub(super) fn unknown_host(name: &str, hosts: &[HostSpec]) -> String {
    let names = hosts
        .iter()
        .flat_map(|host| [host.name.as_str(), host.group.as_str()]);
    unknown("host", name, names)
}
