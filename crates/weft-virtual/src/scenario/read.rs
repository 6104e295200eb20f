//! Reading a scenario: the text as a whole, and its network.

use std::time::Duration;

use toml::de::{DeTable, DeValue};
use weft_model::hosts::tcp::Algorithm;
use weft_model::links::source::{Entries, Source, TextError, Value, shorten, unknown};
use weft_model::links::{Loss, Rate, is_name, parse_time};

use super::error::ScenarioError;
use super::spec::{NetworkKind, NetworkSpec, Places, Scenario};
use crate::setup::Costs;

/// The longest text, in bytes.
const MAX_TEXT: usize = 4 << 20;
/// The longest run. Documents are valid for longer.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(24 * 3_600);
/// The longest delay of a path.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(10);
/// The longest time that a step of work takes.
const MAX_COST: Duration = Duration::from_secs(1);
/// At most so many relays of a synthetic network: each has a /16 of its own.
const MAX_RELAYS: u32 = 20_000;
/// A path has so many relays.
const LEAST_RELAYS: u32 = 3;

/// The keys of a scenario and of its tables.
const KEYS: &[&str] = &[
    "name",
    "duration",
    "repetitions",
    "congestion_control",
    "tcp",
    "interval",
    "network",
    "host",
    "path",
    "relay",
    "clients",
    "servers",
    "fault",
    "costs",
    "arm",
];
const NETWORK_KEYS: &[&str] = &[
    "synthetic",
    "consensus",
    "scale",
    "topology",
    "delay",
    "loss",
    "graph",
    "countries",
    "losses",
    "threads",
    "buckets",
    "capacity",
    "exit_rate",
];
const SYNTHETIC_KEYS: &[&str] = &["relays", "guards", "exits"];
const COST_KEYS: &[&str] = &["turn", "cell", "onionskin"];

pub(super) type Result<T> = std::result::Result<T, TextError>;

/// See [`Scenario::parse`].
pub(super) fn scenario(file: &str, text: &str) -> std::result::Result<Scenario, ScenarioError> {
    let source = Source::new(file, text, MAX_TEXT)?;
    let document = source.document()?;
    Ok(Reader { source, file }.scenario(document.get_ref())?)
}

/// A scenario's text.
pub(super) struct Reader<'t> {
    pub(super) source: Source<'t>,
    file: &'t str,
}

