//! Path selection of clients: that of a node, or of clients that measure every circuit and leave none out.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use rand::rngs::StdRng;
use weft_client::{BuildNews, BuildTimeouts, Chooser, Chosen, ConfluxParams, Now, Paths};
use weft_path::{GuardTicket, GuardUse, Outcome, PathError, RelayName, Usage};

/// A circuit that is measured may take so long to be built, and so long to answer: the timeout of clients that have learnt
/// nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) struct Choosing {
    paths: Paths,
    measures: bool,
    /// Paths have one hop, their exit.
    one_hop: bool,
}

impl Choosing {
    pub(super) fn new(paths: Paths, measures: bool, one_hop: bool) -> Choosing {
        Choosing {
            paths,
            measures,
            one_hop,
        }
    }
}

impl Deref for Choosing {
    type Target = Paths;

    fn deref(&self) -> &Paths {
        &self.paths
    }
}

impl DerefMut for Choosing {
    fn deref_mut(&mut self) -> &mut Paths {
        &mut self.paths
    }
}

impl Chooser for Choosing {
    type Guard = GuardTicket;

    fn path(
        &mut self,
        usage: &Usage,
        now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<GuardTicket>, PathError> {
        let mut chosen = self.paths.path(usage, now, rng)?;
        if self.one_hop {
            let before = chosen.hops.len().saturating_sub(1);
            chosen.hops.drain(..before);
            if let Some(guard) = chosen.guard.take() {
                self.paths.forget(&guard);
            }
        }
        Ok(chosen)
    }

    fn guard(
        &mut self,
        guard: &GuardTicket,
        outcome: Outcome,
        now: Now,
        rng: &mut StdRng,
    ) -> GuardUse {
        self.paths.guard(guard, outcome, now, rng)
    }

    fn settled_guards(&mut self, now: Now) -> Vec<(GuardTicket, GuardUse)> {
        self.paths.settled_guards(now)
    }

    fn forget(&mut self, guard: &GuardTicket) {
        self.paths.forget(guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        match self.measures {
            // With a limit streams wait for the answer, so that they do not delay it.
            true => BuildTimeouts {
                timeout: PATIENCE,
                close: PATIENCE,
                measure: false,
                wants_circuits: false,
                probe: true,
                round_trip: Some(PATIENCE),
            },
            false => self.paths.timeouts(),
        }
    }

    fn built(&mut self, news: BuildNews, now: Now) {
        if !self.measures {
            self.paths.built(news, now);
        }
    }

    fn is_ready(&self) -> bool {
        self.paths.is_ready()
    }

    fn congestion(&self) -> Option<u8> {
        self.paths.congestion()
    }

    fn conflux(&self) -> Option<ConfluxParams> {
        // A circuit is measured alone.
        self.paths.conflux().filter(|_| !self.measures)
    }

    fn find(&self, name: &RelayName) -> Option<weft_path::Hop> {
        self.paths.find(name)
    }
}
