//! Ways of choosing circuits.

use anyhow::Result;
use weft_stats::bounds::Bounds;

use crate::comparison::{self, Arm, Planned};

/// A part of the relays.
pub(super) const PART: Bounds<f64> = Bounds::new(0.0, 1.0);
/// The arm that the others are compared with.
pub(super) const BASE: &str = "default";

/// Arms of the paper, and both of its ways together. Another combination is one more line here, or
/// `--arm NAME:KEY=VALUE,…`.
const PLANNED: [Planned; 4] = [
    (BASE, &[]),
    ("abra", &[("selection", "\"abra\"")]),
    ("rtt", &[("acceptance", "\"rtt\"")]),
    (
        "abra-rtt",
        &[("acceptance", "\"rtt\""), ("selection", "\"abra\"")],
    ),
];

/// With adversaries that have these parts of the relays: each once watching and once lying, under `abra`.
///
/// # Errors
///
/// A part is none.
pub(super) fn adversaries(parts: &[f64]) -> Result<Vec<Arm>> {
    let mut arms = Vec::new();
    for part in parts {
        PART.check("adversary", *part)?;
        let percent = format!("{}", part * 100.0).replace('.', "-");
        for (name, lies) in [("watching", false), ("lying", true)] {
            let keys = [
                ("selection", "\"abra\"".to_owned()),
                ("adversary", format!("{part:?}")),
                ("lies", lies.to_string()),
            ];
            arms.push(Arm {
                name: format!("{name}-{percent}"),
                keys: keys.map(|(key, value)| (key.to_owned(), value)).into(),
            });
        }
    }
    Ok(arms)
}

/// The arms that are asked for, or the planned ones.
///
/// # Errors
///
/// As [`comparison::chosen`].
pub(super) fn chosen(asked: &[String]) -> Result<Vec<Arm>> {
    comparison::chosen(&PLANNED, asked)
}
