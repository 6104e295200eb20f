//! Ways of choosing circuits.

use anyhow::{Context as _, Result, bail, ensure};
use weft_links::is_name;

/// What the others are compared with.
pub(super) const BASE: &str = "default";

/// Keys of an `[[arm]]` of a scenario, with their values as TOML has them.
type Keys = &'static [(&'static str, &'static str)];

/// Those that the paper compares, and both of its ways together. Another combination is one more line here, or `--arm
/// NAME:KEY=VALUE,…`.
const PLANNED: [(&str, Keys); 4] = [
    (BASE, &[]),
    ("abra", &[("selection", "\"abra\"")]),
    ("rtt", &[("acceptance", "\"rtt\"")]),
    (
        "abra-rtt",
        &[("acceptance", "\"rtt\""), ("selection", "\"abra\"")],
    ),
];

/// One way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    /// In the scenario.
    pub(super) name: String,
    /// Keys and values, as TOML.
    pub(super) keys: Vec<(String, String)>,
}

impl Arm {
    fn planned(&(name, keys): &(&str, Keys)) -> Arm {
        let keys = keys.iter();
        Arm {
            name: name.to_owned(),
            keys: keys
                .map(|&(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Its key in JSON: a name of a scenario has no underscores.
    pub(super) fn json_key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// As an `[[arm]]`.
    pub(super) fn toml(&self) -> String {
        let mut text = format!("\n[[arm]]\nname = \"{}\"\n", self.name);
        for (key, value) in &self.keys {
            text += &format!("{key} = {value}\n");
        }
        text
    }
}

/// With adversaries that have these parts of the relays: each once watching and once lying, under `abra`.
///
/// # Errors
///
/// A part is none.
pub(super) fn adversaries(parts: &[f64]) -> Result<Vec<Arm>> {
    let mut arms = Vec::new();
    for part in parts {
        ensure!(
            (0.0..=1.0).contains(part),
            "--adversary {part}: it is a part of the relays, from 0 to 1"
        );
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

/// The arms that are asked for, or the planned ones; what they are compared with comes first, asked for or not. Keys are
/// checked where the scenario is read.
///
/// # Errors
///
/// A name is none, or is there twice; a key has no value.
pub(super) fn chosen(asked: &[String]) -> Result<Vec<Arm>> {
    if asked.is_empty() {
        return Ok(PLANNED.iter().map(Arm::planned).collect());
    }
    let base = PLANNED.iter().filter(|(name, _)| *name == BASE);
    let mut arms: Vec<Arm> = base.map(Arm::planned).collect();
    for text in asked {
        let arm = parse(text)?;
        if arm.name == BASE {
            ensure!(
                arm.keys.is_empty(),
                "--arm {text}: {BASE} is what others are compared with, and has no keys"
            );
            continue;
        }
        ensure!(
            arms.iter().all(|one| one.name != arm.name),
            "--arm: two arms are named {}",
            arm.name
        );
        arms.push(arm);
    }
    Ok(arms)
}

/// `abra`, or `NAME:KEY=VALUE,KEY=VALUE`. A value that is neither true, false nor a number is text, with
/// quotes or without.
fn parse(text: &str) -> Result<Arm> {
    let (name, keys) = text.split_once(':').unwrap_or((text, ""));
    let name = name.replace('_', "-");
    ensure!(
        is_name(&name),
        "--arm {text}: a name has 1 to 40 lower-case letters, digits and hyphens"
    );
    if !text.contains(':') {
        let known = PLANNED.iter().find(|(one, _)| *one == name);
        let names: Vec<&str> = PLANNED.iter().map(|(name, _)| *name).collect();
        return known.map(Arm::planned).with_context(|| {
            format!(
                "--arm {text}: it is one of {}, or a new one with its keys, such as short:max_circuit_dirtiness=1min",
                names.join(", ")
            )
        });
    }
    let mut pairs = Vec::new();
    for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("--arm {text}: {pair:?} is not KEY=VALUE");
        };
        let is_plain = matches!(value, "true" | "false")
            || value.starts_with('"')
            || value.parse::<f64>().is_ok();
        let value = match is_plain {
            true => value.to_owned(),
            false => super::plan::quoted(value)?,
        };
        pairs.push((key.trim().to_owned(), value));
    }
    Ok(Arm { name, keys: pairs })
}
