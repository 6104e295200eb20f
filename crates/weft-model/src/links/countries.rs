//! Countries with their access rates, and the paths between any two of them.
//!
//! The format is the `GraphML` of Shadow 1, in which its topology of 2018 comes. A node is a country, with
//! `countrycode`, `bandwidthdown` and `bandwidthup` in KiB/s, and perhaps `packetloss`, a fraction. An edge
//! joins two countries, or a country and itself for hosts that are both there, with `latency` and perhaps
//! `jitter` in milliseconds, and perhaps `packetloss`. As in Shadow, a latency is that of a packet: one way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::graphs::{Data, Graph, GraphError, number, shown};
use rand::{Rng, RngExt as _};

use crate::links::quantity::{Loss, MAX_DELAY, Rate, nearest};

/// A country of [`Countries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountryId(pub(crate) usize);

/// Line of a host in a country.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Country {
    /// Two letters, in lower case.
    pub(crate) code: String,
    pub(crate) up: Rate,
    pub(crate) down: Rate,
    /// Of each packet that it sends or receives.
    pub(crate) loss: Loss,
}

/// Path of packets from one country to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    /// One way.
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) loss: Loss,
}

/// Countries, and the paths between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Countries {
    countries: Vec<Country>,
    /// By the place of the one that sends, and of the one that receives.
    crossings: BTreeMap<[usize; 2], Crossing>,
}

/// A code that no country has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown country \"{code}\"{}", .nearest.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?")))]
pub struct UnknownCountry {
    code: String,
    nearest: Option<String>,
}

impl Countries {
    /// Reads `GraphML`.
    ///
    /// # Errors
    ///
    /// With line and element: no `GraphML`, a country without code or rates or with the code of another one, a
    /// value that is no number, negative or absurd, two edges between the same countries.
    pub fn parse(text: &str) -> Result<Countries, GraphError> {
        let graph = Graph::parse(text)?;
        let mut countries: Vec<Country> = Vec::new();
        let mut codes = BTreeSet::new();
        for node in &graph.nodes {
            let error = |problem: String| GraphError::new(node.line, node.element(), problem);
            let country = country(&node.data).map_err(error)?;
            if !codes.insert(country.code.clone()) {
                return Err(error(format!(
                    "an earlier node has the countrycode {}, too",
                    country.code
                )));
            }
            countries.push(country);
        }
        if countries.is_empty() {
            let problem = "there is no <node>: a country is one";
            return Err(GraphError::new(graph.line, "<graph>", problem));
        }
        let mut crossings = BTreeMap::new();
        for edge in &graph.edges {
            let error = |problem: String| GraphError::new(edge.line, graph.element(edge), problem);
            let crossing = crossing(&edge.data).map_err(error)?;
            let ends = [edge.source, edge.target];
            let [source, target] = ends;
            let mut is_double = crossings.insert(ends, crossing).is_some();
            if !graph.is_directed && source != target {
                is_double |= crossings.insert([target, source], crossing).is_some();
            }
            if is_double {
                return Err(error("an earlier edge joins these two".to_owned()));
            }
        }
        Ok(Countries {
            countries,
            crossings,
        })
    }

