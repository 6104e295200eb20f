//! `GraphML` as networkx and igraph write it: keys, nodes and edges with data, nothing nested.
//!
//! Format: <http://graphml.graphdrawing.org/primer/graphml-primer.html>.

use std::collections::BTreeMap;

use roxmltree::{Document, ParsingOptions};

use crate::graphs::error::GraphError;

/// The longest text that is read, in bytes; Shadow's topology of 2018 has 2.8 MB.
const MAX_TEXT: usize = 16 * 1024 * 1024;

/// Most elements and texts that are read: each takes some hundred bytes.
const MAX_ELEMENTS: u32 = 1_000_000;

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
        let options = ParsingOptions {
            nodes_limit: MAX_ELEMENTS,
            ..ParsingOptions::default()
        };
        let document = Document::parse_with_options(text, options)
            .map_err(|error| GraphError::new(error.pos().row, "the document", error.to_string()))?;
        let lines = Lines::of(text);
        let root = Element::new(document.root_element(), &lines);
        if root.name() != "graphml" {
            return Err(root.error("the outermost element must be <graphml>"));
        }
        let mut keys = BTreeMap::new();
        let mut graph = None;
        for element in root.children() {
            match element.name() {
                "key" => {
                    keys.insert(element.required("id")?, element.required("attr.name")?);
                }
                "graph" if graph.is_none() => {
                    let is_directed = element.attribute("edgedefault") != Some("undirected");
                    let (nodes, edges) = read_graph(&element, &keys)?;
                    graph = Some(Graph {
                        line: element.line,
                        is_directed,
                        nodes,
                        edges,
                    });
                }
                "graph" => return Err(element.error("there is a second one")),
                _ => {}
            }
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

/// The bytes at which lines end, in order.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line that has this byte, from 1.
    fn line(&self, byte: usize) -> u32 {
        let before = self.0.partition_point(|end| *end < byte);
        u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
    }
}

/// An element of the document, and the line on which it begins.
struct Element<'a> {
    node: roxmltree::Node<'a, 'a>,
    line: u32,
    lines: &'a Lines,
}

impl<'a> Element<'a> {
    fn new(node: roxmltree::Node<'a, 'a>, lines: &'a Lines) -> Self {
        let line = lines.line(node.range().start);
        Self { node, line, lines }
    }

    fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.node.attribute(name)
    }

    fn required(&self, name: &str) -> Result<&'a str, GraphError> {
        self.attribute(name)
            .ok_or_else(|| self.error(format!("{name} is missing")))
    }

    /// The elements directly in it, in the order of the text.
    fn children(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let lines = self.lines;
        let elements = self.node.children().filter(roxmltree::Node::is_element);
        elements.map(move |node| Element::new(node, lines))
    }

    /// The text directly in it.
    fn text(&self) -> String {
        let pieces = self.node.children().filter(roxmltree::Node::is_text);
        let text: String = pieces.filter_map(|piece| piece.text()).collect();
        text.trim().to_owned()
    }

    fn error(&self, problem: impl Into<String>) -> GraphError {
        GraphError::new(self.line, format!("<{}>", shown(self.name())), problem)
    }
}

type Keys<'a> = BTreeMap<&'a str, &'a str>;

/// Nodes and edges of `<graph>`.
fn read_graph(graph: &Element<'_>, keys: &Keys<'_>) -> Result<(Vec<Node>, Vec<Edge>), GraphError> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut places = BTreeMap::new();
    // Edges may come before their nodes.
    let mut edges = Vec::new();
    for element in graph.children() {
        match element.name() {
            "node" => {
                let node = Node {
                    line: element.line,
                    id: element.required("id")?.to_owned(),
                    data: read_data(&element, keys)?,
                };
                if places.insert(node.id.clone(), nodes.len()).is_some() {
                    let problem = "an earlier node has this id";
                    return Err(GraphError::new(node.line, node.element(), problem));
                }
                nodes.push(node);
            }
            "edge" => edges.push(element),
            _ => {}
        }
    }
    let edges = edges.into_iter().map(|edge| {
        let (source, target) = (edge.required("source")?, edge.required("target")?);
        let place = |id: &str| {
            places.get(id).copied().ok_or_else(|| {
                let problem = format!("no node has the id \"{}\"", shown(id));
                GraphError::new(edge.line, edge_element(source, target), problem)
            })
        };
        Ok(Edge {
            line: edge.line,
            source: place(source)?,
            target: place(target)?,
            data: read_data(&edge, keys)?,
        })
    });
    let edges = edges.collect::<Result<Vec<Edge>, GraphError>>()?;
    Ok((nodes, edges))
}

