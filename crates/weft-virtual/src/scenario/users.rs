//! Reading a scenario: relays, clients and servers.

use std::collections::BTreeSet;
use std::time::Duration;

use toml::de::DeValue;
use weft_model::links::source::{TextError, Value, unknown};
use weft_model::links::{Rate, parse_bytes};
use weft_model::traffic::{MAX_BYTES, ModelName, Pause};

use super::hosts::unknown_host;
use super::read::{Reader, Result};
use super::spec::{Clients, NetworkKind, RelaySpec, Scenario, Servers, UserModel};
use crate::roles::{Roles, check_roles};

/// The longest time from the beginning of a run, and the longest pause.
pub(super) const MAX_TIME: Duration = Duration::from_secs(24 * 3_600);
/// At most so many clients and so many servers; what memory holds is another question.
pub(super) const MAX_COUNT: u32 = 1_000_000;

const RELAY_KEYS: &[&str] = &["host", "roles", "threads", "limit", "burst", "bandwidth"];
const CLIENT_KEYS: &[&str] = &[
    "count",
    "name",
    "model",
    "up",
    "down",
    "start",
    "within",
    "hosts",
    "entry",
    "servers",
    "measure",
    "multipath",
];
const MODEL_KEYS: &[&str] = &["download", "pause", "timeout", "streams", "packets"];
const SERVER_KEYS: &[&str] = &["count", "rate", "port", "hosts"];

