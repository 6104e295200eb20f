//! Where hosts are, and what is between them: everywhere alike, or by country.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_chacha::ChaCha12Rng;
use weft_model::hosts::PathSettings;
use weft_model::links::{Countries, CountryId, Loss, Rate};

use super::error::{Result, place};
use super::randomness::{Purpose, random};
use crate::scenario::{Files, Scenario, ScenarioError};

/// Places of hosts, as [`weft_model::hosts::Net`] numbers them.
pub(super) struct Geography {
    /// Settings of all paths where there are no countries.
    alike: PathSettings,
    graph: Option<Graph>,
    rng: ChaCha12Rng,
    /// The scenario's place, for errors.
    place: String,
}

struct Graph {
    countries: Countries,
    /// Hosts are in one of these, each entry as likely.
    among: Vec<CountryId>,
    losses: bool,
    /// Countries with hosts: their numbers as places.
    used: BTreeMap<CountryId, u32>,
}

impl Geography {
    pub(super) fn new(scenario: &Scenario, files: &Files, seed: u64) -> Result<Geography> {
        let network = &scenario.network;
        let place = place(scenario);
        let graph = match &network.places {
            Some(places) => {
                let text = files.text(&place, &places.file)?;
                let countries = Countries::parse(text).map_err(|error| ScenarioError::Graph {
                    file: places.file.clone(),
                    error,
                })?;
                let found = places.countries.iter().map(|code| countries.find(code));
                let mut among =
                    found
                        .collect::<std::result::Result<Vec<_>, _>>()
                        .map_err(|error| ScenarioError::Country {
                            place: place.clone(),
                            error,
                        })?;
                if among.is_empty() {
                    among = countries.ids().collect();
                }
                Some(Graph {
                    countries,
                    among,
                    losses: places.losses,
                    used: BTreeMap::new(),
                })
            }
            None => None,
        };
        Ok(Geography {
            alike: PathSettings {
                delay: network.delay,
                loss: network.loss,
            },
            graph,
            rng: random(seed, Purpose::Places),
            place,
        })
    }

    /// A place for a host, and the rates, up and down, that hosts have there.
    pub(super) fn draw(&mut self) -> (u32, Option<[Rate; 2]>) {
        let Some(graph) = &mut self.graph else {
            return (0, None);
        };
        let drawn = self.rng.random_range(0..graph.among.len().max(1));
        let Some(country) = graph.among.get(drawn).copied() else {
            return (0, None);
        };
        let next = u32::try_from(graph.used.len()).unwrap_or(u32::MAX);
        let place = *graph.used.entry(country).or_insert(next);
        (place, graph.countries.rates(country))
    }

    /// Settings of the paths between the places that were drawn: from, to.
    pub(super) fn paths(&self) -> Result<Vec<Vec<PathSettings>>> {
        let Some(graph) = &self.graph else {
            return Ok(vec![vec![self.alike]]);
        };
        let mut used: Vec<(&CountryId, &u32)> = graph.used.iter().collect();
        used.sort_by_key(|(_, number)| **number);
        let row = |from: CountryId| -> Result<Vec<PathSettings>> {
            used.iter()
                .map(|(to, _)| graph.between(from, **to, &self.place))
                .collect()
        };
        used.iter().map(|(from, _)| row(**from)).collect()
    }
}

impl Graph {
    fn between(&self, from: CountryId, to: CountryId, place: &str) -> Result<PathSettings> {
        let settings = self
            .countries
            .between(from, to)
            .map_err(|error| ScenarioError::NoPath {
                place: place.to_owned(),
                error,
            })?;
        // A packet may be lost where it is sent, on the way, and where it is received.
        let losses = [
            self.countries.loss(from),
            settings.loss,
            self.countries.loss(to),
        ];
        let loss = match self.losses {
            true => losses.into_iter().fold(Loss::default(), either),
            false => Loss::default(),
        };
        Ok(PathSettings {
            delay: settings.delay,
            loss,
        })
    }
}

/// The loss of two that follow one another.
fn either(one: Loss, other: Loss) -> Loss {
    let all = u64::from(Loss::BILLION);
    let kept = |loss: Loss| all - u64::from(loss.per_billion());
    let lost = all - kept(one) * kept(other) / all;
    let lost = u32::try_from(lost).ok().and_then(Loss::from_per_billion);
    // Less than all is lost on each of the two.
    lost.unwrap_or(one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_multiply() {
        let half = Loss::from_per_billion(500_000_000).unwrap();
        assert_eq!(either(half, half).per_billion(), 750_000_000);
        assert_eq!(either(half, Loss::default()), half);
    }
}
