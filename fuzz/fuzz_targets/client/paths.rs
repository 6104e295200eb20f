//! Paths of the client machine's test: the first guard that is up, exits as they come, and verdicts
//! about guards as the input chooses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;
use weft_cell::identity::RsaIdentity;
use weft_client::{BuildNews, BuildTimeouts, Chooser, Chosen, ConfluxParams, Now};
use weft_path::{ExitWanted, GuardUse, Hop, LegWanted, Outcome, PathError, RelayName, Usage};

/// Path selection.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) relays: Vec<Hop>,
    pub(crate) ready: bool,
    /// Guards by the tickets of their circuits.
    pub(crate) tickets: BTreeMap<u64, RsaIdentity>,
    next_ticket: u64,
    pub(crate) down: BTreeSet<RsaIdentity>,
    /// Chooses the verdicts about guards of complete circuits, and what is measured.
    pub(crate) verdict: u8,
    later: Vec<u64>,
}

impl Paths {
    fn hop(&self, exit: bool, not: &[RsaIdentity], turn: u32) -> Option<Hop> {
        let mut hops: Vec<&Hop> = self
            .relays
            .iter()
            .filter(|hop| hop.is_exit == exit && !not.contains(&hop.rsa))
            .filter(|hop| exit || !self.down.contains(&hop.rsa))
            .collect();
        let place = usize::try_from(turn).ok()?.checked_rem(hops.len())?;
        Some(hops.swap_remove(place).clone())
    }

    fn exit(&self, wanted: &ExitWanted, rng: &mut StdRng) -> Result<Hop, PathError> {
        if let Some(name) = &wanted.exit {
            let unknown = || PathError::UnknownRelay(name.to_string());
            return self.find(name).ok_or_else(unknown);
        }
        let exit = self.hop(true, &[], rng.next_u32());
        let exit = exit.filter(|exit| !wanted.avoid.contains(&exit.rsa));
        let exit = exit.filter(|exit| wanted.ports.iter().all(|p| exit.allows(*p)));
        exit.ok_or(PathError::NoExit(""))
    }

    fn ticket(&mut self, rsa: RsaIdentity) -> u64 {
        self.next_ticket += 1;
        self.tickets.insert(self.next_ticket, rsa);
        self.next_ticket
    }
}

impl Chooser for Paths {
    type Guard = u64;

    fn path(
        &mut self,
        usage: &Usage,
        _now: Now,
        rng: &mut StdRng,
    ) -> Result<Chosen<u64>, PathError> {
        if !self.ready {
            return Err(PathError::NoDirectory);
        }
        let exit = match usage {
            Usage::Exact(names) => {
                let hops = names
                    .iter()
                    .map(|name| {
                        let unknown = || PathError::UnknownRelay(name.to_string());
                        self.find(name).ok_or_else(unknown)
                    })
                    .collect::<Result<_, _>>()?;
                return Ok(Chosen { hops, guard: None });
            }
            Usage::Exit(wanted) => Some(self.exit(wanted, rng)?),
            Usage::Leg(leg) => {
                let exit = self.exit(&leg.exit, rng)?;
                Some(exit)
                    .filter(Hop::joins_sets)
                    .map_or(Err(PathError::NoExit("")), |exit| Ok(Some(exit)))?
            }
            Usage::Directory => None,
            Usage::Internal { .. } => return Err(PathError::NoMiddle),
        };
        let none = LegWanted::default();
        let others = match usage {
            Usage::Leg(leg) => leg,
            _ => &none,
        };
        let first = self
            .hop(false, &others.guards, 0)
            .ok_or(PathError::NoGuard)?;
        let mut hops = vec![first.clone()];
        if let Some(exit) = exit {
            let mut not = others.middles.clone();
            not.push(first.rsa);
            let middle = self.hop(false, &not, rng.next_u32());
            hops.push(middle.ok_or(PathError::NoMiddle)?);
            hops.push(exit);
        }
        let guard = Some(self.ticket(first.rsa));
        Ok(Chosen { hops, guard })
    }

    fn guard(&mut self, guard: &u64, outcome: Outcome, _now: Now, _rng: &mut StdRng) -> GuardUse {
        let rsa = *self
            .tickets
            .get(guard)
            .expect("a ticket that was forgotten");
        if outcome == Outcome::GuardFailed {
            self.down.insert(rsa);
        }
        match (outcome, self.verdict % 4) {
            (Outcome::Built, 2) => {
                self.later.push(*guard);
                GuardUse::Later
            }
            (Outcome::Built, 3) => GuardUse::Never,
            _ => GuardUse::Now,
        }
    }

    fn settled_guards(&mut self, _now: Now) -> Vec<(u64, GuardUse)> {
        let verdict = match self.verdict & 8 {
            0 => GuardUse::Now,
            _ => GuardUse::Never,
        };
        std::mem::take(&mut self.later)
            .into_iter()
            .map(|guard| (guard, verdict))
            .collect()
    }

    fn forget(&mut self, guard: &u64) {
        assert!(self.tickets.remove(guard).is_some(), "forgotten twice");
        self.later.retain(|later| later != guard);
    }

    fn timeouts(&self) -> BuildTimeouts {
        BuildTimeouts {
            timeout: Duration::from_secs(10),
            close: Duration::from_secs(60),
            measure: self.verdict & 16 != 0,
            wants_circuits: self.verdict & 32 != 0,
            probe: self.verdict & 128 != 0,
            round_trip: (self.verdict & 132 == 132).then_some(Duration::from_secs(1)),
        }
    }

    fn built(&mut self, _news: BuildNews, _now: Now) {}

    fn is_ready(&self) -> bool {
        self.ready
    }

    fn congestion(&self) -> Option<u8> {
        (self.verdict & 64 != 0).then_some(31)
    }

    fn conflux(&self) -> Option<ConfluxParams> {
        Some(ConfluxParams::default())
    }

    fn find(&self, name: &RelayName) -> Option<Hop> {
        let is_it = |hop: &&Hop| match name {
            RelayName::Rsa(rsa) => hop.rsa == *rsa,
            RelayName::Ed25519(ed25519) => hop.ed25519 == *ed25519,
            RelayName::Nickname(nickname) => hop.nickname == *nickname,
        };
        self.relays.iter().find(is_it).cloned()
    }
}
