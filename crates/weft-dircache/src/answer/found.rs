//! The result of looking up a request.

use std::time::Duration;

use weft_dir::documents::Forms;

use crate::pieces::Part;

/// The result of looking up a request.
#[derive(Debug)]
pub enum Found {
    /// A short answer.
    Short(u16, &'static str),
    /// A document that is asked for often, or in its place the next one, and how long either lives.
    Stored(Vec<Forms>, Duration),
    /// Documents, and how long they may be kept.
    Documents(Vec<Part>, Duration),
    /// Robots.
    Robots,
}

/// Nothing to find.
pub const NOT_FOUND: Found = Found::Short(404, "Not found");
