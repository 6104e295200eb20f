//! `GraphML` as networkx and igraph write it: keys, nodes and edges with data, nothing nested.
//!
//! Format: <http://graphml.graphdrawing.org/primer/graphml-primer.html>.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::graphs::error::GraphError;
use crate::graphs::xml::{Event, Reader};

/// The longest text that is read, in bytes; Shadow's topology of 2018 has 2.8 MB.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// Data of one element, by the names of its keys.
pub type Data = BTreeMap<String, String>;

/// A vertex.
#[derive(Debug)]
pub struct Node {
    /// Where it begins, from 1.
    pub line: u32,
    /// No other node has it.
    pub id: String,
    /// Data of the node, by the names of keys.
    pub data: Data,
}

/// An edge between two nodes of the graph.
#[derive(Debug)]
pub struct Edge {
    /// Where it begins, from 1.
    pub line: u32,
    /// A place in [`Graph::nodes`].
    pub source: usize,
    /// A place in [`Graph::nodes`].
    pub target: usize,
    /// Data of the edge, by the names of keys.
    pub data: Data,
}

/// A graph.
#[derive(Debug)]
pub struct Graph {
    /// Where it begins, from 1.
    pub line: u32,
    /// True if its edges have a direction, which is the default of the format.
    pub is_directed: bool,
    /// In the order of the text.
    pub nodes: Vec<Node>,
    /// In the order of the text.
    pub edges: Vec<Edge>,
}

impl Node {
    /// Name of the node in errors.
    #[must_use]
    pub fn element(&self) -> String {
        format!("<node id=\"{}\">", shown(&self.id))
    }
}

impl Graph {
    /// Reads a graph. Elements that are not `GraphML`'s key, graph, node, edge and data are skipped.
    ///
    /// # Errors
    ///
    /// The text is no `GraphML`: the error has line and element.
    pub fn parse(text: &str) -> Result<Graph, GraphError> {
        if text.len() > MAX_TEXT {
            let problem = format!("more than {MAX_TEXT} bytes are not read");
            return Err(GraphError::new(1, "the document", problem));
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
                    return Err(GraphError::new(
                        line,
                        element,
                        "the outermost element must be <graphml>",
                    ));
                }
                "key" => {
                    let id = required(&attributes, "id", line, "<key>")?.to_owned();
                    let title = required(&attributes, "attr.name", line, "<key>")?.to_owned();
                    keys.insert(id, title);
                    reader.skip()?;
                }
                "graph" if graph.is_none() => {
                    let is_directed = attribute(&attributes, "edgedefault") != Some("undirected");
                    let (nodes, edges) = read_graph(&mut reader, &keys)?;
                    graph = Some(Graph {
                        line,
                        is_directed,
                        nodes,
                        edges,
                    });
                }
                "graph" => return Err(GraphError::new(line, "<graph>", "there is a second one")),
                _ => reader.skip()?,
            }
            is_first = false;
        }
        graph.ok_or_else(|| GraphError::new(1, "the document", "there is no <graph>"))
    }

    /// Name of one of its edges in errors.
    #[must_use]
    pub fn element(&self, edge: &Edge) -> String {
        let id = |place: usize| self.nodes.get(place).map_or("", |node| node.id.as_str());
        edge_element(id(edge.source), id(edge.target))
    }
}

fn edge_element(source: &str, target: &str) -> String {
    let (source, target) = (shown(source), shown(target));
    format!("<edge source=\"{source}\" target=\"{target}\">")
}

/// Text of a file in a message: short and without control characters.
#[must_use]
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    short.escape_debug().to_string()
}

/// A number under this name that is finite, if there is anything under it.
///
/// # Errors
///
/// The value is not a finite number.
pub fn number(data: &Data, name: &str) -> Result<Option<f64>, String> {
    let Some(text) = data.get(name) else {
        return Ok(None);
    };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(format!("{name} is no number: \"{}\"", shown(text))),
    }
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
) -> Result<&'b str, GraphError> {
    attribute(attributes, name)
        .ok_or_else(|| GraphError::new(line, element, format!("{name} is missing")))
}

/// Reads to the end of the graph.
fn read_graph(
    reader: &mut Reader<'_>,
    keys: &BTreeMap<String, String>,
) -> Result<(Vec<Node>, Vec<Edge>), GraphError> {
    let mut nodes: Vec<Node> = Vec::new();
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
                if places.insert(node.id.clone(), nodes.len()).is_some() {
                    let problem = "an earlier node has this id";
                    return Err(GraphError::new(line, node.element(), problem));
                }
                nodes.push(node);
            }
            "edge" => {
                let source = required(&attributes, "source", line, "<edge>")?.to_owned();
                let target = required(&attributes, "target", line, "<edge>")?.to_owned();
                edges.push((line, source, target, read_data(reader, keys)?));
            }
            _ => reader.skip()?,
        }
    }
    let mut found = Vec::with_capacity(edges.len());
    for (line, source, target, data) in edges {
        let place = |id: &String| {
            places.get(id).copied().ok_or_else(|| {
                let problem = format!("no node has the id \"{}\"", shown(id));
                GraphError::new(line, edge_element(&source, &target), problem)
            })
        };
        found.push(Edge {
            line,
            source: place(&source)?,
            target: place(&target)?,
            data,
        });
    }
    Ok((nodes, found))
}

/// Reads the data of a node or edge, to its end.
fn read_data(reader: &mut Reader<'_>, keys: &BTreeMap<String, String>) -> Result<Data, GraphError> {
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
                    GraphError::new(line, element, "no <key> has this id")
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
fn read_text(reader: &mut Reader<'_>) -> Result<String, GraphError> {
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
