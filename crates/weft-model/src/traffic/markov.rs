//! `TGen`'s Markov models: states, what is observed in them, and delays.
//!
//! Format: `TGen`'s doc/TGen-Markov-Models.md. `PrivCount`'s files of 2018 are older: a vertex has its name
//! as its id, `$` is a new stream, and the delay of an emission is given by `exp_lambda`, where that is
//! above 0, or by `lognorm_mu` and `lognorm_sigma` (so tornettools converts them). Both are read.

use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::graphs::{Data, Edge, Graph, Node, number, shown};

use crate::traffic::ModelError;
use crate::traffic::delay::Delay;

/// Symbol that a model emits in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observation {
    /// `+`, in `PrivCount`'s stream models `$`: a packet from client to server, or a new stream.
    ToServer,
    /// `-`: a packet from server to client; in a stream model as good as `+`.
    ToClient,
    /// `F`: the end of the stream or of the flow.
    End,
}

/// Choices with weights, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
struct Choices<T> {
    /// Each with the sum of all weights up to its own.
    options: Vec<(f64, T)>,
}

impl<T> Default for Choices<T> {
    fn default() -> Self {
        let options = Vec::new();
        Choices { options }
    }
}

impl<T: Copy> Choices<T> {
    fn add(&mut self, weight: f64, option: T) {
        if weight > 0.0 {
            self.options.push((self.total() + weight, option));
        }
    }

    fn total(&self) -> f64 {
        self.options.last().map_or(0.0, |(sum, _)| *sum)
    }

    fn draw(&self, rng: &mut impl Rng) -> Option<T> {
        let at = rng.random::<f64>() * self.total();
        let place = self.options.partition_point(|(sum, _)| *sum <= at);
        let chosen = self.options.get(place).or(self.options.last());
        chosen.map(|(_, option)| *option)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    name: String,
    next: Choices<usize>,
    emissions: Choices<(Observation, Delay)>,
}

/// A Markov model, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkovModel {
    states: Vec<State>,
    start: usize,
}

/// One step of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Symbol that is emitted now.
    pub observation: Observation,
    /// Wait before the model's next step.
    pub delay: Duration,
}

/// A way through a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// `None` at the end.
    state: Option<usize>,
}

/// A vertex of the graph as the model sees it.
#[derive(Clone, Copy)]
enum Vertex {
    State(usize),
    Observation(Observation),
}

impl MarkovModel {
    /// Reads a model.
    ///
    /// # Errors
    ///
    /// The text is no `GraphML`, or no model: the error has line and element.
    pub fn parse(text: &str) -> Result<MarkovModel, ModelError> {
        let graph = Graph::parse(text)?;
        if !graph.is_directed {
            let problem = "a model is a directed graph";
            return Err(ModelError::new(graph.line, "<graph>", problem));
        }
        let mut states = Vec::new();
        let mut vertices = Vec::new();
        let mut start = None;
        for node in &graph.nodes {
            let name = node.data.get("name").unwrap_or(&node.id);
            match node.data.get("type").map(String::as_str) {
                Some("observation") => {
                    vertices.push(Vertex::Observation(observation(node, name)?));
                    continue;
                }
                Some("state") => {}
                None if name == "start" => {}
                other => {
                    let problem = format!(
                        "type is {}, and must be \"state\" or \"observation\"",
                        other.map_or("missing".to_owned(), |other| format!(
                            "\"{}\"",
                            shown(other)
                        ))
                    );
                    return Err(ModelError::new(node.line, node.element(), problem));
                }
            }
            if name == "start" && start.replace(states.len()).is_some() {
                let problem = "an earlier state is named \"start\"";
                return Err(ModelError::new(node.line, node.element(), problem));
            }
            vertices.push(Vertex::State(states.len()));
            states.push(State {
                name: name.clone(),
                next: Choices::default(),
                emissions: Choices::default(),
            });
        }
        let start = start.ok_or_else(|| {
            ModelError::new(1, "the document", "there is no state named \"start\"")
        })?;
        for edge in &graph.edges {
            add_edge(&graph, edge, &vertices, &mut states)?;
        }
        let model = MarkovModel { states, start };
        model.check(&graph, &vertices)?;
        Ok(model)
    }

    /// Its states' names, in the order of the file.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(|state| state.name.as_str())
    }

    /// Begins at the start.
    #[must_use]
    pub fn walk(&self) -> Walk {
        Walk {
            state: Some(self.start),
        }
    }

    /// Returns true if a walk may enter this state. All states but the start are taken to be
    /// reachable.
    fn is_entered(&self, place: usize) -> bool {
        let mut options = self.states.iter().flat_map(|state| &state.next.options);
        place != self.start || options.any(|(_, next)| *next == place)
    }

    /// Every state that can be entered emits something, and the start leads somewhere.
    fn check(&self, graph: &Graph, vertices: &[Vertex]) -> Result<(), ModelError> {
        for (node, vertex) in graph.nodes.iter().zip(vertices) {
            let Vertex::State(place) = *vertex else {
                continue;
            };
            let Some(state) = self.states.get(place) else {
                continue;
            };
            let problem = if place == self.start && state.next.options.is_empty() {
                "no transition with a weight above 0 leads from the start"
            } else if state.emissions.options.is_empty() && self.is_entered(place) {
                "the state has no emission with a weight above 0"
            } else {
                continue;
            };
            return Err(ModelError::new(node.line, node.element(), problem));
        }
        Ok(())
    }
}

