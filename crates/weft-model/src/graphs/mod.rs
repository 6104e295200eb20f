//! Graphs as `GraphML` has them: nodes and edges with data.
//!
//! The models of [traffic](crate::traffic) and Shadow's topology of countries ([links](crate::links)) come in this
//! format. [`Graph::parse`] reads any text totally: it returns a graph, or one [`GraphError`] with the line
//! and the element that is wrong. There is no I/O here.
//!
//! ```
//! use weft_model::graphs::Graph;
//!
//! let text = "<graphml><key id='d0' attr.name='latency'/><graph edgedefault='undirected'>
//!     <node id='a'/><node id='b'/>
//!     <edge source='a' target='b'><data key='d0'>12.5</data></edge></graph></graphml>";
//! let graph = Graph::parse(text)?;
//! assert!(!graph.is_directed);
//! assert_eq!(graph.edges[0].data["latency"], "12.5");
//! # Ok::<(), weft_model::graphs::GraphError>(())
//! ```

mod error;
mod graph;

pub use error::GraphError;
pub use graph::{Data, Edge, Graph, Node, number, shown};
