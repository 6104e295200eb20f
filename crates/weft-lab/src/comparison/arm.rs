//! Arms of a scenario by name, or with keys of their own.

use anyhow::{Context as _, Result, bail, ensure};
use weft_model::links::is_name;

/// Keys of an `[[arm]]` of a scenario, with their values as TOML has them.
type Keys = &'static [(&'static str, &'static str)];

/// An arm that an experiment has: its name, and its keys.
pub(crate) type Planned = (&'static str, Keys);

/// One way in which nodes are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    /// In the scenario.
    pub(crate) name: String,
    /// Keys and values, as TOML.
    pub(crate) keys: Vec<(String, String)>,
}

impl Arm {
    fn planned(&(name, keys): &Planned) -> Arm {
        let keys = keys.iter();
        Arm {
            name: name.to_owned(),
            keys: keys
                .map(|&(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Its key in JSON: a name of a scenario has no underscores.
    pub(crate) fn json_key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// As an `[[arm]]`.
    pub(crate) fn toml(&self) -> String {
        let mut text = format!("\n[[arm]]\nname = \"{}\"\n", self.name);
        for (key, value) in &self.keys {
            text += &format!("{key} = {value}\n");
        }
        text
    }
}

/// The arms that are asked for, or all of the planned ones. The first planned one is what others are compared with: it comes first,
/// asked for or not. Keys are checked where the scenario is read.
///
/// # Errors
///
/// A name is none, or is there twice; a key has no value.
pub(crate) fn chosen(planned: &[Planned], asked: &[String]) -> Result<Vec<Arm>> {
    if asked.is_empty() {
        return Ok(planned.iter().map(Arm::planned).collect());
    }
    let mut arms: Vec<Arm> = planned.iter().take(1).map(Arm::planned).collect();
    let base = planned.first().map_or("", |(name, _)| name);
    for text in asked {
        let arm = parse(planned, text)?;
        if arm.name == base {
            ensure!(
                arm.keys.is_empty(),
                "--arm {text}: {base} is what others are compared with, and has no keys"
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
fn parse(planned: &[Planned], text: &str) -> Result<Arm> {
    let (name, keys) = text.split_once(':').unwrap_or((text, ""));
    let name = name.replace('_', "-");
    ensure!(
        is_name(&name),
        "--arm {text}: a name has 1 to 40 lower-case letters, digits and hyphens"
    );
    if !text.contains(':') {
        let known = planned.iter().find(|(one, _)| *one == name);
        let names: Vec<&str> = planned.iter().map(|(name, _)| *name).collect();
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
            false => quoted(value)?,
        };
        pairs.push((key.trim().to_owned(), value));
    }
    Ok(Arm { name, keys: pairs })
}

/// A basic string of TOML, which has all escapes that JSON writes.
pub(crate) fn quoted(text: &str) -> Result<String> {
    serde_json::to_string(text).context("writing a scenario")
}
