//! Ways of bringing a stream to an exit.

use anyhow::{Result, ensure};

use crate::comparison::{self, Arm, Planned};

/// One circuit, its relays chosen as for every other: what others are compared with.
pub(super) const STOR: &str = "stor";
/// Five circuits.
pub(super) const MTOR5: &str = "mtor5";
/// Sets of two circuits through relays that are chosen as for every other circuit.
pub(super) const CONFLUX: &str = "conflux";

/// The arms by name. Another combination is one more line here, or `--arm NAME:KEY=VALUE,…`.
const KNOWN: [Planned; 8] = [
    (STOR, &[]),
    ("mtor2", &[("multipath", "2")]),
    ("mtor3", &[("multipath", "3")]),
    ("mtor4", &[("multipath", "4")]),
    (MTOR5, &[("multipath", "5")]),
    (
        "mtor3-common",
        &[("multipath", "3"), ("multipath_entry", "\"common\"")],
    ),
    (
        "mtor5-common",
        &[("multipath", "5"), ("multipath_entry", "\"common\"")],
    ),
    (CONFLUX, &[("conflux", "true")]),
];

/// Figures 5 and 8, and conflux.
pub(super) const DOWNLOADS: [&str; 6] = [STOR, "mtor2", "mtor3", MTOR5, "mtor5-common", CONFLUX];
/// Figure 6.
pub(super) const CONTENTION: [&str; 3] = [STOR, "mtor3", MTOR5];

/// The arms that are asked for, or these. Conflux needs congestion control: without it, it is left out where it is not asked for.
///
/// # Errors
///
/// As [`comparison::chosen`]; or conflux is asked for without congestion control.
pub(super) fn chosen(
    asked: &[String],
    planned: &[&str],
    congestion_control: bool,
) -> Result<Vec<Arm>> {
    let is_asked = !asked.is_empty();
    let planned: Vec<String> = match is_asked {
        true => asked.to_vec(),
        false => planned.iter().map(|&name| name.to_owned()).collect(),
    };
    let mut arms = comparison::chosen(&KNOWN, &planned)?;
    if !congestion_control {
        let is_conflux = |arm: &Arm| {
            arm.keys
                .iter()
                .any(|(key, value)| key == "conflux" && value == "true")
        };
        let before = arms.len();
        arms.retain(|arm| !is_conflux(arm));
        ensure!(
            !is_asked || arms.len() == before,
            "--arm: conflux needs congestion control, which is off"
        );
    }
    Ok(arms)
}
