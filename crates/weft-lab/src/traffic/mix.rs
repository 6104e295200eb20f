//! Users of an experiment.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use weft_model::links::nearest;
use weft_model::traffic::{Markov, MarkovModel, Model, ModelName};
use weft_stats::bounds::Bounds;

/// The name of the models that are read from files.
const MARKOV: &str = "markov";
/// The most users of all models.
const USERS: Bounds<usize> = Bounds::new(1, 5_000);
/// The largest file of a model, bytes.
const LARGEST: u64 = 16 << 20;

/// An argument such as `web=10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `None`: Markov models.
    name: Option<ModelName>,
    count: usize,
}

impl Asked {
    fn name(self) -> &'static str {
        self.name.map_or(MARKOV, ModelName::name)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.count)
    }
}

/// Reads `MODEL=N`; a model alone has one user.
pub(super) fn asked(text: &str) -> Result<Asked, String> {
    let (name, count) = text.split_once('=').unwrap_or((text, "1"));
    let mut all = ModelName::ALL.into_iter();
    let known = all.find(|one| one.name() == name);
    if known.is_none() && name != MARKOV {
        return Err(unknown(name));
    }
    let count = USERS
        .parse(count)
        .map_err(|why| format!("{count:?} is no number of users, as in {name}=N: {why}"))?;
    Ok(Asked { name: known, count })
}

/// Error message for the name of a model that does not exist.
fn unknown(name: &str) -> String {
    let names = ModelName::ALL.map(ModelName::name);
    let names = || names.into_iter().chain([MARKOV]);
    let near = nearest(name, names());
    let hint = near.map_or_else(String::new, |one| format!(": did you mean {one}?"));
    let all = names().collect::<Vec<_>>().join(", ");
    format!("there is no model {name:?}{hint} (there are {all})")
}

/// Users of one model.
#[derive(Clone, Debug)]
pub(super) struct Users {
    pub(super) model_name: &'static str,
    pub(super) model: Model,
    pub(super) count: usize,
}

/// All users that were asked for, with the models of these files.
///
/// # Errors
///
/// A model is named twice, there are too many users, a file is missing, not needed, or no model.
pub(super) fn users(
    all: &[Asked],
    streams: Option<&Path>,
    packets: Option<&Path>,
) -> Result<Vec<Users>> {
    for (place, one) in all.iter().enumerate() {
        let mut others = all.iter().skip(place + 1);
        ensure!(
            others.all(|other| other.name != one.name),
            "--users names {} twice: add its users up",
            one.name()
        );
    }
    let count = all
        .iter()
        .fold(0, |sum: usize, one| sum.saturating_add(one.count));
    ensure!(
        USERS.allow(count),
        "{count} users are more than one program should play: at most {}",
        USERS.most()
    );
    let wants_files = all.iter().any(|one| one.name.is_none());
    let markov = match (wants_files, streams, packets) {
        (true, Some(streams), Some(packets)) => Some(Markov::new(
            model("--streams", streams)?,
            model("--packets", packets)?,
        )),
        (true, ..) => bail!(
            "--users {MARKOV} needs two models as files, --streams FILE and --packets FILE \
             (examples/traffic has small ones)"
        ),
        (false, None, None) => None,
        (false, ..) => bail!(
            "--streams and --packets are models of users that --users does not have: add {MARKOV}=N to it"
        ),
    };
    let users = all.iter().map(|one| {
        let model = match (one.name, &markov) {
            (Some(name), _) => name.model(),
            (None, Some(markov)) => Model::Markov(markov.clone()),
            (None, None) => bail!("--users {MARKOV} needs --streams and --packets"),
        };
        Ok(Users {
            model_name: one.name(),
            model,
            count: one.count,
        })
    });
    users.collect()
}

/// The Markov model of this file.
fn model(option: &str, path: &Path) -> Result<Arc<MarkovModel>> {
    let shown = path.display();
    let reading = || format!("{option}: cannot read {shown}");
    let mut bytes = Vec::new();
    File::open(path)
        .with_context(reading)?
        .take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .with_context(reading)?;
    ensure!(
        bytes.len() as u64 <= LARGEST,
        "{option}: {shown} is larger than {} MiB, and no model is",
        LARGEST >> 20
    );
    let text = String::from_utf8(bytes).map_err(|_| {
        anyhow!("{option}: {shown} is no text; if it is compressed, decompress it first (`xz -dk`)")
    })?;
    let model = MarkovModel::parse(&text)
        .with_context(|| format!("{option}: {shown} is no Markov model of TGen or PrivCount"))?;
    Ok(Arc::new(model))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn users_are_a_model_and_a_number() {
        assert_eq!(asked("web=10").expect("users").to_string(), "web=10");
        assert_eq!(asked("slow-page").expect("one").to_string(), "slow-page=1");
        assert_eq!(asked("markov=3").expect("users").to_string(), "markov=3");
        for (text, expected) in [
            ("bluk=1", "did you mean bulk?"),
            ("preformance", "did you mean performance?"),
            (
                "zzzzzzzzzz=1",
                "there is no model \"zzzzzzzzzz\" (there are bulk, web",
            ),
            ("web=0", "\"0\" is no number of users, as in web=N"),
            ("web=-1", "\"-1\" is no number of users"),
            ("", "there is no model"),
        ] {
            let error = asked(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let [broken, binary] = ["broken", "binary"].map(|name| folder.path().join(name));
        fs::write(&broken, "<graphml>\n<graph>\n").expect("written");
        fs::write(&binary, b"\xfd7zXZ\0\xff").expect("written");
        let missing = folder.path().join("missing");
        let all = |names: &[&str]| -> Vec<Asked> {
            names.iter().map(|one| asked(one).expect("users")).collect()
        };
        let error = |names: &[&str], streams: Option<&Path>, packets: Option<&Path>| {
            let error = users(&all(names), streams, packets).expect_err("refused");
            format!("{error:#}")
        };
        for (found, expected) in [
            (error(&["web=1", "web=2"], None, None), "web twice"),
            (error(&["web=5000", "bulk=1"], None, None), "at most 5000"),
            (
                error(&["markov=1"], None, None),
                "--streams FILE and --packets FILE",
            ),
            (
                error(&["web=1"], Some(&broken), Some(&broken)),
                "add markov=N",
            ),
            (
                error(&["markov=1"], Some(&missing), Some(&broken)),
                "cannot read",
            ),
            (error(&["markov=1"], Some(&broken), Some(&broken)), "line "),
            (error(&["markov=1"], Some(&binary), Some(&broken)), "xz -dk"),
        ] {
            assert!(found.contains(expected), "{expected} in {found}");
        }
    }
}
