//! The programs that are measured.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weft_plot::Look;

use crate::args::CONNECTION_THREADS;

/// A program to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Which {
    /// The C tor that is installed.
    Tor,
    /// Weft with this number of connection threads, or with its own choice.
    Weft(Option<u32>),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        match text.split_once(':') {
            None if text == "tor" => Ok(Which::Tor),
            None if text == "weft" => Ok(Which::Weft(None)),
            Some(("weft", threads)) => match CONNECTION_THREADS.parse(threads) {
                Ok(threads) => Ok(Which::Weft(Some(threads))),
                Err(why) => Err(format!("{threads:?} is no number of threads: {why}")),
            },
            _ => Err(format!(
                "{text:?} is no program to be measured: tor, weft or weft:THREADS"
            )),
        }
    }
}

impl TryFrom<String> for Which {
    type Error = String;

    fn try_from(text: String) -> Result<Which, String> {
        text.parse()
    }
}

impl From<Which> for String {
    fn from(which: Which) -> String {
        which.to_string()
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Tor => f.write_str("tor"),
            Which::Weft(None) => f.write_str("weft"),
            Which::Weft(Some(threads)) => write!(f, "weft:{threads}"),
        }
    }
}

impl Which {
    /// As a plot names it.
    pub fn in_words(self) -> String {
        match self {
            Which::Tor => "C tor".to_owned(),
            Which::Weft(None) => "Weft, its own choice of threads".to_owned(),
            Which::Weft(Some(0)) => "Weft, no connection threads".to_owned(),
            Which::Weft(Some(1)) => "Weft, 1 connection thread".to_owned(),
            Which::Weft(Some(threads)) => format!("Weft, {threads} connection threads"),
        }
    }

    /// Of its relay. Each program has a relay of its own in the network: clients go by what a relay's
    /// descriptor promises, and C tor promises more than Weft speaks (CGO), so that clients would need
    /// a new consensus after each turn.
    pub(super) fn nickname(self) -> String {
        format!("target{}", self.to_string().replace(':', ""))
    }

    pub(super) fn look(self) -> Look {
        match self {
            Which::Tor => Look::grey(),
            Which::Weft(threads) => Look::number(threads.map_or(5, |threads| threads as usize)),
        }
    }
}
