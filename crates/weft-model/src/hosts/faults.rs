//! Faults: hosts that do not answer, and paths that lose everything.

use std::collections::BTreeSet;

use crate::hosts::connection::HostId;

/// Current faults.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Hosts that neither send nor receive.
    silent: BTreeSet<HostId>,
    /// Pairs that do not reach each other, the smaller number first.
    cut: BTreeSet<(HostId, HostId)>,
    /// There is any of them.
    any: bool,
}

impl Faults {
    pub(crate) fn set_silent(&mut self, host: HostId, is_silent: bool) {
        match is_silent {
            true => self.silent.insert(host),
            false => self.silent.remove(&host),
        };
        self.update();
    }

    pub(crate) fn set_cut(&mut self, one: HostId, other: HostId, is_cut: bool) {
        match is_cut {
            true => self.cut.insert(pair(one, other)),
            false => self.cut.remove(&pair(one, other)),
        };
        self.update();
    }

    /// Returns true if a packet from one to the other is lost.
    pub(crate) fn lose(&self, from: HostId, to: HostId) -> bool {
        self.any
            && (self.silent.contains(&from)
                || self.silent.contains(&to)
                || self.cut.contains(&pair(from, to)))
    }

    fn update(&mut self) {
        self.any = !self.silent.is_empty() || !self.cut.is_empty();
    }
}

fn pair(one: HostId, other: HostId) -> (HostId, HostId) {
    (one.min(other), one.max(other))
}