/// Data of a node or edge.
fn read_data(element: &Element<'_>, keys: &Keys<'_>) -> Result<Data, GraphError> {
    let mut data = Data::new();
    for child in element.children().filter(|child| child.name() == "data") {
        let key = child.required("key")?;
        let title = keys.get(key).ok_or_else(|| {
            let element = format!("<data key=\"{}\">", shown(key));
            GraphError::new(child.line, element, "no <key> has this id")
        })?;
        data.insert((*title).to_owned(), child.text());
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_text_and_lines_are_those_of_the_elements() {
        let text = "<?xml version='1.0'?>\n<!-- a > b -->\n<graphml xmlns='http://x.y/z'>\n\
                    <key id=\"k\" attr.name='&lt;&#50;&#x32;'/><other><graph/></other>\n\
                    <graph>\n<edge source='1' target='2'>\n<data key='k'> x &amp; <b>no</b>y<![CDATA[<]]></data>\n\
                    </edge><node id='1'/>\n<node id='2'/></graph></graphml>\n";
        let graph = Graph::parse(text).unwrap();
        assert!(graph.is_directed);
        let lines = graph.nodes.iter().map(|node| node.line);
        assert_eq!(lines.collect::<Vec<_>>(), [8, 9]);
        let edge = &graph.edges[0];
        assert_eq!((graph.line, edge.line), (5, 6));
        assert_eq!((edge.source, edge.target), (0, 1));
        assert_eq!(
            edge.data,
            Data::from([("<22".to_owned(), "x & y<".to_owned())])
        );
    }

    #[test]
    fn damage_is_an_error_with_its_line() {
        let deep = "<graphml>".to_owned() + &"<a>".repeat(100_000);
        for (text, line, problem) in [
            ("", 1, "the document: "),
            ("text", 1, "the document: "),
            ("<a/>", 1, "<a>: the outermost element must be <graphml>"),
            ("<graphml/>", 1, "there is no <graph>"),
            ("<graphml>\n<b></graphml>", 2, "graphml"),
            ("<graphml>\n", 1, "never closed"),
            ("<graphml x=1/>", 1, "the document: "),
            ("<graphml x='1' x='2'/>", 1, "x"),
            ("<graphml>&nbsp;</graphml>", 1, "nbsp"),
            ("<!DOCTYPE a [<!ENTITY b 'c'>]><graphml/>", 1, "DTD"),
            ("<graphml/><b/>", 1, "the document: "),
            (
                "<graphml>\n<graph/>\n<graph/></graphml>",
                3,
                "<graph>: there is a second one",
            ),
            ("<graphml>\n<key/></graphml>", 2, "<key>: id is missing"),
            (
                "<graphml><graph>\n<node/></graph></graphml>",
                2,
                "<node>: id is missing",
            ),
            (
                "<graphml><graph><node id='a'/>\n<edge source='a' target='b'/></graph></graphml>",
                2,
                "<edge source=\"a\" target=\"b\">: no node has the id \"b\"",
            ),
            (
                "<graphml><graph><node id='a'>\n<data key='k'/></node></graph></graphml>",
                2,
                "<data key=\"k\">: no <key> has this id",
            ),
            (deep.as_str(), 1, "the document: "),
        ] {
            let error = Graph::parse(text).unwrap_err();
            let start = text.get(..60).unwrap_or(text);
            assert_eq!(error.line, line, "{start}: {error}");
            assert!(error.to_string().contains(problem), "{start}: {error}");
        }
    }
}