    /// The countries, in the order of the file.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = CountryId> + use<> {
        (0..self.countries.len()).map(CountryId)
    }

    /// The country of this code, in letters of either case.
    ///
    /// # Errors
    ///
    /// There is none; the error names the nearest.
    pub fn find(&self, code: &str) -> Result<CountryId, UnknownCountry> {
        let lower = code.trim().to_lowercase();
        let found = self.countries.iter().position(|one| one.code == lower);
        found.map(CountryId).ok_or_else(|| {
            let mut known = self.countries.iter().map(|one| one.code.as_str());
            let near = match lower.as_str() {
                // A common name for it.
                "uk" => known.find(|code| *code == "gb"),
                _ => nearest(&lower, known),
            };
            UnknownCountry {
                code: shown(code),
                nearest: near.map(str::to_owned),
            }
        })
    }

    /// Its two letters, in lower case.
    #[must_use]
    pub fn code(&self, country: CountryId) -> &str {
        self.get(country).map_or("", |country| &country.code)
    }

    /// Largest rates at which a host there sends, and receives.
    #[must_use]
    pub fn rates(&self, country: CountryId) -> Option<[Rate; 2]> {
        self.get(country).map(|country| [country.up, country.down])
    }

    /// Loss of packets that a host there sends or receives.
    #[must_use]
    pub fn loss(&self, country: CountryId) -> Loss {
        self.get(country)
            .map(|country| country.loss)
            .unwrap_or_default()
    }

    /// So many of these countries at random: each once before any of them a second time.
    pub fn draw(&self, among: &[CountryId], count: usize, rng: &mut impl Rng) -> Vec<CountryId> {
        let mut drawn = Vec::with_capacity(count);
        while drawn.len() < count && !among.is_empty() {
            let mut rest = among.to_vec();
            while drawn.len() < count && !rest.is_empty() {
                let place = rng.random_range(0..rest.len());
                drawn.push(rest.swap_remove(place));
            }
        }
        drawn
    }

    pub(crate) fn get(&self, country: CountryId) -> Option<&Country> {
        self.countries.get(country.0)
    }

    pub(crate) fn crossing(&self, from: CountryId, to: CountryId) -> Option<&Crossing> {
        self.crossings.get(&[from.0, to.0])
    }
}

fn country(data: &Data) -> Result<Country, String> {
    let code = data.get("countrycode").ok_or("countrycode is missing")?;
    let is_code = code.len() == 2
        && code.starts_with(|c: char| c.is_ascii_alphabetic())
        && code.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_code {
        return Err(format!(
            "countrycode is no two letters: \"{}\"",
            shown(code)
        ));
    }
    Ok(Country {
        code: code.to_ascii_lowercase(),
        up: rate(data, "bandwidthup")?,
        down: rate(data, "bandwidthdown")?,
        loss: loss(data)?,
    })
}

fn crossing(data: &Data) -> Result<Crossing, String> {
    let delay = time(data, "latency")?.ok_or("latency is missing")?;
    // Measured from other packets than the latency, it may be greater.
    let jitter = time(data, "jitter")?.unwrap_or_default().min(delay);
    Ok(Crossing {
        delay,
        jitter,
        loss: loss(data)?,
    })
}

/// KiB/s.
fn rate(data: &Data, name: &str) -> Result<Rate, String> {
    let text = data.get(name).ok_or_else(|| format!("{name} is missing"))?;
    let problem = |problem: &str| format!("{name} {problem}: \"{}\"", shown(text));
    if text.starts_with('-') {
        return Err(problem("is negative"));
    }
    let amount: u64 = text.parse().map_err(|_| problem("is no whole number"))?;
    let bits = amount.checked_mul(1_024 * 8).and_then(Rate::from_bits);
    bits.ok_or_else(|| problem("is out of range (1 to 12,000,000 KiB/s)"))
}

/// Milliseconds.
fn time(data: &Data, name: &str) -> Result<Option<Duration>, String> {
    let Some(milliseconds) = number(data, name)? else {
        return Ok(None);
    };
    if milliseconds < 0.0 {
        return Err(format!("{name} is negative: {milliseconds}"));
    }
    let most = Duration::from_nanos(MAX_DELAY);
    match Duration::try_from_secs_f64(milliseconds / 1e3) {
        Ok(time) if time <= most => Ok(Some(time)),
        _ => Err(format!(
            "{name} is {milliseconds} ms, and may be {} s at most",
            most.as_secs()
        )),
    }
}

fn loss(data: &Data) -> Result<Loss, String> {
    let fraction = number(data, "packetloss")?.unwrap_or(0.0);
    // A fraction in parts of 10^9 is what nanoseconds are of a second.
    let parts = Duration::try_from_secs_f64(fraction).ok();
    let parts = parts.and_then(|parts| u32::try_from(parts.as_nanos()).ok());
    parts
        .and_then(Loss::from_per_billion)
        .ok_or_else(|| format!("packetloss is {fraction}: it is a part of 1, from 0 to below 1"))
}

#[cfg(test)]
mod tests;
