//! Clients with what their users do.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use rand::seq::index;
use weft_model::traffic::{Markov, MarkovModel, Model, Plan};

use super::draft::{Draft, RelayDraft};
use super::error::Result;
use super::randomness::{Purpose, random};
use super::relays;
use crate::scenario::{Clients, Files, Scenario, ScenarioError, UserModel};
use crate::setup::Client;

/// The clients of a draft: each with its model, its beginning and its servers.
pub(super) fn clients(
    scenario: &Scenario,
    files: &Files,
    draft: &Draft,
    seed: u64,
) -> Result<Vec<Client>> {
    let models: Vec<Model> = scenario
        .clients
        .iter()
        .map(|spec| model(scenario, files, spec))
        .collect::<Result<_>>()?;
    let mut rng = random(seed, Purpose::Users);
    let mut clients = Vec::with_capacity(draft.clients.len());
    for (host, place) in &draft.clients {
        let (Some(spec), Some(model)) = (scenario.clients.get(*place), models.get(*place)) else {
            continue;
        };
        let within = u64::try_from(spec.within.as_nanos()).unwrap_or(u64::MAX);
        let later = Duration::from_nanos(rng.random_range(0..=within));
        let all = draft.servers.len();
        let count = usize::try_from(spec.servers).unwrap_or(usize::MAX).min(all);
        let servers = index::sample(&mut rng, all, count)
            .into_iter()
            .filter_map(|server| u32::try_from(server).ok())
            .collect();
        clients.push(Client {
            host: *host,
            model_name: spec.name.clone(),
            model: model.clone(),
            start: spec.start + later,
            servers,
            entry: match &spec.entry {
                Some(name) => Some(entry(scenario, draft, spec, name)?),
                None => None,
            },
            measures: spec.measure,
            multipath: spec.multipath,
            one_hop: false,
        });
    }
    Ok(clients)
}

/// The guard on the host with this name.
fn entry(scenario: &Scenario, draft: &Draft, spec: &Clients, name: &str) -> Result<u32> {
    let is_there = |relay: &RelayDraft| {
        let host = draft.hosts.get(relay.host as usize);
        host.is_some_and(|host| host.name == name) && relays::roles(&relay.listed).guard
    };
    let place = draft.relays.iter().position(is_there);
    place
        .and_then(|place| u32::try_from(place).ok())
        .ok_or_else(|| ScenarioError::Unusable {
            place: format!("{}:{}", scenario.file, spec.line),
            problem: format!("there is no guard on host {name}, which is to be an entry"),
        })
}

fn model(scenario: &Scenario, files: &Files, spec: &Clients) -> Result<Model> {
    Ok(match &spec.model {
        UserModel::Named(name) => name.model(),
        UserModel::Download {
            bytes,
            pause,
            timeout,
        } => Model::Repeat {
            plan: Plan {
                timeout: *timeout,
                ..Plan::download(*bytes)
            },
            pause: *pause,
        },
        UserModel::Markov { streams, packets } => {
            let place = format!("{}:{}", scenario.file, spec.line);
            let read = |file: &str| {
                let text = files.text(&place, file)?;
                let model = MarkovModel::parse(text).map_err(|error| ScenarioError::Graph {
                    file: file.to_owned(),
                    error,
                })?;
                Ok::<_, ScenarioError>(Arc::new(model))
            };
            Model::Markov(Markov::new(read(streams)?, read(packets)?))
        }
    })
}