impl Reader<'_> {
    pub(super) fn relays(
        &self,
        value: Option<&Value<'_>>,
        scenario: &Scenario,
    ) -> Result<Vec<RelaySpec>> {
        let needs = match scenario.network.kind {
            NetworkKind::Hosts { .. } | NetworkKind::Topology { .. } => true,
            NetworkKind::Synthetic { .. } | NetworkKind::Consensus { .. } => false,
        };
        let Some(value) = value else {
            return match needs {
                true => Err(self.absent(
                    "[[relay]]",
                    "[[relay]] host = \"guard\", roles = [\"guard\"]",
                )),
                false => Ok(Vec::new()),
            };
        };
        if !needs {
            let problem = "relays come from the network: a [[relay]] needs [[host]]s or a topology";
            return Err(self.source.at(value, problem.to_owned()));
        }
        let mut relays = Vec::new();
        let mut roles = Vec::new();
        for value in self.tables(value, "[[relay]]")? {
            let relay = self.relay(value, scenario)?;
            let count = scenario.hosts_named(&relay.host).len().max(1);
            roles.extend(std::iter::repeat_n(relay.roles, count));
            relays.push(relay);
        }
        // The hosts of a topology do not stand for several.
        check_roles(&roles).map_err(|problem| self.source.at(value, problem))?;
        Ok(relays)
    }

    fn relay(&self, value: &Value<'_>, scenario: &Scenario) -> Result<RelaySpec> {
        let table = self.source.table(value)?;
        let entries = self.source.entries(table, RELAY_KEYS, "key of a relay")?;
        let Some(host) = entries.get("host") else {
            let problem = "a relay without a host, such as host = \"guard\"";
            return Err(self.source.at(value, problem.to_owned()));
        };
        let rate = |key: &str| match entries.get(key) {
            Some(value) => self.rate(value).map(Some),
            None => Ok(None),
        };
        let limit = rate("limit")?;
        let burst = match entries.get("burst") {
            Some(value) if limit.is_none() => {
                let problem = "a burst is of a limit, and there is none";
                return Err(self.source.at(value, problem.to_owned()));
            }
            Some(value) => Some(self.size(value, "a burst")?),
            None => None,
        };
        Ok(RelaySpec {
            line: self.source.line(value),
            host: self.host(host, scenario)?,
            roles: match entries.get("roles") {
                Some(value) => self.roles(value)?,
                None => Roles::default(),
            },
            threads: match entries.get("threads") {
                Some(value) => Some(self.threads(value)?),
                None => None,
            },
            limit,
            burst,
            bandwidth: rate("bandwidth")?,
        })
    }

    /// A size up to the largest of a stream.
    fn size(&self, value: &Value<'_>, what: &str) -> Result<u64> {
        let bytes = self.source.read(value, parse_bytes)?;
        match (1..=MAX_BYTES).contains(&bytes) {
            true => Ok(bytes),
            false => {
                let problem = format!("{what} has 1 to {MAX_BYTES} bytes");
                Err(self.source.at(value, problem))
            }
        }
    }

    fn roles(&self, value: &Value<'_>) -> Result<Roles> {
        let mut roles = Roles::default();
        for value in self.source.array(value)? {
            match self.source.string(value)? {
                "guard" => roles.guard = true,
                "exit" => roles.exit = true,
                "middle" => {}
                other => {
                    let known = ["guard", "middle", "exit"].into_iter();
                    return Err(self.source.at(value, unknown("role", other, known)));
                }
            }
        }
        Ok(roles)
    }

    /// The name of a host; of those of the file, one that is there.
    pub(super) fn host(&self, value: &Value<'_>, scenario: &Scenario) -> Result<String> {
        let name = self.name(value)?;
        if let NetworkKind::Hosts { hosts, .. } = &scenario.network.kind
            && scenario.hosts_named(&name).is_empty()
        {
            return Err(self.source.at(value, unknown_host(&name, hosts)));
        }
        Ok(name)
    }

    /// `hosts` and `count` of clients or servers: names, and how many there are.
    fn hosts_and_count(
        &self,
        value: &Value<'_>,
        [hosts, count]: [Option<&Value<'_>>; 2],
        scenario: &Scenario,
    ) -> Result<(Vec<String>, u32)> {
        let is_made = match scenario.network.kind {
            NetworkKind::Synthetic { .. } | NetworkKind::Consensus { .. } => true,
            NetworkKind::Hosts { .. } | NetworkKind::Topology { .. } => false,
        };
        match (hosts, count, is_made) {
            (Some(hosts), _, true) => {
                let problem = "hosts are made for them: hosts needs [[host]]s or a topology";
                Err(self.source.at(hosts, problem.to_owned()))
            }
            (_, Some(count), false) => {
                let problem = "there is one on each of the hosts: remove count";
                Err(self.source.at(count, problem.to_owned()))
            }
            (None, _, false) => {
                let problem = "on which hosts? Such as hosts = [\"client\"]";
                Err(self.source.at(value, problem.to_owned()))
            }
            (None, count, true) => {
                let count = match count {
                    Some(value) => {
                        self.source
                            .integer(value, "count is a number", 1..=MAX_COUNT)?
                    }
                    None => 1,
                };
                Ok((Vec::new(), count))
            }
            (Some(hosts), None, false) => {
                let mut names = Vec::new();
                let mut count = 0;
                for host in self.source.array(hosts)? {
                    let name = self.host(host, scenario)?;
                    count += scenario.hosts_named(&name).len().max(1);
                    names.push(name);
                }
                if names.is_empty() {
                    return Err(self.source.at(hosts, "no hosts".to_owned()));
                }
                Ok((names, u32::try_from(count).unwrap_or(u32::MAX)))
            }
        }
    }

    pub(super) fn clients(
        &self,
        value: Option<&Value<'_>>,
        scenario: &Scenario,
    ) -> Result<Vec<Clients>> {
        let Some(value) = value else {
            return Err(self.absent("[[clients]]", "[[clients]] count = 10, model = \"page\""));
        };
        let tables = self.tables(value, "[[clients]]")?.iter();
        tables.map(|value| self.client(value, scenario)).collect()
    }

    fn client(&self, value: &Value<'_>, scenario: &Scenario) -> Result<Clients> {
        let table = self.source.table(value)?;
        let entries = self.source.entries(table, CLIENT_KEYS, "key of clients")?;
        let get = |key: &str| entries.get(key).copied();
        let (hosts, count) = self.hosts_and_count(value, [get("hosts"), get("count")], scenario)?;
        let rate = |key: &str| match get(key) {
            Some(value) if !hosts.is_empty() => Err(self.has_rate(value, key)),
            Some(value) => self.rate(value).map(Some),
            None => Ok(None),
        };
        let (up, down) = (rate("up")?, rate("down")?);
        let Some(model) = get("model") else {
            let problem = "clients without a model, such as model = \"page\"";
            return Err(self.source.at(value, problem.to_owned()));
        };
        let model = self.model(model)?;
        let time = |key: &str| match get(key) {
            Some(value) => self.time(value, MAX_TIME),
            None => Ok(Duration::ZERO),
        };
        let name = match (get("name"), &model) {
            (Some(value), _) => self.name(value)?,
            (None, UserModel::Named(name)) => name.name().to_owned(),
            (None, UserModel::Download { .. }) => "download".to_owned(),
            (None, UserModel::Markov { .. }) => "markov".to_owned(),
        };
        Ok(Clients {
            line: self.source.line(value),
            count,
            name,
            model,
            up,
            down,
            start: time("start")?,
            within: time("within")?,
            entry: match get("entry") {
                Some(value) if hosts.is_empty() => {
                    let problem = "relays have no hosts here: entry needs [[host]]s or a topology";
                    return Err(self.source.at(value, problem.to_owned()));
                }
                Some(value) => Some(self.host(value, scenario)?),
                None => None,
            },
            hosts,
            servers: match get("servers") {
                Some(value) => self
                    .source
                    .integer(value, "servers is a number", 1..=MAX_COUNT)?,
                None => 10,
            },
            measure: match get("measure") {
                Some(value) => self.source.boolean(value)?,
                None => false,
            },
            multipath: match get("multipath") {
                Some(value) => Some(self.source.boolean(value)?),
                None => None,
            },
        })
    }

    fn has_rate(&self, value: &Value<'_>, key: &str) -> TextError {
        self.source
            .at(value, format!("the hosts have their rates: remove {key}"))
    }

    fn model(&self, value: &Value<'_>) -> Result<UserModel> {
        let table = match value.get_ref() {
            DeValue::String(name) => {
                let name: &str = name;
                let found = ModelName::ALL.into_iter().find(|one| one.name() == name);
                return found.map(UserModel::Named).ok_or_else(|| {
                    let known = ModelName::ALL.into_iter().map(ModelName::name);
                    self.source.at(value, unknown("model", name, known))
                });
            }
            DeValue::Table(table) => table,
            _ => {
                let problem = "expected a model, such as \"page\" or { download = \"5 MB\" }";
                return Err(self.source.at(value, problem.to_owned()));
            }
        };
        let entries = self.source.entries(table, MODEL_KEYS, "key of a model")?;
        let get = |key: &str| entries.get(key).copied();
        match (get("download"), get("streams"), get("packets")) {
            (Some(download), None, None) => {
                let bytes = self.size(download, "a stream")?;
                Ok(UserModel::Download {
                    bytes,
                    pause: match get("pause") {
                        Some(value) => self.pause(value)?,
                        None => Pause::None,
                    },
                    timeout: match get("timeout") {
                        Some(value) => Some(self.time(value, MAX_TIME)?),
                        None => None,
                    },
                })
            }
            (None, Some(streams), Some(packets)) => {
                if let Some(value) = get("pause").or(get("timeout")) {
                    let problem =
                        "pause and timeout are of a download; Markov models have their own";
                    return Err(self.source.at(value, problem.to_owned()));
                }
                Ok(UserModel::Markov {
                    streams: self.file_name(streams)?,
                    packets: self.file_name(packets)?,
                })
            }
            _ => {
                let problem = "a model has download, or both streams and packets";
                Err(self.source.at(value, problem.to_owned()))
            }
        }
    }

    /// A time, or two: every length between them is as likely.
    fn pause(&self, value: &Value<'_>) -> Result<Pause> {
        let DeValue::Array(ends) = value.get_ref() else {
            let time = self.time(value, MAX_TIME)?;
            return Ok(match time.is_zero() {
                true => Pause::None,
                false => Pause::Fixed(time),
            });
        };
        let ends: &[Value<'_>] = ends;
        let [low, high] = ends else {
            let problem = "a pause is a time, or two of them".to_owned();
            return Err(self.source.at(value, problem));
        };
        let (low, high) = (self.time(low, MAX_TIME)?, self.time(high, MAX_TIME)?);
        match low <= high {
            true => Ok(Pause::Uniform(low, high)),
            false => Err(self.source.at(value, "the first time is longer".to_owned())),
        }
    }

    pub(super) fn servers(
        &self,
        value: Option<&Value<'_>>,
        scenario: &Scenario,
    ) -> Result<Vec<Servers>> {
        let Some(value) = value else {
            return Err(self.absent("[[servers]]", "[[servers]] count = 10"));
        };
        let mut servers = Vec::new();
        for value in self.tables(value, "[[servers]]")? {
            let table = self.source.table(value)?;
            let entries = self.source.entries(table, SERVER_KEYS, "key of servers")?;
            let get = |key: &str| entries.get(key).copied();
            let (hosts, count) =
                self.hosts_and_count(value, [get("hosts"), get("count")], scenario)?;
            let rate = match get("rate") {
                Some(value) if !hosts.is_empty() => return Err(self.has_rate(value, "rate")),
                Some(value) => Some(self.rate(value)?),
                None => Rate::from_bits(1_000_000_000),
            };
            let port = match get("port") {
                Some(value) => self.source.integer(value, "port is a number", 1..=65_535)?,
                None => 80,
            };
            let Some(rate) = rate else {
                return Err(self.source.at(value, "servers without a rate".to_owned()));
            };
            servers.push(Servers {
                line: self.source.line(value),
                count,
                rate,
                port: u16::try_from(port).unwrap_or(80),
                hosts,
            });
        }
        Ok(servers)
    }

    /// A host has one thing: a relay, a client or a server.
    pub(super) fn check_hosts(&self, scenario: &Scenario) -> Result<()> {
        let relays = scenario.relays.iter().map(|one| (one.line, &one.host));
        let clients = scenario.clients.iter();
        let clients = clients.flat_map(|one| one.hosts.iter().map(|host| (one.line, host)));
        let servers = scenario.servers.iter();
        let servers = servers.flat_map(|one| one.hosts.iter().map(|host| (one.line, host)));
        let mut taken = BTreeSet::new();
        for (line, host) in relays.chain(clients).chain(servers) {
            let mut members = scenario.hosts_named(host).into_iter();
            let is_double = match scenario.network.kind {
                NetworkKind::Topology { .. } => !taken.insert((host.as_str(), 0)),
                _ => members.any(|member| !taken.insert(("", member))),
            };
            if is_double {
                let problem = format!(
                    "host {host} has something already: it takes one relay, client or server"
                );
                return Err(TextError::new(&scenario.file, line, problem));
            }
        }
        Ok(())
    }
}
