//! Graphs as `GraphML` has them: nodes and edges with data.
//!
//! The models of traffic (`weft-traffic`) and Shadow's topology of countries (`weft-links`) come in this
//! format. [`Graph::parse`] reads any text totally: it returns a graph, or one [`GraphError`] with the line
//! and the element that is wrong. There is no I/O here.
//!
//! ```
//! use weft_graphml::Graph;
//!
//! let text = "<graphml><key id='d0' attr.name='latency'/><graph edgedefault='undirected'>
//!     <node id='a'/><node id='b'/>
//!     <edge source='a' target='b'><data key='d0'>12.5</data></edge></graph></graphml>";
//! let graph = Graph::parse(text)?;
//! assert!(!graph.is_directed);
//! assert_eq!(graph.edges[0].data["latency"], "12.5");
//! # Ok::<(), weft_graphml::GraphError>(())
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod error;
mod graph;
mod xml;

pub use error::GraphError;
pub use graph::{Data, Edge, Graph, Node, number, shown};
