//! Why a text is not the graph that was expected.

/// A text that is not the graph that was expected, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {element}: {problem}")]
pub struct GraphError {
    /// Counted from 1.
    pub line: u32,
    /// The element that is wrong, such as `<edge source="a" target="b">`, or `the document`.
    pub element: String,
    /// The problem with the element.
    pub problem: String,
}

impl GraphError {
    /// An error at this place.
    #[must_use]
    pub fn new(line: u32, element: impl Into<String>, problem: impl Into<String>) -> GraphError {
        GraphError {
            line,
            element: element.into(),
            problem: problem.into(),
        }
    }
}
