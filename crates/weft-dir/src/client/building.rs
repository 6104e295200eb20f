//! A consensus that is being completed with microdescriptors until paths can be chosen.

use std::collections::HashSet;
use std::sync::Arc;

use tor_netdir::{MdReceiver, NetDir, PartialNetDir};
use tor_netdoc::doc::microdesc::MicrodescAndHash;
use tor_netdoc::doc::netstatus::{MdConsensus, NetParams};

use super::Network;
use super::enough::{Fractions, PathWeights};
use crate::consensus::Consensus;
use crate::microdesc::{MdDigest, MicrodescStore};

/// tor-netdir's view of the consensus.
enum State {
    /// Not far enough.
    Partial(Box<PartialNetDir>),
    /// Far enough; more may come.
    Enough(Box<NetDir>),
}

/// Completion of a consensus by its microdescriptors.
#[derive(Debug, PartialEq)]
pub(super) enum Progress {
    /// Not far enough to build circuits.
    Lacking {
        /// The part of what is needed that is there, 0 to 1.
        done: f64,
        /// The fractions of paths, in C tor's words.
        status: String,
    },
    /// Circuits can be built.
    Enough {
        /// True if an exit is usable.
        has_exits: bool,
    },
}

/// A consensus and the microdescriptors that belong to it.
pub(super) struct Building {
    /// The part that every node keeps.
    consensus: Arc<Consensus>,
    /// Its relays' weights.
    weights: PathWeights,
    /// Its relays. `None` only while it is being moved.
    state: Option<State>,
    /// Microdescriptors that it lists and that are not there.
    missing: HashSet<MdDigest>,
    /// True if it has been handed out.
    handed_out: bool,
}

impl Building {
    /// `document`, completed with what the network `before` and the cache have. Also what was
    /// wrong with the cache.
    pub(super) fn new(
        consensus: Arc<Consensus>,
        document: MdConsensus,
        paths_needed: Option<f64>,
        before: Option<&Network>,
        store: &MicrodescStore,
    ) -> (Self, Option<String>) {
        let weights = PathWeights::new(&document);
        // The threshold is applied here, as C tor does; tor-netdir's own is set to its lowest.
        let mut replaced = NetParams::new();
        replaced.set("min_paths_for_circs_pct".into(), 25);
        let mut partial = PartialNetDir::new(document, Some(&replaced));
        if let Some(before) = before {
            partial.fill_from_previous_netdir(before.netdir.clone());
        }
        let missing: Vec<MdDigest> = partial.missing_microdescs().copied().collect();
        let mut building = Self {
            consensus,
            weights,
            state: Some(State::Partial(Box::new(partial))),
            missing: missing.iter().copied().collect(),
            handed_out: false,
        };
        let mut problem = None;
        for digest in &missing {
            if let Some(text) = store.get(digest)
                && let Err(error) = building.add(digest, text)
            {
                problem = Some(error);
            }
        }
        building.progress(paths_needed);
        (building, problem)
    }

    pub(super) fn consensus(&self) -> &Arc<Consensus> {
        &self.consensus
    }

    /// All microdescriptors that it lists.
    pub(super) fn listed(&self) -> impl Iterator<Item = &MdDigest> {
        self.weights.microdescs()
    }

    /// Digests of the listed microdescriptors that are lacking.
    pub(super) fn missing(&self) -> impl Iterator<Item = MdDigest> {
        self.missing.iter().copied()
    }

    /// True if a network has been made of it.
    pub(super) fn is_handed_out(&self) -> bool {
        self.handed_out
    }

    /// Adds a microdescriptor; `digest` is that of `text`.
    pub(super) fn add(&mut self, digest: &MdDigest, text: &str) -> Result<(), String> {
        let parsed = MicrodescAndHash::parse(text).map_err(|error| error.to_string())?;
        if parsed.digest() != digest {
            return Err("something follows its last line".into());
        }
        match &mut self.state {
            Some(State::Partial(partial)) => {
                partial.add_microdesc(parsed);
            }
            Some(State::Enough(netdir)) => {
                netdir.add_microdesc(parsed);
            }
            None => {}
        }
        self.missing.remove(digest);
        Ok(())
    }

    /// Its completion; `paths_needed` is PathsNeededToBuildCircuits.
    pub(super) fn progress(&mut self, paths_needed: Option<f64>) -> Progress {
        let fractions = self.fractions();
        let needed = self.weights.needed(paths_needed).max(f64::MIN_POSITIVE);
        if fractions.paths() >= needed {
            self.state = self.state.take().map(|state| match state {
                State::Partial(partial) => match partial.unwrap_if_sufficient() {
                    Ok(netdir) => State::Enough(Box::new(netdir)),
                    Err(partial) => State::Partial(Box::new(partial)),
                },
                enough => enough,
            });
            if matches!(self.state, Some(State::Enough(_))) {
                return Progress::Enough {
                    has_exits: fractions.has_exits(),
                };
            }
        }
        Progress::Lacking {
            done: (fractions.paths() / needed).clamp(0.0, 1.0),
            status: fractions.to_string(),
        }
    }

    /// The fractions of paths.
    fn fractions(&self) -> Fractions {
        self.weights
            .fractions(|digest| !self.missing.contains(digest))
    }

    /// The network as it is now, if it is enough.
    pub(super) fn hand_out(&mut self) -> Option<Network> {
        let Some(State::Enough(netdir)) = &self.state else {
            return None;
        };
        self.handed_out = true;
        Some(Network {
            netdir: Arc::new((**netdir).clone()),
            consensus: self.consensus.clone(),
        })
    }
}
