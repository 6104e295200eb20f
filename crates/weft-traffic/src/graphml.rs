//! `GraphML` as networkx and igraph write it: keys, nodes and edges with data, nothing nested.
//!
//! Format: <http://graphml.graphdrawing.org/primer/graphml-primer.html>.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model_error::ModelError;
use crate::xml::{Event, Reader};

/// The longest text that is read, in bytes; PrivCount's largest model has 23 kB.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// What one element has under its keys' names.
pub(crate) type Data = BTreeMap<String, String>;

/// A vertex.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) id: String,
    pub(crate) data: Data,
}

/// A directed edge between two nodes of the graph.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) line: u32,
    /// Places in [`Graph::nodes`].
    pub(crate) source: usize,
    pub(crate) target: usize,
    pub(crate) data: Data,
}

/// A directed graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
}

impl Node {
    /// How errors name it.
    pub(crate) fn element(&self) -> String {
        format!("<node id=\"{}\">", shown(&self.id))
    }
}

impl Graph {
    /// How errors name one of its edges.
    pub(crate) fn element(&self, edge: &Edge) -> String {
        let id = |place: usize| self.nodes.get(place).map_or("", |node| node.id.as_str());
        edge_element(id(edge.source), id(edge.target))
    }
}

fn edge_element(source: &str, target: &str) -> String {
    let (source, target) = (shown(source), shown(target));
    format!("<edge source=\"{source}\" target=\"{target}\">")
}

/// Text of a file in a message: short and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    short.escape_debug().to_string()
}

type Attributes<'a> = Vec<(&'a str, Cow<'a, str>)>;

fn attribute<'b>(attributes: &'b Attributes<'_>, name: &str) -> Option<&'b str> {
    attributes
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.as_ref())
}

fn required<'b>(
    attributes: &'b Attributes<'_>,
    name: &str,
    line: u32,
    element: &str,
) -> Result<&'b str, ModelError> {
    attribute(attributes, name)
        .ok_or_else(|| ModelError::new(line, element, format!("{name} is missing")))
}

/// Reads a graph. Elements that are not `GraphML`'s key, graph, node, edge and data are skipped.
pub(crate) fn parse(text: &str) -> Result<Graph, ModelError> {
    if text.len() > MAX_TEXT {
        let problem = format!("more than {MAX_TEXT} bytes are not read");
        return Err(ModelError::new(1, "the document", problem));
    }
    let mut reader = Reader::new(text);
    let mut keys = BTreeMap::new();
    let mut graph = None;
    let mut is_first = true;
    while let Some((line, event)) = reader.next()? {
        let Event::Start { name, attributes } = event else {
            continue;
        };
        match name {
            "graphml" if is_first => {}
            _ if is_first => {
                let element = format!("<{}>", shown(name));
                return Err(ModelError::new(
                    line,
                    element,
                    "a model begins with <graphml>",
                ));
            }
            "key" => {
                let id = required(&attributes, "id", line, "<key>")?.to_owned();
                let title = required(&attributes, "attr.name", line, "<key>")?.to_owned();
                keys.insert(id, title);
                reader.skip()?;
            }
            "graph" if graph.is_none() => {
                if attribute(&attributes, "edgedefault") == Some("undirected") {
                    let problem = "a model is a directed graph";
                    return Err(ModelError::new(line, "<graph>", problem));
                }
                graph = Some(read_graph(&mut reader, &keys)?);
            }
            "graph" => return Err(ModelError::new(line, "<graph>", "there is a second one")),
            _ => reader.skip()?,
        }
        is_first = false;
    }
    graph.ok_or_else(|| ModelError::new(1, "the document", "there is no <graph>"))
}

/// Reads to the end of the graph.
fn read_graph(
    reader: &mut Reader<'_>,
    keys: &BTreeMap<String, String>,
) -> Result<Graph, ModelError> {
    let mut graph = Graph::default();
    let mut places = BTreeMap::new();
    // Edges may come before their nodes.
    let mut edges = Vec::new();
    while let Some((line, event)) = reader.next()? {
        let (name, attributes) = match event {
            Event::Start { name, attributes } => (name, attributes),
            Event::End { .. } => break,
            Event::Text(_) => continue,
        };
        match name {
            "node" => {
                let id = required(&attributes, "id", line, "<node>")?.to_owned();
                let data = read_data(reader, keys)?;
                let node = Node { line, id, data };
                if places.insert(node.id.clone(), graph.nodes.len()).is_some() {
                    let problem = "an earlier node has this id";
                    return Err(ModelError::new(line, node.element(), problem));
                }
                graph.nodes.push(node);
            }
            "edge" => {
                let source = required(&attributes, "source", line, "<edge>")?.to_owned();
                let target = required(&attributes, "target", line, "<edge>")?.to_owned();
                edges.push((line, source, target, read_data(reader, keys)?));
            }
            _ => reader.skip()?,
        }
    }
    for (line, source, target, data) in edges {
        let place = |id: &String| {
            places.get(id).copied().ok_or_else(|| {
                let problem = format!("no node has the id \"{}\"", shown(id));
                ModelError::new(line, edge_element(&source, &target), problem)
            })
        };
        let edge = Edge {
            line,
            source: place(&source)?,
            target: place(&target)?,
            data,
        };
        graph.edges.push(edge);
    }
    Ok(graph)
}

/// Reads the data of a node or edge, to its end.
fn read_data(reader: &mut Reader<'_>, keys: &BTreeMap<String, String>) -> Result<Data, ModelError> {
    let mut data = Data::new();
    while let Some((line, event)) = reader.next()? {
        match event {
            Event::Start {
                name: "data",
                attributes,
            } => {
                let key = required(&attributes, "key", line, "<data>")?;
                let title = keys.get(key).ok_or_else(|| {
                    let element = format!("<data key=\"{}\">", shown(key));
                    ModelError::new(line, element, "no <key> has this id")
                })?;
                data.insert(title.clone(), read_text(reader)?);
            }
            Event::Start { .. } => reader.skip()?,
            Event::End { .. } => break,
            Event::Text(_) => {}
        }
    }
    Ok(data)
}

/// The text up to the end of the element.
fn read_text(reader: &mut Reader<'_>) -> Result<String, ModelError> {
    let mut text = String::new();
    while let Some((_, event)) = reader.next()? {
        match event {
            Event::Text(piece) => text.push_str(&piece),
            Event::Start { .. } => reader.skip()?,
            Event::End { .. } => break,
        }
    }
    Ok(text.trim().to_owned())
}
