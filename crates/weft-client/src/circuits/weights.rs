//! Bandwidth that the relays of a client's circuits state (docs/extensions/abra.md).

use std::collections::BTreeMap;
use std::time::Instant;

use slab::Slab;
use weft_cell::identity::{Ed25519Identity, RsaIdentity};
use weft_core::extensions::abra::{AbraError, MAX_AGE, Memo};
use weft_path::Candidate;
use weft_planted::{Fault, planted};

use super::hop::Hop;
use crate::now::Now;

/// Counters of relays' statements, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementCounts {
    /// Hops that were asked.
    pub asked: u64,
    /// Statements that count.
    pub accepted: u64,
    /// Ignored: they cannot be read, or their weight is no number.
    pub malformed: u64,
    /// Ignored: they are not the relay's.
    pub forged: u64,
    /// Ignored: they are too old, or older than one that came before.
    pub stale: u64,
    /// Ignored: they are of a time to come.
    pub ahead: u64,
}

impl StatementCounts {
    fn note(&mut self, result: Result<(), &AbraError>) {
        let count = match result {
            Ok(()) => &mut self.accepted,
            Err(AbraError::Malformed(_) | AbraError::Certificate) => &mut self.malformed,
            Err(AbraError::NotCertified | AbraError::Forged) => &mut self.forged,
            Err(AbraError::Stale(_) | AbraError::Replayed) => &mut self.stale,
            Err(AbraError::Ahead(_)) => &mut self.ahead,
        };
        *count += 1;
    }
}

/// A relay of some circuit.
#[derive(Debug)]
struct Known {
    rsa: RsaIdentity,
    /// Circuits that it is in.
    circuits: u32,
    memo: Memo,
    /// Its weight, and when it came.
    stated: Option<(f64, Instant)>,
}

impl Known {
    fn weight(&self, now: Now) -> Option<f64> {
        let (weight, at) = self.stated?;
        (now.since(at) <= MAX_AGE).then_some(weight)
    }
}

/// The weights of the relays of open circuits. A relay is forgotten with the last circuit that it is in.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    relays: Slab<Known>,
    by_rsa: BTreeMap<RsaIdentity, usize>,
    pub(crate) counts: StatementCounts,
}

/// The relays of a circuit, as places in [`Weights`].
pub(crate) type Places = Vec<usize>;

impl Weights {
    /// A circuit has these relays, until [`leave`](Self::leave).
    pub(crate) fn enter(&mut self, hops: &[Hop]) -> Places {
        let place = |hop: &Hop| {
            let relays = &mut self.relays;
            let place = *self.by_rsa.entry(hop.rsa).or_insert_with(|| {
                relays.insert(Known {
                    rsa: hop.rsa,
                    circuits: 0,
                    memo: Memo::default(),
                    stated: None,
                })
            });
            if let Some(known) = relays.get_mut(place) {
                known.circuits += 1;
            }
            place
        };
        hops.iter().map(place).collect()
    }

    /// A circuit is over.
    pub(crate) fn leave(&mut self, places: &[usize]) {
        for place in places.iter().copied() {
            let Some(known) = self.relays.get_mut(place) else {
                continue;
            };
            known.circuits = known.circuits.saturating_sub(1);
            if known.circuits == 0 {
                self.by_rsa.remove(&known.rsa);
                self.relays.remove(place);
            }
        }
    }

    /// Relays that are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.relays.len()
    }

    /// A relay's statement. With its identity, certificate and signature are checked.
    ///
    /// # Errors
    ///
    /// Why it is ignored.
    pub(crate) fn state(
        &mut self,
        place: usize,
        statement: &[u8],
        identity: Option<&Ed25519Identity>,
        now: Now,
    ) -> Result<(), AbraError> {
        let Some(known) = self.relays.get_mut(place) else {
            return Ok(());
        };
        let claim = match identity {
            Some(identity) => known.memo.accept(statement, identity, now.wall),
            None => known.memo.accept_unsigned(statement, now.wall),
        };
        self.counts.note(claim.as_ref().map(|_| ()));
        known.stated = Some((claim?.weight, now.mono));
        Ok(())
    }

    /// Number of these relays with a known weight.
    pub(crate) fn stated(&self, places: &[usize], now: Now) -> usize {
        let relays = places.iter().filter_map(|place| self.relays.get(*place));
        relays.filter(|relay| relay.weight(now).is_some()).count()
    }

    /// A circuit over these relays, as one that a stream may use.
    pub(crate) fn candidate(&self, places: &[usize], bandwidth: f64, now: Now) -> Candidate {
        let silent = planted(Fault::SilenceWeighs).then_some(1.0);
        let weight = |place: &usize| self.relays.get(*place)?.weight(now).or(silent);
        Candidate::new(places.iter().map(weight), bandwidth)
    }
}