impl Walk {
    /// Enters the next state and emits. `None` at the end: behind [`Observation::End`], and where no
    /// transition leads on.
    pub fn step(&mut self, model: &MarkovModel, rng: &mut impl Rng) -> Option<Step> {
        let from = model.states.get(self.state.take()?)?;
        let place = from.next.draw(rng)?;
        let (observation, delay) = model.states.get(place)?.emissions.draw(rng)?;
        if observation != Observation::End {
            self.state = Some(place);
        }
        Some(Step {
            observation,
            delay: delay.sample(rng),
        })
    }
}

fn observation(node: &Node, name: &str) -> Result<Observation, ModelError> {
    match name {
        "+" | "$" => Ok(Observation::ToServer),
        "-" => Ok(Observation::ToClient),
        "F" => Ok(Observation::End),
        _ => {
            let problem = format!(
                "an observation is named \"+\", \"-\" or \"F\", not \"{}\"",
                shown(name)
            );
            Err(ModelError::new(node.line, node.element(), problem))
        }
    }
}

fn add_edge(
    graph: &Graph,
    edge: &Edge,
    vertices: &[Vertex],
    states: &mut [State],
) -> Result<(), ModelError> {
    let error = |problem: String| ModelError::new(edge.line, graph.element(edge), problem);
    let number = |name: &str| number(&edge.data, name).map_err(error);
    let weight = number("weight")?.ok_or_else(|| error("weight is missing".to_owned()))?;
    if weight < 0.0 {
        return Err(error("weight is below 0".to_owned()));
    }
    let Some(Vertex::State(source)) = vertices.get(edge.source) else {
        return Err(error("an edge begins at a state".to_owned()));
    };
    let Some(from) = states.get_mut(*source) else {
        return Ok(());
    };
    let kind = edge.data.get("type").map_or("", String::as_str);
    match (kind, vertices.get(edge.target)) {
        ("transition", Some(Vertex::State(target))) => from.next.add(weight, *target),
        ("transition", _) => return Err(error("a transition leads to a state".to_owned())),
        ("emission", Some(Vertex::Observation(seen))) => {
            let delay = match seen {
                // Nothing follows that could wait.
                Observation::End => Delay::NONE,
                _ => delay(&edge.data).map_err(error)?,
            };
            from.emissions.add(weight, (*seen, delay));
        }
        ("emission", _) => return Err(error("an emission leads to an observation".to_owned())),
        (other, _) => {
            let other = shown(other);
            return Err(error(format!(
                "type is \"{other}\", and must be \"transition\" or \"emission\""
            )));
        }
    }
    Ok(())
}

fn delay(data: &Data) -> Result<Delay, String> {
    let optional = |name: &str| number(data, name);
    let least = |name: &str, is_enough: fn(f64) -> bool, least: &str| match optional(name)? {
        None => Err(format!("{name} is missing")),
        Some(number) if is_enough(number) => Ok(number),
        Some(_) => Err(format!("{name} must be {least}")),
    };
    let not_negative = |name: &str| least(name, |number| number >= 0.0, "0 or more");
    let positive = |name: &str| least(name, |number| number > 0.0, "above 0");
    let Some(distribution) = data.get("distribution") else {
        let rate = optional("exp_lambda")?.unwrap_or(0.0);
        if rate > 0.0 {
            return Ok(Delay::Exponential { rate });
        }
        if !data.contains_key("lognorm_mu") {
            return Err("distribution is missing".to_owned());
        }
        return Ok(Delay::LogNormal {
            location: not_negative("lognorm_mu")?,
            scale: not_negative("lognorm_sigma")?,
        });
    };
    match distribution.as_str() {
        "uniform" => {
            let (low, high) = (not_negative("param_low")?, not_negative("param_high")?);
            if low > high {
                return Err("param_low is above param_high".to_owned());
            }
            Ok(Delay::Uniform { low, high })
        }
        "normal" => Ok(Delay::Normal {
            location: not_negative("param_location")?,
            scale: not_negative("param_scale")?,
        }),
        "lognormal" => Ok(Delay::LogNormal {
            location: not_negative("param_location")?,
            scale: not_negative("param_scale")?,
        }),
        "exponential" => Ok(Delay::Exponential {
            rate: positive("param_rate")?,
        }),
        "pareto" => Ok(Delay::Pareto {
            scale: not_negative("param_scale")?,
            shape: positive("param_shape")?,
        }),
        other => Err(format!(
            "distribution is \"{}\", and must be uniform, normal, lognormal, exponential or pareto",
            shown(other)
        )),
    }
}

#[cfg(test)]
mod tests;
