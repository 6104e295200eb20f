//! Topologies that are there without a file.
//!
//! They are the files of `examples/topologies/`, so that each is an example, too.

use crate::links::{Topology, TopologyError};

macro_rules! file {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../examples/topologies/", $name, ".toml")),
        )
    };
}
/// Names and texts.
const FILES: &[(&str, &str)] = &[
    file!("pair"),
    file!("lossy-pair"),
    file!("access-line"),
    file!("eight-pairs"),
    file!("pahl-no-dropping"),
    file!("pahl-shared-dropping"),
    file!("pahl-dropping-remaining"),
    file!("pahl-one"),
    file!("pahl-two"),
    file!("pahl-three"),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of one of them.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    let file = FILES.iter().find(|(known, _)| *known == name);
    file.map(|(_, text)| *text)
}

/// One of them.
///
/// # Errors
///
/// Its text is wrong, which a test rules out.
#[must_use]
pub fn topology(name: &str) -> Option<Result<Topology, TopologyError>> {
    text(name).map(|text| Topology::parse(&format!("{name}.toml"), text))
}
