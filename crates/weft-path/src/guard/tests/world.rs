//! Guards, with the network, the options and the time that they are asked with.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;

use super::super::*;
use crate::options::PathOptions;
use crate::relays::Relays;
use crate::testing::{TestNet, id_of, now, rsa, secs};
use crate::ticket::GuardTicket;

/// Guards with everything that they are asked with.
pub(super) struct World {
    pub(super) net: TestNet,
    pub(super) relays: Relays,
    pub(super) options: PathOptions,
    pub(super) guards: Guards,
    pub(super) now: SystemTime,
    pub(super) rng: ChaCha12Rng,
}

impl World {
    pub(super) fn with(net: TestNet, options: PathOptions, lines: &[&str]) -> Self {
        let relays = net.relays();
        let mut world = Self {
            net,
            relays,
            options,
            guards: Guards::load(lines.iter().copied(), now()),
            now: now(),
            rng: ChaCha12Rng::seed_from_u64(1),
        };
        world.update();
        world
    }

    pub(super) fn new(net: TestNet) -> Self {
        Self::with(net, PathOptions::default(), &[])
    }

    pub(super) fn update(&mut self) -> bool {
        self.guards
            .update(&self.relays, &self.options, self.now, &mut self.rng)
    }

    /// A new consensus of the network as it is by now.
    pub(super) fn consensus(&mut self) -> bool {
        self.net.valid_after = self.now - secs(60);
        self.relays = self.net.relays();
        self.update()
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.now += secs(seconds);
    }

    pub(super) fn select_for(
        &mut self,
        usage: GuardUsage,
        exit: Option<u16>,
    ) -> Option<(u16, GuardTicket)> {
        let exit = exit.and_then(|id| self.relays.by_rsa(&rsa(id)));
        let restriction = Restriction { exit, avoid: &[] };
        let (row, ticket) = self.guards.select(
            usage,
            restriction,
            &self.relays,
            &self.options,
            self.now,
            &mut self.rng,
        )?;
        Some((id_of(&self.relays.rows()[row].hop.rsa), ticket))
    }

    pub(super) fn select(&mut self) -> (u16, GuardTicket) {
        self.select_for(GuardUsage::Traffic, None).unwrap()
    }

    pub(super) fn outcome(&mut self, ticket: GuardTicket, outcome: Outcome) -> GuardUse {
        self.guards.outcome(
            ticket,
            outcome,
            &self.relays,
            &self.options,
            self.now,
            &mut self.rng,
        )
    }

    pub(super) fn forget(&mut self, ticket: GuardTicket) {
        self.guards.forget(ticket, &self.options);
    }

    pub(super) fn poll(&mut self) -> Vec<(GuardTicket, GuardUse)> {
        self.guards.poll(&self.relays, &self.options, self.now)
    }

    /// Primary guards in order.
    pub(super) fn primary(&self) -> Vec<u16> {
        let infos = self.guards.infos();
        let primary = infos.iter().filter(|info| info.primary);
        primary.map(|info| id_of(&info.rsa)).collect()
    }

    /// All guards in use.
    pub(super) fn sampled(&self) -> BTreeSet<u16> {
        self.guards.infos().iter().map(|i| id_of(&i.rsa)).collect()
    }

    pub(super) fn info(&self, id: u16) -> GuardInfo {
        let infos = self.guards.infos();
        infos.into_iter().find(|i| i.rsa == rsa(id)).unwrap()
    }

    /// Three guards are confirmed, and so primary; then they go down.
    pub(super) fn confirm_three(&mut self) {
        for _ in 0..3 {
            let (_, ticket) = self.select();
            self.outcome(ticket, Outcome::Built);
            self.outcome(ticket, Outcome::GuardFailed);
            self.forget(ticket);
        }
    }

    /// Sampled guards, with the times of sampling.
    pub(super) fn entries(&self) -> BTreeSet<String> {
        let of = |line: &String, key: &str| {
            let mut words = line.split(' ');
            words.find(|word| word.starts_with(key)).unwrap().to_owned()
        };
        let lines = self.guards.lines();
        lines
            .iter()
            .map(|line| of(line, "rsa_id=") + &of(line, "sampled_on="))
            .collect()
    }

    /// Lets the primary guards fail, one after another.
    pub(super) fn primary_fail(&mut self) {
        for id in self.primary() {
            let (chosen, ticket) = self.select();
            assert_eq!(chosen, id);
            assert_eq!(self.outcome(ticket, Outcome::GuardFailed), GuardUse::Never);
            self.forget(ticket);
        }
    }
}