impl Reader<'_> {
    fn scenario(&self, document: &DeTable<'_>) -> Result<Scenario> {
        let entries = self.source.entries(document, KEYS, "key")?;
        let get = |key: &str| entries.get(key).copied();
        let duration = match get("duration") {
            Some(value) => self.duration(value)?,
            None => return Err(self.absent("duration", "duration = \"60 s\"")),
        };
        let congestion_control = match get("congestion_control") {
            Some(value) => self.source.boolean(value)?,
            None => true,
        };
        let tcp = match get("tcp") {
            Some(value) => self.tcp(value)?,
            None => Algorithm::default(),
        };
        let interval = match get("interval") {
            Some(value) => self.interval(value, duration)?,
            None => Duration::from_secs(1).min(duration),
        };
        let repetitions = match get("repetitions") {
            Some(value) => self
                .source
                .integer(value, "repetitions is a number", 1..=10_000)?,
            None => 1,
        };
        let costs = match get("costs") {
            Some(value) => self.costs(value)?,
            None => Costs::default(),
        };
        let network = self.network(&entries)?;
        let arms = self.arms(get("arm"), congestion_control, network.threads)?;
        let mut scenario = Scenario {
            file: self.file.to_owned(),
            name: self.title(get("name"))?,
            duration,
            repetitions,
            congestion_control,
            tcp,
            interval,
            network,
            relays: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            faults: Vec::new(),
            costs,
            arms,
        };
        scenario.relays = self.relays(get("relay"), &scenario)?;
        scenario.clients = self.clients(get("clients"), &scenario)?;
        scenario.servers = self.servers(get("servers"), &scenario)?;
        self.check_hosts(&scenario)?;
        scenario.faults = self.faults(get("fault"), &scenario)?;
        Ok(scenario)
    }

    /// The error that a key is not there.
    pub(super) fn absent(&self, key: &str, example: &str) -> TextError {
        self.source
            .fail(0, format!("there is no {key}, such as {example}"))
    }

    fn title(&self, value: Option<&Value<'_>>) -> Result<String> {
        match value {
            Some(value) => self.name(value),
            None => {
                let name = self.file.rsplit('/').next().unwrap_or(self.file);
                Ok(name.strip_suffix(".toml").unwrap_or(name).to_owned())
            }
        }
    }

    /// A name: of a host, an arm, a model.
    pub(super) fn name(&self, value: &Value<'_>) -> Result<String> {
        let name = self.source.string(value)?;
        if is_name(name) {
            return Ok(name.to_owned());
        }
        let problem = format!(
            "\"{}\" is no name: a name has 1 to 40 lower-case letters, digits and hyphens",
            shorten(name)
        );
        Err(self.source.at(value, problem))
    }

    /// The name of a file, which the caller reads.
    pub(super) fn file_name(&self, value: &Value<'_>) -> Result<String> {
        let name = self.source.string(value)?;
        match name.is_empty() || name.len() > 4_096 || name.contains('\0') {
            true => Err(self.source.at(value, "expected a file's name".to_owned())),
            false => Ok(name.to_owned()),
        }
    }

    fn duration(&self, value: &Value<'_>) -> Result<Duration> {
        let duration = self.time(value, MAX_DURATION)?;
        match duration < Duration::from_millis(1) {
            true => Err(self
                .source
                .at(value, "a run lasts 1 ms at least".to_owned())),
            false => Ok(duration),
        }
    }

    fn interval(&self, value: &Value<'_>, duration: Duration) -> Result<Duration> {
        /// At most so many values of a series.
        const MOST: u32 = 100_000;
        let interval = self.time(value, MAX_DURATION)?;
        if interval < Duration::from_millis(1) || interval * MOST < duration {
            let problem = format!(
                "the interval is too short: it is 1 ms at least, and a run has {MOST} of them at most"
            );
            return Err(self.source.at(value, problem));
        }
        Ok(interval)
    }

    /// A time up to this one.
    pub(super) fn time(&self, value: &Value<'_>, most: Duration) -> Result<Duration> {
        self.source.read(value, |text| parse_time(text, most))
    }

    /// A rate.
    pub(super) fn rate(&self, value: &Value<'_>) -> Result<Rate> {
        self.source.read(value, str::parse::<Rate>)
    }

    fn tcp(&self, value: &Value<'_>) -> Result<Algorithm> {
        match self.source.string(value)? {
            "cubic" => Ok(Algorithm::Cubic),
            "reno" => Ok(Algorithm::Reno),
            other => {
                let problem = unknown("tcp", other, ["cubic", "reno"].into_iter());
                Err(self.source.at(value, problem))
            }
        }
    }

    fn costs(&self, value: &Value<'_>) -> Result<Costs> {
        let table = self.source.table(value)?;
        let entries = self.source.entries(table, COST_KEYS, "cost")?;
        let cost = |key: &str| match entries.get(key) {
            Some(value) => {
                let time = self.time(value, MAX_COST)?;
                Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
            None => Ok(0),
        };
        Ok(Costs {
            turn: cost("turn")?,
            cell: cost("cell")?,
            onionskin: cost("onionskin")?,
        })
    }

    fn network(&self, all: &Entries<'_, '_>) -> Result<NetworkSpec> {
        let empty = DeTable::new();
        let (table, line) = match all.get("network") {
            Some(value) => (self.source.table(value)?, self.source.line(value)),
            None => (&empty, 1),
        };
        let entries = self
            .source
            .entries(table, NETWORK_KEYS, "key of the network")?;
        let get = |key: &str| entries.get(key).copied();
        let hosts = all.get("host").copied();
        let mut kinds = ["synthetic", "consensus", "topology"]
            .into_iter()
            .filter_map(|key| Some((key, get(key)?)))
            .chain(hosts.map(|value| ("[[host]]", value)));
        let Some((key, kind)) = kinds.next() else {
            let problem = "there is no network: [network] has synthetic, consensus or topology, or there are [[host]]s";
            return Err(TextError::new(self.file, line, problem.to_owned()));
        };
        if let Some((other, value)) = kinds.next() {
            let problem = format!("there are {key} and {other}: a network is one of them");
            return Err(self.source.at(value, problem));
        }
        let has_paths = matches!(key, "synthetic" | "consensus");
        let delay = match get("delay") {
            Some(value) => self.time(value, MAX_DELAY)?,
            None if has_paths => Duration::from_millis(50),
            None => Duration::ZERO,
        };
        let loss = match get("loss") {
            Some(value) => self.source.read(value, str::parse::<Loss>)?,
            None => Loss::default(),
        };
        let places = self.places(&entries)?;
        for name in ["delay", "loss"] {
            if let Some(value) = get(name)
                && (places.is_some() || key == "topology")
            {
                let problem = format!(
                    "{name} is that of the {}: remove it",
                    match key {
                        "topology" => "topology's links",
                        _ => "graph",
                    }
                );
                return Err(self.source.at(value, problem));
            }
        }
        let only = [
            ("scale", key == "consensus", "a consensus"),
            ("graph", has_paths, "a synthetic network or a consensus"),
            ("buckets", has_paths, "a synthetic network or a consensus"),
            ("capacity", has_paths, "a synthetic network or a consensus"),
            ("exit_rate", has_paths, "a synthetic network or a consensus"),
        ];
        for (name, is_right, what) in only {
            if let Some(value) = get(name)
                && !is_right
            {
                return Err(self.source.at(value, format!("{name} needs {what}")));
            }
        }
        if let Some(paths) = all.get("path")
            && hosts.is_none()
        {
            let problem = "a [[path]] is between [[host]]s, and there are none";
            return Err(self.source.at(paths, problem.to_owned()));
        }
        let kind = match key {
            "synthetic" => self.synthetic(kind)?,
            "consensus" => NetworkKind::Consensus {
                file: self.file_name(kind)?,
                scale: self.scale(get("scale"))?,
            },
            "topology" => NetworkKind::Topology {
                file: self.file_name(kind)?,
            },
            _ => {
                let hosts = self.hosts(kind)?;
                let paths = match all.get("path") {
                    Some(value) => self.paths(value, &hosts, delay, loss)?,
                    None => Vec::new(),
                };
                NetworkKind::Hosts { hosts, paths }
            }
        };
        let threads = match get("threads") {
            Some(value) => self.threads(value)?,
            None => 1,
        };
        let buckets = match get("buckets") {
            Some(value) => self.source.boolean(value)?,
            None => false,
        };
        Ok(NetworkSpec {
            line,
            kind,
            delay,
            loss,
            places,
            threads,
            buckets,
            capacity: self.capacity(get("capacity"))?,
            exit_rate: match get("exit_rate") {
                Some(value) => Some(self.rate(value)?),
                None => None,
            },
        })
    }

    fn capacity(&self, value: Option<&Value<'_>>) -> Result<f64> {
        match value {
            Some(value) => self
                .source
                .number(value, "capacity is a number", 0.001..=1000.0),
            None => Ok(1.0),
        }
    }

    /// Connection threads of a relay.
    pub(super) fn threads(&self, value: &Value<'_>) -> Result<u16> {
        let threads = self.source.integer(value, "threads is a number", 1..=256)?;
        Ok(u16::try_from(threads).unwrap_or(1))
    }

    fn scale(&self, value: Option<&Value<'_>>) -> Result<f64> {
        let Some(value) = value else {
            return Ok(1.0);
        };
        let scale = self.source.number(value, "scale is a number", 0.0..=1.0)?;
        match scale > 0.0 {
            true => Ok(scale),
            false => Err(self
                .source
                .at(value, "a scale of 0 leaves no relay".to_owned())),
        }
    }

    fn places(&self, entries: &Entries<'_, '_>) -> Result<Option<Places>> {
        let Some(graph) = entries.get("graph") else {
            return match entries.get("countries").or(entries.get("losses")) {
                Some(value) => {
                    let problem = "countries and losses are of a graph, and there is none";
                    Err(self.source.at(value, problem.to_owned()))
                }
                None => Ok(None),
            };
        };
        let mut countries = Vec::new();
        if let Some(value) = entries.get("countries") {
            for code in self.source.array(value)? {
                countries.push(self.source.string(code)?.to_owned());
            }
            if countries.is_empty() {
                let problem = "no countries: remove the key for all of the graph";
                return Err(self.source.at(value, problem.to_owned()));
            }
        }
        let losses = match entries.get("losses") {
            Some(value) => self.source.boolean(value)?,
            None => true,
        };
        Ok(Some(Places {
            file: self.file_name(graph)?,
            countries,
            losses,
        }))
    }

    fn synthetic(&self, value: &Value<'_>) -> Result<NetworkKind> {
        let table = self.source.table(value)?;
        let entries = self
            .source
            .entries(table, SYNTHETIC_KEYS, "key of a synthetic network")?;
        let Some(count) = entries.get("relays") else {
            let problem = "how many relays? Such as synthetic = { relays = 100 }";
            return Err(self.source.at(value, problem.to_owned()));
        };
        let what = "relays is a number";
        let relays = self
            .source
            .integer(count, what, LEAST_RELAYS..=MAX_RELAYS)?;
        let part = |key: &str| match entries.get(key) {
            Some(value) => {
                let what =
                    format!("{key} is a number (a network needs one, and has {relays} relays)");
                self.source.integer(value, &what, 1..=relays).map(Some)
            }
            None => Ok(None),
        };
        Ok(NetworkKind::Synthetic {
            relays,
            guards: part("guards")?,
            exits: part("exits")?,
        })
    }

    /// The tables of a list, `[[host]]` for example.
    pub(super) fn tables<'v, 'i>(
        &self,
        value: &'v Value<'i>,
        what: &str,
    ) -> Result<&'v [Value<'i>]> {
        match value.get_ref() {
            DeValue::Array(values) => Ok(values),
            _ => {
                let problem = format!("write {what}, with two brackets");
                Err(self.source.at(value, problem))
            }
        }
    }
}
