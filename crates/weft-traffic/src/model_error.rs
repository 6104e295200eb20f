//! Why a text is no traffic model.

/// A text that is no traffic model, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {element}: {problem}")]
pub struct ModelError {
    /// Counted from 1.
    pub line: u32,
    /// The element that is wrong, such as `<edge source="a" target="b">`, or `the document`.
    pub element: String,
    /// What is wrong with it.
    pub problem: String,
}

impl ModelError {
    /// An error at this place.
    pub(crate) fn new(
        line: u32,
        element: impl Into<String>,
        problem: impl Into<String>,
    ) -> ModelError {
        ModelError {
            line,
            element: element.into(),
            problem: problem.into(),
        }
    }
}
