//! Choices of circuits by weight, recorded: which circuits a client could have given to a stream, and what it knew of their
//! relays.
//!
//! The client does not report that, so it is found again from what it shows of its circuits, and from relays' statements as they
//! came. A choice is kept only if circuits and weights are those by which the client chose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_cell::identity::RsaIdentity;
use weft_client::{Chooser as _, CircuitInfo, CircuitPurpose, CircuitStatus, Client, Now};
use weft_core::address::{ConnectionId, HopIndex};
use weft_core::extensions::abra::{MAX_AGE, Memo};
use weft_core::origin::OriginId;
use weft_path::{Candidate, CircuitSelection, RelayName, TargetPort};
use weft_sim::compromise::abra::pools::{Choice, Circuit};

use super::choosing::Choosing;

/// Latest statement of a relay, with its time.
#[derive(Debug, Default)]
struct Stated {
    memo: Memo,
    weight: Option<(f64, Instant)>,
}

/// The choices of one client.
#[derive(Debug)]
pub(super) struct Recorder {
    client: String,
    /// Choices that may be recorded yet.
    left: u32,
    /// None is before that.
    from: Duration,
    /// Relays' places in the setup.
    places: Arc<BTreeMap<RsaIdentity, u32>>,
    stated: BTreeMap<RsaIdentity, Stated>,
    /// Circuits before this one were left at the last NEWNYM.
    first: OriginId,
    /// When circuits in use were first used.
    used: BTreeMap<OriginId, Instant>,
    /// Circuits that failed a stream.
    failed: BTreeSet<OriginId>,
    pub(super) choices: Vec<Choice>,
    /// Choices that were not found again.
    pub(super) left_out: u64,
}

impl Recorder {
    pub(super) fn new(
        client: &str,
        most: u32,
        from: Duration,
        places: &Arc<BTreeMap<RsaIdentity, u32>>,
    ) -> Recorder {
        Recorder {
            client: client.to_owned(),
            left: most,
            from,
            places: Arc::clone(places),
            stated: BTreeMap::new(),
            first: OriginId(0),
            used: BTreeMap::new(),
            failed: BTreeSet::new(),
            choices: Vec::new(),
            left_out: 0,
        }
    }

    /// The client leaves the circuits that it has.
    pub(super) fn leave(&mut self, client: &Client<Choosing>) {
        let newest = client.circuits().map(|circuit| circuit.id.0).max();
        self.first = OriginId(newest.unwrap_or(0) + 1);
    }

    /// A relay of a circuit stated its weight.
    pub(super) fn stated(
        &mut self,
        client: &Client<Choosing>,
        (circuit, hop): (OriginId, HopIndex),
        statement: &[u8],
        now: Now,
    ) {
        let mut circuits = client.circuits();
        let circuit = circuits.find(|one| one.id == circuit);
        let Some((rsa, _)) = circuit.as_ref().and_then(|one| one.path.get(hop.index())) else {
            return;
        };
        let known = self.stated.entry(*rsa).or_default();
        if let Ok(claim) = known.memo.accept_unsigned(statement, now.wall) {
            known.weight = Some((claim.weight, now.mono));
        }
    }

    /// A stream that was on this circuit was put on another.
    pub(super) fn failed(&mut self, circuit: OriginId) {
        self.failed.insert(circuit);
    }

    /// A stream was put on this circuit.
    pub(super) fn chosen(
        &mut self,
        client: &Client<Choosing>,
        (stream, chosen): (ConnectionId, OriginId),
        elapsed: Duration,
        now: Now,
    ) {
        self.used.entry(chosen).or_insert(now.mono);
        let is_wanted = client.config().selection == CircuitSelection::Abra && elapsed >= self.from;
        if self.left == 0 || !is_wanted {
            return;
        }
        match self.choice(client, (stream, chosen), elapsed, now) {
            Some(choice) => {
                self.left -= 1;
                self.choices.push(choice);
            }
            None => self.left_out += 1,
        }
    }

    /// `None`: not all is known of it.
    fn choice(
        &mut self,
        client: &Client<Choosing>,
        (stream, chosen): (ConnectionId, OriginId),
        elapsed: Duration,
        now: Now,
    ) -> Option<Choice> {
        let all: Vec<CircuitInfo> = client.weighed_circuits(now).collect();
        self.forget(&all);
        let stream = client.streams().find(|one| one.id == stream)?;
        let target = TargetPort {
            ipv6: false,
            port: stream.port,
        };
        let mut place = None;
        let mut circuits = Vec::new();
        for info in &all {
            let leads_there = |rsa: &RsaIdentity| {
                let exit = client.chooser_ref().find(&RelayName::Rsa(*rsa));
                exit.is_some_and(|exit| exit.allows(target))
            };
            let is_old = self.used.get(&info.id).is_some_and(|used| {
                now.mono.saturating_duration_since(*used) >= client.config().max_dirtiness
            });
            let is_another = info.used_by.as_ref().is_some_and(|(fields, _)| {
                fields.credentials != stream.fields.credentials
                    || fields.nym_epoch != stream.fields.nym_epoch
            });
            let may = info.status == CircuitStatus::Built
                && info.purpose == CircuitPurpose::General
                && info.id >= self.first
                && !is_old
                && !is_another
                && !self.failed.contains(&info.id)
                && info.path.last().is_some_and(|(rsa, _)| leads_there(rsa));
            if !may {
                continue;
            }
            let relays = info.path.iter();
            let relays = relays.map(|(rsa, _)| self.places.get(rsa).copied());
            let weights: Vec<Option<f64>> = (info.path.iter())
                .map(|(rsa, _)| self.weight(rsa, now))
                .collect();
            // What the client says that it weighs.
            let sum = Candidate::new(weights.iter().copied(), 0.0).weight;
            if (sum - info.weight?).abs() > 1e-9 * sum.abs() {
                return None;
            }
            if info.id == chosen {
                place = Some(circuits.len());
            }
            circuits.push(Circuit {
                relays: relays.collect::<Option<_>>()?,
                weights,
            });
        }
        Some(Choice {
            client: self.client.clone(),
            at_s: elapsed.as_secs_f64(),
            chosen: place?,
            circuits,
        })
    }

    /// A relay is forgotten with the client's last circuit over it.
    fn forget(&mut self, all: &[CircuitInfo]) {
        let there = |id: &OriginId| all.iter().any(|one| one.id == *id);
        self.used.retain(|id, _| there(id));
        self.failed.retain(there);
        let weighed = all.iter().filter(|one| one.weight.is_some());
        let relays: BTreeSet<RsaIdentity> = (weighed.flat_map(|one| &one.path))
            .map(|(rsa, _)| *rsa)
            .collect();
        self.stated.retain(|rsa, _| relays.contains(rsa));
    }

    fn weight(&self, relay: &RsaIdentity, now: Now) -> Option<f64> {
        let (weight, at) = self.stated.get(relay)?.weight?;
        (now.mono.saturating_duration_since(at) <= MAX_AGE).then_some(weight)
    }
}
